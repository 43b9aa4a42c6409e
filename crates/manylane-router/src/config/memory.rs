//! What only a `memory` port has: its wire, its MAC and its built-in generator.

use std::net::IpAddr;

use manylane_frame::HEADROOM;
use manylane_frame::vocabulary::PortId;
use serde_spanned::Spanned;

use super::error::{Problem, Span};
use super::prefix::{self, InterfaceAddress, Prefix, network};
use super::section::Section;
use super::settings::Frames;

/// The part of a `memory` port that no other driver has.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryPort {
    /// Its address. Without it, one made from the port's number.
    pub mac: Option<[u8; 6]>,
    /// Receive queues.
    pub queues: u16,
    /// The port at the other end of the wire, which names this one too.
    pub peer: Option<PortId>,
    /// What feeds the port, if not a peer.
    pub generate: Option<Generate>,
}

/// A built-in traffic source at the far end of a memory port.
#[derive(Clone, Debug, PartialEq)]
pub struct Generate {
    /// The packets' source.
    pub source: IpAddr,
    /// Destinations are drawn from this prefix.
    pub destination: Prefix,
    /// How many different flows.
    pub flows: u32,
    /// Bytes of a frame, Ethernet header included.
    pub size: u16,
    /// Without it, as fast as possible.
    pub packets_per_second: Option<u64>,
    /// Without it, until the daemon stops.
    pub packets: Option<u64>,
    /// Same seed, same packets.
    pub seed: u64,
}

/// The MTU of a memory port that does not say.
pub const MEMORY_MTU: u16 = 1500;

pub(super) fn memory(
    section: &Section<'_>,
    addresses: &[InterfaceAddress],
    mtu: u16,
    frames: &Frames,
) -> Result<(MemoryPort, Option<Span>), Problem> {
    let mac = mac(section)?;
    let queues = section.number("queues", 1..=64)?.map_or(1, |queues| queues.into_inner());
    let part = section.table("generate", "[port.generate]")?;
    if !part.is_present() {
        return Ok((MemoryPort { mac, queues, peer: None, generate: None }, None));
    }
    let generate = Some(generate(&part, addresses, mtu, frames)?);
    Ok((MemoryPort { mac, queues, peer: None, generate }, Some(part.span())))
}

/// `mac`, if the table has it: one station's address.
pub(super) fn mac(section: &Section<'_>) -> Result<Option<[u8; 6]>, Problem> {
    let Some(text) = section.text("mac")? else { return Ok(None) };
    let complain = |why| {
        let title = format!("`mac` in {} is not a station's address", section.name());
        let help = "write six pairs of hexadecimal digits, for example `02:00:00:00:00:01`";
        Problem::new(text.span(), title, why, help)
    };
    let pairs: Vec<_> = text.get_ref().split(':').collect();
    let byte = |pair: &&str| {
        let digits = pair.len() == 2 && pair.bytes().all(|byte| byte.is_ascii_hexdigit());
        u8::from_str_radix(pair, 16).ok().filter(|_| digits)
    };
    let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
    let mac: [u8; 6] = bytes
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| complain("not a MAC address"))?;
    match mac {
        [0, 0, 0, 0, 0, 0] => Err(complain("all zero")),
        // IEEE 802 §8.2: the lowest bit of the first byte marks a group.
        [first, ..] if first & 1 == 1 => Err(complain("a group's address: the first byte is odd")),
        _ => Ok(Some(mac)),
    }
}

fn generate(
    section: &Section<'_>,
    addresses: &[InterfaceAddress],
    mtu: u16,
    frames: &Frames,
) -> Result<Generate, Problem> {
    let (source_text, source) = source(section, addresses)?;
    let help = "write the destination of the packets, for example `destination = \"10.2.0.0/16\"`";
    let destination_text = section.required("destination", help)?;
    let destination =
        network(&destination_text, "`destination` in [port.generate] is not a prefix")?;
    if destination.network().is_ipv4() != source.is_ipv4() {
        return Err(Problem::new(
            destination_text.span(),
            "`source` and `destination` in [port.generate] are of different families",
            prefix::family(destination.network()),
            format!("write an {} prefix, or change `source`", prefix::family(source)),
        )
        .also(source_text.span(), prefix::family(source)));
    }
    if let Some(why) = prefix::not_unicast(destination.network()) {
        return Err(Problem::new(
            destination_text.span(),
            "`destination` in [port.generate] is nowhere to send packets to",
            why,
            "write a prefix of unicast addresses",
        ));
    }

    let size = size(section, mtu, frames)?;
    let rate = section.number("packets_per_second", 1..=1_000_000_000)?;
    Ok(Generate {
        source,
        destination,
        flows: section.number("flows", 1..=1_048_576)?.map_or(64, |flows| flows.into_inner()),
        size,
        packets_per_second: rate.map(|rate| rate.into_inner()),
        packets: section.number("packets", 1..=u64::MAX)?.map(|packets| packets.into_inner()),
        seed: section.number("seed", 0..=u64::MAX)?.map_or(1, |seed| seed.into_inner()),
    })
}

/// The address that generated packets are from, and its place in the file.
fn source<'a>(
    section: &Section<'a>,
    addresses: &[InterfaceAddress],
) -> Result<(Spanned<&'a str>, IpAddr), Problem> {
    let help = "write the packets' source, for example `source = \"10.1.0.1\"`";
    let source_text = section.required("source", help)?;
    let source_fault = |why: String, help: &str| {
        let title = "`source` in [port.generate] cannot send packets";
        Problem::new(source_text.span(), title, why, help)
    };
    let source: IpAddr = source_text
        .get_ref()
        .parse()
        .map_err(|_| source_fault("not an IP address".into(), "write one address, no length"))?;
    if let Some(why) = prefix::not_unicast(source) {
        return Err(source_fault(why.into(), "write a unicast address"));
    }
    if addresses.iter().any(|ours| ours.address == source) {
        let help = "write a neighbour's address: what claims to be from us is dropped";
        return Err(source_fault("this port's own address".into(), help));
    }
    Ok((source_text, source))
}

/// Bytes of a generated frame: at most what the port's MTU and one frame allow.
fn size(section: &Section<'_>, mtu: u16, frames: &Frames) -> Result<u16, Problem> {
    let size_max = u64::from(mtu) + 14;
    let room = u64::from(frames.size) - u64::from(HEADROOM);
    match section.number::<u16>("size", 64..=9014)? {
        Some(size) if u64::from(*size.get_ref()) > size_max => Err(Problem::new(
            size.span(),
            "`size` in [port.generate] is more than the port's MTU",
            format!("{size_max} is MTU and Ethernet header"),
            format!("choose a number from 64 to {size_max}, or raise `mtu`"),
        )),
        Some(size) if u64::from(*size.get_ref()) > room => Err(Problem::new(
            size.span(),
            "`size` in [port.generate] is more than a frame holds",
            format!("{room} bytes fit into a frame of {}", frames.size),
            format!("choose a number from 64 to {room}: the generator writes single frames"),
        )),
        size => Ok(size.map_or(64, |size| size.into_inner())),
    }
}
