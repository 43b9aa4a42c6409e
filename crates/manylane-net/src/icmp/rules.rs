//! Which packets are never answered with an error: two errors about each other would never end, and an error about a
//! multicast would be sent by every receiver at once.
//!
//! | never about                            | RFC 1812 §4.3.2.7 | RFC 4443 §2.4 e       |
//! |----------------------------------------|-------------------|-----------------------|
//! | an ICMP error                          | yes               | 1 (and 2, redirects)  |
//! | a packet to multicast or broadcast     | yes               | 3, with exceptions    |
//! | a link-layer broadcast or multicast    | yes               | 4, 5, with exceptions |
//! | a source that is not a single host     | yes               | 6                     |
//! | a later fragment                       | yes               | no rule               |
//! | a header that fails validation         | yes               | (does not get here)   |
//!
//! The exceptions: *packet too big* is sent about multicast, or path MTU discovery would not work for it; and an error
//! that an unknown option demands in any case, by its high bits 10 (RFC 8200 §4.2).
//!
//! What cannot be read far enough to know that it is no error is not answered. Whether a destination
//! is the broadcast address of a connected network only the caller knows.

use super::ErrorKind;
use crate::wire::ip::Fragment;
use crate::wire::{icmp, icmpv6, ipv4, ipv6, protocol};

/// Whether this IPv4 packet may be answered with an ICMP error (RFC 1812 §4.3.2.7). Its front will do:
/// whether it is whole, the caller has found out before.
///
/// `was_link_broadcast`: the packet was received in a link-layer broadcast or multicast.
pub fn may_answer_v4(packet: &[u8], was_link_broadcast: bool) -> bool {
    let Some(view) = ipv4::View::quoted(packet) else { return false };
    let (source, destination) = (view.source(), view.destination());
    let may_be_error = view.protocol() == protocol::ICMP && may_be_v4_error(view.payload());
    !was_link_broadcast
        && !destination.is_multicast()
        && !destination.is_broadcast()
        && !ipv4::is_martian_source(source)
        && view.fragment() != Fragment::Later
        && !may_be_error
}

/// Whether this IPv6 packet may be answered with this ICMPv6 error (RFC 4443 §2.4 e). Its front will do,
/// as in [`may_answer_v4`].
///
/// `was_link_broadcast`: the packet was received in a link-layer broadcast or multicast.
pub fn may_answer_v6(packet: &[u8], was_link_broadcast: bool, kind: ErrorKind) -> bool {
    let Some(view) = ipv6::View::quoted(packet) else { return false };
    let Some(transport) = view.chain().transport() else { return false };
    let was_group = was_link_broadcast || view.destination().is_multicast();
    let message = view.packet().get(transport.offset..).unwrap_or_default();
    // A later fragment has no type to look at.
    let may_be_error = transport.protocol == protocol::ICMPV6
        && (transport.fragment == Fragment::Later || may_be_v6_error(message));
    let of_groups =
        matches!(kind, ErrorKind::TooBig { .. } | ErrorKind::UnknownOption { of_groups: true, .. });
    (!was_group || of_groups) && !ipv6::is_martian_source(view.source()) && !may_be_error
}

/// An undefined type may be an error of tomorrow; only known queries are surely none.
fn may_be_v4_error(message: &[u8]) -> bool {
    message.first().is_none_or(|&kind| !icmp::is_query(kind))
}

