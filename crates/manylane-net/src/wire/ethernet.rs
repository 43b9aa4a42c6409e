//! Ethernet: MAC addresses and the header of 14 bytes.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::{be16, ipv6};

/// Destination, source and ether type.
pub const HEADER_LEN: usize = 14;

/// A VLAN tag: what stands between the source and the ether type proper.
pub const VLAN_TAG_LEN: usize = 4;

/// Ether types (IANA "IEEE 802 Numbers"). Below 0x0600 the field is a length (IEEE 802.3).
pub mod ether_type {
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// ARP.
    pub const ARP: u16 = 0x0806;
    /// A customer VLAN tag, IEEE 802.1Q.
    pub const VLAN: u16 = 0x8100;
    /// IPv6.
    pub const IPV6: u16 = 0x86dd;
    /// A service VLAN tag, IEEE 802.1ad.
    pub const SERVICE_VLAN: u16 = 0x88a8;
    /// An Ethernet frame inside GRE or Geneve ("transparent Ethernet bridging").
    pub const ETHERNET: u16 = 0x6558;
}

/// Whether this ether type announces a VLAN tag, 802.1Q or 802.1ad.
#[inline]
pub const fn is_vlan(ether_type: u16) -> bool {
    matches!(ether_type, ether_type::VLAN | ether_type::SERVICE_VLAN)
}

/// The ether type of a frame, and that behind its tags, up to two: equal without tags.
#[inline]
pub fn ether_type_behind_tags(frame: &[u8]) -> Option<[u16; 2]> {
    let at = |offset: usize| {
        let bytes = frame.get(offset..)?.first_chunk::<2>()?;
        Some(u16::from_be_bytes(*bytes))
    };
    let outer = at(ADDRESSES_LEN)?;
    let mut inner = outer;
    for tags in 1..=TAGS_LEN_MAX / VLAN_TAG_LEN {
        if !is_vlan(inner) {
            break;
        }
        inner = at(ADDRESSES_LEN + tags * VLAN_TAG_LEN)?;
    }
    Some([outer, inner])
}

/// The VLAN tags in front of a packet, outermost first: none, one or two, without priority (IEEE 802.1Q
/// §9.6: twelve bits of the tag say which VLAN).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tags {
    bytes: [u8; TAGS_LEN_MAX],
    len: u8,
}

/// Two tags: a provider's and its customer's (IEEE 802.1ad).
pub const TAGS_LEN_MAX: usize = 2 * VLAN_TAG_LEN;

/// The largest number of a VLAN; 4095 is reserved (IEEE 802.1Q table 9-2).
pub const VLAN_MAX: u16 = 4094;

impl Tags {
    /// No tag.
    pub const NONE: Tags = Tags { bytes: [0; TAGS_LEN_MAX], len: 0 };

    /// These and, behind them, a tag of `ether_type` for `vlan`; `None` with two already.
    #[must_use]
    pub fn and(self, ether_type: u16, vlan: u16) -> Option<Tags> {
        let Tags { mut bytes, len } = self;
        let place: &mut [u8; VLAN_TAG_LEN] = bytes.get_mut(len.into()..)?.first_chunk_mut()?;
        let ([a, b], [c, d]) = (ether_type.to_be_bytes(), (vlan & VLAN_BITS).to_be_bytes());
        *place = [a, b, c, d];
        Some(Tags { bytes, len: len + VLAN_TAG_LEN as u8 })
    }

    /// The first `count` tags of a frame, if it has that many.
    pub fn of(frame: &[u8], count: usize) -> Option<Tags> {
        let tags = frame.get(ADDRESSES_LEN..)?;
        let (tags, _) = tags.split_at_checked(count * VLAN_TAG_LEN)?;
        let (tags, _) = tags.as_chunks::<VLAN_TAG_LEN>();
        tags.iter().try_fold(Tags::NONE, |before, &[a, b, c, d]| {
            let (ether_type, vlan) = (be16(a, b), be16(c, d));
            if is_vlan(ether_type) { before.and(ether_type, vlan) } else { None }
        })
    }

