//! `manylane trace`: follows packets of a daemon, and prints each packet when its last stage has ended.
//!
//! `manylane run` follows packets itself, and this file prints what it says. With `manylane accelerate`
//! `accelerated.rs` joins what programs copy with what the kernel reports.
//!
//! | File             | Holds                                                                        |
//! |------------------|------------------------------------------------------------------------------|
//! | `accelerated.rs` | a trace of `manylane accelerate`, from its first word to its last             |
//! | `kernel.rs`      | what the kernel reports, in the daemon's network namespace                    |
//! | `headers.rs`     | what tells a packet from all others                                           |
//! | `follow.rs`      | packets, joined from all that is seen of them                                 |
//! | `page.rs`        | a packet as people and programs read it                                       |

mod accelerated;
mod follow;
mod headers;
mod kernel;
mod page;

use std::fmt::Display;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use tokio::sync::oneshot;

use crate::terminal::{SOCKET, USAGE, complain};
use manylane_api::DEFAULT_SOCKET;
use manylane_api::{Client, FollowEnd, TraceLine, TraceRequest};
use manylane_router::trace::together::{Followed, Together};
use manylane_router::trace::{PACKETS_MAX, text};

/// The options of `manylane trace`.
#[derive(Debug, Args)]
pub struct TraceOptions {
    /// Follow N packets
    #[arg(short = 'c', long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(PACKETS_MAX)))]
    pub count: u32,
    /// Only packets that this port receives
    #[arg(short = 'i', long, value_name = "PORT")]
    pub port: Option<String>,
    /// Stop after SECONDS and print the stages so far
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: Option<u64>,
    /// Print a line of JSON for each packet
    #[arg(long)]
    pub json: bool,
    /// Path of the daemon's API socket
    #[arg(long, value_name = "PATH", env = SOCKET, hide_env_values = true, default_value = DEFAULT_SOCKET)]
    pub socket: PathBuf,
    /// Filter in tcpdump's language (pcap-filter(7)); without one, all packets
    #[arg(value_name = "FILTER", trailing_var_arg = true)]
    pub filter: Vec<String>,
}

/// Does it.
pub fn run(options: &TraceOptions) -> ExitCode {
    let filter = match instructions(&options.filter.join(" ")) {
        Ok(filter) => filter,
        Err(error) => {
            complain(&format_args!("error: {error}"));
            return USAGE.into();
        }
    };
    let follow = if accelerated::is_at(options) { accelerated::follow } else { follow };
    match follow(options, filter, &mut io::stdout().lock(), &mut io::stderr()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS // The reader closed the pipe.
        }
        Err(error) => {
            complain(&format_args!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

enum Failure {
    Asking(manylane_api::ClientError),
    Answer(serde_json::Error),
    Request(serde_json::Error),
    Remote(manylane_client::RemoteError),
    NoPort { name: String, ports: String },
    Program(manylane_net::filter::FilterError),
    Signals(io::Error),
    Output(io::Error),
}

impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Asking(error) => write!(f, "{error}"),
            Failure::Remote(error) => write!(f, "{error}"),
            Failure::NoPort { name, ports } => {
                write!(f, "port `{name}` does not exist; existing ports: {ports}")
            }
            Failure::Program(error) => {
                write!(f, "the filter is not one: {error}; please report it")
            }
            Failure::Answer(error) => write!(
                f,
                "the daemon's answer is not as one of this version has it: {error}; compare \
                 `manylane --version` with the daemon's"
            ),
            Failure::Request(error) => {
                write!(f, "cannot write the request: {error}; please report it")
            }
            Failure::Signals(error) => {
                write!(f, "cannot watch for signals: {error}; end programs, or raise `ulimit -n`")
            }
            Failure::Output(error) => {
                write!(f, "cannot write to standard output: {error}; see what reads it")
            }
        }
    }
}

/// The program of an expression; every packet's for the empty one, which needs no libpcap.
fn instructions(expression: &str) -> Result<Vec<(u16, u8, u8, u32)>, impl Display> {
    use manylane_io::libpcap::{SNAP_MAX, compile};
    match expression.trim() {
        "" => Ok(vec![(RETURN, 0, 0, u32::MAX)]),
        expression => compile(expression, SNAP_MAX),
    }
}

/// `BPF_RET | BPF_K`.
const RETURN: u16 = 0x06;

