//! A forwarder, put together and taken apart.

mod error;
mod run;
mod start;

use std::io::{self, Write};
use std::sync::mpsc::{self, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use manylane_frame::Depot;
use manylane_frame::vocabulary::PortId;
use manylane_io::eventfd::EventFd;
use manylane_io::port::pcap::{WriteError, Writer, Written};
use manylane_io::port::{Receiver, Transmitter};
use manylane_net::generate::FarEndReader;
use manylane_sync::doorbell::Doorbell;
use manylane_sync::words::WordsMut;

use super::open::{self, Bell};
use super::sflow::Exporter;
use super::status::Status;
use super::steering::{self, Ports, Steering};
use crate::config::Config;
use crate::socket::Sockets;
use crate::socket::remote::{Listener, Server};
use manylane_api::{Ledger, Source};
use manylane_worker::Worker;
use manylane_worker::stats::Stats;
use manylane_worker::worker::phase::{END, STOP};

pub use error::StartError;
pub use run::run;

/// A running forwarder.
pub struct Daemon {
    control: Option<JoinHandle<()>>,
    control_bell: Bell,
    control_phase: WordsMut<u32>,
    ports: Ports,
    far_ends: Vec<(String, FarEndReader)>,
    /// Each writer ends when the last lane into its file does.
    writers: Vec<JoinHandle<Result<Written, WriteError>>>,
    depot: Depot,
    status: Arc<Status>,
    steering: steering::Shared,
    sockets: Sockets,
    /// Names of ports and sub-interfaces, by id.
    names: Vec<String>,
    remote: Option<Remote>,
    /// With a collector of samples.
    exporter: Option<Exporter>,
    threads: Threads,
}

/// The thread that serves packet sockets of other processes.
struct Remote {
    thread: JoinHandle<()>,
    bell: Bell,
    phase: WordsMut<u32>,
    /// The thread says when it serves no client any more, and when it has ended.
    phase_reached: Mutex<mpsc::Receiver<()>>,
}

impl Remote {
    /// Has the thread reach a phase, and waits for it: not longer than a daemon may take to end. A thread that hangs is
    /// left behind.
    fn reach(mut self, to: u32) -> Option<Remote> {
        self.phase.publish(0, to);
        self.bell.ring();
        let reached = self.phase_reached.get_mut().expect("no other thread has it");
        match reached.recv_timeout(PATIENCE) {
            Ok(()) => Some(self),
            Err(RecvTimeoutError::Timeout) => {
                say("the thread that serves captures hangs; it is left behind");
                None
            }
            // The thread has panicked, and so do we.
            Err(RecvTimeoutError::Disconnected) => {
                let ended = self.thread.join();
                ended.map_or_else(|panic| std::panic::resume_unwind(panic), |()| None)
            }
        }
    }
}

/// How long the daemon's end waits for the thread that serves captures.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whether the control thread, the one for sockets and all workers still run.
#[derive(Clone)]
struct Threads {
    alive: Weak<()>,
    begun: usize,
}

impl Threads {
    /// Ready when one has ended without an order: it has panicked.
    async fn one_ended(self) {
        while self.alive.strong_count() == self.begun {
            tokio::time::sleep(LOOK_AFTER_THREADS).await;
        }
    }
}

/// How often: the only sign of a panic in another thread is that the thread is gone.
const LOOK_AFTER_THREADS: Duration = Duration::from_secs(1);

impl Daemon {
    /// Opens the ports of `config` in the calling thread's network namespace and begins to forward.
    pub fn start(config: Config) -> Result<Daemon, StartError> {
        Daemon::start_then_drop_privileges(config, None)
    }

    /// What the API shows.
    pub fn source(&self) -> Arc<dyn Source> {
        self.status.clone()
    }

    /// What the hosts at the far ends of memory ports send and receive, by port; to read now or after
    /// the daemon has stopped.
    pub fn far_ends(&self) -> Vec<(String, FarEndReader)> {
        self.far_ends.clone()
    }

    /// Its packet sockets.
    pub fn sockets(&self) -> Sockets {
        self.sockets.clone()
    }

    /// Lets other processes have packet sockets, until it stops.
    pub fn listen(&mut self, listener: Listener) -> Result<(), StartError> {
        let (bell, phase) = (bell()?, WordsMut::zeroed(1));
        let names = self.names.clone().into();
        let server = Server::new(listener, self.sockets(), names, bell.clone(), phase.reader());
        let server =
            server.map_err(|source| StartError::System { what: "an epoll instance", source })?;
        let life = self.threads.alive.upgrade();
        self.threads.begun += usize::from(life.is_some());
        let (tell, phase_reached) = channel();
        let thread = spawn("sockets", move || {
            let _life = life;
            server.run(&tell);
            let _ = tell.send(()); // A daemon that has not waited for it.
        })?;
        self.remote =
            Some(Remote { thread, bell, phase, phase_reached: Mutex::new(phase_reached) });
        Ok(())
    }

    /// Stops forwarding, closes the ports, and says where everything went. Called in the network
    /// namespace that the daemon was started in.
    pub fn stop(mut self) -> Ledger {
        self.halt().0
    }

    /// Also what is wrong with a capture: it was said already.
    fn halt(&mut self) -> (Ledger, Option<WriteError>) {
        // First: while it serves others, or hangs, workers still forward.
        let remote = self.remote.take().and_then(|remote| remote.reach(END));
        let threads = lock(&self.steering).take_worker_threads();
        let stopped = threads.halt();
        // Behind the workers: the exporter sends the last notes.
        drop(self.exporter.take());
        self.control_phase.publish(0, STOP);
        self.control_bell.ring();
        if let Some(control) = self.control.take()
            && let Err(panic) = control.join()
        {
            std::panic::resume_unwind(panic);
        }
        // Behind the workers: readers are woken for the last that they published.
        if let Some(Remote { thread, .. }) = remote.and_then(|remote| remote.reach(STOP))
            && let Err(panic) = thread.join()
        {
            std::panic::resume_unwind(panic);
        }
        // All threads have ended before the first worker is taken apart: what others have handed to it, packets
        // and queues, is there.
        self.close_ports(stopped.into_iter().map(Worker::into_parts).collect());
        // All lanes have ended with the ports, so that each writer comes to its end, last of all.
        let mut failed = None;
        for writer in self.writers.drain(..) {
            match writer.join() {
                Ok(written) => failed = failed.or(written.err()),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        (self.status.ledger(), failed)
    }

    fn close_ports(
        &mut self,
        stopped: Vec<(Vec<Receiver>, Vec<Transmitter>, manylane_frame::Pool, Stats)>,
    ) {
        let mut ports =
            self.ports.lock().expect("the control thread has ended, and not in a panic");
        let mut receivers: Vec<Vec<Receiver>> = ports.iter().map(|_| Vec::new()).collect();
        let mut transmitters: Vec<Vec<Transmitter>> = ports.iter().map(|_| Vec::new()).collect();
        let mut steering = lock(&self.steering);
        let ((queues, given_up), mut held) = (steering.take_back(), steering.kept());
        drop(steering);
        queues.into_iter().for_each(|queue| receivers[queue.port().index()].push(queue));
        given_up.into_iter().for_each(|(port, one)| transmitters[port.index()].push(one));
        let mut pool = self.depot.pool();
        let mut first_stats = None;
        for (queues, own, own_pool, stats) in stopped {
            queues.into_iter().for_each(|queue| receivers[queue.port().index()].push(queue));
            for (port, transmitter) in own.into_iter().enumerate() {
                transmitters[port].push(transmitter);
            }
            drop(own_pool); // The depot takes its frames.
            first_stats.get_or_insert(stats);
        }
        let Some(mut stats) = first_stats else { return };
        // All before the first is closed: a frame that leaves late may enter another port's wire.
        let mut halves = Vec::new();
        for (number, (receivers, transmitters)) in
            (0..).zip(receivers.into_iter().zip(transmitters))
        {
            let id = PortId(number);
            halves.push(open::unwrap(receivers, transmitters, &mut pool, &mut stats, id));
        }
        for (number, (port, (receivers, transmitters))) in (0..).zip(ports.drain(..).zip(halves)) {
            let Some(port) = port else { continue }; // The operator removed it.
            let id = PortId(number);
            held += open::close(port, receivers, transmitters, &mut pool, &mut stats, id);
        }
        drop(pool);
        self.status.closed(held);
        // Only debug builds know them.
        for missing in self.depot.missing() {
            say(&missing.to_string());
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // The control thread may run alone, if a worker's thread was refused.
        let runs = self.control.is_some() || !self.writers.is_empty();
        if runs && !thread::panicking() {
            self.halt();
        }
    }
}

fn lock(steering: &Mutex<Steering>) -> MutexGuard<'_, Steering> {
    steering.lock().expect("a thread that steers does not panic")
}

/// A writer's thread. When the file cannot be written, forwarding continues, and its packets are counted as lost.
fn write(writer: Writer) -> Result<Written, WriteError> {
    writer.run(|error| say(&format!("{error}; forwarding continues without the capture")))
}

/// Prints a line on standard error, in one piece. `eprintln!` would panic once its reader is gone.
pub(super) fn say(what: &str) {
    let _ = io::stderr().write_all(format!("manylane: {what}\n").as_bytes());
}

fn bell() -> Result<Bell, StartError> {
    let open = EventFd::open();
    let fd = open.map_err(|source| StartError::System { what: "a doorbell", source })?;
    Ok(Arc::new(Doorbell::new(fd)))
}

fn spawn<R: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> R + Send + 'static,
) -> Result<JoinHandle<R>, StartError> {
    let spawned = thread::Builder::new().name(name.into()).spawn(body);
    spawned.map_err(|source| StartError::System { what: "a thread", source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Environment;
    use manylane_api::{PortState, WorkerState};

    /// A port is removed, and its closing is held up: by the lock on the list of ports in this test, by the
    /// kernel elsewhere. Then a worker is removed, which only the control thread can end.
    #[test]
    fn the_control_thread_waits_for_no_port_that_is_being_closed() {
        let environment = Environment::of_this_thread();
        let core = environment.cores[0];
        let port = |name: &str, address: &str| {
            format!(
                "[[port]]\nname = \"{name}\"\ndriver = \"memory\"\nworkers = [0]\n\
                 addresses = [\"{address}\"]\n"
            )
        };
        let generate = "[port.generate]\nsource = \"10.1.0.1\"\ndestination = \"10.2.0.1/32\"\n\
                        flows = 8\n";
        let text = format!(
            "[workers]\ncores = [{core}, {core}]\n{}{generate}{}",
            port("west", "10.1.0.254/24"),
            port("east", "10.2.0.254/24")
        );
        let config = Config::parse(&text, "test.toml", &environment);
        let daemon = Daemon::start(config.unwrap_or_else(|error| panic!("{error}")));
        let daemon = daemon.unwrap_or_else(|error| panic!("{error}"));
        let source = daemon.source();
        let state = || source.ports()[1].state;
        while source.ports()[1].transmitted == 0 {
            thread::yield_now();
        }
        let held_up = daemon.ports.lock().expect("nobody panics");
        source.remove_port("east").expect("another is there");
        while lock(&daemon.steering).is_parting() {
            thread::yield_now(); // Until it has been given away to be closed.
        }
        source.set("workers", "1").expect("the other has the queue");
        while source.workers()[1].state != WorkerState::Stopped {
            thread::yield_now();
        }
        assert_eq!(state(), PortState::Draining);
        drop(held_up);
        while state() != PortState::Removed {
            thread::yield_now();
        }
        let ledger = daemon.stop();
        assert_eq!((ledger.missing, ledger.frames.missing), (0, 0), "{ledger:#?}");
    }

    /// What an attacker has found out of one daemon's key says nothing of another's, nor of the next start's.
    #[test]
    fn each_key_that_is_drawn_divides_flows_otherwise() {
        let hashes = [(); 2].map(|()| {
            let key = start::flow_key();
            let mut packet = [0; 24];
            packet[..10].copy_from_slice(&[0x45, 0, 0, 24, 0, 0, 0, 0, 64, 17]);
            (0..=u8::MAX)
                .map(|host| {
                    packet[19] = host;
                    key.flow_hash(&packet)
                })
                .collect::<Vec<_>>()
        });
        let same = hashes[0].iter().zip(&hashes[1]).filter(|(one, other)| one == other).count();
        assert!(same < 8, "{same} of 256 flows have the same hash by both keys");
    }

    #[test]
    fn a_thread_that_panics_is_missed() {
        let alive = Arc::new(());
        let threads = Threads { alive: Arc::downgrade(&alive), begun: 1 };
        let panics = thread::spawn(move || {
            let _life = alive;
            panic!("on purpose");
        });
        panics.join().expect_err("it panics");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("time is to be had").block_on(threads.one_ended());
    }
}
