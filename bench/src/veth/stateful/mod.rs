//! Settled connections through a router that filters by connection, or masquerades too: its kernel beside the stateful
//! lane, and beside the lane of a router without rules.
//!
//! | figure                       | what it is                                                                  |
//! |------------------------------|-----------------------------------------------------------------------------|
//! | `flows_kernel_mpps`          | the kernel, with the rules; `_plain` with the plain sink                    |
//! | `flows_driver_mpps`          | the lane in the driver: same router, same connections                       |
//! | `flows_ingress_mpps`         | the lane at tcx, with the plain sink                                        |
//! | `flows_stateless_mpps`       | the driver's program, same flows, a router without rules                    |
//! | `flows_*_over_kernel`        | a lane's rate by the kernel's with the same sink                            |
//! | `flow_cost_ns`               | what a frame costs more than in the stateless lane, by short turns (`pairs`) |
//! | `flow_floor_ns`              | what a frame costs more where a program counts it in a line of its flow     |
//!
//! Ends of names, in this order: `_nat` for masquerade; `_10000` and `_65536` for that number of flows, and nothing for
//! one; `_full` for the Internet's table; `_v6`. Flows differ in their destinations, which are all over the table.
//!
//! One router has the rules and the connections: lane and kernel take turns at it, by the setting of its ports' tier, so
//! that both have the same connections and conntrack has no others. Before the rounds all connections are assured
//! ([`Datagrams::establish`]), before each round they are counted. The kernel's own timeouts are set to hours.
//!
//! A lane's round begins when the lane forwards [`ADMITTED`] of the frames, or does not until a bound of frames; the round
//! counts when the lane has forwarded [`SHARE_MIN`] of its frames. A row without such rounds is refused with the cause,
//! and the kernel's figures stand alone. Sinks do not look at frames: tests of the lane hold translations to be right.
//!
//! Not measured here: the memory of a flow; TCP, which is the group `stateful_tcp`; and opening connections, which the
//! kernel does in any case.

mod admission;
mod end;
mod floor;

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;

use manylane_accelerate::accelerator::Options;
use manylane_lab::packet::{UDP_DESTINATION, UDP_SOURCE};
use manylane_lab::stateful::{self, Datagrams, Rules};
use manylane_lab::{CLIENT_V4, CLIENT_V6, Flows, Lab};

use super::Plan;
use super::pairs::{Pace, Pairs};
use super::place::{FrameLap, PLAIN, Place, SHARE_MIN, Sink, XDP};
use crate::network::{Network, PORTS, needs};
use crate::prelude::*;
use crate::progress;

pub use admission::measure as admission;
pub use end::measure as end;

/// How many flows, and what figures' names have for it.
const COUNTS: [(usize, &str); 3] = [(1, ""), (10_000, "_10000"), (ALL, "_65536")];
const ALL: usize = 1 << 16;

/// A tiny run has one flow where others have this number, so that the kernel knows them all sooner.
const QUICK_PART: usize = 16;

/// What the lane is compared with in each sink: the tier, and up to how many flows.
const TIERS: [(Sink, &str, usize); 2] = [(XDP, "driver", ALL), (PLAIN, "ingress", 10_000)];

/// All rows with this table, which `suffix` names.
pub fn measure(
    plan: &Plan,
    routes: &[(IpAddr, u8)],
    suffix: &str,
    cores: [usize; 2],
    rounds: &mut Rounds,
) -> Result {
    needs(&["nft", "conntrack"])?;
    let mut bed = Bed::new(routes, cores[0])?;
    for (family, source, all) in &families(plan, routes) {
        for rules in [Rules::Firewall, Rules::Masquerade] {
            for (count, name) in COUNTS {
                let flows = some(all, flows_of(plan, count));
                let end = [if rules == Rules::Masquerade { "_nat" } else { "" }, name].concat();
                let ends = Ends { rules: end, count: name, rest: format!("{suffix}{family}") };
                let connections = Connections::new(*source, rules, flows, ends);
                bed.measure(plan, &connections, rounds)?;
            }
        }
    }
    bed.close()
}

/// The flows of a row in this run: `count`, or a part of them.
fn flows_of(plan: &Plan, count: usize) -> usize {
    if plan.pace.quick { count.div_ceil(QUICK_PART) } else { count }
}

