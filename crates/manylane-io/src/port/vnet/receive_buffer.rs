//! Frames posted to receive a packet.

use std::cmp::Reverse;

use libc::iovec;
use manylane_frame::vocabulary::{PortId, QueueId};
use manylane_frame::{Frame, HEADROOM, Pool, Region};

use super::header::{HEADER, Header};
use super::iov;

/// Frames posted for one packet and its header: the first with the usual headroom, the
/// others whole. Frames that a packet leaves empty stay for the next.
///
/// # Invariants
///
/// 1. When `wanted` frames are posted, `iov` covers the bytes from `HEADROOM - HEADER` of the first one's
///    slot by its first entry, and those of all others, in order, by the rest; and nothing else.
/// 2. When all but the first are posted, the rest of `iov` covers them, or `iov` is empty: frames are
///    returned all at once, or it is cleared.
pub struct ReceiveBuffer {
    /// The first of a packet last, so that a packet takes its frames from the end.
    frames: Vec<Frame>,
    wanted: usize,
    iov: Vec<iovec>,
}

/// A received packet, or why it is invalid.
pub enum Received {
    /// The packet, headed by this frame, with its marks.
    Packet(Frame),
    /// Its header is invalid. The next packet reuses its frames.
    InvalidHeader,
}

// SAFETY: `iov` is what makes the type not `Send`. Its pointers are to slots of frames that the buffer
// owns, and only ever given to system calls by the thread that has the buffer.
unsafe impl Send for ReceiveBuffer {}

impl ReceiveBuffer {
    /// For packets of up to `packet_max` bytes, in frames of `region`.
    pub fn new(region: &Region, packet_max: u32) -> ReceiveBuffer {
        let wanted = frames_for(packet_max, region.frame_size());
        ReceiveBuffer {
            frames: Vec::with_capacity(wanted),
            wanted,
            iov: Vec::with_capacity(wanted),
        }
    }

    /// Takes the missing frames from `pool`; false when it has not enough.
    #[inline]
    pub fn fill(&mut self, pool: &mut Pool) -> bool {
        let kept = self.frames.len();
        while self.frames.len() < self.wanted {
            let frames = pool.may_receive(self.wanted - self.frames.len());
            if frames == 0 {
                self.iov.clear();
                return false;
            }
            let taken = (0..frames).map(|_| pool.take().expect("the pool has just said so"));
            self.frames.extend(taken);
        }
        match self.wanted - kept {
            0 => {}
            1 if !self.iov.is_empty() => {
                // The common case, by invariant 2: a packet took the first frame only.
                self.iov[0].iov_base = first_base(pool.region(), &self.frames[kept]);
            }
            _ => {
                // Frames that circulate together stay together: in this order, frames once adjacent
                // in memory still are, however often they were returned.
                self.frames.sort_unstable_by_key(|frame| Reverse(frame.index()));
                self.describe(pool.region());
            }
        }
        true
    }

    /// The memory that the kernel may write to, when the buffer is full.
    #[inline]
    pub fn iov(&mut self) -> &mut [iovec] {
        debug_assert!(self.is_full(), "frames are missing");
        &mut self.iov
    }

    /// The bytes it can receive, with the header.
    pub fn capacity(&self) -> usize {
        self.iov.iter().map(|part| part.iov_len).sum()
    }

