//! `manylane run` as a process, asked by `manylane show` through its socket, and ended by SIGTERM.

use std::process::Command;

use manylane_api::{
    DropStatus, Ledger, NeighbourState, NeighbourStatus, PortStatus, RouteKind, RouteStatus,
    WorkerStatus,
};
use manylane_lab::scenario::{Running, all_answered, assert_balanced, error_of, lab};
use manylane_lab::{LabOptions, RouterOptions, SERVER_V4, SERVER_V6};
use serde::de::DeserializeOwned;

const MANYLANE: &str = env!("CARGO_BIN_EXE_manylane");

#[test]
fn a_running_router_shows_what_it_does() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let running = Running::start(&lab, MANYLANE, &RouterOptions::default());
    for destination in [SERVER_V4, SERVER_V6] {
        all_answered(&lab.client, destination, 56);
    }
    error_of(&lab.client, SERVER_V4, 56, 1);

    let ports: Vec<PortStatus> = show(&running, "ports");
    let names: Vec<_> = ports.iter().map(|port| port.name.as_str()).collect();
    assert_eq!(names, ["lan", "wan"]);
    for port in &ports {
        assert!(port.link_up && port.driver == "af_xdp" && port.mtu == 1500, "{port:?}");
        assert!(port.received >= 6 && port.transmitted >= 6, "{port:?}");
        // Hosts speak as soon as a link is up: what came before the port had frames is not a loss.
        assert_eq!((port.lost_ring_full, port.lost_invalid), (0, 0), "{port:?}");
    }

    let workers: Vec<WorkerStatus> = show(&running, "workers");
    assert_eq!(workers.len(), 1);
    assert!(workers[0].received >= 12 && workers[0].held == 0, "{workers:?}");

    let routes: Vec<RouteStatus> = show(&running, "routes");
    for (prefix, kind) in [
        ("10.1.0.0/24", RouteKind::Connected),
        ("10.1.0.254/32", RouteKind::Local),
        ("2001:db8:2::/64", RouteKind::Connected),
        ("2001:db8:2::fe/128", RouteKind::Local),
    ] {
        let found = routes.iter().find(|route| route.prefix == prefix);
        assert_eq!(found.map(|route| route.kind), Some(kind), "{prefix}: {routes:?}");
    }

    let neighbours: Vec<NeighbourStatus> = show(&running, "neighbours");
    for address in ["10.1.0.1", "10.2.0.1", "2001:db8:1::1", "2001:db8:2::1"] {
        let found = neighbours.iter().find(|neighbour| neighbour.address == address);
        let found = found.unwrap_or_else(|| panic!("{address} is missing: {neighbours:?}"));
        assert!(found.mac.is_some(), "{found:?}");
        assert_ne!(found.state, NeighbourState::Failed, "{found:?}");
    }

    let drops: Vec<DropStatus> = show(&running, "drops");
    let hop_limit = drops.iter().find(|reason| reason.reason == "hop_limit_exceeded");
    assert_eq!(hop_limit.map(|reason| reason.total), Some(1), "{drops:?}");

    let ledger: Ledger = show(&running, "ledger");
    assert_balanced(&ledger);

    let (status, said) = running.terminate();
    assert!(status.success(), "{status}: {said}");
    assert!(said.contains("missing 0"), "{said}");
}

/// The table as it is for eyes, and the JSON.
fn show<T: DeserializeOwned>(running: &Running, what: &str) -> T {
    let ask = |more: &[&str]| {
        let socket = running.socket().display().to_string();
        let output = Command::new(MANYLANE)
            .args(["show", what, "--socket", &socket])
            .args(more)
            .output()
            .expect("the program is there");
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "show {what} {more:?}: {complaint}");
        String::from_utf8(output.stdout).expect("it is text")
    };
    println!("{}", ask(&[]));
    let json = ask(&["--json"]);
    serde_json::from_str(&json).unwrap_or_else(|error| panic!("show {what}: {error}: {json}"))
}
