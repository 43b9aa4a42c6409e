//! The XDP program: what it says, and that it comes and goes with its owner. Needs root.

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use manylane_io::bpf::{Attach, Mode, XskProgram};
use manylane_io::interface::Interface;
use manylane_io::netlink::{LinkEnd, Netlink};

/// linux/bpf.h.
const XDP_PASS: u32 = 2;

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

/// Nothing of ours may forward, or swallow, when nobody is left to answer for it (I7).
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
            .args(["--exact", "holds_the_program_of_v0", "--ignored", "--nocapture"])
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

/// The committed program, or the object that `MANYLANE_BPF_OBJECT` names: `ci.sh bpf` has another
/// compiler's tried this way.
fn loaded() -> Option<XskProgram> {
    let program = match std::env::var_os("MANYLANE_BPF_OBJECT") {
        Some(path) => {
            let object = std::fs::read(&path).expect("MANYLANE_BPF_OBJECT can be read");
            XskProgram::load_object(&object, 4)
        }
        None => XskProgram::load(4),
    };
    program.map_err(common::skip).ok()
}
