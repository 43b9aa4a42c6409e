//! The same inside forwarding workers: what a neighbour's way out is of the whole.
//!
//! Each thread turns a worker of the product, between two memory ports, over one set of tables; all
//! frames go to one destination. With `manylane` that is all. With the others the same worker does the
//! same, and for each frame the neighbour's old way out besides, into a header that is thrown away. That
//! the product's own way out is still there is what `manylane_ns` says, 1 to 2 ns.
//!
//! # When the old way out is taken
//!
//! The kernel takes a frame from its route to its neighbour and on to the device before it looks at the
//! next. So its cores meet at the neighbour once for each frame, with a frame's other work between two
//! meetings: hardly ever has a core the lock's line still when it comes back. A worker of ours takes each
//! step for a batch. How the two are put together decides what the contention is:
//!
//! | figures      | frames a step | the old way out                                     | what that favours |
//! |--------------|---------------|-----------------------------------------------------|-------------------|
//! | `forward_`   | 64            | for all of a batch, one after the other, as it leaves: a core that has the lines keeps them for some frames, and while the other does another step nobody wants them | `before`, `nocache`: the old design did not batch it |
//! | `..._b1`     | 1             | once in each frame's own pass through check, lookup and rewrite, as in the kernel; the device's part is still a batch's | neither: all three do the same, and what a batch saves is in none |
//!
//! `forward_gain` is of the first, the product as it is with the old way out in the form that costs it
//! least. `forward_gain_b1` is of the second, the old design's order of work. In none is a frame's old work
//! made larger than the source has it, and none divides one order's `before` by another's `manylane`.

use std::hint::black_box;
use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use manylane::control::routing::Routing;
use manylane::stats::{PortCount, StatsReader};
use manylane::worker::{Clock, Worker};
use manylane_frame::vocabulary::PortId;
use manylane_frame::{BATCH_MAX, Batch, Depot, HEADROOM, Pool, Region, RegionConfig};
use manylane_io::port::memory::{Next, Sink, Source};
use manylane_net::fib::Ipv4Prefix;
use manylane_net::icmp::RateLimit;
use manylane_sync::rcu::Domain;

use super::{ADDRESS, old_table, timed};
use crate::baseline::neighbour::Table;
use crate::forward::{FRAME_LEN, ipv4_template, pin_next_hops, routing, worker};
use crate::threads::Team;

const THREADS: usize = 2;
const FRAMES: u32 = 16_384;
const DESTINATION: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 9);

/// Two workers for each way and each order of work, all over the same tables.
pub struct Forwarding {
    ways: [Lanes; 3],
    singly: [Lanes; 3],
    _routing: Routing,
}

/// The workers of one way out.
pub struct Lanes {
    /// What figures call it.
    pub name: &'static str,
    lanes: Vec<Mutex<Lane>>,
}

struct Lane {
    worker: Worker,
    clock: Clock,
    stats: StatsReader,
}

/// How many frames each step of the rules is taken for.
#[derive(Clone, Copy, PartialEq)]
enum Step {
    Batch,
    Frame,
}

/// What is done for a frame that leaves; false when there is no such neighbour.
type WayOut = fn(&Table, u32, &mut [u8; 14]) -> bool;

impl Forwarding {
    /// Prepares the workers.
    pub fn new() -> io::Result<Forwarding> {
        let domain = Domain::new(6 * THREADS);
        let mut routing = routing(&domain)?;
        let (hops, _) = pin_next_hops(&mut routing)?;
        let everywhere = Ipv4Prefix::containing(Ipv4Addr::UNSPECIFIED, 0).expect("0 is a length");
        routing.ipv4_mut().load([(everywhere, hops[0])]).map_err(io::Error::other)?;
        let region = RegionConfig { frames: FRAMES, frame_size: 2048 };
        let region = Region::new(region).map_err(io::Error::other)?;
        let depot = Depot::new(region, 6 * THREADS).expect("the region is new");
        let lanes = |name, way_out: Option<WayOut>, step| {
            let table = Arc::new(old_table());
            let lane = |_| {
                Lane::new(&domain, &routing, depot.pool(), way_out, step, &table).map(Mutex::new)
            };
            let lanes = (0..THREADS).map(lane).collect::<io::Result<_>>()?;
            io::Result::Ok(Lanes { name, lanes })
        };
        let ways = |step| -> io::Result<[Lanes; 3]> {
            let before: WayOut = |table, address, header| table.before(address, header);
            let nocache: WayOut = |table, address, header| table.nocache(address, header);
            Ok([
                lanes("before", Some(before), step)?,
                lanes("nocache", Some(nocache), step)?,
                lanes("manylane", None, step)?,
            ])
        };
        let (ways, singly) = (ways(Step::Batch)?, ways(Step::Frame)?);
        Ok(Forwarding { ways, singly, _routing: routing })
    }

