//! A daemon of several workers between memory ports of four queues: each worker forwards, no flow is
//! reordered, and every packet is accounted for. Needs neither root nor as many cores.

use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use manylane_api::{CopyStatus, PortState, PortStatus, SetError, WorkerState};
use manylane_io::port::pcap::Capture;
use manylane_router::config::{Config, Environment};
use manylane_router::control::Daemon;

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

/// One queue, three workers: buckets move by the operator and by load, ports are steered otherwise and back,
/// workers are paused. Then the daemon stops in the middle of it, with packets between its workers.
#[test]
fn one_queue_feeds_all_workers_whatever_is_steered() {
    let environment = Environment::of_this_thread();
    let core = environment.cores[0].to_string();
    for (packets, rounds) in [(60_000, u32::MAX), (u64::from(u32::MAX), 40)] {
        let text = config(&[core.as_str(); 3].join(", "), "[1]");
        let text = text.replace("queues = 4", "queues = 1");
        let text = text.replace(&format!("packets = {PACKETS}"), &format!("packets = {packets}"));
        let config = Config::parse(&text, "memory.toml", &environment);
        let config = config.unwrap_or_else(|error| panic!("{error}\n{text}"));
        let daemon = Daemon::start(config).unwrap_or_else(|error| panic!("{error}"));
        let (source, far_ends) = (daemon.source(), daemon.far_ends());
        let set = |key: &str, value: &str| {
            let set = source.set(key, value);
            assert!(set.is_ok(), "{key} = {value}: {set:?}");
        };
        let ended = || {
            let drops = source.drops();
            let lost =
                drops.iter().filter(|drop| ["backlog_full", "flow_limit"].contains(&&*drop.reason));
            let arrived: u64 =
                far_ends.iter().map(|(_, far_end)| far_end.report().total.received).sum();
            arrived + lost.map(|drop| drop.total).sum::<u64>()
        };
        let begin = Instant::now();
        let mut round = 0;
        while ended() < 2 * packets && round < rounds && begin.elapsed() < Duration::from_secs(60) {
            let worker = (round % 3).to_string();
            for bucket in (round % 7..256).step_by(7) {
                set(&format!("port.west.bucket.{bucket}"), &worker);
                set(&format!("port.east.bucket.{bucket}"), &worker);
            }
            let there_and_back = |key: &str, values: [&str; 2]| {
                set(key, values[0]);
                let before = ended();
                wait_for(begin, || ended() >= 2 * packets || ended() >= before + 100);
                set(key, values[1]);
            };
            match round % 4 {
                1 => there_and_back("steering.rebalance", ["true", "false"]),
                2 => there_and_back("port.west.steering", ["queue", "flow"]),
                3 => there_and_back("worker.2.paused", ["true", "false"]),
                _ => set("steering.rebalance", "true"),
            }
            round += 1;
        }
        let pairs = source.steering().pairs;
        let handed: u64 = pairs.iter().map(|pair| pair.handed).sum();
        let ledger = daemon.stop();
        assert!(handed > 1000 && pairs.iter().all(|pair| pair.from == 1), "{pairs:?}");
        assert_eq!((ledger.missing, ledger.frames.missing), (0, 0), "{ledger:#?}");
        assert!(ledger.per_port.iter().all(|port| port.missing == 0), "{ledger:#?}");
        if rounds == u32::MAX {
            assert_eq!(ended(), 2 * packets, "{ledger:#?}");
        }
        for (port, far_end) in far_ends {
            let report = far_end.report();
            assert_eq!((report.total.reordered, report.total.duplicated), (0, 0), "{port}");
            assert_eq!((report.corrupted, report.unexpected), (0, 0), "{port}");
        }
    }
}

