//! A worker, its ports in memory, and the control thread's part, played by the test.
//!
//! Port n has 10.n.0.1/16, 2001:db8:n::1/64 and the MAC address of `ours`.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use manylane_frame::vocabulary::{Created, DropReason, Offload, PortId, QueueId, WorkerId};
use manylane_frame::{Depot, Frame, HEADROOM, Region, RegionConfig};
use manylane_io::eventfd::EventFd;
use manylane_io::port::memory::{self, Next};
use manylane_io::port::{Receiver, Transmitter};
use manylane_net::forward::{Forwarder, Ipv4Interface, PortFacts};
use manylane_net::icmp::RateLimit;
use manylane_net::neighbour::{HoldLimits, HoldQueues, Key, Kind, Report};
use manylane_net::wire::ethernet::{self, Mac, ether_type};
use manylane_net::wire::flow::FlowKey;
use manylane_net::wire::{ipv4, ipv6, protocol, udp};
use manylane_sync::doorbell::Doorbell;
use manylane_sync::rcu::Domain;
use manylane_sync::refcount::faults;
use manylane_sync::ring::{Consumer, Producer, ring};
use manylane_sync::words::WordsMut;

use manylane_router::config::{Hop, InterfaceAddress, Prefix, Route, RouteTarget};
use manylane_router::control::routing::{Effects, RoutedPort, Routing, RoutingLimits};
use manylane_router::socket::{Place, SocketLimits, Sockets};
use manylane_router::trace::Traces;
use manylane_worker::hooks::InjectorEnd;
use manylane_worker::stats::{PortCount, Stats, StatsReader, WorkerCount};
use manylane_worker::worker::handoff::{HandOff, limits};
use manylane_worker::worker::queue_handover::{QueueHandoverEnd, queue_handover};
use manylane_worker::worker::{Clock, Order, Tracer, Work, Worker};

pub const PORTS: u16 = 3;
pub const SECOND: u64 = 1_000_000_000;
pub const FRAMES: u32 = 4096;
/// Port 2's.
pub const SMALL_MTU: u32 = 1280;

/// Frames transmitted through a port.
pub type Seen = Arc<Mutex<Vec<Vec<u8>>>>;

/// Frames to be received by a port, in order.
pub type Feed = Arc<Mutex<Vec<Vec<u8>>>>;

/// The control thread's part.
pub struct Control {
    pub routing: Routing,
    pub told: Effects,
    pub reported: Vec<Consumer<Report>>,
    pub orders: Vec<Producer<Order>>,
}

/// Everything that workers share.
pub struct Hall {
    pub depot: Depot,
    domain: Domain,
    pub control: Control,
    /// By worker.
    pub phases: Vec<WordsMut<u32>>,
    /// By worker, until a test takes it.
    pub handovers: Vec<QueueHandoverEnd>,
    pub hot_list_len: WordsMut<u32>,
    pub limits: WordsMut<u32>,
    pub sockets: Sockets,
    pub traces: Traces,
    tracers: VecDeque<Tracer>,
    injected: Option<InjectorEnd>,
    stats: Vec<StatsReader>,
    clock: Clock,
}

impl Hall {
    pub fn new(workers: usize) -> Hall {
        let region = RegionConfig { frames: FRAMES, frame_size: 2048 };
        let region = Region::new(region).expect("8 MiB can be mapped");
        let domain = Domain::new(workers);
        let ports = (0..PORTS).map(routed_port).collect();
        let limits = RoutingLimits {
            neighbours_max: 2048,
            long_ipv4_routes: 4096,
            ipv6_routes: 4096,
            ..RoutingLimits::default()
        };
        let routing = Routing::new(&domain, ports, limits).expect("the tables can be mapped");
        let (reported, orders) = (Vec::new(), Vec::new());
        let clock = Clock::start();
        let places = Place::all(&routing.tables().ports);
        let limits = SocketLimits::default();
        let (sockets, injected) =
            Sockets::new(domain.clone(), workers, &places, limits, bell(), clock, FlowKey::PUBLIC);
        let (traces, tracers) = Traces::new(&domain, workers, clock);
        Hall {
            depot: Depot::new(region, workers + 2).expect("the first taker"),
            domain,
            control: Control { routing, told: Effects::default(), reported, orders },
            phases: Vec::new(),
            handovers: Vec::new(),
            hot_list_len: length(256),
            limits: limits::words(1000, 300, 64),
            sockets,
            traces,
            tracers: tracers.into(),
            injected: Some(injected),
            stats: Vec::new(),
            clock,
        }
    }

