//! Filters mean here what libpcap means by them: what its compiler makes of tcpdump's language, run by our
//! interpreter and by its own, over packets of every kind that the language knows.
//!
//! Without libpcap nothing can be compared: then the test is skipped, and says so.

use manylane_io::libpcap::{self, PcapError};
use manylane_net::filter::{Chosen, Columns, FilterError, Instruction, Program, TOGETHER_MAX};

use generate::Generator;

#[path = "filter/generate.rs"]
mod generate;

#[test]
fn compiled_expressions_match_what_libpcap_matches() {
    let mut generator = Generator::new();
    let packets: Vec<_> = (0..PACKETS).map(|_| generator.packet()).collect();
    let (mut matches, mut idle, mut columns) = (0, Vec::new(), Columns::default());
    for expression in EXPRESSIONS {
        let Some(instructions) = compiled(expression) else { return };
        let program = Program::new(instructions.iter().copied().map(Instruction::from).collect());
        let program = program.unwrap_or_else(|error| panic!("{expression}: {error}"));
        let mut found = 0;
        for (packet, len) in &packets {
            let expected = libpcap::interpret(&instructions, packet, *len).expect("it is loaded");
            let expected = expected.expect("its own compiler's program is safe");
            let cut = program.run_in_parts(packet, *len, |_, _| 0);
            assert_eq!(cut, expected, "{expression}: {packet:02x?} of {len}");
            if packet.len() == *len as usize {
                assert_eq!(program.run(packet), expected, "{expression}: {packet:02x?}");
            }
            let first = generator.below(packet.len() + 1);
            let parts = program.run_in_parts(&packet[..first], *len, |offset, to| {
                let from = packet.get(offset..).unwrap_or_default();
                let len = from.len().min(to.len());
                to[..len].copy_from_slice(&from[..len]);
                len
            });
            assert_eq!(parts, expected, "{expression}: {packet:02x?} of {len}, {first} in front");
            found += usize::from(expected > 0);
        }
        for packets in packets.chunks(TOGETHER_MAX) {
            let bytes: Vec<&[u8]> = packets.iter().map(|(packet, _)| &packet[..]).collect();
            let taken = program.run_together(&bytes, Chosen::first(bytes.len()), &mut columns);
            for (place, packet) in bytes.iter().enumerate() {
                let kept = if taken.has(place) { columns.kept(place) } else { 0 };
                assert_eq!(kept, program.run(packet), "{expression}: {packet:02x?}, together");
            }
        }
        if !(1..PACKETS).contains(&found) {
            idle.push((expression, found));
        }
        matches += found;
    }
    assert!(idle.is_empty(), "these tell nothing: {idle:?}");
    println!("{} expressions, {PACKETS} packets: {matches} matches", EXPRESSIONS.len());
}

/// What libpcap compiles for the kernel's ears, for an interpreter that may loop, or wrongly.
#[test]
fn what_needs_more_than_the_packet_is_refused() {
    for (expression, word) in [
        ("inbound", "point"),
        ("outbound and ip6", "point"),
        ("ip6 protochain 58", "`proto`"),
        ("geneve 7 or ip", "geneve"),
    ] {
        let Some(instructions) = compiled(expression) else { return };
        let error = Program::new(instructions.into_iter().map(Instruction::from).collect());
        let error = error.expect_err("it cannot run here");
        assert!(error.to_string().contains(word), "{expression}: {error}");
        assert!(
            match word {
                "point" => matches!(error, FilterError::LinuxOffset { .. }),
                "geneve" => matches!(error, FilterError::MemoryUnwritten { .. }),
                _ => matches!(error, FilterError::JumpBackward { .. }),
            },
            "{expression}: {error:?}"
        );
    }
}

