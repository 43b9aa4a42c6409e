//! The answers of the API. Each struct is the JSON, field by field; units are in the names.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One port and its counters since the daemon started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PortStatus {
    /// The port's number, from 0, in the order of the configuration.
    pub port: u16,
    /// Its name.
    pub name: String,
    /// `af_xdp`, `af_packet`, `tap`, `pcap` or `memory`; `vlan` for a sub-interface.
    pub driver: String,
    /// Why it has this driver, where the configuration says `auto`.
    pub chosen: Option<String>,
    /// The kernel's interface, if it has one.
    pub interface: Option<String>,
    /// Its link-layer address.
    pub mac: String,
    /// Largest IP packet.
    pub mtu: u16,
    /// Whether the port is open.
    pub state: PortState,
    /// Whether packets can pass.
    pub link_up: bool,
    /// How the XDP program is attached: `native` or `generic`; nothing without one.
    pub mode: Option<String>,
    /// Whether the device reads and writes our frames without a copy.
    pub zero_copy: bool,
    /// Most frames of a packet that it takes to transmit.
    pub frames_max: u8,
    /// Why a packet has to lie in one frame, if it has to.
    pub single_because: Option<String>,
    /// Receive queues.
    pub queues: u16,
    /// Our addresses, each with its prefix length.
    pub addresses: Vec<String>,
    /// `repair` or `trust`.
    pub checksum: String,
    /// Packets received.
    pub received: u64,
    /// Bytes received, Ethernet headers included.
    pub received_bytes: u64,
    /// Packets transmitted by its device: none by a sub-interface, whose port has them.
    pub transmitted: u64,
    /// Bytes transmitted, Ethernet headers included.
    pub transmitted_bytes: u64,
    /// Packets the device lost because our receive ring was full: never ours, not in the ledger.
    pub lost_ring_full: u64,
    /// Packets the device lost because it had no buffer of ours: never ours, not in the ledger.
    pub lost_no_buffer: u64,
    /// Packets the device lost because they did not fit ours, or refused: never ours, not in the ledger.
    pub lost_invalid: u64,
    /// Packets the device took to transmit and dropped: in the ledger they are transmitted.
    pub lost_transmit: u64,
    /// Segments that packets were cut into here, because this port does not.
    pub segments_cut: u64,
    /// Packets whose transport checksum was computed here, because this port does not.
    pub checksums_completed: u64,
    /// Packets that were copied into fewer frames, because this port takes no more.
    pub chains_joined: u64,
    /// Packets received here and dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Faults injected into its packets, where [port.fault] is set.
    pub faults: Option<FaultStatus>,
    /// Copies of its packets, where [port.tee] is set.
    pub copies: Option<CopyStatus>,
    /// The port and tags of a sub-interface.
    pub vlan: Option<VlanStatus>,
}

/// Whether a port is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PortState {
    /// The port receives and transmits.
    Open,
    /// The port is being removed: it receives nothing, and transmits what was queued.
    Draining,
    /// The port was removed. Its counters stay.
    Removed,
}

/// What a sub-interface is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VlanStatus {
    /// The name of its port.
    pub port: String,
    /// Its tags, outermost first, such as `802.1ad 200, 802.1Q 7`.
    pub tags: String,
}

/// Faults on purpose, both directions together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FaultStatus {
    /// Packets dropped: before they were received, or after they were transmitted.
    pub dropped: u64,
    /// Packets duplicated.
    pub duplicated: u64,
    /// Packets with a bit inverted.
    pub corrupted: u64,
    /// Packets delayed.
    pub delayed: u64,
    /// Packets that others passed.
    pub reordered: u64,
    /// Packets that were to be delayed, without room to hold them.
    pub hold_full: u64,
    /// Packets that were to be duplicated, without a free frame.
    pub no_frame: u64,
}

/// Copies of packets, both directions together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CopyStatus {
    /// Packets that the file has.
    pub copied: u64,
    /// Packets not copied for want of frames.
    pub no_frame: u64,
    /// Packets not copied because their copy would have left wrong.
    pub unfit: u64,
    /// Packets that the file's writer had no place for, or could not write: the disk is slow, or full.
    pub refused: u64,
}

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

