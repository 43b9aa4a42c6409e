//! Not yet.

use std::io;

use crate::cli::DemoOptions;

/// Shows forwarding on this machine.
pub fn run(_options: DemoOptions) -> Result<(), io::Error> {
    Err(io::Error::other("`demo` is not in this version"))
}
