//! Flow records of the entries, where a collector is configured (IPFIX): each packet in one of them.
//!
//! Programs count; this room reads their counts, and writes down how much of each count has been exported. So what all
//! records of a direction say adds up to its counters, whatever happens in between.
//!
//! | A record is written                                 | Its reason              |
//! |-----------------------------------------------------|-------------------------|
//! | packets, but none for the inactive timeout          | idle timeout            |
//! | packets, and the last record is the active timeout ago | active timeout       |
//! | the packets leave by another interface than before  | forced end              |
//! | the entry is taken out                              | [`reason_of`] a removal |
//!
//! When an entry is taken out, programs may still count packets of it. Its last record waits until none can: the flow
//! table reads the counters when the entry's grace period is over ([`FlowsMut::take_ended`]), and before its place is used
//! again.
//!
//! The lane's thread is the only one here, and does not wait for a collector: what the exporter's queue has no room for is
//! lost, and counted there.

use std::collections::VecDeque;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant, SystemTime};

use manylane_export::ipfix::{EndReason, Ends, FlowRecord, Record, RecordSender};
use manylane_io::poll::poll;
use manylane_net::transit::flows::{Direction, FlowNumber, FlowUse, FlowsMut, Tuple};
use manylane_sync::doorbell::Wake as _;

use super::LaneThread;
use super::connection::sent;
use super::refusal::Removal;
use crate::programs::Ticks;

/// Where records go, and how often.
#[derive(Clone, Debug)]
pub(crate) struct ExportTerms {
    /// The exporter.
    pub sender: RecordSender,
    /// A flow that lasts has a record this often.
    pub active: Duration,
    /// A flow without packets for this long has its record.
    pub inactive: Duration,
}

/// What has been exported of each entry.
pub(super) struct Exports {
    terms: ExportTerms,
    /// By the entry's number.
    counts: Vec<[DirectionCounts; 2]>,
    /// Entries that were taken out, oldest first: the flow table has their last counts in this order.
    leaving: VecDeque<Leaving>,
    records: Vec<Record>,
    clock: Clock,
}

/// A direction of an entry; 32 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct DirectionCounts {
    /// Packets and bytes in records so far.
    packets: u64,
    octets: u64,
    /// No packet that is in no record yet is earlier: milliseconds since 1970.
    since_ms: u64,
    /// Interfaces by which packets arrive and leave.
    interfaces: [u32; 2],
}

/// An entry that was taken out.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    tuples: [Tuple; 2],
    counts: [DirectionCounts; 2],
    reason: EndReason,
}

/// The time, by the wall's clock and by the kernel's ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Clock {
    now_ms: u64,
    /// Nothing if the kernel does not tell, for want of memory.
    tick: Option<u64>,
    tick_ns: u64,
}

impl Clock {
    fn read(ticks: &Ticks) -> Clock {
        Clock { now_ms: now_ms(), tick: ticks.read().ok(), tick_ns: ticks.length_ns() }
    }

    /// When the last packet of a direction was forwarded, by 31 bits of its tick.
    fn last_packet_ms(&self, used: u32) -> u64 {
        let Some(tick) = self.tick else { return self.now_ms };
        let ago = tick.wrapping_sub(used.into()) & LAST_31_BITS;
        // A packet of this very tick may be ahead of the tick that was read.
        let ago = if ago > LAST_31_BITS / 2 { 0 } else { ago };
        self.now_ms.saturating_sub(ago * self.tick_ns / 1_000_000)
    }
}

impl Exports {
    pub fn new(terms: ExportTerms) -> Exports {
        let (counts, leaving, records) = (Vec::new(), VecDeque::new(), Vec::new());
        Exports { terms, counts, leaving, records, clock: Clock::default() }
    }

