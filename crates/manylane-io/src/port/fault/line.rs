//! Applies the faults to packets, in either direction.

use manylane_frame::{Frame, Pool};

use super::super::write::copy;
use super::draw::{Draws, PacketFaults, below};
use super::hold::{Hold, Packet};
use super::{FaultConfig, FaultCounts};

/// One queue's packets of one direction.
pub(super) struct Line {
    config: FaultConfig,
    draws: Draws,
    pub(super) hold: Hold,
    pub(super) counts: FaultCounts,
    /// Whether duplicates are excluded from the ledger.
    copies: bool,
}

impl Line {
    /// Line `number` of those that share a seed; at most `ready` packets are ready to continue at a time.
    ///
    /// # Panics
    ///
    /// When the configuration is invalid ([`FaultConfig::check`]).
    pub(super) fn new(config: FaultConfig, number: u64, copies: bool, ready: usize) -> Line {
        config.check().expect("the configuration was checked");
        Line {
            draws: Draws::new(config.seed, number),
            hold: Hold::new(config.frames_max, ready),
            counts: FaultCounts::default(),
            config,
            copies,
        }
    }

    /// Applies its faults to a packet. False when the packet was dropped.
    pub(super) fn apply(&mut self, pool: &mut Pool, mut frame: Frame, now_ns: u64) -> bool {
        let PacketFaults { drop, duplicate, corrupt, delay_ns, reorder } =
            self.draws.next_faults(&self.config);
        if drop {
            self.counts.dropped += 1;
            pool.give_back(frame);
            return false;
        }
        if let Some(number) = corrupt {
            self.counts.corrupted += u64::from(invert(pool, &mut frame, number));
        }
        let duplicate_frame = if duplicate { self.duplicate_frame(pool, &frame) } else { None };
        let packet = packet(pool, frame);
        let held = if let Some(delay_ns) = delay_ns {
            self.counts.delayed += 1;
            self.hold.delay(packet, now_ns.saturating_add(delay_ns))
        } else if reorder {
            self.counts.reordered += 1;
            let due_ns = now_ns.saturating_add(self.config.reorder_ns);
            self.hold.reorder(packet, self.config.reorder_packets, due_ns)
        } else {
            self.hold.pass(packet);
            Ok(())
        };
        if let Err(packet) = held {
            match delay_ns {
                Some(_) => self.counts.delayed -= 1,
                None => self.counts.reordered -= 1,
            }
            self.counts.hold_full += 1;
            self.hold.pass(packet);
        }
        if let Some(duplicate_frame) = duplicate_frame {
            self.hold.pass(duplicate_frame);
        }
        true
    }

    fn duplicate_frame(&mut self, pool: &mut Pool, frame: &Frame) -> Option<Packet> {
        let Some(mut duplicate_frame) = copy(pool, frame) else {
            self.counts.no_frame += 1;
            return None;
        };
        self.counts.duplicated += 1;
        pool.region().meta_mut(&mut duplicate_frame).later = self.copies;
        Some(packet(pool, duplicate_frame))
    }
}

fn packet(pool: &Pool, frame: Frame) -> Packet {
    Packet { frames: pool.region().meta(&frame).frames(), frame }
}

/// Inverts the bit of the packet that `number` selects; false when the packet has none.
fn invert(pool: &Pool, frame: &mut Frame, number: u64) -> bool {
    let view = pool.region().view();
    let bits = view.meta(frame).packet_len() as u64 * 8;
    let bit = below(number, bits) as usize;
    let mut at = bit / 8;
    for part in view.parts_mut(frame) {
        if let Some(byte) = part.get_mut(at) {
            *byte ^= 1 << (bit % 8);
            return true;
        }
        at -= part.len();
    }
    false
}
