//! Connections from outside to hosts inside, from inside to the public address, ranges of ports, datagrams without a
//! checksum.

use std::net::{IpAddr, SocketAddr};

use manylane_lab::packet::emit_udp_between;
use manylane_lab::{SERVER_V4, SERVER_V6, WAN_V4, WAN_V6, until};
use manylane_net::wire::ethernet::Mac;

use super::bed::{Bed, Plan, TIERS, is_liberal, rules};
use super::frames::{datagram_of, station};
use super::talk::{Datagrams, Pair};
use super::transfers::admitted;

/// Client and inner server stand at one link of the router.
const WITH_A_SWITCH: &str = "
    host client via 10.1.0.254 2001:db8:1::fe
    host inner via 10.1.0.254 2001:db8:1::fe
    host server via 10.2.0.254 2001:db8:2::fe
    host switch
    router r1
    link client:eth0 10.1.0.1/24 2001:db8:1::1/64 -- switch:one
    link inner:eth0 10.1.0.2/24 2001:db8:1::2/64 -- switch:two
    link switch:up -- r1:lan 10.1.0.254/24 2001:db8:1::fe/64
    link r1:wan 10.2.0.254/24 2001:db8:2::fe/64 -- server:eth0 10.2.0.1/24 2001:db8:2::1/64
";

fn plan() -> Plan<'static> {
    let destinations = "
        ip daddr 10.2.0.254 tcp dport 8080 dnat ip to 10.1.0.2:80
        ip6 daddr 2001:db8:2::fe tcp dport 8080 dnat ip6 to [2001:db8:1::2]:80
        ip daddr 10.2.0.254 tcp dport 9000-9009 dnat ip to 10.1.0.2
        ip6 daddr 2001:db8:2::fe tcp dport 9000-9009 dnat ip6 to 2001:db8:1::2";
    let sources = "
        iifname lan oifname lan masquerade
        oifname wan meta l4proto udp masquerade to :40000-40009";
    Plan {
        text: WITH_A_SWITCH,
        rules: rules("", destinations, sources),
        ends: &[
            ("client", "eth0"),
            ("inner", "eth0"),
            ("server", "eth0"),
            ("switch", "one"),
            ("switch", "two"),
            ("switch", "up"),
        ],
        lines: &[
            ("switch", "ip link add br0 type bridge"),
            ("switch", "ip link set one master br0"),
            ("switch", "ip link set two master br0"),
            ("switch", "ip link set dev up master br0"),
            ("switch", "ip link set br0 up"),
            // A redirect would send the client past the translation.
            (
                "r1",
                "sysctl -q net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.lan.send_redirects=0",
            ),
        ],
        ..Plan::default()
    }
}

fn inner() -> [IpAddr; 2] {
    ["10.1.0.2", "2001:db8:1::2"].map(|text| text.parse().expect("an address"))
}

#[test]
fn ports_are_forwarded_and_the_public_address_works_from_inside() {
    for tier in TIERS {
        let Some(bed) = Bed::make(tier, plan()) else { return };
        let [client, server] = bed.hosts();
        for (inside, public) in inner().into_iter().zip([WAN_V4, WAN_V6]) {
            let to_inner = |from, listen: u16, to: u16| {
                let ends = [(inside, listen), (public, to)].map(SocketAddr::from);
                Pair::through(from, bed.topology.host("inner"), ends[0], Some(ends[1]))
            };
            for (listen, to) in [(80, 8080), (9000, 9000), (9009, 9009)] {
                let pair = to_inner(server, listen, to);
                admitted(&bed, &pair);
                bed.lane_has(&format!("{public} {to}, from outside"), || {
                    pair.exchange(128);
                });
                pair.close();
            }
            // The router sends these packets by the port that received them, which is the kernel's task.
            let hairpin = to_inner(client, 80, 8080);
            hairpin.exchange(64);
            let found = bed.connection(hairpin.began()).expect("it is there");
            let public_lan = found.reply.destination;
            assert!(!is_liberal(&found) && public_lan != hairpin.began().ip(), "{found:?}");
            hairpin.close();
        }
        bed.finish();
    }
}

#[test]
fn a_range_of_ports_is_kept_for_each_flow() {
    for tier in TIERS {
        let Some(bed) = Bed::make(tier, plan()) else { return };
        let [client, server] = bed.hosts();
        for address in [SERVER_V4, SERVER_V6] {
            let flows: Vec<_> = (0..4).map(|_| Datagrams::open(client, server, address)).collect();
            let first: Vec<_> = flows.iter().map(|flow| flow.exchange(1)).collect();
            bed.wait_for_lane("UDP", || {
                flows.iter().for_each(|flow| {
                    flow.exchange(4);
                });
            });
            for (flow, from) in flows.iter().zip(first) {
                assert!((40_000..40_010).contains(&from.port()), "{from}");
                assert_eq!(flow.exchange(8), from, "the translation is as it was");
            }
        }
        bed.finish();
    }
}

/// IPv4 may leave it out (RFC 768): so it leaves the router.
#[test]
fn a_datagram_without_a_checksum_keeps_it_out() {
    for tier in TIERS {
        let Some(bed) = Bed::usual(tier) else { return };
        let [client, server] = bed.hosts();
        let datagrams = Datagrams::open(client, server, SERVER_V4);
        bed.wait_for_lane("UDP", || {
            datagrams.exchange(4);
        });
        let translated = datagrams.exchange(1);
        let [near, far] = [("client", "eth0"), ("server", "eth0")]
            .map(|(host, end)| station(&bed.topology, host, end));
        let ends = [datagrams.near.local_addr(), datagrams.near.peer_addr()];
        let ends = ends.map(|end| end.expect("it is connected"));
        let macs = [("r1", "lan"), ("client", "eth0")]
            .map(|(host, end)| Mac(bed.topology.mac(host, end).expect("it is there")));
        let mut frame = vec![0; 200];
        frame[42..].fill(0x5a);
        emit_udp_between(&mut frame, 200, macs, ends);
        bed.lane_has("a datagram without a checksum", || {
            near.send(&frame).expect("the link is up");
            let mut buffer = [0; 2048];
            let arrived = until("it arrives", || {
                loop {
                    match far.receive(&mut buffer).expect("the link is there") {
                        Some(frame) => {
                            if let Some(arrived) = datagram_of(frame, &[0x5a; 100]) {
                                return Ok(arrived);
                            }
                        }
                        None => return Err("nothing more"),
                    }
                }
            });
            assert_eq!(arrived, (0, translated));
            let mut bytes = [0; 200];
            let (length, from) = datagrams.far.recv_from(&mut bytes).expect("it is valid");
            assert_eq!((length, from), (158, translated));
        });
        bed.finish();
    }
}
