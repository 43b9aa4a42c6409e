//! The one writer of the IPv6 table.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use manylane_sync::rcu::{Domain, Limbo};
use manylane_sync::words::WordsMut;

use super::tree::{LINE_WORDS, TREE, Trees};
use super::{BUCKETS_GLOBAL, DIRECT, Ipv6Fib, Ipv6Tables, bucket, bucket_len, is_global};
use super::{lower, upper};
use crate::fib::interval::{Interval, Owner, Span, intervals};
use crate::fib::rib::{Bits, Rib};
use crate::fib::{EDIT_RETIRES, EditError, Ipv6Prefix, Limits, NextHopId};

/// Inserts and removes routes while readers look up; keeps the exact list of them.
///
/// # Invariants
///
/// 1. A bucket has a tree exactly when there is a route longer than the bucket in it. The tree has at
///    least the boundaries of those up to /64, and of each /64 with longer ones.
/// 2. A /64 has a tree, listed in `hosts`, exactly when there is a route longer than /64 in it. Its
///    bucket's tree leads to it.
/// 3. A value's depth is the prefix length + 1 of the route that owns it, 0 for none: `depths` for
///    the plain words of `direct`, `Trees` keeps its own.
pub struct Ipv6Writer {
    direct: WordsMut<u32>,
    depths: Vec<u8>,
    trees: Trees,
    /// The trees over lower halves, by upper half.
    hosts: BTreeMap<u64, u32>,
    /// Routes up to /64.
    networks: Rib<u64>,
    /// Longer ones.
    longer: Rib<u128>,
    /// Trees that no reader can find any more, by the word of the way that led there.
    limbo: Limbo<u32>,
    limits: Limits,
}

impl Ipv6Writer {
    /// The writer of `tables`, whose readers are members of `domain`.
    ///
    /// # Panics
    ///
    /// When a table has the wrong size (see [`Ipv6Sizes`](super::Ipv6Sizes)), or `limits` leave no
    /// room for a single edit.
    pub fn new(tables: Ipv6Tables, domain: &Domain, limits: Limits) -> Ipv6Writer {
        let Ipv6Tables { direct, nodes } = tables;
        assert_eq!(direct.len(), DIRECT, "`direct` has a word for each bucket");
        assert!(limits.waiting_max >= EDIT_RETIRES, "one edit retires up to {EDIT_RETIRES} parts");
        Ipv6Writer {
            depths: vec![0; direct.len()],
            direct,
            trees: Trees::new(nodes),
            hosts: BTreeMap::new(),
            networks: Rib::new(),
            longer: Rib::new(),
            limbo: Limbo::new(domain.clone(), limits.waiting_max),
            limits,
        }
    }

    /// Adds a route, or gives it another next hop. Returns the one it had.
    pub fn insert(
        &mut self,
        prefix: Ipv6Prefix,
        id: NextHopId,
    ) -> Result<Option<NextHopId>, EditError> {
        self.reclaim();
        let old = self.route(prefix);
        if old == Some(id) {
            return Ok(old);
        }
        if old.is_none() && self.routes_len() >= self.limits.routes_max {
            return Err(EditError::TooManyRoutes { routes_max: self.limits.routes_max });
        }
        self.rib_insert(prefix, id);
        if old.is_none() {
            self.rebuild(prefix).inspect_err(|_| {
                self.rib_remove(prefix);
            })?;
        }
        self.paint(prefix, Owner::of(Some((prefix.len(), id))));
        Ok(old)
    }

    /// Takes a route away. Returns the next hop it had, none when there was no such route.
    pub fn remove(&mut self, prefix: Ipv6Prefix) -> Result<Option<NextHopId>, EditError> {
        self.reclaim();
        let Some(old) = self.rib_remove(prefix) else { return Ok(None) };
        match self.rebuild(prefix) {
            // No room for the smaller tree: the larger one will do, with other values.
            Ok(()) | Err(EditError::Full { .. }) => (),
            Err(busy) => {
                self.rib_insert(prefix, old);
                return Err(busy);
            }
        }
        self.paint(prefix, Owner::of(self.outer(prefix)));
        Ok(Some(old))
    }

