//! [`EndlessTcp`]: a TCP connection from one host to another that runs until it is stopped, and how much has arrived.
//!
//! For tests and demos that change the network while a connection runs. The sender repeats one block, and the receiver
//! compares every byte: that costs little beside the kernel's part, so the rate is the network's.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use manylane_io::affinity;
use manylane_io::namespace::Host;

use super::tcp::connection;
use super::{Content, TrafficError};

/// A connection that runs until it is dropped.
pub struct EndlessTcp {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Rung when `rests` or `is_over` changes.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    report: EndlessReport,
    rests: bool,
    is_over: bool,
}

/// What has become of it until now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndlessReport {
    /// Bytes given to the sender's kernel.
    pub sent: u64,
    /// Bytes taken from the receiver's.
    pub received: u64,
    /// The first byte that is not the one sent, if any.
    pub first_wrong_byte: Option<u64>,
    /// What ended it before its end, if anything.
    pub broken: Option<String>,
}

impl EndlessTcp {
    /// Connects from `client` to `destination`, an address of `server`, and sends from then on. Its threads run on
    /// `core`.
    pub fn start(
        client: &Host,
        server: &Host,
        destination: IpAddr,
        core: usize,
    ) -> Result<EndlessTcp, TrafficError> {
        let (near, far) = connection(client, server, destination)?;
        let shared = Arc::new(Shared::default());
        let (sending, receiving) = (shared.clone(), shared.clone());
        let pinned = move |work: &dyn Fn()| {
            let _ = affinity::pin(core); // Anywhere is as good, where that core is not ours.
            work();
        };
        let threads = vec![
            thread::spawn(move || pinned(&|| sending.ended("sending", send(&near, &sending)))),
            thread::spawn(move || {
                pinned(&|| receiving.ended("receiving", receive(&far, &receiving)))
            }),
        ];
        Ok(EndlessTcp { shared, threads })
    }

    /// What has become of it until now.
    pub fn report(&self) -> EndlessReport {
        self.shared.lock().report.clone()
    }

    /// Pauses the sender, or resumes it. Bytes that were sent still arrive.
    pub fn rest(&self, rests: bool) {
        self.shared.lock().rests = rests;
        self.shared.changed.notify_all();
    }

    /// Sends no more, and waits until everything has arrived.
    pub fn stop(mut self) -> EndlessReport {
        self.end();
        self.report()
    }

    fn end(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join(); // The thread counts, and cannot panic.
        }
    }
}

impl Drop for EndlessTcp {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics with the lock")
    }

    /// Whether to send more; waits while the connection rests.
    fn should_continue(&self) -> bool {
        let state = self.lock();
        let waited = self.changed.wait_while(state, |state| state.rests && !state.is_over);
        !waited.expect("no thread panics with the lock").is_over
    }

    fn ended(&self, doing: &str, outcome: io::Result<()>) {
        if let Err(error) = outcome {
            let mut state = self.lock();
            state.report.broken.get_or_insert_with(|| format!("{doing}: {error}"));
        }
    }
}

fn send(mut stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    let block = block();
    while shared.should_continue() {
        stream.write_all(&block)?;
        shared.lock().report.sent += BLOCK_LEN as u64;
    }
    stream.shutdown(Shutdown::Write)
}

fn receive(mut stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    let (block, mut bytes) = (block(), vec![0; BLOCK_LEN]);
    let mut at = 0;
    loop {
        let length = match stream.read(&mut bytes[at..]) {
            Ok(0) => return Ok(()),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // A paused sender sends nothing.
            Err(error) if crate::traffic::is_timeout(&error) && shared.lock().rests => continue,
            Err(error) => return Err(error),
        };
        let end = at + length;
        let wrong = difference(&bytes[at..end], &block[at..end]);
        let mut state = shared.lock();
        if let Some(wrong) = wrong {
            let place = state.report.received + wrong as u64;
            state.report.first_wrong_byte.get_or_insert(place);
        }
        state.report.received += length as u64;
        drop(state);
        at = end % BLOCK_LEN;
    }
}

/// Where two runs of bytes, of one length, differ first. Comparing all of them first is much faster.
fn difference(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    if bytes == wanted {
        return None;
    }
    bytes.iter().zip(wanted).position(|(byte, wanted)| byte != wanted)
}

fn block() -> Vec<u8> {
    let mut block = vec![0; BLOCK_LEN];
    Content::new(SEED).fill(&mut block);
    block
}

/// Enough for a call to cost little, little enough for a core's cache.
const BLOCK_LEN: usize = 128 << 10;
const SEED: u64 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_changed_byte_is_found_in_its_place() {
        let mut bytes = block();
        assert_eq!(difference(&bytes, &block()), None);
        bytes[70_000] ^= 1;
        assert_eq!(difference(&bytes[7..], &block()[7..]), Some(69_993));
    }
}
