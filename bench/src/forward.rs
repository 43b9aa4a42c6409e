//! What does one worker forward between memory ports, with a full table?
//!
//! The measured loop does what a router does with a frame that its device has just written: it takes a
//! free frame, writes 64 bytes into it with a destination and a checksum from 2^20 targets (the
//! device's work), and turns the unmodified worker: all checks, full-table lookup, neighbour, TTL and
//! checksum, ledger, grace periods; then the frame is given back. 256 next hops on two ports.
//!
//! Figures, for IPv4 and IPv6, for destinations drawn inside announced prefixes (`random`) and for one
//! destination (`same`): million frames a second, and nanoseconds a frame. `generator_ns` is the part
//! of the device's work and the pool alone.
//!
//! Not asked here: more than one worker, devices, other frame sizes, latency.
//!
//! Needs a core with nothing else on it. The four rows are interleaved.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use manylane::control::routing::{RoutedPort, Routing, RoutingLimits, Told, neighbour_id};
use manylane::socket::{self, SocketLimits, Sockets};
use manylane::stats::{PortCount, Stats, StatsReader};
use manylane::trace::Traces;
use manylane::worker::desk::desk;
use manylane::worker::handoff::limits;
use manylane::worker::{Clock, HandOff, STOP, Taps, Worker, WorkerParts};
use manylane_frame::vocabulary::{Offload, PortId, QueueId, WorkerId};
use manylane_frame::{BATCH_MAX, Batch, Depot, Pool, Region, RegionConfig};
use manylane_io::affinity;
use manylane_io::eventfd::EventFd;
use manylane_io::port::memory::{self, Next};
use manylane_io::port::{Receiver, Transmitter};
use manylane_net::fib::NextHopId;
use manylane_net::forward::{Forwarder, PortFacts};
use manylane_net::icmp::RateLimit;
use manylane_net::neighbour::{HoldLimits, HoldQueues, Key};
use manylane_net::wire::checksum::Sum;
use manylane_net::wire::ethernet::{self, Mac, ether_type};
use manylane_net::wire::{ipv4, ipv6, protocol, udp};
use manylane_sync::doorbell::Doorbell;
use manylane_sync::rcu::Domain;
use manylane_sync::ring::ring;
use manylane_sync::words::{Words, WordsMut};

use crate::figure::Output;
use crate::observation;
use crate::prefixes::{Draw, Prefixes, Random};

/// How to measure.
pub struct Plan {
    /// The table, if not synthetic.
    pub prefixes: Option<PathBuf>,
    /// Short runs.
    pub quick: bool,
    /// How often each figure is measured.
    pub runs: usize,
    /// The core to run on.
    pub core: Option<usize>,
    /// Only rows whose names begin so.
    pub row: String,
}

const TARGETS: usize = 1 << 20;
const NEXT_HOPS: u32 = 256;
/// Bytes of a frame, and of what is written of a longer one's headers.
pub const FRAME_LEN: usize = 64;
const FRAMES: u32 = 16_384;
const ROUTER: Mac = Mac([2, 0, 0, 0, 0, 0x11]);
const SENDER: Mac = Mac([2, 0, 0, 0, 0, 1]);
const IPV4_SOURCE: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
const IPV6_SOURCE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);

/// What the source makes: a row of the result.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Row {
    Ipv4Random,
    Ipv4Same,
    Ipv6Random,
    Ipv6Same,
}

const ROWS: [(Row, &str); 4] = [
    (Row::Ipv4Random, "ipv4_random"),
    (Row::Ipv4Same, "ipv4_same"),
    (Row::Ipv6Random, "ipv6_random"),
    (Row::Ipv6Same, "ipv6_same"),
];

