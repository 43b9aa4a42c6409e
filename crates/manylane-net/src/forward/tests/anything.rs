//! Any bytes at all: each frame gets a verdict, and nobody panics.

use manylane_frame::vocabulary::{Checksum, Offload};
use proptest::prelude::*;

use super::super::{AdjacencyState, Fate, prepare};
use super::bed::*;
use super::ours::who_has;

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
    ]
}

/// Whatever comes out is carried through to its end, as a worker would.
fn survives(bed: &mut Bed, frames: &[Vec<u8>]) {
    let mut batch = manylane_frame::Batch::new();
    for frame in frames {
        let frame = bed.receive(0, frame);
        batch.push(frame).expect("at most a batch");
    }
    let guard = bed.reader.guard();
    let verdicts = bed.forwarder.forward(guard, &mut bed.pool, &mut batch, SECOND);
    assert_eq!(verdicts.as_slice().len(), frames.len());
    for (mut frame, verdict) in batch.drain().zip(verdicts.as_slice()) {
        let mut pieces = Vec::new();
        match verdict.fate {
            Fate::Transmit(port) => assert!(port.index() < 3),
            Fate::Fragment(_) | Fate::Prepare(_) => {
                let exit = Offload::NONE;
                frame = match prepare(&mut bed.pool, frame, exit, 600, &mut pieces) {
                    Ok(_) => pieces.pop().expect("there are pieces"),
                    Err(refused) => refused.frame,
                };
            }
            Fate::Hold(_) | Fate::Glean(_) => {
                assert!(bed.forwarder.destination(&frame).is_some());
                let _ = bed.forwarder.resume(guard, &mut bed.pool, &mut frame, SECOND);
                let _ = bed.forwarder.give_up(guard, &mut bed.pool, &mut frame, SECOND);
            }
            Fate::Deliver | Fate::Drop(_) => {}
        }
        pieces.into_iter().for_each(|piece| bed.pool.give_back(piece));
        bed.pool.give_back(frame);
    }
    bed.forwarder.events().for_each(drop);
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
}
