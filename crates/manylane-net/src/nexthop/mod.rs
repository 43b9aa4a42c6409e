//! What the prefixes of the FIB lead to.
//!
//! A prefix holds the id of a next hop; the next hop is one word in a table. Prefixes share next hops,
//! so that changing one word moves all its prefixes in one step (I6). Where it is a group, one more
//! word says whose the packet's flow is (`group`).
//!
//! | table              | one word for each | holds                                                 |
//! |--------------------|-------------------|-------------------------------------------------------|
//! | `next_hops: u64`   | next-hop id       | what it leads to                                      |
//! | `buckets: u16`     | bucket of a group | a neighbour's slot; [`BUCKETS`] words for each group  |
//! | `generation: u32`  | all               | how often routes began to change, or had changed      |
//!
//! Threads: the control thread writes, workers read one word per packet, two for a group, and the generation once a
//! batch.
//!
//! # What waits while its route changes
//!
//! A packet that waits for one neighbour may be of a flow that moves to another, because a member of its
//! group comes or goes, or because its prefix leads elsewhere; and newer ones would overtake it (I3). So
//! routes change between two steps of the [`Generation`], which is odd in the middle:
//!
//! | thread  | does                                                                              |
//! |---------|-----------------------------------------------------------------------------------|
//! | control | a step; then words of the FIB, of next hops, of buckets; then a step              |
//! | worker  | reads the generation, looks a batch up, reads the generation                      |
//! | worker  | at an odd generation, or another than that of its held packets' lookups: looks again, at |
//! |         | the newest packet first, at held ones last; then dispatches, the oldest first     |
//!
//! A worker that has found a new word finds the first step, and looks again at older packets: the newest first, so that
//! an older one never finds older words. In the middle of a change two looks may differ at one generation, so an odd
//! one never counts as equal; the second step ends that. No look by itself is torn: a packet's route is one word, of
//! the FIB, of a next hop or of a bucket.
//!
//! Loom explores it in `manylane-sync`'s `tests/loom/routes.rs`: `a_flow_that_moves_keeps_its_order`.
//!
//! Elsewhere: `dst` has what a holder keeps of a next hop longer than a turn.

pub mod dst;
mod group;
pub mod ids;

use std::collections::BTreeSet;
use std::fmt;

use manylane_frame::vocabulary::PortId;
use manylane_sync::rcu::{Domain, Guard, Index, Limbo};
use manylane_sync::words::{Words, WordsMut};

use crate::fib::NextHopId;
use crate::neighbour::Neighbour;
use crate::wire::flow::FlowKey;
use group::Group;

pub use group::{BUCKETS, MEMBERS_MAX, Member};

/// A packet's next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop<N> {
    /// Nowhere: no route.
    None,
    /// To this neighbour.
    Via(N),
    /// To one of a group's members, by the packet's flow.
    Group(GroupId),
    /// The destination is a neighbour on this port, without an entry yet.
    Connected(PortId),
    /// The packet is for one of our own addresses.
    Local,
    /// The packet is for the broadcast address of a connected network.
    Broadcast,
    /// Drop it in silence.
    Blackhole,
    /// Drop it and tell the sender that the host is unreachable.
    Unreachable,
    /// Drop it and tell the sender that this is prohibited.
    Prohibit,
    /// The kernel's: a route of a kind that only it can carry out.
    Kernel,
}

/// The number of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u16);

/// The table has the most groups, or the free ones wait for their grace period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupsFull {
    /// The bound.
    pub groups_max: usize,
}

impl fmt::Display for GroupsFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "none of the {} groups of next hops is free; use the same members, with the same weights, \
             for more prefixes: they share one group",
            self.groups_max
        )
    }
}

impl std::error::Error for GroupsFull {}

/// The writer's side of the next-hop table.
pub struct NextHopsMut {
    words: WordsMut<u64>,
    buckets: WordsMut<u16>,
    generation: WordsMut<u32>,
    groups: Vec<Option<Group>>,
    free: Vec<GroupId>,
    /// The groups that a slot is a member of.
    by_slot: BTreeSet<(u32, GroupId)>,
    limbo: Limbo<GroupId>,
    seed: u64,
}

