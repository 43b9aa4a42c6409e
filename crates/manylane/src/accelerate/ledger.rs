//! What the programs have counted, as sums that have to add up.
//!
//! A program counts each packet once, in the row of the port that it came in by, at the place of its verdict; what
//! it forwards it counts a second time, in the row of the port that it leaves by. So `seen` is a sum by
//! definition (a program in a driver counts what it forwards and nothing else: the rest is counted behind it), and
//! what has to add up is that everything forwarded was sent: packets and bytes. What becomes of a
//! packet behind that is the device's and its queueing discipline's to say, for their own traffic and ours together:
//! they are read since the start, and labelled so.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use manylane_io::bpf::fast::{Counters, DriverCounters, DriverRow};
use manylane_io::netlink::Statistics;
use manylane_net::transit::Verdict;
use manylane_net::transit::layout::{COUNTERS, counter};

use crate::api::accelerate::{AcceleratedLedger, PassedStatus};

/// A port's row, over all processors.
pub(super) type Row = [u64; COUNTERS];

/// Who counts.
pub(super) struct Sources {
    /// The program at tcx.
    pub ingress: Counters,
    /// Those in drivers, when there are any.
    pub driver: Arc<OnceLock<DriverCounters>>,
}

impl Sources {
    /// A port's row of both, and what was counted in drivers alone.
    pub fn port(&self, port: u16) -> (Row, DriverRow) {
        let driver = self.driver.get().map(|driver| driver.port(port)).unwrap_or_default();
        let mut row = self.ingress.port(port);
        for (place, count) in [
            (Verdict::Forwarded as usize, driver.packets_in),
            (counter::ENTRY_BYTES, driver.bytes_in),
            (counter::EXIT_PACKETS, driver.packets_out),
            (counter::EXIT_BYTES, driver.bytes_out),
        ] {
            row[place] = row[place].wrapping_add(count);
        }
        (row, driver)
    }
}

/// One port, its row, and what its device has lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub name: String,
    /// What all programs have counted.
    pub row: Row,
    /// The part of those in drivers.
    pub driver: DriverRow,
    pub lost: Lost,
}

/// What a device has dropped since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lost {
    pub device: u64,
    pub queue: u64,
}

impl Lost {
    /// Between two readings of one device.
    pub fn between(before: &Statistics, after: &Statistics) -> Lost {
        Lost {
            device: after.transmit_dropped.saturating_sub(before.transmit_dropped),
            // Of 32 bits, and begins anew with another queueing discipline.
            queue: after.queue_dropped.saturating_sub(before.queue_dropped).into(),
        }
    }
}

/// Packets of a verdict.
fn of(row: &Row, verdict: Verdict) -> u64 {
    row[verdict as usize]
}

/// Packets that came in.
pub(super) fn seen(row: &Row) -> u64 {
    Verdict::ALL.iter().map(|&verdict| of(row, verdict)).sum()
}

/// Packets that were forwarded.
pub(super) fn forwarded(row: &Row) -> u64 {
    of(row, Verdict::Forwarded)
}

/// The same by the tier that forwarded them.
pub(super) fn by_tier(port: &Counted) -> BTreeMap<String, u64> {
    let driver = port.driver.packets_in;
    let ingress = forwarded(&port.row).wrapping_sub(driver);
    BTreeMap::from([("ingress".into(), ingress), ("driver".into(), driver)])
}

/// Packets that were left to the kernel, by the verdict's name; those without any are left out.
pub(super) fn passed(row: &Row) -> BTreeMap<String, u64> {
    let of_verdict = |&verdict: &Verdict| (verdict.name().to_owned(), of(row, verdict));
    let passed = Verdict::ALL.iter().filter(|&&verdict| verdict != Verdict::Forwarded);
    passed.map(of_verdict).filter(|(_, packets)| *packets > 0).collect()
}

