//! Captures of the programs that forward. Needs root.

use std::thread;

use crate::packet::{V4, V6, v4, v6};
use crate::rig::*;
use manylane_accelerate::programs::{Capture, TryOptions, Wanted};
use manylane_client::{CpuRings, SETTLED};
use manylane_io::bpf::rings::Counted;
use manylane_io::libpcap;
use manylane_net::filter::{Instruction, Program};

const TO: &str = "198.51.100.7";
const TO6: &str = "2001:db8:2::7";
const EXPIRED: u8 = 9;
const ALL: u8 = 0b1111;

/// A packet that was captured.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    point: u8,
    port: u16,
    verdict: u8,
    len: u32,
    is_undecided: bool,
    bytes: Vec<u8>,
}

fn wanted(points: u8) -> Wanted {
    Wanted { points, port: None, snap: u32::MAX, filter: None }
}

fn reader(capture: &Capture) -> CpuRings {
    let rings = capture.rings();
    CpuRings::new(rings.descriptor(), rings.shape()).expect("the table can be mapped")
}

fn seen(rings: &mut CpuRings) -> Vec<Seen> {
    thread::sleep(2 * SETTLED); // What is younger is kept back.
    let mut all = Vec::new();
    rings.receive(|copied| {
        all.push(Seen {
            point: copied.point,
            port: copied.port,
            verdict: copied.verdict,
            len: copied.len,
            is_undecided: copied.is_undecided,
            bytes: copied.bytes.to_vec(),
        });
        true
    });
    all
}

#[test]
fn packets_are_seen_as_they_come_and_as_they_leave() {
    let Some(rig) = Rig::new() else { return };
    let capture = rig
        .fast
        .targets()
        .open(wanted(ALL), 1 << 16)
        .expect("the kernel takes it")
        .expect("none is open");
    let mut rings = reader(&capture);
    for frame in [v4(TO).frame(), v6(TO6).frame(), V4 { payload: vec![3; 1400], ..v4(TO) }.frame()]
    {
        let tried = rig.try_frame(&frame);
        assert_eq!(tried.verdict, 0);
        let all = seen(&mut rings);
        let len = frame.len() as u32;
        let of =
            |point, port, bytes| Seen { point, port, verdict: 0, len, is_undecided: false, bytes };
        assert_eq!(all, [of(0, 1, frame), of(1, 2, tried.frame)]);
    }
    for frame in [V4 { ttl: 1, ..v4(TO) }.frame(), V6 { hop_limit: 1, ..v6(TO6) }.frame()] {
        assert_eq!(rig.verdict(&frame), EXPIRED);
        let all = seen(&mut rings);
        let len = frame.len() as u32;
        let of = |point, verdict| Seen {
            point,
            port: 1,
            verdict,
            len,
            is_undecided: false,
            bytes: frame.clone(),
        };
        assert_eq!(all, [of(0, 0), of(3, EXPIRED)]);
    }
    assert_eq!(capture.rings().counted(), Counted { matched: 10, lost: 0 });
}

/// The programs write while a reader on another CPU reads; rings fill, and their ends are met at all places.
#[test]
fn records_are_whole_while_they_are_written() {
    const BURSTS: usize = 400;
    const BURST: u32 = 100;
    let Some(rig) = Rig::new() else { return };
    // Of packets that the kernel gets no byte changes.
    let frames: Vec<_> = [0, 1, 7, 46, 200, 731, 1400]
        .map(|len| V4 { ttl: 1, payload: vec![len as u8; len], ..v4(TO) }.frame())
        .into();
    for ring in [1 << 13, 1 << 20] {
        let capture = rig.fast.targets().open(wanted(1), ring).expect("the kernel takes it");
        let capture = capture.expect("none is open");
        let mut rings = reader(&capture);
        let mut shown = 0;
        let mut see = |rings: &mut CpuRings| {
            rings.receive(|copied| {
                let is_one = frames.iter().any(|frame| *frame == copied.bytes);
                assert!(is_one && copied.len as usize == copied.bytes.len(), "{copied:?}");
                shown += 1;
                true
            });
        };
        thread::scope(|scope| {
            let writes = scope.spawn(|| {
                let options = TryOptions { repeat: BURST, ..TryOptions::default() };
                for frame in frames.iter().cycle().take(BURSTS) {
                    rig.fast.time_packet(frame, &options).expect("the kernel tries it");
                }
            });
            while !writes.is_finished() {
                see(&mut rings);
            }
        });
        while rings.is_waiting() {
            see(&mut rings);
        }
        let counted = rings.of_programs();
        assert_eq!((counted, counted.matched), (capture.rings().counted(), 40_000));
        assert_eq!(shown + counted.lost, counted.matched, "of rings of {ring} bytes");
        assert!(shown > 0);
        if ring == 1 << 13 {
            assert!(counted.lost > 0, "a ring was never full");
        }
    }
}

