//! What the lane decides about a connection without a look into conntrack or rules.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use manylane_io::netlink::conntrack::{self, Connection, Status, Tcp, Timeouts};
use manylane_net::transit::flows::{Direction, FlowNumber, FlowUse, words};

use super::LaneTerms;
use super::connection::{check, own_timeout, sent, tuples, whole_timeout};
use super::record::{Record, Records, Round};
use super::refusal::{Refusal, Removal};
use crate::fixtures;

const TCP: u8 = 6;
const UDP: u8 = 17;

fn tuple(source: &str, destination: &str, ports: [u16; 2], protocol: u8) -> conntrack::Tuple {
    let address = |text: &str| -> IpAddr { text.parse().expect("it is an address") };
    let [source_port, destination_port] = ports;
    let (source, destination) = (address(source), address(destination));
    conntrack::Tuple { source, destination, source_port, destination_port, protocol }
}

/// A settled connection from a station behind a router that masquerades.
fn masqueraded(protocol: u8) -> Connection {
    let status = Status::SEEN_REPLY.0 | Status::ASSURED.0 | Status::CONFIRMED.0;
    let tuples = [
        tuple("10.1.0.2", "192.0.2.7", [4000, 443], protocol),
        tuple("192.0.2.7", "198.51.100.1", [443, 6000], protocol),
    ];
    let status = Status(status | Status::SOURCE_NAT.0 | Status::SOURCE_NAT_DONE.0);
    Connection {
        timeout: Some(Duration::from_secs(100)),
        tcp: (protocol == TCP).then_some(Tcp { state: Tcp::ESTABLISHED, flags: [0; 2] }),
        ..fixtures::connection(tuples, 7, status)
    }
}

#[test]
fn a_settled_connection_may_be_forwarded_and_each_trait_that_is_another_refuses_it() {
    for protocol in [TCP, UDP] {
        assert_eq!(check(&masqueraded(protocol)), Ok(()));
    }
    let other = |change: &dyn Fn(&mut Connection)| {
        let mut connection = masqueraded(TCP);
        change(&mut connection);
        check(&connection)
    };
    let with = |bit: Status| other(&|one| one.status.0 |= bit.0);
    let without = |bit: Status| other(&|one| one.status.0 &= !bit.0);
    for bit in [Status::SEEN_REPLY, Status::ASSURED, Status::CONFIRMED] {
        assert_eq!(without(bit), Err(Refusal::Unsettled), "{bit:?}");
    }
    for bit in [Status::DYING, Status::TEMPLATE, Status::NAT_CLASH] {
        assert_eq!(with(bit), Err(Refusal::Unknown), "{bit:?}");
    }
    for bit in [Status::OFFLOAD, Status::HARDWARE_OFFLOAD] {
        assert_eq!(with(bit), Err(Refusal::Offloaded), "{bit:?}");
    }
    for bit in [Status::HELPER, Status::SEQUENCE_ADJUST] {
        assert_eq!(with(bit), Err(Refusal::Helped), "{bit:?}");
    }
    assert_eq!(other(&|one| one.has_helper = true), Err(Refusal::Helped));
    assert_eq!(other(&|one| one.has_sequence_adjustment = true), Err(Refusal::Helped));
    assert_eq!(other(&|one| one.has_synproxy = true), Err(Refusal::Helped));
    assert_eq!(other(&|one| one.zone = 5), Err(Refusal::Zone));
    for state in [Tcp::SYN_SENT, Tcp::SYN_RECV, Tcp::FIN_WAIT, Tcp::TIME_WAIT, Tcp::CLOSE] {
        let tcp = Some(Tcp { state, flags: [0; 2] });
        assert_eq!(other(&|one| one.tcp = tcp), Err(Refusal::Unsettled), "{state}");
    }
    assert_eq!(other(&|one| one.tcp = None), Err(Refusal::Unsettled));
    // What conntrack says of a translation and what its tuples say.
    assert_eq!(without(Status::SOURCE_NAT), Err(Refusal::Translation));
    assert_eq!(with(Status::DESTINATION_NAT), Err(Refusal::Translation));
    let untranslated = |one: &mut Connection| {
        one.reply.destination = one.original.source;
        one.reply.destination_port = one.original.source_port;
    };
    assert_eq!(other(&untranslated), Err(Refusal::Translation));
    let icmp = |one: &mut Connection| {
        (one.original.protocol, one.reply.protocol) = (1, 1);
    };
    assert_eq!(other(&icmp), Err(Refusal::Unsettled));
}

#[test]
fn a_direction_leaves_as_the_other_one_would_come_back() {
    let tuples = tuples(&masqueraded(UDP));
    let out = sent(tuples, Direction::Original);
    assert_eq!((out.source, out.source_port), ([198, 51, 100, 1].into(), 6000));
    assert_eq!((out.destination, out.destination_port), ([192, 0, 2, 7].into(), 443));
    let back = sent(tuples, Direction::Reply);
    assert_eq!((back.source, back.source_port), ([192, 0, 2, 7].into(), 443));
    assert_eq!((back.destination, back.destination_port), ([10, 1, 0, 2].into(), 4000));
}

