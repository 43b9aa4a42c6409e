//! A network whose frames end in one sink or another, and what forwards them there.

use manylane_accelerate::accelerator::{Options, TierChoice};
use manylane_api::accelerate::{Accelerated, AcceleratedPort, AskError};
use manylane_io::interface::Offloads;
use manylane_lab::Flows;
use manylane_lab::crossing::sink_at;
use manylane_lab::generator::LiveSink;

use crate::network::{Network, PORTS};
use crate::prelude::*;

/// How frames end at the server: what its figures' names end in, whether its device polls, and whether a program
/// drops them in the driver.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Sink {
    pub suffix: &'static str,
    gro: bool,
    xdp: bool,
}

pub const XDP: Sink = Sink { suffix: "", gro: false, xdp: true };
pub const GRO: Sink = Sink { suffix: "_gro", gro: true, xdp: false };
pub const PLAIN: Sink = Sink { suffix: "_plain", gro: false, xdp: false };

/// A network, and the sink in which its frames end.
pub struct Place {
    pub network: Network,
    sink: Option<(Sink, Option<LiveSink>)>,
}

impl Place {
    pub fn new(network: Network) -> Result<Place> {
        // Both ways are to be the tier's.
        network.lab.client.run(|| Offloads::set_gro("eth0", true))?;
        Ok(Place { network, sink: None })
    }

    /// Frames end in this sink from now on.
    pub fn end_in(&mut self, sink: Sink) -> Result {
        if self.sink.as_ref().is_some_and(|set| set.0 == sink) {
            return Ok(());
        }
        drop(self.sink.take());
        let server = &self.network.lab.server;
        server.run(move || Offloads::set_gro("eth0", sink.gro))?;
        let program = if sink.xdp { Some(sink_at(server, "eth0")?) } else { None };
        self.sink = Some((sink, program));
        Ok(())
    }

    /// Frames that have reached the sink.
    pub fn sunk(&self) -> io::Result<u64> {
        match &self.sink {
            Some((_, Some(sink))) => Ok(sink.dropped().0),
            _ => self.network.lab.received(),
        }
    }

    /// Sets the tier that forwards from now on; waits until it does, receiving and transmitting. `kernel` is such a tier,
    /// too: then no program of ours is in its way. The inner error says why a port may not have the tier.
    pub fn choose(&self, tier: &str) -> Result<Result<(), String>> {
        debug_assert!(TierChoice::named(tier).is_some());
        let source = self.source();
        let patience = Instant::now() + PATIENCE;
        for port in PORTS {
            let set = loop {
                match source.set(&format!("port.{port}.tier"), tier) {
                    // So the mirror's thread is while it reads a full table with no core of its own.
                    Err(AskError::Silent(_)) if Instant::now() < patience => {}
                    set => break set,
                }
            };
            set.map_err(|error| format!("{port} to {tier}: {error:?}"))?;
        }
        loop {
            // The gate has judged anew before `set` returned.
            let ports = source.ports();
            let refused = ports.iter().find(|port| !port.ingress);
            if let Some(port) = refused.filter(|_| tier != "kernel") {
                return Ok(Err(refusal(port)));
            }
            let has_it = |port: &AcceleratedPort| {
                port.tier == tier && port.egress_tier == tier && port.attached != (tier == "kernel")
            };
            if ports.iter().all(has_it) {
                return Ok(Ok(()));
            }
            if Instant::now() > patience {
                return Err(format!("the tier {tier} did not begin: {ports:#?}").into());
            }
            thread::sleep(LOOK); // Another thread decides, without notifying this one.
        }
    }

    /// What passes in about `slice`: frames by this count, and of them those that a tier has forwarded.
    pub fn lap(
        &self,
        slice: Duration,
        tier: Option<&str>,
        count: impl Fn() -> io::Result<u64>,
    ) -> Result<FrameLap> {
        let by_tier = || tier.map_or(0, |tier| self.forwarded(tier));
        let (called, before) = (Instant::now(), count()?);
        while count()? == before && called.elapsed() < PATIENCE {
            thread::sleep(LOOK); // A counter says that the generator has begun; no event does.
        }
        thread::sleep(slice / 4); // Queues fill.
        let (begun, frames, forwarded) = (Instant::now(), count()?, by_tier());
        thread::sleep(slice);
        let (frames, seconds) = (count()? - frames, begun.elapsed().as_secs_f64());
        Ok(FrameLap { frames: frames as f64, seconds, by_tier: (by_tier() - forwarded) as f64 })
    }

    /// What a tier forwards of these flows, from a generator on `core`; the inner error says that it was not nearly all.
    pub fn forwarded_by(
        &self,
        tier: &str,
        flows: &Flows,
        (core, slice): (usize, Duration),
    ) -> Result<Result<FrameLap, String>> {
        let generator = self.network.lab.generate(flows, 1, core)?;
        let lap = self.lap(slice, Some(tier), || self.sunk())?;
        generator.stop()?;
        if lap.share() < SHARE_MIN {
            let ledger = self.source().ledger();
            return Ok(Err(format!("{tier} forwarded part of the frames: {lap:?}: {ledger:#?}")));
        }
        Ok(Ok(lap))
    }

    /// Ends a running accelerator, and starts another.
    pub fn restart(&mut self, options: Options) -> Result {
        self.network.stop()?;
        self.network.accelerate(options).map(drop)
    }

    /// Frames that a tier has forwarded.
    pub fn forwarded(&self, tier: &str) -> u64 {
        self.source().ledger().tiers.get(tier).copied().unwrap_or(0)
    }

    /// # Panics
    ///
    /// Where the kernel routes alone.
    pub fn source(&self) -> Arc<dyn Accelerated> {
        self.network.accelerator().expect("the network is accelerated")
    }
}

/// What passed in a while.
#[derive(Clone, Copy, Debug)]
pub struct FrameLap {
    frames: f64,
    seconds: f64,
    by_tier: f64,
}

impl FrameLap {
    pub fn mpps(&self) -> f64 {
        self.frames / self.seconds / 1e6
    }

    /// A lap for tests.
    #[cfg(test)]
    pub fn at_mpps(mpps: f64) -> FrameLap {
        FrameLap { frames: mpps * 1e6, seconds: 1.0, by_tier: mpps * 1e6 }
    }

    /// The tier's share in all frames.
    pub fn share(&self) -> f64 {
        if self.frames > 0.0 { self.by_tier / self.frames } else { 0.0 }
    }
}

/// Why a port that the gate refuses is the kernel's.
pub fn refusal(port: &AcceleratedPort) -> String {
    let why = port.reasons.first().map_or("it is not known why", |reason| &reason.what);
    format!("{} is left to the kernel: {why}", port.name)
}

/// What a tier has to forward of the frames for its rate to be its own.
pub const SHARE_MIN: f64 = 0.95;
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(5);
