//! Prints ten packets that a running daemon receives, or the packets of ten seconds.
//!
//! `cargo run -p manylane-client --example capture -- /run/manylane/api.sock.capture`

use std::path::PathBuf;
use std::time::{Duration, Instant};

use manylane_client::{Capture, Options, RemoteError};

const PACKETS: usize = 10;
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> Result<(), RemoteError> {
    let path = std::env::args_os().nth(1).unwrap_or("/run/manylane/api.sock.capture".into());
    let options = Options { snap: 64, ..Options::default() };
    let mut capture = match Capture::open(&PathBuf::from(path), &options) {
        Err(error @ (RemoteError::NoDaemon { .. } | RemoteError::Unreachable { .. })) => {
            println!("SKIPPED: {error}");
            return Ok(());
        }
        opened => opened?,
    };
    let begun = Instant::now();
    let mut shown = 0;
    while shown < PACKETS && begun.elapsed() < PATIENCE {
        capture.wait(Some(PATIENCE.saturating_sub(begun.elapsed())))?;
        while let Some(mut round) = capture.receive() {
            for packet in round.packets().take(PACKETS - shown) {
                let record = packet.record;
                println!("{} ns, port {}: {} bytes", record.time_ns, record.port.0, record.len);
                shown += 1;
            }
            if shown == PACKETS {
                break;
            }
        }
    }
    let statistics = capture.statistics();
    println!("{shown} packets shown, {} given, {} lost", statistics.packets, statistics.lost);
    Ok(())
}
