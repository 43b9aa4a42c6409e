//! Figures and how they are printed.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize, Serializer};

use crate::progress;
use crate::router::Result;

/// Where figures are printed.
pub struct Output {
    /// The question, as the `bench` field says it.
    pub bench: &'static str,
    /// One JSON object a line, instead of a table's row.
    pub json: bool,
    /// Whether the user named the rows to measure: then a refused row is an error.
    is_named: bool,
    /// All figures so far, for a report.
    kept: Mutex<Vec<Row>>,
    /// All rows that were refused so far.
    refused: Mutex<Vec<Refused>>,
}

/// A row without a figure: as JSON it has the keys of [`Row`], and one more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refused {
    pub bench: String,
    pub figure: String,
    value: (),
    min: (),
    max: (),
    runs: usize,
    pub unit: String,
    /// The rounds that do not count, and their cause.
    pub refused: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} is refused: {}", self.bench, self.figure, self.refused)
    }
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
        let kept = Mutex::new(Vec::new());
        Output { bench, json, is_named: false, kept, refused: Mutex::new(Vec::new()) }
    }

    /// With rows that the user named, or not.
    pub fn named(self, is_named: bool) -> Output {
        Output { is_named, ..self }
    }

    /// All figures so far, and the rows that were refused.
    pub fn into_parts(self) -> (Vec<Row>, Vec<Refused>) {
        let refused = self.refused.into_inner().unwrap_or_else(PoisonError::into_inner);
        (self.kept.into_inner().unwrap_or_else(PoisonError::into_inner), refused)
    }

    /// Prints the figure of these rounds; some rounds may not count. The one rule of all benches: a row is refused when fewer
    /// than half of its rounds count.
    fn rounds(&self, name: &str, unit: &str, values: &[Option<f64>], cause: Option<&str>) {
        let runs: Vec<f64> = values.iter().copied().flatten().collect();
        if !runs.is_empty() && runs.len() * 2 >= values.len() {
            return self.figure(name, unit, &runs);
        }
        let cause = cause.unwrap_or("the cause is not known");
        let why = format!(
            "{} of {} rounds do not count: {cause}",
            values.len() - runs.len(),
            values.len()
        );
        let (bench, figure, unit) = (self.bench.into(), name.into(), unit.into());
        let refused = Refused {
            bench,
            figure,
            value: (),
            min: (),
            max: (),
            runs: runs.len(),
            unit,
            refused: why,
        };
        progress::clear();
        if self.json {
            println!("{}", serde_json::to_string(&refused).expect("numbers and text become JSON"));
        }
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).push(refused);
    }

    /// How many rows were refused so far.
    fn refusals(&self) -> usize {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Warns of the rows that were refused behind the first `known`. An error if the user named the rows to measure.
    fn warn(&self, known: usize) -> Result {
        progress::clear();
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = &refused[known..];
        refused.iter().for_each(|refused| eprintln!("warning: {refused}"));
        match (refused.len(), self.is_named) {
            (0, _) | (_, false) => Ok(()),
            (count, true) => Err(format!("{count} of the named rows are refused").into()),
        }
    }

    /// Prints the median of `runs` with the least and the largest. All of them count.
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
        progress::clear();
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
pub struct Rounds {
    figures: Vec<Figure>,
    /// Why the newest value is missing, if one is.
    cause: Option<String>,
}

struct Figure {
    name: String,
    unit: &'static str,
    values: Vec<Option<f64>>,
    /// Why a value is missing, the newest one.
    cause: Option<String>,
}

impl Figure {
    fn new(name: &str, unit: &'static str) -> Figure {
        Figure { name: name.into(), unit, values: Vec::new(), cause: None }
    }
}

impl Rounds {
    /// Adds a value, or that this round has none, by the newest cause.
    pub fn push(&mut self, name: &str, unit: &'static str, value: Option<f64>) {
        let cause = if value.is_none() { self.cause.clone() } else { None };
        let figure = self.figure(name, unit);
        figure.values.push(value);
        figure.cause = cause.or(figure.cause.take());
    }

    /// Says why the values that follow are missing.
    pub fn blame(&mut self, cause: String) {
        self.cause = Some(cause);
    }

    pub fn append(&mut self, round: Rounds) {
        for Figure { name, unit, values, cause } in round.figures {
            let figure = self.figure(&name, unit);
            figure.values.extend(values);
            figure.cause = cause.or(figure.cause.take());
        }
    }

    /// The figure of this name, from now on.
    fn figure(&mut self, name: &str, unit: &'static str) -> &mut Figure {
        let at = self.figures.iter().position(|figure| figure.name == name);
        let at = at.unwrap_or_else(|| {
            self.figures.push(Figure::new(name, unit));
            self.figures.len() - 1
        });
        &mut self.figures[at]
    }

    /// Adds the figure `name` = `over` / `under`, round by round: what neighbours in time have in
    /// common, such as the core's frequency, cancels out.
    pub fn ratio(&mut self, name: &str, over: &str, under: &str) {
        let [over, under] = [over, under].map(|name| self.measured(name));
        let pairs = over.values.iter().zip(&under.values);
        let values = pairs.map(|(over, under)| Some((*over)? / (*under)?)).collect();
        let cause = over.cause.clone().or(under.cause.clone());
        self.figures.push(Figure { values, cause, ..Figure::new(name, "x") });
    }

    /// Adds several ratios, as name, over, under.
    pub fn ratios(&mut self, ratios: &[[&str; 3]]) {
        ratios.iter().for_each(|[name, over, under]| self.ratio(name, over, under));
    }

    /// The values of a figure that could be measured.
    pub fn values(&self, name: &str) -> impl Iterator<Item = f64> {
        self.measured(name).values.iter().filter_map(|value| *value)
    }

    /// The figure's newest value, if it could be measured.
    pub fn last(&self, name: &str) -> Option<f64> {
        self.measured(name).values.last().copied().flatten()
    }

    /// Prints all figures; then warns of the rows that are refused, with their cause. An error says that the user named
    /// such a row, or that no figure was measured.
    pub fn print(&self, output: &Output) -> Result {
        if self.figures.is_empty() {
            return Err("nothing is measured: no row or group has a name that begins so".into());
        }
        let known = output.refusals();
        for Figure { name, unit, values, cause } in &self.figures {
            output.rounds(name, unit, values, cause.as_deref());
        }
        output.warn(known)
    }

    /// A figure that was measured: else it panics.
    fn measured(&self, name: &str) -> &Figure {
        let figure = self.figures.iter().find(|figure| figure.name == name);
        figure.unwrap_or_else(|| panic!("{name} is measured"))
    }
}

/// The value below which `part` (0 to 1) of the `sorted` values lie; where that is between two values, their mean. `sorted`
/// has one value at least.
pub fn quantile(sorted: &[f64], part: f64) -> f64 {
    let at = sorted.len() as f64 * part;
    let above = (at as usize).min(sorted.len() - 1);
    let below = if at.fract() == 0.0 && at > 0.0 && above as f64 == at { above - 1 } else { above };
    f64::midpoint(sorted[below], sorted[above])
}

/// Four digits behind the point are more than a measurement has.
fn rounded<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((value * 1e4).round() / 1e4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_a_value_or_the_mean_of_two_neighbours() {
        let sorted: Vec<f64> = (0..200).map(f64::from).collect();
        assert_eq!(quantile(&sorted, 0.0), 0.0);
        assert_eq!(quantile(&sorted, 0.5), 99.5, "the mean of the two in the middle");
        assert_eq!(quantile(&sorted, 0.99), 197.5);
        assert_eq!(quantile(&sorted, 1.0), 199.0);
        assert_eq!(quantile(&[3.0, 5.0, 9.0], 0.5), 5.0, "the median");
        assert_eq!(quantile(&[3.0, 5.0, 9.0, 10.0], 0.5), 7.0, "an even count");
        assert_eq!(quantile(&[3.0], 0.5), 3.0);
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
        assert_eq!(rounds.measured("gain").values, [Some(1.5), Some(1.5), Some(2.0)]);
    }

    #[test]
    fn a_ratio_lacks_the_rounds_that_either_side_lacks() {
        let mut rounds = Rounds::default();
        for (cas, add) in [(Some(30.0), None), (Some(60.0), Some(40.0)), (None, Some(15.0))] {
            rounds.push("cas_ns", "ns", cas);
            rounds.push("add_ns", "ns", add);
        }
        rounds.ratio("gain", "cas_ns", "add_ns");
        assert_eq!(rounds.measured("gain").values, [None, Some(1.5), None]);
    }

    fn of_three(values: [Option<f64>; 3]) -> Rounds {
        let mut rounds = Rounds::default();
        rounds.blame("its own waits".into());
        values.into_iter().for_each(|value| rounds.push("cas_ns", "ns", value));
        rounds.ratio("gain", "cas_ns", "cas_ns");
        rounds
    }

    #[test]
    fn a_row_is_refused_with_its_cause_when_fewer_than_half_of_its_rounds_count() {
        let output = Output::new("test", true);
        of_three([Some(30.0), None, None]).print(&output).expect("it is a warning, not an error");
        let (rows, refused) = output.into_parts();
        assert_eq!(rows, []);
        let refused: Vec<_> = refused.iter().map(Refused::to_string).collect();
        assert_eq!(
            refused,
            ["cas_ns", "gain"].map(|name| {
                format!("test {name} is refused: 2 of 3 rounds do not count: its own waits")
            })
        );
    }

    #[test]
    fn a_row_with_half_of_its_rounds_is_printed_with_their_number() {
        let output = Output::new("test", true);
        of_three([Some(30.0), None, Some(32.0)]).print(&output).expect("two of three count");
        let (rows, refused) = output.into_parts();
        assert_eq!(refused, []);
        assert_eq!((rows[0].value, rows[0].runs), (31.0, 2));
    }

    #[test]
    fn a_refused_row_that_was_asked_for_by_name_is_an_error() {
        let output = Output::new("test", true).named(true);
        let error = of_three([None; 3]).print(&output).expect_err("cas_ns was asked for");
        assert_eq!(error.to_string(), "2 of the named rows are refused");
    }

    #[test]
    fn no_figure_at_all_is_an_error() {
        let error = Rounds::default().print(&Output::new("test", true)).expect_err("no row");
        assert!(error.to_string().starts_with("nothing is measured"), "{error}");
    }
}
