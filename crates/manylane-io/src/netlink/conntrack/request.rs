//! Requests: look up, change, list.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::time::Duration;

use super::super::NetlinkError;
use super::super::plain::Plain;
use super::super::socket::{Message, Refusal, Socket, bind, messages, outcome, set_option};
use super::receive::Datagrams;
use super::{
    CTA_TIMEOUT, Connection, IPCTNL_MSG_CT_GET, IPCTNL_MSG_CT_NEW, NFGENMSG_BYTES, Tuple, decode,
    encode, message_type,
};

/// A socket for requests about the connections of the network namespace in which it was opened.
///
/// All requests of a chunk go to the kernel in one system call, which executes them before it returns; so the answers
/// are there, and no call waits.
pub struct Conntrack {
    socket: Socket,
    port: u32,
    requests: Vec<u8>,
    answers: Datagrams,
}

/// A wanted change of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The connection, by its tuple of either direction. The kernel does not compare the id in a change, so the
    /// connection that has the tuple at that moment is changed; [`Changed::Announcing`] tells which that was.
    pub tuple: Tuple,
    /// TCP: accept packets outside the window and forget the highest acknowledgement, in both directions. The kernel
    /// ignores it for other protocols.
    pub liberal: bool,
    /// The connection expires this much later than now; whole seconds count, rounded down.
    ///
    /// The kernel refuses it (`EPERM`) for a connection with [`FIXED_TIMEOUT`](super::Status::FIXED_TIMEOUT), and then
    /// leaves the connection as it was (`__nf_ct_change_timeout`).
    pub timeout: Option<Duration>,
}

/// A connection that has been changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// The connection is this now, and it will announce its end to [`ConntrackEvents`](super::ConntrackEvents).
    Announcing(Connection),
    /// The connection has no room for events, so its end will not be announced.
    Silent,
}

impl Conntrack {
    /// Opens a socket in the calling thread's network namespace.
    pub fn open() -> Result<Conntrack, NetlinkError> {
        let (socket, port) = open().map_err(|source| NetlinkError::Unavailable { source })?;
        Ok(Conntrack { socket, port, requests: Vec::new(), answers: Datagrams::new() })
    }

    /// Looks connections up, each by its tuple of either direction: one answer for each, in order. `None` where no
    /// such connection exists.
    pub fn get(&mut self, tuples: &[Tuple]) -> Result<Vec<Option<Connection>>, NetlinkError> {
        let mut found = vec![None; tuples.len()];
        for (tuples, found) in tuples.chunks(CHUNK).zip(found.chunks_mut(CHUNK)) {
            self.get_chunk(tuples, found)
                .map_err(|refusal| NetlinkError::refused("look connections up".into(), refusal))?;
        }
        Ok(found)
    }

    /// Changes connections: one answer for each, in order. `ENOENT` where no such connection exists.
    ///
    /// Without listeners to updates this takes a quarter of the time of [`get`](Conntrack::get). With them, each change is
    /// an event, and takes as long as `get`.
    pub fn change(
        &mut self,
        changes: &[Change],
    ) -> Result<Vec<Result<(), io::Error>>, NetlinkError> {
        let answers = self.change_all(changes, 0)?;
        Ok(answers.into_iter().map(|answer| answer.map(|_| ())).collect())
    }

    /// As [`change`](Conntrack::change), and returns each connection as it is after the change, if it announces its end. The echo takes as long as
    /// [`get`](Conntrack::get) and [`change`](Conntrack::change) together.
    ///
    /// The kernel sends the event about a change to the socket that wants an echo (`NLM_F_ECHO`), if the connection
    /// has room for events. Where a rule has restricted the connection's events (`ct event set`, `CT --ctevents`), the
    /// answer is about those of changes, not of the end.
    ///
    /// An echo has all of a connection but `has_master`. A change that wants nothing looks up and asks at once.
    pub fn change_with_echo(
        &mut self,
        changes: &[Change],
    ) -> Result<Vec<Result<Changed, io::Error>>, NetlinkError> {
        self.change_all(changes, libc::NLM_F_ECHO)
    }

