//! What netfilter would do to a routed packet.

use manylane_io::netlink::kernel::Link;
use manylane_io::netlink::nftables::{Base, Chain, Hook};

use super::facts::Facts;
use super::reason::{About, Concerns, Reason};

/// What all routed packets of the namespace meet.
pub(super) fn in_namespace(facts: &Facts) -> Vec<Reason> {
    let mut found = Vec::new();
    let mut is_filtered = false;
    for (chain, base) in facts.chains.iter().filter_map(busy) {
        if chain.is_on_the_way() {
            is_filtered = true;
            found.push(reason(chain, base));
        }
    }
    for chain in &facts.legacy.chains {
        is_filtered = true;
        found.push(Reason::new(
            about(&chain.table),
            format!(
                "legacy iptables, {}, table {}, chain {}: {}",
                version(chain.is_v6),
                chain.table,
                chain.chain,
                holds(chain.rules, chain.drops)
            ),
            SKIPPED,
        ));
    }
    // Where packets are filtered anyway, that they are tracked is no news.
    if !is_filtered {
        found.extend(tracking(facts));
    }
    found
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
fn tracking(facts: &Facts) -> Vec<Reason> {
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
        found.push(Reason::new(About::Conntrack, what, why));
    }
    for (is_v6, table) in &facts.legacy.tracking {
        let version = version(*is_v6);
        let what =
            format!("legacy iptables, {version}, table {table}: rules with connection tracking");
        found.push(Reason::new(About::Conntrack, what, why));
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
