//! Errors about packets of translated connections: they are the kernel's, and quote what their receiver has sent.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use manylane_lab::{LAN_V4, LAN_V6, WAN_V4, WAN_V6};
use socket2::SockRef;

use super::bed::{Bed, Plan, TIERS};
use super::frames::{Heard, next_error, station};
use super::talk::Datagrams;
use super::transfers::settled;

/// The link between the routers takes 1400 bytes.
const ANOTHER_ROUTER: &str = "
    host client via 10.1.0.254 2001:db8:1::fe
    host server via 10.9.0.254 2001:db8:9::fe
    router r1
    router r2
    link client:eth0 10.1.0.1/24 2001:db8:1::1/64 -- r1:lan 10.1.0.254/24 2001:db8:1::fe/64
    link r1:wan 10.2.0.254/24 2001:db8:2::fe/64 -- r2:west 10.2.0.1/24 2001:db8:2::1/64
    link r2:east 10.9.0.254/24 2001:db8:9::fe/64 -- server:eth0 10.9.0.1/24 2001:db8:9::1/64
";

const LINES: [(&str, &str); 6] = [
    ("r1", "ip route add default via 10.2.0.1"),
    ("r1", "ip -6 route add default via 2001:db8:2::1"),
    ("r1", "ip link set wan mtu 1400"),
    ("r2", "ip link set west mtu 1400"),
    // The kernel sends each error, however many it has sent before.
    ("r1", "sysctl -q net.ipv4.icmp_ratelimit=0 net.ipv6.icmp.ratelimit=0"),
    ("r2", "sysctl -q net.ipv4.icmp_ratelimit=0 net.ipv6.icmp.ratelimit=0"),
];

fn plan() -> Plan<'static> {
    Plan {
        text: ANOTHER_ROUTER,
        lines: &LINES,
        ends: &[("client", "eth0"), ("server", "eth0"), ("r2", "west"), ("r2", "east")],
        ..Plan::default()
    }
}

fn servers() -> [IpAddr; 2] {
    ["10.9.0.1", "2001:db8:9::1"].map(|text| text.parse().expect("an address"))
}

/// Type and code of the error for a packet that is too large.
const TOO_BIG: [(u8, u8); 2] = [(3, 4), (2, 0)];
/// And for one that has expired.
const EXPIRED: [(u8, u8); 2] = [(11, 0), (3, 0)];

#[test]
fn a_path_with_a_smaller_mtu_is_found_out_through_translation() {
    for tier in TIERS {
        let Some(bed) = Bed::make(tier, plan()) else { return };
        for (family, server) in servers().into_iter().enumerate() {
            let datagrams = lasting(&bed, server);
            let heard = station(&bed.topology, "client", "eth0");
            let overhead = if server.is_ipv4() { 28 } else { 48 };
            datagrams.near.send(&vec![1; 1500 - overhead]).expect("it fits the link");
            let (kind, code) = TOO_BIG[family];
            let from = [LAN_V4, LAN_V6][family];
            let quoted = ends_of(&datagrams);
            assert_eq!(next_error(&heard), Heard { kind, code, mtu: 1400, from, quoted });
            // And the sender's kernel has understood.
            let error = datagrams.near.send(&vec![1; 1500 - overhead]).err();
            let error = error.or_else(|| datagrams.near.take_error().expect("it is a socket"));
            assert_eq!(error.and_then(|error| error.raw_os_error()), Some(EMSGSIZE));
            datagrams.near.send(&vec![2; 1400 - overhead]).expect("it fits the path");
            let mut bytes = vec![0; 1500];
            let (length, _) = datagrams.far.recv_from(&mut bytes).expect("it arrives");
            assert_eq!((length, bytes[0]), (1400 - overhead, 2));
            drop(datagrams);
            // TCP, whose first segments are too large for the path.
            let pair = settled(&bed, server);
            bed.lane_has(&format!("TCP to {server}, 1400 bytes"), || {
                pair.exchange(128);
            });
            pair.close();
        }
        bed.finish();
    }
}

