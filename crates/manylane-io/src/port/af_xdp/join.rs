//! Reassembly of packets in several frames from their descriptors.

use manylane_frame::{Frame, Pool, Region};

/// Assembles the packet whose frames are arriving.
pub(super) struct Joiner {
    begun: Partial,
    /// Bytes of the largest accepted packet among those in several frames.
    packet_max: usize,
    too_large: u64,
}

/// The state of a packet whose last frame has not arrived.
enum Partial {
    /// No packet: the next frame is a packet's first.
    Nothing,
    /// The packet's first frames.
    Packet(Frame),
    /// A part was missing or one too many: the rest of the packet is dropped too.
    Lost,
}

impl Joiner {
    pub fn new(packet_max: usize) -> Joiner {
        Joiner { begun: Partial::Nothing, packet_max, too_large: 0 }
    }

    /// Adds the next `part`, `None` if its descriptor was invalid; `more` says whether the packet continues after it.
    /// Returns the packet once it is whole. A packet that cannot become whole returns to `pool`,
    /// with all its frames.
    #[cold]
    pub fn join(&mut self, part: Option<Frame>, more: bool, pool: &mut Pool) -> Option<Frame> {
        let begun = match (self.take(), part) {
            (Partial::Nothing, Some(first)) => Partial::Packet(first),
            (Partial::Packet(frame), Some(part)) => self.append(frame, part, pool),
            (Partial::Packet(frame), None) => lose(frame, pool),
            (Partial::Lost, Some(part)) => lose(part, pool),
            (Partial::Nothing | Partial::Lost, None) => Partial::Lost,
        };
        match begun {
            begun if more => {
                self.begun = begun;
                None
            }
            Partial::Packet(frame) => Some(frame),
            Partial::Nothing | Partial::Lost => None,
        }
    }

    /// Returns the frames that have arrived to `pool`; returns how many.
    pub fn abandon(&mut self, pool: &mut Pool) -> usize {
        let frames = self.frames(pool.region());
        if let Partial::Packet(frame) = self.take() {
            pool.give_back(frame);
        }
        frames
    }

    /// Whether the next frame is a packet's first.
    #[inline(always)]
    pub fn is_idle(&self) -> bool {
        matches!(self.begun, Partial::Nothing)
    }

    /// The number of frames it holds.
    pub fn frames(&self, region: &Region) -> usize {
        match &self.begun {
            Partial::Packet(frame) => region.meta(frame).frames(),
            Partial::Nothing | Partial::Lost => 0,
        }
    }

    /// Packets dropped for their size.
    pub fn too_large(&self) -> u64 {
        self.too_large
    }

    fn append(&mut self, mut frame: Frame, part: Frame, pool: &mut Pool) -> Partial {
        let view = pool.region().view();
        let len = view.meta(&frame).packet_len() + view.meta(&part).len();
        let refused = match len > self.packet_max {
            true => part,
            false => match view.append(&mut frame, part) {
                Ok(()) => return Partial::Packet(frame),
                Err(part) => part,
            },
        };
        self.too_large += 1;
        pool.give_back(refused);
        lose(frame, pool)
    }

    fn take(&mut self) -> Partial {
        std::mem::replace(&mut self.begun, Partial::Nothing)
    }
}

fn lose(frame: Frame, pool: &mut Pool) -> Partial {
    pool.give_back(frame);
    Partial::Lost
}

#[cfg(test)]
mod tests {
    use super::*;
    use manylane_frame::vocabulary::{Checksum, PortId, QueueId};
    use manylane_frame::{CHAIN_MAX, Depot, RegionConfig};

    #[test]
    fn parts_become_a_packet_with_the_last() {
        let mut lab = Lab::new();
        assert!(lab.join(Some(b"one "), true).is_none());
        assert!(lab.join(Some(b"two "), true).is_none());
        assert_eq!(lab.joiner.frames(lab.pool.region()), 2);
        let packet = lab.join(Some(b"three"), false).expect("that was all");
        let bytes: Vec<u8> = lab.pool.region().view().parts(&packet).flatten().copied().collect();
        assert_eq!(bytes, b"one two three");
        assert!(lab.joiner.is_idle());
        lab.pool.give_back(packet);
        lab.assert_all_home(0);
    }

