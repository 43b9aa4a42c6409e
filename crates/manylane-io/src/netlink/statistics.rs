//! Counters of devices and their queueing disciplines.

use netlink_bindings::rt_link::{Ifinfomsg, OpGetlinkDump};
use netlink_bindings::{rt_link, tc};

use super::{Netlink, NetlinkError};

/// The kernel's counters of a link, since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// The link.
    pub index: u32,
    /// Packets received.
    pub received: u64,
    /// Packets transmitted.
    pub transmitted: u64,
    /// Received packets that the device or its driver dropped.
    pub receive_dropped: u64,
    /// Packets that the device or its driver dropped instead of sending them.
    pub transmit_dropped: u64,
    /// Packets that its root queueing discipline dropped before they reached the device; 32 bits.
    pub queue_dropped: u32,
    /// Packets that wait in its root queueing discipline now.
    pub queued: u32,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes transmitted.
    pub transmitted_bytes: u64,
    /// Packets received for a group, as far as the driver counts them.
    pub received_group: u64,
    /// Received frames with errors.
    pub receive_errors: u64,
    /// Packets that could not be transmitted for errors.
    pub transmit_errors: u64,
}

impl Netlink {
    /// The statistics of all links of the namespace.
    pub fn statistics(&mut self) -> Result<Vec<Statistics>, NetlinkError> {
        let links = rt_link::Request::new();
        let links: OpGetlinkDump<'_> = links.op_getlink_dump(&Ifinfomsg::default());
        let mut found = self
            .socket
            .dump(&links, |(header, attributes)| {
                let counted = attributes.get_stats64().ok()?;
                Some(Statistics {
                    index: u32::try_from(header.ifi_index).ok()?,
                    received: counted.rx_packets,
                    transmitted: counted.tx_packets,
                    receive_dropped: counted.rx_dropped,
                    transmit_dropped: counted.tx_dropped,
                    queue_dropped: 0,
                    queued: 0,
                    received_bytes: counted.rx_bytes,
                    transmitted_bytes: counted.tx_bytes,
                    received_group: counted.multicast,
                    receive_errors: counted.rx_errors,
                    transmit_errors: counted.tx_errors,
                })
            })
            .map_err(|refusal| {
                NetlinkError::refused("read what links have counted".into(), refusal)
            })?;
        for (index, dropped, queued) in self.queues()? {
            if let Some(link) = found.iter_mut().find(|link| link.index == index) {
                (link.queue_dropped, link.queued) = (dropped, queued);
            }
        }
        Ok(found)
    }

    fn queues(&mut self) -> Result<Vec<(u32, u32, u32)>, NetlinkError> {
        let request = tc::Request::new().op_getqdisc_dump(&tc::Tcmsg::default());
        let dumped = self.socket.dump(&request, |(header, attributes)| {
            let queue = attributes.get_stats2().ok()?.get_queue().ok()?;
            // Other qdiscs are parts of the root: it has their sum (`mq_dump`), or they are its own.
            let is_root = header.parent == ROOT;
            is_root.then_some((u32::try_from(header.ifindex).ok()?, queue.drops, queue.qlen))
        });
        dumped.map_err(|refusal| {
            NetlinkError::refused("read what queueing disciplines have counted".into(), refusal)
        })
    }
}

/// `TC_H_ROOT` of linux/pkt_sched.h.
const ROOT: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::Namespace;
    use crate::netlink::LinkEnd;

    /// Needs root.
    #[test]
    fn one_end_receives_what_the_other_transmits() {
        if let Err(error) = Namespace::new_for_this_thread() {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "SKIPPED in CI: {error}");
            eprintln!("SKIPPED {error}");
            return;
        }
        let mut netlink = Netlink::open().expect("netlink is always there");
        netlink.create_veth(&LinkEnd::new("a"), &LinkEnd::new("b"), None).expect("we are root");
        netlink.set_up("a").and_then(|()| netlink.set_up("b")).expect("both are ours");
        let [a, b] = ["a", "b"].map(|name| netlink.link(name).expect("it is there").index);
        let all = netlink.statistics().expect("everybody may ask");
        let of = |index| *all.iter().find(|link| link.index == index).expect("all are listed");
        // IPv6 sends packets on its own; none of them is dropped.
        assert_eq!((of(a).transmit_dropped, of(a).queue_dropped, of(b).receive_dropped), (0, 0, 0));
        assert!(of(a).transmitted <= 10 && of(b).received <= 10, "{all:?}");
    }
}
