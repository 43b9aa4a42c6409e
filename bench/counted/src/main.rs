//! Who takes whose cache line, counted: the child of the bench's question `scale`.
//!
//! Built with `--cfg manylane_counted`, it steps virtual workers through each protocol and through the
//! forwarding path, and prints what `manylane_sync::primitive::counted` has counted (its door says what
//! is modelled). `_transfers` are lines that moved, transfers and upgrades together; `_failed` are
//! compare-exchanges that failed; each for an operation, with the number of workers behind it.
//!
//! Exits with an error when workers write lines they share (I5 in ARCHITECTURE.md).

#[cfg(not(manylane_counted))]
compile_error!(
    "this is built with RUSTFLAGS=\"--cfg manylane_counted\", as the bench's `scale` does"
);

#[path = "../../src/baseline/refcount.rs"]
mod baseline;
mod figure;
mod forward;
mod protocols;
mod refcounts;

use std::io;
use std::process::ExitCode;

use figure::Output;

/// Numbers of workers.
const WORKERS: [usize; 7] = [2, 4, 8, 16, 32, 64, 128];
const WORKERS_QUICK: [usize; 3] = [2, 4, 16];

fn main() -> ExitCode {
    let quick = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("--quick") => true,
        Some(other) => {
            eprintln!("manylane-counted: `{other}`: only --quick is known");
            return ExitCode::FAILURE;
        }
    };
    match run(quick) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("manylane-counted: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(quick: bool) -> io::Result<()> {
    let output = Output { bench: "scale", json: true };
    let workers: &[usize] = if quick { &WORKERS_QUICK } else { &WORKERS };
    refcounts::run(workers, quick, &output);
    protocols::run(workers, quick, &output);
    forward::run(&output)
}
