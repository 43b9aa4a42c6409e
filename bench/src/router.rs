//! The product's workers between ports in memory, as the bench and `bench/counted` put them together.

use std::error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use manylane_frame::vocabulary::{Offload, PortId, QueueId, WorkerId};
use manylane_frame::{Depot, Region, RegionConfig};
use manylane_io::eventfd::EventFd;
use manylane_io::port::memory::{self, Sink, Source};
use manylane_io::port::{Receiver, Transmitter};
use manylane_net::fib::{Ipv4Prefix, Ipv6Prefix, NextHopId};
use manylane_net::forward::{Forwarder, PortFacts};
use manylane_net::icmp::RateLimit;
use manylane_net::neighbour::{HoldLimits, HoldQueues, Key};
use manylane_net::nexthop::ids::neighbour_id;
use manylane_net::wire::flow::FlowKey;
use manylane_router::control::routing::{Effects, RoutedPort, Routing, RoutingLimits};
use manylane_router::socket::{self, SocketLimits, Sockets};
use manylane_router::trace::Traces;
use manylane_sync::doorbell::Doorbell;
use manylane_sync::handoff::SteeringMap;
use manylane_sync::rcu::Domain;
use manylane_sync::ring::ring;
use manylane_sync::words::{Words, WordsMut};
use manylane_worker::stats::{PortCount, Stats, StatsReader};
use manylane_worker::worker::handoff::{Mesh, limits};
use manylane_worker::worker::queue_handover::queue_handover;
use manylane_worker::worker::{Clock, HandOff, Observers, STOP, Work, Worker};

pub use crate::packet::router_mac as mac;

/// An error of anything, in its own words.
pub type Error = Box<dyn error::Error + Send + Sync>;
/// A result of a question, unless another error is named.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// Wakes a worker.
pub type Bell = Arc<Doorbell<EventFd>>;

/// Next hops by family: IPv4, IPv6.
pub type Hops = [Vec<NextHopId>; 2];

pub const NEXT_HOPS: u32 = 256;

pub fn port(port: u16) -> RoutedPort {
    let facts = PortFacts {
        mac: mac(port),
        mtu: 1500,
        offload: Offload::NONE,
        ipv4: Vec::new(),
        ipv6: Vec::new(),
        link_local: Some(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x11 + port)),
        vlan: None,
        vlans: Vec::new(),
        anycast: Vec::new(),
    };
    RoutedPort { facts, addresses: Vec::new() }
}

/// The tables and the memory of some workers.
pub struct Ground {
    pub domain: Domain,
    pub routing: Routing,
    pub depot: Depot,
    pub clock: Clock,
}

impl Ground {
    /// For `workers` workers and one pool more, with room for a full table.
    pub fn new(workers: usize, frames: u32, ports: Vec<RoutedPort>) -> Result<Ground> {
        let domain = Domain::new(workers);
        let limits = RoutingLimits {
            neighbours_max: 8192,
            long_ipv4_routes: 65_536,
            ipv6_routes: 200_000,
            ..RoutingLimits::default()
        };
        let routing = Routing::new(&domain, ports, limits)?;
        let region = Region::new(RegionConfig { frames, frame_size: 2048 })?;
        let depot = Depot::new(region, workers + 1).expect("the region is new");
        Ok(Ground { domain, routing, depot, clock: Clock::start() })
    }

    /// As [`Ground::new`] with two ports, and a default route of IPv4 to one neighbour.
    pub fn with_one_route(workers: usize, frames: u32) -> Result<Ground> {
        let mut ground = Ground::new(workers, frames, vec![port(0), port(1)])?;
        let [hops, _] = ground.next_hops(by_turns)?;
        let everywhere = Ipv4Prefix::containing(Ipv4Addr::UNSPECIFIED, 0).expect("0 is a length");
        ground.load([(everywhere, hops[0])], [])?;
        Ok(ground)
    }