/// One worker has all buckets and is the only busy one; at first all of them stay there. When load is looked
/// at, buckets leave this worker, and others forward their packets.
#[test]
fn load_is_shared_when_that_is_wanted() {
    const ENOUGH: u64 = 20_000_000;
    let environment = Environment::of_this_thread();
    let core = environment.cores[0].to_string();
    let text = config(&[core.as_str(); 3].join(", "), "[1]").replace("queues = 4", "queues = 1");
    let text = text.replace(&format!("packets = {PACKETS}"), &format!("packets = {ENOUGH}"));
    let config = Config::parse(&text, "memory.toml", &environment);
    let config = config.unwrap_or_else(|error| panic!("{error}\n{text}"));
    let daemon = Daemon::start(config).unwrap_or_else(|error| panic!("{error}"));
    let (source, far_ends) = (daemon.source(), daemon.far_ends());
    for port in ["west", "east"] {
        assert!(source.set(&format!("port.{port}.buckets"), "0-255=1").is_ok());
    }
    let received = || source.ports().iter().map(|port| port.received).sum::<u64>();
    // Until `done`, or all packets have come.
    let until = |done: &dyn Fn() -> bool| {
        while !done() && received() < 2 * ENOUGH {
            thread::yield_now();
        }
        assert!(done(), "{:?}", source.steering());
    };
    let elsewhere = || {
        let ports = source.steering().ports;
        let buckets = ports[..2].iter().flat_map(|port| &port.buckets);
        buckets.filter(|bucket| bucket.worker != 1).count() as u64
    };
    let begin = received();
    until(&|| received() > begin + 100_000);
    assert_eq!((source.steering().rebalanced, elsewhere()), (0, 0));
    assert!(source.set("steering.rebalance", "true").is_ok());
    until(&|| source.steering().rebalanced > 0);
    assert!(elsewhere() > 0, "{:?}", source.steering());
    let handed =
        || source.steering().pairs.iter().map(|pair| pair.handed - pair.backlog).sum::<u64>();
    let before = handed();
    until(&|| handed() > before + 100);
    let ledger = daemon.stop();
    assert_eq!((ledger.missing, ledger.frames.missing), (0, 0), "{ledger:#?}");
    for (port, far_end) in far_ends {
        let total = far_end.report().total;
        assert_eq!((total.reordered, total.duplicated), (0, 0), "{port}");
    }
}

/// Until that is so, or until a test has run too long and is about to fail.
fn wait_for(begin: Instant, is_so: impl Fn() -> bool) {
    while !is_so() && begin.elapsed() < Duration::from_secs(60) {
        thread::yield_now();
    }
}

