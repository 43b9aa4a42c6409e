//! The API by TCP: the socket's answers, for every host that may query it.
//!
//! | Where it listens     | `GET`                  | anything else    |
//! |----------------------|------------------------|------------------|
//! | loopback, no token   | any local process      | refused          |
//! | loopback, a token    | with the token         | with the token   |
//! | anywhere else        | with the token         | with the token   |
//!
//! A page of a stranger that runs in a browser here could ask loopback, too, once its name leads there: so a
//! request has to name this host by its address, as `localhost`, or as the configuration does.

use std::hint::black_box;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, fs};

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::{Json, Router};
use socket2::SockRef;
use tokio::net::TcpListener;

use super::bounds::Bounds;
use super::{Socket, body, page};
use crate::model::ApiError;

/// What is said of the listener: in the configuration, or on the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listen {
    /// The address; without one, no TCP listener.
    pub address: Option<SocketAddr>,
    /// A file with the token that requests have to have.
    pub token_file: Option<PathBuf>,
    /// A name of this host that requests may use.
    pub host_name: Option<String>,
}

/// Where a daemon answers.
pub struct Doors {
    pub(super) socket: Socket,
    pub(super) tcp: Option<Door>,
    pub(super) bounds: Bounds,
}

/// A bound listener, and its access rules.
#[derive(Debug)]
pub struct Door {
    listener: std::net::TcpListener,
    guard: Guard,
}

