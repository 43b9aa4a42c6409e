//! When a timer is over, and whether its question may be sent then.

use std::time::Duration;

use manylane_frame::vocabulary::PortId;

use super::lane::{PASSED_OVER_MAX, Timer};
use super::{Action, Table};
use crate::neighbour::entry::Event;

impl Table {
    /// Lets time pass: timers that are over, and questions that waited for a token.
    pub fn tick(&mut self, now: Duration, actions: &mut Vec<Action>) {
        while let Some(slot) = self.next_due(Timer::Quiet, now) {
            self.step(slot, Event::Timeout, now, actions);
        }
        for timer in Timer::asking() {
            while self.ask_next(timer, now, actions) {}
        }
    }

    /// From now on, at most `places` questions may be handed out; at first without a bound. An entry without a place
    /// waits, without a deadline.
    pub fn give_places(&mut self, places: usize) {
        self.places = places;
    }

    /// Whether questions wait for [`Table::give_places`].
    pub fn needs_places(&self) -> bool {
        self.places == 0
    }

    /// From now on, neighbours of this family on this port are not searched for, or are again: we have no address yet
    /// to send questions from.
    pub fn set_waiting(&mut self, port: PortId, is_ipv6: bool, waits: bool) {
        let keys = self.keys_of(port);
        let slots = keys.iter().filter(|key| key.addr.is_ipv6() == is_ipv6);
        let slots: Vec<u32> = slots.map(|key| self.by_key[key]).collect();
        slots.iter().for_each(|&slot| self.unlink(slot));
        match waits {
            true => self.waiting.insert((port, is_ipv6)),
            false => self.waiting.remove(&(port, is_ipv6)),
        };
        slots.iter().for_each(|&slot| self.link(slot));
    }

    /// When to call [`Table::tick`] next, if nothing is reported before.
    pub fn deadline(&self) -> Option<Duration> {
        let ready = |timer: Timer| {
            let &(due, _) = self.timers[timer as usize].first()?;
            match timer {
                Timer::Quiet => Some(due),
                _ if self.places == 0 => None,
                _ => Some(due.max(self.bucket.ready_at(self.reserve(timer)))),
            }
        };
        Timer::ALL.into_iter().filter_map(ready).min()
    }

    /// Sends the question of this slot if it is due and a token is left, before older ones that wait:
    /// under a flood of them an answer must find an entry that was not given up meanwhile.
    pub(super) fn ask_now(&mut self, slot: u32, now: Duration, actions: &mut Vec<Action>) {
        let Some((timer, due, _)) = self.timer(slot) else { return };
        if self.passed_over >= PASSED_OVER_MAX {
            self.ask_next(Timer::Stranger, now, actions);
        }
        // The stranger may be this one.
        if timer != Timer::Quiet && due <= now && self.timer(slot) == Some((timer, due, slot)) {
            self.ask(timer, slot, now, actions);
        }
    }

    /// Sends the question of this lane that waits longest, if one is due and a token is left.
    fn ask_next(&mut self, timer: Timer, now: Duration, actions: &mut Vec<Action>) -> bool {
        if timer.is_before_strangers() && self.passed_over >= PASSED_OVER_MAX {
            self.ask_next(Timer::Stranger, now, actions);
        }
        let slot = self.next_due(timer, now);
        slot.is_some_and(|slot| self.ask(timer, slot, now, actions))
    }

    /// Sends a question that is due, if a token is left for its lane.
    fn ask(&mut self, timer: Timer, slot: u32, now: Duration, actions: &mut Vec<Action>) -> bool {
        let may = self.places > 0 && self.bucket.take(now, self.reserve(timer));
        if may {
            if timer.is_before_strangers() {
                self.passed_over = self.passed_over.saturating_add(1);
            } else if timer == Timer::Stranger {
                self.passed_over = 0;
            }
            self.step(slot, Event::Timeout, now, actions);
        }
        may
    }

    fn next_due(&self, timer: Timer, now: Duration) -> Option<u32> {
        self.timers[timer as usize].first().filter(|(due, _)| *due <= now).map(|&(_, slot)| slot)
    }

    pub(super) fn timer(&self, slot: u32) -> Option<(Timer, Duration, u32)> {
        let entry = self.entry(slot)?;
        if self.down.contains(&entry.key.port) {
            return None;
        }
        let timer = Timer::of(entry, &self.config.timing);
        if timer != Timer::Quiet
            && self.waiting.contains(&(entry.key.port, entry.key.addr.is_ipv6()))
        {
            return None;
        }
        Some((timer, entry.deadline?, slot))
    }

    /// Tokens a question must leave in the bucket.
    fn reserve(&self, timer: Timer) -> u32 {
        timer.reserve(self.config.questions_burst, self.passed_over)
    }
}
