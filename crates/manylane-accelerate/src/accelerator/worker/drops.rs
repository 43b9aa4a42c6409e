//! Packets that workers drop, for the exporter of samples: each worker has a bounded ring to it, and waits for nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};

use manylane_net::transit::Verdict;
use manylane_sync::counters::{CounterReader, Counters};
use manylane_sync::ring::{Consumer, Producer, ring};

/// A packet that a worker dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct WorkerDrop {
    /// The ingress port's number.
    pub port: u16,
    /// What the worker decided, if that is why; without, its egress port had no place.
    pub verdict: Option<Verdict>,
    /// Its bytes.
    pub len: u32,
    header_len: u8,
    header: [u8; HEADER_MAX],
}

impl WorkerDrop {
    /// A packet of these bytes.
    pub fn new(port: u16, verdict: Option<Verdict>, bytes: &[u8]) -> WorkerDrop {
        let mut header = [0; HEADER_MAX];
        let header_len = bytes.len().min(HEADER_MAX);
        header[..header_len].copy_from_slice(&bytes[..header_len]);
        // A frame of the pool is shorter than a u32 says.
        WorkerDrop { port, verdict, len: bytes.len() as u32, header_len: header_len as u8, header }
    }

    /// Its first bytes.
    pub fn header(&self) -> &[u8] {
        &self.header[..usize::from(self.header_len)]
    }
}

/// A worker's end.
pub(in super::super) struct DropNotes {
    ring: Producer<WorkerDrop>,
    missed: Counters,
    /// Which verdicts are noted: a bit for each.
    wanted: u32,
    max: u32,
    second_ns: u64,
    done: u32,
}

/// The exporter's end of one worker's.
struct DropReader {
    ring: Consumer<WorkerDrop>,
    missed: CounterReader,
}

/// The exporter's ends. Empty until workers start.
pub(in super::super) struct WorkerDrops {
    readers: Mutex<Vec<DropReader>>,
    wanted: u32,
}

impl DropNotes {
    /// Notes a packet that is dropped, if its verdict is wanted and the present second has room for it.
    pub fn note(&mut self, dropped: WorkerDrop, now_ns: u64) {
        if dropped.verdict.is_some_and(|verdict| self.wanted & bit(verdict as u8) == 0) {
            return;
        }
        if now_ns.saturating_sub(self.second_ns) >= SECOND_NS {
            (self.second_ns, self.done) = (now_ns, 0);
        }
        let has_room = self.done < self.max;
        if has_room && self.ring.push(dropped).is_ok() {
            self.done += 1;
            self.ring.submit();
        } else {
            self.missed.add(usize::from(dropped.port) % PORTS, 1);
        }
    }
}

impl WorkerDrops {
    /// For drops for want of a place, and for these verdicts.
    pub fn new(verdicts: &[u8]) -> WorkerDrops {
        let wanted = verdicts.iter().fold(0, |wanted, &verdict| wanted | bit(verdict));
        WorkerDrops { readers: Mutex::default(), wanted }
    }

    /// The end of another worker, which notes at most `max` drops in a second.
    pub fn add(&self, max: u32) -> DropNotes {
        let (producer, consumer) = ring(NOTES);
        let missed = Counters::new(PORTS);
        self.lock().push(DropReader { ring: consumer, missed: missed.reader() });
        DropNotes { ring: producer, missed, wanted: self.wanted, max, second_ns: 0, done: 0 }
    }

    /// What workers have dropped since the last call.
    pub fn take(&self) -> Vec<WorkerDrop> {
        let mut taken = Vec::new();
        for reader in &mut *self.lock() {
            taken.extend(reader.ring.pop_up_to(NOTES));
            reader.ring.release();
        }
        taken
    }

    /// Packets of a port that no worker has noted: too many in a second.
    pub fn missed(&self, port: u16) -> u64 {
        let of_worker = |reader: &DropReader| reader.missed.load(usize::from(port) % PORTS);
        self.lock().iter().map(of_worker).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<DropReader>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bit(verdict: u8) -> u32 {
    1 << (verdict & 31)
}

const HEADER_MAX: usize = 128;
/// Places in a worker's ring: more than a worker notes in two seconds.
const NOTES: usize = 256;
const SECOND_NS: u64 = 1_000_000_000;
const PORTS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_room_for_so_many_and_the_rest_is_counted() {
        let drops = WorkerDrops::new(&[Verdict::NoRoute as u8]);
        let mut notes = drops.add(2);
        let dropped = |port| WorkerDrop::new(port, Some(Verdict::NoRoute), &[7; 200]);
        for now_ns in [0, 1, 2, SECOND_NS] {
            notes.note(dropped(3), now_ns);
            notes.note(WorkerDrop::new(3, Some(Verdict::NoFlow), &[7; 200]), now_ns);
        }
        let taken = drops.take();
        assert_eq!(taken, [dropped(3); 3]);
        assert_eq!((taken[0].len, taken[0].header()), (200, &[7; 128][..]));
        assert_eq!((drops.missed(3), drops.missed(4), drops.take()), (1, 0, vec![]));
    }
}
