//! The API of `manylane accelerate`: the same server, socket and client as the forwarder's, other answers.
//!
//! | `GET`                         | Answer                        | `manylane show`            |
//! |-------------------------------|-------------------------------|----------------------------|
//! | `/v1/daemon`                  | [`AcceleratorStatus`]         |                            |
//! | `/v1/accelerate/ports`        | list of [`AcceleratedPort`]   | `ports`                    |
//! | `/v1/accelerate/drops`        | list of [`PassedStatus`]      | `drops`                    |
//! | `/v1/accelerate/ledger`       | [`AcceleratedLedger`]         | `ledger`                   |
//! | `/v1/accelerate/mirror`       | [`MirrorStatus`]              | `mirror`                   |
//! | `/v1/accelerate/routes`       | list of [`RouteStatus`]       | `routes`                   |
//! | `/v1/accelerate/neighbours`   | list of [`MirroredNeighbour`] | `neighbours`               |
//! | `/v1/accelerate/config`       | [`AcceleratorConfig`]         | `config`                   |
//! | `/v1/accelerate/lane`         | [`LaneStatus`]                | `flows`                    |
//! | `/v1/accelerate/export`       | [`ExportStatus`]              | `export`                   |
//! | `/v1/accelerate/why/I/S/D`    | [`Why`]                       | `why S D -i I`             |
//! | `/v1/accelerate/why/I/S/D/tcp/4000/80` | [`Why`]              | `why S D -i I --protocol tcp --sport 4000 --dport 80` |
//!
//! `PUT /v1/config/port.IF.tier` with a tier as its body (`manylane config set`) changes the tier that forwards at an
//! interface; `PUT /v1/config/port.IF.sflow_rate` with a number changes how many of its packets are sampled for sFlow.
//!
//! `POST /v1/accelerate/flows` (`manylane top`) has the programs note some packets, and answers with
//! [`AcceleratedFlows`].
//!
//! Where rules filter by connection or translate, packets are forwarded by connection. `POST /v1/accelerate/flows/table`
//! with a [`TrackedFlowsRequest`] (`manylane show flows`) answers with a page of these connections, [`TrackedFlows`];
//! `POST /v1/accelerate/flows/diff` (`manylane show flows --diff`) compares all of them with conntrack, and answers with a
//! [`TrackedFlowsDiff`]; a second comparison at the same time is an [`ApiError`] with status 409.
//! `POST /v1/accelerate/flows/kernel` with a [`KernelFlowsRequest`] (`manylane show flows --kernel`) answers with
//! [`KernelFlows`]: connections of conntrack that the kernel forwards, each with its reason.
//!
//! `POST /v1/accelerate/mirror/diff` (`manylane show mirror --diff`) compares the mirror with the kernel's routing, and
//! answers with a line for each difference; a second comparison at the same time is an [`ApiError`] with status 409.
//!
//! `/v1/daemon` says which of the two answers: its `kind` is `accelerate` here, and missing there.
//!
//! A question that only the mirror's thread can answer is an [`ApiError`] with status 503 when the thread does not
//! answer; a wrong question is an [`ApiError`] with status 400. Ports, drops, ledger and the daemon itself need no
//! other thread.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{ApiError, CaptureFile, CaptureRequest, RouteStatus, SetError, Setting};

pub use super::export::{CollectorStatus, ExportStatus, NatLogStatus, SampledStatus};
pub use super::interface::InterfaceCounters;
pub use super::kernel_flows::{KernelCounts, KernelFlow, KernelFlows, KernelFlowsRequest};
pub use super::sflow::{SflowPort, SflowStatus};
pub use super::tracked::{
    FLOWS_PAGE_MAX, FlowObstacle, LaneCount, LaneStatus, TrackedDirection, TrackedFlow,
    TrackedFlows, TrackedFlowsDiff, TrackedFlowsRequest, TrackedSum, TransportProtocol, WhyFlow,
    WhyRules,
};
pub use super::unseen::UnseenTime;
pub use super::why::{MirrorWhy, Why, WhyChain, WhyHop, WhyKernel, WhyQuestion, WhyStep};

