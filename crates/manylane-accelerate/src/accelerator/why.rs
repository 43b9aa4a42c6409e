//! What would become of a packet: one is made, and decided upon by the program's twin in the program's own tables;
//! the mirror says how they came to be so, and `kernel_way` what the kernel would do with the packet.

use std::net::IpAddr;

use etherparse::PacketBuilder;
use manylane_net::transit::flows::Tuple;
use manylane_net::transit::{Arrival, Transit, Verdict};
use manylane_net::wire::ethernet::Mac;
use manylane_sync::rcu::Guard;

use super::kernel_way;
use super::lease::now;
use super::published::{PortView, Published};
use super::tracked::number;
use crate::lane::Asked;
use manylane_api::ApiError;
use manylane_api::accelerate::{AskError, MirrorWhy, TransportProtocol, Why, WhyQuestion};
use manylane_mirror as mirror;

/// Answers the API's question.
pub(super) fn answer(published: &Published, question: &WhyQuestion) -> Result<Why, AskError> {
    let ports = published.view().ports.clone();
    let asked = self::question(&ports, question).map_err(AskError::BadQuestion)?;
    // Without the thread only the tables answer.
    let mirror = published.questions.ask(move |thread| thread.mirror.why(&asked)).ok();
    let by_tables = published.with_reader(|guard, transit| why(&ports, guard, transit, question));
    let answer = with_mirror(by_tables.map_err(AskError::BadQuestion)?, mirror, &ports);
    let flow = packet_of(&ports, question).and_then(|asked| published.tracked.why(asked, &ports));
    let answer = Why { flow, ..answer };
    let port = ports.iter().find(|port| port.name == question.interface);
    Ok(port.map_or(answer.clone(), |port| kernel_way::with_kernel(answer, port, question)))
}

/// The API's question in the mirror's terms.
fn question(ports: &[PortView], question: &WhyQuestion) -> Result<mirror::Question, ApiError> {
    let WhyQuestion { source, destination, interface, .. } = question;
    if source.is_ipv4() != destination.is_ipv4() {
        return Err(two_families(*source, *destination));
    }
    if ports.iter().all(|port| port.name != *interface) {
        return Err(unknown(ports, interface));
    }
    Ok(mirror::Question {
        source: Some(*source),
        destination: *destination,
        ingress: Some(interface.clone()),
    })
}

/// Decides about a packet with a TTL of 64 and no more than headers: of UDP, if the question does not say.
fn why(
    ports: &[PortView],
    guard: Guard<'_>,
    transit: &Transit,
    question: &WhyQuestion,
) -> Result<Why, ApiError> {
    let WhyQuestion { source, destination, interface, transport } = question;
    let port = ports.iter().find(|port| port.name == *interface);
    let port = port.ok_or_else(|| unknown(ports, interface))?;
    let mut frame = packet(port, [*source, *destination], *transport)?;
    let arrival =
        Arrival { ifindex: port.index.unwrap_or(0), now_ns: now(), tag: None, gso_size: 0 };
    let (verdict, egress) = transit.decide(guard, &mut frame, &arrival);
    let name = |index: u32| {
        ports.iter().find(|port| port.index == Some(index)).map(|port| port.name.clone())
    };
    let is_forwarded = verdict == Verdict::Forwarded;
    let to = frame.first_chunk::<6>().filter(|_| is_forwarded);
    Ok(Why {
        forwarded: is_forwarded,
        verdict: verdict.name().into(),
        explanation: explained(verdict),
        egress: egress.filter(|_| is_forwarded).and_then(name),
        to: to.map(|mac| Mac(*mac).to_string()),
        reasons: if port.ingress { Vec::new() } else { port.reasons.clone() },
        ..Why::default()
    })
}

/// Adds what the mirror says. A missing neighbour is not the cause where packets leave through the kernel anyway: the
/// tables have no neighbours of such an interface, and the program does not see that.
fn with_mirror(mut why: Why, mirror: Option<MirrorWhy>, ports: &[PortView]) -> Why {
    let kernel = Verdict::EgressKernel;
    let is_late = [Verdict::Unresolved, kernel].iter().any(|late| late.name() == why.verdict);
    if let Some(said) = mirror.as_ref().filter(|said| is_late && said.verdict == kernel.name()) {
        (why.verdict, why.explanation) = (kernel.name().into(), explained(kernel));
        let leaves = |port: &&PortView| !port.egress && said.egress.contains(&port.name);
        for reason in ports.iter().filter(leaves).flat_map(|port| &port.reasons) {
            // What keeps many interfaces is said once.
            if !why.reasons.contains(reason) {
                why.reasons.push(reason.clone());
            }
        }
    }
    Why { mirror, ..why }
}

fn explained(verdict: Verdict) -> String {
    format!("{}. {}", verdict.meaning(), verdict.advice()).trim_end().into()
}

