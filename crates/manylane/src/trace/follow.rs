//! Packets of `manylane accelerate`, from what is seen of them: copies by its programs, events of nftables, drops of the
//! kernel. The packet's headers join them.
//!
//! The sources are read in this order: drops, then events. An event is there before its packet is dropped, so a drop that
//! is read has all events of its packet behind it.

use std::collections::VecDeque;

use manylane_accelerate::programs::KernelDrop;
use manylane_client::Copied;
use manylane_frame::vocabulary::Point;
use manylane_io::netlink::nftables::expression::Verdict;
use manylane_io::netlink::nftables::trace::{DELIVERED, RECEIVED, SENT, TraceEvent, TraceStep};

use super::headers::Headers;

/// What can be seen of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sees {
    /// Events of nftables.
    pub rules: bool,
    /// Drops with their reasons.
    pub drops: bool,
}

/// Packets on their way.
pub(super) struct Follow {
    wanted: usize,
    port: Option<u16>,
    sees: Sees,
    packets: Vec<Packet>,
    /// Packets found so far.
    found: usize,
    /// Of packets that no copy is known of, oldest first.
    traces: VecDeque<Trace>,
    drops: VecDeque<(Headers, KernelDrop)>,
}

/// A packet that is followed.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    /// From 1.
    pub number: usize,
    pub headers: Headers,
    /// Where programs saw it, in order.
    pub sights: Vec<Sight>,
    /// What nftables did.
    pub trace: Option<Trace>,
    /// When the kernel dropped it, and why.
    pub dropped: Option<(u64, String)>,
    /// Whether its end is known.
    pub is_complete: bool,
    changed_ns: u64,
}

/// A packet as a program saw it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sight {
    pub time_ns: u64,
    pub point: Point,
    /// The port's number.
    pub port: u16,
    pub cpu: u32,
    pub len: u32,
    /// Why it is left to the kernel.
    pub verdict: u8,
    pub headers: Headers,
}

/// A marked packet's way through nftables.
#[derive(Clone, Debug)]
pub(super) struct Trace {
    id: u32,
    first: Headers,
    /// As last seen: with other addresses, where they were translated.
    pub last: Headers,
    /// But those of our own table.
    pub events: Vec<TraceEvent>,
    /// Further ones.
    pub unlisted: usize,
    pub end: Option<TraceEnd>,
    changed_ns: u64,
}

/// How a packet left nftables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TraceEnd {
    Dropped,
    /// To the router's own sockets.
    Delivered,
    /// To this device.
    Sent(Option<u32>),
}

impl Follow {
    /// `wanted` packets, which this port receives.
    pub fn new(wanted: usize, port: Option<u16>, sees: Sees) -> Follow {
        Follow {
            wanted,
            port,
            sees,
            packets: Vec::new(),
            found: 0,
            traces: VecDeque::new(),
            drops: VecDeque::new(),
        }
    }

    /// Whether all packets were found and given out.
    pub fn is_over(&self) -> bool {
        self.found == self.wanted && self.packets.is_empty()
    }

    /// Takes in a copy.
    pub fn copied(&mut self, copied: &Copied<'_>, now_ns: u64) {
        let Some(headers) = Headers::of_frame(copied.bytes) else { return };
        let point = Point::ALL.get(usize::from(copied.point)).copied().unwrap_or_default();
        let sight = Sight {
            time_ns: copied.time_ns,
            point,
            port: copied.port,
            cpu: copied.cpu,
            len: copied.len,
            verdict: copied.verdict,
            headers,
        };
        let known = match point {
            Point::Receive => None,
            _ => self.received(&sight),
        };
        if let Some(packet) = known {
            packet.sights.push(sight);
            packet.changed_ns = now_ns;
            return;
        }
        // One that has no reception is a packet that the kernel has joined of several, or that came before the first copy.
        let is_wanted = matches!(point, Point::Receive | Point::Kernel)
            && self.port.is_none_or(|port| port == sight.port);
        if is_wanted && self.found < self.wanted {
            self.found += 1;
            self.packets.push(Packet {
                number: self.found,
                headers: sight.headers.clone(),
                sights: vec![sight],
                trace: None,
                dropped: None,
                is_complete: false,
                changed_ns: now_ns,
            });
        }
    }

    /// The packet whose reception came before.
    fn received(&mut self, sight: &Sight) -> Option<&mut Packet> {
        let waits = |packet: &Packet| packet.end().is_none();
        let is_it = |packet: &Packet| waits(packet) && packet.headers.are_those_of(&sight.headers);
        // A flow's translation changes addresses between reception and transmission, on one CPU.
        let may_be = |packet: &Packet| {
            let is_here = packet.sights.last().is_some_and(|last| last.cpu == sight.cpu);
            waits(packet) && is_here && packet.headers.may_become(&sight.headers)
        };
        let place = self.packets.iter().position(is_it).or_else(|| {
            (sight.point == Point::Transmit)
                .then(|| self.packets.iter().rposition(may_be))
                .flatten()
        })?;
        Some(&mut self.packets[place])
    }

