//! Where packets and frames are: sums that must be equal.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One reason for dropping, in all and by ingress port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DropStatus {
    /// The reason's name.
    pub reason: String,
    /// What it means.
    pub explanation: String,
    /// Packets dropped.
    pub total: u64,
    /// Packets dropped, by ingress port; ports without any are omitted.
    pub ports: BTreeMap<String, u64>,
}

/// The sum of every packet and every frame: received + created = transmitted + delivered + dropped +
/// held + in flight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ledger {
    /// Packets that ports received.
    pub received: u64,
    /// Packets that began here, by reason.
    pub created: BTreeMap<String, u64>,
    /// Packets transmitted by ports.
    pub transmitted: u64,
    /// Packets that ended at one of our addresses.
    pub delivered: u64,
    /// Packets dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Packets waiting for a neighbour's answer.
    pub held: u64,
    /// Packets that a port took to transmit and has not finished with: its device, or a fault that is to
    /// delay them.
    pub in_flight: u64,
    /// What the sum lacks. Anything but 0 in a daemon at rest is a fault of ours.
    pub missing: i64,
    /// Where the frames of the pool are.
    pub frames: FrameLedger,
    /// The same sum by ingress port.
    pub per_port: Vec<PortLedger>,
}

/// Where the frames of the pool are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FrameLedger {
    /// Frames in all.
    pub total: u64,
    /// The number of frames by place.
    pub holders: Vec<FrameHolder>,
    /// What the sum lacks. Anything but 0 in a daemon at rest is a leak.
    pub missing: i64,
}

/// Frames at one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FrameHolder {
    /// The place, as `worker 0 list` or `lan to receive`.
    pub holder: String,
    /// How many.
    pub frames: u64,
}

/// The frames: their number and its sum, their places, and workers' lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FramesStatus {
    /// Bytes of a frame, headroom included.
    pub frame_size: u32,
    /// Whether they are in huge pages (`vm.nr_hugepages`), or the kernel may put them there (`madvise`).
    pub huge_pages: bool,
    /// Frames that a worker's list may hold.
    pub hot_list_len: u32,
    /// The most that this may be set to.
    pub hot_list_len_max: u32,
    /// Each worker's list.
    pub lists: Vec<ListStatus>,
    /// Where the frames are.
    pub ledger: FrameLedger,
    /// How many frames can be where: the sum by which the region was made, or, where the configuration
    /// has fewer, by which rings were shortened.
    pub sum: Vec<FrameLine>,
}

/// One worker's list of free frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListStatus {
    /// The worker.
    pub worker: u16,
    /// Frames in it.
    pub level: u64,
    /// Most frames in it.
    pub len: u64,
    /// Frames taken from it.
    pub taken: u64,
    /// Of these, frames that lay there when they were wanted.
    pub hits: u64,
    /// Times it fetched magazines from the depot.
    pub refills: u64,
    /// Times it brought magazines to the depot.
    pub spills: u64,
    /// Times the worker had too few frames to receive into.
    pub starved: u64,
}

/// One line of the sum of frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FrameLine {
    /// The place.
    pub holder: String,
    /// The formula of the number.
    pub formula: String,
    /// Frames there, at most.
    pub frames: u64,
}

/// The sum of packets received by one port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PortLedger {
    /// The port's name.
    pub port: String,
    /// Packets received.
    pub received: u64,
    /// Packets created because of a packet received here.
    pub created: u64,
    /// Packets transmitted, by any port.
    pub transmitted: u64,
    /// Packets that ended at one of our addresses.
    pub delivered: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Packets waiting for a neighbour's answer.
    pub held: u64,
    /// Always 0: the ingress ports of packets in flight are unknown.
    pub in_flight: u64,
    /// What the sum lacks, packets in flight included.
    pub missing: i64,
}
