//! Differences that were found and are not meant: each row goes when its cause does.

use super::compare::Did;
use super::generate::UDP;
use super::plan;
use super::read;
use super::row::{
    Row, did, ends, field, is_broadcast, is_from_link_local, is_port_unreachable, is_routers,
    is_to_router, v4, v6,
};

/// As the rows of what is intended, and behind them.
pub const FOUND: &[Row] = &[
    Row {
        reason: "a reply to a link-local address has the padding of its request's frame behind it",
        explains: |case, difference| {
            is_from_link_local(case)
                && matches!(field(difference), Some(("payload", kernel, ours)) if ours.starts_with(kernel))
        },
    },
    Row {
        reason: "echo replies have the flags of their requests: the reserved one (RFC 791 §3.1), and DF, with \
                 which they may not fit the way back",
        explains: |case, difference| {
            let is_ping =
                v4(case).is_some() && matches!(read::icmp(&case.shot.frame), Some((8, ..)));
            is_ping
                && (matches!(field(difference), Some(("flags and fragment offset", &[0, 0], _)))
                    || did(difference) == Some((Did::Said(0, 0), Did::Nothing)))
        },
    },
    Row {
        reason: "errors about packets to one of our addresses come from another (RFC 4443 §2.2 a)",
        explains: |case, difference| {
            matches!(case.ours_did(), Did::Said(1..=4, _))
                && v6(case).is_some_and(|header| plan::is_routers(header.destination.into()))
                && (is_routers(field(difference), "source")
                    || matches!(field(difference), Some(("ICMP checksum", ..))))
        },
    },
    Row {
        reason: "nobody is told that we do not speak a protocol (RFC 1812 §5.2.7.1, RFC 8200 §4)",
        explains: |case, difference| {
            ends(case).is_some_and(|(_, to)| plan::is_routers(to))
                && matches!(
                    did(difference),
                    Some((Did::Said(3, 2) | Did::Said(4, 1), Did::Nothing))
                )
        },
    },
    Row {
        reason: "a UDP header for us is not looked at (RFC 1122 §4.1.3.4)",
        explains: |case, difference| {
            is_to_router(case, UDP)
                && is_port_unreachable(case.ours_did())
                && (matches!(did(difference), Some((Did::Nothing, _)))
                    || matches!(
                        field(difference),
                        Some(("total length" | "payload length" | "ICMP checksum" | "payload", ..))
                    ))
        },
    },
    Row {
        reason: "extension headers of packets for us are not looked at (RFC 8200 §4.2, §4.4)",
        explains: |case, difference| {
            v6(case).is_some_and(|header| {
                matches!(header.next, 0 | 43 | 44 | 51 | 60)
                    && (plan::is_routers(header.destination.into())
                        || header.destination.is_multicast())
            }) && did(difference).is_some()
        },
    },
    Row {
        reason: "options are looked at before it is known that the packet is a broadcast \
                 (RFC 1812 §4.3.2.7)",
        explains: |case, difference| {
            v4(case).is_some_and(|header| is_broadcast(header.destination))
                && did(difference) == Some((Did::Nothing, Did::Said(12, 0)))
        },
    },
    Row {
        reason: "what comes from a network's broadcast address is forwarded (RFC 1812 §5.3.7)",
        explains: |case, difference| {
            v4(case).is_some_and(|header| is_broadcast(header.source)) && did(difference).is_some()
        },
    },
];
