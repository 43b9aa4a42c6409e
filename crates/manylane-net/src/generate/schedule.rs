//! When a feed's packets are due.
//!
//! All queues together send packet *i* of the stream at *i* seconds divided by the rate, and the
//! queues take turns: queue *q* of *n* has the packets *q*, *q + n*, *q + 2n* ... So rate and total
//! divide over the queues exactly, at any moment. Packets that a feed could not send in time stay due:
//! the rate is what is offered, not what was convenient.

const SECOND_NS: u128 = 1_000_000_000;

/// One queue's share of a stream's packets.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    /// Of the whole stream.
    packets_per_second: Option<u64>,
    /// Our queue among those that have flows, and how many these are.
    queue: u64,
    queues: u64,
    sent: u64,
    /// What is left of a bounded share.
    left: Option<u64>,
    /// When the first packet was due.
    start_ns: Option<u64>,
}

impl Schedule {
    pub(super) fn new(
        packets_per_second: Option<u64>,
        packets: Option<u64>,
        queue: u64,
        queues: u64,
    ) -> Schedule {
        let share = |packets: u64| packets / queues + u64::from(queue < packets % queues);
        let left = packets.map(share);
        Schedule { packets_per_second, queue, queues, sent: 0, left, start_ns: None }
    }

    /// How many packets to send now, at most `wanted`.
    #[inline]
    pub(super) fn due(&mut self, wanted: usize, now_ns: u64) -> usize {
        let start_ns = *self.start_ns.get_or_insert(now_ns);
        let mut due = u128::from(self.left.unwrap_or(u64::MAX));
        if let Some(rate) = self.packets_per_second {
            let elapsed = u128::from(now_ns.saturating_sub(start_ns));
            // Packets 0..=newest of the stream are due; ours are every `queues`th from `queue`.
            let newest = elapsed * u128::from(rate) / SECOND_NS;
            let ours = newest
                .checked_sub(self.queue.into())
                .map_or(0, |newest| newest / u128::from(self.queues) + 1);
            due = due.min(ours.saturating_sub(self.sent.into()));
        }
        due.min(wanted as u128) as usize // At most `wanted`.
    }

    /// Records how many were sent.
    #[inline]
    pub(super) fn sent(&mut self, packets: usize) {
        let packets = packets as u64;
        self.sent += packets;
        self.left = self.left.map(|left| left.saturating_sub(packets));
    }

    /// Whether all packets were sent.
    pub(super) fn is_over(&self) -> bool {
        self.left == Some(0)
    }

    /// Nanoseconds until the next packet is due.
    pub(super) fn wait_ns(&self, now_ns: u64) -> u64 {
        let (Some(rate), Some(start_ns)) = (self.packets_per_second, self.start_ns) else {
            return 0;
        };
        let next = u128::from(self.sent) * u128::from(self.queues) + u128::from(self.queue);
        let due_ns = u128::from(start_ns) + (next * SECOND_NS).div_ceil(rate.into());
        due_ns.saturating_sub(now_ns.into()).try_into().unwrap_or(u64::MAX)
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn without_a_rate_all_is_due_until_the_total() {
        let mut schedule = Schedule::new(None, Some(100), 0, 1);
        assert_eq!(schedule.due(64, 5), 64);
        schedule.sent(64);
        assert_eq!((schedule.due(64, 5), schedule.wait_ns(5)), (36, 0));
        schedule.sent(36);
        assert!(schedule.is_over());
        assert_eq!(schedule.due(64, 5), 0);
    }

    /// A worker that comes late finds everything that became due meanwhile.
    #[test]
    fn what_was_missed_stays_due() {
        let mut schedule = Schedule::new(Some(1000), None, 0, 1);
        assert_eq!(schedule.due(64, 7), 1);
        schedule.sent(1);
        assert_eq!((schedule.due(64, 7), schedule.wait_ns(7)), (0, 1_000_000));
        assert_eq!(schedule.due(64, 7 + 999_999), 0);
        assert_eq!(schedule.due(64, 7 + 1_000_000), 1);
        assert_eq!(schedule.due(64, 7 + 10_000_000), 10);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_queues_shares_add_up(packets: u64, queues in 1..100u64) {
            let left = (0..queues).map(|queue| Schedule::new(None, Some(packets), queue, queues).left);
            prop_assert_eq!(left.map(|left| u128::from(left.unwrap())).sum::<u128>(), packets.into());
        }

        /// All queues together have sent packet 0 at the start, and one more with each period.
        #[test]
        fn the_queues_rates_add_up(
            rate in 1..100_000_000u64, queues in 1..9u64, moments in prop::collection::vec(0..10_000_000u64, 1..20),
        ) {
            let mut schedules: Vec<_> =
                (0..queues).map(|queue| Schedule::new(Some(rate), None, queue, queues)).collect();
            schedules.iter_mut().for_each(|schedule| { schedule.due(0, 0); });
            let (mut now, mut total) = (0, 0);
            for moment in moments {
                now += moment;
                for schedule in &mut schedules {
                    let due = schedule.due(usize::MAX, now);
                    schedule.sent(due);
                    total += due as u128;
                    prop_assert_eq!(schedule.due(usize::MAX, now), 0);
                    // Exactly when it says, the next one is due, and not before.
                    let wait = schedule.wait_ns(now);
                    prop_assert!(wait > 0);
                    prop_assert_eq!(schedule.due(1, now + wait - 1), 0);
                    prop_assert_eq!(schedule.due(1, now + wait), 1);
                }
                prop_assert_eq!(total, u128::from(now) * u128::from(rate) / SECOND_NS + 1);
            }
        }
    }
}
