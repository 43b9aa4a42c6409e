//! Is this packet in its place in its flow?
//!
//! | sequence against the next expected | verdict      | why                                            |
//! |------------------------------------|--------------|------------------------------------------------|
//! | the expected one                   | in order     |                                                |
//! | above                              | in order     | those between were lost, or are late           |
//! | below, not seen before             | reordered    | a later one overtook it (RFC 4737 §3.3)        |
//! | below, seen before                 | duplicated   | RFC 5560; a second copy is not late            |
//! | below by more than 64              | reordered    | what was seen so long ago is not remembered,   |
//! |                                    |              | and a late packet must never pass for a copy   |
//! | below, at another sink             | reordered    | likewise: `seen` is its sink's own             |
//!
//! # Several sinks
//!
//! Each worker has a sink, and a flow may move from one worker to another. The sinks write no line in
//! common: each keeps its own books, and reads the others'.
//!
//! | table            | written by                    | read by                                         |
//! |------------------|-------------------------------|-------------------------------------------------|
//! | `claims[flow]`   | its sink, when the flow moves | every sink, for every packet                    |
//! | `expected[flow]` | its sink, for every packet    | a sink that takes the flow over                 |
//! | `seen[flow]`     | its sink, for every packet    | its sink                                        |
//!
//! A claim is the sequence number (plus one) with which a sink took the flow over. Sequence numbers grow, so the
//! highest claim is the last, and its sink has the flow. A sink that sees a packet of another sink's flow takes the
//! flow over if the packet is newer than all that any sink has seen; if not, the packet was overtaken on the way here.
//! So a hand-off that lets the new worker transmit before the old one has finished is found out, also when each worker
//! for itself keeps the order. If old and new transmit at one moment, the packets have no order, and either verdict may
//! result.
//!
//! This leans on what the hand-off promises: the old worker's last transmit happens before the new
//! one's first, so the new sink's Acquire loads see all that the old sink stored.

use manylane_sync::words::{Words, WordsMut};

/// One sink's books of one stream.
pub(super) struct Order {
    claims: WordsMut<u64>,
    expected: WordsMut<u64>,
    /// The packets before the expected one that were seen: bit 0 for the last before it.
    seen: Box<[u64]>,
    others: Vec<Others>,
}

/// Another sink's tables.
struct Others {
    claims: Words<u64>,
    expected: Words<u64>,
}

/// Where a packet stands in its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// After all before it, with `missing` absent in between.
    InOrder { skipped: u64 },
    /// After one that was sent later.
    Reordered,
    /// A second time.
    Duplicated,
}

impl Order {
    /// The books of one stream for each of `sinks` sinks.
    pub(super) fn books(sinks: usize, flows: usize) -> Vec<Order> {
        let tables: Vec<_> = (0..sinks)
            .map(|_| (WordsMut::<u64>::zeroed(flows), WordsMut::<u64>::zeroed(flows)))
            .collect();
        let readers: Vec<_> =
            tables.iter().map(|(claims, expected)| (claims.reader(), expected.reader())).collect();
        let others = |sink: usize| {
            let others = readers.iter().enumerate().filter(move |(other, _)| *other != sink);
            others.map(|(_, (claims, expected))| Others {
                claims: claims.clone(),
                expected: expected.clone(),
            })
        };
        let books = tables.into_iter().enumerate().map(|(sink, (claims, expected))| Order {
            claims,
            expected,
            seen: vec![0; flows].into(),
            others: others(sink).collect(),
        });
        books.collect()
    }

    /// The number of flows with books.
    pub(super) fn flows(&self) -> usize {
        self.seen.len()
    }

