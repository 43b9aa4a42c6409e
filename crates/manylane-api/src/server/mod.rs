//! The daemon's side of the API.

pub mod accelerate;
mod accept;
mod body;
pub mod bounds;
mod capture;
mod configure;
mod connection;
pub(crate) mod document;
pub mod listen;
pub(crate) mod metrics;
pub(crate) mod page;
pub mod socket;
mod wrong_daemon;

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware::from_fn;
use axum::response::IntoResponse;
use axum::routing::{delete, post, put};
use axum::{Json, Router};
use hyper::body::{Bytes, Frame};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};
use utoipa::openapi::HttpMethod;

use crate::model::{
    ApiError, NeighbourStatus, PortStatus, SetError, Setting, Source, TraceLine, TraceLines,
    TraceRequest,
};
use bounds::Limits;
use document::{LINES, OperationDoc, Refusal, Routes, Sent};
use listen::Doors;
use metrics::METRICS;
pub use socket::Socket;

/// Answers requests until `shutdown` is ready, and then those that have begun, for a second.
///
/// Runs in a current-thread runtime with I/O and time. The socket's file is removed at the end.
pub async fn serve(
    doors: impl Into<Doors>,
    source: Arc<dyn Source>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    serve_routes(doors.into(), router(source), shutdown).await
}

/// As [`serve`], with other answers.
pub(super) async fn serve_routes(
    doors: Doors,
    router: Router,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let Doors { socket, tcp, bounds } = doors;
    let limits = Limits::new(bounds);
    let router = router.layer(DefaultBodyLimit::disable()).layer(from_fn(body::take_whole));
    let listener = UnixListener::from_std(socket.listener()?)?;
    let (begin, begun) = watch::channel(false);
    let by_tcp = tcp
        .map(|door| door.guard(router.clone()))
        .transpose()?
        .map(|(listener, guarded)| accept::serve(listener, guarded, limits.clone(), begun.clone()));
    let by_tcp = async {
        if let Some(served) = by_tcp {
            served.await;
        }
    };
    let served =
        async { tokio::join!(accept::serve(listener, router, limits.clone(), begun), by_tcp) };
    // A client that neither asks nor hangs up must not keep a stopping daemon.
    let patience = async {
        shutdown.await;
        // Receivers live as long as `served`.
        let _ = begin.send(true);
        tokio::time::sleep(SHUTDOWN_PATIENCE).await;
    };
    tokio::select! {
        _ = served => {}
        () = patience => {}
    }
    Ok(())
}

const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(1);

fn router(source: Arc<dyn Source>) -> Router {
    let router = routes().finish().fallback(not_found);
    router.method_not_allowed_fallback(not_allowed).with_state(source)
}

fn routes() -> Routes<dyn Source> {
    let routes = Routes::<dyn Source>::new("manylane run")
        .list("/v1/ports", "The ports, in the order of the configuration.", &[], |s| Ok(s.ports()))
        .list("/v1/workers", "The workers, in order.", &[], |s| Ok(s.workers()))
        .long_list("/v1/routes", "All routes, the daemon's own included.", TURN, |s| Ok(s.routes()))
        .long_list("/v1/neighbours", "All neighbours.", TURN, |s| Ok(s.neighbours()))
        .list("/v1/addresses", "The router's own addresses, with conflicts.", &[], |s| {
            Ok(s.addresses())
        })
        .list("/v1/drops", "Drops by reason; reasons without any are omitted.", &[], |s| {
            Ok(s.drops())
        })
        .one("/v1/ledger", "The sum of all packets, which has to add up.", &[], |s| Ok(s.ledger()))
        .one("/v1/frames", "The frames.", &[], |s| Ok(s.frames()))
        .one("/v1/steering", "The worker of each queue and each bucket of flows.", &[], |s| {
            Ok(s.steering())
        })
        .one("/v1/sockets", "The packet sockets.", &[], |s| Ok(s.sockets()))
        .one("/v1/export", "Collectors, and the messages to each.", &[], |s| Ok(s.export()))
        .one("/v1/daemon", "The daemon itself.", &[], |s| Ok(s.daemon()))
        .at(HttpMethod::Get, METRICS, metrics::answer(metrics::forwarder), metrics::doc())
        .at(HttpMethod::Get, page::PAGE, page::answer(), page::doc());
    configure::routes(capture::added(changes(routes), DROPS, |source, request| {
        source.capture_drops(request)
    }))
}

