//! What would become of a packet: one is made, and decided upon by the program's twin in the program's own tables;
//! the mirror says how they came to be so.

use std::net::IpAddr;

use etherparse::PacketBuilder;
use manylane_net::transit::{Arrival, Transit, Verdict};
use manylane_net::wire::ethernet::Mac;
use manylane_sync::rcu::Guard;

use super::lease::now;
use super::published::PortView;
use crate::mirror;
use manylane_api::ApiError;
use manylane_api::accelerate::{Why, WhyQuestion};

/// The API's question in the mirror's terms.
pub(super) fn question(
    ports: &[PortView],
    question: &WhyQuestion,
) -> Result<mirror::Question, ApiError> {
    let WhyQuestion { source, destination, interface } = question;
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

/// Decides about a UDP packet with a TTL of 64 and no more than headers.
pub(super) fn why(
    ports: &[PortView],
    guard: Guard<'_>,
    transit: &Transit,
    question: &WhyQuestion,
) -> Result<Why, ApiError> {
    let WhyQuestion { source, destination, interface } = question;
    let port = ports.iter().find(|port| port.name == *interface);
    let port = port.ok_or_else(|| unknown(ports, interface))?;
    let mut frame = packet(port, *source, *destination)?;
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
        explanation: format!("{}. {}", verdict.meaning(), verdict.advice()).trim_end().into(),
        egress: egress.filter(|_| is_forwarded).and_then(name),
        to: to.map(|mac| Mac(*mac).to_string()),
        reasons: if port.ingress { Vec::new() } else { port.reasons.clone() },
        mirror: None,
    })
}

fn packet(port: &PortView, source: IpAddr, destination: IpAddr) -> Result<Vec<u8>, ApiError> {
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
    let builder = builder.udp(DISCARD, DISCARD);
    let mut frame = Vec::with_capacity(builder.size(0));
    builder.write(&mut frame, &[]).expect("a vector takes everything");
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
const DISCARD: u16 = 9;
