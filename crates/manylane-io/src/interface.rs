//! Properties and offloads of a network device in the calling thread's network namespace.
//!
//! Read by netlink and the ethtool ioctls (netdevice(7), linux/ethtool.h), not from sysfs, which shows the namespace of
//! the process that mounted it.

use crate::syscall::exhausted;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::netlink::{Link, Netlink, NetlinkError};
use crate::syscall::check;

/// The properties of a network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its number in this namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its Ethernet address; all zeroes when it has none.
    pub mac: [u8; 6],
    /// The MTU: the largest packet without the Ethernet header.
    pub mtu: u32,
    /// Whether it is administratively up.
    pub is_up: bool,
    /// Whether it is up and has a carrier.
    pub is_running: bool,
    /// The driver's name, such as `veth` or `ixgbe`; empty when the device reports none.
    pub driver: String,
    /// Receive queues in use.
    pub receive_queues: u32,
    /// Transmit queues in use.
    pub transmit_queues: u32,
    /// Whether the device removes VLAN tags from received frames and reports them separately (`rx-vlan-offload`).
    pub takes_tags_off: bool,
}

impl Interface {
    /// Reads the properties of the interface called `name`.
    pub fn read(name: &str) -> Result<Interface, InterfaceError> {
        let link = Netlink::open()?.link(name)?;
        let ethtool = Ethtool::open().map_err(|source| InterfaceError::refused(name, source))?;
        // `IFLA_NUM_RX_QUEUES` is a maximum; channels are the queues in use. A device without channels (`lo`, TAP)
        // uses all its queues.
        let (receive_queues, transmit_queues) =
            ethtool.channels(&link).unwrap_or((link.receive_queues, link.transmit_queues));
        let driver = ethtool.driver(&link).unwrap_or_default();
        let takes_tags_off = ethtool.flags(&link).is_ok_and(|flags| flags & ETH_FLAG_RXVLAN != 0);
        let Link { index, name, mac, mtu, is_up, is_running, .. } = link;
        Ok(Interface {
            index,
            name,
            mac,
            mtu,
            is_up,
            is_running,
            driver,
            receive_queues,
            transmit_queues,
            takes_tags_off,
        })
    }
}

/// The offloads of a device that matter to a forwarder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offloads {
    /// The kernel merges received TCP segments (`generic-receive-offload`).
    pub gro: bool,
    /// The device segments large TCP packets (`tcp-segmentation-offload`).
    pub tso: bool,
    /// The device removes VLAN tags from received frames (`rx-vlan-offload`).
    pub takes_tags_off: bool,
}

impl Offloads {
    /// Reads the offloads of the interface called `name`.
    pub fn read(name: &str) -> Result<Offloads, InterfaceError> {
        let refused = |source| InterfaceError::refused(name, source);
        let ethtool = Ethtool::open().map_err(refused)?;
        let is_on = |query| ethtool.value(name, query).map(|value| value != 0);
        Ok(Offloads {
            gro: is_on(ETHTOOL_GGRO).map_err(refused)?,
            tso: is_on(ETHTOOL_GTSO).map_err(refused)?,
            takes_tags_off: ethtool.value(name, ETHTOOL_GFLAGS).map_err(refused)? & ETH_FLAG_RXVLAN
                != 0,
        })
    }

    /// Switches receive offload of the interface called `name` on or off, as `ethtool -K NAME gro on` does.
    pub fn set_gro(name: &str, is_on: bool) -> Result<(), InterfaceError> {
        let refused = |source| InterfaceError::refused(name, source);
        Ethtool::open().and_then(|asker| asker.set_gro(name, is_on)).map_err(refused)
    }
}

/// Why the properties of an interface could not be read.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// This namespace has no interface of that name.
    #[error("interface {name} does not exist; existing interfaces: {}", .present.join(", "))]
    NoSuchInterface {
        /// The name that was looked up.
        name: String,
        /// The interfaces that exist.
        present: Vec<String>,
    },
    /// The netlink request failed.
    #[error("{0}")]
    Netlink(#[source] NetlinkError),
    /// The kernel refused the request.
    #[error("cannot query {interface}: {source}; {}", next_step(.source))]
    Refused {
        /// The interface.
        interface: String,
        /// The kernel's error.
        source: io::Error,
    },
}

impl InterfaceError {
    fn refused(interface: &str, source: io::Error) -> InterfaceError {
        InterfaceError::Refused { interface: interface.into(), source }
    }
}

impl From<NetlinkError> for InterfaceError {
    fn from(error: NetlinkError) -> InterfaceError {
        match error {
            NetlinkError::NoSuchInterface { name, present } => {
                InterfaceError::NoSuchInterface { name, present }
            }
            other => InterfaceError::Netlink(other),
        }
    }
}

/// What the operator can do about it.
fn next_step(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EPERM) => "needs root (CAP_NET_RAW)",
        Some(libc::ENODEV) => "the interface is gone; `ip link` lists the existing ones",
        _ => exhausted(source).unwrap_or("`ip -details link` shows what the kernel knows of it"),
    }
}