/// Measures and prints.
pub fn run(plan: Plan, output: &Output) -> io::Result<()> {
    let cores = affinity::cores()?;
    let core = plan.core.or(cores.last().copied()).unwrap_or(0);
    affinity::pin(core)?;
    let prefixes = match &plan.prefixes {
        Some(file) => Prefixes::read(file)?,
        None => Prefixes::synthetic(),
    };
    output.note(&format!(
        "{} IPv4 and {} IPv6 prefixes, 64-byte frames, one worker on core {core}",
        prefixes.ipv4.len(),
        prefixes.ipv6.len()
    ));
    let slice = Duration::from_millis(if plan.quick { 20 } else { 400 });
    let runs = if plan.quick { 3 } else { plan.runs.max(7) };

    let mut lab = Lab::new(&prefixes)?;
    let rows: Vec<_> =
        ROWS.into_iter().filter(|(_, name)| name.starts_with(plan.row.as_str())).collect();
    let mut figures: Vec<Vec<f64>> = rows.iter().map(|_| Vec::new()).collect();
    let mut generator = Vec::new();
    for run in 0..=runs {
        for ((row, name), figure) in rows.iter().zip(&mut figures) {
            let ns = lab.measure(*row, slice, name)?;
            if run > 0 {
                figure.push(ns); // The first round warms up.
            }
        }
        let ns = lab.generator(slice);
        if run > 0 {
            generator.push(ns);
        }
    }
    for ((_, name), ns) in rows.iter().zip(&figures) {
        let mpps: Vec<f64> = ns.iter().map(|ns| 1e3 / ns).collect();
        output.figure(&format!("{name}_mpps"), "Mpps", &mpps);
        output.figure(&format!("{name}_ns"), "ns", ns);
    }
    output.figure("generator_ns", "ns", &generator);
    match plan.row.as_str() {
        "" => observation::cost(plan.quick, runs, core, &cores, output),
        _ => Ok(()),
    }
}

/// One worker and what it stands on.
struct Lab {
    worker: Worker,
    stats: StatsReader,
    row: WordsMut<u32>,
    clock: Clock,
    /// The same source and pool without a worker around them.
    source: Generator,
    pool: Pool,
    _routing: Routing,
}

impl Lab {
    fn new(prefixes: &Prefixes) -> io::Result<Lab> {
        let domain = Domain::new(1);
        let mut routing = routing(&domain)?;
        let hops = pin_next_hops(&mut routing)?;
        load(&mut routing, prefixes, &hops)?;

        let region = RegionConfig { frames: FRAMES, frame_size: 2048 };
        let region = Region::new(region).map_err(io::Error::other)?;
        let depot = Depot::new(region, 2).expect("the region is new");
        let row = WordsMut::zeroed(1);
        let targets = Arc::new(Targets::new(prefixes));
        let source = Generator::new(row.reader(), targets);
        let mut own = source.clone();
        let feed = Box::new(move |pool: &mut Pool, batch: &mut Batch, _| {
            own.fill(pool, batch);
            Next::More
        });
        let clock = Clock::start();
        let sinks: [memory::Sink; 2] = [Box::new(|_, _| {}), Box::new(|_, _| {})];
        let limit = RateLimit::new(1000, 50);
        let (worker, reader) =
            worker(&domain, &routing, depot.pool(), vec![feed], sinks, limit, clock)?;
        Ok(Lab { worker, stats: reader, row, clock, source, pool: depot.pool(), _routing: routing })
    }

    /// Nanoseconds a frame, over a time slice. An error when a frame was not forwarded.
    fn measure(&mut self, row: Row, slice: Duration, name: &str) -> io::Result<f64> {
        self.row.publish(0, row as u32);
        let before = self.counts();
        let start = Instant::now();
        let mut frames = 0;
        while start.elapsed() < slice {
            for _ in 0..256 {
                let now_ns = self.clock.now_ns();
                frames += self.worker.turn(now_ns);
            }
        }
        let ns = start.elapsed().as_nanos() as f64 / frames as f64;
        let after = self.counts();
        if (after.0 - before.0, after.1 - before.1) != (frames as u64, frames as u64) {
            return Err(io::Error::other(format!("{name}: not every frame was forwarded")));
        }
        Ok(ns)
    }

    fn counts(&self) -> (u64, u64) {
        let sum = |what| (0..2).map(|port| self.stats.port(PortId(port), what)).sum();
        (sum(PortCount::Received), sum(PortCount::Transmitted))
    }

    /// Nanoseconds a frame for making frames and giving them back.
    fn generator(&mut self, slice: Duration) -> f64 {
        self.row.publish(0, Row::Ipv4Random as u32);
        let start = Instant::now();
        let mut frames = 0;
        while start.elapsed() < slice {
            for _ in 0..256 {
                let mut batch = Batch::new();
                self.source.fill(&mut self.pool, &mut batch);
                frames += batch.len();
                self.pool.give_back_all(&mut batch);
            }
        }
        start.elapsed().as_nanos() as f64 / frames as f64
    }
}

