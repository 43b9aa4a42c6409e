//! Rings that programs copy packets into, one for each CPU, in one table that a reader has mapped, too.
//!
//! | byte of the table          | what                                                                                |
//! |----------------------------|-------------------------------------------------------------------------------------|
//! | CPU's number * 128         | where the CPU's ring begins; 0 if it has none                                       |
//! | ... + 8                    | `written`: bytes that the CPU's programs ever wrote to it                           |
//! | ... + 16, + 24             | packets that were wanted, and those of them that found no room                      |
//! | ... + 64                   | `taken`: bytes that the reader ever took, in a line that only the reader writes     |
//! | a ring's                   | records, each of a multiple of 8 bytes, which begins with its length (32 bits)      |
//!
//! A record begins at `written` modulo the ring's size, and may end behind the ring, where [`BEHIND`] bytes are free: no
//! record is in two pieces. A program never waits for the reader. What finds no room is counted and lost.
//!
//! The protocol is that of `manylane_sync::ring`, whose loom test (`ring_items_arrive_whole_and_in_order`) stands for this
//! one: loom sees no memory of the kernel. `records_are_whole_while_they_are_written` in `manylane-accelerate`'s
//! `tests/programs/capture.rs` holds the programs against this reader.

#![allow(
    clippy::disallowed_types,
    reason = "the kernel's programs write these words, too: no memory of loom's"
)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use manylane_sync::primitive::foreign::{AtomicU64, Ordering};

use super::maps::{self, Mapping};
use super::object::Meant;

/// The rings of all CPUs that the machine has.
pub struct Rings {
    map: OwnedFd,
    memory: Mapping,
    shape: Shape,
}

/// How the table is parted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// CPUs that have words.
    pub cpus: usize,
    /// Bytes of each ring, a power of two.
    pub ring: usize,
    /// Bytes of the table.
    pub table: usize,
}

/// What programs have counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Packets that passed the filter, or about which their reader decides.
    pub matched: u64,
    /// Packets of them that found no room.
    pub lost: u64,
}

impl Rings {
    /// Makes a ring of `ring` bytes, a power of two, for each CPU that the machine has.
    pub fn new(ring: usize) -> io::Result<Rings> {
        let cpus = maps::cpus()?;
        let present: Vec<_> = maps::present()?.into_iter().filter(|&cpu| cpu < cpus).collect();
        let first = (cpus * OF_CPU).next_multiple_of(LINE);
        let shape = Shape { cpus, ring, table: first + present.len() * (ring + BEHIND) };
        if !shape.is_sound() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let map = maps::table("packets", shape.table)?;
        let memory = Mapping::of(map.as_fd(), shape.table)?;
        for (number, cpu) in present.into_iter().enumerate() {
            let begin = first + number * (ring + BEHIND);
            // Relaxed: no program has the map yet.
            word(&memory, cpu * OF_CPU + RING).store(begin as u64, Ordering::Relaxed);
        }
        Ok(Rings { map, memory, shape })
    }

    /// The table's descriptor, for a reader.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// How the table is parted.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// What a name in a program stands for.
    pub fn meant(&self, name: &str) -> Option<Meant> {
        let Shape { cpus, ring, table } = self.shape;
        match name {
            "packets" => Some(Meant::Table(self.map.as_raw_fd())),
            "packets_cpus" => Some(Meant::Number(cpus as u64)),
            "ring_bytes" => Some(Meant::Number(ring as u64)),
            "ring_last" => Some(Meant::Number((table - ring - BEHIND) as u64)),
            _ => None,
        }
    }

    /// What was counted so far.
    pub fn counted(&self) -> Counted {
        counted(&self.memory, self.shape)
    }
}

