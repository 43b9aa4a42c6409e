//! The writing end: a worker's copies of packets.

use std::mem;
use std::ptr::NonNull;
use std::sync::Arc;

use manylane_sync::blocks;
use manylane_sync::counters::{SharedCount, SharedLevel};
use manylane_sync::hook::Generation;
use manylane_sync::primitive::foreign::{AtomicU64, Ordering};

use super::layout::{BLOCK_HEADER, Count, InBlock, Layout, SLEEPS};
use super::memory::{Blocks, Memory};
use super::reader::Readers;
use super::record::{ALIGN, HEADER, Header, Record};
use super::{RingConfig, RingError};

/// Creates a ring of `count` lanes in one process, both ends.
pub fn lanes(config: &RingConfig, count: u32) -> Result<(Vec<Arc<Lane>>, Readers), RingError> {
    let memory = Arc::new(Memory::anonymous(Layout::of(config, count)?)?);
    Ok((Lane::all(&memory, config.retire_ns), Readers::new(memory)))
}

/// Decides when to wake a ring's reader, for a thread that does so on behalf of the workers: a worker rings that
/// thread's bell after publishing, and the thread calls [`take`](Self::take) for each ring.
pub struct Watch {
    lanes: Vec<Arc<Lane>>,
    seen: Vec<u64>,
}

impl Watch {
    /// Watches all lanes of a ring.
    pub fn new(lanes: &[Arc<Lane>]) -> Watch {
        Watch { lanes: lanes.to_vec(), seen: vec![0; lanes.len()] }
    }

    /// Whether a block was published since the last `take`: the last check before the thread sleeps.
    pub fn is_waiting(&self) -> bool {
        self.lanes.iter().zip(&self.seen).any(|(lane, &seen)| lane.published() != seen)
    }

    /// Whether to wake the reader: a block was published since the last call, and the reader sleeps.
    pub fn take(&mut self) -> bool {
        let mut news = false;
        for (lane, seen) in self.lanes.iter().zip(&mut self.seen) {
            let published = lane.published();
            news |= mem::replace(seen, published) != published;
        }
        news && self.lanes.first().is_some_and(|lane| lane.reader_sleeps())
    }
}

/// One worker's part of a ring; any thread that delivers to it may hold it. Its counts are its own: no reader can
/// change them.
#[repr(align(128))]
pub struct Lane {
    blocks: blocks::Lane<Blocks, Cursor>,
    retire_ns: u64,
    /// Whether `end_turn` has work to do.
    open: SharedLevel,
    totals: [AtomicU64; 4],
    time_ns: AtomicU64,
    contended: SharedCount,
}

/// A lane's counts since it was created or recycled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packets in published blocks.
    pub packets: u64,
    /// The bytes kept of those packets.
    pub bytes: u64,
    /// Packets lost because no block was free.
    pub lost: u64,
    /// Packets larger than a block: fewer bytes were kept than requested.
    pub clamped: u64,
}

/// The writer's position in its block.
///
/// # Invariants
///
/// 1. `next` points at `room` bytes of the current block, which is the writer's; both are multiples of 8.
///    `room` is 0 without a current block.
struct Cursor {
    next: NonNull<u8>,
    room: usize,
    generation: Generation,
    block: u32,
    packets: u32,
    /// Bytes of packets kept in this block.
    kept: u64,
    /// When the first turn ended after the block was opened.
    since: Option<u64>,
    /// A block was published that `end_turn` has not reported.
    news: bool,
}

// SAFETY: `next` points into memory that the lane's `Blocks` keep, which any thread may write.
unsafe impl Send for Cursor {}

impl Cursor {
    const fn closed() -> Cursor {
        Cursor {
            next: NonNull::dangling(),
            room: 0,
            generation: Generation(0),
            block: 0,
            packets: 0,
            kept: 0,
            since: None,
            news: false,
        }
    }
}

impl Lane {
    /// The lanes of a ring.
    pub(super) fn all(memory: &Arc<Memory>, retire_ns: u64) -> Vec<Arc<Lane>> {
        let lane = |lane| {
            let [taken, published] = [(); 2].map(|()| AtomicU64::new(0));
            let blocks = Blocks::new(memory.clone(), lane);
            Arc::new(Lane {
                blocks: blocks::Lane::new(blocks, taken, published, Cursor::closed()),
                retire_ns,
                open: SharedLevel::default(),
                totals: Default::default(),
                time_ns: AtomicU64::new(0),
                contended: SharedCount::default(),
            })
        };
        (0..memory.layout().lanes()).map(lane).collect()
    }

