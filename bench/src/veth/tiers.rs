//! The tiers side by side: the kernel, our program in the driver, our workers, and what they are measured against, all
//! with the same sink, in turn.
//!
//! Frames of 64 bytes come from a generator that shares a core with whoever forwards in a softirq; workers have the
//! other core. They end in one of three sinks at the server, and the kernel is measured with each:
//!
//! | sink       | what takes frames at the server                        | suffix   |
//! |------------|--------------------------------------------------------|----------|
//! | XDP        | a program in its driver counts and drops them          |          |
//! | GRO        | its stack, by the device's own receive polling         | `_gro`   |
//! | plain      | its stack, by the sender's backlog: a veth as it is made | `_plain` |
//!
//! A veth takes redirected frames only with the first two. What is redirected (`driver`, `xdp_fib`, `floor`) is for
//! frames that a driver sees first: the kernel, which makes a packet of each, gains less from such a sink.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use manylane::accelerate::{Options, TierChoice};
use manylane::api::accelerate::Accelerated;
use manylane::lab::accelerated::IN_A_ROW_BY_TWO_QUEUES;
use manylane_io::bpf::{Destinations, LiveGenerator, LiveOptions, LiveSink, Yardstick};
use manylane_io::interface::Interface;
use manylane_net::wire::ethernet::{self, Mac, ether_type};
use manylane_net::wire::{ipv4, ipv6, protocol, udp};

use super::Plan;
use super::bed::{Bed, NOBODYS_MAC, PORTS};
use super::rate::rate;
use crate::figure::Rounds;
use crate::tcp::Stop;

/// Who forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contestant {
    Kernel,
    /// Our program at tcx, which is for software devices: measured as those are.
    Ingress,
    Driver,
    /// So many workers.
    Workers(usize),
    /// An XDP program that asks the kernel's tables.
    Fib,
    /// An XDP program that looks up nothing.
    Floor,
    /// Nobody: frames are dropped where they come in.
    Generator,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sink {
    Xdp,
    Gro,
    Plain,
}

use Contestant::{Driver, Fib, Floor, Generator, Ingress, Kernel, Workers};

/// Who is measured with each sink.
const WITH: [(Sink, &[Contestant]); 3] = [
    (Sink::Xdp, &[Generator, Floor, Kernel, Fib, Driver, Workers(1), Workers(2)]),
    (Sink::Gro, &[Kernel, Fib, Driver, Workers(1)]),
    (Sink::Plain, &[Kernel, Ingress, Workers(1)]),
];

impl Contestant {
    fn name(self) -> &'static str {
        match self {
            Kernel => "kernel",
            Ingress => "ingress",
            Driver => "driver",
            Workers(1) => "workers",
            Workers(_) => "workers_2",
            Fib => "xdp_fib",
            Floor => "floor",
            Generator => "generator",
        }
    }
}

impl Contestant {
    /// The name of its rate.
    fn figure(self, sink: Sink) -> String {
        // What is at tcx has one sink, and no suffix for it.
        let sink = if self == Ingress { "" } else { sink.suffix() };
        format!("{}_mpps{sink}", self.name())
    }
}

impl Sink {
    fn suffix(self) -> &'static str {
        match self {
            Sink::Xdp => "",
            Sink::Gro => "_gro",
            Sink::Plain => "_plain",
        }
    }
}