/// Of each family: how names of figures end, the client's address, and all flows by this table.
fn families(plan: &Plan, routes: &[(IpAddr, u8)]) -> [(&'static str, IpAddr, Flows); 2] {
    let ipv4 = if routes.is_empty() { Flows::near() } else { Flows::ipv4() };
    let all = [("", CLIENT_V4, ipv4), ("_v6", CLIENT_V6, Flows::among(ipv6(routes)))];
    all.map(|(family, source, flows)| (family, source, some(&flows, flows_of(plan, ALL))))
}

/// As many of these flows, or one.
fn some(all: &Flows, count: usize) -> Flows {
    let mut addresses = all.addresses();
    match count {
        1 => Flows::to(addresses[0]),
        _ if count == addresses.len() => all.clone(),
        _ => {
            addresses.truncate(count);
            Flows::among(addresses)
        }
    }
}

/// 65,536 addresses, each another, in prefixes of this table in no order; those that it has not are behind a default
/// route.
fn ipv6(routes: &[(IpAddr, u8)]) -> Vec<IpAddr> {
    let networks: BTreeSet<Ipv6Addr> = routes
        .iter()
        .filter_map(|(address, length)| match address {
            IpAddr::V6(address) if *length <= 64 => Some(*address),
            _ => None,
        })
        .collect();
    let mut networks: Vec<_> = networks.into_iter().collect();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for at in (1..networks.len()).rev() {
        networks.swap(at, random.below(at + 1));
    }
    let inside = networks.iter().map(|network| Ipv6Addr::from_bits(network.to_bits() | 1).into());
    inside.chain(Flows::ipv6(&[]).addresses()).take(ALL).collect()
}

/// Connections that are measured together, and what their figures' names end in.
struct Connections {
    rules: Rules,
    flows: Flows,
    datagrams: Datagrams,
    ends: Ends,
}

struct Ends {
    /// Masquerade or not, and the count.
    rules: String,
    /// The count alone.
    count: &'static str,
    /// Table and family.
    rest: String,
}

impl Connections {
    fn new(source: IpAddr, rules: Rules, flows: Flows, ends: Ends) -> Connections {
        let end = |address| SocketAddr::new(address, UDP_DESTINATION);
        let destinations = flows.addresses().into_iter().map(end).collect();
        let datagrams = Datagrams { source: SocketAddr::new(source, UDP_SOURCE), destinations };
        Connections { rules, flows, datagrams, ends }
    }

    fn count(&self) -> usize {
        self.datagrams.destinations.len()
    }

    /// The name of a figure.
    fn name(&self, figure: &str) -> String {
        format!("{figure}{}{}", self.ends.rules, self.ends.rest)
    }

    /// The name of a cost beside forwarding without rules.
    fn cost(&self, figure: &str) -> String {
        format!("{figure}{}_ns{}", self.ends.count, self.ends.rest)
    }

    /// The lane without rules is measured beside the firewall: the router that masquerades is compared with that.
    fn has_stateless(&self, sink: Sink) -> bool {
        sink == XDP && self.rules == Rules::Firewall
    }
}

/// The router with rules, and one without.
struct Bed {
    ruled: Place,
    plain: Place,
    core: usize,
}

impl Bed {
    fn new(routes: &[(IpAddr, u8)], core: usize) -> Result<Bed> {
        let place = || Place::new(Network::accelerated(1, routes, Options::new(PORTS))?);
        let (ruled, mut plain) = (place()?, place()?);
        // Only behind such a sink is the driver a tier.
        plain.end_in(XDP)?;
        plain.choose("driver")??;
        Ok(Bed { ruled, plain, core })
    }

    fn close(self) -> Result {
        self.ruled.network.close()?;
        self.plain.network.close()
    }

    /// Settles these connections, measures them, and takes them away.
    fn measure(&mut self, plan: &Plan, connections: &Connections, rounds: &mut Rounds) -> Result {
        progress::doing(&connections.name("settles flows"));
        // The server's kernel has to hear of its neighbours.
        self.ruled.end_in(PLAIN)?;
        self.ruled.choose("kernel")??;
        let Lab { client, router, server } = &self.ruled.network.lab;
        connections.rules.load(router, PORTS)?;
        connections.datagrams.establish(client, (router, PORTS), server)?;
        for (sink, tier, most) in TIERS {
            if connections.count() <= flows_of(plan, most) {
                self.rounds(plan, connections, sink, tier, rounds)?;
            }
        }
        if connections.has_stateless(XDP) {
            self.touches(plan, connections, rounds)?;
        }
        Ok(stateful::unload(&self.ruled.network.lab.router)?)
    }

    fn rounds(
        &mut self,
        plan: &Plan,
        connections: &Connections,
        sink: Sink,
        tier: &'static str,
        rounds: &mut Rounds,
    ) -> Result {
        let slice = plan.slice() / 2;
        let kernel = connections.name(&format!("flows_kernel_mpps{}", sink.suffix));
        let lane = connections.name(&format!("flows_{tier}_mpps"));
        let stateless = connections.name("flows_stateless_mpps");
        self.ruled.end_in(sink)?;
        // What the lane has not taken in one round it does not take in the next.
        let mut hopeless = None;
        let doing = connections.name(&format!("forwards ({tier})"));
        for _ in progress::rounds(&doing, plan.flow_rounds()) {
            let settled = self.are_settled(connections)?;
            let mut push = |name: &str, value: Result<f64, String>| {
                let value = value.map_err(|cause| rounds.blame(cause)).ok();
                rounds.push(name, "Mpps", value);
            };
            push(
                &kernel,
                match &settled {
                    Ok(()) => Ok(self.by_kernel(connections, slice)?.mpps()),
                    Err(cause) => Err(cause.clone()),
                },
            );
            let by_lane = match settled.and(hopeless.clone().map_or(Ok(()), Err)) {
                Ok(()) => self.by_lane(connections, tier, slice)?,
                Err(cause) => Err(cause),
            };
            hopeless = by_lane.as_ref().err().cloned();
            push(&lane, by_lane.as_ref().map(FrameLap::mpps).map_err(String::clone));
            if connections.has_stateless(sink) {
                let pairs = match by_lane {
                    Ok(_) => self.beside_stateless(plan, connections, tier)?,
                    Err(cause) => Err(cause),
                };
                let pairs = pairs.map_err(|cause| rounds.blame(cause)).ok();
                let mpps = pairs.as_ref().map(|pairs| pairs.mpps(1));
                rounds.push(&stateless, "Mpps", mpps);
                let cost = pairs.map(|pairs| pairs.ns_more());
                rounds.push(&connections.cost("flow_cost"), "ns", cost);
            }
        }
        rounds.ratio(&connections.name(&format!("flows_{tier}_over_kernel")), &lane, &kernel);
        Ok(())
    }

    /// Whether conntrack has all connections, assured; if not, the connections that it has.
    fn are_settled(&self, connections: &Connections) -> Result<Result<(), String>> {
        let assured = connections.datagrams.assured(&self.ruled.network.lab.router)?;
        Ok(match connections.count() {
            count if count == assured => Ok(()),
            count => Err(format!("{assured} of {count} connections are assured")),
        })
    }

    fn by_kernel(&self, connections: &Connections, slice: Duration) -> Result<FrameLap> {
        progress::tick();
        self.ruled.choose("kernel")??;
        let generator = self.ruled.network.lab.generate(&connections.flows, 1, self.core)?;
        let lap = self.ruled.lap(slice, None, || self.ruled.sunk())?;
        generator.stop()?;
        Ok(lap)
    }

    /// What the lane forwards; the inner error says why the round does not count.
    fn by_lane(
        &self,
        connections: &Connections,
        tier: &str,
        slice: Duration,
    ) -> Result<Result<FrameLap, String>> {
        progress::tick();
        if let Err(cause) = self.ruled.choose(tier)? {
            return Ok(Err(cause));
        }
        by_lane(&self.ruled, tier, &connections.flows, (self.core, slice))
    }

    /// The lane, and the driver's program on the router without rules, in short turns.
    fn beside_stateless(
        &self,
        plan: &Plan,
        connections: &Connections,
        tier: &str,
    ) -> Result<Result<Pairs, String>> {
        progress::tick();
        let pace = Pace::of(plan, connections.count());
        let routers = [(&self.ruled, tier), (&self.plain, "driver")];
        Pairs::take(pace, |which| {
            let (place, tier) = routers[which];
            place.forwarded_by(tier, &connections.flows, (self.core, pace.slice))
        })
    }
}

/// What the lane of a tier forwards of these flows, from when it has them; the inner error says that it does not forward
/// nearly all of their frames.
pub(super) fn by_lane(
    place: &Place,
    tier: &str,
    flows: &Flows,
    (core, slice): (usize, Duration),
) -> Result<Result<FrameLap, String>> {
    let count = flows.addresses().len();
    let generator = place.network.lab.generate(flows, 1, core)?;
    let before = place.source().ledger().passed;
    let admitted = admitted(place, tier, count)?;
    let lap = place.lap(slice, Some(tier), || place.sunk())?;
    generator.stop()?;
    let share = lap.share();
    if admitted.is_some() && share >= SHARE_MIN {
        return Ok(Ok(lap));
    }
    let passed = place.source().ledger().passed;
    let grown = passed
        .iter()
        .map(|(reason, count)| (count - before.get(reason).copied().unwrap_or(0), reason.as_str()));
    let (_, reason) = grown.max().unwrap_or((0, "no reason"));
    let share = share * 100.0;
    Ok(Err(format!(
        "the lane forwards {share:.1} % of the frames; the kernel, mostly for {reason}"
    )))
}

/// The time until the lane had the flows: by the clock, and that for which its thread ran.
struct Admitted {
    took: Duration,
    ran: Duration,
}

/// Waits until nearly all frames are forwarded by a tier, and says how long that took; nothing when the bound of frames
/// is reached before.
fn admitted(place: &Place, tier: &str, flows: usize) -> Result<Option<Admitted>> {
    let (begun, ran) = (Instant::now(), lanes_ran()?);
    let counts = || -> Result<[u64; 2]> { Ok([place.forwarded(tier), place.sunk()?]) };
    let mut before = counts()?;
    let bound = before[1] + FRAMES_MAX + flows as u64 * FRAMES_OF_FLOW_MAX;
    loop {
        thread::sleep(LOOK); // Counters say which forwarder it is; no event does.
        let now = counts()?;
        let [by_tier, all] = [0, 1].map(|which| (now[which] - before[which]) as f64);
        if all > 0.0 && by_tier >= all * ADMITTED {
            return Ok(Some(Admitted { took: begun.elapsed(), ran: lanes_ran()? - ran }));
        }
        if now[1] > bound || begun.elapsed() > PATIENCE {
            return Ok(None);
        }
        before = now;
    }
}

/// For how long the threads of lanes have run (proc(5), `schedstat`): one of them has flows.
fn lanes_ran() -> Result<Duration> {
    let mut all = Duration::ZERO;
    for task in fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        if fs::read_to_string(task.join("comm"))? == "lane\n" {
            let text = fs::read_to_string(task.join("schedstat"))?;
            let ns = text.split_whitespace().next().and_then(|word| word.parse().ok());
            all += Duration::from_nanos(ns.ok_or_else(|| format!("schedstat says {text:?}"))?);
        }
    }
    Ok(all)
}

