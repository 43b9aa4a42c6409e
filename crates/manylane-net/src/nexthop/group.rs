//! Groups: several neighbours that share a prefix's flows, by weight (ECMP).
//!
//! A group is a row of [`BUCKETS`] buckets; each names a neighbour's slot. A flow's hash, mixed with a seed of
//! this router's own, chooses the bucket; so a flow stays with its neighbour as long as its bucket does, and buckets
//! move only when they must:
//!
//! | event                             | buckets that move                                            |
//! |-----------------------------------|--------------------------------------------------------------|
//! | a member goes, or is lost         | its own, to the others                                       |
//! | a member comes, or is found again | as many as its share: those that were its own before, first  |
//! | weights change                    | a member's buckets above its new share                       |
//!
//! The members whose neighbour has an address take part. If none has one, all take part, so that their packets wait and
//! request one; a member without an address gets nothing while another can take it.
//!
//! Shares are those of a *divisor method* (each next bucket is given to the member with the most weight for its buckets
//! so far, as Sainte-Laguë counts them, but no member gets a second bucket before each has one). Such a method is
//! consistent: when a member leaves, no other's share becomes smaller. With the largest remainder it could, and flows
//! between two members that stay would move for nothing.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// How finely a group divides its flows. A power of two.
pub const BUCKETS: usize = 512;

/// Members of a group at most, so that each has some buckets.
pub const MEMBERS_MAX: usize = 64;

/// A member of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// The slot of its neighbour.
    pub slot: u32,
    /// Its part of the flows is this by the sum of all weights. Not 0.
    pub weight: u16,
}

/// What the control thread knows of a group.
pub(super) struct Group {
    /// Members by slot, and whether each has an address.
    members: BTreeMap<u16, (u16, bool)>,
    /// The owner of each bucket while all members take part.
    home: Vec<u16>,
    /// The present owner of each bucket.
    current: Vec<u16>,
}

/// No neighbour's slot.
const NOBODY: u16 = u16::MAX;

impl Group {
    /// A group of these members; `has_address` says which neighbours have one.
    pub fn new(members: &[Member], has_address: impl Fn(u32) -> bool) -> Group {
        let (home, current) = (vec![NOBODY; BUCKETS], vec![NOBODY; BUCKETS]);
        let mut group = Group { members: BTreeMap::new(), home, current };
        group.set_members(members, has_address);
        group
    }

    /// Gives the group other members, or weights.
    ///
    /// # Panics
    ///
    /// With no or more than [`MEMBERS_MAX`] members, two of one slot, or a weight of 0.
    pub fn set_members(&mut self, members: &[Member], has_address: impl Fn(u32) -> bool) {
        assert!((1..=MEMBERS_MAX).contains(&members.len()), "{} members", members.len());
        assert!(members.iter().all(|member| member.weight > 0), "a member without a part");
        let entry = |member: &Member| {
            let slot = u16::try_from(member.slot).ok().filter(|&slot| slot != NOBODY);
            let slot = slot.expect("a neighbour has a next-hop id, and so a slot below 2^15");
            (slot, (member.weight, has_address(member.slot)))
        };
        self.members = members.iter().map(entry).collect();
        assert_eq!(self.members.len(), members.len(), "a neighbour is a member once");
        let shares = shares(self.members.iter().map(|(&slot, &(weight, _))| (slot, weight)));
        let former = self.home.clone();
        fill_shares(&mut self.home, &former, shares);
        self.divide();
    }

    /// Hears whether a member has an address. Says whether that is news.
    pub fn set_resolved(&mut self, slot: u16, resolved: bool) -> bool {
        match self.members.get_mut(&slot) {
            Some((_, known)) if *known != resolved => *known = resolved,
            _ => return false,
        }
        self.divide();
        true
    }

    /// Members' slots, weights, and how many buckets each has.
    pub fn members(&self) -> impl Iterator<Item = (Member, usize)> {
        self.members.iter().map(|(&slot, &(weight, _))| {
            let buckets = self.current.iter().filter(|&&owner| owner == slot).count();
            (Member { slot: slot.into(), weight }, buckets)
        })
    }

    /// The owner of each bucket.
    pub fn buckets(&self) -> &[u16] {
        &self.current
    }

