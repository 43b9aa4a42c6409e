use std::collections::HashMap;
use std::net::IpAddr;

use manylane_sync::rcu::Domain;
use manylane_sync::words::WordsMut;

use super::test_connections::{masqueraded, tuple};
use super::*;
use crate::wire::checksum::Sum;
use crate::wire::{ip, protocol};

fn table(flows: usize, domain: &Domain) -> FlowsMut {
    FlowsMut::new(words(flows).map(WordsMut::zeroed), domain.clone(), 0x5eed)
}

#[test]
fn a_flow_is_found_by_both_directions_and_no_other_tuple() {
    for is_ipv6 in [false, true] {
        let mut flows = table(8, &Domain::new(1));
        let flow = masqueraded(is_ipv6, 7, 1000);
        let number = flows.insert(flow).expect("there is room");
        assert_eq!(flows.find(flow.original), Some((number, Direction::Original)));
        assert_eq!(flows.find(flow.reply), Some((number, Direction::Reply)));
        assert_eq!(flows.find(flow.original.inverted()), None);
        for other in [
            Tuple { source_port: 1001, ..flow.original },
            Tuple { protocol: protocol::UDP, ..flow.original },
            tuple(is_ipv6, 8, 1000),
            tuple(!is_ipv6, 7, 1000),
        ] {
            assert_eq!(flows.find(other), None, "{other:?}");
        }
        assert_eq!(flows.insert(flow), Err(FlowsFull::Taken));
        assert_eq!(flows.approved(number, Direction::Reply), (0, [0, 0]));
        flows.approve(number, Direction::Reply, 9, [3, 4]);
        assert_eq!(flows.approved(number, Direction::Reply), (9, [3, 4]));
        assert_eq!(flows.use_of(number, Direction::Reply), FlowUse::default());
        flows.remove(number);
        assert_eq!((flows.find(flow.original), flows.find(flow.reply)), (None, None));
    }
}

#[test]
fn a_full_table_has_found_room_for_all_its_flows() {
    let domain = Domain::new(1);
    let mut reader = domain.register().expect("the first fits");
    let mut flows = table(4096, &domain);
    let (mut found, mut refused) = (HashMap::new(), 0);
    for host in 0.. {
        let flow = masqueraded(host % 2 == 0, host, (host % 60_000) as u16);
        match flows.insert(flow) {
            Ok(number) => assert_eq!(found.insert(number, flow), None),
            Err(FlowsFull::Flows) => break,
            Err(_) => refused += 1,
        }
    }
    assert_eq!((found.len(), flows.len()), (4096, 4096));
    // Two buckets of eight, half full on average: one in some hundred finds no place (Poisson).
    assert!(refused < 4096 / 50, "{refused} found their buckets full");
    for (&number, flow) in &found {
        assert_eq!(flows.find(flow.reply), Some((number, Direction::Reply)));
    }
    let (&gone, &flow) = found.iter().next().expect("there are some");
    flows.remove(gone);
    let new = masqueraded(true, u32::MAX, 1);
    assert_eq!(flows.insert(new), Err(FlowsFull::Flows), "its number waits");
    assert_eq!(flows.reclaim(), 1);
    reader.quiescent();
    assert_eq!((flows.insert(new), flows.find(flow.original)), (Ok(gone), None));
}

#[test]
fn seven_of_eight_entries_have_a_home_in_a_table_half_full() {
    let domain = Domain::new(1);
    let mut flows = table(8192, &domain);
    let strays = |flows: &FlowsMut, inserted: &[FlowNumber]| {
        let entries = inserted.iter().flat_map(|&number| {
            Direction::BOTH
                .map(|direction| (number, direction, flows.owners.entry(number, direction)))
        });
        let is_stray = |&(number, direction, entry): &(FlowNumber, Direction, u32)| {
            !flows.homes(flows.hash(number, direction)).contains(&entry)
        };
        entries.filter(is_stray).count() as f64 / (2 * inserted.len()) as f64
    };
    let mut inserted = Vec::new();
    for host in 0.. {
        match flows.insert(masqueraded(host % 2 == 0, host, (host % 60_000) as u16)) {
            Ok(number) => inserted.push(number),
            Err(FlowsFull::Flows) => break,
            Err(_) => {}
        }
        if inserted.len() == 4096 {
            let strays = strays(&flows, &inserted);
            assert!(strays < 0.13, "{strays} have no home");
        }
    }
    let strays = strays(&flows, &inserted);
    assert!(strays < 0.45, "{strays} have no home in a full table");
}