/// The workers' side of the next-hop table.
#[derive(Clone)]
pub struct NextHops {
    words: Words<u64>,
    buckets: Words<u16>,
    generation: Generation,
    seed: u64,
    /// Follows from the seed.
    key: FlowKey,
}

/// How often routes began to change, or had changed. What was looked up after it was read, and before it
/// was another, is what a lookup finds now; unless it is odd.
#[derive(Clone)]
pub struct Generation(Words<u32>);

/// The number stands in the middle of 256 bytes, as the adjacencies' generation does, and for its reasons.
const GENERATION_WORDS: usize = 64;
const GENERATION: usize = GENERATION_WORDS / 2;

/// A next hop's word: the kind in the lowest byte, its number from bit 32 on.
const KIND: u64 = 0xff;
const NUMBER_SHIFT: u32 = 32;
const VIA: u64 = 1;

impl NextHopsMut {
    /// A table in `words`; all next hops are `None`, and it has no groups.
    pub fn new(words: WordsMut<u64>) -> NextHopsMut {
        NextHopsMut::with_groups(words, WordsMut::zeroed(0), Domain::new(1), 0)
    }

    /// As `new`, with groups: one for each [`BUCKETS`] words of `buckets`. Their numbers are used again after a grace
    /// period of `domain`; `seed` divides flows otherwise than another router does.
    pub fn with_groups(
        words: WordsMut<u64>,
        buckets: WordsMut<u16>,
        domain: Domain,
        seed: u64,
    ) -> NextHopsMut {
        assert!(words.len() <= usize::from(NextHopId::MAX.raw()) + 1, "more next hops than ids");
        let groups_max = buckets.len() / BUCKETS;
        let last = u16::try_from(groups_max).expect("a group has a next-hop id");
        NextHopsMut {
            words,
            buckets,
            generation: WordsMut::zeroed(GENERATION_WORDS),
            groups: (0..groups_max).map(|_| None).collect(),
            free: (0..last).rev().map(GroupId).collect(),
            by_slot: BTreeSet::new(),
            // Each group is in limbo once at most: `retire` cannot refuse.
            limbo: Limbo::new(domain, groups_max.max(1)),
            seed,
        }
    }

    /// Divides flows by another seed: for sides that are made from now on.
    pub fn set_seed(&mut self, seed: u64) {
        self.seed = seed;
    }

    /// A side for workers.
    pub fn reader(&self) -> NextHops {
        NextHops {
            words: self.words.reader(),
            buckets: self.buckets.reader(),
            generation: self.generation(),
            seed: self.seed,
            key: FlowKey::seeded(self.seed),
        }
    }

    /// The generation of all routes, for a holder of parts of them.
    pub fn generation(&self) -> Generation {
        Generation(self.generation.reader())
    }

    /// Announces that routes are about to change, or have changed. For edits of the FIB and of next hops: one call
    /// before and one after any number of edits, since each change lets workers look again at the packets they hold.
    /// Groups call it themselves.
    pub fn step(&mut self) {
        // Release, by `publish`: pairs with the Acquire load of `Generation::load`.
        // - A reader that sees the change sees the step before it, whose words are published after.
        // - A reader that sees the step after the change sees the change.
        // Explored by `a_flow_that_moves_keeps_its_order`; mutants without the first, or weaker, fail.
        let next = self.generation.load(GENERATION).wrapping_add(1);
        self.generation.publish(GENERATION, next);
    }

    /// The most next hops, id 0 included.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Whether the table has no words.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Sets what `id` means. All its prefixes follow at once. `Via` names a neighbour's slot.
    pub fn set(&mut self, id: NextHopId, next_hop: NextHop<u32>) {
        self.words.publish(usize::from(id.raw()), encode(next_hop));
    }

    /// What `id` means.
    pub fn get(&self, id: NextHopId) -> NextHop<u32> {
        decode(self.words.load(usize::from(id.raw())), |slot| slot)
    }

