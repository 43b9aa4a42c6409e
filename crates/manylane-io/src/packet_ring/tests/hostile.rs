//! The other side writes arbitrary bytes, through its own mapping.

use super::*;
use crate::packet_ring::layout::{InBlock, Layout};
use crate::packet_ring::memory::Memory;
use manylane_sync::primitive::AtomicBool;
use manylane_sync::primitive::foreign::Ordering;
use std::os::fd::AsFd;
use std::ptr;

/// Random writes anywhere, while the worker writes and a reader reads: no side panics, and none leaves the
/// mapping, which lies between two inaccessible pages.
#[test]
fn random_writes_over_the_whole_ring_harm_only_their_author() {
    let (memfd, lanes) = create_shared(&SMALL, 2).expect("there is memory");
    let theirs = third_mapping(&memfd, 2);
    let mut readers = open_shared(memfd).expect("it is one");
    let packets = scribble(&theirs, 0..theirs.layout().len(), &lanes[0], |random| {
        for reader in &mut *readers {
            while let Some(block) = reader.borrow() {
                assert!(block.packets().map(|packet| look_at(packet.bytes)).count() <= 200);
                if random(2) == 0 {
                    break;
                }
            }
            reader.totals();
        }
    });
    assert!(readers.iter().any(|reader| reader.damaged() > 0), "nothing was damaged");
    let totals = lanes[0].totals();
    let waiting = packets - totals.packets - totals.lost;
    assert!(waiting <= 200, "the worker's own counts are true: {totals:?} of {packets}");
}

/// As above in one lane only: the bytes around it stay unchanged, and a turn writes no other lane.
#[test]
fn a_worker_writes_only_in_its_own_lane() {
    let (memfd, lanes) = create_shared(&SMALL, 3).expect("there is memory");
    let theirs = third_mapping(&memfd, 3);
    let layout = *theirs.layout();
    let lane = layout.first_block(1)..layout.first_block(2);
    let counts = layout.lane(1)..layout.lane(2);
    let others = |offset: &usize| !lane.contains(offset) && !counts.contains(offset);
    let canary = |offset: usize| offset as u64 ^ 0x5ca1_ab1e_0ddb_a115;
    let words = || (0..layout.len()).step_by(8).filter(others);
    words().for_each(|at| theirs.word(at).store(canary(at), Ordering::Relaxed));
    scribble(&theirs, lane.clone(), &lanes[1], |_| {});
    for at in words() {
        assert_eq!(theirs.word(at).load(Ordering::Relaxed), canary(at), "at {at}");
    }
}

#[test]
fn a_damaged_block_ends_where_it_stops_making_sense() {
    const TIME: usize = BLOCK_HEADER;
    const SECOND: usize = TIME + HEADER + 8;
    let room = SMALL.block_size as u64 - BLOCK_HEADER as u64;
    // The offset written to, and how many packets are then found.
    let harm = |at, value, found| (at, value, found);
    for (at, value, found) in [
        harm(8 * InBlock::Packets as usize, 4, 3),
        harm(8 * InBlock::Packets as usize, u64::MAX, 3),
        harm(8 * InBlock::Bytes as usize, HEADER as u64 + 8 + HEADER as u64 - 8, 1),
        harm(8 * InBlock::Bytes as usize, room + 8, 3),
        harm(8 * InBlock::Bytes as usize, u64::MAX, 3),
        // Captured and length, in the second record; then its port, queue, worker, point and reason.
        harm(SECOND + 8, u64::MAX, 1),
        harm(SECOND + 8, room - 2 * HEADER as u64 - 7, 1),
        harm(SECOND + 16, u64::from_ne_bytes([0, 0, 0, 0, 0, 0, 4, 255]), 1),
        harm(SECOND + 16, u64::from_ne_bytes([0, 0, 0, 0, 0, 0, 0, 254]), 1),
    ] {
        let (memfd, lanes) = create_shared(&SMALL, 1).expect("there is memory");
        let theirs = third_mapping(&memfd, 1);
        let mut readers = open_shared(memfd).expect("it is one");
        let mut writer = lanes[0].writer().expect("nobody else writes");
        for time in 0..3 {
            assert!(writer.push(ONE, &record(time, 8), [&b"12345678"[..]], 8));
        }
        writer.publish();
        let block = theirs.layout().first_block(0);
        theirs.word(block + at).store(value, Ordering::Relaxed);
        let packets = readers[0].borrow().expect("one was published").packets().count();
        assert_eq!(packets, found, "{value:#x} at {at}");
        assert_eq!(readers[0].damaged(), 1, "{value:#x} at {at}");
        assert!(readers[0].borrow().is_none(), "it went back all the same");
    }
}

