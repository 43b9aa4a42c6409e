//! Packets that we write into frames ourselves, instead of a device.

use manylane_frame::{Frame, Pool, View};

/// A packet of `len` bytes whose first frame's window begins at `head`. `fill` writes each frame's bytes,
/// in order, with the region's view to read others by. `None`, with nothing taken, when the pool has not
/// enough frames.
///
/// # Panics
///
/// When the packet is of more frames than a chain can have.
#[inline]
pub(super) fn write(
    pool: &mut Pool,
    mut head: u16,
    len: usize,
    mut fill: impl FnMut(View<'_>, &mut [u8]),
) -> Option<Frame> {
    let frame_size = pool.region().frame_size() as u16; // 4096 at most.
    let mut left = len;
    let mut packet: Option<Frame> = None;
    loop {
        let Some(mut frame) = pool.take() else {
            packet.into_iter().for_each(|packet| pool.give_back(packet));
            return None;
        };
        let view = pool.region().view();
        let bytes = left.min((frame_size - head).into());
        view.set_window(&mut frame, head, head + bytes as u16);
        fill(view, view.bytes_mut(&mut frame));
        (left, head) = (left - bytes, 0);
        match &mut packet {
            None => packet = Some(frame),
            Some(first) => view.append(first, frame).expect("the packet is not too large"),
        }
        if left == 0 {
            return packet;
        }
    }
}

#[cfg(test)]
mod tests {
    use manylane_frame::{Depot, HEADROOM, Pool, Region, RegionConfig};

    use super::*;

    #[test]
    fn a_packet_that_the_pool_is_too_small_for_takes_nothing() {
        let mut pool = pool(3);
        assert!(write(&mut pool, HEADROOM, 3 * 2048, |_, _| {}).is_none());
        let fits = packet(&mut pool, HEADROOM, 2 * 2048);
        pool.give_back(fits);
        let all = Vec::from_iter(std::iter::from_fn(|| pool.take()));
        assert_eq!(all.len(), 3);
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

    fn pool(frames: u32) -> Pool {
        let region = Region::new(RegionConfig { frames, frame_size: 2048 });
        let depot = Depot::new(region.expect("some KiB can be mapped"), 1);
        depot.expect("the frames are there").pool()
    }
}
