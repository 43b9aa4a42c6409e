//! The slots of a table that workers read, and perhaps the kernel's programs.
//!
//! | state     | how it gets there | how it leaves                                                    |
//! |-----------|-------------------|------------------------------------------------------------------|
//! | free      | `reclaim`         | `take`                                                           |
//! | in use    | `take`            | `retire`, after it was unpublished                               |
//! | retired   | `retire`          | `reclaim` begins the grace periods of all of them, as one batch  |
//! | in flight | `reclaim`         | `reclaim`, when both grace periods of the batch are over         |
//!
//! One batch is in flight at a time; what is retired meanwhile is the next. So a slot waits two rounds
//! at most, and with 44 ms for a round and 10,000 slots a second some 900 are away. A table has that
//! many to spare, or `take` finds none: then the edit waits, and no slot is used early.
//!
//! # Guarantee
//!
//! - **F** A slot that `take` returns is one that no worker and no program of the kernel can still be
//!   looking at, if it had been unpublished before it was retired.
//!
//! The two grace periods run side by side. Each promises, of its own readers: a reader that might have found the slot
//! before the period began has finished since. Both begin after the slot was unpublished, so a later reader does not
//! find it. When both are over, so is the sum of the readers; neither promise leans on the other's. A promise would, if one
//! side passed an index on to the other, and then one after the other would not do either: so a program passes a frame
//! to a worker, never what it looked up for it.

use std::collections::VecDeque;

use super::{Domain, Round, Rounds, Ticket};

/// Which slots of a table are free. Control's alone: what is in a slot is elsewhere.
pub struct Slots {
    free: Vec<u32>,
    in_use: Box<[bool]>,
    /// Oldest first; those of the batch in flight before all others.
    retired: VecDeque<u32>,
    batch: Option<Batch>,
    domain: Domain,
    kernel: Option<Rounds>,
    exhausted: u64,
}

struct Batch {
    len: usize,
    workers: Ticket,
    kernel: Option<Round>,
}

/// How many slots are in each state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    /// For `take`.
    pub free: usize,
    /// Taken, and not retired.
    pub in_use: usize,
    /// Waiting for the batch in flight to be over.
    pub retired: usize,
    /// Waiting for their grace periods.
    pub in_flight: usize,
}

impl Slots {
    /// `slots` free slots, read by the workers of `domain` and, with `kernel`, by its programs.
    pub fn new(slots: u32, domain: Domain, kernel: Option<Rounds>) -> Slots {
        Slots {
            free: (0..slots).rev().collect(),
            in_use: (0..slots).map(|_| false).collect(),
            retired: VecDeque::with_capacity(slots as usize),
            batch: None,
            domain,
            kernel,
            exhausted: 0,
        }
    }

    /// A free slot. `None` when none is free: counted, and the caller keeps its edit.
    pub fn take(&mut self) -> Option<u32> {
        let slot = self.free.pop();
        match slot {
            Some(slot) => self.in_use[slot as usize] = true,
            None => self.exhausted += 1,
        }
        slot
    }

    /// Gives back a slot that no reader can find any more.
    ///
    /// # Panics
    ///
    /// When the slot is not in use: it would be taken twice.
    pub fn retire(&mut self, slot: u32) {
        let in_use = std::mem::take(&mut self.in_use[slot as usize]);
        assert!(in_use, "slot {slot} is not in use");
        self.retired.push_back(slot);
    }

    /// Frees the batch in flight if its grace periods are over, and then sends off what was retired.
    /// Returns how many slots it freed. Once for each pass of control and each completed round; the
    /// reclaim thread is rung after it.
    pub fn reclaim(&mut self) -> usize {
        let mut freed = 0;
        if let Some(batch) = &self.batch {
            if !self.is_over(batch) {
                return 0;
            }
            freed = batch.len;
            self.free.extend(self.retired.drain(..freed));
            self.batch = None;
        }
        if !self.retired.is_empty() {
            self.batch = Some(Batch {
                len: self.retired.len(),
                workers: self.domain.start(),
                kernel: self.kernel.as_ref().map(Rounds::request),
            });
        }
        freed
    }

    /// How many slots are in each state. The counts add up to all slots.
    pub fn levels(&self) -> Levels {
        let in_flight = self.batch.as_ref().map_or(0, |batch| batch.len);
        Levels {
            free: self.free.len(),
            in_use: self.in_use.len() - self.free.len() - self.retired.len(),
            retired: self.retired.len() - in_flight,
            in_flight,
        }
    }

    /// How often `take` found no slot.
    pub fn exhausted(&self) -> u64 {
        self.exhausted
    }

    fn is_over(&self, batch: &Batch) -> bool {
        let kernel = self.kernel.as_ref().zip(batch.kernel);
        self.domain.is_over(batch.workers)
            && kernel.is_none_or(|(kernel, round)| kernel.is_over(round))
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use super::super::rounds;
    use super::*;

    #[test]
    fn a_slot_is_free_again_after_both_grace_periods() {
        for kernel_first in [true, false] {
            let domain = Domain::new(1);
            let mut reader = domain.register().expect("the first fits");
            let (rounds, mut waiter) = rounds();
            let mut slots = Slots::new(1, domain, Some(rounds));
            assert_eq!((slots.take(), slots.take(), slots.exhausted()), (Some(0), None, 1));
            slots.retire(0);
            assert_eq!((slots.reclaim(), slots.levels().in_flight), (0, 1));
            for kernel in [kernel_first, !kernel_first] {
                assert_eq!((slots.reclaim(), slots.take()), (0, None));
                if kernel {
                    assert_eq!(waiter.run(|| Ok::<(), ()>(())), Ok(true));
                } else {
                    reader.quiescent();
                }
            }
            assert_eq!((slots.take(), slots.reclaim(), slots.take()), (None, 1, Some(0)));
        }
    }

    #[test]
    fn what_is_retired_during_a_round_waits_for_the_next() {
        let (rounds, mut waiter) = rounds();
        let mut slots = Slots::new(4, Domain::new(1), Some(rounds));
        assert_eq!([(); 3].map(|()| slots.take()), [Some(0), Some(1), Some(2)]);
        slots.retire(0);
        slots.reclaim();
        slots.retire(1);
        slots.retire(2);
        assert_eq!(slots.levels(), Levels { free: 1, in_use: 0, retired: 2, in_flight: 1 });
        let mut run = |slots: &mut Slots| {
            assert_eq!(waiter.run(|| Ok::<(), ()>(())), Ok(true), "one call for a batch");
            assert!(!waiter.is_asked());
            slots.reclaim()
        };
        assert_eq!([run(&mut slots), run(&mut slots)], [1, 2]);
        assert_eq!(slots.levels(), Levels { free: 4, in_use: 0, retired: 0, in_flight: 0 });
    }

    #[test]
    fn without_the_kernel_the_workers_decide() {
        let domain = Domain::new(1);
        let mut reader = domain.register().expect("the first fits");
        let mut slots = Slots::new(1, domain, None);
        let slot = slots.take().expect("there is one");
        slots.retire(slot);
        assert_eq!((slots.reclaim(), slots.reclaim()), (0, 0));
        reader.quiescent();
        assert_eq!((slots.reclaim(), slots.take()), (1, Some(slot)));
    }

    #[test]
    #[should_panic(expected = "slot 1 is not in use")]
    fn a_slot_cannot_be_retired_twice() {
        let mut slots = Slots::new(2, Domain::new(0), None);
        assert_eq!([slots.take(), slots.take()], [Some(0), Some(1)]);
        slots.retire(1);
        slots.retire(1);
    }
}
