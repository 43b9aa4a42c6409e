//! Closes connections of processes that may have passed descriptors.
//!
//! A descriptor that was sent to us is closed by the thread that receives the message without taking it, or that closes
//! the connection with the message in it; and to close one may take as long as its sender likes (`SO_LINGER` of a TCP
//! socket). So the serving thread looks at each message before it receives the message, never receives one that brings
//! descriptors, and gives its connection to a thread that may hang. Nothing waits for that thread, not even the daemon's
//! end.
//!
//! From Linux 6.16 the kernel refuses such messages ([`pass_rights`](manylane_io::rights::pass_rights)), and none arrives:
//! then the serving thread need not look at a message before it receives the message.

use std::io::IoSliceMut;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use manylane_io::rights::passes_rights;
use manylane_sync::counters::SharedCount;
use nix::cmsg_space;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, UnixCredentials, recvmsg, setsockopt, sockopt::PassCred,
};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};

/// Our end of a connection.
pub(super) struct Channel {
    fd: OwnedFd,
    /// Whether a message may bring descriptors. A process that connected before the listener said no may do so, so each
    /// connection has its own answer.
    may_bring: bool,
    /// All was received, and nothing more comes.
    has_ended: bool,
}

impl Channel {
    pub fn new(fd: OwnedFd) -> Result<Channel, Errno> {
        let may_bring = passes_rights(&fd);
        if may_bring {
            Head::prepare(&fd)?;
        }
        Ok(Channel { fd, may_bring, has_ended: false })
    }

    /// What comes next, as far as it has to be known before it is received.
    pub fn head(&self) -> Head {
        if self.may_bring { Head::of(&self.fd) } else { Head::Message }
    }

    /// Receives a message that [`head`](Self::head) allows. Its length is 0 where nothing more comes.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Result<usize, Errno> {
        let (len, _) = recv(&self.fd, buffer, RecvFlags::DONTWAIT)?;
        self.has_ended |= len == 0;
        Ok(len)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

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
    fn prepare(connection: impl AsFd) -> Result<(), Errno> {
        setsockopt(&connection, PassCred, &true)
            .map_err(|error| Errno::from_raw_os_error(error as i32))
    }

    /// Looks, and leaves all where it is. The control buffer has room for the credentials alone, so descriptors are cut
    /// off, which the kernel reports. (By nix: a sender in another PID namespace, or one that sent before
    /// [`prepare`](Self::prepare), has process id 0, which rustix has no value for.)
    fn of(connection: impl AsFd) -> Head {
        let mut control = cmsg_space!(UnixCredentials);
        let mut byte = [0];
        let mut parts = [IoSliceMut::new(&mut byte)];
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
        let fd = connection.as_fd().as_raw_fd();
        match recvmsg::<()>(fd, &mut parts, Some(&mut control), flags) {
            Ok(received) if received.flags.contains(MsgFlags::MSG_CTRUNC) => Head::Descriptors,
            Ok(received) => {
                let of_a_message = |said| matches!(said, ControlMessageOwned::ScmCredentials(_));
                let is_message = received.cmsgs().is_ok_and(|mut all| all.any(of_a_message));
                if is_message { Head::Message } else { Head::End }
            }
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => Head::Nothing,
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
    pub fn close(&mut self, channel: Channel) {
        let Channel { fd, may_bring, has_ended } = channel;
        if has_ended && !may_bring {
            return;
        }
        // From here on nothing more arrives; what is there already is looked at, and received: an unread message would
        // make the peer find an error in front of the last answer.
        let _ = shutdown(&fd, Shutdown::Both);
        let receive = || recv(&fd, &mut [0; 1][..], RecvFlags::DONTWAIT);
        if !may_bring {
            while receive().is_ok_and(|(len, _)| len > 0) {}
            return;
        }
        loop {
            match Head::of(&fd) {
                Head::Nothing | Head::End => return, // The drop closes it, and no other descriptor with it.
                Head::Message => _ = receive(),
                Head::Descriptors => return self.hand_over(fd),
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

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::mem::MaybeUninit;

    use rustix::net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
        SocketType, send, sendmsg, socketpair,
    };

    use super::*;

    #[test]
    fn a_message_is_told_from_an_end_whatever_it_says_and_whoever_sent_it() {
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (ours, theirs) = socketpair(kind.0, kind.1, kind.2, None).expect("sockets");
        let say = |text: &[u8]| {
            assert_eq!(send(&theirs, text, SendFlags::empty()), Ok(text.len()));
        };
        let receive = || _ = recv(&ours, &mut [0; 8][..], RecvFlags::DONTWAIT);
        say(b"early"); // Without credentials: as process 0.
        Head::prepare(&ours).expect("it is a Unix socket");
        assert_eq!(Head::of(&ours), Head::Message);
        receive();
        assert_eq!(Head::of(&ours), Head::Nothing);
        for text in [&b""[..], b"late"] {
            say(text);
            assert_eq!(Head::of(&ours), Head::Message, "{text:?}");
            receive();
        }
        let mine = [ours.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&mine)));
        let text = [IoSlice::new(b"mine")];
        sendmsg(&theirs, &text, &mut control, SendFlags::empty()).expect("it fits");
        assert_eq!(Head::of(&ours), Head::Descriptors);
        receive();
        drop(theirs);
        assert_eq!(Head::of(&ours), Head::End);
    }
}
