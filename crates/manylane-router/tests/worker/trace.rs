//! Traces: each packet's stages, exactly these, in order; and nothing of them stays with a frame.

use std::net::IpAddr;

use manylane_frame::Trace as Mark;
use manylane_frame::vocabulary::{DropReason, PortId};
use manylane_io::port::{Transmitter, memory};
use manylane_net::filter::{Instruction, Program};
use manylane_net::forward::Found;
use manylane_net::neighbour::{HOLD_MAX_NS, HoldLimits, Key};
use manylane_net::wire::arp;
use manylane_sync::handoff::GROUP;

use super::floor::{Floor, NEAR, TWO};
use super::ledger::{any_frame, ping, resum};
use crate::rig::*;
use manylane_api::{TraceStage, TraceWhat};
use manylane_router::trace::together::{Followed, Together};
use manylane_router::trace::{Names, Trace, TraceError, TracePort, Wanted, shown};
use manylane_worker::worker::Worker;

/// A worker that forwards what is fed to port 0; neighbours of port 0 and 1, and port 2's small link.
struct One {
    hall: Hall,
    worker: Worker,
    feed: Feed,
    seen: Vec<Seen>,
}

impl One {
    fn new(part_len: usize) -> One {
        let mut hall = Hall::new(1);
        let (feed, (seen, exits)) = (Feed::default(), sinks());
        let limits = HoldLimits { queue_frames_max: 2, frames_max: 64, queues_max: 8 };
        let worker = hall.worker(vec![fed_in_parts(0, 0, &feed, part_len)], exits, limits);
        for (port, addr) in [(0, "10.0.0.2"), (1, "10.1.0.2"), (2, "10.2.0.2")] {
            hall.control.set(addr, port);
        }
        for (port, addr) in [(0, "2001:db8::2"), (1, "2001:db8:1::2"), (2, "2001:db8:2::2")] {
            hall.control.set(addr, port);
        }
        One { hall, worker, feed, seen }
    }

    /// Begins a trace, and lets the worker hear of it.
    fn begin(&mut self, wanted: Wanted) -> Trace {
        let mut trace = self.hall.traces.begin(wanted).expect("there is no other");
        assert!(!read(&mut trace).1, "not before the worker's next turn");
        self.worker.turn(0);
        assert!(read(&mut trace).1);
        trace
    }

    fn send(&mut self, bytes: Vec<u8>, now_ns: u64) {
        self.feed.lock().unwrap().push(bytes);
        self.turn(now_ns);
    }

    fn turn(&mut self, now_ns: u64) {
        while self.worker.turn(now_ns) > 0 {}
    }

    /// The stages of one packet.
    fn stages(&mut self, bytes: Vec<u8>) -> Vec<String> {
        let mut trace = self.begin(all(1));
        self.send(bytes, 0);
        names(&read(&mut trace).0)
    }

    fn close(self) {
        let One { hall, worker, .. } = self;
        hall.close(vec![worker]);
        assert_no_marks(&hall);
    }
}

/// No frame keeps a number: it would be its next packet's.
fn assert_no_marks(hall: &Hall) {
    let mut pool = hall.depot.pool();
    let frames: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
    assert_eq!(frames.len(), FRAMES as usize);
    for frame in frames {
        assert_eq!(pool.region().meta(&frame).trace(), Mark::NONE);
        pool.give_back(frame);
    }
}

fn all(count: u32) -> Wanted {
    Wanted { count, filter: Program::accept_all(), port: None }
}

struct Plain;

impl Names for Plain {
    fn port(&self, port: PortId) -> String {
        port.0.to_string()
    }

    fn prefix(&self, _: &Found) -> Option<(String, bool)> {
        None
    }
}

/// What was recorded, and whether the trace is armed.
fn read(trace: &mut Trace) -> (Vec<TraceStage>, bool) {
    let mut stages = Vec::new();
    let now = trace.read(|worker, stage| stages.push(shown(worker, stage, &Plain)));
    assert_eq!(now.lost, 0);
    (stages, now.is_armed)
}

/// The names of all stages, with what tells them apart.
fn names(stages: &[TraceStage]) -> Vec<String> {
    let name = |stage: &TraceStage| match &stage.what {
        TraceWhat::Dropped { reason, .. } | TraceWhat::Error { reason, .. } => {
            format!("{} {reason}", stage.what.name())
        }
        TraceWhat::Queued { port } => format!("queued {port}"),
        TraceWhat::Prepared { how, pieces } => format!("prepared {} {pieces}", how.join(" ")),
        what => what.name().into(),
    };
    stages.iter().map(name).collect()
}

fn list(text: &str) -> Vec<String> {
    text.split(", ").map(Into::into).collect()
}

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

const FORWARDED: &str = "received, checked, route, neighbour, rewritten, queued 1, transmitted";

