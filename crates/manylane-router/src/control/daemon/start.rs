//! Starting a daemon, in the order in which its parts need each other: memory and ports, tables, workers, and the
//! threads last.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use manylane_export::sflow::SflowOptions;
use manylane_frame::vocabulary::{PortId, WorkerId};
use manylane_frame::{Depot, Region, RegionConfig};
use manylane_io::port::af_xdp::Umem;
use manylane_io::port::pcap::Writer;
use manylane_io::port::{Receiver, Transmitter};
use manylane_io::privilege::Privileges;
use manylane_net::forward::Forwarder;
use manylane_net::generate::FarEndReader;
use manylane_net::icmp::RateLimit;
use manylane_net::neighbour::{HoldLimits, HoldQueues, Key};
use manylane_net::wire::flow::FlowKey;
use manylane_sync::rcu::Domain;
use manylane_sync::ring::ring;
use manylane_sync::words::{Words, WordsMut};

use super::{Daemon, StartError, Threads, bell, lock, spawn, write};
use crate::config::{Config, StaticNeighbour, interfaces};
use crate::control::carriers::Carriers;
use crate::control::choose::choose;
use crate::control::closing::Closing;
use crate::control::frames::Budget;
use crate::control::open::{self, Bell, Device, Halves, OpenPort};
use crate::control::routing::{Effects, RoutedPort, Routing, RoutingLimits};
use crate::control::sflow::{self, Exporter, Exporting, Sampling, Source};
use crate::control::status::{Counted, Edited, FrameStatus, Status};
use crate::control::steering::{Closer, Plan, Ports, Removal, Shared, Steering};
use crate::control::thread::{Control, Link};
use crate::control::worker_threads::WorkerThreads;
use crate::socket::{Place, Sockets};
use crate::trace::Traces;
use manylane_worker::hooks::InjectorEnd;
use manylane_worker::sampler::Sampler;
use manylane_worker::stats::{Stats, StatsReader};
use manylane_worker::worker::handoff::HandOff;
use manylane_worker::worker::queue_handover::{QueueHandover, queue_handover};
use manylane_worker::{Clock, Egress, Observers, Reclaimer, Tracer, Work, Worker};

impl Daemon {
    /// Opens all ports, drops `privileges` while the calling thread is still the only one, and begins to forward.
    pub(super) fn start_then_drop_privileges(
        config: Config,
        privileges: Option<&Privileges>,
    ) -> Result<Daemon, StartError> {
        let clock = Clock::start();
        let workers = config.workers.count();
        let collectors = sflow::resolve(&config).map_err(StartError::Collector)?;
        let mut opened = Opened::open(&config, clock)?;
        let writers = std::mem::take(&mut opened.writers);

        let domain = Domain::new(workers);
        let mut effects = Effects::default();
        let routed = open::routed(&opened.ports).map_err(StartError::Port)?;
        let interfaces_len = routed.len();
        let routing = routing(&opened.config, routed, &domain, clock, &mut effects)?;
        let (sockets, injected) = sockets(&opened, &domain, &routing, clock);
        let mut injected = Some(injected);
        let (traces, tracers) = Traces::new(&domain, workers, clock);
        let sampling = collectors.map(|options| sampling(options, &opened.config, &routing));
        let mut sampling = sampling.transpose()?;
        let mut hot_list_len = WordsMut::zeroed(1);
        hot_list_len.publish(0, opened.config.frames.hot_list_len);

        // Each thread has a clone, and drops it when it panics; a worker without a thread keeps its own.
        let alive = Arc::new(());
        let mut made = Made::default();
        let shares = opened.shares(workers, &mut sampling);
        for (number, (share, tracer)) in shares.into_iter().zip(tracers).enumerate() {
            let observers = sockets.observers(WorkerId(number as u16), injected.take());
            let common = Common {
                opened: &opened,
                domain: &domain,
                routing: &routing,
                hot_list_len: hot_list_len.reader(),
                interfaces_len,
                clock,
            };
            common.make(number, share, observers, tracer, &alive, &mut made);
        }

        let Made { threads, links, stats } = made;
        let closed = Stats::new(interfaces_len);
        let edited = Edited {
            sflow: sampling.as_ref().map(|sampling| sampling.sflow.clone()),
            routing: Arc::new(Mutex::new(routing)),
            steering: Arc::new(Mutex::new(opened.steering)),
            traces,
            control: opened.control_bell,
            sockets,
        };
        let parts = Parts {
            config: opened.config,
            ports: opened.ports,
            budget: opened.budget,
            depot: opened.depot,
            bells: opened.bells,
            hot_list_len,
            links,
            stats,
            closed,
            alive: alive.clone(),
            clock,
        };
        let exporting = sampling.map(|sampling| parts.exporting(sampling, &edited.routing));
        let started = parts.config.workers.started;
        let carriers = Carriers::watch(&parts.config).map_err(StartError::Links)?;
        let (mut daemon, mut control) = parts.assemble(edited);
        control.carriers = carriers;
        privileges.map_or(Ok(()), Privileges::narrow).map_err(StartError::Privilege)?;
        daemon.begin(writers, exporting, (control, effects), alive)?;
        let begun = lock(&daemon.steering).start_workers(threads, started);
        begun.map_err(|source| StartError::System { what: "a thread", source })?;
        Ok(daemon)
    }

