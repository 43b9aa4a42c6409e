//! Assigns a port's transmit queues to workers: the one that matches the worker's receive queue.
//!
//! Linux records by which queue a packet arrived, and sends a forwarded one by the queue of that number, modulo
//! the number of transmit queues (`skb_tx_hash` in net/core/dev.c, where
//! `skb_rx_queue_recorded`). So a core uses the queue of the same number on both devices, and a flow
//! received by one queue leaves by one queue. Here a worker is in between, and the rule holds for the
//! queues that it receives by and all packets that it sends.
//!
//! | driver        | what it can select                                                                |
//! |---------------|-----------------------------------------------------------------------------------|
//! | `af_xdp`      | the queue that a socket is bound to, among those that the port also receives by   |
//! | `tap`         | the queue that is written to: the host records its number as the receive queue    |
//! | `af_packet`   | nothing: the door of that room describes the kernel's choice                      |
//! | `memory`      | nothing: a wire to each receive queue of the far end, selected by flow hash       |
//! | `pcap`        | nothing: each worker has a lane of its own into the file                          |

use manylane_frame::vocabulary::{QueueId, WorkerId};

/// The owners of receive queues, of a port and of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receiving<'o> {
    /// The owner of each receive queue of this port, in order.
    pub owners: &'o [WorkerId],
    /// For each worker, the first receive queue that it owns of the first other port where it owns any.
    pub elsewhere: &'o [Option<QueueId>],
}

impl Receiving<'_> {
    /// The number of workers.
    pub fn workers(&self) -> usize {
        self.elsewhere.len()
    }

    /// The transmit queue of each worker, where the port has `queues` to select from.
    ///
    /// | a worker that                | sends by                                                         |
    /// |------------------------------|------------------------------------------------------------------|
    /// | owns queues of this port     | the first of them                                                |
    /// | owns queues of others only   | the number of the first of these                                 |
    /// | owns no queue: hand-off only | its own number, or the next that no worker sends by, if any      |
    ///
    /// All numbers are modulo the number of queues. Where two workers send by one queue, each has its own socket or
    /// descriptor for it.
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

    /// Owners of this port's queues, queues owned elsewhere, transmit queues; the queue that each worker sends by.
    type Case = (&'static [u16], &'static [Option<u16>], u16, &'static [u16]);

    const NO: Option<u16> = None;

    #[test]
    fn a_worker_sends_by_the_queue_that_matches_what_it_receives_by() {
        let cases: [Case; 16] = [
            // A worker that receives by a queue of the port sends by it: the first of several.
            (&[0], &[NO], 1, &[0]),
            (&[0, 1], &[NO, NO], 2, &[0, 1]),
            (&[1, 0], &[NO, NO], 2, &[1, 0]),
            (&[0, 1, 0, 1], &[NO, NO], 4, &[0, 1]),
            (&[1, 1, 0, 0], &[NO, NO], 4, &[2, 0]),
            // A queue of the port takes precedence over the queues it receives by elsewhere.
            (&[1, 0], &[Some(0), Some(1)], 2, &[1, 0]),
            // A worker that receives elsewhere sends by the queue of that number.
            (&[0, 0, 0, 0], &[NO, Some(1)], 4, &[0, 1]),
            (&[0, 0, 0, 0], &[NO, Some(3), Some(2)], 4, &[0, 3, 2]),
            (&[0, 0], &[NO, Some(2)], 2, &[0, 0]),
            // The port may have fewer transmit queues than receive queues.
            (&[0, 1, 2, 3], &[NO; 4], 2, &[0, 1, 0, 1]),
            (&[0, 1, 2, 3], &[NO; 4], 3, &[0, 1, 2, 0]),
            // A worker without queues has its own number, or the next that no worker sends by, or else its own.
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