    /// As they stand between the source and the ether type.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len.into()]
    }

    /// Whether the frame has any.
    #[inline]
    pub fn any(&self) -> bool {
        self.len > 0
    }

    /// Whether the first says VLAN 0, which is none: the tag is there for its priority (IEEE 802.1Q §6.9.1).
    #[inline]
    pub fn is_priority(&self) -> bool {
        self.any() && self.bytes[2..VLAN_TAG_LEN] == [0, 0]
    }

    /// How many bytes a link must carry beyond its promise, which is an ordinary frame of its MTU, and that with one
    /// customer tag (IEEE 802.3 §3.2.7; Linux: `VLAN_HLEN`).
    pub fn beyond_mtu(&self) -> u16 {
        let is_promised = self.bytes[..2] == ether_type::VLAN.to_be_bytes();
        u16::from(self.len) - if is_promised { VLAN_TAG_LEN as u16 } else { 0 }
    }
}

impl fmt::Display for Tags {
    /// Outermost first, such as `802.1ad 200, 802.1Q 7`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tags, _) = self.as_bytes().as_chunks::<VLAN_TAG_LEN>();
        for (number, &[a, b, c, d]) in tags.iter().enumerate() {
            let between = if number > 0 { ", " } else { "" };
            let kind = if be16(a, b) == ether_type::VLAN { "802.1Q" } else { "802.1ad" };
            write!(f, "{between}{kind} {}", be16(c, d))?;
        }
        Ok(())
    }
}

/// Of a tag's second half, the bits that number the VLAN; the others are priority and drop eligibility.
const VLAN_BITS: u16 = 0x0fff;

/// The two addresses in front of all tags.
pub const ADDRESSES_LEN: usize = 12;

/// A checked Ethernet frame.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// The frame in `bytes`, if its header is whole.
    #[inline]
    pub fn checked(bytes: &'a [u8]) -> Option<View<'a>> {
        let (header, payload) = bytes.split_first_chunk()?;
        Some(View { header, payload })
    }

    /// The station it is for.
    #[inline]
    pub fn destination(&self) -> Mac {
        let [a, b, c, d, e, f, ..] = *self.header;
        Mac([a, b, c, d, e, f])
    }

    /// The station it is from.
    #[inline]
    pub fn source(&self) -> Mac {
        let [_, _, _, _, _, _, a, b, c, d, e, f, ..] = *self.header;
        Mac([a, b, c, d, e, f])
    }

    /// What the payload is.
    #[inline]
    pub fn ether_type(&self) -> u16 {
        be16(self.header[12], self.header[13])
    }

    /// What follows the header, padding included.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// Writes a header.
#[inline]
pub fn emit(buf: &mut [u8], destination: Mac, source: Mac, ether_type: u16) -> Option<usize> {
    let header: &mut [u8; HEADER_LEN] = buf.first_chunk_mut()?;
    header[..6].copy_from_slice(&destination.0);
    header[6..12].copy_from_slice(&source.0);
    header[12..].copy_from_slice(&ether_type.to_be_bytes());
    Some(HEADER_LEN)
}

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Every station on the link.
    pub const BROADCAST: Mac = Mac([0xff; 6]);

    /// No station: what an ARP request has where it does not know the address.
    pub const UNSPECIFIED: Mac = Mac([0; 6]);

    /// The group address of an IPv4 multicast packet: 01:00:5e and the low 23 bits (RFC 1112 §6.4).
    pub const fn ipv4_multicast(group: Ipv4Addr) -> Mac {
        let [_, b, c, d] = group.octets();
        Mac([0x01, 0x00, 0x5e, b & 0x7f, c, d])
    }

    /// The group address of an IPv6 multicast packet: 33:33 and the low 32 bits (RFC 2464 §7).
    pub const fn ipv6_multicast(group: Ipv6Addr) -> Mac {
        let [.., a, b, c, d] = group.octets();
        Mac([0x33, 0x33, a, b, c, d])
    }

    /// Where a solicitation for `target` goes: the MAC of its solicited-node group (RFC 4291 §2.7.1).
    pub const fn solicited_node(target: Ipv6Addr) -> Mac {
        Mac::ipv6_multicast(ipv6::solicited_node(target))
    }

    /// Whether it names a group of stations, broadcast included: the lowest bit of the first byte.
    #[inline]
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether it names every station.
    #[inline]
    pub fn is_broadcast(self) -> bool {
        self == Mac::BROADCAST
    }

    /// Whether it can be one station's own address: no group, and not all zero.
    #[inline]
    pub fn is_station(self) -> bool {
        !self.is_group() && self != Mac::UNSPECIFIED
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<[u8; 6]> for Mac {
    fn from(bytes: [u8; 6]) -> Mac {
        Mac(bytes)
    }
}

impl FromStr for Mac {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Mac, MacError> {
        let count = text.split(':').count();
        if count != 6 {
            return Err(MacError::Parts { text: text.to_owned(), count });
        }
        let mut mac = Mac::UNSPECIFIED;
        for (index, (byte, part)) in mac.0.iter_mut().zip(text.split(':')).enumerate() {
            // The length and the digits are looked at because `from_str_radix` takes "+1".
            let two_digits = part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit());
            *byte = match u8::from_str_radix(part, 16) {
                Ok(byte) if two_digits => byte,
                _ => return Err(MacError::Part { text: text.to_owned(), position: index + 1 }),
            };
        }
        Ok(mac)
    }
}

/// Why a text is not a MAC address.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MacError {
    /// The text has not six parts with colons between them.
    Parts {
        /// What was read.
        text: String,
        /// How many parts it has.
        count: usize,
    },
    /// A part is not two hexadecimal digits.
    Part {
        /// What was read.
        text: String,
        /// Which part, from 1.
        position: usize,
    },
}