/// One worker at the start, up to three: they come and go while both generators send, and end as they were when
/// the daemon stops. Buckets move meanwhile.
#[test]
fn workers_come_and_go_while_packets_pass() {
    const PACKETS: u64 = 200_000;
    const ENDS: [&str; 4] = ["backlog_full", "flow_limit", "worker_removed", "hold_overflow"];
    let environment = Environment::of_this_thread();
    let core = environment.cores[0].to_string();
    let text = config(&[core.as_str(); 3].join(", "), "[0]").replace("queues = 4", "queues = 1");
    let text = text.replace("[workers]\n", "[workers]\ncount = 1\n").replace("40000", "200000");
    let config = Config::parse(
        &text.replace("count = 1\n", "count = 1\nmax = 3\n"),
        "memory.toml",
        &environment,
    );
    let daemon = Daemon::start(config.unwrap_or_else(|error| panic!("{error}\n{text}")));
    let daemon = daemon.unwrap_or_else(|error| panic!("{error}"));
    let (source, far_ends) = (daemon.source(), daemon.far_ends());
    let states = || -> Vec<_> { source.workers().iter().map(|worker| worker.state).collect() };
    assert_eq!(states(), [WorkerState::Running, WorkerState::Stopped, WorkerState::Stopped]);
    assert!(source.set("worker.2.paused", "true").is_err(), "it does not run");
    let ended = || {
        let drops = source.drops().into_iter().filter(|drop| ENDS.contains(&&*drop.reason));
        let arrived = far_ends.iter().map(|(_, far_end)| far_end.report().total.received);
        arrived.sum::<u64>() + drops.map(|drop| drop.total).sum::<u64>()
    };
    let begin = Instant::now();
    let (mut round, mut added, mut removed) = (0_usize, 0, 0);
    while ended() < 2 * PACKETS && begin.elapsed() < Duration::from_secs(60) {
        let before = states().iter().filter(|&&state| state == WorkerState::Running).count();
        let wanted = [3, 1, 2, 3, 2, 1][round % 6];
        // Refused while one of them is still leaving.
        if source.set("workers", &wanted.to_string()).is_ok() {
            (added, removed) =
                (added + usize::from(wanted > before), removed + usize::from(wanted < before));
            round += 1;
        }
        for bucket in (round % 7..256).step_by(7) {
            let worker = (round % 3).to_string();
            // Refused for a worker that does not run.
            let _ = source.set(&format!("port.west.bucket.{bucket}"), &worker);
        }
        let before = ended();
        wait_for(begin, || ended() >= 2 * PACKETS || ended() >= before + 100);
    }
    // At least; a busy machine does few before the packets end.
    assert!(added > 10 && removed > 10, "{added} added, {removed} removed");
    for (worker, lists) in source.workers().into_iter().zip(source.frames().lists) {
        assert!(worker.received > 1000, "{worker:?}");
        let is_home = worker.state != WorkerState::Stopped || (lists.level, worker.held) == (0, 0);
        assert!(is_home, "{worker:?} {lists:?}");
    }
    let ledger = daemon.stop();
    assert_eq!((ledger.missing, ledger.frames.missing), (0, 0), "{ledger:#?}");
    assert!(ledger.per_port.iter().all(|port| port.missing == 0), "{ledger:#?}");
    assert_eq!(ended(), 2 * PACKETS, "{ledger:#?}");
    for (port, far_end) in far_ends {
        let report = far_end.report();
        assert_eq!((report.total.reordered, report.total.duplicated), (0, 0), "{port}");
        assert_eq!((report.corrupted, report.unexpected), (0, 0), "{port}");
    }
}

/// The egress port of all packets is removed, and then one of the two ingress ports, by three workers; two of the
/// workers are stopped and started meanwhile. Each packet inside leaves or is dropped for a reason, and the other
/// generator continues.
#[test]
fn ports_go_while_packets_pass() {
    let environment = Environment::of_this_thread();
    let core = environment.cores[0].to_string();
    for (first, second) in [("north", "east"), ("east", "north")] {
        let text =
            config(&[core.as_str(); 3].join(", "), "[0]").replace("queues = 4", "queues = 1");
        let text = text.replace("40000", &u32::MAX.to_string());
        let config = Config::parse(&text, "memory.toml", &environment);
        let daemon = Daemon::start(config.unwrap_or_else(|error| panic!("{error}\n{text}")));
        let daemon = daemon.unwrap_or_else(|error| panic!("{error}"));
        let (source, far_ends) = (daemon.source(), daemon.far_ends());
        let begin = Instant::now();
        let is_late = || begin.elapsed() >= Duration::from_secs(60);
        let port = |name: &str| {
            source.ports().into_iter().find(|port| port.name == name).expect("it stays shown")
        };
        let refused = |name: &str| match source.remove_port(name) {
            Err(SetError::BadValue(error) | SetError::UnknownKey(error)) => error.error,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused("south"), "port `south` does not exist");
        for name in [first, second] {
            let before = port(name).received + port(name).transmitted;
            let moved = || port(name).received + port(name).transmitted;
            while moved() < before + 5000 && !is_late() {
                thread::yield_now();
            }
            source.set("workers", "1").expect("the others have no queue");
            let leaves = source.remove_port(name).expect("two others are there");
            assert_eq!((leaves.state, leaves.link_up), (PortState::Draining, false));
            while port(name).state != PortState::Removed && !is_late() {
                thread::yield_now();
            }
            assert_eq!(refused(name), format!("`{name}` cannot be removed: it was removed"));
            assert!(source.routes().iter().all(|route| route.port.as_deref() != Some(name)));
            assert!(source.neighbours().iter().all(|neighbour| neighbour.port != name));
            let stays = port(name);
            let west = port("west").received;
            while port("west").received < west + 5000 && !is_late() {
                // Refused while one of them is still leaving.
                let _ = source.set("workers", "3");
                thread::yield_now();
            }
            assert!(port("west").received >= west + 5000, "the others go on");
            let now = port(name);
            assert_eq!((now.received, now.transmitted), (stays.received, stays.transmitted));
        }
        assert_eq!(refused("west"), "`west` cannot be removed: no port would be left");
        assert!(source.set("port.east.steering", "queue").is_err(), "it is not there");
        let ledger = daemon.stop();
        assert_eq!((ledger.missing, ledger.frames.missing), (0, 0), "{ledger:#?}");
        assert!(ledger.per_port.iter().all(|port| port.missing == 0), "{ledger:#?}");
        assert_eq!(ledger.in_flight, 0);
        let known = ["no_route", "port_down", "neighbour_failed", "worker_removed", "backlog_full"];
        let known: Vec<&str> =
            [&known[..], &["flow_limit", "shutdown", "hold_full", "queue_moved"]].concat();
        assert!(ledger.dropped.keys().all(|reason| known.contains(&&**reason)), "{ledger:#?}");
        assert!(ledger.dropped["no_route"] > 1000, "{ledger:#?}");
        for (port, far_end) in far_ends {
            let report = far_end.report();
            assert_eq!((report.total.reordered, report.total.duplicated), (0, 0), "{port}");
        }
    }
}

