//! One of a socket's four rings: memory that the kernel and we map; each side moves one index.
//!
//! | ring       | carries           | producer     | consumer     |
//! |------------|-------------------|--------------|--------------|
//! | fill       | addresses         | we           | kernel       |
//! | receive    | descriptors       | kernel       | we           |
//! | transmit   | descriptors       | we           | kernel       |
//! | completion | addresses         | kernel       | we           |
//!
//! The protocol is that of `manylane_sync::ring`, whose loom test
//! (`ring_items_arrive_whole_and_in_order`) stands for this one: loom cannot see memory shared with the
//! kernel. The kernel's half is net/xdp/xsk_queue.h, which names its barriers A to D.

#![allow(
    clippy::disallowed_types,
    reason = "words whose place the kernel gives: `foreign` is for them"
)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

use manylane_sync::primitive::foreign::{AtomicU32, Ordering};

/// The four rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Receive,
    Transmit,
    Fill,
    Completion,
}

impl Kind {
    /// The socket option that creates the ring.
    pub fn option(self) -> libc::c_int {
        match self {
            Kind::Receive => libc::XDP_RX_RING,
            Kind::Transmit => libc::XDP_TX_RING,
            Kind::Fill => libc::XDP_UMEM_FILL_RING,
            Kind::Completion => libc::XDP_UMEM_COMPLETION_RING,
        }
    }

    /// The mmap(2) offset that selects the ring.
    fn page_offset(self) -> libc::off_t {
        match self {
            Kind::Receive => libc::XDP_PGOFF_RX_RING,
            Kind::Transmit => libc::XDP_PGOFF_TX_RING,
            Kind::Fill => libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t,
            Kind::Completion => libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t,
        }
    }

    fn layout(self, offsets: &libc::xdp_mmap_offsets) -> &libc::xdp_ring_offset {
        match self {
            Kind::Receive => &offsets.rx,
            Kind::Transmit => &offsets.tx,
            Kind::Fill => &offsets.fr,
            Kind::Completion => &offsets.cr,
        }
    }
}

/// A ring's entry type: the kernel's `u64` or `struct xdp_desc`. Any bits are a valid one.
pub(super) trait Entry: Copy {}
impl Entry for u64 {}
impl Entry for libc::xdp_desc {}

/// A mapped ring.
///
/// # Invariants
///
/// 1. The three words and `mask + 1` entries lie in `_memory`, aligned, at the kernel's offsets.
/// 2. Each ring of a socket has one `Ring`.
struct Ring<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    mask: u32,
    _memory: Memory,
}

// SAFETY: the pointers lead into memory that the ring itself keeps mapped (invariant 1), and no other
// thread has them (invariant 2). The other side is the kernel, which does not depend on our threads.
unsafe impl<T: Entry> Send for Ring<T> {}

impl<T: Entry> Ring<T> {
    /// Maps a ring that was created with `entries`, a power of two.
    fn map(
        socket: BorrowedFd<'_>,
        kind: Kind,
        entries: u32,
        offsets: &libc::xdp_mmap_offsets,
    ) -> io::Result<Ring<T>> {
        let layout = kind.layout(offsets);
        let length = layout.desc as usize + entries as usize * size_of::<T>();
        let memory = Memory::map(socket, length, kind.page_offset())?;
        let at = |offset: u64| {
            // SAFETY: the kernel's offsets lie inside the mapping: the entries come last in it, and
            // `length` was counted to their end.
            unsafe { memory.base.add(offset as usize) }
        };
        Ok(Ring {
            producer: at(layout.producer).cast(),
            consumer: at(layout.consumer).cast(),
            flags: at(layout.flags).cast(),
            entries: at(layout.desc).cast(),
            mask: entries - 1,
            _memory: memory,
        })
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: invariant 1; every party, the kernel too, accesses the word atomically.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as in `producer`.
        unsafe { self.consumer.as_ref() }
    }

    fn needs_wakeup(&self) -> bool {
        // SAFETY: as in `producer`.
        let flags = unsafe { self.flags.as_ref() };
        // Relaxed: a hint. The kernel may set the flag right after this load; so each ring's user checks
        // again in every turn in which entries remain, and poll(2) wakes the driver
        // (`xsk_poll`), so that no entry waits during a sleep.
        flags.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    #[inline(always)]
    fn slot(&self, index: u32) -> NonNull<T> {
        // SAFETY: masked, so inside the entries of invariant 1.
        unsafe { self.entries.add((index & self.mask) as usize) }
    }
}

/// A ring that we produce: fill or transmit.
pub(super) struct ProducerRing<T> {
    ring: Ring<T>,
    /// Index of the next slot to write.
    next: u32,
    /// The kernel's index at the last check.
    consumed: u32,
}

impl<T: Entry> ProducerRing<T> {
    pub fn map(
        socket: BorrowedFd<'_>,
        kind: Kind,
        entries: u32,
        offsets: &libc::xdp_mmap_offsets,
    ) -> io::Result<ProducerRing<T>> {
        Ok(ProducerRing { ring: Ring::map(socket, kind, entries, offsets)?, next: 0, consumed: 0 })
    }

