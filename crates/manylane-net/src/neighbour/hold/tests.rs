use std::net::{IpAddr, Ipv4Addr};

use manylane_frame::vocabulary::PortId;
use manylane_frame::{Depot, Pool, Region, RegionConfig};

use super::*;

#[test]
fn frames_come_out_in_the_order_they_were_held_in() {
    let mut pool = pool();
    let mut holds = HoldQueues::new(limits(8, 64, 8));
    // Two neighbours in turn, so that neither has its frames side by side.
    let mut expected = [Vec::new(), Vec::new()];
    for turn in 0..8 {
        for (host, expected) in expected.iter_mut().enumerate() {
            let frame = pool.take().expect("the pool is large enough");
            expected.push(frame.index());
            assert_eq!(holds.push(key(host), frame, turn), Pushed::Held);
        }
    }
    assert_eq!((holds.len(), holds.queues()), (16, 2));
    for (host, expected) in expected.iter().enumerate() {
        assert_eq!(taken(&mut holds, key(host), &mut pool), *expected);
    }
    assert!(holds.is_empty() && holds.queues() == 0);
    assert_eq!(taken(&mut holds, key(0), &mut pool), [], "nothing is held twice");
}

/// The newest packets are those somebody still waits for.
#[test]
fn a_full_queue_drops_its_oldest_frame() {
    let mut pool = pool();
    let mut holds = HoldQueues::new(limits(3, 64, 8));
    let indices: Vec<u32> = (0..3).map(|_| push(&mut holds, 1, &mut pool)).collect();
    let frame = pool.take().expect("the pool is large enough");
    let newest = frame.index();
    match holds.push(key(1), frame, 0) {
        Pushed::HeldDroppingOldest(oldest) => {
            assert_eq!(oldest.index(), indices[0]);
            pool.give_back(oldest);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(taken(&mut holds, key(1), &mut pool), [indices[1], indices[2], newest]);
}

/// One frame a queue is the smallest case of "take the first, leave the queue open".
#[test]
fn a_queue_of_one_frame_keeps_the_newest() {
    let mut pool = pool();
    let mut holds = HoldQueues::new(limits(1, 1, 1));
    let mut newest = push(&mut holds, 1, &mut pool);
    for _ in 0..3 {
        let frame = pool.take().expect("the pool is large enough");
        let index = frame.index();
        match holds.push(key(1), frame, 0) {
            Pushed::HeldDroppingOldest(oldest) => {
                assert_eq!(oldest.index(), newest);
                pool.give_back(oldest);
            }
            other => panic!("{other:?}"),
        }
        newest = index;
    }
    assert_eq!(taken(&mut holds, key(1), &mut pool), [newest]);
}

#[test]
fn a_worker_holds_no_more_than_its_frames_and_queues() {
    let mut pool = pool();
    let mut holds = HoldQueues::new(limits(8, 4, 2));
    push(&mut holds, 1, &mut pool);
    push(&mut holds, 2, &mut pool);
    refused(&mut holds, 3, &mut pool); // A third queue.
    push(&mut holds, 1, &mut pool);
    push(&mut holds, 1, &mut pool);
    refused(&mut holds, 2, &mut pool); // A fifth frame.
    assert_eq!(taken(&mut holds, key(2), &mut pool).len(), 1);
    push(&mut holds, 3, &mut pool);
    refused(&mut holds, 4, &mut pool);
    assert_eq!(holds.queues(), 2, "a refused frame opens no queue");
    give_back_all(&mut holds, &mut pool);
}

#[test]
fn nothing_is_held_for_ever() {
    let mut pool = pool();
    let mut holds = HoldQueues::new(HoldLimits::default());
    for (host, now_ns) in [(1, 0), (2, 10), (1, 90), (3, 95)] {
        let frame = pool.take().expect("the pool is large enough");
        assert_eq!(holds.push(key(host), frame, now_ns), Pushed::Held);
    }
    assert_eq!(holds.expired(99, 100), None);
    assert_eq!(holds.expired(100, 100), Some(key(1)), "by its first frame, however new the last");
    assert_eq!(taken(&mut holds, key(1), &mut pool).len(), 2);
    assert_eq!(holds.expired(100, 100), None);
    assert_eq!(holds.expired(110, 100), Some(key(2)));
    assert_eq!(holds.keys().collect::<Vec<_>>(), [key(2), key(3)]);
    // Taken from the middle of the order of age, and held for again: at its end.
    push(&mut holds, 1, &mut pool);
    assert_eq!(taken(&mut holds, key(3), &mut pool).len(), 1);
    assert_eq!(holds.keys().collect::<Vec<_>>(), [key(2), key(1)]);
    give_back_all(&mut holds, &mut pool);
}

/// An iterator that is dropped half way must not take frames with it.
#[test]
fn what_is_not_taken_stays() {
    let mut pool = pool();
    let mut holds = HoldQueues::new(HoldLimits::default());
    let indices: Vec<u32> = (0..3).map(|_| push(&mut holds, 1, &mut pool)).collect();
    pool.give_back(holds.take(key(1)).next().expect("three are held"));
    assert_eq!(holds.len(), 2);
    assert_eq!(taken(&mut holds, key(1), &mut pool), indices[1..]);
}

#[test]
fn draining_leaves_nothing() {
    let mut pool = pool();
    let mut holds = HoldQueues::new(HoldLimits::default());
    for host in [1, 2, 1, 3, 2] {
        push(&mut holds, host, &mut pool);
    }
    let drained: Vec<_> = holds.drain_all().collect();
    assert_eq!(drained.len(), 5);
    drained.into_iter().for_each(|frame| pool.give_back(frame));
    assert!(holds.is_empty() && holds.keys().next().is_none());
}

/// Random use against a plain model: a map of lists. And the map inside must not have grown.
#[test]
fn queues_agree_with_a_map_of_lists_and_allocate_nothing() {
    let mut pool = pool();
    let mut holds = HoldQueues::new(limits(5, 40, 12));
    let capacity = holds.by_key.capacity();
    let mut model: HashMap<usize, Vec<u32>> = HashMap::new();
    let mut random = 1u32;
    for step in 0..20_000 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let host = (random >> 16) as usize % 20;
        if random >> 29 == 0 {
            let expected = model.remove(&host).unwrap_or_default();
            assert_eq!(taken(&mut holds, key(host), &mut pool), expected);
        } else {
            let frame = pool.take().expect("the pool is large enough");
            let (index, held) = (frame.index(), model.values().map(Vec::len).sum::<usize>());
            let queues = model.len();
            match holds.push(key(host), frame, step) {
                Pushed::Held => {
                    assert!(held < 40);
                    model.entry(host).or_default().push(index);
                }
                Pushed::HeldDroppingOldest(oldest) => {
                    let list = model.get_mut(&host).expect("it has five frames");
                    assert_eq!((list.len(), list.remove(0)), (5, oldest.index()));
                    list.push(index);
                    pool.give_back(oldest);
                }
                Pushed::Refused(frame) => {
                    assert!(held == 40 || (queues == 12 && !model.contains_key(&host)));
                    pool.give_back(frame);
                }
            }
        }
        assert_eq!(holds.queues(), model.len());
    }
    assert_eq!(holds.by_key.capacity(), capacity);
    give_back_all(&mut holds, &mut pool);
}

fn pool() -> Pool {
    let region = Region::new(RegionConfig { frames: 128, frame_size: 2048 }).expect("256 KiB");
    Depot::new(region, 1).expect("the region is new").pool()
}

fn limits(queue_frames_max: u32, frames_max: u32, queues_max: u32) -> HoldLimits {
    HoldLimits { queue_frames_max, frames_max, queues_max }
}

fn key(host: usize) -> Key {
    let addr = Ipv4Addr::from_bits(0xc000_0200 + host as u32);
    Key { port: PortId(1), addr: IpAddr::V4(addr) }
}

fn push(holds: &mut HoldQueues, host: usize, pool: &mut Pool) -> u32 {
    let frame = pool.take().expect("the pool is large enough");
    let index = frame.index();
    assert_eq!(holds.push(key(host), frame, 0), Pushed::Held);
    index
}

fn refused(holds: &mut HoldQueues, host: usize, pool: &mut Pool) {
    let frame = pool.take().expect("the pool is large enough");
    match holds.push(key(host), frame, 0) {
        Pushed::Refused(frame) => pool.give_back(frame),
        other => panic!("{other:?}"),
    }
}

/// Takes and gives back what is held for `key`; says which frames it were.
fn taken(holds: &mut HoldQueues, key: Key, pool: &mut Pool) -> Vec<u32> {
    let mut indices = Vec::new();
    for frame in holds.take(key) {
        indices.push(frame.index());
        pool.give_back(frame);
    }
    indices
}

fn give_back_all(holds: &mut HoldQueues, pool: &mut Pool) {
    holds.drain_all().for_each(|frame| pool.give_back(frame));
}
