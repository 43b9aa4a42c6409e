//! The holder of each frame, recorded in debug builds, so that misuse is caught where it happens.
//!
//! Each frame has a word: its state, how often it has been taken (its generation), and its last holder.
//! A handle carries the generation it was taken in. Freed bytes are poisoned, and looked at when the
//! frame is taken again.
//!
//! | Is     | Event        | Becomes | Anything else in this column is caught as                       |
//! |--------|--------------|---------|-----------------------------------------------------------------|
//! | free   | taken        | out     | a list that has a frame twice                                   |
//! | out    | given back   | free    | given back twice, or while it is lent                           |
//! | out    | used         | out     | a handle that outlived its frame: the generation differs        |
//! | out    | lent         | lent    | lent twice                                                      |
//! | lent   | reclaimed    | out     | reclaimed twice, or never lent                                  |
//! | out    | joined       | a part  | two owners                                                      |
//! | a part | parted       | out     | a chain that has a frame that is not its                        |
//!
//! Changed poison was written by a former holder: by a device after it reported the frame as done, or through an old
//! pointer.
//!
//! Release builds have none of this: no words, a `Generation` without size, and calls without code.

#[cfg(debug_assertions)]
#[allow(
    clippy::disallowed_types,
    reason = "through `primitive`: any thread writes the word of a frame that it has; not under loom"
)]
mod stamps;

use std::fmt;
#[cfg(debug_assertions)]
use std::slice;

use super::{Region, View};
use crate::frame::Frame;
#[cfg(not(debug_assertions))]
use crate::frame::Generation;
use crate::vocabulary::PortId;

/// The holder of a frame, present or last. Recorded in debug builds only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// No holder since the region was made.
    None,
    /// A list of free frames, by its number, or the depot after it.
    Pool(u16),
    /// The thread that took the frame from the list of this number.
    Hand(u16),
    /// A port, to receive into.
    Receive(PortId),
    /// A port, to transmit.
    Transmit(PortId),
    /// A wire towards a port in memory.
    Wire(PortId),
    /// A queue of packets that wait for a neighbour.
    Hold,
    /// A ring to the worker of this number.
    Ring(u16),
    /// The packet that begins in the frame of this index.
    Chain(u32),
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder::None => write!(f, "no holder yet"),
            Holder::Pool(number) => write!(f, "pool {number}"),
            Holder::Hand(number) => write!(f, "the thread that took it from pool {number}"),
            Holder::Receive(port) => write!(f, "{port}, to receive"),
            Holder::Transmit(port) => write!(f, "{port}, to transmit"),
            Holder::Wire(port) => write!(f, "a wire to {port}"),
            Holder::Hold => write!(f, "a hold queue"),
            Holder::Ring(number) => write!(f, "a ring to worker {number}"),
            Holder::Chain(first) => write!(f, "the chain of frame {first}"),
        }
    }
}

/// A frame that is not at home: what [`Depot::missing`](crate::Depot::missing) finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Its index.
    pub frame: u32,
    /// `out`, `lent` or `part of a packet`.
    pub state: &'static str,
    /// The last holder.
    pub holder: Holder,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Missing { frame, state, holder } = self;
        write!(f, "frame {frame} is {state}, last held by {holder}")
    }
}

#[cfg(debug_assertions)]
pub(crate) use stamps::Stamps;

