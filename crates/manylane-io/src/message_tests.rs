//! All messages of this crate that do not concern ports. What the kernel says is made up: a number that has a next
//! step of its own, and one that has none.

use std::io;

use aya::maps::MapError;
use aya::programs::ProgramError;

use crate::bpf::{BpfError, Mode};
use crate::interface::InterfaceError;
use crate::interface_lock::InterfaceLockError;
use crate::libpcap::PcapError;
use crate::messages::Page;
use crate::namespace::NamespaceError;
use crate::netlink::NetlinkError;
use crate::packet_ring::RingError;
use crate::privilege::PrivilegeError;
use crate::station::StationError;
use crate::sysctl::SysctlError;

mod ports;

const EMFILE: &str = "Too many open files";
const EPERM: &str = "Operation not permitted";
const EIO: &str = "Input/output error";

fn said(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

fn absent() -> InterfaceError {
    InterfaceError::NoSuchInterface {
        name: "eth7".into(),
        present: vec!["lo".into(), "eth0".into()],
    }
}

/// Privilege would not help.
fn exhausted() -> BpfError {
    let BpfError::Program { program, step, needs, .. } = unloadable() else { unreachable!() };
    BpfError::Program { program, step, needs, source: Box::new(said(libc::EMFILE)) }
}

fn unloadable() -> BpfError {
    let source = Box::new(said(libc::EPERM));
    BpfError::Program {
        program: "the program that steers",
        step: "load",
        needs: "Linux 5.8",
        source,
    }
}

#[test]
fn netlink() {
    let refused = |number| {
        let explanation = Some("Nexthop has invalid gateway.".into());
        let step = "add the route 10.9.0.0/16".into();
        NetlinkError::Refused { step, explanation, source: said(number) }
    };
    let what = "add the route 10.9.0.0/16";
    messages!(NetlinkError {
        Unavailable: [
            (Unavailable { source: said(libc::EPERM) }, ["netlink socket", EPERM], "needs root"),
            (Unavailable { source: said(libc::EIO) }, ["netlink socket", EIO], "`manylane doctor`"),
        ],
        NoSuchInterface: [(
            NoSuchInterface { name: "eth7".into(), present: vec!["lo".into(), "eth0".into()] },
            ["eth7"],
            "existing interfaces: lo, eth0"
        )],
        Refused: [
            (refused(libc::EPERM), [what, EPERM, "(Nexthop has invalid gateway)"], "needs root"),
            (refused(libc::EEXIST), [what], "take another name"),
            (refused(libc::ENETUNREACH), [what], "must be on a connected network"),
            (refused(libc::ENETDOWN), [what], "set the link up"),
            (refused(libc::ENODEV), [what], "`ip link` lists"),
            (refused(libc::EOPNOTSUPP), [what], "needs a kernel"),
            (refused(libc::EIO), [what, EIO], "`manylane doctor`"),
        ],
    });
}

#[test]
fn interfaces() {
    let refused =
        |number| InterfaceError::Refused { interface: "eth0".into(), source: said(number) };
    let netlink = || NetlinkError::Unavailable { source: said(libc::EPERM) };
    messages!(InterfaceError {
        NoSuchInterface: [(absent(), ["eth7"], "existing interfaces: lo, eth0")],
        Netlink: [(Netlink(netlink()), ["netlink socket"], "needs root")],
        Refused: [
            (refused(libc::EPERM), ["eth0", EPERM], "needs root (CAP_NET_RAW)"),
            (refused(libc::ENODEV), ["eth0"], "`ip link` lists"),
            (refused(libc::EIO), ["eth0", EIO], "`ip -details link` shows"),
        ],
    });
    let refused = |number| StationError::Refused {
        interface: "eth0".into(),
        step: "listen on",
        source: said(number),
    };
    messages!(StationError {
        Link: [(Link(netlink()), ["netlink socket"], "needs root")],
        Refused: [
            (refused(libc::EPERM), ["listen on eth0", EPERM], "needs root"),
            (refused(libc::EIO), ["listen on eth0", EIO], "`ip link`"),
        ],
    });
}

#[test]
fn rings() {
    messages!(RingError {
        BlockSize: [(BlockSize(1000), ["1000 bytes"], "take a power of two from")],
        Blocks: [(Blocks(0), ["0 blocks"], "take ")],
        Lanes: [(Lanes(0), ["0 lanes"], "take 1 to")],
        Refused: [(
            Refused { step: "memfd_create", source: said(libc::ENOMEM) },
            ["memfd_create", "Cannot allocate memory"],
            "request fewer or smaller blocks"
        )],
        NotARing: [(
            NotARing("it is not sealed"),
            ["it is not sealed"],
            "use the one that the daemon sent"
        )],
        OtherVersion: [(
            OtherVersion { theirs: 2, ours: 1 },
            ["0x2", "0x1"],
            "use the program that came with the daemon"
        )],
    });
}

#[test]
fn libpcap() {
    // SAFETY: no library has this name, so none is initialised.
    let missing = unsafe { libloading::Library::new("libmanylane-none.so") };
    messages!(PcapError {
        Missing: [(
            Missing { source: missing.expect_err("it is not there") },
            ["libpcap", "libmanylane-none.so"],
            "`apt-get install libpcap0.8`"
        )],
        Expression: [(
            Expression { expression: "prot 1".into(), message: "syntax error".into() },
            ["`prot 1`", "syntax error"],
            "pcap-filter(7) describes the language"
        )],
        OutOfMemory: [(OutOfMemory, ["libpcap"], "free some")],
    });
}

#[test]
fn programs() {
    let boxed = || Box::new(said(libc::EPERM));
    messages!(BpfError {
        Load: [(Load(boxed()), ["XDP program", EPERM], "needs root (CAP_BPF, CAP_NET_ADMIN)")],
        Attach: [(
            Attach { interface: "eth0".into(), reasons: vec![(Mode::Native, boxed())] },
            ["eth0", "native: ", EPERM],
            "bpftool net shows whose"
        )],
        Map: [(
            Map { queue: 3, source: Box::new(MapError::OutOfBounds { index: 3, max_entries: 2 }) },
            ["queue 3", "the index is 3"],
            "needs root"
        )],
        Program: [
            (unloadable(), ["load the program that steers", EPERM], "and Linux 5.8"),
            (exhausted(), ["load the program that steers", EMFILE], "raise its limit (`ulimit -n`"),
        ],
        Table: [(
            Table { name: "routes", bytes: 4096, source: said(libc::ENOMEM) },
            ["routes", "4096 bytes"],
            "needs root"
        )],
        TestRun: [(
            TestRun(Box::new(ProgramError::NotLoaded)),
            ["on a frame", "not loaded"],
            "needs root"
        )],
    });
}

#[test]
fn settings() {
    let mut page = Page::new("SysctlError");
    for (number, next) in [
        (libc::EACCES, "run as root"),
        (libc::ENOENT, "look for a mistyped interface"),
        (libc::EIO, "see whether `sysctl` can"),
    ] {
        let error = SysctlError { name: "net/ipv4/ip_forward".into(), source: said(number) };
        page.row("", &error.to_string(), &["/proc/sys/net/ipv4/ip_forward"], next);
    }
    page.finish();
}

#[test]
fn namespaces() {
    let mut page = Page::new("NamespaceError");
    for (number, said_of, next) in [
        (libc::EPERM, EPERM, "needs root"),
        (libc::EMFILE, EMFILE, "raise its limit (`ulimit -n`"),
        (libc::ENFILE, EMFILE, "raise the sysctl fs.file-max"),
        (libc::ENOSPC, "No space left", "raise /proc/sys/user/max_net_namespaces"),
        (libc::ENOENT, "No such file", "mount /proc"),
        (libc::EIO, EIO, "`lsns -t net`"),
    ] {
        let error = NamespaceError { step: "enter", source: said(number) };
        page.row("", &error.to_string(), &["enter a network namespace", said_of], next);
    }
    page.finish();
}

fn no_user() -> PrivilegeError {
    PrivilegeError::NoSuchUser { name: "nobdy".into() }
}

#[test]
fn privileges() {
    let refused = PrivilegeError::Refused { step: "change the user", source: said(libc::EPERM) };
    messages!(PrivilegeError {
        NoSuchUser: [(no_user(), ["\"nobdy\""], "`useradd --system nobdy`")],
        NotRoot: [(NotRoot { name: "nobody".into() }, ["\"nobody\""], "leave out --user")],
        Refused: [(refused, ["change the user", "not permitted"], "leave out --user")],
        Capabilities: [(
            Capabilities("capset failure".into()),
            ["capset failure"],
            "leave out --user"
        )],
    });
}

#[test]
fn locks_of_interfaces() {
    let refused = |number| InterfaceLockError::Refused {
        path: "/run/manylane/interfaces-7.lock".into(),
        step: "open",
        source: said(number),
    };
    let owner = "process 7 (manylane run)";
    messages!(InterfaceLockError {
        Taken: [(
            Taken { interface: "eth0".into(), owner: owner.into() },
            ["eth0", owner],
            "stop it, or start this one without eth0"
        )],
        Refused: [
            (
                refused(libc::EACCES),
                ["open /run/manylane/interfaces-7.lock", "Permission denied"],
                "needs root"
            ),
            (refused(libc::EIO), ["open /run/manylane", EIO], "see that /run exists"),
        ],
    });
}
