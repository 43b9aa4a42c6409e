//! The thread: what it hears, and what it does, in this order.
//!
//! | What                                    | When                                                             |
//! |-----------------------------------------|------------------------------------------------------------------|
//! | what the mirror's thread and others ask | at once                                                          |
//! | ends and marks of connections           | at once, before any candidate                                    |
//! | rules read, entries reviewed            | when something they were approved by has changed, some at a time |
//! | candidates                              | [`GATHERING`] after the former ones, up to [`CANDIDATES_AT_ONCE`] |
//! | ends that are not announced             | each tick, some: all in two seconds                              |
//! | the next part of all entries            | each tick: all once a second                                     |
//!
//! If the thread does not come round for as long as stale tables may be used, the mirror's thread stops all entries.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use manylane_io::eventfd::EventFd;
use manylane_io::netlink::conntrack::Timeouts;
use manylane_io::poll::poll;
use manylane_net::transit::Transit;
use manylane_net::transit::flows::{FlowNumber, FlowsMut};
use manylane_sync::doorbell::Wake as _;
use manylane_sync::rcu::Reader;

use super::approve::Rules;
use super::export::Exports;
use super::record::Records;
use super::refusal::{Counts, Removal};
use super::watch::Kernel;
use super::{LaneTerms, Parts, Wanted, lock};
use crate::firewall;
use crate::programs::{Candidate, Candidates, Counters, Ticks};
use crate::questions::QuestionQueue;

/// All that the thread has.
pub(crate) struct LaneThread {
    pub(super) flows: FlowsMut,
    pub(super) records: Records,
    pub(super) counts: Counts,
    pub(super) candidates: Candidates,
    /// What programs have counted.
    pub(super) counters: Counters,
    /// Packets that the kernel got because the lease had lapsed, at the last look.
    pub(super) lapsed: u64,
    /// Candidates that are to be looked up once more.
    pub(super) again: Vec<Candidate>,
    /// Until then candidates gather: while some lie in the buffer, no program wakes this thread.
    gathering: Instant,
    /// Open while connections are forwarded.
    pub(super) conntrack: Option<Kernel>,
    pub(super) timeouts: Timeouts,
    pub(super) transit: Transit,
    /// Offline but for the moments in which routes are read.
    pub(super) reader: Reader,
    pub(super) ticks: Ticks,
    pub(super) terms: LaneTerms,
    pub(super) options: firewall::Options,
    pub(super) stale_limit: Duration,
    /// As they were read last; `None` until they have been.
    pub(super) rules: Option<Rules>,
    /// The next entry that has to be reviewed.
    pub(super) review: Option<u32>,
    /// The next entry of the sweep.
    pub(super) sweep_at: u32,
    /// Why connections cannot be followed.
    pub(super) trouble: Option<String>,
    pub(super) wanted: Arc<Mutex<Wanted>>,
    pub(super) mirror: Arc<EventFd>,
    /// What has been exported, where a collector is configured.
    pub(super) exports: Option<Exports>,
    pub(super) reclaim: Arc<EventFd>,
    pub(super) doorbell: Arc<EventFd>,
    questions: QuestionQueue<LaneThread>,
    started: Instant,
    next_tick: Instant,
    ends: bool,
}

impl LaneThread {
    pub(super) fn new(
        parts: Parts,
        doorbell: Arc<EventFd>,
        questions: QuestionQueue<LaneThread>,
        wanted: Arc<Mutex<Wanted>>,
    ) -> LaneThread {
        let Parts { mut flows, candidates, counters, transit, mut reader, options, .. } = parts;
        let Parts { stale_limit, ticks, export, reclaim, mirror, .. } = parts;
        reader.offline();
        if export.is_some() {
            flows.keep_ends();
        }
        LaneThread {
            flows,
            records: Records::default(),
            counts: Counts::default(),
            candidates,
            counters,
            lapsed: 0,
            again: Vec::new(),
            gathering: Instant::now(),
            conntrack: None,
            timeouts: Timeouts::default(),
            transit,
            reader,
            ticks,
            terms: LaneTerms::default(),
            options,
            stale_limit,
            rules: None,
            review: None,
            sweep_at: 0,
            trouble: None,
            wanted,
            mirror,
            exports: export.map(Exports::new),
            reclaim,
            doorbell,
            questions,
            started: Instant::now(),
            next_tick: Instant::now(),
            ends: false,
        }
    }