fn follow(
    options: &TraceOptions,
    filter: Vec<(u16, u8, u8, u32)>,
    out: &mut dyn Write,
    notes: &mut dyn Write,
) -> Result<(), Failure> {
    let request = TraceRequest { count: options.count, filter, port: options.port.clone() };
    let body = serde_json::to_string(&request).map_err(Failure::Request)?;
    let mut shown = Shown { json: options.json, ..Shown::default() };
    let mut failed = None;
    let client = Client::new(&options.socket);
    let mut interrupt = Interrupt::watch().map_err(Failure::Signals)?;
    let stopped = interrupt.or_after(options.timeout);
    let end = client.follow("/v1/trace", body, stopped, |line| {
        match shown.take(line, options.count, out, notes) {
            Ok(flow) => flow,
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        }
    });
    let end = end.map_err(Failure::Asking)?;
    if let Some(error) = failed {
        return Err(error);
    }
    let Shown { packets, lost, together, json, .. } = shown;
    for rest in together.rest() {
        show(&rest, json, out).map_err(Failure::Output)?;
    }
    if lost > 0 {
        let _ = writeln!(
            notes,
            "{lost} stages were not recorded: too much happened at once; trace fewer packets"
        );
    }
    if packets < options.count {
        let why = if end == FollowEnd::Ended { "the daemon has stopped" } else { "stopped" };
        let _ = writeln!(notes, "{why} with {packets} of {} packets", options.count);
    }
    Ok(())
}

/// What has been shown, and what has not yet come to its end.
#[derive(Default)]
struct Shown {
    json: bool,
    /// Complete ones.
    packets: u32,
    /// Stages, and how many packets had been found then.
    lost: u64,
    found: u32,
    /// Signs of life since the last stage, one a second.
    silent: u32,
    together: Together,
}

/// Where stages were lost, the end of a packet may be one of them: after this number of seconds without a
/// stage the wait is over. No packet is held for longer.
const SILENT_MAX: u32 = 8;

impl Shown {
    fn take(
        &mut self,
        line: &str,
        count: u32,
        out: &mut dyn Write,
        notes: &mut dyn Write,
    ) -> Result<ControlFlow<()>, Failure> {
        if line.is_empty() {
            self.silent += 1;
            let is_over = self.lost > 0 && self.found == count && self.silent >= SILENT_MAX;
            return Ok(if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) });
        }
        self.silent = 0;
        match serde_json::from_str(line).map_err(Failure::Answer)? {
            // Without a standard error no reader is left, here and below.
            TraceLine::Armed => _ = writeln!(notes, "looking for packets; Ctrl-C ends it"),
            TraceLine::Lost { stages, packets } => (self.lost, self.found) = (stages, packets),
            TraceLine::Stage(stage) => {
                if let Some(packet) = self.together.add(stage) {
                    self.packets += 1;
                    show(&packet, self.json, out).map_err(Failure::Output)?;
                }
            }
        }
        Ok(if self.packets == count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }
}

fn show(packet: &Followed, json: bool, out: &mut dyn Write) -> io::Result<()> {
    match json {
        true => writeln!(out, "{}", serde_json::to_string(packet)?)?,
        false => out.write_all(text::block(packet).as_bytes())?,
    }
    out.flush()
}

/// SIGINT and SIGTERM, while this lives.
struct Interrupt {
    handle: Handle,
    raised: oneshot::Receiver<()>,
    waiter: Option<JoinHandle<()>>,
}

impl Interrupt {
    fn watch() -> io::Result<Interrupt> {
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let handle = signals.handle();
        let (raise, raised) = oneshot::channel();
        let wait = move || {
            if signals.forever().next().is_some() {
                let _ = raise.send(()); // Nothing waits when the trace is over.
            }
        };
        let waiter = thread::Builder::new().name("signals".into()).spawn(wait)?;
        Ok(Interrupt { handle, raised, waiter: Some(waiter) })
    }

    /// Ready at a signal, or when the time is over.
    async fn or_after(&mut self, timeout: Option<u64>) {
        let time = async {
            match timeout {
                Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = &mut self.raised => {}
            () = time => {}
        }
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(waiter) = self.waiter.take() {
            let _ = waiter.join(); // This thread has nothing to panic about.
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::Failure;
    use manylane_api::ClientError;

    #[test]
    fn why_it_is_over_is_told() {
        let said = || io::Error::from_raw_os_error(5);
        let wrong = || serde_json::from_str::<u8>("{").unwrap_err();
        let no_filter = manylane_net::filter::Program::new(Vec::new()).unwrap_err();
        let nobody = ClientError::NoDaemon { socket: "/run/s".into() };
        messages!(Failure {
            Asking: [(Asking(nobody), ["/run/s"], "start one with")],
            Remote: [(
                Remote(manylane_client::RemoteError::NoDaemon { path: "/run/s".into() }),
                ["/run/s"],
                "start"
            )],
            NoPort: [(
                NoPort { name: "dmz".into(), ports: "lan, wan".into() },
                ["dmz"],
                "existing ports: lan, wan"
            )],
            Program: [(Program(no_filter), ["filter"], "please report it")],
            Answer: [(Answer(wrong()), ["line 1"], "compare `manylane --version`")],
            Request: [(Request(wrong()), ["line 1"], "please report it")],
            Signals: [(Signals(said()), ["signals", "Input/output error"], "raise `ulimit -n`")],
            Output: [(Output(said()), ["standard output"], "see what reads it")],
        });
    }
}