/// All with this table, of which `suffix` says what it is.
pub fn measure(
    plan: &Plan,
    routes: &[(IpAddr, u8)],
    suffix: &str,
    cores: [usize; 2],
    rounds: &mut Rounds,
) -> Result<(), Stop> {
    let mut places = [
        Place::new(Bed::kernel(routes)?)?,
        Place::new(Bed::accelerated_with(routes, options(1, cores))?)?,
        Place::new(with_two_queues(routes, options(2, cores))?)?,
    ];
    let flows = if suffix.is_empty() { few() } else { many(routes) };
    for _ in 0..plan.rounds() {
        for (sink, contestants) in WITH {
            for (kind, flows) in with(sink, &flows) {
                for &contestant in contestants {
                    let place = match contestant {
                        Ingress | Driver | Workers(1) => &mut places[1],
                        Workers(_) => &mut places[2],
                        _ => &mut places[0],
                    };
                    let mpps = place.forwarded(contestant, sink, flows, cores[0], plan)?;
                    rounds.push(
                        &format!("{}{suffix}{kind}", contestant.figure(sink)),
                        "Mpps",
                        Some(mpps),
                    );
                }
                if sink == Sink::Xdp {
                    net(rounds, &format!("{suffix}{kind}"));
                }
            }
        }
    }
    rounds.ratio(
        &format!("ingress_over_kernel{suffix}"),
        &format!("ingress_mpps{suffix}"),
        &format!("kernel_mpps_plain{suffix}"),
    );
    for (over, under, sinks) in [
        (Driver, Kernel, &[Sink::Xdp, Sink::Gro][..]),
        (Driver, Fib, &[Sink::Xdp, Sink::Gro]),
        (Workers(1), Kernel, &[Sink::Xdp, Sink::Gro, Sink::Plain]),
        (Workers(2), Kernel, &[Sink::Xdp]),
    ] {
        for &sink in sinks {
            for (kind, _) in with(sink, &flows) {
                let end = format!("{suffix}{kind}");
                let name = format!("{}_over_{}{}{end}", over.name(), under.name(), sink.suffix());
                let [over, under] = [over, under].map(|who| format!("{}{end}", who.figure(sink)));
                rounds.ratio(&name, &over, &under);
            }
        }
    }
    for (kind, _) in with(Sink::Xdp, &flows) {
        let of = |who: &str| format!("{who}_net_ns{suffix}{kind}");
        rounds.ratio(&format!("driver_over_floor{suffix}{kind}"), &of("driver"), &of("floor"));
    }
    let of = |family: &str| format!("driver_net_ns{suffix}{family}");
    rounds.ratio(&format!("driver_v6_over_v4{suffix}"), &of("_v6"), &of(""));
    places.into_iter().try_for_each(|place| place.bed.close())
}

/// What one frame costs without the generator's part.
fn net(rounds: &mut Rounds, suffix: &str) {
    let ns = |rounds: &Rounds, who: &str| Some(1e3 / rounds.last(&format!("{who}_mpps{suffix}"))?);
    let generator = ns(rounds, "generator");
    for who in ["floor", "xdp_fib", "driver"] {
        let value = ns(rounds, who).zip(generator).map(|(all, generator)| all - generator);
        rounds.push(&format!("{who}_net_ns{suffix}"), "ns", value);
    }
}

/// A queue for each of two workers on every link. The frames of one sender come by one of them.
fn with_two_queues(routes: &[(IpAddr, u8)], options: Options) -> Result<Bed, Stop> {
    let mut bed = Bed::kernel_between(IN_A_ROW_BY_TWO_QUEUES, routes)?;
    bed.accelerate(options)?;
    Ok(bed)
}

fn options(workers: usize, [first, last]: [usize; 2]) -> Options {
    Options { workers: Some(workers), worker_cores: vec![last, first], ..Options::new(PORTS) }
}

/// A bed, and what is set there.
struct Place {
    bed: Bed,
    sink: Option<(Sink, Option<LiveSink>)>,
}

impl Place {
    fn new(bed: Bed) -> Result<Place, Stop> {
        // Both ways are to be the tier's.
        bed.topology().try_tool("client", "ethtool -K eth0 gro on").map_err(Stop::failed)?;
        Ok(Place { bed, sink: None })
    }

