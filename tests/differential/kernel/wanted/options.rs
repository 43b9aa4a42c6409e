//! Options of IPv4 (RFC 791 §3.1): which are malformed, and what a router writes into them.

use std::net::Ipv4Addr;

use super::super::plan;

const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const RECORD_ROUTE: u8 = 7;
const TIMESTAMP: u8 = 68;

/// What options say of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    Harmless,
    SourceRoute,
    /// What is wrong, in bytes behind the fixed header.
    Malformed(usize),
}

pub fn walk(options: &[u8]) -> Walk {
    let mut at = 0;
    while let Some(&kind) = options.get(at) {
        let len = match kind {
            END => break,
            NO_OPERATION => 1,
            131 | 137 => return Walk::SourceRoute,
            _ => options.get(at + 1).copied().map_or(0, usize::from),
        };
        let is_whole = len >= if kind == NO_OPERATION { 1 } else { 2 } && at + len <= options.len();
        if !is_whole {
            return Walk::Malformed(at);
        }
        if let Some(wrong) = wrong_in(&options[at..at + len]) {
            return Walk::Malformed(at + wrong);
        }
        at += len;
    }
    Walk::Harmless
}

/// Where an option that routers write in is wrong.
fn wrong_in(option: &[u8]) -> Option<usize> {
    let (fixed, entry) = match (option[0], option.get(3).map(|flags| flags & 0x0f)) {
        (RECORD_ROUTE, _) => (3, 4),
        (TIMESTAMP, Some(0)) => (4, 4),
        (TIMESTAMP, Some(1 | 3)) => (4, 8),
        (TIMESTAMP, Some(_)) => return Some(3),
        (TIMESTAMP, None) => return Some(1),
        _ => return None,
    };
    if option.len() < fixed {
        return Some(1);
    }
    let pointer = usize::from(option[2]);
    let is_full = pointer > option.len();
    if pointer <= fixed || !is_full && pointer - 1 + entry > option.len() {
        return Some(2);
    }
    (is_full && fixed == 4 && option[3] >> 4 == 15).then_some(3)
}

/// Writes a router into options that are harmless, as it does when it forwards a packet by a link on which it has the
/// address `own` (RFC 1812 §5.3.13.5, §5.3.13.6). Returns where the router writes the time.
pub fn write(options: &mut [u8], own: Ipv4Addr) -> Vec<usize> {
    let mut times = Vec::new();
    for start in starts(options, &[RECORD_ROUTE, TIMESTAMP]) {
        let (kind, len) = (options[start], usize::from(options[start + 1]));
        let place = start + usize::from(options[start + 2]) - 1;
        let is_full = place >= start + len;
        let own = own.octets();
        match (kind, options[start + 3] & 0x0f) {
            (RECORD_ROUTE, _) if is_full => {}
            (RECORD_ROUTE, _) => {
                options[place..place + 4].copy_from_slice(&own);
                options[start + 2] += 4;
            }
            (_, 3) if is_full => {}
            // A router without a place in the list is counted.
            (_, _) if is_full => options[start + 3] += 0x10,
            (_, 0) => {
                times.push(place);
                options[start + 2] += 4;
            }
            (_, 1) => {
                options[place..place + 4].copy_from_slice(&own);
                times.push(place + 4);
                options[start + 2] += 8;
            }
            _ => {
                let chosen = <[u8; 4]>::try_from(&options[place..place + 4]).expect("four bytes");
                if plan::is_routers(Ipv4Addr::from(chosen).into()) {
                    times.push(place + 4);
                    options[start + 2] += 8;
                }
            }
        }
    }
    times
}

/// Where the first option of a kind begins.
pub fn find(options: &[u8], kind: u8) -> Option<usize> {
    starts(options, &[kind]).first().copied()
}

/// Where each option of these kinds begins.
fn starts(options: &[u8], kinds: &[u8]) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut at = 0;
    while let Some(&kind) = options.get(at) {
        if kind == END {
            break;
        }
        if kinds.contains(&kind) {
            starts.push(at);
        }
        at += match (kind, options.get(at + 1)) {
            (NO_OPERATION, _) | (_, None) => 1,
            (_, Some(&len)) => usize::from(len).max(2),
        };
    }
    starts
}

/// The options that each piece of a packet carries (RFC 791 §3.1), padded to words.
pub fn copied(options: &[u8]) -> Vec<u8> {
    let mut copied = Vec::new();
    let mut at = 0;
    while let Some(&kind) = options.get(at) {
        let len = match kind {
            END => break,
            NO_OPERATION => 1,
            _ => usize::from(options[at + 1]),
        };
        if kind & 0x80 != 0 {
            copied.extend(&options[at..at + len]);
        }
        at += len;
    }
    copied.resize(copied.len().next_multiple_of(4), END);
    copied
}

/// Where what stands behind the end of the options begins, if they have an end before they end.
pub fn behind_end(options: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match *options.get(at)? {
            END => return Some(at + 1),
            NO_OPERATION => at += 1,
            _ => at += usize::from(*options.get(at + 1)?).max(2),
        }
    }
}
