//! An interface's counters under their names in IF-MIB: the kernel's, and packets that a driver does not count.
//!
//! Packets that the tiers in front of the kernel forward are in the kernel's counters where the driver counts them. Drivers
//! differ, and none tells. So [`Lacking`] compares by how much both sides have grown.

use std::collections::BTreeMap;

use manylane_api::accelerate::InterfaceCounters;
use manylane_io::netlink::Statistics;

use super::ledger::Counts;

/// What the tiers in front of the kernel have forwarded: drivers' programs, and workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct InFront {
    pub packets_in: u64,
    pub bytes_in: u64,
    pub packets_out: u64,
    pub bytes_out: u64,
    /// Of `packets_in`, those that workers dropped.
    pub discarded: u64,
}

impl InFront {
    /// Of a port. Packets that workers received were handed to them by the driver's program.
    pub fn of(Counts { driver, workers, .. }: &Counts) -> InFront {
        let sent = workers.sent();
        InFront {
            packets_in: driver.packets_in.wrapping_add(driver.handed),
            bytes_in: driver.bytes_in.wrapping_add(driver.handed_bytes),
            packets_out: driver.packets_out.wrapping_add(sent.0),
            bytes_out: driver.bytes_out.wrapping_add(sent.1),
            discarded: workers.dropped().iter().map(|(_, packets)| packets).sum(),
        }
    }
}

/// Which interfaces' counters lack packets that were forwarded in front of the kernel, by the interface's number.
#[derive(Debug, Default)]
pub(super) struct Lacking(BTreeMap<u32, Seen>);

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    front: InFront,
    received: u64,
    transmitted: u64,
    lacks_in: bool,
    lacks_out: bool,
}

impl Lacking {
    /// That of these interfaces: nothing was forwarded in front of their kernel so far.
    pub fn of(kernel: &[Statistics]) -> Lacking {
        let mut lacking = Lacking::default();
        kernel.iter().for_each(|kernel| lacking.watch(kernel));
        lacking
    }

    /// Another interface.
    pub fn watch(&mut self, kernel: &Statistics) {
        let (received, transmitted) = (kernel.received, kernel.transmitted);
        self.0.insert(kernel.index, Seen { received, transmitted, ..Seen::default() });
    }

    /// The counters of an interface. `front` was read before `kernel`.
    pub fn counters(&mut self, front: InFront, kernel: &Statistics) -> InterfaceCounters {
        let (received, transmitted) = (kernel.received, kernel.transmitted);
        let now = Seen { front, received, transmitted, ..Seen::default() };
        let before = self.0.get(&kernel.index).copied().unwrap_or(now);
        let grown = |now: u64, before: u64| now.saturating_sub(before);
        let seen = Seen {
            lacks_in: before.lacks_in
                || does_not_count(
                    grown(front.packets_in, before.front.packets_in),
                    grown(received, before.received),
                ),
            lacks_out: before.lacks_out
                || does_not_count(
                    grown(front.packets_out, before.front.packets_out),
                    grown(transmitted, before.transmitted),
                ),
            ..now
        };
        self.0.insert(kernel.index, seen);
        let add_in = if seen.lacks_in { front } else { InFront::default() };
        let add_out = if seen.lacks_out { front } else { InFront::default() };
        InterfaceCounters {
            in_octets: kernel.received_bytes.wrapping_add(add_in.bytes_in),
            in_unicast: received
                .saturating_sub(kernel.received_group)
                .wrapping_add(add_in.packets_in),
            in_multicast: kernel.received_group,
            in_discards: kernel.receive_dropped.wrapping_add(front.discarded),
            in_errors: kernel.receive_errors,
            out_octets: kernel.transmitted_bytes.wrapping_add(add_out.bytes_out),
            out_unicast: transmitted.wrapping_add(add_out.packets_out),
            out_discards: kernel.transmit_dropped.wrapping_add(kernel.queue_dropped.into()),
            out_errors: kernel.transmit_errors,
            in_added: add_in.packets_in,
            out_added: add_out.packets_out,
        }
    }
}

