//! What becomes of a packet whose connection decides, and why: the entry, conntrack's connection, and the rules.

use manylane_api::accelerate::{FlowObstacle, TrackedDirection, WhyFlow, WhyRules};
use manylane_io::netlink::conntrack::{Connection, Status, Tcp};
use manylane_net::transit::flows::{Direction, Tuple};
use manylane_net::wire::protocol;

use super::LaneThread;
use super::approve::{Facts, Opinion};
use super::connection::{asked, tuple, tuples};
use super::listed::{PortNames, line, protocol_name};
use super::refusal::Refusal;
use crate::firewall::{Answer, Class, Obstacle};
use crate::programs::Candidate;

/// A packet in question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Its ends as it arrives.
    pub tuple: Tuple,
    /// Whether protocol and ports are part of the question.
    pub has_ports: bool,
    /// The port that receives it.
    pub ingress: u8,
}

impl LaneThread {
    /// What becomes of a packet; nothing if no connection decides that.
    pub(crate) fn why(&mut self, asked: &Asked, names: &PortNames) -> Option<WhyFlow> {
        if !self.terms.needs(asked.tuple.is_ipv6()) {
            return None;
        }
        self.reader.online();
        let why = match asked.has_ports {
            true => self.why_connection(asked, names),
            false => self.why_class(asked, names),
        };
        self.reader.offline();
        Some(why)
    }

    fn why_connection(&mut self, packet: &Asked, names: &PortNames) -> WhyFlow {
        if let Some((number, direction)) = self.flows.find(packet.tuple) {
            let tick = self.ticks.read().ok();
            if let Some(entry) = self.describe(number, names, tick) {
                let (_, [ingress, _]) = self.flows.approved(number, direction);
                let is_original = direction == Direction::Original;
                let side = if is_original { &entry.original } else { &entry.reply };
                let record = self.records.get(number).copied().unwrap_or_default();
                let facts = self.facts(number, &record);
                let other = Direction::BOTH[1 - direction as usize];
                let (_, back) = self.flows.approved(number, other);
                let rules = self.obstacles(&facts, direction, packet.ingress, back, names);
                let is_elsewhere = ingress != packet.ingress;
                let elsewhere =
                    is_elsewhere.then(|| self.elsewhere(&facts, direction, packet.ingress));
                let why = of_entry(side, elsewhere);
                return WhyFlow { entry: Some(entry), rules, ..why };
            }
        }
        let Some(kernel) = &mut self.conntrack else {
            let trouble = self.trouble.clone().unwrap_or_else(|| STARTS.into());
            return of_kernel("trouble", trouble);
        };
        let found = match kernel.requests.get(&[asked(packet.tuple)]) {
            Ok(found) => found.into_iter().next().flatten(),
            Err(error) => return of_kernel("trouble", error.to_string()),
        };
        match found {
            None => of_kernel(Refusal::Unknown.name(), Refusal::Unknown.meaning().into()),
            Some(connection) => self.why_not_entered(packet, &connection, names),
        }
    }

    /// Why a connection that conntrack has is not in the table.
    fn why_not_entered(
        &mut self,
        packet: &Asked,
        connection: &Connection,
        names: &PortNames,
    ) -> WhyFlow {
        let candidate = Candidate { tuple: packet.tuple, ingress: packet.ingress };
        let considered = self.consider(candidate, connection, true);
        let facts = Facts {
            tuples: tuples(connection),
            status: connection.status.0,
            mark: Some(connection.mark),
        };
        let is_original = packet.tuple == facts.tuples[0];
        let direction = if is_original { Direction::Original } else { Direction::Reply };
        let back = self.egress(&facts, direction, packet.ingress);
        let back = back.map_or([0; 2], |egress| [egress, packet.ingress]);
        let rules = self.obstacles(&facts, direction, packet.ingress, back, names);
        let why = match considered {
            Ok(_) => {
                let (reason, meaning) = self.not_yet();
                of_kernel(reason, meaning.into())
            }
            Err(why) => {
                let rule = rules.iter().find_map(|one| one.obstacle.as_ref());
                let rule = rule.filter(|_| why == Refusal::Rules).map(|one| one.text.clone());
                let (reason, meaning) = finer(why, connection);
                of_kernel(reason, rule.unwrap_or_else(|| meaning.into()))
            }
        };
        WhyFlow { connection: Some(said(connection)), rules, ..why }
    }

    /// Why a connection that may be forwarded has no entry.
    pub(super) fn not_yet(&self) -> (&'static str, &'static str) {
        match self.flows.len() >= self.flows.capacity() {
            true => (Refusal::Full.name(), Refusal::Full.meaning()),
            false => ("candidate", CANDIDATE),
        }
    }

