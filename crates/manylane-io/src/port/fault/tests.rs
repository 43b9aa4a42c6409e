//! Both directions; packets and frames add up after every run.

use std::collections::BTreeSet;

use manylane_frame::vocabulary::{PortId, WorkerId};
use manylane_frame::{Batch, Pool};
use manylane_sync::counters::{CounterReader, Counters};

use super::super::rig::{
    PORT, Seen, bytes, content, free, number, numbers, packet, pool, sink, source, wire,
};
use super::super::{Clock, Fate, Receiver as AnyReceiver, Transmitter as AnyTransmitter, Wait};
use super::*;

const FRAMES: u32 = 4096;
const PACKETS: u32 = 2000;

fn some_of_all(seed: u64) -> FaultConfig {
    FaultConfig {
        seed,
        drop: 0.1,
        duplicate: 0.1,
        corrupt: 0.1,
        delay: 0.2,
        delay_ns: 100..=5000,
        reorder: 0.2,
        reorder_ns: 4000,
        ..FaultConfig::default()
    }
}

fn len(number: u32) -> usize {
    match number % 100 {
        4 => 65_000,
        _ => [60, 1500, 3000, 128, 1792, 1793][number as usize % 6],
    }
}

#[test]
fn without_faults_all_is_as_it_was() {
    let (seen, counts) = receive(FaultConfig::default(), PACKETS, len);
    let expected = Vec::from_iter((0..PACKETS).map(|number| content(number, len(number))));
    assert!(seen == expected);
    assert_eq!(counts, FaultCounts::default());
    let (seen, counts) = transmit(FaultConfig::default(), PACKETS, len);
    assert!(seen == expected);
    assert_eq!(counts, FaultCounts::default());
}

#[test]
fn packets_add_up_in_both_directions() {
    for seed in 0..4 {
        for (seen, counts) in
            [receive(some_of_all(seed), PACKETS, len), transmit(some_of_all(seed), PACKETS, len)]
        {
            let FaultCounts { dropped, duplicated, corrupted, delayed, reordered, .. } = counts;
            assert_eq!(seen.len() as u64, u64::from(PACKETS) - dropped + duplicated);
            for count in [dropped, duplicated, corrupted, delayed, reordered] {
                assert!(count > 100, "{counts:?}");
            }
            // Damaged packets and their copies differ from the original by one bit.
            let damage = seen.iter().filter_map(|bytes| damage(bytes));
            let damaged = damage.inspect(|&bits| assert_eq!(bits, 1)).count() as u64;
            assert!(
                (corrupted..=corrupted + duplicated).contains(&damaged),
                "{damaged} {counts:?}"
            );
        }
    }
}

#[test]
fn the_same_seed_and_times_give_the_same_packets() {
    for run in [receive, transmit] {
        let first = run(some_of_all(7), PACKETS, len);
        assert!(first == run(some_of_all(7), PACKETS, len));
        assert!(first.0 != run(some_of_all(8), PACKETS, len).0);
    }
}

#[test]
fn each_fault_alone_has_its_effect() {
    let none = FaultConfig::default;
    let all = || Vec::from_iter(0..100);
    for run in [receive, transmit] {
        let run = |config| {
            let (seen, counts) = run(config, 100, |_| 60);
            (Vec::from_iter(seen.iter().map(|bytes| number(bytes))), counts)
        };
        let (seen, counts) = run(FaultConfig { drop: 1.0, ..none() });
        assert_eq!((seen.len(), counts.dropped), (0, 100));

        let (seen, counts) = run(FaultConfig { duplicate: 1.0, ..none() });
        assert_eq!(seen, Vec::from_iter((0..200).map(|place| place / 2)));
        assert_eq!(counts.duplicated, 100);

        // All by the same time: no packet overtakes another.
        let (seen, counts) = run(FaultConfig { delay: 1.0, ..none() });
        assert_eq!((seen, counts.delayed), (all(), 100));

        // All are held equally: the order is unchanged, only the time differs.
        let (seen, counts) = run(FaultConfig { reorder: 1.0, ..none() });
        assert_eq!((seen, counts.reordered), (all(), 100));

        let (seen, counts) = run(FaultConfig { reorder: 0.3, reorder_packets: 1, ..none() });
        assert_eq!(BTreeSet::from_iter(seen.iter().copied()), BTreeSet::from_iter(all()));
        assert!(seen != all() && (10..50).contains(&counts.reordered));
    }
}

