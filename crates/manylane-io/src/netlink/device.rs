//! XDP features that drivers report (netdev-genl, Documentation/netlink/specs/netdev.yaml).

use std::ffi::CStr;

use netlink_bindings::netdev::{PROTONAME_CSTR, Request, XdpAct, XdpRxMetadata};

use super::socket::{Refusal, Socket, generic_group};
use super::{NetlinkError, Notices};

/// Whether the driver of device `index`, in the calling thread's network namespace, reports to an XDP program the VLAN
/// tag that the device removed from a frame.
///
/// Fails where the kernel cannot be queried (before Linux 6.8); then no driver reports tags.
pub fn tells_tags(index: u32) -> Result<bool, Refusal> {
    let mut socket = Socket::open_generic(PROTONAME_CSTR)?;
    let mut request = Request::new().op_dev_get_do();
    request.encode().push_ifindex(index);
    let features = socket.query(&request, |reply| reply.get_xdp_rx_metadata_features().ok())?;
    Ok(features & XdpRxMetadata::VlanTag as u64 != 0)
}

/// The XDP features that a driver reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpFeatures {
    /// The driver runs programs and honours their redirects (`basic` and `redirect`).
    pub redirects: bool,
    /// The driver transmits frames redirected to it (`ndo-xmit`). Some drivers report this and do not.
    pub transmits: bool,
    /// The driver also transmits multi-buffer frames (`ndo-xmit-sg`).
    pub transmits_pieces: bool,
    /// The driver lets sockets provide its receive memory (`xsk-zerocopy`).
    pub zero_copy: bool,
}

impl XdpFeatures {
    /// Reads the features of device `index`, in the calling thread's network namespace. None where the kernel cannot be
    /// queried (before Linux 6.3).
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
        let features = socket.query(&request, |reply| reply.get_xdp_features().ok());
        let features = features.map_err(refused)?;
        let all = |acts: &[XdpAct]| acts.iter().all(|&act| features & act as u64 != 0);
        Ok(XdpFeatures {
            redirects: all(&[XdpAct::Basic, XdpAct::Redirect]),
            transmits: all(&[XdpAct::NdoXmit]),
            transmits_pieces: all(&[XdpAct::NdoXmit, XdpAct::NdoXmitSg]),
            zero_copy: all(&[XdpAct::XskZerocopy]),
        })
    }

    /// Subscribes to changes of these features, in the calling thread's network namespace. `None` where the kernel
    /// cannot be queried.
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

/// The multicast group of the generic netlink family that announces devices.
const GROUP: &CStr = c"mgmt";