/// All ports together.
pub(super) fn ledger(ports: &[Counted]) -> AcceleratedLedger {
    let sum = |part: fn(&Counted) -> u64| ports.iter().map(part).sum::<u64>();
    let mut by_verdict = BTreeMap::new();
    for port in ports {
        for (name, packets) in passed(&port.row) {
            *by_verdict.entry(name).or_default() += packets;
        }
    }
    let mut tiers = BTreeMap::new();
    for (name, packets) in ports.iter().flat_map(by_tier) {
        *tiers.entry(name).or_default() += packets;
    }
    let forwarded = sum(|port| forwarded(&port.row));
    let sent = sum(|port| port.row[counter::EXIT_PACKETS]);
    let entry_bytes = sum(|port| port.row[counter::ENTRY_BYTES]);
    let exit_bytes = sum(|port| port.row[counter::EXIT_BYTES]);
    AcceleratedLedger {
        seen: sum(|port| seen(&port.row)),
        forwarded,
        tiers,
        passed: by_verdict,
        sent,
        missing: forwarded.wrapping_sub(sent) as i64,
        missing_bytes: entry_bytes.wrapping_sub(exit_bytes) as i64,
        device_dropped: sum(|port| port.lost.device),
        queue_dropped: sum(|port| port.lost.queue),
    }
}

/// What was not forwarded, and what was lost behind us, by reason.
pub(super) fn drops(ports: &[Counted]) -> Vec<PassedStatus> {
    let status = |reason: &str, by: &str, explanation: String, part: &dyn Fn(&Counted) -> u64| {
        let with_any = ports.iter().filter(|port| part(port) > 0);
        let ports: BTreeMap<_, _> = with_any.map(|port| (port.name.clone(), part(port))).collect();
        let total = ports.values().sum();
        PassedStatus { reason: reason.into(), by: by.into(), explanation, total, ports }
    };
    let passed = Verdict::ALL.iter().filter(|&&verdict| verdict != Verdict::Forwarded);
    let passed = passed.map(|&verdict| {
        let explanation = format!("{}. {}", verdict.meaning(), verdict.advice());
        let explanation = explanation.trim_end().to_owned();
        status(verdict.name(), "passed", explanation, &|port| of(&port.row, verdict))
    });
    let device = "the device dropped it instead of sending it, ours or the kernel's";
    let queue = "the queueing discipline dropped it, ours or the kernel's";
    let lost = [
        status("tx_dropped", "device", device.into(), &|port| port.lost.device),
        status("qdisc_dropped", "kernel", queue.into(), &|port| port.lost.queue),
    ];
    passed.chain(lost).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_forwarded_is_sent_and_the_rest_is_the_kernels() {
        let mut lan = port("lan", Lost::default());
        lan.row[Verdict::Forwarded as usize] = 100;
        lan.row[Verdict::Local as usize] = 7;
        lan.row[counter::ENTRY_BYTES] = 6400;
        let mut wan = port("wan", Lost { device: 2, queue: 3 });
        wan.row[Verdict::Local as usize] = 1;
        wan.row[counter::EXIT_PACKETS] = 99;
        wan.row[counter::EXIT_BYTES] = 6400;
        let ports = [lan, wan];
        let sum = ledger(&ports);
        assert_eq!((sum.seen, sum.forwarded, sum.sent, sum.missing), (108, 100, 99, 1));
        assert_eq!((sum.missing_bytes, sum.device_dropped, sum.queue_dropped), (0, 2, 3));
        assert_eq!(sum.passed, BTreeMap::from([("local".to_owned(), 8)]));
        assert_eq!(sum.seen, sum.forwarded + sum.passed.values().sum::<u64>());

        let drops = drops(&ports);
        let of = |name: &str| drops.iter().find(|drop| drop.reason == name).expect("it is listed");
        assert_eq!(of("local").ports.len(), 2);
        assert_eq!((of("tx_dropped").by.as_str(), of("tx_dropped").total), ("device", 2));
        assert_eq!((of("qdisc_dropped").by.as_str(), of("qdisc_dropped").total), ("kernel", 3));
        assert!(drops.iter().all(|drop| drop.reason != "forwarded"));
    }

    #[test]
    fn losses_count_from_the_start_and_never_backwards() {
        let at = |transmit_dropped, queue_dropped| Statistics {
            transmit_dropped,
            queue_dropped,
            ..Statistics::default()
        };
        assert_eq!(Lost::between(&at(5, 7), &at(6, 9)), Lost { device: 1, queue: 2 });
        assert_eq!(Lost::between(&at(5, 7), &at(5, 0)), Lost::default(), "another qdisc");
    }

    fn port(name: &str, lost: Lost) -> Counted {
        Counted { name: name.into(), lost, ..Counted::default() }
    }
}
