//! Captures, good and bad.

use std::path::PathBuf;

use super::*;

/// Every capture of the repository, including truncated packets.
#[test]
fn captures_of_tcpdump_are_read() {
    let mut packets = 0;
    for entry in std::fs::read_dir(captures()).expect("the captures are there") {
        let path = entry.expect("the folder can be read").path();
        let capture = Capture::read(&path, 1 << 20).expect("it is a good capture");
        assert_eq!(capture.skipped(), Skipped::default(), "{}", path.display());
        for packet in 0..capture.packets() {
            // Each is Ethernet: two addresses and a type.
            assert!(capture.bytes(packet).len() >= 42, "{}: {packet}", path.display());
            packets += 1;
        }
        assert!(capture.duration_ns() > 0);
    }
    assert!(packets > 200, "{packets}");
}

/// Byte order and unit, by all four magic numbers.
#[test]
fn a_pcap_is_read_in_either_order_and_unit() {
    for big in [false, true] {
        for (nanos, unit_ns) in [(false, 1000), (true, 1)] {
            let file = Pcap { big, nanos, ..Pcap::default() }.with((7, 999, 3), b"one", 3).with(
                (8, 1, 5),
                b"after",
                5,
            );
            let capture = file.parse().expect("it is a good capture");
            assert_eq!((capture.bytes(0), capture.bytes(1)), (&b"one"[..], &b"after"[..]));
            assert_eq!(capture.since_ns(0), 0);
            assert_eq!(capture.since_ns(1), 1_000_000_000 - 998 * unit_ns, "{big} {nanos}");
        }
    }
}

#[test]
fn a_clock_that_was_set_back_stops_for_a_while() {
    let file = Pcap::default()
        .with((10, 0, 1), b"a", 1)
        .with((12, 0, 1), b"b", 1)
        .with((5, 0, 1), b"c", 1)
        .with((13, 0, 1), b"d", 1);
    let capture = file.parse().expect("it is a good capture");
    let since_s = |packet| capture.since_ns(packet) / 1_000_000_000;
    assert_eq!([0, 1, 2, 3].map(since_s), [0, 2, 2, 3]);
}

#[test]
fn what_cannot_be_sent_is_skipped_and_counted() {
    let large = vec![0; PACKET_MAX as usize + 1];
    let file = Pcap::default()
        .with((1, 0, 4), b"half", 8)
        .with((2, 0, 0), b"", 0)
        .with((3, 0, large.len() as u32), &large, large.len() as u32)
        .with((4, 0, 4), b"more", 3); // More than the packet's length: some tools pad.
    let capture = file.parse().expect("two can be sent");
    assert_eq!(capture.skipped(), Skipped { truncated: 1, too_large: 1, not_ethernet: 0 });
    assert_eq!(
        (capture.packets(), capture.bytes(0), capture.bytes(1)),
        (2, &b""[..], &b"more"[..])
    );
}

#[test]
fn a_pcapng_is_read_block_by_block() {
    let capture = pcapng().parse().expect("it is a good capture");
    let packets = (0..capture.packets()).map(|packet| capture.bytes(packet));
    assert_eq!(Vec::from_iter(packets), [&b"enhanced"[..], b"simple", b"old", b"nano"]);
    let since = (0..4).map(|packet| capture.since_ns(packet));
    // Microseconds, no time, microseconds, nanoseconds.
    assert_eq!(Vec::from_iter(since), [0, 0, 4_000, 6_001]);
    assert_eq!(capture.skipped(), Skipped { truncated: 1, too_large: 0, not_ethernet: 1 });
}