/// The server learns of a smaller MTU behind the router: the error quotes the server's datagram to the router's
/// address.
#[test]
fn the_far_end_learns_of_a_smaller_mtu_behind_the_router() {
    for tier in TIERS {
        let lines = [
            &LINES[..],
            &[("r1", "ip link set lan mtu 1300"), ("client", "ip link set eth0 mtu 1300")],
        ];
        let lines = lines.concat();
        let Some(bed) = Bed::make(tier, Plan { lines: &lines, ..plan() }) else { return };
        for (family, server) in servers().into_iter().enumerate() {
            let datagrams = lasting(&bed, server);
            let client = datagrams.exchange(1);
            let heard = station(&bed.topology, "server", "eth0");
            let overhead = if server.is_ipv4() { 28 } else { 48 };
            datagrams.far.connect(client).expect("there is a route");
            datagrams.far.send(&vec![1; 1400 - overhead]).expect("it fits the link");
            let (kind, code) = TOO_BIG[family];
            let quoted = [datagrams.far.local_addr().expect("it is bound"), client];
            let error = next_error(&heard);
            assert_eq!(error, Heard { kind, code, mtu: 1300, from: error.from, quoted });
            assert_eq!(error.from, [WAN_V4, WAN_V6][family]);
            let error = datagrams.far.send(&vec![1; 1400 - overhead]).err();
            let error = error.or_else(|| datagrams.far.take_error().expect("it is a socket"));
            assert_eq!(error.and_then(|error| error.raw_os_error()), Some(EMSGSIZE));
            let pair = settled(&bed, server);
            pair.exchange(64);
            pair.close();
        }
        bed.finish();
    }
}

#[test]
fn traceroute_shows_both_routers_and_the_server() {
    for tier in TIERS {
        let Some(bed) = Bed::make(tier, plan()) else { return };
        for (family, server) in servers().into_iter().enumerate() {
            let datagrams = lasting(&bed, server);
            let heard = station(&bed.topology, "client", "eth0");
            let quoted = ends_of(&datagrams);
            let hops = [["10.1.0.254", "10.2.0.1"], ["2001:db8:1::fe", "2001:db8:2::1"]][family];
            for (hop, from) in (1..).zip(hops) {
                limit(&datagrams.near, hop);
                datagrams.near.send(b"a probe").expect("there is a route");
                let (kind, code) = EXPIRED[family];
                let from = from.parse().expect("an address");
                assert_eq!(next_error(&heard), Heard { kind, code, mtu: 0, from, quoted });
            }
            limit(&datagrams.near, 3);
            datagrams.near.send(b"a probe").expect("there is a route");
            let mut bytes = [0; 16];
            let (length, _) = datagrams.far.recv_from(&mut bytes).expect("it arrives");
            assert_eq!(&bytes[..length], b"a probe");
        }
        bed.finish();
    }
}

/// Datagrams that the lane forwards.
fn lasting(bed: &Bed<'_>, server: IpAddr) -> Datagrams {
    let [client, far] = bed.hosts();
    let datagrams = Datagrams::open(client, far, server);
    bed.wait_for_lane("UDP", || {
        datagrams.exchange(4);
    });
    datagrams
}

fn ends_of(datagrams: &Datagrams) -> [SocketAddr; 2] {
    let near = &datagrams.near;
    [near.local_addr(), near.peer_addr()].map(|end| end.expect("it is connected"))
}

fn limit(socket: &UdpSocket, hops: u32) {
    let is_ipv4 = socket.local_addr().expect("it is bound").is_ipv4();
    let socket = SockRef::from(socket);
    let set = if is_ipv4 { socket.set_ttl_v4(hops) } else { socket.set_unicast_hops_v6(hops) };
    set.expect("it is a hop limit");
}

/// errno(3).
const EMSGSIZE: i32 = 90;
