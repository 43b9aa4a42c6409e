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

/// All workers there may be.
#[derive(Default)]
pub struct Crew {
    seats: Vec<Seat>,
}

/// A worker, and what it is told by.
struct Seat {
    core: u16,
    phase: WordsMut<u32>,
    bell: Bell,
    who: Who,
}

enum Who {
    /// It waits to be added.
    Parked(Box<Parked>),
    Working(JoinHandle<Box<Parked>>),
    Panicked(Box<dyn Any + Send>),
}

/// A worker without a thread. Who looks for threads that have panicked counts lives: one ends with each panic.
struct Parked {
    worker: Worker,
    life: Arc<()>,
}

impl Crew {
    /// Takes the next worker in, which has not begun.
    pub fn add(
        &mut self,
        mut worker: Worker,
        core: u16,
        phase: WordsMut<u32>,
        bell: Bell,
        life: Arc<()>,
    ) {
        worker.stop();
        let who = Who::Parked(Box::new(Parked { worker, life }));
        self.seats.push(Seat { core, phase, bell, who });
    }

    /// Gives a worker its thread.
    pub fn start(&mut self, number: u16) -> io::Result<()> {
        let seat = self.seats.get_mut(usize::from(number));
        let seat = seat.ok_or_else(|| io::Error::other("the daemon is stopping"))?;
        let Who::Parked(_) = seat.who else { return Ok(()) };
        let core = seat.core;
        seat.phase.publish(0, RUN);
        // A thread that is refused must not take the worker with it.
        let (gone, place) = (Who::Panicked(Box::new("it never ran")), Arc::new(Mutex::new(None)));
        let Who::Parked(parked) = std::mem::replace(&mut seat.who, gone) else { unreachable!() };
        *unpoisoned(&place) = Some(parked);
        let taken = place.clone();
        let begun = thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
            let parked: Box<Parked> = unpoisoned(&taken).take().expect("it was put there");
            // A core that has gone since the configuration was checked: run unpinned.
            let _ = affinity::pin(core.into());
            let Parked { worker, life } = *parked;
            Box::new(Parked { worker: worker.run(), life })
        });
        match begun {
            Ok(thread) => {
                seat.who = Who::Working(thread);
                Ok(())
            }
            Err(error) => {
                let parked = unpoisoned(&place).take().expect("nobody has taken it");
                seat.who = Who::Parked(parked);
                Err(error)
            }
        }
    }

    /// Tells a worker of the next phase.
    pub fn tell(&mut self, number: u16, phase: u32) {
        if let Some(seat) = self.seats.get_mut(usize::from(number)) {
            seat.phase.publish(0, phase);
            seat.bell.ring();
        }
    }

    /// Whether a worker that was told to end has done so.
    pub fn has_ended(&mut self, number: u16) -> bool {
        let Some(Seat { who, .. }) = self.seats.get_mut(usize::from(number)) else { return false };
        if let Who::Working(thread) = who
            && !thread.is_finished()
        {
            return false;
        }
        // In place of a thread that has ended is what it has left; a panic goes on in who stops the daemon.
        let former = std::mem::replace(who, Who::Panicked(Box::new("it was being looked at")));
        *who = match former {
            Who::Working(thread) => thread.join().map_or_else(Who::Panicked, Who::Parked),
            other => other,
        };
        matches!(who, Who::Parked(_))
    }

    /// Does for a worker without a thread the queue tasks that wait for it.
    pub fn attend(&mut self, number: u16) {
        if let Some(Seat { who: Who::Parked(parked), .. }) = self.seats.get_mut(usize::from(number))
        {
            parked.worker.serve_handover();
        }
    }

    /// Ends all threads; returns the workers, in order. Panics as one of them did.
    pub fn halt(mut self) -> Vec<Worker> {
        for seat in &mut self.seats {
            seat.phase.publish(0, STOP);
            seat.bell.ring();
        }
        let of_seat = |seat: Seat| match seat.who {
            Who::Parked(parked) => parked.worker,
            Who::Working(thread) => {
                thread.join().unwrap_or_else(|panic| resume_unwind(panic)).worker
            }
            Who::Panicked(panic) => resume_unwind(panic),
        };
        self.seats.into_iter().map(of_seat).collect()
    }
}

fn unpoisoned<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
