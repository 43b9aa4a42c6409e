//! The table against conntrack: entries whose connection is gone, another one, or no longer what it was.
//!
//! The API's thread compares, part by part, and looks a second time at what differs: a connection that has just ended is still an
//! entry until this thread hears of that.

use manylane_io::netlink::conntrack::Connection;
use manylane_net::transit::flows::{Direction, FlowNumber, Tuple};

use super::LaneThread;
use super::connection::{check, tuples};
use super::listed::line;

/// An entry, as far as conntrack knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compared {
    /// The entry.
    pub number: u32,
    /// The connection's id.
    pub id: u32,
    /// Of both directions, as packets arrive.
    pub tuples: [Tuple; 2],
}

/// Entries of a part of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Look {
    /// The entries.
    pub entries: Vec<Compared>,
    /// The place at which the next part begins.
    pub next: Option<u32>,
}

impl LaneThread {
    /// The entries from a place on; without those that are about to go.
    pub(crate) fn look(&self, from: u32) -> Look {
        let to = from.saturating_add(COMPARED_AT_ONCE);
        let numbers = self.records.live(from, to);
        Look {
            entries: numbers.filter_map(|number| self.compared(number)).collect(),
            next: (to < self.records.places()).then_some(to),
        }
    }

    fn compared(&self, number: FlowNumber) -> Option<Compared> {
        let record = self.records.get(number)?;
        let closes = |direction| self.flows.use_of(number, direction).closes;
        let tuples = Direction::BOTH.map(|direction| self.flows.tuple(number, direction));
        let is_closing = Direction::BOTH.into_iter().any(closes);
        (!is_closing).then_some(Compared { number: number.0, id: record.id, tuples })
    }

    /// Which of these are entries when all that conntrack has announced so far has been heard.
    pub(crate) fn still(&mut self, suspects: &[Compared]) -> Vec<bool> {
        for _ in 0..HEARD_AT_ONCE {
            if !self.hear() {
                break;
            }
        }
        let suspected = suspects.iter().map(|one| FlowNumber(one.number));
        let silent = suspected.filter(|&number| self.records.silent.contains(number));
        let silent: Vec<_> = silent.collect();
        self.look_up(silent);
        let is_there = |one: &Compared| self.compared(FlowNumber(one.number)) == Some(*one);
        suspects.iter().map(is_there).collect()
    }
}

/// How an entry differs from what conntrack has of its original direction, if it does.
pub(crate) fn difference(entry: &Compared, found: Option<&Connection>) -> Option<String> {
    let differs = |how: &str| Some(format!("{}: {how}", line(entry.tuples[0])));
    let Some(found) = found else { return differs("conntrack has no such connection") };
    if found.id != entry.id {
        return differs("conntrack has another connection with these ends");
    }
    if tuples(found) != entry.tuples {
        let [ours, theirs] = [entry.tuples[1], tuples(found)[1]].map(line);
        return differs(&format!("conntrack has replies {theirs}, the table {ours}"));
    }
    check(found).err().and_then(|why| differs(why.meaning()))
}

/// Places that one question is about: a microsecond each, at most.
const COMPARED_AT_ONCE: u32 = 4096;
/// Reads of announcements that one question may take: more arrive than can be read, then.
const HEARD_AT_ONCE: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use crate::lane::connection::tuple;
    use manylane_io::netlink::conntrack::{self, Status};
    use manylane_net::wire::protocol;

    #[test]
    fn what_differs_is_said_and_what_does_not_is_none() {
        let end = |text: &str| text.parse().expect("an address");
        let original = conntrack::Tuple {
            source: end("10.1.0.1"),
            destination: end("10.2.0.1"),
            source_port: 4000,
            destination_port: 53,
            protocol: protocol::UDP,
        };
        let reply = conntrack::Tuple {
            source: original.destination,
            destination: end("10.2.0.254"),
            source_port: 53,
            destination_port: 4000,
            protocol: protocol::UDP,
        };
        let entry = Compared { number: 0, id: 7, tuples: [original, reply].map(tuple) };
        let settled = Status::SEEN_REPLY | Status::ASSURED | Status::CONFIRMED | Status::SOURCE_NAT;
        let same = fixtures::connection([original, reply], 7, settled);
        assert_eq!(difference(&entry, Some(&same)), None);
        let elsewhere = conntrack::Tuple { destination: end("10.3.0.254"), ..reply };
        for (found, said) in [
            (None, "no such connection"),
            (Some(Connection { id: 8, ..same }), "another connection"),
            (Some(Connection { reply: elsewhere, ..same }), "replies udp 10.2.0.1:53 > 10.3.0.254"),
            (
                Some(Connection { status: Status::SEEN_REPLY | Status::SOURCE_NAT, ..same }),
                "has not seen enough",
            ),
        ] {
            let difference = difference(&entry, found.as_ref()).expect("it differs");
            assert!(difference.starts_with("udp 10.1.0.1:4000 > 10.2.0.1:53: "), "{difference}");
            assert!(difference.contains(said), "{difference}");
        }
    }
}
