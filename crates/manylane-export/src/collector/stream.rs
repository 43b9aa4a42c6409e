//! A TCP connection to a collector: opened without waiting, and opened again, ever more rarely, while that fails.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use super::{CollectorStatus, Load, Outcome, State};

/// A connection, or the wish for one.
#[derive(Debug)]
pub(super) struct Stream {
    to: SocketAddr,
    stage: Stage,
    /// Messages that the kernel has not taken whole.
    backlog: VecDeque<(Vec<u8>, Load)>,
    /// Their bytes.
    backlog_bytes: usize,
    /// Bytes of the first that the kernel has taken.
    written: usize,
    /// How long to wait after the next failure.
    patience: Duration,
}

#[derive(Debug)]
enum Stage {
    /// The next attempt begins at this time; at once without.
    Waiting(Option<Instant>),
    /// The kernel connects, at most until then.
    Connecting(TcpStream, Instant),
    Connected(TcpStream),
}

impl Stream {
    pub fn new(to: SocketAddr) -> Stream {
        Stream {
            to,
            stage: Stage::Waiting(None),
            backlog: VecDeque::new(),
            backlog_bytes: 0,
            written: 0,
            patience: PATIENCE_MIN,
        }
    }

    /// Connects where that is due, and sends what waits. Whether the connection has just been opened.
    pub fn tend(&mut self, now: Instant, status: &mut CollectorStatus) -> bool {
        if let Stage::Waiting(until) = self.stage
            && until.is_none_or(|until| now >= until)
        {
            match connect(self.to) {
                Ok(stream) => {
                    self.stage = Stage::Connecting(stream, now + CONNECT_LIMIT);
                    if status.trouble.is_none() {
                        status.state = State::Connecting;
                    }
                }
                Err(error) => self.fail(&error, now, status),
            }
        }
        let is_new = self.look_at_connecting(now, status);
        if let Err(error) = self.flush(status) {
            self.fail(&error, now, status);
        }
        is_new
    }

    /// Whether a connection that was being opened is now open.
    fn look_at_connecting(&mut self, now: Instant, status: &mut CollectorStatus) -> bool {
        let Stage::Connecting(stream, limit) = &self.stage else { return false };
        match (is_connected(stream), *limit) {
            (Ok(true), _) => {
                let waiting = Stage::Waiting(None);
                if let Stage::Connecting(stream, _) = std::mem::replace(&mut self.stage, waiting) {
                    self.stage = Stage::Connected(stream);
                }
                self.patience = PATIENCE_MIN;
                (status.state, status.trouble) = (State::Sending, None);
                status.connections += 1;
                true
            }
            (Ok(false), limit) => {
                if now >= limit {
                    self.fail(&ErrorKind::TimedOut.into(), now, status);
                }
                false
            }
            (Err(error), _) => {
                self.fail(&error, now, status);
                false
            }
        }
    }

    /// Whether a connection is open.
    pub fn is_connected(&self) -> bool {
        matches!(self.stage, Stage::Connected(_))
    }

    pub fn send(
        &mut self,
        bytes: &[u8],
        load: Load,
        now: Instant,
        status: &mut CollectorStatus,
    ) -> Outcome {
        if !self.is_connected() || self.backlog_bytes + bytes.len() > BACKLOG_MAX {
            status.count_lost(load);
            return Outcome::Lost;
        }
        self.backlog.push_back((bytes.to_vec(), load));
        self.backlog_bytes += bytes.len();
        match self.flush(status) {
            Ok(()) => Outcome::Sent,
            Err(error) => {
                // The message was in the backlog, so it is counted.
                self.fail(&error, now, status);
                Outcome::Lost
            }
        }
    }

    /// When the next attempt to connect begins.
    #[cfg(test)]
    pub fn waits_until(&self) -> Option<Instant> {
        match self.stage {
            Stage::Waiting(until) => until,
            Stage::Connecting(..) | Stage::Connected(_) => None,
        }
    }

    /// Waits until the kernel has taken the backlog, or until then.
    pub fn finish(&mut self, until: Instant, status: &mut CollectorStatus) {
        let left = until.saturating_duration_since(Instant::now());
        if let Stage::Connected(stream) = &self.stage
            && !self.backlog.is_empty()
            && !left.is_zero()
        {
            let _ = stream.set_nonblocking(false);
            let _ = stream.set_write_timeout(Some(left));
            if let Err(error) = self.flush(status) {
                self.fail(&error, until, status);
            }
        }
        for (_, load) in self.backlog.drain(..) {
            status.count_lost(load);
        }
        self.stage = Stage::Waiting(None);
    }

    /// Writes what waits, as far as the kernel takes it.
    fn flush(&mut self, status: &mut CollectorStatus) -> io::Result<()> {
        let Stage::Connected(stream) = &mut self.stage else { return Ok(()) };
        // A collector says nothing; but the first write to a closed connection would be taken, and lost.
        if self.written == 0 && has_ended(stream)? {
            return Err(io::Error::other("the collector has closed the connection"));
        }
        while let Some((message, load)) = self.backlog.front() {
            match stream.write(&message[self.written..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
            if self.written == message.len() {
                status.count_sent(message.len(), *load);
                self.backlog_bytes -= message.len();
                self.written = 0;
                self.backlog.pop_front();
            }
        }
        Ok(())
    }

    /// The connection is none: what waits for it is lost, and the next one is opened later.
    fn fail(&mut self, error: &io::Error, now: Instant, status: &mut CollectorStatus) {
        for (_, load) in self.backlog.drain(..) {
            status.count_lost(load);
        }
        (self.backlog_bytes, self.written) = (0, 0);
        self.stage = Stage::Waiting(Some(now + self.patience));
        self.patience = (self.patience * 2).min(PATIENCE_MAX);
        (status.state, status.trouble) = (State::Unreachable, Some(error.to_string()));
    }
}

/// Begins to connect.
fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // A machine that vanishes is noticed, though its kernel says nothing.
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX))?;
    match socket.connect(&to.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(EINPROGRESS) => {}
        Err(error) => return Err(error),
    }
    Ok(socket.into())
}

fn is_connected(stream: &TcpStream) -> io::Result<bool> {
    if let Some(error) = stream.take_error()? {
        return Err(error);
    }
    match stream.peer_addr() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether the collector has closed its side. What it says is thrown away.
fn has_ended(stream: &mut TcpStream) -> io::Result<bool> {
    let mut said = [0; 256];
    loop {
        match stream.read(&mut said) {
            Ok(0) => return Ok(true),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Messages that a slow collector may have waiting.
const BACKLOG_MAX: usize = 1 << 20;
/// How long to wait after a first failure, and after many.
const PATIENCE_MIN: Duration = Duration::from_secs(1);
const PATIENCE_MAX: Duration = Duration::from_secs(32);
/// How long a connection may take to open.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// How long sent bytes may be unacknowledged.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(15);
/// errno(3).
const EINPROGRESS: i32 = 115;
