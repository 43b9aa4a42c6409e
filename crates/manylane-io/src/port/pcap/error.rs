//! Why a capture was not read or written, and what the operator can do about it.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use super::capture::Skipped;

/// Why a capture was not read.
#[non_exhaustive]
#[derive(Debug)]
pub enum ReadError {
    /// The file cannot be read.
    Open {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The file is larger than it may be.
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The bound, in bytes.
        bytes_max: u64,
    },
    /// The file begins like no capture.
    Unknown {
        /// The file.
        path: PathBuf,
        /// Its first bytes, four or all there are.
        first: Vec<u8>,
    },
    /// The capture is of links that are not Ethernet.
    NotEthernet {
        /// The file.
        path: PathBuf,
        /// The link type, as tcpdump.org lists them.
        link_type: u32,
    },
    /// The file ends inside of a packet or block.
    CutShort {
        /// The file.
        path: PathBuf,
        /// Where that begins, in bytes from the start.
        offset: u64,
        /// Packets before it.
        packets: u64,
    },
    /// What is in the file makes no sense from here on.
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the packet or block begins, in bytes from the start.
        offset: u64,
        /// Packets before it.
        packets: u64,
        /// What is wrong there.
        source: Damage,
    },
    /// Every packet was skipped.
    NothingToSend {
        /// The file.
        path: PathBuf,
        /// Why.
        skipped: Skipped,
    },
}

/// What is wrong in a damaged file.
#[derive(Debug)]
pub enum Damage {
    /// A packet or block would have so many bytes.
    Length(u64),
    /// The format's rules are broken.
    Format(Box<dyn Error + Send + Sync>),
}

/// Why a capture was not written.
#[non_exhaustive]
#[derive(Debug)]
pub enum WriteError {
    /// The file cannot be made.
    Create {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The file is the one that is read.
    SameFile {
        /// The file.
        path: PathBuf,
    },
    /// Writing failed, as on a full disk.
    Write {
        /// The file.
        path: PathBuf,
        /// Packets that were written before.
        packets: u64,
        /// What failed.
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
                // What is wrong stands at the end of the library's chain.
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
