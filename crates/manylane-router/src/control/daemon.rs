//! A forwarder, put together and taken apart.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use manylane_frame::vocabulary::{PortId, WorkerId};
use manylane_frame::{Depot, Region, RegionConfig, RegionError};
use manylane_io::eventfd::EventFd;
use manylane_io::port::af_xdp::Umem;
use manylane_io::port::pcap::{WriteError, Writer, Written};
use manylane_io::port::{Receiver, Transmitter};
use manylane_net::forward::Forwarder;
use manylane_net::generate::FarEndReader;
use manylane_net::icmp::RateLimit;
use manylane_net::neighbour::{HoldLimits, HoldQueues, Key};
use manylane_sync::doorbell::Doorbell;
use manylane_sync::rcu::Domain;
use manylane_sync::ring::ring;
use manylane_sync::words::WordsMut;

use super::choose::choose;
use super::closing::Closing;
use super::frames::Budget;
use super::open::{self, Bell, Device, Halves, OpenPort, PortError};
use super::routing::{Effects, RoutedPort, Routing, RoutingError, RoutingLimits};
use super::status::{Counted, Edited, FrameStatus, Status};
use super::steering::{self, Closer, Plan, Ports, Removal, Steering};
use super::thread::{Control, Link};
use super::worker_threads::WorkerThreads;
use crate::config::{Config, StaticNeighbour, Version, interfaces};
use crate::socket::remote::{Listener, Server};
use crate::socket::{Place, Sockets};
use crate::trace::Traces;
use manylane_api::{self as api, Doors, Ledger, ListenError, Socket, Source};
use manylane_io::privilege::{PrivilegeError, Privileges};
use manylane_io::service::{Look, Service};
use manylane_worker::stats::Stats;
use manylane_worker::worker::phase::STOP;
use manylane_worker::worker::queue_handover::queue_handover;
use manylane_worker::{Clock, Egress, Reclaimer, Work, Worker};

/// Why a daemon did not start, or did not end well.
#[non_exhaustive]
#[derive(Debug)]
pub enum StartError {
    /// There was no memory for the frames.
    Region(RegionError),
    /// A port did not open.
    Port(PortError),
    /// The tables were refused.
    Routing(RoutingError),
    /// A thread or a descriptor was refused.
    System {
        /// What was asked for.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The API's listener could not be made.
    Listen(ListenError),
    /// The API's socket could not be made.
    Api(api::BindError),
    /// A capture is not whole.
    Capture(WriteError),
    /// Privileges could not be given up.
    Privilege(PrivilegeError),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Region(source) => write!(
                f,
                "{source}: choose fewer workers, queues or ports, shorter rings, or a smaller `count` in \
                 [frames]"
            ),
            StartError::Port(source) => write!(f, "{source}"),
            StartError::Routing(source) => write!(f, "{source}"),
            StartError::System { what, source } => {
                write!(
                    f,
                    "cannot make {what}: {source}; end programs, or raise `ulimit -n` and `ulimit -u`"
                )
            }
            StartError::Api(source) => write!(f, "{source}"),
            StartError::Listen(source) => write!(f, "{source}"),
            StartError::Capture(source) => write!(f, "{source}"),
            StartError::Privilege(source) => write!(f, "{source}"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StartError::Region(source) => Some(source),
            StartError::Port(source) => Some(source),
            StartError::Routing(source) => Some(source),
            StartError::System { source, .. } => Some(source),
            StartError::Api(source) => Some(source),
            StartError::Listen(source) => Some(source),
            StartError::Capture(source) => Some(source),
            StartError::Privilege(source) => Some(source),
        }
    }
}

impl StartError {
    /// Whether this machine, or this user, cannot have AF_XDP at all.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, StartError::Port(port) if port.is_unavailable())
    }
}

/// A running forwarder.
pub struct Daemon {
    control: Option<JoinHandle<()>>,
    control_bell: Bell,
    control_phase: WordsMut<u32>,
    ports: Ports,
    far_ends: Vec<(String, FarEndReader)>,
    /// They end when the last lane into their file does.
    writers: Vec<JoinHandle<Result<Written, WriteError>>>,
    depot: Depot,
    status: Arc<Status>,
    steering: steering::Shared,
    sockets: Sockets,
    /// Names of ports and sub-interfaces, by id.
    names: Vec<String>,
    remote: Option<Remote>,
    threads: Threads,
}

