//! [`Interrupt`]: the end of a capture by a signal.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::process;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use manylane_io::eventfd::EventFd;
use manylane_io::poll::poll;
use manylane_sync::doorbell::Wake;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

/// Whether the user has had enough; a thread can sleep on this, too.
pub struct Interrupt {
    raised: Arc<EventFd>,
    signals: Option<(Handle, JoinHandle<()>)>,
}

impl Interrupt {
    /// Raised by the first SIGINT or SIGTERM from now on. The second ends the process at once: the first one's
    /// last packets may be for a reader who has stopped reading.
    pub fn by_signal() -> io::Result<Interrupt> {
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let handle = signals.handle();
        let raised = Arc::new(EventFd::open()?);
        let told = raised.clone();
        let wait = move || {
            let mut signals = signals.forever();
            if signals.next().is_some() {
                told.wake();
            }
            if let Some(signal) = signals.next() {
                process::exit(128 + signal);
            }
        };
        let waiter = thread::Builder::new().name("signals".into()).spawn(wait)?;
        Ok(Interrupt { raised, signals: Some((handle, waiter)) })
    }

    /// Raised by [`Interrupt::raise`] alone.
    pub fn by_word() -> io::Result<Interrupt> {
        Ok(Interrupt { raised: Arc::new(EventFd::open()?), signals: None })
    }

    /// The user has had enough.
    pub fn raise(&self) {
        self.raised.wake();
    }

    /// Whether the user has had enough.
    pub fn is_raised(&self) -> io::Result<bool> {
        Ok(poll(&[self.raised.as_fd()], Some(Duration::ZERO))?.any())
    }
}

impl AsFd for Interrupt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.raised.as_fd()
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        if let Some((handle, waiter)) = self.signals.take() {
            handle.close();
            let _ = waiter.join(); // This thread only writes to a descriptor, and cannot have panicked.
        }
    }
}
