//! What a port claims of segments and checksums, and what the headers say.

use manylane_frame::vocabulary::{Checksum, DropReason, SegmentKind};
use manylane_frame::{Frame, HEADROOM};

use super::super::{AdjacencyState, PrepareError, Turn, prepare};
use super::bed::*;
use super::segments::{CHAINS, EVERYTHING, Large, PARTIAL, Wish, receive};
use crate::wire::checksum::Sum;
use crate::wire::protocol;

/// What a port claims and headers do not say is no reason to guess.
#[test]
fn claims_that_do_not_fit_the_headers_end_the_packet() {
    let good = Wish::tcp(5000, 1000).make();
    let with = |change: &dyn Fn(&mut Large)| {
        let mut large = good.clone();
        change(&mut large);
        large
    };
    for (what, large) in [
        ("no size", with(&|large| large.segments.size = 0)),
        ("a size of one byte", with(&|large| large.segments.size = 1)),
        ("UDP", with(&|large| large.segments.kind = SegmentKind::Udp)),
        ("the other version", with(&|large| large.segments.kind = SegmentKind::Tcp6)),
        ("a header of 16 bytes", with(&|large| large.bytes[large.transport + 12] = 0x40)),
        (
            "a checksum elsewhere",
            with(&|large| large.checksum = Checksum::Partial { start: HEADROOM + 34, offset: 6 }),
        ),
        (
            "a checksum in front",
            with(&|large| large.checksum = Checksum::Partial { start: 10, offset: 16 }),
        ),
        (
            "a fragment",
            with(&|large| {
                large.bytes[20] = 0x20;
                resum(&mut large.bytes[14..]);
            }),
        ),
    ] {
        let mut bed = Bed::with_frames(64, 2048, EVERYTHING);
        let mut frame = receive(&mut bed, &large, 200, 1792);
        let verdict = bed.forwarder.judge(
            &mut Turn { guard: bed.reader.guard(), pool: &mut bed.pool, now_ns: SECOND },
            &mut frame,
        );
        let said = outcome(&bed.region, &frame, &verdict).said;
        assert_eq!(said, Said::Drop(DropReason::OffloadInvalid), "{what}");
        let PrepareError { frame, reason } =
            prepare(&mut bed.pool, frame, CHAINS, 1500, &mut Vec::new()).expect_err(what);
        assert_eq!(reason, DropReason::OffloadInvalid, "{what}");
        bed.pool.give_back(frame);
        assert_eq!(bed.free(), 64, "{what}");
    }
}

/// TCP inside VXLAN, from a stack that leaves cutting to its device: the place of the checksum tells.
#[test]
fn segments_in_a_tunnel_pass_and_are_not_cut() {
    let inner = Wish::tcp(20_000, 1398).make();
    let vxlan = [8, 0, 0, 0, 0, 0, 7, 0];
    let ports = [0x12, 0xb5, 0x12, 0xb5];
    let len = (16 + inner.bytes.len() as u16).to_be_bytes();
    let payload = [&ports[..], &len, &[0, 0], &vxlan, &inner.bytes].concat();
    let outer4 = V4 { payload: payload.clone(), fragment: 0x4000, ..V4::udp("198.51.100.9", 0) };
    let outer6 = V6 { payload, ..V6::udp("2001:db8:b::9", 0) };
    for (bytes, header, slot) in [(outer4.frame(), 20, 1), (outer6.frame(), 40, 5)] {
        let start = HEADROOM + (14 + header + 16 + inner.transport) as u16;
        let checksum = Checksum::Partial { start, offset: 16 };
        let large = Large { bytes, checksum, ..inner.clone() };
        let fits = 1480 + header as u32;
        for (mtu, offload, expected) in [
            (fits, EVERYTHING, Said::Transmit(1)),
            (fits - 1, EVERYTHING, Said::Transmit(0)), // The error.
            (fits, PARTIAL, Said::Prepare(1)),
        ] {
            let mut bed = Bed::with_frames(64, 2048, offload);
            bed.publish(slot, AdjacencyState::Resolved, mtu);
            let mut frame = receive(&mut bed, &large, 200, 1792);
            let verdict = bed.forwarder.judge(
                &mut Turn { guard: bed.reader.guard(), pool: &mut bed.pool, now_ns: SECOND },
                &mut frame,
            );
            assert_eq!(outcome(&bed.region, &frame, &verdict).said, expected);
            if let Said::Prepare(_) = expected {
                let error = prepare(&mut bed.pool, frame, offload, mtu, &mut Vec::new());
                let error = error.expect_err("the tunnel's headers would be wrong");
                assert_eq!(error.reason, DropReason::OffloadInvalid);
                frame = error.frame;
            }
            bed.pool.give_back(frame);
            assert_eq!(bed.free(), 64);
        }
    }
}

