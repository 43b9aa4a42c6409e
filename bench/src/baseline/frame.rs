//! Packet memory from an allocator, before and after the source's fix.
//!
//! *Before*: for each packet a head of 256 bytes and data of 2 KiB. A list of the thread's keeps up to 128 heads that are
//! given back, as the source's kernel did; the allocator has the other heads, and all data. *The fix*: a longer list keeps whole objects, a head with its frame of 1514 bytes, so that a packet that the list
//! serves needs no allocator. What a packet has beyond a frame lies in more objects, tied to the first.
//!
//! The head holds what a [`Meta`](manylane_frame::Meta) holds, and is filled in as that one is. The data
//! is not touched: the device writes it, or would.

use std::alloc::{GlobalAlloc, Layout};
use std::marker::PhantomData;
use std::ptr::NonNull;

use manylane_frame::{HEADROOM, Marks};
use snmalloc_rs::SnMalloc;

pub const HEAD_LEN: usize = 256;

/// Heads that a thread kept, before.
const HEADS: usize = 128;

/// Bytes of the data of a packet, before.
pub const DATA_LEN: usize = 2048;

/// Bytes of a frame of the fix: the largest untagged Ethernet frame.
pub const FIXED_LEN: usize = 1514;

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
/// 2. The head is the only pointer to `data_len` bytes of data from `H`, and to the next object of the packet, if
///    it has one, for which both invariants hold.
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
    next: Option<NonNull<Head>>,
    head: u16,
    tail: u16,
    marks: Marks,
}

const _: () = assert!(size_of::<Head>() <= HEAD_LEN);

/// One thread's way to packet memory.
///
/// # Invariant
///
/// The list is the only pointer to each of its heads, of `HEAD_LEN` bytes from the heap; where it keeps whole objects,
/// each is initialised and the only pointer to `FIXED_LEN` bytes of data from the heap.
pub struct Packets<H: Heap> {
    /// What waits for the next packet.
    hot: Vec<NonNull<Head>>,
    hot_len: usize,
    /// Whether the list keeps heads with their data.
    whole: bool,
    heap: PhantomData<H>,
}

// SAFETY: by the invariant what the list points to is its own, and heaps take memory back from any thread.
unsafe impl<H: Heap> Send for Packets<H> {}

impl<H: Heap> Packets<H> {
    /// A list of heads over the allocator, and data from the allocator.
    pub fn before() -> Packets<H> {
        Packets::new(HEADS, false)
    }

    /// The fix, with a list of `len` whole objects.
    pub fn fix(len: usize) -> Packets<H> {
        Packets::new(len, true)
    }

    fn new(hot_len: usize, whole: bool) -> Packets<H> {
        Packets { hot: Vec::with_capacity(hot_len), hot_len, whole, heap: PhantomData }
    }

    /// Memory for a packet of `len` bytes, with `marks`.
    #[inline(always)]
    pub fn take(&mut self, len: usize, marks: Marks) -> Packet<H> {
        let data_len = if self.whole { FIXED_LEN } else { DATA_LEN.max(len) };
        let next = if len > data_len { self.rest(len - data_len, marks) } else { None };
        let (head, data) = match self.hot.pop() {
            // SAFETY: the list's invariant.
            Some(head) if self.whole => (head, unsafe { head.as_ref() }.data),
            Some(head) => (head, H::take(data_len)),
            None => (H::take(HEAD_LEN).cast(), H::take(data_len)),
        };
        let whole = Head {
            data,
            data_len: data_len as u32,
            len: len as u32,
            next,
            head: HEADROOM,
            tail: HEADROOM + len.min(data_len) as u16,
            marks,
        };
        // SAFETY: `ptr::write`: `HEAD_LEN` bytes of the heap or of the hot list, ours alone, aligned to
        // 16; a `Head` fits (asserted above).
        unsafe { head.write(whole) };
        Packet(head, PhantomData) // Just filled in with what was just taken: both invariants.
    }

    /// The objects for what a packet has beyond its first.
    #[cold]
    fn rest(&mut self, len: usize, marks: Marks) -> Option<NonNull<Head>> {
        Some(self.take(len, marks).0)
    }

