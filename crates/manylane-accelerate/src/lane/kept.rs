//! Connections of conntrack that have no entry, and what keeps each of them in the kernel.
//!
//! The API's thread reads conntrack's list, and asks this thread about some connections at a time: as in `listed`, for
//! [`DESCRIBED_WITHIN`] at most.

use std::net::SocketAddr;
use std::time::Instant;

use manylane_api::accelerate::{KernelCounts, KernelFlow};
use manylane_io::netlink::conntrack::Connection;
use manylane_net::transit::flows::{Direction, Tuple};
use manylane_net::wire::protocol;

use super::LaneThread;
use super::approve::Facts;
use super::connection::{check, sent, tuples};
use super::explained::{as_shown, finer, state};
use super::listed::{DESCRIBED_WITHIN, PortNames, REVIEW, translation};
use super::refusal::Refusal;
use crate::firewall::Obstacle;
use crate::programs::Candidate;

/// What is known of some connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Those that have had their turn, the first ones.
    pub done: usize,
    /// Those that have an entry.
    pub tracked: u64,
    /// Those of the router itself.
    pub local: u64,
    /// Those of a family whose packets need no connection.
    pub unneeded: u64,
    /// The kernel's, and what the reason means of any connection.
    pub flows: Vec<(KernelFlow, &'static str)>,
}

/// What keeps a connection in the kernel: a word, what it means, and the rule, if it is one.
struct Reason {
    name: &'static str,
    meaning: &'static str,
    obstacle: Option<Obstacle>,
}

impl LaneThread {
    /// What keeps these connections in the kernel, or the first of them. Those whose packets pass another port than `port`
    /// are left out, if that is given.
    pub(crate) fn kept(
        &mut self,
        connections: &[Connection],
        port: Option<u8>,
        names: &PortNames,
    ) -> Kept {
        let (begin, mut kept) = (Instant::now(), Kept::default());
        self.reader.online();
        while kept.done < connections.len()
            && (kept.done == 0 || begin.elapsed() < DESCRIBED_WITHIN)
        {
            self.keep(&connections[kept.done], port, names, &mut kept);
            kept.done += 1;
        }
        self.reader.offline();
        kept
    }

    /// Adds a connection. The reader is online.
    fn keep(
        &mut self,
        connection: &Connection,
        port: Option<u8>,
        names: &PortNames,
        kept: &mut Kept,
    ) {
        let both = tuples(connection);
        let is_ours = |tuple| {
            let (number, _) = self.flows.find(tuple)?;
            self.records.get(number).filter(|record| record.id == connection.id)
        };
        if both.into_iter().any(|tuple| is_ours(tuple).is_some()) {
            kept.tracked += 1;
        } else if !self.terms.needs(both[0].is_ipv6()) {
            kept.unneeded += 1;
        } else if self.terms.is_own(both[0].source) || self.terms.is_own(both[1].source) {
            kept.local += 1;
        } else {
            let ways = self.ways(both);
            if port.is_none() || ways.contains(&port) {
                let reason = self.keeps(connection, ways);
                kept.flows.push((shown(connection, ways, &reason, names), reason.meaning));
            }
        }
    }

    /// The ports by which the original direction's packets arrive and leave: they are thought to arrive where the answers to
    /// them leave. A routing rule may match the port that receives a packet, so the answers' route is looked up twice.
    fn ways(&self, both: [Tuple; 2]) -> [Option<u8>; 2] {
        let back =
            |egress: Option<u8>| self.routed(both, Direction::Reply, egress.unwrap_or(NO_PORT));
        let first = back(None);
        let egress = self.routed(both, Direction::Original, first.unwrap_or(NO_PORT));
        [back(egress), egress]
    }

    /// What keeps a connection in the kernel, whose packets arrive and leave by these ports.
    fn keeps(&mut self, connection: &Connection, ways: [Option<u8>; 2]) -> Reason {
        let plain = |(name, meaning)| Reason { name, meaning, obstacle: None };
        if !matches!(connection.original.protocol, protocol::TCP | protocol::UDP) {
            return plain(("protocol", PROTOCOL));
        }
        if let Err(why) = check(connection) {
            return plain(finer(why, connection));
        }
        if self.rules.is_none() {
            return plain(("review", REVIEW));
        }
        let [Some(ingress), Some(egress)] = ways else {
            return plain((Refusal::Route.name(), Refusal::Route.meaning()));
        };
        let both = tuples(connection);
        let candidate = Candidate { tuple: both[0], ingress };
        let why = match self.consider(candidate, connection, true) {
            Ok(_) => return plain(self.not_yet()),
            Err(why) => why,
        };
        let status = connection.status.0;
        let facts = Facts { tuples: both, status, mark: Some(connection.mark) };
        let obstacle = match why {
            Refusal::Rules => self.obstacle(&facts, Direction::Original, [ingress, egress]),
            _ => Ok(None),
        };
        Reason { obstacle: obstacle.ok().flatten(), ..plain(finer(why, connection)) }
    }
}

