//! Counter samples: the kernel's counters of each port's interface, and what a driver's counters lack.

use std::collections::BTreeMap;

use manylane_export::sflow::InterfaceCounters;
use manylane_io::netlink::Statistics;

use crate::accelerator::published::PortView;
use crate::programs::DriverRow;

/// What the tiers in front of the kernel have forwarded: drivers' programs, and workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct InFront {
    pub packets_in: u64,
    pub bytes_in: u64,
    pub packets_out: u64,
    pub bytes_out: u64,
}

impl InFront {
    /// Of a port. Packets that workers received were handed to them by the driver's program.
    pub fn of(driver: &DriverRow, sent: (u64, u64)) -> InFront {
        InFront {
            packets_in: driver.packets_in.wrapping_add(driver.handed),
            bytes_in: driver.bytes_in.wrapping_add(driver.handed_bytes),
            packets_out: driver.packets_out.wrapping_add(sent.0),
            bytes_out: driver.bytes_out.wrapping_add(sent.1),
        }
    }
}

/// Which interfaces' counters lack packets that were forwarded in front of the kernel. Drivers differ, and none tells: a
/// driver whose counter grows by fewer packets than its program has forwarded does not count them.
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
    /// The sample of an interface. `front` was read before `kernel`.
    pub fn sample(
        &mut self,
        port: &PortView,
        front: InFront,
        kernel: &Statistics,
    ) -> InterfaceCounters {
        let now = Seen {
            front,
            received: kernel.received,
            transmitted: kernel.transmitted,
            ..Seen::default()
        };
        let before = self.0.get(&kernel.index).copied().unwrap_or(now);
        let lacks = |front: u64, kernel: u64| front > ENOUGH && kernel < front;
        let seen = Seen {
            lacks_in: before.lacks_in
                || lacks(
                    front.packets_in.saturating_sub(before.front.packets_in),
                    kernel.received.saturating_sub(before.received),
                ),
            lacks_out: before.lacks_out
                || lacks(
                    front.packets_out.saturating_sub(before.front.packets_out),
                    kernel.transmitted.saturating_sub(before.transmitted),
                ),
            ..now
        };
        self.0.insert(kernel.index, seen);
        let add_in = if seen.lacks_in { front } else { InFront::default() };
        let add_out = if seen.lacks_out { front } else { InFront::default() };
        InterfaceCounters {
            interface: kernel.index,
            speed: speed(&port.name).unwrap_or(0),
            full_duplex: None,
            is_admin_up: port.is_admin_up,
            is_up: port.link_up,
            is_promiscuous: port.is_promiscuous,
            in_bytes: kernel.received_bytes.wrapping_add(add_in.bytes_in),
            in_packets: kernel
                .received
                .wrapping_sub(kernel.received_group)
                .wrapping_add(add_in.packets_in),
            in_group: kernel.received_group,
            in_dropped: kernel.receive_dropped,
            in_errors: kernel.receive_errors,
            out_bytes: kernel.transmitted_bytes.wrapping_add(add_out.bytes_out),
            out_packets: kernel.transmitted.wrapping_add(add_out.packets_out),
            out_dropped: kernel.transmit_dropped.wrapping_add(kernel.queue_dropped.into()),
            out_errors: kernel.transmit_errors,
        }
    }
}

/// Bits in a second, if the driver tells.
fn speed(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/speed")).ok()?;
    let megabits: i64 = text.trim().parse().ok()?;
    u64::try_from(megabits).ok()?.checked_mul(1_000_000)
}

/// Packets that tell a driver that does not count from one that counts late.
const ENOUGH: u64 = 1000;
