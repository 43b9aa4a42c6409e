//! Samples of packets, for collectors: sFlow, with counters and discarded packets, and IPFIX, where packets have no exact
//! record.
//!
//! ```text
//! programs ── ring of notes ──> exporter ── question ──> mirror's thread: prefixes, next hop
//!    ^                             │  ^────── answer ──────┘
//!    └── rates, a word a port ─────┘──> datagrams ──> collectors
//! ```
//!
//! | File          | Holds                                                                            |
//! |---------------|----------------------------------------------------------------------------------|
//! | `thread.rs`   | the exporter's thread: takes notes, asks, sends                                   |
//! | `sample.rs`   | a note and its route become a sample, or a discarded packet                        |
//! | `ipfix.rs`    | notes become sampled flow records                                                 |
//! | `counters.rs` | counter samples: the counters that the API shows, and the link's state              |
//!
//! The thread waits for the mirror's thread, for a second at most; no other thread waits for the exporter. What programs
//! note meanwhile stays in their ring, and beyond its room is counted as lost. Workers note what they drop in rings of
//! their own, which the thread empties once a second at least.

mod counters;
mod ipfix;
mod sample;
mod thread;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use manylane_api::accelerate::{AskError, ExportStatus, SflowPort, SflowStatus};
use manylane_api::{ApiError, Setting, SettingValue};
use manylane_export::collector::Watch;
use manylane_export::sflow::{RATE_MAX, SflowOptions, read_rate};

use super::published::PortView;
use super::why;
use super::worker::WorkerDrops;
use super::{IpfixOptions, export};
use crate::programs::{
    NoRate, SFLOW_RATE_MAX, Sflow, SflowCount, SflowCounts, SflowNote, SflowNotes, SflowRates,
};

use ipfix::Sampled;
pub(super) use thread::Exporter;

const _: () =
    assert!(RATE_MAX == SFLOW_RATE_MAX, "what an operator may choose is what programs take");

/// What the exporter and the API share.
pub(super) struct SflowState {
    options: SflowOptions,
    rates: Mutex<Rates>,
    counts: SflowCounts,
    /// Until the exporter takes them.
    notes: Mutex<Option<SflowNotes>>,
    /// From the exporter's start on.
    watches: Mutex<Vec<Watch>>,
    sent: Mutex<Sent>,
    /// Where collectors of IPFIX want records of samples.
    sampled: Option<Sampled>,
    worker_drops: Arc<WorkerDrops>,
}

/// The rates that programs read, and those that the operator has set.
struct Rates {
    words: SflowRates,
    by_name: BTreeMap<String, u32>,
}

/// What has been made of notes.
#[derive(Clone, Debug, Default)]
struct Sent {
    agent: Option<IpAddr>,
    samples: u64,
    /// Samples of each port that were cut: too many of one packet of segments.
    cut: BTreeMap<u16, u64>,
    discarded: u64,
    /// Discarded packets that were not sent: too many in a second.
    unreported: u64,
}

impl SflowState {
    /// `None` where no collector wants samples. Without one of sFlow, the rate is that of flow records.
    pub fn new(
        sflow: Option<SflowOptions>,
        ipfix: &IpfixOptions,
        Sflow { rates, notes, counts }: Sflow,
    ) -> Option<SflowState> {
        let sampled = Sampled::new(ipfix);
        let of_records = sampled.as_ref().map(|sampled| sampled.rate);
        let of_records = of_records.map(|rate| SflowOptions { rate, ..SflowOptions::new(vec![]) });
        let options = sflow.or(of_records)?;
        let by_name = options.port_rates.clone();
        Some(SflowState {
            options,
            rates: Mutex::new(Rates { words: rates, by_name }),
            counts,
            notes: Mutex::new(Some(notes)),
            watches: Mutex::default(),
            sent: Mutex::default(),
            sampled,
            worker_drops: Arc::new(WorkerDrops::new(&sample::DISCARDED)),
        })
    }

    /// Where workers note what they drop, for collectors of sFlow.
    pub fn worker_drops(&self) -> Option<Arc<WorkerDrops>> {
        self.is_sflow().then(|| self.worker_drops.clone())
    }

