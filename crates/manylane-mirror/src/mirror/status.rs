//! What `show mirror` shows: the mirror's size, its delay, what did not fit.

use manylane_api::accelerate::{MirrorCounts, MirrorState, RouteCounts};
use manylane_io::netlink::kernel::Family;
use manylane_net::nexthop::NextHop;

use super::Mirror;
use crate::constants::{
    TYPE_ANYCAST, TYPE_BLACKHOLE, TYPE_BROADCAST, TYPE_LOCAL, TYPE_MULTICAST, TYPE_PROHIBIT,
    TYPE_THROW, TYPE_UNICAST, TYPE_UNREACHABLE,
};
use crate::table_writer::TableWriter;

/// Running counts.
#[derive(Default)]
pub(super) struct Statistics {
    pub events: u64,
    pub news: u64,
    pub resyncs: u64,
    pub resync_differences: u64,
    epoch: u64,
    edits: u64,
    busy: u64,
    /// The time since which an edit is pending.
    pending_since: Option<u64>,
    lag_max_ns: u64,
}

impl Statistics {
    /// Edits were made at this time.
    pub fn applied(&mut self, now_ns: u64, edits: usize, pending: usize, is_busy: bool) {
        self.epoch += u64::from(edits > 0);
        self.edits += edits as u64;
        self.busy += u64::from(is_busy);
        self.lag_max_ns = self.lag_max_ns.max(self.lag(now_ns));
        self.pending_since = (pending > 0).then(|| self.pending_since.unwrap_or(now_ns));
    }

    fn lag(&self, now_ns: u64) -> u64 {
        self.pending_since.map_or(0, |since| now_ns.saturating_sub(since))
    }
}

impl Mirror<dyn TableWriter> {
    /// How it is; `now_ns` is the clock of [`Mirror::apply`].
    pub fn status(&self, now_ns: u64) -> MirrorState {
        let [ids, slots, groups, starved] = self.targets.counts();
        let [further_tables, further_prefixes, further_starved] = self.policies.counts();
        let (kernel, statistics) = (&self.kernel, &self.statistics);
        let resolved =
            self.targets.slots().filter(|&(_, slot)| self.writer.adjacency(slot).is_some());
        let tables = |family| match family {
            Family::V4 => kernel.v4.tables().filter(|&(_, routes)| routes > 0).count(),
            Family::V6 => kernel.v6.tables().filter(|&(_, routes)| routes > 0).count(),
        };
        MirrorState {
            epoch: statistics.epoch,
            events: statistics.events,
            changes: statistics.news,
            resyncs: statistics.resyncs,
            resync_differences: statistics.resync_differences,
            edits: statistics.edits,
            pending: self.changes.len() + self.targets.pending() + self.policies.pending(),
            busy: statistics.busy,
            lag_ns: statistics.lag(now_ns),
            lag_max_ns: statistics.lag_max_ns.max(statistics.lag(now_ns)),
            is_complete: self.is_whole(),
            overflows: kernel.overflows,
            refused: self.prefixes.refused(),
            starved: self.prefixes.starved() + starved + further_starved,
            refused_rules: self.refused_rules().into_iter().map(|refused| refused.what).collect(),
            kernel_rules: self.kernel_rules(),
            ipv4: self.count(Family::V4),
            ipv6: self.count(Family::V6),
            counts: MirrorCounts {
                links: kernel.links.links.len(),
                addresses: kernel.addresses.len(),
                rules: kernel.rules.len(),
                next_hop_objects: kernel.objects.len(),
                neighbours: kernel.neighbours.len(),
                tables: tables(Family::V4) + tables(Family::V6),
                distinct_routes: kernel.v4.attribute_sets.len() + kernel.v6.attribute_sets.len(),
                ids,
                slots,
                resolved: resolved.count(),
                groups,
                further_tables,
                further_prefixes,
                waiting: self.writer.waiting(),
            },
        }
    }

    /// Whether an edit is pending.
    pub fn is_pending(&self) -> bool {
        let attribute_sets =
            [&self.kernel.v4.attribute_sets.changed, &self.kernel.v6.attribute_sets.changed];
        self.changes.len() + self.targets.pending() + self.policies.pending() > 0
            || self.changes.is_policy
            || self.changes.is_everything
            || attribute_sets.iter().any(|changed| !changed.is_empty())
    }

    fn count(&self, family: Family) -> RouteCounts {
        let mut counts =
            RouteCounts { routes: self.kernel.routes_len(family), ..Default::default() };
        let entries: Box<dyn Iterator<Item = _>> = match family {
            Family::V4 => Box::new(self.kernel.v4.attribute_sets.iter()),
            Family::V6 => Box::new(self.kernel.v6.attribute_sets.iter()),
        };
        for (_, entry) in entries {
            let (attributes, routes) = (&entry.attributes, entry.count as usize);
            let is_unicast = attributes.kind == TYPE_UNICAST;
            *match attributes.kind {
                TYPE_UNICAST if attributes.next_hop.is_some() => &mut counts.objects,
                TYPE_UNICAST if attributes.hops.len() > 1 => &mut counts.multipath,
                TYPE_UNICAST => &mut counts.single_path,
                TYPE_LOCAL | TYPE_ANYCAST => &mut counts.local,
                TYPE_BROADCAST => &mut counts.broadcast,
                TYPE_MULTICAST => &mut counts.multicast,
                TYPE_BLACKHOLE => &mut counts.blackhole,
                TYPE_UNREACHABLE => &mut counts.unreachable,
                TYPE_PROHIBIT => &mut counts.prohibit,
                TYPE_THROW => &mut counts.throw,
                _ => &mut counts.others,
            } += routes;
            counts.unused += if entry.usable { 0 } else { routes };
            let wraps = is_unicast && attributes.hops.iter().any(|hop| hop.is_encapsulated);
            counts.encapsulated += if wraps { routes } else { 0 };
        }
        counts
    }
}

/// A next hop of the tables, by its kind.
pub(super) fn kind_of<N>(next_hop: &NextHop<N>) -> &'static str {
    match next_hop {
        NextHop::None => "nowhere",
        NextHop::Via(_) => "a neighbour",
        NextHop::Group(_) => "a group",
        NextHop::Connected(_) => "a connected network",
        NextHop::Local => "ourselves",
        NextHop::Broadcast => "broadcast",
        NextHop::Blackhole => "a blackhole",
        NextHop::Unreachable => "unreachable",
        NextHop::Prohibit => "prohibited",
        NextHop::Kernel => "the kernel",
    }
}
