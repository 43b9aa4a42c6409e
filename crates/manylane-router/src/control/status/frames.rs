//! Frames: where they all are, and how long the lists of workers may be.

use std::sync::Mutex;

use manylane_frame::{Depot, HOT_LIST_LENGTHS};
use manylane_sync::words::WordsMut;

use super::{Status, unpoisoned};
use crate::control::frames::{Budget, Line};
use crate::control::open::Bell;
use manylane_api::{
    ApiError, FrameHolder, FrameLedger, FrameLine, FramesStatus, ListStatus, PortState,
};
use manylane_worker::stats::{PortCount, StatsReader, WorkerCount};

/// What is known of the frames, and how the length of workers' lists is changed.
pub struct FrameStatus {
    depot: Depot,
    sum: Vec<FrameLine>,
    hot_list_len_max: u32,
    workers: usize,
    /// One word, which workers follow.
    hot_list_len: Mutex<WordsMut<u32>>,
    /// Of the workers, which may sleep.
    bells: Vec<Bell>,
}

impl FrameStatus {
    pub(in crate::control) fn new(
        budget: Budget,
        depot: Depot,
        hot_list_len: WordsMut<u32>,
        bells: Vec<Bell>,
    ) -> FrameStatus {
        let (hot_list_len_max, workers) = (budget.hot_list_len_max(), bells.len());
        let shown =
            |Line { holder, reckoning, frames }| FrameLine { holder, formula: reckoning, frames };
        FrameStatus {
            depot,
            sum: budget.lines.into_iter().map(shown).collect(),
            hot_list_len_max,
            workers,
            hot_list_len: Mutex::new(hot_list_len),
            bells,
        }
    }

    /// Changes how long workers' lists are, from their next turn on.
    pub(super) fn set_hot_list_len(&self, value: &str) -> Result<u32, ApiError> {
        let (min, max) = HOT_LIST_LENGTHS.into_inner();
        let len: u32 =
            value.parse().ok().filter(|len| HOT_LIST_LENGTHS.contains(len)).ok_or_else(|| {
                ApiError {
                    error: format!("{HOT_LIST_LEN} cannot be {value}"),
                    help: format!("choose a number from {min} to {max}"),
                }
            })?;
        let max = self.hot_list_len_max;
        if len > max {
            let workers = self.workers;
            return Err(ApiError {
                error: format!(
                    "{HOT_LIST_LEN} cannot be {len}: with {} frames in all, {max} are free for the \
                     list of each of {workers} workers",
                    self.depot.region().frames()
                ),
                help: format!("choose at most {max}, or start with a larger `count` in [frames]"),
            });
        }
        unpoisoned(&self.hot_list_len).publish(0, len);
        for bell in &self.bells {
            bell.ring(); // A worker that sleeps holds the old length until it wakes.
        }
        Ok(len)
    }
}

/// The one setting of a running daemon that is not about steering.
pub(super) const HOT_LIST_LEN: &str = "frames.hot_list_len";

impl Status {
    pub(super) fn all_frames(&self) -> FramesStatus {
        let FrameStatus { depot, sum, hot_list_len_max, hot_list_len, .. } = &self.frames;
        let of_worker = |(number, stats): (usize, &StatsReader)| ListStatus {
            worker: number as u16,
            level: stats.worker(WorkerCount::PoolLevel),
            len: stats.worker(WorkerCount::HotListLen),
            taken: stats.worker(WorkerCount::PoolTaken),
            hits: stats.worker(WorkerCount::PoolHits),
            refills: stats.worker(WorkerCount::PoolRefills),
            spills: stats.worker(WorkerCount::PoolSpills),
            starved: stats.worker(WorkerCount::PoolStarved),
        };
        FramesStatus {
            frame_size: depot.region().frame_size(),
            huge_pages: depot.region().is_huge(),
            hot_list_len: unpoisoned(hot_list_len).load(0),
            hot_list_len_max: *hot_list_len_max,
            lists: self.stats.iter().enumerate().map(of_worker).collect(),
            ledger: self.frame_ledger(),
            sum: sum.clone(),
        }
    }

    pub(super) fn frame_ledger(&self) -> FrameLedger {
        let holder = |holder: String, frames| FrameHolder { holder, frames };
        let worker_sum = |what| self.stats.iter().map(|stats| stats.worker(what)).sum();
        let depot = &self.frames.depot;
        let mut holders = vec![holder("depot".into(), depot.frames())];
        match *unpoisoned(&self.closed) {
            Some(kept) => holders.push(holder("kept by closed devices".into(), kept as u64)),
            None => {
                for (number, stats) in self.stats.iter().enumerate() {
                    let level = stats.worker(WorkerCount::PoolLevel);
                    holders.push(holder(format!("worker {number} list"), level));
                }
                let (kept, is_there) = {
                    let steering = unpoisoned(&self.steering);
                    let is_there = |id| steering.port_state(id) != PortState::Removed;
                    (steering.kept() as u64, self.ids().map(is_there).collect::<Vec<_>>())
                };
                if kept > 0 {
                    holders.push(holder("kept by closed devices".into(), kept));
                }
                let ports = self.ids().zip(&self.ports).filter(|(id, _)| is_there[id.index()]);
                for (id, port) in ports {
                    let name = &port.name;
                    let posted = self.port_sum(id, PortCount::Posted);
                    let (lent, returned) = (PortCount::Lent, PortCount::Returned);
                    let lent = self.port_sum(id, lent).wrapping_sub(self.port_sum(id, returned));
                    if port.is_wired {
                        holders.push(holder(format!("{name} on its wires"), posted));
                    } else if port.vlan.is_none() && (port.interface.is_some() || port.has_faults) {
                        holders.push(holder(format!("{name} to receive"), posted));
                    }
                    if port.mode.is_some() {
                        holders.push(holder(format!("{name} to transmit"), lent));
                    }
                    if port.has_faults {
                        let late = self.port_sum(id, PortCount::Late);
                        holders.push(holder(format!("{name} late on purpose"), late));
                    }
                }
                let held = worker_sum(WorkerCount::FramesHeld);
                holders.push(holder("held for neighbours".into(), held));
                let in_hand = worker_sum(WorkerCount::FramesInHand);
                holders.push(holder("in workers' hands".into(), in_hand));
                let steering = unpoisoned(&self.steering);
                if steering.has_rings() {
                    holders.push(holder("between workers".into(), steering.frames()));
                }
            }
        }
        let total = u64::from(depot.region().frames());
        let found = holders.iter().map(|holder| holder.frames).fold(0, u64::wrapping_add);
        FrameLedger { total, holders, missing: total.wrapping_sub(found) as i64 }
    }
}