    /// [`NEXT_HOPS`] for each family, resolved; `place` says at which port each one is, with which address.
    pub fn next_hops(&mut self, place: impl Fn(u32) -> (PortId, [u8; 6])) -> Result<Hops> {
        let mut add = |addr: IpAddr, number| {
            let (port, mac) = place(number);
            self.set_neighbour(port, addr, mac)
        };
        let numbers = 1..=NEXT_HOPS;
        let ipv4 = numbers.clone().map(|n| add(Ipv4Addr::from(0x0a02_0000 + n).into(), n));
        let ipv4 = ipv4.collect::<Result<_>>()?;
        let first = 0x2001_0db8_0001_u128 << 80 | 0x1000;
        let ipv6 = numbers.map(|n| add(Ipv6Addr::from(first + u128::from(n)).into(), n));
        Ok([ipv4, ipv6.collect::<Result<_>>()?])
    }

    pub fn set_neighbour(&mut self, port: PortId, addr: IpAddr, mac: [u8; 6]) -> Result<NextHopId> {
        let (key, told) = (Key { port, addr }, &mut Effects::default());
        Ok(neighbour_id(self.routing.set_neighbour(key, mac, Duration::ZERO, told)?))
    }

    pub fn load(
        &mut self,
        ipv4: impl IntoIterator<Item = (Ipv4Prefix, NextHopId)>,
        ipv6: impl IntoIterator<Item = (Ipv6Prefix, NextHopId)>,
    ) -> Result {
        self.routing.ipv4_mut().load(ipv4)?;
        self.routing.ipv6_mut().load(ipv6)?;
        Ok(())
    }

    pub fn lane(&self, place: Place) -> Result<Lane> {
        let Place { id, queues, transmitters, errors, handoff, limits, phase, observers, bell } =
            place;
        let (pool, clock) = (self.depot.pool(), self.clock);
        // The other ends of the rings: the worker reports nothing and has no orders here.
        let ((reports, _reported), (_orders, orders)) = (ring(16), ring(16));
        let counters = Stats::new(transmitters.len());
        let stats = counters.reader();
        let observers =
            observers.unwrap_or_else(|| no_sockets(&self.domain, &bell, clock).observers(id, None));
        let reader = self.domain.register().expect("the domain has a place for each");
        let worker = Worker::new(
            reader,
            Work {
                id,
                forwarder: Forwarder::new(pool.region().clone(), self.routing.tables(), errors),
                pool,
                holds: HoldQueues::new(HoldLimits::default()),
                dsts: self.routing.dsts(),
                queues,
                egresses: transmitters
                    .into_iter()
                    .map(|transmitter| (transmitter, None).into())
                    .collect(),
                stats: counters,
                reports,
                control: self::bell()?,
                orders,
                bell: bell.clone(),
                phase,
                hot_list_len: WordsMut::zeroed(1).reader(),
                handoff,
                queue_handover: queue_handover(&bell).0,
                limits,
                observers,
                tracer: Traces::new(&self.domain, 1, clock).1.remove(0),
                sampler: None,
                clock,
                idle_spin: Duration::ZERO,
                state: Default::default(),
            },
        );
        Ok(Lane { worker, clock, stats })
    }
}

/// Neighbours at ports 0 and 1 by turns, each with an address of its own.
pub fn by_turns(number: u32) -> (PortId, [u8; 6]) {
    (PortId((number & 1) as u16), [2, 0x10, 0x10, 0x10, 0x10, number as u8])
}

/// What differs between workers.
pub struct Place {
    pub id: WorkerId,
    pub queues: Vec<Receiver>,
    /// By port.
    pub transmitters: Vec<Transmitter>,
    pub errors: RateLimit,
    pub handoff: Option<Box<HandOff>>,
    /// How much it takes in a turn, and hands on.
    pub limits: Words<u32>,
    /// Until when [`Worker::run`] continues.
    pub phase: Words<u32>,
    /// The packet sockets that it delivers to; without, it has a table of none.
    pub observers: Option<Observers>,
    pub bell: Bell,
}

