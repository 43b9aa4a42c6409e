//! A note and its route become a sample, or a discarded packet.

use std::net::IpAddr;

use manylane_export::sflow::{
    DiscardReason, DiscardedPacket, FlowSample, Header, Output, Router, Switch, Translation,
};
use manylane_net::transit::Verdict;

use crate::accelerator::worker::WorkerDrop;
use crate::programs::{SampledBy, SflowCount, SflowNote};
use manylane_mirror::{RouteEnd, RouteQuery, SampledRoute};

/// What the route of a noted packet depends on; `None` without an IP header.
pub(super) fn question(note: &SflowNote, ingress: u32) -> Option<RouteQuery> {
    let (source, destination) = addresses(&note.header)?;
    let destination = note.translated.map_or(destination, |[_, (new, _)]| new);
    Some(RouteQuery { source, destination, ingress, egress: note.egress })
}

/// The sample of a note. `ingress` is the port's interface.
pub(super) fn flow(
    note: &SflowNote,
    ingress: u32,
    route: Option<&SampledRoute>,
    count: SflowCount,
) -> FlowSample {
    let router = route.filter(|route| route.end == RouteEnd::Host).zip(question(note, ingress));
    let router = router.map(|(route, question)| Router {
        next_hop: route.next_hop.unwrap_or_else(|| unspecified(question.destination)),
        source_len: route.source_len,
        destination_len: route.destination_len,
    });
    let [from, to] = route.map_or([None; 2], |route| route.vlans);
    let from = match note.tag {
        Some((_, tag)) => (u32::from(tag & 0xfff), u32::from(tag >> 13)),
        None => (from.unwrap_or(0).into(), 0),
    };
    let switch = Switch { from, to: (to.unwrap_or(0).into(), 0) };
    let translation =
        note.translated.map(|[source, destination]| Translation { source, destination });
    FlowSample {
        input: ingress,
        output: match note.egress {
            Some((interface, _)) => Output::Interface(interface),
            None => reason(note, route).map_or(Output::Unknown, Output::Discarded),
        },
        rate: note.rate,
        pool: count.pool as u32,
        drops: count.lost as u32,
        header: header(note),
        switch: (switch != Switch::default()).then_some(switch),
        router,
        translation,
    }
}

/// The discarded packet of a note; `None` where the kernel may do something else with it.
pub(super) fn discarded(
    note: &SflowNote,
    ingress: u32,
    route: Option<&SampledRoute>,
    unreported: u64,
) -> Option<DiscardedPacket> {
    let reason = reason(note, route)?;
    Some(DiscardedPacket { input: ingress, reason, drops: unreported as u32, header: header(note) })
}

/// The note of a packet that a worker dropped for a verdict; the worker has decided as a program does.
pub(super) fn of_worker(dropped: &WorkerDrop, verdict: Verdict) -> SflowNote {
    SflowNote {
        port: dropped.port,
        verdict: verdict as u8,
        by: SampledBy::Workers,
        len: dropped.len,
        packets: 1,
        samples: 0,
        is_report: true,
        rate: 0,
        interface: 0,
        tag: None,
        egress: None,
        is_tracked: false,
        translated: None,
        header: dropped.header().to_vec(),
    }
}

/// A packet for which a worker's egress port had no place.
pub(super) fn unsent(dropped: &WorkerDrop, ingress: u32, unreported: u64) -> DiscardedPacket {
    let bytes = dropped.header().to_vec();
    let header = Header { bytes, frame_len: dropped.len + CHECKSUM, stripped: CHECKSUM };
    let reason = DiscardReason::NoBufferSpace;
    DiscardedPacket { input: ingress, reason, drops: unreported as u32, header }
}

/// Why the kernel discards a packet that is left to it; `None` where the kernel may forward or deliver the packet.
fn reason(note: &SflowNote, route: Option<&SampledRoute>) -> Option<DiscardReason> {
    let end = route.map(|route| route.end);
    let verdict = Verdict::ALL.iter().find(|&&verdict| verdict as u8 == note.verdict)?;
    match (verdict, end) {
        (Verdict::BadChecksum, _) => Some(DiscardReason::HeaderCorrupted),
        (Verdict::NoRoute, _) => Some(DiscardReason::DestinationUnknown),
        (Verdict::Nowhere, Some(RouteEnd::Blackhole)) => Some(DiscardReason::Blackhole),
        (Verdict::Nowhere, Some(RouteEnd::Prohibit)) => Some(DiscardReason::Prohibited),
        (Verdict::Nowhere, Some(RouteEnd::Unreachable)) => Some(DiscardReason::HostUnreachable),
        (Verdict::Nowhere, _) => Some(DiscardReason::NetUnreachable),
        // For this host the last hop is no end.
        (Verdict::Ttl, Some(RouteEnd::Host)) => Some(DiscardReason::TtlExceeded),
        (Verdict::TooBig, _) if !may_fragment(&note.header) => Some(DiscardReason::TooBig),
        _ => None,
    }
}

