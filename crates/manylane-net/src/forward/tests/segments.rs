//! Packets that stand for several: what they weigh, and what they are cut into. Etherparse reads the
//! pieces and computes their checksums by itself.

use etherparse::{NetHeaders, PacketHeaders, TransportHeader};
use manylane_frame::vocabulary::{
    Checksum, DropReason, Offload, PortId, QueueId, SegmentKind, Segments,
};
use manylane_frame::{Frame, HEADROOM};
use proptest::prelude::*;

use super::super::{AdjacencyState, Origin, Prepared, Turn, prepare};
use super::bed::*;
use crate::wire::checksum::Sum;
use crate::wire::{ip, ipv4, protocol, tcp, udp};

pub const CHAINS: Offload = Offload { frames_max: 64, checksum: false, segments: false };
pub const PARTIAL: Offload = Offload { frames_max: 64, checksum: true, segments: false };
pub const EVERYTHING: Offload = Offload { frames_max: 64, checksum: true, segments: true };

/// A packet of segments as a local stack leaves it to its device.
#[derive(Clone, Debug)]
pub struct Large {
    pub bytes: Vec<u8>,
    /// Where the transport begins, and where its payload does.
    pub transport: usize,
    pub payload: usize,
    pub segments: Segments,
    /// Partial, or complete, as after a receiver's merging.
    pub checksum: Checksum,
}

const SEQUENCE: u32 = 0xffff_f000;
const FLAGS: u8 = tcp::flags::ACK | tcp::flags::PSH | tcp::flags::FIN | tcp::flags::CWR;

/// A TCP header with `options` bytes of options, and data.
fn tcp_payload(options: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; 20 + options];
    bytes[..4].copy_from_slice(&[0x1f, 0x90, 0x9c, 0x40]);
    bytes[4..8].copy_from_slice(&SEQUENCE.to_be_bytes());
    bytes[12..14].copy_from_slice(&[(5 + options / 4) as u8 * 16, FLAGS]);
    bytes[14] = 0xff;
    bytes[20..].fill(1); // No operation.
    bytes.extend((0..len).map(|at| (at * 7 + at / 256) as u8));
    bytes
}

fn udp_payload(len: usize) -> Vec<u8> {
    let mut bytes = vec![0x13, 0x88, 0x13, 0x89, 0, 0, 0, 0];
    bytes[4..6].copy_from_slice(&(8 + len as u16).to_be_bytes());
    bytes.extend((0..len).map(|at| (at * 5 + at / 256) as u8));
    bytes
}

/// What is wanted of a packet.
#[derive(Clone, Debug)]
pub struct Wish {
    pub is_v6: bool,
    pub is_udp: bool,
    /// Words of IP options, or of an IPv6 extension header (0 for none), and of TCP options.
    pub options: (usize, usize),
    pub len: usize,
    pub size: u16,
    pub is_partial: bool,
    pub dont_fragment: bool,
}

impl Wish {
    pub fn tcp(len: usize, size: u16) -> Wish {
        let (is_v6, is_udp, options, is_partial) = (false, false, (0, 3), true);
        Wish { is_v6, is_udp, options, len, size, is_partial, dont_fragment: true }
    }

