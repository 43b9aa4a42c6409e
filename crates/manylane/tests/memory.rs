//! A daemon of several workers between memory ports of four queues: each worker forwards, no flow is
//! reordered, and every packet is accounted for. Needs neither root nor as many cores.

use std::thread;
use std::time::{Duration, Instant};

use manylane::config::{Config, Environment};
use manylane::control::Daemon;

/// Sent by each of the two generators, in flows that spread over all queues.
const PACKETS: u64 = 40_000;

#[test]
fn four_workers_with_a_queue_each_forward_at_once() {
    forward(4, "[0, 1, 2, 3]");
}

#[test]
fn two_workers_with_two_queues_each_forward_at_once() {
    forward(2, "[0, 1, 0, 1]");
}

#[test]
fn a_worker_without_a_queue_does_not_disturb() {
    forward(2, "[1, 1, 1, 1]");
}

fn forward(workers: usize, owners: &str) {
    let environment = Environment::of_this_thread();
    let core = environment.cores[0].to_string();
    let cores = vec![core.as_str(); workers].join(", ");
    let text = config(&cores, owners);
    let config = Config::parse(&text, "memory.toml", &environment);
    let config = config.unwrap_or_else(|error| panic!("{error}"));
    let daemon = Daemon::start(config).unwrap_or_else(|error| panic!("{error}"));

    let far_ends = daemon.far_ends();
    let arrived =
        || far_ends.iter().map(|(_, far_end)| far_end.report().total.received).sum::<u64>();
    let begin = Instant::now();
    while arrived() < 2 * PACKETS && begin.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(5)); // Counters are no event.
    }
    let received: Vec<u64> =
        daemon.source().workers().into_iter().map(|worker| worker.received).collect();
    let ledger = daemon.stop();

    assert_eq!(arrived(), 2 * PACKETS, "{ledger:#?}");
    for (port, far_end) in far_ends {
        let report = far_end.report();
        assert_eq!((report.total.reordered, report.total.duplicated), (0, 0), "{port}");
        assert_eq!((report.corrupted, report.unexpected), (0, 0), "{port}");
    }
    for (worker, received) in received.into_iter().enumerate() {
        let is_owner = owners.contains(&worker.to_string());
        // A flow's queue is drawn: no queue has all, and none has next to nothing.
        assert_eq!(received > PACKETS / 8, is_owner, "worker {worker}: {received}");
    }
    assert_eq!((ledger.missing, ledger.frames.missing), (0, 0), "{ledger:#?}");
    assert!(ledger.per_port.iter().all(|port| port.missing == 0), "{ledger:#?}");
}

fn config(cores: &str, owners: &str) -> String {
    let port = |name: &str, v4: &str, v6: &str, generate: &str| {
        format!(
            "[[port]]\nname = \"{name}\"\ndriver = \"memory\"\nqueues = 4\nworkers = {owners}\n\
             addresses = [\"{v4}\", \"{v6}\"]\n{generate}"
        )
    };
    let generate = |source: &str, destination: &str| {
        format!(
            "[port.generate]\nsource = \"{source}\"\ndestination = \"{destination}\"\n\
             flows = 64\npackets = {PACKETS}\n"
        )
    };
    let to_v4 = generate("10.1.0.1", "10.3.0.0/16");
    let to_v6 = generate("2001:db8:2::1", "2001:db8:3::/48");
    let first = port("west", "10.1.0.254/24", "2001:db8:1::fe/64", &to_v4);
    let second = port("east", "10.2.0.254/24", "2001:db8:2::fe/64", &to_v6);
    let third = port("north", "10.9.0.254/24", "2001:db8:9::fe/64", "");
    format!(
        "[workers]\ncores = [{cores}]\n\
         [neighbour]\nhold_per_entry = 65536\nhold_per_worker = 65536\n\
         {first}{second}{third}\
         [[route]]\nprefix = \"10.3.0.0/16\"\nvia = \"10.9.0.1\"\n\
         [[route]]\nprefix = \"2001:db8:3::/48\"\nvia = \"2001:db8:9::1\"\n"
    )
}
