//! Why a packet is routed as it is: rule, table, route, next hop, neighbour, and what the program will do.

use std::net::IpAddr;

use manylane_api::accelerate::{MirrorWhy, WhyHop};
use manylane_io::netlink::kernel::Rule;
use manylane_net::fib::IpPrefix;
use manylane_net::transit::Verdict;

use super::Mirror;
use super::diff::{neighbour_state, route};
use super::policy::network;
use crate::constants::RULE_INVERT;
use crate::destination::{Destination, Via};
use crate::family::{Bits, family_of, host};
use crate::kernel::Kernel;
use crate::ports::{PortFacts, shown};
use crate::resolve::{Plain, Resolved};
use crate::routes::{Key, Routes};
use crate::rules::{Plan, Step, line};
use crate::table_writer::TableWriter;
use crate::targets::adjacency;

/// The packet of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Where it comes from, if that is to be looked at.
    pub source: Option<IpAddr>,
    /// Where it goes.
    pub destination: IpAddr,
    /// The ingress interface, if it matters.
    pub ingress: Option<String>,
}

impl Mirror<dyn TableWriter> {
    /// What becomes of such a packet, and why.
    pub fn why(&self, question: &Question) -> MirrorWhy {
        let mut why = MirrorWhy {
            verdict: String::new(),
            reason: String::new(),
            rule: None,
            table: None,
            prefix: None,
            routes: Vec::new(),
            hops: Vec::new(),
            egress: Vec::new(),
            is_pending: self.is_pending(),
        };
        let (verdict, reason) = self.judge(question, &mut why);
        (why.verdict, why.reason) = (verdict.name().to_owned(), reason);
        why
    }

    fn judge(&self, question: &Question, why: &mut MirrorWhy) -> (Verdict, String) {
        let destination = question.destination;
        let by_name = question.ingress.as_deref().and_then(|name| self.kernel.link_named(name));
        let by_name = by_name.map(|link| link.index);
        let routed = self.routed(question.source, destination, by_name);
        let route = self.note(routed, why);
        if let Some(refused) = self.refused_rules().first() {
            return (
                Verdict::NotIngress,
                format!("the routing policy is the kernel's: {}", refused.what),
            );
        }
        let ingress = match question.ingress.as_deref() {
            None => None,
            Some(name) => match self.kernel.link_named(name) {
                None => return (Verdict::NotIngress, format!("interface {name} does not exist")),
                Some(link) if self.ports.of(link.index).is_none() => {
                    return (Verdict::NotIngress, format!("{name} is not accelerated"));
                }
                Some(link) => Some(link.index),
            },
        };
        let facts = ingress.map(|link| self.kernel.port_facts(link, PortFacts::default()));
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
        let resolved = match route {
            Ok(Some(resolved)) => resolved,
            Ok(None) => return (Verdict::NoRoute, "no route leads there".to_owned()),
            Err(refused) => return refused,
        };
        let vias = match self.verdict(&resolved) {
            Err(verdict) => return verdict,
            Ok(vias) => vias,
        };
        let usable: Vec<Via> =
            vias.iter().copied().filter(|via| adjacency(self.view(), *via).is_some()).collect();
        if usable.is_empty() {
            let reason = "the kernel has no neighbour that can be sent to".to_owned();
            let mut kept = vias.iter().filter_map(|via| self.kept(via.link));
            return kept.next().unwrap_or((Verdict::Unresolved, reason));
        }
        if let Some(refused) = self.reverse_path(question, ingress, facts, usable[0].link) {
            return refused;
        }
        let egress_links = usable.iter().map(|via| via.link);
        if let Some(kept) = egress_links.clone().find_map(|link| self.kept(link)) {
            return kept;
        }
        let all: Vec<String> = egress_links.map(|link| self.kernel.name(link)).collect();
        (Verdict::Forwarded, format!("by {}", all.join(" or ")))
    }

