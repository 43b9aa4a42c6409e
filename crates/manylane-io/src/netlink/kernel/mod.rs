//! The kernel's routing as it tells it: links, addresses, routes, next-hop objects, rules, neighbours, settings.
//!
//! [`Watch`] tells of changes, the `dump_` methods of [`Netlink`](super::Netlink) read whole tables,
//! [`change_routes`](super::Netlink::change_routes) writes routes by the thousand. See rtnetlink(7).
//!
//! # What the kernel tells, and what it does in silence
//!
//! Found on Linux 6.18, and held on to by `tests/netlink_watch.rs` but for "The rest". A copy of the tables that goes by the events
//! alone is wrong.
//!
//! ## IPv4: routes of one prefix, type of service and metric are a list, of which the first is used
//!
//! | `ip route` | event | meaning |
//! |---|---|---|
//! | `add`, `prepend` | neither flag | it is the first now: nothing tells the two apart |
//! | `append` | `is_appended` | it is the last of its list |
//! | `replace`, `change` | `is_replaced` | instead of the first, the others stay; where there was none, neither flag |
//! | `del` | `RouteGone` with all that the route was | that one; the way's flags may differ from those told before |
//!
//! ## IPv6: routes with a router, no next-hop object, and one prefix and metric are the ways of one route
//!
//! | `ip -6 route` | event | meaning |
//! |---|---|---|
//! | `append via` | `is_appended` with *all* ways: the new one first, not in the table's order | these are its ways now; order does not count |
//! | `append nexthop nexthop` | one event with all ways | the same |
//! | `append dev`, `append nhid` | `is_appended` with one way | a route of its own behind the others: which of several such is used depends on neighbours |
//! | `replace via`, `replace nexthop` | `is_replaced`, the new ways | instead of all ways with routers; where there are none, of the first other route |
//! | `replace dev`, of a kind that leads nowhere, `nhid` | `is_replaced` | instead of the first route of that sort; where there is none, of the ways with routers |
//! | `del via`, `del nexthop nexthop` | a `RouteGone` for each way, with one way | this way goes, the others stay |
//! | `del` | one `RouteGone` with all ways | all go |
//!
//! ## Links
//!
//! | | told | in silence |
//! |---|---|---|
//! | down | `Link` *before* anything else happens; then neighbours; for IPv6 addresses and a `RouteGone` for each way of routes that go | IPv4: routes whose ways are all there go, connected and broadcast ones, too; local ones stay. Both families: such ways of other routes are dead. Next-hop objects there go, as with the carrier. With `net.ipv6.route.skip_notify_on_dev_down` IPv6's routes go like that, too |
//! | up | `Link`, then connected routes | dead ways live again: IPv4's at once, IPv6's with the carrier. Routes that went do not come back |
//! | carrier lost | `Link` without `IFF_RUNNING`, up to a second later; IPv6 routes with objects that go | ways are `RTNH_F_LINKDOWN` and used all the same, unless `ignore_routes_with_linkdown`. *Next-hop objects there go*, out of their groups and with their IPv4 routes |
//! | carrier back | `Link` | the flag goes, objects do not come back |
//! | gone | all that goes when it is set down; IPv6 one way each; `LinkGone` last | IPv4 routes of which *one* way was there go as a whole |
//! | new MAC | `Link`, then every neighbour on it as gone | |
//! | new name | `Link`, addresses and settings again | |
//!
//! ## Addresses
//!
//! | | told | in silence |
//! |---|---|---|
//! | IPv4 gone | `AddressGone`, its routes, those that it was the preferred source of (older kernels: in silence) | with the last of a link: as if the link went down, but local routes are told |
//! | IPv4 there | `Address`, its routes | dead ways on the link live again |
//! | IPv6 there | its network's route first, then `Address`, later the local route | |
//! | IPv6 gone | `AddressGone`, its routes; those by routers of that network stay | |
//!
//! ## Next-hop objects
//!
//! | | told | in silence |
//! |---|---|---|
//! | replaced | `NextHop`, then all its routes with `is_replaced`, those of its groups, too: not the first of the list is meant, but the one with this object | the routes, with `net.ipv4.nexthop_compat_mode=0`; routes are told without their ways then |
//! | deleted | `NextHopGone`; each group without it, or gone; IPv6 routes behind their object | IPv4 routes with it, or with a group that went |
//! | its link loses carrier or goes down | IPv6 routes | the object goes, groups shrink or go, IPv4 routes go |
//! | is a blackhole | its IPv4 routes as blackholes, too, without a way | that they are none any more when it changes, with `nexthop_compat_mode=0`: the object says what is true |
//!
//! ## The rest
//!
//! | | |
//! |---|---|
//! | neighbours | `NUD_INCOMPLETE` and the step from stale to `NUD_DELAY` are not told; reachable, stale, probe, failed and another MAC are |
//! | routes that expire | are not used from then on, and told to be gone when they are removed: much later, or never |
//! | `all.forwarding` | every link's is told |
//! | IPv4 `all.rp_filter`, `all.ignore_routes_with_linkdown` | only `all` is told; with IPv6's every link's |
//! | IPv6's own MTU (`net.ipv6.conf.IF.mtu`) | is not told |
//! | several IPv4 default routes of one metric | the one is used whose router answers |
//!
//! # Order
//!
//! [`Watch`] has all groups on one socket, so events come as the kernel made them. An event may come before what
//! follows from it has happened, and tables are read without the lock that orders them: who reads a table to
//! confirm what an event meant calls [`settle`](super::Netlink::settle) first.

mod ask;
mod change;
mod decode;
mod dump;
mod types;
mod watch;

pub use change::{Change, Changed};
pub use types::{
    Address, Event, Family, Group, Hop, Hops, Link, Neighbour, Netconf, NextHop, NextHopKind,
    Route, Rule,
};
pub use watch::{Read, Watch};