/// The message for a bad file has its name, the place and the fix.
#[test]
fn messages_of_bad_files_name_fault_and_place() {
    let two = Pcap::default().with((1, 0, 4), b"good", 4).with((2, 0, 4), b"also", 4);
    let cut = two.bytes()[..24 + 20 + 16 + 3].to_vec();
    let mut long = two.bytes();
    long[24 + 20 + 8..][..4].copy_from_slice(&0x7fff_ffffu32.to_le_bytes());
    let mut linux = two.bytes();
    linux[20] = 113;
    let mut block = pcapng().0;
    block[32] ^= 1; // The first interface's length.
    let half = Pcap::default().with((1, 0, 4), b"half", 60).bytes();
    let table: [(Vec<u8>, &str); 9] = [
        (
            cut,
            "x.pcap: the packet or block at byte 44, after packet 1, is incomplete; keep the packets \
               before it with `tcpdump -r x.pcap -w NEW`",
        ),
        (long, "x.pcap: damaged at byte 44, after packet 1: a length of 2147483647 bytes; keep"),
        (linux, "x.pcap: its link type is 113, and only Ethernet (1) can be sent"),
        (
            block,
            "x.pcap: damaged at byte 28, after packet 0: Invalid raw block format: Block length",
        ),
        (half, "x.pcap: no packet can be sent: 1 were truncated (capture with `-s 0`)"),
        (vec![], "x.pcap: is empty"),
        (b"GET /".to_vec(), "x.pcap: is neither pcap nor pcapng (it begins with 47 45 54 20)"),
        (vec![0x1f, 0x8b, 8, 0], "x.pcap: is compressed; unpack it with `gunzip`"),
        (vec![0xd4, 0xc3, 0xb2, 0xa1], "x.pcap: the packet or block at byte 0"),
    ];
    for (bytes, says) in table {
        let error = Capture::parse(Path::new("x.pcap"), bytes).expect_err(says).to_string();
        assert!(error.starts_with(says), "{error}\nis not\n{says}");
    }
}

#[test]
fn a_file_that_is_not_there_or_too_large_is_refused_by_name() {
    let error = Capture::read(Path::new("/nowhere/x.pcap"), 10).expect_err("it is not there");
    assert!(error.to_string().starts_with("/nowhere/x.pcap: cannot read the capture: No such"));
    let error = Capture::read(Path::new("/"), 10).expect_err("it is a folder");
    assert!(error.to_string().contains("Is a directory"), "{error}");
    let path = captures().join("udp.pcap");
    let bytes = path.metadata().expect("it is there").len();
    assert!(Capture::read(&path, bytes).is_ok());
    let error = Capture::read(&path, bytes - 1).expect_err("it is too large by one");
    assert!(matches!(error, ReadError::TooLarge { bytes_max, .. } if bytes_max == bytes - 1));
}

/// A file cut anywhere is either whole up to there, or the error names where the incomplete piece begins.
#[test]
fn files_cut_anywhere_are_refused_or_shorter() {
    for (file, kind) in samples() {
        let whole = Capture::parse(Path::new(kind), file.clone()).expect("the sample is good");
        let mut shorter = 0;
        for len in 0..file.len() {
            match Capture::parse(Path::new(kind), file[..len].to_vec()) {
                Ok(capture) => {
                    assert!(capture.packets() <= whole.packets());
                    for packet in 0..capture.packets() {
                        assert_eq!(capture.bytes(packet), whole.bytes(packet), "{kind} at {len}");
                    }
                    shorter += 1;
                }
                Err(ReadError::CutShort { offset, packets, .. }) => {
                    assert!(offset <= len as u64 && packets <= whole.packets() as u64 + 2);
                }
                Err(ReadError::Unknown { .. }) => assert!(len < 4),
                Err(ReadError::NothingToSend { .. }) => {}
                Err(error) => panic!("{kind} at {len}: {error}"),
            }
        }
        assert!(shorter >= whole.packets() - 1, "{kind}: {shorter}");
    }
}

/// With any byte changed to anything, reading returns: it never panics, and no packet lies outside the file.
#[test]
fn files_changed_anywhere_are_read_or_refused() {
    let (mut read, mut refused) = (0, 0);
    for (file, kind) in samples() {
        for at in 0..file.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff, file[at] ^ 0x04, file[at].wrapping_add(1)] {
                let mut changed = file.clone();
                changed[at] = value;
                match Capture::parse(Path::new(kind), changed) {
                    Ok(capture) => {
                        let bytes =
                            (0..capture.packets()).map(|packet| capture.bytes(packet).len());
                        assert!(bytes.sum::<usize>() < file.len(), "{kind} at {at}");
                        read += 1;
                    }
                    Err(error) => {
                        assert!(error.to_string().starts_with(kind));
                        refused += 1;
                    }
                }
            }
        }
    }
    assert!(read > 100 && refused > 100, "{read} {refused}");
}