/// The verdicts that [`reason`] knows of.
pub(super) const DISCARDED: [u8; 5] = [
    Verdict::BadChecksum as u8,
    Verdict::NoRoute as u8,
    Verdict::Nowhere as u8,
    Verdict::Ttl as u8,
    Verdict::TooBig as u8,
];

/// The header as received: with the tag that the kernel took off, and the length of one frame on the wire.
fn header(note: &SflowNote) -> Header {
    let mut bytes = note.header.clone();
    let mut frame_len = wire_len(note) + CHECKSUM;
    if let Some((kind, tag)) = note.tag
        && bytes.len() >= ADDRESSES
    {
        let tag: Vec<u8> = [kind, tag].iter().flat_map(|half| half.to_be_bytes()).collect();
        bytes.splice(ADDRESSES..ADDRESSES, tag);
        bytes.truncate(HEADER_MAX);
        frame_len += 4;
    }
    Header { bytes, frame_len, stripped: CHECKSUM }
}

/// Bytes of a frame on the wire. A packet of segments is as many frames as segments, each with headers of its own.
pub(super) fn wire_len(note: &SflowNote) -> u32 {
    if note.packets <= 1 {
        return note.len;
    }
    let headers = headers_len(&note.header).min(note.len);
    headers + (note.len - headers).div_ceil(note.packets)
}

/// Bytes in front of a TCP or UDP payload, without IPv6's extension headers.
fn headers_len(frame: &[u8]) -> u32 {
    let byte = |at: usize| u32::from(frame.get(at).copied().unwrap_or(0));
    let (ip, protocol) = match ether_type(frame) {
        IPV4 => ((byte(14) & 0xf) * 4, byte(23)),
        IPV6 => (40, byte(20)),
        _ => (0, 0),
    };
    let transport = match protocol {
        TCP => (byte((14 + ip + 12) as usize) >> 4) * 4,
        UDP => 8,
        _ => 0,
    };
    14 + ip + transport
}

fn ether_type(frame: &[u8]) -> u16 {
    frame.get(12..14).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// Source and destination of an IP packet behind a plain Ethernet header.
fn addresses(frame: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let v4 = |at: usize| Some(IpAddr::from(*frame.get(at..)?.first_chunk::<4>()?));
    let v6 = |at: usize| Some(IpAddr::from(*frame.get(at..)?.first_chunk::<16>()?));
    match ether_type(frame) {
        IPV4 => Some((v4(26)?, v4(30)?)),
        IPV6 => Some((v6(22)?, v6(38)?)),
        _ => None,
    }
}

/// Whether the kernel cuts a packet that is too large, instead of refusing it: IPv4 without DF.
fn may_fragment(frame: &[u8]) -> bool {
    ether_type(frame) == IPV4 && frame.get(20).is_some_and(|flags| flags & 0x40 == 0)
}

fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED),
    }
}

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TCP: u32 = 6;
const UDP: u32 = 17;
/// Bytes of both Ethernet addresses.
const ADDRESSES: usize = 12;
/// Ethernet's checksum, which no host sees, and the standard counts.
const CHECKSUM: u32 = 4;
/// Bytes of a header that a sample shows.
const HEADER_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_worker_drops_has_the_reason_of_its_verdict_or_of_a_full_port() {
        let frame = [7; 60];
        let header = Header { bytes: frame.to_vec(), frame_len: 64, stripped: 4 };
        for (verdict, reason) in [
            (Verdict::NoRoute, Some(DiscardReason::DestinationUnknown)),
            (Verdict::BadChecksum, Some(DiscardReason::HeaderCorrupted)),
            (Verdict::NoFlow, None),
        ] {
            let dropped = WorkerDrop::new(1, Some(verdict), &frame);
            let packet = discarded(&of_worker(&dropped, verdict), 3, None, 9);
            let drops = 9;
            let header = header.clone();
            let expected = reason.map(|reason| DiscardedPacket { input: 3, reason, drops, header });
            assert_eq!(packet, expected, "{verdict:?}");
        }
        let unsent = unsent(&WorkerDrop::new(1, None, &frame), 3, 9);
        assert_eq!((unsent.reason, unsent.input), (DiscardReason::NoBufferSpace, 3));
        assert_eq!((unsent.header, unsent.drops), (header, 9));
    }
}
