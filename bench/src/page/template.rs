//! A template's places, and what is put there.
//!
//! | place                            | what is put there                                                    |
//! |----------------------------------|----------------------------------------------------------------------|
//! | `{{BENCH FIGURE}}`               | the figure's median                                                  |
//! | `{{BENCH FIGURE range}}`         | the median, with the least and the largest round                     |
//! | `{{quotient BENCH FIGURE FIGURE}}` | the first median by the second                                     |
//! | `{{head}}`                       | what the figures were taken on                                       |
//! | `{{figures}}`                    | every figure of every bench, with unit, rounds and a link's target   |
//!
//! Lines between `{{when BENCH FIGURE}}` and `{{end}}` are for runs that have the figure; after `{{otherwise}}`, for those
//! without it. A figure that no run has is an error; a row that was refused is named as such.

use std::fmt::Write;

use super::run::{Runs, anchor};
use crate::figure::{Refused, Row};
use crate::prelude::*;
use crate::report::short;

/// The page. An error names every figure that is missing.
pub fn fill(template: &str, runs: &Runs) -> Result<String> {
    let (mut page, mut missing) = (String::new(), Vec::new());
    let mut is_wanted = true;
    for (number, line) in (1..).zip(template.lines()) {
        if let Some(wanted) = wanted(line, is_wanted, runs) {
            is_wanted = wanted;
            continue;
        }
        if !is_wanted {
            continue;
        }
        let mut rest = line;
        while let Some((text, place)) = rest.split_once("{{") {
            let (place, after) = place
                .split_once("}}")
                .ok_or_else(|| format!("line {number}: `{{{{` has no `}}}}`"))?;
            page += text;
            match put(place, runs) {
                Ok(put) => page += &put,
                Err(error) => missing.push(format!("line {number}: {error}")),
            }
            rest = after;
        }
        page += rest;
        page += "\n";
    }
    match missing[..] {
        [] => Ok(page),
        _ => Err(format!("the page lacks figures:\n{}", missing.join("\n")).into()),
    }
}

/// Whether the lines that follow a `when`, `otherwise` or `end` are wanted; none for other lines.
fn wanted(line: &str, is_wanted: bool, runs: &Runs) -> Option<bool> {
    let place = line.strip_prefix("{{")?.strip_suffix("}}")?;
    match place.split(' ').collect::<Vec<_>>()[..] {
        ["when", bench, figure] => {
            Some(runs.row(bench, figure).is_some() || runs.is_refused(bench, figure))
        }
        ["otherwise"] => Some(!is_wanted),
        ["end"] => Some(true),
        _ => None,
    }
}

fn put(place: &str, runs: &Runs) -> Result<String, String> {
    let words: Vec<_> = place.split_whitespace().collect();
    match words[..] {
        ["head"] => Ok(head(runs)),
        ["figures"] => Ok(figures(runs)),
        ["quotient", bench, over, under] => {
            let both = [over, under].map(|figure| find(runs, bench, figure));
            let [over, under] = both;
            Ok(match (over?, under?) {
                (Some(over), Some(under)) => short(over.value / under.value),
                _ => "refused".into(),
            })
        }
        [bench, figure] => Ok(find(runs, bench, figure)?
            .map_or_else(|| refused(bench, figure), |row| short(row.value))),
        [bench, figure, "range"] => Ok(find(runs, bench, figure)?.map_or_else(
            || refused(bench, figure),
            |Row { value, min, max, .. }| {
                let [value, min, max] = [*value, *min, *max].map(short);
                format!("{value} ({min} to {max})")
            },
        )),
        _ => Err(format!("`{{{{{place}}}}}` is no place: see bench/src/page/template.rs")),
    }
}

/// The figure's row; none if it was refused. An error if no run has it.
fn find<'a>(runs: &'a Runs, bench: &str, figure: &str) -> Result<Option<&'a Row>, String> {
    match runs.row(bench, figure) {
        None if runs.is_refused(bench, figure) => Ok(None),
        None => Err(format!("no run has `{bench} {figure}`")),
        row => Ok(row),
    }
}

fn refused(bench: &str, figure: &str) -> String {
    format!("[refused](#{})", anchor(bench, figure))
}

/// A column for each run.
fn head(runs: &Runs) -> String {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in runs.all.iter().flat_map(|run| &run.head) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let mut table =
        format!("| |{}\n|---|{}\n", " run |".repeat(runs.all.len()), "---|".repeat(runs.all.len()));
    for name in names {
        table += &format!("| {} |", name.to_lowercase());
        for run in &runs.all {
            let value = run.head.iter().find(|fact| fact.0 == name).map_or("", |fact| &fact.1);
            let value =
                if name == "Command" { format!("`{value}`") } else { value.replace('|', "/") };
            table += &format!(" {value} |");
        }
        table += "\n";
    }
    if runs.all.iter().any(|run| run.quick) {
        table += "\n**A short run, to see that it works: its figures mean little.**\n";
    }
    table.trim_end().into()
}

/// A table for each bench.
fn figures(runs: &Runs) -> String {
    let mut text = String::new();
    for bench in runs.benches() {
        let _ = write!(
            text,
            "\n### `{bench}`\n\n| figure | unit | median | least | largest | runs |\n|---|---|---|---|---|---|\n"
        );
        for Row { figure, unit, value, min, max, runs, .. } in
            runs.rows.iter().filter(|row| row.bench == bench)
        {
            let [value, min, max] = [*value, *min, *max].map(short);
            let id = anchor(bench, figure);
            let _ = writeln!(
                text,
                "| <a id=\"{id}\"></a>`{figure}` | {unit} | {value} | {min} | {max} | {runs} |"
            );
        }
        for Refused { figure, unit, refused, .. } in
            runs.refused.iter().filter(|row| row.bench == bench)
        {
            let id = anchor(bench, figure);
            let _ = writeln!(
                text,
                "| <a id=\"{id}\"></a>`{figure}` | {unit} | refused: {refused} | | | |"
            );
        }
    }
    text.trim().into()
}