#[test]
fn a_forwarded_packet_goes_through_these_stages() {
    let mut one = One::new(usize::MAX);
    for to in ["10.1.0.2", "2001:db8:1::2"] {
        let mut trace = one.begin(all(1));
        one.send(packet(addr(to), 7, 0, 4), 0);
        let (stages, _) = read(&mut trace);
        assert_eq!(names(&stages), list(FORWARDED));
        let TraceWhat::Rewritten { ttl_before, ttl_after, destination, source } = &stages[4].what
        else {
            panic!("{stages:?}")
        };
        assert_eq!((*ttl_before, *ttl_after), (64, 63));
        assert_eq!((destination, source), (&station(1).to_string(), &ours(1).to_string()));
        let TraceWhat::Neighbour { address, state, mac, mtu, .. } = &stages[3].what else {
            panic!("{stages:?}")
        };
        assert_eq!((&**address, &**state, *mtu), (to, "resolved", 1500));
        assert_eq!(mac, &Some(station(1).to_string()));
        assert!(stages.iter().all(|stage| (stage.packet, stage.worker) == (1, 0)));
        // Another one is not of the trace: the trace wanted one packet.
        one.send(packet(addr(to), 7, 1, 4), 0);
        assert_eq!(read(&mut trace).0, []);
    }
    assert_eq!(one.seen[1].lock().unwrap().len(), 4);
    one.close();
}

#[test]
fn a_packet_that_is_handed_on_is_followed_to_the_other_worker() {
    let mut floor = Floor::new(TWO);
    for owner in [1, 0] {
        floor.want(0..GROUP, |_| owner);
        floor.turn_until_idle(0);
        let mut trace = floor.hall.traces.begin(all(1)).unwrap();
        (0..2).for_each(|worker| _ = floor.turn(worker, 0));
        assert!(read(&mut trace).1);
        floor.send(0, NEAR, 7, 1);
        floor.turn_until_idle(0);
        let (stages, _) = read(&mut trace);
        let mut together = Together::default();
        let packet =
            stages.into_iter().find_map(|stage| together.add(stage)).expect("it has ended");
        let workers: Vec<u16> = packet.stages.iter().map(|stage| stage.worker).collect();
        let bucket_of =
            |stage: &TraceStage| matches!(stage.what, TraceWhat::Steered { to, .. } if to == owner);
        assert!(bucket_of(&packet.stages[1]), "{packet:?}");
        if owner == 1 {
            let expected = FORWARDED.replace("received", "received, steered, taken");
            assert_eq!(names(&packet.stages), list(&expected));
            assert_eq!(workers, [0, 0, 1, 1, 1, 1, 1, 1, 1]);
            assert_eq!(packet.stages[2].what, TraceWhat::Taken { from: 0 });
        } else {
            assert_eq!(
                names(&packet.stages),
                list(&FORWARDED.replace("received", "received, steered"))
            );
            assert_eq!(workers, [0; 8]);
        }
    }
    floor.close();
}

#[test]
fn a_packet_that_waits_says_for_whom_and_how_long() {
    let mut one = One::new(usize::MAX);
    for to in ["10.1.0.9", "2001:db8:1::9"] {
        let mut trace = one.begin(all(1));
        one.send(packet(addr(to), 7, 0, 4), 0);
        assert_eq!(names(&read(&mut trace).0), list("received, checked, route, held"));
        one.hall.control.hear(0);
        one.hall.control.answer(Key { port: PortId(1), addr: addr(to) }, 0);
        one.turn(1000);
        let (stages, _) = read(&mut trace);
        assert_eq!(names(&stages), list(&FORWARDED.replace("received", "released")));
        assert_eq!(stages[0].what, TraceWhat::Released { waited_ns: 1000 });
    }
    one.close();
}

#[test]
fn a_packet_that_waits_in_vain_ends_as_an_error() {
    let mut one = One::new(usize::MAX);
    for to in ["10.1.0.9", "2001:db8:1::9"] {
        let mut trace = one.begin(all(1));
        one.send(packet(addr(to), 7, 0, 4), 0);
        read(&mut trace);
        one.turn(HOLD_MAX_NS); // No neighbour has answered.
        let told = "given_up, error neighbour_failed, queued 0, transmitted";
        assert_eq!(names(&read(&mut trace).0), list(told));
    }
    one.close();
}

#[test]
fn a_packet_that_makes_room_for_newer_ones_says_so() {
    let mut one = One::new(usize::MAX);
    let mut trace = one.begin(all(1));
    for number in 0..3 {
        one.send(packet(addr("10.1.0.9"), 7, number, 4), 0);
    }
    let (stages, _) = read(&mut trace);
    let told = "received, checked, route, held, dropped hold_overflow";
    assert_eq!(names(&stages), list(told));
    one.close();
}

