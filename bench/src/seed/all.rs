//! All mechanisms, one after the other, with the model of `scale`; and a page of it.
//!
//! A question that fails does not keep the others from being asked; the page says so, and the program fails.

use std::io;
use std::path::Path;

use super::{Plan, frame, handoff, neighbour, rcu, refcount, socket};
use crate::figure::Output;
use crate::report::{Report, machine};
use crate::scale;

/// By each way, unless told otherwise: as many as in the source's measurement.
const FRAMES: u64 = 160_000_000;
const FRAMES_QUICK: u64 = 1_000_000;

/// Measures and prints; with `html`, into a page besides.
pub fn run(plan: &Plan, frames: Option<u64>, json: bool, html: Option<&Path>) -> io::Result<()> {
    let mut machine = machine::facts(); // Its load: before ours.
    let frames = frames.unwrap_or(if plan.quick { FRAMES_QUICK } else { FRAMES });
    machine.push(("Frames of the source's run", frames.to_string()));
    type Question<'a> = (&'static str, &'a dyn Fn(&Output) -> io::Result<()>);
    // Packet memory last of what is measured: it tunes glibc for the whole process.
    let questions: [Question<'_>; 8] = [
        ("seed/neighbour", &|output| neighbour::run(plan, Some(frames), output)),
        ("seed/refcount", &|output| refcount::run(plan, output)),
        ("seed/rcu", &|output| rcu::run(plan, output)),
        ("seed/handoff", &|output| handoff::run(plan, output)),
        ("seed/handoff", &|output| handoff::veth::run(plan, output)),
        ("seed/socket", &|output| socket::run(plan, output)),
        ("scale", &|output| scale::run(plan.quick, output)),
        ("seed/frame", &|output| frame::run(plan, output)),
    ];
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    for (bench, question) in questions {
        let output = Output::new(bench, json);
        output.note(&format!("\n{bench}"));
        if let Err(error) = question(&output) {
            failures.push(format!("{bench}: {error}"));
        }
        rows.extend(output.into_rows());
    }
    if let Some(file) = html {
        let report =
            Report { rows: &rows, machine: &machine, failures: &failures, quick: plan.quick };
        let page = report.page().map_err(io::Error::other)?;
        std::fs::write(file, page)?;
    }
    match failures[..] {
        [] => Ok(()),
        _ => Err(io::Error::other(failures.join("; "))),
    }
}
