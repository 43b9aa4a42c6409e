//! Ports that are removed while traffic flows.
//!
//! | step                                                                  | by which thread             |
//! |-----------------------------------------------------------------------|-----------------------------|
//! | routes and neighbours go                                              | API's thread (`routing/removal.rs`) |
//! | queues are given up, each when all that was handed on from it has left | workers, asked by the control thread |
//! | transmitters are given up; what is still sent to them is dropped (`port_down`) | workers, alike; for those that have stopped, the control thread |
//! | what the device has is waited for, taken back, and counted, and it is closed | a thread of its own ([`Closer`], `control/closing.rs`) |
//!
//! Counters stay: what was received by the port is in the ledger for good.

use std::sync::{Arc, Mutex, PoisonError};

use manylane_frame::Depot;
use manylane_frame::vocabulary::{PortId, QueueId};
use manylane_io::port::{CopyCounts, FaultCounts, Losses, Receiver, Transmitter};

use super::queues::QueueMove;
use super::workers::Presence;
use super::{SteeredPort, Steering};
use crate::control::open::{self, OpenPort};
use manylane_api::PortState;
use manylane_worker::stats::{PortCount, Stats};
use manylane_worker::worker::queue_handover::Task;

/// The open ports, by id; none where one was removed.
pub type Ports = Arc<Mutex<Vec<Option<OpenPort>>>>;

/// A port that is being removed, with what workers have given up of it.
pub struct Removal {
    /// Which.
    pub port: PortId,
    /// Its queues.
    pub receivers: Vec<Receiver>,
    /// Its transmitters.
    pub transmitters: Vec<Transmitter>,
    queues: usize,
    /// Workers that have the task to give up their transmitter.
    asked: u16,
}

impl Steering {
    /// Begins to remove a port: nothing is received by it any more.
    pub fn remove_port(&mut self, port: PortId) {
        let SteeredPort { owners, state, .. } = &mut self.ports[port.index()];
        *state = PortState::Draining;
        for (queue, &from) in (0..).map(QueueId).zip(owners.iter()) {
            self.queues.lead(QueueMove { port, queue, from, to: None, asked: false });
        }
        let queues = owners.len();
        let (receivers, transmitters) = (Vec::new(), Vec::new());
        self.removals.push(Removal { port, receivers, transmitters, queues, asked: 0 });
    }

    /// Whether a port is there, and for how long.
    pub fn port_state(&self, port: PortId) -> PortState {
        // A sub-interface stays while its port does.
        self.ports.get(port.index()).map_or(PortState::Open, |port| port.state)
    }

    /// Requests from workers their transmitters of ports whose queues have been given up.
    pub(super) fn tend_removals(&mut self) {
        let Steering { removals, queues, bells, ports, presence, threads, .. } = self;
        for removal in removals.iter_mut().filter(|one| one.receivers.len() == one.queues) {
            let port = &mut ports[removal.port.index()];
            port.owners.clear();
            port.homes.clear();
            while let Some(handover) = queues.handovers.get_mut(usize::from(removal.asked)) {
                if handover.tasks.push(Task::Close(removal.port)).is_err() {
                    break; // The ring of tasks is full: later.
                }
                handover.tasks.submit();
                bells[usize::from(removal.asked)].ring();
                removal.asked += 1;
            }
        }
        if !removals.is_empty() {
            for (worker, _) in (0..).zip(&*presence).filter(|(_, one)| **one == Presence::Absent) {
                threads.serve_handover(worker);
            }
        }
    }

    /// Whether a port waits for workers, which the control thread polls by the clock.
    pub(super) fn is_removing(&self) -> bool {
        !self.removals.is_empty()
    }

    /// A port that no worker has anything of any more, to be closed.
    pub fn take_removed(&mut self) -> Option<Removal> {
        let workers = self.bells.len();
        let is_free =
            |one: &Removal| one.receivers.len() == one.queues && one.transmitters.len() == workers;
        let at = self.removals.iter().position(is_free)?;
        Some(self.removals.swap_remove(at))
    }

    /// Notes that the port is closed, and how many frames its device has kept.
    pub fn removed(&mut self, port: PortId, kept: usize) {
        self.ports[port.index()].state = PortState::Removed;
        self.kept += kept;
    }

    /// Frames that the devices of removed ports have kept.
    pub fn kept(&self) -> usize {
        self.kept
    }
}

/// What closes ports while the daemon runs, in the network namespace that they were opened in.
pub struct Closer {
    /// All that are open.
    pub ports: Ports,
    /// Takes the frames of closed ports.
    pub depot: Depot,
    /// What becomes of packets that they were to send.
    pub stats: Stats,
}

impl Closer {
    /// Closes a port; returns how many frames its device has kept. Takes as long as a device needs to send its queued
    /// frames, a tenth of a second at most, and two seconds more where a device without copies lets go late.
    pub fn close(&mut self, removal: Removal) -> usize {
        let Removal { port: id, receivers, transmitters, .. } = removal;
        let Closer { ports, depot, stats } = self;
        let mut open = ports.lock().unwrap_or_else(PoisonError::into_inner);
        let port = open[id.index()].take().expect("a port is removed once");
        drop(open);
        // Its workers' levels of these ended with its queues.
        let mut losses = Losses::default();
        receivers.iter().for_each(|queue| losses += queue.losses());
        let faults = receivers.iter().map(Receiver::faults);
        let copies = receivers.iter().map(Receiver::copies);
        let faults = faults.fold(FaultCounts::default(), |sum, one| sum + one);
        stats.wrapped(id, faults, copies.fold(CopyCounts::default(), |sum, one| sum + one));
        stats.level(id, PortCount::LostRingFull, losses.ring_full);
        stats.level(id, PortCount::LostNoBuffer, losses.no_buffer);
        stats.level(id, PortCount::LostInvalid, losses.invalid + losses.too_large);
        let mut pool = depot.pool();
        let (receivers, transmitters) = open::unwrap(receivers, transmitters, &mut pool, stats, id);
        open::close(port, receivers, transmitters, &mut pool, stats, id)
    }
}
