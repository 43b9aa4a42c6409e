//! What hosts say to each other through a router whose kernel is relieved of it: as through the kernel alone, and
//! most of it by the fast way. When the accelerator stops, the kernel takes over. Needs root.

use manylane_accelerate::accelerator::{Accelerator, Options};
use manylane_api::accelerate::AcceleratedLedger;
use manylane_lab::{
    CLIENT_V4, CLIENT_V6, LAN_V4, LAN_V6, Lab, LabOptions, SERVER_V4, SERVER_V6, WAN_V4, WAN_V6,
    ping, scenario, tcp_transfer, udp_stream, until,
};

#[test]
fn hosts_talk_through_an_accelerated_router_as_through_the_kernel() {
    let options = LabOptions { kernel_router: true, ..LabOptions::default() };
    let Some(lab) = scenario::lab(options) else { return };
    let Some(accelerator) = accelerate(&lab) else { return };
    let source = accelerator.source();
    for port in source.ports() {
        assert!(port.ingress && port.egress && port.attached, "{port:#?}");
        assert_eq!((port.tier.as_str(), port.reasons.as_slice()), ("ingress", &[][..]));
    }
    assert!(source.daemon().lease.holds, "{:#?}", source.daemon());

    all_traffic(&lab);
    let ledger = source.ledger();
    println!("{ledger:#?}");
    println!("{:#?}", source.mirror().expect("the thread answers"));
    assert_balanced(&ledger);
    let passed: u64 = ledger.passed.values().sum();
    assert!(ledger.forwarded > 5 * passed, "most went the fast way: {ledger:#?}");
    // Nothing is different, and nothing needs to be read again.
    assert_eq!(source.diff().expect("the thread answers"), [""; 0]);

    let why = |from: std::net::IpAddr, to, interface: &str| {
        let interface = interface.to_owned();
        let question = manylane_api::accelerate::WhyQuestion {
            source: from,
            destination: to,
            interface,
            transport: None,
        };
        source.why(&question).expect("it is a good question")
    };
    for (from, to) in [(CLIENT_V4, SERVER_V4), (CLIENT_V6, SERVER_V6)] {
        let answer = why(from, to, "lan");
        assert!(answer.forwarded, "{answer:#?}");
        assert_eq!(answer.egress.as_deref(), Some("wan"));
    }
    let answer = why(CLIENT_V4, WAN_V4, "lan");
    assert_eq!((answer.forwarded, answer.verdict.as_str()), (false, "local"), "{answer:#?}");
    let routes = source.routes().expect("the thread answers");
    assert!(routes.iter().any(|route| route.prefix == "10.2.0.0/24"), "{routes:#?}");
    let neighbours = source.neighbours().expect("the thread answers");
    assert!(neighbours.iter().any(|one| one.address == "10.2.0.1" && one.used), "{neighbours:#?}");

    let last = lab.router.run(move || accelerator.stop());
    assert_balanced(&last);
    all_traffic(&lab);
}

/// What is for the router itself is answered by its kernel.
#[test]
fn the_routers_own_addresses_answer() {
    let options = LabOptions { kernel_router: true, ..LabOptions::default() };
    let Some(lab) = scenario::lab(options) else { return };
    let Some(accelerator) = accelerate(&lab) else { return };
    for address in [LAN_V4, LAN_V6, WAN_V4, WAN_V6] {
        scenario::all_answered(&lab.client, address, 56);
    }
    let ledger = lab.router.run(move || accelerator.stop());
    assert_eq!(ledger.forwarded, 0, "{ledger:#?}");
    assert!(ledger.passed["local"] >= 12, "{ledger:#?}");
}

#[test]
fn a_second_one_is_refused_by_name_and_the_first_goes_on() {
    let options = LabOptions { kernel_router: true, ..LabOptions::default() };
    let Some(lab) = scenario::lab(options) else { return };
    let Some(first) = accelerate(&lab) else { return };
    let second = lab.router.run(|| Accelerator::start(Options::new(["wan"])));
    let Err(error) = second else { panic!("it is taken") };
    let said = error.to_string();
    assert!(said.contains("(lan wan) accelerates in this network namespace already"), "{said}");
    // The kernel forwards the first packets, until it has resolved the hosts' addresses and the mirror has read them.
    until("the first accelerator forwards", || {
        let report = udp_stream(&lab.client, &lab.server, SERVER_V4, 1000, 100, 0);
        assert!(report.expect("the server is reachable").is_perfect());
        if first.source().ledger().forwarded > 0 { Ok(()) } else { Err("0 packets forwarded") }
    });
    lab.router.run(move || drop(first));
    let again = lab.router.run(|| Accelerator::start(Options::new(["wan"])));
    again.unwrap_or_else(|error| panic!("it is free: {error}"));
}

fn accelerate(lab: &Lab) -> Option<Accelerator> {
    match lab.router.run(|| Accelerator::start(Options::new(["lan", "wan"]))) {
        Ok(accelerator) => Some(accelerator),
        Err(error) if error.is_unavailable() => {
            scenario::skip(error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn all_traffic(lab: &Lab) {
    for (from, to) in [(&lab.client, [SERVER_V4, SERVER_V6]), (&lab.server, [CLIENT_V4, CLIENT_V6])]
    {
        for destination in to {
            for size in [0, 56, 1452, 3000] {
                let report = ping(from, destination, size, 3).expect("raw sockets are to be had");
                assert_eq!(report.received, 3, "{size} bytes to {destination}: {report:?}");
            }
        }
    }
    for destination in [SERVER_V4, SERVER_V6] {
        let report = udp_stream(&lab.client, &lab.server, destination, 5000, 1000, 0)
            .expect("the server is reachable");
        assert!(report.is_perfect(), "{destination}: {report:?}");
        let report = tcp_transfer(&lab.client, &lab.server, destination, 4 << 20)
            .expect("the server is reachable");
        assert!(report.is_intact(), "{destination}: {report:?}");
    }
}

/// What was forwarded was sent, and what was not has a reason.
fn assert_balanced(ledger: &AcceleratedLedger) {
    let passed: u64 = ledger.passed.values().sum();
    assert_eq!((ledger.missing, ledger.missing_bytes), (0, 0), "{ledger:#?}");
    assert_eq!(ledger.seen, ledger.forwarded + passed, "{ledger:#?}");
    assert_eq!((ledger.device_dropped, ledger.queue_dropped), (0, 0), "{ledger:#?}");
}
