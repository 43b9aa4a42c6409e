//! The one writer of the IPv6 table.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use manylane_sync::rcu::{Domain, Limbo};
use manylane_sync::words::WordsMut;

use super::tree::{HOST, NODE, NoRoom, Trees};
use super::{BUCKET_LEN, DIRECT, Ipv6Fib, Ipv6Tables, bucket};
use super::{lower, upper};
use crate::fib::interval::{Interval, Owner, Span};
use crate::fib::rib::{Bits, Rib};
use crate::fib::{EDIT_RETIRES, EditError, Ipv6Prefix, Limits, NextHopId};

mod structure;

use structure::{Change, Done, Half};

/// Inserts and removes routes while readers look up; keeps the exact list of them.
///
/// # Invariants
///
/// 1. A bucket leads on exactly when it has a longer route, and an entry does when its block has a longer route. A leaf
///    has at least the boundaries of those up to /64, and of each /64 with longer ones.
/// 2. A /64 leads on, and is listed in `hosts`, exactly when it has a route longer than /64.
/// 3. A value's depth is the prefix length + 1 of the route that owns it, 0 for none: `depths` for
///    the plain words of `direct`, `Trees` keeps its own.
pub struct Ipv6Writer {
    direct: WordsMut<u32>,
    depths: Vec<u8>,
    trees: Trees,
    /// The words that lead to lower halves, by upper half.
    hosts: BTreeMap<u64, u32>,
    /// Routes up to /64.
    networks: Rib<u64>,
    /// Longer ones.
    longer: Rib<u128>,
    /// What no reader can find any more, by the word that led there.
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
        let Ipv6Tables { direct, index, leaves } = tables;
        assert_eq!(direct.len(), DIRECT, "`direct` has a word for each bucket");
        assert!(limits.waiting_max >= EDIT_RETIRES, "one edit retires up to {EDIT_RETIRES} parts");
        Ipv6Writer {
            depths: vec![0; direct.len()],
            direct,
            trees: Trees::new(index, leaves),
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
            let done = self.restructure(prefix, Change::Came).inspect_err(|_| {
                self.rib_remove(prefix);
            })?;
            if done == Done::Rebuilt && !self.has_hosts(prefix) {
                return Ok(old);
            }
        }
        self.paint(prefix, Owner::of(Some((prefix.len(), id))));
        Ok(old)
    }

    /// Takes a route away. Returns the next hop it had, `None` without such a route.
    pub fn remove(&mut self, prefix: Ipv6Prefix) -> Result<Option<NextHopId>, EditError> {
        self.reclaim();
        let Some(old) = self.rib_remove(prefix) else { return Ok(None) };
        match self.restructure(prefix, Change::Went) {
            Ok(Done::Rebuilt) if !self.has_hosts(prefix) => return Ok(Some(old)),
            // No room for fewer boundaries: the present ones will do, with other values.
            Ok(_) | Err(EditError::Full { .. }) => (),
            Err(busy) => {
                self.rib_insert(prefix, old);
                return Err(busy);
            }
        }
        self.paint(prefix, Owner::of(self.outer(prefix)));
        Ok(Some(old))
    }

    /// Fills a table that is empty, and where nothing waits for a grace period. Each leaf is built
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
            .filter(|&(_, len, _)| u32::from(len) <= BUCKET_LEN)
            .map(|(first, len, id)| (network(first, len), id))
            .collect();
        // Each after those that contain it, and all before what leads on, which has their values.
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

    /// How many retired parts wait for a grace period.
    pub fn waiting(&self) -> usize {
        self.limbo.len()
    }

    /// A readers' side of the table.
    pub fn reader(&self) -> Ipv6Fib {
        let (index, leaves) = self.trees.reader();
        Ipv6Fib { direct: self.direct.reader(), index, leaves }
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

    /// Words in use or waiting, of `index` and of `leaves`.
    pub fn words_used(&self) -> (usize, usize) {
        self.trees.words_used()
    }

    /// Bytes of the tables that lookups may read.
    pub fn bytes_used(&self) -> usize {
        let (index, leaves) = self.words_used();
        (self.direct.len() + index) * 4 + leaves * 8
    }

    /// Gives every value in `prefix` that no longer route owns to `owner`. In place: see the door.
    fn paint(&mut self, prefix: Ipv6Prefix, owner: Owner) {
        let depth_max = prefix.len() + 1;
        let (addr, last) = (prefix.addr().to_bits(), prefix.last().to_bits());
        if prefix.len() > 64 {
            // Without a way on the route was the last longer one, and its /64 is as the RIB says.
            if let Some(&way) = self.hosts.get(&upper(addr)) {
                let range = (lower(addr), lower(last));
                self.trees.paint(way & !HOST, (0, 0), range, depth_max, owner);
            }
            return;
        }
        let (first, last) = (upper(addr), upper(last));
        for bucket in bucket(first)..=bucket(last) {
            let way = self.direct.load(bucket);
            if way & NODE != 0 {
                let block = ((bucket as u64) << (64 - BUCKET_LEN), BUCKET_LEN);
                self.trees.paint(way, block, (first, last), depth_max, owner);
            } else if self.depths[bucket] <= depth_max {
                self.publish(bucket, owner);
            }
        }
    }

    /// Builds what all routes need, which no word of `direct` leads to yet. On an error nothing has
    /// changed.
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
            let (cut, spans) = self.cut(Half::Lower(upper), 0, 0);
            let way = self.build(&cut, &spans, 0)?.value | HOST;
            self.hosts.insert(upper, way);
        }
        let long = self.networks.iter().filter(|&(_, len, _)| u32::from(len) > BUCKET_LEN);
        uppers.extend(long.map(|(first, _, _)| first));
        uppers.sort_unstable_by_key(|&upper| bucket(upper));
        uppers.dedup_by_key(|upper| bucket(*upper));
        for upper in uppers {
            let (cut, spans) = self.cut(Half::Upper, upper.first(BUCKET_LEN as u8), BUCKET_LEN);
            let way = self.build(&cut, &spans, BUCKET_LEN)?.value;
            trees.push((bucket(upper), way));
        }
        Ok(())
    }

    fn build(&mut self, cut: &[Interval], spans: &[Span], pos: u32) -> Result<Owner, EditError> {
        self.trees.build(cut, spans, pos).map_err(|NoRoom { table, words, wanted }| {
            // No piece of that many: for good, or until a grace period is over?
            if !self.limbo.is_empty() {
                return self.busy();
            }
            EditError::Full { table, words, wanted }
        })
    }

    fn publish(&mut self, bucket: usize, owner: Owner) {
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
        assert!(retired, "the edit has made room in the limbo");
    }

    fn busy(&self) -> EditError {
        EditError::Busy { waiting: self.limbo.len(), waiting_max: self.limits.waiting_max }
    }
}

fn network(first: u64, len: u8) -> Ipv6Prefix {
    Ipv6Prefix::from_checked(u128::from(first) << 64, len)
}
