//! The daemon's part of a capture, by a packet socket of it.

use std::error::Error as _;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use manylane_frame::vocabulary::DropReason;
use manylane_io::libpcap::{self, PcapError};
use manylane_io::packet_ring::RingConfig;
use manylane_io::poll::poll;
use manylane_net::filter::{Instruction, Program};

use super::accelerated::Copies;
use super::source::{
    Captured, OpenError, PortName, Request, SNAP_MAX, See, Server, Source, Statistics, Wake,
};
use manylane_api::server::socket::is_too_long;
use manylane_api::{Client, ClientError};
use manylane_client::{AcceleratedCapture, Capture, CaptureOptions, Kind, Options, RemoteError};
use manylane_client::{Points, RemoteSocket, path_beside, protocol};

/// The daemon whose API listens at a path.
pub struct Daemon {
    api: PathBuf,
}

impl Daemon {
    /// Sends no request yet.
    pub fn at(api: &Path) -> Daemon {
        Daemon { api: api.to_owned() }
    }

    fn error(&self, error: RemoteError) -> OpenError {
        let socket = path_beside(&self.api);
        if is_too_long(&socket) {
            let source = io::ErrorKind::InvalidInput.into();
            let error = ClientError::Unreachable { socket, source };
            return OpenError::Refused { message: error.to_string() };
        }
        match error {
            RemoteError::NoDaemon { .. } => self.without_sockets(),
            RemoteError::Unreachable { source, .. }
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                OpenError::NotAllowed { socket, group: GROUP.into() }
            }
            error => OpenError::Refused { message: error.to_string() },
        }
    }
}

impl Daemon {
    /// Why no daemon listens for packet sockets: a daemon without any may answer.
    fn without_sockets(&self) -> OpenError {
        match Client::new(&self.api).ask_text("/v1/sockets") {
            Err(error @ (ClientError::WrongDaemon(_) | ClientError::Silent { .. })) => {
                OpenError::Refused { message: error.to_string() }
            }
            _ => OpenError::NoDaemon {
                socket: self.api.clone(),
                source: io::ErrorKind::NotFound.into(),
            },
        }
    }
}

impl Daemon {
    /// The ports of `manylane accelerate`, if that is what answers.
    fn accelerated_ports(&self) -> Result<Option<Vec<PortName>>, OpenError> {
        if !AcceleratedCapture::is_at(&path_beside(&self.api)) {
            return Ok(None);
        }
        let ports = AcceleratedCapture::ports(&path_beside(&self.api));
        let ports = ports.map_err(|error| self.error(error))?;
        let name = |port: manylane_client::Port| PortName {
            id: manylane_frame::vocabulary::PortId(port.port),
            name: port.name,
            description: "accelerated interface".into(),
        };
        Ok(Some(ports.into_iter().map(name).collect()))
    }

    fn open_accelerated(
        &self,
        request: &Request,
        ports: &[PortName],
    ) -> Result<Box<dyn Source>, OpenError> {
        let Request { port, points, snap, filter } = request;
        let options = CaptureOptions {
            port: port.clone(),
            points: points.iter().fold(Points::NONE, |all, &point| all | Points::of(point)),
            filter: filter.as_deref().map(|filter| compile(filter, *snap)).transpose()?,
            snap: *snap,
        };
        let capture = AcceleratedCapture::open(&path_beside(&self.api), options);
        let capture = capture.map_err(|error| self.refused(error, port, ports))?;
        let names = ports.iter().map(|port| (port.id.0, port.name.clone())).collect();
        Ok(Box::new(Copies::new(capture, names)))
    }

    fn refused(&self, error: RemoteError, port: &Option<String>, ports: &[PortName]) -> OpenError {
        match &error {
            RemoteError::Refused(refusal) if refusal.kind == Kind::NoSuchPort => {
                OpenError::NoSuchPort {
                    name: port.clone().unwrap_or_default(),
                    ports: ports.iter().map(|port| port.name.clone()).collect(),
                }
            }
            _ => self.error(error),
        }
    }
}

impl Server for Daemon {
    fn ports(&self) -> Result<Vec<PortName>, OpenError> {
        if let Some(ports) = self.accelerated_ports()? {
            return Ok(ports);
        }
        // By a socket that receives nothing; all else about ports is from the API, if this user may query it.
        let options = Options { protocol: protocol::NONE, ..Options::default() };
        let mut socket = RemoteSocket::open(&path_beside(&self.api), &options)
            .map_err(|error| self.error(error))?;
        let ports = socket.ports().map_err(|error| self.error(error))?;
        let told = Client::new(&self.api).ask::<Vec<manylane_api::PortStatus>>("/v1/ports").ok();
        let name = |port: manylane_client::Port| {
            let mut all = told.iter().flatten();
            let description = match all.find(|status| status.name == port.name) {
                Some(status) => match &status.interface {
                    Some(interface) => format!("{} on {interface}", status.driver),
                    None => status.driver.clone(),
                },
                None if told.is_some() => "sub-interface".into(),
                None => "port".into(),
            };
            PortName {
                id: manylane_frame::vocabulary::PortId(port.port),
                name: port.name,
                description,
            }
        };
        Ok(ports.into_iter().map(name).collect())
    }

