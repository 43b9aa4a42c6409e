//! The CLI's side of the API: one request, and wait for the answer.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request, header};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::runtime;
use tokio::time::timeout;

use super::model::ApiError;

/// Asks one daemon.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
    patience: Duration,
}

/// Why there is no answer.
#[non_exhaustive]
#[derive(Debug)]
pub enum ClientError {
    /// Nobody listens there.
    NoDaemon {
        /// The socket.
        socket: PathBuf,
    },
    /// The system refused to connect.
    Unreachable {
        /// The socket.
        socket: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The daemon accepted the request and did not answer in time.
    Silent {
        /// The socket.
        socket: PathBuf,
    },
    /// The daemon said no.
    Refused(ApiError),
    /// Something answered, and not as a manylane daemon of this version does.
    Unexpected {
        /// The socket.
        socket: PathBuf,
        /// What was wrong.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Client {
    /// For the daemon that listens at `socket`. Connects with the first request.
    pub fn new(socket: &Path) -> Self {
        Client { socket: socket.to_owned(), patience: PATIENCE }
    }

    /// Waits so long for an answer, instead of ten seconds.
    pub fn with_patience(self, patience: Duration) -> Self {
        Client { patience, ..self }
    }

    /// Asks for a path, as `/v1/ports`, and reads the answer.
    pub fn ask<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        serde_json::from_str(&self.ask_text(path)?).map_err(|error| self.unexpected(error))
    }

    /// Asks for a path and returns the JSON as it came.
    pub fn ask_text(&self, path: &str) -> Result<String, ClientError> {
        self.say(Method::GET, path, String::new())
    }

    /// Puts a value to a path, as `/v1/config/frames.hot_list_len`, and reads what was made of it.
    pub fn put<T: DeserializeOwned>(&self, path: &str, value: &str) -> Result<T, ClientError> {
        let answer = self.say(Method::PUT, path, value.into())?;
        serde_json::from_str(&answer).map_err(|error| self.unexpected(error))
    }

    /// Deletes what a path names, and reads what it was.
    pub fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let answer = self.say(Method::DELETE, path, String::new())?;
        serde_json::from_str(&answer).map_err(|error| self.unexpected(error))
    }

    fn say(&self, method: Method, path: &str, body: String) -> Result<String, ClientError> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|source| self.unreachable(source))?;
        let (ok, text) = runtime.block_on(async {
            match timeout(self.patience, self.exchange(method, path, body)).await {
                Ok(answer) => answer,
                Err(_) => Err(ClientError::Silent { socket: self.socket.clone() }),
            }
        })?;
        match ok {
            true => Ok(text),
            false => Err(match serde_json::from_str(&text) {
                Ok(error) => ClientError::Refused(error),
                Err(error) => self.unexpected(error),
            }),
        }
    }

    /// Whether the daemon agreed, and the body.
    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: String,
    ) -> Result<(bool, String), ClientError> {
        let stream =
            UnixStream::connect(&self.socket).await.map_err(|source| self.unreachable(source))?;
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
        let response =
            sender.send_request(request).await.map_err(|error| self.unexpected(error))?;
        let ok = response.status().is_success();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
        let body = body.collect().await.map_err(|error| self.unexpected(error))?.to_bytes();
        let text = String::from_utf8(body.into()).map_err(|error| self.unexpected(error))?;
        Ok((ok, text))
    }

    fn unreachable(&self, source: io::Error) -> ClientError {
        let socket = self.socket.clone();
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                ClientError::NoDaemon { socket }
            }
            _ => ClientError::Unreachable { socket, source },
        }
    }

    fn unexpected(
        &self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> ClientError {
        ClientError::Unexpected { socket: self.socket.clone(), source: source.into() }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::NoDaemon { socket } => write!(
                f,
                "no manylane daemon answers at {}; start one with `manylane run FILE` or name its \
                 socket with --socket",
                socket.display()
            ),
            ClientError::Unreachable { socket, source } => write!(
                f,
                "cannot connect to {}: {source}; ask as root or as a member of the socket's group",
                socket.display()
            ),
            ClientError::Silent { socket } => write!(
                f,
                "the manylane daemon at {} accepted the question and did not answer; look at what \
                 its process does",
                socket.display()
            ),
            ClientError::Refused(ApiError { error, help }) => {
                write!(f, "the daemon refused: {error}; {help}")
            }
            ClientError::Unexpected { socket, source } => write!(
                f,
                "{} did not answer as a manylane daemon of this version does: {source}; compare \
                 `manylane --version` with the daemon's",
                socket.display()
            ),
        }
    }
}

impl std::error::Error for ClientError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ClientError::Unreachable { source, .. } => Some(source),
            ClientError::Unexpected { source, .. } => Some(source.as_ref()),
            _ => None,
        }
    }
}

/// A daemon under full load answers in milliseconds; a table of a million routes takes a second.
const PATIENCE: Duration = Duration::from_secs(10);
/// A million routes are about 100 MB.
const ANSWER_BYTES_MAX: usize = 256 << 20;
