//! Each kind of packet and its line; tcpdump, where it is installed, has to agree on those it tells as we do.

use std::fs;

use etherparse::icmpv4::{DestUnreachableHeader, TimeExceededCode};
use etherparse::icmpv6::{DestUnreachableCode, NeighborAdvertisementHeader};
use etherparse::{
    ArpHardwareId, ArpPacket, Ethernet2Header, Icmpv4Type, Icmpv6Type, IpFragOffset, IpHeaders,
    IpNumber, Ipv6Extensions, Ipv6FragmentHeader, Ipv6Header, Ipv6RawExtHeader, PacketBuilder,
    PacketBuilderStep, TcpOptionElement, VlanId,
};
use proptest::prelude::*;

use super::super::lines::Style;
use super::super::source::SNAP_MAX;
use super::super::tests::script::{packet, tcpdump, write_file};
use super::*;

const A4: [u8; 4] = [10, 1, 0, 1];
const B4: [u8; 4] = [10, 2, 0, 1];
const A6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const B6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

type Step = PacketBuilderStep<Ethernet2Header>;

fn ethernet() -> Step {
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
}

/// What a builder's last step writes.
macro_rules! bytes {
    ($builder:expr, $payload:expr) => {{
        let mut bytes = Vec::new();
        $builder.write(&mut bytes, $payload).expect("a vector takes everything");
        bytes
    }};
}

fn v4(builder: Step) -> PacketBuilderStep<IpHeaders> {
    builder.ipv4(A4, B4, 64)
}

fn v6(builder: Step) -> PacketBuilderStep<IpHeaders> {
    builder.ipv6(A6, B6, 64)
}

fn syn() -> Vec<u8> {
    let options = [
        TcpOptionElement::MaximumSegmentSize(1460),
        TcpOptionElement::SelectiveAcknowledgementPermitted,
        TcpOptionElement::Timestamp(7, 0),
        TcpOptionElement::Noop,
        TcpOptionElement::WindowScale(7),
    ];
    let tcp = v4(ethernet()).tcp(5000, 5001, 4_294_967_295, 64240).syn();
    bytes!(tcp.options(&options).expect("40 bytes are enough"), &[])
}

fn fragment4(offset: u16, more: bool) -> Vec<u8> {
    let mut bytes = bytes!(v4(ethernet()).udp(5000, 5001), &[0; 24]);
    bytes[18..20].copy_from_slice(&1234u16.to_be_bytes());
    bytes[20..22].copy_from_slice(&((u16::from(more) << 13) | (offset / 8)).to_be_bytes());
    bytes
}

fn fragment6(offset: u16, more: bool) -> Vec<u8> {
    let offset = IpFragOffset::try_new(offset / 8).expect("13 bits are enough");
    let header = Ipv6Header { source: A6, destination: B6, hop_limit: 64, ..Default::default() };
    let extensions = Ipv6Extensions {
        fragment: Some(Ipv6FragmentHeader::new(IpNumber::UDP, offset, more, 1234)),
        ..Default::default()
    };
    bytes!(ethernet().ip(IpHeaders::Ipv6(header, extensions)).udp(5000, 5001), &[0; 24])
}

fn hop_by_hop() -> Vec<u8> {
    let header = Ipv6Header { source: A6, destination: B6, hop_limit: 64, ..Default::default() };
    let options = Ipv6RawExtHeader::new_raw(IpNumber::UDP, &[1, 4, 0, 0, 0, 0]);
    let extensions = Ipv6Extensions {
        hop_by_hop_options: Some(options.expect("6 bytes are enough")),
        ..Default::default()
    };
    bytes!(ethernet().ip(IpHeaders::Ipv6(header, extensions)).udp(5000, 5001), &[0; 18])
}

fn arp(operation: ArpOperation) -> Vec<u8> {
    let target: &[u8] =
        if operation == ArpOperation::REPLY { &[2, 0, 0, 0, 0, 2] } else { &[0; 6] };
    let packet = ArpPacket::new(
        ArpHardwareId::ETHERNET,
        EtherType::IPV4,
        operation,
        &[2, 0, 0, 0, 0, 1],
        &A4,
        target,
        &B4,
    );
    let mut bytes = Vec::new();
    let builder = ethernet().arp(packet.expect("its addresses are of one size"));
    builder.write(&mut bytes).expect("a vector takes everything");
    bytes
}