    /// Passes every connection of the namespace to `each`. Connections that begin or end meanwhile may be missing; one
    /// may come twice while the kernel resizes its table.
    pub fn dump(&mut self, mut each: impl FnMut(Connection)) -> Result<(), NetlinkError> {
        let request = Plain::list(message_type(IPCTNL_MSG_CT_GET), &[0; NFGENMSG_BYTES]);
        let walked = self.socket.walk(&request, |payload| {
            if let Some(connection) = decode::connection(payload) {
                each(connection);
            }
        });
        walked.map_err(|refusal| NetlinkError::refused("list the connections".into(), refusal))?;
        Ok(())
    }

    /// As [`dump`](Conntrack::dump), until `each` has enough.
    pub fn dump_until(
        self,
        mut each: impl FnMut(Connection) -> ControlFlow<()>,
    ) -> Result<(), NetlinkError> {
        let request = Plain::list(message_type(IPCTNL_MSG_CT_GET), &[0; NFGENMSG_BYTES]);
        let walked = self.socket.walk_until(&request, |payload| {
            decode::connection(payload).map_or(ControlFlow::Continue(()), &mut each)
        });
        walked.map_err(|refusal| NetlinkError::refused("list the connections".into(), refusal))
    }

    /// The socket's port number, which events about its changes carry.
    pub(super) fn port(&self) -> u32 {
        self.port
    }

    fn get_chunk(
        &mut self,
        tuples: &[Tuple],
        found: &mut [Option<Connection>],
    ) -> Result<(), Refusal> {
        self.requests.clear();
        for (index, tuple) in tuples.iter().enumerate() {
            let flags = acknowledged(index + 1 == tuples.len());
            let sequence = self.socket.take_sequence();
            let header = (IPCTNL_MSG_CT_GET, flags, sequence);
            encode::request(&mut self.requests, header, tuple, |_| {});
        }
        let mut failure = None;
        let read = self.exchange(tuples.len(), |index, message| match message.kind {
            libc::NLMSG_ERROR => match outcome(message) {
                Ok(()) => {}
                Err(Refusal { source, .. }) if source.raw_os_error() == Some(libc::ENOENT) => {}
                Err(refusal) => failure = Some(refusal),
            },
            CONNECTION => {
                if let Some(place) = found.get_mut(index) {
                    *place = decode::connection(message.payload);
                }
            }
            _ => {}
        });
        // A refusal explains more than the answers that are missing because of it.
        failure.map_or(Ok(read?), Err)
    }

    fn change_all(
        &mut self,
        changes: &[Change],
        flags: i32,
    ) -> Result<Vec<Result<Changed, io::Error>>, NetlinkError> {
        let mut answers: Vec<_> = changes.iter().map(|_| Ok(Changed::Silent)).collect();
        for (changes, answers) in changes.chunks(CHUNK).zip(answers.chunks_mut(CHUNK)) {
            self.change_chunk(changes, flags, answers)
                .map_err(|refusal| NetlinkError::refused("change connections".into(), refusal))?;
        }
        Ok(answers)
    }