/// A worker with a receive queue of port 0 for each of `sources`, and ports 0 and 1 to go out by.
pub fn worker(
    domain: &Domain,
    routing: &Routing,
    pool: Pool,
    sources: Vec<memory::Source>,
    sinks: [memory::Sink; 2],
    errors: RateLimit,
    clock: Clock,
) -> io::Result<(Worker, StatsReader)> {
    let limits = limits::words(1000, 300, 64).reader();
    let phase = stopped();
    let place =
        Place { id: WorkerId(0), sources, sinks, errors, handoff: None, limits, phase, taps: None };
    worker_at(domain, routing, pool, place, clock)
}

/// What workers of a bench differ in.
pub struct Place {
    /// Which worker of several.
    pub id: WorkerId,
    /// Each feeds a receive queue of port 0.
    pub sources: Vec<memory::Source>,
    /// Where ports 0 and 1 end.
    pub sinks: [memory::Sink; 2],
    /// How many ICMP errors it may send.
    pub errors: RateLimit,
    /// What it has with other workers.
    pub handoff: Option<Box<HandOff>>,
    /// How much it takes in a turn, and hands on.
    pub limits: Words<u32>,
    /// Until when [`Worker::run`] goes on.
    pub phase: Words<u32>,
    /// The packet sockets that it looks at, if not of a table without any.
    pub taps: Option<Taps>,
}

/// The phase of a worker that the bench turns itself: `run` is for its end, and returns when it has dropped what
/// it holds.
pub fn stopped() -> Words<u32> {
    let mut phase = WordsMut::zeroed(1);
    phase.store(0, STOP);
    phase.reader()
}

/// A worker.
pub fn worker_at(
    domain: &Domain,
    routing: &Routing,
    pool: Pool,
    place: Place,
    clock: Clock,
) -> io::Result<(Worker, StatsReader)> {
    let Place { id, sources, sinks, errors, handoff, limits, phase, taps } = place;
    let queue = |(queue, source)| {
        let queue = QueueId(queue);
        Receiver::Memory(memory::Receiver::from_source(PortId(0), queue, source))
    };
    let exit = |sink| (Transmitter::Memory(memory::Transmitter::into_sink(sink)), None);
    let bell = Arc::new(Doorbell::new(EventFd::open()?));
    // The other ends of the rings: nothing is reported or ordered here.
    let (reports, _reported) = ring(16);
    let (_orders, orders) = ring(16);
    let stats = Stats::new(2);
    let reader = stats.reader();
    let taps = taps.unwrap_or_else(|| no_sockets(domain, &bell, clock).taps(id, None));
    let worker = Worker::new(WorkerParts {
        id,
        reader: domain.register().expect("the domain has a place for each"),
        forwarder: Forwarder::new(pool.region().clone(), routing.tables(), errors),
        pool,
        holds: HoldQueues::new(HoldLimits::default()),
        dsts: routing.dsts(),
        queues: (0..).zip(sources).map(queue).collect(),
        transmitters: sinks.into_iter().map(exit).collect(),
        stats,
        reports,
        control: bell.clone(),
        orders,
        bell: bell.clone(),
        phase,
        hot_list_len: WordsMut::zeroed(1).reader(),
        handoff,
        desk: desk(&bell).0,
        limits,
        taps,
        tracer: Traces::new(domain, 1, clock).1.remove(0),
        clock,
        idle_spin: Duration::ZERO,
    });
    Ok((worker, reader))
}

/// Packet sockets, of which there are none yet, bound to ports 0 and 1.
pub fn no_sockets(domain: &Domain, bell: &Arc<Doorbell<EventFd>>, clock: Clock) -> Sockets {
    let place = |device| socket::Place { device: PortId(device), tags: None, packet_max: 1514 };
    let limits = SocketLimits::default();
    Sockets::new(domain.clone(), 3, &[0, 1].map(place), limits, bell.clone(), clock).0
}

