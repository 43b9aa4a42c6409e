//! The rings between workers, built with the daemon.

use std::sync::Arc;

use manylane_frame::BATCH_MAX;
use manylane_io::eventfd::EventFd;
use manylane_net::wire::flow::FlowKey;
use manylane_sync::counters::SharedCount;
use manylane_sync::doorbell::Doorbell;
use manylane_sync::handoff::{Completions, MapReader, OrderSample, Steering, pair};
use manylane_sync::ring::ring;
use manylane_sync::words::Words;

use super::counts::{HandOffCounts, HandOffReader};
use super::pause::ReceivePause;
use super::{HandOff, Inbound, Outbound, StagedBatch};
use crate::worker::queue_handover::ReleaseRequests;

/// The ends of the rings between all workers.
pub struct Mesh {
    /// For each worker; and what it counts.
    pub ends: Vec<(HandOff, HandOffReader)>,
}

impl Mesh {
    /// Builds the rings, of `capacity` packets each, from those workers for which `receives` is true. `bells` are the
    /// workers'; `map` has 256 buckets for each port, among which `key` parts the
    /// flows.
    pub fn build(
        receives: &[bool],
        capacity: usize,
        bells: &[Arc<Doorbell<EventFd>>],
        map: &MapReader,
        ports: usize,
        limits: &Words<u32>,
        key: FlowKey,
    ) -> Mesh {
        let workers = bells.len();
        let release_requests = ReleaseRequests::new(workers);
        let Rings { receivers, completions, inbound } =
            Rings::connect(receives, capacity.next_power_of_two(), bells, map);
        let order = OrderSample::new();
        let ends = receivers.into_iter().zip(completions).zip(inbound).enumerate();
        let ends = ends.map(|(own, (((steering, outbound), completions), inbound))| {
            let counts = HandOffCounts::new(ports, workers);
            let reader = counts.reader();
            let handoff = HandOff {
                own: own as u16,
                key,
                receiver: own as u8,
                release_requests: release_requests.clone(),
                steering,
                completions,
                outbound,
                inbound,
                next: 0,
                staged: (0..workers).map(|_| StagedBatch::default()).collect(),
                refused: Vec::with_capacity(BATCH_MAX),
                by_flow: vec![false; ports],
                changed: vec![false; ports],
                generation: 0,
                waiting: usize::from(receives[own]), // Look in the first turn.
                apply_map_at_ns: 0,
                pause: ReceivePause::new(ports),
                limits: limits.clone(),
                noted: false,
                blocked: false,
                all_have_room: false,
                counts,
                order: order.clone(),
                sample_one_in: 0,
                sample_period: 0,
                examines: false,
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

/// The ends of every ring, by the worker that has each.
struct Rings {
    /// By worker: how it steers what it receives, and the ring to each other worker.
    receivers: Vec<(Steering, Vec<Option<Outbound>>)>,
    /// By worker.
    completions: Vec<Completions>,
    /// By worker: the ring from each other worker.
    inbound: Vec<Vec<Option<Inbound>>>,
}

impl Rings {
    fn connect(
        receives: &[bool],
        capacity: usize,
        bells: &[Arc<Doorbell<EventFd>>],
        map: &MapReader,
    ) -> Rings {
        let workers = bells.len();
        let mut completions: Vec<_> =
            (0..workers).map(|_| Completions::new(workers as u16)).collect();
        let mut inbound: Vec<Vec<_>> = (0..workers).map(|_| Vec::new()).collect();
        let mut receivers = Vec::new();
        for receiver in 0..workers {
            let (outgoing, incoming) = pair();
            completions[receiver].connect(receiver as u16, incoming);
            let mut steering =
                Steering::new(map.clone(), workers as u16, receiver as u16, outgoing);
            let mut outbound = Vec::new();
            for worker in 0..workers {
                if worker == receiver || !receives[receiver] {
                    outbound.push(None);
                    inbound[worker].push(None);
                    continue;
                }
                let (outgoing, incoming) = pair();
                steering.connect(worker as u16, outgoing);
                completions[worker].connect(receiver as u16, incoming);
                let (producer, consumer) = ring(capacity);
                let surplus = Arc::new(SharedCount::default());
                inbound[worker].push(Some(Inbound {
                    ring: consumer,
                    surplus: surplus.clone(),
                    prefetched: 0,
                }));
                outbound.push(Some(Outbound::new(producer, capacity, surplus, &bells[worker])));
            }
            receivers.push((steering, outbound));
        }
        Rings { receivers, completions, inbound }
    }
}
