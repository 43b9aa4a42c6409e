//! A capture from its first word to its last.

use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use manylane_frame::vocabulary::Point;

use super::extcap;
use super::files::{Files, Room, Rotation, Target, WriteError};
use super::interrupt::Interrupt;
use super::lines::{Lines, Style};
use super::local_time::LocalTime;
use super::options::{ANY, Options, UsageError};
use super::source::{Captured, OpenError, PortName, Request, Server, Source, Statistics, Wake};

/// Does what the options say, with what `server` has. The status is that of the command.
pub fn run(options: &Options, server: &dyn Server) -> ExitCode {
    let outcome = if options.extcap.is_given() {
        extcap::run(options, server, &mut io::stdout().lock())
    } else if options.list_ports {
        list_ports(server)
    } else {
        Plan::of(options).and_then(|plan| {
            let interrupt = Interrupt::by_signal().map_err(system("signals"))?;
            let out = Box::new(io::stdout());
            plan.execute(server, &interrupt, out, &mut io::stderr())
        })
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the pipe has had enough.
        Err(CaptureError::Closed) => ExitCode::SUCCESS,
        Err(error) => {
            // Without a standard error no reader is left.
            let _ = io::stderr().write_all(format!("error: {error}\n").as_bytes());
            if error.is_usage() { 2.into() } else { ExitCode::FAILURE }
        }
    }
}

/// `-D`.
fn list_ports(server: &dyn Server) -> Result<(), CaptureError> {
    let mut text = String::new();
    for (number, PortName { name, description, .. }) in (1..).zip(server.ports()?) {
        text += &format!("{number}.{name} ({description})\n");
    }
    text += &format!("{ANY} (all of them)\n");
    io::stdout().write_all(text.as_bytes()).map_err(CaptureError::output)
}

/// A capture that is to be.
pub(super) struct Plan {
    pub(super) request: Request,
    pub(super) target: Option<(Target, Rotation)>,
    pub(super) style: Style,
    pub(super) count: Option<u64>,
    /// Whether the capture reports its work and its counters on standard error.
    pub(super) speaks: bool,
}

impl Plan {
    /// What the options say together.
    pub(super) fn of(options: &Options) -> Result<Plan, CaptureError> {
        let target = options.target()?;
        if let Some((Target::StandardOutput, _)) = target
            && io::stdout().is_terminal()
        {
            return Err(UsageError::Terminal.into());
        }
        let (request, style) = (options.request(), options.style());
        Ok(Plan { request, target, style, count: options.count, speaks: true })
    }

    /// Captures until it is interrupted, has its packets, or cannot continue. Lines are written to `out`, what is
    /// said of them to `messages`.
    pub(super) fn execute(
        self,
        server: &dyn Server,
        interrupt: &Interrupt,
        out: Box<dyn Write>,
        messages: &mut dyn Write,
    ) -> Result<(), CaptureError> {
        let ports = server.ports()?;
        let request = &self.request;
        if let Some(name) = request.port.as_ref().filter(|name| !has(&ports, name)) {
            let ports = ports.into_iter().map(|port| port.name).collect();
            return Err(OpenError::NoSuchPort { name: name.clone(), ports }.into());
        }
        // Before a file is emptied: the daemon may refuse.
        let mut source = server.open(request)?;
        let time = LocalTime::of_this_machine();
        let mut sink = match self.target {
            None => Sink::Lines(Lines::new(out, time, self.style)),
            Some((target, rotation)) => {
                let files = Files::create(target, rotation, request, &ports, time, now_ns())?;
                Sink::Files(Box::new(files))
            }
        };
        if self.speaks {
            let _ = writeln!(messages, "{}", listening(request));
            if let Some(notice) = source.notice() {
                let _ = writeln!(messages, "{notice}");
            }
        }
        let mut watch = Watch { sink: &mut sink, captured: 0, left: self.count };
        let watched = watch.run(&mut *source, interrupt);
        let captured = watch.captured;
        let statistics = source.statistics();
        drop(source); // What comes from here on is not lost, but not wanted.
        let ended = match watched {
            // What is written already is not to be followed by more.
            Err(CaptureError::Write(_) | CaptureError::Closed) => watched,
            _ => watched.and(sink.end(statistics)),
        };
        if self.speaks {
            let _ = messages.write_all(counts(captured, statistics).as_bytes());
        }
        ended
    }
}

fn has(ports: &[PortName], name: &str) -> bool {
    ports.iter().any(|port| port.name == name)
}

/// As tcpdump says it.
fn listening(request: &Request) -> String {
    let points: Vec<_> = request.points.iter().map(|&point| Point::name(point)).collect();
    let port = request.port.as_deref().unwrap_or("all ports");
    format!("listening on {port} ({}), snapshot length {} bytes", points.join(", "), request.snap)
}

/// As tcpdump says it, too. Packets that passed the filter and were neither captured nor lost waited when the
/// capture ended.
fn counts(captured: u64, Statistics { filtered, lost }: Statistics) -> String {
    let packets = |number: u64| format!("{number} packet{}", if number == 1 { "" } else { "s" });
    let mut text = format!(
        "{} captured\n{} received by filter\n{} lost between the workers and this command\n",
        packets(captured),
        packets(filtered),
        packets(lost)
    );
    if lost > 0 {
        text += "  (its ring was full: it reads too slowly; -w, a filter or a smaller -s makes it faster)\n";
    }
    text
}