/// The packet of the question, as the lane knows packets.
fn packet_of(ports: &[PortView], question: &WhyQuestion) -> Option<Asked> {
    let WhyQuestion { source, destination, interface, transport } = question;
    let port = ports.iter().find(|port| port.name == *interface)?;
    let (protocol, [source_port, destination_port]) =
        transport.unwrap_or((TransportProtocol::Udp, [DISCARD; 2]));
    let (source, destination, protocol) = (*source, *destination, number(protocol));
    Some(Asked {
        tuple: Tuple { source, destination, source_port, destination_port, protocol },
        has_ports: transport.is_some(),
        ingress: u8::try_from(port.number).ok()?,
    })
}

fn packet(
    port: &PortView,
    [source, destination]: [IpAddr; 2],
    transport: Option<(TransportProtocol, [u16; 2])>,
) -> Result<Vec<u8>, ApiError> {
    let to = port.mac.unwrap_or_default().0;
    let ethernet = PacketBuilder::ethernet2(SENDER, to);
    let builder = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            ethernet.ipv4(source.octets(), destination.octets(), 64)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            ethernet.ipv6(source.octets(), destination.octets(), 64)
        }
        _ => return Err(two_families(source, destination)),
    };
    let mut frame = Vec::new();
    let written = match transport {
        // As in the middle of a connection.
        Some((TransportProtocol::Tcp, [from, to])) => {
            builder.tcp(from, to, 1, 1024).ack(1).write(&mut frame, &[])
        }
        Some((TransportProtocol::Udp, [from, to])) => builder.udp(from, to).write(&mut frame, &[]),
        None => builder.udp(DISCARD, DISCARD).write(&mut frame, &[]),
    };
    written.expect("a vector takes everything");
    Ok(frame)
}

pub(super) fn unknown(ports: &[PortView], interface: &str) -> ApiError {
    let names: Vec<_> = ports.iter().map(|port| port.name.as_str()).collect();
    ApiError {
        error: format!("{interface} is not accelerated"),
        help: format!("name one of {}", names.join(", ")),
    }
}

fn two_families(source: IpAddr, destination: IpAddr) -> ApiError {
    ApiError {
        error: format!("{source} and {destination} are of two families"),
        help: "say two IPv4 addresses, or two IPv6 addresses".into(),
    }
}

/// Locally administered: no host's.
const SENDER: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// RFC 863.
pub(super) const DISCARD: u16 = 9;

#[cfg(test)]
mod tests {
    use super::*;
    use manylane_api::accelerate::ReasonStatus;

    /// A filter of the whole router keeps the ingress interface and all exits: one reason.
    #[test]
    fn what_keeps_all_interfaces_is_said_once() {
        let filter = ReasonStatus { what: "a filter".into(), ..ReasonStatus::default() };
        let ports = ["lan", "wan", "alt"].map(|name| PortView {
            name: name.into(),
            reasons: vec![filter.clone()],
            ..PortView::default()
        });
        let kernel = Verdict::EgressKernel;
        let why =
            Why { verdict: kernel.name().into(), reasons: vec![filter.clone()], ..Why::default() };
        let egress = vec!["wan".into(), "alt".into()];
        let mirror = MirrorWhy { verdict: kernel.name().into(), egress, ..mirror_why() };
        assert_eq!(with_mirror(why, Some(mirror), &ports).reasons, [filter]);
    }

    fn mirror_why() -> MirrorWhy {
        MirrorWhy {
            verdict: String::new(),
            reason: "so".into(),
            rule: None,
            table: None,
            prefix: None,
            routes: Vec::new(),
            hops: Vec::new(),
            egress: vec!["wan".into()],
            is_pending: false,
        }
    }

    #[test]
    fn a_missing_neighbour_is_not_blamed_for_an_exit_of_the_kernel() {
        let down = ReasonStatus { what: "wan is down".into(), ..ReasonStatus::default() };
        let port = |name: &str, egress, reasons| PortView {
            name: name.into(),
            egress,
            reasons,
            ..PortView::default()
        };
        let ports = [port("lan", true, vec![]), port("wan", false, vec![down.clone()])];
        let why = |verdict: Verdict| Why {
            verdict: verdict.name().into(),
            explanation: explained(verdict),
            ..Why::default()
        };
        let mirror =
            |verdict: Verdict| MirrorWhy { verdict: verdict.name().into(), ..mirror_why() };
        use Verdict::{EgressKernel, Lapsed, Unresolved};
        for (program, model, verdict, reasons) in [
            (Unresolved, EgressKernel, EgressKernel, vec![down]),
            (Unresolved, Unresolved, Unresolved, vec![]),
            // What comes before the neighbour is the cause.
            (Lapsed, EgressKernel, Lapsed, vec![]),
        ] {
            let said = with_mirror(why(program), Some(mirror(model)), &ports);
            assert_eq!(said.verdict, verdict.name());
            assert_eq!(said.explanation, explained(verdict));
            assert_eq!(said.reasons, reasons);
        }
    }
}
