//! What manylane has to send because of a packet, computed from that packet and the plan alone.
//!
//! Rows of intended differences compare with the kernel, and a row that looks at one field hides the others. So each
//! frame that manylane sends is first compared with the frame that the RFCs want, byte by byte: headers, written
//! options, quotations, lengths and checksums. manylane chooses two values freely: the identification of its own
//! packets, and the time in a timestamp option, which is marked as non-standard and never falls.
//!
//! | file         | holds                                                               |
//! |--------------|---------------------------------------------------------------------|
//! | `ipv4.rs`    | what becomes of a packet of IPv4                                    |
//! | `ipv6.rs`    | what becomes of a packet of IPv6                                    |
//! | `headers.rs` | extension headers: where they lead, and what a receiver objects to  |
//! | `options.rs` | options of IPv4: which are malformed, and what a router writes      |
//! | `link.rs`    | answers of ARP and neighbour discovery; VLANs                       |
//! | `frames.rs`  | the frames: forwarded packets, pieces, errors, echo replies         |

mod frames;
mod headers;
mod ipv4;
mod ipv6;
mod link;
mod options;

use super::compare::Case;
use super::generate::{Shot, checksum};
use super::plan::Side;
use super::read::{Hex, Ip};

pub use frames::{error_to, resum};
pub use options::{behind_end, find as option};

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// manylane sends nothing.
    Nothing,
    /// manylane forwards the packet, in pieces if the next link needs that.
    Pass,
    /// manylane sends this error, if the rules allow it and its receiver can be reached.
    Error(Error),
    /// manylane answers an echo request.
    Echo,
    /// manylane answers a question for one of its addresses.
    Advertise,
}

/// An ICMP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    pub kind: u8,
    pub code: u8,
    /// The second word of its header.
    pub word: u32,
    /// The error is due also about a packet to a group.
    pub of_groups: bool,
}

impl Error {
    pub fn due(kind: u8, code: u8, word: u32) -> Verdict {
        Verdict::Error(Error { kind, code, word, of_groups: false })
    }
}

/// A frame that manylane has to send.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub side: Side,
    pub bytes: Vec<u8>,
    /// manylane made the packet, and chose its identification.
    pub is_own: bool,
    /// Where manylane writes the time.
    pub times: Vec<usize>,
}

/// What becomes of the packet.
pub fn verdict(shot: &Shot) -> Verdict {
    if link::is_in_unknown_vlan(shot) {
        return Verdict::Nothing;
    }
    match u16::from_be_bytes([shot.frame[12], shot.frame[13]]) {
        super::link::IPV4 => ipv4::verdict(shot),
        super::link::IPV6 => ipv6::verdict(shot),
        super::link::ARP => link::arp_verdict(shot),
        _ => Verdict::Nothing,
    }
}

/// The frames that manylane has to send because of the packet, in order.
pub fn wanted(shot: &Shot) -> Vec<Wanted> {
    let verdict = verdict(shot);
    match (verdict, Ip::of(&shot.frame)) {
        (Verdict::Pass, _) => frames::passed(shot),
        (Verdict::Echo, _) => frames::echo_reply(shot),
        (Verdict::Error(what), Some(ip)) if may_be_told(shot, ip, what) => {
            frames::error(shot, what)
        }
        (Verdict::Advertise, Some(_)) => link::advertisement(shot),
        (Verdict::Advertise, None) => link::arp_reply(shot),
        _ => Vec::new(),
    }
}

fn may_be_told(shot: &Shot, ip: Ip, what: Error) -> bool {
    match ip {
        Ip::V4(header) => ipv4::may_be_told(shot, header),
        Ip::V6(header) => ipv6::may_be_told(shot, header, what),
    }
}

/// The time that manylane wrote last, in milliseconds.
#[derive(Clone, Debug, Default)]
pub struct Clock(u32);

/// What is wrong with what manylane sent because of a packet.
pub fn faults(case: &Case<'_>, clock: &mut Clock) -> Vec<String> {
    let mut faults = Vec::new();
    let mut wanted = wanted(case.shot);
    for side in Side::ALL {
        let sent = &case.ours[side as usize];
        let mut due: Vec<&mut Wanted> =
            wanted.iter_mut().filter(|wanted| wanted.side == side).collect();
        if sent.len() != due.len() {
            let (name, sent, due) = (side.name(), sent.len(), due.len());
            faults.push(format!("by {name} manylane sends {sent} frames, and {due} are wanted"));
            continue;
        }
        for (sent, due) in sent.iter().zip(&mut due) {
            faults.extend(adopt(due, sent, clock));
            if let Some(place) = first_difference(sent, &due.bytes) {
                let (sent, due) = (from(sent, place), from(&due.bytes, place));
                let name = side.name();
                faults.push(format!(
                    "by {name}, from byte {place} on, {sent} is sent and {due} is wanted"
                ));
            }
        }
    }
    faults
}

/// Takes over what manylane chooses: identification and time. Returns what is wrong with the time.
fn adopt(due: &mut Wanted, sent: &[u8], clock: &mut Clock) -> Option<String> {
    const NO_STANDARD_TIME: u32 = 1 << 31;

    let Some(Ip::V4(header)) = Ip::of(&due.bytes) else { return None };
    let mut fault = None;
    let mut written = None;
    for &at in &due.times {
        let time = u32::from_be_bytes(*sent.get(at..)?.first_chunk()?);
        due.bytes[at..at + 4].copy_from_slice(&time.to_be_bytes());
        let last = NO_STANDARD_TIME | clock.0.max(1); // The clock began before the first packet.
        if time < last || written.is_some_and(|first| first != time) {
            fault = Some(format!("the time {time:08x} is written, the last was {last:08x}"));
        }
        clock.0 = time & !NO_STANDARD_TIME;
        written = Some(time);
    }
    if due.is_own {
        due.bytes[18..20].copy_from_slice(sent.get(18..20)?);
    }
    sum_header(&mut due.bytes[14..], header.len);
    fault
}

fn sum_header(packet: &mut [u8], len: usize) {
    packet[10..12].fill(0);
    let sum = checksum(&[&packet[..len]]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

fn first_difference(one: &[u8], other: &[u8]) -> Option<usize> {
    let differs = one.iter().zip(other).position(|(one, other)| one != other);
    differs.or_else(|| (one.len() != other.len()).then_some(one.len().min(other.len())))
}

/// Some bytes, for the reader of a failure.
fn from(bytes: &[u8], place: usize) -> Hex<'_> {
    Hex(&bytes[place..bytes.len().min(place + 16)])
}