/// Why the listener cannot start.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Other hosts could connect, and no token is set.
    #[error(
        "other hosts could use {address} without a token; listen at 127.0.0.1 or [::1], or name a file with a token: \
         `token_file` in [api], or --token-file"
    )]
    Exposed {
        /// The address.
        address: SocketAddr,
    },
    /// The token's file cannot be read.
    #[error(
        "cannot read the token in {}: {source}; name a file that this user can read: `token_file` in [api], or \
         --token-file",
        .path.display()
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Others than its owner may read or write the token's file.
    #[error(
        "others than its owner may use the token in {0} (mode {mode:04o}); `chmod 600 {0}` changes that",
        .path.display()
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// What the file has is no token.
    #[error("{} has no token: {what}; `openssl rand -hex 32` makes one", .path.display())]
    NoToken {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The address could not be had.
    #[error("cannot listen at {address}: {source}; name another address with --listen")]
    Refused {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

impl Listen {
    /// Checks the settings as far as possible without listening.
    pub fn check(&self) -> Result<(), ListenError> {
        self.guard().map(drop)
    }

    /// Listens, if it is to.
    pub fn open(&self) -> Result<Option<Door>, ListenError> {
        let guard = self.guard()?;
        let Some(address) = self.address else { return Ok(None) };
        let bind = || {
            let listener = std::net::TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            // Connections inherit it, instead of up to 4 MiB each for a client that does not read (tcp(7)).
            SockRef::from(&listener).set_send_buffer_size(SEND_BUFFER)?;
            Ok(listener)
        };
        let listener = bind().map_err(|source| ListenError::Refused { address, source })?;
        Ok(Some(Door { listener, guard }))
    }

    fn guard(&self) -> Result<Guard, ListenError> {
        let token = self.token_file.as_deref().map(Token::read).transpose()?;
        match self.address {
            Some(address) if token.is_none() && !is_loopback(address) => {
                Err(ListenError::Exposed { address })
            }
            _ => Ok(Guard { token, host_name: self.host_name.clone() }),
        }
    }
}

/// Whether only this host can ask there.
pub fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

impl Doors {
    /// The Unix socket, and the TCP listener if one is set.
    pub fn new(socket: Socket, tcp: Option<Door>) -> Doors {
        Doors { socket, tcp, bounds: Bounds::default() }
    }

    /// With other bounds on clients.
    pub fn bounded(self, bounds: Bounds) -> Doors {
        Doors { bounds, ..self }
    }
}

impl From<Socket> for Doors {
    fn from(socket: Socket) -> Doors {
        Doors::new(socket, None)
    }
}

impl Door {
    /// The listener's address, with the port that the kernel chose for port 0.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The listener, and `router` behind the guard.
    pub(super) fn guard(self, router: Router) -> io::Result<(TcpListener, Router)> {
        let listener = TcpListener::from_std(self.listener)?;
        Ok((listener, router.layer(from_fn_with_state(Arc::new(self.guard), admit))))
    }
}

const SEND_BUFFER: usize = 256 << 10;

/// The access rules of the listener.
#[derive(Debug)]
struct Guard {
    token: Option<Token>,
    host_name: Option<String>,
}

/// Lets a request through, or says why not.
async fn admit(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    match guard.check(request.method(), request.uri(), request.headers()) {
        Ok(()) if guard.knows(request.headers()) => next.run(request).await,
        // Without the token a place lasts for one answer.
        Ok(()) => body::closing(next.run(request).await),
        Err((status, error)) => {
            let mut response = body::closing((status, Json(error)));
            if status == StatusCode::UNAUTHORIZED {
                let way = header::HeaderValue::from_static("Bearer");
                response.headers_mut().insert(header::WWW_AUTHENTICATE, way);
            }
            response
        }
    }
}

impl Guard {
    fn check(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<(), (StatusCode, ApiError)> {
        let refused = |status, error: &str, help: &str| {
            Err((status, ApiError { error: error.into(), help: help.into() }))
        };
        if !self.is_named(uri, headers) {
            return refused(
                StatusCode::FORBIDDEN,
                "the request does not name this host as it may be named",
                "name it by its IP address or as localhost, or set `host_name` in [api]",
            );
        }
        match &self.token {
            Some(token) if token.is_in(headers) => Ok(()),
            // The page has no figures, and prompts for the token itself.
            Some(_) if *method == Method::GET && uri.path() == page::PAGE => Ok(()),
            Some(_) => refused(
                StatusCode::UNAUTHORIZED,
                "the request does not have the token",
                "send it as `Authorization: Bearer TOKEN`",
            ),
            None if matches!(*method, Method::GET | Method::HEAD) => Ok(()),
            None => refused(
                StatusCode::FORBIDDEN,
                "without a token, nothing is changed by TCP",
                "set `token_file` in [api], or ask at the Unix socket",
            ),
        }
    }

    /// Whether the client has shown what this listener requires of clients.
    fn knows(&self, headers: &HeaderMap) -> bool {
        self.token.as_ref().is_none_or(|token| token.is_in(headers))
    }

    /// Whether all that the request calls this host is what it may be called.
    fn is_named(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let mut hosts = headers.get_all(header::HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
        let Ok(host) = Authority::try_from(host.as_bytes()) else { return false };
        self.is_name(host.host()) && uri.host().is_none_or(|host| self.is_name(host))
    }

    fn is_name(&self, host: &str) -> bool {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let names = ["localhost"].into_iter().chain(self.host_name.as_deref());
        bare.parse::<IpAddr>().is_ok()
            || names.into_iter().any(|name| host.eq_ignore_ascii_case(name))
    }
}

/// The token that requests must carry. Never printed.
struct Token(Vec<u8>);

impl Token {
    fn read(path: &Path) -> Result<Token, ListenError> {
        let unreadable = |source| ListenError::Unreadable { path: path.to_owned(), source };
        // A pipe would be waited for.
        if !fs::metadata(path).map_err(unreadable)?.is_file() {
            return Err(ListenError::NoToken { path: path.to_owned(), what: "it is no file" });
        }
        let file = fs::File::open(path).map_err(unreadable)?;
        let facts = file.metadata().map_err(unreadable)?;
        if facts.mode() & 0o077 != 0 {
            return Err(ListenError::Open { path: path.to_owned(), mode: facts.mode() & 0o7777 });
        }
        let mut text = Vec::new();
        file.take(TOKEN_MAX as u64 + 2).read_to_end(&mut text).map_err(unreadable)?;
        let token = text.trim_ascii();
        let what = match token.len() {
            ..TOKEN_MIN => "it has fewer than 16 characters",
            len if len > TOKEN_MAX => "it has more than 1024 characters",
            _ if !token.iter().all(u8::is_ascii_graphic) => {
                "it has spaces, or characters that are not ASCII"
            }
            _ => return Ok(Token(token.to_vec())),
        };
        Err(ListenError::NoToken { path: path.to_owned(), what })
    }

    fn is_in(&self, headers: &HeaderMap) -> bool {
        let mut said = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(said), None) = (said.next(), said.next()) else { return false };
        let Some((scheme, token)) = said.as_bytes().split_at_checked("Bearer ".len()) else {
            return false;
        };
        scheme.eq_ignore_ascii_case(b"Bearer ") && self.is(token.trim_ascii())
    }

    /// Takes as long for a token that is wrong at its end as for one that is wrong at its beginning: only the
    /// length shows in the time.
    fn is(&self, token: &[u8]) -> bool {
        let differences =
            self.0.iter().zip(token).fold(0, |sum, (is, said)| black_box(sum | (is ^ said)));
        self.0.len() == token.len() && black_box(differences) == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// Short enough to write, too long to guess.
const TOKEN_MIN: usize = 16;
const TOKEN_MAX: usize = 1024;
