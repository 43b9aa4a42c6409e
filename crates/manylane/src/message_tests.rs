//! All messages of the demo.

use std::io;

use manylane_frame::RegionError;
use manylane_router::config::{Config, ConfigError, Environment};

use crate::demo::DemoError;

const EIO: i32 = 5;

fn said(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

fn invalid() -> ConfigError {
    Config::parse("[wrokers]\n", "router.toml", &Environment::of_this_thread()).unwrap_err()
}

#[test]
fn demos() {
    let start = manylane_router::control::StartError::Region(RegionError::Frames(0));
    messages!(DemoError {
        Config: [(Config(invalid()), ["wrokers"], "please report it")],
        Start: [(Start(start), ["0 frames"], "take 1 to")],
        Signals: [(Signals(said(EIO)), ["signals", "Input/output error"], "raise `ulimit -n`")],
        Faults: [(
            Faults(vec!["1 packet is lost".into(), "2 came twice".into()]),
            ["1 packet is lost", "2 came twice"],
            "please report it"
        )],
    });
}
