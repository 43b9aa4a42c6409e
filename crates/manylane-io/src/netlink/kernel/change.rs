//! Changing routes in bulk: labs, tests and benches build and change big tables with it.
//!
//! Requests are sent in batches of 64. The kernel executes them before send(2) returns and answers each refused
//! request and the last one: every request is accounted for, with one answer per 64 requests.

use std::io;
use std::net::IpAddr;

use netlink_bindings::rt_route::{OpNewrouteDo, Rtmsg};
use netlink_bindings::traits::Pusher;
use netlink_bindings::utils::{
    align, encode_ip, finalize_nested_header, push_header, push_nested_header,
};

use super::super::socket::Refusal;
use super::super::{Netlink, NetlinkError};
use super::decode::{RTAX_MTU, RTNEXTHOP_BYTES};
use super::{Family, Hop, Hops, Route};

/// A change of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// Adds the route; refused if a route with the same prefix, metric and type of service exists.
    Add,
    /// Adds the route, or replaces the one with the same prefix, metric and type of service.
    Replace,
    /// Adds the route after those with the same prefix; for IPv6 with the same metric it becomes another next hop.
    Append,
    /// Deletes the route.
    Delete,
}

/// The outcome of a batch of changes.
#[derive(Debug, Default)]
pub struct Changed {
    /// Changes that the kernel made.
    pub done: u64,
    /// Changes that the kernel refused.
    pub refused: u64,
    /// Why the first of them was refused.
    pub first_refusal: Option<NetlinkError>,
}

impl Changed {
    /// The number of changes if the kernel made all; else why it refused the first.
    pub fn all(self) -> Result<u64, NetlinkError> {
        self.first_refusal.map_or(Ok(self.done), Err)
    }
}

impl Netlink {
    /// Adds new routes; the kernel must have none of them.
    pub fn load_routes(
        &mut self,
        routes: impl IntoIterator<Item = Route>,
    ) -> Result<u64, NetlinkError> {
        self.change_routes(routes.into_iter().map(|route| (Change::Add, route)))?.all()
    }

    /// Makes the changes in this order, and continues after one that the kernel refuses.
    pub fn change_routes(
        &mut self,
        changes: impl IntoIterator<Item = (Change, Route)>,
    ) -> Result<Changed, NetlinkError> {
        let mut changed = Changed::default();
        let mut batch = Batch::default();
        for (change, route) in changes {
            if let Err(reason) = check_encodable(&route) {
                changed.refuse(&[(change, route)], 0, io::Error::other(reason).into());
                continue;
            }
            batch.push(change, route, self.socket.take_sequence());
            if batch.is_full() {
                self.execute(&mut batch, &mut changed)?;
            }
        }
        self.execute(&mut batch, &mut changed)?;
        Ok(changed)
    }

    fn execute(&mut self, batch: &mut Batch, changed: &mut Changed) -> Result<(), NetlinkError> {
        let Some(last) = batch.finish() else { return Ok(()) };
        let count = batch.changes.len();
        changed.done += count as u64;
        self.socket
            .exchange(&batch.bytes, last, |sequence, refusal| {
                let behind = last.wrapping_sub(sequence) as usize;
                changed.done -= 1;
                changed.refuse(&batch.changes, (count - 1).saturating_sub(behind), refusal);
            })
            .map_err(|source| NetlinkError::refused("change routes".into(), source.into()))?;
        batch.clear();
        Ok(())
    }
}

impl Changed {
    fn refuse(&mut self, changes: &[(Change, Route)], place: usize, refusal: Refusal) {
        self.refused += 1;
        self.first_refusal.get_or_insert_with(|| {
            let (change, route) = &changes[place];
            let verb = match change {
                Change::Add => "add",
                Change::Replace => "replace",
                Change::Append => "append",
                Change::Delete => "delete",
            };
            let (destination, length) = (route.destination, route.prefix_len);
            let step = format!("{verb} the route {destination}/{length} in table {}", route.table);
            NetlinkError::refused(step, refusal)
        });
    }
}

