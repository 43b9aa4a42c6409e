//! The XDP program: what it says, and that it comes and goes with its owner. Needs root.

mod common;

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

fn loaded() -> Option<XskProgram> {
    XskProgram::load(4).map_err(common::skip).ok()
}
