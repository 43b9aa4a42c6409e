//! Which IPv4 sources may be our own addresses: a filter in front of the table, so that the sources of other packets,
//! which are all but forged ones, need no lookup.
//!
//! A bit for each hash of an address; one that is set says nothing. What the table leads to `Local` or `Broadcast`
//! has its bit set before it does so, and until it does not any more.

use manylane_sync::words::WordsMut;

use super::layout::{OWN_WORDS, own_bit};
use crate::fib::{Ipv4Prefix, NextHopId};
use crate::nexthop::NextHop;

/// The writer's side.
pub(super) struct OwnMut {
    words: WordsMut<u64>,
    /// By bit: prefixes that want it.
    counts: Vec<u32>,
    /// Prefixes that want all bits.
    short: u32,
    /// By next-hop id: routes that have it, or a few more.
    routes: Vec<u32>,
}

impl OwnMut {
    pub fn new(words: WordsMut<u64>, ids: usize) -> OwnMut {
        assert_eq!(words.len(), OWN_WORDS, "words of `own4`");
        OwnMut { words, counts: vec![0; OWN_WORDS * 64], short: 0, routes: vec![0; ids] }
    }

    /// A route has this id from now on.
    pub fn routed(&mut self, id: NextHopId) {
        self.routes[usize::from(id.raw())] += 1;
    }

    /// A route has it no more.
    pub fn unrouted(&mut self, id: NextHopId) {
        let count = &mut self.routes[usize::from(id.raw())];
        *count = count.saturating_sub(1);
    }

    /// Whether any route may have this id.
    pub fn has_routes(&self, id: NextHopId) -> bool {
        self.routes[usize::from(id.raw())] > 0
    }

    /// Addresses of this prefix may be our own.
    pub fn add(&mut self, prefix: Ipv4Prefix) {
        if is_no_source(prefix) {
            return;
        }
        if prefix.len() < SHORTEST {
            self.short += 1;
            (0..OWN_WORDS).for_each(|word| self.words.store(word, u64::MAX));
            return;
        }
        for bit in bits(prefix) {
            self.counts[bit] += 1;
            if self.counts[bit] == 1 {
                self.words.store(bit / 64, self.words.load(bit / 64) | 1 << (bit % 64));
            }
        }
    }

    /// The addresses are gone.
    pub fn remove(&mut self, prefix: Ipv4Prefix) {
        if is_no_source(prefix) {
            return;
        }
        if prefix.len() < SHORTEST {
            self.short -= 1;
            if self.short == 0 {
                (0..OWN_WORDS).for_each(|word| self.words.store(word, self.counted(word)));
            }
            return;
        }
        for bit in bits(prefix) {
            self.counts[bit] -= 1;
            if self.counts[bit] == 0 && self.short == 0 {
                self.words.store(bit / 64, self.words.load(bit / 64) & !(1 << (bit % 64)));
            }
        }
    }

    fn counted(&self, word: usize) -> u64 {
        let is_set = |bit: usize| u64::from(self.counts[word * 64 + bit] > 0) << bit;
        (0..64).map(is_set).sum()
    }
}

/// Whether this is what we mean by our own: what a packet may not come from.
pub(super) fn is_own(next_hop: NextHop<u32>) -> bool {
    matches!(next_hop, NextHop::Local | NextHop::Broadcast)
}

fn bits(prefix: Ipv4Prefix) -> impl Iterator<Item = usize> {
    let first = prefix.addr().to_bits();
    let last = first | u32::MAX.checked_shr(prefix.len().into()).unwrap_or(0);
    (first..=last).map(own_bit)
}

/// Whether a packet with this source is refused before its owner is looked up (RFC 1812 §5.3.7). Every host has
/// 127.0.0.0/8, which would want all bits.
fn is_no_source(prefix: Ipv4Prefix) -> bool {
    let [first, ..] = prefix.addr().octets();
    match first {
        0 | 127 => prefix.len() >= 8,
        224.. => prefix.len() >= 3,
        _ => false,
    }
}

/// With a shorter prefix, all addresses in the world may be our own: it has more of them than the filter has bits.
const SHORTEST: u8 = 24;

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn prefix(text: &str) -> Ipv4Prefix {
        text.parse().expect("the test wrote it")
    }

    fn may_be(own: &OwnMut, address: &str) -> bool {
        let address: Ipv4Addr = address.parse().expect("the test wrote it");
        let bit = own_bit(address.to_bits());
        own.words.load(bit / 64) >> (bit % 64) & 1 == 1
    }

    fn set(own: &OwnMut) -> u32 {
        (0..OWN_WORDS).map(|word| own.words.load(word).count_ones()).sum()
    }

    #[test]
    fn a_bit_is_set_as_long_as_a_prefix_wants_it() {
        let mut own = OwnMut::new(WordsMut::zeroed(OWN_WORDS), 8);
        own.add(prefix("10.1.0.254/32"));
        own.add(prefix("10.1.0.254/32"));
        assert!(may_be(&own, "10.1.0.254") && !may_be(&own, "10.1.0.1"));
        own.remove(prefix("10.1.0.254/32"));
        assert!(may_be(&own, "10.1.0.254"));
        own.add(prefix("192.0.2.0/24"));
        assert!(["192.0.2.0", "192.0.2.77", "192.0.2.255"].iter().all(|at| may_be(&own, at)));
        own.remove(prefix("192.0.2.0/24"));
        own.remove(prefix("10.1.0.254/32"));
        assert_eq!(set(&own), 0);
    }

    #[test]
    fn a_short_prefix_wants_all_and_leaves_what_others_want() {
        let mut own = OwnMut::new(WordsMut::zeroed(OWN_WORDS), 8);
        own.add(prefix("10.1.0.254/32"));
        own.add(prefix("10.0.0.0/23"));
        own.add(prefix("10.1.0.255/32"));
        assert_eq!(set(&own) as usize, OWN_WORDS * 64);
        own.remove(prefix("10.1.0.254/32"));
        own.remove(prefix("10.0.0.0/23"));
        assert!(may_be(&own, "10.1.0.255") && set(&own) == 1);
        for nobodys in
            ["127.0.0.0/8", "127.0.0.1/32", "224.0.0.0/4", "255.255.255.255/32", "0.0.0.0/8"]
        {
            own.add(prefix(nobodys));
            assert_eq!(set(&own), 1, "{nobodys}");
            own.remove(prefix(nobodys));
        }
        own.add(prefix("0.0.0.0/0"));
        assert_eq!(set(&own) as usize, OWN_WORDS * 64);
    }
}
