//! The kernel's connection tracking, by ctnetlink (linux/netfilter/nfnetlink_conntrack.h): look connections up, change
//! them, list them, hear of their ends.
//!
//! [`Conntrack`] sends requests, [`ConntrackEvents`] listens, [`Timeouts`] are settings. Nothing here decides anything.
//! As in `nftables`, one pass over plain attributes reads a message: of most attributes only the presence matters.
//!
//! What Linux does, from 6.1 to 6.18. The files are those of net/netfilter; the tests `tests/io/conntrack*.rs` see it too.
//!
//! | about | what the kernel does | where |
//! |---|---|---|
//! | tuples | a tuple of either direction finds the connection; a request without a zone finds it if that direction is in zone 0 | `nf_conntrack_find_get` |
//! | ids | an id is a hash of the connection's place in memory, its master and its original tuple, so a successor with that tuple may have the same id | `nf_ct_get_id` |
//! | ids in requests | only a deletion compares `CTA_ID`; a look-up and a change take whatever connection has the tuple | `ctnetlink_new_conntrack` |
//! | fixed timeouts | a change with a timeout fails (`EPERM`) before anything else changes | `ctnetlink_change_conntrack` |
//! | liberal TCP | flags are set under their mask; packets that the kernel sees later leave `BE_LIBERAL`, and set `MAXACK_SET` again | `nlattr_to_tcp` |
//! | in no message | the policy of `ct timeout` rules; the extension for sequence adjustment, while it adjusts nothing; the room for events | `ctnetlink_fill_info` |
//!
//! Events (nf_conntrack_ecache.c, nf_conntrack_netlink.c):
//!
//! - A connection gets room for events when it begins, or never. With `nf_conntrack_events` 2, the default, it gets room
//!   if any process listens to any event of conntrack at that moment, in any network namespace
//!   (`nf_ct_ecache_ext_add`). With 1 it always gets room, with 0 only where a rule says so (`ct event set`).
//! - Without room its end is not announced, nor is a mark. No look-up, list or timestamp tells which connections have
//!   room, and ids do not either. Two things help. A connection that began after [`ConntrackEvents::open`] has room,
//!   so one that a list has at that moment may lack room. And [`Conntrack::change_with_echo`] tells exactly: the
//!   kernel composes the echo of a change from the room for events. The reader has to look the others up from time to time.
//! - A connection that expires ends when a look-up or the collector meets it, which comes round once a minute
//!   (`gc_worker`). So the end of an idle connection is announced up to a minute late.
//! - A change by netlink is an update event with `CTA_MARK`, whatever changes, also when nothing does. An update by packets
//!   carries `CTA_MARK` if the mark has just been set, to 0 too, or if it is not 0. So [`Event::Marked`] also reports changes
//!   of state, for connections whose mark is not 0: the reader compares.
//! - Composing an event costs the kernel more than the rest of a change, so it composes events only for groups with
//!   listeners. [`ConntrackEvents::hear_marks`] is a choice for that reason.

mod decode;
mod encode;
mod events;
mod receive;
mod request;
mod timeouts;

use std::net::IpAddr;
use std::time::Duration;

pub use events::{ConntrackEvents, Event, Seen};
pub use request::{Change, Changed, Conntrack};
pub use timeouts::{Timeouts, gives_room_for_events};

/// A flow of packets from end to end, as conntrack has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// The source address.
    pub source: IpAddr,
    /// The destination address, of the same family.
    pub destination: IpAddr,
    /// The source port; 0 for protocols without ports.
    pub source_port: u16,
    /// The destination port.
    pub destination_port: u16,
    /// The protocol's number (`IPPROTO_*`).
    pub protocol: u8,
}

/// A connection, as far as the message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The packets of the end that began, as they arrive here.
    pub original: Tuple,
    /// The answers, as they arrive here: its destination is what the original source is translated to, and its source
    /// what the original destination is.
    pub reply: Tuple,
    /// A hash that identifies the connection while it lives.
    pub id: u32,
    /// Its state.
    pub status: Status,
    /// The whole seconds until it expires. Nothing for an offloaded connection.
    pub timeout: Option<Duration>,
    /// Its mark.
    pub mark: u32,
    /// The zone of one or both directions; 0 if both are in the default zone.
    pub zone: u16,
    /// What the kernel knows of a TCP connection. Nothing for an offloaded one.
    pub tcp: Option<Tcp>,
    /// A helper reads its packets.
    pub has_helper: bool,
    /// The kernel moves its sequence numbers.
    pub has_sequence_adjustment: bool,
    /// A SYN proxy answered its first packet. Connections that a program made (conntrackd(8)) have the extension too, all
    /// zeroes; that does not count.
    pub has_synproxy: bool,
    /// A helper of another connection expected it. Events do not say so; [`Status::EXPECTED`] does.
    pub has_master: bool,
    /// Packets and bytes of the original and the reply direction, if the kernel counted them from the connection's beginning
    /// on (`net.netfilter.nf_conntrack_acct`).
    pub counted: Option<[Counted; 2]>,
}

/// What the kernel has counted of a direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Packets.
    pub packets: u64,
    /// Their bytes, from the IP header on.
    pub bytes: u64,
}

/// What the kernel knows of a TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// The state (`Tcp::ESTABLISHED` and so on).
    pub state: u8,
    /// The flags of the original and the reply direction (`Tcp::BE_LIBERAL` and so on). A destroyed connection's are not
    /// reported, and 0 here.
    pub flags: [u8; 2],
}