/// By its time alone, whichever packet it is.
#[test]
fn a_delayed_packet_arrives_when_it_is_due() {
    let mut pool = pool(FRAMES);
    let config =
        FaultConfig { delay: 1.0, delay_ns: 1000..=1000, frames_max: 40, ..FaultConfig::default() };
    let inner = source(3, 1, |number| [60, 65_000, 61][number as usize]);
    let mut receiver = AnyReceiver::Fault(Box::new(Receiver::new(inner, config)));
    let mut come = |now_ns, count, held| {
        let mut batch = Batch::new();
        assert_eq!(receiver.receive(&mut pool, &mut batch, now_ns), count, "at {now_ns}");
        assert_eq!(receiver.posted(), held, "at {now_ns}");
        pool.give_back_all(&mut batch);
        match receiver.wait() {
            Wait::After(wait_ns) => Some(wait_ns),
            Wait::Done => None,
            _ => panic!("the source has no descriptor"),
        }
    };
    assert_eq!(come(10, 0, 1), Some(0), "the source has more");
    assert_eq!(come(500, 0, 33), Some(0), "32 frames more");
    assert_eq!(come(600, 0, 34), Some(0));
    assert_eq!(come(610, 0, 34), Some(400), "the source has no more");
    assert_eq!(come(1009, 0, 34), Some(1));
    assert_eq!(come(1010, 1, 33), Some(490));
    assert_eq!(come(9000, 2, 0), None);
    assert_eq!(free(&mut pool), FRAMES);
}

#[test]
fn a_packet_is_passed_by_as_many_as_configured_or_until_its_time() {
    let mut hold = hold::Hold::new(8, 8);
    let mut pool = pool(16);
    let mut next = 0;
    let mut packet = || {
        next += 1;
        hold::Packet { frame: packet(&mut pool, next, 60).expect("there are frames"), frames: 1 }
    };
    let held = hold.reorder(packet(), 2, 100).is_ok() && hold.reorder(packet(), 2, 100).is_ok();
    assert!(held);
    hold.pass(packet());
    assert_eq!((hold.ready(), hold.frames(), hold.due_ns()), (1, 3, Some(0)));
    hold.pass(packet());
    assert!(hold.reorder(packet(), 2, 110).is_ok());
    hold.release(109);
    assert_eq!((hold.ready(), hold.frames()), (4, 5));
    hold.release(110);
    let order = std::iter::from_fn(|| hold.pop()).map(|packet| packet.frame);
    let order = Vec::from_iter(order);
    let numbers = order.iter().map(|frame| number(&bytes(pool.region(), frame)));
    assert_eq!(Vec::from_iter(numbers), [3, 4, 1, 2, 5]);
    assert_eq!((hold.frames(), hold.due_ns()), (0, None));
    order.into_iter().for_each(|frame| pool.give_back(frame));
    assert_eq!(free(&mut pool), 16);
}

/// A full hold neither loses a packet nor holds it longer.
#[test]
fn packets_beyond_a_full_hold_continue_at_once() {
    let config = FaultConfig { delay: 1.0, frames_max: 40, ..FaultConfig::default() };
    let mut pool = pool(FRAMES);
    let inner = source(64, 64, |number| if number % 2 == 0 { 60 } else { 9000 });
    let mut receiver = AnyReceiver::Fault(Box::new(Receiver::new(inner, config)));
    let mut batch = Batch::new();
    receiver.receive(&mut pool, &mut batch, 0);
    let FaultCounts { delayed, hold_full, .. } = receiver.faults();
    assert_eq!((delayed + hold_full, batch.len() as u64), (64, hold_full));
    assert_eq!(receiver.posted(), 40, "small ones fill what large ones leave");
    pool.give_back_all(&mut batch);
    let mut others = Vec::new();
    receiver.unwrapped(&mut pool, &mut others);
    assert!(others.is_empty());
    assert_eq!(free(&mut pool), FRAMES);
}

/// With a full device, accepted packets wait and new ones are refused; frames add up.
#[test]
fn a_full_device_holds_the_faults_back() {
    let mut pool = pool(FRAMES);
    let (inner, mut far) = wire(8);
    let config = FaultConfig { duplicate: 0.5, ..FaultConfig::default() };
    let clock = Clock::from(Box::new(|| 0));
    let faults = Transmitter::new(inner, WorkerId(0), config, clock);
    let mut transmitter = AnyTransmitter::Fault(Box::new(faults));
    let mut batch = filled(&mut pool, 0..20, |_| 60);
    let (mut sent, mut completed, mut arrived) = (0, 0, Vec::new());
    sent += transmitter.transmit(&mut pool, &mut batch, |_| completed += 1).frames;
    assert_eq!((sent, batch.len()), (20, 0));
    assert!(transmitter.held() >= 12 && transmitter.due_ns() == Some(0));
    let mut more = filled(&mut pool, 20..30, |_| 60);
    assert_eq!(transmitter.transmit(&mut pool, &mut more, |_| completed += 1).frames, 0);
    assert_eq!(more.len(), 10);
    while transmitter.held() > 0 {
        transmitter.flush();
        let mut batch = Batch::new();
        far.receive(&mut pool, &mut batch, 0);
        arrived.extend(batch.iter().map(|frame| number(&bytes(pool.region(), frame))));
        pool.give_back_all(&mut batch);
        transmitter.transmit(&mut pool, &mut batch, |_| completed += 1);
    }
    transmitter.flush();
    let mut last = Batch::new();
    far.receive(&mut pool, &mut last, 0);
    arrived.extend(last.iter().map(|frame| number(&bytes(pool.region(), frame))));
    pool.give_back_all(&mut last);
    assert_eq!(completed, 20, "copies are not completed");
    assert_eq!(arrived.len() as u64, 20 + transmitter.faults().duplicated);
    assert!(arrived.is_sorted());
    pool.give_back_all(&mut more);
    assert_eq!(free(&mut pool), FRAMES);
}

