//! The API of `manylane accelerate`: the same server, socket and client as the forwarder's, other answers.
//!
//! | `GET`                         | Answer                        | `manylane show`            |
//! |-------------------------------|-------------------------------|----------------------------|
//! | `/v1/daemon`                  | [`AcceleratorStatus`]         |                            |
//! | `/v1/accelerate/ports`        | list of [`AcceleratedPort`]   | `ports`                    |
//! | `/v1/accelerate/drops`        | list of [`PassedStatus`]      | `drops`                    |
//! | `/v1/accelerate/ledger`       | [`AcceleratedLedger`]         | `ledger`                   |
//! | `/v1/accelerate/mirror`       | [`MirrorStatus`]              | `mirror`                   |
//! | `/v1/accelerate/mirror/diff`  | list of lines                 | `mirror --diff`            |
//! | `/v1/accelerate/routes`       | list of [`RouteStatus`]       | `routes`                   |
//! | `/v1/accelerate/neighbours`   | list of [`MirroredNeighbour`] | `neighbours`               |
//! | `/v1/accelerate/config`       | [`AcceleratorConfig`]         | `config`                   |
//! | `/v1/accelerate/why/I/S/D`    | [`Why`]                       | `why S D -i I`             |
//!
//! `PUT /v1/config/port.IF.tier` with a tier as its body (`manylane config set`) changes who forwards at an interface.
//!
//! `POST /v1/accelerate/flows` (`manylane top`) has the programs note some packets, and answers with
//! [`AcceleratedFlows`].
//!
//! `/v1/daemon` says which of the two answers: its `kind` is `accelerate` here, and missing there.
//!
//! What the mirror's thread has to be asked for is an [`ApiError`] with status 503 when it does not answer; what
//! is asked wrongly is one with status 400. Ports, drops, ledger and the daemon itself need no other thread.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{ApiError, RouteStatus, Setting};

/// Where answers come from. Each call is one snapshot.
pub trait Accelerated: Send + Sync {
    /// The accelerator itself.
    fn daemon(&self) -> AcceleratorStatus;
    /// The ports, in the order in which they were named.
    fn ports(&self) -> Vec<AcceleratedPort>;
    /// What was left to the kernel, and what was lost behind us.
    fn drops(&self) -> Vec<PassedStatus>;
    /// The sum that has to add up.
    fn ledger(&self) -> AcceleratedLedger;
    /// Which flows there are, of some packets that come in from now on: it takes a tenth of a second.
    fn flows(&self) -> Result<AcceleratedFlows, AskError>;
    /// What it was started with.
    fn config(&self) -> AcceleratorConfig;
    /// Changes a setting: `port.IF.tier`.
    fn set(&self, key: &str, value: &str) -> Result<Setting, AskError>;
    /// The mirror of the kernel's routing.
    fn mirror(&self) -> Result<MirrorStatus, AskError>;
    /// What the kernel has and the mirror has not, or otherwise, a line for each.
    fn diff(&self) -> Result<Vec<String>, AskError>;
    /// The routes by which packets are forwarded.
    fn routes(&self) -> Result<Vec<RouteStatus>, AskError>;
    /// The kernel's neighbours.
    fn neighbours(&self) -> Result<Vec<MirroredNeighbour>, AskError>;
    /// What would become of a packet.
    fn why(&self, question: &WhyQuestion) -> Result<Why, AskError>;
}

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AskError {
    /// It is asked wrongly.
    BadQuestion(ApiError),
    /// Who knows does not answer.
    Silent(ApiError),
}

/// The accelerator itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AcceleratorStatus {
    /// Always `accelerate`.
    pub kind: String,
    /// Its version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime_s: u64,
    /// Until when the programs forward.
    pub lease: LeaseStatus,
}

/// Until when the programs forward.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LeaseStatus {
    /// Whether packets are forwarded now; if not, the kernel does.
    pub holds: bool,
    /// Milliseconds until it lapses; 0 if it has.
    pub remaining_ms: u64,
    /// `true`, `stale` or `unknown`: what is known of the tables.
    pub tables: String,
    /// How long it lasts after the tables were known to be true.
    pub limit_ms: u64,
    /// How long stale tables may be used.
    pub stale_limit_ms: u64,
    /// How often it began: once, and once more after each time it lapsed.
    pub renewals: u64,
}