    /// Starts the threads of captures, of samples, and the control thread.
    fn begin(
        &mut self,
        writers: Vec<Writer>,
        exporting: Option<Exporting>,
        (control, effects): (Control, Effects),
        alive: Arc<()>,
    ) -> Result<(), StartError> {
        let exporter = exporting.map(Exporter::start).transpose();
        self.exporter =
            exporter.map_err(|source| StartError::System { what: "a thread", source })?;
        for writer in writers {
            self.writers.push(spawn("capture", move || write(writer))?);
        }
        self.control = Some(spawn("control", move || {
            let _alive = alive;
            control.run(effects);
        })?);
        Ok(())
    }
}

/// Memory, bells and open ports, before any table exists.
struct Opened {
    /// With a driver for each port, and the lengths of rings that fit the region.
    config: Config,
    budget: Budget,
    region: Region,
    depot: Depot,
    bells: Vec<Bell>,
    control_bell: Bell,
    steering: Steering,
    /// One for each worker, or none if no packet changes its worker.
    handoffs: Vec<HandOff>,
    /// One for each worker.
    handovers: Vec<QueueHandover>,
    ports: Vec<OpenPort>,
    halves: Vec<Halves>,
    writers: Vec<Writer>,
}

impl Opened {
    fn open(config: &Config, clock: Clock) -> Result<Opened, StartError> {
        let workers = config.workers.count();
        let config = choose(config).map_err(StartError::Port)?;
        let owners = open::owners(&config).map_err(StartError::Port)?;
        let locks = open::lock(&config).map_err(StartError::Port)?;
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
        let (mut steering, handoffs) =
            Steering::new(&config, plan, &owners, &bells, handover_ends, flow_key());
        let mut umem = Umem::new(region.clone());
        let opened = open::open(&config, owners, &mut umem, &bells, clock);
        let opened = opened.map_err(StartError::Port)?;
        let (mut ports, mut halves): (Vec<OpenPort>, Vec<Halves>) = opened.into_iter().unzip();
        ports.iter_mut().zip(locks).for_each(|(port, lock)| port.lock = lock);
        for (port, halves) in (0..).map(PortId).zip(&halves) {
            let queues = halves.transmitters.iter().map(Transmitter::queue).collect();
            steering.set_transmit_queues(port, queues);
        }
        // What arrives before a worker's first turn waits in the device.
        let mut pool = depot.pool();
        let receivers = halves.iter_mut().flat_map(|halves| &mut halves.receivers);
        receivers.for_each(|(_, receiver)| receiver.prime(&mut pool));
        drop(pool);
        let writers = halves.iter_mut().flat_map(|halves| halves.writers.drain(..)).collect();
        Ok(Opened {
            config,
            budget,
            region,
            depot,
            bells,
            control_bell,
            steering,
            handoffs,
            handovers,
            ports,
            halves,
            writers,
        })
    }

