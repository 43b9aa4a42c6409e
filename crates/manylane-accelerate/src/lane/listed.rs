//! The table as others see it: which entries a question is about, and what is said of each.
//!
//! The API's thread reads all entries in parts, and sorts them: this thread looks at [`LISTED_AT_ONCE`]
//! places for one, some milliseconds at most, and does its work between two of them.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use manylane_api::accelerate::{
    LaneCount, LaneStatus, TrackedDirection, TrackedFlow, TransportProtocol,
};
use manylane_net::transit::flows::{Direction, FlowNumber, FlowUse, FlowsMut, Tuple};
use manylane_net::wire::protocol;

use super::connection::sent;
use super::record::{Record, Records};
use super::refusal::{Refusal, Removal};
use super::{LaneTerms, LaneThread};

/// Which entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    /// A port by which packets of either direction enter or leave.
    pub port: Option<u8>,
    /// An address of either end, before or after translation.
    pub address: Option<IpAddr>,
    /// The number of the protocol.
    pub protocol: Option<u8>,
    /// A TCP or UDP port of either end, before or after translation.
    pub transport_port: Option<u16>,
    /// Whether it is translated.
    pub translated: Option<bool>,
}

impl Filter {
    /// Whether it takes a connection: its tuples as packets arrive, ingress and egress port of each direction.
    pub fn takes(&self, tuples: [Tuple; 2], ports: [[u8; 2]; 2]) -> bool {
        let Filter { port, address, protocol, transport_port, translated } = self;
        let ends = |is: &dyn Fn(&Tuple) -> bool| tuples.iter().any(is);
        let has_address =
            |wanted: IpAddr| ends(&|tuple| tuple.source == wanted || tuple.destination == wanted);
        let has_port = |wanted: u16| {
            ends(&|tuple| tuple.source_port == wanted || tuple.destination_port == wanted)
        };
        port.is_none_or(|port| ports.as_flattened().contains(&port))
            && address.is_none_or(has_address)
            && protocol.is_none_or(|protocol| tuples[0].protocol == protocol)
            && transport_port.is_none_or(has_port)
            && translated.is_none_or(|wanted| (tuples[0] != tuples[1].inverted()) == wanted)
    }
}

/// Entries of a part of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    /// Bytes of both directions, and the entry's number.
    pub entries: Vec<(u64, u32)>,
    /// Packets of both directions of all these.
    pub packets: u64,
    /// What their directions have counted.
    pub sums: Sums,
    /// The place at which the next part begins.
    pub next: Option<u32>,
}

/// By ingress port, and whether manylane forwards.
pub(crate) type Sums = BTreeMap<(u8, bool), Sum>;

/// What some directions have counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    /// The directions.
    pub directions: u64,
    /// Their packets.
    pub packets: u64,
    /// Bytes of these.
    pub bytes: u64,
}

impl Sum {
    /// Adds these, too.
    pub fn add(&mut self, other: Sum) {
        self.directions += other.directions;
        self.packets = self.packets.wrapping_add(other.packets);
        self.bytes = self.bytes.wrapping_add(other.bytes);
    }
}

