//! All mechanisms, one after the other, with the model of `scale`; and a page of it.
//!
//! When a question fails, the others are still measured; the page names the failure, and the program fails. The page also
//! names each row that was refused, which is no failure.

use super::{Plan, QUESTIONS, bounds};
use crate::prelude::*;
use crate::progress;
use crate::report::{Report, machine};

/// Measures and prints; with `--html`, into a page besides.
pub fn run(plan: &Plan) -> Result {
    let mut machine = machine::facts(); // Its load: before ours.
    let frames = plan.frames().map_or(String::new(), |frames| frames.to_string());
    machine.push(("Frames of the source's run".into(), frames));
    let (mut rows, mut failures, mut warnings) = (Vec::new(), Vec::new(), Vec::new());
    progress::promise("compare all", progress::bound(&bounds()));
    for (_, bench, question) in QUESTIONS {
        let output = plan.pace.output(bench);
        output.note(&format!("\n{bench}"));
        if let Err(error) = question(plan, &output) {
            failures.push(format!("{bench}: {error}"));
        }
        let (measured, refused) = output.into_parts();
        rows.extend(measured);
        warnings.extend(refused.iter().map(ToString::to_string));
    }
    if let Some(file) = &plan.html {
        let missing = [&failures[..], &warnings[..]].concat();
        let (rows, machine, failures) = (&rows, &machine, &missing);
        let report = Report { rows, machine, failures, quick: plan.pace.quick };
        std::fs::write(file, report.page()?)?;
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("; ").into()) }
}
