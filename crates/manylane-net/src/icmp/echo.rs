//! An echo request for us becomes its reply, in place.
//!
//! | refused                                   | why                                                    |
//! |-------------------------------------------|--------------------------------------------------------|
//! | a wrong checksum, another type or code    | it is no valid request                                 |
//! | a fragment                                | we do not reassemble, and would answer for a part      |
//! | to multicast or broadcast                 | the reply would come from a group (RFC 1122 §3.2.2.6)  |
//! | from a martian                            | the reply would go nowhere                             |
//! | a source route, a malformed option        | it would have to be reversed (RFC 1122 §3.2.2.6)       |
//! | IPv6 extension headers                    | the caller that reads them takes them out before       |
//!
//! The sums change by type, TTL, identification and flags; not by the addresses, since a sum does not
//! care which of two words comes first. IPv6's pseudo-header keeps its sum for the same reason.
//!
//! The reply is a packet of ours: it may be cut on its way, whatever the request's flags were (RFC 791
//! §3.1). So it has an identification of ours, since that of a request that must not be cut can be
//! anything (RFC 6864 §4.1).

use std::net::Ipv6Addr;

use super::TTL;
use crate::wire::checksum::update16;
use crate::wire::ip::Fragment;
use crate::wire::{icmp, icmpv6, ipv4, ipv6, protocol};

/// Turns an ICMP echo request, the packet and nothing in front of it, into the reply.
///
/// `None`, and nothing written, if it is none that we answer. Whether it is for us, and its header
/// checksum right, the caller has found out before. `identification` is the reply's.
pub fn echo_reply_v4(packet: &mut [u8], identification: u16) -> Option<()> {
    let view = ipv4::View::checked(packet)?;
    if !icmp::View::checked(view.payload())?.has_valid_checksum() {
        return None;
    }
    turn_echo_v4(packet, identification)
}

/// As [`echo_reply_v4`], for a caller that has found out that length and checksum of the message are right: then the
/// front of the packet will do, with its headers.
pub fn turn_echo_v4(packet: &mut [u8], identification: u16) -> Option<()> {
    let view = ipv4::View::quoted(packet)?;
    let message = icmp::View::checked(view.payload())?;
    let (source, destination) = (view.source(), view.destination());
    let is_ours = view.protocol() == protocol::ICMP
        && view.fragment() == Fragment::None
        && view.options() == ipv4::Options::Harmless
        && !ipv4::is_martian_source(source)
        && !destination.is_multicast()
        && !destination.is_broadcast()
        && (message.kind(), message.code()) == (icmp::kind::ECHO_REQUEST, 0);
    if !is_ours {
        return None;
    }
    let header_sum = with_new_ttl(view.checksum(), view.ttl(), view.protocol());
    let header_sum = update16(header_sum, view.identification(), identification);
    let header_sum = update16(header_sum, view.flags_and_offset(), 0);
    let message_sum = with_new_kind(message.checksum(), message.kind(), icmp::kind::ECHO_REPLY);
    let message_at = view.header_len();

    let (header, message) = packet.split_at_mut_checked(message_at)?;
    let header: &mut [u8; ipv4::HEADER_LEN] = header.first_chunk_mut()?;
    let message: &mut [u8; icmp::HEADER_LEN] = message.first_chunk_mut()?;
    header[4..6].copy_from_slice(&identification.to_be_bytes());
    header[6..8].fill(0);
    header[8] = TTL;
    header[10..12].copy_from_slice(&header_sum.to_be_bytes());
    header[12..16].copy_from_slice(&destination.octets());
    header[16..].copy_from_slice(&source.octets());
    message[0] = icmp::kind::ECHO_REPLY;
    message[2..4].copy_from_slice(&message_sum.to_be_bytes());
    Some(())
}

/// Turns an ICMPv6 echo request, the packet and nothing in front of it, into the reply.
///
/// `None`, and nothing written, if it is none that we answer. Whether it is for us the caller has
/// found out before.
pub fn echo_reply_v6(packet: &mut [u8]) -> Option<()> {
    let view = ipv6::View::checked(packet)?;
    let message = icmpv6::View::checked(view.payload())?;
    if !message.has_valid_checksum(view.source(), view.destination()) {
        return None;
    }
    turn_echo_v6(packet)
}

