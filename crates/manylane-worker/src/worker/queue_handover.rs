//! Receive queues that change workers while traffic flows, and transmitters that are closed, through the control
//! thread.
//!
//! | step                                             | actor           |
//! |--------------------------------------------------|-----------------|
//! | requests the queue                               | control thread  |
//! | receives no more from it; waits until all packets that it handed off have left | its worker |
//! | after [`STALL_MAX_NS`], requests that all workers release packets held for neighbours | its worker |
//! | drop held packets which that worker received, and hold none of them (`queue_moved`) | all workers |
//! | gives it up                                      | its worker      |
//! | says that it is another's, and hands it over     | control thread  |
//! | receives from it                                 | that one        |
//!
//! So no packet of the new worker can pass one of the old one's. What comes meanwhile waits in the port's
//! ring; what the port's device finishes is taken back all the time, by the worker that has the queue.
//!
//! What is held may leave seconds later, or never: without the drop, one silent neighbour would stop a queue for
//! as long. The price is what waits for neighbours at that moment, of all that the worker received: marks do not
//! tell by which of its queues. A neighbour that answers within the millisecond costs nothing.
//!
//! A port that is removed loses its queues so, to the control thread, and then its transmitters: a packet that still
//! reaches one is dropped (`port_down`). A worker that hands nothing off gives a queue up at once.

use std::sync::Arc;

use manylane_frame::vocabulary::{PortId, QueueId};
use manylane_io::eventfd::EventFd;
use manylane_io::port::{Receiver, Transmitter, memory};
use manylane_sync::CacheAligned;
use manylane_sync::counters::SharedCount;
use manylane_sync::doorbell::Doorbell;
use manylane_sync::handoff::Handed;
use manylane_sync::ring::{Consumer, Producer, ring};

use super::handoff::STALL_MAX_NS;
use super::{State, Work};

/// What the control thread wants of a worker's queues.
pub enum Task {
    /// Give this one up.
    GiveUp(PortId, QueueId),
    /// Receive from this one.
    Take(Receiver),
    /// Give up the transmitter of this port.
    Close(PortId),
}

/// What a worker gives up.
pub enum GivenUp {
    /// A receive queue.
    Queue(Receiver),
    /// The transmitter of a port.
    Egress(PortId, Transmitter),
}

/// A worker's side.
pub struct QueueHandover {
    tasks: Consumer<Task>,
    given_up: Producer<GivenUp>,
    control: Arc<Doorbell<EventFd>>,
    /// Queues that are not received from any more, and what they wait for.
    draining: Vec<Draining>,
    /// Transmitters that are to be given up.
    closing: Vec<PortId>,
}

struct Draining {
    port: PortId,
    queue: QueueId,
    /// The packets handed off before; `None` for a worker that hands nothing off.
    handed_before: Option<Handed>,
    /// When all workers get the request to release held packets.
    request_at_ns: u64,
    is_requested: bool,
}

/// Requests of receivers that no worker hold their packets: for how many queues, by worker, and in all.
#[derive(Clone)]
pub(super) struct ReleaseRequests {
    of: Arc<[SharedCount]>,
    /// Read in every turn.
    all: Arc<CacheAligned<SharedCount>>,
}

impl ReleaseRequests {
    pub(super) fn new(workers: usize) -> ReleaseRequests {
        let of = (0..workers).map(|_| SharedCount::default()).collect();
        ReleaseRequests { of, all: Arc::new(CacheAligned(SharedCount::default())) }
    }

    /// Whether a request is open.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.all.0.load() > 0
    }

    /// Whether this receiver has an open request.
    pub(super) fn is_requested_by(&self, receiver: u8) -> bool {
        self.of[usize::from(receiver)].load() > 0
    }

    pub(super) fn begin(&self, receiver: u16) {
        self.of[usize::from(receiver)].add(1);
        self.all.0.add(1);
    }

    pub(super) fn end(&self, receiver: u16) {
        self.all.0.sub(1);
        self.of[usize::from(receiver)].sub(1);
    }
}

/// The control thread's side.
pub struct QueueHandoverEnd {
    /// Where tasks go.
    pub tasks: Producer<Task>,
    /// Queues and transmitters that the worker gives up.
    pub given_up: Consumer<GivenUp>,
}

/// Both sides of a worker's hand-over; `control` is the control thread's bell.
pub fn queue_handover(control: &Arc<Doorbell<EventFd>>) -> (QueueHandover, QueueHandoverEnd) {
    let ((tasks, tasked), (giver, given_up)) = (ring(TASKS), ring(TASKS));
    let control = control.clone();
    let queue_handover = QueueHandover {
        tasks: tasked,
        given_up: giver,
        control,
        draining: Vec::new(),
        closing: Vec::new(),
    };
    (queue_handover, QueueHandoverEnd { tasks, given_up })
}

