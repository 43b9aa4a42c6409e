//! Why nothing is accelerated.

use std::io;

use manylane_io::bpf::BpfError;
use manylane_io::interface_lock::InterfaceLockError;
use manylane_io::netlink::NetlinkError;

use super::lock::LockError;
use crate::gate::GateError;
use manylane_api::{BindError, ListenError};
use manylane_io::privilege::PrivilegeError;

/// Why an accelerator did not start.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum AccelerateError {
    /// Another one is there, or a lock could not be had.
    #[error("{0}")]
    Lock(#[source] LockError),
    /// Another process forwards by an interface, or the locks could not be had.
    #[error("{0}")]
    InterfaceLock(#[source] InterfaceLockError),
    /// This process may not load programs, or not attach them.
    #[error(
        "to accelerate {} takes root, and this process lacks {missing}: start it with `sudo`, or as the service of the \
         package (`systemctl start manylane-accelerate`)",
        .interfaces.join(", ")
    )]
    Unprivileged {
        /// The interfaces.
        interfaces: Vec<String>,
        /// Names of capabilities.
        missing: String,
    },
    /// The API's listener could not be made.
    #[error("{0}")]
    Listen(#[source] ListenError),
    /// The API's socket could not be made.
    #[error("{0}")]
    Api(#[source] BindError),
    /// Privileges could not be given up.
    #[error("{0}")]
    Privilege(#[source] PrivilegeError),
    /// The kernel's routing could not be read.
    #[error("{0}")]
    Netlink(#[source] NetlinkError),
    /// The gate could not judge.
    #[error("{0}")]
    Gate(#[source] GateError),
    /// The program was refused.
    #[error("{0}")]
    Program(#[source] BpfError),
    /// No interface has this name.
    #[error(
        "interface {name} does not exist; existing interfaces: {}; with --wait, manylane starts without it and takes it up \
         when it appears",
        .present.join(", ")
    )]
    NoSuchInterface {
        /// The name.
        name: String,
        /// The names of the existing interfaces.
        present: Vec<String>,
    },
    /// An interface is named twice, or none is named, or more than the tables hold.
    #[error("{what}")]
    Interfaces {
        /// What is wrong.
        what: String,
    },
    /// A thread or a descriptor was refused.
    #[error("cannot make {what}: {source}; end programs, or raise `ulimit -n` and `ulimit -u`")]
    System {
        /// The requested thing.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl AccelerateError {
    /// Whether this machine, or this user, cannot have it at all: a kernel that is too old, or no root.
    pub fn is_unavailable(&self) -> bool {
        let mut source: Option<&(dyn std::error::Error + 'static)> = match self {
            AccelerateError::Program(error) => Some(error),
            AccelerateError::Netlink(error) => Some(error),
            AccelerateError::Unprivileged { .. } => return true,
            _ => None,
        };
        while let Some(error) = source {
            if let Some(error) = error.downcast_ref::<io::Error>() {
                // A program that the verifier refuses is EACCES, and a fault of ours.
                let number = error.raw_os_error().and_then(|number| u32::try_from(number).ok());
                return matches!(number, Some(EPERM | ENOSYS));
            }
            source = error.source();
        }
        false
    }
}

// asm-generic/errno.h.
const EPERM: u32 = 1;
const ENOSYS: u32 = 38;
