//! Packets that stand for several (TSO, USO, GRO): how large their segments are, and cutting them.
//!
//! Every segment has the headers of the whole, with what differs from segment to segment:
//!
//! | field                     | in segment i                                    | as Linux does it       |
//! |---------------------------|-------------------------------------------------|------------------------|
//! | IPv4 total length         | headers and its payload                         | `inet_gso_segment`     |
//! | IPv4 identification       | the whole's + i                                 | `inet_gso_segment`     |
//! | IPv6 payload length       | as above, without the IPv6 header               | `ipv6_gso_segment`     |
//! | TCP sequence number       | the whole's + i times the size                  | `tcp_gso_segment`      |
//! | TCP FIN, PSH              | in the last only                                | `tcp_gso_segment`      |
//! | TCP CWR                   | in the first only (RFC 3168 §6.1.2)             | `tcp_gso_segment`      |
//! | UDP length                | header and its payload                          | `__udp_gso_segment`    |
//! | checksum                  | of its own; or partial, if the port takes it    |                        |
//!
//! Segments inside a tunnel pass where the egress port takes segments, and are not cut here: the headers of tunnel and
//! inner packet would differ as well.

use manylane_frame::vocabulary::{Checksum, DropReason, SegmentKind, Segments};
use manylane_frame::{CHAIN_MAX, Frame, HEADROOM, Pool, Region};

use super::parts::{self, Cursor, HEADERS_MAX, Writer};
use super::prepare::Made;
use crate::wire::checksum::Sum;
use crate::wire::ip::View;
use crate::wire::{ipv6, protocol, tcp, udp};

/// Most segments of a packet. 64 KiB with the least payload a TCP of today sends at a time (Linux
/// `TCP_MIN_MSS`, 88 bytes) are 745.
const SEGMENTS_MAX: usize = 1024;

/// Where a packet of segments is cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Where the IP header begins, from the frame's start: the length of the link-layer header.
    link: usize,
    /// Where the transport header begins.
    transport: usize,
    /// Where the headers end.
    headers: usize,
    /// Bytes behind the headers.
    payload: usize,
    /// Of these, how many in each segment but the last.
    size: usize,
    is_tcp: bool,
    /// The segments are of a packet in a tunnel: other headers than ours would have to be cut too.
    is_inner: bool,
}

impl Plan {
    /// Finds out how the packet in `frame` is cut, from headers in its first frame or brought there. An error when the
    /// packet is not what its port claims, or when no frame is free to bring them together in.
    pub fn find(pool: &mut Pool, frame: &mut Frame) -> Result<Plan, DropReason> {
        if let Some(plan) = Plan::of(pool.region(), frame, super::LINK_HEADER) {
            return Ok(plan);
        }
        if !parts::gather(pool, frame, HEADERS_MAX) {
            return Err(DropReason::NoFrame);
        }
        let plan = Plan::of(pool.region(), frame, super::LINK_HEADER);
        plan.ok_or(DropReason::OffloadInvalid)
    }

    /// As `find`, behind a link-layer header of `link` bytes.
    fn of(region: &Region, frame: &Frame, link: usize) -> Option<Plan> {
        let (bytes, meta) = (region.bytes(frame), region.meta(frame));
        let view = View::front(bytes.get(link..)?, meta.packet_len().checked_sub(link)?)?;
        let at = view.transport().filter(|at| at.fragment.is_whole())?;
        let claimed = match meta.segments.kind {
            SegmentKind::Tcp4 | SegmentKind::Tcp6 => protocol::TCP,
            SegmentKind::Udp => protocol::UDP,
            SegmentKind::None => return None,
        };
        let is_tcp = claimed == protocol::TCP;
        let field = if is_tcp { tcp::CHECKSUM_OFFSET } else { udp::CHECKSUM_OFFSET };
        let outer = link + at.offset;
        let transport = match meta.checksum {
            Checksum::Partial { start, offset } if usize::from(offset) == field => {
                usize::from(start).checked_sub(meta.head().into())?
            }
            Checksum::Partial { .. } => return None,
            _ => outer,
        };
        // A tunnel's segments are the inner packet's: its headers are further behind.
        let is_inner = transport > outer;
        let fits = match (meta.segments.kind, view) {
            _ if transport < outer => false,
            _ if is_inner => true,
            (SegmentKind::Tcp4, View::V6(_)) | (SegmentKind::Tcp6, View::V4(_)) => false,
            _ => at.protocol == claimed,
        };
        let len = match is_tcp {
            true => usize::from(bytes.get(transport + 12)? >> 4) * 4,
            false => udp::HEADER_LEN,
        };
        let headers = transport + len;
        let payload = (link + view.packet_len()).checked_sub(headers)?;
        let size = usize::from(meta.segments.size);
        let is_whole = len >= if is_tcp { tcp::HEADER_LEN } else { udp::HEADER_LEN };
        let is_here = headers <= bytes.len().min(HEADERS_MAX);
        let can_be = is_whole && is_here && fits && size > 0;
        let plan = Plan { link, transport, headers, payload, size, is_tcp, is_inner };
        (can_be && plan.count() <= SEGMENTS_MAX).then_some(plan)
    }

    /// Bytes of IP of the largest segment.
    pub fn largest(&self) -> usize {
        self.headers - self.link + self.size.min(self.payload)
    }

    fn count(&self) -> usize {
        self.payload.div_ceil(self.size).max(1)
    }

    /// Payload bytes of segment `number`.
    fn len(&self, number: usize) -> usize {
        (self.payload - number * self.size).min(self.size)
    }

    /// Frames that all segments need.
    fn frames(&self, region: &Region) -> usize {
        let last = self.count() - 1;
        let frames = |number| parts::frames_for(region, self.headers + self.len(number));
        last * frames(0) + frames(last)
    }
}

