//! Receive queues that go from one worker to another: the control thread's part (`worker/queue_handover.rs` has the
//! workers').

use std::sync::Arc;

use manylane_frame::vocabulary::{PortId, QueueId, WorkerId};
use manylane_io::port::{Receiver, Transmitter};
use manylane_sync::words::WordsMut;

use super::removal::Removal;
use super::settings::refused;
use super::{PortSteering, Steering};
use crate::control::open::Bell;
use manylane_api::{ApiError, SetError, SettingValue};
use manylane_worker::Reclaimer;
use manylane_worker::worker::queue_handover::{GivenUp, QueueHandoverEnd, Task};

/// Which worker has which queue, and which is to have it.
pub(super) struct Queues {
    /// By worker.
    pub handovers: Vec<QueueHandoverEnd>,
    /// A word for each queue, port by port: its owner.
    owners: WordsMut<u32>,
    /// Where each port's begin.
    first: Vec<usize>,
    moves: Vec<QueueMove>,
    /// Given up, and not passed on.
    between: Vec<Receiver>,
}

pub(super) struct QueueMove {
    pub port: PortId,
    pub queue: QueueId,
    pub from: WorkerId,
    /// None if the port is removed.
    pub to: Option<WorkerId>,
    pub asked: bool,
}

impl Queues {
    pub(super) fn new(owners: &[Vec<WorkerId>], handovers: Vec<QueueHandoverEnd>) -> Queues {
        let mut first = Vec::new();
        let mut queues = 0;
        for owners in owners {
            first.push(queues);
            queues += owners.len();
        }
        let mut words = WordsMut::zeroed(queues.max(1));
        for (at, owner) in owners.iter().flatten().enumerate() {
            words.publish(at, owner.0.into());
        }
        Queues { handovers, owners: words, first, moves: Vec::new(), between: Vec::new() }
    }

    /// Moves a queue, or, if it is on its way, leads it elsewhere: maybe back.
    pub(super) fn lead(&mut self, new: QueueMove) {
        let is_it = |one: &&mut QueueMove| (one.port, one.queue) == (new.port, new.queue);
        match self.moves.iter_mut().find(is_it) {
            Some(under_way) => under_way.to = new.to,
            None if new.to != Some(new.from) => self.moves.push(new),
            None => {}
        }
    }

    /// Where a queue is to go.
    pub(super) fn moving_to(&self, port: PortId, queue: QueueId) -> Option<WorkerId> {
        let is_it = |one: &&QueueMove| (one.port, one.queue) == (port, queue);
        self.moves.iter().find(is_it).and_then(|one| one.to)
    }
}

impl Steering {
    /// What takes back the frames sent through the device that a port's queue belongs to.
    pub fn reclaimer(&self, port: PortId, queue: QueueId, bells: &Arc<[Bell]>) -> Reclaimer {
        let at = self.queues.first[port.index()] + usize::from(queue.0);
        Reclaimer { owners: self.queues.owners.reader(), at, bells: bells.clone() }
    }

    /// The workers that receive from the queues of a port, in order.
    pub fn owners(&self, port: PortId) -> &[WorkerId] {
        self.ports.get(port.index()).map_or(&[], |port| &port.owners)
    }

    /// The workers that receive from the queues of a port, and those that will when queues on the move have arrived.
    pub(super) fn receivers_of(&self, port: usize) -> impl Iterator<Item = WorkerId> {
        let coming = self.queues.moves.iter().filter(move |one| one.port.index() == port);
        self.ports[port].owners.iter().copied().chain(coming.filter_map(|one| one.to))
    }

