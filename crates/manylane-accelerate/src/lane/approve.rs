//! Where a direction of a connection leaves, and whether the rules accept its packets there.

use std::collections::{BTreeMap, BTreeSet};

use manylane_io::netlink::kernel::Family;
use manylane_io::netlink::nftables::SetName;
use manylane_net::transit::flows::{Direction, FlowNumber, Tuple};
use manylane_net::wire::protocol;
use manylane_sync::doorbell::Wake as _;

use super::connection::sent;
use super::record::Record;
use super::refusal::{Refusal, Removal};
use super::{LaneTerms, LaneThread, lock};
use crate::firewall::{self, Answer, Class, ClassKey, Firewall, Flow, Obstacle, Port, Protocol};
use crate::programs::Candidate;

/// The rules, by the classes of packets that connections have.
pub(super) struct Rules {
    firewall: Firewall,
    classes: BTreeMap<ClassId, Class>,
}

/// Ingress and egress port, whether it is IPv6, the protocol.
type ClassId = (u8, u8, bool, u8);

/// A connection, as far as rules can see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// Of both directions, as packets arrive.
    pub tuples: [Tuple; 2],
    /// `IPS_*`.
    pub status: u32,
    /// Its mark, if that is known, and will be when it changes.
    pub mark: Option<u32>,
}

/// What the rules say of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opinion {
    /// Accepted, whatever its mark.
    Accepted,
    /// Accepted with this mark.
    WithMark,
    /// Not accepted.
    No,
}

impl Rules {
    /// Those of a firewall.
    pub fn of(firewall: Firewall) -> Rules {
        Rules { firewall, classes: BTreeMap::new() }
    }

    /// Other interfaces have the ports' numbers.
    pub fn forget_classes(&mut self) {
        self.classes.clear();
    }

    /// Whether any answer given so far may depend on one of these sets.
    pub fn read_any(&self, sets: &BTreeSet<SetName>) -> bool {
        sets.iter().any(|set| self.classes.values().any(|class| class.reads(set)))
    }

    /// The class of packets between two ports.
    pub fn class(
        &mut self,
        options: firewall::Options,
        [(ingress, from), (egress, to)]: [(u8, &Port); 2],
        tuple: Tuple,
    ) -> &Class {
        let is_ipv6 = tuple.is_ipv6();
        let Rules { firewall, classes } = self;
        classes.entry((ingress, egress, is_ipv6, tuple.protocol)).or_insert_with(|| {
            let key = ClassKey {
                ingress: from.clone(),
                egress: to.clone(),
                family: if is_ipv6 { Family::V6 } else { Family::V4 },
                protocol: match tuple.protocol {
                    protocol::TCP => Protocol::Tcp,
                    _ => Protocol::Udp,
                },
                // The gate lets no program mark packets before ours.
                mark: Some(0),
            };
            firewall.class(&key, options)
        })
    }
}

impl Facts {
    /// A direction as rules see it, with or without its mark.
    pub fn flow(&self, direction: Direction, mark: Option<u32>) -> Flow {
        let [original, reply] = self.tuples.map(ends);
        let is_reply = direction == Direction::Reply;
        Flow {
            mark,
            zone: Some(0),
            status: Some(self.status),
            ..Flow::new(original, reply, is_reply)
        }
    }
}

fn ends(tuple: Tuple) -> firewall::Tuple {
    let Tuple { source, destination, source_port, destination_port, .. } = tuple;
    firewall::Tuple { source, source_port, destination, destination_port }
}

/// What a class says of a direction.
fn opinion(class: &Class, facts: &Facts, direction: Direction) -> Opinion {
    match (class.allows_all(), facts.mark) {
        (Some(true), _) => Opinion::Accepted,
        (Some(false), _) => Opinion::No,
        (None, _) if class.allows(&facts.flow(direction, None)) => Opinion::Accepted,
        (None, Some(mark)) if class.allows(&facts.flow(direction, Some(mark))) => Opinion::WithMark,
        (None, _) => Opinion::No,
    }
}

impl LaneThread {
    /// The port by which a direction's packets leave that this port receives.
    pub(super) fn egress(
        &self,
        facts: &Facts,
        direction: Direction,
        ingress: u8,
    ) -> Result<u8, Refusal> {
        let received = facts.tuples[direction as usize];
        let sent = sent(facts.tuples, direction);
        let egress = self.routed(facts.tuples, direction, ingress);
        let egress = egress.filter(|&egress| egress != ingress).ok_or(Refusal::Route)?;
        let [_, to] = self.interfaces([ingress, egress])?;
        // As the kernel's `nf_nat_oif_changed`, and for each translation, not only for masquerade.
        let is_moved = sent.source != received.source && direction == Direction::Original;
        match is_moved && !self.terms.may_be_source(sent.source, to.index) {
            true => Err(Refusal::Masquerade),
            false => Ok(egress),
        }
    }