    /// The right to write, for a batch. `None`, and counted, while another thread has it.
    #[inline]
    pub fn writer(&self) -> Option<Writer<'_>> {
        let writer = self.blocks.writer();
        if writer.is_none() {
            self.contended.add(1);
        }
        Some(Writer { writer: writer?, lane: self })
    }

    /// Whether [`Writer::end_turn`] has work to do: packets wait in an unpublished block, or a published block was not
    /// reported. For the worker that owns the lane: one load.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.open.load() != 0
    }

    /// Whether the ring's reader sleeps, or is about to. Check it after publishing, or after
    /// [`published`](Self::published) has grown; then wake the reader.
    pub fn reader_sleeps(&self) -> bool {
        blocks::sleeps(self.blocks.statuses().memory().word(SLEEPS))
    }

    /// For the worker that owns the lane: it has spent so much time on what the lane receives.
    #[inline]
    pub fn add_time(&self, ns: u64) {
        // Relaxed, load and store instead of an add: the worker is the only writer.
        let sum = self.time_ns.load(Ordering::Relaxed).wrapping_add(ns);
        self.time_ns.store(sum, Ordering::Relaxed);
    }

    /// What the worker has spent, filters included, since the lane was created or recycled.
    pub fn time_ns(&self) -> u64 {
        // Relaxed: a count orders nothing.
        self.time_ns.load(Ordering::Relaxed)
    }

    /// Frees the pages of the ring's memfd when the last of its lanes is dropped, though another process has the memfd.
    /// Whatever that process touches afterwards are pages of its own: the kernel charges them to it.
    pub fn free_pages_at_end(&self) {
        self.blocks.statuses().memory().free_pages_at_end();
    }

    /// The number of blocks published since the lane was created.
    pub fn published(&self) -> u64 {
        self.blocks.published()
    }

    /// The counts of written and lost packets.
    pub fn totals(&self) -> Totals {
        // Relaxed: each counter is whole, and orders nothing.
        let total = |count: Count| self.totals[count as usize].load(Ordering::Relaxed);
        Totals {
            packets: total(Count::Packets),
            bytes: total(Count::Bytes),
            lost: total(Count::Lost),
            clamped: total(Count::Clamped),
        }
    }

    /// Resets the lane and its reader, with a new `retire_ns`.
    pub(super) fn recycle(&mut self, reader: &mut blocks::Reader<Blocks>, retire_ns: u64) {
        self.blocks.reset(reader, Cursor::closed());
        self.retire_ns = retire_ns;
        self.open = SharedLevel::default();
        self.contended = SharedCount::default();
        // Relaxed: as below.
        self.time_ns.store(0, Ordering::Relaxed);
        for (index, total) in self.totals.iter().enumerate() {
            // Relaxed: no other thread holds the lane, and handing it over orders these stores.
            total.store(0, Ordering::Relaxed);
            self.blocks.statuses().total(Count::ALL[index]).store(0, Ordering::Relaxed);
        }
    }

    /// Whether `reader` reads this lane.
    pub(super) fn is_of(&self, reader: &blocks::Reader<Blocks>) -> bool {
        self.blocks.statuses().is_same(reader.statuses())
    }

    /// How often `writer` was refused because another thread wrote.
    pub fn contended(&self) -> u64 {
        self.contended.load()
    }
}

/// The right to write to a [`Lane`], until it is dropped.
pub struct Writer<'a> {
    writer: blocks::Writer<'a, Blocks, Cursor>,
    lane: &'a Lane,
}

