//! Datagrams against the formats, byte by byte, and by Wireshark's and nfdump's decoders.

use std::io::Write as _;
use std::net::IpAddr;
use std::process::{Command, Stdio};

use super::*;

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// UDP 192.0.2.1:1000 > 198.51.100.7:2000, with 14 bytes of payload: 60 bytes.
fn frame() -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend([0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 7]);
    frame.extend([0x03, 0xe8, 0x07, 0xd0, 0, 26, 0, 0]);
    frame.resize(60, 0);
    frame
}

fn header() -> Header {
    Header { bytes: frame(), frame_len: 64, stripped: 4 }
}

fn flow() -> FlowSample {
    FlowSample {
        input: 3,
        output: Output::Interface(4),
        rate: 1000,
        pool: 123_456,
        drops: 5,
        header: header(),
        switch: Some(Switch { from: (7, 2), to: (8, 0) }),
        router: Some(Router { next_hop: address("10.0.0.9"), source_len: 24, destination_len: 20 }),
        translation: Some(Translation {
            source: (address("203.0.113.1"), 4000),
            destination: (address("198.51.100.7"), 2000),
        }),
    }
}

fn counters() -> InterfaceCounters {
    InterfaceCounters {
        interface: 3,
        speed: 10_000_000_000,
        full_duplex: Some(true),
        is_admin_up: true,
        is_up: true,
        in_bytes: 1 << 40,
        in_packets: 77,
        out_packets: 88,
        ..InterfaceCounters::default()
    }
}

fn discarded() -> DiscardedPacket {
    DiscardedPacket { input: 3, reason: DiscardReason::TtlExceeded, drops: 9, header: header() }
}

fn agent(address_text: &str) -> Datagrams {
    Datagrams::new(Agent { address: address(address_text), sub_agent: 0 })
}

fn words(bytes: &[u8]) -> Vec<u32> {
    let (words, rest) = bytes.as_chunks::<4>();
    assert_eq!(rest, [], "XDR has units of four bytes");
    words.iter().map(|word| u32::from_be_bytes(*word)).collect()
}

#[test]
fn a_flow_sample_is_as_the_standard_has_it() {
    let mut datagrams = agent("192.0.2.254");
    assert_eq!(datagrams.add_flow(&flow(), 1), None);
    let datagram = datagrams.finish(2).expect("it has a sample");
    assert_eq!(datagram.samples, 1);
    let words = words(&datagram.bytes);
    assert_eq!(words[..7], [5, 1, 0xc000_02fe, 0, 1, 2, 1], "version, agent, sequence, uptime");
    let len = words.len() as u32 * 4 - 9 * 4;
    assert_eq!(words[7..9], [1, len], "a flow sample");
    assert_eq!(words[9..17], [1, 3, 1000, 123_456, 5, 3, 4, 5]);
    assert_eq!(words[17..23], [1, 16 + 60, 1, 64, 4, 60], "the header");
    let at = 23 + 15;
    assert_eq!(words[at..at + 6], [1001, 16, 7, 2, 8, 0]);
    let at = at + 6;
    assert_eq!(words[at..at + 6], [1002, 16, 1, 0x0a00_0009, 24, 20]);
    let at = at + 6;
    assert_eq!(words[at..at + 6], [1007, 16, 1, 0xcb00_7101, 1, 0xc633_6407]);
    assert_eq!(words[at + 6..], [1020, 8, 4000, 2000]);
}

#[test]
fn a_discarded_packet_is_as_the_standard_has_it() {
    let mut datagrams = agent("2001:db8::1");
    assert_eq!(datagrams.add_discarded(&discarded(), 1), None);
    let words = words(&datagrams.finish(2).expect("it has a sample").bytes);
    assert_eq!(words[..6], [5, 2, 0x2001_0db8, 0, 0, 1]);
    assert_eq!(words[10..12], [5, 32 + 8 + 16 + 60]);
    assert_eq!(words[12..20], [1, 0, 3, 9, 3, 0, 257, 1]);
}

