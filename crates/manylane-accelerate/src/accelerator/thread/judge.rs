//! What the gate's word and the operator's make of ports: closed, forwarding, and by which tier.

use manylane_io::sysctl;
use manylane_net::transit::Multipath;

use super::Thread;
use crate::accelerator::waits::Activity;
use crate::accelerator::{Options, TierChoice, tables, tier_reasons, tiers};
use crate::gate::{Judgement, Terms};

impl Thread {
    /// Stops forwarding of received packets until the gate has judged.
    pub(super) fn close(&mut self) {
        self.todo.judge = true;
        self.ports.close(self.mirror.tables_mut());
    }

    /// Asks the gate, and lets pass what may.
    pub(super) fn judge(&mut self) {
        let before = self.published.enter(Activity::Gate);
        // From here on a change makes the judgement out of date: the guard lets no stamp pass then.
        let changes = self.guard.look();
        let kernel = tables::known(&self.mirror);
        let rules = self.guard.rules_heard();
        let Options { bypass, .. } = self.published.options;
        let terms = Terms { bypass, stateful: self.published.options.is_stateful() };
        let judgement = self.gate.evaluate(&kernel, &self.ports.names(), terms);
        self.todo.judge = false;
        let Judgement { standings, stateful } = match judgement {
            Ok(judgement) => {
                self.trouble = None;
                judgement
            }
            Err(error) => {
                // What is not known is the kernel's; `look` comes back to it.
                self.trouble = Some(error.to_string());
                Judgement { stateful: self.ports.stateful, ..Judgement::default() }
            }
        };
        self.standings = standings;
        self.ports.stateful = stateful;
        let is_whole = self.mirror.is_whole();
        for port in &mut self.ports.list {
            let standing = self.standings.iter().find(|one| Some(one.index) == port.index);
            let may = port.choice != TierChoice::Kernel && is_whole && port.is_ours();
            let plan = standing.filter(|_| may).map(|one| tiers::plan(port.choice, one));
            port.driver.plan = plan.unwrap_or_default();
            port.ingress = may && standing.is_some_and(|one| one.is_ingress);
            port.is_overtaken = port.index.is_some_and(|index| self.gate.is_overtaken(index));
            port.egress = may && standing.is_some_and(|one| one.is_egress);
        }
        // What was heard while it looked is judged again.
        self.published.enter(before);
        if self.guard.look() != changes {
            self.todo.judge = true;
            return;
        }
        self.mirror.tables_mut().set_multipath(multipath());
        // Before a packet may be forwarded again: no connection is approved by other rules than those that were heard of.
        self.require_flows(rules);
        self.write_ports();
        self.guard.mark_judged(changes);
        self.stamp();
        (self.todo.attach, self.todo.log) = (Some(0), true);
        self.attach_next();
    }

    /// Takes a program off an interface where it may not be, or puts one on where it is missing: the next place that
    /// needs it, since each takes long.
    pub(super) fn attach_next(&mut self) {
        let before = self.published.enter(Activity::Programs);
        let Thread { ports, tiers, fast, todo, .. } = self;
        let (mut done, places) = (None, ports.list.len());
        while let (None, Some(place)) = (done, todo.attach) {
            todo.attach = Some(place + 1).filter(|&next| next < 2 * places);
            // First at ingress, everywhere: a program in the driver needs the one behind it.
            done = match place.checked_sub(places) {
                None => ports.attach(place, fast),
                Some(place) => tiers.attach(place, fast, &mut ports.list),
            };
        }
        self.published.enter(before);
        self.todo.log |= done == Some(true);
        // In one piece, when all have had their turn.
        if self.todo.attach.is_none() && std::mem::take(&mut self.todo.log) {
            self.log_changes();
        }
    }

    /// As many turns as programs are missing, for an answer that shows them.
    pub(super) fn attach_all(&mut self) {
        while self.todo.attach.is_some() {
            self.attach_next();
            // What fails here fails in the next turn, which says so.
            let _ = self.step();
        }
    }

    /// Takes ports into the driver's and the workers' tier where the time has come, and out of it where a device
    /// refuses frames.
    pub(super) fn update_tiers(&mut self) {
        let before = self.published.enter(Activity::Statistics);
        let Thread { tiers, ports, netlink, mirror, fast, .. } = self;
        let is_other =
            tiers.check_failures(&mut ports.list) | tiers.receive_reports(&mut ports.list);
        let is_moved = tiers.move_directions(&mut ports.list, netlink);
        if is_moved {
            ports.write(mirror, tiers.driver());
        }
        // Behind that: the tables say by now what goes to workers.
        if tiers.open_and_close_sockets(fast, &mut ports.list) | is_moved | is_other {
            self.log_changes();
        }
        self.published.enter(before);
    }

    /// Sets the tier of a port. `None` if no port has this name, else what speaks against that tier, if anything does.
    pub(in crate::accelerator) fn set_tier(
        &mut self,
        interface: &str,
        choice: TierChoice,
    ) -> Option<Option<String>> {
        let port = self.ports.list.iter_mut().find(|port| port.name == interface)?;
        port.choice = choice;
        self.tiers.forgive_checksums(port);
        // Before the API shows the port again.
        self.judge();
        self.attach_all();
        self.update_tiers();
        self.publish();
        let standing = self.standings.iter().find(|one| one.interface == interface);
        let warning = standing.and_then(|one| tier_reasons::warning(choice, &one.driver));
        Some(warning.map(|warning| format!("{}: {}", warning.what, warning.why)))
    }
}

/// What the kernel would choose members of groups by (`fib_multipath_hash_policy`): 0 addresses, 1 ports, too; by
/// what others say only the kernel can choose.
fn multipath() -> Multipath {
    let policy = |version| {
        let name = format!("net/{version}/fib_multipath_hash_policy");
        // A kernel without the setting does as if it were 0.
        sysctl::read(&name).ok().and_then(|text| text.trim().parse::<u8>().ok()).unwrap_or(0)
    };
    let [ipv4, ipv6] = ["ipv4", "ipv6"].map(policy);
    Multipath { ipv4: ipv4 <= 1, ipv6: ipv6 <= 1, ipv4_ports: ipv4 == 1, ipv6_ports: ipv6 == 1 }
}
