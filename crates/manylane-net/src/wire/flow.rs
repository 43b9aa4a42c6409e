//! One number per flow, the same in both directions.
//!
//! | packet                                     | what is hashed                             |
//! |--------------------------------------------|--------------------------------------------|
//! | TCP, UDP, SCTP, DCCP, UDP-Lite             | both ends (address and port), protocol     |
//! | a fragment, also the first                 | both addresses                             |
//! | an ICMP or ICMPv6 error                    | what it quotes, by the same table          |
//! | anything else                              | both addresses                             |
//! | what cannot be read                        | nothing: 0                                 |
//!
//! First fragments have ports and later ones have not; all must take one path, or they overtake each other. Nor can a
//! protocol be hashed: in IPv6 the headers behind the fragment header are in the first one only, so that the others do
//! not know where they lead; IPv4 does as IPv6 does. An error must take the path of the flow it is about, to the
//! station that keeps its path MTU (RFC 7690 §2); the hash is symmetric, so the quoted packet's direction does not
//! matter.
//!
//! Each end is multiplied by an odd number and folded: the upper bytes of the product, which depend on all bytes below
//! them, are added to the lower ones once more. So are the sum of both ends and the protocol. The hash takes a third of the
//! time of a hash that moves each bit with a probability near one half, and spreads flows that were numbered up as well
//! as chance does.
//!
//! The odd numbers are the key ([`FlowKey`]). With the public numbers, an attacker can compute flows that collide,
//! and send all of them to one worker; so workers, and groups of packet sockets, hash with numbers of the daemon's own.
//! The kernel does so too (its flow dissector, and the RSS keys of its drivers). The hash is not cryptographic: a
//! sender that measures which flows share a worker learns about the key. The choice among next hops has a key that
//! follows from one word ([`FlowKey::seeded`]), since a program in the kernel makes this choice as well and reads that
//! word. [`FlowKey::PUBLIC`] is for wires in memory.

use std::fmt;

use super::ethernet::{HEADER_LEN, Tags, VLAN_TAG_LEN};
use super::ip::View;
use super::{icmp, icmpv6, protocol};

/// Three odd multipliers. Flows that were chosen to share a bucket by one key are spread by another.
#[derive(Clone, Copy)]
pub struct FlowKey([u64; 3]);

impl FlowKey {
    /// The multipliers of MurmurHash3's finaliser (`fmix64`, by Austin Appleby, public domain), and 2^64 over the
    /// golden ratio.
    pub const PUBLIC: FlowKey =
        FlowKey([0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53, 0x9e37_79b9_7f4a_7c15]);

    /// The key that follows from these random numbers.
    ///
    /// Of hosts that differ in the last byte of their IPv6 addresses, the ends differ in one byte. The second number
    /// takes that byte to the bucket, by its bits 24 to 39: near 0, or near a simple fraction of their range, it would
    /// take all such hosts to a few buckets. So these bits are an odd number over 256 with no fraction.
    pub fn new(random: [u64; 3]) -> FlowKey {
        let [end, sum, port] = random.map(|word| word | 1);
        FlowKey([end, (sum & !0xff00_0000) | (1 << 32), port])
    }

    /// The key that follows from this one random number, by three exclusive ors: `flow.h` of `manylane-accelerate`
    /// makes the same key anew for each packet.
    pub fn seeded(seed: u64) -> FlowKey {
        let [end, sum, port] = FlowKey::PUBLIC.0;
        FlowKey::new([end ^ seed, sum ^ seed.rotate_left(21), port ^ seed.rotate_left(42)])
    }

    /// The multipliers: of ends, of their sum, of ports.
    pub(crate) fn numbers(&self) -> [u64; 3] {
        self.0
    }
}

impl fmt::Debug for FlowKey {
    /// A secret is not printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FlowKey")
    }
}

/// The hash with the public key.
#[inline(always)]
pub fn frame_hash(frame: &[u8]) -> u32 {
    FlowKey::PUBLIC.frame_hash(frame)
}

/// The hash with the public key.
#[inline]
pub fn flow_hash(packet: &[u8]) -> u32 {
    FlowKey::PUBLIC.flow_hash(packet)
}

