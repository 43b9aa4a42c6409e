//! Prints an answer of a running daemon, `manylane run` or `manylane accelerate`:
//!
//! ```sh
//! cargo run -p manylane-api --example ask                              # /v1/daemon, at the default socket
//! cargo run -p manylane-api --example ask -- /v1/openapi.json          # the whole API as a document
//! cargo run -p manylane-api --example ask -- /v1/ports /run/test.sock  # at another socket
//! ```
//!
//! Without a daemon the example prints SKIPPED.

use std::env;
use std::path::Path;
use std::process::ExitCode;

use manylane_api::{Client, ClientError, DEFAULT_SOCKET};

fn main() -> ExitCode {
    let mut words = env::args().skip(1);
    let path = words.next().unwrap_or("/v1/daemon".into());
    let socket = words.next().unwrap_or(DEFAULT_SOCKET.into());
    match Client::new(Path::new(&socket)).ask_text(&path) {
        Ok(json) => {
            println!("{json}");
            ExitCode::SUCCESS
        }
        Err(error @ ClientError::NoDaemon { .. }) => {
            println!("SKIPPED: {error}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
