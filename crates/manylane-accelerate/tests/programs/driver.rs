//! The program that forwards in drivers (XDP), on links between hosts, in front of the one at tcx. Needs root.

use crate::common;
use std::os::fd::AsFd;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::packet::{V4, V6, v4, v6};
use crate::rig::*;
use manylane_accelerate::programs::{
    DRIVER_EGRESS, DRIVER_EGRESS_PIECES, DRIVER_INGRESS, Driver, DriverRow, Link, PASS, REDIRECTED,
    SampledBy, TryOptions,
};
use manylane_io::bpf::MuteProgram;
use manylane_io::interface::Interface;
use manylane_io::namespace::Host;
use manylane_io::netlink::{LinkEnd, Netlink, XdpFeatures};
use manylane_io::poll::poll;
use manylane_io::station::Station;
use manylane_lab::generator::LiveSink;

const TO: &str = "198.51.100.7";
const TO6: &str = "2001:db8:2::7";
const INGRESS_MAC: [u8; 6] = crate::packet::OURS;
const SOURCE: [u8; 6] = [2, 0, 0, 0, 1, 1];
const SINK: [u8; 6] = [2, 0, 0, 0, 1, 2];

/// A host on either side of a router whose kernel forwards nothing. The sink's end has GRO: only then does a veth
/// take what is redirected to its peer.
struct Lab {
    source: Host,
    router: Host,
    sink: Host,
}

impl Lab {
    fn new() -> Option<Lab> {
        Lab::with_mtu(None)
    }

    fn with_mtu(mtu: Option<u32>) -> Option<Lab> {
        let [source, router, sink] = ["source", "router", "sink"].map(common::host);
        let lab = Lab { source: source?, router: router?, sink: sink? };
        [&lab.source, &lab.router, &lab.sink].into_iter().for_each(common::silence);
        let end = |name: &str, mac| LinkEnd { mtu, ..LinkEnd::new(name).mac(mac) };
        common::connect(&lab.source, end("s0", SOURCE), &lab.router, end("r0", INGRESS_MAC));
        common::connect(&lab.router, end("r1", EGRESS_MAC), &lab.sink, end("d0", SINK));
        gro(&lab.sink, "d0", "on");
        Some(lab)
    }

    fn interface(&self, name: &'static str) -> Interface {
        self.router.run(move || Interface::read(name).expect("it was just made"))
    }

    /// The tables know both links, as port 3 and port 4, both in the driver tier; the map of devices has r1.
    fn rig(&self) -> Option<(Rig, Driver)> {
        let mut rig = Rig::new()?;
        let both = ["r0", "r1"].map(|name| self.interface(name).index);
        for (port, (interface, mac)) in (3..).zip(both.into_iter().zip([INGRESS_MAC, EGRESS_MAC])) {
            rig.tables.port_of.store(interface as usize, port as u16);
            rig.tables.ports.store(port * 16 + 1, interface);
            rig.port_with(port, mac, ALL);
        }
        rig.record_to(1, (both[1], 4), 1500, [SINK, EGRESS_MAC]);
        rig.record_to(3, (both[0], 3), 1500, [SOURCE, INGRESS_MAC]);
        // Of this thread's namespace: that is the router's.
        let egress = both[1];
        let (rig, driver) = self.router.run(move || {
            let driver = rig.fast.driver().expect("it loads where the other did");
            driver.set_device(4, Some(egress)).expect("it is there");
            (rig, driver)
        });
        Some((rig, driver))
    }

    /// Both programs on r0.
    fn attach(&self, rig: Rig, driver: Driver, pieces: bool) -> (Rig, Driver, [Link; 2]) {
        self.router.run(move || {
            let interface = Interface::read("r0").expect("it was just made");
            let behind = rig.fast.attach(&interface).expect("root may");
            let link = driver.attach(&interface, pieces).expect("root may");
            (rig, driver, [link, behind])
        })
    }

    fn features(&self, name: &'static str) -> XdpFeatures {
        let index = self.interface(name).index;
        self.router.run(move || XdpFeatures::read(index).expect("the kernel says"))
    }
}

const ALL: u32 =
    INGRESS | EGRESS | FORWARDING | DRIVER_INGRESS | DRIVER_EGRESS | DRIVER_EGRESS_PIECES;

