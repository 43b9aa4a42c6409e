//! Both directions, to a file and to a port; frames add up after each.

use manylane_frame::vocabulary::{QueueId, SegmentKind, Segments, WorkerId};

use super::super::fault::{self, FaultConfig};
use super::super::pcap::{Capture, FileConfig, Writer, wall_clock};
use super::super::rig::{PORT, bytes, free, number, numbers, packet, pool, sink, source, wire};
use super::super::{Receiver as AnyReceiver, Wait};
use super::*;

/// Packets of one frame and of many.
fn len(number: u32) -> usize {
    match number % 100 {
        4 => 65_000,
        _ => [60, 1500, 3000, 128, 1792, 1793][number as usize % 6],
    }
}

#[test]
fn what_is_received_is_there_twice() {
    let mut pool = pool(4096);
    let (to, seen) = sink();
    let mut receiver = AnyReceiver::Tee(Box::new(Receiver::new(source(300, 48, len), to)));
    let mut received = Vec::new();
    while !matches!(receiver.wait(), Wait::Done) {
        let mut batch = Batch::new();
        receiver.receive(&mut pool, &mut batch, 0);
        for frame in batch.iter() {
            let meta = pool.region().meta(frame);
            assert_eq!((meta.ingress, meta.queue, meta.later), (PORT, QueueId(2), false));
            received.push(bytes(pool.region(), frame));
        }
        pool.give_back_all(&mut batch);
    }
    assert_eq!(received.len(), 300);
    assert_eq!(*seen.lock().expect("no holder panics"), received);
    assert_eq!(receiver.copies(), CopyCounts { copied: 300, ..CopyCounts::default() });
    assert_eq!(free(&mut pool), 4096);
}

#[test]
fn what_is_transmitted_is_there_twice_and_completed_once() {
    let mut pool = pool(4096);
    let ((inner, seen), (to, copied)) = (sink(), sink());
    let mut transmitter = AnyTransmitter::Tee(Box::new(Transmitter::new(inner, to)));
    for first in (0..600).step_by(20) {
        let mut batch = Batch::new();
        for number in first..first + 20 {
            let frame = packet(&mut pool, number, len(number)).expect("there are frames");
            batch.push(frame).expect("there is room");
        }
        let mut completed = 0;
        let sent = transmitter.transmit(&mut pool, &mut batch, |_| completed += 1);
        assert_eq!((sent.frames, completed, batch.len()), (20, 20, 0));
        transmitter.flush();
    }
    let seen = seen.lock().expect("no holder panics");
    assert_eq!(seen.len(), 600);
    assert_eq!(*seen, *copied.lock().expect("no holder panics"));
    assert_eq!(transmitter.copies().copied, 600);
    assert_eq!(free(&mut pool), 4096);
}

/// A packet without room is not copied, and is copied once when it is transmitted after all.
#[test]
fn only_what_was_taken_is_copied() {
    let mut pool = pool(512);
    let (inner, mut far) = wire(8);
    let (to, copied) = sink();
    let mut transmitter = AnyTransmitter::Tee(Box::new(Transmitter::new(inner, to)));
    let mut batch = Batch::new();
    for number in 0..20 {
        let frame = packet(&mut pool, number, 60).expect("there are frames");
        batch.push(frame).expect("there is room");
    }
    let mut arrived = Vec::new();
    for (taken, left) in [(8, 12), (8, 4), (4, 0)] {
        assert_eq!(transmitter.transmit(&mut pool, &mut batch, |_| {}).frames, taken);
        assert_eq!(batch.len(), left);
        assert_eq!(numbers(&copied), Vec::from_iter(0..20 - left as u32));
        transmitter.flush();
        let mut far_batch = Batch::new();
        far.receive(&mut pool, &mut far_batch, 0);
        arrived.extend(far_batch.iter().map(|frame| number(&bytes(pool.region(), frame))));
        pool.give_back_all(&mut far_batch);
    }
    assert_eq!(arrived, Vec::from_iter(0..20));
    assert_eq!(free(&mut pool), 512);
}

