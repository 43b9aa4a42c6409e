use super::*;

#[test]
fn who_looks_ahead_sees_what_is_popped_next() {
    let (mut producer, mut consumer) = ring(4);
    let beyond = |consumer: &Consumer<i32>, known: usize, items_max: usize| {
        let mut seen = Vec::new();
        let there = consumer.look_ahead(known, items_max, |&item| seen.push(item));
        assert_eq!(there - known.min(there), seen.len());
        seen
    };
    let ahead = |consumer: &Consumer<i32>, items_max| beyond(consumer, 0, items_max);
    for first in [0, 3, 6] {
        assert_eq!(producer.push_all(&mut (first..first + 3).collect::<Vec<_>>().into_iter()), 3);
        producer.submit();
        assert_eq!(ahead(&consumer, 4), []);
        if first == 3 {
            consumer.look_for(1);
            assert_eq!(ahead(&consumer, 4), [3, 4, 5]);
        }
        assert_eq!(consumer.pop(), Some(first));
        assert_eq!(ahead(&consumer, 1), [first + 1]);
        assert_eq!(ahead(&consumer, 4), [first + 1, first + 2]);
        assert_eq!(beyond(&consumer, 1, 4), [first + 2]);
        assert_eq!([beyond(&consumer, 1, 1), beyond(&consumer, 3, 4)], [[], []]);
        assert_eq!(consumer.pop_up_to(4).collect::<Vec<_>>(), [first + 1, first + 2]);
        consumer.release();
    }
}

#[test]
fn nothing_is_seen_before_submit() {
    let (mut producer, mut consumer) = ring(2);
    assert_eq!(producer.push(1), Ok(()));
    assert_eq!(consumer.pop(), None);
    producer.submit();
    assert_eq!(consumer.pop(), Some(1));
}

#[test]
fn a_slot_is_free_after_release_not_after_pop() {
    let (mut producer, mut consumer) = ring(1);
    assert_eq!(producer.push('a'), Ok(()));
    assert_eq!(producer.push('b'), Err('b'));
    producer.submit();
    assert_eq!(consumer.pop(), Some('a'));
    assert_eq!(producer.push('b'), Err('b'));
    consumer.release();
    assert_eq!(producer.push('b'), Ok(()));
    assert!(!producer.is_drained());
}

/// `ExactSizeIterator` is a safe trait: what it says may be wrong, and slots must not be skipped for it.
#[test]
fn a_batch_that_says_too_much_leaves_no_hole() {
    struct Liar(std::vec::IntoIter<Option<String>>);
    impl Iterator for Liar {
        type Item = String;

        fn next(&mut self) -> Option<String> {
            self.0.next().flatten()
        }

        fn size_hint(&self) -> (usize, Option<usize>) {
            (self.0.len(), Some(self.0.len()))
        }
    }
    impl ExactSizeIterator for Liar {}

    let (mut producer, mut consumer) = ring(4);
    assert_eq!(producer.push_all(&mut vec![String::new(); 2].into_iter()), 2);
    producer.submit();
    assert_eq!(consumer.pop_up_to(2).count(), 2);
    consumer.release();
    // Two slots up to the end and two from the beginning; the iterator stops after one, and continues.
    let items = ["a", "", "b", "c"].map(|item| Some(item.to_string()).filter(|a| !a.is_empty()));
    let mut items = Liar(Vec::from(items).into_iter());
    assert_eq!(producer.push_all(&mut items), 1);
    assert_eq!(producer.push_all(&mut items), 2, "the next one first");
    producer.submit();
    assert_eq!(consumer.pop_up_to(4).collect::<Vec<_>>(), ["a", "b", "c"]);
}