const DROPS: &str =
    "Captures dropped packets of all ports, as a file with the reason in each packet's comment.";
const TURN: &[(u16, &str)] =
    &[(503, "Another long list is still being read by the same client, or by too many others.")];

/// The methods that change a daemon, and the trace.
fn changes(routes: Routes<dyn Source>) -> Routes<dyn Source> {
    tracing(neighbours(removal(settings(routes))))
}

fn settings(mut routes: Routes<dyn Source>) -> Routes<dyn Source> {
    let setting = Sent::Json("The setting, as it is now.", routes.schema::<Setting>());
    let doc = OperationDoc {
        id: "set",
        does: "Changes a setting until the daemon ends.",
        parameters: &[("key", "The setting, as `frames.hot_list_len` or `port.lan.steering`.")],
        takes: Some(Sent::Word("The new value.")),
        gives: setting,
        refuses: &[
            (400, "The value does not fit the setting."),
            (404, "No setting has this name."),
        ],
    };
    routes.at(HttpMethod::Put, "/v1/config/{key}", put(set), doc)
}

fn removal(mut routes: Routes<dyn Source>) -> Routes<dyn Source> {
    let port = Sent::Json("The port, as it is now.", routes.schema::<PortStatus>());
    let doc = OperationDoc {
        id: "remove_port",
        does: "Begins to remove a port: the removal is complete when the state is `removed`.",
        parameters: &[("port", "The port's name.")],
        takes: None,
        gives: port,
        refuses: &[(400, "The port cannot be removed."), (404, "No port has this name.")],
    };
    let added = OperationDoc {
        id: "add_port",
        does: "Refuses to add a port, and says why that needs a restart. `manylane accelerate` adds one.",
        parameters: &[("port", "The interface's name.")],
        takes: None,
        gives: Sent::Json("The port, as it is now.", routes.schema::<PortStatus>()),
        refuses: &[(409, "The port can be added at a start only.")],
    };
    let routes = routes.at(HttpMethod::Put, "/v1/ports/{port}", put(add_port), added);
    routes.at(HttpMethod::Delete, "/v1/ports/{port}", delete(remove_port), doc)
}

fn neighbours(mut routes: Routes<dyn Source>) -> Routes<dyn Source> {
    let added = OperationDoc {
        id: "add_neighbour",
        does: "Sets a neighbour until it is deleted or the daemon ends.",
        parameters: NAMES,
        takes: Some(Sent::Word("The neighbour's link-layer address.")),
        gives: Sent::Json("The neighbour, as it is now.", routes.schema::<NeighbourStatus>()),
        refuses: &[
            (400, "The address cannot be a neighbour's."),
            (404, "No port has this name."),
            (409, "The table is full."),
        ],
    };
    let deleted = OperationDoc {
        id: "delete_neighbour",
        does: "Deletes a neighbour in any state.",
        parameters: NAMES,
        takes: None,
        gives: Sent::Json("The neighbour, as it was.", routes.schema::<NeighbourStatus>()),
        refuses: &[(400, "The address is not valid."), (404, "No neighbour has this address.")],
    };
    routes.at(HttpMethod::Put, NEIGHBOUR, put(add_neighbour), added).at(
        HttpMethod::Delete,
        NEIGHBOUR,
        delete(delete_neighbour),
        deleted,
    )
}

fn tracing(mut routes: Routes<dyn Source>) -> Routes<dyn Source> {
    let means = "A line for each stage of a packet, and empty lines, until the client disconnects.";
    let doc = OperationDoc {
        id: "trace",
        does: "Follows packets, for as long as the connection lasts.",
        parameters: &[],
        takes: Some(Sent::Json("The packets to follow.", routes.schema::<TraceRequest>())),
        gives: Sent::Lines(means, routes.schema::<TraceLine>()),
        refuses: &[
            (400, "The request is not valid."),
            (404, "No port has this name."),
            (409, "Another trace runs."),
        ],
    };
    routes.at(HttpMethod::Post, "/v1/trace", post(trace), doc)
}

