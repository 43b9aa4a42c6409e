//! Datagrams: samples, numbered, as many as a packet holds.

use std::collections::HashMap;
use std::net::IpAddr;

use super::writer::Writer;
use super::{DiscardedPacket, FlowSample, InterfaceCounters};

/// The router, as collectors know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agent {
    /// Its address; the unspecified one until it is known.
    pub address: IpAddr,
    /// Tells apart several exporters of an address.
    pub sub_agent: u32,
}

/// Puts samples together. A datagram leaves when the next sample has no room, and when the caller says so.
#[derive(Debug)]
pub struct Datagrams {
    agent: Agent,
    sequence: u32,
    /// Numbers of the last sample, by its kind and source.
    sequences: HashMap<(Kind, u32), u32>,
    samples: Vec<u8>,
    count: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Flow,
    Counters,
    Discarded,
}

/// A datagram that is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// How many samples are in it.
    pub samples: u32,
}

impl Datagrams {
    /// For an agent that begins.
    pub fn new(agent: Agent) -> Datagrams {
        Datagrams { agent, sequence: 0, sequences: HashMap::new(), samples: Vec::new(), count: 0 }
    }

    /// The agent has this address from now on.
    pub fn set_address(&mut self, address: IpAddr) {
        self.agent.address = address;
    }

    /// The agent.
    pub fn agent(&self) -> Agent {
        self.agent
    }

    /// Adds a packet sample. The datagram that has no room for it is returned. `uptime_ms` is the agent's.
    pub fn add_flow(&mut self, sample: &FlowSample, uptime_ms: u32) -> Option<Datagram> {
        let sequence = self.next(Kind::Flow, sample.input);
        self.add(uptime_ms, |to| sample.write(to, sequence))
    }

    /// Adds a counter sample.
    pub fn add_counters(&mut self, sample: &InterfaceCounters, uptime_ms: u32) -> Option<Datagram> {
        let sequence = self.next(Kind::Counters, sample.interface);
        self.add(uptime_ms, |to| sample.write(to, sequence))
    }

    /// Adds a discarded packet.
    pub fn add_discarded(&mut self, sample: &DiscardedPacket, uptime_ms: u32) -> Option<Datagram> {
        let sequence = self.next(Kind::Discarded, sample.input);
        self.add(uptime_ms, |to| sample.write(to, sequence))
    }

    /// The datagram with what has been added, if anything has.
    pub fn finish(&mut self, uptime_ms: u32) -> Option<Datagram> {
        if self.count == 0 {
            return None;
        }
        self.sequence = self.sequence.wrapping_add(1);
        let mut writer = Writer::default();
        writer.short(VERSION);
        writer.address(Some(self.agent.address));
        writer.short(self.agent.sub_agent);
        writer.short(self.sequence);
        writer.short(uptime_ms);
        writer.short(self.count);
        let mut bytes = writer.bytes();
        bytes.append(&mut self.samples);
        Some(Datagram { bytes, samples: std::mem::take(&mut self.count) })
    }

    fn next(&mut self, kind: Kind, source: u32) -> u32 {
        let sequence = self.sequences.entry((kind, source)).or_default();
        *sequence = sequence.wrapping_add(1);
        *sequence
    }

    fn add(&mut self, uptime_ms: u32, write: impl FnOnce(&mut Writer)) -> Option<Datagram> {
        let mut writer = Writer::default();
        write(&mut writer);
        let sample = writer.bytes();
        let is_full = self.samples.len() + sample.len() > SAMPLES_LEN;
        let full = is_full.then(|| self.finish(uptime_ms)).flatten();
        self.samples.extend(sample);
        self.count += 1;
        full
    }
}

const VERSION: u32 = 5;

/// Bytes of samples: with the headers of the datagram, of UDP and IPv6, no more than 1400, which tunnels carry.
const SAMPLES_LEN: usize = 1400 - 40 - 48;
