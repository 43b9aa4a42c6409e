//! The packets' ledger: counters added up over workers, and over ports.

use std::collections::BTreeMap;

use manylane_api::{DropStatus, Ledger, PortLedger};
use manylane_frame::vocabulary::{Created, DropReason, PortId};
use manylane_worker::stats::{PortCount, StatsReader};

use super::Status;

impl Status {
    pub(super) fn all_drops(&self) -> Vec<DropStatus> {
        let of_reason = |&reason: &DropReason| {
            let by_port = self.ids().map(|port| (self.name(port), self.dropped(port, reason)));
            let ports: BTreeMap<_, _> = by_port.filter(|&(_, n)| n > 0).collect();
            DropStatus {
                reason: reason.name().into(),
                explanation: reason.explanation().into(),
                total: ports.values().sum(),
                ports,
            }
        };
        DropReason::ALL.iter().map(of_reason).filter(|drop| drop.total > 0).collect()
    }

    pub(super) fn packet_ledger(&self) -> Ledger {
        let per_port: Vec<_> = self.ids().map(|port| self.port_ledger(port)).collect();
        let sum = |field: fn(&PortLedger) -> u64| per_port.iter().map(field).sum::<u64>();
        let in_flight = self.ids().map(|port| self.in_flight(port)).fold(0, u64::wrapping_add);
        let mut created = BTreeMap::new();
        for &reason in Created::ALL {
            let n: u64 = self.ids().map(|port| self.created(port, reason)).sum();
            if n > 0 {
                created.insert(reason.name().into(), n);
            }
        }
        let mut dropped = BTreeMap::new();
        for port in self.ids() {
            for (reason, n) in self.drops_of(port) {
                *dropped.entry(reason).or_default() += n;
            }
        }
        let held = sum(|port| port.held);
        let missing: i64 = per_port.iter().map(|port| port.missing).sum();
        Ledger {
            received: sum(|port| port.received),
            created,
            transmitted: sum(|port| port.transmitted),
            delivered: sum(|port| port.delivered),
            dropped,
            held,
            in_flight,
            missing: missing - in_flight as i64,
            frames: self.frame_ledger(),
            per_port,
        }
    }

    fn port_ledger(&self, port: PortId) -> PortLedger {
        let created = Created::ALL.iter().map(|&reason| self.created(port, reason)).sum();
        let dropped = DropReason::ALL.iter().map(|&reason| self.dropped(port, reason)).sum();
        let received = self.port_sum(port, PortCount::Received);
        let transmitted = self.port_sum(port, PortCount::Transmitted);
        let delivered = self.port_sum(port, PortCount::Delivered);
        let held = self.port_sum(port, PortCount::Held);
        let accounted = transmitted + delivered + dropped + held;
        PortLedger {
            port: self.name(port),
            received,
            created,
            transmitted,
            delivered,
            dropped,
            held,
            // By port of entry it is not known which frames are in flight: they are what is missing
            // while any are, and the total says how many that may be.
            in_flight: 0,
            missing: (received + created) as i64 - accounted as i64,
        }
    }

    pub(super) fn port_sum(&self, port: PortId, what: PortCount) -> u64 {
        // Levels may be counted down by another worker than counted up: wrapping is right.
        self.all_stats().fold(0, |sum, stats| sum.wrapping_add(stats.port(port, what)))
    }

    fn dropped(&self, port: PortId, reason: DropReason) -> u64 {
        self.all_stats().map(|stats| stats.dropped(port, reason)).sum()
    }

    fn created(&self, port: PortId, reason: Created) -> u64 {
        self.all_stats().map(|stats| stats.created(port, reason)).sum()
    }

    /// Sent and not finished, through one port.
    fn in_flight(&self, port: PortId) -> u64 {
        self.port_sum(port, PortCount::Sent).wrapping_sub(self.port_sum(port, PortCount::Completed))
    }

    pub(super) fn drops_of(&self, port: PortId) -> BTreeMap<String, u64> {
        let counted = DropReason::ALL.iter().map(|&reason| (reason, self.dropped(port, reason)));
        counted.filter(|&(_, n)| n > 0).map(|(reason, n)| (reason.name().into(), n)).collect()
    }

    fn all_stats(&self) -> impl Iterator<Item = &StatsReader> {
        self.stats.iter().chain([&self.closed_ports])
    }
}
