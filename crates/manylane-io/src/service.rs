//! Messages to a service manager (sd_notify(3)); none are sent without `NOTIFY_SOCKET` in the environment.
//!
//! | Message      | When                                                                                        |
//! |--------------|---------------------------------------------------------------------------------------------|
//! | `READY=1`    | packets are forwarded                                                                       |
//! | `STATUS=...` | with it, and when it has changed                                                            |
//! | `WATCHDOG=1` | three times as often as requested, each time only after progress since the last time        |
//! | `STOPPING=1` | the end begins                                                                              |
//!
//! The watchdog's thread proves nothing by being there itself, so it reports the progress of other threads:
//! [`Look::progress`].

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use sd_notify::NotifyState::{Ready, Status, Stopping, Watchdog};
use sd_notify::{NotifyState, notify};

/// What is to be seen of the forwarder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// A line for the operator.
    pub status: String,
    /// Another number when those who do the work have done some.
    pub progress: u64,
}

/// Tells the service manager, until it is dropped.
#[derive(Debug)]
pub struct Service {
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Service {
    /// Says that we are ready, and looks from time to time.
    pub fn ready(mut look: impl FnMut() -> Look + Send + 'static) -> io::Result<Service> {
        if std::env::var_os("NOTIFY_SOCKET").is_none() {
            return Ok(Service { thread: None });
        }
        let watchdog = sd_notify::watchdog_enabled();
        let period = watchdog.map_or(STATUS_PERIOD, |limit| (limit / 3).min(STATUS_PERIOD));
        let mut last = look();
        tell(&[Ready, Status(&last.status)]);
        let (end, ends) = channel();
        let thread = Builder::new().name("service".into()).spawn(move || {
            while ends.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
                let now = look();
                if watchdog.is_some() && now.progress != last.progress {
                    tell(&[Watchdog]);
                }
                if now.status != last.status {
                    tell(&[Status(&now.status)]);
                }
                last = now;
            }
        })?;
        Ok(Service { thread: Some((end, thread)) })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let Some((end, thread)) = self.thread.take() else { return };
        tell(&[Stopping, Status("stopping")]);
        drop(end);
        // A thread that hangs in a look must not delay our end: the manager's limit for that is longer.
        if thread.is_finished() {
            let _ = thread.join();
        }
    }
}

/// Forwarding does not need a service manager that listens.
fn tell(what: &[NotifyState<'_>]) {
    let _ = notify(what);
}

/// How soon a change is said.
const STATUS_PERIOD: Duration = Duration::from_secs(5);
