//! Connections between two hosts, wherever the router between them sends their packets, with bytes that both ends know.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use manylane_lab::{Content, Host};
use nix::sys::socket::{setsockopt, sockopt};
use socket2::SockRef;

/// Both ends of a TCP connection.
pub(super) struct Pair {
    /// The end that began.
    pub near: TcpStream,
    pub far: TcpStream,
}

impl Pair {
    /// Connects a client to a server that listens at this address.
    pub fn open(client: &Host, server: &Host, address: IpAddr) -> Pair {
        Pair::through(client, server, (address, 0).into(), None)
    }

    /// Connects to another address than that at which the server listens.
    pub fn through(
        client: &Host,
        server: &Host,
        listen: SocketAddr,
        to: Option<SocketAddr>,
    ) -> Pair {
        let listener = server.run(move || TcpListener::bind(listen)).expect("the address is free");
        let to = to.unwrap_or_else(|| listener.local_addr().expect("it is bound"));
        let near = client.run(move || TcpStream::connect_timeout(&to, PATIENCE));
        let near = near.unwrap_or_else(|error| panic!("{to}: {error}"));
        let (far, _) = listener.accept().expect("the connection is there");
        for stream in [&near, &far] {
            stream.set_read_timeout(Some(PATIENCE)).expect("it is no zero");
            stream.set_write_timeout(Some(PATIENCE)).expect("it is no zero");
        }
        Pair { near, far }
    }

    /// The end that began.
    pub fn began(&self) -> SocketAddr {
        self.near.local_addr().expect("it is connected")
    }

    /// Sends this many blocks each way, at once, and compares them. The longest time in which nothing arrived, each way.
    pub fn exchange(&self, blocks: u64) -> [Duration; 2] {
        self.exchange_and(blocks, &|_| ())
    }

    /// Does that, and calls `arrived` with the number of each block that the far end has got.
    pub fn exchange_and(&self, blocks: u64, arrived: &(dyn Fn(u64) + Sync)) -> [Duration; 2] {
        let Pair { near, far } = self;
        thread::scope(|scope| {
            scope.spawn(|| send(near, 1, blocks));
            scope.spawn(|| send(far, 2, blocks));
            let back = scope.spawn(|| receive(near, 2, blocks, &|_| ()));
            let forth = receive(far, 1, blocks, arrived);
            [forth, back.join().expect("all arrives")]
        })
    }

    /// Sends this many blocks from the far end only, and compares them.
    pub fn answer(&self, blocks: u64) {
        thread::scope(|scope| {
            scope.spawn(|| send(&self.far, 2, blocks));
            receive(&self.near, 2, blocks, &|_| ());
        });
    }

    /// Sends bytes one way, to be thrown away.
    pub fn pour(&self, bytes: u64) {
        let block = [0; BLOCK];
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut near = &self.near;
                (0..bytes / BLOCK as u64)
                    .for_each(|_| near.write_all(&block).expect("the connection holds"));
            });
            let mut taken = Vec::with_capacity(BLOCK);
            for _ in 0..bytes / BLOCK as u64 {
                taken.clear();
                let mut part = (&self.far).take(BLOCK as u64);
                part.read_to_end(&mut taken).expect("the connection holds");
                assert_eq!(taken.len(), BLOCK);
            }
        });
    }

    /// Closes both directions, and sees both ends.
    pub fn close(self) {
        let Pair { mut near, mut far } = self;
        near.shutdown(Shutdown::Write).expect("it is open");
        assert_eq!(far.read(&mut [0]).expect("an end"), 0);
        drop(far);
        assert_eq!(near.read(&mut [0]).expect("an end"), 0);
    }

    /// Resets it, and sees that.
    pub fn reset(self) {
        let Pair { near, mut far } = self;
        SockRef::from(&near).set_linger(Some(Duration::ZERO)).expect("it is a socket");
        drop(near);
        let error = far.read(&mut [0]).expect_err("it is reset");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    }
}

fn send(mut stream: &TcpStream, seed: u64, blocks: u64) {
    let mut block = block(seed);
    for number in 0..blocks {
        block[..8].copy_from_slice(&number.to_be_bytes());
        stream.write_all(&block).unwrap_or_else(|error| panic!("block {number}: {error}"));
    }
}

