//! All messages of gate, programs and an accelerator that does not start.

use std::io;

use manylane_api::{BindError, ListenError};
use manylane_io::interface_lock::InterfaceLockError;
use manylane_io::netlink::NetlinkError;
use manylane_io::privilege::PrivilegeError;
use manylane_io::sysctl::SysctlError;

use crate::accelerator::{AccelerateError, LockError};
use crate::gate::{Bypass, GateError};
use crate::messages::Page;
use crate::programs::AttachError;

const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EIO: i32 = 5;

fn said(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

fn unlinked() -> NetlinkError {
    NetlinkError::Unavailable { source: said(EPERM) }
}

fn exposed() -> ListenError {
    ListenError::Exposed { address: "192.0.2.1:9176".parse().unwrap() }
}

fn answered() -> BindError {
    BindError::Answered { path: "/run/s".into() }
}

fn no_user() -> PrivilegeError {
    PrivilegeError::NoSuchUser { name: "nobdy".into() }
}

#[test]
fn the_gate() {
    let present = || vec!["lo".into(), "eth0".into()];
    let setting = SysctlError { name: "net/ipv4/ip_forward".into(), source: said(ENOENT) };
    messages!(GateError {
        Netlink: [(Netlink(unlinked()), ["netlink socket"], "needs root")],
        Setting: [(Setting(setting), ["net/ipv4/ip_forward"], "look for a mistyped interface")],
        NoSuchInterface: [(
            NoSuchInterface { name: "eth7".into(), present: present() },
            ["eth7"],
            "existing interfaces: lo, eth0"
        )],
    });
    let mut page = Page::new("UnknownBypass");
    let unknown = Bypass::named(&["xfrm"]).unwrap_err();
    page.row("", &unknown.to_string(), &["\"xfrm\""], "use \"netfilter\"");
    page.finish();
}

#[test]
fn accelerators() {
    let taken = |owner: &str| LockError::Taken { path: "/run/l".into(), owner: owner.into() };
    let refused =
        |number| LockError::Refused { path: "/run/l".into(), step: "open", source: said(number) };
    messages!(LockError {
        Taken: [
            (
                taken("process 7 (eth0)"),
                ["process 7 (eth0)", "/run/l"],
                "stop it, or add interfaces to it"
            ),
            (
                taken("another process"),
                ["another process", "/run/l"],
                "stop it, or add interfaces to it"
            ),
        ],
        Refused: [
            (refused(EPERM), ["open /run/l", "not permitted"], "needs root"),
            (refused(EIO), ["open /run/l", "Input/output error"], "see that /run is there"),
        ],
    });
    let netlink = GateError::Netlink(unlinked());
    let program = manylane_io::bpf::BpfError::Load(Box::new(said(EPERM)));
    messages!(AccelerateError {
        Lock: [(Lock(taken("another process")), ["/run/l"], "stop it")],
        InterfaceLock: [(
            InterfaceLock(InterfaceLockError::Taken {
                interface: "eth0".into(),
                owner: "process 7 (manylane run)".into()
            }),
            ["eth0", "process 7 (manylane run)"],
            "start this one without eth0"
        )],
        Unprivileged: [(
            Unprivileged {
                interfaces: vec!["eth0".into()],
                missing: "CAP_BPF, CAP_PERFMON".into()
            },
            ["eth0", "CAP_BPF, CAP_PERFMON"],
            "start it with `sudo`"
        )],
        Listen: [(Listen(exposed()), ["192.0.2.1:9176"], "name a file with a token")],
        Api: [(Api(answered()), ["/run/s"], "stop it")],
        Privilege: [(Privilege(no_user()), ["nobdy"], "leave out --user")],
        Netlink: [(Netlink(unlinked()), ["netlink socket"], "needs root")],
        Gate: [(Gate(netlink), ["netlink socket"], "needs root")],
        Program: [(Program(program), ["XDP program"], "needs root")],
        NoSuchInterface: [(
            NoSuchInterface { name: "eth7".into(), present: vec!["lo".into()] },
            ["eth7", "existing interfaces: lo"],
            "with --wait"
        )],
        // Its words are held where they are made.
        Interfaces: [(
            Interfaces { what: "eth0 is named twice; name each interface once".into() },
            ["eth0"],
            "name each interface once"
        )],
        System: [(
            System { what: "a thread", source: said(EIO) },
            ["a thread", "Input/output error"],
            "raise `ulimit -n` and `ulimit -u`"
        )],
    });
}

#[test]
fn links_of_programs() {
    let refused = |number| AttachError::Refused {
        interface: "eth0".into(),
        step: "attach to",
        source: said(number),
    };
    let driver = |number| AttachError::Driver { interface: "eth0".into(), source: said(number) };
    messages!(AttachError {
        Refused: [
            (refused(libc::EPERM), ["eth0", "Operation not permitted"], "needs root"),
            (refused(libc::EINVAL), ["eth0"], "needs Linux 6.6"),
            (refused(libc::ENODEV), ["eth0"], "`ip link` lists"),
            (refused(libc::ERANGE), ["eth0"], "bpftool net shows whose"),
            (refused(libc::EIO), ["eth0", "Input/output error"], "`manylane doctor`"),
        ],
        Contended: [(
            Contended { interface: "eth0".into(), tries: 8 },
            ["eth0", "8 times"],
            "see bpftool net"
        )],
        Driver: [
            (driver(libc::EPERM), ["eth0", "Operation not permitted"], "needs root"),
            (driver(libc::ENODEV), ["eth0"], "`ip link` lists"),
            (driver(libc::EBUSY), ["eth0"], "bpftool net shows whose"),
            (driver(libc::EOPNOTSUPP), ["eth0"], "leave it at the ingress tier"),
            (driver(libc::EINVAL), ["eth0"], "MTU, queues (ethtool -l) or offloads"),
            (driver(libc::EIO), ["eth0", "Input/output error"], "`manylane doctor`"),
        ],
    });
}
