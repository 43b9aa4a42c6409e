//! [`UdpStream`]: numbered datagrams of known content from one host to another.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use manylane_io::namespace::Host;
use socket2::SockRef;

use crate::content::Content;
use crate::traffic::{TrafficError, is_timeout};

/// Sends `packets` datagrams of `size` bytes at `rate` a second (0: as fast as they are read).
pub fn udp_stream(
    client: &Host,
    server: &Host,
    destination: IpAddr,
    packets: u64,
    size: usize,
    rate: u64,
) -> Result<UdpReport, TrafficError> {
    UdpStream { destination, packets, size, rate }.run(client, server, &|| true)
}

/// A stream to be sent.
#[derive(Clone, Copy, Debug)]
pub struct UdpStream {
    /// An address of the server.
    pub destination: IpAddr,
    /// How many datagrams.
    pub packets: u64,
    /// Bytes of data in each, at least [`SIZE_MIN`].
    pub size: usize,
    /// Datagrams a second; 0 for as fast as they are read.
    pub rate: u64,
}

/// What became of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdpReport {
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams that arrived as they were sent, each counted once.
    pub received: u64,
    /// Datagrams that arrived after a later one.
    pub reordered: u64,
    /// Datagrams that arrived again.
    pub duplicated: u64,
    /// Datagrams that arrived with other bytes, or other length.
    pub damaged: u64,
}

impl UdpReport {
    /// Whether all that was sent arrived once, in order, byte for byte.
    pub fn is_perfect(&self) -> bool {
        self.sent == self.received && self.reordered + self.duplicated + self.damaged == 0
    }
}

impl UdpStream {
    /// Sends the stream, as long as `keep_going` says so before each datagram.
    ///
    /// The sender stays at most [`WINDOW`] datagrams ahead of what has arrived, so that a receiver
    /// which gets no processor time does not look like a router that loses packets, and waits for none
    /// longer than [`STALL`]: lost datagrams do not stop the stream.
    pub fn run(
        self,
        client: &Host,
        server: &Host,
        keep_going: &(dyn Fn() -> bool + Sync),
    ) -> Result<UdpReport, TrafficError> {
        assert!(self.size >= SIZE_MIN, "a datagram holds its number");
        let destination = self.destination;
        let receiver = server
            .run(move || bound(destination))
            .map_err(|source| TrafficError::new(format!("bind to {destination}"), source))?;
        let to = receiver
            .local_addr()
            .map_err(|source| TrafficError::new("read a socket's port", source))?;
        let sender = client
            .run(move || connected(to))
            .map_err(|source| TrafficError::new(format!("connect to {to}"), source))?;

        let progress = Progress::default();
        let here = thread::current();
        thread::scope(|scope| {
            let arrivals = scope.spawn(|| self.receive(&receiver, &progress, &here));
            let sent = self.send(&sender, &progress, keep_going);
            progress.lock().sent = Some(*sent.as_ref().unwrap_or(&0));
            let arrivals = arrivals.join().expect("the receiver does not panic");
            let sent = sent.map_err(|source| TrafficError::new(format!("send to {to}"), source))?;
            let received = arrivals.map_err(|source| TrafficError::new("receive UDP", source))?;
            Ok(UdpReport { sent, ..received })
        })
    }

    fn send(
        &self,
        socket: &UdpSocket,
        progress: &Progress,
        keep_going: &(dyn Fn() -> bool + Sync),
    ) -> io::Result<u64> {
        let begun = Instant::now();
        let mut datagram = vec![0; self.size];
        for number in 0..self.packets {
            if !keep_going() {
                return Ok(number);
            }
            self.pace(begun, number);
            if number.saturating_sub(progress.lock().seen) >= WINDOW {
                thread::park_timeout(STALL); // The receiver unparks us with each arrival.
            }
            write(&mut datagram, number);
            socket.send(&datagram)?;
        }
        Ok(self.packets)
    }

