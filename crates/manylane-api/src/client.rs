//! The CLI's side of the API: one request, and wait for the answer.

use std::error::Error;
use std::future::Future;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use nix::libc;
use nix::unistd::geteuid;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::runtime;
use tokio::time::timeout;

use crate::model::ApiError;
use crate::server::socket::is_too_long;

/// A client of one daemon.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
    patience: Duration,
    /// Whether it must be sure whose daemon answers.
    is_wary: bool,
}

/// Why an answer that was [followed](Client::follow) is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowEnd {
    /// The caller ended it.
    Enough,
    /// The daemon has ended it.
    Ended,
}

/// Why a request has no answer.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No daemon listens at the socket.
    #[error(
        "no manylane daemon answers at {}; start one with `manylane run FILE` or `manylane accelerate IF...`, or name its \
         socket with --socket",
        .socket.display()
    )]
    NoDaemon {
        /// The socket.
        socket: PathBuf,
    },
    /// The system refused to connect.
    #[error("{}", unreachable(.socket, .source))]
    Unreachable {
        /// The socket.
        socket: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The daemon did not answer in time.
    #[error(
        "the manylane daemon at {} has not answered for {} s: it is still starting, or hangs; look at its log",
        .socket.display(), .waited.as_secs()
    )]
    Silent {
        /// The socket.
        socket: PathBuf,
        /// How long the client waited.
        waited: Duration,
    },
    /// Another user's process listens, so what it answers may be a lie.
    #[error(
        "user {uid} listens at {}, not root and not this user: its answers are not trusted; name the daemon's socket \
         with --socket, or ask as the user that started it",
        .socket.display()
    )]
    Stranger {
        /// The socket.
        socket: PathBuf,
        /// The user.
        uid: u32,
    },
    /// The daemon closed the connection.
    #[error(
        "the manylane daemon at {} closed the connection without an answer: it ends, or has no file descriptor or place \
         for another client; look at its log, and try again",
        .socket.display()
    )]
    Closed {
        /// The socket.
        socket: PathBuf,
    },
    /// The daemon is of the other kind, and says what to do instead.
    #[error("{}; {}", .0.error, .0.help)]
    WrongDaemon(ApiError),
    /// The daemon said no.
    #[error("the daemon refused: {}{}{}", .0.error, before_help(.0), .0.help)]
    Refused(ApiError),
    /// Something answered, and not as a manylane daemon of this version does.
    #[error(
        "{} did not answer as a manylane daemon of this version does: {source}; compare `manylane --version` with the \
         daemon's",
        .socket.display()
    )]
    Unexpected {
        /// The socket.
        socket: PathBuf,
        /// What was wrong.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// What stands between a refusal and its help: a configuration is quoted, over several lines.
fn before_help(refusal: &ApiError) -> &'static str {
    if refusal.error.contains('\n') { "\nhelp: " } else { "; " }
}

/// Why a client cannot connect, and what helps.
fn unreachable(socket: &Path, source: &io::Error) -> String {
    let (path, bytes) = (socket.display(), socket.as_os_str().len());
    if is_too_long(socket) {
        return format!(
            "no daemon can be at {path}, whose {bytes} bytes are more than the path of a socket has; name the daemon's \
             with --socket"
        );
    }
    let help = match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => "ask as root or as a member of the socket's group",
        number => {
            exhausted(number).unwrap_or("see that the daemon's socket is there, and try again")
        }
    };
    format!("cannot connect to {path}: {source}; {help}")
}

/// What helps a process that has no file descriptor left.
pub(crate) fn exhausted(number: Option<i32>) -> Option<&'static str> {
    match number? {
        libc::EMFILE => Some(
            "this process has too many files open: raise its limit (`ulimit -n`, `LimitNOFILE` of a unit)",
        ),
        libc::ENFILE => Some("the system has too many files open: raise the sysctl fs.file-max"),
        _ => None,
    }
}

