//! The ledger of one worker: what its thread counts, and another thread reads.
//!
//! `cargo run -p manylane-worker --example ledger`

use std::thread;

use manylane_frame::vocabulary::{DropReason, PortId};
use manylane_worker::stats::{PortCount, Stats};

fn main() {
    let (lan, wan) = (PortId(0), PortId(1));
    let mut stats = Stats::new(2);
    let reader = stats.reader();
    let worker = thread::spawn(move || {
        // A worker counts a packet by its ingress port to the end: here one in a hundred has no route.
        for packet in 0..1000 {
            stats.count(lan, PortCount::Received, 1);
            match packet % 100 {
                0 => stats.dropped(lan, DropReason::NoRoute),
                _ => {
                    stats.count(wan, PortCount::Sent, 1);
                    stats.count(wan, PortCount::Completed, 1);
                    stats.count(lan, PortCount::Transmitted, 1);
                }
            }
        }
    });
    worker.join().expect("the counting thread ends");
    let received = reader.port(lan, PortCount::Received);
    let transmitted = reader.port(lan, PortCount::Transmitted);
    let dropped = reader.dropped(lan, DropReason::NoRoute);
    println!("lan: {received} received = {transmitted} transmitted + {dropped} dropped (no_route)");
    println!("wan: {} sent", reader.port(wan, PortCount::Sent));
    assert_eq!(received, transmitted + dropped);
}
