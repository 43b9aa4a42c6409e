//! Any bytes at all, and any claims of a port: each frame gets a verdict, and no call panics.

use manylane_frame::vocabulary::{Checksum, Offload, SegmentKind, Segments};
use proptest::prelude::*;

use super::super::{AdjacencyState, Fate, Turn, Verdicts, prepare};
use super::bed::*;
use super::ours::who_has;
use super::segments::Wish;

/// Packets of every kind, to be damaged.
fn seeds() -> Vec<Vec<u8>> {
    vec![
        V4::udp("198.51.100.9", 64).frame(),
        V4 { options: vec![148, 4, 0, 0, 7, 3, 4, 0], ..V4::udp("198.51.100.9", 700) }.frame(),
        V4 { ttl: 1, ..V4::udp("198.51.100.9", 8) }.frame(),
        V4 { fragment: 0x3fff, ..V4::udp("198.18.0.1", 900) }.frame(),
        V4::ping("10.0.0.1").frame(),
        V4::udp("10.0.2.77", 8).frame(),
        V6::udp("2001:db8:b::9", 64).frame(),
        V6 { hop_limit: 1, ..V6::udp("2001:db8:c::9", 1300) }.frame(),
        V6 {
            next_header: 0,
            payload: vec![44, 0, 5, 2, 0, 0, 0, 0, 17, 0, 0, 1, 0, 0, 0, 1],
            ..V6::udp("2001:db8::1", 0)
        }
        .frame(),
        V6::ping("fe80::7", "fe80::11").frame(),
        V6::icmp("fe80::7", "fe80::11", 135, 0, &[0xfe; 24]).frame(),
        who_has("10.0.0.1", "10.0.0.2"),
        Wish::tcp(900, 300).make().bytes,
        Wish { is_v6: true, dont_fragment: false, ..Wish::tcp(900, 300) }.make().bytes,
        Wish { is_udp: true, dont_fragment: false, ..Wish::tcp(900, 300) }.make().bytes,
    ]
}

/// Every result is processed to its end, as a worker would.
fn survives(bed: &mut Bed, frames: &[Vec<u8>]) {
    let packets = frames.iter().map(|frame| vec![&frame[..]]).collect::<Vec<_>>();
    survives_parts(bed, &packets, Offload::NONE);
}

/// As `survives`, with packets in parts, by way of an egress port that takes more.
fn survives_parts(bed: &mut Bed, packets: &[Vec<&[u8]>], egress: Offload) {
    let free = bed.free();
    let mut batch = manylane_frame::Batch::new();
    for parts in packets {
        let frame = bed.receive_parts(0, parts);
        batch.push(frame).expect("at most a batch");
    }
    let guard = bed.reader.guard();
    let mut verdicts = Verdicts::new();
    bed.forwarder.forward(
        &mut Turn { guard, pool: &mut bed.pool, now_ns: SECOND },
        &mut batch,
        &mut verdicts,
    );
    assert_eq!(verdicts.list().len(), packets.len());
    for (mut frame, verdict) in batch.drain().zip(&verdicts.list()) {
        let mut pieces = Vec::new();
        match verdict.fate {
            Fate::Transmit(port) => assert!(port.index() < 3),
            Fate::Fragment(_) | Fate::Prepare(_) => {
                frame = match prepare(&mut bed.pool, frame, egress, 600, &mut pieces) {
                    Ok(_) => pieces.pop().expect("there are pieces"),
                    Err(refused) => refused.frame,
                };
            }
            Fate::Hold(_) | Fate::Glean(_) => {
                assert!(bed.forwarder.destination(&frame).is_some());
                let _ = bed
                    .forwarder
                    .resume(&mut Turn { guard, pool: &mut bed.pool, now_ns: SECOND }, &mut frame);
                let _ = bed
                    .forwarder
                    .give_up(&mut Turn { guard, pool: &mut bed.pool, now_ns: SECOND }, &mut frame);
            }
            Fate::Deliver | Fate::Drop(_) => {}
        }
        pieces.into_iter().for_each(|piece| bed.pool.give_back(piece));
        bed.pool.give_back(frame);
    }
    bed.events();
    assert_eq!(bed.free(), free);
}

