//! Why nothing is accelerated.

use std::fmt;
use std::io;

use manylane_io::bpf::BpfError;
use manylane_io::netlink::NetlinkError;

use super::lock::LockError;
use crate::gate::GateError;
use manylane_api::{BindError, ListenError};
use manylane_io::privilege::PrivilegeError;

/// Why an accelerator did not start.
#[non_exhaustive]
#[derive(Debug)]
pub enum AccelerateError {
    /// Another one is there, or a lock could not be had.
    Lock(LockError),
    /// The API's listener could not be made.
    Listen(ListenError),
    /// The API's socket could not be made.
    Api(BindError),
    /// Privileges could not be given up.
    Privilege(PrivilegeError),
    /// The kernel's routing could not be read.
    Netlink(NetlinkError),
    /// The gate could not judge.
    Gate(GateError),
    /// The program was refused.
    Program(BpfError),
    /// No interface has this name.
    NoSuchInterface {
        /// The name.
        name: String,
        /// The names of the existing interfaces.
        present: Vec<String>,
    },
    /// An interface is named twice, or none is named, or more than the tables hold.
    Interfaces {
        /// What is wrong.
        what: String,
    },
    /// A thread or a descriptor was refused.
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

impl fmt::Display for AccelerateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AccelerateError::Lock(source) => source.fmt(f),
            AccelerateError::Api(source) => source.fmt(f),
            AccelerateError::Listen(source) => source.fmt(f),
            AccelerateError::Privilege(source) => source.fmt(f),
            AccelerateError::Netlink(source) => source.fmt(f),
            AccelerateError::Gate(source) => source.fmt(f),
            AccelerateError::Program(source) => source.fmt(f),
            AccelerateError::NoSuchInterface { name, present } => {
                write!(
                    f,
                    "interface {name} does not exist; existing interfaces: {}",
                    present.join(", ")
                )
            }
            AccelerateError::Interfaces { what } => f.write_str(what),
            AccelerateError::System { what, source } => {
                write!(
                    f,
                    "cannot make {what}: {source}; end programs, or raise `ulimit -n` and `ulimit -u`"
                )
            }
        }
    }
}

impl std::error::Error for AccelerateError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            AccelerateError::Lock(source) => Some(source),
            AccelerateError::Api(source) => Some(source),
            AccelerateError::Listen(source) => Some(source),
            AccelerateError::Privilege(source) => Some(source),
            AccelerateError::Netlink(source) => Some(source),
            AccelerateError::Gate(source) => Some(source),
            AccelerateError::Program(source) => Some(source),
            AccelerateError::System { source, .. } => Some(source),
            AccelerateError::NoSuchInterface { .. } | AccelerateError::Interfaces { .. } => None,
        }
    }
}
