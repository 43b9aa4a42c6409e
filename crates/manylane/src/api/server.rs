//! The daemon's side of the API.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{Method, StatusCode, Uri};
use axum::routing::{MethodRouter, delete, get, post, put};
use axum::{Json, Router};
use hyper::body::{Bytes, Frame};
use serde::Serialize;
use tokio::net::UnixListener;
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep};

use super::model::{
    AddressStatus, ApiError, Daemon, DropStatus, FramesStatus, Ledger, NeighbourStatus, PortStatus,
    RouteStatus, SetError, Setting, SocketsStatus, SteeringStatus, WorkerStatus,
};
use super::socket::Socket;
use super::trace::{TraceLines, TraceRequest};

/// Where answers come from. Each call is one snapshot, and must not wait for a worker.
pub trait Source: Send + Sync {
    /// The ports, in the order of the configuration.
    fn ports(&self) -> Vec<PortStatus>;
    /// The workers, in order.
    fn workers(&self) -> Vec<WorkerStatus>;
    /// All routes, the daemon's own included.
    fn routes(&self) -> Vec<RouteStatus>;
    /// All neighbours.
    fn neighbours(&self) -> Vec<NeighbourStatus>;
    /// Our own addresses, where others may have them.
    fn addresses(&self) -> Vec<AddressStatus>;
    /// Drops by reason.
    fn drops(&self) -> Vec<DropStatus>;
    /// The sum that has to add up.
    fn ledger(&self) -> Ledger;
    /// The frames.
    fn frames(&self) -> FramesStatus;
    /// Who forwards what.
    fn steering(&self) -> SteeringStatus;
    /// The packet sockets.
    fn sockets(&self) -> SocketsStatus;
    /// The daemon itself.
    fn daemon(&self) -> Daemon;
    /// Changes a setting.
    fn set(&self, key: &str, value: &str) -> Result<Setting, SetError>;
    /// Sets a neighbour by the operator's word; says what it is now.
    fn add_neighbour(&self, port: &str, addr: &str, mac: &str)
    -> Result<NeighbourStatus, SetError>;
    /// Begins to remove a port; says what it is now.
    fn remove_port(&self, name: &str) -> Result<PortStatus, SetError>;
    /// Begins a trace.
    fn trace(&self, request: &TraceRequest) -> Result<TraceLines, SetError>;
    /// Forgets a neighbour; says what it was.
    fn delete_neighbour(&self, port: &str, addr: &str) -> Result<NeighbourStatus, SetError>;
}

/// Answers requests until `shutdown` is ready, and then those that have begun, for a second.
///
/// Runs in a current-thread runtime with I/O and time. The socket's file is removed at the end.
pub async fn serve(
    socket: Socket,
    source: Arc<dyn Source>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    serve_routes(socket, router(source), shutdown).await
}

/// As [`serve`], with other answers.
pub(super) async fn serve_routes(
    socket: Socket,
    router: Router,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let listener = UnixListener::from_std(socket.listener()?)?;
    let (begin, begun) = oneshot::channel();
    let shutdown = async move {
        shutdown.await;
        // The receiver lives as long as `serve` itself.
        let _ = begin.send(());
    };
    let served = axum::serve(listener, router).with_graceful_shutdown(shutdown);
    // A client that neither asks nor hangs up must not keep a stopping daemon.
    let patience = async {
        match begun.await {
            Ok(()) => tokio::time::sleep(SHUTDOWN_PATIENCE).await,
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        result = served.into_future() => result,
        () = patience => Ok(()),
    }
}

const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(1);

fn router(source: Arc<dyn Source>) -> Router {
    Router::new()
        .route("/v1/ports", answer(|source| source.ports()))
        .route("/v1/workers", answer(|source| source.workers()))
        .route("/v1/routes", answer(|source| source.routes()))
        .route("/v1/neighbours", answer(|source| source.neighbours()))
        .route("/v1/addresses", answer(|source| source.addresses()))
        .route("/v1/drops", answer(|source| source.drops()))
        .route("/v1/ledger", answer(|source| source.ledger()))
        .route("/v1/frames", answer(|source| source.frames()))
        .route("/v1/steering", answer(|source| source.steering()))
        .route("/v1/sockets", answer(|source| source.sockets()))
        .route("/v1/daemon", answer(|source| source.daemon()))
        .route("/v1/config/{key}", put(set))
        .route("/v1/ports/{port}", delete(remove_port))
        .route("/v1/trace", post(trace))
        .route("/v1/neighbours/{port}/{address}", put(add_neighbour).delete(delete_neighbour))
        .fallback(not_found)
        .method_not_allowed_fallback(not_allowed)
        .with_state(source)
}

fn answer<T: Serialize + 'static>(take: fn(&dyn Source) -> T) -> MethodRouter<Arc<dyn Source>> {
    get(async move |State(source): State<Arc<dyn Source>>| Json(take(source.as_ref())))
}

