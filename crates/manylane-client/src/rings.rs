//! Packets that programs in the kernel have copied for a capture of `manylane accelerate`: a ring for each CPU.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use manylane_io::bpf::perf::{Entry, RingReader};
use rustix::time::{ClockId, clock_gettime};

/// Reads the rings of all CPUs, oldest packet first.
pub struct CpuRings {
    rings: Vec<CpuRing>,
    /// Records that found no room, as the rings have told.
    lost: u64,
}

struct CpuRing {
    reader: RingReader,
    cpu: u32,
    /// When the oldest packet was seen, if one waits.
    oldest_ns: Option<u64>,
}

/// A packet as a program saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied<'r> {
    /// When it was seen, in nanoseconds of the monotonic clock.
    pub time_ns: u64,
    /// Its bytes on the wire.
    pub len: u32,
    /// The port's number.
    pub port: u16,
    /// The queue that it was received by.
    pub queue: u16,
    /// The CPU that saw it.
    pub cpu: u32,
    /// 0 received, 1 transmitted, 2 dropped, 3 left to the kernel.
    pub point: u8,
    /// Why it is left to the kernel.
    pub verdict: u8,
    /// Whether the reader has to run the filter on these bytes.
    pub is_undecided: bool,
    /// The tag that the kernel took off: its protocol, and the tag, which stood behind the first 12 bytes.
    pub tag: Option<[u8; 4]>,
    /// The first of its bytes, or all, without the tag.
    pub bytes: &'r [u8],
}

impl CpuRings {
    /// Reads rings of `bytes` bytes each, by their CPUs.
    pub fn new(rings: Vec<(u32, OwnedFd)>, bytes: usize) -> io::Result<CpuRings> {
        let ring =
            |(cpu, fd)| Ok(CpuRing { reader: RingReader::new(fd, bytes)?, cpu, oldest_ns: None });
        let rings = rings.into_iter().map(ring).collect::<io::Result<_>>()?;
        Ok(CpuRings { rings, lost: 0 })
    }

    /// Gives the packets that were seen [`SETTLED`] ago and more to `see`, in the order of time, until it returns false.
    /// Returns whether it gave any.
    pub fn receive(&mut self, mut see: impl FnMut(&Copied<'_>) -> bool) -> bool {
        let settled = now().saturating_sub(SETTLED.as_nanos() as u64);
        let mut gave = false;
        loop {
            for ring in &mut self.rings {
                ring.look(&mut self.lost);
            }
            let waiting = self.rings.iter_mut().filter(|ring| ring.oldest_ns.is_some());
            let Some(ring) = waiting.min_by_key(|ring| ring.oldest_ns) else { return gave };
            if ring.oldest_ns > Some(settled) {
                return gave;
            }
            let goes_on = ring.give(&mut see);
            gave = true;
            if !goes_on {
                return gave;
            }
        }
    }

    /// Whether a packet waits, which [`receive`](Self::receive) gives when it is settled.
    pub fn is_waiting(&mut self) -> bool {
        self.rings.iter_mut().any(|ring| {
            ring.look(&mut self.lost);
            ring.oldest_ns.is_some()
        })
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

impl Copied<'_> {
    /// A record as `capture.bpf.c` of `manylane-accelerate` writes it. `None` if it is none.
    fn read(record: &[u8], cpu: u32) -> Option<Copied<'_>> {
        let (head, bytes) = record.split_first_chunk::<HEAD>()?;
        let half = |at: usize| u16::from_ne_bytes([head[at], head[at + 1]]);
        let word =
            |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let time_ns = u64::from(word(0)) | u64::from(word(4)) << 32;
        let kept = (word(12) as usize).min(bytes.len());
        let [tag_high, tag_low] = half(24).to_be_bytes();
        let tag = [head[26], head[27], tag_high, tag_low];
        Some(Copied {
            time_ns,
            len: word(8),
            port: half(16),
            queue: half(18),
            cpu,
            point: head[20],
            verdict: head[21],
            is_undecided: head[22] & UNDECIDED != 0,
            tag: (head[22] & TAGGED != 0).then_some(tag),
            bytes: &bytes[..kept],
        })
    }
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A program writes its record within this time of the record's own: then no older one comes.
pub const SETTLED: Duration = Duration::from_millis(1);

const HEAD: usize = 32;
const UNDECIDED: u8 = 1;
const TAGGED: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_the_program_writes_it() {
        let mut record = Vec::new();
        record.extend(0x0102_0304_0506_0708_u64.to_ne_bytes());
        record.extend(1500_u32.to_ne_bytes());
        record.extend(3_u32.to_ne_bytes());
        record.extend(7_u16.to_ne_bytes());
        record.extend(2_u16.to_ne_bytes());
        record.extend([3, 9, UNDECIDED | TAGGED, 0]);
        record.extend(0xa064_u16.to_ne_bytes());
        record.extend([0x81, 0x00, 0, 0, 0, 0]);
        record.extend([5, 6, 7, 0]);
        let copied = Copied::read(&record, 4).expect("it is whole");
        let expected = Copied {
            time_ns: 0x0102_0304_0506_0708,
            len: 1500,
            port: 7,
            queue: 2,
            cpu: 4,
            point: 3,
            verdict: 9,
            is_undecided: true,
            tag: Some([0x81, 0x00, 0xa0, 0x64]),
            bytes: &[5, 6, 7],
        };
        assert_eq!(copied, expected);
        for len in 0..record.len() {
            assert_eq!(Copied::read(&record[..len], 4).is_some(), len >= HEAD);
        }
    }
}
