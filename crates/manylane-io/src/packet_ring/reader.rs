//! The reading end: blocks are borrowed, read and returned.
//!
//! The reader may be in another process than the writer, and the writer may be of another version or have died in the
//! middle of a record. So nothing read here is used before it is checked.

use std::cell::Cell;
use std::marker::PhantomData;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use manylane_sync::blocks;
use manylane_sync::hook::Generation;
use manylane_sync::primitive::foreign::Ordering;

use super::lane::{Lane, Totals};
use super::layout::{BLOCK_HEADER, Count, InBlock, SLEEPS};
use super::memory::{Blocks, Memory};
use super::record::{ALIGN, HEADER, Header, Record};

/// The reading ends of all lanes of a ring.
pub struct Readers {
    memory: Arc<Memory>,
    lanes: Vec<Reader>,
}

impl Readers {
    /// Call it once for each mapping: two sets of readers would take each other's blocks.
    pub(super) fn new(memory: Arc<Memory>) -> Readers {
        let lane = |lane| Reader {
            blocks: blocks::Reader::new(Blocks::new(memory.clone(), lane)),
            damaged: Cell::new(0),
        };
        let lanes = (0..memory.layout().lanes()).map(lane).collect();
        Readers { memory, lanes }
    }

    /// Sleeps by `wait`, unless a block is pending. A worker that publishes one meanwhile, and checks whether we
    /// sleep, sees that we do: `wait` ends when that worker has woken us. `None` when no sleep was needed.
    pub fn sleep<R>(&self, wait: impl FnOnce() -> R) -> Option<R> {
        let has_work = || self.lanes.iter().any(Reader::is_waiting);
        blocks::sleep(self.memory.word(SLEEPS), has_work, wait)
    }

    /// Resets the ring for another socket: empty, every count 0. False, with nothing changed, if one of `lanes` has
    /// another holder, or they are not this ring's lanes in order.
    pub fn recycle(&mut self, lanes: &mut [Arc<Lane>], retire_ns: u64) -> bool {
        let ours = lanes.len() == self.lanes.len()
            && lanes
                .iter_mut()
                .zip(&self.lanes)
                .all(|(lane, reader)| lane.is_of(&reader.blocks) && Arc::get_mut(lane).is_some());
        if ours {
            for (lane, reader) in lanes.iter_mut().zip(&mut self.lanes) {
                let lane = Arc::get_mut(lane).expect("just looked at, and nobody can clone it");
                lane.recycle(&mut reader.blocks, retire_ns);
                reader.damaged.set(0);
            }
        }
        ours
    }
}

impl Deref for Readers {
    type Target = [Reader];

    fn deref(&self) -> &[Reader] {
        &self.lanes
    }
}

impl DerefMut for Readers {
    fn deref_mut(&mut self) -> &mut [Reader] {
        &mut self.lanes
    }
}

/// The reading end of one lane.
pub struct Reader {
    blocks: blocks::Reader<Blocks>,
    damaged: Cell<u64>,
}

impl Reader {
    /// The oldest published block. Dropping it returns it to the writer.
    pub fn borrow(&mut self) -> Option<Block<'_>> {
        let held = self.blocks.borrow()?;
        let (block, blocks) = (held.block(), held.statuses());
        // Relaxed: `borrow` has ordered what was published.
        let word = |word: InBlock| blocks.word(block, word).load(Ordering::Relaxed);
        let room = blocks.block_size() - BLOCK_HEADER;
        let bytes = usize::try_from(word(InBlock::Bytes)).unwrap_or(usize::MAX);
        if bytes > room || !bytes.is_multiple_of(ALIGN) {
            self.damaged.set(self.damaged.get() + 1);
        }
        // SAFETY: a block is longer than its header.
        let records = unsafe { blocks.block(block).add(BLOCK_HEADER) };
        Some(Block {
            records,
            // A multiple of 8: `room` is one.
            bytes: bytes.min(room) / ALIGN * ALIGN,
            packets: word(InBlock::Packets),
            generation: Generation(word(InBlock::Generation)),
            damaged: &self.damaged,
            _held: held,
        })
    }

    /// The generation of the oldest published block, and the time of its first packet in nanoseconds since 1970. The
    /// block stays published.
    pub fn peek(&mut self) -> Option<(Generation, u64)> {
        let damaged = self.damaged.get();
        let block = self.borrow()?;
        let seen = (block.generation(), block.first_ns().unwrap_or_default());
        mem::forget(block); // Only a drop gives it back.
        self.damaged.set(damaged); // The next `borrow` counts it.
        Some(seen)
    }

    /// Whether a block can be borrowed.
    pub fn is_waiting(&self) -> bool {
        self.blocks.is_waiting()
    }

    /// The lane's counts of written and lost packets, as the writer reports them.
    pub fn totals(&self) -> Totals {
        // Relaxed: each counter is whole, and orders nothing.
        let total = |count| self.blocks.statuses().total(count).load(Ordering::Relaxed);
        Totals {
            packets: total(Count::Packets),
            bytes: total(Count::Bytes),
            lost: total(Count::Lost),
            clamped: total(Count::Clamped),
        }
    }

    /// Blocks whose records contradict the block's header. Always 0 with a writer of our version.
    pub fn damaged(&self) -> u64 {
        self.damaged.get()
    }
}

