//! Both ends in one process: over anonymous memory, and by two mappings of one memfd.

use super::layout::BLOCK_HEADER;
use super::record::HEADER;
use super::*;
use manylane_frame::vocabulary::{DropReason, Point, PortId, QueueId, WorkerId};
use manylane_sync::hook::Generation;
use std::sync::Arc;

mod hostile;

/// A packet may lie in any number of frames, and every snap length keeps its first bytes.
#[test]
fn what_is_pushed_is_read_back_up_to_the_snap_length() {
    let (lanes, mut readers) = lanes(&SMALL, 1).expect("there is memory");
    let mut writer = lanes[0].writer().expect("nobody else writes");
    let packet: Vec<u8> = (0..40).collect();
    for cut in [0, 1, 39, 40] {
        let parts = [&packet[..cut], &[], &packet[cut..]];
        for snap in (0..50).chain([u32::MAX]) {
            let record = Record { reason: Some(DropReason::Shutdown), ..record(7, 40) };
            assert!(writer.push(ONE, &record, parts, snap), "{snap}");
            assert!(writer.publish());
            let block = readers[0].borrow().expect("one was published");
            let kept = &packet[..packet.len().min(snap as usize)];
            let packets: Vec<_> = block.packets().collect();
            assert_eq!(packets, [Packet { record, bytes: kept }], "snap {snap}, cut at {cut}");
        }
    }
    assert_eq!(readers[0].damaged(), 0);
}

/// The length on the wire bounds the bytes copied, and the parts bound the length reported.
#[test]
fn a_length_that_is_not_that_of_the_parts_is_no_harm() {
    let (lanes, mut readers) = lanes(&SMALL, 1).expect("there is memory");
    let mut writer = lanes[0].writer().expect("nobody else writes");
    for len in [3, 9, u32::MAX] {
        assert!(writer.push(ONE, &record(0, len), [&b"abcdef"[..]], 3000));
    }
    writer.publish();
    let block = readers[0].borrow().expect("one was published");
    let kept: Vec<_> = block.packets().map(|packet| packet.bytes).collect();
    assert_eq!(kept, [&b"abc"[..], b"abcdef", b"abcdef"]);
}

/// Many rounds of all blocks, in order, with records of every length up to a bound.
#[test]
fn blocks_come_round_and_keep_their_order() {
    let (lanes, mut readers) = lanes(&SMALL, 2).expect("there is memory");
    let bytes = [0x5a; 600];
    let (mut next, mut blocks) = (0, 0);
    for time in 0..10_000 {
        let mut writer = lanes[1].writer().expect("nobody else writes");
        let len = (time % 600) as u32;
        assert!(writer.push(ONE, &record(time, len), [&bytes[..len as usize]], u32::MAX));
        drop(writer);
        blocks += u32::from(read(&mut readers[1], &mut next));
    }
    assert!(blocks > 500, "they came round: {blocks}");
    lanes[1].writer().expect("nobody else writes").publish();
    assert!(read(&mut readers[1], &mut next));
    assert_eq!(next, 10_000);
    let totals = Totals { packets: 10_000, bytes: sum_of_lengths(10_000), lost: 0, clamped: 0 };
    assert_eq!((lanes[1].totals(), readers[1].totals()), (totals, totals));
    assert_eq!((lanes[0].totals(), readers[0].totals()), Default::default());
}

/// At the end of a block one byte decides.
#[test]
fn a_record_that_just_fits_stays_and_one_byte_more_moves_on() {
    let room = SMALL.block_size as usize - BLOCK_HEADER;
    let bytes = vec![1; room];
    for (second, fits) in [(room - 2 * HEADER - 8, true), (room - 2 * HEADER - 7, false)] {
        let (lanes, mut readers) = lanes(&SMALL, 1).expect("there is memory");
        let mut writer = lanes[0].writer().expect("nobody else writes");
        assert!(writer.push(ONE, &record(0, 8), [&bytes[..8]], u32::MAX));
        assert!(writer.push(ONE, &record(1, second as u32), [&bytes[..second]], u32::MAX));
        assert!(writer.publish());
        let block = readers[0].borrow().expect("one was published");
        assert_eq!(block.packets().count(), if fits { 2 } else { 1 });
        drop(block);
        assert_eq!(readers[0].is_waiting(), !fits);
        assert_eq!((readers[0].damaged(), lanes[0].totals().clamped), (0, 0));
    }
}

