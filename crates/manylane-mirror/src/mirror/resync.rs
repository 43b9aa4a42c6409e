//! All tables at once: the first load, and what a later dump has otherwise.

use std::collections::BTreeSet;

use manylane_io::netlink::kernel::Family;
use manylane_net::fib::{IpPrefix, Ipv4Prefix, Ipv6Prefix, NextHopId};

use super::write::{default_of, push_all};
use super::{Dump, Mirror};
use crate::changes::{Changes, Neighbours};
use crate::family::{Bits, family_of, host};
use crate::kernel::Kernel;
use crate::pause::Pause;
use crate::resolve::View;
use crate::routes::{Key, Routes};
use crate::table_writer::TableWriter;

impl Mirror<dyn TableWriter> {
    /// Loads all of a dump into tables without routes, at once: each word is stored once. What does not fit, or
    /// waits, is left to [`Mirror::apply`]. With routes in the tables, it is a [`Mirror::resync`].
    pub fn load(&mut self, dump: Dump) {
        let mut is_empty = true;
        self.writer.routes(&mut |_, _| is_empty = false);
        if !is_empty {
            self.resync(dump, &mut || {});
            return;
        }
        self.kernel = dump.kernel;
        self.changes = Changes { is_policy: true, ..Changes::default() };
        for family in [Family::V4, Family::V6] {
            self.load_family(family);
        }
        self.writer.reclaim();
    }

    fn load_family(&mut self, family: Family) {
        let prefixes = match family {
            Family::V4 => self.kernel.v4.usual_prefixes().collect::<Vec<_>>(),
            Family::V6 => self.kernel.v6.usual_prefixes().collect(),
        };
        let default = default_of(family);
        let own = |prefix: &IpPrefix| family_of(*prefix) == family;
        let hosts = self.kernel.neighbours().map(|neighbour| host(neighbour.address)).filter(own);
        // A neighbour's address may have a route of its own; then that counts, and once.
        let hosts: BTreeSet<IpPrefix> = hosts.collect();
        let is_own = |prefix: &IpPrefix| *prefix != default && !hosts.contains(prefix);
        let all = prefixes.into_iter().filter(is_own).chain(hosts.iter().copied());
        let mut routes: Vec<(IpPrefix, NextHopId)> = Vec::new();
        for prefix in std::iter::once(default).chain(all) {
            let view = View { kernel: &self.kernel, ports: &self.ports };
            let destination = view.resolve(prefix);
            let (writer, targets) = (&mut self.writer, &mut self.targets);
            let id = if prefix == default {
                targets.set_default(writer, view, family, destination);
                targets.default_of(family)
            } else {
                let Some(destination) = destination else { continue };
                match targets.id_of(writer, view, &destination) {
                    Ok(Some(id)) => id,
                    // The kernel's until it has what it needs.
                    Ok(None) | Err(_) => {
                        self.changes.prefixes.push(prefix);
                        targets.kernel()
                    }
                }
            };
            targets.hold(id);
            routes.push((prefix, id));
        }
        let loaded = match family {
            Family::V4 => self.writer.load4(routes.iter().filter_map(v4).collect()),
            Family::V6 => self.writer.load6(routes.iter().filter_map(v6).collect()),
        };
        if loaded.is_err() {
            // As many as fit, one by one.
            for (prefix, id) in routes {
                self.targets.release(id);
                self.changes.prefixes.push(prefix);
            }
        }
    }

    /// Compares a dump with the model, and changes the model to it. The tables follow by the next
    /// [`Mirror::apply`], prefix by prefix where they differ; meanwhile they stay as they are. Returns how
    /// much was different. With a million routes that takes a while, in which `meanwhile` is called again and
    /// again.
    pub fn resync(&mut self, dump: Dump, meanwhile: &mut dyn FnMut()) -> usize {
        let former = std::mem::replace(&mut self.kernel, dump.kernel);
        // Nothing is written yet of ways that died or live again: check the slots of their devices.
        let marked = [&former.v4.attribute_sets.changed, &former.v6.attribute_sets.changed];
        self.changes.links.extend(marked.into_iter().flatten());
        let Mirror { kernel, changes, .. } = self;
        let mut differences = Differences { changes, count: 0 };
        compare(&former, kernel, &mut differences, &mut Pause::new(&mut *meanwhile));
        let count = differences.count;
        if self.prefixes.forget() {
            push_all(&self.kernel.v4, &mut self.changes);
            push_all(&self.kernel.v6, &mut self.changes);
            self.kernel.touch_neighbours(&mut self.changes);
        }
        self.changes.is_unconfirmed = false;
        (self.changes.is_policy, self.changes.is_retried) = (true, true);
        self.statistics.resyncs += 1;
        self.statistics.resync_differences += count as u64;
        count
    }
}

