//! How long the cases take, one after the other.

use std::io;
use std::time::{Duration, Instant};

use super::contestant::{ALL, PORTS, Sockets};
use crate::figure::{Output, quantile};

/// What the cases took, in microseconds.
#[derive(Default)]
pub struct Took {
    /// By case.
    bind: [Vec<f64>; 3],
    rebind: Vec<f64>,
    close: Vec<f64>,
}

impl Took {
    /// Goes through the cases `count` times, or, when that takes long, for as long as `most`.
    pub fn measure<S: Sockets>(sockets: &mut S, count: usize, most: Duration) -> io::Result<Took> {
        // As the source has them: the same protocol, of all devices; bound to a device; made with protocol 0.
        let cases = [(ALL, None), (ALL, Some(PORTS[0])), (0, Some(PORTS[0]))];
        let mut took = Took::default();
        let begin = Instant::now();
        while took.rebind.len() < count && (begin.elapsed() < most || took.rebind.is_empty()) {
            for ((protocol, port), bind) in cases.into_iter().zip(&mut took.bind) {
                let start = Instant::now();
                let mut socket = sockets.open(protocol)?;
                sockets.bind(&mut socket, port, ALL)?;
                bind.push(microseconds(start));
                if protocol == 0 {
                    let start = Instant::now();
                    sockets.bind(&mut socket, Some(PORTS[1]), ALL)?;
                    took.rebind.push(microseconds(start));
                }
                let start = Instant::now();
                sockets.close(socket)?;
                took.close.push(microseconds(start));
            }
        }
        Ok(took)
    }

    fn rows(self) -> [(&'static str, Vec<f64>); 5] {
        let [one, two, three] = self.bind;
        [
            ("bind1_us", one),
            ("bind2_us", two),
            ("bind3_us", three),
            ("rebind_us", self.rebind),
            ("close_us", self.close),
        ]
    }
}

fn microseconds(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64 / 1e3
}

/// All rounds of all rows.
#[derive(Default)]
pub struct Latencies(Vec<Row>);

struct Row {
    name: String,
    rounds: Vec<Vec<f64>>,
}

impl Latencies {
    /// Adds a round: its figures are called `prefix`, the case, `suffix`.
    pub fn push(&mut self, prefix: &str, suffix: &str, took: Took) {
        for (case, mut values) in took.rows() {
            values.sort_by(f64::total_cmp);
            let name = format!("{prefix}{case}{suffix}");
            match self.0.iter_mut().find(|row| row.name == name) {
                Some(row) => row.rounds.push(values),
                None => self.0.push(Row { name, rounds: vec![values] }),
            }
        }
    }

    /// Prints for each row the value in the middle and the one that one of a hundred exceeds, of all rounds
    /// together: `runs` is how often it was done.
    pub fn print(&self, output: &Output) {
        for Row { name, rounds } in &self.0 {
            let all = rounds.concat();
            output.figure(name, "us", &all);
            output.part(&format!("{name}_p99"), "us", &all, 0.99);
        }
    }

    /// Prints the medians of `over` over those of `under`, round by round; nothing where one was not measured.
    pub fn ratio(&self, output: &Output, name: &str, over: &str, under: &str) {
        let row = |name| self.0.iter().find(|row| row.name == name);
        let Some((over, under)) = row(over).zip(row(under)) else { return };
        let pairs = over.rounds.iter().zip(&under.rounds);
        let gains = pairs.map(|(over, under)| quantile(over, 0.5) / quantile(under, 0.5));
        output.figure(name, "x", &gains.collect::<Vec<_>>());
    }
}
