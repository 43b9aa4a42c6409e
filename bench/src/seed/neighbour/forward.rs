//! The same inside forwarding workers: what a neighbour's way out is of the whole.
//!
//! Each thread turns a worker of the product, between two memory ports, over one set of tables; all
//! frames go to one destination. With `manylane` that is all. With the others the same worker does the
//! same, and for each frame that leaves, the neighbour's old way out besides, into a header that is
//! thrown away. That the product's own way out is still there is what `manylane_ns` says, 1 to 2 ns.

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

/// Two workers for each way, all over the same tables.
pub struct Forwarding {
    ways: [Lanes; 3],
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

/// What is done for a frame that leaves; false when there is no such neighbour.
type WayOut = fn(&Table, u32, &mut [u8; 14]) -> bool;

impl Forwarding {
    /// Prepares the workers.
    pub fn new() -> io::Result<Forwarding> {
        let domain = Domain::new(3 * THREADS);
        let mut routing = routing(&domain)?;
        let (hops, _) = pin_next_hops(&mut routing)?;
        let everywhere = Ipv4Prefix::containing(Ipv4Addr::UNSPECIFIED, 0).expect("0 is a length");
        routing.ipv4_mut().load([(everywhere, hops[0])]).map_err(io::Error::other)?;
        let region = RegionConfig { frames: FRAMES, frame_size: 2048 };
        let region = Region::new(region).map_err(io::Error::other)?;
        let depot = Depot::new(region, 3 * THREADS).expect("the region is new");
        let lanes = |name, way_out: Option<WayOut>| {
            let table = Arc::new(old_table());
            let lane =
                |_| Lane::new(&domain, &routing, depot.pool(), way_out, &table).map(Mutex::new);
            let lanes = (0..THREADS).map(lane).collect::<io::Result<_>>()?;
            io::Result::Ok(Lanes { name, lanes })
        };
        let ways = [
            lanes("before", Some(|table, address, header| table.before(address, header)))?,
            lanes("nocache", Some(|table, address, header| table.nocache(address, header)))?,
            lanes("manylane", None)?,
        ];
        Ok(Forwarding { ways, _routing: routing })
    }

    /// The ways out.
    pub fn ways(&self) -> &[Lanes] {
        &self.ways
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
        table: &Arc<Table>,
    ) -> io::Result<Lane> {
        let sink = || -> Sink {
            let table = table.clone();
            match way_out {
                Some(way_out) => Box::new(move |_, frames| {
                    let mut header = [0; 14];
                    for _ in frames {
                        let known =
                            way_out(&table, std::hint::black_box(ADDRESS.into()), &mut header);
                        assert!(known, "the table has the neighbour");
                        std::hint::black_box(&mut header);
                    }
                }),
                None => Box::new(|_, _| ()),
            }
        };
        let template = ipv4_template(DESTINATION, FRAME_LEN).0;
        let source: Source = Box::new(move |pool: &mut Pool, batch: &mut Batch, _| {
            pool.take_into(batch, BATCH_MAX);
            let region = pool.region().view();
            for frame in batch.iter_mut() {
                region.set_window(frame, HEADROOM, HEADROOM + FRAME_LEN as u16);
                let bytes = region.bytes_mut(frame).first_chunk_mut::<FRAME_LEN>();
                *bytes.expect("the window was just set") = template;
            }
            Next::More
        });
        let clock = Clock::start();
        let limit = RateLimit::new(1000, 50);
        let (worker, stats) =
            worker(domain, routing, pool, source, [sink(), sink()], limit, clock)?;
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