    /// Looks after connections until the end.
    pub(super) fn run(mut self) {
        loop {
            self.doorbell.drain();
            while let Some(job) = self.questions.take() {
                job(&mut self);
            }
            if self.ends {
                return self.export_all();
            }
            self.open_conntrack();
            let looked = Instant::now();
            let has_more = self.hear();
            if !has_more {
                lock(&self.wanted).current = Some(looked);
            }
            self.read_rules();
            // No entry is approved while the end of its connection may be unread.
            if !has_more && (self.rules.is_some() || !self.terms.is_needed()) {
                self.review_some();
            }
            if !has_more && self.is_ready() {
                let mut candidates = std::mem::take(&mut self.again);
                if !self.is_gathering() {
                    candidates.extend(self.candidates.take(CANDIDATES_AT_ONCE));
                    // A full batch has others behind it.
                    if (1..CANDIDATES_AT_ONCE).contains(&candidates.len()) {
                        self.gathering = Instant::now() + GATHERING;
                    }
                }
                self.admit(candidates);
            }
            if Instant::now() >= self.next_tick {
                self.next_tick = Instant::now() + TICK;
                self.look_for_silent();
                self.sweep();
                if self.flows.reclaim() > 0 {
                    self.reclaim.wake();
                }
                self.export_ended();
            }
            self.sleep(has_more);
        }
    }

    /// The thread is to end.
    pub(super) fn end(&mut self) {
        self.ends = true;
    }

    /// Waits for news, or the next tick.
    fn sleep(&self, has_more: bool) {
        let is_reviewing = self.review.is_some() && self.rules.is_some();
        let is_asking = self.is_ready() && !self.again.is_empty();
        if has_more || is_reviewing || is_asking {
            return;
        }
        let is_done = self.exports.as_ref().is_none_or(Exports::is_done);
        let is_idle = !self.terms.is_needed() && self.flows.is_empty() && is_done;
        let now = Instant::now();
        let mut until = self.next_tick.saturating_duration_since(now);
        let mut fds: Vec<BorrowedFd<'_>> = vec![self.doorbell.as_fd()];
        if is_idle {
            // Nothing to be late with.
            lock(&self.wanted).current = None;
        } else if self.gathering > now {
            until = until.min(self.gathering - now);
        } else if self.is_ready() {
            fds.push(self.candidates.as_fd());
        }
        if let Some(kernel) = &self.conntrack {
            fds.push(kernel.events.as_fd());
        }
        // The one failure is ENOMEM: then it turns instead of sleeping.
        let _ = poll(&fds, (!is_idle).then_some(until));
    }

    /// Whether the thread lets further candidates gather.
    fn is_gathering(&self) -> bool {
        self.gathering > Instant::now()
    }

    /// Whether candidates can be decided about. Until then they stay where programs have put them.
    fn is_ready(&self) -> bool {
        self.conntrack.is_some() && self.rules.is_some()
    }

    /// Tenths of a second since the start.
    pub(super) fn tenths(&self) -> u32 {
        u32::try_from(self.started.elapsed().as_millis() / 100).unwrap_or(u32::MAX)
    }

    /// Takes an entry out: its packets are the kernel's.
    pub(super) fn remove(&mut self, number: FlowNumber, why: Removal) {
        if self.records.get(number).is_some() {
            self.export_leave(number, why);
            self.records.remove(number);
            self.flows.remove(number);
            self.counts.removed[why as usize] += 1;
        }
    }

    /// Takes all entries out.
    pub(super) fn remove_all(&mut self, why: Removal) {
        for number in self.records.live(0, u32::MAX) {
            self.remove(number, why);
        }
    }
}

/// How often ends are looked for that are not announced.
const TICK: Duration = Duration::from_millis(100);
/// Ticks in which all entries are swept: a second.
pub(super) const TICKS: u32 = 10;
/// The least time between two batches of candidates: each wakes the thread by an interrupt between processors, which costs
/// the one that forwards as much as a packet.
const GATHERING: Duration = Duration::from_millis(5);
/// Candidates that the lane looks up in conntrack at once.
const CANDIDATES_AT_ONCE: usize = 512;
