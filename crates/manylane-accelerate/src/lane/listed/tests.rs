use manylane_net::fib::Limits;
use manylane_net::transit::flows::{NewFlow, Required};
use manylane_net::transit::{Memory, Sizes, TransitMut};
use manylane_sync::rcu::Domain;

use super::*;
use crate::lane::record::Record;

fn tuple(text: [&str; 2], ports: [u16; 2], protocol: u8) -> Tuple {
    let [source, destination] = text.map(|text| text.parse().expect("an address"));
    let [source_port, destination_port] = ports;
    Tuple { source, destination, source_port, destination_port, protocol }
}

fn plain() -> [Tuple; 2] {
    let original = tuple(["2001:db8:1::1", "2001:db8:2::1"], [4000, 53], protocol::UDP);
    [original, original.inverted()]
}

fn masqueraded() -> [Tuple; 2] {
    let original = tuple(["10.1.0.1", "10.2.0.1"], [4000, 80], protocol::TCP);
    [original, tuple(["10.2.0.1", "10.2.0.254"], [80, 50_000], protocol::TCP)]
}

const LAN_WAN: [[u8; 2]; 2] = [[1, 2], [2, 1]];

#[test]
fn a_filter_takes_either_end_before_and_after_translation() {
    let address = |text: &str| Some(text.parse().expect("an address"));
    let all = Filter::default();
    for (filter, takes) in [
        (all.clone(), [true, true]),
        (Filter { port: Some(2), ..all.clone() }, [true, true]),
        (Filter { port: Some(3), ..all.clone() }, [false, false]),
        (Filter { address: address("10.1.0.1"), ..all.clone() }, [true, false]),
        (Filter { address: address("10.2.0.254"), ..all.clone() }, [true, false]),
        (Filter { address: address("2001:db8:2::1"), ..all.clone() }, [false, true]),
        (Filter { protocol: Some(protocol::UDP), ..all.clone() }, [false, true]),
        (Filter { transport_port: Some(4000), ..all.clone() }, [true, true]),
        (Filter { transport_port: Some(50_000), ..all.clone() }, [true, false]),
        (Filter { translated: Some(true), ..all.clone() }, [true, false]),
        (Filter { translated: Some(false), ..all.clone() }, [false, true]),
        (
            Filter { translated: Some(true), protocol: Some(protocol::UDP), ..all.clone() },
            [false, false],
        ),
    ] {
        let taken = [masqueraded(), plain()].map(|tuples| filter.takes(tuples, LAN_WAN));
        assert_eq!(taken, takes, "{filter:?}");
    }
}

#[test]
fn translations_have_their_names() {
    let [original, reply] = masqueraded();
    let forwarded = tuple(["10.9.0.1", "10.1.0.1"], [8080, 4000], protocol::TCP);
    let both = Tuple { destination: reply.destination, ..forwarded };
    for (reply, name) in
        [(original.inverted(), "none"), (reply, "snat"), (forwarded, "dnat"), (both, "both")]
    {
        assert_eq!(translation([original, reply]), name);
    }
}

#[test]
fn parts_together_are_all_entries_once() {
    let places = LISTED_AT_ONCE + 10;
    let sizes = Sizes { flows: places as usize, ..Sizes::for_routes(0, 0) };
    let memory = Memory::zeroed(&sizes);
    let mut writer = TransitMut::new(memory, Domain::new(1), &Limits::default());
    let mut flows = writer.take_flows().expect("nothing else takes it");
    let mut records = Records::default();
    for host in 0..places {
        let original =
            Tuple { source: (0x0a00_0000 + host).to_be_bytes().into(), ..masqueraded()[0] };
        let reply = original.inverted();
        let Ok(number) = flows.insert(NewFlow { original, reply }) else { continue };
        records.set(number, Record::live());
    }
    let filter = Filter::default();
    let terms = LaneTerms::default();
    let part = |filter: &Filter, from| part((&flows, &records, &terms), filter, from);
    let first = part(&filter, 0);
    let from = first.next.expect("there is a second part");
    let second = part(&filter, from);
    assert_eq!((from, second.next), (LISTED_AT_ONCE, None));
    let numbers: Vec<_> = first.entries.iter().chain(&second.entries).map(|one| one.1).collect();
    assert_eq!(numbers, (0..flows.len() as u32).collect::<Vec<_>>());
    let none = Filter { translated: Some(true), ..filter };
    assert_eq!(part(&none, 0).entries, []);
}

#[test]
fn a_direction_of_the_kernel_has_its_reason_in_place_of_a_tier() {
    let names = PortNames::from([(1, ("lan".to_owned(), "driver"))]);
    let used = FlowUse { packets: 3, bytes: 180, left: 2, ..FlowUse::default() };
    let forwarded = shown(used, [1, 2], Ok(()), &names);
    assert_eq!((forwarded.ingress.as_str(), forwarded.egress.as_str()), ("lan", ""));
    assert_eq!((forwarded.state.as_str(), forwarded.tier.as_str()), ("forwarded", "driver"));
    assert_eq!((forwarded.packets, forwarded.bytes, forwarded.passed), (3, 180, 2));
    let kept = shown(used, [1, 2], Err(("rules", "a rule logs".into())), &names);
    assert_eq!((kept.state.as_str(), kept.tier.as_str()), ("kernel", "kernel"));
    assert_eq!((kept.reason.as_str(), kept.explanation.as_str()), ("rules", "a rule logs"));
}

/// Each direction is added to the port that receives its packets, as manylane's or as the kernel's.
#[test]
fn sums_are_of_all_directions_once() {
    let sizes = Sizes { flows: 8, ..Sizes::for_routes(0, 0) };
    let mut writer = TransitMut::new(Memory::zeroed(&sizes), Domain::new(1), &Limits::default());
    let mut flows = writer.take_flows().expect("nothing else takes it");
    let mut records = Records::default();
    for ([original, reply], generations) in [(masqueraded(), [3, 3]), (plain(), [3, 2])] {
        let number = flows.insert(NewFlow { original, reply }).expect("there is room");
        records.set(number, Record::live());
        for (direction, (ports, generation)) in
            Direction::BOTH.into_iter().zip(LAN_WAN.into_iter().zip(generations))
        {
            flows.approve(number, direction, generation, ports);
        }
    }
    let families = Required { ipv4: true, ipv6: true };
    let terms = LaneTerms { generation: 3, families, ..LaneTerms::default() };
    let directions = |terms: &LaneTerms, filter: &Filter| -> Vec<_> {
        let sums = part((&flows, &records, terms), filter, 0).sums;
        sums.into_iter().map(|(key, sum)| (key, sum.directions)).collect()
    };
    let all = Filter::default();
    assert_eq!(directions(&terms, &all), [((1, true), 2), ((2, false), 1), ((2, true), 1)]);
    let udp = Filter { protocol: Some(protocol::UDP), ..all.clone() };
    assert_eq!(directions(&terms, &udp), [((1, true), 1), ((2, false), 1)]);
    let ipv4_only = LaneTerms { families: Required { ipv6: false, ..families }, ..terms.clone() };
    assert_eq!(
        directions(&ipv4_only, &all),
        [((1, false), 1), ((1, true), 1), ((2, false), 1), ((2, true), 1)]
    );
}
