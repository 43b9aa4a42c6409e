//! Which worker forwards what: decided at the start, changed while traffic flows.
//!
//! | thread               | may                                                                     |
//! |----------------------|-------------------------------------------------------------------------|
//! | API's thread         | change limits, how a port is steered, buckets, which workers are paused, how many workers run ([`Steering::set`]) |
//! | control thread       | move buckets by measured load ([`Steering::rebalance`]), pass queues from one worker to another, let workers end that were removed ([`Steering::tend`]) |
//! | workers              | follow, when the order of packets allows it                             |
//!
//! Two words for each bucket: the worker it is *assigned*, which the operator and the measured load change,
//! and the one that is *wanted*, which workers follow: another one while that worker is paused, or not there. Which
//! one, load may change; what was assigned stays, so that it comes back.
//!
//! | file            | holds                                                                  |
//! |-----------------|------------------------------------------------------------------------|
//! | `plan.rs`       | how each port is steered from the start, and what rings that takes     |
//! | `settings.rs`   | what an operator sets, by its key                                      |
//! | `load.rs`       | load, looked at again and again                                        |
//! | `rebalance.rs`  | which buckets to move, by load: a pure function                        |
//! | `queues.rs`     | receive queues that go from one worker to another                      |
//! | `workers.rs`    | workers that are added and removed                                     |
//! | `removal.rs`    | ports that are removed                                                 |
//! | `shown.rs`      | what the API shows                                                     |

mod load;
mod plan;
mod queues;
mod rebalance;
mod removal;
mod settings;
mod shown;
#[cfg(test)]
mod tests;
mod workers;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use manylane_frame::vocabulary::{PortId, QueueId, WorkerId};
use manylane_net::wire::flow::FlowKey;
use manylane_sync::handoff::{GROUP, RECEIVER, SteeringMap};
use manylane_sync::words::{Words, WordsMut};

use super::open::Bell;
use super::worker_threads::WorkerThreads;
use crate::config::{self, Config, Driver, PortSteering};
use manylane_api::PortState;
use manylane_worker::worker::handoff::{HandOff, HandOffReader, Mesh, frames_between, limits};
use manylane_worker::worker::queue_handover::QueueHandoverEnd;

pub use plan::{Plan, lines};
use queues::Queues;
pub use removal::{Closer, Ports, Removal};
use workers::Presence;

/// Steering, as API and control thread share it.
pub type Shared = Arc<Mutex<Steering>>;

/// A port, as it is steered.
struct SteeredPort {
    name: String,
    steering: PortSteering,
    why: String,
    owners: Vec<WorkerId>,
    /// By which queue each worker transmits, once it is open.
    transmit_queues: Vec<Option<QueueId>>,
    /// The worker that is to have each queue while it runs: where it was put, at the start or by the operator.
    homes: Vec<WorkerId>,
    /// By bucket.
    assigned: Vec<u16>,
    /// By bucket, the worker that has it while the worker that it is assigned is paused, if load has decided.
    stand_ins: Vec<Option<u16>>,
    /// Of memory: a sender rings the bell of the queue's owner.
    stays: bool,
    state: PortState,
}

/// The writer's side of what steers workers.
pub struct Steering {
    map: SteeringMap,
    limits: WordsMut<u32>,
    ports: Vec<SteeredPort>,
    receivers: Vec<bool>,
    /// Packets that a ring takes.
    capacity: u32,
    paused: Vec<bool>,
    presence: Vec<Presence>,
    threads: WorkerThreads,
    rebalances: bool,
    /// By worker; empty without rings.
    counts: Vec<HandOffReader>,
    bells: Vec<Bell>,
    queues: Queues,
    removals: Vec<Removal>,
    /// Frames that the devices of removed ports did not give back.
    kept: usize,
    /// What each bucket carried when load was last looked at, by port.
    carried: Vec<Vec<u32>>,
    busy_ns: Vec<u64>,
    looked_at: Duration,
    moved: u64,
}

