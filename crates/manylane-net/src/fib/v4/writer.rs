//! The one writer of the IPv4 table.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::ops::Range;

use manylane_sync::rcu::{Domain, Limbo};
use manylane_sync::words::WordsMut;

use super::direct::DirectMut;
use super::{BLOCKS, DIRECT, Ipv4Fib, Ipv4Tables, LIST};
use crate::fib::arena::Arena;
use crate::fib::interval::{Interval, Owner, Span, intervals};
use crate::fib::rib::{Bits, Rib};
use crate::fib::{EDIT_RETIRES, EditError, Ipv4Prefix, Limits, NextHopId};

/// Inserts and removes routes while readers look up; keeps the exact list of them.
///
/// # Invariants
///
/// 1. A /24 has a list exactly when it has a route longer than /24. The list has at least the boundaries of those
///    routes.
/// 2. `list_depths` has the depth of each entry of `ranges`: the prefix length + 1 of the route that owns its value, 0 for
///    none.
/// 3. A piece of `ranges` or `groups`, and a number in a directory, is in use, or in the limbo, or
///    free.
pub struct Ipv4Writer<D: DirectMut = WordsMut<u16>> {
    direct: D,
    blocks: WordsMut<u32>,
    groups: WordsMut<u32>,
    ranges: WordsMut<u32>,
    list_depths: Vec<u8>,
    groups_free: Arena,
    ranges_free: Arena,
    directories: HashMap<u16, Directory>,
    rib: Rib<u32>,
    limbo: Limbo<Freed>,
    limits: Limits,
}

/// The words of `groups` that belong to a /16.
struct Directory {
    first: u32,
    len: u32,
    /// Numbers below this have been given out once.
    fresh: u16,
    /// Numbers that came back.
    free: Vec<u16>,
}

/// What no reader can find any more.
enum Freed {
    List { first: u32 },
    Directory { first: u32, len: u32 },
    Number { block: u16, number: u16 },
}

impl<D: DirectMut> Ipv4Writer<D> {
    /// The writer of `tables`, whose readers are members of `domain`.
    ///
    /// # Panics
    ///
    /// When a table has the wrong size (see [`Ipv4Sizes`](super::Ipv4Sizes)), or `limits` leave no
    /// room for a single edit.
    pub fn new(tables: Ipv4Tables<D>, domain: &Domain, limits: Limits) -> Ipv4Writer<D> {
        assert_eq!(tables.direct.slots(), DIRECT, "`direct` has a word for each /24");
        Ipv4Writer::over(tables, domain, limits)
    }

    /// As `new`, for the first `direct.len()` /24s only: what a test can clear.
    pub(super) fn over(tables: Ipv4Tables<D>, domain: &Domain, limits: Limits) -> Ipv4Writer<D> {
        let Ipv4Tables { direct, blocks, groups, ranges } = tables;
        assert_eq!(blocks.len(), BLOCKS, "`blocks` has a word for each /16");
        assert!(limits.waiting_max >= EDIT_RETIRES, "one edit retires up to {EDIT_RETIRES} parts");
        Ipv4Writer {
            list_depths: vec![0; ranges.len()],
            groups_free: Arena::new(groups.len()),
            ranges_free: Arena::new(ranges.len() / UNIT),
            directories: HashMap::new(),
            rib: Rib::new(),
            limbo: Limbo::new(domain.clone(), limits.waiting_max),
            limits,
            direct,
            blocks,
            groups,
            ranges,
        }
    }

