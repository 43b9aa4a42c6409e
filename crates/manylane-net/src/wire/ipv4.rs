//! IPv4: header, options, and addresses that have no business in a header.
//!
//! Before changing a check read RFC 1812 §5.2.2 (header validation) and §5.3.7 (martian filtering).

mod record_route;

use std::net::Ipv4Addr;

use super::be16;
use super::checksum::Sum;
use super::ip::{Fragment, Transport};
use record_route::RecordingOption;

pub use record_route::write_record_route;

/// A header without options.
pub const HEADER_LEN: usize = 20;

/// A header with as many options as fit.
pub const HEADER_LEN_MAX: usize = 60;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET_MASK: u16 = 0x1fff;

/// A checked packet: version 4, and header and total length fit each other and the bytes
/// (RFC 1812 §5.2.2, tests 1, 3, 4 and 5; test 2 is [`View::has_valid_checksum`]).
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: &'a [u8; HEADER_LEN],
    options: &'a [u8],
    payload: &'a [u8],
    packet: &'a [u8],
}

/// What the options of a packet mean to a forwarder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Options {
    /// No options, or only such as a forwarder may pass on as they are.
    Harmless,
    /// A loose or strict source route: to be dropped (RFC 7126 §4.3 and §4.4).
    SourceRoute,
    /// An option's length is wrong.
    Malformed {
        /// Where, counted from the start of the packet, as ICMP's parameter problem wants it.
        pointer: u8,
    },
}

impl<'a> View<'a> {
    /// The packet in `bytes`, cut to its total length.
    #[inline]
    pub fn checked(bytes: &'a [u8]) -> Option<View<'a>> {
        let header: &[u8; HEADER_LEN] = bytes.first_chunk()?;
        View::cut(header, bytes.get(..be16(header[2], header[3]).into())?)
    }

    /// As [`View::checked`], for a packet of up to `len` bytes whose front is in `bytes`: what the header
    /// counts must be there, and the views of it end where the bytes do.
    #[inline]
    pub fn front(bytes: &'a [u8], len: usize) -> Option<View<'a>> {
        View::quoted(bytes).filter(|view| usize::from(view.total_len()) <= len)
    }

    /// As [`View::checked`], for a packet quoted in an ICMP error: its end may be missing.
    #[inline]
    pub fn quoted(bytes: &'a [u8]) -> Option<View<'a>> {
        let header: &[u8; HEADER_LEN] = bytes.first_chunk()?;
        let total_len = usize::from(be16(header[2], header[3]));
        View::cut(header, bytes.get(..total_len).unwrap_or(bytes))
    }

    #[inline]
    fn cut(header: &'a [u8; HEADER_LEN], packet: &'a [u8]) -> Option<View<'a>> {
        let header_len = usize::from(header[0] & 0x0f) * 4;
        if header[0] >> 4 != 4 {
            return None;
        }
        // `get` refuses a header length below 20 and one beyond the packet.
        let options = packet.get(HEADER_LEN..header_len)?;
        Some(View { header, options, payload: packet.get(header_len..)?, packet })
    }

    /// The whole packet, without what stood behind it.
    #[inline]
    pub fn packet(&self) -> &'a [u8] {
        self.packet
    }

    /// The length of the header with its options.
    #[inline]
    pub fn header_len(&self) -> usize {
        HEADER_LEN + self.options.len()
    }

    /// The total length as the header says.
    #[inline]
    pub fn total_len(&self) -> u16 {
        be16(self.header[2], self.header[3])
    }

    /// Type of service: DSCP and ECN.
    #[inline]
    pub fn tos(&self) -> u8 {
        self.header[1]
    }

    /// What the fragments of one packet have in common.
    #[inline]
    pub fn identification(&self) -> u16 {
        be16(self.header[4], self.header[5])
    }

    /// Whether it must not be fragmented.
    #[inline]
    pub fn dont_fragment(&self) -> bool {
        self.flags_and_offset() & DONT_FRAGMENT != 0
    }

    /// Whether fragments follow this one.
    #[inline]
    pub fn more_fragments(&self) -> bool {
        self.flags_and_offset() & MORE_FRAGMENTS != 0
    }

    /// Where the payload belongs in the packet that was cut, in bytes.
    #[inline]
    pub fn fragment_offset(&self) -> usize {
        usize::from(self.flags_and_offset() & OFFSET_MASK) * 8
    }

    /// Whether it is part of a larger packet.
    #[inline]
    pub fn fragment(&self) -> Fragment {
        match (self.flags_and_offset() & OFFSET_MASK, self.more_fragments()) {
            (0, false) => Fragment::None,
            (0, true) => Fragment::First,
            _ => Fragment::Later,
        }
    }

    /// Time to live.
    #[inline]
    pub fn ttl(&self) -> u8 {
        self.header[8]
    }

    /// What the payload is ([`super::protocol`]).
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.header[9]
    }

