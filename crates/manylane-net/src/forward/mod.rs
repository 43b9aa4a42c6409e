//! Batch in, verdicts out: the rules of a router.
//!
//! A batch runs through three passes, so that the memory that a later pass needs is on its way while an earlier one
//! works:
//!
//! 1. *check*: link-layer destination, header, checksum, addresses; prefetch the FIB's word
//! 2. *look up*: the FIB's answer for each destination, its next hop; prefetch the neighbour's record
//! 3. *rewrite*: neighbour, MTU; TTL, checksum, link-layer header
//!
//! The passes are the fast path: loops of few instructions over runs of plain packets, with one verdict only: forward,
//! by a port. A packet that fails a check of the first pass, or that the third pass cannot simply forward, is an
//! exception: `slow` decides about it, one frame at a time, by the rules written out in full: our own addresses, ARP
//! and ND, options, errors, and everything malformed. The decision falls in the frame's own place, between the runs, so
//! that a flow with packets on both paths keeps its order (I3).
//!
//! | file          | the rules in it                                                            |
//! |---------------|----------------------------------------------------------------------------|
//! | `tables`      | none: what a worker reads                                                  |
//! | `verdict`     | none: what may be decided about a frame, and a batch of it                 |
//! | `check`       | pass 1 and 2                                                               |
//! | `rewrite`     | pass 3                                                                     |
//! | `send`        | routes packets of our own and writes their link headers                    |
//! | `slow`        | layer 2 rules, RFC 1812 §5.2 and §5.3, RFC 8200 §3, RFC 4291 §2.5          |
//! | `local`       | packets for ourselves: ARP, ND, echo                                       |
//! | `own`         | claims to our own addresses, and what we send about them                   |
//! | `answer`      | ICMP errors, made of the packet that caused them                           |
//! | `prepare`     | turns a packet into what its egress port takes                             |
//! | `segment`     | packets that stand for several (TSO, USO, GRO): their size, and cut        |
//! | `fragment`    | IPv4 fragmentation, RFC 791 §3.2                                           |
//! | `parts`       | bytes of packets that lie in several frames                                |
//! | `explain`     | why a packet is forwarded as it is, for a trace                            |
//! | `redirect`    | tells a sender of a straighter path, if the configuration wants that       |
//! | `vlan`        | tags of IEEE 802.1Q and 802.1ad, off and on                                |
//!
//! A packet larger than a frame is a chain of frames. The passes leave it to `slow`, which looks at its
//! first frame: headers lie there, or are brought there (`parts`).
//!
//! What a packet's port says of its transport checksum stays true on the way through: a router changes
//! neither addresses nor ports, so that neither a checksum nor a pseudo-header's sum has to follow.
//!
//! Nothing here knows a socket, a thread or a clock: time is an argument.

mod answer;
mod check;
mod explain;
mod fragment;
mod heard;
mod local;
mod own;
mod parts;
mod prepare;
mod redirect;
mod rewrite;
mod segment;
mod send;
mod slow;
mod tables;
#[cfg(all(test, not(manylane_loom)))]
mod tests;
mod verdict;
mod vlan;

use std::collections::VecDeque;
use std::net::IpAddr;

use manylane_frame::vocabulary::{DropReason, PortId, QueueId};
use manylane_frame::{BATCH_MAX, Batch, Frame, Pool, Region};
use manylane_sync::rcu::{Guard, Index};

use self::heard::Heard;
use self::verdict::OTHER;
use crate::fib::NextHop as NextHopMark;
use crate::icmp::{ErrorLimits, RateLimit};
use crate::neighbour::{AdjacencyState, Key, Neighbour, Report, Requester};
use crate::nexthop::NextHop;

pub use explain::{Explanation, Finding, Found, Via};
pub use prepare::{PrepareError, Prepared, prepare};
pub use tables::{Ipv4Interface, PortFacts, Tables};
pub use verdict::{Fate, Origin, Verdict, Verdicts};
pub use vlan::{Sorted, Vlan};

pub(crate) use parts::HEADERS_MAX;
pub(crate) use rewrite::decrement_ttl;

/// What a worker lends to the rules while it works on one batch.
pub struct Turn<'g, 'p> {
    /// Keeps alive what the tables lead to.
    pub guard: Guard<'g>,
    /// Gives frames for packets that are made here, and takes the ones that fall empty.
    pub pool: &'p mut Pool,
    /// The time, in nanoseconds of any clock that does not go back.
    pub now_ns: u64,
}

