//! The accelerator's side of its API. Questions about connections are in `connections`.

mod connections;

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{Method, StatusCode, Uri};
use axum::routing::{MethodRouter, get, post, put};
use axum::{Json, Router};
use serde::Serialize;
use tokio::sync::Semaphore;
use utoipa::openapi::HttpMethod;
use utoipa::openapi::schema::ArrayBuilder;

use super::{capture, serve_routes, wrong_daemon};
use crate::model::accelerate::{
    Accelerated, AcceleratedFlows, AcceleratedPort, AskError, TransportProtocol, Why, WhyQuestion,
};
use crate::server::document::{OperationDoc, Refusal, Routes, Sent};
use crate::server::listen::Doors;
use crate::server::metrics::{self, METRICS};
use crate::server::page;
use crate::{ApiError, Setting};

type Answer<T> = Result<Json<T>, Refusal>;

/// Answers requests until `shutdown` is ready, and then those that have begun, for a second.
///
/// Runs in a current-thread runtime with I/O and time. The socket's file is removed at the end.
pub async fn serve(
    doors: impl Into<Doors>,
    source: Arc<dyn Accelerated>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    serve_routes(doors.into(), router(source), shutdown).await
}

fn router(source: Arc<dyn Accelerated>) -> Router {
    let router = routes().finish().fallback(not_found);
    router.method_not_allowed_fallback(not_allowed).with_state(source)
}

fn routes() -> Routes<dyn Accelerated> {
    let routes = Routes::<dyn Accelerated>::new("manylane accelerate")
        .one("/v1/daemon", "The accelerator itself.", &[], |s| Ok(s.daemon()))
        .list(
            "/v1/accelerate/ports",
            "The ports, in the order in which they were named.",
            &[],
            |s| Ok(s.ports()),
        )
        .list(
            "/v1/accelerate/drops",
            "Packets that were left to the kernel, and lost packets, by reason.",
            &[],
            |s| Ok(s.drops()),
        )
        .one("/v1/accelerate/ledger", "The sum of all packets, which has to add up.", &[], |s| {
            Ok(s.ledger())
        })
        .one(
            "/v1/accelerate/config",
            "The options that the accelerator was started with.",
            &[],
            |s| Ok(s.config()),
        )
        .one("/v1/accelerate/mirror", "The mirror of the kernel's routing.", SILENT, |s| {
            s.mirror().map_err(refused)
        })
        .one(
            "/v1/accelerate/lane",
            "The thread that looks after connections, and its flow table.",
            LANE_SILENT,
            |s| s.lane().map_err(refused),
        )
        .one("/v1/accelerate/export", "Collectors, and the messages to each.", &[], |s| {
            Ok(s.export())
        })
        .long_list(
            "/v1/accelerate/routes",
            "The routes that the programs forward by.",
            SILENT_OR_TURN,
            |s| s.routes().map_err(refused),
        )
        .long_list("/v1/accelerate/neighbours", "The kernel's neighbours.", SILENT_OR_TURN, |s| {
            s.neighbours().map_err(refused)
        })
        .at(HttpMethod::Get, METRICS, metrics::answer(metrics::accelerator), metrics::doc())
        .at(HttpMethod::Get, page::PAGE, page::answer(), page::doc());
    let routes = connections::with_connections(with_arguments(routes));
    capture::added(routes, DROPS, |source, request| source.capture_drops(request))
}

const DROPS: &str = "Captures packets of all ports that workers drop or that are left to the kernel, as a file with the reason \
                     in each packet's comment.";

