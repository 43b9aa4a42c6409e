//! The daemon's side of the API.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{Method, StatusCode, Uri};
use axum::routing::{MethodRouter, delete, get, put};
use axum::{Json, Router};
use serde::Serialize;
use tokio::net::UnixListener;
use tokio::sync::oneshot;

use super::model::{
    AddressStatus, ApiError, Daemon, DropStatus, FramesStatus, Ledger, NeighbourStatus, PortStatus,
    RouteStatus, SetError, Setting, SteeringStatus, WorkerStatus,
};
use super::socket::Socket;

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
    /// The daemon itself.
    fn daemon(&self) -> Daemon;
    /// Changes a setting.
    fn set(&self, key: &str, value: &str) -> Result<Setting, SetError>;
    /// Sets a neighbour by the operator's word; says what it is now.
    fn add_neighbour(&self, port: &str, addr: &str, mac: &str)
    -> Result<NeighbourStatus, SetError>;
    /// Begins to remove a port; says what it is now.
    fn remove_port(&self, name: &str) -> Result<PortStatus, SetError>;
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
    let listener = UnixListener::from_std(socket.listener()?)?;
    let (begin, begun) = oneshot::channel();
    let shutdown = async move {
        shutdown.await;
        // The receiver lives as long as `serve` itself.
        let _ = begin.send(());
    };
    let served = axum::serve(listener, router(source)).with_graceful_shutdown(shutdown);
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
        .route("/v1/daemon", answer(|source| source.daemon()))
        .route("/v1/config/{key}", put(set))
        .route("/v1/ports/{port}", delete(remove_port))
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

fn changed<T>(result: Result<T, SetError>) -> Result<Json<T>, (StatusCode, Json<ApiError>)> {
    result.map(Json).map_err(|error| match error {
        SetError::UnknownKey(error) => (StatusCode::NOT_FOUND, Json(error)),
        SetError::BadValue(error) => (StatusCode::BAD_REQUEST, Json(error)),
        SetError::NoRoom(error) => (StatusCode::CONFLICT, Json(error)),
    })
}

async fn not_found(uri: Uri) -> (StatusCode, Json<ApiError>) {
    let error = ApiError {
        error: format!("there is no {}", uri.path()),
        help:
            "ask for /v1/ports, /v1/workers, /v1/routes, /v1/neighbours, /v1/addresses, /v1/drops, \
             /v1/ledger, /v1/frames, /v1/steering or /v1/daemon"
                .into(),
    };
    (StatusCode::NOT_FOUND, Json(error))
}

async fn not_allowed(method: Method, uri: Uri) -> (StatusCode, Json<ApiError>) {
    let error = ApiError {
        error: format!("{} does not take {method}", uri.path()),
        help:
            "ask with GET; what is below /v1/config/ and /v1/neighbours/ is changed, with PUT, or \
               DELETE for a neighbour, or a port below /v1/ports/"
                .into(),
    };
    (StatusCode::METHOD_NOT_ALLOWED, Json(error))
}
