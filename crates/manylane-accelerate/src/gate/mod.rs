//! The gate: which interfaces' packets may be forwarded by us, and what keeps the others in the kernel.
//!
//! Our program takes a packet at tcx ingress, and so skips all that the kernel would do behind that place. A
//! packet may be taken only if the kernel would do nothing to it but route it. [`judge()`] says so of an interface, as
//! a function of plain [`Facts`]; [`Gate`] finds the facts, and hears when they change.
//!
//! ```text
//!   XDP ─ tcx ingress ─ tc ingress ─ netdev ingress ─ prerouting ─ route ─ forward ─ XFRM ─ postrouting ─┐
//!           │ ours                                                                                       │
//!           └─────────────── bpf_redirect ────────────────┐                             netdev egress ───┤
//!                                                         └──── tcx and tc egress ─ qdisc ─ device ──────┘
//! ```
//!
//! | What                                        | Keeps in the kernel              | How a change is noticed            |
//! |---------------------------------------------|----------------------------------|------------------------------------|
//! | nftables chains with rules, or that drop    | all; ingress, egress: the device | `NFNLGRP_NFTABLES`                 |
//! | legacy iptables                             | all                              | read again (`poller.rs`)           |
//! | connection tracking by rules elsewhere      | all                              | as the rules                       |
//! | flow tables of nftables that a rule fills   | all                              | `NFNLGRP_NFTABLES`                 |
//! | XFRM policies, or a default that blocks     | all                              | `XFRMNLGRP_POLICY`                 |
//! | routing rules that cannot be followed       | all                              | the mirror's                       |
//! | tc filters at ingress                       | the device, as ingress             | `RTNLGRP_TC`                       |
//! | members, parents, kind, number, up or down  | the device                       | the mirror's                       |
//! | forwarding                                  | the device, as ingress             | the mirror's                       |
//! | tc filters at egress, qdiscs                | nothing: gone through as ever    | `RTNLGRP_TC`                       |
//! | encapsulated routes, multipath by policy 2, 3 | these routes                   | the mirror's; read again           |
//! | rp_filter                                   | what it would drop               | the mirror's                       |
//! | other BPF programs                          | nothing: they run before ours, or ours moves behind them | read again |
//! | drivers without XDP, tags taken off, shapers | nothing: not in the driver ([`DriverStanding`]) | `netdev` (generic netlink), `RTNLGRP_TC` |
//!
//! With [`Terms::stateful`] the first three keep no port in the kernel, but for chains at ingress and egress. The gate
//! then says for which families packets may be forwarded by connection only ([`Stateful`]): what the rules would do to a
//! connection is [`firewall`](crate::firewall)'s to say. Without, flow tables are no news: their rules are in a chain.
//!
//! What the mirror follows (links, settings, rules, routes) is passed as [`Kernel`]: the mirror's thread calls
//! [`Gate::evaluate`] again when it changed.
//!
//! Not seen: a macvlan or ipvlan in another namespace on an interface here. Such a device has an Ethernet address of
//! its own (then its packets are not for us, and the kernel has them), or no routed way through here (ipvlan).

mod cure;
mod driver;
mod error;
mod facts;
mod judge;
mod look;
mod netfilter;
mod poller;
mod reason;
mod terms;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use manylane_io::netlink::nftables::{Announced, RuleNotices, SetName};
use manylane_io::netlink::traffic::TrafficControl;
use manylane_io::netlink::{Notices, XdpFeatures, nftables, traffic, xfrm};

pub use error::GateError;
pub use facts::{Facts, Kernel, Offloads, Program};
pub(crate) use judge::has_link;
pub use judge::{judge, stateful};
pub use look::programs_of_others;
pub(crate) use look::{encapsulated, links, missing_capabilities};
pub(crate) use poller::{Poller, Round};
pub use reason::{About, Bypass, Concerns, DriverStanding, Reason, Standing, Tier, UnknownBypass};
pub use terms::{Judgement, Stateful, Terms};

/// Finds foreign BPF programs at tcx ingress of the device of this number and name.
pub type Programs = Box<dyn FnMut(u32, &str) -> io::Result<Vec<Program>> + Send>;

/// The sockets by which the kernel notifies the gate of changes.
#[derive(Default)]
pub(crate) struct Changes {
    /// Of nftables.
    rules: Option<RuleNotices>,
    others: Vec<Notices>,
}

