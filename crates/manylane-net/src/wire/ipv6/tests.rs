use proptest::prelude::*;

use super::protocol::{
    AUTHENTICATION, DESTINATION_OPTIONS, ESP, FRAGMENT, HOP_BY_HOP, NO_NEXT_HEADER, ROUTING, TCP,
    UDP,
};
use super::*;

const HEADER: Header = Header {
    traffic_class: 0,
    flow_label: 0,
    next_header: UDP,
    hop_limit: 64,
    source: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
    destination: Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1),
};

#[test]
fn lengths_that_do_not_fit_are_refused() {
    let good = packet(UDP, &[&[0; 8]]);
    assert!(View::checked(&good).is_some());
    for len in 0..good.len() {
        assert!(View::checked(&good[..len]).is_none(), "cut to {len}");
    }
    for (at, value) in [(0, 0x45), (0, 0x70), (5, 9), (4, 1)] {
        let mut bad = good.clone();
        bad[at] = value;
        assert!(View::checked(&bad).is_none(), "byte {at} = {value:02x}");
    }
    assert_eq!(View::quoted(&good[..44]).unwrap().payload().len(), 4);
    assert!(View::quoted(&good[..39]).is_none());
}

#[test]
fn padding_is_no_payload() {
    let mut bytes = packet(UDP, &[&[1; 8]]);
    bytes.extend([0xaa; 6]);
    assert_eq!(View::checked(&bytes).unwrap().payload(), &[1; 8]);
}

#[test]
fn a_packet_that_lacks_a_length_is_objected_to() {
    let silent = Some(Objection::Silent);
    let length = |pointer| Some(Objection::Length { pointer });
    let jumbo = |len: u32| [&[0xc2, 4], &len.to_be_bytes()[..]].concat();
    for (what, list, expected) in [
        ("a length in the option that the header could have", jumbo(65_535), length(44)),
        ("behind padding", [&[0, 0, 1, 4, 0, 0, 0, 0], &jumbo(8)[..]].concat(), length(52)),
        ("more than any frame holds", jumbo(65_536), silent),
        ("an option of another length", vec![0xc2, 3, 0, 0, 0, 0], silent),
        ("an option that is cut", vec![0, 0, 0, 0, 0xc2, 4], silent),
        ("no such option", vec![1, 4, 0, 0, 0, 0], length(4)),
        ("options that lead out of their header", vec![5, 200, 0, 0, 0, 0], length(4)),
    ] {
        let mut bytes = packet(HOP_BY_HOP, &[&options(UDP, &list), &[0; 8]]);
        assert_eq!(View::checked(&bytes).unwrap().length_objection(), None, "{what}: counted");
        bytes[4..6].fill(0);
        assert_eq!(View::quoted(&bytes).unwrap().length_objection(), expected, "{what}");
        assert_eq!(View::quoted(&bytes).unwrap().packet(), bytes, "{what}: cut");
    }
    let bare = packet(HOP_BY_HOP, &[]);
    assert_eq!(View::quoted(&bare).unwrap().length_objection(), silent, "no options");
    let none = packet(UDP, &[]);
    assert_eq!(View::quoted(&none).unwrap().length_objection(), None, "no payload");
}