/// A copy never makes a packet wait.
#[test]
fn a_copy_without_a_place_is_counted() {
    let mut pool = pool(512);
    let (to, mut far) = wire(8);
    let (inner, seen) = sink();
    let mut transmitter = AnyTransmitter::Tee(Box::new(Transmitter::new(inner, to)));
    let mut batch = Batch::new();
    for number in 0..20 {
        let frame = packet(&mut pool, number, 60).expect("there are frames");
        batch.push(frame).expect("there is room");
    }
    assert_eq!(transmitter.transmit(&mut pool, &mut batch, |_| {}).frames, 20);
    assert_eq!(numbers(&seen).len(), 20);
    assert_eq!(
        transmitter.copies(),
        CopyCounts { copied: 8, refused: 12, ..CopyCounts::default() }
    );
    transmitter.flush();
    let mut batch = Batch::new();
    assert_eq!(far.receive(&mut pool, &mut batch, 0), 8);
    assert!(batch.iter().all(|frame| !pool.region().meta(frame).later), "the far end's own");
    pool.give_back_all(&mut batch);
    assert_eq!(free(&mut pool), 512);
}

#[test]
fn a_copy_without_a_frame_is_counted() {
    let mut pool = pool(40);
    let (to, copied) = sink();
    // 32 frames each: one packet, and no copy.
    let mut receiver = AnyReceiver::Tee(Box::new(Receiver::new(source(3, 1, |_| 65_000), to)));
    for _ in 0..3 {
        let mut batch = Batch::new();
        assert_eq!(receiver.receive(&mut pool, &mut batch, 0), 1);
        pool.give_back_all(&mut batch);
    }
    assert_eq!(receiver.copies(), CopyCounts { no_frame: 3, ..CopyCounts::default() });
    assert!(numbers(&copied).is_empty());
    assert_eq!(free(&mut pool), 40);
}

/// Copies of either direction may be delayed themselves: they are reported, waited for, and returned at the
/// end; and the file of copies of copies is complete.
#[test]
fn delayed_copies_are_waited_for_and_returned() {
    let mut pool = pool(512);
    let late = |worker| {
        let ((inner, _), (to, seen)) = (sink(), sink());
        let copied = AnyTransmitter::Tee(Box::new(Transmitter::new(inner, to)));
        let config = FaultConfig { delay: 1.0, delay_ns: 700..=700, ..FaultConfig::default() };
        let faults = fault::Transmitter::new(copied, WorkerId(worker), config, Box::new(|| 0));
        (AnyTransmitter::Fault(Box::new(faults)), seen)
    };
    let ((to, received), (other, sent)) = (late(0), late(1));
    let mut receiver = AnyReceiver::Tee(Box::new(Receiver::new(source(3, 4, len), to)));
    let mut transmitter = AnyTransmitter::Tee(Box::new(Transmitter::new(sink().0, other)));
    let mut batch = Batch::new();
    assert_eq!(receiver.receive(&mut pool, &mut batch, 0), 3);
    assert!(matches!(receiver.wait(), Wait::After(700)), "the source has no more");
    assert_eq!(receiver.posted(), 1 + 1 + 2);
    transmitter.transmit(&mut pool, &mut batch, |_| {});
    assert_eq!((transmitter.held(), transmitter.due_ns()), (1 + 1 + 2, Some(700)));

    let mut others = Vec::new();
    receiver.unwrapped(&mut pool, &mut others);
    transmitter.unwrapped(&mut pool, &mut others, &mut |_, _| panic!("all were completed"));
    assert_eq!((numbers(&received), numbers(&sent)), (vec![0, 1, 2], vec![0, 1, 2]));
    assert!(others.iter().all(|exit| matches!(exit, AnyTransmitter::Memory(_))));
    assert_eq!((others.len(), free(&mut pool)), (4, 512));
}

