//! Any frame, to every function of `wire` and `icmp` that takes bytes: nothing panics, and what is
//! said twice is said alike.
//!
//! ```sh
//! cargo fuzz run --sanitizer none --features libfuzzer wire -- -max_total_time=60
//! ```
//!
//! The input is an Ethernet frame, as in `corpus/wire` (`make-corpus.sh` says where they are from).
//! Not looked for: memory errors (the crate forbids `unsafe`), slowness.
#![no_main]

use std::net::{Ipv4Addr, Ipv6Addr};

use libfuzzer_sys::fuzz_target;
use manylane_net::icmp::{self as rules, ErrorKind};
use manylane_net::wire::checksum::Sum;
use manylane_net::wire::repair::{Repair, repair};
use manylane_net::wire::{Mac, arp, ethernet, flow, icmp, icmpv6, ip, ipv4, ipv6, nd, tcp, udp};

const STATION: Mac = Mac([2, 0, 0, 0, 0, 1]);
const ROUTER_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const ROUTER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

const KINDS: [ErrorKind; 7] = [
    ErrorKind::TimeExceeded,
    ErrorKind::NetworkUnreachable,
    ErrorKind::HostUnreachable,
    ErrorKind::PortUnreachable,
    ErrorKind::Prohibited,
    ErrorKind::TooBig { mtu: 1400 },
    ErrorKind::ParameterProblem { pointer: 6 },
];

fuzz_target!(|frame: &[u8]| {
    names(frame);
    let Some(view) = ethernet::View::checked(frame) else { return };
    let mut header = [0; ethernet::HEADER_LEN];
    ethernet::emit(&mut header, view.destination(), view.source(), view.ether_type());
    assert_eq!(header, frame[..ethernet::HEADER_LEN]);

    let packet = view.payload();
    addresses(packet);
    headers(packet);
    sums(packet);
    answers(packet);
    repairs(packet);
    // The transport, as its header says, and as anything may say it.
    if let Some(view) = ip::View::checked(packet)
        && let Some(transport) = view.transport()
    {
        let bytes = view.packet().get(transport.offset..).expect("inside the packet");
        transports(bytes, view.pseudo_header(transport.protocol, bytes.len()));
    }
    transports(packet, None);
});

/// MAC addresses come back from their own text.
fn names(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(mac) = text.parse::<Mac>()
    {
        assert_eq!(mac.to_string().parse(), Ok(mac));
    }
}

/// ARP and neighbour discovery: what is read can be written, and is read again.
fn addresses(packet: &[u8]) {
    if let Some(read) = arp::Packet::checked(packet) {
        let _ = (read.is_probe(), read.is_announcement());
        let mut frame = [0; arp::FRAME_LEN];
        read.emit_frame(&mut frame, STATION).expect("there is room");
        assert_eq!(arp::Packet::checked(&frame[ethernet::HEADER_LEN..]), Some(read));
    }
    if let Some(read) = nd::Message::checked(packet) {
        let mut frame = [0; nd::FRAME_LEN_MAX];
        let len = match read {
            nd::Message::Solicitation(question) => question.emit(&mut frame, STATION, STATION),
            nd::Message::Advertisement(answer) => answer.emit(&mut frame, STATION, STATION),
        };
        let len = len.expect("there is room");
        assert_eq!(nd::Message::checked(&frame[ethernet::HEADER_LEN..len]), Some(read));
    }
}

/// Every accessor of the IP headers; the two versions agree with the view of either.
fn headers(packet: &[u8]) {
    for view in [ipv4::View::checked(packet), ipv4::View::quoted(packet)].into_iter().flatten() {
        let _ = (view.total_len(), view.tos(), view.identification(), view.ttl(), view.checksum());
        let _ = (view.dont_fragment(), view.more_fragments(), view.fragment_offset());
        let _ = (view.source(), view.destination(), view.has_valid_checksum(), view.options());
        assert_eq!(view.payload(), &view.packet()[view.header_len()..]);
        assert_eq!(view.transport().fragment, view.fragment());
    }
    for view in [ipv6::View::checked(packet), ipv6::View::quoted(packet)].into_iter().flatten() {
        let _ = (view.traffic_class(), view.flow_label(), view.payload_len(), view.hop_limit());
        let _ = (view.source(), view.destination(), view.next_header());
        assert_eq!(view.payload(), &view.packet()[ipv6::HEADER_LEN..]);
        if let Some(transport) = view.chain().transport() {
            assert!((ipv6::HEADER_LEN..=view.packet().len()).contains(&transport.offset));
        }
    }
    let whole = ip::View::checked(packet).map(|view| view.packet());
    let v4 = ipv4::View::checked(packet).map(|view| view.packet());
    let v6 = ipv6::View::checked(packet).map(|view| view.packet());
    assert_eq!(whole, v4.or(v6));
    let _ = ip::View::quoted(packet).map(|view| view.transport());
    let _ = flow::flow_hash(packet);
}

