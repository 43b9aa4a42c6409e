//! The driver tier: the same decision in the driver itself (XDP), in front of [`IngressProgram`](super::IngressProgram)'s program.
//!
//! | memory          | writer                                         | readers                      |
//! |-----------------|------------------------------------------------|------------------------------|
//! | devices         | the daemon ([`Driver::set_device`])            | the program, by the egress's port |
//! | counters        | the program, each CPU its own rows             | any thread ([`DriverCounters`]) |
//! | sockets, socket_workers, heartbeats | the owner of the workers (`workers.rs`)  | the program, by the ingress's port and queue |
//! | failing         | the program that flush_program of flushes; the daemon sets it to 0 | the program, by the egress's port |
//!
//! A frame is forwarded if the daemon has said so of both ports: bits [`DRIVER_INGRESS`] and [`DRIVER_EGRESS`] of their
//! flags. All others are passed on unchanged, to be judged, counted, and maybe forwarded, by the program at tcx.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use manylane_sync::words::{Words, WordsMut};

use super::attach::{self, AttachError, Link};
use super::capture::{Forwards, Observers, Targets};
use super::flush;
use super::memory::PORTS;
use super::trial::{self, TryOptions};
use super::workers::{self, Workers};
use manylane_io::bpf::BpfError;
use manylane_io::bpf::call::Kind;
use manylane_io::bpf::maps::Devices;
use manylane_io::bpf::maps::Maps;
use manylane_io::bpf::object::{self, Meant};
use manylane_io::interface::Interface;

/// A port's flag: received packets may be forwarded in the driver.
pub const DRIVER_INGRESS: u32 = 256;
/// A port's flag: its device takes redirected frames.
pub const DRIVER_EGRESS: u32 = 512;
/// A port's flag: also such as are in several pieces of memory.
pub const DRIVER_EGRESS_PIECES: u32 = 2048;

/// What the program returns for a frame that it passes on (`XDP_PASS`).
pub const PASS: i32 = 2;
/// What it returns for a frame that it has forwarded (`XDP_REDIRECT`).
pub const REDIRECTED: i32 = 4;

/// The program's name, as `bpftool` shows it.
pub const DRIVER_NAME: &str = "manylane_drv";

/// The programs of the driver tier, loaded.
pub struct Driver {
    whole: Program,
    pieces: Program,
    counters: DriverCounters,
    failing: WordsMut<u64>,
    flushed: Words<u64>,
    /// What flush_program of flushes, or why it does not.
    flush_program: io::Result<OwnedFd>,
    /// Until a caller takes it.
    workers: Option<Workers>,
}

/// A program and its number.
struct Program {
    fd: OwnedFd,
    id: u32,
    /// Its own: the kernel lets no map of devices be used both by programs that take pieces and by others
    /// (`bpf_prog_map_compatible`).
    devices: Devices,
}

/// What the program counts: the port's frames that it forwarded.
#[derive(Clone)]
pub struct DriverCounters {
    words: Words<u64>,
    cpus: usize,
}

/// A port's row, of all CPUs together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverRow {
    /// Frames received here and forwarded.
    pub packets_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Frames that left here.
    pub packets_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Frames that were to leave here and were passed on, since the device was not in the map.
    pub refused: u64,
    /// Frames received here and handed to workers.
    pub handed: u64,
    /// Their bytes.
    pub handed_bytes: u64,
    /// Frames that were passed on since the queue's worker did not turn.
    pub absent: u64,
    /// Frames received here that were passed on since their checksum is still to be filled in.
    pub partial: u64,
}

impl DriverRow {
    /// Frames received here that would have been forwarded in the driver, or handed to workers.
    pub fn candidates(&self) -> u64 {
        self.packets_in.wrapping_add(self.handed).wrapping_add(self.partial)
    }
}

/// Frames that a device did not take, though it said that it would: since it was last forgiven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// How often.
    pub flushes: u64,
    /// The frames that were lost so on this port, ever.
    pub frames: u64,
    /// What the driver said last: an error number.
    pub errno: i32,
}

impl Driver {
    /// Loads the programs over the tables in `maps`.
    pub(super) fn load(
        object: &[u8],
        tables: &Maps,
        targets: &Targets,
    ) -> Result<Driver, BpfError> {
        let cpus = manylane_io::bpf::maps::cpus().map_err(|source| failed("load", source))?;
        let mut maps = Maps::default();
        let counters = maps.add::<u64>("driver_counters", cpus * PORTS * PLACES)?;
        let failing = maps.add("failing", PORTS)?;
        let flushed = maps.add::<u64>("flushed", PORTS * 2)?;
        let (sockets, workers) = workers::create(&mut maps)?;
        let meant = |name: &str| maps.meant(name).or_else(|| tables.meant(name));
        let load = |takes_pieces: bool| {
            let load = |source| failed("load", source);
            let devices = Devices::new(PORTS as u32).map_err(load)?;
            let observers = Observers::new().map_err(load)?;
            let meant = |name: &str| match name {
                "observers" => Some(observers.meant()),
                "devices" => Some(Meant::Map(devices.fd())),
                "sockets" => Some(Meant::Map(sockets.fd())),
                "worker_bytes" => Some(Meant::Number(WORKER_BYTES)),
                "takes_pieces" => Some(Meant::Number(takes_pieces.into())),
                name => super::function(name).or_else(|| meant(name)),
            };
            let program = object::program(object, SECTION, meant);
            let program = program.map_err(load)?;
            let kind = Kind { flags: if takes_pieces { HAS_FRAGS } else { 0 }, ..KIND };
            let program = Program::load(kind, &program, devices)?;
            targets.add(&program.fd, observers, kind, Forwards::InDriver).map_err(load)?;
            Ok(program)
        };
        Ok(Driver {
            whole: load(false)?,
            pieces: load(true)?,
            counters: DriverCounters { words: counters.reader(), cpus },
            failing,
            flushed: flushed.reader(),
            flush_program: flush::attach(meant),
            workers: Some(workers),
        })
    }