/// Two ports without addresses, and room for a full table.
pub fn routing(domain: &Domain) -> io::Result<Routing> {
    let port = |last| RoutedPort {
        facts: PortFacts {
            mac: Mac([2, 0, 0, 0, 0, last]),
            mtu: 1500,
            offload: Offload::NONE,
            ipv4: Vec::new(),
            ipv6: Vec::new(),
            link_local: Some(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last.into())),
            vlan: None,
            vlans: Vec::new(),
            anycast: Vec::new(),
        },
        addresses: Vec::new(),
    };
    let limits =
        RoutingLimits { neighbours_max: 8192, long_ipv4_routes: 65_536, ipv6_routes: 200_000 };
    Routing::new(domain, vec![port(ROUTER.0[5]), port(0x12)], limits).map_err(io::Error::other)
}

/// Next hops for both families, on both ports in turn, resolved.
pub fn pin_next_hops(routing: &mut Routing) -> io::Result<(Vec<NextHopId>, Vec<NextHopId>)> {
    let mut add = |addr: IpAddr, number: u32| {
        let key = Key { port: PortId((number & 1) as u16), addr };
        let mac = [2, 0x10, 0x10, 0x10, 0x10, number as u8];
        let slot = routing.set_neighbour(key, mac, Duration::ZERO, &mut Told::default());
        slot.map(neighbour_id).map_err(io::Error::other)
    };
    let ipv4 =
        (1..=NEXT_HOPS).map(|number| add(Ipv4Addr::from(0x0a02_0000 + number).into(), number));
    let ipv4 = ipv4.collect::<io::Result<_>>()?;
    let first = u128::from(IPV6_SOURCE) & !0xffff;
    let ipv6 = (1..=NEXT_HOPS)
        .map(|number| add(Ipv6Addr::from(first + 0x1000 + u128::from(number)).into(), number));
    Ok((ipv4, ipv6.collect::<io::Result<_>>()?))
}

/// A full table, over these next hops.
pub fn load(
    routing: &mut Routing,
    prefixes: &Prefixes,
    (ipv4, ipv6): &(Vec<NextHopId>, Vec<NextHopId>),
) -> io::Result<()> {
    let mut random = Random(7);
    let routes = prefixes.ipv4.iter().map(|&prefix| (prefix, ipv4[random.below(ipv4.len())]));
    routing.ipv4_mut().load(routes).map_err(io::Error::other)?;
    let mut random = Random(7);
    let routes = prefixes.ipv6.iter().map(|&prefix| (prefix, ipv6[random.below(ipv6.len())]));
    routing.ipv6_mut().load(routes).map_err(io::Error::other)?;
    Ok(())
}

/// What the device would write where: destination and checksum of each frame.
struct Targets {
    ipv4: Vec<(u32, u16)>,
    ipv6: Vec<([u8; 16], u16)>,
    /// One of them, for a batch of frames to one destination.
    ipv4_same: [(u32, u16); BATCH_MAX],
    ipv6_same: [([u8; 16], u16); BATCH_MAX],
    ipv4_template: [u8; FRAME_LEN],
    ipv6_template: [u8; FRAME_LEN],
}

impl Targets {
    fn new(prefixes: &Prefixes) -> Targets {
        let mut random = Random(99);
        let ipv4 = (0..TARGETS).map(|_| {
            let address = draw_ipv4(prefixes, &mut random);
            (address.to_be(), ipv4_template(address.into(), FRAME_LEN).1)
        });
        let ipv4: Vec<_> = ipv4.collect();
        let ipv6 = (0..TARGETS).map(|_| {
            let address = Ipv6Addr::from(prefixes.ipv6.as_slice().draw(&mut random));
            (address.octets(), ipv6_template(address).1)
        });
        let ipv6: Vec<_> = ipv6.collect();
        Targets {
            ipv4_same: [ipv4[5]; BATCH_MAX],
            ipv6_same: [ipv6[5]; BATCH_MAX],
            ipv4,
            ipv6,
            ipv4_template: ipv4_template(Ipv4Addr::UNSPECIFIED, FRAME_LEN).0,
            ipv6_template: ipv6_template(Ipv6Addr::UNSPECIFIED).0,
        }
    }
}

