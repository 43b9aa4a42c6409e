//! Workers' threads: one begins when its worker is added, and is joined when it has left.

use std::any::Any;
use std::io;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use manylane_io::affinity;
use manylane_sync::words::WordsMut;

use super::open::Bell;
use manylane_worker::Worker;
use manylane_worker::worker::phase::{RUN, STOP};

/// All workers, up to the configured maximum.
#[derive(Default)]
pub struct WorkerThreads {
    slots: Vec<Slot>,
}

/// A worker, and how the control thread reaches it.
struct Slot {
    core: u16,
    phase: WordsMut<u32>,
    bell: Bell,
    state: State,
}

enum State {
    /// The worker waits to be added.
    Parked(Box<Parked>),
    Working(JoinHandle<Box<Parked>>),
    Panicked(Box<dyn Any + Send>),
}

/// A worker without a thread. The daemon counts the clones of `alive`: one is dropped with each panic.
struct Parked {
    worker: Worker,
    alive: Arc<()>,
}

impl WorkerThreads {
    /// Takes the next worker in, which has not begun.
    pub fn add(
        &mut self,
        mut worker: Worker,
        core: u16,
        phase: WordsMut<u32>,
        bell: Bell,
        alive: Arc<()>,
    ) {
        worker.stop();
        let state = State::Parked(Box::new(Parked { worker, alive }));
        self.slots.push(Slot { core, phase, bell, state });
    }

    /// Gives a worker its thread.
    pub fn start(&mut self, number: u16) -> io::Result<()> {
        let slot = self.slots.get_mut(usize::from(number));
        let slot = slot.ok_or_else(|| io::Error::other("the daemon is stopping"))?;
        let State::Parked(_) = slot.state else { return Ok(()) };
        let core = slot.core;
        slot.phase.publish(0, RUN);
        // A thread that is refused must not take the worker with it.
        let (gone, place) = (State::Panicked(Box::new("it never ran")), Arc::new(Mutex::new(None)));
        let State::Parked(parked) = std::mem::replace(&mut slot.state, gone) else {
            unreachable!()
        };
        *unpoisoned(&place) = Some(parked);
        let taken = place.clone();
        let begun = thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
            let parked: Box<Parked> = unpoisoned(&taken).take().expect("it was put there");
            // A core that has gone since the configuration was checked: run unpinned.
            let _ = affinity::pin(core.into());
            let Parked { worker, alive } = *parked;
            Box::new(Parked { worker: worker.run(), alive })
        });
        match begun {
            Ok(thread) => {
                slot.state = State::Working(thread);
                Ok(())
            }
            Err(error) => {
                let parked = unpoisoned(&place).take().expect("nobody has taken it");
                slot.state = State::Parked(parked);
                Err(error)
            }
        }
    }

    /// Tells a worker of the next phase.
    pub fn set_phase(&mut self, number: u16, phase: u32) {
        if let Some(slot) = self.slots.get_mut(usize::from(number)) {
            slot.phase.publish(0, phase);
            slot.bell.ring();
        }
    }

    /// Whether a worker has ended, as its phase ordered.
    pub fn has_ended(&mut self, number: u16) -> bool {
        let Some(Slot { state, .. }) = self.slots.get_mut(usize::from(number)) else {
            return false;
        };
        if let State::Working(thread) = state
            && !thread.is_finished()
        {
            return false;
        }
        // The parked worker replaces a thread that has ended; `halt` continues a panic.
        let former = std::mem::replace(state, State::Panicked(Box::new("it was being looked at")));
        *state = match former {
            State::Working(thread) => thread.join().map_or_else(State::Panicked, State::Parked),
            other => other,
        };
        matches!(state, State::Parked(_))
    }

    /// Does for a worker without a thread the queue tasks that wait for it.
    pub fn serve_handover(&mut self, number: u16) {
        if let Some(Slot { state: State::Parked(parked), .. }) =
            self.slots.get_mut(usize::from(number))
        {
            parked.worker.serve_handover();
        }
    }

    /// Ends all threads; returns the workers, in order. Panics as one of them did.
    pub fn halt(mut self) -> Vec<Worker> {
        for slot in &mut self.slots {
            slot.phase.publish(0, STOP);
            slot.bell.ring();
        }
        let of_slot = |slot: Slot| match slot.state {
            State::Parked(parked) => parked.worker,
            State::Working(thread) => {
                thread.join().unwrap_or_else(|panic| resume_unwind(panic)).worker
            }
            State::Panicked(panic) => resume_unwind(panic),
        };
        self.slots.into_iter().map(of_slot).collect()
    }
}

fn unpoisoned<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
