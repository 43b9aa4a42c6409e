//! What tells a packet from all others, wherever it is seen.

use std::net::IpAddr;

use manylane_net::wire::summary;

/// Of an IP packet: what forwarding leaves as it is, and what does not matter for that beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Headers {
    ends: [IpAddr; 2],
    /// As the IP header has it: of IPv6 the first header behind it.
    protocol: u8,
    /// The length that the IP header says.
    len: u16,
    /// Of IPv4 identification, flags and offset; of IPv6 the flow label.
    id: u32,
    /// The first bytes behind the IP header: of TCP ports and sequence, of UDP ports, length and checksum, of ICMP
    /// checksum, identifier and sequence. Not of a later fragment, nor behind extension headers.
    upper: Option<[u8; 8]>,
    /// As the router's trace writes it.
    line: String,
}

impl Headers {
    /// Of an Ethernet frame. `None` for one that has no IP packet, or not its headers.
    pub fn of_frame(frame: &[u8]) -> Option<Headers> {
        let mut at = ETHERNET;
        // Two tags at most.
        for _ in 0..3 {
            match u16::from_be_bytes(*frame.get(at - 2..)?.first_chunk()?) {
                IPV4 | IPV6 => return Headers::of_packet(&frame[at..], None),
                VLAN | SERVICE_VLAN => at += 4,
                _ => return None,
            }
        }
        None
    }

    /// Of an IP packet. Where `packet` has its header only, `upper` is what is behind it.
    pub fn of_packet(packet: &[u8], upper: Option<&[u8]>) -> Option<Headers> {
        let first = *packet.first()?;
        let short = |at: usize| Some(u16::from_be_bytes(*packet.get(at..)?.first_chunk()?));
        let behind = |header: usize| {
            let bytes = upper.or_else(|| packet.get(header..))?;
            bytes.first_chunk::<8>().copied()
        };
        let line = |kind: u16| line_of(kind, packet, upper);
        match first >> 4 {
            4 => {
                let end = |at: usize| packet.get(at..)?.first_chunk::<4>().copied();
                let fragment = short(6)?;
                let header = usize::from(first & 0xf) * 4;
                let is_first = fragment & 0x1fff == 0;
                Some(Headers {
                    ends: [IpAddr::from(end(12)?), IpAddr::from(end(16)?)],
                    protocol: packet[9],
                    len: short(2)?,
                    id: u32::from(short(4)?) << 16 | u32::from(fragment),
                    upper: behind(header).filter(|_| is_first && header >= IPV4_HEADER),
                    line: line(IPV4),
                })
            }
            6 => {
                let end = |at: usize| packet.get(at..)?.first_chunk::<16>().copied();
                let protocol = *packet.get(6)?;
                Some(Headers {
                    ends: [IpAddr::from(end(8)?), IpAddr::from(end(24)?)],
                    protocol,
                    len: short(4)?,
                    id: u32::from_be_bytes(*packet.first_chunk()?) & 0xf_ffff,
                    upper: behind(IPV6_HEADER).filter(|_| !EXTENSIONS.contains(&protocol)),
                    line: line(IPV6),
                })
            }
            _ => None,
        }
    }

    /// Whether they are of the same packet, at two places between which nothing was translated.
    pub fn are_those_of(&self, other: &Headers) -> bool {
        let alike = |one: &Headers| (one.ends, one.protocol, one.len, one.id);
        let upper = self.upper.zip(other.upper);
        alike(self) == alike(other) && upper.is_none_or(|(one, other)| one == other)
    }

    /// Whether they may be of the same packet, with other addresses and ports.
    pub fn may_become(&self, other: &Headers) -> bool {
        let alike = |one: &Headers| (one.ends[0].is_ipv4(), one.protocol, one.len, one.id);
        alike(self) == alike(other)
    }

    /// Whether both ends are as in `other`: addresses, and what is behind the header.
    pub fn have_ends_of(&self, other: &Headers) -> bool {
        self.ends == other.ends && self.upper == other.upper
    }

    /// Ends, protocol and TTL in words.
    pub fn line(&self) -> &str {
        &self.line
    }
}

/// Without the link's ends: the packet is not always seen with a link header.
fn line_of(kind: u16, packet: &[u8], upper: Option<&[u8]>) -> String {
    let header = match kind {
        IPV4 => usize::from(packet[0] & 0xf) * 4,
        _ => IPV6_HEADER,
    };
    let mut frame = vec![0; ETHERNET];
    frame[ETHERNET - 2..].copy_from_slice(&kind.to_be_bytes());
    frame.extend(&packet[..packet.len().min(LINE_BYTES)]);
    if let Some(upper) = upper {
        frame.resize(ETHERNET + header, 0);
        frame.extend(upper);
    }
    let line = summary::line(&frame);
    line.split_once(", ").map_or(line.clone(), |(_, behind)| behind.to_owned())
}

