//! What observation of forwarded packets costs those that forward: samples, flow records, captures.
//!
//! | figure                           | what it is                                                                         |
//! |----------------------------------|------------------------------------------------------------------------------------|
//! | `sflow_cost_driver`              | the part of its rate that the tier loses to samples, one packet in 1000             |
//! | `ipfix_cost_driver`              | the part that the tier's lane loses to flow records, 10,000 in a second             |
//! | `capture_cost_driver_ns`         | what a frame costs more while a capture is open that wants no packet                |
//! | `capture_closed_driver_ns`       | what a frame costs more after that capture was closed than where none was opened    |
//! | `capture_slowdown_driver`        | the part of its rate that the tier loses to a capture of all packets, which is read |
//! | `capture_lossless_driver_mpps`   | the highest rate that was tried at which such a capture has all packets             |
//! | `tcpdump_slowdown_kernel`, `tcpdump_lossless_kernel_mpps` | both for tcpdump, of packets that the kernel forwards      |
//! | `sflow_driver_mpps`, `sflow_off_driver_mpps`, ... | the rates that they are made from                                  |
//!
//! All of it with `_ingress` for `_driver`, too, and with `_v6`. Frames have 64 bytes; generator and router share a core,
//! and the other core is for the daemon's threads, collectors and readers. The driver has the XDP sink, and the ingress
//! tier and the kernel the plain one (`tiers.rs`).
//!
//! Two routers are measured in short turns (`pairs.rs`): one is observed, and the other is not. The routers change roles
//! with each round, so that what else differs between them cancels out. Collectors are in the routers' namespaces, and read and
//! forget. An exporter that sends nothing, or loses something, is an error.
//!
//! No build of the programs lacks captures. `capture_closed_driver_ns` says that an earlier capture leaves no cost
//! behind; the two loads that a packet costs without any capture are in every rate of this page.
//!
//! Ours and tcpdump's readers have 32 MiB for the packets of a core, and write to `/dev/null`. A rate counts as lossless if
//! nothing was lost, and if the reader got at least 98 % of the packets while they were forwarded: otherwise memory, not
//! the reader, would take them.

mod capture;
mod collector;
mod export;
mod reader;

use manylane_lab::Flows;

use super::Plan;
use super::pairs::{Pace, Pairs, percent_less};
use super::place::{FrameLap, PLAIN, Place, Sink, XDP};
use super::tiers::{Kind, few};
use crate::prelude::*;

pub use capture::measure as captures;
pub use export::{records, samples};

/// The tiers that are measured, and the sink of each.
const TIERS: [(Sink, &str); 2] = [(XDP, "driver"), (PLAIN, "ingress")];

/// How long frames are counted. A tiny run only shows that all of it works.
fn slice(plan: &Plan) -> Duration {
    if plan.pace.quick { Duration::from_millis(60) } else { plan.slice() }
}

/// Forwards for a while and counts nothing: caches and the daemon's threads are busy with its start.
fn warm_up(place: &Place, flows: &Flows, (core, slice): (usize, Duration)) -> Result {
    let generator = place.network.lab.generate(flows, 1, core)?;
    place.lap(slice, None, || place.sunk())?;
    generator.stop()?;
    Ok(())
}

/// What both give in turn; without it, the cause is that of the values that follow.
fn paired(pairs: Result<Result<Pairs, String>>, rounds: &mut Rounds) -> Result<Option<Pairs>> {
    Ok(pairs?.map_err(|cause| rounds.blame(cause)).ok())
}

/// Both routers: the observed one first. Roles change with each round.
fn roles(round: usize) -> [usize; 2] {
    [round % 2, 1 - round % 2]
}
