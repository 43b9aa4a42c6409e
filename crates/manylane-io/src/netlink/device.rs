//! What drivers say they can (netdev-genl, Documentation/netlink/specs/netdev.yaml).

use std::ffi::CStr;

use netlink_bindings::netdev::{PROTONAME_CSTR, Request, XdpAct, XdpRxMetadata};

use super::socket::{Refusal, Socket, generic_group};
use super::{NetlinkError, Notices};

/// Whether the driver of the device of this number, in the calling thread's network namespace, tells an XDP
/// program of the VLAN tag that it took off a frame.
///
/// An error where the kernel does not say (before Linux 6.8): then no driver does.
pub fn tells_tags(index: u32) -> Result<bool, Refusal> {
    let mut socket = Socket::open_generic(PROTONAME_CSTR)?;
    let mut request = Request::new().op_dev_get_do();
    request.encode().push_ifindex(index);
    let told = socket.ask(&request, |reply| reply.get_xdp_rx_metadata_features().ok())?;
    Ok(told & XdpRxMetadata::VlanTag as u64 != 0)
}

/// What a driver says that it can do with XDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpFeatures {
    /// It runs programs, and what they redirect goes (`basic` and `redirect`).
    pub redirects: bool,
    /// It takes frames that were redirected to it (`ndo-xmit`). Not all that say so do.
    pub transmits: bool,
    /// Also such as are in several pieces (`ndo-xmit-sg`).
    pub transmits_pieces: bool,
    /// It lets sockets have its receive memory (`xsk-zerocopy`).
    pub zero_copy: bool,
}

impl XdpFeatures {
    /// Those of the device of this number, in the calling thread's network namespace. A kernel that does not say
    /// (before Linux 6.3) has none.
    pub fn read(index: u32) -> Result<XdpFeatures, NetlinkError> {
        let refused = |refusal| {
            NetlinkError::refused(format!("read the XDP features of device {index}"), refusal)
        };
        let mut socket = match Socket::open_generic(PROTONAME_CSTR) {
            Ok(socket) => socket,
            Err(refusal) if refusal.source.raw_os_error() == Some(libc::ENOENT) => {
                return Ok(XdpFeatures::default());
            }
            Err(refusal) => return Err(refused(refusal)),
        };
        let mut request = Request::new().op_dev_get_do();
        request.encode().push_ifindex(index);
        let told = socket.ask(&request, |reply| reply.get_xdp_features().ok());
        let told = told.map_err(refused)?;
        let all = |acts: &[XdpAct]| acts.iter().all(|&act| told & act as u64 != 0);
        Ok(XdpFeatures {
            redirects: all(&[XdpAct::Basic, XdpAct::Redirect]),
            transmits: all(&[XdpAct::NdoXmit]),
            transmits_pieces: all(&[XdpAct::NdoXmit, XdpAct::NdoXmitSg]),
            zero_copy: all(&[XdpAct::XskZerocopy]),
        })
    }

    /// Tells when those of a device of the calling thread's network namespace change. Nothing where the kernel does
    /// not say.
    pub fn notices() -> Result<Option<Notices>, NetlinkError> {
        let refused =
            |refusal| NetlinkError::refused("watch the XDP features of devices".into(), refusal);
        let group = match generic_group(PROTONAME_CSTR, GROUP) {
            Ok(group) => group,
            Err(refusal) if refusal.source.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
            Err(refusal) => return Err(refused(refusal)),
        };
        let group = libc::c_int::try_from(group).unwrap_or(libc::c_int::MAX);
        let notices = Notices::open(libc::NETLINK_GENERIC, group, |_| true);
        notices.map(Some).map_err(|source| refused(source.into()))
    }
}

/// The multicast group of a family of generic netlink that tells of devices.
const GROUP: &CStr = c"mgmt";