/// Such a reader harms only itself: its own blocks, its own losses.
#[test]
fn a_reader_that_claims_all_blocks_loses_all_packets() {
    let (memfd, lanes) = create_shared(&SMALL, 1).expect("there is memory");
    let theirs = third_mapping(&memfd, 1);
    for block in 0..2 {
        let status = theirs.layout().first_block(0) + block * SMALL.block_size as usize;
        theirs.word(status).store(0xdead, Ordering::Relaxed);
    }
    let mut writer = lanes[0].writer().expect("nobody else writes");
    assert!(!writer.push(ONE, &record(0, 0), [], 0));
    assert!(!writer.publish());
    assert_eq!(lanes[0].totals().lost, 1);
}

/// A worker pushes random packets while another thread writes random words into `range`, and `meanwhile` runs in
/// between. Returns how many packets the worker pushed or lost.
fn scribble(
    theirs: &Memory,
    range: std::ops::Range<usize>,
    lane: &Lane,
    mut meanwhile: impl FnMut(&mut dyn FnMut(u64) -> u64),
) -> u64 {
    const PACKETS: u64 = 100_000;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = random(1);
            let bytes = [0xc3; 9000];
            for time in 0..PACKETS {
                let mut writer = lane.writer().expect("nobody else writes");
                let longest = [16, 300, 9000][random(3) as usize];
                let len = random(longest) as usize;
                let snap = [0, 64, u32::MAX][random(3) as usize];
                let generation = Generation(time >> 10);
                writer.push(generation, &record(time, len as u32), bytes[..len].chunks(1500), snap);
                writer.end_turn(time);
                lane.reader_sleeps();
            }
            // Relaxed: no other memory depends on it.
            done.store(true, Ordering::Relaxed);
        });
        let mut random = random(2);
        while !done.load(Ordering::Relaxed) {
            for _ in 0..random(50) {
                let at = range.start as u64 + random((range.end - range.start) as u64);
                // Mostly plausible values.
                let value = [0, 1, random(5000), random(u64::MAX)][random(4) as usize];
                theirs.word(at as usize & !7).store(value, Ordering::Relaxed);
            }
            // And the words that a side acts on.
            let block = random(u64::from(SMALL.blocks)) as usize * SMALL.block_size as usize;
            let word = theirs.layout().first_block(0) + block + 8 * random(4) as usize;
            if range.contains(&word) {
                theirs.word(word).store(random(3), Ordering::Relaxed);
            }
            meanwhile(&mut random);
        }
    });
    PACKETS
}

fn third_mapping(memfd: &impl AsFd, lanes: u32) -> Memory {
    let layout = Layout::of(&SMALL, lanes).expect("the sizes are right");
    Memory::shared(layout, memfd.as_fd()).expect("it can be mapped again")
}

/// Reads all bytes, which may change meanwhile.
fn look_at(bytes: &[u8]) {
    for byte in bytes {
        // SAFETY: a reference is valid for a read.
        unsafe { ptr::read_volatile(byte) };
    }
}

/// Numbers below the argument (xorshift).
fn random(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    }
}