/// Makes an interface receive all multicast while this exists (packet(7), `PACKET_MR_ALLMULTI`). The kernel counts
/// memberships, so dropping ours does not affect others.
#[derive(Debug)]
pub struct AllMulticast {
    _membership: OwnedFd,
}

impl AllMulticast {
    /// Joins on `interface`, of the calling thread's namespace.
    pub fn join(interface: &Interface) -> Result<AllMulticast, InterfaceError> {
        join_all_multicast(interface.index)
            .map(|membership| AllMulticast { _membership: membership })
            .map_err(|source| InterfaceError::refused(&interface.name, source))
    }
}

fn join_all_multicast(index: u32) -> io::Result<OwnedFd> {
    let fd = socket(libc::AF_PACKET, libc::SOCK_RAW)?; // Protocol 0: it receives nothing itself.
    let request = libc::packet_mreq {
        mr_ifindex: index as i32,
        mr_type: libc::PACKET_MR_ALLMULTI as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    // SAFETY: setsockopt(2) reads the given number of bytes of `request`.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_ADD_MEMBERSHIP,
            (&raw const request).cast(),
            size_of_val(&request) as libc::socklen_t,
        )
    })?;
    Ok(fd)
}

/// Queries drivers by ioctl, for which any socket serves.
struct Ethtool(OwnedFd);

impl Ethtool {
    fn open() -> io::Result<Ethtool> {
        socket(libc::AF_INET, libc::SOCK_DGRAM).map(Ethtool)
    }

    fn driver(&self, link: &Link) -> io::Result<String> {
        let mut answer = DriverInfo { command: ETHTOOL_GDRVINFO, ..DriverInfo::EMPTY };
        // SAFETY: ETHTOOL_GDRVINFO fills a `struct ethtool_drvinfo`, which `DriverInfo` is.
        unsafe { self.query(&link.name, &mut answer) }?;
        let name = CStr::from_bytes_until_nul(&answer.driver).unwrap_or_default();
        Ok(name.to_string_lossy().into_owned())
    }

    /// Receive and transmit queues in use.
    fn channels(&self, link: &Link) -> io::Result<(u32, u32)> {
        let mut answer = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
        // SAFETY: ETHTOOL_GCHANNELS fills a `struct ethtool_channels`, which `Channels` is.
        unsafe { self.query(&link.name, &mut answer) }?;
        let Channels { rx_count, tx_count, combined_count, .. } = answer;
        Ok((rx_count + combined_count, tx_count + combined_count))
    }

    /// The legacy flags: `ETH_FLAG_...`.
    fn flags(&self, link: &Link) -> io::Result<u32> {
        self.value(&link.name, ETHTOOL_GFLAGS)
    }

    /// Runs a query whose answer is one word.
    fn value(&self, name: &str, query: u32) -> io::Result<u32> {
        let mut answer = [query, 0];
        // SAFETY: ETHTOOL_GFLAGS, _GGRO and _GTSO fill a `struct ethtool_value`, two words; no other query gets here.
        unsafe { self.query(name, &mut answer) }?;
        Ok(answer[1])
    }

    fn set_gro(&self, name: &str, is_on: bool) -> io::Result<()> {
        let mut request = [ETHTOOL_SGRO, is_on.into()];
        // SAFETY: ETHTOOL_SGRO reads a `struct ethtool_value`, two words.
        unsafe { self.query(name, &mut request) }
    }

    /// Lets the driver of the device called `name` fill `answer`, which begins with the question's number.
    ///
    /// # Safety
    ///
    /// `T` is the structure of linux/ethtool.h that belongs to the query's number.
    unsafe fn query<T>(&self, name: &str, answer: &mut T) -> io::Result<()> {
        // SAFETY: all zeroes is a valid `ifreq`.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(15)) {
            *to = from as libc::c_char; // The 16th byte stays the zero.
        }
        request.ifr_ifru.ifru_data = std::ptr::from_mut(answer).cast();
        // SAFETY: SIOCETHTOOL reads and writes the structure at `ifru_data`, whose size follows from
        // its number: the caller's debt.
        check(unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SIOCETHTOOL, &mut request) })?;
        Ok(())
    }
}

fn socket(family: libc::c_int, kind: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: socket(2) takes no pointer.
    let fd = check(unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the kernel just made this descriptor for us, so no other value owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `struct ethtool_drvinfo`; `rest` holds the fields that we do not read.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

impl DriverInfo {
    const EMPTY: DriverInfo = DriverInfo { command: 0, driver: [0; 32], rest: [0; 160] };
}

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    max_rx: u32,
    max_tx: u32,
    max_other: u32,
    max_combined: u32,
    rx_count: u32,
    tx_count: u32,
    other_count: u32,
    combined_count: u32,
}

// linux/ethtool.h. The structure's size is part of the kernel's interface: 196 bytes since 2.6.
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_GTSO: u32 = 0x1e;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_GGRO: u32 = 0x2b;
const ETHTOOL_SGRO: u32 = 0x2c;
const ETH_FLAG_RXVLAN: u32 = 1 << 8;
const _: () = assert!(size_of::<DriverInfo>() == 196);
const _: () = assert!(size_of::<Channels>() == 36);