impl FlowKey {
    /// The hash of the flow that an Ethernet frame belongs to, whatever tags are in front of the packet.
    #[inline(always)]
    pub fn frame_hash(&self, frame: &[u8]) -> u32 {
        if let Some(head) = frame.first_chunk::<{ HEADER_LEN + 24 }>() {
            let packet = head[HEADER_LEN..].first_chunk().expect("it is that long");
            if le_word(head, 12) & 0x00ff_ffff == V4 && is_fast_path_v4(packet) {
                return self.fast_path_v4(packet);
            }
        }
        if let Some(head) = frame.first_chunk::<{ HEADER_LEN + 44 }>() {
            let packet = head[HEADER_LEN..].first_chunk().expect("it is that long");
            if le_word(head, 12) & 0x00f0_ffff == V6 && is_fast_path_v6(packet) {
                return self.fast_path_v6(packet);
            }
        }
        self.any_frame_hash(frame)
    }

    #[inline(never)]
    fn any_frame_hash(&self, frame: &[u8]) -> u32 {
        let tags = [2, 1].iter().find(|&&count| Tags::of(frame, count).is_some()).unwrap_or(&0);
        frame.get(HEADER_LEN + tags * VLAN_TAG_LEN..).map_or(0, |packet| self.flow_hash(packet))
    }

    /// The hash of the flow to which this IP packet belongs. Its headers will do: the others of the flow may
    /// lie in one frame, and this one's end in another.
    #[inline]
    pub fn flow_hash(&self, packet: &[u8]) -> u32 {
        match (packet.first_chunk(), packet.first_chunk()) {
            (Some(packet), _) if is_fast_path_v4(packet) => self.fast_path_v4(packet),
            (_, Some(packet)) if is_fast_path_v6(packet) => self.fast_path_v6(packet),
            _ => self.any_hash(packet),
        }
    }

    /// The hash of all flows between the same two addresses: what [`flow_hash`] is of their fragments.
    #[inline]
    pub fn address_hash(&self, view: &View<'_>) -> u32 {
        self.mix(self.ends(view, [0; 2]), NO_PROTOCOL)
    }

    #[inline(never)]
    fn any_hash(&self, packet: &[u8]) -> u32 {
        View::quoted(packet).map_or(0, |view| self.hash(&view, Depth::Outside))
    }

    #[inline(always)]
    fn fast_path_v4(&self, packet: &[u8; 24]) -> u32 {
        let ports = le_word(packet, 20);
        let source = self.end_v4(le_word(packet, 12), ports as u16);
        self.mix([source, self.end_v4(le_word(packet, 16), (ports >> 16) as u16)], packet[9])
    }

    #[inline(always)]
    fn fast_path_v6(&self, packet: &[u8; 44]) -> u32 {
        let ports = le_word(packet, 40);
        let [source, destination] = [8, 24].map(|at| packet[at..].first_chunk().expect("it fits"));
        self.mix(
            [self.end_v6(source, ports as u16), self.end_v6(destination, (ports >> 16) as u16)],
            packet[6],
        )
    }

    fn hash(&self, view: &View<'_>, depth: Depth) -> u32 {
        // Without a transport, the addresses are still there.
        let Some(transport) = view.transport().filter(|transport| transport.fragment.is_whole())
        else {
            return self.address_hash(view);
        };
        let bytes = view.packet().get(transport.offset..).unwrap_or_default();
        if let [a, b, c, d, ..] = *bytes
            && protocol::has_ports(transport.protocol)
        {
            let ports = [u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d])];
            return self.mix(self.ends(view, ports), transport.protocol);
        }
        if depth == Depth::Outside
            && let Some(quoted) = quoted(transport.protocol, bytes).and_then(View::quoted)
        {
            return self.hash(&quoted, Depth::Quoted);
        }
        self.address_hash(view)
    }

    fn ends(&self, view: &View<'_>, ports: [u16; 2]) -> [u64; 2] {
        match view {
            View::V4(view) => {
                let [source, destination] = [view.source(), view.destination()]
                    .map(|address| u32::from_le_bytes(address.octets()));
                [self.end_v4(source, ports[0]), self.end_v4(destination, ports[1])]
            }
            View::V6(view) => [
                self.end_v6(&view.source().octets(), ports[0]),
                self.end_v6(&view.destination().octets(), ports[1]),
            ],
        }
    }

    #[inline(always)]
    fn mix(&self, [a, b]: [u64; 2], protocol: u8) -> u32 {
        // Addition, not exclusive or: it is as symmetric, and does not cancel when both ends are equal.
        ((a.wrapping_add(b) ^ u64::from(protocol)).wrapping_mul(self.0[1]) >> 32) as u32
    }

    /// Addresses and ports as they lie in memory, the first byte lowest.
    #[inline(always)]
    fn end_v4(&self, address: u32, port: u16) -> u64 {
        fold((u64::from(port) << 32 | u64::from(address)).wrapping_mul(self.0[0]))
    }

    #[inline(always)]
    fn end_v6(&self, address: &[u8; 16], port: u16) -> u64 {
        let bits = u128::from_le_bytes(*address);
        let (network, interface) = (bits as u64, (bits >> 64) as u64);
        // Multiplied, no two ports are closer than the interface numbers of hosts that were counted up.
        let port = u64::from(port).wrapping_mul(self.0[2]);
        let network = fold(network.wrapping_mul(self.0[1]));
        fold((network ^ interface).wrapping_add(port).wrapping_mul(self.0[0]))
    }
}