    /// Adds a route, or gives it another next hop. Returns the one it had.
    pub fn insert(
        &mut self,
        prefix: Ipv4Prefix,
        id: NextHopId,
    ) -> Result<Option<NextHopId>, EditError> {
        self.reclaim();
        let (addr, len) = (prefix.addr().to_bits(), prefix.len());
        let old = self.rib.exact(addr, len);
        if old == Some(id) {
            return Ok(old);
        }
        if old.is_none() && self.rib.len() >= self.limits.routes_max {
            return Err(EditError::TooManyRoutes { routes_max: self.limits.routes_max });
        }
        self.rib.insert(addr, len, id);
        if old.is_none() && len > 24 {
            self.rebuild(addr >> 8).inspect_err(|_| {
                self.rib.remove(addr, len);
            })?;
        } else {
            self.paint(prefix, Owner::of(Some((len, id))));
        }
        self.direct.flush();
        Ok(old)
    }

    /// Takes a route away. Returns the next hop it had, `None` without such a route.
    pub fn remove(&mut self, prefix: Ipv4Prefix) -> Result<Option<NextHopId>, EditError> {
        self.reclaim();
        let (addr, len) = (prefix.addr().to_bits(), prefix.len());
        let Some(old) = self.rib.remove(addr, len) else { return Ok(None) };
        if len > 24 {
            match self.rebuild(addr >> 8) {
                Ok(()) => {
                    self.direct.flush();
                    return Ok(Some(old));
                }
                // No room for the shorter list: the longer one will do, with other values.
                Err(EditError::Full { .. }) => (),
                Err(busy) => {
                    self.rib.insert(addr, len, old);
                    return Err(busy);
                }
            }
        }
        let outer = len.checked_sub(1).and_then(|len_max| self.rib.longest(addr, len_max));
        self.paint(prefix, Owner::of(outer));
        self.direct.flush();
        Ok(Some(old))
    }

    /// Fills a table that is empty, and where nothing waits for a grace period; each word is stored
    /// once. Of equal prefixes the last one counts. Returns the number of routes.
    pub fn load(
        &mut self,
        routes: impl IntoIterator<Item = (Ipv4Prefix, NextHopId)>,
    ) -> Result<usize, EditError> {
        self.reclaim();
        if self.rib.len() > 0 {
            return Err(EditError::NotEmpty { routes: self.rib.len() });
        }
        if !self.limbo.is_empty() {
            return Err(self.busy());
        }
        let keyed = routes.into_iter().map(|(p, id)| ((p.addr().to_bits(), p.len()), id));
        let rib: Rib<u32> = keyed.collect();
        if rib.len() > self.limits.routes_max {
            return Err(EditError::TooManyRoutes { routes_max: self.limits.routes_max });
        }
        self.rib = rib;
        let lists = self.load_lists().inspect_err(|_| self.rib = Rib::new())?;
        self.fill(&lists);
        self.direct.flush();
        Ok(self.rib.len())
    }

    /// Takes back what a grace period has freed. Every edit does so too; call it now and then.
    pub fn reclaim(&mut self) {
        self.direct.reclaim();
        while let Some(freed) = self.limbo.reclaim() {
            match freed {
                Freed::List { first } => self.give_back_list(first),
                Freed::Directory { first, len } => self.groups_free.give_back(first, len),
                Freed::Number { block, number } => self.give_back_number(block, number),
            }
        }
    }

    /// How many retired parts wait for a grace period.
    pub fn waiting(&self) -> usize {
        self.limbo.len() + self.direct.waiting()
    }

    /// A readers' side of the table.
    pub fn reader(&self) -> Ipv4Fib<D::Reader> {
        Ipv4Fib {
            direct: self.direct.reader(),
            blocks: self.blocks.reader(),
            groups: self.groups.reader(),
            ranges: self.ranges.reader(),
        }
    }

    /// The route that `addr` takes, for the control plane.
    pub fn lookup(&self, addr: Ipv4Addr) -> Option<(Ipv4Prefix, NextHopId)> {
        let (len, id) = self.rib.longest(addr.to_bits(), 32)?;
        Some((Ipv4Prefix::from_checked(addr.to_bits().first(len), len), id))
    }

    /// The next hop of exactly `prefix`.
    pub fn route(&self, prefix: Ipv4Prefix) -> Option<NextHopId> {
        self.rib.exact(prefix.addr().to_bits(), prefix.len())
    }

