//! A router in memory, without an interface or a privilege: a generator feeds one port, the router forwards through
//! another, and the ledger says what became of each packet.
//!
//!     cargo run -p manylane-router --example memory

use std::error::Error;
use std::thread;

use manylane_router::config::{Config, Environment};
use manylane_router::control::Daemon;

const PACKETS: u64 = 100_000;

const ROUTER: &str = r#"
[workers]
count = 1

[[port]]
name = "west"
driver = "memory"
addresses = ["10.1.0.254/24"]

[port.generate]             # packets that arrive at "west"
source = "10.1.0.1"
destination = "10.3.0.0/16"
flows = 64
size = 64
packets = 100000

[[port]]
name = "east"               # hosts at its far end answer ARP and count all packets
driver = "memory"
addresses = ["10.2.0.254/24"]

[[route]]
prefix = "10.3.0.0/16"
via = "10.2.0.1"
"#;

fn main() -> Result<(), Box<dyn Error>> {
    let config = Config::parse(ROUTER, "memory.toml", &Environment::of_this_thread())?;
    let daemon = Daemon::start(config)?;
    let source = daemon.source();
    loop {
        let ledger = source.ledger();
        if ledger.received >= PACKETS && ledger.held == 0 && ledger.in_flight == 0 {
            break;
        }
        thread::yield_now(); // The worker is busy on its own core.
    }
    let ledger = daemon.stop();
    println!("received    {:>7}", ledger.received);
    println!("created     {:>7}", ledger.created.values().sum::<u64>());
    println!("transmitted {:>7}", ledger.transmitted);
    println!("delivered   {:>7}", ledger.delivered);
    for (reason, packets) in &ledger.dropped {
        println!("dropped     {packets:>7} ({reason})");
    }
    println!("missing     {:>7}", ledger.missing);
    assert_eq!(ledger.missing, 0, "every packet has an end");
    Ok(())
}