fn samples() -> [(Vec<u8>, &'static str); 4] {
    let pcap = |big| {
        Pcap { big, ..Pcap::default() }.with((1, 2, 60), &[0x55; 60], 60).with(
            (1, 3, 7),
            b"another",
            7,
        )
    };
    let real = std::fs::read(captures().join("refusals.pcap")).expect("it is there");
    [
        (pcap(false).bytes(), "little"),
        (pcap(true).bytes(), "big"),
        (pcapng().0, "pcapng"),
        (real, "refusals"),
    ]
}

/// Two interfaces, three kinds of packet, an unknown block, a truncated packet; then a section in the other
/// byte order, with nanoseconds, whose second interface is not Ethernet.
fn pcapng() -> Pcapng {
    let mut file = Pcapng(Vec::new());
    file.section(false);
    file.block(false, 1, &[&[1, 0, 0, 0], &[0; 4]]); // Offset 28.
    file.block(false, 6, &[&packet_fields(false, 0, 1_000_000, 8, 8), b"enhanced"]);
    file.block(false, 0x4bad, &[b"whatever"]);
    file.block(false, 3, &[&6u32.to_le_bytes(), b"simple\0\0"]);
    let mut old = packet_fields(false, 0, 1_000_004, 3, 3);
    old[2..4].copy_from_slice(&9u16.to_le_bytes()); // Packets dropped before this one.
    file.block(false, 2, &[&old, b"old\0"]);
    file.block(false, 6, &[&packet_fields(false, 0, 1_000_005, 4, 99), b"part"]);
    file.section(true);
    // if_tsresol: 10^-9; then the end of the options.
    file.block(true, 1, &[&[0, 1, 0, 0], &[0; 4], &[0, 9, 0, 1, 9, 0, 0, 0], &[0; 4]]);
    file.block(true, 1, &[&[0, 113, 0, 0], &[0; 4]]);
    file.block(true, 6, &[&packet_fields(true, 1, 1, 4, 4), b"loop"]);
    file.block(true, 6, &[&packet_fields(true, 0, 1_000_006_001, 4, 4), b"nano"]);
    file
}

struct Pcapng(Vec<u8>);

impl Pcapng {
    fn section(&mut self, big: bool) {
        let magic = if big { [0x1a, 0x2b, 0x3c, 0x4d] } else { [0x4d, 0x3c, 0x2b, 0x1a] };
        let version = if big { [0, 1, 0, 0] } else { [1, 0, 0, 0] };
        self.block(big, 0x0a0d_0d0a, &[&magic, &version, &[0xff; 8]]);
    }

    fn block(&mut self, big: bool, kind: u32, body: &[&[u8]]) {
        let body = body.concat();
        let len = number(big, body.len() as u32 + 12);
        for part in [&number(big, kind)[..], &len, &body, &len] {
            self.0.extend_from_slice(part);
        }
    }

    fn parse(self) -> Result<Capture, ReadError> {
        Capture::parse(Path::new("x.pcapng"), self.0)
    }
}

/// The head of an enhanced packet block.
fn packet_fields(big: bool, interface: u32, time: u64, captured: u32, len: u32) -> Vec<u8> {
    let (high, low) = ((time >> 32) as u32, time as u32);
    [interface, high, low, captured, len].map(|field| number(big, field)).concat()
}

fn number(big: bool, number: u32) -> [u8; 4] {
    if big { number.to_be_bytes() } else { number.to_le_bytes() }
}

#[derive(Default)]
struct Pcap {
    big: bool,
    nanos: bool,
    packets: Vec<u8>,
}

impl Pcap {
    /// Adds a packet, by seconds, fraction and captured length, its bytes and its length.
    fn with(
        mut self,
        (seconds, fraction, captured): (u32, u32, u32),
        bytes: &[u8],
        len: u32,
    ) -> Pcap {
        for field in [seconds, fraction, captured, len] {
            self.packets.extend(number(self.big, field));
        }
        self.packets.extend(bytes);
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let magic = if self.nanos { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
        let version = if self.big { [0, 2, 0, 4] } else { [2, 0, 4, 0] };
        let mut bytes = number(self.big, magic).to_vec();
        bytes.extend(version);
        for field in [0, 0, 262_144, 1] {
            bytes.extend(number(self.big, field));
        }
        bytes.extend(&self.packets);
        bytes
    }

    fn parse(&self) -> Result<Capture, ReadError> {
        Capture::parse(Path::new("x.pcap"), self.bytes())
    }
}

fn captures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/captures")
}