impl Shape {
    fn is_sound(&self) -> bool {
        let words = self.cpus.checked_mul(OF_CPU);
        let rest = words.and_then(|words| self.table.checked_sub(words));
        let ring = self.ring.checked_add(BEHIND);
        self.ring.is_power_of_two()
            && self.ring >= LINE
            && ring.zip(rest).is_some_and(|(ring, rest)| ring <= rest)
    }
}

/// Reads a CPU's ring, in this process or in another one that got the table's descriptor. A ring has one reader.
pub struct CpuRingReader {
    memory: Arc<Mapping>,
    shape: Shape,
    cpu: usize,
    begin: usize,
    /// Bytes taken so far, and how many of these the programs know of.
    taken: u64,
    published: u64,
    /// Bytes written, when that word was last loaded.
    written: u64,
    record: Vec<u8>,
}

impl CpuRingReader {
    /// Readers of all rings of this table.
    pub fn all(table: BorrowedFd<'_>, shape: Shape) -> io::Result<Vec<CpuRingReader>> {
        if !shape.is_sound() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let memory = Arc::new(Mapping::of(table, shape.table)?);
        let mut readers = Vec::new();
        for cpu in 0..shape.cpus {
            // Relaxed: stands since before this process got the table.
            let begin = word(&memory, cpu * OF_CPU + RING).load(Ordering::Relaxed) as usize;
            if begin == 0 {
                continue;
            }
            let is_inside = begin.is_multiple_of(8) && begin <= shape.table - shape.ring - BEHIND;
            if !is_inside || begin < shape.cpus * OF_CPU {
                return Err(io::ErrorKind::InvalidData.into());
            }
            // Relaxed: a reader before this one is gone, and its word stays.
            let taken = word(&memory, cpu * OF_CPU + TAKEN).load(Ordering::Relaxed);
            let (memory, published, written) = (memory.clone(), taken, taken);
            let record = Vec::new();
            readers.push(CpuRingReader {
                memory,
                shape,
                cpu,
                begin,
                taken,
                published,
                written,
                record,
            });
        }
        Ok(readers)
    }

    /// The CPU whose ring it is.
    pub fn cpu(&self) -> usize {
        self.cpu
    }

    /// What programs have counted for the rings of all CPUs.
    pub fn counted(&self) -> Counted {
        counted(&self.memory, self.shape)
    }

    /// The oldest record, if any; it stays until [`take`](Self::take).
    pub fn peek(&mut self) -> Option<&[u8]> {
        if self.taken == self.written {
            self.publish();
            // Acquire: pairs with the exchange behind which a program writes nothing of the record. So the bytes up to
            // here are whole.
            self.written = word(&self.memory, self.cpu * OF_CPU + WRITTEN).load(Ordering::Acquire);
        }
        let len = self.next_len()?;
        let mut record = std::mem::take(&mut self.record);
        record.resize(len, 0);
        self.memory.read(self.place(), &mut record);
        self.record = record;
        Some(&self.record)
    }

    /// Takes the oldest record out.
    pub fn take(&mut self) {
        if let Some(len) = self.next_len() {
            self.taken = self.taken.wrapping_add(len as u64);
            // Not for each record: the programs read that line for each of theirs.
            if self.taken.wrapping_sub(self.published) >= self.shape.ring as u64 / PARTS {
                self.publish();
            }
        }
    }

    /// Gives the programs the room of what was taken.
    fn publish(&mut self) {
        if self.published != self.taken {
            self.published = self.taken;
            // Release: a program that sees this writes over bytes that were read before.
            word(&self.memory, self.cpu * OF_CPU + TAKEN).store(self.taken, Ordering::Release);
        }
    }

    /// Bytes of the oldest record, if any. None, too, if the memory is not what programs write: then nothing more is read.
    fn next_len(&mut self) -> Option<usize> {
        let waiting = self.written.wrapping_sub(self.taken);
        if waiting == 0 {
            return None;
        }
        let mut len = [0; 4];
        self.memory.read(self.place(), &mut len);
        let len = u32::from_ne_bytes(len) as usize;
        let is_record =
            len.is_multiple_of(8) && (8..=BEHIND).contains(&len) && len as u64 <= waiting;
        if !is_record {
            self.taken = self.written;
            return None;
        }
        Some(len)
    }

