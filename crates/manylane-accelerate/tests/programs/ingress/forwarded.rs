//! What becomes of a packet that is forwarded, and of the packets that are noted.

use super::*;
use crate::common;
use crate::packet::{checksum, udp};
use manylane_accelerate::programs::{SampledBy, TryOptions};
use manylane_io::affinity;

#[test]
fn an_ipv4_packet_is_sent_on_one_hop_older() {
    let Some(rig) = Rig::new() else { return };
    for (tos, priority) in
        [(0, 0), (0x08, 2), (0x10, 6), (0x18, 4), (0xb8, 4), (0x03, 0), (0xe4, 0)]
    {
        for ttl in [2, 64, 255] {
            let sent = V4 { tos, ttl, ..v4(TO) };
            let tried = rig.try_frame(&sent.frame());
            let expected = V4 { ttl: ttl - 1, ..sent }.frame();
            assert_eq!((tried.verdict, tried.ingress, tried.egress), (FORWARDED, 1, Some(2)));
            assert_eq!(tried.frame[..12], [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
            assert_eq!(tried.frame[12..], expected[12..], "ttl {ttl}");
            assert_eq!(tried.priority, priority, "tos {tos:02x}");
        }
    }
}

#[test]
fn some_packets_are_noted_while_somebody_asks() {
    let Some(mut rig) = Rig::new() else { return };
    // One CPU's places.
    affinity::pin(affinity::cores().expect("there are some")[0]).expect("it may run there");
    let mut samples = rig.fast.take_samples().expect("nobody has them");
    let mut padded = V4 { payload: Vec::new(), ..v4(TO) }.frame();
    padded.resize(60, 0);
    let cases = [
        (V4 { payload: vec![7; 500], ..v4(TO) }.frame(), FORWARDED, 56),
        (V6 { payload: vec![7; 500], ..v6(TO6) }.frame(), FORWARDED, 56),
        (padded, FORWARDED, 48),
        (v4(TO).frame(), FORWARDED, 28),
        (V4 { ttl: 1, ..v4(TO) }.frame(), EXPIRED, 28),
    ];
    rig.try_frame(&cases[0].0);
    samples.begin(0);
    cases.iter().for_each(|(frame, ..)| _ = rig.try_frame(frame));
    let noted = samples.end().expect("the kernel waits");
    rig.try_frame(&cases[0].0);
    assert_eq!(noted.len(), cases.len(), "{noted:?}");
    for (noted, (frame, verdict, own)) in noted.iter().zip(&cases) {
        let by = if *verdict == FORWARDED { SampledBy::Ingress } else { SampledBy::Kernel };
        assert_eq!((noted.port, noted.verdict, noted.by), (1, *verdict, by));
        assert_eq!(noted.len as usize, frame.len());
        assert_eq!(noted.bytes[..*own], frame[12..12 + own], "as it came");
    }

    let count = |rig: &Rig, times: u32| (0..times).for_each(|_| _ = rig.try_frame(&cases[0].0));
    for (shift, times, expected) in [(0, 100, 64..=64), (0, 1, 1..=1), (4, 640, 10..=63)] {
        samples.begin(shift);
        count(&rig, times);
        let noted = samples.end().expect("the kernel waits").len();
        assert!(expected.contains(&noted), "of {times} packets, one in 2^{shift}: {noted}");
    }
    assert_eq!(samples.end().expect("the kernel waits"), [], "nobody has asked");
}

/// Where the checksum's carry comes around, and every other place.
#[test]
fn the_header_checksum_stays_right_whatever_it_is() {
    let Some(rig) = Rig::new() else { return };
    let mut seen = std::collections::BTreeSet::new();
    for tail in 0..=0xffffu16 {
        let mut sent = v4(TO).frame();
        sent[18..20].copy_from_slice(&tail.to_be_bytes()); // The identification.
        sent[24..26].fill(0);
        let sum = checksum(&sent[14..34]);
        if tail % 97 != 0 && !(0xfd00..=0xffff).contains(&sum) && sum > 0x0300 {
            continue;
        }
        sent[24..26].copy_from_slice(&sum.to_be_bytes());
        let tried = rig.fast.try_packet(&sent, &TryOptions::default()).expect("it is tried");
        assert_eq!(tried.0, REDIRECT, "{sum:04x}");
        let left = checksum(&tried.1[14..34]);
        assert!(left == 0 || left == 0xffff, "{sum:04x} became wrong");
        seen.insert(sum);
    }
    assert!(seen.contains(&0xfeff) && seen.contains(&0xfffe) && seen.len() > 1500);
}

#[test]
fn an_ipv6_packet_is_sent_on_one_hop_older() {
    let Some(rig) = Rig::new() else { return };
    for hop_limit in [2, 64, 255] {
        let sent = V6 { hop_limit, ..v6(TO6) };
        let tried =
            rig.try_with(&sent.frame(), &TryOptions { priority: 3, ..TryOptions::default() });
        let expected = V6 { hop_limit: hop_limit - 1, ..sent }.frame();
        assert_eq!((tried.verdict, tried.ingress, tried.egress), (FORWARDED, 1, Some(2)));
        assert_eq!(tried.frame[..12], [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
        assert_eq!((&tried.frame[12..], tried.priority), (&expected[12..], 3));
    }
}

/// A receiver behind its own kernel believes that sum.
#[test]
fn the_sum_that_a_device_has_told_stays_right() {
    let Some(rig) = Rig::new() else { return };
    let summed = TryOptions { is_summed: true, ..TryOptions::default() };
    if rig.fast.try_packet(&[0; 14], &summed).is_err() {
        return common::skip("summed packets: the kernel cannot try them before Linux 6.17");
    }
    for ttl in [2, 3, 64, 255] {
        for (from, to) in [(0, 0), (1, 0xff), (0xffff, 0xffff), (0x1234, 0xedcb)] {
            let payload = udp(from, to);
            let four = V4 { ttl, payload: payload.clone(), ..v4(TO) };
            assert_eq!(rig.try_with(&four.frame(), &summed).verdict, FORWARDED);
            let six = V6 { hop_limit: ttl, payload, ..v6(TO6) };
            assert_eq!(rig.try_with(&six.frame(), &summed).verdict, FORWARDED);
        }
    }
}
