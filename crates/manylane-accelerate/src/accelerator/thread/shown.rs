//! What the thread leaves for others to see: ports with their reasons, lines of the log, the mirror's state.

use manylane_api::accelerate::{LeaseStatus, MirrorStatus, ReasonStatus};
use manylane_net::wire::ethernet::Mac;

use super::Thread;
use crate::accelerator::lease::{Tables, now};
use crate::accelerator::ports::Port;
use crate::accelerator::published::{PortView, ms};
use crate::accelerator::{TierChoice, reason, tier_reasons};
use crate::gate;

impl Thread {
    /// Says what has become of ports, where that is new.
    pub(super) fn log_changes(&mut self) {
        self.todo.show = true;
        let bypass = self.published.options.bypass.names();
        if let Some(said) = self.log.changed(&self.views(), &bypass) {
            self.published.log(&said);
        }
    }

    /// What is against a port.
    fn reasons(&self, port: &Port) -> Vec<ReasonStatus> {
        let of = self.standings.iter().filter(|standing| standing.interface == port.name);
        let mut reasons: Vec<_> =
            of.flat_map(|standing| standing.reasons.iter().map(reason)).collect();
        if port.index.is_none() {
            reasons.push(ReasonStatus {
                what: "the interface does not exist".into(),
                why: "manylane takes it up when it appears".into(),
                command: String::new(),
            });
        }
        if port.choice == TierChoice::Kernel {
            reasons.push(ReasonStatus {
                what: "the tier is set to kernel".into(),
                why: "nothing is accelerated by the operator's word".into(),
                command: String::new(),
            });
        }
        if !self.mirror.is_whole() {
            reasons.push(ReasonStatus {
                what: "the kernel has more routes than the tables hold".into(),
                why: "a packet to a missing route would follow a shorter prefix".into(),
                command: String::new(),
            });
        }
        let troubles = [port.taken.as_deref(), port.trouble.as_deref(), self.trouble.as_deref()];
        let troubles = troubles.into_iter().flatten();
        reasons.extend(troubles.map(|what| ReasonStatus {
            what: what.into(),
            why: "it is tried again once a second".into(),
            command: String::new(),
        }));
        reasons
    }

    /// What it would be kept by, had the operator not said otherwise.
    fn bypassed(&self, port: &Port) -> Vec<ReasonStatus> {
        let of = self.standings.iter().filter(|standing| standing.interface == port.name);
        of.flat_map(|standing| standing.bypassed.iter().map(reason)).collect()
    }

    /// Why it has the tier that it has, among those that forward. Where none does, the reason is the gate's.
    fn tier_reasons(&self, port: &Port) -> Vec<ReasonStatus> {
        if !port.ingress && !port.egress {
            return Vec::new();
        }
        let standing = self.standings.iter().find(|one| one.interface == port.name);
        tier_reasons::reasons(port, standing.map(|standing| &standing.driver))
    }

    /// The mirror and what keeps it.
    pub(in crate::accelerator) fn mirror_status(&self) -> MirrorStatus {
        let (grace_periods, grace_error) = self.reclaim.waits();
        let true_at = match self.lease.tables() {
            Tables::Unknown => 0,
            Tables::True { at } => at,
            Tables::Stale { since } => since,
        };
        MirrorStatus {
            lease: LeaseStatus::default(),
            verified_ms_ago: ms(now().saturating_sub(true_at).into()),
            overruns: self.counts.overruns,
            confirmations: self.counts.confirmations,
            grace_periods,
            grace_error,
            waits: Vec::new(),
            mirror: self.mirror.status(now()),
        }
    }

    /// Leaves what others see.
    pub(super) fn publish(&mut self) {
        let ports = std::mem::take(&mut self.todo.show).then(|| self.views());
        let mut view = self.published.view();
        view.lease = self.lease.clone();
        if let Some(ports) = ports {
            view.ports = ports;
        }
    }

    fn views(&self) -> Vec<PortView> {
        let of_port = |port: &Port| {
            let link = port.index.and_then(|index| self.mirror.kernel().link(index));
            let has_flag =
                |flag: libc::c_int| link.is_some_and(|link| link.flags & flag as u32 != 0);
            PortView {
                number: port.number,
                name: port.name.clone(),
                index: port.index,
                mac: link.and_then(|link| link.mac).map(Mac),
                mtu: link.map_or(0, |link| link.mtu),
                link_up: link.is_some_and(gate::has_link),
                is_admin_up: has_flag(libc::IFF_UP),
                is_promiscuous: has_flag(libc::IFF_PROMISC),
                ingress: port.ingress && port.is_attached(),
                egress: port.egress,
                attached: port.is_attached(),
                unseen: port.unseen.clone(),
                tier: port.tier(),
                egress_tier: port.egress_tier(),
                choice: port.choice,
                programs: port.programs.clone(),
                reasons: self.reasons(port),
                bypassed: self.bypassed(port),
                tier_reasons: self.tier_reasons(port),
            }
        };
        self.ports.list.iter().map(of_port).collect()
    }
}