#[test]
fn a_dropped_packet_says_why() {
    let mut one = One::new(usize::MAX);
    for (to, too_big) in [("10.1.0.2", "10.2.0.2"), ("2001:db8:1::2", "2001:db8:2::2")] {
        let good = packet(addr(to), 7, 0, 4);
        let (is_v4, at) = (to.contains('.'), if to.contains('.') { 22 } else { 21 });
        let mut others = good.clone();
        others[5] ^= 1;
        assert_eq!(one.stages(others), list("received, checked, dropped not_for_us"));
        let mut old = good.clone();
        old[at] = 1;
        resum(&mut old);
        let expired = "received, checked, error hop_limit_exceeded, queued 0, transmitted";
        assert_eq!(one.stages(old), list(expired));
        let nowhere = if is_v4 { "9.9.9.9" } else { "2001:db8:9::9" };
        let no_route = "received, checked, route, error no_route, queued 0, transmitted";
        assert_eq!(one.stages(packet(addr(nowhere), 7, 0, 4)), list(no_route));
        let mut large = packet(addr(too_big), 7, 0, 1400);
        if is_v4 {
            large[20] |= 0x40; // Not to be cut.
            resum(&mut large);
        }
        let told = "received, checked, route, neighbour, error too_big, queued 0, transmitted";
        assert_eq!(one.stages(large), list(told));
        assert_eq!(one.stages(good[..20].to_vec()).len(), 3);
    }
    one.close();
}

#[test]
fn what_a_device_does_not_take_is_dropped_and_not_transmitted() {
    let mut hall = Hall::new(1);
    let feed = Feed::default();
    let exits = (0..PORTS).map(|_| Transmitter::Memory(memory::Transmitter::closed())).collect();
    let worker = hall.worker(vec![fed(0, 0, &feed)], exits, HoldLimits::default());
    hall.control.set("10.1.0.2", 1);
    let mut one = One { hall, worker, feed, seen: Vec::new() };
    let told = FORWARDED.replace("transmitted", "dropped transmit_ring_full");
    assert_eq!(one.stages(packet(addr("10.1.0.2"), 7, 0, 4)), list(&told));
    one.close();
}

#[test]
fn an_answer_is_followed_as_the_packet_that_it_answers() {
    let mut one = One::new(usize::MAX);
    let told = "received, checked, route, reply, queued 0, transmitted";
    assert_eq!(one.stages(ping(2)), list(told));
    one.close();
}

#[test]
fn what_is_for_us_is_followed_to_here() {
    let mut one = One::new(usize::MAX);
    let mut answer = vec![0; 60];
    let (from, to) = ([10, 0, 0, 2].into(), [10, 0, 0, 1].into());
    arp::Packet::request(station(0), from, to).emit_frame(&mut answer, ours(0));
    answer[21] = 2; // A reply, to no question.
    assert_eq!(one.stages(answer), list("received, checked, delivered"));
    one.close();
}

#[test]
fn all_pieces_of_a_packet_are_followed() {
    let mut one = One::new(usize::MAX);
    let told = "received, checked, route, neighbour, rewritten, prepared fragments 2, queued 2, \
                queued 2, transmitted, transmitted";
    assert_eq!(one.stages(packet(addr("10.2.0.2"), 7, 0, 1400)), list(told));
    assert_eq!(one.seen[2].lock().unwrap().len(), 2);
    one.close();
}

#[test]
fn a_packet_in_several_frames_keeps_its_number_when_they_are_joined() {
    let mut one = One::new(60);
    for to in ["10.1.0.2", "2001:db8:1::2"] {
        assert_eq!(one.stages(packet(addr(to), 7, 0, 400)), list(FORWARDED));
    }
    one.close();
}

#[test]
fn only_what_is_wanted_gets_a_number() {
    let mut one = One::new(usize::MAX);
    // `ldh [12]; jeq 0x86dd; ret all; ret 0`.
    let code = [(0x28, 0, 0, 12), (0x15, 0, 1, 0x86dd), (6, 0, 0, u32::MAX), (6, 0, 0, 0)];
    let filter = Program::new(code.map(Instruction::from).to_vec()).unwrap();
    let mut trace = one.begin(Wanted { count: 9, filter, port: None });
    for to in ["10.1.0.2", "2001:db8:1::2", "10.1.0.2"] {
        one.send(packet(addr(to), 7, 0, 4), 0);
    }
    assert_eq!(names(&read(&mut trace).0), list(FORWARDED));
    drop(trace);
    for (device, expected) in [(0, 7), (1, 0)] {
        let port = Some(TracePort { device: PortId(device), tags: None });
        let mut trace = one.begin(Wanted { port, ..all(9) });
        one.send(packet(addr("10.1.0.2"), 7, 0, 4), 0);
        assert_eq!(read(&mut trace).0.len(), expected);
    }
    one.close();
}