impl fmt::Display for MacError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MacError::Parts { text, count } => {
                let parts = if *count == 1 { "part" } else { "parts" };
                write!(f, "\"{text}\" is not a MAC address: {count} {parts} where six belong")?;
            }
            MacError::Part { text, position } => write!(
                f,
                "\"{text}\" is not a MAC address: part {position} is not two hexadecimal digits"
            )?,
        }
        f.write_str("; write it like 02:00:5e:10:00:01")
    }
}

impl std::error::Error for MacError {}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn groups_are_told_from_stations() {
        for (text, group, station) in [
            ("02:00:00:00:00:01", false, true),
            ("00:00:00:00:00:00", false, false),
            ("ff:ff:ff:ff:ff:ff", true, false),
            ("01:00:5e:00:00:01", true, false),
            ("33:33:00:00:00:01", true, false),
        ] {
            let mac: Mac = text.parse().unwrap();
            assert_eq!(mac.is_group(), group, "{mac}");
            assert_eq!(mac.is_station(), station, "{mac}");
            assert_eq!(mac.is_broadcast(), text.starts_with("ff"), "{mac}");
        }
    }

    #[test]
    fn multicast_addresses_map_as_the_rfcs_say() {
        let v4 = |text: &str| Mac::ipv4_multicast(text.parse().unwrap()).to_string();
        assert_eq!(v4("224.0.0.1"), "01:00:5e:00:00:01");
        assert_eq!(v4("239.129.2.3"), "01:00:5e:01:02:03"); // The 24th bit is lost.
        let v6 = |text: &str| Mac::ipv6_multicast(text.parse().unwrap()).to_string();
        assert_eq!(v6("ff02::1"), "33:33:00:00:00:01");
        assert_eq!(v6("ff0e::8765:4321"), "33:33:87:65:43:21");
        let node = Mac::solicited_node("2001:db8::1234:5678".parse().unwrap());
        assert_eq!(node.to_string(), "33:33:ff:34:56:78");
    }

    #[test]
    fn a_wrong_mac_is_explained() {
        for (text, why) in [
            ("", "1 part where six belong"),
            ("02-00-00-00-00-01", "1 part where six belong"),
            ("02:00:00:00:00", "5 parts where six belong"),
            ("02:00:00:00:00:01:02", "7 parts where six belong"),
            ("02:0:00:00:00:01", "part 2 is not two hexadecimal digits"),
            ("02:00:00:00:00:+1", "part 6 is not two hexadecimal digits"),
            ("02:00:00:zz:00:01", "part 4 is not two hexadecimal digits"),
            ("02:00:00:00:00:é", "part 6 is not two hexadecimal digits"),
        ] {
            let error = text.parse::<Mac>().unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            assert!(error.contains("02:00:5e:10:00:01"), "no next step: {error}");
        }
    }

    #[test]
    fn a_short_header_is_no_frame_and_a_short_buffer_takes_none() {
        assert!(View::checked(&[0; 13]).is_none());
        assert!(View::checked(&[0; 14]).is_some_and(|frame| frame.payload().is_empty()));
        assert_eq!(emit(&mut [0; 13], Mac::BROADCAST, Mac::BROADCAST, 0), None);
    }

    #[test]
    fn both_tags_are_recognised() {
        assert!(is_vlan(0x8100) && is_vlan(0x88a8));
        assert!(!is_vlan(ether_type::IPV4) && !is_vlan(ether_type::IPV6));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_mac_survives_text(bytes: [u8; 6]) {
            prop_assert_eq!(Mac(bytes).to_string().parse(), Ok(Mac(bytes)));
        }

        #[test]
        fn what_was_emitted_is_read_back(destination: [u8; 6], source: [u8; 6], ether_type: u16) {
            let mut buf = [0; 20];
            prop_assert_eq!(emit(&mut buf, Mac(destination), Mac(source), ether_type), Some(14));
            let frame = View::checked(&buf).unwrap();
            prop_assert_eq!(frame.destination(), Mac(destination));
            prop_assert_eq!(frame.source(), Mac(source));
            prop_assert_eq!(frame.ether_type(), ether_type);
            prop_assert_eq!(frame.payload(), &[0; 6]);
        }
    }

    #[test]
    fn tags_are_read_as_they_stand_without_priority() {
        let outer = Tags::NONE.and(ether_type::SERVICE_VLAN, 7).unwrap();
        let both = outer.and(ether_type::VLAN, 4094).unwrap();
        assert_eq!(both.as_bytes(), [0x88, 0xa8, 0, 7, 0x81, 0, 0x0f, 0xfe]);
        assert_eq!(both.and(ether_type::VLAN, 1), None, "a third");
        let frame = [&[2; 12][..], &[0x88, 0xa8, 0xe0, 7, 0x81, 0, 0x1f, 0xfe, 8, 0]].concat();
        assert_eq!(Tags::of(&frame, 0), Some(Tags::NONE));
        assert_eq!(Tags::of(&frame, 1), Some(outer));
        assert_eq!(Tags::of(&frame, 2), Some(both));
        assert_eq!(Tags::of(&frame[4..], 2), None, "one tag, and a packet");
        for len in 0..frame.len() {
            let _ = (Tags::of(&frame[..len], 1), Tags::of(&frame[..len], 2));
        }
        assert_eq!(Tags::of(&frame[..19], 2), None, "cut off");
        assert!(both.any() && !Tags::NONE.any());
        assert_eq!(both.to_string(), "802.1ad 7, 802.1Q 4094");
    }

    #[test]
    fn a_link_promises_room_for_one_customer_tag() {
        let one = |ether_type| Tags::NONE.and(ether_type, 1).unwrap();
        for (tags, beyond) in [
            (Tags::NONE, 0),
            (one(ether_type::VLAN), 0),
            (one(ether_type::SERVICE_VLAN), 4),
            (one(ether_type::VLAN).and(ether_type::VLAN, 2).unwrap(), 4),
            (one(ether_type::SERVICE_VLAN).and(ether_type::VLAN, 2).unwrap(), 8),
        ] {
            assert_eq!(tags.beyond_mtu(), beyond, "{tags:?}");
        }
    }
}
