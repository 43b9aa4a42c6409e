//! What a worker counts, and how the counts add up.
//!
//! A worker owns one block of counters and writes it with plain stores; other threads read. Packets,
//! of one frame or more, are counted by their port of *entry*, which the metadata carries to the end, so
//! that the ledger adds up port by port (I2):
//!
//! ```text
//! received + created = transmitted + delivered + dropped, by reason + held + in flight
//! ```
//!
//! What is transmitted is counted when the device has finished with it, not when the worker handed it over.

use manylane_frame::vocabulary::{Created, DropReason, PortId};
use manylane_io::port::{CopyCounts, FaultCounts};
use manylane_sync::counters::{CounterReader, Counters};

/// One worker's side of the ledger.
pub struct Stats {
    counters: Counters,
    ports: usize,
}

/// A reader's view of one worker's ledger.
#[derive(Clone)]
pub struct StatsReader {
    counters: CounterReader,
    ports: usize,
}

/// What is counted for a port. The first group is by port of entry, the second by the port itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum PortCount {
    /// Packets received.
    Received,
    /// Bytes received, without frame check sequence.
    ReceivedBytes,
    /// Packets received here that have left through any port.
    Transmitted,
    /// Packets that were for us.
    Delivered,
    /// Packets waiting for a neighbour now (a level).
    Held,
    /// Packets given to this port's device to transmit, whichever port received them.
    Sent,
    /// Bytes given to this port's device to transmit.
    SentBytes,
    /// Packets this port's device has finished with. `Sent` less this is in flight.
    Completed,
    /// Frames that lie at this port's device to be received into (a level).
    Posted,
    /// Frames given to this port's device to transmit (a level of what its driver counts).
    Lent,
    /// Of these, frames that have come back (a level, alike).
    Returned,
    /// Packets lost at this port because its receive ring was full (a level of the device's count).
    LostRingFull,
    /// Packets lost at this port for want of a frame (a level of the device's count).
    LostNoBuffer,
    /// Packets lost at this port because they did not fit a frame, or were refused (a level).
    LostInvalid,
    /// Packets that this port's device had received, and that were not read when the port was closed.
    LostClosed,
    /// Packets that this port's device took to transmit and dropped (a level of what it says). Such packets
    /// count as transmitted, as far as we can account for them.
    LostTransmit,
    /// Segments that packets were cut into here, because this port does not.
    SegmentsCut,
    /// Packets whose transport checksum was computed here, because this port does not.
    ChecksumsCompleted,
    /// Packets that were copied into fewer frames, because this port takes no more.
    ChainsJoined,
    /// Frames that this port's faults hold before transmission (a level; received ones are posted).
    Late,
    /// Packets dropped here on purpose (this and what follows are levels of what faults and copies count).
    FaultsDropped,
    /// Packets duplicated on purpose.
    FaultsDuplicated,
    /// Packets damaged on purpose.
    FaultsCorrupted,
    /// Packets delayed on purpose.
    FaultsDelayed,
    /// Packets that others passed on purpose.
    FaultsReordered,
    /// Packets that were to be late, and found no place in the hold.
    FaultsHoldFull,
    /// Packets that were to be duplicated, and found no frame.
    FaultsNoFrame,
    /// Packets not copied for want of frames.
    CopiesNoFrame,
    /// Packets not copied because their copy would have left wrong.
    CopiesUnfit,
    /// Packets for which the file's writer had no place.
    CopiesRefused,
}

const PORT_COUNTS: usize = PortCount::CopiesRefused as usize + 1;
const CREATED: usize = PORT_COUNTS;
const DROPPED: usize = CREATED + Created::COUNT;
/// Counters of one port.
const PER_PORT: usize = DROPPED + DropReason::COUNT;

/// What is counted for the worker itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum WorkerCount {
    /// Turns of its loop.
    Turns,
    /// Nanoseconds in turns that moved frames.
    BusyNs,
    /// Nanoseconds in turns that moved none, and asleep.
    IdleNs,
    /// Times it went to sleep.
    Sleeps,
    /// Times something woke it, rather than the time.
    Wakeups,
    /// Events for the control thread that found no place in the ring.
    EventsLost,
    /// Orders of the control thread that nothing could be sent for: the address to ask from was lost meanwhile.
    OrdersLost,
    /// ICMP errors that the rate limit held back.
    ErrorsSuppressed,
    /// Frames in its own list now (a level).
    PoolLevel,
    /// Most frames in its own list (a level).
    HotListLen,
    /// Frames taken from its own list (this and what follows are levels of what the list counts).
    PoolTaken,
    /// Of these, frames that lay there when they were wanted.
    PoolHits,
    /// Times the list fetched magazines.
    PoolRefills,
    /// Times the list brought magazines.
    PoolSpills,
    /// Times the list was too short to receive into.
    PoolStarved,
    /// Frames of packets that wait for neighbours now (a level).
    FramesHeld,
    /// Frames in its hands between two turns (a level).
    FramesInHand,
    /// Packets with an encapsulated transport checksum that could not be looked at, nor completed.
    InnerChecksumUnknown,
}