    pub fn worker(
        &mut self,
        queues: Vec<Receiver>,
        transmitters: Vec<Transmitter>,
        limits: HoldLimits,
    ) -> Worker {
        self.worker_of_several(queues, transmitters, limits, None)
    }

    pub fn worker_of_several(
        &mut self,
        queues: Vec<Receiver>,
        transmitters: Vec<Transmitter>,
        limits: HoldLimits,
        handoff: Option<HandOff>,
    ) -> Worker {
        let (reports, reported) = ring(1024);
        let (orders, ordered) = ring(256);
        self.control.reported.push(reported);
        self.control.orders.push(orders);
        let stats = Stats::new(PORTS.into());
        let id = WorkerId(self.stats.len() as u16);
        self.stats.push(stats.reader());
        self.phases.push(WordsMut::zeroed(1));
        let (handover, handover_end) = queue_handover(&bell());
        self.handovers.push(handover_end);
        let region = self.depot.region().clone();
        let mut tracer = self.tracers.pop_front().expect("there is one for each");
        tracer.writes_alone = true;
        let errors = RateLimit::new(0, u32::MAX >> 2);
        let reader = self.domain.register().expect("the domain has a place for each");
        let work = Work {
            id,
            pool: self.depot.pool_of(256),
            forwarder: Forwarder::new(region, self.control.routing.tables(), errors),
            holds: HoldQueues::new(limits),
            dsts: self.control.routing.dsts(),
            queues,
            egresses: transmitters.into_iter().map(|egress| (egress, None).into()).collect(),
            stats,
            reports,
            control: bell(),
            orders: ordered,
            bell: bell(),
            phase: self.phases[usize::from(id.0)].reader(),
            hot_list_len: self.hot_list_len.reader(),
            handoff: handoff.map(Box::new),
            queue_handover: handover,
            limits: self.limits.reader(),
            observers: self.sockets.observers(id, self.injected.take()),
            tracer,
            sampler: None,
            clock: self.clock,
            idle_spin: Duration::ZERO,
            state: Default::default(),
        };
        Worker::new(reader, work)
    }

    pub fn sum(&self, port: u16, what: PortCount) -> u64 {
        let of = |stats: &StatsReader| stats.port(PortId(port), what);
        self.stats.iter().map(of).fold(0, u64::wrapping_add)
    }

    pub fn dropped(&self, port: u16, reason: DropReason) -> u64 {
        self.stats.iter().map(|stats| stats.dropped(PortId(port), reason)).sum()
    }

    pub fn created(&self, port: u16, reason: Created) -> u64 {
        self.stats.iter().map(|stats| stats.created(PortId(port), reason)).sum()
    }

    /// What the workers count for themselves.
    pub fn counted(&self, what: WorkerCount) -> u64 {
        self.stats.iter().map(|stats| stats.worker(what)).sum()
    }

    /// I2, port by port: packets received or created have left, ended, or are held.
    pub fn assert_nothing_is_missing(&self) {
        for port in 0..PORTS {
            let created: u64 = Created::ALL.iter().map(|&why| self.created(port, why)).sum();
            let dropped: u64 = DropReason::ALL.iter().map(|&why| self.dropped(port, why)).sum();
            let began = self.sum(port, PortCount::Received) + created;
            let ended = self.sum(port, PortCount::Transmitted)
                + self.sum(port, PortCount::Delivered)
                + dropped
                + self.sum(port, PortCount::Held);
            assert_eq!(began, ended, "port {port}");
            let sent = self.sum(port, PortCount::Sent);
            assert_eq!(sent, self.sum(port, PortCount::Completed), "port {port}: in flight");
        }
    }

    /// Stops workers and counts their frames: all are at home.
    pub fn close(&self, mut workers: Vec<Worker>) {
        // The worker releases its held packets; those that it handed off are another's.
        for worker in &mut workers {
            worker.start(); // Also one that has left.
            let Worker { reader, work } = worker;
            work.drop_held(reader.guard());
        }
        for worker in workers {
            let (queues, _, mut pool, _) = worker.into_parts();
            for queue in queues {
                if let Receiver::Memory(queue) = queue {
                    queue.close(&mut pool);
                }
            }
        }
        self.assert_nothing_is_missing();
        assert_eq!(self.depot.frames(), u64::from(FRAMES));
        assert_eq!(faults().refs_leaked, 0, "each dst was put");
    }
}