/// One accelerated interface. What was counted is since the accelerator started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AcceleratedPort {
    /// Its number in the programs' tables, from 1.
    pub port: u16,
    /// The interface's name.
    pub name: String,
    /// Its number; none while there is no such interface.
    pub index: Option<u32>,
    /// Its Ethernet address.
    pub mac: Option<String>,
    /// Largest IP packet.
    pub mtu: u32,
    /// Whether it is up and has a carrier.
    pub link_up: bool,
    /// `workers`, `driver`, `ingress` or `kernel`: who forwards what comes in here.
    pub tier: String,
    /// The same for what we send out here: `driver` if it goes straight to the device, `workers` if they send it.
    pub egress_tier: String,
    /// What was chosen: one of these, or `auto`.
    pub wanted_tier: String,
    /// Why it is this tier and not a faster one.
    pub tier_reasons: Vec<ReasonStatus>,
    /// Whether packets that come in here may be forwarded by us.
    pub ingress: bool,
    /// Whether we may send packets out here.
    pub egress: bool,
    /// Whether our program is on it.
    pub attached: bool,
    /// Programs of others that see its packets before ours.
    pub programs: Vec<String>,
    /// Why what is left to the kernel is, and what changes that.
    pub reasons: Vec<ReasonStatus>,
    /// Packets that came in here.
    pub seen: u64,
    /// Of these, packets that we forwarded.
    pub forwarded: u64,
    /// Of these, by the tier that forwarded them.
    pub tiers: BTreeMap<String, u64>,
    /// The bytes of all of these.
    pub forwarded_bytes: u64,
    /// Of these, packets that we left to the kernel, by reason.
    pub passed: BTreeMap<String, u64>,
    /// Packets that we sent out here, wherever they came in.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Packets that were to leave by the driver when that was just taken out of the tier: they went the other way.
    pub driver_refused: u64,
    /// Packets that were handed to workers and dropped by these, by reason.
    #[serde(default)]
    pub dropped: BTreeMap<String, u64>,
    /// Packets that lie in workers' rings.
    #[serde(default)]
    pub queued: u64,
    /// Packets that were to go to a worker that did not turn: they went the other way.
    #[serde(default)]
    pub worker_absent: u64,
    /// Packets that the device dropped instead of sending them, ours or the kernel's, while it was accelerated.
    pub device_dropped: u64,
    /// Packets that its queueing discipline dropped, ours or the kernel's, while it was accelerated.
    pub queue_dropped: u64,
}

/// Why something is left to the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReasonStatus {
    /// What was found.
    pub what: String,
    /// Why packets may not pass it by.
    pub why: String,
    /// What changes it; empty where nothing does.
    pub command: String,
}

/// Packets that were not forwarded for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PassedStatus {
    /// The reason's name.
    pub reason: String,
    /// `passed`: left to the kernel, unchanged. `device`, `kernel`: lost behind us, by the device that was to send
    /// it or by its queueing discipline. `workers`: dropped by these.
    pub by: String,
    /// What it means.
    pub explanation: String,
    /// Packets.
    pub total: u64,
    /// Packets by the interface they came in by, or for losses the one they were to leave by.
    pub ports: BTreeMap<String, u64>,
}

/// Some of the packets that came in within a tenth of a second, by flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AcceleratedFlows {
    /// Packets that were looked at: at most 64 of each processor.
    pub packets: u64,
    /// One packet in so many was, by chance.
    pub one_in: u64,
    /// Their flows, those with most packets first.
    pub flows: Vec<AcceleratedFlow>,
}

/// A flow, by what becomes of its packets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AcceleratedFlow {
    /// The interface that it comes in by.
    pub port: String,
    /// Both ends and the protocol: `10.1.0.1:4000 > 10.2.0.1:53 UDP`; `no IP` of other packets.
    pub flow: String,
    /// Who forwards it: `driver`, `workers`, `ingress`, `kernel`.
    pub by: String,
    /// Why it is the kernel's, as in `/v1/accelerate/drops`; empty if it is not.
    pub reason: String,
    /// Packets of it that were looked at.
    pub packets: u64,
}

