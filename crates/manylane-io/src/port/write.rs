//! Packets that we write into frames ourselves, in place of a device.

use manylane_frame::{Frame, Pool, View};

/// A packet of `len` bytes whose first frame's window begins at `head`. `fill` writes each frame's bytes,
/// in order, with the region's view to read others by. `None`, with no frame taken, when the pool has not
/// enough frames: the last of a list are reserved for packets already received ([`Pool::receive_packet`]).
///
/// # Panics
///
/// When the packet needs more frames than a chain can have.
#[inline]
pub(super) fn write(
    pool: &mut Pool,
    head: u16,
    len: usize,
    mut fill: impl FnMut(View<'_>, &mut [u8]),
) -> Option<Frame> {
    let mut packet = pool.receive_packet(head, len)?;
    let view = pool.region().view();
    view.parts_mut(&mut packet).for_each(|bytes| fill(view, bytes));
    Some(packet)
}

/// A copy of the packet, with its marks. Its first frame begins at the same offset as that of `frame`, so that
/// marks that are offsets into the slot stay valid. `None` when the pool has not enough frames.
#[inline]
pub(super) fn copy(pool: &mut Pool, frame: &Frame) -> Option<Frame> {
    let meta = pool.region().meta(frame);
    let (head, len) = (meta.head(), meta.packet_len());
    let mut offset = 0;
    let mut copy = write(pool, head, len, |view, to| offset += view.copy_to(frame, offset, to))?;
    let view = pool.region().view();
    *view.meta_mut(&mut copy) = **view.meta(frame);
    Some(copy)
}

#[cfg(test)]
mod tests {
    use manylane_frame::vocabulary::{Checksum, PortId, QueueId, SegmentKind, Segments};
    use manylane_frame::{Depot, HEADROOM, Pool, RESERVE, Region, RegionConfig};

    use super::*;

    #[test]
    fn a_copy_has_the_bytes_the_marks_and_the_place_of_the_first() {
        let mut pool = pool(80);
        for len in [0, 1, 60, 1792, 1793, 65_000] {
            let mut frame = packet(&mut pool, 300, len);
            let view = pool.region().view();
            let checksum = Checksum::Partial { start: 334, offset: 16 };
            view.set_ingress(&mut frame, PortId(3), QueueId(1), checksum);
            let segments = Segments { kind: SegmentKind::Tcp4, ecn: true, size: 1448 };
            view.meta_mut(&mut frame).segments = segments;

            let twin = copy(&mut pool, &frame).expect("there are frames");
            let view = pool.region().view();
            assert!(view.parts(&frame).flatten().eq(view.parts(&twin).flatten()), "{len} bytes");
            let meta = view.meta(&twin);
            assert_eq!((meta.packet_len(), meta.head(), meta.ingress), (len, 300, PortId(3)));
            assert_eq!((meta.checksum, meta.segments, meta.later), (checksum, segments, false));
            pool.give_back(frame);
            pool.give_back(twin);
        }
    }

    #[test]
    fn a_packet_that_the_pool_is_too_small_for_takes_nothing() {
        let mut pool = pool(3);
        assert!(write(&mut pool, HEADROOM, 3 * 2048, |_, _| {}).is_none());
        let fits = packet(&mut pool, HEADROOM, 2 * 2048);
        assert!(copy(&mut pool, &fits).is_none());
        pool.give_back(fits);
        let all = Vec::from_iter(std::iter::from_fn(|| pool.take()));
        assert_eq!(all.len(), 3 + RESERVE);
        all.into_iter().for_each(|frame| pool.give_back(frame));
    }

    fn packet(pool: &mut Pool, head: u16, len: usize) -> Frame {
        let mut next = 0u8;
        let packet = write(pool, head, len, |_, bytes| {
            bytes.fill_with(|| {
                next = next.wrapping_add(7);
                next
            });
        });
        packet.expect("there are frames")
    }

    /// A pool with `frames` frames for received packets.
    fn pool(frames: u32) -> Pool {
        let frames = frames + RESERVE as u32;
        let region = Region::new(RegionConfig { frames, frame_size: 2048 });
        let depot = Depot::new(region.expect("some KiB can be mapped"), 1);
        depot.expect("the frames are there").pool()
    }
}
