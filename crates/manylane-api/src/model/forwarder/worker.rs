//! Workers, and which of them has which flows and queues.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WorkerStatus {
    /// Its number, from 0.
    pub worker: u16,
    /// The core it is pinned to, if it is.
    pub core: Option<u16>,
    /// Whether it runs.
    pub state: WorkerState,
    /// Turns of its loop.
    pub turns: u64,
    /// Share of the last second in turns that found something to do.
    pub busy_percent: f64,
    /// Nanoseconds in turns that found something to do.
    #[serde(default)]
    pub busy_ns: u64,
    /// Nanoseconds in turns that found nothing to do, and asleep.
    #[serde(default)]
    pub idle_ns: u64,
    /// Times it went to sleep.
    pub sleeps: u64,
    /// Times another thread woke it.
    pub wakeups: u64,
    /// Reports to the control thread that found no place; each happens again with the next packet.
    pub reports_lost: u64,
    /// Orders of the control thread that nothing could be sent for.
    pub orders_lost: u64,
    /// ICMP errors that the rate limit held back.
    pub errors_suppressed: u64,
    /// Packets whose encapsulated transport checksum could not be completed.
    pub inner_checksum_partial: u64,
    /// The receive queues it owns.
    pub queues: Vec<QueueName>,
    /// Packets received.
    pub received: u64,
    /// Packets transmitted.
    pub transmitted: u64,
    /// Packets waiting for a neighbour's answer.
    pub held: u64,
    /// Free frames in the worker's own list.
    pub frames_in_pool: u64,
}

/// Whether a worker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkerState {
    /// The worker runs.
    Running,
    /// The worker is being removed: others get its buckets and queues, and its packets are transmitted.
    Draining,
    /// The worker was removed, or not added yet: no thread and no frame belongs to it.
    Stopped,
}

/// A receive queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueName {
    /// The port's name.
    pub port: String,
    /// The queue's number, from 0.
    pub queue: u16,
}

/// Steering: the worker that forwards each flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SteeringStatus {
    /// Packets that may wait in the ring from one worker to another.
    pub netdev_max_backlog: u32,
    /// The most that this may be set to: what the rings were made for. 0 without rings.
    pub netdev_max_backlog_max: u32,
    /// Packets that a worker takes in a turn, over all its queues and rings.
    pub netdev_budget: u32,
    /// Packets that it takes from one of them at a time.
    pub dev_weight: u32,
    /// Whether buckets are moved by measured load.
    pub rebalance: bool,
    /// Buckets that were.
    pub rebalanced: u64,
    /// manylane checks the order of transmitted packets for one flow in this number, of flows steered by flow;
    /// 0: none.
    pub reorder_sample: u32,
    /// Packets whose order was checked so far.
    pub reorder_sampled: u64,
    /// Checked packets that were transmitted after a later packet of their flow: 0, or manylane has an error.
    pub reordered: u64,
    /// The ports, in the order of the configuration.
    pub ports: Vec<PortSteeringStatus>,
    /// The workers, in order.
    pub workers: Vec<SteeredWorker>,
    /// Rings between workers.
    pub pairs: Vec<PairStatus>,
}

/// Steering of the packets that a port receives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PortSteeringStatus {
    /// Its name.
    pub port: String,
    /// The worker that forwards a packet. `queue`: the receiving worker; `flow`: the owner of its flow's bucket.
    pub steering: String,
    /// Why the port has this steering.
    pub why: String,
    /// The port's queues and the worker that receives from each.
    pub queues: Vec<QueueOwner>,
    /// The owner of each bucket, in order; empty with `queue`.
    pub buckets: Vec<BucketStatus>,
    /// The transmit queue of each worker, in order. A move of receive queues does not change transmit queues.
    pub transmit_queues: Vec<TransmitQueue>,
}

/// A queue of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueOwner {
    /// Its number, from 0.
    pub queue: u16,
    /// The worker that receives from the queue.
    pub worker: u16,
    /// The next worker, once all packets received from the queue are transmitted; omitted if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moving_to: Option<u16>,
}

/// A worker's transmit queue at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TransmitQueue {
    /// The worker.
    pub worker: u16,
    /// The device's queue; omitted where the kernel chooses one for each packet, or the device has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<u16>,
}

/// A bucket of flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BucketStatus {
    /// The worker that owns the bucket, or will own it.
    pub worker: u16,
    /// The former worker, which holds the bucket until its packets are transmitted; omitted otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_by: Option<u16>,
}

/// A worker, as far as it is steered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SteeredWorker {
    /// Its number, from 0.
    pub worker: u16,
    /// Whether it gets no buckets.
    pub paused: bool,
}

/// The ring from one worker to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PairStatus {
    /// The worker that receives.
    pub from: u16,
    /// The worker that forwards.
    pub to: u16,
    /// Packets handed on.
    pub handed: u64,
    /// Batches of them.
    pub batches: u64,
    /// Packets that wait in the ring now.
    pub backlog: u64,
    /// Packets dropped because the ring was full.
    pub backlog_full: u64,
    /// Packets dropped because the ring was more than half full and their flow had more than half of the last packets.
    pub flow_limit: u64,
    /// Times that queues began to wait because the ring had no room for a batch.
    pub waits: u64,
}

impl WorkerState {
    /// As JSON and tables spell it.
    pub fn name(self) -> &'static str {
        match self {
            WorkerState::Running => "running",
            WorkerState::Draining => "draining",
            WorkerState::Stopped => "stopped",
        }
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.port, self.queue)
    }
}
