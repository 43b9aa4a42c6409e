//! Reading all of the kernel's tables, and the sizes of ours.

use std::collections::BTreeSet;

use crate::programs;
use manylane_io::affinity;
use manylane_io::netlink::kernel::{Family, Link};
use manylane_io::netlink::{Netlink, NetlinkError};
use manylane_net::fib::Limits;
use manylane_net::transit::layout::PORTS;
use manylane_net::transit::{Memory, Sizes, flows};

use super::{AccelerateError, Options, RouteRoom};
use crate::gate::{self, Kernel};
use manylane_mirror::{self as mirror, Dump, Mirror};

/// Interfaces can be named: at least one, each once, and no more than the tables have ports.
pub(super) fn check_names(names: &[String]) -> Result<(), AccelerateError> {
    let wrong = |what: String| Err(AccelerateError::Interfaces { what });
    let mut seen = BTreeSet::new();
    if let Some(twice) = names.iter().find(|name| !seen.insert(*name)) {
        return wrong(format!("{twice} is named twice; name each interface once"));
    }
    match names.len() {
        0 => wrong("name the interfaces that are to be accelerated".into()),
        len if len >= PORTS => {
            wrong(format!("{len} interfaces are named; name at most {}", PORTS - 1))
        }
        _ => Ok(()),
    }
}

/// Tiers are chosen for interfaces that are named.
pub(super) fn check_tiers(options: &Options) -> Result<(), AccelerateError> {
    let mut chosen = options.port_tiers.keys();
    match chosen.find(|name| !options.interfaces.contains(name)) {
        None => Ok(()),
        Some(name) => Err(AccelerateError::Interfaces {
            what: format!("a tier is chosen for {name}, which is not accelerated; name it, too"),
        }),
    }
}

/// The number of workers is possible, and their cores are ours.
pub(super) fn check_workers(options: &Options) -> Result<(), AccelerateError> {
    let wrong = |what| Err(AccelerateError::Interfaces { what });
    if options.workers.is_some_and(|workers| !(1..=programs::WORKERS_MAX).contains(&workers)) {
        return wrong(format!(
            "workers can be 1 to {}; choose a number of these",
            programs::WORKERS_MAX
        ));
    }
    // Where the kernel does not list cores, workers run on any.
    let Ok(ours) = affinity::cores() else { return Ok(()) };
    match options.worker_cores.iter().find(|core| !ours.contains(core)) {
        None => Ok(()),
        Some(core) => wrong(format!("core {core} is not ours; choose among {ours:?}")),
    }
}

/// All that are named are there.
pub(super) fn all_there(links: &[Link], names: &[String]) -> Result<(), AccelerateError> {
    match names.iter().find(|name| links.iter().all(|link| link.name != **name)) {
        None => Ok(()),
        Some(name) => Err(AccelerateError::NoSuchInterface {
            name: name.clone(),
            present: links.iter().map(|link| link.name.clone()).collect(),
        }),
    }
}

/// What the gate has to know of the kernel, as the mirror has it.
pub(super) fn known(mirror: &Mirror) -> Kernel {
    let known = mirror.kernel();
    let indexes = known.links().filter_map(|link| i32::try_from(link.index).ok());
    let both = |link: i32| [(link, Family::V4), (link, Family::V6)];
    let settings = indexes.chain([ALL]).flat_map(both);
    let encapsulated =
        [Family::V4, Family::V6].into_iter().flat_map(|family| known.attribute_sets(family));
    let wrapping = gate::encapsulated(known.next_hops());
    let encapsulated = encapsulated.filter(|(attributes, _)| {
        attributes.next_hop.is_some_and(|id| wrapping.contains(&id))
            || attributes.hops.iter().any(|hop| hop.is_encapsulated)
    });
    Kernel {
        links: known.links().cloned().collect(),
        netconf: settings
            .filter_map(|(link, family)| known.netconf(link, family))
            .cloned()
            .collect(),
        refused_rules: mirror.refused_rules(),
        encapsulated_routes: encapsulated.map(|(_, routes)| u64::from(routes)).sum(),
    }
}

/// Reads all tables of the kernel. `meanwhile` is called between parts of it that take a millisecond or so.
pub(super) fn dump(
    netlink: &mut Netlink,
    limits: mirror::Limits,
    meanwhile: &mut impl FnMut(),
) -> Result<Dump, NetlinkError> {
    let links = netlink.dump_links()?;
    let settings = netlink.dump_netconf()?;
    let addresses = netlink.dump_addresses()?;
    let next_hops = netlink.dump_next_hops()?;
    let rules = netlink.dump_rules()?;
    meanwhile();
    let neighbours = netlink.dump_neighbours()?;
    let mut dump = Dump::with(limits, links, settings, addresses, next_hops, rules, neighbours);
    let mut routes = 0u32;
    for family in [Family::V4, Family::V6] {
        netlink.dump_routes(family, None, |route| {
            dump.route(&route);
            routes = routes.wrapping_add(1);
            if routes.is_multiple_of(ROUTES_AT_ONCE) {
                meanwhile();
            }
        })?;
    }
    Ok(dump)
}

/// Half a microsecond each.
const ROUTES_AT_ONCE: u32 = 2048;
/// `NETCONFA_IFINDEX_ALL` of linux/netconf.h.
const ALL: i32 = -1;

/// The bounds of the tables, and the sizes of their maps.
pub(super) fn sizes(room: RouteRoom, flows: usize) -> (Limits, programs::Sizes) {
    let Sizes { ipv4, ipv6, .. } = Sizes::for_routes(room.long_ipv4, room.ipv6);
    let maps = programs::Sizes {
        groups4: ipv4.groups,
        ranges4: ipv4.ranges,
        index6: ipv6.index,
        leaves6: ipv6.leaves,
        flows: flows::words(flows),
    };
    let routes_max = Limits::default().routes_max.max(room.long_ipv4).max(room.ipv6);
    (Limits { routes_max, ..Limits::default() }, maps)
}

/// The maps, as the tables' writer has them.
pub(super) fn memory(maps: programs::Tables) -> Memory {
    Memory {
        own4: maps.own4,
        direct4: maps.direct4,
        chunks4: maps.chunks4,
        blocks4: maps.blocks4,
        groups4: maps.groups4,
        ranges4: maps.ranges4,
        direct6: maps.direct6,
        index6: maps.index6,
        leaves6: maps.leaves6,
        next_hops: maps.next_hops,
        buckets: maps.buckets,
        record_of: maps.record_of,
        records: maps.records,
        ports: maps.ports,
        port_of: maps.port_of,
        vlan_port: maps.vlan_port,
        control: maps.control,
        rules: maps.rules,
        roots: maps.roots,
        further: maps.further,
        flow_index: maps.flow_index,
        flow_entries: maps.flow_entries,
        flow_addresses: maps.flow_addresses,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_cannot_be_are_refused_before_anything_is_done() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let said = |list: &[String]| check_names(list).map_err(|error| error.to_string());
        assert_eq!(said(&names(&["lan", "wan"])), Ok(()));
        assert_eq!(
            said(&names(&["lan", "wan", "lan"])),
            Err("lan is named twice; name each interface once".into())
        );
        assert!(said(&[]).is_err());
        let many: Vec<_> = (0..256).map(|number| format!("eth{number}")).collect();
        assert_eq!(said(&many[..255]), Ok(()));
        assert_eq!(said(&many), Err("256 interfaces are named; name at most 255".into()));
    }
}
