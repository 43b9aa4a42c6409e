//! Many addresses side by side.

use manylane_sync::words::Words;
use manylane_sync::words::wide::{Batch, LANES, Wide};

use super::leaf;
use super::tree::{self, HOST, NEAR};
use super::{BUCKET_LEN, Ipv6Fib, bucket, upper};

/// Addresses that go side by side.
pub(super) const STAGE: usize = 4 * LANES;

/// Fewer are quicker one after another.
pub(super) const FEW: usize = 5;

/// Fewer are quicker word by word.
const SIDE_BY_SIDE_MIN: usize = 12;

/// Up to [`STAGE`] addresses, and as many places for what they find.
pub(super) struct Stage<'a> {
    pub fib: &'a Ipv6Fib,
    pub addrs: &'a [u128],
    pub ids: &'a mut [u16],
}

impl Batch for Stage<'_> {
    type Output = ();

    /// All addresses take one step at a time, so that the memory of each is prefetched one round before it is read.
    /// Which of them are done is different each time: a branch on it would cost more than a step. So
    /// each is queued for the next, and what does not count is written over by the next one.
    fn scalar(self) {
        let Stage { fib, addrs, ids } = self;
        addrs.iter().for_each(|&addr| fib.prefetch(addr));
        let mut steps = [Step { at: 0, place: 0, left: 0 }; STAGE];
        let (mut ways, mut lefts) = ([0; STAGE], [0; STAGE]);
        let mut len = 0;
        for (place, &addr) in addrs.iter().enumerate() {
            let upper = upper(addr);
            let (mut way, mut left) = (fib.direct.load(bucket(upper)), upper << BUCKET_LEN);
            // Nearly all: few buckets lead on, so their first entries are at hand.
            if tree::is_index(way) == 1 {
                let at = tree::entry_at(way, left);
                left <<= tree::stride(way);
                way = fib.index.load(at);
            }
            (ways[place % STAGE], lefts[place % STAGE]) = (way, left);
            let at = tree::entry_at(way, left);
            fib.index.prefetch(at);
            steps[len % STAGE] =
                Step { at: at as u32, place: place as u32, left: left << tree::stride(way) };
            len += tree::is_index(way);
        }
        // Bounded: each round takes four bits or more of each.
        while len > 0 {
            for number in 0..std::mem::take(&mut len) {
                let Step { at, place, left } = steps[number % STAGE];
                let way = fib.index.load(at as usize);
                (ways[place as usize % STAGE], lefts[place as usize % STAGE]) = (way, left);
                let at = tree::entry_at(way, left);
                fib.index.prefetch(at);
                steps[len % STAGE] = Step { at: at as u32, place, left: left << tree::stride(way) };
                len += tree::is_index(way);
            }
        }
        let mut leaves = [0u8; STAGE];
        let mut others = 0;
        for (place, id) in ids.iter_mut().enumerate() {
            let way = ways[place % STAGE];
            *id = way as u16;
            fib.leaves.prefetch(leaf::leaf_at(way));
            leaves[len % STAGE] = place as u8;
            len += tree::is_leaf(way);
            others |= u64::from(way & HOST != 0) << place;
        }
        for &place in &leaves[..len.min(STAGE)] {
            let place = usize::from(place) % STAGE;
            let way = leaf::in_leaf(&fib.leaves, ways[place], upper(addrs[place]), lefts[place]);
            ids[place] = way as u16;
            others |= u64::from(way & HOST != 0) << place;
        }
        find_others(fib, addrs, ids, others);
    }

    #[inline(always)]
    fn wide(self, wide: impl Wide) {
        let len = self.addrs.len();
        // Without entries a finished address has no word to read.
        if len < SIDE_BY_SIDE_MIN || self.fib.index.is_empty() {
            self.scalar();
        } else if len <= STAGE / 4 {
            self.side_by_side::<_, { STAGE / 4 }>(wide);
        } else if len <= STAGE / 2 {
            self.side_by_side::<_, { STAGE / 2 }>(wide);
        } else {
            self.side_by_side::<_, STAGE>(wide);
        }
    }
}

