//! Counter samples: each port's counters as the API shows them, and the state of its link.

use manylane_api::accelerate::InterfaceCounters as Shown;
use manylane_export::sflow::InterfaceCounters;

use crate::accelerator::published::PortView;

/// The sample of an interface.
pub(super) fn sample(port: &PortView, interface: u32, shown: &Shown) -> InterfaceCounters {
    InterfaceCounters {
        interface,
        speed: speed(&port.name).unwrap_or(0),
        full_duplex: None,
        is_admin_up: port.is_admin_up,
        is_up: port.link_up,
        is_promiscuous: port.is_promiscuous,
        in_bytes: shown.in_octets,
        in_packets: shown.in_unicast,
        in_group: Some(shown.in_multicast),
        in_dropped: shown.in_discards,
        in_errors: shown.in_errors,
        out_bytes: shown.out_octets,
        out_packets: shown.out_unicast,
        out_dropped: shown.out_discards,
        out_errors: shown.out_errors,
    }
}

/// Bits in a second, if the driver tells.
fn speed(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/speed")).ok()?;
    let megabits: i64 = text.trim().parse().ok()?;
    u64::try_from(megabits).ok()?.checked_mul(1_000_000)
}