    /// Takes back the numbers of groups whose grace period is over. `add_group` does so too.
    pub fn reclaim(&mut self) {
        self.free.extend(std::iter::from_fn(|| self.limbo.reclaim()));
    }

    /// How many groups wait for a grace period.
    pub fn waiting(&self) -> usize {
        self.limbo.len()
    }

    /// Makes a group, to which no prefix leads yet; `has_address` says whether a slot's neighbour can be
    /// sent to.
    ///
    /// # Panics
    ///
    /// With no or more than [`MEMBERS_MAX`] members, two of one slot, or a weight of 0.
    pub fn add_group(
        &mut self,
        members: &[Member],
        has_address: impl Fn(u32) -> bool,
    ) -> Result<GroupId, GroupsFull> {
        self.reclaim();
        let made = Group::new(members, has_address);
        let id = self.free.pop().ok_or(GroupsFull { groups_max: self.groups.len() })?;
        // Relaxed: next hops may lead here already, but no prefix does, so no worker looks and nothing moves.
        // What brings them here, the first prefix in the FIB (or `set`, of an id that prefixes have), is
        // stored with Release (`WordsMut::publish`), and found with Acquire (`Words::load`): then they see all
        // of this. A number that was used before comes again after a grace period only. Explored by
        // `a_published_record_is_seen_whole`.
        for (bucket, &slot) in made.buckets().iter().enumerate() {
            self.buckets.store(usize::from(id.0) * BUCKETS + bucket, slot);
        }
        self.by_slot.extend(members.iter().map(|member| (member.slot, id)));
        self.groups[usize::from(id.0)] = Some(made);
        Ok(id)
    }

    /// Gives a group other members, or weights. Only the flows move that must.
    ///
    /// # Panics
    ///
    /// As [`NextHopsMut::add_group`], and without such a group.
    pub fn set_members(
        &mut self,
        id: GroupId,
        members: &[Member],
        has_address: impl Fn(u32) -> bool,
    ) {
        let group = self.groups[usize::from(id.0)].as_mut().expect("the group was not removed");
        let former: Vec<u32> = group.members().map(|(member, _)| member.slot).collect();
        group.set_members(members, has_address);
        former.into_iter().for_each(|slot| _ = self.by_slot.remove(&(slot, id)));
        self.by_slot.extend(members.iter().map(|member| (member.slot, id)));
        self.publish(&[id]);
    }

    /// Takes a group away. First make sure that no next hop leads there any more.
    ///
    /// # Panics
    ///
    /// Without such a group.
    pub fn remove_group(&mut self, id: GroupId) {
        let group =
            self.groups[usize::from(id.0)].take().expect("the group was not removed before");
        group.members().for_each(|(member, _)| _ = self.by_slot.remove(&(member.slot, id)));
        let refused = self.limbo.retire(id).is_err();
        assert!(!refused, "the limbo has room for every record");
    }

    /// Takes note of whether the neighbour in `slot` can be sent to. Returns whether flows moved: then holders of
    /// packets should look again. To be called *before* workers see that an address is lost, and *after* they see a new
    /// one.
    pub fn set_resolved(&mut self, slot: u32, resolved: bool) -> bool {
        let Ok(member) = u16::try_from(slot) else { return false };
        let groups = self.by_slot.range((slot, GroupId(0))..=(slot, GroupId(u16::MAX)));
        let changed = groups.map(|&(_, id)| id).filter(|id| {
            let group = self.groups[usize::from(id.0)].as_mut();
            group.is_some_and(|group| group.set_resolved(member, resolved))
        });
        let changed: Vec<GroupId> = changed.collect();
        self.publish(&changed)
    }

    /// A group's members, and how many of its [`BUCKETS`] buckets each has at present.
    pub fn members(&self, id: GroupId) -> impl Iterator<Item = (Member, usize)> {
        let group = self.groups.get(usize::from(id.0)).and_then(Option::as_ref);
        group.into_iter().flat_map(Group::members)
    }

