//! What a prefix leads to, from the model alone. Pure: the same model has the same answer.
//!
//! For a prefix, the tables are read in their order, and in each the prefix' routes in the kernel's:
//!
//! | routes of the prefix                                  | the prefix leads to                          |
//! |-------------------------------------------------------|----------------------------------------------|
//! | a route for one type of service, or from one source   | the kernel: the program looks at neither     |
//! | one that is used: the first                           | its [`Destination`]                                  |
//! | several IPv4 default routes of its metric             | the kernel: it prefers a router that answers |
//! | one in local, whatever it says                        | ourselves, so that the kernel has it         |
//! | several IPv6 routes of its metric, not siblings       | the kernel: it may prefer a router that answers |
//! | none that is used                                     | what the next table says                     |
//! | one address, a neighbour that its own route or a      | that neighbour                               |
//! | connected network's leads to without a router         |                                              |
//! | else nothing                                          | the shorter prefix                           |
//!
//! A table that is read earlier wins with whatever it has: a prefix in one of its prefixes is hidden from later
//! tables. IPv4 is not so exact while the rules are only the usual ones (local and main are one tree then), so
//! such a prefix is the kernel's: as `Kernel`, or as `Local` where it is local that hides it, because rules may come
//! between what local says and what main does, and the program has to see whose it is.
//!
//! Further tables are read by themselves: a prefix leads to what its own routes say, or else to a neighbour.

use std::net::{IpAddr, Ipv4Addr};

use manylane_io::netlink::kernel::{Family, NextHopKind};
use manylane_net::fib::IpPrefix;

use super::changes::within;
use super::constants::TYPE_UNICAST;
use super::destination::{Destination, Member, Via};
use super::family::{Bits, host};
use super::kernel::{Kernel, mac_of};
use super::ports::Ports;
use super::routes::{Key, Routes, USUAL};

/// What a way leads to now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Resolved {
    /// As the way says.
    Plain(Plain),
    /// To its destination, on this device.
    OnLink {
        link: u32,
        mtu: u32,
    },
    Via(Via),
    /// More than one, each once.
    Many(Vec<Member>),
}

/// What needs nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plain {
    Local,
    Broadcast,
    Blackhole,
    Unreachable,
    Prohibit,
    Kernel,
}

/// The model that is queried.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub kernel: &'a Kernel,
    pub ports: &'a Ports,
}

impl<'a> View<'a> {
    /// What a prefix leads to; nothing if a shorter one says it.
    pub fn resolve(self, prefix: IpPrefix) -> Option<Destination> {
        match prefix {
            IpPrefix::V4(prefix) => {
                self.resolve_in(&self.kernel.v4, prefix.addr().to_bits(), prefix.len())
            }
            IpPrefix::V6(prefix) => {
                self.resolve_in(&self.kernel.v6, prefix.addr().to_bits(), prefix.len())
            }
        }
    }

    fn resolve_in<B: Bits>(self, routes: &Routes<B>, address: B, len: u8) -> Option<Destination> {
        let routed = self.routed(routes, address, len).map(|(destination, _)| destination);
        if len < B::WIDTH {
            return routed;
        }
        let shorter = || Some(self.longest_in(routes, address, B::WIDTH - 1)?.1);
        self.neighbour(address, routed.clone(), shorter).or(routed)
    }

    /// What a prefix leads to in another table than the usual ones; nothing if a shorter one says it, or none.
    pub fn resolve_further(self, table: u32, prefix: IpPrefix) -> Option<Destination> {
        match prefix {
            IpPrefix::V4(of) => {
                self.resolve_further_in(&self.kernel.v4, table, of.addr().to_bits(), of.len())
            }
            IpPrefix::V6(of) => {
                self.resolve_further_in(&self.kernel.v6, table, of.addr().to_bits(), of.len())
            }
        }
    }

