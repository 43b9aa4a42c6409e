//! Held packets, and a batch behind them, looked up again when routes change.

use manylane_frame::{Batch, Frame};
use manylane_net::forward::{Fate, Origin, Verdict, Verdicts};

use super::turn::Turn;
use super::{AwaitedNeighbour, PriorHold, State, Work};

/// A frame that is looked up again when routes change: one that was held, without a verdict, or one behind
/// those.
#[doc(hidden)]
pub struct Pending<'g> {
    pub frame: Frame,
    pub verdict: Option<Verdict<'g>>,
    pub prior_hold: Option<PriorHold>,
}

impl Work {
    /// Whether what was looked up at this generation is what a lookup finds now.
    #[inline(always)]
    #[doc(hidden)]
    pub fn is_current(&self, batch_generation: u32) -> bool {
        batch_generation.is_multiple_of(2)
            && self.forwarder.tables().next_hops.generation() == batch_generation
    }

    /// Looks up held packets again, with the waiting packets behind them, and dispatches all of them: for
    /// when routes change. A flow with a new route keeps its order (I3; `nexthop` says why the
    /// newest is looked at first). Returns the number of frames.
    ///
    /// Where a change is still under way after some looks, the last one is good enough for flows that leave,
    /// and the next turn looks again for those that wait. Nothing waits for the control thread (I4).
    #[cold]
    #[doc(hidden)]
    pub fn reroute_held<'g>(&mut self, turn: Turn<'g>, newer: Vec<Pending<'g>>) -> usize {
        let mut list = Vec::with_capacity(self.holds.len() + newer.len());
        for &AwaitedNeighbour { key, requested_ns, .. } in &self.state.awaited {
            let since_ns = self.holds.since_ns(key);
            let prior_hold = since_ns.map(|since_ns| PriorHold { since_ns, key, requested_ns });
            let held = self.holds.take(key);
            list.extend(held.map(|frame| Pending { frame, verdict: None, prior_hold }));
        }
        list.iter().for_each(|held| self.no_longer_held(&held.frame));
        list.extend(newer);
        let mut batch_generation = 0;
        let mut explained = Vec::new();
        for _ in 0..LOOKUPS_MAX {
            batch_generation = self.forwarder.tables().next_hops.generation();
            for (place, Pending { frame, verdict, .. }) in list.iter_mut().enumerate().rev() {
                let origin = match *verdict {
                    None => Origin::Received,
                    Some(Verdict { fate: Fate::Hold(_) | Fate::Glean(_), origin }) => origin,
                    Some(_) => continue,
                };
                explained.extend(self.explain(turn.guard, place, frame));
                let look = self.forwarder.resume(&mut turn.lend(&mut self.pool), frame);
                // What the packet was made of is counted when it is dispatched, once.
                let origin = if origin == Origin::Received { look.origin } else { origin };
                *verdict = Some(Verdict { origin, ..look });
            }
            if self.is_current(batch_generation) {
                break;
            }
        }
        self.state.held_generation = batch_generation;
        let frames = list.len();
        let former = self.state.prior_hold;
        for (place, Pending { frame, verdict, prior_hold }) in list.into_iter().enumerate() {
            (self.state.batch_generation, self.state.prior_hold) = (batch_generation, prior_hold);
            let verdict = verdict.expect("each was looked up");
            self.note_rerouted(&explained, place, &frame, &verdict);
            self.dispatch(turn, frame, &verdict);
        }
        self.state.prior_hold = former;
        let Work { state: State { awaited, .. }, holds, dsts, .. } = self;
        for held in awaited.extract_if(.., |held| !holds.contains(held.key)) {
            dsts.put(turn.guard, held.dst);
        }
        frames
    }

    /// As [`reroute_held`](Work::reroute_held), for a batch looked up while routes changed. What does not wait keeps its
    /// verdict, and its place.
    #[cold]
    pub(super) fn reroute_batch<'g>(
        &mut self,
        turn: Turn<'g>,
        batch: &mut Batch,
        verdicts: &Verdicts<'g>,
    ) {
        let frames = batch.drain().zip(verdicts.list());
        let pending = frames.map(|(frame, verdict)| Pending {
            frame,
            verdict: Some(verdict),
            prior_hold: None,
        });
        self.reroute_held(turn, pending.collect());
    }
}

/// How often to look again while routes change. A change is some hundred stores: it is over before.
const LOOKUPS_MAX: usize = 4;
