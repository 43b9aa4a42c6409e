//! What the log says of interfaces: how many are accelerated, what has become of each, and why.
//!
//! A change is said once, all of it in one piece. What held before the change is not repeated: neither the reasons of
//! an interface that had them already, nor a reason of all interfaces for each of them. A reason that comes back is
//! named, and not explained again.

use std::collections::{HashMap, HashSet};

use manylane_api::Extent;
use manylane_api::accelerate::ReasonStatus;

use super::published::PortView;

/// What was said last.
#[derive(Default)]
pub(super) struct Log {
    first_line: String,
    ports: HashMap<String, Said>,
    /// Reasons that were explained: from then on what holds is enough. At the bound, all are explained anew.
    explained: HashSet<(String, String)>,
}

/// What was said of one interface.
#[derive(Clone, Default, PartialEq, Eq)]
struct Said {
    what: String,
    reasons: Vec<ReasonStatus>,
}

/// A line as it is written; one that is indented belongs to the line before.
pub(super) fn named(line: &str) -> String {
    match line.starts_with(' ') {
        true => format!("{line}\n"),
        false => format!("manylane: {line}\n"),
    }
}

impl Log {
    /// What is to be said of ports, if it is new. `bypass`: what packets that are forwarded skip, by name.
    pub fn changed(&mut self, ports: &[PortView], bypass: &[String]) -> Option<String> {
        let mut lines = Vec::new();
        let passes = |port: &PortView| (port.ingress && port.link_up, port.egress && port.link_up);
        let extent = Extent::of(ports.iter().map(passes));
        let first_line = match bypass {
            [] => extent.to_string(),
            some => format!("{extent}; what is forwarded bypasses {}", some.join(", ")),
        };
        if self.first_line != first_line {
            lines.push(first_line.clone());
            self.first_line = first_line;
        }
        // Each reason once, in the order of the ports, with all ports to which it is new.
        let mut news: Vec<(ReasonStatus, Vec<&str>)> = Vec::new();
        for port in ports {
            let now = said(port);
            let before = self.ports.get(&port.name);
            if before.is_none_or(|before| before.what != now.what) {
                lines.push(format!("{}: {}", port.name, now.what));
            }
            let is_known = |reason: &&ReasonStatus| {
                before.is_some_and(|before| before.reasons.contains(reason))
            };
            for reason in now.reasons.iter().filter(|reason| !is_known(reason)) {
                match news.iter_mut().find(|(known, _)| known == reason) {
                    Some((_, names)) => names.push(&port.name),
                    None => news.push((reason.clone(), vec![&port.name])),
                }
            }
            if before != Some(&now) {
                self.ports.insert(port.name.clone(), now);
            }
        }
        for (ReasonStatus { what, why, .. }, names) in news {
            let mut line = format!("  {}: {what}", names.join(", "));
            if self.explained.len() >= EXPLAINED_MAX {
                self.explained.clear();
            }
            if self.explained.insert((what, why.clone())) {
                line += &format!(": {why}");
            }
            lines.push(line);
        }
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}

fn said(port: &PortView) -> Said {
    let what = match (port.index, port.attached) {
        (None, _) => "the interface does not exist now".to_owned(),
        // A link that is switched off keeps the port in the kernel, and is among the reasons.
        (Some(_), true) if port.egress && !port.link_up => {
            "the link has no carrier: no packet passes until it has".to_owned()
        }
        (Some(_), true) => {
            format!("forwards received packets ({}), transmits by {}", port.tier, port.egress_tier)
        }
        (Some(_), false) if port.egress => {
            format!("the kernel forwards received packets; transmits by {}", port.egress_tier)
        }
        (Some(_), false) => "the kernel forwards".to_owned(),
    };
    let all = [&port.reasons, &port.bypassed, &port.tier_reasons];
    Said { what, reasons: all.into_iter().flatten().cloned().collect() }
}

/// More than an accelerator has; words with numbers in them are new each time.
const EXPLAINED_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn port(name: &str, is_accelerated: bool, reasons: &[&str]) -> PortView {
        PortView {
            name: name.into(),
            index: Some(7),
            link_up: true,
            ingress: is_accelerated,
            egress: is_accelerated,
            attached: is_accelerated,
            tier: if is_accelerated { "ingress" } else { "kernel" },
            egress_tier: if is_accelerated { "ingress" } else { "kernel" },
            reasons: reasons.iter().map(|what| reason(what)).collect(),
            ..PortView::default()
        }
    }

