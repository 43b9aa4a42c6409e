//! The thread that opens and closes ports' sockets.
//!
//! Both may take long: the kernel frees a queue some time after its last socket is closed, pins memory, resets queues
//! of some devices; and a worker may hang. No other thread waits for that. Orders are carried out
//! one after the other.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crate::programs::{Heartbeat, QUEUES, SocketMap, Ticks, WORKER_FRAME, Workers};
use manylane_export::sflow::REPORTS;
use manylane_frame::vocabulary::{PortId, WorkerId};
use manylane_frame::{Depot, HOT_LIST_DEFAULT, Meta, Pool, Region, RegionConfig};
use manylane_io::affinity::pin;
use manylane_io::eventfd::EventFd;
use manylane_io::interface::Interface;
use manylane_io::port::af_xdp::{AfXdp, AfXdpConfig, OpenError, Opened, Umem};
use manylane_io::port::{Fate, Receiving};
use manylane_sync::doorbell::Wake;

use super::counts::{Place, Rows};
use super::threads::{How, Order, Report, ThreadContext};
use super::turn::{Parts, Task, Worker};

/// What the thread has.
pub(super) struct SocketManager {
    context: ThreadContext,
    socket_workers: SocketMap,
    /// For workers that have not started: all of them, or none.
    idle: Vec<(Heartbeat, Rows)>,
    own: Rows,
    reports: Sender<Report>,
    /// From the first port on.
    running: Option<Running>,
    open: BTreeMap<u16, Open>,
    /// Orders that came while another was carried out.
    waiting: VecDeque<Order>,
}

/// Memory and workers.
struct Running {
    umem: Umem,
    pool: Pool,
    ring: u32,
    handles: Vec<WorkerHandle>,
}

/// A worker, from outside.
struct WorkerHandle {
    tasks: Sender<Task>,
    doorbell: Arc<EventFd>,
    thread: JoinHandle<()>,
}

/// A port whose parts workers have.
struct Open {
    port: AfXdp,
    queues: u32,
}

impl SocketManager {
    pub fn new(
        mut context: ThreadContext,
        rows: Vec<Rows>,
        own: Rows,
        reports: Sender<Report>,
    ) -> SocketManager {
        let Workers { socket_workers, heartbeats } =
            context.workers.take().expect("they are given once");
        let idle = heartbeats.into_iter().zip(rows).collect();
        let (running, open, waiting) = (None, BTreeMap::new(), VecDeque::new());
        SocketManager { context, socket_workers, idle, own, reports, running, open, waiting }
    }

    /// Does what is ordered until the end is.
    pub fn run(mut self, orders: &Receiver<Order>) {
        loop {
            let order = match self.waiting.pop_front() {
                Some(order) => order,
                None => orders.recv().unwrap_or(Order::End),
            };
            let report = match order {
                Order::Open { port, name, index, lasting } => {
                    match self.open(port, &name, index, lasting) {
                        Ok(how) => Report::Opened { port, index, how },
                        Err(why) => Report::Refused { port, why },
                    }
                }
                Order::Close { port } => match self.close(port, orders) {
                    Ok(()) => Report::Closed { port },
                    Err(Ended) => return,
                },
                Order::End => return self.end(orders),
            };
            // The receiver is gone only when the process ends.
            let _ = self.reports.send(report);
            self.context.doorbell.wake();
        }
    }