impl Client {
    /// For the daemon that listens at `socket`. Connects with the first request.
    pub fn new(socket: &Path) -> Self {
        Client { socket: socket.to_owned(), patience: PATIENCE, is_wary: false }
    }

    /// Trusts only a daemon that root or this user has started, for answers that say what to read or write.
    ///
    /// unix(7): the kernel notes a listener's user when it begins to listen, which daemons do before they drop
    /// privileges.
    pub fn wary(self) -> Self {
        Client { is_wary: true, ..self }
    }

    /// Waits so long for an answer, instead of ten seconds.
    pub fn with_patience(self, patience: Duration) -> Self {
        Client { patience, ..self }
    }

    /// How long this client waits for an answer.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// Requests a path, such as `/v1/ports`, and parses the answer.
    pub fn ask<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        serde_json::from_str(&self.ask_text(path)?).map_err(|error| self.unexpected(error))
    }

    /// Requests a path and returns the JSON unchanged.
    pub fn ask_text(&self, path: &str) -> Result<String, ClientError> {
        self.say(Method::GET, path, String::new())
    }

    /// Puts a value to a path, as `/v1/config/frames.hot_list_len`, and reads what was made of it.
    pub fn put<T: DeserializeOwned>(&self, path: &str, value: &str) -> Result<T, ClientError> {
        let answer = self.say(Method::PUT, path, value.into())?;
        serde_json::from_str(&answer).map_err(|error| self.unexpected(error))
    }

    /// Posts JSON to a path, as `/v1/config/apply`, and reads the answer.
    pub fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let answer = self.post_text(path, body)?;
        serde_json::from_str(&answer).map_err(|error| self.unexpected(error))
    }

    /// Posts JSON to a path, and returns the JSON as it came.
    pub fn post_text(&self, path: &str, body: &impl Serialize) -> Result<String, ClientError> {
        let body = serde_json::to_string(body).map_err(|error| self.unexpected(error))?;
        self.say(Method::POST, path, body)
    }

    /// Deletes what a path names, and reads what it was.
    pub fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let answer = self.say(Method::DELETE, path, String::new())?;
        serde_json::from_str(&answer).map_err(|error| self.unexpected(error))
    }

    /// Posts a body to a path, and gives `each` the lines of the answer as they come, until it says that it has had
    /// enough, `stopped` is ready, or the daemon ends the answer: which of the two it was that ended it.
    pub fn follow(
        &self,
        path: &str,
        body: String,
        stopped: impl Future<Output = ()>,
        mut each: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<FollowEnd, ClientError> {
        self.runtime()?.block_on(async {
            let asked = timeout(self.patience, self.request(Method::POST, path, body)).await;
            let silent = |_| self.silent(self.patience);
            let response = asked.map_err(silent)??;
            let status = response.status();
            let mut body = response.into_body();
            if !status.is_success() {
                let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
                let text = body.map_err(|error| self.unexpected(error))?.to_bytes();
                return Err(self.refused(status, &String::from_utf8_lossy(&text)));
            }
            let mut stopped = pin!(stopped);
            let mut text = Vec::new();
            loop {
                let frame = tokio::select! {
                    () = &mut stopped => return Ok(FollowEnd::Enough),
                    // A daemon without news says that it lives.
                    frame = timeout(self.patience, body.frame()) => frame.map_err(silent)?,
                };
                // An answer that breaks off ends, too: the daemon has stopped.
                let Some(Ok(frame)) = frame else { return Ok(FollowEnd::Ended) };
                text.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
                while let Some(end) = text.iter().position(|&byte| byte == b'\n') {
                    let line: Vec<u8> = text.drain(..=end).collect();
                    let line = std::str::from_utf8(&line[..end]);
                    let line = line.map_err(|error| self.unexpected(error))?;
                    if each(line).is_break() {
                        return Ok(FollowEnd::Enough);
                    }
                }
                if text.len() > LINE_BYTES_MAX {
                    return Err(
                        self.unexpected(format!("a line of more than {LINE_BYTES_MAX} bytes"))
                    );
                }
            }
        })
    }

    fn runtime(&self) -> Result<runtime::Runtime, ClientError> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(|source| self.unreachable(source))
    }

    fn refused(&self, status: StatusCode, text: &str) -> ClientError {
        match serde_json::from_str(text) {
            Ok(error) if status == StatusCode::MISDIRECTED_REQUEST => {
                ClientError::WrongDaemon(error)
            }
            Ok(error) => ClientError::Refused(error),
            Err(error) => self.unexpected(error),
        }
    }

    fn say(&self, method: Method, path: &str, body: String) -> Result<String, ClientError> {
        let (status, text) = self.runtime()?.block_on(async {
            match timeout(self.patience, self.exchange(method, path, body)).await {
                Ok(answer) => answer,
                Err(_) => Err(self.silent(self.patience)),
            }
        })?;
        match status.is_success() {
            true => Ok(text),
            false => Err(self.refused(status, &text)),
        }
    }

    /// The status, and the body.
    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: String,
    ) -> Result<(StatusCode, String), ClientError> {
        let response = self.request(method, path, body).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
        let body = body.collect().await.map_err(|error| self.unexpected(error))?.to_bytes();
        let text = String::from_utf8(body.into()).map_err(|error| self.unexpected(error))?;
        Ok((status, text))
    }

    /// Connects, and asks.
    async fn request(
        &self,
        method: Method,
        path: &str,
        body: String,
    ) -> Result<Response<Incoming>, ClientError> {
        let stream =
            UnixStream::connect(&self.socket).await.map_err(|source| self.unreachable(source))?;
        if self.is_wary {
            let uid = stream.peer_cred().map_err(|source| self.unreachable(source))?.uid();
            if uid != 0 && uid != geteuid().as_raw() {
                return Err(ClientError::Stranger { socket: self.socket.clone(), uid });
            }
        }
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| self.unexpected(error))?;
        // Ends with the runtime, which ends with this request.
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "manylane")
            .body(Full::<Bytes>::from(body))
            .map_err(|error| self.unexpected(error))?;
        sender.send_request(request).await.map_err(|error| self.broken(error))
    }

    fn broken(&self, error: hyper::Error) -> ClientError {
        match is_closed(&error) {
            true => ClientError::Closed { socket: self.socket.clone() },
            false => self.unexpected(error),
        }
    }

    fn unreachable(&self, source: io::Error) -> ClientError {
        let socket = self.socket.clone();
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                ClientError::NoDaemon { socket }
            }
            // connect(2): the daemon accepts no connections, and no more can wait.
            io::ErrorKind::WouldBlock => self.silent(Duration::ZERO),
            _ => ClientError::Unreachable { socket, source },
        }
    }

    fn silent(&self, waited: Duration) -> ClientError {
        ClientError::Silent { socket: self.socket.clone(), waited }
    }

    fn unexpected(
        &self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> ClientError {
        ClientError::Unexpected { socket: self.socket.clone(), source: source.into() }
    }
}

/// Whether the connection ended before an answer, and not by what was said.
fn is_closed(error: &hyper::Error) -> bool {
    let causes = std::iter::successors(Some(error as &dyn Error), |&error| error.source());
    let mut causes = causes
        .map(|error| (error.downcast_ref::<hyper::Error>(), error.downcast_ref::<io::Error>()));
    causes.any(|(http, system)| {
        http.is_some_and(hyper::Error::is_incomplete_message)
            || system.is_some_and(|error| {
                matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
            })
    })
}

/// A daemon under full load answers in milliseconds; a table of a million routes takes a second.
const PATIENCE: Duration = Duration::from_secs(10);
/// A million routes are about 100 MB.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// A line of a followed answer has a few hundred.
const LINE_BYTES_MAX: usize = 1 << 20;
