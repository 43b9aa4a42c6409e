//! manylane's configuration as the router of a lab.

use std::fmt::Write;

use super::network::{LAN_V4, LAN_V6, Lab, WAN_V4, WAN_V6};
use crate::config::{Config, ConfigError, Environment};

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
    /// Who forwards what the links receive: `queue` or `flow`; empty for manylane's choice.
    pub steering: &'static str,
    /// Who owns each queue of the links to the client and to the server, as the file has it: `[0, 1]`; empty for
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

impl Lab {
    /// The configuration of manylane as this lab's router, checked against its router's interfaces.
    pub fn config(&self, options: &RouterOptions) -> Result<Config, ConfigError> {
        let text = options.text();
        self.router.run(move || Config::parse(&text, "lab.toml", &Environment::of_this_thread()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_makes_a_file_that_parses() {
        let more = "[[route]]\nprefix = \"10.3.0.0/16\"\ntype = \"blackhole\"\n".into();
        let all = RouterOptions {
            wan_mtu: Some(1400),
            steering: "flow",
            owners: ["", "[0]"],
            drivers: ["auto", "af_packet"],
            vlans: ["", "id = 200\ntag = \"802.1ad\"\ninner = 7"],
            more,
            ..Default::default()
        };
        for options in [RouterOptions::default(), all] {
            let environment = Environment {
                cores: vec![0, 1],
                socket: "/run/x.sock".into(),
                interfaces: &|_| Ok(()),
            };
            let config = Config::parse(&options.text(), "lab.toml", &environment)
                .unwrap_or_else(|error| panic!("{error}\n{}", options.text()));
            assert_eq!(config.ports.len(), 2);
            assert_eq!(config.ports[1].mtu, options.wan_mtu);
            let vlans = usize::from(!options.vlans[1].is_empty());
            assert_eq!(config.ports[1].vlans.len(), vlans);
        }
    }
}
