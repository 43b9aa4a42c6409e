//! IPv4 fragmentation (RFC 791 §3.2): a packet too large for its egress port, cut in pieces that fit.

use manylane_frame::vocabulary::DropReason;
use manylane_frame::{Frame, HEADROOM, Pool};

use super::LINK_HEADER;
use super::parts::{self, Cursor, Writer};
use super::prepare::{Made, Source};
use crate::wire::checksum::Sum;
use crate::wire::ipv4;

/// Cuts the packet in `frame`, link-layer header in front, into pieces of at most `mtu` bytes of IP and
/// `frames_max` frames, at the end of `pieces`, in order. The first stays in the packet's own frame, if
/// it has but one, and is not in the list then.
pub(super) fn fragment(
    pool: &mut Pool,
    frame: &mut Frame,
    mtu: usize,
    frames_max: usize,
    pieces: &mut Vec<Frame>,
) -> Result<(Made, Source), DropReason> {
    let meta = pool.region().meta(frame);
    let plan = Plan::of(pool.region().bytes(frame), meta.packet_len(), mtu);
    let plan = plan.ok_or(DropReason::TooBig)?;
    let largest = LINK_HEADER + plan.header_len + plan.payload(0).len();
    if parts::frames_for(pool.region(), largest) > frames_max {
        return Err(DropReason::TooManyFragments);
    }
    let in_place = !frame.is_chained();
    let copied = usize::from(in_place)..plan.pieces();
    let mut first_header = [0; HEADER_MAX];
    let first_header = plan.first_header(pool.region().bytes(frame), &mut first_header);
    let mut later_header = [0; HEADER_MAX];
    let later_header = plan.later_header(first_header, &mut later_header);
    let header = |number| if number == 0 { &*first_header } else { &*later_header };
    let frames = copied.clone().map(|number| {
        parts::frames_for(pool.region(), header(number).len() + plan.payload(number).len())
    });
    let frames = frames.sum();
    let at = pieces.len();
    parts::reserve(pool, pieces, frames).ok_or(DropReason::NoFrame)?;
    let region = pool.region();
    let marks = parts::marks_at(region, frame, HEADROOM);
    let from = Cursor::new(region.view(), frame, plan.payload(copied.start).start);
    let mut writer = Writer::new(region, marks, from);
    for (at, number) in (at..).zip(copied) {
        let (header, len) = (header(number), plan.payload(number).len());
        writer.write(pieces, at, header, len);
        let packet = &mut region.bytes_mut(&mut pieces[at])[LINK_HEADER..];
        plan.finish(packet, header.len() - LINK_HEADER, number);
    }
    let source = if in_place { Source::First } else { Source::Used };
    if in_place {
        region.truncate(frame, plan.payload(0).end);
        plan.finish(&mut region.bytes_mut(frame)[LINK_HEADER..], plan.header_len, 0);
    }
    Ok((Made { pieces: plan.pieces(), completed: false }, source))
}

/// Where a packet is cut.
struct Plan {
    header_len: usize,
    /// End of the packet, from the frame's start.
    end: usize,
    /// Payload bytes of every piece but the last: a multiple of 8.
    step: usize,
    /// Offset of the packet's own payload in the packet it may be a fragment of, in units of 8 bytes.
    offset: u16,
    more_follow: bool,
}

impl Plan {
    fn of(bytes: &[u8], packet_len: usize, mtu: usize) -> Option<Plan> {
        let len = packet_len.checked_sub(LINK_HEADER)?;
        let view = ipv4::View::front(bytes.get(LINK_HEADER..)?, len)?;
        let header_len = view.header_len();
        let step = mtu.checked_sub(header_len)? & !7;
        let end = LINK_HEADER + usize::from(view.total_len());
        let offset = (view.fragment_offset() / 8) as u16;
        let plan = Plan { header_len, end, step, offset, more_follow: view.more_fragments() };
        // What a fragment holds must lie inside the longest possible packet. Beyond it, the last piece's offset would
        // not fit its 13 bits.
        let payload = usize::from(view.total_len()) - header_len; // `View` has compared them.
        let fits = view.fragment_offset() + payload <= usize::from(u16::MAX);
        (step > 0 && plan.pieces() > 1 && fits && !view.dont_fragment()).then_some(plan)
    }