/// The quoted packet of an error: without its Ethernet header.
fn quoted(bytes: Vec<u8>) -> Vec<u8> {
    bytes[14..].to_vec()
}

fn unreachable4(why: DestUnreachableHeader) -> Vec<u8> {
    let about = quoted(bytes!(ethernet().ipv4(B4, A4, 64).udp(5001, 5000), &[0; 18]));
    bytes!(v4(ethernet()).icmpv4(Icmpv4Type::DestinationUnreachable(why)), &about)
}

fn vlan(bytes: Vec<u8>, tags: &[[u8; 4]]) -> Vec<u8> {
    [&bytes[..12], &tags.concat(), &bytes[12..]].concat()
}

/// Whether these are tcpdump's words, too.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Words {
    Tcpdumps,
    Ours,
}

fn table() -> Vec<(Vec<u8>, &'static str, Words)> {
    use Words::{Ours, Tcpdumps};
    let udp4 = bytes!(v4(ethernet()).udp(5000, 5001), &[0; 18]);
    let udp6 = bytes!(v6(ethernet()).udp(5000, 5001), &[0; 18]);
    let ack = bytes!(v4(ethernet()).tcp(5000, 5001, 1, 500).ack(9).psh(), &[0; 10]);
    let fin = bytes!(v6(ethernet()).tcp(5000, 5001, 1, 500).ack(9).fin().ece().cwr(), &[]);
    let sack = v4(ethernet()).tcp(5000, 5001, 1, 500).ack(9).options(&[
        TcpOptionElement::Noop,
        TcpOptionElement::Noop,
        TcpOptionElement::SelectiveAcknowledgement((20, 30), [Some((40, 50)), None, None]),
    ]);
    let sack = bytes!(sack.expect("40 bytes are enough"), &[]);
    let echo4 = bytes!(v4(ethernet()).icmpv4_echo_request(7, 8), &[0; 56]);
    let echo6 = bytes!(v6(ethernet()).icmpv6_echo_reply(7, 8), &[0; 56]);
    let about6 = quoted(bytes!(ethernet().ipv6(B6, A6, 64).udp(5001, 5000), &[0; 18]));
    let unreachable6 = |why| {
        let why = Icmpv6Type::DestinationUnreachable(why);
        bytes!(v6(ethernet()).icmpv6(why), &about6)
    };
    let big6 = bytes!(v6(ethernet()).icmpv6(Icmpv6Type::PacketTooBig { mtu: 1280 }), &about6);
    let ns = bytes!(v6(ethernet()).icmpv6(Icmpv6Type::NeighborSolicitation), &B6);
    let flags = NeighborAdvertisementHeader { router: true, solicited: true, r#override: false };
    let na = bytes!(v6(ethernet()).icmpv6(Icmpv6Type::NeighborAdvertisement(flags)), &B6);
    let exceeded = Icmpv4Type::TimeExceeded(TimeExceededCode::TtlExceededInTransit);
    let exceeded = bytes!(v4(ethernet()).icmpv4(exceeded), &quoted(udp4.clone()));
    let tag = |kind: u16, id: u16| {
        let [[a, b], [c, d]] =
            [kind.to_be_bytes(), VlanId::try_new(id).unwrap().value().to_be_bytes()];
        [a, b, c, d]
    };
    let tagged = vlan(udp4.clone(), &[tag(0x8100, 5)]);
    let twice = vlan(udp6.clone(), &[tag(0x88a8, 200), tag(0x8100, 7)]);
    let gre = bytes!(v4(ethernet()).udp(5000, 5001), &[0; 18]);
    let gre = [&gre[..23], &[47], &gre[24..]].concat();
    let lldp = [&[0; 12][..], &[0x88, 0xcc], &[0; 46]].concat();
    let llc = [&[0; 12][..], &[0x00, 0x2e], &[0; 46]].concat();
    let cut = |bytes: &[u8], len: usize| bytes[..len].to_vec();
    let bad = |mut bytes: Vec<u8>, at: usize, byte: u8| {
        bytes[at] = byte;
        bytes
    };
    vec![
        (udp4.clone(), "IP 10.1.0.1.5000 > 10.2.0.1.5001: UDP, length 18", Tcpdumps),
        (udp6.clone(), "IP6 2001:db8:1::1.5000 > 2001:db8:2::1.5001: UDP, length 18", Tcpdumps),
        (
            syn(),
            "IP 10.1.0.1.5000 > 10.2.0.1.5001: Flags [S], seq 4294967295, win 64240, options [mss 1460,sackOK,TS \
             val 7 ecr 0,nop,wscale 7], length 0",
            Tcpdumps,
        ),
        (
            ack,
            "IP 10.1.0.1.5000 > 10.2.0.1.5001: Flags [P.], seq 1:11, ack 9, win 500, length 10",
            Tcpdumps,
        ),
        (
            fin,
            "IP6 2001:db8:1::1.5000 > 2001:db8:2::1.5001: Flags [F.EW], seq 1, ack 9, win 500, length 0",
            Tcpdumps,
        ),
        (
            sack,
            "IP 10.1.0.1.5000 > 10.2.0.1.5001: Flags [.], ack 9, win 500, options [nop,nop,sack 2 \
             {20:30}{40:50}], length 0",
            Tcpdumps,
        ),
        (echo4, "IP 10.1.0.1 > 10.2.0.1: ICMP echo request, id 7, seq 8, length 64", Tcpdumps),
        (
            echo6,
            "IP6 2001:db8:1::1 > 2001:db8:2::1: ICMP6, echo reply, id 7, seq 8, length 64",
            Tcpdumps,
        ),
        (
            unreachable4(DestUnreachableHeader::Port),
            "IP 10.1.0.1 > 10.2.0.1: ICMP 10.1.0.1 udp port 5000 unreachable, length 54",
            Tcpdumps,
        ),
        (
            unreachable4(DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: 1400 }),
            "IP 10.1.0.1 > 10.2.0.1: ICMP 10.1.0.1 unreachable - need to frag (mtu 1400), length 54",
            Tcpdumps,
        ),
        (
            unreachable4(DestUnreachableHeader::FilterProhibited),
            "IP 10.1.0.1 > 10.2.0.1: ICMP host 10.1.0.1 unreachable - admin prohibited filter, length 54",
            Tcpdumps,
        ),
        (exceeded, "IP 10.1.0.1 > 10.2.0.1: ICMP time exceeded in-transit, length 54", Tcpdumps),
        (
            unreachable6(DestUnreachableCode::Port),
            "IP6 2001:db8:1::1 > 2001:db8:2::1: ICMP6, destination unreachable, unreachable port, \
             2001:db8:1::1 udp port 5000, length 74",
            Tcpdumps,
        ),
        (
            unreachable6(DestUnreachableCode::NoRoute),
            "IP6 2001:db8:1::1 > 2001:db8:2::1: ICMP6, destination unreachable, unreachable route \
             2001:db8:1::1, length 74",
            Tcpdumps,
        ),
        (
            unreachable6(DestUnreachableCode::Address),
            "IP6 2001:db8:1::1 > 2001:db8:2::1: ICMP6, destination unreachable, unreachable address \
             2001:db8:1::1, length 74",
            Tcpdumps,
        ),
        (
            unreachable6(DestUnreachableCode::BeyondScope),
            "IP6 2001:db8:1::1 > 2001:db8:2::1: ICMP6, destination unreachable, beyond scope 2001:db8:1::1, \
             source address 2001:db8:2::1, length 74",
            Tcpdumps,
        ),
        // tcpdump has one space more.
        (
            unreachable6(DestUnreachableCode::Prohibited),
            "IP6 2001:db8:1::1 > 2001:db8:2::1: ICMP6, destination unreachable, unreachable prohibited \
             2001:db8:1::1, length 74",
            Ours,
        ),
        (
            big6,
            "IP6 2001:db8:1::1 > 2001:db8:2::1: ICMP6, packet too big, mtu 1280, length 74",
            Tcpdumps,
        ),
        (
            ns,
            "IP6 2001:db8:1::1 > 2001:db8:2::1: ICMP6, neighbor solicitation, who has 2001:db8:2::1, length 24",
            Tcpdumps,
        ),
        (
            na,
            "IP6 2001:db8:1::1 > 2001:db8:2::1: ICMP6, neighbor advertisement, tgt is 2001:db8:2::1, Flags \
             [router, solicited], length 24",
            Ours,
        ),
        (
            arp(ArpOperation::REQUEST),
            "ARP, Request who-has 10.2.0.1 tell 10.1.0.1, length 28",
            Tcpdumps,
        ),
        (
            arp(ArpOperation::REPLY),
            "ARP, Reply 10.1.0.1 is-at 02:00:00:00:00:01, length 28",
            Tcpdumps,
        ),
        (tagged, "vlan 5, IP 10.1.0.1.5000 > 10.2.0.1.5001: UDP, length 18", Ours),
        (
            twice,
            "vlan 200, vlan 7, IP6 2001:db8:1::1.5000 > 2001:db8:2::1.5001: UDP, length 18",
            Ours,
        ),
        (
            fragment4(0, true),
            "IP 10.1.0.1.5000 > 10.2.0.1.5001: UDP, length 24 (frag 1234:32@0+)",
            Ours,
        ),
        (fragment4(1480, false), "IP 10.1.0.1 > 10.2.0.1: UDP (frag 1234:32@1480)", Ours),
        (
            fragment6(0, true),
            "IP6 2001:db8:1::1.5000 > 2001:db8:2::1.5001: UDP, length 24 (frag 1234:32@0+)",
            Ours,
        ),
        (
            fragment6(1480, false),
            "IP6 2001:db8:1::1 > 2001:db8:2::1: UDP (frag 1234:32@1480)",
            Ours,
        ),
        (hop_by_hop(), "IP6 2001:db8:1::1.5000 > 2001:db8:2::1.5001: HBH UDP, length 18", Ours),
        (gre, "IP 10.1.0.1 > 10.2.0.1: GRE, length 26", Ours),
        (lldp, "ethertype LLDP (0x88cc), length 46", Ours),
        (llc, "802.3, length 46", Ours),
        // Cut by -s.
        (cut(&udp4, 10), "[|ether], length 60", Ours),
        (cut(&udp4, 20), "[|ip], length 46", Ours),
        (cut(&udp6, 20), "[|ip6], length 66", Ours),
        (cut(&udp4, 36), "IP 10.1.0.1 > 10.2.0.1: [|udp]", Ours),
        (cut(&udp4, 38), "IP 10.1.0.1.5000 > 10.2.0.1.5001: [|udp]", Ours),
        (cut(&udp4, 42), "IP 10.1.0.1.5000 > 10.2.0.1.5001: UDP, length 18", Tcpdumps),
        (cut(&syn(), 50), "IP 10.1.0.1.5000 > 10.2.0.1.5001: [|tcp]", Ours),
        (
            cut(&syn(), 54),
            "IP 10.1.0.1.5000 > 10.2.0.1.5001: Flags [S], seq 4294967295, win 64240, length 0 [|tcp]",
            Ours,
        ),
        (cut(&hop_by_hop(), 58), "IP6 2001:db8:1::1 > 2001:db8:2::1: [|HOPOPT], length 34", Ours),
        (cut(&arp(ArpOperation::REQUEST), 30), "[|arp], length 28", Ours),
        // Headers that contradict themselves.
        (bad(udp4.clone(), 14, 0x44), "[bad ip 0x44], length 46", Ours),
        (bad(udp6.clone(), 14, 0x40), "[bad ip6 0x40], length 66", Ours),
        (
            bad(syn(), 46, 0x40),
            "IP 10.1.0.1.5000 > 10.2.0.1.5001: tcp, [bad header length 16 < 20]",
            Ours,
        ),
        (
            bad(udp4.clone(), 39, 7),
            "IP 10.1.0.1.5000 > 10.2.0.1.5001: UDP, [bad length 7 < 8]",
            Ours,
        ),
    ]
}