/// The questions that take something, and the one edit.
#[expect(clippy::too_many_lines, reason = "a table, told in order")]
fn with_arguments(mut routes: Routes<dyn Accelerated>) -> Routes<dyn Accelerated> {
    let flows_schema =
        Sent::Json("Flows, with the tier that forwards each.", routes.schema::<AcceleratedFlows>());
    let why_schema =
        Sent::Json("Whether manylane forwards the packet, and why.", routes.schema::<Why>());
    let why_ref = routes.schema::<Why>();
    let setting = Sent::Json("The setting, as it is now.", routes.schema::<Setting>());
    let port = Sent::Json("The port, as it is now.", routes.schema::<AcceleratedPort>());
    let line = routes.schema::<String>();
    routes
        .at(
            HttpMethod::Post,
            FLOWS,
            post(flows),
            OperationDoc {
                id: "accelerate/flows",
                does: "Lists the flows of some packets that are received from now on, within a tenth of a second.",
                parameters: &[],
                takes: None,
                gives: flows_schema,
                refuses: &[(503, "The programs' sample cannot be read.")],
            },
        )
        .at(
            HttpMethod::Post,
            DIFF,
            compare("another comparison of the mirror with the kernel runs", |source| source.diff()),
            OperationDoc {
                id: "accelerate/mirror/diff",
                does: "Compares the mirror with the kernel's routing: a line for each difference.",
                parameters: &[],
                takes: None,
                gives: Sent::Json("The differences.", ArrayBuilder::new().items(line).into()),
                refuses: &[
                    (409, "Another comparison runs."),
                    (503, "The mirror's thread does not answer."),
                ],
            },
        )
        .at(
            HttpMethod::Get,
            WHY,
            get(why),
            OperationDoc {
                id: "accelerate/why",
                does: "Reports the verdict on a packet.",
                parameters: &[
                    ("interface", "The ingress interface."),
                    ("source", "The packet's source address, percent-encoded."),
                    ("destination", "The packet's destination address, percent-encoded."),
                ],
                takes: None,
                gives: why_schema,
                refuses: WRONG,
            },
        )
        .at(
            HttpMethod::Get,
            WHY_TRANSPORT,
            get(why_transport),
            OperationDoc {
                id: "accelerate/why/transport",
                does: "Reports the verdict on a packet of a connection.",
                parameters: &[
                    ("interface", "The ingress interface."),
                    ("source", "The packet's source address, percent-encoded."),
                    ("destination", "The packet's destination address, percent-encoded."),
                    ("protocol", "`tcp` or `udp`."),
                    ("source_port", "The packet's source port."),
                    ("destination_port", "The packet's destination port."),
                ],
                takes: None,
                gives: Sent::Json("Whether manylane forwards the packet, and why.", why_ref),
                refuses: WRONG,
            },
        )
        .at(
            HttpMethod::Put,
            "/v1/config/{key}",
            put(set),
            OperationDoc {
                id: "set",
                does: "Changes the tier of an interface, or how many of its packets are sampled, until the accelerator ends.",
                parameters: &[("key", "The setting: `port.IF.tier` or `port.IF.sflow_rate`.")],
                takes: Some(Sent::Word("`auto`, `workers`, `driver`, `ingress` or `kernel`; for a rate, N: one packet in N.")),
                gives: setting,
                refuses: WRONG,
            },
        )
        .at(
            HttpMethod::Put,
            "/v1/ports/{port}",
            put(add_port),
            OperationDoc {
                id: "add_port",
                does: "Accelerates another interface until the accelerator ends.",
                parameters: &[("port", "The interface's name.")],
                takes: None,
                gives: port,
                refuses: WRONG,
            },
        )
}

// Addresses in packets need more permission than counters: POST, as a trace.
const FLOWS: &str = "/v1/accelerate/flows";
// A comparison reads all of the kernel's routing in the mirror's thread: POST, and one at a time.
const DIFF: &str = "/v1/accelerate/mirror/diff";
const WHY: &str = "/v1/accelerate/why/{interface}/{source}/{destination}";
const WHY_TRANSPORT: &str = "/v1/accelerate/why/{interface}/{source}/{destination}/{protocol}/{source_port}/{destination_port}";
const WRONG: &[(u16, &str)] =
    &[(400, "The request is wrong."), (503, "The mirror's thread does not answer.")];
const LANE_SILENT: &[(u16, &str)] = &[(503, "The lane's thread does not answer.")];
const SILENT: &[(u16, &str)] = &[(503, "The mirror's thread does not answer.")];
const SILENT_OR_TURN: &[(u16, &str)] = &[(
    503,
    "The mirror's thread does not answer, or another long list is still being read by the same client, or by too many \
     others.",
)];