    /// An entry begins, with all its counts at 0.
    fn begin(&mut self, FlowNumber(number): FlowNumber, interfaces: [[u32; 2]; 2]) {
        let place = number as usize;
        if place >= self.counts.len() {
            self.counts.resize(place + 1, [DirectionCounts::default(); 2]);
        }
        let since_ms = now_ms();
        self.counts[place] = interfaces.map(|interfaces| DirectionCounts {
            since_ms,
            interfaces,
            ..DirectionCounts::default()
        });
    }

    /// Looks at what has passed in an entry that stays.
    fn look(
        &mut self,
        FlowNumber(number): FlowNumber,
        tuples: [Tuple; 2],
        uses: [FlowUse; 2],
        interfaces: [Option<[u32; 2]>; 2],
    ) {
        let Some(all) = self.counts.get_mut(number as usize) else { return };
        let (clock, terms) = (&self.clock, &self.terms);
        for direction in Direction::BOTH {
            let (counts, used) = (&mut all[direction as usize], uses[direction as usize]);
            let now = interfaces[direction as usize].unwrap_or(counts.interfaces);
            let reason = if counts.packets == used.packets {
                counts.since_ms = clock.now_ms;
                None
            } else if now != counts.interfaces {
                Some(EndReason::Forced)
            } else {
                due(clock, terms, counts, used)
            };
            if let Some(reason) = reason {
                self.records.extend(counts.record(clock, tuples, direction, used, reason));
            }
            counts.interfaces = now;
        }
    }

    /// An entry is taken out: its last record is written when programs have counted its last packet.
    fn leave(&mut self, FlowNumber(number): FlowNumber, tuples: [Tuple; 2], why: Removal) {
        let counts = self.counts.get_mut(number as usize).map(std::mem::take).unwrap_or_default();
        self.leaving.push_back(Leaving { tuples, counts, reason: reason_of(why) });
    }

    /// The last records of entries that were taken out.
    fn end(&mut self, flows: &mut FlowsMut) {
        for uses in flows.take_ended() {
            let Some(mut leaving) = self.leaving.pop_front() else { return };
            let Leaving { tuples, reason, .. } = leaving;
            for direction in Direction::BOTH {
                let (counts, used) =
                    (&mut leaving.counts[direction as usize], uses[direction as usize]);
                self.records.extend(counts.record(&self.clock, tuples, direction, used, reason));
            }
        }
    }

    /// Whether nothing waits for a grace period.
    pub fn is_done(&self) -> bool {
        self.leaving.is_empty()
    }

    /// Hands over what has been written.
    fn send(&mut self) {
        if !self.records.is_empty() {
            self.terms.sender.send(&self.records);
            self.records.clear();
        }
    }
}

/// Why a record is due of a direction that has packets in no record yet.
fn due(
    clock: &Clock,
    terms: &ExportTerms,
    counts: &DirectionCounts,
    used: FlowUse,
) -> Option<EndReason> {
    let ms = |limit: Duration| limit.as_millis() as u64;
    let idle = clock.now_ms.saturating_sub(clock.last_packet_ms(used.used));
    if idle >= ms(terms.inactive) {
        Some(EndReason::IdleTimeout)
    } else if clock.now_ms.saturating_sub(counts.since_ms) >= ms(terms.active) {
        Some(EndReason::ActiveTimeout)
    } else {
        None
    }
}

impl DirectionCounts {
    /// The record of what has passed since the one before; nothing if nothing has.
    fn record(
        &mut self,
        clock: &Clock,
        tuples: [Tuple; 2],
        direction: Direction,
        used: FlowUse,
        reason: EndReason,
    ) -> Option<Record> {
        let packets = used.packets.wrapping_sub(self.packets);
        let octets = used.bytes.wrapping_sub(self.octets);
        if packets == 0 {
            return None;
        }
        let end_ms = clock.last_packet_ms(used.used);
        let record = FlowRecord {
            received: ends(tuples[direction as usize]),
            sent: ends(sent(tuples, direction)),
            protocol: tuples[0].protocol,
            interfaces: self.interfaces,
            packets,
            octets,
            // The wall's clock may have been set back.
            start_ms: self.since_ms.min(end_ms),
            end_ms,
            reason,
        };
        (self.packets, self.octets, self.since_ms) = (used.packets, used.bytes, clock.now_ms);
        Some(record.into())
    }
}

