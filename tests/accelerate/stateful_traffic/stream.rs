//! A flow of numbered datagrams and their echoes, without an end: where each came from.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use manylane_lab::until;

use super::talk::Datagrams;

/// A running flow, which ends when dropped.
pub(super) struct Stream {
    log: Arc<Mutex<Log>>,
    threads: Vec<JoinHandle<()>>,
    began: SocketAddr,
}

#[derive(Default)]
struct Log {
    sent: u64,
    /// Numbers, in order of arrival at the far end, with where they came from.
    arrived: Vec<(u64, SocketAddr)>,
    /// One more than the highest number that was echoed.
    echoed: u64,
    is_over: bool,
}

impl Stream {
    /// Sends a thousand datagrams a second, as far as the machine lets it, and echoes what arrives.
    pub fn start(Datagrams { near, far }: Datagrams) -> Stream {
        let log = Arc::new(Mutex::new(Log::default()));
        for socket in [&near, &far] {
            socket.set_read_timeout(Some(LOOK_AROUND)).expect("it is no zero");
        }
        let began = near.local_addr().expect("it is bound");
        let near = Arc::new(near);
        let (sending, logs) = (near.clone(), [log.clone(), log.clone(), log.clone()]);
        let [sends, arrives, returns] = logs;
        let threads = vec![
            thread::spawn(move || send(&sending, &sends)),
            thread::spawn(move || echo(&far, &arrives)),
            thread::spawn(move || returned(&near, &returns)),
        ];
        Stream { log, threads, began }
    }

    /// The end that began.
    pub fn began(&self) -> SocketAddr {
        self.began
    }

    /// The number of the datagram that is sent next.
    pub fn mark(&self) -> u64 {
        self.lock().sent
    }

    /// One more than the highest number that was echoed.
    pub fn echoed(&self) -> u64 {
        self.lock().echoed
    }

    /// Waits until one is echoed that is sent from now on. Its number, or that of a later one.
    pub fn returns(&self, what: &str) -> u64 {
        let mark = self.mark();
        until(&format!("datagram {mark} is echoed: {what}"), || {
            let log = self.lock();
            if log.echoed > mark { Ok(log.echoed - 1) } else { Err(log.echoed) }
        })
    }

    /// Waits until all of these have arrived, in any order: two of them may have been forwarded by different programs.
    pub fn all_arrive(&self, numbers: std::ops::Range<u64>, what: &str) {
        until(&format!("all of {numbers:?} arrive: {what}"), || {
            match self.missing(numbers.clone()) {
                0 => Ok(()),
                missing => Err(format!("{missing} are missing")),
            }
        });
    }

    /// Waits until this many more are echoed.
    pub fn goes_on(&self, count: u64, what: &str) {
        let wanted = self.mark() + count;
        until(&format!("datagram {wanted} is echoed: {what}"), || {
            let echoed = self.lock().echoed;
            if echoed > wanted { Ok(()) } else { Err(echoed) }
        });
    }

    /// Where datagrams from this number on came from.
    pub fn sources(&self, from: u64) -> BTreeSet<IpAddr> {
        let log = self.lock();
        let late = log.arrived.iter().filter(|(number, _)| *number >= from);
        late.map(|(_, source)| source.ip()).collect()
    }

    /// As above, in order of arrival, each address as often as it changed.
    pub fn source_changes(&self) -> Vec<IpAddr> {
        let mut changes: Vec<_> = self.lock().arrived.iter().map(|(_, from)| from.ip()).collect();
        changes.dedup();
        changes
    }

    /// How many from this number on came from this address.
    pub fn count_from(&self, from: u64, address: IpAddr) -> usize {
        let log = self.lock();
        log.arrived
            .iter()
            .filter(|(number, source)| *number >= from && source.ip() == address)
            .count()
    }

    /// How many of these numbers have not arrived.
    pub fn missing(&self, numbers: std::ops::Range<u64>) -> u64 {
        let log = self.lock();
        let arrived: BTreeSet<_> = log.arrived.iter().map(|(number, _)| *number).collect();
        numbers.filter(|number| !arrived.contains(number)).count() as u64
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().expect("no thread panics with the lock")
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.lock().is_over = true;
        for thread in self.threads.drain(..) {
            let _ = thread.join(); // The thread counts, and cannot panic.
        }
    }
}

fn send(socket: &UdpSocket, log: &Mutex<Log>) {
    loop {
        let number = {
            let mut log = log.lock().expect("no thread panics with the lock");
            if log.is_over {
                return;
            }
            log.sent += 1;
            log.sent - 1
        };
        // What is refused does not arrive.
        let _ = socket.send(&number.to_be_bytes());
        thread::sleep(PAUSE);
    }
}

fn echo(socket: &UdpSocket, log: &Mutex<Log>) {
    let mut bytes = [0; 8];
    loop {
        let received = socket.recv_from(&mut bytes);
        let mut log = log.lock().expect("no thread panics with the lock");
        if log.is_over {
            return;
        }
        let Ok((_, from)) = received else { continue };
        log.arrived.push((u64::from_be_bytes(bytes), from));
        drop(log);
        let _ = socket.send_to(&bytes, from);
    }
}

fn returned(socket: &UdpSocket, log: &Mutex<Log>) {
    let mut bytes = [0; 8];
    loop {
        let received = socket.recv(&mut bytes);
        let mut log = log.lock().expect("no thread panics with the lock");
        if log.is_over {
            return;
        }
        if received.is_ok() {
            log.echoed = log.echoed.max(u64::from_be_bytes(bytes) + 1);
        }
    }
}

/// Between two datagrams.
const PAUSE: Duration = Duration::from_millis(1);
/// How often a receiver sees whether it is over while nothing arrives.
const LOOK_AROUND: Duration = Duration::from_millis(50);
