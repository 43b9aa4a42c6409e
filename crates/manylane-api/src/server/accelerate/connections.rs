//! The questions about connections: the flow table, the kernel's connections, and the comparison of both.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::routing::post;
use serde::de::DeserializeOwned;
use utoipa::openapi::HttpMethod;

use super::{Answer, compare, refused, waited_for};
use crate::ApiError;
use crate::model::accelerate::{
    Accelerated, AskError, KernelFlows, KernelFlowsRequest, TrackedFlows, TrackedFlowsDiff,
    TrackedFlowsRequest,
};
use crate::server::bounds::Asker;
use crate::server::document::{OperationDoc, Refusal, Routes, Sent};

/// Adds them.
pub(super) fn with_connections(mut routes: Routes<dyn Accelerated>) -> Routes<dyn Accelerated> {
    let request =
        Sent::Json("The entries to list, and the page.", routes.schema::<TrackedFlowsRequest>());
    let page = Sent::Json("The page.", routes.schema::<TrackedFlows>());
    let kernel_request =
        Sent::Json("The connections to list, and the page.", routes.schema::<KernelFlowsRequest>());
    let kernel_page = Sent::Json("The page.", routes.schema::<KernelFlows>());
    let differences = Sent::Json("The differences.", routes.schema::<TrackedFlowsDiff>());
    routes
        .at(
            HttpMethod::Post,
            TABLE,
            post(tracked_flows),
            OperationDoc {
                id: "accelerate/flows/table",
                does: "Lists entries of the flow table: connections that are forwarded one by one, the largest first.",
                parameters: &[],
                takes: Some(request),
                gives: page,
                refuses: PAGE_REFUSED,
            },
        )
        .at(
            HttpMethod::Post,
            KERNEL,
            post(kernel_flows),
            OperationDoc {
                id: "accelerate/flows/kernel",
                does: "Lists connections that the kernel forwards, and what keeps each of them there.",
                parameters: &[],
                takes: Some(kernel_request),
                gives: kernel_page,
                refuses: PAGE_REFUSED,
            },
        )
        .at(
            HttpMethod::Post,
            TABLE_DIFF,
            compare("another comparison of the flow table with conntrack runs", |source| {
                source.tracked_flows_diff()
            }),
            OperationDoc {
                id: "accelerate/flows/diff",
                does: "Compares the flow table with conntrack: a line for each difference.",
                parameters: &[],
                takes: None,
                gives: differences,
                refuses: &[(409, "Another comparison runs."), (503, "The lane's thread does not answer.")],
            },
        )
}

/// One page at a time for each client, on a thread of its own: the lane's thread answers many questions for one page.
async fn tracked_flows(
    State(source): State<Arc<dyn Accelerated>>,
    Extension(asker): Extension<Asker>,
    request: String,
) -> Answer<TrackedFlows> {
    let request: TrackedFlowsRequest = parsed(&request, TABLE_FIELDS)?;
    request.check().map_err(bad)?;
    let turn = asker.turn().await?;
    waited_for(move || {
        let _turn = turn;
        source.tracked_flows(&request)
    })
    .await
}

/// As `tracked_flows`: a page of these takes a list of conntrack, too.
async fn kernel_flows(
    State(source): State<Arc<dyn Accelerated>>,
    Extension(asker): Extension<Asker>,
    request: String,
) -> Answer<KernelFlows> {
    let request: KernelFlowsRequest = parsed(&request, KERNEL_FIELDS)?;
    request.check().map_err(bad)?;
    let turn = asker.turn().await?;
    waited_for(move || {
        let _turn = turn;
        source.kernel_flows(&request)
    })
    .await
}

fn parsed<T: DeserializeOwned>(request: &str, fields: &str) -> Result<T, Refusal> {
    let request = if request.is_empty() { "{}" } else { request };
    serde_json::from_str(request).map_err(|error| {
        bad(ApiError {
            error: format!("that is no request for flows: {error}"),
            help: format!("send {fields}, or some of them"),
        })
    })
}

fn bad(error: ApiError) -> Refusal {
    refused(AskError::BadQuestion(error))
}

// Addresses of connections need more permission than counters, and lists take the lane's thread some time: POST.
const TABLE: &str = "/v1/accelerate/flows/table";
const KERNEL: &str = "/v1/accelerate/flows/kernel";
const TABLE_DIFF: &str = "/v1/accelerate/flows/diff";
const TABLE_FIELDS: &str =
    "`port`, `address`, `protocol`, `transport_port`, `translated`, `limit` and `offset`";
const KERNEL_FIELDS: &str =
    "`port`, `address`, `protocol`, `transport_port`, `translated`, `reason`, `limit` and `offset`";
const PAGE_REFUSED: &[(u16, &str)] = &[
    (400, "The request is wrong."),
    (503, "The lane's thread does not answer, or the same client's last page is not done yet."),
];