    fn resolve_further_in<B: Bits>(
        self,
        routes: &Routes<B>,
        table: u32,
        address: B,
        len: u8,
    ) -> Option<Destination> {
        let table = routes.table(table)?;
        let routed = choose(routes, Key { address, table, len });
        if len < B::WIDTH {
            return routed;
        }
        let shorter = || {
            let mut lens = (0..B::WIDTH).rev().filter(|&len| routes.has_len(table, len));
            lens.find_map(|len| choose(routes, Key { address: address.first(len), table, len }))
        };
        self.neighbour(address, routed.clone(), shorter).or(routed)
    }

    /// The longest prefix by which another table than the usual ones routes an address.
    pub fn longest_further(self, table: u32, address: IpAddr) -> Option<(IpPrefix, Destination)> {
        let prefix = |len: u8| match address {
            IpAddr::V4(address) => address.to_bits().prefix(len),
            IpAddr::V6(address) => address.to_bits().prefix(len),
        };
        let mut prefixes = (0..=host(address).len()).rev().map(prefix);
        prefixes.find_map(|prefix| Some((prefix, self.resolve_further(table, prefix)?)))
    }

    /// What the tables say of a prefix, and the number of the one that says it.
    fn routed<B: Bits>(
        self,
        routes: &Routes<B>,
        address: B,
        len: u8,
    ) -> Option<(Destination, u16)> {
        let tables = self.kernel.rules.tables(B::FAMILY);
        for table in (0..USUAL.len() as u16).filter(|&table| tables[usize::from(table)]) {
            if let Some(destination) = choose(routes, Key { address, table, len }) {
                let is_hidden = |earlier: u16| {
                    tables[usize::from(earlier)] && covers(routes, earlier, address, len)
                };
                let destination = match destination {
                    Destination::Local | Destination::Broadcast if table == 0 => destination,
                    // Rules may come between what local says and what main does: it has to show whose this is.
                    _ if table == 0 || is_hidden(0) => Destination::Local,
                    _ if (1..table).any(is_hidden) => Destination::Kernel,
                    destination => destination,
                };
                return Some((destination, table));
            }
        }
        None
    }

    /// The longest prefix of at most `len_max` bits that an address is routed by.
    pub fn longest(self, address: IpAddr, len_max: u8) -> Option<(IpPrefix, Destination, u32)> {
        match address {
            IpAddr::V4(address) => self.longest_in(&self.kernel.v4, address.to_bits(), len_max),
            IpAddr::V6(address) => self.longest_in(&self.kernel.v6, address.to_bits(), len_max),
        }
    }

    fn longest_in<B: Bits>(
        self,
        routes: &Routes<B>,
        address: B,
        len_max: u8,
    ) -> Option<(IpPrefix, Destination, u32)> {
        let tables = 0..USUAL.len() as u16;
        let lens = (0..=len_max.min(B::WIDTH)).rev();
        let mut lens = lens.filter(|&len| tables.clone().any(|table| routes.has_len(table, len)));
        lens.find_map(|len| {
            let (destination, table) = self.routed(routes, address.first(len), len)?;
            Some((address.prefix(len), destination, routes.table_id(table)))
        })
    }

    /// The way to a neighbour, where a connected network's route leads to it: the route of its address alone, or else of
    /// the longest `shorter` prefix.
    fn neighbour<B: Bits>(
        self,
        address: B,
        routed: Option<Destination>,
        shorter: impl FnOnce() -> Option<Destination>,
    ) -> Option<Destination> {
        let destination = address.address();
        within(&self.kernel.neighbours, host(destination)).next()?;
        if !is_forwarded(destination) {
            return None;
        }
        let Resolved::OnLink { link, mtu } = self.resolved(&routed.or_else(shorter)?) else {
            return None;
        };
        self.ports.of(link)?;
        let neighbour = self.kernel.neighbour(link, destination)?;
        mac_of(neighbour)?;
        Some(Destination::Via(Via { link, gateway: destination, mtu }))
    }

