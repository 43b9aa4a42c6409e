//! What a stream is made of: its flows' addresses and ports, and how long its frames are.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::FarEndError;
use super::stamp::{GOLDEN, STAMP_LEN, mix};
use crate::wire::{ethernet, ipv4, ipv6, udp};

/// Names a stream, so that far ends can tell whose packets reach them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StreamId(pub u16);

/// UDP packets that a far end sends. Same stream, same packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Its name, unique among the far ends of a daemon.
    pub id: StreamId,
    /// The sender of the packets.
    pub source: IpAddr,
    /// The network that destinations are drawn from.
    pub destination: IpAddr,
    /// Leading bits of that network.
    pub destination_len: u8,
    /// How many flows; each has a destination and a pair of ports of its own.
    pub flows: u32,
    /// Bytes of a frame, Ethernet header included. See [`Stream::frame_len`].
    pub size: u16,
    /// How many packets in all. Without it, no end.
    pub packets: Option<u64>,
    /// Without it, as many as the worker takes.
    pub packets_per_second: Option<u64>,
    /// Where the destinations are drawn from.
    pub seed: u64,
}

/// A stream that may reach a far end, and so what its sinks keep books of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The stream.
    pub stream: StreamId,
    /// How many flows it has.
    pub flows: u32,
}

/// One flow's addresses and ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flow {
    pub(super) number: u32,
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) ports: [u16; 2],
}

/// Most flows of a stream: one for each pair of the ports below.
pub const FLOWS_MAX: u32 = 1 << 20;

/// Source ports begin above the well-known ones, and the low bits of a flow's number choose.
const SOURCE_PORT_MIN: u16 = 1024;
const SOURCE_PORT_BITS: u32 = 15;

/// Destination ports begin where traceroute's do; nothing listens there.
const DESTINATION_PORT_MIN: u16 = 33434;

/// How often a destination is drawn before the network's first host has to do.
const DRAWS_MAX: u64 = 16;

