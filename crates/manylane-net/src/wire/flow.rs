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

#[cfg(all(test, not(manylane_loom)))]
pub(crate) mod tests;
