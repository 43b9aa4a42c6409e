//! Code that must not call the allocator: a port's turn, and each route of a dump of a million.
//! The tests with kernel sockets need root.

#[path = "io/common/mod.rs"]
mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use common::wire::End;
use manylane_frame::vocabulary::{Checksum, PortId, QueueId, WorkerId};
use manylane_frame::{Batch, Depot, Frame, Pool, Region, RegionConfig};
use manylane_io::namespace::Namespace;
use manylane_io::netlink::kernel::{Family, Hop, Hops, Route};
use manylane_io::netlink::{LinkEnd, Netlink};
use manylane_io::poll::poll;
use manylane_io::port::af_packet::{AfPacket, AfPacketConfig};
use manylane_io::port::af_xdp::{AfXdp, AfXdpConfig, Umem};
use manylane_io::port::fault::{self, FaultConfig};
use manylane_io::port::pcap::{Opened, PcapConfig, ReplayConfig, Timing};
use manylane_io::port::tap::{Tap, TapConfig};
use manylane_io::port::{Receiver, Receiving, Transmitter, Wait, memory, tee};

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
    let thread = std::thread::spawn(|| writer.run(|_| {}));
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

#[test]
fn a_turn_through_packet_sockets_allocates_nothing() {
    let Some(mut pool) = wire() else { return };
    let Some((one_port, one)) = packet_socket(pool.region(), "v0", 0) else { return };
    let (other_port, other) = packet_socket(pool.region(), "v1", 1).expect("as the first");
    let mut ends = [one, other];
    turns(&mut ends, &mut pool);
    let [one, other] = ends;
    close_packet_socket(one_port, one, &mut pool);
    close_packet_socket(other_port, other, &mut pool);
}

#[test]
fn a_turn_through_af_xdp_allocates_nothing() {
    let Some(mut pool) = wire() else { return };
    let mut umem = Umem::new(pool.region().clone());
    let mut open = |name, id| {
        let (owners, config) = ([WorkerId(0)], AfXdpConfig::default());
        let receiving = Receiving { owners: &owners, elsewhere: &[None] };
        let opened = AfXdp::open(&mut umem, PortId(id), name, receiving, config);
        let opened = opened.map_err(|error| unavailable(error.is_unavailable(), error)).ok()?;
        let receivers = opened.receivers.into_iter().map(|queue| Receiver::AfXdp(queue.into()));
        let exits = opened.transmitters.into_iter().map(|exit| Transmitter::AfXdp(exit.into()));
        Some((opened.port, end(receivers, exits)))
    };
    let Some((one_port, one)) = open("v0", 0) else { return };
    let (other_port, other) = open("v1", 1).expect("as the first");
    let mut ends = [one, other];
    turns(&mut ends, &mut pool);
    for (port, End { receivers, transmitter }) in [one_port, other_port].into_iter().zip(ends) {
        let receivers = receivers.into_iter().filter_map(|receiver| match receiver {
            Receiver::AfXdp(queue) => Some(*queue),
            _ => None,
        });
        let Transmitter::AfXdp(exit) = transmitter else { unreachable!("it was made here") };
        port.close(receivers.collect(), vec![*exit], &mut pool, |_, _| ());
    }
}

/// The host's end has a packet socket.
#[test]
fn a_turn_through_a_tap_allocates_nothing() {
    let Some(mut pool) = wire() else { return };
    let receiving = Receiving { owners: &[WorkerId(0)], elsewhere: &[None] };
    let opened = Tap::open(pool.region(), PortId(0), "t0", receiving, TapConfig::default());
    let opened = opened.map_err(|error| unavailable(error.is_unavailable(), error));
    let Ok(opened) = opened else { return };
    let receivers = opened.receivers.into_iter().map(|queue| Receiver::Tap(queue.into()));
    let exits = opened.transmitters.into_iter().map(|exit| Transmitter::Tap(exit.into()));
    let ours = end(receivers, exits);
    let Some((host_port, host)) = packet_socket(pool.region(), "t0", 1) else { return };
    let mut ends = [ours, host];
    turns(&mut ends, &mut pool);
    let [ours, host] = ends;
    close_packet_socket(host_port, host, &mut pool);
    let receivers = ours.receivers.into_iter().filter_map(|receiver| match receiver {
        Receiver::Tap(queue) => Some(*queue),
        _ => None,
    });
    opened.port.close(receivers.collect(), Vec::new(), &mut pool);
}

#[test]
fn a_table_of_routes_is_read_without_an_allocation_for_each() {
    if wire().is_none() {
        return;
    }
    let mut netlink = Netlink::open().expect("netlink is always there");
    let on = Hops::One(Some(Hop::on(netlink.link("v0").expect("it was just made").index)));
    let networks = (0..5000).map(|number| Ipv4Addr::from_bits(0x0b00_0000 + (number << 8)).into());
    let routes = networks.map(|network| Route::new(network, 24, on.clone()));
    assert_eq!(netlink.load_routes(routes).expect("all are new"), 5000);
    let before = CALLS.get();
    let read = netlink.dump_routes(Family::V4, None, drop).expect("root may");
    let calls = CALLS.get() - before;
    assert!(read >= 5000 && calls < 10, "{calls} for {read} routes");
}

