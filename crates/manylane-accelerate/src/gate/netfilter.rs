//! What netfilter would do to a routed packet.

use manylane_io::netlink::kernel::Link;
use manylane_io::netlink::nftables::{Base, Chain, FlowTable, Hook, TableFamily};

use super::facts::Facts;
use super::reason::{About, Concerns, Reason};
use super::terms::{Stateful, Terms};

/// What all routed packets of the namespace meet.
#[derive(Default)]
pub(super) struct Met {
    /// What keeps all ports in the kernel.
    pub reasons: Vec<Reason>,
    /// What keeps none there, since only connections are forwarded that it accepts.
    pub notes: Vec<Reason>,
    /// The families of those connections.
    pub stateful: Stateful,
}

/// Finds what all routed packets meet.
pub(super) fn in_namespace(facts: &Facts, terms: Terms) -> Met {
    let found = rules_and_tracking(facts);
    // What is overridden is skipped by all packets, so no connection has to be known.
    if !terms.stateful || terms.bypass.netfilter {
        let reasons = found.into_iter().map(|(_, reason)| reason).collect();
        return Met { reasons, ..Met::default() };
    }
    let mut met = Met { reasons: flow_tables(facts), ..Met::default() };
    for (families, reason) in found {
        met.stateful = met.stateful.or(families);
        met.notes.push(Reason { why: BY_CONNECTION.into(), ..reason });
    }
    met
}

/// Rules, and where a family meets none, connection tracking by rules elsewhere; each with the families concerned.
fn rules_and_tracking(facts: &Facts) -> Vec<(Stateful, Reason)> {
    let mut found = Vec::new();
    let mut filtered = Stateful::default();
    for (chain, base) in facts.chains.iter().filter_map(busy) {
        if chain.is_on_the_way() {
            let families = families(chain.family);
            filtered = filtered.or(families);
            found.push((families, reason(chain, base)));
        }
    }
    for chain in &facts.legacy.chains {
        let families = Stateful::only(chain.is_v6);
        filtered = filtered.or(families);
        let what = format!(
            "legacy iptables, {}, table {}, chain {}: {}",
            version(chain.is_v6),
            chain.table,
            chain.chain,
            holds(chain.rules, chain.drops)
        );
        found.push((families, Reason::new(about(&chain.table), what, SKIPPED)));
    }
    // Where packets are filtered anyway, that they are tracked is no news.
    let is_news = |(families, _): &(Stateful, Reason)| families.without(filtered).any();
    found.extend(tracking(facts).into_iter().filter(is_news));
    found
}

/// The kernel's own fast path takes packets of connections at the ingress of its devices, past all that is judged here.
fn flow_tables(facts: &Facts) -> Vec<Reason> {
    let used = facts.flow_tables.iter().filter(|flow_table| flow_table.uses > 0);
    used.map(|flow_table| {
        let FlowTable { family, table, name, uses } = flow_table;
        let rules = match uses {
            1 => "a rule adds connections".into(),
            many => format!("{many} rules add connections"),
        };
        Reason::new(
            About::FlowTable,
            format!("table {family} {table}, flowtable {name}: {rules} (flow add)"),
            "the kernel forwards such connections by a fast path of its own, and knows their state only there: leave \
             them to it, or take `flow add` out of the rules, which filters nothing",
        )
    })
    .collect()
}

/// The families of the packets that chains of a table of this family see, or that are tracked for them.
fn families(family: TableFamily) -> Stateful {
    match family {
        TableFamily::Ip => Stateful::only(false),
        TableFamily::Ip6 => Stateful::only(true),
        // Tracking of a bridge's packets is tracking of all (`nf_ct_netns_get`).
        TableFamily::Inet | TableFamily::Bridge | TableFamily::Netdev | TableFamily::Arp => {
            Stateful::BOTH
        }
    }
}

/// The hooks of one device, at ingress and egress.
pub(super) fn at_device(facts: &Facts, link: &Link) -> Vec<Reason> {
    let here = |(chain, base): (&Chain, &Base)| {
        let concerns = match base.hook {
            Hook::Ingress => Concerns::Ingress,
            Hook::Egress => Concerns::Egress,
            _ => return None,
        };
        base.is_at(&link.name).then(|| reason(chain, base).concerning(concerns))
    };
    facts.chains.iter().filter_map(busy).filter_map(here).collect()
}

/// A base chain that does something.
fn busy(chain: &Chain) -> Option<(&Chain, &Base)> {
    let base = chain.base.as_ref()?;
    chain.is_busy().then_some((chain, base))
}

fn reason(chain: &Chain, base: &Base) -> Reason {
    let Chain { family, table, name, uses, owner, .. } = chain;
    let mut at = base.hook.name().to_owned();
    if !base.devices.is_empty() {
        at += &format!(" of {}", base.devices.join(", "));
    }
    let what = format!(
        "table {family} {table}, chain {name} ({} at {at}): {}",
        base.kind,
        holds(*uses as usize, base.drops)
    );
    let why = match owner {
        Some(port) => {
            format!("{SKIPPED}. The table belongs to a program, process {port} most likely")
        }
        None => SKIPPED.into(),
    };
    Reason::new(about(&base.kind), what, why)
}

/// Connections are kept track of by a rule in some other chain: the hooks for that are in the way of all packets.
fn tracking(facts: &Facts) -> Vec<(Stateful, Reason)> {
    let mut found = Vec::new();
    let why = "the kernel keeps track of all connections, and puts fragments together for that; what we forward \
               would be missing there, so leaving all packets to the kernel is right";
    let tracks = |chain: &&Chain| chain.tracking_rules > 0 && !chain.is_dormant;
    for chain in facts.chains.iter().filter(tracks) {
        let Chain { family, table, name, tracking_rules, .. } = chain;
        let what = match tracking_rules {
            1 => "a rule with connection tracking".into(),
            many => format!("{many} rules with connection tracking"),
        };
        let what = format!("table {family} {table}, chain {name}: {what}");
        found.push((families(*family), Reason::new(About::Conntrack, what, why)));
    }
    for (is_v6, table) in &facts.legacy.tracking {
        let version = version(*is_v6);
        let what =
            format!("legacy iptables, {version}, table {table}: rules with connection tracking");
        found.push((Stateful::only(*is_v6), Reason::new(About::Conntrack, what, why)));
    }
    found
}

fn version(is_v6: bool) -> &'static str {
    if is_v6 { "IPv6" } else { "IPv4" }
}

/// By the type of a chain, or the name of a legacy table.
fn about(kind: &str) -> About {
    if kind == "nat" { About::Nat } else { About::Netfilter }
}

fn holds(rules: usize, drops: bool) -> String {
    let rules = match rules {
        0 => None,
        1 => Some("1 rule".to_owned()),
        many => Some(format!("{many} rules")),
    };
    match (rules, drops) {
        (Some(rules), true) => format!("{rules}, policy drop"),
        (Some(rules), false) => rules,
        (None, _) => "policy drop".into(),
    }
}

const SKIPPED: &str =
    "packets that we forward would skip it, so leaving them to the kernel is right";
const BY_CONNECTION: &str = "forwarded packets skip it, so only such connections are forwarded that conntrack knows and that all rules accept; \
     all other packets stay in the kernel";
