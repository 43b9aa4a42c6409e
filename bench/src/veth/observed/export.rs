//! A tier's rate beside an exporter, and without one.

use std::net::SocketAddr;

use manylane_accelerate::accelerator::{IpfixOptions, Options, SflowOptions};
use manylane_export::Destination;
use manylane_lab::packet::{UDP_DESTINATION, UDP_SOURCE};
use manylane_lab::{CLIENT_V4, CLIENT_V6, Datagrams, Flows, Rules};

use super::collector::{Collector, check_that_it_exports};
use super::{FrameLap, Kind, Pace, Pairs, Place, Plan, TIERS, few, paired, roles, slice, warm_up};
use crate::network::{Network, PORTS, needs};
use crate::prelude::*;
use crate::progress;
use crate::veth::stateful::by_lane;

/// What is measured with and without it.
struct Exporter<'a> {
    /// What its figures begin with.
    name: &'static str,
    flows: &'a [Kind],
    /// Whether the lane has to have the flows first.
    is_stateful: bool,
    core: usize,
}

/// sFlow of one packet in 1000, on a router without rules.
pub fn samples(plan: &Plan, cores: [usize; 2], rounds: &mut Rounds) -> Result {
    let flows = few();
    let exporter = Exporter { name: "sflow", flows: &flows, is_stateful: false, core: cores[0] };
    let mut routers = [Router::new(cores[1])?, Router::new(cores[1])?];
    exporter.measure(plan, &mut routers, rounds, |destination| {
        let sflow = Some(SflowOptions::new(vec![destination]));
        Options { sflow, ..Options::new(PORTS) }
    })?;
    routers.into_iter().try_for_each(|router| router.place.network.close())
}

/// IPFIX of settled connections through a firewall: a record of each in a second, which is 60 times as often as by default.
pub fn records(plan: &Plan, cores: [usize; 2], rounds: &mut Rounds) -> Result {
    needs(&["nft", "conntrack"])?;
    let count = if plan.pace.quick { 100 } else { RECORDS_PER_S };
    let flows = [("", Flows::near()), ("_v6", Flows::ipv6(&[]))].map(|(family, all)| {
        let mut addresses = all.addresses();
        addresses.truncate(count);
        (family, Flows::among(addresses))
    });
    let exporter = Exporter { name: "ipfix", flows: &flows, is_stateful: true, core: cores[0] };
    let mut routers = [Router::new(cores[1])?, Router::new(cores[1])?];
    routers.iter().try_for_each(|router| settle(&router.place, &flows))?;
    exporter.measure(plan, &mut routers, rounds, |destination| {
        let active = Duration::from_secs(1);
        let collectors = vec![destination];
        let ipfix = IpfixOptions { collectors, active, ..IpfixOptions::default() };
        Options { ipfix, ..Options::new(PORTS) }
    })?;
    routers.into_iter().try_for_each(|router| router.place.network.close())
}

/// A router, and a collector in its namespace.
struct Router {
    collector: Collector,
    place: Place,
}

impl Router {
    /// The collector's thread runs on `core`.
    fn new(core: usize) -> Result<Router> {
        let place = Place::new(Network::with_routes(1, &[])?)?;
        let collector = Collector::start(&place.network.lab.router, core)?;
        Ok(Router { collector, place })
    }
}

/// The kernel's router has these connections, assured.
fn settle(place: &Place, flows: &[Kind]) -> Result {
    let lab = &place.network.lab;
    Rules::Firewall.load(&lab.router, PORTS)?;
    for ((family, flows), source) in flows.iter().zip([CLIENT_V4, CLIENT_V6]) {
        progress::doing(&format!("settles flows{family}"));
        let end = |address| SocketAddr::new(address, UDP_DESTINATION);
        let destinations = flows.addresses().into_iter().map(end).collect();
        let datagrams = Datagrams { source: SocketAddr::new(source, UDP_SOURCE), destinations };
        datagrams.establish(&lab.client, (&lab.router, PORTS), &lab.server)?;
    }
    Ok(())
}

impl Exporter<'_> {
    fn measure(
        &self,
        plan: &Plan,
        routers: &mut [Router; 2],
        rounds: &mut Rounds,
        exporting: impl Fn(Destination) -> Options,
    ) -> Result {
        let what = format!("forwards with and without {}", self.name);
        for round in progress::rounds(&what, plan.rounds()) {
            let roles = roles(round);
            let on = &mut routers[roles[0]];
            on.place.restart(exporting(on.collector.destination()))?;
            routers[roles[1]].place.restart(Options::new(PORTS))?;
            self.round(plan, routers, roles, rounds)?;
            check_that_it_exports(&routers[roles[0]].place)?;
        }
        Ok(())
    }

    /// All tiers and flows by both daemons.
    fn round(
        &self,
        plan: &Plan,
        routers: &mut [Router; 2],
        roles: [usize; 2],
        rounds: &mut Rounds,
    ) -> Result {
        for (sink, tier) in TIERS {
            for Router { place, .. } in &mut *routers {
                place.end_in(sink)?;
                place.choose(tier)??;
                warm_up(place, &self.flows[0].1, (self.core, slice(plan)))?;
            }
            for (family, flows) in self.flows {
                progress::tick();
                let pace = Pace::of(plan, flows.addresses().len());
                let place = |which: usize| &routers[roles[which]].place;
                let pairs =
                    Pairs::take(pace, |which| self.lap(place(which), tier, flows, pace.slice));
                let pairs = paired(pairs, rounds)?;
                let figure =
                    |name: &str, unit: &str| format!("{}{name}_{tier}{unit}{family}", self.name);
                for (which, state) in ["", "_off"].into_iter().enumerate() {
                    let mpps = pairs.as_ref().map(|pairs| pairs.mpps(which));
                    rounds.push(&figure(state, "_mpps"), "Mpps", mpps);
                }
                rounds.push(&figure("_cost", ""), "%", pairs.map(|pairs| pairs.percent_less()));
            }
        }
        Ok(())
    }

    fn lap(
        &self,
        place: &Place,
        tier: &str,
        flows: &Flows,
        slice: Duration,
    ) -> Result<Result<FrameLap, String>> {
        match self.is_stateful {
            true => by_lane(place, tier, flows, (self.core, slice)),
            false => place.forwarded_by(tier, flows, (self.core, slice)),
        }
    }
}

/// Flows of a family.
const RECORDS_PER_S: usize = 10_000;
