//! Flow records of sampled packets: a bounded table of the flows that samples belong to.
//!
//! | A record is written                            | Its reason        |
//! |------------------------------------------------|-------------------|
//! | the first sample is the active timeout ago     | active timeout    |
//! | the last sample is the inactive timeout ago    | idle timeout      |
//! | a further flow needs the place                 | lack of resources |
//! | the exporter ends                              | forced end        |
//!
//! A flow leaves the table with its record, and its next sample begins it anew. So each sample is in exactly one record.
//!
//! All records state one rate, since collectors know one for an observation domain. Samples may be taken at another rate,
//! as of a port with a rate of its own: each then stands for as many samples as the rates' quotient, and a remainder is
//! rounded up or down at random. So sums are right whatever the rates are.

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::net::IpAddr;
use std::time::Duration;

use super::record::{EndReason, Ends, Record};

/// What samples of one flow have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SampledKey {
    /// Addresses and ports; port 0 where the packet shows none.
    pub ends: Ends,
    /// The protocol's number.
    pub protocol: u8,
    /// `ipClassOfService`: IPv4's type of service, IPv6's traffic class.
    pub class: u8,
    /// The interfaces' numbers (ifIndex) by which packets arrive and leave.
    pub interfaces: [u32; 2],
}

/// A sampled packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledPacket {
    /// Its flow.
    pub key: SampledKey,
    /// Bytes from the IP header on.
    pub octets: u64,
    /// `tcpControlBits`.
    pub tcp_flags: u16,
    /// The next router; none where the destination is on the link, or where it is not known.
    pub next_hop: Option<IpAddr>,
    /// Lengths of the prefixes that lead to the source and to the destination.
    pub prefix_lens: [u8; 2],
}

/// Samples of one flow. Counts are those of the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledFlow {
    /// One packet in how many is a sample.
    pub rate: u32,
    /// Fields of the first sample; `octets` and `tcp_flags` are of all samples.
    pub packet: SampledPacket,
    /// The number of samples.
    pub packets: u64,
    /// The first sample: milliseconds since 1970.
    pub start_ms: u64,
    /// The last sample.
    pub end_ms: u64,
    /// Why the record was written.
    pub reason: EndReason,
}

/// How samples become records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledTerms {
    /// The rate that records state: one packet in how many is a sample.
    pub rate: u32,
    /// A flow that lasts has a record this often.
    pub active: Duration,
    /// A flow without samples for this long has its record.
    pub inactive: Duration,
    /// The largest number of flows.
    pub flows_max: usize,
}

/// The table of flows. Pure: no clock, no thread.
#[derive(Debug)]
pub struct SampledFlows {
    terms: SampledTerms,
    /// The place of each flow.
    places: HashMap<SampledKey, usize>,
    flows: Vec<SampledFlow>,
    /// The place that a further flow takes from another.
    hand: usize,
    records: Vec<Record>,
    counts: SampledCounts,
    /// How often samples were rounded.
    rounded: u64,
}

/// What has passed the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampledCounts {
    /// Samples in records, or in flows that will have a record.
    pub samples: u64,
    /// Flows in the table.
    pub flows: u64,
    /// Records written early, since a further flow needed the place.
    pub evicted: u64,
}

impl SampledFlows {
    /// An empty table.
    pub fn new(terms: SampledTerms) -> SampledFlows {
        SampledFlows {
            terms: SampledTerms {
                flows_max: terms.flows_max.max(1),
                rate: terms.rate.max(1),
                ..terms
            },
            places: HashMap::new(),
            flows: Vec::new(),
            hand: 0,
            records: Vec::new(),
            counts: SampledCounts::default(),
            rounded: 0,
        }
    }

    /// Adds `samples` of a packet that were taken of one packet in `rate`.
    pub fn add(&mut self, packet: &SampledPacket, samples: u32, rate: u32, now_ms: u64) {
        let samples = self.of_our_rate(samples, rate);
        if samples == 0 {
            return;
        }
        self.counts.samples += samples;
        let octets = samples * packet.octets;
        if let Some(&place) = self.places.get(&packet.key) {
            let flow = &mut self.flows[place];
            flow.packets += samples;
            flow.packet.octets += octets;
            flow.packet.tcp_flags |= packet.tcp_flags;
            flow.end_ms = now_ms.max(flow.start_ms);
            return;
        }
        let flow = SampledFlow {
            rate: self.terms.rate,
            packet: SampledPacket { octets, ..*packet },
            packets: samples,
            start_ms: now_ms,
            end_ms: now_ms,
            reason: EndReason::Forced,
        };
        self.place(flow);
    }

    /// Writes records of flows whose timeouts are over.
    pub fn sweep(&mut self, now_ms: u64) {
        let SampledTerms { active, inactive, .. } = self.terms;
        let is_over = |since: u64, limit: Duration| {
            u128::from(now_ms.saturating_sub(since)) >= limit.as_millis()
        };
        let mut place = 0;
        while let Some(flow) = self.flows.get(place) {
            if is_over(flow.end_ms, inactive) {
                self.end(place, EndReason::IdleTimeout);
            } else if is_over(flow.start_ms, active) {
                self.end(place, EndReason::ActiveTimeout);
            } else {
                place += 1;
            }
        }
    }

    /// Writes the records of all flows.
    pub fn end_all(&mut self) {
        while !self.flows.is_empty() {
            self.end(self.flows.len() - 1, EndReason::Forced);
        }
    }