    /// Begins to move a receive queue to another worker.
    pub(super) fn set_queue(
        &mut self,
        name: &str,
        queue: &str,
        value: &str,
    ) -> Result<SettingValue, SetError> {
        let at = self.port(name)?;
        let (id, port) = (PortId(at as u16), &self.ports[at]);
        let known = |&queue: &u16| usize::from(queue) < port.owners.len();
        let Some(queue) = queue.parse().ok().filter(known) else {
            let (error, help) = match port.owners.len() {
                1 => (format!("port `{name}` has no queue {queue}"), "there is 0".to_owned()),
                queues => (
                    format!("port `{name}` has no queue {queue}"),
                    format!("there are 0 to {}", queues - 1),
                ),
            };
            return Err(SetError::UnknownKey(ApiError { error, help }));
        };
        let (from, to) = (port.owners[usize::from(queue)], WorkerId(self.value_worker(value)?));
        if port.stays {
            return Err(refused(
                format!("queue {queue} of `{name}` stays with worker {}: it is in memory", from.0),
                "list its `workers` in the configuration".into(),
            ));
        }
        if !self.has_rings() {
            return Err(refused(
                format!("queue {queue} of `{name}` stays with worker {}: no rings exist", from.0),
                "start with `receivers` in [steering]".into(),
            ));
        }
        if self.queues.moving_to(id, QueueId(queue)).is_some() {
            return Err(refused(
                format!("queue {queue} of `{name}` is on its way to another worker"),
                "try again when `manylane show steering` says that it is there".into(),
            ));
        }
        if port.steering == PortSteering::Flow && !self.receivers[usize::from(to.0)] {
            return Err(refused(
                format!("worker {} cannot receive by flow: it has no rings to the others", to.0),
                format!("start with {} among `receivers` in [steering]", to.0),
            ));
        }
        if port.steering == PortSteering::Queue && self.paused[usize::from(to.0)] {
            return Err(refused(
                format!("worker {} takes no queue: it is paused, and would forward", to.0),
                format!(
                    "set port.{name}.steering to `flow` first, or worker.{}.paused to `false`",
                    to.0
                ),
            ));
        }
        let queue = QueueId(queue);
        self.queues.lead(QueueMove { port: id, queue, from, to: Some(to), asked: false });
        self.ports[at].homes[usize::from(queue.0)] = to;
        Ok(SettingValue::Number(to.0.into()))
    }

    /// Whether a queue is to be requested from a worker, or to be passed on.
    pub fn has_tasks(&mut self) -> bool {
        let Queues { handovers, moves, between, .. } = &mut self.queues;
        moves.iter().any(|one| !one.asked)
            || !between.is_empty()
            || handovers.iter_mut().any(|handover| !handover.given_up.is_empty())
    }

    /// Requests queues from workers, and passes on the queues given up.
    pub fn tend(&mut self) {
        self.tend_workers();
        self.tend_removals();
        let Queues { handovers, owners, first, moves, between } = &mut self.queues;
        for one in moves.iter_mut().filter(|one| !one.asked) {
            let from = usize::from(one.from.0);
            let task = Task::GiveUp(one.port, one.queue);
            one.asked = handovers[from].tasks.push(task).is_ok();
            handovers[from].tasks.submit();
            self.bells[from].ring();
        }
        for handover in handovers.iter_mut() {
            while let Some(given_up) = handover.given_up.pop() {
                match given_up {
                    GivenUp::Queue(receiver) => between.push(receiver),
                    GivenUp::Egress(port, transmitter) => {
                        of_port(&mut self.removals, port).transmitters.push(transmitter)
                    }
                }
            }
            handover.given_up.release();
        }
        while let Some(receiver) = between.pop() {
            let (port, queue) = (receiver.port(), receiver.queue());
            let is_it = |one: &QueueMove| (one.port, one.queue) == (port, queue);
            let at = moves.iter().position(is_it).expect("only what was asked for is given up");
            let Some(to) = moves[at].to else {
                moves.remove(at);
                of_port(&mut self.removals, port).receivers.push(receiver);
                continue;
            };
            let handover = &mut handovers[usize::from(to.0)];
            if let Err(Task::Take(receiver)) = handover.tasks.push(Task::Take(receiver)) {
                between.push(receiver); // Its ring of tasks is full: later.
                break;
            }
            moves.remove(at);
            owners.publish(first[port.index()] + usize::from(queue.0), to.0.into());
            self.ports[port.index()].owners[usize::from(queue.0)] = to;
            handover.tasks.submit();
            self.bells[usize::from(to.0)].ring();
        }
    }

    /// What was given up and not passed on, when no worker runs any more.
    pub fn take_back(&mut self) -> (Vec<Receiver>, Vec<(PortId, Transmitter)>) {
        let Queues { handovers, between, .. } = &mut self.queues;
        let (mut receivers, mut transmitters) = (std::mem::take(between), Vec::new());
        for given_up in
            handovers.iter_mut().flat_map(|handover| std::iter::from_fn(|| handover.given_up.pop()))
        {
            match given_up {
                GivenUp::Queue(receiver) => receivers.push(receiver),
                GivenUp::Egress(port, transmitter) => transmitters.push((port, transmitter)),
            }
        }
        for Removal { port, receivers: given_up, transmitters: closed, .. } in
            self.removals.drain(..)
        {
            receivers.extend(given_up);
            transmitters.extend(closed.into_iter().map(|transmitter| (port, transmitter)));
        }
        (receivers, transmitters)
    }
}

fn of_port(removals: &mut [Removal], port: PortId) -> &mut Removal {
    let found = removals.iter_mut().find(|removal| removal.port == port);
    found.expect("only ports that are removed are given up")
}
