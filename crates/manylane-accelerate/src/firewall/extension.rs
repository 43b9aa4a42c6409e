//! Matches and targets of iptables, by their structures (linux/netfilter/xt_*.h).

use std::net::IpAddr;

use manylane_io::netlink::kernel::Family;
use manylane_io::netlink::nftables::expression::Extension;

use super::bits::{Bits, Part, Truth};
use super::connection::{STATUS_TRANSLATED, is_unexpected, status};
use super::evaluate::Step;
use super::obstacle::Cause;
use super::packet::{Octets, Protocol, Stage, Tracked, View};
use super::rules::Resolved;

/// A match by its name and the revision of its structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Matcher {
    Conntrack { revision: u32 },
    State,
    Tcp,
    Udp,
    MultiPort,
    IpRange,
    AddressType { revision: u32 },
    Mark,
    ConnectionMark,
    Helper,
    PacketType,
}

/// What is to be known of a match, whatever the packet.
pub(super) fn matcher(extension: &Extension) -> Resolved {
    Resolved::Match(match (extension.name.as_str(), extension.revision) {
        ("conntrack", revision @ 1..=3) => Matcher::Conntrack { revision },
        ("state", 0) => Matcher::State,
        ("tcp", 0) => Matcher::Tcp,
        ("udp", 0) => Matcher::Udp,
        ("multiport", 1) => Matcher::MultiPort,
        ("iprange", 1) => Matcher::IpRange,
        ("addrtype", revision @ 0..=1) => Matcher::AddressType { revision },
        ("mark", 1) => Matcher::Mark,
        ("connmark", 1) => Matcher::ConnectionMark,
        ("helper", 0) => Matcher::Helper,
        ("pkttype", 0) => Matcher::PacketType,
        ("comment", _) => return Resolved::Always(Step::If(Truth::Yes)),
        ("rpfilter", 0) => {
            // Strict, and not inverted; asking with the packet's mark is stricter.
            return Resolved::Always(match Fields(&extension.data).u8(0) {
                Some(flags) if flags & !2 == 0 => Step::ReversePath,
                _ => Step::If(NEVER),
            });
        }
        (name, _) => return Resolved::Always(by_name(name)),
    })
}

/// Whether a match holds, by its structure.
pub(super) fn matches(matcher: Matcher, data: &[u8], view: &View<'_>) -> Step {
    let data = Fields(data);
    let truth = match matcher {
        Matcher::Conntrack { revision } => conntrack(data, revision, view),
        Matcher::State => data.u32(0).map(|mask| state(u64::from(mask), view)),
        Matcher::Tcp => tcp(data, view),
        Matcher::Udp => udp(data, view),
        Matcher::MultiPort => multiport(data, view),
        Matcher::IpRange => iprange(data, view),
        Matcher::AddressType { revision: 0 } => {
            address_type(data, [data.u32(4) != Some(0), data.u32(8) != Some(0)], view)
        }
        Matcher::AddressType { .. } => {
            let flags = data.u32(4).unwrap_or(0);
            address_type(data, [flags & 1 != 0, flags & 2 != 0], view)
        }
        Matcher::Mark => mark(data, view.class.mark, false),
        Matcher::ConnectionMark if view.tracked == Tracked::Yes => {
            mark(data, view.flow.and_then(|flow| flow.mark), view.asks())
        }
        // Without a connection it does not match.
        Matcher::ConnectionMark if view.tracked == Tracked::NotYet => Some(Truth::No),
        Matcher::ConnectionMark => None,
        // About the helper of the connection's master: without a master it does not match.
        Matcher::Helper => match view.tracked {
            Tracked::Yes if !is_unexpected(view.flow) => Some(Truth::Maybe { asks: view.asks() }),
            Tracked::Unknown => None,
            _ => data.u32(0).map(|inverts| Truth::of(inverts != 0)),
        },
        Matcher::PacketType => data
            .u32(0)
            .zip(data.u32(4))
            .map(|(kind, inverts)| Truth::of(kind == 0).xor(inverts != 0)),
    };
    Step::If(truth.unwrap_or(NEVER))
}

