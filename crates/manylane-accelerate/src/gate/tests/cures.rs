//! The commands that reasons show, all of them.

use manylane_io::netlink::traffic::{Filter, Place, Qdisc};

use super::super::cure::Cure;
use super::*;

/// Each cure, with the command that it is. A variant without a row does not compile.
fn cures() -> Vec<(Cure, &'static str)> {
    let eth0 = || "eth0".to_owned();
    let all = vec![
        (Cure::LinkUp(eth0()), "ip link set dev eth0 up"),
        (Cure::Forwarding(eth0()), "sysctl -w net/ipv4/conf/eth0/forwarding=1"),
        (Cure::HashPolicy("ipv6"), "sysctl -w net.ipv6.fib_multipath_hash_policy=1"),
        (Cure::QuietNextHops, "sysctl -w net.ipv4.nexthop_compat_mode=0"),
        (Cure::Queues(eth0(), 4), "ethtool -L eth0 combined 4"),
        (Cure::Offload(eth0(), "tso", true), "ethtool -K eth0 tso on"),
        (Cure::Offload(eth0(), "rxvlan", false), "ethtool -K eth0 rxvlan off"),
    ];
    let has_row = |cure: &Cure| match cure {
        Cure::LinkUp(_)
        | Cure::Forwarding(_)
        | Cure::HashPolicy(_)
        | Cure::QuietNextHops
        | Cure::Queues(..)
        | Cure::Offload(..) => true,
    };
    assert!(all.iter().all(|(cure, _)| has_row(cure)));
    all
}

#[test]
fn each_cure_is_a_command_that_tunes() {
    for (cure, command) in cures() {
        assert_eq!(cure.to_string(), command);
    }
}

/// Names go to a shell.
#[test]
fn odd_names_are_quoted() {
    let odd = || "it's;".to_owned();
    assert_eq!(Cure::LinkUp(odd()).to_string(), r"ip link set dev 'it'\''s;' up");
    assert_eq!(
        Cure::Forwarding("eth0.7".into()).to_string(),
        "sysctl -w net/ipv4/conf/eth0.7/forwarding=1"
    );
    assert_eq!(Cure::Offload(odd(), "gro", true).to_string(), r"ethtool -K 'it'\''s;' gro on");
}

/// A router with a firewall, NAT, IPsec, a bridge, other programs, shapers and source checks: what protects it is
/// named, and no command goes with it.
#[test]
fn what_protects_a_router_comes_without_a_command() {
    let any = (IpAddr::from(Ipv4Addr::UNSPECIFIED), 0);
    let filter = || Filter { kind: "u32".into(), preference: 1 };
    let program = || Program { link: ETH0, id: 7, name: "guard".into(), is_behind: false };
    let facts = with(|facts| {
        let (inet, ip, netdev) = (TableFamily::Inet, TableFamily::Ip, TableFamily::Netdev);
        let mut tracking = chain(inet, Hook::Input, "filter", 3, true);
        tracking.tracking_rules = 1;
        facts.chains = vec![
            chain(inet, Hook::Forward, "filter", 1, true),
            chain(ip, Hook::Postrouting, "nat", 1, false),
            chain(netdev, Hook::Ingress, "filter", 1, false),
            tracking,
        ];
        facts.legacy = legacy(false, "filter", "FORWARD", 1, true);
        let (source, destination) = (any, any);
        let policy = |is_marked| Policy {
            index: 26,
            direction: "fwd",
            source,
            destination,
            blocks: true,
            is_marked,
        };
        facts.policies = Policies {
            transit: vec![policy(false), policy(true)],
            forward_is_blocked: true,
            out_is_blocked: true,
        };
        facts.kernel.links[0].master = Some(9);
        facts.kernel.links[0].xdp = Some(8);
        facts.kernel.links.push(Link { kind: Some("bridge".into()), ..link(9, "br0") });
        let kind = Some("macvlan".into());
        facts.kernel.links.push(Link { kind, lower: Some(ETH0), ..link(10, "mv0") });
        facts.kernel.netconf[2].rp_filter = Some(1);
        facts.programs = vec![program()];
        facts.egress_programs = vec![program()];
        facts.ingress_filters = vec![(ETH0, filter())];
        facts.egress_filters = vec![(ETH0, filter())];
        facts.qdiscs = vec![Qdisc { link: ETH0, kind: "tbf".into(), place: Place::Root }];
        facts.missing_capabilities = vec!["CAP_BPF"];
    });
    let [Standing { reasons, notes, driver, .. }, _] = stand(&facts);
    let all = [reasons, notes, driver.ingress, driver.egress, driver.sends].concat();
    let protects = |reason: &&Reason| {
        use About::{Capabilities, Conntrack, Member, Nat, Netfilter, Parent, Programs};
        use About::{ReversePath, TrafficControl, Xfrm};
        let protecting = [
            Capabilities,
            Conntrack,
            Member,
            Nat,
            Netfilter,
            Parent,
            Programs,
            ReversePath,
            TrafficControl,
            Xfrm,
        ];
        protecting.contains(&reason.about)
    };
    let protecting: Vec<_> = all.iter().filter(protects).collect();
    assert!(protecting.len() >= 15, "{all:#?}");
    for reason in protecting {
        assert_eq!(reason.command, None, "{reason}");
    }
}
