//! A hand-off as the Linux kernel's packet steering would have it with the source's fix: lists of packets, spliced.
//!
//! A receiver chains received packets into a list, as socket buffers are chained, takes the lock of the
//! other core's queue once, splices the whole list behind it, and wakes that core if it sleeps. The other
//! core splices all that waits to a list of its own under the same lock, and takes it apart without. A
//! queue that is over its bound takes no list.
//!
//! To its advantage: the lock has each side's cheapest form and keeps off no interrupts, links lie densely
//! by frame and not in the packets, the length can be looked at without the lock, and a sleeper is found out
//! by a look instead of an interrupt between processors.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

use manylane_sync::primitive::AtomicU32;

use crate::prelude::*;

/// What follows each frame of a region, by its index, while it lies in a list.
#[derive(Clone)]
pub struct Links(Arc<[Link]>);

struct Link(UnsafeCell<MaybeUninit<Frame>>);

// SAFETY: only the owner of the list that its frame is in reaches a link (`List`), and a list has one owner
// at a time: by value, or by the lock of the `Queue` that it lies in. A `Frame` may go to another thread.
unsafe impl Sync for Link {}

impl Links {
    /// For a region of `frames` frames.
    pub fn new(frames: u32) -> Links {
        Links((0..frames).map(|_| Link(UnsafeCell::new(MaybeUninit::uninit()))).collect())
    }

    #[inline(always)]
    fn at(&self, index: u32) -> *mut MaybeUninit<Frame> {
        self.0[index as usize].0.get()
    }
}

/// Frames in a row.
///
/// # Invariants
///
/// 1. `head` is none if, and only if, `len` is 0; else `tail` is the index of the last frame.
/// 2. The links of all frames but the last hold the next one, which the list owns.
pub struct List {
    links: Links,
    head: Option<Frame>,
    tail: u32,
    len: usize,
}

impl List {
    /// An empty one, over the links of its region.
    pub fn new(links: &Links) -> List {
        List { links: links.clone(), head: None, tail: 0, len: 0 }
    }

    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    pub fn push(&mut self, frame: Frame) {
        let index = frame.index();
        self.append(frame, index, 1);
    }

    #[inline(always)]
    pub fn pop(&mut self) -> Option<Frame> {
        let frame = self.head.take()?;
        self.len -= 1;
        if self.len > 0 {
            // SAFETY: the frame was ours and not the last, so by invariant 2 its link holds the next, which
            // no other thread reaches; it is read once, since the frame has left the list.
            self.head = Some(unsafe { (*self.links.at(frame.index())).assume_init_read() });
        }
        Some(frame)
    }

    /// Puts all of another's frames behind the others.
    #[inline(always)]
    fn splice(&mut self, other: &mut List) {
        if let Some(frame) = other.head.take() {
            let len = std::mem::take(&mut other.len);
            self.append(frame, other.tail, len);
        }
    }

    #[inline(always)]
    fn append(&mut self, first: Frame, last: u32, len: usize) {
        if self.len == 0 {
            self.head = Some(first);
        } else {
            // SAFETY: by invariant 1 `tail` is a frame of ours, so no other thread reaches its link; it holds
            // none yet, by invariant 2.
            unsafe { (*self.links.at(self.tail)).write(first) };
        }
        self.tail = last;
        self.len += len;
    }
}

/// A core's queue of received packets.
pub struct Queue {
    lock: CacheAligned<AtomicU32>,
    list: UnsafeCell<List>,
    /// The list's length, for a look.
    len: CacheAligned<AtomicUsize>,
}

// SAFETY: `list` is reached only in `locked`; its packets may go to another thread.
unsafe impl Sync for Queue {}

impl Queue {
    pub fn new(links: &Links) -> Queue {
        Queue {
            lock: CacheAligned(AtomicU32::new(0)),
            list: UnsafeCell::new(List::new(links)),
            len: CacheAligned(AtomicUsize::new(0)),
        }
    }

    /// How many frames wait, or waited a moment ago.
    #[inline(always)]
    pub fn len(&self) -> usize {
        // Relaxed: a hint, and what comes of it is done under the lock.
        self.len.load(Ordering::Relaxed)
    }

    /// Splices a whole list to the queue.
    #[inline(always)]
    pub fn put(&self, list: &mut List) {
        self.locked(|queue| queue.splice(list));
    }

    /// Splices all that waits to `list`.
    #[inline(always)]
    pub fn take(&self, list: &mut List) {
        self.locked(|queue| list.splice(queue));
    }

    #[inline(always)]
    fn locked(&self, work: impl FnOnce(&mut List)) {
        // Acquire: pairs with the Release below: what the last holder did to the list, and to the frames in
        // it, is seen.
        while self.lock.load(Ordering::Relaxed) != 0 || self.lock.swap(1, Ordering::Acquire) != 0 {
            spin_loop();
        }
        // SAFETY: we hold the lock, and no thread reaches the list without it.
        let list = unsafe { &mut *self.list.get() };
        work(list);
        self.len.store(list.len, Ordering::Relaxed);
        // Release: pairs with the next one's `swap`.
        self.lock.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_in_the_order_they_were_put_in() {
        let config = RegionConfig { frames: 256, frame_size: 2048 };
        let depot = Depot::new(Region::new(config).expect("it can be mapped"), 2).expect("first");
        let links = Links::new(config.frames);
        let queue = Queue::new(&links);
        let sent: Vec<u32> = thread::scope(|scope| {
            let receiver = scope.spawn(|| {
                let (mut pool, mut list) = (depot.pool(), List::new(&links));
                let mut sent = Vec::new();
                for length in 0..16 {
                    for _ in 0..length {
                        let frame = pool.take().expect("there are more");
                        sent.push(frame.index());
                        list.push(frame);
                    }
                    queue.put(&mut list);
                    assert_eq!(list.len(), 0);
                }
                sent
            });
            let (mut pool, mut list) = (depot.pool(), List::new(&links));
            let mut came = Vec::new();
            while came.len() < 120 {
                queue.take(&mut list);
                while let Some(frame) = list.pop() {
                    came.push(frame.index());
                    pool.give_back(frame);
                }
            }
            // The receiver may have sent returned frames again only by this list.
            let sent = receiver.join().expect("it does not panic");
            assert_eq!(came, sent);
            sent
        });
        assert_eq!((sent.len(), queue.len()), (120, 0));
        assert_eq!(depot.frames(), 256);
    }
}
