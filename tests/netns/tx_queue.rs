//! Links with four queues each way, and two workers: each sends by a transmit queue of its own, on every port,
//! and so a flow leaves by one queue at a time, in order.
//!
//! A veth's transmit queue is its peer's receive queue. So the far end of the egress link is a sink with an AF_XDP
//! socket for each queue, which sees what was sent by which.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use crate::scenario::Scenario;
use manylane_api::SteeringStatus;
use manylane_frame::vocabulary::{PortId, WorkerId};
use manylane_frame::{Batch, Depot, Pool, Region, RegionConfig};
use manylane_io::affinity;
use manylane_io::interface::Interface;
use manylane_io::poll::poll;
use manylane_io::port::Receiving;
use manylane_io::port::af_xdp::{AfXdp, AfXdpConfig, Opened, Umem};
use manylane_lab::scenario::skip;
use manylane_lab::{Lab, LabOptions, RouterOptions, SERVER_V4, SERVER_V6, udp_stream};

const QUEUES: u32 = 4;

/// A router with two workers, which own the queues of the links to the client and to the server so.
fn start(steering: &'static str, owners: [&'static str; 2]) -> Option<Scenario> {
    if affinity::cores().map_or(1, |cores| cores.len()) < 2 {
        skip("two workers want two cores");
        return None;
    }
    let more = "[steering]\nreceivers = [0, 1]\n".into();
    let options = RouterOptions { workers: 2, steering, owners, more, ..RouterOptions::default() };
    let lab = LabOptions { queues: QUEUES, ..LabOptions::default() };
    let scenario = Scenario::start_with(lab, &options)?;
    scenario.warm_up(&[SERVER_V4, SERVER_V6]);
    Some(scenario)
}

/// By which queue of each port each worker sends, as it is shown.
fn exits(status: &SteeringStatus) -> Vec<Vec<Option<u16>>> {
    let exits = |port: &manylane_api::PortSteeringStatus| {
        assert!(port.transmit_queues.iter().map(|exit| exit.worker).eq(0..2), "{port:?}");
        port.transmit_queues.iter().map(|exit| exit.queue).collect()
    };
    status.ports.iter().map(exits).collect()
}

/// Worker 1 owns nothing of `wan`: it sends by the number of the first queue that it owns of `lan`.
#[test]
fn each_flow_leaves_by_the_queue_of_the_worker_that_received_it() {
    let Some(scenario) = start("queue", ["[0, 0, 1, 1]", "[0, 0, 0, 0]"]) else { return };
    let source = scenario.source();
    assert_eq!(exits(&source.steering()), [[Some(0), Some(2)]; 2]);
    let mut wire = Wire::new(&scenario);
    let sent_before: Vec<_> = source.workers().iter().map(|worker| worker.transmitted).collect();
    for _ in 0..ROUNDS {
        wire.send_burst();
        wire.receive_all();
    }
    wire.assert_in_order();
    for (flow, queues) in wire.queues() {
        assert_eq!(queues.len(), 1, "{flow:?} left by {queues:?}");
    }
    let by_queue = (0..QUEUES as usize)
        .map(|queue| wire.seen.iter().filter(|arrival| arrival.queue == queue).count() as u64);
    let by_queue: Vec<_> = by_queue.collect();
    assert!(by_queue[0] > 0 && by_queue[2] > 0 && by_queue[1] + by_queue[3] == 0, "{by_queue:?}");
    for worker in source.workers() {
        let number = usize::from(worker.worker);
        let sent = worker.transmitted - sent_before[number];
        assert!(sent >= by_queue[2 * number], "worker {number} sent {sent} of {by_queue:?}");
    }
    wire.close(&scenario);
    scenario.finish();
}

/// Worker 1 receives nothing at all: it has a queue by which no other worker sends. When flows move to another worker,
/// they leave by its queue from then on.
#[test]
fn a_flow_that_moves_leaves_by_one_queue_at_a_time() {
    let Some(scenario) = start("flow", ["[0, 0, 0, 0]"; 2]) else { return };
    let source = scenario.source();
    assert_eq!(exits(&source.steering()), [[Some(0), Some(1)]; 2]);
    let mut wire = Wire::new(&scenario);
    let mut settled = Vec::new();
    for round in 0..ROUNDS {
        let worker = round % 2;
        wire.send_burst();
        // While those are under way.
        for bucket in 0..256 {
            let key = format!("port.lan.bucket.{bucket}");
            assert!(source.set(&key, &worker.to_string()).is_ok(), "{key} = {worker}");
        }
        wire.send_burst();
        wire.receive_all();
        while source.steering().ports[0].buckets.iter().any(|bucket| bucket.held_by.is_some()) {
            thread::yield_now();
        }
        let begin = wire.seen.len();
        wire.send_burst();
        wire.receive_all();
        settled.push((worker, begin..wire.seen.len()));
    }
    wire.assert_in_order();
    for (worker, arrivals) in settled {
        assert!(wire.seen[arrivals].iter().all(|arrival| arrival.queue == worker));
    }
    for (flow, queues) in wire.queues() {
        assert!(queues.len() > 2, "{flow:?} has not moved");
        // Once in each round: so no packet of it left by the old queue when one had left by the new.
        assert!(queues.len() <= 1 + ROUNDS, "{flow:?} went to and fro between queues");
    }
    assert_eq!(exits(&source.steering()), [[Some(0), Some(1)]; 2]);
    wire.close(&scenario);
    scenario.finish();
}