    fn divide(&mut self) {
        let all =
            || self.members.iter().map(|(&slot, &(weight, resolved))| (slot, weight, resolved));
        let anybody = all().any(|(.., resolved)| resolved);
        let active = all().filter(|&(.., resolved)| resolved || !anybody);
        let shares = shares(active.map(|(slot, weight, _)| (slot, weight)));
        fill_shares(&mut self.current, &self.home, shares);
    }
}

/// How many buckets each gets. At least one each, in all [`BUCKETS`].
fn shares(members: impl Iterator<Item = (u16, u16)>) -> BTreeMap<u16, usize> {
    let mut counts: Vec<(u16, u16, usize)> =
        members.map(|(slot, weight)| (slot, weight, 0)).collect();
    for _ in 0..BUCKETS {
        let next = counts.iter_mut().max_by(|one, other| claim(one, other));
        if let Some((_, _, count)) = next {
            *count += 1;
        }
    }
    counts.into_iter().map(|(slot, _, count)| (slot, count)).collect()
}

/// Which member has the better claim to another bucket: weight / (2 x buckets + 1), and before that a member with none.
/// Of equals, the one in the lower slot, whatever other members exist.
fn claim(one: &(u16, u16, usize), other: &(u16, u16, usize)) -> Ordering {
    let of = |a: &(u16, u16, usize), b: &(u16, u16, usize)| usize::from(a.1) * (2 * b.2 + 1);
    let first = (one.2 == 0).cmp(&(other.2 == 0));
    first.then(of(one, other).cmp(&of(other, one))).then(other.0.cmp(&one.0))
}

/// Gives each bucket an owner, such that each owner has its share, and as few buckets as possible change theirs: an
/// owner loses the buckets above its share, and nothing else. Of several that it could lose, it keeps those at home,
/// and then those whose home takes no part; a free bucket returns home if it can.
fn fill_shares(buckets: &mut [u16], home: &[u16], mut shares: BTreeMap<u16, usize>) {
    let take = |shares: &mut BTreeMap<u16, usize>, owner: u16| match shares.get_mut(&owner) {
        Some(left) if *left > 0 => {
            *left -= 1;
            true
        }
        _ => false,
    };
    let active: Vec<u16> = shares.keys().copied().collect();
    let rank = |owner: u16, home: u16| match () {
        () if owner == home => 0,
        () if active.binary_search(&home).is_err() => 1,
        () => 2,
    };
    let mut kept = vec![false; buckets.len()];
    for wanted in 0..3 {
        for ((&mut owner, &home), kept) in buckets.iter_mut().zip(home).zip(&mut kept) {
            if rank(owner, home) == wanted {
                *kept = take(&mut shares, owner);
            }
        }
    }
    let mut free: Vec<(&mut u16, u16)> = Vec::new();
    for ((owner, &home), kept) in buckets.iter_mut().zip(home).zip(kept) {
        if !kept {
            match take(&mut shares, home) {
                true => *owner = home,
                false => free.push((owner, home)),
            }
        }
    }
    let rest = shares.into_iter().flat_map(|(owner, left)| std::iter::repeat_n(owner, left));
    for ((bucket, _), owner) in free.into_iter().zip(rest) {
        *bucket = owner;
    }
}