/// The ether type, and how the packet begins: the version, of IPv4 also the shortest header's length.
const V4: u32 = u32::from_le_bytes([0x08, 0x00, 0x45, 0]);
const V6: u32 = u32::from_le_bytes([0x86, 0xdd, 0x60, 0]);

/// TCP or UDP in IPv4, whole, behind a header of 20 bytes: nearly every packet, known by one branch.
#[inline(always)]
fn is_fast_path_v4(packet: &[u8; 24]) -> bool {
    let has_room = u16::from_be_bytes([packet[2], packet[3]]) >= 24;
    let is_part = le_word(packet, 6) & 0xff3f != 0;
    (packet[0] == 0x45) & has_room & !is_part & is_common(packet[9])
}

/// TCP or UDP in IPv6, without extension headers.
#[inline(always)]
fn is_fast_path_v6(packet: &[u8; 44]) -> bool {
    let has_room = u16::from_be_bytes([packet[4], packet[5]]) >= 4;
    (packet[0] >> 4 == 6) & has_room & is_common(packet[6])
}

#[inline(always)]
fn is_common(protocol: u8) -> bool {
    (protocol == protocol::TCP) | (protocol == protocol::UDP)
}

#[inline(always)]
fn le_word<const N: usize>(packet: &[u8; N], at: usize) -> u32 {
    u32::from_le_bytes(*packet[at..].first_chunk().expect("the word is inside"))
}

#[derive(Clone, Copy, PartialEq)]
enum Depth {
    Outside,
    /// Errors are not about errors, so one level is enough.
    Quoted,
}

/// What has no ports is hashed by its addresses alone. No transport has this number.
const NO_PROTOCOL: u8 = protocol::NO_NEXT_HEADER;

fn quoted(protocol: u8, message: &[u8]) -> Option<&[u8]> {
    match protocol {
        protocol::ICMP => icmp::View::checked(message)?.quoted(),
        protocol::ICMPV6 => icmpv6::View::checked(message)?.quoted(),
        _ => None,
    }
}

