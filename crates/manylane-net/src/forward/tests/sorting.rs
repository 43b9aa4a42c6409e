//! The fast path against the rules written out in full: each decides for the same packet alike.

use manylane_frame::vocabulary::{Checksum, PortId};
use proptest::prelude::*;

use super::super::AdjacencyState;
use super::super::check::{Checked, check};
use super::bed::*;

/// Two routers alike.
fn twins() -> (Bed, Bed) {
    let bed = |_| {
        let mut bed = Bed::new();
        bed.publish(2, AdjacencyState::ResolvedReport, 600);
        bed.publish(6, AdjacencyState::ResolvedReport, 1280);
        bed
    };
    (bed(0), bed(1))
}

pub const TARGETS4: [&str; 14] = [
    "198.51.100.9",
    "198.18.0.1",
    "192.0.2.200",
    "10.0.0.1",
    "10.0.1.255",
    "10.0.2.77",
    "8.8.8.8",
    "203.0.113.1",
    "203.0.113.70",
    "203.0.113.130",
    "127.0.0.1",
    "0.1.2.3",
    "224.0.0.9",
    "223.255.0.1",
];
pub const TARGETS6: [&str; 14] = [
    "2001:db8:b::9",
    "2001:db8:c::9",
    "2001:db8::1",
    "2001:db8:2::77",
    "fe80::11",
    "fe80::99",
    "febf::1",
    "fec0::1",
    "ff02::1",
    "::1",
    "64:ff9b::1",
    "2001:db8:f0::1",
    "2001:db8:f1::1",
    "2001::1",
];

fn packets() -> impl Strategy<Value = (Vec<u8>, Checksum)> {
    let ttl = prop::sample::select(vec![0, 1, 2, 64, 255]);
    let v4 = (0..TARGETS4.len(), 0..TARGETS4.len(), ttl, 0..900usize, 0..3u16).prop_map(
        |(to, from, ttl, len, flags)| {
            let source = TARGETS4[from].parse().unwrap();
            let fragment = flags << 14;
            V4 { source, ttl, fragment, ..V4::udp(TARGETS4[to], len) }.frame()
        },
    );
    let v6 = (0..TARGETS6.len(), 0..TARGETS6.len(), 0..4u8, 0..1300usize).prop_map(
        |(to, from, hop_limit, len)| {
            let source = TARGETS6[from].parse().unwrap();
            V6 { source, hop_limit, ..V6::udp(TARGETS6[to], len) }.frame()
        },
    );
    // At most one byte is wrong, most often in a header; and the frame may end early or be padded.
    let damage = prop::option::weighted(0.5, (0..60usize, any::<u8>()));
    let cut = prop_oneof![6 => Just(0i32), 2 => 1..20i32, 2 => -60..0i32];
    let flags = (any::<bool>(), any::<bool>());
    (prop_oneof![v4, v6], damage, cut, flags).prop_map(|(mut frame, damage, cut, flags)| {
        let (unknown, resummed) = flags;
        if let Some((at, byte)) = damage
            && let Some(place) = frame.get_mut(at)
        {
            *place = byte;
        }
        // A right checksum gets a damaged header further.
        if resummed && frame[14] == 0x45 {
            resum(&mut frame[14..]);
        }
        frame.resize(frame.len().saturating_add_signed(cut as isize), 0);
        (frame, if unknown { Checksum::Unknown } else { Checksum::Valid })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_fast_path_decides_as_the_rules_do(frames in prop::collection::vec(packets(), 1..64)) {
        let (mut fast, mut slow) = twins();
        for (frame, checksum) in frames {
            (fast.checksum, slow.checksum) = (checksum, checksum);
            prop_assert_eq!(fast.judge(0, &frame), slow.judge_slowly(0, &frame));
        }
        prop_assert_eq!(fast.events(), slow.events());
        prop_assert_eq!(fast.forwarder.errors_suppressed(), slow.forwarder.errors_suppressed());
    }

    #[test]
    fn a_batch_is_judged_as_its_frames_are(frames in prop::collection::vec(packets(), 1..=64)) {
        let (mut together, mut alone) = twins();
        let frames: Vec<(u8, Vec<u8>)> = frames.into_iter().map(|(frame, _)| (0, frame)).collect();
        let outcomes = together.judge_batch(10 * SECOND, &frames);
        for ((port, frame), outcome) in frames.iter().zip(outcomes) {
            prop_assert_eq!(outcome, alone.judge(*port, frame));
        }
    }
}

/// What pass 1 says of a packet.
#[derive(PartialEq, Eq)]
enum Class {
    Ipv4,
    Ipv6,
    Odd,
}

/// Else the comparison above would compare the slow path with itself.
#[test]
fn only_plain_packets_take_the_fast_path() {
    let mut bed = Bed::new();
    let mut class = |frame: Vec<u8>| {
        let frame = bed.receive(0, &frame);
        let mut checked = Checked::new();
        let (tables, frames) = (&bed.forwarder.tables, std::slice::from_ref(&frame));
        check(bed.region.view(), tables, PortId(0), frames, &mut checked);
        bed.pool.give_back(frame);
        match (checked.next_exception(0), checked.ipv6(0)) {
            (0, _) => Class::Odd,
            (_, 0) => Class::Ipv4,
            _ => Class::Ipv6,
        }
    };
    for to in ["198.51.100.9", "10.0.0.1", "10.0.1.255", "10.0.2.77", "8.8.8.8", "223.255.0.1"] {
        assert!(class(V4::udp(to, 0).frame()) == Class::Ipv4, "{to}");
    }
    for to in ["127.0.0.1", "0.1.2.3", "224.0.0.9", "255.255.255.255"] {
        assert!(class(V4::udp(to, 0).frame()) == Class::Odd, "{to}");
    }
    for to in ["2001:db8:b::9", "2001:db8::1", "fdff::1", "fc00::1", "2001::1"] {
        assert!(class(V6::udp(to, 0).frame()) == Class::Ipv6, "{to}");
    }
    for to in ["fe80::11", "febf::1", "fec0::1", "ff02::1", "::1", "::ffff:1.2.3.4"] {
        assert!(class(V6::udp(to, 0).frame()) == Class::Odd, "{to}");
    }
    for packet in [
        V4 { ttl: 1, ..V4::udp("8.8.8.8", 0) },
        V4 { options: vec![1; 4], ..V4::udp("8.8.8.8", 0) },
    ] {
        assert!(class(packet.frame()) == Class::Odd);
    }
}
