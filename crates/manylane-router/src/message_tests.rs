//! All messages of a configuration, of ports, tables, packet sockets, traces, and of a daemon that does not start.

use std::io;
use std::net::IpAddr;

use manylane_api::{BindError, ListenError};
use manylane_frame::RegionError;
use manylane_frame::vocabulary::PortId;
use manylane_io::interface::InterfaceError;
use manylane_io::interface_lock::InterfaceLockError;
use manylane_io::netlink::NetlinkError;
use manylane_io::packet_ring::RingError;
use manylane_io::port::{af_packet, af_xdp, pcap, tap};
use manylane_io::privilege::PrivilegeError;
use manylane_net::fib::EditError;
use manylane_net::generate::FarEndError;
use manylane_net::neighbour::{Key, TableFull};
use manylane_net::nexthop::GroupsFull;

use crate::config::{Config, ConfigError, Environment, SaveError};
use crate::control::StartError;
use crate::control::open::PortError;
use crate::control::routing::RoutingError;
use crate::messages::Page;
use crate::socket::SocketError;
use crate::trace::TraceError;

const EPERM: i32 = 1;
const ENOENT: i32 = 2;

fn said(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
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

fn port() -> String {
    "wan".into()
}

fn too_large() -> PortError {
    PortError::Mtu { port: port(), mtu: 9000, device_mtu: 1500 }
}

#[test]
fn ports() {
    let too_small =
        |least| PortError::MtuTooSmall { port: port(), mtu: 60, least, device_mtu: 1284 };
    let file = || pcap::WriteError::SameFile { path: "x.pcap".into() };
    messages!(PortError {
        Interface: [(
            Interface { port: port(), source: no_interface() },
            ["`wan`", "eth7"],
            "existing interfaces: lo, eth0"
        )],
        Lock: [(
            Lock {
                port: port(),
                source: InterfaceLockError::Taken {
                    interface: "eth0".into(),
                    owner: "process 7 (manylane run)".into()
                }
            },
            ["`wan`", "eth0", "process 7 (manylane run)"],
            "start this one without eth0"
        )],
        AfXdp: [(
            AfXdp {
                port: port(),
                source: af_xdp::OpenError::Busy { interface: "eth0".into(), queue: 3 }
            },
            ["`wan`", "queue 3 of eth0"],
            "must end"
        )],
        AfPacket: [(
            AfPacket { port: port(), source: af_packet::OpenError::Interface(no_interface()) },
            ["`wan`", "eth7"],
            "existing interfaces: lo, eth0"
        )],
        Tap: [(
            Tap { port: port(), source: tap::OpenError::Busy { interface: "tap0".into() } },
            ["`wan`", "tap0"],
            "end the program"
        )],
        Pcap: [(
            Pcap { port: port(), source: pcap::OpenError::Write(file()) },
            ["`wan`", "x.pcap"],
            "write to another file"
        )],
        Tee: [(Tee { port: port(), source: file() }, ["`wan`", "x.pcap"], "write to another file")],
        FarEnd: [(
            FarEnd { port: port(), source: FarEndError::NoQueue },
            ["`wan`", "no receive queue"],
            "give it one"
        )],
        Mtu: [(too_large(), ["`wan`", "9000", "1500"], "raise the device's (`ip link set")],
        MtuTooSmall: [
            (too_small(68), ["`wan`", "60", "68"], "raise the device's (`ip link set"),
            (too_small(1280), ["`wan`", "60", "1280"], "or remove the IPv6 addresses"),
        ],
        FramesMax: [(
            FramesMax { port: port(), mtu: 9000, frames_max: 2, mtu_max: 3566 },
            ["`wan`", "9000", "2 frames"],
            "choose an `mtu` of at most 3566"
        )],
        Queues: [(
            Queues { port: port(), owners: 2, queues: 4 },
            ["`wan`", "2 receive queues", "has 4"],
            "list one worker for each queue"
        )],
    });
}

fn own() -> RoutingError {
    RoutingError::Own { addr: addr("10.1.0.1") }
}

#[test]
fn tables() {
    let source = EditError::TooManyRoutes { routes_max: 9 };
    messages!(RoutingError {
        Memory: [(Memory(said(12)), ["routing tables", "Cannot allocate memory"], "free some")],
        Fib: [(
            Fib { prefix: "10.9.0.0/16".parse().unwrap(), source },
            ["10.9.0.0/16", "9 routes"],
            "raise the limit"
        )],
        Neighbour: [(Neighbour(full()), ["10.1.0.9", "64 entries"], "raise the limit")],
        Groups: [(Groups(GroupsFull { groups_max: 8 }), ["8 groups"], "use the same members")],
        Own: [(own(), ["10.1.0.1"], "write another station's")],
    });
}

#[test]
fn starts() {
    let capture = pcap::WriteError::SameFile { path: "x.pcap".into() };
    messages!(StartError {
        Region: [(
            Region(RegionError::Memory { bytes: 64 << 20, source: said(12) }),
            ["64 MiB", "Cannot allocate memory"],
            "choose fewer workers"
        )],
        Port: [(Port(too_large()), ["`wan`"], "raise the device's")],
        Links: [(
            Links(NetlinkError::Unavailable { source: said(EPERM) }),
            ["netlink socket", "not permitted"],
            "needs root"
        )],
        Routing: [(Routing(own()), ["10.1.0.1"], "write another station's")],
        System: [(
            System { what: "signals", source: said(EPERM) },
            ["signals", "not permitted"],
            "raise `ulimit -n`"
        )],
        Unprivileged: [(
            Unprivileged { port: port(), interface: "eth0".into(), missing: "CAP_BPF".into() },
            ["`wan`", "eth0", "CAP_BPF"],
            "start it with `sudo`"
        )],
        Listen: [(Listen(exposed()), ["192.0.2.1:9176"], "name a file with a token")],
        Api: [(Api(answered()), ["/run/s"], "stop it")],
        Collector: [(
            Collector(manylane_export::AddressError::Unresolved {
                host: "collector.example".into(),
                text: "udp://collector.example:6343".into(),
                source: said(EPERM),
            }),
            ["collector.example", "not permitted"],
            "write an address"
        )],
        Capture: [(Capture(capture), ["x.pcap"], "write to another file")],
        Privilege: [(Privilege(no_user()), ["nobdy"], "leave out --user")],
    });
}

#[test]
fn sockets() {
    messages!(SocketError {
        TooMany: [(TooMany { max: 64 }, ["64 packet sockets"], "close one, or raise `max`")],
        Wake: [(Wake(said(EPERM)), ["eventfd", "not permitted"], "raise `ulimit -n`")],
        Memory: [(
            Memory { wanted: 4096, left: 100 },
            ["4096 bytes", "100 are left"],
            "raise `memory_max` in [sockets]"
        )],
        UserMemory: [(
            UserMemory { user: 1000, wanted: 4096, left: 100 },
            ["user 1000", "4096 bytes", "100 left"],
            "raise `per_user_memory_max` in [sockets]"
        )],
        Filters: [(
            Filters { wanted: 4096, left: 100 },
            ["4096 instructions", "100 are left"],
            "raise `filter_max` in [sockets]"
        )],
        UserFilters: [(
            UserFilters { user: 1000, wanted: 4096, left: 100 },
            ["user 1000", "4096 instructions", "100 left"],
            "raise `per_user_filter_max` in [sockets]"
        )],
        Time: [(
            Time { worker: 2, percent: 83, max: 50 },
            ["83 %", "worker 2", "allows 50 %"],
            "raise `time_max`"
        )],
        Barred: [(Barred { user: 1000, seconds: 7 }, ["user 1000", "7 s"], "use a shorter filter")],
        MayNotSend: [(MayNotSend, ["may not send"], "set `send = true` in [sockets]")],
        Ring: [(Ring(RingError::Blocks(0)), ["0 blocks"], "take ")],
        NoSuchPort: [(NoSuchPort(PortId(7)), ["port 7"], "`manylane show ports` lists")],
        Busy: [(Busy, ["too many bindings"], "try again")],
        GroupDiffers: [(GroupDiffers, ["fanout group"], "name another group")],
        GroupFull: [(GroupFull, ["fanout group"], "name another")],
        InGroup: [(InGroup, ["fanout group"], "leave it first")],
        NotBound: [(NotBound, ["bound to no port"], "bind it first")],
        SendFull: [(SendFull, ["too many packets"], "try again")],
        Length: [(Length { len: 9, max: 1514 }, ["9 bytes"], "make it 14 to 1514 bytes long")],
    });
}

#[test]
fn traces() {
    messages!(TraceError {
        Running: [(Running, ["another trace"], "end that `manylane trace`")],
        Count: [(Count(0), ["0 packets"], "trace 1 to ")],
        Busy: [(Busy, ["too many traces"], "try again")],
    });
}