impl Steering {
    /// Steering by `plan`, and the rings for it, if it needs any: one end for each worker. `handovers` are the
    /// workers'; flows are parted by `key`.
    pub fn new(
        config: &Config,
        plan: Plan,
        owners: &[Vec<WorkerId>],
        bells: &[Bell],
        handovers: Vec<QueueHandoverEnd>,
        key: FlowKey,
    ) -> (Steering, Vec<HandOff>) {
        let workers = config.workers.count();
        let config::Steering { netdev_max_backlog, netdev_budget, dev_weight, rebalance, .. } =
            config.steering;
        let limits = limits::words(netdev_max_backlog, netdev_budget, dev_weight);
        let map = SteeringMap::new(owners.len() * GROUP, RECEIVER);
        let capacity = netdev_max_backlog.next_power_of_two();
        let mesh = plan.has_rings().then(|| {
            let reader = map.reader();
            let capacity = capacity as usize;
            let limits = limits.reader();
            Mesh::build(&plan.receivers, capacity, bells, &reader, owners.len(), &limits, key)
        });
        let (handoffs, counts) = mesh.into_iter().flat_map(|mesh| mesh.ends).unzip();
        let ports = config.ports.iter().zip(owners).zip(plan.ports);
        let ports = ports.map(|((port, owners), (steering, why))| SteeredPort {
            name: port.name.clone(),
            steering,
            why,
            owners: owners.clone(),
            transmit_queues: Vec::new(),
            homes: owners.clone(),
            assigned: spread(workers),
            stand_ins: vec![None; GROUP],
            state: PortState::Open,
            stays: matches!(port.driver, Driver::Memory(_)),
        });
        let presence = |worker| match worker < config.workers.started {
            true => Presence::Running,
            false => Presence::Absent,
        };
        let mut steering = Steering {
            map,
            limits,
            ports: ports.collect(),
            receivers: plan.receivers,
            capacity,
            paused: vec![false; workers],
            presence: (0..workers).map(presence).collect(),
            threads: WorkerThreads::default(),
            rebalances: rebalance,
            counts,
            bells: bells.to_vec(),
            queues: Queues::new(owners, handovers),
            removals: Vec::new(),
            kept: 0,
            carried: vec![vec![0; GROUP]; owners.len()],
            busy_ns: vec![0; workers],
            looked_at: Duration::ZERO,
            moved: 0,
        };
        steering.publish();
        (steering, handoffs)
    }

    /// Notes by which queue of a port each worker transmits: to be shown. The queue stays, whichever worker receives.
    pub fn set_transmit_queues(&mut self, port: PortId, transmit_queues: Vec<Option<QueueId>>) {
        self.ports[port.index()].transmit_queues = transmit_queues;
    }

    /// The workers' side of the limits.
    pub fn limits(&self) -> Words<u32> {
        self.limits.reader()
    }

    /// Frames that lie between workers.
    pub fn frames(&self) -> u64 {
        frames_between(&self.counts)
    }

    /// Whether workers have rings between them.
    pub fn has_rings(&self) -> bool {
        !self.counts.is_empty()
    }

    /// Makes workers follow what is assigned, as far as the assigned workers run and are not paused.
    fn publish(&mut self) {
        let active: Vec<u16> =
            (0..self.paused.len() as u16).filter(|&at| self.is_active(at)).collect();
        for (number, port) in self.ports.iter().enumerate() {
            for (bucket, &assigned) in port.assigned.iter().enumerate() {
                let wanted = match port.steering {
                    PortSteering::Queue => RECEIVER,
                    PortSteering::Flow if !active.contains(&assigned) => {
                        let decided = port.stand_ins[bucket];
                        let decided = decided.filter(|worker| active.contains(worker));
                        decided.unwrap_or(active[bucket % active.len()])
                    }
                    PortSteering::Flow => assigned,
                };
                self.map.want(number * GROUP + bucket, wanted);
            }
        }
        self.tell();
    }

    /// Makes workers look at what is wanted of them.
    fn tell(&mut self) {
        let generation = self.limits.load(limits::GENERATION);
        self.limits.publish(limits::GENERATION, generation.wrapping_add(1));
        self.wake();
    }

    /// A worker that sleeps follows only when it wakes.
    fn wake(&self) {
        for bell in &self.bells {
            bell.ring();
        }
    }
}

/// All buckets, evenly.
fn spread(workers: usize) -> Vec<u16> {
    (0..GROUP).map(|bucket| (bucket % workers) as u16).collect()
}
