//! Why a capture could not be read or written, and what the operator can do about it.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use super::capture::Skipped;
use crate::chain::Chain;

/// Why a capture could not be read.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("{}: cannot read the capture: {source}; name a file that this user can read", .path.display())]
    Open {
        /// The path.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The file is larger than `bytes_max`.
    #[error(
        "{}: more than {bytes_max} bytes, and a capture is read whole into memory; raise `bytes_max`, or split it \
         with `editcap -c 1000000`",
        .path.display()
    )]
    TooLarge {
        /// The path.
        path: PathBuf,
        /// The bound, in bytes.
        bytes_max: u64,
    },
    /// The file does not begin like a capture.
    #[error("{}: {}; make one with `tcpdump -w`", .path.display(), unknown(.first))]
    Unknown {
        /// The path.
        path: PathBuf,
        /// Its first bytes: four, or fewer if the file is shorter.
        first: Vec<u8>,
    },
    /// The capture's link type is not Ethernet.
    #[error(
        "{}: its link type is {link_type}, and only Ethernet (1) can be sent; capture on an Ethernet interface, not \
         on `any`",
        .path.display()
    )]
    NotEthernet {
        /// The path.
        path: PathBuf,
        /// The link type, as listed at tcpdump.org.
        link_type: u32,
    },
    /// The file ends inside a packet or block.
    #[error(
        "{0}: the packet or block at byte {offset}, after packet {packets}, is incomplete; keep the packets before it \
         with `tcpdump -r {0} -w NEW`",
        .path.display()
    )]
    CutShort {
        /// The path.
        path: PathBuf,
        /// The start of that packet or block, in bytes from the start of the file.
        offset: u64,
        /// Packets before it.
        packets: u64,
    },
    /// The file is malformed from here on.
    #[error(
        "{0}: damaged at byte {offset}, after packet {packets}: {source}; keep the packets before it with `tcpdump -r \
         {0} -c {packets} -w NEW`",
        .path.display()
    )]
    Damaged {
        /// The path.
        path: PathBuf,
        /// The start of the packet or block, in bytes from the start of the file.
        offset: u64,
        /// Packets before it.
        packets: u64,
        /// What is malformed.
        source: Damage,
    },
    /// Every packet was skipped.
    #[error(
        "{}: no packet can be sent: {} were truncated (capture with `-s 0`), {} are larger than 64 KiB, {} are not \
         Ethernet frames; name another capture",
        .path.display(), .skipped.truncated, .skipped.too_large, .skipped.not_ethernet
    )]
    NothingToSend {
        /// The path.
        path: PathBuf,
        /// The skipped packets.
        skipped: Skipped,
    },
}

/// How a capture can be created.
fn creatable(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::NotFound => "make its folder first, or name a file in another",
        _ => "name a file that this user may write",
    }
}

/// What a file is that does not begin like a capture.
fn unknown(first: &[u8]) -> String {
    let what = match first {
        [] => "is empty",
        [0x1f, 0x8b, ..] => "is compressed; unpack it with `gunzip`",
        [0x28, 0xb5, 0x2f, 0xfd] => "is compressed; unpack it with `unzstd`",
        _ => "is neither pcap nor pcapng",
    };
    let first = first.iter().map(|byte| format!(" {byte:02x}")).collect::<String>();
    format!("{what} (it begins with{first})")
}

/// What is malformed in a damaged file.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// A packet or block claims this many bytes.
    #[error("a length of {0} bytes")]
    Length(u64),
    /// The format's rules are broken.
    #[error("{}", Chain(.0.as_ref()))]
    Format(Box<dyn Error + Send + Sync>),
}

/// Why a capture could not be written.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The file could not be created.
    #[error("{}: cannot create the capture: {source}; {}", .path.display(), creatable(.source))]
    Create {
        /// The path.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The file is the one that is being read.
    #[error("{}: is being read and would be overwritten; write to another file", .path.display())]
    SameFile {
        /// The path.
        path: PathBuf,
    },
    /// Writing failed, as on a full disk.
    #[error(
        "{}: cannot write after {packets} packets: {source}; make room (`df` shows it), or name another file",
        .path.display()
    )]
    Write {
        /// The path.
        path: PathBuf,
        /// Packets written before.
        packets: u64,
        /// The error.
        source: Box<dyn Error + Send + Sync>,
    },
}