    /// The number of free entries; reads the kernel's index when they seem fewer than
    /// `wanted`.
    #[inline]
    pub fn free(&mut self, wanted: u32) -> u32 {
        let capacity = self.ring.mask + 1;
        if capacity - self.next.wrapping_sub(self.consumed) < wanted {
            self.waiting();
        }
        capacity - self.next.wrapping_sub(self.consumed)
    }

    /// Puts an entry on the ring; the next `submit` shows it to the kernel.
    ///
    /// # Panics
    ///
    /// When the ring is full; check `free` first.
    #[inline(always)]
    pub fn push(&mut self, entry: T) {
        assert!(self.next.wrapping_sub(self.consumed) <= self.ring.mask, "the ring is full");
        // SAFETY: `slot` is valid for a write of a `T` (invariant 1 of `Ring`). The kernel does not read
        // it: it stays below the producer index, which `submit` moves, and has passed what lay here one
        // round ago, by the assertion and the Acquire in `waiting`.
        unsafe { self.ring.slot(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
    }

    /// Shows all pushed entries to the kernel.
    #[inline]
    pub fn submit(&mut self) {
        // Release: pairs with the kernel's `smp_load_acquire` of the producer (xsk_queue.h, C in
        // `__xskq_cons_peek`): it sees the entries, and the frames' bytes, below the new index.
        self.ring.producer().store(self.next, Ordering::Release);
    }

    /// How many submitted entries the kernel has not consumed.
    #[inline]
    pub fn waiting(&mut self) -> u32 {
        // Acquire: pairs with the kernel's `smp_store_release` of the consumer (xsk_queue.h, D in
        // `__xskq_cons_release`): it has read the slots below before we write there again.
        self.consumed = self.ring.consumer().load(Ordering::Acquire);
        self.next.wrapping_sub(self.consumed)
    }

    /// Whether the kernel needs a system call before it reads this ring.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }

    /// The entries that the kernel has not consumed, oldest first, after those consumed ones that directly
    /// lead to them, one by one, by `leads`. The kernel must not consume any meanwhile.
    pub fn untaken(&mut self, leads: impl Fn(&T) -> bool) -> Vec<T> {
        self.waiting(); // Reads the kernel's index.
        let entry = |index: u32| {
            // SAFETY: valid for a read (invariant 1 of `Ring`); only we write these slots, and the kernel
            // has made them of zeroes, which are an entry.
            unsafe { self.ring.slot(index).read() }
        };
        let mut first = self.consumed;
        while self.next.wrapping_sub(first) <= self.ring.mask
            && leads(&entry(first.wrapping_sub(1)))
        {
            first = first.wrapping_sub(1);
        }
        (0..self.next.wrapping_sub(first)).map(|offset| entry(first.wrapping_add(offset))).collect()
    }
}

/// A ring that we consume: receive or completion.
pub(super) struct ConsumerRing<T> {
    ring: Ring<T>,
    /// Index of the next slot to read.
    next: u32,
    /// The kernel's index at the last check.
    produced: u32,
}

impl<T: Entry> ConsumerRing<T> {
    pub fn map(
        socket: BorrowedFd<'_>,
        kind: Kind,
        entries: u32,
        offsets: &libc::xdp_mmap_offsets,
    ) -> io::Result<ConsumerRing<T>> {
        Ok(ConsumerRing { ring: Ring::map(socket, kind, entries, offsets)?, next: 0, produced: 0 })
    }

    /// How many entries can be popped; reads the kernel's index.
    #[inline]
    pub fn available(&mut self) -> u32 {
        // Acquire: pairs with the kernel's `smp_store_release` of the producer (xsk_queue.h, B in
        // `__xskq_prod_submit`): we see the entries, and the frames' bytes, below the new index.
        self.produced = self.ring.producer().load(Ordering::Acquire);
        self.produced.wrapping_sub(self.next)
    }

    /// Takes the oldest entry that `available` has seen.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<T> {
        if self.next == self.produced {
            return None;
        }
        // SAFETY: `slot` is valid for a read of a `T`, and any bits are a valid `T` (invariant 1 of
        // `Ring`). By the Acquire in `available` the kernel has written it, and it stays off the slot
        // until `release`.
        let entry = unsafe { self.ring.slot(self.next).read() };
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    /// Returns the slots of all popped entries to the kernel.
    #[inline]
    pub fn release(&mut self) {
        // Release: pairs with the kernel's read of the consumer (xsk_queue.h, A in `xskq_prod_nb_free`,
        // ordered by a control dependency): our reads of the slots come before its next writes there.
        self.ring.consumer().store(self.next, Ordering::Release);
    }
}

/// A mapping of a socket, which holds the socket open (mmap(2) takes a reference to the file): the queue
/// is free only after this is dropped *and* the descriptor closed.
struct Memory {
    base: NonNull<u8>,
    length: usize,
}

impl Memory {
    fn map(socket: BorrowedFd<'_>, length: usize, offset: libc::off_t) -> io::Result<Memory> {
        // SAFETY: a mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                socket.as_raw_fd(),
                offset,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at address 0");
        Ok(Memory { base, length })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `map` made exactly this mapping, and the ring that pointed into it is going.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.length) };
    }
}
