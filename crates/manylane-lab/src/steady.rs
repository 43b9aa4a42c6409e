//! [`Steady`]: numbered datagrams at an even pace, whatever becomes of them, and which of them arrived.
//!
//! For scenarios that change something while traffic flows: a [mark](Steady::mark) divides what was sent before
//! from what was sent after; a test tells what arrived of either by its numbers, never by the clock. Where a test is about
//! time, the moment of an arrival is the kernel's (`SO_TIMESTAMPNS`, socket(7)): when the device received the datagram, not
//! when the receiver's thread had a core.
//!
//! | Field of `Counts` | Writes   | Reads    |
//! |-------------------|----------|----------|
//! | `sent`, `refused` | sender   | any thread |
//! | `arrived`, ...    | receiver | any thread |
//! | `is_over`         | `stop`   | both     |

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use manylane_io::namespace::Host;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt,
    sockopt::ReceiveTimestampns,
};

use crate::tools::until;
use crate::traffic::{TrafficError, is_timeout};

/// The destination and rate of datagrams.
#[derive(Clone, Copy, Debug)]
pub struct SteadyOptions {
    /// An address of the sender; the kernel chooses without.
    pub source: Option<IpAddr>,
    /// An address of the receiver.
    pub destination: IpAddr,
    /// How many a second, as far as the machine lets it.
    pub per_second: u32,
    /// Bytes of each, at least 8.
    pub size: usize,
    /// Whether the receiver sends each one back, so that connection tracking sees both directions.
    pub is_answered: bool,
}

impl SteadyOptions {
    /// A thousand small ones a second.
    pub fn to(destination: IpAddr) -> SteadyOptions {
        SteadyOptions { source: None, destination, per_second: 1000, size: 64, is_answered: false }
    }
}

/// A running stream, which ends when dropped.
pub struct Steady {
    counts: Arc<Mutex<Counts>>,
    /// What came back to the sender, by the same numbers.
    answers: Arc<Mutex<Counts>>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Counts {
    sent: u64,
    refused: u64,
    /// By number, when it arrived for the first time.
    arrived: Vec<Option<Instant>>,
    /// One bit for each number that arrived from an address or a port that is not the first one's.
    translated: Vec<u64>,
    first_source: Option<SocketAddr>,
    twice: u64,
    late: u64,
    /// One more than the highest number that arrived.
    seen: u64,
    source: Option<IpAddr>,
    last_arrival: Option<Instant>,
    longest_silence: Duration,
    is_over: bool,
}

/// What arrived until now.
#[derive(Clone, Copy, Debug)]
pub struct Arrivals {
    /// One more than the highest number that arrived.
    pub seen: u64,
    /// Datagrams that arrived after a later one.
    pub late: u64,
    /// Datagrams that arrived again.
    pub twice: u64,
    /// The sender of the last datagram.
    pub source: Option<IpAddr>,
    /// When that was.
    pub last: Option<Instant>,
    /// The longest time between two of them, since [`Steady::forget_silence`].
    pub longest_silence: Duration,
}

impl Steady {
    /// Starts a stream from one host to another.
    pub fn start(from: &Host, to: &Host, options: SteadyOptions) -> Result<Steady, TrafficError> {
        let SteadyOptions { source, destination, .. } = options;
        let receiver = to.run(move || bound(destination));
        let receiver = receiver
            .map_err(|source| TrafficError::new(format!("receive at {destination}"), source))?;
        let any = match destination {
            IpAddr::V4(_) => IpAddr::from([0; 4]),
            IpAddr::V6(_) => IpAddr::from([0; 16]),
        };
        let sender = from.run(move || bound(source.unwrap_or(any)));
        let sender = sender.map_err(|source| TrafficError::new("bind a UDP socket", source))?;
        let target = receiver
            .local_addr()
            .map_err(|source| TrafficError::new("read a socket's port", source))?;

        let [counts, answers] = [(); 2].map(|()| Arc::new(Mutex::new(Counts::default())));
        let (sending, receiving) = (counts.clone(), counts.clone());
        let mut threads = Vec::new();
        if options.is_answered {
            let taker = sender.try_clone();
            let taker = taker.map_err(|source| TrafficError::new("share a socket", source))?;
            let taking = answers.clone();
            let back = SteadyOptions { is_answered: false, ..options };
            threads.push(thread::spawn(move || receive(&taker, back, &taking)));
        }
        threads.push(thread::spawn(move || send(&sender, target, options, &sending)));
        threads.push(thread::spawn(move || receive(&receiver, options, &receiving)));
        Ok(Steady { counts, answers, threads })
    }

    /// The number of the datagram that is sent next: what is below was sent before.
    pub fn mark(&self) -> u64 {
        lock(&self.counts).sent
    }

