//! Candidates become entries: in batches, so that a system call asks conntrack for many.

use std::collections::BTreeSet;

use manylane_io::netlink::NetlinkError;
use manylane_io::netlink::conntrack::{Change, Changed, Connection};
use manylane_net::transit::flows::{Direction, FlowNumber, FlowsFull, NewFlow, Tuple};
use manylane_net::wire::protocol;

use super::LaneThread;
use super::approve::{Facts, Opinion};
use super::connection::{check, nothing, own_timeout, tuples};
use super::record::Record;
use super::refusal::{Refusal, Removal};
use crate::programs::Candidate;

/// An entry that is to be approved when conntrack has been notified.
struct Entered {
    number: FlowNumber,
    change: Change,
    /// The ports of each direction, and whether it is approved.
    approvals: [([u8; 2], bool); 2],
}

/// What an entry would be.
pub(super) struct Considered {
    /// The ports of each direction, and whether it is approved.
    pub approvals: [([u8; 2], bool); 2],
    /// Rules let it pass for its mark.
    is_marked: bool,
}

/// What conntrack said of a candidate: its connection, and whether the end is announced.
type Found = Option<(Connection, bool)>;

impl LaneThread {
    /// Enters those of the candidates that may be forwarded.
    pub(super) fn admit(&mut self, candidates: Vec<Candidate>) {
        self.counts.candidates += candidates.len() as u64;
        let mut seen = BTreeSet::new();
        let is_needed = |candidate: &Candidate| {
            self.terms.needs(candidate.tuple.is_ipv6()) && seen.insert(candidate.tuple)
        };
        let candidates = candidates.into_iter().filter(is_needed);
        let (known, candidates): (Vec<_>, Vec<_>) =
            candidates.partition(|candidate| self.flows.find(candidate.tuple).is_some());
        self.move_all(known);
        if candidates.is_empty() {
            return;
        }
        let found = match self.ask(&candidates) {
            Ok(found) => found,
            Err(error) => return self.lose_conntrack(&error),
        };
        self.reader.online();
        let (mut entered, mut late) = (Vec::new(), Vec::new());
        for (candidate, found) in candidates.into_iter().zip(found) {
            let done = match found {
                Some((connection, is_announced)) => {
                    self.enter(candidate, &connection, is_announced)
                }
                None => Err(Refusal::Unknown),
            };
            match done {
                Ok(Some(one)) => entered.push(one),
                Ok(None) => late.push(candidate),
                Err(why) => self.counts.refuse(why),
            }
        }
        self.reader.offline();
        self.approve_entered(&entered);
        // Of connections that were entered for their other direction.
        self.move_all(late);
    }

    /// Approves directions that have an entry for the ports by which their packets arrive.
    fn move_all(&mut self, known: Vec<Candidate>) {
        self.reader.online();
        for candidate in known {
            if self.is_elsewhere(&candidate)
                && let Err(why) = self.move_one(candidate)
            {
                self.counts.refuse(why);
            }
        }
        self.reader.offline();
    }

    /// Whether a direction has an entry that is for another port than the one that received its packets.
    fn is_elsewhere(&self, candidate: &Candidate) -> bool {
        self.flows.find(candidate.tuple).is_some_and(|(number, direction)| {
            let (_, [ingress, _]) = self.flows.approved(number, direction);
            ingress != candidate.ingress
        })
    }

    /// Looks candidates up in conntrack.
    fn ask(&mut self, candidates: &[Candidate]) -> Result<Vec<Found>, NetlinkError> {
        let Some(kernel) = &mut self.conntrack else { return Ok(Vec::new()) };
        // Its answer says whether the end is announced, too.
        let changes: Vec<_> = candidates.iter().map(|one| nothing(one.tuple)).collect();
        let answers = kernel.requests.change_with_echo(&changes)?;
        let is_silent = |answer: &Result<Changed, _>| matches!(answer, Ok(Changed::Silent));
        let silent = changes.iter().zip(&answers).filter(|(_, answer)| is_silent(answer));
        let silent: Vec<_> = silent.map(|(change, _)| change.tuple).collect();
        let mut looked_up = kernel.requests.get(&silent)?.into_iter();
        let found = answers.into_iter().map(|answer| match answer {
            Ok(Changed::Announcing(connection)) => Some((connection, true)),
            Ok(Changed::Silent) => looked_up.next().flatten().map(|found| (found, false)),
            Err(_) => None,
        });
        Ok(found.collect())
    }

    /// Whether a connection may be forwarded, and what its entry would be approved for. The reader is online.
    pub(super) fn consider(
        &mut self,
        candidate: Candidate,
        connection: &Connection,
        is_announced: bool,
    ) -> Result<Considered, Refusal> {
        check(connection)?;
        let tuples = tuples(connection);
        let seen = match candidate.tuple {
            tuple if tuple == tuples[0] => Direction::Original,
            tuple if tuple == tuples[1] => Direction::Reply,
            // In a zone of one direction, or another connection by now.
            _ => return Err(Refusal::Unknown),
        };
        if !is_announced && self.records.silent.len() >= self.silent_max() {
            return Err(Refusal::Unannounced);
        }
        let facts = Facts { tuples, status: connection.status.0, mark: Some(connection.mark) };
        let egress = self.egress(&facts, seen, candidate.ingress)?;
        let ports = [candidate.ingress, egress];
        let mut said = [Opinion::No; 2];
        said[seen as usize] = self.rules_say(&facts, seen, ports)?;
        if said[seen as usize] == Opinion::No {
            return Err(Refusal::Rules);
        }
        // Answers are thought to arrive where the packets leave. If they do not, they are candidates of their own: `move_one`.
        let mut approvals = [(ports, true); 2];
        let other = Direction::BOTH[1 - seen as usize];
        approvals[other as usize] = match self.egress(&facts, other, egress) {
            Ok(back) => {
                let ports = [egress, back];
                said[other as usize] = self.rules_say(&facts, other, ports).unwrap_or(Opinion::No);
                (ports, said[other as usize] != Opinion::No)
            }
            Err(_) => ([egress, candidate.ingress], false),
        };
        Ok(Considered { approvals, is_marked: said.contains(&Opinion::WithMark) })
    }

