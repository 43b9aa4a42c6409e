//! Links with one queue, and two workers: by flow both forward, whichever receives.

use std::sync::Mutex;
use std::{fs, thread};

use crate::scenario::Scenario;
use manylane_api::{
    PortState, PortStatus, PortSteeringStatus, SettingValue, SteeringStatus, WorkerState,
};
use manylane_frame::vocabulary::{PortId, WorkerId};
use manylane_frame::{Region, RegionConfig};
use manylane_io::affinity;
use manylane_io::port::Receiving;
use manylane_io::port::af_xdp::{AfXdp, AfXdpConfig, Umem};
use manylane_lab::scenario::{Running, all_answered, lab, skip};
use manylane_lab::{
    LabOptions, Losses, RouterOptions, SERVER_V4, SERVER_V6, TransferEnd, UdpStream, tcp_transfer,
    udp_stream,
};

const MANYLANE: &str = env!("CARGO_BIN_EXE_manylane");

fn options(driver: &'static str, steering: &'static str) -> Option<RouterOptions> {
    if affinity::cores().map_or(1, |cores| cores.len()) < 2 {
        skip("two workers want two cores");
        return None;
    }
    let more = "[steering]\nreceivers = [0, 1]\n".into();
    Some(RouterOptions {
        workers: 2,
        drivers: [driver; 2],
        steering,
        more,
        ..RouterOptions::default()
    })
}

/// Sends 1500 numbered datagrams to the server, of IPv4 or IPv6 by the flow's number. The datagrams that arrive are in
/// order. Returns how many did not arrive.
fn stream(scenario: &Scenario, flow: usize) -> u64 {
    let destination = [SERVER_V4, SERVER_V6][flow % 2];
    let (client, server) = (&scenario.lab.client, &scenario.lab.server);
    let report = udp_stream(client, server, destination, 1500, 500, 2000)
        .unwrap_or_else(|error| panic!("{destination}: {error}"));
    assert_eq!(report.damaged + report.duplicated + report.reordered, 0);
    report.sent - report.received
}

/// What one worker hands on the other forwards, and each flow arrives in order; buckets and queues move
/// meanwhile, and the server is forgotten.
fn both_forward_in_order(driver: &'static str, steering: &'static str, why: &str) {
    let Some(options) = options(driver, steering) else { return };
    let Some(scenario) = Scenario::start_with(LabOptions::default(), &options) else { return };
    for destination in [SERVER_V4, SERVER_V6] {
        all_answered(&scenario.lab.client, destination, 1000);
    }
    let source = scenario.source();
    let status = source.steering();
    let shown: Vec<_> = status.ports.iter().map(|port| (&*port.steering, &*port.why)).collect();
    assert_eq!(shown, [("flow", why); 2]);
    assert!(source.set("steering.reorder_sample", "1").is_ok());
    let before = scenario.losses();
    let missing = thread::scope(|scope| {
        let streams: Vec<_> = (0..8)
            .map(|flow| {
                let scenario = &scenario;
                scope.spawn(move || stream(scenario, flow))
            })
            .collect();
        let (mut round, mut queues, mut forgotten) = (0, 0, 0);
        let mut last = source.steering().ports[0].queues[0].worker;
        while !streams.iter().all(|stream| stream.is_finished()) {
            for bucket in 0..256 {
                let worker = ((bucket + round) / 3 % 2).to_string();
                for port in ["lan", "wan"] {
                    let key = format!("port.{port}.bucket.{bucket}");
                    assert!(source.set(&key, &worker).is_ok(), "{key} = {worker}");
                }
            }
            // Refused while the last move is under way.
            let owner = source.steering().ports[0].queues[0].worker;
            queues += u32::from(owner != last);
            last = owner;
            _ = source.set("port.lan.queue.0", &(1 - owner).to_string());
            // Queried again, while packets to it are held.
            let server = [SERVER_V4, SERVER_V6][round % 2].to_string();
            forgotten += u32::from(source.delete_neighbour("wan", &server).is_ok());
            round += 1;
        }
        assert!(round > 3 && queues > 3, "{round} rounds saw a queue move {queues} times");
        assert!(forgotten > 3, "{forgotten} times in {round} rounds");
        streams.into_iter().map(|stream| stream.join().expect("it does not panic")).sum::<u64>()
    });
    // What waits for a server that was forgotten is lost when its queue moves, when more wait than may, or when the
    // server of a loaded machine answers too late.
    let places = ["ledger queue_moved", "ledger hold_overflow", "ledger neighbour_failed"];
    let lost = Losses::account(missing, &places, &before, || scenario.losses());
    println!("{missing} missing: {lost:#?}");
    for destination in [SERVER_V4, SERVER_V6] {
        let (client, server) = (&scenario.lab.client, &scenario.lab.server);
        let report = tcp_transfer(client, server, destination, 8 << 20)
            .unwrap_or_else(|error| panic!("{destination}: {error}"));
        assert!(report.is_intact(), "{destination}: {report:?}");
    }
    for worker in source.workers() {
        assert!(worker.transmitted > 1000, "{worker:?}");
    }
    let status = source.steering();
    let handed: u64 = status.pairs.iter().map(|pair| pair.handed).sum();
    assert!(status.reorder_sampled > 10_000 && status.reordered == 0, "{status:?}");
    assert!(status.pairs.len() == 2 && handed > 2000, "{:?}", status.pairs);
    scenario.finish();
}

