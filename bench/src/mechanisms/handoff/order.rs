//! Is a packet in its place? RFC 4737, over what leaves by one port.
//!
//! A packet says in which place its generator made it, counted over all flows, and in which bucket its flow
//! is. The packets of a bucket are checked as one stream: what is reordered in a flow is reordered in its
//! bucket, and the flows of a bucket come closer together than each one's own packets. So this finds all that
//! a check of each flow would find, and more.
//!
//! | numbers                  | writer                                    | readers                       |
//! |--------------------------|-------------------------------------------|-------------------------------|
//! | `claims`, by bucket      | its worker, when the bucket moves to it   | every worker, for each packet |
//! | `last`, by bucket        | its worker, for each packet               | a worker that the bucket moves to |
//! | `past`: the last packets | its worker                                | its worker, when one is late  |
//!
//! As in `generate/order.rs` of manylane-net, which says why the last claim has the highest number, and what this leans
//! on.

use manylane_sync::words::{Words, WordsMut};

pub const BUCKETS: usize = 256;

/// Packets that are looked back at when one is late: more than all rings between the workers hold.
const PAST: usize = 8192;

/// One worker's books of what leaves by one port.
pub struct Order {
    claims: WordsMut<u64>,
    last: WordsMut<u64>,
    others: Vec<(Words<u64>, Words<u64>)>,
    past: Box<[(u64, u8); PAST]>,
    next: usize,
}

/// The verdict on a packet that is not simply the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The packet is where it should be, and its bucket was another worker's.
    Moved,
    /// Later ones came before it: `n` of them directly (RFC 4737 §5.2, n-reordering), and the first of them
    /// `extent` packets ago (§4.2.2). At least 1 each, also where another worker had the later one.
    Reordered { n: u64, extent: u64 },
    /// The packet was received before.
    Duplicated,
}

impl Order {
    /// The books of one port for each of `workers`.
    pub fn books(workers: usize) -> Vec<Order> {
        let words = || WordsMut::<u64>::zeroed(BUCKETS);
        let tables: Vec<_> = (0..workers).map(|_| (words(), words())).collect();
        let readers: Vec<_> =
            tables.iter().map(|(claims, last)| (claims.reader(), last.reader())).collect();
        let book = |(own, (claims, last))| {
            let others = readers.iter().enumerate().filter(|&(other, _)| other != own);
            let others = others.map(|(_, readers)| readers.clone()).collect();
            let past = vec![(0, 0); PAST].try_into().expect("it has that length");
            Order { claims, last, others, past, next: 0 }
        };
        tables.into_iter().enumerate().map(book).collect()
    }

    /// Takes down the packet made in this place, from 1, of this bucket. None: it is where it should be, as the
    /// last one was.
    #[inline(always)]
    pub fn see(&mut self, place: u64, bucket: u8) -> Option<Found> {
        let stream = usize::from(bucket);
        let claim = self.claims.load(stream);
        let taken = |(claims, _): &(Words<u64>, _)| claims.load(stream) > claim;
        let found = if claim == 0 || self.others.iter().any(taken) {
            self.take_over(place, bucket)
        } else if place > self.last.load(stream) {
            self.last.publish(stream, place);
            None
        } else {
            Some(self.late(place, bucket))
        };
        self.past[self.next] = (place, bucket);
        self.next = (self.next + 1) % PAST;
        found
    }

    /// The bucket was another worker's, or no worker's.
    #[cold]
    fn take_over(&mut self, place: u64, bucket: u8) -> Option<Found> {
        let stream = usize::from(bucket);
        let others = self.others.iter().map(|(_, last)| last.load(stream));
        let last = others.fold(self.last.load(stream), u64::max);
        if last >= place {
            return Some(self.late(place, bucket));
        }
        self.last.publish(stream, place);
        self.claims.publish(stream, place);
        (last > 0).then_some(Found::Moved)
    }

    #[cold]
    fn late(&self, place: u64, bucket: u8) -> Found {
        let (newer, older) = self.past.split_at(self.next);
        let past = newer.iter().rev().chain(older.iter().rev());
        let stream = past.filter(|&&(other, its)| its == bucket && other > 0);
        let (mut n, mut extent, mut all) = (0, 0, true);
        for (before, &(other, _)) in (1..).zip(stream) {
            if other == place {
                return Found::Duplicated;
            }
            all &= other > place;
            n += u64::from(all);
            extent = if other > place { before } else { extent };
        }
        Found::Reordered { n: n.max(1), extent: extent.max(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_ones_and_copies_are_told_apart_bucket_by_bucket() {
        let mut order = Order::books(1).remove(0);
        let mut see = |places: &[u64]| -> Vec<_> {
            places.iter().map(|&place| order.see(place, (place % 2) as u8)).collect()
        };
        assert_eq!(see(&[1, 4, 3, 6, 5, 7, 10]), [None; 7], "a bucket may pass another");
        assert_eq!(see(&[8, 8]), [reordered(1, 1), Some(Found::Duplicated)]);
        assert_eq!(see(&[14, 16, 12]), [None, None, reordered(2, 2)]);
        assert_eq!(see(&[13, 11, 9]), [None, reordered(1, 1), reordered(2, 2)]);
    }

    /// Each worker alone would find nothing.
    #[test]
    fn a_bucket_may_move_but_not_overtake_itself() {
        let mut books = Order::books(2);
        assert_eq!([1, 2, 3].map(|place| books[0].see(place, 7)), [None; 3]);
        assert_eq!([4, 5].map(|place| books[1].see(place, 7)), [Some(Found::Moved), None]);
        assert_eq!([6, 9].map(|place| books[0].see(place, 7)), [Some(Found::Moved), None]);
        assert_eq!(books[1].see(8, 7), reordered(1, 1));
        assert_eq!(books[1].see(10, 7), Some(Found::Moved));
    }

    fn reordered(n: u64, extent: u64) -> Option<Found> {
        Some(Found::Reordered { n, extent })
    }
}
