//! Extension headers of IPv6 (RFC 8200 §4): where they lead, and what the receiver of a packet objects to.

use super::super::generate::{ICMPV6, TCP, UDP};

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION_OPTIONS: u8 = 60;

/// More headers than this are nonsense.
const HEADERS_MAX: usize = 8;

/// What of a packet is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Whole,
    First,
    Later,
}

/// Where extension headers lead.
#[derive(Clone, Copy, Debug)]
pub struct Transport {
    pub protocol: u8,
    pub at: usize,
    /// Where the protocol is named.
    pub named_at: usize,
    pub part: Part,
}

impl Transport {
    fn is_extension(self) -> bool {
        let number = self.protocol;
        matches!(number, HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION_OPTIONS)
    }

    /// Over one header; `None` if it leads out of the packet.
    fn step(self, packet: &[u8]) -> Option<Transport> {
        let header = packet.get(self.at..)?.first_chunk::<8>()?;
        let mut part = self.part;
        let len = match self.protocol {
            FRAGMENT => {
                let place = u16::from_be_bytes([header[2], header[3]]);
                part = match (place & 0xfff8, place & 1) {
                    (0, 0) => self.part,
                    (0, _) => Part::First,
                    _ => Part::Later,
                };
                8
            }
            AUTHENTICATION => (usize::from(header[1]) + 2) * 4,
            _ => (usize::from(header[1]) + 1) * 8,
        };
        let (at, named_at) = (self.at + len, self.at);
        (at <= packet.len()).then_some(Transport { protocol: header[0], at, named_at, part })
    }
}

fn start(packet: &[u8]) -> Transport {
    Transport { protocol: packet[6], at: 40, named_at: 6, part: Part::Whole }
}

/// The transport of a packet without padding, if its headers lead there. Hop-by-hop options that are not in front are
/// no header, and end the chain.
pub fn transport(packet: &[u8]) -> Option<Transport> {
    let mut here = start(packet);
    for _ in 0..HEADERS_MAX {
        let is_last = !here.is_extension() || here.protocol == HOP_BY_HOP && here.at > 40;
        if is_last || here.part == Part::Later {
            return Some(here);
        }
        here = here.step(packet)?;
    }
    let is_last = !here.is_extension() || here.part == Part::Later;
    is_last.then_some(here)
}

/// What the receiver of a packet says about its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objection {
    /// The receiver drops the packet.
    Silent,
    /// A parameter problem.
    Problem { code: u8, pointer: u32, of_groups: bool },
}

const fn problem(code: u8, pointer: usize) -> Option<Objection> {
    Some(Objection::Problem { code, pointer: pointer as u32, of_groups: false })
}

pub fn objection(packet: &[u8]) -> Option<Objection> {
    let mut here = start(packet);
    for _ in 0..HEADERS_MAX {
        if !here.is_extension() {
            return None;
        }
        let header = packet.get(here.at..)?;
        match here.protocol {
            HOP_BY_HOP if here.at > 40 => return problem(1, here.named_at),
            AUTHENTICATION => return problem(1, here.named_at),
            ROUTING if *header.get(3)? > 0 => return problem(0, here.at + 2),
            FRAGMENT => {
                if let Some(wrong) = wrong_fragment(packet, here.at) {
                    return Some(wrong);
                }
            }
            _ => {}
        }
        let next = here.step(packet)?;
        if matches!(here.protocol, HOP_BY_HOP | DESTINATION_OPTIONS)
            && let Some(wrong) = wrong_option(&packet[..next.at], here.at + 2)
        {
            return Some(wrong);
        }
        if next.part == Part::Later {
            return None;
        }
        here = next;
    }
    here.is_extension().then_some(Objection::Silent)
}

/// RFC 8200 §4.5.
fn wrong_fragment(packet: &[u8], at: usize) -> Option<Objection> {
    let header = packet.get(at..at + 8)?;
    let (place, len) = (u16::from_be_bytes([header[2], header[3]]), packet.len() - at - 8);
    let (offset, more) = (usize::from(place & 0xfff8), place & 1 == 1);
    if offset == 0 && more && lacks_transport(packet) {
        return problem(3, 0);
    }
    match more && !len.is_multiple_of(8) {
        true => problem(0, 4),
        false if offset + len > 65_535 => problem(0, at + 2),
        false => None,
    }
}

fn lacks_transport(packet: &[u8]) -> bool {
    transport(packet).is_some_and(|transport| {
        let len = match transport.protocol {
            TCP => 20,
            UDP | ICMPV6 => 8,
            _ => 1,
        };
        transport.at + len > packet.len()
    })
}

/// What options from `at` to the end of `packet` demand of a receiver that knows none but padding (RFC 8200 §4.2).
fn wrong_option(packet: &[u8], mut at: usize) -> Option<Objection> {
    while at < packet.len() {
        match packet[at] {
            0 => {
                at += 1;
                continue;
            }
            kind => match kind >> 6 {
                0 => {}
                1 => return Some(Objection::Silent),
                high => {
                    let (pointer, of_groups) = (at as u32, high == 2);
                    return Some(Objection::Problem { code: 2, pointer, of_groups });
                }
            },
        }
        at += 2 + usize::from(packet.get(at + 1).copied().unwrap_or(u8::MAX));
    }
    (at > packet.len()).then_some(Objection::Silent)
}

/// What every node says to hop-by-hop options where the header counts no payload (RFC 2675 §3).
pub fn length_objection(packet: &[u8]) -> Option<Objection> {
    if packet[4..7] != [0, 0, HOP_BY_HOP] {
        return None;
    }
    let len = packet.get(41).map_or(0, |&len| (usize::from(len) + 1) * 8);
    let Some(options) = packet.get(42..40 + len) else { return Some(Objection::Silent) };
    let mut at = 0;
    while let Some(&kind) = options.get(at) {
        match (kind, options.get(at + 1..)) {
            (0, _) => at += 1,
            (0xc2, Some(&[4, a, b, c, d, ..])) => {
                let is_short = u32::from_be_bytes([a, b, c, d]) <= 65_535;
                return if is_short { problem(0, 42 + at + 2) } else { Some(Objection::Silent) };
            }
            (_, Some(&[len, ..])) => at += 2 + usize::from(len),
            _ => break,
        }
    }
    problem(0, 4)
}
