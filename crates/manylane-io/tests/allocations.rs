//! Workers and the allocator: ports made of files, copies and faults never call it in a turn.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;

use manylane_frame::vocabulary::{PortId, WorkerId};
use manylane_frame::{Batch, Depot, Region, RegionConfig};
use manylane_io::port::fault::{self, FaultConfig};
use manylane_io::port::pcap::{Opened, PcapConfig, ReplayConfig, Timing};
use manylane_io::port::{Receiver, Transmitter, memory, tee};

#[test]
fn a_turn_through_file_tee_and_faults_allocates_nothing() {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/captures");
    let folder = std::env::temp_dir().join(format!("manylane-allocations-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("there is a folder for such files");
    let replay = ReplayConfig { timing: Timing::Fast, passes: None, ..ReplayConfig::default() };
    let config = PcapConfig {
        read: Some(captures.join("udp.pcap")),
        write: Some(folder.join("out.pcapng")),
        replay,
        ..PcapConfig::default()
    };
    let opened = Opened::open(PortId(0), 2, &config).expect("both files are good");
    let writer = opened.writer.expect("it writes");
    let mut lanes = opened.transmitters.into_iter();
    let faults = FaultConfig {
        drop: 0.1,
        duplicate: 0.1,
        corrupt: 0.1,
        delay: 0.3,
        delay_ns: 1..=9000,
        reorder: 0.3,
        ..FaultConfig::default()
    };
    let faulty = Receiver::Fault(Box::new(fault::Receiver::new(opened.receiver, faults.clone())));
    let lane = lanes.next().expect("there are two");
    let mut receiver = Receiver::Tee(Box::new(tee::Receiver::new(faulty, lane)));
    let nowhere = memory::Transmitter::into_sink(Box::new(|_, _| {}));
    let lane = lanes.next().expect("there are two");
    let copied =
        Transmitter::Tee(Box::new(tee::Transmitter::new(Transmitter::Memory(nowhere), lane)));
    let mut now_ns = 0;
    let clock = Box::new(move || {
        now_ns += 500;
        now_ns
    });
    let faulty = fault::Transmitter::new(copied, WorkerId(0), faults, clock);
    let mut transmitter = Transmitter::Fault(Box::new(faulty));

    let region = Region::new(RegionConfig { frames: 8192, frame_size: 2048 });
    let depot = Depot::new(region.expect("16 MiB can be mapped"), 1);
    let mut pool = depot.expect("the frames are there").pool();
    let thread = std::thread::spawn(|| writer.run());
    let before = CALLS.get();
    assert!(before > 0, "opening allocates, and is counted");
    let mut received = 0;
    for turn in 0..2000 {
        let mut batch = Batch::new();
        received += receiver.receive(&mut pool, &mut batch, turn * 500);
        transmitter.transmit(&mut pool, &mut batch, |_| {});
        pool.give_back_all(&mut batch);
        transmitter.flush();
    }
    let calls = CALLS.get() - before;
    let (counts, copies) = (receiver.faults(), receiver.copies());
    assert!(received > 50_000 && counts.delayed > 0 && counts.reordered > 0, "{counts:?}");
    assert_eq!(copies.copied + copies.refused, received as u64);
    assert_eq!(calls, 0, "for {received} packets");

    let mut others = Vec::new();
    receiver.unwrapped(&mut pool, &mut others);
    transmitter.unwrapped(&mut pool, &mut others, &mut |_, _| {});
    drop(others);
    let written = thread.join().expect("the writer does not panic").expect("there is room");
    assert!(written.packets >= copies.copied);
    std::fs::remove_dir_all(&folder).expect("it is ours");
}

/// The system's allocator, with the calls of each thread counted.
struct Counting;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to `System`, which keeps the contract; the counter is a plain cell of the
// thread, made without allocating and without a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: the caller's debt, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: the caller's debt, passed on: what we gave out was `System`'s.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
