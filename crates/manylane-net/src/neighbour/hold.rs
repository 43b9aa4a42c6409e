//! Packets that wait in a worker for a neighbour to answer.
//!
//! Each worker has its own queues and touches no other's, so holding moves no packet between cores
//! and cannot overtake: a turn that sees a new generation of adjacencies releases what is held for a
//! neighbour before it sends anything newer there.
//!
//! | bound            | reaching it                                                               |
//! |------------------|---------------------------------------------------------------------------|
//! | frames a queue   | its oldest packets are handed out, to drop as `hold_overflow`; a packet   |
//! |                  | that exceeds the bound alone is handed back, to drop as `hold_full`       |
//! | frames in all    | [`HoldQueues::gives_way`] names a neighbour whose packets give way, to    |
//! |                  | drop as `hold_overflow`; where it names none, the new packet is handed    |
//! |                  | back, to drop as `hold_full`                                              |
//! | queues           | as above                                                                  |
//! | age of a queue   | [`HoldQueues::expired`] names it, to drop as `neighbour_failed`           |
//!
//! Frames count, not packets: 64 KiB that wait are 37 frames that no port can receive into.
//!
//! Nothing is allocated after `new`: packets and queues are nodes of two arrays, linked by index.
//!
//! The owner of the queues empties them before it drops them ([`HoldQueues::drain_all`]). A frame left inside counts as
//! leaked like any other that is dropped, and panics in debug builds.

use std::collections::HashMap;

use manylane_frame::Frame;

use super::Key;

/// The bounds of one worker's queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldLimits {
    /// Frames in one queue at most.
    pub queue_frames_max: u32,
    /// Frames in all queues together at most.
    pub frames_max: u32,
    /// Queues at most: neighbours that are waited for at the same time.
    pub queues_max: u32,
}

impl Default for HoldLimits {
    /// 101 frames for each neighbour is Linux's `unres_qlen`.
    fn default() -> Self {
        HoldLimits { queue_frames_max: 101, frames_max: 1024, queues_max: 256 }
    }
}

/// How long a queue may be held: three questions a second apart, and as much again for an answer that
/// is slow, a control thread that is busy and a token that is awaited.
pub const HOLD_MAX_NS: u64 = 6_000_000_000;

/// How long a neighbour's packets keep their place when a newer neighbour needs it. A station on a link answers within
/// a millisecond or a few; most addresses that are waited for longer belong to no station, and a scan of such would take
/// every place for [`HOLD_MAX_NS`] (RFC 6583 §5).
const PLACE_SURE_NS: u64 = 10_000_000;

/// One worker's held packets.
///
/// # Invariants
///
/// 1. Each node of `packets` is in exactly one chain: the free one, or one queue's. A node holds a packet exactly when it
///    is in a queue's. The nodes are `frames_max`, and every packet has a frame: where the bound lets one in, a node is
///    free.
/// 2. Each node of `queues` is in exactly one chain: the free one, or the one by age, oldest first.
///    `by_key` has exactly those in the second, and none of these is empty.
/// 3. `held` is the number of packets in all queues, and `frames` that of their frames.
pub struct HoldQueues {
    limits: HoldLimits,
    packets: Vec<Packet>,
    free_packets: u32,
    queues: Vec<Queue>,
    free_queues: u32,
    oldest: u32,
    newest: u32,
    by_key: HashMap<Key, u32>,
    held: u32,
    frames: u32,
}

struct Packet {
    frame: Option<Frame>,
    /// In how many frames it lies.
    frames: u32,
    next: u32,
}

struct Queue {
    /// `None` in the free chain.
    key: Option<Key>,
    since_ns: u64,
    frames: u32,
    head: u32,
    tail: u32,
    older: u32,
    newer: u32,
}

/// The end of a chain.
const NIL: u32 = u32::MAX;

impl HoldQueues {
    /// Empty queues.
    ///
    /// # Panics
    ///
    /// When a limit is 0: then do not hold at all.
    pub fn new(limits: HoldLimits) -> HoldQueues {
        let HoldLimits { queue_frames_max, frames_max, queues_max } = limits;
        assert!(queue_frames_max > 0 && frames_max > 0 && queues_max > 0, "a limit is 0");
        let next = |index: u32, len: u32| if index + 1 < len { index + 1 } else { NIL };
        let packet = |index| Packet { frame: None, frames: 0, next: next(index, frames_max) };
        let queue = |index| Queue { newer: next(index, queues_max), ..Queue::blank() };
        HoldQueues {
            limits,
            packets: (0..frames_max).map(packet).collect(),
            free_packets: 0,
            queues: (0..queues_max).map(queue).collect(),
            free_queues: 0,
            oldest: NIL,
            newest: NIL,
            // Twice what it will hold: then the map tidies up after removals in place, and never grows.
            by_key: HashMap::with_capacity(2 * queues_max as usize),
            held: 0,
            frames: 0,
        }
    }

