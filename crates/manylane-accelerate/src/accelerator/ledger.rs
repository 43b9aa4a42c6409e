//! What the programs have counted, as sums that have to add up.
//!
//! A program counts each packet once, in the row of its ingress port, at the place of its verdict, and a packet that
//! it forwards a second time, in the row of the egress port. So `seen` is a sum by
//! definition (a program in a driver counts what it forwards and nothing else: the rest is counted behind it), and
//! what has to add up is that everything forwarded was sent: packets and bytes. What is handed to workers is counted
//! once more by them: as sent, or dropped, with the reason; the rest lies in their rings. What becomes of a
//! packet behind that is the device's and its queueing discipline's to say, for their own traffic and ours together:
//! they are read since the start, and labelled so.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use crate::programs::{Counters, DriverCounters, DriverRow};
use manylane_io::netlink::Statistics;
use manylane_net::transit::Verdict;
use manylane_net::transit::layout::{COUNTERS, counter};

use super::worker::{WorkerCounts, WorkerRow, meaning};
use manylane_api::accelerate::{AcceleratedLedger, InterfaceCounters, PassedStatus, UnseenTime};

/// A port's row, over all processors.
pub(super) type Row = [u64; COUNTERS];

/// The counters of the three tiers.
#[derive(Clone)]
pub(super) struct Sources {
    /// The program at tcx.
    pub ingress: Counters,
    /// Programs in drivers, once loaded.
    pub driver: Arc<OnceLock<DriverCounters>>,
    /// Workers, once started.
    pub workers: Arc<OnceLock<WorkerCounts>>,
}

/// What one port has counted, everywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// All of it together.
    pub row: Row,
    /// The part of the programs in drivers, and what these have handed to workers.
    pub driver: DriverRow,
    /// The part of workers.
    pub workers: WorkerRow,
}

