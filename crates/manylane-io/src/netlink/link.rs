//! Links: creating veth pairs, setting links up and down, MTU, listing.

use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_bindings::rt_link::{
    Ifinfomsg, IterableLinkAttrs, OpGetlinkDump, PushLinkAttrs, Request,
};
use netlink_bindings::utils::{Pusher, finalize_nested_header, push_nested_header};

use super::{Netlink, NetlinkError};

/// One end of a veth pair to be created.
#[derive(Clone, Debug)]
pub struct LinkEnd {
    /// Its name, at most 15 bytes.
    pub name: String,
    /// Its Ethernet address; the kernel chooses one if `None`.
    pub mac: Option<[u8; 6]>,
    /// Receive queues.
    pub receive_queues: u32,
    /// Transmit queues. What it sends by queue n, its peer receives on queue n, modulo the peer's number of receive
    /// queues: so this should equal that number.
    pub transmit_queues: u32,
    /// The MTU; 1500 if `None`.
    pub mtu: Option<u32>,
}

impl LinkEnd {
    /// An end with one queue each way.
    pub fn new(name: &str) -> LinkEnd {
        LinkEnd { name: name.into(), mac: None, receive_queues: 1, transmit_queues: 1, mtu: None }
    }

    /// Sets the number of queues each way.
    pub fn queues(self, count: u32) -> LinkEnd {
        LinkEnd { receive_queues: count, transmit_queues: count, ..self }
    }

    /// Sets the Ethernet address.
    pub fn mac(self, mac: [u8; 6]) -> LinkEnd {
        LinkEnd { mac: Some(mac), ..self }
    }
}

/// A link in the kernel's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
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
    /// Receive queues it was created with; fewer may be in use.
    pub receive_queues: u32,
    /// Transmit queues it was created with; fewer may be in use.
    pub transmit_queues: u32,
    /// The number of requests to receive all multicast.
    pub all_multicast: u32,
    /// The kind of a virtual link, such as `veth`.
    pub kind: Option<String>,
}

impl Netlink {
    /// Creates a veth pair; the second end is created in `namespace` if one is given.
    pub fn create_veth(
        &mut self,
        one: &LinkEnd,
        other: &LinkEnd,
        namespace: Option<BorrowedFd<'_>>,
    ) -> Result<(), NetlinkError> {
        let mut request =
            Request::new().set_create().set_excl().op_newlink_do(&Ifinfomsg::default());
        let mut info = describe(request.encode(), one).nested_linkinfo().push_kind(c"veth");
        // `netlink-bindings` does not cover veth: VETH_INFO_PEER (linux/veth.h) inside
        // IFLA_INFO_DATA is an `ifinfomsg` and the attributes of the other end.
        let bytes = info.as_vec_mut();
        let data = push_nested_header(bytes, IFLA_INFO_DATA);
        let peer = push_nested_header(bytes, VETH_INFO_PEER);
        bytes.extend(Ifinfomsg::default().as_slice());
        let mut attributes = describe(PushLinkAttrs::new(&mut *bytes), other);
        if let Some(namespace) = namespace {
            attributes = attributes.push_net_ns_fd(namespace.as_raw_fd() as u32);
        }
        drop(attributes);
        finalize_nested_header(bytes, peer);
        finalize_nested_header(bytes, data);
        drop(info);
        self.change(|| format!("make the veth pair {} and {}", one.name, other.name), &request)
    }

    /// Deletes a link; deleting one end of a veth pair deletes the other.
    pub fn delete_link(&mut self, name: &str) -> Result<(), NetlinkError> {
        let header = self.header(name)?;
        self.change(|| format!("delete {name}"), &Request::new().op_dellink_do(&header))
    }

    /// Moves a link to another namespace. The link loses its addresses and its state becomes down.
    pub fn move_link(&mut self, name: &str, to: BorrowedFd<'_>) -> Result<(), NetlinkError> {
        let mut request = Request::new().op_setlink_do(&self.header(name)?);
        request.encode().push_net_ns_fd(to.as_raw_fd() as u32);
        self.change(|| format!("move {name} to another network namespace"), &request)
    }