/// Cuts the packet in `frame`, as planned, into segments of at most `frames_max` frames each at the end of `pieces`.
/// With partial checksums, if the egress port takes them.
pub(super) fn cut(
    pool: &mut Pool,
    frame: &Frame,
    plan: &Plan,
    (frames_max, leaves_partial): (usize, bool),
    pieces: &mut Vec<Frame>,
) -> Result<Made, DropReason> {
    if plan.is_inner {
        return Err(DropReason::OffloadInvalid);
    }
    let largest = plan.headers + plan.len(0);
    if parts::frames_for(pool.region(), largest) > frames_max.min(CHAIN_MAX) {
        return Err(DropReason::TooManyFragments);
    }
    let base = Base::of(pool.region(), frame, plan).ok_or(DropReason::OffloadInvalid)?;
    let first = pieces.len();
    let frames = plan.frames(pool.region());
    parts::reserve(pool, pieces, frames).ok_or(DropReason::NoFrame)?;
    let region = pool.region();
    let mut marks = parts::marks_at(region, frame, HEADROOM);
    marks.segments = Segments::NONE;
    marks.checksum = Checksum::Valid;
    if leaves_partial && base.sum.is_some() {
        let start = HEADROOM + plan.transport as u16;
        marks.checksum = Checksum::Partial { start, offset: base.field as u16 };
    }
    let headers = &region.bytes(frame)[..plan.headers];
    let from = Cursor::new(region.view(), frame, plan.headers);
    let mut writer = Writer::new(region, marks, from);
    for number in 0..plan.count() {
        let (at, len) = (first + number, plan.len(number));
        writer.write(pieces, at, headers, len);
        plan.finish(&mut region.bytes_mut(&mut pieces[at])[..plan.headers], number, len);
        let Some(pseudo) = base.sum else { continue };
        let covered = plan.transport..plan.headers + len;
        let pseudo = pseudo.word(covered.len() as u16);
        let field = plan.transport + base.field;
        // With zeros in the field, a sum over the segment, which the copy has left in the cache.
        region.bytes_mut(&mut pieces[at])[field..field + 2].fill(0);
        let checksum = if leaves_partial {
            pseudo.fold()
        } else {
            let sum = parts::sum(region.view(), &pieces[at], 0, covered, pseudo).finish();
            if plan.is_tcp { sum } else { udp::or_all_ones(sum) }
        };
        let checksum = checksum.to_be_bytes();
        region.bytes_mut(&mut pieces[at])[field..field + 2].copy_from_slice(&checksum);
    }
    Ok(Made { pieces: plan.count(), completed: base.sum.is_some() && !leaves_partial })
}

/// What the checksums of all segments have in common.
struct Base {
    /// The pseudo-header's sum without the length; `None` for UDP without a checksum.
    sum: Option<Sum>,
    /// Where the checksum is in the transport header.
    field: usize,
}

impl Base {
    /// `None` when the addresses of the pseudo-header are unknown, and its sum is not there either.
    fn of(region: &Region, frame: &Frame, plan: &Plan) -> Option<Base> {
        let (bytes, meta) = (region.bytes(frame), region.meta(frame));
        let field = if plan.is_tcp { tcp::CHECKSUM_OFFSET } else { udp::CHECKSUM_OFFSET };
        let is_partial = matches!(meta.checksum, Checksum::Partial { .. });
        let at = plan.transport + field;
        let found = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        if found == 0 && !plan.is_tcp && !is_partial {
            return Some(Base { sum: None, field });
        }
        let view = View::front(&bytes[plan.link..], meta.packet_len() - plan.link)?;
        let transport = view.transport()?;
        let sum = match transport.final_addresses {
            true => view.pseudo_header(transport.protocol, 0)?,
            // With hops left of a source route, the pseudo-header has an address that we do not know.
            // But a partial checksum is its sum, with the length of the whole: less that, it will do.
            false if is_partial => {
                let whole = plan.headers - plan.transport + plan.payload;
                Sum::default().word(found).word(!(whole as u16))
            }
            false => return None,
        };
        Some(Base { sum: Some(sum), field })
    }
}

impl Plan {
    /// Writes what differs from segment to segment, but the checksum of the transport.
    fn finish(&self, headers: &mut [u8], number: usize, len: usize) {
        let (front, transport) = headers.split_at_mut(self.transport);
        let packet_len = (self.headers - self.link + len) as u16; // Not above the whole's.
        let header = &mut front[self.link..];
        if header[0] >> 4 == 4 {
            header[2..4].copy_from_slice(&packet_len.to_be_bytes());
            let identification = u16::from_be_bytes([header[4], header[5]]);
            let identification = identification.wrapping_add(number as u16);
            header[4..6].copy_from_slice(&identification.to_be_bytes());
            header[10..12].fill(0);
            let checksum = Sum::of(header).finish();
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
        } else {
            let payload_len = packet_len - ipv6::HEADER_LEN as u16;
            header[4..6].copy_from_slice(&payload_len.to_be_bytes());
        }
        if self.is_tcp {
            let sequence: [u8; 4] = [transport[4], transport[5], transport[6], transport[7]];
            let sequence = u32::from_be_bytes(sequence);
            let sequence = sequence.wrapping_add((number * self.size) as u32);
            transport[4..8].copy_from_slice(&sequence.to_be_bytes());
            if number + 1 < self.count() {
                transport[13] &= !(tcp::flags::FIN | tcp::flags::PSH);
            }
            if number > 0 {
                transport[13] &= !tcp::flags::CWR;
            }
        } else {
            let datagram_len = (udp::HEADER_LEN + len) as u16;
            transport[4..6].copy_from_slice(&datagram_len.to_be_bytes());
        }
    }
}
