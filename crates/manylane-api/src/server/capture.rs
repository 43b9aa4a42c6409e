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
use axum::response::IntoResponse;
use axum::routing::post;
use hyper::body::{Bytes, Frame};
use tokio::time::{Instant, Sleep};
use utoipa::openapi::HttpMethod;

use super::document::{OperationDoc, Refusal, Routes, Sent};
use super::refused;
use crate::model::{ApiError, CaptureFile, CapturePart, CaptureRequest, Source};

/// The route of it.
pub(super) fn added(mut routes: Routes<dyn Source>) -> Routes<dyn Source> {
    let request =
        Sent::Json("Duration and size of the capture.", routes.schema::<CaptureRequest>());
    let doc = OperationDoc {
        id: "capture_drops",
        does: "Captures dropped packets of all ports, as a file with the reason in each packet's comment.",
        parameters: &[],
        takes: Some(request),
        gives: Sent::Bytes("A pcapng file, sent while packets arrive.", PCAPNG),
        refuses: &[(400, "That cannot be captured."), (409, "Another one runs.")],
    };
    routes.at(HttpMethod::Post, "/v1/capture/drops", post(drops), doc)
}

async fn drops(
    State(source): State<Arc<dyn Source>>,
    request: String,
) -> Result<impl IntoResponse, Refusal> {
    let request = if request.is_empty() { "{}" } else { &request };
    let request: CaptureRequest = serde_json::from_str(request).map_err(|error| {
        let error = format!("that is no request for a capture: {error}");
        let help = "send `seconds`, `packets` and `snap`, or some of them".into();
        (StatusCode::BAD_REQUEST, Json(ApiError { error, help }))
    })?;
    request.check().map_err(refused)?;
    let file = source.capture_drops(&request).map_err(refused)?;
    let until = Instant::now() + Duration::from_secs(request.seconds.into());
    let headers = [
        (header::CONTENT_TYPE, PCAPNG),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"manylane-drops.pcapng\""),
        (header::CACHE_CONTROL, "no-store"),
    ];
    Ok((headers, Body::new(Capturing::new(file, until))))
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