    /// Opens the sockets of a port, gives workers their parts, and lets the program know.
    fn open(&mut self, port: u16, name: &str, index: u32, lasting: u32) -> Result<How, String> {
        let interface = Interface::read(name).map_err(|error| error.to_string())?;
        if interface.index != index {
            return Err(format!("{name} is another interface now"));
        }
        if self.running.is_none() {
            self.running = Some(self.start_workers()?);
        }
        let running = self.running.as_mut().expect("it is there");
        let workers = running.handles.len();
        let owners = owners(port, interface.receive_queues, workers);
        let elsewhere = vec![None; workers];
        let receiving = Receiving { owners: &owners, elsewhere: &elsewhere };
        let ring = running.ring;
        let config = AfXdpConfig {
            rx_ring: ring,
            tx_ring: ring,
            fill_ring: ring,
            completion_ring: ring,
            ..AfXdpConfig::default()
        };
        let opened = AfXdp::open_sockets(
            &mut running.umem,
            PortId(port),
            &interface,
            receiving,
            lasting,
            config,
        );
        let Opened { port: opened, facts, mut receivers, transmitters } =
            opened.map_err(|error| refusal(&error))?;
        receivers.iter_mut().for_each(|receiver| receiver.prime(&mut running.pool));
        running.pool.empty();
        let known = receivers.iter().zip(&owners).take(QUEUES as usize).try_for_each(
            |(receiver, owner)| {
                let worker = usize::from(owner.0);
                self.socket_workers.open(port, receiver.queue().0, receiver.as_fd(), worker)
            },
        );
        if let Err(error) = known {
            (0..facts.queues).for_each(|queue| self.socket_workers.close(port, queue as u16));
            opened.close(receivers, transmitters, &mut running.pool, |_, _| {});
            return Err(format!("the program takes no sockets: {error}"));
        }
        let mut parts: Vec<_> = transmitters
            .into_iter()
            .enumerate()
            .map(|(worker, transmitter)| {
                let owner = usize::from(owners[usize::from(transmitter.completion_queue().0)].0);
                let owner = (owner != worker).then_some(owner);
                Parts { port, index, receivers: Vec::new(), transmitter, owner }
            })
            .collect();
        for receiver in receivers {
            parts[usize::from(owners[usize::from(receiver.queue().0)].0)].receivers.push(receiver);
        }
        for (handle, parts) in running.handles.iter().zip(parts) {
            handle.send(Task::AddPort(Box::new(parts)));
        }
        self.open.insert(port, Open { port: opened, queues: facts.queues });
        Ok(How { queues: facts.queues, workers, zero_copy: facts.zero_copy })
    }

    /// Empties a port and closes its sockets.
    fn close(&mut self, port: u16, orders: &Receiver<Order>) -> Result<(), Ended> {
        let (Some(open), Some(running)) = (self.open.remove(&port), &mut self.running) else {
            return Ok(());
        };
        (0..open.queues).for_each(|queue| self.socket_workers.close(port, queue as u16));
        // What runs has seen the flags or the map as they were. If it cannot be waited for, what still comes is lost
        // with the sockets, and counted.
        let _ = self.context.grace.wait();
        let (reply, given) = channel();
        for handle in &running.handles {
            handle.send(Task::RemovePort { port, reply: reply.clone() });
        }
        let (mut receivers, mut transmitters) = (Vec::new(), Vec::new());
        for _ in &running.handles {
            let parts = loop {
                match given.recv_timeout(LOOK) {
                    Ok(parts) => break parts,
                    // A worker hangs, or has panicked.
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                        for order in orders.try_iter() {
                            if matches!(order, Order::End) {
                                return Err(Ended);
                            }
                            self.waiting.push_back(order);
                        }
                    }
                }
            };
            let Some(Parts { receivers: own, transmitter, .. }) = parts.map(|parts| *parts) else {
                continue;
            };
            receivers.extend(own);
            transmitters.push(transmitter);
        }
        let rows = &mut self.own;
        let ended = |fate: Fate, meta: &Meta| {
            if fate == Fate::Dropped {
                let (ingress, bytes) = (meta.ingress.0, meta.packet_len() as u64);
                rows.add(ingress, Place::Unsent, 1);
                // Which workers have counted as sent.
                rows.add(ingress, Place::PacketsIn, 1);
                rows.add(ingress, Place::BytesIn, bytes);
                rows.add(port, Place::PacketsOut, 1);
                rows.add(port, Place::BytesOut, bytes);
            }
        };
        let closed = open.port.close(receivers, transmitters, &mut running.pool, ended);
        running.pool.empty();
        self.own.add(port, Place::Lost, closed.unread as u64);
        Ok(())
    }

    /// Closes everything, and ends the workers.
    fn end(mut self, orders: &Receiver<Order>) {
        let ports: Vec<_> = self.open.keys().copied().collect();
        for port in ports {
            if self.close(port, orders).is_err() {
                return;
            }
        }
        let handles = self.running.take().map_or_else(Vec::new, |running| running.handles);
        for handle in &handles {
            handle.send(Task::End);
        }
        for handle in handles {
            // The thread has panicked, and its message has said why.
            let _ = handle.thread.join();
        }
    }

    /// Takes the memory, and starts the workers.
    fn start_workers(&mut self) -> Result<Running, String> {
        let worker_options = &self.context.worker_options;
        let (frames, ring) = room(&queues(&worker_options.interfaces), worker_options.workers);
        let region = Region::new(RegionConfig { frames, frame_size: WORKER_FRAME });
        let region = region.map_err(|error| error.to_string())?;
        let depot = Depot::new(region.clone(), worker_options.workers + 1);
        let depot = depot.map_err(|_| "the memory is in use".to_owned())?;
        let mut doorbells = Vec::new();
        for _ in 0..worker_options.workers {
            let doorbell =
                EventFd::open().map_err(|error| format!("no event descriptor: {error}"))?;
            doorbells.push(Arc::new(doorbell));
        }
        let (cores, limit) = (worker_options.cores.clone(), worker_options.limit);
        let captures = self.context.captures.clone();
        let mut handles = Vec::new();
        for (number, (heartbeat, rows)) in std::mem::take(&mut self.idle).into_iter().enumerate() {
            let failed = |what: &str, error: &dyn std::fmt::Display| format!("no {what}: {error}");
            let ticks = Ticks::open().map_err(|error| failed("clock", &error))?;
            let reader =
                self.context.domain.register().map_err(|error| failed("reader", &error))?;
            let (tasks, tasked) = channel();
            let mut worker = Worker::new(
                (heartbeat, ticks, limit),
                (reader, self.context.transit.clone()),
                depot.pool(),
                (
                    rows,
                    self.context.drops.as_ref().map(|drops| drops.add(REPORTS)),
                    captures.copies(number),
                ),
                (tasked, doorbells[number].clone(), doorbells.clone()),
            );
            let core = (!cores.is_empty()).then(|| cores[number % cores.len()]);
            let thread = Builder::new().name(format!("worker {number}")).spawn(move || {
                // A worker whose core has gone since the options were checked runs on any.
                let _ = core.map(pin);
                worker.run();
            });
            let thread = thread.map_err(|error| failed("thread", &error))?;
            handles.push(WorkerHandle { tasks, doorbell: doorbells[number].clone(), thread });
        }
        Ok(Running { umem: Umem::new(region), pool: depot.pool(), ring, handles })
    }
}