    /// All routes, in the order of their prefixes.
    pub fn routes(&self) -> impl Iterator<Item = (Ipv4Prefix, NextHopId)> {
        self.rib.iter().map(|(addr, len, id)| (Ipv4Prefix::from_checked(addr, len), id))
    }

    /// The number of routes.
    pub fn routes_len(&self) -> usize {
        self.rib.len()
    }

    /// Words in use or waiting, of `groups` and of `ranges`.
    pub fn words_used(&self) -> (usize, usize) {
        (self.groups_free.used() as usize, self.ranges_free.used() as usize * UNIT)
    }

    /// Bytes of the tables that lookups may read.
    pub fn bytes_used(&self) -> usize {
        let (groups, ranges) = self.words_used();
        self.direct.bytes_used() + (self.blocks.len() + groups + ranges) * 4
    }

    /// Gives every value in `prefix` that no longer route owns to `owner`. In place: see the door.
    fn paint(&mut self, prefix: Ipv4Prefix, owner: Owner) {
        let depth_max = prefix.len() + 1;
        let (first, last) = (prefix.addr().to_bits(), prefix.last().to_bits());
        for gap in self.gaps(prefix) {
            for slot in self.direct.fill(gap, owner.value as u16) {
                self.paint_list(slot, (first, last), depth_max, owner);
            }
        }
    }

    /// The /24s of `prefix` that no longer route contains whole.
    fn gaps(&self, prefix: Ipv4Prefix) -> Vec<Range<usize>> {
        let (first, last) = (prefix.addr().to_bits(), prefix.last().to_bits());
        let (mut next, end) = (first as usize >> 8, (last as usize >> 8) + 1);
        let mut gaps = Vec::new();
        // A route stands behind those that contain it.
        for (addr, len, _) in self.rib.within(first, last) {
            let slot = addr as usize >> 8;
            if (prefix.len() + 1..=24).contains(&len) && slot >= next {
                gaps.push(next..slot);
                next = (addr.last(len) as usize >> 8) + 1;
            }
        }
        gaps.push(next..end.min(self.direct.slots()));
        gaps
    }

    fn paint_list(&mut self, slot: usize, (first, last): (u32, u32), depth_max: u8, owner: Owner) {
        let list = self.list(slot);
        let entries = list + 1..list + 1 + self.ranges.load(list) as usize;
        for at in entries {
            // A boundary of the prefix is one of the list: an entry that begins inside is inside.
            let start = (slot as u32) << 8 | self.ranges.load(at) >> 16;
            if (first..=last).contains(&start) && self.list_depths[at] <= depth_max {
                self.list_depths[at] = owner.depth;
                self.ranges.publish(at, (start & 0xff) << 16 | owner.value);
            }
        }
    }

    /// Makes the /24 `slot` what the RIB says: a new list, or none. On an error nothing has changed.
    fn rebuild(&mut self, slot: u32) -> Result<(), EditError> {
        if self.limits.waiting_max - self.limbo.len() < EDIT_RETIRES {
            return Err(self.busy());
        }
        let cut = self.cut(slot);
        let word = self.direct.word(slot as usize);
        let old = (word & LIST != 0).then(|| self.list(slot as usize));
        if cut.len() == 1 {
            let number = word & !LIST;
            self.direct.set(slot as usize, cut[0].owner.value as u16);
            // No reader finds the number from here on: its grace period begins.
            self.direct.flush();
            retire(&mut self.limbo, Freed::Number { block: (slot >> 8) as u16, number });
        } else {
            let list = self.write_list(&cut)?;
            let number = match old {
                Some(_) => word & !LIST,
                None => self.take_number(slot).inspect_err(|_| self.give_back_list(list))?,
            };
            self.publish_list(slot, number, list);
            self.direct.set(slot as usize, LIST | number);
        }
        if let Some(first) = old {
            retire(&mut self.limbo, Freed::List { first: first as u32 });
        }
        Ok(())
    }

