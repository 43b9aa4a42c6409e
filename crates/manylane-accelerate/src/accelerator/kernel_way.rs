//! What the kernel would do with a packet that manylane leaves to it: conntrack's connection, rules, route, neighbour.
//!
//! manylane reads all of it anew for each question: the rules by [`Firewall::passage`], the route by the kernel's own
//! lookup, which knows `rp_filter` and `forwarding`, too.

use std::io;
use std::net::IpAddr;

use manylane_api::accelerate::{TransportProtocol, Why, WhyChain, WhyKernel, WhyQuestion, WhyStep};
use manylane_io::netlink::Netlink;
use manylane_io::netlink::conntrack::{self, Conntrack, Status};
use manylane_io::netlink::kernel::{Family, Route};

use super::published::PortView;
use super::tracked::number;
use crate::firewall::{
    ClassKey, End, Firewall, Flow, Journey, Passage, Passed, Port, Protocol, Stage, Step, Target,
    Tuple,
};
use crate::lane::said;
use manylane_mirror::neighbour_state;

/// Adds what the kernel would do, where the packet is the kernel's, and the line that has all in one.
pub(super) fn with_kernel(why: Why, port: &PortView, question: &WhyQuestion) -> Why {
    let kernel = (!why.forwarded).then(|| ask(port, question));
    let why = Why { tier: port.tier.into(), kernel, ..why };
    Why { result: result(&why), ..why }
}

fn ask(port: &PortView, question: &WhyQuestion) -> WhyKernel {
    let mut netlink = match Netlink::open() {
        Ok(netlink) => netlink,
        Err(error) => return unknown(&error.to_string()),
    };
    let tracked = Tracked::find(question);
    let ingress = Port { name: port.name.clone(), index: port.index.unwrap_or(0) };
    let to = tracked.flow.sent().destination;
    let routed = Routed::find(&mut netlink, question.source, to, ingress.index);
    let firewall = match Firewall::read() {
        Ok(firewall) => firewall,
        Err(error) => return unknown(&error.to_string()),
    };
    let passage = firewall.passage(&Journey {
        key: ClassKey {
            ingress,
            egress: routed.egress.clone().unwrap_or(Port { name: String::new(), index: 0 }),
            family: if question.source.is_ipv4() { Family::V4 } else { Family::V6 },
            protocol: match question.transport {
                Some((TransportProtocol::Tcp, _)) => Protocol::Tcp,
                Some((TransportProtocol::Udp, _)) | None => Protocol::Udp,
            },
            mark: Some(0),
        },
        flow: tracked.flow,
        stage: tracked.stage,
        is_first: tracked.is_first,
        target: routed.target.unwrap_or(Target::Nowhere),
        is_from_there: routed.is_from_there,
    });
    let (verdict, explanation) = decided(&passage, &routed);
    WhyKernel {
        verdict: verdict.into(),
        explanation,
        connection: tracked.text,
        route: routed.text,
        egress: routed.egress.map(|port| port.name),
        gateway: routed.gateway.map(|gateway| gateway.to_string()),
        neighbour: routed.neighbour,
        chains: passage.chains.into_iter().map(chain).collect(),
    }
}

/// What becomes of the packet, and why.
fn decided(passage: &Passage, routed: &Routed) -> (&'static str, String) {
    match (&passage.end, routed.target) {
        (End::Dropped, _) => ("dropped", format!("{} drops the packet", last(passage))),
        (End::Unknown(why), _) => ("unknown", format!("{}: {why}", last(passage))),
        (End::Accepted, Some(Target::Delivered)) => {
            ("delivered", "the destination is the router itself".into())
        }
        (End::Accepted, Some(Target::Nowhere)) => ("dropped", routed.text.clone()),
        (End::Accepted, None) => ("unknown", routed.text.clone()),
        (End::Accepted, Some(Target::Forwarded)) => {
            let waits = match routed.neighbour.as_deref() {
                Some("none" | "incomplete" | "failed") => {
                    ", as soon as the neighbour has answered; without an answer the packet is dropped"
                }
                _ => "",
            };
            let egress = routed.egress.as_ref().map_or("?", |port| port.name.as_str());
            ("sent", format!("rules let the packet pass, and it leaves by {egress}{waits}"))
        }
    }
}

fn last(passage: &Passage) -> String {
    let step = passage.chains.last().and_then(|chain| chain.steps.last());
    step.map_or_else(
        || "a rule".into(),
        |step| match step.rule {
            Some(_) => step.place.to_string(),
            None => format!("{}, policy", step.place),
        },
    )
}

fn unknown(trouble: &str) -> WhyKernel {
    WhyKernel { verdict: "unknown".into(), explanation: trouble.into(), ..WhyKernel::default() }
}

fn chain(Passed { hook, priority, place, steps }: Passed) -> WhyChain {
    WhyChain {
        hook: hook.into(),
        priority,
        family: place.family,
        table: place.table,
        chain: place.chain,
        is_legacy: place.is_legacy,
        steps: steps.into_iter().map(step).collect(),
    }
}

