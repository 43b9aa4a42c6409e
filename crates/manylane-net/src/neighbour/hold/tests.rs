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
            assert_eq!(holds.push(key(host), frame, 1, turn, nobody), Ok(()));
        }
    }
    assert_eq!((holds.len(), holds.queues()), (16, 2));
    for (host, expected) in expected.iter().enumerate() {
        assert_eq!(taken(&mut holds, key(host), &mut pool), *expected);
    }
    assert!(holds.is_empty() && holds.queues() == 0);
    assert_eq!(taken(&mut holds, key(0), &mut pool), [], "nothing is held twice");
}

/// The newest packets are those whose senders still wait.
#[test]
fn a_full_queue_drops_its_oldest_frame() {
    let mut pool = pool();
    let mut holds = HoldQueues::new(limits(3, 64, 8));
    let indices: Vec<u32> = (0..3).map(|_| push(&mut holds, 1, &mut pool)).collect();
    let frame = pool.take().expect("the pool is large enough");
    let newest = frame.index();
    let (result, dropped) = held(&mut holds, 1, frame, 1, &mut pool);
    assert_eq!((result, dropped), (Ok(()), vec![indices[0]]));
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
        let (result, dropped) = held(&mut holds, 1, frame, 1, &mut pool);
        assert_eq!((result, dropped), (Ok(()), vec![newest]));
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

/// Only when a bound refuses the packet, only what has waited for a while, and never the packet's own queue.
#[test]
fn the_oldest_queue_gives_way_when_a_bound_is_reached() {
    const MS: u64 = 1_000_000;
    let mut pool = pool();
    let mut holds = HoldQueues::new(limits(3, 4, 2));
    let mut hold = |holds: &mut HoldQueues, host: usize, since_ns: u64| {
        let frame = pool.take().expect("the pool is large enough");
        assert_eq!(holds.push(key(host), frame, 1, since_ns, nobody), Ok(()));
    };
    hold(&mut holds, 1, 0);
    assert_eq!(holds.gives_way(key(3), 1, 50 * MS), None, "there is room");
    hold(&mut holds, 2, 5 * MS);
    assert_eq!(holds.gives_way(key(3), 1, 10 * MS - 1), None, "both may still answer");
    assert_eq!(holds.gives_way(key(3), 1, 10 * MS), Some(key(1)), "a third queue");
    assert_eq!(holds.gives_way(key(2), 1, 50 * MS), None, "its queue has room");
    hold(&mut holds, 2, 5 * MS);
    hold(&mut holds, 1, 0);
    assert_eq!(holds.gives_way(key(1), 1, 50 * MS), Some(key(2)), "a fifth frame");
    assert_eq!(holds.gives_way(key(2), 1, 50 * MS), Some(key(1)), "a fifth frame");
    assert_eq!(holds.gives_way(key(3), 4, 50 * MS), None, "too large for any queue");
    assert_eq!(taken(&mut holds, key(1), &mut pool).len(), 2);
    assert_eq!(holds.gives_way(key(3), 3, 50 * MS), Some(key(2)), "three frames and two are five");
    give_back_all(&mut holds, &mut pool);
}

#[test]
fn nothing_is_held_for_ever() {
    let mut pool = pool();
    let mut holds = HoldQueues::new(HoldLimits::default());
    for (host, now_ns) in [(1, 0), (2, 10), (1, 90), (3, 95)] {
        let frame = pool.take().expect("the pool is large enough");
        assert_eq!(holds.push(key(host), frame, 1, now_ns, nobody), Ok(()));
    }
    assert_eq!(holds.expired(99, 100), None);
    assert_eq!(holds.expired(100, 100), Some(key(1)), "by its first frame, however new the last");
    assert_eq!(taken(&mut holds, key(1), &mut pool).len(), 2);
    assert_eq!(holds.expired(100, 100), None);
    assert_eq!(holds.expired(110, 100), Some(key(2)));
    assert_eq!(holds.keys().collect::<Vec<_>>(), [key(2), key(3)]);
    // Taken from the middle of the order of age, and held for again: at its end.
    let frame = pool.take().expect("the pool is large enough");
    assert_eq!(holds.push(key(1), frame, 1, 110, nobody), Ok(()));
    assert_eq!(taken(&mut holds, key(3), &mut pool).len(), 1);
    assert_eq!(holds.keys().collect::<Vec<_>>(), [key(2), key(1)]);
    give_back_all(&mut holds, &mut pool);
}

/// Taken, and held again for the same neighbour or for another: as old as before, at any place of the order.
#[test]
fn what_was_held_before_keeps_its_age() {
    let mut pool = pool();
    for (since_ns, order) in
        [(5, [4, 1, 2, 3]), (10, [1, 4, 2, 3]), (25, [1, 2, 4, 3]), (40, [1, 2, 3, 4])]
    {
        let mut holds = HoldQueues::new(HoldLimits::default());
        let mut hold = |host, since_ns| {
            let frame = pool.take().expect("the pool is large enough");
            assert_eq!(holds.push(key(host), frame, 1, since_ns, nobody), Ok(()));
        };
        for (host, since_ns) in [(1, 10), (2, 20), (3, 30), (4, since_ns)] {
            hold(host, since_ns);
        }
        assert_eq!(holds.since_ns(key(4)), Some(since_ns));
        assert_eq!(holds.keys().collect::<Vec<_>>(), order.map(key));
        let [first, .., last] = order;
        assert_eq!(holds.expired(105, 100), (since_ns == 5).then_some(key(4)));
        assert_eq!(holds.expired(110, 100), Some(key(first)));
        // The chain holds together both ways: from the middle, from the ends.
        for host in [order[1], last, first, order[2]] {
            assert_eq!(taken(&mut holds, key(host), &mut pool).len(), 1);
        }
        assert_eq!((holds.since_ns(key(4)), holds.keys().count()), (None, 0));
    }
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

/// Frames are what receivers want, so frames are what is bounded: of each queue, and of all.
#[test]
fn a_packet_of_many_frames_counts_by_its_frames() {
    let mut pool = pool();
    let mut holds = HoldQueues::new(limits(8, 12, 8));
    let mut hold = |holds: &mut HoldQueues, host: usize, frames: usize| {
        let frame = pool.take().expect("the pool is large enough");
        let (result, dropped) = held(holds, host, frame, frames, &mut pool);
        let is_held = match result {
            Ok(()) => true,
            Err(frame) => {
                pool.give_back(frame);
                false
            }
        };
        (is_held, dropped.len(), holds.len(), holds.frames())
    };
    assert_eq!(hold(&mut holds, 1, 2), (true, 0, 1, 2));
    assert_eq!(hold(&mut holds, 1, 3), (true, 0, 2, 5));
    assert_eq!(hold(&mut holds, 1, 3), (true, 0, 3, 8));
    assert_eq!(hold(&mut holds, 1, 4), (true, 2, 2, 7), "the two oldest had five");
    assert_eq!(hold(&mut holds, 1, 9), (false, 0, 2, 7), "too large for any queue");
    assert_eq!(hold(&mut holds, 2, 5), (true, 0, 3, 12));
    assert_eq!(hold(&mut holds, 2, 1), (false, 0, 3, 12), "nobody makes room in another queue");
    assert_eq!(hold(&mut holds, 2, 4), (true, 1, 3, 11), "but in its own");
    assert_eq!(hold(&mut holds, 2, 6), (false, 0, 3, 11), "more than its own has");
    assert_eq!(hold(&mut holds, 1, 8), (true, 2, 2, 12));
    give_back_all(&mut holds, &mut pool);
    assert_eq!((holds.len(), holds.frames()), (0, 0));
}

/// Random use against a plain model: a map of lists. And the map inside must not have grown.
#[test]
fn queues_agree_with_a_map_of_lists_and_allocate_nothing() {
    let mut pool = pool();
    let mut holds = HoldQueues::new(limits(5, 40, 12));
    let capacity = holds.by_key.capacity();
    let mut model: HashMap<usize, Vec<(u32, usize)>> = HashMap::new();
    let sum = |list: &Vec<(u32, usize)>| list.iter().map(|(_, frames)| frames).sum::<usize>();
    let mut random = 1u32;
    for step in 0..20_000 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let host = (random >> 16) as usize % 20;
        if random >> 29 == 0 {
            let expected = model.remove(&host).unwrap_or_default();
            let expected: Vec<u32> = expected.into_iter().map(|(index, _)| index).collect();
            assert_eq!(taken(&mut holds, key(host), &mut pool), expected);
        } else {
            let frame = pool.take().expect("the pool is large enough");
            let index = frame.index();
            let frames = [1, 1, 1, 2, 3, 5, 6, 1][(random >> 10) as usize % 8];
            let queues = model.len();
            // What the model says: the oldest go, one by one, until it fits its queue.
            let mut list = model.get(&host).cloned().unwrap_or_default();
            let before = sum(&list);
            let mut expected = Vec::new();
            while !list.is_empty() && sum(&list) + frames > 5 {
                expected.push(list.remove(0).0);
            }
            let all: usize = model.values().map(sum).sum::<usize>() - before + sum(&list);
            let fits = frames <= 5 && all + frames <= 40;
            let has_queue = model.contains_key(&host) || queues < 12;
            let mut dropped = Vec::new();
            let result = holds.push(key(host), frame, frames, step, |oldest| {
                dropped.push(oldest.index());
                pool.give_back(oldest);
            });
            match result {
                Ok(()) => {
                    assert!(fits && has_queue);
                    assert_eq!(dropped, expected);
                    list.push((index, frames));
                    model.insert(host, list);
                }
                Err(frame) => {
                    assert!(!fits || !has_queue);
                    assert_eq!(dropped, []);
                    pool.give_back(frame);
                }
            }
        }
        assert_eq!(holds.queues(), model.len());
        assert_eq!(holds.len(), model.values().map(Vec::len).sum());
        assert_eq!(holds.frames(), model.values().map(sum).sum());
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

/// No packet has to make room.
fn nobody(frame: Frame) {
    panic!("{frame:?} made room");
}

/// The fate of a packet, and the packets that made room for it.
fn held(
    holds: &mut HoldQueues,
    host: usize,
    frame: Frame,
    frames: usize,
    pool: &mut Pool,
) -> (Result<(), Frame>, Vec<u32>) {
    let mut dropped = Vec::new();
    let result = holds.push(key(host), frame, frames, 0, |oldest| {
        dropped.push(oldest.index());
        pool.give_back(oldest);
    });
    (result, dropped)
}

fn push(holds: &mut HoldQueues, host: usize, pool: &mut Pool) -> u32 {
    let frame = pool.take().expect("the pool is large enough");
    let index = frame.index();
    assert_eq!(holds.push(key(host), frame, 1, 0, nobody), Ok(()));
    index
}

fn refused(holds: &mut HoldQueues, host: usize, pool: &mut Pool) {
    let frame = pool.take().expect("the pool is large enough");
    match holds.push(key(host), frame, 1, 0, nobody) {
        Err(frame) => pool.give_back(frame),
        Ok(()) => panic!("it was held"),
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