    /// Waits until datagram `number` is due, for a millisecond's worth of datagrams at a time.
    fn pace(&self, begun: Instant, number: u64) {
        let per_ms = (self.rate / 1000).max(1);
        if self.rate == 0 || !number.is_multiple_of(per_ms) {
            return;
        }
        let due = Duration::from_nanos(
            (u128::from(number) * 1_000_000_000 / u128::from(self.rate)) as u64,
        );
        thread::sleep(due.saturating_sub(begun.elapsed()));
    }

    fn receive(
        &self,
        socket: &UdpSocket,
        progress: &Progress,
        sender: &thread::Thread,
    ) -> io::Result<UdpReport> {
        let mut report = UdpReport::default();
        let mut arrived = Arrived::default();
        let mut bytes = vec![0; self.size + 1]; // One more, to see a datagram that is too long.
        let mut expected = vec![0; self.size];
        loop {
            let sent = progress.lock().sent;
            if report.received == sent.unwrap_or(self.packets) {
                return Ok(report);
            }
            let length = match socket.recv(&mut bytes) {
                Ok(length) => length,
                // Silence means the end only if all had been sent before it began.
                Err(error) if is_timeout(&error) => match sent {
                    None => continue,
                    Some(_) => return Ok(report),
                },
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let bytes = &bytes[..length];
            let number = bytes.first_chunk().map_or(u64::MAX, |head| u64::from_be_bytes(*head));
            write(&mut expected, number);
            if number >= self.packets || bytes != expected {
                report.damaged += 1;
                continue;
            }
            if !arrived.insert(number) {
                report.duplicated += 1;
                continue;
            }
            report.received += 1;
            let mut progress = progress.lock();
            if number < progress.seen {
                report.reordered += 1;
            }
            progress.seen = progress.seen.max(number + 1);
            drop(progress);
            sender.unpark();
        }
    }
}

/// What sender and receiver tell each other.
#[derive(Default)]
struct Progress(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    /// Written by the receiver: one more than the highest number that arrived.
    seen: u64,
    /// Written by the sender when it has finished: how many it sent.
    sent: Option<u64>,
}

impl Progress {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().expect("nobody panics with the lock")
    }
}

/// Which numbers have arrived, one bit each.
#[derive(Default)]
struct Arrived(Vec<u64>);

impl Arrived {
    /// True when the number is new.
    fn insert(&mut self, number: u64) -> bool {
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        let is_new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        is_new
    }
}

/// The number, and content that follows from it.
fn write(datagram: &mut [u8], number: u64) {
    let (head, data) = datagram.split_at_mut(8);
    head.copy_from_slice(&number.to_be_bytes());
    Content::new(number).fill(data);
}

fn bound(address: IpAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((address, 0))?;
    SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
    socket.set_read_timeout(Some(SILENCE))?;
    Ok(socket)
}

fn connected(to: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.set_write_timeout(Some(SILENCE))?;
    socket.connect(to)?;
    Ok(socket)
}

/// The smallest datagram: its number.
pub const SIZE_MIN: usize = 8;
/// Datagrams on their way, at most. A receive buffer of default size holds about twice as many.
pub const WINDOW: u64 = 64;
/// How long the sender waits for arrivals before it continues.
pub const STALL: Duration = Duration::from_millis(20);
/// No datagram for so long after the last was sent: the rest is lost. A kernel whose request for a
/// neighbour was lost repeats it after a second, and keeps packets meanwhile.
const SILENCE: Duration = Duration::from_millis(1500);
/// The kernel gives less when `net.core.rmem_max` says so.
const RECEIVE_BUFFER_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_arrives_once() {
        let mut arrived = Arrived::default();
        assert!(arrived.insert(200));
        assert!(arrived.insert(0));
        assert!(!arrived.insert(200));
    }

    #[test]
    fn a_perfect_report_lacks_nothing_and_has_nothing_twice() {
        let perfect = UdpReport { sent: 2, received: 2, ..UdpReport::default() };
        assert!(perfect.is_perfect());
        assert!(!UdpReport { received: 1, ..perfect }.is_perfect());
        assert!(!UdpReport { duplicated: 1, ..perfect }.is_perfect());
    }
}
