//! `[[neighbour.static]]`: neighbours by the operator's word.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use manylane_frame::vocabulary::PortId;

use super::error::{Problem, Span};
use super::memory::mac;
use super::prefix::{InterfaceAddress, is_link_local, not_unicast};
use super::route::{Route, RouteTarget, named, require_family};
use super::section::Section;
use super::settings::Neighbour;
use super::vlan::Interface;

/// A neighbour that is never solicited, and never forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticNeighbour {
    /// The port it is behind.
    pub port: PortId,
    /// Its address there.
    pub address: IpAddr,
    /// Its link-layer address.
    pub mac: [u8; 6],
}

pub(super) fn static_neighbours(
    file: &Section<'_>,
    limits: &Neighbour,
    ports: &[Interface<'_>],
    routes: &[Route],
) -> Result<Vec<StaticNeighbour>, Problem> {
    let parent = file.table("neighbour", "[neighbour]")?;
    let sections = parent.tables("static", "[[neighbour.static]]")?;
    let mut seen: BTreeMap<(PortId, IpAddr), Span> = BTreeMap::new();
    let mut kept: BTreeSet<(PortId, IpAddr)> = routes.iter().flat_map(Route::next_hops).collect();
    let mut neighbours = Vec::with_capacity(sections.len());
    for section in &sections {
        let (neighbour, span) = read(section, ports, routes)?;
        if let Some(first) = seen.insert((neighbour.port, neighbour.address), span.clone()) {
            return Err(Problem::new(
                span,
                format!("duplicate `address` {} in [[neighbour.static]]", neighbour.address),
                "a second time on this port",
                "keep one of the two",
            )
            .also(first, "first here"));
        }
        kept.insert((neighbour.port, neighbour.address));
        if kept.len() > limits.entries_max as usize {
            return Err(Problem::new(
                section.span(),
                "more [[neighbour.static]] and next hops than `entries_max` in [neighbour]",
                format!("with this one the sum is {}", kept.len()),
                "raise `entries_max`, with room for neighbours that are found",
            ));
        }
        neighbours.push(neighbour);
    }
    Ok(neighbours)
}

fn read(
    section: &Section<'_>,
    ports: &[Interface<'_>],
    routes: &[Route],
) -> Result<(StaticNeighbour, Span), Problem> {
    let name = section.required("port", "name the port it is behind: `port = \"NAME\"`")?;
    let port = named(section, &name, ports)?;
    let help = "write the neighbour's address, for example `address = \"10.1.0.1\"`";
    let text = section.required("address", help)?;
    let complain = |why: String, help: &str| {
        let title = format!(
            "`address` `{}` in [[neighbour.static]] cannot be a neighbour's",
            text.get_ref()
        );
        Problem::new(text.span(), title, why, help)
    };
    let Ok(address) = text.get_ref().parse::<IpAddr>() else {
        let help = "write an address without a length, for example `10.1.0.1`";
        return Err(complain("not an IP address".into(), help));
    };
    if let Some(why) = not_unicast(address) {
        return Err(complain(why.into(), "write one station's address"));
    }
    let ours = ports.iter().map(|port| (port.id, port.addresses));
    if let Some(own) = owner(port, address, ours) {
        let why = format!("our own address on `{}`", ports[own.index()].name);
        return Err(complain(why, "write the address of another station"));
    }
    require_family(section, text.span(), &ports[port.index()], address)?;
    let network = ports[port.index()].addresses.iter().find(|own| own.prefix().contains(address));
    if let Some(why) = network.and_then(|network| network.not_a_host(address)) {
        return Err(complain(why.into(), "write a host's address"));
    }
    if network.is_none() && !is_link_local(address) && !is_on_link(port, address, ports, routes) {
        let why = format!("not on the link of `{}`", ports[port.index()].name);
        let help = "write an address of a network of this port, or of a [[route]] to its link";
        return Err(complain(why, help));
    }
    let help = "write its link-layer address, for example `mac = \"02:00:00:00:00:01\"`";
    let mac = mac(section)?.ok_or_else(|| section.missing("mac", help))?;
    Ok((StaticNeighbour { port, address, mac }, text.span()))
}

/// Where an address is ours, if it would be for a neighbour of `port`, with our addresses by port. A
/// link-local one is ours on one port, and another's on the next.
pub(crate) fn owner<'a>(
    port: PortId,
    address: IpAddr,
    ours: impl IntoIterator<Item = (PortId, &'a [InterfaceAddress])>,
) -> Option<PortId> {
    let owns = |all: &[InterfaceAddress]| all.iter().any(|own| own.address == address);
    let mut asked = ours.into_iter().filter(|&(id, _)| id == port || !is_link_local(address));
    asked.find(|(_, all)| owns(all)).map(|(id, _)| id)
}

/// Whether the longest match of an address, among routes and networks, is a route to the link of `port`.
fn is_on_link(port: PortId, address: IpAddr, ports: &[Interface<'_>], routes: &[Route]) -> bool {
    let networks = ports.iter().flat_map(|port| port.addresses).map(|own| (own.prefix(), false));
    let to_link = |route: &Route| route.target == RouteTarget::OnLink { port };
    let routes = routes.iter().map(|route| (route.prefix, to_link(route)));
    let matching = networks.chain(routes).filter(|(prefix, _)| prefix.contains(address));
    matching.max_by_key(|(prefix, _)| prefix.length()).is_some_and(|(_, to_link)| to_link)
}
