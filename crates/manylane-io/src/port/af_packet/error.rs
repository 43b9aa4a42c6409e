//! Why a port did not open, and what the operator can do about it.

use crate::syscall::exhausted;
use std::io;

use super::super::vnet::PACKET_MAX;
use crate::bpf::BpfError;
use crate::interface::InterfaceError;

/// Why a port did not open.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The interface does not exist here, or its properties could not be read.
    #[error("{0}")]
    Interface(#[source] InterfaceError),
    /// `packet_max` is less than the largest packet of the interface's MTU, or more than any packet has.
    #[error(
        "{interface}: packet_max = {packet_max}: take {least} (its MTU and headers) to {PACKET_MAX}"
    )]
    PacketMax {
        /// The interface.
        interface: String,
        /// The value of the setting.
        packet_max: u32,
        /// The smallest value for the interface's MTU.
        least: u32,
    },
    /// The program that mutes the host's own stack did not load or attach.
    #[error("{0}; without it the host's own stack would answer and forward too")]
    Program(#[source] BpfError),
    /// The kernel refused a step.
    #[error("{interface}: cannot {step}: {source}; {}", next_step(.source))]
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

/// What the operator can do about it.
fn next_step(source: &io::Error) -> &'static str {
    match source.raw_os_error().unwrap_or_default() {
        libc::EPERM | libc::EACCES => "needs root (CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF)",
        libc::EAFNOSUPPORT => "needs a kernel built with CONFIG_PACKET",
        libc::ENODEV | libc::ENXIO => "the interface is gone; `ip link` lists the existing ones",
        libc::ENOSPC => "the group of queues is full: take fewer workers",
        _ => exhausted(source).unwrap_or("`manylane doctor` shows what this machine supports"),
    }
}
