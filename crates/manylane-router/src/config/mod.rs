//! The configuration: one TOML file, checked as a whole before anything is opened.
//!
//! [`Config::parse`] either returns plain values that agree with each other, or one message that
//! names the line, the key, the cause and what to do. What can only be known by opening a device
//! (its MTU, its number of queues, what `auto` comes to be) is left as an `Option`: the daemon fills it in.
//!
//! | Table | File | Holds |
//! |---|---|---|
//! | `[sockets]` | `sockets.rs` | bounds of packet sockets and captures |
//! | `[sflow]` | `sflow.rs` | samples of packets, for collectors |
//! | `[steering]` | `steering.rs` | which worker forwards what another has received |
//! | `[workers] [frames] [icmp] [neighbour] [api]` | `settings.rs` | sizes and limits, all optional |
//! | `[[port]]`, `[port.generate]` | `ports.rs`, `port.rs`, `driver.rs`, `memory.rs`, `capture.rs` | where frames enter and leave |
//! | `[[port.vlan]]` | `vlan.rs` | sub-interfaces |
//! | `[port.tee]`, `[port.fault]` | `capture.rs`, `fault.rs` | what wraps a port |
//! | `[[route]]` | `route.rs` | static routes |
//! | `[[neighbour.static]]` | `neighbour.rs` | neighbours by the operator's word |
//!
//! `keys/` knows all keys, for the checker and for `config explain`; `section.rs` reads single ones, `prefix.rs`
//! addresses; `error.rs` makes the message. Checks across tables stand with the later one: ports look at workers and
//! frames, routes look at ports, static neighbours at both.
//!
//! Complete examples, used as tests: `examples/router.toml` and `examples/memory.toml`.

mod capture;
mod changes;
mod driver;
mod error;
mod fault;
pub mod keys;
mod memory;
mod neighbour;
mod port;
mod ports;
mod prefix;
mod route;
mod save;
mod section;
mod settings;
mod sflow;
mod sockets;
mod steering;
#[cfg(test)]
mod tests;
mod vlan;

use std::fs;
use std::path::{Path, PathBuf};

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use toml::de::DeTable;

pub use capture::{Directions, PcapPort, Tee};
pub use changes::{Change, Version};
pub use driver::{AfPacketPort, AfXdpPort, AttachMode, AutoPort, Driver, TapPort};
pub use error::ConfigError;
pub use fault::Faults;
pub use manylane_api::{DEFAULT_SOCKET, Listen};
pub use memory::{Generate, MEMORY_MTU, MemoryPort};
pub use neighbour::StaticNeighbour;
pub(crate) use neighbour::owner;
pub(crate) use port::mtu_least;
pub use port::{ChecksumPolicy, Port};
pub(crate) use prefix::not_unicast;
pub use prefix::{InterfaceAddress, Prefix};
pub(crate) use route::GROUPS_MAX;
pub use route::{Hop, Route, RouteTarget};
pub use save::{SaveError, save};
pub use settings::{Frames, Icmp, Neighbour, Workers};
pub use sflow::Sflow;
pub use sockets::SocketLimits;
pub use steering::{BACKLOGS, BUDGETS, PortSteering, Steering, WEIGHTS};
pub use vlan::{Interface, Vlan, interfaces};

use error::Problem;
use section::Section;

/// A checked configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The forwarding threads.
    pub workers: Workers,
    /// The frame pool.
    pub frames: Frames,
    /// How workers hand packets on to each other.
    pub steering: Steering,
    /// Limits of ICMP errors.
    pub icmp: Icmp,
    /// Limits of the neighbour table.
    pub neighbour: Neighbour,
    /// Bounds of packet sockets.
    pub sockets: SocketLimits,
    /// Samples of packets; none without a collector.
    pub sflow: Option<Sflow>,
    /// Where the API listens.
    pub socket: PathBuf,
    /// Where it listens by TCP.
    pub listen: Listen,
    /// The ports, in the order of the file: the index is the `PortId`.
    pub ports: Vec<Port>,
    /// The static routes. No two have the same prefix, and none is a connected prefix.
    pub routes: Vec<Route>,
    /// Neighbours by the operator's word. No two have the same port and address.
    pub static_neighbours: Vec<StaticNeighbour>,
}

/// What a configuration is checked against.
pub struct Environment<'a> {
    /// The cores a worker may be pinned to.
    pub cores: Vec<u16>,
    /// Where the API listens unless the file says otherwise.
    pub socket: PathBuf,
    /// Whether an interface has this name. The error is the help that is shown.
    pub interfaces: &'a dyn Fn(&str) -> Result<(), String>,
}

impl Environment<'static> {
    /// The cores and interfaces that this thread sees.
    pub fn of_this_thread() -> Self {
        Environment {
            cores: allowed_cores(),
            socket: DEFAULT_SOCKET.into(),
            interfaces: &interface_exists,
        }
    }
}

impl Config {
    /// Reads and checks a file.
    pub fn load(path: &Path, environment: &Environment<'_>) -> Result<Config, ConfigError> {
        Version::load(path, environment).map(|version| version.config)
    }

    /// Checks a text. `file_name` is only for messages.
    pub fn parse(
        text: &str,
        file_name: &str,
        environment: &Environment<'_>,
    ) -> Result<Config, ConfigError> {
        read(text, environment).map_err(|problem| problem.render(text, file_name))
    }
}

fn read(text: &str, environment: &Environment<'_>) -> Result<Config, Problem> {
    let document = DeTable::parse(text).map_err(|error| Problem::syntax(&error))?;
    let file = Section::open(keys::THE_FILE, 0..0, document.get_ref())?;

    let workers = settings::workers(&file, environment)?;
    let frames = settings::frames(&file)?;
    let steering = steering::steering(&file, &workers)?;
    let icmp = settings::icmp(&file)?;
    let neighbour = settings::neighbour(&file)?;
    let sockets = sockets::sockets(&file)?;
    let sflow = sflow::sflow(&file)?;
    let socket = settings::socket(&file, environment)?;
    let listen = settings::listen(&file)?;
    let ports = ports::ports(&file, &workers, &frames, environment)?;
    let interfaces = interfaces(&ports);
    let routes = route::routes(&file, &neighbour, &interfaces)?;
    let static_neighbours = neighbour::static_neighbours(&file, &neighbour, &interfaces, &routes)?;
    Ok(Config {
        workers,
        frames,
        steering,
        icmp,
        neighbour,
        sockets,
        sflow,
        socket,
        listen,
        ports,
        routes,
        static_neighbours,
    })
}

fn allowed_cores() -> Vec<u16> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    let is_allowed = |core: &u16| allowed.is_set(usize::from(*core)).unwrap_or(false);
    let cores: Vec<_> = (0..CpuSet::count() as u16).filter(is_allowed).collect();
    // The call fails only on machines with more cores than a `CpuSet` holds; core 0 exists on all.
    if cores.is_empty() { vec![0] } else { cores }
}

fn interface_exists(name: &str) -> Result<(), String> {
    // `/proc/thread-self/net` is this thread's network namespace; `/sys/class/net` may be another's.
    let table = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let names: Vec<_> =
        table.lines().skip(2).filter_map(|line| Some(line.split_once(':')?.0.trim())).collect();
    if names.contains(&name) {
        return Ok(());
    }
    let known: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    Err(match section::nearest(name, names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`? Known are {}", known.join(", ")),
        None => format!("there are {}; `ip link` shows them", known.join(", ")),
    })
}