fn step(Step { place, rule, verdict }: Step) -> WhyStep {
    WhyStep {
        chain: place.chain,
        rule,
        handle: place.handle,
        text: rule.map(|_| place.rule),
        verdict,
        by_policy: rule.is_none(),
    }
}

/// All in one line, in the words of `manylane trace`.
fn result(why: &Why) -> String {
    let tier = &why.tier;
    if let (true, Some(egress)) = (why.forwarded, &why.egress) {
        return format!("{tier}: transmitted by {egress}");
    }
    let mut parts = vec![format!("{tier}: left to the kernel, {}", why.verdict)];
    let Some(kernel) = &why.kernel else { return parts.remove(0) };
    let last = kernel.chains.last().and_then(|chain| Some((chain, chain.steps.last()?)));
    let place = last.map(|(WhyChain { family, table, .. }, step)| {
        let by = step.rule.map_or_else(|| "policy".into(), |rule| format!("rule {rule}"));
        format!("table {family} {table} chain {} {by}", step.chain)
    });
    let is_by_rule = |verdict| last.is_some_and(|(_, step)| step.verdict == verdict);
    match place {
        Some(place) if kernel.verdict == "dropped" && is_by_rule("drop") => {
            parts.push(format!("nft: {place} drop"));
        }
        Some(place) if kernel.verdict == "unknown" && !is_by_rule("accept") => {
            parts.push(format!("nft: {place} unknown"));
        }
        Some(_) => parts.push("nft: accepted".into()),
        None => {}
    }
    parts.push(match (kernel.verdict.as_str(), &kernel.egress) {
        ("sent", Some(egress)) => format!("kernel: sent by {egress}"),
        ("delivered", _) => "kernel: delivered to the router itself".into(),
        (verdict, _) => format!("kernel: {verdict}"),
    });
    parts.join("; ")
}

/// What conntrack knows of the packet's connection.
struct Tracked {
    flow: Flow,
    stage: Stage,
    is_first: bool,
    text: String,
}

impl Tracked {
    fn find(question: &WhyQuestion) -> Tracked {
        let WhyQuestion { source, destination, transport, .. } = *question;
        let (protocol, [source_port, destination_port]) =
            transport.unwrap_or((TransportProtocol::Udp, [super::why::DISCARD; 2]));
        let protocol = number(protocol);
        let asked =
            conntrack::Tuple { source, destination, source_port, destination_port, protocol };
        let found = Conntrack::open().and_then(|mut conntrack| conntrack.get(&[asked]));
        let first = |text: String| {
            let original = ends(asked);
            let flow = Flow::new(original, original.inverted(), false);
            let flow = Flow { mark: Some(0), zone: Some(0), status: Some(0), ..flow };
            Tracked { flow, stage: Stage::New, is_first: true, text }
        };
        let connection = match found.map(|found| found.into_iter().next().flatten()) {
            Ok(Some(connection)) => connection,
            Ok(None) => return first("none: taken for the first packet of a connection".into()),
            Err(error) => return first(format!("not known ({error}): taken for a first packet")),
        };
        let is_reply = connection.reply == asked;
        let flow = Flow::new(ends(connection.original), ends(connection.reply), is_reply);
        let is_new = !is_reply && !connection.status.contains(Status::SEEN_REPLY);
        Tracked {
            flow: Flow {
                mark: Some(connection.mark),
                zone: Some(connection.zone),
                status: Some(connection.status.0),
                ..flow
            },
            stage: if is_new { Stage::New } else { Stage::Established },
            is_first: false,
            text: said(&connection),
        }
    }
}

fn ends(tuple: conntrack::Tuple) -> Tuple {
    let conntrack::Tuple { source, destination, source_port, destination_port, .. } = tuple;
    Tuple { source, source_port, destination, destination_port }
}

/// The kernel's route for the packet.
struct Routed {
    /// `None` where manylane cannot say.
    target: Option<Target>,
    text: String,
    egress: Option<Port>,
    gateway: Option<IpAddr>,
    neighbour: Option<String>,
    /// Whether the way back to the source leaves by the ingress port.
    is_from_there: Option<bool>,
}

impl Routed {
    fn find(netlink: &mut Netlink, source: IpAddr, to: IpAddr, ingress: u32) -> Routed {
        let back = netlink.route_of(source, None).ok();
        let leads_back = |route: Route| route.hops.as_slice().iter().any(|hop| hop.link == ingress);
        let mut routed = Routed {
            target: None,
            text: String::new(),
            egress: None,
            gateway: None,
            neighbour: None,
            is_from_there: back.map(leads_back),
        };
        match netlink.route_of(to, Some((source, ingress))) {
            Err(error) => (routed.target, routed.text) = refused(&error),
            Ok(route) => routed.take(netlink, &route, to),
        }
        routed
    }

