//! The tiers side by side: the kernel, our program in the driver, our workers, and what they are measured against, all
//! with the same sink, in turn.
//!
//! The generator of 64-byte frames shares a core with forwarding in softirqs; workers have the other core. Frames end in
//! one of three sinks at the server, and the kernel is measured with each:
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

use manylane_accelerate::accelerator::{Options, TierChoice};
use manylane_api::accelerate::Accelerated;
use manylane_io::interface::Interface;
use manylane_lab::accelerated::{IN_A_ROW, IN_A_ROW_BY_TWO_QUEUES};
use manylane_lab::generator::{Destinations, LiveSink, Yardstick};
use manylane_net::wire::ethernet::Mac;

use super::Plan;
use crate::figure::Rounds;
use crate::network::{Done, NOBODYS_MAC, Network, PORTS, Stop, rate};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contestant {
    Kernel,
    /// Our program at tcx, which is for software devices: measured as those are.
    Ingress,
    Driver,
    Workers(usize),
    /// An XDP program that queries the kernel's tables.
    Fib,
    /// An XDP program that looks up nothing.
    Floor,
    /// Nothing: the router drops frames where it receives them.
    Generator,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sink {
    Xdp,
    Gro,
    Plain,
}

use Contestant::{Driver, Fib, Floor, Generator, Ingress, Kernel, Workers};

/// The contestants with each sink.
const WITH: [(Sink, &[Contestant]); 3] = [
    (Sink::Xdp, &[Generator, Floor, Kernel, Fib, Driver, Workers(1), Workers(2)]),
    (Sink::Gro, &[Kernel, Fib, Driver, Workers(1)]),
    (Sink::Plain, &[Kernel, Ingress, Workers(1)]),
];

/// Over, under, and the sinks with which their ratio is printed.
const RATIOS: [(Contestant, Contestant, &[Sink]); 4] = [
    (Driver, Kernel, &[Sink::Xdp, Sink::Gro]),
    (Driver, Fib, &[Sink::Xdp, Sink::Gro]),
    (Workers(1), Kernel, &[Sink::Xdp, Sink::Gro, Sink::Plain]),
    (Workers(2), Kernel, &[Sink::Xdp]),
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

    /// The tier of the accelerator that it is.
    fn tier(self) -> Option<&'static str> {
        match self {
            Ingress => Some("ingress"),
            Driver => Some("driver"),
            Workers(_) => Some("workers"),
            Kernel | Fib | Floor | Generator => None,
        }
    }

    /// The name of its rate. Ingress has one sink, and no suffix for it.
    fn figure(self, sink: Sink) -> String {
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

/// All with this table, which `suffix` names.
pub fn measure(
    plan: &Plan,
    routes: &[(IpAddr, u8)],
    suffix: &str,
    cores: [usize; 2],
    rounds: &mut Rounds,
) -> Done {
    let accelerated = |links, workers| {
        let worker_cores = vec![cores[1], cores[0]];
        let options = Options { workers: Some(workers), worker_cores, ..Options::new(PORTS) };
        Network::accelerated(links, routes, options)
    };
    let mut places = [
        Place::new(Network::with_routes(IN_A_ROW, routes)?)?,
        Place::new(accelerated(IN_A_ROW, 1)?)?,
        // A queue for each worker on every link. One sender's frames arrive by one of them.
        Place::new(accelerated(IN_A_ROW_BY_TWO_QUEUES, 2)?)?,
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
                    let name = format!("{}{suffix}{kind}", contestant.figure(sink));
                    rounds.push(&name, "Mpps", Some(mpps));
                }
                if sink == Sink::Xdp {
                    net(rounds, &format!("{suffix}{kind}"));
                }
            }
        }
    }
    let mut ratio = |name: &str, over: &str, under: &str, end: &str| {
        let [name, over, under] = [name, over, under].map(|part| format!("{part}{end}"));
        rounds.ratio(&name, &over, &under);
    };
    ratio("ingress_over_kernel", "ingress_mpps", "kernel_mpps_plain", suffix);
    for (over, under, sinks) in RATIOS {
        for &sink in sinks {
            for (kind, _) in with(sink, &flows) {
                let name = format!("{}_over_{}{}", over.name(), under.name(), sink.suffix());
                let end = format!("{suffix}{kind}");
                ratio(&name, &over.figure(sink), &under.figure(sink), &end);
            }
        }
    }
    for (kind, _) in with(Sink::Xdp, &flows) {
        let end = format!("{suffix}{kind}");
        ratio("driver_over_floor", "driver_net_ns", "floor_net_ns", &end);
    }
    let of = |family: &str| format!("driver_net_ns{suffix}{family}");
    rounds.ratio(&format!("driver_v6_over_v4{suffix}"), &of("_v6"), &of(""));
    places.into_iter().try_for_each(|place| place.network.close())
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

