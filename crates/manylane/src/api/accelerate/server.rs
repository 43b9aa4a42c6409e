//! The accelerator's side of its API.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::routing::{MethodRouter, get, put};
use axum::{Json, Router};
use serde::Serialize;

use super::{Accelerated, AskError, Why, WhyQuestion};
use crate::api::server::{not_allowed, serve_routes};
use crate::api::{ApiError, Setting, Socket};

type Answer<T> = Result<Json<T>, (StatusCode, Json<ApiError>)>;

/// Answers requests until `shutdown` is ready, and then those that have begun, for a second.
///
/// Runs in a current-thread runtime with I/O and time. The socket's file is removed at the end.
pub async fn serve(
    socket: Socket,
    source: Arc<dyn Accelerated>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    serve_routes(socket, router(source), shutdown).await
}

fn router(source: Arc<dyn Accelerated>) -> Router {
    Router::new()
        .route("/v1/daemon", answer(|source| Ok(source.daemon())))
        .route("/v1/accelerate/ports", answer(|source| Ok(source.ports())))
        .route("/v1/accelerate/drops", answer(|source| Ok(source.drops())))
        .route("/v1/accelerate/ledger", answer(|source| Ok(source.ledger())))
        .route("/v1/accelerate/config", answer(|source| Ok(source.config())))
        .route("/v1/accelerate/mirror", answer(|source| source.mirror()))
        .route("/v1/accelerate/mirror/diff", answer(|source| source.diff()))
        .route("/v1/accelerate/routes", answer(|source| source.routes()))
        .route("/v1/accelerate/neighbours", answer(|source| source.neighbours()))
        .route("/v1/accelerate/why/{interface}/{source}/{destination}", get(why))
        .route("/v1/config/{key}", put(set))
        .fallback(not_found)
        .method_not_allowed_fallback(not_allowed)
        .with_state(source)
}

fn answer<T: Serialize + 'static>(
    take: fn(&dyn Accelerated) -> Result<T, AskError>,
) -> MethodRouter<Arc<dyn Accelerated>> {
    get(async move |State(source): State<Arc<dyn Accelerated>>| -> Answer<T> {
        take(source.as_ref()).map(Json).map_err(refused)
    })
}

async fn set(
    State(source): State<Arc<dyn Accelerated>>,
    Path(key): Path<String>,
    value: String,
) -> Answer<Setting> {
    // It waits for the mirror's thread; so do other questions.
    source.set(&key, value.trim()).map(Json).map_err(refused)
}

async fn why(
    State(source): State<Arc<dyn Accelerated>>,
    Path((interface, from, to)): Path<(String, String, String)>,
) -> Answer<Why> {
    let address = |text: &str| {
        text.parse::<IpAddr>().map_err(|_| {
            refused(AskError::BadQuestion(ApiError {
                error: format!("{text} is no IP address"),
                help: "ask for /v1/accelerate/why/INTERFACE/SOURCE/DESTINATION".into(),
            }))
        })
    };
    let question = WhyQuestion { source: address(&from)?, destination: address(&to)?, interface };
    source.why(&question).map(Json).map_err(refused)
}

fn refused(error: AskError) -> (StatusCode, Json<ApiError>) {
    match error {
        AskError::BadQuestion(error) => (StatusCode::BAD_REQUEST, Json(error)),
        AskError::Silent(error) => (StatusCode::SERVICE_UNAVAILABLE, Json(error)),
    }
}

async fn not_found(uri: Uri) -> (StatusCode, Json<ApiError>) {
    let error = ApiError {
        error: format!("there is no {} in `manylane accelerate`", uri.path()),
        help: "ask for /v1/daemon, or ports, drops, ledger, config, mirror, mirror/diff, routes, neighbours or \
               why below /v1/accelerate/"
            .into(),
    };
    (StatusCode::NOT_FOUND, Json(error))
}
