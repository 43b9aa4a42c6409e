//! The exact set of routes, on the writer's side: what the tables are built from.

use std::collections::BTreeMap;

use super::NextHopId;

/// Address bits that a [`Rib`] can be ordered by.
pub(super) trait Bits: Copy + Ord {
    /// Their number.
    const WIDTH: u8;

    /// The first `len` bits, the others 0.
    fn first(self, len: u8) -> Self;

    /// The first `len` bits, the others 1.
    fn last(self, len: u8) -> Self;

    /// How many bits it begins with like `other`.
    fn common(self, other: Self) -> u8;
}

macro_rules! bits {
    ($($bits:ty)+) => { $(
        impl Bits for $bits {
            const WIDTH: u8 = <$bits>::BITS as u8;

            fn first(self, len: u8) -> $bits {
                self & !<$bits>::MAX.checked_shr(len.into()).unwrap_or(0)
            }

            fn last(self, len: u8) -> $bits {
                self | <$bits>::MAX.checked_shr(len.into()).unwrap_or(0)
            }

            fn common(self, other: $bits) -> u8 {
                (self ^ other).leading_zeros() as u8
            }
        }
    )+ };
}

bits!(u32 u64 u128);

/// Routes by address bits and prefix length.
pub(super) struct Rib<B> {
    routes: BTreeMap<(B, u8), NextHopId>,
}

impl<B: Bits> Rib<B> {
    /// No routes.
    pub fn new() -> Rib<B> {
        Rib { routes: BTreeMap::new() }
    }

    /// Adds or replaces a route; returns the id it had.
    pub fn insert(&mut self, addr: B, len: u8, id: NextHopId) -> Option<NextHopId> {
        self.routes.insert((addr, len), id)
    }

    /// Takes a route away; returns the id it had.
    pub fn remove(&mut self, addr: B, len: u8) -> Option<NextHopId> {
        self.routes.remove(&(addr, len))
    }

    /// The id of exactly this prefix.
    pub fn exact(&self, addr: B, len: u8) -> Option<NextHopId> {
        self.routes.get(&(addr, len)).copied()
    }

    /// The longest prefix of at most `len_max` bits that contains `addr`.
    pub fn longest(&self, addr: B, mut len_max: u8) -> Option<(u8, NextHopId)> {
        loop {
            // What contains `addr` stands before this key, the longest last.
            let up_to = (addr.first(len_max), len_max);
            let (&(first, len), &id) = self.routes.range(..=up_to).next_back()?;
            if addr.first(len) == first {
                return Some((len, id));
            }
            // What is longer than the common part and contains `addr` would stand between the two.
            len_max = addr.common(first);
        }
    }

    /// The routes that begin in `first..=last`, in order: address, then length.
    pub fn within(&self, first: B, last: B) -> impl Iterator<Item = (B, u8, NextHopId)> {
        let routes = self.routes.range((first, 0)..=(last, B::WIDTH));
        routes.map(|(&(addr, len), &id)| (addr, len, id))
    }

    /// All routes, in order.
    pub fn iter(&self) -> impl Iterator<Item = (B, u8, NextHopId)> {
        self.routes.iter().map(|(&(addr, len), &id)| (addr, len, id))
    }

    /// The number of routes.
    pub fn len(&self) -> usize {
        self.routes.len()
    }
}

impl<B: Bits> FromIterator<((B, u8), NextHopId)> for Rib<B> {
    /// Sorts once and builds the map from its leaves up. Of equal prefixes the last one stays.
    fn from_iter<I: IntoIterator<Item = ((B, u8), NextHopId)>>(routes: I) -> Rib<B> {
        Rib { routes: routes.into_iter().collect() }
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use super::*;

    #[test]
    fn first_and_last_hold_at_both_ends() {
        assert_eq!((7u32.first(0), 7u32.last(0)), (0, u32::MAX));
        assert_eq!((7u32.first(32), 7u32.last(32)), (7, 7));
        assert_eq!((7u64.first(62), 5u64.last(62)), (4, 7));
        assert_eq!((0u128.last(128), 0u128.last(127)), (0, 1));
    }

    #[test]
    fn the_longest_match_is_bounded_by_the_length_asked_for() {
        let id = |raw| NextHopId::new(raw).expect("small and not 0");
        let routes = [((0u32, 0), id(1)), ((0x0a00_0000, 8), id(2)), ((0x0a00_0000, 24), id(3))];
        let mut rib: Rib<u32> = routes.into_iter().collect();
        assert_eq!(rib.longest(0x0a00_0007, 32), Some((24, id(3))));
        assert_eq!(rib.longest(0x0a00_0007, 23), Some((8, id(2))));
        assert_eq!(rib.longest(0x0b00_0000, 32), Some((0, id(1))));
        rib.remove(0, 0);
        assert_eq!(rib.longest(0x0b00_0000, 32), None);
        assert_eq!(rib.within(0x0a00_0000, 0x0a00_00ff).count(), 2);
        assert_eq!(rib.len(), 2);
    }
}
