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

use std::env;
use std::process::{Command, Stdio};

use crate::figure::Row;
use crate::prelude::*;
use crate::progress;

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
    progress::doing("builds bench/counted, for minutes the first time, and counts");
    let counted = counted(pace.quick, None)?;
    let transactions =
        (0..pace.rounds(3, 9, 3)).map(|_| transaction_ns(if pace.quick { 4 } else { 64 }));
    let transactions = transactions.collect::<Result<Vec<f64>>>()?;
    output
        .note("Counted, exactly: for each operation, with N workers; and for each frame, with two");
    counted.iter().for_each(|row| output.show(row.clone()));
    output.note("\nMeasured: a line changes hands between two cores");
    output.figure("line_transaction_ns", "ns", &transactions);
    output.note("\nMODEL, not measured: ns for each operation of all cores together");
    for (name, lines) in modelled(&counted) {
        let ns: Vec<f64> = transactions.iter().map(|ns| ns * lines).collect();
        output.figure(&name, "ns", &ns);
    }
    Ok(())
}

/// Names of modelled figures, and how many times a line changes hands for each operation.
fn modelled(counted: &[Row]) -> Vec<(String, f64)> {
    let has = |figure: String| counted.iter().any(|row| row.figure == figure);
    // `cas_failed_16w` is `cas_failed` with 16 workers. `turns_transfers` first: it ends in `transfers` too. An
    // operation without a row of the busiest line has one line.
    let name = |figure: &str| {
        let (row, workers) = figure.strip_suffix('w')?.rsplit_once('_')?;
        let what = if let Some(what) = row.strip_suffix("_turns_transfers") {
            format!("turns_{what}")
        } else if let Some(what) = row.strip_suffix("_busiest_line") {
            what.into()
        } else {
            match row.strip_suffix("_transfers")? {
                what @ ("guard" | "quiescent") => what.into(),
                what if has(format!("{what}_busiest_line_{workers}w")) => return None,
                what => format!("lockstep_{what}"),
            }
        };
        Some(format!("model_{what}_ns_{workers}w"))
    };
    counted.iter().filter_map(|row| Some((name(&row.figure)?, row.value))).collect()
}

/// Builds and runs `bench/counted`, by the compiler beside it. What others wrote is compiled for all that this workspace
/// tests.
pub fn counted(quick: bool, only: Option<&str>) -> Result<Vec<Row>> {
    let program = env::current_exe()?;
    let target = program.ancestors().nth(2).unwrap_or(&program);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/counted");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["run", "--quiet", "--locked", "--features", "counting", "--manifest-path"])
        .args([&format!("{folder}/Cargo.toml"), "--"])
        .args(quick.then_some("--quick"))
        .args(only)
        .env("CARGO_TARGET_DIR", target)
        .env("RUSTC_WORKSPACE_WRAPPER", format!("{folder}/rustc"))
        .stderr(Stdio::inherit());
    let ran = cargo.output();
    let ran = ran.map_err(|error| format!("{:?} does not start: {error}", cargo.get_program()))?;
    if !ran.status.success() {
        let why = "did not build, or found what must not be, as it says above";
        return Err(format!("bench/counted {why} ({})", ran.status).into());
    }
    rows(&String::from_utf8_lossy(&ran.stdout))
}

fn rows(text: &str) -> Result<Vec<Row>> {
    let row = |line| {
        serde_json::from_str(line)
            .map_err(|error| format!("not a figure: `{line}`: {error}").into())
    };
    text.lines().map(row).collect()
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

    #[test]
    fn only_what_is_counted_on_one_line_is_modelled_and_says_so() {
        let counted = [
            ("cas_transfers_2w", 5.0),
            ("cas_transfers_128w", 257.0),
            ("cas_turns_transfers_2w", 2.0),
            ("cas_failed_2w", 2.0),
            ("stack_transfers_2w", 9.5),
            ("stack_busiest_line_2w", 6.0),
            ("guard_transfers_2w", 0.0),
            ("shared_writes_per_frame", 0.0),
        ];
        let lines = counted.map(|(figure, value)| {
            format!(
                r#"{{"bench":"","figure":"{figure}","value":{value},"min":0,"max":9,"runs":1,"unit":""}}"#
            )
        });
        let counted = rows(&lines.join("\n")).expect("each line is a figure");
        let expected = [
            ("model_lockstep_cas_ns_2w", 5.0),
            ("model_lockstep_cas_ns_128w", 257.0),
            ("model_turns_cas_ns_2w", 2.0),
            ("model_stack_ns_2w", 6.0),
            ("model_guard_ns_2w", 0.0),
        ];
        assert_eq!(modelled(&counted), expected.map(|(name, lines)| (name.into(), lines)));
    }

    #[test]
    fn what_is_not_a_figure_is_refused() {
        let error = rows("{\"figure\":\"cas\"}").expect_err("it has no value");
        assert!(error.to_string().starts_with("not a figure: `{\"figure\":\"cas\"}`"), "{error}");
    }
}