    /// Lets workers see the buckets that these groups have moved.
    fn publish(&mut self, groups: &[GroupId]) -> bool {
        let mut moved = false;
        for id in groups.iter().map(|id| usize::from(id.0)) {
            for bucket in 0..BUCKETS {
                let group = self.groups[id].as_ref().expect("it was just changed");
                let (at, slot) = (id * BUCKETS + bucket, group.buckets()[bucket]);
                if self.buckets.load(at) != slot {
                    if !moved {
                        self.step();
                        moved = true;
                    }
                    self.buckets.publish(at, slot);
                }
            }
        }
        if moved {
            self.step();
        }
        moved
    }
}

impl NextHops {
    /// The neighbour at `id`, if it leads to one: the common case, without the others' branches.
    #[inline(always)]
    pub fn via<'g, T>(&self, guard: Guard<'g>, id: Index<'g, T>) -> Option<Index<'g, Neighbour>> {
        let word = self.words.load(id.raw() as usize);
        (word & KIND == VIA).then(|| Index::new(guard, (word >> NUMBER_SHIFT) as u32))
    }

    /// What the next hop at `id` is.
    #[inline(always)]
    pub fn load<'g, T>(&self, guard: Guard<'g>, id: Index<'g, T>) -> NextHop<Index<'g, Neighbour>> {
        decode(self.words.load(id.raw() as usize), |slot| Index::new(guard, slot))
    }

    /// The member of a group, which was loaded under this guard, that takes the flow of this IP packet.
    ///
    /// # Panics
    ///
    /// When the group is not one of this table.
    #[inline]
    pub fn member<'g>(
        &self,
        guard: Guard<'g>,
        group: GroupId,
        packet: &[u8],
    ) -> Index<'g, Neighbour> {
        self.member_by(guard, group, self.seed, self.key.flow_hash(packet))
    }

    /// The member that takes the flow with this hash, by the key that follows from `seed` ([`FlowKey::seeded`]).
    ///
    /// # Panics
    ///
    /// When the group is not one of this table.
    #[inline]
    pub fn member_by<'g>(
        &self,
        guard: Guard<'g>,
        group: GroupId,
        seed: u64,
        flow_hash: u32,
    ) -> Index<'g, Neighbour> {
        let at = usize::from(group.0) * BUCKETS + group::bucket(seed, flow_hash);
        Index::new(guard, self.buckets.load(at).into())
    }

    /// How often routes began to change, or had changed: to be read before a lookup. If it is another
    /// afterwards, the packet's way may be another too.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.generation.load()
    }
}

fn encode(next_hop: NextHop<u32>) -> u64 {
    let (kind, number) = match next_hop {
        NextHop::None => (0, 0),
        NextHop::Via(slot) => (VIA, slot),
        NextHop::Connected(port) => (2, u32::from(port.0)),
        NextHop::Local => (3, 0),
        NextHop::Broadcast => (4, 0),
        NextHop::Blackhole => (5, 0),
        NextHop::Unreachable => (6, 0),
        NextHop::Prohibit => (7, 0),
        NextHop::Group(group) => (8, u32::from(group.0)),
        NextHop::Kernel => (9, 0),
    };
    kind | u64::from(number) << NUMBER_SHIFT
}

#[inline(always)]
fn decode<N>(word: u64, neighbour: impl FnOnce(u32) -> N) -> NextHop<N> {
    let number = (word >> NUMBER_SHIFT) as u32;
    match word & KIND {
        VIA => NextHop::Via(neighbour(number)),
        2 => NextHop::Connected(PortId(number as u16)),
        3 => NextHop::Local,
        4 => NextHop::Broadcast,
        5 => NextHop::Blackhole,
        6 => NextHop::Unreachable,
        7 => NextHop::Prohibit,
        8 => NextHop::Group(GroupId(number as u16)),
        9 => NextHop::Kernel,
        _ => NextHop::None,
    }
}

impl Generation {
    /// The number. Wraps around after 2^32 steps.
    #[inline]
    pub fn load(&self) -> u32 {
        self.0.load(GENERATION)
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests;
