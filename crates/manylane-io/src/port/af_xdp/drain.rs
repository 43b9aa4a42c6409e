//! Counts the frames that have drained from a device with several transmit queues.
//!
//! Frames that the kernel has taken from a transmit ring may wait in the device, which empties each queue in order, but
//! queues in no common order. So where workers send by different queues, a worker's frames have drained only when the
//! device has completed them. The completion ring counts completed frames per queue, not per socket: so a
//! worker whose frames the kernel has taken waits until the queue has completed as many frames as all its sockets had
//! submitted by then. These include all frames ahead of the worker's last one, and the queue is emptied in order.
//!
//! | count                         | written by      | read by                         |
//! |-------------------------------|-----------------|---------------------------------|
//! | frames submitted, of a socket | its transmitter | transmitters of the same queue  |
//! | frames completed, of a queue  | its receiver    | transmitters of the same queue  |

use manylane_sync::counters::{CounterReader, Counters};

/// The counts of a queue while its sockets are being opened.
#[derive(Default)]
pub(super) struct Queue {
    submitted: Vec<CounterReader>,
    completed: Option<CounterReader>,
}

impl Queue {
    /// The count that the receiver writes.
    pub fn completed(&mut self) -> Counters {
        let counters = Counters::new(1);
        self.completed = Some(counters.reader());
        counters
    }

    /// The count that a further socket's transmitter writes.
    pub fn submitted(&mut self) -> Counters {
        let counters = Counters::new(1);
        self.submitted.push(counters.reader());
        counters
    }

    /// The drain state for a transmitter whose own count is `own`; call it when all sockets are open.
    pub fn drain(&self, own: Counters) -> Drain {
        let completed = self.completed.clone().expect("a transmit queue has a receiver");
        Drain { own, submitted: self.submitted.clone(), completed, target: Some(0) }
    }
}

/// Tells whether a transmitter's frames have drained from the device.
pub(super) struct Drain {
    own: Counters,
    /// Of all sockets of the queue, including this one.
    submitted: Vec<CounterReader>,
    completed: CounterReader,
    /// The count of completed frames at which all marked frames have drained; unknown until the kernel has taken them.
    target: Option<u64>,
}

impl Drain {
    /// Shows this socket's count to the queue's other transmitters. Call it before the kernel can see the frames.
    #[inline]
    pub fn set_submitted(&mut self, count: u64) {
        self.own.set(0, count);
    }

    /// Clears the target, when further frames were marked.
    pub fn restart(&mut self) {
        self.target = None;
    }

    /// Whether all marked frames have drained. Call it when the kernel has taken them.
    pub fn has_drained(&mut self) -> bool {
        // A worker with a frame ahead of our last one in the device's queue counted it before the kernel took it,
        // and the kernel took it before ours, under the queue's lock or in the driver's one thread: so by the
        // kernel's order we see it here. No model sees the kernel; extra frames in the sum only take longer.
        let sum = || self.submitted.iter().map(|count| count.load(0)).sum();
        let target = *self.target.get_or_insert_with(sum);
        self.completed.load(0) >= target
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_ahead_in_the_queue_must_be_completed() {
        let mut queue = Queue::default();
        let mut completed = queue.completed();
        let (one, other) = (queue.submitted(), queue.submitted());
        let (mut one, mut other) = (queue.drain(one), queue.drain(other));
        assert!(one.has_drained(), "no frame was submitted");
        other.set_submitted(7);
        assert!(one.has_drained(), "this socket submitted none");
        one.set_submitted(3);
        one.restart();
        assert!(!one.has_drained());
        other.set_submitted(20); // Behind ours.
        completed.set(0, 9);
        assert!(!one.has_drained(), "the missing one may be our last");
        completed.set(0, 10);
        assert!(one.has_drained());
        other.restart();
        assert!(!other.has_drained());
        completed.set(0, 23);
        assert!(one.has_drained() && other.has_drained());
    }
}