/// The source of answers. Each call is one snapshot.
pub trait Accelerated: Send + Sync {
    /// The accelerator itself.
    fn daemon(&self) -> AcceleratorStatus;
    /// The ports, in the order in which they were named.
    fn ports(&self) -> Vec<AcceleratedPort>;
    /// The ports, as [`ports`](Accelerated::ports), with all counters at 0: the call reads no device's counters, so it
    /// waits for no lock of the kernel.
    fn states(&self) -> Vec<AcceleratedPort>;
    /// Packets that were left to the kernel, and packets that were lost behind us.
    fn drops(&self) -> Vec<PassedStatus>;
    /// The sum of all packets, which has to add up.
    fn ledger(&self) -> AcceleratedLedger;
    /// The flows of some packets that are received from now on: the call takes a tenth of a second.
    fn flows(&self) -> Result<AcceleratedFlows, AskError>;
    /// The options of the start.
    fn config(&self) -> AcceleratorConfig;
    /// Changes a setting: `port.IF.tier`, `port.IF.sflow_rate`.
    fn set(&self, key: &str, value: &str) -> Result<Setting, AskError>;
    /// Accelerates another interface; says what it is now.
    fn add_port(&self, name: &str) -> Result<AcceleratedPort, AskError>;
    /// The mirror of the kernel's routing.
    fn mirror(&self) -> Result<MirrorStatus, AskError>;
    /// The differences between the kernel and the mirror, a line for each.
    fn diff(&self) -> Result<Vec<String>, AskError>;
    /// The routes by which packets are forwarded.
    fn routes(&self) -> Result<Vec<RouteStatus>, AskError>;
    /// The kernel's neighbours.
    fn neighbours(&self) -> Result<Vec<MirroredNeighbour>, AskError>;
    /// The thread that looks after connections, and its table.
    fn lane(&self) -> Result<LaneStatus, AskError>;
    /// A page of the connections that are forwarded one by one.
    fn tracked_flows(&self, request: &TrackedFlowsRequest) -> Result<TrackedFlows, AskError>;
    /// A page of the connections that the kernel forwards, each with what keeps it there.
    fn kernel_flows(&self, request: &KernelFlowsRequest) -> Result<KernelFlows, AskError>;
    /// The differences between the flow table and conntrack.
    fn tracked_flows_diff(&self) -> Result<TrackedFlowsDiff, AskError>;
    /// Collectors, and the messages to each.
    fn export(&self) -> ExportStatus;
    /// Begins to capture what workers drop, and what is left to the kernel.
    fn capture_drops(&self, request: &CaptureRequest) -> Result<CaptureFile, SetError>;
    /// The verdict on a packet, and why.
    fn why(&self, question: &WhyQuestion) -> Result<Why, AskError>;
}

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AskError {
    /// The question is wrong.
    BadQuestion(ApiError),
    /// A thread does not answer.
    Silent(ApiError),
}

/// The accelerator itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AcceleratorStatus {
    /// Always `accelerate`.
    pub kind: String,
    /// The version of manylane.
    pub version: String,
    /// The number of the process.
    pub pid: u32,
    /// Seconds since the daemon started.
    pub uptime_s: u64,
    /// The lease: how long the programs forward without a renewal.
    pub lease: LeaseStatus,
}

/// The lease: how long the programs forward without a renewal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LeaseStatus {
    /// Whether manylane forwards now; if not, the kernel forwards.
    pub holds: bool,
    /// Milliseconds until the lease lapses; 0 if it has lapsed.
    pub remaining_ms: u64,
    /// `current`: the tables are as the kernel's; `stale`: the tables are behind; `unknown`: not filled yet.
    pub tables: String,
    /// How long the lease lasts after the tables were verified, in milliseconds.
    pub limit_ms: u64,
    /// How long manylane may use stale tables, in milliseconds.
    pub stale_limit_ms: u64,
    /// How often the lease began: once, and once more after each lapse.
    pub renewals: u64,
    /// How often the mirror thread has read the kernel's events and decided on the lease. Unchanged while that thread
    /// hangs.
    pub checks: u64,
}