    /// The header checksum as it stands.
    #[inline]
    pub fn checksum(&self) -> u16 {
        be16(self.header[10], self.header[11])
    }

    /// Whether the header checksum is right (RFC 1812 §5.2.2, test 2).
    #[inline]
    pub fn has_valid_checksum(&self) -> bool {
        Sum::of(self.header).plus(self.options).is_valid()
    }

    /// The sender.
    #[inline]
    pub fn source(&self) -> Ipv4Addr {
        let [.., a, b, c, d, _, _, _, _] = *self.header;
        Ipv4Addr::new(a, b, c, d)
    }

    /// The receiver.
    #[inline]
    pub fn destination(&self) -> Ipv4Addr {
        let [.., a, b, c, d] = *self.header;
        Ipv4Addr::new(a, b, c, d)
    }

    /// What follows the header and its options.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Where the transport is.
    #[inline]
    pub fn transport(&self) -> Transport {
        Transport {
            protocol: self.protocol(),
            offset: self.header_len(),
            fragment: self.fragment(),
            final_addresses: self.options() == Options::Harmless,
        }
    }

    /// What the options mean. At most 40 steps: they are at most 40 bytes and each step takes one.
    #[inline]
    pub fn options(&self) -> Options {
        // Nearly every packet, without a call.
        if self.options.is_empty() { Options::Harmless } else { walk(self.options) }
    }

    /// The word of the three flags, one reserved, and the fragment offset.
    #[inline]
    pub fn flags_and_offset(&self) -> u16 {
        be16(self.header[6], self.header[7])
    }
}

/// Walks the options (RFC 791 §3.1).
fn walk(options: &[u8]) -> Options {
    const END: u8 = 0;
    const NO_OPERATION: u8 = 1;
    const LOOSE_SOURCE_ROUTE: u8 = 131;
    const STRICT_SOURCE_ROUTE: u8 = 137;

    let mut rest = options;
    while let Some((&kind, behind_kind)) = rest.split_first() {
        let len = match kind {
            END => break,
            NO_OPERATION => 1,
            LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE => return Options::SourceRoute,
            // The length counts kind and length themselves.
            _ => behind_kind.first().copied().filter(|&len| len >= 2).unwrap_or(u8::MAX),
        };
        let pointer = HEADER_LEN + options.len() - rest.len();
        let malformed = |at: usize| Options::Malformed { pointer: (pointer + at) as u8 }; // At most 59.
        let Some((option, behind)) = rest.split_at_checked(len.into()) else { return malformed(0) };
        if let Some(at) = RecordingOption::fault(option) {
            return malformed(at);
        }
        rest = behind;
    }
    Options::Harmless
}

/// A header to be written, without options, of a packet that is no fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Type of service: DSCP and ECN.
    pub tos: u8,
    /// Names the packet, should a router fragment it.
    pub identification: u16,
    /// Whether no router may.
    pub dont_fragment: bool,
    /// Time to live.
    pub ttl: u8,
    /// What the payload is.
    pub protocol: u8,
    /// The sender.
    pub source: Ipv4Addr,
    /// The receiver.
    pub destination: Ipv4Addr,
}

impl Header {
    /// Writes the header of a packet with `payload_len` bytes behind it, checksum included.
    pub fn emit(&self, buf: &mut [u8], payload_len: usize) -> Option<usize> {
        let total_len = u16::try_from(payload_len.checked_add(HEADER_LEN)?).ok()?;
        let header: &mut [u8; HEADER_LEN] = buf.first_chunk_mut()?;
        header[0] = 0x45;
        header[1] = self.tos;
        header[2..4].copy_from_slice(&total_len.to_be_bytes());
        header[4..6].copy_from_slice(&self.identification.to_be_bytes());
        let fragment = if self.dont_fragment { DONT_FRAGMENT } else { 0 };
        header[6..8].copy_from_slice(&fragment.to_be_bytes());
        header[8] = self.ttl;
        header[9] = self.protocol;
        header[10..12].fill(0);
        header[12..16].copy_from_slice(&self.source.octets());
        header[16..].copy_from_slice(&self.destination.octets());
        let checksum = Sum::of(header).finish();
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        Some(HEADER_LEN)
    }
}