    /// Waits until this many more were sent; returns the number of the next.
    pub fn after(&self, count: u64) -> u64 {
        let wanted = self.mark() + count;
        until(&format!("{wanted} datagrams are sent"), || match self.mark() {
            sent if sent >= wanted => Ok(sent),
            sent => Err(sent),
        })
    }

    /// Waits until one arrives that is sent from now on; its number, or that of a later one.
    pub fn arrives(&self, what: &str) -> u64 {
        let mark = self.mark();
        until(&format!("datagram {mark} or a later one arrives: {what}"), || {
            let arrivals = self.arrivals();
            if arrivals.seen > mark { Ok(arrivals.seen) } else { Err(format!("{arrivals:?}")) }
        })
    }

    /// How many of these numbers have arrived.
    pub fn arrived(&self, numbers: Range<u64>) -> u64 {
        let counts = lock(&self.counts);
        numbers.filter(|number| counts.arrival(*number).is_some()).count() as u64
    }

    /// How many of these numbers have come back to the sender.
    pub fn answered(&self, numbers: Range<u64>) -> u64 {
        let answers = lock(&self.answers);
        numbers.filter(|number| answers.arrival(*number).is_some()).count() as u64
    }

    /// The last of these numbers that has arrived as it was sent: not from another address or port than the first of all.
    pub fn last_unchanged(&self, numbers: Range<u64>) -> Option<u64> {
        let counts = lock(&self.counts);
        let is_unchanged = |number: &u64| {
            counts.arrival(*number).is_some() && !is_set(&counts.translated, *number)
        };
        numbers.rev().find(is_unchanged)
    }

    /// When the kernel received the last of these numbers, in order of arrival.
    pub fn last_arrival(&self, numbers: Range<u64>) -> Option<Instant> {
        let counts = lock(&self.counts);
        numbers.filter_map(|number| counts.arrival(number)).max()
    }

    /// How many of these numbers have not.
    pub fn missing(&self, numbers: Range<u64>) -> u64 {
        let count = numbers.end.saturating_sub(numbers.start);
        count - self.arrived(numbers)
    }

    /// What arrived until now.
    pub fn arrivals(&self) -> Arrivals {
        let counts = lock(&self.counts);
        let Counts { seen, late, twice, source, last_arrival: last, longest_silence, .. } = *counts;
        Arrivals { seen, late, twice, source, last, longest_silence }
    }

    /// How long after `moment` the last datagram arrived; zero if it was before, or none has.
    pub fn last_after(&self, moment: Instant) -> Duration {
        self.arrivals().last.map_or(Duration::ZERO, |last| last.saturating_duration_since(moment))
    }

    /// Measures the longest silence from here on.
    pub fn forget_silence(&self) {
        let mut counts = lock(&self.counts);
        (counts.last_arrival, counts.longest_silence) = (None, Duration::ZERO);
    }

    /// Sends no more.
    pub fn stop(&mut self) {
        lock(&self.counts).is_over = true;
        lock(&self.answers).is_over = true;
        for thread in self.threads.drain(..) {
            let _ = thread.join(); // The thread counts, and cannot panic.
        }
    }
}

impl Drop for Steady {
    fn drop(&mut self) {
        self.stop();
    }
}

fn send(socket: &UdpSocket, to: SocketAddr, options: SteadyOptions, counts: &Mutex<Counts>) {
    let pause = Duration::from_secs(1) / options.per_second.max(1);
    let mut datagram = vec![0; options.size.max(8)];
    loop {
        let number = {
            let counts = lock(counts);
            if counts.is_over {
                return;
            }
            counts.sent
        };
        datagram[..8].copy_from_slice(&number.to_be_bytes());
        // Without a route the send fails: count that as a loss, too.
        let refused = socket.send_to(&datagram, to).is_err();
        {
            let mut counts = lock(counts);
            counts.sent += 1;
            counts.refused += u64::from(refused);
        }
        thread::sleep(pause);
    }
}

fn receive(socket: &UdpSocket, options: SteadyOptions, counts: &Mutex<Counts>) {
    let mut bytes = vec![0; options.size.max(8) + 1];
    let mut control = nix::cmsg_space!(nix::sys::time::TimeSpec);
    loop {
        let received = receive_one(socket, &mut bytes, &mut control);
        if let Ok((length, from, _)) = received
            && options.is_answered
        {
            // An answer that cannot be sent is a loss, as one on the way is.
            let _ = socket.send_to(&bytes[..length], from);
        }
        let mut counts = lock(counts);
        match received {
            Ok((length, from, at)) if length >= 8 => {
                let number = u64::from_be_bytes(*bytes.first_chunk().expect("there are eight"));
                counts.arrive(number, from, at);
            }
            Ok(_) => {}
            Err(error) if is_timeout(&error) || error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return, // The socket is gone: nothing arrives any more.
        }
        if counts.is_over {
            return;
        }
    }
}

/// Length and sender of a datagram, and when the kernel received it.
fn receive_one(
    socket: &UdpSocket,
    bytes: &mut [u8],
    control: &mut [u8],
) -> io::Result<(usize, SocketAddr, Instant)> {
    let mut parts = [IoSliceMut::new(bytes)];
    let socket = socket.as_raw_fd();
    let received =
        recvmsg::<SockaddrStorage>(socket, &mut parts, Some(control), MsgFlags::empty())?;
    // The two clocks in this order: a thread that is stopped between them makes the arrival later, never earlier.
    let (wall, now) = (SystemTime::now(), Instant::now());
    let stamp = received.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::ScmTimestampns(stamp) => Some(Duration::from(stamp)),
        _ => None,
    });
    let stamp = stamp.ok_or_else(|| io::Error::other("the kernel gave no timestamp"))?;
    let ago = wall.duration_since(SystemTime::UNIX_EPOCH + stamp).unwrap_or_default();
    let from = received.address.as_ref().and_then(address);
    Ok((received.bytes, from.unwrap_or(([0; 4], 0).into()), now - ago))
}

