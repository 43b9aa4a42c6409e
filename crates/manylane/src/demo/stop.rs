//! [`Stop`]: the end of a demo, by time or by signal.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

/// When to stop. All threads of a demo look here, and wait here.
pub(super) struct Stop {
    shared: Arc<Shared>,
    deadline: Instant,
    handle: Handle,
    waiter: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Copy, Default)]
struct State {
    /// The signal that came first, if one did.
    signal: Option<u8>,
    is_over: bool,
}

impl Stop {
    /// Stops after `lasts`, or at the first SIGINT or SIGTERM from now on.
    pub(super) fn after(lasts: Duration) -> io::Result<Stop> {
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let handle = signals.handle();
        let shared = Arc::new(Shared::default());
        let told = shared.clone();
        let wait = move || {
            if let Some(signal) = signals.forever().next() {
                let signal = u8::try_from(signal).ok(); // SIGINT and SIGTERM are below 128.
                *told.lock() = State { signal, is_over: true };
                told.changed.notify_all();
            }
        };
        let waiter = thread::Builder::new().name("signals".into()).spawn(wait)?;
        Ok(Stop { shared, deadline: Instant::now() + lasts, handle, waiter: Some(waiter) })
    }

    /// Stops now.
    pub(super) fn now(&self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_all();
    }

    /// Whether it is time to stop.
    pub(super) fn is_over(&self) -> bool {
        self.shared.lock().is_over || Instant::now() >= self.deadline
    }

    /// Waits for `duration`, or until it is time to stop; returns whether it is.
    pub(super) fn wait(&self, duration: Duration) -> bool {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let state = self.shared.lock();
        let waited = self
            .shared
            .changed
            .wait_timeout_while(state, duration.min(left), |state| !state.is_over);
        drop(waited.expect("nobody panics with the lock"));
        self.is_over()
    }

    /// The signal that ended it, if one did.
    pub(super) fn signal(&self) -> Option<u8> {
        self.shared.lock().signal
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with the lock")
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(waiter) = self.waiter.take() {
            let _ = waiter.join(); // It cannot have panicked: it only stores a number.
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_by_itself_and_a_word_ends_it_at_once() {
        let stop = Stop::after(Duration::from_millis(5)).expect("signals are to be had");
        assert!(stop.wait(Duration::from_secs(60)), "it waits no longer than it lasts");
        assert_eq!(stop.signal(), None);

        let stop = Stop::after(Duration::from_secs(60)).expect("signals are to be had");
        assert!(!stop.wait(Duration::from_millis(1)));
        stop.now();
        assert!(stop.wait(Duration::from_secs(60)));
        assert!(stop.is_over());
    }
}
