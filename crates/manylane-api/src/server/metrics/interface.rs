//! The metrics of interfaces' counters, which have names of their own in SNMP.

use std::fmt;

use super::{Column, Page, labels};
use crate::accelerate::{AcceleratedPort, InterfaceCounters};

/// Writes them; those of an interface that does not exist are left out.
pub(super) fn write(ports: &[AcceleratedPort], page: &mut Page<'_>) -> fmt::Result {
    let all: Vec<Named<'_>> =
        ports.iter().filter_map(|port| Some(Named(&port.name, port.interface?))).collect();
    for (name, unit, help, value) in COUNTERS {
        let samples = all.iter().map(|one| (labels([("port", one.0)]), value(&one.1)));
        page.counter(name, unit, help, samples)?;
    }
    Ok(())
}

/// An interface's name, and its counters.
struct Named<'a>(&'a str, InterfaceCounters);

const COUNTERS: &[Column<InterfaceCounters>] = &[
    ("interface_in", "bytes", "Octets received: ifHCInOctets of IF-MIB.", |is| is.in_octets),
    (
        "interface_in_unicast",
        "packets",
        "Packets received, but for those to groups that the driver counts: ifHCInUcastPkts of IF-MIB.",
        |is| is.in_unicast,
    ),
    (
        "interface_in_multicast",
        "packets",
        "Packets received for groups, as far as the driver counts them: ifHCInMulticastPkts of IF-MIB.",
        |is| is.in_multicast,
    ),
    (
        "interface_in_discards",
        "packets",
        "Received packets that the device, its driver or manylane's workers dropped: ifInDiscards of IF-MIB.",
        |is| is.in_discards,
    ),
    (
        "interface_in_errors",
        "packets",
        "Received frames with errors: ifInErrors of IF-MIB.",
        |is| is.in_errors,
    ),
    ("interface_out", "bytes", "Octets transmitted: ifHCOutOctets of IF-MIB.", |is| is.out_octets),
    (
        "interface_out_unicast",
        "packets",
        "Packets transmitted, with those to groups: ifHCOutUcastPkts of IF-MIB.",
        |is| is.out_unicast,
    ),
    (
        "interface_out_discards",
        "packets",
        "Packets that the device, its driver or its queueing discipline dropped: ifOutDiscards of IF-MIB.",
        |is| is.out_discards,
    ),
    (
        "interface_out_errors",
        "packets",
        "Packets that could not be transmitted for errors: ifOutErrors of IF-MIB.",
        |is| is.out_errors,
    ),
    (
        "interface_in_added",
        "packets",
        "Packets received that the kernel's counters lack: they are in ifHCInUcastPkts.",
        |is| is.in_added,
    ),
    (
        "interface_out_added",
        "packets",
        "Packets transmitted that the kernel's counters lack: they are in ifHCOutUcastPkts.",
        |is| is.out_added,
    ),
];