impl Stream {
    /// The length of the stream's frames: its size, but never less than headers and stamp need, which
    /// is 64 bytes for IPv4 and 84 for IPv6.
    pub fn frame_len(&self) -> u16 {
        let ip = if self.source.is_ipv4() { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
        let least = ethernet::HEADER_LEN + ip + udp::HEADER_LEN + STAMP_LEN;
        self.size.max(least as u16) // At most 84.
    }

    /// What the far ends that this stream may reach must know.
    pub fn expected(&self) -> Expected {
        Expected { stream: self.id, flows: self.flows }
    }

    pub(super) fn check(&self, room: u32) -> Result<(), FarEndError> {
        let bits = if self.destination.is_ipv4() { 32 } else { 128 };
        if self.source.is_ipv4() != self.destination.is_ipv4() {
            return Err(FarEndError::Families {
                source: self.source,
                destination: self.destination,
            });
        }
        if self.destination_len > bits {
            return Err(FarEndError::PrefixLength { len: self.destination_len, len_max: bits });
        }
        if self.flows == 0 || self.flows > FLOWS_MAX {
            return Err(FarEndError::Flows(self.flows));
        }
        if self.packets_per_second == Some(0) {
            return Err(FarEndError::NoRate);
        }
        if u32::from(self.frame_len()) > room {
            return Err(FarEndError::FrameTooLong { len: self.frame_len(), room });
        }
        Ok(())
    }

    /// The flow with this number. The ports alone tell flows apart, so that destinations may repeat.
    pub(super) fn flow(&self, number: u32) -> Flow {
        let source_port = number & ((1 << SOURCE_PORT_BITS) - 1);
        let destination_port = number >> SOURCE_PORT_BITS; // Below 32, by `FLOWS_MAX`.
        Flow {
            number,
            source: self.source,
            destination: self.draw(number),
            ports: [
                SOURCE_PORT_MIN + source_port as u16,
                DESTINATION_PORT_MIN + destination_port as u16,
            ],
        }
    }

    /// A destination that packets can be forwarded to, at random but for the seed.
    fn draw(&self, number: u32) -> IpAddr {
        let start = mix(self.seed.wrapping_add(u64::from(number).wrapping_mul(GOLDEN)));
        for draw in 0..DRAWS_MAX {
            let random =
                |half: u64| mix(start.wrapping_add((2 * draw + half).wrapping_mul(GOLDEN)));
            let random = u128::from(random(0)) << 64 | u128::from(random(1));
            if let Some(address) = self.host(random) {
                return address;
            }
        }
        self.host(1).unwrap_or(self.destination)
    }

    /// The host of the network with these host bits; `None` if no host can have that address.
    fn host(&self, random: u128) -> Option<IpAddr> {
        match self.destination {
            IpAddr::V4(network) => {
                let hosts = u32::MAX.checked_shr(self.destination_len.into()).unwrap_or(0);
                let bits = random as u32 & hosts;
                let address = Ipv4Addr::from_bits((network.to_bits() & !hosts) | bits);
                // The first and the last address of a network are no hosts, but for /31 and /32
                // (RFC 3021).
                let is_host = hosts <= 1 || (bits != 0 && bits != hosts);
                let usable = is_host
                    && !ipv4::is_martian_destination(address)
                    && !address.is_multicast()
                    && !address.is_broadcast();
                usable.then_some(address.into())
            }
            IpAddr::V6(network) => {
                let hosts = u128::MAX.checked_shr(self.destination_len.into()).unwrap_or(0);
                let bits = random & hosts;
                let address = Ipv6Addr::from_bits((network.to_bits() & !hosts) | bits);
                // The first is every router's (RFC 4291 §2.6.1), but for /127 (RFC 6164) and /128.
                let is_host = hosts <= 1 || bits != 0;
                let usable = is_host
                    && !ipv6::is_martian_destination(address)
                    && !address.is_multicast()
                    && !ipv6::is_link_scoped(address);
                usable.then_some(address.into())
            }
        }
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn flows_differ_in_their_ports_and_stay_in_the_network() {
        for (source, destination, len) in [
            ("10.0.0.1", "10.4.0.0", 16),
            ("10.0.0.1", "10.4.0.7", 32),
            ("10.0.0.1", "0.0.0.0", 0),
            ("2001:db8::1", "2001:db8:4::", 48),
            ("2001:db8::1", "2001:db8:4::7", 128),
            ("2001:db8::1", "::", 0),
        ] {
            let stream = stream(source, destination, len);
            let mut ports = HashSet::new();
            for number in (0..100_000).chain(FLOWS_MAX - 100..FLOWS_MAX) {
                let flow = stream.flow(number);
                assert!(ports.insert(flow.ports), "two flows with {:?}", flow.ports);
                let differs = bits(flow.destination) ^ bits(stream.destination);
                let width = if stream.source.is_ipv4() { 32 } else { 128 };
                assert_eq!(differs.checked_shr(width - u32::from(len)).unwrap_or(0), 0);
                assert!(!flow.destination.is_multicast() && !flow.destination.is_loopback());
            }
        }
    }

    #[test]
    fn networks_have_no_host_at_their_edges() {
        let narrow = stream("10.0.0.1", "10.4.0.0", 30);
        let drawn: HashSet<_> = (0..1000).map(|flow| narrow.flow(flow).destination).collect();
        let hosts = ["10.4.0.1", "10.4.0.2"].map(|host| host.parse().expect("an address"));
        assert_eq!(drawn, HashSet::from(hosts));
        let pair = stream("2001:db8::1", "2001:db8:4::", 127);
        let drawn: HashSet<_> = (0..1000).map(|flow| pair.flow(flow).destination).collect();
        assert_eq!(drawn.len(), 2);
    }

    #[test]
    fn the_seed_decides_and_nothing_else() {
        let stream = stream("10.0.0.1", "10.4.0.0", 16);
        let other = Stream { seed: 2, ..stream };
        assert_eq!(stream.flow(7), stream.flow(7));
        assert_ne!(stream.flow(7).destination, other.flow(7).destination);
    }

    #[test]
    fn frames_are_never_too_short_for_their_stamp() {
        let v4 = stream("10.0.0.1", "10.4.0.0", 16);
        let v6 = stream("2001:db8::1", "2001:db8:4::", 48);
        assert_eq!((v4.frame_len(), v6.frame_len()), (64, 84));
        assert_eq!(Stream { size: 1514, ..v6 }.frame_len(), 1514);
    }

    fn stream(source: &str, destination: &str, destination_len: u8) -> Stream {
        Stream {
            id: StreamId(0),
            source: source.parse().expect("an address"),
            destination: destination.parse().expect("an address"),
            destination_len,
            flows: 1,
            size: 64,
            packets: None,
            packets_per_second: None,
            seed: 1,
        }
    }

    fn bits(address: IpAddr) -> u128 {
        match address {
            IpAddr::V4(address) => address.to_bits().into(),
            IpAddr::V6(address) => address.to_bits(),
        }
    }
}
