//! The BPF programs: what they say, and that they come and go with their owner. Needs root.

use crate::common;
use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::packet;
use manylane_io::bpf::{Attach, Mode, MuteProgram, SteerProgram, XskProgram};
use manylane_io::interface::Interface;
use manylane_io::netlink::{self, LinkEnd, Netlink};

/// linux/bpf.h.
const XDP_PASS: u32 = 2;
const TCX_DROP: u32 = 2;

/// The verdict with a socket is in `af_xdp.rs`, where sockets are.
#[test]
fn without_a_socket_every_frame_is_the_kernels() {
    let Some(mut program) = loaded() else { return };
    for length in [14, 60, 1500, 3000] {
        let frame = vec![0xff; length];
        assert_eq!(program.verdict(&frame).expect("the kernel tries it"), XDP_PASS);
    }
}

#[test]
fn it_leaves_the_interface_with_its_link() {
    let Some(host) = common::host("xdp") else { return };
    host.run(|| {
        let mut netlink = Netlink::open().expect("netlink is always there");
        netlink
            .create_veth(&LinkEnd::new("v0"), &LinkEnd::new("v1"), None)
            .expect("the names are free");
        let facts = Interface::read("v0").expect("it was just made");
        let Some(program) = loaded() else { return };
        let link = program.attach(&facts, Attach::Best).expect("veth takes it");
        assert_eq!(link.mode(), Mode::Native);

        let again = loaded().expect("it loaded a moment ago").attach(&facts, Attach::Best);
        let refused = again.err().expect("one program per interface").to_string();
        assert!(refused.contains("; native: ") && refused.contains("; generic: "), "{refused}");
        assert!(refused.contains("Device or resource busy"), "{refused}");

        drop(link);
        let again = loaded().expect("it loaded a moment ago");
        let link = again.attach(&facts, Attach::Only(Mode::Generic)).expect("the place is free");
        assert_eq!(link.mode(), Mode::Generic);
    });
}

/// The program that reads tags loads for a TAP too, whose driver does not report them.
#[test]
fn only_a_driver_that_tells_tags_is_believed_to() {
    let Some(host) = common::host("xdp-tags") else { return };
    host.run(|| {
        let mut netlink = Netlink::open().expect("netlink is always there");
        netlink
            .create_veth(&LinkEnd::new("v0"), &LinkEnd::new("v1"), None)
            .expect("the names are free");
        let made = Command::new("ip").args(["tuntap", "add", "dev", "t0", "mode", "tap"]).status();
        assert!(made.expect("iproute2 is there").success());
        for (name, tells) in [("v0", true), ("t0", false)] {
            let facts = Interface::read(name).expect("it was just made");
            let Some(program) = loaded() else { return };
            let link = program.attach(&facts, Attach::Only(Mode::Native)).expect("both take it");
            assert_eq!((link.mode(), link.has_tags()), (Mode::Native, tells), "{name}");
        }
        assert!(!netlink::tells_tags(1).expect("the loopback device is there"));
        assert!(netlink::tells_tags(1 << 20).is_err(), "there is no such device");
    });
}