/// Where packets are written.
enum Sink {
    Lines(Lines),
    Files(Box<Files>),
}

impl Sink {
    fn packet(&mut self, packet: &Captured<'_>) -> Result<Room, CaptureError> {
        match self {
            Sink::Lines(lines) => {
                lines.packet(packet).map_err(CaptureError::output)?;
                Ok(Room::Left)
            }
            Sink::Files(files) => Ok(files.packet(packet)?),
        }
    }

    fn flush(&mut self) -> Result<(), CaptureError> {
        match self {
            Sink::Lines(lines) => lines.flush().map_err(CaptureError::output),
            Sink::Files(files) => Ok(files.flush()?),
        }
    }

    fn end(&mut self, statistics: Statistics) -> Result<(), CaptureError> {
        match self {
            Sink::Lines(lines) => lines.flush().map_err(CaptureError::output),
            Sink::Files(files) => {
                files.lost(statistics.lost);
                Ok(files.end(now_ns())?)
            }
        }
    }

    fn until_ns(&self) -> Option<u64> {
        match self {
            Sink::Lines(_) => None,
            Sink::Files(files) => files.until_ns(),
        }
    }
}

/// Packets on their way from the source to the sink.
struct Watch<'a> {
    sink: &'a mut Sink,
    captured: u64,
    /// How many more are wanted, if not all.
    left: Option<u64>,
}

impl Watch<'_> {
    fn run(&mut self, source: &mut dyn Source, interrupt: &Interrupt) -> Result<(), CaptureError> {
        loop {
            let is_interrupted = interrupt.is_raised().map_err(system("the interrupt"))?;
            let received = self.receive(source)?;
            // What was there when the user had had enough is received, and no more.
            if is_interrupted || received == Received::Enough {
                return Ok(());
            }
            if received == Received::Some {
                continue;
            }
            self.sink.flush()?;
            let until = self.sink.until_ns().map(instant);
            let waited = source.wait(until, interrupt.as_fd());
            match waited.map_err(system("waiting for packets"))? {
                Wake::Packets | Wake::Interrupt => {}
                Wake::Time if self.sink.until_ns().is_some_and(|until| now_ns() >= until) => {
                    return Ok(());
                }
                Wake::Time => {} // The clock was set back.
                Wake::Silent(message) => return Err(CaptureError::Silent { message }),
                Wake::End => {
                    while self.receive(source)? == Received::Some {}
                    return Err(CaptureError::Ended);
                }
            }
        }
    }

    fn receive(&mut self, source: &mut dyn Source) -> Result<Received, CaptureError> {
        if let Sink::Files(files) = self.sink {
            files.lost(source.statistics().lost);
        }
        let mut outcome = Ok(Received::Some);
        let any = source.receive(&mut |packet| {
            match self.sink.packet(packet) {
                Ok(Room::Left) => {}
                Ok(Room::None) => outcome = Ok(Received::Enough),
                Err(error) => outcome = Err(error),
            }
            if let Ok(Received::Some) = outcome {
                self.captured += 1;
                if let Some(left) = &mut self.left {
                    *left -= 1;
                    if *left == 0 {
                        outcome = Ok(Received::Enough);
                    }
                }
            }
            match outcome {
                Ok(Received::Some) => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            }
        });
        let any = any.map_err(system("receiving packets"))?;
        if any { outcome } else { Ok(Received::None) }
    }
}

/// What a look at the source has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Received {
    Some,
    None,
    /// All that was wanted.
    Enough,
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64) // Fits until 2554.
}

fn instant(time_ns: u64) -> Instant {
    let now = Instant::now();
    now.checked_add(Duration::from_nanos(time_ns.saturating_sub(now_ns()))).unwrap_or(now)
}

fn system(what: &'static str) -> impl Fn(io::Error) -> CaptureError {
    move |source| CaptureError::System { what, source }
}

/// Why a capture ended that the user did not end.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The command line contradicts itself.
    #[error("{0}")]
    Usage(#[from] UsageError),
    /// The daemon does not give packets.
    #[error("{0}")]
    Open(#[from] OpenError),
    /// Packets cannot be written.
    #[error("{0}")]
    Write(#[source] WriteError),
    /// The reader of the output has gone.
    #[error("the reader of the output has gone; use -w FILE to keep packets")]
    Closed,
    /// The daemon has ended the capture.
    #[error(
        "the daemon has ended the capture: it has stopped, or its port is gone; `manylane show ports` tells which"
    )]
    Ended,
    /// The daemon hangs.
    #[error("{message}")]
    Silent {
        /// What is known of it, and what to do.
        message: String,
    },
    /// A step was refused by the system.
    #[error(
        "cannot capture: {what}: {source}; close programs, or raise `ulimit -n`, and try again"
    )]
    System {
        /// The step.
        what: &'static str,
        /// What the system says.
        source: io::Error,
    },
}

impl CaptureError {
    pub(super) fn output(source: io::Error) -> CaptureError {
        match source.kind() {
            io::ErrorKind::BrokenPipe => CaptureError::Closed,
            _ => CaptureError::System { what: "standard output", source },
        }
    }

    fn is_usage(&self) -> bool {
        match self {
            CaptureError::Usage(_) => true,
            CaptureError::Open(error) => error.is_usage(),
            _ => false,
        }
    }
}

impl From<WriteError> for CaptureError {
    fn from(error: WriteError) -> CaptureError {
        if error.is_closed() { CaptureError::Closed } else { CaptureError::Write(error) }
    }
}