/// Where every packet went that our programs have seen: seen = forwarded + passed + dropped + queued, forwarded = sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AcceleratedLedger {
    /// Packets that came in.
    pub seen: u64,
    /// Packets that we forwarded, counted where they came in.
    pub forwarded: u64,
    /// The same by the tier that forwarded them.
    #[serde(default)]
    pub tiers: BTreeMap<String, u64>,
    /// Packets that were left to the kernel, by reason.
    pub passed: BTreeMap<String, u64>,
    /// Packets that workers dropped, by reason.
    #[serde(default)]
    pub dropped: BTreeMap<String, u64>,
    /// Packets that lie in workers' rings.
    #[serde(default)]
    pub queued: u64,
    /// Packets that we forwarded, counted where they went out.
    pub sent: u64,
    /// `forwarded` less `sent`: anything but 0, when no packets pass, is a fault of ours.
    pub missing: i64,
    /// The same for bytes.
    pub missing_bytes: i64,
    /// Packets that devices dropped instead of sending them, ours or the kernel's.
    pub device_dropped: u64,
    /// Packets that queueing disciplines dropped, ours or the kernel's.
    pub queue_dropped: u64,
}

/// The mirror of the kernel's routing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MirrorStatus {
    /// Until when the programs forward by it.
    pub lease: LeaseStatus,
    /// Milliseconds since the tables were last known to be as the kernel's.
    pub verified_ms_ago: u64,
    /// How often messages of the kernel were lost, so that everything was read anew.
    pub overruns: u64,
    /// How often everything was read anew only to be sure.
    pub confirmations: u64,
    /// How often the programs were waited for, so that what was taken out could be used again.
    pub grace_periods: u64,
    /// What the last such wait failed with.
    pub grace_error: Option<String>,
    /// What it has, and what it has done.
    pub mirror: MirrorState,
}

/// A neighbour, as the kernel knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MirroredNeighbour {
    /// The interface that it is behind.
    pub interface: String,
    /// Its address.
    pub address: String,
    /// Its Ethernet address, if it is known.
    pub mac: Option<String>,
    /// As ip-neighbour(8) spells it.
    pub state: String,
    /// Whether packets are sent to it by us.
    pub used: bool,
}

/// What the accelerator was started with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AcceleratorConfig {
    /// The interfaces.
    pub interfaces: Vec<String>,
    /// What is bypassed by the operator's word.
    pub bypass: Vec<String>,
    /// `auto`, `ingress`, `driver`, `workers` or `kernel`.
    pub tier: String,
    /// The same by interface, where another one is set.
    #[serde(default)]
    pub port_tiers: BTreeMap<String, String>,
    /// The lease, in milliseconds.
    pub lease_ms: u64,
    /// How long stale tables may be used, in milliseconds.
    pub stale_limit_ms: u64,
    /// Workers, when a port is theirs.
    #[serde(default)]
    pub workers: usize,
    /// Where its API listens.
    pub socket: Option<String>,
    /// What flows are spread over several next hops by.
    pub seed: u64,
}

/// A packet in question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WhyQuestion {
    /// Where it comes from.
    pub source: IpAddr,
    /// Where it goes to.
    pub destination: IpAddr,
    /// The interface that it comes in by.
    pub interface: String,
}

/// What would become of a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Why {
    /// Whether we forward it.
    pub forwarded: bool,
    /// The verdict's name.
    pub verdict: String,
    /// What it means.
    pub explanation: String,
    /// The interface that it leaves by, if we forward it.
    pub egress: Option<String>,
    /// The Ethernet address that it is sent to, if we forward it.
    pub to: Option<String>,
    /// What the gate has against the interface that it comes in by.
    pub reasons: Vec<ReasonStatus>,
    /// Rule, table, route and neighbour, as the mirror has them.
    pub mirror: Option<MirrorWhy>,
}