#[inline(always)]
fn fold(product: u64) -> u64 {
    product ^ product.swap_bytes()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};

    use proptest::prelude::*;

    use super::super::{ipv4, ipv6, udp};
    use super::*;

    const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
    const A6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    const B6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

    proptest! {
        /// Whatever the packet is like: near enough to an ordinary one that both ways are taken.
        #[test]
        fn the_short_way_finds_what_the_long_way_finds(
            packet in proptest::collection::vec(any::<u8>(), 0..72),
            front in prop_oneof![Just(0x45u8), Just(0x46), Just(0x60), any::<u8>()],
            length in 0u16..80,
            fragment in prop_oneof![Just(0u16), Just(0x4000), any::<u16>()],
            number in prop_oneof![Just(6u8), Just(17), Just(1), Just(44), any::<u8>()],
        ) {
            let mut packet = packet;
            let sixth = front >> 4 == 6;
            let at = if sixth { 4 } else { 2 };
            let writes = [
                (0, front), (at, 0), (at + 1, length as u8),
                (if sixth { 6 } else { 9 }, number),
            ];
            for (at, byte) in writes {
                packet.get_mut(at).into_iter().for_each(|place| *place = byte);
            }
            if let (false, Some(word)) = (sixth, packet.get_mut(6..8)) {
                word.copy_from_slice(&fragment.to_be_bytes());
            }
            prop_assert_eq!(flow_hash(&packet), FlowKey::PUBLIC.any_hash(&packet));
            for ether_type in [[0x08, 0x00], [0x86, 0xdd], [0x81, 0x00]] {
                let frame = [&[7; 12][..], &ether_type, &packet].concat();
                prop_assert_eq!(frame_hash(&frame), FlowKey::PUBLIC.any_frame_hash(&frame));
            }
        }
    }

    #[test]
    fn ports_tell_flows_apart_but_not_fragments() {
        assert_ne!(flow_hash(&v4(A, B, 1, 2)), flow_hash(&v4(A, B, 1, 3)));
        assert_ne!(flow_hash(&v4(A, B, 1, 2)), flow_hash(&v4(A, B, 2, 1)));

        let fragment = |word: u16, source: u16| {
            let mut packet = v4(A, B, source, 2);
            packet[6..8].copy_from_slice(&word.to_be_bytes());
            flow_hash(&packet)
        };
        assert_eq!(fragment(0x2000, 1), fragment(0x2000, 99));
        assert_eq!(fragment(0x2000, 1), fragment(0x0005, 99));
        assert_ne!(fragment(0x4000, 1), fragment(0x4000, 99));
    }

    /// All that has no ports takes one way, whatever it says that it is.
    #[test]
    fn without_ports_the_addresses_alone_tell_flows_apart() {
        let of = |protocol: u8, fragment: u16| {
            let mut packet = v4(A, B, 1, 2);
            packet[6..8].copy_from_slice(&fragment.to_be_bytes());
            packet[9] = protocol;
            flow_hash(&packet)
        };
        let gre = of(47, 0);
        assert_eq!(gre, of(50, 0));
        for protocol in [protocol::ICMP, protocol::TCP, protocol::UDP, 50] {
            assert_eq!((of(protocol, 0x2000), of(protocol, 0x0005)), (gre, gre), "{protocol}");
        }
        assert_ne!(
            of(protocol::TCP, 0),
            of(protocol::UDP, 0),
            "their ports are not the same ports"
        );
    }

    /// The options after the fragment header are in the first fragment only.
    #[test]
    fn all_fragments_of_an_ipv6_packet_hash_alike() {
        let with = |header: &[u8]| {
            let mut packet = v6(A6, B6, 1, 2);
            packet.splice(40..40, header.iter().copied());
            packet[5] += header.len() as u8;
            packet[6] = header.first().map_or(protocol::UDP, |_| protocol::FRAGMENT);
            flow_hash(&packet)
        };
        let first = with(&[60, 0, 0, 1, 0, 0, 0, 9, protocol::UDP, 0, 1, 4, 0, 0, 0, 0]);
        let later = with(&[60, 0, 0, 8, 0, 0, 0, 9]);
        assert_eq!(first, later);
        let atomic = with(&[protocol::UDP, 0, 0, 0, 0, 0, 0, 9]);
        assert_eq!(atomic, with(&[]), "an atomic fragment is a whole packet");
        assert_ne!(first, with(&[]));
    }

    #[test]
    fn extension_headers_do_not_change_the_flow() {
        let mut packet = v6(A6, B6, 1, 2);
        let plain = flow_hash(&packet);
        packet.splice(40..40, [protocol::UDP, 0, 1, 4, 0, 0, 0, 0]);
        packet[5] += 8;
        packet[6] = protocol::DESTINATION_OPTIONS;
        assert_eq!(flow_hash(&packet), plain);
    }

    #[test]
    fn an_error_hashes_as_the_packet_it_is_about() {
        let about = v4(A, B, 1, 2);
        let mut error = [&[0; 28], &about[..28]].concat(); // Cut, as a quote may be.
        icmp::emit(&mut error[20..], icmp::kind::TIME_EXCEEDED, 0, 0).unwrap();
        header_v4(protocol::ICMP, Ipv4Addr::new(192, 0, 2, 9), A).emit(&mut error, 36).unwrap();
        assert_eq!(flow_hash(&error), flow_hash(&v4(B, A, 2, 1)));

        let about = v6(A6, B6, 1, 2);
        let mut error = [&[0; 48], &about[..48]].concat();
        let router: Ipv6Addr = "2001:db8:9::1".parse().unwrap();
        icmpv6::emit(&mut error[40..], icmpv6::kind::PACKET_TOO_BIG, 0, 1280, router, A6).unwrap();
        header_v6(protocol::ICMPV6, router, A6).emit(&mut error, 56).unwrap();
        assert_eq!(flow_hash(&error), flow_hash(&v6(B6, A6, 2, 1)));
    }

    #[test]
    fn a_ping_keeps_its_addresses_only() {
        let ping = |source, destination, sequence: u32| {
            let mut packet = vec![0; 28];
            header_v4(protocol::ICMP, source, destination).emit(&mut packet, 8).unwrap();
            icmp::emit(&mut packet[20..], icmp::kind::ECHO_REQUEST, 0, sequence).unwrap();
            flow_hash(&packet)
        };
        assert_eq!(ping(A, B, 1), ping(B, A, 2));
        assert_ne!(ping(A, B, 1), ping(A, Ipv4Addr::new(10, 0, 0, 3), 1));
    }

    #[test]
    fn what_cannot_be_read_is_no_flow() {
        assert_eq!(flow_hash(&[]), 0);
        assert_eq!(flow_hash(&[0x45; 19]), 0);
        assert_eq!(flow_hash(&[0x00; 100]), 0);
    }

    /// 4096 flows over 256 buckets, numbered up as a test bed does: 16 each, if it were perfect.
    #[test]
    fn counted_up_flows_spread_over_the_buckets() {
        for (what, flow) in [
            ("ports", (|n| flow_hash(&v4(A, B, 1024 + n, 80))) as fn(u16) -> u32),
            ("hosts", |n| flow_hash(&v4(Ipv4Addr::from_bits(0x0a00_0000 + u32::from(n)), B, 1, 2))),
            ("ports v6", |n| flow_hash(&v6(A6, B6, 1024 + n, 80))),
            ("hosts v6", |n| {
                flow_hash(&v6(Ipv6Addr::from_bits(A6.to_bits() + u128::from(n)), B6, 1, 2))
            }),
            ("networks v6", |n| {
                flow_hash(&v6(Ipv6Addr::from_bits(A6.to_bits() + (u128::from(n) << 64)), B6, 1, 2))
            }),
        ] {
            let mut buckets = [0; 256];
            for number in 0..4096 {
                buckets[(flow(number) % 256) as usize] += 1;
            }
            let fullest = buckets.iter().max().unwrap();
            assert!(*fullest < 40, "{what}: {fullest} flows in one bucket");
            assert!(buckets.iter().all(|&flows| flows > 0), "{what}: an empty bucket");
        }
    }

    /// An attacker knows the algorithm, and makes flows that all land in one bucket by the public key. By
    /// two keys that the attacker does not know, these flows spread as chance does.
    #[test]
    fn flows_made_to_collide_by_one_key_spread_by_another() {
        let keys = [[1, 2, 3], [4, 5, 6]].map(FlowKey::new_of_test);
        let flows: [fn(u32) -> Vec<u8>; 4] = [
            |n| v4(Ipv4Addr::from_bits(0x0a00_0000 | n >> 16), B, n as u16, 80),
            |n| v4(Ipv4Addr::from_bits(0xac10_0000 + n), B, 4000, 80),
            |n| v6(A6, B6, n as u16, (n >> 16) as u16),
            |n| v6(Ipv6Addr::from_bits(A6.to_bits() + (u128::from(n) << 40)), B6, 4000, 80),
        ];
        for (what, flow) in flows.iter().enumerate() {
            let crafted = (0..u32::MAX).map(flow).filter(|flow| flow_hash(flow) as u8 == 7);
            let crafted: Vec<_> = crafted.take(4096).collect();
            for key in keys {
                let mut buckets = [0; 256];
                crafted
                    .iter()
                    .for_each(|flow| buckets[usize::from(key.flow_hash(flow) as u8)] += 1);
                let fullest = buckets.iter().max().expect("256 buckets");
                assert!(*fullest < 48, "{what}: {fullest} of 4096 flows in one bucket");
            }
        }
    }

    /// Keys are drawn at random, and none may be a bad one: 4096 flows that were counted up.
    #[test]
    fn counted_up_flows_spread_by_any_key() {
        for seed in 0..200 {
            let seeded = FlowKey::seeded(FlowKey::new_of_test([seed; 3]).0[0]);
            let keys = [FlowKey::new_of_test([seed, seed + 1000, seed + 2000]), seeded];
            let flows: [fn(u16) -> Vec<u8>; 4] = [
                |n| v4(A, B, 1024 + n, 80),
                |n| v4(Ipv4Addr::from_bits(0x0a00_0000 + u32::from(n)), B, 1, 2),
                |n| v6(A6, B6, 1024 + n, 80),
                |n| v6(Ipv6Addr::from_bits(A6.to_bits() + u128::from(n)), B6, 1, 2),
            ];
            for ((what, flow), key) in
                flows.iter().enumerate().flat_map(|flow| keys.map(|key| (flow, key)))
            {
                let mut buckets = [0; 256];
                (0..4096).for_each(|n| buckets[usize::from(key.flow_hash(&flow(n)) as u8)] += 1);
                let fullest = buckets.iter().max().expect("256 buckets");
                assert!(*fullest < 64, "{what}, key {seed}: {fullest} of 4096 flows in one bucket");
            }
        }
    }

    /// Random numbers whose bits 24 to 39 are zeros took all pairs of hosts of two IPv6 networks to one bucket.
    #[test]
    fn hosts_that_differ_in_the_last_byte_spread_by_unlucky_numbers() {
        let sum = FlowKey::new_of_test([7, 8, 9]).0[1] & !0xff_ff00_0000;
        // None, the smallest fractions, a half and a third of the range.
        for middle in [0, 1, 0x8000, 0x5555] {
            let key =
                FlowKey::new([0x9e37_79b9_7f4a_7c15, sum | (middle << 24), 0x1234_5678_9abc_def1]);
            let mut buckets = [0; 256];
            for n in 0..4096 {
                let [from, to] = [A6.to_bits() + (n & 63), A6.to_bits() + (1 << 64) + (n >> 6)];
                let flow = v6(Ipv6Addr::from_bits(from), Ipv6Addr::from_bits(to), 1, 2);
                buckets[usize::from(key.flow_hash(&flow) as u8)] += 1;
            }
            let fullest = buckets.iter().max().expect("256 buckets");
            assert!(*fullest < 128, "{middle:#x}: {fullest} of 4096 flows in one bucket");
        }
    }

    /// As by the public key: fragments of both families take one way, whatever their ports.
    #[test]
    fn fragments_hash_by_their_addresses_by_any_key() {
        for seed in 0..50 {
            let key = FlowKey::new_of_test([seed, seed + 1000, seed + 2000]);
            let whole = v4(A, B, 1, 2);
            let fragment = |word: u16, source| {
                let mut packet = v4(A, B, source, 2);
                packet[6..8].copy_from_slice(&word.to_be_bytes());
                key.flow_hash(&packet)
            };
            let addresses = key.address_hash(&View::quoted(&whole).expect("it is whole"));
            assert_eq!([fragment(0x2000, 1), fragment(0x0005, 99)], [addresses; 2]);
            assert_ne!(key.flow_hash(&whole), addresses);

            let whole = v6(A6, B6, 1, 2);
            let fragment = |header: [u8; 8]| {
                let mut packet = whole.clone();
                packet.splice(40..40, header);
                packet[5] += 8;
                packet[6] = protocol::FRAGMENT;
                key.flow_hash(&packet)
            };
            let addresses = key.address_hash(&View::quoted(&whole).expect("it is whole"));
            let [first, later] =
                [[17, 0, 0, 1, 0, 0, 0, 9], [17, 0, 0, 8, 0, 0, 0, 9]].map(fragment);
            assert_eq!([first, later], [addresses; 2]);
            assert_ne!(key.flow_hash(&whole), addresses);
        }
    }

    /// An operator's trace or a panic's message would tell the key to those who read it.
    #[test]
    fn a_key_is_not_printed() {
        let keys = [FlowKey::PUBLIC, FlowKey::new([1, 2, 3])];
        assert_eq!(keys.map(|key| format!("{key:?}")), ["FlowKey"; 2]);
        assert_eq!(format!("{:#?}", keys[1]), "FlowKey");
    }

    /// Flows of different hosts with one and the same hash by the public key, as an attacker computes them: a folded
    /// product says only which pairs of bytes differ how, so half of its bytes are free, and the multiplication has an inverse.
    pub(crate) fn colliding_v4(count: usize) -> Vec<Vec<u8>> {
        let inverse = inverse(FlowKey::PUBLIC.0[0]);
        let ends = products_of_one_fold().map(|product| product.wrapping_mul(inverse));
        let flows = ends.filter(|end| end >> 48 == 0).map(|end| {
            v4(Ipv4Addr::from((end as u32).to_le_bytes()), B, u16::from_be((end >> 32) as u16), 80)
        });
        flows.take(count).collect()
    }

    /// As [`colliding_v4`], of hosts of one /64 with one port.
    pub(crate) fn colliding_v6(count: usize) -> Vec<Vec<u8>> {
        let [end, sum, port] = FlowKey::PUBLIC.0;
        let network = fold((A6.to_bits().swap_bytes() as u64).wrapping_mul(sum));
        let port = u64::from(4000_u16.to_be()).wrapping_mul(port);
        let flows = products_of_one_fold().map(|product| {
            let interface = network ^ product.wrapping_mul(inverse(end)).wrapping_sub(port);
            let host = A6.to_bits() >> 64 << 64 | u128::from(interface.swap_bytes());
            v6(Ipv6Addr::from_bits(host), B6, 4000, 80)
        });
        flows.take(count).collect()
    }

    fn products_of_one_fold() -> impl Iterator<Item = u64> {
        const FOLDED: u32 = 0x1357_9bdf;
        let product = |upper: u32| u64::from(upper) << 32 | u64::from(upper.swap_bytes() ^ FOLDED);
        (0..=u32::MAX).map(product)
    }

    /// By Newton's iteration, which doubles the right bits each time, from three.
    fn inverse(odd: u64) -> u64 {
        (0..5).fold(odd, |inverse, _| {
            inverse.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(inverse)))
        })
    }

    impl FlowKey {
        /// The key by SplitMix64's finaliser over these words.
        fn new_of_test(words: [u64; 3]) -> FlowKey {
            FlowKey::new(words.map(|word| {
                let z = word.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                z ^ (z >> 31)
            }))
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn both_directions_hash_alike_by_any_key(
            random: [u64; 3], a: [u8; 16], b: [u8; 16], from: u16, to: u16,
        ) {
            let key = FlowKey::new(random);
            let (a4, b4) = (Ipv4Addr::from([a[0], a[1], a[2], a[3]]), Ipv4Addr::from([b[0], b[1], b[2], b[3]]));
            let (there, back) = (v4(a4, b4, from, to), v4(b4, a4, to, from));
            prop_assert_eq!(key.flow_hash(&there), key.flow_hash(&back));
            let (there, back) = (v6(a.into(), b.into(), from, to), v6(b.into(), a.into(), to, from));
            prop_assert_eq!(key.flow_hash(&there), key.flow_hash(&back));
        }

        #[test]
        fn both_directions_hash_alike(a: [u8; 16], b: [u8; 16], from: u16, to: u16) {
            let (a4, b4) = (Ipv4Addr::from([a[0], a[1], a[2], a[3]]), Ipv4Addr::from([b[0], b[1], b[2], b[3]]));
            prop_assert_eq!(flow_hash(&v4(a4, b4, from, to)), flow_hash(&v4(b4, a4, to, from)));
            let (a6, b6) = (a.into(), b.into());
            prop_assert_eq!(flow_hash(&v6(a6, b6, from, to)), flow_hash(&v6(b6, a6, to, from)));
        }
    }

    fn header_v4(protocol: u8, source: Ipv4Addr, destination: Ipv4Addr) -> ipv4::Header {
        ipv4::Header {
            tos: 0,
            identification: 0,
            dont_fragment: true,
            ttl: 64,
            protocol,
            source,
            destination,
        }
    }

    fn header_v6(next_header: u8, source: Ipv6Addr, destination: Ipv6Addr) -> ipv6::Header {
        ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            next_header,
            hop_limit: 64,
            source,
            destination,
        }
    }

    fn v4(source: Ipv4Addr, destination: Ipv4Addr, from: u16, to: u16) -> Vec<u8> {
        let mut packet = vec![0; 40];
        header_v4(protocol::UDP, source, destination).emit(&mut packet, 20).unwrap();
        let (source, destination) =
            (SocketAddrV4::new(source, from), SocketAddrV4::new(destination, to));
        udp::emit_v4(&mut packet[20..], source, destination).unwrap();
        packet
    }

    fn v6(source: Ipv6Addr, destination: Ipv6Addr, from: u16, to: u16) -> Vec<u8> {
        let mut packet = vec![0; 60];
        header_v6(protocol::UDP, source, destination).emit(&mut packet, 20).unwrap();
        let (source, destination) =
            (SocketAddrV6::new(source, from, 0, 0), SocketAddrV6::new(destination, to, 0, 0));
        udp::emit_v6(&mut packet[40..], source, destination).unwrap();
        packet
    }
}