/// Tasks and queues on their way: the control thread sends one task at a time for each queue of a worker.
const TASKS: usize = 64;

impl QueueHandover {
    /// Whether the control thread has put something there.
    pub(super) fn has_tasks(&mut self) -> bool {
        !self.tasks.is_empty()
    }

    /// Whether a queue or a transmitter waits to be given up.
    pub(super) fn has_pending(&self) -> bool {
        !self.draining.is_empty() || !self.closing.is_empty()
    }

    /// Whether it is this one.
    pub(super) fn drains(&self, port: PortId, queue: QueueId) -> bool {
        self.draining.iter().any(|draining| (draining.port, draining.queue) == (port, queue))
    }
}

impl Work {
    /// Does what the control thread wants, as far as that is possible by now. Between two turns: nothing waits to
    /// be transmitted.
    #[cold]
    pub(super) fn serve_handover(&mut self) {
        let Work { state: State { now_ns, .. }, handoff, queues, queue_handover, .. } = self;
        let mut changed = false;
        while let Some(task) = queue_handover.tasks.pop() {
            match task {
                Task::Take(receiver) => queues.push(receiver),
                Task::GiveUp(port, queue) => {
                    let handed_before = handoff.as_ref().map(|handoff| handoff.handed());
                    let request_at_ns = *now_ns + STALL_MAX_NS;
                    queue_handover.draining.push(Draining {
                        port,
                        queue,
                        handed_before,
                        request_at_ns,
                        is_requested: false,
                    });
                }
                Task::Close(port) => queue_handover.closing.push(port),
            }
            changed = true;
        }
        queue_handover.tasks.release();
        changed |= self.give_up_queues();
        changed |= self.give_up_egresses();
        if changed {
            // The levels have a new owner, and readers must see these before the new owner's.
            self.publish_levels();
            self.queue_handover.given_up.submit();
            self.queue_handover.control.ring();
        }
    }

    fn give_up_queues(&mut self) -> bool {
        let Work {
            state: State { next_queue, now_ns, .. }, handoff, queues, queue_handover, ..
        } = self;
        let before = queues.len();
        let mut draining = std::mem::take(&mut queue_handover.draining);
        draining.retain_mut(
            |Draining { port, queue, handed_before, request_at_ns, is_requested }| {
                let is_it =
                    |receiver: &Receiver| (receiver.port(), receiver.queue()) == (*port, *queue);
                let Some(at) = queues.iter().position(is_it) else { return false };
                if let (Some(handoff), Some(handed_before)) = (handoff.as_mut(), handed_before) {
                    if !handoff.has_completed(handed_before) {
                        if !*is_requested && *now_ns >= *request_at_ns {
                            handoff.request_release();
                            *is_requested = true;
                        }
                        return true;
                    }
                    if std::mem::take(is_requested) {
                        handoff.release_requests.end(handoff.own());
                    }
                }
                if queue_handover.given_up.free() == 0 {
                    return true; // The queue stays completed: nothing more is received from it.
                }
                let pushed = queue_handover.given_up.push(GivenUp::Queue(queues.remove(at)));
                assert!(pushed.is_ok(), "the ring had room");
                *next_queue = 0;
                false
            },
        );
        queue_handover.draining = draining;
        queues.len() < before
    }

    fn give_up_egresses(&mut self) -> bool {
        let mut changed = false;
        while self.queue_handover.given_up.free() > 0
            && let Some(port) = self.queue_handover.closing.pop()
        {
            self.publish_levels(); // The transmitter's counts stay.
            let egress = &mut self.egresses[port.index()];
            let nothing = Transmitter::Memory(memory::Transmitter::closed());
            let transmitter = std::mem::replace(&mut egress.transmitter, nothing);
            (egress.is_closed, egress.reclaimer) = (true, None);
            let pushed = self.queue_handover.given_up.push(GivenUp::Egress(port, transmitter));
            assert!(pushed.is_ok(), "the ring had room");
            changed = true;
        }
        changed
    }

    /// Takes the queues out of the ring of tasks when no worker runs any more.
    pub(super) fn drain_tasks(&mut self) {
        while let Some(task) = self.queue_handover.tasks.pop() {
            if let Task::Take(receiver) = task {
                self.queues.push(receiver);
            }
        }
    }
}
