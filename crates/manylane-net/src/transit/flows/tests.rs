use std::collections::HashMap;
use std::net::IpAddr;

use manylane_sync::rcu::Domain;
use manylane_sync::words::WordsMut;

use super::*;
use crate::wire::protocol;

fn table(flows: usize, domain: &Domain) -> FlowsMut {
    FlowsMut::new(words(flows).map(WordsMut::zeroed), domain.clone(), 0x5eed)
}

fn tuple(is_ipv6: bool, host: u32, port: u16) -> Tuple {
    let address = |net: u8| match is_ipv6 {
        false => IpAddr::from((u32::from(net) << 24 | host).to_be_bytes()),
        true => IpAddr::V6(std::net::Ipv6Addr::from_bits(
            (0x2001_0db8_0000_0000_0000_0000_0000_0000u128)
                + (u128::from(net) << 64)
                + u128::from(host),
        )),
    };
    Tuple {
        source: address(10),
        destination: address(20),
        source_port: port,
        destination_port: 443,
        protocol: protocol::TCP,
    }
}

/// A connection whose source is translated.
fn masqueraded(is_ipv6: bool, host: u32, port: u16) -> NewFlow {
    let original = tuple(is_ipv6, host, port);
    let reply = Tuple { destination: tuple(is_ipv6, 0xffff, 0).source, ..original.inverted() };
    NewFlow { original, reply }
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