impl Writer<'_> {
    /// Copies up to `snap` bytes of the packet in `parts`, but no more than `record.len`, and no more than a block
    /// holds. False when no block is free: the packet is counted as lost.
    #[inline]
    pub fn push<'p>(
        &mut self,
        generation: Generation,
        record: &Record,
        parts: impl IntoIterator<Item = &'p [u8]>,
        snap: u32,
    ) -> bool {
        let mut wanted = record.len.min(snap) as usize;
        let cursor = self.writer.state();
        if cursor.generation != generation || cursor.room < HEADER + wanted {
            match self.begin(generation, wanted) {
                Some(fits) => wanted = fits,
                None => return false,
            }
        }
        let cursor = self.writer.state();
        let mut captured = 0;
        for part in parts {
            let length = part.len().min(wanted - captured);
            // SAFETY: `captured + length <= wanted`, and `HEADER + wanted` bytes are left of the block (just
            // checked, or guaranteed by `begin`), mapped while `lane` is borrowed. The part is a borrowed slice,
            // so it does not lie in a block that is ours to write.
            unsafe {
                let to = cursor.next.add(HEADER + captured);
                to.copy_from_nonoverlapping(NonNull::from(part).cast(), length);
            }
            captured += length;
            if captured == wanted {
                break;
            }
        }
        // SAFETY: `HEADER` bytes are left, aligned to 8 (invariant 1 of `Cursor`).
        unsafe { cursor.next.cast().write(Header::new(record, captured as u32)) };
        let size = (HEADER + captured).next_multiple_of(ALIGN);
        // SAFETY: `room` is a multiple of 8 and at least `HEADER + captured`, so `size` is left too.
        cursor.next = unsafe { cursor.next.add(size) };
        cursor.room -= size;
        cursor.packets += 1;
        cursor.kept += captured as u64;
        true
    }

    /// Whether a packet of `generation` would fit, with `kept` bytes kept.
    pub fn has_room(&mut self, generation: Generation, kept: u32) -> bool {
        let cursor = self.writer.state();
        if cursor.packets == 0 {
            return self.writer.block().is_some();
        }
        let fits = cursor.generation == generation && cursor.room >= HEADER + kept as usize;
        fits || self.writer.has_another()
    }

    /// Ends a turn: publishes the current block if the first turn that ended with it open was `retire_ns` ago. Returns
    /// whether a block was published since the last call: then ring the bell. `now_ns` may be of any monotonic clock.
    pub fn end_turn(&mut self, now_ns: u64) -> bool {
        let cursor = self.writer.state();
        if cursor.packets > 0 {
            let since = *cursor.since.get_or_insert(now_ns);
            if now_ns.wrapping_sub(since) >= self.lane.retire_ns {
                self.retire();
            }
        }
        self.news()
    }

    /// Publishes the current block, if it has packets: call it before sleeping. Returns what
    /// [`end_turn`](Self::end_turn) returns.
    pub fn publish(&mut self) -> bool {
        self.retire();
        self.news()
    }

    fn news(&mut self) -> bool {
        let cursor = self.writer.state();
        self.lane.open.set(u32::from(cursor.packets > 0));
        mem::take(&mut cursor.news)
    }

    /// Opens a block for a packet, to keep `wanted` bytes; returns how many fit.
    #[cold]
    fn begin(&mut self, generation: Generation, wanted: usize) -> Option<usize> {
        self.retire();
        let Some(block) = self.writer.block() else {
            self.count(Count::Lost, 1);
            return None;
        };
        let blocks = self.lane.blocks.statuses();
        let first = blocks.block(block);
        let room = blocks.block_size() - BLOCK_HEADER;
        let cursor = self.writer.state();
        // SAFETY: a block is longer than its header.
        let next = unsafe { first.add(BLOCK_HEADER) };
        *cursor = Cursor { next, room, generation, block, news: cursor.news, ..Cursor::closed() };
        self.lane.open.set(1);
        let fits = wanted.min(room - HEADER);
        if fits < wanted {
            self.count(Count::Clamped, 1);
        }
        Some(fits)
    }

    /// Publishes the current block, if it has packets.
    fn retire(&mut self) {
        let Cursor { block, packets, kept, generation, room, .. } = *self.writer.state();
        if packets == 0 {
            return;
        }
        let blocks = self.lane.blocks.statuses();
        let bytes = blocks.block_size() - BLOCK_HEADER - room;
        // Relaxed, all: `publish` orders them.
        blocks.word(block, InBlock::Generation).store(generation.0, Ordering::Relaxed);
        blocks.word(block, InBlock::Packets).store(packets.into(), Ordering::Relaxed);
        blocks.word(block, InBlock::Bytes).store(bytes as u64, Ordering::Relaxed);
        self.count(Count::Packets, packets.into());
        self.count(Count::Bytes, kept);
        self.writer.publish();
        let cursor = self.writer.state();
        *cursor = Cursor { news: true, ..Cursor::closed() };
    }

    /// Adds to our own total and shows the new total to the reader.
    fn count(&mut self, count: Count, n: u64) {
        let total = &self.lane.totals[count as usize];
        // Relaxed, load and store instead of an add: we are the only writer.
        let sum = total.load(Ordering::Relaxed).wrapping_add(n);
        total.store(sum, Ordering::Relaxed);
        // Relaxed: a count orders nothing.
        self.lane.blocks.statuses().total(count).store(sum, Ordering::Relaxed);
    }
}
