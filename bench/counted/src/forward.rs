//! I5: which lines do two workers take from each other while they forward?
//!
//! Two workers in turns, a batch each, IPv4 and IPv6 by halves, all frames to one destination (`same`)
//! or to random ones (`random`):
//!
//! - `apart`: each forwards what its own queue brings to a sink. Nothing may be shared.
//! - `crossing`: the second receives by a wire what the first forwards, and there it ends. The frames,
//!   their places in the wire's ring and their metadata change hands, and return through the depot;
//!   nothing else may. For each frame that crosses.
//! - `handed`: the first receives and hands all on to the second, which forwards it. As `crossing`, with the count
//!   of what has left; and of the metadata nothing, since its port, queue and length are what they were.
//!
//! `shared_writes_per_frame` is the most, of all rows, that is neither ring, depot nor metadata.

use std::net::{Ipv4Addr, Ipv6Addr};

use manylane_frame::vocabulary::PortId;
use manylane_frame::{BATCH_MAX, Batch, HEADROOM, Pool};
use manylane_io::port::memory::{self, Next, Sink};
use manylane_io::port::{Receiver, Transmitter};
use manylane_net::fib::{Ipv4Prefix, Ipv6Prefix};
use manylane_sync::handoff::{GROUP, SteeringMap};
use manylane_sync::primitive::counted::{Books, Site};
use manylane_worker::stats::{PortCount, StatsReader};
use manylane_worker::worker::Worker;

use crate::figure::Output;
use crate::packet::{SENDER, emit_udp};
use crate::random::Random;
use crate::router::{Error, Ground, Lane, NEXT_HOPS, Place, Result, bell, mac, mesh, port};

/// Turns of each worker, to warm up and to count: many times the 8 turns after which a worker
/// returns its list of free frames to the depot.
const ROUNDS: u64 = 512;
const FRAME_LEN: u16 = 64;
const ROUTES: u32 = 4096;

/// The worker receives frames at the first, and transmits them at the second; a wire leads from there to the third.
const ENTRY: PortId = PortId(0);
const EXIT: PortId = PortId(1);
const FAR: PortId = PortId(2);
const PORTS: u16 = 3;

/// Counts and prints, and is an error when I5 does not hold.
pub fn run(output: &Output) -> Result {
    let rows = [
        ("apart_same", Way::Apart, 1),
        ("apart_random", Way::Apart, ROUTES),
        ("crossing_same", Way::Crossing, 1),
        ("crossing_random", Way::Crossing, ROUTES),
        ("handed_same", Way::Handed, 1),
        ("handed_random", Way::Handed, ROUTES),
    ];
    let mut shared_max: f64 = 0.0;
    let mut broken = String::new();
    for (row, way, destinations) in rows {
        let tally = Lab::new(way, destinations, || Box::new(|_, _| {}))?.count()?;
        for (part, name) in PARTS {
            let figure = format!("{row}_{name}_per_frame");
            output.figure(&figure, "lines", &[tally.per_frame(part)]);
        }
        shared_max = shared_max.max(tally.per_frame(Part::Shared));
        if let Err(why) = tally.check(way) {
            broken += &format!("\n{row}: {why}");
        }
    }
    output.figure("shared_writes_per_frame", "lines", &[shared_max]);
    if broken.is_empty() { Ok(()) } else { Err(format!("I5 is broken{broken}").into()) }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Apart,
    Crossing,
    Handed,
}

/// What a line that moved belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Ring,
    Depot,
    Metadata,
    /// The counts of what left of what was handed on, and of sleeping workers.
    HandOff,
    Shared,
}

const PARTS: [(Part, &str); 5] = [
    (Part::Ring, "ring_lines"),
    (Part::Depot, "depot_lines"),
    (Part::Metadata, "metadata_lines"),
    (Part::HandOff, "handoff_lines"),
    (Part::Shared, "shared_writes"),
];

impl Part {
    fn of(site: Site) -> Part {
        match site.file() {
            "manylane-sync/src/ring.rs" => Part::Ring,
            "manylane-sync/src/stack.rs" | "manylane-frame/src/pool.rs" => Part::Depot,
            "manylane-frame/src/region/mod.rs"
            | "manylane-frame/src/region/view.rs"
            | "manylane-frame/src/region/chain.rs" => Part::Metadata,
            "manylane-sync/src/handoff.rs" | "manylane-sync/src/doorbell.rs" => Part::HandOff,
            _ => Part::Shared,
        }
    }

