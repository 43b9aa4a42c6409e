//! What workers count: each worker has a row for each port.
//!
//! What the program has handed up is either sent, or dropped for one of these reasons, or lies in a ring still.

use manylane_net::transit::Verdict;
use manylane_sync::counters::{CounterReader, Counters};

/// One thread's rows.
pub(super) struct Rows(Counters);

/// A place in a port's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Packets received here and sent.
    PacketsIn,
    /// Their bytes.
    BytesIn,
    /// Packets that were sent by this port.
    PacketsOut,
    /// Their bytes.
    BytesOut,
    /// Received here, and no longer transit when the worker decided.
    Changed,
    /// Received here, and the egress port had no place, or did not take the packet before it was closed.
    Unsent,
    /// Handed up to this port's socket, which had no place.
    Full,
    /// Received here, and in a ring that was closed.
    Lost,
}

impl Rows {
    pub fn new() -> Rows {
        Rows(Counters::new(PORTS * PLACES))
    }

    pub fn reader(&self) -> CounterReader {
        self.0.reader()
    }

    #[inline]
    pub fn add(&mut self, port: u16, place: Place, number: u64) {
        if number > 0 {
            self.0.add(at(port, place), number);
        }
    }

    pub fn set(&mut self, port: u16, place: Place, number: u64) {
        self.0.set(at(port, place), number);
    }

    pub fn load(&self, port: u16, place: Place) -> u64 {
        self.0.load(at(port, place))
    }
}

fn at(port: u16, place: Place) -> usize {
    usize::from(port) % PORTS * PLACES + place as usize
}

/// The counts of all workers.
#[derive(Clone)]
pub(in super::super) struct WorkerCounts {
    workers: Vec<CounterReader>,
    /// The socket manager's: packets counted as sent that were not, and packets lost when ports were closed.
    socket_manager: CounterReader,
}

/// A port's row, of all workers together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct WorkerRow {
    pub packets_in: u64,
    pub bytes_in: u64,
    pub packets_out: u64,
    pub bytes_out: u64,
    pub changed: u64,
    pub unsent: u64,
    pub full: u64,
    pub lost: u64,
}

impl WorkerCounts {
    pub fn new(workers: Vec<CounterReader>, socket_manager: CounterReader) -> WorkerCounts {
        WorkerCounts { workers, socket_manager }
    }

    /// The row of a port. Zeroes for a port that cannot be.
    pub fn port(&self, port: u16) -> WorkerRow {
        if usize::from(port) >= PORTS {
            return WorkerRow::default();
        }
        let sum = |place| self.workers.iter().map(|rows| rows.load(at(port, place))).sum::<u64>();
        let socket_manager = |place| self.socket_manager.load(at(port, place));
        // The socket manager counts as sent those packets that it found to be unsent.
        let sent = |place| sum(place).saturating_sub(socket_manager(place));
        WorkerRow {
            packets_in: sent(Place::PacketsIn),
            bytes_in: sent(Place::BytesIn),
            packets_out: sent(Place::PacketsOut),
            bytes_out: sent(Place::BytesOut),
            changed: sum(Place::Changed),
            unsent: sum(Place::Unsent) + socket_manager(Place::Unsent),
            full: sum(Place::Full),
            lost: socket_manager(Place::Lost),
        }
    }
}

impl WorkerRow {
    /// What was dropped, by the reason's name.
    pub fn dropped(&self) -> [(&'static str, u64); 4] {
        [
            (Verdict::DecisionChanged.name(), self.changed),
            ("worker_full", self.full),
            (UNSENT_NAME, self.unsent),
            ("worker_lost", self.lost),
        ]
    }

    /// The packets in rings: those handed up, less those decided upon.
    pub fn queued(&self, handed: u64) -> u64 {
        let dropped: u64 = self.dropped().iter().map(|(_, packets)| packets).sum();
        handed.saturating_sub(self.packets_in + dropped)
    }

    /// Packets and bytes that left.
    pub fn sent(&self) -> (u64, u64) {
        (self.packets_out, self.bytes_out)
    }
}

/// Why a worker dropped a packet, for the API.
pub(in super::super) fn meaning(reason: &str) -> &'static str {
    match reason {
        _ if reason == Verdict::DecisionChanged.name() => {
            "it was transit when it was received and is not any more: a route, a rule, the gate or the lease changed meanwhile"
        }
        "worker_full" => {
            "its worker's socket had no place: it comes too fast, or the worker waits for a core"
        }
        UNSENT_NAME => {
            "the device that it was to leave by took nothing more, or was closed before it did"
        }
        "worker_lost" => {
            "it was in a ring when the port was taken from the workers, or its worker ended"
        }
        _ => "",
    }
}

/// A drop's name, which captures show, too.
pub(super) const UNSENT_NAME: &str = "worker_unsent";
const PORTS: usize = 256;
const PLACES: usize = 8;
