//! What every command prints by: results to standard output, complaints to standard error, tables.
//!
//! A leaf: commands use this room, and this room uses none.

pub(crate) mod table;

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

/// The exit status of a command that has ended so; says why it failed.
pub(crate) fn done<T>(result: Result<T, impl Display>) -> ExitCode {
    match result {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Writes a result. `println!` would panic where the reader has gone.
pub(crate) fn print(text: &str) -> ExitCode {
    let mut output = io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("error: cannot write to standard output: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Writes a line to standard error, in one piece: other processes write there, too.
pub(crate) fn complain(message: &dyn Display) {
    // Without a standard error no reader is left.
    let _ = io::stderr().write_all(format!("{message}\n").as_bytes());
}

/// Also what clap uses.
pub(crate) const USAGE: u8 = 2;

/// The variable of the environment that is the default of `--socket`.
pub(crate) const SOCKET: &str = "MANYLANE_SOCKET";
