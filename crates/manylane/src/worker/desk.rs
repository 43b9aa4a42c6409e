//! Receive queues that change hands while traffic flows, and ways out that are closed, through the control
//! thread.
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
//!
//! A port that is removed loses its queues so, to the control thread, and then its ways out: what still comes to
//! one is dropped (`port_down`). Who hands nothing on gives a queue up at once.

use std::sync::Arc;

use manylane_frame::vocabulary::{PortId, QueueId};
use manylane_io::eventfd::EventFd;
use manylane_io::port::{Receiver, Transmitter, memory};
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
    /// Give up the way out by this port.
    Close(PortId),
}

/// What a worker gives up.
pub enum GivenUp {
    /// A receive queue.
    Queue(Receiver),
    /// The way out by a port.
    Exit(PortId, Transmitter),
}

/// A worker's side.
pub struct Desk {
    tasks: Consumer<Task>,
    given_up: Producer<GivenUp>,
    control: Arc<Doorbell<EventFd>>,
    /// Queues that are not received from any more, and what they wait for.
    leaving: Vec<(PortId, QueueId, Option<Handed>)>,
    /// Ways out that are to be given up.
    closing: Vec<PortId>,
}

/// The control thread's side.
pub struct DeskEnd {
    /// Where tasks go.
    pub tasks: Producer<Task>,
    /// Where queues and ways out come from.
    pub given_up: Consumer<GivenUp>,
}

/// Both sides of a worker's desk; `control` is the control thread's bell.
pub fn desk(control: &Arc<Doorbell<EventFd>>) -> (Desk, DeskEnd) {
    let ((tasks, tasked), (giver, given_up)) = (ring(TASKS), ring(TASKS));
    let control = control.clone();
    let desk =
        Desk { tasks: tasked, given_up: giver, control, leaving: Vec::new(), closing: Vec::new() };
    (desk, DeskEnd { tasks, given_up })
}

/// Tasks and queues on their way: one task at a time for each queue of a worker is asked for.
const TASKS: usize = 64;

impl Desk {
    /// Whether the control thread has put something there.
    pub(super) fn has_tasks(&mut self) -> bool {
        !self.tasks.is_empty()
    }

    /// Whether a queue or a way out waits to be given up.
    pub(super) fn is_leaving(&self) -> bool {
        !self.leaving.is_empty() || !self.closing.is_empty()
    }

    /// Whether it is this one.
    pub(super) fn leaves(&self, port: PortId, queue: QueueId) -> bool {
        self.leaving.iter().any(|&(its_port, its_queue, _)| (its_port, its_queue) == (port, queue))
    }
}

impl Work {
    /// Does what the control thread wants, as far as that is possible by now. Between two turns: nothing waits to
    /// be transmitted.
    #[cold]
    pub(super) fn attend(&mut self) {
        let Work { handoff, queues, desk, .. } = self;
        let mut changed = false;
        while let Some(task) = desk.tasks.pop() {
            match task {
                Task::Take(receiver) => queues.push(receiver),
                Task::GiveUp(port, queue) => {
                    let then = handoff.as_ref().map(|handoff| handoff.handed());
                    desk.leaving.push((port, queue, then));
                }
                Task::Close(port) => desk.closing.push(port),
            }
            changed = true;
        }
        desk.tasks.release();
        changed |= self.give_up_queues();
        changed |= self.give_up_exits();
        if changed {
            // Whose levels these are has changed, and must be seen before somebody else's.
            self.publish_levels();
            self.desk.given_up.submit();
            self.desk.control.ring();
        }
    }

    fn give_up_queues(&mut self) -> bool {
        let Work { handoff, queues, desk, next_queue, .. } = self;
        let before = queues.len();
        let mut leaving = std::mem::take(&mut desk.leaving);
        leaving.retain_mut(|(port, queue, then)| {
            let is_it =
                |receiver: &Receiver| (receiver.port(), receiver.queue()) == (*port, *queue);
            let Some(at) = queues.iter().position(is_it) else { return false };
            let has_left = match (handoff.as_mut(), then) {
                (Some(handoff), Some(then)) => handoff.has_completed(then),
                _ => true,
            };
            if desk.given_up.free() == 0 || !has_left {
                return true;
            }
            let pushed = desk.given_up.push(GivenUp::Queue(queues.remove(at)));
            assert!(pushed.is_ok(), "there was room");
            *next_queue = 0;
            false
        });
        desk.leaving = leaving;
        queues.len() < before
    }

    fn give_up_exits(&mut self) -> bool {
        let mut changed = false;
        while self.desk.given_up.free() > 0
            && let Some(port) = self.desk.closing.pop()
        {
            self.publish_levels(); // What the way out has counted stays.
            let exit = &mut self.exits[port.index()];
            let nothing = Transmitter::Memory(memory::Transmitter::closed());
            let transmitter = std::mem::replace(&mut exit.transmitter, nothing);
            (exit.is_closed, exit.reclaimer) = (true, None);
            let pushed = self.desk.given_up.push(GivenUp::Exit(port, transmitter));
            assert!(pushed.is_ok(), "there was room");
            changed = true;
        }
        changed
    }

    /// Takes what lies on the desk when nobody runs any more.
    pub(super) fn clear_desk(&mut self) {
        while let Some(task) = self.desk.tasks.pop() {
            if let Task::Take(receiver) = task {
                self.queues.push(receiver);
            }
        }
    }
}
