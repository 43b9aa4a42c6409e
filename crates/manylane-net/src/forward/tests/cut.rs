//! IPv4 packets too large for their egress port.

use manylane_frame::Frame;
use manylane_frame::vocabulary::{Checksum, DropReason, Offload, PortId, QueueId};
use proptest::prelude::*;

use super::super::{AdjacencyState, Origin, PrepareError, Prepared, prepare};
use super::bed::*;
use crate::wire::ipv4;

#[test]
fn a_packet_that_fits_exactly_is_not_cut() {
    let mut bed = Bed::new();
    bed.publish(1, AdjacencyState::Resolved, 1000);
    let fits = V4::udp("198.51.100.9", 972).frame();
    assert_eq!(bed.judge(0, &fits).said, Said::Transmit(1));
    let outcome = bed.judge(0, &V4::udp("198.51.100.9", 973).frame());
    assert_eq!((outcome.said, outcome.origin), (Said::Fragment(1), Origin::Received));
    let view = ipv4::View::checked(&outcome.bytes[14..]).unwrap();
    assert!(view.has_valid_checksum() && view.ttl() == 63);
    assert_eq!(outcome.bytes[..6], station(1).0, "the pieces only have to be cut");
}

/// One byte, one piece, one frame too many: each refusal leaves the frame as it was.
#[test]
fn what_cannot_be_cut_is_handed_back() {
    let mut bed = Bed::new();
    let whole = V4::udp("198.51.100.9", 1000);
    let at_the_end = V4 { fragment: 0x1ff0, ..whole.clone() };
    for (what, packet, mtu, reason) in [
        ("it must not be", V4 { fragment: 0x4000, ..whole.clone() }, 500, DropReason::TooBig),
        ("no payload would fit", whole.clone(), 27, DropReason::TooBig),
        ("nothing would fit", whole.clone(), 0, DropReason::TooBig),
        ("its end is beyond any packet's", at_the_end, 500, DropReason::TooBig),
        ("there are not so many frames", whole, 28, DropReason::NoFrame),
    ] {
        let frame = bed.receive(0, &packet.frame());
        let mut rest: Vec<Frame> = Vec::new();
        if reason == DropReason::NoFrame {
            rest.extend(std::iter::from_fn(|| bed.pool.take()));
            (0..20).for_each(|_| bed.pool.give_back(rest.pop().unwrap()));
        }
        let mut pieces = Vec::new();
        let PrepareError { frame, reason: found } =
            prepare(&mut bed.pool, frame, Offload::NONE, mtu, &mut pieces).expect_err(what);
        assert_eq!((found, pieces.len()), (reason, 0), "{what}");
        assert_eq!(bed.region.bytes(&frame), packet.frame(), "{what}");
        rest.into_iter().for_each(|frame| bed.pool.give_back(frame));
        bed.pool.give_back(frame);
    }
}

/// Not IP, not whole: `prepare` cuts only packets that the rules passed, and refuses all others.
#[test]
fn what_is_no_packet_is_handed_back() {
    let mut bed = Bed::new();
    for bytes in [&[][..], &[0x45; 14], &[0x45; 40]] {
        let frame = bed.receive(0, bytes);
        let mut pieces = Vec::new();
        match prepare(&mut bed.pool, frame, Offload::NONE, 20, &mut pieces) {
            Ok(_) => assert_eq!((pieces.len(), bytes.len() < 35), (1, true), "it is not too large"),
            Err(error) => bed.pool.give_back(error.frame),
        }
        pieces.into_iter().for_each(|piece| bed.pool.give_back(piece));
    }
}

/// Options by their copy flag (RFC 791 §3.1).
fn options() -> impl Strategy<Value = Vec<u8>> {
    let option = prop_oneof![
        Just(vec![1]),
        Just(vec![148, 4, 0, 0]),
        Just(vec![7, 7, 4, 0, 0, 0, 0]),
        Just(vec![130, 3, 9]),
    ];
    prop::collection::vec(option, 0..4).prop_map(|options| {
        let mut options = options.concat();
        options.resize(options.len().next_multiple_of(4), 0);
        options
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pieces_fit_and_make_up_the_packet(
        len in 1..1400usize, mtu in 68..1500u32, options in options(), offset in 0..0x1f00u16, more: bool,
    ) {
        let mut bed = Bed::new();
        let fragment_word = offset | if more { 0x2000 } else { 0 };
        let packet = V4 { options: options.clone(), fragment: fragment_word, ..V4::udp("198.51.100.9", len) };
        let sent = packet.frame();
        let sent_view = ipv4::View::checked(&sent[14..]).unwrap();
        prop_assume!(sent_view.packet().len() > mtu as usize);
        let mut frame = bed.receive(0, &sent);
        bed.region.set_ingress(&mut frame, PortId(2), QueueId(3), Checksum::Valid);
        bed.region.meta_mut(&mut frame).own = more;

        let mut pieces = Vec::new();
        let prepared = prepare(&mut bed.pool, frame, Offload::NONE, mtu, &mut pieces);
        let prepared = prepared.expect("it may be cut");
        prop_assert!(pieces.len() > 1);
        prop_assert_eq!(prepared, Prepared { fragments: pieces.len() as u32 - 1, ..Prepared::default() });
        let copied: Vec<u8> = {
            let mut copied = Vec::new();
            let mut rest = &options[..];
            while let Some(&kind) = rest.first() {
                let len = match kind { 0 => break, 1 => 1, _ => rest[1].into() };
                if kind & 0x80 != 0 {
                    copied.extend_from_slice(&rest[..len]);
                }
                rest = &rest[len..];
            }
            copied.resize(copied.len().next_multiple_of(4), 0);
            copied
        };
        let mut payload = Vec::new();
        for (number, piece) in pieces.iter().enumerate() {
            let bytes = bed.region.bytes(piece);
            let meta = bed.region.meta(piece);
            prop_assert_eq!((meta.ingress, meta.queue, meta.own), (PortId(2), QueueId(3), more));
            prop_assert_eq!(&bytes[..14], &sent[..14]);
            let view = ipv4::View::checked(&bytes[14..]).unwrap();
            prop_assert_eq!(view.packet().len(), bytes.len() - 14);
            prop_assert!(view.packet().len() <= mtu as usize);
            prop_assert!(view.has_valid_checksum() && !view.dont_fragment());
            prop_assert_eq!(view.fragment_offset(), usize::from(offset) * 8 + payload.len());
            let last = number + 1 == pieces.len();
            prop_assert_eq!(view.more_fragments(), more || !last);
            prop_assert_eq!(view.options(), ipv4::Options::Harmless);
            let expected = if number == 0 { &options } else { &copied };
            prop_assert_eq!(&view.packet()[20..view.header_len()], &expected[..]);
            for (a, b) in [(view.identification(), sent_view.identification()), (view.ttl().into(), sent_view.ttl().into())] {
                prop_assert_eq!(a, b);
            }
            prop_assert_eq!((view.source(), view.destination(), view.protocol()), (packet.source, packet.destination, packet.protocol));
            payload.extend_from_slice(view.payload());
        }
        prop_assert_eq!(&payload[..], sent_view.payload());
        pieces.into_iter().for_each(|piece| bed.pool.give_back(piece));
    }
}