/// The order RFC 8200 §4.1 recommends, all at once.
#[test]
fn a_full_chain_leads_to_its_transport() {
    let chain = walk_of(
        HOP_BY_HOP,
        &[
            &options(DESTINATION_OPTIONS, &[1, 4, 0, 0, 0, 0]),
            &options(ROUTING, &[1, 4, 0, 0, 0, 0]),
            &routing(FRAGMENT, 0),
            &fragment(AUTHENTICATION, 0, false),
            &[DESTINATION_OPTIONS, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &options(TCP, &[1, 4, 0, 0, 0, 0]),
            &[0; 20],
        ],
    );
    let offset = 40 + 8 + 8 + 24 + 8 + 12 + 8;
    let fragment = Fragment::Atomic;
    let expected = Transport { protocol: TCP, offset, fragment, final_addresses: true };
    assert_eq!(chain, Chain::Transport(expected));
}

#[test]
fn fragments_are_told_apart() {
    for (first_word, more, expected, protocol) in [
        (0, false, Fragment::Atomic, UDP),
        (0, true, Fragment::First, UDP),
        (8, true, Fragment::Later, DESTINATION_OPTIONS), // What follows is no header.
        (0xfff8, false, Fragment::Later, DESTINATION_OPTIONS),
    ] {
        let pad = options(UDP, &[1, 4, 0, 0, 0, 0]);
        let pieces: &[&[u8]] = &[&fragment(DESTINATION_OPTIONS, first_word, more), &pad, &[0; 8]];
        let transport = walk_of(FRAGMENT, pieces).transport().unwrap();
        assert_eq!((transport.fragment, transport.protocol), (expected, protocol));
    }
    let nested: &[&[u8]] = &[&fragment(FRAGMENT, 0, true), &fragment(UDP, 0, false)];
    assert_eq!(walk_of(FRAGMENT, nested).transport().unwrap().fragment, Fragment::First);
}

#[test]
fn who_rewrites_addresses_is_noticed() {
    let home = [201, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0];
    let long = [0; 22]; // More padding than we look through.
    for (first, header, expected) in [
        (ROUTING, routing(UDP, 0), true),
        (ROUTING, routing(UDP, 1), false),
        (DESTINATION_OPTIONS, options(UDP, &home), false),
        (DESTINATION_OPTIONS, options(UDP, &[4, 1, 4, 1, 1, 0]), true), // Tunnel limit.
        (DESTINATION_OPTIONS, options(UDP, &[4, 200, 0, 0, 0, 0]), false),
        (DESTINATION_OPTIONS, options(UDP, &long), false),
    ] {
        let transport = walk_of(first, &[&header, &[0; 8]]).transport().unwrap();
        assert_eq!(transport.protocol, UDP);
        assert_eq!(transport.final_addresses, expected, "{header:?}");
    }
}

#[test]
fn what_is_not_known_ends_the_chain() {
    for protocol in [NO_NEXT_HEADER, ESP, 135, 253] {
        let transport = walk_of(protocol, &[]).transport().unwrap();
        assert_eq!((transport.protocol, transport.offset), (protocol, HEADER_LEN));
    }
}

#[test]
fn chains_that_lead_out_of_the_packet_are_malformed() {
    let pad = options(HOP_BY_HOP, &[1, 4, 0, 0, 0, 0]);
    assert_eq!(walk_of(HOP_BY_HOP, &[]), Chain::Malformed);
    assert_eq!(walk_of(HOP_BY_HOP, &[&pad[..7]]), Chain::Malformed);
    assert_eq!(walk_of(ROUTING, &[&[UDP, 1, 0, 0, 0, 0, 0, 0]]), Chain::Malformed);
    assert_eq!(walk_of(AUTHENTICATION, &[&[UDP, 255, 0, 0, 0, 0, 0, 0]]), Chain::Malformed);
    let misplaced = walk_of(HOP_BY_HOP, &[&pad, &pad]).transport().expect("it ends there");
    assert_eq!((misplaced.protocol, misplaced.offset), (HOP_BY_HOP, 48), "not in front");
}

#[test]
fn a_long_chain_is_given_up() {
    let again = options(DESTINATION_OPTIONS, &[1, 4, 0, 0, 0, 0]);
    let last = options(UDP, &[1, 4, 0, 0, 0, 0]);
    let mut pieces = vec![&again[..]; EXTENSION_HEADERS_MAX - 1];
    pieces.push(&last);
    assert!(walk_of(DESTINATION_OPTIONS, &pieces).transport().is_some());
    pieces.insert(0, &again);
    assert_eq!(walk_of(DESTINATION_OPTIONS, &pieces), Chain::TooMany);
}

#[test]
fn martians_and_scopes_are_those_of_rfc_4291() {
    for (address, source, destination, link) in [
        ("::", true, true, false),
        ("::1", true, true, false),
        ("::2", false, false, false),
        ("::ffff:192.0.2.1", true, true, false),
        ("::fffe:192.0.2.1", false, false, false),
        ("64:ff9b::192.0.2.1", false, false, false),
        ("2001:db8::1", false, false, false),
        ("fc00::1", false, false, false),
        ("fe80::1", false, false, true),
        ("febf::1", false, false, true),
        ("fec0::1", false, false, false),
        ("ff00::1", true, true, true),
        ("ff01::1", true, true, true),
        ("ff11::1", true, true, true),
        ("ff02::1", true, false, true),
        ("ff05::2", true, false, false),
        ("ff0e::1", true, false, false),
    ] {
        let parsed: Ipv6Addr = address.parse().unwrap();
        assert_eq!(is_martian_source(parsed), source, "from {address}");
        assert_eq!(is_martian_destination(parsed), destination, "to {address}");
        assert_eq!(is_link_scoped(parsed), link, "scope of {address}");
    }
}

#[test]
fn the_solicited_node_group_keeps_24_bits() {
    let group = solicited_node("4037::01:800:200e:8c6c".parse().unwrap());
    assert_eq!(group, "ff02::1:ff0e:8c6c".parse::<Ipv6Addr>().unwrap()); // RFC 4291's example.
}

#[test]
fn nothing_is_written_where_it_does_not_fit() {
    assert_eq!(HEADER.emit(&mut [0; 39], 0), None);
    assert_eq!(HEADER.emit(&mut [0; 40], 65536), None);
    assert_eq!(HEADER.emit(&mut [0; 40], 65535), Some(40));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_emitted_is_read_back(
        traffic_class: u8, flow_label in 0..1u32 << 20, next_header: u8, hop_limit: u8,
        source: [u8; 16], destination: [u8; 16], payload in 0..100usize,
    ) {
        let (source, destination) = (source.into(), destination.into());
        let header =
            Header { traffic_class, flow_label, next_header, hop_limit, source, destination };
        let mut buf = [0xee; 150];
        prop_assert_eq!(header.emit(&mut buf, payload), Some(40));
        let view = View::checked(&buf).unwrap();
        prop_assert_eq!(view.payload().len(), payload);
        prop_assert_eq!(usize::from(view.payload_len()), payload);
        let read = Header {
            traffic_class: view.traffic_class(),
            flow_label: view.flow_label(),
            next_header: view.next_header(),
            hop_limit: view.hop_limit(),
            source: view.source(),
            destination: view.destination(),
        };
        prop_assert_eq!(read, header);
    }

    /// Also a guess at the bound: the result is inside the packet.
    #[test]
    fn any_chain_ends_inside_the_packet(
        first in prop::sample::select(vec![0u8, 43, 44, 51, 60]),
        pieces in prop::collection::vec((prop::sample::select(vec![0u8, 6, 43, 44, 51, 60]), 0..3u8, any::<[u8; 6]>()), 0..12),
    ) {
        let bytes: Vec<[u8; 8]> =
            pieces.iter().map(|(next, len, [a, b, c, d, e, f])| [*next, *len, *a, *b, *c, *d, *e, *f]).collect();
        let packet = packet(first, &[bytes.as_flattened()]);
        if let Chain::Transport(transport) = View::checked(&packet).unwrap().chain() {
            prop_assert!(transport.offset <= packet.len());
        }
    }
}

fn walk_of(first: u8, pieces: &[&[u8]]) -> Chain {
    View::checked(&packet(first, pieces)).unwrap().chain()
}

fn packet(next_header: u8, pieces: &[&[u8]]) -> Vec<u8> {
    let payload = pieces.concat();
    let mut bytes = vec![0; HEADER_LEN];
    Header { next_header, ..HEADER }.emit(&mut bytes, payload.len()).unwrap();
    bytes.extend(payload);
    bytes
}

/// Hop-by-hop or destination options, `6 + 8 n` bytes of them.
fn options(next: u8, options: &[u8]) -> Vec<u8> {
    assert_eq!(options.len() % 8, 6);
    [&[next, (options.len() / 8) as u8], options].concat()
}

fn fragment(next: u8, offset: u16, more: bool) -> Vec<u8> {
    let [a, b] = (offset | u16::from(more)).to_be_bytes();
    vec![next, 0, a, b, 0, 0, 0, 1]
}

/// A segment routing header with one address.
fn routing(next: u8, segments_left: u8) -> Vec<u8> {
    [&[next, 2, 4, segments_left, 0, 0, 0, 0][..], &[0xfd; 16]].concat()
}
