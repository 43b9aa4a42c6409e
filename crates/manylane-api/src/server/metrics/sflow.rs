//! The metrics of samples for sFlow collectors.

use std::fmt;

use super::{Column, Page, labels, single};
use crate::accelerate::{SflowPort, SflowStatus};

/// Writes them.
pub(super) fn write(status: &SflowStatus, page: &mut Page<'_>) -> fmt::Result {
    let help = "Packet samples made for sFlow.";
    page.counter("sflow_samples", "", help, single(status.samples))?;
    let help = "Discarded packets reported by sFlow.";
    page.counter("sflow_discarded", "packets", help, single(status.discarded))?;
    let help = "Discarded packets that were not reported by sFlow: too many in a second.";
    page.counter("sflow_unreported", "packets", help, single(status.unreported))?;
    let of_port = |port: &SflowPort| labels([("port", &port.name)]);
    page.gauges(PORT_GAUGES, &status.ports, of_port)?;
    page.counters(PORT_COUNTERS, &status.ports, of_port)
}

const PORT_GAUGES: &[Column<SflowPort>] = &[(
    "sflow_port_rate",
    "packets",
    "One packet in how many, of those received here, is sampled for sFlow.",
    |port| port.rate.into(),
)];

const PORT_COUNTERS: &[Column<SflowPort>] = &[
    ("sflow_port_pool", "packets", "Received packets that could have been samples.", |port| {
        port.pool
    }),
    (
        "sflow_port_lost",
        "",
        "Samples lost: the exporter was too slow, or one packet of segments had more than 64.",
        |port| port.lost,
    ),
    (
        "sflow_port_unreported",
        "packets",
        "Discarded packets that programs or workers did not note: too many in a second.",
        |port| port.unreported,
    ),
];