    /// The intervals of the /24 `slot`: one when it has no long routes.
    fn cut(&self, slot: u32) -> Vec<Interval> {
        let (first, last) = (slot << 8, slot << 8 | 0xff);
        let base = Owner::of(self.rib.longest(first, 24));
        let long = self.rib.within(first, last).filter(|&(_, len, _)| len > 24);
        intervals((first.into(), last.into()), base, long.map(span))
    }

    /// Writes a list that no reader can find yet.
    fn write_list(&mut self, cut: &[Interval]) -> Result<u32, EditError> {
        let Some(unit) = self.ranges_free.take(units(cut.len())) else {
            return Err(self.full("ranges", self.ranges.len(), cut.len() + 1));
        };
        let list = unit as usize * UNIT;
        self.ranges.store(list, cut.len() as u32);
        for (at, interval) in (list + 1..).zip(cut) {
            self.list_depths[at] = interval.owner.depth;
            self.ranges.store(at, (interval.first as u32 & 0xff) << 16 | interval.owner.value);
        }
        Ok(list as u32)
    }

    /// Makes a list's words free, that no reader can be in.
    fn give_back_list(&mut self, list: u32) {
        let entries = self.ranges.load(list as usize) as usize;
        self.ranges_free.give_back(list / UNIT as u32, units(entries));
    }

    /// A number for the /24 `slot`; makes its /16's directory, or a larger one, when none is left.
    fn take_number(&mut self, slot: u32) -> Result<u16, EditError> {
        let block = (slot >> 8) as u16;
        if let Some(number) = self.directories.get_mut(&block).and_then(Directory::number) {
            return Ok(number);
        }
        let len = self.directories.get(&block).map_or(DIRECTORY_MIN, |old| old.len * 2);
        if len > u32::from(LIST) {
            return Err(self.busy()); // 256 numbers are in use, all the others wait.
        }
        let directory = self.make_directory(block, len)?;
        Ok(directory.number().expect("it was just made or enlarged"))
    }

    /// A directory of `len` words in place of the one that the /16 `block` has, if it has one.
    fn make_directory(&mut self, block: u16, len: u32) -> Result<&mut Directory, EditError> {
        let Some(first) = self.groups_free.take(len) else {
            return Err(self.full("groups", self.groups.len(), len as usize));
        };
        let new = Directory { first, len, fresh: 0, free: Vec::new() };
        let directory = self.directories.entry(block).or_insert(new);
        let old = Freed::Directory { first: directory.first, len: directory.len };
        if directory.first != first {
            for number in 0..directory.len {
                let list = self.groups.load((directory.first + number) as usize);
                self.groups.store((first + number) as usize, list);
            }
            (directory.first, directory.len) = (first, len);
            retire(&mut self.limbo, old);
        }
        self.blocks.publish(block.into(), first);
        Ok(directory)
    }

    /// A number that no reader can have. With its last one a directory goes too: `blocks` still leads
    /// to it, but a reader looks there only with a number.
    fn give_back_number(&mut self, block: u16, number: u16) {
        let directory = self.directories.get_mut(&block).expect("it had this number");
        directory.free.push(number);
        if directory.free.len() == usize::from(directory.fresh) {
            let Directory { first, len, .. } =
                self.directories.remove(&block).expect("it was just there");
            self.groups_free.give_back(first, len);
        }
    }

    /// Where the list of the /24 `slot`, which has one, begins.
    fn list(&self, slot: usize) -> usize {
        self.groups.load(self.group(slot as u32, self.direct.word(slot) & !LIST)) as usize
    }

    fn group(&self, slot: u32, number: u16) -> usize {
        self.blocks.load(slot as usize >> 8) as usize + usize::from(number)
    }

    fn publish_list(&mut self, slot: u32, number: u16, list: u32) {
        let group = self.group(slot, number);
        self.groups.publish(group, list);
    }