/// A queue's frames leave before the queue is another worker's, which sends by another transmit queue. That
/// one stays its own, whatever it receives by.
#[test]
fn a_receive_queue_that_changes_hands_reorders_nothing() {
    let Some(scenario) = start("queue", ["[0, 1, 0, 1]"; 2]) else { return };
    let source = scenario.source();
    let shown = exits(&source.steering());
    assert_eq!(shown, [[Some(0), Some(1)]; 2]);
    let (mut moves, before) = (0, scenario.losses());
    thread::scope(|scope| {
        let streams = [SERVER_V4, SERVER_V6, SERVER_V4, SERVER_V6].map(|destination| {
            let (scenario, before) = (&scenario, &before);
            scope.spawn(move || {
                let (client, server) = (&scenario.lab.client, &scenario.lab.server);
                let report = udp_stream(client, server, destination, 2000, 300, 3000)
                    .unwrap_or_else(|error| panic!("{destination}: {error}"));
                assert_eq!(report.damaged + report.duplicated + report.reordered, 0);
                let lost = scenario.losses().since(before);
                assert_eq!(report.received, report.sent, "{destination}: {lost:#?}");
            })
        });
        let mut round = 0;
        while !streams.iter().all(|stream| stream.is_finished()) {
            for queue in 0..QUEUES {
                for port in ["lan", "wan"] {
                    let worker = ((queue + round) % 2).to_string();
                    // Refused while the last move is under way.
                    let moved = source.set(&format!("port.{port}.queue.{queue}"), &worker);
                    moves += u32::from(moved.is_ok());
                }
            }
            round += 1;
        }
    });
    assert!(moves > 3 * 2 * QUEUES, "{moves} moves");
    assert_eq!(exits(&source.steering()), shown);
    scenario.finish();
}

/// Flows from the client, and the sink that they end in.
struct Wire {
    flows: Vec<(Flow, UdpSocket)>,
    /// Of each flow.
    next: u32,
    sink: Opened,
    pool: Pool,
    seen: Vec<Arrival>,
}

/// Its version of IP and its source port.
type Flow = (u8, u16);

struct Arrival {
    flow: Flow,
    number: u32,
    queue: usize,
}

impl Wire {
    fn new(scenario: &Scenario) -> Wire {
        let Lab { client, server, .. } = &scenario.lab;
        let mac = server.run(|| Interface::read("eth0").expect("it is there").mac);
        let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
        // The sink never answers.
        for address in [SERVER_V4, SERVER_V6] {
            let added = scenario.source().add_neighbour("wan", &address.to_string(), &mac);
            assert!(added.is_ok(), "{added:?}");
        }
        let socket = |number: usize| {
            let (any, to): (IpAddr, _) = match number % 2 {
                0 => (Ipv4Addr::UNSPECIFIED.into(), SERVER_V4),
                _ => (Ipv6Addr::UNSPECIFIED.into(), SERVER_V6),
            };
            let socket = client.run(move || UdpSocket::bind((any, 0))).expect("a port is free");
            socket.connect((to, TO_PORT)).expect("there is a route");
            let from = socket.local_addr().expect("it is bound").port();
            ((if to.is_ipv4() { 4 } else { 6 }, from), socket)
        };
        let region = Region::new(RegionConfig { frames: 16_384, frame_size: 2048 });
        let depot = Depot::new(region.expect("32 MiB can be mapped"), 1).expect("the first taker");
        let pool = depot.pool_of(16_384);
        let mut umem = Umem::new(pool.region().clone());
        let sink = server.run(move || {
            let receiving =
                Receiving { owners: &[WorkerId(0); QUEUES as usize], elsewhere: &[None] };
            AfXdp::open(&mut umem, PortId(0), "eth0", receiving, AfXdpConfig::default())
        });
        let sink = sink.expect("the router has AF_XDP sockets, too");
        let flows = (0..FLOWS).map(socket).collect();
        let mut wire = Wire { flows, next: 0, sink, pool, seen: Vec::new() };
        wire.sink.receivers.iter_mut().for_each(|queue| queue.prime(&mut wire.pool));
        wire
    }

