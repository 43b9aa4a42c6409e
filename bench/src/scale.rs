//! How does it scale: which cache lines do workers take from each other, and what would 128 cores do?
//!
//! The counts are exact, and not measured: a build whose atomics count (`bench/counted`, run as a child)
//! steps virtual workers, and prints for each operation
//!
//! - `<what>_transfers_<n>w`: lines that workers took from each other (transfers and upgrades, as
//!   `manylane_sync::primitive::counted` defines them), in lockstep: between two accesses of a worker
//!   every other has had one. Nothing meets more often than so.
//! - `<what>_turns_transfers_<n>w`: the same when each get with its put is done before the next worker comes.
//! - `<what>_failed_<n>w`: compare-exchanges that failed, in lockstep; in turns none does.
//! - `guard`, `quiescent`, `quiescent_gp` (a grace period begins each turn), `ring_b<batch>` for each
//!   item: in turns. `stack`: in lockstep. `_busiest_line`: the part of the line that had most.
//! - the forwarding path of two workers, for each frame, by what the lines belong to
//!   (`counted/src/forward.rs`). Writes of workers to lines that they share (I5) are an error.
//!
//! `arc_upgrade` is a twin of `std::sync::Weak::upgrade`: std's own atomics cannot be counted.
//!
//! `model_...` is no measurement but a MODEL: the transactions on the busiest line, times what this machine needs for a
//! line to change hands (`line_transaction_ns`), as if nothing else took time and the line's owners changed one after
//! the other. The result is elapsed time for each operation of all cores together; each core waits longer by the number
//! of cores. The model has no core that keeps a line for several operations while the others wait, as real ones do,
//! above all with two: those are faster than the model says. Read it for how one count stands to another, and how
//! it grows.
//!
//! Not measured here: what two cores really do (`compare refcount` measures it); machines with several sockets, whose
//! lines travel longer.
//!
//! Needs two cores for the one thing measured.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::prelude::*;

/// Which cache lines do workers take from each other, and what would 128 cores do?
#[derive(clap::Args)]
pub struct Plan {
    #[command(flatten)]
    pace: Pace,
}

/// Counts, measures the one thing, and prints.
pub fn run(plan: &Plan) -> Result {
    measure(&plan.pace, &plan.pace.output("scale"))
}

/// Measures and prints for a report.
pub fn measure(pace: &Pace, output: &Output) -> Result {
    let counted = counted(pace.quick, None)?;
    let transactions =
        (0..pace.rounds(3, 9, 3)).map(|_| transaction_ns(if pace.quick { 4 } else { 64 }));
    let mut transactions = transactions.collect::<Result<Vec<f64>>>()?;
    transactions.sort_by(f64::total_cmp);
    if output.json {
        counted.lines.iter().for_each(|line| println!("{line}"));
    } else {
        println!("Counted, exactly: for each operation, with N workers");
        print_table(&counted.rows);
        println!("\nCounted, exactly: for each frame, with two workers");
        for (name, value) in &counted.others {
            println!("{name:<42}{value:>8.4}");
        }
        println!("\nMeasured: a line changes hands between two cores");
    }
    output.figure("line_transaction_ns", "ns", &transactions);
    let modelled = counted.modelled();
    for (name, values) in &modelled {
        for (workers, lines) in values {
            let ns: Vec<f64> = transactions.iter().map(|ns| ns * lines).collect();
            let name = format!("{name}_{workers}w");
            match output.json {
                true => output.figure(&name, "ns", &ns),
                false => _ = output.keep(&name, "ns", &ns, 0.5),
            }
        }
    }
    if !output.json {
        println!("\nMODEL, not measured: ns for each operation of all cores together");
        let ns = quantile(&transactions, 0.5);
        let in_ns = |(name, values): (String, Values)| {
            (name, values.into_iter().map(|(workers, lines)| (workers, lines * ns)).collect())
        };
        print_table(&modelled.into_iter().map(in_ns).collect::<Vec<_>>());
    }
    Ok(())
}

type Values = BTreeMap<u32, f64>;

/// A table for people, a column for each number of workers.
fn print_table(rows: &[(String, Values)]) {
    let columns: BTreeSet<u32> =
        rows.iter().flat_map(|(_, values)| values.keys().copied()).collect();
    let head: String = columns.iter().map(|workers| format!("{workers:>9}")).collect();
    println!("{:<38}{head}", "");
    for (name, values) in rows {
        let cell = |workers| match values.get(workers) {
            Some(value) => format!("{value:>9.2}"),
            None => " ".repeat(9),
        };
        let cells: String = columns.iter().map(cell).collect();
        println!("{name:<38}{}", cells.trim_end());
    }
}

/// What the build that counts has printed.
#[derive(Default)]
pub struct Counted {
    lines: Vec<String>,
    /// Name without the number of workers, and what was counted with each number.
    rows: Vec<(String, Values)>,
    /// What has no number of workers.
    others: Vec<(String, f64)>,
}

impl Counted {
    fn parse(text: &str) -> Result<Counted, String> {
        let mut counted = Counted::default();
        for line in text.lines() {
            let figure: Option<(String, f64)> = serde_json::from_str::<Value>(line)
                .ok()
                .and_then(|line| Some((line["figure"].as_str()?.into(), line["value"].as_f64()?)));
            let (name, value) = figure.ok_or_else(|| format!("not a figure: `{line}`"))?;
            counted.lines.push(line.into());
            match workers(&name) {
                Some((row, workers)) => counted.add(row, workers, value),
                None => counted.others.push((name, value)),
            }
        }
        Ok(counted)
    }

