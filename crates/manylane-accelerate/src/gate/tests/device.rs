//! What is found at one interface, and what is only noted.

use manylane_io::netlink::traffic::{Filter, Place, Qdisc};

use super::*;

#[test]
fn a_device_that_is_not_one_of_ours_is_kept() {
    let case = |about, what, command, eth0, change: fn(&mut Vec<Link>)| {
        at_eth0(about, what, command, eth0, |facts| change(&mut facts.kernel.links))
    };
    let device = |what, change| case(About::Device, what, None, KEPT, change);
    check([
        device("eth0 is the loopback", |links| links[0].flags |= 8),
        device("eth0 has no Ethernet address", |links| links[0].mac = None),
        device("eth0 has no Ethernet address", |links| links[0].mac = Some([0; 6])),
        case(About::Down, "eth0 is down", Some("ip link set dev eth0 up"), KEPT, |links| {
            links[0].flags = 0;
        }),
        case(About::Member, "eth0 is a member of bridge br0", None, KEPT, |links| {
            links[0].master = Some(9);
            links.push(Link { kind: Some("bridge".into()), ..link(9, "br0") });
        }),
        case(About::Member, "eth0 is a member of bond interface 9", None, KEPT, |links| {
            (links[0].master, links[0].member_kind) = (Some(9), Some("bond".into()))
        }),
        case(About::Parent, "macvlan mv0 is on eth0", None, EGRESS_ONLY, |links| {
            let kind = Some("macvlan".into());
            links.push(Link { kind, lower: Some(ETH0), ..link(9, "mv0") });
        }),
    ]);
    // The attack: a command that makes the host a router, where its bridge only has to forward frames.
    let facts = with(|facts| {
        facts.kernel.links[0].master = Some(9);
        forwarding(facts, ETH0 as i32, Family::V4, false);
        forwarding(facts, ETH0 as i32, Family::V6, false);
    });
    let reasons = &stand(&facts)[0].reasons;
    let [Reason { about: About::Member, command: None, .. }] = &reasons[..] else {
        panic!("a member's own forwarding is no news: {reasons:#?}")
    };
    // A VLAN takes only its own, which our program sees; a veth's peer takes nothing.
    for kind in ["vlan", "veth"] {
        let facts = with(|facts| {
            let kind = Some(kind.into());
            facts.kernel.links.push(Link { kind, lower: Some(ETH0), ..link(9, "eth0.7") });
        });
        assert!(stand(&facts).iter().all(Standing::is_free), "{kind}");
    }
    let mut far = router();
    far.kernel.links[0].index = 65_536;
    for family in [Family::V4, Family::V6] {
        far.kernel.netconf.push(netconf(65_536, family, true));
    }
    let [standing, _] = stand(&far);
    assert!(standing.reasons[0].what.contains("number 65536"), "{standing:#?}");
    assert_eq!((standing.reasons.len(), standing.is_egress), (1, false));
}

fn forwarding(facts: &mut Facts, link: i32, family: Family, is_on: bool) {
    let is_it = |netconf: &&mut Netconf| netconf.link == link && netconf.family == family;
    facts.kernel.netconf.iter_mut().find(is_it).expect("it is there").forwarding = Some(is_on);
}

#[test]
fn without_forwarding_nothing_comes_in_to_be_forwarded() {
    check([at_eth0(
        About::Forwarding,
        "forwarding is off on eth0, IPv4 and IPv6",
        Some("sysctl -w net/ipv4/conf/eth0/forwarding=1"),
        EGRESS_ONLY,
        |facts| {
            forwarding(facts, ETH0 as i32, Family::V4, false);
            forwarding(facts, ETH0 as i32, Family::V6, false);
        },
    )]);
    // One family continues without the other.
    for (link, family, said) in [
        (ETH0 as i32, Family::V4, "forwarding of IPv4 is off"),
        (-1, Family::V6, "forwarding of IPv6 is off"),
    ] {
        let facts = with(|facts| forwarding(facts, link, family, false));
        let [standing, _] = stand(&facts);
        assert!(standing.is_free(), "{standing:#?}");
        assert_eq!(standing.notes[0].what, said);
        assert!(!facts.kernel.forwards(ETH0, family));
    }
    // No message has said that the setting is on.
    assert!(!Kernel::default().forwards(ETH0, Family::V4));
}

