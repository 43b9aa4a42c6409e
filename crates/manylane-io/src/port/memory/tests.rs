//! Wires, sinks and sources; frames add up after each.

use super::*;
use manylane_frame::vocabulary::{SegmentKind, Segments};
use manylane_frame::{Depot, RegionConfig};

const PARTIAL: Checksum = Checksum::Partial { start: 290, offset: 16 };
const TCP: Segments = Segments { kind: SegmentKind::Tcp4, ecn: false, size: 1448 };

/// The far end is in the same process: a wire in memory completes no checksum and segments nothing.
#[test]
fn a_wire_keeps_what_is_known_of_a_packet() {
    let (mut pool, mut batch) = (pool(), Batch::new());
    let (mut receivers, mut transmitters) = wires(PortId(7), 1, &[bell()], 8, |_| 0);
    let mut frame = packet(&mut pool, &[b"head", b"and more"]);
    let marks = pool.region().view().meta_mut(&mut frame);
    (marks.checksum, marks.segments, marks.own) = (PARTIAL, TCP, true);
    send(&mut transmitters[0], &mut pool, frame);
    assert_eq!(receivers[0].receive(&mut pool, &mut batch, 0), 1);
    let meta = pool.region().meta(&batch.as_slice()[0]);
    assert_eq!((meta.ingress, meta.queue, meta.own), (PortId(7), QueueId(0), false));
    assert_eq!((meta.checksum, meta.segments, meta.frames()), (PARTIAL, TCP, 2));
    pool.give_back_all(&mut batch);
    assert_all_home(&mut pool);
}

#[test]
fn a_device_that_cannot_verify_passes_marks_on() {
    let (mut pool, mut batch) = (pool(), Batch::new());
    let (mut receivers, mut transmitters) = wires(PortId(7), 1, &[bell()], 8, |_| 0);
    let mut receiver = receivers.remove(0).with_checksum(Checksum::Unknown);
    for checksum in [Checksum::Valid, PARTIAL] {
        let mut frame = packet(&mut pool, &[b"packet"]);
        pool.region().view().meta_mut(&mut frame).checksum = checksum;
        send(&mut transmitters[0], &mut pool, frame);
    }
    assert_eq!(receiver.receive(&mut pool, &mut batch, 0), 2);
    let known: Vec<_> = batch.iter().map(|frame| pool.region().meta(frame).checksum).collect();
    assert_eq!(known, [Checksum::Unknown, PARTIAL]);
    pool.give_back_all(&mut batch);
    assert_all_home(&mut pool);
}

#[test]
fn packets_are_sent_and_frames_wait() {
    let mut pool = pool();
    let (mut receivers, mut transmitters) = wires(PortId(7), 1, &[bell()], 8, |_| 0);
    let mut batch = Batch::new();
    for parts in [&[&b"one"[..]][..], &[b"two", b"2"], &[b"three", b"3", b"", b"3"]] {
        batch.push(packet(&mut pool, parts)).expect("a batch holds 64");
    }
    let mut completed = 0;
    let sent = transmitters[0].transmit(&mut pool, &mut batch, |_| completed += 1);
    assert_eq!((sent, completed), (Sent { frames: 3, bytes: 3 + 4 + 7 }, 3));
    assert_eq!(receivers[0].waiting(), 0, "nobody has been told yet");
    transmitters[0].flush();
    assert_eq!(receivers[0].waiting(), 1 + 2 + 4);
    assert_eq!(receivers.remove(0).close(&mut pool), 7);
    assert_all_home(&mut pool);
}

/// A pool has few frames; long packets must not keep more of them than the wire's sum allows.
#[test]
fn a_wire_is_full_of_frames_before_it_is_full_of_chains() {
    let mut pool = pool();
    let (mut receivers, mut transmitters) = wires(PortId(7), 1, &[bell()], 100, |_| 0);
    let mut batch = Batch::new();
    for _ in 0..5 {
        batch.push(packet(&mut pool, &[&b"part"[..]; 33])).expect("a batch holds 64");
    }
    batch.push(packet(&mut pool, &[b"single"])).expect("a batch holds 64");
    let sent = transmitters[0].transmit(&mut pool, &mut batch, |_| ());
    assert_eq!((sent.frames, batch.len()), (3, 3), "32 more each; none passes the fourth");
    transmitters[0].flush();
    assert_eq!(receivers[0].waiting(), 3 * 33);
    let mut far = Batch::new();
    assert_eq!(receivers[0].receive(&mut pool, &mut far, 0), 3);
    assert_eq!(transmitters[0].transmit(&mut pool, &mut batch, |_| ()).frames, 3);
    pool.give_back_all(&mut far);
    transmitters[0].flush();
    assert_eq!(receivers.remove(0).close(&mut pool), 2 * 33 + 1);
    assert_all_home(&mut pool);
}

#[test]
fn a_sink_sees_whole_packets() {
    let mut pool = pool();
    let (tell, told) = std::sync::mpsc::channel();
    let mut transmitter = Transmitter::into_sink(Box::new(move |region, frames| {
        for frame in frames {
            let bytes: Vec<u8> = region.view().parts(frame).flatten().copied().collect();
            tell.send(bytes).expect("the test listens");
        }
    }));
    let mut batch = Batch::new();
    batch.push(packet(&mut pool, &[b"in ", b"two"])).expect("it is empty");
    let sent = transmitter.transmit(&mut pool, &mut batch, |_| ());
    assert_eq!(sent, Sent { frames: 1, bytes: 6 });
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [b"in two"]);
    assert_all_home(&mut pool);
}