    fn add(&mut self, row: &str, workers: u32, value: f64) {
        match self.rows.iter_mut().find(|(name, _)| name == row) {
            Some((_, values)) => _ = values.insert(workers, value),
            None => self.rows.push((row.into(), BTreeMap::from([(workers, value)]))),
        }
    }

    pub fn others(&self) -> &[(String, f64)] {
        &self.others
    }

    /// Names of modelled figures without the number of workers, and how many times a line changes hands
    /// for each operation.
    fn modelled(&self) -> Vec<(String, Values)> {
        let has_busiest = |what: &str| {
            let busiest = format!("{what}_busiest_line");
            self.rows.iter().any(|(row, _)| *row == busiest)
        };
        // `turns_transfers` first: it ends in `transfers` too. An operation without a row of the
        // busiest line has one line.
        let name = |row: &str| {
            if let Some(what) = row.strip_suffix("_turns_transfers") {
                return Some(format!("model_turns_{what}_ns"));
            }
            if let Some(what) = row.strip_suffix("_busiest_line") {
                return Some(format!("model_{what}_ns"));
            }
            match row.strip_suffix("_transfers")? {
                what @ ("guard" | "quiescent") => Some(format!("model_{what}_ns")),
                what if has_busiest(what) => None,
                what => Some(format!("model_lockstep_{what}_ns")),
            }
        };
        self.rows.iter().filter_map(|(row, values)| Some((name(row)?, values.clone()))).collect()
    }
}

/// `cas_failed_16w` as `cas_failed` and 16.
fn workers(figure: &str) -> Option<(&str, u32)> {
    let (row, workers) = figure.strip_suffix('w')?.rsplit_once('_')?;
    Some((row, workers.parse().ok()?))
}

/// Builds and runs `bench/counted`, in a target folder of its own: its flag would rebuild everything.
pub fn counted(quick: bool, only: Option<&str>) -> Result<Counted> {
    let program = env::current_exe()?;
    let target = program.ancestors().nth(2).unwrap_or(&program).join("counted");
    let flags = env::var("RUSTFLAGS").unwrap_or_default() + " --cfg manylane_counted";
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["run", "--quiet", "--release", "--locked", "--manifest-path"])
        .args([concat!(env!("CARGO_MANIFEST_DIR"), "/counted/Cargo.toml"), "--"])
        .args(quick.then_some("--quick"))
        .args(only)
        .env("CARGO_TARGET_DIR", target)
        .env("RUSTFLAGS", flags)
        .env_remove("CARGO_ENCODED_RUSTFLAGS") // Cargo would prefer it to RUSTFLAGS.
        .stderr(Stdio::inherit());
    let ran = cargo.output();
    let ran = ran.map_err(|error| format!("{:?} does not start: {error}", cargo.get_program()))?;
    if !ran.status.success() {
        let why = "did not build, or found what must not be, as it says above";
        return Err(format!("bench/counted {why} ({})", ran.status).into());
    }
    Ok(Counted::parse(&String::from_utf8_lossy(&ran.stdout))?)
}

/// Nanoseconds for a line to change hands, on two cores that pass a number back and forth: the least of
/// `slices`, each of less than a millisecond, since whatever comes between only adds to it.
///
/// Each pass is a store to a line that both hold, and a load of what the other has just written: an
/// upgrade and a transfer, by which the model's transactions are measured as it counts them.
fn transaction_ns(slices: u64) -> Result<f64> {
    const ROUNDS: u64 = 4096;
    let number = CacheAligned(AtomicU64::new(0));
    let await_number = |wanted| {
        // Relaxed: nothing else is passed along.
        while number.load(Ordering::Relaxed) != wanted {
            spin_loop();
        }
    };
    let slice = |slice| {
        let start = Instant::now();
        for round in slice * ROUNDS..(slice + 1) * ROUNDS {
            number.store(2 * round + 1, Ordering::Relaxed);
            await_number(2 * round + 2);
        }
        start.elapsed().as_nanos() as f64 / (4 * ROUNDS) as f64
    };
    let least = Bench::new(&None, false)?.once(|thread| match thread {
        0 => (0..slices).map(slice).fold(f64::INFINITY, f64::min),
        _ => {
            for round in 0..slices * ROUNDS {
                await_number(2 * round + 1);
                number.store(2 * round + 2, Ordering::Relaxed);
            }
            0.0
        }
    })?;
    Ok(least[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"figure":"cas_transfers_2w","value":5.0}
{"figure":"cas_transfers_128w","value":257.0}
{"figure":"cas_turns_transfers_2w","value":2.0}
{"figure":"cas_failed_2w","value":2.0}
{"figure":"stack_transfers_2w","value":9.5}
{"figure":"stack_busiest_line_2w","value":6.0}
{"figure":"guard_transfers_2w","value":0.0}
{"figure":"shared_writes_per_frame","value":0.0}"#;

    #[test]
    fn only_what_is_counted_on_one_line_is_modelled_and_says_so() {
        let counted = Counted::parse(TEXT).expect("each line is a figure");
        let lockstep = BTreeMap::from([(2, 5.0), (128, 257.0)]);
        let expected = [
            ("model_lockstep_cas_ns".into(), lockstep),
            ("model_turns_cas_ns".into(), BTreeMap::from([(2, 2.0)])),
            ("model_stack_ns".into(), BTreeMap::from([(2, 6.0)])),
            ("model_guard_ns".into(), BTreeMap::from([(2, 0.0)])),
        ];
        assert_eq!(counted.modelled(), expected);
        assert_eq!(counted.others, [("shared_writes_per_frame".into(), 0.0)]);
    }

    #[test]
    fn what_is_not_a_figure_is_refused() {
        let error = Counted::parse("{\"figure\":\"cas\"}").err();
        assert_eq!(error.as_deref(), Some("not a figure: `{\"figure\":\"cas\"}`"));
    }
}
