//! Why the gate cannot judge.

use std::fmt;

use manylane_io::netlink::NetlinkError;
use manylane_io::sysctl::SysctlError;

/// Why the gate could not be opened, or could not look.
#[non_exhaustive]
#[derive(Debug)]
pub enum GateError {
    /// Netlink refused.
    Netlink(NetlinkError),
    /// A setting could not be read.
    Setting(SysctlError),
    /// No interface has this name.
    NoSuchInterface {
        /// The name that was requested.
        name: String,
        /// The names of the existing interfaces.
        present: Vec<String>,
    },
}

impl From<NetlinkError> for GateError {
    fn from(error: NetlinkError) -> GateError {
        match error {
            NetlinkError::NoSuchInterface { name, present } => {
                GateError::NoSuchInterface { name, present }
            }
            other => GateError::Netlink(other),
        }
    }
}

impl From<SysctlError> for GateError {
    fn from(error: SysctlError) -> GateError {
        GateError::Setting(error)
    }
}

impl fmt::Display for GateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GateError::Netlink(error) => error.fmt(f),
            GateError::Setting(error) => error.fmt(f),
            GateError::NoSuchInterface { name, present } => {
                write!(
                    f,
                    "interface {name} does not exist; existing interfaces: {}",
                    present.join(", ")
                )
            }
        }
    }
}

impl std::error::Error for GateError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            GateError::Netlink(error) => Some(error),
            GateError::Setting(error) => Some(error),
            GateError::NoSuchInterface { .. } => None,
        }
    }
}
