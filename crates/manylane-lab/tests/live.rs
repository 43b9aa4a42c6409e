//! The generator of frames for benches, and its sink. Needs root.

#[path = "../../manylane-io/tests/io/common/mod.rs"]
mod common;
#[path = "../../manylane-accelerate/tests/programs/packet.rs"]
mod packet;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::AsFd;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use manylane_io::interface::Interface;
use manylane_io::namespace::Host;
use manylane_io::netlink::LinkEnd;
use manylane_io::poll::poll;
use manylane_io::station::Station;
use manylane_lab::generator::{Destinations, LiveGenerator, LiveOptions, LiveSink};
use packet::{V4, V6, address, checksum, udp, v4, v6};

/// Two hosts on a wire.
fn lab() -> Option<(Host, Host)> {
    let (from, to) = (common::host("from")?, common::host("to")?);
    [&from, &to].into_iter().for_each(common::silence);
    common::connect(&from, LinkEnd::new("f0"), &to, LinkEnd::new("t0"));
    Some((from, to))
}

fn start(host: &Host, options: LiveOptions) -> Option<LiveGenerator> {
    let started = host.run(move || {
        let interface = Interface::read("f0").expect("it was just made");
        LiveGenerator::start(&interface, options)
    });
    started.map_err(common::skip).ok()
}

fn four() -> Vec<u8> {
    V4 { payload: [udp(7000, 9), vec![5; 30]].concat(), ..v4("10.0.0.1") }.frame()
}

fn six() -> Vec<u8> {
    let mut payload = [udp(7000, 9), vec![5; 31]].concat();
    payload[5] = payload.len() as u8;
    V6 { payload, ..v6("2001:db8::1") }.frame()
}

#[test]
fn what_is_sent_ends_in_the_sink() {
    let Some((from, to)) = lab() else { return };
    let sink = to.run(|| {
        let interface = Interface::read("t0").expect("it was just made");
        LiveSink::attach(&interface)
    });
    let Some(sink) = sink.map_err(common::skip).ok() else { return };
    let options =
        LiveOptions { per_second: 20_000, ..LiveOptions::new(four(), address("10.0.0.1")) };
    let Some(generator) = start(&from, options) else { return };
    let end = Instant::now() + Duration::from_secs(20);
    while sink.dropped().0 < 1000 {
        assert!(Instant::now() < end, "{:?} of {}", sink.dropped(), generator.sent());
        thread::yield_now();
    }
    let sent = generator.stop().expect("it ran until now");
    let (frames, bytes) = sink.dropped();
    assert!(frames <= sent && bytes == frames * four().len() as u64, "{frames}, {bytes} of {sent}");
}

/// By destinations and ports; whole, whatever was written into the memory before.
#[test]
fn frames_are_of_all_flows_and_right() {
    for (frame, destinations) in [
        (four(), (0..5).map(|n| IpAddr::from([10, 0, n, 1])).collect::<Vec<_>>()),
        (six(), (0..5).map(|n| Ipv6Addr::new(0x2001, 0xdb8, n, 0, 0, 0, 0, 1).into()).collect()),
    ] {
        let Some((from, to)) = lab() else { return };
        let on = to.run(|| Command::new("ethtool").args(["-K", "t0", "gro", "on"]).status());
        if !on.is_ok_and(|status| status.success()) {
            return common::skip("frames that arrive: needs ethtool");
        }
        let station = to.run(|| Station::open("t0").expect("root may"));
        let options = LiveOptions {
            frame: frame.clone(),
            destinations: Destinations::InTurn(destinations.clone()),
            ports: 3,
            per_second: 2000,
            core: Some(0),
        };
        let Some(generator) = start(&from, options) else { return };
        let mut flows = BTreeSet::new();
        let mut buffer = [0; 2048];
        while flows.len() < 15 {
            let ready = poll(&[station.as_fd()], Some(Duration::from_secs(20))).expect("one");
            assert!(ready.is_ready(0), "{} sent, {flows:?} came", generator.sent());
            let got = station.receive(&mut buffer).expect("it is up").expect("it is ready");
            flows.insert(flow(got, &frame));
        }
        let destinations: BTreeSet<_> = destinations.into_iter().collect();
        assert_eq!(flows.iter().map(|flow| flow.0).collect::<BTreeSet<_>>(), destinations);
        assert_eq!(
            flows.iter().map(|flow| flow.1).collect::<BTreeSet<_>>(),
            (7000..7003).collect()
        );
    }
}

