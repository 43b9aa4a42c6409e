//! A tier's rate beside an exporter, and without one.

use std::net::SocketAddr;

use manylane_accelerate::accelerator::{IpfixOptions, Options, SflowOptions};
use manylane_lab::packet::{UDP_DESTINATION, UDP_SOURCE};
use manylane_lab::{CLIENT_V4, CLIENT_V6, Datagrams, Flows, Rules};

use super::collector::{Collector, check_that_it_exports};
use super::{FrameLap, Kind, Place, Plan, TIERS, few, mpps, percent_less, slice, warm_up};
use crate::network::{Network, PORTS, needs};
use crate::prelude::*;
use crate::progress;
use crate::veth::stateful::by_lane;

/// What is measured with and without it.
struct Exporter<'a> {
    /// What its figures begin with.
    name: &'static str,
    on: Options,
    flows: &'a [Kind],
    /// Whether the lane has to have the flows first.
    is_stateful: bool,
    core: usize,
}

/// sFlow of one packet in 1000, on a router without rules.
pub fn samples(plan: &Plan, cores: [usize; 2], rounds: &mut Rounds) -> Result {
    let mut place = Place::new(Network::with_routes(1, &[])?)?;
    let collector = Collector::start(&place.network.lab.router, cores[1])?;
    let sflow = Some(SflowOptions::new(vec![collector.destination()]));
    let on = Options { sflow, ..Options::new(PORTS) };
    let flows = few();
    let exporter =
        Exporter { name: "sflow", on, flows: &flows, is_stateful: false, core: cores[0] };
    exporter.measure(plan, &mut place, rounds)?;
    place.network.close()
}

/// IPFIX of settled connections through a firewall: a record of each in a second, which is 60 times as often as by default.
pub fn records(plan: &Plan, cores: [usize; 2], rounds: &mut Rounds) -> Result {
    needs(&["nft", "conntrack"])?;
    let mut place = Place::new(Network::with_routes(1, &[])?)?;
    let count = if plan.pace.quick { 100 } else { RECORDS_PER_S };
    let flows = [("", Flows::near()), ("_v6", Flows::ipv6(&[]))].map(|(family, all)| {
        let mut addresses = all.addresses();
        addresses.truncate(count);
        (family, Flows::among(addresses))
    });
    settle(&place, &flows)?;
    let collector = Collector::start(&place.network.lab.router, cores[1])?;
    let collectors = vec![collector.destination()];
    let active = Duration::from_secs(1);
    let ipfix = IpfixOptions { collectors, active, ..IpfixOptions::default() };
    let on = Options { ipfix, ..Options::new(PORTS) };
    let exporter = Exporter { name: "ipfix", on, flows: &flows, is_stateful: true, core: cores[0] };
    exporter.measure(plan, &mut place, rounds)?;
    place.network.close()
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
    fn measure(&self, plan: &Plan, place: &mut Place, rounds: &mut Rounds) -> Result {
        let what = format!("forwards with and without {}", self.name);
        for round in progress::rounds(&what, plan.rounds()) {
            for is_on in [round % 2 == 1, round % 2 == 0] {
                self.half(is_on, plan, place, rounds)?;
            }
            for (_, tier) in TIERS {
                for (family, _) in self.flows {
                    let [on, off] = [true, false].map(|is_on| self.rate(is_on, tier, family));
                    let both = rounds.last(&on).zip(rounds.last(&off));
                    let cost = format!("{}_cost_{tier}{family}", self.name);
                    rounds.push(&cost, "%", percent_less(both));
                }
            }
        }
        Ok(())
    }

    /// The name of a rate.
    fn rate(&self, is_on: bool, tier: &str, family: &str) -> String {
        let off = if is_on { "" } else { "_off" };
        format!("{}{off}_{tier}_mpps{family}", self.name)
    }

    /// All tiers and flows by one daemon.
    fn half(&self, is_on: bool, plan: &Plan, place: &mut Place, rounds: &mut Rounds) -> Result {
        let options = if is_on { self.on.clone() } else { Options::new(PORTS) };
        place.restart(options)?;
        for (sink, tier) in TIERS {
            place.end_in(sink)?;
            place.choose(tier)??;
            warm_up(place, &self.flows[0].1, (self.core, slice(plan)))?;
            for (family, flows) in self.flows {
                progress::tick();
                let lap = plan.attempt(|| self.lap(place, tier, flows, slice(plan)));
                let mpps = mpps(lap, rounds);
                rounds.push(&self.rate(is_on, tier, family), "Mpps", mpps);
            }
        }
        if is_on { check_that_it_exports(place) } else { Ok(()) }
    }

    fn lap(
        &self,
        place: &Place,
        tier: &str,
        flows: &Flows,
        slice: Duration,
    ) -> Result<Result<FrameLap, String>> {
        match self.is_stateful {
            true => Ok(by_lane(place, tier, flows, (self.core, slice))?.map(|lane| lane.lap)),
            false => place.forwarded_by(tier, flows, (self.core, slice)),
        }
    }
}

/// Flows of a family.
const RECORDS_PER_S: usize = 10_000;