    pub fn make(&self) -> Large {
        let (ip_words, tcp_words) = self.options;
        let payload =
            if self.is_udp { udp_payload(self.len) } else { tcp_payload(tcp_words * 4, self.len) };
        let protocol = if self.is_udp { protocol::UDP } else { protocol::TCP };
        let field = if self.is_udp { 6 } else { 16 };
        let header = payload.len() - self.len;
        let mut bytes = if self.is_v6 {
            let mut packet = V6 { next_header: protocol, payload, ..V6::udp("2001:db8:b::9", 0) };
            if ip_words > 0 {
                let mut options = vec![protocol, ip_words as u8 - 1, 1, ip_words as u8 * 8 - 4];
                options.resize(ip_words * 8, 0);
                packet.payload.splice(..0, options);
                packet.next_header = protocol::DESTINATION_OPTIONS;
            }
            packet.frame()
        } else {
            let fragment = if self.dont_fragment { 0x4000 } else { 0 };
            let options = vec![1; ip_words * 4];
            V4 { protocol, payload, options, fragment, ..V4::udp("198.51.100.9", 0) }.frame()
        };
        let view = ip::View::checked(&bytes[14..]).expect("a packet");
        let at = view.transport().expect("it has one").offset;
        let (end, transport) = (bytes.len(), 14 + at);
        let pseudo = view.pseudo_header(protocol, end - transport).expect("it fits");
        let word = if self.is_partial {
            pseudo.fold()
        } else {
            udp::or_all_ones(pseudo.plus(&bytes[transport..]).finish())
        };
        bytes[transport + field..][..2].copy_from_slice(&word.to_be_bytes());
        let kind = match (self.is_udp, self.is_v6) {
            (true, _) => SegmentKind::Udp,
            (false, false) => SegmentKind::Tcp4,
            (false, true) => SegmentKind::Tcp6,
        };
        let start = HEADROOM + transport as u16;
        let checksum = match self.is_partial {
            true => Checksum::Partial { start, offset: field as u16 },
            false => Checksum::Valid,
        };
        let segments = Segments { kind, ecn: true, size: self.size };
        Large { payload: transport + header, bytes, transport, segments, checksum }
    }
}

/// In parts of `part_len` bytes, the first of another length.
pub fn receive(bed: &mut Bed, large: &Large, first: usize, step: usize) -> Frame {
    (bed.checksum, bed.segments) = (large.checksum, large.segments);
    let (front, rest) = large.bytes.split_at(first.min(large.bytes.len()));
    let parts: Vec<&[u8]> = std::iter::once(front).chain(rest.chunks(step)).collect();
    bed.receive_parts(0, &parts)
}

/// Everything that is said of segments, of these.
fn assert_segments(large: &Large, pieces: &[Vec<u8>]) {
    let size = usize::from(large.segments.size);
    let data = &large.bytes[large.payload..];
    assert_eq!(pieces.len(), data.len().div_ceil(size).max(1));
    let mut together = Vec::new();
    for (number, bytes) in pieces.iter().enumerate() {
        let is_last = number + 1 == pieces.len();
        assert_eq!(bytes[..14], large.bytes[..14]);
        let parsed = PacketHeaders::from_ethernet_slice(bytes).expect("a piece is a packet");
        let payload = parsed.payload.slice();
        assert!(payload.len() == size || is_last);
        match (parsed.net.as_ref().expect("IP"), ip::View::checked(&large.bytes[14..])) {
            (NetHeaders::Ipv4(header, _), Some(ip::View::V4(was))) => {
                assert_eq!(usize::from(header.total_len), bytes.len() - 14);
                assert_eq!(header.header_checksum, header.calc_header_checksum());
                let identification = was.identification().wrapping_add(number as u16);
                assert_eq!(header.identification, identification);
                assert_eq!(header.options.as_slice(), &was.packet()[20..was.header_len()]);
                assert_eq!(header.dont_fragment, was.dont_fragment());
            }
            (NetHeaders::Ipv6(header, _), Some(ip::View::V6(_))) => {
                assert_eq!(usize::from(header.payload_length), bytes.len() - 54);
                assert_eq!(bytes[54..large.transport], large.bytes[54..large.transport]);
            }
            other => panic!("{other:?}"),
        }
        let (found, expected) = match (parsed.transport.expect("a transport"), parsed.net) {
            (TransportHeader::Tcp(header), net) => {
                let sequence = SEQUENCE.wrapping_add((number * size) as u32);
                assert_eq!(header.sequence_number, sequence);
                assert_eq!((header.fin, header.psh), (is_last, is_last));
                assert_eq!((header.cwr, header.ack, header.syn), (number == 0, true, false));
                let options = large.transport + 20..large.payload;
                assert_eq!(header.options.as_slice(), &large.bytes[options]);
                let sum = match net {
                    Some(NetHeaders::Ipv4(ip, _)) => {
                        header.calc_checksum_ipv4_raw(ip.source, ip.destination, payload)
                    }
                    Some(NetHeaders::Ipv6(ip, _)) => {
                        header.calc_checksum_ipv6_raw(ip.source, ip.destination, payload)
                    }
                    _ => panic!("no IP"),
                };
                (header.checksum, sum)
            }
            (TransportHeader::Udp(header), net) => {
                assert_eq!(usize::from(header.length), 8 + payload.len());
                let sum = match net {
                    Some(NetHeaders::Ipv4(ip, _)) => {
                        header.calc_checksum_ipv4_raw(ip.source, ip.destination, payload)
                    }
                    Some(NetHeaders::Ipv6(ip, _)) => {
                        header.calc_checksum_ipv6_raw(ip.source, ip.destination, payload)
                    }
                    _ => panic!("no IP"),
                };
                (header.checksum, sum)
            }
            other => panic!("{other:?}"),
        };
        // The two zeros: TCP may have either.
        let expected = expected.expect("it is not so long");
        assert_eq!(found, if expected == 0 && found == 0xffff { found } else { expected });
        together.extend_from_slice(payload);
    }
    assert_eq!(together, data);
}