    /// Million frames a second that reach the sink; nearly all of them have to be by the contestant.
    fn forwarded(
        &mut self,
        contestant: Contestant,
        sink: Sink,
        flows: &Flows,
        core: usize,
        plan: &Plan,
    ) -> Result<f64, Stop> {
        self.end_in(sink)?;
        let router = self.bed.topology().host("r1");
        let mut dropped_at_once = None;
        let mut _yardstick = None;
        let tier = match contestant {
            Kernel => None,
            Ingress => Some("ingress"),
            Driver => Some("driver"),
            Workers(_) => Some("workers"),
            Fib | Floor => {
                let which = if contestant == Fib { Yardstick::Fib } else { Yardstick::Floor };
                let link = router.run(move || {
                    let [lan, wan] = PORTS.map(Interface::read);
                    let (lan, wan) = (lan.map_err(Stop::failed)?, wan.map_err(Stop::failed)?);
                    let nobody: Mac = NOBODYS_MAC.parse().expect("it is written in bed.rs");
                    which.attach(&lan, &wan, [nobody.0, wan.mac]).map_err(Stop::failed)
                });
                _yardstick = Some(link?);
                None
            }
            Generator => {
                dropped_at_once = Some(router.run(|| sink_at("lan"))?);
                None
            }
        };
        if let (Some(source), Some(tier)) = (self.bed.source(), tier) {
            choose(&source, tier)?;
        }
        let by_tier = || -> Option<u64> {
            let ledger = self.bed.source()?.ledger();
            tier.map(|tier| ledger.tiers.get(tier).copied().unwrap_or(0))
        };
        let generator = self.generator(flows, core)?;
        let before = by_tier();
        let (frames, elapsed) = rate(plan.slice(), || match (&dropped_at_once, &self.sink) {
            (Some(sink), _) | (None, Some((_, Some(sink)))) => Ok(sink.dropped().0),
            _ => self.bed.received(),
        })?;
        if let (Some(before), Some(after)) = (before, by_tier())
            && ((after - before) as f64) < frames * 0.95
        {
            let ledger = self.bed.source().map(|source| source.ledger());
            let why = format!(
                "{} of {frames} frames were forwarded by {tier:?}: {ledger:#?}",
                after - before
            );
            return Err(Stop::Failed(why));
        }
        generator.stop()?;
        Ok(frames / elapsed / 1e6)
    }

    /// What is sent from now on ends there.
    fn end_in(&mut self, sink: Sink) -> Result<(), Stop> {
        if self.sink.as_ref().is_some_and(|set| set.0 == sink) {
            return Ok(());
        }
        drop(self.sink.take());
        let gro = if sink == Sink::Gro { "on" } else { "off" };
        let topology = self.bed.topology();
        topology.try_tool("server", &format!("ethtool -K eth0 gro {gro}")).map_err(Stop::failed)?;
        let program = match sink {
            Sink::Xdp => Some(topology.host("server").run(|| sink_at("eth0"))?),
            Sink::Gro | Sink::Plain => None,
        };
        self.sink = Some((sink, program));
        Ok(())
    }

    fn generator(&self, (destinations, one): &Flows, core: usize) -> Result<LiveGenerator, Stop> {
        let topology = self.bed.topology();
        let (gateway, ours) = (topology.mac("r1", "lan")?, topology.mac("client", "eth0")?);
        let options = LiveOptions {
            frame: frame([gateway, ours].map(Mac), *one),
            destinations: destinations.clone(),
            ports: 1,
            per_second: 0,
            core: Some(core),
        };
        topology.host("client").run(move || {
            let interface = Interface::read("eth0").map_err(Stop::failed)?;
            LiveGenerator::start(&interface, options).map_err(Stop::failed)
        })
    }
}

fn sink_at(name: &str) -> Result<LiveSink, Stop> {
    let interface = Interface::read(name).map_err(Stop::failed)?;
    LiveSink::attach(&interface).map_err(Stop::failed)
}

/// Who is to forward from now on; waits until they do, both in and out.
fn choose(source: &Arc<dyn Accelerated>, tier: &str) -> Result<(), Stop> {
    debug_assert!(TierChoice::named(tier).is_some());
    for port in PORTS {
        source
            .set(&format!("port.{port}.tier"), tier)
            .map_err(|error| Stop::Failed(format!("{port} to {tier}: {error:?}")))?;
    }
    let patience = Instant::now() + PATIENCE;
    loop {
        let ports = source.ports();
        if ports.iter().all(|port| port.tier == tier && port.exit_tier == tier) {
            return Ok(());
        }
        if Instant::now() > patience {
            return Err(Stop::Failed(format!("the tier {tier} did not begin: {ports:#?}")));
        }
        thread::sleep(LOOK); // It is another thread that decides, and tells nobody here.
    }
}

