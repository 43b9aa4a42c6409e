//! Why the kernel refused a netlink request.

use crate::syscall::exhausted;
use std::io;

use super::socket::Refusal;

/// Why a netlink request failed.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// No netlink socket could be opened.
    #[error("cannot open a netlink socket: {source}; {}", next_step(.source))]
    Unavailable {
        /// The kernel's error.
        source: io::Error,
    },
    /// The namespace has no interface of that name.
    #[error("interface {name} does not exist; existing interfaces: {}", .present.join(", "))]
    NoSuchInterface {
        /// The name that was looked up.
        name: String,
        /// The interfaces that exist.
        present: Vec<String>,
    },
    /// The kernel refused a request.
    #[error("cannot {step}: {source}{}; {}", explained(.explanation), next_step(.source))]
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

/// The kernel's explanation in parentheses, if it sent one.
fn explained(explanation: &Option<String>) -> String {
    let text = explanation.as_deref().map(|text| format!(" ({})", text.trim_end_matches('.')));
    text.unwrap_or_default()
}

/// What the operator can do about it.
fn next_step(source: &io::Error) -> &'static str {
    match source.raw_os_error().unwrap_or_default() {
        libc::EPERM | libc::EACCES => "needs root (CAP_NET_ADMIN) in this network namespace",
        libc::EEXIST => "remove the existing one, or take another name",
        libc::ENETUNREACH | libc::EHOSTUNREACH => {
            "the gateway must be on a connected network whose link is up"
        }
        libc::ENETDOWN => "set the link up first (`ip link set up`)",
        libc::ENODEV => "the interface is gone; `ip link` lists the existing ones",
        libc::EOPNOTSUPP => "needs a kernel built with this feature",
        _ => exhausted(source).unwrap_or("`manylane doctor` shows what this machine supports"),
    }
}
