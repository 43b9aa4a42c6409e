//! The public address changes, or the route moves to another uplink: no datagram leaves with a source that is not the
//! one of its uplink.

use std::io::{ErrorKind, Read, Write};
use std::net::IpAddr;

use manylane_lab::{SERVER_V4, SERVER_V6, WAN_V4, WAN_V6, until};

use super::bed::{Bed, Plan, TIERS};
use super::stream::Stream;
use super::talk::Datagrams;
use super::transfers::settled;

#[test]
fn an_address_that_goes_takes_its_connections_with_it() {
    for tier in TIERS {
        let Some(bed) = Bed::usual(tier) else { return };
        // The second address of a network stays when the first one goes.
        bed.topology.set("r1", "net/ipv4/conf/wan/promote_secondaries", "1");
        let [new_v4, new_v6] = ["10.2.0.253", "2001:db8:2::fd"]
            .map(|text| text.parse::<IpAddr>().expect("an address"));
        let changes = [(WAN_V4, new_v4, 24), (WAN_V6, new_v6, 64)];
        let streams = started(&bed, [SERVER_V4, SERVER_V6]);
        // These connections stay open: the server's end would close one that conntrack does not know any longer, and that is invalid.
        let idles = [SERVER_V4, SERVER_V6].map(|server| settled(&bed, server));
        for ((stream, idle), (old, new, length)) in streams.iter().zip(&idles).zip(changes) {
            let is_old =
                |began| bed.connection(began).is_some_and(|one| one.reply.destination == old);
            assert!(is_old(stream.began()) && is_old(idle.began()));
            // A new address of IPv6 would be preferred at once; of IPv4 the first is.
            bed.topology.tool("r1", &format!("ip addr add {new}/{length} dev wan"));
            let before = stream.mark();
            bed.topology.tool("r1", &format!("ip addr delete {old}/{length} dev wan"));
            let gone = stream.mark();
            until("connections of the old address are gone", || {
                let of_old = bed.connections();
                let of_old: Vec<_> =
                    of_old.into_iter().filter(|one| one.reply.destination == old).collect();
                if of_old.is_empty() { Ok(()) } else { Err(format!("{of_old:#?}")) }
            });
            let settled = until_from(stream, new);
            println!(
                "{tier}: {} datagrams with the old source since the address went, {} of {} missing",
                stream.count_from(gone, old),
                stream.missing(before..settled),
                settled - before,
            );
        }
        bed.wait_for_lane("with the new source", || {
            for stream in &streams {
                stream.goes_on(200, "with the new source");
            }
        });
        for ((stream, idle), (old, new, _)) in streams.iter().zip(&idles).zip(changes) {
            assert_eq!(stream.source_changes(), [old, new], "it changed once");
            // Nothing of it is left: the idle connection's next packet is another connection's, from another address.
            let mut near = &idle.near;
            near.write_all(b"late").expect("it is open");
            let error = near.read(&mut [0]).expect_err("the server knows no such connection");
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
        }
        drop(streams);
        bed.accelerated.wait_for_no_difference();
        bed.finish();
    }
}

/// The server has an interface behind each of two uplinks.
pub(super) const TWO_UPLINKS: &str = "
    host client via 10.1.0.254 2001:db8:1::fe
    host server
    router r1
    link client:eth0 10.1.0.1/24 2001:db8:1::1/64 -- r1:lan 10.1.0.254/24 2001:db8:1::fe/64
    link r1:wan 10.2.0.254/24 2001:db8:2::fe/64 -- server:eth0 10.2.0.1/24 2001:db8:2::1/64
    link r1:wan2 10.3.0.254/24 2001:db8:3::fe/64 -- server:eth1 10.3.0.1/24 2001:db8:3::1/64
";

#[test]
fn a_route_that_moves_to_another_uplink_takes_no_source_with_it() {
    // The server counts what arrives with a source of the other uplink.
    let watch = "nft '
        table inet watch {
            chain arrives {
                type filter hook prerouting priority raw
                iifname eth0 meta l4proto udp ip saddr 10.3.0.0/24 counter
                iifname eth1 meta l4proto udp ip saddr 10.2.0.0/24 counter
                iifname eth0 meta l4proto udp ip6 saddr 2001:db8:3::/64 counter
                iifname eth1 meta l4proto udp ip6 saddr 2001:db8:2::/64 counter
                meta l4proto udp ip saddr 10.1.0.0/24 counter
                meta l4proto udp ip6 saddr 2001:db8:1::/64 counter
            }
        }'";
    for tier in TIERS {
        let plan = Plan {
            text: TWO_UPLINKS,
            ports: &["lan", "wan", "wan2"],
            ends: &[("client", "eth0"), ("server", "eth0"), ("server", "eth1")],
            lines: &[
                ("server", "ip address add 10.9.0.1/32 dev lo"),
                ("server", "ip address add 2001:db8:9::1/128 dev lo nodad"),
                ("r1", "ip route add 10.9.0.1/32 via 10.2.0.1"),
                ("r1", "ip route add 2001:db8:9::1/128 via 2001:db8:2::1"),
                ("server", watch),
            ],
            ..Plan::default()
        };
        let Some(bed) = Bed::make(tier, plan) else { return };
        let servers = ["10.9.0.1", "2001:db8:9::1"];
        let uplinks = [
            [["10.2.0.1", "10.2.0.254"], ["2001:db8:2::1", "2001:db8:2::fe"]],
            [["10.3.0.1", "10.3.0.254"], ["2001:db8:3::1", "2001:db8:3::fe"]],
        ];
        let streams = started(&bed, servers.map(|server| server.parse().expect("an address")));
        for families in [uplinks[1], uplinks[0]] {
            let mut from = Vec::new();
            for ((stream, server), [gateway, source]) in streams.iter().zip(servers).zip(families) {
                let source: IpAddr = source.parse().expect("an address");
                let before = stream.mark();
                bed.topology.tool("r1", &format!("ip route replace {server} via {gateway}"));
                let settled = until_from(stream, source);
                let missing = stream.missing(before..settled);
                println!("{tier}: {missing} of {} missing", settled - before);
                from.push((stream, settled, source));
            }
            bed.wait_for_lane("by the other uplink", || {
                for stream in &streams {
                    stream.goes_on(200, "by the other uplink");
                }
            });
            for (stream, settled, source) in from {
                assert_eq!(stream.sources(settled), [source].into());
            }
        }
        let counted = bed.topology.tool("server", "nft list table inet watch");
        let is_zero = |line: &str| line.contains("counter packets 0 ");
        let mut counters = counted.lines().filter(|line| line.contains("counter"));
        assert!(
            counters.all(is_zero),
            "datagrams left with a source of the other uplink: {counted}"
        );
        bed.finish();
    }
}

/// Flows that the lane forwards.
fn started(bed: &Bed<'_>, servers: [IpAddr; 2]) -> [Stream; 2] {
    let [client, far] = bed.hosts();
    let streams = servers.map(|server| Stream::start(Datagrams::open(client, far, server)));
    bed.wait_for_lane("datagrams", || {
        for stream in &streams {
            stream.goes_on(200, "by the lane");
        }
    });
    streams
}

/// Waits until all datagrams of a flow have this source; the number of the first one that is sent then.
fn until_from(stream: &Stream, address: IpAddr) -> u64 {
    until(&format!("datagrams come from {address}"), || {
        let returned = stream.returns("from another address");
        match stream.sources(returned) {
            sources if sources == [address].into() => Ok(stream.mark()),
            sources => Err(format!("{sources:?}")),
        }
    })
}
