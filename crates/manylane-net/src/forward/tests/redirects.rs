//! Redirects (RFC 1812 §5.2.7.2, RFC 4861 §8.2): when, from which address, to which address, to which next hop.
//!
//! In the bed only a station's own address is a neighbour of its port. So here a second station, slot 3 for
//! IPv4 and 7 for IPv6, is at port 0 too, and routes lead to it.

use std::net::{IpAddr, Ipv6Addr};

use super::super::*;
use super::bed::*;
use crate::neighbour::{Header, Rewrite};
use crate::wire::ethernet::{Tags, ether_type};
use crate::wire::{icmp, icmpv6, ipv4, ipv6};

const SECOND_MAC: [u8; 6] = [2, 0, 0, 0, 1, 0x77];

/// What is sent besides, with what becomes of it, and the packet itself after that.
type Redirect = Option<(Said, Vec<u8>)>;

/// Routes to 198.18/15 and 2001:db8:c::/48 lead to these addresses at `port`.
fn bed(v4: &str, v6: &str, port: u16) -> Bed {
    let mut bed = Bed::new();
    for (slot, addr, id) in [(3, v4, NEIGHBOUR + 2), (7, v6, NEIGHBOUR + 6)] {
        let addr: IpAddr = addr.parse().unwrap();
        let kind = if addr.is_ipv4() { ether_type::IPV4 } else { ether_type::IPV6 };
        let header = Header::ethernet(SECOND_MAC, ours(port as u8).0, kind);
        let egress = PortId(port);
        let key = Key { port: egress, addr };
        let rewrite = Rewrite { key, egress, state: AdjacencyState::Resolved, header, mtu: 1500 };
        bed.adjacencies.publish(slot, &rewrite).expect("there are records");
        bed.set(id, NextHop::Via(slot));
    }
    bed
}

fn redirect_with(bed: Bed, limit: RateLimit, frame: &[u8]) -> (Bed, Redirect) {
    let Bed { forwarder, .. } = bed;
    let mut bed = Bed { forwarder: forwarder.with_redirects(limit), ..bed };
    let redirect = redirect(&mut bed, frame);
    (bed, redirect)
}

/// The redirect about a frame received by port 0, if any.
fn redirect(bed: &mut Bed, frame: &[u8]) -> Redirect {
    let before = bed.free();
    let mut batch = Batch::new();
    batch.push(bed.receive(0, frame)).expect("there is room");
    let guard = bed.reader.guard();
    let now_ns = 10 * SECOND;
    let mut verdicts = Verdicts::new();
    bed.forwarder.forward(
        &mut Turn { guard, pool: &mut bed.pool, now_ns },
        &mut batch,
        &mut verdicts,
    );
    let verdict = verdicts.list()[0];
    let passed = batch.iter().next().expect("there is one");
    let made =
        bed.forwarder.redirect(&mut Turn { guard, pool: &mut bed.pool, now_ns }, passed, &verdict);
    let redirect = made.map(|(made, fate)| {
        let verdict = Verdict { fate, origin: Origin::Received };
        let outcome = outcome(&bed.region, &made, &verdict);
        assert!(outcome.own);
        bed.pool.give_back(made);
        (outcome.said, outcome.bytes)
    });
    bed.pool.give_back_all(&mut batch);
    assert_eq!(bed.free(), before, "every frame is back");
    redirect
}

fn unlimited() -> RateLimit {
    RateLimit::new(0, 1_000_000)
}

fn v4(destination: &str) -> V4 {
    V4 { source: [10, 0, 0, 2].into(), ..V4::udp(destination, 10) }
}

fn v6(destination: &str) -> V6 {
    V6 { source: "2001:db8::2".parse().unwrap(), ..V6::udp(destination, 10) }
}

#[test]
fn who_could_send_straight_to_a_router_is_told_its_address() {
    let frame = v4("198.18.3.3").frame();
    let (mut bed, said) = redirect_with(bed("10.0.0.77", "fe80::77", 0), unlimited(), &frame);
    let (said, bytes) = said.expect("a redirect");
    assert_eq!((said, &bytes[..6]), (Said::Transmit(0), &station(0).0[..]));
    let view = ipv4::View::checked(&bytes[14..]).unwrap();
    assert!(view.has_valid_checksum());
    assert_eq!((view.source(), view.destination()), ([10, 0, 0, 1].into(), [10, 0, 0, 2].into()));
    let message = icmp::View::checked(view.payload()).unwrap();
    assert!(message.has_valid_checksum());
    let gateway = u32::from_be_bytes([10, 0, 0, 77]);
    assert_eq!((message.kind(), message.code(), message.word()), (5, 1, gateway));
    let quoted = ipv4::View::checked(message.quoted().expect("it quotes")).unwrap();
    assert_eq!(quoted.destination().octets(), [198, 18, 3, 3]);

    let packet = v6("2001:db8:c::9");
    let (said, bytes) = redirect(&mut bed, &packet.frame()).expect("a redirect");
    assert_eq!((said, &bytes[..6]), (Said::Transmit(0), &station(0).0[..]));
    let view = ipv6::View::checked(&bytes[14..]).unwrap();
    assert_eq!((view.source(), view.hop_limit()), (link_local(0), 255));
    assert_eq!(view.destination(), packet.source);
    let message = icmpv6::View::checked(view.payload()).unwrap();
    assert!(message.has_valid_checksum(view.source(), view.destination()));
    assert_eq!((message.kind(), message.code()), (icmpv6::kind::REDIRECT, 0));
    let (addresses, options) = message.body().split_at(32);
    let target: Ipv6Addr = "fe80::77".parse().unwrap();
    assert_eq!(addresses, [target.octets(), packet.destination.octets()].concat());
    assert_eq!(options[..8], [&[2, 1][..], &SECOND_MAC].concat());
    let whole = &packet.frame()[14..];
    let quoted = whole.len() & !7;
    assert_eq!(options[8..16], [4, (quoted / 8 + 1) as u8, 0, 0, 0, 0, 0, 0]);
    assert_eq!(options[16..], whole[..quoted], "as it came");
}

