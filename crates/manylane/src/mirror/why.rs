//! Why a packet goes where it goes: rule, table, route, next hop, neighbour, and what the program will do.

use std::net::IpAddr;

use manylane_net::fib::IpPrefix;
use manylane_net::transit::Verdict;
use serde::{Deserialize, Serialize};

use super::Mirror;
use super::diff::{neighbour_state, route};
use super::family::{Bits, family_of, host};
use super::kernel::Kernel;
use super::ports::{PortFacts, shown};
use super::resolve::{Lead, Plain};
use super::routes::{Key, Routes};
use super::side::Side;
use super::targets::adjacency;
use super::way::{Via, Way};

/// A packet that is asked about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Where it comes from, if that is to be looked at.
    pub source: Option<IpAddr>,
    /// Where it goes.
    pub destination: IpAddr,
    /// The interface that it comes in by, if that is to be looked at.
    pub entry: Option<String>,
}

/// What becomes of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// The verdict, by its name: `forwarded`, or why the kernel has it. What only a packet itself shows (its
    /// MAC address, TTL, length, options, flow) is not looked at.
    pub verdict: String,
    /// Why that.
    pub reason: String,
    /// The rule that leads to the table.
    pub rule: Option<String>,
    /// The table.
    pub table: Option<u32>,
    /// The longest prefix there.
    pub prefix: Option<String>,
    /// Its routes in the model, the first is used.
    pub routes: Vec<String>,
    /// The ways that they say; one of them, by the packet's flow.
    pub hops: Vec<WhyHop>,
    /// Whether edits are pending: what is written may be older.
    pub is_pending: bool,
}

/// One way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhyHop {
    /// The neighbour.
    pub gateway: IpAddr,
    /// The interface that it is on.
    pub exit: String,
    /// Its part of the flows is this by the sum of all.
    pub weight: u16,
    /// The largest packet.
    pub mtu: u32,
    /// What the kernel knows of the neighbour.
    pub neighbour: String,
    /// Whether packets can be sent there.
    pub is_usable: bool,
}

impl<S: Side> Mirror<S> {
    /// What becomes of such a packet, and why.
    pub fn why(&self, question: &Question) -> Why {
        let mut why = Why {
            verdict: String::new(),
            reason: String::new(),
            rule: None,
            table: None,
            prefix: None,
            routes: Vec::new(),
            hops: Vec::new(),
            is_pending: self.is_pending(),
        };
        let (verdict, reason) = self.judge(question, &mut why);
        (why.verdict, why.reason) = (verdict.name().to_owned(), reason);
        why
    }

    fn judge(&self, question: &Question, why: &mut Why) -> (Verdict, String) {
        let destination = question.destination;
        let route = self.follow(destination, why);
        if let Some(rule) = self.unmergeable_rules().first() {
            return (Verdict::NotEntry, format!("the routing policy is the kernel's: {rule}"));
        }
        let entry = match question.entry.as_deref() {
            None => None,
            Some(name) => match self.kernel.link_named(name) {
                None => return (Verdict::NotEntry, format!("there is no interface {name}")),
                Some(link) if self.ports.of(link.index).is_none() => {
                    return (Verdict::NotEntry, format!("{name} is not accelerated"));
                }
                Some(link) => Some(link.index),
            },
        };
        let facts = entry.map(|link| self.kernel.port_facts(link, PortFacts::default()));
        let forwards = facts.is_none_or(|facts| match destination {
            IpAddr::V4(_) => facts.forwards_v4,
            IpAddr::V6(_) => facts.forwards_v6,
        });
        if !forwards {
            let family = if destination.is_ipv4() { "ipv4" } else { "ipv6" };
            let reason = format!("forwarding is off there: sysctl net.{family}.conf");
            return (Verdict::NotForwarding, reason);
        }
        if destination.is_multicast() {
            return (Verdict::Group, "the destination is a multicast group".to_owned());
        }
        let Some((lead, _)) = route else {
            return (Verdict::NoRoute, "no route leads there".to_owned());
        };
        let vias = match self.verdict(&lead) {
            Err(verdict) => return verdict,
            Ok(vias) => vias,
        };
        let usable: Vec<Via> =
            vias.iter().copied().filter(|via| adjacency(self.view(), *via).is_some()).collect();
        if usable.is_empty() {
            return (
                Verdict::Unresolved,
                "the kernel has no neighbour that can be sent to".to_owned(),
            );
        }
        if let Some(refused) = self.reverse_path(question, entry, facts) {
            return refused;
        }
        let exits = usable.iter().map(|via| via.link);
        let is_exit = |link: &u32| self.ports.of(*link).is_some_and(|port| port.is_exit);
        if let Some(link) = exits.clone().find(|link| !is_exit(link)) {
            let name = self.kernel.name(link);
            return (
                Verdict::ExitKernel,
                format!("packets leave by {name} through the kernel only"),
            );
        }
        let all: Vec<String> = exits.map(|link| self.kernel.name(link)).collect();
        (Verdict::Forwarded, format!("by {}", all.join(" or ")))
    }