/// One route.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RouteStatus {
    /// The destinations.
    pub prefix: String,
    /// What becomes of packets to them.
    pub kind: RouteKind,
    /// The next hop, for `via`.
    pub via: Option<String>,
    /// The egress port's name, for `via`, `on_link`, `connected` and `local`.
    pub port: Option<String>,
    /// The next hops, for `group`; left out otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub group: Vec<MemberStatus>,
}

/// One of the next hops of a route that has several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MemberStatus {
    /// The next hop.
    pub via: String,
    /// The egress port's name.
    pub port: String,
    /// The next hop's weight; its share of flows is the weight by the sum of all weights.
    pub weight: u16,
    /// The next hop's present share of flows, 0 to 1. 0: its link-layer address is unknown, and another one is known.
    pub share: f64,
}

/// What a route does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RouteKind {
    /// To a next hop.
    Via,
    /// To one of several next hops, by the packet's flow.
    Group,
    /// To the destination itself, by a static route.
    OnLink,
    /// To the destination itself, in a port's network.
    Connected,
    /// To ourselves.
    Local,
    /// The broadcast address of a connected network: dropped.
    Broadcast,
    /// Dropped in silence.
    Blackhole,
    /// Dropped with "unreachable".
    Unreachable,
    /// Dropped with "prohibited".
    Prohibit,
    /// Only the kernel can do it: of `accelerate`.
    Kernel,
}

/// One neighbour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NeighbourStatus {
    /// The name of the port it is behind.
    pub port: String,
    /// Its IP address.
    pub address: String,
    /// Its link-layer address, once it has answered.
    pub mac: Option<String>,
    /// What is known of it.
    pub state: NeighbourState,
    /// Seconds since it entered this state.
    pub age_s: u64,
}

/// What is known of a neighbour, in the words of RFC 4861 §7.3.2 (`failed` is Linux's).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NeighbourState {
    /// Queried, without an answer yet.
    Incomplete,
    /// Answered a short time ago.
    Reachable,
    /// Answered a long time ago.
    Stale,
    /// Used while stale; a query follows soon.
    Delay,
    /// Queried again.
    Probe,
    /// Did not answer.
    Failed,
    /// Set by the operator.
    Permanent,
}

/// One address of ours, on a link where others may have it too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AddressStatus {
    /// The name of the port it is on.
    pub port: String,
    /// The address.
    pub address: String,
    /// Whether it is ours alone.
    pub state: AddressState,
    /// Whether we answer for it and send from it.
    pub in_use: bool,
    /// Seconds since it entered this state.
    pub age_s: u64,
    /// How often another station laid claim to it.
    pub conflicts: u64,
    /// The link-layer address of the last that did.
    pub claimed_by: Option<String>,
}

/// Whether an address of ours is ours alone (RFC 5227, RFC 4862 §5.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AddressState {
    /// manylane probes the link for another station with the address.
    Probing,
    /// No station has the address; manylane announces it on the link.
    Announcing,
    /// The address is ours.
    Held,
    /// Another station has the address.
    Duplicate,
}

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

/// A setting of a running daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Setting {
    /// The key, as in the configuration: `frames.hot_list_len`.
    pub key: String,
    /// What it was set to.
    pub value: SettingValue,
    /// What speaks against that value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

impl Setting {
    /// A setting that nothing speaks against.
    pub fn new(key: impl Into<String>, value: SettingValue) -> Setting {
        Setting { key: key.into(), value, warning: None }
    }
}

/// What a setting may be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum SettingValue {
    /// A number.
    Number(u64),
    /// True or false.
    Flag(bool),
    /// One of a few words.
    Word(String),
}

impl fmt::Display for SettingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingValue::Number(number) => write!(f, "{number}"),
            SettingValue::Flag(flag) => write!(f, "{flag}"),
            SettingValue::Word(word) => f.write_str(word),
        }
    }
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

/// Why a setting, or a neighbour, stays as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetError {
    /// No setting of this name can change while the daemon runs.
    UnknownKey(ApiError),
    /// The value does not fit the key, or the daemon.
    BadValue(ApiError),
    /// No room for it.
    NoRoom(ApiError),
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

/// The daemon itself.
#[derive(Default, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Daemon {
    /// Its version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime_s: u64,
    /// Neighbours that found no place in the table.
    pub neighbours_refused: u64,
    /// Neighbours that were forgotten to make room for others.
    pub neighbours_reclaimed: u64,
    /// Neighbours that workers do not find, because the FIB had no room for a route to them.
    pub neighbours_without_route: u64,
}