/// On a thread of its own: others are answered meanwhile, and a second comparison is refused.
fn compare<T: Serialize + Send + 'static>(
    other_runs: &'static str,
    compares: fn(&dyn Accelerated) -> Result<T, AskError>,
) -> MethodRouter<Arc<dyn Accelerated>> {
    let turns = Arc::new(Semaphore::new(1));
    post(async move |State(source): State<Arc<dyn Accelerated>>| -> Answer<T> {
        let turn = turns.try_acquire_owned().map_err(|_| {
            let error = other_runs.into();
            let help = "wait until it is complete, and try again".into();
            (StatusCode::CONFLICT, Json(ApiError { error, help }))
        })?;
        waited_for(move || {
            // Until the thread is done, even if the client has left.
            let _turn = turn;
            compares(&*source)
        })
        .await
    })
}

async fn set(
    State(source): State<Arc<dyn Accelerated>>,
    Path(key): Path<String>,
    value: String,
) -> Answer<Setting> {
    // The call waits for the mirror's thread; so do other questions.
    source.set(&key, value.trim()).map(Json).map_err(refused)
}

async fn add_port(
    State(source): State<Arc<dyn Accelerated>>,
    Path(port): Path<String>,
) -> Answer<AcceleratedPort> {
    source.add_port(&port).map(Json).map_err(refused)
}

/// On a thread of its own, since it waits for packets, or reads the kernel's rules: others are answered meanwhile.
async fn flows(State(source): State<Arc<dyn Accelerated>>) -> Answer<AcceleratedFlows> {
    waited_for(move || source.flows()).await
}

async fn waited_for<T: Send + 'static>(
    question: impl FnOnce() -> Result<T, AskError> + Send + 'static,
) -> Answer<T> {
    let answer = tokio::task::spawn_blocking(question).await;
    answer
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
        .map(Json)
        .map_err(refused)
}

async fn why(
    State(source): State<Arc<dyn Accelerated>>,
    Path((interface, from, to)): Path<(String, String, String)>,
) -> Answer<Why> {
    let [source_address, destination] = [address(&from)?, address(&to)?];
    let question = WhyQuestion { source: source_address, destination, interface, transport: None };
    waited_for(move || source.why(&question)).await
}

async fn why_transport(
    State(source): State<Arc<dyn Accelerated>>,
    Path((interface, from, to, protocol, sport, dport)): Path<(
        String,
        String,
        String,
        String,
        String,
        String,
    )>,
) -> Answer<Why> {
    let bad = |error: String| {
        let help = "ask for /v1/accelerate/why/INTERFACE/SOURCE/DESTINATION/tcp/SPORT/DPORT".into();
        refused(AskError::BadQuestion(ApiError { error, help }))
    };
    let protocol = protocol.parse::<TransportProtocol>().map_err(bad)?;
    let port = |text: &str| text.parse::<u16>().map_err(|_| bad(format!("{text} is no port")));
    let ports = [port(&sport)?, port(&dport)?];
    let [source_address, destination] = [address(&from)?, address(&to)?];
    let transport = Some((protocol, ports));
    let question = WhyQuestion { source: source_address, destination, interface, transport };
    waited_for(move || source.why(&question)).await
}

fn address(text: &str) -> Result<IpAddr, Refusal> {
    text.parse::<IpAddr>().map_err(|_| {
        refused(AskError::BadQuestion(ApiError {
            error: format!("{text} is no IP address"),
            help: "ask for /v1/accelerate/why/INTERFACE/SOURCE/DESTINATION".into(),
        }))
    })
}

fn refused(error: AskError) -> Refusal {
    match error {
        AskError::BadQuestion(error) => (StatusCode::BAD_REQUEST, Json(error)),
        AskError::Silent(error) => (StatusCode::SERVICE_UNAVAILABLE, Json(error)),
    }
}

/// Some paths of `manylane run` are ours, too, with other methods.
async fn not_allowed(method: Method, uri: Uri) -> Refusal {
    match wrong_daemon::at_accelerator(uri.path()) {
        Some(refusal) => refusal,
        None => super::not_allowed(method, uri).await,
    }
}

async fn not_found(uri: Uri) -> Refusal {
    if let Some(refusal) = wrong_daemon::at_accelerator(uri.path()) {
        return refusal;
    }
    let error = ApiError {
        error: format!("`manylane accelerate` has no {}", uri.path()),
        help:
            "use /v1/daemon, or ports, drops, ledger, flows, flows/table, flows/kernel, flows/diff, lane, config, mirror, \
               mirror/diff, routes, neighbours or why below /v1/accelerate/, or POST to /v1/capture/drops"
                .into(),
    };
    (StatusCode::NOT_FOUND, Json(error))
}