async fn set(
    State(source): State<Arc<dyn Source>>,
    Path(key): Path<String>,
    value: String,
) -> Result<Json<Setting>, (StatusCode, Json<ApiError>)> {
    changed(source.set(&key, value.trim()))
}

async fn add_neighbour(
    State(source): State<Arc<dyn Source>>,
    Path((port, address)): Path<(String, String)>,
    mac: String,
) -> Result<Json<NeighbourStatus>, (StatusCode, Json<ApiError>)> {
    changed(source.add_neighbour(&port, &address, mac.trim()))
}

async fn delete_neighbour(
    State(source): State<Arc<dyn Source>>,
    Path((port, address)): Path<(String, String)>,
) -> Result<Json<NeighbourStatus>, (StatusCode, Json<ApiError>)> {
    changed(source.delete_neighbour(&port, &address))
}

async fn remove_port(
    State(source): State<Arc<dyn Source>>,
    Path(port): Path<String>,
) -> Result<Json<PortStatus>, (StatusCode, Json<ApiError>)> {
    changed(source.remove_port(&port))
}

async fn trace(
    State(source): State<Arc<dyn Source>>,
    request: String,
) -> Result<Body, (StatusCode, Json<ApiError>)> {
    let request = serde_json::from_str(&request).map_err(|error| {
        let error = format!("that is no request for a trace: {error}");
        let help = "send `count`, `filter`, and `port` if it is one port's".into();
        (StatusCode::BAD_REQUEST, Json(ApiError { error, help }))
    })?;
    let lines = source.trace(&request).map_err(refused)?;
    Ok(Body::new(Following::new(lines)))
}

/// The answer to a request for a trace. It has no end but that of the connection.
struct Following {
    lines: TraceLines,
    pause: Pin<Box<Sleep>>,
    said: Instant,
}

impl Following {
    fn new(lines: TraceLines) -> Following {
        Following {
            lines,
            pause: Box::pin(tokio::time::sleep(Duration::ZERO)),
            said: Instant::now(),
        }
    }
}

impl hyper::body::Body for Following {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        loop {
            ready!(self.pause.as_mut().poll(context));
            let now = Instant::now();
            self.pause.as_mut().reset(now + LOOK_FOR_STAGES);
            let mut text = self.lines.take();
            if text.is_empty() && now.duration_since(self.said) >= SIGN_OF_LIFE {
                text.push('\n');
            }
            if !text.is_empty() {
                self.said = now;
                return Poll::Ready(Some(Ok(Frame::data(text.into()))));
            }
        }
    }
}

/// How often to look for what workers have recorded: a ring takes some dozens of packets meanwhile.
const LOOK_FOR_STAGES: Duration = Duration::from_millis(2);

/// How often to say something if there is nothing to say: so the daemon hears when nobody listens any more.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);

fn changed<T>(result: Result<T, SetError>) -> Result<Json<T>, (StatusCode, Json<ApiError>)> {
    result.map(Json).map_err(refused)
}

fn refused(error: SetError) -> (StatusCode, Json<ApiError>) {
    match error {
        SetError::UnknownKey(error) => (StatusCode::NOT_FOUND, Json(error)),
        SetError::BadValue(error) => (StatusCode::BAD_REQUEST, Json(error)),
        SetError::NoRoom(error) => (StatusCode::CONFLICT, Json(error)),
    }
}

async fn not_found(uri: Uri) -> (StatusCode, Json<ApiError>) {
    let error = ApiError {
        error: format!("there is no {}", uri.path()),
        help:
            "ask for /v1/ports, /v1/workers, /v1/routes, /v1/neighbours, /v1/addresses, /v1/drops, \
             /v1/ledger, /v1/frames, /v1/steering, /v1/sockets or /v1/daemon"
                .into(),
    };
    (StatusCode::NOT_FOUND, Json(error))
}

pub(super) async fn not_allowed(method: Method, uri: Uri) -> (StatusCode, Json<ApiError>) {
    let error = ApiError {
        error: format!("{} does not take {method}", uri.path()),
        help:
            "ask with GET; what is below /v1/config/ and /v1/neighbours/ is changed, with PUT, or \
               DELETE for a neighbour, or a port below /v1/ports/; /v1/trace is asked with POST"
                .into(),
    };
    (StatusCode::METHOD_NOT_ALLOWED, Json(error))
}