/// RFC 4861 §4.5: as much as fits in 1280 bytes; RFC 1812 §4.3.2.3: in 576.
#[test]
fn a_redirect_is_as_long_as_it_may_be() {
    let mut bed = bed("10.0.0.77", "fe80::77", 0);
    bed.forwarder.redirects = Some(unlimited());
    for (frame, len) in [
        (V4 { source: [10, 0, 0, 2].into(), ..V4::udp("198.18.3.3", 1400) }.frame(), 576),
        (
            V6 { source: "2001:db8::2".parse().unwrap(), ..V6::udp("2001:db8:c::", 1400) }.frame(),
            1280,
        ),
    ] {
        let (_, bytes) = redirect(&mut bed, &frame).expect("a redirect");
        assert_eq!(bytes.len(), 14 + len);
    }
}

#[test]
fn nobody_is_redirected_without_a_shorter_way() {
    let direct = ("10.0.0.77", "fe80::77", 0);
    let error4 =
        V4 { source: [10, 0, 0, 2].into(), ..V4::icmp("198.18.3.3", 3, 1, 0, &[0x45; 28]) };
    let error6 = V6::icmp("2001:db8::2", "2001:db8:c::9", 1, 0, &[0x60; 48]);
    for (what, (v4_to, v6_to, port), frame) in [
        ("by another port", ("10.0.1.77", "fe80::77", 1), v4("198.18.3.3").frame()),
        ("by another port", ("10.0.1.77", "fe80::77", 1), v6("2001:db8:c::9").frame()),
        ("from behind a router", direct, V4::udp("198.18.3.3", 10).frame()),
        ("from behind a router", direct, V6::udp("2001:db8:c::9", 10).frame()),
        ("to a router of another network", ("10.0.9.77", "fe80::77", 0), v4("198.18.3.3").frame()),
        (
            "to a router that is not link-local",
            ("10.0.0.77", "2001:db8::77", 0),
            v6("2001:db8:c::9").frame(),
        ),
        ("to the sender itself", ("10.0.0.2", "fe80::77", 0), v4("198.18.3.3").frame()),
        ("about an error", direct, error4.frame()),
        ("about an error", direct, error6.frame()),
        ("to us", direct, v4("10.0.0.1").frame()),
        ("to us", direct, v6("2001:db8::1").frame()),
        ("to nowhere", direct, v4("8.8.8.8").frame()),
        ("at its last hop", direct, V4 { ttl: 1, ..v4("198.18.3.3") }.frame()),
    ] {
        let (_, redirect) = redirect_with(bed(v4_to, v6_to, port), unlimited(), &frame);
        assert_eq!(redirect, None, "{what}");
    }
    let (_, said) = redirect_with(
        bed("10.0.0.77", "fe80::77", 0),
        RateLimit::new(0, 0),
        &v4("198.18.3.3").frame(),
    );
    assert_eq!(said, None, "not too often");
    let mut off = bed("10.0.0.77", "fe80::77", 0);
    assert!(!off.forwarder.sends_redirects());
    assert_eq!(redirect(&mut off, &v4("198.18.3.3").frame()), None, "not asked for");
}

/// Neighbours are redirected to each other by their own addresses (RFC 4861 §8: on-link).
#[test]
fn who_asks_us_for_a_neighbour_is_told_that_it_is_one() {
    let mut bed = bed("10.0.0.77", "2001:db8:c::9", 0);
    bed.forwarder.redirects = Some(unlimited());
    let (_, bytes) = redirect(&mut bed, &v6("2001:db8:c::9").frame()).expect("a redirect");
    let target: Ipv6Addr = "2001:db8:c::9".parse().unwrap();
    assert_eq!(bytes[14 + 40 + 8..][..32], [target.octets(); 2].concat());
}

/// A sub-interface is a link of its own: what leaves its device by other tags is elsewhere.
#[test]
fn a_redirect_stays_in_its_vlan() {
    let tags = Tags::NONE.and(ether_type::VLAN, 100).expect("one fits");
    let vlan = Vlan { port: PortId(0), tags };
    for (inside, expected) in [(true, Some(Said::Transmit(0))), (false, None)] {
        let mut bed = bed("10.0.0.77", "fe80::77", 0);
        if inside {
            let key = Key { port: PortId(3), addr: [10, 0, 0, 77].into() };
            let header = Header::tagged(SECOND_MAC, ours(0).0, tags, ether_type::IPV4);
            let (state, egress) = (AdjacencyState::Resolved, PortId(0));
            let rewrite = Rewrite { key, egress, state, header, mtu: 1400 };
            bed.adjacencies.publish(3, &rewrite).expect("there are records");
        }
        let mut ports = bed.forwarder.tables.ports.to_vec();
        ports.push(PortFacts { vlan: Some(vlan), vlans: Vec::new(), ..ports[0].clone() });
        ports[0].vlans.push((tags, PortId(3)));
        bed.forwarder.tables.ports = ports.into();
        bed.forwarder.redirects = Some(unlimited());
        let mut frame = v4("198.18.3.3").frame();
        frame.splice(12..12, tags.as_bytes().iter().copied());
        let redirect = redirect(&mut bed, &frame);
        // The sender's own neighbour entry is at port 0.
        assert_eq!(redirect.as_ref().map(|(said, _)| *said), expected, "to its VLAN: {inside}");
    }
}