#[test]
fn frames_cross_the_router_in_its_driver() {
    let Some(lab) = Lab::new() else { return };
    let Some((rig, driver)) = lab.rig() else { return };
    assert!(driver.flush_error().is_none(), "{:?}", driver.flush_error());
    let (rig, driver, links) = lab.attach(rig, driver, false);
    assert_eq!((links[0].interface(), links[0].program()), ("r0", driver.programs()[0]));
    let source = lab.source.run(|| Station::open("s0").expect("root may"));
    let sink = lab.sink.run(|| Station::open("d0").expect("root may"));
    let (four, six) = (v4(TO), V6 { payload: vec![7; 1460], ..v6(TO6) });
    let mut sum = DriverRow::default();
    for (sent, expected) in [
        (four.frame(), aged(V4 { ttl: 63, ..four.clone() }.frame())),
        (six.frame(), aged(V6 { hop_limit: 63, ..six.clone() }.frame())),
    ] {
        source.send(&sent).expect("the link is up");
        assert_eq!(receive(&sink), expected);
        sum.packets_in += 1;
        sum.bytes_in += sent.len() as u64;
        let row = driver.counters().port(3);
        assert_eq!(row, sum, "counted where it came in");
        let out = driver.counters().port(4);
        let DriverRow { packets_in, bytes_in, .. } = row;
        assert_eq!((out.packets_out, out.bytes_out), (packets_in, bytes_in), "and where it left");
    }
    assert_eq!(rig.fast.counters().port(3), [0; 32], "nothing came to the other program");
    assert_eq!(driver.failure(4), None);
}

/// The program at tcx judges what the driver's program passes on, as if it were the only program.
#[test]
fn what_is_not_for_it_comes_to_the_program_behind_it_unchanged() {
    let Some(lab) = Lab::new() else { return };
    let Some((rig, driver)) = lab.rig() else { return };
    let (mut rig, driver, _links) = lab.attach(rig, driver, false);
    let source = lab.source.run(|| Station::open("s0").expect("root may"));
    let sink = lab.sink.run(|| Station::open("d0").expect("root may"));
    let counters = rig.fast.counters();
    let expected = aged(V4 { ttl: 63, ..v4(TO) }.frame());
    let mut forwarded = 0;
    let mut behind = |what: &str| {
        source.send(&v4(TO).frame()).expect("the link is up");
        assert_eq!(receive(&sink), expected, "{what}");
        forwarded += 1;
        assert_eq!(counters.port(3)[0], forwarded, "{what}");
    };
    rig.port_with(3, INGRESS_MAC, ALL & !DRIVER_INGRESS);
    behind("an ingress that is none");
    rig.port_with(3, INGRESS_MAC, ALL);
    rig.port_with(4, EGRESS_MAC, ALL & !DRIVER_EGRESS);
    behind("an egress that is none");
    rig.port_with(4, EGRESS_MAC, ALL);
    let interface = rig.tables.ports.load(4 * 16 + 1);
    rig.tables.ports.store(4 * 16 + 1, interface + 1);
    behind("a record of another interface");
    rig.tables.ports.store(4 * 16 + 1, interface);
    driver.set_device(4, None).expect("it is there");
    behind("no device");
    assert_eq!(driver.counters().port(4).refused, 1);

    // A tag that is in the bytes: of a VLAN that no interface has.
    let mut tagged = v4(TO).frame();
    tagged.splice(12..12, [0x81, 0x00, 0, 100]);
    source.send(&tagged).expect("the link is up");
    until(|| counters.port(3)[5] == 1);
    assert_eq!(driver.counters().port(3), DriverRow::default(), "it has forwarded nothing");
}