/// The thread that serves packet sockets of other processes.
struct Remote {
    thread: JoinHandle<()>,
    bell: Bell,
    phase: WordsMut<u32>,
}

/// Whether the control thread, the one for sockets and all workers still run.
#[derive(Clone)]
struct Threads {
    alive: Weak<()>,
    begun: usize,
}

impl Threads {
    /// Ready when one has ended before it was told to: it has panicked.
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

    /// The same; privileges are given up when all is open that needs them, before there is a second thread.
    fn start_then_drop_privileges(
        config: Config,
        privileges: Option<&Privileges>,
    ) -> Result<Daemon, StartError> {
        let clock = Clock::start();
        let workers = config.workers.count();
        let config = choose(&config).map_err(StartError::Port)?;
        let owners = open::owners(&config).map_err(StartError::Port)?;
        let bells = (0..workers).map(|_| bell()).collect::<Result<Vec<Bell>, _>>()?;
        let control_bell = bell()?;

        let budget = Budget::new(&config, &owners);
        let config = budget.config.clone();
        let region = RegionConfig { frames: budget.frames, frame_size: config.frames.size };
        let region = Region::new(region).map_err(StartError::Region)?;
        let depot = Depot::new(region.clone(), workers + 1).expect("the region is new");
        let plan = Plan::new(&config, &owners);
        let (handovers, handover_ends): (Vec<_>, Vec<_>) =
            (0..workers).map(|_| queue_handover(&control_bell)).unzip();
        let (mut steering, handoffs) = Steering::new(&config, plan, &owners, &bells, handover_ends);
        let limits = steering.limits();
        let (mut handoffs, mut handovers) = (handoffs.into_iter(), handovers.into_iter());
        let mut umem = Umem::new(region.clone());
        let opened = open::open(&config, owners, &mut umem, &bells, clock);
        let opened = opened.map_err(StartError::Port)?;
        let (ports, mut halves): (Vec<OpenPort>, Vec<Halves>) = opened.into_iter().unzip();
        for (port, halves) in (0..).map(PortId).zip(&halves) {
            steering.set_transmit_queues(
                port,
                halves.transmitters.iter().map(Transmitter::queue).collect(),
            );
        }
        // What arrives before a worker's first turn waits in the device.
        let mut pool = depot.pool();
        let receivers = halves.iter_mut().flat_map(|halves| &mut halves.receivers);
        receivers.for_each(|(_, receiver)| receiver.prime(&mut pool));
        drop(pool);
        let writers: Vec<Writer> =
            halves.iter_mut().flat_map(|halves| halves.writers.drain(..)).collect();

        let domain = Domain::new(workers);
        let mut effects = Effects::default();
        let routed = open::routed(&ports).map_err(StartError::Port)?;
        let interfaces_len = routed.len();
        let routing = routing(&config, routed, &domain, clock, &mut effects)?;
        let mut share = Share::among(workers, halves, &bells, &steering);
        let places = Place::all(&routing.tables().ports);
        let (sockets, injected) =
            Sockets::new(domain.clone(), workers, &places, config.sockets, bells[0].clone(), clock);
        let mut injected = Some(injected);
        let (traces, tracers) = Traces::new(&domain, workers, clock);
        let mut tracers = tracers.into_iter();
        // Each thread has a clone, and drops it when it panics; a worker without one keeps its own.
        let alive = Arc::new(());
        let mut threads = WorkerThreads::default();
        let mut links = Vec::new();
        let mut stats = Vec::new();
        let mut hot_list_len = WordsMut::zeroed(1);
        hot_list_len.publish(0, config.frames.hot_list_len);
        for (number, bell) in bells.iter().enumerate() {
            let (reports, reported) = ring(REPORTS);
            let (orders, ordered) = ring(ORDERS);
            let phase = WordsMut::zeroed(1);
            let own = Stats::new(interfaces_len);
            stats.push(own.reader());
            links.push(Link { reported, orders, bell: bell.clone() });
            let errors = RateLimit::new(config.icmp.errors_per_second, config.icmp.errors_burst);
            let mut forwarder = Forwarder::new(region.clone(), routing.tables(), errors.clone());
            if config.icmp.redirects {
                forwarder = forwarder.with_redirects(errors);
            }
            let worker = Worker::new(WorkerParts {
                id: WorkerId(number as u16),
                reader: domain.register().expect("the domain has a place for each worker"),
                pool: depot.pool_of(config.frames.hot_list_len),
                forwarder,
                holds: HoldQueues::new(HoldLimits {
                    queue_frames_max: config.neighbour.hold_per_entry,
                    frames_max: config.neighbour.hold_per_worker,
                    ..HoldLimits::default()
                }),
                dsts: routing.dsts(),
                queues: std::mem::take(&mut share.queues[number]),
                transmitters: std::mem::take(&mut share.transmitters[number]),
                stats: own,
                reports,
                control: control_bell.clone(),
                orders: ordered,
                bell: bell.clone(),
                phase: phase.reader(),
                hot_list_len: hot_list_len.reader(),
                handoff: handoffs.next().map(Box::new),
                queue_handover: handovers.next().expect("there is one for each worker"),
                limits: limits.clone(),
                observers: sockets.observers(WorkerId(number as u16), injected.take()),
                tracer: tracers.next().expect("there is one for each worker"),
                clock,
                idle_spin: Duration::from_micros(config.workers.idle_spin_us.into()),
            });
            threads.add(worker, config.workers.cores[number], phase, bell.clone(), alive.clone());
        }

        let routing = Arc::new(Mutex::new(routing));
        let frames = FrameStatus::new(budget, depot.clone(), hot_list_len, bells.clone());
        let bell = control_bell.clone();
        let steering = Arc::new(Mutex::new(steering));
        let edited = Edited {
            routing: routing.clone(),
            steering: steering.clone(),
            traces,
            control: bell,
            sockets: sockets.clone(),
        };
        let readers = stats.clone();
        let closed = Stats::new(interfaces_len);
        let counted = Counted { workers: stats, closed: closed.reader() };
        let status = Status::new(&config, &ports, counted, edited, frames, clock);
        let far_ends = far_ends(&ports);
        let ports: Ports = Arc::new(Mutex::new(ports.into_iter().map(Some).collect()));
        let control_phase = WordsMut::zeroed(1);
        let names: Vec<String> =
            interfaces(&config.ports).iter().map(|one| one.name.to_owned()).collect();
        let mut closer = Closer { ports: ports.clone(), depot: depot.clone(), stats: closed };
        let closes_for = steering.clone();
        let closing = Closing::new(control_bell.clone(), move |removal: Removal| {
            let port = removal.port;
            let kept = closer.close(removal);
            lock(&closes_for).removed(port, kept);
        });
        let control = Control {
            routing,
            links,
            bell: control_bell.clone(),
            phase: control_phase.reader(),
            clock,
            names: names.clone(),
            steering: steering.clone(),
            closing,
            stats: readers,
            sockets: sockets.clone(),
        };
        let mut daemon = Daemon {
            control: None,
            control_bell,
            control_phase,
            ports,
            far_ends,
            writers: Vec::new(),
            depot,
            status: Arc::new(status),
            steering: steering.clone(),
            sockets,
            names,
            remote: None,
            threads: Threads { alive: Arc::downgrade(&alive), begun: workers + 1 },
        };
        privileges.map_or(Ok(()), Privileges::narrow).map_err(StartError::Privilege)?;
        for writer in writers {
            daemon.writers.push(spawn("capture", move || write(writer))?);
        }
        let life = alive.clone();
        daemon.control = Some(spawn("control", move || {
            let _life = life;
            control.run(effects);
        })?);
        let seated = lock(&steering).start_workers(threads, config.workers.started);
        seated.map_err(|source| StartError::System { what: "a thread", source })?;
        Ok(daemon)
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
        let thread = spawn("sockets", move || {
            let _life = life;
            server.run();
        })?;
        self.remote = Some(Remote { thread, bell, phase });
        Ok(())
    }

