//! The options of `manylane capture`, and the request that they form together.

use std::path::{Path, PathBuf};

use clap::{ArgAction, Args, ValueEnum};
use manylane_frame::vocabulary::Point;

use super::extcap::ExtcapOptions;
use super::files::{Rotation, Target};
use super::lines::{Hex, Style};
use super::source::{Request, SNAP_MAX};
use crate::terminal::SOCKET;
use manylane_api::DEFAULT_SOCKET;

/// The options of `manylane capture`: tcpdump's options (tcpdump(1)), and some of manylane's.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Without -w each packet is a line: time, port, point (rx as received, tx as transmitted, \
                        drop and kernel with their reason), worker or CPU, and headers. Quote filters with parentheses or an \
                        asterisk for the shell."
)]
pub struct Options {
    /// The port to capture on, or `any`
    #[arg(short = 'i', long = "interface", value_name = "PORT", default_value = ANY)]
    pub port: String,
    /// Points of capture, one or several: on receive, on transmit, on drop, left to the kernel
    #[arg(
        long = "point",
        value_name = "POINT",
        value_delimiter = ',',
        default_values = ["rx", "tx"]
    )]
    pub points: Vec<PointName>,
    /// Keep BYTES of each packet; 0 keeps all
    #[arg(
        short = 's',
        long = "snapshot-length",
        value_name = "BYTES",
        default_value_t = SNAP_MAX,
        value_parser = clap::value_parser!(u32).range(..=i64::from(SNAP_MAX)),
    )]
    pub snap: u32,
    /// Stop after N packets
    #[arg(short, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Write pcapng to FILE instead of printing lines; `-` is standard output
    #[arg(short, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// With -w, begin another file every SECONDS; FILE may contain strftime(3)'s patterns
    #[arg(short = 'G', value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub rotate_seconds: Option<u32>,
    /// With -w, begin another file after MILLIONS of bytes; a number follows FILE
    #[arg(short = 'C', value_name = "MILLIONS", value_parser = clap::value_parser!(u32).range(1..))]
    pub rotate_millions: Option<u32>,
    /// With -C, write FILES files, then overwrite the first; with -G alone, stop after FILES files
    #[arg(short = 'W', value_name = "FILES", value_parser = clap::value_parser!(u32).range(1..))]
    pub files: Option<u32>,
    /// No effect: addresses are always numbers
    #[arg(short = 'n', action = ArgAction::Count)]
    pub numeric: u8,
    /// Also print the Ethernet header
    #[arg(short = 'e')]
    pub link: bool,
    /// Print more of each packet, and the meaning of drop reasons
    #[arg(short, action = ArgAction::Count)]
    pub verbose: u8,
    /// Print less of each packet
    #[arg(short)]
    pub quiet: bool,
    /// Also print bytes; twice, with the Ethernet header
    #[arg(short = 'x', action = ArgAction::Count)]
    pub hex: u8,
    /// Also print bytes and characters; twice, with the Ethernet header
    #[arg(short = 'X', action = ArgAction::Count)]
    pub hex_ascii: u8,
    // The options change nothing: manylane always prints and writes a packet at once.
    #[arg(short = 'l', hide = true, action = ArgAction::Count)]
    line_buffered: u8,
    #[arg(short = 'U', hide = true, action = ArgAction::Count)]
    packet_buffered: u8,
    /// List the ports, then exit
    #[arg(short = 'D', long)]
    pub list_ports: bool,
    // The last is taken: a wrapper for Wireshark names one, and Wireshark's dialog then perhaps another.
    /// Path of the daemon's API socket
    #[arg(long, value_name = "PATH", env = SOCKET, hide_env_values = true, default_value = DEFAULT_SOCKET, overrides_with = "socket")]
    pub socket: PathBuf,
    /// Capture only packets that match (pcap-filter(7)), for example: udp port 53 and not host 10.0.0.1
    #[arg(value_name = "FILTER")]
    pub filter: Vec<String>,
    #[command(flatten)]
    pub(super) extcap: ExtcapOptions,
}

/// A point, as the command line spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PointName {
    /// As received, before any rule
    Rx,
    /// As transmitted, after rewriting
    Tx,
    /// On drop, with the reason
    Drop,
    /// Left to the kernel by `manylane accelerate`, with the reason
    Kernel,
}