/// A match that keeps a state of its own does something to each packet. Any other match only looks at it.
fn by_name(name: &str) -> Step {
    Step::Effect(match name {
        "limit" | "hashlimit" | "rateest" => Cause::Limit,
        "quota" | "quota2" => Cause::Quota,
        "connlimit" => Cause::ConnectionLimit,
        "connbytes" => Cause::ConnectionBytes,
        "recent" => Cause::SetUpdate,
        "statistic" => Cause::NumberGenerator,
        "nfacct" => return Step::Count,
        // Extension headers, which the packet does not have.
        "rt" | "frag" | "hbh" | "dst" | "mh" => return Step::If(Truth::No),
        // These change nothing of a packet or of a state. What ipsets hold is not known.
        "ah" | "bpf" | "cgroup" | "cluster" | "connlabel" | "cpu" | "dccp" | "devgroup"
        | "dscp" | "ecn" | "esp" | "eui64" | "hl" | "icmp" | "icmp6" | "ipcomp" | "ipv6header"
        | "length" | "mac" | "osf" | "owner" | "physdev" | "policy" | "realm" | "sctp" | "set"
        | "socket" | "string" | "tcpmss" | "time" | "tos" | "ttl" | "u32" => {
            return Step::If(NEVER);
        }
        _ => Cause::Unknown,
    })
}

/// What a target does. The verdicts are not among them.
pub(super) fn target(extension: &Extension) -> Step {
    let data = Fields(&extension.data);
    let cause = match extension.name.as_str() {
        "LOG" | "NFLOG" | "ULOG" | "AUDIT" => Cause::Log,
        "REJECT" => Cause::Reject,
        "NFQUEUE" | "QUEUE" => Cause::Queue,
        "TCPMSS" => Cause::SegmentSize,
        "MARK" | "CLASSIFY" | "HMARK" | "SECMARK" => Cause::PacketChange,
        "CONNMARK" | "CONNSECMARK" => Cause::ConnectionChange,
        "TEE" => Cause::Duplicate,
        "TPROXY" | "SYNPROXY" => Cause::Proxy,
        "DSCP" | "TOS" | "ECN" | "TTL" | "HL" | "CHECKSUM" | "DNPT" | "SNPT" | "TCPOPTSTRIP" => {
            Cause::Rewrite
        }
        "SET" => Cause::SetUpdate,
        "NOTRACK" => Cause::Notrack,
        "TRACE" => Cause::Trace,
        "RATEEST" => Cause::Limit,
        "CT" => {
            return match (data.u16(0), data.u16(2)) {
                // A helper, a timeout, events: for first packets.
                (Some(0), Some(0)) => Step::Next,
                (Some(flags), _) if flags & 1 != 0 => Step::Effect(Cause::Notrack),
                _ => Step::Effect(Cause::ConnectionChange),
            };
        }
        _ => Cause::Unknown,
    };
    Step::Effect(cause)
}

/// The fields of a structure.
#[derive(Clone, Copy)]
struct Fields<'d>(&'d [u8]);

impl<'d> Fields<'d> {
    fn u8(self, at: usize) -> Option<u8> {
        self.0.get(at).copied()
    }

    fn u16(self, at: usize) -> Option<u16> {
        Some(u16::from_ne_bytes(*self.0.get(at..)?.first_chunk()?))
    }

    fn u32(self, at: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(*self.0.get(at..)?.first_chunk()?))
    }

    fn bytes(self, at: usize, length: usize) -> Option<&'d [u8]> {
        self.0.get(at..at + length)
    }
}

/// Whether the state of an established connection, and its translation, is in a mask (`XT_CONNTRACK_STATE_*`).
fn state(mask: u64, view: &View<'_>) -> Truth {
    match view.tracked {
        Tracked::Unknown => return NEVER,
        // Invalid.
        Tracked::NotYet => return Truth::of(mask & 1 != 0),
        Tracked::Yes if mask & u64::from(view.stage.state()) != 0 => return Truth::Yes,
        Tracked::Yes => {}
    }
    // `XT_CONNTRACK_STATE_SNAT` and `_DNAT` are bits of the status, two places further.
    has_status((mask >> 2) as u32 & STATUS_TRANSLATED, view)
}