impl LaneThread {
    /// An entry begins that has these ports in each direction.
    pub(super) fn export_begin(&mut self, number: FlowNumber, ports: [[u8; 2]; 2]) {
        if self.exports.is_some() {
            let interfaces = ports.map(|ports| self.indices(ports).unwrap_or_default());
            if let Some(exports) = &mut self.exports {
                exports.begin(number, interfaces);
            }
        }
    }

    /// An entry is about to be taken out.
    pub(super) fn export_leave(&mut self, number: FlowNumber, why: Removal) {
        if let Some(exports) = &mut self.exports {
            let tuples = Direction::BOTH.map(|direction| self.flows.tuple(number, direction));
            exports.leave(number, tuples, why);
        }
    }

    /// Looks at entries of the sweep.
    pub(super) fn export_sweep(&mut self, from: u32, to: u32) {
        let Some(mut exports) = self.exports.take() else { return };
        exports.clock = Clock::read(&self.ticks);
        for number in self.records.live(from, to) {
            let tuples = Direction::BOTH.map(|direction| self.flows.tuple(number, direction));
            let uses = Direction::BOTH.map(|direction| self.flows.use_of(number, direction));
            let interfaces = Direction::BOTH.map(|direction| {
                let (generation, ports) = self.flows.approved(number, direction);
                if generation == 0 { None } else { self.indices(ports) }
            });
            exports.look(number, tuples, uses, interfaces);
        }
        self.exports = Some(exports);
    }

    /// Writes the records of entries whose grace period is over, and hands all over.
    pub(super) fn export_ended(&mut self) {
        if let Some(exports) = &mut self.exports {
            exports.end(&mut self.flows);
            exports.send();
        }
    }

    /// The last records of all entries. Programs are off by then, so no packet follows.
    pub(super) fn export_all(&mut self) {
        if self.exports.is_none() {
            return;
        }
        self.remove_all(Removal::Unneeded);
        let until = Instant::now() + END_WITHIN;
        // The grace period of what was taken out before, and that of the rest.
        while self.flows.reclaim() > 0 && Instant::now() < until {
            self.reclaim.wake();
            // Nothing rings at its end. The one failure is ENOMEM: then it turns instead of sleeping.
            let _ = poll(&[self.doorbell.as_fd()], Some(GRACE_POLL));
            self.doorbell.drain();
        }
        if let Some(mut exports) = self.exports.take() {
            exports.clock = Clock::read(&self.ticks);
            exports.end(&mut self.flows);
            exports.terms.sender.send_waiting(&exports.records);
        }
    }

    /// The interfaces of a direction's ports, as far as the ports have any.
    fn indices(&self, ports: [u8; 2]) -> Option<[u32; 2]> {
        let index = |number| Some(self.terms.interface(number)?.index);
        Some([index(ports[0])?, index(ports[1])?])
    }
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn ends(tuple: Tuple) -> Ends {
    let Tuple { source, source_port, destination, destination_port, .. } = tuple;
    Ends::new((source, source_port), (destination, destination_port))
}

/// Why the flow of an entry ends that is taken out.
fn reason_of(why: Removal) -> EndReason {
    match why {
        Removal::Ended | Removal::Closing => EndReason::EndOfFlow,
        Removal::Idle => EndReason::IdleTimeout,
        Removal::Refused | Removal::Unneeded => EndReason::Forced,
    }
}

/// Bits of a tick that an entry has.
pub(super) const LAST_31_BITS: u64 = 0x7fff_ffff;
/// How long the last grace periods may take: 44 ms each, on a machine that is not busy.
const END_WITHIN: Duration = Duration::from_secs(1);
/// How often their end is looked for.
const GRACE_POLL: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests;
