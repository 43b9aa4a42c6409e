//! I2: every frame is accounted for, whatever is received.

use std::net::IpAddr;

use manylane_frame::vocabulary::{Created, DropReason, PortId};
use manylane_net::neighbour::{DuplicateDetection, HoldLimits};
use manylane_net::wire::ethernet::Mac;
use manylane_net::wire::nd::Solicitation;
use manylane_net::wire::{arp, icmp, ipv4, protocol};

use crate::rig::*;
use manylane_router::socket::{Points, protocol as socket_protocol};
use manylane_worker::stats::PortCount;
use manylane_worker::worker::Order;

/// A packet of any kind that the rules tell apart.
pub fn any_frame(random: &mut Random, sequence: u32) -> Vec<u8> {
    let host = 2 + random.below(6) as u8;
    let to: IpAddr = match random.below(8) {
        0 => [10, 0, 0, host].into(),
        1 | 2 => [10, 1, 0, host].into(),
        3 => [10, 2, 0, 2].into(), // Small.
        4 => format!("2001:db8:1::{host}").parse().unwrap(),
        5 => "2001:db8:2::2".parse().unwrap(),
        6 => [9, 9, 9, 9].into(),
        _ => [10, random.below(3) as u8, 0, 1].into(), // Us.
    };
    let len = if random.below(3) == 0 { 1400 } else { 4 };
    let mut frame = packet(to, 7, sequence, len);
    match random.below(12) {
        0 => {
            frame[22] = 1; // TTL; for IPv6, an address.
            resum(&mut frame);
        }
        1 => frame.truncate(random.below(80) as usize),
        2 => frame[0] ^= 1,
        3 => {
            let at = random.below(frame.len() as u64) as usize % 60;
            frame[at] = random.below(256) as u8;
        }
        4 => {
            let target = [10, 0, 0, 1].into();
            let packet = arp::Packet::request(station(0), [10, 0, 0, host].into(), target);
            packet.emit_frame(&mut frame, Mac::BROADCAST);
        }
        5 => {
            let ask = |host: u8| format!("2001:db8::{host}").parse().unwrap();
            frame.resize(100, 0);
            let len = Solicitation::ask(station(0), ask(host), ask(1)).emit(
                &mut frame,
                station(0),
                ours(0),
            );
            frame.truncate(len.expect("it fits"));
        }
        6 => return ping(host),
        _ => {}
    }
    frame
}

pub fn resum(frame: &mut [u8]) {
    if frame[12] == 0x08 {
        frame[24..26].fill(0);
        let sum = manylane_net::wire::checksum::Sum::of(&frame[14..34]).finish();
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
}

pub fn ping(host: u8) -> Vec<u8> {
    let mut frame = packet([10, 0, 0, 1].into(), 7, 0, 20);
    icmp::emit(&mut frame[34..], icmp::kind::ECHO_REQUEST, 0, 1).unwrap();
    let len = frame.len() - 34;
    let header = ipv4::Header {
        tos: 0,
        identification: 1,
        dont_fragment: false,
        ttl: 64,
        protocol: protocol::ICMP,
        source: [10, 0, 0, host].into(),
        destination: [10, 0, 0, 1].into(),
    };
    header.emit(&mut frame[14..], len).unwrap();
    frame
}

/// Random traffic, hosts that answer or do not, questions of ours, and time that passes.
#[test]
fn what_comes_in_or_begins_leaves_or_ends() {
    for seed in 0..12 {
        let mut hall = Hall::new(1);
        hall.control.set("10.2.0.2", 2);
        hall.control.set("2001:db8:2::2", 2);
        let (ports, mode) = ((0..PORTS).map(PortId), DuplicateDetection::Optimistic);
        hall.control.routing.watch_own(ports, mode, std::time::Duration::ZERO);
        let (feed, (seen, exits)) = (Feed::default(), sinks());
        let limits = HoldLimits { queue_frames_max: 8, frames_max: 20, queues_max: 6 };
        let mut worker = hall.worker(vec![fed(0, 0, &feed)], exits, limits);
        // A socket that observes all packets, and sends.
        let mut socket = hall.sockets.open(socket_protocol::ALL).expect("there is room");
        socket
            .set_points(Points::RECEIVE | Points::TRANSMIT | Points::DROP)
            .expect("there is room");
        socket.bind(Some(PortId(0)), socket_protocol::ALL).expect("there is room");
        let mut random = Random(seed);
        let (mut now, mut sequence) = (0, 0);
        for _ in 0..400 {
            let mut feed = feed.lock().unwrap();
            for _ in 0..random.below(40) {
                feed.push(any_frame(&mut random, sequence));
                sequence += 1;
            }
            drop(feed);
            if random.below(10) == 0 {
                let sent = any_frame(&mut random, sequence);
                sequence += 1;
                // What is too short or too long is refused.
                let is_packet = (14..=1500).contains(&sent.len());
                assert_eq!(socket.send(&sent).is_ok(), is_packet, "{}", sent.len());
            }
            worker.turn(now);
            while socket.receive().is_some() {}
            hall.assert_nothing_is_missing();
            for key in hall.control.hear(now) {
                if random.below(2) == 0 {
                    hall.control.answer(key, now);
                }
            }
            hall.control.routing.tick(std::time::Duration::from_nanos(now), &mut hall.control.told);
            let orders: Vec<Order> = hall.control.told.orders.drain(..).collect();
            for order in orders {
                let _ = hall.control.orders[0].push(order);
            }
            hall.control.orders[0].submit();
            now += [1_000, 1_000_000, SECOND / 3, 2 * SECOND][random.below(4) as usize];
        }
        // The run covers every beginning and end of a packet.
        // (What a feed makes stands for one packet: segments are in `bounds`.)
        // (Redirects are off, and no socket sends.)
        let elsewhere = [Created::Segment, Created::Redirect, Created::Injected];
        for reason in Created::ALL.iter().filter(|reason| !elsewhere.contains(reason)) {
            assert!((0..PORTS).any(|port| hall.created(port, *reason) > 0), "no {reason}");
        }
        for reason in [DropReason::NoRoute, DropReason::TooBig, DropReason::NotForUs] {
            assert!(hall.dropped(0, reason) > 0, "no {reason}");
        }
        assert!(hall.sum(0, PortCount::Delivered) > 0);
        let transmitted: u64 = (0..PORTS).map(|port| hall.sum(port, PortCount::Transmitted)).sum();
        let out: usize = seen.iter().map(|seen| seen.lock().unwrap().len()).sum();
        assert_eq!(transmitted, out as u64);
        hall.close(vec![worker]);
    }
}
