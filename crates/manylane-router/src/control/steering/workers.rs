//! Workers that are added and removed while traffic flows: the control thread's and the API's part
//! (`worker/leave.rs` has the workers').

use manylane_frame::vocabulary::{PortId, QueueId, WorkerId};

use super::queues::QueueMove;
use super::settings::refused;
use super::{PortSteering, SteeredPort, Steering, limits};
use crate::control::worker_threads::WorkerThreads;
use manylane_api::{ApiError, PortState, SetError, SettingValue, WorkerState};
use manylane_worker::worker::phase::{DRAIN, END};

/// Whether a worker has a thread, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    Running,
    /// Its buckets and queues go to others; none is wanted there since this generation.
    Leaving {
        since: u32,
    },
    /// The worker receives nothing any more.
    Ending,
    Absent,
}

impl Steering {
    /// Why a port is steered as it is. The number of workers is that of the start; which of them run may change.
    pub(super) fn why(&self, port: &SteeredPort) -> String {
        let (why, running) = (&port.why, self.running());
        match why.ends_with(" workers") && usize::from(running) < self.presence.len() {
            true => {
                format!("{why}, of which {running} {}", if running == 1 { "runs" } else { "run" })
            }
            false => why.clone(),
        }
    }

    /// Takes over the workers, which have not begun, and gives the first `started` their threads.
    pub fn start_workers(&mut self, threads: WorkerThreads, started: usize) -> std::io::Result<()> {
        self.threads = threads;
        (0..started as u16).try_for_each(|worker| self.threads.start(worker))
    }

    /// The workers, to be stopped. None begins any more.
    pub fn take_worker_threads(&mut self) -> WorkerThreads {
        std::mem::take(&mut self.threads)
    }

    /// What is shown of a worker.
    pub fn state(&self, worker: usize) -> WorkerState {
        match self.presence[worker] {
            Presence::Running => WorkerState::Running,
            Presence::Leaving { .. } | Presence::Ending => WorkerState::Draining,
            Presence::Absent => WorkerState::Stopped,
        }
    }

    /// Whether buckets go to a worker.
    pub(super) fn is_active(&self, worker: u16) -> bool {
        self.runs(worker) && !self.paused[usize::from(worker)]
    }

    pub(super) fn runs(&self, worker: u16) -> bool {
        self.presence[usize::from(worker)] == Presence::Running
    }

    /// How many workers run, those that leave not counted: always the first ones.
    fn running(&self) -> u16 {
        (0..self.presence.len() as u16).filter(|&worker| self.runs(worker)).count() as u16
    }

    /// Adds or removes workers at the end of the list until their number is `value`.
    pub(super) fn set_workers(&mut self, value: &str) -> Result<SettingValue, SetError> {
        let most = self.presence.len() as u16;
        let wanted = value.parse().ok().filter(|number| (1..=most).contains(number));
        let wanted: u16 = wanted.ok_or_else(|| {
            let help = match most {
                1 => "start with more, or with `max`, in [workers]".to_owned(),
                _ => format!(
                    "choose a number from 1 to {most}; for more, start with `max` in [workers]"
                ),
            };
            refused(format!("workers cannot be {value}: the daemon is laid out for {most}"), help)
        })?;
        match self.running() {
            running if wanted < running => self.remove_workers(wanted, running)?,
            running => self.add_workers(running, wanted)?,
        }
        Ok(SettingValue::Number(wanted.into()))
    }

    fn remove_workers(&mut self, wanted: u16, running: u16) -> Result<(), SetError> {
        if !(0..wanted).any(|worker| self.is_active(worker)) {
            return Err(refused(
                format!("workers cannot be {wanted}: all that would be left are paused"),
                "resume another first".into(),
            ));
        }
        for (port, queue, to) in self.successors(wanted)? {
            self.move_queue(port, queue, to);
        }
        (wanted..running).for_each(|worker| self.presence[usize::from(worker)] = Presence::Ending);
        self.publish();
        let since = self.limits.load(limits::GENERATION);
        for worker in wanted..running {
            self.presence[usize::from(worker)] = Presence::Leaving { since };
            self.threads.set_phase(worker, DRAIN);
        }
        Ok(())
    }