impl Place {
    /// Receives from these sources at port 0, a queue for each, and transmits to a sink for each port.
    pub fn new(
        id: u16,
        sources: impl IntoIterator<Item = Source>,
        sinks: impl IntoIterator<Item = Sink>,
    ) -> Result<Place> {
        let queues = (0..).zip(sources).map(|(queue, source)| receiver(QueueId(queue), source));
        let exit = |sink| Transmitter::Memory(memory::Transmitter::into_sink(sink));
        // A worker that the bench turns itself: `run` is for its end, and returns when it has dropped its frames.
        let mut phase = WordsMut::zeroed(1);
        phase.store(0, STOP);
        Ok(Place {
            id: WorkerId(id),
            queues: queues.collect(),
            transmitters: sinks.into_iter().map(exit).collect(),
            errors: RateLimit::new(1000, 50),
            handoff: None,
            limits: limits::words(MAX_BACKLOG, 300, 64).reader(),
            phase: phase.reader(),
            observers: None,
            bell: bell()?,
        })
    }
}

pub fn receiver(queue: QueueId, source: Source) -> Receiver {
    Receiver::Memory(memory::Receiver::from_source(PortId(0), queue, source))
}

/// Sinks of both ports that drop all frames.
pub fn no_sinks() -> [Sink; 2] {
    [Box::new(|_, _| ()), Box::new(|_, _| ())]
}

pub fn bell() -> Result<Bell> {
    Ok(Arc::new(Doorbell::new(EventFd::open()?)))
}

/// Frames that wait between two workers at most: the kernel's `netdev_max_backlog`.
pub const MAX_BACKLOG: u32 = 1000;

/// A hand-off from the first of two workers, which receives, to the second.
pub fn mesh(bells: &[Bell; 2], map: &SteeringMap, ports: usize, limits: &Words<u32>) -> Mesh {
    let (receives, capacity) = ([true, false], MAX_BACKLOG as usize);
    Mesh::build(&receives, capacity, bells, &map.reader(), ports, limits, FlowKey::PUBLIC)
}

/// A table of packet sockets for ports 0 and 1, still without sockets.
pub fn no_sockets(domain: &Domain, bell: &Bell, clock: Clock) -> Sockets {
    let place = |device| socket::Place { device: PortId(device), tags: None, packet_max: 1514 };
    let limits = SocketLimits::default();
    Sockets::new(
        domain.clone(),
        3,
        &[0, 1].map(place),
        limits,
        bell.clone(),
        clock,
        FlowKey::PUBLIC,
    )
    .0
}

pub struct Lane {
    pub worker: Worker,
    pub clock: Clock,
    pub stats: StatsReader,
}

impl Lane {
    #[inline(always)]
    pub fn turn(&mut self) -> usize {
        self.worker.turn(self.clock.now_ns())
    }

    pub fn counts(&self) -> [u64; 2] {
        counts(&self.stats)
    }

    /// An error when a frame was not forwarded.
    pub fn check(&self, name: &str) -> Result {
        check(name, &[&self.stats])
    }
}

/// Frames received and transmitted so far, by all ports.
pub fn counts(stats: &StatsReader) -> [u64; 2] {
    let sum = |what| (0..stats.ports() as u16).map(|port| stats.port(PortId(port), what)).sum();
    [PortCount::Received, PortCount::Transmitted].map(sum)
}

/// An error when a frame that one of these workers received was not transmitted.
pub fn check(name: &str, stats: &[&StatsReader]) -> Result {
    let all = stats.iter().map(|stats| counts(stats));
    match all.fold([0; 2], |sum, [received, sent]| [sum[0] + received, sum[1] + sent]) {
        [received, sent] if received == sent => Ok(()),
        [received, sent] => {
            Err(format!("{name}: {sent} of {received} frames were forwarded").into())
        }
    }
}