/// Whether the connection's status has any of these bits.
fn has_status(mask: u32, view: &View<'_>) -> Truth {
    let (value, known) = status(view.flow);
    if value & known & mask != 0 {
        Truth::Yes
    } else if mask & !known == 0 {
        Truth::No
    } else {
        Truth::Maybe { asks: view.asks() }
    }
}

/// `struct xt_conntrack_mtinfo1`, `2` and `3`, which differ behind the flags.
fn conntrack(data: Fields<'_>, revision: u32, view: &View<'_>) -> Option<Truth> {
    let (flags, inverted) = (data.u16(146)?, data.u16(148)?);
    let (states, statuses) = match revision {
        1 => (u16::from(data.u8(150)?), u16::from(data.u8(151)?)),
        _ => (data.u16(150)?, data.u16(152)?),
    };
    let mut truth = Truth::Yes;
    if flags & 1 != 0 {
        truth = truth.and(state(u64::from(states), view).xor(inverted & 1 != 0));
    }
    let is_untracked = view.stage == Stage::Untracked;
    match view.tracked {
        Tracked::Yes if !is_untracked => {}
        // Without a connection only the state is looked at.
        Tracked::NotYet | Tracked::Yes => {
            return Some(if flags & 1 != 0 { truth } else { Truth::No });
        }
        Tracked::Unknown => return Some(NEVER),
    }
    if flags & 1 << 12 != 0 {
        let is_original = match view.flow {
            Some(flow) => Truth::of(!flow.is_reply),
            None => Truth::Maybe { asks: true },
        };
        truth = truth.and(is_original.xor(inverted & 1 << 12 != 0));
    }
    if flags & 1 << 1 != 0 {
        let is_its = data.u16(136)? == u16::from(view.class.protocol.number());
        truth = truth.and(Truth::of(is_its).xor(inverted & 1 << 1 != 0));
    }
    if flags & 1 << 6 != 0 {
        let has_any = has_status(statuses.into(), view);
        truth = truth.and(has_any.xor(inverted & 1 << 6 != 0));
    }
    let flow = view.flow;
    let ends: [Option<(IpAddr, u16)>; 4] = [
        flow.map(|flow| (flow.original.source, flow.original.source_port)),
        flow.map(|flow| (flow.original.destination, flow.original.destination_port)),
        flow.map(|flow| (flow.reply.source, flow.reply.source_port)),
        flow.map(|flow| (flow.reply.destination, flow.reply.destination_port)),
    ];
    for (number, end) in ends.into_iter().enumerate() {
        let (of_address, of_port) = (1 << 2 << number, 1 << 8 << number);
        if flags & of_address != 0 {
            let end = end.map(|end| end.0);
            let is_its = address(data, number * 32, number * 32 + 16, end, view)?;
            truth = truth.and(is_its.xor(inverted & of_address != 0));
        }
        if flags & of_port != 0 {
            let first = data.u16(138 + 2 * number)?;
            // Ranges are in the machine's order, since revision 3; a single port is in the network's.
            let range = match revision {
                3 => first..=data.u16(154 + 2 * number)?,
                _ => u16::from_be(first)..=u16::from_be(first),
            };
            let is_its = match end {
                Some((_, port)) => Truth::of(range.contains(&port)),
                None => Truth::Maybe { asks: view.asks() },
            };
            truth = truth.and(is_its.xor(inverted & of_port != 0));
        }
    }
    // When it ends is not known.
    Some(if flags & 1 << 7 == 0 { truth } else { truth.and(NEVER) })
}

/// Whether an address, under a mask, is the one in the structure.
fn address(
    data: Fields<'_>,
    at: usize,
    mask: usize,
    end: Option<IpAddr>,
    view: &View<'_>,
) -> Option<Truth> {
    let width = view.address(false)?.len();
    let (wanted, mask) = (data.bytes(at, width)?, data.bytes(mask, width)?);
    let mut bits = Bits::UNKNOWN;
    match end {
        Some(end) => bits.set(0, Octets::of(end).as_ref()),
        None => bits.forget(0, width, view.asks()),
    }
    Some(bits.part(0, width)?.equal_masked(mask, wanted))
}