    /// The workers that are to have the queues that workers from `wanted` on have, or are to get.
    fn successors(&self, wanted: u16) -> Result<Vec<(PortId, QueueId, WorkerId)>, SetError> {
        let mut queues = vec![0; usize::from(wanted)];
        let mut orphans = Vec::new();
        let open = |(_, port): &(PortId, &SteeredPort)| port.state == PortState::Open;
        for (id, port) in (0..).map(PortId).zip(&self.ports).filter(open) {
            for (queue, &owner) in (0..).map(QueueId).zip(&port.owners) {
                let to = self.queues.moving_to(id, queue).unwrap_or(owner);
                match queues.get_mut(usize::from(to.0)) {
                    Some(queues) => *queues += 1,
                    None => orphans.push((id, queue, to)),
                }
            }
        }
        let successor = |(id, queue, WorkerId(leaves)): (PortId, QueueId, WorkerId)| {
            let port = &self.ports[id.index()];
            let name = &port.name;
            let stays = |why: &str, help: String| {
                refused(
                    format!("worker {leaves} cannot be removed: it receives by `{name}`, {why}"),
                    help,
                )
            };
            if port.stays {
                let help = "list other `workers` for the port in the configuration".into();
                return Err(stays("which is in memory and stays with it", help));
            }
            if !self.has_rings() {
                let help = "start with `receivers` in [steering]".into();
                return Err(stays("and no rings exist to move that", help));
            }
            let may = |&worker: &u16| match port.steering {
                PortSteering::Flow => self.receivers[usize::from(worker)],
                PortSteering::Queue => !self.paused[usize::from(worker)],
            };
            let least = (0..wanted).filter(may).min_by_key(|&worker| queues[usize::from(worker)]);
            let Some(to) = least else {
                let help = "start with 0 among `receivers` in [steering]".into();
                return Err(stays("and no other has rings to hand on by", help));
            };
            queues[usize::from(to)] += 1;
            Ok((id, queue, WorkerId(to)))
        };
        orphans.into_iter().map(successor).collect()
    }

    fn add_workers(&mut self, running: u16, wanted: u16) -> Result<(), SetError> {
        let leaves = |&worker: &u16| self.presence[usize::from(worker)] != Presence::Absent;
        if let Some(worker) = (running..wanted).find(leaves) {
            return Err(refused(
                format!("workers cannot be {wanted}: worker {worker} is still leaving"),
                "try again when `manylane show workers` says that it has stopped".into(),
            ));
        }
        for worker in running..wanted {
            self.threads.start(worker).map_err(|error| {
                SetError::NoRoom(ApiError {
                    error: format!("no thread for worker {worker}: {error}"),
                    help: format!("there are {worker} workers now"),
                })
            })?;
            self.presence[usize::from(worker)] = Presence::Running;
            for (port, queue) in self.queues_at_home(WorkerId(worker)) {
                self.move_queue(port, queue, WorkerId(worker));
            }
            self.publish();
        }
        Ok(())
    }

    /// The queues that a worker had before it was removed.
    fn queues_at_home(&self, worker: WorkerId) -> Vec<(PortId, QueueId)> {
        let mut queues = Vec::new();
        let open = |(_, port): &(PortId, &SteeredPort)| port.state == PortState::Open;
        for (id, port) in (0..).map(PortId).zip(&self.ports).filter(open) {
            let homes = (0..).map(QueueId).zip(&port.homes);
            queues.extend(homes.filter(|&(_, &home)| home == worker).map(|(queue, _)| (id, queue)));
        }
        queues
    }

    fn move_queue(&mut self, port: PortId, queue: QueueId, to: WorkerId) {
        let from = self.ports[port.index()].owners[usize::from(queue.0)];
        self.queues.lead(QueueMove { port, queue, from, to: Some(to), asked: false });
    }

    /// Whether workers that leave, or ports, are to be looked after.
    pub fn is_parting(&self) -> bool {
        let leaves = |one: &Presence| matches!(one, Presence::Leaving { .. } | Presence::Ending);
        self.presence.iter().any(leaves) || self.is_removing()
    }

    /// Lets workers end that nothing comes to any more, and takes back those that have ended.
    pub(super) fn tend_workers(&mut self) {
        for worker in 0..self.presence.len() as u16 {
            match self.presence[usize::from(worker)] {
                Presence::Leaving { since } if self.has_no_input(worker, since) => {
                    self.presence[usize::from(worker)] = Presence::Ending;
                    self.threads.set_phase(worker, END);
                }
                Presence::Ending if self.threads.has_ended(worker) => {
                    self.presence[usize::from(worker)] = Presence::Absent;
                }
                _ => {}
            }
        }
    }

    /// Whether a worker has no queue, and no worker hands on to it any more. A worker that has ended had no queue, and
    /// its hand-offs have left.
    fn has_no_input(&self, worker: u16, since: u32) -> bool {
        let receives = |other: u16| {
            let presence = self.presence[usize::from(other)];
            let turns = matches!(presence, Presence::Running | Presence::Leaving { .. });
            turns && other != worker && self.receivers[usize::from(other)]
        };
        let mut others = (0..self.presence.len() as u16).filter(|&other| receives(other));
        self.ports.iter().all(|port| !port.owners.contains(&WorkerId(worker)))
            && others.all(|other| self.counts[usize::from(other)].sends_nothing_to(worker, since))
    }
}
