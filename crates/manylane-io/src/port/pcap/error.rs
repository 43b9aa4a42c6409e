//! Why a capture could not be read or written, and what the operator can do about it.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use super::capture::Skipped;

/// Why a capture could not be read.
#[non_exhaustive]
#[derive(Debug)]
pub enum ReadError {
    /// The file cannot be read.
    Open {
        /// The path.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The file is larger than `bytes_max`.
    TooLarge {
        /// The path.
        path: PathBuf,
        /// The bound, in bytes.
        bytes_max: u64,
    },
    /// The file does not begin like a capture.
    Unknown {
        /// The path.
        path: PathBuf,
        /// Its first bytes: four, or fewer if the file is shorter.
        first: Vec<u8>,
    },
    /// The capture's link type is not Ethernet.
    NotEthernet {
        /// The path.
        path: PathBuf,
        /// The link type, as listed at tcpdump.org.
        link_type: u32,
    },
    /// The file ends inside a packet or block.
    CutShort {
        /// The path.
        path: PathBuf,
        /// The start of that packet or block, in bytes from the start of the file.
        offset: u64,
        /// Packets before it.
        packets: u64,
    },
    /// The file is malformed from here on.
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
    NothingToSend {
        /// The path.
        path: PathBuf,
        /// The skipped packets.
        skipped: Skipped,
    },
}

/// What is malformed in a damaged file.
#[derive(Debug)]
pub enum Damage {
    /// A packet or block claims this many bytes.
    Length(u64),
    /// The format's rules are broken.
    Format(Box<dyn Error + Send + Sync>),
}

/// Why a capture could not be written.
#[non_exhaustive]
#[derive(Debug)]
pub enum WriteError {
    /// The file could not be created.
    Create {
        /// The path.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The file is the one that is being read.
    SameFile {
        /// The path.
        path: PathBuf,
    },
    /// Writing failed, as on a full disk.
    Write {
        /// The path.
        path: PathBuf,
        /// Packets written before.
        packets: u64,
        /// The error.
        source: Box<dyn Error + Send + Sync>,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Open { path, source } => {
                write!(
                    f,
                    "{}: cannot read the capture: {source}; name a file that this user can read",
                    path.display()
                )
            }
            ReadError::TooLarge { path, bytes_max } => write!(
                f,
                "{}: more than {bytes_max} bytes, and a capture is read whole into memory; raise \
                 `bytes_max`, or split it with `editcap -c 1000000`",
                path.display()
            ),
            ReadError::Unknown { path, first } => {
                let what = match first.as_slice() {
                    [] => "is empty",
                    [0x1f, 0x8b, ..] => "is compressed; unpack it with `gunzip`",
                    [0x28, 0xb5, 0x2f, 0xfd] => "is compressed; unpack it with `unzstd`",
                    _ => "is neither pcap nor pcapng",
                };
                let first = first.iter().map(|byte| format!(" {byte:02x}")).collect::<String>();
                write!(
                    f,
                    "{}: {what} (it begins with{first}); make one with `tcpdump -w`",
                    path.display()
                )
            }
            ReadError::NotEthernet { path, link_type } => write!(
                f,
                "{}: its link type is {link_type}, and only Ethernet (1) can be sent; capture on an \
                 Ethernet interface, not on `any`",
                path.display()
            ),
            ReadError::CutShort { path, offset, packets } => {
                let path = path.display();
                write!(
                    f,
                    "{path}: ends inside of what begins at byte {offset}, after packet {packets}; keep \
                     what is before it with `tcpdump -r {path} -w NEW`"
                )
            }
            ReadError::Damaged { path, offset, packets, source } => {
                let path = path.display();
                write!(
                    f,
                    "{path}: damaged at byte {offset}, after packet {packets}: {source}; keep what is \
                     before it with `tcpdump -r {path} -c {packets} -w NEW`"
                )
            }
            ReadError::NothingToSend { path, skipped } => {
                let Skipped { truncated, too_large, not_ethernet } = skipped;
                write!(
                    f,
                    "{}: no packet can be sent: {truncated} were captured in part (capture with `-s \
                     0`), {too_large} are larger than 64 KiB, {not_ethernet} are no Ethernet frames; name another capture",
                    path.display()
                )
            }
        }
    }
}

impl Error for ReadError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            ReadError::Open { source, .. } => Some(source),
            ReadError::Damaged { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damage::Length(bytes) => write!(f, "a length of {bytes} bytes"),
            Damage::Format(source) => {
                // The cause is at the end of the library's error chain.
                write!(f, "{source}")?;
                let mut source = source.source();
                while let Some(cause) = source {
                    write!(f, ": {cause}")?;
                    source = cause.source();
                }
                Ok(())
            }
        }
    }
}

impl Error for Damage {}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WriteError::Create { path, source } => {
                write!(
                    f,
                    "{}: cannot make the capture: {source}; name a file that this user may write",
                    path.display()
                )
            }
            WriteError::SameFile { path } => write!(
                f,
                "{}: would be written over while it is read; write to another file",
                path.display()
            ),
            WriteError::Write { path, packets, source } => write!(
                f,
                "{}: cannot write after {packets} packets: {source}; make room (`df` shows it), or name another file",
                path.display()
            ),
        }
    }
}

impl Error for WriteError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            WriteError::Create { source, .. } => Some(source),
            WriteError::Write { source, .. } => Some(source.as_ref()),
            WriteError::SameFile { .. } => None,
        }
    }
}
