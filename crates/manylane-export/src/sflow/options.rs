//! What an operator chooses: collectors, and how many packets are samples.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::{AddressError, CollectorAddress, Destination, Transport};

/// Collectors, and what they receive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SflowOptions {
    /// The collectors.
    pub collectors: Vec<Destination>,
    /// One packet in how many is a sample.
    pub rate: u32,
    /// Rates of single ports, in place of `rate`.
    pub port_rates: BTreeMap<String, u32>,
    /// How often counters are sent.
    pub polling: Duration,
    /// The router's address, as collectors are to know it; that by which it reaches the first collector without.
    pub agent: Option<IpAddr>,
}

impl SflowOptions {
    /// For these collectors.
    pub fn new(collectors: Vec<Destination>) -> SflowOptions {
        let port_rates = BTreeMap::new();
        SflowOptions { collectors, rate: RATE, port_rates, polling: POLLING, agent: None }
    }
}

/// One packet in how many is a sample.
pub const RATE: u32 = 1000;
/// The largest such number: samplers reckon with twice as much.
pub const RATE_MAX: u32 = 1 << 24;
/// How often counters are sent.
pub const POLLING: Duration = Duration::from_secs(20);

/// Reads one packet in how many, as an operator writes it.
pub fn read_rate(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) => Err(format!(
            "one packet in 0 cannot be sampled; 1 samples every packet, up to {RATE_MAX} samples fewer"
        )),
        Ok(rate @ 1..=RATE_MAX) => Ok(rate),
        _ => Err(format!("a number from 1 to {RATE_MAX} is wanted")),
    }
}

/// Reads a collector, as an operator writes it. sFlow has one transport, so its name may be left out.
pub fn read_collector(text: &str) -> Result<CollectorAddress, AddressError> {
    let text = if text.contains("://") { text.into() } else { format!("udp://{text}") };
    CollectorAddress::parse(&text, &[Transport::Udp], super::PORT)
}