fn address(from: &SockaddrStorage) -> Option<SocketAddr> {
    let ipv4 = from.as_sockaddr_in().map(|from| (from.ip(), from.port()).into());
    ipv4.or_else(|| from.as_sockaddr_in6().map(|from| (from.ip(), from.port()).into()))
}

impl Counts {
    fn arrive(&mut self, number: u64, from: SocketAddr, at: Instant) {
        if let Some(last) = self.last_arrival.replace(at) {
            self.longest_silence = self.longest_silence.max(at.saturating_duration_since(last));
        }
        self.source = Some(from.ip());
        if number >= NUMBERS_MAX {
            return;
        }
        let place = number as usize;
        if place >= self.arrived.len() {
            self.arrived.resize(place + 1, None);
            self.translated.resize(place / 64 + 1, 0);
        }
        if *self.first_source.get_or_insert(from) != from {
            self.translated[place / 64] |= 1 << (number % 64);
        }
        if self.arrived[place].is_some() {
            self.twice += 1;
        } else if number < self.seen {
            self.late += 1;
        }
        self.arrived[place].get_or_insert(at);
        self.seen = self.seen.max(number + 1);
    }

    fn arrival(&self, number: u64) -> Option<Instant> {
        self.arrived.get(usize::try_from(number).ok()?).copied().flatten()
    }
}

fn is_set(words: &[u64], number: u64) -> bool {
    words.get((number / 64) as usize).is_some_and(|word| word & 1 << (number % 64) != 0)
}

fn lock(counts: &Mutex<Counts>) -> MutexGuard<'_, Counts> {
    counts.lock().expect("nobody panics with the lock")
}

fn bound(address: IpAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((address, 0))?;
    // What arrives while this thread waits for a core must not be lost here. Labs have root's word for it.
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER_BYTES)?;
    setsockopt(&socket, ReceiveTimestampns, &true)?;
    socket.set_read_timeout(Some(LOOK_AROUND))?;
    Ok(socket)
}

/// How often the receiver sees whether it is over while nothing arrives.
const LOOK_AROUND: Duration = Duration::from_millis(50);
/// Ten seconds of small datagrams: the kernel counts up to 1 KiB for each.
const RECEIVE_BUFFER_BYTES: usize = 16 << 20;
/// Hours of numbers: a foreign datagram must not take all memory.
const NUMBERS_MAX: u64 = 1 << 23;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_told_by_their_numbers() {
        let mut counts = Counts { sent: 10, ..Counts::default() };
        let from = SocketAddr::from(([10, 0, 0, 1], 4000));
        let begin = Instant::now();
        let at = |number| begin + Duration::from_millis(number);
        for number in [0, 1, 4, 3, 4, u64::MAX] {
            counts.arrive(number, from, at(number.min(9)));
        }
        assert_eq!((counts.seen, counts.late, counts.twice), (5, 1, 1));
        let counts = Arc::new(Mutex::new(counts));
        let steady = Steady { answers: counts.clone(), counts, threads: Vec::new() };
        assert_eq!((steady.arrived(0..5), steady.missing(0..5)), (4, 1));
        assert_eq!((steady.arrived(2..4), steady.missing(5..10)), (1, 5));
        assert_eq!((steady.last_arrival(0..4), steady.last_arrival(5..10)), (Some(at(3)), None));
        assert_eq!(steady.mark(), 10);
    }
}
