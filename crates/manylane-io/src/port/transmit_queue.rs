//! By which of a port's transmit queues each worker sends: the one that matches the recorded receive queue.
//!
//! Linux records by which queue a packet came in, and sends a forwarded one by the queue of that number, less
//! the number of transmit queues as often as it takes (`skb_tx_hash` in net/core/dev.c, where
//! `skb_rx_queue_recorded`). So a core that has a queue of one device has the same of the other, and a flow,
//! which one queue receives, leaves by one queue. Here there is a worker in between, and what is true of the
//! queues that it receives by is true of all that it sends.
//!
//! | driver        | what it can choose                                                                |
//! |---------------|-----------------------------------------------------------------------------------|
//! | `af_xdp`      | the queue that a socket is bound to, among those that the port receives by, too   |
//! | `tap`         | the queue that is written to: by that number the host records where a packet came in |
//! | `af_packet`   | nothing: the door of that room says what the kernel does                          |
//! | `memory`      | nothing: a wire to each receive queue of the far end, where a flow's hash decides |
//! | `pcap`        | nothing: each worker has a lane of its own into the file                          |

use manylane_frame::vocabulary::{QueueId, WorkerId};

/// Who receives by which queues, of a port and of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receiving<'o> {
    /// The owner of each receive queue of this port, in order.
    pub owners: &'o [WorkerId],
    /// For each worker, the first receive queue that it owns of the first other port where it owns any.
    pub elsewhere: &'o [Option<QueueId>],
}

impl Receiving<'_> {
    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.elsewhere.len()
    }

    /// The transmit queue of each worker, where the port has so many to choose from.
    ///
    /// | a worker that                | sends by                                                         |
    /// |------------------------------|------------------------------------------------------------------|
    /// | owns queues of this port     | the first of them                                                |
    /// | owns queues of others only   | the first of the first of these                                  |
    /// | owns none: it is handed packets | its own number, or the next by which nobody sends, if there is one |
    ///
    /// All of it modulo the number of queues. Where two workers send by one queue, each has its own way into
    /// it still.
    ///
    /// # Panics
    ///
    /// Without a queue, or when an owner is not one of the workers.
    pub fn transmit_queues(&self, queues: u16) -> Vec<QueueId> {
        assert!(queues > 0, "a port has a queue");
        let within = |queue: QueueId| QueueId(queue.0 % queues);
        let mut recorded = vec![None; self.workers()];
        for (queue, owner) in (0..).map(QueueId).zip(self.owners) {
            recorded[usize::from(owner.0)].get_or_insert(queue);
        }
        let recorded = recorded.iter().zip(self.elsewhere);
        let mut chosen: Vec<Option<QueueId>> =
            recorded.map(|(here, elsewhere)| here.or(*elsewhere).map(within)).collect();
        for worker in 0..chosen.len() {
            if chosen[worker].is_none() {
                let own = (worker % usize::from(queues)) as u16;
                let mut from_own = (own..queues).chain(0..own).map(QueueId);
                let free = from_own.find(|&queue| !chosen.contains(&Some(queue)));
                chosen[worker] = free.or(Some(QueueId(own)));
            }
        }
        chosen.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Owners of this port's queues, queues owned elsewhere, transmit queues; what each worker sends by.
    type Case = (&'static [u16], &'static [Option<u16>], u16, &'static [u16]);

    const NO: Option<u16> = None;

    #[test]
    fn a_worker_sends_by_the_queue_that_matches_what_it_receives_by() {
        let cases: [Case; 16] = [
            // Who receives by a queue of the port sends by it: the first of several.
            (&[0], &[NO], 1, &[0]),
            (&[0, 1], &[NO, NO], 2, &[0, 1]),
            (&[1, 0], &[NO, NO], 2, &[1, 0]),
            (&[0, 1, 0, 1], &[NO, NO], 4, &[0, 1]),
            (&[1, 1, 0, 0], &[NO, NO], 4, &[2, 0]),
            // That comes before what it receives by elsewhere.
            (&[1, 0], &[Some(0), Some(1)], 2, &[1, 0]),
            // Who receives elsewhere sends by the queue of that number.
            (&[0, 0, 0, 0], &[NO, Some(1)], 4, &[0, 1]),
            (&[0, 0, 0, 0], &[NO, Some(3), Some(2)], 4, &[0, 3, 2]),
            (&[0, 0], &[NO, Some(2)], 2, &[0, 0]),
            // There may be fewer to send by than to receive by.
            (&[0, 1, 2, 3], &[NO; 4], 2, &[0, 1, 0, 1]),
            (&[0, 1, 2, 3], &[NO; 4], 3, &[0, 1, 2, 0]),
            // Who receives nothing has its own number, or the next by which nobody sends, or its own after all.
            (&[0, 0, 0, 0], &[NO, NO, NO], 4, &[0, 1, 2]),
            (&[2, 2, 0], &[NO, NO, NO, NO], 4, &[2, 1, 0, 3]),
            (&[0], &[NO, Some(1), NO], 4, &[0, 1, 2]),
            (&[1], &[NO, NO, Some(1)], 3, &[2, 0, 1]),
            (&[1], &[NO; 5], 2, &[1, 0, 0, 1, 0]),
        ];
        for case @ (owners, elsewhere, queues, expected) in cases {
            let owners: Vec<_> = owners.iter().copied().map(WorkerId).collect();
            let elsewhere: Vec<_> = elsewhere.iter().map(|queue| queue.map(QueueId)).collect();
            let receiving = Receiving { owners: &owners, elsewhere: &elsewhere };
            let chosen: Vec<_> =
                receiving.transmit_queues(queues).iter().map(|queue| queue.0).collect();
            assert_eq!(chosen, expected, "{case:?}");
        }
    }

    #[test]
    #[should_panic(expected = "a port has a queue")]
    fn a_port_without_a_queue_is_none() {
        Receiving { owners: &[], elsewhere: &[None] }.transmit_queues(0);
    }
}
