//! What the simulated hosts answer: ARP, neighbour discovery and echo.
//!
//! | asked                                         | answer                                         |
//! |-----------------------------------------------|------------------------------------------------|
//! | ARP request                                   | it is at the hosts' MAC                        |
//! | neighbour solicitation                        | it is at the hosts' MAC, and no router         |
//! | echo request, at most [`ANSWER_LEN_MAX`] long | echo reply                                     |
//! | ARP probe, duplicate address detection        | none: the asker means an address of its own    |
//! | ARP announcement, other ARP and ND messages   | none: no question                              |
//!
//! The hosts have every address, so that the author of a test need not list them.

use crate::icmp::{echo_reply_v4, echo_reply_v6};
use crate::wire::ethernet::{self, Mac, ether_type};
use crate::wire::{arp, ipv4, nd};

/// The longest frame that is queued as an answer: a ping of 64 bytes over IPv6 has 118.
pub(super) const ANSWER_LEN_MAX: usize = 126;

/// A frame to be sent, in two cache lines.
pub(super) struct Answer {
    len: u16,
    bytes: [u8; ANSWER_LEN_MAX],
}

/// What a frame that is no packet of a stream wants.
pub(super) enum Want {
    /// This.
    Answer(Answer),
    /// ARP or ND that asks nothing of us.
    Nothing,
    /// Something that hosts of ours do not speak of.
    Unknown,
}

impl Answer {
    /// The frame.
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len.into()).unwrap_or_default()
    }

    fn written(write: impl FnOnce(&mut [u8]) -> Option<usize>) -> Option<Answer> {
        let mut bytes = [0; ANSWER_LEN_MAX];
        let len = write(&mut bytes)?.try_into().ok()?;
        Some(Answer { len, bytes })
    }
}

/// What the hosts at `station` say to this frame.
#[cold]
pub(super) fn want(frame: &[u8], station: Mac) -> Want {
    let Some(view) = ethernet::View::checked(frame) else { return Want::Unknown };
    let known = match view.ether_type() {
        ether_type::ARP => arp(&view, station),
        ether_type::IPV6 => neighbour(&view, station),
        _ => None,
    };
    known.or_else(|| echo(frame, &view, station)).unwrap_or(Want::Unknown)
}

fn arp(view: &ethernet::View<'_>, station: Mac) -> Option<Want> {
    let packet = arp::Packet::checked(view.payload())?;
    let asks = packet.operation == arp::Operation::Request
        && !packet.is_probe()
        && !packet.is_announcement();
    if !asks {
        return Some(Want::Nothing);
    }
    let reply = packet.answer(station);
    Answer::written(|buf| reply.emit_frame(buf, packet.sender_mac)).map(Want::Answer)
}

fn neighbour(view: &ethernet::View<'_>, station: Mac) -> Option<Want> {
    let question = match nd::Message::checked(view.payload())? {
        nd::Message::Solicitation(question) if !question.source.is_unspecified() => question,
        _ => return Some(Want::Nothing),
    };
    let answer =
        nd::Advertisement { router: false, ..nd::Advertisement::answer(&question, station) };
    let asker = question.link_layer.unwrap_or(view.source());
    Answer::written(|buf| answer.emit(buf, station, asker)).map(Want::Answer)
}

fn echo(frame: &[u8], view: &ethernet::View<'_>, station: Mac) -> Option<Want> {
    if view.destination() != station {
        return None;
    }
    let reply = |buf: &mut [u8]| {
        let buf = buf.get_mut(..frame.len())?;
        buf.copy_from_slice(frame);
        let (header, packet) = buf.split_at_mut_checked(ethernet::HEADER_LEN)?;
        match view.ether_type() {
            ether_type::IPV4 => {
                let request =
                    ipv4::View::checked(packet).filter(|view| view.has_valid_checksum())?;
                // The reply is never cut: it returns by the link that carried the request.
                let identification = request.identification();
                echo_reply_v4(packet, identification)?;
            }
            ether_type::IPV6 => echo_reply_v6(packet)?,
            _ => return None,
        }
        ethernet::emit(header, view.source(), station, view.ether_type())?;
        Some(frame.len())
    };
    Answer::written(reply).map(Want::Answer)
}