/// The packet sockets, and their bounds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SocketsStatus {
    /// Those that are open, in the order of their numbers.
    pub sockets: Vec<SocketStatus>,
    /// Most that may be open, fanout groups included.
    pub max: u32,
    /// Most that a user may have in other processes; root may have more.
    pub per_user_max: u32,
    /// Bytes of all rings, those of closed sockets included until their memory is free.
    pub memory_bytes: u64,
    /// Most that they may have.
    pub memory_max: u64,
    /// Most that the rings of one user may have in other processes; root's may have more.
    pub per_user_memory_max: u64,
    /// Instructions of all filters of other processes, each counted at each of its points.
    pub instructions: u64,
    /// Most that they may have.
    pub filter_max: u32,
    /// Most that those of one user may have; root's may have more.
    pub per_user_filter_max: u32,
    /// Percent of a worker's time that sockets of users but root may take; 100 is no bound.
    pub time_max: u32,
    /// Sockets that were closed because they took more, since the daemon started.
    pub closed_for_time: u64,
    /// Whether sockets of other processes may send.
    pub send: bool,
}

/// A packet socket. Counters begin when the socket opens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SocketStatus {
    /// The socket's number, which a later socket may reuse.
    pub socket: u32,
    /// The process that has it; left out if that is the daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// The user of that process, when it connected; left out if that is the daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The port that it is bound to; left out for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// The protocol that it is bound to, as packet(7) has it, in host byte order: 0 for none, 3 for all.
    pub protocol: u16,
    /// Where it sees packets: `rx`, `tx`, `drop`.
    pub points: Vec<String>,
    /// Instructions of its filter.
    pub filter_len: u64,
    /// Bytes that it keeps of each packet.
    pub snap: u32,
    /// Its fanout group; left out without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u16>,
    /// How that group shares packets: `hash`, `lb`, `cpu`, `rollover`, `qm`; left out without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fanout: Option<String>,
    /// Bytes of its ring.
    pub ring_bytes: u64,
    /// Nanoseconds that workers have spent on it: its filter, copies, and waking its reader.
    pub time_ns: u64,
    /// Packets in its ring so far, in blocks that were passed on.
    pub packets: u64,
    /// What was kept of them.
    pub bytes: u64,
    /// Packets that found no room.
    pub lost: u64,
    /// Packets that were cut shorter than the socket's `snap`, because no block is as large.
    pub clamped: u64,
    /// Blocks that were not shown, because they belong to a former binding; of another process, its last report.
    pub stale: u64,
    /// Batches that were not shown because another thread wrote: 0, or manylane has an error.
    pub contended: u64,
}

/// Why the daemon refused a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApiError {
    /// The fault.
    pub error: String,
    /// The fix.
    pub help: String,
}

impl PortState {
    /// As JSON and tables spell it.
    pub fn name(self) -> &'static str {
        match self {
            PortState::Open => "open",
            PortState::Draining => "draining",
            PortState::Removed => "removed",
        }
    }
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

impl RouteKind {
    /// As JSON and tables spell it.
    pub fn name(self) -> &'static str {
        match self {
            RouteKind::Via => "via",
            RouteKind::Group => "group",
            RouteKind::OnLink => "on_link",
            RouteKind::Connected => "connected",
            RouteKind::Local => "local",
            RouteKind::Broadcast => "broadcast",
            RouteKind::Blackhole => "blackhole",
            RouteKind::Unreachable => "unreachable",
            RouteKind::Prohibit => "prohibit",
            RouteKind::Kernel => "kernel",
        }
    }
}

impl AddressState {
    /// As JSON and tables spell it.
    pub fn name(self) -> &'static str {
        match self {
            AddressState::Probing => "probing",
            AddressState::Announcing => "announcing",
            AddressState::Held => "held",
            AddressState::Duplicate => "duplicate",
        }
    }
}

impl NeighbourState {
    /// As JSON and tables spell it.
    pub fn name(self) -> &'static str {
        match self {
            NeighbourState::Incomplete => "incomplete",
            NeighbourState::Reachable => "reachable",
            NeighbourState::Stale => "stale",
            NeighbourState::Delay => "delay",
            NeighbourState::Probe => "probe",
            NeighbourState::Failed => "failed",
            NeighbourState::Permanent => "permanent",
        }
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.port, self.queue)
    }
}
