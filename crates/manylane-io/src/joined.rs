//! A thread that ends with its handle.

use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use manylane_sync::doorbell::Wake as _;

use crate::eventfd::EventFd;

/// A handle to a thread. When the handle is dropped, it rings the thread's doorbell, which nothing else rings, and waits
/// until the thread has ended.
#[derive(Debug)]
pub struct Joined {
    end: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Joined {
    /// Starts a thread of this name, in the network namespace of the calling one. The thread ends when `end` is
    /// rung.
    pub fn start(
        name: &str,
        end: Arc<EventFd>,
        run: impl FnOnce() + Send + 'static,
    ) -> io::Result<Joined> {
        let thread = Builder::new().name(name.into()).spawn(run)?;
        Ok(Joined { end, thread: Some(thread) })
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.end.wake();
        if let Some(thread) = self.thread.take() {
            // The thread has panicked, and its message has said why.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;
    use crate::poll::poll;

    #[test]
    fn the_thread_has_ended_when_its_handle_is_gone() {
        let end = Arc::new(EventFd::open().expect("eventfds are to be had"));
        let (rung, held) = (end.clone(), Arc::new(()));
        let theirs = held.clone();
        let handle = Joined::start("joined", end, move || {
            while !rung.drain() {
                poll(&[rung.as_fd()], None).expect("it can be polled");
            }
            drop(theirs);
        });
        assert_eq!(Arc::strong_count(&held), 2);
        drop(handle.expect("a thread is to be had"));
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