    /// Deals out receive queues, transmitters, hand-off rings, queue hand-overs and samplers, one share for each worker.
    fn shares(&mut self, workers: usize, sampling: &mut Option<Sampling>) -> Vec<Share> {
        let bells: Arc<[Bell]> = self.bells.as_slice().into();
        let mut handoffs = std::mem::take(&mut self.handoffs).into_iter();
        let mut handovers = std::mem::take(&mut self.handovers).into_iter();
        let mut samplers = sampling.iter_mut().flat_map(|sampling| sampling.samplers.drain(..));
        let mut shares = Vec::from_iter((0..workers).map(|_| Share {
            queues: Vec::new(),
            transmitters: Vec::new(),
            handoff: handoffs.next().map(Box::new),
            handover: handovers.next().expect("each worker has one"),
            sampler: samplers.next().map(Box::new),
        }));
        for (port, halves) in (0..).map(PortId).zip(std::mem::take(&mut self.halves)) {
            for (owner, receiver) in halves.receivers {
                shares[usize::from(owner.0)].queues.push(receiver);
            }
            for (share, transmitter) in shares.iter_mut().zip(halves.transmitters) {
                let queue = transmitter.completion_queue();
                let reclaimer = queue.map(|queue| self.steering.reclaimer(port, queue, &bells));
                share.transmitters.push((transmitter, reclaimer));
            }
        }
        shares
    }
}

/// What belongs to one worker alone.
struct Share {
    queues: Vec<Receiver>,
    transmitters: Vec<(Transmitter, Option<Reclaimer>)>,
    handoff: Option<Box<HandOff>>,
    handover: QueueHandover,
    /// With a collector of samples.
    sampler: Option<Box<Sampler>>,
}

/// What all workers are made from.
struct Common<'a> {
    opened: &'a Opened,
    domain: &'a Domain,
    routing: &'a Routing,
    hot_list_len: Words<u32>,
    interfaces_len: usize,
    clock: Clock,
}

/// The workers, and the control thread's ends of what it shares with them.
#[derive(Default)]
struct Made {
    threads: WorkerThreads,
    links: Vec<Link>,
    stats: Vec<StatsReader>,
}

impl Common<'_> {
    /// Makes the worker of this number.
    fn make(
        &self,
        number: usize,
        share: Share,
        observers: Observers,
        tracer: Tracer,
        alive: &Arc<()>,
        made: &mut Made,
    ) {
        let Opened { config, region, depot, bells, control_bell, steering, .. } = self.opened;
        let bell = &bells[number];
        let (reports, reported) = ring(REPORTS);
        let (orders, ordered) = ring(ORDERS);
        let phase = WordsMut::zeroed(1);
        let own = Stats::new(self.interfaces_len);
        made.stats.push(own.reader());
        made.links.push(Link { reported, orders, bell: bell.clone() });
        let errors = RateLimit::new(config.icmp.errors_per_second, config.icmp.errors_burst);
        let mut forwarder = Forwarder::new(region.clone(), self.routing.tables(), errors.clone());
        if config.icmp.redirects {
            forwarder = forwarder.with_redirects(errors);
        }
        let reader = self.domain.register().expect("the domain has a place for each worker");
        let work = Work {
            id: WorkerId(number as u16),
            pool: depot.pool_of(config.frames.hot_list_len),
            forwarder,
            holds: HoldQueues::new(HoldLimits {
                queue_frames_max: config.neighbour.hold_per_entry,
                frames_max: config.neighbour.hold_per_worker,
                ..HoldLimits::default()
            }),
            dsts: self.routing.dsts(),
            queues: share.queues,
            egresses: share.transmitters.into_iter().map(Egress::from).collect(),
            stats: own,
            reports,
            control: control_bell.clone(),
            orders: ordered,
            bell: bell.clone(),
            phase: phase.reader(),
            hot_list_len: self.hot_list_len.clone(),
            handoff: share.handoff,
            queue_handover: share.handover,
            limits: steering.limits(),
            observers,
            tracer,
            sampler: share.sampler,
            clock: self.clock,
            idle_spin: Duration::from_micros(config.workers.idle_spin_us.into()),
            state: Default::default(),
        };
        let worker = Worker::new(reader, work);
        let core = config.workers.cores[number];
        made.threads.add(worker, core, phase, bell.clone(), alive.clone());
    }
}

/// What the daemon, its status and its control thread are assembled from, beside what the API edits.
struct Parts {
    config: Config,
    ports: Vec<OpenPort>,
    budget: Budget,
    depot: Depot,
    bells: Vec<Bell>,
    hot_list_len: WordsMut<u32>,
    links: Vec<Link>,
    stats: Vec<StatsReader>,
    /// Counts for ports that are removed.
    closed: Stats,
    alive: Arc<()>,
    clock: Clock,
}

