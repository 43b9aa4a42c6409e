//! Rules that need connection tracking, where they are all that has packets tracked.

use super::{
    Chain, NFTA_RULE_CHAIN, NFTA_RULE_EXPRESSIONS, NFTA_RULE_TABLE, Table, TableFamily, open,
};
use crate::netlink::plain::{attribute, attributes, text};

/// The families of tables whose rules may be all that has packets tracked: none of those that are tracked for such a rule
/// (`nf_ct_netns_get`), of IPv4 or IPv6, traverses a busy chain.
pub(super) fn undecided(tables: &[Table], chains: &[Chain]) -> Vec<TableFamily> {
    use TableFamily::{Bridge, Inet, Ip, Ip6};
    let is_filtered = |own| {
        let busy = chains.iter().filter(|chain| chain.is_busy() && chain.is_on_the_way());
        busy.into_iter().any(|chain| chain.family == Inet || chain.family == own)
    };
    let filtered = [Ip, Ip6].map(is_filtered);
    let is_decided = |family| match family {
        Ip => filtered[0],
        Ip6 => filtered[1],
        _ => filtered == [true; 2],
    };
    let is_there = |family: &TableFamily| tables.iter().any(|table| table.family == *family);
    let tracking = [Inet, Ip, Ip6, Bridge].into_iter().filter(is_there);
    tracking.filter(|&family| !is_decided(family)).collect()
}

/// The location of a rule, if it needs connection tracking.
pub(super) fn tracking_rule(bytes: &[u8]) -> Option<(TableFamily, String, String)> {
    let (family, bytes) = open(bytes)?;
    let tracks = |expression: &[u8]| {
        let Some(name) = attribute(expression, NFTA_EXPR_NAME).map(text) else { return false };
        // iptables-nft: an expression that holds an iptables match or target.
        let compatible =
            || Some(text(attribute(attribute(expression, NFTA_EXPR_DATA)?, NFTA_COMPAT_NAME)?));
        TRACKING.contains(&name.as_str())
            || matches!(name.as_str(), "match" | "target")
                && compatible().is_some_and(|name| TRACKING_COMPATIBLE.contains(&name.as_str()))
    };
    let expressions = attribute(bytes, NFTA_RULE_EXPRESSIONS).unwrap_or_default();
    attributes(expressions).any(|(_, expression)| tracks(expression)).then_some(())?;
    let part = |kind| attribute(bytes, kind).map(text);
    Some((family, part(NFTA_RULE_TABLE)?, part(NFTA_RULE_CHAIN)?))
}

/// Expressions that enable connection tracking (`nf_ct_netns_get`).
const TRACKING: [&str; 8] =
    ["ct", "nat", "masq", "redir", "connlimit", "synproxy", "flow_offload", "ct_helper"];
/// The iptables matches and targets among them.
const TRACKING_COMPATIBLE: [&str; 18] = [
    "conntrack",
    "state",
    "connmark",
    "connlimit",
    "connbytes",
    "connlabel",
    "helper",
    "cluster",
    "CT",
    "CONNMARK",
    "CONNSECMARK",
    "MASQUERADE",
    "SNAT",
    "DNAT",
    "REDIRECT",
    "NETMAP",
    "SYNPROXY",
    "CLUSTERIP",
];

const NFTA_EXPR_NAME: u16 = 1;
const NFTA_EXPR_DATA: u16 = 2;
/// `NFTA_MATCH_NAME` and `NFTA_TARGET_NAME`.
const NFTA_COMPAT_NAME: u16 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::nftables::{Base, Hook};
    use crate::netlink::plain::tests::put;

    #[test]
    fn a_rule_that_tracks_is_found_by_its_expressions() {
        let rule = |expressions: &[Vec<u8>]| {
            let list = expressions.iter().flat_map(|expression| put(1 | 0x8000, expression));
            let attributes = [
                put(NFTA_RULE_TABLE, b"t\0"),
                put(NFTA_RULE_CHAIN, b"c\0"),
                put(NFTA_RULE_EXPRESSIONS | 0x8000, &list.collect::<Vec<_>>()),
            ];
            let bytes = [vec![2, 0, 0, 0], attributes.concat()].concat();
            tracking_rule(&bytes)
        };
        let plain = |name: &[u8]| put(NFTA_EXPR_NAME, name);
        let found = Some((TableFamily::Ip, "t".to_owned(), "c".to_owned()));
        assert_eq!(rule(&[plain(b"meta\0"), plain(b"cmp\0")]), None);
        assert_eq!(rule(&[plain(b"meta\0"), plain(b"masq\0")]), found);
        let compatible = |name: &[u8]| {
            [plain(b"match\0"), put(NFTA_EXPR_DATA | 0x8000, &put(NFTA_COMPAT_NAME, name))].concat()
        };
        assert_eq!(rule(&[compatible(b"tcp\0")]), None);
        assert_eq!(rule(&[compatible(b"conntrack\0")]), found);
    }

    #[test]
    fn only_rules_that_decide_are_read() {
        let table = |family| Table { family, name: "t".into(), is_dormant: false, owner: None };
        let busy = |family| Chain {
            family,
            table: "t".into(),
            name: "c".into(),
            base: Some(Base {
                hook: Hook::Forward,
                priority: 0,
                kind: "filter".into(),
                drops: false,
                devices: Vec::new(),
            }),
            uses: 1,
            tracking_rules: 0,
            is_dormant: false,
            owner: None,
        };
        use TableFamily::{Arp, Bridge, Inet, Ip, Ip6, Netdev};
        let tables = [Ip, Ip6, Bridge, Netdev, Arp].map(table);
        for (on_the_way, wanted) in [
            (&[][..], &[Ip, Ip6, Bridge][..]),
            (&[Ip], &[Ip6, Bridge]),
            (&[Ip6], &[Ip, Bridge]),
            (&[Ip, Ip6], &[]),
            (&[Inet], &[]),
            (&[Bridge], &[Ip, Ip6, Bridge]),
        ] {
            let chains: Vec<_> = on_the_way.iter().map(|&family| busy(family)).collect();
            assert_eq!(undecided(&tables, &chains), wanted, "{on_the_way:?}");
        }
    }
}
