//! Bytes of packets that lie in several frames: brought together, summed, copied into others.
//!
//! Drivers put at least the first 128 bytes of a packet, or all, in its first frame. The rules look for
//! headers there, so what came otherwise is brought there first, once, in a frame of its own.

use std::ops::Range;

use manylane_frame::vocabulary::Checksum;
use manylane_frame::{Frame, HEADROOM, Marks, Parts, Pool, Region, Trace, View};

use super::LINK_HEADER;
use crate::wire::checksum::Sum;
use crate::wire::ethernet::ether_type;
use crate::wire::ipv6;

/// A first frame with so much of the packet has the headers that every rule looks at.
const HEADERS: usize = 128;

/// Headers are looked for in this many bytes: an IPv4 and a TCP header with all options, or an IPv6 header with more
/// extensions than any sender uses.
pub(crate) const HEADERS_MAX: usize = 512;

/// Brings the headers of a chain into its first frame. A packet that fits in one frame ends up in one, and of a packet
/// with extension headers, which may be long, as much as fits. False when no frame is free for it.
pub(super) fn have_headers(pool: &mut Pool, frame: &mut Frame) -> bool {
    let room = capacity(pool.region());
    if pool.region().meta(frame).packet_len() <= room {
        return gather(pool, frame, usize::MAX);
    }
    gather(pool, frame, HEADERS)
        && (!has_extensions(pool.region().bytes(frame)) || gather(pool, frame, room))
}

fn has_extensions(bytes: &[u8]) -> bool {
    let next_header = bytes.get(LINK_HEADER + 6);
    bytes.get(12..14) == Some(&ether_type::IPV6.to_be_bytes())
        && next_header.is_some_and(|&next| ipv6::is_extension(next))
}

/// Brings the first `wanted` bytes of a packet into its first frame, or all of a shorter packet, or as many as fit in a
/// frame. False, and nothing changed, when no frame is free for it.
pub(super) fn gather(pool: &mut Pool, frame: &mut Frame, wanted: usize) -> bool {
    if !frame.is_chained() || pool.region().meta(frame).len() >= wanted {
        return true;
    }
    let Some(mut first) = pool.take() else { return false };
    let region = pool.region();
    let len = region.meta(frame).packet_len().min(capacity(region));
    region.set_window(&mut first, HEADROOM, HEADROOM + len as u16);
    region.view().copy_to(frame, 0, region.bytes_mut(&mut first));
    *region.meta_mut(&mut first) = marks_at(region, frame, HEADROOM);
    // The packet may be held, and looked at when it leaves.
    region.set_steered(&mut first, region.meta(frame).steered());
    region.view().set_sample(&mut first, region.meta(frame).sample());
    region.view().set_trace(&mut first, region.meta(frame).trace());
    region.view().set_trace(frame, Trace::NONE); // The frame returns to the pool.
    drop_front(pool, std::mem::replace(frame, first), len, frame);
    true
}

/// What follows the link-layer header in the packet's first frame, and in all its frames how many bytes.
/// The header is there: `judge` has looked.
pub(super) fn front<'a>(region: &'a Region, frame: &'a Frame) -> (&'a [u8], usize) {
    let front = &region.bytes(frame)[LINK_HEADER..];
    (front, region.meta(frame).packet_len() - LINK_HEADER)
}

/// Gives back the frames with the first `len` bytes of `whole`, and adds the others to `frame`.
fn drop_front(pool: &mut Pool, whole: Frame, mut len: usize, frame: &mut Frame) {
    let mut rest = Some(whole);
    while let Some(packet) = rest {
        let (mut part, more) = pool.region().view().split(packet);
        rest = more;
        let part_len = pool.region().meta(&part).len();
        if part_len <= len {
            len -= part_len;
            pool.give_back(part);
            continue;
        }
        pool.region().pull_front(&mut part, len as u16); // Below a frame's length.
        len = 0;
        let added = pool.region().view().append(frame, part);
        added.expect("it has no more frames than before");
    }
}

/// What is known of the packet of `frame`, for a copy of it whose first frame begins at `head`.
pub(super) fn marks_at(region: &Region, frame: &Frame, head: u16) -> Marks {
    let meta = region.meta(frame);
    let mut marks: Marks = **meta;
    if let Checksum::Partial { start, .. } = &mut marks.checksum {
        *start = start.wrapping_sub(meta.head()).wrapping_add(head);
    }
    marks
}

/// Bytes of a packet that a frame holds, beside the headroom that the next receiver may want.
pub(super) fn capacity(region: &Region) -> usize {
    region.frame_size() as usize - usize::from(HEADROOM)
}

/// Frames that a packet of `len` bytes needs.
pub(super) fn frames_for(region: &Region, len: usize) -> usize {
    len.div_ceil(capacity(region)).max(1)
}

