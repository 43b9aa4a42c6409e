//! Where a route leads, where the source's does, and in which form of the tables both are found.

use super::*;
use crate::packet::address;

#[test]
fn only_a_neighbour_is_sent_to() {
    let Some(mut rig) = Rig::new() else { return };
    for (kind, verdict) in [
        (0, NO_ROUTE),
        (2, UNRESOLVED),
        (3, LOCAL),
        (4, LOCAL),
        (5, NOWHERE),
        (6, NOWHERE),
        (7, NOWHERE),
        (9, KERNEL_ROUTE),
        (10, NO_ROUTE),
    ] {
        rig.hop(1, kind, 1);
        let found = [rig.verdict(&v4(TO).frame()), rig.verdict(&v6(TO6).frame())];
        assert_eq!(found, [verdict; 2], "kind {kind}");
    }
    rig.hop(1, VIA, 2);
    assert_eq!(rig.verdict(&v4(TO).frame()), UNRESOLVED);
    rig.hop(1, VIA, 1);
    rig.tables.records.store(16 + 15, 6);
    assert_eq!(rig.verdict(&v4(TO).frame()), UNRESOLVED, "its stamps differ");
    assert_eq!(rig.verdict(&v4("203.0.113.1").frame()), NO_ROUTE);
    assert_eq!(rig.verdict(&v6("2a00::1").frame()), NO_ROUTE);
}

#[test]
fn a_source_is_looked_up_where_that_is_asked_for() {
    let Some(mut rig) = Rig::new() else { return };
    let from = |from: &str| V4 { from: address(from), ..v4(TO) }.frame();
    rig.hop(4, CONNECTED, 1);
    rig.hop(5, CONNECTED, 2);
    rig.hop(6, GROUP, 0);
    rig.hop(7, 5, 0);
    rig.hop(8, VIA, 9); // Its MAC address is unknown.
    for id in 4..9 {
        rig.route4(&format!("10.0.{id}.0"), id);
    }
    for (source, loose, strict) in [
        ("192.0.2.1", FORWARDED, FORWARDED),
        (TO, FORWARDED, REVERSE_PATH),
        ("10.0.4.1", FORWARDED, FORWARDED),
        ("10.0.5.1", FORWARDED, REVERSE_PATH),
        ("10.0.6.1", FORWARDED, REVERSE_PATH),
        ("10.0.7.1", REVERSE_PATH, REVERSE_PATH),
        ("10.0.8.1", FORWARDED, REVERSE_PATH),
        ("10.0.9.1", REVERSE_PATH, REVERSE_PATH),
    ] {
        let found = [0, RP_LOOSE, RP_STRICT].map(|flags| {
            rig.port(1, INGRESS | EGRESS | FORWARDING | flags);
            rig.verdict(&from(source))
        });
        assert_eq!(found, [FORWARDED, loose, strict], "{source}");
    }
    rig.port(1, INGRESS | FORWARDING | RP_STRICT);
    assert_eq!(rig.verdict(&v6(TO6).frame()), FORWARDED, "IPv6 has no such setting");
}

/// The writer sets the bits of all addresses that are ours, and of others by chance.
#[test]
fn one_of_our_own_addresses_is_no_source() {
    let Some(mut rig) = Rig::new() else { return };
    let from = |from: &str| V4 { from: address(from), ..v4(TO) }.frame();
    rig.hop(4, 3, 0);
    rig.hop(5, 4, 0);
    rig.hop(6, CONNECTED, 1);
    for (id, verdict) in [(4, REVERSE_PATH), (5, REVERSE_PATH), (6, FORWARDED)] {
        rig.route4(&format!("10.0.{id}.0"), id);
        let source = format!("10.0.{id}.1");
        rig.may_be_ours(&source);
        for flags in [0, RP_LOOSE] {
            rig.port(1, INGRESS | EGRESS | FORWARDING | flags);
            assert_eq!(rig.verdict(&from(&source)), verdict, "{source}");
        }
    }
}

