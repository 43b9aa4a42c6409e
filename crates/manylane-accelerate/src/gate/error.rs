//! Why the gate cannot judge.

use manylane_io::netlink::NetlinkError;
use manylane_io::sysctl::SysctlError;

/// Why the gate could not be opened, or could not look.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// Netlink refused.
    #[error("{0}")]
    Netlink(#[source] NetlinkError),
    /// A setting could not be read.
    #[error("{0}")]
    Setting(#[from] SysctlError),
    /// No interface has this name.
    #[error("interface {name} does not exist; existing interfaces: {}", .present.join(", "))]
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