impl PointName {
    fn point(self) -> Point {
        match self {
            PointName::Rx => Point::Receive,
            PointName::Tx => Point::Transmit,
            PointName::Drop => Point::Drop,
            PointName::Kernel => Point::Kernel,
        }
    }
}

impl Options {
    /// The packets to capture.
    pub fn request(&self) -> Request {
        let given: Vec<_> = self.points.iter().map(|name| name.point()).collect();
        Request {
            port: (self.port != ANY).then(|| self.port.clone()),
            points: Point::ALL.iter().copied().filter(|point| given.contains(point)).collect(),
            snap: if self.snap == 0 { SNAP_MAX } else { self.snap },
            // As tcpdump does: one quoted argument and several words are one filter.
            filter: Some(self.filter.join(" ")).filter(|filter| !filter.trim().is_empty()),
        }
    }

    /// The file to write, if any.
    pub(super) fn target(&self) -> Result<Option<(Target, Rotation)>, UsageError> {
        let seconds = self.rotate_seconds;
        let bytes = self.rotate_millions.map(|millions| u64::from(millions) * 1_000_000);
        let rotates = match (seconds, bytes) {
            (Some(_), _) => Some("-G"),
            (None, Some(_)) => Some("-C"),
            (None, None) => None,
        };
        if let (None, Some(_)) = (rotates, self.files) {
            return Err(UsageError::FilesWithoutRotation);
        }
        let Some(path) = &self.write else {
            return match rotates {
                Some(option) => Err(UsageError::RotationWithoutFile { option }),
                None => Ok(None),
            };
        };
        if path == Path::new("-") {
            return match rotates {
                Some(option) => Err(UsageError::RotationOfStandardOutput { option }),
                None => Ok(Some((Target::StandardOutput, Rotation::default()))),
            };
        }
        let rotation = Rotation { seconds, bytes, files: self.files };
        Ok(Some((Target::file(path, seconds.is_some())?, rotation)))
    }

    /// How a line is to look.
    pub(super) fn style(&self) -> Style {
        let hex = match (self.hex, self.hex_ascii) {
            (0, 0) => None,
            (hex, ascii) => Some(Hex { link: hex > 1 || ascii > 1, ascii: ascii > 0 }),
        };
        Style { link: self.link, verbose: self.verbose > 0, quiet: self.quiet, hex }
    }
}

/// What the command line contradicts itself in.
#[non_exhaustive]
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsageError {
    /// Files are to change, and no file is written.
    #[error("{option} begins another file, but no file is named: add -w FILE")]
    RotationWithoutFile {
        /// `-G` or `-C`.
        option: &'static str,
    },
    /// Files are to change, and standard output is one only.
    #[error(
        "{option} begins another file, and `-w -` is standard output: name a file, or leave {option} out"
    )]
    RotationOfStandardOutput {
        /// `-G` or `-C`.
        option: &'static str,
    },
    /// Files are counted, and only one is written.
    #[error("-W counts files, but only one is written: add -G SECONDS or -C MILLIONS")]
    FilesWithoutRotation,
    /// The name has a pattern that is no time's.
    #[error(
        "with -G, `{name}` is a pattern of strftime(3), and this one has no meaning: {message}; write %% for a percent \
         sign"
    )]
    TimePattern {
        /// The name.
        name: String,
        /// What is wrong with it.
        message: String,
    },
    /// The name is not UTF-8, so that patterns in it cannot be read.
    #[error(
        "with -G, {name:?} is a pattern of strftime(3), and has to be UTF-8: choose another name"
    )]
    NameNotUtf8 {
        /// The name.
        name: PathBuf,
    },
    /// Packets would go to a terminal.
    #[error(
        "`-w -` writes packets to standard output, and that is a terminal: pipe it to a program, such as `| tcpdump -r \
         -`, or leave -w out for lines"
    )]
    Terminal,
    /// An option of extcap(4) lacks another.
    #[error("{option} is for Wireshark, and needs {lacks}: add it, or leave {option} out")]
    Extcap {
        /// The option.
        option: &'static str,
        /// What it lacks.
        lacks: &'static str,
    },
    /// An interface of Wireshark that we have not told it of.
    #[error("`{name}` is no interface of ours: --extcap-interfaces lists them")]
    ExtcapInterface {
        /// Its name.
        name: String,
    },
}

/// All ports.
pub(super) const ANY: &str = "any";
