//! The kernel's routing state: links, addresses, routes, next-hop objects, rules, neighbours, settings.
//!
//! [`Watch`] reports changes, the `dump_` methods of [`Netlink`](super::Netlink) read whole tables,
//! [`route_of`](super::Netlink::route_of) looks one packet's route up, and
//! [`change_routes`](super::Netlink::change_routes) changes routes in bulk. See rtnetlink(7).
//!
//! # What the kernel announces, and what it changes silently
//!
//! Observed on Linux 6.18 and checked by `tests/netlink_watch.rs`, except for "The rest". A mirror of the tables that
//! relies on events alone is wrong.
//!
//! ## IPv4: routes with the same prefix, type of service and metric form a list; the kernel uses the first
//!
//! | `ip route` | event | meaning |
//! |---|---|---|
//! | `add`, `prepend` | neither flag | the route is the first now: the two events are identical |
//! | `append` | `is_appended` | the route is the last of its list |
//! | `replace`, `change` | `is_replaced` | replaces the first, the others stay; on an empty list, neither flag |
//! | `del` | `RouteGone` with the whole route | that route is gone; its next hop's flags may differ from those announced before |
//!
//! ## IPv6: routes via a router, without a next-hop object, with the same prefix and metric are next hops of one route
//!
//! | `ip -6 route` | event | meaning |
//! |---|---|---|
//! | `append via` | `is_appended` with *all* next hops: the new one first, not in the table's order | the complete set of next hops; order does not matter |
//! | `append nexthop nexthop` | one event with all next hops | the complete set of next hops |
//! | `append dev`, `append nhid` | `is_appended` with one next hop | a separate route behind the others: which of several the kernel uses depends on neighbours |
//! | `replace via`, `replace nexthop` | `is_replaced`, the new next hops | replaces all next hops via routers; without any, the first other route |
//! | `replace dev`, blackhole and the like, `nhid` | `is_replaced` | replaces the first route of that sort; without one, the next hops via routers |
//! | `del via`, `del nexthop nexthop` | a `RouteGone` for each next hop, with that one | this next hop is gone, the others stay |
//! | `del` | one `RouteGone` with all next hops | all are gone |
//!
//! ## Links
//!
//! | | announced | silent |
//! |---|---|---|
//! | down | `Link` *before* anything else happens; then neighbours; for IPv6 addresses and a `RouteGone` for each next hop of the routes removed | IPv4: routes whose next hops are all on the link are removed, connected and broadcast ones too; local ones stay. Both families: such next hops of other routes are dead. Next-hop objects on the link are removed, as with the carrier. With `net.ipv6.route.skip_notify_on_dev_down` IPv6 routes are removed silently too |
//! | up | `Link`, then connected routes | dead next hops become alive: IPv4's at once, IPv6's with the carrier. Removed routes do not come back |
//! | carrier lost | `Link` without `IFF_RUNNING`, up to a second later; removed IPv6 routes with next-hop objects | next hops get `RTNH_F_LINKDOWN` and stay in use unless `ignore_routes_with_linkdown`. *Next-hop objects on the link are removed*, from their groups and with their IPv4 routes |
//! | carrier back | `Link` | the flag is cleared, objects do not come back |
//! | removed | everything removed when it is set down; for IPv6 one next hop each; `LinkGone` last | IPv4 routes with *one* next hop on the link are removed as a whole |
//! | new MAC | `Link`, then each neighbour on it as gone | |
//! | new name | `Link`, then addresses and settings again | |
//!
//! ## Addresses
//!
//! | | announced | silent |
//! |---|---|---|
//! | IPv4 removed | `AddressGone`, its routes, those whose preferred source it was (older kernels: silent) | with the last of a link: as if the link went down, but local routes are announced |
//! | IPv4 added | `Address`, its routes | dead next hops on the link become alive |
//! | IPv6 added | its network's route first, then `Address`, later the local route | |
//! | IPv6 removed | `AddressGone`, its routes; routes via routers of that network stay | |
//!
//! ## Next-hop objects
//!
//! | | announced | silent |
//! |---|---|---|
//! | replaced | `NextHop`, then all its routes with `is_replaced`, those of its groups too: not the first of the list is meant, but the one with this object | the routes, with `net.ipv4.nexthop_compat_mode=0`; routes are announced without their next hops then |
//! | deleted | `NextHopGone`; each group without it, or removed; IPv6 routes after their object | IPv4 routes with it, or with a removed group |
//! | its link loses carrier or goes down | IPv6 routes | the object is removed, groups shrink or are removed, IPv4 routes are removed |
//! | is a blackhole | its IPv4 routes as blackholes too, without a next hop | that they stop being blackholes when it changes, with `nexthop_compat_mode=0`: the object's own state is authoritative |
//!
//! ## The rest
//!
//! | | |
//! |---|---|
//! | neighbours | `NUD_INCOMPLETE` and the step from stale to `NUD_DELAY` are silent; reachable, stale, probe, failed and another MAC are announced |
//! | routes that expire | the kernel stops using them at once and announces their removal when it removes them: much later, or never |
//! | `all.forwarding` | announced for each link |
//! | IPv4 `all.rp_filter`, `all.ignore_routes_with_linkdown` | announced for `all` only; IPv6's for each link |
//! | IPv6's own MTU (`net.ipv6.conf.IF.mtu`) | silent |
//! | several IPv4 default routes with one metric | the kernel uses the one whose router answers |
//!
//! # Order
//!
//! [`Watch`] joins all groups on one socket, so events arrive in the kernel's order. An event may arrive before its
//! consequences, and dumps do not take the lock that orders them: to confirm an event by reading a table, call
//! [`wait_for_link_changes`](super::Netlink::wait_for_link_changes) first.

mod change;
mod decode;
mod dump;
mod lookup;
mod resolve;
mod types;
mod watch;

pub use change::{Change, Changed};
pub use types::{
    Address, Event, Family, Group, Hop, Hops, Link, Neighbour, Netconf, NextHop, NextHopKind,
    Route, Rule,
};
pub use watch::{Read, Watch};