/// `sum` with the packet's bytes from `base` on that are in `range`, counted from there. The first of them
/// is the upper half of a word, wherever it lies.
pub(super) fn sum(
    region: View<'_>,
    frame: &Frame,
    base: usize,
    range: Range<usize>,
    sum: Sum,
) -> Sum {
    let (start, mut left) = (base + range.start, range.len());
    let (mut sum, mut at, mut place) = (sum, 0, 0);
    for part in region.parts(frame) {
        let from = start.saturating_sub(at).min(part.len());
        at += part.len();
        let bytes = &part[from..][..left.min(part.len() - from)];
        sum = sum.plus_at(place, bytes);
        (place, left) = (place + bytes.len(), left - bytes.len());
        if left == 0 {
            break;
        }
    }
    sum
}

/// Writes a word into the packet, wherever its two bytes lie. `None`, and perhaps one of them written,
/// when it is beyond the end.
pub(super) fn put_word(
    region: View<'_>,
    frame: &mut Frame,
    mut at: usize,
    word: u16,
) -> Option<()> {
    let [high, low] = word.to_be_bytes();
    let (mut bytes, mut written) = ([high, low].into_iter().peekable(), 0);
    for part in region.parts_mut(frame) {
        while let (Some(place), Some(&byte)) = (part.get_mut(at), bytes.peek()) {
            *place = byte;
            bytes.next();
            (at, written) = (at + 1, written + 1);
        }
        at = at.saturating_sub(part.len());
    }
    (written == 2).then_some(())
}

/// A packet's bytes, read once from front to back.
pub(super) struct Cursor<'a> {
    parts: Parts<'a>,
    part: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// From the packet's byte `at` on.
    pub fn new(region: View<'a>, frame: &'a Frame, mut at: usize) -> Cursor<'a> {
        let mut parts = region.parts(frame);
        let mut part = parts.next().unwrap_or_default();
        while at > part.len() {
            at -= part.len();
            let Some(next) = parts.next() else { break };
            part = next;
        }
        Cursor { parts, part: part.get(at..).unwrap_or_default() }
    }

    /// Copies the next bytes into `to`, which is not longer than what is left.
    pub fn copy(&mut self, mut to: &mut [u8]) {
        while !to.is_empty() {
            let len = self.part.len().min(to.len());
            let (from, left) = self.part.split_at(len);
            let (into, rest) = to.split_at_mut(len);
            into.copy_from_slice(from);
            (self.part, to) = (left, rest);
            if !to.is_empty() {
                let Some(part) = self.parts.next() else { return };
                self.part = part;
            }
        }
    }
}

/// Takes the frames that the packets to be made need together, all or none, onto the end of the list, for a [`Writer`].
/// `None` when too few are free.
pub(super) fn reserve(pool: &mut Pool, list: &mut Vec<Frame>, frames: usize) -> Option<()> {
    let first = list.len();
    list.extend((0..frames).map_while(|_| pool.take()));
    if list.len() - first == frames {
        return Some(());
    }
    list.drain(first..).for_each(|frame| pool.give_back(frame));
    None
}

/// Makes packets of one: in reserved frames, each with its headers and the next bytes of the payload.
pub(super) struct Writer<'a> {
    region: &'a Region,
    /// What is known of each.
    marks: Marks,
    from: Cursor<'a>,
}

impl<'a> Writer<'a> {
    /// Of the bytes of `from`, copied with what is known of them.
    pub fn new(region: &'a Region, marks: Marks, from: Cursor<'a>) -> Writer<'a> {
        Writer { region, marks, from }
    }

    /// Makes a packet of `headers` and the next `len` bytes in the reserved frame `list[at]`, and as many
    /// more from the end of the list as it takes. The headers fit in a frame.
    pub fn write(&mut self, list: &mut Vec<Frame>, at: usize, headers: &[u8], len: usize) {
        let room = capacity(self.region);
        let mut left = len;
        let here = left.min(room - headers.len());
        let frame = &mut list[at];
        self.blank(frame, headers.len() + here);
        let (to, payload) = self.region.bytes_mut(frame).split_at_mut(headers.len());
        to.copy_from_slice(headers);
        self.from.copy(payload);
        left -= here;
        while left > 0 {
            let mut part = list.pop().expect("as many were reserved as it takes");
            let here = left.min(room);
            self.blank(&mut part, here);
            self.from.copy(self.region.bytes_mut(&mut part));
            left -= here;
            let added = self.region.view().append(&mut list[at], part);
            added.expect("the caller has looked that it is no longer than a chain");
        }
    }

    fn blank(&self, frame: &mut Frame, len: usize) {
        *self.region.meta_mut(frame) = self.marks;
        self.region.set_window(frame, HEADROOM, HEADROOM + len as u16);
    }
}