/// One worker's forwarding engine.
pub struct Forwarder {
    region: Region,
    tables: Tables,
    errors: ErrorLimits,
    /// For redirects, where they are sent.
    redirects: Option<RateLimit>,
    /// Identification of the next IPv4 packet of our own (RFC 791 §3.2).
    identification: u16,
    /// When each neighbour's slot was last reported to the control thread.
    reported_ns: Vec<u64>,
    heard: Heard,
    /// Packets whose encapsulated transport checksum could not be looked at.
    inner_checksum_unknown: u64,
    events: Vec<Report>,
    /// Those that keep a neighbour alive.
    urgent: Vec<Report>,
    /// What the first passes found in the last batch.
    checked: Box<check::Checked>,
    /// Packets received by sub-interfaces, in the last batch from a port that has any.
    sorted: Vec<Sorted>,
    /// What errors were made of, if that is to be shown.
    former: VecDeque<Former>,
    keeps_former: bool,
}

/// A packet that was dropped and is an error to its sender by now.
#[derive(Debug)]
pub struct Former {
    /// The port that received it.
    pub ingress: PortId,
    /// The queue of that.
    pub queue: QueueId,
    /// Its first bytes, with its link header.
    pub bytes: Vec<u8>,
    /// How many it had.
    pub len: u32,
    /// Why it was dropped.
    pub reason: DropReason,
}

/// Packets that are kept in a turn to be shown: more than errors may be sent in one.
const FORMER_MAX: usize = 1024;

/// Reports that wait for the worker to pass them on. Dropping one loses nothing that matters: the next
/// packet says it again.
const EVENTS_MAX: usize = 192;

/// Places for reports that keep a neighbour alive.
const URGENT_MAX: usize = 64;

/// A neighbour is reported at most so often, by one worker.
const REPORT_INTERVAL_NS: u64 = 1_000_000_000;

impl Forwarder {
    /// An engine over `region`'s frames that reads `tables` and sends ICMP errors as `errors` allows, and as many again
    /// about packets that are too big.
    pub fn new(region: Region, tables: Tables, errors: RateLimit) -> Forwarder {
        let reported_ns = vec![0; tables.adjacencies.slots()];
        let heard = Heard::new(&tables);
        let events = Vec::with_capacity(EVENTS_MAX);
        Forwarder {
            region,
            tables,
            errors: ErrorLimits::new(errors),
            redirects: None,
            identification: 0,
            reported_ns,
            inner_checksum_unknown: 0,
            heard,
            events,
            urgent: Vec::with_capacity(URGENT_MAX),
            checked: Box::new(check::Checked::new()),
            sorted: Vec::with_capacity(BATCH_MAX),
            former: VecDeque::new(),
            keeps_former: false,
        }
    }

