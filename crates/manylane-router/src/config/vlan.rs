//! `[[port.vlan]]`: sub-interfaces, and the list of all that has addresses.

use manylane_frame::vocabulary::PortId;
use manylane_net::wire::ethernet::{Tags, VLAN_MAX, ether_type};
use serde_spanned::Spanned;

use super::error::{Problem, Span};
use super::port::{
    IPV4_MTU_LEAST, IPV6_MTU_LEAST, Port, addresses, check_name, mtu_least, smallest_mtu,
};
use super::prefix::InterfaceAddress;
use super::section::Section;

/// A sub-interface: the frames of a port that carry certain tags.
#[derive(Clone, Debug, PartialEq)]
pub struct Vlan {
    /// Its name, as a port's. Unless the file says, the port's with the numbers behind.
    pub name: String,
    /// Its frames' tags: one, or two.
    pub tags: Tags,
    /// Our addresses on it, at least one.
    pub addresses: Vec<InterfaceAddress>,
    /// Largest IP packet. Without it, the port's, less what tags take that links do not promise.
    pub mtu: Option<u16>,
}

/// What has addresses, neighbours and routes: a port, or a sub-interface of one.
#[derive(Clone, Copy, Debug)]
pub struct Interface<'c> {
    /// Its number. Sub-interfaces come after all ports, in the order of the file.
    pub id: PortId,
    /// Its name.
    pub name: &'c str,
    /// Our addresses on it.
    pub addresses: &'c [InterfaceAddress],
    /// The port: itself, or what it is a sub-interface of.
    pub port: PortId,
}

/// All ports and then all their sub-interfaces, each at the index that is its id.
pub fn interfaces(ports: &[Port]) -> Vec<Interface<'_>> {
    let own = (0..).map(PortId).zip(ports);
    let ports = own.clone().map(|(id, port)| (id, port.name.as_str(), &port.addresses[..]));
    let vlans = own.flat_map(|(id, port)| {
        port.vlans.iter().map(move |vlan| (id, vlan.name.as_str(), &vlan.addresses[..]))
    });
    let all = (0..).map(PortId).zip(ports.chain(vlans));
    all.map(|(id, (port, name, addresses))| Interface { id, name, addresses, port }).collect()
}

/// The places of a sub-interface that others are compared with.
pub(super) struct PlacedVlan {
    pub(super) name: Span,
    pub(super) tags: Span,
    pub(super) addresses: Vec<Span>,
}

/// Reads the sub-interfaces of a port, whose `mtu` is known if the file says it.
pub(super) fn vlans(
    section: &Section<'_>,
    port: &str,
    mtu: Option<u16>,
) -> Result<Vec<(Vlan, PlacedVlan)>, Problem> {
    let mut vlans: Vec<(Vlan, PlacedVlan)> = Vec::new();
    for section in &section.tables("vlan", "[[port.vlan]]")? {
        let (vlan, placed) = vlan(section, port, mtu)?;
        if let Some((_, other)) = vlans.iter().find(|(other, _)| other.tags == vlan.tags) {
            return Err(Problem::new(
                placed.tags,
                format!("duplicate `id` in [[port.vlan]] of `{port}`"),
                "a second sub-interface with these tags",
                "a VLAN is one sub-interface: put its addresses into one [[port.vlan]]",
            )
            .also(other.tags.clone(), "first here"));
        }
        vlans.push((vlan, placed));
    }
    Ok(vlans)
}

fn vlan(
    section: &Section<'_>,
    port: &str,
    port_mtu: Option<u16>,
) -> Result<(Vlan, PlacedVlan), Problem> {
    let numbers = 1..=u64::from(VLAN_MAX);
    let id = section.number::<u16>("id", numbers.clone())?;
    let id = id.ok_or_else(|| section.missing("id", "write its number, for example `id = 100`"))?;
    let inner = section.number::<u16>("inner", numbers)?;
    let kinds = [("802.1q", ether_type::VLAN), ("802.1ad", ether_type::SERVICE_VLAN)];
    let kind = section.choice("tag", &kinds)?.unwrap_or(ether_type::VLAN);
    let outer = Tags::NONE.and(kind, *id.get_ref());
    let tags = match &inner {
        Some(inner) => outer.and_then(|outer| outer.and(ether_type::VLAN, *inner.get_ref())),
        None => outer,
    };
    let tags = tags.expect("there is room for two");
    let mtu = mtu(section, port_mtu)?;
    let (name, name_span) = match section.text("name")? {
        Some(name) => {
            check_name(&name, section.name())?;
            (name.get_ref().to_string(), name.span())
        }
        None => {
            let numbers = inner.map(|inner| format!(".{}", inner.get_ref())).unwrap_or_default();
            (format!("{port}.{}{numbers}", id.get_ref()), section.span())
        }
    };
    let (addresses, address_spans) = addresses(section)?;
    match (&mtu, port_mtu) {
        (Some(mtu), _) => smallest_mtu(mtu.span(), section.name(), *mtu.get_ref(), &addresses)?,
        (None, Some(port_mtu)) => smallest_rest(id.span(), port_mtu, tags, &addresses)?,
        (None, None) => {} // Where the port opens, the device's is known.
    }
    let mtu = mtu.map(Spanned::into_inner);
    let placed = PlacedVlan { name: name_span, tags: id.span(), addresses: address_spans };
    Ok((Vlan { name, tags, addresses, mtu }, placed))
}

fn mtu(section: &Section<'_>, port_mtu: Option<u16>) -> Result<Option<Spanned<u16>>, Problem> {
    let Some(mtu) = section.number::<u16>("mtu", IPV4_MTU_LEAST.into()..=9000)? else {
        return Ok(None);
    };
    match port_mtu {
        Some(most) if *mtu.get_ref() > most => Err(Problem::new(
            mtu.span(),
            "`mtu` in [[port.vlan]] is more than its port's",
            format!("the port's is {most}"),
            format!("choose at most {most}, or raise `mtu` in [[port]]"),
        )),
        _ => Ok(Some(mtu)),
    }
}

/// Refuses an MTU that follows from the port's, as [`mtu_least`] has it.
fn smallest_rest(
    span: Span,
    port_mtu: u16,
    tags: Tags,
    addresses: &[InterfaceAddress],
) -> Result<(), Problem> {
    let (least, beyond) = (mtu_least(addresses), tags.beyond_mtu());
    let left = port_mtu.saturating_sub(beyond);
    if left >= least {
        return Ok(());
    }
    let (family, cure) = match least {
        IPV6_MTU_LEAST => ("IPv6", ", or remove the IPv6 addresses"),
        _ => ("IPv4", ""),
    };
    Err(Problem::new(
        span,
        format!("`mtu` of the port leaves too little for {family} in [[port.vlan]]"),
        format!("{left} of {port_mtu} bytes behind these tags, less than {least}"),
        format!("set `mtu` in [[port]] to at least {}{cure}", least + beyond),
    ))
}
