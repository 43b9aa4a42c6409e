//! [`Stop`]: the end of an act, by time or by signal.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

/// When to stop. All threads of a demo look here, and wait here.
pub(super) struct Stop {
    shared: Arc<Shared>,
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
    /// The first signal, if one came: the end of this act and of every later one.
    signal: Option<u8>,
    /// The present act is over.
    is_over: bool,
    /// When the present act ends by itself.
    deadline: Option<Instant>,
}

impl State {
    fn is_over(&self) -> bool {
        self.is_over
            || self.signal.is_some()
            || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

impl Stop {
    /// Stops at the first SIGINT or SIGTERM from now on.
    pub(super) fn new() -> io::Result<Stop> {
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let handle = signals.handle();
        let shared = Arc::new(Shared::default());
        let told = shared.clone();
        let wait = move || {
            if let Some(signal) = signals.forever().next() {
                told.lock().signal = u8::try_from(signal).ok(); // SIGINT and SIGTERM are below 128.
                told.changed.notify_all();
            }
        };
        let waiter = thread::Builder::new().name("signals".into()).spawn(wait)?;
        Ok(Stop { shared, handle, waiter: Some(waiter) })
    }

    /// Begins an act, which ends by itself after `lasts`, if that is given.
    pub(super) fn begin(&self, lasts: Option<Duration>) {
        let mut state = self.shared.lock();
        state.is_over = false;
        state.deadline = lasts.map(|lasts| Instant::now() + lasts);
    }

    /// Ends the act now.
    pub(super) fn now(&self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_all();
    }

    /// Whether it is time to stop.
    pub(super) fn is_over(&self) -> bool {
        self.shared.lock().is_over()
    }

    /// Waits for `duration`, or until it is time to stop; returns whether it is.
    pub(super) fn wait(&self, duration: Duration) -> bool {
        let state = self.shared.lock();
        let left = state.deadline.map(|end| end.saturating_duration_since(Instant::now()));
        let duration = left.map_or(duration, |left| duration.min(left));
        let waited =
            self.shared.changed.wait_timeout_while(state, duration, |state| !state.is_over());
        drop(waited.expect("no thread panics with the lock"));
        self.is_over()
    }

    /// The signal that ended it, if one did.
    pub(super) fn signal(&self) -> Option<u8> {
        self.shared.lock().signal
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics with the lock")
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(waiter) = self.waiter.take() {
            let _ = waiter.join(); // This thread only stores a number, and cannot have panicked.
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_by_itself_and_a_word_ends_it_at_once() {
        let stop = Stop::new().expect("signals are to be had");
        stop.begin(Some(Duration::from_millis(5)));
        assert!(stop.wait(Duration::from_secs(60)), "it waits no longer than it lasts");
        assert_eq!(stop.signal(), None);

        stop.begin(None);
        assert!(!stop.wait(Duration::from_millis(1)));
        stop.now();
        assert!(stop.wait(Duration::from_secs(60)));
        assert!(stop.is_over());
        stop.begin(None);
        assert!(!stop.is_over(), "another act begins");
    }
}
