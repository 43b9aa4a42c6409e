//! The page of performance, from what `all` printed: every figure in one place.
//!
//! | file                          | what                                                                        |
//! |-------------------------------|-----------------------------------------------------------------------------|
//! | `testdata/performance*.jsonl` | the runs: what `manylane-bench all` printed, each on its own machine or day |
//! | `bench/performance.in.md`     | the page's prose, with places for figures (`template.rs`)                   |
//! | `docs/performance.md`         | the page                                                                    |
//! | all other pages               | quote a figure as a link to its row (`quotes.rs`), or not at all            |

mod quotes;
mod run;
#[cfg(test)]
mod stated;
mod template;

use std::fs;
use std::path::{Path, PathBuf};

use crate::prelude::*;
use crate::report::Report;
use run::Runs;

/// Makes docs/performance.md from what `all` printed
#[derive(clap::Args)]
pub struct Plan {
    /// What `all` printed; without it, testdata/performance*.jsonl
    runs: Vec<PathBuf>,
    /// Writes the page, and the figures that other pages quote, instead of printing the page
    #[arg(long)]
    write: bool,
    /// Writes a report with a plot for each mechanism, from the first run
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// The page, and the template, from the repository's root.
const PAGE: &str = "docs/performance.md";
const TEMPLATE: &str = "bench/performance.in.md";

pub fn run(plan: &Plan) -> Result {
    let files = if plan.runs.is_empty() { committed()? } else { plan.runs.clone() };
    let runs = Runs::read(&files)?;
    let template = fs::read_to_string(root().join(TEMPLATE))?;
    let page = template::fill(&template, &runs)?;
    if plan.write {
        fs::write(root().join(PAGE), page)?;
        for path in quotes::pages()? {
            let text = fs::read_to_string(&path)?;
            let renewed = quotes::renewed(&text, &runs)
                .map_err(|error| format!("{}: {error}", path.display()))?;
            if renewed != text {
                fs::write(&path, renewed)?;
            }
        }
    } else {
        print!("{page}");
    }
    match &plan.report {
        Some(file) => Ok(fs::write(file, report(&runs)?)?),
        None => Ok(()),
    }
}

fn report(runs: &Runs) -> Result<String> {
    let first = runs.all.first().ok_or("no run is given")?;
    let failures: Vec<_> = runs.refused.iter().map(ToString::to_string).collect();
    let (rows, machine, failures) = (&runs.rows, &first.head, &failures);
    Ok(Report { rows, machine, failures, quick: first.quick }.page()?)
}

/// The repository's root, where this program was built.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The runs of the repository.
fn committed() -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(root().join("testdata"))?.collect::<io::Result<Vec<_>>>()?;
    let is_run = |name: &str| name.starts_with("performance") && name.ends_with(".jsonl");
    let runs = entries.iter().filter(|entry| entry.file_name().to_str().is_some_and(is_run));
    let mut runs: Vec<_> = runs.map(|entry| entry.path()).collect();
    runs.sort();
    match runs.len() {
        0 => {
            Err("no run: testdata/performance.jsonl is missing; `manylane-bench all` prints one"
                .into())
        }
        _ => Ok(runs),
    }
}

#[cfg(test)]
mod tests;