    /// The packet of `len` bytes, header included, that the kernel has written.
    ///
    /// # Panics
    ///
    /// When the buffer has less room than `len` bytes.
    #[inline]
    pub fn received(
        &mut self,
        region: &Region,
        len: usize,
        port: PortId,
        queue: QueueId,
    ) -> Received {
        let view = region.view();
        let frame_size = region.frame_size() as u16; // 4096 at most.
        let mut left = len.saturating_sub(HEADER);
        let first = left.min(usize::from(frame_size - HEADROOM));
        let tail = HEADROOM + first as u16;
        let frame = self.frames.last_mut().expect("a buffer has a frame");
        view.set_window(frame, HEADROOM - HEADER as u16, tail);
        let header = view.bytes(frame).first_chunk().copied().map(Header::read);
        let Ok((checksum, segments)) = header.expect("as long").marks(HEADROOM, tail) else {
            return Received::InvalidHeader;
        };
        let mut frame = self.frames.pop().expect("a buffer has a frame");
        view.set_window(&mut frame, HEADROOM, tail);
        view.set_ingress(&mut frame, port, queue, checksum);
        view.meta_mut(&mut frame).segments = segments;
        left -= first;
        while left > 0 {
            let mut part =
                self.frames.pop().expect("the kernel writes no more than there is room for");
            let bytes = left.min(frame_size.into());
            view.set_window(&mut part, 0, bytes as u16);
            view.append(&mut frame, part).expect("a buffer has fewer frames than a chain");
            left -= bytes;
        }
        Received::Packet(frame)
    }

    /// Whether it has all frames that the largest packet needs.
    pub fn is_full(&self) -> bool {
        self.frames.len() == self.wanted
    }

    /// The number of posted frames.
    pub fn frames(&self) -> usize {
        self.frames.len()
    }

    /// Returns all frames to `pool`; returns how many.
    pub fn give_back(&mut self, pool: &mut Pool) -> usize {
        self.iov.clear();
        self.frames.drain(..).map(|frame| pool.give_back(frame)).count()
    }

    /// Rebuilds `iov`.
    fn describe(&mut self, region: &Region) {
        let frame_size = region.frame_size() as usize;
        self.iov.clear();
        let mut frames = self.frames.iter().rev();
        let first = frames.next().expect("a buffer has a frame");
        self.iov.push(iovec {
            iov_base: first_base(region, first),
            iov_len: frame_size - usize::from(HEADROOM) + HEADER,
        });
        for frame in frames {
            iov::push(&mut self.iov, 1, slot(region, frame), frame_size);
        }
    }
}

fn first_base(region: &Region, frame: &Frame) -> *mut libc::c_void {
    slot(region, frame).wrapping_add(usize::from(HEADROOM) - HEADER).cast()
}

/// The start of the frame's slot. An address only: the kernel has it for the time of a system call, while
/// the buffer owns the frame; by `Frame` invariant 1 the slot is inside the region.
fn slot(region: &Region, frame: &Frame) -> *mut u8 {
    let offset = frame.index() as usize * region.frame_size() as usize;
    region.base().as_ptr().wrapping_add(offset)
}