fn line(bytes: &[u8], len: usize, style: Style) -> String {
    let mut text = String::new();
    frame(&mut text, bytes, len as u32, style);
    text
}

/// Packets that are cut were longer on the wire; tcpdump reads that length, too.
fn wire_len(bytes: &[u8], told: &str) -> usize {
    let len = match told {
        _ if told.contains("ARP") || told.contains("[|arp]") => 42,
        _ if told.contains("HOPOPT") => 88,
        _ if told.contains("[|tcp]") => 74,
        _ if told.contains("[|ip6]") => 80,
        _ => 60,
    };
    bytes.len().max(len)
}

#[test]
fn each_kind_of_packet_has_its_line() {
    for (bytes, told, _) in table() {
        assert_eq!(line(&bytes, wire_len(&bytes, told), Style::default()), told);
    }
}

#[test]
fn tcpdump_says_the_same() {
    let table: Vec<_> = table().into_iter().filter(|line| line.2 == Words::Tcpdumps).collect();
    let file = std::env::temp_dir().join(format!("manylane-decode-{}.pcapng", std::process::id()));
    let packets = table.iter().map(|(bytes, told, _)| {
        let len = wire_len(bytes, told) as u32;
        super::super::source::Captured { bytes, len, ..packet() }
    });
    write_file(&file, packets);
    let said = tcpdump(&["-n", "-t", "-S", "-r"], &file);
    let removed = fs::remove_file(&file);
    let Some(said) = said else { return };
    removed.expect("it was written");
    let said: Vec<_> = said.lines().collect();
    let told: Vec<_> = table.iter().map(|line| line.1).collect();
    assert_eq!(said, told);
}