    /// The port to which the route of a direction's packets leads that this port receives; 0 is none's number.
    pub(super) fn routed(
        &self,
        tuples: [Tuple; 2],
        direction: Direction,
        ingress: u8,
    ) -> Option<u8> {
        let received = tuples[direction as usize];
        let routed = Tuple { destination: sent(tuples, direction).destination, ..received };
        let egress = self.transit.egress_of(self.reader.guard(), ingress.into(), routed);
        egress.ok().and_then(|egress| u8::try_from(egress).ok())
    }

    /// The ports of a direction whose packets arrive by another port than the one that it is approved for, and what the rules
    /// say of them. The reader is online.
    pub(super) fn elsewhere(
        &mut self,
        facts: &Facts,
        direction: Direction,
        ingress: u8,
    ) -> Result<([u8; 2], Opinion), Refusal> {
        let egress = self.egress(facts, direction, ingress)?;
        let received = facts.tuples[direction as usize];
        let routed = Tuple { destination: sent(facts.tuples, direction).destination, ..received };
        let way_back = self.transit.check_way_back(self.reader.guard(), ingress.into(), routed);
        way_back.map_err(|_| Refusal::ReversePath)?;
        Ok(([ingress, egress], self.rules_say(facts, direction, [ingress, egress])?))
    }

    /// Approves a direction for the port by which its packets arrive now, if routes and rules let them: answers may arrive by
    /// another uplink than the one by which the connection left. The other direction is as it was. The reader is online.
    ///
    /// A direction has one port: packets that arrive by the former one are the kernel's from now on. Where they arrive by two
    /// in turn, programs report the direction more and more seldom.
    pub(super) fn move_one(&mut self, candidate: Candidate) -> Result<(), Refusal> {
        let Some((number, direction)) = self.flows.find(candidate.tuple) else { return Ok(()) };
        let Some(&record) = self.records.get(number) else { return Ok(()) };
        let facts = self.facts(number, &record);
        match self.elsewhere(&facts, direction, candidate.ingress)? {
            (_, Opinion::No) => Err(Refusal::Rules),
            (ports, Opinion::Accepted | Opinion::WithMark) => {
                self.flows.approve(number, direction, self.terms.generation, ports);
                self.counts.moved += 1;
                Ok(())
            }
        }
    }

    /// What the rules say of a direction between these ports.
    pub(super) fn rules_say(
        &mut self,
        facts: &Facts,
        direction: Direction,
        ports: [u8; 2],
    ) -> Result<Opinion, Refusal> {
        let tuple = facts.tuples[direction as usize];
        let class = self.class(tuple, ports)?;
        let said = opinion(class, facts, direction);
        let checks_reverse_path = class.checks_reverse_path();
        let is_ipv6 = tuple.is_ipv6();
        if said != Opinion::No && checks_reverse_path && !self.terms.is_strict(is_ipv6) {
            // The rules drop packets that arrive by the wrong port, and programs do not yet. When they do, the terms say so,
            // and all entries are reviewed.
            let strict = &mut lock(&self.wanted).strict;
            *(if is_ipv6 { &mut strict.ipv6 } else { &mut strict.ipv4 }) = true;
            self.mirror.wake();
            return Ok(Opinion::No);
        }
        Ok(said)
    }

    /// The rule that keeps a direction in the kernel between these ports, if one does.
    pub(super) fn obstacle(
        &mut self,
        facts: &Facts,
        direction: Direction,
        ports: [u8; 2],
    ) -> Result<Option<Obstacle>, Refusal> {
        let class = self.class(facts.tuples[direction as usize], ports)?;
        Ok(match class.may(&facts.flow(direction, facts.mark)) {
            Answer::Yes(_) => None,
            Answer::No(obstacle) | Answer::AskPerFlow(obstacle) => Some(obstacle),
        })
    }

    /// The class of a tuple's packets between these ports.
    pub(super) fn class(&mut self, tuple: Tuple, ports: [u8; 2]) -> Result<&Class, Refusal> {
        let LaneThread { rules, terms, options, .. } = self;
        let rules = rules.as_mut().ok_or(Refusal::Rules)?;
        let interface = |number| terms.interface(number).ok_or(Refusal::Route);
        let [from, to] = [interface(ports[0])?, interface(ports[1])?];
        Ok(rules.class(*options, [(ports[0], from), (ports[1], to)], tuple))
    }