    /// Fills a table that is empty, and where nothing waits for a grace period. Each tree is built
    /// once. Of equal prefixes the last one counts. Returns the number of routes.
    pub fn load(
        &mut self,
        routes: impl IntoIterator<Item = (Ipv6Prefix, NextHopId)>,
    ) -> Result<usize, EditError> {
        self.reclaim();
        if self.routes_len() > 0 {
            return Err(EditError::NotEmpty { routes: self.routes_len() });
        }
        if !self.limbo.is_empty() {
            return Err(self.busy());
        }
        let (networks, longer): (Vec<_>, Vec<_>) =
            routes.into_iter().partition(|(prefix, _)| prefix.len() <= 64);
        let keyed = networks.into_iter().map(|(p, id)| ((upper(p.addr().to_bits()), p.len()), id));
        self.networks = keyed.collect();
        let keyed = longer.into_iter().map(|(p, id)| ((p.addr().to_bits(), p.len()), id));
        self.longer = keyed.collect();
        let trees = self.load_trees().inspect_err(|_| {
            (self.networks, self.longer) = (Rib::new(), Rib::new());
        })?;
        let short: Vec<_> = self
            .networks
            .iter()
            .filter(|&(first, len, _)| len <= bucket_len(first))
            .map(|(first, len, id)| (network(first, len), id))
            .collect();
        // Each after those that contain it, and all before the trees, which have their values.
        for (prefix, id) in short {
            self.paint(prefix, Owner::of(Some((prefix.len(), id))));
        }
        for (bucket, way) in trees {
            self.direct.publish(bucket, way);
        }
        Ok(self.routes_len())
    }

    /// Takes back what a grace period has freed. Every edit does so too; call it now and then.
    pub fn reclaim(&mut self) {
        while let Some(way) = self.limbo.reclaim() {
            self.trees.give_back(way);
        }
    }

    /// A readers' side of the table.
    pub fn reader(&self) -> Ipv6Fib {
        Ipv6Fib { direct: self.direct.reader(), nodes: self.trees.reader() }
    }

    /// The route that `addr` takes, for the control plane.
    pub fn lookup(&self, addr: Ipv6Addr) -> Option<(Ipv6Prefix, NextHopId)> {
        let (len, id) = self.longest(addr.to_bits(), 128)?;
        Some((Ipv6Prefix::from_checked(addr.to_bits().first(len), len), id))
    }

    /// The next hop of exactly `prefix`.
    pub fn route(&self, prefix: Ipv6Prefix) -> Option<NextHopId> {
        let addr = prefix.addr().to_bits();
        if prefix.len() <= 64 {
            self.networks.exact(upper(addr), prefix.len())
        } else {
            self.longer.exact(addr, prefix.len())
        }
    }

    /// All routes: those up to /64 in the order of their prefixes, then the longer ones.
    pub fn routes(&self) -> impl Iterator<Item = (Ipv6Prefix, NextHopId)> {
        let longer = self.longer.iter();
        self.networks
            .iter()
            .map(|(first, len, id)| (network(first, len), id))
            .chain(longer.map(|(addr, len, id)| (Ipv6Prefix::from_checked(addr, len), id)))
    }

    /// The number of routes.
    pub fn routes_len(&self) -> usize {
        self.networks.len() + self.longer.len()
    }

    /// Words of `nodes` in use or waiting.
    pub fn words_used(&self) -> usize {
        self.trees.lines_used() * LINE_WORDS
    }

    /// Gives every value in `prefix` that no longer route owns to `owner`. In place: see the door.
    fn paint(&mut self, prefix: Ipv6Prefix, owner: Owner) {
        let depth_max = prefix.len() + 1;
        let (addr, last) = (prefix.addr().to_bits(), prefix.last().to_bits());
        if prefix.len() > 64 {
            // Without a tree there the route was the last longer one, and its bucket was rebuilt.
            if let Some(&way) = self.hosts.get(&upper(addr)) {
                self.trees.paint(way, (lower(addr), lower(last)), depth_max, owner);
            }
            return;
        }
        let (first, last) = (upper(addr), upper(last));
        for buckets in buckets(first, last) {
            for bucket in buckets {
                let way = self.direct.load(bucket);
                if way & TREE != 0 {
                    self.trees.paint(way, (first, last), depth_max, owner);
                } else if self.depths[bucket] <= depth_max {
                    self.publish_plain(bucket, owner);
                }
            }
        }
    }