#[test]
fn more_and_less_is_told_if_asked_for() {
    let udp = bytes!(v4(ethernet()).udp(5000, 5001), &[0; 18]);
    let tagged = vlan(udp.clone(), &[[0x81, 0, 0x60, 5]]);
    let link = Style { link: true, ..Style::default() };
    assert_eq!(
        line(&tagged, 64, link),
        "02:00:00:00:00:01 > 02:00:00:00:00:02, ethertype 802.1Q (0x8100), length 64: vlan 5, p 3, ethertype IPv4 \
         (0x0800), IP 10.1.0.1.5000 > 10.2.0.1.5001: UDP, length 18"
    );
    let verbose = Style { verbose: true, ..Style::default() };
    assert_eq!(
        line(&udp, 60, verbose),
        "IP (tos 0x0, ttl 64, id 0, offset 0, flags [DF], proto UDP (17), length 46) 10.1.0.1.5000 > \
         10.2.0.1.5001: UDP, length 18"
    );
    let udp6 = bytes!(v6(ethernet()).udp(5000, 5001), &[0; 18]);
    assert_eq!(
        line(&udp6, 80, verbose),
        "IP6 (class 0x0, flowlabel 0x0, hlim 64, next-header UDP (17), payload length 26) \
         2001:db8:1::1.5000 > 2001:db8:2::1.5001: UDP, length 18"
    );
    let quiet = Style { quiet: true, ..Style::default() };
    assert_eq!(line(&syn(), 74, quiet), "IP 10.1.0.1.5000 > 10.2.0.1.5001: tcp 0");
}