    /// Sets a link up.
    pub fn set_up(&mut self, name: &str) -> Result<(), NetlinkError> {
        let up = libc::IFF_UP as u32;
        let header = Ifinfomsg { ifi_flags: up, ifi_change: up, ..self.header(name)? };
        self.change(|| format!("set {name} up"), &Request::new().op_setlink_do(&header))
    }

    /// Sets a link down.
    pub fn set_down(&mut self, name: &str) -> Result<(), NetlinkError> {
        let header = Ifinfomsg { ifi_change: libc::IFF_UP as u32, ..self.header(name)? };
        self.change(|| format!("set {name} down"), &Request::new().op_setlink_do(&header))
    }

    /// Sets a link's MTU.
    pub fn set_mtu(&mut self, name: &str, mtu: u32) -> Result<(), NetlinkError> {
        let mut request = Request::new().op_setlink_do(&self.header(name)?);
        request.encode().push_mtu(mtu);
        self.change(|| format!("set the MTU of {name} to {mtu}"), &request)
    }

    /// All links of the namespace, by index.
    pub fn links(&mut self) -> Result<Vec<Link>, NetlinkError> {
        let request: OpGetlinkDump<'_> = Request::new().op_getlink_dump(&Ifinfomsg::default());
        self.socket
            .dump(&request, |(header, attributes)| read(&header, &attributes))
            .map_err(|refusal| NetlinkError::refused("list the links".into(), refusal))
    }

    /// The link called `name`. If it does not exist, the error lists the existing links.
    pub fn link(&mut self, name: &str) -> Result<Link, NetlinkError> {
        let mut links = self.links()?;
        match links.iter().position(|link| link.name == name) {
            Some(place) => Ok(links.swap_remove(place)),
            None => Err(NetlinkError::NoSuchInterface {
                name: name.into(),
                present: links.into_iter().map(|link| link.name).collect(),
            }),
        }
    }

    fn header(&mut self, name: &str) -> Result<Ifinfomsg, NetlinkError> {
        let index = self.link(name)?.index;
        Ok(Ifinfomsg { ifi_index: index as i32, ..Default::default() })
    }
}

fn describe<P: Pusher>(mut attributes: PushLinkAttrs<P>, end: &LinkEnd) -> PushLinkAttrs<P> {
    attributes = attributes
        .push_ifname_bytes(end.name.as_bytes())
        .push_num_rx_queues(end.receive_queues)
        .push_num_tx_queues(end.transmit_queues);
    if let Some(mac) = end.mac {
        attributes = attributes.push_address(&mac);
    }
    if let Some(mtu) = end.mtu {
        attributes = attributes.push_mtu(mtu);
    }
    attributes
}

fn read(header: &Ifinfomsg, attributes: &IterableLinkAttrs<'_>) -> Option<Link> {
    let kind = attributes.get_linkinfo().ok().and_then(|info| info.get_kind().ok());
    let is_up = header.ifi_flags & libc::IFF_UP as u32 != 0;
    // The carrier itself: IFF_RUNNING follows up to a second later (`linkwatch`).
    let has_carrier = attributes.get_carrier().is_ok_and(|carrier| carrier == 1);
    Some(Link {
        index: u32::try_from(header.ifi_index).ok()?,
        name: attributes.get_ifname().ok()?.to_string_lossy().into_owned(),
        mac: attributes.get_address().ok().and_then(|mac| mac.try_into().ok()).unwrap_or_default(),
        mtu: attributes.get_mtu().ok()?,
        is_up,
        is_running: is_up && has_carrier,
        receive_queues: attributes.get_num_rx_queues().unwrap_or(1),
        transmit_queues: attributes.get_num_tx_queues().unwrap_or(1),
        all_multicast: attributes.get_allmulti().unwrap_or(0),
        kind: kind.map(|kind| kind.to_string_lossy().into_owned()),
    })
}

/// linux/if_link.h.
const IFLA_INFO_DATA: u16 = 2;
/// linux/veth.h.
const VETH_INFO_PEER: u16 = 1;