    /// Makes the trees around `prefix`, which has come or gone, what the RIB says. A short one has
    /// none. On an error nothing has changed.
    fn rebuild(&mut self, prefix: Ipv6Prefix) -> Result<(), EditError> {
        let first = upper(prefix.addr().to_bits());
        if prefix.len() <= bucket_len(first) {
            return Ok(());
        }
        if self.limits.waiting_max - self.limbo.len() < EDIT_RETIRES {
            return Err(self.busy());
        }
        if prefix.len() > 64 { self.rebuild_hosts(first) } else { self.rebuild_bucket(first) }
    }

    /// The tree over the lower halves of the /64 `upper`.
    fn rebuild_hosts(&mut self, upper: u64) -> Result<(), EditError> {
        let old = self.hosts.get(&upper).copied();
        let cut = self.cut_hosts(upper);
        if cut.len() > 1 {
            let new = self.build(&cut)?;
            self.hosts.insert(upper, new);
            if old.is_some() {
                let way = self.direct.load(bucket(upper));
                self.trees.set(way, upper, Owner { value: new, depth: 0 });
            } else {
                self.rebuild_bucket(upper).inspect_err(|_| {
                    self.hosts.remove(&upper);
                    self.trees.give_back(new); // No reader has found it.
                })?;
            }
        } else {
            self.hosts.remove(&upper);
            match self.rebuild_bucket(upper) {
                Ok(()) => (),
                // The /64's boundaries stay in the bucket, and its value becomes plain.
                Err(EditError::Full { .. }) => {
                    self.trees.set(self.direct.load(bucket(upper)), upper, cut[0].owner);
                }
                Err(busy) => {
                    self.hosts.extend(old.map(|old| (upper, old)));
                    return Err(busy);
                }
            }
        }
        if let Some(old) = old {
            self.retire(old);
        }
        Ok(())
    }

    /// The tree of the bucket of `upper`, or none.
    fn rebuild_bucket(&mut self, upper: u64) -> Result<(), EditError> {
        let cut = self.cut_bucket(upper);
        let bucket = bucket(upper);
        let old = self.direct.load(bucket);
        if cut.len() > 1 {
            let new = self.build(&cut)?;
            self.direct.publish(bucket, new);
        } else {
            self.publish_plain(bucket, cut[0].owner);
        }
        if old & TREE != 0 {
            self.retire(old);
        }
        Ok(())
    }

    /// The intervals of a /64's lower half: one when it has no longer routes.
    fn cut_hosts(&self, upper: u64) -> Vec<Interval> {
        let base = Owner::of(self.networks.longest(upper, 64));
        let first = u128::from(upper) << 64;
        let longer = self.longer.within(first, first.last(64)).map(|(addr, len, id)| Span {
            first: lower(addr),
            last: lower(addr.last(len)),
            owner: Owner::of(Some((len, id))),
        });
        intervals((0, u64::MAX), base, longer)
    }

    /// The intervals of a bucket: one when it has no longer routes.
    fn cut_bucket(&self, upper: u64) -> Vec<Interval> {
        let len = bucket_len(upper);
        let (first, last) = (upper.first(len), upper.last(len));
        let base = Owner::of(self.networks.longest(first, len));
        let longer = self.networks.within(first, last).filter(|route| route.1 > len);
        let mut spans: Vec<Span> = longer
            .map(|(first, len, id)| Span {
                first,
                last: first.last(len),
                owner: Owner::of(Some((len, id))),
            })
            .collect();
        spans.extend(self.hosts.range(first..=last).map(|(&upper, &way)| Span {
            first: upper,
            last: upper,
            owner: Owner { value: way, depth: 0 },
        }));
        // Stable: a /64's tree stays behind its route, inside which it is.
        spans.sort_by_key(|span| (span.first, std::cmp::Reverse(span.last)));
        intervals((first, last), base, spans)
    }

