//! Lists the links of this network namespace, with what their drivers report. Needs no root.
//!
//! `cargo run -p manylane-io --example links`

use manylane_io::interface::Interface;
use manylane_io::netlink::{Netlink, NetlinkError};

fn main() -> Result<(), NetlinkError> {
    for link in Netlink::open()?.links()? {
        let state = match (link.is_up, link.is_running) {
            (true, true) => "running",
            (true, false) => "up, without carrier",
            (false, _) => "down",
        };
        print!("{}: {} is {state}, MTU {}", link.index, link.name, link.mtu);
        match Interface::read(&link.name) {
            Ok(interface) => println!(
                ", driver {:?}, {} receive and {} transmit queues",
                interface.driver, interface.receive_queues, interface.transmit_queues
            ),
            Err(error) => println!(" ({error})"),
        }
    }
    Ok(())
}
