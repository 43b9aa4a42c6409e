//! [`Talk`]: a connection in which one end speaks and the other answers, one message at a time; and [`Forbidden`]:
//! connections that the rules refuse.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use manylane_lab::{Host, Steady, SteadyOptions};

/// A transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Tcp,
    Udp,
}

/// A connection whose first packets the rules have let pass.
#[derive(Debug)]
pub struct Talk {
    ends: Ends,
    /// The address and port that the second end answers to.
    pub source: SocketAddr,
    said: u64,
}

#[derive(Debug)]
enum Ends {
    Tcp([TcpStream; 2]),
    Udp([UdpSocket; 2], SocketAddr),
}

/// Where a talk goes: the second end listens at an address of its own, the first one speaks to what may be another one.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub listens: SocketAddr,
    /// With port 0: that of `listens`.
    pub is_called: SocketAddr,
}

impl Target {
    /// At an address, and at no certain port.
    pub fn at(address: IpAddr) -> Target {
        let any = (address, 0).into();
        Target { listens: any, is_called: any }
    }

    /// As it is called when it listens there.
    fn called(self, listens: SocketAddr) -> SocketAddr {
        match self.is_called {
            called if called.port() == 0 => (called.ip(), listens.port()).into(),
            called => called,
        }
    }
}

impl Talk {
    /// Opens a connection.
    pub fn open(transport: Transport, [near, far]: [&Host; 2], target: Target) -> io::Result<Talk> {
        match transport {
            Transport::Tcp => Talk::open_tcp(near, far, target),
            Transport::Udp => Talk::open_udp(near, far, target),
        }
    }

    fn open_tcp(near: &Host, far: &Host, target: Target) -> io::Result<Talk> {
        let listener = far.run(move || TcpListener::bind(target.listens))?;
        let called = target.called(listener.local_addr()?);
        let one = near.run(move || TcpStream::connect_timeout(&called, PATIENCE))?;
        let (other, source) = listener.accept()?;
        for end in [&one, &other] {
            end.set_nodelay(true)?;
            end.set_read_timeout(Some(PATIENCE))?;
        }
        let ends = Ends::Tcp([one, other]);
        Ok(Talk { ends, source, said: 0 })
    }

    fn open_udp(near: &Host, far: &Host, target: Target) -> io::Result<Talk> {
        let other = far.run(move || UdpSocket::bind(target.listens))?;
        let called = target.called(other.local_addr()?);
        let any: IpAddr =
            if called.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
        let one = near.run(move || UdpSocket::bind((any, 0)))?;
        for end in [&one, &other] {
            end.set_read_timeout(Some(PATIENCE))?;
        }
        one.send_to(&0u64.to_be_bytes(), called)?;
        let (_, source) = other.recv_from(&mut [0; 8])?;
        let ends = Ends::Udp([one, other], called);
        Ok(Talk { ends, source, said: 0 })
    }

    /// Says something, and has it answered: at least one packet each way. Each message has the source of the first one, and
    /// each answer the address that was called.
    pub fn exchange(&mut self) -> io::Result<()> {
        self.said += 1;
        let words = self.said.to_be_bytes();
        let (mut heard, mut answer) = ([0; 8], [0; 8]);
        match &mut self.ends {
            Ends::Tcp([one, other]) => {
                one.write_all(&words)?;
                other.read_exact(&mut heard)?;
                other.write_all(&heard)?;
                one.read_exact(&mut answer)?;
            }
            Ends::Udp([one, other], called) => {
                one.send_to(&words, *called)?;
                let (_, source) = other.recv_from(&mut heard)?;
                assert_eq!(source, self.source, "message {} has another source", self.said);
                other.send_to(&heard, source)?;
                let (_, from) = one.recv_from(&mut answer)?;
                assert_eq!(from, *called, "answer {} has another source", self.said);
            }
        }
        assert_eq!((heard, answer), (words, words));
        Ok(())
    }

    /// Exchanges a number of messages.
    ///
    /// # Panics
    ///
    /// When something is lost.
    pub fn exchanges(&mut self, count: u64) {
        for _ in 0..count {
            let said = self.exchange();
            said.unwrap_or_else(|error| panic!("message {} of {self:?}: {error}", self.said));
        }
    }
}

/// Connections that the rules refuse: datagrams all the time, and some attempts to connect.
pub struct Forbidden {
    datagrams: Steady,
    listener: TcpListener,
    caller: SocketAddr,
}

impl Forbidden {
    /// Begins to send.
    pub fn start([near, far]: [&Host; 2], to: IpAddr) -> Forbidden {
        let options = SteadyOptions { per_second: 200, ..SteadyOptions::to(to) };
        let datagrams = Steady::start(near, far, options).expect("sockets are to be had");
        let listener = far.run(move || TcpListener::bind((to, 0))).expect("it is its address");
        listener.set_nonblocking(true).expect("it is open");
        let caller = listener.local_addr().expect("it is bound");
        Forbidden { datagrams, listener, caller }
    }

    /// Nothing has got through: no connection, and no datagram of all so far. Some are newer than the last look.
    pub fn assert_none(&self, near: &Host, when: &str) {
        let called = self.caller;
        let connected = near.run(move || TcpStream::connect_timeout(&called, ATTEMPT));
        let end = self.datagrams.after(20);
        assert!(connected.is_err(), "{when}: {connected:?}");
        assert_eq!(self.datagrams.arrived(0..end), 0, "{when}");
        let accepted = self.listener.accept().map_err(|error| error.kind());
        assert_eq!(accepted.err(), Some(ErrorKind::WouldBlock), "{when}");
    }
}

/// For hanging connections.
const PATIENCE: Duration = Duration::from_secs(60);
/// Some attempts of a host without an answer: the first SYN, at least.
const ATTEMPT: Duration = Duration::from_millis(200);