fn wishes() -> impl Strategy<Value = Wish> {
    let len = prop_oneof![0..3000usize, 3000..20_000usize, Just(65_400)];
    let size = prop_oneof![Just(1448u16), 1..9000u16];
    let options = (prop::sample::select(vec![0, 0, 1, 5]), 0..10usize);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (len, size, options, flags).prop_map(|(len, size, options, (is_v6, is_udp, is_partial))| {
        // Not more than the most segments, nor than an IP packet.
        let size = size.max(len.div_ceil(500) as u16);
        let len = len.min(65_535 - 60 - 60);
        Wish { is_v6, is_udp, options, len, size, is_partial, dont_fragment: true }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    /// Wherever the parts end, whether the checksums are left partial or not.
    #[test]
    fn segments_make_up_the_packet(
        wish in wishes(), first in 0..1700usize, step in 1100..1792usize, leaves_partial: bool, own: bool,
    ) {
        let mut bed = Bed::with_frames(2048, 2048, CHAINS);
        let large = wish.make();
        let mut frame = receive(&mut bed, &large, first, step);
        bed.region.meta_mut(&mut frame).own = own;
        bed.region.meta_mut(&mut frame).queue = QueueId(5);
        let mut pieces = Vec::new();
        let egress = if leaves_partial { PARTIAL } else { CHAINS };
        let prepared = prepare(&mut bed.pool, frame, egress, 9500, &mut pieces).expect("there are frames");
        let cut = pieces.len() as u32 - 1;
        prop_assert_eq!(prepared, Prepared { completed: !leaves_partial, cut, ..Prepared::default() });
        let mut finished = Vec::new();
        for piece in pieces {
            let meta = bed.region.meta(&piece);
            prop_assert_eq!((meta.ingress, meta.queue, meta.own), (PortId(0), QueueId(5), own));
            prop_assert!(!meta.segments.any() && !meta.later);
            prop_assert_eq!(meta.frames(), meta.packet_len().div_ceil(1792));
            let is_partial = matches!(meta.checksum, Checksum::Partial { .. });
            prop_assert_eq!(is_partial, leaves_partial);
            let prepared = prepare(&mut bed.pool, piece, CHAINS, 9500, &mut finished).expect("in place");
            prop_assert_eq!(prepared, Prepared { completed: leaves_partial, ..Prepared::default() });
        }
        let bytes: Vec<Vec<u8>> = finished.iter().map(|piece| bed.bytes(piece)).collect();
        assert_segments(&large, &bytes);
        finished.into_iter().for_each(|piece| bed.pool.give_back(piece));
        prop_assert_eq!(bed.free(), 2048);
    }

    /// Any protocol: the two offsets are all that completion needs.
    #[test]
    fn a_partial_checksum_is_completed_wherever_it_is(
        len in 60..5000usize, start in 14..50usize, offset in 0..40usize, cuts in prop::collection::vec(1..1700usize, 1..5), seed: u16,
        head in 0..340u16, frames_max in prop::sample::select(vec![3u8, 64]),
    ) {
        let mut bed = Bed::with_frames(64, 2048, CHAINS);
        let mut bytes: Vec<u8> = (0..len).map(|at| (at as u16).wrapping_mul(seed | 1) as u8).collect();
        let is_inside = start + offset + 2 <= len;
        if is_inside {
            bytes[start + offset..][..2].copy_from_slice(&seed.to_be_bytes());
        }
        bed.checksum = Checksum::Partial { start: head + start as u16, offset: offset as u16 };
        bed.head = head;
        let mut parts = Vec::new();
        let mut rest = &bytes[..];
        for cut in cuts.iter().cycle().take(40) {
            let (part, more) = rest.split_at(rest.len().min(*cut));
            parts.push(part);
            rest = more;
        }
        parts.extend(rest.chunks(1700));
        let frame = bed.receive_parts(0, &parts);
        // Joined first, by an egress port that completes it itself: it is where it was.
        let mut pieces = Vec::new();
        let egress = Offload { frames_max, ..PARTIAL };
        let joined = prepare(&mut bed.pool, frame, egress, 9000, &mut pieces).expect("it fits three");
        prop_assert_eq!(joined, Prepared { joined: parts.len() > frames_max.into(), ..Prepared::default() });
        let frame = pieces.pop().expect("one");
        match prepare(&mut bed.pool, frame, CHAINS, 9000, &mut pieces) {
            Ok(prepared) => {
                prop_assert!(is_inside && prepared.completed);
                let piece = pieces.pop().expect("one");
                let sum = Sum::of(&bytes[start..]).finish();
                bytes[start + offset..][..2].copy_from_slice(&udp::or_all_ones(sum).to_be_bytes());
                prop_assert_eq!(bed.bytes(&piece), bytes);
                prop_assert_eq!(bed.region.meta(&piece).checksum, Checksum::Valid);
                bed.pool.give_back(piece);
            }
            Err(error) => {
                prop_assert!(!is_inside);
                prop_assert_eq!(error.reason, DropReason::OffloadInvalid);
                bed.pool.give_back(error.frame);
            }
        }
    }
}

/// The packet at its egress port: its largest segment counts.
#[test]
fn the_mtu_judges_segments() {
    for (what, wish, mtu, expected) in [
        ("it fits exactly", Wish::tcp(20_000, 1448), 1500, Said::Transmit(1)),
        ("one byte too much", Wish::tcp(20_000, 1449), 1500, Said::Drop(DropReason::TooBig)),
        (
            "but may be cut",
            Wish { dont_fragment: false, ..Wish::tcp(20_000, 1449) },
            1500,
            Said::Fragment(1),
        ),
        ("one short segment", Wish::tcp(100, 1460), 152, Said::Transmit(1)),
        ("IPv6", Wish { is_v6: true, ..Wish::tcp(20_000, 1428) }, 1500, Said::Transmit(1)),
        (
            "IPv6, one byte too much",
            Wish { is_v6: true, ..Wish::tcp(20_000, 1429) },
            1500,
            Said::Drop(DropReason::TooBig),
        ),
        ("UDP", Wish { is_udp: true, ..Wish::tcp(9000, 1472) }, 1500, Said::Transmit(1)),
    ] {
        let mut bed = Bed::with_frames(256, 2048, EVERYTHING);
        let (is_v6, large) = (wish.is_v6, wish.make());
        bed.publish(if is_v6 { 5 } else { 1 }, AdjacencyState::Resolved, mtu);
        let mut frame = receive(&mut bed, &large, 200, 1792);
        let verdict = bed.forwarder.judge(
            &mut Turn { guard: bed.reader.guard(), pool: &mut bed.pool, now_ns: SECOND },
            &mut frame,
        );
        let outcome = outcome(&bed.region, &frame, &verdict);
        match expected {
            Said::Drop(reason) => {
                assert_eq!(outcome.origin, Origin::Error(reason), "{what}");
                assert_eq!(outcome.said, Said::Transmit(0), "{what}");
                let word = if is_v6 { 54 + 4 } else { 34 + 4 };
                let told = u32::from_be_bytes(outcome.bytes[word..word + 4].try_into().unwrap());
                assert_eq!(told, mtu, "{what}");
                // As the kernel does: the whole's length, and a checksum that is still partial.
                let quoted = if is_v6 { 62..82 } else { 42..62 };
                let same = quoted.len();
                assert_eq!(outcome.bytes[quoted], large.bytes[14..14 + same], "{what}");
                let meta = bed.region.meta(&frame);
                assert!(!meta.segments.any() && meta.checksum == Checksum::Valid && meta.own);
            }
            said => assert_eq!(outcome.said, said, "{what}"),
        }
        bed.pool.give_back(frame);
        assert_eq!(bed.free(), 256, "{what}");
    }
}

/// A single frame can stand for several packets, too: the ordinary way must not take it for one.
#[test]
fn a_small_packet_of_segments_is_an_exception() {
    for (offload, expected) in
        [(EVERYTHING, Said::Transmit(1)), (PARTIAL, Said::Prepare(1)), (CHAINS, Said::Prepare(1))]
    {
        for is_partial in [true, false] {
            let mut bed = Bed::with_frames(64, 2048, offload);
            let large = Wish { is_partial, ..Wish::tcp(900, 300) }.make();
            (bed.checksum, bed.segments) = (large.checksum, large.segments);
            assert_eq!(bed.judge(0, &large.bytes).said, expected);
            bed.segments = Segments::NONE;
            let takes = offload.checksum || !is_partial;
            let expected = if takes { Said::Transmit(1) } else { Said::Prepare(1) };
            assert_eq!(bed.judge(0, &large.bytes).said, expected);
        }
    }
}

#[test]
fn segments_need_all_their_frames_or_none() {
    let mut bed = Bed::with_frames(64, 2048, CHAINS);
    let large = Wish::tcp(40_000, 1448).make();
    let frame = receive(&mut bed, &large, 200, 1792);
    let free = bed.free();
    assert!(free > 28);
    let mut rest: Vec<Frame> = std::iter::from_fn(|| bed.pool.take()).collect();
    (0..27).for_each(|_| bed.pool.give_back(rest.pop().expect("there are more")));
    let mut pieces = Vec::new();
    let error =
        prepare(&mut bed.pool, frame, CHAINS, 1500, &mut pieces).expect_err("28 are needed");
    assert_eq!((error.reason, pieces.len()), (DropReason::NoFrame, 0));
    assert_eq!(bed.bytes(&error.frame), large.bytes);
    bed.pool.give_back(rest.pop().expect("there are more"));
    prepare(&mut bed.pool, error.frame, CHAINS, 1500, &mut pieces).expect("28 there are");
    assert_eq!(pieces.len(), 28);
    pieces.into_iter().chain(rest).for_each(|frame| bed.pool.give_back(frame));
    assert_eq!(bed.free(), 64);
}

/// A segment that needs more frames than the egress port takes.
#[test]
fn segments_too_long_for_the_exit_end_the_packet() {
    let mut bed = Bed::with_frames(64, 2048, CHAINS);
    let large = Wish::tcp(20_000, 8000).make();
    for (frames_max, fits) in [(5, true), (4, false)] {
        let frame = receive(&mut bed, &large, 200, 1792);
        let egress = Offload { frames_max, ..CHAINS };
        let mut pieces = Vec::new();
        match prepare(&mut bed.pool, frame, egress, 9000, &mut pieces) {
            Ok(prepared) => assert!(fits && prepared.cut == 2),
            Err(error) => {
                assert_eq!((fits, error.reason), (false, DropReason::TooManyFragments));
                bed.pool.give_back(error.frame);
            }
        }
        pieces.into_iter().for_each(|piece| bed.pool.give_back(piece));
    }
}

/// An egress port that takes segments, but in fewer frames: joined if that will do, else cut.
#[test]
fn an_exit_for_segments_gets_them_whole_if_it_can() {
    let mut bed = Bed::with_frames(256, 2048, EVERYTHING);
    let large = Wish::tcp(20_000, 1448).make();
    for (frames_max, pieces_expected, joined) in [(64, 1, false), (12, 1, true), (11, 14, false)] {
        let frame = receive(&mut bed, &large, 200, 700);
        let egress = Offload { frames_max, ..EVERYTHING };
        let mut pieces = Vec::new();
        let prepared =
            prepare(&mut bed.pool, frame, egress, 1500, &mut pieces).expect("there are frames");
        assert_eq!((pieces.len(), prepared.joined), (pieces_expected, joined), "{frames_max}");
        if let [piece] = &pieces[..] {
            let meta = bed.region.meta(piece);
            assert_eq!((meta.segments, meta.checksum), (large.segments, large.checksum));
            assert_eq!(bed.bytes(piece), large.bytes);
        }
        pieces.into_iter().for_each(|piece| bed.pool.give_back(piece));
        assert_eq!(bed.free(), 256);
    }
}

/// The last is short enough for the link, but not for one frame.
#[test]
fn a_last_segment_too_long_for_the_exit_ends_the_packet() {
    let mut bed = Bed::with_frames(64, 2048, CHAINS);
    for (last, fits) in [(1726, true), (1727, false)] {
        let wish = Wish { dont_fragment: false, ..Wish::tcp(1800 + last, 1800) };
        let frame = receive(&mut bed, &wish.make(), 200, 1792);
        let mut pieces = Vec::new();
        match prepare(&mut bed.pool, frame, Offload::NONE, 1779, &mut pieces) {
            Ok(prepared) => assert!(fits && (prepared.cut, prepared.fragments) == (1, 1)),
            Err(error) => {
                assert_eq!((fits, error.reason), (false, DropReason::TooManyFragments));
                bed.pool.give_back(error.frame);
            }
        }
        assert_eq!(pieces.len(), if fits { 3 } else { 0 });
        pieces.into_iter().for_each(|piece| bed.pool.give_back(piece));
        assert_eq!(bed.free(), 64);
    }
}

/// Segments that are too large still, and may be cut: each by itself, in order.
#[test]
fn a_segment_too_large_for_the_exit_is_fragmented() {
    let mut bed = Bed::with_frames(256, 2048, CHAINS);
    let wish = Wish { dont_fragment: false, ..Wish::tcp(5000, 1448) };
    let large = wish.make();
    let frame = receive(&mut bed, &large, 200, 1792);
    let mut pieces = Vec::new();
    let prepared = prepare(&mut bed.pool, frame, CHAINS, 1000, &mut pieces).expect("it may be cut");
    let expected = Prepared { completed: true, cut: 3, fragments: 3, joined: false };
    assert_eq!((prepared, pieces.len()), (expected, 7));
    let mut segments: Vec<Vec<u8>> = Vec::new();
    for piece in pieces {
        let bytes = bed.bytes(&piece);
        let view = ipv4::View::checked(&bytes[14..]).expect("a packet");
        assert!(view.has_valid_checksum() && view.total_len() <= 1000);
        if view.fragment_offset() == 0 {
            segments.push(bytes[..14 + 20].to_vec());
        }
        let segment = segments.last_mut().expect("a first fragment is first");
        assert_eq!(view.fragment_offset(), segment.len() - 34);
        segment.extend_from_slice(view.payload());
        if !view.more_fragments() {
            let total_len = segment.len() as u16 - 14;
            segment[16..18].copy_from_slice(&total_len.to_be_bytes());
            segment[20..22].fill(0);
            resum(&mut segment[14..]);
        }
        bed.pool.give_back(piece);
    }
    assert_segments(&large, &segments);
    assert_eq!(bed.free(), 256);

    // Enough for the segments, and not for all of their fragments.
    let frame = receive(&mut bed, &large, 200, 1792);
    let mut rest: Vec<Frame> = std::iter::from_fn(|| bed.pool.take()).collect();
    (0..6).for_each(|_| bed.pool.give_back(rest.pop().expect("there are more")));
    let mut pieces = Vec::new();
    let error = prepare(&mut bed.pool, frame, CHAINS, 1000, &mut pieces).expect_err("7 are needed");
    assert_eq!((error.reason, pieces.len()), (DropReason::NoFrame, 0));
    assert_eq!(bed.bytes(&error.frame), large.bytes);
    rest.push(error.frame);
    rest.into_iter().for_each(|frame| bed.pool.give_back(frame));
    assert_eq!(bed.free(), 256);
}
