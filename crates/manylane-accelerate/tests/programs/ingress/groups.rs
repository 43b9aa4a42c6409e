//! Which member of a group a flow has.

use super::*;
use crate::packet::{message, tcp, udp};

/// What `FlowKey::seeded` and `bucket` of `manylane-net` say of these packets, with this seed.
#[test]
fn a_flow_stays_with_its_bucket() {
    let Some(mut rig) = Rig::new() else { return };
    rig.tables.control.store(1, 0x1122_3344_5566_7788);
    // Bucket b leads to slot b + 1000, and that to record b + 1000, whose number is in the address.
    rig.hop(1, GROUP, 300);
    for bucket in 0..512 {
        rig.record(1000 + bucket, 77, 2, 1500);
        rig.tables.record_of.store(1000 + bucket, 1000 + bucket as u32);
        rig.tables.buckets.store(300 * 512 + bucket, 1000 + bucket as u16);
    }
    assert_eq!(rig.verdict(&v4(TO).frame()), MULTIPATH, "nobody said that it may");
    assert_eq!(rig.verdict(&v6(TO6).frame()), MULTIPATH);
    let found = |rig: &Rig, frame: &[u8]| {
        let tried = rig.try_frame(frame);
        assert_eq!(tried.verdict, FORWARDED);
        u16::from_be_bytes([tried.frame[4], tried.frame[5]]) - 1000
    };
    rig.tables.control.store(2, 1 | 2);
    let only_addresses = [found(&rig, &v4(TO).frame()), found(&rig, &v6(TO6).frame())];
    rig.tables.control.store(2, 1 | 2 | 4 | 8);
    let frames = hashed();
    let buckets: Vec<u16> = frames.iter().map(|(_, frame)| found(&rig, frame)).collect();
    for ((what, _), (found, expected)) in frames.iter().zip(buckets.iter().zip(EXPECTED)) {
        assert_eq!(*found, expected, "{what}: {buckets:?}");
    }
    let part = |name: &str| {
        let at = frames.iter().position(|(what, _)| *what == name).expect("it is one of them");
        buckets[at]
    };
    assert_eq!(only_addresses, [part("a fragment"), part("no next header")]);
    for kind in [3, 4, 5, 11, 12] {
        let error = V4 { protocol: 1, payload: message(kind), ..v4(TO) };
        assert_eq!(rig.verdict(&error.frame()), MULTIPATH, "ICMP {kind}");
    }
    for kind in [1, 2, 3, 4, 127] {
        let error = V6 { next_header: 58, payload: message(kind), ..v6(TO6) };
        assert_eq!(rig.verdict(&error.frame()), MULTIPATH, "ICMPv6 {kind}");
    }
    for (number, len) in [(44, 8), (51, 24), (60, 8)] {
        assert_eq!(rig.verdict(&v6(TO6).behind(number, len).frame()), MULTIPATH, "{number}");
    }
    rig.tables.buckets.store(300 * 512 + usize::from(part("UDP")), 4000);
    assert_eq!(rig.verdict(&v4(TO).frame()), UNRESOLVED, "of the flow's bucket");
}

/// Packets of each row of `flow.h`.
fn hashed() -> Vec<(&'static str, Vec<u8>)> {
    let four = |protocol, payload: Vec<u8>| V4 { protocol, payload, ..v4(TO) }.frame();
    let six = |next_header, payload: Vec<u8>| V6 { next_header, payload, ..v6(TO6) }.frame();
    vec![
        ("UDP", v4(TO).frame()),
        ("UDP, another port", four(17, udp(1001, 2000))),
        ("TCP", four(6, tcp(0, 5))),
        ("SCTP", four(132, vec![9; 12])),
        ("DCCP", four(33, vec![9; 12])),
        ("UDP-Lite", four(136, vec![9; 12])),
        ("GRE", four(47, vec![9; 12])),
        ("three bytes of TCP", four(6, vec![9; 3])),
        ("a fragment", V4 { fragment: 0x2000, ..v4(TO) }.frame()),
        ("a later fragment", V4 { fragment: 0x00b9, ..v4(TO) }.frame()),
        ("not to be cut", V4 { fragment: 0x4000, ..v4(TO) }.frame()),
        ("ping", four(1, message(8))),
        ("half a message", four(1, vec![3; 7])),
        ("UDP v6", v6(TO6).frame()),
        ("TCP v6", six(6, tcp(8, 5))),
        ("UDP v6, another port", six(17, udp(1000, 2001))),
        ("ping v6", six(58, message(128))),
        ("no next header", six(59, Vec::new())),
        ("three bytes of UDP v6", six(17, vec![9; 3])),
    ]
}

const EXPECTED: [u16; 19] =
    [221, 389, 105, 246, 378, 317, 129, 129, 129, 129, 221, 129, 129, 333, 291, 432, 390, 390, 390];