fn bed() -> Bed {
    let mut bed = Bed::new();
    bed.checksum = Checksum::Unknown;
    bed.publish(2, AdjacencyState::ResolvedReport, 600);
    bed.publish(5, AdjacencyState::Unresolved, 1500);
    bed.publish(6, AdjacencyState::Resolved, 1280);
    bed
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_get_a_verdict(
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..1600), 1..=64),
        to_us: bool, ether_type in prop::sample::select(vec![None, Some(0x0800u16), Some(0x86dd), Some(0x0806)]),
    ) {
        let mut frames = frames;
        for frame in &mut frames {
            if let (true, Some(to)) = (to_us, frame.get_mut(..6)) {
                to.copy_from_slice(&ours(0).0);
            }
            if let (Some(ether_type), Some(field)) = (ether_type, frame.get_mut(12..14)) {
                field.copy_from_slice(&ether_type.to_be_bytes());
            }
        }
        survives(&mut bed(), &frames);
    }

    #[test]
    fn damaged_packets_get_a_verdict(
        damage in prop::collection::vec(
            (any::<prop::sample::Index>(), prop::collection::vec((0..120usize, any::<u8>()), 0..4), 0..1500usize, any::<bool>()),
            1..=64,
        ),
    ) {
        let seeds = seeds();
        let damaged = |(seed, bytes, cut, resummed): (prop::sample::Index, Vec<(usize, u8)>, usize, bool)| {
            let mut frame = seed.get(&seeds).clone();
            for (at, byte) in bytes {
                if let Some(place) = frame.get_mut(at) {
                    *place = byte;
                }
            }
            // A right checksum gets a damaged header further.
            if resummed && frame.get(14).is_some_and(|&first| (0x45..=0x4f).contains(&first)) && frame.len() >= 74 {
                resum(&mut frame[14..]);
            }
            if cut < frame.len() {
                frame.truncate(frame.len() - cut / 8);
            }
            frame
        };
        let frames: Vec<Vec<u8>> = damage.into_iter().map(damaged).collect();
        survives(&mut bed(), &frames);
    }

    /// A port passes on what a guest behind it says. Frames may run out, too.
    #[test]
    fn any_claims_get_a_verdict(
        seed: prop::sample::Index,
        longer in prop_oneof![Just(0), 0..6000usize],
        damage in prop::collection::vec((14..120usize, any::<u8>()), 0..3),
        checksum in prop::option::of((
            prop_oneof![256..400u16, any::<u16>()],
            prop_oneof![Just(6u16), Just(16), any::<u16>()],
        )),
        kind in 0..4usize, size in prop_oneof![1..1500u16, any::<u16>()],
        (first, step) in (0..300usize, 200..1792usize),
        frames_max in prop::sample::select(vec![1, 2, 18, 64u8]), takes in 0..3,
    ) {
        let mut bytes = seed.get(&seeds()).clone();
        if ether_type(&bytes) != 0x0806 {
            bytes.resize(bytes.len() + longer, 0x5a);
            let (field, counted) = match ether_type(&bytes) {
                0x0800 => (16, bytes.len() - 14),
                _ => (18, bytes.len() - 54),
            };
            bytes[field..field + 2].copy_from_slice(&(counted as u16).to_be_bytes());
        }
        for (at, byte) in damage {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        if (0x45..=0x4f).contains(&bytes[14]) && bytes.len() >= 74 {
            resum(&mut bytes[14..]);
        }
        let offload = Offload { frames_max, checksum: takes > 0, segments: takes > 1 };
        let mut bed = Bed::with_frames(128, 2048, offload);
        if let Some((start, offset)) = checksum {
            bed.checksum = Checksum::Partial { start, offset };
        }
        let kind = [SegmentKind::None, SegmentKind::Tcp4, SegmentKind::Tcp6, SegmentKind::Udp][kind];
        bed.segments = Segments { kind, ecn: true, size };
        let (front, rest) = bytes.split_at(first.min(bytes.len()));
        let parts = std::iter::once(front).chain(rest.chunks(step)).collect();
        survives_parts(&mut bed, &[parts], offload);
    }
}

fn ether_type(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[12], frame[13]])
}