    /// The neighbours that a packet may go to, or what becomes of it otherwise.
    fn verdict(&self, resolved: &Resolved) -> Result<Vec<Via>, (Verdict, String)> {
        Err(match resolved {
            Resolved::Via(via) => return Ok(vec![*via]),
            Resolved::Many(members) => {
                return Ok(members.iter().map(|member| member.via).collect());
            }
            Resolved::OnLink { link, .. } => self.kept(*link).unwrap_or_else(|| {
                let name = self.kernel.name(*link);
                let reason = format!("the kernel has no neighbour with that address on {name}");
                (Verdict::Unresolved, reason)
            }),
            Resolved::Plain(plain) => match plain {
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

    /// Why packets leave by a device through the kernel only, if so. Then no neighbour is missing: none would help.
    fn kept(&self, link: u32) -> Option<(Verdict, String)> {
        let name = self.kernel.name(link);
        let reason = match self.ports.of(link) {
            Some(port) if port.is_egress => return None,
            Some(_) => format!("packets leave by {name} through the kernel only"),
            None => format!("packets leave by {name}, which is not accelerated"),
        };
        Some((Verdict::EgressKernel, reason))
    }

    /// What routes a packet: by the rules, if they are more than the usual ones. A selector that the question leaves
    /// out has no value: no source, no interface, no type of service.
    pub(super) fn routed(&self, from: Option<IpAddr>, to: IpAddr, ingress: Option<u32>) -> Routed {
        let steps = match self.kernel.plan(family_of(host(to))) {
            Plan::Listed(steps) => steps,
            _ => return self.merged(to).map_or(Routed::Nothing, Routed::Destination),
        };
        let is_ours = |destination: &Destination| {
            matches!(destination, Destination::Local | Destination::Broadcast)
        };
        for (rule, step) in steps {
            if !self.matches(rule, from, to, ingress) {
                continue;
            }
            let by_rule =
                |found: RoutedBy| Routed::Destination(RoutedBy { rule: Some(line(rule)), ..found });
            match step {
                Step::Local => match self.merged(to) {
                    Some(found) if is_ours(&found.destination) => return by_rule(found),
                    _ => (),
                },
                Step::Merged => {
                    if let Some(found) = self.merged(to) {
                        return by_rule(found);
                    }
                }
                Step::Table(table) => {
                    if !self.is_written(family_of(host(to)), table) {
                        return Routed::Kernel(line(rule));
                    }
                    if let Some((prefix, destination)) = self.view().longest_further(table, to) {
                        return by_rule(RoutedBy {
                            prefix,
                            destination,
                            table: Some(table),
                            rule: None,
                        });
                    }
                }
                Step::Nowhere => return Routed::Nowhere(line(rule)),
                Step::Kernel => return Routed::Kernel(line(rule)),
            }
        }
        Routed::Nothing
    }

    /// Whether a rule is about such a packet, as far as that can be known.
    fn matches(&self, rule: &Rule, from: Option<IpAddr>, to: IpAddr, ingress: Option<u32>) -> bool {
        let is_in = |net: Option<(IpAddr, u8)>, address: Option<IpAddr>| {
            let Some((net, len)) = net else { return true };
            address.is_some_and(|address| network((net, len)).contains(address))
        };
        let is_ingress = rule.iif.as_deref().is_none_or(|name| {
            self.kernel.link_named(name).is_some_and(|link| Some(link.index) == ingress)
        });
        let matches = is_in(rule.from, from) && is_in(rule.to, Some(to)) && is_ingress;
        let is_inverted = rule.flags & RULE_INVERT != 0;
        (matches && rule.tos == 0) != is_inverted || is_inverted && !rule.others.is_empty()
    }

    /// What the merged tables say.
    fn merged(&self, destination: IpAddr) -> Option<RoutedBy> {
        let view = self.view();
        let own = view.resolve(host(destination));
        let routed = view.longest(destination, u8::MAX);
        let table = routed.as_ref().map(|(_, _, table)| *table);
        let rule = table.and_then(|table| {
            let family = family_of(host(destination));
            let is_it = |rule: &&Rule| {
                rule.family == family && rule.table == table && rule.others.is_empty()
            };
            self.kernel.rules().find(is_it).map(line)
        });
        let (prefix, leads_to) = match (own, routed) {
            (Some(own), Some((prefix, ..))) => (prefix, own),
            (Some(own), None) => (host(destination), own),
            (None, Some((prefix, leads_to, _))) => (prefix, leads_to),
            (None, None) => return None,
        };
        Some(RoutedBy { prefix, destination: leads_to, table, rule })
    }

    /// Notes what was found, and says what it leads to.
    fn note(
        &self,
        routed: Routed,
        why: &mut MirrorWhy,
    ) -> Result<Option<Resolved>, (Verdict, String)> {
        let RoutedBy { prefix, destination, table, rule } = match routed {
            Routed::Destination(found) => found,
            Routed::Nothing => return Ok(None),
            Routed::Nowhere(rule) => {
                why.rule = Some(rule);
                return Err((Verdict::Nowhere, "the rule leads nowhere".to_owned()));
            }
            Routed::Kernel(rule) => {
                why.rule = Some(rule);
                return Err((
                    Verdict::KernelRoute,
                    "only the kernel can follow the rule".to_owned(),
                ));
            }
        };
        why.prefix = Some(shown(prefix));
        (why.table, why.rule) = (table, rule);
        why.routes = table.map_or_else(Vec::new, |table| self.kernel.lines(table, prefix));
        let resolved = self.view().resolved(&destination);
        let members = match &resolved {
            Resolved::Via(via) => vec![(*via, 1)],
            Resolved::Many(members) => members.iter().map(|one| (one.via, one.weight)).collect(),
            _ => Vec::new(),
        };
        why.egress = match resolved {
            Resolved::OnLink { link, .. } => vec![self.kernel.name(link)],
            _ => members.iter().map(|(via, _)| self.kernel.name(via.link)).collect(),
        };
        why.egress.dedup();
        why.hops = members.into_iter().map(|(via, weight)| self.hop(via, weight)).collect();
        Ok(Some(resolved))
    }

    fn hop(&self, via: Via, weight: u16) -> WhyHop {
        let device = self.kernel.link(via.link).map_or(0, |link| link.mtu);
        WhyHop {
            gateway: via.gateway,
            egress: self.kernel.name(via.link),
            weight,
            mtu: if via.mtu == 0 { device } else { device.min(via.mtu) },
            neighbour: neighbour_state(&self.kernel, via.link, via.gateway),
            is_usable: adjacency(self.view(), via).is_some(),
        }
    }

    /// Why the reverse path is not good, if it is not (RFC 3704). The packet leaves by `exit`.
    fn reverse_path(
        &self,
        question: &Question,
        ingress: Option<u32>,
        facts: Option<PortFacts>,
        egress: u32,
    ) -> Option<(Verdict, String)> {
        let (source, ingress, facts) = (question.source?, ingress?, facts?);
        if source.is_ipv6() || facts.rp_filter == 0 {
            return None;
        }
        let destination = match self.routed(Some(question.destination), source, Some(egress)) {
            Routed::Destination(found) => Some(found.destination),
            Routed::Nothing | Routed::Nowhere(_) => None,
            Routed::Kernel(rule) => {
                let reason =
                    format!("only the kernel can follow the rule for the way back: {rule}");
                return Some((Verdict::ReversePath, reason));
            }
        };
        let name = self.kernel.name(ingress);
        let Some(resolved) = destination.map(|destination| self.view().resolved(&destination))
        else {
            let reason = format!("rp_filter is on for {name}, and no route leads to {source}");
            return Some((Verdict::ReversePath, reason));
        };
        let leads_back = match resolved {
            Resolved::Via(via) => via.link == ingress,
            Resolved::OnLink { link, .. } => link == ingress,
            Resolved::Many(members) => members.iter().any(|member| member.via.link == ingress),
            Resolved::Plain(_) => false,
        };
        (facts.rp_filter == 1 && !leads_back).then(|| {
            let how = if self.kernel.has_ipv4(ingress) {
                "strict"
            } else {
                "on (without an IPv4 address)"
            };
            let reason =
                format!("rp_filter is {how} for {name}, and {source} is not reached by it");
            (Verdict::ReversePath, reason)
        })
    }
}

/// What routes a packet.
pub(super) enum Routed {
    /// A route.
    Destination(RoutedBy),
    /// A rule says that it goes nowhere.
    Nowhere(String),
    /// A rule that only the kernel can follow.
    Kernel(String),
    Nothing,
}

/// A route, and what leads to it.
pub(super) struct RoutedBy {
    pub prefix: IpPrefix,
    pub destination: Destination,
    table: Option<u32>,
    rule: Option<String>,
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
        list.map(|index| route(self, table, prefix, routes.attributes(index))).collect()
    }
}
