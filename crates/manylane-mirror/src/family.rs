//! The two families' addresses as numbers, and a hash for tables of a million of them.

use std::fmt::Debug;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use manylane_io::netlink::kernel::Family;
use manylane_net::fib::{IpPrefix, Ipv4Prefix, Ipv6Prefix};

/// The bits of an address of one family.
pub(super) trait Bits: Copy + Eq + Ord + Hash + Debug {
    /// Which family's.
    const FAMILY: Family;

    /// Their number.
    const WIDTH: u8;

    /// All of them 0.
    const ZERO: Self;

    /// Those of `address`, if it is of this family.
    fn of(address: IpAddr) -> Option<Self>;

    /// The first `len` of them, the others 0.
    fn first(self, len: u8) -> Self;

    /// The first `len` of them, the others 1.
    fn last(self, len: u8) -> Self;

    /// As an address.
    fn address(self) -> IpAddr;

    /// The prefix of that length.
    fn prefix(self, len: u8) -> IpPrefix;
}

impl Bits for u32 {
    const FAMILY: Family = Family::V4;
    const WIDTH: u8 = 32;
    const ZERO: u32 = 0;

    fn of(address: IpAddr) -> Option<u32> {
        match address {
            IpAddr::V4(address) => Some(address.to_bits()),
            IpAddr::V6(_) => None,
        }
    }

    fn first(self, len: u8) -> u32 {
        self & !u32::MAX.checked_shr(len.into()).unwrap_or(0)
    }

    fn last(self, len: u8) -> u32 {
        self | u32::MAX.checked_shr(len.into()).unwrap_or(0)
    }

    fn address(self) -> IpAddr {
        Ipv4Addr::from_bits(self).into()
    }

    fn prefix(self, len: u8) -> IpPrefix {
        let prefix = Ipv4Prefix::containing(Ipv4Addr::from_bits(self), len.min(32));
        prefix.expect("the length is at most 32").into()
    }
}

impl Bits for u128 {
    const FAMILY: Family = Family::V6;
    const WIDTH: u8 = 128;
    const ZERO: u128 = 0;

    fn of(address: IpAddr) -> Option<u128> {
        match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => Some(address.to_bits()),
        }
    }

    fn first(self, len: u8) -> u128 {
        self & !u128::MAX.checked_shr(len.into()).unwrap_or(0)
    }

    fn last(self, len: u8) -> u128 {
        self | u128::MAX.checked_shr(len.into()).unwrap_or(0)
    }

    fn address(self) -> IpAddr {
        Ipv6Addr::from_bits(self).into()
    }

    fn prefix(self, len: u8) -> IpPrefix {
        let prefix = Ipv6Prefix::containing(Ipv6Addr::from_bits(self), len.min(128));
        prefix.expect("the length is at most 128").into()
    }
}

/// Which family a prefix is of.
pub(super) fn family_of(prefix: IpPrefix) -> Family {
    match prefix {
        IpPrefix::V4(_) => Family::V4,
        IpPrefix::V6(_) => Family::V6,
    }
}

/// The last address of a prefix.
pub(super) fn last_of(prefix: IpPrefix) -> IpAddr {
    match prefix {
        IpPrefix::V4(prefix) => prefix.last().into(),
        IpPrefix::V6(prefix) => prefix.last().into(),
    }
}

/// The prefix of this one address.
pub(super) fn host(address: IpAddr) -> IpPrefix {
    match address {
        IpAddr::V4(address) => Ipv4Prefix::host(address).into(),
        IpAddr::V6(address) => Ipv6Prefix::host(address).into(),
    }
}

/// Whether it is a single address.
pub(super) fn is_host(prefix: IpPrefix) -> bool {
    match prefix {
        IpPrefix::V4(prefix) => prefix.len() == Ipv4Prefix::LEN_MAX,
        IpPrefix::V6(prefix) => prefix.len() == Ipv6Prefix::LEN_MAX,
    }
}

/// Makes hashers for tables with one entry per route, where SipHash would dominate a lookup.
/// The seed is random, so that a peer cannot announce prefixes that collide.
#[derive(Clone)]
pub(super) struct Seeded(u64);

impl Default for Seeded {
    fn default() -> Seeded {
        Seeded(RandomState::new().hash_one(0u8))
    }
}

impl BuildHasher for Seeded {
    type Hasher = Mix;

    fn build_hasher(&self) -> Mix {
        Mix(self.0)
    }
}

/// Multiplies and folds, a word at a time.
pub(super) struct Mix(u64);

impl Mix {
    fn mix(&mut self, word: u64) {
        // An odd constant with its bits spread, that of SplitMix64.
        let product = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product as u64 ^ (product >> 64) as u64).rotate_left(23);
    }
}

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.mix(u64::from_le_bytes(word));
        }
        self.mix(bytes.len() as u64);
    }

    fn write_u8(&mut self, value: u8) {
        self.mix(value.into());
    }

    fn write_u16(&mut self, value: u16) {
        self.mix(value.into());
    }

    fn write_u32(&mut self, value: u32) {
        self.mix(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.mix(value);
    }

    fn write_u128(&mut self, value: u128) {
        self.mix(value as u64);
        self.mix((value >> 64) as u64);
    }

    fn write_usize(&mut self, value: usize) {
        self.mix(value as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn bits_and_addresses_are_one() {
        let address: IpAddr = "192.0.2.77".parse().expect("well formed");
        let bits = u32::of(address).expect("IPv4");
        assert_eq!(bits.address(), address);
        assert_eq!(bits.first(24).prefix(24).to_string(), "192.0.2.0/24");
        assert_eq!((bits.first(0), bits.last(0)), (0, u32::MAX));
        assert_eq!(u128::of(address), None);
        let address: IpAddr = "2001:db8::7".parse().expect("well formed");
        let bits = u128::of(address).expect("IPv6");
        assert_eq!(bits.first(128).prefix(128), host(address));
        assert_eq!(bits.prefix(32).to_string(), "2001:db8::/32");
    }

    /// Tables take the lower bits for the place and the upper seven for the tag.
    #[test]
    fn neighbouring_prefixes_do_not_collide() {
        let seeded = Seeded::default();
        let hashes = || (0..65_536u32).map(|block| seeded.hash_one((block << 8, 24u8, 0u16)));
        let low: BTreeSet<u64> = hashes().map(|hash| hash & 0xffff).collect();
        assert!(low.len() > 38_000, "{} of 65536 places, 41,400 when random", low.len());
        let high: BTreeSet<u64> = hashes().map(|hash| hash >> 57).collect();
        assert_eq!(high.len(), 128);
    }
}