    /// Takes in an event of nftables.
    pub fn event(&mut self, event: TraceEvent, now_ns: u64) {
        let upper = Some(&event.transport[..]).filter(|bytes| !bytes.is_empty());
        let headers = Headers::of_packet(&event.network, upper);
        let is_first = event.own_chain() == Some(RECEIVED);
        if let (true, Some(headers)) = (is_first, &headers) {
            self.traces.retain(|trace| trace.id != event.id);
            if self.traces.len() == TRACES_MAX {
                self.traces.pop_front();
            }
            self.traces.push_back(Trace {
                id: event.id,
                first: headers.clone(),
                last: headers.clone(),
                events: Vec::new(),
                unlisted: 0,
                end: None,
                changed_ns: now_ns,
            });
            return;
        }
        let claimed = self.packets.iter_mut().filter_map(|packet| packet.trace.as_mut());
        let mut all = self.traces.iter_mut().chain(claimed);
        if let Some(trace) = all.find(|trace| trace.id == event.id) {
            trace.take(event, headers);
            trace.changed_ns = now_ns;
        }
    }

    /// Takes in a drop.
    pub fn dropped(&mut self, drop: KernelDrop) {
        let Some(headers) = Headers::of_packet(&drop.head, None) else { return };
        if self.drops.len() == DROPS_MAX {
            self.drops.pop_front();
        }
        self.drops.push_back((headers, drop));
    }

    /// Joins what belongs together. Gives out the packets whose end is known, and those about which nothing is heard
    /// any more.
    pub fn finish(&mut self, now_ns: u64) -> Vec<Packet> {
        for packet in &mut self.packets {
            packet.join(&mut self.traces, &mut self.drops);
            packet.is_complete = packet.has_ended(self.sees, now_ns);
        }
        let is_over =
            |packet: &mut Packet| packet.is_complete || packet.is_silent(self.sees, now_ns);
        self.packets.extract_if(.., is_over).collect()
    }

    /// Gives out what is left.
    pub fn rest(mut self) -> Vec<Packet> {
        for packet in &mut self.packets {
            packet.join(&mut self.traces, &mut self.drops);
        }
        self.packets
    }
}

impl Packet {
    /// How it left the programs.
    pub fn end(&self) -> Option<&Sight> {
        self.sights.last().filter(|sight| sight.point != Point::Receive)
    }

    /// Whether the kernel has it.
    fn is_the_kernels(&self) -> bool {
        self.end().is_some_and(|end| end.point == Point::Kernel)
    }

    fn join(&mut self, traces: &mut VecDeque<Trace>, drops: &mut VecDeque<(Headers, KernelDrop)>) {
        if !self.is_the_kernels() {
            return;
        }
        if self.trace.is_none() {
            let is_its = |trace: &Trace| trace.first.are_those_of(&self.headers);
            let place = traces.iter().position(is_its);
            self.trace = place.and_then(|place| traces.remove(place));
        }
        if self.dropped.is_none() {
            let begun = self.sights.first().map_or(0, |first| first.time_ns);
            let last = self.trace.as_ref().map(|trace| &trace.last);
            let is_its = |(headers, drop): &(Headers, KernelDrop)| {
                let knows = |known: &Headers| known.are_those_of(headers);
                drop.time_ns >= begun && (knows(&self.headers) || last.is_some_and(knows))
            };
            let place = drops.iter().position(is_its);
            let drop = place.and_then(|place| drops.remove(place));
            self.dropped = drop.map(|(_, drop)| (drop.time_ns, drop.reason));
        }
    }

    fn has_ended(&self, sees: Sees, now_ns: u64) -> bool {
        let Some(end) = self.end() else { return false };
        if end.point != Point::Kernel || self.dropped.is_some() {
            return true;
        }
        // A packet that has passed all rules may be dropped still, as one that a rule drops is dropped a moment later.
        let trace = self.trace.as_ref().filter(|trace| trace.end.is_some());
        trace.is_some_and(|trace| {
            !sees.drops || now_ns.saturating_sub(trace.changed_ns) >= MOMENT_NS
        })
    }

    /// Whether nothing more is to be expected.
    fn is_silent(&self, sees: Sees, now_ns: u64) -> bool {
        let is_unseen = self.is_the_kernels() && sees == Sees::default();
        let changed = self.trace.as_ref().map_or(0, |trace| trace.changed_ns);
        is_unseen || now_ns.saturating_sub(changed.max(self.changed_ns)) >= PATIENCE_NS
    }
}

impl Trace {
    fn take(&mut self, event: TraceEvent, headers: Option<Headers>) {
        if let Some(headers) = headers {
            self.last = headers;
        }
        match event.own_chain() {
            Some(DELIVERED) => self.end = Some(TraceEnd::Delivered),
            // Only the first event of a chain has the device.
            Some(SENT) if event.egress.is_none() && self.end.is_some() => {}
            Some(SENT) => self.end = Some(TraceEnd::Sent(event.egress)),
            Some(_) => {}
            None if event.step == TraceStep::End => {}
            None => {
                if event.verdict == Verdict::Drop {
                    self.end = Some(TraceEnd::Dropped);
                }
                if self.events.len() < EVENTS_MAX || event.verdict == Verdict::Drop {
                    self.events.push(event);
                } else {
                    self.unlisted += 1;
                }
            }
        }
    }
}

/// Marked packets, and drops, that wait for their copy; events of a packet that are listed.
const TRACES_MAX: usize = 1024;
const DROPS_MAX: usize = 4096;
const EVENTS_MAX: usize = 256;
/// How long after the last rule a drop is waited for, and how long anything.
const MOMENT_NS: u64 = 200_000_000;
const PATIENCE_NS: u64 = 2_000_000_000;

#[cfg(test)]
pub(in crate::trace) mod tests;