/// One accelerated interface. Counters begin when the accelerator starts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AcceleratedPort {
    /// The port's number in the programs' tables, from 1.
    pub port: u16,
    /// The interface's name.
    pub name: String,
    /// The interface's number; none while the interface does not exist.
    pub index: Option<u32>,
    /// The interface's Ethernet address.
    pub mac: Option<String>,
    /// Largest IP packet.
    pub mtu: u32,
    /// Whether the interface is up and has a carrier.
    pub link_up: bool,
    /// `workers`, `driver`, `ingress` or `kernel`: the tier that forwards packets received here.
    pub tier: String,
    /// The tier that transmits packets here: `driver` straight to the device, `workers` by the workers' queues.
    pub egress_tier: String,
    /// The operator's choice: one of these tiers, or `auto`.
    pub wanted_tier: String,
    /// Why the port has this tier and not a faster one.
    pub tier_reasons: Vec<ReasonStatus>,
    /// Whether manylane may forward packets received here.
    pub ingress: bool,
    /// Whether manylane may transmit packets here.
    pub egress: bool,
    /// Whether manylane's program is attached to the interface.
    pub attached: bool,
    /// Foreign programs that see its packets before manylane's program.
    pub programs: Vec<String>,
    /// Why packets are left to the kernel, and a command that changes that.
    pub reasons: Vec<ReasonStatus>,
    /// What would keep packets in the kernel, had the operator not let them bypass it.
    #[serde(default)]
    pub bypassed: Vec<ReasonStatus>,
    /// The time without manylane's program: what passed then is counted nowhere.
    #[serde(default)]
    pub unseen: UnseenTime,
    /// Packets that the programs saw here, on receive.
    pub seen: u64,
    /// Packets, of `seen`, that manylane forwarded.
    pub forwarded: u64,
    /// The packets of `forwarded`, by the tier that forwarded them.
    pub tiers: BTreeMap<String, u64>,
    /// The bytes of the packets in `forwarded`.
    pub forwarded_bytes: u64,
    /// Packets, of `seen`, that manylane left to the kernel, by reason.
    pub passed: BTreeMap<String, u64>,
    /// Packets that manylane transmitted here, from any ingress port.
    pub sent: u64,
    /// The bytes of the packets in `sent`.
    pub sent_bytes: u64,
    /// Packets for the driver tier at a moment when the port left that tier: the next tier forwarded them.
    pub driver_refused: u64,
    /// Packets that the driver and workers tiers left to `ingress`, because their checksum was still to be filled in.
    #[serde(default)]
    pub partial_checksums: u64,
    /// Packets that workers received and dropped, by reason.
    #[serde(default)]
    pub dropped: BTreeMap<String, u64>,
    /// Packets in workers' rings now.
    #[serde(default)]
    pub queued: u64,
    /// Packets for a worker that did not run: the next tier forwarded them.
    #[serde(default)]
    pub worker_absent: u64,
    /// Packets, manylane's or the kernel's, that the device dropped on transmit while it was accelerated.
    pub device_dropped: u64,
    /// Packets, manylane's or the kernel's, that its queueing discipline dropped while it was accelerated.
    pub queue_dropped: u64,
    /// The interface's counters, as SNMP has them; none while the interface does not exist.
    #[serde(default)]
    pub interface: Option<InterfaceCounters>,
}

/// Why something is left to the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReasonStatus {
    /// The finding, such as a rule or a setting, by name.
    pub what: String,
    /// Why packets may not bypass it.
    pub why: String,
    /// A command that changes it; empty if no command does, or if it would take protection away.
    pub command: String,
}

/// Packets that manylane did not forward, for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PassedStatus {
    /// The reason's name.
    pub reason: String,
    /// `passed`: left to the kernel, unchanged. `device`, `kernel`: lost behind manylane, by the transmitting device or
    /// its queueing discipline. `workers`: dropped by workers.
    pub by: String,
    /// The meaning.
    pub explanation: String,
    /// Packets.
    pub total: u64,
    /// Packets by ingress interface; losses by egress interface.
    pub ports: BTreeMap<String, u64>,
}

/// A sample of the packets that were received within a tenth of a second, by flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AcceleratedFlows {
    /// Packets in the sample: at most 64 of each processor.
    pub packets: u64,
    /// The sample has one packet in this number, by chance.
    pub one_in: u64,
    /// The flows, the largest first.
    pub flows: Vec<AcceleratedFlow>,
}

