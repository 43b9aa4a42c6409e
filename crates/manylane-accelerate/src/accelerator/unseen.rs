//! The time when no program of ours is on an interface: what passes then is counted nowhere, and the ledger says so.

use std::time::{Duration, Instant};

use manylane_api::accelerate::UnseenTime;

/// The time of one interface.
#[derive(Clone, Debug, Default)]
pub(super) struct Unseen {
    /// Since when no program is on it.
    since: Option<Instant>,
    /// The time before that.
    before: Duration,
}

impl Unseen {
    /// At `now` no program is on it, or one is.
    pub fn note(&mut self, is_unseen: bool, now: Instant) {
        if is_unseen {
            self.since.get_or_insert(now);
        } else if let Some(since) = self.since.take() {
            self.before += now.saturating_duration_since(since);
        }
    }

    /// As the API has it at `now`.
    pub fn at(&self, now: Instant) -> UnseenTime {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let present = self.since.map(|since| now.saturating_duration_since(since));
        UnseenTime {
            for_ms: present.map(ms),
            total_ms: ms(self.before + present.unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_without_a_program_adds_up() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut unseen = Unseen::default();
        assert_eq!(unseen.at(after(5)), UnseenTime::default(), "nothing was noted");
        unseen.note(true, after(10));
        unseen.note(true, after(20));
        assert_eq!(unseen.at(after(30)), UnseenTime { for_ms: Some(20), total_ms: 20 });
        unseen.note(false, after(40));
        unseen.note(false, after(50));
        assert_eq!(unseen.at(after(60)), UnseenTime { for_ms: None, total_ms: 30 });
        unseen.note(true, after(100));
        assert_eq!(unseen.at(after(107)), UnseenTime { for_ms: Some(7), total_ms: 37 });
    }
}
