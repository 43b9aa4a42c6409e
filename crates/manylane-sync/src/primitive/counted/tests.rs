use super::*;
use crate::primitive::{Ordering, UnsafeCell};

/// A line of its own.
#[derive(Default)]
#[repr(align(64))]
struct Alone<T>(T);

#[test]
fn a_line_moves_when_another_wrote_it_last() {
    let (books, word) = (Books::new(), Alone(AtomicU64::new(0)));
    let read = |worker| books.act(worker, || word.0.load(Ordering::Relaxed));
    let write = |worker| books.act(worker, || word.0.store(1, Ordering::Relaxed));
    let cost = |access: &dyn Fn()| {
        books.clear();
        access();
        let Row { transfers, upgrades, first_fetches, .. } = books.total();
        (transfers, upgrades, first_fetches)
    };
    let (free, transfer, upgrade, first) = ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1));
    assert_eq!(cost(&|| _ = read(0)), first);
    assert_eq!(cost(&|| _ = read(1)), first, "nobody wrote it");
    assert_eq!(cost(&|| _ = read(0)), free);
    assert_eq!(cost(&|| write(0)), upgrade);
    assert_eq!(cost(&|| write(0)), free);
    assert_eq!(cost(&|| _ = read(1)), transfer);
    assert_eq!(cost(&|| _ = read(0)), free, "a reader leaves the writer its copy");
    assert_eq!(cost(&|| write(1)), upgrade);
    assert_eq!(cost(&|| write(0)), transfer);
    assert_eq!(cost(&|| write(2)), transfer, "also who never saw it");
}

#[test]
fn what_nobody_acts_for_is_not_entered() {
    let (books, word) = (Books::new(), AtomicU64::new(0));
    word.store(1, Ordering::Relaxed);
    books.act(0, || word.load(Ordering::Relaxed));
    word.store(2, Ordering::Relaxed);
    books.act(0, || word.load(Ordering::Relaxed));
    let expected = Row { accesses: 2, first_fetches: 1, ..Row::default() };
    assert_eq!(books.total(), expected);
}

#[test]
fn kinds_and_sites_are_told_apart() {
    let (books, word) = (Books::new(), AtomicU32::new(7));
    books.act(0, || {
        assert_eq!(word.fetch_add(1, Ordering::Relaxed), 7);
        for current in [8, 100] {
            _ = word.compare_exchange_weak(current, 9, Ordering::Relaxed, Ordering::Relaxed);
        }
    });
    let sites = books.sites();
    let [(one, add), (other, exchange)] = sites[..] else { panic!("two sites: {sites:?}") };
    assert!(one.to_string().starts_with("manylane-sync/src/primitive/counted/tests.rs:"), "{one}");
    assert_ne!(one, other);
    assert_eq!((add.accesses, add.writes, add.rmws, add.failed), (1, 1, 1, 0));
    assert_eq!((exchange.accesses, exchange.writes, exchange.rmws, exchange.failed), (2, 2, 1, 1));
}

#[test]
fn an_atomic_that_counts_lies_where_the_other_did() {
    assert_eq!(size_of::<AtomicU16>(), 2);
    assert_eq!((size_of::<AtomicU64>(), align_of::<AtomicU64>()), (8, 8));
    assert_eq!(size_of::<Option<UnsafeCell<u64>>>(), 16, "one cell, no niche");
    let table = crate::words::WordsMut::<u16>::zeroed(64);
    let (books, reader) = (Books::new(), table.reader());
    books.act(0, || (0..64).for_each(|index| assert_eq!(reader.load(index), 0)));
    let lines = books.total().first_fetches;
    assert!((2..=3).contains(&lines), "128 bytes, aligned to 2: {lines}");
}

#[test]
fn plain_memory_is_counted_line_by_line() {
    let (books, cell) = (Books::new(), Alone(UnsafeCell::new([0u8; 130])));
    books.act(0, || cell.0.with_mut(|_| ()));
    books.act(1, || cell.0.with(|_| ()));
    let total = books.total();
    assert_eq!((total.accesses, total.writes), (2, 1));
    assert_eq!((total.first_fetches, total.transfers, total.upgrades), (3, 3, 0));
    books.act(1, || touch((&raw const cell.0).cast(), 0, Access::Write));
    assert_eq!(books.total().upgrades, 1, "of no length: the line it lies on");
    assert_eq!((books.total().transactions(), books.busiest_line()), (4, 2));
}

/// In turns no worker runs between a load and its exchange; in lockstep all do.
#[test]
fn exchanges_fail_in_lockstep_only() {
    let word = Alone(AtomicU64::new(0));
    let add_one = |_: &mut ()| {
        let mut now = word.0.load(Ordering::Relaxed);
        while let Err(other) =
            word.0.compare_exchange(now, now + 1, Ordering::Relaxed, Ordering::Relaxed)
        {
            now = other;
        }
    };
    let turns = Books::new();
    turns.turns(&mut [(); 4], 100, add_one);
    assert_eq!((turns.total().rmws, turns.total().failed), (400, 0));

    let counts = [(); 2].map(|()| {
        let books = Books::new();
        let completed = books.lockstep(&mut [(); 4], 40, 400, add_one);
        let total = books.total();
        assert_eq!((total.rmws, completed.iter().sum()), (400, 400));
        assert!(total.failed > total.rmws, "{total:?}");
        (total, completed)
    });
    assert_eq!(counts[0], counts[1], "the same each time");
}

/// With two, each sees the other's last addition at each of his own.
#[test]
fn each_addition_moves_the_line_in_lockstep() {
    let (books, word) = (Books::new(), Alone(AtomicU64::new(0)));
    let add = |_: &mut ()| _ = word.0.fetch_add(1, Ordering::Relaxed);
    let completed = books.lockstep(&mut [(); 2], 10, 100, add);
    let total = books.total();
    assert_eq!((completed, total.rmws, total.transfers), (vec![50, 50], 100, 100));
    books.act(0, || word.0.load(Ordering::Relaxed));
    assert_eq!(books.total(), total, "the books are closed");
}

#[test]
#[should_panic(expected = "a scoped thread panicked")]
fn workers_who_only_fail_are_stopped() {
    let word = AtomicU64::new(0);
    let hopeless = |_: &mut ()| {
        while word.compare_exchange(1, 1, Ordering::Relaxed, Ordering::Relaxed).is_err() {}
    };
    Books::new().lockstep(&mut [(); 2], 0, 1, hopeless);
}
