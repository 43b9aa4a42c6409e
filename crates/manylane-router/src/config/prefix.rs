//! Addresses and prefixes as an operator writes them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_spanned::Spanned;

use super::error::Problem;

/// A network: an address whose host bits are zero, and a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    network: IpAddr,
    length: u8,
}

impl Prefix {
    /// The network that `address` is in. Panics if `length` is beyond the family's bits.
    pub fn containing(address: IpAddr, length: u8) -> Self {
        assert!(length <= bits(address), "no prefix of {address} is {length} bits long");
        Prefix { network: with_host_bits(address, length, false), length }
    }

    /// The network's first address.
    pub fn network(self) -> IpAddr {
        self.network
    }

    /// How many leading bits count.
    pub fn length(self) -> u8 {
        self.length
    }

    /// Its subnet-router anycast address: every router's there (RFC 4291 §2.6.1). Networks of a /127 (RFC
    /// 6164 §5) or less have none.
    pub fn anycast(self) -> Option<Ipv6Addr> {
        match self.network {
            IpAddr::V6(first) if self.length < 127 => Some(first),
            _ => None,
        }
    }

    /// Whether `address` is in this network.
    pub fn contains(self, address: IpAddr) -> bool {
        self.network.is_ipv4() == address.is_ipv4()
            && with_host_bits(address, self.length, false) == self.network
    }

    /// Whether one of the two contains the other.
    pub fn overlaps(self, other: Prefix) -> bool {
        let (wide, narrow) =
            if self.length <= other.length { (self, other) } else { (other, self) };
        wide.contains(narrow.network)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.length)
    }
}

/// An address of ours on a port, with the length of the network it is in. Host bits belong here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InterfaceAddress {
    /// The address itself.
    pub address: IpAddr,
    /// Leading bits of its network.
    pub length: u8,
}

impl InterfaceAddress {
    /// The connected network.
    pub fn prefix(self) -> Prefix {
        Prefix::containing(self.address, self.length)
    }

    /// Why `address` is no host of this network although its bits are inside it.
    ///
    /// In IPv4 the first and last address of a network name the network and all its hosts (RFC 1122
    /// §3.2.1.3), except in a /31 (RFC 3021). In IPv6 the first is any router's (RFC 4291 §2.6.1),
    /// except in a /127 (RFC 6164).
    pub(crate) fn not_a_host(self, address: IpAddr) -> Option<&'static str> {
        if self.length + 1 >= bits(address) {
            return None;
        }
        if address == with_host_bits(address, self.length, false) {
            return Some(if address.is_ipv4() {
                "the network's own address"
            } else {
                "the network's subnet-router anycast address"
            });
        }
        let last = address.is_ipv4() && address == with_host_bits(address, self.length, true);
        last.then_some("the network's broadcast address")
    }
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// Reads `ADDRESS/LENGTH`. The error says what is wrong with the text.
pub(super) fn parse(text: &str) -> Result<InterfaceAddress, String> {
    let Some((address, length)) = text.split_once('/') else {
        return Err(match text.parse::<IpAddr>() {
            Ok(_) => "an address without a prefix length".into(),
            Err(_) => "not ADDRESS/LENGTH".into(),
        });
    };
    let Ok(address) = address.parse::<IpAddr>() else {
        return Err(format!("`{address}` is not an IP address"));
    };
    let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    match length.parse::<u8>() {
        Ok(length) if digits && length <= bits(address) => Ok(InterfaceAddress { address, length }),
        _ => Err(format!("the length of an {} prefix is 0 to {}", family(address), bits(address))),
    }
}

/// Reads a prefix, in which host bits are a mistake.
pub(super) fn network(text: &Spanned<&str>, title: &str) -> Result<Prefix, Problem> {
    let parsed = parse(text.get_ref()).map_err(|why| {
        let help = match text.get_ref().parse::<IpAddr>() {
            Ok(host) => {
                format!("write `{host}/{}`, or the length of a network", bits(host))
            }
            Err(_) => "write a network and its length, for example `10.0.0.0/8`".into(),
        };
        Problem::new(text.span(), title, why, help)
    })?;
    let network = parsed.prefix();
    if network.network() == parsed.address {
        return Ok(network);
    }
    let host = bits(parsed.address);
    Err(Problem::new(
        text.span(),
        title,
        format!("bits are set behind the first {}", parsed.length),
        format!("write `{network}`, or `{}/{host}` for this one address", parsed.address),
    ))
}

