//! From a file, through memory, into a file.

use std::io::{self, Write};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use manylane_frame::vocabulary::{Checksum, PortId, QueueId};
use manylane_frame::{Batch, Depot, HEADROOM, Pool, RESERVE, Region, RegionConfig};

use super::lane::BUFFER;
use super::*;
use crate::port::Wait;
use crate::port::write::write;

const PORT: PortId = PortId(4);

/// A capture by tcpdump passes unchanged, packet by packet.
#[test]
fn captures_go_through_unchanged() {
    let mut pool = pool(64);
    for name in ["udp", "tcp", "tunnels-partial", "echoes"] {
        let path = captures().join(name).with_extension("pcap");
        let capture = Arc::new(Capture::read(&path, 1 << 20).expect("it is a good capture"));
        let mut receiver = fast(&capture, Some(1));
        let (disk, mut writer, mut lanes) = file(1, &FileConfig::default());
        let mut lane = lanes.pop().expect("there is one");
        let mut batch = Batch::new();
        while receiver.receive(&mut pool, &mut batch, 5) > 0 {
            let meta = pool.region().meta(&batch.as_slice()[0]);
            assert_eq!(
                (meta.ingress, meta.queue, meta.checksum),
                (PORT, QueueId(0), Checksum::Unknown)
            );
            let mut completed = 0;
            let taken = batch.len();
            let sent = lane.transmit(&mut pool, &mut batch, |entry| {
                assert_eq!(entry, PORT);
                completed += 1;
            });
            assert_eq!((sent.frames, completed, batch.len()), (taken, taken, 0));
            lane.flush();
            writer.turn();
        }
        assert!(matches!(receiver.wait(), Wait::Done));
        drop(lane);
        let written = writer.run(|_| {}).expect("memory takes everything");
        assert_eq!(written.packets, capture.packets() as u64);

        let again = disk.capture();
        assert_eq!(again.packets(), capture.packets());
        for packet in 0..capture.packets() {
            assert_eq!(again.bytes(packet), capture.bytes(packet), "{name} {packet}");
        }
    }
    assert_eq!(free(&mut pool), 64);
}

/// Nanoseconds, the packet's length, the bytes kept, the direction.
#[test]
fn a_written_file_has_times_lengths_and_directions() {
    let mut pool = pool(64);
    let config = FileConfig { snap_len: 100, interface: "lan".into(), ..FileConfig::default() };
    let (disk, writer, mut lanes) = file(1, &config);
    let mut lane = lanes.pop().expect("there is one");
    let mut batch = packets(&mut pool, &[60, 40_000]);
    let view = pool.region().view();
    lane.record(view, &batch.as_slice()[1..], Direction::In);
    lane.transmit(&mut pool, &mut batch, |_| {});
    assert_eq!(lane.counts(), LaneCounts { recorded: 3, lost: 0 });
    drop(lane);
    let written = writer.run(|_| {}).expect("memory takes everything");
    assert_eq!(written, Written { packets: 3, bytes: 260 });

    use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption::Flags;
    use pcap_file::pcapng::{Block, PcapNgParser};
    let bytes = disk.bytes();
    let (mut rest, mut parser) = PcapNgParser::new(&bytes).expect("it is a pcapng");
    let mut seen = Vec::new();
    while !rest.is_empty() {
        let (next, block) = parser.next_block(rest).expect("the blocks are good");
        if let Block::EnhancedPacket(packet) = block {
            let [Flags(flags)] = packet.options[..] else { panic!("{:?}", packet.options) };
            let nanos = packet.timestamp.as_nanos();
            seen.push((nanos, packet.original_len, packet.data.len(), flags));
        }
        rest = next;
    }
    assert_eq!(
        seen,
        [(EPOCH, 40_000, 100, 1), (EPOCH + 1, 60, 60, 2), (EPOCH + 1, 40_000, 100, 2)]
    );
    assert_eq!(free(&mut pool), 64);
}

