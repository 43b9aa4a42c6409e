//! Traffic control of devices: qdiscs, and the filters at ingress and egress (tc(8)).

use super::plain::{Plain, attribute, text, u32_at};
use super::socket::Socket;
use super::{NetlinkError, Notices};

/// A qdisc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qdisc {
    /// The device.
    pub link: u32,
    /// `tbf`, `mq`, `clsact`.
    pub kind: String,
    /// Where it is attached.
    pub place: Place,
}

/// Where a qdisc is attached on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// At the root: all egress traffic passes it.
    Root,
    /// Not queueing: it holds the filters of `ingress` and `clsact`.
    Filters,
    /// Below another qdisc.
    Below,
}

/// A filter that runs at ingress or egress, before any queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// `u32`, `flower`, `bpf`.
    pub kind: String,
    /// Its preference: low numbers run first.
    pub preference: u16,
}

/// The direction of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Received packets.
    Ingress,
    /// Transmitted packets.
    Egress,
}

/// A traffic control socket of the network namespace in which it was opened.
pub struct TrafficControl {
    socket: Socket,
}

impl TrafficControl {
    /// Opens a socket in the calling thread's network namespace.
    pub fn open() -> Result<TrafficControl, NetlinkError> {
        let socket = Socket::open().map_err(|source| NetlinkError::Unavailable { source })?;
        Ok(TrafficControl { socket })
    }

    /// The qdiscs of all devices.
    pub fn qdiscs(&mut self) -> Result<Vec<Qdisc>, NetlinkError> {
        Plain::list(RTM_GETQDISC, &tcmsg(0, 0))
            .collect(&mut self.socket, qdisc)
            .map_err(|refusal| NetlinkError::refused("list the qdiscs".into(), refusal))
    }

    /// The filters of one direction of a device that has a qdisc for them ([`Place::Filters`]).
    pub fn filters(
        &mut self,
        link: u32,
        direction: Direction,
    ) -> Result<Vec<Filter>, NetlinkError> {
        let parent = match direction {
            Direction::Ingress => TC_H_INGRESS & TC_H_MAJ_MASK | TC_H_MIN_INGRESS,
            Direction::Egress => TC_H_INGRESS & TC_H_MAJ_MASK | TC_H_MIN_EGRESS,
        };
        let mut filters = Plain::list(RTM_GETTFILTER, &tcmsg(link, parent))
            .collect(&mut self.socket, filter)
            .map_err(|refusal| {
                NetlinkError::refused(format!("list the filters of device {link}"), refusal)
            })?;
        filters.dedup(); // A filter of several parts has a message for each.
        Ok(filters)
    }
}

/// Subscribes to changes of qdiscs, classes and filters.
pub fn notices() -> Result<Notices, NetlinkError> {
    Notices::open(libc::NETLINK_ROUTE, RTNLGRP_TC, |_| true)
        .map_err(|source| NetlinkError::refused("watch traffic control".into(), source.into()))
}

/// `struct tcmsg`: family and padding, device, handle, parent, info.
fn tcmsg(link: u32, parent: u32) -> [u8; TCMSG_BYTES] {
    let mut bytes = [0; TCMSG_BYTES];
    bytes[4..8].copy_from_slice(&link.to_ne_bytes());
    bytes[PARENT_AT..PARENT_AT + 4].copy_from_slice(&parent.to_ne_bytes());
    bytes
}

fn qdisc(bytes: &[u8]) -> Option<Qdisc> {
    let kind = text(attribute(bytes.get(TCMSG_BYTES..)?, TCA_KIND)?);
    let place = match u32_at(bytes, PARENT_AT)? {
        TC_H_ROOT => Place::Root,
        TC_H_INGRESS => Place::Filters,
        _ => Place::Below,
    };
    Some(Qdisc { link: u32_at(bytes, 4)?, kind, place })
}

fn filter(bytes: &[u8]) -> Option<Filter> {
    let kind = text(attribute(bytes.get(TCMSG_BYTES..)?, TCA_KIND)?);
    Some(Filter { kind, preference: (u32_at(bytes, INFO_AT)? >> 16) as u16 })
}

const TCMSG_BYTES: usize = 20;
const PARENT_AT: usize = 12;
/// The upper half is the preference, the lower the protocol.
const INFO_AT: usize = 16;
// linux/rtnetlink.h, linux/pkt_sched.h.
const RTM_GETQDISC: u16 = 38;
const RTM_GETTFILTER: u16 = 46;
const RTNLGRP_TC: libc::c_int = 4;
const TCA_KIND: u16 = 1;
const TC_H_ROOT: u32 = 0xffff_ffff;
const TC_H_INGRESS: u32 = 0xffff_fff1;
const TC_H_MAJ_MASK: u32 = 0xffff_0000;
const TC_H_MIN_INGRESS: u32 = 0xfff2;
const TC_H_MIN_EGRESS: u32 = 0xfff3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::plain::tests::put;

    #[test]
    fn a_qdisc_is_read_with_its_place() {
        for (parent, place) in
            [(TC_H_ROOT, Place::Root), (TC_H_INGRESS, Place::Filters), (0x8001_0001, Place::Below)]
        {
            let bytes = [tcmsg(7, parent).to_vec(), put(TCA_KIND, b"tbf\0")].concat();
            assert_eq!(qdisc(&bytes), Some(Qdisc { link: 7, kind: "tbf".into(), place }));
            assert!((0..bytes.len()).all(|length| qdisc(&bytes[..length]).is_none()));
        }
    }

    #[test]
    fn a_filter_has_its_preference_in_the_upper_half() {
        let mut bytes = tcmsg(7, 0).to_vec();
        bytes[INFO_AT..].copy_from_slice(&(49152u32 << 16 | 8).to_ne_bytes());
        bytes.extend(put(TCA_KIND, b"u32\0"));
        assert_eq!(filter(&bytes), Some(Filter { kind: "u32".into(), preference: 49152 }));
    }
}