const ETHERNET: usize = 14;
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
/// The longest IPv4 header, and ports.
const LINE_BYTES: usize = 64;
/// Hop-by-hop options, routing, fragment, authentication, destination options.
const EXTENSIONS: [u8; 5] = [0, 43, 44, 51, 60];
// linux/if_ether.h.
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLAN: u16 = 0x8100;
const SERVICE_VLAN: u16 = 0x88a8;

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An echo request of this number.
    pub(in crate::trace) fn echo(from: u8, to: u8, number: u8, ttl: u8) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 84, 7, number, 0x40, 0, ttl, 1, 0, 0];
        packet.extend([10, 1, 0, from, 10, 2, 0, to, 8, 0, 0, number, 1, 2, 0, number]);
        packet.resize(84, 0);
        packet
    }

    /// An echo request of IPv6.
    pub(in crate::trace) fn echo_v6(to: u8, number: u8, hops: u8) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, 64, 58, hops];
        for end in [[1, 1], [2, to]] {
            packet.extend([0x20, 1, 0xd, 0xb8, 0, end[0], 0, 0, 0, 0, 0, 0, 0, 0, 0, end[1]]);
        }
        packet.extend([128, 0, 0, number, 1, 2, 0, number]);
        packet.resize(104, 0);
        packet
    }

    pub(in crate::trace) fn frame(packet: &[u8]) -> Vec<u8> {
        let kind = if packet[0] >> 4 == 4 { IPV4 } else { IPV6 };
        [&[2; 12], &kind.to_be_bytes()[..], packet].concat()
    }

    #[test]
    fn a_packet_is_known_again_behind_a_hop_and_another_is_not() {
        let of = |packet: &[u8]| Headers::of_packet(packet, None).expect("it has headers");
        for [first, later, other, elsewhere] in [
            [echo(1, 1, 5, 64), echo(1, 1, 5, 63), echo(1, 1, 6, 64), echo(1, 2, 5, 64)],
            [echo_v6(1, 5, 64), echo_v6(1, 5, 63), echo_v6(1, 6, 64), echo_v6(2, 5, 64)],
        ] {
            let seen = Headers::of_frame(&frame(&first)).expect("it has headers");
            assert!(seen.are_those_of(&of(&later)));
            assert!(!seen.are_those_of(&of(&other)) && !seen.are_those_of(&of(&elsewhere)));
            assert!(seen.may_become(&of(&elsewhere)));
            // As the kernel reports it: the header, and what is behind it.
            let header = if first[0] >> 4 == 4 { 20 } else { 40 };
            let told = Headers::of_packet(&later[..header], Some(&later[header..header + 20]));
            let told = told.expect("it has headers");
            assert!(seen.are_those_of(&told));
            assert!(told.line().ends_with(" 63"), "{}", told.line());
        }
        assert_eq!(of(&echo(1, 1, 5, 64)).line(), "10.1.0.1 > 10.2.0.1 ICMP, TTL 64");
        let line = "2001:db8:1::1 > 2001:db8:2::1 ICMPv6, hop limit 64";
        assert_eq!(of(&echo_v6(1, 5, 64)).line(), line);
    }

    #[test]
    fn options_tags_and_fragments_are_passed_over() {
        let plain = echo(1, 1, 5, 64);
        let mut options = plain.clone();
        options[0] = 0x46;
        options.splice(20..20, [7, 4, 0, 0]);
        let read = Headers::of_packet(&options, None).expect("it has headers");
        assert_eq!(read.upper, Headers::of_packet(&plain, None).expect("it has them").upper);
        let tagged = [&[2; 12][..], &[0x81, 0, 0, 9, 8, 0], &plain].concat();
        assert_eq!(Headers::of_frame(&tagged), Headers::of_packet(&plain, None));
        let mut fragment = plain;
        fragment[7] = 1;
        assert_eq!(Headers::of_packet(&fragment, None).expect("it has headers").upper, None);
    }

    #[test]
    fn what_is_cut_or_no_ip_has_none() {
        let options = [&[0x4f][..], &echo(1, 1, 5, 64)[1..]].concat();
        for packet in [echo(1, 1, 5, 64), echo_v6(1, 5, 64), options] {
            let frame = frame(&packet);
            for len in 0..packet.len() {
                let _ = Headers::of_frame(&frame[..len]);
                let _ = Headers::of_packet(&packet[..len], Some(&packet[..len]));
            }
        }
        assert_eq!(Headers::of_frame(&[&[2; 12][..], &[8, 6], &[0; 46]].concat()), None);
        let tags = [0x81, 0, 0, 9].repeat(4);
        assert_eq!(Headers::of_frame(&[&[2; 12][..], &tags, &[0; 46]].concat()), None);
    }
}
