//! All mechanisms, one after the other, with the model of `scale`; and a page of it.
//!
//! When a question fails, the others are still measured; the page names the failure, and the program fails.

use super::{Plan, QUESTIONS};
use crate::prelude::*;
use crate::report::{Report, machine};

/// Measures and prints; with `--html`, into a page besides.
pub fn run(plan: &Plan) -> Result {
    let mut machine = machine::facts(); // Its load: before ours.
    let frames = plan.frames().map_or(String::new(), |frames| frames.to_string());
    machine.push(("Frames of the source's run", frames));
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    for (_, bench, question) in QUESTIONS {
        let output = plan.pace.output(bench);
        output.note(&format!("\n{bench}"));
        if let Err(error) = question(plan, &output) {
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
