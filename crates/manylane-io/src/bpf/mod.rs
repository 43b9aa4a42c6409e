//! BPF programs: what the kernel does with frames of our ports.
//!
//! | program          | where it runs            | what it does                                |
//! |------------------|--------------------------|---------------------------------------------|
//! | [`XskProgram`]   | XDP of an AF_XDP port    | directs frames to the socket of their queue, with their VLAN tags |
//! | [`MuteProgram`]  | tcx of an AF_PACKET port | the host's own stack gets no packets        |
//! | [`SteerProgram`] | queues of a TAP port     | a flow stays in its queue                   |
//!
//! `x.bpf.c` is the source and `x.bpf.o` the object compiled into the crate; `xsk.bpf.c` has the build command.
//! Programs are attached by BPF links. The kernel removes a link when its descriptor closes: on drop, and when the
//! process dies, by SIGKILL too. Nothing is pinned. A TAP has no BPF link: its program is removed with the interface,
//! or when the port closes.

pub mod call;
pub mod elf;
pub mod maps;
mod mute;
pub mod object;
pub mod rings;
mod steer;
mod tagged;
pub mod types;

use crate::syscall::exhausted;
use std::error::Error;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use aya::maps::{Map, MapData, MapError, XskMap};
use aya::programs::links::FdLink;
use aya::programs::{ProgramError, TestRun, TestRunOptions, Xdp, XdpMode};
use aya::{Ebpf, EbpfLoader};

use crate::chain::Chain;
use crate::interface::Interface;
use crate::netlink;

pub use mute::{MuteLink, MuteProgram};
pub use steer::SteerProgram;

/// The XDP program, loaded but not attached, with its own map.
pub struct XskProgram {
    ebpf: Ebpf,
    sockets: XskMap<MapData>,
    /// A second descriptor of the map, for the program that aya does not load.
    sockets_fd: OwnedFd,
}

/// The attached XDP program; dropping this detaches it.
pub struct XskLink {
    _link: OnInterface,
    sockets: XskMap<MapData>,
    mode: Mode,
}

/// The link that keeps a program attached.
enum OnInterface {
    /// The plain program: tags that the device removed are lost.
    Plain { _link: FdLink },
    /// The program that restores tags.
    Tagged { _link: OwnedFd },
}

/// Where in the receive path an XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, before the kernel allocates an skb.
    Native,
    /// In the network stack, after the skb exists: works on any device, but slower.
    Generic,
}

/// The modes that [`XskProgram::attach`] may try.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attach {
    /// Native first; generic if the driver refuses.
    #[default]
    Best,
    /// This mode only.
    Only(Mode),
}

impl XskProgram {
    /// Loads the program with room for the sockets of `queues` queues.
    pub fn load(queues: u32) -> Result<XskProgram, BpfError> {
        XskProgram::load_object(OBJECT, queues)
    }

    /// Loads the program from another object of the same source, to compare the two.
    ///
    /// # Panics
    ///
    /// When the object loads and has no map or program of these names.
    pub fn load_object(object: &[u8], queues: u32) -> Result<XskProgram, BpfError> {
        let mut ebpf = EbpfLoader::new()
            .btf(None) // No relocation against kernel types, so the kernel's BTF need not be read.
            .map_max_entries(MAP, queues.max(1))
            .load(object)
            .map_err(|source| BpfError::Load(source.into()))?;
        let map = ebpf.take_map(MAP).expect("the object has this map");
        let Map::XskMap(data) = &map else { unreachable!("the object says what the map is") };
        let fd = data.fd().as_fd().try_clone_to_owned();
        let sockets_fd = fd.map_err(|source| BpfError::Load(source.into()))?;
        let sockets = XskMap::try_from(map).map_err(|source| BpfError::Load(source.into()))?;
        program(&mut ebpf).load().map_err(|source| BpfError::Load(source.into()))?;
        Ok(XskProgram { ebpf, sockets, sockets_fd })
    }

