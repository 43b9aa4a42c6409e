//! How long the cases take, one after the other.

use super::contestant::{ALL, PORTS, Sockets};
use crate::prelude::*;

/// What the cases took.
pub struct Took {
    /// In microseconds: opening and binding in three ways, rebinding, closing.
    cases: [Vec<f64>; 5],
    /// The part of all that time in which this thread could run and had no core.
    pub run_delay: f64,
}

const CASES: [&str; 5] = ["bind1_us", "bind2_us", "bind3_us", "rebind_us", "close_us"];

impl Took {
    /// Repeats the cases `count` times, or, when that takes long, for as long as `most`.
    pub fn measure<S: Sockets>(sockets: &mut S, count: usize, most: Duration) -> Result<Took> {
        // As the source has them: the same protocol, of all devices; bound to a device; made with protocol 0.
        let cases = [(ALL, None), (ALL, Some(PORTS[0])), (0, Some(PORTS[0]))];
        let mut bind = <[Vec<f64>; 3]>::default();
        let (mut rebind, mut close) = (Vec::new(), Vec::new());
        let (begin, delayed) = (Instant::now(), run_delay()?);
        while rebind.len() < count && (begin.elapsed() < most || rebind.is_empty()) {
            for ((protocol, port), bind) in cases.into_iter().zip(&mut bind) {
                sockets.rest();
                let start = Instant::now();
                let mut socket = sockets.open(protocol)?;
                sockets.bind(&mut socket, port, ALL)?;
                bind.push(microseconds(start));
                if protocol == 0 {
                    let start = Instant::now();
                    sockets.bind(&mut socket, Some(PORTS[1]), ALL)?;
                    rebind.push(microseconds(start));
                }
                let start = Instant::now();
                sockets.close(socket)?;
                close.push(microseconds(start));
            }
        }
        let delayed = run_delay()?.saturating_sub(delayed);
        let run_delay = delayed.as_secs_f64() / begin.elapsed().as_secs_f64();
        let [one, two, three] = bind;
        Ok(Took { cases: [one, two, three, rebind, close], run_delay })
    }
}

/// How long this thread was ready to run and did not so far, by the kernel's account (proc(5), `schedstat`).
fn run_delay() -> Result<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let ns = text.split_whitespace().nth(1).and_then(|ns| ns.parse().ok());
    let ns =
        ns.ok_or_else(|| format!("/proc/thread-self/schedstat: no second number in {text:?}"))?;
    Ok(Duration::from_nanos(ns))
}

fn microseconds(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64 / 1e3
}

#[derive(Default)]
pub struct Latencies(Vec<(String, Vec<Vec<f64>>)>);

impl Latencies {
    /// Adds a round: its figures are called `prefix`, the case, `suffix`.
    pub fn push(&mut self, prefix: &str, suffix: &str, took: Took) {
        for (case, mut values) in CASES.into_iter().zip(took.cases) {
            values.sort_by(f64::total_cmp);
            let name = format!("{prefix}{case}{suffix}");
            match self.0.iter_mut().find(|row| row.0 == name) {
                Some((_, rounds)) => rounds.push(values),
                None => self.0.push((name, vec![values])),
            }
        }
    }

    /// Prints for each row the value in the middle and the one that one of a hundred exceeds, of all rounds
    /// together: `runs` is how often it was done.
    pub fn print(&self, output: &Output) {
        for (name, rounds) in &self.0 {
            let all = rounds.concat();
            output.figure(name, "us", &all);
            output.part(&format!("{name}_p99"), "us", &all, 0.99);
        }
    }

    /// Prints the medians of `over` over those of `under`, round by round; nothing where one was not measured.
    pub fn ratio(&self, output: &Output, name: &str, over: &str, under: &str) {
        let row = |name| self.0.iter().find(|row| row.0 == name).map(|(_, rounds)| rounds);
        let Some((over, under)) = row(over).zip(row(under)) else { return };
        let pairs = over.iter().zip(under);
        let gains = pairs.map(|(over, under)| quantile(over, 0.5) / quantile(under, 0.5));
        output.figure(name, "x", &gains.collect::<Vec<_>>());
    }
}
