//! The metrics of the thread that looks after connections, and of its flow table.

use std::fmt;

use super::{Column, Labels, Page, labels, single};
use crate::accelerate::{LaneCount, LaneStatus};

/// Writes them; without an answer of the thread, only that it did not answer.
pub(super) fn write(status: Option<LaneStatus>, page: &mut Page<'_>) -> fmt::Result {
    let help = "1 if the thread that looks after connections answered this scrape.";
    page.gauge("lane_answers", "", help, single(u64::from(status.is_some())))?;
    let all: Vec<LaneStatus> = status.into_iter().collect();
    let none = |_: &LaneStatus| Labels::new();
    let needed = all.iter().flat_map(|is| [("ipv4", is.needed_ipv4), ("ipv6", is.needed_ipv6)]);
    let needed = needed.map(|(family, needs)| (labels([("family", family)]), u64::from(needs)));
    let help = "1 if packets of the family are forwarded by connection only.";
    page.gauge("lane_needed", "", help, needed)?;
    page.gauges(GAUGES, &all, none)?;
    page.counters(COUNTERS, &all, none)?;
    let counted = |counts: fn(&LaneStatus) -> &Vec<LaneCount>| {
        all.iter().flat_map(counts).map(|one| (labels([("reason", &one.reason)]), one.total))
    };
    let help = "Connections that were proposed and stay in the kernel.";
    page.counter("lane_refused", "", help, counted(|is| &is.refused))?;
    let help = "Entries of the flow table that were removed.";
    page.counter("lane_removed", "", help, counted(|is| &is.removed))
}

const GAUGES: &[Column<LaneStatus>] = &[
    ("lane_capacity", "", "Connections that the flow table has room for.", |is| is.capacity),
    ("lane_connections", "", "Connections in the flow table.", |is| is.used),
    ("lane_polled", "", "Connections whose end the kernel does not announce.", |is| is.polled),
    ("lane_generation", "", "The generation of approvals that is in force.", |is| {
        is.generation.into()
    }),
    ("lane_reviewing", "", "1 while all entries are being reviewed.", |is| is.is_reviewing.into()),
    ("lane_troubled", "", "1 if connections cannot be followed.", |is| is.trouble.is_some().into()),
];

const COUNTERS: &[Column<LaneStatus>] = &[
    ("lane_candidates", "", "Connections that the programs proposed.", |is| is.candidates),
    ("lane_admitted", "", "Connections that were entered.", |is| is.admitted),
    ("lane_renewed", "", "Timeouts that were renewed in conntrack.", |is| is.renewed),
    ("lane_relaxed", "", "Connections that were made liberal about TCP windows once more.", |is| {
        is.relaxed
    }),
    (
        "lane_resyncs",
        "",
        "Times that notifications were lost and all entries were compared with conntrack.",
        |is| is.resyncs,
    ),
    ("lane_reviews", "", "Times that all entries were reviewed.", |is| is.reviews),
    ("lane_moved", "", "Directions whose packets arrive by another interface than before.", |is| {
        is.moved
    }),
];
