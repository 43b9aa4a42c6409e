//! Forwards packets from a generated receive queue, over a wire in memory, to a sink that checks them. Needs no root.
//!
//! `cargo run -p manylane-io --example forward`

use std::sync::{Arc, Mutex};

use manylane_frame::vocabulary::{PortId, QueueId};
use manylane_frame::{Batch, Depot, Frame, HEADROOM, Pool, Region, RegionConfig};
use manylane_io::eventfd::EventFd;
use manylane_io::port::memory::{self, Next};
use manylane_io::port::{Receiver, Transmitter};
use manylane_sync::doorbell::Doorbell;

const PACKETS: u32 = 10_000;
/// An Ethernet header for experiments (IEEE 802's 0x88b5); the packet's number follows.
const HEADER: [u8; 14] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];

fn main() {
    let region = Region::new(RegionConfig { frames: 1024, frame_size: 2048 });
    let depot = Depot::new(region.expect("2 MiB can be mapped"), 1).expect("the frames are free");
    let mut pool = depot.pool();

    // Port 1 generates packets; a wire leads from there to port 2; a sink is behind port 2.
    let mut generator = generator(PortId(1));
    let (mut wire_in, mut wire_out) = wire(PortId(2));
    let (mut sink, numbers) = sink();

    while numbers.lock().expect("the sink does not panic").len() < PACKETS as usize {
        forward(&mut generator, &mut wire_in, &mut pool);
        forward(&mut wire_out, &mut sink, &mut pool);
    }
    let numbers = numbers.lock().expect("the sink does not panic");
    assert!(numbers.iter().copied().eq(0..PACKETS), "packets arrived out of order");
    println!("forwarded {} packets over a wire in memory, in order", numbers.len());
}

/// Receives one batch and transmits it; packets without room are dropped.
fn forward(from: &mut Receiver, to: &mut Transmitter, pool: &mut Pool) {
    let mut batch = Batch::new();
    from.receive(pool, &mut batch, 0);
    to.transmit(pool, &mut batch, |_ingress| ());
    to.flush();
    pool.give_back_all(&mut batch);
}

fn generator(port: PortId) -> Receiver {
    let mut numbers = 0..PACKETS;
    let source = move |pool: &mut Pool, batch: &mut Batch, _now_ns: u64| {
        for _ in 0..pool.may_receive(batch.room()) {
            let Some(number) = numbers.next() else { return Next::Done };
            let mut frame = pool.take().expect("the pool has just said so");
            pool.region().set_window(&mut frame, HEADROOM, HEADROOM + 18);
            let bytes = pool.region().bytes_mut(&mut frame);
            bytes[..14].copy_from_slice(&HEADER);
            bytes[14..].copy_from_slice(&number.to_be_bytes());
            batch.push(frame).expect("the loop is bounded by the room");
        }
        Next::More
    };
    Receiver::Memory(memory::Receiver::from_source(port, QueueId(0), Box::new(source)))
}

/// A wire to one receive queue of `port`, and that queue.
fn wire(port: PortId) -> (Transmitter, Receiver) {
    let bell = Arc::new(Doorbell::new(EventFd::open().expect("a descriptor is free")));
    let (mut receivers, mut transmitters) = memory::wires(port, 1, &[bell], 128, |_| 0);
    let transmitter = transmitters.pop().expect("one worker has one transmitter");
    let receiver = receivers.pop().expect("one bell means one queue");
    (Transmitter::Memory(transmitter), Receiver::Memory(receiver))
}

/// A transmitter that records the packets' numbers.
fn sink() -> (Transmitter, Arc<Mutex<Vec<u32>>>) {
    let numbers = Arc::new(Mutex::new(Vec::new()));
    let recorded = numbers.clone();
    let sink = move |region: &Region, frames: &[Frame]| {
        let number = |frame| {
            let bytes = region.bytes(frame);
            u32::from_be_bytes(bytes[14..18].try_into().expect("the slice has four bytes"))
        };
        recorded.lock().expect("main does not panic").extend(frames.iter().map(number));
    };
    (Transmitter::Memory(memory::Transmitter::into_sink(Box::new(sink))), numbers)
}
