//! Both ends of a packet, and the words by which the table finds them.

use std::net::IpAddr;

use crate::wire::flow::FlowKey;

/// Both ends of a TCP or UDP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tuple {
    /// The source address.
    pub source: IpAddr,
    /// The destination address, of the same family.
    pub destination: IpAddr,
    /// The source port.
    pub source_port: u16,
    /// The destination port.
    pub destination_port: u16,
    /// The number of the protocol: 6 or 17.
    pub protocol: u8,
}

impl Tuple {
    /// That of a packet the other way.
    pub fn inverted(self) -> Tuple {
        let Tuple { source, destination, source_port, destination_port, protocol } = self;
        Tuple {
            source: destination,
            destination: source,
            source_port: destination_port,
            destination_port: source_port,
            protocol,
        }
    }

    /// Of the words of a key, as programs have them: addresses, and ends.
    pub fn of_words(addresses: [u64; 4], ends: u64) -> Tuple {
        Key { addresses, ends }.tuple()
    }

    /// Whether it is of IPv6.
    pub fn is_ipv6(self) -> bool {
        self.source.is_ipv6()
    }
}

/// What identifies a direction, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::transit) struct Key {
    /// Of IPv4 the first alone: source, and destination from bit 32. Of IPv6 two words each. As they lie in memory.
    pub addresses: [u64; 4],
    /// As [`super::entry::ENDS`].
    pub ends: u64,
}

impl Key {
    pub fn of(tuple: Tuple) -> Key {
        let ports = [tuple.source_port.to_be_bytes(), tuple.destination_port.to_be_bytes()];
        let ports = u32::from_ne_bytes(ports.concat().try_into().expect("twice two bytes"));
        let addresses = match (tuple.source, tuple.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let [source, destination] = [source, destination]
                    .map(|address| u64::from(u32::from_ne_bytes(address.octets())));
                [source | destination << 32, 0, 0, 0]
            }
            (source, destination) => {
                let [[a, b], [c, d]] = [source, destination].map(halves);
                [a, b, c, d]
            }
        };
        let [protocol, is_ipv6] = [tuple.protocol.into(), u64::from(tuple.is_ipv6())];
        Key { addresses, ends: u64::from(ports) | protocol << 32 | is_ipv6 << 40 }
    }

    pub fn is_ipv6(&self) -> bool {
        self.ends >> 40 & 1 == 1
    }

    /// The tuple with this key.
    pub fn tuple(&self) -> Tuple {
        let (source, destination) = match self.is_ipv6() {
            false => {
                let [a, b, c, d, e, f, g, h] = self.addresses[0].to_ne_bytes();
                (IpAddr::from([a, b, c, d]), IpAddr::from([e, f, g, h]))
            }
            true => {
                let [a, b, c, d] = self.addresses;
                (address_of([a, b]), address_of([c, d]))
            }
        };
        let [a, b, c, d] = (self.ends as u32).to_ne_bytes();
        Tuple {
            source,
            destination,
            source_port: u16::from_be_bytes([a, b]),
            destination_port: u16::from_be_bytes([c, d]),
            protocol: (self.ends >> 32) as u8,
        }
    }

    /// The hash by multipliers that follow from the seed, as in `flow_table.h`.
    pub fn hash(&self, seed: u64) -> u64 {
        let [end, sum, port] = FlowKey::seeded(seed).numbers();
        let mut hash = mixed(self.addresses[0] ^ sum, end);
        if self.is_ipv6() {
            for word in &self.addresses[1..] {
                hash = mixed(hash ^ word, end);
            }
        }
        mixed(hash ^ self.ends, port)
    }
}

fn mixed(word: u64, by: u64) -> u64 {
    let product = word.wrapping_mul(by);
    product ^ product.swap_bytes()
}

/// The halves of an IPv6 address as they lie in memory.
fn halves(address: IpAddr) -> [u64; 2] {
    let octets = match address {
        IpAddr::V6(address) => address.octets(),
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
    };
    let (upper, lower) = octets.split_at(8);
    [upper, lower].map(|half| u64::from_ne_bytes(half.try_into().expect("eight bytes")))
}

fn address_of(halves: [u64; 2]) -> IpAddr {
    let octets: [u8; 16] =
        halves.map(u64::to_ne_bytes).concat().try_into().expect("twice eight bytes");
    IpAddr::from(octets)
}
