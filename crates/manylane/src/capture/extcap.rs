//! Wireshark's way to call us: extcap(4).
//!
//! | Wireshark asks | and gets |
//! |---|---|
//! | `--extcap-interfaces` | us, and an interface for each port and for all; without a daemon, us alone |
//! | `--extcap-interface I --extcap-dlts` | Ethernet |
//! | `--extcap-interface I --extcap-config` | what its dialog offers: our own options |
//! | `--extcap-interface I --extcap-capture-filter F` | nothing if it is a filter, else what is wrong with it |
//! | `--capture --extcap-interface I --fifo P` | packets, as pcapng, until SIGTERM or until P is closed |
//!
//! Wireshark shows standard error in a dialog: only failures are written there.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use super::files::{Rotation, Target, WriteError};
use super::interrupt::Interrupt;
use super::lines::Style;
use super::options::{ANY, Options, UsageError};
use super::run::{CaptureError, Plan};
use super::source::{SNAP_MAX, Server};

/// What Wireshark says.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct ExtcapOptions {
    #[arg(id = "extcap:interfaces", long = "extcap-interfaces", hide = true)]
    interfaces: bool,
    #[arg(id = "extcap:version", long = "extcap-version", hide = true, num_args = 0..=1, default_missing_value = "")]
    version: Option<String>,
    #[arg(id = "extcap:dlts", long = "extcap-dlts", hide = true)]
    dlts: bool,
    #[arg(id = "extcap:config", long = "extcap-config", hide = true)]
    config: bool,
    #[arg(id = "extcap:interface", long = "extcap-interface", hide = true)]
    interface: Option<String>,
    #[arg(id = "extcap:capture-filter", long = "extcap-capture-filter", hide = true)]
    filter: Option<String>,
    #[arg(id = "extcap:capture", long = "capture", hide = true)]
    capture: bool,
    #[arg(id = "extcap:fifo", long = "fifo", hide = true)]
    fifo: Option<PathBuf>,
}

impl ExtcapOptions {
    /// Whether it is Wireshark that calls.
    pub(super) fn is_given(&self) -> bool {
        self.interfaces
            || self.dlts
            || self.config
            || self.capture
            || self.version.is_some()
            || self.interface.is_some()
            || self.filter.is_some()
            || self.fifo.is_some()
    }
}

/// Answers on `out`, or captures.
pub(super) fn run(
    options: &Options,
    server: &dyn Server,
    out: &mut dyn Write,
) -> Result<(), CaptureError> {
    let said = &options.extcap;
    let answer = if said.capture {
        let plan = plan(options)?;
        // A reader may never open the FIFO, and then SIGTERM has to end us as it ends every process: until a
        // reader is there, we handle no signal.
        let fifo = said.fifo.as_ref().map(|path| has_reader(path)).transpose()?;
        let interrupt = Interrupt::by_signal()
            .map_err(|source| CaptureError::System { what: "signals", source })?;
        // This capture writes no lines.
        let outcome = plan.execute(server, &interrupt, Box::new(io::sink()), &mut io::sink());
        drop(fifo);
        return outcome;
    } else if said.dlts {
        port(options, "--extcap-dlts")?;
        "dlt {number=1}{name=EN10MB}{display=Ethernet}\n".to_owned()
    } else if said.config {
        port(options, "--extcap-config")?;
        config(&options.socket)
    } else if let Some(filter) = &said.filter {
        port(options, "--extcap-capture-filter")?;
        match server.check_filter(filter) {
            Ok(()) => String::new(),
            Err(error) => format!("{error}\n"),
        }
    } else if said.interfaces || said.version.is_some() {
        interfaces(server, said.interfaces)
    } else {
        let lacks = "--capture, --extcap-config or --extcap-dlts";
        return Err(UsageError::Extcap { option: "--extcap-interface", lacks }.into());
    };
    out.write_all(answer.as_bytes()).and_then(|()| out.flush()).map_err(CaptureError::output)
}

/// Waits until a process reads a FIFO (fifo(7)); while the file lives, no open of it waits for that again.
fn has_reader(path: &Path) -> Result<File, WriteError> {
    let opened = OpenOptions::new().write(true).open(path);
    opened.map_err(|source| WriteError::Create { path: path.to_owned(), source })
}

/// An absent daemon is no error: Wireshark queries whenever it starts.
fn interfaces(server: &dyn Server, with_ports: bool) -> String {
    let mut text =
        format!("extcap {{version={}}}{{display=manylane}}\n", env!("CARGO_PKG_VERSION"));
    let Some(ports) = server.ports().ok().filter(|_| with_ports) else { return text };
    let _ = writeln!(text, "interface {{value={PREFIX}{ANY}}}{{display=manylane: all ports}}");
    for port in ports {
        // Names are letters, digits and a few signs (`config`): none of them means anything here.
        let name = port.name;
        let _ = writeln!(text, "interface {{value={PREFIX}{name}}}{{display=manylane: {name}}}");
    }
    text
}

/// The socket is the one that we were called with: Wireshark names it again in each later call.
fn config(socket: &Path) -> String {
    let socket = socket.display();
    format!(
        "arg {{number=0}}{{call=--point}}{{display=Points}}{{tooltip=Where packets are seen}}{{type=multicheck}}\n\
         value {{arg=0}}{{value=rx}}{{display=rx, as they come}}{{default=true}}\n\
         value {{arg=0}}{{value=tx}}{{display=tx, rewritten as they leave}}{{default=true}}\n\
         value {{arg=0}}{{value=drop}}{{display=drop, with the reason as a comment}}{{default=false}}\n\
         value {{arg=0}}{{value=kernel}}{{display=kernel, left to it, with the reason as a comment}}{{default=false}}\n\
         arg {{number=1}}{{call=--snapshot-length}}{{display=Snapshot length}}{{tooltip=Bytes of each packet that \
         are kept}}{{type=unsigned}}{{range=0,{SNAP_MAX}}}{{default={SNAP_MAX}}}\n\
         arg {{number=2}}{{call=--socket}}{{display=Socket}}{{tooltip=Where the daemon's API listens}}\
         {{type=string}}{{default={socket}}}\n"
    )
}

/// The port that an interface stands for; all, or by name.
fn port(options: &Options, option: &'static str) -> Result<Option<String>, UsageError> {
    let Some(name) = &options.extcap.interface else {
        return Err(UsageError::Extcap { option, lacks: "--extcap-interface" });
    };
    match name.strip_prefix(PREFIX) {
        Some(ANY) => Ok(None),
        Some(port) => Ok(Some(port.to_owned())),
        None => Err(UsageError::ExtcapInterface { name: name.clone() }),
    }
}

fn plan(options: &Options) -> Result<Plan, UsageError> {
    let mut request = options.request();
    request.port = port(options, "--capture")?;
    request.filter = options.extcap.filter.clone().filter(|filter| !filter.trim().is_empty());
    let Some(fifo) = &options.extcap.fifo else {
        return Err(UsageError::Extcap { option: "--capture", lacks: "--fifo" });
    };
    let target = Some((Target::Fifo(fifo.clone()), Rotation::default()));
    Ok(Plan { request, target, style: Style::default(), count: None, speaks: false })
}

/// Of our interfaces, so that Wireshark can tell them from others'.
const PREFIX: &str = "manylane-";