    /// Judges a batch of packets received from one port, and rewrites those that are forwarded. The pool takes frames
    /// that fall empty, and gives one for an exception whose headers must be brought together. The former content of
    /// `verdicts` is lost.
    #[inline]
    pub fn forward<'g>(
        &mut self,
        turn: &mut Turn<'g, '_>,
        batch: &mut Batch,
        verdicts: &mut Verdicts<'g>,
    ) {
        let frames = batch.as_mut_slice();
        let ingress = frames.first().map_or(PortId(0), |frame| self.region.meta(frame).ingress);
        if !self.tables.ports[ingress.index()].vlans.is_empty() {
            self.sort(ingress, frames);
        }
        check::check(self.region.view(), &self.tables, ingress, frames, &mut self.checked);
        check::look_up(&self.tables, turn.guard, frames.len(), &mut self.checked);
        verdicts.others.clear();
        let mut at = 0;
        while at < frames.len() {
            // A run of packets on the fast path, then the exception behind it, in its place (I3).
            let end = self.checked.next_exception(at).min(frames.len());
            let (run, egress_ports) = (&mut frames[at..end], &mut verdicts.egress_ports[at..end]);
            let (region, checked) = (self.region.view(), &self.checked);
            at += rewrite::pass_on(
                region,
                &self.tables,
                turn.guard,
                run,
                (checked, at),
                egress_ports,
            );
            if let Some(frame) = frames.get_mut(at) {
                verdicts.egress_ports[at] = OTHER;
                verdicts.others.push(self.decide(turn, frame, at));
                at += 1;
            }
        }
        (verdicts.len, verdicts.ingress, verdicts.bytes) =
            (frames.len(), ingress, self.checked.bytes);
    }

    /// Decides about the frame at one place of the batch, which is not simply passed on.
    #[inline(never)]
    fn decide<'g>(
        &mut self,
        turn: &mut Turn<'g, '_>,
        frame: &mut Frame,
        place: usize,
    ) -> Verdict<'g> {
        match self.checked.next_hop(turn.guard, place) {
            Some(next_hop) => self.rewrite(turn, frame, next_hop),
            None => self.judge(turn, frame),
        }
    }

    /// Judges a packet that was held: unchanged since it was received, unless we made it ourselves.
    pub fn resume<'g>(&mut self, turn: &mut Turn<'g, '_>, frame: &mut Frame) -> Verdict<'g> {
        if self.region.meta(frame).own {
            return Verdict::received(self.send(turn, frame, None));
        }
        self.judge(turn, frame)
    }

    /// Whether a frame held for `key` must wait longer. `slot` is the neighbour's, if it had one.
    pub fn is_waiting<'g>(
        &self,
        guard: Guard<'g>,
        key: Key,
        slot: Option<Index<'g, Neighbour>>,
    ) -> bool {
        let slot = slot.or_else(|| match self.next_hop(guard, key.addr) {
            NextHop::Via(slot) => Some(slot),
            _ => None,
        });
        // No slot stands for the address yet: wait, until the control thread has made one.
        let Some(slot) = slot else { return true };
        let adjacency = self.tables.adjacencies.load(guard, slot);
        self.tables.adjacencies.key(adjacency) == key
            && adjacency.state() == AdjacencyState::Unresolved
    }

    /// Which neighbour a slot stands for.
    pub fn key<'g>(&self, guard: Guard<'g>, neighbour: Index<'g, Neighbour>) -> Key {
        self.tables.adjacencies.key(self.tables.adjacencies.load(guard, neighbour))
    }

    /// Requests the neighbour for the packet in this frame from the control thread.
    pub fn report_missing_key(&mut self, frame: &Frame, key: Key) {
        let sender = rewrite::source(self.region.bytes(frame));
        let requester = sender.map(Requester::of).unwrap_or_default();
        self.report(Report::Missing { key, requester });
    }

    /// Ends the wait of a packet whose neighbour did not answer: the sender is notified, if the rules allow.
    pub fn give_up<'g>(&mut self, turn: &mut Turn<'g, '_>, frame: &mut Frame) -> Verdict<'g> {
        self.unreachable(turn, frame, DropReason::NeighbourFailed)
    }

    /// The packet's destination, if it is an IP packet: the neighbour to resolve when its fate is [`Fate::Glean`].
    pub fn destination(&self, frame: &Frame) -> Option<IpAddr> {
        rewrite::destination(self.region.bytes(frame))
    }

    /// What happened since the last call and keeps a neighbour alive, for the control thread. Places in its ring are
    /// reserved for these reports: a scan reports missing neighbours as fast as it likes, and a neighbour whose three
    /// answers were lost behind them would look dead.
    pub fn urgent_events(&mut self) -> std::vec::Drain<'_, Report> {
        self.urgent.drain(..)
    }

    /// What else happened since the last call, for the control thread.
    pub fn events(&mut self) -> std::vec::Drain<'_, Report> {
        self.events.drain(..)
    }

    /// Whether reports wait.
    #[inline(always)]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty() || !self.urgent.is_empty()
    }

    /// The tables this engine reads.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Packets with an encapsulated transport checksum that could not be looked at.
    pub fn inner_checksum_unknown(&self) -> u64 {
        self.inner_checksum_unknown
    }

    /// ICMP errors that were due and not sent, because of the rate limit.
    pub fn errors_suppressed(&self) -> u64 {
        self.errors.refused()
    }

    fn report(&mut self, event: Report) {
        if self.events.len() < EVENTS_MAX {
            self.events.push(event);
        }
    }

    /// Reports what keeps a neighbour alive.
    fn report_urgent(&mut self, event: Report) {
        match self.urgent.len() < URGENT_MAX {
            true => self.urgent.push(event),
            false => self.report(event),
        }
    }

    #[inline]
    fn port(&self, port: PortId) -> &PortFacts {
        &self.tables.ports[port.index()]
    }
}

/// The length of the Ethernet header in front of every IP packet here.
const LINK_HEADER: usize = crate::wire::ethernet::HEADER_LEN;
