//! ARP between Ethernet and IPv4 (RFC 826).
//!
//! 28 bytes that are read whole or not at all, so a plain value rather than a view.

use std::net::Ipv4Addr;

use super::Mac;
use super::ethernet::{self, ether_type};

/// An ARP packet for Ethernet and IPv4.
pub const LEN: usize = 28;

/// The same in an Ethernet frame, without padding (devices pad to 60 bytes).
pub const FRAME_LEN: usize = ethernet::HEADER_LEN + LEN;

/// Hardware type 1, protocol type IPv4, address lengths 6 and 4: all this file speaks.
const PREFIX: [u8; 6] = [0, 1, 0x08, 0x00, 6, 4];

/// A question or an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Which of the two.
    pub operation: Operation,
    /// The sender's address.
    pub sender_mac: Mac,
    /// The speaker's address; 0.0.0.0 in a probe (RFC 5227 §1.1).
    pub sender: Ipv4Addr,
    /// The target's MAC; unknown in a request.
    pub target_mac: Mac,
    /// The address in question.
    pub target: Ipv4Addr,
}

/// What an ARP packet wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A question: which station has `target`?
    Request,
    /// `sender` is at `sender_mac`.
    Reply,
}

impl Packet {
    /// Reads and verifies the packet: Ethernet and IPv4, request or reply, from one station.
    ///
    /// A sender whose MAC is a group's must not be believed (RFC 1812 §3.3.2); one whose address is
    /// multicast or broadcast is no host.
    pub fn checked(bytes: &[u8]) -> Option<Packet> {
        let bytes: &[u8; LEN] = bytes.first_chunk()?;
        if bytes[..6] != PREFIX {
            return None;
        }
        let operation = match (bytes[6], bytes[7]) {
            (0, 1) => Operation::Request,
            (0, 2) => Operation::Reply,
            _ => return None,
        };
        let [.., a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t] = *bytes;
        let packet = Packet {
            operation,
            sender_mac: Mac([a, b, c, d, e, f]),
            sender: Ipv4Addr::new(g, h, i, j),
            target_mac: Mac([k, l, m, n, o, p]),
            target: Ipv4Addr::new(q, r, s, t),
        };
        let is_host = !packet.sender.is_multicast() && !packet.sender.is_broadcast();
        (packet.sender_mac.is_station() && is_host).then_some(packet)
    }

    /// The question: which station has `target`? With the unspecified address as `sender`, a probe.
    pub fn request(station: Mac, sender: Ipv4Addr, target: Ipv4Addr) -> Packet {
        Packet {
            operation: Operation::Request,
            sender_mac: station,
            sender,
            target_mac: Mac::UNSPECIFIED,
            target,
        }
    }

    /// The answer to this question: its target is at `station`.
    pub fn answer(&self, station: Mac) -> Packet {
        Packet {
            operation: Operation::Reply,
            sender_mac: station,
            sender: self.target,
            target_mac: self.sender_mac,
            target: self.sender,
        }
    }

    /// Whether it announces its own sender (gratuitous ARP, RFC 5227 §3).
    pub fn is_announcement(&self) -> bool {
        self.sender == self.target
    }

    /// Whether it only asks if an address is taken, and says nothing of its sender (RFC 5227 §1.1).
    pub fn is_probe(&self) -> bool {
        self.operation == Operation::Request && self.sender.is_unspecified()
    }

    /// Writes the packet.
    pub fn emit(&self, buf: &mut [u8]) -> Option<usize> {
        let bytes: &mut [u8; LEN] = buf.first_chunk_mut()?;
        bytes[..6].copy_from_slice(&PREFIX);
        let operation: u16 = match self.operation {
            Operation::Request => 1,
            Operation::Reply => 2,
        };
        bytes[6..8].copy_from_slice(&operation.to_be_bytes());
        bytes[8..14].copy_from_slice(&self.sender_mac.0);
        bytes[14..18].copy_from_slice(&self.sender.octets());
        bytes[18..24].copy_from_slice(&self.target_mac.0);
        bytes[24..].copy_from_slice(&self.target.octets());
        Some(LEN)
    }

    /// Writes a whole Ethernet frame to `destination`, from the sender's station.
    pub fn emit_frame(&self, buf: &mut [u8], destination: Mac) -> Option<usize> {
        let frame: &mut [u8; FRAME_LEN] = buf.first_chunk_mut()?;
        let (header, packet) = frame.split_at_mut(ethernet::HEADER_LEN);
        ethernet::emit(header, destination, self.sender_mac, ether_type::ARP)?;
        self.emit(packet)?;
        Some(FRAME_LEN)
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STATION: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const ASKER: Mac = Mac([2, 0, 0, 0, 0, 2]);
    const OURS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const THEIRS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

    #[test]
    fn an_answer_goes_back_to_the_asker() {
        let question = Packet::request(ASKER, THEIRS, OURS);
        let answer = question.answer(STATION);
        assert_eq!(answer.operation, Operation::Reply);
        assert_eq!((answer.sender_mac, answer.sender), (STATION, OURS));
        assert_eq!((answer.target_mac, answer.target), (ASKER, THEIRS));
        assert!(!answer.is_announcement() && !answer.is_probe());
    }

    #[test]
    fn probes_and_announcements_are_recognised() {
        assert!(Packet::request(ASKER, Ipv4Addr::UNSPECIFIED, OURS).is_probe());
        assert!(Packet::request(ASKER, OURS, OURS).is_announcement());
    }

    #[test]
    fn what_is_not_ethernet_and_ipv4_from_a_station_is_refused() {
        let mut good = [0; LEN];
        Packet::request(ASKER, THEIRS, OURS).emit(&mut good).unwrap();
        assert!(Packet::checked(&good).is_some());
        assert!(Packet::checked(&good[..27]).is_none());
        for (at, value, what) in [
            (1, 6, "hardware type IEEE 802"),
            (2, 0x86, "another protocol"),
            (4, 8, "a longer hardware address"),
            (5, 16, "a longer protocol address"),
            (6, 1, "operation 257"),
            (7, 3, "reverse ARP"),
            (7, 0, "operation 0"),
            (8, 0x03, "a group as sender"),
            (14, 224, "a multicast address as sender"),
        ] {
            let mut bad = good;
            bad[at] = value;
            assert!(Packet::checked(&bad).is_none(), "{what}");
        }
        let zero = Packet { sender_mac: Mac::UNSPECIFIED, ..Packet::request(ASKER, THEIRS, OURS) };
        zero.emit(&mut good).unwrap();
        assert!(Packet::checked(&good).is_none(), "the zero MAC as sender");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_was_emitted_is_read_back(
            reply: bool, mac: [u8; 5], sender: [u8; 4], target_mac: [u8; 6], target: [u8; 4],
        ) {
            let [b, c, d, e, f] = mac;
            let packet = Packet {
                operation: if reply { Operation::Reply } else { Operation::Request },
                sender_mac: Mac([2, b, c, d, e, f]),
                sender: [sender[0] & 0x7f, sender[1], sender[2], sender[3]].into(),
                target_mac: Mac(target_mac),
                target: target.into(),
            };
            let mut buf = [0xee; 60];
            prop_assert_eq!(packet.emit_frame(&mut buf, Mac(target_mac)), Some(42));
            let frame = ethernet::View::checked(&buf).unwrap();
            prop_assert_eq!(frame.ether_type(), ether_type::ARP);
            prop_assert_eq!((frame.destination(), frame.source()), (Mac(target_mac), packet.sender_mac));
            prop_assert_eq!(Packet::checked(frame.payload()), Some(packet));
        }
    }
}