    /// An entry, as far as rules can see it.
    pub(super) fn facts(&self, number: FlowNumber, record: &Record) -> Facts {
        let tuples = Direction::BOTH.map(|direction| self.flows.tuple(number, direction));
        let mark = self.records.marks.get(&number.0).copied();
        Facts { tuples, status: record.status.into(), mark }
    }

    fn interfaces(&self, ports: [u8; 2]) -> Result<[&Port; 2], Refusal> {
        let of = |number| self.terms.interface(number).ok_or(Refusal::Route);
        Ok([of(ports[0])?, of(ports[1])?])
    }

    /// Approves an entry's directions as routes and rules are now. An entry leaves the table when neither direction may be
    /// forwarded: its packets may become a candidate again.
    pub(super) fn review_one(&mut self, number: FlowNumber) {
        let Some(&record) = self.records.get(number) else { return };
        let facts = self.facts(number, &record);
        let is_needed = self.terms.needs(facts.tuples[0].is_ipv6());
        let mut any = false;
        for direction in Direction::BOTH {
            let (_, [ingress, before]) = self.flows.approved(number, direction);
            let egress = self.egress(&facts, direction, ingress);
            let said = egress.and_then(|egress| {
                let said = self.rules_say(&facts, direction, [ingress, egress])?;
                Ok((said, egress))
            });
            let (is_approved, egress) = match said {
                Ok((Opinion::Accepted | Opinion::WithMark, egress)) => (is_needed, egress),
                Ok((Opinion::No, egress)) => (false, egress),
                Err(_) => (false, before),
            };
            any |= is_approved;
            let generation = if is_approved { self.terms.generation } else { 0 };
            self.flows.approve(number, direction, generation, [ingress, egress]);
        }
        if !any {
            self.remove(number, if is_needed { Removal::Refused } else { Removal::Unneeded });
        }
    }

    /// Reviews some of the entries, where all have to be.
    pub(super) fn review_some(&mut self) {
        let Some(from) = self.review else { return };
        let to = from.saturating_add(REVIEWED_AT_ONCE);
        self.reader.online();
        for number in self.records.live(from, to) {
            self.review_one(number);
        }
        self.reader.offline();
        self.review = (to < self.records.places()).then_some(to);
    }

    /// All entries have to be reviewed.
    pub(super) fn review_all(&mut self) {
        self.review = Some(0);
        self.counts.reviews += 1;
    }

    /// Lets no packet follow entries until they have been reviewed, if they are too many to be reviewed at once.
    pub(super) fn pause_all(&mut self) {
        if self.flows.len() < PAUSED_FROM {
            return;
        }
        for number in self.records.live(0, u32::MAX) {
            for direction in Direction::BOTH {
                let (_, ports) = self.flows.approved(number, direction);
                self.flows.approve(number, direction, 0, ports);
            }
        }
    }

    /// The mirror's thread has said on which terms connections may be forwarded.
    pub(super) fn set_terms(&mut self, terms: LaneTerms) {
        let before = std::mem::replace(&mut self.terms, terms);
        // Before the status says that connections decide: the end of one that begins then is announced.
        self.open_conntrack();
        if before.generation != self.terms.generation {
            // Rules are read behind the word that stopped all entries.
            self.rules = None;
            self.look_for_lapse();
        } else if before.ports != self.terms.ports
            && let Some(rules) = &mut self.rules
        {
            rules.forget_classes();
        }
        self.review_all();
    }

    /// Sets have other elements: what was decided by them is decided again.
    pub(super) fn elements_changed(&mut self, sets: &BTreeSet<SetName>) {
        if self.rules.as_ref().is_some_and(|rules| rules.read_any(sets)) {
            self.pause_all();
            self.rules = None;
            self.review_all();
        }
    }

    /// Reads the rules, if that is to be done.
    pub(super) fn read_rules(&mut self) {
        if self.rules.is_some() || !self.terms.is_needed() {
            return;
        }
        match Firewall::read() {
            Ok(firewall) => {
                self.rules = Some(Rules::of(firewall));
                self.trouble = None;
            }
            // Nothing is approved without rules; the next tick tries again.
            Err(error) => self.trouble = Some(error.to_string()),
        }
    }
}

/// Entries that are reviewed between two looks at what has happened: some milliseconds.
const REVIEWED_AT_ONCE: u32 = 4096;

/// As many entries are stopped before they are reviewed: fewer are reviewed in some ten milliseconds.
const PAUSED_FROM: usize = 32_768;
