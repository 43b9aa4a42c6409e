//! Delayed and reordered packets.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use manylane_frame::Frame;

/// Packets that wait for a time or for other packets, and those ready to continue.
///
/// All memory is allocated at the start: holding a packet allocates nothing.
pub(super) struct Hold {
    /// By time, the earliest first.
    delayed: BinaryHeap<Delayed>,
    /// In the order of arrival, in which they are also released.
    reordered: VecDeque<Reordered>,
    ready: VecDeque<Packet>,
    /// Packets that continued; released reordered packets are not counted.
    passed: u64,
    /// Delayed packets so far.
    number: u64,
    /// Frames of delayed or reordered packets, and their maximum.
    frames: usize,
    frames_max: usize,
    ready_frames: usize,
}

/// A packet and the number of its frames.
pub(super) struct Packet {
    pub frame: Frame,
    pub frames: usize,
}

struct Delayed {
    due_ns: u64,
    number: u64,
    packet: Packet,
}

struct Reordered {
    /// The value of `passed` at which the packet is released.
    after: u64,
    due_ns: u64,
    packet: Packet,
}

impl Hold {
    pub(super) fn new(frames_max: u32, ready: usize) -> Hold {
        let frames_max = frames_max as usize;
        Hold {
            delayed: BinaryHeap::with_capacity(frames_max),
            reordered: VecDeque::with_capacity(frames_max),
            ready: VecDeque::with_capacity(frames_max + ready),
            passed: 0,
            number: 0,
            frames: 0,
            frames_max,
            ready_frames: 0,
        }
    }

    /// Lets a packet continue, and then the reordered packets that waited for it.
    pub(super) fn pass(&mut self, packet: Packet) {
        self.push(packet);
        self.passed += 1;
        while self.reordered.front().is_some_and(|first| first.after <= self.passed) {
            self.release_reordered();
        }
    }

    /// Holds a packet until `due_ns`, or returns it when full.
    pub(super) fn delay(&mut self, packet: Packet, due_ns: u64) -> Result<(), Packet> {
        self.number += 1;
        let number = self.number;
        let packet = self.take_room(packet)?;
        self.delayed.push(Delayed { due_ns, number, packet });
        Ok(())
    }

    /// Holds a packet until `distance` others have continued, but not beyond `due_ns`; or returns it when full.
    /// Neither value may be less than for the packet before.
    pub(super) fn reorder(
        &mut self,
        packet: Packet,
        distance: u32,
        due_ns: u64,
    ) -> Result<(), Packet> {
        let packet = self.take_room(packet)?;
        let after = self.passed + u64::from(distance);
        self.reordered.push_back(Reordered { after, due_ns, packet });
        Ok(())
    }

    /// Releases the packets that are due.
    pub(super) fn release(&mut self, now_ns: u64) {
        while self.delayed.peek().is_some_and(|first| first.due_ns <= now_ns) {
            let Delayed { packet, .. } =
                self.delayed.pop().expect("the heap or queue has a first packet");
            self.frames -= packet.frames;
            self.pass(packet);
        }
        while self.reordered.front().is_some_and(|first| first.due_ns <= now_ns) {
            self.release_reordered();
        }
    }

    /// The next packet ready to continue.
    pub(super) fn pop(&mut self) -> Option<Packet> {
        let packet = self.ready.pop_front()?;
        self.ready_frames -= packet.frames;
        Some(packet)
    }

    /// Puts back a packet for which the caller had no room.
    pub(super) fn put_back(&mut self, packet: Packet) {
        self.ready_frames += packet.frames;
        self.ready.push_front(packet);
    }

    /// How many packets are ready to continue.
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// When the next packet is due; 0 when one is ready.
    pub(super) fn due_ns(&self) -> Option<u64> {
        if !self.ready.is_empty() {
            return Some(0);
        }
        let delayed = self.delayed.peek().map(|first| first.due_ns);
        let reordered = self.reordered.front().map(|first| first.due_ns);
        delayed.into_iter().chain(reordered).min()
    }

    /// The number of frames held here.
    pub(super) fn frames(&self) -> usize {
        self.frames + self.ready_frames
    }

    fn take_room(&mut self, packet: Packet) -> Result<Packet, Packet> {
        if self.frames + packet.frames > self.frames_max {
            return Err(packet);
        }
        self.frames += packet.frames;
        Ok(packet)
    }

    fn release_reordered(&mut self) {
        let Reordered { packet, .. } =
            self.reordered.pop_front().expect("the heap or queue has a first packet");
        self.frames -= packet.frames;
        self.push(packet);
    }

    fn push(&mut self, packet: Packet) {
        self.ready_frames += packet.frames;
        self.ready.push_back(packet);
    }
}

impl PartialEq for Delayed {
    fn eq(&self, other: &Delayed) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Delayed {}

impl PartialOrd for Delayed {
    fn partial_cmp(&self, other: &Delayed) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Delayed {
    /// The greatest is the earliest, as a heap needs it; at equal times, the one that arrived first.
    fn cmp(&self, other: &Delayed) -> Ordering {
        (other.due_ns, other.number).cmp(&(self.due_ns, self.number))
    }
}