/// As [`echo_reply_v6`], for a caller that has found out that length and checksum of the message are right: then the
/// front of the packet will do, with its headers.
pub fn turn_echo_v6(packet: &mut [u8]) -> Option<()> {
    let view = ipv6::View::quoted(packet)?;
    let message = icmpv6::View::checked(view.payload())?;
    let (source, destination) = (view.source(), view.destination());
    let is_ours = view.next_header() == protocol::ICMPV6
        && !ipv6::is_martian_source(source)
        && !destination.is_multicast()
        && (message.kind(), message.code()) == (icmpv6::kind::ECHO_REQUEST, 0);
    if !is_ours {
        return None;
    }
    let message_sum = with_new_kind(message.checksum(), message.kind(), icmpv6::kind::ECHO_REPLY);

    let (header, message) = packet.split_first_chunk_mut::<{ ipv6::HEADER_LEN }>()?;
    let message: &mut [u8; icmpv6::HEADER_LEN] = message.first_chunk_mut()?;
    header[7] = TTL;
    header[8..24].copy_from_slice(&destination.octets());
    header[24..].copy_from_slice(&source.octets());
    message[0] = icmpv6::kind::ECHO_REPLY;
    message[2..4].copy_from_slice(&message_sum.to_be_bytes());
    Some(())
}

/// Gives an ICMPv6 packet without extension headers another source.
///
/// `None`, and nothing written, if it is none.
pub fn set_source_v6(packet: &mut [u8], source: Ipv6Addr) -> Option<()> {
    let view = ipv6::View::quoted(packet).filter(|view| view.next_header() == protocol::ICMPV6)?;
    let (old, new) = (view.source().segments(), source.segments());
    let sum = icmpv6::View::checked(view.payload())?.checksum();
    let sum = old.into_iter().zip(new).fold(sum, |sum, (old, new)| update16(sum, old, new));
    packet[8..24].copy_from_slice(&source.octets());
    packet[ipv6::HEADER_LEN + 2..][..2].copy_from_slice(&sum.to_be_bytes());
    Some(())
}

/// TTL and protocol share a word.
fn with_new_ttl(checksum: u16, ttl: u8, protocol: u8) -> u16 {
    update16(checksum, u16::from_be_bytes([ttl, protocol]), u16::from_be_bytes([TTL, protocol]))
}