    /// Writes and publishes the list of every /24 that needs one, and says which number it has; no
    /// word of `direct` leads to them yet. On an error nothing has changed.
    fn load_lists(&mut self) -> Result<Vec<(u32, u16)>, EditError> {
        let long = self.rib.iter().filter(|&(_, len, _)| len > 24);
        let mut slots: Vec<u32> = long.map(|(addr, _, _)| addr >> 8).collect();
        slots.dedup();
        let mut lists = Vec::with_capacity(slots.len());
        let loaded = slots.chunk_by(|a, b| a >> 8 == b >> 8).try_for_each(|slots| {
            let len = DIRECTORY_MIN.max((slots.len() as u32).next_power_of_two());
            self.make_directory((slots[0] >> 8) as u16, len)?;
            for &slot in slots {
                let list = self.write_list(&self.cut(slot))?;
                let number = self.take_number(slot).expect("the directory has room for these");
                self.publish_list(slot, number, list);
                lists.push((slot, number));
            }
            Ok(())
        });
        if let Err(error) = loaded {
            // No reader has found any of it, and before the load the table was empty.
            for (slot, number) in lists {
                let list = self.groups.load(self.group(slot, number));
                self.give_back_list(list);
            }
            for (_, Directory { first, len, .. }) in self.directories.drain() {
                self.groups_free.give_back(first, len);
            }
            return Err(error);
        }
        Ok(lists)
    }

    /// Stores every word of `direct`; these lead to lists.
    fn fill(&mut self, lists: &[(u32, u16)]) {
        let mut lists = lists.iter().peekable();
        let end = self.direct.slots() as u64;
        let short = self.rib.iter().filter(|&(_, len, _)| len <= 24).map(|route| {
            let Span { first, last, owner } = span(route);
            Span { first: first >> 8, last: last >> 8, owner }
        });
        let cut = intervals((0, end - 1), Owner::NONE, short);
        let ends = cut.iter().skip(1).map(|next| next.first.min(end)).chain([end]);
        for (interval, end) in cut.iter().zip(ends) {
            let (mut next, word) = (interval.first as usize, interval.owner.value as u16);
            while let Some((slot, number)) = lists.next_if(|(slot, _)| u64::from(*slot) < end) {
                let slot = *slot as usize;
                self.direct.fill(next..slot, word);
                self.direct.set(slot, LIST | number);
                next = slot + 1;
            }
            self.direct.fill(next..end as usize, word);
        }
    }

    fn busy(&self) -> EditError {
        EditError::Busy { waiting: self.limbo.len(), waiting_max: self.limits.waiting_max }
    }

    /// No piece of `wanted` words: for good, or until a grace period is over?
    fn full(&self, table: &'static str, words: usize, wanted: usize) -> EditError {
        if !self.limbo.is_empty() {
            return self.busy();
        }
        EditError::Full { table, words, wanted }
    }
}

/// Lists begin at multiples of this many words, so that a lone host route's is in one cache line.
const UNIT: usize = 4;

/// The units of a list.
fn units(entries: usize) -> u32 {
    (1 + entries).div_ceil(UNIT) as u32
}

/// A directory's first length.
const DIRECTORY_MIN: u32 = 4;

impl Directory {
    fn number(&mut self) -> Option<u16> {
        self.free.pop().or_else(|| {
            let fresh = self.fresh;
            (u32::from(fresh) < self.len).then(|| {
                self.fresh += 1;
                fresh
            })
        })
    }
}

fn retire(limbo: &mut Limbo<Freed>, freed: Freed) {
    let retired = limbo.retire(freed).is_ok();
    assert!(retired, "the edit has made room in the limbo");
}

fn span((addr, len, id): (u32, u8, NextHopId)) -> Span {
    let owner = Owner::of(Some((len, id)));
    Span { first: addr.into(), last: addr.last(len).into(), owner }
}
