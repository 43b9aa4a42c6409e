//! The rings between workers, laid when the daemon is put together.

use std::sync::Arc;

use manylane_frame::BATCH_MAX;
use manylane_io::eventfd::EventFd;
use manylane_sync::counters::SharedCount;
use manylane_sync::doorbell::Doorbell;
use manylane_sync::handoff::{Completions, MapReader, OrderSample, Steering, pair};
use manylane_sync::ring::ring;
use manylane_sync::words::Words;

use super::counts::{HandOffCounts, HandOffReader};
use super::pause::Withhold;
use super::{Arrivals, HandOff, Stage, Target};
use crate::worker::queue_handover::Asks;

/// The ends of the rings between all workers.
pub struct Mesh {
    /// For each worker; and what it counts.
    pub ends: Vec<(HandOff, HandOffReader)>,
}

impl Mesh {
    /// Lays them, of `capacity` packets each, from those workers of whom `receives` says so. `bells` are the
    /// workers'; `map` has 256 buckets for each port.
    pub fn build(
        receives: &[bool],
        capacity: usize,
        bells: &[Arc<Doorbell<EventFd>>],
        map: &MapReader,
        ports: usize,
        limits: &Words<u32>,
    ) -> Mesh {
        let workers = bells.len();
        let capacity = capacity.next_power_of_two();
        let mut completions: Vec<_> =
            (0..workers).map(|_| Completions::new(workers as u16)).collect();
        let mut arrivals: Vec<Vec<_>> = (0..workers).map(|_| Vec::new()).collect();
        let asks = Asks::new(workers);
        let mut receivers = Vec::new();
        for receiver in 0..workers {
            let (outgoing, incoming) = pair();
            completions[receiver].connect(receiver as u16, incoming);
            let mut steering =
                Steering::new(map.clone(), workers as u16, receiver as u16, outgoing);
            let mut targets = Vec::new();
            for worker in 0..workers {
                if worker == receiver || !receives[receiver] {
                    targets.push(None);
                    arrivals[worker].push(None);
                    continue;
                }
                let (outgoing, incoming) = pair();
                steering.connect(worker as u16, outgoing);
                completions[worker].connect(receiver as u16, incoming);
                let (producer, consumer) = ring(capacity);
                let surplus = Arc::new(SharedCount::default());
                arrivals[worker].push(Some(Arrivals {
                    ring: consumer,
                    surplus: surplus.clone(),
                    asked_for: 0,
                }));
                targets.push(Some(Target::new(producer, capacity, surplus, &bells[worker])));
            }
            receivers.push((steering, targets));
        }
        let order = OrderSample::new();
        let ends = receivers.into_iter().zip(completions).zip(arrivals).enumerate();
        let ends = ends.map(|(own, (((steering, targets), completions), arrivals))| {
            let counts = HandOffCounts::new(ports, workers);
            let reader = counts.reader();
            let handoff = HandOff {
                own: own as u16,
                receiver: own as u8,
                asks: asks.clone(),
                steering,
                completions,
                targets,
                arrivals,
                next: 0,
                stages: (0..workers).map(|_| Stage::default()).collect(),
                refused: Vec::with_capacity(BATCH_MAX),
                by_flow: vec![false; ports],
                changed: vec![false; ports],
                generation: 0,
                waiting: usize::from(receives[own]), // Look in the first turn.
                follow_at_ns: 0,
                withhold: Withhold::new(ports),
                limits: limits.clone(),
                noted: false,
                blocked: false,
                calm: false,
                counts,
                order: order.clone(),
                sample_one_in: 0,
                sample_period: 0,
                looks: false,
                traced: false,
                steered: Vec::new(),
                #[cfg(feature = "broken-rules")]
                announces_what_is_popped: false,
                #[cfg(feature = "broken-rules")]
                announces_what_is_noted: false,
            };
            (handoff, reader)
        });
        Mesh { ends: ends.collect() }
    }
}
