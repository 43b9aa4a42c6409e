//! Helpers for tests of wrapping ports: numbered packets in, recorded packets out.

use std::sync::{Arc, Mutex};

use manylane_frame::vocabulary::{Checksum, PortId, QueueId};
use manylane_frame::{Batch, Depot, Frame, HEADROOM, Pool, RESERVE, Region, RegionConfig};

use super::memory::{self, Next};
use super::write::write;
use super::{Receiver, Transmitter};

pub(super) const PORT: PortId = PortId(5);

/// Bytes of packets, in order.
pub(super) type Seen = Arc<Mutex<Vec<Vec<u8>>>>;

/// A pool with `frames` frames for received packets.
pub(super) fn pool(frames: u32) -> Pool {
    let frames = frames + RESERVE as u32;
    let region = Region::new(RegionConfig { frames, frame_size: 2048 });
    let depot = Depot::new(region.expect("some MiB can be mapped"), 2);
    depot.expect("the frames are there").pool()
}

/// How many frames are free for received packets.
pub(super) fn free(pool: &mut Pool) -> u32 {
    let frames = Vec::from_iter(std::iter::from_fn(|| pool.take()));
    let count = frames.len() as u32;
    frames.into_iter().for_each(|frame| pool.give_back(frame));
    count - RESERVE as u32
}

/// The content of packet `number`: the number, and then its lowest byte repeated.
pub(super) fn content(number: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![number as u8; len];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// The number in a packet.
pub(super) fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(*bytes.first_chunk().expect("a packet has four bytes"))
}

pub(super) fn packet(pool: &mut Pool, number: u32, len: usize) -> Option<Frame> {
    let content = content(number, len);
    let mut left = content.as_slice();
    let mut frame = write(pool, HEADROOM, len, |_, to| {
        let (now, later) = left.split_at(to.len());
        to.copy_from_slice(now);
        left = later;
    })?;
    pool.region().set_ingress(&mut frame, PORT, QueueId(0), Checksum::Valid);
    Some(frame)
}

/// A queue that receives `count` packets, up to `burst` at a time, of `len` bytes each.
pub(super) fn source(
    count: u32,
    burst: usize,
    len: impl Fn(u32) -> usize + Send + 'static,
) -> Receiver {
    let mut next = 0;
    let source = move |pool: &mut Pool, batch: &mut Batch, _| {
        for _ in 0..burst.min(batch.room()) {
            if next == count {
                return Next::Done;
            }
            let Some(frame) = packet(pool, next, len(next)) else { return Next::More };
            batch.push(frame).expect("there is room");
            next += 1;
        }
        Next::More
    };
    Receiver::Memory(memory::Receiver::from_source(PORT, QueueId(2), Box::new(source)))
}

/// A transmitter that records its packets.
pub(super) fn sink() -> (Transmitter, Seen) {
    let seen = Seen::default();
    let to = seen.clone();
    let sink = move |region: &Region, frames: &[Frame]| {
        to.lock()
            .expect("no holder panics")
            .extend(frames.iter().map(|frame| bytes(region, frame)));
    };
    (Transmitter::Memory(memory::Transmitter::into_sink(Box::new(sink))), seen)
}

/// A transmitter with room for `places` packets, and its far end.
pub(super) fn wire(places: usize) -> (Transmitter, Receiver) {
    use manylane_sync::doorbell::Doorbell;
    let bell = Doorbell::new(crate::eventfd::EventFd::open().expect("eventfds are to be had"));
    let (mut receivers, mut transmitters) =
        memory::wires(PortId(6), 1, &[Arc::new(bell)], places, |_| 0);
    let transmitter = transmitters.pop().expect("there is one for the worker");
    let receiver = receivers.pop().expect("there is one for the bell");
    (Transmitter::Memory(transmitter), Receiver::Memory(receiver))
}

pub(super) fn bytes(region: &Region, frame: &Frame) -> Vec<u8> {
    region.view().parts(frame).flatten().copied().collect()
}

pub(super) fn numbers(seen: &Seen) -> Vec<u32> {
    seen.lock().expect("no holder panics").iter().map(|bytes| number(bytes)).collect()
}