/// A flow, and the tier that forwards its packets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AcceleratedFlow {
    /// The ingress interface.
    pub port: String,
    /// Both ends and the protocol: `10.1.0.1:4000 > 10.2.0.1:53 UDP`; `no IP` for other packets.
    pub flow: String,
    /// The tier that forwards the flow: `driver`, `workers`, `ingress`, `kernel`.
    pub by: String,
    /// Why the kernel forwards it, as in `/v1/accelerate/drops`; empty if manylane forwards it.
    pub reason: String,
    /// Packets of the flow in the sample.
    pub packets: u64,
}

/// The sum of every packet that the programs have seen: seen = forwarded + passed + dropped + queued, forwarded = sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AcceleratedLedger {
    /// Packets that the programs saw, on receive.
    pub seen: u64,
    /// Packets that manylane forwarded, counted at ingress.
    pub forwarded: u64,
    /// The packets of `forwarded`, by the tier that forwarded them.
    #[serde(default)]
    pub tiers: BTreeMap<String, u64>,
    /// Packets that were left to the kernel, by reason.
    pub passed: BTreeMap<String, u64>,
    /// Packets that workers dropped, by reason.
    #[serde(default)]
    pub dropped: BTreeMap<String, u64>,
    /// Packets in workers' rings now.
    #[serde(default)]
    pub queued: u64,
    /// Packets that manylane forwarded, counted at egress.
    pub sent: u64,
    /// `forwarded` less `sent`: any value but 0, when no packets pass, is a fault of manylane.
    pub missing: i64,
    /// Forwarded bytes less sent bytes.
    pub missing_bytes: i64,
    /// Packets, manylane's or the kernel's, that devices dropped on transmit.
    pub device_dropped: u64,
    /// Packets, manylane's or the kernel's, that queueing disciplines dropped.
    pub queue_dropped: u64,
    /// The time without manylane's program, by interface.
    #[serde(default)]
    pub unseen: BTreeMap<String, UnseenTime>,
}

/// The mirror of the kernel's routing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MirrorStatus {
    /// How long the programs forward by the mirror without a renewal.
    pub lease: LeaseStatus,
    /// Milliseconds since the tables were last verified to be as the kernel's.
    pub verified_ms_ago: u64,
    /// How often the mirror lost messages of the kernel and read all tables anew.
    pub overruns: u64,
    /// How often the mirror read all tables anew without a loss, to verify them.
    pub confirmations: u64,
    /// How often the mirror waited for the programs before it reused removed entries.
    pub grace_periods: u64,
    /// The error of the last failed wait.
    pub grace_error: Option<String>,
    /// What the thread that keeps the tables current waited for, where that took long or let the lease lapse.
    #[serde(default)]
    pub waits: Vec<WaitStatus>,
    /// The mirror's content and its work.
    pub mirror: MirrorState,
}

/// What the thread that keeps the tables current did, instead of prolonging the lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitStatus {
    /// `events`, `tables`, `dump`, `gate`, `programs`, `statistics`, `neighbours`, `questions`; `processor` if the
    /// thread did not run.
    pub activity: String,
    /// The activity, as a sentence.
    pub meaning: String,
    /// The longest time that the activity took at once, in milliseconds.
    pub longest_ms: u64,
    /// How often the lease lapsed, and the activity had taken longest.
    pub lapses: u64,
}

/// A neighbour in the kernel's table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MirroredNeighbour {
    /// The interface that leads to the neighbour.
    pub interface: String,
    /// The IP address.
    pub address: String,
    /// The Ethernet address, if it is known.
    pub mac: Option<String>,
    /// The state, as ip-neighbour(8) spells it.
    pub state: String,
    /// Whether manylane transmits packets to the neighbour.
    pub used: bool,
}

