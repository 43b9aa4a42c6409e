//! Packets in several frames against the same in one: each gets the same verdict and the same bytes.

use manylane_frame::Frame;
use manylane_frame::vocabulary::{Checksum, DropReason, Offload};
use proptest::prelude::*;

use super::super::{AdjacencyState, Origin, Prepared, Turn, Verdicts, prepare};
use super::bed::*;
use super::sorting::{TARGETS4, TARGETS6};
use crate::wire::{icmp, icmpv6, ip, ipv4, protocol};

const CHAINS: Offload = Offload { frames_max: 64, checksum: false, segments: false };

/// Two routers alike but for the size of their frames, behind links of 3900 bytes.
fn twins(offload: Offload) -> (Bed, Bed) {
    let bed = |frame_size| {
        let mut bed = Bed::with_frames(256, frame_size, offload);
        for slot in [0, 1, 4, 5] {
            bed.publish(slot, AdjacencyState::Resolved, 3900);
        }
        bed.publish(2, AdjacencyState::ResolvedReport, 600);
        bed.publish(6, AdjacencyState::ResolvedReport, 1280);
        bed
    };
    (bed(2048), bed(4096))
}

/// Where a packet is cut in parts: at most seven, of no more than fit in a frame.
fn parts(bytes: &[u8], cuts: &[usize]) -> Vec<Vec<u8>> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    let parts = cuts.windows(2).map(|ends| &bytes[ends[0]..ends[1]]);
    parts
        .flat_map(|part| if part.is_empty() { vec![part] } else { part.chunks(1700).collect() })
        .map(<[u8]>::to_vec)
        .collect()
}

/// A packet's way through: what was said, what the pieces are that leave, what is reported.
fn way(bed: &mut Bed, parts: &[Vec<u8>]) -> (Said, Origin, Vec<Vec<u8>>, bool, u64) {
    let before = bed.free();
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let packet = bed.receive_parts(0, &parts);
    let mut batch = manylane_frame::Batch::new();
    batch.push(packet).expect("it is empty");
    let (guard, received) = (bed.reader.guard(), parts.concat().len() as u64);
    let mut verdicts = Verdicts::new();
    bed.forwarder.forward(
        &mut Turn { guard, pool: &mut bed.pool, now_ns: 10 * SECOND },
        &mut batch,
        &mut verdicts,
    );
    assert_eq!(verdicts.bytes(), received);
    let frame = batch.pop().expect("it is still there");
    let outcome = outcome(&bed.region, &frame, &verdicts.list()[0]);
    let unknown = bed.forwarder.inner_checksum_unknown();
    // Whatever a port takes, this is what it would be where nothing but chains is taken.
    let (said, pieces) = match outcome.said {
        Said::Transmit(port) | Said::Prepare(port) | Said::Fragment(port) => {
            let mtu = match port {
                2 if outcome.bytes[12] == 8 => 600,
                2 => 1280,
                _ => 3900,
            };
            let said = match outcome.said {
                Said::Prepare(_) => Said::Transmit(port),
                said => said,
            };
            let mut pieces = Vec::new();
            let prepared = prepare(&mut bed.pool, frame, CHAINS, mtu, &mut pieces);
            let said = match prepared {
                Ok(_) => said,
                Err(error) => {
                    bed.pool.give_back(error.frame);
                    Said::Drop(error.reason)
                }
            };
            let bytes = pieces.iter().map(|piece| bed.bytes(piece)).collect();
            pieces.into_iter().for_each(|piece| bed.pool.give_back(piece));
            (said, bytes)
        }
        said => {
            bed.pool.give_back(frame);
            // What is dropped may be as it was received, or on its way to be something else.
            let is_kept = matches!(said, Said::Hold(_) | Said::Glean(_));
            (said, if is_kept { vec![outcome.bytes] } else { Vec::new() })
        }
    };
    assert_eq!(bed.free(), before, "{said:?}");
    (said, outcome.origin, pieces, outcome.own, unknown)
}