/// The number of frames to post for packets of up to `packet_max` bytes; slightly larger ones may fit too.
pub const fn frames_for(packet_max: u32, frame_size: u32) -> usize {
    let beyond = packet_max.saturating_sub(frame_size - HEADROOM as u32);
    1 + beyond.div_ceil(frame_size) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use manylane_frame::{Depot, RESERVE, RegionConfig};

    const FRAMES: u32 = 128 + RESERVE as u32;

    #[test]
    fn a_packet_takes_as_many_frames_as_it_needs() {
        assert_eq!(frames_for(1518, 2048), 1);
        assert_eq!(frames_for(1792, 2048), 1);
        assert_eq!(frames_for(1793, 2048), 2);
        assert_eq!(frames_for(super::super::PACKET_MAX, 2048), 33);
        assert_eq!(frames_for(super::super::PACKET_MAX, 4096), 17);
    }

    /// Whichever frames were taken, and whether or not the pool had all missing ones.
    #[test]
    fn the_kernel_is_led_to_the_frames_that_are_there() {
        let (mut pool, mut buffer) = rig();
        assert!(buffer.fill(&mut pool));
        check(&mut buffer, pool.region());
        // The pool is fresh, so the frames lie one behind the other.
        assert_eq!(buffer.iov().len(), 2);
        for (bytes, frames) in [(60, 1), (1792, 1), (1793, 2), (9000, 5), (60, 1), (60_000, 30)] {
            let packet = receive(&mut buffer, pool.region(), bytes);
            let meta = pool.region().meta(&packet);
            assert_eq!((meta.packet_len(), meta.frames()), (bytes, frames));
            assert_eq!(buffer.frames(), 33 - frames);
            assert!(buffer.fill(&mut pool));
            check(&mut buffer, pool.region());
            pool.give_back(packet);

            // The same when the pool has one too few at first.
            let packet = receive(&mut buffer, pool.region(), bytes);
            let mut held = Vec::from_iter(std::iter::from_fn(|| pool.take()));
            held.drain(..RESERVE + frames - 1).for_each(|frame| pool.give_back(frame));
            assert!(!buffer.fill(&mut pool));
            held.drain(..).for_each(|frame| pool.give_back(frame));
            assert!(buffer.fill(&mut pool));
            check(&mut buffer, pool.region());
            pool.give_back(packet);
        }
        buffer.give_back(&mut pool);
        let free = Vec::from_iter(std::iter::from_fn(|| pool.take()));
        assert_eq!(free.len(), FRAMES as usize);
        free.into_iter().for_each(|frame| pool.give_back(frame));
    }

    /// Whatever number of frames each packet took, and in whichever order they were returned: otherwise the kernel
    /// would copy 2 KiB at a time, by lists for which it must allocate.
    #[test]
    fn frames_that_lie_one_behind_the_other_still_do_when_they_have_gone_round() {
        let (mut pool, mut buffer) = rig();
        for bytes in [60_000, 3000, 45_000, 65_000, 60] {
            assert!(buffer.fill(&mut pool));
            assert_eq!(buffer.iov().len(), 2, "before {bytes} bytes");
            let packet = receive(&mut buffer, pool.region(), bytes);
            let meta = pool.region().meta(&packet);
            assert_eq!(meta.packet_len(), bytes);
            pool.give_back(packet);
        }
        buffer.give_back(&mut pool);
    }

    #[test]
    fn a_packet_with_an_invalid_header_costs_no_frame() {
        let (mut pool, mut buffer) = rig();
        assert!(buffer.fill(&mut pool));
        let header = buffer.iov()[0].iov_base.cast::<u8>();
        // SAFETY: as in `land`.
        unsafe { header.add(1).write(3) };
        let received = buffer.received(pool.region(), HEADER + 60, PortId(0), QueueId(0));
        assert!(matches!(received, Received::InvalidHeader));
        assert_eq!(buffer.frames(), 33);
        buffer.give_back(&mut pool);
    }

    fn rig() -> (Pool, ReceiveBuffer) {
        let region = Region::new(RegionConfig { frames: FRAMES, frame_size: 2048 });
        let depot = Depot::new(region.expect("some KiB can be mapped"), 1);
        let pool = depot.expect("the frames are there").pool();
        let buffer = ReceiveBuffer::new(pool.region(), super::super::PACKET_MAX);
        (pool, buffer)
    }

    fn receive(buffer: &mut ReceiveBuffer, region: &Region, bytes: usize) -> Frame {
        let header = buffer.iov()[0].iov_base.cast::<u8>();
        // SAFETY: the buffer owns the frame, whose headroom this is: the kernel would write there.
        unsafe { header.write_bytes(0, HEADER) };
        match buffer.received(region, HEADER + bytes, PortId(0), QueueId(0)) {
            Received::Packet(frame) => frame,
            Received::InvalidHeader => panic!("the header is all zeroes"),
        }
    }

    /// `ReceiveBuffer` invariant 1.
    fn check(buffer: &mut ReceiveBuffer, region: &Region) {
        let frames: Vec<_> = buffer.frames.iter().rev().map(|frame| slot(region, frame)).collect();
        let mut expected = vec![(frames[0].wrapping_add(246), 2048 - 246)];
        expected.extend(frames[1..].iter().map(|&slot| (slot, 2048)));
        let mut found = Vec::new();
        for part in buffer.iov() {
            let (mut base, mut left) = (part.iov_base.cast::<u8>(), part.iov_len);
            while left > 0 {
                let len = if found.is_empty() { left } else { left.min(2048) };
                found.push((base, len));
                (base, left) = (base.wrapping_add(len), left - len);
            }
        }
        assert_eq!(found, expected);
    }
}
