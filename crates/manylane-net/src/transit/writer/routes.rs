//! Routes: which next-hop id a prefix leads to.

use std::net::IpAddr;

use super::TransitMut;
use crate::fib::{EditError, IpPrefix, Ipv4Prefix, Ipv6Prefix, NextHopId};
use crate::transit::own::is_own;

impl TransitMut {
    /// Adds a route, or gives it another next hop. Returns the one it had.
    pub fn insert(
        &mut self,
        prefix: IpPrefix,
        id: NextHopId,
    ) -> Result<Option<NextHopId>, EditError> {
        match prefix {
            IpPrefix::V4(prefix) => self.insert4(prefix, id),
            IpPrefix::V6(prefix) => self.ipv6.insert(prefix, id),
        }
    }

    /// Takes a route away. Returns the next hop it had, `None` without such a route.
    pub fn remove(&mut self, prefix: IpPrefix) -> Result<Option<NextHopId>, EditError> {
        match prefix {
            IpPrefix::V4(prefix) => self.remove4(prefix),
            IpPrefix::V6(prefix) => self.ipv6.remove(prefix),
        }
    }

    fn insert4(
        &mut self,
        prefix: Ipv4Prefix,
        id: NextHopId,
    ) -> Result<Option<NextHopId>, EditError> {
        let is = is_own(self.next_hop(id));
        if is {
            self.own.add(prefix);
        }
        let outcome = self.ipv4.insert(prefix, id);
        match outcome {
            Ok(before) => {
                self.own.routed(id);
                self.lost(prefix, before);
            }
            Err(_) if is => self.own.remove(prefix),
            Err(_) => {}
        }
        outcome
    }

    fn remove4(&mut self, prefix: Ipv4Prefix) -> Result<Option<NextHopId>, EditError> {
        let before = self.ipv4.remove(prefix)?;
        self.lost(prefix, before);
        Ok(before)
    }

    /// A route has this id no more.
    fn lost(&mut self, prefix: Ipv4Prefix, id: Option<NextHopId>) {
        let Some(id) = id else { return };
        self.own.unrouted(id);
        if is_own(self.next_hop(id)) {
            self.own.remove(prefix);
        }
    }

    /// Fills the IPv4 table, which is empty. Returns the number of routes.
    pub fn load4(
        &mut self,
        routes: impl IntoIterator<Item = (Ipv4Prefix, NextHopId)>,
    ) -> Result<usize, EditError> {
        let TransitMut { ipv4, own, next_hops, .. } = self;
        // If it fails, unneeded bits stay: they cost a lookup.
        ipv4.load(routes.into_iter().inspect(|(prefix, id)| {
            own.routed(*id);
            if is_own(next_hops.get(*id)) {
                own.add(*prefix);
            }
        }))
    }

    /// Fills the IPv6 table, which is empty. Returns the number of routes.
    pub fn load6(
        &mut self,
        routes: impl IntoIterator<Item = (Ipv6Prefix, NextHopId)>,
    ) -> Result<usize, EditError> {
        self.ipv6.load(routes)
    }

    /// The next hop of exactly this prefix.
    pub fn route(&self, prefix: IpPrefix) -> Option<NextHopId> {
        match prefix {
            IpPrefix::V4(prefix) => self.ipv4.route(prefix),
            IpPrefix::V6(prefix) => self.ipv6.route(prefix),
        }
    }

    /// The route that `addr` takes.
    pub fn lookup(&self, addr: IpAddr) -> Option<(IpPrefix, NextHopId)> {
        match addr {
            IpAddr::V4(addr) => self.ipv4.lookup(addr).map(|(prefix, id)| (prefix.into(), id)),
            IpAddr::V6(addr) => self.ipv6.lookup(addr).map(|(prefix, id)| (prefix.into(), id)),
        }
    }

    /// All IPv4 routes, in the order of their prefixes.
    pub fn routes4(&self) -> impl Iterator<Item = (Ipv4Prefix, NextHopId)> {
        self.ipv4.routes()
    }

    /// All IPv6 routes: those up to /64 in the order of their prefixes, then the longer ones.
    pub fn routes6(&self) -> impl Iterator<Item = (Ipv6Prefix, NextHopId)> {
        self.ipv6.routes()
    }

    /// The number of routes, of IPv4 and of IPv6.
    pub fn routes_len(&self) -> (usize, usize) {
        (self.ipv4.routes_len(), self.ipv6.routes_len())
    }
}