/// The options that the accelerator was started with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AcceleratorConfig {
    /// The interfaces.
    pub interfaces: Vec<String>,
    /// The parts of the kernel that the operator lets packets bypass.
    pub bypass: Vec<String>,
    /// `auto`, `ingress`, `driver`, `workers` or `kernel`.
    pub tier: String,
    /// The tier by interface, for interfaces with a tier of their own.
    #[serde(default)]
    pub port_tiers: BTreeMap<String, String>,
    /// The lease, in milliseconds.
    pub lease_ms: u64,
    /// How long manylane may use stale tables, in milliseconds.
    pub stale_limit_ms: u64,
    /// Number of workers, when a port has the tier `workers`.
    #[serde(default)]
    pub workers: usize,
    /// The path of the API's socket.
    pub socket: Option<String>,
    /// The seed of the hash that spreads flows over several next hops.
    pub seed: u64,
}

/// The mirror's state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MirrorState {
    /// How often the mirror changed the tables.
    pub epoch: u64,
    /// Messages received from the kernel.
    pub events: u64,
    /// Messages that changed the model.
    pub changes: u64,
    /// Dumps of the kernel that the mirror compared the model with.
    pub resyncs: u64,
    /// Differences that the comparisons found.
    pub resync_differences: u64,
    /// Edits of the programs' tables so far.
    pub edits: u64,
    /// Edits that wait.
    pub pending: usize,
    /// How often edits waited for a grace period.
    pub busy: u64,
    /// How long the oldest waiting edit has waited, in nanoseconds.
    pub lag_ns: u64,
    /// The longest wait of an edit so far, in nanoseconds.
    pub lag_max_ns: u64,
    /// Whether the tables have all routes of the kernel.
    pub is_complete: bool,
    /// Routes that the model had no room for.
    pub overflows: u64,
    /// Prefixes that the tables had no room for.
    pub refused: usize,
    /// Prefixes and next-hop ids that the kernel forwards, for want of ids, slots or groups.
    pub starved: usize,
    /// Rules of the routing policy that keep all ports in the kernel, and why.
    pub refused_rules: Vec<String>,
    /// Rules whose packets the kernel forwards, and why.
    #[serde(default)]
    pub kernel_rules: Vec<String>,
    /// IPv4 routes in the model.
    pub ipv4: RouteCounts,
    /// IPv6 routes in the model.
    pub ipv6: RouteCounts,
    /// Other objects of the model, and table entries in use.
    pub counts: MirrorCounts,
}

/// Routes of a family, in all tables, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RouteCounts {
    /// All routes.
    pub routes: usize,
    /// One next hop, or a connected network.
    pub single_path: usize,
    /// Several next hops.
    pub multipath: usize,
    /// A next-hop object.
    pub objects: usize,
    /// The host's own addresses, and anycast addresses.
    pub local: usize,
    /// Broadcast addresses.
    pub broadcast: usize,
    /// Multicast routes.
    pub multicast: usize,
    /// Blackholes.
    pub blackhole: usize,
    /// Routes of the kind `unreachable`.
    pub unreachable: usize,
    /// Prohibited.
    pub prohibit: usize,
    /// Routes of the kind `throw`: the lookup continues in the next table.
    pub throw: usize,
    /// Other kinds.
    pub others: usize,
    /// Routes, of all kinds, that are not used because their next hops are down.
    pub unused: usize,
    /// Routes, of all kinds, with encapsulation.
    pub encapsulated: usize,
}

/// Numbers of all other objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MirrorCounts {
    /// Links.
    pub links: usize,
    /// Addresses.
    pub addresses: usize,
    /// Rules.
    pub rules: usize,
    /// Next-hop objects.
    pub next_hop_objects: usize,
    /// Neighbours.
    pub neighbours: usize,
    /// Tables with routes.
    pub tables: usize,
    /// Routes that differ in more than the prefix.
    pub distinct_routes: usize,
    /// Next-hop ids in use.
    pub ids: usize,
    /// Slots of neighbours in use.
    pub slots: usize,
    /// Slots whose neighbour is resolved.
    pub resolved: usize,
    /// Groups in use.
    pub groups: usize,
    /// Routing tables, beyond the usual ones, that rules select.
    #[serde(default)]
    pub further_tables: usize,
    /// Prefixes in these further tables.
    #[serde(default)]
    pub further_prefixes: usize,
    /// Table entries that wait for a grace period.
    pub waiting: usize,
}
