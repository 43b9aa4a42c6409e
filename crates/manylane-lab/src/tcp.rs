//! [`TcpTransfer`]: known bytes through both directions of a TCP connection at once.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use manylane_io::namespace::Host;
use socket2::SockRef;

use crate::content::Content;
use crate::traffic::TrafficError;

/// Sends `bytes` each way through one connection from `client` to `destination`, an address of `server`.
pub fn tcp_transfer(
    client: &Host,
    server: &Host,
    destination: IpAddr,
    bytes: u64,
) -> Result<TcpReport, TrafficError> {
    TcpTransfer { destination, bytes }.run(client, server, &|| true)
}

/// A transfer to be made.
#[derive(Clone, Copy, Debug)]
pub struct TcpTransfer {
    /// An address of the server.
    pub destination: IpAddr,
    /// Bytes each way.
    pub bytes: u64,
}

/// Sets the flag that keeps a transfer running to false when this is dropped, by a panic too: else a thread that waits
/// for the transfer's end would wait for ever.
pub struct TransferEnd<'g>(pub &'g Mutex<bool>);

impl Drop for TransferEnd<'_> {
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = false;
    }
}

/// What became of a transfer.
#[derive(Clone, Debug)]
pub struct TcpReport {
    /// From client to server.
    pub up: TcpHalf,
    /// From server to client.
    pub down: TcpHalf,
    /// From the first byte to the last end.
    pub elapsed: Duration,
}

impl TcpReport {
    /// Whether both directions arrived whole.
    pub fn is_intact(&self) -> bool {
        self.up.is_intact() && self.down.is_intact()
    }
}

/// One direction of a transfer.
#[derive(Clone, Debug, Default)]
pub struct TcpHalf {
    /// Bytes given to the sender's kernel.
    pub sent: u64,
    /// Bytes taken from the receiver's.
    pub received: u64,
    /// The first byte that is not the one sent, if any.
    pub first_wrong_byte: Option<u64>,
    /// What ended the direction before its end, if anything.
    pub broken: Option<String>,
}

impl TcpHalf {
    /// Whether every byte arrived as it was sent, and then the end.
    pub fn is_intact(&self) -> bool {
        self.sent == self.received && self.first_wrong_byte.is_none() && self.broken.is_none()
    }
}

impl TcpTransfer {
    /// Makes the transfer; it ends early, whole, when `keep_going` says no.
    pub fn run(
        self,
        client: &Host,
        server: &Host,
        keep_going: &(dyn Fn() -> bool + Sync),
    ) -> Result<TcpReport, TrafficError> {
        let (near, far) = connection(client, server, self.destination)?;
        let begun = Instant::now();
        let (up, down) = thread::scope(|scope| {
            let [up, down] = [(&near, &far, UP), (&far, &near, DOWN)].map(|(from, to, seed)| {
                let sender = scope.spawn(move || self.send(from, seed, keep_going));
                (sender, scope.spawn(move || receive(to, seed)))
            });
            (join(up), join(down))
        });
        Ok(TcpReport { up, down, elapsed: begun.elapsed() })
    }

    /// Returns how much was sent, and why not all.
    fn send(
        &self,
        mut stream: &TcpStream,
        seed: u64,
        keep_going: &(dyn Fn() -> bool + Sync),
    ) -> (u64, Option<io::Error>) {
        let mut content = Content::new(seed);
        let mut block = vec![0; BLOCK_LEN];
        let mut sent = 0;
        while sent < self.bytes && keep_going() {
            let length =
                usize::try_from(self.bytes - sent).map_or(BLOCK_LEN, |left| left.min(BLOCK_LEN));
            content.fill(&mut block[..length]);
            if let Err(error) = stream.write_all(&block[..length]) {
                return (sent, Some(error));
            }
            sent += length as u64;
        }
        (sent, stream.shutdown(Shutdown::Write).err())
    }
}

type Joined<'scope, T> = thread::ScopedJoinHandle<'scope, T>;

/// Puts together what the two ends of a direction say.
fn join(
    (sender, receiver): (Joined<'_, (u64, Option<io::Error>)>, Joined<'_, TcpHalf>),
) -> TcpHalf {
    let (sent, error) = sender.join().expect("the sender does not panic");
    let half = receiver.join().expect("the receiver does not panic");
    let broken = half.broken.or(error.map(|error| format!("sending: {error}")));
    TcpHalf { sent, broken, ..half }
}

fn receive(mut stream: &TcpStream, seed: u64) -> TcpHalf {
    let mut content = Content::new(seed);
    let (mut block, mut scratch) = (vec![0; BLOCK_LEN], vec![0; BLOCK_LEN]);
    let mut half = TcpHalf::default();
    loop {
        // Whole blocks, as they were made; only the last may be shorter.
        let mut length = 0;
        let mut is_over = false;
        while length < BLOCK_LEN && !is_over {
            match stream.read(&mut block[length..]) {
                Ok(0) => is_over = true,
                Ok(more) => length += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    half.broken = Some(format!("receiving: {error}"));
                    is_over = true;
                }
            }
        }
        if let Some(wrong) = content.difference(&block[..length], &mut scratch) {
            half.first_wrong_byte.get_or_insert(half.received + wrong as u64);
        }
        half.received += length as u64;
        if is_over {
            return half;
        }
    }
}

/// Connects from `client` to `destination`, an address of `server`: both ends, which wait for nothing for ever.
pub(super) fn connection(
    client: &Host,
    server: &Host,
    destination: IpAddr,
) -> Result<(TcpStream, TcpStream), TrafficError> {
    let listener = server
        .run(move || listen(destination))
        .map_err(|source| TrafficError::new(format!("listen on {destination}"), source))?;
    let to = listener
        .local_addr()
        .map_err(|source| TrafficError::new("read a socket's port", source))?;
    let near = client
        .run(move || TcpStream::connect_timeout(&to, PATIENCE))
        .map_err(|source| TrafficError::new(format!("connect to {to}"), source))?;
    let far = accept(&listener, &near)
        .map_err(|source| TrafficError::new(format!("accept on {to}"), source))?;
    for stream in [&near, &far] {
        bound(stream).map_err(|source| TrafficError::new("set a timeout", source))?;
    }
    Ok((near, far))
}

fn listen(address: IpAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind((address, 0))?;
    // socket(7): a listening socket's receive timeout bounds accept(2).
    SockRef::from(&listener).set_read_timeout(Some(PATIENCE))?;
    Ok(listener)
}

/// Takes the connection whose other end is `near`.
fn accept(listener: &TcpListener, near: &TcpStream) -> io::Result<TcpStream> {
    let wanted = near.local_addr()?;
    loop {
        let (stream, from): (TcpStream, SocketAddr) = listener.accept()?;
        if from == wanted {
            return Ok(stream);
        }
    }
}

fn bound(stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))
}

/// A connection that moves nothing for so long is broken. Linux retries a lost SYN after 1, 3, 7 s.
const PATIENCE: Duration = Duration::from_secs(10);
/// A multiple of eight (see [`Content::fill`]).
const BLOCK_LEN: usize = 64 << 10;
/// The seeds of the two directions: bytes of one must not pass for the other's.
const UP: u64 = 1;
const DOWN: u64 = 2;