struct Place {
    network: Network,
    sink: Option<(Sink, Option<LiveSink>)>,
}

impl Place {
    fn new(network: Network) -> Done<Place> {
        // Both ways are to be the tier's.
        network.tool("client", "ethtool -K eth0 gro on")?;
        Ok(Place { network, sink: None })
    }

    /// Million frames a second that reach the sink. The contestant has to forward nearly all of them.
    fn forwarded(
        &mut self,
        contestant: Contestant,
        sink: Sink,
        flows: &Flows,
        core: usize,
        plan: &Plan,
    ) -> Done<f64> {
        self.end_in(sink)?;
        let network = &self.network;
        let router = network.host("r1");
        let mut dropped_at_once = None;
        let mut _yardstick = None;
        match contestant {
            Fib | Floor => {
                let which = if contestant == Fib { Yardstick::Fib } else { Yardstick::Floor };
                let link = router.run(move || {
                    let [lan, wan] = PORTS.map(Interface::read);
                    let (lan, wan) = (lan?, wan?);
                    let nobody: Mac = NOBODYS_MAC.parse().expect("it is written in network.rs");
                    Done::Ok(which.attach(&lan, &wan, [nobody.0, wan.mac])?)
                });
                _yardstick = Some(link?);
            }
            Generator => dropped_at_once = Some(router.run(|| sink_at("lan"))?),
            Kernel | Ingress | Driver | Workers(_) => {}
        }
        let tier = contestant.tier();
        let source = network.accelerator();
        if let (Some(source), Some(tier)) = (&source, tier) {
            choose(source, tier)?;
        }
        let by_tier = || -> Option<u64> {
            let ledger = source.as_ref()?.ledger();
            tier.map(|tier| ledger.tiers.get(tier).copied().unwrap_or(0))
        };
        let generator = network.generate(flows, 1, core)?;
        let before = by_tier();
        let (frames, elapsed) = rate(plan.slice(), || match (&dropped_at_once, &self.sink) {
            (Some(sink), _) | (None, Some((_, Some(sink)))) => Ok(sink.dropped().0),
            _ => network.received(),
        })?;
        if let (Some(before), Some(after)) = (before, by_tier())
            && ((after - before) as f64) < frames * 0.95
        {
            let (count, ledger) = (after - before, source.map(|source| source.ledger()));
            let why = format!("{tier:?} forwarded {count} of {frames} frames: {ledger:#?}");
            return Err(Stop::Failed(why));
        }
        generator.stop()?;
        Ok(frames / elapsed / 1e6)
    }

    /// Frames end in this sink from now on.
    fn end_in(&mut self, sink: Sink) -> Done {
        if self.sink.as_ref().is_some_and(|set| set.0 == sink) {
            return Ok(());
        }
        drop(self.sink.take());
        let gro = if sink == Sink::Gro { "on" } else { "off" };
        self.network.tool("server", &format!("ethtool -K eth0 gro {gro}"))?;
        let program = match sink {
            Sink::Xdp => Some(self.network.host("server").run(|| sink_at("eth0"))?),
            Sink::Gro | Sink::Plain => None,
        };
        self.sink = Some((sink, program));
        Ok(())
    }
}

fn sink_at(name: &str) -> Done<LiveSink> {
    Ok(LiveSink::attach(&Interface::read(name)?)?)
}

/// Sets the tier that forwards from now on; waits until it does, receiving and transmitting.
fn choose(source: &Arc<dyn Accelerated>, tier: &str) -> Done {
    debug_assert!(TierChoice::named(tier).is_some());
    for port in PORTS {
        let set = source.set(&format!("port.{port}.tier"), tier);
        set.map_err(|error| Stop::Failed(format!("{port} to {tier}: {error:?}")))?;
    }
    let patience = Instant::now() + PATIENCE;
    loop {
        let ports = source.ports();
        if ports.iter().all(|port| port.tier == tier && port.egress_tier == tier) {
            return Ok(());
        }
        if Instant::now() > patience {
            return Err(Stop::Failed(format!("the tier {tier} did not begin: {ports:#?}")));
        }
        thread::sleep(LOOK); // Another thread decides, without notifying this one.
    }
}

/// Where the frames of a family go, and one such address.
type Flows = (Destinations, IpAddr);

/// Flows, and their suffix in the figures' names.
type Kind = (&'static str, Flows);

/// The kinds of flows that are measured with a sink. Other sinks than XDP are about what lies behind the router: one kind
/// shows it.
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
/// 111.255.255.255, as in the baselines of other forwarders; in IPv6, which is nearly all empty, in prefixes of the
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

const FLOWS: u32 = 1 << 16;
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(5);