/// As the kernel does, which logs "packet too big, clamped" (`tpacket_rcv`).
#[test]
fn a_packet_larger_than_a_block_is_clamped_and_counted() {
    let (lanes, mut readers) = lanes(&SMALL, 1).expect("there is memory");
    let mut writer = lanes[0].writer().expect("nobody else writes");
    let bytes: Vec<u8> = (0..9000).map(|at| (at % 251) as u8).collect();
    assert!(writer.push(ONE, &record(0, 2), [&b"xy"[..]], u32::MAX));
    assert!(writer.push(ONE, &record(1, 9000), bytes.chunks(100), u32::MAX));
    assert!(writer.publish());
    assert_eq!(readers[0].borrow().expect("the first").packets().count(), 1);
    let block = readers[0].borrow().expect("the large one");
    let kept = &bytes[..SMALL.block_size as usize - BLOCK_HEADER - HEADER];
    let packets: Vec<_> = block.packets().collect();
    assert_eq!(packets, [Packet { record: record(1, 9000), bytes: kept }]);
    assert_eq!((lanes[0].totals().clamped, lanes[0].totals().lost), (1, 0));
}

#[test]
fn a_new_generation_closes_the_block() {
    let (lanes, mut readers) = lanes(&SMALL, 1).expect("there is memory");
    let mut writer = lanes[0].writer().expect("nobody else writes");
    for (time, generation) in [(0, 0), (1, 0), (2, 5)] {
        assert!(writer.push(Generation(generation), &record(time, 0), [], 0));
    }
    let block = readers[0].borrow().expect("the first is closed");
    assert_eq!((block.generation(), block.len(), block.first_ns()), (Generation(0), 2, Some(0)));
    drop(block);
    assert!(!readers[0].is_waiting());
    writer.publish();
    let block = readers[0].borrow().expect("now the second");
    assert_eq!((block.generation(), block.len(), block.first_ns()), (Generation(5), 1, Some(2)));
}

/// By the clock of the turns, from the end of the first.
#[test]
fn a_block_is_retired_by_its_age() {
    let (lanes, mut readers) = lanes(&SMALL, 1).expect("there is memory");
    let push = || {
        let mut writer = lanes[0].writer().expect("nobody else writes");
        assert!(writer.push(ONE, &record(0, 0), [], 0));
    };
    let turn = |now| lanes[0].writer().expect("nobody else writes").end_turn(now);
    assert!(!lanes[0].is_open());
    push();
    assert!(lanes[0].is_open());
    assert!(!turn(100));
    push();
    assert!(!turn(109));
    assert!(lanes[0].is_open() && !readers[0].is_waiting());
    assert!(turn(110), "it is as old as that");
    assert!(!lanes[0].is_open());
    assert_eq!(readers[0].borrow().expect("it was retired").len(), 2);
    assert!(!turn(200), "nothing new");
    push();
    assert!(!turn(205), "the age is the new block's own");
    assert!(turn(4), "a clock that went back does not hold a block up");
}

/// A block published in the middle of a turn is reported at its end.
#[test]
fn a_full_ring_loses_counts_and_continues() {
    let (lanes, mut readers) = lanes(&SMALL, 1).expect("there is memory");
    let mut writer = lanes[0].writer().expect("nobody else writes");
    let bytes = [0; 3000];
    let mut push = |time| writer.push(ONE, &record(time, 3000), [&bytes[..]], u32::MAX);
    assert_eq!([0, 1, 2, 3].map(&mut push), [true, true, false, false]);
    assert!(lanes[0].is_open(), "the bell is still to be rung");
    assert!(writer.end_turn(0));
    assert!(!lanes[0].is_open());
    assert!(!writer.end_turn(1000));
    assert_eq!(lanes[0].totals(), Totals { packets: 2, bytes: 6000, lost: 2, clamped: 0 });
    assert_eq!(readers[0].totals(), lanes[0].totals());
    let held = readers[0].borrow().expect("two were published");
    assert!(!writer.push(ONE, &record(4, 0), [], 0), "a borrowed block is not free");
    drop(held);
    assert!(writer.push(ONE, &record(5, 0), [], 0));
    writer.publish();
    let times: Vec<_> = std::iter::from_fn(|| readers[0].borrow()?.first_ns()).collect();
    assert_eq!(times, [1, 5]);
}

#[test]
fn only_one_writer_exists_at_a_time() {
    let (lanes, _readers) = lanes(&SMALL, 1).expect("there is memory");
    let writer = lanes[0].writer();
    assert!(writer.is_some());
    assert!(lanes[0].writer().is_none() && lanes[0].writer().is_none());
    assert_eq!(lanes[0].contended(), 2);
    drop(writer);
    assert!(lanes[0].writer().is_some());
}

