//! Why a port did not open, and what the operator can do about it.

use std::fmt;
use std::io;

use super::super::vnet::PACKET_MAX;
use crate::bpf::BpfError;
use crate::interface::InterfaceError;

/// Why a port did not open.
#[non_exhaustive]
#[derive(Debug)]
pub enum OpenError {
    /// The interface does not exist here, or its properties could not be read.
    Interface(InterfaceError),
    /// `packet_max` is less than the largest packet of the interface's MTU, or more than any packet has.
    PacketMax {
        /// The interface.
        interface: String,
        /// The value of the setting.
        packet_max: u32,
        /// The smallest value for the interface's MTU.
        least: u32,
    },
    /// The program that mutes the host's own stack did not load or attach.
    Program(BpfError),
    /// The kernel refused a step.
    Refused {
        /// The interface.
        interface: String,
        /// The step, as in "cannot {step}".
        step: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

impl OpenError {
    /// Whether this machine or user cannot have packet sockets at all, so that another interface would not help.
    pub fn is_unavailable(&self) -> bool {
        match self {
            OpenError::Refused { source, .. } => matches!(
                source.raw_os_error(),
                Some(libc::EPERM | libc::EACCES | libc::EAFNOSUPPORT | libc::ENOSYS)
            ),
            OpenError::Program(BpfError::Program { step: "load", .. }) => true,
            _ => false,
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Interface(error) => error.fmt(f),
            OpenError::PacketMax { interface, packet_max, least } => write!(
                f,
                "{interface}: packet_max = {packet_max}: take {least} (its MTU and headers) to \
                 {PACKET_MAX}"
            ),
            OpenError::Program(error) => {
                write!(f, "{error}; without it the host would answer and forward beside us")
            }
            OpenError::Refused { interface, step, source } => {
                write!(f, "{interface}: cannot {step}: {source}; {}", next_step(source))
            }
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OpenError::Interface(error) => Some(error),
            OpenError::Program(error) => Some(error),
            OpenError::Refused { source, .. } => Some(source),
            OpenError::PacketMax { .. } => None,
        }
    }
}

/// What the operator can do about it.
fn next_step(source: &io::Error) -> &'static str {
    match source.raw_os_error().unwrap_or_default() {
        libc::EPERM | libc::EACCES => "needs root (CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF)",
        libc::EAFNOSUPPORT => "needs a kernel that is built with CONFIG_PACKET",
        libc::ENODEV | libc::ENXIO => "the interface is gone; `ip link` shows those there are",
        libc::ENOSPC => "the group of queues is full: take fewer workers",
        _ => "`manylane doctor` shows what this machine can",
    }
}
