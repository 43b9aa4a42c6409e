//! The server's side of configurations as a whole.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use utoipa::openapi::HttpMethod;
use utoipa::openapi::schema::ArrayBuilder;

use super::document::{OperationDoc, Refusal, Routes, Sent};
use crate::model::{
    ApiError, ConfigApplied, ConfigChange, ConfigRefused, ConfigRequest, ConfigStatus,
    Configurations, Source,
};

/// The requests.
pub(super) fn routes(routes: Routes<dyn Source>) -> Routes<dyn Source> {
    let mut routes = routes.one(
        "/v1/config",
        "The running configuration.",
        &[(409, "The daemon was started without a file.")],
        |source| of(source).map(Configurations::status),
    );
    let changes = ArrayBuilder::new().items(routes.schema::<ConfigChange>());
    let changes = Sent::Json("The changes that a configuration would make.", changes.into());
    let applied = Sent::Json("The changes made.", routes.schema::<ConfigApplied>());
    let (request, status) = (routes.schema::<ConfigRequest>(), routes.schema::<ConfigStatus>());
    let request = || Sent::Json("The configuration.", request.clone());
    let status = || Sent::Json("The running configuration.", status.clone());
    let doc = |id, does, takes, gives, refuses| OperationDoc {
        id,
        does,
        parameters: &[],
        takes,
        gives,
        refuses,
    };
    routes
        .at(
            HttpMethod::Post,
            "/v1/config/diff",
            post(diff),
            doc(
                "diff",
                "Lists what a configuration would change, and which changes need a restart.",
                Some(request()),
                changes,
                INVALID,
            ),
        )
        .at(
            HttpMethod::Post,
            "/v1/config/apply",
            post(apply),
            doc(
                "apply",
                "Applies a configuration: all of it, or nothing.",
                Some(request()),
                applied,
                &[
                    (400, "The configuration is not valid, or the daemon cannot apply it."),
                    (409, "Another configuration is on trial."),
                ],
            ),
        )
        .at(
            HttpMethod::Post,
            "/v1/config/confirm",
            post(confirm),
            doc("confirm", "Ends a trial and keeps its configuration.", None, status(), NOTHING),
        )
        .at(
            HttpMethod::Post,
            "/v1/config/rollback",
            post(roll_back),
            doc("rollback", "Rolls back to the former configuration.", None, status(), NOTHING),
        )
}

const INVALID: &[(u16, &str)] =
    &[(400, "The configuration is not valid."), (409, "The daemon has no file.")];
const NOTHING: &[(u16, &str)] = &[(409, "No trial runs, or no former configuration exists.")];

type Answer<T> = Result<Json<T>, Refusal>;

async fn diff(State(source): State<Arc<dyn Source>>, body: String) -> Answer<Vec<ConfigChange>> {
    of(&*source)?.diff(&request(&body)?).map(Json).map_err(refused)
}

async fn apply(State(source): State<Arc<dyn Source>>, body: String) -> Answer<ConfigApplied> {
    let applied = of(&*source)?.apply(&request(&body)?).map_err(refused)?;
    if let (Some(trial), Some(seconds)) = (applied.trial, applied.confirm_within_s) {
        // The runtime is the daemon's own, and ends with it: then nothing was saved.
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
            if let Ok(configurations) = of(&*source) {
                configurations.lapse(trial);
            }
        });
    }
    Ok(Json(applied))
}

async fn confirm(State(source): State<Arc<dyn Source>>) -> Answer<ConfigStatus> {
    of(&*source)?.confirm().map(Json).map_err(refused)
}

async fn roll_back(State(source): State<Arc<dyn Source>>) -> Answer<ConfigStatus> {
    of(&*source)?.roll_back().map(Json).map_err(refused)
}

fn of(source: &dyn Source) -> Result<&dyn Configurations, Refusal> {
    source.configurations().ok_or_else(|| {
        refused(ConfigRefused::Conflict(ApiError {
            error: "this daemon was started without a file".into(),
            help: "start it with `manylane run FILE.toml`".into(),
        }))
    })
}

fn request(body: &str) -> Result<ConfigRequest, Refusal> {
    serde_json::from_str(body).map_err(|error| {
        let error = format!("that is no configuration to apply: {error}");
        let help = "send `text`, and `confirm_within_s` for a trial".into();
        (StatusCode::BAD_REQUEST, Json(ApiError { error, help }))
    })
}

fn refused(error: ConfigRefused) -> Refusal {
    match error {
        ConfigRefused::Invalid(error) => (StatusCode::BAD_REQUEST, Json(error)),
        ConfigRefused::Conflict(error) => (StatusCode::CONFLICT, Json(error)),
    }
}