fn packets() -> impl Strategy<Value = Vec<u8>> {
    let ttl = prop::sample::select(vec![0, 1, 2, 64, 64, 64]);
    let len = prop_oneof![0..200usize, 1500..3400usize];
    let options = prop::sample::select(vec![
        vec![],
        vec![148, 4, 0, 0],
        vec![7, 39, 4].into_iter().chain([0; 37]).collect(),
        vec![131, 3, 4, 0],
        vec![7, 50, 4, 0],
    ]);
    let echo = prop_oneof![4 => Just(None), 1 => Just(Some(8u8)), 1 => Just(Some(3))];
    let v4 =
        (0..TARGETS4.len(), 0..TARGETS4.len(), ttl.clone(), len.clone(), 0..3u16, options, echo)
            .prop_map(|(to, from, ttl, len, flags, options, echo)| {
                let data = vec![0x5a; len];
                let packet = match echo {
                    Some(kind) => V4::icmp(TARGETS4[to], kind, 0, 7, &data),
                    None => V4::udp(TARGETS4[to], len),
                };
                let source = TARGETS4[from].parse().expect("IPv4");
                let fragment = flags << 14;
                V4 { source, ttl, fragment, options, ..packet }.frame()
            });
    let echo = prop_oneof![4 => Just(None), 1 => Just(Some(128u8)), 1 => Just(Some(1))];
    let extension = prop::sample::select(vec![0, 0, 0, 1, 8, 30]);
    let v6 = (0..TARGETS6.len(), 0..TARGETS6.len(), ttl, len, extension, echo).prop_map(
        |(to, from, hop_limit, len, words, echo)| {
            let data = vec![0xa5; len];
            let mut packet = match echo {
                Some(kind) => V6::icmp(TARGETS6[from], TARGETS6[to], kind, 0, &data),
                None => V6 {
                    source: TARGETS6[from].parse().expect("IPv6"),
                    ..V6::udp(TARGETS6[to], len)
                },
            };
            if words > 0 {
                let mut options = vec![packet.next_header, words - 1, 1, words * 8 - 4];
                options.resize(usize::from(words) * 8, 0);
                packet.payload.splice(..0, options);
                packet.next_header = protocol::DESTINATION_OPTIONS;
            }
            V6 { hop_limit, ..packet }.frame()
        },
    );
    // At most one byte is wrong, most often in a header; and the packet may end early or be padded.
    let damage = prop::option::weighted(0.3, (0..80usize, any::<u8>()));
    let cut = prop_oneof![6 => Just(0i32), 2 => 1..20i32, 2 => -60..0i32];
    (prop_oneof![v4, v6], damage, cut, any::<bool>()).prop_map(
        |(mut frame, damage, cut, resummed)| {
            if let Some((at, byte)) = damage
                && let Some(place) = frame.get_mut(at)
            {
                *place = byte;
            }
            // A right checksum gets a damaged header further.
            if resummed && (0x45..=0x4f).contains(&frame[14]) && frame.len() >= 74 {
                resum(&mut frame[14..]);
            }
            frame.resize(frame.len().saturating_add_signed(cut as isize), 0);
            frame
        },
    )
}

/// Whether what the rules look at fits in a frame of 2048 bytes: what does not is not looked for, and the
/// larger frames of the other router have it. Only a damaged length says so.
fn has_headers_in_one_frame(bytes: &[u8]) -> bool {
    let transport = bytes.get(14..).and_then(ip::View::checked).and_then(|view| view.transport());
    transport.is_none_or(|transport| 14 + transport.offset + 8 <= 1792)
}

