//! `POST /v1/capture/drops`: what is dropped, as a file to download.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use hyper::body::{Bytes, Frame};
use tokio::time::{Instant, Sleep};
use utoipa::openapi::HttpMethod;

use super::document::{OperationDoc, Refusal, Routes, Sent};
use super::refused;
use crate::model::{ApiError, CaptureFile, CapturePart, CaptureRequest, SetError};

/// How a daemon begins one.
pub(super) type Begin<S> = fn(&S, &CaptureRequest) -> Result<CaptureFile, SetError>;

/// The route of it, which does this in the daemon's words.
pub(super) fn added<S: ?Sized + Send + Sync + 'static>(
    mut routes: Routes<S>,
    does: &'static str,
    begin: Begin<S>,
) -> Routes<S> {
    let request =
        Sent::Json("Duration and size of the capture.", routes.schema::<CaptureRequest>());
    let doc = OperationDoc {
        id: "capture_drops",
        does,
        parameters: &[],
        takes: Some(request),
        gives: Sent::Bytes("A pcapng file, sent while packets arrive.", PCAPNG),
        refuses: &[(400, "That cannot be captured."), (409, "Another one runs.")],
    };
    let answer = post(async move |State(source): State<Arc<S>>, request: String| {
        drops(source, &request, begin).await
    });
    routes.at(HttpMethod::Post, "/v1/capture/drops", answer, doc)
}

async fn drops<S: ?Sized + Send + Sync + 'static>(
    source: Arc<S>,
    request: &str,
    begin: Begin<S>,
) -> Result<Response, Refusal> {
    let request = if request.is_empty() { "{}" } else { request };
    let request: CaptureRequest = serde_json::from_str(request).map_err(|error| {
        let error = format!("that is no request for a capture: {error}");
        let help = "send `seconds`, `packets` and `snap`, or some of them".into();
        (StatusCode::BAD_REQUEST, Json(ApiError { error, help }))
    })?;
    request.check().map_err(refused)?;
    let seconds = request.seconds.into();
    // On a thread of its own: to load programs takes a while, and others are answered meanwhile.
    let begun = tokio::task::spawn_blocking(move || begin(&source, &request)).await;
    let file = begun.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
    let file = file.map_err(refused)?;
    let until = Instant::now() + Duration::from_secs(seconds);
    let headers = [
        (header::CONTENT_TYPE, PCAPNG),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"manylane-drops.pcapng\""),
        (header::CACHE_CONTROL, "no-store"),
    ];
    Ok((headers, Body::new(Capturing::new(file, until))).into_response())
}

/// As Wireshark and the shared MIME database call it: none is registered.
const PCAPNG: &str = "application/x-pcapng";

/// The answer: the file's parts.
struct Capturing {
    file: Option<CaptureFile>,
    until: Instant,
    pause: Pin<Box<Sleep>>,
}

impl Capturing {
    fn new(file: CaptureFile, until: Instant) -> Capturing {
        Capturing { file: Some(file), until, pause: Box::pin(tokio::time::sleep(Duration::ZERO)) }
    }
}

impl hyper::body::Body for Capturing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        loop {
            if self.file.is_none() {
                return Poll::Ready(None);
            }
            ready!(self.pause.as_mut().poll(context));
            let now = Instant::now();
            let is_over = now >= self.until;
            self.pause.as_mut().reset(now + LOOK_FOR_PACKETS);
            let part = self.file.as_mut().map(|file| (file.0)(is_over));
            let bytes = match part {
                Some(CapturePart::Some(bytes)) => bytes,
                Some(CapturePart::Last(bytes)) => {
                    self.file = None;
                    bytes
                }
                None => Vec::new(),
            };
            if !bytes.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(bytes.into()))));
            }
        }
    }
}

/// How often to look for packets: workers pass on a block when it is full or as old as this.
const LOOK_FOR_PACKETS: Duration = Duration::from_millis(10);
