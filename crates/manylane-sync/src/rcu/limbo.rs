//! What is unpublished but may still be read.
//!
//! Retired objects form batches, and a batch has one grace period: a ticket is a locked operation on a
//! line that every reader looks at, and each new one costs each reader a store. A batch begins
//!
//! - with the first object, when no grace period of ours is under way: an edit now and then waits for
//!   one grace period, not two;
//! - when the last one under way is over, with what was retired meanwhile;
//! - at 64 objects, or a quarter of the bound, so that a writer that never pauses keeps several under
//!   way and meets the bound only when readers are slow.
//!
//! So what is retired comes back after two turns of every reader at the latest, and two calls of
//! `reclaim`.

use std::collections::VecDeque;

use super::{Domain, Ticket};

/// A bounded queue of retired objects, each waiting for its grace period. Nothing here waits.
///
/// # Invariants
///
/// 1. `objects` is `over`, then the batches in order, then `open`; `over` + the batches' lengths +
///    `open` = `objects.len()`.
/// 2. A batch's ticket was taken after the last of its objects was retired.
pub struct Limbo<T> {
    domain: Domain,
    /// Oldest first.
    objects: VecDeque<T>,
    /// How many objects have had their grace period.
    over: usize,
    /// Grace periods under way, and the number of objects that wait for each.
    batches: VecDeque<(Ticket, usize)>,
    /// How many objects have no grace period yet.
    open: usize,
    /// The most objects of a batch.
    batch_max: usize,
    waiting_max: usize,
}

/// From here on a ticket's cost for each object is below a nanosecond.
const BATCH_MAX: usize = 64;

impl<T> Limbo<T> {
    /// An empty limbo that holds at most `waiting_max` objects.
    pub fn new(domain: Domain, waiting_max: usize) -> Limbo<T> {
        let (objects, batches) = (VecDeque::new(), VecDeque::new());
        let batch_max = (waiting_max / 4).clamp(1, BATCH_MAX);
        Limbo { domain, objects, over: 0, batches, open: 0, batch_max, waiting_max }
    }

    /// Takes in an object that no reader can find any more. Never waits: at the bound the object is
    /// handed back, and the caller queues its edit.
    #[inline]
    pub fn retire(&mut self, object: T) -> Result<(), T> {
        if self.is_full() {
            return Err(object);
        }
        self.objects.push_back(object);
        self.open += 1;
        if self.open == self.batch_max || self.batches.is_empty() {
            self.begin();
        }
        Ok(())
    }

    /// The oldest object, if its grace period is over. Call until `None`.
    #[inline]
    pub fn reclaim(&mut self) -> Option<T> {
        if self.over == 0 && !self.look() {
            return None;
        }
        self.over -= 1; // `objects` is not empty, by invariant 1.
        self.objects.pop_front()
    }

    /// How many objects wait.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Whether the next `retire` would hand its object back.
    pub fn is_full(&self) -> bool {
        self.objects.len() >= self.waiting_max
    }

    /// Begins a grace period for the open batch.
    fn begin(&mut self) {
        // After the last `retire` of the batch, which is the caller's proof that no reader finds it.
        self.batches.push_back((self.domain.start(), self.open));
        self.open = 0;
    }

    /// Moves batches on; true when something can be reclaimed.
    fn look(&mut self) -> bool {
        // One look at the readers for all batches, and one more for the open one: with every reader
        // offline its grace period is over at once.
        while !self.batches.is_empty() {
            let passed = self.domain.passed();
            while let Some((_, len)) =
                self.batches.pop_front_if(|&mut (ticket, _)| ticket <= passed)
            {
                self.over += len;
            }
            if self.open == 0 || !self.batches.is_empty() {
                break;
            }
            self.begin();
        }
        self.over > 0
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use super::*;

    #[test]
    fn objects_come_back_in_order_after_their_grace_period() {
        let domain = Domain::new(1);
        let mut reader = domain.register().expect("the first fits");
        let mut limbo = Limbo::new(domain, 2);
        assert_eq!(limbo.retire('a'), Ok(()));
        reader.quiescent();
        assert_eq!(limbo.retire('b'), Ok(()));
        assert_eq!(limbo.retire('c'), Err('c'), "the bound hands it back");
        assert_eq!((limbo.reclaim(), limbo.reclaim()), (Some('a'), None));
        reader.quiescent();
        assert_eq!((limbo.reclaim(), limbo.reclaim()), (Some('b'), None));
    }

    /// The second batch begins when the first is over, also for a caller that only reclaims.
    #[test]
    fn what_is_retired_during_a_grace_period_shares_the_next_one() {
        let domain = Domain::new(1);
        let mut reader = domain.register().expect("the first fits");
        let mut limbo = Limbo::new(domain.clone(), 100);
        (0..10).for_each(|object| limbo.retire(object).expect("there is room"));
        assert_eq!(limbo.batches.len(), 1, "0 has one of its own, the others none yet");
        reader.quiescent();
        assert_eq!((limbo.reclaim(), limbo.reclaim()), (Some(0), None));
        assert_eq!((limbo.batches.len(), limbo.open), (1, 0), "1 to 9 began when 0 was over");
        reader.quiescent();
        assert_eq!(Vec::from_iter(std::iter::from_fn(|| limbo.reclaim())), Vec::from_iter(1..10));
        assert!(limbo.is_empty());
    }

    #[test]
    fn a_full_batch_does_not_wait_for_the_one_before() {
        let domain = Domain::new(1);
        let mut reader = domain.register().expect("the first fits");
        let mut limbo = Limbo::new(domain.clone(), 1000);
        (0..1 + BATCH_MAX).for_each(|object| limbo.retire(object).expect("there is room"));
        assert_eq!((limbo.batches.len(), limbo.open), (2, 0));
        reader.quiescent();
        assert_eq!(std::iter::from_fn(|| limbo.reclaim()).count(), 1 + BATCH_MAX);
    }

    #[test]
    fn with_every_reader_offline_one_look_empties_it() {
        let domain = Domain::new(1);
        let mut reader = domain.register().expect("the first fits");
        let mut limbo = Limbo::new(domain.clone(), 100);
        (0..10).for_each(|object| limbo.retire(object).expect("there is room"));
        assert_eq!(limbo.reclaim(), None);
        reader.offline();
        assert_eq!(std::iter::from_fn(|| limbo.reclaim()).count(), 10);
        assert_eq!(limbo.retire(10), Ok(()));
        assert_eq!(limbo.reclaim(), Some(10));
    }

    /// A writer that never pauses, a reader that turns now and then: the bound holds, every object
    /// comes back once and in order.
    #[test]
    fn a_writer_that_never_pauses_stays_within_the_bound() {
        let domain = Domain::new(1);
        let mut reader = domain.register().expect("the first fits");
        let mut limbo = Limbo::new(domain.clone(), 300);
        let (mut back, mut refused) = (0, 0);
        for object in 0..100_000u32 {
            if object % 1000 == 0 {
                reader.quiescent();
            }
            while let Err(again) = limbo.retire(object) {
                assert_eq!((again, limbo.len()), (object, 300));
                refused += 1;
                reader.quiescent();
                while let Some(oldest) = limbo.reclaim() {
                    assert_eq!(oldest, back);
                    back += 1;
                }
            }
        }
        assert!(refused > 0 && back > 99_000, "{refused} refused, {back} back");
        assert!(limbo.batches.len() <= 300 / BATCH_MAX + 1);
    }
}
