//! Names of routing tables, protocols and scopes, as ip(8) shows them without a configuration of its own.

use super::constants::{TABLE_DEFAULT, TABLE_LOCAL, TABLE_MAIN};

/// A routing table.
pub(super) fn table(id: u32) -> String {
    match id {
        TABLE_DEFAULT => "default".into(),
        TABLE_MAIN => "main".into(),
        TABLE_LOCAL => "local".into(),
        id => id.to_string(),
    }
}

/// The program that made a route (`RTPROT_*` of `linux/rtnetlink.h`).
pub(super) fn protocol(number: u8) -> String {
    let name = match number {
        0 => "unspec",
        1 => "redirect",
        2 => "kernel",
        3 => "boot",
        4 => "static",
        8 => "gated",
        9 => "ra",
        10 => "mrt",
        11 => "zebra",
        12 => "bird",
        13 => "dnrouted",
        14 => "xorp",
        15 => "ntk",
        16 => "dhcp",
        17 => "mrouted",
        18 => "keepalived",
        42 => "babel",
        99 => "openr",
        186 => "bgp",
        187 => "isis",
        188 => "ospf",
        189 => "rip",
        192 => "eigrp",
        number => return number.to_string(),
    };
    name.into()
}

/// How far a route's destinations are (`RT_SCOPE_*`).
pub(super) fn scope(number: u8) -> String {
    let name = match number {
        0 => "global",
        200 => "site",
        253 => "link",
        254 => "host",
        255 => "nowhere",
        number => return number.to_string(),
    };
    name.into()
}

/// What the kernel knows of a neighbour (`NUD_*`).
pub fn neighbour_state(state: u16) -> &'static str {
    match state {
        0x01 => "incomplete",
        0x02 => "reachable",
        0x04 => "stale",
        0x08 => "delay",
        0x10 => "probe",
        0x20 => "failed",
        0x40 => "noarp",
        0x80 => "permanent",
        _ => "none",
    }
}
