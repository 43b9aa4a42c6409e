//! Short laps of two forwarders in turn, for differences that are smaller than what the machine changes within a second.
//!
//! The rate of a shared machine changes by tens of percent from one second to the next, and both laps of a pair see
//! one rate. The order is A B, B A, A B, ...: what grows or falls meanwhile cancels out. A figure is the median over a
//! round's pairs.

use super::place::FrameLap;
use super::{Plan, QUICK_ATTEMPTS};
use crate::prelude::*;

/// How many pairs a round has, and how long each lap is.
#[derive(Clone, Copy)]
pub struct Pace {
    pairs: usize,
    pub slice: Duration,
    /// How often a lap is tried.
    attempts: usize,
}

impl Pace {
    /// For this number of flows: caches have to know them again in each lap. A tiny run only shows that all of it works.
    pub fn of(plan: &Plan, flows: usize) -> Pace {
        if plan.pace.quick {
            let slice = Duration::from_millis(60);
            return Pace { pairs: 1, slice, attempts: QUICK_ATTEMPTS };
        }
        let slice = SLICE_MIN + SLICE_OF_FLOW * flows as u32;
        let pairs = (ROUND.as_secs_f64() / slice.as_secs_f64()) as usize;
        Pace { pairs: pairs.clamp(PAIRS_MIN, PAIRS_MAX), slice, attempts: 1 }
    }
}

/// The rates of both forwarders, pair by pair, in million frames a second.
pub struct Pairs(Vec<[f64; 2]>);

impl Pairs {
    /// Takes laps of both, by their number, 0 or 1. A pair without one of its laps does not count; the inner error has the
    /// newest cause, where fewer than half of the pairs count.
    pub fn take(
        pace: Pace,
        mut lap: impl FnMut(usize) -> Result<Result<FrameLap, String>>,
    ) -> Result<Result<Pairs, String>> {
        let (mut pairs, mut cause) = (Vec::new(), None);
        for pair in 0..pace.pairs {
            let mut rates = [None; 2];
            for which in [pair % 2, 1 - pair % 2] {
                for _ in 0..pace.attempts {
                    match lap(which)? {
                        Ok(lap) => rates[which] = Some(lap.mpps()),
                        Err(why) => cause = Some(why),
                    }
                    if rates[which].is_some() {
                        break;
                    }
                }
            }
            if let [Some(first), Some(second)] = rates {
                pairs.push([first, second]);
            }
        }
        match cause {
            Some(cause) if pairs.len() * 2 < pace.pairs => Ok(Err(cause)),
            _ => Ok(Ok(Pairs(pairs))),
        }
    }

    /// The median of what pairs give.
    pub fn median(&self, of: impl Fn([f64; 2]) -> f64) -> f64 {
        let mut values: Vec<_> = self.0.iter().map(|pair| of(*pair)).collect();
        values.sort_by(f64::total_cmp);
        quantile(&values, 0.5)
    }

    /// The rate of one of them.
    pub fn mpps(&self, which: usize) -> f64 {
        self.median(|pair| pair[which])
    }

    /// What a frame costs more in the first than in the second, in nanoseconds.
    pub fn ns_more(&self) -> f64 {
        self.median(|[first, second]| 1e3 / first - 1e3 / second)
    }

    /// By how many percent the rate of the first is less than that of the second.
    pub fn percent_less(&self) -> f64 {
        self.median(|[first, second]| percent_less(first, second))
    }
}

/// By how many percent the first rate is less than the second.
pub fn percent_less(rate: f64, whole: f64) -> f64 {
    (1.0 - rate / whole) * 100.0
}

/// All laps of one forwarder in a round, about.
const ROUND: Duration = Duration::from_millis(400);
const SLICE_MIN: Duration = Duration::from_millis(30);
const SLICE_OF_FLOW: Duration = Duration::from_micros(2);
const PAIRS_MIN: usize = 4;
const PAIRS_MAX: usize = 13;

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(pairs: usize) -> Pace {
        Pace { pairs, slice: Duration::ZERO, attempts: 1 }
    }

    #[test]
    fn what_changes_with_time_cancels_out() {
        let (mut order, mut speed) = (Vec::new(), 1.0);
        let pairs = Pairs::take(pace(4), |which| {
            order.push(which);
            speed *= 0.9;
            Ok(Ok(FrameLap::at_mpps(speed * [8.0, 10.0][which])))
        });
        let pairs = pairs.expect("no error").expect("all pairs count");
        assert_eq!(order, [0, 1, 1, 0, 0, 1, 1, 0]);
        assert!((pairs.percent_less() - 20.0).abs() < 1.0, "{}", pairs.percent_less());
    }

    #[test]
    fn a_pair_without_a_lap_does_not_count() {
        let refused = |share: usize| {
            let mut laps = 0;
            let pairs = Pairs::take(pace(8), |_| {
                laps += 1;
                let lap = FrameLap::at_mpps(f64::from(laps));
                Ok(if laps as usize <= share { Err("the kernel's".into()) } else { Ok(lap) })
            });
            pairs.expect("no error").map(|pairs| pairs.0.len())
        };
        assert_eq!(refused(0), Ok(8));
        assert_eq!(refused(7), Ok(4));
        assert_eq!(refused(9), Err("the kernel's".into()));
    }
}
