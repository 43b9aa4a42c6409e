//! Whether a port receives packets whose checksums are still to be filled in, so that a driver is no place to forward
//! them.
//!
//! The program in the driver leaves such packets to the one at ingress (`programs/partial.h`), so each of them arrives
//! as it should; a port that has many of them gains nothing in the driver, and its operator is to know. The count alone
//! says little: one complete checksum in 65,535 looks like that, which is 150 packets each second at 10 million. So the
//! *share* decides, among the packets that the driver would have taken:
//!
//! | Since the last mark                                  | Then                                                  |
//! |------------------------------------------------------|-------------------------------------------------------|
//! | [`MANY`] of them, and one packet in [`SHARE`] or more | received packets leave the driver's and workers' tier |
//! | fewer, and [`MARK`] packets or more                  | a new mark: what was long ago does not count           |
//!
//! By chance that share is 8192 times too small, at any rate and for any time: of 512 packets, 64 would have to have such
//! a checksum. A sender that repeats one packet, whose checksum happens to be so (one in 65,535 of such senders), can
//! reach the share, and so can a sender that wants to: then the port's packets are forwarded at ingress.
//!
//! Forgiven by a message about the link, and by the operator's word.

use crate::programs::DriverRow;

/// What is known of the checksums of one port's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Checksums {
    /// Partial ones, and all candidates for the driver, at the last mark.
    mark: (u64, u64),
    found: Option<Found>,
}

/// Too many of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Packets with such a checksum.
    pub partial: u64,
    /// Packets that they were among.
    pub candidates: u64,
}

impl Checksums {
    /// Looks at a port's counters, once in a while. True when too many are found now.
    pub fn look(&mut self, row: &DriverRow) -> bool {
        if self.found.is_some() {
            return false;
        }
        let now = (row.partial, row.candidates());
        let [partial, candidates] =
            [(now.0, self.mark.0), (now.1, self.mark.1)].map(|(now, then)| now.wrapping_sub(then));
        if partial >= MANY && partial.saturating_mul(SHARE) >= candidates {
            self.found = Some(Found { partial, candidates });
            return true;
        }
        if candidates >= MARK {
            self.mark = now;
        }
        false
    }

    /// The packets for which received ones have left the tier.
    pub fn found(&self) -> Option<Found> {
        self.found
    }

    /// Begins anew. True when the port may enter the tier again by that.
    pub fn forgive(&mut self, row: &DriverRow) -> bool {
        self.mark = (row.partial, row.candidates());
        self.found.take().is_some()
    }
}

/// Fewer packets with such a checksum change nothing.
const MANY: u64 = 64;
/// One packet in this number.
const SHARE: u64 = 8;
/// Packets from one mark to the next, at least.
const MARK: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets that the driver would have taken, and the part of them with such a checksum.
    fn row(candidates: u64, partial: u64) -> DriverRow {
        DriverRow { packets_in: candidates - partial, partial, ..DriverRow::default() }
    }

    #[test]
    fn a_host_that_fills_in_no_checksum_is_found_after_some_packets() {
        let mut checksums = Checksums::default();
        assert!(!checksums.look(&row(63, 63)));
        assert!(checksums.look(&row(70, 64)));
        assert_eq!(checksums.found(), Some(Found { partial: 64, candidates: 70 }));
        assert!(!checksums.look(&row(80, 74)), "it is known");
        // Behind a long time of others.
        let mut checksums = Checksums::default();
        assert!(!checksums.look(&row(9_000_000, 140)));
        assert!(checksums.look(&row(9_000_100, 240)));
    }

    /// At 10 million packets a second, for a day, and with a rate that is ten times that of chance.
    #[test]
    fn chance_never_takes_a_port_out_of_the_tier() {
        for (per_look, chance) in [(10_000_000, 65_535), (1_000, 65_535), (10_000_000, 6_553)] {
            let (mut checksums, mut candidates, mut partial) = (Checksums::default(), 0, 0);
            for _ in 0..86_400 {
                candidates += per_look;
                partial = partial.max(candidates / chance);
                assert!(!checksums.look(&row(candidates, partial)), "{candidates} {partial}");
            }
            assert!(partial > 64, "chance has made more than enough of them: {partial}");
        }
    }

    #[test]
    fn a_port_is_forgiven_and_found_again() {
        let mut checksums = Checksums::default();
        assert!(!checksums.forgive(&row(0, 0)));
        assert!(checksums.look(&row(100, 100)));
        assert!(checksums.forgive(&row(200, 120)));
        assert_eq!(checksums.found(), None);
        assert!(!checksums.look(&row(260, 180)), "60 since then");
        assert!(checksums.look(&row(300, 220)));
    }
}