/// `struct xt_tcp`.
fn tcp(data: Fields<'_>, view: &View<'_>) -> Option<Truth> {
    if view.class.protocol != Protocol::Tcp {
        return None;
    }
    let inverted = data.u8(11)?;
    let source = ports(data, 0, view.port(false))?.xor(inverted & 1 != 0);
    let destination = ports(data, 4, view.port(true))?.xor(inverted & 2 != 0);
    let (mask, wanted) = (data.u8(9)?, data.u8(10)?);
    let flags = view.transport(13, 1)?.equal_masked(&[mask], &[wanted]);
    let option = if data.u8(8)? == 0 { Truth::Yes } else { NEVER };
    Some(source.and(destination).and(flags.xor(inverted & 4 != 0)).and(option))
}

/// `struct xt_udp`.
fn udp(data: Fields<'_>, view: &View<'_>) -> Option<Truth> {
    if view.class.protocol != Protocol::Udp {
        return None;
    }
    let inverted = data.u8(8)?;
    let source = ports(data, 0, view.port(false))?.xor(inverted & 1 != 0);
    Some(source.and(ports(data, 4, view.port(true))?.xor(inverted & 2 != 0)))
}

/// Whether a port lies between the two of a structure.
fn ports(data: Fields<'_>, at: usize, port: Option<Part<'_>>) -> Option<Truth> {
    let (first, last) = (data.u16(at)?, data.u16(at + 2)?);
    Some(port?.between(&first.to_be_bytes(), &last.to_be_bytes()))
}

/// `struct xt_multiport_v1`.
fn multiport(data: Fields<'_>, view: &View<'_>) -> Option<Truth> {
    let sides: &[bool] = match data.u8(0)? {
        0 => &[false],
        1 => &[true],
        2 => &[false, true],
        _ => return None,
    };
    let count = usize::from(data.u8(1)?).min(15);
    let mut truth = Truth::No;
    let mut at = 0;
    while at < count {
        let first = data.u16(2 + 2 * at)?;
        // A mark says that the next port is the range's end.
        let is_range = data.u8(32 + at)? != 0;
        let last = if is_range { data.u16(2 + 2 * (at + 1))? } else { first };
        for &side in sides {
            truth = truth.or(view.port(side)?.between(&first.to_be_bytes(), &last.to_be_bytes()));
        }
        at += 1 + usize::from(is_range);
    }
    Some(truth.xor(data.u8(47)? != 0))
}

/// `struct xt_iprange_mtinfo`.
fn iprange(data: Fields<'_>, view: &View<'_>) -> Option<Truth> {
    let flags = data.u8(64)?;
    let mut truth = Truth::Yes;
    for (number, is_destination) in [false, true].into_iter().enumerate() {
        if flags & 1 << number != 0 {
            let bits = view.address(is_destination)?;
            let (low, high) =
                (data.bytes(number * 32, bits.len())?, data.bytes(number * 32 + 16, bits.len())?);
            truth = truth.and(bits.between(low, high).xor(flags & 0x10 << number != 0));
        }
    }
    Some(truth)
}

/// `struct xt_addrtype_info` and `_v1`: a mask of types for each address.
fn address_type(data: Fields<'_>, inverted: [bool; 2], view: &View<'_>) -> Option<Truth> {
    let (source, destination) = (data.u16(0)?, data.u16(2)?);
    let mut truth = Truth::Yes;
    if source != 0 {
        truth = truth.and(NEVER);
    }
    if destination != 0 {
        let is_its = match view.is_routed && view.class.family == Family::V4 {
            true => Truth::of(destination & 1 << RTN_UNICAST != 0),
            false => Truth::Maybe { asks: view.asks() },
        };
        truth = truth.and(is_its.xor(inverted[1]));
    }
    Some(truth)
}

/// `struct xt_mark_mtinfo1`, which the connection's mark has too.
fn mark(data: Fields<'_>, mark: Option<u32>, asks: bool) -> Option<Truth> {
    let (wanted, mask, inverts) = (data.u32(0)?, data.u32(4)?, data.u8(8)? != 0);
    Some(match mark {
        Some(mark) => Truth::of(mark & mask == wanted).xor(inverts),
        None => Truth::Maybe { asks },
    })
}

/// No flow would tell.
const NEVER: Truth = Truth::Maybe { asks: false };
const RTN_UNICAST: u32 = 1;