/// What waits when a trace ends is passed on as any other packet, and none of the next trace.
#[test]
fn a_packet_of_a_trace_that_has_ended_is_an_ordinary_one() {
    let mut one = One::new(usize::MAX);
    for (ends_first, host) in [(true, "10.1.0.9"), (false, "10.1.0.8")] {
        let key = Key { port: PortId(1), addr: addr(host) };
        let trace = one.begin(all(5));
        one.send(packet(key.addr, 7, 0, 4), 0);
        drop(trace);
        let mut next = (!ends_first).then(|| one.begin(all(5)));
        one.hall.control.hear(0);
        one.hall.control.answer(key, 0);
        one.turn(0);
        if let Some(next) = &mut next {
            assert_eq!(read(next).0, []);
        }
    }
    // Their frames may keep a number: of a trace that has ended.
    let One { hall, worker, .. } = one;
    hall.close(vec![worker]);
}

#[test]
fn there_is_one_trace_at_a_time_and_it_ends_with_who_wants_it() {
    let mut one = One::new(usize::MAX);
    let begin = |count| one.hall.traces.begin(all(count)).map(drop);
    assert_eq!(begin(0), Err(TraceError::Count(0)));
    assert_eq!(begin(1001), Err(TraceError::Count(1001)));
    let trace = one.hall.traces.begin(all(1)).unwrap();
    assert_eq!(begin(1), Err(TraceError::Running));
    drop(trace);
    assert_eq!(begin(1), Ok(()));
    // No trace runs any more, and nothing of it is left.
    one.send(packet(addr("10.1.0.2"), 7, 0, 4), 0);
    let mut trace = one.begin(all(1));
    assert_eq!(read(&mut trace).0, []);
    drop(trace);
    one.close();
}

#[test]
fn packets_are_followed_as_fast_as_they_can_be_told_of() {
    let mut one = One::new(usize::MAX);
    let mut trace = one.begin(all(60));
    for expected in [48, 12, 0] {
        for number in 0..200 {
            one.feed.lock().unwrap().push(packet(addr("10.1.0.2"), 7, number, 4));
        }
        one.turn(0);
        assert_eq!(read(&mut trace).0.len(), expected * 7);
    }
    assert_eq!(one.seen[1].lock().unwrap().len(), 600);
    one.close();
}

#[test]
fn what_finds_no_place_is_counted() {
    let mut one = One::new(1500);
    let mut trace = one.begin(all(60));
    for number in 0..12 {
        one.send(packet(addr("10.2.0.2"), 7, number, 60_000), 0);
    }
    let pieces = one.seen[2].lock().unwrap().len();
    assert_eq!(pieces, 12 * 48);
    let mut stages = 0;
    let now = trace.read(|_, _| stages += 1);
    assert_eq!((stages, now.packets), (1024, 12));
    assert_eq!(now.lost, 12 * 6 + 2 * pieces as u64 - 1024);
    drop(trace);
    one.close();
}

/// Whatever is received, however it ends: each packet is followed to its end, and the tables say of it before what
/// the verdict says after (`Work::note_verdict` looks).
#[test]
fn any_packet_is_followed_to_its_end() {
    let mut complete: Vec<Followed> = Vec::new();
    for seed in 0..6 {
        let mut one = One::new([usize::MAX, 60][seed as usize % 2]);
        let mut trace = one.begin(all(1000));
        let (mut random, mut together, mut now, mut sent) =
            (Random(seed), Together::default(), 0, 0);
        while sent < 1000 {
            for _ in 0..random.below(24).min(1000 - u64::from(sent)) {
                one.feed.lock().unwrap().push(any_frame(&mut random, sent));
                sent += 1;
            }
            one.turn(now);
            complete.extend(read(&mut trace).0.into_iter().filter_map(|stage| together.add(stage)));
            for key in one.hall.control.hear(now) {
                if random.below(2) == 0 {
                    one.hall.control.answer(key, now);
                }
            }
            one.hall.control.tick(now);
            now += [1_000, 1_000_000, SECOND / 3, 2 * SECOND][random.below(4) as usize];
        }
        now += 2 * HOLD_MAX_NS;
        one.turn(now);
        complete.extend(read(&mut trace).0.into_iter().filter_map(|stage| together.add(stage)));
        assert!(together.is_empty(), "{together:?}");
        drop(trace);
        one.close();
    }
    assert_eq!(complete.len(), 6 * 1000);
    let has = |name: &str| {
        complete.iter().any(|packet| names(&packet.stages).iter().any(|one| one == name))
    };
    for reason in [DropReason::NoRoute, DropReason::TooBig, DropReason::NeighbourFailed] {
        assert!(has(&format!("error {reason}")), "{reason}");
    }
    for name in ["released", "given_up", "reply", "prepared fragments 2", "held"] {
        assert!(has(name), "{name}");
    }
}
