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

mod queues;
mod rebalance;
mod removal;
mod settings;
#[cfg(test)]
mod tests;
mod workers;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use manylane_frame::vocabulary::{PortId, QueueId, WorkerId};
use manylane_frame::{BATCH_MAX, CHAIN_MAX};
use manylane_sync::handoff::{GROUP, RECEIVER, SteeringMap};
use manylane_sync::words::{Words, WordsMut};

use super::frames::Line;
use super::open::Bell;
use super::worker_threads::WorkerThreads;
use crate::config::{self, Config, Driver, PortSteering};
use manylane_api::{
    BucketStatus, PairStatus, PortState, PortSteeringStatus, QueueOwner, SteeredWorker,
    SteeringStatus, TransmitQueue,
};
use manylane_worker::worker::handoff::{HandOff, HandOffReader, Mesh, frames_between, limits};
use manylane_worker::worker::queue_handover::QueueHandoverEnd;

use queues::Queues;
use rebalance::{Bucket, Move, moves};
pub use removal::{Closer, Ports, Removal};
use workers::Presence;

/// Steering, as API and control thread share it.
pub type Shared = Arc<Mutex<Steering>>;

/// How each port is to be steered and which workers need rings for that.
pub struct Plan {
    ports: Vec<(PortSteering, String)>,
    receivers: Vec<bool>,
}

impl Plan {
    /// For `config`, whose queues are owned by `owners`.
    pub fn new(config: &Config, owners: &[Vec<WorkerId>]) -> Plan {
        let workers = config.workers.count();
        // Where workers come and go, any may have to take another's queue.
        let mut receivers = vec![config.workers.started < workers; workers];
        for receiver in config.steering.receivers.iter().filter(|_| workers > 1) {
            receivers[usize::from(receiver.0)] = true;
        }
        let ports = config.ports.iter().zip(owners).map(|(port, owners)| {
            let queues = match owners.len() {
                1 => "1 queue".to_owned(),
                queues => format!("{queues} queues"),
            };
            let (steering, why) = match port.steering {
                _ if workers == 1 => (PortSteering::Queue, "one worker forwards all".into()),
                Some(steering) => (steering, "as configured".into()),
                None if owners.len() < workers => {
                    (PortSteering::Flow, format!("{queues} for {workers} workers"))
                }
                None => (PortSteering::Queue, format!("{queues} for {workers} workers")),
            };
            if steering == PortSteering::Flow {
                owners.iter().for_each(|owner| receivers[usize::from(owner.0)] = true);
            }
            (steering, why)
        });
        let ports = ports.collect();
        Plan { ports, receivers }
    }

    /// Whether any worker has rings.
    fn has_rings(&self) -> bool {
        self.receivers.contains(&true)
    }
}

