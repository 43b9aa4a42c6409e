//! Prefixes: an address block as routes name it, `192.0.2.0/24`.

use std::fmt;
use std::net::{AddrParseError, IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::ParseIntError;
use std::str::FromStr;

/// Why a prefix was refused. Each variant says what would have been accepted.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrefixError {
    /// The length is more than the address has bits.
    TooLong {
        /// The length given.
        len: u32,
        /// The bits of an address of this family.
        max: u8,
    },
    /// Bits below the length are set: this is an address in a network, not the network.
    HostBits {
        /// The address given.
        addr: IpAddr,
        /// The network it lies in.
        network: IpPrefix,
    },
    /// The text has no `/` between address and length.
    NoLength {
        /// The text.
        text: String,
    },
    /// The part before the `/` is no address of this family.
    Address {
        /// That part.
        text: String,
        /// What the address parser said.
        source: AddrParseError,
    },
    /// The part after the `/` is no number.
    Length {
        /// That part.
        text: String,
        /// What the number parser said.
        source: ParseIntError,
    },
}

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PrefixError::TooLong { len, max } => {
                write!(
                    f,
                    "prefix length {len} is too long: the address has {max} bits, use 0 to {max}"
                )
            }
            PrefixError::HostBits { addr, network } => {
                write!(
                    f,
                    "{addr} has bits set below its prefix length: write its network, {network}"
                )
            }
            PrefixError::NoLength { text } => {
                write!(f, "`{text}` has no prefix length: write address/length")
            }
            PrefixError::Address { text, source } => {
                write!(
                    f,
                    "`{text}` is not an address: {source}; write one like 10.1.0.0 or 2001:db8::"
                )
            }
            PrefixError::Length { text, source } => {
                write!(
                    f,
                    "`{text}` is not a prefix length: {source}; write a number of bits, like 24"
                )
            }
        }
    }
}

impl std::error::Error for PrefixError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PrefixError::Address { source, .. } => Some(source),
            PrefixError::Length { source, .. } => Some(source),
            _ => None,
        }
    }
}

macro_rules! prefix {
    ($(#[$doc:meta])* $prefix:ident, $addr:ident, $bits:ty, $max:literal, $family:ident) => {
        $(#[$doc])*
        ///
        /// # Invariants
        ///
        /// 1. The length is at most the bits of the address.
        /// 2. No bit below the length is set.
        ///
        /// Ordered by address, then length: a prefix comes right before what it contains.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $prefix {
            addr: $addr,
            len: u8,
        }

        // Never empty: `len` is the prefix length, as ip(8) says it, not a number of elements.
        #[allow(clippy::len_without_is_empty)]
        impl $prefix {
            /// The longest length.
            pub const LEN_MAX: u8 = $max;

            /// The prefix `addr/len`. Refuses bits below the length.
            pub fn new(addr: $addr, len: u8) -> Result<$prefix, PrefixError> {
                let network = $prefix::containing(addr, len)?;
                if network.addr != addr {
                    let network = IpPrefix::$family(network);
                    return Err(PrefixError::HostBits { addr: addr.into(), network });
                }
                Ok(network)
            }

            /// The prefix of length `len` that `addr` lies in.
            pub fn containing(addr: $addr, len: u8) -> Result<$prefix, PrefixError> {
                if len > $max {
                    return Err(PrefixError::TooLong { len: len.into(), max: $max });
                }
                Ok($prefix { addr: (addr.to_bits() & Self::mask(len)).into(), len })
            }

            /// The one address `addr`.
            pub fn host(addr: $addr) -> $prefix {
                $prefix { addr, len: $max }
            }

            /// The first address.
            pub fn addr(self) -> $addr {
                self.addr
            }

            /// The prefix length.
            pub fn len(self) -> u8 {
                self.len
            }

            /// The last address.
            pub fn last(self) -> $addr {
                (self.addr.to_bits() | !Self::mask(self.len)).into()
            }

            /// Whether `addr` lies in this prefix.
            pub fn contains(self, addr: $addr) -> bool {
                addr.to_bits() & Self::mask(self.len) == self.addr.to_bits()
            }

            /// Only for an address and a length that were taken from a prefix of this type.
            pub(super) fn from_checked(bits: $bits, len: u8) -> $prefix {
                debug_assert!(len <= $max && bits & !Self::mask(len) == 0);
                $prefix { addr: bits.into(), len }
            }

            fn mask(len: u8) -> $bits {
                // A shift by the whole width, for length 0, has no bits left.
                <$bits>::MAX.checked_shl(u32::from($max - len)).unwrap_or(0)
            }
        }

        impl fmt::Display for $prefix {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                // Through `pad`, so that a table can give it a width.
                f.pad(&format!("{}/{}", self.addr, self.len))
            }
        }

        impl FromStr for $prefix {
            type Err = PrefixError;

            fn from_str(text: &str) -> Result<$prefix, PrefixError> {
                let (addr, len) = halves(text)?;
                let addr = addr.parse().map_err(|source| PrefixError::Address {
                    text: addr.to_owned(),
                    source,
                })?;
                $prefix::new(addr, length(len, $max)?)
            }
        }

        impl From<$prefix> for IpPrefix {
            fn from(prefix: $prefix) -> IpPrefix {
                IpPrefix::$family(prefix)
            }
        }
    };
}

prefix! {
    /// A block of IPv4 addresses.
    Ipv4Prefix, Ipv4Addr, u32, 32, V4
}
prefix! {
    /// A block of IPv6 addresses.
    Ipv6Prefix, Ipv6Addr, u128, 128, V6
}

/// A block of addresses of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpPrefix {
    /// IPv4.
    V4(Ipv4Prefix),
    /// IPv6.
    V6(Ipv6Prefix),
}