#[test]
fn both_workers_forward_what_af_xdp_receives() {
    both_forward_in_order("af_xdp", "", "1 queue for 2 workers");
}

/// A socket for each worker, and still by flow: each hands on to the other.
#[test]
fn both_workers_forward_what_packet_sockets_receive() {
    both_forward_in_order("af_packet", "flow", "as configured");
}

/// The second worker is removed and added while packets pass. Its receive queue goes to the first, and comes back.
#[test]
fn a_worker_goes_and_comes_in_order() {
    let Some(options) = options("af_xdp", "") else { return };
    let Some(scenario) = Scenario::start_with(LabOptions::default(), &options) else { return };
    for destination in [SERVER_V4, SERVER_V6] {
        all_answered(&scenario.lab.client, destination, 1000);
    }
    let source = scenario.source();
    let owners = || {
        let of_port = |port: &PortSteeringStatus| port.queues[0].worker;
        source.steering().ports.iter().map(of_port).collect::<Vec<_>>()
    };
    assert_eq!(owners(), [0, 1]);
    let state = || source.workers()[1].state;
    let before = scenario.losses();
    let missing = thread::scope(|scope| {
        let streams: Vec<_> = (0..8)
            .map(|flow| {
                let scenario = &scenario;
                scope.spawn(move || stream(scenario, flow))
            })
            .collect();
        let mut rounds = 0;
        let is_over = || streams.iter().all(|stream| stream.is_finished());
        let forwarded = || source.workers()[1].transmitted;
        while !is_over() {
            let before = forwarded();
            while forwarded() < before + 10 && !is_over() {
                thread::yield_now();
            }
            for (workers, becomes) in [("1", WorkerState::Stopped), ("2", WorkerState::Running)] {
                source
                    .set("workers", workers)
                    .unwrap_or_else(|error| panic!("{workers}: {error:?}"));
                while state() != becomes {
                    thread::yield_now();
                }
                if becomes == WorkerState::Stopped {
                    assert_eq!(owners(), [0, 0]);
                    assert_eq!(source.frames().lists[1].level, 0);
                }
            }
            rounds += 1;
        }
        assert!(rounds > 3, "only {rounds} rounds");
        streams.into_iter().map(|stream| stream.join().expect("it does not panic")).sum::<u64>()
    });
    assert_eq!(missing, 0, "{:#?}", scenario.losses().since(&before));
    while owners() != [0, 1] {
        thread::yield_now();
    }
    assert!(source.workers()[1].transmitted > 100, "{:?}", source.workers());
    scenario.finish();
}

/// A link is removed while the client sends by it; a generator's frames by the other still pass. The program is off
/// the device then, and its queue has no socket: it can be opened again. Of packet sockets none is left either.
#[test]
fn a_port_goes_and_others_go_on() {
    ["af_xdp", "af_packet"].into_iter().for_each(a_port_goes);
}