const NEIGHBOUR: &str = "/v1/neighbours/{port}/{address}";
const NAMES: &[(&str, &str)] = &[
    ("port", "The name of the port that leads to the neighbour."),
    ("address", "The neighbour's IP address, percent-encoded."),
];

async fn set(
    State(source): State<Arc<dyn Source>>,
    Path(key): Path<String>,
    value: String,
) -> Result<Json<Setting>, Refusal> {
    changed(source.set(&key, value.trim()))
}

async fn add_neighbour(
    State(source): State<Arc<dyn Source>>,
    Path((port, address)): Path<(String, String)>,
    mac: String,
) -> Result<Json<NeighbourStatus>, Refusal> {
    changed(source.add_neighbour(&port, &address, mac.trim()))
}

async fn delete_neighbour(
    State(source): State<Arc<dyn Source>>,
    Path((port, address)): Path<(String, String)>,
) -> Result<Json<NeighbourStatus>, Refusal> {
    changed(source.delete_neighbour(&port, &address))
}

async fn add_port(
    State(source): State<Arc<dyn Source>>,
    Path(port): Path<String>,
) -> Result<Json<PortStatus>, Refusal> {
    changed(source.add_port(&port))
}

async fn remove_port(
    State(source): State<Arc<dyn Source>>,
    Path(port): Path<String>,
) -> Result<Json<PortStatus>, Refusal> {
    changed(source.remove_port(&port))
}

async fn trace(
    State(source): State<Arc<dyn Source>>,
    request: String,
) -> Result<impl IntoResponse, Refusal> {
    let request = serde_json::from_str(&request).map_err(|error| {
        let error = format!("that is no request for a trace: {error}");
        let help = "send `count`, `filter`, and `port` if it is one port's".into();
        (StatusCode::BAD_REQUEST, Json(ApiError { error, help }))
    })?;
    let lines = source.trace(&request).map_err(refused)?;
    Ok(([(header::CONTENT_TYPE, LINES)], Body::new(Following::new(lines))))
}

/// The answer to a request for a trace, which ends with the connection.
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

/// Interval of empty lines without news: so the daemon notices that the client has disconnected.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);

fn changed<T>(result: Result<T, SetError>) -> Result<Json<T>, Refusal> {
    result.map(Json).map_err(refused)
}

pub(super) fn refused(error: SetError) -> Refusal {
    match error {
        SetError::UnknownKey(error) => (StatusCode::NOT_FOUND, Json(error)),
        SetError::BadValue(error) => (StatusCode::BAD_REQUEST, Json(error)),
        SetError::NoRoom(error) => (StatusCode::CONFLICT, Json(error)),
    }
}

async fn not_found(uri: Uri) -> Refusal {
    if let Some(refusal) = wrong_daemon::at_router(uri.path()) {
        return refusal;
    }
    let error = ApiError {
        error: format!("the API has no {}", uri.path()),
        help:
            "ask for /v1/ports, /v1/workers, /v1/routes, /v1/neighbours, /v1/addresses, /v1/drops, \
             /v1/ledger, /v1/frames, /v1/steering, /v1/sockets, /v1/export, /v1/config or \
             /v1/daemon"
                .into(),
    };
    (StatusCode::NOT_FOUND, Json(error))
}

pub(super) async fn not_allowed(method: Method, uri: Uri) -> Refusal {
    let error = ApiError {
        error: format!("{} does not take {method}", uri.path()),
        help:
            "ask with GET; what is below /v1/config/ and /v1/neighbours/ is changed, with PUT, or \
               DELETE for a neighbour, or a port below /v1/ports/; /v1/trace, /v1/capture/drops, \
               /v1/accelerate/flows, what is below it, and /v1/accelerate/mirror/diff take POST, and so do apply, \
               diff, confirm and rollback below /v1/config/"
                .into(),
    };
    (StatusCode::METHOD_NOT_ALLOWED, Json(error))
}