fn transports(bytes: &[u8], pseudo_header: Option<Sum>) {
    let sum = pseudo_header.unwrap_or_default();
    if let Some(view) = udp::View::checked(bytes) {
        let _ = (view.source_port(), view.destination_port(), view.checksum());
        let _ = (view.datagram(), view.payload(), view.has_valid_checksum(sum));
    }
    if let Some(view) = tcp::View::checked(bytes) {
        let _ = (view.source_port(), view.destination_port(), view.sequence(), view.flags());
        let _ = (view.checksum(), view.payload(), view.has_valid_checksum(sum));
    }
    if let Some(view) = icmp::View::checked(bytes) {
        let _ = (view.kind(), view.code(), view.checksum(), view.word(), view.echo());
        let _ = (view.quoted(), view.has_valid_checksum());
    }
    if let Some(view) = icmpv6::View::checked(bytes) {
        let _ = (view.kind(), view.code(), view.checksum(), view.word(), view.echo(), view.body());
        let _ = (view.quoted(), view.has_valid_checksum(ROUTER_V6, ROUTER_V6));
    }
}

/// The checksum by its definition (RFC 1071 §1), and that of the parts.
fn sums(bytes: &[u8]) {
    let mut plain = 0u64;
    for pair in bytes.chunks(2) {
        plain += u64::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    }
    while plain > 0xffff {
        plain = (plain & 0xffff) + (plain >> 16);
    }
    assert_eq!(u64::from(Sum::of(bytes).fold()), plain);
    let (front, back) = bytes.split_at(bytes.len() / 4 * 2);
    assert_eq!(Sum::of(front).plus(back).fold(), Sum::of(bytes).fold());
}

/// Our answer is well-formed, is addressed to the packet's source, and is never answered.
fn answers(packet: &[u8]) {
    let mut reply = packet.to_vec();
    if rules::echo_reply_v4(&mut reply, 7).is_some() {
        let (was, is) = (v4(packet), v4(&reply));
        assert_eq!((was.source(), was.destination()), (is.destination(), is.source()));
        assert_eq!(was.has_valid_checksum(), is.has_valid_checksum());
        let message = icmp::View::checked(is.payload()).expect("an echo reply");
        assert!(message.has_valid_checksum());
    } else {
        assert_eq!(reply, packet, "refused and changed");
    }
    let mut reply = packet.to_vec();
    if rules::echo_reply_v6(&mut reply).is_some() {
        let (was, is) = (v6(packet), v6(&reply));
        assert_eq!((was.source(), was.destination()), (is.destination(), is.source()));
        let message = icmpv6::View::checked(is.payload()).expect("an echo reply");
        assert!(message.has_valid_checksum(is.source(), is.destination()));
    } else {
        assert_eq!(reply, packet, "refused and changed");
    }
    for kind in KINDS {
        let may_v4 = rules::may_answer_v4(packet, false);
        let quoted = &packet[..rules::quote_len_v4(packet.len())];
        let mut error = [&[0; rules::ERROR_HEADROOM_V4], quoted].concat();
        if rules::emit_v4_error(&mut error, kind, ROUTER_V4, 7).is_some() {
            let view = v4(&error);
            assert!(view.has_valid_checksum());
            let message = icmp::View::checked(view.payload()).expect("an error");
            assert!(message.has_valid_checksum());
            assert_eq!(message.quoted(), Some(quoted));
            assert!(!rules::may_answer_v4(&error, false), "an error about an error");
        } else {
            assert!(!may_v4, "it may be answered, and cannot");
        }
        let may_v6 = rules::may_answer_v6(packet, false, kind);
        let quoted = &packet[..rules::quote_len_v6(packet.len())];
        let mut error = [&[0; rules::ERROR_HEADROOM_V6], quoted].concat();
        if rules::emit_v6_error(&mut error, kind, ROUTER_V6).is_some() {
            let view = v6(&error);
            let message = icmpv6::View::checked(view.payload()).expect("an error");
            assert!(message.has_valid_checksum(view.source(), view.destination()));
            assert_eq!(message.quoted(), Some(quoted));
            assert!(!rules::may_answer_v6(&error, false, kind), "an error about an error");
        } else {
            assert!(!may_v6, "it may be answered, and cannot");
        }
    }
}

/// Repair changes checksums only, and none that it has completed.
fn repairs(packet: &[u8]) {
    let mut once = packet.to_vec();
    let what = repair(&mut once);
    let changed = packet.iter().zip(&once).filter(|(before, after)| before != after).count();
    assert!(changed <= 4, "at most the outer checksum and an inner one");
    if what == Repair::Untouched {
        assert_eq!(once, packet);
    }
    let mut twice = once.clone();
    let _ = repair(&mut twice);
    assert_eq!(twice, once, "a complete checksum was changed");
}

fn v4(packet: &[u8]) -> ipv4::View<'_> {
    ipv4::View::checked(packet).expect("an IPv4 packet")
}

fn v6(packet: &[u8]) -> ipv6::View<'_> {
    ipv6::View::checked(packet).expect("an IPv6 packet")
}
