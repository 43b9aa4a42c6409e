//! What the rules do to single packets: a table of our own marks packets, and the kernel reports each rule that a marked
//! packet meets (`meta nftrace`, nft(8)).
//!
//! The table is owned by the socket that made it (`NFT_TABLE_F_OWNER`): no other program can change the table, and the
//! kernel removes it when the socket closes, also when the process is killed. So nothing of a trace stays. The rooms that
//! read chains and rules leave such a table out: it does nothing to a packet but mark it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::expression::{Verdict, verdict};
use super::{
    NF_DROP, NFNL_SUBSYS_NFTABLES, NFTA_CHAIN_HOOK, NFTA_CHAIN_NAME, NFTA_CHAIN_TABLE,
    NFTA_CHAIN_TYPE, NFTA_HOOK_HOOKNUM, NFTA_HOOK_PRIORITY, NFTA_RULE_CHAIN, NFTA_RULE_EXPRESSIONS,
    NFTA_RULE_TABLE, NFTA_TABLE_FLAGS, NFTA_TABLE_NAME, Table, TableFamily, open,
};
use crate::netlink::plain::{attribute, big_u32, text};
use crate::netlink::socket::{HEADER_BYTES, Socket, set_option};
use crate::netlink::{NetlinkError, Notices};

/// What is marked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks<'f> {
    /// A program of classic BPF that looks at packets from the IP header on, of at most [`FILTER_MAX`] instructions; all
    /// packets without one. Needs the kernel's nft_compat and xt_bpf.
    pub filter: Option<&'f [(u16, u8, u8, u32)]>,
    /// The number of the device that receives the packets; any without one.
    pub interface: Option<u32>,
    /// How many packets a second may be marked.
    pub rate: u32,
}

/// The longest filter (`XT_BPF_MAX_NUM_INSTR`).
pub const FILTER_MAX: usize = 64;

/// The table that marks packets, until it is dropped or the process ends.
pub struct TraceTable {
    _socket: Socket,
    name: String,
}