/// Closing sends held packets; those that the device has no room for are returned, and reported as lost.
#[test]
fn closing_flushes_what_is_held() {
    let mut pool = pool(FRAMES);
    let (inner, mut far) = wire(8);
    let config = FaultConfig { delay: 1.0, ..FaultConfig::default() };
    let clock = Clock::from(Box::new(|| 0));
    let faults = Transmitter::new(inner, WorkerId(0), config, clock);
    let mut transmitter = AnyTransmitter::Fault(Box::new(faults));
    let mut batch = filled(&mut pool, 0..30, |_| 3000);
    let sent = transmitter.transmit(&mut pool, &mut batch, |_| panic!("all are late"));
    assert_eq!((sent.frames, transmitter.due_ns()), (30, Some(1_000_000)));
    let mut fates = Vec::new();
    let mut ended = |fate, entry| fates.push((fate, entry));
    let inner = transmitter.unwrapped(&mut pool, &mut Vec::new(), &mut ended);
    assert!(matches!(inner, AnyTransmitter::Memory(_)));
    let expected = [[Fate::Transmitted].repeat(8), [Fate::Dropped].repeat(22)].concat();
    assert_eq!(fates, Vec::from_iter(expected.into_iter().map(|fate| (fate, PORT))));
    let mut batch = Batch::new();
    assert_eq!(far.receive(&mut pool, &mut batch, 0), 8);
    pool.give_back_all(&mut batch);
    assert_eq!(free(&mut pool), FRAMES);
}

/// With faults in front of a copied port, the copies show the faults.
#[test]
fn ports_are_wrapped_twice() {
    let mut pool = pool(FRAMES);
    let ((inner, seen), (to, copied)) = (sink(), sink());
    let tee = AnyTransmitter::Tee(Box::new(super::super::tee::Transmitter::new(inner, to)));
    let clock = Clock::from(Box::new(|| 0));
    let config = FaultConfig { drop: 0.3, duplicate: 0.3, ..FaultConfig::default() };
    let faults = Transmitter::new(tee, WorkerId(1), config, clock);
    let mut transmitter = AnyTransmitter::Fault(Box::new(faults));
    let mut completed = 0;
    let mut batch = filled(&mut pool, 0..60, |_| 2000);
    transmitter.transmit(&mut pool, &mut batch, |_| completed += 1);
    let FaultCounts { dropped, duplicated, .. } = transmitter.faults();
    assert!(dropped > 0 && duplicated > 0);
    assert_eq!((completed, transmitter.dropped()), (60, dropped));
    assert_eq!(numbers(&seen).len() as u64, 60 - dropped + duplicated);
    assert_eq!(numbers(&seen), numbers(&copied));
    assert_eq!(transmitter.copies().copied, 60 - dropped + duplicated);
    assert_eq!(free(&mut pool), FRAMES);
}

#[test]
fn a_dry_pool_duplicates_nothing_and_counts() {
    let mut pool = pool(40);
    let config = FaultConfig { duplicate: 1.0, ..FaultConfig::default() };
    let inner = source(2, 1, |_| 65_000);
    let mut receiver = AnyReceiver::Fault(Box::new(Receiver::new(inner, config)));
    for _ in 0..2 {
        let mut batch = Batch::new();
        assert_eq!(receiver.receive(&mut pool, &mut batch, 0), 1);
        pool.give_back_all(&mut batch);
    }
    assert_eq!(receiver.faults(), FaultCounts { no_frame: 2, ..FaultCounts::default() });
    assert_eq!(free(&mut pool), 40);
}

