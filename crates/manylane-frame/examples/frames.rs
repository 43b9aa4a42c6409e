//! A packet larger than a frame, from a pool and back to it; then a leak, which the depot names.
//!
//! `cargo run -p manylane-frame --example frames` (a debug build: release builds record no holders)

use manylane_frame::{Depot, HEADROOM, Holder, Region, RegionConfig};

fn main() {
    let region = Region::new(RegionConfig { frames: 256, frame_size: 2048 });
    let region = region.expect("512 KiB can be mapped");
    let depot = Depot::new(region.clone(), 1).expect("the frames are free");
    let mut pool = depot.pool();

    // 9000 bytes are a chain of five frames; its first frame's handle owns them all.
    let packet = pool.take_packet(HEADROOM, 9000).expect("five frames are free");
    let parts: Vec<usize> = region.view().parts(&packet).map(<[u8]>::len).collect();
    println!("a packet of {} bytes lies in {parts:?}", region.meta(&packet).packet_len());
    assert_eq!(parts.iter().sum::<usize>(), 9000);
    pool.give_back(packet);

    // A holder that forgets its frame: the depot knows its last holder.
    let lost = pool.take().expect("all frames are free");
    region.note(&lost, Holder::Hold);
    std::mem::forget(lost);
    drop(pool);
    for missing in depot.missing() {
        println!("leaked: {missing}");
    }
    println!("{} of 256 frames are home", depot.frames());
    assert_eq!(depot.frames(), 255);
}
