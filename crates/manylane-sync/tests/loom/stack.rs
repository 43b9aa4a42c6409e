//! `stack`: an index has one holder, and brings what its last holder wrote.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use manylane_sync::stack::IndexStack;

use super::{Seen, Watched, explore};

/// What the tests do with a stack: the crate's own, or a twin of it.
trait Stack: Send + Sync + 'static {
    fn push_all(&self, indices: &[u32]);
    fn pop_into(&self, indices: &mut [u32]) -> usize;

    fn push(&self, index: u32) {
        self.push_all(&[index]);
    }

    fn pop(&self) -> Option<u32> {
        let mut index = [0];
        (self.pop_into(&mut index) == 1).then_some(index[0])
    }
}

impl Stack for IndexStack {
    fn push_all(&self, indices: &[u32]) {
        IndexStack::push_all(self, indices);
    }

    fn pop_into(&self, indices: &mut [u32]) -> usize {
        IndexStack::pop_into(self, indices)
    }
}

/// One thread takes two and gives the first back, the other takes two: the ABA pattern.
#[test]
fn a_slot_is_handed_out_once() {
    static BACK: Seen = Seen::new("an index went away and came back");
    explore("a_slot_is_handed_out_once", None, || hand_out(IndexStack::new(2), &BACK));
    BACK.assert();
}

/// Two threads write into their slots and put them on the stack; a thread that takes one reads it.
#[test]
fn what_a_slot_held_is_seen_by_who_takes_it() {
    static BOTH: Seen = Seen::new("one thread took both slots while the others ran");
    explore("what_a_slot_held_is_seen_by_who_takes_it", Some(3), || {
        pass_on(IndexStack::new(2), &BOTH);
    });
    BOTH.assert();
}

/// The frame depot's protocol: magazines in slots, a stack of the full ones and one of the empty. Two
/// threads take a magazine out and bring it back; it changes slots, and is never in two hands.
#[test]
fn a_magazine_goes_round_whole() {
    static BOTH: Seen = Seen::new("both threads had the magazine, one after the other");
    explore("a_magazine_goes_round_whole", None, || {
        go_round(IndexStack::new(2), IndexStack::new(2), &BOTH);
    });
    BOTH.assert();
}

/// One thread takes two by one exchange and gives the first back, the other takes two alike.
#[test]
fn several_slots_are_handed_out_once() {
    static BACK: Seen = Seen::new("an index went away and came back");
    static PART: Seen = Seen::new("one thread took one of the two");
    explore("several_slots_are_handed_out_once", None, || {
        hand_out_several(IndexStack::new(2), &BACK, &PART);
    });
    BACK.assert();
    PART.assert();
}

/// Two threads write into two slots each and put them on the stack together; a thread that takes some reads them.
#[test]
fn what_several_slots_held_is_seen_by_who_takes_them() {
    static MIXED: Seen = Seen::new("one exchange took slots of both threads");
    explore("what_several_slots_held_is_seen_by_who_takes_them", Some(3), || {
        pass_several_on(IndexStack::new(4), &MIXED);
    });
    MIXED.assert();
}

#[test]
fn the_twin_of_the_stack_passes() {
    static UNUSED: Seen = Seen::new("");
    explore("stack twin, handed out once", None, || {
        hand_out(Twin::new(1, Ordering::Release), &UNUSED)
    });
    explore("stack twin, seen", Some(2), || pass_on(Twin::new(1, Ordering::Release), &UNUSED));
    explore("stack twin, several, handed out once", None, || {
        hand_out_several(Twin::new(1, Ordering::Release), &UNUSED, &UNUSED);
    });
    explore("stack twin, several, seen", Some(2), || {
        pass_several_on(Twin::new(1, Ordering::Release), &UNUSED);
    });
}

/// Without the tag, a head that went away and came back is taken for the old one.
#[test]
#[should_panic(expected = "handed out twice")]
fn mutant_a_stack_without_its_tag_hands_a_slot_out_twice() {
    static UNUSED: Seen = Seen::new("");
    explore("mutant: no tag", None, || hand_out(Twin::new(0, Ordering::Release), &UNUSED));
}

