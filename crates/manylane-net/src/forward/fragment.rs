//! IPv4 fragmentation (RFC 791 §3.2): a packet too large for its exit, cut in pieces that fit.

use manylane_frame::vocabulary::DropReason;
use manylane_frame::{Frame, HEADROOM, Pool};

use super::LINK_HEADER;
use crate::wire::checksum::Sum;
use crate::wire::ipv4;

/// Why a packet was not cut. The frame is as it was.
#[derive(Debug)]
#[must_use = "it carries a frame"]
pub struct FragmentError {
    /// The packet.
    pub frame: Frame,
    /// The reason to drop it under.
    pub reason: DropReason,
}

/// Cuts the packet in `frame`, link-layer header in front, into pieces of at most `mtu` bytes of IP.
/// They come out in order: the first in the received frame, the others in frames from `pool`.
pub fn fragment(
    pool: &mut Pool,
    mut frame: Frame,
    mtu: u32,
    pieces: &mut Vec<Frame>,
) -> Result<(), FragmentError> {
    let Some(plan) = Plan::of(pool.region().bytes(&frame), mtu as usize) else {
        return Err(FragmentError { frame, reason: DropReason::TooBig });
    };
    let first = pieces.len();
    pieces.extend((1..plan.pieces()).map_while(|_| pool.take()));
    if pieces.len() - first + 1 < plan.pieces() {
        pieces.drain(first..).for_each(|piece| pool.give_back(piece));
        return Err(FragmentError { frame, reason: DropReason::NoFrame });
    }
    let region = pool.region();
    for (number, piece) in (1..).zip(&mut pieces[first..]) {
        let (bytes, meta) = (region.bytes(&frame), region.meta(&frame));
        region.set_entry(piece, meta.entry, meta.queue, meta.checksum);
        region.meta_mut(piece).own = meta.own;
        let header = plan.later_header(bytes);
        let payload = &bytes[plan.payload(number)];
        let len = LINK_HEADER + header.len() + payload.len();
        region.set_window(piece, HEADROOM, HEADROOM + len as u16);
        let to = region.bytes_mut(piece);
        to[..LINK_HEADER].copy_from_slice(&bytes[..LINK_HEADER]);
        to[LINK_HEADER..][..header.len()].copy_from_slice(&header);
        to[LINK_HEADER + header.len()..].copy_from_slice(payload);
        plan.finish(&mut to[LINK_HEADER..], header.len(), number);
    }
    region.truncate(&mut frame, plan.payload(0).end);
    plan.finish(&mut region.bytes_mut(&mut frame)[LINK_HEADER..], plan.header_len, 0);
    pieces.insert(first, frame);
    Ok(())
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
    fn of(bytes: &[u8], mtu: usize) -> Option<Plan> {
        let view = ipv4::View::checked(bytes.get(LINK_HEADER..)?)?;
        let header_len = view.header_len();
        let step = mtu.checked_sub(header_len)? & !7;
        let end = LINK_HEADER + usize::from(view.total_len());
        let offset = (view.fragment_offset() / 8) as u16;
        let plan = Plan { header_len, end, step, offset, more_follow: view.more_fragments() };
        // What a fragment holds must lie inside the longest packet there is. Beyond it, the last
        // piece's offset would not fit its 13 bits.
        let fits = view.fragment_offset() + view.payload().len() <= usize::from(u16::MAX);
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

    /// The header of the second and later pieces: of the options, only those with the copy flag
    /// (RFC 791 §3.1).
    fn later_header(&self, bytes: &[u8]) -> Vec<u8> {
        let (fixed, mut options) =
            bytes[LINK_HEADER..LINK_HEADER + self.header_len].split_at(ipv4::HEADER_LEN);
        let mut header = fixed.to_vec();
        while let Some(&kind) = options.first() {
            let len = match (kind, options.get(1)) {
                (END_OF_OPTIONS, _) => break,
                (NO_OPERATION, _) => 1,
                (_, Some(&len)) if len >= 2 && usize::from(len) <= options.len() => len.into(),
                _ => break,
            };
            if kind & COPIED != 0 {
                header.extend_from_slice(&options[..len]);
            }
            options = &options[len..];
        }
        header.resize(header.len().next_multiple_of(4), END_OF_OPTIONS);
        header
    }

    /// Writes what differs from piece to piece, and the checksum.
    fn finish(&self, packet: &mut [u8], header_len: usize, number: usize) {
        let total_len = packet.len() as u16;
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

const END_OF_OPTIONS: u8 = 0;
const NO_OPERATION: u8 = 1;
/// The flag of options that every fragment carries.
const COPIED: u8 = 0x80;
const MORE_FRAGMENTS: u16 = 0x2000;

#[cfg(test)]
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
        assert!(Plan::of(&frame(0), 1300).is_some());
        assert!(Plan::of(&frame(8016), 1300).is_some(), "it ends at 65,528");
        assert!(Plan::of(&frame(8018), 1300).is_none(), "it ends at 65,544");
    }
}
