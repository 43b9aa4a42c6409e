//! Why a port did not open, and what the operator can do about it.

use std::fmt;
use std::io;

use super::super::vnet::PACKET_MAX;
use super::counter::PATH;
use crate::bpf::BpfError;
use crate::interface::InterfaceError;

/// Why a port did not open.
#[non_exhaustive]
#[derive(Debug)]
pub enum OpenError {
    /// An interface cannot have this name.
    Name {
        /// The name.
        interface: String,
    },
    /// The interface does not tell about itself, or was not set up.
    Interface(InterfaceError),
    /// The interface is another device.
    NotTap {
        /// The interface.
        interface: String,
        /// Its driver.
        driver: String,
    },
    /// Another program has the interface, or has all queues that there can be.
    Busy {
        /// The interface.
        interface: String,
    },
    /// The interface was made for one queue, or is no TAP but a TUN, or has no more queues.
    OtherQueues {
        /// The interface.
        interface: String,
        /// The queues asked for.
        queues: u16,
    },
    /// `packet_max` is less than a packet of the interface's MTU has, or more than any has.
    PacketMax {
        /// The interface.
        interface: String,
        /// The setting.
        packet_max: u32,
        /// What the interface's MTU asks for.
        least: u32,
    },
    /// The address for our end is no station's.
    NoStation {
        /// The interface.
        interface: String,
        /// The address.
        mac: [u8; 6],
    },
    /// The address for our end is the host's.
    SameMac {
        /// The interface.
        interface: String,
    },
    /// What the kernel counts for the interface cannot be read.
    Counts {
        /// The interface.
        interface: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The program that steers flows to queues did not load.
    Program(BpfError),
    /// The kernel refused a step.
    Refused {
        /// The interface.
        interface: String,
        /// What was to be done, to be read after "cannot".
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl OpenError {
    /// Whether this machine or user cannot have TAP interfaces at all, so that another would fare no
    /// better.
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

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Name { interface } => {
                write!(f, "`{interface}`: an interface's name has 1 to 15 bytes; choose another")
            }
            OpenError::Interface(error) => error.fmt(f),
            OpenError::NotTap { interface, driver } => write!(
                f,
                "{interface} is no TAP interface (its driver is `{driver}`); choose another driver, or a \
                 name that is free"
            ),
            OpenError::Busy { interface } => write!(
                f,
                "{interface} is in use; end the program that has it (/proc/*/fdinfo shows `iff: \
                 {interface}`)"
            ),
            OpenError::OtherQueues { interface, queues } => write!(
                f,
                "{interface} cannot be opened as a TAP with {queues} queues; make it with `ip tuntap \
                 add dev {interface} mode tap multi_queue`, or let it be made"
            ),
            OpenError::PacketMax { interface, packet_max, least } => write!(
                f,
                "{interface}: packet_max = {packet_max}: take {least} (its MTU and headers) to \
                 {PACKET_MAX}"
            ),
            OpenError::NoStation { interface, mac } => {
                let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
                write!(
                    f,
                    "{interface}: `mac` is {mac}, a group's address or none; choose one like \
                     02:00:00:00:00:01"
                )
            }
            OpenError::SameMac { interface } => write!(
                f,
                "{interface}: `mac` is the interface's own, which is the host's end; choose another for \
                 ours"
            ),
            OpenError::Counts { interface, source } => write!(
                f,
                "{interface}: cannot read {PATH}, where its losses are counted: {source}; mount /proc"
            ),
            OpenError::Program(error) => error.fmt(f),
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
            OpenError::Refused { source, .. } | OpenError::Counts { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// What the operator can do about it.
fn next_step(source: &io::Error) -> &'static str {
    match source.raw_os_error().unwrap_or_default() {
        libc::EPERM | libc::EACCES => "needs root (CAP_NET_ADMIN, CAP_BPF)",
        libc::ENOENT | libc::ENODEV => {
            "needs a kernel that is built with CONFIG_TUN, and, in a container, to be given /dev/net/tun"
        }
        _ => "`manylane doctor` shows what this machine can",
    }
}
