//! The `manylane` command.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    manylane::cli::run()
}
