//! Figures that other pages quote: as a link to the figure's row, `[1.9](performance.md#veth.ingress_over_kernel_full)`.
//! `page --write` renews them, with as many digits behind the point as before.

use std::fs;
use std::path::PathBuf;

use super::run::{Runs, anchor};
use super::{PAGE, root};
use crate::prelude::*;
use crate::report::short;

/// All pages but the page of performance and the changelog, whose figures are those of its day.
pub fn pages() -> Result<Vec<PathBuf>> {
    let mut pages = Vec::new();
    let mut folders = vec![root(), root().join("docs")];
    for entry in fs::read_dir(root().join("crates"))? {
        folders.push(entry?.path());
    }
    for folder in folders {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let is_page = path.extension().is_some_and(|extension| extension == "md");
            if is_page && !path.ends_with(PAGE) && !path.ends_with("CHANGELOG.md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    Ok(pages)
}

/// A page with its quotes renewed. An error names a quote of a figure that no run has.
pub fn renewed(page: &str, runs: &Runs) -> Result<String> {
    let (mut text, mut rest) = (String::new(), page);
    while let Some((before, after)) = rest.split_once(TARGET) {
        let (target, behind) = after.split_once(')').ok_or("a link has no end")?;
        let opened = before.rfind('[').filter(|_| target.contains('.'));
        let quote = opened.and_then(|at| before[at + 1..].split_once("]("));
        match (opened, quote) {
            (Some(at), Some((said, path))) => {
                let row = runs.rows.iter().find(|row| anchor(&row.bench, &row.figure) == target);
                let row =
                    row.ok_or_else(|| format!("`[{said}]` quotes {target}, which no run has"))?;
                text += &format!(
                    "{}[{}]({path}{TARGET}{target})",
                    &before[..at],
                    like(said, row.value)
                );
            }
            _ => text += &format!("{before}{TARGET}{target})"),
        }
        rest = behind;
    }
    Ok(text + rest)
}

/// What a link to a figure has before the figure.
pub const TARGET: &str = "performance.md#";

/// The value with as many digits behind the point as `said` has. Large ones have three digits that count.
pub fn like(said: &str, value: f64) -> String {
    let digits = said.split_once('.').map_or(0, |(_, digits)| digits.len());
    match value {
        1000.0.. => {
            let step = 10_f64.powi(value.log10() as i32 - 2);
            short((value / step).round() * step)
        }
        _ => format!("{value:.digits$}"),
    }
}
