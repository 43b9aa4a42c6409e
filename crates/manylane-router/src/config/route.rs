//! `[[route]]`: static routes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use manylane_frame::vocabulary::PortId;
use manylane_net::nexthop::MEMBERS_MAX;
use serde_spanned::Spanned;

use super::error::{Problem, Span};
use super::prefix::{InterfaceAddress, Prefix, family, is_link_local, network};
use super::section::{Section, suggest};
use super::settings::Neighbour;
use super::vlan::Interface;

/// A static route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The destinations.
    pub prefix: Prefix,
    /// What becomes of a packet to them.
    pub target: RouteTarget,
}

impl Route {
    /// The neighbours that it leads through: their entries are kept.
    pub(crate) fn next_hops(&self) -> impl Iterator<Item = (PortId, IpAddr)> {
        let (one, several) = match &self.target {
            RouteTarget::Via { next_hop, port } => (Some((*port, *next_hop)), &[][..]),
            RouteTarget::Group(hops) => (None, &hops[..]),
            _ => (None, &[][..]),
        };
        one.into_iter().chain(several.iter().map(|hop| (hop.port, hop.next_hop)))
    }
}

/// What becomes of a packet that a route matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteTarget {
    /// To a router on a connected network.
    Via {
        /// The router's address there.
        next_hop: IpAddr,
        /// The port that network is behind.
        port: PortId,
    },
    /// To one of several routers, by the packet's flow.
    Group(Vec<Hop>),
    /// To the destination itself, on this port's link.
    OnLink {
        /// The port.
        port: PortId,
    },
    /// Dropped in silence.
    Blackhole,
    /// Dropped with a "host unreachable" to the sender.
    Unreachable,
    /// Dropped with an "administratively prohibited" to the sender.
    Prohibit,
}

/// One of several next hops of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hop {
    /// The router's address.
    pub next_hop: IpAddr,
    /// The port that it is behind.
    pub port: PortId,
    /// Its part of the flows is this by the sum of all weights.
    pub weight: u16,
}

/// As much as the kernel's routes have.
const WEIGHT_MAX: u64 = 256;

/// Different groups of next hops at most: as many as numbers exist.
pub(crate) const GROUPS_MAX: usize = 512;