fn filters() -> Vec<(u32, Filter)> {
    vec![(ETH0, Filter { kind: "u32".into(), preference: 49_152 })]
}

#[test]
fn filters_of_traffic_control_keep_what_comes_in_there() {
    check([at_eth0(
        About::TrafficControl,
        "at ingress of eth0: u32 (preference 49152)",
        None,
        EGRESS_ONLY,
        |facts| facts.ingress_filters = filters(),
    )]);
}

/// What is only said: it keeps nothing in the kernel as a whole.
#[test]
fn what_does_not_keep_anything_is_said() {
    type Change = fn(&mut Facts);
    let notes: [(About, &str, Option<&str>, Change); 15] = [
        (About::TrafficControl, "at egress of eth0: u32", None, |facts| {
            facts.egress_filters = filters()
        }),
        (About::TrafficControl, "qdisc tbf on eth0", None, |facts| {
            facts.qdiscs = vec![Qdisc { link: ETH0, kind: "tbf".into(), place: Place::Root }];
        }),
        (About::Encapsulation, "a route wraps packets", None, |facts| {
            facts.kernel.encapsulated_routes = 1
        }),
        (About::Encapsulation, "7 routes wrap packets", None, |facts| {
            facts.kernel.encapsulated_routes = 7
        }),
        (
            About::Multipath,
            "net.ipv4.fib_multipath_hash_policy is 2",
            Some("sysctl -w net.ipv4.fib_multipath_hash_policy=1"),
            |facts| facts.multipath_hash_policy = [2, 1],
        ),
        (
            About::Multipath,
            "net.ipv6.fib_multipath_hash_policy is 3",
            Some("sysctl -w net.ipv6.fib_multipath_hash_policy=1"),
            |facts| facts.multipath_hash_policy = [0, 3],
        ),
        (About::ReversePath, "rp_filter is strict (1) on eth0", None, |facts| {
            facts.kernel.netconf[2].rp_filter = Some(1)
        }),
        (About::ReversePath, "rp_filter is loose (2) on eth0", None, |facts| {
            facts.kernel.netconf[2].rp_filter = Some(1);
            facts.kernel.netconf[0].rp_filter = Some(2); // The greater one, of all.
        }),
        (About::Programs, "program 7 (cil) is attached", None, |facts| {
            facts.programs =
                vec![Program { link: ETH0, id: 7, name: "cil".into(), is_behind: false }];
        }),
        (About::Programs, "XDP program 8 is on eth0", None, |facts| {
            facts.kernel.links[0].xdp = Some(8);
        }),
        (
            About::NextHops,
            "nexthop_compat_mode is 1",
            Some("sysctl -w net.ipv4.nexthop_compat_mode=0"),
            |facts| facts.repeats_next_hops = true,
        ),
        (About::Mtu, "MTU of eth0 is 9000, that of eth1 is 1500", None, |facts| {
            facts.kernel.links[0].mtu = 9000;
        }),
        (
            About::Queues,
            "one receive queue, and this machine 4",
            Some("ethtool -L eth0 combined 4"),
            |facts| {
                facts.kernel.links[0].queues = (1, 4);
            },
        ),
        (
            About::Offloads,
            "tcp-segmentation-offload is off on eth0",
            Some("ethtool -K eth0 tso on"),
            // The GRO of a veth does not matter.
            |facts| facts.offloads = vec![offloads(false, false)],
        ),
        (
            About::Offloads,
            "generic-receive-offload is off on eth0",
            Some("ethtool -K eth0 gro on"),
            |facts| {
                facts.kernel.links[0].kind = None;
                facts.offloads = vec![offloads(false, true)];
            },
        ),
    ];
    for (about, what, command, change) in notes {
        let [standing, other] = stand(&with(change));
        assert!(standing.is_free() && other.is_free(), "{standing:#?}");
        let [note] = &standing.notes[..] else { panic!("one note, {what}: {:#?}", standing.notes) };
        assert_eq!((note.about, note.command.as_deref()), (about, command));
        assert!(note.what.contains(what), "{:?} has to contain {what:?}", note.what);
        assert!(!note.is_everywhere || other.notes == standing.notes, "{note}");
    }
}

fn offloads(gro: bool, tso: bool) -> Offloads {
    Offloads { link: ETH0, gro, tso, takes_tags_off: false }
}
