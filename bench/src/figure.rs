//! Figures and how they are printed.

use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize, Serializer};

use crate::router::Result;

/// Where figures are printed.
pub struct Output {
    /// The question, as the `bench` field says it.
    pub bench: &'static str,
    /// One JSON object a line, instead of a table's row.
    pub json: bool,
    /// All figures so far, for a report.
    kept: Mutex<Vec<Row>>,
}

/// A figure, as it is printed and as a report has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub bench: String,
    pub figure: String,
    /// The median, or another quantile ([`Output::part`]).
    #[serde(serialize_with = "rounded")]
    pub value: f64,
    #[serde(serialize_with = "rounded")]
    pub min: f64,
    #[serde(serialize_with = "rounded")]
    pub max: f64,
    pub runs: usize,
    /// What it is counted in.
    pub unit: String,
}

impl Output {
    pub const fn new(bench: &'static str, json: bool) -> Output {
        Output { bench, json, kept: Mutex::new(Vec::new()) }
    }

    /// All figures so far.
    pub fn into_rows(self) -> Vec<Row> {
        self.kept.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints the median of `runs` with the least and the largest.
    pub fn figure(&self, name: &str, unit: &str, runs: &[f64]) {
        self.part(name, unit, runs, 0.5);
    }

    /// Prints, instead of the median, the value below which `part` (0 to 1) of `runs` lie.
    pub fn part(&self, name: &str, unit: &str, runs: &[f64], part: f64) {
        let mut sorted = runs.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else { return };
        let (value, runs) = (quantile(&sorted, part), sorted.len());
        let (bench, figure, unit) = (self.bench.into(), name.into(), unit.into());
        self.show(Row { bench, figure, value, min, max, runs, unit });
    }

    /// Prints a figure, as one of this question.
    pub fn show(&self, row: Row) {
        let row = Row { bench: self.bench.into(), ..row };
        let Row { figure, value, min, max, runs, unit, .. } = &row;
        if self.json {
            println!("{}", serde_json::to_string(&row).expect("numbers and text become JSON"));
        } else {
            println!("{figure:<34} {value:>9.2} {unit:<5} ({min:.2} to {max:.2}, n = {runs})");
        }
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(row);
    }

    /// Prints a line for people only.
    pub fn note(&self, text: &str) {
        if !self.json {
            println!("{text}");
        }
    }
}

/// What each round of an interleaved run measured, figure by figure, in the order of the first round.
/// A round has no value of what it could not measure undisturbed.
#[derive(Default)]
pub struct Rounds(Vec<Figure>);

struct Figure {
    name: String,
    unit: &'static str,
    values: Vec<Option<f64>>,
}

impl Rounds {
    pub fn push(&mut self, name: &str, unit: &'static str, value: Option<f64>) {
        match self.0.iter_mut().find(|figure| figure.name == name) {
            Some(figure) => figure.values.push(value),
            None => self.0.push(Figure { name: name.into(), unit, values: vec![value] }),
        }
    }

    pub fn append(&mut self, round: Rounds) {
        for Figure { name, unit, values } in round.0 {
            values.into_iter().for_each(|value| self.push(&name, unit, value));
        }
    }

    /// Adds the figure `name` = `over` / `under`, round by round: what neighbours in time have in
    /// common, such as the core's frequency, cancels out.
    pub fn ratio(&mut self, name: &str, over: &str, under: &str) {
        let pairs = self.values(over).iter().zip(self.values(under));
        let values = pairs.map(|(over, under)| Some((*over)? / (*under)?)).collect();
        self.0.push(Figure { name: name.into(), unit: "x", values });
    }

    /// Adds several ratios, as name, over, under.
    pub fn ratios(&mut self, ratios: &[[&str; 3]]) {
        ratios.iter().for_each(|[name, over, under]| self.ratio(name, over, under));
    }

    /// The figure's newest value, if it could be measured.
    pub fn last(&self, name: &str) -> Option<f64> {
        self.values(name).last().copied().flatten()
    }

    /// Prints all figures. An error names those that fewer than half of the rounds could measure, or says that no figure
    /// was measured.
    pub fn print(&self, output: &Output) -> Result {
        if self.0.is_empty() {
            return Err("nothing is measured: no row or group has a name that begins so".into());
        }
        let mut disturbed = Vec::new();
        for Figure { name, unit, values } in &self.0 {
            let runs: Vec<f64> = values.iter().copied().flatten().collect();
            if runs.len() * 2 < values.len() {
                disturbed.push(name.as_str());
            } else {
                output.figure(name, unit, &runs);
            }
        }
        match disturbed[..] {
            [] => Ok(()),
            _ => {
                let which = disturbed.join(", ");
                Err(format!("something else used these cores; too few rounds count of {which}")
                    .into())
            }
        }
    }

    /// Of a figure that was measured: else it panics.
    fn values(&self, name: &str) -> &[Option<f64>] {
        let figure = self.0.iter().find(|figure| figure.name == name);
        &figure.unwrap_or_else(|| panic!("{name} is measured")).values
    }
}

/// The value below which `part` (0 to 1) of the `sorted` values lie. `sorted` has one value at least.
pub fn quantile(sorted: &[f64], part: f64) -> f64 {
    let last = sorted.len() - 1;
    sorted[((sorted.len() as f64 * part) as usize).min(last)]
}

/// Four digits behind the point are more than a measurement has.
fn rounded<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((value * 1e4).round() / 1e4)
}

#[cfg(test)]
mod tests {
    use super::*;

    static QUIET: Output = Output::new("test", true);

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let sorted: Vec<f64> = (0..200).map(f64::from).collect();
        assert_eq!(quantile(&sorted, 0.0), 0.0);
        assert_eq!(quantile(&sorted, 0.5), 100.0);
        assert_eq!(quantile(&sorted, 0.99), 198.0);
        assert_eq!(quantile(&sorted, 1.0), 199.0);
        assert_eq!(quantile(&[3.0, 5.0, 9.0], 0.5), 5.0, "the median");
    }

    /// The median of ratios, not the ratio of medians: the second round ran on a slower clock, and both sides saw it.
    #[test]
    fn a_ratio_is_of_neighbours_in_one_round() {
        let mut rounds = Rounds::default();
        for (cas, add) in [(30.0, 20.0), (60.0, 40.0), (30.0, 15.0)] {
            rounds.push("cas_ns", "ns", Some(cas));
            rounds.push("add_ns", "ns", Some(add));
        }
        rounds.ratio("gain", "cas_ns", "add_ns");
        assert_eq!(rounds.values("gain"), [Some(1.5), Some(1.5), Some(2.0)]);
    }

    #[test]
    fn a_ratio_lacks_the_rounds_that_either_side_lacks() {
        let mut rounds = Rounds::default();
        for (cas, add) in [(Some(30.0), None), (Some(60.0), Some(40.0)), (None, Some(15.0))] {
            rounds.push("cas_ns", "ns", cas);
            rounds.push("add_ns", "ns", add);
        }
        rounds.ratio("gain", "cas_ns", "add_ns");
        assert_eq!(rounds.values("gain"), [None, Some(1.5), None]);
        let error = rounds.print(&QUIET).expect_err("one of three is fewer than half");
        assert!(error.to_string().ends_with("too few rounds count of gain"), "{error}");
    }
}