/// Faults at every port, both ways, and copies of what leaves: with two workers, and so few frames that
/// what is held is bounded by them. All counters agree.
#[test]
fn through_faults_and_copies_every_packet_and_frame_is_accounted_for() {
    let environment = Environment::of_this_thread();
    let core = environment.cores[0].to_string();
    let file = env::temp_dir().join(format!("manylane-memory-{}.pcapng", process::id()));
    let fault = |direction, seed| {
        format!(
            "[port.fault.{direction}]\nseed = {seed}\ndrop = 0.01\nduplicate = 0.02\ncorrupt = 0.01\n\
             delay = 0.1\ndelay_us = [10, 3000]\nreorder = 0.1\nreorder_us = 1000\n"
        )
    };
    let faults = [fault("receive", 1), fault("transmit", 2)].concat();
    let tee = format!("[port.tee]\nwrite = {file:?}\ndirection = \"transmit\"\n");
    let text = config(&[core.as_str(); 2].join(", "), "[0, 1, 0, 1]");
    let text = text.replace("[[route]]\nprefix = \"10", &format!("{tee}[[route]]\nprefix = \"10"));
    let text =
        text.replace("[[port]]\nname = \"east\"", &format!("{faults}[[port]]\nname = \"east\""));
    let text = text.replace("[port.tee]", &format!("{faults}[port.tee]"));
    let text = format!("[frames]\ncount = 8192\n{text}");
    let config = Config::parse(&text, "memory.toml", &environment);
    let config = config.unwrap_or_else(|error| panic!("{error}\n{text}"));
    let daemon = Daemon::start(config).unwrap_or_else(|error| panic!("{error}"));
    let source = daemon.source();
    let far_ends = daemon.far_ends();
    // Until both generators are done, and nothing is late.
    let entered = |port: &PortStatus| {
        let faults = port.faults.unwrap_or_default();
        (port.received + faults.dropped).wrapping_sub(faults.duplicated)
    };
    let is_done = || {
        let ports = source.ports();
        let late = source.ledger().frames.holders.into_iter();
        let mut late = late.filter(|place| place.holder.ends_with("late on purpose"));
        ports[..2].iter().all(|port| entered(port) >= PACKETS)
            && late.all(|place| place.frames == 0)
    };
    let begin = Instant::now();
    while !is_done() && begin.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(5)); // Counters are no event.
    }
    let ledger = daemon.stop();
    assert_eq!((ledger.missing, ledger.frames.missing), (0, 0), "{ledger:#?}");
    assert!(ledger.per_port.iter().all(|port| port.missing == 0), "{ledger:#?}");

    let [west, east, north] = &source.ports()[..] else { panic!("there are three") };
    // No packet returns to west: all of its faults are of received packets.
    assert_eq!((entered(west), entered(east)), (PACKETS, PACKETS), "{west:?} {east:?}");
    assert_eq!((east.faults, west.copies), (None, None));
    for port in [west, north] {
        let faults = port.faults.expect("it has some");
        let counts = [faults.dropped, faults.duplicated, faults.delayed, faults.reordered];
        assert!(counts.iter().all(|&count| count > 0) && faults.corrupted > 0, "{faults:?}");
    }
    // On north's wire is what its faults have left: all of it is copied, and seen by its hosts.
    let copies = north.copies.expect("it has some");
    let (_, hosts) = far_ends.iter().find(|(port, _)| port == "north").expect("it is in memory");
    let report = hosts.report();
    let whole = report.total.received + report.total.duplicated;
    let others = report.corrupted + report.unexpected + report.heard;
    let asked = report.answers_sent + report.answers_lost;
    // A slow disk may refuse some.
    let CopyStatus { copied, refused, no_frame, unfit } = copies;
    assert_eq!(copied + refused, whole + others + asked, "{copies:?} {report:?}");
    assert_eq!((no_frame, unfit), (0, 0));
    let capture = Capture::read(&file, 1 << 30).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(capture.packets() as u64, copied, "{north:?}");
    fs::remove_file(&file).expect("it is ours");
}