    /// What a way leads to, now that next-hop objects are as they are.
    pub fn resolved(self, destination: &Destination) -> Resolved {
        match *destination {
            Destination::Local => Resolved::Plain(Plain::Local),
            Destination::Broadcast => Resolved::Plain(Plain::Broadcast),
            Destination::Blackhole => Resolved::Plain(Plain::Blackhole),
            Destination::Unreachable => Resolved::Plain(Plain::Unreachable),
            Destination::Prohibit => Resolved::Plain(Plain::Prohibit),
            Destination::Kernel => Resolved::Plain(Plain::Kernel),
            Destination::OnLink { link, mtu } => Resolved::OnLink { link, mtu },
            Destination::Via(via) => Resolved::Via(via),
            Destination::Many(ref members) => Resolved::Many(members.to_vec()),
            Destination::Object { object, mtu } => self.object(object, mtu),
        }
    }

    fn object(self, object: u32, mtu: u32) -> Resolved {
        let kernels = Resolved::Plain(Plain::Kernel);
        let Some(object) = self.kernel.objects.get(object) else { return kernels };
        match &object.kind {
            NextHopKind::Blackhole => Resolved::Plain(Plain::Blackhole),
            NextHopKind::Fdb => kernels,
            NextHopKind::Via(hop) if hop.is_encapsulated || hop.link == 0 => kernels,
            NextHopKind::Via(hop) => match hop.gateway {
                Some(gateway) => Resolved::Via(Via { link: hop.link, gateway, mtu }),
                None => Resolved::OnLink { link: hop.link, mtu },
            },
            NextHopKind::Group { members, .. } => {
                let member = |&(id, weight): &(u32, u16)| {
                    self.object_via(id, mtu).map(|via| Member { via, weight: weight.max(1) })
                };
                let members: Option<Vec<Member>> = members.iter().map(member).collect();
                match members.map(Destination::many) {
                    Some(Destination::Via(via)) => Resolved::Via(via),
                    Some(Destination::Many(members)) => Resolved::Many(members.to_vec()),
                    _ => kernels,
                }
            }
        }
    }

    /// A member of a group: by a router, and nothing else.
    fn object_via(self, id: u32, mtu: u32) -> Option<Via> {
        match &self.kernel.objects.get(id)?.kind {
            NextHopKind::Via(hop) if !hop.is_encapsulated && hop.link != 0 => {
                Some(Via { link: hop.link, gateway: hop.gateway?, mtu })
            }
            _ => None,
        }
    }
}

/// What the routes of a key lead to; nothing if none is used.
fn choose<B: Bits>(routes: &Routes<B>, key: Key<B>) -> Option<Destination> {
    let mut best: Option<u32> = None;
    let mut rival = false;
    for index in routes.list(key) {
        let entry = routes.entry(index);
        let attributes = &entry.attributes;
        if attributes.tos != 0 || attributes.source.is_some() {
            return Some(Destination::Kernel);
        }
        if !entry.usable {
            continue;
        }
        match best {
            None => best = Some(index),
            Some(first) => {
                let first = routes.attributes(first);
                let unicast = [first, attributes].map(|attributes| attributes.kind == TYPE_UNICAST);
                rival |= first.priority == attributes.priority
                    && match B::FAMILY {
                        Family::V4 => key.len == 0 && unicast == [true; 2],
                        Family::V6 => unicast != [false; 2],
                    };
            }
        }
    }
    let best = routes.entry(best?);
    Some(if rival { Destination::Kernel } else { best.destination.clone() })
}

/// Whether a table has a shorter prefix that contains this one.
fn covers<B: Bits>(routes: &Routes<B>, table: u16, address: B, len: u8) -> bool {
    let mut lens = (0..len).filter(|&len| routes.has_len(table, len));
    lens.any(|len| choose(routes, Key { address: address.first(len), table, len }).is_some())
}

/// Whether routers send packets on to such an address at all.
fn is_forwarded(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            !address.is_multicast()
                && !address.is_loopback()
                && address != Ipv4Addr::BROADCAST
                && !address.is_unspecified()
        }
        IpAddr::V6(address) => {
            !address.is_multicast()
                && !address.is_loopback()
                && !address.is_unicast_link_local()
                && !address.is_unspecified()
        }
    }
}
