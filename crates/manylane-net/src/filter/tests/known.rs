//! Filters as tcpdump prints them, and which packets match.

use super::super::{Chosen, Columns, Instruction, Program};

#[test]
fn compiled_filters_match_what_they_say() {
    let packets = packets();
    let (mut filters, mut columns) = (0, Columns::default());
    for text in KNOWN.split("\nfilter: ").skip(1) {
        let (filter, rest) = text.split_once("\nmatch:").expect("what matches");
        let (names, program) = rest.split_once('\n').expect("a program");
        let program = parse(program);
        let expected: Vec<&str> = names.split_whitespace().collect();
        let matches = |packet: &[u8]| program.run(packet) == 262_144;
        let found: Vec<&str> =
            packets.iter().filter(|(_, packet)| matches(packet)).map(|&(name, _)| name).collect();
        assert_eq!(found, expected, "{filter}");
        let bytes: Vec<&[u8]> = packets.iter().map(|(_, packet)| &packet[..]).collect();
        let chosen = Chosen::first(bytes.len());
        let together = program.run_together(&bytes, chosen, &mut columns);
        let found: Vec<&str> = together.map(|place| packets[place].0).collect();
        assert_eq!(found, expected, "{filter}, together");
        // As above, with a border anywhere.
        for (name, packet) in &packets {
            for first in 0..packet.len() {
                let parts =
                    program.run_in_parts(&packet[..first], packet.len() as u32, |offset, to| {
                        let from = packet.get(offset..offset + to.len());
                        from.map_or(0, |from| {
                            to.copy_from_slice(from);
                            to.len()
                        })
                    });
                assert_eq!(
                    parts,
                    program.run(packet),
                    "{filter}: {name} with {first} bytes in front"
                );
            }
        }
        filters += 1;
    }
    assert_eq!(filters, 19);
}

/// What `tcpdump -dd` prints.
fn parse(text: &str) -> Program {
    let number = |text: &str| match text.trim().strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).expect("hexadecimal"),
        None => text.trim().parse().expect("decimal"),
    };
    let instruction = |line: &str| {
        let inside = line.trim().strip_prefix('{').and_then(|line| line.strip_suffix("},"));
        let fields: Vec<u32> = inside.expect("one in braces").split(',').map(number).collect();
        let [code, jt, jf, k] = fields[..] else { panic!("{line}") };
        Instruction { code: code as u16, jt: jt as u8, jf: jf as u8, k }
    };
    Program::new(text.lines().filter(|line| !line.is_empty()).map(instruction).collect())
        .expect("libpcap's")
}

/// Packets from 192.0.2.1 to 198.51.100.2 and from 2001:db8::1 to 2001:db8:8000::2.
fn packets() -> Vec<(&'static str, Vec<u8>)> {
    let syn = tcp(49152, 80, 0x02);
    let ack = tcp(80, 49152, 0x10);
    let question = udp(49152, 53, 200);
    let echo = |kind| [&[kind, 0, 0, 0, 0, 7, 0, 1][..], &[0; 40]].concat();
    vec![
        ("v4-tcp", ethernet(0x0800, &v4(&[], 0, 6, &syn))),
        ("v4-udp", ethernet(0x0800, &v4(&[], 0, 17, &question))),
        ("v4-echo", ethernet(0x0800, &v4(&[], 0, 1, &echo(8)))),
        ("v4-options", ethernet(0x0800, &v4(&[1, 1, 1, 0], 0x4000, 6, &syn))),
        // Of UDP, with bytes where a first one has the ports.
        ("v4-later", ethernet(0x0800, &v4(&[], 0x2010, 17, &udp(53, 53, 40)))),
        ("v6-tcp", ethernet(0x86dd, &v6(6, &ack))),
        ("v6-udp", ethernet(0x86dd, &v6(17, &question))),
        ("v6-echo", ethernet(0x86dd, &v6(58, &echo(128)))),
        (
            "v6-fragment",
            ethernet(0x86dd, &v6(44, &[&[58, 0, 0, 8, 0, 0, 0, 1], &echo(128)[..]].concat())),
        ),
        (
            "arp",
            ethernet(0x0806, &[&ARP[..], &[192, 0, 2, 1], &[0; 6], &[198, 51, 200, 2]].concat()),
        ),
        (
            "vlan-v4",
            ethernet(0x8100, &[&[0, 5, 8, 0], &v4(&[], 0, 17, &question[..20])[..]].concat()),
        ),
        (
            "vlan-v6",
            ethernet(0x88a8, &[&[0x20, 5, 0x86, 0xdd], &v6(17, &question[..20])[..]].concat()),
        ),
    ]
}

fn ethernet(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1], &ether_type.to_be_bytes()[..], payload].concat()
}

fn v4(options: &[u8], fragment: u16, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let header_len = 20 + options.len();
    let mut header = vec![0x40 | (header_len / 4) as u8, 0];
    header.extend(((header_len + payload.len()) as u16).to_be_bytes());
    header.extend([0, 7]);
    header.extend(fragment.to_be_bytes());
    header.extend([64, protocol, 0, 0, 192, 0, 2, 1, 198, 51, 100, 2]);
    [&header, options, payload].concat()
}

fn v6(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0];
    header.extend((payload.len() as u16).to_be_bytes());
    header.extend([next_header, 64]);
    header.extend([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    header.extend([0x20, 0x01, 0x0d, 0xb8, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    [&header, payload].concat()
}

fn tcp(source: u16, destination: u16, flags: u8) -> Vec<u8> {
    let ports = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    [&ports[..], &[0; 8], &[0x50, flags, 0x10, 0, 0, 0, 0, 0], b"\x5a"].concat()
}

fn udp(source: u16, destination: u16, len: usize) -> Vec<u8> {
    let header = [source, destination, len as u16, 0].map(u16::to_be_bytes).concat();
    [header, vec![0; len - 8]].concat()
}

/// A request, up to the sender's address.
const ARP: [u8; 14] = [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1];

const KNOWN: &str = include_str!("known.txt");