    fn take(&mut self, netlink: &mut Netlink, route: &Route, to: IpAddr) {
        (self.target, self.text) = match route.kind {
            RTN_UNICAST => (Some(Target::Forwarded), String::new()),
            RTN_LOCAL | RTN_ANYCAST => (Some(Target::Delivered), "local".into()),
            RTN_BROADCAST => (Some(Target::Delivered), "broadcast".into()),
            RTN_BLACKHOLE => (Some(Target::Nowhere), "blackhole".into()),
            RTN_UNREACHABLE => (Some(Target::Nowhere), "unreachable".into()),
            RTN_PROHIBIT => (Some(Target::Nowhere), "prohibit".into()),
            kind => (None, format!("a route of kind {kind}, which manylane does not follow")),
        };
        let (Some(Target::Forwarded), Some(hop)) = (self.target, route.hops.as_slice().first())
        else {
            return;
        };
        let links = netlink.dump_links().unwrap_or_default();
        let name = links.into_iter().find(|link| link.index == hop.link).map(|link| link.name);
        let name = name.unwrap_or_else(|| format!("link {}", hop.link));
        let gateway = hop.gateway.unwrap_or(to);
        self.text = match hop.gateway {
            Some(gateway) => format!("via {gateway} dev {name}"),
            None => format!("dev {name}"),
        };
        let state = netlink.neighbour_state(hop.link, gateway).ok();
        self.neighbour = state.map(|state| state.map_or("none", neighbour_state).into());
        self.gateway = Some(gateway);
        self.egress = Some(Port { name, index: hop.link });
    }
}

/// What a refusal of the kernel means for a received packet.
fn refused(error: &io::Error) -> (Option<Target>, String) {
    let nowhere = |text: &str| (Some(Target::Nowhere), text.to_owned());
    match error.raw_os_error() {
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH) => {
            nowhere("the kernel has no route, or an unreachable one, or does not forward")
        }
        Some(libc::EXDEV) => nowhere("the kernel does not accept this source there (rp_filter)"),
        Some(libc::EINVAL) => nowhere("the route is a blackhole, or an address is not routed"),
        Some(libc::EACCES) => nowhere("the route is a prohibit one"),
        _ => (None, format!("the kernel does not say its route: {error}")),
    }
}

// linux/rtnetlink.h.
const RTN_UNICAST: u8 = 1;
const RTN_LOCAL: u8 = 2;
const RTN_BROADCAST: u8 = 3;
const RTN_ANYCAST: u8 = 4;
const RTN_BLACKHOLE: u8 = 6;
const RTN_UNREACHABLE: u8 = 7;
const RTN_PROHIBIT: u8 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn why(verdict: &str, kernel: Option<WhyKernel>) -> Why {
        Why { verdict: verdict.into(), tier: "ingress".into(), kernel, ..Why::default() }
    }

    fn kernel(verdict: &str, step: Option<&str>) -> WhyKernel {
        let step = step.map(|verdict| WhyStep {
            chain: "forward".into(),
            rule: Some(2),
            handle: Some(5),
            text: Some("drop".into()),
            verdict: verdict.into(),
            by_policy: false,
        });
        let chain = WhyChain {
            hook: "forward".into(),
            priority: 0,
            family: "inet".into(),
            table: "filter".into(),
            chain: "forward".into(),
            is_legacy: false,
            steps: step.into_iter().collect(),
        };
        let (egress, verdict) = (Some("wan".into()), verdict.into());
        WhyKernel { verdict, egress, chains: vec![chain], ..WhyKernel::default() }
    }

    #[test]
    fn the_result_has_the_words_of_a_trace() {
        for (verdict, step, wanted) in [
            (
                "dropped",
                Some("drop"),
                "; nft: table inet filter chain forward rule 2 drop; kernel: dropped",
            ),
            ("sent", Some("accept"), "; nft: accepted; kernel: sent by wan"),
            ("sent", None, "; kernel: sent by wan"),
            ("dropped", Some("accept"), "; nft: accepted; kernel: dropped"),
            (
                "delivered",
                Some("accept"),
                "; nft: accepted; kernel: delivered to the router itself",
            ),
            (
                "unknown",
                Some("unknown"),
                "; nft: table inet filter chain forward rule 2 unknown; kernel: unknown",
            ),
        ] {
            let said = result(&why("no_flow", Some(kernel(verdict, step))));
            assert_eq!(said, format!("ingress: left to the kernel, no_flow{wanted}"));
        }
        let egress = Some("wan".into());
        let forwarded = Why { forwarded: true, egress, ..why("forwarded", None) };
        assert_eq!(result(&forwarded), "ingress: transmitted by wan");
    }

    #[test]
    fn a_refusal_of_the_kernel_is_told_apart_from_trouble() {
        let said = |number| refused(&io::Error::from_raw_os_error(number));
        assert_eq!(said(libc::EHOSTUNREACH).0, Some(Target::Nowhere));
        assert!(said(libc::EXDEV).1.contains("rp_filter"));
        assert_eq!(said(libc::ENOBUFS).0, None);
    }
}