#[test]
fn bytes_are_shown_as_tcpdump_does() {
    let bytes: Vec<_> = (0x2e..0x2e + 19).collect();
    let mut text = String::new();
    hex(&mut text, &bytes, true);
    assert_eq!(
        text,
        "\t0x0000:  2e2f 3031 3233 3435 3637 3839 3a3b 3c3d  ./0123456789:;<=\n\
         \t0x0010:  3e3f 40                                  >?@\n"
    );
    text.clear();
    hex(&mut text, &bytes[..3], false);
    assert_eq!(text, "\t0x0000:  2e2f 30\n");

    let tagged = vlan(bytes!(v4(ethernet()).udp(5000, 5001), &[]), &[[0x81, 0, 0, 5]]);
    assert_eq!(link_len(&tagged), 18);
    assert_eq!(link_len(&tagged[..16]), 14);
    assert_eq!(link_len(&tagged[..5]), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    /// A packet may have any bytes, and be cut anywhere.
    #[test]
    fn no_bytes_are_too_odd(
        row in 0..table().len(),
        changes in prop::collection::vec((0..80usize, any::<u8>()), 0..6),
        noise in prop::collection::vec(any::<u8>(), 0..100),
        kept in 0..120usize,
        is_noise in prop::bool::weighted(0.2),
        len in 0..SNAP_MAX,
    ) {
        let mut bytes = if is_noise { noise } else { table().swap_remove(row).0 };
        for (at, byte) in changes {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        bytes.truncate(kept);
        for style in [
            Style::default(),
            Style { link: true, verbose: true, quiet: false, hex: None },
            Style { link: false, verbose: false, quiet: true, hex: None },
        ] {
            let text = line(&bytes, len as usize, style);
            prop_assert!(!text.is_empty() && text.len() < 1000, "{text}");
            prop_assert!(text.chars().all(|c| !c.is_control()), "{text}");
        }
        let mut text = String::new();
        hex(&mut text, &bytes[link_len(&bytes)..], true);
    }
}