    /// What the rules do to both directions of a connection. The port `ingress` receives this direction, and the other one has the
    /// ports `back`.
    fn obstacles(
        &mut self,
        facts: &Facts,
        direction: Direction,
        ingress: u8,
        back: [u8; 2],
        names: &PortNames,
    ) -> Vec<WhyRules> {
        let Ok(egress) = self.egress(facts, direction, ingress) else { return Vec::new() };
        let other = Direction::BOTH[1 - direction as usize];
        let mut rules = Vec::new();
        for (direction, ports) in [(direction, [ingress, egress]), (other, back)] {
            if let Ok(obstacle) = self.obstacle(facts, direction, ports) {
                let answer = if obstacle.is_some() { "kernel" } else { "accept" };
                let protocol = facts.tuples[0].protocol;
                rules.push(said_of(names, ports, protocol, answer, obstacle));
            }
        }
        rules
    }

    /// What the rules do to connections between two ports.
    fn why_class(&mut self, packet: &Asked, names: &PortNames) -> WhyFlow {
        let why =
            WhyFlow { state: "class".into(), explanation: CLASS.into(), ..WhyFlow::default() };
        let tuples = [packet.tuple, packet.tuple.inverted()];
        let facts = Facts { tuples, status: 0, mark: None };
        let egress = match self.egress(&facts, Direction::Original, packet.ingress) {
            Ok(egress) => egress,
            Err(refusal) => {
                let explanation = refusal.meaning().into();
                return WhyFlow { reason: refusal.name().into(), explanation, ..why };
            }
        };
        let mut rules = Vec::new();
        let both = [(packet.ingress, egress), (egress, packet.ingress)];
        for (place, (from, to)) in both.into_iter().enumerate() {
            for protocol in [protocol::TCP, protocol::UDP] {
                let tuple = Tuple { protocol, ..tuples[place] };
                let answer = self.class(tuple, [from, to]).map(Class::answer);
                let (answer, obstacle) = match answer {
                    Ok(Answer::Yes(_)) => ("accept", None),
                    Ok(Answer::AskPerFlow(obstacle)) => ("per_flow", Some(obstacle)),
                    Ok(Answer::No(obstacle)) => ("kernel", Some(obstacle)),
                    Err(_) => continue,
                };
                rules.push(said_of(names, [from, to], protocol, answer, obstacle));
            }
        }
        WhyFlow { rules, ..why }
    }
}

/// What an entry says of a packet of one direction. The packet may arrive elsewhere than the connection's packets did: then what
/// the lane would decide of it there.
fn of_entry(
    side: &TrackedDirection,
    elsewhere: Option<Result<([u8; 2], Opinion), Refusal>>,
) -> WhyFlow {
    if let Some(elsewhere) = elsewhere.filter(|_| !HELD.contains(&&*side.reason)) {
        let meaning = match elsewhere {
            Ok((_, Opinion::Accepted | Opinion::WithMark)) => MOVES,
            Ok((_, Opinion::No)) => Refusal::Rules.meaning(),
            Err(why) => why.meaning(),
        };
        let explanation = format!(
            "the connection's packets of this direction arrive by {}; by this interface: {meaning}",
            side.ingress
        );
        return of_kernel("ingress", explanation);
    }
    WhyFlow {
        state: side.state.clone(),
        reason: side.reason.clone(),
        explanation: side.explanation.clone(),
        ..WhyFlow::default()
    }
}

/// A refusal's name and meaning. Of a connection that is not settled, whether it is one that ends.
pub(super) fn finer(why: Refusal, connection: &Connection) -> (&'static str, &'static str) {
    let is_ending = connection.tcp.is_some_and(|tcp| ENDING.contains(&tcp.state));
    match why {
        Refusal::Unsettled if is_ending => ("closing", ENDS),
        why => (why.name(), why.meaning()),
    }
}

fn of_kernel(reason: &str, explanation: String) -> WhyFlow {
    WhyFlow { state: "kernel".into(), reason: reason.into(), explanation, ..WhyFlow::default() }
}

fn said_of(
    names: &PortNames,
    ports: [u8; 2],
    protocol: u8,
    answer: &str,
    obstacle: Option<Obstacle>,
) -> WhyRules {
    let [ingress, egress] =
        ports.map(|port| names.get(&port).map(|(name, _)| name.clone()).unwrap_or_default());
    WhyRules {
        ingress,
        egress,
        protocol: protocol_name(protocol).into(),
        answer: answer.into(),
        obstacle: obstacle.map(as_shown),
    }
}

/// A rule as the API shows it.
pub(super) fn as_shown(obstacle: Obstacle) -> FlowObstacle {
    let text = obstacle.to_string();
    let place = obstacle.place;
    FlowObstacle {
        family: place.family,
        table: place.table,
        chain: place.chain,
        handle: place.handle,
        rule: place.rule,
        is_legacy: place.is_legacy,
        text,
        cure: obstacle.cure,
    }
}

/// A connection as conntrack has it, in a line.
pub(crate) fn said(connection: &Connection) -> String {
    let [original, reply] = [connection.original, connection.reply].map(tuple).map(line);
    format!("{original}, replies {reply}, {}", state(connection))
}

