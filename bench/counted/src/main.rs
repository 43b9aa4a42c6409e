//! Counts which worker takes whose cache line: the child of the bench's question `scale`, and with `neighbour` of
//! `compare neighbour`.
//!
//! Built by the compiler `rustc` of its folder, with `--cfg manylane_counted`, it steps virtual workers through each
//! protocol and through the forwarding path, and prints what `manylane_sync::primitive::counted` has counted (its door says
//! what is modelled). `_transfers` are lines that moved, transfers and upgrades together; `_failed` are compare-exchanges
//! that failed; each for an operation, with the number of workers behind it.
//!
//! Exits with an error when workers write lines they share (I5 in ARCHITECTURE.md).

#[cfg(not(manylane_counted))]
compile_error!(
    "this is built with RUSTC_WORKSPACE_WRAPPER=bench/counted/rustc, as the bench's `scale` does"
);

#[path = "../../src/baseline/refcount.rs"]
mod baseline;
mod figure;
/// What the figures' file needs of the bench's progress. This program has none to draw.
mod progress {
    pub fn clear() {}
}
mod forward;
mod neighbour;
#[path = "../../src/baseline/neighbour.rs"]
mod old;
#[path = "../../src/mechanisms/neighbour/own.rs"]
mod own;
#[path = "../../../crates/manylane-lab/src/packet.rs"]
mod packet;
mod protocols;
#[path = "../../../crates/manylane-lab/src/random.rs"]
#[allow(dead_code, reason = "the bench's; the counting build uses a part")]
mod random;
mod refcounts;
#[path = "../../src/router.rs"]
#[allow(dead_code, reason = "the bench's; the counting build uses a part")]
mod router;

use std::process::ExitCode;

use figure::Output;

const WORKERS: [usize; 7] = [2, 4, 8, 16, 32, 64, 128];
const WORKERS_QUICK: [usize; 3] = [2, 4, 16];

static OUTPUT: Output = Output::new("scale", true);

fn main() -> ExitCode {
    let (mut quick, mut only_neighbour) = (false, false);
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--quick" => quick = true,
            "neighbour" => only_neighbour = true,
            other => {
                eprintln!("manylane-counted: `{other}`: only `neighbour` and --quick are known");
                return ExitCode::FAILURE;
            }
        }
    }
    let ran = if only_neighbour { neighbour::run(&OUTPUT) } else { run(quick) };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("manylane-counted: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(quick: bool) -> router::Result {
    let workers: &[usize] = if quick { &WORKERS_QUICK } else { &WORKERS };
    refcounts::run(workers, quick, &OUTPUT);
    protocols::run(workers, quick, &OUTPUT);
    forward::run(&OUTPUT)
}
