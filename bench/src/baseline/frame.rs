//! Packet memory from an allocator, before and after the source's fix.
//!
//! *Before*: for each packet a head of 256 bytes and data of 2 KiB, both from the allocator, both given
//! back to it. *The fix*: heads that are given back go to the thread's hot list, up to its length, and
//! come from there; data is a frame of 1514 bytes, one size for the allocator, and what a packet has
//! beyond it is a list of more of them, tied to the head.
//!
//! The head holds what a [`Meta`](manylane_frame::Meta) holds, and is filled in as that one is. The data
//! is not touched: the device writes it, or would.

use std::alloc::{GlobalAlloc, Layout};
use std::marker::PhantomData;
use std::ptr::NonNull;

use manylane_frame::vocabulary::{Checksum, PortId, QueueId, Segments};
use manylane_frame::{HEADROOM, Marks};
use snmalloc_rs::SnMalloc;

pub const HEAD_LEN: usize = 256;

/// Bytes of the data of a packet of one piece, before.
pub const DATA_LEN: usize = 2048;

/// Bytes of a frame of the fix: the largest untagged Ethernet frame.
pub const FIXED_LEN: usize = 1514;

/// The metadata that a receiving port writes.
pub const MARKS: Marks = Marks {
    ingress: PortId(0),
    queue: QueueId(0),
    checksum: Checksum::Valid,
    own: false,
    later: false,
    segments: Segments::NONE,
};

/// Makes glibc keep its memory: untuned, it spends most of its time across cores giving the top of
/// the heap to the kernel and taking it again. For the whole process.
pub fn tune_glibc() {
    for (what, value) in [
        (libc::M_TRIM_THRESHOLD, 512 << 20),
        (libc::M_TOP_PAD, 16 << 20),
        (libc::M_MMAP_THRESHOLD, 32 << 20), // The largest it takes.
    ] {
        // SAFETY: mallopt(3) has no conditions.
        let done = unsafe { libc::mallopt(what, value) };
        assert_eq!(done, 1, "glibc knows these parameters and takes these values");
    }
}

/// An allocator: where head and data come from. Stateless, so that any thread can give back.
pub trait Heap: 'static {
    /// `len` bytes, more than 0, aligned to 16. Without free memory the process ends, as is usual in Rust.
    fn take(len: usize) -> NonNull<u8>;

    /// Gives them back.
    ///
    /// # Safety
    ///
    /// `memory` is from `take(len)` of this heap, and is not used any more.
    unsafe fn give_back(memory: NonNull<u8>, len: usize);
}

pub struct Glibc;

impl Heap for Glibc {
    #[inline(always)]
    fn take(len: usize) -> NonNull<u8> {
        // SAFETY: malloc(3) has no conditions; its memory is aligned to 16.
        let memory = unsafe { libc::malloc(len) };
        NonNull::new(memory.cast()).unwrap_or_else(|| no_memory(len))
    }

    #[inline(always)]
    unsafe fn give_back(memory: NonNull<u8>, _: usize) {
        // SAFETY: free(3): it is from `malloc`, and not used any more: the caller's debt.
        unsafe { libc::free(memory.as_ptr().cast()) }
    }
}

/// mimalloc: each page has a list of its own of the blocks that other threads gave back.
pub struct Mimalloc;

impl Heap for Mimalloc {
    #[inline(always)]
    fn take(len: usize) -> NonNull<u8> {
        // SAFETY: `mi_malloc` has no conditions, as malloc(3); blocks of 16 bytes and more are aligned
        // to 16 (`MI_MAX_ALIGN_SIZE`).
        let memory = unsafe { libmimalloc_sys::mi_malloc(len) };
        NonNull::new(memory.cast()).unwrap_or_else(|| no_memory(len))
    }

    #[inline(always)]
    unsafe fn give_back(memory: NonNull<u8>, _: usize) {
        // SAFETY: it is from `mi_malloc`, and not used any more: the caller's debt.
        unsafe { libmimalloc_sys::mi_free(memory.as_ptr().cast()) }
    }
}