    /// Sends a few packets of each flow.
    fn send_burst(&mut self) {
        let cores = affinity::cores().expect("every thread may ask");
        thread::scope(|scope| {
            // Should the client's kernel choose a queue by the sender's core, each flow has one of them.
            for (at, &core) in cores.iter().enumerate() {
                let Wire { flows, next, .. } = &self;
                let step = cores.len();
                scope.spawn(move || {
                    affinity::pin(core).expect("it is one of ours");
                    for number in *next..next + BURST {
                        for (flow, socket) in flows.iter().skip(at).step_by(step) {
                            let sent = socket.send(&number.to_be_bytes());
                            assert!(sent.is_ok(), "{flow:?}: {sent:?}");
                        }
                    }
                });
            }
        });
        self.next += BURST;
    }

    /// Receives until all that was sent is there.
    fn receive_all(&mut self) {
        let expected = self.next as usize * self.flows.len();
        while self.seen.len() < expected {
            let fds: Vec<_> = self.sink.receivers.iter().map(|queue| queue.as_fd()).collect();
            let ready = poll(&fds, Some(Duration::from_secs(5))).expect("the sockets are open");
            assert!(ready.any(), "{} of {expected} came", self.seen.len());
            for (number, receiver) in self.sink.receivers.iter_mut().enumerate() {
                let mut batch = Batch::new();
                receiver.receive(&mut self.pool, &mut batch);
                let view = self.pool.region().view();
                let arrivals = batch.iter().filter_map(|frame| stamp(view.bytes(frame)));
                let arrivals =
                    arrivals.map(|(flow, stamp)| Arrival { flow, number: stamp, queue: number });
                self.seen.extend(arrivals);
                self.pool.give_back_all(&mut batch);
            }
        }
    }

    /// Nothing is lost, nor passed by a later packet of its flow in its queue.
    fn assert_in_order(&self) {
        let mut last = HashMap::new();
        for Arrival { flow, number, queue } in &self.seen {
            if let Some(before) = last.insert((flow, queue), number) {
                assert!(before < number, "{flow:?}: {number} after {before} by queue {queue}");
            }
        }
        for (flow, _) in &self.flows {
            let mut numbers: Vec<_> = self
                .seen
                .iter()
                .filter(|arrival| arrival.flow == *flow)
                .map(|a| a.number)
                .collect();
            numbers.sort_unstable();
            assert!(numbers.into_iter().eq(0..self.next), "{flow:?} is not whole");
        }
    }

    /// The queues that each flow left by, in the order of its packets, each run of the same once.
    fn queues(&self) -> Vec<(Flow, Vec<usize>)> {
        let of_flow = |flow: &Flow| {
            let mut all: Vec<_> =
                self.seen.iter().filter(|arrival| arrival.flow == *flow).collect();
            all.sort_by_key(|arrival| arrival.number);
            let mut queues: Vec<_> = all.iter().map(|arrival| arrival.queue).collect();
            queues.dedup();
            (*flow, queues)
        };
        self.flows.iter().map(|(flow, _)| of_flow(flow)).collect()
    }

    fn close(self, scenario: &Scenario) {
        let Wire { sink: Opened { port, receivers, transmitters, .. }, mut pool, .. } = self;
        scenario.lab.server.run(move || {
            port.close(receivers, transmitters, &mut pool, |_, _| ());
        });
    }
}

/// A datagram of ours: its flow, and its number.
fn stamp(frame: &[u8]) -> Option<(Flow, u32)> {
    let (version, udp) = match frame.get(12..14)? {
        [0x08, 0x00] if frame.get(23)? == &UDP => (4, frame.get(34..)?),
        [0x86, 0xdd] if frame.get(20)? == &UDP => (6, frame.get(54..)?),
        _ => return None,
    };
    let port = |at: usize| Some(u16::from_be_bytes(*udp.get(at..)?.first_chunk()?));
    let number = u32::from_be_bytes(*udp.get(8..)?.first_chunk()?);
    (port(2)? == TO_PORT).then_some(((version, port(0)?), number))
}

const UDP: u8 = 17;
const TO_PORT: u16 = 9000;
/// Half of them IPv6. The client's kernel shares them among its queues by a hash.
const FLOWS: usize = 48;
const ROUNDS: usize = 8;
/// Packets of each flow, one after another: fewer in all than a ring of the sink takes.
const BURST: u32 = 5;