/// States (`enum tcp_conntrack`) and flags (`IP_CT_TCP_FLAG_*`), linux/netfilter/nf_conntrack_tcp.h.
impl Tcp {
    /// The first SYN was seen.
    pub const SYN_SENT: u8 = 1;
    /// The SYN was answered.
    pub const SYN_RECV: u8 = 2;
    /// The handshake is over.
    pub const ESTABLISHED: u8 = 3;
    /// One end has said that it ends.
    pub const FIN_WAIT: u8 = 4;
    /// The first FIN was acknowledged.
    pub const CLOSE_WAIT: u8 = 5;
    /// Both ends have said that they end.
    pub const LAST_ACK: u8 = 6;
    /// Both have acknowledged it.
    pub const TIME_WAIT: u8 = 7;
    /// Reset.
    pub const CLOSE: u8 = 8;
    /// Both ends have sent a SYN.
    pub const SYN_SENT2: u8 = 9;

    /// This end offers window scaling.
    pub const WINDOW_SCALE: u8 = 0x01;
    /// This end takes selective acknowledgements.
    pub const SACK_PERMITTED: u8 = 0x02;
    /// This end closes the connection first.
    pub const CLOSE_INIT: u8 = 0x04;
    /// Packets outside the window are valid.
    pub const BE_LIBERAL: u8 = 0x08;
    /// Data is unacknowledged: the timeout is `tcp_timeout_unacknowledged` at most.
    pub const DATA_UNACKNOWLEDGED: u8 = 0x10;
    /// The highest acknowledgement is known; a reset that is older is invalid.
    pub const MAXACK_SET: u8 = 0x20;
}

/// `IPS_*` (linux/netfilter/nf_conntrack_common.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status(pub u32);

impl Status {
    /// A helper expected it.
    pub const EXPECTED: Status = Status(1 << 0);
    /// Packets of both directions were seen.
    pub const SEEN_REPLY: Status = Status(1 << 1);
    /// The connection is not evicted early.
    pub const ASSURED: Status = Status(1 << 2);
    /// Its first packet has left.
    pub const CONFIRMED: Status = Status(1 << 3);
    /// Its source is translated.
    pub const SOURCE_NAT: Status = Status(1 << 4);
    /// Its destination is translated.
    pub const DESTINATION_NAT: Status = Status(1 << 5);
    /// Its sequence numbers are moved.
    pub const SEQUENCE_ADJUST: Status = Status(1 << 6);
    /// Source translation is decided.
    pub const SOURCE_NAT_DONE: Status = Status(1 << 7);
    /// Destination translation is decided.
    pub const DESTINATION_NAT_DONE: Status = Status(1 << 8);
    /// The connection is removed.
    pub const DYING: Status = Status(1 << 9);
    /// Its timeout cannot be changed.
    pub const FIXED_TIMEOUT: Status = Status(1 << 10);
    /// A template of a rule.
    pub const TEMPLATE: Status = Status(1 << 11);
    /// The connection lost a race with a connection of the same tuple (`IPS_UNTRACKED` in old kernels).
    pub const NAT_CLASH: Status = Status(1 << 12);
    /// A rule gave it its helper.
    pub const HELPER: Status = Status(1 << 13);
    /// A flow table forwards it.
    pub const OFFLOAD: Status = Status(1 << 14);
    /// A network device forwards it.
    pub const HARDWARE_OFFLOAD: Status = Status(1 << 15);

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: Status) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any bit of `other` is set.
    pub const fn intersects(self, other: Status) -> bool {
        self.0 & other.0 != 0
    }
}

impl std::ops::BitOr for Status {
    type Output = Status;

    fn bitor(self, other: Status) -> Status {
        Status(self.0 | other.0)
    }
}

// linux/netfilter/nfnetlink_conntrack.h
const NFNL_SUBSYS_CTNETLINK: u16 = 1;
const IPCTNL_MSG_CT_NEW: u16 = 0;
const IPCTNL_MSG_CT_GET: u16 = 1;
const IPCTNL_MSG_CT_DELETE: u16 = 2;
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
const CTA_STATUS: u16 = 3;
const CTA_PROTOINFO: u16 = 4;
const CTA_HELP: u16 = 5;
const CTA_TIMEOUT: u16 = 7;
const CTA_MARK: u16 = 8;
const CTA_COUNTERS_ORIG: u16 = 9;
const CTA_COUNTERS_REPLY: u16 = 10;
const CTA_ID: u16 = 12;
const CTA_TUPLE_MASTER: u16 = 14;
const CTA_SEQ_ADJ_ORIG: u16 = 15;
const CTA_SEQ_ADJ_REPLY: u16 = 16;
const CTA_ZONE: u16 = 18;
const CTA_SYNPROXY: u16 = 24;
const CTA_TUPLE_IP: u16 = 1;
const CTA_TUPLE_PROTO: u16 = 2;
const CTA_TUPLE_ZONE: u16 = 3;
const CTA_IP_V4_SRC: u16 = 1;
const CTA_IP_V4_DST: u16 = 2;
const CTA_IP_V6_SRC: u16 = 3;
const CTA_IP_V6_DST: u16 = 4;
const CTA_PROTO_NUM: u16 = 1;
const CTA_PROTO_SRC_PORT: u16 = 2;
const CTA_PROTO_DST_PORT: u16 = 3;
const CTA_COUNTERS_PACKETS: u16 = 1;
const CTA_COUNTERS_BYTES: u16 = 2;
const CTA_PROTOINFO_TCP: u16 = 1;
const CTA_PROTOINFO_TCP_STATE: u16 = 1;
const CTA_PROTOINFO_TCP_FLAGS_ORIGINAL: u16 = 4;
const CTA_PROTOINFO_TCP_FLAGS_REPLY: u16 = 5;

/// `struct nfgenmsg`.
const NFGENMSG_BYTES: usize = 4;

/// A message type of ctnetlink.
const fn message_type(message: u16) -> u16 {
    NFNL_SUBSYS_CTNETLINK << 8 | message
}