#[allow(clippy::len_without_is_empty)] // As for the two families.
impl IpPrefix {
    /// The prefix `addr/len`. Refuses bits below the length.
    pub fn new(addr: IpAddr, len: u8) -> Result<IpPrefix, PrefixError> {
        match addr {
            IpAddr::V4(addr) => Ipv4Prefix::new(addr, len).map(IpPrefix::V4),
            IpAddr::V6(addr) => Ipv6Prefix::new(addr, len).map(IpPrefix::V6),
        }
    }

    /// The first address.
    pub fn addr(self) -> IpAddr {
        match self {
            IpPrefix::V4(prefix) => prefix.addr().into(),
            IpPrefix::V6(prefix) => prefix.addr().into(),
        }
    }

    /// The prefix length.
    pub fn len(self) -> u8 {
        match self {
            IpPrefix::V4(prefix) => prefix.len(),
            IpPrefix::V6(prefix) => prefix.len(),
        }
    }

    /// Whether `addr` is of the same family and lies in this prefix.
    pub fn contains(self, addr: IpAddr) -> bool {
        match (self, addr) {
            (IpPrefix::V4(prefix), IpAddr::V4(addr)) => prefix.contains(addr),
            (IpPrefix::V6(prefix), IpAddr::V6(addr)) => prefix.contains(addr),
            _ => false,
        }
    }
}

impl fmt::Display for IpPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IpPrefix::V4(prefix) => prefix.fmt(f),
            IpPrefix::V6(prefix) => prefix.fmt(f),
        }
    }
}

impl FromStr for IpPrefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<IpPrefix, PrefixError> {
        let (addr, len) = halves(text)?;
        let addr: IpAddr = addr
            .parse()
            .map_err(|source| PrefixError::Address { text: addr.to_owned(), source })?;
        let max = if addr.is_ipv4() { Ipv4Prefix::LEN_MAX } else { Ipv6Prefix::LEN_MAX };
        IpPrefix::new(addr, length(len, max)?)
    }
}

fn halves(text: &str) -> Result<(&str, &str), PrefixError> {
    text.split_once('/').ok_or_else(|| PrefixError::NoLength { text: text.to_owned() })
}

fn length(text: &str, max: u8) -> Result<u8, PrefixError> {
    let len: u32 =
        text.parse().map_err(|source| PrefixError::Length { text: text.to_owned(), source })?;
    match u8::try_from(len) {
        Ok(short) if short <= max => Ok(short),
        _ => Err(PrefixError::TooLong { len, max }),
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_reads_back_as_it_was_written() {
        for text in ["0.0.0.0/0", "192.0.2.0/24", "255.255.255.255/32"] {
            assert_eq!(text.parse::<Ipv4Prefix>().map(|p| p.to_string()).as_deref(), Ok(text));
            assert_eq!(text.parse::<IpPrefix>().map(|p| p.to_string()).as_deref(), Ok(text));
        }
        for text in ["::/0", "2001:db8::/32", "fe80::1/128"] {
            assert_eq!(text.parse::<Ipv6Prefix>().map(|p| p.to_string()).as_deref(), Ok(text));
            assert_eq!(text.parse::<IpPrefix>().map(|p| p.to_string()).as_deref(), Ok(text));
        }
    }

    #[test]
    fn host_bits_are_refused_with_the_network_that_was_meant() {
        let error = "192.0.2.1/24".parse::<Ipv4Prefix>().expect_err("host bits are set");
        assert_eq!(
            error.to_string(),
            "192.0.2.1 has bits set below its prefix length: write its network, 192.0.2.0/24"
        );
        let error = "2001:db8::1/64".parse::<IpPrefix>().expect_err("host bits are set");
        assert!(error.to_string().ends_with("write its network, 2001:db8::/64"));
        assert!("128.0.0.0/0".parse::<Ipv4Prefix>().is_err());
    }

    #[test]
    fn a_malformed_prefix_is_refused_by_its_wrong_part() {
        let refusal = |text: &str| text.parse::<IpPrefix>().expect_err(text).to_string();
        assert!(refusal("192.0.2.0").contains("write address/length"));
        assert!(refusal("192.0.2/24").starts_with("`192.0.2` is not an address"));
        assert!(refusal("192.0.2.0/").starts_with("`` is not a prefix length"));
        assert!(refusal("192.0.2.0/33").ends_with("use 0 to 32"));
        assert!(refusal("::/129").ends_with("use 0 to 128"));
        assert!(refusal("::/300").contains("300"));
    }

    #[test]
    fn a_prefix_knows_its_first_and_last_address() {
        let prefix: Ipv4Prefix = "10.0.0.0/8".parse().expect("well formed");
        assert_eq!(prefix.last(), Ipv4Addr::new(10, 255, 255, 255));
        assert!(prefix.contains(prefix.addr()) && prefix.contains(prefix.last()));
        assert!(!prefix.contains(Ipv4Addr::new(11, 0, 0, 0)));
        let all: Ipv6Prefix = "::/0".parse().expect("well formed");
        assert_eq!(all.last().to_bits(), u128::MAX);
    }

    #[test]
    fn a_prefix_sorts_before_what_it_contains() {
        let mut prefixes: Vec<Ipv4Prefix> = ["10.1.0.0/16", "10.0.0.0/24", "10.0.0.0/8"]
            .map(|text| text.parse().expect("well formed"))
            .to_vec();
        prefixes.sort();
        let text: Vec<_> = prefixes.iter().map(ToString::to_string).collect();
        assert_eq!(text, ["10.0.0.0/8", "10.0.0.0/24", "10.1.0.0/16"]);
    }
}
