//! Mirrors the routing of this machine once, and says where packets to some addresses would be routed.
//!
//!     cargo run -p manylane-mirror --example lookup [ADDRESS...]
//!
//! Reads the kernel only, as any user may. Prints SKIPPED where this kernel does not permit that.

use std::net::IpAddr;

use manylane_io::netlink::kernel::Family;
use manylane_io::netlink::{Netlink, NetlinkError};
use manylane_mirror::{Dump, Limits, Mirror, Question};
use manylane_net::transit::{Memory, Sizes, TransitMut};
use manylane_sync::rcu::Domain;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut addresses = std::env::args()
        .skip(1)
        .map(|text| text.parse().map_err(|_| format!("{text} is no IP address")))
        .collect::<Result<Vec<IpAddr>, String>>()?;
    if addresses.is_empty() {
        addresses = vec![[127, 0, 0, 1].into(), [192, 0, 2, 1].into(), "2001:db8::1".parse()?];
    }
    let dump = match dump() {
        Ok(dump) => dump,
        Err(error) => {
            println!("SKIPPED lookup: {error}");
            return Ok(());
        }
    };
    let routes = [Family::V4, Family::V6].map(|family| dump.kernel().routes_len(family));
    let memory = Memory::zeroed(&Sizes::for_routes(routes[0] + 1000, routes[1] + 1000));
    let tables = TransitMut::new(memory, Domain::new(1), &manylane_net::fib::Limits::default());
    let mut mirror = Mirror::new(tables, Limits::default());
    mirror.load(dump);
    mirror.apply(0, usize::MAX);
    println!("{} IPv4 and {} IPv6 routes are mirrored", routes[0], routes[1]);
    for destination in addresses {
        let why = mirror.why(&Question { source: None, destination, ingress: None });
        println!("{destination}: {} ({})", why.verdict, why.reason);
        why.routes.iter().for_each(|route| println!("  {route}"));
    }
    Ok(())
}

/// What the kernel has now, in the order that [`Dump`] wants.
fn dump() -> Result<Dump, NetlinkError> {
    let mut netlink = Netlink::open()?;
    let mut dump = Dump::with(
        Limits::default(),
        netlink.dump_links()?,
        netlink.dump_netconf()?,
        netlink.dump_addresses()?,
        netlink.dump_next_hops()?,
        netlink.dump_rules()?,
        netlink.dump_neighbours()?,
    );
    for family in [Family::V4, Family::V6] {
        netlink.dump_routes(family, None, |route| dump.route(&route))?;
    }
    Ok(dump)
}