/// No program may forward or drop packets after the process that attached it has ended (I7).
#[test]
fn it_leaves_with_a_process_that_is_killed() {
    let Some(host) = common::host("killed") else { return };
    host.run(|| {
        let mut netlink = Netlink::open().expect("netlink is always there");
        netlink
            .create_veth(&LinkEnd::new("v0"), &LinkEnd::new("v1"), None)
            .expect("the names are free");
        let facts = Interface::read("v0").expect("it was just made");
        let attach = || loaded()?.attach(&facts, Attach::Best).ok();
        if loaded().is_none() {
            return;
        }
        // The child lives in this thread's namespace.
        let mut child = Command::new(std::env::current_exe().expect("we run from a file"))
            .args(["--exact", "bpf::holds_the_program_of_v0", "--ignored", "--nocapture"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("we can be run again");
        let lines = BufReader::new(child.stdout.take().expect("it was piped")).lines();
        lines.map_while(Result::ok).find(|line| line.contains("attached")).expect("it attaches");
        assert!(attach().is_none(), "one program per interface");
        child.kill().expect("it is ours"); // SIGKILL
        child.wait().expect("it is ours");
        let end = Instant::now() + Duration::from_secs(5);
        while attach().is_none() {
            assert!(Instant::now() < end, "the program is still there");
            std::thread::yield_now();
        }
    });
}

#[test]
#[ignore = "the victim in it_leaves_with_a_process_that_is_killed"]
fn holds_the_program_of_v0() {
    let facts = Interface::read("v0").expect("the parent made it");
    let _link = loaded().expect("it did before").attach(&facts, Attach::Best).expect("first");
    println!("attached");
    loop {
        std::thread::park();
    }
}

/// `lo` has no driver that could run it.
#[test]
fn a_device_without_native_mode_gets_generic() {
    let Some(host) = common::host("xdp-lo") else { return };
    host.run(|| {
        let facts = Interface::read("lo").expect("every namespace has one");
        let Some(program) = loaded() else { return };
        assert_eq!(
            program.attach(&facts, Attach::Best).expect("any will do").mode(),
            Mode::Generic
        );
    });
}

/// Whatever it is: a frame that passed would be answered or forwarded twice.
#[test]
fn a_muted_stack_gets_no_frame() {
    let program = match other_object("mute.bpf.o") {
        Some(object) => MuteProgram::load_object(&object),
        None => MuteProgram::load(),
    };
    let Some(mut program) = program.map_err(common::skip).ok() else { return };
    let [v4, v6] = ["10.0.0.1:7", "[fd00::1]:7"].map(|text| text.parse().expect("an address"));
    for frame in [
        vec![0xff; 60],
        packet::udp(([2; 6], v4), ([4; 6], v4), b"four"),
        packet::udp(([2; 6], v6), ([4; 6], v6), b"six"),
        packet::tcp(([2; 6], [4; 6]), false, 3000),
    ] {
        assert_eq!(program.verdict(&frame).expect("the kernel tries it"), TCX_DROP);
    }
}

/// The same both ways; fragments, which have no ports but the first, by their addresses alone.
#[test]
fn flows_are_steered_by_what_all_their_packets_have() {
    let program = match other_object("steer.bpf.o") {
        Some(object) => SteerProgram::load_object(&object),
        None => SteerProgram::load(),
    };
    let Some(mut program) = program.map_err(common::skip).ok() else { return };
    let mut hash = |frame: &[u8]| program.hash(frame).expect("the kernel tries it");
    for addresses in [["10.0.0.1", "10.9.8.7"], ["fd00::1", "fd00::2:3"]] {
        let [one, other] = addresses.map(|text| text.parse().expect("an address"));
        let frame = |from, to| {
            let [from, to] = [from, to].map(|(address, port)| SocketAddr::new(address, port));
            packet::udp(([2; 6], from), ([4; 6], to), b"payload")
        };
        let there = frame((one, 1000), (other, 53));
        assert_eq!(hash(&there), hash(&frame((other, 53), (one, 1000))));
        let mut queues = |count| {
            let queues = (0..64).map(|flow| hash(&frame((one, 1000 + flow), (other, 53))) % count);
            queues.collect::<HashSet<_>>().len()
        };
        assert_eq!((queues(2), queues(3), queues(8)), (2, 3, 8));
    }
    let [one, other] = ["10.0.0.1", "10.9.8.7"].map(|text| text.parse().expect("an address"));
    let datagram = |port| {
        let [from, to] = [(one, port), (other, 53)].map(|(ip, port)| SocketAddr::new(ip, port));
        packet::udp(([2; 6], from), ([4; 6], to), b"payload")
    };
    // More fragments follow; the last, at an offset.
    let [mut first, mut last] = [datagram(1000), datagram(2000)];
    (first[20], last[21]) = (0x20, 100);
    assert_eq!(hash(&first), hash(&last));
    assert_eq!(hash(&[0xff; 60]), 0, "neither IPv4 nor IPv6");
}

/// The committed program, or another compiler's.
fn loaded() -> Option<XskProgram> {
    let program = match other_object("xsk.bpf.o") {
        Some(object) => XskProgram::load_object(&object, 4),
        None => XskProgram::load(4),
    };
    program.map_err(common::skip).ok()
}

/// The object that `MANYLANE_BPF_OBJECT` names, if it is of that name: `ci.sh bpf` has another
/// compiler's tried this way.
fn other_object(name: &str) -> Option<Vec<u8>> {
    let path = PathBuf::from(std::env::var_os("MANYLANE_BPF_OBJECT")?);
    path.ends_with(name).then(|| std::fs::read(&path).expect("MANYLANE_BPF_OBJECT can be read"))
}