    /// A packet without one of its parts is dropped: wherever the part is missing, all others go back, and the
    /// next packet is whole again.
    #[test]
    fn a_packet_that_misses_a_part_is_dropped_whole() {
        for missing in 0..4 {
            let mut lab = Lab::new();
            for part in 0..4 {
                let bytes = (part != missing).then_some(&b"part"[..]);
                assert!(lab.join(bytes, part < 3).is_none(), "part {missing} is missing");
            }
            assert!(lab.joiner.is_idle());
            let next = lab.join(Some(b"next"), false).expect("it is whole");
            assert!(!next.is_chained());
            lab.pool.give_back(next);
            lab.assert_all_home(0);
        }
    }

    #[test]
    fn a_packet_of_too_many_parts_is_dropped_whole_and_counted_once() {
        let mut lab = Lab::new();
        for part in 1..=CHAIN_MAX + 3 {
            assert!(lab.join(Some(b"x"), part < CHAIN_MAX + 3).is_none());
        }
        assert!(lab.joiner.is_idle());
        lab.assert_all_home(1);
    }

    #[test]
    fn a_packet_of_too_many_bytes_is_dropped_whole_and_counted_once() {
        let mut lab = Lab::new();
        assert!(lab.join(Some(&[1; 600]), true).is_none());
        let packet = lab.join(Some(&[2; 400]), false).expect("1000 bytes may be");
        lab.pool.give_back(packet);
        assert!(lab.join(Some(&[1; 600]), true).is_none());
        assert!(lab.join(Some(&[2; 401]), true).is_none());
        assert!(lab.join(Some(&[3; 1]), false).is_none());
        assert!(lab.joiner.is_idle());
        lab.assert_all_home(1);
    }

    #[test]
    fn frames_of_an_incomplete_packet_are_returned() {
        let mut lab = Lab::new();
        assert_eq!(lab.joiner.abandon(&mut lab.pool), 0);
        for _ in 0..5 {
            assert!(lab.join(Some(b"x"), true).is_none());
        }
        assert_eq!(lab.joiner.abandon(&mut lab.pool), 5);
        lab.assert_all_home(0);
    }

    struct Lab {
        pool: Pool,
        joiner: Joiner,
    }

    impl Lab {
        fn new() -> Lab {
            let region = Region::new(RegionConfig { frames: FRAMES, frame_size: 2048 });
            let depot = Depot::new(region.expect("200 KiB can be mapped"), 1);
            let pool = depot.expect("the first taker").pool();
            Lab { pool, joiner: Joiner::new(PACKET_MAX) }
        }

        fn join(&mut self, bytes: Option<&[u8]>, more: bool) -> Option<Frame> {
            let part = bytes.map(|bytes| {
                let mut frame = self.pool.take().expect("there are more frames than parts");
                let view = self.pool.region().view();
                view.set_window(&mut frame, 256, 256 + bytes.len() as u16);
                view.set_ingress(&mut frame, PortId(0), QueueId(0), Checksum::Valid);
                view.bytes_mut(&mut frame).copy_from_slice(bytes);
                frame
            });
            self.joiner.join(part, more, &mut self.pool)
        }

        fn assert_all_home(&mut self, too_large: u64) {
            let frames = Vec::from_iter(std::iter::from_fn(|| self.pool.take()));
            assert_eq!(frames.len(), FRAMES as usize);
            frames.into_iter().for_each(|frame| self.pool.give_back(frame));
            assert_eq!(self.joiner.too_large(), too_large);
        }
    }

    const FRAMES: u32 = 100;
    const PACKET_MAX: usize = 1000;
}
