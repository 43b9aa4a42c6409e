//! Any program that the checker lets pass, and any that libpcap compiles, on any packet: it does not
//! panic, it answers the same however the packet is divided among frames, packets that run together end as each
//! does alone, and as libpcap's interpreter answers.
//!
//! ```sh
//! cargo fuzz run --sanitizer none --features libfuzzer filter -- -max_total_time=60
//! ```
//!
//! The input is two numbers, what says the program, and a packet; in full at `Case::read`. The seeds'
//! packets are the first bytes of some in `corpus/wire`. Not looked for: slowness; programs that the checker
//! refuses, although they might run. Where machines differ (the table in `manylane_net::filter`) libpcap's rule
//! counts. Without libpcap nothing is held against it, which is said once.
#![no_main]

use std::sync::Once;

use libfuzzer_sys::fuzz_target;
use manylane_net::filter::{Chosen, Columns, FilterError, Instruction, Program, TOGETHER_MAX};

#[path = "../../crates/manylane-io/src/chain.rs"]
mod chain;
/// The files alone: the rest of `manylane-io` would bring its BPF loader and netlink to be compiled.
#[allow(dead_code)]
#[path = "../../crates/manylane-io/src/libpcap.rs"]
mod libpcap;

use libpcap::PcapError;

fuzz_target!(|input: &[u8]| {
    let Some(case) = Case::read(input) else { return };
    let packet = case.packet;
    let program: Vec<Instruction> = case.program.iter().copied().map(Instruction::from).collect();
    let program = match Program::new(program) {
        Ok(program) => program,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            // `protochain`; terms behind `geneve or`; and `mpls` before `geneve`, for which libpcap looks in front of
            // the packet, at -2. The rest of the language can be run.
            let expression = case.expression.unwrap_or_default();
            let known = match error {
                FilterError::JumpBackward { .. } | FilterError::MemoryUnwritten { .. } => true,
                FilterError::LinuxOffset { .. } => {
                    expression.contains("mpls") && expression.contains("geneve")
                }
                _ => false,
            };
            assert!(known || expression.is_empty(), "{expression:?}: {error}");
            return;
        }
    };
    let whole = program.run(packet);
    let len = packet.len() as u32;
    let (first, rest) = packet.split_at(case.border.min(packet.len()));
    assert_eq!(program.run_in_parts(first, len, |offset, to| copy(packet, offset, to)), whole);
    // The packet and its beginnings, together.
    let ends = (0..=packet.len()).rev().take(TOGETHER_MAX);
    let beginnings: Vec<&[u8]> = ends.map(|end| &packet[..end]).collect();
    let mut columns = Columns::default();
    let taken = program.run_together(&beginnings, Chosen::first(beginnings.len()), &mut columns);
    for (place, beginning) in beginnings.iter().enumerate() {
        let together = if taken.has(place) { columns.kept(place) } else { 0 };
        assert_eq!(together, program.run(beginning), "{:?}, together", case.expression);
    }
    match libpcap::interpret(&case.program, packet, len) {
        Ok(theirs) => assert_eq!(Some(whole), theirs, "{:?}", case.expression),
        Err(error) => skipped(&error),
    }
    // Cut off at the border, and longer than it is.
    let len = len + rest.len() as u32;
    let cut = program.run_in_parts(first, len, |_, _| 0);
    if let Ok(theirs) = libpcap::interpret(&case.program, first, len) {
        assert_eq!(Some(cut), theirs, "{:?}, cut off", case.expression);
    }
});

struct Case<'a> {
    /// What the program was compiled from.
    expression: Option<String>,
    program: Vec<libpcap::Instruction>,
    packet: &'a [u8],
    /// Bytes in the first frame.
    border: usize,
}

impl Case<'_> {
    /// | byte      | meaning                                                                  |
    /// |-----------|--------------------------------------------------------------------------|
    /// | 0         | the border between the packet's two frames                               |
    /// | 1         | below 128: how many instructions follow; else 128 + words of a filter     |
    /// | following | 8 for each instruction (see `instruction`), 1 for each word (see `WORDS`) |
    /// | the rest  | the packet                                                               |
    fn read(input: &[u8]) -> Option<Case<'_>> {
        let (&[border, count], rest) = input.split_first_chunk()?;
        let border = border.into();
        let count = usize::from(count);
        if count < 128 {
            let (instructions, packet) = rest.split_at_checked(count * 8)?;
            let program = instructions.as_chunks().0;
            let program = program
                .iter()
                .enumerate()
                .map(|(at, bytes)| instruction(bytes, count - at))
                .collect();
            return Some(Case { expression: None, program, packet, border });
        }
        let (words, packet) = rest.split_at_checked((count - 128) % 16)?;
        let words: Vec<&str> =
            words.iter().map(|&word| WORDS[usize::from(word) % WORDS.len()]).collect();
        let expression = words.join(" ");
        match libpcap::compile(&expression, libpcap::SNAP_MAX) {
            Ok(program) => Some(Case { expression: Some(expression), program, packet, border }),
            Err(PcapError::Expression { .. }) => None,
            Err(error) => {
                skipped(&error);
                None
            }
        }
    }
}

