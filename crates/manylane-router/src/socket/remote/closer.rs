//! Closes connections of processes that may have passed descriptors.
//!
//! A descriptor that was sent to us is closed by the thread that receives the message without taking it, or that closes
//! the connection with the message in it; and to close one may take as long as its sender likes (`SO_LINGER` of a TCP
//! socket). So the serving thread looks at each message before it receives the message, never receives one that brings
//! descriptors, and gives its connection to a thread that may hang. Nothing waits for that thread, not even the daemon's
//! end.
//!
//! From Linux 6.16 the kernel refuses such messages ([`pass_rights`](manylane_io::rights::pass_rights)), and none arrives.

use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use manylane_sync::counters::SharedCount;
use nix::sys::socket::{setsockopt, sockopt::PassCred};
use rustix::io::{Errno, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, Shutdown, recv, recvmsg,
    shutdown,
};

/// What comes next by a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// Nothing yet.
    Nothing,
    /// A message.
    Message,
    /// A message that brings descriptors: not to be received.
    Descriptors,
    /// Nothing any more.
    End,
}

impl Head {
    /// Makes [`of`](Self::of) possible: each message carries its sender's credentials, and an end does not.
    pub fn prepare(connection: impl AsFd) -> Result<(), Errno> {
        setsockopt(&connection, PassCred, &true)
            .map_err(|error| Errno::from_raw_os_error(error as i32))
    }

    /// Looks, and leaves all where it is. The control buffer has room for the credentials alone, so descriptors are cut
    /// off, which the kernel reports.
    pub fn of(connection: impl AsFd) -> Head {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let mut parts = [IoSliceMut::new(&mut byte)];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        match recvmsg(connection, &mut parts, &mut control, flags) {
            Ok(received) if received.flags.contains(ReturnFlags::CTRUNC) => Head::Descriptors,
            Ok(_) => {
                let of_a_message = |said| matches!(said, RecvAncillaryMessage::ScmCredentials(_));
                if control.drain().any(of_a_message) { Head::Message } else { Head::End }
            }
            Err(Errno::AGAIN | Errno::INTR) => Head::Nothing,
            Err(_) => Head::End,
        }
    }
}

/// Closes connections, some of them by a thread that may hang.
#[derive(Default)]
pub(super) struct Closer {
    given: Option<Sender<OwnedFd>>,
    waiting: Arc<SharedCount>,
}

impl Closer {
    /// Closes a connection. Never waits.
    pub fn close(&mut self, connection: OwnedFd) {
        // From here on nothing more arrives; what is there already is looked at.
        let _ = shutdown(&connection, Shutdown::Both);
        loop {
            match Head::of(&connection) {
                Head::Nothing | Head::End => return, // The drop closes it, and no other descriptor with it.
                Head::Message => _ = recv(&connection, &mut [0; 1][..], RecvFlags::DONTWAIT),
                Head::Descriptors => return self.hand_over(connection),
            }
        }
    }

    /// Connections that wait for the thread, the one included that it closes.
    pub fn waiting(&self) -> u64 {
        self.waiting.load()
    }

    fn hand_over(&mut self, connection: OwnedFd) {
        self.waiting.add(1);
        let given = match self.given.take() {
            Some(given) => Ok(given),
            None => Closer::start(self.waiting.clone()),
        };
        let Ok(given) = given else {
            return mem::forget(connection); // Without a thread it stays open, and counts as waiting.
        };
        // The thread ends only with its sender.
        let _ = given.send(connection);
        self.given = Some(given);
    }

    fn start(waiting: Arc<SharedCount>) -> std::io::Result<Sender<OwnedFd>> {
        let (given, connections) = channel::<OwnedFd>();
        let body = move || {
            for connection in connections {
                drop(connection);
                waiting.sub(1);
            }
        };
        thread::Builder::new().name("closer".into()).spawn(body).map(|_| given)
    }
}
