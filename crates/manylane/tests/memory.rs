//! A whole daemon on memory ports: no device, no privilege.

use std::time::{Duration, Instant};

use manylane::config::{Config, Environment};
use manylane::control::Daemon;

/// Four receive queues, owned by two workers in turn; IPv4 and IPv6. Each flow stays on its queue.
#[test]
fn two_workers_forward_four_queues_each_without_loss_or_reordering() {
    let far_ends = forward("queues = 4\nworkers = [0, 1, 0, 1]");
    assert!(far_ends.iter().all(|&moved| moved > PACKETS / 8), "by worker: {far_ends:?}");
}

/// N to 1: all four queues of a port belong to the second worker.
#[test]
fn one_worker_may_own_every_queue() {
    let moved = forward("queues = 4\nworkers = [1, 1, 1, 1]");
    assert!(moved[1] > PACKETS, "by worker: {moved:?}");
}

const PACKETS: u64 = 20_000;

/// Forwards both families from one port's hosts to another's, through four queues. Returns how many
/// frames each worker received.
fn forward(queues: &str) -> Vec<u64> {
    let text = format!(
        r#"
        [workers]
        cores = [0, 0]
        [neighbour]                 # so that nothing is lost while the next hops are asked for
        hold_per_entry = 20000
        hold_per_worker = 60000
        {four}
        name = "west4"
        addresses = ["10.1.0.254/24"]
        {queues}
        [port.generate]
        source = "10.1.0.1"
        destination = "10.2.0.0/24"
        packets = {PACKETS}
        packets_per_second = 50000
        {four}
        name = "west6"
        addresses = ["2001:db8:1::fe/64"]
        {queues}
        [port.generate]
        source = "2001:db8:1::1"
        destination = "2001:db8:2::/120"
        packets = {PACKETS}
        packets_per_second = 50000
        {four}
        name = "east"
        addresses = ["10.3.0.254/24", "2001:db8:3::fe/64"]
        [[route]]
        prefix = "10.2.0.0/24"
        via = "10.3.0.1"
        [[route]]
        prefix = "2001:db8:2::/64"
        via = "2001:db8:3::1"
        "#,
        four = "[[port]]\ndriver = \"memory\""
    );
    let environment = Environment { cores: vec![0], ..Environment::of_this_thread() };
    let config = Config::parse(&text, "memory.toml", &environment).expect("it is valid");
    let daemon = Daemon::start(config).expect("memory can be had");
    let source = daemon.source();
    let (_, east) = daemon.far_ends().pop().expect("the last port is `east`");

    // The hosts say nothing when they are done; a minute is for a machine that does something else.
    let begun = Instant::now();
    while east.report().total.received < 2 * PACKETS && begun.elapsed() < Duration::from_secs(60) {
        std::thread::yield_now();
    }
    let ledger = daemon.stop();
    let report = east.report();
    assert_eq!((ledger.missing, ledger.frames.missing), (0, 0), "{ledger:?}");
    assert_eq!(report.total.received, 2 * PACKETS, "{ledger:?}");
    assert_eq!((report.total.reordered, report.total.duplicated, report.corrupted), (0, 0, 0));
    source.workers().iter().map(|worker| worker.received).collect()
}
