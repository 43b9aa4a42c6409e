use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};

use proptest::prelude::*;

use super::super::{ipv4, ipv6, udp};
use super::*;

const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const A6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const B6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

proptest! {
    /// Whatever the packet is like: near enough to an ordinary one that both ways are taken.
    #[test]
    fn the_short_way_finds_what_the_long_way_finds(
        packet in proptest::collection::vec(any::<u8>(), 0..72),
        front in prop_oneof![Just(0x45u8), Just(0x46), Just(0x60), any::<u8>()],
        length in 0u16..80,
        fragment in prop_oneof![Just(0u16), Just(0x4000), any::<u16>()],
        number in prop_oneof![Just(6u8), Just(17), Just(1), Just(44), any::<u8>()],
    ) {
        let mut packet = packet;
        let sixth = front >> 4 == 6;
        let at = if sixth { 4 } else { 2 };
        let writes = [
            (0, front), (at, 0), (at + 1, length as u8),
            (if sixth { 6 } else { 9 }, number),
        ];
        for (at, byte) in writes {
            packet.get_mut(at).into_iter().for_each(|place| *place = byte);
        }
        if let (false, Some(word)) = (sixth, packet.get_mut(6..8)) {
            word.copy_from_slice(&fragment.to_be_bytes());
        }
        prop_assert_eq!(flow_hash(&packet), FlowKey::PUBLIC.any_hash(&packet));
        for ether_type in [[0x08, 0x00], [0x86, 0xdd], [0x81, 0x00]] {
            let frame = [&[7; 12][..], &ether_type, &packet].concat();
            prop_assert_eq!(frame_hash(&frame), FlowKey::PUBLIC.any_frame_hash(&frame));
        }
    }
}

#[test]
fn ports_tell_flows_apart_but_not_fragments() {
    assert_ne!(flow_hash(&v4(A, B, 1, 2)), flow_hash(&v4(A, B, 1, 3)));
    assert_ne!(flow_hash(&v4(A, B, 1, 2)), flow_hash(&v4(A, B, 2, 1)));

    let fragment = |word: u16, source: u16| {
        let mut packet = v4(A, B, source, 2);
        packet[6..8].copy_from_slice(&word.to_be_bytes());
        flow_hash(&packet)
    };
    assert_eq!(fragment(0x2000, 1), fragment(0x2000, 99));
    assert_eq!(fragment(0x2000, 1), fragment(0x0005, 99));
    assert_ne!(fragment(0x4000, 1), fragment(0x4000, 99));
}

/// All that has no ports takes one way, whatever it says that it is.
#[test]
fn without_ports_the_addresses_alone_tell_flows_apart() {
    let of = |protocol: u8, fragment: u16| {
        let mut packet = v4(A, B, 1, 2);
        packet[6..8].copy_from_slice(&fragment.to_be_bytes());
        packet[9] = protocol;
        flow_hash(&packet)
    };
    let gre = of(47, 0);
    assert_eq!(gre, of(50, 0));
    for protocol in [protocol::ICMP, protocol::TCP, protocol::UDP, 50] {
        assert_eq!((of(protocol, 0x2000), of(protocol, 0x0005)), (gre, gre), "{protocol}");
    }
    assert_ne!(of(protocol::TCP, 0), of(protocol::UDP, 0), "their ports are not the same ports");
}

/// The options after the fragment header are in the first fragment only.
#[test]
fn all_fragments_of_an_ipv6_packet_hash_alike() {
    let with = |header: &[u8]| {
        let mut packet = v6(A6, B6, 1, 2);
        packet.splice(40..40, header.iter().copied());
        packet[5] += header.len() as u8;
        packet[6] = header.first().map_or(protocol::UDP, |_| protocol::FRAGMENT);
        flow_hash(&packet)
    };
    let first = with(&[60, 0, 0, 1, 0, 0, 0, 9, protocol::UDP, 0, 1, 4, 0, 0, 0, 0]);
    let later = with(&[60, 0, 0, 8, 0, 0, 0, 9]);
    assert_eq!(first, later);
    let atomic = with(&[protocol::UDP, 0, 0, 0, 0, 0, 0, 9]);
    assert_eq!(atomic, with(&[]), "an atomic fragment is a whole packet");
    assert_ne!(first, with(&[]));
}

#[test]
fn extension_headers_do_not_change_the_flow() {
    let mut packet = v6(A6, B6, 1, 2);
    let plain = flow_hash(&packet);
    packet.splice(40..40, [protocol::UDP, 0, 1, 4, 0, 0, 0, 0]);
    packet[5] += 8;
    packet[6] = protocol::DESTINATION_OPTIONS;
    assert_eq!(flow_hash(&packet), plain);
}