    /// Attaches the program to an interface of the calling thread's network namespace. Where the driver reports the
    /// VLAN tags that the device removed, the attached program restores them; otherwise the plain program is attached.
    pub fn attach(mut self, interface: &Interface, how: Attach) -> Result<XskLink, BpfError> {
        let modes: &[Mode] = match how {
            Attach::Best => &[Mode::Native, Mode::Generic],
            Attach::Only(Mode::Native) => &[Mode::Native],
            Attach::Only(Mode::Generic) => &[Mode::Generic],
        };
        let mut reasons = Vec::new();
        if modes.contains(&Mode::Native)
            && netlink::tells_tags(interface.index).unwrap_or(false)
            && let Ok(link) = tagged::attach(interface.index, self.sockets_fd.as_fd())
        {
            let link = OnInterface::Tagged { _link: link };
            return Ok(XskLink { _link: link, sockets: self.sockets, mode: Mode::Native });
        }
        for &mode in modes {
            match attach(program(&mut self.ebpf), interface.index, mode) {
                Ok(link) => {
                    let link = OnInterface::Plain { _link: link };
                    return Ok(XskLink { _link: link, sockets: self.sockets, mode });
                }
                Err(reason) => reasons.push((mode, reason)),
            }
        }
        Err(BpfError::Attach { interface: interface.name.clone(), reasons })
    }

    /// Directs frames of `queue` to `socket` from now on.
    pub fn set_socket(&mut self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), BpfError> {
        set_socket(&mut self.sockets, queue, socket)
    }

    /// Runs the plain program on `frame` as received on queue 0 (`BPF_PROG_TEST_RUN`) and returns its verdict: an
    /// `XDP_*` number of linux/bpf.h.
    pub fn verdict(&mut self, frame: &[u8]) -> Result<u32, BpfError> {
        let options = TestRunOptions { data_in: Some(frame), ..TestRunOptions::new() };
        program(&mut self.ebpf)
            .test_run(options)
            .map(|result| result.return_value)
            .map_err(|source| BpfError::TestRun(source.into()))
    }
}

impl XskLink {
    /// Directs frames of `queue` to `socket` from now on.
    pub fn set_socket(&mut self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), BpfError> {
        set_socket(&mut self.sockets, queue, socket)
    }

    /// Where the program runs.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether frames arrive with the VLAN tags that they had on the wire, even if the device removes tags.
    pub fn has_tags(&self) -> bool {
        matches!(self._link, OnInterface::Tagged { .. })
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Native => "native",
            Mode::Generic => "generic",
        })
    }
}

/// Why a program could not be loaded, attached or run.
#[non_exhaustive]
#[derive(Debug)]
pub enum BpfError {
    /// The kernel did not take the program or its map.
    Load(Box<dyn Error + Send + Sync>),
    /// No mode worked. An attempt was made in each allowed mode.
    Attach {
        /// The interface.
        interface: String,
        /// The modes that were tried, and why each failed.
        reasons: Vec<(Mode, Box<dyn Error + Send + Sync>)>,
    },
    /// The map refused a socket.
    Map {
        /// The queue whose socket it was.
        queue: u32,
        /// Why the map refused it.
        source: Box<MapError>,
    },
    /// A program other than the XDP program did not load or attach.
    Program {
        /// The program's name, as in "cannot load {program}".
        program: &'static str,
        /// `load` or `attach`.
        step: &'static str,
        /// The oldest kernel that supports it.
        needs: &'static str,
        /// Why it failed.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The kernel could not allocate the memory that a program shares with us.
    Table {
        /// The table's name.
        name: &'static str,
        /// The table's size in bytes.
        bytes: usize,
        /// Why it failed.
        source: io::Error,
    },
    /// The test run of a program failed.
    TestRun(Box<ProgramError>),
}

impl BpfError {
    /// Whether the kernel's verifier refused the program: the program is wrong, whatever the machine and the user may do.
    pub fn is_by_verifier(&self) -> bool {
        let BpfError::Program { source, .. } = self else { return false };
        source.downcast_ref::<Complaint>().is_some_and(|refusal| refusal.complaint.is_some())
    }
}

/// What helps: `otherwise`, unless a cause of the error is that no file descriptor is left.
fn or_exhausted<'a>(error: &'a (dyn Error + 'static), otherwise: &'a str) -> &'a str {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    let mut known = causes.filter_map(|error| error.downcast_ref::<io::Error>());
    known.find_map(exhausted).unwrap_or(otherwise)
}

