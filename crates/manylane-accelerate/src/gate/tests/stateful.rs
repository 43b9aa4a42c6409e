//! On terms under which connections are forwarded one by one: what keeps no port in the kernel then, and what still does.

use manylane_io::netlink::nftables::FlowTable;

use super::*;

const STATEFUL: Terms = Terms { bypass: Bypass { netfilter: false }, stateful: true };
const V4: Stateful = Stateful { v4: true, v6: false };
const V6: Stateful = Stateful { v4: false, v6: true };

/// A chain of this family with a connection's state in a rule, that no routed packet passes.
fn tracks(family: TableFamily) -> Chain {
    Chain { tracking_rules: 1, ..chain(family, Hook::Input, "filter", 1, false) }
}

fn by_connection(facts: &Facts, terms: Terms) -> [Standing; 2] {
    [0, 1].map(|place| judge(facts, &facts.kernel.links[place], terms))
}

#[test]
fn rules_that_all_packets_meet_make_their_family_stateful() {
    use TableFamily::{Bridge, Inet, Ip, Ip6};
    let forward = |family| chain(family, Hook::Forward, "filter", 2, true);
    let nat = |family| chain(family, Hook::Postrouting, "nat", 1, false);
    let with_legacy = |is_v6| {
        move |facts: &mut Facts| facts.legacy = legacy(is_v6, "nat", "POSTROUTING", 1, false)
    };
    let with_chains = |chains: &[Chain]| {
        let chains = chains.to_vec();
        with(move |facts| facts.chains = chains)
    };
    for (facts, wanted, about) in [
        (with_chains(&[forward(Inet)]), Stateful::BOTH, &[About::Netfilter][..]),
        (with_chains(&[forward(Ip)]), V4, &[About::Netfilter]),
        (with_chains(&[chain(Ip6, Hook::Prerouting, "filter", 1, false)]), V6, &[About::Netfilter]),
        (with_chains(&[nat(Ip), forward(Ip6)]), Stateful::BOTH, &[About::Nat, About::Netfilter]),
        (with(with_legacy(false)), V4, &[About::Nat]),
        (with(with_legacy(true)), V6, &[About::Nat]),
        (with(|facts| facts.legacy.tracking = vec![(true, "raw".into())]), V6, &[About::Conntrack]),
        (with_chains(&[tracks(Inet)]), Stateful::BOTH, &[About::Conntrack]),
        (with_chains(&[tracks(Bridge)]), Stateful::BOTH, &[About::Conntrack]),
        // Tracked where it is not filtered: packets of IPv6 would be missing there.
        (
            with_chains(&[forward(Ip), tracks(Ip6)]),
            Stateful::BOTH,
            &[About::Netfilter, About::Conntrack],
        ),
        (with_chains(&[forward(Ip), tracks(Ip)]), V4, &[About::Netfilter]),
        (with_chains(&[chain(Inet, Hook::Input, "filter", 3, true)]), Stateful::default(), &[]),
    ] {
        assert_eq!(stateful(&facts, STATEFUL), wanted, "{facts:#?}");
        for standing in by_connection(&facts, STATEFUL) {
            let is_free = standing.is_free() && standing.is_ingress && standing.is_egress;
            assert!(is_free && standing.tier == Tier::Ingress, "{standing:#?}");
            let said: Vec<_> = standing.notes.iter().map(|note| note.about).collect();
            assert_eq!(said, about, "{standing:#?}");
            assert!(standing.notes.iter().all(|note| note.is_everywhere && note.command.is_none()));
        }
        // On other terms they keep all packets.
        assert_eq!(stateful(&facts, Terms::default()), Stateful::default());
        assert!(stand(&facts).iter().all(|standing| standing.reasons.len() == about.len()));
    }
}

#[test]
fn what_rules_and_connections_do_not_cover_stays_a_reason() {
    let forward = || chain(TableFamily::Inet, Hook::Forward, "filter", 2, true);
    let at_device = |hook| chain(TableFamily::Netdev, hook, "filter", 1, false);
    for (facts, about, eth0, eth1) in [
        (
            with(|facts| facts.chains = vec![forward(), at_device(Hook::Ingress)]),
            About::Netfilter,
            EGRESS_ONLY,
            FREE,
        ),
        (
            with(|facts| facts.chains = vec![forward(), at_device(Hook::Egress)]),
            About::Netfilter,
            INGRESS_ONLY,
            FREE,
        ),
        (
            with(|facts| {
                facts.chains = vec![forward()];
                facts.policies.out_is_blocked = true;
            }),
            About::Xfrm,
            KEPT,
            KEPT,
        ),
        (
            with(|facts| {
                facts.chains = vec![forward()];
                facts.unknown = vec!["cannot read the flow tables of nftables: no".into()];
            }),
            About::Unknown,
            KEPT,
            KEPT,
        ),
    ] {
        assert!(stateful(&facts, STATEFUL).any());
        let stands = by_connection(&facts, STATEFUL);
        for (standing, allowed) in stands.iter().zip([eth0, eth1]) {
            assert_eq!([standing.is_ingress, standing.is_egress], allowed, "{standing:#?}");
        }
        assert_eq!(stands[0].reasons.len(), 1, "{:#?}", stands[0]);
        assert_eq!(stands[0].reasons[0].about, about);
    }
}

#[test]
fn a_flow_table_that_rules_fill_keeps_everything() {
    let flow_table = |uses| {
        let (family, table, name) = (TableFamily::Inet, "fw".into(), "fast".into());
        FlowTable { family, table, name, uses }
    };
    let with_uses = |uses| {
        with(|facts| {
            facts.chains = vec![chain(TableFamily::Inet, Hook::Forward, "filter", 2, true)];
            facts.flow_tables = vec![flow_table(uses)];
        })
    };
    for standing in by_connection(&with_uses(2), STATEFUL) {
        assert!(!standing.is_ingress && !standing.is_egress, "{standing:#?}");
        let [reason] = &standing.reasons[..] else { panic!("one reason: {standing:#?}") };
        assert_eq!((reason.about, reason.is_everywhere), (About::FlowTable, true));
        let words = "table inet fw, flowtable fast: 2 rules add connections (flow add)";
        assert_eq!((reason.what.as_str(), &reason.command), (words, &None));
    }
    assert!(by_connection(&with_uses(0), STATEFUL).iter().all(Standing::is_free));
    // Without a forwarder of connections the chain says it all.
    assert!(stand(&with_uses(2)).iter().all(|standing| standing.reasons.len() == 1));
}

/// All packets skip what is overridden: none has to belong to a connection.
#[test]
fn what_is_overridden_makes_no_family_stateful() {
    let terms = Terms { bypass: Bypass { netfilter: true }, stateful: true };
    let facts = with(|facts| {
        facts.chains = vec![chain(TableFamily::Ip, Hook::Postrouting, "nat", 1, false)];
    });
    assert_eq!(stateful(&facts, terms), Stateful::default());
    for standing in by_connection(&facts, terms) {
        assert!(standing.is_free() && standing.notes.is_empty(), "{standing:#?}");
        assert_eq!(standing.bypassed.len(), 1);
    }
}
