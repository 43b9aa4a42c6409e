//! A check of the order of transmitted packets, for an operator who wants one (`steering.reorder_sample`).
//!
//! The receiving worker numbers the packets of one flow in N, and the transmitting worker checks whether a later
//! packet has left before. A flow here means packets of one hash and one direction, received by one queue and transmitted
//! by one port. What is received by queue stays where it is, and is not numbered.
//!
//! While the option is off, a turn pays one branch, and a batch that is handed off another.

use std::ops::Range;

use manylane_frame::vocabulary::WorkerId;
use manylane_frame::{Batch, Sample, Trace, View};
use manylane_net::wire::ethernet::{HEADER_LEN, Tags, VLAN_TAG_LEN};

use super::counts::OwnCount;
use super::{HandOff, bucket_of};
use crate::worker::Work;

impl HandOff {
    /// Looks at the packets of a batch one by one, when it has been parted and nothing of it is on its way.
    #[cold]
    pub(super) fn examine_stages(&mut self, region: View<'_>) {
        if self.sample_one_in != 0 {
            self.number(region);
        }
        if !self.traced {
            return;
        }
        let HandOff { staged, steered, key, .. } = self;
        for (to, stage) in (0..).map(WorkerId).zip(staged) {
            for frame in stage.frames.iter() {
                let trace = region.meta(frame).trace();
                if trace != Trace::NONE {
                    steered.push((trace, bucket_of(key.frame_hash(region.bytes(frame))), to));
                }
            }
        }
    }

    /// Numbers the packets of a batch that are to be checked, when it has been split.
    fn number(&mut self, region: View<'_>) {
        // Of a flow, all are in one stage: a bucket does not move while one of it is not transmitted.
        for frame in self.staged.iter_mut().flat_map(|stage| stage.frames.iter_mut()) {
            let (bytes, meta) = (region.bytes(frame), region.meta(frame));
            let hash = self.key.frame_hash(bytes);
            // The lowest byte is the bucket's.
            if !(hash >> 8).is_multiple_of(self.sample_one_in) {
                region.set_sample(frame, Sample::default());
                continue;
            }
            let queue = u64::from(meta.ingress.0) << 16 | u64::from(meta.queue.0);
            let flow = u64::from(hash) << 32 | queue << 1 | u64::from(is_upward(bytes));
            let (number, period) = (self.order.receive(flow), self.sample_period);
            region.set_sample(frame, Sample { flow, number, period });
        }
    }

    /// Marks packets as unchecked.
    #[cold]
    pub(super) fn clear_samples(&self, region: View<'_>, batch: &mut Batch) {
        if self.sample_one_in == 0 {
            return; // Only a trace examines packets.
        }
        batch.iter_mut().for_each(|frame| region.set_sample(frame, Sample::default()));
    }
}

impl Work {
    /// Whether the order is checked.
    #[inline(always)]
    pub(in crate::worker) fn samples_order(&self) -> bool {
        self.handoff.as_ref().is_some_and(|handoff| handoff.sample_one_in != 0)
    }

    /// Looks at the order of what waits to be handed to these devices.
    #[cold]
    pub(in crate::worker) fn check_order(&mut self, egresses: Range<usize>) {
        let Work { handoff: Some(handoff), pool, .. } = self else { return };
        let region = pool.region();
        let (mut sampled, mut reordered) = (0, 0);
        for way in egresses {
            for frame in self.egresses[way].waiting.iter() {
                let meta = region.meta(frame);
                let Sample { flow, number, period } = meta.sample();
                // An answer of ours is no packet of the flow, though it lies in its frame.
                if meta.own || period != handoff.sample_period {
                    continue;
                }
                sampled += 1;
                reordered += u64::from(handoff.order.is_late(flow, way as u16, number));
            }
        }
        handoff.counts.own(OwnCount::Sampled, sampled);
        handoff.counts.own(OwnCount::Reordered, reordered);
    }
}

/// The direction of a packet, in a flow whose hash is equal in both directions.
fn is_upward(frame: &[u8]) -> bool {
    let tags = [2, 1].iter().find(|&&count| Tags::of(frame, count).is_some()).unwrap_or(&0);
    let packet = frame.get(HEADER_LEN + tags * VLAN_TAG_LEN..).unwrap_or_default();
    match packet.first().map(|first| first >> 4) {
        Some(4) => packet.get(12..16) < packet.get(16..20),
        Some(6) => packet.get(8..24) < packet.get(24..40),
        _ => false,
    }
}
