//! Why the kernel refused a netlink request.

use std::fmt;
use std::io;

use super::socket::Refusal;

/// Why a netlink request failed.
#[non_exhaustive]
#[derive(Debug)]
pub enum NetlinkError {
    /// No netlink socket could be opened.
    Unavailable {
        /// The kernel's error.
        source: io::Error,
    },
    /// The namespace has no interface of that name.
    NoSuchInterface {
        /// The name that was looked up.
        name: String,
        /// The interfaces that exist.
        present: Vec<String>,
    },
    /// The kernel refused a request.
    Refused {
        /// The request, as in "cannot {step}".
        step: String,
        /// The kernel's explanation (extended acknowledgement), if it sent one.
        explanation: Option<String>,
        /// The error number.
        source: io::Error,
    },
}

impl NetlinkError {
    pub(super) fn refused(step: String, refusal: Refusal) -> NetlinkError {
        let Refusal { explanation, source } = refusal;
        NetlinkError::Refused { step, explanation, source }
    }

    /// Whether the kernel refused because the object exists already.
    pub fn is_existing(&self) -> bool {
        self.errno() == Some(libc::EEXIST)
    }

    /// The kernel's error number, if it sent one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            NetlinkError::Unavailable { source } | NetlinkError::Refused { source, .. } => {
                source.raw_os_error()
            }
            NetlinkError::NoSuchInterface { .. } => None,
        }
    }
}

impl fmt::Display for NetlinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NetlinkError::Unavailable { source } => {
                write!(f, "cannot open a netlink socket: {source}; {}", next_step(source))
            }
            NetlinkError::NoSuchInterface { name, present } => {
                write!(f, "there is no interface {name}; there are: {}", present.join(", "))
            }
            NetlinkError::Refused { step, explanation, source } => {
                write!(f, "cannot {step}: {source}")?;
                if let Some(explanation) = explanation {
                    write!(f, " ({})", explanation.trim_end_matches('.'))?;
                }
                write!(f, "; {}", next_step(source))
            }
        }
    }
}

impl std::error::Error for NetlinkError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            NetlinkError::Unavailable { source } | NetlinkError::Refused { source, .. } => {
                Some(source)
            }
            NetlinkError::NoSuchInterface { .. } => None,
        }
    }
}

/// What the operator can do about it.
fn next_step(source: &io::Error) -> &'static str {
    match source.raw_os_error().unwrap_or_default() {
        libc::EPERM | libc::EACCES => "needs root (CAP_NET_ADMIN) in this network namespace",
        libc::EEXIST => "remove the existing one, or take another name",
        libc::ENETUNREACH | libc::EHOSTUNREACH => {
            "the gateway has to be on a connected network whose link is up"
        }
        libc::ENETDOWN => "set the link up first (`ip link set up`)",
        libc::ENODEV => "the interface is gone; `ip link` shows those there are",
        libc::EOPNOTSUPP => "needs a kernel that is built with it",
        _ => "`manylane doctor` shows what this machine can",
    }
}