/// The part of the frames that a lane forwards when it has the flows.
const ADMITTED: f64 = 0.99;
const LOOK: Duration = Duration::from_millis(10);
/// Frames after which the lane has its flows or will not have them, for a start and for each flow: the first seconds of a
/// kernel.
const FRAMES_MAX: u64 = 2_000_000;
const FRAMES_OF_FLOW_MAX: u64 = 100;
/// Where no frame arrives at all.
const PATIENCE: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_flows_are_all_different_and_in_the_table_as_far_as_it_has_prefixes() {
        let network = |number: u32| {
            let bits = 0x2a00_u128 << 112 | u128::from(number) << 80;
            (IpAddr::V6(Ipv6Addr::from_bits(bits)), 48)
        };
        for (count, inside) in [(0, 0), (1000, 1000), (100_000, ALL)] {
            // Each prefix again, longer: the address is the same.
            let longer = |number| (network(number).0, 49);
            let table: Vec<_> = (0..count).map(network).chain((0..count).map(longer)).collect();
            let all = ipv6(&table);
            assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), ALL);
            let is_inside = |address: &&IpAddr| address.to_string().starts_with("2a00:");
            assert_eq!(all.iter().filter(is_inside).count(), inside);
        }
    }

    #[test]
    fn some_flows_are_the_first_of_all() {
        let all = Flows::ipv4();
        for (count, _) in COUNTS {
            assert_eq!(some(&all, count).addresses(), all.addresses()[..count]);
        }
    }
}
