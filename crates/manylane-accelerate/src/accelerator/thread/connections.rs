//! What the lane is notified of: which connections may be forwarded at all; and what it wants.

use std::collections::BTreeSet;
use std::net::IpAddr;

use manylane_net::transit::flows::Required;

use super::Thread;
use crate::accelerator::lease::now;
use crate::accelerator::ports::Port;
use crate::firewall;
use crate::lane::{LanePort, LaneTerms, Wanted};

/// What the programs and the lane obey.
#[derive(Debug, Default)]
pub(super) struct InForce {
    /// Of approvals; 0 before the first.
    generation: u32,
    families: Required,
    /// How many changes of rules had been heard of.
    rules: u64,
    /// The interface of each port.
    interfaces: Vec<Option<u32>>,
    /// The lane has not come round for too long.
    is_late: bool,
    /// The end of the lease that is known to have lapsed.
    lapsed: u64,
}

impl Thread {
    /// Says which packets need a flow. If anything has changed that all approvals depend on, none counts any longer: `rules`
    /// is how many changes of rules had been heard of before the gate judged.
    pub(super) fn require_flows(&mut self, rules: u64) {
        let families = Required { ipv4: self.ports.stateful.v4, ipv6: self.ports.stateful.v6 };
        let interfaces: Vec<_> = self.ports.list.iter().map(|port| port.index).collect();
        let InForce { families: before, rules: known, interfaces: these, .. } = &self.in_force;
        if (*before, *known, these) != (families, rules, &interfaces) {
            (self.in_force.families, self.in_force.rules) = (families, rules);
            self.in_force.interfaces = interfaces;
            self.renew_generation();
        }
    }

    /// No approval given so far counts any longer.
    fn renew_generation(&mut self) {
        let InForce { generation, families, .. } = &mut self.in_force;
        // 0 is that of entries that are not approved.
        *generation = generation.checked_add(1).unwrap_or(1);
        self.mirror.tables_mut().set_flows(*families, *generation);
    }

    /// Writes what the tables have to say of ports, and tells the lane.
    pub(super) fn write_ports(&mut self) {
        self.ports.write(&mut self.mirror, self.tiers.driver());
        let Some(lane) = &mut self.lane else { return };
        let InForce { generation, families, .. } = self.in_force;
        // Own addresses and ports are no business of a lane that nothing needs.
        if families == Required::default() {
            return lane.set_terms(LaneTerms { generation, ..LaneTerms::default() });
        }
        let addresses: BTreeSet<(IpAddr, u32)> =
            self.mirror.kernel().addresses().map(|one| (one.address, one.link)).collect();
        lane.set_terms(LaneTerms {
            generation,
            families,
            strict: self.ports.strict,
            ports: self.ports.list.iter().filter_map(lane_port).collect(),
            addresses,
        });
    }

    /// Hands changes of sets on, and does what the lane wants.
    pub(super) fn serve_lane(&mut self) {
        let Some(lane) = &self.lane else { return };
        let sets = self.guard.take_elements();
        if !sets.is_empty() {
            lane.elements_changed(sets);
        }
        let Wanted { strict, generation, current } = lane.take_wanted();
        let is_stricter = strict != self.ports.strict;
        self.ports.strict = strict;
        // A lane that hangs does not hear of connections that end.
        let is_late = current.is_some_and(|at| at.elapsed() > self.published.options.stale_limit);
        let was_late = std::mem::replace(&mut self.in_force.is_late, is_late);
        let has_lapsed = self.finds_lapse();
        let generation = generation || has_lapsed || (is_late && !was_late);
        if generation {
            self.renew_generation();
        }
        if generation || is_stricter {
            self.write_ports();
        }
    }

    /// Whether the lease has lapsed, once for each time. Connections have ended meanwhile, and the lane may not have heard
    /// of it: no entry counts until the lane has.
    fn finds_lapse(&mut self) -> bool {
        let until = self.lease.until();
        let is_new = self.lease.renewals() > 0 && self.lease.has_lapsed(now());
        is_new && std::mem::replace(&mut self.in_force.lapsed, until) != until
    }
}

/// A port that packets of connections may enter or leave by.
fn lane_port(port: &Port) -> Option<LanePort> {
    let is_used = port.ingress || port.egress;
    let index = port.index.filter(|_| is_used)?;
    let number = u8::try_from(port.number).ok()?;
    Some(LanePort { number, interface: firewall::Port { name: port.name.clone(), index } })
}