#[test]
fn the_routes_of_a_16_are_found_in_its_chunk() {
    let Some(mut rig) = Rig::new() else { return };
    // In 203.0.0.0/16, at line 5: id 1 from .3.0 to .66.255, 2 up to .199.255, then 1; nothing before.
    let (block, first) = (0xcb00, 5 * 8);
    for (at, word) in [1 | 1 << 3, 1 << 3, 0, 1 << 8].into_iter().enumerate() {
        rig.tables.chunks4.store(first + at, word);
    }
    rig.tables.chunks4.store(first + 4, 3 << 48 | 3 << 32 | 2 << 16);
    rig.tables.chunks4.store(first + 5, 1 << 48 | 2 << 32 | 1 << 16);
    rig.tables.direct4.store(block, 1 << 31 | 5);
    rig.hop(2, 3, 0);
    for number in 0..=255u8 {
        let verdict = match number {
            0..3 => NO_ROUTE,
            3..67 | 200.. => FORWARDED,
            67..200 => LOCAL,
        };
        assert_eq!(rig.verdict(&v4(&format!("203.0.{number}.1")).frame()), verdict, "{number}");
    }
    // A /16 without a chunk.
    rig.tables.direct4.store(block + 1, 1);
    assert_eq!(rig.verdict(&v4("203.1.255.1").frame()), FORWARDED);
    // Out of every bound: no route, and no harm.
    rig.tables.direct4.store(block, u32::MAX);
    assert_eq!(rig.verdict(&v4("203.0.3.1").frame()), NO_ROUTE);
    rig.tables.direct4.store(block, 1 << 31 | 5);
    (0..5).for_each(|at| rig.tables.chunks4.store(first + at, u64::MAX));
    assert_eq!(rig.verdict(&v4("203.0.255.1").frame()), NO_ROUTE);
}

#[test]
fn longer_routes_are_found_in_lists() {
    let Some(mut rig) = Rig::new() else { return };
    // In 203.0.113.0/24: id 1 from .64 to .127, else 0; in 203.0.114.0/24 one for each address.
    let at = 0xcb00;
    rig.tables.blocks4.store(at, 100);
    for (number, list) in [(0, 10), (1, 500)] {
        rig.tables.groups4.store(100 + number, list);
    }
    for (place, word) in [3, 0, 64 << 16 | 1, 128 << 16].into_iter().enumerate() {
        rig.tables.ranges4.store(10 + place, word);
    }
    rig.tables.ranges4.store(500, 256);
    for low in 0..256 {
        rig.tables.ranges4.store(501 + low, (low as u32) << 16 | (low as u32 % 3));
    }
    rig.route4("203.0.113.0", 0x8000);
    rig.route4("203.0.114.0", 0x8001);
    rig.hop(2, 3, 0);
    for low in 0..=255u8 {
        let verdict = if (64..128).contains(&low) { FORWARDED } else { NO_ROUTE };
        assert_eq!(rig.verdict(&v4(&format!("203.0.113.{low}")).frame()), verdict, "{low}");
        let verdict = [NO_ROUTE, FORWARDED, LOCAL][usize::from(low) % 3];
        assert_eq!(rig.verdict(&v4(&format!("203.0.114.{low}")).frame()), verdict, "{low}");
    }
    // Out of every bound: no route, and no harm.
    rig.tables.groups4.store(100, u32::MAX);
    assert_eq!(rig.verdict(&v4("203.0.113.1").frame()), NO_ROUTE);
    rig.tables.blocks4.store(at, u32::MAX);
    assert_eq!(rig.verdict(&v4("203.0.113.1").frame()), NO_ROUTE);
}

