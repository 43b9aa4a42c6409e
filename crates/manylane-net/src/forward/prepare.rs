//! Turns a packet into what its egress port takes. Each step is done only where it must be, because all but the first
//! copy the packet:
//!
//! | the packet                                        | becomes                                       |
//! |---------------------------------------------------|-----------------------------------------------|
//! | has a partial checksum                            | complete, in place                            |
//! | is of segments                                    | its segments, in frames of their own          |
//! | is too large, IPv4, and may be cut                | fragments                                     |
//! | lies in more frames than the port takes           | copied into fewer, full ones                  |
//!
//! The results are in the order of the packet's bytes.

use manylane_frame::vocabulary::{Checksum, DropReason, Offload};
use manylane_frame::{CHAIN_MAX, Frame, HEADROOM, Meta, Pool, Region};

use super::{LINK_HEADER, fragment, parts, segment};
use crate::wire::udp;

/// What was done to a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prepared {
    /// Its checksum, or those of its segments, were computed here.
    pub completed: bool,
    /// The packet was copied into fewer frames.
    pub joined: bool,
    /// Segments it was cut into, besides the first: created.
    pub cut: u32,
    /// Fragments it, or its segments, were cut into, besides the first of each: created.
    pub fragments: u32,
}

/// Why a packet cannot leave so. The list is as it was.
#[derive(Debug)]
#[must_use = "it carries a frame"]
pub struct PrepareError {
    /// The packet.
    pub frame: Frame,
    /// The reason to drop it under.
    pub reason: DropReason,
}

/// What was made of a packet.
pub(super) struct Made {
    /// How many.
    pub pieces: usize,
    /// Their checksums were computed.
    pub completed: bool,
}

/// Whether a port takes a packet with this metadata as it is.
#[inline]
pub(super) fn takes(offload: Offload, meta: &Meta) -> bool {
    let is_partial = matches!(meta.checksum, Checksum::Partial { .. });
    meta.frames() <= usize::from(offload.frames_max)
        && (offload.checksum || !is_partial)
        && (offload.segments || !meta.segments.any())
}

/// Turns the packet in `frame`, link-layer header in front, into one or more that a port with this `offload` takes,
/// whose link carries `mtu` bytes of IP. Adds them to `pieces`, in the order of their bytes.
///
/// Frames are taken from `pool`, all that are needed or none. The caller keeps the list, so that nothing is allocated
/// for a packet.
pub fn prepare(
    pool: &mut Pool,
    mut frame: Frame,
    offload: Offload,
    mtu: u32,
    pieces: &mut Vec<Frame>,
) -> Result<Prepared, PrepareError> {
    let first = pieces.len();
    match make(pool, &mut frame, offload, mtu as usize, pieces) {
        Ok((prepared, Source::Used)) => {
            pool.give_back(frame);
            Ok(prepared)
        }
        Ok((prepared, Source::First)) => {
            pieces.insert(first, frame);
            Ok(prepared)
        }
        Err(reason) => {
            pieces.drain(first..).for_each(|piece| pool.give_back(piece));
            Err(PrepareError { frame, reason })
        }
    }
}

/// What became of the frames a packet lay in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// These frames hold the first of the pieces.
    First,
    /// Everything was copied out of them.
    Used,
}

fn make(
    pool: &mut Pool,
    frame: &mut Frame,
    offload: Offload,
    mtu: usize,
    pieces: &mut Vec<Frame>,
) -> Result<(Prepared, Source), DropReason> {
    let region = pool.region();
    let frames_max = usize::from(offload.frames_max).min(CHAIN_MAX);
    let meta = region.meta(frame);
    let (packet_len, is_partial) =
        (meta.packet_len(), matches!(meta.checksum, Checksum::Partial { .. }));
    let fits = parts::frames_for(region, packet_len) <= frames_max || meta.frames() <= frames_max;
    if meta.segments.any() {
        let plan = segment::Plan::find(pool, frame)?;
        let is_too_big = plan.largest() > mtu;
        if !offload.segments || is_too_big || !fits {
            if is_too_big {
                return cut_twice(pool, frame, &plan, (frames_max, mtu), pieces);
            }
            let limits = (frames_max, offload.checksum);
            let made = segment::cut(pool, frame, &plan, limits, pieces)?;
            let (completed, cut) = (made.completed, made.pieces as u32 - 1);
            return Ok((Prepared { completed, cut, ..Prepared::default() }, Source::Used));
        }
    } else if packet_len > LINK_HEADER + mtu {
        // A partial checksum would be one of the whole, which no receiver sees any more.
        if is_partial {
            complete(pool.region(), frame).ok_or(DropReason::OffloadInvalid)?;
        }
        let (made, source) = fragment::fragment(pool, frame, mtu, frames_max, pieces)?;
        let fragments = made.pieces as u32 - 1;
        let prepared = Prepared { completed: is_partial, fragments, ..Prepared::default() };
        return Ok((prepared, source));
    }
    let mut prepared = Prepared::default();
    if !fits {
        return Err(DropReason::TooManyFragments);
    }
    if is_partial && !offload.checksum {
        complete(pool.region(), frame).ok_or(DropReason::OffloadInvalid)?;
        prepared.completed = true;
    }
    if pool.region().meta(frame).frames() <= frames_max {
        return Ok((prepared, Source::First));
    }
    join(pool, frame, pieces)?;
    prepared.joined = true;
    Ok((prepared, Source::Used))
}