/// Frames that can lie between workers, when a packet has up to `chain` of them.
pub fn lines(config: &Config, owners: &[Vec<WorkerId>], chain: u64) -> Option<Line> {
    let plan = Plan::new(config, owners);
    let receivers = plan.receivers.iter().filter(|&&receives| receives).count() as u64;
    let others = config.workers.count() as u64 - 1;
    let ring = u64::from(config.steering.netdev_max_backlog.next_power_of_two());
    let (batch, behind) = (BATCH_MAX as u64, chain.min(CHAIN_MAX as u64) - 1);
    let (frames, reckoning) = match behind {
        0 => (ring, format!("{ring}")),
        _ => (
            2 * ring + batch * behind,
            format!("({ring} packets + {ring} parts + {batch} x {behind})"),
        ),
    };
    plan.has_rings().then(|| Line {
        holder: "between workers".into(),
        reckoning: format!("{receivers} x {others} x {reckoning}"),
        frames: receivers * others * frames,
    })
}

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
    /// workers'.
    pub fn new(
        config: &Config,
        plan: Plan,
        owners: &[Vec<WorkerId>],
        bells: &[Bell],
        handovers: Vec<QueueHandoverEnd>,
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
            Mesh::build(&plan.receivers, capacity, bells, &reader, owners.len(), &limits)
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

    /// When load is to be looked at next.
    pub fn deadline(&self) -> Option<Duration> {
        (self.rebalances && self.has_rings()).then(|| self.looked_at + REBALANCE_INTERVAL)
    }

    fn look_again(&mut self) {
        self.looked_at = Duration::ZERO;
        self.carried.iter_mut().flatten().for_each(|carried| *carried = 0);
    }

    /// Moves a few buckets from workers with much to do to workers with little. `busy_ns` is how long each
    /// worker has been busy in all. Returns how many moved.
    pub fn rebalance(&mut self, busy_ns: &[u64], now: Duration) -> usize {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return 0;
        }
        let interval_ns = now.saturating_sub(self.looked_at).as_nanos() as u64;
        let first = self.looked_at == Duration::ZERO;
        self.looked_at = now;
        let load = busy_ns.iter().zip(&mut self.busy_ns).map(|(&now, before)| {
            let busy = now.wrapping_sub(std::mem::replace(before, now));
            busy as f64 / interval_ns.max(1) as f64
        });
        let load: Vec<f64> = load.collect();
        let mut buckets = Vec::new();
        for (number, port) in self.ports.iter().enumerate() {
            let id = PortId(number as u16);
            for bucket in 0..GROUP {
                // Each receiver of the port steers its own packets.
                let frames = self.counts.iter().map(|counts| counts.bucket(id, bucket).1);
                let frames = frames.fold(0, u32::wrapping_add);
                let before = std::mem::replace(&mut self.carried[number][bucket], frames);
                let carried = frames.wrapping_sub(before);
                if port.steering == PortSteering::Flow && carried > 0 {
                    let worker = self.map.wanted(number * GROUP + bucket);
                    buckets.push(Bucket { port: id, bucket, worker, frames: carried });
                }
            }
        }
        if first {
            return 0; // No earlier measure exists to compare with.
        }
        // What is still to move would count for the wrong worker, and lands all at once: a worker with pending moves is
        // left alone until it has.
        let mut left_alone: Vec<bool> =
            (0..self.paused.len() as u16).map(|worker| !self.is_active(worker)).collect();
        for (worker, still) in self.pending() {
            for worker in [worker, still] {
                left_alone[usize::from(worker)] = true;
            }
        }
        let moves = moves(&load, &left_alone, &buckets);
        for &Move { port, bucket, to } in &moves {
            let port = &mut self.ports[port.index()];
            // What is assigned to a paused worker returns to it.
            match self.paused[usize::from(port.assigned[bucket])] {
                true => port.stand_ins[bucket] = Some(to),
                false => port.assigned[bucket] = to,
            }
        }
        if !moves.is_empty() {
            self.moved += moves.len() as u64;
            self.publish();
        }
        moves.len()
    }

    /// The moves that are wanted and not seen to be done: the worker they lead to, and the one they leave.
    fn pending(&self) -> impl Iterator<Item = (u16, u16)> {
        let by_flow = (0..).map(PortId).zip(&self.ports);
        let by_flow = by_flow.filter(|(_, port)| port.steering == PortSteering::Flow);
        by_flow.flat_map(move |(id, port)| {
            (0..GROUP).filter_map(move |bucket| {
                let wanted = self.map.wanted(id.index() * GROUP + bucket);
                self.still(id, port, bucket, wanted).map(|still| (wanted, still))
            })
        })
    }

    /// The worker that still has a bucket that another is to have; of several receivers', the first one that is late.
    fn still(&self, id: PortId, port: &SteeredPort, bucket: usize, wanted: u16) -> Option<u16> {
        let has = |owner: &WorkerId| self.counts[usize::from(owner.0)].bucket(id, bucket).0;
        port.owners.iter().map(has).find(|&worker| worker != wanted)
    }

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
            why: port.why.clone(),
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

/// All buckets, evenly.
fn spread(workers: usize) -> Vec<u16> {
    (0..GROUP).map(|bucket| (bucket % workers) as u16).collect()
}

/// How often load is looked at: as often as workers publish what buckets carry.
const REBALANCE_INTERVAL: Duration = Duration::from_millis(100);