/// Requests that are sent together.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    changes: Vec<(Change, Route)>,
    /// The offset and the sequence number of the last request.
    last: Option<(usize, u32)>,
}

impl Batch {
    fn push(&mut self, change: Change, route: Route, sequence: u32) {
        let start = self.bytes.len();
        let (kind, flags) = match change {
            Change::Add => (libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_EXCL),
            Change::Replace => (libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_REPLACE),
            Change::Append => (libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_APPEND),
            Change::Delete => (libc::RTM_DELROUTE, 0),
        };
        self.bytes.extend([0; 4]); // The length, filled in below.
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(((flags | libc::NLM_F_REQUEST) as u16).to_ne_bytes());
        self.bytes.extend(sequence.to_ne_bytes());
        self.bytes.extend(0u32.to_ne_bytes());
        write(&mut self.bytes, &route);
        align(&mut self.bytes);
        let length = (self.bytes.len() - start) as u32;
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
        self.changes.push((change, route));
        self.last = Some((start, sequence));
    }

    fn is_full(&self) -> bool {
        self.changes.len() >= BATCH_REQUESTS || self.bytes.len() >= BATCH_BYTES
    }

    /// Sets the last request's acknowledgement flag and returns its sequence number; `None` without a request.
    fn finish(&mut self) -> Option<u32> {
        let (start, sequence) = self.last?;
        let flags = start + 6;
        let before = u16::from_ne_bytes([self.bytes[flags], self.bytes[flags + 1]]);
        self.bytes[flags..flags + 2]
            .copy_from_slice(&(before | libc::NLM_F_ACK as u16).to_ne_bytes());
        Some(sequence)
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.changes.clear();
        self.last = None;
    }
}

/// Refuses a route that a request cannot encode.
fn check_encodable(route: &Route) -> Result<(), &'static str> {
    let hops = route.hops.as_slice();
    if hops.iter().any(|hop| hop.is_encapsulated) {
        return Err("manylane cannot encode encapsulation; use ip(8)");
    }
    if route.is_expiring {
        return Err("manylane cannot encode a lifetime; use ip(8)");
    }
    if hops.len() > HOPS_MAX {
        return Err("more next hops than an attribute can hold");
    }
    if hops.iter().any(|hop| !(1..=256).contains(&hop.weight)) {
        return Err("a weight must be 1 to 256");
    }
    Ok(())
}

/// `struct rtmsg` and the attributes of a route.
fn write(bytes: &mut Vec<u8>, route: &Route) {
    let family = if route.destination.is_ipv4() { Family::V4 } else { Family::V6 };
    let hops = if route.next_hop.is_some() { &[] } else { route.hops.as_slice() };
    let header = Rtmsg {
        rtm_family: family.number(),
        rtm_dst_len: route.prefix_len,
        rtm_src_len: route.source.map_or(0, |(_, prefix_len)| prefix_len),
        rtm_tos: route.tos,
        rtm_table: u8::try_from(route.table).unwrap_or(libc::RT_TABLE_UNSPEC),
        rtm_protocol: route.protocol,
        rtm_scope: route.scope,
        rtm_type: route.kind,
        rtm_flags: match hops {
            [hop] => u32::from(hop.flags & RTNH_F_ONLINK),
            _ => 0,
        },
    };
    let mut attributes = OpNewrouteDo::encode_request(bytes, &header).push_table(route.table);
    if route.prefix_len > 0 {
        attributes = attributes.push_dst(route.destination);
    }
    if let Some((source, _)) = route.source {
        attributes = attributes.push_src(source);
    }
    if route.priority > 0 {
        attributes = attributes.push_priority(route.priority);
    }
    if let Some(id) = route.next_hop {
        attributes = attributes.push_nh_id(id);
    }
    let bytes = attributes.as_vec_mut();
    if let Some(mtu) = route.mtu {
        let metrics = push_nested_header(bytes, libc::RTA_METRICS);
        push_header(bytes, RTAX_MTU, 4);
        bytes.extend(mtu.to_ne_bytes());
        finalize_nested_header(bytes, metrics);
    }
    match hops {
        [hop] => {
            if hop.link != 0 {
                push_header(bytes, libc::RTA_OIF, 4);
                bytes.extend(hop.link.to_ne_bytes());
            }
            write_gateway(bytes, family, hop);
        }
        [] => {}
        _ => {
            let all = push_header(bytes, libc::RTA_MULTIPATH, 0);
            hops.iter().for_each(|hop| write_next_hop(bytes, family, hop));
            finalize_nested_header(bytes, all);
        }
    }
}

