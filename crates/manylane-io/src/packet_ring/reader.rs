//! The reading end: blocks borrowed, looked through, given back.
//!
//! It may be another process than the one that writes, and that one of another version, or gone in the
//! middle of something. So nothing that is read here is followed before it is checked.

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
    /// To be called once for a mapping, or the readers take each other's blocks.
    pub(super) fn new(memory: Arc<Memory>) -> Readers {
        let lane = |lane| Reader {
            blocks: blocks::Reader::new(Blocks::new(memory.clone(), lane)),
            damaged: Cell::new(0),
        };
        let lanes = (0..memory.layout().lanes()).map(lane).collect();
        Readers { memory, lanes }
    }

    /// Sleeps by `wait`, unless a block is waiting. Who publishes one meanwhile, and asks whether we
    /// sleep, is told so: `wait` ends when it has woken us. `None` when it did not sleep.
    pub fn sleep<R>(&self, wait: impl FnOnce() -> R) -> Option<R> {
        let has_work = || self.lanes.iter().any(Reader::is_waiting);
        blocks::sleep(self.memory.word(SLEEPS), has_work, wait)
    }

    /// Makes the ring new, for another socket: nothing is in it and every count is 0. False, and nothing
    /// changed, if somebody else holds one of `lanes`, or they are not this ring's lanes in order.
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
    /// The oldest published block. It goes back to the writer when it is dropped.
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

    /// The generation of the oldest published block, and the time of its first packet in nanoseconds since 1970.
    /// It stays.
    pub fn peek(&mut self) -> Option<(Generation, u64)> {
        let damaged = self.damaged.get();
        let block = self.borrow()?;
        let seen = (block.generation(), block.first_ns().unwrap_or_default());
        mem::forget(block); // Only a drop gives it back.
        self.damaged.set(damaged); // Counted by who reads it.
        Some(seen)
    }

    /// Whether there is a block to borrow.
    pub fn is_waiting(&self) -> bool {
        self.blocks.is_waiting()
    }

    /// What the lane says that it has written and lost.
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

    /// Blocks whose records were not what the block says. None, with a writer of our version.
    pub fn damaged(&self) -> u64 {
        self.damaged.get()
    }
}

/// A published block, ours until it is dropped.
///
/// # Invariants
///
/// 1. `records` points at `bytes` bytes, aligned to 8, that nobody writes while the block is held.
pub struct Block<'a> {
    records: NonNull<u8>,
    bytes: usize,
    packets: u64,
    generation: Generation,
    damaged: &'a Cell<u64>,
    _held: blocks::Borrowed<'a, Blocks>,
}

impl Block<'_> {
    /// The binding that its packets came by.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// How many packets it says it has.
    pub fn len(&self) -> u64 {
        self.packets
    }

    /// Never, if it is not damaged.
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

    /// Its packets from a place on, which is one of this block: of another, it finds damage or nonsense.
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
/// 1. `next` points at `left` bytes of the block, and is aligned to 8 unless there are none.
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

/// A place between two packets of a [`Block`], for who borrows it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// From the first record: a multiple of 8, or the end.
    offset: usize,
    packets_left: u64,
}

/// A packet in a [`Block`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// What is known of it besides its bytes.
    pub record: Record,
    /// What was kept of it: its first bytes.
    pub bytes: &'a [u8],
}

impl<'a> Packets<'a> {
    /// Behind what it has given.
    pub fn place(&self) -> Position {
        Position { offset: self.offset, packets_left: self.packets }
    }

    /// The next record, if it lies in the block and says what there is.
    fn parse(&mut self) -> Option<Packet<'a>> {
        let room = self.left.checked_sub(HEADER)?;
        // SAFETY: `HEADER` bytes are left and aligned (invariant 1), and any bits are a header. It is read
        // once: what is checked is what is used.
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
        // - not written during 'a: the block is ours until it is given back, which its borrow forbids.
        //   In another process that is the daemon's word, as it is for all that the ring says.
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