/// What lies under an unchanged top may have changed.
#[test]
#[should_panic(expected = "handed out twice")]
fn mutant_a_stack_without_its_tag_hands_several_out_twice() {
    static UNUSED: Seen = Seen::new("");
    explore("mutant: no tag, several", None, || {
        hand_out_several(Twin::new(0, Ordering::Release), &UNUSED, &UNUSED);
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn mutant_a_relaxed_push_does_not_bring_several_slots() {
    static UNUSED: Seen = Seen::new("");
    explore("mutant: relaxed push of several", Some(3), || {
        pass_several_on(Twin::new(1, Ordering::Relaxed), &UNUSED);
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn mutant_a_relaxed_push_does_not_bring_the_slot() {
    static UNUSED: Seen = Seen::new("");
    explore("mutant: relaxed push", None, || pass_on(Twin::new(1, Ordering::Relaxed), &UNUSED));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn mutant_a_relaxed_push_lets_a_magazine_be_in_two_hands() {
    static UNUSED: Seen = Seen::new("");
    explore("mutant: relaxed push in the depot", Some(3), || {
        go_round(Twin::new(1, Ordering::Relaxed), Twin::new(1, Ordering::Relaxed), &UNUSED);
    });
}

fn hand_out(stack: impl Stack, back: &'static Seen) {
    let stack = Arc::new(stack);
    stack.push(1);
    stack.push(0);
    let shuffler = {
        let stack = stack.clone();
        thread::spawn(move || {
            let (first, second) = (stack.pop(), stack.pop());
            if let Some(first) = first {
                stack.push(first);
            }
            (first, second)
        })
    };
    let taker = {
        let stack = stack.clone();
        thread::spawn(move || (stack.pop(), stack.pop()))
    };
    let (first, second) = shuffler.join().expect("the shuffler does not panic");
    let (third, fourth) = taker.join().expect("the taker does not panic");
    if first.is_some() && second.is_some() && third == first {
        back.note();
    }
    let held = [second, third, fourth, stack.pop(), stack.pop()];
    let mut held: Vec<u32> = held.into_iter().flatten().collect();
    held.sort_unstable();
    assert!(held.windows(2).all(|pair| pair[0] != pair[1]), "handed out twice: {held:?}");
    assert_eq!(held, [0, 1], "an index was lost");
}

fn pass_on(stack: impl Stack, both: &'static Seen) {
    let stack = Arc::new(stack);
    let slots = Arc::new([Watched::new(0), Watched::new(0)]);
    let writers = [0, 1].map(|index: u32| {
        let (stack, slots) = (stack.clone(), slots.clone());
        thread::spawn(move || {
            slots[index as usize].write(1);
            stack.push(index);
            // The first also takes one, perhaps the other's: the same rule for a taker that writes.
            if index == 0
                && let Some(index) = stack.pop()
            {
                slots[index as usize].write(slots[index as usize].read() + 1);
                stack.push(index);
            }
        })
    });
    // Spawned last, after the writers: limit 5 in `tests/loom.rs`.
    let taker = thread::spawn(move || {
        let take = || stack.pop().map(|index| (index, slots[index as usize].read()));
        let taken = [take(), take()];
        if taken.iter().all(Option::is_some) {
            both.note();
        }
        for (index, value) in taken.into_iter().flatten() {
            assert!((1..=2).contains(&value), "slot {index} holds {value}");
        }
    });
    for thread in writers.into_iter().chain([taker]) {
        thread.join().expect("no thread panics");
    }
}

fn go_round<S: Stack>(full: S, empty: S, both: &'static Seen) {
    const MAGAZINE: u32 = 7;
    let depot = Arc::new((full, empty, [Watched::new(MAGAZINE), Watched::new(0)]));
    depot.0.push(0);
    depot.1.push(1);
    let worker = || {
        let depot = depot.clone();
        thread::spawn(move || {
            let (full, empty, slots) = &*depot;
            let Some(slot) = full.pop() else { return false };
            let magazine = slots[slot as usize].read();
            slots[slot as usize].write(0);
            empty.push(slot);
            assert_eq!(magazine, MAGAZINE, "a full slot was empty");
            let slot = empty.pop().expect("a slot for every magazine");
            assert_eq!(slots[slot as usize].read(), 0, "an empty slot was full");
            slots[slot as usize].write(magazine);
            full.push(slot);
            true
        })
    };
    let threads = [worker(), worker()];
    let had = threads.map(|thread| thread.join().expect("no thread panics"));
    if had == [true, true] {
        both.note();
    }
    let (full, empty, slots) = &*depot;
    let (slot, other) =
        (full.pop().expect("it is back"), empty.pop().expect("and a slot is empty"));
    assert_eq!((slots[slot as usize].read(), slots[other as usize].read()), (MAGAZINE, 0));
    assert_eq!((full.pop(), empty.pop()), (None, None));
}

fn hand_out_several<S: Stack>(stack: S, back: &'static Seen, part: &'static Seen) {
    let stack = Arc::new(stack);
    stack.push_all(&[0, 1]);
    let take = |stack: &S| {
        let mut held = [0; 2];
        let popped = stack.pop_into(&mut held);
        held[..popped].to_vec()
    };
    let shuffler = {
        let stack = stack.clone();
        thread::spawn(move || {
            let mut held = take(&stack);
            let first = (!held.is_empty()).then(|| held.remove(0));
            stack.push_all(first.as_slice());
            (first, held)
        })
    };
    let taker = {
        let stack = stack.clone();
        thread::spawn(move || [take(&stack), take(&stack)])
    };
    let (first, kept) = shuffler.join().expect("the shuffler does not panic");
    let taken = taker.join().expect("the taker does not panic");
    if first.is_some() && !kept.is_empty() && taken.iter().any(|taken| taken.contains(&0)) {
        back.note();
    }
    if taken[0].len() == 1 {
        part.note();
    }
    let mut held = [kept, taken.concat(), take(&stack)].concat();
    held.sort_unstable();
    assert_eq!(held, [0, 1], "an index was lost or handed out twice");
}

fn pass_several_on(stack: impl Stack, mixed: &'static Seen) {
    let stack = Arc::new(stack);
    let slots = Arc::new([0; 4].map(Watched::new));
    let writers = [[0, 1], [2, 3]].map(|own: [u32; 2]| {
        let (stack, slots) = (stack.clone(), slots.clone());
        thread::spawn(move || {
            own.iter().for_each(|&index| slots[index as usize].write(1));
            stack.push_all(&own);
        })
    });
    // Spawned last, after the writers: limit 5 in `tests/loom.rs`.
    let taker = thread::spawn(move || {
        let mut held = [0; 3];
        let popped = stack.pop_into(&mut held);
        if popped == 3 {
            mixed.note();
        }
        for &index in &held[..popped] {
            assert_eq!(slots[index as usize].read(), 1, "slot {index}");
        }
    });
    for thread in writers.into_iter().chain([taker]) {
        thread.join().expect("no thread panics");
    }
}

/// `IndexStack` with what keeps it right as parameters.
struct Twin {
    /// Tag in the upper half, index plus one in the lower; a narrower word than the crate's.
    head: AtomicU32,
    next: [AtomicU32; 4],
    /// What a push adds to the tag.
    step: u32,
    push: Ordering,
}

impl Twin {
    fn new(step: u32, push: Ordering) -> Twin {
        let next = [0; 4].map(AtomicU32::new);
        Twin { head: AtomicU32::new(0), next, step, push }
    }
}

impl Stack for Twin {
    fn push_all(&self, indices: &[u32]) {
        let (Some(first), Some(&last)) = (indices.first(), indices.last()) else { return };
        for pair in indices.windows(2) {
            self.next[pair[0] as usize].store(pair[1] + 1, Ordering::Relaxed);
        }
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            self.next[last as usize].store(head & 0xffff, Ordering::Relaxed);
            let new = ((head >> 16) + self.step) << 16 | (first + 1);
            match self.head.compare_exchange_weak(head, new, self.push, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
    }

    fn pop_into(&self, indices: &mut [u32]) -> usize {
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let mut top = head & 0xffff;
            let mut popped = 0;
            for place in &mut *indices {
                let Some(index) = top.checked_sub(1) else { break };
                *place = index;
                popped += 1;
                top = self.next[index as usize].load(Ordering::Relaxed);
            }
            if popped == 0 {
                return 0;
            }
            let new = head & 0xffff_0000 | top;
            match self.head.compare_exchange_weak(head, new, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return popped,
                Err(now) => head = now,
            }
        }
    }
}