/// In debug builds each looks at the frame's word, and panics with what it says when that is wrong.
impl View<'_> {
    /// Records the frame's holder, for finding a lost frame. Does nothing in release builds.
    #[inline(always)]
    pub fn note(self, frame: &Frame, holder: Holder) {
        #[cfg(debug_assertions)]
        {
            self.used(frame);
            self.stamps().note(frame.index(), holder);
        }
        #[cfg(not(debug_assertions))]
        let _ = (frame, holder);
    }

    /// The handle of a frame that list number `pool` had. Callers uphold `Frame` invariants 1 and 2.
    #[inline(always)]
    pub(crate) fn take(self, index: u32, pool: u16) -> Frame {
        #[cfg(debug_assertions)]
        let generation = {
            let (generation, poisoned) = self.stamps().taken(index, pool);
            if poisoned {
                self.check_poison(index);
            }
            generation
        };
        #[cfg(not(debug_assertions))]
        let generation = {
            let _ = pool;
            Generation()
        };
        Frame::from_parts(self.layout.tag, index, generation)
    }

    /// The single frame is about to lie in list number `pool`.
    #[inline(always)]
    pub(crate) fn given_back(self, frame: &Frame, pool: u16) {
        #[cfg(debug_assertions)]
        {
            self.stamps().given_back(frame.index(), frame.generation(), pool);
            self.poison(frame.index());
        }
        #[cfg(not(debug_assertions))]
        let _ = (frame, pool);
    }

    /// The single frame is about to be lent.
    #[inline(always)]
    pub(super) fn lent(self, frame: &Frame) {
        #[cfg(debug_assertions)]
        self.stamps().lent(frame.index(), frame.generation());
        #[cfg(not(debug_assertions))]
        let _ = frame;
    }

    /// The handle of a frame that was lent. Callers uphold `Frame` invariants 1 and 2.
    #[inline(always)]
    pub(super) fn reclaimed(self, index: u32) -> Frame {
        #[cfg(debug_assertions)]
        let generation = self.stamps().reclaimed(index);
        #[cfg(not(debug_assertions))]
        let generation = Generation();
        Frame::from_parts(self.layout.tag, index, generation)
    }

    /// The single frame `part` is about to follow others in the packet of frame `first`.
    #[inline(always)]
    pub(super) fn joined(self, part: &Frame, first: u32) {
        #[cfg(debug_assertions)]
        self.stamps().joined(part.index(), part.generation(), first);
        #[cfg(not(debug_assertions))]
        let _ = (part, first);
    }

    /// The handle of a frame that followed others. Callers uphold `Frame` invariants 1 and 2.
    #[inline(always)]
    pub(super) fn parted(self, index: u32) -> Frame {
        #[cfg(debug_assertions)]
        let generation = self.stamps().parted(index);
        #[cfg(not(debug_assertions))]
        let generation = Generation();
        Frame::from_parts(self.layout.tag, index, generation)
    }

    /// The frame's bytes or metadata are about to be looked at.
    #[inline(always)]
    pub(super) fn used(self, frame: &Frame) {
        #[cfg(debug_assertions)]
        self.stamps().used(frame.index(), frame.generation());
        #[cfg(not(debug_assertions))]
        let _ = frame;
    }
}

#[cfg(debug_assertions)]
impl View<'_> {
    fn stamps(&self) -> &Stamps {
        // SAFETY: `Layout` invariant 4; the region is borrowed for longer than `self`.
        unsafe { self.layout.stamps.as_ref() }
    }

    fn poison(self, index: u32) {
        // SAFETY: the frame is being given back: its handle, of this region, is about to end.
        let slot = unsafe { self.slot_of(index) };
        // SAFETY: the slot is inside the mapping, and the caller that gives the frame back owns it.
        unsafe { slot.write_bytes(POISON, 1 << self.layout.shift) }
    }

    fn check_poison(self, index: u32) {
        // SAFETY: the frame is being taken: its index is of this region, and it has no other holder.
        let slot = unsafe { self.slot_of(index) };
        // SAFETY: `slice::from_raw_parts`: the slot is inside the mapping and initialised, and the caller that takes
        // the frame owns it. A writer that breaks this rule is what the check looks for.
        let bytes = unsafe { slice::from_raw_parts(slot.as_ptr(), 1 << self.layout.shift) };
        let intact = [POISON; 4096];
        if bytes != &intact[..bytes.len()] {
            let at = bytes.iter().position(|&byte| byte != POISON);
            self.stamps().spoilt(index, at.unwrap_or_default());
        }
    }
}

impl Region {
    /// See [`View::note`].
    #[inline(always)]
    pub fn note(&self, frame: &Frame, holder: Holder) {
        self.view().note(frame, holder);
    }

    /// The frames that are not free, each with its last holder; none in release builds, which do not know.
    pub(crate) fn missing(&self) -> Vec<Missing> {
        #[cfg(debug_assertions)]
        return self.view().stamps().missing();
        #[cfg(not(debug_assertions))]
        return Vec::new();
    }
}

/// What freed bytes are overwritten with.
#[cfg(debug_assertions)]
const POISON: u8 = 0xdb;