#[test]
fn longer_ipv6_routes_are_found_in_trees() {
    const LEAF: u32 = 1 << 31;
    const INDEX: u32 = 1 << 30;
    const HOST: u32 = 1 << 29;
    const NEAR: u32 = 1 << 28;
    let Some(mut rig) = Rig::new() else { return };
    rig.hop(2, 3, 0);
    let to = |rig: &Rig, text: &str| rig.verdict(&v6(text).frame());
    let top = bucket("2a01:100::");
    // A leaf: up to 2a01:1ff::/32 nothing, then one network by next hop 1, then nothing.
    let key = |text: &str| (address::<std::net::Ipv6Addr>(text).to_bits() >> 64) as u64 - 1;
    let leaf = |rig: &mut Rig, line: usize, keys: &[u64], values: &[u32]| {
        for place in 0..5 {
            let key = keys.get(place).copied().unwrap_or(u64::MAX);
            rig.tables.leaves6.store(line * 8 + place, key);
        }
        for (place, pair) in values.chunks(2).enumerate() {
            let high = u64::from(pair.get(1).copied().unwrap_or(0));
            rig.tables.leaves6.store(line * 8 + 5 + place, high << 32 | u64::from(pair[0]));
        }
    };
    leaf(&mut rig, 3, &[key("2a01:150::"), key("2a01:151::")], &[0, 1, 2]);
    rig.tables.direct6.store(top, LEAF | 6);
    for (text, verdict) in [
        ("2a01:100::1", NO_ROUTE),
        ("2a01:14f:ffff:ffff::1", NO_ROUTE),
        ("2a01:150::1", FORWARDED),
        ("2a01:150:ffff:ffff::1", FORWARDED),
        ("2a01:151::1", LOCAL),
        ("2a01:1ff::1", LOCAL),
    ] {
        assert_eq!(to(&rig, text), verdict, "{text}");
    }
    // All six intervals.
    let keys = [0x110u64, 0x120, 0x130, 0x140, 0x150].map(|at| (0x2a01u64 << 48 | at << 32) - 1);
    leaf(&mut rig, 4, &keys, &[1, 2, 1, 2, 1, 2]);
    rig.tables.direct6.store(top, LEAF | 8);
    for number in 0..6 {
        let verdict = [FORWARDED, LOCAL][number % 2];
        assert_eq!(to(&rig, &format!("2a01:1{number}5::1")), verdict, "{number}");
    }
    // A near leaf, in the second half of a line: all eight intervals, by the bits behind an entry of four.
    let near = [
        0x17ff_u64 | 0x2fff << 16 | 0x3fff << 32 | 0x5fff << 48,
        0x6fff | 0xe123 << 16 | 0xe124 << 32 | 0xffff << 48,
    ];
    let values = 1 | 2 << 16 | 1 << 32 | 2 << 48;
    for (place, word) in near.into_iter().chain([values, values]).enumerate() {
        rig.tables.leaves6.store(9 * 4 + place, word);
    }
    rig.tables.direct6.store(top, INDEX | 4 << 24 | 3);
    rig.tables.index6.store(3 * 16 + 0xa, LEAF | NEAR | 9);
    for (text, verdict) in [
        ("2a01:a000::1", FORWARDED),
        ("2a01:a17f:ffff::1", FORWARDED),
        ("2a01:a180::1", LOCAL),
        ("2a01:a2ff:ffff::1", LOCAL),
        ("2a01:a300::1", FORWARDED),
        ("2a01:a400::1", LOCAL),
        ("2a01:a600::1", FORWARDED),
        ("2a01:a700::1", LOCAL),
        ("2a01:ae12:3fff::1", LOCAL),
        ("2a01:ae12:4000::1", FORWARDED),
        ("2a01:ae12:5000::1", LOCAL),
        ("2a01:afff:ffff::1", LOCAL),
        ("2a01:b000::1", NO_ROUTE),
    ] {
        assert_eq!(to(&rig, text), verdict, "{text}");
    }
    // Entries by 12 bits, then by 8, then a leaf of lower halves.
    rig.tables.direct6.store(top, INDEX | 12 << 24 | 8);
    rig.tables.index6.store(8 * 16 + 0x014, INDEX | 8 << 24 | 300);
    rig.tables.index6.store(300 * 16 + 0x30, 1);
    rig.tables.index6.store(300 * 16 + 0x27, HOST | LEAF | 10);
    leaf(&mut rig, 5, &[0x11, 0x22], &[0, 1, 2]);
    for (text, verdict) in [
        ("2a01:143::1", FORWARDED),
        ("2a01:144::1", NO_ROUTE),
        ("2a01:142:8000::1", NO_ROUTE),
        ("2a01:142:7000::11", NO_ROUTE),
        ("2a01:142:7000::12", FORWARDED),
        ("2a01:142:7000::22", FORWARDED),
        ("2a01:142:7000::23", LOCAL),
    ] {
        assert_eq!(to(&rig, text), verdict, "{text}");
    }
    // Lower halves by entries of all 64 bits, and elsewhere by 48.
    rig.tables.index6.store(300 * 16 + 0x27, HOST | INDEX | 4 << 24 | 320);
    for step in 0..16 {
        let way = if step == 15 { 1 } else { INDEX | 4 << 24 | (321 + step) };
        rig.tables.index6.store((320 + step as usize) * 16 + 0xa, way);
    }
    assert_eq!(to(&rig, "2a01:142:7000::aaaa:aaaa:aaaa:aaaa"), FORWARDED);
    assert_eq!(to(&rig, "2a01:142:7000::aaaa:aaaa:aaaa:aaab"), NO_ROUTE);
    rig.tables.direct6.store(bucket("fd00::"), INDEX | 4 << 24 | 340);
    for step in 0..12 {
        let way = if step == 11 { 1 } else { INDEX | 4 << 24 | (341 + step) };
        rig.tables.index6.store((340 + step as usize) * 16 + 0xb, way);
    }
    assert_eq!(to(&rig, "fd00:bbbb:bbbb:bbbb::1"), FORWARDED);
    assert_eq!(to(&rig, "fd00:bbbb:bbbb:bbba::1"), NO_ROUTE);
    // Out of every bound.
    for way in [LEAF, LEAF | NEAR, INDEX | 12 << 24, HOST | LEAF].map(|way| way | 0xff_ffff) {
        rig.tables.direct6.store(top, way);
        assert_eq!(to(&rig, "2a01:142::1"), NO_ROUTE);
    }
}
