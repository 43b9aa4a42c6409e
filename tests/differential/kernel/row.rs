//! A difference that is known: why it is there, and how to know it by.
//!
//! What manylane did is not a row's to judge: `wanted` has verified it before.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::compare::{Case, Did, Difference};
use super::generate::ICMPV6;
use super::plan::{self, Side, Way};
use super::read::{Ip, V4, V6};
use super::wanted;

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

/// The options of the packet.
pub fn options<'a>(case: &'a Case<'_>) -> Option<&'a [u8]> {
    v4(case).map(|header| &case.shot.frame[34..14 + header.len])
}

/// Options as Linux leaves them: cleared behind their end, if they have one before they end.
pub fn cleared(options: &[u8]) -> Vec<u8> {
    let mut cleared = options.to_vec();
    if let Some(at) = wanted::behind_end(options) {
        cleared[at..].fill(0);
    }
    cleared
}

/// Options as Linux has them in later fragments: no-operations where an option is not to be copied.
pub fn blanked(options: &[u8]) -> Vec<u8> {
    let mut blanked = options.to_vec();
    let mut at = 0;
    while let Some(&kind) = options.get(at).filter(|&&kind| kind != 0) {
        let len =
            if kind == 1 { 1 } else { options.get(at + 1).map_or(1, |&len| len.max(2).into()) };
        let end = (at + len).min(options.len());
        if kind & 0x80 == 0 {
            blanked[at..end].fill(1);
        }
        at = end;
    }
    cleared(&blanked)
}

/// Whether the bytes are options of kinds that the packet has, but for no-operations.
pub fn are_of_packet(case: &Case<'_>, bytes: &[u8]) -> bool {
    let of = options(case).unwrap_or_default();
    let mut at = 0;
    while let Some(&kind) = bytes.get(at).filter(|&&kind| kind != 0) {
        if kind != 1 && wanted::option(of, kind).is_none() {
            return false;
        }
        at += if kind == 1 { 1 } else { bytes.get(at + 1).map_or(1, |&len| len.max(2).into()) };
    }
    true
}

/// Whether a quotation of the kernel's is one of manylane's, but for the quoted options and what follows from them: the
/// header's checksum, and how much fits.
pub fn is_quoted_but_for_options(case: &Case<'_>, kernel: &[u8], ours: &[u8]) -> bool {
    let len = v4(case).map_or(20, |header| header.len);
    let sides = kernel.iter().zip(ours).enumerate();
    let same =
        |(at, (kernel, ours))| kernel == ours || matches!(at, 10 | 11) || (20..len).contains(&at);
    sides.into_iter().all(same) && kernel.len() <= ours.len() && kernel.len() + 40 >= ours.len()
}

/// Whether options differ only where the time stands, and in the address in front of it: Linux may write the one by
/// which it reaches the sender.
pub fn is_but_for_times(case: &Case<'_>, kernel: &[u8], ours: &[u8]) -> bool {
    let mut kernel = kernel.to_vec();
    let way = v4(case).and_then(|header| plan::next_hop(header.source.into()));
    let near = way.map_or(case.shot.side, |(side, _)| side).router_v4().octets();
    for wanted in wanted::wanted(case.shot).iter().take(1) {
        for place in wanted.times.iter().map(|at| at - 34) {
            if kernel.get(place - 4..place) == Some(&near) {
                kernel[place - 4..place].copy_from_slice(&ours[place - 4..place]);
            }
            if kernel.len() == ours.len() {
                kernel[place..place + 4].copy_from_slice(&ours[place..place + 4]);
            }
        }
    }
    kernel == ours || kernel == cleared(ours)
}

/// Whether the packet has two options of a kind.
pub fn has_twice(case: &Case<'_>, kind: u8) -> bool {
    let Some(options) = options(case) else { return false };
    let Some(at) = wanted::option(options, kind) else { return false };
    let behind = at + options.get(at + 1).map_or(1, |&len| usize::from(len.max(2)));
    options.get(behind..).is_some_and(|rest| wanted::option(rest, kind).is_some())
}

/// Whether the packet is a later fragment of another.
pub fn is_later(case: &Case<'_>) -> bool {
    v4(case).is_some_and(|header| header.offset > 0)
}

/// Whether the source is what differs, and the kernel's is this.
pub fn kernel_speaks_from(difference: &Difference, source: Ipv6Addr) -> bool {
    matches!(field(difference), Some(("source", kernel, _)) if kernel == source.octets())
}

/// Whether the packet is for others: other stations, or groups beyond the link.
pub fn is_transit(case: &Case<'_>) -> bool {
    ends(case).is_some_and(|(_, to)| match to {
        IpAddr::V6(to) if to.is_multicast() => to.octets()[1] > 2,
        to => plan::way(to) != Way::Router,
    })
}
