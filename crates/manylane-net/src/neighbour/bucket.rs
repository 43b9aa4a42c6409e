//! A token bucket whose clock is an argument.

use std::time::Duration;

/// At most `burst` at once, and one more for each `cost` of time.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    cost: Duration,
    full: Duration,
    /// The level, as the time it took to fill, at `at`.
    level: Duration,
    at: Duration,
}

impl Bucket {
    /// A full bucket that gives `per_second` tokens a second.
    ///
    /// # Panics
    ///
    /// When either is 0: nothing would ever pass.
    pub fn new(per_second: u32, burst: u32) -> Bucket {
        assert!(per_second > 0 && burst > 0, "a bucket without tokens lets nothing pass");
        let cost = Duration::from_secs(1) / per_second;
        let full = cost * burst;
        Bucket { cost, full, level: full, at: Duration::ZERO }
    }

    /// Takes a token, if that leaves `keep` of them.
    pub fn take(&mut self, now: Duration, keep: u32) -> bool {
        let passed = now.saturating_sub(self.at);
        self.level = self.full.min(self.level + passed);
        self.at = self.at.max(now);
        let enough = self.level >= self.cost * (keep + 1);
        if enough {
            self.level -= self.cost;
        }
        enough
    }

    /// From when on `take` with this `keep` succeeds, if no other caller takes.
    pub fn ready_at(&self, keep: u32) -> Duration {
        self.at + (self.cost * (keep + 1)).saturating_sub(self.level)
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let mut bucket = Bucket::new(10, 3);
        let taken = (0..50).filter(|_| bucket.take(Duration::ZERO, 0)).count();
        assert_eq!(taken, 3);
        assert_eq!(bucket.ready_at(0), Duration::from_millis(100));
        assert!(!bucket.take(Duration::from_millis(99), 0));
        assert!(bucket.take(Duration::from_millis(100), 0));
        assert!(!bucket.take(Duration::from_millis(100), 0));
    }

    #[test]
    fn who_keeps_a_reserve_leaves_it_to_the_others() {
        let mut bucket = Bucket::new(10, 3);
        assert!(bucket.take(Duration::ZERO, 2));
        assert!(!bucket.take(Duration::ZERO, 2));
        assert!(bucket.take(Duration::ZERO, 0));
        assert_eq!(bucket.ready_at(2), Duration::from_millis(200));
    }

    #[test]
    fn a_clock_that_steps_back_gives_nothing() {
        let mut bucket = Bucket::new(1, 1);
        assert!(bucket.take(Duration::from_secs(9), 0));
        assert!(!bucket.take(Duration::from_secs(1), 0));
        assert!(!bucket.take(Duration::from_millis(9_999), 0));
    }
}
