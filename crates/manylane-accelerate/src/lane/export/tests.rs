use std::net::IpAddr;

use manylane_export::Destination;
use manylane_export::ipfix::{Exporter, ExporterOptions};
use manylane_net::wire::protocol;

use super::*;

const NUMBER: FlowNumber = FlowNumber(3);

fn tuples() -> [Tuple; 2] {
    let address = |last| IpAddr::from([192, 0, 2, last]);
    let original = Tuple {
        source: address(1),
        destination: address(2),
        source_port: 1000,
        destination_port: 53,
        protocol: protocol::UDP,
    };
    [original, Tuple { destination: address(9), destination_port: 6000, ..original.inverted() }]
}

/// An exporter without a collector, and exports that go there: they are looked at before.
fn exports() -> (Exporter, Exports) {
    let none: Vec<Destination> = Vec::new();
    let exporter = Exporter::start(none, ExporterOptions::default()).expect("a thread");
    let [active, inactive] = [60, 15].map(Duration::from_secs);
    let exports = Exports::new(ExportTerms { sender: exporter.sender(), active, inactive });
    (exporter, exports)
}

/// The clock some seconds after a start; a tick has 4 ms.
fn at(start_ms: u64, second: u64) -> Clock {
    Clock { now_ms: start_ms + second * 1000, tick: Some(TICK + second * 250), tick_ns: 4_000_000 }
}

const TICK: u64 = 0x1_7fff_ff00;

/// Counts, and the second of the last packet.
fn used(packets: u64, second: u64) -> FlowUse {
    let used = ((TICK + second * 250) & LAST_31_BITS) as u32;
    FlowUse { packets, bytes: packets * 100, used, ..FlowUse::default() }
}

fn flows(exports: &mut Exports) -> Vec<FlowRecord> {
    let flow = |record| match record {
        Record::Flow(flow) => flow,
        Record::Nat(_) | Record::Sampled(_) => unreachable!("a lane writes none"),
    };
    exports.records.drain(..).map(flow).collect()
}

#[test]
fn records_of_a_direction_add_up_to_its_counters() {
    let (_exporter, mut exports) = exports();
    exports.begin(NUMBER, [[3, 4], [4, 3]]);
    let start_ms = exports.counts[3][0].since_ms;
    let mut sums = [(0, 0); 2];
    let mut reasons = [Vec::new(), Vec::new()];
    // The original direction has packets until second 150, the other one in second 30 only.
    for second in 1..=200u64 {
        exports.clock = at(start_ms, second);
        let now =
            [used(second.min(150) * 7, second.min(150)), used(if second < 30 { 0 } else { 5 }, 30)];
        exports.look(NUMBER, tuples(), now, [None; 2]);
        for flow in flows(&mut exports) {
            let direction = usize::from(flow.interfaces == [4, 3]);
            reasons[direction].push((second, flow.reason));
            sums[direction] = (sums[direction].0 + flow.packets, sums[direction].1 + flow.octets);
            assert!(flow.start_ms <= flow.end_ms, "{flow:?}");
            if direction == 1 {
                // The second before is the last one that is known to have had no packet.
                assert_eq!([flow.start_ms, flow.end_ms], [29, 30].map(|at| start_ms + at * 1000));
            }
        }
    }
    assert_eq!(sums, [(1050, 105_000), (5, 500)]);
    use EndReason::{ActiveTimeout, IdleTimeout};
    assert_eq!(reasons[0], [(60, ActiveTimeout), (120, ActiveTimeout), (165, IdleTimeout)]);
    assert_eq!(reasons[1], [(45, IdleTimeout)]);
}

#[test]
fn a_direction_is_a_record_with_its_ends_before_and_behind_the_router() {
    let (_exporter, mut exports) = exports();
    exports.begin(NUMBER, [[3, 4], [4, 3]]);
    exports.clock = at(exports.counts[3][0].since_ms, 70);
    exports.look(NUMBER, tuples(), [used(1, 70), used(2, 69)], [None; 2]);
    let [original, reply] = flows(&mut exports)[..] else { panic!("one for each direction") };
    let text = |flow: FlowRecord| {
        [flow.received.source, flow.received.destination, flow.sent.source, flow.sent.destination]
            .map(|end| end.to_string())
    };
    let [client, server, router] = ["192.0.2.1:1000", "192.0.2.2:53", "192.0.2.9:6000"];
    assert_eq!(text(original), [client, server, router, server]);
    assert_eq!(text(reply), [server, router, server, client]);
    assert_eq!((original.interfaces, reply.interfaces), ([3, 4], [4, 3]));
    assert_eq!((original.packets, reply.packets, reply.octets), (1, 2, 200));
}

#[test]
fn another_way_out_is_another_record() {
    let (_exporter, mut exports) = exports();
    exports.begin(NUMBER, [[3, 4], [4, 3]]);
    exports.clock = at(exports.counts[3][0].since_ms, 1);
    exports.look(NUMBER, tuples(), [used(10, 1), used(0, 0)], [Some([3, 5]), None]);
    exports.clock = at(exports.counts[3][0].since_ms, 61);
    exports.look(NUMBER, tuples(), [used(12, 61), used(0, 0)], [Some([3, 5]), None]);
    let seen: Vec<_> = flows(&mut exports)
        .iter()
        .map(|flow| (flow.interfaces, flow.packets, flow.reason))
        .collect();
    assert_eq!(seen, [([3, 4], 10, EndReason::Forced), ([3, 5], 2, EndReason::ActiveTimeout)]);
}

#[test]
fn a_place_that_is_used_again_begins_at_nothing() {
    let (_exporter, mut exports) = exports();
    exports.begin(NUMBER, [[3, 4], [4, 3]]);
    exports.clock = at(exports.counts[3][0].since_ms, 61);
    exports.look(NUMBER, tuples(), [used(9, 61), used(9, 61)], [None; 2]);
    exports.leave(NUMBER, tuples(), Removal::Ended);
    assert!(!exports.is_done());
    flows(&mut exports);
    exports.begin(NUMBER, [[3, 4], [4, 3]]);
    exports.clock = at(exports.counts[3][0].since_ms, 61);
    exports.look(NUMBER, tuples(), [used(1, 61), used(0, 0)], [None; 2]);
    let seen: Vec<_> = flows(&mut exports).iter().map(|flow| flow.packets).collect();
    assert_eq!(seen, [1]);
    assert_eq!(exports.leaving[0].counts.map(|counts| counts.packets), [9, 9]);
}

#[test]
fn each_removal_has_its_reason() {
    let reasons = Removal::ALL.map(reason_of);
    use EndReason::{EndOfFlow, Forced, IdleTimeout};
    assert_eq!(reasons, [EndOfFlow, EndOfFlow, IdleTimeout, Forced, Forced]);
}

#[test]
fn a_packet_of_the_very_tick_is_not_from_long_ago() {
    let clock = at(1_000_000, 0);
    let ahead = ((TICK + 1) & LAST_31_BITS) as u32;
    assert_eq!(clock.last_packet_ms(ahead), 1_000_000);
    assert_eq!(clock.last_packet_ms((TICK & LAST_31_BITS) as u32 - 250), 999_000);
    // Where the ticks' last 31 bits begin again.
    let over = Clock { tick: Some(0x8000_0000), ..clock };
    assert_eq!(over.last_packet_ms(0x7fff_ffff), 999_996);
}
