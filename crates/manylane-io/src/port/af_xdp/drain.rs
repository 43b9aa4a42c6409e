//! What has left a device that sends by several queues.
//!
//! What the kernel has taken from a transmit ring may wait in the device, which empties one queue in order, but
//! several in none. So where workers send by different queues, what one has sent has left only when the device has
//! finished with it. The completion ring says how many frames that is for the queue, not of whose socket: so a
//! worker whose frames have been taken waits until as many have come back as all sockets of the queue had been given
//! by then. Those ahead of its last one are among them, and the queue is emptied in order.
//!
//! | count                     | who writes              | who reads                       |
//! |---------------------------|-------------------------|---------------------------------|
//! | frames given, of a socket | its transmitter         | transmitters of the same queue  |
//! | frames back, of a queue   | its receiver            | transmitters of the same queue  |

use manylane_sync::counters::{CounterReader, Counters};

/// The counts of a queue while its sockets are being made.
#[derive(Default)]
pub(super) struct Queue {
    given: Vec<CounterReader>,
    returned: Option<CounterReader>,
}

impl Queue {
    /// The receiver's side.
    pub fn returned(&mut self) -> Counters {
        let counters = Counters::new(1);
        self.returned = Some(counters.reader());
        counters
    }

    /// A further socket's side: what it is given.
    pub fn given(&mut self) -> Counters {
        let counters = Counters::new(1);
        self.given.push(counters.reader());
        counters
    }

    /// What has left by the queue, for a transmitter whose own count is `own`, when all sockets are made.
    pub fn left(&self, own: Counters) -> Left {
        let returned = self.returned.clone().expect("a queue that is sent by has a receiver");
        Left { own, given: self.given.clone(), returned, wanted: Some(0) }
    }
}

/// Whether what a transmitter has been given has left.
pub(super) struct Left {
    own: Counters,
    /// Of all sockets of the queue, this one too.
    given: Vec<CounterReader>,
    returned: CounterReader,
    /// How many frames are to be back, once all that was noted has been taken; until then, not known.
    wanted: Option<u64>,
}

impl Left {
    /// Tells the others of the queue how much this socket has been given. Before the kernel can see it.
    #[inline]
    pub fn tell(&mut self, given: u64) {
        self.own.set(0, given);
    }

    /// Something new was noted.
    pub fn forget(&mut self) {
        self.wanted = None;
    }

    /// Whether all has left, when the kernel has taken all that was noted.
    pub fn has_left(&mut self) -> bool {
        // Whoever has a frame ahead of our last one in the device's queue told of it before the kernel took it,
        // and the kernel took it before ours, under the queue's lock or in the driver's one thread: so by the
        // kernel's order we see it here. No model sees the kernel; too many in the sum only take longer.
        let sum = || self.given.iter().map(|given| given.load(0)).sum();
        let wanted = *self.wanted.get_or_insert_with(sum);
        self.returned.load(0) >= wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_ahead_in_the_queue_has_to_be_back() {
        let mut queue = Queue::default();
        let mut returned = queue.returned();
        let (one, other) = (queue.given(), queue.given());
        let (mut one, mut other) = (queue.left(one), queue.left(other));
        assert!(one.has_left(), "nothing was given");
        other.tell(7);
        assert!(one.has_left(), "nothing was given here");
        one.tell(3);
        one.forget();
        assert!(!one.has_left());
        other.tell(20); // Behind ours.
        returned.set(0, 9);
        assert!(!one.has_left(), "it may be our last that is not back");
        returned.set(0, 10);
        assert!(one.has_left());
        other.forget();
        assert!(!other.has_left());
        returned.set(0, 23);
        assert!(one.has_left() && other.has_left());
    }
}
