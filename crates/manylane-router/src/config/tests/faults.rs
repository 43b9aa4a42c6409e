//! What an operator may get wrong, and what is said to it.

mod capture;
mod driver;
mod neighbour;
mod port;
mod ports;
mod route;
mod settings;
mod sflow;
mod steering;
mod syntax;
mod vlan;

/// A port without a device.
pub(super) const LAN: &str = r#"[[port]]
name = "lan"
driver = "memory"
addresses = ["10.1.0.254/24", "2001:db8:1::fe/64"]
"#;

/// A port with one.
const WAN: &str = r#"[[port]]
name = "wan"
driver = "af_xdp"
interface = "eth0"
addresses = ["10.2.0.254/24"]
"#;

/// A port that is files.
const FILE: &str = r#"[[port]]
name = "file"
driver = "pcap"
addresses = ["10.7.0.254/24"]
"#;

/// A text, in parts, and what is said to it.
pub(super) type Fault = (&'static [&'static str], &'static str);

/// All, by the part of the file that they are in.
pub(super) const FAULTS: &[&[Fault]] = &[
    syntax::FAULTS,
    settings::FAULTS,
    sflow::FAULTS,
    steering::FAULTS,
    port::FAULTS,
    driver::FAULTS,
    ports::FAULTS,
    route::FAULTS,
    capture::FAULTS,
    neighbour::FAULTS,
    vlan::FAULTS,
];