/// What ports are called, and the tier that forwards what they receive.
pub(crate) type PortNames = BTreeMap<u8, (String, &'static str)>;

/// Whether packets of a direction are forwarded, and if not, why: a word, and a sentence.
type State = Result<(), (&'static str, String)>;

impl LaneThread {
    /// The state of the thread and its table.
    pub(crate) fn status(&self) -> LaneStatus {
        let count = |reason: &str, meaning: &str, total| LaneCount {
            reason: reason.into(),
            explanation: meaning.into(),
            total,
        };
        let counts = &self.counts;
        LaneStatus {
            needed_ipv4: self.terms.needs(false),
            needed_ipv6: self.terms.needs(true),
            generation: self.terms.generation,
            capacity: self.flows.capacity() as u64,
            used: self.flows.len() as u64,
            polled: self.records.silent.len() as u64,
            candidates: counts.candidates,
            admitted: counts.admitted,
            refused: Refusal::ALL
                .map(|why| count(why.name(), why.meaning(), counts.refused[why as usize]))
                .into(),
            removed: Removal::ALL
                .map(|why| count(why.name(), why.meaning(), counts.removed[why as usize]))
                .into(),
            renewed: counts.renewed,
            relaxed: counts.relaxed,
            resyncs: counts.resyncs,
            reviews: counts.reviews,
            moved: counts.moved,
            is_reviewing: self.review.is_some(),
            trouble: self.trouble.clone(),
        }
    }

    /// The entries, from a place on, that a filter takes.
    pub(crate) fn part(&self, filter: &Filter, from: u32) -> Part {
        part((&self.flows, &self.records, &self.terms), filter, from)
    }

    /// What is to be said of these entries, or the first of them: rules may be evaluated for each, and that may take long.
    /// Entries that have gone are left out. Says how many have had their turn.
    pub(crate) fn described(
        &mut self,
        numbers: &[u32],
        names: &PortNames,
    ) -> (Vec<TrackedFlow>, usize) {
        let (begin, tick) = (Instant::now(), self.ticks.read().ok());
        let (mut described, mut done) = (Vec::new(), 0);
        self.reader.online();
        while done < numbers.len() && (done == 0 || begin.elapsed() < DESCRIBED_WITHIN) {
            described.extend(self.describe(FlowNumber(numbers[done]), names, tick));
            done += 1;
        }
        self.reader.offline();
        (described, done)
    }

    /// What is to be said of an entry. The reader is online.
    pub(super) fn describe(
        &mut self,
        number: FlowNumber,
        names: &PortNames,
        tick: Option<u64>,
    ) -> Option<TrackedFlow> {
        let record = *self.records.get(number)?;
        let tuples = Direction::BOTH.map(|direction| self.flows.tuple(number, direction));
        let uses = Direction::BOTH.map(|direction| self.flows.use_of(number, direction));
        let [original, reply] = Direction::BOTH.map(|direction| {
            let state = self.state(number, direction, &record);
            let (_, ports) = self.flows.approved(number, direction);
            shown(uses[direction as usize], ports, state, names)
        });
        let length = self.ticks.length_ns();
        let idle = |one: &FlowUse| Some(tick?.wrapping_sub(one.used.into()) & LAST_31_BITS);
        let used = uses.iter().filter(|one| one.used != 0);
        let now = self.tenths();
        let sent = sent(tuples, Direction::Original);
        Some(TrackedFlow {
            id: record.id,
            protocol: protocol_name(tuples[0].protocol).into(),
            source: source(tuples[0]),
            destination: source(tuples[0].inverted()),
            translated_source: source(sent),
            translated_destination: source(sent.inverted()),
            nat: translation(tuples).into(),
            original,
            reply,
            age_s: (now / 10).saturating_sub(record.admitted).into(),
            idle_s: used.filter_map(idle).min().map(|ticks| ticks * length / 1_000_000_000),
            expires_s: (record.expires.saturating_sub(now) / 10).into(),
            end: if self.records.silent.contains(number) { "polled" } else { "announced" }.into(),
        })
    }

    /// Whether packets of a direction are forwarded. The reader is online.
    fn state(&mut self, number: FlowNumber, direction: Direction, record: &Record) -> State {
        let uses = Direction::BOTH.map(|direction| self.flows.use_of(number, direction));
        let tuple = self.flows.tuple(number, direction);
        if uses.iter().any(|one| one.closes) {
            return Err(("closing", Removal::Closing.meaning().into()));
        }
        if !self.terms.needs(tuple.is_ipv6()) {
            return Err(("unneeded", Removal::Unneeded.meaning().into()));
        }
        let (generation, [ingress, _]) = self.flows.approved(number, direction);
        if generation != 0 && generation == self.terms.generation {
            return Ok(());
        }
        let facts = self.facts(number, record);
        let refusal = match self.egress(&facts, direction, ingress) {
            Err(why) => why,
            Ok(egress) => match self.obstacle(&facts, direction, [ingress, egress]) {
                Ok(None) => return Err(("review", REVIEW.into())),
                Ok(Some(obstacle)) => return Err((Refusal::Rules.name(), obstacle.to_string())),
                Err(why) => why,
            },
        };
        // Without rules nothing is known of them.
        match (refusal, self.rules.is_some()) {
            (Refusal::Rules, false) => Err(("review", REVIEW.into())),
            (why, _) => Err((why.name(), why.meaning().into())),
        }
    }
}

/// As `LaneThread::part`.
fn part(
    (flows, records, terms): (&FlowsMut, &Records, &LaneTerms),
    filter: &Filter,
    from: u32,
) -> Part {
    let to = from.saturating_add(LISTED_AT_ONCE);
    let mut part = Part { next: (to < records.places()).then_some(to), ..Part::default() };
    let takes_all = *filter == Filter::default();
    for number in records.live(from, to) {
        let is_taken = takes_all
            || filter.takes(
                Direction::BOTH.map(|direction| flows.tuple(number, direction)),
                Direction::BOTH.map(|direction| flows.approved(number, direction).1),
            );
        if is_taken {
            let uses = Direction::BOTH.map(|direction| flows.use_of(number, direction));
            part.entries.push((uses[0].bytes.wrapping_add(uses[1].bytes), number.0));
            let packets = uses[0].packets.wrapping_add(uses[1].packets);
            part.packets = part.packets.wrapping_add(packets);
            let is_closing = uses.iter().any(|one| one.closes);
            for direction in Direction::BOTH {
                let (generation, [ingress, _]) = flows.approved(number, direction);
                // As `LaneThread::state`.
                let is_approved = generation != 0 && generation == terms.generation;
                let is_forwarded = is_approved
                    && !is_closing
                    && terms.needs(flows.tuple(number, direction).is_ipv6());
                let FlowUse { packets, bytes, .. } = uses[direction as usize];
                let sum = part.sums.entry((ingress, is_forwarded)).or_default();
                sum.add(Sum { directions: 1, packets, bytes });
            }
        }
    }
    part
}

/// A direction as it is shown.
fn shown(used: FlowUse, ports: [u8; 2], state: State, names: &PortNames) -> TrackedDirection {
    let [ingress, egress] =
        ports.map(|port| names.get(&port).map(|(name, _)| name.clone()).unwrap_or_default());
    let tier = names.get(&ports[0]).map_or("kernel", |&(_, tier)| tier);
    let (word, tier, (reason, explanation)) = match state {
        Ok(()) => ("forwarded", tier, ("", String::new())),
        Err(why) => ("kernel", "kernel", why),
    };
    TrackedDirection {
        ingress,
        egress,
        state: word.into(),
        tier: tier.into(),
        reason: reason.into(),
        explanation,
        packets: used.packets,
        bytes: used.bytes,
        passed: used.left,
    }
}

/// What is translated.
pub(super) fn translation(tuples: [Tuple; 2]) -> &'static str {
    let sent = sent(tuples, Direction::Original);
    let Tuple { source, source_port, destination, destination_port, .. } = tuples[0];
    let is_source = (source, source_port) != (sent.source, sent.source_port);
    let is_destination =
        (destination, destination_port) != (sent.destination, sent.destination_port);
    match (is_source, is_destination) {
        (false, false) => "none",
        (true, false) => "snat",
        (false, true) => "dnat",
        (true, true) => "both",
    }
}

/// A packet's source.
pub(super) fn source(tuple: Tuple) -> String {
    SocketAddr::from((tuple.source, tuple.source_port)).to_string()
}

/// A connection in a line, by its packets of one direction.
pub(super) fn line(tuple: Tuple) -> String {
    let protocol = protocol_name(tuple.protocol);
    format!("{protocol} {} > {}", source(tuple), source(tuple.inverted()))
}

pub(super) fn protocol_name(number: u8) -> &'static str {
    match number {
        protocol::TCP => TransportProtocol::Tcp.name(),
        _ => TransportProtocol::Udp.name(),
    }
}

/// Places that one question is about: with all that is looked at, some hundred nanoseconds each.
const LISTED_AT_ONCE: u32 = 8192;
/// How long one question describes entries.
pub(super) const DESCRIBED_WITHIN: Duration = Duration::from_millis(10);
/// Bits of a tick that an entry has.
const LAST_31_BITS: u64 = 0x7fff_ffff;
pub(super) const REVIEW: &str =
    "rules, routes or interfaces have changed, and manylane looks at it again";

#[cfg(test)]
mod tests;