#[test]
fn a_recycled_ring_is_as_new() {
    let (mut lanes, mut readers) = lanes(&SMALL, 2).expect("there is memory");
    let (mut others, _) = super::lanes(&SMALL, 2).expect("there is memory");
    for lane in &lanes {
        let mut writer = lane.writer().expect("nobody else writes");
        for generation in 0..4 {
            writer.push(Generation(generation), &record(0, 0), [], 0);
        }
        std::mem::forget(writer);
    }
    drop(readers[1].borrow().expect("one was published"));
    let hook = lanes[1].clone();
    assert!(!readers.recycle(&mut lanes, 50), "a hook still has it");
    drop(hook);
    assert!(!readers.recycle(&mut others, 50), "they are another ring's");
    assert!(!readers.recycle(&mut lanes[..1], 50), "there is another");
    lanes.reverse();
    assert!(!readers.recycle(&mut lanes, 50), "they are in another order");
    lanes.reverse();
    assert_eq!(readers[0].totals().lost, 2);
    assert!(readers.recycle(&mut lanes, 50));
    for (lane, reader) in lanes.iter().zip(&mut *readers) {
        assert_eq!((lane.totals(), reader.totals()), Default::default());
        assert!(!reader.is_waiting() && !lane.is_open());
        let mut writer = lane.writer().expect("the forgotten one is gone");
        assert!(writer.push(Generation(0), &record(9, 0), [], 0));
        assert!(!writer.end_turn(0) && !writer.end_turn(49) && writer.end_turn(50));
        let block = reader.borrow().expect("one was published");
        assert_eq!((block.len(), block.first_ns()), (1, Some(9)));
    }
}

/// A thread for each side, and one that wakes the reader; a mapping for each side.
#[test]
fn a_reader_by_another_mapping_is_woken_and_gets_all() {
    use crate::eventfd::EventFd;
    use crate::poll::poll;
    use manylane_sync::doorbell::{Doorbell, Wake};
    use std::os::fd::AsFd;

    let config = RingConfig { blocks: 64, ..SMALL };
    let (memfd, lanes) = create_shared(&config, 2).expect("there is memory");
    let mut readers = open_shared(memfd).expect("it is one");
    let bell = EventFd::open().expect("eventfds are to be had");
    let between = Doorbell::new(EventFd::open().expect("eventfds are to be had"));
    let mut watch = Watch::new(&lanes);
    std::thread::scope(|scope| {
        for lane in &lanes {
            let between = &between;
            scope.spawn(move || {
                let mut time = 0;
                while time < 20_000 {
                    let mut writer = lane.writer().expect("nobody else writes");
                    let len = (time % 600) as u32;
                    time += u64::from(writer.push(ONE, &record(time, len), [&[7; 600][..]], 64));
                    let last = time == 20_000;
                    if if last { writer.publish() } else { writer.end_turn(time) } {
                        between.ring();
                    }
                }
            });
        }
        let all = |watch: &[Arc<Lane>]| watch.iter().all(|lane| lane.totals().packets == 20_000);
        let (bell, between, lanes) = (&bell, &between, &lanes);
        scope.spawn(move || {
            loop {
                // In this order: a packet seen as written was published before `take` checks.
                let done = all(lanes);
                if watch.take() {
                    bell.wake();
                }
                if done && !watch.is_waiting() {
                    break;
                }
                let wait = || poll(&[between.waker().as_fd()], None);
                between.sleep(|| watch.is_waiting() || all(lanes), wait);
                between.waker().drain();
            }
        });
        let mut next = [0; 2];
        while next != [20_000; 2] {
            let mut found = false;
            for (reader, next) in readers.iter_mut().zip(&mut next) {
                found |= read(reader, next);
            }
            if !found {
                readers.sleep(|| poll(&[bell.as_fd()], None));
                bell.drain();
            }
        }
    });
    assert_eq!([0, 1].map(|lane| readers[lane].damaged()), [0, 0]);
}

const SMALL: RingConfig = RingConfig { block_size: 4096, blocks: 2, retire_ns: 10 };
const ONE: Generation = Generation(1);

/// Reads a block whose packets have the times `next` and following, and lengths that depend on them.
fn read(reader: &mut Reader, next: &mut u64) -> bool {
    let Some(block) = reader.borrow() else { return false };
    for packet in block.packets() {
        assert_eq!(packet.record, record(*next, (*next % 600) as u32));
        *next += 1;
    }
    true
}

fn sum_of_lengths(packets: u64) -> u64 {
    (0..packets).map(|time| time % 600).sum()
}

fn record(time_ns: u64, len: u32) -> Record {
    Record {
        time_ns,
        len,
        port: PortId(1),
        queue: QueueId(2),
        worker: WorkerId(3),
        point: Point::Receive,
        reason: None,
    }
}