/// Drawn ones: from a list all sooner or later, and without one always others.
#[test]
fn destinations_can_be_drawn() {
    let list: Vec<IpAddr> = (0..4).map(|n| IpAddr::from([10, 0, n, 1])).collect();
    for (destinations, wanted, space) in [
        (Destinations::Drawn(list.clone()), 4, [10, 0]..[10, 1]),
        (Destinations::Spread, 50, [16, 0]..[112, 0]),
        (Destinations::Near, 50, [10, 128]..[10, 129]),
    ] {
        let all: BTreeSet<IpAddr> = destinations.addresses().into_iter().collect();
        assert_eq!(all.len(), if wanted == 4 { 4 } else { 1 << 16 }, "each is another");
        let is_within = |address: &IpAddr| matches!(address, IpAddr::V4(v4) if space.contains(v4.octets().first_chunk().expect("four")));
        assert!(all.iter().all(is_within), "{space:?}");
        let Some((from, to)) = lab() else { return };
        let on = to.run(|| Command::new("ethtool").args(["-K", "t0", "gro", "on"]).status());
        if !on.is_ok_and(|status| status.success()) {
            return common::skip("frames that arrive: needs ethtool");
        }
        let station = to.run(|| Station::open("t0").expect("root may"));
        let options = LiveOptions { per_second: 2000, ..LiveOptions::new(four(), list[0]) };
        let Some(generator) = start(&from, LiveOptions { destinations, ..options }) else { return };
        let mut seen = BTreeSet::new();
        let mut buffer = [0; 2048];
        while seen.len() < wanted {
            let ready = poll(&[station.as_fd()], Some(Duration::from_secs(20))).expect("one");
            assert!(ready.is_ready(0), "{} sent, {seen:?} came", generator.sent());
            let got = station.receive(&mut buffer).expect("it is up").expect("it is ready");
            let (to, port) = flow(got, &four());
            assert!(port == 7000 && all.contains(&to), "{to} {port}");
            seen.insert(to);
        }
    }
}

/// A frame's destination and source port; all else is as in the template, with the right checksums.
fn flow(frame: &[u8], template: &[u8]) -> (IpAddr, u16) {
    let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    if frame[12] == 0x08 {
        assert_eq!(checksum(&frame[14..34]), 0);
        for same in [0..24, 26..30, 36..40, 42..template.len()] {
            assert_eq!(frame[same.clone()], template[same]);
        }
        let to: [u8; 4] = frame[30..34].try_into().expect("four bytes");
        return (to.into(), port(34));
    }
    for same in [0..38, 56..60, 62..template.len()] {
        assert_eq!(frame[same.clone()], template[same]);
    }
    let mut summed = [&frame[22..54], &frame[58..60], &[0, 17], &frame[54..]].concat();
    summed.resize(summed.len().next_multiple_of(2), 0);
    assert_eq!(checksum(&summed), 0);
    let to: [u8; 16] = frame[38..54].try_into().expect("16 bytes");
    (to.into(), port(54))
}

#[test]
fn what_cannot_be_sent_is_told() {
    let Some((from, _to)) = lab() else { return };
    let mut tcp = four();
    tcp[23] = 6;
    let (to4, to6) = (address("10.0.0.1"), address("2001:db8::1"));
    let none = Destinations::InTurn(Vec::new());
    let two = Destinations::Drawn(vec![to6, address("2001:db8::2")]);
    for (options, why) in [
        (LiveOptions::new(vec![0; 60], to4), "64 bytes"),
        (LiveOptions::new(tcp, to4), "UDP"),
        (LiveOptions::new(six(), to4), "family"),
        (LiveOptions::new([four(), vec![0; 8000]].concat(), to4), "cannot try"),
        (LiveOptions { destinations: none, ..LiveOptions::new(four(), to4) }, "live_to"),
        (LiveOptions { destinations: two, ..LiveOptions::new(six(), to6) }, "the same 64 bits"),
        (
            LiveOptions { destinations: Destinations::Spread, ..LiveOptions::new(six(), to6) },
            "family",
        ),
    ] {
        let refused = from.run(move || {
            let interface = Interface::read("f0").expect("it was just made");
            LiveGenerator::start(&interface, options).err().expect("it cannot").to_string()
        });
        assert!(refused.contains(why), "{refused}");
    }
}