    /// Holds a packet in `frames` frames for a neighbour, behind those already held for it. A queue that it opens has
    /// the packet's age: it waits since `since_ns`, which is now unless it was held before. Where the queue's bound
    /// demands it, its oldest packets make room; they are passed to `make_room`. An error hands the packet back, and no
    /// packet made room for it: a bound of the worker is reached.
    pub fn push(
        &mut self,
        key: Key,
        frame: Frame,
        frames: usize,
        since_ns: u64,
        mut make_room: impl FnMut(Frame),
    ) -> Result<(), Frame> {
        let frames = frames as u32; // At most `CHAIN_MAX`.
        let queue = self.by_key.get(&key).copied();
        let Some(surplus) = self.surplus(queue, frames) else { return Err(frame) };
        // A queue is opened only for a packet that will be in it (invariant 2).
        let Some(queue) = queue.or_else(|| self.open(key, since_ns)) else { return Err(frame) };
        for _ in 0..surplus {
            self.pop(queue).into_iter().for_each(&mut make_room);
        }
        self.append(queue, frame, frames);
        Ok(())
    }

    /// The neighbour whose packets must be taken, and dropped, before `frames` frames for `key` can be held: the one that
    /// is waited for longest, if that is for 10 ms at least. `None` when they can be held, or no neighbour gives way.
    /// [`HoldQueues::take`] it and call again.
    pub fn gives_way(&self, key: Key, frames: usize, now_ns: u64) -> Option<Key> {
        let frames = frames as u32; // At most `CHAIN_MAX`.
        let queue = self.by_key.get(&key).copied();
        let has_queue = queue.is_some() || self.free_queues != NIL;
        if frames > self.limits.queue_frames_max.min(self.limits.frames_max)
            || has_queue && self.surplus(queue, frames).is_some()
        {
            return None;
        }
        let oldest = self.keys().find(|&other| other != key)?;
        let since_ns = self.since_ns(oldest)?;
        (now_ns.saturating_sub(since_ns) >= PLACE_SURE_NS).then_some(oldest)
    }

    /// How many packets of the queue make room for one of `frames` frames; `None` when it must not be added.
    fn surplus(&self, queue: Option<u32>, frames: u32) -> Option<usize> {
        let HoldLimits { queue_frames_max, frames_max, .. } = self.limits;
        let (mut left, mut at) = queue.map_or((0, NIL), |queue| {
            let queue = &self.queues[queue as usize];
            (queue.frames, queue.head)
        });
        let (mut surplus, mut freed) = (0, 0);
        while left + frames > queue_frames_max {
            let packet = self.packets.get(at as usize)?; // At the end, it is too large by itself.
            (left, freed) = (left - packet.frames, freed + packet.frames);
            (surplus, at) = (surplus + 1, packet.next);
        }
        (self.frames - freed + frames <= frames_max).then_some(surplus)
    }