/// Why `address` cannot be one host's, whatever its network is.
pub(crate) fn not_unicast(address: IpAddr) -> Option<&'static str> {
    match address {
        _ if address.is_unspecified() => Some("the unspecified address"),
        _ if address.is_loopback() => Some("a loopback address"),
        _ if address.is_multicast() => Some("a multicast address"),
        IpAddr::V4(v4) if v4.is_broadcast() => Some("the broadcast address"),
        IpAddr::V4(v4) if v4.octets()[0] == 0 => Some("in 0.0.0.0/8, which names no host"),
        IpAddr::V4(v4) if v4.octets()[0] >= 240 => Some("in 240.0.0.0/4, which is reserved"),
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => {
            Some("an IPv4-mapped address, which never is on a wire")
        }
        _ => None,
    }
}

/// Whether the address means something on one link only, so that two ports may both have it.
pub(super) fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// `IPv4` or `IPv6`.
pub(super) fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

/// The length of a host's prefix.
pub(super) fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// `address` with all bits behind `length` zero, or all one.
fn with_host_bits(address: IpAddr, length: u8, ones: bool) -> IpAddr {
    // A shift by all bits leaves none, which `checked_shr` calls an overflow.
    match address {
        IpAddr::V4(v4) => {
            let hosts = u32::MAX.checked_shr(length.into()).unwrap_or(0);
            let network = u32::from(v4) & !hosts;
            Ipv4Addr::from(if ones { network | hosts } else { network }).into()
        }
        IpAddr::V6(v6) => {
            let hosts = u128::MAX.checked_shr(length.into()).unwrap_or(0);
            let network = u128::from(v6) & !hosts;
            Ipv6Addr::from(if ones { network | hosts } else { network }).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        parse(text).expect("a prefix").prefix()
    }

    #[test]
    fn a_prefix_contains_its_addresses_and_no_other_family() {
        assert!(prefix("10.1.0.0/16").contains("10.1.255.255".parse().unwrap()));
        assert!(!prefix("10.1.0.0/16").contains("10.2.0.0".parse().unwrap()));
        assert!(prefix("0.0.0.0/0").contains("203.0.113.1".parse().unwrap()));
        assert!(!prefix("0.0.0.0/0").contains("2001:db8::1".parse().unwrap()));
        assert!(prefix("2001:db8::/32").contains("2001:db8:ffff::1".parse().unwrap()));
        assert!(prefix("2001:db8::1/128").contains("2001:db8::1".parse().unwrap()));
    }

    #[test]
    fn overlap_is_one_inside_the_other() {
        assert!(prefix("10.0.0.0/8").overlaps(prefix("10.1.0.0/16")));
        assert!(prefix("10.1.0.0/16").overlaps(prefix("10.0.0.0/8")));
        assert!(!prefix("10.1.0.0/16").overlaps(prefix("10.2.0.0/16")));
        assert!(!prefix("::/0").overlaps(prefix("0.0.0.0/0")));
    }

    #[test]
    fn a_network_of_two_has_two_hosts() {
        let link = parse("10.0.0.0/31").unwrap();
        assert_eq!(link.not_a_host(link.address), None);
        let lan = parse("10.0.0.255/24").unwrap();
        assert_eq!(lan.not_a_host(lan.address), Some("the network's broadcast address"));
        let v6 = parse("2001:db8::/64").unwrap();
        assert!(v6.not_a_host(v6.address).is_some());
        let last = parse("2001:db8::ffff:ffff:ffff:ffff/64").unwrap();
        assert_eq!(last.not_a_host(last.address), None);
    }
}