    fn pieces(&self) -> usize {
        (self.end - LINK_HEADER - self.header_len).div_ceil(self.step)
    }

    /// Where the payload of piece `number` lies in the frame.
    fn payload(&self, number: usize) -> std::ops::Range<usize> {
        let start = LINK_HEADER + self.header_len + number * self.step;
        start..(start + self.step).min(self.end)
    }

    /// The headers of the first piece, with the link layer's, in `to`.
    fn first_header<'a>(&self, bytes: &[u8], to: &'a mut [u8; HEADER_MAX]) -> &'a [u8] {
        let len = LINK_HEADER + self.header_len;
        to[..len].copy_from_slice(&bytes[..len]);
        &to[..len]
    }

    /// The headers of the second and later pieces in `to`: of the options, only those with the copy flag
    /// (RFC 791 §3.1).
    fn later_header<'a>(&self, first: &[u8], to: &'a mut [u8; HEADER_MAX]) -> &'a [u8] {
        let (fixed, mut options) = first.split_at(LINK_HEADER + ipv4::HEADER_LEN);
        let mut end = fixed.len();
        to[..end].copy_from_slice(fixed);
        while let Some(&kind) = options.first() {
            let len = match (kind, options.get(1)) {
                (END_OF_OPTIONS, _) => break,
                (NO_OPERATION, _) => 1,
                (_, Some(&len)) if len >= 2 && usize::from(len) <= options.len() => len.into(),
                _ => break,
            };
            if kind & COPIED != 0 {
                to[end..end + len].copy_from_slice(&options[..len]);
                end += len;
            }
            options = &options[len..];
        }
        let len = LINK_HEADER + (end - LINK_HEADER).next_multiple_of(4);
        to[end..len].fill(END_OF_OPTIONS);
        &to[..len]
    }

    /// Writes what differs from piece to piece, and the checksum, into a packet's front.
    fn finish(&self, packet: &mut [u8], header_len: usize, number: usize) {
        let total_len = (header_len + self.payload(number).len()) as u16; // At most the MTU.
        let more = self.more_follow || number + 1 < self.pieces();
        let offset = self.offset + (number * self.step / 8) as u16;
        packet[0] = 0x40 | (header_len / 4) as u8;
        packet[2..4].copy_from_slice(&total_len.to_be_bytes());
        let flags = if more { MORE_FRAGMENTS } else { 0 };
        packet[6..8].copy_from_slice(&(flags | offset).to_be_bytes());
        packet[10..12].fill(0);
        let checksum = Sum::of(&packet[..header_len]).finish();
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
}

const HEADER_MAX: usize = LINK_HEADER + ipv4::HEADER_LEN_MAX;
const END_OF_OPTIONS: u8 = 0;
const NO_OPERATION: u8 = 1;
/// The flag of options that every fragment carries.
const COPIED: u8 = 0x80;
const MORE_FRAGMENTS: u16 = 0x2000;

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use super::*;

    /// Its last piece would begin at 65,536: the 13 bits would say 0, and the flag *more fragments*.
    #[test]
    fn a_fragment_that_ends_beyond_the_longest_packet_is_not_cut() {
        let frame = |offset: u16| {
            let mut frame = vec![0; LINK_HEADER + 20 + 1400];
            frame[LINK_HEADER] = 0x45;
            frame[LINK_HEADER + 2..][..2].copy_from_slice(&1420u16.to_be_bytes());
            frame[LINK_HEADER + 6..][..2].copy_from_slice(&offset.to_be_bytes());
            frame
        };
        let of = |offset| Plan::of(&frame(offset), LINK_HEADER + 1420, 1300);
        assert!(of(0).is_some());
        assert!(of(8016).is_some(), "it ends at 65,528");
        assert!(of(8018).is_none(), "it ends at 65,544");
    }
}