#[test]
fn an_error_hashes_as_the_packet_it_is_about() {
    let about = v4(A, B, 1, 2);
    let mut error = [&[0; 28], &about[..28]].concat(); // Cut, as a quote may be.
    icmp::emit(&mut error[20..], icmp::kind::TIME_EXCEEDED, 0, 0).unwrap();
    header_v4(protocol::ICMP, Ipv4Addr::new(192, 0, 2, 9), A).emit(&mut error, 36).unwrap();
    assert_eq!(flow_hash(&error), flow_hash(&v4(B, A, 2, 1)));

    let about = v6(A6, B6, 1, 2);
    let mut error = [&[0; 48], &about[..48]].concat();
    let router: Ipv6Addr = "2001:db8:9::1".parse().unwrap();
    icmpv6::emit(&mut error[40..], icmpv6::kind::PACKET_TOO_BIG, 0, 1280, router, A6).unwrap();
    header_v6(protocol::ICMPV6, router, A6).emit(&mut error, 56).unwrap();
    assert_eq!(flow_hash(&error), flow_hash(&v6(B6, A6, 2, 1)));
}

#[test]
fn a_ping_keeps_its_addresses_only() {
    let ping = |source, destination, sequence: u32| {
        let mut packet = vec![0; 28];
        header_v4(protocol::ICMP, source, destination).emit(&mut packet, 8).unwrap();
        icmp::emit(&mut packet[20..], icmp::kind::ECHO_REQUEST, 0, sequence).unwrap();
        flow_hash(&packet)
    };
    assert_eq!(ping(A, B, 1), ping(B, A, 2));
    assert_ne!(ping(A, B, 1), ping(A, Ipv4Addr::new(10, 0, 0, 3), 1));
}

#[test]
fn what_cannot_be_read_is_no_flow() {
    assert_eq!(flow_hash(&[]), 0);
    assert_eq!(flow_hash(&[0x45; 19]), 0);
    assert_eq!(flow_hash(&[0x00; 100]), 0);
}

/// 4096 flows over 256 buckets, numbered up as a test bed does: 16 each, if it were perfect.
#[test]
fn counted_up_flows_spread_over_the_buckets() {
    for (what, flow) in [
        ("ports", (|n| flow_hash(&v4(A, B, 1024 + n, 80))) as fn(u16) -> u32),
        ("hosts", |n| flow_hash(&v4(Ipv4Addr::from_bits(0x0a00_0000 + u32::from(n)), B, 1, 2))),
        ("ports v6", |n| flow_hash(&v6(A6, B6, 1024 + n, 80))),
        ("hosts v6", |n| {
            flow_hash(&v6(Ipv6Addr::from_bits(A6.to_bits() + u128::from(n)), B6, 1, 2))
        }),
        ("networks v6", |n| {
            flow_hash(&v6(Ipv6Addr::from_bits(A6.to_bits() + (u128::from(n) << 64)), B6, 1, 2))
        }),
    ] {
        let mut buckets = [0; 256];
        for number in 0..4096 {
            buckets[(flow(number) % 256) as usize] += 1;
        }
        let fullest = buckets.iter().max().unwrap();
        assert!(*fullest < 40, "{what}: {fullest} flows in one bucket");
        assert!(buckets.iter().all(|&flows| flows > 0), "{what}: an empty bucket");
    }
}

/// An attacker knows the algorithm, and makes flows that all land in one bucket by the public key. By
/// two keys that the attacker does not know, these flows spread as chance does.
#[test]
fn flows_made_to_collide_by_one_key_spread_by_another() {
    let keys = [[1, 2, 3], [4, 5, 6]].map(FlowKey::new_of_test);
    let flows: [fn(u32) -> Vec<u8>; 4] = [
        |n| v4(Ipv4Addr::from_bits(0x0a00_0000 | n >> 16), B, n as u16, 80),
        |n| v4(Ipv4Addr::from_bits(0xac10_0000 + n), B, 4000, 80),
        |n| v6(A6, B6, n as u16, (n >> 16) as u16),
        |n| v6(Ipv6Addr::from_bits(A6.to_bits() + (u128::from(n) << 40)), B6, 4000, 80),
    ];
    for (what, flow) in flows.iter().enumerate() {
        let crafted = (0..u32::MAX).map(flow).filter(|flow| flow_hash(flow) as u8 == 7);
        let crafted: Vec<_> = crafted.take(4096).collect();
        for key in keys {
            let mut buckets = [0; 256];
            crafted.iter().for_each(|flow| buckets[usize::from(key.flow_hash(flow) as u8)] += 1);
            let fullest = buckets.iter().max().expect("256 buckets");
            assert!(*fullest < 48, "{what}: {fullest} of 4096 flows in one bucket");
        }
    }
}