/// Cuts a packet of segments into these, and each, too large still, into fragments: its sender neither forbids
/// fragmentation nor discovers the path's MTU. Such packets are rare, so that a list may be made.
#[cold]
fn cut_twice(
    pool: &mut Pool,
    frame: &Frame,
    plan: &segment::Plan,
    (frames_max, mtu): (usize, usize),
    pieces: &mut Vec<Frame>,
) -> Result<(Prepared, Source), DropReason> {
    let mut segments = Vec::new();
    let made = segment::cut(pool, frame, plan, (CHAIN_MAX, false), &mut segments)?;
    let (completed, cut) = (made.completed, made.pieces as u32 - 1);
    let mut prepared = Prepared { completed, cut, ..Prepared::default() };
    let mut rest = segments.into_iter();
    let mut failed = None;
    for mut segment in rest.by_ref() {
        let meta = pool.region().meta(&segment);
        let first = pieces.len();
        let made = if meta.packet_len() > LINK_HEADER + mtu {
            fragment::fragment(pool, &mut segment, mtu, frames_max, pieces)
        } else if meta.frames() > frames_max {
            Err(DropReason::TooManyFragments)
        } else {
            Ok((Made { pieces: 1, completed: false }, Source::First)) // The last may be short.
        };
        match made {
            Ok((made, source)) => {
                prepared.fragments += made.pieces as u32 - 1;
                match source {
                    Source::First => pieces.insert(first, segment),
                    Source::Used => pool.give_back(segment),
                }
            }
            Err(reason) => {
                pool.give_back(segment);
                failed = Some(reason);
                break;
            }
        }
    }
    rest.for_each(|segment| pool.give_back(segment));
    match failed {
        None => Ok((prepared, Source::Used)),
        Some(reason) => Err(reason),
    }
}

/// Completes a partial checksum, of whatever protocol: the two offsets are all it needs. `None` when these lie outside
/// the packet.
pub(super) fn complete(region: &Region, frame: &mut Frame) -> Option<()> {
    let meta = region.meta(frame);
    let Checksum::Partial { start, offset } = meta.checksum else { return Some(()) };
    let (head, len) = (meta.head(), meta.packet_len());
    let start = usize::from(start.checked_sub(head)?);
    let field = start + usize::from(offset);
    if field + 2 > len {
        return None;
    }
    // The field holds the pseudo-header's sum, so that the sum over the bytes has it already.
    let sum = parts::sum(region.view(), frame, 0, start..len, Default::default());
    // In UDP 0 says "none". Elsewhere it is the same number (`wire::checksum`, "The two zeros").
    parts::put_word(region.view(), frame, field, udp::or_all_ones(sum.finish()))?;
    region.meta_mut(frame).checksum = Checksum::Valid;
    Some(())
}

/// Copies a packet into as few frames as it fits.
fn join(pool: &mut Pool, frame: &Frame, pieces: &mut Vec<Frame>) -> Result<(), DropReason> {
    let (at, len) = (pieces.len(), pool.region().meta(frame).packet_len());
    let frames = parts::frames_for(pool.region(), len);
    parts::reserve(pool, pieces, frames).ok_or(DropReason::NoFrame)?;
    let region = pool.region();
    let marks = parts::marks_at(region, frame, HEADROOM);
    let from = parts::Cursor::new(region.view(), frame, 0);
    parts::Writer::new(region, marks, from).write(pieces, at, &[], len);
    Ok(())
}