/// Leaves the checksum of a UDP datagram to a device, if it is one.
fn leave_partial(bytes: &mut [u8]) {
    let Some(view) = bytes.get(14..).and_then(ip::View::checked) else { return };
    let Some(transport) = view.transport() else { return };
    let len = view.packet_len() - transport.offset;
    let pseudo = view.pseudo_header(protocol::UDP, len).expect("it is a packet's length");
    if let (protocol::UDP, Some(field)) =
        (transport.protocol, bytes.get_mut(14 + transport.offset + 6..14 + transport.offset + 8))
    {
        field.copy_from_slice(&pseudo.fold().to_be_bytes());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_packet_in_parts_goes_the_way_of_the_whole(
        bytes in packets(), cuts in prop::collection::vec(any::<usize>(), 0..5), checksum in 0..4, takes: bool, head in 48..340u16,
    ) {
        prop_assume!(has_headers_in_one_frame(&bytes));
        let (mut parted, mut whole) = twins(Offload { checksum: takes, ..CHAINS });
        let mut bytes = bytes;
        // What is partial is so wherever the packet is; what it says is not looked at.
        let checksum = match checksum {
            0 => Checksum::Valid,
            1 => Checksum::Unknown,
            2 => {
                leave_partial(&mut bytes);
                Checksum::Unknown
            }
            _ => Checksum::Partial { start: manylane_frame::HEADROOM + 34, offset: 6 },
        };
        let is_ipv4_udp = bytes.get(12..15) == Some(&[8, 0, 0x45]) && bytes.get(23) == Some(&17);
        let is_said = is_ipv4_udp || !matches!(checksum, Checksum::Partial { .. });
        let checksum = if is_said { checksum } else { Checksum::Valid };
        (parted.checksum, whole.checksum) = (checksum, checksum);
        parted.head = head;
        if let Checksum::Partial { start, .. } = &mut parted.checksum {
            *start = head + 34;
        }
        let parts = parts(&bytes, &cuts);
        let in_parts = way(&mut parted, &parts);
        prop_assert_eq!(in_parts, way(&mut whole, &[bytes]));
        prop_assert_eq!(parted.events(), whole.events());
    }
}

/// Extension headers that reach far beyond the first frame's bytes, cut anywhere; the bytes behind them decide whether
/// an error is answered.
#[test]
fn long_extension_headers_are_brought_together() {
    for (kind, first) in [(1, 129), (1, 700), (128, 129), (128, 700), (128, 1700)] {
        let source = TARGETS6[0];
        let mut packet = V6::icmp(source, TARGETS6[1], kind, 0, &[0xa5; 600]);
        let words = 206u8;
        let mut options = vec![packet.next_header, words - 1, 1, 0];
        options.resize(usize::from(words) * 8, 0);
        packet.payload.splice(..0, options);
        packet.next_header = protocol::DESTINATION_OPTIONS;
        let bytes = V6 { hop_limit: 1, ..packet }.frame();
        let (mut parted, mut whole) = twins(CHAINS);
        let (front, back) = bytes.split_at(first);
        let mut cut = vec![front.to_vec()];
        cut.extend(back.chunks(1700).map(<[u8]>::to_vec));
        let in_parts = way(&mut parted, &cut);
        assert_eq!(in_parts, way(&mut whole, &[bytes]), "kind {kind}, {first} bytes first");
    }
}

/// A large packet, in the frames a device makes of it.
fn jumbo(bed: &mut Bed, bytes: &[u8]) -> Frame {
    let parts: Vec<&[u8]> = bytes.chunks(1792).collect();
    bed.receive_parts(0, &parts)
}

fn large() -> Bed {
    let mut bed = Bed::with_frames(256, 2048, CHAINS);
    (0..7).filter(|slot| slot % 4 != 3).for_each(|slot| {
        bed.publish(slot, AdjacencyState::Resolved, 65_535);
    });
    bed
}

#[test]
fn a_ping_of_any_size_is_answered_where_it_lies() {
    for len in [1800, 8972, 60_000] {
        let mut bed = large();
        let data: Vec<u8> = (0..len).map(|at| at as u8).collect();
        let v4 = V4::icmp("10.0.0.1", icmp::kind::ECHO_REQUEST, 0, 9, &data);
        let v6 = V6::icmp("2001:db8:a::7", "2001:db8::1", icmpv6::kind::ECHO_REQUEST, 0, &data);
        for request in [v4.frame(), v6.frame()] {
            let mut frame = jumbo(&mut bed, &request);
            let frames = bed.region.meta(&frame).frames();
            let free = bed.free();
            let guard = bed.reader.guard();
            let verdict = bed
                .forwarder
                .judge(&mut Turn { guard, pool: &mut bed.pool, now_ns: SECOND }, &mut frame);
            let outcome = outcome(&bed.region, &frame, &verdict);
            assert_eq!((outcome.said, outcome.origin), (Said::Transmit(0), Origin::Reply), "{len}");
            assert_eq!((bed.region.meta(&frame).frames(), bed.free()), (frames, free));
            let message = if request[12] == 8 { 34 } else { 54 };
            assert_eq!(outcome.bytes[message + 4..], request[message + 4..]);
            let parsed = etherparse::PacketHeaders::from_ethernet_slice(&outcome.bytes).unwrap();
            match parsed.transport.unwrap() {
                etherparse::TransportHeader::Icmpv4(reply) => {
                    assert_eq!(
                        reply.checksum,
                        reply.icmp_type.calc_checksum(parsed.payload.slice())
                    );
                }
                etherparse::TransportHeader::Icmpv6(reply) => {
                    let etherparse::NetHeaders::Ipv6(ip, _) = parsed.net.unwrap() else { panic!() };
                    let sum = reply.icmp_type.calc_checksum(
                        ip.source,
                        ip.destination,
                        parsed.payload.slice(),
                    );
                    assert_eq!(reply.checksum, sum.unwrap());
                }
                other => panic!("{other:?}"),
            }
            bed.pool.give_back(frame);
        }
    }
}

/// A damaged byte anywhere in the frames that follow is found.
#[test]
fn a_damaged_jumbo_ping_is_not_answered() {
    let mut bed = large();
    let mut request = V4::icmp("10.0.0.1", icmp::kind::ECHO_REQUEST, 0, 9, &[7; 8972]).frame();
    request[9000] ^= 1;
    let mut frame = jumbo(&mut bed, &request);
    let verdict = bed.forwarder.judge(
        &mut Turn { guard: bed.reader.guard(), pool: &mut bed.pool, now_ns: SECOND },
        &mut frame,
    );
    assert_eq!(outcome(&bed.region, &frame, &verdict).said, Said::Drop(DropReason::LocalInvalid));
    bed.pool.give_back(frame);
}

/// An error about a packet in frames of 128 bytes quotes as much as about any other.
#[test]
fn an_error_quotes_from_as_many_frames_as_it_takes() {
    let mut bed = large();
    let v4 = V4 { ttl: 1, ..V4::udp("198.51.100.9", 4000) }.frame();
    let v6 = V6 { hop_limit: 1, ..V6::udp("2001:db8:b::9", 4000) }.frame();
    for (request, quoted, behind) in [(v4, 548, 14 + 28), (v6, 1232, 14 + 48)] {
        let parts: Vec<&[u8]> = request.chunks(128).collect();
        let mut frame = bed.receive_parts(0, &parts);
        let verdict = bed.forwarder.judge(
            &mut Turn { guard: bed.reader.guard(), pool: &mut bed.pool, now_ns: SECOND },
            &mut frame,
        );
        let outcome = outcome(&bed.region, &frame, &verdict);
        assert_eq!(outcome.origin, Origin::Error(DropReason::HopLimitExceeded));
        assert_eq!(outcome.bytes[behind..], request[14..14 + quoted]);
        assert!(!frame.is_chained());
        bed.pool.give_back(frame);
        assert_eq!(bed.free(), 256);
    }
}

/// The rules want to look, and no frame is free to bring the headers together in.
#[test]
fn headers_that_cannot_be_brought_together_end_the_packet() {
    let mut bed = large();
    let request = V4::udp("198.51.100.9", 100).frame();
    let mut frame = bed.receive_parts(0, &[&request[..20], &request[20..]]);
    let rest = Vec::from_iter(std::iter::from_fn(|| bed.pool.take()));
    let guard = bed.reader.guard();
    let verdict =
        bed.forwarder.judge(&mut Turn { guard, pool: &mut bed.pool, now_ns: SECOND }, &mut frame);
    let said = outcome(&bed.region, &frame, &verdict).said;
    assert_eq!(said, Said::Drop(DropReason::NoFrame));
    assert_eq!(bed.bytes(&frame), request, "and it is as it was");
    rest.into_iter().for_each(|frame| bed.pool.give_back(frame));
    bed.pool.give_back(frame);
}

#[test]
fn a_chain_too_long_for_its_exit_is_joined_or_ends() {
    let mut bed = large();
    let request = V4::udp("198.51.100.9", 4000).frame();
    let parts: Vec<&[u8]> = request.chunks(500).collect();
    for (frames_max, expected) in [(9, Some(9)), (8, Some(3)), (3, Some(3)), (2, None), (1, None)] {
        let frame = bed.receive_parts(0, &parts);
        let mut pieces = Vec::new();
        let egress = Offload { frames_max, ..Offload::NONE };
        match (prepare(&mut bed.pool, frame, egress, 9000, &mut pieces), expected) {
            (Ok(prepared), Some(frames)) => {
                let joined = frames < 9;
                assert_eq!(prepared, Prepared { joined, ..Prepared::default() });
                let piece = pieces.pop().expect("one");
                assert_eq!(
                    (bed.region.meta(&piece).frames(), bed.bytes(&piece)),
                    (frames, request.clone())
                );
                bed.pool.give_back(piece);
            }
            (Err(error), None) => {
                assert_eq!(error.reason, DropReason::TooManyFragments);
                bed.pool.give_back(error.frame);
            }
            (other, _) => panic!("{frames_max}: {other:?}"),
        }
        assert_eq!((pieces.len(), bed.free()), (0, 256));
    }
}

/// Pieces may need several frames themselves, and the egress port takes that many or not.
#[test]
fn fragments_of_a_chain_lie_in_chains() {
    let mut bed = large();
    let request = V4::udp("198.51.100.9", 20_000).frame();
    let frame = jumbo(&mut bed, &request);
    let mut pieces = Vec::new();
    prepare(&mut bed.pool, frame, CHAINS, 9000, &mut pieces).expect("there are frames");
    let frames: Vec<usize> = pieces.iter().map(|piece| bed.region.meta(piece).frames()).collect();
    assert_eq!(frames, [6, 6, 2]);
    let mut payload = Vec::new();
    for piece in &pieces {
        let bytes = bed.bytes(piece);
        let view = ipv4::View::checked(&bytes[14..]).expect("a packet");
        assert!(view.has_valid_checksum() && view.total_len() <= 9000);
        assert_eq!(view.fragment_offset(), payload.len());
        payload.extend_from_slice(view.payload());
    }
    assert_eq!(payload, request[34..]);
    pieces.drain(..).for_each(|piece| bed.pool.give_back(piece));

    let frame = jumbo(&mut bed, &request);
    let egress = Offload { frames_max: 5, ..Offload::NONE };
    let error =
        prepare(&mut bed.pool, frame, egress, 9000, &mut pieces).expect_err("six are needed");
    assert_eq!(error.reason, DropReason::TooManyFragments);
    bed.pool.give_back(error.frame);
    assert_eq!(bed.free(), 256);
}

/// A partial checksum is completed wherever the parts end, odd ones too, in a tunnel too.
#[test]
fn an_unknown_checksum_is_repaired_across_frames() {
    for tunnel in [false, true] {
        let mut inner = V4::udp("198.51.100.9", 5001).frame();
        let complete = inner.clone();
        let pseudo = crate::wire::checksum::Sum::pseudo_v4(
            [192, 0, 2, 7].into(),
            [198, 51, 100, 9].into(),
            protocol::UDP,
            5009,
        );
        inner[40..42].copy_from_slice(&pseudo.fold().to_be_bytes());
        let wrap = |inner: &[u8]| {
            let vxlan = [
                &[0x12, 0xb5, 0x12, 0xb5],
                &(16 + inner.len() as u16).to_be_bytes()[..],
                &[0, 0],
                &[8, 0, 0, 0, 0, 0, 1, 0],
                inner,
            ]
            .concat();
            V4 { payload: vxlan, ..V4::udp("198.51.100.9", 0) }.frame()
        };
        let (bytes, expected) =
            if tunnel { (wrap(&inner), wrap(&complete)) } else { (inner, complete) };
        let mut bed = large();
        bed.checksum = Checksum::Unknown;
        let (front, rest) = bytes.split_at(131);
        let parts: Vec<&[u8]> = std::iter::once(front).chain(rest.chunks(333)).collect();
        let mut frame = bed.receive_parts(0, &parts);
        let guard = bed.reader.guard();
        let verdict = bed
            .forwarder
            .judge(&mut Turn { guard, pool: &mut bed.pool, now_ns: SECOND }, &mut frame);
        let outcome = outcome(&bed.region, &frame, &verdict);
        assert_eq!(outcome.said, Said::Transmit(1));
        assert_eq!(outcome.bytes[34..], expected[34..], "tunnel: {tunnel}");
        bed.pool.give_back(frame);
    }
}