/// Keys are drawn at random, and none may be a bad one: 4096 flows that were counted up.
#[test]
fn counted_up_flows_spread_by_any_key() {
    for seed in 0..200 {
        let seeded = FlowKey::seeded(FlowKey::new_of_test([seed; 3]).0[0]);
        let keys = [FlowKey::new_of_test([seed, seed + 1000, seed + 2000]), seeded];
        let flows: [fn(u16) -> Vec<u8>; 4] = [
            |n| v4(A, B, 1024 + n, 80),
            |n| v4(Ipv4Addr::from_bits(0x0a00_0000 + u32::from(n)), B, 1, 2),
            |n| v6(A6, B6, 1024 + n, 80),
            |n| v6(Ipv6Addr::from_bits(A6.to_bits() + u128::from(n)), B6, 1, 2),
        ];
        for ((what, flow), key) in
            flows.iter().enumerate().flat_map(|flow| keys.map(|key| (flow, key)))
        {
            let mut buckets = [0; 256];
            (0..4096).for_each(|n| buckets[usize::from(key.flow_hash(&flow(n)) as u8)] += 1);
            let fullest = buckets.iter().max().expect("256 buckets");
            assert!(*fullest < 64, "{what}, key {seed}: {fullest} of 4096 flows in one bucket");
        }
    }
}

/// Random numbers whose bits 24 to 39 are zeros took all pairs of hosts of two IPv6 networks to one bucket.
#[test]
fn hosts_that_differ_in_the_last_byte_spread_by_unlucky_numbers() {
    let sum = FlowKey::new_of_test([7, 8, 9]).0[1] & !0xff_ff00_0000;
    // None, the smallest fractions, a half and a third of the range.
    for middle in [0, 1, 0x8000, 0x5555] {
        let key =
            FlowKey::new([0x9e37_79b9_7f4a_7c15, sum | (middle << 24), 0x1234_5678_9abc_def1]);
        let mut buckets = [0; 256];
        for n in 0..4096 {
            let [from, to] = [A6.to_bits() + (n & 63), A6.to_bits() + (1 << 64) + (n >> 6)];
            let flow = v6(Ipv6Addr::from_bits(from), Ipv6Addr::from_bits(to), 1, 2);
            buckets[usize::from(key.flow_hash(&flow) as u8)] += 1;
        }
        let fullest = buckets.iter().max().expect("256 buckets");
        assert!(*fullest < 128, "{middle:#x}: {fullest} of 4096 flows in one bucket");
    }
}

/// As by the public key: fragments of both families take one way, whatever their ports.
#[test]
fn fragments_hash_by_their_addresses_by_any_key() {
    for seed in 0..50 {
        let key = FlowKey::new_of_test([seed, seed + 1000, seed + 2000]);
        let whole = v4(A, B, 1, 2);
        let fragment = |word: u16, source| {
            let mut packet = v4(A, B, source, 2);
            packet[6..8].copy_from_slice(&word.to_be_bytes());
            key.flow_hash(&packet)
        };
        let addresses = key.address_hash(&View::quoted(&whole).expect("it is whole"));
        assert_eq!([fragment(0x2000, 1), fragment(0x0005, 99)], [addresses; 2]);
        assert_ne!(key.flow_hash(&whole), addresses);

        let whole = v6(A6, B6, 1, 2);
        let fragment = |header: [u8; 8]| {
            let mut packet = whole.clone();
            packet.splice(40..40, header);
            packet[5] += 8;
            packet[6] = protocol::FRAGMENT;
            key.flow_hash(&packet)
        };
        let addresses = key.address_hash(&View::quoted(&whole).expect("it is whole"));
        let [first, later] = [[17, 0, 0, 1, 0, 0, 0, 9], [17, 0, 0, 8, 0, 0, 0, 9]].map(fragment);
        assert_eq!([first, later], [addresses; 2]);
        assert_ne!(key.flow_hash(&whole), addresses);
    }
}

/// An operator's trace or a panic's message would tell the key to those who read it.
#[test]
fn a_key_is_not_printed() {
    let keys = [FlowKey::PUBLIC, FlowKey::new([1, 2, 3])];
    assert_eq!(keys.map(|key| format!("{key:?}")), ["FlowKey"; 2]);
    assert_eq!(format!("{:#?}", keys[1]), "FlowKey");
}

