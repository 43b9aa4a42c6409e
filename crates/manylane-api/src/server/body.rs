//! Bodies: requests are taken whole, with a bound and a deadline; long lists are sent in parts.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::vec;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use hyper::body::{Body as _, Bytes, Frame};
use serde::Serialize;
use tokio::time::{Instant, timeout};

use super::bounds::{Asker, Bound, Limits, Turn};
use crate::model::{ApiError, CONFIG_REQUEST_BYTES_MAX};

/// Bytes of a request that is no configuration: a filter of a trace has the most.
const REQUEST_BYTES_MAX: usize = 1 << 20;

/// Has the handler see a request only when its body has arrived.
pub(super) async fn take_whole(
    Extension(asker): Extension<Asker>,
    request: Request,
    next: Next,
) -> Response {
    let (parts, body) = request.into_parts();
    if body.is_end_stream() {
        return next.run(Request::from_parts(parts, body)).await;
    }
    let max = match parts.uri.path() {
        "/v1/config/diff" | "/v1/config/apply" => CONFIG_REQUEST_BYTES_MAX,
        _ => REQUEST_BYTES_MAX,
    };
    let said = body.size_hint();
    if said.lower() > max as u64 {
        return too_large(&asker.limits, max);
    }
    let is_large = max > REQUEST_BYTES_MAX
        && said.upper().is_none_or(|bytes| bytes > REQUEST_BYTES_MAX as u64);
    let _turn = match is_large {
        true => match asker.turn().await {
            Ok(turn) => Some(turn),
            Err(refusal) => return closing(refusal),
        },
        false => None,
    };
    let limits = &asker.limits;
    match timeout(limits.bounds.body, to_bytes(body, max)).await {
        Ok(Ok(bytes)) => next.run(Request::from_parts(parts, bytes.into())).await,
        Ok(Err(error)) if is_limit(&error) => too_large(limits, max),
        Ok(Err(error)) => {
            let error = format!("the body of the request broke off: {error}");
            let help = "send as many bytes as `Content-Length` says".into();
            closing((StatusCode::BAD_REQUEST, Json(ApiError { error, help })))
        }
        Err(_) => {
            limits.reached(Bound::Body);
            let seconds = limits.bounds.body.as_secs_f64();
            let error = format!("the body of the request did not arrive within {seconds} s");
            let help = "send it at once".into();
            closing((StatusCode::REQUEST_TIMEOUT, Json(ApiError { error, help })))
        }
    }
}

fn is_limit(error: &axum::Error) -> bool {
    let source = std::error::Error::source(error);
    source.is_some_and(|source| source.is::<http_body_util::LengthLimitError>())
}

fn too_large(limits: &Limits, max: usize) -> Response {
    limits.reached(Bound::BodyBytes);
    let error = format!("the request has more than {} MiB, and the API takes no more", max >> 20);
    let help = match max {
        CONFIG_REQUEST_BYTES_MAX => "apply a configuration with fewer routes, and learn the rest",
        _ => "send a shorter value",
    };
    closing((StatusCode::PAYLOAD_TOO_LARGE, Json(ApiError { error, help: help.into() })))
}

/// A refusal before the request was read to its end: what else arrives is no request.
pub(super) fn closing(refusal: impl IntoResponse) -> Response {
    ([(header::CONNECTION, "close")], refusal).into_response()
}

/// The JSON of a list: in parts, while the client reads, if it is long.
pub(super) fn listed<T>(list: Vec<T>, turn: Turn, limits: Arc<Limits>) -> Response
where
    T: Serialize + Send + Unpin + 'static,
{
    if list.len() <= SHORT_MAX {
        return Json(list).into_response();
    }
    let list = Listed {
        rest: Some(list.into_iter()),
        is_begun: false,
        pace: Pace { begun: Instant::now(), sent: 0, limits },
        _turn: turn,
    };
    ([(header::CONTENT_TYPE, "application/json")], Body::new(list)).into_response()
}

/// Elements of a list that is sent at once.
const SHORT_MAX: usize = 1024;
/// Bytes after which a part is sent: one element more, at most.
const PART: usize = 32 << 10;

/// A list that is being sent.
struct Listed<T> {
    /// None behind the last part.
    rest: Option<vec::IntoIter<T>>,
    is_begun: bool,
    pace: Pace,
    _turn: Turn,
}

impl<T: Serialize> Listed<T> {
    fn part(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some(rest) = &mut self.rest else { return Ok(None) };
        let mut part = Vec::with_capacity(PART + 1024);
        for element in rest {
            part.push(if self.is_begun { b',' } else { b'[' });
            self.is_begun = true;
            serde_json::to_writer(&mut part, &element)?;
            if part.len() >= PART {
                return Ok(Some(part));
            }
        }
        part.push(b']');
        self.rest = None;
        Ok(Some(part))
    }
}

impl<T: Serialize + Unpin> hyper::body::Body for Listed<T> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.pace.is_too_slow() {
            return Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())));
        }
        let part = self.part().transpose();
        Poll::Ready(part.map(|part| {
            let part = part?;
            self.pace.sent += part.len() as u64;
            Ok(Frame::data(part.into()))
        }))
    }
}