/// The device says that it takes frames, and does not: its peer's GRO was switched off while that was down.
#[test]
fn a_device_that_refuses_frames_gets_no_more_of_them() {
    let Some(lab) = Lab::new() else { return };
    let Some((rig, driver)) = lab.rig() else { return };
    let (rig, mut driver, _links) = lab.attach(rig, driver, false);
    let source = lab.source.run(|| Station::open("s0").expect("root may"));
    let sink = lab.sink.run(|| Station::open("d0").expect("root may"));
    let send = || source.send(&v4(TO).frame()).expect("the link is up");
    send();
    receive(&sink);
    lab.sink.run(|| Netlink::open().and_then(|mut n| n.set_down("d0")).expect("it is ours"));
    gro(&lab.sink, "d0", "off");
    lab.sink.run(|| Netlink::open().and_then(|mut n| n.set_up("d0")).expect("it is ours"));
    lab.router.run(|| common::await_queue("r1"));
    // The kernel notified the former station that the device went down.
    let sink = lab.sink.run(|| Station::open("d0").expect("root may"));
    assert!(lab.features("r1").transmits, "it still says that it does");
    send();
    until(|| driver.failure(4).is_some());
    let failure = driver.failure(4).expect("just seen");
    assert_eq!((failure.flushes, failure.frames, failure.errno), (1, 1, libc::ENXIO));

    let before = rig.fast.counters().port(3)[0];
    for _ in 0..10 {
        send();
        receive(&sink);
    }
    assert_eq!(rig.fast.counters().port(3)[0], before + 10, "the other program's");
    driver.clear_failure(4);
    assert_eq!(driver.failure(4), None);
    send();
    until(|| driver.failure(4).is_some());
}

#[test]
fn a_frame_in_pieces_is_forwarded_where_the_egress_takes_such() {
    let Some(lab) = Lab::with_mtu(Some(9000)) else { return };
    let Some((mut rig, driver)) = lab.rig() else { return };
    let egress = lab.interface("r1").index;
    rig.record_to(1, (egress, 4), 9000, [SINK, EGRESS_MAC]);
    let (mut rig, driver, _links) = lab.attach(rig, driver, true);
    let source = lab.source.run(|| Station::open("s0").expect("root may"));
    let sink = lab.sink.run(|| Station::open("d0").expect("root may"));
    let (four, six) =
        (V4 { payload: vec![7; 8000], ..v4(TO) }, V6 { payload: vec![7; 8000], ..v6(TO6) });
    let frames = [
        (four.frame(), aged(V4 { ttl: 63, ..four }.frame())),
        (six.frame(), aged(V6 { hop_limit: 63, ..six }.frame())),
    ];
    for (sent, expected) in &frames {
        source.send(sent).expect("the link is up");
        assert_eq!(receive(&sink), *expected);
    }
    assert_eq!(driver.counters().port(3).packets_in, 2);
    rig.port_with(4, EGRESS_MAC, ALL & !DRIVER_EGRESS_PIECES);
    for (sent, expected) in &frames {
        source.send(sent).expect("the link is up");
        assert_eq!(receive(&sink), *expected);
    }
    assert_eq!((driver.counters().port(3).packets_in, rig.fast.counters().port(3)[0]), (2, 2));
}

#[test]
fn another_program_in_the_driver_stays_and_is_told() {
    let Some(lab) = Lab::new() else { return };
    let Some((_rig, driver)) = lab.rig() else { return };
    let error = lab.router.run(move || {
        let interface = Interface::read("r0").expect("it was just made");
        let _other = LiveSink::attach(&interface).expect("root may");
        driver.attach(&interface, false).map(drop).expect_err("there is one")
    });
    let error = error.to_string();
    assert!(error.contains("the driver of r0") && error.contains("another program"), "{error}");
}

/// The kernel sends the message to no socket in particular; here it is about a device without native XDP.
#[test]
fn a_device_whose_driver_knows_nothing_of_it_is_told() {
    let Some(lab) = Lab::new() else { return };
    let Some((_rig, driver)) = lab.rig() else { return };
    let (features, error) = lab.router.run(move || {
        let interface = Interface::read("lo").expect("every namespace has one");
        let error = driver.attach(&interface, false).map(drop).expect_err("it knows nothing");
        (XdpFeatures::read(interface.index).expect("the kernel says"), error)
    });
    assert_eq!(features, XdpFeatures::default());
    assert!(error.to_string().contains("takes no XDP programs"), "{error}");
}

/// The features follow the peer, and the kernel notifies every listener.
#[test]
fn features_follow_the_peer_and_are_told() {
    let Some(lab) = Lab::new() else { return };
    let mut notices = lab.router.run(|| {
        let notices = XdpFeatures::notices().expect("everybody may hear");
        notices.expect("the kernel says")
    });
    let _ = notices.drain();
    assert!(lab.features("r1").transmits && lab.features("r1").redirects);
    assert!(!lab.features("r0").transmits);
    gro(&lab.sink, "d0", "off");
    poll(&[notices.as_fd()], Some(Duration::from_secs(20))).expect("one descriptor");
    assert!(notices.drain().expect("it is open"), "it was told");
    assert!(!lab.features("r1").transmits);
}

