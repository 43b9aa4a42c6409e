//! Cures: every command that a reason may show. The list is closed, so that no obstacle can come with a command that
//! takes it away.
//!
//! What keeps packets in the kernel is there for a reason: a filter, a translation, a bridge, a check. The operator
//! copies what is printed, so a command here only tunes, or turns on what is off. A reason whose obstacle protects
//! something says what the obstacle is, and that leaving its packets to the kernel is right.

use std::fmt;

/// A command for the shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cure {
    /// The device is down.
    LinkUp(String),
    /// A router routes what this device receives, IPv4. (IPv6 has one setting for all devices, and with it a host
    /// heeds no router advertisements any more: nothing to be copied.)
    Forwarding(String),
    /// Ways of a multipath route are chosen by addresses and ports, of this version of IP.
    HashPolicy(&'static str),
    /// A change of a next-hop object is announced once.
    QuietNextHops,
    /// More receive queues.
    Queues(String, usize),
    /// An offload of the device is turned on or off.
    Offload(String, &'static str, bool),
}

impl fmt::Display for Cure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cure::LinkUp(device) => write!(f, "ip link set dev {} up", quoted(device)),
            Cure::Forwarding(device) => {
                // With slashes, since names of devices may have dots.
                let setting = format!("net/ipv4/conf/{device}/forwarding");
                write!(f, "sysctl -w {}=1", quoted(&setting))
            }
            Cure::HashPolicy(version) => {
                write!(f, "sysctl -w net.{version}.fib_multipath_hash_policy=1")
            }
            Cure::QuietNextHops => f.write_str("sysctl -w net.ipv4.nexthop_compat_mode=0"),
            Cure::Queues(device, queues) => {
                write!(f, "ethtool -L {} combined {queues}", quoted(device))
            }
            Cure::Offload(device, offload, is_on) => {
                let switch = if *is_on { "on" } else { "off" };
                write!(f, "ethtool -K {} {offload} {switch}", quoted(device))
            }
        }
    }
}

/// As one word of the shell.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:@%+=".contains(&byte);
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}
