//! The same model again: from scratch, and by a plain look at all routes.

use std::collections::BTreeMap;
use std::net::IpAddr;

use manylane_io::netlink::kernel::{Event, Family, Hops, Route};
use manylane_net::fib::IpPrefix;

use super::fake::Fake;
use super::{Leads, catch_up, written, written_policy};
use crate::changes::Changes;
use crate::family::{Bits, last_of};
use crate::kernel::Kernel;
use crate::routes::{Key, Routes};
use crate::{Dump, Limits, Mirror, RouteAttributes};

/// A dump that says what a model says.
pub fn dump_of(kernel: &Kernel) -> Dump {
    let mut dump = Dump::with(
        kernel.limits,
        kernel.links().cloned().collect(),
        kernel.links.netconf.values().cloned().collect(),
        kernel.addresses().cloned().collect(),
        kernel.next_hops().cloned().collect(),
        kernel.rules().cloned().collect(),
        kernel.neighbours().cloned().collect(),
    );
    for (table, prefix, attributes) in list(kernel) {
        dump.route(&route_of(table, prefix, attributes));
    }
    dump
}

/// A mirror of the same model, written at once.
pub fn scratch(mirror: &Mirror<Fake>) -> Mirror<Fake> {
    let mut other = Mirror::new(Fake::new(), Limits::default());
    let ports: Vec<_> = (0..16).filter_map(|link| mirror.ports.of(link)).collect();
    other.set_ports(&ports);
    other.load(dump_of(&mirror.kernel));
    catch_up(&mut other);
    other
}

/// All routes of a model: table, prefix, what they say; in the kernel's order.
pub fn list(kernel: &Kernel) -> Vec<(u32, IpPrefix, &RouteAttributes)> {
    let mut all = Vec::new();
    collect(&kernel.v4, &mut all);
    collect(&kernel.v6, &mut all);
    all
}

fn collect<'a, B: Bits>(
    routes: &'a Routes<B>,
    all: &mut Vec<(u32, IpPrefix, &'a RouteAttributes)>,
) {
    let mut keys: Vec<Key<B>> = routes.keys().collect();
    keys.sort();
    for key in keys {
        let table = routes.table_id(key.table);
        all.extend(routes.list(key).map(|index| (table, key.prefix(), routes.attributes(index))));
    }
}

fn route_of(table: u32, prefix: IpPrefix, attributes: &RouteAttributes) -> Route {
    Route {
        table,
        destination: prefix.addr(),
        prefix_len: prefix.len(),
        source: attributes.source,
        tos: attributes.tos,
        priority: attributes.priority,
        kind: attributes.kind,
        protocol: attributes.protocol,
        scope: attributes.scope,
        flags: 0,
        next_hop: attributes.next_hop,
        hops: match &*attributes.hops {
            [] => Hops::One(None),
            [hop] => Hops::One(Some(*hop)),
            hops => Hops::Many(hops.to_vec()),
        },
        mtu: attributes.mtu,
        is_expiring: attributes.is_expiring,
    }
}

/// What the tables say of an address: the longest prefix.
pub fn look_up(written: &BTreeMap<IpPrefix, Leads>, address: IpAddr) -> Option<&Leads> {
    let containing = written.iter().filter(|(prefix, _)| prefix.contains(address));
    containing.max_by_key(|(prefix, _)| prefix.len()).map(|(_, leads)| leads)
}

/// What the kernel does with a packet to this address, as ip-route(8) has it: table by table, in each the
/// longest prefix with a route that is used. `None` where it depends on more than that.
pub fn kernels_choice(kernel: &Kernel, address: IpAddr) -> Option<Option<RouteAttributes>> {
    let tables = if address.is_ipv4() { &[255, 254, 253][..] } else { &[255, 254] };
    for &table in tables {
        if let Some(attributes) = tables_choice(kernel, table, address)? {
            return Some(Some(attributes));
        }
    }
    Some(None)
}

/// What the kernel does by one table.
pub fn tables_choice(
    kernel: &Kernel,
    table: u32,
    address: IpAddr,
) -> Option<Option<RouteAttributes>> {
    let family = if address.is_ipv4() { Family::V4 } else { Family::V6 };
    let all = list(kernel);
    let mut of_table: Vec<_> =
        all.iter().filter(|(of, prefix, _)| *of == table && prefix.contains(address)).collect();
    of_table.sort_by_key(|(_, prefix, _)| std::cmp::Reverse(prefix.len()));
    // The first of the longest prefix that is used: sorting is stable.
    for (_, prefix, attributes) in of_table {
        if attributes.tos != 0 || attributes.source.is_some() {
            return None;
        }
        if kernel.links.is_usable(family, attributes) {
            let is_rival = |other: &&(u32, IpPrefix, &RouteAttributes)| {
                other.0 == table
                    && other.1 == *prefix
                    && other.2.priority == attributes.priority
                    && match family {
                        Family::V4 => {
                            prefix.len() == 0 && [other.2.kind, attributes.kind] == [1, 1]
                        }
                        Family::V6 => [other.2.kind, attributes.kind].contains(&1),
                    }
                    && kernel.links.is_usable(family, other.2)
            };
            let mut rivals =
                all.iter().filter(is_rival).filter(|other| !std::ptr::eq(other.2, *attributes));
            if rivals.next().is_some() || attributes.is_expiring || attributes.kind == 9 {
                return None;
            }
            // What is in local comes before all rules, and only what is ours can be told apart from what is behind.
            if table == 255 && !matches!(attributes.kind, 2..=4) {
                return None;
            }
            return Some(Some((*attributes).clone()));
        }
    }
    Some(None)
}

/// Whether the table local has anything to say of an address, or another one says that it is ours: it is the kernel's
/// then, before all rules.
pub fn is_ours(kernel: &Kernel, address: IpAddr) -> bool {
    let is_it = |(table, prefix, attributes): &(u32, IpPrefix, &RouteAttributes)| {
        (*table == 255 || matches!(attributes.kind, 2..=4)) && prefix.contains(address)
    };
    list(kernel).iter().any(is_it)
}

/// Addresses that are worth a look: the first and the last of each prefix, and its neighbours'.
pub fn addresses(kernel: &Kernel) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = Vec::new();
    for (_, prefix, _) in list(kernel) {
        addresses.extend([prefix.addr(), last_of(prefix)]);
    }
    addresses.extend(kernel.neighbours().map(|neighbour| neighbour.address));
    addresses.sort();
    addresses.dedup();
    addresses
}

/// The side and the model say the same as from scratch.
pub fn check_against_scratch(mirror: &mut Mirror<Fake>) {
    let other = scratch(mirror);
    assert_eq!(written(mirror), written(&other));
    assert_eq!(written_policy(mirror), written_policy(&other));
    assert_eq!(mirror.writer.tables.len(), other.writer.tables.len(), "tables that nobody needs");
    assert_eq!(mirror.writer.words.len(), other.writer.words.len(), "ids that nobody needs");
    assert_eq!(mirror.writer.slots.len(), other.writer.slots.len(), "slots that nobody needs");
    assert_eq!(mirror.writer.groups.len(), other.writer.groups.len(), "groups that nobody needs");
    let dump = dump_of(&mirror.kernel);
    assert_eq!(mirror.diff(&dump, &mut || {}), Vec::<String>::new());
}

/// This model serves only questions about its links and rules.
pub fn apply_to(kernel: &mut Kernel, event: &Event) {
    kernel.apply_event(event, &mut Changes::default());
}