/// Flows of different hosts with one and the same hash by the public key, as an attacker computes them: a folded
/// product says only which pairs of bytes differ how, so half of its bytes are free, and the multiplication has an inverse.
pub(crate) fn colliding_v4(count: usize) -> Vec<Vec<u8>> {
    let inverse = inverse(FlowKey::PUBLIC.0[0]);
    let ends = products_of_one_fold().map(|product| product.wrapping_mul(inverse));
    let flows = ends.filter(|end| end >> 48 == 0).map(|end| {
        v4(Ipv4Addr::from((end as u32).to_le_bytes()), B, u16::from_be((end >> 32) as u16), 80)
    });
    flows.take(count).collect()
}

/// As [`colliding_v4`], of hosts of one /64 with one port.
pub(crate) fn colliding_v6(count: usize) -> Vec<Vec<u8>> {
    let [end, sum, port] = FlowKey::PUBLIC.0;
    let network = fold((A6.to_bits().swap_bytes() as u64).wrapping_mul(sum));
    let port = u64::from(4000_u16.to_be()).wrapping_mul(port);
    let flows = products_of_one_fold().map(|product| {
        let interface = network ^ product.wrapping_mul(inverse(end)).wrapping_sub(port);
        let host = A6.to_bits() >> 64 << 64 | u128::from(interface.swap_bytes());
        v6(Ipv6Addr::from_bits(host), B6, 4000, 80)
    });
    flows.take(count).collect()
}

fn products_of_one_fold() -> impl Iterator<Item = u64> {
    const FOLDED: u32 = 0x1357_9bdf;
    let product = |upper: u32| u64::from(upper) << 32 | u64::from(upper.swap_bytes() ^ FOLDED);
    (0..=u32::MAX).map(product)
}

/// By Newton's iteration, which doubles the right bits each time, from three.
fn inverse(odd: u64) -> u64 {
    (0..5)
        .fold(odd, |inverse, _| inverse.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(inverse))))
}

impl FlowKey {
    /// The key by SplitMix64's finaliser over these words.
    fn new_of_test(words: [u64; 3]) -> FlowKey {
        FlowKey::new(words.map(|word| {
            let z = word.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_directions_hash_alike_by_any_key(
        random: [u64; 3], a: [u8; 16], b: [u8; 16], from: u16, to: u16,
    ) {
        let key = FlowKey::new(random);
        let (a4, b4) = (Ipv4Addr::from([a[0], a[1], a[2], a[3]]), Ipv4Addr::from([b[0], b[1], b[2], b[3]]));
        let (there, back) = (v4(a4, b4, from, to), v4(b4, a4, to, from));
        prop_assert_eq!(key.flow_hash(&there), key.flow_hash(&back));
        let (there, back) = (v6(a.into(), b.into(), from, to), v6(b.into(), a.into(), to, from));
        prop_assert_eq!(key.flow_hash(&there), key.flow_hash(&back));
    }

    #[test]
    fn both_directions_hash_alike(a: [u8; 16], b: [u8; 16], from: u16, to: u16) {
        let (a4, b4) = (Ipv4Addr::from([a[0], a[1], a[2], a[3]]), Ipv4Addr::from([b[0], b[1], b[2], b[3]]));
        prop_assert_eq!(flow_hash(&v4(a4, b4, from, to)), flow_hash(&v4(b4, a4, to, from)));
        let (a6, b6) = (a.into(), b.into());
        prop_assert_eq!(flow_hash(&v6(a6, b6, from, to)), flow_hash(&v6(b6, a6, to, from)));
    }
}

fn header_v4(protocol: u8, source: Ipv4Addr, destination: Ipv4Addr) -> ipv4::Header {
    ipv4::Header {
        tos: 0,
        identification: 0,
        dont_fragment: true,
        ttl: 64,
        protocol,
        source,
        destination,
    }
}

fn header_v6(next_header: u8, source: Ipv6Addr, destination: Ipv6Addr) -> ipv6::Header {
    ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        next_header,
        hop_limit: 64,
        source,
        destination,
    }
}

fn v4(source: Ipv4Addr, destination: Ipv4Addr, from: u16, to: u16) -> Vec<u8> {
    let mut packet = vec![0; 40];
    header_v4(protocol::UDP, source, destination).emit(&mut packet, 20).unwrap();
    let (source, destination) =
        (SocketAddrV4::new(source, from), SocketAddrV4::new(destination, to));
    udp::emit_v4(&mut packet[20..], source, destination).unwrap();
    packet
}

fn v6(source: Ipv6Addr, destination: Ipv6Addr, from: u16, to: u16) -> Vec<u8> {
    let mut packet = vec![0; 60];
    header_v6(protocol::UDP, source, destination).emit(&mut packet, 20).unwrap();
    let (source, destination) =
        (SocketAddrV6::new(source, from, 0, 0), SocketAddrV6::new(destination, to, 0, 0));
    udp::emit_v6(&mut packet[40..], source, destination).unwrap();
    packet
}