/// A reused frame may have any marks: those that a source does not set must not remain.
#[test]
fn a_source_sets_marks_only_with_with_marks() {
    for (asked, checksum, segments) in
        [(true, PARTIAL, TCP), (false, Checksum::Valid, Segments::NONE)]
    {
        let (mut pool, mut batch) = (pool(), Batch::new());
        let source: Source = Box::new(|pool, batch, _| {
            let mut frame = packet(pool, &[b"head", b"tail"]);
            let marks = pool.region().view().meta_mut(&mut frame);
            (marks.checksum, marks.segments) = (PARTIAL, TCP);
            batch.push(frame).expect("it is empty");
            Next::Done
        });
        let receiver = Receiver::from_source(PortId(7), QueueId(1), source);
        let mut receiver = if asked { receiver.with_marks() } else { receiver };
        assert_eq!(receiver.receive(&mut pool, &mut batch, 0), 1);
        let meta = pool.region().meta(&batch.as_slice()[0]);
        assert_eq!((meta.ingress, meta.queue, meta.frames()), (PortId(7), QueueId(1), 2));
        assert_eq!((meta.checksum, meta.segments), (checksum, segments));
        pool.give_back_all(&mut batch);
        assert_all_home(&mut pool);
    }
}

/// Both ends on threads of their own, a short wire that is full most of the time, packets of 1 to 5
/// frames: they arrive whole and in order, and every frame is returned.
#[test]
fn chains_cross_a_wire_between_two_workers() {
    const PACKETS: u32 = 20_000;
    let depot = depot();
    let (mut receivers, mut transmitters) = wires(PortId(7), 1, &[bell()], 4, |_| 0);
    let (mut receiver, mut transmitter) = (receivers.remove(0), transmitters.remove(0));
    std::thread::scope(|scope| {
        // Short lists, or the receiver's would keep all frames.
        let (mut near, mut far) = (depot.pool_of(128), depot.pool_of(128));
        scope.spawn(move || {
            let (mut batch, mut made) = (Batch::new(), 0_u32);
            while made < PACKETS || !batch.is_empty() {
                while made < PACKETS && batch.len() < 8 {
                    let number = made.to_be_bytes();
                    let parts = [&number[..]; 5];
                    let frame = packet(&mut near, &parts[..1 + made as usize % 5]);
                    batch.push(frame).expect("8 fit");
                    made += 1;
                }
                transmitter.transmit(&mut near, &mut batch, |_| ());
                transmitter.flush();
                std::thread::yield_now();
            }
        });
        let (mut batch, mut seen) = (Batch::new(), 0_u32);
        while seen < PACKETS {
            receiver.receive(&mut far, &mut batch, 0);
            for frame in batch.iter() {
                let expected = seen.to_be_bytes();
                let frames = 1 + seen as usize % 5;
                assert_eq!(far.region().meta(frame).frames(), frames);
                assert!(far.region().view().parts(frame).all(|part| part == expected));
                seen += 1;
            }
            far.give_back_all(&mut batch);
            std::thread::yield_now();
        }
        assert_eq!((receiver.waiting(), receiver.close(&mut far)), (0, 0));
    });
    assert_all_home(&mut depot.pool());
}

fn send(transmitter: &mut Transmitter, pool: &mut Pool, frame: Frame) {
    let mut batch = Batch::new();
    batch.push(frame).expect("it is empty");
    assert_eq!(transmitter.transmit(pool, &mut batch, |_| ()).frames, 1);
    transmitter.flush();
}

fn packet(pool: &mut Pool, parts: &[&[u8]]) -> Frame {
    let mut packet: Option<Frame> = None;
    for bytes in parts {
        let mut frame = pool.take().expect("there are frames");
        let view = pool.region().view();
        view.set_window(&mut frame, 256, 256 + bytes.len() as u16);
        view.set_ingress(&mut frame, PortId(0), QueueId(0), Checksum::Valid);
        view.bytes_mut(&mut frame).copy_from_slice(bytes);
        match &mut packet {
            Some(first) => view.append(first, frame).expect("at most 64"),
            None => packet = Some(frame),
        }
    }
    packet.expect("there is a part")
}

fn bell() -> Arc<Doorbell<EventFd>> {
    Arc::new(Doorbell::new(EventFd::open().expect("descriptors are to be had")))
}

fn pool() -> Pool {
    depot().pool()
}

fn depot() -> Depot {
    let region = Region::new(RegionConfig { frames: FRAMES, frame_size: 2048 });
    Depot::new(region.expect("2 MiB can be mapped"), 4).expect("the first taker")
}

fn assert_all_home(pool: &mut Pool) {
    let frames = Vec::from_iter(std::iter::from_fn(|| pool.take()));
    assert_eq!(frames.len(), FRAMES as usize);
    frames.into_iter().for_each(|frame| pool.give_back(frame));
}

const FRAMES: u32 = 1024;