/// What was announced between two looks, or found by looking.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    /// Something by which the gate judges.
    pub is_change: bool,
    /// Rules are among it: what was decided by them is out of date.
    pub rules: bool,
    /// Sets and maps that have other elements now. The gate does not judge by these.
    pub elements: BTreeSet<SetName>,
}

impl Changes {
    /// Readable when something may have changed.
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.rules.iter().map(AsFd::as_fd).chain(self.others.iter().map(AsFd::as_fd)).collect()
    }

    /// Reads notifications, without waiting. Fails where a socket does, which is a change, too, of all that it may have
    /// announced.
    pub fn drain(&mut self, heard: &mut Heard) -> io::Result<()> {
        let mut result = Ok(());
        // All are drained, whatever the first says.
        if let Some(rules) = &mut self.rules {
            match rules.drain() {
                Ok(Announced { rules, elements }) => {
                    heard.rules |= rules;
                    heard.elements.extend(elements);
                }
                Err(error) => (heard.rules, result) = (true, Err(error)),
            }
        }
        heard.is_change |= heard.rules;
        for notices in &mut self.others {
            match notices.drain() {
                Ok(changed) => heard.is_change |= changed,
                Err(error) => (heard.is_change, result) = (true, Err(error)),
            }
        }
        result
    }
}

/// What looks at the network namespace in which it was opened, and hears of changes.
///
/// Its sockets are of that namespace; settings under `/proc` are read in that of the calling thread: call it on
/// a thread in the same one.
pub struct Gate {
    changes: Changes,
    traffic: TrafficControl,
    programs: Programs,
    /// At the last evaluation.
    polled: Option<look::Polled>,
}

impl Gate {
    /// Opens the gate in the calling thread's network namespace. From now on the gate is notified of changes: what is
    /// evaluated after this is never older than what [`changed`](Gate::changed) reports.
    pub fn open(programs: Programs) -> Result<Gate, GateError> {
        let rules = nftables::notices()?;
        let mut others: Vec<_> = xfrm::notices()?.into_iter().collect();
        others.push(traffic::notices()?);
        others.extend(XdpFeatures::notices()?);
        let traffic = TrafficControl::open()?;
        Ok(Gate { changes: Changes { rules, others }, traffic, programs, polled: None })
    }

    /// Readable when something may have changed.
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.changes.fds()
    }

    /// Reads notifications, without waiting: whether something changed since the last call. A socket that fails
    /// is a change, too: then [`evaluate`](Gate::evaluate) is what says so.
    pub fn changed(&mut self) -> bool {
        let mut heard = Heard::default();
        // One that fails is a change, and has been noted as such.
        let _ = self.changes.drain(&mut heard);
        heard.is_change
    }

    /// Hands out the sockets, to be read by the owner of a lease; from now on [`changed`](Gate::changed) finds none.
    pub(crate) fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    /// Of what sends no notification, what is other than at the last evaluation, by a look of `poller` that is over: one
    /// that began before that evaluation may say so without cause.
    pub(crate) fn poll(&self, poller: &mut Poller) -> Heard {
        poller.seen().map(|seen| seen.since(self.polled.as_ref())).unwrap_or_default()
    }

    /// Whether programs of others were behind ours at the last evaluation, on the device of this number.
    pub(crate) fn is_overtaken(&self, link: u32) -> bool {
        let programs = self.polled.as_ref().and_then(|polled| polled.programs.as_ref().ok());
        programs.is_some_and(|all| all.iter().any(|one| one.link == link && one.is_behind))
    }

    /// As the poller's look, in the calling thread, which waits for the kernel's locks: not for one that renews a lease.
    pub fn poll_at_once(&mut self, kernel: &Kernel, interfaces: &[String]) -> bool {
        let polled = look::polled(&mut self.programs, &look::links(kernel, interfaces));
        self.polled.as_ref() != Some(&polled)
    }

    /// Looks at everything, and judges each interface that is there, in this order.
    ///
    /// Fails where the basic facts are missing. What merely could not be read is a reason
    /// ([`About::Unknown`]).
    pub fn evaluate(
        &mut self,
        kernel: &Kernel,
        interfaces: &[String],
        terms: Terms,
    ) -> Result<Judgement, GateError> {
        let facts = self.facts(kernel, interfaces)?;
        let links = look::links(&facts.kernel, interfaces);
        Ok(Judgement {
            standings: links.into_iter().map(|link| judge(&facts, link, terms)).collect(),
            stateful: stateful(&facts, terms),
        })
    }
}
