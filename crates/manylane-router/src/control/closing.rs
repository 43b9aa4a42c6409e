//! A thread for what waits for the kernel: closing.
//!
//! close(2) of a packet socket waits for a grace period of the kernel (`packet_release`), that of an AF_XDP
//! socket too (`xsk_release`), and so does taking a BPF program off a device; a port has several of all three,
//! and what its device is sending is waited for besides. The control thread must not: neighbours, routes and
//! timers are waiting for it. So a port without users is given away, whole, and in the order in
//! which it always was closed: the sockets, then the program that mutes the host's own stack.
//!
//! The thread begins with the first port that is removed, and ends when the control thread does, which joins
//! it: afterwards every device is free. What may lie here is bounded by the number of ports.

use std::io;
use std::panic::resume_unwind;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use super::open::Bell;

/// Does one thing after the other, in a thread of its own.
pub struct Closing<J> {
    /// Poisoned when it has panicked.
    work: Arc<Mutex<Work<J>>>,
    /// Rung after each.
    bell: Bell,
    thread: Option<(Sender<J>, JoinHandle<()>)>,
}

type Work<J> = dyn FnMut(J) + Send;

impl<J: Send + 'static> Closing<J> {
    /// Starts no thread yet. `bell` is rung after each job.
    pub fn new(bell: Bell, work: impl FnMut(J) + Send + 'static) -> Closing<J> {
        Closing { work: Arc::new(Mutex::new(work)), bell, thread: None }
    }

    /// Has the job done. The caller does it, and waits, only when the system refuses a thread: then memory is short.
    pub fn give(&mut self, job: J) {
        if self.thread.is_none() {
            self.thread = self.begin().ok();
        }
        match &self.thread {
            // The thread ends before us only by a panic, which `finish` continues.
            Some((jobs, _)) => drop(jobs.send(job)),
            None => (self.work.lock().unwrap_or_else(PoisonError::into_inner))(job),
        }
    }

    /// Whether the thread has panicked: then it is time to [`finish`](Closing::finish).
    pub fn has_panicked(&self) -> bool {
        self.work.is_poisoned()
    }

    /// Waits until all is done. Panics as the thread did.
    pub fn finish(mut self) {
        if let Some((jobs, thread)) = self.thread.take() {
            drop(jobs); // The thread ends after the last job.
            thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    }

    fn begin(&self) -> io::Result<(Sender<J>, JoinHandle<()>)> {
        let (sender, jobs) = channel();
        let (work, bell) = (self.work.clone(), self.bell.clone());
        let thread = thread::Builder::new().name("closing".into()).spawn(move || {
            for job in jobs {
                let _rings = Ring(&bell); // Dropped behind the lock: a panic is to be seen by then.
                (work.lock().expect("only a panic here poisons it"))(job);
            }
        })?;
        Ok((sender, thread))
    }
}

/// Rings also when its thread panics.
struct Ring<'a>(&'a Bell);

impl Drop for Ring<'_> {
    fn drop(&mut self) {
        self.0.ring();
    }
}

#[cfg(test)]
mod tests {
    use manylane_io::eventfd::EventFd;
    use manylane_sync::doorbell::Doorbell;

    use super::*;

    #[test]
    fn giving_a_job_does_not_wait_and_finishing_does() {
        let (go_on, gate) = channel();
        let (done, all) = channel();
        let mut closing = Closing::new(bell(), move |job| {
            gate.recv().expect("the test is there");
            done.send(job).expect("the test is there");
        });
        for job in 0..3 {
            closing.give(job); // Nothing can be done yet.
        }
        assert!(all.try_recv().is_err());
        (0..3).for_each(|_| go_on.send(()).expect("the thread waits for it"));
        closing.finish();
        assert_eq!(all.try_iter().collect::<Vec<_>>(), [0, 1, 2]);
    }

    /// A daemon that removes no port has no such thread.
    #[test]
    fn the_thread_begins_when_it_is_needed() {
        let closing = Closing::new(bell(), |()| unreachable!("nothing is given"));
        assert!(closing.thread.is_none());
        closing.finish();
    }

    #[test]
    fn a_panic_is_reported_and_continues_in_finish() {
        let bell = bell();
        let mut closing = Closing::new(bell.clone(), |()| panic!("on purpose"));
        closing.give(());
        while !closing.has_panicked() {
            thread::yield_now();
        }
        let finished = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| closing.finish()));
        let panic = finished.expect_err("as the thread did");
        assert_eq!(panic.downcast_ref(), Some(&"on purpose"));
    }

    fn bell() -> Bell {
        Arc::new(Doorbell::new(EventFd::open().expect("descriptors are to be had")))
    }
}
