//! Not yet.

use std::io;
use std::path::Path;

use crate::config::Config;

/// Forwards until interrupted.
pub fn run(_config: Config, _socket: &Path) -> Result<(), io::Error> {
    Err(io::Error::other("`run` is not in this version; `--check` is"))
}