pub(super) fn routes(
    file: &Section<'_>,
    limits: &Neighbour,
    ports: &[Interface<'_>],
) -> Result<Vec<Route>, Problem> {
    let sections = file.tables("route", "[[route]]")?;
    let mut seen: BTreeMap<Prefix, Span> = BTreeMap::new();
    let mut groups: BTreeSet<Vec<Hop>> = BTreeSet::new();
    let mut next_hops: BTreeSet<(PortId, IpAddr)> = BTreeSet::new();
    let mut routes = Vec::with_capacity(sections.len());
    for section in &sections {
        let help = "write the destinations, for example `prefix = \"0.0.0.0/0\"`";
        let text = section.required("prefix", help)?;
        let prefix = network(&text, "`prefix` in [[route]] is not a prefix")?;
        let target = target(section, prefix, ports)?;
        check_destination(&text, prefix, &target, ports)?;
        if let Some(first) = seen.insert(prefix, text.span()) {
            return Err(Problem::new(
                text.span(),
                format!("duplicate `prefix` {prefix} in [[route]]"),
                "a second route to it",
                "keep one of the two",
            )
            .also(first, "first here"));
        }
        let route = Route { prefix, target };
        next_hops.extend(route.next_hops());
        if next_hops.len() > limits.entries_max as usize {
            return Err(Problem::new(
                text.span(),
                "more next hops of [[route]] than `entries_max` in [neighbour]",
                format!("with this route the sum is {}", next_hops.len()),
                "raise `entries_max`, with room for neighbours that are found",
            ));
        }
        if let RouteTarget::Group(hops) = &route.target {
            let mut hops = hops.clone();
            hops.sort_unstable();
            groups.insert(hops);
        }
        if groups.len() > GROUPS_MAX {
            return Err(Problem::new(
                text.span(),
                "too many different groups of next hops in [[route]]",
                format!("this route's is number {}", groups.len()),
                format!(
                    "use at most {GROUPS_MAX}: routes by the same `via` and `weights` share one"
                ),
            ));
        }
        routes.push(route);
    }
    Ok(routes)
}

/// Reads where the packets are sent: `via`, `port` or both, or `type` alone.
fn target(
    section: &Section<'_>,
    prefix: Prefix,
    ports: &[Interface<'_>],
) -> Result<RouteTarget, Problem> {
    let kinds = [
        ("blackhole", RouteTarget::Blackhole),
        ("unreachable", RouteTarget::Unreachable),
        ("prohibit", RouteTarget::Prohibit),
    ];
    if let Some(kind) = section.choice("type", &kinds)? {
        for key in ["via", "weights", "port"] {
            let why = "a route with `type` drops its packets";
            section.refuse(key, why, "remove `type`, or remove `via` and `port`")?;
        }
        return Ok(kind);
    }
    let port = section.text("port")?.map(|name| named(section, &name, ports)).transpose()?;
    if section.is_list("via") {
        return group(section, prefix, port, ports);
    }
    let help = "remove `weights`, or write several: `via = [\"10.2.0.1\", \"10.3.0.1\"]`";
    section.refuse("weights", "one next hop takes all packets", help)?;
    match (section.text("via")?, port) {
        (Some(via), port) => next_hop(section, &via, prefix, port, ports),
        (None, Some(port)) => {
            let span = section.key_span("port").unwrap_or_default();
            require_family(section, span, &ports[port.index()], prefix.network())?;
            Ok(RouteTarget::OnLink { port })
        }
        (None, None) => Err(section.missing(
            "via",
            "write `via = \"ADDRESS\"`, or `port = \"NAME\"` for destinations on that link, or \
             `type = \"blackhole\"`",
        )),
    }
}

/// Several next hops; `fe80::1%NAME` says which port one is behind (RFC 4007 §11).
fn group(
    section: &Section<'_>,
    prefix: Prefix,
    port: Option<PortId>,
    ports: &[Interface<'_>],
) -> Result<RouteTarget, Problem> {
    let list = section.texts("via")?.expect("it is a list");
    let weights = section.numbers::<u16>("weights", 1..=WEIGHT_MAX)?;
    if !(1..=MEMBERS_MAX).contains(&list.get_ref().len()) {
        return Err(Problem::new(
            list.span(),
            "`via` in [[route]] has no next hop, or too many",
            format!("there are {}", list.get_ref().len()),
            format!("write 1 to {MEMBERS_MAX}"),
        ));
    }
    if let Some(weights) =
        weights.as_ref().filter(|all| all.get_ref().len() != list.get_ref().len())
    {
        return Err(Problem::new(
            weights.span(),
            "`weights` in [[route]] do not fit `via`",
            format!("{} weights", weights.get_ref().len()),
            format!("write one for each of the {} next hops", list.get_ref().len()),
        )
        .also(list.span(), "these"));
    }
    let weight = |at: usize| weights.as_ref().map_or(1, |all| *all.get_ref()[at].get_ref());
    let mut hops: Vec<Hop> = Vec::new();
    for (at, text) in list.get_ref().iter().enumerate() {
        let (address, port) = match text.get_ref().split_once('%') {
            Some((address, name)) => {
                (address, Some(named(section, &Spanned::new(text.span(), name), ports)?))
            }
            None => (*text.get_ref(), port),
        };
        let found = next_hop(section, &Spanned::new(text.span(), address), prefix, port, ports)?;
        let RouteTarget::Via { next_hop, port } = found else {
            unreachable!("that is what `next_hop` finds")
        };
        if let Some(first) =
            hops.iter().position(|hop| (hop.next_hop, hop.port) == (next_hop, port))
        {
            return Err(Problem::new(
                text.span(),
                format!("duplicate next hop `{}` in [[route]]", text.get_ref()),
                "a second time",
                "write it once, and give it more weight",
            )
            .also(list.get_ref()[first].span(), "first here"));
        }
        hops.push(Hop { next_hop, port, weight: weight(at) });
    }
    Ok(RouteTarget::Group(hops))
}

/// The port, or sub-interface, that a table names.
pub(super) fn named(
    section: &Section<'_>,
    name: &Spanned<&str>,
    ports: &[Interface<'_>],
) -> Result<PortId, Problem> {
    let found = ports.iter().position(|port| port.name == *name.get_ref());
    found.map(port_id).ok_or_else(|| {
        let title = format!("unknown `port` `{}` in {}", name.get_ref(), section.name());
        let help = suggest(name.get_ref(), ports.iter().map(|port| port.name));
        Problem::new(name.span(), title, "no port has this name", help)
    })
}

fn next_hop(
    section: &Section<'_>,
    text: &Spanned<&str>,
    prefix: Prefix,
    port: Option<PortId>,
    ports: &[Interface<'_>],
) -> Result<RouteTarget, Problem> {
    let complain = |why: String, help: String| {
        let title = format!("`via` `{}` in [[route]] cannot be the next hop", text.get_ref());
        Problem::new(text.span(), title, why, help)
    };
    let Ok(next_hop) = text.get_ref().parse::<IpAddr>() else {
        let help = "write the router's address without a length, for example `10.2.0.1`";
        return Err(complain("not an IP address".into(), help.into()));
    };
    if next_hop.is_ipv4() != prefix.network().is_ipv4() {
        let family = family(prefix.network());
        let help = format!("write an {family} address: {prefix} is {family}");
        return Err(complain("of the other family".into(), help));
    }
    let ours = |port: &Interface<'_>| port.addresses.iter().any(|ours| ours.address == next_hop);
    let asked = |index: usize| port.is_none_or(|port| port.index() == index);
    if let Some(own) = (0..ports.len()).find(|&index| asked(index) && ours(&ports[index])) {
        let why = format!("our own address on `{}`", ports[own].name);
        return Err(complain(why, "write the address of another router there".into()));
    }
    if is_link_local(next_hop) {
        let Some(port) = port else {
            let help = "add `port = \"NAME\"`: a link-local address does not say which link";
            return Err(complain("link-local, without a port".into(), help.into()));
        };
        require_family(section, text.span(), &ports[port.index()], next_hop)?;
        return Ok(RouteTarget::Via { next_hop, port });
    }

    let network_of = |port: &Interface<'_>| {
        port.addresses.iter().copied().find(|ours| ours.prefix().contains(next_hop))
    };
    let mut behind =
        ports.iter().enumerate().filter_map(|(index, port)| Some((index, network_of(port)?)));
    match (behind.next(), port) {
        (Some((index, network)), _) if asked(index) => {
            if let Some(why) = network.not_a_host(next_hop) {
                return Err(complain(
                    why.into(),
                    format!("write a host's address in {}", network.prefix()),
                ));
            }
            Ok(RouteTarget::Via { next_hop, port: port_id(index) })
        }
        (Some((index, _)), Some(port)) => Err(complain(
            format!("not in a network of `{}`", ports[port.index()].name),
            format!("it is behind `{}`: name that port, or remove `port`", ports[index].name),
        )),
        (Some(_), None) => unreachable!("without a port, every port is searched"),
        (None, _) => {
            Err(complain("not in a network of any port".into(), networks(ports, next_hop)))
        }
    }
}

/// A port can resolve neighbours of a family only if it has an address of that family as a source.
pub(super) fn require_family(
    section: &Section<'_>,
    span: Span,
    port: &Interface<'_>,
    address: IpAddr,
) -> Result<(), Problem> {
    if port.addresses.iter().any(|ours| ours.address.is_ipv4() == address.is_ipv4()) {
        return Ok(());
    }
    let family = family(address);
    Err(Problem::new(
        span,
        format!("`port` `{}` in {} has no {family} address", port.name, section.name()),
        format!(
            "an {family} {} it",
            if section.name() == "[[route]]" { "route through" } else { "neighbour on" }
        ),
        format!("add an {family} address to `addresses` of `{}`", port.name),
    ))
}

/// Refuses destinations that are never routed, our own addresses, and networks that a port is in
/// already.
fn check_destination(
    text: &Spanned<&str>,
    prefix: Prefix,
    target: &RouteTarget,
    ports: &[Interface<'_>],
) -> Result<(), Problem> {
    let connected =
        |port: &&Interface<'_>| port.addresses.iter().any(|ours| ours.prefix() == prefix);
    if let Some(port) = ports.iter().find(connected).filter(|_| !is_link_local(prefix.network())) {
        return Err(Problem::new(
            text.span(),
            format!("duplicate `prefix` {prefix} in [[route]]"),
            format!("connected: `{}` has an address in it", port.name),
            "remove the route: a port's networks are routed without one",
        ));
    }
    let first = prefix.network();
    let is_host = prefix.length() == if first.is_ipv4() { 32 } else { 128 };
    let ours = |port: &&Interface<'_>| port.addresses.iter().any(|ours| ours.address == first);
    if let Some(port) = ports.iter().find(ours).filter(|_| is_host) {
        return Err(Problem::new(
            text.span(),
            format!("`prefix` {prefix} in [[route]] is our own address"),
            format!("on `{}`", port.name),
            "remove the route: packets to our own addresses stay here",
        ));
    }
    let scope = match first {
        _ if first.is_multicast() => "multicast",
        // The lengths at which the whole prefix is inside, not only its first address.
        IpAddr::V4(v4) if v4.is_loopback() && prefix.length() >= 8 => "loopback",
        IpAddr::V6(v6) if v6.is_loopback() && prefix.length() == 128 => "loopback",
        IpAddr::V6(_) if is_link_local(first) && prefix.length() >= 10 => "link-local",
        _ => return Ok(()),
    };
    // To drop them by a route is pointless but harmless: lists of bogons have them.
    if !matches!(
        target,
        RouteTarget::Via { .. } | RouteTarget::Group(_) | RouteTarget::OnLink { .. }
    ) {
        return Ok(());
    }
    Err(Problem::new(
        text.span(),
        format!("`prefix` {prefix} in [[route]] is never forwarded"),
        format!("{scope} destinations"),
        "remove the route",
    ))
}

/// The help for a next hop that is nowhere: the connected networks of its family.
fn networks(ports: &[Interface<'_>], address: IpAddr) -> String {
    let same = |ours: &&InterfaceAddress| ours.address.is_ipv4() == address.is_ipv4();
    let all = ports.iter().flat_map(|port| port.addresses.iter().filter(same));
    let list: Vec<_> = all.take(8).map(|ours| ours.prefix().to_string()).collect();
    if list.is_empty() {
        return format!("add an {} address to the port it is behind", family(address));
    }
    format!("write an address in one of {}", list.join(", "))
}

fn port_id(index: usize) -> PortId {
    PortId(u16::try_from(index).expect("`ports::ports` bounds their number"))
}
