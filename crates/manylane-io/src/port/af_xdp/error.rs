//! Why a port did not open, and what the operator can do about it.

use crate::syscall::exhausted;
use std::fmt;
use std::io;

use manylane_frame::HEADROOM;

use crate::bpf::{BpfError, Mode};
use crate::interface::{Interface, InterfaceError};

/// Why a port did not open.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The interface does not exist here, or its properties could not be read.
    #[error("{0}")]
    Interface(#[source] InterfaceError),
    /// The number of owners differs from the interface's number of receive queues.
    #[error(
        "{interface} has {queues} receive queues, but {owners} have an owner; name one for each \
         (`ethtool -l {interface}` shows them)"
    )]
    Owners {
        /// The interface.
        interface: String,
        /// Its receive queues.
        queues: u32,
        /// The number of owners.
        owners: usize,
    },
    /// A packet of the interface's MTU does not fit into the frames that a packet may have.
    #[error("{}", mtu_too_large(.interface, *.mtu, *.frame_size, *.frames_max))]
    MtuTooLarge {
        /// The interface.
        interface: String,
        /// Its MTU.
        mtu: u32,
        /// Bytes of a frame.
        frame_size: u32,
        /// Most frames of a packet: 1 when `multi_buffer` is off, or the kernel cannot.
        frames_max: u8,
    },
    /// A ring's size is no power of two, or out of bounds.
    #[error("{ring} = {entries}: take a power of two from {RING_MIN} to {RING_MAX}")]
    RingSize {
        /// The setting's name.
        ring: &'static str,
        /// Its value.
        entries: u32,
    },
    /// The XDP program did not load or attach.
    #[error("{0}")]
    Program(#[source] BpfError),
    /// The port has VLANs, and the device may hide their tags from the XDP program.
    #[error("{0}; choose `driver = \"af_packet\"`, or {fix}", fix = .0.visible_by())]
    TagsHidden(TagsHidden),
    /// A queue belongs to another AF_XDP socket, and did so for two seconds.
    #[error(
        "queue {queue} of {interface} belongs to another AF_XDP socket; `ss --xdp -p` shows its program, which must end"
    )]
    Busy {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
    },
    /// The kernel refused a step.
    #[error("{interface} queue {queue}: cannot {step}: {source}; {}", next_step(.source))]
    Refused {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// The step, as in "cannot {step}".
        step: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

impl OpenError {
    /// Whether this machine or user has no AF_XDP at all, so that another interface would not help.
    pub fn is_unavailable(&self) -> bool {
        match self {
            OpenError::Refused { source, .. } => matches!(
                source.raw_os_error(),
                Some(libc::EPERM | libc::EACCES | libc::EAFNOSUPPORT | libc::ENOSYS)
            ),
            OpenError::Program(BpfError::Load(_)) => true,
            _ => false,
        }
    }
}

/// A device may remove VLAN tags from its frames where the XDP program cannot see them: a frame of a VLAN then
/// looks untagged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagsHidden {
    /// The interface.
    pub interface: String,
    /// Its driver.
    pub driver: String,
    /// Where the XDP program runs.
    pub mode: Mode,
}

impl TagsHidden {
    /// The condition, if the program as attached cannot rule it out.
    pub(super) fn of(interface: &Interface, mode: Mode, has_tags: bool) -> Option<TagsHidden> {
        // A veth's own flag shows nothing: its peer keeps the tag beside the frame, invisible from here.
        let may_hide = interface.takes_tags_off || interface.driver == "veth";
        let (name, driver) = (interface.name.clone(), interface.driver.clone());
        (may_hide && !has_tags).then_some(TagsHidden { interface: name, driver, mode })
    }

    /// How the operator makes the tags visible.
    fn visible_by(&self) -> String {
        match self.driver.as_str() {
            "veth" => "`mode = \"native\"` with Linux 6.8".into(),
            _ => format!("ethtool -K {} rxvlan off", self.interface),
        }
    }

    /// A warning for a port without VLANs: what happens, and the fix.
    pub fn warning(&self) -> String {
        let cure = match self.driver.as_str() {
            "veth" => "ethtool -K PEER txvlan off on its peer".into(),
            _ => format!("ethtool -K {} rxvlan off", self.interface),
        };
        format!(
            "{self}: a frame of a VLAN is forwarded as if it were of none, not dropped as `unknown_vlan`; \
             {cure} brings them back"
        )
    }
}

impl fmt::Display for TagsHidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TagsHidden { interface, mode, .. } = self;
        write!(
            f,
            "{interface}: VLAN tags are beside the frame, where the XDP program ({mode}) cannot see them"
        )
    }
}

