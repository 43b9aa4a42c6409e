//! Runs, as `all` printed them.

use std::fs;
use std::path::PathBuf;

use serde::Deserialize;

use crate::figure::{Refused, Row};
use crate::prelude::*;
use crate::whole::Head;

/// Runs, each with its own head; no two have a figure in common.
#[derive(Default)]
pub struct Runs {
    pub all: Vec<Head>,
    pub rows: Vec<Row>,
    pub refused: Vec<Refused>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Head(Head),
    Row(Row),
    Refused(Refused),
}

impl Runs {
    pub fn read(files: &[PathBuf]) -> Result<Runs> {
        let mut runs = Runs::default();
        for file in files {
            let text =
                fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
            runs.add(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        }
        Ok(runs)
    }

    /// Adds one run.
    pub fn add(&mut self, text: &str) -> Result {
        let before = self.all.len();
        for (number, line) in (1..).zip(text.lines()) {
            match serde_json::from_str(line).map_err(|error| format!("line {number}: {error}"))? {
                Line::Head(head) => self.all.push(head),
                Line::Refused(refused) => self.refused.push(refused),
                Line::Row(row) if self.row(&row.bench, &row.figure).is_some() => {
                    let Row { bench, figure, .. } = row;
                    return Err(
                        format!("line {number}: `{bench} {figure}` is there already").into()
                    );
                }
                Line::Row(row) => self.rows.push(row),
            }
        }
        match self.all.len() - before {
            1 => Ok(()),
            _ => Err(
                "not one run: `manylane-bench all` begins with one line that describes the machine"
                    .into(),
            ),
        }
    }

    pub fn row(&self, bench: &str, figure: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.bench == bench && row.figure == figure)
    }

    pub fn is_refused(&self, bench: &str, figure: &str) -> bool {
        self.refused.iter().any(|refused| refused.bench == bench && refused.figure == figure)
    }

    /// All benches, in the order of the runs.
    pub fn benches(&self) -> Vec<&str> {
        let mut benches: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !benches.contains(&row.bench.as_str()) {
                benches.push(&row.bench);
            }
        }
        benches
    }
}

/// The link to a figure's row in the page.
pub fn anchor(bench: &str, figure: &str) -> String {
    format!("{}.{figure}", bench.replace('/', "-"))
}
