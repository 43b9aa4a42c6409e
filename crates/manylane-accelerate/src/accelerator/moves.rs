//! How often a port's program has moved behind programs of others that were attached behind it: a bound, since another
//! process may want the last place, too.

use std::time::{Duration, Instant};

/// The moves of one port.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moves {
    count: u32,
    since: Option<Instant>,
}

impl Moves {
    /// The program has moved at `now`.
    pub fn note(&mut self, now: Instant) {
        if self.is_over(now) {
            *self = Moves { count: 0, since: Some(now) };
        }
        self.count += 1;
    }

    /// Why the program is not attached at `now`, if it has moved too often.
    pub fn too_many(&self, now: Instant) -> Option<String> {
        (self.count > MOVES_MAX && !self.is_over(now)).then(|| {
            format!(
                "other programs were attached behind ours {} times within a minute: each needs a place from which it sees \
                 all packets, so the kernel keeps them for a minute (`bpftool net` shows the programs)",
                self.count
            )
        })
    }

    fn is_over(&self, now: Instant) -> bool {
        self.since.is_none_or(|since| now.saturating_duration_since(since) >= WINDOW)
    }
}

/// As many moves as an operator who starts programs by hand may cause.
const MOVES_MAX: u32 = 8;
/// The time within which they are counted.
const WINDOW: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_wants_the_last_place_too_gets_it_for_a_minute() {
        let start = Instant::now();
        let mut moves = Moves::default();
        for second in 0..MOVES_MAX {
            let now = start + Duration::from_secs(second.into());
            moves.note(now);
            assert_eq!(moves.too_many(now), None);
        }
        let now = start + Duration::from_secs(30);
        moves.note(now);
        assert!(moves.too_many(now).is_some_and(|said| said.contains("9 times")));
        assert!(moves.too_many(start + WINDOW).is_none(), "over");
        moves.note(start + WINDOW);
        assert!(moves.too_many(start + WINDOW).is_none(), "counted anew");
    }
}
