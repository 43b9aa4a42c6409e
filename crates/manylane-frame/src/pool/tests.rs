use super::*;
use crate::region::RegionConfig;

#[test]
fn every_frame_is_handed_out_once_and_then_none() {
    let depot = depot(200);
    let mut pool = depot.pool();
    let mut seen: Vec<u32> = Vec::new();
    let mut held = Vec::new();
    while let Some(frame) = pool.take() {
        seen.push(frame.index());
        held.push(frame);
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..200).collect::<Vec<_>>());
    assert!(pool.take().is_none());
    held.into_iter().for_each(|frame| pool.give_back(frame));
}

#[test]
fn the_last_frame_given_back_is_the_first_taken() {
    let depot = depot(64);
    let mut pool = depot.pool();
    let frame = pool.take().expect("64 frames are free");
    let index = frame.index();
    pool.give_back(frame);
    let again = pool.take().expect("64 frames are free");
    assert_eq!(again.index(), index);
    pool.give_back(again);
}

/// A list that crossed its mark must be half a length away from both marks, or a small swing
/// around the mark would go to the depot each time.
#[test]
fn a_full_list_spills_to_the_middle() {
    let depot = depot(1024);
    let (mut taker, mut giver) = (depot.pool_of(256), depot.pool_of(256));
    let mut batch = Batch::new();
    for _ in 0..5 {
        taker.take_into(&mut batch, 64);
        giver.give_back_all(&mut batch);
    }
    assert_eq!((giver.counts().refills, giver.counts().spills), (0, 1));
    assert_eq!(giver.level(), 128);
}

#[test]
fn a_length_changes_while_frames_come_and_go() {
    let depot = depot(2048);
    let mut pool = depot.pool_of(1024);
    let mut batch = Batch::new();
    assert_eq!(pool.take_into(&mut batch, 64), 64);
    pool.give_back_all(&mut batch);
    assert_eq!(pool.level(), 512);

    pool.set_hot_list_len(300);
    assert_eq!((pool.hot_list_len(), pool.counts().spills), (300, 1));
    assert!((150..150 + MAGAZINE).contains(&pool.level()), "{}", pool.level());
    pool.set_hot_list_len(8192);
    assert_eq!(pool.counts().spills, 1, "there is room now");
    let frames = Vec::from_iter((0..300).map(|_| pool.take().expect("there are more")));
    assert!(pool.level() > 1500, "the next refill goes up to the new middle");
    frames.into_iter().for_each(|frame| pool.give_back(frame));
    for (len, is) in [(0, 128), (127, 128), (9000, 8192)] {
        pool.set_hot_list_len(len);
        assert_eq!(pool.hot_list_len(), is);
    }
    drop(pool);
    assert_eq!(depot.frames(), 2048);
}

/// Whatever the length and the calls: the list never holds more than it may, and the next call after
/// an exchange does not exchange again.
#[test]
fn no_list_exceeds_its_length_and_none_goes_to_the_depot_at_each_call() {
    for len in [128, 129, 200, 256, 1024] {
        let depot = depot(4096);
        let mut pool = depot.pool_of(len);
        let mut batch = Batch::new();
        for round in 0..200 {
            assert_eq!(pool.may_receive(32), 32);
            assert_eq!(pool.take_into(&mut batch, 1 + round % 64), 1 + round % 64);
            pool.give_back_all(&mut batch);
            assert!(pool.level() <= len as usize, "{} of {len}", pool.level());
        }
        let counts = pool.counts();
        assert_eq!((counts.refills, counts.spills), (1, 0), "{len}: {counts:?}");
    }
}

/// At every level that a list can have between turns: a request is met, since the depot has the frames, and the list
/// does not visit the depot in vain.
#[test]
fn short_lists_receive_at_any_level() {
    for len in [128, 129, 190, 300] {
        let depot = depot(4096);
        let mut pool = depot.pool_of(len);
        let mut out = Vec::new();
        for taken in (1..40).cycle().take(2000) {
            let refills = pool.counts().refills;
            let (before, may) = (pool.level(), pool.may_receive(taken));
            assert!(may > 0 && pool.counts().starved == 0, "{len}: {taken} at {before}");
            assert!(pool.level() > before || pool.counts().refills == refills, "{len}: in vain");
            assert!(pool.level() <= len as usize, "{len}: {taken} at {before}");
            out.extend((0..may).map(|_| pool.take().expect("it said so")));
            if out.len() > 2000 {
                out.drain(..).for_each(|frame| pool.give_back(frame));
            }
        }
        // And a packet of the most frames possible.
        let packet = pool.receive_packet(0, 64 * 2048).expect("the depot has them");
        assert!(pool.level() >= RESERVE && pool.level() <= len as usize, "{}", pool.level());
        pool.give_back(packet);
        out.drain(..).for_each(|frame| pool.give_back(frame));
    }
}

