//! Answers that arrive by another uplink than the one by which their connection leaves: the lane forwards each direction from
//! where its packets arrive, as far as the rules for that interface let them.

use std::net::{IpAddr, SocketAddr};

use manylane_io::netlink::conntrack::Tcp;
use manylane_lab::until;

use super::addresses::TWO_UPLINKS;
use super::bed::{Bed, Plan, TIERS, rules};
use super::stream::Stream;
use super::talk::{Datagrams, Pair};

/// The server has an address behind the first uplink, of each family.
const SERVERS: [&str; 2] = ["10.9.0.1", "2001:db8:9::1"];
const MASQUERADE: &str = "oifname != lan masquerade";

fn plan(is_translated: bool) -> Plan<'static> {
    let rules = rules("", "", "");
    assert!(rules.contains(MASQUERADE));
    Plan {
        text: TWO_UPLINKS,
        rules: if is_translated { rules } else { rules.replace(MASQUERADE, "") },
        ports: &["lan", "wan", "wan2"],
        ends: &[("client", "eth0"), ("server", "eth0"), ("server", "eth1")],
        lines: &[
            ("server", "ip address add 10.9.0.1/32 dev lo"),
            ("server", "ip address add 2001:db8:9::1/128 dev lo nodad"),
            ("r1", "ip route add 10.9.0.1/32 via 10.2.0.1"),
            ("r1", "ip route add 2001:db8:9::1/128 via 2001:db8:2::1"),
        ],
        ..Plan::default()
    }
}

/// An uplink: the server's interface there, the router's, and its addresses.
#[derive(Clone, Copy)]
struct Uplink {
    server: &'static str,
    router: &'static str,
    gateways: [&'static str; 2],
}

const FIRST: Uplink =
    Uplink { server: "eth0", router: "wan", gateways: ["10.2.0.254", "2001:db8:2::fe"] };
const OTHER: Uplink =
    Uplink { server: "eth1", router: "wan2", gateways: ["10.3.0.254", "2001:db8:3::fe"] };

/// The server sends by this uplink to the client, and to the address of the first uplink that stands for the client.
fn answer_by(bed: &Bed<'_>, Uplink { server, gateways, .. }: Uplink) {
    for (own, gateway) in FIRST.gateways.into_iter().zip(gateways) {
        let via = if own == gateway { String::new() } else { format!("via {gateway}") };
        bed.topology.tool("server", &format!("ip route replace {own} {via} dev {server}"));
    }
    for (client, gateway) in ["10.1.0.0/24", "2001:db8:1::/64"].into_iter().zip(gateways) {
        bed.topology
            .tool("server", &format!("ip route replace {client} via {gateway} dev {server}"));
    }
}

/// The entry of the connection that this end began has these interfaces, and manylane forwards both directions.
fn goes(bed: &Bed<'_>, began: SocketAddr, back: Uplink) {
    let wanted =
        [["lan", FIRST.router, "forwarded", bed.tier], [back.router, "lan", "forwarded", bed.tier]];
    until(&format!("{began} is answered by {}", back.router), || {
        let entry = bed.entry(began).ok_or("it has no entry")?;
        let ways = [&entry.original, &entry.reply]
            .map(|side| [&*side.ingress, &*side.egress, &*side.state, &*side.tier]);
        let is_used = entry.original.packets > 0 && entry.reply.packets > 0;
        if ways == wanted && is_used { Ok(()) } else { Err(format!("{entry:#?}")) }
    });
}

#[test]
fn answers_by_another_uplink_are_forwarded_from_there() {
    for (tier, is_translated) in TIERS.into_iter().flat_map(|tier| [(tier, false), (tier, true)]) {
        let Some(bed) = Bed::make(tier, plan(is_translated)) else { return };
        answer_by(&bed, OTHER);
        let [client, server] = bed.hosts();
        for address in SERVERS.map(|text| text.parse::<IpAddr>().expect("an address")) {
            let datagrams = Datagrams::open(client, server, address);
            bed.wait_for_lane("UDP", || {
                datagrams.exchange(4);
            });
            bed.lane_has("UDP, answered by the other uplink", || {
                datagrams.exchange(100);
            });
            goes(&bed, datagrams.near.local_addr().expect("it is bound"), OTHER);
            let pair = Pair::open(client, server, address);
            bed.wait_for_lane("TCP", || {
                pair.exchange(16);
            });
            bed.lane_has("TCP, answered by the other uplink", || {
                pair.exchange(128);
            });
            let began = pair.began();
            goes(&bed, began, OTHER);
            pair.close();
            bed.ends_in(began, Tcp::TIME_WAIT);
        }
        assert!(bed.lane().moved > 0, "{:#?}", bed.lane());
        bed.accelerated.wait_for_no_difference();
        bed.finish();
    }
}

#[test]
fn what_rules_drop_at_the_other_uplink_is_dropped() {
    for tier in TIERS {
        let Some(bed) = Bed::make(tier, plan(true)) else { return };
        answer_by(&bed, OTHER);
        let [client, server] = bed.hosts();
        let streams = SERVERS.map(|text| {
            let address = text.parse().expect("an address");
            Stream::start(Datagrams::open(client, server, address))
        });
        by_lane(&bed, &streams, OTHER);
        bed.topology.tool("r1", CLOSED);
        streams.iter().for_each(are_not_answered);
        let counted = bed.topology.tool("r1", "nft list table inet closed");
        assert!(!counted.contains("packets 0 "), "the kernel drops them: {counted}");
        // The first uplink is open.
        answer_by(&bed, FIRST);
        by_lane(&bed, &streams, FIRST);
        answer_by(&bed, OTHER);
        streams.iter().for_each(are_not_answered);
        bed.topology.tool("r1", "nft delete table inet closed");
        by_lane(&bed, &streams, OTHER);
        // The way back to the source is by the first uplink: only a strict check minds. IPv6 has none.
        bed.topology.set("r1", "net/ipv4/conf/wan2/rp_filter", "1");
        are_not_answered(&streams[0]);
        streams[1].goes_on(200, "IPv6");
        bed.topology.set("r1", "net/ipv4/conf/wan2/rp_filter", "2");
        by_lane(&bed, &streams, OTHER);
        drop(streams);
        bed.finish();
    }
}

/// Drops what the other uplink receives, and counts it.
const CLOSED: &str = "nft '
    table inet closed {
        chain forward {
            type filter hook forward priority -10
            iifname wan2 counter drop
        }
    }'";

/// Waits until manylane forwards these flows, and answers from this uplink.
fn by_lane(bed: &Bed<'_>, streams: &[Stream], back: Uplink) {
    bed.wait_for_lane(&format!("answers by {}", back.router), || {
        for stream in streams {
            stream.goes_on(200, back.router);
        }
    });
    for stream in streams {
        goes(bed, stream.began(), back);
    }
}

/// Waits until no answers arrive, and sees that none do. Datagrams arrive all the time.
fn are_not_answered(stream: &Stream) {
    let answers_to = |count: u64| {
        let (before, mark) = (stream.echoed(), stream.mark());
        stream.all_arrive(mark..mark + count, "at the server");
        stream.echoed() - before
    };
    until("answers stop", || match answers_to(100) {
        0 => Ok(()),
        some => Err(some),
    });
    assert_eq!(answers_to(500), 0);
}