    /// Whether collectors of sFlow are there.
    fn is_sflow(&self) -> bool {
        !self.options.collectors.is_empty()
    }

    /// Has each port sampled at its rate.
    pub fn set_rates(&self, ports: &[PortView]) {
        let Rates { words, by_name } = &mut *lock(&self.rates);
        for port in ports {
            let rate = by_name.get(&port.name).copied().unwrap_or(self.options.rate);
            if words.of(port.number) != Some(rate) {
                // Rates were checked where they came from.
                let _ = words.set(port.number, Some(rate));
            }
        }
    }

    /// From now on one packet in `rate` that the port receives is a sample.
    pub fn set_rate(&self, port: &PortView, rate: u32) -> Result<(), NoRate> {
        let Rates { words, by_name } = &mut *lock(&self.rates);
        words.set(port.number, Some(rate))?;
        by_name.insert(port.name.clone(), rate);
        Ok(())
    }

    /// How many samples a note becomes. Further samples of one packet of segments would tell nothing new: they count as lost.
    fn samples_of(&self, note: &SflowNote) -> u32 {
        let samples = note.samples.min(SAMPLES_OF_NOTE);
        if samples < note.samples {
            let cut = u64::from(note.samples - samples);
            *lock(&self.sent).cut.entry(note.port).or_default() += cut;
        }
        samples
    }

    /// The counts of a port, and the samples that were cut, as lost ones.
    fn count(&self, port: u16) -> SflowCount {
        let cut = lock(&self.sent).cut.get(&port).copied().unwrap_or(0);
        let count = self.counts.port(port);
        SflowCount {
            // A program counts a note when the exporter can read it already.
            noted: count.noted.saturating_sub(cut),
            lost: count.lost.wrapping_add(cut),
            unreported: count.unreported.wrapping_add(self.worker_drops.missed(port)),
            ..count
        }
    }

    /// Adds what the API shows.
    pub fn show(&self, status: &mut ExportStatus, ports: &[PortView]) {
        if let Some(sampled) = &self.sampled {
            sampled.show(status, ports.iter().map(|port| self.counts.port(port.number).lost).sum());
        }
        if self.is_sflow() {
            let shown = |watch: &Watch| {
                let address = watch.destination().address().to_string();
                export::collector(address, "sflow", watch.status())
            };
            status.collectors.extend(lock(&self.watches).iter().map(shown));
            status.sflow = Some(self.status(ports));
        }
    }

    fn status(&self, ports: &[PortView]) -> SflowStatus {
        let sent = lock(&self.sent).clone();
        let rates = lock(&self.rates);
        let port = |port: &PortView| {
            let count = self.count(port.number);
            SflowPort {
                name: port.name.clone(),
                rate: rates.words.of(port.number).unwrap_or(0),
                pool: count.pool,
                noted: count.noted,
                lost: count.lost,
                unreported: count.unreported,
            }
        };
        SflowStatus {
            agent: sent.agent,
            polling_ms: super::published::ms(self.options.polling.as_nanos()),
            samples: sent.samples,
            discarded: sent.discarded,
            unreported: sent.unreported,
            ports: ports.iter().map(port).collect(),
        }
    }
}

/// Samples of one packet of segments.
const SAMPLES_OF_NOTE: u32 = 64;

/// Has one packet in `value` that an interface receives sampled, by the API's question.
pub(super) fn set_rate(
    state: Option<&SflowState>,
    ports: &[PortView],
    (key, interface): (&str, &str),
    value: &str,
) -> Result<Setting, AskError> {
    let bad =
        |error: String, help: &str| AskError::BadQuestion(ApiError { error, help: help.into() });
    let Some(state) = state else {
        let help =
            "start `manylane accelerate` with --sflow and a collector, or with --ipfix-sampling";
        return Err(bad("no collector is there to receive samples".into(), help));
    };
    let rate =
        read_rate(value).map_err(|error| bad(error, "one packet in as many becomes a sample"))?;
    let Some(port) = ports.iter().find(|port| port.name == interface) else {
        return Err(AskError::BadQuestion(why::unknown(ports, interface)));
    };
    state.set_rate(port, rate).map_err(|error| bad(error.to_string(), ""))?;
    Ok(Setting::new(key, SettingValue::Number(rate.into())))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