    /// The most lines for each frame that changes hands, and why.
    fn most(self, way: Way) -> f64 {
        let batch = BATCH_MAX as f64;
        match self {
            _ if way == Way::Apart => 0.0,
            // Each index is stored and looked at once. 256 bytes of slots, which lie on 4 or 5 lines, as
            // the heap has put them, are written and read.
            Part::Ring if way == Way::Crossing => (4.0 + 2.0 * 5.0) / batch,
            // Of twice as many bytes.
            Part::Ring => (4.0 + 2.0 * 9.0) / batch,
            // For each magazine brought and each fetched: a slot's 6 lines, and of two stacks the head,
            // the link and the level, with the count of frames.
            Part::Depot => 2.0 * (6.0 + 2.0 * 4.0 + 1.0) / batch,
            // Written on each side, and perhaps read first.
            Part::Metadata if way == Way::Crossing => 4.0,
            Part::Metadata => 0.0,
            // The count is stored, and looked at rarely.
            Part::HandOff if way == Way::Handed => 2.0 / batch,
            Part::HandOff | Part::Shared => 0.0,
        }
    }
}

struct Tally {
    /// Where lines moved, and how many.
    sites: Vec<(Site, u64)>,
    frames: u64,
}

impl Tally {
    fn per_frame(&self, part: Part) -> f64 {
        let lines = self.sites.iter().filter(|(site, _)| Part::of(*site) == part);
        lines.map(|(_, lines)| lines).sum::<u64>() as f64 / self.frames as f64
    }

    fn check(&self, way: Way) -> Result<(), String> {
        for (part, name) in PARTS {
            let max = part.most(way);
            let lines = self.per_frame(part);
            if lines > max {
                let sites = self.sites.iter().filter(|(site, _)| Part::of(*site) == part);
                let sites: Vec<_> =
                    sites.map(|(site, lines)| format!("{lines} at {site}")).collect();
                return Err(format!(
                    "{lines:.3} {name} per frame, at most {max:.3} are due; of {} frames: {}",
                    self.frames,
                    sites.join(", ")
                ));
            }
        }
        Ok(())
    }
}

struct Lab {
    workers: Vec<Worker>,
    stats: Vec<StatsReader>,
    frames_per_round: u64,
    /// Times that a frame is forwarded.
    hops: u64,
    _ground: Ground,
}

impl Lab {
    fn new(way: Way, destinations: u32, sink: impl Fn() -> Sink) -> Result<Lab> {
        let mut ground = Ground::new(2, 8192, (0..PORTS).map(port).collect())?;
        load(&mut ground)?;
        let place = |id: u16| {
            let sinks = (0..PORTS).map(|_| sink());
            let place = Place::new(id, [source(destinations, u64::from(id) + 1)], sinks)?;
            Ok::<_, Error>(Place { bell: bell()?, ..place })
        };
        let mut places = [place(0)?, place(1)?];
        let bells = places.each_ref().map(|place| place.bell.clone());
        match way {
            Way::Apart => {}
            Way::Crossing => {
                let (receivers, transmitters) = memory::wires(FAR, 1, &bells[1..], 256, |_| 0);
                places[0].transmitters[EXIT.index()] = Transmitter::Memory(only(transmitters));
                places[1].queues = vec![Receiver::Memory(only(receivers))];
            }
            Way::Handed => {
                places[1].queues.clear();
                let map = SteeringMap::new(usize::from(PORTS) * GROUP, 1);
                let limits = places[0].limits.clone();
                let mesh = mesh(&bells, &map, PORTS.into(), &limits);
                for (place, (handoff, _)) in places.iter_mut().zip(mesh.ends) {
                    (place.handoff, place.limits) = (Some(Box::new(handoff)), limits.clone());
                }
            }
        }
        let (mut workers, mut stats) = (Vec::new(), Vec::new());
        for place in places {
            let Lane { worker, stats: counts, .. } = ground.lane(place)?;
            workers.push(worker);
            stats.push(counts);
        }
        let batch = BATCH_MAX as u64;
        let (frames_per_round, hops) = match way {
            Way::Apart => (2 * batch, 1),
            Way::Crossing => (batch, 2),
            Way::Handed => (batch, 1),
        };
        Ok(Lab { workers, stats, frames_per_round, hops, _ground: ground })
    }

    fn count(&mut self) -> Result<Tally> {
        let books = Books::new();
        let mut now_ns = 0;
        let mut turn = |worker: &mut Worker| {
            now_ns += 1000;
            worker.turn(now_ns);
        };
        books.turns(&mut self.workers, ROUNDS, &mut turn);
        books.clear();
        books.turns(&mut self.workers, ROUNDS, &mut turn);
        let moved = books.sites().into_iter().filter(|(_, row)| row.transactions() > 0);
        let sites = moved.map(|(site, row)| (site, row.transactions())).collect();
        let frames = ROUNDS * self.frames_per_round;
        let forwarded: u64 = self.stats.iter().map(transmitted).sum();
        if forwarded != 2 * frames * self.hops {
            let why = format!("{forwarded} frames were forwarded, not {}", 2 * frames * self.hops);
            return Err(why.into());
        }
        Ok(Tally { sites, frames })
    }
}

