//! The metrics of what is exported to collectors.

use std::fmt;

use super::{Column, Labels, Page, labels, single};
use crate::accelerate::{CollectorStatus, ExportStatus, SampledStatus, SflowStatus};

/// Writes them; nothing of collectors where none is configured.
pub(super) fn write(status: &ExportStatus, page: &mut Page<'_>) -> fmt::Result {
    samples(&status.collectors, status.sflow.as_ref(), page)?;
    let help =
        "Records that no collector was sent, since the queue to the exporter's thread was full.";
    page.counter("export_queue_lost", "records", help, single(status.queue_lost_records))?;
    let sampled: Vec<_> = status.sampled.iter().cloned().collect();
    page.gauges(SAMPLED_GAUGES, &sampled, |_| Labels::new())?;
    page.counters(SAMPLED_COUNTERS, &sampled, |_| Labels::new())?;
    let all: Vec<_> = status.nat_log.iter().collect();
    let help = "Translations that began or ended.";
    let none = Labels::new;
    page.counter("nat_log", "events", help, all.iter().map(|one| (none(), one.events)))?;
    let help = "Times that conntrack's announcements were lost, so that the log of translations lacks some.";
    page.counter("nat_log_gaps", "", help, all.iter().map(|one| (none(), one.gaps)))?;
    let help = "1 if conntrack cannot be heard, so that no translation is logged.";
    let troubled = all.iter().map(|one| (none(), u64::from(one.trouble.is_some())));
    page.gauge("nat_log_troubled", "", help, troubled)
}

/// Those of a daemon that exports samples alone.
pub(super) fn samples(
    collectors: &[CollectorStatus],
    sflow: Option<&SflowStatus>,
    page: &mut Page<'_>,
) -> fmt::Result {
    let of = |one: &CollectorStatus| {
        labels([("collector", &*one.address), ("protocol", &*one.protocol)])
    };
    page.gauges(GAUGES, collectors, of)?;
    page.counters(COUNTERS, collectors, of)?;
    sflow.map_or(Ok(()), |status| super::sflow::write(status, page))
}

const GAUGES: &[Column<CollectorStatus>] =
    &[("collector_reachable", "", "0 if messages do not reach the collector.", |one| {
        u64::from(one.state != "unreachable")
    })];

const COUNTERS: &[Column<CollectorStatus>] = &[
    ("collector_sent", "messages", "Messages that the kernel has taken.", |one| one.sent_messages),
    ("collector_sent", "bytes", "Bytes of these messages.", |one| one.sent_bytes),
    ("collector_sent", "records", "Records, or samples, in these messages.", |one| {
        one.sent_records
    }),
    ("collector_lost", "messages", "Messages that could not be sent.", |one| one.lost_messages),
    ("collector_lost", "records", "Records, or samples, in these messages.", |one| {
        one.lost_records
    }),
    (
        "collector_refused",
        "messages",
        "Messages for which the collector's host reported that no program listens.",
        |one| one.refused_messages,
    ),
    ("collector_connections", "", "TCP connections that were opened.", |one| one.connections),
];

const SAMPLED_GAUGES: &[Column<SampledStatus>] = &[
    (
        "ipfix_sampled_rate",
        "packets",
        "One packet in how many is a sample, as sampled flow records state it.",
        |one| one.rate.into(),
    ),
    ("ipfix_sampled_flows", "", "Flows of samples that have no record yet.", |one| one.flows),
];

const SAMPLED_COUNTERS: &[Column<SampledStatus>] = &[
    ("ipfix_sampled_samples", "", "Samples in sampled flow records.", |one| one.samples),
    (
        "ipfix_sampled_evicted",
        "records",
        "Sampled flow records written early, since another flow needed the memory.",
        |one| one.evicted,
    ),
    ("ipfix_sampled_lost", "samples", "Samples that found no room in the programs' ring.", |one| {
        one.lost
    }),
];
