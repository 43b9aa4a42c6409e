//! Latencies by size, within 3 %, without an allocation or a lock.

use manylane_sync::counters::{CounterReader, Counters};

/// Buckets of one doubling.
const STEPS: u64 = 32;
/// Up to 2^40 ns, 18 minutes; what is longer counts as that.
const BUCKETS: usize = 36 * STEPS as usize;

/// Counters for latencies; one thread adds.
pub fn counters() -> Counters {
    Counters::new(BUCKETS)
}

#[inline]
pub fn bucket(ns: u64) -> usize {
    if ns < STEPS {
        return ns as usize;
    }
    let doublings = u64::from(ns.ilog2() - STEPS.ilog2());
    let bucket = doublings * STEPS + (ns >> doublings);
    (bucket as usize).min(BUCKETS - 1)
}

/// The least latency of a bucket.
fn least(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let doublings = (bucket / STEPS).saturating_sub(1);
    (bucket - doublings * STEPS) << doublings
}

/// Latencies counted at a moment, for what came since.
pub struct Snapshot(Vec<u64>);

impl Snapshot {
    pub fn of(readers: &[CounterReader]) -> Snapshot {
        let sum = |bucket| readers.iter().map(|reader| reader.load(bucket)).sum();
        Snapshot((0..BUCKETS).map(sum).collect())
    }

    /// The latency below which `part` (0 to 1) of those counted since `before` lie. None if none were counted.
    pub fn quantile_since(&self, before: &Snapshot, part: f64) -> Option<f64> {
        let counts = self.0.iter().zip(&before.0).map(|(now, before)| now - before);
        let total: u64 = counts.clone().sum();
        let wanted = ((total as f64 * part) as u64).min(total.checked_sub(1)?);
        let mut below = 0;
        let found = counts.enumerate().find(|&(_, count)| {
            below += count;
            below > wanted
        });
        found.map(|(bucket, _)| least(bucket) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_begins_where_the_last_one_ends_and_is_narrow() {
        for index in 0..BUCKETS - 1 {
            assert_eq!(bucket(least(index)), index);
            assert_eq!(bucket(least(index + 1) - 1), index, "the last of {index}");
            let width = least(index + 1) - least(index);
            assert!(width == 1 || width * STEPS <= least(index), "{index}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_quantile_is_of_what_came_since() {
        let mut counters = counters();
        let readers = [counters.reader()];
        counters.add(bucket(1_000_000), 7);
        let before = Snapshot::of(&readers);
        assert_eq!(Snapshot::of(&readers).quantile_since(&before, 0.5), None);
        counters.add(bucket(10), 98);
        counters.add(bucket(30), 2);
        let after = Snapshot::of(&readers);
        assert_eq!(after.quantile_since(&before, 0.5), Some(10.0));
        assert_eq!(after.quantile_since(&before, 0.97), Some(10.0));
        assert_eq!(after.quantile_since(&before, 0.99), Some(30.0));
    }
}
