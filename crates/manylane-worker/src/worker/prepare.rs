//! Packets made into what their egress port takes: segments, fragments, completed checksums, joined frames.

use manylane_frame::Frame;
use manylane_frame::vocabulary::{Created, PortId};
use manylane_net::forward::{PrepareError, Prepared};
use manylane_sync::rcu::Guard;

use super::Work;
use crate::stats::PortCount;

impl Work {
    /// Makes a packet into pieces that its egress port takes, and queues them in order.
    pub(super) fn prepare(&mut self, guard: Guard<'_>, port: PortId, frame: Frame) {
        self.prepare_as(guard, port, frame, |_, _, _| {});
    }

    /// As `prepare`. `made` receives the outcome and the pieces, or the packet that could not be prepared.
    #[inline(always)]
    pub(super) fn prepare_as(
        &mut self,
        guard: Guard<'_>,
        port: PortId,
        frame: Frame,
        made: impl FnOnce(&mut Work, &mut Result<Prepared, PrepareError>, &mut [Frame]),
    ) {
        let ingress = self.pool.region().meta(&frame).ingress;
        let mut pieces = std::mem::take(&mut self.state.pieces);
        let sample = self.samples_order().then(|| self.pool.region().meta(&frame).sample());
        let mut prepared = self.forwarder.prepare(&mut self.pool, frame, port, &mut pieces);
        let port = self.forwarder.device(port);
        made(self, &mut prepared, &mut pieces);
        match prepared {
            Ok(Prepared { completed, joined, cut, fragments }) => {
                let stats = &mut self.stats;
                stats.created_many(ingress, Created::Segment, cut.into());
                stats.created_many(ingress, Created::Fragment, fragments.into());
                let segments = if cut > 0 { cut + 1 } else { 0 };
                stats.count(port, PortCount::SegmentsCut, segments.into());
                stats.count(port, PortCount::ChecksumsCompleted, completed.into());
                stats.count(port, PortCount::ChainsJoined, joined.into());
            }
            Err(PrepareError { frame, reason }) => self.drop_frame(guard, frame, reason),
        }
        for mut piece in pieces.drain(..) {
            if let Some(sample) = sample {
                self.pool.region().view().set_sample(&mut piece, sample); // The piece leaves in the packet's place.
            }
            self.queue(guard, port, piece);
        }
        self.state.pieces = pieces;
    }
}