/// The headers lie behind, and no frame is free to look at them in: that does not make the claim wrong.
#[test]
fn segments_whose_headers_cannot_be_brought_together_want_a_frame() {
    for is_v6 in [false, true] {
        let mut bed = Bed::with_frames(64, 2048, EVERYTHING);
        let large = Wish { is_v6, options: (10, 10), ..Wish::tcp(5000, 1000) }.make();
        let mut frame = receive(&mut bed, &large, 131, 1792);
        let rest = Vec::from_iter(std::iter::from_fn(|| bed.pool.take()));
        let guard = bed.reader.guard();
        let verdict = bed
            .forwarder
            .judge(&mut Turn { guard, pool: &mut bed.pool, now_ns: SECOND }, &mut frame);
        let said = outcome(&bed.region, &frame, &verdict).said;
        assert_eq!(said, Said::Drop(DropReason::NoFrame), "IPv6: {is_v6}");
        rest.into_iter().for_each(|frame| bed.pool.give_back(frame));
        let verdict = bed
            .forwarder
            .judge(&mut Turn { guard, pool: &mut bed.pool, now_ns: SECOND }, &mut frame);
        assert_eq!(outcome(&bed.region, &frame, &verdict).said, Said::Transmit(1));
        bed.pool.give_back(frame);
        assert_eq!(bed.free(), 64);
    }
}

/// RFC 768: 0 says that the datagram has none, and its pieces have none either.
#[test]
fn datagrams_without_a_checksum_are_cut_without_one() {
    let with = Wish { is_udp: true, is_partial: false, ..Wish::tcp(5000, 1000) }.make();
    let mut without = with.clone();
    without.bytes[with.transport + 6..][..2].fill(0);
    for (large, has_checksum) in [(with, true), (without, false)] {
        for egress in [CHAINS, PARTIAL] {
            let mut bed = Bed::with_frames(64, 2048, egress);
            let frame = receive(&mut bed, &large, 200, 1792);
            let mut pieces = Vec::new();
            let prepared = prepare(&mut bed.pool, frame, egress, 1500, &mut pieces);
            let prepared = prepared.expect("there are frames");
            assert_eq!((prepared.cut, prepared.completed), (4, has_checksum && !egress.checksum));
            for piece in pieces {
                let is_partial = bed.region.meta(&piece).checksum != Checksum::Valid;
                assert_eq!(is_partial, has_checksum && egress.checksum);
                let field = &bed.bytes(&piece)[large.transport + 6..][..2];
                assert_eq!(field != [0, 0], has_checksum);
                bed.pool.give_back(piece);
            }
            assert_eq!(bed.free(), 64);
        }
    }
}

/// With hops of a source route left, the destination in the header is not the one that counts. What a
/// stack has left of the checksum tells all the same; a complete one does not.
#[test]
fn segments_on_a_source_route_are_cut_by_what_their_checksum_tells() {
    let last_hop = "2001:db8:b::77".parse().expect("IPv6");
    let whole = Wish { is_v6: true, ..Wish::tcp(5000, 1000) }.make();
    let mut routing = vec![protocol::TCP, 2, 0, 1, 0, 0, 0, 0]; // RFC 8200 §4.4; one hop left.
    routing.resize(24, 0x20);
    let mut bytes = whole.bytes.clone();
    bytes.splice(54..54, routing);
    bytes[20] = protocol::ROUTING;
    let payload_len = (bytes.len() - 54) as u16;
    bytes[18..20].copy_from_slice(&payload_len.to_be_bytes());
    let transport = whole.transport + 24;
    let source = <[u8; 16]>::try_from(&bytes[22..38]).expect("16 bytes").into();
    let pseudo = |len: usize| Sum::pseudo_v6(source, last_hop, protocol::TCP, len as u32);
    let field = transport + 16;
    let partial = pseudo(bytes.len() - transport).fold();
    bytes[field..field + 2].copy_from_slice(&partial.to_be_bytes());
    let start = HEADROOM + transport as u16;
    for (checksum, is_cut) in
        [(Checksum::Partial { start, offset: 16 }, true), (Checksum::Valid, false)]
    {
        let mut bed = Bed::with_frames(64, 2048, CHAINS);
        let large = Large { bytes: bytes.clone(), transport, checksum, ..whole.clone() };
        let frame = receive(&mut bed, &large, 200, 1792);
        let mut pieces: Vec<Frame> = Vec::new();
        match prepare(&mut bed.pool, frame, CHAINS, 1500, &mut pieces) {
            Ok(prepared) => assert!(is_cut && prepared.cut == 4),
            Err(error) => {
                assert_eq!((is_cut, error.reason), (false, DropReason::OffloadInvalid));
                bed.pool.give_back(error.frame);
            }
        }
        for piece in pieces {
            let segment = &bed.bytes(&piece)[transport..];
            assert!(pseudo(segment.len()).plus(segment).is_valid());
            bed.pool.give_back(piece);
        }
        assert_eq!(bed.free(), 64);
    }
}
