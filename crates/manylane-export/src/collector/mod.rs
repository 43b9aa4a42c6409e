//! A collector, which receives messages by UDP or TCP. No call here waits, except [`Destination::resolve`].
//!
//! | File         | Holds                                                                              |
//! |--------------|------------------------------------------------------------------------------------|
//! | `address.rs` | [`CollectorAddress`]: `udp://HOST:PORT`; names become addresses, once, at the start |
//! | `stream.rs`  | a TCP connection: opened, lost, opened again later                                  |
//!
//! One thread has a [`Collector`] and sends by it. Other threads read its [`CollectorStatus`]
//! ([`Collector::watch`]). The thread passes the time as an argument.
//!
//! | The collector                       | A message                                                                     |
//! |-------------------------------------|-------------------------------------------------------------------------------|
//! | receives                            | is `sent`: the kernel has taken it                                              |
//! | is a host without a listener (UDP)  | is `sent`, and `refused` counts the kernel's next report of ICMP's error        |
//! | has no route, or a full socket      | is `lost`                                                                     |
//! | has no connection (TCP)             | is `lost`; the next attempt to connect waits for 1 s, then twice as long, up to 32 s |
//! | reads too slowly (TCP)              | waits in a backlog of 1 MiB, and is `lost` beyond it                            |

mod address;
mod stream;
#[cfg(test)]
mod tests;

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

pub use address::{AddressError, CollectorAddress, Destination, Transport};
use stream::Stream;

/// What has become of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The kernel has it, or it waits for a TCP connection to take it.
    Sent,
    /// The message has not been sent: the host has reported that an earlier message met no listener (UDP). Send it again, perhaps
    /// with what a collector that has just begun needs to know.
    Refused,
    /// The message has not been sent, and is counted as lost.
    Lost,
}

/// How a collector does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Nothing has been sent yet.
    #[default]
    Idle,
    /// A TCP connection is being opened.
    Connecting,
    /// Messages leave.
    Sending,
    /// Messages do not arrive; `CollectorStatus::trouble` says why.
    Unreachable,
}

impl State {
    /// All of them.
    pub const ALL: [State; 4] =
        [State::Idle, State::Connecting, State::Sending, State::Unreachable];

    /// As the API spells it.
    pub fn name(self) -> &'static str {
        match self {
            State::Idle => "idle",
            State::Connecting => "connecting",
            State::Sending => "sending",
            State::Unreachable => "unreachable",
        }
    }
}

/// What a collector has been sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectorStatus {
    /// How it does.
    pub state: State,
    /// The last error, while the state is `Unreachable`.
    pub trouble: Option<String>,
    /// Messages that the kernel has taken.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Records in them.
    pub sent_records: u64,
    /// Messages that could not be sent.
    pub lost: u64,
    /// Records in them.
    pub lost_records: u64,
    /// Packets that these records tell of.
    pub lost_packets: u64,
    /// Bytes of these packets.
    pub lost_octets: u64,
    /// Messages that met no listener, as far as the kernel has reported that (UDP).
    pub refused: u64,
    /// TCP connections that have been opened.
    pub connections: u64,
}

/// What other threads read of a collector.
#[derive(Clone, Debug)]
pub struct Watch {
    destination: Destination,
    status: Arc<Mutex<CollectorStatus>>,
}

impl Watch {
    /// Where the collector is.
    pub fn destination(&self) -> &Destination {
        &self.destination
    }

    /// How the collector does.
    pub fn status(&self) -> CollectorStatus {
        lock(&self.status).clone()
    }
}

/// What is in a message, for the counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Records.
    pub records: u64,
    /// Packets that they tell of, if they tell of each packet once.
    pub packets: u64,
    /// Bytes of these packets.
    pub octets: u64,
}

impl std::ops::AddAssign for Load {
    fn add_assign(&mut self, other: Load) {
        self.records += other.records;
        self.packets += other.packets;
        self.octets += other.octets;
    }
}

/// A message, and how many records are in it.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Its records, which the status counts.
    pub records: u64,
}

/// Sends messages to one collector.
#[derive(Debug)]
pub struct Collector {
    destination: Destination,
    link: Link,
    /// The last answer was that no program listens: the next message may meet the same (UDP).
    is_refused: bool,
    /// Increases whenever the collector may know nothing of what was sent before.
    session: u64,
    status: Arc<Mutex<CollectorStatus>>,
}

#[derive(Debug)]
enum Link {
    Udp(Option<UdpSocket>),
    Tcp(Stream),
}

