//! The route of a packet, as collectors of samples receive it.

use super::*;
use crate::control::routing::PacketRoute;

fn route(
    bed: &Bed,
    source: &str,
    destination: &str,
    sent: Option<(u16, [u8; 6])>,
) -> Option<PacketRoute> {
    let sent = sent.map(|(port, mac)| (PortId(port), Mac(mac)));
    bed.routing.packet_route(
        source.parse().expect("the test wrote it"),
        destination.parse().expect("the test wrote it"),
        sent,
    )
}

fn to(
    port: u16,
    next_hop: Option<&str>,
    source_len: u8,
    destination_len: u8,
) -> Option<PacketRoute> {
    let next_hop = next_hop.map(|hop| hop.parse().expect("the test wrote it"));
    Some(PacketRoute { port: PortId(port), next_hop, source_len, destination_len })
}

/// The host route of a neighbour is not what an operator calls the prefix.
#[test]
fn a_station_on_a_link_has_the_length_of_its_network() {
    let mut bed = Bed::new();
    assert_eq!(route(&bed, "10.0.1.0", "10.0.0.7", None), to(0, None, 31, 24));
    bed.missing(0, "10.0.0.7", 0);
    bed.hear(0, "10.0.0.7", Kind::ArpReply, 0);
    assert_eq!(route(&bed, "10.0.0.7", "10.0.0.7", None), to(0, None, 24, 24));
    bed.asks(0, "2001:db8::7", 0);
    assert_eq!(route(&bed, "2001:db8::7", "2001:db8::7", None), to(0, None, 64, 64));
    assert_eq!(route(&bed, "203.0.113.1", "10.0.0.8", None), to(0, None, 0, 24), "no route back");
}

#[test]
fn a_route_has_its_prefix_and_its_next_hop() {
    let mut bed = Bed::new();
    let via = |next_hop: &str, port| RouteTarget::Via {
        next_hop: next_hop.parse().expect("the test wrote it"),
        port: PortId(port),
    };
    bed.static_route("192.0.2.0/25", via("10.0.0.9", 0));
    bed.static_route("2001:db8:9::/48", via("fe80::9", 0));
    bed.static_route("198.51.100.0/24", RouteTarget::OnLink { port: PortId(1) });
    bed.static_route("203.0.113.0/24", RouteTarget::Blackhole);
    assert_eq!(route(&bed, "198.51.100.1", "192.0.2.1", None), to(0, Some("10.0.0.9"), 24, 25));
    assert_eq!(route(&bed, "2001:db8::7", "2001:db8:9::1", None), to(0, Some("fe80::9"), 64, 48));
    assert_eq!(route(&bed, "192.0.2.1", "198.51.100.1", None), to(1, None, 25, 24));
    for nowhere in ["203.0.113.1", "192.0.2.200", "10.0.0.1"] {
        assert_eq!(route(&bed, "10.0.0.7", nowhere, None), None, "{nowhere}");
    }
}

/// Which member a flow takes is the worker's word: the station that the packet was sent to.
#[test]
fn a_member_of_a_group_is_told_by_its_station() {
    let mut bed = Bed::new();
    let hop = |next_hop: &str, port| Hop {
        next_hop: next_hop.parse().expect("the test wrote it"),
        port: PortId(port),
        weight: 1,
    };
    let group = RouteTarget::Group(vec![hop("10.0.0.9", 0), hop("10.0.1.0", 1)]);
    bed.static_route("192.0.2.0/24", group);
    bed.hear(0, "10.0.0.9", Kind::ArpReply, 0);
    bed.hear(1, "10.0.1.0", Kind::ArpReply, 0);
    let route = |sent| route(&bed, "10.0.0.7", "192.0.2.1", sent);
    assert_eq!(route(Some((0, MAC))), to(0, Some("10.0.0.9"), 24, 24));
    assert_eq!(route(Some((1, MAC))), to(1, Some("10.0.1.0"), 24, 24));
    assert_eq!((route(Some((0, [2; 6]))), route(None)), (None, None));
}