#[test]
fn packets_come_as_far_apart_as_they_were_captured() {
    let mut pool = pool(64);
    let capture = spaced(&[0, 1000, 1000, 5000]);
    let config = ReplayConfig { passes: NonZeroU32::new(2), ..ReplayConfig::default() };
    let mut receiver = Receiver::new(capture, PORT, QueueId(0), config);
    let mut come = |now_ns| {
        let mut batch = Batch::new();
        let count = receiver.receive(&mut pool, &mut batch, now_ns);
        pool.give_back_all(&mut batch);
        let wait = match receiver.wait() {
            Wait::After(wait_ns) => Some(wait_ns),
            Wait::Done => None,
            _ => panic!("a file has no descriptor and no bell"),
        };
        (count, wait)
    };
    assert_eq!(come(100), (1, Some(1000)));
    assert_eq!(come(1099), (0, Some(1)));
    assert_eq!(come(1100), (2, Some(4000)));
    assert_eq!(come(5100), (2, Some(1000)), "the next pass comes with the end of this one");
    assert_eq!(come(99_000), (3, None), "who was late catches up");
    assert_eq!(come(999_000), (0, None));
}

#[test]
fn a_file_is_replayed_as_often_as_configured() {
    let mut pool = pool(200);
    let capture = spaced(&[0, 1_000_000, 2_000_000]);
    for (passes, expected) in [(Some(1), 3), (Some(40), 120)] {
        let mut receiver = fast(&capture, passes);
        let mut batch = Batch::new();
        let mut count = 0;
        while receiver.receive(&mut pool, &mut batch, 0) > 0 {
            count += batch.len();
            pool.give_back_all(&mut batch);
        }
        assert_eq!(count, expected);
    }
    let mut receiver = fast(&capture, None);
    for _ in 0..100 {
        let mut batch = Batch::new();
        assert_eq!(receiver.receive(&mut pool, &mut batch, 0), 64);
        pool.give_back_all(&mut batch);
        assert!(matches!(receiver.wait(), Wait::After(0)));
    }
}

/// Each pass loses the same packets again.
#[test]
fn skipped_packets_are_counted_with_each_pass() {
    let mut pool = pool(64);
    let mut bytes = pcap_header();
    bytes.extend(pcap_packet(0, b"abcdef", 6));
    bytes.extend(pcap_packet(0, b"abc", 6));
    let capture = Capture::parse(Path::new("x"), bytes).expect("one can be sent");
    let mut receiver = fast(&Arc::new(capture), Some(3));
    assert_eq!(receiver.losses().invalid, 0);
    let mut batch = Batch::new();
    assert_eq!(receiver.receive(&mut pool, &mut batch, 0), 3);
    assert_eq!(receiver.losses().invalid, 3);
    pool.give_back_all(&mut batch);
}

/// A dry pool delays packets, also those of many frames; no packet and no frame is lost.
#[test]
fn a_dry_pool_delays_and_loses_nothing() {
    let mut pool = pool(40);
    let lens = [65_000, 60, 65_000, 2000, 65_000];
    let mut bytes = pcap_header();
    for len in lens {
        bytes.extend(pcap_packet(0, &vec![len as u8; len], len as u32));
    }
    let capture = Capture::parse(Path::new("x"), bytes).expect("it is a good capture");
    let mut receiver = fast(&Arc::new(capture), Some(1));
    let mut come = Vec::new();
    while !matches!(receiver.wait(), Wait::Done) {
        let mut batch = Batch::new();
        assert!(receiver.receive(&mut pool, &mut batch, 0) > 0);
        for frame in batch.iter() {
            let view = pool.region().view();
            let meta = view.meta(frame);
            assert_eq!(meta.head(), HEADROOM);
            assert!(view.parts(frame).flatten().all(|&byte| byte == meta.packet_len() as u8));
            come.push(meta.packet_len());
        }
        pool.give_back_all(&mut batch);
    }
    assert_eq!(come, lens);
    assert_eq!(free(&mut pool), 40);
}