#[test]
fn faults_that_cannot_be_are_named() {
    let good = FaultConfig::default();
    assert_eq!(good.check(), Ok(()));
    let table = [
        (
            FaultConfig { drop: 1.01, ..good.clone() },
            "`drop` is 1.01, but a probability is 0 to 1; take 0 to 1",
        ),
        (FaultConfig { reorder: -0.5, ..good.clone() }, "`reorder` is -0.5, but a"),
        (FaultConfig { corrupt: f64::NAN, ..good.clone() }, "`corrupt` is NaN, but a"),
        #[expect(clippy::reversed_empty_ranges, reason = "it is the fault")]
        (FaultConfig { delay_ns: 5..=4, ..good.clone() }, "a delay of 5 to 4 ns: give the shorter"),
        (
            FaultConfig { reorder_packets: 0, ..good.clone() },
            "`reorder_packets` is 0, and no packet would overtake another",
        ),
    ];
    for (config, says) in table {
        let error = config.check().expect_err(says).to_string();
        assert!(error.starts_with(says), "{error}");
    }
}

/// Receives `packets` packets through faults, with a call every 500 ns, until all have arrived; returns the packets and
/// the applied faults.
fn receive(
    config: FaultConfig,
    packets: u32,
    len: fn(u32) -> usize,
) -> (Vec<Vec<u8>>, FaultCounts) {
    let mut pool = pool(FRAMES);
    let inner = source(packets, 20, len);
    let mut receiver = AnyReceiver::Fault(Box::new(Receiver::new(inner, config)));
    let mut seen = Vec::new();
    let mut now_ns = 0;
    while !matches!(receiver.wait(), Wait::Done) {
        let mut batch = Batch::new();
        let received = receiver.receive(&mut pool, &mut batch, now_ns);
        assert_eq!(received, batch.len());
        assert!(batch.iter().all(|frame| pool.region().meta(frame).ingress == PORT));
        seen.extend(batch.iter().map(|frame| bytes(pool.region(), frame)));
        pool.give_back_all(&mut batch);
        now_ns += 500;
    }
    assert_eq!(receiver.posted(), 0);
    assert_eq!(free(&mut pool), FRAMES);
    (seen, receiver.faults())
}

/// Transmits packets through faults; every packet is completed once, however it ended.
fn transmit(
    config: FaultConfig,
    packets: u32,
    len: fn(u32) -> usize,
) -> (Vec<Vec<u8>>, FaultCounts) {
    let mut pool = pool(FRAMES);
    let (inner, seen): (_, Seen) = sink();
    let (mut hand, clock) = by_hand();
    let faults = Transmitter::new(inner, WorkerId(0), config, clock);
    let mut transmitter = AnyTransmitter::Fault(Box::new(faults));
    let mut sent = 0;
    let mut completed = 0;
    let mut next = 0;
    while next < packets || transmitter.held() > 0 {
        let last = (next + 20).min(packets);
        let mut batch = filled(&mut pool, next..last, len);
        next = last;
        let done = transmitter.transmit(&mut pool, &mut batch, |entry: PortId| {
            assert_eq!(entry, PORT);
            completed += 1;
        });
        sent += done.frames;
        assert!(batch.is_empty());
        transmitter.flush();
        hand.add(0, 500);
    }
    assert_eq!((sent, completed), (packets as usize, packets));
    assert_eq!(transmitter.dropped(), transmitter.faults().dropped);
    assert_eq!(free(&mut pool), FRAMES);
    let seen = std::mem::take(&mut *seen.lock().expect("no holder panics"));
    (seen, transmitter.faults())
}

/// A clock and the counter that advances it.
fn by_hand() -> (Counters, Clock) {
    let hand = Counters::new(1);
    let reader: CounterReader = hand.reader();
    (hand, Box::new(move || reader.load(0)))
}

fn filled(pool: &mut Pool, numbers: std::ops::Range<u32>, len: fn(u32) -> usize) -> Batch {
    let mut batch = Batch::new();
    for number in numbers {
        let frame = packet(pool, number, len(number)).expect("there are frames");
        batch.push(frame).expect("there is room");
    }
    batch
}

/// How many bits differ from the original packet, if any do.
fn damage(bytes: &[u8]) -> Option<u32> {
    let is = number(bytes);
    if content(is, bytes.len()) == bytes {
        return None;
    }
    // The damaged bit may be one of the number's.
    let candidates = std::iter::once(is).chain((0..32).map(|bit| is ^ 1 << bit));
    let differ = |number: u32| {
        // The rest of a packet repeats: one line of it is enough to tell numbers apart.
        let was = content(number, bytes.len());
        let near = bytes.iter().zip(&was).take(60).map(|(is, was)| (is ^ was).count_ones());
        match near.sum::<u32>() {
            0 | 1 => bytes.iter().zip(&was).map(|(is, was)| (is ^ was).count_ones()).sum(),
            many => many,
        }
    };
    candidates.map(differ).min()
}
