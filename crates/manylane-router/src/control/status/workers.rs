//! Workers: their load between two looks, their counters, and their queues.

use std::time::Duration;

use manylane_api::{QueueName, WorkerStatus};
use manylane_frame::vocabulary::{PortId, WorkerId};
use manylane_worker::stats::{PortCount, StatsReader, WorkerCount};

use super::ports::ShownPort;
use super::{Status, unpoisoned};

/// A worker's share of busy time between two looks.
#[derive(Clone, Copy, Default)]
pub(super) struct Load {
    at: Duration,
    busy_ns: u64,
    idle_ns: u64,
    percent: f64,
}

/// A share is taken over at least so long.
const LOAD_INTERVAL: Duration = Duration::from_millis(900);

impl Status {
    pub(super) fn all_workers(&self) -> Vec<WorkerStatus> {
        let now = self.clock.now();
        let mut loads = unpoisoned(&self.load);
        let of_worker = |(number, stats): (usize, &StatsReader)| {
            let load = loads[number].advanced(now, stats);
            loads[number] = load;
            let state = unpoisoned(&self.steering).state(number);
            let sum =
                |what| self.ids().map(|port| stats.port(port, what)).fold(0, u64::wrapping_add);
            WorkerStatus {
                worker: number as u16,
                core: self.cores.get(number).copied(),
                state,
                turns: stats.worker(WorkerCount::Turns),
                busy_percent: load.percent,
                busy_ns: stats.worker(WorkerCount::BusyNs),
                idle_ns: stats.worker(WorkerCount::IdleNs),
                sleeps: stats.worker(WorkerCount::Sleeps),
                wakeups: stats.worker(WorkerCount::Wakeups),
                reports_lost: stats.worker(WorkerCount::EventsLost),
                orders_lost: stats.worker(WorkerCount::OrdersLost),
                errors_suppressed: stats.worker(WorkerCount::ErrorsSuppressed),
                inner_checksum_partial: stats.worker(WorkerCount::InnerChecksumUnknown),
                queues: self.queues_of(WorkerId(number as u16)),
                received: sum(PortCount::Received),
                transmitted: sum(PortCount::Sent),
                held: sum(PortCount::Held),
                frames_in_pool: stats.worker(WorkerCount::PoolLevel),
            }
        };
        self.stats.iter().enumerate().map(of_worker).collect()
    }

    fn queues_of(&self, worker: WorkerId) -> Vec<QueueName> {
        let steering = unpoisoned(&self.steering);
        let of_port = |(id, port): (PortId, &ShownPort)| {
            let owned = (0..).zip(steering.owners(id)).filter(|&(_, &owner)| owner == worker);
            let named = |(queue, _)| QueueName { port: port.name.clone(), queue };
            owned.map(named).collect::<Vec<_>>()
        };
        self.ids().zip(&self.ports).flat_map(of_port).collect()
    }
}

impl Load {
    /// The load now, if the last look is long enough ago.
    fn advanced(self, now: Duration, stats: &StatsReader) -> Load {
        if now.saturating_sub(self.at) < LOAD_INTERVAL {
            return self;
        }
        let busy_ns = stats.worker(WorkerCount::BusyNs);
        let idle_ns = stats.worker(WorkerCount::IdleNs);
        let (busy, idle) = (busy_ns - self.busy_ns, idle_ns - self.idle_ns);
        // A worker that sleeps all the while counts its time when it wakes.
        let percent = if busy == 0 { 0.0 } else { busy as f64 * 100.0 / (busy + idle) as f64 };
        Load { at: now, busy_ns, idle_ns, percent }
    }
}
