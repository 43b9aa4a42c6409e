//! Requests to the daemon: each call sends one and waits for its answer.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use manylane_io::libpcap;
use manylane_net::filter::Program;
use manylane_sync::hook::Generation;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg,
    sendmsg, socket_with,
};

use super::{Options, RemoteError};
use crate::error::PATIENCE;
use crate::message::{
    ANSWER_MAX, Answer, Bind, Counts, Join, Open, Port, REQUEST_MAX, Refusal, Request, Set,
    names_of, tuples_of,
};
use manylane_frame::vocabulary::Points;
use manylane_io::packet_ring::Fanout;

/// A connection to a daemon, which is an open socket there. Dropping it closes that.
///
/// Every call waits for the daemon's answer: microseconds, and ten seconds at most.
pub struct Connection {
    path: PathBuf,
    fd: OwnedFd,
    /// The generation of the binding in force.
    generation: Generation,
    /// Blocks of former ones that were not shown.
    pub(super) stale: u64,
    /// A late answer may still arrive, which no call waits for.
    is_silent: bool,
    /// Why the daemon hung up, if it said so.
    reason: Option<Refusal>,
    answer: Vec<u8>,
}

impl Connection {
    /// Connects, without a request.
    pub(super) fn connect(path: &Path) -> Result<Connection, RemoteError> {
        let unreachable = |source: Errno| match source {
            Errno::NOENT | Errno::CONNREFUSED => RemoteError::NoDaemon { path: path.into() },
            source => RemoteError::Unreachable { path: path.into(), source: source.into() },
        };
        let system =
            |step| move |source: Errno| RemoteError::System { step, source: source.into() };
        let fd =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(system("socket"))?;
        for direction in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&fd, direction, Some(PATIENCE)).map_err(system("setsockopt"))?;
        }
        let address = SocketAddrUnix::new(path).map_err(unreachable)?;
        retry_on_intr(|| connect(&fd, &address)).map_err(unreachable)?;
        Ok(Connection {
            path: path.into(),
            fd,
            generation: Generation(0),
            stale: 0,
            is_silent: false,
            reason: None,
            answer: vec![0; ANSWER_LEN],
        })
    }

    /// The id of the process that listens (`SO_PEERCRED` in unix(7)).
    pub(super) fn process(&self) -> Result<u32, RemoteError> {
        let peer = socket_peercred(&self.fd);
        let peer = peer
            .map_err(|source| RemoteError::System { step: "getsockopt", source: source.into() })?;
        Ok(peer.pid.as_raw_nonzero().get() as u32)
    }

    /// Opens a socket; with it the descriptors of its ring and of what wakes its reader.
    pub(super) fn open(
        path: &Path,
        options: &Options,
    ) -> Result<(Connection, [OwnedFd; 2]), RemoteError> {
        let mut connection = Connection::connect(path)?;
        let open = Open {
            bind: Bind { port: options.port.clone(), protocol: options.protocol },
            set: Set {
                points: Some(names_of(options.points)),
                filter: options.filter.as_ref().map(|filter| tuples_of(filter.instructions())),
                snap: Some(options.snap),
            },
            block_size: options.ring.block_size,
            blocks: options.ring.blocks,
            retire_ns: options.ring.retire_ns,
            fanout: options.fanout.map(|(group, mode)| Join::new(group, mode)),
        };
        let (answer, descriptors) = connection.exchange(&Request::Open(open), &[])?;
        match (answer, <[OwnedFd; 2]>::try_from(descriptors)) {
            (Answer::Opened { generation }, Ok(descriptors)) => {
                connection.generation = Generation(generation);
                Ok((connection, descriptors))
            }
            (answer, _) => Err(connection.unexpected(format!("{answer:?} to `open`"))),
        }
    }

    /// Receives packets of `protocol` at the port of this name, or at all. When this returns, nothing is given any
    /// more of what it was bound to before.
    pub fn bind(&mut self, port: Option<&str>, protocol: u16) -> Result<(), RemoteError> {
        self.change(Request::Bind(Bind { port: port.map(str::to_owned), protocol }), &[])
    }

    /// Receives packets at these points from now on.
    pub fn set_points(&mut self, points: Points) -> Result<(), RemoteError> {
        self.change(Request::Set(Set { points: Some(names_of(points)), ..Set::default() }), &[])
    }

    /// Receives the packets that `filter` accepts from now on.
    pub fn set_filter(&mut self, filter: &Program) -> Result<(), RemoteError> {
        let filter = Some(tuples_of(filter.instructions()));
        self.change(Request::Set(Set { filter, ..Set::default() }), &[])
    }

    /// Likewise, in tcpdump's language (pcap-filter(7)), by libpcap, which this process loads for it.
    pub fn set_expression(&mut self, expression: &str) -> Result<(), RemoteError> {
        let filter =
            libpcap::compile(expression, libpcap::SNAP_MAX).map_err(RemoteError::Expression)?;
        self.change(Request::Set(Set { filter: Some(filter), ..Set::default() }), &[])
    }

    /// Keeps up to `snap` bytes of each packet from now on, 0 for all.
    pub fn set_snap(&mut self, snap: u32) -> Result<(), RemoteError> {
        self.change(Request::Set(Set { snap: Some(snap), ..Set::default() }), &[])
    }

    /// Joins the fanout group of this number, or makes it; see
    /// PACKET_FANOUT in packet(7).
    pub fn join_fanout(&mut self, group: u16, mode: Fanout) -> Result<(), RemoteError> {
        self.change(Request::Join(Join::new(group, mode)), &[])
    }

    /// Leaves its fanout group, if it is in one.
    pub fn leave_fanout(&mut self) -> Result<(), RemoteError> {
        self.change(Request::Leave, &[])
    }

    /// Sends a packet with its Ethernet header by the port that it is bound to, past all rules. The daemon refuses it
    /// unless its configuration has `send = true` in `[sockets]`.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), RemoteError> {
        self.change(Request::Send, bytes)
    }

    /// What the daemon has counted for this socket since it was opened.
    pub fn counts(&mut self) -> Result<Counts, RemoteError> {
        match self.exchange(&Request::Statistics { stale: Some(self.stale) }, &[])? {
            (Answer::Statistics(counts), _) => Ok(counts),
            (answer, _) => Err(self.unexpected(format!("{answer:?} to `statistics`"))),
        }
    }

    /// The daemon's ports and their numbers, sub-interfaces included.
    pub fn ports(&mut self) -> Result<Vec<Port>, RemoteError> {
        match self.exchange(&Request::Ports, &[])? {
            (Answer::Ports { ports }, _) => Ok(ports),
            (answer, _) => Err(self.unexpected(format!("{answer:?} to `ports`"))),
        }
    }

    /// Blocks of former bindings that were not shown.
    pub fn stale(&self) -> u64 {
        self.stale
    }

    /// The generation of the binding in force.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The daemon has hung up, and may have said why.
    pub(super) fn gone(&mut self) -> RemoteError {
        if self.reason.is_none()
            && let Ok((len, _)) = self.receive()
            && let Ok(Answer::Refused(refusal)) = serde_json::from_slice(&self.answer[..len])
        {
            self.reason = Some(refusal);
        }
        match &self.reason {
            Some(reason) => RemoteError::Refused(reason.clone()),
            None => RemoteError::Gone { path: self.path.clone() },
        }
    }

    /// The connection itself: at its end it is hung up on.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn change(&mut self, request: Request, tail: &[u8]) -> Result<(), RemoteError> {
        match self.exchange(&request, tail)? {
            (Answer::Done { generation }, _) => {
                self.generation = Generation(generation);
                Ok(())
            }
            (answer, _) => Err(self.unexpected(format!("{answer:?} to a change"))),
        }
    }

    pub(super) fn exchange(
        &mut self,
        request: &Request,
        tail: &[u8],
    ) -> Result<(Answer, Vec<OwnedFd>), RemoteError> {
        if self.is_silent {
            return Err(RemoteError::Silent { path: self.path.clone() });
        }
        let lists = matches!(request, Request::Ports | Request::Capture(_));
        let request = serde_json::to_vec(request).expect("all of a request is JSON");
        let newline: &[u8] = if tail.is_empty() { &[] } else { b"\n" };
        let len = request.len() + newline.len() + tail.len();
        if len > REQUEST_MAX {
            return Err(RemoteError::TooLong { len, max: REQUEST_MAX });
        }
        // A refusal may repeat any of the request's words.
        let answer_len = match lists {
            true => ANSWER_MAX,
            false => (ANSWER_LEN + len).min(ANSWER_MAX),
        };
        if self.answer.len() < answer_len {
            self.answer.resize(answer_len, 0);
        }
        let parts = [&request, newline, tail].map(IoSlice::new);
        let sent = retry_on_intr(|| {
            sendmsg(&self.fd, &parts, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)
        });
        match sent {
            // The daemon may have said why it hung up.
            Ok(_) | Err(Errno::PIPE | Errno::CONNRESET) => {}
            Err(error) => return Err(self.failed("sendmsg", error)),
        }
        let (len, descriptors) = match self.receive() {
            // The bytes that can still be read follow the error.
            Err(Errno::CONNRESET) => self.receive(),
            outcome => outcome,
        }
        .map_err(|error| self.failed("recvmsg", error))?;
        match serde_json::from_slice(&self.answer[..len]) {
            _ if len == 0 => Err(self.gone()),
            Ok(Answer::Refused(refusal)) => Err(RemoteError::Refused(refusal)),
            Ok(answer) => Ok((answer, descriptors)),
            Err(error) => Err(self.unexpected(error.to_string())),
        }
    }

    /// An answer's length, and its descriptors.
    fn receive(&mut self) -> Result<(usize, Vec<OwnedFd>), Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = retry_on_intr(|| {
            let mut parts = [IoSliceMut::new(&mut self.answer)];
            recvmsg(&self.fd, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)
        })?;
        let mut all = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        let descriptors = all.next().into_iter().flatten().collect();
        let is_cut = received.flags.contains(ReturnFlags::TRUNC);
        if is_cut { Err(Errno::MSGSIZE) } else { Ok((received.bytes, descriptors)) }
    }

    fn failed(&mut self, step: &'static str, error: Errno) -> RemoteError {
        let path = self.path.clone();
        match error {
            Errno::AGAIN => {
                self.is_silent = true;
                RemoteError::Silent { path }
            }
            Errno::PIPE | Errno::CONNRESET => RemoteError::Gone { path },
            error => RemoteError::System { step, source: io::Error::from(error) },
        }
    }

    pub(super) fn unexpected(&self, what: String) -> RemoteError {
        RemoteError::Unexpected { path: self.path.clone(), what }
    }
}

/// Bytes of an answer that lists nothing, but for words of its request. A buffer for the longest takes longer to clear than
/// a request to be answered.
const ANSWER_LEN: usize = 4096;

/// What a message may bring (`SCM_MAX_FD`).
const DESCRIPTORS_MAX: usize = 253;