impl WorkerHandle {
    fn send(&self, task: Task) {
        // To one that has panicked: nothing comes of it.
        let _ = self.tasks.send(task);
        self.doorbell.wake();
    }
}

/// The end is ordered.
struct Ended;

/// The owner of each queue of a port. With as many queues as workers or more, a queue of one number is
/// one worker's on every port, so that the worker sends by its own queues; with fewer queues, ports begin with
/// different ones.
pub(super) fn owners(port: u16, queues: u32, workers: usize) -> Vec<WorkerId> {
    let first = if (queues as usize) < workers { usize::from(port).saturating_sub(1) } else { 0 };
    (0..queues as usize).map(|queue| WorkerId(((first + queue) % workers) as u16)).collect()
}

/// The frames that these queues of each port need, and the length of their rings. A queue has a ring of them posted
/// and one received; each worker has a ring at each port, and one of what was sent.
pub(super) fn room(queues: &[u32], workers: usize) -> (u32, u32) {
    let receiving: u64 = queues.iter().map(|&queues| u64::from(queues)).sum();
    let sending = (queues.len() * workers) as u64;
    let lists = (workers as u64 + 1) * u64::from(HOT_LIST_DEFAULT);
    let frames = |ring: u32| 2 * u64::from(ring) * (receiving + sending) + lists;
    let mut ring = RING_MAX;
    while ring > RING_MIN && frames(ring) > FRAMES_MAX {
        ring /= 2;
    }
    (frames(ring).min(FRAMES_MAX.max(lists)) as u32, ring)
}

/// Receive queues of interfaces; one of those that do not say.
fn queues(interfaces: &[String]) -> Vec<u32> {
    let queues = |name: &String| Interface::read(name).map_or(1, |found| found.receive_queues);
    interfaces.iter().map(queues).collect()
}

/// Why sockets did not open, in this tier's words.
fn refusal(error: &OpenError) -> String {
    match error {
        OpenError::MtuTooLarge { interface, mtu, .. } => format!(
            "{interface} has an MTU of {mtu}; workers' frames have {} bytes",
            WORKER_FRAME - 256
        ),
        error => error.to_string(),
    }
}

/// How often a worker that does not answer is looked past.
const LOOK: Duration = Duration::from_millis(50);
/// 512 MiB.
const FRAMES_MAX: u64 = 1 << 18;
const RING_MAX: u32 = 1024;
const RING_MIN: u32 = 128;
