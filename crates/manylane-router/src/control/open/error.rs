//! Why a port did not open, and what the operator can do about it.

use std::io::ErrorKind;

use manylane_io::interface::InterfaceError;
use manylane_io::interface_lock::InterfaceLockError;
use manylane_io::port::{af_packet, af_xdp, pcap, tap};
use manylane_net::generate::FarEndError;

/// Why a port did not open.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The interface cannot be read.
    #[error("port `{port}`: {source}")]
    Interface {
        /// The port's name.
        port: String,
        /// Why.
        source: InterfaceError,
    },
    /// Another process forwards by the interface.
    #[error("port `{port}`: {source}")]
    Lock {
        /// The port's name.
        port: String,
        /// Why.
        source: InterfaceLockError,
    },
    /// AF_XDP refused.
    #[error("port `{port}`: {source}")]
    AfXdp {
        /// The port's name.
        port: String,
        /// Why.
        source: af_xdp::OpenError,
    },
    /// Packet sockets were refused.
    #[error("port `{port}`: {source}")]
    AfPacket {
        /// The port's name.
        port: String,
        /// Why.
        source: af_packet::OpenError,
    },
    /// The TAP interface was refused.
    #[error("port `{port}`: {source}")]
    Tap {
        /// The port's name.
        port: String,
        /// Why.
        source: tap::OpenError,
    },
    /// A capture was not read, or not made.
    #[error("port `{port}`: {source}")]
    Pcap {
        /// The port's name.
        port: String,
        /// Why.
        source: pcap::OpenError,
    },
    /// The capture for copies was not made.
    #[error("port `{port}`: {source}")]
    Tee {
        /// The port's name.
        port: String,
        /// Why.
        source: pcap::WriteError,
    },
    /// The built-in generator cannot do what the configuration wants.
    #[error("port `{port}`: {source}")]
    FarEnd {
        /// The port's name.
        port: String,
        /// Why.
        source: FarEndError,
    },
    /// The configuration wants larger packets than the device takes.
    #[error(
        "port `{port}`: `mtu` is {mtu}, and the device takes {device_mtu}: raise the device's (`ip link set dev ... \
         mtu {mtu}`), or choose at most {device_mtu}"
    )]
    Mtu {
        /// The port's name.
        port: String,
        /// In the configuration.
        mtu: u32,
        /// The device's.
        device_mtu: u32,
    },
    /// The device's MTU, less what a sub-interface's tags take, is less than its addresses need.
    #[error(
        "port `{port}`: an MTU of {mtu} is left to it, and its addresses need {least}: raise the device's (`ip link set \
         dev ... mtu {device_mtu}`){}",
        if *least >= 1280 { ", or remove the IPv6 addresses" } else { "" }
    )]
    MtuTooSmall {
        /// The port's or sub-interface's name.
        port: String,
        /// What it would have.
        mtu: u32,
        /// What is needed.
        least: u16,
        /// What the device must be set to.
        device_mtu: u32,
    },
    /// The configuration wants larger packets than lie in as many frames as the port takes.
    #[error(
        "port `{port}`: packets of `mtu` {mtu} do not lie in {frames_max} frames, and the port takes no more: choose an \
         `mtu` of at most {mtu_max}, or `size = 4096` in [frames]"
    )]
    FramesMax {
        /// The port's name.
        port: String,
        /// In the configuration, or the device's.
        mtu: u32,
        /// Most frames of a packet that the port takes.
        frames_max: u8,
        /// The largest MTU whose packets lie in that number of frames.
        mtu_max: u32,
    },
    /// The configuration names owners for another number of queues than the device has.
    #[error(
        "port `{port}`: `workers` names owners for {owners} receive queues, and the device has {queues}: list one worker \
         for each queue (`ethtool -l` shows them), or leave `workers` out"
    )]
    Queues {
        /// The port's name.
        port: String,
        /// Owners in the configuration.
        owners: usize,
        /// Queues of the device.
        queues: usize,
    },
}

impl PortError {
    /// Whether the configuration has to change, since another try would fail alike: it names a file that cannot be read
    /// or made, or what its device does not take.
    pub fn is_of_configuration(&self) -> bool {
        use pcap::{OpenError, WriteError};
        match self {
            PortError::Pcap { source: OpenError::Write(source), .. }
            | PortError::Tee { source, .. } => match source {
                WriteError::Create { source, .. } => NOT_CREATABLE.contains(&source.kind()),
                WriteError::SameFile { .. } => true,
                _ => false,
            },
            PortError::AfXdp { source, .. } => {
                use af_xdp::OpenError::{MtuTooLarge, Owners, RingSize, TagsHidden};
                matches!(
                    source,
                    MtuTooLarge { .. } | Owners { .. } | RingSize { .. } | TagsHidden(_)
                )
            }
            PortError::Pcap { .. }
            | PortError::FarEnd { .. }
            | PortError::Mtu { .. }
            | PortError::MtuTooSmall { .. }
            | PortError::FramesMax { .. }
            | PortError::Queues { .. } => true,
            PortError::Lock { .. }
            | PortError::Interface { .. }
            | PortError::AfPacket { .. }
            | PortError::Tap { .. } => false,
        }
    }

    /// Whether this machine, or this user, cannot have such ports at all.
    pub fn is_unavailable(&self) -> bool {
        match self {
            PortError::AfXdp { source, .. } => source.is_unavailable(),
            PortError::AfPacket { source, .. } => source.is_unavailable(),
            PortError::Tap { source, .. } => source.is_unavailable(),
            _ => false,
        }
    }
}

/// Where a file can never be made: no folder, not a file, not this user's. (Full disks get room again.)
const NOT_CREATABLE: [ErrorKind; 5] = [
    ErrorKind::NotFound,
    ErrorKind::NotADirectory,
    ErrorKind::IsADirectory,
    ErrorKind::PermissionDenied,
    ErrorKind::ReadOnlyFilesystem,
];
