//! A lab whose router is manylane, in this process.
//!
//! A scenario starts with [`Scenario::start`], lets two kernels talk through the router, and ends with
//! [`Scenario::finish`], where the ledger has to add up.

use std::net::IpAddr;
use std::sync::Arc;

use manylane_api::{Ledger, Source};
use manylane_lab::scenario::{all_answered, assert_balanced, lab, skip};
use manylane_lab::{Lab, LabOptions, Losses, RouterOptions};
use manylane_router::config::{Config, ConfigError, Environment};
use manylane_router::control::Daemon;

/// The configuration of manylane as the router of a lab, checked against its interfaces.
pub fn config(lab: &Lab, options: &RouterOptions) -> Result<Config, ConfigError> {
    let text = options.text();
    lab.router.run(move || Config::parse(&text, "lab.toml", &Environment::of_this_thread()))
}

/// A lab whose router is manylane, in this process.
pub struct Scenario {
    /// Hosts and links.
    pub lab: Lab,
    daemon: Daemon,
}

impl Scenario {
    /// Starts the usual lab and router, or says why not.
    pub fn start() -> Option<Scenario> {
        Scenario::start_with(LabOptions::default(), &RouterOptions::default())
    }

    /// Starts a lab and its router, or says why not.
    pub fn start_with(options: LabOptions, router: &RouterOptions) -> Option<Scenario> {
        let lab = lab(options)?;
        let config = match config(&lab, router) {
            Ok(config) => config,
            Err(error) => panic!("{error}\n{}", router.text()),
        };
        match lab.router.run(move || Daemon::start(config)) {
            Ok(daemon) => Some(Scenario { lab, daemon }),
            Err(error) if error.is_unavailable() => {
                skip(error);
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// What the router says of itself.
    pub fn source(&self) -> Arc<dyn Source> {
        self.daemon.source()
    }

    /// Packets the router has dropped for a reason, by its name.
    pub fn dropped(&self, reason: &str) -> u64 {
        self.source().ledger().dropped.get(reason).copied().unwrap_or(0)
    }

    /// Packets the router has made for a reason, by its name.
    pub fn created(&self, reason: &str) -> u64 {
        self.source().ledger().created.get(reason).copied().unwrap_or(0)
    }

    /// What the router and the kernels of all three hosts have lost until now.
    pub fn losses(&self) -> Losses {
        let Lab { client, router, server } = &self.lab;
        let hosts = [("client", client), ("router", router), ("server", server)];
        let mut losses = Losses::of_kernels(&hosts);
        losses.add_router(&self.source().ledger(), &self.source().ports());
        losses
    }

    /// Pings from the client until one is answered, so that neighbours are known.
    pub fn warm_up(&self, destinations: &[IpAddr]) {
        for &destination in destinations {
            all_answered(&self.lab.client, destination, 56);
        }
    }

    /// Stops the router. Every packet and every frame is accounted for.
    pub fn finish(self) -> Ledger {
        let Scenario { lab, daemon } = self;
        let ledger = lab.router.run(move || daemon.stop());
        assert_balanced(&ledger);
        ledger
    }
}

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