    /// Where the oldest record begins.
    fn place(&self) -> usize {
        self.begin + (self.taken as usize & (self.shape.ring - 1) & !7)
    }
}

fn counted(memory: &Mapping, shape: Shape) -> Counted {
    let mut sum = Counted::default();
    for cpu in 0..shape.cpus {
        // Relaxed: each stands for itself.
        let load = |at| word(memory, cpu * OF_CPU + at).load(Ordering::Relaxed);
        sum.lost += load(LOST);
        sum.matched += load(MATCHED);
    }
    sum
}

fn word(memory: &Mapping, at: usize) -> &AtomicU64 {
    let (base, len) = memory.memory();
    assert!(at.is_multiple_of(8) && at + 8 <= len, "the mapping has no word at {at}");
    // SAFETY: `base` points at `len` mapped bytes (`Mapping` invariant 1), which begin at a page: by the assertion 8 of
    // them lie at `at`, aligned. The reference lives no longer than the mapping. All accesses to the word are atomic.
    unsafe { base.add(at).cast::<AtomicU64>().as_ref() }
}

/// Bytes behind each ring, and of a record at most: more than a packet of 65535 bytes and what is known of it.
pub const BEHIND: usize = 68 << 10;
/// Alignment of rings, and bytes of one at least.
const LINE: usize = 4096;
/// Programs get the room of a ring by parts: one of these.
const PARTS: u64 = 16;

