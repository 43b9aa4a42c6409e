//! Bugs that a router could have, planted into what manylane sent: the comparison has to find each of them, every time.
//!
//! A planted bug changes the frames that left manylane, never manylane, and makes lengths and checksums right behind
//! itself unless they are the bug. So a run shows that its rows hide nothing of what they do not name.

use super::compare::{Case, Did};
use super::generate::{TCP, UDP};
use super::plan::{self, Side, Way};
use super::read::{Ip, icmp};
use super::row::{v4, v6};
use super::twin::Outputs;
use super::wanted::{self, Error};

/// A bug.
pub struct Bug {
    pub name: &'static str,
    /// Changes what manylane sent because of the packet; `None` where the bug changes nothing.
    pub plant: fn(&Case<'_>, &mut Outputs) -> Option<()>,
}

/// How often each bug is planted in a run at most: a run has thousands of packets for some of them.
pub const TIMES_MAX: u64 = 25;

pub const BUGS: &[Bug] = &[
    Bug { name: "record route is not written", plant: |case, ours| restore_option(case, ours, 7) },
    Bug {
        name: "record route has the address of another link",
        plant: |case, ours| {
            let at = written(case, 7)?;
            edit_first(case, ours, Did::Passed, |frame| frame[at + 1] = 99)
        },
    },
    Bug { name: "a timestamp is not written", plant: |case, ours| restore_option(case, ours, 68) },
    Bug {
        name: "a timestamp claims to be the time of day",
        plant: |case, ours| edit_time(case, ours, |time| time[0] &= 0x7f),
    },
    Bug {
        name: "a timestamp is older than the last",
        plant: |case, ours| edit_time(case, ours, |time| *time = [0x80, 0, 0, 0]),
    },
    Bug {
        name: "padding behind the options is cleared",
        plant: |case, ours| {
            let header = v4(case).filter(|header| header.len > 20)?;
            let at = 34 + wanted::behind_end(&case.shot.frame[34..14 + header.len])?;
            let rest = at..14 + header.len;
            edit_first(case, ours, Did::Passed, |frame| frame[rest].fill(0))
        },
    },
    Bug {
        name: "an option is lost",
        plant: |case, ours| {
            let header = v4(case).filter(|header| header.len > 20)?;
            edit_first(case, ours, Did::Passed, |frame| frame[34..14 + header.len].fill(1))
        },
    },
    Bug {
        name: "later pieces carry all options",
        plant: |case, ours| {
            let header = v4(case).filter(|header| header.len > 20)?;
            edit_later(case, ours, |frame| {
                let len = usize::from(frame[14] & 0x0f) * 4;
                let options = case.shot.frame[34..14 + header.len].iter().copied();
                frame.splice(34..14 + len, options);
                frame[14] = 0x40 | (header.len / 4) as u8;
            })
        },
    },
    Bug {
        name: "a later piece is elsewhere",
        plant: |case, ours| edit_later(case, ours, |frame| frame[21] ^= 1),
    },
    Bug {
        name: "the header checksum is not updated",
        plant: |case, ours| {
            let sum = case.shot.frame.get(24..26)?;
            v4(case)?;
            edit_raw(
                case,
                ours,
                |did| did == Did::Passed,
                |frame| frame[24..26].copy_from_slice(sum),
            )
        },
    },
    Bug {
        name: "the TTL or the hop limit is not counted",
        plant: |case, ours| {
            let at = if v4(case).is_some() { 22 } else { 21 };
            edit_first(case, ours, Did::Passed, |frame| frame[at] += 1)
        },
    },
    Bug {
        name: "a forwarded payload is changed",
        plant: |case, ours| {
            let at = behind_header(case)?;
            edit_first(case, ours, Did::Passed, |frame| frame[at] ^= 1)
        },
    },
    Bug {
        name: "padding of Ethernet is forwarded",
        plant: |case, ours| edit_raw(case, ours, |did| did == Did::Passed, |frame| frame.push(0)),
    },
    Bug {
        name: "the header checksum of an error is wrong",
        plant: |case, ours| {
            v4(case)?;
            edit_raw(case, ours, is_error, |frame| frame[24] ^= 1)
        },
    },
    Bug {
        name: "the checksum of an IPv4 error is wrong",
        plant: |case, ours| {
            v4(case)?;
            edit_raw(case, ours, is_error, |frame| frame[36] ^= 1)
        },
    },
    Bug {
        name: "the checksum of an IPv6 error is wrong",
        plant: |case, ours| {
            v6(case)?;
            edit_raw(case, ours, is_error, |frame| frame[56] ^= 1)
        },
    },
    Bug {
        name: "an IPv6 error comes from another link's address",
        plant: |case, ours| {
            v6(case)?;
            edit_message(case, ours, |frame| {
                let source = frame[22..38].to_vec();
                let others = Side::ALL.into_iter().map(|side| side.router_v6().octets());
                let other = others.into_iter().find(|other| other[..] != source[..]);
                frame[22..38].copy_from_slice(&other.expect("the router has several"));
            })
        },
    },
    Bug {
        name: "an error quotes another byte",
        plant: |case, ours| {
            edit_message(case, ours, |frame| *frame.last_mut().expect("a byte") ^= 1)
        },
    },
    Bug {
        name: "an error quotes less than fits",
        plant: |case, ours| {
            edit_message(case, ours, |frame| {
                frame.pop();
            })
        },
    },
    Bug {
        name: "an error quotes a packet with the options that it wrote",
        plant: |case, ours| {
            let at = written(case, 7)?;
            edit_message(case, ours, |frame| {
                if let Some(byte) = frame.get_mut(at + 28) {
                    *byte ^= 10;
                }
            })
        },
    },
    Bug {
        name: "a pointer is one byte behind",
        plant: |case, ours| {
            let at = match case.ours_did() {
                Did::Said(12, _) => 38,
                Did::Said(4, _) => 61,
                _ => return None,
            };
            edit_message(case, ours, |frame| frame[at] += 1)
        },
    },
    Bug {
        name: "the data of an echo reply is changed",
        plant: |case, ours| edit_echo(case, ours, |frame| *frame.last_mut().expect("a byte") ^= 1),
    },
    Bug {
        name: "the data of an echo reply is cut",
        plant: |case, ours| {
            edit_echo(case, ours, |frame| {
                frame.pop();
            })
        },
    },
    Bug {
        name: "the options of an echo reply are changed",
        plant: |case, ours| {
            v4(case).filter(|header| header.len > 20)?;
            edit_echo(case, ours, |frame| frame[34] ^= 2)
        },
    },
    Bug {
        name: "the flags of an echo reply are its request's",
        plant: |case, ours| {
            v4(case).filter(|header| header.dont_fragment)?;
            edit_echo(case, ours, |frame| frame[20] |= 0x40)
        },
    },
    Bug {
        name: "a packet from a router's own address is answered",
        plant: |case, ours| {
            v4(case).filter(|header| plan::is_routers(header.source.into()))?;
            let (Did::Nothing | Did::Passed) = case.ours_did() else { return None };
            forge_error(case, ours, 11, 0)
        },
    },
    Bug {
        name: "a packet from a router's own address is not forwarded",
        plant: |case, ours| {
            v4(case).filter(|header| plan::is_routers(header.source.into()))?;
            (case.ours_did() == Did::Passed).then(|| clear(ours))
        },
    },
    Bug {
        name: "options for others are processed in transit",
        plant: |case, ours| {
            let header = v6(case).filter(|header| header.next == 0)?;
            let is_transit = plan::way(header.destination.into()) == Way::On;
            (is_transit && case.ours_did() == Did::Passed && case.kernel_did() != Did::Passed)
                .then(|| clear(ours))
        },
    },
    Bug {
        name: "unknown options for the router are ignored",
        plant: |case, ours| {
            let header = v6(case).filter(|header| header.next == 0)?;
            let is_ours = plan::way(header.destination.into()) == Way::Router;
            (is_ours && case.ours_did() == Did::Said(4, 2)).then(|| clear(ours))
        },
    },
    Bug {
        name: "a segment with a wrong checksum is answered",
        plant: |case, ours| forge_about(case, ours, TCP),
    },
    Bug {
        name: "a datagram with a wrong checksum is answered",
        plant: |case, ours| forge_about(case, ours, UDP),
    },
    Bug {
        name: "a packet with timestamps is dropped",
        plant: |case, ours| {
            has_option(case, 68)?;
            (case.ours_did() == Did::Passed).then(|| clear(ours))
        },
    },
    Bug {
        name: "a malformed timestamp is dropped in silence",
        plant: |case, ours| {
            has_option(case, 68)?;
            matches!(case.ours_did(), Did::Said(12, _)).then(|| clear(ours))
        },
    },
    Bug {
        name: "routing headers for the router are dropped in silence",
        plant: |case, ours| {
            v6(case).filter(|_| super::row::has_segments(&case.shot.frame[14..]))?;
            is_error(case.ours_did()).then(|| clear(ours))
        },
    },
    Bug {
        name: "an advertisement replaces nothing",
        plant: |case, ours| {
            let is_advertisement = |did| did == Did::Said(136, 0);
            edit_raw(case, ours, is_advertisement, |frame| {
                frame[58] &= !0x20;
                wanted::resum(frame);
            })
        },
    },
    Bug {
        name: "an answer of ARP names another station",
        plant: |case, ours| {
            edit_raw(case, ours, |did| did == Did::Answered, |frame| frame[27] ^= 1)
        },
    },
    Bug {
        name: "a packet is sent twice",
        plant: |_, ours| {
            let sent = ours.iter_mut().find(|frames| !frames.is_empty())?;
            sent.push(sent[0].clone());
            Some(())
        },
    },
];

fn is_error(did: Did) -> bool {
    matches!(did, Did::Said(kind, _) if matches!(kind, 1..=4 | 11 | 12))
}

/// Changes the first frame that manylane sent, if it did such a thing.
fn edit_raw(
    case: &Case<'_>,
    ours: &mut Outputs,
    did: impl Fn(Did) -> bool,
    change: impl FnOnce(&mut Vec<u8>),
) -> Option<()> {
    let frame = ours.iter_mut().flatten().next().filter(|_| did(case.ours_did()))?;
    let before = frame.clone();
    change(frame);
    (*frame != before).then_some(())
}

/// As `edit_raw`, with lengths and checksums made right.
fn edit_first(
    case: &Case<'_>,
    ours: &mut Outputs,
    wanted: Did,
    change: impl FnOnce(&mut Vec<u8>),
) -> Option<()> {
    edit_summed(case, ours, |did| did == wanted, change)
}

fn edit_message(
    case: &Case<'_>,
    ours: &mut Outputs,
    change: impl FnOnce(&mut Vec<u8>),
) -> Option<()> {
    edit_summed(case, ours, is_error, change)
}

/// Changes the reply to an echo request that had data.
fn edit_echo(case: &Case<'_>, ours: &mut Outputs, change: impl FnOnce(&mut Vec<u8>)) -> Option<()> {
    let is_reply = |did| matches!(did, Did::Said(0 | 129, 0));
    let frame = ours.iter().flatten().next()?;
    let header_len = match Ip::of(frame)? {
        Ip::V4(header) => header.len,
        Ip::V6(_) => 40,
    };
    if frame.len() <= 14 + header_len + 8 {
        return None;
    }
    edit_summed(case, ours, is_reply, change)
}

fn edit_summed(
    case: &Case<'_>,
    ours: &mut Outputs,
    did: impl Fn(Did) -> bool,
    change: impl FnOnce(&mut Vec<u8>),
) -> Option<()> {
    let mut is_changed = false;
    edit_raw(case, ours, did, |frame| {
        let before = frame.clone();
        change(frame);
        is_changed = *frame != before;
        if is_changed {
            wanted::resum(frame);
        }
    })?;
    is_changed.then_some(())
}

/// Changes the second piece of a packet.
fn edit_later(
    case: &Case<'_>,
    ours: &mut Outputs,
    change: impl FnOnce(&mut Vec<u8>),
) -> Option<()> {
    let is_cut = case.ours_did() == Did::Passed;
    let frame = ours.iter_mut().find(|frames| is_cut && frames.len() > 1)?.get_mut(1)?;
    let before = frame.clone();
    change(frame);
    if *frame == before {
        return None;
    }
    wanted::resum(frame);
    Some(())
}

/// Where an option of this kind begins in the frame that was sent.
fn has_option(case: &Case<'_>, kind: u8) -> Option<usize> {
    let header = v4(case).filter(|header| header.len > 20)?;
    wanted::option(&case.shot.frame[34..14 + header.len], kind).map(|at| 34 + at)
}

/// Where the router's entry begins in an option of a packet, if it has a place for it.
fn written(case: &Case<'_>, kind: u8) -> Option<usize> {
    let at = has_option(case, kind)?;
    let option = &case.shot.frame[at..];
    let place = usize::from(*option.get(2)?);
    (place >= 4 && place + 3 <= usize::from(option[1])).then_some(at + place - 1)
}

/// Puts an option back as it was received.
fn restore_option(case: &Case<'_>, ours: &mut Outputs, kind: u8) -> Option<()> {
    let at = has_option(case, kind)?;
    let option = case.shot.frame.get(at..at + usize::from(*case.shot.frame.get(at + 1)?))?;
    edit_first(case, ours, Did::Passed, |frame| {
        frame[at..at + option.len()].copy_from_slice(option)
    })
}

fn edit_time(case: &Case<'_>, ours: &mut Outputs, change: impl FnOnce(&mut [u8; 4])) -> Option<()> {
    let at = *wanted::wanted(case.shot).first()?.times.first()?;
    edit_first(case, ours, Did::Passed, |frame| {
        change(frame[at..].first_chunk_mut().expect("four bytes"));
    })
}

fn behind_header(case: &Case<'_>) -> Option<usize> {
    let (at, len) = match case.ip()? {
        Ip::V4(header) => (
            14 + header.len,
            14 + usize::from(u16::from_be_bytes([case.shot.frame[16], case.shot.frame[17]])),
        ),
        Ip::V6(_) => {
            (54, 54 + usize::from(u16::from_be_bytes([case.shot.frame[18], case.shot.frame[19]])))
        }
    };
    let is_icmp = icmp(&case.shot.frame).is_some();
    (at < len && !is_icmp).then_some(at)
}

fn clear(ours: &mut Outputs) {
    ours.iter_mut().for_each(Vec::clear);
}

/// An error in place of what manylane did.
fn forge_error(case: &Case<'_>, ours: &mut Outputs, kind: u8, code: u8) -> Option<()> {
    clear(ours);
    let side = case.shot.side;
    let what = Error { kind, code, word: 0, of_groups: false };
    let error = wanted::error_to(case.shot, what, side, side.host_mac(1))?;
    ours[side as usize].push(error);
    Some(())
}

/// *Port unreachable* about a packet for the router whose checksum is wrong.
fn forge_about(case: &Case<'_>, ours: &mut Outputs, protocol: u8) -> Option<()> {
    let to_router = plan::way(case.ip()?.destination()) == Way::Router;
    let (is_it, kind, code) = match case.ip()? {
        Ip::V4(header) => (header.protocol == protocol, 3, 3),
        Ip::V6(header) => (header.next == protocol, 1, 4),
    };
    let is_wrong = case.shot.odd == ["wrong transport checksum"];
    if !to_router || !is_it || !is_wrong || case.ours_did() != Did::Nothing {
        return None;
    }
    forge_error(case, ours, kind, code)
}
