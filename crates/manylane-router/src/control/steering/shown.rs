//! Steering, as the API shows it.

use manylane_api::{
    BucketStatus, PairStatus, PortState, PortSteeringStatus, QueueOwner, SteeredWorker,
    SteeringStatus, TransmitQueue,
};
use manylane_frame::vocabulary::{PortId, QueueId};
use manylane_sync::handoff::GROUP;
use manylane_worker::worker::handoff::{HandOffReader, limits};

use super::{SteeredPort, Steering};
use crate::config::PortSteering;

impl Steering {
    /// For the API.
    pub fn status(&self) -> SteeringStatus {
        let workers = self.paused.len() as u16;
        SteeringStatus {
            netdev_max_backlog: self.limits.load(limits::MAX_BACKLOG),
            netdev_max_backlog_max: if self.has_rings() { self.capacity } else { 0 },
            netdev_budget: self.limits.load(limits::BUDGET),
            dev_weight: self.limits.load(limits::WEIGHT),
            rebalance: self.rebalances,
            rebalanced: self.moved,
            reorder_sample: self.limits.load(limits::REORDER_SAMPLE),
            reorder_sampled: self.counts.iter().map(HandOffReader::sampled).sum(),
            reordered: self.counts.iter().map(HandOffReader::reordered).sum(),
            ports: (0..)
                .map(PortId)
                .zip(&self.ports)
                .filter(|(_, port)| port.state != PortState::Removed)
                .map(|(id, port)| self.shown(id, port))
                .collect(),
            workers: (0..workers)
                .map(|worker| SteeredWorker { worker, paused: self.paused[usize::from(worker)] })
                .collect(),
            pairs: self.pairs(),
        }
    }

    fn shown(&self, id: PortId, port: &SteeredPort) -> PortSteeringStatus {
        let queues = (0..).zip(&port.owners).map(|(queue, owner)| QueueOwner {
            queue,
            worker: owner.0,
            moving_to: self.queues.moving_to(id, QueueId(queue)).map(|to| to.0),
        });
        let buckets = match port.steering {
            PortSteering::Queue => Vec::new(),
            PortSteering::Flow => (0..GROUP)
                .map(|bucket| {
                    let wanted = self.map.wanted(id.index() * GROUP + bucket);
                    let still = self.still(id, port, bucket, wanted);
                    BucketStatus { worker: wanted, held_by: still }
                })
                .collect(),
        };
        let transmit_queues = (0..)
            .zip(&port.transmit_queues)
            .map(|(worker, queue)| TransmitQueue { worker, queue: queue.map(|queue| queue.0) });
        PortSteeringStatus {
            port: port.name.clone(),
            steering: port.steering.name().into(),
            why: self.why(port),
            queues: queues.collect(),
            buckets,
            transmit_queues: transmit_queues.collect(),
        }
    }

    fn pairs(&self) -> Vec<PairStatus> {
        let mut pairs = Vec::new();
        for (from, counts) in (0..).zip(&self.counts) {
            for (to, others) in (0..).zip(&self.counts) {
                if from == to || !self.receivers[usize::from(from)] {
                    continue;
                }
                // The later count first, so that the difference is not below 0.
                let taken = others.taken_from(from);
                let handed = counts.handed_to(to);
                pairs.push(PairStatus {
                    from,
                    to,
                    handed,
                    batches: counts.batches_to(to),
                    backlog: handed.saturating_sub(taken),
                    backlog_full: counts.backlog_full(to),
                    flow_limit: counts.flow_limit(to),
                    waits: counts.waits(to),
                });
            }
        }
        pairs
    }
}