/// A published block, ours until it is dropped.
///
/// # Invariants
///
/// 1. `records` points at `bytes` bytes, aligned to 8, that no party writes while the block is held.
pub struct Block<'a> {
    records: NonNull<u8>,
    bytes: usize,
    packets: u64,
    generation: Generation,
    damaged: &'a Cell<u64>,
    _held: blocks::Borrowed<'a, Blocks>,
}

impl Block<'_> {
    /// The generation of the binding by which its packets arrived.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The number of packets, by its header.
    pub fn len(&self) -> u64 {
        self.packets
    }

    /// False unless the block is damaged.
    pub fn is_empty(&self) -> bool {
        self.packets == 0
    }

    /// The time of its first packet, in nanoseconds since 1970.
    pub fn first_ns(&self) -> Option<u64> {
        self.packets().next().map(|packet| packet.record.time_ns)
    }

    /// Its packets, in the order in which they were pushed.
    pub fn packets(&self) -> Packets<'_> {
        self.packets_from(Position { offset: 0, packets_left: self.packets })
    }

    /// Its packets from a position on, which must be of this block: with another block's it returns damage or nonsense.
    pub fn packets_from(&self, position: Position) -> Packets<'_> {
        let offset = position.offset.min(self.bytes);
        Packets {
            // SAFETY: no more than `bytes` are there (invariant 1). The offset of a position is a multiple of 8;
            // where `bytes` is less, nothing is left.
            next: unsafe { self.records.add(offset) },
            offset,
            left: self.bytes - offset,
            packets: position.packets_left,
            damaged: self.damaged,
            block: PhantomData,
        }
    }
}

/// The packets of a [`Block`].
///
/// # Invariants
///
/// 1. `next` points at `left` bytes of the block, and is aligned to 8 unless `left` is 0.
#[derive(Clone)]
pub struct Packets<'a> {
    next: NonNull<u8>,
    /// From the first record.
    offset: usize,
    left: usize,
    packets: u64,
    damaged: &'a Cell<u64>,
    block: PhantomData<&'a [u8]>,
}

/// A position between two packets of a [`Block`], for borrowing the block again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// From the first record: a multiple of 8, or the end.
    offset: usize,
    packets_left: u64,
}

/// A packet in a [`Block`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Its metadata.
    pub record: Record,
    /// Its first bytes, as many as were kept.
    pub bytes: &'a [u8],
}

impl<'a> Packets<'a> {
    /// The position after the packets returned so far.
    pub fn place(&self) -> Position {
        Position { offset: self.offset, packets_left: self.packets }
    }

    /// The next record, if it lies in the block and is valid.
    fn parse(&mut self) -> Option<Packet<'a>> {
        let room = self.left.checked_sub(HEADER)?;
        // SAFETY: `HEADER` bytes are left and aligned (invariant 1), and any bits are a header. This reads
        // it once: the checked value is the used one.
        let header = unsafe { self.next.cast::<Header>().read_volatile() };
        let captured = header.captured();
        if captured > room {
            return None;
        }
        let record = header.record()?;
        // SAFETY: `HEADER + captured` bytes are left (just asked).
        let bytes = unsafe { self.next.add(HEADER) };
        // SAFETY: the conditions of `from_raw_parts`:
        // - `captured` bytes are left, mapped while the reader lives, whose block we borrow for 'a;
        // - initialised: the kernel hands out zeroed pages, and writers write whole bytes;
        // - not written during 'a: the block is ours until it is returned, which its borrow forbids.
        //   In another process that relies on the daemon, as everything read from the ring does.
        let bytes = unsafe { slice::from_raw_parts(bytes.as_ptr(), captured) };
        let size = (HEADER + captured).next_multiple_of(ALIGN).min(self.left);
        // SAFETY: `size <= left`; aligned, but at the very end of the block, where nothing is left.
        self.next = unsafe { self.next.add(size) };
        (self.offset, self.left) = (self.offset + size, self.left - size);
        Some(Packet { record, bytes })
    }
}

impl<'a> Iterator for Packets<'a> {
    type Item = Packet<'a>;

    #[inline]
    fn next(&mut self) -> Option<Packet<'a>> {
        self.packets = self.packets.checked_sub(1)?;
        let packet = self.parse();
        if packet.is_none() {
            self.packets = 0;
            self.damaged.set(self.damaged.get() + 1);
        }
        packet
    }
}