/// The MTU, the frame size that is too small for it, and the fixes.
fn mtu_too_large(interface: &str, mtu: u32, frame_size: u32, frames_max: u8) -> String {
    let (here, most) = (mtu_max(frame_size, frames_max), mtu_max(4096, frames_max));
    let frames = match frames_max {
        1 => ", or Linux 6.6 with `multi_buffer`".into(),
        _ => format!("; a packet has at most {frames_max} frames"),
    };
    let fix = match frame_size < 4096 {
        true if mtu <= most => {
            format!("set `size = 4096` in [frames], or ip link set dev {interface} mtu {here}")
        }
        true => format!(
            "ip link set dev {interface} mtu {most} with `size = 4096` in [frames], or mtu {here}"
        ),
        false => format!("ip link set dev {interface} mtu {most}"),
    };
    format!(
        "{interface}: an MTU of {mtu} needs larger frames than {frame_size} bytes{frames}; {fix}"
    )
}

/// What the operator can do about it.
fn next_step(source: &io::Error) -> &'static str {
    match source.raw_os_error().unwrap_or_default() {
        libc::EPERM | libc::EACCES => "needs root (CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF)",
        libc::EAFNOSUPPORT => "needs a kernel built with CONFIG_XDP_SOCKETS",
        libc::ENOBUFS | libc::ENOMEM => {
            "raise the limit of locked memory (`ulimit -l`, LimitMEMLOCK=), or take fewer frames"
        }
        libc::ENODEV => "the interface is gone; `ip link` lists the existing ones",
        libc::EOPNOTSUPP => "the driver does not support it; try zero_copy = false",
        _ => exhausted(source).unwrap_or("`manylane doctor` shows what this machine supports"),
    }
}

/// The largest MTU whose packets, with their Ethernet header and a tag, fit into `frames_max` frames.
pub(super) fn mtu_max(frame_size: u32, frames_max: u8) -> u32 {
    let room = (frame_size - u32::from(HEADROOM)) * u32::from(frames_max);
    (room - ETHERNET_AND_TAG).min(IP_PACKET_MAX)
}

/// No IP packet is larger, and no device has a larger MTU.
const IP_PACKET_MAX: u32 = 65_535;

/// An Ethernet header and one 802.1Q tag.
const ETHERNET_AND_TAG: u32 = 14 + 4;

/// Two batches; the kernel's own minimum is 1.
pub(super) const RING_MIN: u32 = 128;
/// A larger ring would hold more frames than a region should lend to one queue.
pub(super) const RING_MAX: u32 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// An unreported tag is lost wherever the device may remove tags, in either mode.
    #[test]
    fn tags_are_hidden_where_they_are_removed_and_not_reported() {
        let facts = |driver: &str, takes_tags_off| Interface {
            index: 2,
            name: "eth0".into(),
            mac: [2, 0, 0, 0, 0, 1],
            mtu: 1500,
            is_up: true,
            is_running: true,
            driver: driver.into(),
            receive_queues: 4,
            transmit_queues: 4,
            takes_tags_off,
        };
        for (driver, takes_tags_off, has_tags, hidden) in [
            ("ixgbe", true, false, true),
            ("ixgbe", false, false, false),
            ("mlx5_core", true, true, false),
            ("veth", false, false, true),
            ("veth", true, true, false),
            ("tun", false, false, false),
        ] {
            for mode in [Mode::Native, Mode::Generic] {
                let found = TagsHidden::of(&facts(driver, takes_tags_off), mode, has_tags);
                assert_eq!(found.is_some(), hidden, "{driver} {takes_tags_off} {has_tags}");
            }
        }
        let hidden =
            |driver| TagsHidden::of(&facts(driver, true), Mode::Native, false).expect("so");
        let refused = OpenError::TagsHidden(hidden("ixgbe")).to_string();
        assert!(refused.contains("(native)"), "{refused}");
        assert!(refused.ends_with("or ethtool -K eth0 rxvlan off"), "{refused}");
        let warned = hidden("ixgbe").warning();
        assert!(warned.ends_with("ethtool -K eth0 rxvlan off brings them back"), "{warned}");
        let warned = hidden("veth").warning();
        assert!(warned.contains("ethtool -K PEER txvlan off on its peer"), "{warned}");
    }

    #[test]
    fn an_mtu_that_does_not_fit_names_its_fixes() {
        let text = |mtu, frame_size, frames_max| {
            let interface = "eth0".into();
            OpenError::MtuTooLarge { interface, mtu, frame_size, frames_max }.to_string()
        };
        let small = text(3000, 2048, 1);
        assert!(small.contains("`size = 4096` in [frames]"), "{small}");
        assert!(small.contains("mtu 1774"), "{small}");
        let jumbo = text(9000, 2048, 1);
        assert!(jumbo.contains("mtu 3822 with `size = 4096`"), "{jumbo}");
        let jumbo = text(9000, 4096, 1);
        assert!(jumbo.ends_with("mtu 3822"), "{jumbo}");
        let huge = text(65_535, 2048, 18);
        assert!(huge.contains("at most 18 frames; set `size = 4096` in [frames]"), "{huge}");
        assert!(huge.ends_with("mtu 32238"), "{huge}");
    }
}
