//! Requests that only the other kind of daemon answers: what the operator can do instead.
//!
//! Their status is 421 (Misdirected Request, RFC 9110 §15.5.20).

use axum::Json;
use axum::http::StatusCode;

use super::document::Refusal;
use crate::model::ApiError;

/// The answer of `manylane accelerate` to a request for `manylane run`.
pub(super) fn at_accelerator(path: &str) -> Option<Refusal> {
    let rest = path.strip_prefix("/v1/accelerate/").or_else(|| path.strip_prefix("/v1/"))?;
    let (noun, below) =
        rest.split_once('/').map_or((rest, None), |(noun, below)| (noun, Some(below)));
    let (what, instead) = match (noun, below) {
        ("workers", None) => {
            ("it does not list workers", "`manylane show ports` lists what each tier has forwarded")
        }
        ("addresses", None) => (
            "the kernel has the addresses",
            "`ip address` lists them, and `manylane show ports` the interfaces",
        ),
        ("frames", None) => {
            ("it does not list frames", "`manylane show ledger` has the sums of packets")
        }
        ("steering", None) => (
            "the device chooses a core for each packet",
            "`ethtool -x IF` shows how; `manylane show ports` lists the interfaces",
        ),
        ("sockets", _) => (
            "it has no packet sockets",
            "capture with `manylane capture`, which needs no packet socket",
        ),
        ("trace", None) => (
            "it traces packets by the socket for captures",
            "run `manylane trace` as root or in the group `manylane-capture`; `manylane show why SOURCE DESTINATION -i IF` has the \
             verdict without a packet",
        ),
        ("config", None | Some("diff" | "apply" | "confirm" | "rollback")) => (
            "it has no configuration file",
            "`manylane show config` lists its options; `manylane config set port.IF.tier TIER` changes one",
        ),
        ("neighbours", Some(_)) => {
            ("the kernel has the neighbours", "change them with `ip neighbour`")
        }
        ("ports", Some(_)) => (
            "it removes no port while it runs",
            "`manylane config set port.IF.tier kernel` leaves an interface to the kernel",
        ),
        _ => return None,
    };
    Some(misdirected("accelerate", what, instead))
}

/// The answer of `manylane run` to a request for `manylane accelerate`.
pub(super) fn at_router(path: &str) -> Option<Refusal> {
    let rest = path.strip_prefix("/v1/accelerate/").or_else(|| path.strip_prefix("/v1/"))?;
    let (what, instead) = match rest.split('/').next()? {
        "why" => (
            "it forwards by its own tables, which `show why` does not search",
            "`manylane trace` follows a packet, and `manylane show routes` lists the routes",
        ),
        "mirror" => (
            "it has no copy of the kernel's routing",
            "`manylane show routes` lists the routes that it forwards by",
        ),
        noun @ ("ports" | "drops" | "ledger" | "routes" | "neighbours" | "config")
            if path.starts_with("/v1/accelerate/") =>
        {
            return Some(misdirected(
                "run",
                "it accelerates no interface of the kernel",
                &format!("`manylane show {noun}` shows its own"),
            ));
        }
        "lane" => (
            "it forwards no connections of the kernel's",
            "`manylane show ports` has the sums of what it forwards",
        ),
        "flows" => ("it does not sample flows", "`manylane trace` follows packets"),
        _ => return None,
    };
    Some(misdirected("run", what, instead))
}

fn misdirected(command: &str, what: &str, instead: &str) -> Refusal {
    let error = format!("this is `manylane {command}`: {what}");
    (StatusCode::MISDIRECTED_REQUEST, Json(ApiError { error, help: instead.into() }))
}