/// Eight bytes: a code, two skips, one unused, `k` as the machine has it. With the high bit of the fourth the
/// code is the first byte's, else one of the known codes; with its next bit skips are what they say, else they
/// lead to one of the `left` instructions from here on; with that below, an offset or constant is all of `k`,
/// else its low 6 bits.
fn instruction(bytes: &[u8; 8], left: usize) -> libpcap::Instruction {
    let [code, jt, jf, how, k @ ..] = *bytes;
    let mut k = u32::from_le_bytes(k);
    let code = if how & 0x80 != 0 { code } else { CODES[usize::from(code) % CODES.len()] };
    let inside =
        |skip: u8| if how & 0x40 != 0 { skip } else { (usize::from(skip) % left.max(2)) as u8 };
    if how & 0x20 == 0 {
        k &= 0x3f;
        if matches!(code, 0x02 | 0x03 | 0x60 | 0x61) {
            k &= 0xf;
        }
    }
    if code == 0x05 && how & 0x40 == 0 {
        k %= left.max(2) as u32;
    }
    (code.into(), inside(jt), inside(jf), k)
}

/// Copies the bytes from an offset on.
fn copy(packet: &[u8], offset: usize, to: &mut [u8]) -> usize {
    let from = packet.get(offset..).unwrap_or_default();
    let len = from.len().min(to.len());
    to[..len].copy_from_slice(&from[..len]);
    len
}

fn skipped(error: &PcapError) {
    static SAID: Once = Once::new();
    SAID.call_once(|| println!("SKIPPED agreement with libpcap: {error}"));
}

/// All codes of classic BPF.
#[rustfmt::skip]
const CODES: [u8; 49] = [
    0x06, 0x16,
    0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0x00, 0x60, 0x80, 0x01, 0x61, 0x81, 0xb1,
    0x02, 0x03,
    0x05, 0x15, 0x25, 0x35, 0x45, 0x1d, 0x2d, 0x3d, 0x4d,
    0x04, 0x14, 0x24, 0x34, 0x44, 0x54, 0x64, 0x74, 0x84, 0x94, 0xa4,
    0x0c, 0x1c, 0x2c, 0x3c, 0x4c, 0x5c, 0x6c, 0x7c, 0x9c, 0xac,
    0x07, 0x87,
];

/// The words of filters, whole primitives among them. Without names that would be looked up.
#[rustfmt::skip]
const WORDS: [&str; 76] = [
    "and", "or", "not", "(", ")", "ip", "ip6", "arp", "tcp", "udp", "icmp", "icmp6", "sctp", "vlan", "vlan 5",
    "mpls", "mpls 16", "geneve", "geneve 7", "pppoes", "host 192.0.2.1", "src host 198.51.100.2",
    "host 2001:db8::1", "dst host 2001:db8::2", "net 192.0.2.0/24", "src net 198.51.100.0/25",
    "net 2001:db8::/32", "ip6 net 2001:db8:8000::/33", "port 80", "src port 53", "dst port 443",
    "portrange 50-443", "ether host 02:00:00:00:00:01", "ether multicast", "broadcast", "ip multicast",
    "ip6 multicast", "ether proto 0x88cc", "ip proto 17", "ip6 proto 6", "ip6 protochain 58", "greater 100",
    "less 64", "tcp[tcpflags] & tcp-syn != 0", "tcp[(tcp[12] & 0xf0) >> 2:4] = 0x47455420",
    "ip[6:2] & 0x1fff != 0", "ip6[6] = 17", "icmp[icmptype] = icmp-echo", "icmp6[icmp6type] = icmp6-echo",
    "ether[len - 1] = 7", "ip[8] /", "ip[1] %", "ip[0] & 0xf", "ip[2:2]", "ip6[40]", "udp[4:2]", "tcp[12]",
    "ether[12:2]", "len", "1", "2", "7", "0x1fff", "0xffffffff", "+", "-", "*", "/", "%", "&", "|", "^", "<<",
    ">>", "=", ">",
];