    fn change_chunk(
        &mut self,
        changes: &[Change],
        flags: i32,
        answers: &mut [Result<Changed, io::Error>],
    ) -> Result<(), Refusal> {
        self.requests.clear();
        for (index, change) in changes.iter().enumerate() {
            let flags = flags | acknowledged(index + 1 == changes.len());
            let sequence = self.socket.take_sequence();
            let header = (IPCTNL_MSG_CT_NEW, flags, sequence);
            encode::request(&mut self.requests, header, &change.tuple, |bytes| {
                if change.liberal {
                    encode::put_liberal(bytes);
                }
                if let Some(timeout) = change.timeout {
                    let seconds = u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX);
                    encode::put(bytes, CTA_TIMEOUT, &seconds.to_be_bytes());
                }
            });
        }
        let mut echoes = Echoes { changes, next: 0 };
        self.exchange(changes.len(), |index, message| match message.kind {
            libc::NLMSG_ERROR => {
                if let (Err(refusal), Some(answer)) = (outcome(message), answers.get_mut(index)) {
                    *answer = Err(refusal.source);
                }
            }
            CONNECTION => {
                if let Some(connection) = decode::connection(message.payload)
                    && let Some(index) = echoes.place(&connection)
                {
                    answers[index] = Ok(Changed::Announcing(connection));
                }
            }
            _ => {}
        })?;
        Ok(())
    }

    /// Sends the composed requests, and passes each answer and the index of its request to `each`, until the last is
    /// acknowledged or refused. The index of an echo, whose sequence number is 0, means nothing.
    fn exchange(
        &mut self,
        count: usize,
        each: impl FnMut(usize, &Message<'_>),
    ) -> Result<(), io::Error> {
        self.socket.send_bytes(&self.requests)?;
        let read = self.read_answers(count, each);
        if read.is_err() {
            while self.answers.receive(self.socket.as_fd()).is_ok() {}
        }
        read
    }

    fn read_answers(
        &mut self,
        count: usize,
        mut each: impl FnMut(usize, &Message<'_>),
    ) -> Result<(), io::Error> {
        let last = count - 1;
        let first = self.socket.sequence().wrapping_sub(last as u32);
        loop {
            match self.answers.receive(self.socket.as_fd()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::Error::other("the kernel left requests without an answer"));
                }
                received => received?,
            };
            for datagram in self.answers.iter() {
                let too_long = || io::Error::other("an answer is longer than the kernel says");
                for message in messages(datagram.ok_or_else(too_long)?) {
                    let index = message.sequence.wrapping_sub(first) as usize;
                    each(index, &message);
                    if index == last && message.kind == libc::NLMSG_ERROR {
                        return Ok(());
                    }
                }
            }
        }
    }
}

/// The changes of a chunk whose echo has not come. An echo has no sequence number, but echoes come in the order of the
/// changes, and with the tuples.
struct Echoes<'c> {
    changes: &'c [Change],
    next: usize,
}

impl Echoes<'_> {
    /// The index of the change that `connection` is the echo of.
    fn place(&mut self, connection: &Connection) -> Option<usize> {
        let is_it =
            |change: &Change| [connection.original, connection.reply].contains(&change.tuple);
        let index = self.next + self.changes.get(self.next..)?.iter().position(is_it)?;
        self.next = index + 1;
        Some(index)
    }
}

fn acknowledged(is_last: bool) -> i32 {
    if is_last { libc::NLM_F_ACK } else { 0 }
}

/// A socket with room for a chunk of requests and its answers, and its port number.
fn open() -> io::Result<(Socket, u32)> {
    let socket = Socket::open_protocol(libc::NETLINK_NETFILTER)?;
    for (option, bytes) in
        [(libc::SO_SNDBUFFORCE, SEND_BUFFER_BYTES), (libc::SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)]
    {
        set_option(socket.as_fd(), libc::SOL_SOCKET, option, bytes as libc::c_int)?;
    }
    let port = bind(socket.as_fd())?;
    Ok((socket, port))
}

/// The message type of an answer and of an echo.
const CONNECTION: i32 = message_type(IPCTNL_MSG_CT_NEW) as i32;

/// Requests per system call. From 16 requests on, more in a call are not faster.
const CHUNK: usize = 256;

/// The kernel takes a datagram that is shorter than this (`netlink_sendmsg`).
const SEND_BUFFER_BYTES: usize = 2 * CHUNK * encode::REQUEST_BYTES_MAX;

/// Two answers, an echo and an acknowledgement, for each request; each costs its page and the kernel's `struct sk_buff`
/// at most. The kernel counts a datagram only while it waits, and doubles the number.
const RECEIVE_BUFFER_BYTES: usize = CHUNK * (4096 + 1024);

#[cfg(test)]
mod tests {
    use super::*;

    /// Silent connections and refusals have no echo, and a connection may be changed twice, by either tuple.
    #[test]
    fn echoes_find_their_changes() {
        let connection = decode::connection(&decode::tests::message(&[])).expect("it is whole");
        let change = |port| {
            let tuple = Tuple { source_port: port, ..connection.original };
            Change { tuple, liberal: true, timeout: None }
        };
        let changes = [change(7), change(1), change(8), change(1)];
        let mut echoes = Echoes { changes: &changes, next: 0 };
        let places: Vec<_> = (0..3).map(|_| echoes.place(&connection)).collect();
        assert_eq!(places, [Some(1), Some(3), None]);
    }
}