fn filter(expression: &str) -> Program {
    let instructions = libpcap::compile(expression, 65535).expect("it is one");
    Program::new(instructions.into_iter().map(Instruction::from).collect()).expect("it is sound")
}

#[test]
fn a_filter_runs_where_the_packet_is() {
    let Some(rig) = Rig::new() else { return };
    for (expression, passes) in [
        ("ip", [true, false]),
        ("ip6", [false, true]),
        ("udp port 2000", [true, true]),
        ("udp port 2001", [false, false]),
        ("dst host 198.51.100.7 or tcp", [true, false]),
        ("greater 60", [false, true]),
    ] {
        let wanted = Wanted { filter: Some(filter(expression)), ..wanted(1) };
        let capture = rig
            .fast
            .targets()
            .open(wanted, 1 << 16)
            .expect("the kernel takes it")
            .expect("none is open");
        assert_eq!(capture.untranslated(), None, "{expression}");
        let mut rings = reader(&capture);
        for (frame, passes) in [v4(TO).frame(), v6(TO6).frame()].into_iter().zip(passes) {
            rig.try_frame(&frame);
            let all = seen(&mut rings);
            assert_eq!(all.len(), usize::from(passes), "{expression}: {all:?}");
            assert!(all.iter().all(|one| !one.is_undecided), "{expression}");
        }
    }
}

/// The kernel's verifier follows each filter, and the kernel decides as the interpreter does.
#[test]
fn filters_decide_in_the_kernel_as_here() {
    let Some(rig) = Rig::new() else { return };
    let mut tagged = v4(TO).frame();
    tagged.splice(12..12, [0x81, 0x00, 0, 100]);
    let long = V4 { payload: vec![7; 1400], ..v4(TO) };
    let optional = V4 { first: 0x46, options: vec![1; 4], ..v4(TO) };
    let frames = [v4(TO).frame(), v6(TO6).frame(), long.frame(), optional.frame(), tagged];
    let (mut yes, mut undecided) = (0, 0);
    for expression in [
        "tcp",
        "udp port 2000",
        "port 53 or port 2000 or portrange 3000-4000",
        "vlan 100",
        "vlan and udp",
        "not ip and not ip6",
        "ip6 or len > 1000",
        "ip[0] & 0xf != 5",
        "udp[8:4] = 0x07070707",
        "ip[1000] = 7",
        "ip[2:2] - ((ip[0] & 0xf) << 2) > 8",
        "ether[0] & 1 = 1 or ether[6:4] << (ip[0] & 3) != 0",
    ] {
        let program = filter(expression);
        let wanted = Wanted { filter: Some(program.clone()), ..wanted(1) };
        let capture = rig.fast.targets().open(wanted, 1 << 16).expect("the kernel takes it");
        let capture = capture.expect("none is open");
        assert_eq!(capture.untranslated(), None, "{expression}");
        let mut rings = reader(&capture);
        for frame in &frames {
            rig.try_frame(frame);
            let all = seen(&mut rings);
            let passes = program.run(frame) != 0;
            match &all[..] {
                [] => assert!(!passes, "{expression}: {frame:02x?}"),
                [one] => {
                    assert!(passes || one.is_undecided, "{expression}: {frame:02x?}");
                    assert_eq!(one.bytes, *frame, "{expression}");
                    undecided += u32::from(one.is_undecided);
                }
                more => panic!("{expression}: {more:?}"),
            }
            yes += u32::from(passes);
        }
    }
    assert!(yes > 10 && undecided > 0 && undecided < yes, "{yes} pass, {undecided} are undecided");
}

/// As many captures as may be are open, each sees each packet; then some are closed, in no order.
#[test]
fn captures_are_called_one_after_another() {
    let Some(rig) = Rig::new() else { return };
    let open = || rig.fast.targets().open(wanted(ALL), 1 << 12).expect("the kernel takes it");
    let mut all: Vec<_> = (0..15).map(|_| open().expect("there is room")).collect();
    assert!(open().is_none(), "the sixteenth");
    let frame = v4(TO).frame();
    let mut rounds = 0;
    while !all.is_empty() {
        let mut rings: Vec<_> = all.iter().map(reader).collect();
        rings.iter_mut().for_each(|rings| drop(seen(rings)));
        let tried = rig.try_frame(&frame);
        for rings in &mut rings {
            let seen: Vec<_> = seen(rings).into_iter().map(|one| (one.point, one.bytes)).collect();
            assert_eq!(seen, [(0, frame.clone()), (1, tried.frame.clone())], "{} open", all.len());
        }
        drop(all.remove([0, all.len() - 1, all.len() / 2][rounds % 3]));
        rounds += 1;
    }
    assert_eq!(rig.try_frame(&frame).verdict, 0);
    assert!(open().is_some());
}
