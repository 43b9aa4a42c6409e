//! Builds client, router and server in network namespaces of their own, and pings through the router's kernel:
//!
//! ```sh
//! sudo -E cargo run -p manylane-lab --example three_hosts
//! ```
//!
//! Without root the example prints SKIPPED.

use std::process::ExitCode;

use manylane_lab::{Lab, LabOptions, SERVER_V4, SERVER_V6, ping};

const DATA_BYTES: usize = 56;
const REQUESTS: u32 = 10;

fn main() -> ExitCode {
    let options = LabOptions { kernel_router: true, ..LabOptions::default() };
    let lab = match Lab::three_hosts(options) {
        Ok(lab) => lab,
        Err(error) => {
            println!("SKIPPED: {error}");
            return ExitCode::SUCCESS;
        }
    };
    for server in [SERVER_V4, SERVER_V6] {
        let report = match ping(&lab.client, server, DATA_BYTES, REQUESTS) {
            Ok(report) => report,
            Err(error) => {
                eprintln!("error: {error}");
                return ExitCode::FAILURE;
            }
        };
        let fastest = report.fastest.map_or("no reply".into(), |time| format!("{time:?}"));
        println!("{server}: {} of {} replies, fastest {fastest}", report.received, report.sent);
        if report.received != report.sent {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