    /// The neighbours that a packet may go to, or what becomes of it otherwise.
    fn verdict(&self, lead: &Lead) -> Result<Vec<Via>, (Verdict, String)> {
        Err(match lead {
            Lead::Via(via) => return Ok(vec![*via]),
            Lead::Many(members) => return Ok(members.iter().map(|member| member.via).collect()),
            Lead::OnLink { link, .. } => {
                let reason = format!(
                    "the kernel has no neighbour with that address on {}",
                    self.kernel.name(*link)
                );
                (Verdict::Unresolved, reason)
            }
            Lead::Plain(plain) => match plain {
                Plain::Local => (Verdict::Local, "the destination is one of our own".to_owned()),
                Plain::Broadcast => {
                    (Verdict::Local, "the destination is a broadcast address".to_owned())
                }
                Plain::Blackhole => (Verdict::Nowhere, "the route is a blackhole".to_owned()),
                Plain::Unreachable => (Verdict::Nowhere, "the route is unreachable".to_owned()),
                Plain::Prohibit => (Verdict::Nowhere, "the route is prohibited".to_owned()),
                Plain::Kernel => {
                    (Verdict::KernelRoute, "only the kernel can do what the route says".to_owned())
                }
            },
        })
    }

    /// Finds the route, and notes what it says.
    fn follow(&self, destination: IpAddr, why: &mut Why) -> Option<(Lead, Way)> {
        let view = self.view();
        let own = view.resolve(host(destination));
        let routed = view.longest(destination, u8::MAX);
        let (prefix, way) = match (&own, &routed) {
            (Some(way), Some((prefix, ..))) => (*prefix, way.clone()),
            (Some(way), None) => (host(destination), way.clone()),
            (None, Some((prefix, way, _))) => (*prefix, way.clone()),
            (None, None) => return None,
        };
        why.prefix = Some(shown(prefix));
        if let Some((_, _, table)) = routed {
            why.table = Some(table);
            let rule = self.kernel.rules().find(|rule| {
                rule.family == family_of(prefix) && rule.table == table && rule.others.is_empty()
            });
            why.rule = rule.map(super::rules::line);
            why.routes = self.kernel.lines(table, prefix);
        }
        let lead = view.lead(&way);
        let members = match &lead {
            Lead::Via(via) => vec![(*via, 1)],
            Lead::Many(members) => members.iter().map(|one| (one.via, one.weight)).collect(),
            _ => Vec::new(),
        };
        why.hops = members.into_iter().map(|(via, weight)| self.hop(via, weight)).collect();
        Some((lead, way))
    }

    fn hop(&self, via: Via, weight: u16) -> WhyHop {
        let device = self.kernel.link(via.link).map_or(0, |link| link.mtu);
        WhyHop {
            gateway: via.gateway,
            exit: self.kernel.name(via.link),
            weight,
            mtu: if via.mtu == 0 { device } else { device.min(via.mtu) },
            neighbour: neighbour_state(&self.kernel, via.link, via.gateway),
            is_usable: adjacency(self.view(), via).is_some(),
        }
    }

    /// Why the reverse path is not good, if it is not (RFC 3704).
    fn reverse_path(
        &self,
        question: &Question,
        entry: Option<u32>,
        facts: Option<PortFacts>,
    ) -> Option<(Verdict, String)> {
        let (source, entry, facts) = (question.source?, entry?, facts?);
        if source.is_ipv6() || facts.rp_filter == 0 {
            return None;
        }
        let view = self.view();
        let way = view.resolve(host(source)).or_else(|| Some(view.longest(source, u8::MAX)?.1));
        let name = self.kernel.name(entry);
        let Some(lead) = way.map(|way| view.lead(&way)) else {
            let reason = format!("rp_filter is on for {name}, and no route leads to {source}");
            return Some((Verdict::ReversePath, reason));
        };
        let leads_back = match lead {
            Lead::Via(via) => via.link == entry,
            Lead::OnLink { link, .. } => link == entry,
            Lead::Many(members) => members.iter().any(|member| member.via.link == entry),
            Lead::Plain(_) => false,
        };
        (facts.rp_filter == 1 && !leads_back).then(|| {
            let reason =
                format!("rp_filter is strict for {name}, and {source} is not reached by it");
            (Verdict::ReversePath, reason)
        })
    }
}

impl Kernel {
    /// The routes of a prefix in a table, as lines.
    fn lines(&self, table: u32, prefix: IpPrefix) -> Vec<String> {
        match prefix {
            IpPrefix::V4(of) => self.lines_in(&self.v4, table, of.addr().to_bits(), prefix),
            IpPrefix::V6(of) => self.lines_in(&self.v6, table, of.addr().to_bits(), prefix),
        }
    }

    fn lines_in<B: Bits>(
        &self,
        routes: &Routes<B>,
        table: u32,
        address: B,
        prefix: IpPrefix,
    ) -> Vec<String> {
        let Some(number) = routes.table(table) else { return Vec::new() };
        let list = routes.list(Key { address, table: number, len: prefix.len() });
        list.map(|index| route(self, table, prefix, routes.body(index))).collect()
    }
}
