//! Ports, and what wraps them.

use std::collections::BTreeMap;

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
    /// Packets that the port's sockets still had when the port was removed: never ours, not in the ledger.
    pub lost_closed: u64,
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