    /// Builds the trees that all routes need, which no word of `direct` leads to yet. On an error
    /// nothing has changed.
    fn load_trees(&mut self) -> Result<Vec<(usize, u32)>, EditError> {
        if self.routes_len() > self.limits.routes_max {
            return Err(EditError::TooManyRoutes { routes_max: self.limits.routes_max });
        }
        let mut trees = Vec::new();
        self.load_all_trees(&mut trees).inspect_err(|_| {
            let hosts = std::mem::take(&mut self.hosts);
            for way in hosts.into_values().chain(trees.drain(..).map(|(_, way)| way)) {
                self.trees.give_back(way);
            }
        })?;
        Ok(trees)
    }

    fn load_all_trees(&mut self, trees: &mut Vec<(usize, u32)>) -> Result<(), EditError> {
        let mut uppers: Vec<u64> = self.longer.iter().map(|(addr, _, _)| upper(addr)).collect();
        uppers.dedup();
        for &upper in &uppers {
            let way = self.build(&self.cut_hosts(upper))?;
            self.hosts.insert(upper, way);
        }
        let long = self.networks.iter().filter(|&(first, len, _)| len > bucket_len(first));
        uppers.extend(long.map(|(first, _, _)| first));
        uppers.sort_unstable_by_key(|&upper| bucket(upper));
        uppers.dedup_by_key(|upper| bucket(*upper));
        for upper in uppers {
            let way = self.build(&self.cut_bucket(upper))?;
            trees.push((bucket(upper), way));
        }
        Ok(())
    }

    fn build(&mut self, cut: &[Interval]) -> Result<u32, EditError> {
        self.trees.build(cut).map_err(|lines| {
            // No piece of that many: for good, or until a grace period is over?
            if !self.limbo.is_empty() {
                return self.busy();
            }
            let words = self.trees.lines_len() * LINE_WORDS;
            EditError::Full { table: "nodes", words, wanted: lines * LINE_WORDS }
        })
    }

    fn publish_plain(&mut self, bucket: usize, owner: Owner) {
        self.depths[bucket] = owner.depth;
        self.direct.publish(bucket, owner.value);
    }

    fn rib_insert(&mut self, prefix: Ipv6Prefix, id: NextHopId) {
        let addr = prefix.addr().to_bits();
        if prefix.len() <= 64 {
            self.networks.insert(upper(addr), prefix.len(), id);
        } else {
            self.longer.insert(addr, prefix.len(), id);
        }
    }

    fn rib_remove(&mut self, prefix: Ipv6Prefix) -> Option<NextHopId> {
        let addr = prefix.addr().to_bits();
        if prefix.len() <= 64 {
            self.networks.remove(upper(addr), prefix.len())
        } else {
            self.longer.remove(addr, prefix.len())
        }
    }

    /// The route that takes over where `prefix` goes.
    fn outer(&self, prefix: Ipv6Prefix) -> Option<(u8, NextHopId)> {
        prefix.len().checked_sub(1).and_then(|max| self.longest(prefix.addr().to_bits(), max))
    }

    fn longest(&self, addr: u128, len_max: u8) -> Option<(u8, NextHopId)> {
        let longer = (len_max > 64).then(|| self.longer.longest(addr, len_max)).flatten();
        longer.or_else(|| self.networks.longest(upper(addr), len_max.min(64)))
    }

    fn retire(&mut self, way: u32) {
        let retired = self.limbo.retire(way).is_ok();
        assert!(retired, "the edit made sure that there is room in the limbo");
    }

    fn busy(&self) -> EditError {
        EditError::Busy { waiting: self.limbo.len(), waiting_max: self.limits.waiting_max }
    }
}

/// The buckets between two upper halves that begin and end a prefix: in 2000::/3, and elsewhere.
fn buckets(first: u64, last: u64) -> [std::ops::Range<usize>; 2] {
    if is_global(first) {
        return [bucket(first)..bucket(last) + 1, 0..0];
    }
    let elsewhere =
        BUCKETS_GLOBAL + (first >> 48) as usize..BUCKETS_GLOBAL + (last >> 48) as usize + 1;
    // Only a prefix shorter than /3 begins before 2000::/3 and contains it.
    let contains_global = (first..=last).contains(&(1 << 61));
    [if contains_global { 0..BUCKETS_GLOBAL } else { 0..0 }, elsewhere]
}

fn network(first: u64, len: u8) -> Ipv6Prefix {
    Ipv6Prefix::from_checked(u128::from(first) << 64, len)
}