/// Whether a driver's counter lacks the packets that its program has forwarded, by how much both have grown. A driver that
/// counts may do so late, by as many packets as its rings hold, so its counter never grows by less than half as much.
fn does_not_count(front: u64, kernel: u64) -> bool {
    front > ENOUGH && kernel < front / 2
}

/// Packets that tell a driver that does not count from one that counts late.
const ENOUGH: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn front(packets_in: u64, packets_out: u64) -> InFront {
        let [bytes_in, bytes_out] = [packets_in, packets_out].map(|packets| packets * 60);
        InFront { packets_in, bytes_in, packets_out, bytes_out, discarded: 0 }
    }

    fn kernel(received: u64, transmitted: u64) -> Statistics {
        let [received_bytes, transmitted_bytes] = [received, transmitted].map(|all| all * 60);
        let index = 7;
        Statistics {
            index,
            received,
            transmitted,
            received_bytes,
            transmitted_bytes,
            ..Statistics::default()
        }
    }

    /// Packets and octets in, packets and octets out.
    fn sums(counters: &InterfaceCounters) -> [u64; 4] {
        let InterfaceCounters { in_octets, in_unicast, out_octets, out_unicast, .. } = *counters;
        [in_unicast, in_octets, out_unicast, out_octets]
    }

    #[test]
    fn a_driver_that_counts_is_left_as_it_is_also_if_it_counts_late() {
        let mut lacking = Lacking::default();
        lacking.watch(&kernel(10, 10));
        for (front, kernel) in [
            (front(0, 0), kernel(10, 10)),
            // 256 frames of a ring are not counted yet.
            (front(5000, 5000), kernel(5010, 4754)),
            (front(9000, 9000), kernel(9010, 9010)),
        ] {
            let counters = lacking.counters(front, &kernel);
            assert_eq!(sums(&counters)[..1], [kernel.received]);
            assert_eq!(sums(&counters)[2..3], [kernel.transmitted]);
            assert_eq!((counters.in_added, counters.out_added), (0, 0));
        }
    }

    #[test]
    fn what_a_driver_does_not_count_is_added_from_then_on_each_direction_for_itself() {
        let mut lacking = Lacking::default();
        lacking.watch(&kernel(10, 10));
        let few = lacking.counters(front(900, 900), &kernel(10, 910));
        assert_eq!(sums(&few), [10, 600, 910, 54_600], "too few to tell");
        let many = lacking.counters(front(5000, 5000), &kernel(30, 5010));
        assert_eq!(sums(&many), [5030, 5030 * 60, 5010, 5010 * 60]);
        assert_eq!((many.in_added, many.out_added), (5000, 0));
        // Nothing more is forwarded in front; the counters do not fall.
        let later = lacking.counters(front(5000, 5000), &kernel(9000, 9000));
        assert_eq!(sums(&later)[..1], [14_000]);
    }

    #[test]
    fn what_workers_drop_and_queues_drop_are_discards_of_their_sides() {
        let mut lacking = Lacking::default();
        let kernel = Statistics {
            receive_dropped: 1,
            receive_errors: 2,
            transmit_dropped: 4,
            transmit_errors: 8,
            queue_dropped: 16,
            received: 40,
            received_group: 32,
            ..kernel(0, 0)
        };
        let counters = lacking.counters(InFront { discarded: 64, ..front(0, 0) }, &kernel);
        assert_eq!((counters.in_discards, counters.in_errors), (65, 2));
        assert_eq!((counters.out_discards, counters.out_errors), (20, 8));
        assert_eq!((counters.in_unicast, counters.in_multicast), (8, 32));
    }

    #[test]
    fn packets_for_workers_count_where_they_were_received() {
        let mut counts = Counts::default();
        (counts.driver.packets_in, counts.driver.handed) = (5, 7);
        (counts.driver.packets_out, counts.workers.packets_out) = (11, 13);
        (counts.workers.full, counts.workers.changed) = (1, 2);
        let front = InFront::of(&counts);
        assert_eq!((front.packets_in, front.packets_out, front.discarded), (12, 24, 3));
    }
}
