//! Makes large rings, and gives their memory back: what takes as long as the kernel takes to fill pages with zeroes,
//! a third of a second for a gigabyte. Meanwhile other connections are served, and readers woken.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};

use manylane_io::eventfd::EventFd;
use manylane_io::packet_ring::RingConfig;
use manylane_sync::doorbell::{Doorbell, Wake};

use crate::socket::{Owner, SocketError, Sockets};
use manylane_worker::hooks::Lanes;

/// A ring, and its memfd.
pub(super) type Ring = (Arc<Lanes>, OwnedFd);

/// A thread that makes rings for the serving thread. Of the requests that wait, it serves at most one for each
/// connection: requests of closed connections are passed over.
pub(super) struct Maker {
    asks: Option<Sender<Job>>,
    made: Receiver<(u64, Result<Ring, SocketError>)>,
    /// Raised when something was made.
    bell: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

enum Job {
    /// For a connection, as long as it is there.
    Make(u64, Owner, RingConfig, Weak<()>),
    Drop(Arc<Lanes>),
}

impl Maker {
    /// `bell` is that of the thread that wakes readers.
    pub fn start(sockets: Sockets, bell: Arc<Doorbell<EventFd>>) -> io::Result<Maker> {
        let (asks, asked) = channel();
        let (give, made) = channel();
        let raised = Arc::new(EventFd::open()?);
        let raise = raised.clone();
        let body = move || {
            for job in asked {
                match job {
                    Job::Make(.., life) if life.strong_count() == 0 => {}
                    Job::Make(whose, owner, config, _) => {
                        // The serving thread stops taking rings only when the daemon stops.
                        let _ =
                            give.send((whose, sockets.make_shared(owner, &config, &bell, None)));
                        raise.wake();
                    }
                    Job::Drop(lanes) => drop(lanes),
                }
            }
        };
        let thread = thread::Builder::new().name("rings".into()).spawn(body)?;
        Ok(Maker { asks: Some(asks), made, bell: raised, thread: Some(thread) })
    }

    /// Begins to make a ring.
    pub fn make(&mut self, whose: u64, owner: Owner, config: RingConfig, life: Weak<()>) {
        self.ask(Job::Make(whose, owner, config, life));
    }

    /// Gives its memory back, if no other thread has it.
    pub fn drop(&mut self, lanes: Arc<Lanes>) {
        self.ask(Job::Drop(lanes));
    }

    /// A ring that was made.
    pub fn take(&mut self) -> Option<(u64, Result<Ring, SocketError>)> {
        self.bell.drain(); // First: what is made from here on raises it again.
        self.made.try_recv().ok()
    }

    fn ask(&mut self, job: Job) {
        let asked = self.asks.as_ref().map(|asks| asks.send(job));
        if !matches!(asked, Some(Ok(()))) {
            self.end(); // The thread has panicked: so do we, and the daemon notices.
        }
    }

    fn end(&mut self) {
        self.asks = None;
        if let Some(thread) = self.thread.take()
            && let Err(panic) = thread.join()
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

impl AsFd for Maker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Drop for Maker {
    fn drop(&mut self) {
        self.end();
    }
}
