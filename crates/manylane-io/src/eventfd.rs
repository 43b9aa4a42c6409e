//! The eventfd that wakes a sleeping worker; the worker polls it together with its queues.
//!
//! See eventfd(2). A wake before the sleep ends the sleep too, as
//! [`Doorbell`](manylane_sync::doorbell::Doorbell) requires of a [`Wake`].

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use manylane_sync::doorbell::Wake;

use crate::syscall::{check, check_length};

/// A non-blocking eventfd, closed on exec.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// Opens an eventfd whose count is 0.
    pub fn open() -> io::Result<EventFd> {
        // SAFETY: eventfd(2) takes no pointer.
        let fd = check(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) })?;
        // SAFETY: the kernel just made this descriptor for us, so no other value owns it.
        Ok(EventFd(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Clears all wakes so far; returns whether any was pending.
    pub fn drain(&self) -> bool {
        let mut count = 0u64;
        // SAFETY: read(2) writes at most the 8 bytes of `count`.
        let read = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
        check_length(read).is_ok() // The one failure is EAGAIN: the count is 0.
    }
}

impl Wake for EventFd {
    fn wake(&self) {
        let one = 1u64;
        // SAFETY: write(2) reads the 8 bytes of `one`.
        let written = unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
        // The one failure is EAGAIN, after 2^64 - 2 undrained wakes: the sleeper is awake then.
        let _ = check_length(written);
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll::poll;
    use std::time::Duration;

    #[test]
    fn a_wake_before_the_sleep_ends_it() {
        let bell = EventFd::open().expect("eventfds are to be had");
        bell.wake();
        bell.wake();
        let ready = poll(&[bell.as_fd()], None).expect("the descriptor is open");
        assert!(ready.is_ready(0));
        assert!(bell.drain());
        assert!(!bell.drain(), "one drain forgets all wakes");
        let ready = poll(&[bell.as_fd()], Some(Duration::ZERO)).expect("the descriptor is open");
        assert!(!ready.any());
    }

    #[test]
    fn a_doorbell_wakes_a_thread_that_polls() {
        use manylane_sync::doorbell::Doorbell;
        let bell = Doorbell::new(EventFd::open().expect("eventfds are to be had"));
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                bell.sleep(|| false, || poll(&[bell.waker().as_fd()], None).map(|r| r.any()))
            });
            while !bell.ring() {
                std::thread::yield_now();
            }
            let slept = sleeper.join().expect("the sleeper does not panic");
            assert!(matches!(slept, Some(Ok(true))));
        });
    }
}