fn shown(
    connection: &Connection,
    ways: [Option<u8>; 2],
    reason: &Reason,
    names: &PortNames,
) -> KernelFlow {
    let both = tuples(connection);
    let leaves = sent(both, Direction::Original);
    let [ingress, egress] =
        ways.map(|port| port.and_then(|port| Some(names.get(&port)?.0.clone())));
    let obstacle = reason.obstacle.clone().map(as_shown);
    KernelFlow {
        id: connection.id,
        protocol: protocol_name(both[0].protocol),
        source: end(both[0]),
        destination: end(both[0].inverted()),
        translated_source: end(leaves),
        translated_destination: end(leaves.inverted()),
        nat: translation(both).into(),
        ingress,
        egress,
        state: state(connection),
        reason: reason.name.into(),
        explanation: obstacle
            .as_ref()
            .map_or_else(|| reason.meaning.to_owned(), |one| one.text.clone()),
        obstacle,
        counted: connection.counted.map(|[original, reply]| KernelCounts {
            original_packets: original.packets,
            original_bytes: original.bytes,
            reply_packets: reply.packets,
            reply_bytes: reply.bytes,
        }),
        expires_s: connection.timeout.map(|timeout| timeout.as_secs()),
    }
}

/// A packet's source: with its port, where the protocol has ports.
fn end(tuple: Tuple) -> String {
    match PORTS.contains(&tuple.protocol) {
        true => SocketAddr::from((tuple.source, tuple.source_port)).to_string(),
        false => tuple.source.to_string(),
    }
}

fn protocol_name(number: u8) -> String {
    match number {
        protocol::TCP => "tcp".into(),
        protocol::UDP => "udp".into(),
        protocol::ICMP => "icmp".into(),
        protocol::ICMPV6 => "icmpv6".into(),
        number => number.to_string(),
    }
}

/// Protocols whose ports conntrack knows: TCP, UDP, DCCP, SCTP, UDP-Lite.
const PORTS: [u8; 5] = [protocol::TCP, protocol::UDP, 33, 132, 136];
/// Ports have numbers from 1 on.
const NO_PORT: u8 = 0;
const PROTOCOL: &str = "manylane forwards connections of TCP and UDP only";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use manylane_io::netlink::conntrack::{self, Status, Tcp};

    fn tuple(ends: [&str; 2], ports: [u16; 2], protocol: u8) -> conntrack::Tuple {
        let [source, destination] = ends.map(|end| end.parse().expect("an address"));
        let [source_port, destination_port] = ports;
        conntrack::Tuple { source, destination, source_port, destination_port, protocol }
    }

    fn names() -> PortNames {
        PortNames::from([(1, ("lan".into(), "ingress")), (2, ("wan".into(), "ingress"))])
    }

    #[test]
    fn a_connection_has_both_its_ends_and_both_its_translations() {
        let both = [
            tuple(["10.1.0.1", "10.2.0.1"], [4000, 80], protocol::TCP),
            tuple(["10.2.0.1", "10.2.0.254"], [80, 50_000], protocol::TCP),
        ];
        let status = Status::SEEN_REPLY | Status::SOURCE_NAT;
        let connection = Connection {
            tcp: Some(Tcp { state: Tcp::CLOSE_WAIT, flags: [0; 2] }),
            ..fixtures::connection(both, 7, status)
        };
        let (name, meaning) = finer(Refusal::Unsettled, &connection);
        let reason = Reason { name, meaning, obstacle: None };
        let flow = shown(&connection, [Some(1), None], &reason, &names());
        assert_eq!((flow.ingress.as_deref(), flow.egress), (Some("lan"), None));
        assert_eq!([&*flow.source, &*flow.destination], ["10.1.0.1:4000", "10.2.0.1:80"]);
        let leaves = [&*flow.translated_source, &*flow.translated_destination];
        assert_eq!((leaves, &*flow.nat), (["10.2.0.254:50000", "10.2.0.1:80"], "snat"));
        assert_eq!(flow.state, "CLOSE_WAIT, source translated, not assured, mark 0x0");
        assert_eq!((&*flow.reason, &*flow.explanation), ("closing", meaning));
    }

    #[test]
    fn a_protocol_without_ports_has_addresses_only() {
        let original = tuple(["2001:db8:1::1", "2001:db8:2::1"], [0, 0], protocol::ICMPV6);
        let reply = tuple(["2001:db8:2::1", "2001:db8:1::1"], [0, 0], protocol::ICMPV6);
        let connection = fixtures::connection([original, reply], 7, Status::SEEN_REPLY);
        let reason = Reason { name: "protocol", meaning: PROTOCOL, obstacle: None };
        let flow = shown(&connection, [Some(2), Some(1)], &reason, &names());
        assert_eq!(
            (&*flow.protocol, &*flow.source, &*flow.nat),
            ("icmpv6", "2001:db8:1::1", "none")
        );
    }

    #[test]
    fn a_connection_that_ends_differs_from_one_that_is_not_settled() {
        let original = tuple(["10.1.0.1", "10.2.0.1"], [4000, 80], protocol::TCP);
        let reply = tuple(["10.2.0.1", "10.1.0.1"], [80, 4000], protocol::TCP);
        let with = |state| Connection {
            tcp: Some(Tcp { state, flags: [0; 2] }),
            ..fixtures::connection([original, reply], 7, Status::SEEN_REPLY)
        };
        for (state, name) in [
            (Tcp::SYN_RECV, "unsettled"),
            (Tcp::ESTABLISHED, "unsettled"),
            (Tcp::FIN_WAIT, "closing"),
            (Tcp::TIME_WAIT, "closing"),
            (Tcp::CLOSE, "closing"),
            (Tcp::SYN_SENT2, "unsettled"),
        ] {
            assert_eq!(finer(Refusal::Unsettled, &with(state)).0, name, "{state}");
            assert_eq!(finer(Refusal::Zone, &with(state)).0, "zone");
        }
    }
}
