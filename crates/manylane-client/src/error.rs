//! Why a call of a socket in another process failed.

use manylane_io::syscall::exhausted;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use manylane_io::libpcap::PcapError;
use manylane_io::packet_ring::RingError;

use crate::message::Refusal;

/// A daemon answers in microseconds, one that is making a large ring in milliseconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Why a call failed.
#[non_exhaustive]
#[derive(Debug)]
pub enum RemoteError {
    /// No daemon listens at this path.
    NoDaemon {
        /// The socket.
        path: PathBuf,
    },
    /// The system refused to connect.
    Unreachable {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The daemon said no. The socket is as it was.
    Refused(Refusal),
    /// The daemon did not answer in time. This connection accepts no further request.
    Silent {
        /// The socket.
        path: PathBuf,
    },
    /// The daemon has hung up, or has ended. What is in the ring can still be received.
    Gone {
        /// The socket.
        path: PathBuf,
    },
    /// Something answered, and not as a daemon of this version does.
    Unexpected {
        /// The socket.
        path: PathBuf,
        /// What was wrong.
        what: String,
    },
    /// The request is longer than the daemon accepts.
    TooLong {
        /// Bytes.
        len: usize,
        /// Bytes of the longest.
        max: usize,
    },
    /// The expression is no filter.
    Expression(PcapError),
    /// The ring cannot be read.
    Ring(RingError),
    /// The system refused a step.
    System {
        /// The system call.
        step: &'static str,
        /// What it said.
        source: io::Error,
    },
}

impl RemoteError {
    /// What kind of refusal it is, if it is the daemon's.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            RemoteError::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }
}

/// In bytes: unix(7) has 108, the last of them a zero.
const SOCKET_PATH_MAX: usize = 107;

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RemoteError::NoDaemon { path } => write!(
                f,
                "no manylane daemon listens at {}; start one with `manylane run FILE`, or name its socket",
                path.display()
            ),
            RemoteError::Unreachable { path, .. } if path.as_os_str().len() > SOCKET_PATH_MAX => {
                write!(
                    f,
                    "no daemon can be at {}, whose {} bytes are more than the path of a socket has; name the daemon's socket",
                    path.display(),
                    path.as_os_str().len()
                )
            }
            RemoteError::Unreachable { path, source } => {
                let help = exhausted(source)
                    .unwrap_or("capture as root or as a member of the group `manylane-capture`");
                write!(f, "cannot connect to {}: {source}; {help}", path.display())
            }
            RemoteError::Refused(refusal) => write!(f, "the daemon refused: {}", refusal.error),
            RemoteError::Silent { path } => write!(
                f,
                "the manylane daemon at {} has not answered for {} s: it is still starting, or hangs; look at its log",
                path.display(),
                PATIENCE.as_secs()
            ),
            RemoteError::Gone { path } => write!(
                f,
                "the manylane daemon at {} has hung up; see whether it still runs, and open the socket again",
                path.display()
            ),
            RemoteError::Unexpected { path, what } => write!(
                f,
                "{} did not answer as a manylane daemon of this version does: {what}; use the program that came \
                 with the daemon",
                path.display()
            ),
            RemoteError::TooLong { len, max } => {
                write!(
                    f,
                    "a request of {len} bytes: {max} are possible; send a shorter packet or filter"
                )
            }
            RemoteError::Expression(source) => write!(f, "{source}"),
            RemoteError::Ring(source) => write!(f, "{source}"),
            RemoteError::System { step, source } => {
                write!(
                    f,
                    "the system refused {step}: {source}; close descriptors, or raise `ulimit -n`"
                )
            }
        }
    }
}

impl std::error::Error for RemoteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RemoteError::Unreachable { source, .. } | RemoteError::System { source, .. } => {
                Some(source)
            }
            RemoteError::Expression(source) => Some(source),
            RemoteError::Ring(source) => Some(source),
            _ => None,
        }
    }
}