// A CPU's words, by their bytes, as in `capture.bpf.c` of `manylane-accelerate`.
const OF_CPU: usize = 128;
const RING: usize = 0;
const WRITTEN: usize = 8;
const MATCHED: usize = 16;
const LOST: usize = 24;
const TAKEN: usize = 64;

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::*;

    const CPUS: usize = 3;
    const RING_LEN: usize = LINE;
    const SHAPE: Shape =
        Shape { cpus: CPUS, ring: RING_LEN, table: LINE + 2 * (RING_LEN + BEHIND) };

    /// A table as a program would write it, with rings for CPUs 0 and 2.
    struct Table(File);

    impl Table {
        fn new() -> Table {
            let file = memfd_create("table", MFdFlags::MFD_CLOEXEC).expect("there is memory");
            let table = Table(file.into());
            table.0.set_len(SHAPE.table as u64).expect("there is memory");
            table.set(0, RING, LINE as u64);
            table.set(2, RING, (LINE + RING_LEN + BEHIND) as u64);
            table
        }

        fn set(&self, cpu: usize, word: usize, value: u64) {
            self.write(cpu * OF_CPU + word, &value.to_ne_bytes());
        }

        fn word(&self, cpu: usize, word: usize) -> u64 {
            let mut value = [0; 8];
            let at = (cpu * OF_CPU + word) as u64;
            self.0.read_exact_at(&mut value, at).expect("it is so long");
            u64::from_ne_bytes(value)
        }

        fn write(&self, at: usize, bytes: &[u8]) {
            self.0.write_all_at(bytes, at as u64).expect("there is memory");
        }

        /// Writes a record of `len` bytes: its length, and behind that `fill`.
        fn push(&self, cpu: usize, len: usize, fill: u8) {
            let (begin, written) = (self.word(cpu, RING), self.word(cpu, WRITTEN));
            let mut record = vec![fill; len];
            record[..4].copy_from_slice(&(len as u32).to_ne_bytes());
            self.write(begin as usize + (written as usize & (RING_LEN - 1)), &record);
            self.set(cpu, WRITTEN, written + len as u64);
        }

        fn readers(&self) -> io::Result<Vec<CpuRingReader>> {
            CpuRingReader::all(self.0.as_fd(), SHAPE)
        }
    }

    #[test]
    fn records_come_in_order_and_around_the_end() {
        let table = Table::new();
        let mut readers = table.readers().expect("it is one");
        assert_eq!(readers.iter().map(CpuRingReader::cpu).collect::<Vec<_>>(), [0, 2]);
        let [_, reader] = &mut readers[..] else { panic!("two CPUs have rings") };
        assert_eq!(reader.peek(), None);
        reader.take(); // Nothing.
        for number in 0..100 {
            let len = 8 + 8 * usize::from(number % 37);
            table.push(2, len, number);
            table.push(2, 16, number);
            for expected in [len, 16] {
                let record = reader.peek().expect("it was pushed");
                assert_eq!(
                    (record.len(), &record[4..]),
                    (expected, &vec![number; expected - 4][..])
                );
                reader.take();
            }
        }
        assert_eq!(reader.peek(), None);
        assert_eq!(table.word(2, TAKEN), table.word(2, WRITTEN), "an empty ring has all its room");
        assert!(table.word(2, WRITTEN) > 3 * RING_LEN as u64, "around the end");
        assert_eq!((table.word(0, TAKEN), table.word(0, WRITTEN)), (0, 0));
        // The programs get room at every sixteenth part of the ring, and when the reader has all.
        let before = table.word(2, TAKEN);
        (0..20).for_each(|_| table.push(2, 16, 7));
        for taken in 1..20 {
            assert_eq!(reader.peek().map(<[u8]>::len), Some(16));
            reader.take();
            let published = if taken < 16 { 0 } else { RING_LEN as u64 / PARTS };
            assert_eq!(table.word(2, TAKEN) - before, published, "{taken} records");
        }
        // The next reader begins where this one was known to be.
        let next = table.readers().expect("it is one").pop().expect("it has two");
        assert_eq!(next.taken, before + RING_LEN as u64 / PARTS);
    }

    #[test]
    fn counts_are_summed() {
        let table = Table::new();
        let readers = table.readers().expect("it is one");
        for (cpu, matched, lost) in [(0, 5, 1), (1, 2, 2), (2, 10, 0)] {
            table.set(cpu, MATCHED, matched);
            table.set(cpu, LOST, lost);
        }
        assert_eq!(readers[0].counted(), Counted { matched: 17, lost: 3 });
    }

    #[test]
    fn a_table_that_is_none_is_refused_and_never_left() {
        let table = Table::new();
        let all = |shape| CpuRingReader::all(table.0.as_fd(), shape).map(|readers| readers.len());
        for shape in [
            Shape { ring: 3000, ..SHAPE },
            Shape { ring: 2048, ..SHAPE },
            Shape { ring: 1 << 63, ..SHAPE },
            Shape { cpus: usize::MAX, ..SHAPE },
            Shape { table: BEHIND, ..SHAPE },
        ] {
            let refused = all(shape).expect_err("it is none");
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{shape:?}");
        }
        for begin in [8, LINE + 4, SHAPE.table - RING_LEN, usize::MAX & !7] {
            table.set(0, RING, begin as u64);
            let refused = all(SHAPE).expect_err("a ring is elsewhere");
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{begin}");
        }
        table.set(0, RING, LINE as u64);
        // What no program writes ends the reading, and what comes then is read again.
        for len in [0, 4, 12, BEHIND + 8, RING_LEN, usize::MAX & !7] {
            let mut readers = table.readers().expect("it is one");
            table.push(0, 16, 0);
            let at = LINE + ((table.word(0, WRITTEN) as usize - 16) & (RING_LEN - 1));
            table.write(at, &(len as u32).to_ne_bytes());
            assert_eq!(readers[0].peek(), None, "{len} bytes");
            table.push(0, 16, 9);
            assert_eq!(readers[0].peek().map(|record| record[15]), Some(9));
            readers[0].take();
            assert_eq!(readers[0].peek(), None);
        }
    }
}
