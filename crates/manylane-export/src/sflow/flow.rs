//! A packet sample, with the route and the translation of its packet.

use std::net::IpAddr;

use super::writer::Writer;

/// The first bytes of a frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The bytes as received.
    pub bytes: Vec<u8>,
    /// Bytes of the frame on the wire, with its checksum.
    pub frame_len: u32,
    /// How many of these no sample can show: the checksum.
    pub stripped: u32,
}

/// VLANs and priorities at both ends of a router; 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switch {
    /// VLAN and priority of the received frame.
    pub from: (u32, u32),
    /// VLAN and priority of the forwarded frame.
    pub to: (u32, u32),
}

/// The route of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Router {
    /// The next router; the unspecified address if the destination is on the link.
    pub next_hop: IpAddr,
    /// Length of the prefix that leads to the source.
    pub source_len: u8,
    /// Length of the prefix that leads to the destination.
    pub destination_len: u8,
}

/// Both ends of a packet when it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// Address and port of the source.
    pub source: (IpAddr, u16),
    /// Address and port of the destination.
    pub destination: (IpAddr, u16),
}

/// What becomes of a sampled packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Nothing is known of that.
    Unknown,
    /// The packet leaves by the interface of this number.
    Interface(u32),
    /// The packet is discarded, for this reason.
    Discarded(super::DiscardReason),
}

/// A sampled packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSample {
    /// The ingress interface's number, which is the data source too.
    pub input: u32,
    /// What becomes of it.
    pub output: Output,
    /// One packet in how many is sampled.
    pub rate: u32,
    /// Packets that could have been samples so far, of this source; the lower bits.
    pub pool: u32,
    /// Samples that were lost so far.
    pub drops: u32,
    /// Its first bytes.
    pub header: Header,
    /// VLANs.
    pub switch: Option<Switch>,
    /// Its route.
    pub router: Option<Router>,
    /// Its new ends, if it is translated.
    pub translation: Option<Translation>,
}

impl FlowSample {
    pub(super) fn write(&self, to: &mut Writer, sequence: u32) {
        to.part(FLOW_SAMPLE, |to| {
            to.short(sequence);
            to.short(self.input);
            to.short(self.rate);
            to.short(self.pool);
            to.short(self.drops);
            to.short(self.input);
            to.short(match self.output {
                Output::Unknown => 0,
                Output::Interface(number) => number,
                // The upper two bits say that the rest is a reason.
                Output::Discarded(reason) => 1 << 30 | reason as u32,
            });
            let parts = [self.switch.is_some(), self.router.is_some()];
            let translation = if self.translation.is_some() { 2 } else { 0 };
            to.short(1 + parts.iter().filter(|&&is| is).count() as u32 + translation);
            self.header.write(to);
            if let Some(switch) = self.switch {
                switch.write(to);
            }
            if let Some(router) = self.router {
                router.write(to);
            }
            if let Some(translation) = self.translation {
                translation.write(to);
            }
        });
    }
}

impl Header {
    pub(super) fn write(&self, to: &mut Writer) {
        to.part(HEADER, |to| {
            to.short(ETHERNET);
            to.short(self.frame_len);
            to.short(self.stripped);
            to.opaque(&self.bytes);
        });
    }
}

impl Switch {
    fn write(self, to: &mut Writer) {
        to.part(SWITCH, |to| {
            for (vlan, priority) in [self.from, self.to] {
                to.short(vlan);
                to.short(priority);
            }
        });
    }
}

impl Router {
    fn write(self, to: &mut Writer) {
        to.part(ROUTER, |to| {
            to.address(Some(self.next_hop));
            to.short(self.source_len.into());
            to.short(self.destination_len.into());
        });
    }
}

impl Translation {
    fn write(self, to: &mut Writer) {
        to.part(NAT, |to| {
            to.address(Some(self.source.0));
            to.address(Some(self.destination.0));
        });
        to.part(NAT_PORT, |to| {
            to.short(self.source.1.into());
            to.short(self.destination.1.into());
        });
    }
}

// Formats of the standard's own, which has the enterprise 0.
const FLOW_SAMPLE: u32 = 1;
const HEADER: u32 = 1;
const SWITCH: u32 = 1001;
const ROUTER: u32 = 1002;
const NAT: u32 = 1007;
const NAT_PORT: u32 = 1020;

/// `header_protocol` of Ethernet.
const ETHERNET: u32 = 1;