/// The mirror's state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MirrorState {
    /// How often the tables were changed.
    pub epoch: u64,
    /// Messages heard.
    pub events: u64,
    /// Those that said something new.
    pub changes: u64,
    /// Dumps that the model was compared with.
    pub resyncs: u64,
    /// What they had otherwise.
    pub resync_differences: u64,
    /// Edits made.
    pub edits: u64,
    /// Edits to be made.
    pub pending: usize,
    /// How often edits had to wait for a grace period.
    pub busy: u64,
    /// How long the oldest of the edits to be made has waited, in nanoseconds.
    pub lag_ns: u64,
    /// The longest so far.
    pub lag_max_ns: u64,
    /// Whether the tables have all that the kernel has.
    pub is_complete: bool,
    /// What the model had no room for.
    pub overflows: u64,
    /// Prefixes that the tables had no room for.
    pub refused: usize,
    /// Prefixes, and next-hop ids, that are the kernel's for want of ids, slots or groups.
    pub starved: usize,
    /// Why the rules of the routing policy keep all ports in the kernel.
    pub refused_rules: Vec<String>,
    /// Rules whose packets are the kernel's, and why.
    #[serde(default)]
    pub kernel_rules: Vec<String>,
    /// IPv4 routes of the model.
    pub ipv4: RouteCounts,
    /// IPv6 routes of the model.
    pub ipv6: RouteCounts,
    /// The rest of the model, and what is in use of the tables.
    pub counts: MirrorCounts,
}

/// Routes of a family, in all tables, by what they lead to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RouteCounts {
    /// All.
    pub routes: usize,
    /// By one router, or one's network.
    pub single_path: usize,
    /// By several routers.
    pub multipath: usize,
    /// By a next-hop object.
    pub objects: usize,
    /// Own addresses, and anycast ones.
    pub local: usize,
    /// Broadcast addresses.
    pub broadcast: usize,
    /// Multicast.
    pub multicast: usize,
    /// Blackholes.
    pub blackhole: usize,
    /// Unreachable.
    pub unreachable: usize,
    /// Prohibited.
    pub prohibit: usize,
    /// On to the next table.
    pub throw: usize,
    /// Others.
    pub others: usize,
    /// Those, of the above, that are not used: their ways are dead.
    pub unused: usize,
    /// Those with encapsulation.
    pub encapsulated: usize,
}

/// How much there is of everything else.
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
    /// Different routes, apart from their prefixes.
    pub distinct_routes: usize,
    /// Next-hop ids in use.
    pub ids: usize,
    /// Slots of neighbours in use.
    pub slots: usize,
    /// Slots whose neighbour can be sent to.
    pub resolved: usize,
    /// Groups in use.
    pub groups: usize,
    /// Tables that rules lead to besides the usual ones.
    #[serde(default)]
    pub further_tables: usize,
    /// Their prefixes.
    #[serde(default)]
    pub further_prefixes: usize,
    /// What waits for a grace period in the tables.
    pub waiting: usize,
}

/// What becomes of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MirrorWhy {
    /// The verdict, by its name: `forwarded`, or why the kernel has it. What only a packet itself shows (its
    /// MAC address, TTL, length, options, flow) is not looked at.
    pub verdict: String,
    /// Why that.
    pub reason: String,
    /// The rule that leads to the table.
    pub rule: Option<String>,
    /// The table.
    pub table: Option<u32>,
    /// The longest prefix there.
    pub prefix: Option<String>,
    /// Its routes in the model, the first is used.
    pub routes: Vec<String>,
    /// The ways that they say; one of them, by the packet's flow.
    pub hops: Vec<WhyHop>,
    /// Whether edits are pending: what is written may be older.
    pub is_pending: bool,
}

/// One way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhyHop {
    /// The neighbour.
    #[schema(value_type = String)]
    pub gateway: IpAddr,
    /// The interface that it is on.
    pub egress: String,
    /// Its part of the flows is this by the sum of all.
    pub weight: u16,
    /// The largest packet.
    pub mtu: u32,
    /// What the kernel knows of the neighbour.
    pub neighbour: String,
    /// Whether packets can be sent there.
    pub is_usable: bool,
}