    #[inline(always)]
    pub fn give_back(&mut self, packet: Packet<H>) {
        // SAFETY: `ptr::read`: invariant 1.
        let head = unsafe { packet.0.read() };
        if let Some(next) = head.next {
            self.give_back_rest(next);
        }
        let kept = self.hot.len() < self.hot_len;
        if !(kept && self.whole) {
            // SAFETY: invariant 2: `data_len` bytes of this heap, and `packet`, which ends here, was the way to
            // them; the list keeps the head without them.
            unsafe { H::give_back(head.data, head.data_len as usize) };
        }
        if kept {
            self.hot.push(packet.0);
        } else {
            // SAFETY: invariant 1: `HEAD_LEN` bytes of this heap; `packet` ends here.
            unsafe { H::give_back(packet.0.cast(), HEAD_LEN) };
        }
    }

    #[cold]
    fn give_back_rest(&mut self, next: NonNull<Head>) {
        // By invariant 2 it is a packet, and the one that ended was the way to it.
        self.give_back(Packet(next, PhantomData));
    }
}

impl<H: Heap> Drop for Packets<H> {
    fn drop(&mut self) {
        for head in self.hot.drain(..) {
            if self.whole {
                // SAFETY: the list's invariant, for the last time.
                unsafe { H::give_back(head.as_ref().data, FIXED_LEN) };
            }
            // SAFETY: as above.
            unsafe { H::give_back(head.cast(), HEAD_LEN) };
        }
    }
}

#[cfg(test)]
mod tests {
    use manylane_frame::vocabulary::{Checksum, PortId, QueueId};

    use super::*;

    const MARKS: Marks = Marks::received(PortId(0), QueueId(0), Checksum::Valid);

    #[test]
    fn a_hot_list_keeps_as_many_as_it_is_long() {
        for whole in [false, true] {
            let mut packets = Packets::<Glibc>::new(2, whole);
            let held: Vec<_> = (0..3).map(|_| packets.take(60, MARKS)).collect();
            let heads: Vec<_> = held.iter().map(|packet| packet.0).collect();
            let data = data(&held[1]);
            held.into_iter().for_each(|packet| packets.give_back(packet));
            assert_eq!(packets.hot, heads[..2]);
            let again = packets.take(60, MARKS);
            assert_eq!(again.0, heads[1], "the last one given back");
            assert!(!whole || self::data(&again) == data, "with its data");
            packets.give_back(again);
        }
    }

    /// A list that serves all of a packet's objects makes none.
    #[test]
    fn the_fix_keeps_the_objects_of_a_large_packet() {
        let mut packets = Packets::<Glibc>::fix(6);
        let packet = packets.take(9000, MARKS);
        packets.give_back(packet);
        assert_eq!(packets.hot.len(), 6);
        let packet = packets.take(9000, MARKS);
        assert!(packets.hot.is_empty());
        packets.give_back(packet);
    }

    #[test]
    fn a_large_packet_has_one_piece_before_and_several_after() {
        large::<Glibc>();
        large::<Snmalloc>();
        large::<Mimalloc>();
    }

    fn large<H: Heap>() {
        let mut before = Packets::<H>::before();
        let packet = before.take(9000, MARKS);
        assert_eq!(size(&packet), (9000, 1));
        before.give_back(packet);
        let mut after = Packets::<H>::fix(1);
        for (len, expected) in [(1514, 1), (1515, 2), (9000, 6)] {
            let packet = after.take(len, MARKS);
            assert_eq!(size(&packet), (len as u32, expected));
            after.give_back(packet);
        }
    }

    fn data<H>(packet: &Packet<H>) -> NonNull<u8> {
        // SAFETY: invariant 1.
        unsafe { packet.0.as_ref() }.data
    }

    /// Bytes, and pieces of data.
    fn size<H>(packet: &Packet<H>) -> (u32, usize) {
        // SAFETY: invariant 1.
        let head = unsafe { packet.0.as_ref() };
        let mut next = head.next;
        let mut pieces = 1;
        while let Some(fragment) = next {
            pieces += 1;
            // SAFETY: invariant 2.
            next = unsafe { fragment.as_ref() }.next;
        }
        (head.len, pieces)
    }
}
