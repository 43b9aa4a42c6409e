//! The thread that looks at what sends no notification, once a second, and has the kernel verify neighbours in use.
//!
//! Each of these looks and requests takes a lock of the kernel (RTNL) that another process or namespace may hold for
//! seconds. The mirror's thread must not wait for that, since it renews the lease: it requests a look, continues, and
//! compares what was seen when the doorbell rings. The kernel announces each neighbour that it has verified.
//!
//! | side           | calls                                       | when                                    |
//! |----------------|---------------------------------------------|-----------------------------------------|
//! | mirror thread  | [`Poller::request`]                         | once a second, if the last look is over |
//! | mirror thread  | [`Poller::seen`]                            | in each turn                            |
//! | poller thread  | rings the doorbell that it was given        | a look is over                          |

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

use manylane_io::eventfd::EventFd;
use manylane_io::netlink::Netlink;
use manylane_io::netlink::kernel::Link;
use manylane_sync::doorbell::Wake;

use super::Programs;
use super::look::{Polled, polled};

/// What the thread is to do.
#[derive(Default)]
pub(crate) struct Round {
    /// The links to look at.
    pub links: Vec<Link>,
    /// Neighbours that the kernel is to verify, by link and address.
    pub neighbours: Vec<(u32, IpAddr)>,
}

/// A handle to the thread, which ends when the handle is dropped.
pub(crate) struct Poller {
    requests: Option<Sender<Round>>,
    seen: Receiver<Polled>,
    is_looking: bool,
    thread: Option<JoinHandle<()>>,
}

impl Poller {
    /// Starts the thread in the calling thread's network namespace, which is that of `netlink`, too. The thread rings
    /// `doorbell` after each look.
    pub fn start(
        mut programs: Programs,
        mut netlink: Netlink,
        doorbell: Arc<EventFd>,
    ) -> io::Result<Poller> {
        let (requests, requested) = channel::<Round>();
        let (see, seen) = channel();
        let thread = Builder::new().name("poller".into()).spawn(move || {
            for Round { links, neighbours } in requested {
                for (link, address) in neighbours {
                    // The kernel verifies no neighbour that has gone meanwhile.
                    let _ = netlink.resolve_neighbour(link, address);
                }
                let links: Vec<_> = links.iter().collect();
                // The handle is gone when the accelerator ends.
                let _ = see.send(polled(&mut programs, &links));
                doorbell.wake();
            }
        })?;
        Ok(Poller { requests: Some(requests), seen, is_looking: false, thread: Some(thread) })
    }

    /// Requests a round, unless one is under way.
    pub fn request(&mut self, round: impl FnOnce() -> Round) {
        if self.is_looking {
            return;
        }
        // A thread that has panicked has said why; then nothing is seen any more.
        let requests = self.requests.as_ref();
        self.is_looking = requests.is_some_and(|requests| requests.send(round()).is_ok());
    }

    /// What the last look has seen, once.
    pub(super) fn seen(&mut self) -> Option<Polled> {
        let seen = self.seen.try_recv().ok()?;
        self.is_looking = false;
        Some(seen)
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        drop(self.requests.take());
        // One that still waits for the kernel ends by itself.
        if let Some(thread) = self.thread.take().filter(|_| !self.is_looking) {
            // The thread has panicked, and its message has said why.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::mpsc::sync_channel;

    use super::*;
    use crate::gate::tests::link;
    use manylane_io::poll::poll;

    /// A look that hangs in the kernel holds up neither the request nor the turns behind it.
    #[test]
    fn a_look_that_waits_for_the_kernel_holds_up_no_other_thread() {
        let (begun, begins) = sync_channel(8);
        let (go_on, held) = channel::<()>();
        let programs: Programs = Box::new(move |_, _| {
            begun.send(()).expect("the test waits for it");
            // Released, or over.
            let _ = held.recv();
            Ok(Vec::new())
        });
        let doorbell = Arc::new(EventFd::open().expect("eventfds are to be had"));
        let netlink = Netlink::open().expect("a socket is to be had");
        let poller = Poller::start(programs, netlink, doorbell.clone());
        let mut poller = poller.expect("a thread is to be had");
        let links = || Round { links: vec![link(7, "none0")], ..Round::default() };
        poller.request(links);
        begins.recv().expect("the thread looks");
        poller.request(|| panic!("a look is under way"));
        assert!(poller.seen().is_none());
        drop(go_on);
        poll(&[doorbell.as_fd()], None).expect("it is open");
        assert!(poller.seen().is_some());
        assert!(poller.seen().is_none(), "once");
        poller.request(links);
        begins.recv().expect("it looks again");
    }
}