/// `None`, and it says so, where libpcap is missing.
fn compiled(expression: &str) -> Option<Vec<libpcap::Instruction>> {
    match libpcap::compile(expression, libpcap::SNAP_MAX) {
        Ok(instructions) => Some(instructions),
        Err(error @ PcapError::Missing { .. }) => {
            println!("SKIPPED agreement with libpcap: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Generated packets for each expression.
const PACKETS: usize = 4000;

/// Of every kind that pcap-filter(7) has, as far as it is about the packet.
const EXPRESSIONS: &[&str] = &[
    "(ip[1] & 0xfc) >> 2 = 0x2e",
    "-ip[8] & 0xff < 30",
    "0x8000 >> (ip[8] & 63) = 1",
    "arp",
    "arp[6:2] = 1",
    "broadcast",
    "dst host 198.51.100.2",
    "dst net 2001:db8:8000::/33",
    "dst port 53",
    "ether broadcast or ether multicast",
    "ether host 02:00:00:00:00:01",
    "ether proto 0x88cc",
    "ether src 02:00:00:00:00:02",
    "ether[0] & 1 = 0 and ip[16] >= 198",
    "ether[len - 1] = 7",
    "ether[len - ether[len - 1]] & 3 = 1",
    "geneve 7 and ip host 192.0.2.1",
    "geneve and tcp port 80",
    "geneve",
    "greater 100",
    "host 192.0.2.1 and not port 80",
    "host 192.0.2.1",
    "host 2001:db8::1",
    "icmp",
    "icmp6",
    "icmp6[icmp6type] = icmp6-echo or icmp6[icmp6type] = icmp6-neighborsolicit",
    "icmp[icmptype] = icmp-echo and icmp[icmpcode] = 0",
    "igmp or pim or vrrp",
    "ip and (tcp or udp)",
    "ip host 198.51.100.2 or ip6 host 2001:db8::1",
    "ip multicast",
    "ip proto 47",
    "ip proto \\tcp and ip[0] & 0xf > 5",
    "ip",
    "ip6 and not tcp",
    "ip6 multicast",
    "ip6 net 2001:db8::/32 and udp",
    "ip6 proto 44",
    "ip6 proto \\tcp",
    "ip or geneve 7",
    "ip6",
    "ip6[6] = 17 and ip6[42:2] = 53",
    "ip6[8:4] = 0x20010db8",
    "ip[(ip[0] & 0xf) << 2:2] = 53",
    "ip[12:4] = ip[16:4]",
    "ip[2:2] > 60",
    "ip[6:2] & 0x1fff != 0",
    "ip[6] & 0x20 != 0",
    "ip[8] % 3 = 1 or ip[8] ^ 5 = 1",
    "ip[8] * 2 + 3 - ip[9] < 100",
    "ip[8] / ip[1] = 2",
    "ip[8] << 2 | 3 = 0xff",
    "ip[8] = 1 << (ip[1] & 7)",
    "ip[9] % (ip[1] & 7) = 2",
    "len > 100 and len <= 200",
    "less 64",
    "llc s",
    "mpls 16 and ip",
    "mpls",
    "net 192.0.2.0/24",
    "net 198.51.100.0/25 or net 2001:db8:8000::/48",
    "not ip and not ip6 and not arp",
    "port 53 or port 443 or port 8080 or port 22",
    "portrange 50-443",
    "pppoes and ip",
    "rarp",
    "sctp",
    "src net 192.0.2.0/24 and dst port 80",
    "src port 53 and udp",
    "src portrange 1000-2000",
    "stp",
    "tcp and (((ip[2:2] - ((ip[0] & 0xf) << 2)) - ((tcp[12] & 0xf0) >> 2)) != 0)",
    "tcp dst port 443",
    "tcp port 80",
    "tcp src port 80 and tcp[tcpflags] & (tcp-syn|tcp-ack) = (tcp-syn|tcp-ack)",
    "tcp",
    "tcp[(tcp[12] & 0xf0) >> 2:4] = 0x47455420",
    "tcp[tcpflags] & tcp-syn != 0 and tcp[tcpflags] & tcp-ack = 0",
    "tcp[tcpflags] & tcp-syn != 0",
    "udp",
    "udp[4:2] / 16 = 2",
    "vlan 5 and ip6",
    "vlan 5 and tcp port 80",
    "vlan 5",
    "vlan and vlan 7 and udp",
    "vlan",
];
