//! What the doctor says.

use super::*;
use manylane_accelerate::gate::{About, Concerns, DriverStanding, Tier};

fn reason(about: About, is_everywhere: bool, what: &str, command: Option<&str>) -> Reason {
    Reason {
        about,
        concerns: Concerns::Both,
        is_everywhere,
        what: what.into(),
        why: "packets that we forward would skip it".into(),
        command: command.map(Into::into),
    }
}

fn standing(interface: &str) -> Standing {
    Standing {
        interface: interface.into(),
        index: 2,
        tier: Tier::Ingress,
        is_ingress: true,
        is_egress: true,
        link_up: true,
        reasons: vec![],
        bypassed: vec![],
        notes: vec![],
        driver: DriverStanding::default(),
    }
}

fn examination(standing: Standing) -> Examination {
    Examination { standing, sockets: None, packet_sockets_error: None }
}

fn both() -> Vec<Examination> {
    let drop = reason(
        About::Netfilter,
        true,
        "table inet fw, chain forward (filter at forward): policy drop",
        None,
    );
    let kept = Standing {
        tier: Tier::Kernel,
        is_ingress: false,
        is_egress: false,
        reasons: vec![drop.clone()],
        ..standing("lan")
    };
    let filter = reason(About::TrafficControl, false, "a filter on wan", None);
    let down = reason(About::Down, false, "wan is down", Some("ip link set dev wan up"));
    let other = Standing {
        interface: "wan".into(),
        reasons: vec![drop, filter, down],
        notes: vec![reason(About::Queues, false, "word ".repeat(30).trim_end(), None)],
        ..kept.clone()
    };
    vec![examination(kept), examination(other)]
}

/// What is so for all is said once.
#[test]
fn for_people() {
    let said = text(&both());
    assert_eq!(
        said,
        "Interface  Tier    In  Out  Kept by
─────────────────────────────────────────────────────────────
lan        kernel  no  no   netfilter
wan        kernel  no  no   netfilter, traffic_control, down

0 of 2 can be accelerated as they are

all interfaces
- kept in the kernel: table inet fw, chain forward (filter at forward): policy drop
  packets that we forward would skip it

wan
- kept in the kernel: a filter on wan
  packets that we forward would skip it
- kept in the kernel: wan is down
  packets that we forward would skip it
  $ ip link set dev wan up
- note: word word word word word word word word word word word word word word word word word word
  word word word word word word word word word word word word
  packets that we forward would skip it
"
    );
    assert!(said.lines().all(|line| line.chars().count() <= WIDTH), "{said}");
}

/// The paragraph about veth, for each of ten veths: what interfaces share is said once, with their names.
#[test]
fn what_some_interfaces_share_is_said_once() {
    let veth = |name: &str| {
        let own = format!("{name} has one receive queue");
        Standing {
            notes: vec![reason(About::Queues, false, &own, None)],
            driver: DriverStanding {
                auto: vec![reason(About::Device, false, "a software device (veth)", None)],
                ..DriverStanding::default()
            },
            ..standing(name)
        }
    };
    let said =
        text(&[examination(veth("lan")), examination(veth("wan")), examination(standing("nic"))]);
    let (_, findings) = said.split_once("as they are\n").expect("behind the table");
    assert_eq!(
        findings,
        "
lan
- note: lan has one receive queue
  packets that we forward would skip it

lan, wan
- not in the driver by auto: a software device (veth)
  packets that we forward would skip it

wan
- note: wan has one receive queue
  packets that we forward would skip it
"
    );
}

#[test]
fn for_machines() {
    let said = json(&both());
    let read: serde_json::Value = serde_json::from_str(&said).expect("it is JSON");
    let wan = &read[1];
    assert_eq!((&wan["interface"], &wan["tier"]), (&"wan".into(), &"kernel".into()));
    assert_eq!((&wan["is_ingress"], &wan["is_egress"]), (&false.into(), &false.into()));
    let filter = &wan["reasons"][1];
    assert_eq!(filter["about"], "traffic_control");
    assert_eq!(filter["concerns"], "both");
    assert_eq!(filter["is_everywhere"], false);
    assert_eq!(filter["what"], "a filter on wan");
    assert!(filter["command"].is_null() && wan["bypassed"].as_array().is_some_and(Vec::is_empty));
    assert!(wan.get("packet_sockets").is_none());
}

#[test]
fn without_interfaces_it_says_so() {
    assert_eq!(text(&[]), "this network namespace has no Ethernet interface\n");
    assert_eq!(json(&[]), "[]\n");
}

/// A table of 25 lines is no part of an answer about acceleration.
#[test]
fn packet_sockets_are_measured_only_where_that_is_asked_for() {
    let options = |names: &[&str], capture| DoctorOptions {
        interfaces: names.iter().map(|name| (*name).into()).collect(),
        bypass: vec![],
        capture,
        json: false,
        firewall: false,
        exact_counters: false,
    };
    for (names, capture, measured) in [
        (&[][..], false, 0),
        (&["lan", "wan"], false, 0),
        (&[], true, 1),
        (&["lan", "wan"], true, 2),
    ] {
        assert_eq!(options(names, capture).measured(2), measured, "{names:?} {capture}");
    }
}