    fn check_filter(&self, filter: &str) -> Result<(), OpenError> {
        compile(filter, SNAP_MAX).map(|_| ())
    }

    fn open(&self, request: &Request) -> Result<Box<dyn Source>, OpenError> {
        if let Some(ports) = self.accelerated_ports()? {
            return self.open_accelerated(request, &ports);
        }
        let Request { port, points, snap, filter } = request;
        let filter = filter.as_deref().map(|filter| compile(filter, *snap)).transpose()?;
        let points = points.iter().fold(Points::NONE, |all, &point| all | Points::of(point));
        let names = self.ports()?;
        let options = Options {
            port: port.clone(),
            points,
            filter,
            snap: *snap,
            ring: RING,
            ..Options::default()
        };
        let capture = Capture::open(&path_beside(&self.api), &options);
        let capture = capture.map_err(|error| self.refused(error, port, &names))?;
        let names = names.into_iter().map(|port| port.name).collect();
        Ok(Box::new(Watched { capture, names, counted: Statistics::default() }))
    }
}

/// A filter of tcpdump's language.
fn compile(filter: &str, snap: u32) -> Result<Program, OpenError> {
    let wrong = |message: String| OpenError::Filter { filter: filter.to_owned(), message };
    let instructions = libpcap::compile(filter, snap).map_err(|error| match error {
        // What the dynamic linker says is the error's own cause.
        PcapError::Missing { source } => OpenError::NoLibpcap {
            message: source.source().map_or_else(|| source.to_string(), ToString::to_string),
        },
        PcapError::Expression { message, .. } => wrong(message),
        error => wrong(error.to_string()),
    })?;
    let instructions = instructions.into_iter().map(Instruction::from).collect();
    Program::new(instructions).map_err(|error| wrong(error.to_string()))
}

/// A running capture.
struct Watched {
    capture: Capture,
    /// Of the ports, by number.
    names: Vec<String>,
    counted: Statistics,
}

impl Source for Watched {
    fn receive(&mut self, see: &mut See<'_>) -> io::Result<bool> {
        let mut had_any = false;
        for _ in 0..ROUNDS {
            let Some(mut round) = self.capture.receive() else { break };
            had_any = true;
            for packet in round.packets() {
                let record = &packet.record;
                let name = self.names.get(record.port.index()).map_or("?", String::as_str);
                let captured = Captured {
                    time_ns: record.time_ns,
                    len: record.len,
                    bytes: packet.bytes,
                    port: record.port,
                    port_name: name,
                    queue: record.queue.0,
                    worker: record.worker.0,
                    point: record.point,
                    reason: record.reason.map(DropReason::name),
                    explanation: record.reason.map(DropReason::explanation),
                };
                if let ControlFlow::Break(()) = see(&captured) {
                    return Ok(true);
                }
            }
        }
        Ok(had_any)
    }

    fn wait(&mut self, until: Option<Instant>, interrupt: BorrowedFd<'_>) -> io::Result<Wake> {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let held = self.capture.held();
        let timeout = [left, held, Some(PATIENCE)].into_iter().flatten().min();
        let begun = Instant::now();
        let mut interrupted = false;
        let is_held = held.is_some();
        let mut poll_both = |bell: BorrowedFd<'_>| {
            let ready = poll(&[interrupt, bell], timeout);
            interrupted = ready.is_ok_and(|ready| ready.is_ready(0));
        };
        if is_held {
            // What waits is held back; nothing but time, or an end, lets it go.
            poll_both(interrupt);
        } else {
            self.capture.sleep(poll_both);
        }
        if interrupted {
            return Ok(Wake::Interrupt);
        }
        match self.capture.wait(Some(Duration::ZERO)) {
            Ok(true) => Ok(Wake::Packets),
            Ok(false) if until.is_some_and(|until| Instant::now() >= until) => Ok(Wake::Time),
            // A daemon that hangs has no packets, either.
            Ok(false) if begun.elapsed() >= PATIENCE => match self.capture.counts() {
                Err(error @ RemoteError::Silent { .. }) => Ok(Wake::Silent(error.to_string())),
                _ => Ok(Wake::Packets), // Or may be; the next wait notices an end.
            },
            Ok(false) => Ok(Wake::Packets), // Or may be.
            Err(RemoteError::Gone { .. }) => Ok(Wake::End),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    fn statistics(&mut self) -> Statistics {
        let since = self.capture.statistics();
        self.counted.filtered += since.packets;
        self.counted.lost += since.lost;
        self.counted
    }
}

/// How long no packet arrives before the daemon has to say that it lives.
const PATIENCE: Duration = Duration::from_secs(10);

/// The group whose members may capture.
const GROUP: &str = "manylane-capture";

/// 8 MiB for each worker.
const RING: RingConfig = RingConfig { block_size: 512 << 10, blocks: 16, retire_ns: 10_000_000 };

/// Rounds of blocks before anything else is looked at.
const ROUNDS: usize = 64;
