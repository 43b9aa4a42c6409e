//! Packets that programs in the kernel have copied for a capture of `manylane accelerate`: a ring for each CPU; and beside
//! these what workers have copied.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use manylane_io::bpf::perf::{Entry, RingReader};
use manylane_io::packet_ring::{RingError, Statistics};
use rustix::time::{ClockId, clock_gettime};

use super::copied::Copied;
use super::workers::WorkerRing;

/// Reads the rings of all CPUs, oldest packet first.
pub struct CpuRings {
    rings: Vec<CpuRing>,
    workers: Option<WorkerRing>,
    /// Records that found no room, as the rings have told.
    lost: u64,
}

struct CpuRing {
    reader: RingReader,
    cpu: u32,
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
    /// Reads rings of `bytes` bytes each, by their CPUs.
    pub fn new(rings: Vec<(u32, OwnedFd)>, bytes: usize) -> io::Result<CpuRings> {
        let ring =
            |(cpu, fd)| Ok(CpuRing { reader: RingReader::new(fd, bytes)?, cpu, oldest_ns: None });
        let rings = rings.into_iter().map(ring).collect::<io::Result<_>>()?;
        Ok(CpuRings { rings, workers: None, lost: 0 })
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
            ring.look(&mut self.lost);
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

    /// Packets that found no room so far, as far as the rings have told.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

impl CpuRing {
    /// Finds out when the oldest packet was seen.
    fn look(&mut self, lost: &mut u64) {
        while self.oldest_ns.is_none() {
            match self.reader.peek() {
                None => return,
                Some(Entry::Record(record)) => match record.first_chunk() {
                    Some(time) => self.oldest_ns = Some(u64::from_ne_bytes(*time)),
                    None => self.reader.take(),
                },
                Some(Entry::Lost(count)) => {
                    *lost += count;
                    self.reader.take();
                }
            }
        }
    }

    fn give(&mut self, see: &mut impl FnMut(&Copied<'_>) -> bool) -> bool {
        let goes_on = match self.reader.peek() {
            Some(Entry::Record(record)) => {
                Copied::read(record, self.cpu).is_none_or(|copied| see(&copied))
            }
            _ => true,
        };
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