/// A namespace of this thread's own with a veth, `v0` and `v1`, without IPv6's own chatter; a pool for
/// its ports.
fn wire() -> Option<Pool> {
    Namespace::new_for_this_thread().map_err(common::skip).ok()?;
    manylane_io::sysctl::set("net/ipv6/conf/default/disable_ipv6", "1").expect("as root");
    let mut netlink = Netlink::open().expect("netlink is always there");
    let ends = ["v0", "v1"].map(LinkEnd::new);
    netlink.create_veth(&ends[0], &ends[1], None).expect("the names are free");
    for end in &ends {
        netlink.set_up(&end.name).expect("it was just made");
    }
    let region = Region::new(RegionConfig { frames: 1 << 13, frame_size: 2048 });
    let depot = Depot::new(region.expect("16 MiB can be mapped"), 1);
    Some(depot.expect("the first taker").pool())
}

fn packet_socket(region: &Region, name: &str, id: u16) -> Option<(AfPacket, End)> {
    let opened = AfPacket::open(region, PortId(id), name, 1, 1, AfPacketConfig::default());
    let opened = opened.map_err(|error| unavailable(error.is_unavailable(), error)).ok()?;
    let receivers = opened.receivers.into_iter().map(|queue| Receiver::AfPacket(queue.into()));
    let exits = opened.transmitters.into_iter().map(|exit| Transmitter::AfPacket(exit.into()));
    Some((opened.port, end(receivers, exits)))
}

fn close_packet_socket(port: AfPacket, end: End, pool: &mut Pool) {
    let receivers = end.receivers.into_iter().filter_map(|receiver| match receiver {
        Receiver::AfPacket(queue) => Some(*queue),
        _ => None,
    });
    port.close(receivers.collect(), Vec::new(), pool);
}

fn end(
    receivers: impl Iterator<Item = Receiver>,
    mut exits: impl Iterator<Item = Transmitter>,
) -> End {
    let transmitter = exits.next().expect("one worker, one transmitter");
    End { receivers: receivers.collect(), transmitter }
}

/// Says why a test was skipped; what every machine has is no reason.
fn unavailable(is_unavailable: bool, error: impl std::fmt::Display) {
    assert!(is_unavailable, "{error}");
    common::skip(error);
}

/// Packets of one frame and of three, from each end to the other.
fn turns(ends: &mut [End; 2], pool: &mut Pool) {
    ends.iter_mut().for_each(|end| end.receivers[0].prime(pool));
    let (mut before, mut received) = (0, 0);
    for turn in 0..1000 {
        if turn == 100 {
            (before, received) = (CALLS.get(), 0); // Nothing is new any more.
        }
        ends.reverse();
        let [from, to] = ends;
        let mut batch = Batch::new();
        for number in 0..16 {
            let parts: &[usize] = if number % 4 == 3 { &[600, 500, 300] } else { &[60] };
            batch.push(packet(pool, parts)).expect("a batch holds 64");
        }
        assert_eq!(from.transmitter.transmit(pool, &mut batch, |_| ()).frames, 16);
        from.transmitter.flush();
        let mut came = 0;
        while came < 16 {
            let Wait::Readable(fd) = to.receivers[0].wait() else { unreachable!("a descriptor") };
            let ready = poll(&[fd], Some(Duration::from_secs(5))).expect("it is open");
            assert!(ready.any(), "{came} of 16 came");
            came += to.receivers[0].receive(pool, &mut batch, 0);
            pool.give_back_all(&mut batch);
        }
        from.receivers[0].reclaim(pool, |_| ());
        received += came;
    }
    let calls = CALLS.get() - before;
    assert_eq!((calls, received), (0, 900 * 16));
}

/// An Ethernet frame for experiments (IEEE 802's 0x88b5), with `parts` bytes in its frames.
fn packet(pool: &mut Pool, parts: &[usize]) -> Frame {
    let mut packet: Option<Frame> = None;
    for &len in parts {
        let mut frame = pool.take().expect("there are plenty");
        let view = pool.region().view();
        view.set_window(&mut frame, 256, 256 + len as u16);
        view.set_ingress(&mut frame, PortId(0), QueueId(0), Checksum::Valid);
        view.bytes_mut(&mut frame).fill(2);
        match &mut packet {
            Some(packet) => view.append(packet, frame).expect("a chain has 64"),
            None => {
                view.bytes_mut(&mut frame)[12..14].copy_from_slice(&[0x88, 0xb5]);
                packet = Some(frame);
            }
        }
    }
    packet.expect("there is a part")
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
