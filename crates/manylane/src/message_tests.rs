//! All messages of this crate that an operator reads. Errors that only their own room knows are held there.

use std::io;
use std::net::IpAddr;

use manylane_frame::RegionError;
use manylane_frame::vocabulary::PortId;
use manylane_io::interface::InterfaceError;
use manylane_io::netlink::NetlinkError;
use manylane_io::sysctl::SysctlError;
use manylane_net::neighbour::{Key, TableFull};

use crate::demo::DemoError;
use crate::messages::Page;
use crate::trace::TraceError;
use manylane_accelerate::accelerator::{AccelerateError, LockError};
use manylane_accelerate::gate::{Bypass, GateError};
use manylane_api::{ApiError, BindError, ClientError, ListenError};
use manylane_io::privilege::PrivilegeError;
use manylane_router::config::{Config, ConfigError, Environment, SaveError};

mod ports;
mod sockets;

const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EIO: i32 = 5;

fn said(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn unlinked() -> NetlinkError {
    NetlinkError::Unavailable { source: said(EPERM) }
}

fn no_interface() -> InterfaceError {
    let present = vec!["lo".into(), "eth0".into()];
    InterfaceError::NoSuchInterface { name: "eth7".into(), present }
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

fn full() -> TableFull {
    TableFull { key: Key { port: PortId(0), addr: addr("10.1.0.9") }, entries_max: 64 }
}

fn invalid() -> ConfigError {
    Config::parse("[wrokers]\n", "router.toml", &Environment::of_this_thread()).unwrap_err()
}

#[test]
fn configurations() {
    messages!(ConfigError {
        Unreadable: [(
            Unreadable { file_name: "router.toml".into(), source: said(ENOENT) },
            ["router.toml", "No such file"],
            "help: name a TOML file"
        )],
        Invalid: [(invalid(), ["router.toml:1", "wrokers"], "help: did you mean `workers`?")],
    });
}

#[test]
fn saving() {
    let step = "write a new file beside it";
    let error = SaveError { file: "/etc/router.toml".into(), step, source: said(EPERM) };
    let mut page = Page::new("SaveError");
    page.row("", &error.to_string(), &["/etc/router.toml", step, "not permitted"], "name another");
    page.finish();
}

#[test]
fn privileges() {
    let refused = PrivilegeError::Refused { step: "change the user", source: said(EPERM) };
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
fn doors() {
    let path = || "/etc/token".into();
    let address = "192.0.2.1:9176".parse().unwrap();
    messages!(ListenError {
        Exposed: [(exposed(), ["192.0.2.1:9176"], "or name a file with a token")],
        Unreadable: [(
            Unreadable { path: path(), source: said(ENOENT) },
            ["/etc/token", "No such file"],
            "name a file that this user can read"
        )],
        Open: [(
            Open { path: path(), mode: 0o644 },
            ["/etc/token", "mode 0644"],
            "`chmod 600 /etc/token`"
        )],
        NoToken: [(
            NoToken { path: path(), what: "it is empty" },
            ["/etc/token", "it is empty"],
            "`openssl rand -hex 32` makes one"
        )],
        Refused: [(
            Refused { address, source: said(EPERM) },
            ["192.0.2.1:9176", "not permitted"],
            "name another address with --listen"
        )],
    });
    messages!(BindError {
        Answered: [(answered(), ["/run/s"], "stop it, or name another socket")],
        NotASocket: [(NotASocket { path: "/run/s".into() }, ["/run/s"], "remove it")],
        Refused: [(
            Refused { path: "/run/s".into(), step: "listen at", source: said(EPERM) },
            ["listen at the socket /run/s", "not permitted"],
            "name a path this user may write with --socket"
        )],
    });
}

#[test]
fn clients() {
    let socket = || "/run/s".into();
    let error = ApiError { error: "there is no port wna".into(), help: "choose among lan".into() };
    messages!(ClientError {
        NoDaemon: [(
            NoDaemon { socket: socket() },
            ["/run/s"],
            "start one with `manylane run FILE`"
        )],
        Unreachable: [(
            Unreachable { socket: socket(), source: said(EPERM) },
            ["/run/s", "not permitted"],
            "ask as root"
        )],
        Silent: [(Silent { socket: socket() }, ["/run/s"], "look at what its process does")],
        Refused: [(Refused(error), ["there is no port wna"], "choose among lan")],
        Unexpected: [(
            Unexpected { socket: socket(), source: "EOF while parsing".into() },
            ["/run/s", "EOF while parsing"],
            "compare `manylane --version`"
        )],
    });
    messages!(TraceError {
        Running: [(Running, ["another trace"], "end that `manylane trace`")],
        Count: [(Count(0), ["0 packets"], "ask for 1 to ")],
        Busy: [(Busy, ["too many traces"], "try again")],
    });
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
            "there are: lo, eth0"
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
            (taken("process 7 (eth0)"), ["process 7 (eth0)", "/run/l"], "stop it, or name all"),
            (taken(""), ["another process", "/run/l"], "stop it, or name all"),
        ],
        Refused: [
            (refused(EPERM), ["open /run/l", "not permitted"], "needs root"),
            (refused(EIO), ["open /run/l", "Input/output error"], "see that /run is there"),
        ],
    });
    let netlink = GateError::Netlink(unlinked());
    let program = manylane_io::bpf::BpfError::Load(Box::new(said(EPERM)));
    messages!(AccelerateError {
        Lock: [(Lock(taken("")), ["/run/l"], "stop it")],
        Listen: [(Listen(exposed()), ["192.0.2.1:9176"], "name a file with a token")],
        Api: [(Api(answered()), ["/run/s"], "stop it")],
        Privilege: [(Privilege(no_user()), ["nobdy"], "leave out --user")],
        Netlink: [(Netlink(unlinked()), ["netlink socket"], "needs root")],
        Gate: [(Gate(netlink), ["netlink socket"], "needs root")],
        Program: [(Program(program), ["XDP program"], "needs root")],
        NoSuchInterface: [(
            NoSuchInterface { name: "eth7".into(), present: vec!["lo".into()] },
            ["eth7"],
            "there are: lo"
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
fn demos() {
    let start = manylane_router::control::StartError::Region(RegionError::Frames(0));
    messages!(DemoError {
        Config: [(Config(invalid()), ["wrokers"], "please report it")],
        Start: [(Start(start), ["0 frames"], "take 1 to")],
        Signals: [(Signals(said(EIO)), ["signals", "Input/output error"], "raise `ulimit -n`")],
        Faults: [(
            Faults(vec!["1 packet is lost".into(), "2 came twice".into()]),
            ["1 packet is lost", "2 came twice"],
            "please report it"
        )],
    });
}
