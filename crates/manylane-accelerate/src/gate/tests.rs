//! The judgement, reason by reason.

use std::net::{IpAddr, Ipv4Addr};

use manylane_io::iptables::{Legacy, LegacyChain};
use manylane_io::netlink::kernel::{Family, Link, Netconf, Rule};
use manylane_io::netlink::nftables::{Base, Chain, Hook, TableFamily};
use manylane_io::netlink::xfrm::{Policies, Policy};

use super::*;
use manylane_mirror::{RefusedRules, refused_rules};

mod cures;
mod device;
mod driver;
mod stateful;

const ETH0: u32 = 2;
const ETH1: u32 = 3;

pub(super) fn link(index: u32, name: &str) -> Link {
    Link {
        index,
        name: name.into(),
        kind: Some("veth".into()),
        mac: Some([2, 0, 0, 0, 0, index as u8]),
        mtu: 1500,
        flags: 0x1_0001, // Up, with a carrier.
        operstate: 6,
        master: None,
        member_kind: None,
        lower: None,
        lower_is_elsewhere: false,
        vlan: None,
        queues: (4, 4),
        qdisc: "noqueue".into(),
        xdp: None,
    }
}

fn netconf(link: i32, family: Family, forwarding: bool) -> Netconf {
    Netconf {
        link,
        family,
        forwarding: Some(forwarding),
        rp_filter: (family == Family::V4).then_some(0),
        ignore_routes_with_linkdown: None,
    }
}

/// A router of two interfaces where nothing is in the way.
fn router() -> Facts {
    let numbers = [-1, ETH0 as i32, ETH1 as i32];
    let both = |link| [Family::V4, Family::V6].map(|family| netconf(link, family, true));
    Facts {
        kernel: Kernel {
            links: vec![link(ETH0, "eth0"), link(ETH1, "eth1")],
            netconf: numbers.into_iter().flat_map(both).collect(),
            ..Kernel::default()
        },
        interfaces: vec![ETH0, ETH1],
        version: (6, 18),
        cores: 4,
        ..Facts::default()
    }
}

fn chain(family: TableFamily, hook: Hook, kind: &str, uses: u32, drops: bool) -> Chain {
    let is_at_device = matches!(hook, Hook::Ingress | Hook::Egress);
    Chain {
        family,
        table: "t".into(),
        name: "c".into(),
        base: Some(Base {
            hook,
            priority: 0,
            kind: kind.into(),
            drops,
            devices: if is_at_device { vec!["eth0".into()] } else { vec![] },
        }),
        uses,
        tracking_rules: 0,
        is_dormant: false,
        owner: None,
    }
}

/// How eth0 and eth1 stand.
fn stand(facts: &Facts) -> [Standing; 2] {
    [0, 1].map(|place| judge(facts, &facts.kernel.links[place], Terms::default()))
}

/// One reason, with what it says and its command, if one may be shown; whether eth0 is ingress and egress, and eth1 is.
struct Case {
    facts: Facts,
    about: About,
    what: &'static str,
    command: Option<&'static str>,
    eth0: [bool; 2],
    eth1: [bool; 2],
}

const FREE: [bool; 2] = [true, true];
const KEPT: [bool; 2] = [false, false];
const EGRESS_ONLY: [bool; 2] = [false, true];
const INGRESS_ONLY: [bool; 2] = [true, false];

fn check(cases: impl IntoIterator<Item = Case>) {
    for Case { facts, about, what, command, eth0, eth1 } in cases {
        let stands = stand(&facts);
        for (standing, [is_ingress, is_egress]) in stands.iter().zip([eth0, eth1]) {
            let tier = if is_ingress { Tier::Ingress } else { Tier::Kernel };
            assert_eq!(
                (standing.is_ingress, standing.is_egress),
                (is_ingress, is_egress),
                "{standing:#?}"
            );
            assert_eq!(standing.tier, tier, "{standing:#?}");
        }
        let said = &stands[0].reasons;
        let [reason] = &said[..] else { panic!("one reason, {what}: {said:#?}") };
        assert_eq!(reason.about, about, "{reason}");
        assert!(reason.what.contains(what), "{:?} has to contain {what:?}", reason.what);
        assert_eq!(reason.command.as_deref(), command, "{what}");
        assert!(!reason.why.is_empty());
        assert_eq!(reason.is_everywhere, eth0 == eth1, "{reason}");
    }
}

/// The usual router, and something.
fn with(change: impl FnOnce(&mut Facts)) -> Facts {
    let mut facts = router();
    change(&mut facts);
    facts
}

fn everywhere(
    about: About,
    what: &'static str,
    command: Option<&'static str>,
    change: impl FnOnce(&mut Facts),
) -> Case {
    Case { facts: with(change), about, what, command, eth0: KEPT, eth1: KEPT }
}

fn at_eth0(
    about: About,
    what: &'static str,
    command: Option<&'static str>,
    eth0: [bool; 2],
    change: impl FnOnce(&mut Facts),
) -> Case {
    Case { facts: with(change), about, what, command, eth0, eth1: FREE }
}