/// A frame of this tuple, its checksum as it has to be; of UDP without one, if so.
fn frame(tuple: Tuple, has_checksum: bool) -> Vec<u8> {
    let mut transport = vec![0x5a; 33];
    transport[..2].copy_from_slice(&tuple.source_port.to_be_bytes());
    transport[2..4].copy_from_slice(&tuple.destination_port.to_be_bytes());
    transport[4..6].copy_from_slice(&33u16.to_be_bytes());
    let at = if tuple.protocol == protocol::TCP { 16 } else { 6 };
    transport[at..at + 2].fill(0);
    let mut packet = match (tuple.source, tuple.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut header = vec![0x45, 0, 0, 53, 1, 2, 0x40, 0, 64, tuple.protocol, 0, 0];
            header.extend(source.octets().into_iter().chain(destination.octets()));
            let checksum = Sum::of(&header).finish();
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            header
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut header = vec![0x60, 0, 0, 0, 0, 33, tuple.protocol, 64];
            header.extend(source.octets().into_iter().chain(destination.octets()));
            header
        }
        _ => unreachable!("both are of one family"),
    };
    let pseudo = match ip::View::checked(&[packet.clone(), transport.clone()].concat()) {
        Some(view) => view.pseudo_header(tuple.protocol, 33).expect("it is short"),
        None => unreachable!("the header is right"),
    };
    if has_checksum {
        let checksum = match pseudo.plus(&transport).finish() {
            0 if tuple.protocol == protocol::UDP => 0xffff,
            checksum => checksum,
        };
        transport[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    }
    let mut frame = vec![0; 14];
    frame.append(&mut packet);
    frame.append(&mut transport);
    frame
}

#[test]
fn a_translated_frame_is_as_if_it_had_been_sent_so() {
    for host in 0..20_000u32 {
        let is_ipv6 = host % 2 == 0;
        let protocol = if host % 4 < 2 { protocol::TCP } else { protocol::UDP };
        let from =
            Tuple { protocol, ..tuple(is_ipv6, host.wrapping_mul(0x9e37_79b9) >> 8, host as u16) };
        let to = Tuple {
            source: tuple(is_ipv6, host ^ 0xffff, 0).source,
            source_port: (host * 7) as u16,
            destination: if host % 3 == 0 {
                tuple(is_ipv6, host, 0).source
            } else {
                from.destination
            },
            ..from
        };
        for has_checksum in [true, false] {
            // Only UDP over IPv4 may have none (RFC 8200 §8.1).
            if !has_checksum && (is_ipv6 || protocol == protocol::TCP) {
                continue;
            }
            let mut made = frame(from, has_checksum);
            translate::translate(&mut made, to, translate::differences(from, to), false);
            assert_eq!(made, frame(to, has_checksum), "{from:?} to {to:?}");
        }
    }
}

/// A packet that a program counts meanwhile.
fn count(flows: &mut FlowsMut, number: FlowNumber, direction: Direction, bytes: u64) {
    let first = flows.first_word(number, direction);
    for (word, more) in [(entry::PACKETS, 1), (entry::BYTES, bytes)] {
        flows.entries.store(first + word, flows.entries.load(first + word) + more);
    }
}

#[test]
fn what_passed_in_a_flow_is_read_when_no_program_can_count_any_more() {
    let domain = Domain::new(1);
    let mut program = domain.register().expect("there is a place");
    let mut flows = table(2, &domain);
    flows.keep_ends();
    let insert = |flows: &mut FlowsMut, host| flows.insert(masqueraded(false, host, 1000));
    let first = insert(&mut flows, 1).expect("there is room");
    let second = insert(&mut flows, 2).expect("there is room");
    count(&mut flows, first, Direction::Original, 100);
    flows.remove(second);
    flows.remove(first);
    assert!(flows.take_ended().is_empty());
    // A program that has found the entries before counts still, also while the grace period runs.
    count(&mut flows, first, Direction::Original, 100);
    assert_eq!(flows.reclaim(), 2);
    count(&mut flows, first, Direction::Reply, 50);
    assert!(flows.take_ended().is_empty());
    program.quiescent();
    // The numbers are wanted at once: they are read before they are used again.
    let third = insert(&mut flows, 3).expect("a number is free again");
    assert!([first, second].contains(&third));
    let ended = flows.take_ended();
    let seen = |one: FlowUse| (one.packets, one.bytes);
    assert_eq!(
        ended.iter().map(|one| one.map(seen)).collect::<Vec<_>>(),
        [[(0, 0), (0, 0)], [(2, 200), (1, 50)]]
    );
    assert_eq!(flows.use_of(third, Direction::Original), FlowUse::default());
    assert!(flows.take_ended().is_empty());
}