fn v4(route: &(IpPrefix, NextHopId)) -> Option<(Ipv4Prefix, NextHopId)> {
    match *route {
        (IpPrefix::V4(prefix), id) => Some((prefix, id)),
        (IpPrefix::V6(_), _) => None,
    }
}

fn v6(route: &(IpPrefix, NextHopId)) -> Option<(Ipv6Prefix, NextHopId)> {
    match *route {
        (IpPrefix::V6(prefix), id) => Some((prefix, id)),
        (IpPrefix::V4(_), _) => None,
    }
}

struct Differences<'a> {
    changes: &'a mut Changes,
    count: usize,
}

fn compare(
    former: &Kernel,
    now: &Kernel,
    differences: &mut Differences<'_>,
    pause: &mut Pause<impl FnMut()>,
) {
    let links: BTreeSet<u32> =
        former.links.links.keys().chain(now.links.links.keys()).copied().collect();
    for link in links {
        if former.link(link) != now.link(link) {
            differences.count += 1;
        }
        if former.link(link) != now.link(link) || former.can_send(link) != now.can_send(link) {
            differences.changes.links.insert(link);
        }
    }
    if former.links.netconf != now.links.netconf {
        differences.count += 1;
    }
    if former.addresses != now.addresses {
        differences.count += 1;
    }
    if former.rules.iter().ne(now.rules.iter()) {
        differences.count += 1;
        // Which tables are merged may be another.
        let tables =
            |kernel: &Kernel| [Family::V4, Family::V6].map(|family| kernel.rules.tables(family));
        differences.changes.is_everything |= tables(former) != tables(now);
    }
    compare_objects(former, now, differences);
    compare_neighbours(&former.neighbours, &now.neighbours, differences);
    compare_routes(&former.v4, &now.v4, now, differences, pause);
    compare_routes(&former.v6, &now.v6, now, differences, pause);
}

fn compare_objects(former: &Kernel, now: &Kernel, differences: &mut Differences<'_>) {
    let ids = former.next_hops().chain(now.next_hops()).map(|object| object.id);
    let ids: BTreeSet<u32> = ids.collect();
    let mut is_on_link = false;
    for id in ids.into_iter().filter(|&id| former.objects.get(id) != now.objects.get(id)) {
        differences.count += 1;
        is_on_link |= former.objects.is_on_link(id) || now.objects.is_on_link(id);
        let groups = [former, now].map(|kernel| kernel.objects.groups_of(id));
        differences.changes.objects.insert(id);
        differences.changes.objects.extend(groups.into_iter().flatten());
    }
    if is_on_link {
        now.touch_neighbours(differences.changes);
        former.touch_neighbours(differences.changes);
    }
}

fn compare_neighbours(former: &Neighbours, now: &Neighbours, differences: &mut Differences<'_>) {
    let keys: BTreeSet<_> = former.keys().chain(now.keys()).copied().collect();
    for (address, link) in keys {
        let key = (address, link);
        if former.get(&key) != now.get(&key) {
            differences.count += 1;
            differences.changes.neighbours.insert((link, address));
            differences.changes.prefixes.push(host(address));
        }
    }
}

fn compare_routes<B: Bits>(
    former: &Routes<B>,
    now: &Routes<B>,
    kernel: &Kernel,
    differences: &mut Differences<'_>,
    pause: &mut Pause<impl FnMut()>,
) {
    let mut touched: Vec<Key<B>> = Vec::new();
    let mut common = 0;
    for key in now.keys() {
        pause.step();
        let table = former.table(now.table_id(key.table));
        let other = table.map(|table| Key { table, ..key });
        let is_same = other.is_some_and(|other| same(former, other, now, key));
        common += usize::from(is_same || other.is_some_and(|other| former.has(other)));
        if !is_same {
            touched.push(key);
        }
    }
    let others = if common == former.keys().len() { None } else { Some(former.keys()) };
    for key_of in others.into_iter().flatten() {
        pause.step();
        let id = former.table_id(key_of.table);
        let key = now.table(id).map(|table| Key { table, ..key_of });
        match key {
            Some(key) if now.has(key) => (),
            Some(key) => touched.push(key),
            None => {
                // Of a table that is no more.
                differences.count += 1;
                differences.changes.further.insert((id, key_of.prefix()));
            }
        }
    }
    differences.count += touched.len();
    let parts = kernel.shared_parts();
    for key in touched {
        pause.step();
        parts.touch_key(now, key, differences.changes);
    }
}

/// Whether two models have equal routes at a key, in equal order, and use equal ones.
fn same<B: Bits>(one: &Routes<B>, at: Key<B>, other: &Routes<B>, there: Key<B>) -> bool {
    let one = one.list(at).map(|index| one.entry(index));
    let mut others = other.list(there).map(|index| other.entry(index));
    for entry in one {
        let is_same = others.next().is_some_and(|other| {
            entry.usable == other.usable && entry.attributes.is_like(B::FAMILY, &other.attributes)
        });
        if !is_same {
            return false;
        }
    }
    others.next().is_none()
}