/// How fast a client reads.
struct Pace {
    begun: Instant,
    sent: u64,
    limits: Arc<Limits>,
}

impl Pace {
    /// Whether the client keeps others waiting: what was sent before should be read by now.
    fn is_too_slow(&self) -> bool {
        let bounds = &self.limits.bounds;
        let Some(late) = self.begun.elapsed().checked_sub(bounds.stalled) else { return false };
        let is_late = late.as_secs_f64() * bounds.pace as f64 > self.sent as f64;
        if is_late {
            self.limits.reached(Bound::Pace);
        }
        is_late
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::TcpStream;
    use std::sync::Mutex;

    use utoipa::openapi::HttpMethod;

    use super::super::document::Routes;
    use super::super::metrics::{self, METRICS};
    use super::super::serve_routes;
    use super::*;
    use crate::sample::Sample;
    use crate::tests::attack::{SOON, loopback, patient};
    use crate::tests::served::Served;
    use crate::{Bounds, Client, RouteStatus, Source};

    /// Ready when the server has closed the connection, however it says so.
    fn wait_for_the_end(stream: &mut impl Read) {
        let mut buffer = [0; 4096];
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
                    return;
                }
            }
        }
    }

    /// A table of routes, and how often all of it was read for a client.
    struct Table {
        routes: Vec<RouteStatus>,
        taken: Mutex<usize>,
    }

    impl Table {
        fn new(len: usize) -> Arc<Table> {
            let route = Sample.routes().swap_remove(0);
            Arc::new(Table { routes: vec![route; len], taken: Mutex::default() })
        }

        fn serve(self: &Arc<Table>, name: &str, bounds: Bounds) -> Served {
            let table = self.clone();
            Served::answering(name, &loopback(), bounds, async move |doors, stopped| {
                let routes = Routes::<Table>::new("a table").long_list(
                    "/v1/routes",
                    "The routes.",
                    &[],
                    |table| {
                        *table.taken.lock().unwrap() += 1;
                        Ok(table.routes.clone())
                    },
                );
                let metrics = metrics::answer::<Table>(|_, _| Ok(()));
                let routes = routes.at(HttpMethod::Get, METRICS, metrics, metrics::doc());
                serve_routes(doors, routes.finish().with_state(table), stopped).await
            })
        }
    }

    #[test]
    fn a_long_list_in_parts_is_the_list() {
        for len in [0, 1, 1024, 1025, 5000] {
            let table = Table::new(len);
            let served = table.serve(&format!("parts-{len}"), patient());
            let text = Client::new(&served.socket()).ask_text("/v1/routes").unwrap();
            assert_eq!(text, serde_json::to_string(&table.routes).unwrap(), "{len} routes");
        }
    }

    /// 64 unread lists of a million routes took 1 to 1.6 GB.
    #[test]
    fn a_client_that_does_not_read_its_list_gets_no_second_one() {
        let bounds = Bounds { turn: SOON, ..patient() };
        let table = Table::new(200_000);
        let served = table.serve("unread", bounds);
        let ask = |mut stream: TcpStream| {
            stream.write_all(b"GET /v1/routes HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            let mut status = [0; 12];
            stream.read_exact(&mut status).unwrap();
            (stream, String::from_utf8_lossy(&status[9..]).into_owned())
        };
        let (unread, status) = ask(served.connect());
        assert_eq!(status, "200");
        for _ in 0..10 {
            assert_eq!(ask(served.connect()).1, "503", "the first one is not read yet");
        }
        // One of many peers; two peers are served at a time.
        let (other, status) = ask(served.connect_from("127.0.0.2"));
        assert_eq!(status, "200");
        assert_eq!(ask(served.connect_from("127.0.0.3")).1, "503");
        assert_eq!(*table.taken.lock().unwrap(), 2, "the table was read for two");
        assert_eq!(served.reached("turn"), 11);
        // The socket of root, and of the daemon's own user, waits for none of them.
        let client = Client::new(&served.socket());
        assert_eq!(client.ask::<Vec<RouteStatus>>("/v1/routes").unwrap().len(), 200_000);
        drop((unread, other));
        // Both have their turn back when the server has seen that they are gone.
        let again = std::iter::repeat_with(|| ask(served.connect()).1);
        assert!(again.take(1000).any(|status| status == "200"));
    }

    /// A client that reads a little now and then would keep its turn for hours.
    #[test]
    fn a_long_list_that_is_read_too_slowly_is_broken_off() {
        let bounds = Bounds { stalled: SOON, pace: 1 << 60, ..patient() };
        let table = Table::new(2_000_000);
        let served = table.serve("slowly", bounds);
        let mut stream = served.connect();
        stream.write_all(b"GET /v1/routes HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        // At this pace every client is too slow, and the list is too long for the buffers on its way.
        wait_for_the_end(&mut stream);
        assert_eq!(served.reached("read_slowly") + served.reached("not_read"), 1);
    }
}