    fn reason(what: &str) -> ReasonStatus {
        ReasonStatus { what: what.into(), why: "so".into(), command: String::new() }
    }

    #[test]
    fn how_many_are_accelerated_is_said_first_and_a_reason_of_all_once() {
        let mut log = Log::default();
        let kept = ["lan", "wan"].map(|name| port(name, false, &["a filter"]));
        let said = log.changed(&kept, &[]).expect("it is new");
        assert_eq!(
            said,
            "0 of 2 interfaces accelerated: the kernel forwards everything\n\
             lan: the kernel forwards\nwan: the kernel forwards\n  lan, wan: a filter: so"
        );
        assert_eq!(log.changed(&kept, &[]), None, "said once");
        let free = ["lan", "wan"].map(|name| port(name, true, &[]));
        let said = log.changed(&free, &[]).expect("it is new");
        assert!(said.starts_with("2 of 2 interfaces accelerated\nlan: forwards"), "{said}");
        let said = log.changed(&kept, &[]).expect("it came back");
        assert!(said.ends_with("\n  lan, wan: a filter"), "explained once: {said}");
    }

    /// The lie: "2 of 2 interfaces accelerated" at the start, while a cable is out.
    #[test]
    fn a_port_without_a_carrier_is_not_accelerated() {
        let mut log = Log::default();
        let ports =
            |link_up| [port("lan", true, &[]), PortView { link_up, ..port("wan", true, &[]) }];
        let said = log.changed(&ports(false), &[]).expect("it is new");
        assert_eq!(
            said,
            "1 of 2 interfaces accelerated: a packet needs two, so the kernel forwards everything\n\
             lan: forwards received packets (ingress), transmits by ingress\n\
             wan: the link has no carrier: no packet passes until it has"
        );
        let said = log.changed(&ports(true), &[]).expect("the cable is in");
        let wan = "wan: forwards received packets (ingress), transmits by ingress";
        assert_eq!(said, format!("2 of 2 interfaces accelerated\n{wan}"));
    }

    /// A veth's paragraph, at each change of its tier.
    #[test]
    fn a_reason_that_held_before_is_not_repeated() {
        let mut log = Log::default();
        let veth = |tier| {
            let port = PortView { tier, ..port("lan", true, &[]) };
            PortView { tier_reasons: vec![reason("a veth")], ..port }
        };
        let first = log.changed(&[veth("ingress")], &[]).expect("it is new");
        assert!(first.ends_with("\n  lan: a veth: so"), "{first}");
        let second = log.changed(&[veth("driver")], &[]).expect("the tier is new");
        assert_eq!(second, "lan: forwards received packets (driver), transmits by ingress");
    }

    /// A veth's paragraph, at each recovery of a link or after each filter: what it is, without its explanation.
    #[test]
    fn a_reason_that_comes_back_is_named_and_not_explained_again() {
        let mut log = Log::default();
        let veth = |name: &str, is_accelerated| {
            let tier_reasons = if is_accelerated { vec![reason("a veth")] } else { vec![] };
            PortView { tier_reasons, ..port(name, is_accelerated, &[]) }
        };
        let both = |is_accelerated| ["lan", "wan"].map(|name| veth(name, is_accelerated));
        let first = log.changed(&both(true), &[]).expect("it is new");
        assert!(first.ends_with("\n  lan, wan: a veth: so"), "once for both: {first}");
        for round in 0..3 {
            log.changed(&both(false), &[]).expect("they are the kernel's");
            let again = log.changed(&both(true), &[]).expect("they recover");
            assert!(again.ends_with("\n  lan, wan: a veth"), "{round}: {again}");
        }
        // Words that are new each time do not fill memory.
        for number in 0..2 * EXPLAINED_MAX {
            let ports = [port("lan", false, &[&number.to_string()])];
            log.changed(&ports, &[]).expect("the number is new");
            assert!(log.explained.len() <= EXPLAINED_MAX);
        }
    }

    #[test]
    fn what_is_bypassed_is_said() {
        let mut log = Log::default();
        let free = ["lan", "wan"].map(|name| {
            let bypassed = vec![reason("a filter")];
            PortView { bypassed, ..port(name, true, &[]) }
        });
        let said = log.changed(&free, &["netfilter".into()]).expect("it is new");
        let first = "2 of 2 interfaces accelerated; what is forwarded bypasses netfilter\n";
        assert!(said.starts_with(first) && said.ends_with("\n  lan, wan: a filter: so"), "{said}");
    }
}
