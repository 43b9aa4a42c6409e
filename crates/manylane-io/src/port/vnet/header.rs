//! The virtio header (`struct virtio_net_hdr`), and its meaning in our terms.

use manylane_frame::Meta;
use manylane_frame::vocabulary::{Checksum, SegmentKind, Segments};

/// The size of the header in bytes.
pub const HEADER: usize = 10;
const _: () = assert!(size_of::<Header>() == HEADER);

/// `struct virtio_net_hdr`, in the machine's byte order: the kernel's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Header {
    flags: u8,
    kind: u8,
    /// Bytes that should not be scattered: a hint.
    header_len: u16,
    segment_size: u16,
    checksum_start: u16,
    checksum_offset: u16,
}

/// The header describes something unknown, or something outside the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidHeader;

impl Header {
    /// Reads the header that the kernel wrote.
    #[inline]
    pub fn read(bytes: [u8; HEADER]) -> Header {
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Header {
            flags: bytes[0],
            kind: bytes[1],
            header_len: word(2),
            segment_size: word(4),
            checksum_start: word(6),
            checksum_offset: word(8),
        }
    }

    /// The marks that the header implies for a packet whose first frame has its bytes from `head` to `tail`.
    #[inline]
    pub fn marks(&self, head: u16, tail: u16) -> Result<(Checksum, Segments), InvalidHeader> {
        if self.flags & NEEDS_CHECKSUM == 0 && self.kind == 0 {
            return Ok((Checksum::Valid, Segments::NONE)); // As valid as a packet from a wire.
        }
        let checksum = match self.flags & NEEDS_CHECKSUM {
            0 => Checksum::Valid,
            _ => {
                let start = head.checked_add(self.checksum_start).ok_or(InvalidHeader)?;
                let end = start.checked_add(self.checksum_offset).and_then(|at| at.checked_add(2));
                if end.is_none_or(|end| end > tail) {
                    return Err(InvalidHeader);
                }
                Checksum::Partial { start, offset: self.checksum_offset }
            }
        };
        let kind = match self.kind & !ECN {
            0 => SegmentKind::None,
            TCP4 => SegmentKind::Tcp4,
            TCP6 => SegmentKind::Tcp6,
            UDP => SegmentKind::Udp,
            _ => return Err(InvalidHeader),
        };
        let segments = match kind {
            SegmentKind::None => Segments::NONE,
            _ if self.segment_size == 0 => return Err(InvalidHeader),
            _ => Segments { kind, ecn: self.kind & ECN != 0, size: self.segment_size },
        };
        Ok((checksum, segments))
    }

    /// The header for a packet with these marks.
    #[inline]
    pub fn of(meta: &Meta) -> Header {
        let mut header = Header::default();
        if let Checksum::Partial { start, offset } = meta.checksum {
            header.flags = NEEDS_CHECKSUM;
            // Below 0 is a bug of the caller: it wraps, and the kernel rejects the packet.
            header.checksum_start = start.wrapping_sub(meta.head());
            header.checksum_offset = offset;
            // The part that a host parses should be contiguous: up to the end of the largest header
            // possible there, TCP's 60 bytes (RFC 9293 §3.1).
            let most = meta.len().min(usize::from(u16::MAX)) as u16;
            header.header_len = header.checksum_start.saturating_add(60).min(most);
        }
        let Segments { kind, ecn, size } = meta.segments;
        header.kind = match kind {
            SegmentKind::None => return header,
            SegmentKind::Tcp4 => TCP4,
            SegmentKind::Tcp6 => TCP6,
            SegmentKind::Udp => UDP,
        };
        if ecn {
            header.kind |= ECN;
        }
        header.segment_size = size;
        header
    }
}

// linux/virtio_net.h.
const NEEDS_CHECKSUM: u8 = 1;
const TCP4: u8 = 1;
const TCP6: u8 = 4;
const UDP: u8 = 5;
const ECN: u8 = 0x80;

#[cfg(test)]
mod tests {
    use super::*;
    use manylane_frame::vocabulary::{PortId, QueueId};
    use manylane_frame::{Depot, Region, RegionConfig};

    const SEGMENT: Header = Header {
        flags: NEEDS_CHECKSUM,
        kind: TCP4 | ECN,
        header_len: 94,
        segment_size: 1448,
        checksum_start: 34,
        checksum_offset: 16,
    };

    /// The marks are offsets into the slot, those of the header into the packet: so a header
    /// inserted in front of the packet changes one and not the other.
    #[test]
    fn what_was_read_is_written_also_after_the_packet_grew_in_front() {
        let region = Region::new(RegionConfig { frames: 1, frame_size: 2048 });
        let depot = Depot::new(region.expect("a page can be mapped"), 1).expect("one frame");
        let mut pool = depot.pool();
        let mut frame = pool.take().expect("there is one");
        let region = pool.region().clone();
        region.set_window(&mut frame, 256, 2048);
        region.set_ingress(&mut frame, PortId(0), QueueId(0), Checksum::Valid);
        assert_eq!(Header::of(region.meta(&frame)), Header::default());

        let (checksum, segments) = SEGMENT.marks(256, 2048).expect("all of it is known");
        assert_eq!(checksum, Checksum::Partial { start: 290, offset: 16 });
        assert_eq!(segments, Segments { kind: SegmentKind::Tcp4, ecn: true, size: 1448 });
        let marks = region.meta_mut(&mut frame);
        (marks.checksum, marks.segments) = (checksum, segments);
        assert_eq!(Header::of(region.meta(&frame)), SEGMENT);

        region.push_front(&mut frame, 4).expect("there is headroom");
        let moved = Header { checksum_start: 38, header_len: 98, ..SEGMENT };
        assert_eq!(Header::of(region.meta(&frame)), moved);
        pool.give_back(frame);
    }

    #[test]
    fn a_header_is_read_as_the_kernel_lays_it_out() {
        let mut bytes = [0; HEADER];
        bytes[0] = 1;
        bytes[1] = 5;
        bytes[4..6].copy_from_slice(&1400u16.to_ne_bytes());
        bytes[6..8].copy_from_slice(&34u16.to_ne_bytes());
        bytes[8..].copy_from_slice(&6u16.to_ne_bytes());
        let (checksum, segments) = Header::read(bytes).marks(256, 2048).expect("all is known");
        assert_eq!(checksum, Checksum::Partial { start: 290, offset: 6 });
        assert_eq!(segments, Segments { kind: SegmentKind::Udp, ecn: false, size: 1400 });
    }

    #[test]
    fn an_unknown_or_impossible_header_is_invalid() {
        let plain = Header { flags: 2, ..Header::default() }; // DATA_VALID
        assert_eq!(plain.marks(256, 300), Ok((Checksum::Valid, Segments::NONE)));
        for invalid in [
            Header { kind: 3, ..SEGMENT }, // UFO, which kernels no longer send
            Header { segment_size: 0, ..SEGMENT },
            Header { checksum_start: 1800, ..SEGMENT },
            Header { checksum_start: u16::MAX, ..SEGMENT },
            Header { checksum_offset: u16::MAX, ..SEGMENT },
        ] {
            assert_eq!(invalid.marks(256, 2048), Err(InvalidHeader), "{invalid:?}");
        }
    }
}