/// Type and code, which is 0, share a word.
fn with_new_kind(checksum: u16, old: u8, new: u8) -> u16 {
    update16(checksum, u16::from_be_bytes([old, 0]), u16::from_be_bytes([new, 0]))
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::checksum::Sum;

    #[test]
    fn options_that_mean_nothing_to_us_stay() {
        let mut packet = v4(b"abc", 9);
        packet.splice(20..20, [148, 4, 0, 0]); // Router alert.
        packet[0] = 0x46;
        packet[3] += 4;
        resum(&mut packet, 24);
        assert_eq!(echo_reply_v4(&mut packet, 77), Some(()));
        assert_eq!(packet[20..24], [148, 4, 0, 0]);
        assert!(ipv4::View::checked(&packet).unwrap().has_valid_checksum());
    }

    /// One valid request, and each reason to refuse it.
    #[test]
    fn what_is_no_request_for_one_host_is_refused() {
        let good = v4(b"abcd", 9);
        assert_eq!(echo_reply_v4(&mut good.clone(), 77), Some(()));
        for (what, at, bytes) in [
            ("a reply", 20, &[0][..]),
            ("another code", 21, &[1]),
            ("a damaged message", 31, &[0xee]),
            ("a first fragment", 6, &[0x20]),
            ("a later fragment", 7, &[1]),
            ("UDP", 9, &[17]),
            ("from multicast", 12, &[224]),
            ("from nobody", 12, &[0, 0, 0, 0]),
            ("from loopback", 12, &[127]),
            ("to multicast", 16, &[224]),
            ("to broadcast", 16, &[255, 255, 255, 255]),
            ("a long header", 0, &[0x48]),
        ] {
            let mut bad = good.clone();
            bad[at..at + bytes.len()].copy_from_slice(bytes);
            if at < 20 || at == 21 {
                bad[22..24].fill(0);
                let checksum = Sum::of(&bad[20..]).finish();
                bad[22..24].copy_from_slice(&checksum.to_be_bytes());
            }
            let before = bad.clone();
            assert_eq!(echo_reply_v4(&mut bad, 77), None, "{what}");
            assert_eq!(bad, before, "{what}: written to");
        }
        let mut routed = good;
        routed.splice(20..20, [131, 3, 4, 0]);
        routed[0] = 0x46;
        routed[3] += 4;
        assert_eq!(echo_reply_v4(&mut routed, 77), None, "a source route");
    }

    #[test]
    fn what_is_no_ipv6_request_for_one_node_is_refused() {
        let good = v6(b"abcd", 9);
        assert_eq!(echo_reply_v6(&mut good.clone()), Some(()));
        for (what, at, bytes) in [
            ("a reply", 40, &[129][..]),
            ("another code", 41, &[1]),
            ("a damaged message", 51, &[0xee]),
            ("a fragment", 6, &[44]),
            ("options", 6, &[0]),
            ("from multicast", 8, &[0xff]),
            ("from nobody", 8, &[0; 16]),
            ("to multicast", 24, &[0xff]),
        ] {
            let mut bad = good.clone();
            bad[at..at + bytes.len()].copy_from_slice(bytes);
            if at == 41 || (8..40).contains(&at) {
                resum6(&mut bad);
            }
            let before = bad.clone();
            assert_eq!(echo_reply_v6(&mut bad), None, "{what}");
            assert_eq!(bad, before, "{what}: written to");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_reply_is_the_request_turned_round(
            data in prop::collection::vec(any::<u8>(), 0..100), ttl: u8, padding in 0..10usize,
        ) {
            let request = v4(&data, ttl);
            let mut reply = [&request[..], &vec![0xaa; padding]].concat();
            prop_assert_eq!(echo_reply_v4(&mut reply, 77), Some(()));
            let (asked, told) = (ipv4::View::checked(&request).unwrap(), ipv4::View::checked(&reply).unwrap());
            prop_assert_eq!((told.source(), told.destination()), (asked.destination(), asked.source()));
            prop_assert_eq!(told.ttl(), 64);
            prop_assert!(told.has_valid_checksum());
            let message = icmp::View::checked(told.payload()).unwrap();
            prop_assert_eq!((message.kind(), message.code()), (0, 0));
            prop_assert!(message.has_valid_checksum());
            prop_assert_eq!(message.echo(), icmp::View::checked(asked.payload()).unwrap().echo());

            let request = v6(&data, ttl);
            let mut reply = [&request[..], &vec![0xaa; padding]].concat();
            prop_assert_eq!(echo_reply_v6(&mut reply), Some(()));
            let (asked, told) = (ipv6::View::checked(&request).unwrap(), ipv6::View::checked(&reply).unwrap());
            prop_assert_eq!((told.source(), told.destination()), (asked.destination(), asked.source()));
            prop_assert_eq!(told.hop_limit(), 64);
            let message = icmpv6::View::checked(told.payload()).unwrap();
            prop_assert_eq!((message.kind(), message.code()), (129, 0));
            prop_assert!(message.has_valid_checksum(told.source(), told.destination()));
            prop_assert_eq!(message.echo(), icmpv6::View::checked(asked.payload()).unwrap().echo());
        }
    }

    fn v4(data: &[u8], ttl: u8) -> Vec<u8> {
        let mut packet = [&[0; 28], data].concat();
        let len = packet.len() - 20;
        icmp::emit(&mut packet[20..], icmp::kind::ECHO_REQUEST, 0, 0x0102_0003).unwrap();
        ipv4::Header {
            tos: 0,
            identification: 5,
            dont_fragment: false,
            ttl,
            protocol: protocol::ICMP,
            source: [192, 0, 2, 1].into(),
            destination: [198, 51, 100, 1].into(),
        }
        .emit(&mut packet, len)
        .unwrap();
        packet
    }

    fn v6(data: &[u8], hop_limit: u8) -> Vec<u8> {
        let mut packet = [&[0; 48], data].concat();
        let len = packet.len() - 40;
        ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            next_header: protocol::ICMPV6,
            hop_limit,
            source: "2001:db8::1".parse().unwrap(),
            destination: "2001:db8:1::1".parse().unwrap(),
        }
        .emit(&mut packet, len)
        .unwrap();
        packet[40..48].copy_from_slice(&[128, 0, 0, 0, 1, 2, 0, 3]);
        resum6(&mut packet);
        packet
    }

    fn resum(packet: &mut [u8], header_len: usize) {
        packet[10..12].fill(0);
        let checksum = Sum::of(&packet[..header_len]).finish();
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    }

    fn resum6(packet: &mut [u8]) {
        let view = ipv6::View::checked(packet).unwrap();
        let (source, destination) = (view.source(), view.destination());
        let message = icmpv6::View::checked(view.payload()).unwrap();
        let (kind, code, word) = (message.kind(), message.code(), message.word());
        icmpv6::emit(&mut packet[40..], kind, code, word, source, destination).unwrap();
    }
}
