//! Reading whole tables.
//!
//! | Table | when it changes during the dump | |
//! |---|---|---|
//! | links, addresses, next-hop objects, rules, settings | the kernel reports it (`NLM_F_DUMP_INTR`) | the dump is repeated |
//! | neighbours, routes | the kernel reports nothing | to mirror one, open a [`Watch`](super::Watch) first, dump, apply the events, and compare with a second dump |

use netlink_bindings::rt_addr::Ifaddrmsg;
use netlink_bindings::rt_link::{self, Ifinfomsg};
use netlink_bindings::rt_neigh::Ndmsg;
use netlink_bindings::rt_route::{self, Rtmsg};
use netlink_bindings::rt_rule::FibRuleHdr;
use netlink_bindings::traits::{NetlinkRequest, Protocol};

use super::super::{Netlink, NetlinkError};
use super::{Address, Family, Link, Neighbour, Netconf, NextHop, Route, Rule, decode};

impl Netlink {
    /// All links.
    pub fn dump_links(&mut self) -> Result<Vec<Link>, NetlinkError> {
        let mut payload = Vec::new();
        rt_link::OpGetlinkDump::encode_request(&mut payload, &Ifinfomsg::default())
            .push_ext_mask(rt_link::RtextFilter::SkipStats as u32);
        self.table("links", libc::RTM_GETLINK, &payload, decode::link)
    }

    /// All local addresses, of both families.
    pub fn dump_addresses(&mut self) -> Result<Vec<Address>, NetlinkError> {
        let header = Ifaddrmsg::default();
        self.table("addresses", libc::RTM_GETADDR, header.as_slice(), decode::address)
    }

    /// All next-hop objects.
    pub fn dump_next_hops(&mut self) -> Result<Vec<NextHop>, NetlinkError> {
        let header = [0; 8]; // `struct nhmsg`.
        self.table("next-hop objects", RTM_GETNEXTHOP, &header, decode::next_hop)
    }

    /// All rules of both families, each family's in order of priority.
    pub fn dump_rules(&mut self) -> Result<Vec<Rule>, NetlinkError> {
        let mut rules = Vec::new();
        for family in [Family::V4, Family::V6] {
            let header = FibRuleHdr { family: family.number(), ..Default::default() };
            rules.extend(self.table(
                "rules",
                libc::RTM_GETRULE,
                header.as_slice(),
                decode::rule,
            )?);
        }
        Ok(rules)
    }

    /// All neighbours of both families.
    pub fn dump_neighbours(&mut self) -> Result<Vec<Neighbour>, NetlinkError> {
        let header = Ndmsg::default();
        self.table("neighbours", libc::RTM_GETNEIGH, header.as_slice(), decode::neighbour)
    }

    /// The settings of all links, of `all` and of `default`, for both families.
    pub fn dump_netconf(&mut self) -> Result<Vec<Netconf>, NetlinkError> {
        let mut settings = Vec::new();
        for family in [Family::V4, Family::V6] {
            // `struct netconfmsg` is one byte; strict checking rounds up to four.
            let header = [family.number(), 0, 0, 0];
            settings.extend(self.table(
                "settings",
                libc::RTM_GETNETCONF,
                &header,
                decode::netconf,
            )?);
        }
        Ok(settings)
    }

    /// Passes each route of a family, or of one of its tables, to `each`; returns their number.
    ///
    /// This allocates only for routes with several next hops. The kernel does not report routes that change during the
    /// dump: see the table at the head of this module.
    pub fn dump_routes(
        &mut self,
        family: Family,
        table: Option<u32>,
        mut each: impl FnMut(Route),
    ) -> Result<u64, NetlinkError> {
        let header = Rtmsg { rtm_family: family.number(), ..Default::default() };
        let mut payload = Vec::new();
        let filter = rt_route::OpGetrouteDump::encode_request(&mut payload, &header);
        match table {
            Some(table) => drop(filter.push_table(table)),
            None => drop(filter),
        }
        let mut count = 0;
        let request = Request { kind: libc::RTM_GETROUTE, payload: &payload };
        let walked = self.socket.walk(&request, |reply| {
            if let Some(route) = decode::route(reply) {
                count += 1;
                each(route);
            }
        });
        match walked {
            Ok(_interrupted) => Ok(count),
            // A table without a route may not exist.
            Err(refusal)
                if table.is_some() && refusal.source.raw_os_error() == Some(libc::ENOENT) =>
            {
                Ok(0)
            }
            Err(refusal) => Err(NetlinkError::refused("list the routes".into(), refusal)),
        }
    }

    /// Waits until the kernel has completed the link changes in progress and their consequences.
    ///
    /// The kernel announces a link's removal before it removes the link's routes, and dumps do not take its lock: a
    /// dump right after such an event may still show the old state. This waits for the lock, for some 10 ms while links
    /// are created or removed, in any namespace.
    pub fn wait_for_link_changes(&mut self) -> Result<(), NetlinkError> {
        let header = Ifinfomsg { ifi_index: LOOPBACK, ..Default::default() };
        let request = rt_link::Request::new().op_getlink_do(&header);
        self.change(|| "wait for changes of links".into(), &request)
    }

    fn table<T>(
        &mut self,
        name: &str,
        kind: u16,
        payload: &[u8],
        decode: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Vec<T>, NetlinkError> {
        self.socket
            .dump(&Request { kind, payload }, decode)
            .map_err(|refusal| NetlinkError::refused(format!("list the {name}"), refusal))
    }
}

/// A request for a table; [`decode`] reads its replies.
struct Request<'p> {
    kind: u16,
    payload: &'p [u8],
}

impl NetlinkRequest for Request<'_> {
    type ReplyType<'buf> = &'buf [u8];

    fn protocol(&self) -> Protocol {
        Protocol::Raw { protonum: libc::NETLINK_ROUTE as u16, request_type: self.kind }
    }

    fn flags(&self) -> u16 {
        libc::NLM_F_DUMP as u16
    }

    fn payload(&self) -> &[u8] {
        self.payload
    }

    fn decode_reply(buf: &[u8]) -> &[u8] {
        buf
    }
}

/// The number of `lo` (linux/net/core/dev.h, `LOOPBACK_IFINDEX`): every namespace has it.
const LOOPBACK: i32 = 1;

/// linux/rtnetlink.h.
const RTM_GETNEXTHOP: u16 = 106;
