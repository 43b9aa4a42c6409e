//! What drivers say they can (netdev-genl, Documentation/netlink/specs/netdev.yaml).

use netlink_bindings::netdev::{PROTONAME_CSTR, Request, XdpRxMetadata};

use super::socket::{Refusal, Socket};

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
