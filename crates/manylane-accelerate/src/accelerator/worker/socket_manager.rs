//! The thread that opens and closes ports' sockets.
//!
//! Both may take long: the kernel frees a queue some time after its last socket is closed, pins memory, resets queues
//! of some devices; and a worker may hang. Nobody who has something else to do waits for that. Orders are carried out
//! one after the other.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crate::programs::{Beat, Lanes, QUEUES, Ticks, WORKER_FRAME, Workers};
use manylane_frame::vocabulary::{PortId, WorkerId};
use manylane_frame::{Depot, HOT_LIST_DEFAULT, Meta, Pool, Region, RegionConfig};
use manylane_io::affinity::pin;
use manylane_io::eventfd::EventFd;
use manylane_io::interface::Interface;
use manylane_io::port::af_xdp::{AfXdp, AfXdpConfig, OpenError, Opened, Umem};
use manylane_io::port::{Fate, Receiving};
use manylane_sync::doorbell::Wake;

use super::counts::{Place, Rows};
use super::threads::{How, Order, Told, Tools};
use super::turn::{Parts, Task, Worker};

/// What the thread has.
pub(super) struct Staff {
    tools: Tools,
    lanes: Lanes,
    /// For workers that have not started: all of them, or none.
    idle: Vec<(Beat, Rows)>,
    own: Rows,
    tell: Sender<Told>,
    /// From the first port on.
    works: Option<Works>,
    open: BTreeMap<u16, Open>,
    /// Orders that came while another was carried out.
    waiting: VecDeque<Order>,
}

/// Memory and workers.
struct Works {
    umem: Umem,
    pool: Pool,
    ring: u32,
    desks: Vec<Desk>,
}

/// A worker, from outside.
struct Desk {
    tasks: Sender<Task>,
    bell: Arc<EventFd>,
    thread: JoinHandle<()>,
}

/// A port whose parts workers have.
struct Open {
    port: AfXdp,
    queues: u32,
}

impl Staff {
    pub fn new(mut tools: Tools, rows: Vec<Rows>, own: Rows, tell: Sender<Told>) -> Staff {
        let Workers { lanes, beats } = tools.workers.take().expect("they are given once");
        let idle = beats.into_iter().zip(rows).collect();
        let (works, open, waiting) = (None, BTreeMap::new(), VecDeque::new());
        Staff { tools, lanes, idle, own, tell, works, open, waiting }
    }

    /// Does what is ordered until the end is.
    pub fn run(mut self, orders: &Receiver<Order>) {
        loop {
            let order = match self.waiting.pop_front() {
                Some(order) => order,
                None => orders.recv().unwrap_or(Order::End),
            };
            let told = match order {
                Order::Open { port, name, index, lasting } => {
                    match self.open(port, &name, index, lasting) {
                        Ok(how) => Told::Opened { port, index, how },
                        Err(why) => Told::Refused { port, why },
                    }
                }
                Order::Close { port } => match self.close(port, orders) {
                    Ok(()) => Told::Closed { port },
                    Err(Ended) => return,
                },
                Order::End => return self.end(orders),
            };
            // Nobody hears it only when the end is near.
            let _ = self.tell.send(told);
            self.tools.bell.wake();
        }
    }

    /// Opens the sockets of a port, gives workers their parts, and lets the program know.
    fn open(&mut self, port: u16, name: &str, index: u32, lasting: u32) -> Result<How, String> {
        let interface = Interface::read(name).map_err(|error| error.to_string())?;
        if interface.index != index {
            return Err(format!("{name} is another interface now"));
        }
        if self.works.is_none() {
            self.works = Some(self.begin()?);
        }
        let works = self.works.as_mut().expect("it is there");
        let workers = works.desks.len();
        let owners = owners(port, interface.receive_queues, workers);
        let elsewhere = vec![None; workers];
        let receiving = Receiving { owners: &owners, elsewhere: &elsewhere };
        let ring = works.ring;
        let config = AfXdpConfig {
            rx_ring: ring,
            tx_ring: ring,
            fill_ring: ring,
            completion_ring: ring,
            ..AfXdpConfig::default()
        };
        let opened = AfXdp::open_sockets(
            &mut works.umem,
            PortId(port),
            &interface,
            receiving,
            lasting,
            config,
        );
        let Opened { port: opened, facts, mut receivers, transmitters } =
            opened.map_err(|error| refusal(&error))?;
        receivers.iter_mut().for_each(|receiver| receiver.prime(&mut works.pool));
        works.pool.empty();
        let known = receivers.iter().zip(&owners).take(QUEUES as usize).try_for_each(
            |(receiver, owner)| {
                let worker = usize::from(owner.0);
                self.lanes.open(port, receiver.queue().0, receiver.as_fd(), worker)
            },
        );
        if let Err(error) = known {
            (0..facts.queues).for_each(|queue| self.lanes.close(port, queue as u16));
            opened.close(receivers, transmitters, &mut works.pool, |_, _| {});
            return Err(format!("the program takes no sockets: {error}"));
        }
        let mut parts: Vec<_> = transmitters
            .into_iter()
            .enumerate()
            .map(|(worker, exit)| {
                let owner = usize::from(owners[usize::from(exit.completion_queue().0)].0);
                let owner = (owner != worker).then_some(owner);
                Parts { port, index, receivers: Vec::new(), exit, owner }
            })
            .collect();
        for receiver in receivers {
            parts[usize::from(owners[usize::from(receiver.queue().0)].0)].receivers.push(receiver);
        }
        for (desk, parts) in works.desks.iter().zip(parts) {
            desk.give(Task::Take(Box::new(parts)));
        }
        self.open.insert(port, Open { port: opened, queues: facts.queues });
        Ok(How { queues: facts.queues, workers, zero_copy: facts.zero_copy })
    }

