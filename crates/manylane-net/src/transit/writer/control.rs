//! What holds for all packets: lease, flows, groups, rules.

use super::TransitMut;
use crate::fib::{EditError, IpPrefix, NextHopId};
use crate::transit::flows::{FlowsMut, Required};
use crate::transit::layout::control;
use crate::transit::lease::LeaseMut;
use crate::transit::{Rule, TableNumber};

/// What may be done about groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Multipath {
    /// IPv4 groups may be decided by the program.
    pub ipv4: bool,
    /// IPv6 groups may be decided by the program.
    pub ipv6: bool,
    /// IPv4's flows are distinguished by ports too, not by addresses only.
    pub ipv4_ports: bool,
    /// IPv6's flows are distinguished by ports too.
    pub ipv6_ports: bool,
}

impl Multipath {
    fn bits(self) -> u64 {
        let bit = |is_set: bool, bit: u64| if is_set { bit } else { 0 };
        bit(self.ipv4, control::MULTIPATH_V4)
            | bit(self.ipv6, control::MULTIPATH_V6)
            | bit(self.ipv4_ports, control::PORTS_V4)
            | bit(self.ipv6_ports, control::PORTS_V6)
    }
}

impl TransitMut {
    /// Hands out the writer of the flow table; one exists. The seed must not change any more.
    pub fn take_flows(&mut self) -> Option<FlowsMut> {
        let seed = self.control.load(control::SEED);
        self.flows.take().map(|words| FlowsMut::new(words, self.domain.clone(), seed))
    }

    /// Says which packets are forwarded only with a flow, and which generation of flows they may follow. Another
    /// generation stops all flows at once.
    pub fn set_flows(&mut self, required: Required, generation: u32) {
        self.control.publish(control::FLOWS, required.word(generation));
    }

    /// Hands out the writer of the lease; one exists.
    pub fn take_lease(&mut self) -> Option<LeaseMut> {
        self.lease.take()
    }

    /// As [`LeaseMut::set`].
    ///
    /// # Panics
    ///
    /// When the lease has been taken.
    pub fn set_lease(&mut self, until_ns: u64, until_ticks: u64) {
        let lease = self.lease.as_mut().expect("the lease has been taken");
        lease.set(until_ns, until_ticks);
    }

    /// Divides flows among members of groups by another seed.
    pub fn set_seed(&mut self, seed: u64) {
        self.next_hops.set_seed(seed);
        self.control.publish(control::SEED, seed);
    }

    /// Says what may be done about groups.
    pub fn set_multipath(&mut self, multipath: Multipath) {
        self.control.publish(control::MULTIPATH, multipath.bits());
    }

    /// Routes a family's packets by these rules, in this order; without rules, by the tables of the usual rules, which
    /// are one here.
    ///
    /// # Panics
    ///
    /// With more than [`layout::RULES`](crate::transit::layout::RULES) rules.
    pub fn set_rules(&mut self, is_ipv6: bool, rules: &[Rule]) -> Result<(), EditError> {
        self.policy.set_rules(is_ipv6, rules, &mut self.control)
    }

    /// The rules of a family, as they were set last.
    pub fn rules(&self, is_ipv6: bool) -> &[Rule] {
        self.policy.rules(is_ipv6)
    }

    /// A further table, without routes, for one family. `None` when all are in use or wait.
    pub fn take_table(&mut self) -> Option<TableNumber> {
        self.policy.take_table()
    }

    /// Makes a further table have these routes, each prefix once. Refused, it is as it was.
    pub fn set_table(
        &mut self,
        table: TableNumber,
        routes: impl IntoIterator<Item = (IpPrefix, NextHopId)>,
    ) -> Result<(), EditError> {
        self.policy.set_table(table, &mut routes.into_iter())
    }

    /// Gives back a further table that no rule leads to any more. Refused while too much waits.
    ///
    /// # Panics
    ///
    /// When it is not in use.
    pub fn retire_table(&mut self, table: TableNumber) -> Result<(), EditError> {
        self.policy.retire_table(table)
    }
}