/// Whether no host can have sent from this address (RFC 1812 §5.3.7).
///
/// | addresses       | why                                                          |
/// |-----------------|--------------------------------------------------------------|
/// | 0.0.0.0/8       | "this network": only a host that has no address yet uses it  |
/// | 127.0.0.0/8     | loopback, never outside a host (§4.2.2.11 g)                 |
/// | 224.0.0.0/4     | multicast, not a unicast address                             |
/// | 240.0.0.0/4     | class E and the limited broadcast                            |
///
/// The rule is for forwarded or answered packets: DHCP and ARP probes have 0.0.0.0 as source.
#[inline]
pub const fn is_martian_source(address: Ipv4Addr) -> bool {
    matches!(address.octets()[0], 0 | 127 | 224..)
}

/// Whether a packet to this address must not be forwarded anywhere (RFC 1812 §5.3.7).
///
/// | addresses       | why                                          |
/// |-----------------|----------------------------------------------|
/// | 0.0.0.0/8       | network 0 (§4.2.3.1 (2))                     |
/// | 127.0.0.0/8     | loopback, never outside a host               |
/// | 240.0.0.0/4     | class E, without the limited broadcast       |
///
/// Multicast and 255.255.255.255 are *not* martian: they are for this link (§5.2.3, §5.3.5.1) and the
/// caller takes them out before it looks up a route.
#[inline]
pub const fn is_martian_destination(address: Ipv4Addr) -> bool {
    matches!(address.octets()[0], 0 | 127 | 240..) && !address.is_broadcast()
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::super::protocol;
    use super::*;

    const HEADER: Header = Header {
        tos: 0,
        identification: 7,
        dont_fragment: true,
        ttl: 64,
        protocol: protocol::UDP,
        source: Ipv4Addr::new(192, 0, 2, 1),
        destination: Ipv4Addr::new(198, 51, 100, 1),
    };

    #[test]
    fn lengths_that_do_not_fit_are_refused() {
        let good = with_options(&[1, 1, 1, 0], 8);
        assert!(View::checked(&good).is_some());
        for (at, value, what) in [
            (0, 0x66, "version 6"),
            (0, 0x06, "version 0"),
            (0, 0x44, "a header of 16 bytes"),
            (0, 0x4f, "a header longer than the packet"),
            (3, 23, "a total length inside the header"),
            (3, 33, "a total length behind the bytes"),
            (2, 0xff, "a total length far behind the bytes"),
        ] {
            let mut bad = good.clone();
            bad[at] = value;
            assert!(View::checked(&bad).is_none(), "{what}");
        }
        for len in 0..good.len() {
            assert!(View::checked(&good[..len]).is_none(), "cut to {len}");
        }
    }

    #[test]
    fn padding_is_no_payload() {
        let mut bytes = with_options(&[], 4);
        bytes.extend([0xaa; 22]);
        let view = View::checked(&bytes).unwrap();
        assert_eq!(view.payload(), &[0; 4]);
        assert_eq!(view.packet().len(), 24);
    }

    #[test]
    fn a_quoted_packet_may_end_early() {
        let bytes = with_options(&[], 100);
        assert!(View::checked(&bytes[..28]).is_none());
        assert_eq!(View::quoted(&bytes[..28]).unwrap().payload().len(), 8);
        assert!(View::quoted(&bytes[..19]).is_none());
    }

    #[test]
    fn a_flipped_bit_spoils_the_header_checksum() {
        let good = with_options(&[7, 4, 4, 0], 0);
        assert!(View::checked(&good).unwrap().has_valid_checksum());
        for bit in 0..24 * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(View::checked(&bad).is_none_or(|view| !view.has_valid_checksum()), "bit {bit}");
        }
    }

    #[test]
    fn source_routes_and_broken_options_are_found() {
        use Options::{Harmless, Malformed, SourceRoute};
        for (options, expected) in [
            (&[][..], Harmless),
            (&[1, 1, 1, 0], Harmless),
            (&[0, 131, 3, 4], Harmless), // Behind the end of the list nothing counts.
            (&[148, 4, 0, 0], Harmless), // Router alert.
            (&[7, 7, 4, 0, 0, 0, 0, 0], Harmless),
            (&[131, 7, 4, 1, 2, 3, 4, 0], SourceRoute),
            (&[137, 7, 4, 1, 2, 3, 4, 0], SourceRoute),
            (&[1, 131, 0, 0], SourceRoute), // Broken, but what it wants is clear.
            (&[7, 3, 4, 137, 3, 4, 0, 0], SourceRoute),
            (&[7, 0, 0, 0], Malformed { pointer: 20 }),
            (&[7, 1, 0, 0], Malformed { pointer: 20 }),
            (&[7, 5, 0, 0], Malformed { pointer: 20 }),
            (&[1, 7, 4, 0], Malformed { pointer: 21 }),
            (&[1, 1, 1, 7], Malformed { pointer: 23 }),
        ] {
            let bytes = with_options(options, 4);
            assert_eq!(View::checked(&bytes).unwrap().options(), expected, "{options:?}");
        }
    }

    #[test]
    fn fragments_are_told_apart() {
        for (word, fragment, offset) in [
            (0x0000, Fragment::None, 0),
            (0x4000, Fragment::None, 0),
            (0x2000, Fragment::First, 0),
            (0x2001, Fragment::Later, 8),
            (0x1fff, Fragment::Later, 65528),
        ] {
            let mut bytes = with_options(&[], 0);
            bytes[6..8].copy_from_slice(&u16::to_be_bytes(word));
            let view = View::checked(&bytes).unwrap();
            assert_eq!((view.fragment(), view.fragment_offset()), (fragment, offset), "{word:04x}");
            assert_eq!(view.dont_fragment(), word & 0x4000 != 0);
        }
    }

    #[test]
    fn martians_are_those_of_rfc_1812() {
        for (address, source, destination) in [
            ("0.0.0.0", true, true),
            ("0.1.2.3", true, true),
            ("1.0.0.0", false, false),
            ("10.0.0.1", false, false),
            ("126.255.255.255", false, false),
            ("127.0.0.0", true, true),
            ("127.255.255.255", true, true),
            ("128.0.0.1", false, false),
            ("169.254.1.1", false, false),
            ("223.255.255.255", false, false),
            ("224.0.0.1", true, false),
            ("239.255.255.255", true, false),
            ("240.0.0.1", true, true),
            ("255.255.255.254", true, true),
            ("255.255.255.255", true, false),
        ] {
            let parsed: Ipv4Addr = address.parse().unwrap();
            assert_eq!(is_martian_source(parsed), source, "from {address}");
            assert_eq!(is_martian_destination(parsed), destination, "to {address}");
        }
    }

    #[test]
    fn nothing_is_written_where_it_does_not_fit() {
        assert_eq!(HEADER.emit(&mut [0; 19], 0), None);
        assert_eq!(HEADER.emit(&mut [0; 20], 65516), None);
        assert_eq!(HEADER.emit(&mut [0; 20], usize::MAX), None);
        assert_eq!(HEADER.emit(&mut [0; 20], 65515), Some(20));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_was_emitted_is_read_back(
            tos: u8, identification: u16, dont_fragment: bool, ttl: u8, protocol: u8,
            source: [u8; 4], destination: [u8; 4], payload in 0..100usize,
        ) {
            let (source, destination) = (source.into(), destination.into());
            let header = Header { tos, identification, dont_fragment, ttl, protocol, source, destination };
            let mut buf = [0xee; 130];
            prop_assert_eq!(header.emit(&mut buf, payload), Some(20));
            let view = View::checked(&buf).unwrap();
            prop_assert!(view.has_valid_checksum());
            prop_assert_eq!(view.payload().len(), payload);
            prop_assert_eq!(view.total_len(), 20 + payload as u16);
            let read = Header {
                tos: view.tos(),
                identification: view.identification(),
                dont_fragment: view.dont_fragment(),
                ttl: view.ttl(),
                protocol: view.protocol(),
                source: view.source(),
                destination: view.destination(),
            };
            prop_assert_eq!(read, header);
        }

        #[test]
        fn any_bytes_may_be_walked(bytes in prop::collection::vec(any::<u8>(), 0..41)) {
            let _ = walk(&bytes);
        }
    }

    fn with_options(options: &[u8], payload_len: usize) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN];
        HEADER.emit(&mut bytes, options.len() + payload_len).unwrap();
        bytes[0] += (options.len() / 4) as u8;
        bytes[10..12].fill(0);
        bytes.extend(options);
        let checksum = Sum::of(&bytes).finish();
        bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
        bytes.resize(bytes.len() + payload_len, 0);
        bytes
    }
}
