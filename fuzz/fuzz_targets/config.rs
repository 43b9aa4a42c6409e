//! Any bodies of `/v1/config/diff` and `/v1/config/apply`, and any texts in them: each is a configuration or an error with a
//! message; a text differs from itself in nothing; and a configuration that needs no restart differs in live keys only.
//!
//! ```sh
//! cargo fuzz run --sanitizer none --features libfuzzer config -- -max_total_time=60
//! ```
//!
//! The input is one text, or two that a zero byte parts: the daemon's and the request's. What begins with `{` is a body. Not
//! looked for: HTTP around bodies (tests of `manylane-api`), and the change itself, which a running daemon makes
//! (`tests/netns/config.rs`).
#![no_main]

use std::path::PathBuf;

use libfuzzer_sys::fuzz_target;
use manylane_api::ConfigRequest;
use manylane_router::config::{Config, Environment, Version};

fuzz_target!(|input: &[u8]| {
    let Ok(input) = std::str::from_utf8(input) else { return };
    let (ours, theirs) = input.split_once('\0').unwrap_or((input, input));
    let (Some(ours), Some(theirs)) = (received(ours), received(theirs)) else { return };
    for (from, to) in [(&ours, &theirs), (&theirs, &ours)] {
        assert!(from.changes(from).is_empty(), "a text is as it is");
        let changes = from.changes(to);
        if from.config == to.config {
            assert!(changes.is_empty(), "{changes:?}");
        } else if from.needs_no_restart(to) {
            assert!(changes.iter().all(|change| change.live), "{changes:?}");
        }
    }
});

/// What the daemon makes of a body, or of a text alone.
fn received(input: &str) -> Option<Version> {
    if !input.starts_with('{') {
        return version(input, "fuzz.toml");
    }
    match serde_json::from_str::<ConfigRequest>(input) {
        Ok(request) => version(&request.text, request.name.as_deref().unwrap_or("fuzz.toml")),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

/// What the daemon makes of a text. The daemon has two cores and two interfaces, whatever this machine has.
fn version(text: &str, name: &str) -> Option<Version> {
    let environment = Environment {
        cores: vec![0, 1],
        socket: PathBuf::from("/run/manylane/api.sock"),
        interfaces: &|name| match name {
            "lan" | "wan" => Ok(()),
            _ => Err("it has lan and wan".into()),
        },
    };
    match Config::parse(text, name, &environment) {
        Ok(config) => Some(Version { text: text.into(), config }),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
    }
}
