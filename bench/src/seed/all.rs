//! All mechanisms, one after the other, with the model of `scale`; and a page of it.
//!
//! When a question fails, the others are still measured; the page names the failure, and the program fails.

use super::{Plan, frame, handoff, neighbour, rcu, refcount, socket};
use crate::prelude::*;
use crate::report::{Report, machine};
use crate::scale;

/// By each way, unless the user says otherwise: as many as in the source's measurement.
const FRAMES: u64 = 160_000_000;
const FRAMES_QUICK: u64 = 1_000_000;

/// Measures and prints; with `--html`, into a page besides.
pub fn run(plan: &Plan) -> Result {
    let mut machine = machine::facts(); // Its load: before ours.
    let frames = plan.frames.unwrap_or(if plan.pace.quick { FRAMES_QUICK } else { FRAMES });
    machine.push(("Frames of the source's run", frames.to_string()));
    type Question<'a> = (&'static str, &'a dyn Fn(&Output) -> Result);
    // Packet memory last of what is measured: it tunes glibc for the whole process.
    let questions: [Question<'_>; 8] = [
        ("seed/neighbour", &|output| neighbour::run(plan, Some(frames), output)),
        ("seed/refcount", &|output| refcount::run(plan, output)),
        ("seed/rcu", &|output| rcu::run(plan, output)),
        ("seed/handoff", &|output| handoff::run(plan, output)),
        ("seed/handoff", &|output| handoff::veth::run(plan, output)),
        ("seed/socket", &|output| socket::run(plan, output)),
        ("scale", &|output| scale::measure(&plan.pace, output)),
        ("seed/frame", &|output| frame::run(plan, output)),
    ];
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    for (bench, question) in questions {
        let output = plan.pace.output(bench);
        output.note(&format!("\n{bench}"));
        if let Err(error) = question(&output) {
            failures.push(format!("{bench}: {error}"));
        }
        rows.extend(output.into_rows());
    }
    if let Some(file) = &plan.html {
        let (rows, machine, failures) = (&rows, &machine, &failures);
        let report = Report { rows, machine, failures, quick: plan.pace.quick };
        std::fs::write(file, report.page()?)?;
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("; ").into()) }
}
