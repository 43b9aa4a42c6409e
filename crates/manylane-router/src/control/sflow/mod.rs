//! sFlow: samples of packets, counters and dropped packets, sent to collectors.
//!
//! ```text
//! workers ── a ring of notes each ──> exporter ── lock ──> routes: prefixes, next hop
//!    ^                                   └──> datagrams ──> collectors
//!    └── rates, a word a port ── API
//! ```
//!
//! | File         | Holds                                                            |
//! |--------------|------------------------------------------------------------------|
//! | `thread.rs`  | the exporter's thread: takes notes, looks up routes, sends        |
//! | `sample.rs`  | a note and its route become a sample, or a dropped packet         |
//!
//! Workers never wait for the exporter: what finds no place in a ring is counted as lost.

mod sample;
mod thread;

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use manylane_api::{
    ApiError, CollectorStatus, SampleExportStatus, SetError, SettingValue, SflowPort, SflowStatus,
};
use manylane_export::collector::Watch;
use manylane_export::sflow::{REPORTS, SflowOptions, read_rate};
use manylane_export::{AddressError, Destination};
use manylane_frame::vocabulary::PortId;
use manylane_net::forward::PortFacts;
use manylane_sync::words::WordsMut;
use manylane_worker::sampler::{
    SampleCount, Sampler, SamplerCounts, SamplerEnd, SamplerOptions, sampler,
};

use super::open::Bell;
use crate::config::Config;

pub(super) use thread::{Exporter, Exporting, Source};

/// What the configuration wants, with the collectors' names looked up; `None` without a collector.
pub(super) fn resolve(config: &Config) -> Result<Option<SflowOptions>, AddressError> {
    let Some(sflow) = &config.sflow else { return Ok(None) };
    let own = |port: &crate::config::Port| Some((port.name.clone(), port.sflow_rate?));
    Ok(Some(SflowOptions {
        rate: sflow.rate,
        port_rates: config.ports.iter().filter_map(own).collect(),
        polling: sflow.polling,
        agent: sflow.agent,
        ..SflowOptions::new(Destination::resolve(&sflow.collectors)?)
    }))
}

/// What the exporter and the API share.
pub(super) struct Sflow {
    options: SflowOptions,
    /// Of the ports with a device, by their numbers.
    names: Vec<String>,
    /// That workers read.
    rates: Mutex<WordsMut<u32>>,
    /// By worker.
    counts: Vec<SamplerCounts>,
    /// From the exporter's start on.
    watches: Mutex<Vec<Watch>>,
    sent: Mutex<Sent>,
}

/// What has been made of notes.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    agent: Option<IpAddr>,
    samples: u64,
    discarded: u64,
    /// Dropped packets that were noted and not sent: too many in a second.
    unreported: u64,
}

/// Both sides of sampling, before any thread runs.
pub(super) struct Sampling {
    pub sflow: Arc<Sflow>,
    /// One for each worker.
    pub samplers: Vec<Sampler>,
    /// The exporter's ends of these.
    pub ends: Vec<SamplerEnd>,
    /// Wakes the exporter.
    pub bell: Bell,
}

impl Sampling {
    /// For `workers` workers; each chooses packets by a seed of its own. `ports` are those of the configuration,
    /// `facts` theirs and those of sub-interfaces.
    pub fn new(
        options: SflowOptions,
        names: Vec<String>,
        facts: &[PortFacts],
        seeds: impl Iterator<Item = u64>,
        bell: Bell,
    ) -> Sampling {
        let mut rates = WordsMut::zeroed(names.len());
        for (port, name) in names.iter().enumerate() {
            rates.publish(port, options.port_rates.get(name).copied().unwrap_or(options.rate));
        }
        let device = |(number, facts): (u16, &PortFacts)| {
            facts.vlan.map_or(PortId(number), |vlan| vlan.port)
        };
        let of_workers = SamplerOptions {
            rates: rates.reader(),
            devices: (0..).zip(facts).map(device).collect(),
            reasons: sample::reported().collect(),
            drops_max: REPORTS,
            bell: bell.clone(),
        };
        let (samplers, ends): (Vec<_>, Vec<SamplerEnd>) =
            seeds.map(|seed| sampler(&of_workers, seed)).unzip();
        let counts = ends.iter().map(|end| end.counts.clone()).collect();
        let (watches, sent) = Default::default();
        let rates = Mutex::new(rates);
        let sflow = Arc::new(Sflow { options, names, rates, counts, watches, sent });
        Sampling { sflow, samplers, ends, bell }
    }
}

impl Sflow {
    /// Counts of a port, of all workers.
    fn count(&self, port: PortId) -> SampleCount {
        let mut sum = SampleCount::default();
        for one in self.counts.iter().map(|counts| counts.port(port)) {
            sum.pool += one.pool;
            sum.noted += one.noted;
            sum.lost += one.lost;
            sum.unreported += one.unreported;
        }
        sum
    }

    /// From now on one packet in `value` that a port's device receives is a sample. Of a port that is open.
    pub fn set_rate(&self, port: &str, value: &str) -> Result<SettingValue, SetError> {
        let rate = read_rate(value).map_err(|error| {
            let help = "one packet in as many becomes a sample".into();
            SetError::BadValue(ApiError { error, help })
        })?;
        if let Some(number) = self.names.iter().position(|name| name == port) {
            lock(&self.rates).publish(number, rate);
        }
        Ok(SettingValue::Number(rate.into()))
    }

    /// What the API shows.
    pub fn status(&self) -> SampleExportStatus {
        let Sent { agent, samples, discarded, unreported } = *lock(&self.sent);
        let rates = lock(&self.rates);
        let port = |(number, name): (u16, &String)| {
            let count = self.count(PortId(number));
            SflowPort {
                name: name.clone(),
                rate: rates.load(number.into()),
                pool: count.pool,
                noted: count.noted,
                lost: count.lost,
                unreported: count.unreported,
            }
        };
        let ports = (0..).zip(&self.names).map(port).collect();
        let polling_ms = self.options.polling.as_millis() as u64; // An hour at most.
        SampleExportStatus {
            collectors: lock(&self.watches).iter().map(collector).collect(),
            sflow: Some(SflowStatus { agent, polling_ms, samples, discarded, unreported, ports }),
        }
    }
}

/// A collector, as the API has it.
fn collector(watch: &Watch) -> CollectorStatus {
    let status = watch.status();
    CollectorStatus {
        address: watch.destination().address().to_string(),
        protocol: "sflow".into(),
        state: status.state.name().into(),
        trouble: status.trouble,
        sent_messages: status.sent,
        sent_bytes: status.sent_bytes,
        sent_records: status.sent_records,
        lost_messages: status.lost,
        lost_records: status.lost_records,
        refused_messages: status.refused,
        connections: status.connections,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