/// `struct rtnexthop`, and its gateway.
fn write_next_hop(bytes: &mut Vec<u8>, family: Family, hop: &Hop) {
    let start = bytes.len();
    bytes.extend((RTNEXTHOP_BYTES as u16).to_ne_bytes());
    bytes.extend([hop.flags & RTNH_F_ONLINK, (hop.weight - 1) as u8]);
    bytes.extend(hop.link.to_ne_bytes());
    write_gateway(bytes, family, hop);
    finalize_nested_header(bytes, start); // The length is in the same place.
}

/// A gateway of the route's own family, or of the other (`struct rtvia`).
fn write_gateway(bytes: &mut Vec<u8>, family: Family, hop: &Hop) {
    let Some(gateway) = hop.gateway else { return };
    let length = if gateway.is_ipv4() { 4 } else { 16 };
    if gateway.is_ipv4() == (family == Family::V4) {
        push_header(bytes, libc::RTA_GATEWAY, length);
    } else {
        push_header(bytes, libc::RTA_VIA, 2 + length);
        let family = if gateway.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        bytes.extend((family as u16).to_ne_bytes());
    }
    encode_ip(bytes, gateway);
    align(bytes);
}

impl Route {
    /// A unicast route of the main table, as `ip route add` would make it.
    pub fn new(destination: IpAddr, prefix_len: u8, hops: Hops) -> Route {
        let is_on_link = hops.as_slice().iter().all(|hop| hop.gateway.is_none());
        let scope = match destination {
            IpAddr::V4(_) if is_on_link && !hops.as_slice().is_empty() => libc::RT_SCOPE_LINK,
            _ => libc::RT_SCOPE_UNIVERSE,
        };
        Route {
            table: libc::RT_TABLE_MAIN.into(),
            destination,
            prefix_len,
            source: None,
            tos: 0,
            priority: 0,
            kind: libc::RTN_UNICAST,
            protocol: libc::RTPROT_STATIC,
            scope,
            flags: 0,
            next_hop: None,
            hops,
            mtu: None,
            is_expiring: false,
        }
    }

    /// A unicast route of the main table that uses this next-hop object.
    pub fn by_next_hop(destination: IpAddr, prefix_len: u8, id: u32) -> Route {
        Route { next_hop: Some(id), ..Route::new(destination, prefix_len, Hops::One(None)) }
    }
}

impl Hop {
    /// A next hop through a router on a link; 0 lets the kernel find the link.
    pub fn via(link: u32, gateway: IpAddr) -> Hop {
        Hop { gateway: Some(gateway), ..Hop::on(link) }
    }

    /// A next hop for destinations that are neighbours on a link.
    pub fn on(link: u32) -> Hop {
        Hop { link, gateway: None, weight: 1, flags: 0, is_encapsulated: false }
    }
}

/// Requests per batch. Their refusals must fit into the socket's receive buffer (208 KiB by default; one takes up to
/// 1280 bytes): no thread reads them while send(2) runs.
const BATCH_REQUESTS: usize = 64;

/// A datagram must fit into the socket's send buffer, 208 KiB by default.
const BATCH_BYTES: usize = 32 << 10;

/// A next hop takes up to 28 bytes of the 64 KiB that an attribute can have.
const HOPS_MAX: usize = 2048;

/// linux/rtnetlink.h.
const RTNH_F_ONLINK: u8 = 4;
