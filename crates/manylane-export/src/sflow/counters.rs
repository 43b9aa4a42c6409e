//! A counter sample: the generic counters of an interface (RFC 2233).

use super::writer::Writer;

/// Counters of an interface since its creation. The standard has 32 bits for packets: the upper ones are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceCounters {
    /// Its number.
    pub interface: u32,
    /// Bits in a second; 0 if it is not known.
    pub speed: u64,
    /// Whether it sends and receives at once, if that is known.
    pub full_duplex: Option<bool>,
    /// Whether the operator wants it up.
    pub is_admin_up: bool,
    /// Whether it is.
    pub is_up: bool,
    /// Whether it receives every frame.
    pub is_promiscuous: bool,
    /// Bytes received.
    pub in_bytes: u64,
    /// Packets received, without those of groups.
    pub in_packets: u64,
    /// Packets received for groups and for all; those among `in_packets` if nothing is known of them.
    pub in_group: Option<u64>,
    /// Packets dropped instead of received.
    pub in_dropped: u64,
    /// Packets with errors.
    pub in_errors: u64,
    /// Bytes sent.
    pub out_bytes: u64,
    /// Packets sent.
    pub out_packets: u64,
    /// Packets dropped instead of sent.
    pub out_dropped: u64,
    /// Packets that could not be sent for errors.
    pub out_errors: u64,
}

impl InterfaceCounters {
    pub(super) fn write(&self, to: &mut Writer, sequence: u32) {
        to.part(COUNTER_SAMPLE, |to| {
            to.short(sequence);
            to.short(self.interface);
            to.short(1);
            to.part(GENERIC, |to| self.write_generic(to));
        });
    }

    fn write_generic(&self, to: &mut Writer) {
        to.short(self.interface);
        to.short(ETHERNET);
        to.long(self.speed);
        to.short(match self.full_duplex {
            None => 0,
            Some(true) => 1,
            Some(false) => 2,
        });
        to.short(u32::from(self.is_admin_up) | u32::from(self.is_up) << 1);
        to.long(self.in_bytes);
        to.short(self.in_packets as u32);
        to.short(self.in_group.map_or(UNKNOWN, |packets| packets as u32));
        to.short(UNKNOWN); // Linux counts broadcasts with groups, or not at all.
        to.short(self.in_dropped as u32);
        to.short(self.in_errors as u32);
        to.short(UNKNOWN);
        to.long(self.out_bytes);
        to.short(self.out_packets as u32);
        to.short(UNKNOWN);
        to.short(UNKNOWN);
        to.short(self.out_dropped as u32);
        to.short(self.out_errors as u32);
        to.short(self.is_promiscuous.into());
    }
}

const COUNTER_SAMPLE: u32 = 2;
const GENERIC: u32 = 1;

/// `ethernetCsmacd` of the interface types.
const ETHERNET: u32 = 6;

/// What stands for a counter that is not known.
const UNKNOWN: u32 = u32::MAX;
