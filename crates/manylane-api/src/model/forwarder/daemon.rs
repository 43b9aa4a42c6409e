//! The process: its settings, its sockets, its errors.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

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
