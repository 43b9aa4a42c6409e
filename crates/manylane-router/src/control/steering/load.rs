//! Load, looked at again and again, and the moves that follow from it (`rebalance.rs` decides them).

use std::time::Duration;

use manylane_frame::vocabulary::{PortId, WorkerId};
use manylane_sync::handoff::GROUP;

use super::rebalance::{Bucket, Move, moves};
use super::{SteeredPort, Steering};
use crate::config::PortSteering;

impl Steering {
    /// When load is to be looked at next.
    pub fn deadline(&self) -> Option<Duration> {
        (self.rebalances && self.has_rings()).then(|| self.looked_at + REBALANCE_INTERVAL)
    }

    pub(super) fn look_again(&mut self) {
        self.looked_at = Duration::ZERO;
        self.carried.iter_mut().flatten().for_each(|carried| *carried = 0);
    }

    /// Moves a few buckets from workers with much to do to workers with little. `busy_ns` is how long each
    /// worker has been busy in all. Returns how many moved.
    pub fn rebalance(&mut self, busy_ns: &[u64], now: Duration) -> usize {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return 0;
        }
        let interval_ns = now.saturating_sub(self.looked_at).as_nanos() as u64;
        let first = self.looked_at == Duration::ZERO;
        self.looked_at = now;
        let load = busy_ns.iter().zip(&mut self.busy_ns).map(|(&now, before)| {
            let busy = now.wrapping_sub(std::mem::replace(before, now));
            busy as f64 / interval_ns.max(1) as f64
        });
        let load: Vec<f64> = load.collect();
        let mut buckets = Vec::new();
        for (number, port) in self.ports.iter().enumerate() {
            let id = PortId(number as u16);
            for bucket in 0..GROUP {
                // Each receiver of the port steers its own packets.
                let frames = self.counts.iter().map(|counts| counts.bucket(id, bucket).1);
                let frames = frames.fold(0, u32::wrapping_add);
                let before = std::mem::replace(&mut self.carried[number][bucket], frames);
                let carried = frames.wrapping_sub(before);
                if port.steering == PortSteering::Flow && carried > 0 {
                    let worker = self.map.wanted(number * GROUP + bucket);
                    buckets.push(Bucket { port: id, bucket, worker, frames: carried });
                }
            }
        }
        if first {
            return 0; // No earlier measure exists to compare with.
        }
        // What is still to move would count for the wrong worker, and lands all at once: a worker with pending moves is
        // left alone until it has.
        let mut left_alone: Vec<bool> =
            (0..self.paused.len() as u16).map(|worker| !self.is_active(worker)).collect();
        for (worker, still) in self.pending() {
            for worker in [worker, still] {
                left_alone[usize::from(worker)] = true;
            }
        }
        let moves = moves(&load, &left_alone, &buckets);
        for &Move { port, bucket, to } in &moves {
            let port = &mut self.ports[port.index()];
            // What is assigned to a paused worker returns to it.
            match self.paused[usize::from(port.assigned[bucket])] {
                true => port.stand_ins[bucket] = Some(to),
                false => port.assigned[bucket] = to,
            }
        }
        if !moves.is_empty() {
            self.moved += moves.len() as u64;
            self.publish();
        }
        moves.len()
    }

    /// The moves that are wanted and not seen to be done: the worker they lead to, and the one they leave.
    fn pending(&self) -> impl Iterator<Item = (u16, u16)> {
        let by_flow = (0..).map(PortId).zip(&self.ports);
        let by_flow = by_flow.filter(|(_, port)| port.steering == PortSteering::Flow);
        by_flow.flat_map(move |(id, port)| {
            (0..GROUP).filter_map(move |bucket| {
                let wanted = self.map.wanted(id.index() * GROUP + bucket);
                self.still(id, port, bucket, wanted).map(|still| (wanted, still))
            })
        })
    }

    /// The worker that still has a bucket that another is to have; of several receivers', the first one that is late.
    pub(super) fn still(
        &self,
        id: PortId,
        port: &SteeredPort,
        bucket: usize,
        wanted: u16,
    ) -> Option<u16> {
        let has = |owner: &WorkerId| self.counts[usize::from(owner.0)].bucket(id, bucket).0;
        port.owners.iter().map(has).find(|&worker| worker != wanted)
    }
}

/// How often load is looked at: as often as workers publish what buckets carry.
pub(super) const REBALANCE_INTERVAL: Duration = Duration::from_millis(100);