    /// The ways out, a batch at each step.
    pub fn ways(&self) -> &[Lanes] {
        &self.ways
    }

    /// The same, a frame at each step.
    pub fn singly(&self) -> &[Lanes] {
        &self.singly
    }
}

impl Lanes {
    /// Nanoseconds a frame, and of CPU time. An error when a frame was not forwarded.
    pub fn measure(&self, team: &mut Team, threads: usize) -> io::Result<Option<(f64, f64)>> {
        let measured = timed(team, threads, |thread, lap| {
            let mut lane = lock(&self.lanes[thread]);
            lap.run_of(BATCH_MAX as u64, || lane.turn())
        })?;
        self.lanes.iter().try_for_each(|lane| lock(lane).check(self.name))?;
        Ok(measured)
    }

    /// Forwards so many by one of the workers.
    pub fn send(&self, thread: usize, frames: u64) {
        let mut lane = lock(&self.lanes[thread]);
        (0..frames.div_ceil(BATCH_MAX as u64)).for_each(|_| lane.turn());
        lane.check(self.name).expect("every frame is forwarded");
    }
}

impl Lane {
    fn new(
        domain: &Domain,
        routing: &Routing,
        pool: Pool,
        way_out: Option<WayOut>,
        step: Step,
        table: &Arc<Table>,
    ) -> io::Result<Lane> {
        let leave = |way_out: WayOut, table: &Table| {
            let mut header = [0; 14];
            let known = way_out(table, black_box(ADDRESS.into()), &mut header);
            assert!(known, "the table has the neighbour");
            black_box(&mut header);
        };
        let sink = || -> Sink {
            let table = table.clone();
            match way_out {
                Some(way_out) if step == Step::Batch => {
                    Box::new(move |_, frames| frames.iter().for_each(|_| leave(way_out, &table)))
                }
                _ => Box::new(|_, _| ()),
            }
        };
        let template = ipv4_template(DESTINATION, FRAME_LEN).0;
        let (queues, len) = match step {
            Step::Batch => (1, BATCH_MAX),
            Step::Frame => (BATCH_MAX, 1),
        };
        let source = |_| -> Source {
            let table = table.clone();
            let way_out = way_out.filter(|_| step == Step::Frame);
            Box::new(move |pool: &mut Pool, batch: &mut Batch, _| {
                pool.take_into(batch, len);
                let region = pool.region().view();
                for frame in batch.iter_mut() {
                    region.set_window(frame, HEADROOM, HEADROOM + FRAME_LEN as u16);
                    let bytes = region.bytes_mut(frame).first_chunk_mut::<FRAME_LEN>();
                    *bytes.expect("the window was just set") = template;
                    if let Some(way_out) = way_out {
                        leave(way_out, &table);
                    }
                }
                Next::More
            })
        };
        let sources = (0..queues).map(source).collect();
        let clock = Clock::start();
        let limit = RateLimit::new(1000, 50);
        let (worker, stats) =
            worker(domain, routing, pool, sources, [sink(), sink()], limit, clock)?;
        Ok(Lane { worker, clock, stats })
    }

    #[inline(always)]
    fn turn(&mut self) {
        let moved = self.worker.turn(self.clock.now_ns());
        debug_assert_eq!(moved, BATCH_MAX);
    }

    fn check(&self, name: &str) -> io::Result<()> {
        let sum = |what| -> u64 { (0..2).map(|port| self.stats.port(PortId(port), what)).sum() };
        match sum(PortCount::Received) == sum(PortCount::Transmitted) {
            true => Ok(()),
            false => Err(io::Error::other(format!("{name}: not every frame was forwarded"))),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
