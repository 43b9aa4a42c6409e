//! Says of each Ethernet interface which tier `manylane accelerate` could use, and what stands against a faster one.
//!
//!     cargo run -p manylane-accelerate --example examine [INTERFACE...]
//!
//! Reads the kernel only. Prints SKIPPED where this user or this kernel does not permit that.

use manylane_accelerate::accelerator::{Options, examine};
use manylane_accelerate::gate::Kernel;

fn main() {
    let mut interfaces: Vec<String> = std::env::args().skip(1).collect();
    if interfaces.is_empty() {
        match Kernel::read() {
            Ok(kernel) => interfaces = kernel.ethernet(),
            Err(error) => return println!("SKIPPED examine: {error}"),
        }
    }
    let standings = match examine(&Options::new(interfaces)) {
        Ok(standings) => standings,
        Err(error) => return println!("SKIPPED examine: {error}"),
    };
    for standing in standings {
        println!("{}: {}", standing.interface, standing.tier);
        for reason in standing.reasons.iter().chain(&standing.driver.auto) {
            println!("  {reason}");
        }
    }
}