    /// The records written since the last call.
    pub fn take(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records)
    }

    /// What has passed.
    pub fn counts(&self) -> SampledCounts {
        SampledCounts { flows: self.flows.len() as u64, ..self.counts }
    }

    /// How many samples of the rate that records state these are.
    fn of_our_rate(&mut self, samples: u32, rate: u32) -> u64 {
        let packets = u64::from(samples) * u64::from(rate);
        let our = u64::from(self.terms.rate);
        let (whole, rest) = (packets / our, packets % our);
        if rest == 0 {
            return whole;
        }
        self.rounded += 1;
        // The keys of the map's hash are random numbers.
        let chance = self.places.hasher().hash_one(self.rounded) % our;
        whole + u64::from(chance < rest)
    }

    fn place(&mut self, flow: SampledFlow) {
        let key = flow.packet.key;
        if self.flows.len() < self.terms.flows_max {
            self.places.insert(key, self.flows.len());
            self.flows.push(flow);
            return;
        }
        let place = self.hand % self.flows.len();
        self.hand = place + 1;
        let before = std::mem::replace(&mut self.flows[place], flow);
        self.places.remove(&before.packet.key);
        self.places.insert(key, place);
        self.counts.evicted += 1;
        self.write(before, EndReason::LackOfResources);
    }

    fn end(&mut self, place: usize, reason: EndReason) {
        let flow = self.flows.swap_remove(place);
        self.places.remove(&flow.packet.key);
        if let Some(moved) = self.flows.get(place) {
            self.places.insert(moved.packet.key, place);
        }
        self.write(flow, reason);
    }

    fn write(&mut self, flow: SampledFlow, reason: EndReason) {
        self.records.push(Record::Sampled(SampledFlow { reason, ..flow }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(port: u16) -> SampledPacket {
        let [source, destination] = [[10, 1, 0, 1], [10, 2, 0, 1]].map(IpAddr::from);
        let ends = Ends::new((source, port), (destination, 53));
        let key = SampledKey { ends, protocol: 6, class: 0, interfaces: [3, 4] };
        SampledPacket { key, octets: 100, tcp_flags: 0x10, next_hop: None, prefix_lens: [24, 0] }
    }

    fn table(rate: u32, flows_max: usize) -> SampledFlows {
        let [active, inactive] = [60, 15].map(Duration::from_secs);
        SampledFlows::new(SampledTerms { rate, active, inactive, flows_max })
    }

    fn flows(table: &mut SampledFlows) -> Vec<SampledFlow> {
        let flow = |record| match record {
            Record::Sampled(flow) => flow,
            Record::Flow(_) | Record::Nat(_) => unreachable!("the table writes none"),
        };
        table.take().into_iter().map(flow).collect()
    }

    #[test]
    fn samples_of_a_flow_are_one_record_for_each_timeout() {
        let mut table = table(100, 10);
        for second in 0..=70 {
            let tcp_flags = if second == 3 { 2 } else { 0x10 };
            table.add(&SampledPacket { tcp_flags, ..packet(1) }, 2, 100, second * 1000);
            if second == 5 {
                table.add(&packet(2), 1, 100, 5000);
            }
            table.sweep(second * 1000);
        }
        table.end_all();
        let [idle, active, last] = flows(&mut table)[..] else { panic!("three records") };
        assert_eq!(
            (idle.reason, idle.packets, idle.packet.key),
            (EndReason::IdleTimeout, 1, packet(2).key)
        );
        assert_eq!((active.reason, active.packets), (EndReason::ActiveTimeout, 2 * 61));
        assert_eq!((active.packet.octets, active.packet.tcp_flags), (200 * 61, 0x12));
        assert_eq!((active.start_ms, active.end_ms, active.rate), (0, 60_000, 100));
        assert_eq!((last.reason, last.packets, last.start_ms), (EndReason::Forced, 20, 61_000));
        assert_eq!(table.counts(), SampledCounts { samples: 143, flows: 0, evicted: 0 });
    }

    #[test]
    fn a_full_table_writes_a_record_for_each_further_flow_and_loses_no_sample() {
        let mut table = table(1, 8);
        for port in 0..100 {
            table.add(&packet(port), 1, 1, 0);
            // Flows that are there take no place.
            table.add(&packet(port), 1, 1, 0);
            assert!(table.counts().flows <= 8);
        }
        let early = flows(&mut table);
        assert!(early.iter().all(|flow| flow.reason == EndReason::LackOfResources));
        assert_eq!((early.len(), table.counts().evicted), (92, 92));
        table.sweep(1_000_000);
        table.end_all();
        let all: u64 = early.iter().chain(&flows(&mut table)).map(|flow| flow.packets).sum();
        assert_eq!(all, 200);
    }

    #[test]
    fn samples_of_another_rate_stand_for_as_many_packets() {
        for (rate, ours) in [(10, 100), (100, 10), (7, 100), (100, 7), (100, 100)] {
            let mut table = table(ours, 10);
            (0..10_000).for_each(|_| table.add(&packet(1), 1, rate, 0));
            table.end_all();
            let all: u64 = flows(&mut table).iter().map(|flow| flow.packets).sum();
            let (stand_for, sampled) = (all * u64::from(ours), 10_000 * u64::from(rate));
            // Five deviations of 10,000 roundings.
            let near = 5.0 * 100.0 * 0.5 * f64::from(ours);
            assert!(stand_for.abs_diff(sampled) as f64 <= near, "{rate} as {ours}: {stand_for}");
            assert_eq!(table.counts().samples, all);
        }
    }
}