#[test]
fn hits_are_the_frames_that_were_there() {
    let depot = depot(2048);
    let mut pool = depot.pool_of(128);
    let mut batch = Batch::new();
    pool.take_into(&mut batch, 64); // All fetched: one magazine.
    assert_eq!((pool.counts().taken, pool.counts().hits()), (64, 0));
    pool.give_back_all(&mut batch);
    pool.take_into(&mut batch, 60);
    assert_eq!(pool.counts().hits(), 60);
    let mut second = Batch::new();
    pool.take_into(&mut second, 10); // 4 were left.
    assert_eq!((pool.counts().hits(), pool.counts().refills), (64, 2));
    let single = pool.take().expect("there are more");
    assert_eq!((pool.counts().hits(), pool.counts().taken), (65, 135));
    pool.give_back(single);
    pool.give_back_all(&mut batch);
    pool.give_back_all(&mut second);
}

/// Two receivers and their worker share a region that is too small.
#[test]
fn what_is_received_into_leaves_the_reserve() {
    let depot = depot(300);
    let mut pool = depot.pool_of(256);
    let mut posted = Vec::new();
    loop {
        let frames = pool.may_receive(100);
        if frames == 0 {
            break;
        }
        posted.extend((0..frames).map(|_| pool.take().expect("it said so")));
    }
    assert_eq!(posted.len(), 300 - RESERVE);
    assert_eq!((pool.level(), pool.counts().starved), (RESERVE, 1));
    // Packets that are here already find frames all the same.
    let mut batch = Batch::new();
    assert_eq!(pool.take_into(&mut batch, 64), 64);
    assert!(pool.take().is_none());
    pool.give_back_all(&mut batch);
    posted.into_iter().for_each(|frame| pool.give_back(frame));
    assert!(pool.may_receive(100) > 0);
}

#[test]
fn lists_that_come_and_go_lose_nothing() {
    let depot = depot(100);
    for round in 1..200 {
        let mut pool = depot.pool();
        let frame = pool.take().expect("all frames are free");
        pool.give_back(frame);
        assert_eq!(pool.counts().refills, 1, "round {round}");
    }
    let mut pool = depot.pool();
    let mut batches = [const { Batch::new() }; 2];
    let taken = batches.iter_mut().map(|batch| pool.take_into(batch, 64)).sum::<usize>();
    assert_eq!(taken, 100);
    batches.iter_mut().for_each(|batch| pool.give_back_all(batch));
}

/// Each list ends with one frame more than a magazine, and another spills on top of it: what is left
/// of them joins, or it would take all slots.
#[test]
fn lists_that_only_end_leave_one_magazine_partly_filled() {
    const ROUNDS: usize = 40;
    let depot = depot(2 * 65 * ROUNDS as u32);
    let mut taker = depot.pool();
    let mut frames = Vec::from_iter(std::iter::from_fn(|| taker.take()));
    let mut spilling = depot.pool_of(128);
    for _ in 0..ROUNDS {
        let mut ending = depot.pool();
        frames.drain(..65).for_each(|frame| ending.give_back(frame));
        drop(ending);
        frames.drain(..65).for_each(|frame| spilling.give_back(frame));
    }
    assert!(spilling.counts().spills > ROUNDS as u64 / 2, "{:?}", spilling.counts());
    drop(spilling);
    let levels = depot.0.slots.iter().map(|slot| slot.len.load() as usize % MAGAZINE);
    assert_eq!(levels.filter(|&level| level > 0).count(), 1);
    assert_eq!(depot.frames(), 2 * 65 * ROUNDS as u64);
}

/// Taken on one thread, given back on the other, 200,000 times: all frames are still there.
#[test]
fn frames_that_cross_threads_all_come_home() {
    let depot = depot(1024);
    let (mut producer, mut consumer) = manylane_sync::ring::ring::<Frame>(256);
    std::thread::scope(|scope| {
        let mut pool = depot.pool_of(128);
        scope.spawn(move || {
            let mut sent = 0;
            while sent < 200_000 {
                let Some(mut frame) = pool.take() else { continue };
                while let Err(back) = producer.push(frame) {
                    frame = back;
                    producer.submit();
                    std::thread::yield_now();
                }
                producer.submit();
                sent += 1;
            }
        });
        let mut pool = depot.pool_of(128);
        let mut seen = 0;
        while seen < 200_000 {
            match consumer.pop() {
                Some(frame) => {
                    pool.give_back(frame);
                    seen += 1;
                }
                None => {
                    consumer.release();
                    std::thread::yield_now();
                }
            }
        }
    });
    let mut pool = depot.pool_of(4096);
    let mut frames = Vec::from_iter(std::iter::from_fn(|| pool.take()));
    assert_eq!(frames.len(), 1024);
    frames.drain(..).for_each(|frame| pool.give_back(frame));
}

#[test]
fn a_dropped_frame_is_counted_and_panics_in_debug_builds() {
    let depot = depot(8);
    let mut pool = depot.pool();
    let before = crate::frames_leaked();
    let frame = pool.take().expect("8 frames are free");
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(frame)));
    assert_eq!(outcome.is_err(), cfg!(debug_assertions));
    assert!(crate::frames_leaked() > before);
}

fn depot(frames: u32) -> Depot {
    let region = Region::new(RegionConfig { frames, frame_size: 2048 });
    Depot::new(region.expect("2 MiB can be mapped"), 4).expect("the frames are there")
}