    /// Puts the program into the driver of an interface of the calling thread's network namespace. `pieces`: the one
    /// that takes frames in several pieces of memory, which drivers require with a large MTU. Where another program
    /// is already, ours is refused.
    pub fn attach(&self, interface: &Interface, pieces: bool) -> Result<Link, AttachError> {
        let program = if pieces { &self.pieces } else { &self.whole };
        attach::attach_driver(program.fd.as_fd(), program.id, interface)
    }

    /// The kernel's numbers of the program, as it was loaded.
    pub fn programs(&self) -> [u32; 2] {
        [self.whole.id, self.pieces.id]
    }

    /// Where frames for a port leave from now on: by the interface of this number in the calling thread's network
    /// namespace, or, with none, not from here.
    pub fn set_device(&self, port: u16, interface: Option<u32>) -> io::Result<()> {
        self.whole.devices.set(port, interface)?;
        self.pieces.devices.set(port, interface)
    }

    /// The memory by which workers receive frames; one exists.
    pub fn take_workers(&mut self) -> Option<Workers> {
        self.workers.take()
    }

    /// Why failures of devices are not heard of, if they are not.
    pub fn flush_error(&self) -> Option<&io::Error> {
        self.flush_program.as_ref().err()
    }

    /// Whether the device of a port has refused frames since it was last forgiven. Nothing is sent there since.
    pub fn failure(&self, port: u16) -> Option<Failure> {
        let port = usize::from(port);
        let flushes = if port < PORTS { self.failing.load(port) } else { 0 };
        (flushes > 0).then(|| Failure {
            flushes,
            frames: self.flushed.load(port * 2),
            errno: self.flushed.load(port * 2 + 1) as i32,
        })
    }

    /// Permits frames to the device again.
    pub fn clear_failure(&mut self, port: u16) {
        if usize::from(port) < PORTS {
            self.failing.store(port.into(), 0);
        }
    }

    /// What it counts.
    pub fn counters(&self) -> DriverCounters {
        self.counters.clone()
    }

    /// What the program returns for a frame ([`PASS`], [`REDIRECTED`]), and what it makes of it. Of the options
    /// only the interface and the number of runs are used.
    pub fn try_frame(
        &self,
        frame: &[u8],
        options: &TryOptions,
        pieces: bool,
    ) -> Result<(i32, Vec<u8>), BpfError> {
        let program = if pieces { &self.pieces } else { &self.whole };
        trial::run_driver(&program.fd, frame, options).map_err(|source| failed("try", source))
    }
}

impl Program {
    fn load(kind: Kind, program: &object::Program, devices: Devices) -> Result<Program, BpfError> {
        let fd = program.load(kind, DRIVER_NAME).map_err(|source| BpfError::Program {
            program: PROGRAM,
            step: "load",
            needs: NEEDS,
            source: source.into(),
        })?;
        let id = attach::id(&fd).map_err(|source| failed("load", source))?;
        Ok(Program { fd, id, devices })
    }
}

impl DriverCounters {
    /// The counters of a port. Zeroes for a port that cannot be.
    pub fn port(&self, port: u16) -> DriverRow {
        let mut sums = [0u64; PLACES];
        if usize::from(port) < PORTS {
            for cpu in 0..self.cpus {
                let at = (cpu * PORTS + usize::from(port)) * PLACES;
                self.words.add_to(at, &mut sums);
            }
        }
        let [
            packets_in,
            bytes_in,
            packets_out,
            bytes_out,
            refused,
            handed,
            handed_bytes,
            absent,
            partial,
            ..,
        ] = sums;
        DriverRow {
            packets_in,
            bytes_in,
            packets_out,
            bytes_out,
            refused,
            handed,
            handed_bytes,
            absent,
            partial,
        }
    }
}

fn failed(step: &'static str, source: io::Error) -> BpfError {
    BpfError::Program { program: PROGRAM, step, needs: NEEDS, source: source.into() }
}

/// Bytes of the frames that workers receive into.
pub const WORKER_FRAME: u32 = 2048;
/// What such a frame has room for behind XDP's headroom.
const WORKER_BYTES: u64 = WORKER_FRAME as u64 - 256;

/// Counters of a port, on a CPU.
const PLACES: usize = 16;

const PROGRAM: &str = "the program that forwards in drivers";
const NEEDS: &str = "Linux 6.6 (XDP by link)";
const SECTION: &str = "xdp";
pub(super) static OBJECT: &[u8] = aya::include_bytes_aligned!("driver.bpf.o");

/// `BPF_PROG_TYPE_XDP`, to be attached as `BPF_XDP`.
const KIND: Kind = Kind { program: 6, attach: 37, flags: 0, interface: 0 };
/// `BPF_F_XDP_HAS_FRAGS`.
pub(super) const HAS_FRAGS: u32 = 1 << 5;
