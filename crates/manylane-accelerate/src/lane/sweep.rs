//! All entries, once a second: which are used, which close, which are idle.

use std::time::Duration;

use manylane_io::netlink::conntrack::Change;
use manylane_net::transit::flows::{Direction, FlowNumber, FlowUse};
use manylane_net::wire::protocol;

use super::LaneThread;
use super::connection::{asked, whole_timeout};
use super::export::LAST_31_BITS;
use super::refusal::Removal;
use super::thread::TICKS;

/// What a sweep finds to be done in conntrack.
struct Work {
    /// The kernel's tick, if it tells.
    tick: Option<u64>,
    renew: Vec<(FlowNumber, Change)>,
    relax: Vec<(FlowNumber, Change)>,
}

impl LaneThread {
    /// Looks at the next part of the entries.
    pub(super) fn sweep(&mut self) {
        let places = self.records.places();
        let part = places.div_ceil(TICKS).max(1);
        if self.sweep_at >= places {
            self.sweep_at = 0;
            self.read_timeouts();
            self.ignore_marks();
            self.look_for_lapse();
        }
        let (from, to) = (self.sweep_at, self.sweep_at.saturating_add(part));
        self.sweep_at = to;
        let tick = self.ticks.read().ok();
        let mut work = Work { tick, renew: Vec::new(), relax: Vec::new() };
        self.reader.online();
        for number in self.records.live(from, to) {
            self.sweep_one(number, &mut work);
        }
        self.reader.offline();
        self.export_sweep(from, to);
        self.renew(&work.renew);
        self.relax(&work.relax);
    }

    fn sweep_one(&mut self, number: FlowNumber, work: &mut Work) {
        let uses = Direction::BOTH.map(|direction| self.flows.use_of(number, direction));
        if uses.iter().any(|one| one.closes) {
            return self.remove(number, Removal::Closing);
        }
        let now = self.tenths();
        let tuple = self.flows.tuple(number, Direction::Original);
        let Some(record) = self.records.get_mut(number) else { return };
        let packets = uses.iter().fold(0u32, |sum, one| sum.wrapping_add(one.packets as u32));
        let passed = uses.map(|one| one.left);
        if std::mem::replace(&mut record.packets, packets) != packets {
            record.set_used(true);
        }
        let has_passed = std::mem::replace(&mut record.passed, passed) != passed;
        record.set_passed(record.has_passed() || has_passed);
        let record = *record;
        let change = |liberal, timeout| Change { tuple: asked(tuple), liberal, timeout };
        if has_passed {
            // The kernel has seen packets: its window is as it was then. The port may be another one, too.
            if tuple.protocol == protocol::TCP {
                work.relax.push((number, change(true, None)));
            }
            self.review_one(number);
        }
        let whole = whole_timeout(tuple.protocol, record.timeout, &self.timeouts, &uses);
        let rest = Duration::from_millis(100) * record.expires.saturating_sub(now);
        if record.is_used() && rest < (whole / 2).max(SOON) {
            // As long as conntrack would remember it, had it seen the last packet; in whole seconds, rounded up. A packet
            // that was the kernel's may have been later than ours.
            let tick = work.tick.filter(|_| !record.has_passed());
            let idle = tick.map_or(Duration::ZERO, |tick| self.idle(&uses, tick));
            let still = Duration::from_secs(whole.saturating_sub(idle).as_secs() + 1).min(whole);
            if still > rest {
                work.renew.push((number, change(false, Some(still))));
            }
            if let Some(record) = self.records.get_mut(number) {
                record.set_used(false);
                record.set_passed(false);
            }
        } else if !record.is_used() && !has_passed && rest.is_zero() {
            // The connection lives in conntrack, if at all, by packets that were the kernel's.
            self.remove(number, Removal::Idle);
        }
    }

    /// How long ago the last packet of either direction followed the entry.
    fn idle(&self, uses: &[FlowUse; 2], tick: u64) -> Duration {
        let ago = |one: &FlowUse| tick.wrapping_sub(one.used.into()) & LAST_31_BITS;
        let last = uses.iter().filter(|one| one.used != 0).map(ago).min().unwrap_or(0);
        // A packet of this very tick may be ahead of the tick that was read.
        let last = if last > LAST_31_BITS / 2 { 0 } else { last };
        Duration::from_nanos(last.saturating_mul(self.ticks.length_ns()))
    }

    /// Gives connections the time that their last packets give them.
    fn renew(&mut self, due: &[(FlowNumber, Change)]) {
        let Some(kernel) = &mut self.conntrack else { return };
        if due.is_empty() {
            return;
        }
        let changes: Vec<_> = due.iter().map(|&(_, change)| change).collect();
        let answers = match kernel.requests.change(&changes) {
            Ok(answers) => answers,
            Err(error) => return self.lose_conntrack(&error),
        };
        let now = self.tenths();
        let mut closing = Vec::new();
        for (&(number, change), answer) in due.iter().zip(answers) {
            if self.records.get(number).is_none() {
                continue;
            }
            match answer {
                Ok(()) => {
                    self.counts.renewed += 1;
                    let seconds = change.timeout.unwrap_or_default().as_secs() as u32;
                    if let Some(record) = self.records.get_mut(number) {
                        record.expires = now.saturating_add(seconds.saturating_mul(10));
                    }
                    // A packet may have closed the connection just before: its time is a short one, then.
                    let closes = |direction| self.flows.use_of(number, direction).closes;
                    if Direction::BOTH.into_iter().any(closes) {
                        closing.push(Change { timeout: Some(CLOSING), ..change });
                    }
                }
                // `EPERM`: a program has fixed its time, which ends by itself.
                Err(error) if error.raw_os_error() == Some(EPERM) => {}
                Err(_) => self.remove(number, Removal::Ended),
            }
        }
        if let Some(kernel) = &mut self.conntrack
            && !closing.is_empty()
            && let Err(error) = kernel.requests.change(&closing)
        {
            self.lose_conntrack(&error);
        }
    }

    /// Tells conntrack once more that it does not see all segments.
    fn relax(&mut self, due: &[(FlowNumber, Change)]) {
        let Some(kernel) = &mut self.conntrack else { return };
        if due.is_empty() {
            return;
        }
        let changes: Vec<_> = due.iter().map(|&(_, change)| change).collect();
        match kernel.requests.change(&changes) {
            Ok(answers) => {
                for (&(number, _), answer) in due.iter().zip(answers) {
                    match answer {
                        Ok(()) => self.counts.relaxed += 1,
                        Err(_) if self.records.get(number).is_some() => {
                            self.remove(number, Removal::Ended);
                        }
                        Err(_) => {}
                    }
                }
            }
            Err(error) => self.lose_conntrack(&error),
        }
    }
}

/// What would expire before the sweep after the next is renewed, however short its whole time.
const SOON: Duration = Duration::from_secs(3);
/// `nf_conntrack_tcp_timeout_fin_wait`, as it is by default.
const CLOSING: Duration = Duration::from_secs(120);
/// errno(3).
const EPERM: i32 = 1;
