//! The sender of samples: datagrams to every collector, and the bound on reports of discarded packets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use super::{Agent, Datagram, Datagrams, DiscardedPacket, FlowSample, InterfaceCounters};
use crate::collector::{Load, Message, Outcome, Watch};
use crate::{Collector, Destination};

/// Sends samples to collectors. Never waits.
#[derive(Debug)]
pub struct Sender {
    collectors: Vec<Collector>,
    datagrams: Datagrams,
    /// The operator's, if the operator has named one.
    agent: Option<IpAddr>,
    started: Instant,
    /// The present second, and discarded packets in it.
    second: Instant,
    reported: u32,
}

impl Sender {
    /// A sender to these collectors. Its sockets are opened in the network namespace of the thread that sends.
    pub fn new(collectors: &[Destination], agent: Option<IpAddr>) -> Sender {
        let unknown = Agent { address: Ipv4Addr::UNSPECIFIED.into(), sub_agent: 0 };
        let now = Instant::now();
        Sender {
            collectors: collectors.iter().cloned().map(Collector::new).collect(),
            datagrams: Datagrams::new(unknown),
            agent,
            started: now,
            second: now,
            reported: 0,
        }
    }

    /// What other threads read of the collectors.
    pub fn watches(&self) -> Vec<Watch> {
        self.collectors.iter().map(Collector::watch).collect()
    }

    /// The agent's address: the operator's, or that by which the first reachable collector is reached. To be called before
    /// samples are added, until it is known.
    pub fn find_agent(&mut self) -> Option<IpAddr> {
        let known = self.datagrams.agent().address;
        if !known.is_unspecified() {
            return Some(known);
        }
        let mut reached = self.collectors.iter();
        let source = |one: &Collector| source_towards(one.destination().socket_address());
        let found = self.agent.or_else(|| reached.find_map(source))?;
        self.datagrams.set_address(found);
        Some(found)
    }

    /// Adds a packet sample.
    pub fn add_flow(&mut self, sample: &FlowSample) {
        let full = self.datagrams.add_flow(sample, self.uptime_ms());
        self.send(full);
    }

    /// Adds a counter sample.
    pub fn add_counters(&mut self, sample: &InterfaceCounters) {
        let full = self.datagrams.add_counters(sample, self.uptime_ms());
        self.send(full);
    }

    /// Adds a discarded packet; false if the present second has had [`REPORTS`] of them.
    #[must_use = "a packet that is not reported is counted"]
    pub fn add_discarded(&mut self, packet: &DiscardedPacket, now: Instant) -> bool {
        if now.saturating_duration_since(self.second) >= Duration::from_secs(1) {
            (self.second, self.reported) = (now, 0);
        }
        if self.reported >= REPORTS {
            return false;
        }
        self.reported += 1;
        let full = self.datagrams.add_discarded(packet, self.uptime_ms());
        self.send(full);
        true
    }

    /// Sends what has been added, if anything has.
    pub fn finish(&mut self) {
        let last = self.datagrams.finish(self.uptime_ms());
        self.send(last);
    }

    fn send(&mut self, datagram: Option<Datagram>) {
        let Some(datagram) = datagram else { return };
        let message = Message { bytes: &datagram.bytes, records: datagram.samples.into() };
        let now = Instant::now();
        for collector in &mut self.collectors {
            // The error was an earlier datagram's, and each datagram stands for itself.
            if collector.send(message, now) == Outcome::Refused
                && collector.send(message, now) == Outcome::Refused
            {
                collector.give_up(Load { records: message.records, ..Load::default() });
            }
        }
    }

    fn uptime_ms(&self) -> u32 {
        self.started.elapsed().as_millis() as u32
    }
}

/// The address by which this host sends there, if it has a route.
fn source_towards(to: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(to).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

/// Discarded packets that are sent in a second.
pub const REPORTS: u32 = 100;
