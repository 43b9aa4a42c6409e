//! How long the lane forwards a connection that conntrack no longer has.
//!
//! The router takes no new connections meanwhile, so that what still arrives was forwarded by the lane: `flow_end_ms` is
//! the time from the end of `conntrack -D` to the arrival of the last datagram, 0 if that is before; `flow_end_count` how
//! many arrive after.

use manylane_accelerate::accelerator::Options;
use manylane_lab::stateful::{self, Rules};
use manylane_lab::{Lab, SERVER_V4, Steady, SteadyOptions, tool};

use super::super::Plan;
use super::super::place::Place;
use crate::network::{Network, PORTS, needs};
use crate::prelude::*;
use crate::progress;

pub fn measure(plan: &Plan, rounds: &mut Rounds) -> Result {
    needs(&["nft", "conntrack"])?;
    let place = Place::new(Network::accelerated(1, &[], Options::new(PORTS))?)?;
    for _ in progress::rounds("deletes a connection", plan.flow_rounds()) {
        let values = match deleted(&place)? {
            Ok(values) => values.map(Some),
            Err(cause) => {
                rounds.blame(cause);
                [None; 2]
            }
        };
        rounds.push("flow_end_ms", "ms", values[0]);
        rounds.push("flow_end_count", "count", values[1]);
        stateful::unload(&place.network.lab.router)?;
    }
    place.network.close()
}

/// Milliseconds and datagrams after the end; the inner error says why the round does not count.
fn deleted(place: &Place) -> Result<Result<[f64; 2], String>> {
    let Lab { client, router, server } = &place.network.lab;
    place.choose("kernel")??;
    Rules::Firewall.load(router, PORTS)?;
    let options = SteadyOptions { per_second: PER_SECOND, ..SteadyOptions::to(SERVER_V4) };
    let stream = Steady::start(client, server, options)?;
    stream.arrives("by the kernel");
    let assured = || stateful::connections(router, "-p udp -u ASSURED");
    stateful::answer((router, PORTS[1]), server, &stateful::connections(router, "-p udp")?)?;
    let patience = Instant::now() + PATIENCE;
    while assured()?.is_empty() {
        if Instant::now() > patience {
            return Err("the stream's connection does not become assured".into());
        }
        thread::sleep(LOOK); // For the two seconds that the kernel wants.
    }
    Rules::Closed.load(router, PORTS)?;
    if let Err(cause) = place.choose(TIER)? {
        return Ok(Err(cause));
    }
    let forwarded = || place.forwarded(TIER);
    let before = forwarded();
    let mark = stream.mark();
    while forwarded() - before < ADMITTED {
        if stream.mark() > mark + u64::from(PER_SECOND) * 5 {
            return Ok(Err("the lane does not forward the stream".into()));
        }
        stream.after(1);
    }
    tool(router, "conntrack -D -p udp")?;
    let (gone, mark) = (Instant::now(), stream.mark());
    let end = stream.after(AFTER);
    let ms = stream.last_after(gone).as_secs_f64() * 1e3;
    match stream.arrived(end - AFTER / 10..end) {
        0 => Ok(Ok([ms, stream.arrived(mark..end) as f64])),
        _ => Ok(Err("the stream continues without its connection".into())),
    }
}

/// A host's own datagrams have their checksums filled in later, which a driver's program leaves to this one.
const TIER: &str = "ingress";
const PER_SECOND: u32 = 5000;
/// Datagrams of the stream that the lane forwards before its connection is deleted.
const ADMITTED: u64 = 100;
/// Datagrams after that: some seconds.
const AFTER: u64 = 10_000;
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(50);