impl TraceTable {
    /// Makes the table in the calling thread's network namespace. Its name ends in `suffix`.
    ///
    /// A packet that was marked meets the chain [`DELIVERED`] where it has passed all other chains to this host's own
    /// sockets, and [`SENT`] where it has passed those to a device.
    pub fn create(suffix: &str, marks: &Marks<'_>) -> Result<TraceTable, NetlinkError> {
        let name = format!("{PREFIX}{suffix}");
        let step = || format!("make the table {name} of nftables, which marks packets");
        let mut socket = Socket::open_protocol(libc::NETLINK_NETFILTER)
            .map_err(|source| NetlinkError::Unavailable { source })?;
        let mut batch = Batch::default();
        let mut refused = None;
        let last = batch.fill(&name, marks, || socket.take_sequence());
        socket
            .exchange(&batch.0, last, |_, refusal| refused = refused.take().or(Some(refusal)))
            .map_err(|source| NetlinkError::refused(step(), source.into()))?;
        match refused {
            None => Ok(TraceTable { _socket: socket, name }),
            Some(refusal) => Err(NetlinkError::refused(step(), refusal)),
        }
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Whether a table is that of a trace: by its name, and by an owner, so that no other program has put rules into it.
pub(super) fn is_of_a_trace(table: &Table) -> bool {
    table.owner.is_some() && table.name.starts_with(PREFIX)
}

/// Requests that the kernel executes together.
#[derive(Default)]
struct Batch(Vec<u8>);

impl Batch {
    /// The requests for the table; returns the number of that which is acknowledged.
    fn fill(&mut self, name: &str, marks: &Marks<'_>, mut number: impl FnMut() -> u32) -> u32 {
        let mut put = |kind: u16, flags: i32, [family, low]: [u8; 2], body: &[u8]| {
            let sequence = number();
            let flags = (flags | libc::NLM_F_REQUEST) as u16;
            self.0.extend(((HEADER_BYTES + 4 + body.len()) as u32).to_ne_bytes());
            self.0.extend(kind.to_ne_bytes());
            self.0.extend(flags.to_ne_bytes());
            self.0.extend(sequence.to_ne_bytes());
            self.0.extend(0u32.to_ne_bytes());
            self.0.extend([family, 0, 0, low]);
            self.0.extend(body);
            sequence
        };
        let inet = [TableFamily::Inet.number(), 0];
        let of_nftables = [0, NFNL_SUBSYS_NFTABLES as u8];
        let kind = |message: u16| NFNL_SUBSYS_NFTABLES << 8 | message;
        put(BATCH_BEGIN, 0, of_nftables, &[]);
        let owned = number_of(NFTA_TABLE_FLAGS, NFT_TABLE_F_OWNER);
        let table = [name_of(NFTA_TABLE_NAME, name), owned].concat();
        put(kind(NFT_MSG_NEWTABLE), libc::NLM_F_CREATE | libc::NLM_F_EXCL, inet, &table);
        // `NF_INET_PRE_ROUTING`, `NF_INET_LOCAL_IN`, `NF_INET_POST_ROUTING`: in front of all chains, and behind all.
        for (chain, hook, priority) in
            [(RECEIVED, 0, i32::MIN), (DELIVERED, 1, i32::MAX), (SENT, 4, i32::MAX)]
        {
            let priority = number_of(NFTA_HOOK_PRIORITY, priority as u32);
            let hook = [number_of(NFTA_HOOK_HOOKNUM, hook), priority].concat();
            let parts = [
                name_of(NFTA_CHAIN_TABLE, name),
                name_of(NFTA_CHAIN_NAME, chain),
                nested(NFTA_CHAIN_HOOK, &hook),
                name_of(NFTA_CHAIN_TYPE, "filter"),
            ];
            put(kind(NFT_MSG_NEWCHAIN), libc::NLM_F_CREATE, inet, &parts.concat());
        }
        let rule = [
            name_of(NFTA_RULE_TABLE, name),
            name_of(NFTA_RULE_CHAIN, RECEIVED),
            nested(NFTA_RULE_EXPRESSIONS, &expressions(marks)),
        ];
        // Kernels before Linux 6.10 acknowledge no end of a batch.
        let flags = libc::NLM_F_CREATE | libc::NLM_F_APPEND | libc::NLM_F_ACK;
        let last = put(kind(NFT_MSG_NEWRULE), flags, inet, &rule.concat());
        put(BATCH_END, 0, of_nftables, &[]);
        last
    }
}

/// The rule that marks: from this interface, by this filter, not too many.
fn expressions(marks: &Marks<'_>) -> Vec<u8> {
    let expression = |name: &str, data: &[Vec<u8>]| {
        nested(NFTA_LIST_ELEM, &[name_of(1, name), nested(2, &data.concat())].concat())
    };
    // NFTA_DATA_VALUE.
    let value = |kind: u16, bytes: &[u8]| nested(kind, &put(1, bytes));
    let mut list = Vec::new();
    if let Some(interface) = marks.interface {
        list.push(expression("meta", &[number_of(1, REGISTER), number_of(2, META_IIF)]));
        let is_it = value(3, &interface.to_ne_bytes());
        list.push(expression("cmp", &[number_of(1, REGISTER), number_of(2, 0), is_it]));
    }
    if let Some(filter) = marks.filter {
        let data = [name_of(1, "bpf"), number_of(2, 1), put(3, &xt_bpf(filter))];
        list.push(expression("match", &data));
    }
    let (rate, second) = (u64::from(marks.rate), 1u64);
    let limit = [put(1, &rate.to_be_bytes()), put(2, &second.to_be_bytes())];
    list.push(expression("limit", &[limit.concat(), number_of(3, marks.rate)]));
    list.push(expression("immediate", &[number_of(1, REGISTER), value(2, &[1, 0, 0, 0])]));
    list.push(expression("meta", &[number_of(2, META_NFTRACE), number_of(3, REGISTER)]));
    list.concat()
}

/// `struct xt_bpf_info_v1`: the program's instructions in the structure itself.
fn xt_bpf(filter: &[(u16, u8, u8, u32)]) -> Vec<u8> {
    let mut bytes = 0u16.to_ne_bytes().to_vec(); // XT_BPF_MODE_BYTECODE
    bytes.extend((filter.len().min(FILTER_MAX) as u16).to_ne_bytes());
    bytes.extend((-1i32).to_ne_bytes());
    for &(code, jt, jf, k) in filter.iter().take(FILTER_MAX) {
        bytes.extend(code.to_ne_bytes());
        bytes.extend([jt, jf]);
        bytes.extend(k.to_ne_bytes());
    }
    bytes.resize(XT_BPF_BYTES, 0);
    bytes
}

/// An attribute.
fn put(kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (4 + payload.len() as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(payload);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn nested(kind: u16, payload: &[u8]) -> Vec<u8> {
    put(kind | NLA_F_NESTED, payload)
}

fn name_of(kind: u16, name: &str) -> Vec<u8> {
    put(kind, &[name.as_bytes(), &[0]].concat())
}

fn number_of(kind: u16, number: u32) -> Vec<u8> {
    put(kind, &number.to_be_bytes())
}

/// Where a marked packet is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// The packet's number in all of its events. Another packet may have it later.
    pub id: u32,
    /// The table's family.
    pub family: TableFamily,
    /// The table.
    pub table: String,
    /// The chain.
    pub chain: String,
    /// What decides there.
    pub step: TraceStep,
    /// What is decided.
    pub verdict: Verdict,
    /// The first bytes of the IP header, in the first event of a base chain.
    pub network: Vec<u8>,
    /// The first bytes of the header behind it, alike.
    pub transport: Vec<u8>,
    /// The device that the packet is to leave by.
    pub egress: Option<u32>,
}

/// What decides about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceStep {
    /// The rule with this handle.
    Rule(u64),
    /// Nothing: no further rule of the chain matches.
    End,
    /// The end of the chain, back to the caller.
    Return,
    /// The chain's policy.
    Policy,
}

impl TraceEvent {
    /// The chain of a [`TraceTable`] that this is, if it is one: [`RECEIVED`], [`DELIVERED`], [`SENT`].
    pub fn own_chain(&self) -> Option<&str> {
        self.table.starts_with(PREFIX).then_some(&self.chain)
    }

    fn read(payload: &[u8]) -> Option<TraceEvent> {
        let (family, bytes) = open(payload)?;
        let part = |kind| attribute(bytes, kind).unwrap_or_default();
        let policy = || match attribute(bytes, NFTA_TRACE_POLICY).and_then(big_u32)? {
            NF_DROP => Some(Verdict::Drop),
            _ => Some(Verdict::Accept),
        };
        let decided = || verdict(attribute(bytes, NFTA_TRACE_VERDICT)?);
        let handle = part(NFTA_TRACE_RULE_HANDLE).first_chunk();
        let rule =
            handle.map_or(TraceStep::End, |bytes| TraceStep::Rule(u64::from_be_bytes(*bytes)));
        // NFT_TRACETYPE_POLICY, _RETURN, _RULE.
        let (step, verdict) = match attribute(bytes, NFTA_TRACE_TYPE).and_then(big_u32)? {
            1 => (TraceStep::Policy, policy()?),
            2 => (TraceStep::Return, Verdict::Return),
            3 => (rule, decided()?),
            _ => return None,
        };
        Some(TraceEvent {
            id: attribute(bytes, NFTA_TRACE_ID).and_then(big_u32)?,
            family,
            table: attribute(bytes, NFTA_TRACE_TABLE).map(text)?,
            chain: attribute(bytes, NFTA_TRACE_CHAIN).map(text)?,
            step,
            verdict,
            network: part(NFTA_TRACE_NETWORK_HEADER).to_vec(),
            transport: part(NFTA_TRACE_TRANSPORT_HEADER).to_vec(),
            egress: attribute(bytes, NFTA_TRACE_OIF).and_then(big_u32),
        })
    }
}

/// A subscription to the events of marked packets, of all programs that mark some.
#[derive(Debug)]
pub struct TraceEvents(Notices);

impl TraceEvents {
    /// Subscribes in the calling thread's network namespace.
    pub fn open() -> Result<TraceEvents, NetlinkError> {
        let refused = |source: io::Error| {
            NetlinkError::refused("watch the traces of nftables".into(), source.into())
        };
        let notices = Notices::open(libc::NETLINK_NETFILTER, NFNLGRP_NFTRACE, |_| true);
        let notices = notices.map_err(refused)?;
        // More than the usual 200 events: a packet may meet many rules. Where this is refused, some may be lost.
        let _ = set_option(notices.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, ROOM);
        Ok(TraceEvents(notices))
    }

    /// Gives all waiting events to `see`. Returns whether some were lost.
    pub fn drain(&mut self, mut see: impl FnMut(TraceEvent)) -> io::Result<bool> {
        self.0.read(|kind, payload| {
            if kind == NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_TRACE
                && let Some(event) = TraceEvent::read(payload)
            {
                see(event);
            }
        })
    }
}

impl AsFd for TraceEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What the names of tables of traces begin with.
pub const PREFIX: &str = "manylane_trace_";
/// The chain of a [`TraceTable`] that packets meet first.
pub const RECEIVED: &str = "received";
/// That which packets for this host meet last.
pub const DELIVERED: &str = "delivered";
/// That which packets for a device meet last.
pub const SENT: &str = "sent";

/// Bytes of the socket's receive buffer.
const ROOM: libc::c_int = 8 << 20;
/// `NFT_REG32_00`.
const REGISTER: u32 = 8;
// linux/netfilter/nf_tables.h.
const META_IIF: u32 = 4;
const META_NFTRACE: u32 = 12;
const NFT_TABLE_F_OWNER: u32 = 2;
const NFT_MSG_NEWTABLE: u16 = 0;
const NFT_MSG_NEWCHAIN: u16 = 3;
const NFT_MSG_NEWRULE: u16 = 6;
const NFT_MSG_TRACE: u16 = 17;
const NFTA_LIST_ELEM: u16 = 1;
const NFTA_TRACE_TABLE: u16 = 1;
const NFTA_TRACE_CHAIN: u16 = 2;
const NFTA_TRACE_RULE_HANDLE: u16 = 3;
const NFTA_TRACE_TYPE: u16 = 4;
const NFTA_TRACE_VERDICT: u16 = 5;
const NFTA_TRACE_ID: u16 = 6;
const NFTA_TRACE_NETWORK_HEADER: u16 = 8;
const NFTA_TRACE_TRANSPORT_HEADER: u16 = 9;
const NFTA_TRACE_OIF: u16 = 12;
const NFTA_TRACE_POLICY: u16 = 16;
// linux/netfilter/nfnetlink.h.
const NFNLGRP_NFTRACE: libc::c_int = 9;
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const NLA_F_NESTED: u16 = 1 << 15;
/// `sizeof(struct xt_bpf_info_v1)`.
const XT_BPF_BYTES: usize = 8 + 8 * FILTER_MAX + 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::plain::attributes;
    use crate::netlink::socket::messages;

    fn message(parts: &[Vec<u8>]) -> Vec<u8> {
        [vec![2, 0, 0, 0], parts.concat()].concat()
    }

    fn common(kind: u32) -> Vec<u8> {
        [
            name_of(NFTA_TRACE_TABLE, "filter"),
            name_of(NFTA_TRACE_CHAIN, "forward"),
            number_of(NFTA_TRACE_TYPE, kind),
            number_of(NFTA_TRACE_ID, 0xefe1_02e5),
        ]
        .concat()
    }

    #[test]
    fn an_event_names_the_rule_and_its_verdict() {
        let code = |number: i32| number_of(1, number as u32);
        let parts = [
            common(3),
            put(NFTA_TRACE_RULE_HANDLE, &5u64.to_be_bytes()),
            nested(NFTA_TRACE_VERDICT, &[code(-3), name_of(2, "other")].concat()),
            put(NFTA_TRACE_NETWORK_HEADER, &[0x45; 20]),
            put(NFTA_TRACE_TRANSPORT_HEADER, &[8, 0]),
            number_of(NFTA_TRACE_OIF, 3),
        ];
        let bytes = message(&parts);
        let read = TraceEvent::read(&bytes).expect("it is whole");
        assert_eq!((read.id, read.family), (0xefe1_02e5, TableFamily::Ip));
        assert_eq!((read.table.as_str(), read.chain.as_str()), ("filter", "forward"));
        assert_eq!(read.step, TraceStep::Rule(5));
        assert_eq!(read.verdict, Verdict::Jump("other".into()));
        assert_eq!((read.network.len(), read.transport.len(), read.egress), (20, 2, Some(3)));
        assert_eq!(read.own_chain(), None);
        // Cut anywhere, or with any length: less, and no panic.
        for at in 0..bytes.len() {
            let _ = TraceEvent::read(&bytes[..at]);
            for length in [0, 1, 3, 5, 0x7f, 0xff] {
                let mut wrong = bytes.clone();
                wrong[at] = length;
                let _ = TraceEvent::read(&wrong);
            }
        }
    }

    #[test]
    fn a_policy_decides_where_no_rule_did() {
        for (policy, verdict) in [(0, Verdict::Drop), (1, Verdict::Accept)] {
            let bytes = message(&[common(1), number_of(NFTA_TRACE_POLICY, policy)]);
            let read = TraceEvent::read(&bytes).expect("it is whole");
            assert_eq!((read.step, read.verdict), (TraceStep::Policy, verdict));
        }
        let returned = TraceEvent::read(&message(&[common(2)])).expect("it is whole");
        assert_eq!((returned.step, returned.verdict), (TraceStep::Return, Verdict::Return));
        let code = number_of(1, -1i32 as u32);
        let end = message(&[common(3), nested(NFTA_TRACE_VERDICT, &code)]);
        assert_eq!(TraceEvent::read(&end).map(|event| event.step), Some(TraceStep::End));
        // Without what belongs to it, and of a kind that is not known.
        for kind in [1, 3, 4] {
            assert_eq!(TraceEvent::read(&message(&[common(kind)])), None);
        }
    }

    #[test]
    fn the_table_is_made_by_one_batch_with_one_acknowledgement() {
        let filter = [(6, 0, 0, 65_535)];
        let marks = Marks { filter: Some(&filter), interface: Some(7), rate: 500 };
        let (mut batch, mut sequence) = (Batch::default(), 0);
        let last = batch.fill("manylane_trace_1", &marks, || {
            sequence += 1;
            sequence
        });
        let sent: Vec<_> = messages(&batch.0).collect();
        let kinds: Vec<_> = sent.iter().map(|message| message.kind).collect();
        assert_eq!(kinds, [16, 0xa00, 0xa03, 0xa03, 0xa03, 0xa06, 17]);
        let acknowledged: Vec<_> =
            sent.iter().filter(|message| message.flags & libc::NLM_F_ACK != 0).collect();
        assert_eq!(acknowledged.iter().map(|one| one.sequence).collect::<Vec<_>>(), [last]);
        let rule = &acknowledged[0].payload[4..];
        let list = attribute(rule, NFTA_RULE_EXPRESSIONS).expect("it has expressions");
        let names: Vec<_> =
            attributes(list).filter_map(|(_, one)| attribute(one, 1).map(text)).collect();
        assert_eq!(names, ["meta", "cmp", "match", "limit", "immediate", "meta"]);
        let filter = attributes(list).nth(2).and_then(|(_, one)| attribute(one, 2));
        let info = filter.and_then(|data| attribute(data, 3)).expect("it has a structure");
        assert_eq!(info.len(), 528);
        assert_eq!(info[..4], [0u16.to_ne_bytes(), 1u16.to_ne_bytes()].concat());
    }

    #[test]
    fn a_table_of_a_trace_has_the_name_and_an_owner() {
        let table = |name: &str, owner| Table {
            family: TableFamily::Inet,
            name: name.into(),
            is_dormant: false,
            owner,
        };
        assert!(is_of_a_trace(&table("manylane_trace_9", Some(9))));
        assert!(!is_of_a_trace(&table("manylane_trace_9", None)));
        assert!(!is_of_a_trace(&table("filter", Some(9))));
    }
}