/// When the writer does not run, the lane keeps as many packets as its buffers hold, and counts the rest.
#[test]
fn a_slow_disk_loses_and_counts() {
    let mut pool = pool(64);
    let config = FileConfig { memory_bytes: 0, ..FileConfig::default() }; // Two buffers.
    let (disk, writer, mut lanes) = file(1, &config);
    let mut lane = lanes.pop().expect("there is one");
    let fit = 2 * (BUFFER / 60_017);
    for _ in 0..fit + 3 {
        let mut batch = packets(&mut pool, &[60_000]);
        assert_eq!(lane.transmit(&mut pool, &mut batch, |_| {}).frames, 1);
    }
    assert_eq!(lane.counts(), LaneCounts { recorded: fit as u64, lost: 3 });
    drop(lane);
    assert_eq!(writer.run(|_| {}).expect("memory takes everything").packets, fit as u64);
    assert_eq!(disk.capture().packets(), fit);
    assert_eq!(free(&mut pool), 64);
}

#[test]
fn a_written_buffer_is_reused() {
    let mut pool = pool(64);
    let config = FileConfig { memory_bytes: 0, ..FileConfig::default() };
    let (disk, mut writer, mut lanes) = file(1, &config);
    let mut lane = lanes.pop().expect("there is one");
    for _ in 0..50 {
        let mut batch = packets(&mut pool, &[60_000]);
        lane.transmit(&mut pool, &mut batch, |_| {});
        lane.flush();
        assert!(writer.turn());
    }
    assert_eq!(lane.counts(), LaneCounts { recorded: 50, lost: 0 });
    drop(lane);
    writer.run(|_| {}).expect("memory takes everything");
    assert_eq!(disk.capture().packets(), 50);
}

/// The writer's thread sleeps and is woken; packets of each lane stay in order.
#[test]
fn several_workers_write_into_one_file() {
    let (disk, writer, lanes) = file(3, &FileConfig::default());
    let depot = depot(2048); // A list fetches up to 512.
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| writer.run(|_| {}));
        for (worker, mut lane) in lanes.into_iter().enumerate() {
            let mut pool = depot.pool();
            scope.spawn(move || {
                for number in 0..500u32 {
                    let frame = write(&mut pool, HEADROOM, 60, |_, to| {
                        to[0] = worker as u8;
                        to[1..5].copy_from_slice(&number.to_be_bytes());
                    });
                    let mut batch = Batch::new();
                    batch.push(frame.expect("there are frames")).expect("there is room");
                    lane.transmit(&mut pool, &mut batch, |_| {});
                    lane.flush();
                }
                assert_eq!(lane.counts().lost, 0);
            });
        }
        let written = thread.join().expect("the writer does not panic");
        assert_eq!(written.expect("memory takes everything").packets, 1500);
    });
    let capture = disk.capture();
    let mut next = [0; 3];
    for packet in 0..capture.packets() {
        let bytes = capture.bytes(packet);
        let number = u32::from_be_bytes(*bytes[1..].first_chunk().expect("60 bytes"));
        let worker = usize::from(bytes[0]);
        assert_eq!(number, next[worker]);
        next[worker] += 1;
    }
    assert_eq!(next, [500; 3]);
}

/// However many packets the disk takes, and wherever in a packet it is full, each packet is in the file or counted as lost,
/// once, and the error says how many the file has.
#[test]
fn a_full_disk_loses_and_counts_each_packet() {
    let (empty, _writer, _lanes) = file(1, &FileConfig::default());
    let header = empty.bytes().len();
    for room in [0, 1, 60_043, 60_044, 60_045, 150_000, 500_000].map(|room| header + room) {
        let mut pool = pool(64);
        let disk = Disk { bytes: Arc::default(), room };
        let config = FileConfig { memory_bytes: 0, ..FileConfig::default() };
        let clocks = vec![ticking()];
        let path = Path::new("full.pcapng");
        let opened = Writer::into(Box::new(disk.clone()), path, PORT, clocks, &config);
        let (mut writer, mut lanes) = opened.expect("the header fits");
        let counts = writer.counts();
        let mut lane = lanes.pop().expect("there is one");
        for number in 0..40 {
            let mut batch = packets(&mut pool, &[60_000]);
            lane.transmit(&mut pool, &mut batch, |_| {});
            lane.flush();
            if number % 3 > 0 {
                writer.turn(); // Otherwise several packets wait in one buffer.
            }
        }
        let (lane_lost, recorded) = (lane.counts().lost, lane.counts().recorded);
        assert_eq!(recorded + lane_lost, 40);
        drop(lane);
        let mut told = Vec::new();
        let error = writer.run(|error| told.push(error.to_string())).expect_err("it is full");

        let fit = disk.whole_packets(header, 60_000);
        assert!(fit < 40 && lane_lost > 0, "{room}");
        assert_eq!((counts.packets(), counts.lost()), (fit, recorded - fit), "{room}");
        let says = format!("full.pcapng: cannot write after {fit} packets: ");
        assert!(error.to_string().starts_with(&says), "{error}");
        assert_eq!(told, [error.to_string()]);
        assert_eq!(free(&mut pool), 64);
    }
}

