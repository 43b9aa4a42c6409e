//! The thread that waits for the programs: until none of them can look at what was taken out of the tables.
//!
//! A program that runs on a processor may have read a number just before it was changed. The kernel says when
//! all that ran have ended, by a call that takes 8 to 44 ms, and once more for each call made meanwhile.
//! The mirror's thread must not wait for that: it rings, and continues; what it wants to use again waits in the
//! tables' writer. Each wait covers all that was taken out before it began.
//!
//! | side           | rings                    | when                                     |
//! |----------------|--------------------------|------------------------------------------|
//! | mirror thread  | [`Reclaim::ring`]        | something waits in the tables' writer    |
//! | reclaim thread | the doorbell it was given    | a wait is over, or has failed            |

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::programs::Grace;
use manylane_io::eventfd::EventFd;
use manylane_io::poll::poll;
use manylane_sync::doorbell::Wake;
use manylane_sync::rcu::Proxy;
use std::os::fd::AsFd;

/// A handle to the reclaim thread, which ends when the handle is dropped.
pub struct Reclaim {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    doorbell: Arc<EventFd>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ends: bool,
    waits: u64,
    /// What the last wait failed with.
    failed: Option<io::Error>,
}

impl Reclaim {
    /// Starts the thread, which rings `back` after each wait.
    pub fn start(grace: Grace, proxy: Proxy, back: Arc<EventFd>) -> io::Result<Reclaim> {
        let shared =
            Arc::new(Shared { doorbell: Arc::new(EventFd::open()?), state: Mutex::default() });
        let own = shared.clone();
        let thread = thread::Builder::new().name("reclaim".into());
        let thread = thread.spawn(move || run(&own, grace, proxy, &back))?;
        Ok(Reclaim { shared, thread: Some(thread) })
    }

    /// Something waits for the programs.
    pub fn ring(&self) {
        self.shared.doorbell.wake();
    }

    /// What rings, for another thread whose memory waits.
    pub fn doorbell(&self) -> Arc<EventFd> {
        self.shared.doorbell.clone()
    }

    /// How often the programs were waited for, and what the last wait failed with.
    pub fn waits(&self) -> (u64, Option<String>) {
        let state = self.shared.lock();
        (state.waits, state.failed.as_ref().map(ToString::to_string))
    }
}

impl Drop for Reclaim {
    fn drop(&mut self) {
        self.shared.lock().ends = true;
        self.shared.doorbell.wake();
        if let Some(thread) = self.thread.take() {
            // The thread has panicked, and its message has said why.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn run(shared: &Shared, mut grace: Grace, mut proxy: Proxy, back: &EventFd) {
    loop {
        // The one failure is ENOMEM: then it looks at once.
        let _ = poll(&[shared.doorbell.as_fd()], None);
        let rung = shared.doorbell.drain();
        if shared.lock().ends {
            return;
        }
        if !rung {
            continue;
        }
        let token = proxy.begin();
        let waited = grace.wait();
        let mut state = shared.lock();
        match waited {
            Ok(()) => {
                proxy.end(token);
                state.waits += 1;
                state.failed = None;
            }
            // Nothing is used again: the tables' writer says that it is full, in the end.
            Err(error) => state.failed = Some(error),
        }
        drop(state);
        back.wake();
    }
}