/// What conntrack says of a connection, but for its ends.
pub(super) fn state(connection: &Connection) -> String {
    let Connection { status, tcp, mark, zone, .. } = connection;
    let mut words: Vec<String> = Vec::new();
    let tcp = tcp.and_then(|tcp| TCP_STATES.get(usize::from(tcp.state)));
    words.extend(tcp.map(|&state| state.into()));
    let is_so = |(flag, _): &&(Status, &str)| status.contains(*flag);
    words.extend(STATES.iter().filter(is_so).map(|&(_, word)| word.into()));
    if !status.contains(Status::ASSURED) {
        words.push("not assured".into());
    }
    words.push(format!("mark {mark:#x}"));
    if *zone != 0 {
        words.push(format!("zone {zone}"));
    }
    words.join(", ")
}

const STATES: [(Status, &str); 5] = [
    (Status::ASSURED, "assured"),
    (Status::SOURCE_NAT, "source translated"),
    (Status::DESTINATION_NAT, "destination translated"),
    (Status::HELPER, "with a helper"),
    (Status::OFFLOAD, "in a flow table of the kernel"),
];

/// By the number of `enum tcp_conntrack`, as conntrack(8) prints them.
const TCP_STATES: [&str; Tcp::SYN_SENT2 as usize + 1] = [
    "NONE",
    "SYN_SENT",
    "SYN_RECV",
    "ESTABLISHED",
    "FIN_WAIT",
    "CLOSE_WAIT",
    "LAST_ACK",
    "TIME_WAIT",
    "CLOSE",
    "SYN_SENT2",
];

/// States of a connection whose FIN or RST has passed.
const ENDING: std::ops::RangeInclusive<u8> = Tcp::FIN_WAIT..=Tcp::CLOSE;
const ENDS: &str = "a FIN or a RST has passed: the kernel sees the connection to its end";
const CANDIDATE: &str =
    "conntrack and rules let it be forwarded; some more packets of a direction give it an entry";
const MOVES: &str =
    "routes and rules let them be forwarded; some more of them move the direction to it";
/// Reasons of a direction by whichever port its packets arrive.
const HELD: [&str; 2] = ["closing", "unneeded"];
const CLASS: &str =
    "its connection decides; with protocol and ports the answer is about one connection";
const STARTS: &str = "manylane has not opened conntrack yet";

#[cfg(test)]
mod tests {
    use super::*;
    use manylane_io::netlink::conntrack;

    #[test]
    fn a_connection_is_said_in_a_line() {
        let end = |text: &str| text.parse().expect("an address");
        let original = conntrack::Tuple {
            source: end("10.1.0.1"),
            destination: end("10.2.0.1"),
            source_port: 4000,
            destination_port: 80,
            protocol: protocol::TCP,
        };
        let reply = conntrack::Tuple {
            source: end("10.2.0.1"),
            destination: end("10.2.0.254"),
            source_port: 80,
            destination_port: 4000,
            protocol: protocol::TCP,
        };
        let connection = Connection {
            original,
            reply,
            id: 1,
            status: Status::SEEN_REPLY | Status::SOURCE_NAT,
            timeout: None,
            mark: 0x10,
            zone: 0,
            tcp: Some(Tcp { state: Tcp::FIN_WAIT, flags: [0; 2] }),
            has_helper: false,
            has_sequence_adjustment: false,
            has_synproxy: false,
            has_master: false,
            counted: None,
        };
        assert_eq!(
            said(&connection),
            "tcp 10.1.0.1:4000 > 10.2.0.1:80, replies tcp 10.2.0.1:80 > 10.2.0.254:4000, FIN_WAIT, source translated, \
             not assured, mark 0x10"
        );
    }

    #[test]
    fn a_packet_that_arrives_elsewhere_is_the_kernels() {
        let side = TrackedDirection {
            ingress: "lan".into(),
            state: "forwarded".into(),
            ..TrackedDirection::default()
        };
        assert_eq!(of_entry(&side, None).state, "forwarded");
        for (elsewhere, end) in [
            (Ok(([2, 1], Opinion::Accepted)), MOVES),
            (Ok(([2, 1], Opinion::No)), Refusal::Rules.meaning()),
            (Err(Refusal::ReversePath), Refusal::ReversePath.meaning()),
        ] {
            let why = of_entry(&side, Some(elsewhere));
            assert_eq!((why.state.as_str(), why.reason.as_str()), ("kernel", "ingress"));
            let WhyFlow { explanation, .. } = why;
            assert!(explanation.contains("arrive by lan; by this interface: "), "{explanation}");
            assert!(explanation.ends_with(end), "{explanation}");
        }
        let closing = TrackedDirection { reason: "closing".into(), ..side };
        assert_eq!(of_entry(&closing, Some(Err(Refusal::Route))).reason, "closing");
    }
}
