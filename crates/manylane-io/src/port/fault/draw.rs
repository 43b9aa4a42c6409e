//! Random draws: the faults that each packet meets.

use super::FaultConfig;

/// A sequence of random draws.
///
/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): the same sequence for the same seed and line.
pub(super) struct Draws(u64);

/// The faults of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PacketFaults {
    pub drop: bool,
    pub duplicate: bool,
    /// A random number that selects the bit.
    pub corrupt: Option<u64>,
    pub delay_ns: Option<u64>,
    pub reorder: bool,
}

impl Draws {
    /// The draws of `line`, one of several that share a seed.
    pub(super) fn new(seed: u64, line: u64) -> Draws {
        // Mixed, so that neighbouring lines are unrelated.
        Draws(seed ^ Draws(line).next())
    }

    /// Draws the next packet's faults: always seven draws.
    pub(super) fn next_faults(&mut self, config: &FaultConfig) -> PacketFaults {
        let [drop, duplicate, corrupt, delay, reorder] =
            [config.drop, config.duplicate, config.corrupt, config.delay, config.reorder]
                .map(|likely| self.chance(likely));
        let bit = self.next();
        let (least_ns, most_ns) = config.delay_ns.clone().into_inner();
        let delay_ns = least_ns + below(self.next(), (most_ns - least_ns).saturating_add(1));
        PacketFaults {
            drop,
            duplicate,
            corrupt: corrupt.then_some(bit),
            delay_ns: delay.then_some(delay_ns),
            reorder,
        }
    }

    /// True with probability `likely`: always for 1, never for 0.
    fn chance(&mut self, likely: f64) -> bool {
        // The upper 53 bits, as a fraction below 1.
        ((self.next() >> 11) as f64 / (1u64 << 53) as f64) < likely
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Scales `number`, of the whole range, to the range below `bound`.
pub(super) fn below(number: u64, bound: u64) -> u64 {
    ((u128::from(number) * u128::from(bound)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference implementation's first numbers for seed 1234567.
    #[test]
    fn the_generator_is_splitmix64() {
        let mut draws = Draws(1_234_567);
        let numbers: [u64; 3] = std::array::from_fn(|_| draws.next());
        let expected =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(numbers, expected);
    }

    #[test]
    fn probabilities_are_kept_and_the_ends_are_certain() {
        let config = FaultConfig { drop: 0.25, duplicate: 1.0, ..FaultConfig::default() };
        let mut draws = Draws::new(1, 0);
        let all = Vec::from_iter((0..100_000).map(|_| draws.next_faults(&config)));
        let dropped = all.iter().filter(|faults| faults.drop).count();
        // Four standard deviations of a fair coin of 1 in 4 are 548.
        assert!((24_452..=25_548).contains(&dropped), "{dropped}");
        assert!(
            all.iter()
                .all(|faults| faults.duplicate && !faults.reorder && faults.corrupt.is_none())
        );
    }

    /// An additional fault leaves the others unchanged.
    #[test]
    fn one_fault_does_not_move_another() {
        let alone = FaultConfig { drop: 0.1, ..FaultConfig::default() };
        let with = FaultConfig { delay: 0.5, corrupt: 0.3, delay_ns: 5..=99, ..alone.clone() };
        let dropped = |config: &FaultConfig| {
            let mut draws = Draws::new(9, 4);
            Vec::from_iter((0..1000).map(|_| draws.next_faults(config).drop))
        };
        assert_eq!(dropped(&alone), dropped(&with));
    }

    #[test]
    fn delays_are_anywhere_in_their_range() {
        let config = FaultConfig { delay: 1.0, delay_ns: 10..=13, ..FaultConfig::default() };
        let mut draws = Draws::new(2, 1);
        let mut seen = [0; 4];
        for _ in 0..1000 {
            let delay_ns = draws.next_faults(&config).delay_ns.expect("each is delayed");
            seen[delay_ns as usize - 10] += 1;
        }
        assert!(seen.iter().all(|&count| count > 180), "{seen:?}");
        let config = FaultConfig { delay: 1.0, delay_ns: 0..=u64::MAX, ..config };
        assert!(draws.next_faults(&config).delay_ns.is_some());
    }

    #[test]
    fn lines_of_one_seed_draw_independently() {
        let config = FaultConfig { drop: 0.5, ..FaultConfig::default() };
        let dropped = |line| {
            let mut draws = Draws::new(7, line);
            Vec::from_iter((0..64).map(|_| draws.next_faults(&config).drop))
        };
        assert_ne!(dropped(0), dropped(1));
        assert_eq!(dropped(1), dropped(1));
    }
}