    /// Where this packet stands. `flow` is below [`Order::flows`].
    #[inline]
    pub(super) fn place(&mut self, flow: usize, sequence: u64) -> Place {
        let claim = self.claims.load(flow);
        if claim == 0 || self.others.iter().any(|other| other.claims.load(flow) > claim) {
            return self.take_over(flow, sequence);
        }
        let expected = self.expected.load(flow);
        let seen = &mut self.seen[flow];
        if let Some(skipped) = sequence.checked_sub(expected) {
            let shift = u32::try_from(skipped.saturating_add(1)).unwrap_or(u32::MAX);
            *seen = seen.checked_shl(shift).unwrap_or(0) | 1;
            self.expected.publish(flow, sequence.saturating_add(1));
            return Place::InOrder { skipped };
        }
        let behind = u32::try_from(expected - 1 - sequence).unwrap_or(u32::MAX);
        let bit = 1u64.checked_shl(behind).unwrap_or(0);
        if *seen & bit != 0 {
            return Place::Duplicated;
        }
        *seen |= bit;
        Place::Reordered
    }

    /// The flow was another sink's, or had none.
    #[cold]
    fn take_over(&mut self, flow: usize, sequence: u64) -> Place {
        let others = self.others.iter().map(|other| other.expected.load(flow));
        let expected = others.fold(self.expected.load(flow), u64::max);
        let Some(skipped) = sequence.checked_sub(expected) else { return Place::Reordered };
        self.seen[flow] = 1;
        self.expected.publish(flow, sequence.saturating_add(1));
        self.claims.publish(flow, sequence.saturating_add(1));
        Place::InOrder { skipped }
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use super::Place::{Duplicated, InOrder, Reordered};
    use super::*;

    const NEXT: Place = InOrder { skipped: 0 };

    #[test]
    fn gaps_late_ones_and_copies_are_told_apart() {
        let mut order = Order::books(1, 2).remove(0);
        assert_eq!(places(&mut order, 0, &[0, 1, 2]), [NEXT, NEXT, NEXT]);
        assert_eq!(
            places(&mut order, 0, &[5, 3, 4]),
            [InOrder { skipped: 2 }, Reordered, Reordered]
        );
        assert_eq!(
            places(&mut order, 0, &[3, 5, 0, 6]),
            [Duplicated, Duplicated, Duplicated, NEXT]
        );
        assert_eq!(
            places(&mut order, 1, &[1, 0, 0]),
            [InOrder { skipped: 1 }, Reordered, Duplicated]
        );
    }

    #[test]
    fn what_came_too_long_ago_counts_as_late() {
        let mut order = Order::books(1, 1).remove(0);
        assert_eq!(places(&mut order, 0, &[0, 63, 0]), [NEXT, InOrder { skipped: 62 }, Duplicated]);
        assert_eq!(
            places(&mut order, 0, &[64, 0, 1000, 64]),
            [NEXT, Reordered, InOrder { skipped: 935 }, Reordered]
        );
        let last = InOrder { skipped: u64::MAX - 1001 };
        assert_eq!(places(&mut order, 0, &[u64::MAX, 1001]), [last, Reordered]);
    }

    /// Each sink alone would find nothing: 0 to 4 and 7 at the first, 5, 6, 8 at the second.
    #[test]
    fn a_flow_may_move_but_not_overtake_itself() {
        let mut sinks = Order::books(3, 1);
        assert_eq!(places(&mut sinks[0], 0, &[0, 1, 2, 3]), [NEXT; 4]);
        assert_eq!(places(&mut sinks[1], 0, &[4, 5, 6]), [NEXT; 3]);
        assert_eq!(places(&mut sinks[0], 0, &[7, 8]), [NEXT; 2]);
        assert_eq!(places(&mut sinks[2], 0, &[11, 12]), [InOrder { skipped: 2 }, NEXT]);

        assert_eq!(places(&mut sinks[0], 0, &[9, 10]), [Reordered; 2]);
        assert_eq!(places(&mut sinks[1], 0, &[7]), [Reordered]);
        assert_eq!(places(&mut sinks[2], 0, &[13]), [NEXT]);
    }

    fn places(order: &mut Order, flow: usize, sequences: &[u64]) -> Vec<Place> {
        sequences.iter().map(|&sequence| order.place(flow, sequence)).collect()
    }
}