#[test]
fn a_port_has_what_is_configured() {
    let folder = std::env::temp_dir().join(format!("manylane-pcap-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("there is a folder for such files");
    let config = PcapConfig {
        read: Some(captures().join("udp.pcap")),
        write: Some(folder.join("out.pcapng")),
        ..PcapConfig::default()
    };
    let Opened { capture, receiver, transmitters, writer } =
        Opened::open(PORT, 2, &config).expect("both files are good");
    assert!(capture.is_some_and(|capture| capture.packets() > 0));
    assert_eq!((receiver.port(), transmitters.len()), (PORT, 2));
    drop((receiver, transmitters));
    assert_eq!(
        writer.expect("it writes").run(|_| {}).expect("the disk has room"),
        Written::default()
    );

    // One file, by one path or by two.
    let [read, link] = ["in.pcap", "link.pcap"].map(|name| folder.join(name));
    std::fs::copy(captures().join("udp.pcap"), &read).expect("the disk has room");
    std::fs::hard_link(&read, &link).expect("it is the same disk");
    for write in [read.clone(), link] {
        let same = PcapConfig { read: Some(read.clone()), write: Some(write), ..config.clone() };
        let error = Opened::open(PORT, 1, &same).err().expect("it would be emptied");
        assert!(error.to_string().contains("is being read and would be overwritten"), "{error}");
    }
    let nowhere = PcapConfig { write: Some(folder.join("no/out.pcapng")), ..config };
    let error = Opened::open(PORT, 1, &nowhere).err().expect("there is no such folder");
    assert!(error.to_string().contains("no/out.pcapng: cannot create the capture"), "{error}");
    assert!(error.to_string().ends_with("make its folder first, or name a file in another"));
    let silent = Opened::open(PORT, 1, &PcapConfig::default()).expect("nothing is asked for");
    assert!(matches!(silent.receiver.wait(), Wait::Done) && silent.writer.is_none());
    std::fs::remove_dir_all(&folder).expect("it is ours");
}

/// What is checked is neither made nor emptied.
#[test]
fn files_are_checked_without_being_touched() {
    let folder = std::env::temp_dir().join(format!("manylane-pcap-check-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("there is a folder for such files");
    let [good, damaged, new, pipe] =
        ["in.pcap", "damaged.pcap", "new.pcapng", "pipe"].map(|name| folder.join(name));
    std::fs::copy(captures().join("udp.pcap"), &good).expect("the disk has room");
    let whole = std::fs::read(&good).expect("it is there");
    std::fs::write(&damaged, &whole[..whole.len() - 1]).expect("the disk has room");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.is_ok_and(|status| status.success()), "a pipe can be made");

    let files = |read: Option<&PathBuf>, write: Option<&PathBuf>| PcapConfig {
        read: read.cloned(),
        write: write.cloned(),
        ..PcapConfig::default()
    };
    for write in [&new, &pipe, &PathBuf::from("/dev/null")] {
        Opened::check(&files(Some(&good), Some(write))).unwrap_or_else(|error| panic!("{error}"));
    }
    let missing = folder.join("no/file");
    for (config, said) in [
        (files(Some(&missing), None), "no/file: cannot read the capture"),
        (files(Some(&damaged), None), "is incomplete; keep the packets before it"),
        (files(Some(&good), Some(&good)), "is being read and would be overwritten"),
        (files(None, Some(&missing)), "no/file: cannot create the capture: No such file"),
        (files(None, Some(&folder)), "cannot create the capture: Is a directory"),
        (files(None, Some(&good.join("below"))), "cannot create the capture: Not a directory"),
    ] {
        let error = Opened::check(&config).expect_err(said).to_string();
        assert!(error.contains(said), "{error}");
    }
    assert!(!new.exists(), "nothing is made");
    assert_eq!(std::fs::read(&good).expect("it is there"), whole);
    std::fs::remove_dir_all(&folder).expect("it is ours");
}

const EPOCH: u128 = 1_700_000_000_123_456_789;

/// A clock that advances by a nanosecond with each reading.
fn ticking() -> crate::port::Clock {
    let mut now_ns = EPOCH as u64 - 1;
    Box::new(move || {
        now_ns += 1;
        now_ns
    })
}

fn file(lanes: usize, config: &FileConfig) -> (Disk, Writer, Vec<Transmitter>) {
    let disk = Disk { bytes: Arc::default(), room: usize::MAX };
    let clocks = (0..lanes).map(|_| ticking()).collect();
    let opened = Writer::into(Box::new(disk.clone()), Path::new("x.pcapng"), PORT, clocks, config);
    let (writer, lanes) = opened.expect("memory takes everything");
    (disk, writer, lanes)
}

#[derive(Clone)]
struct Disk {
    bytes: Arc<Mutex<Vec<u8>>>,
    room: usize,
}

impl Disk {
    fn bytes(&self) -> Vec<u8> {
        self.bytes.lock().expect("no holder panics").clone()
    }

    /// Packets of `len` bytes that are whole, behind `header` bytes of other blocks.
    fn whole_packets(&self, header: usize, len: usize) -> u64 {
        // Eight words around the bytes, and four for its flags (draft-ietf-opsawg-pcapng, 4.3).
        ((self.bytes().len() - header) / (len + 44)) as u64
    }

    fn capture(&self) -> Capture {
        Capture::parse(Path::new("x.pcapng"), self.bytes()).expect("we write good captures")
    }
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut all = self.bytes.lock().expect("no holder panics");
        let fits = bytes.len().min(self.room - all.len());
        if fits == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        all.extend_from_slice(&bytes[..fits]);
        Ok(fits)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn fast(capture: &Arc<Capture>, passes: Option<u32>) -> Receiver {
    let passes = passes.and_then(NonZeroU32::new);
    let config = ReplayConfig { timing: Timing::Fast, passes, ..ReplayConfig::default() };
    Receiver::new(capture.clone(), PORT, QueueId(0), config)
}

/// Packets `times_ns` nanoseconds after the first.
fn spaced(times_ns: &[u32]) -> Arc<Capture> {
    let mut bytes = pcap_header();
    times_ns.iter().for_each(|&time_ns| bytes.extend(pcap_packet(time_ns, &[1; 60], 60)));
    Arc::new(Capture::parse(Path::new("x"), bytes).expect("it is a good capture"))
}

fn pcap_header() -> Vec<u8> {
    [0xa1b2_3c4d, 4 << 16 | 2, 0, 0, 262_144, 1u32].map(u32::to_le_bytes).concat()
}

fn pcap_packet(time_ns: u32, bytes: &[u8], len: u32) -> Vec<u8> {
    let fields = [1, time_ns, bytes.len() as u32, len].map(u32::to_le_bytes);
    [&fields.concat(), bytes].concat()
}

fn packets(pool: &mut Pool, lens: &[usize]) -> Batch {
    let mut batch = Batch::new();
    for &len in lens {
        let frame = write(pool, HEADROOM, len, |_, to| to.fill(len as u8));
        let mut frame = frame.expect("there are frames");
        pool.region().set_ingress(&mut frame, PORT, QueueId(0), Checksum::Valid);
        batch.push(frame).expect("there is room");
    }
    batch
}

fn depot(frames: u32) -> Depot {
    let region = Region::new(RegionConfig { frames, frame_size: 2048 });
    Depot::new(region.expect("some KiB can be mapped"), 4).expect("the frames are there")
}

/// A pool with `frames` frames for received packets.
fn pool(frames: u32) -> Pool {
    depot(frames + RESERVE as u32).pool()
}

fn free(pool: &mut Pool) -> usize {
    let frames = Vec::from_iter(std::iter::from_fn(|| pool.take()));
    let count = frames.len();
    frames.into_iter().for_each(|frame| pool.give_back(frame));
    count - RESERVE
}

fn captures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/captures")
}
