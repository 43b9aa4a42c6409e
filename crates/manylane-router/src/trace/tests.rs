//! Packets put together, and as people read them.

use super::text::block;
use super::together::{Followed, Together};
use manylane_api::{RouteKind, TraceLine, TraceStage, TraceWhat};
use manylane_net::wire::summary as header;

fn stage(packet: u32, worker: u16, time_ns: u64, what: TraceWhat) -> TraceStage {
    TraceStage { packet, worker, time_ns, what }
}

fn received() -> TraceWhat {
    let header =
        "02:00:00:00:01:00 > 02:00:00:00:00:00, 10.0.0.2:7 > 10.1.0.2:9 UDP, TTL 64".into();
    TraceWhat::Received { port: "lan".into(), queue: 3, length: 60, header }
}

fn transmitted() -> TraceWhat {
    TraceWhat::Transmitted { port: "wan".into(), queue: Some(1) }
}

/// As the ring of the worker that took it may be read first.
#[test]
fn a_packet_ends_once_whatever_worker_is_heard_first() {
    let mut together = Together::default();
    let pieces = TraceWhat::Prepared { how: vec!["fragments".into()], pieces: 2 };
    let taken = [TraceWhat::Taken { from: 0 }, pieces, transmitted(), transmitted()];
    for (time_ns, what) in (20..).zip(taken) {
        assert_eq!(together.add(stage(1, 1, time_ns, what)), None);
    }
    assert_eq!(together.add(stage(2, 0, 9, received())), None);
    assert_eq!(together.add(stage(1, 0, 10, received())), None);
    let steered = TraceWhat::Steered { bucket: 17, to: 1 };
    let packet = together.add(stage(1, 0, 11, steered)).expect("that was the last");
    let names: Vec<_> = packet.stages.iter().map(|stage| stage.what.name()).collect();
    let told = ["received", "steered", "taken", "prepared", "transmitted", "transmitted"];
    assert_eq!(names, told);
    assert!(packet.complete && !together.is_empty());
    let rest: Vec<Followed> = together.rest().collect();
    assert!(matches!(&rest[..], [Followed { packet: 2, complete: false, .. }]), "{rest:?}");
}

/// The names are the API's.
#[test]
fn a_line_is_json_with_these_names() {
    let route = TraceWhat::Route {
        destination: "10.1.0.2".into(),
        prefix: Some("10.1.0.0/16".into()),
        kind: Some(RouteKind::Via),
        next_hop: 1537,
    };
    let line = TraceLine::Stage(stage(4, 1, 5_000_000_000, route));
    let json = serde_json::to_string(&line).unwrap();
    let expected =
        r#"{"event":"stage","packet":4,"worker":1,"time_ns":5000000000,"stage":"route","#;
    let of_route =
        r#""destination":"10.1.0.2","prefix":"10.1.0.0/16","kind":"via","next_hop":1537}"#;
    assert_eq!(json, format!("{expected}{of_route}"));
    assert_eq!(serde_json::from_str::<TraceLine>(&json).unwrap(), line);
    for what in [TraceWhat::Changed, TraceWhat::Reply, TraceWhat::Delivered, received()] {
        let json = serde_json::to_value(&what).unwrap();
        assert_eq!(json["stage"], what.name());
    }
}

#[test]
fn a_packet_is_a_block_with_the_time_between_its_stages() {
    let dropped = TraceWhat::Dropped { reason: "no_route".into(), explanation: "nowhere".into() };
    let held = TraceWhat::Held { port: "wan".into(), address: "10.1.0.2".into() };
    let stages = vec![
        stage(1, 0, 12_003_004_005, received()),
        stage(1, 0, 12_003_007_117, held),
        stage(1, 1, 12_003_007_118, TraceWhat::Released { waited_ns: 1_000_000_001 }),
        stage(1, 1, 13_003_007_118, dropped),
    ];
    let text = block(&Followed { packet: 1, complete: true, stages });
    let expected = "\
packet 1, 12.003 004 005 s after the daemon's start
  +0.000 000 000  worker 0  received     by lan, queue 3, 60 bytes: \
02:00:00:00:01:00 > 02:00:00:00:00:00, 10.0.0.2:7 > 10.1.0.2:9 UDP, TTL 64
  +0.000 003 112  worker 0  held         until 10.1.0.2 on wan answers
  +0.000 000 001  worker 1  released     after 1.000 000 001 s
  +1.000 000 000  worker 1  dropped      no_route: nowhere

";
    assert_eq!(text, expected);
}

#[test]
fn a_header_is_a_line_whatever_it_is() {
    let frame = |ether_type: &[u8], rest: &[u8]| {
        let macs = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        header::line(&[&macs[..], ether_type, rest].concat())
    };
    let macs = "02:00:00:00:00:02 > 02:00:00:00:00:01";
    let mut v4 = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 9, 17, 0, 0, 10, 0, 0, 2, 10, 1, 0, 2];
    v4.extend([0, 7, 0, 9, 0, 8, 0, 0]);
    let udp = "10.0.0.2:7 > 10.1.0.2:9 UDP, TTL 9";
    assert_eq!(frame(&[8, 0], &v4), format!("{macs}, {udp}"));
    assert_eq!(frame(&[0x81, 0, 0, 5, 8, 0], &v4), format!("{macs}, 802.1Q 5, {udp}"));
    v4[7] = 9;
    let later = "10.0.0.2 > 10.1.0.2 UDP, TTL 9, a later fragment";
    assert_eq!(frame(&[8, 0], &v4), format!("{macs}, {later}"));
    let mut v6 = vec![0x60, 0, 0, 0, 0, 8, 6, 7];
    v6.extend("2001:db8::2".parse::<std::net::Ipv6Addr>().unwrap().octets());
    v6.extend("2001:db8:1::2".parse::<std::net::Ipv6Addr>().unwrap().octets());
    v6.extend([0, 7, 0, 9, 0, 8, 0, 0]);
    let tcp = "[2001:db8::2]:7 > [2001:db8:1::2]:9 TCP, hop limit 7";
    assert_eq!(frame(&[0x86, 0xdd], &v6), format!("{macs}, {tcp}"));
    v6[6] = 58;
    let ping = "2001:db8::2 > 2001:db8:1::2 ICMPv6, hop limit 7";
    assert_eq!(frame(&[0x86, 0xdd], &v6), format!("{macs}, {ping}"));
    assert_eq!(frame(&[8, 6], &[]), format!("{macs}, ARP"));
    assert_eq!(frame(&[0x88, 0xcc], &[1]), format!("{macs}, ether type 0x88cc"));
    assert_eq!(frame(&[8, 0], &[0x45, 0]), format!("{macs}, a bad IP header"));
    assert_eq!(header::line(&[1, 2, 3]), "no Ethernet header");
    for len in 0..v6.len() {
        frame(&[0x86, 0xdd], &v6[..len]); // The packet need not be whole.
    }
}