fn a_port_goes(driver: &'static str) {
    let Some(mut options) = options(driver, "") else { return };
    options.more += "[[port]]\nname = \"gen\"\ndriver = \"memory\"\nworkers = [0]\n\
                     addresses = [\"10.77.0.254/24\"]\n[port.generate]\nsource = \"10.77.0.1\"\n\
                     destination = \"10.2.0.1/32\"\nflows = 16\npackets_per_second = 20000\n";
    let Some(scenario) = Scenario::start_with(LabOptions::default(), &options) else { return };
    // Until the server's address is known, the generator's packets leave no place for others to wait.
    let sent = |port: PortStatus| port.name == "wan" && port.transmitted > 1000;
    while !scenario.source().ports().into_iter().any(sent) {
        thread::yield_now();
    }
    all_answered(&scenario.lab.client, SERVER_V4, 1000);
    // The generator may fill the ring from one worker to the other: the client's packets do not need it.
    let set = scenario.source().set("port.lan.steering", "queue");
    assert!(set.is_ok(), "{set:?}");
    // The router's packet sockets: both links have as many.
    let sockets = || -> Vec<String> {
        let text = scenario.lab.router.run(|| fs::read_to_string("/proc/thread-self/net/packet"));
        text.expect("proc is mounted").lines().skip(1).map(str::to_owned).collect()
    };
    let before = sockets().len();
    let source = scenario.source();
    let port = |name: &str| {
        source.ports().into_iter().find(|port| port.name == name).expect("it stays shown")
    };
    let before_it_goes = scenario.losses();
    let sends = Mutex::new(true);
    let missing = thread::scope(|scope| {
        let end = TransferEnd(&sends);
        let stream = scope.spawn(|| {
            let (client, server) = (&scenario.lab.client, &scenario.lab.server);
            let stream =
                UdpStream { destination: SERVER_V4, packets: 1 << 20, size: 500, rate: 2000 };
            stream.run(client, server, &|| *sends.lock().expect("nobody panics with the lock"))
        });
        let before = port("lan").received;
        while port("lan").received < before + 100 {
            thread::yield_now();
        }
        source.remove_port("lan").unwrap_or_else(|error| panic!("{error:?}"));
        while port("lan").state != PortState::Removed {
            thread::yield_now();
        }
        let (lan, wan) = (port("lan"), port("wan"));
        while port("wan").transmitted < wan.transmitted + 5000 {
            thread::yield_now();
        }
        assert_eq!(
            (port("lan").received, port("lan").transmitted),
            (lan.received, lan.transmitted)
        );
        let by_kernel = || scenario.losses().since(&before_it_goes).of(&[NO_ROUTER]);
        while by_kernel() == 0 {
            thread::yield_now();
        }
        drop(end);
        let report = stream.join().expect("it does not panic");
        let report = report.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(report.damaged + report.duplicated + report.reordered, 0);
        report.sent - report.received
    });
    // What its sockets had, and what the router's kernel had from then on, which forwards nothing.
    let places = ["lan lost_closed", NO_ROUTER];
    let lost = Losses::account(missing, &places, &before_it_goes, || scenario.losses());
    println!("{driver}: {missing} missing: {lost:#?}");
    assert_eq!(sockets().len(), before / 2, "{:#?}", sockets());
    let again = scenario.lab.router.run(|| {
        let region = RegionConfig { frames: 1024, frame_size: 2048 };
        let mut umem = Umem::new(Region::new(region).expect("2 MiB can be mapped"));
        let config = AfXdpConfig::default();
        let receiving = Receiving { owners: &[WorkerId(0)], elsewhere: &[None] };
        AfXdp::open(&mut umem, PortId(0), "lan", receiving, config).map(drop)
    });
    assert!(again.is_ok(), "{again:?}");
    let ledger = scenario.finish();
    assert_eq!(ledger.in_flight, 0, "{ledger:#?}");
    assert!(
        ledger.frames.holders.iter().all(|holder| holder.holder == "depot" || holder.frames == 0)
    );
}

/// What a kernel that does not forward counts for a packet that is not for it.
const NO_ROUTER: &str = "router Ip InAddrErrors";

/// `show steering`, and settings that change while packets pass.
#[test]
fn steering_is_shown_and_changed() {
    let Some(options) = options("af_xdp", "") else { return };
    let Some(lab) = lab(LabOptions::default()) else { return };
    let running = Running::start(&lab, MANYLANE, &options);
    let client = running.client();
    let steering = || client.ask::<SteeringStatus>("/v1/steering").expect("it answers");
    let set = |key: &str, value: &str| {
        let set = client.put::<manylane_api::Setting>(&format!("/v1/config/{key}"), value);
        set.map(|setting| setting.value).map_err(|error| error.to_string())
    };
    all_answered(&lab.client, SERVER_V4, 1000);
    assert_eq!(steering().ports[0].buckets.len(), 256);
    assert_eq!(set("port.lan.steering", "queue"), Ok(SettingValue::Word("queue".into())));
    all_answered(&lab.client, SERVER_V4, 1000);
    let by_queue = steering();
    assert_eq!(
        (by_queue.ports[0].steering.as_str(), by_queue.ports[0].buckets.len()),
        ("queue", 0)
    );
    let refused = set("worker.0.paused", "true").expect_err("it receives and forwards");
    assert!(refused.contains("set port.lan.steering to `flow` first"), "{refused}");
    assert_eq!(set("port.lan.steering", "flow"), Ok(SettingValue::Word("flow".into())));
    assert_eq!(set("worker.0.paused", "true"), Ok(SettingValue::Flag(true)));
    assert_eq!(set("port.wan.queue.0", "0"), Ok(SettingValue::Number(0)));
    all_answered(&lab.client, SERVER_V4, 1000);
    let paused = steering();
    let all_at_1 = |port: &manylane_api::PortSteeringStatus| {
        port.buckets.iter().all(|bucket| bucket.worker == 1)
    };
    assert!(paused.ports.iter().all(all_at_1), "{:?}", paused.ports);
    let handed = |status: &SteeringStatus| status.pairs[0].handed;
    all_answered(&lab.client, SERVER_V4, 1000);
    assert!(handed(&steering()) > handed(&paused));
    let (status, said) = running.terminate();
    assert!(status.success(), "{status}: {said}");
    assert!(said.contains("missing 0"), "{said}");
}