/// An address inside one of the prefixes. A real table has some in space that no unicast packet goes to.
pub fn draw_ipv4(prefixes: &Prefixes, random: &mut Random) -> u32 {
    loop {
        let address = prefixes.ipv4.as_slice().draw(random);
        if !ipv4::is_martian_destination(address.into()) {
            return address;
        }
    }
}

/// The beginning of a frame of `len` bytes to `destination`, and its header checksum in memory order.
pub fn ipv4_template(destination: Ipv4Addr, len: usize) -> ([u8; FRAME_LEN], u16) {
    let mut frame = [0; FRAME_LEN];
    ethernet::emit(&mut frame, ROUTER, SENDER, ether_type::IPV4).expect("it fits");
    let header = ipv4::Header {
        tos: 0,
        identification: 0,
        dont_fragment: false,
        ttl: 64,
        protocol: protocol::UDP,
        source: IPV4_SOURCE,
        destination,
    };
    header.emit(&mut frame[14..], len - 34).expect("it fits");
    frame[34..38].copy_from_slice(&[4, 0, 0, 9]); // Ports; without a checksum.
    frame[38..40].copy_from_slice(&(len as u16 - 34).to_be_bytes());
    (frame, u16::from_ne_bytes([frame[24], frame[25]]))
}

/// A frame to `destination`, and its UDP checksum in memory order.
fn ipv6_template(destination: Ipv6Addr) -> ([u8; FRAME_LEN], u16) {
    let mut frame = [0; FRAME_LEN];
    ethernet::emit(&mut frame, ROUTER, SENDER, ether_type::IPV6).expect("it fits");
    let header = ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        next_header: protocol::UDP,
        hop_limit: 64,
        source: IPV6_SOURCE,
        destination,
    };
    header.emit(&mut frame[14..], FRAME_LEN - 54).expect("it fits");
    frame[54..62].copy_from_slice(&[4, 0, 0, 9, 0, 10, 0, 0]);
    let pseudo = Sum::pseudo_v6(IPV6_SOURCE, destination, protocol::UDP, 10);
    let checksum = udp::or_all_ones(pseudo.plus(&frame[54..]).finish());
    frame[60..62].copy_from_slice(&checksum.to_be_bytes());
    (frame, u16::from_ne_bytes([frame[60], frame[61]]))
}

/// What stands for the device: writes frames.
#[derive(Clone)]
struct Generator {
    row: Words<u32>,
    targets: Arc<Targets>,
    next: usize,
}

impl Generator {
    fn new(row: Words<u32>, targets: Arc<Targets>) -> Generator {
        Generator { row, targets, next: 0 }
    }

    #[inline]
    fn fill(&mut self, pool: &mut Pool, batch: &mut Batch) {
        pool.take_into(batch, BATCH_MAX);
        let first = self.next;
        self.next = (first + BATCH_MAX) & (TARGETS - 1);
        let region = pool.region().view();
        let row = self.row.load(0);
        let targets = &*self.targets;
        if row < Row::Ipv6Random as u32 {
            let is_random = row == Row::Ipv4Random as u32;
            let targets4 = if is_random { &targets.ipv4[first..] } else { &targets.ipv4_same[..] };
            let windows = region.land(batch.as_mut_slice(), FRAME_LEN as u16);
            for (bytes, (address, checksum)) in windows.zip(targets4) {
                let bytes = bytes.first_chunk_mut::<FRAME_LEN>().expect("as long as was asked for");
                *bytes = targets.ipv4_template;
                bytes[24..26].copy_from_slice(&checksum.to_ne_bytes());
                bytes[30..34].copy_from_slice(&address.to_ne_bytes());
            }
        } else {
            let is_random = row == Row::Ipv6Random as u32;
            let targets6 = if is_random { &targets.ipv6[first..] } else { &targets.ipv6_same[..] };
            let windows = region.land(batch.as_mut_slice(), FRAME_LEN as u16);
            for (bytes, (address, checksum)) in windows.zip(targets6) {
                let bytes = bytes.first_chunk_mut::<FRAME_LEN>().expect("as long as was asked for");
                *bytes = targets.ipv6_template;
                bytes[38..54].copy_from_slice(address);
                bytes[60..62].copy_from_slice(&checksum.to_ne_bytes());
            }
        }
    }
}
