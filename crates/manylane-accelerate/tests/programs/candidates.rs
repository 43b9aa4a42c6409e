//! Which connections the program tells of, as worth an entry in the flow table.

use std::net::IpAddr;

use manylane_accelerate::programs::{Candidate, Candidates};
use manylane_net::transit::Verdict;
use manylane_net::transit::flows::Tuple;
use manylane_net::transit::layout::control;

use super::packet::{TCP, UDP, address, tcp, udp, v4, v6};
use super::rig::Rig;

/// A rig whose packets need a flow, and what its program tells.
fn rig() -> Option<(Rig, Candidates)> {
    let mut rig = Rig::new()?;
    let needed = control::FLOWS_V4 | control::FLOWS_V6 | 1 << 32;
    rig.tables.control.store(control::FLOWS, needed);
    let candidates = rig.fast.take_candidates().expect("nobody else takes them");
    Some((rig, candidates))
}

fn tuple(from: &str, to: &str, ports: [u16; 2], protocol: u8) -> Tuple {
    let [source, destination] = [from, to].map(address::<IpAddr>);
    let [source_port, destination_port] = ports;
    Tuple { source, destination, source_port, destination_port, protocol }
}

#[test]
fn the_16th_packet_of_a_direction_is_told_and_then_each_time_after_twice_as_many() {
    let Some((rig, mut candidates)) = rig() else { return };
    let of_v4 = v4("198.51.100.9").frame();
    let of_v6 = v6("2001:db8:2::9").frame();
    for (frame, from, to) in
        [(of_v4, "192.0.2.1", "198.51.100.9"), (of_v6, "2001:db8:1::1", "2001:db8:2::9")]
    {
        let expected = Candidate { tuple: tuple(from, to, [1000, 2000], UDP), ingress: 1 };
        let told: Vec<_> = (1..=16 + 32 + 64 + 128)
            .filter(|_| {
                assert_eq!(rig.verdict(&frame), Verdict::NoFlow as u8);
                let found = candidates.take(8);
                assert!(found.iter().all(|one| *one == expected), "{found:?}");
                !found.is_empty()
            })
            .collect();
        assert_eq!(told, [16, 16 + 32, 16 + 32 + 64, 16 + 32 + 64 + 128]);
    }
}

#[test]
fn what_is_no_packet_of_a_settled_connection_is_never_told() {
    let Some((rig, mut candidates)) = rig() else { return };
    let segment = |flags: u8| {
        let mut segment = tcp(0, 4);
        segment[13] = flags;
        segment
    };
    let with = |protocol, payload| {
        let mut packet = v4("198.51.100.9");
        (packet.protocol, packet.payload) = (protocol, payload);
        packet
    };
    let mut fragment = v4("198.51.100.9");
    fragment.fragment = 0x2000;
    let mut short = v4("198.51.100.9");
    short.payload[5] = 11;
    let (syn, fin, rst, ack) = (2, 1, 4, 16);
    let frames = [
        with(TCP, segment(syn)).frame(),
        with(TCP, segment(syn | ack)).frame(),
        with(TCP, segment(fin | ack)).frame(),
        with(TCP, segment(rst)).frame(),
        with(TCP, segment(0)).frame(),
        with(1, vec![8; 16]).frame(),
        fragment.frame(),
        short.frame(),
    ];
    for (number, frame) in frames.iter().enumerate() {
        (0..64).for_each(|_| assert_ne!(rig.verdict(frame), 0));
        assert_eq!(candidates.take(8), [], "{number}");
    }
    let plain = with(TCP, segment(ack)).frame();
    (0..16).for_each(|_| assert_eq!(rig.verdict(&plain), Verdict::NoFlow as u8));
    assert_eq!(candidates.take(8).len(), 1, "the same with ACK alone");
}

/// As many flows as the sketch has cells, all of one rate, in turn: those without a cell are found when others have their
/// entries.
#[test]
fn as_many_flows_of_one_rate_as_there_are_cells_are_all_found() {
    let Some((rig, mut candidates)) = rig() else { return };
    let mut left: Vec<(u16, Vec<u8>)> = (0..4096u16)
        .map(|port| {
            let mut packet = v4("198.51.100.9");
            packet.payload = udp(port, 2000);
            (port, packet.frame())
        })
        .collect();
    let mut found = 0;
    for round in 0..400 {
        for (_, frame) in &left {
            assert_eq!(rig.verdict(frame), Verdict::NoFlow as u8);
        }
        for one in candidates.take(usize::MAX) {
            // The flow has an entry from now on.
            let before = left.len();
            left.retain(|(port, _)| *port != one.tuple.source_port);
            found += before - left.len();
        }
        if left.is_empty() {
            assert_eq!(found, 4096);
            return;
        }
        assert!(round != 20 || found > 2048, "those that have a cell: {found}");
    }
    panic!("{} of 4096 flows are never found", left.len());
}
