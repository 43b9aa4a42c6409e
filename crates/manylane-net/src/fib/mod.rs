//! The FIB: which next hop a destination address leads to, by longest prefix match.

mod prefix;

pub use prefix::{IpPrefix, Ipv4Prefix, Ipv6Prefix, PrefixError};
