use super::*;

#[test]
fn a_slice_counts_when_its_threads_agree() {
    let epoch = Instant::now();
    for (one, other) in [((0, 1000, 5), (3, 1001, 5)), ((0, 1000, 40), (40, 1000, 5))] {
        let [one, other] = [one, other].map(|(start, end, away)| share(epoch, start, end, away));
        assert!(slice([one, other]).counts(TOLERANCE, TOLERANCE));
    }
}

#[test]
fn a_slice_is_refused_when_a_thread_comes_late_leaves_early_or_was_away() {
    let epoch = Instant::now();
    let good = share(epoch, 0, 1000, 5);
    for bad in [(41, 1000, 5), (0, 959, 5), (0, 1000, 41)] {
        let bad = share(epoch, bad.0, bad.1, bad.2);
        assert!(!slice([good, bad]).counts(TOLERANCE, TOLERANCE), "{bad:?}");
        assert!(!slice([bad, good]).counts(TOLERANCE, TOLERANCE), "{bad:?}");
        assert!(slice([bad, good]).counts(f64::INFINITY, f64::INFINITY), "a quick one counts");
    }
}

/// The wall time is shared by all threads: two of them with 1000 operations each in 1000 us took
/// one microsecond each, not half.
#[test]
fn the_cost_is_what_a_thread_sees() {
    let epoch = Instant::now();
    let even = slice([share(epoch, 0, 1000, 5), share(epoch, 0, 1000, 5)]);
    assert_eq!((even.ns(), even.fairness()), (1000.0, 1.0));
    let mut less = share(epoch, 0, 1000, 5);
    less.operations = 250;
    let uneven = slice([less, share(epoch, 0, 1000, 5)]);
    assert_eq!((uneven.ns(), uneven.fairness()), (1600.0, 0.25));
    assert_eq!((uneven.of(0).ns(), uneven.of(1).ns()), (4000.0, 1000.0));
}

#[test]
fn threads_do_their_own_work_and_a_lap_counts_every_batch() {
    let mut bench = Bench::new(&None, true).expect("this test needs two cores");
    let batches = [const { AtomicUsize::new(0) }; 2];
    let work = |number: usize, lap: Lap<'_>| {
        lap.run(|| {
            batches[number].fetch_add(1, Ordering::Relaxed);
        })
    };
    let slice = bench.slice(2, work).expect("the cores are ours").expect("a quick one counts");
    for (number, batches) in batches.iter().enumerate() {
        let operations = batches.load(Ordering::Relaxed) as u64 * BATCH;
        assert!(operations > 0);
        assert_eq!(slice.of(number).operations, operations);
    }
    assert_eq!(bench.refused, 0);
}

#[test]
fn a_slice_that_never_counts_is_given_up_with_its_cause() {
    let mut bench = Bench::new(&None, true).expect("this test needs two cores");
    (bench.tolerance, bench.pauses) = (-1.0, 0.0);
    let asleep = |_, lap: Lap<'_>| lap.run(|| thread::sleep(Duration::from_millis(1)));
    let slice = bench.time("asleep_ns", 1, asleep).expect("the core is ours");
    assert!(slice.is_none());
    let output = Output::new("test", true);
    bench.rounds.print(&output).expect("it is a warning");
    let why = &output.into_parts().1[0].refused;
    assert!(
        why.starts_with("1 of 1 rounds do not count: ") && !why.ends_with("not known"),
        "{why}"
    );
    assert_eq!(bench.refused, ATTEMPTS);
}

#[test]
fn a_watch_adds_up_the_pauses_that_are_too_long_for_its_own_thread() {
    let now = Instant::now();
    let ago = |us| now - Duration::from_micros(us);
    let mut watch = Watch { start: ago(5000), last: ago(5000), away: Duration::ZERO };
    watch.look();
    let first = watch.away;
    assert!(first >= Duration::from_micros(5000), "the whole pause counts: {first:?}");
    watch.last -= Duration::from_micros(1000);
    watch.look();
    assert!(watch.away - first >= Duration::from_micros(1000), "and so does the next one");
    // A clock that has not moved.
    let mut short = Watch::new(Instant::now() + Duration::from_secs(60));
    short.look();
    assert_eq!(short.away, Duration::ZERO);
}

#[test]
fn a_share_that_was_given_up_does_not_count_however_long_it_took() {
    let now = Instant::now();
    let start = now - Duration::from_secs(1);
    let mut watch = Watch { start, last: now - HOPELESS, away: Duration::ZERO };
    watch.last -= Duration::from_micros(1);
    assert!(!watch.is_hopeless());
    watch.look();
    assert!(watch.is_hopeless());
    let gave_up = watch.give_up(7);
    assert_eq!(gave_up.operations(), 7);
    assert!(!Slice(vec![gave_up]).counts(TOLERANCE, TOLERANCE));
    assert!(Slice(vec![gave_up]).counts(f64::INFINITY, f64::INFINITY), "a quick one counts");
}

#[test]
fn one_core_twice_is_refused() {
    let refused = Bench::new(&Some(vec![0, 0]), true).err().expect("they are one core");
    assert_eq!(refused.to_string(), "two cores are needed, not [0, 0]");
}

fn share(epoch: Instant, start: u64, end: u64, away: u64) -> Share {
    let at = |us| epoch + Duration::from_micros(us);
    let (away, cpu) = (at(away) - epoch, Duration::ZERO);
    Share {
        operations: 1000,
        start: at(start),
        end: at(end),
        away,
        cpu,
        account: Account::default(),
    }
}

fn slice(shares: [Share; 2]) -> Slice {
    Slice(shares.to_vec())
}