fn transmitted(stats: &StatsReader) -> u64 {
    (0..PORTS).map(|port| stats.port(PortId(port), PortCount::Transmitted)).sum()
}

fn only<T>(mut one: Vec<T>) -> T {
    one.pop().expect("there is one")
}

/// [`ROUTES`] of each family by [`NEXT_HOPS`] neighbours at [`EXIT`], which all have the address of [`FAR`], so that
/// what arrives there by a wire is forwarded again.
fn load(ground: &mut Ground) -> Result {
    let [by_ipv4, by_ipv6] = ground.next_hops(|_| (EXIT, mac(FAR.0).0))?;
    let hop = |number: u32| (number % NEXT_HOPS) as usize;
    let ipv4 = (0..ROUTES).map(|number| {
        let len = if number % 2 == 0 { 24 } else { 28 };
        let prefix = Ipv4Prefix::containing(ipv4_destination(number), len);
        (prefix.expect("a length up to 32"), by_ipv4[hop(number)])
    });
    let ipv6 = (0..ROUTES).map(|number| {
        let prefix = Ipv6Prefix::containing(ipv6_destination(number), 48);
        (prefix.expect("a length up to 128"), by_ipv6[hop(number)])
    });
    ground.load(ipv4, ipv6)
}

fn ipv4_destination(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x1400_0001 + (number << 8))
}

fn ipv6_destination(number: u32) -> Ipv6Addr {
    Ipv6Addr::from((0x2400 << 112) | (u128::from(number) << 80) | 1)
}

/// What stands for the device: a whole batch each time, both families by turns.
fn source(destinations: u32, seed: u64) -> memory::Source {
    let mut random = Random(seed);
    let macs = [mac(ENTRY.0), SENDER];
    let sources = (Ipv4Addr::new(10, 1, 0, 1), Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1));
    Box::new(move |pool: &mut Pool, batch: &mut Batch, _| {
        pool.take_into(batch, BATCH_MAX);
        let region = pool.region().view();
        for (place, frame) in batch.iter_mut().enumerate() {
            region.set_window(frame, HEADROOM, HEADROOM + FRAME_LEN);
            let number = (random.next() >> 32) as u32 % destinations;
            let ends = match place % 2 {
                0 => [sources.0.into(), ipv4_destination(number).into()],
                _ => [sources.1.into(), ipv6_destination(number).into()],
            };
            emit_udp(region.bytes_mut(frame), FRAME_LEN.into(), macs, ends);
        }
        Next::More
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use manylane_sync::counters::SharedCount;

    use super::*;

    fn tally(way: Way, sink: impl Fn() -> Sink) -> Tally {
        let lab = Lab::new(way, ROUTES, sink);
        lab.and_then(|mut lab| lab.count()).expect("all frames are forwarded")
    }

    #[test]
    fn workers_apart_take_no_line_from_each_other() {
        let tally = tally(Way::Apart, || Box::new(|_, _| {}));
        assert_eq!(tally.check(Way::Apart), Ok(()));
        assert!(tally.sites.is_empty(), "{:?}", tally.sites);
    }

    #[test]
    fn frames_that_cross_take_their_lines_along_and_no_others() {
        let tally = tally(Way::Crossing, || Box::new(|_, _| {}));
        assert_eq!(tally.check(Way::Crossing), Ok(()));
        for part in [Part::Ring, Part::Depot, Part::Metadata] {
            assert!(tally.per_frame(part) > 0.0, "{part:?} is not seen");
        }
    }

    #[test]
    fn frames_that_are_handed_on_leave_their_metadata_with_both_workers() {
        let tally = tally(Way::Handed, || Box::new(|_, _| {}));
        assert_eq!(tally.check(Way::Handed), Ok(()));
        for part in [Part::Ring, Part::Depot] {
            assert!(tally.per_frame(part) > 0.0, "{part:?} is not seen");
        }
    }

    /// What this room is for: one count that both workers add to, once a frame.
    #[test]
    fn a_shared_write_for_each_frame_is_found_and_named() {
        let count = Arc::new(SharedCount::default());
        let tally = tally(Way::Apart, || {
            let count = count.clone();
            Box::new(move |_, frames| {
                for _ in frames {
                    count.add(1);
                }
            })
        });
        let why = tally.check(Way::Apart).expect_err("each turn takes the line once");
        assert!(why.contains("shared_writes") && why.contains("forward.rs:"), "{why}");
    }
}