    /// Empties a port and closes its sockets.
    fn close(&mut self, port: u16, orders: &Receiver<Order>) -> Result<(), Ended> {
        let (Some(open), Some(works)) = (self.open.remove(&port), &mut self.works) else {
            return Ok(());
        };
        (0..open.queues).for_each(|queue| self.lanes.close(port, queue as u16));
        // What runs has seen the flags or the map as they were. If it cannot be waited for, what still comes is lost
        // with the sockets, and counted.
        let _ = self.tools.grace.wait();
        let (reply, given) = channel();
        for desk in &works.desks {
            desk.give(Task::Give { port, reply: reply.clone() });
        }
        let (mut receivers, mut transmitters) = (Vec::new(), Vec::new());
        for _ in &works.desks {
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
            let Some(Parts { receivers: own, exit, .. }) = parts.map(|parts| *parts) else {
                continue;
            };
            receivers.extend(own);
            transmitters.push(exit);
        }
        let rows = &mut self.own;
        let ended = |fate: Fate, meta: &Meta| {
            if fate == Fate::Dropped {
                let (entry, bytes) = (meta.ingress.0, meta.packet_len() as u64);
                rows.add(entry, Place::Unsent, 1);
                // Which workers have counted as sent.
                rows.add(entry, Place::PacketsIn, 1);
                rows.add(entry, Place::BytesIn, bytes);
                rows.add(port, Place::PacketsOut, 1);
                rows.add(port, Place::BytesOut, bytes);
            }
        };
        let closed = open.port.close(receivers, transmitters, &mut works.pool, ended);
        works.pool.empty();
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
        let desks = self.works.take().map_or_else(Vec::new, |works| works.desks);
        for desk in &desks {
            desk.give(Task::End);
        }
        for desk in desks {
            // It has panicked: what it said then is all there is to say.
            let _ = desk.thread.join();
        }
    }

    /// Takes the memory, and starts the workers.
    fn begin(&mut self) -> Result<Works, String> {
        let manning = &self.tools.manning;
        let (frames, ring) = room(&queues(&manning.interfaces), manning.workers);
        let region = Region::new(RegionConfig { frames, frame_size: WORKER_FRAME });
        let region = region.map_err(|error| error.to_string())?;
        let depot = Depot::new(region.clone(), manning.workers + 1);
        let depot = depot.map_err(|_| "the memory is in use".to_owned())?;
        let mut bells = Vec::new();
        for _ in 0..manning.workers {
            let bell = EventFd::open().map_err(|error| format!("no event descriptor: {error}"))?;
            bells.push(Arc::new(bell));
        }
        let (cores, limit) = (manning.cores.clone(), manning.limit);
        let mut desks = Vec::new();
        for (number, (beat, rows)) in std::mem::take(&mut self.idle).into_iter().enumerate() {
            let failed = |what: &str, error: &dyn std::fmt::Display| format!("no {what}: {error}");
            let ticks = Ticks::open().map_err(|error| failed("clock", &error))?;
            let reader = self.tools.domain.register().map_err(|error| failed("reader", &error))?;
            let (tasks, tasked) = channel();
            let mut worker = Worker::new(
                (beat, ticks, limit),
                (reader, self.tools.transit.clone()),
                depot.pool(),
                rows,
                (tasked, bells[number].clone(), bells.clone()),
            );
            let core = (!cores.is_empty()).then(|| cores[number % cores.len()]);
            let thread = Builder::new().name(format!("worker {number}")).spawn(move || {
                // Whose core is gone, or not ours, runs on any: it was there when it was asked for.
                let _ = core.map(pin);
                worker.run();
            });
            let thread = thread.map_err(|error| failed("thread", &error))?;
            desks.push(Desk { tasks, bell: bells[number].clone(), thread });
        }
        Ok(Works { umem: Umem::new(region), pool: depot.pool(), ring, desks })
    }
}

impl Desk {
    fn give(&self, task: Task) {
        // To one that has panicked: nothing comes of it.
        let _ = self.tasks.send(task);
        self.bell.wake();
    }
}

/// The end is ordered.
struct Ended;

/// Which worker has each queue of a port. Where there are as many queues as workers or more, a queue of one number is
/// the same worker's on every port, so that it sends by queues of its own; where there are fewer, ports begin with
/// different ones.
pub(super) fn owners(port: u16, queues: u32, workers: usize) -> Vec<WorkerId> {
    let first = if (queues as usize) < workers { usize::from(port).saturating_sub(1) } else { 0 };
    (0..queues as usize).map(|queue| WorkerId(((first + queue) % workers) as u16)).collect()
}

/// The frames that so many queues of each port want, and how long their rings are. A queue has a ring of them posted
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

/// Why sockets did not open, as it is to be told here.
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