const WORKER_COUNTS: usize = WorkerCount::InnerChecksumUnknown as usize + 1;

impl Stats {
    /// Counters for a daemon with `ports` ports, all zero.
    pub fn new(ports: usize) -> Stats {
        Stats { counters: Counters::new(WORKER_COUNTS + ports * PER_PORT), ports }
    }

    /// A side for other threads.
    pub fn reader(&self) -> StatsReader {
        StatsReader { counters: self.counters.reader(), ports: self.ports }
    }

    /// Adds to one of a port's counts.
    #[inline]
    pub fn count(&mut self, port: PortId, what: PortCount, n: u64) {
        self.counters.add(at(port, what as usize), n);
    }

    /// Changes one of a port's levels by `by`.
    pub fn change(&mut self, port: PortId, what: PortCount, by: i64) {
        // Two's complement: a negative number is added by wrapping around.
        self.counters.add(at(port, what as usize), by as u64);
    }

    /// Sets one of a port's levels.
    pub fn level(&mut self, port: PortId, what: PortCount, value: u64) {
        self.counters.set(at(port, what as usize), value);
    }

    /// Sets the levels of what was done to a port's packets on purpose, and what became of their copies.
    pub fn wrapped(&mut self, port: PortId, faults: FaultCounts, copies: CopyCounts) {
        let FaultCounts { dropped, duplicated, corrupted, delayed, reordered, hold_full, no_frame } =
            faults;
        for (what, value) in [
            (PortCount::FaultsDropped, dropped),
            (PortCount::FaultsDuplicated, duplicated),
            (PortCount::FaultsCorrupted, corrupted),
            (PortCount::FaultsDelayed, delayed),
            (PortCount::FaultsReordered, reordered),
            (PortCount::FaultsHoldFull, hold_full),
            (PortCount::FaultsNoFrame, no_frame),
            (PortCount::CopiesNoFrame, copies.no_frame),
            (PortCount::CopiesUnfit, copies.unfit),
            (PortCount::CopiesRefused, copies.refused),
        ] {
            self.level(port, what, value);
        }
    }

    /// Counts a packet of entry `port` that was dropped.
    #[inline]
    pub fn dropped(&mut self, port: PortId, reason: DropReason) {
        self.counters.add(at(port, DROPPED + reason.index()), 1);
    }

    /// Counts a packet that began here, on behalf of `port`.
    #[inline]
    pub fn created(&mut self, port: PortId, reason: Created) {
        self.counters.add(at(port, CREATED + reason.index()), 1);
    }

    /// Counts `n` packets that began here, on behalf of `port`.
    #[inline]
    pub fn created_many(&mut self, port: PortId, reason: Created, n: u64) {
        self.counters.add(at(port, CREATED + reason.index()), n);
    }

    /// Adds to one of the worker's counts.
    #[inline]
    pub fn worker(&mut self, what: WorkerCount, n: u64) {
        self.counters.add(what as usize, n);
    }

    /// Sets one of the worker's levels.
    #[inline]
    pub fn worker_level(&mut self, what: WorkerCount, value: u64) {
        self.counters.set(what as usize, value);
    }
}

impl StatsReader {
    /// Number of ports counted for.
    pub fn ports(&self) -> usize {
        self.ports
    }

    /// One of a port's counts.
    pub fn port(&self, port: PortId, what: PortCount) -> u64 {
        self.counters.load(at(port, what as usize))
    }

    /// Packets of entry `port` dropped under `reason`.
    pub fn dropped(&self, port: PortId, reason: DropReason) -> u64 {
        self.counters.load(at(port, DROPPED + reason.index()))
    }

    /// Packets that began here on behalf of `port`.
    pub fn created(&self, port: PortId, reason: Created) -> u64 {
        self.counters.load(at(port, CREATED + reason.index()))
    }

    /// One of the worker's counts.
    pub fn worker(&self, what: WorkerCount) -> u64 {
        self.counters.load(what as usize)
    }
}

#[inline(always)]
fn at(port: PortId, field: usize) -> usize {
    WORKER_COUNTS + port.index() * PER_PORT + field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_two_ports_do_not_touch() {
        let mut stats = Stats::new(2);
        let reader = stats.reader();
        stats.dropped(PortId(0), DropReason::Shutdown);
        stats.count(PortId(1), PortCount::Received, 5);
        stats.created(PortId(1), Created::Fragment);
        stats.worker(WorkerCount::Turns, 2);
        assert_eq!(reader.dropped(PortId(0), DropReason::Shutdown), 1);
        assert_eq!(reader.port(PortId(1), PortCount::Received), 5);
        assert_eq!(reader.port(PortId(0), PortCount::Received), 0);
        assert_eq!(reader.created(PortId(1), Created::Fragment), 1);
        assert_eq!(reader.dropped(PortId(1), DropReason::Truncated), 0);
        assert_eq!(reader.worker(WorkerCount::Turns), 2);
    }
}