/// snmalloc: a thread that gives blocks back sends them to the thread that took them, many in one message.
pub struct Snmalloc;

impl Heap for Snmalloc {
    #[inline(always)]
    fn take(len: usize) -> NonNull<u8> {
        // SAFETY: the size is not 0: the caller's debt.
        let memory = unsafe { SnMalloc.alloc(layout(len)) };
        NonNull::new(memory).unwrap_or_else(|| no_memory(len))
    }

    #[inline(always)]
    unsafe fn give_back(memory: NonNull<u8>, len: usize) {
        // SAFETY: it is from `alloc` with this layout, and not used any more: the caller's debts.
        unsafe { SnMalloc.dealloc(memory.as_ptr(), layout(len)) }
    }
}

#[cold]
fn no_memory(len: usize) -> ! {
    std::alloc::handle_alloc_error(layout(len))
}

#[inline(always)]
const fn layout(len: usize) -> Layout {
    match Layout::from_size_align(len, 16) {
        Ok(layout) => layout,
        Err(_) => panic!("a packet is smaller than the address space"),
    }
}

/// The memory of one packet, with what is known of it.
///
/// # Invariants
///
/// 1. A packet is the only pointer to an initialised head of `HEAD_LEN` bytes from the heap `H`.
/// 2. The head is the only pointer to `data_len` bytes of data from `H`, and to its fragments; each of
///    those is initialised and has `FRAGMENT_LEN` bytes from `H`.
#[repr(transparent)]
#[must_use = "a dropped packet is a leak"]
pub struct Packet<H>(NonNull<Head>, PhantomData<H>);

// SAFETY: by the invariants no other owner reaches what it points to, and heaps take memory back from any
// thread.
unsafe impl<H> Send for Packet<H> {}

#[repr(C)]
struct Head {
    data: NonNull<u8>,
    data_len: u32,
    len: u32,
    fragments: Option<NonNull<Fragment>>,
    head: u16,
    tail: u16,
    marks: Marks,
}

/// The packet's bytes behind its first frame: the link stands in front of them.
#[repr(C)]
struct Fragment {
    next: Option<NonNull<Fragment>>,
}

const _: () = assert!(size_of::<Head>() <= HEAD_LEN);
const FRAGMENT_LEN: usize = size_of::<Fragment>() + FIXED_LEN;

/// One thread's way to packet memory.
pub struct Packets<H: Heap> {
    /// Heads that wait for the next packet.
    hot: Vec<NonNull<u8>>,
    hot_len: usize,
    /// Bytes of a piece of data; what is longer has fragments. Without, it has one piece, however long.
    fixed: Option<usize>,
    heap: PhantomData<H>,
}

// SAFETY: the heads in the list are its own, and heaps take memory back from any thread.
unsafe impl<H: Heap> Send for Packets<H> {}

impl<H: Heap> Packets<H> {
    /// Head and data from the allocator.
    pub fn before() -> Packets<H> {
        Packets { hot: Vec::new(), hot_len: 0, fixed: None, heap: PhantomData }
    }

    /// The fix, with a hot list of `len` heads.
    pub fn hot_list(len: usize) -> Packets<H> {
        let hot = Vec::with_capacity(len);
        Packets { hot, hot_len: len, fixed: Some(FIXED_LEN), heap: PhantomData }
    }

    /// Memory for a packet of `len` bytes, with `marks`.
    #[inline(always)]
    pub fn take(&mut self, len: usize, marks: Marks) -> Packet<H> {
        let head = self.hot.pop().unwrap_or_else(|| H::take(HEAD_LEN)).cast::<Head>();
        let (data_len, fragments) = match self.fixed {
            None => (DATA_LEN.max(len), None),
            Some(fixed) if len <= fixed => (fixed, None),
            Some(fixed) => (fixed, fragments::<H>(len - fixed)),
        };
        let whole = Head {
            data: H::take(data_len),
            data_len: data_len as u32,
            len: len as u32,
            fragments,
            head: HEADROOM,
            tail: HEADROOM + len.min(data_len) as u16,
            marks,
        };
        // SAFETY: `ptr::write`: `HEAD_LEN` bytes of the heap or of the hot list, ours alone, aligned to
        // 16; a `Head` fits (asserted above).
        unsafe { head.write(whole) };
        Packet(head, PhantomData) // Just filled in with what was just taken: both invariants.
    }