/// The same frames tried without a link.
#[test]
fn a_frame_can_be_tried() {
    let Some(lab) = Lab::new() else { return };
    lab.router.run(|| {
        let Some(mut rig) = Rig::new() else { return };
        let driver = rig.fast.driver().expect("it loads where the other did");
        rig.port(1, INGRESS | EGRESS | FORWARDING | DRIVER_INGRESS);
        rig.port(2, EGRESS | DRIVER_EGRESS | DRIVER_EGRESS_PIECES);
        rig.tables.ports.store(2 * 16 + 1, 77);
        let lo = TryOptions::default();
        let sent = v4(TO).frame();
        let tried = driver.try_frame(&sent, &lo, false).expect("the kernel tries it");
        assert_eq!(tried, (PASS, sent.clone()), "no device");
        let index = Interface::read("r1").expect("it is there").index;
        driver.set_device(2, Some(index)).expect("it is there");
        let mut sflow = rig.fast.take_sflow().expect("nobody has it");
        sflow.rates.set(1, Some(1)).expect("a rate");
        for pieces in [false, true] {
            let (action, frame) = driver.try_frame(&sent, &lo, pieces).expect("it is tried");
            assert_eq!(action, REDIRECTED);
            assert_eq!(frame[12..], V4 { ttl: 63, ..v4(TO) }.frame()[12..]);
            assert_eq!(frame[6..12], EGRESS_MAC);
        }
        for (what, frame) in [
            ("expired", V4 { ttl: 1, ..v4(TO) }.frame()),
            ("elsewhere", v4("203.0.113.7").frame()),
            ("cut", sent[..33].to_vec()),
        ] {
            let tried = driver.try_frame(&frame, &lo, false).expect("it is tried");
            assert_eq!(tried, (PASS, frame), "{what}");
        }
        // What it passes on is noted by the program behind it.
        let mut noted = Vec::new();
        sflow.notes.take(64, |note| noted.push((note.by, note.egress, note.header)));
        let expected = (SampledBy::Driver, Some((77, [2, 0, 0, 0, 0, 1])), sent);
        assert_eq!(noted, [expected.clone(), expected]);
    });
}

/// A program that was at tcx before ours sees first what the driver's program passes on.
#[test]
fn it_goes_with_its_link() {
    let Some(lab) = Lab::new() else { return };
    let Some((rig, driver)) = lab.rig() else { return };
    let (rig, driver, [link, behind]) = lab.attach(rig, driver, false);
    drop(link);
    let source = lab.source.run(|| Station::open("s0").expect("root may"));
    source.send(&v4(TO).frame()).expect("the link is up");
    until(|| rig.fast.counters().port(3)[0] == 1);
    assert_eq!(driver.counters().port(3), DriverRow::default());
    drop(behind);
    let _mute = lab.router.run(|| {
        let interface = Interface::read("r0").expect("it was just made");
        let mute = MuteProgram::load().and_then(|mute| mute.attach(&interface));
        mute.expect("nobody else is there")
    });
}

/// As the egress sends it.
fn aged(mut frame: Vec<u8>) -> Vec<u8> {
    frame[..12].copy_from_slice(&[SINK, EGRESS_MAC].concat());
    frame
}

fn gro(host: &Host, name: &'static str, value: &'static str) {
    let done = host.run(move || Command::new("ethtool").args(["-K", name, "gro", value]).status());
    assert!(done.expect("ethtool is installed").success(), "gro {value} on {name}");
}

fn receive(station: &Station) -> Vec<u8> {
    let mut buffer = [0; 10_000];
    let ready = poll(&[station.as_fd()], Some(Duration::from_secs(20))).expect("one descriptor");
    assert!(ready.is_ready(0), "nothing came");
    station.receive(&mut buffer).expect("it is up").expect("it is ready").to_vec()
}

fn until(true_by_then: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !true_by_then() {
        assert!(Instant::now() < end, "it does not happen");
        thread::yield_now();
    }
}
