//! What netfilter would do to a routed packet.

use manylane_io::netlink::kernel::Link;
use manylane_io::netlink::nftables::{Base, Chain, Hook};

use super::facts::Facts;
use super::judge::quoted;
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
        let (program, version) =
            if chain.is_v6 { ("ip6tables-legacy", "IPv6") } else { ("iptables-legacy", "IPv4") };
        let (table, name) = (quoted(&chain.table), chain.chain);
        found.push(
            Reason::new(
                about(&chain.table),
                format!(
                    "legacy iptables, {version}, table {}, chain {name}: {}",
                    chain.table,
                    holds(chain.rules, chain.drops)
                ),
                SKIPPED,
            )
            .command(format!(
                "{program} -t {table} -F {name} && {program} -t {table} -P {name} ACCEPT"
            )),
        );
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
    match owner {
        Some(port) => Reason::new(
            about(&base.kind),
            what,
            format!(
                "{SKIPPED}; only the program that owns the table can change it, process {port} most likely"
            ),
        ),
        None => {
            let (table, name) = (quoted(table), quoted(name));
            Reason::new(about(&base.kind), what, SKIPPED).command(format!(
                "nft flush chain {family} {table} {name} && nft delete chain {family} {table} {name}"
            ))
        }
    }
}

/// Connections are kept track of by a rule in some other chain: the hooks for that are in the way of all packets.
fn tracking(facts: &Facts) -> Vec<Reason> {
    let mut found = Vec::new();
    let why = "the kernel keeps track of all connections, and puts fragments together for that; what we forward \
               would be missing there. Rules without connection tracking do not need it";
    let tracks = |chain: &&Chain| chain.tracking_rules > 0 && !chain.is_dormant;
    for chain in facts.chains.iter().filter(tracks) {
        let Chain { family, table, name, tracking_rules, .. } = chain;
        let what = match tracking_rules {
            1 => "a rule with connection tracking".into(),
            many => format!("{many} rules with connection tracking"),
        };
        found.push(
            Reason::new(
                About::Conntrack,
                format!("table {family} {table}, chain {name}: {what}"),
                why,
            )
            .command(format!(
                "nft flush chain {family} {} {}",
                quoted(table),
                quoted(name)
            )),
        );
    }
    for (is_v6, table) in &facts.legacy.tracking {
        let (program, version) =
            if *is_v6 { ("ip6tables-legacy", "IPv6") } else { ("iptables-legacy", "IPv4") };
        found.push(
            Reason::new(
                About::Conntrack,
                format!(
                    "legacy iptables, {version}, table {table}: rules with connection tracking"
                ),
                why,
            )
            .command(format!("{program} -t {} -F", quoted(table))),
        );
    }
    found
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

const SKIPPED: &str = "packets that we forward would skip it";