/// Where the frames of a family go, and one such address.
type Flows = (Destinations, IpAddr);

/// Flows, and the suffix that they have in the figures' names.
type Kind = (&'static str, Flows);

/// The kinds of flows that are measured with a sink. Other sinks than XDP are about what lies behind the router: one kind
/// says it.
fn with(sink: Sink, flows: &[Kind]) -> &[Kind] {
    if sink == Sink::Xdp { flows } else { &flows[..1] }
}

/// One flow of each family.
fn few() -> Vec<Kind> {
    let ipv6 = Ipv6Addr::new(0x2001, 0xdb8, 0x128, 0, 0, 0, 0, 1);
    let kinds = [("", Ipv4Addr::new(10, 128, 0, 1).into()), ("_v6", IpAddr::V6(ipv6))];
    kinds.map(|(kind, to)| (kind, (Destinations::InTurn(vec![to]), to))).into()
}

/// 65,536 flows of each family, each frame's drawn anew: in IPv4 all over the address space from 16.0.0.0 to
/// 111.255.255.255, as in the baselines of other forwarders; in IPv6, of which nearly all is empty, in prefixes of the
/// table. And 65,536 that are near each other, to hosts of one /16, by the default route.
fn many(routes: &[(IpAddr, u8)]) -> Vec<Kind> {
    let prefixes: Vec<Ipv6Addr> = routes
        .iter()
        .filter_map(|(address, length)| match address {
            IpAddr::V6(address) if *length <= 64 => Some(*address),
            _ => None,
        })
        .collect();
    let ipv6 = |n: u32| {
        // Knuth's multiplier: numbers that are near each other go far apart.
        let prefix = prefixes[n.wrapping_mul(2_654_435_761) as usize % prefixes.len()];
        IpAddr::V6(Ipv6Addr::from_bits(prefix.to_bits() | 1))
    };
    let drawn: Vec<IpAddr> = (0..FLOWS).map(ipv6).collect();
    let one = drawn[0];
    vec![
        ("", (Destinations::Spread, [16, 0, 0, 1].into())),
        ("_v6", (Destinations::Drawn(drawn), one)),
        ("_near", (Destinations::Near, [10, 128, 0, 1].into())),
    ]
}

/// 64 bytes of UDP.
fn frame([to, from]: [Mac; 2], destination: IpAddr) -> Vec<u8> {
    let mut frame = vec![0; 64];
    let (head, packet) = frame.split_at_mut(ethernet::HEADER_LEN);
    let emitted = match destination {
        IpAddr::V4(destination) => {
            ethernet::emit(head, to, from, ether_type::IPV4).expect("it fits");
            let (header, datagram) = packet.split_at_mut(ipv4::HEADER_LEN);
            datagram[..4].copy_from_slice(&[0x04, 0, 0, 9]);
            datagram[5] = datagram.len() as u8; // UDP's length; without a checksum.
            let source = Ipv4Addr::new(10, 1, 0, 1);
            let fields = ipv4::Header {
                tos: 0,
                identification: 0,
                dont_fragment: false,
                ttl: 64,
                protocol: protocol::UDP,
                source,
                destination,
            };
            fields.emit(header, datagram.len())
        }
        IpAddr::V6(destination) => {
            ethernet::emit(head, to, from, ether_type::IPV6).expect("it fits");
            let (header, datagram) = packet.split_at_mut(ipv6::HEADER_LEN);
            let source = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
            let ports = [1024, 9]
                .map(|port| move |address| std::net::SocketAddrV6::new(address, port, 0, 0));
            udp::emit_v6(datagram, ports[0](source), ports[1](destination)).expect("it fits");
            let fields = ipv6::Header {
                traffic_class: 0,
                flow_label: 0,
                next_header: protocol::UDP,
                hop_limit: 64,
                source,
                destination,
            };
            fields.emit(header, datagram.len())
        }
    };
    emitted.expect("it fits");
    frame
}

const FLOWS: u32 = 1 << 16;
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(5);
