//! Samples and drops that an exporter is to see ([`sampler`](crate::sampler)).
//!
//! Without an exporter this costs a worker one load for each batch and each drop.

use manylane_frame::vocabulary::{DropReason, PortId};
use manylane_frame::{Batch, Frame, Pool};
use manylane_net::forward::{Fate, Former, Origin, Verdict, Verdicts};
use manylane_net::wire::ethernet::Mac;

use super::Work;
use crate::sampler::{End, Sampler};

impl Work {
    /// Keeps those packets of a batch that are samples, before the rules see it. Returns whether the batch has samples.
    #[inline(always)]
    pub(super) fn begin_samples(&mut self, batch: &Batch) -> bool {
        let Some(sampler) = &mut self.sampler else { return false };
        sampler.begin_batch(self.pool.region().view(), batch.as_slice());
        sampler.has_kept()
    }

    /// Notes the samples of a batch, with what was decided about each.
    #[cold]
    #[inline(never)]
    pub(super) fn note_samples(&mut self, batch: &Batch, verdicts: &Verdicts<'_>) {
        let Work { sampler: Some(sampler), pool, forwarder, .. } = self else { return };
        let view = pool.region().view();
        sampler.end_batch(|place| {
            let Verdict { fate, origin } = verdicts.at(place);
            let frame = &batch.as_slice()[place];
            let to = || Mac(view.bytes(frame).first_chunk().copied().unwrap_or_default());
            match (origin, fate) {
                (Origin::Error(reason), _) | (_, Fate::Drop(reason)) => End::Dropped(reason),
                (Origin::Reply, _) | (_, Fate::Deliver) => End::Delivered,
                (_, Fate::Transmit(port) | Fate::Fragment(port) | Fate::Prepare(port)) => {
                    End::Leaves(forwarder.device(port), to())
                }
                (_, Fate::Hold(_) | Fate::Glean(_)) => End::Waits,
            }
        });
    }

    /// Counts a received packet that is dropped before any rule sees it.
    pub(super) fn sample_refused(&mut self, frame: &Frame, reason: DropReason) {
        if let Some(sampler) = &mut self.sampler {
            sampler.begin_batch(self.pool.region().view(), std::slice::from_ref(frame));
            sampler.end_batch(|_| End::Dropped(reason));
        }
    }

    /// Notes a packet that is dropped.
    #[inline]
    pub(super) fn sample_drop(&mut self, frame: &Frame, reason: DropReason) {
        let now_ns = self.state.now_ns;
        note_drop(&mut self.sampler, &self.pool, frame, reason, now_ns);
    }

    /// Counts a packet that was dropped and is an error to its sender by now, if its bytes were not kept.
    pub(super) fn count_unkept(&mut self, ingress: PortId, reason: DropReason) {
        if !self.forwarder.keeps_former()
            && let Some(sampler) = &mut self.sampler
        {
            sampler.count_unreported(ingress, reason);
        }
    }

    /// Whether bytes of such packets are to be kept in this turn.
    pub(super) fn samples_former(&mut self) -> bool {
        let now_ns = self.state.now_ns;
        self.sampler.as_mut().is_some_and(|sampler| sampler.may_note_drop(now_ns))
    }

    /// Notes a packet that was dropped and is an error to its sender by now.
    pub(super) fn sample_former(&mut self, former: &Former) {
        if let Some(sampler) = &mut self.sampler {
            let &Former { ingress, ref bytes, len, reason, .. } = former;
            sampler.note_dropped(ingress, (bytes, len), reason, self.state.now_ns);
        }
    }
}

/// Notes a packet that is dropped, by the parts of a worker.
#[inline]
pub(super) fn note_drop(
    sampler: &mut Option<Box<Sampler>>,
    pool: &Pool,
    frame: &Frame,
    reason: DropReason,
    now_ns: u64,
) {
    if let Some(sampler) = sampler {
        sampler.note_drop(pool.region().view(), frame, reason, now_ns);
    }
}