impl Collector {
    /// A collector; its socket is opened in the network namespace of the thread that sends first.
    pub fn new(destination: Destination) -> Collector {
        let link = match destination.transport() {
            Transport::Udp => Link::Udp(None),
            Transport::Tcp => Link::Tcp(Stream::new(destination.socket_address())),
        };
        Collector { destination, link, is_refused: false, session: 0, status: Arc::default() }
    }

    /// What other threads read of it.
    pub fn watch(&self) -> Watch {
        Watch { destination: self.destination.clone(), status: self.status.clone() }
    }

    /// How it does.
    pub fn status(&self) -> CollectorStatus {
        lock(&self.status).clone()
    }

    /// Where it is.
    pub fn destination(&self) -> &Destination {
        &self.destination
    }

    /// By what it is sent to.
    pub fn transport(&self) -> Transport {
        self.destination.transport()
    }

    /// A number that increases whenever the collector may know nothing of earlier messages: a new TCP connection, or a
    /// host that had no listener.
    pub fn session(&self) -> u64 {
        self.session
    }

    /// Opens the TCP connection, and sends what waits for it. To be called about once a second, and before a message is
    /// made whose content depends on the session. Does nothing by UDP.
    pub fn tend(&mut self, now: Instant) {
        let Link::Tcp(stream) = &mut self.link else { return };
        let mut status = lock(&self.status);
        if stream.tend(now, &mut status) {
            self.session += 1;
        }
    }

    /// Whether a message can be sent: always by UDP, with a connection by TCP.
    pub fn is_ready(&self) -> bool {
        match &self.link {
            Link::Udp(_) => true,
            Link::Tcp(stream) => stream.is_connected(),
        }
    }

    /// Sends a message, or counts it as lost. Never waits, and opens no connection: [`tend`](Collector::tend) does.
    pub fn send(&mut self, message: Message<'_>, now: Instant) -> Outcome {
        let Message { bytes, records } = message;
        self.send_load(bytes, Load { records, ..Load::default() }, now)
    }

    /// As [`send`](Collector::send), for records that tell of each packet once.
    pub fn send_load(&mut self, bytes: &[u8], load: Load, now: Instant) -> Outcome {
        let mut status = lock(&self.status);
        let socket = match &mut self.link {
            Link::Tcp(stream) => return stream.send(bytes, load, now, &mut status),
            Link::Udp(socket) => socket,
        };
        match send_datagram(socket, self.destination.socket_address(), bytes) {
            Ok(()) => {
                if !std::mem::take(&mut self.is_refused) {
                    (status.state, status.trouble) = (State::Sending, None);
                }
                status.count_sent(bytes.len(), load);
                Outcome::Sent
            }
            Err(error) => {
                (status.state, status.trouble) = (State::Unreachable, Some(error.to_string()));
                if error.kind() == ErrorKind::ConnectionRefused {
                    self.session += 1;
                    self.is_refused = true;
                    status.refused += 1;
                    return Outcome::Refused;
                }
                // The next message has a new socket: routes and addresses may have changed.
                if error.kind() != ErrorKind::WouldBlock {
                    *socket = None;
                }
                status.count_lost(load);
                Outcome::Lost
            }
        }
    }

    /// Counts a message as lost that was [refused](Outcome::Refused) and is not sent again.
    pub fn give_up(&mut self, load: Load) {
        lock(&self.status).count_lost(load);
    }

    /// Waits until a TCP connection has taken the backlog, or until then.
    pub fn finish(&mut self, until: Instant) {
        if let Link::Tcp(stream) = &mut self.link {
            stream.finish(until, &mut lock(&self.status));
        }
    }
}

impl CollectorStatus {
    fn count_sent(&mut self, bytes: usize, load: Load) {
        self.sent += 1;
        self.sent_bytes += bytes as u64;
        self.sent_records += load.records;
    }

    fn count_lost(&mut self, load: Load) {
        self.lost += 1;
        self.lost_records += load.records;
        self.lost_packets += load.packets;
        self.lost_octets += load.octets;
    }
}

fn send_datagram(
    socket: &mut Option<UdpSocket>,
    to: SocketAddr,
    datagram: &[u8],
) -> io::Result<()> {
    let socket = match socket {
        Some(socket) => socket,
        none => none.insert(open(to)?),
    };
    socket.send(datagram).map(|_| ())
}

/// A connected socket: only such a one hears that a datagram met no listener.
fn open(to: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.set_nonblocking(true)?;
    socket.connect(to)?;
    Ok(socket)
}

fn lock(status: &Mutex<CollectorStatus>) -> MutexGuard<'_, CollectorStatus> {
    status.lock().unwrap_or_else(PoisonError::into_inner)
}