impl Parts {
    /// The exporter's part: what it reads of ports and counters.
    fn exporting(&self, sampling: Sampling, routing: &Arc<Mutex<Routing>>) -> Exporting {
        let interface = |port: &OpenPort| port.config.driver.interface().map(str::to_owned);
        let source = Source {
            routing: routing.clone(),
            stats: self.stats.iter().cloned().chain([self.closed.reader()]).collect(),
            interfaces: self.ports.iter().map(interface).collect(),
        };
        Exporting::new(sampling, source)
    }

    /// A daemon without threads, and its control thread's part.
    fn assemble(self, edited: Edited) -> (Daemon, Control) {
        let Parts { config, ports, budget, depot, links, stats, closed, clock, .. } = self;
        let Edited { routing, steering, control: control_bell, sockets, .. } = &edited;
        let (routing, steering) = (routing.clone(), steering.clone());
        let (control_bell, sockets) = (control_bell.clone(), sockets.clone());
        let frames = FrameStatus::new(budget, depot.clone(), self.hot_list_len, self.bells);
        let begun = stats.len() + 1;
        let counted = Counted { workers: stats.clone(), closed: closed.reader() };
        let status = Status::new(&config, &ports, counted, edited, frames, clock);
        let far_ends = far_ends(&ports);
        let ports: Ports = Arc::new(Mutex::new(ports.into_iter().map(Some).collect()));
        let control_phase = WordsMut::zeroed(1);
        let names: Vec<String> =
            interfaces(&config.ports).iter().map(|one| one.name.to_owned()).collect();
        let closer = Closer { ports: ports.clone(), depot: depot.clone(), stats: closed };
        let control = Control {
            routing,
            links,
            bell: control_bell.clone(),
            phase: control_phase.reader(),
            clock,
            names: names.clone(),
            steering: steering.clone(),
            closing: closing(closer, control_bell.clone(), steering.clone()),
            stats,
            sockets: sockets.clone(),
            carriers: None,
        };
        let daemon = Daemon {
            control: None,
            control_bell,
            control_phase,
            ports,
            far_ends,
            writers: Vec::new(),
            depot,
            status: Arc::new(status),
            steering,
            sockets,
            names,
            remote: None,
            exporter: None,
            threads: Threads { alive: Arc::downgrade(&self.alive), begun },
        };
        (daemon, control)
    }
}

/// The thread in which `closer` closes removed ports.
fn closing(mut closer: Closer, bell: Bell, steering: Shared) -> Closing<Removal> {
    Closing::new(bell, move |removal: Removal| {
        let port = removal.port;
        let kept = closer.close(removal);
        lock(&steering).removed(port, kept);
    })
}

/// A key that no other router has: the standard library's keys are the kernel's random numbers. Steering and sockets
/// have one each: which packets a socket of a group gets says something about its key.
pub(super) fn flow_key() -> FlowKey {
    FlowKey::new([0, 1, 2].map(|word| RandomState::new().hash_one(word)))
}

/// Packet sockets of all workers, and the end of the worker that sends for them.
fn sockets(
    opened: &Opened,
    domain: &Domain,
    routing: &Routing,
    clock: Clock,
) -> (Sockets, InjectorEnd) {
    let places = Place::all(&routing.tables().ports);
    let (config, bell) = (&opened.config, opened.bells[0].clone());
    let workers = config.workers.count();
    Sockets::new(domain.clone(), workers, &places, config.sockets, bell, clock, flow_key())
}

/// Samples of the ports of `config`: one sampler for each worker.
fn sampling(
    options: SflowOptions,
    config: &Config,
    routing: &Routing,
) -> Result<Sampling, StartError> {
    let names = config.ports.iter().map(|port| port.name.clone()).collect();
    // The standard library's keys are the kernel's random numbers.
    let seeds = (0..config.workers.count()).map(|worker| RandomState::new().hash_one(worker));
    Ok(Sampling::new(options, names, &routing.tables().ports, seeds, bell()?))
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
        timing: config.neighbour.timing,
        // The standard library's keys are the kernel's random numbers.
        seed: RandomState::new().hash_one(0),
    };
    let mut routing = Routing::new(domain, ports, limits).map_err(StartError::Routing)?;
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
