//! Why a daemon did not start, or did not end well.

use std::io;

use manylane_api::{BindError, ListenError};
use manylane_export::AddressError;
use manylane_frame::RegionError;
use manylane_io::netlink::NetlinkError;
use manylane_io::port::pcap::WriteError;
use manylane_io::privilege::PrivilegeError;

use crate::control::open::PortError;
use crate::control::routing::RoutingError;

/// Why a daemon did not start, or did not end well.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The memory for the frames was refused.
    #[error(
        "{0}: choose fewer workers, queues or ports, shorter rings, or a smaller `count` in [frames]"
    )]
    Region(#[source] RegionError),
    /// A port did not open.
    #[error("{0}")]
    Port(#[source] PortError),
    /// The links could not be watched.
    #[error("{0}")]
    Links(#[source] NetlinkError),
    /// The tables were refused.
    #[error("{0}")]
    Routing(#[source] RoutingError),
    /// A thread or a descriptor was refused.
    #[error("cannot make {what}: {source}; end programs, or raise `ulimit -n` and `ulimit -u`")]
    System {
        /// What the daemon requested.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// This process may not open devices.
    #[error(
        "port `{port}`: to open {interface} takes root, and this process lacks {missing}: start it with `sudo`, or as \
         the service of the package (`systemctl start manylane`)"
    )]
    Unprivileged {
        /// The first port with a device.
        port: String,
        /// Its interface.
        interface: String,
        /// Names of capabilities.
        missing: String,
    },
    /// The API's listener could not be made.
    #[error("{0}")]
    Listen(#[source] ListenError),
    /// The API's socket could not be made.
    #[error("{0}")]
    Api(#[source] BindError),
    /// A capture is not whole.
    #[error("{0}")]
    Capture(#[source] WriteError),
    /// A collector's name has no address, or two collectors have one.
    #[error("{0}")]
    Collector(#[source] AddressError),
    /// Privileges could not be dropped.
    #[error("{0}")]
    Privilege(#[source] PrivilegeError),
}

impl StartError {
    /// Whether the configuration has to change before another start can succeed.
    pub fn is_of_configuration(&self) -> bool {
        match self {
            StartError::Port(port) => port.is_of_configuration(),
            StartError::Collector(_) => true,
            StartError::Api(socket) => matches!(socket, BindError::TooLong { .. }),
            StartError::Routing(routing) => !matches!(routing, RoutingError::Memory(_)),
            _ => false,
        }
    }

    /// Whether this machine, or this user, cannot have AF_XDP at all.
    pub fn is_unavailable(&self) -> bool {
        match self {
            StartError::Port(port) => port.is_unavailable(),
            StartError::Unprivileged { .. } => true,
            _ => false,
        }
    }
}