#[test]
fn samples_are_numbered_by_kind_and_source_and_datagrams_are_never_too_long() {
    let mut datagrams = agent("192.0.2.254");
    let mut sent = Vec::new();
    for number in 0..100 {
        sent.extend(datagrams.add_flow(&FlowSample { input: 3 + number % 2, ..flow() }, number));
        sent.extend(datagrams.add_counters(&counters(), number));
    }
    sent.extend(datagrams.finish(100));
    assert_eq!(datagrams.finish(100), None, "nothing is left");
    assert_eq!(sent.iter().map(|datagram| datagram.samples).sum::<u32>(), 200);
    let lens: Vec<_> = sent.iter().map(|datagram| datagram.bytes.len()).collect();
    assert!(lens.iter().all(|len| *len <= 1400 - 48), "{lens:?}");
    let numbers: Vec<_> = sent.iter().map(|datagram| words(&datagram.bytes)[4]).collect();
    assert_eq!(numbers, (1..=numbers.len() as u32).collect::<Vec<_>>());
}

/// What a command prints of a capture with these datagrams, sent to port 6343; `None` without the command.
fn printed(datagrams: &[Datagram], command: &str, arguments: &[&str]) -> Option<String> {
    let mut capture = Vec::new();
    capture.extend(0xa1b2_c3d4u32.to_le_bytes());
    capture.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    capture.extend(65_535u32.to_le_bytes());
    capture.extend(101u32.to_le_bytes()); // LINKTYPE_RAW.
    for datagram in datagrams {
        let len = datagram.bytes.len() as u16 + 28;
        capture.extend([0u8; 8]);
        capture.extend(u32::from(len).to_le_bytes());
        capture.extend(u32::from(len).to_le_bytes());
        capture.extend([0x45, 0]);
        capture.extend(len.to_be_bytes());
        capture.extend([0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 254, 192, 0, 2, 253]);
        capture.extend([0x18, 0xc7, 0x18, 0xc7]);
        capture.extend((len - 20).to_be_bytes());
        capture.extend([0, 0]);
        capture.extend(&datagram.bytes);
    }
    let child = Command::new(command)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "SKIPPED in CI: {error}");
            eprintln!("SKIPPED {command}: {error}");
            return None;
        }
    };
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(&capture).expect("the command reads");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn wireshark_reads_what_was_written() {
    let mut datagrams = agent("192.0.2.254");
    let six = FlowSample {
        router: Some(Router { next_hop: address("fe80::1"), source_len: 48, destination_len: 32 }),
        output: Output::Discarded(DiscardReason::Blackhole),
        translation: None,
        switch: None,
        ..flow()
    };
    let mut all = Vec::new();
    all.extend(datagrams.add_flow(&flow(), 1));
    all.extend(datagrams.add_flow(&six, 1));
    all.extend(datagrams.add_counters(&counters(), 1));
    all.extend(datagrams.add_discarded(&discarded(), 1));
    all.extend(datagrams.finish(1));
    let arguments = ["-r", "-", "-d", "udp.port==6343,sflow", "-O", "sflow", "-V"];
    let Some(text) = printed(&all, "tshark", &arguments) else { return };
    for expected in [
        "Sampling rate: 1 out of 1000 packets",
        "Sample pool: 123456 total packets",
        "Dropped packets: 5",
        "Input interface (ifIndex): 3",
        "Frame Length: 64\n",
        "Incoming 802.1Q VLAN: 7",
        "Next hop: 10.0.0.9",
        "Next hop: fe80::1",
        "Next hop source mask: 24",
        "Next hop destination mask: 20",
        "203.0.113.1",
        "Interface Speed: 10000000000",
        "Input Octets: 1099511627776",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(!text.contains("Malformed"), "{text}");
}