/// Each kind of misuse, by code inside of this crate or by breaking the one debt of `Region::reclaim`.
#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;
    use crate::{Batch, Depot, Pool, RegionConfig};

    #[test]
    #[should_panic(expected = "frame 0 cannot be given back: it is free, last held by pool 0")]
    fn a_frame_given_back_twice_is_caught() {
        let mut pool = pool(8);
        let frame = pool.take().expect("8 are free");
        let twin = twin(&frame);
        pool.give_back(frame);
        pool.give_back(twin);
    }

    #[test]
    #[should_panic(expected = "frame 0 cannot be given back: it is free, last held by pool 0")]
    fn a_frame_given_back_twice_in_a_batch_is_caught() {
        let mut pool = pool(8);
        let mut batch = Batch::new();
        let frame = pool.take().expect("8 are free");
        batch.push(twin(&frame)).expect("there is room");
        batch.push(frame).expect("there is room");
        pool.give_back_all(&mut batch);
    }

    #[test]
    #[should_panic(expected = "frame 0 cannot be used: it is free, last held by pool 0")]
    fn a_frame_used_after_it_was_given_back_is_caught() {
        let mut pool = pool(8);
        let frame = pool.take().expect("8 are free");
        let twin = twin(&frame);
        pool.give_back(frame);
        pool.region().bytes(&twin);
    }

    #[test]
    #[should_panic(
        expected = "frame 0 cannot be used: the handle is of life 1, and the frame in life 2, out"
    )]
    fn a_handle_from_an_earlier_life_is_caught() {
        let mut pool = pool(8);
        let frame = pool.take().expect("8 are free");
        let twin = twin(&frame);
        pool.give_back(frame);
        let _again = pool.take().expect("8 are free");
        pool.region().bytes(&twin);
    }

    #[test]
    #[should_panic(
        expected = "frame 0 cannot be reclaimed: it is out, last held by port 3, to transmit"
    )]
    fn a_lent_frame_reclaimed_twice_is_caught() {
        let mut pool = pool(8);
        let frame = pool.take().expect("8 are free");
        pool.region().note(&frame, Holder::Transmit(PortId(3)));
        let address = pool.region().lend(frame);
        // SAFETY: lent above, never given to a kernel.
        let frame = unsafe { pool.region().reclaim(address) };
        let _frame = frame;
        // SAFETY: none: the test breaks the rule. The check panics before a second handle exists.
        let _ = unsafe { pool.region().reclaim(address) };
    }

    #[test]
    #[should_panic(
        expected = "frame 5 cannot be reclaimed: it is free, last held by no holder yet"
    )]
    fn a_frame_that_was_never_lent_is_caught() {
        let pool = pool(8);
        // SAFETY: none, as above.
        let _ = unsafe { pool.region().reclaim(5 * 2048) };
    }

    #[test]
    #[should_panic(expected = "byte 300 of frame 0 was written while it was free")]
    fn a_device_that_writes_after_it_has_finished_is_caught() {
        let mut pool = pool(8);
        let frame = pool.take().expect("8 are free");
        let address = pool.region().lend(frame);
        // SAFETY: lent above, never given to a kernel.
        let frame = unsafe { pool.region().reclaim(address) };
        pool.give_back(frame);
        // SAFETY: inside the first frame's slot, which is not borrowed.
        unsafe { pool.region().base().add(300).write(7) };
        let _ = pool.take();
    }

    #[test]
    #[should_panic(expected = "is from another region")]
    fn a_frame_of_another_region_is_caught() {
        let (mut pool, mut other) = (pool(8), self::pool(8));
        let frame = other.take().expect("8 are free");
        pool.give_back(frame);
    }

    #[test]
    #[should_panic(
        expected = "frame 1 cannot be given back: it is part of a packet, last held by the chain"
    )]
    fn a_part_of_a_packet_given_back_by_itself_is_caught() {
        let mut pool = pool(8);
        let (mut first, part) = (pool.take().expect("8 are free"), pool.take().expect("7 are"));
        let twin = twin(&part);
        pool.region().view().append(&mut first, part).expect("there is room");
        pool.give_back(twin);
    }

    #[test]
    fn a_leak_names_who_had_it_last() {
        let depot = depot(8);
        let mut pool = depot.pool();
        let taken: Vec<Frame> = std::iter::from_fn(|| pool.take()).take(4).collect();
        let holders = [Holder::Hold, Holder::Wire(PortId(1)), Holder::Receive(PortId(2))];
        for (frame, holder) in taken.iter().zip(holders) {
            pool.region().note(frame, holder);
        }
        for (number, frame) in taken.into_iter().enumerate() {
            match number {
                2 => {
                    pool.region().lend(frame);
                }
                _ => std::mem::forget(frame),
            }
        }
        drop(pool);
        let missing: Vec<String> = depot.missing().iter().map(Missing::to_string).collect();
        assert_eq!(
            missing,
            [
                "frame 0 is out, last held by a hold queue",
                "frame 1 is out, last held by a wire to port 1",
                "frame 2 is lent, last held by port 2, to receive",
                "frame 3 is out, last held by the thread that took it from pool 0",
            ]
        );
    }

    fn depot(frames: u32) -> Depot {
        let region = Region::new(RegionConfig { frames, frame_size: 2048 });
        Depot::new(region.expect("some KiB can be mapped"), 2).expect("the frames are there")
    }

    fn pool(frames: u32) -> Pool {
        depot(frames).pool()
    }

    /// A second handle, as only a bug in this crate could make one.
    fn twin(frame: &Frame) -> Frame {
        Frame::from_parts(frame.tag(), frame.index(), frame.generation())
    }
}