    /// Takes the packets held for a neighbour, oldest first. Those the iterator does not give stay.
    pub fn take(&mut self, key: Key) -> Take<'_> {
        let queue = self.by_key.get(&key).copied();
        Take { holds: self, queue }
    }

    /// Takes every packet, for shutdown.
    pub fn drain_all(&mut self) -> impl Iterator<Item = Frame> {
        std::iter::from_fn(|| {
            let queue = self.oldest;
            (queue != NIL).then(|| self.take_one(queue)).flatten()
        })
    }

    /// The neighbour that is waited for longest, if packets have been held for it for `max_age_ns` or
    /// more. [`HoldQueues::take`] it and call again.
    pub fn expired(&self, now_ns: u64, max_age_ns: u64) -> Option<Key> {
        let queue = self.queues.get(self.oldest as usize)?;
        queue.key.filter(|_| now_ns.saturating_sub(queue.since_ns) >= max_age_ns)
    }

    /// The neighbours that are waited for, longest first. To take while going through them, copy them
    /// into a list that is kept for it.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        let mut at = self.oldest;
        std::iter::from_fn(move || {
            let queue = self.queues.get(at as usize)?;
            at = queue.newer;
            queue.key
        })
    }

    /// Whether packets are held for this neighbour.
    pub fn contains(&self, key: Key) -> bool {
        self.by_key.contains_key(&key)
    }

    /// Since when packets have been waiting for a neighbour.
    pub fn since_ns(&self, key: Key) -> Option<u64> {
        self.by_key.get(&key).map(|&queue| self.queues[queue as usize].since_ns)
    }

    /// How many packets are held.
    #[inline]
    pub fn len(&self) -> usize {
        self.held as usize
    }

    /// In how many frames these lie.
    pub fn frames(&self) -> usize {
        self.frames as usize
    }

    /// Whether none is.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// How many neighbours are waited for.
    pub fn queues(&self) -> usize {
        self.by_key.len()
    }

    /// Puts a packet at the end of a queue.
    fn append(&mut self, queue: u32, frame: Frame, frames: u32) {
        let at = self.free_packets;
        let node = &mut self.packets[at as usize]; // Invariant 1: `surplus` has looked at the bound.
        self.free_packets = node.next;
        *node = Packet { frame: Some(frame), frames, next: NIL };
        let queue = &mut self.queues[queue as usize];
        let tail = std::mem::replace(&mut queue.tail, at);
        match self.packets.get_mut(tail as usize) {
            Some(last) => last.next = at,
            None => queue.head = at,
        }
        queue.frames += frames;
        self.frames += frames;
        self.held += 1;
    }

    /// Takes the first packet of a queue, and leaves the queue open even if that was its last.
    fn pop(&mut self, queue: u32) -> Option<Frame> {
        let queue = &mut self.queues[queue as usize];
        let at = queue.head;
        let node = self.packets.get_mut(at as usize)?;
        queue.head = std::mem::replace(&mut node.next, self.free_packets);
        if queue.head == NIL {
            queue.tail = NIL;
        }
        self.free_packets = at;
        queue.frames -= node.frames;
        self.frames -= node.frames;
        self.held -= 1;
        node.frame.take()
    }

    /// Takes the first packet of a queue, and closes the queue after its last.
    fn take_one(&mut self, queue: u32) -> Option<Frame> {
        let frame = self.pop(queue);
        if self.queues[queue as usize].head == NIL {
            self.close(queue);
        }
        frame
    }

    fn open(&mut self, key: Key, since_ns: u64) -> Option<u32> {
        let at = self.free_queues;
        self.free_queues = self.queues.get(at as usize)?.newer;
        let (mut older, mut newer) = (self.newest, NIL);
        // Only what was held before goes further than the first step.
        while let Some(before) = self.queues.get(older as usize).filter(|it| it.since_ns > since_ns)
        {
            (older, newer) = (before.older, older);
        }
        self.queues[at as usize] =
            Queue { key: Some(key), since_ns, older, newer, ..Queue::blank() };
        match self.queues.get_mut(older as usize) {
            Some(before) => before.newer = at,
            None => self.oldest = at,
        }
        match self.queues.get_mut(newer as usize) {
            Some(after) => after.older = at,
            None => self.newest = at,
        }
        self.by_key.insert(key, at);
        Some(at)
    }

    fn close(&mut self, at: u32) {
        let blank = Queue { newer: self.free_queues, ..Queue::blank() };
        let Queue { key, older, newer, .. } =
            std::mem::replace(&mut self.queues[at as usize], blank);
        self.free_queues = at;
        match self.queues.get_mut(older as usize) {
            Some(before) => before.newer = newer,
            None => self.oldest = newer,
        }
        match self.queues.get_mut(newer as usize) {
            Some(after) => after.older = older,
            None => self.newest = older,
        }
        self.by_key.remove(&key.expect("an open queue has a key"));
    }
}

impl Queue {
    fn blank() -> Queue {
        Queue { key: None, since_ns: 0, frames: 0, head: NIL, tail: NIL, older: NIL, newer: NIL }
    }
}

/// The packets held for one neighbour, about to be sent.
#[must_use = "the packets stay held until they are taken from the iterator"]
pub struct Take<'a> {
    holds: &'a mut HoldQueues,
    /// `None` when nothing is held, or nothing any more.
    queue: Option<u32>,
}

impl Iterator for Take<'_> {
    type Item = Frame;

    fn next(&mut self) -> Option<Frame> {
        let queue = self.queue?;
        let frame = self.holds.take_one(queue);
        if self.holds.queues[queue as usize].key.is_none() {
            self.queue = None; // Closed: the node may serve another neighbour from now on.
        }
        frame
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests;