    /// Enters a connection that may be forwarded, not approved yet. `None` if it has to be looked up once more, or has been
    /// entered for its other direction.
    fn enter(
        &mut self,
        candidate: Candidate,
        connection: &Connection,
        is_announced: bool,
    ) -> Result<Option<Entered>, Refusal> {
        let Considered { approvals, is_marked } =
            self.consider(candidate, connection, is_announced)?;
        let tuples = tuples(connection);
        if is_marked && !self.hears_marks() {
            // A change of the mark between this look and the first notification would be lost.
            self.again.push(candidate);
            return Ok(None);
        }
        self.remove_former(&tuples, connection.id);
        let flow = NewFlow { original: tuples[0], reply: tuples[1] };
        let number = match self.flows.insert(flow) {
            Ok(number) => number,
            // The other direction was a candidate, too.
            Err(FlowsFull::Taken) if self.flows.find(candidate.tuple).is_some() => return Ok(None),
            Err(FlowsFull::Taken | FlowsFull::Bucket | FlowsFull::Flows) => {
                return Err(Refusal::Full);
            }
        };
        self.remember(number, connection, is_announced);
        self.export_begin(number, approvals.map(|(ports, _)| ports));
        if is_marked {
            self.records.marks.insert(number.0, connection.mark);
        }
        let change = Change {
            tuple: connection.original,
            liberal: connection.original.protocol == protocol::TCP,
            timeout: None,
        };
        Ok(Some(Entered { number, change, approvals }))
    }

    /// Takes out what other connections had these tuples before, and have ended without a word.
    fn remove_former(&mut self, tuples: &[Tuple; 2], id: u32) {
        for &tuple in tuples {
            if let Some((number, _)) = self.flows.find(tuple)
                && self.records.get(number).is_some_and(|record| record.id != id)
            {
                self.remove(number, Removal::Ended);
            }
        }
    }

    fn remember(&mut self, number: FlowNumber, connection: &Connection, is_announced: bool) {
        let now = self.tenths();
        let left = connection.timeout.unwrap_or_default().as_secs() as u32;
        let record = Record {
            id: connection.id,
            expires: now.saturating_add(left.saturating_mul(10)),
            timeout: own_timeout(connection, &self.timeouts),
            admitted: now / 10,
            status: connection.status.0 as u16,
            ..Record::live()
        };
        self.records.set(number, record);
        if !is_announced {
            self.records.silent.insert(number);
        }
    }

    /// Tells conntrack that it will not see all segments of these connections, and lets programs forward them.
    ///
    /// Programs note from the entry on which packets the kernel gets, and whether one closes the connection. What the
    /// kernel got between the first look and the entry, nothing has noted: so the lane looks into
    /// conntrack once more.
    fn approve_entered(&mut self, entered: &[Entered]) {
        let still = match self.make_liberal(entered) {
            Ok(still) => still,
            Err(error) => return self.lose_conntrack(&error),
        };
        for (Entered { number, approvals, .. }, is_still) in entered.iter().zip(still) {
            if !is_still {
                self.remove(*number, Removal::Ended);
                continue;
            }
            for (direction, (ports, is_approved)) in Direction::BOTH.into_iter().zip(approvals) {
                let generation = if *is_approved { self.terms.generation } else { 0 };
                self.flows.approve(*number, direction, generation, *ports);
                self.candidates.forget(self.flows.hash(*number, direction));
            }
            self.counts.admitted += 1;
        }
    }

    /// Makes TCP connections liberal. Which of the entered ones may still be forwarded.
    fn make_liberal(&mut self, entered: &[Entered]) -> Result<Vec<bool>, NetlinkError> {
        let mut still: Vec<_> = entered.iter().map(|one| !one.change.liberal).collect();
        let Some(kernel) = &mut self.conntrack else { return Ok(still) };
        let is_liberal = |at: &usize| entered[*at].change.liberal;
        let liberal: Vec<_> = (0..entered.len()).filter(is_liberal).collect();
        if liberal.is_empty() {
            return Ok(still);
        }
        let changes: Vec<_> = liberal.iter().map(|&at| entered[at].change).collect();
        let changed = kernel.requests.change(&changes)?;
        let tuples: Vec<_> = changes.iter().map(|change| change.tuple).collect();
        let found = kernel.requests.get(&tuples)?;
        // An answer that is missing is a refusal.
        for ((at, changed), found) in liberal.into_iter().zip(changed).zip(found) {
            let is_still = |found: &Connection| {
                self.is_same(entered[at].number, found) && check(found).is_ok()
            };
            still[at] = changed.is_ok() && found.as_ref().is_some_and(is_still);
        }
        Ok(still)
    }
}