impl Sources {
    /// A port's row of all, and the parts.
    pub fn port(&self, port: u16) -> Counts {
        // Before what was handed to them: so they never seem to have had more.
        let workers = self.workers.get().map(|workers| workers.port(port)).unwrap_or_default();
        let driver = self.driver.get().map(|driver| driver.port(port)).unwrap_or_default();
        let mut row = self.ingress.port(port);
        for (place, counts) in [
            (Verdict::Forwarded as usize, [driver.packets_in, workers.packets_in]),
            (counter::INGRESS_BYTES, [driver.bytes_in, workers.bytes_in]),
            (counter::EGRESS_PACKETS, [driver.packets_out, workers.packets_out]),
            (counter::EGRESS_BYTES, [driver.bytes_out, workers.bytes_out]),
        ] {
            row[place] = counts.iter().fold(row[place], |sum, count| sum.wrapping_add(*count));
        }
        Counts { row, driver, workers }
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
    /// The part of workers.
    pub workers: WorkerRow,
    pub lost: Lost,
    /// What its interface has counted; none while it does not exist.
    pub interface: Option<InterfaceCounters>,
    /// The time that these counters lack.
    pub unseen: UnseenTime,
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

/// Packets that have a verdict.
pub(super) fn decided(row: &Row) -> u64 {
    Verdict::ALL.iter().map(|&verdict| of(row, verdict)).sum()
}

/// Packets received.
pub(super) fn seen(port: &Counted) -> u64 {
    decided(&port.row) + dropped(port).values().sum::<u64>() + queued(port)
}

/// Packets that workers were handed and dropped, by the reason's name; those without any are left out.
pub(super) fn dropped(port: &Counted) -> BTreeMap<String, u64> {
    let all = port.workers.dropped().into_iter().map(|(name, packets)| (name.to_owned(), packets));
    all.filter(|(_, packets)| *packets > 0).collect()
}

/// Packets that lie in workers' rings.
pub(super) fn queued(port: &Counted) -> u64 {
    port.workers.queued(port.driver.handed)
}

/// Packets that were forwarded.
pub(super) fn forwarded(row: &Row) -> u64 {
    of(row, Verdict::Forwarded)
}

/// Forwarded packets by the tier that forwarded them.
pub(super) fn by_tier(port: &Counted) -> BTreeMap<String, u64> {
    let (driver, workers) = (port.driver.packets_in, port.workers.packets_in);
    let ingress = forwarded(&port.row).wrapping_sub(driver).wrapping_sub(workers);
    BTreeMap::from([
        ("ingress".into(), ingress),
        ("driver".into(), driver),
        ("workers".into(), workers),
    ])
}

/// Of what is left to the kernel: what is decided anew was taken from it.
fn verdicts_of_passed() -> impl Iterator<Item = &'static Verdict> {
    let others = [Verdict::Forwarded, Verdict::DecisionChanged];
    Verdict::ALL.iter().filter(move |verdict| !others.contains(verdict))
}

/// Packets that were left to the kernel, by the verdict's name; those without any are left out.
pub(super) fn passed(row: &Row) -> BTreeMap<String, u64> {
    let of_verdict = |&verdict: &Verdict| (verdict.name().to_owned(), of(row, verdict));
    verdicts_of_passed().map(of_verdict).filter(|(_, packets)| *packets > 0).collect()
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
    let mut by_reason = BTreeMap::new();
    for (name, packets) in ports.iter().flat_map(dropped) {
        *by_reason.entry(name).or_default() += packets;
    }
    let forwarded = sum(|port| forwarded(&port.row));
    let sent = sum(|port| port.row[counter::EGRESS_PACKETS]);
    let ingress_bytes = sum(|port| port.row[counter::INGRESS_BYTES]);
    let egress_bytes = sum(|port| port.row[counter::EGRESS_BYTES]);
    AcceleratedLedger {
        seen: sum(seen),
        forwarded,
        tiers,
        passed: by_verdict,
        dropped: by_reason,
        queued: sum(queued),
        sent,
        missing: forwarded.wrapping_sub(sent) as i64,
        missing_bytes: ingress_bytes.wrapping_sub(egress_bytes) as i64,
        device_dropped: sum(|port| port.lost.device),
        queue_dropped: sum(|port| port.lost.queue),
        unseen: ports.iter().map(|port| (port.name.clone(), port.unseen)).collect(),
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
    let passed = verdicts_of_passed().map(|&verdict| {
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
    let by_workers = WorkerRow::default().dropped().into_iter().map(|(name, _)| {
        let of_port = |port: &Counted| dropped(port).get(name).copied().unwrap_or(0);
        status(name, "workers", meaning(name).into(), &of_port)
    });
    passed.chain(by_workers).chain(lost).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_forwarded_is_sent_and_the_rest_is_the_kernels() {
        let mut lan = port("lan", Lost::default());
        lan.row[Verdict::Forwarded as usize] = 100;
        lan.row[Verdict::Local as usize] = 7;
        lan.row[counter::INGRESS_BYTES] = 6400;
        let mut wan = port("wan", Lost { device: 2, queue: 3 });
        wan.row[Verdict::Local as usize] = 1;
        wan.row[counter::EGRESS_PACKETS] = 99;
        wan.row[counter::EGRESS_BYTES] = 6400;
        let ports = [lan, wan];
        let sum = ledger(&ports);
        assert_eq!((sum.seen, sum.forwarded, sum.sent, sum.missing), (108, 100, 99, 1));
        assert_eq!((sum.missing_bytes, sum.device_dropped, sum.queue_dropped), (0, 2, 3));
        assert_eq!(sum.passed, BTreeMap::from([("local".to_owned(), 8)]));
        assert_eq!(sum.seen, sum.forwarded + sum.passed.values().sum::<u64>());

        let mut ports = ports;
        ports[0].driver.handed = 50;
        ports[0].workers =
            WorkerRow { packets_in: 40, changed: 2, full: 3, ..WorkerRow::default() };
        let sum = ledger(&ports);
        assert_eq!((sum.seen, sum.queued, sum.dropped["worker_full"]), (118, 5, 3));
        assert_eq!((sum.tiers["workers"], sum.tiers["ingress"]), (40, 60));

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