/// The bucket of a flow: the finaliser of SplitMix64 (Steele, Lea, Flood, 2014; public domain) over its
/// hash and the seed. Routers in a row with one seed would each use the same part of the next one's
/// group; so each has its own.
#[inline]
pub(super) fn bucket(seed: u64, flow_hash: u32) -> usize {
    let mut word = (u64::from(flow_hash) << 32 | u64::from(flow_hash)) ^ seed;
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (word ^ word >> 31) as usize % BUCKETS
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_are_shared_by_weight() {
        for (weights, expected) in [
            (&[1][..], &[512][..]),
            (&[1, 1], &[256, 256]),
            (&[1, 1, 1], &[171, 171, 170]),
            (&[3, 1], &[384, 128]),
            (&[1, 256], &[2, 510]),
            (&[1, 1, 65_535], &[1, 1, 510]),
        ] {
            let group = Group::new(&members(weights), |_| true);
            let buckets: Vec<usize> = group.members().map(|(_, buckets)| buckets).collect();
            assert_eq!(buckets, expected, "{weights:?}");
        }
    }

    #[test]
    fn a_member_without_an_address_is_left_out_while_another_has_one() {
        let mut group = Group::new(&members(&[1, 1, 2]), |_| false);
        assert_eq!(
            counts(&group),
            [128, 128, 256],
            "none has one: all take part, and are solicited"
        );
        assert!(group.set_resolved(1, true));
        assert_eq!(counts(&group), [0, 512, 0]);
        assert!(!group.set_resolved(1, true), "that is known");
        group.set_resolved(2, true);
        assert_eq!(counts(&group), [0, 171, 341]);
        group.set_resolved(1, false);
        group.set_resolved(2, false);
        assert_eq!(counts(&group), [128, 128, 256]);
        assert!(!group.set_resolved(9, true), "no member");
    }

    #[test]
    fn a_member_that_comes_back_gets_its_own_flows_back() {
        let mut group = Group::new(&members(&[1, 2, 3, 4]), |_| true);
        let before = group.buckets().to_vec();
        for slot in 0..4 {
            group.set_resolved(slot, false);
            assert_eq!(
                moved(&before, &group),
                before.iter().filter(|&&owner| owner == slot).count()
            );
            group.set_resolved(slot, true);
            assert_eq!(group.buckets(), before, "slot {slot}");
        }
    }

    #[test]
    fn a_seed_of_its_own_divides_what_another_router_has_put_together() {
        let of_first = (0..1 << 18).filter(|&hash| bucket(1, hash) == 7);
        let mut counts = [0; BUCKETS];
        of_first.for_each(|hash| counts[bucket(2, hash)] += 1);
        // 512 flows over 512 buckets: chance alone leaves 188 empty (1/e), and none with 10.
        assert!(counts.iter().filter(|&&count| count == 0).count() < 230, "{counts:?}");
        assert!(counts.iter().all(|&count| count < 10), "{counts:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever happens: shares are exact, and no bucket moves that need not.
        #[test]
        fn only_what_must_moves(
            weights in prop::collection::vec(1_u16..50, 1..24),
            events in prop::collection::vec((0_u16..24, any::<bool>(), 0_u16..50), 1..24),
        ) {
            let mut list = members(&weights);
            let mut resolved = [true; 24];
            let mut group = Group::new(&list, |_| true);
            for (slot, up, weight) in events {
                let before = group.buckets().to_vec();
                if weight == 0 || !list.iter().any(|member| member.slot == u32::from(slot)) {
                    resolved[usize::from(slot)] = up;
                    group.set_resolved(slot, up);
                } else if weight < 25 && list.len() > 1 {
                    list.retain(|member| member.slot != u32::from(slot));
                    group.set_members(&list, |slot| resolved[slot as usize]);
                } else {
                    list.retain(|member| member.slot != u32::from(slot));
                    list.push(Member { slot: slot.into(), weight });
                    group.set_members(&list, |slot| resolved[slot as usize]);
                }
                let any = list.iter().any(|member| resolved[member.slot as usize]);
                let active = list.iter().filter(|member| resolved[member.slot as usize] || !any);
                let wanted = shares(active.map(|member| (member.slot as u16, member.weight)));
                let have = |buckets: &[u16], slot| buckets.iter().filter(|&&owner| owner == slot).count();
                for (&slot, &share) in &wanted {
                    prop_assert_eq!(have(group.buckets(), slot), share);
                }
                let stay: usize =
                    wanted.iter().map(|(&slot, &share)| have(&before, slot).min(share)).sum();
                prop_assert_eq!(moved(&before, &group), BUCKETS - stay);
            }
        }

        /// What makes the rest possible: when one goes, no other's share becomes smaller.
        #[test]
        fn shares_are_consistent(weights in prop::collection::vec(1_u16..=256, 2..=MEMBERS_MAX), gone: usize) {
            let all: Vec<(u16, u16)> = (0..).zip(weights).collect();
            let gone = gone % all.len();
            let before = shares(all.iter().copied());
            let after = shares(all.iter().copied().filter(|&(slot, _)| usize::from(slot) != gone));
            prop_assert!(after.iter().all(|(slot, &share)| share >= before[slot] && before[slot] > 0));
        }
    }

    fn members(weights: &[u16]) -> Vec<Member> {
        (0..).zip(weights).map(|(slot, &weight)| Member { slot, weight }).collect()
    }

    fn counts(group: &Group) -> Vec<usize> {
        group.members().map(|(_, buckets)| buckets).collect()
    }

    fn moved(before: &[u16], group: &Group) -> usize {
        before.iter().zip(group.buckets()).filter(|(old, new)| old != new).count()
    }
}
