//! How many errors a worker sends: token buckets (RFC 1812 §4.3.2.8, RFC 4443 §2.4 f).
//!
//! | errors                                        | bucket                                                      |
//! |-----------------------------------------------|-------------------------------------------------------------|
//! | *fragmentation needed*, *packet too big*      | their own, as large as the next                             |
//! | redirects                                     | their own, where they are sent                              |
//! | all others                                    | one                                                         |
//!
//! Path MTU discovery works by the first ones alone, so a flood of packets with a TTL of 1 must not use them up. Linux
//! does not limit them (`icmpv4_mask_allow`; bit 2 of `net.ipv6.icmp.ratemask` is clear); RFC 4443 demands a limit for
//! all.

use super::ErrorKind;

/// The budgets of one worker's errors, redirects apart.
#[derive(Clone, Debug)]
pub struct ErrorLimits {
    too_big: RateLimit,
    others: RateLimit,
}

impl ErrorLimits {
    /// Each budget is `each`.
    pub fn new(each: RateLimit) -> ErrorLimits {
        ErrorLimits { too_big: each.clone(), others: each }
    }

    /// The budget for errors of this kind.
    pub fn of(&mut self, kind: ErrorKind) -> &mut RateLimit {
        match kind {
            ErrorKind::TooBig { .. } => &mut self.too_big,
            _ => &mut self.others,
        }
    }

    /// How many errors were refused so far.
    pub fn refused(&self) -> u64 {
        self.too_big.refused() + self.others.refused()
    }
}

/// A token bucket: on average `per_second`, and up to `burst` at once.
///
/// Credit is counted in billionths of a token, so nothing is ever rounded: one nanosecond at a rate of
/// `per_second` earns `per_second` of them.
#[derive(Clone, Debug)]
pub struct RateLimit {
    per_second: u32,
    /// At most `burst`, in billionths.
    credit: u64,
    credit_max: u64,
    last_ns: u64,
    refused: u64,
}

/// One token, in billionths.
const TOKEN: u64 = 1_000_000_000;

impl RateLimit {
    /// A full bucket. With a rate of 0, `burst` are all there will ever be.
    pub fn new(per_second: u32, burst: u32) -> RateLimit {
        let credit_max = u64::from(burst) * TOKEN; // Below 2^62.
        RateLimit { per_second, credit: credit_max, credit_max, last_ns: 0, refused: 0 }
    }

    /// Whether one more may be sent now, and it is.
    pub fn allow(&mut self, now_ns: u64) -> bool {
        let has_token = self.has_token(now_ns);
        if has_token {
            self.take();
        }
        has_token
    }

    /// Whether one more may be sent now; if it is, [`RateLimit::take`]. A clock that went backwards earns
    /// nothing.
    pub fn has_token(&mut self, now_ns: u64) -> bool {
        let elapsed_ns = now_ns.saturating_sub(self.last_ns);
        self.last_ns = self.last_ns.max(now_ns);
        // Saturating: after a long silence the product is large, and the bucket only full.
        let earned = elapsed_ns.saturating_mul(self.per_second.into());
        self.credit = self.credit.saturating_add(earned).min(self.credit_max);
        let has_token = self.credit >= TOKEN;
        self.refused += u64::from(!has_token);
        has_token
    }

    /// One is sent, which [`RateLimit::has_token`] has just allowed.
    pub fn take(&mut self) {
        self.credit = self.credit.saturating_sub(TOKEN);
    }

    /// How many were refused so far.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let mut limit = RateLimit::new(10, 3);
        let start = 5 * TOKEN;
        let burst: Vec<bool> = (0..5).map(|_| limit.allow(start)).collect();
        assert_eq!(burst, [true, true, true, false, false]);
        assert_eq!(limit.refused(), 2);
        assert!(!limit.allow(start + 99_999_999));
        assert!(limit.allow(start + 100_000_000));
        assert!(!limit.allow(start + 100_000_000));
        assert!(limit.allow(start + 200_000_000));
    }

    /// A third of a second is no whole number of nanoseconds; no token gets lost all the same. (Two at
    /// once, so that the bucket is never full, where what is earned is lost on purpose.)
    #[test]
    fn nothing_is_rounded_away() {
        let mut limit = RateLimit::new(3, 2);
        assert!(limit.allow(0) && limit.allow(0));
        let passed = (1..=1_000_000).filter(|step| limit.allow(step * 10_000)).count();
        assert_eq!(passed, 30);
    }

    #[test]
    fn a_rate_of_nothing_allows_nothing() {
        let mut none = RateLimit::new(0, 0);
        assert!(!none.allow(u64::MAX));
        let mut once = RateLimit::new(0, 1);
        assert!(once.allow(0));
        assert!(!once.allow(u64::MAX));
        let mut never = RateLimit::new(u32::MAX, 0);
        assert!(!never.allow(u64::MAX));
    }

    #[test]
    fn a_clock_that_goes_backwards_earns_nothing() {
        let mut limit = RateLimit::new(1, 1);
        assert!(limit.allow(10 * TOKEN));
        assert!(!limit.allow(0));
        assert!(!limit.allow(10 * TOKEN), "the second was earned once already");
        assert!(limit.allow(11 * TOKEN));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn never_more_than_burst_and_rate(
            rate in 0..1000u32, burst in 0..20u32,
            steps in prop::collection::vec(0..50_000_000u64, 1..200),
        ) {
            let mut limit = RateLimit::new(rate, burst);
            let (mut now, mut passed) = (0, 0);
            for step in &steps {
                now += step;
                passed += u64::from(limit.allow(now));
            }
            prop_assert!(passed <= u64::from(burst) + now * u64::from(rate) / TOKEN);
            prop_assert_eq!(passed + limit.refused(), steps.len() as u64);
        }

        #[test]
        fn any_numbers_will_do(rate: u32, burst: u32, times: [u64; 8]) {
            let mut limit = RateLimit::new(rate, burst);
            for now in times {
                limit.allow(now);
            }
        }
    }
}
