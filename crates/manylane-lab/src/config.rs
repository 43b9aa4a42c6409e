//! manylane's configuration as the router of a lab.

use std::fmt::Write;

use crate::network::{LAN_V4, LAN_V6, WAN_V4, WAN_V6};

/// What may differ between the routers of two labs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterOptions {
    /// How many workers.
    pub workers: u16,
    /// The drivers of the links to the client and to the server.
    pub drivers: [&'static str; 2],
    /// The keys of `[[port.vlan]]`, but `addresses`, where all frames on the links to the client and to the
    /// server are in a VLAN; empty where none is.
    pub vlans: [&'static str; 2],
    /// Steering of the links: `queue` or `flow`; empty for manylane's choice.
    pub steering: &'static str,
    /// The owner of each queue of the links to the client and to the server, as the file has it: `[0, 1]`; empty for
    /// manylane's choice.
    pub owners: [&'static str; 2],
    /// Largest IP packet on the link to the server; without it, the device's.
    pub wan_mtu: Option<u16>,
    /// More of the file, after the ports: routes, or sections.
    pub more: String,
}

impl Default for RouterOptions {
    fn default() -> Self {
        RouterOptions {
            workers: 1,
            drivers: ["af_xdp"; 2],
            vlans: [""; 2],
            steering: "",
            owners: [""; 2],
            wan_mtu: None,
            more: String::new(),
        }
    }
}

impl RouterOptions {
    /// The configuration file.
    pub fn text(&self) -> String {
        let mut text = format!("[workers]\ncount = {}\n", self.workers);
        let [lan, wan] = [0, 1].map(|side| (self.drivers[side], self.vlans[side]));
        let more = |owners: &str| {
            let mut keys = String::new();
            if !self.steering.is_empty() {
                keys += &format!("steering = {:?}\n", self.steering);
            }
            if !owners.is_empty() {
                keys += &format!("workers = {owners}\n");
            }
            keys
        };
        let mtu = self.wan_mtu.map_or(String::new(), |mtu| format!("mtu = {mtu}\n"));
        let [to_client, to_server] = self.owners.map(more);
        text += &port("lan", lan, &[format!("{LAN_V4}/24"), format!("{LAN_V6}/64")], &to_client);
        let to_server = to_server + &mtu;
        text += &port("wan", wan, &[format!("{WAN_V4}/24"), format!("{WAN_V6}/64")], &to_server);
        text + "\n" + &self.more
    }
}

fn port(name: &str, (driver, vlan): (&str, &str), addresses: &[String], more: &str) -> String {
    let mut text = format!(
        "\n[[port]]\nname = \"{name}\"\ndriver = \"{driver}\"\ninterface = \"{name}\"\n{more}"
    );
    if !vlan.is_empty() {
        writeln!(text, "[[port.vlan]]\n{vlan}").expect("a string takes everything");
    }
    writeln!(text, "addresses = {addresses:?}").expect("a string takes everything");
    text
}
