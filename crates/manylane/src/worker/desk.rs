//! Receive queues that change hands while traffic flows, through the control thread.
//!
//! | step                                             | who             |
//! |--------------------------------------------------|-----------------|
//! | asks for the queue                               | control thread  |
//! | receives no more from it; waits until all that it handed on has left; gives it up | its worker |
//! | says that it is another's, and passes it on      | control thread  |
//! | receives from it                                 | that one        |
//!
//! So no packet of the new worker can pass one of the old one's. What comes meanwhile waits in the port's
//! ring; what the port's device finishes is taken back all the time, by whoever has the queue.

use std::sync::Arc;

use manylane_frame::vocabulary::{PortId, QueueId};
use manylane_io::eventfd::EventFd;
use manylane_io::port::Receiver;
use manylane_sync::doorbell::Doorbell;
use manylane_sync::handoff::Handed;
use manylane_sync::ring::{Consumer, Producer, ring};

use super::Work;

/// What the control thread wants of a worker's queues.
pub enum Task {
    /// Give this one up.
    GiveUp(PortId, QueueId),
    /// Receive from this one.
    Take(Receiver),
}

/// A worker's side.
pub(super) struct Desk {
    tasks: Consumer<Task>,
    given_up: Producer<Receiver>,
    control: Arc<Doorbell<EventFd>>,
    /// Queues that are not received from any more, and what they wait for.
    leaving: Vec<(PortId, QueueId, Handed)>,
}

/// The control thread's side.
pub struct DeskEnd {
    /// Where tasks go.
    pub tasks: Producer<Task>,
    /// Where queues come from.
    pub given_up: Consumer<Receiver>,
}

/// Both sides of a worker's desk; `control` is the control thread's bell.
pub(super) fn desk(control: &Arc<Doorbell<EventFd>>) -> (Desk, DeskEnd) {
    let ((tasks, tasked), (giver, given_up)) = (ring(TASKS), ring(TASKS));
    let control = control.clone();
    let desk = Desk { tasks: tasked, given_up: giver, control, leaving: Vec::new() };
    (desk, DeskEnd { tasks, given_up })
}

/// Tasks and queues on their way: one task at a time for each queue of a worker is asked for.
const TASKS: usize = 64;

impl Desk {
    /// Whether the control thread has put something there.
    pub(super) fn has_tasks(&mut self) -> bool {
        !self.tasks.is_empty()
    }

    /// Whether a queue waits to be given up.
    pub(super) fn is_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Whether it is this one.
    pub(super) fn leaves(&self, port: PortId, queue: QueueId) -> bool {
        self.leaving.iter().any(|&(its_port, its_queue, _)| (its_port, its_queue) == (port, queue))
    }
}

impl Work {
    /// Does what the control thread wants, as far as that is possible by now. At the beginning of a turn.
    #[cold]
    pub(super) fn attend(&mut self) {
        let Work { handoff, queues, next_queue, .. } = self;
        let Some(handoff) = handoff else { return };
        let mut changed = false;
        while let Some(task) = handoff.desk.tasks.pop() {
            match task {
                Task::Take(receiver) => queues.push(receiver),
                Task::GiveUp(port, queue) => {
                    let then = handoff.handed();
                    handoff.desk.leaving.push((port, queue, then));
                }
            }
            changed = true;
        }
        handoff.desk.tasks.release();
        let mut leaving = std::mem::take(&mut handoff.desk.leaving);
        leaving.retain_mut(|(port, queue, then)| {
            let is_it =
                |receiver: &Receiver| (receiver.port(), receiver.queue()) == (*port, *queue);
            let Some(at) = queues.iter().position(is_it) else { return false };
            let free = handoff.desk.given_up.free() > 0;
            if !free || !handoff.has_completed(then) {
                return true;
            }
            let pushed = handoff.desk.given_up.push(queues.remove(at));
            assert!(pushed.is_ok(), "there was room");
            (*next_queue, changed) = (0, true);
            false
        });
        handoff.desk.leaving = leaving;
        if changed {
            // Whose levels these are has changed, and must be seen before somebody else's.
            self.publish_levels();
            if let Some(handoff) = &mut self.handoff {
                handoff.desk.given_up.submit();
                handoff.desk.control.ring();
            }
        }
    }

    /// Takes what lies on the desk when nobody runs any more.
    pub(super) fn clear_desk(&mut self) {
        let Some(handoff) = &mut self.handoff else { return };
        while let Some(task) = handoff.desk.tasks.pop() {
            if let Task::Take(receiver) = task {
                self.queues.push(receiver);
            }
        }
    }
}