/// A transmitter that accepts only plain packets gets no others: it would send them wrong.
#[test]
fn packets_that_the_other_transmitter_rejects_are_not_copied() {
    let mut pool = pool(128);
    let (to, _) = sink();
    let mut copies = Copies::new(to);
    copies.takes = Offload::NONE;
    let mut plain = packet(&mut pool, 1, 60).expect("there are frames");
    let chain = packet(&mut pool, 2, 9000).expect("there are frames");
    let fits = |copies: &Copies, pool: &mut Pool, frame: &Frame| match copies.make(pool, frame) {
        Ok(copy) => {
            pool.give_back(copy);
            true
        }
        Err(why) => {
            assert!(matches!(why, Lack::Offload));
            false
        }
    };
    assert!(fits(&copies, &mut pool, &plain));
    assert!(!fits(&copies, &mut pool, &chain));
    pool.region().meta_mut(&mut plain).checksum = Checksum::Partial { start: 290, offset: 16 };
    assert!(!fits(&copies, &mut pool, &plain));
    copies.takes.checksum = true;
    assert!(fits(&copies, &mut pool, &plain));
    let segments = Segments { kind: SegmentKind::Udp, ecn: false, size: 10 };
    pool.region().meta_mut(&mut plain).segments = segments;
    assert!(!fits(&copies, &mut pool, &plain));
    pool.give_back(plain);
    pool.give_back(chain);
    assert_eq!(free(&mut pool), 128);
}

/// Into a file from both directions, with one lane each; no frame is used for received packets.
#[test]
fn a_file_has_both_directions() {
    let folder = std::env::temp_dir().join(format!("manylane-tee-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("there is a folder for such files");
    let path = folder.join("tee.pcapng");
    let clocks = vec![wall_clock(), wall_clock()];
    let (writer, mut lanes) =
        Writer::create(&path, PORT, clocks, &FileConfig::default()).expect("there is room");
    let mut lane = || AnyTransmitter::Pcap(Box::new(lanes.pop().expect("there are two")));
    let mut pool = pool(40);
    let (inner, seen) = sink();
    let mut receiver = AnyReceiver::Tee(Box::new(Receiver::new(source(30, 1, |_| 65_000), lane())));
    let mut transmitter = AnyTransmitter::Tee(Box::new(Transmitter::new(inner, lane())));
    let mut batch = Batch::new();
    while !matches!(receiver.wait(), Wait::Done) {
        receiver.receive(&mut pool, &mut batch, 0);
        for frame in batch.iter_mut() {
            pool.truncate(frame, 100); // Otherwise the transmitter has no room for a copy.
        }
        transmitter.transmit(&mut pool, &mut batch, |_| {});
    }
    assert_eq!((receiver.copies().copied, transmitter.copies().copied), (30, 30));
    assert_eq!(numbers(&seen), Vec::from_iter(0..30));
    let mut others = Vec::new();
    let receiver = receiver.unwrapped(&mut pool, &mut others);
    let transmitter = transmitter.unwrapped(&mut pool, &mut others, &mut |_, _| {});
    assert!(matches!(receiver, AnyReceiver::Memory(_)));
    assert!(matches!(transmitter, AnyTransmitter::Memory(_)));
    assert_eq!(others.len(), 2);
    drop(others);
    assert_eq!(writer.run(|_| {}).expect("there is room").packets, 60);
    let capture = Capture::read(&path, 1 << 30).expect("we write good captures");
    for (len, expected) in [(65_000, 30), (100, 30)] {
        let of_len = (0..60).filter(|&packet| capture.bytes(packet).len() == len);
        let numbers = Vec::from_iter(of_len.map(|packet| number(capture.bytes(packet))));
        assert_eq!(numbers, Vec::from_iter(0..expected));
    }
    std::fs::remove_dir_all(&folder).expect("it is ours");
    assert_eq!(free(&mut pool), 40);
}