#[test]
fn where_nothing_is_in_the_way_both_are_free() {
    for standing in stand(&router()) {
        assert!(standing.is_free() && standing.is_ingress && standing.is_egress, "{standing:#?}");
        assert_eq!((standing.tier, standing.notes), (Tier::Ingress, vec![]));
    }
}

#[test]
fn what_this_process_and_kernel_cannot_do_keeps_everything() {
    check([
        everywhere(About::KernelVersion, "Linux 6.5", None, |facts| facts.version = (6, 5)),
        everywhere(About::Capabilities, "lacks CAP_BPF, CAP_NET_ADMIN", None, |facts| {
            facts.missing_capabilities = vec!["CAP_BPF", "CAP_NET_ADMIN"]
        }),
        everywhere(About::Unknown, "cannot read the chains", None, |facts| {
            facts.unknown = vec!["cannot read the chains: no".into()];
        }),
    ]);
}

#[test]
fn chains_that_do_something_to_routed_packets_keep_everything() {
    use TableFamily::{Inet, Ip, Ip6};
    let case = |family, hook, kind, uses, drops, about, what| {
        everywhere(about, what, None, move |facts| {
            facts.chains = vec![chain(family, hook, kind, uses, drops)];
        })
    };
    let filter = |family, hook, uses, drops, what| {
        case(family, hook, "filter", uses, drops, About::Netfilter, what)
    };
    check([
        filter(Inet, Hook::Forward, 0, true, "(filter at forward): policy drop"),
        filter(Inet, Hook::Prerouting, 1, false, "inet t, chain c (filter at prerouting): 1 rule"),
        filter(
            Ip,
            Hook::Forward,
            2,
            true,
            "ip t, chain c (filter at forward): 2 rules, policy drop",
        ),
        filter(Ip6, Hook::Postrouting, 3, false, "ip6 t, chain c (filter at postrouting): 3 rules"),
        case(Ip, Hook::Postrouting, "nat", 1, false, About::Nat, "(nat at postrouting): 1 rule"),
    ]);
}

#[test]
fn chains_at_a_device_keep_what_comes_in_or_goes_out_there() {
    let case = |family, hook, eth0, what| {
        at_eth0(About::Netfilter, what, None, eth0, move |facts| {
            facts.chains = vec![chain(family, hook, "filter", 1, false)];
        })
    };
    use TableFamily::{Inet, Netdev};
    check([
        case(Netdev, Hook::Ingress, EGRESS_ONLY, "at ingress of eth0): 1 rule"),
        case(Inet, Hook::Ingress, EGRESS_ONLY, "at ingress of eth0): 1 rule"),
        case(Netdev, Hook::Egress, INGRESS_ONLY, "at egress of eth0): 1 rule"),
    ]);
}

/// The chains exist, and no routed packet meets a rule.
#[test]
fn chains_that_do_nothing_to_routed_packets_do_not_matter() {
    let dormant = Chain {
        is_dormant: true,
        tracking_rules: 1,
        ..chain(TableFamily::Inet, Hook::Forward, "filter", 3, true)
    };
    let jumped_to =
        Chain { base: None, ..chain(TableFamily::Ip, Hook::Forward, "filter", 3, false) };
    for harmless in [
        chain(TableFamily::Inet, Hook::Forward, "filter", 0, false),
        chain(TableFamily::Inet, Hook::Input, "filter", 3, true),
        chain(TableFamily::Ip, Hook::Output, "filter", 3, true),
        chain(TableFamily::Bridge, Hook::Forward, "filter", 3, true),
        chain(TableFamily::Arp, Hook::Input, "filter", 3, true),
        chain(TableFamily::Netdev, Hook::Ingress, "filter", 0, false),
        dormant,
        jumped_to,
    ] {
        let facts = with(|facts| facts.chains = vec![harmless]);
        assert!(stand(&facts).iter().all(Standing::is_free), "{:#?}", facts.chains);
    }
}

#[test]
fn a_table_that_a_program_owns_has_no_command() {
    let mut owned = chain(TableFamily::Inet, Hook::Forward, "filter", 1, false);
    owned.owner = Some(4711);
    let facts = with(|facts| facts.chains = vec![owned]);
    let [standing, _] = stand(&facts);
    assert_eq!(standing.reasons[0].command, None);
    assert!(standing.reasons[0].why.contains("process 4711"), "{}", standing.reasons[0]);
}

fn legacy(is_v6: bool, table: &str, chain: &'static str, rules: usize, drops: bool) -> Legacy {
    let chains = vec![LegacyChain { is_v6, table: table.into(), chain, rules, drops }];
    Legacy { chains, tracking: vec![(is_v6, table.into())], ..Legacy::default() }
}