impl Stage<'_> {
    /// In every round all `N` read: a finished address reads any word, and keeps its own. So the number of rounds is
    /// always the number that most addresses need, and an address that needs more continues alone, beside the leaves.
    #[inline(always)]
    fn side_by_side<W: Wide, const N: usize>(self, wide: W) {
        let Stage { fib, addrs, ids } = self;
        let mut uppers = [0; N];
        uppers.iter_mut().zip(addrs).for_each(|(to, &addr)| *to = upper(addr));
        // Of the bits after a bucket's, 32 have room: longer routes are few.
        let mut at = [0; N];
        let mut left = [0; N];
        for lane in 0..N {
            at[lane] = bucket(uppers[lane]) as u32;
            left[lane] = (uppers[lane] >> (32 - BUCKET_LEN)) as u32;
        }
        let mut ways = gather(wide, &fib.direct, &at);
        let mut used = [0; N];
        for _ in 0..ROUNDS {
            for lane in 0..N {
                let way = ways[lane];
                let is_index = way & (tree::INDEX | HOST) == tree::INDEX;
                let stride = if is_index { tree::stride(way) } else { 0 };
                let first = if is_index { tree::index_at(way) as u32 } else { 0 };
                // In two steps: a stride of 0 would be one of 32.
                at[lane] = first + (left[lane] >> 1 >> (31 - stride));
                left[lane] <<= stride;
                used[lane] += stride;
            }
            let next = gather(wide, &fib.index, &at);
            for lane in 0..N {
                let is_index = ways[lane] & (tree::INDEX | HOST) == tree::INDEX;
                ways[lane] = if is_index { next[lane] } else { ways[lane] };
            }
        }
        let (mut near, mut far, mut entries, mut others) = (0u64, 0u64, 0u64, 0u64);
        for lane in 0..N {
            let is_lost = used[lane] > 32;
            let (is_leaf, is_near) = (tree::is_leaf(ways[lane]) as u64, ways[lane] & NEAR != 0);
            near |= (is_leaf & u64::from(is_near)) << lane;
            far |= (is_leaf & u64::from(!is_near)) << lane;
            entries |= (tree::is_index(ways[lane]) as u64) << lane;
            others |= u64::from(ways[lane] & HOST != 0 || is_lost) << lane;
        }
        let asked = u64::MAX >> (64 - ids.len());
        for lanes in [&mut near, &mut far, &mut entries] {
            *lanes &= asked & !others;
        }
        for (&way, id) in ways.iter().zip(&mut *ids) {
            fib.leaves.prefetch(leaf::leaf_at(way));
            *id = way as u16;
        }
        // A loop for each kind: which one a lane needs is different each time, and a branch on it would cost more.
        while near != 0 {
            let lane = near.trailing_zeros() as usize;
            let left = uppers[lane] << BUCKET_LEN << used[lane];
            ids[lane] = leaf::in_near_wide(wide, &fib.leaves, ways[lane], left) as u16;
            near &= near - 1;
        }
        while far != 0 {
            let lane = far.trailing_zeros() as usize;
            let way = leaf::in_far_wide(wide, &fib.leaves, ways[lane], uppers[lane]);
            ids[lane] = way as u16;
            others |= u64::from(way & HOST != 0) << lane;
            far &= far - 1;
        }
        while entries != 0 {
            let lane = entries.trailing_zeros() as usize;
            let left = uppers[lane] << BUCKET_LEN << used[lane];
            let way = tree::walk(&fib.index, &fib.leaves, ways[lane], uppers[lane], left);
            ids[lane] = way as u16;
            others |= u64::from(way & HOST != 0) << lane;
            entries &= entries - 1;
        }
        find_others(fib, addrs, ids, others);
    }
}

/// Steps through entries that are taken side by side. In the Internet's table one in twelve addresses
/// takes more.
const ROUNDS: u32 = 4;

/// One by one, those of a stage that `others` has a bit for.
#[inline(always)]
fn find_others(fib: &Ipv6Fib, addrs: &[u128], ids: &mut [u16], mut others: u64) {
    others &= u64::MAX >> (64 - ids.len());
    while others != 0 {
        let place = others.trailing_zeros() as usize;
        ids[place] = fib.find(addrs[place]) as u16;
        others &= others - 1;
    }
}

#[inline(always)]
fn gather<const N: usize>(wide: impl Wide, words: &Words<u32>, at: &[u32; N]) -> [u32; N] {
    let mut found = [0; N];
    let (vectors, _) = at.as_chunks::<LANES>();
    for (found, at) in found.as_chunks_mut::<LANES>().0.iter_mut().zip(vectors) {
        *found = wide.gather(words, at);
    }
    found
}

/// The next step of one address: which entry it reads, and then the bits that are left.
#[derive(Clone, Copy)]
struct Step {
    at: u32,
    place: u32,
    left: u64,
}