impl Control {
    /// Handles the workers' reports; returns the neighbours that they miss.
    pub fn hear(&mut self, now_ns: u64) -> Vec<Key> {
        let mut missing = Vec::new();
        for reported in &mut self.reported {
            while let Some(report) = reported.pop() {
                if let Report::Missing { key, .. } = report {
                    missing.push(key);
                }
                self.routing.handle(report, Duration::from_nanos(now_ns), &mut self.told);
            }
            reported.release();
        }
        missing
    }

    /// Hears that a neighbour answers.
    pub fn answer(&mut self, key: Key, now_ns: u64) {
        let kind = match key.addr {
            IpAddr::V4(_) => Kind::ArpReply,
            IpAddr::V6(_) => {
                Kind::Advertisement { router: false, solicited: true, overrides: true }
            }
        };
        let report = Report::Answer { key, mac: Some(station(key.port.0).0), kind };
        self.routing.handle(report, Duration::from_nanos(now_ns), &mut self.told);
    }

    /// Sets a neighbour by the operator's word.
    pub fn set(&mut self, addr: &str, port: u16) {
        let key = Key { port: PortId(port), addr: addr.parse().expect("an address") };
        let mac = station(port).0;
        self.routing
            .set_neighbour(key, mac, Duration::ZERO, &mut self.told)
            .expect("there is room");
    }

    /// A route to what is around `to`, by several neighbours on port 1.
    pub fn add_group(&mut self, to: IpAddr, members: &[IpAddr], now_ns: u64) {
        let hop = |&next_hop| Hop { next_hop, port: PortId(1), weight: 1 };
        let target = RouteTarget::Group(members.iter().map(hop).collect());
        let prefix = Prefix::containing(to, if to.is_ipv4() { 24 } else { 48 });
        let now = Duration::from_nanos(now_ns);
        self.routing
            .add_route(&Route { prefix, target }, now, &mut self.told)
            .expect("there is room");
    }

    /// What is around `to` leads to this neighbour on port 1 from now on.
    pub fn lead(&mut self, to: IpAddr, next_hop: IpAddr) {
        let target = RouteTarget::Via { next_hop, port: PortId(1) };
        let prefix = Prefix::containing(to, if to.is_ipv4() { 24 } else { 48 });
        self.routing
            .add_route(&Route { prefix, target }, Duration::ZERO, &mut self.told)
            .expect("there is room");
    }

    pub fn tick(&mut self, now_ns: u64) {
        self.routing.tick(Duration::from_nanos(now_ns), &mut self.told);
        self.told.orders.clear();
    }
}

fn length(frames: u32) -> WordsMut<u32> {
    let mut word = WordsMut::zeroed(1);
    word.publish(0, frames);
    word
}

pub fn bell() -> Arc<Doorbell<EventFd>> {
    Arc::new(Doorbell::new(EventFd::open().expect("there are descriptors")))
}

fn routed_port(port: u16) -> RoutedPort {
    let v6 = Ipv6Addr::new(0x2001, 0xdb8, port, 0, 0, 0, 0, 1);
    let own4 = InterfaceAddress { address: [10, port as u8, 0, 1].into(), length: 16 };
    let own6 = InterfaceAddress { address: v6.into(), length: 64 };
    let facts = PortFacts {
        mac: ours(port),
        mtu: if port == 2 { SMALL_MTU } else { 1500 },
        offload: Offload::NONE,
        ipv4: vec![Ipv4Interface { addr: [10, port as u8, 0, 1].into(), len: 16 }],
        ipv6: vec![v6],
        link_local: Some(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x11 + port)),
        vlan: None,
        vlans: Vec::new(),
        anycast: Vec::new(),
    };
    RoutedPort { facts, addresses: vec![own4, own6] }
}

pub fn ours(port: u16) -> Mac {
    Mac([2, 0, 0, 0, 0, port as u8])
}

pub fn station(port: u16) -> Mac {
    Mac([2, 0, 0, 0, 1, port as u8])
}

/// A queue of `port` that receives what is put in `feed`.
pub fn fed(port: u16, queue: u16, feed: &Feed) -> Receiver {
    fed_in_parts(port, queue, feed, usize::MAX)
}

/// As above, in frames of `part_len` bytes each.
pub fn fed_in_parts(port: u16, queue: u16, feed: &Feed, part_len: usize) -> Receiver {
    let feed = feed.clone();
    source_in_parts(port, queue, part_len, move || {
        let mut feed = feed.lock().unwrap();
        if feed.is_empty() { None } else { Some(feed.remove(0)) }
    })
}

/// A queue of `port` that receives what `next` makes.
pub fn source(
    port: u16,
    queue: u16,
    next: impl FnMut() -> Option<Vec<u8>> + Send + 'static,
) -> Receiver {
    source_in_parts(port, queue, usize::MAX, next)
}