/// Out by a VLAN of one end of a wire and in by that of the other, until the hop limit has run out: a
/// tag off and a tag on for each hop, and neighbours found through them.
#[test]
fn a_wire_carries_the_vlans_of_its_ends() {
    const LOOPS: u64 = 200;

    let environment = Environment::of_this_thread();
    let core = environment.cores[0];
    let end = |name: &str, more: &str| {
        format!(
            "[[port]]\nname = \"{name}\"\ndriver = \"memory\"\n{more}\
             [[port.vlan]]\nid = 9\naddresses = [\"2001:db8:9:{name}::1/64\"]\n\
             [[port.vlan]]\nid = 5\ntag = \"802.1ad\"\ninner = 7\n\
             addresses = [\"2001:db8:5:{name}::1/64\", \"fe80::{name}/64\"]\n"
        )
    };
    let text = format!(
        "[workers]\ncores = [{core}, {core}]\n[neighbour]\nhold_per_entry = 1024\n{}{}\
         [[port]]\nname = \"source\"\ndriver = \"memory\"\naddresses = [\"2001:db8:2::fe/64\"]\n\
         [port.generate]\nsource = \"2001:db8:2::1\"\ndestination = \"2001:db8:3::/48\"\n\
         flows = 16\npackets = {LOOPS}\n\
         [[route]]\nprefix = \"2001:db8:3::/48\"\nvia = \"fe80::b\"\nport = \"a.5.7\"\n",
        end("a", "peer = \"b\"\n"),
        end("b", ""),
    );
    let config = Config::parse(&text, "memory.toml", &environment);
    let config = config.unwrap_or_else(|error| panic!("{error}\n{text}"));
    let daemon = Daemon::start(config).unwrap_or_else(|error| panic!("{error}"));
    let source = daemon.source();
    let ended = || source.ledger().dropped.get("hop_limit_exceeded").copied().unwrap_or(0);
    let begin = Instant::now();
    while ended() < LOOPS && begin.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(5)); // Counters are no event.
    }
    let ledger = daemon.stop();
    assert_eq!(ended(), LOOPS, "{ledger:#?}");
    assert!(ledger.per_port.iter().all(|port| port.missing == 0), "{ledger:#?}");
    let ports = source.ports();
    let received = |name| ports.iter().find(|port| port.name == name).map(|port| port.received);
    // Hop limits 63 to 1, and what neighbours have to say.
    assert!(received("b.5.7").is_some_and(|packets| packets > 63 * LOOPS), "{ports:#?}");
    assert_eq!((received("b"), received("b.9"), received("a.9")), (Some(0), Some(0), Some(0)));
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
