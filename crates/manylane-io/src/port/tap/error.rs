//! Why a port did not open, and what the operator can do about it.

use crate::syscall::exhausted;
use std::io;

use super::super::vnet::PACKET_MAX;
use super::counter::PATH;
use crate::bpf::BpfError;
use crate::interface::InterfaceError;

/// Why a port did not open.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The interface name is invalid.
    #[error("`{interface}`: an interface's name has 1 to 15 bytes; choose another")]
    Name {
        /// The name.
        interface: String,
    },
    /// The interface's properties could not be read, or it could not be set up.
    #[error("{0}")]
    Interface(#[source] InterfaceError),
    /// The interface is not a TAP.
    #[error(
        "{interface} is no TAP interface (its driver is `{driver}`); choose another driver, or an unused name"
    )]
    NotTap {
        /// The interface.
        interface: String,
        /// Its driver.
        driver: String,
    },
    /// Another program has the interface, or all its possible queues.
    #[error(
        "{interface} is in use; end the program that has it (/proc/*/fdinfo shows `iff: {interface}`)"
    )]
    Busy {
        /// The interface.
        interface: String,
    },
    /// The interface was created with one queue, is a TUN rather than a TAP, or has no more queues.
    #[error(
        "{interface} cannot be opened as a TAP with {queues} queues; create it with `ip tuntap add dev {interface} mode \
         tap multi_queue`, or delete it and manylane creates it"
    )]
    OtherQueues {
        /// The interface.
        interface: String,
        /// The number of queues requested.
        queues: u16,
    },
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
    /// The address for our end is a group address, or zero.
    #[error(
        "{interface}: `mac` is {}, a group address or zero; choose one like 02:00:00:00:00:01",
        .mac.map(|byte| format!("{byte:02x}")).join(":")
    )]
    NoStation {
        /// The interface.
        interface: String,
        /// The address.
        mac: [u8; 6],
    },
    /// The address for our end is the host's.
    #[error(
        "{interface}: `mac` is the interface's own, which belongs to the host's end; choose another for ours"
    )]
    SameMac {
        /// The interface.
        interface: String,
    },
    /// The kernel's counters of the interface could not be read.
    #[error("{interface}: cannot read {PATH}, where its losses are counted: {source}; mount /proc")]
    Counts {
        /// The interface.
        interface: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The program that steers flows to queues did not load.
    #[error("{0}")]
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
    /// Whether this machine or user cannot have TAP interfaces at all, so that another name would not help.
    pub fn is_unavailable(&self) -> bool {
        match self {
            OpenError::Refused { source, .. } => matches!(
                source.raw_os_error(),
                Some(libc::EPERM | libc::EACCES | libc::ENOENT | libc::ENODEV)
            ),
            OpenError::Program(BpfError::Program { step: "load", .. }) => true,
            _ => false,
        }
    }
}

/// What the operator can do about it.
fn next_step(source: &io::Error) -> &'static str {
    match source.raw_os_error().unwrap_or_default() {
        libc::EPERM | libc::EACCES => "needs root (CAP_NET_ADMIN, CAP_BPF)",
        libc::ENOENT | libc::ENODEV => {
            "needs a kernel built with CONFIG_TUN, and, in a container, the device /dev/net/tun"
        }
        _ => exhausted(source).unwrap_or("`manylane doctor` shows what this machine supports"),
    }
}