/// Here the type says for all times which it is (RFC 4443 §2.1). A redirect is no error and is
/// treated as one.
fn may_be_v6_error(message: &[u8]) -> bool {
    message.first().is_none_or(|&kind| icmpv6::is_error(kind) || kind == icmpv6::kind::REDIRECT)
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use super::*;

    const TIME_EXCEEDED: ErrorKind = ErrorKind::TimeExceeded;
    const TOO_BIG: ErrorKind = ErrorKind::TooBig { mtu: 1280 };

    #[test]
    fn the_never_rules_of_rfc_1812_hold() {
        let udp = v4("192.0.2.1", "198.51.100.1", protocol::UDP, 0);
        assert!(may_answer_v4(&udp, false));
        assert!(!may_answer_v4(&udp, true), "a link broadcast");
        for destination in ["224.0.0.1", "239.1.2.3", "255.255.255.255"] {
            let packet = v4("192.0.2.1", destination, protocol::UDP, 0);
            assert!(!may_answer_v4(&packet, false), "to {destination}");
        }
        for source in
            ["0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"]
        {
            let packet = v4(source, "198.51.100.1", protocol::UDP, 0);
            assert!(!may_answer_v4(&packet, false), "from {source}");
        }
        for (word, expected) in
            [(0x2000u16, true), (0x2001, false), (0x0001, false), (0x4000, true)]
        {
            let mut fragment = udp.clone();
            fragment[6..8].copy_from_slice(&word.to_be_bytes());
            assert_eq!(may_answer_v4(&fragment, false), expected, "{word:04x}");
        }
        for kind in 0..=255 {
            let packet = v4("192.0.2.1", "198.51.100.1", protocol::ICMP, kind);
            assert_eq!(may_answer_v4(&packet, false), icmp::is_query(kind), "ICMP type {kind}");
        }
        assert!(may_answer_v4(&udp[..27], false), "the front of a packet");
        assert!(!may_answer_v4(&udp[..19], false), "a truncated header");
        let mut empty = v4("192.0.2.1", "198.51.100.1", protocol::ICMP, 8);
        empty.truncate(20);
        empty[3] = 20;
        assert!(!may_answer_v4(&empty, false), "ICMP without a type");
    }

    #[test]
    fn the_never_rules_of_rfc_4443_hold() {
        let udp = v6("2001:db8::1", "2001:db8:1::1", protocol::UDP, &[0; 8]);
        assert!(may_answer_v6(&udp, false, TIME_EXCEEDED));
        assert!(!may_answer_v6(&udp, true, TIME_EXCEEDED), "a link multicast");
        for source in ["::", "::1", "ff02::1", "::ffff:192.0.2.1"] {
            let packet = v6(source, "2001:db8:1::1", protocol::UDP, &[0; 8]);
            assert!(!may_answer_v6(&packet, false, TOO_BIG), "from {source}");
        }
        for kind in 0..=255 {
            let packet = v6("2001:db8::1", "2001:db8:1::1", protocol::ICMPV6, &[kind; 8]);
            let expected = kind >= 128 && kind != 137;
            assert_eq!(may_answer_v6(&packet, false, TOO_BIG), expected, "ICMPv6 type {kind}");
        }
        let packet = v6("2001:db8::1", "2001:db8:1::1", protocol::ICMPV6, &[]);
        assert!(!may_answer_v6(&packet, false, TOO_BIG), "ICMPv6 without a type");
        assert!(may_answer_v6(&udp[..47], false, TOO_BIG), "the front of a packet");
        assert!(!may_answer_v6(&udp[..39], false, TOO_BIG), "a truncated header");
    }

    /// RFC 4443 §2.4 e.3: else path MTU discovery would not work for multicast.
    #[test]
    fn packet_too_big_is_sent_about_multicast_too() {
        let packet = v6("2001:db8::1", "ff0e::1", protocol::UDP, &[0; 8]);
        assert!(may_answer_v6(&packet, true, TOO_BIG));
        assert!(!may_answer_v6(&packet, true, TIME_EXCEEDED));
        assert!(!may_answer_v6(&packet, false, ErrorKind::NetworkUnreachable));
        for (of_groups, expected) in [(true, true), (false, false)] {
            let kind = ErrorKind::UnknownOption { pointer: 42, of_groups };
            assert_eq!(may_answer_v6(&packet, true, kind), expected, "as the option says");
        }
        let error = v6("2001:db8::1", "ff0e::1", protocol::ICMPV6, &[1; 8]);
        assert!(!may_answer_v6(&error, true, TOO_BIG), "an error stays an error");
    }

    #[test]
    fn an_error_behind_extension_headers_is_found() {
        let options = [protocol::ICMPV6, 0, 1, 4, 0, 0, 0, 0];
        let hidden = [options, [3; 8]].concat();
        let packet = v6("2001:db8::1", "2001:db8:1::1", protocol::DESTINATION_OPTIONS, &hidden);
        assert!(!may_answer_v6(&packet, false, TIME_EXCEEDED));
        let ping = [options, [128; 8]].concat();
        let packet = v6("2001:db8::1", "2001:db8:1::1", protocol::DESTINATION_OPTIONS, &ping);
        assert!(may_answer_v6(&packet, false, TIME_EXCEEDED));
        let endless = [protocol::DESTINATION_OPTIONS, 0, 1, 4, 0, 0, 0, 0].repeat(20);
        let packet = v6("2001:db8::1", "2001:db8:1::1", protocol::DESTINATION_OPTIONS, &endless);
        assert!(!may_answer_v6(&packet, false, TIME_EXCEEDED), "what cannot be followed");
    }

    #[test]
    fn later_ipv6_fragments_are_answered_unless_they_may_be_errors() {
        for (protocol, expected) in [(protocol::UDP, true), (protocol::ICMPV6, false)] {
            let payload = [[protocol, 0, 0, 8, 0, 0, 0, 1], [128; 8]].concat();
            let packet = v6("2001:db8::1", "2001:db8:1::1", protocol::FRAGMENT, &payload);
            assert_eq!(may_answer_v6(&packet, false, TOO_BIG), expected);
        }
    }

    fn v4(source: &str, destination: &str, protocol: u8, kind: u8) -> Vec<u8> {
        let mut packet = vec![kind; 28];
        let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
        ipv4::Header {
            tos: 0,
            identification: 0,
            dont_fragment: false,
            ttl: 1,
            protocol,
            source,
            destination,
        }
        .emit(&mut packet, 8)
        .unwrap();
        packet
    }

    fn v6(source: &str, destination: &str, next_header: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = [&[0; 40], payload].concat();
        let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
        ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            next_header,
            hop_limit: 1,
            source,
            destination,
        }
        .emit(&mut packet, payload.len())
        .unwrap();
        packet
    }
}