fn timeouts() -> Timeouts {
    Timeouts {
        tcp_established: Duration::from_secs(432_000),
        tcp_unacknowledged: Duration::from_secs(300),
        udp: Duration::from_secs(30),
        udp_stream: Duration::from_secs(120),
    }
}

#[test]
fn a_timeout_that_no_setting_explains_is_the_connections_own() {
    let own = |protocol, left| {
        let timeout = Some(Duration::from_secs(left));
        own_timeout(&Connection { timeout, ..masqueraded(protocol) }, &timeouts())
    };
    for (protocol, left, wanted) in [
        (TCP, 432_000, 0),
        (TCP, 431_998, 0),
        (TCP, 299, 0),
        (TCP, 3600, 3600),
        (TCP, 301, 301),
        (UDP, 119, 0),
        (UDP, 29, 0),
        (UDP, 60, 60),
        (UDP, 0, 1),
    ] {
        assert_eq!(own(protocol, left), wanted, "{protocol} {left}");
    }
}

#[test]
fn a_connection_lives_as_long_as_the_kernel_would_let_it() {
    let with = |has_payload| FlowUse { has_payload, ..FlowUse::default() };
    let (data, plain) = (with(true), with(false));
    let whole = |protocol, own, uses| whole_timeout(protocol, own, &timeouts(), &uses).as_secs();
    assert_eq!(whole(TCP, 0, [data, plain]), 432_000);
    // Data of both, and no packet that only acknowledges.
    assert_eq!(whole(TCP, 0, [data, data]), 300);
    assert_eq!(whole(UDP, 0, [data, data]), 120);
    assert_eq!(whole(TCP, 77, [data, plain]), 77);
    assert_eq!(whole(UDP, 77, [data, plain]), 77);
}

#[test]
fn a_source_is_translated_to_an_address_of_the_egress_interface_or_to_nobodys() {
    let own = |text: &str, link| (text.parse::<IpAddr>().expect("it is an address"), link);
    let addresses = BTreeSet::from([own("198.51.100.1", 3), own("fe80::1", 2), own("fe80::1", 3)]);
    let terms = LaneTerms { addresses, ..LaneTerms::default() };
    let may = |text: &str, link| terms.may_be_source(own(text, 0).0, link);
    assert!(may("198.51.100.1", 3) && !may("198.51.100.1", 2));
    assert!(may("198.51.100.9", 2), "a pool that is routed here");
    assert!(may("fe80::1", 2) && may("fe80::1", 3) && !may("fe80::1", 4));
}

/// Index, both entries, their IPv6 addresses, a cell of the sketch, and the record.
#[test]
fn a_connection_takes_256_bytes() {
    for flows in [1 << 17, 1 << 20] {
        let table: usize = words(flows).iter().map(|words| words * 8).sum();
        // The writer's account: the entries of a flow, and the flow of each.
        let owners = 4 * size_of::<u32>();
        assert_eq!(table / flows + owners + 4 + size_of::<Record>(), 256);
    }
}

#[test]
fn records_are_remembered_by_number_and_forgotten_whole() {
    let mut records = Records::default();
    let live = |records: &Records| records.live(0, u32::MAX).collect::<Vec<_>>();
    records.set(FlowNumber(5), Record { id: 9, ..Record::live() });
    records.set(FlowNumber(2), Record::live());
    records.marks.insert(5, 1);
    records.silent.insert(FlowNumber(5));
    assert_eq!(live(&records), [FlowNumber(2), FlowNumber(5)]);
    assert_eq!(records.live(3, 6).collect::<Vec<_>>(), [FlowNumber(5)]);
    assert_eq!(records.get(FlowNumber(5)).map(|record| record.id), Some(9));
    assert_eq!(records.get(FlowNumber(3)), None);
    records.remove(FlowNumber(5));
    assert_eq!(live(&records), [FlowNumber(2)]);
    assert!(records.marks.is_empty() && records.silent.is_empty());
}

#[test]
fn silent_connections_have_their_turn_one_after_the_other() {
    let mut records = Records::default();
    let take = |records: &mut Records, round, count| -> Vec<u32> {
        records.silent.take(round, count).into_iter().map(|FlowNumber(number)| number).collect()
    };
    assert!(take(&mut records, Round::Presence, 3).is_empty());
    for number in [3, 5, 8, 9, 12] {
        records.set(FlowNumber(number), Record::live());
        records.silent.insert(FlowNumber(number));
    }
    assert_eq!(take(&mut records, Round::Presence, 3), [3, 5, 8]);
    records.remove(FlowNumber(9));
    assert_eq!(take(&mut records, Round::Presence, 3), [12, 3, 5]);
    assert_eq!(take(&mut records, Round::Identity, 2), [3, 5], "a round of its own");
    assert_eq!(take(&mut records, Round::Presence, 9), [8, 12, 3, 5], "each once");
    assert!(take(&mut records, Round::Presence, 0).is_empty());
}

#[test]
fn counters_have_a_place_for_each_reason() {
    for (place, why) in Refusal::ALL.into_iter().enumerate() {
        assert_eq!(why as usize, place);
    }
    for (place, why) in Removal::ALL.into_iter().enumerate() {
        assert_eq!(why as usize, place);
    }
}