#[test]
fn legacy_iptables_keeps_everything() {
    check([
        everywhere(
            About::Netfilter,
            "legacy iptables, IPv4, table filter, chain FORWARD: policy drop",
            None,
            |facts| facts.legacy = legacy(false, "filter", "FORWARD", 0, true),
        ),
        everywhere(
            About::Nat,
            "legacy iptables, IPv6, table nat, chain POSTROUTING: 1 rule",
            None,
            |facts| facts.legacy = legacy(true, "nat", "POSTROUTING", 1, false),
        ),
    ]);
}

/// A firewall of the router itself: its hooks are in the way of all packets, though no rule is.
#[test]
fn connection_tracking_for_others_keeps_everything() {
    let mut input = chain(TableFamily::Inet, Hook::Input, "filter", 3, true);
    input.tracking_rules = 1;
    check([
        everywhere(
            About::Conntrack,
            "table inet t, chain c: a rule with connection tracking",
            None,
            |facts| facts.chains = vec![input],
        ),
        everywhere(
            About::Conntrack,
            "legacy iptables, IPv4, table filter: rules with connection tracking",
            None,
            |facts| facts.legacy.tracking = vec![(false, "filter".into())],
        ),
    ]);
}

#[test]
fn ipsec_keeps_everything() {
    let any = (IpAddr::from(Ipv4Addr::UNSPECIFIED), 0);
    let policy = |direction, blocks, is_marked| {
        let policy =
            Policy { index: 26, direction, source: any, destination: any, blocks, is_marked };
        Policies { transit: vec![policy], ..Policies::default() }
    };
    let case =
        |what, policies| everywhere(About::Xfrm, what, None, |facts| facts.policies = policies);
    check([
        case("policy 26 (fwd) blocks 0.0.0.0/0 to 0.0.0.0/0", policy("fwd", true, false)),
        case("policy 26 (out) for 0.0.0.0/0", policy("out", false, false)),
        case("policy 26 (fwd) for", policy("fwd", false, true)),
        case(
            "blocks by default (fwd)",
            Policies { forward_is_blocked: true, ..Policies::default() },
        ),
        case("blocks by default (out)", Policies { out_is_blocked: true, ..Policies::default() }),
    ]);
}

fn rule(family: Family, priority: u32, table: u32) -> Rule {
    Rule {
        family,
        priority,
        action: 1,
        table,
        from: None,
        to: None,
        iif: None,
        tos: 0,
        flags: 0,
        others: vec![],
        rest: vec![],
    }
}

#[test]
fn routing_rules_that_cannot_be_followed_keep_everything() {
    let usual = [(0, 255), (32_766, 254), (32_767, 253)];
    let both = [Family::V4, Family::V6];
    let rules = both.map(|family| usual.map(|(priority, table)| rule(family, priority, table)));
    let mut rules = rules.concat();
    assert_eq!(refused_rules(&rules, &[]), []);
    // One more, which can be.
    let from = Some((IpAddr::from([10, 0, 0, 0]), 8));
    rules.insert(1, Rule { from, others: vec!["mark"], ..rule(Family::V4, 100, 7) });
    assert_eq!(refused_rules(&rules, &[]), []);
    let last = rules.pop().expect("it has some");
    assert_eq!(last.table, 253);
    rules.push(Rule { flags: 2, iif: Some("eth0".into()), ..rule(Family::V6, 40_000, 254) });
    rules.retain(|rule| rule.family == Family::V4 || rule.priority != 32_766);
    rules.remove(0);
    let found = refused_rules(&rules, &[]);
    let case = |what, place: usize| {
        let refused: RefusedRules = found[place].clone();
        everywhere(About::Rules, what, None, |facts| {
            facts.kernel.refused_rules = vec![refused];
        })
    };
    check([
        case("does not read the table local: ip -4 rule 100: from 10.0.0.0/8 [mark] lookup 7", 0),
        case("no rule of `ip -6 rule` reads the table main", 1),
    ]);
}

/// By name, shown; and nothing else is.
#[test]
fn only_netfilter_can_be_overridden() {
    let bypass = Bypass::named(&["netfilter"]).expect("it is its name");
    let facts = with(|facts| {
        facts.chains = vec![chain(TableFamily::Ip, Hook::Postrouting, "nat", 1, false)];
        facts.legacy = legacy(false, "filter", "FORWARD", 1, false);
    });
    let standing = judge(&facts, &facts.kernel.links[0], bypass.into());
    assert!(standing.is_free() && standing.is_ingress && standing.is_egress, "{standing:#?}");
    assert_eq!(standing.bypassed.len(), 2, "{standing:#?}");

    let blocked = Policies { forward_is_blocked: true, ..Policies::default() };
    let facts = Facts { policies: blocked, ..facts };
    let standing = judge(&facts, &facts.kernel.links[0], bypass.into());
    assert_eq!((standing.reasons.len(), standing.bypassed.len()), (1, 2), "{standing:#?}");

    let unknown = Bypass::named(&["xfrm"]).expect_err("it cannot be");
    assert_eq!(unknown.to_string(), "\"xfrm\" cannot be bypassed; use \"netfilter\"");
}
