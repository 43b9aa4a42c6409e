//! Connections for tests.

use std::net::IpAddr;

use super::{NewFlow, Tuple};
use crate::wire::protocol;

pub fn tuple(is_ipv6: bool, host: u32, port: u16) -> Tuple {
    let address = |net: u8| match is_ipv6 {
        false => IpAddr::from((u32::from(net) << 24 | host).to_be_bytes()),
        true => IpAddr::V6(std::net::Ipv6Addr::from_bits(
            (0x2001_0db8_0000_0000_0000_0000_0000_0000u128)
                + (u128::from(net) << 64)
                + u128::from(host),
        )),
    };
    Tuple {
        source: address(10),
        destination: address(20),
        source_port: port,
        destination_port: 443,
        protocol: protocol::TCP,
    }
}

/// A connection whose source is translated.
pub fn masqueraded(is_ipv6: bool, host: u32, port: u16) -> NewFlow {
    let original = tuple(is_ipv6, host, port);
    let reply = Tuple { destination: tuple(is_ipv6, 0xffff, 0).source, ..original.inverted() };
    NewFlow { original, reply }
}