#[test]
fn a_batch_goes_in_as_far_as_there_is_room() {
    let (mut producer, mut consumer) = ring(4);
    let mut items = 0..6;
    assert_eq!(producer.push_all(&mut items), 4);
    assert_eq!((items.len(), producer.push_all(&mut items)), (2, 0), "two did not fit");
    producer.submit();
    assert_eq!(consumer.pop_up_to(3).collect::<Vec<_>>(), [0, 1, 2]);
    consumer.release();
    assert_eq!(producer.push_all(&mut items), 2);
    producer.submit();
    assert_eq!(consumer.pop_up_to(8).collect::<Vec<_>>(), [3, 4, 5]);
    assert_eq!(consumer.pop_up_to(8).len(), 0);
}

/// A port's admission counts on it: a copy that shows some room does not hide that the ring has more.
#[test]
fn all_the_room_there_is_can_be_asked_for() {
    let (mut producer, mut consumer) = ring(4);
    assert_eq!(producer.push_all(&mut (0..4)), 4);
    producer.submit();
    assert_eq!(consumer.pop_up_to(1).len(), 1);
    assert_eq!(consumer.pop(), Some(0));
    consumer.release();
    assert_eq!(producer.room(4), 1);
    assert_eq!(consumer.pop_up_to(8).count(), 3);
    consumer.release();
    assert_eq!((producer.free(), producer.room(4)), (1, 4));
}

#[test]
fn the_first_items_are_out_when_their_slots_are_empty() {
    let (mut producer, mut consumer) = ring(4);
    assert_eq!(producer.push_all(&mut (0..3)), 3);
    producer.submit();
    let then = producer.pushed();
    assert_eq!(producer.push(3), Ok(()));
    for (popped, emptied) in [(2, false), (1, true)] {
        assert!(!producer.has_emptied(then));
        assert_eq!(consumer.pop_up_to(popped).count(), popped);
        consumer.release();
        assert_eq!(producer.has_emptied(then), emptied);
        assert!(!producer.has_emptied(then + 1));
    }
}

#[test]
fn what_a_batch_is_not_asked_for_stays_in_the_ring() {
    let (mut producer, mut consumer) = ring(4);
    assert_eq!(producer.push_all(&mut (0..3)), 3);
    producer.submit();
    assert_eq!(consumer.pop_up_to(3).next(), Some(0));
    assert_eq!(consumer.pop_up_to(3).collect::<Vec<_>>(), [1, 2]);
}

/// Or it would be dropped twice.
#[test]
fn what_was_in_hand_at_a_panic_has_left_the_ring() {
    let item = Arc::new(());
    let (mut producer, mut consumer) = ring(4);
    assert_eq!(producer.push_all(&mut vec![item.clone(); 4].into_iter()), 4);
    producer.submit();
    let pop = std::panic::AssertUnwindSafe(|| {
        let mut popped = 0;
        consumer.pop_up_to(4).for_each(|_| {
            popped += 1;
            assert!(popped < 3, "the third is in hand");
        });
    });
    assert!(std::panic::catch_unwind(pop).is_err());
    assert_eq!((consumer.waiting(), Arc::strong_count(&item)), (1, 2));
    drop((producer, consumer));
    assert_eq!(Arc::strong_count(&item), 1);
}

#[test]
fn what_nobody_popped_is_dropped_once() {
    let item = Arc::new(());
    let (mut producer, mut consumer) = ring(4);
    for _ in 0..3 {
        producer.push(item.clone()).expect("there is room for four");
    }
    producer.submit();
    drop(consumer.pop());
    drop(consumer);
    assert_eq!(Arc::strong_count(&item), 3);
    producer.push(item.clone()).expect("there is room for four");
    drop(producer);
    assert_eq!(Arc::strong_count(&item), 1);
}

#[test]
fn two_threads_pass_a_million_items_in_order() {
    let (mut producer, mut consumer) = ring(256);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for item in 0..1_000_000u32 {
                while producer.push(item).is_err() {
                    producer.submit();
                    std::thread::yield_now();
                }
                if item % 32 == 0 {
                    producer.submit();
                }
            }
        });
        let mut next = 0;
        while next < 1_000_000 {
            match consumer.pop() {
                Some(item) => {
                    assert_eq!(item, next);
                    next += 1;
                }
                None => {
                    consumer.release();
                    std::thread::yield_now();
                }
            }
        }
    });
}