impl fmt::Display for BpfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BpfError::Load(source) => {
                write!(f, "cannot load the XDP program: {}", Chain(source.as_ref()))?;
                write!(
                    f,
                    "; {}",
                    or_exhausted(
                        source.as_ref(),
                        "needs root (CAP_BPF, CAP_NET_ADMIN) and Linux 5.18"
                    )
                )
            }
            BpfError::Attach { interface, reasons } => {
                write!(f, "cannot attach the XDP program to {interface}")?;
                for (mode, reason) in reasons {
                    write!(f, "; {mode}: {}", Chain(reason.as_ref()))?;
                }
                write!(
                    f,
                    "; if another program is there, it stays: bpftool net shows whose it is; take another driver \
                     for {interface}"
                )
            }
            BpfError::Map { queue, source } => {
                write!(
                    f,
                    "the table of AF_XDP sockets did not take that of queue {queue}: {}; {}; `manylane doctor` shows what \
                     this machine can",
                    Chain(source.as_ref()),
                    or_exhausted(source.as_ref(), "needs root (CAP_BPF)")
                )
            }
            BpfError::Program { program, step, needs, source } => write!(
                f,
                "cannot {step} {program}: {}; {}",
                Chain(source.as_ref()),
                or_exhausted(
                    source.as_ref(),
                    &format!("needs root (CAP_BPF, CAP_NET_ADMIN) and {needs}")
                )
            ),
            BpfError::Table { name, bytes, source } => write!(
                f,
                "no table {name} of {bytes} bytes: {source}; {}",
                or_exhausted(source, "needs root (CAP_BPF), Linux 5.5, and that memory")
            ),
            BpfError::TestRun(source) => {
                write!(
                    f,
                    "cannot try the program on a frame: {}; {}",
                    Chain(source.as_ref()),
                    or_exhausted(
                        source.as_ref(),
                        "needs root (CAP_BPF, CAP_NET_ADMIN) and Linux 5.18"
                    )
                )
            }
        }
    }
}

impl Error for BpfError {
    // The texts above hold the whole chain already: the reasons are two, and `source` is one.
}

/// Why a program was refused, with the last lines of the verifier's log.
#[derive(Debug)]
pub struct Complaint {
    /// What the kernel returned.
    pub source: io::Error,
    /// The verifier's last lines, if it wrote any.
    pub complaint: Option<String>,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.source)?;
        match &self.complaint {
            Some(complaint) => write!(f, " ({complaint})"),
            None => Ok(()),
        }
    }
}

impl Error for Complaint {}

fn attach(
    program: &mut Xdp,
    index: u32,
    mode: Mode,
) -> Result<FdLink, Box<dyn Error + Send + Sync>> {
    let mode = match mode {
        Mode::Native => XdpMode::Driver,
        Mode::Generic => XdpMode::Skb,
    };
    let id = program.attach_to_if_index(index, mode)?;
    // Without BPF links (before Linux 5.9) aya attaches by netlink, which outlives the process: this
    // conversion refuses, and dropping the link detaches.
    Ok(FdLink::try_from(program.take_link(id)?)?)
}

fn set_socket(
    map: &mut XskMap<MapData>,
    queue: u32,
    socket: BorrowedFd<'_>,
) -> Result<(), BpfError> {
    map.set(queue, socket.as_raw_fd(), 0)
        .map_err(|source| BpfError::Map { queue, source: source.into() })
}

fn program(ebpf: &mut Ebpf) -> &mut Xdp {
    let program = ebpf.program_mut(PROGRAM).expect("the object has this program");
    program.try_into().expect("it is an XDP program")
}

static OBJECT: &[u8] = aya::include_bytes_aligned!("xsk.bpf.o");
const PROGRAM: &str = "to_socket";
const MAP: &str = "xsks";
