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

use manylane_accelerate::accelerator::Options;
use manylane_io::interface::Interface;
use manylane_lab::Flows;
use manylane_lab::crossing::sink_at;
use manylane_lab::generator::Yardstick;
use manylane_lab::load::NOBODYS_MAC;

use super::Plan;
use super::place::{GRO, PLAIN, Place, SHARE_MIN, Sink, XDP};
use crate::network::{Network, PORTS};
use crate::prelude::*;
use crate::progress;

/// What forwards, and what it is called in the figures.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Contestant {
    name: &'static str,
    by: By,
    /// Its number among the networks.
    place: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Kernel,
    /// A tier of the accelerator.
    Tier(&'static str),
    /// An XDP program beside the kernel: with a query of the kernel's tables, or without any lookup.
    Program(Yardstick),
    /// Nothing: the router drops frames where it receives them.
    Nothing,
}

const fn contestant(name: &'static str, by: By, place: usize) -> Contestant {
    Contestant { name, by, place }
}

const KERNEL: Contestant = contestant("kernel", By::Kernel, 0);
/// Our program at tcx, which is for software devices: measured as those are.
const INGRESS: Contestant = contestant("ingress", By::Tier("ingress"), 1);
const DRIVER: Contestant = contestant("driver", By::Tier("driver"), 1);
const WORKERS: Contestant = contestant("workers", By::Tier("workers"), 1);
const WORKERS_2: Contestant = contestant("workers_2", By::Tier("workers"), 2);
const FIB: Contestant = contestant("xdp_fib", By::Program(Yardstick::Fib), 0);
const FLOOR: Contestant = contestant("floor", By::Program(Yardstick::Floor), 0);
const GENERATOR: Contestant = contestant("generator", By::Nothing, 0);

/// The contestants with each sink.
const WITH: [(Sink, &[Contestant]); 3] = [
    (XDP, &[GENERATOR, FLOOR, KERNEL, FIB, DRIVER, WORKERS, WORKERS_2]),
    (GRO, &[KERNEL, FIB, DRIVER, WORKERS]),
    (PLAIN, &[KERNEL, INGRESS, WORKERS]),
];

/// Over, under, and the sinks with which their ratio is printed.
const RATIOS: [(Contestant, Contestant, &[Sink]); 5] = [
    (FIB, KERNEL, &[XDP]),
    (DRIVER, KERNEL, &[XDP, GRO]),
    (DRIVER, FIB, &[XDP, GRO]),
    (WORKERS, KERNEL, &[XDP, GRO, PLAIN]),
    (WORKERS_2, KERNEL, &[XDP]),
];

impl Contestant {
    /// The name of its rate. Ingress has one sink, and no suffix for it.
    fn figure(self, sink: Sink) -> String {
        let sink = if self == INGRESS { "" } else { sink.suffix };
        format!("{}_mpps{sink}", self.name)
    }
}

/// All with this table, which `suffix` names.
pub fn measure(
    plan: &Plan,
    routes: &[(IpAddr, u8)],
    suffix: &str,
    cores: [usize; 2],
    rounds: &mut Rounds,
) -> Result {
    let accelerated = |queues, workers| {
        let worker_cores = vec![cores[1], cores[0]];
        let options = Options { workers: Some(workers), worker_cores, ..Options::new(PORTS) };
        Network::accelerated(queues, routes, options)
    };
    let mut places = [
        Place::new(Network::with_routes(1, routes)?)?,
        Place::new(accelerated(1, 1)?)?,
        // A queue for each worker on every link. One sender's frames arrive by one of them.
        Place::new(accelerated(2, 2)?)?,
    ];
    let flows = if suffix.is_empty() { few() } else { many(routes) };
    for _ in progress::rounds("forwards", plan.rounds()) {
        for (sink, contestants) in WITH {
            for (kind, flows) in with(sink, &flows) {
                for &contestant in contestants {
                    let place = &mut places[contestant.place];
                    let mpps = plan.attempt(|| {
                        contestant.forwarded(place, sink, flows, cores[0], plan.slice())
                    })?;
                    let name = format!("{}{suffix}{kind}", contestant.figure(sink));
                    rounds.push(&name, "Mpps", Some(mpps));
                }
                if sink == XDP {
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
                let name = format!("{}_over_{}{}", over.name, under.name, sink.suffix);
                let end = format!("{suffix}{kind}");
                ratio(&name, &over.figure(sink), &under.figure(sink), &end);
            }
        }
    }
    for (kind, _) in with(XDP, &flows) {
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

impl Contestant {
    /// Million frames a second that reach the sink at this place. The contestant has to forward nearly all of them; the
    /// inner error says that the kernel forwarded too many.
    fn forwarded(
        self,
        place: &mut Place,
        sink: Sink,
        flows: &Flows,
        core: usize,
        slice: Duration,
    ) -> Result<Result<f64, String>> {
        progress::tick();
        place.end_in(sink)?;
        let network = &place.network;
        let router = &network.lab.router;
        let (mut dropped_at_once, mut _program, mut tier) = (None, None, None);
        match self.by {
            By::Kernel => {}
            By::Tier(name) => tier = Some(name),
            By::Program(which) => {
                let link = router.run(move || {
                    let [lan, wan] = PORTS.map(Interface::read);
                    let (lan, wan) = (lan?, wan?);
                    Ok::<_, Error>(which.attach(&lan, &wan, [NOBODYS_MAC, wan.mac])?)
                });
                _program = Some(link?);
            }
            By::Nothing => dropped_at_once = Some(sink_at(router, "lan")?),
        }
        if let Some(tier) = tier {
            place.choose(tier)??;
        }
        let generator = network.lab.generate(flows, 1, core)?;
        let lap = match &dropped_at_once {
            Some(sink) => place.lap(slice, tier, || Ok(sink.dropped().0))?,
            None => place.lap(slice, tier, || place.sunk())?,
        };
        generator.stop()?;
        if let Some(tier) = tier.filter(|_| lap.share() < SHARE_MIN) {
            let ledger = network.accelerator().map(|source| source.ledger());
            let cause = format!("{tier} forwarded part of the frames: {lap:?}: {ledger:#?}");
            return Ok(Err(cause));
        }
        Ok(Ok(lap.mpps()))
    }
}

/// Flows, and their suffix in the figures' names.
pub(super) type Kind = (&'static str, Flows);

/// The kinds of flows that are measured with a sink. Other sinks than XDP are about what lies behind the router: one kind
/// shows it.
fn with(sink: Sink, flows: &[Kind]) -> &[Kind] {
    if sink == XDP { flows } else { &flows[..1] }
}

/// One flow of each family.
pub(super) fn few() -> Vec<Kind> {
    let ipv6 = Ipv6Addr::new(0x2001, 0xdb8, 0x128, 0, 0, 0, 0, 1);
    vec![("", Flows::to([10, 128, 0, 1].into())), ("_v6", Flows::to(ipv6.into()))]
}

/// 65,536 flows of each family, each frame's drawn anew: in IPv4 all over the address space from 16.0.0.0 to
/// 111.255.255.255, as in the baselines of other forwarders; in IPv6, which is nearly all empty, in prefixes of the
/// table. And 65,536 that are near each other, to hosts of one /16, by the default route.
fn many(routes: &[(IpAddr, u8)]) -> Vec<Kind> {
    vec![("", Flows::ipv4()), ("_v6", Flows::ipv6(routes)), ("_near", Flows::near())]
}
