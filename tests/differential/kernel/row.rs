//! A difference that is known: why it is there, and how to know it by.

use std::net::{IpAddr, Ipv4Addr};

use super::compare::{Case, Did, Difference};
use super::generate::ICMPV6;
use super::plan::{self, Side};
use super::read::{Ip, V4, V6};

/// A difference that is known.
pub struct Row {
    /// What the kernel does, what manylane does, and why.
    pub reason: &'static str,
    /// Whether this is what differs here.
    pub explains: fn(&Case<'_>, &Difference) -> bool,
}

pub fn v4(case: &Case<'_>) -> Option<V4> {
    case.ip().and_then(|ip| if let Ip::V4(header) = ip { Some(header) } else { None })
}

pub fn v6(case: &Case<'_>) -> Option<V6> {
    case.ip().and_then(|ip| if let Ip::V6(header) = ip { Some(header) } else { None })
}

pub fn ends(case: &Case<'_>) -> Option<(IpAddr, IpAddr)> {
    case.ip().map(|ip| (ip.source(), ip.destination()))
}

pub fn did(difference: &Difference) -> Option<(Did, Did)> {
    match *difference {
        Difference::Did { kernel, ours } => Some((kernel, ours)),
        _ => None,
    }
}

pub fn ours_is(difference: &Difference, did: Did) -> bool {
    matches!(difference, Difference::Did { ours, .. } if *ours == did)
}

pub fn field(difference: &Difference) -> Option<(&'static str, &[u8], &[u8])> {
    match difference {
        Difference::Field { name, kernel, ours, .. } => Some((name, kernel, ours)),
        _ => None,
    }
}

pub fn is_port_unreachable(did: Did) -> bool {
    matches!(did, Did::Said(3, 3) | Did::Said(1, 4))
}

/// Whether it is for the router, and of this transport, behind whatever headers.
pub fn is_to_router(case: &Case<'_>, protocol: u8) -> bool {
    match case.ip() {
        Some(Ip::V4(header)) => {
            header.protocol == protocol && plan::is_routers(header.destination.into())
        }
        Some(Ip::V6(header)) => {
            let to = header.destination.into();
            (plan::is_routers(to) || plan::is_anycast(to))
                && matches!(transport(&case.shot.frame[14..]), Some((this, _)) if this == protocol)
        }
        None => false,
    }
}

pub fn is_multicast(case: &Case<'_>) -> bool {
    ends(case).is_some_and(|(_, to)| to.is_multicast())
}

/// Whether it is the broadcast address of a link.
pub fn is_broadcast(address: Ipv4Addr) -> bool {
    Side::ALL.into_iter().any(|side| address == side.broadcast())
}

/// Whether the packet has one of these options, malformed ones included.
pub fn has_options(case: &Case<'_>, kinds: &[u8]) -> bool {
    let Some(header) = v4(case) else { return false };
    let mut rest = &case.shot.frame[34..14 + header.len];
    while let [kind, behind @ ..] = rest {
        let len = match kind {
            0 => return false,
            1 => 1,
            _ => behind.first().map_or(usize::MAX, |&len| len.max(2).into()),
        };
        if kinds.contains(kind) {
            return true;
        }
        rest = rest.get(len..).unwrap_or_default();
    }
    false
}

/// The transport of an IPv6 packet and where it is, if its extension headers lead there as RFC 8200 §4.1
/// has them; with a later fragment's, nowhere.
pub fn transport(packet: &[u8]) -> Option<(u8, Option<usize>)> {
    let (mut next, mut at) = (packet[6], 40);
    let end = packet.len().min(40 + usize::from(u16::from_be_bytes([packet[4], packet[5]])));
    loop {
        let len = match next {
            0 if at > 40 => return None,
            0 | 43 | 60 => 8 + 8 * usize::from(*packet.get(at + 1)?),
            44 => 8,
            51 => 8 + 4 * usize::from(*packet.get(at + 1)?),
            protocol => return Some((protocol, Some(at))),
        };
        if at + len > end {
            return None;
        }
        if next == 44 && u16::from_be_bytes([packet[at + 2], packet[at + 3]]) & 0xfff8 != 0 {
            return Some((packet[at], None));
        }
        (next, at) = (packet[at], at + len);
    }
}

/// Whether the packet has a segment routing header (RFC 8754).
pub fn has_segments(packet: &[u8]) -> bool {
    let (mut next, mut at) = (packet[6], 40);
    while let (0 | 43 | 44 | 51 | 60, Some(header)) = (next, packet.get(at..at + 4)) {
        if next == 43 && header[2] == 4 {
            return true;
        }
        at += match next {
            44 => 8,
            51 => 8 + 4 * usize::from(header[1]),
            _ => 8 + 8 * usize::from(header[1]),
        };
        next = header[0];
    }
    false
}

/// Whether no field shows that the packet is no ICMP error.
pub fn may_be_error(packet: &[u8]) -> bool {
    match transport(packet) {
        Some((ICMPV6, at)) => at.is_none_or(|at| packet.len() <= at),
        Some(_) => false,
        None => true,
    }
}

/// Whether an end-of-options stands among the options.
pub fn has_end_of_options(case: &Case<'_>) -> bool {
    v4(case).is_some_and(|header| case.shot.frame[34..14 + header.len].contains(&0))
}

/// Whether `field` is of this name, and in both routers' packets an address of theirs.
pub fn is_routers(field: Option<(&'static str, &[u8], &[u8])>, name: &str) -> bool {
    let is = |bytes: &[u8]| {
        let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
        v4.or(<[u8; 16]>::try_from(bytes).map(IpAddr::from)).is_ok_and(plan::is_routers)
    };
    field.is_some_and(|(this, kernel, ours)| this == name && is(kernel) && is(ours))
}