fn receive(mut stream: &TcpStream, seed: u64, blocks: u64, arrived: &dyn Fn(u64)) -> Duration {
    let (mut wanted, mut block) = (block(seed), vec![0; BLOCK]);
    let (mut last, mut gap) = (Instant::now(), Duration::ZERO);
    for number in 0..blocks {
        wanted[..8].copy_from_slice(&number.to_be_bytes());
        let mut length = 0;
        while length < BLOCK {
            match stream.read(&mut block[length..]) {
                Ok(0) => panic!("the connection ended in block {number}"),
                Ok(more) => length += more,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => panic!("block {number}: {error}"),
            }
            gap = gap.max(last.elapsed());
            last = Instant::now();
        }
        assert!(block == wanted, "block {number} is not as it was sent");
        arrived(number);
    }
    gap
}

fn block(seed: u64) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    Content::new(seed).fill(&mut block);
    block
}

/// Both ends of a flow of datagrams; the far one answers to where they come from.
pub(super) struct Datagrams {
    pub near: UdpSocket,
    pub far: UdpSocket,
}

impl Datagrams {
    /// From a client to a server at this address.
    pub fn open(client: &Host, server: &Host, address: IpAddr) -> Datagrams {
        let far = server.run(move || UdpSocket::bind((address, 0))).expect("the address is there");
        let to = far.local_addr().expect("it is bound");
        let near = client.run(move || {
            let any = if to.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
            let near = UdpSocket::bind((any, 0))?;
            near.connect(to)?;
            Ok::<_, std::io::Error>(near)
        });
        let near = near.expect("there is a route");
        for socket in [&near, &far] {
            has_room(socket);
            socket.set_read_timeout(Some(PATIENCE)).expect("it is no zero");
        }
        Datagrams { near, far }
    }

    /// Sends this many bursts each way, in turn, and compares them. Where the last came from.
    pub fn exchange(&self, bursts: u64) -> SocketAddr {
        let mut from = None;
        for burst in 0..bursts {
            let numbers = || burst * BURST..(burst + 1) * BURST;
            numbers().for_each(|number| {
                self.near.send(&datagram(1, number)).expect("the server is reachable");
            });
            let mut arrived = BTreeSet::new();
            for _ in numbers() {
                let (number, sender) = take(&self.far, 1);
                arrived.insert(number);
                from = Some(sender);
            }
            assert!(arrived.into_iter().eq(numbers()));
            let back = from.expect("some arrived");
            numbers().for_each(|number| {
                self.far.send_to(&datagram(2, number), back).expect("the router is reachable");
            });
            let arrived: BTreeSet<_> = numbers().map(|_| take(&self.near, 2).0).collect();
            assert!(arrived.into_iter().eq(numbers()));
        }
        from.expect("a burst at least")
    }
}

/// A socket that holds all datagrams of some seconds, in which its thread has no core.
fn has_room(socket: &UdpSocket) {
    setsockopt(socket, sockopt::RcvBufForce, &ROOM).expect("root may");
}

fn datagram(seed: u64, number: u64) -> Vec<u8> {
    let mut bytes = vec![0; DATAGRAM];
    Content::new(seed ^ number << 8).fill(&mut bytes);
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn take(socket: &UdpSocket, seed: u64) -> (u64, SocketAddr) {
    let mut bytes = [0; DATAGRAM + 1];
    let (length, from) = socket.recv_from(&mut bytes).expect("what was sent arrives");
    let number = u64::from_be_bytes(*bytes.first_chunk().expect("there are eight"));
    assert!(bytes[..length] == datagram(seed, number), "datagram {number} is as it was sent");
    (number, from)
}

/// What does not happen for so long does not happen.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// Bytes of datagrams that wait for their reader, as the kernel counts them: less than 1 KiB for a small one.
const ROOM: usize = 8 << 20;
/// Of TCP, in bytes.
pub(super) const BLOCK: usize = 64 << 10;
/// What a socket's buffer takes.
const BURST: u64 = 16;
/// As QUIC's are.
const DATAGRAM: usize = 1200;
