//! Packets that programs in the kernel have copied for a capture of `manylane accelerate`: a ring for each CPU; and beside
//! these what workers have copied.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use manylane_io::bpf::rings::{Counted, CpuRingReader, Shape};
use manylane_io::packet_ring::{RingError, Statistics};
use rustix::time::{ClockId, clock_gettime};

use super::copied::Copied;
use super::workers::WorkerRing;

/// Reads the rings of all CPUs, oldest packet first.
#[derive(Default)]
pub struct CpuRings {
    rings: Vec<CpuRing>,
    workers: Option<WorkerRing>,
}

struct CpuRing {
    reader: CpuRingReader,
    /// When the oldest packet was seen, if one waits.
    oldest_ns: Option<u64>,
}

/// Where a packet waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Cpu(usize),
    Lane(usize),
}

impl CpuRings {
    /// Reads the rings of this table.
    pub fn new(table: BorrowedFd<'_>, shape: Shape) -> io::Result<CpuRings> {
        let ring = |reader| CpuRing { reader, oldest_ns: None };
        let rings = CpuRingReader::all(table, shape)?.into_iter().map(ring).collect();
        Ok(CpuRings { rings, workers: None })
    }

    /// Reads the ring of workers, too.
    pub fn add_workers(&mut self, memfd: OwnedFd) -> Result<(), RingError> {
        self.workers = Some(WorkerRing::open(memfd)?);
        Ok(())
    }

    /// Gives the packets that were seen [`SETTLED`] ago and more to `see`, in the order of time, until it returns false.
    /// With a ring of workers, packets wait for [`WORKERS_SETTLED`]. Returns whether it gave any.
    pub fn receive(&mut self, mut see: impl FnMut(&Copied<'_>) -> bool) -> bool {
        let wait = if self.workers.is_some() { WORKERS_SETTLED } else { SETTLED };
        let settled = now().saturating_sub(wait.as_nanos() as u64);
        let mut gave = false;
        while let Some((time_ns, place)) = self.oldest() {
            if time_ns > settled {
                break;
            }
            let goes_on = match (place, &mut self.workers) {
                (Place::Lane(lane), Some(workers)) => workers.give(lane, &mut see),
                (Place::Cpu(at), _) => self.rings[at].give(&mut see),
                (Place::Lane(_), None) => true,
            };
            gave = true;
            if !goes_on {
                break;
            }
        }
        gave
    }

    /// When the oldest packet that waits was seen, and where it is.
    fn oldest(&mut self) -> Option<(u64, Place)> {
        for ring in &mut self.rings {
            ring.look();
        }
        let first = |(at, ring): (usize, &CpuRing)| Some((ring.oldest_ns?, Place::Cpu(at)));
        let ring = self.rings.iter().enumerate().filter_map(first).min();
        let lane = self.workers.as_mut().and_then(WorkerRing::oldest);
        let lane = lane.map(|(time_ns, lane)| (time_ns, Place::Lane(lane)));
        ring.into_iter().chain(lane).min()
    }

    /// Whether a packet waits, which [`receive`](Self::receive) gives when it is settled.
    pub fn is_waiting(&mut self) -> bool {
        self.oldest().is_some()
    }

    /// What workers have counted.
    pub fn of_workers(&self) -> Statistics {
        self.workers.as_ref().map_or_else(Statistics::default, WorkerRing::statistics)
    }

    /// What programs have counted.
    pub fn of_programs(&self) -> Counted {
        self.rings.first().map_or_else(Counted::default, |ring| ring.reader.counted())
    }
}

impl CpuRing {
    /// Finds out when the oldest packet was seen.
    fn look(&mut self) {
        while self.oldest_ns.is_none() {
            let Some(record) = self.reader.peek() else { return };
            match Copied::time_ns(record) {
                Some(time_ns) => self.oldest_ns = Some(time_ns),
                None => self.reader.take(),
            }
        }
    }

    fn give(&mut self, see: &mut impl FnMut(&Copied<'_>) -> bool) -> bool {
        let cpu = self.reader.cpu() as u32; // 8192 at most.
        let copied = self.reader.peek().and_then(|record| Copied::read(record, cpu));
        let goes_on = copied.is_none_or(|copied| see(&copied));
        self.reader.take();
        self.oldest_ns = None;
        goes_on
    }
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A program writes its record within this time of the record's own: then no older one comes.
pub const SETTLED: Duration = Duration::from_millis(1);

/// A worker publishes its packets within this time, unless it is kept from running: a millisecond, and its turn.
pub const WORKERS_SETTLED: Duration = Duration::from_millis(5);