/// As above, in frames of `part_len` bytes each.
pub fn source_in_parts(
    port: u16,
    queue: u16,
    part_len: usize,
    mut next: impl FnMut() -> Option<Vec<u8>> + Send + 'static,
) -> Receiver {
    let source = Box::new(move |pool: &mut manylane_frame::Pool, batch: &mut _, _| {
        let batch: &mut manylane_frame::Batch = batch;
        for _ in 0..pool.may_receive(batch.room()) {
            let mut frame = pool.take().expect("it has just said so");
            let Some(bytes) = next() else {
                pool.give_back(frame);
                break;
            };
            let mut parts = bytes.chunks(part_len);
            fill(pool.region(), &mut frame, parts.next().unwrap_or_default());
            for bytes in parts {
                let mut part = pool.take().expect("there are frames enough");
                fill(pool.region(), &mut part, bytes);
                pool.region().view().append(&mut frame, part).expect("a few parts");
            }
            batch.push(frame).expect("it is not full");
        }
        Next::More
    });
    Receiver::Memory(memory::Receiver::from_source(PortId(port), QueueId(queue), source))
}

pub fn fill(region: &Region, frame: &mut Frame, bytes: &[u8]) {
    region.set_window(frame, HEADROOM, HEADROOM + bytes.len() as u16);
    region.bytes_mut(frame).copy_from_slice(bytes);
}

/// A transmitter that remembers the frames.
pub fn sink(seen: &Seen) -> Transmitter {
    let seen = seen.clone();
    let sink = move |region: &Region, frames: &[Frame]| {
        let mut seen = seen.lock().unwrap();
        seen.extend(frames.iter().map(|frame| region.bytes(frame).to_vec()));
    };
    Transmitter::Memory(memory::Transmitter::into_sink(Box::new(sink)))
}

pub fn sinks() -> (Vec<Seen>, Vec<Transmitter>) {
    let seen: Vec<Seen> = (0..PORTS).map(|_| Seen::default()).collect();
    let transmitters = seen.iter().map(sink).collect();
    (seen, transmitters)
}

/// UDP from the station of port 0, behind it the flow's sequence number.
pub fn packet(to: IpAddr, flow: u16, sequence: u32, len: usize) -> Vec<u8> {
    let mut datagram = vec![0; 8 + len.max(4)];
    datagram[8..12].copy_from_slice(&sequence.to_be_bytes());
    let mut frame = vec![0; 14];
    let ether_type = match to {
        IpAddr::V4(destination) => {
            let source = [10, 0, 0, 2].into();
            let (from, to) = (SocketAddrV4::new(source, flow), SocketAddrV4::new(destination, 9));
            udp::emit_v4(&mut datagram, from, to).expect("it fits");
            let (tos, identification, dont_fragment, ttl) = (0, 1, false, 64);
            let protocol = protocol::UDP;
            let header = ipv4::Header {
                tos,
                identification,
                dont_fragment,
                ttl,
                protocol,
                source,
                destination,
            };
            frame.resize(14 + 20, 0);
            header.emit(&mut frame[14..], datagram.len()).expect("it fits");
            ether_type::IPV4
        }
        IpAddr::V6(destination) => {
            let source = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
            let from = SocketAddrV6::new(source, flow, 0, 0);
            udp::emit_v6(&mut datagram, from, SocketAddrV6::new(destination, 9, 0, 0))
                .expect("it fits");
            let (traffic_class, flow_label, hop_limit) = (0, 0, 64);
            let next_header = protocol::UDP;
            let header = ipv6::Header {
                traffic_class,
                flow_label,
                next_header,
                hop_limit,
                source,
                destination,
            };
            frame.resize(14 + 40, 0);
            header.emit(&mut frame[14..], datagram.len()).expect("it fits");
            ether_type::IPV6
        }
    };
    ethernet::emit(&mut frame, ours(0), station(0), ether_type).expect("there is room");
    [frame, datagram].concat()
}

/// Flow and sequence number of a frame that [`packet`] made.
pub fn stamp(frame: &[u8]) -> Option<(u16, u32)> {
    let at = 14 + if frame[12] == 0x08 { 20 } else { 40 };
    let (flow, sequence) = (frame.get(at..at + 2)?, frame.get(at + 8..at + 12)?);
    Some((u16::from_be_bytes(flow.try_into().ok()?), u32::from_be_bytes(sequence.try_into().ok()?)))
}

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): the same numbers for the same seed.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % end
    }
}
