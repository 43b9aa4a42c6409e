//! The source of packets: the daemon, as a capture needs it.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Instant;

use manylane_frame::vocabulary::{Point, PortId};

pub use manylane_api::SNAP_MAX;
pub use manylane_io::pcapng::Captured;

/// A daemon that gives packets.
pub trait Server {
    /// Its ports, by number.
    fn ports(&self) -> Result<Vec<PortName>, OpenError>;

    /// Whether this is a filter.
    fn check_filter(&self, filter: &str) -> Result<(), OpenError>;

    /// Begins a capture. From here on packets are copied, and lost unless the source is read.
    fn open(&self, request: &Request) -> Result<Box<dyn Source>, OpenError>;
}

/// A port that can be captured on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortName {
    /// Its number.
    pub id: PortId,
    /// Its name.
    pub name: String,
    /// What else is to be said of it: its driver, and the kernel's interface if it has one.
    pub description: String,
}

/// What is to be captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// On which port, by name; on all without one.
    pub port: Option<String>,
    /// Where: at least one point, each once, in order.
    pub points: Vec<Point>,
    /// Most bytes of each packet; at most [`SNAP_MAX`].
    pub snap: u32,
    /// What of it, in libpcap's words (pcap-filter(7)); everything without.
    pub filter: Option<String>,
}

/// A running capture, which ends when this is dropped.
pub trait Source {
    /// Hands over what waits, in order of time, without waiting itself: at most what waited at the call, and
    /// less if `see` breaks. Returns whether anything waited.
    fn receive(&mut self, see: &mut See<'_>) -> io::Result<bool>;

    /// Sleeps until something waits, `interrupt` can be read, or it is `until`; for ever without a time.
    fn wait(&mut self, until: Option<Instant>, interrupt: BorrowedFd<'_>) -> io::Result<Wake>;

    /// The counters so far.
    fn statistics(&mut self) -> Statistics;

    /// What the user has to know of this capture, if anything.
    fn notice(&self) -> Option<String> {
        None
    }
}

/// Takes packets, until it has had enough.
pub type See<'a> = dyn FnMut(&Captured<'_>) -> ControlFlow<()> + 'a;

/// Why [`Source::wait`] came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Packets wait, or may wait.
    Packets,
    /// The time has come.
    Time,
    /// The interrupt can be read.
    Interrupt,
    /// The daemon has ended the capture: what waits can be received, and nothing will come any more.
    End,
    /// The daemon hangs, in these words.
    Silent(String),
}

/// What a source counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets that passed the filter: handed over, waiting and lost.
    pub filtered: u64,
    /// Packets of them that found no place in the ring between the workers and us.
    pub lost: u64,
}

/// Why no capture began. Each variant carries what the operator has to look at.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No daemon answers at this socket.
    #[error(
        "no daemon answers at {}: {source}; start one with `manylane run`, or say with --socket where it listens",
        .socket.display()
    )]
    NoDaemon {
        /// The socket.
        socket: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The daemon is there, and this user may not capture.
    #[error(
        "you may not capture by {}: be root, or a member of the group `{group}`",
        .socket.display()
    )]
    NotAllowed {
        /// The socket.
        socket: PathBuf,
        /// The group whose members may.
        group: String,
    },
    /// The daemon has no port of this name.
    #[error("port `{name}` does not exist{}", existing(.ports))]
    NoSuchPort {
        /// The name.
        name: String,
        /// What its ports are called.
        ports: Vec<String>,
    },
    /// The filter is none.
    #[error("the filter `{filter}` is wrong: {message}; pcap-filter(7) is its grammar")]
    Filter {
        /// Its words.
        filter: String,
        /// What its compiler says.
        message: String,
    },
    /// The request has a filter, and this machine no compiler for it.
    #[error(
        "a filter needs libpcap, and it does not load: {message}; install it (Debian: `apt install libpcap0.8`), or \
         capture without a filter"
    )]
    NoLibpcap {
        /// What the dynamic linker says.
        message: String,
    },
    /// The daemon refused, and says why and what to do.
    #[error("{message}")]
    Refused {
        /// Its words.
        message: String,
    },
    /// A step on the way was refused by the system.
    #[error("cannot capture: {what}: {source}; see whether the daemon still runs, and try again")]
    System {
        /// The step.
        what: &'static str,
        /// What the system says.
        source: io::Error,
    },
}

/// What a daemon has instead of a port that it has not.
fn existing(ports: &[String]) -> String {
    match ports {
        [] => ": the daemon has no port; add one to its configuration".into(),
        ports => format!("; existing ports: {}, and `any`", ports.join(", ")),
    }
}

impl OpenError {
    /// Whether the command line is to be changed, rather than the machine.
    pub fn is_usage(&self) -> bool {
        matches!(self, OpenError::NoSuchPort { .. } | OpenError::Filter { .. })
    }
}