    #[inline(always)]
    pub fn give_back(&mut self, packet: Packet<H>) {
        // SAFETY: `ptr::read`: invariant 1.
        let head = unsafe { packet.0.read() };
        if head.fragments.is_some() {
            give_back_fragments::<H>(head.fragments);
        }
        // SAFETY: invariant 2: `data_len` bytes of this heap, and `packet`, which ends here, was the way to
        // them.
        unsafe { H::give_back(head.data, head.data_len as usize) };
        if self.hot.len() < self.hot_len {
            self.hot.push(packet.0.cast());
        } else {
            // SAFETY: invariant 1: `HEAD_LEN` bytes of this heap; `packet` ends here.
            unsafe { H::give_back(packet.0.cast(), HEAD_LEN) };
        }
    }
}

#[cold]
fn fragments<H: Heap>(len: usize) -> Option<NonNull<Fragment>> {
    let mut next = None;
    for _ in 0..len.div_ceil(FIXED_LEN) {
        let fragment = H::take(FRAGMENT_LEN).cast::<Fragment>();
        // SAFETY: `ptr::write`: bytes of the heap, ours alone, aligned to 16, and a link fits.
        unsafe { fragment.write(Fragment { next }) };
        next = Some(fragment);
    }
    next
}

/// Gives a list of fragments back that has no other owner.
#[cold]
fn give_back_fragments<H: Heap>(mut next: Option<NonNull<Fragment>>) {
    while let Some(fragment) = next {
        // SAFETY: `ptr::read`: invariant 2 of the packet that they are of.
        next = unsafe { fragment.read() }.next;
        // SAFETY: invariant 2: `FRAGMENT_LEN` bytes of this heap, read for the last time.
        unsafe { H::give_back(fragment.cast(), FRAGMENT_LEN) };
    }
}

impl<H: Heap> Drop for Packets<H> {
    fn drop(&mut self) {
        for head in self.hot.drain(..) {
            // SAFETY: heads come into the list from packets of this heap, with `HEAD_LEN` bytes, and leave
            // it with one owner.
            unsafe { H::give_back(head, HEAD_LEN) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hot_list_keeps_as_many_heads_as_it_is_long() {
        let mut packets = Packets::<Glibc>::hot_list(2);
        let held: Vec<_> = (0..3).map(|_| packets.take(60, MARKS)).collect();
        let heads: Vec<_> = held.iter().map(|packet| packet.0.cast::<u8>()).collect();
        held.into_iter().for_each(|packet| packets.give_back(packet));
        assert_eq!(packets.hot, heads[..2]);
        let again = packets.take(60, MARKS);
        assert_eq!(again.0.cast(), heads[1], "the last one given back");
        packets.give_back(again);
    }

    #[test]
    fn a_large_packet_has_one_piece_before_and_fragments_after() {
        large::<Glibc>();
        large::<Snmalloc>();
        large::<Mimalloc>();
    }

    fn large<H: Heap>() {
        let mut before = Packets::<H>::before();
        let packet = before.take(9000, MARKS);
        assert_eq!(size(&packet), (9000, 1));
        before.give_back(packet);
        let mut after = Packets::<H>::hot_list(1);
        for (len, expected) in [(1514, 1), (1515, 2), (9000, 6)] {
            let packet = after.take(len, MARKS);
            assert_eq!(size(&packet), (len as u32, expected));
            after.give_back(packet);
        }
    }

    /// Bytes, and pieces of data.
    fn size<H>(packet: &Packet<H>) -> (u32, usize) {
        // SAFETY: invariant 1.
        let head = unsafe { packet.0.as_ref() };
        let mut next = head.fragments;
        let mut pieces = 1;
        while let Some(fragment) = next {
            pieces += 1;
            // SAFETY: invariant 2.
            next = unsafe { fragment.as_ref() }.next;
        }
        (head.len, pieces)
    }
}