    /// Stops forwarding, closes the ports, and says where everything went. Called in the network
    /// namespace that the daemon was started in.
    pub fn stop(mut self) -> Ledger {
        self.halt().0
    }

    /// Also what is wrong with a capture: it was said already.
    fn halt(&mut self) -> (Ledger, Option<WriteError>) {
        let threads = lock(&self.steering).take_worker_threads();
        let stopped = threads.halt();
        self.control_phase.publish(0, STOP);
        self.control_bell.ring();
        if let Some(control) = self.control.take()
            && let Err(panic) = control.join()
        {
            std::panic::resume_unwind(panic);
        }
        // Behind the workers: readers are woken for the last that they published.
        if let Some(Remote { thread, bell, mut phase }) = self.remote.take() {
            phase.publish(0, STOP);
            bell.ring();
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
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
            drop(own_pool); // Its frames go to the depot.
            first_stats.get_or_insert(stats);
        }
        let Some(mut stats) = first_stats else { return };
        // All before the first is closed: what is late on its way out may go to another port's wire.
        let mut halves = Vec::new();
        for (number, (receivers, transmitters)) in
            (0..).zip(receivers.into_iter().zip(transmitters))
        {
            let id = PortId(number);
            halves.push(open::unwrap(receivers, transmitters, &mut pool, &mut stats, id));
        }
        for (number, (port, (receivers, transmitters))) in (0..).zip(ports.drain(..).zip(halves)) {
            let Some(port) = port else { continue }; // It was removed.
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

/// `manylane run`: forwards until SIGINT or SIGTERM.
///
/// `file` is where the configuration came from, and `version` is it, before the command line changed anything.
pub fn run(
    config: Config,
    (file, version): (PathBuf, Version),
    socket: &Path,
    privileges: &Privileges,
) -> Result<(), StartError> {
    let system = |what| move |source| StartError::System { what, source };
    // Before any port is opened: a second daemon must not disturb the first one's.
    let socket = Socket::bind(socket).map_err(StartError::Api)?;
    let door = config.listen.open().map_err(StartError::Listen)?;
    let captures = Listener::bind(socket.path()).map_err(StartError::Api)?;
    let mut daemon = Daemon::start_then_drop_privileges(config, Some(privileges))?;
    daemon.listen(captures)?;
    daemon.status.started_with(file, version);
    let source = daemon.source();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system("the API's runtime"))?;
    let mut signals = signal_hook::iterator::Signals::new(SIGNALS).map_err(system("signals"))?;
    let handle = signals.handle();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let waiter = spawn("signals", move || {
        signals.forever().next();
        // The receiver is gone only if the API has failed: then there is nothing to stop.
        let _ = stop.send(());
    })?;
    if let Some(address) = door.as_ref().and_then(|door| door.address().ok()) {
        say(&format!("the API answers at http://{address}/, too"));
    }
    say("forwarding; SIGINT or SIGTERM ends it");
    let threads = daemon.threads.clone();
    let look = look(daemon.source(), threads.clone());
    let service = Service::ready(look).map_err(system("a thread"))?;
    // A queue whose worker is gone is a black hole. Without us, the kernel has the ports: `stop` goes on
    // with the panic.
    let served = runtime.block_on(api::serve(Doors::new(socket, door), source, async {
        tokio::select! {
            _ = stopped => {}
            () = threads.one_ended() => {}
        }
    }));
    drop(service);
    handle.close();
    let (ledger, failed) = daemon.halt();
    // It has returned, or returns now that the handle is closed.
    let _ = waiter.join();
    say(&format!(
        "received {}, transmitted {}, missing {}",
        ledger.received, ledger.transmitted, ledger.missing
    ));
    served.map_err(system("the API's listener"))?;
    failed.map_or(Ok(()), |error| Err(StartError::Capture(error)))
}

/// For the service manager: there is progress while all threads are there, and the control thread lets go of its tables.
/// An idle worker sleeps, and proves nothing.
fn look(source: Arc<dyn Source>, threads: Threads) -> impl FnMut() -> Look + Send {
    let mut progress = 0;
    move || {
        let (routes, ports) = (source.routes().len(), source.ports());
        let up = ports.iter().filter(|port| port.link_up).count();
        progress += u64::from(threads.alive.strong_count() == threads.begun);
        let status = format!("forwarding; {up} of {} ports up, {routes} routes", ports.len());
        Look { status, progress }
    }
}

fn lock(steering: &Mutex<Steering>) -> MutexGuard<'_, Steering> {
    steering.lock().expect("a thread that steers does not panic")
}

/// A writer's thread. Forwarding goes on without it: packets for a file that cannot be written are counted.
fn write(writer: Writer) -> Result<Written, WriteError> {
    let written = writer.run();
    if let Err(error) = &written {
        say(&format!("{error}; forwarding goes on without the capture"));
    }
    written
}

/// Says something on standard error. `eprintln!` would panic where nobody reads it any more.
pub(super) fn say(what: &str) {
    let _ = writeln!(io::stderr(), "manylane: {what}");
}

const SIGNALS: [i32; 2] = [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM];

/// What each worker gets of the ports.
struct Share {
    queues: Vec<Vec<Receiver>>,
    transmitters: Vec<Vec<(Transmitter, Option<Reclaimer>)>>,
}

impl Share {
    fn among(workers: usize, halves: Vec<Halves>, bells: &[Bell], steering: &Steering) -> Share {
        let bells: Arc<[Bell]> = bells.into();
        let mut share = Share {
            queues: (0..workers).map(|_| Vec::new()).collect(),
            transmitters: (0..workers).map(|_| Vec::new()).collect(),
        };
        for (port, halves) in (0..).map(PortId).zip(halves) {
            for (owner, receiver) in halves.receivers {
                share.queues[usize::from(owner.0)].push(receiver);
            }
            for (number, transmitter) in halves.transmitters.into_iter().enumerate() {
                let queue = transmitter.completion_queue();
                let reclaimer = queue.map(|queue| steering.reclaimer(port, queue, &bells));
                share.transmitters[number].push((transmitter, reclaimer));
            }
        }
        share
    }
}

fn routing(
    config: &Config,
    ports: Vec<RoutedPort>,
    domain: &Domain,
    clock: Clock,
    effects: &mut Effects,
) -> Result<Routing, StartError> {
    let neighbours_max = config.neighbour.entries_max as usize;
    let limits = RoutingLimits {
        neighbours_max,
        long_ipv4_routes: neighbours_max + config.routes.len() + 4096,
        ipv6_routes: neighbours_max + config.routes.len() + 4096,
    };
    let mut routing = Routing::new(domain, ports, limits).map_err(StartError::Routing)?;
    // The standard library's keys are the kernel's random numbers.
    routing.set_flow_seed(RandomState::new().hash_one(0));
    // Files and wires in memory have no other stations.
    let has_link = |port: PortId| config.ports[port.index()].driver.interface().is_some();
    let links = interfaces(&config.ports).into_iter().filter(|interface| has_link(interface.port));
    let links = links.map(|interface| interface.id);
    routing.watch_own(links, config.neighbour.duplicate_detection, clock.now());
    for route in &config.routes {
        routing.add_route(route, clock.now(), effects).map_err(StartError::Routing)?;
    }
    for &StaticNeighbour { port, address, mac } in &config.static_neighbours {
        let key = Key { port, addr: address };
        routing.set_neighbour(key, mac, clock.now(), effects).map_err(StartError::Routing)?;
    }
    Ok(routing)
}

/// The hosts at the far ends of memory ports.
fn far_ends(ports: &[OpenPort]) -> Vec<(String, FarEndReader)> {
    let of_port = |port: &OpenPort| match &port.device {
        Device::Memory(Some(reader)) => Some((port.config.name.clone(), reader.clone())),
        _ => None,
    };
    ports.iter().filter_map(of_port).collect()
}

/// Reports that wait for the control thread, per worker.
const REPORTS: usize = 1024;
/// Orders that wait for a worker.
const ORDERS: usize = 256;

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

    /// One port goes, and is held up in the middle of being closed: by whoever has the list of ports here, by the
    /// kernel elsewhere. Then a worker goes, which only the control thread can end.
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
