//! The differences that are meant, each with its reason.

use std::net::IpAddr;

use super::compare::Did;
use super::generate::{ICMP, TCP, UDP};
use super::plan::{self, Way};
use super::read::Ip;
use super::row::{
    Row, are_of_packet, blanked, cleared, did, ends, field, has_options, has_segments, has_twice,
    is_broadcast, is_but_for_times, is_later, is_multicast, is_port_unreachable,
    is_quoted_but_for_options, is_to_router, is_transit, kernel_speaks_from, may_be_error, options,
    ours_is, transport, v4, v6,
};
use super::wanted;

/// The first row that explains a difference counts. A row that explains none in a whole run is a failure.
pub const INTENDED: &[Row] = &[
    Row {
        reason: "Linux takes 0.0.0.0/8 and 240.0.0.0/4 for hosts' addresses; RFC 1812 §5.3.7 does not",
        explains: |case, difference| {
            let odd =
                |address| matches!(address, IpAddr::V4(v4) if matches!(v4.octets()[0], 0 | 240..));
            ends(case).is_some_and(|(from, to)| odd(from) || odd(to))
                && ours_is(difference, Did::Nothing)
        },
    },
    Row {
        reason: "Linux forwards IPv4-mapped addresses; RFC 6890 §2.2.3 says they are never on a wire",
        explains: |case, difference| {
            let mapped =
                |address| matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
            ends(case).is_some_and(|(from, to)| mapped(from) || mapped(to))
                && ours_is(difference, Did::Nothing)
        },
    },
    Row {
        reason: "Linux looks at the route first, then at the TTL; to the sender both answers are true",
        explains: |case, difference| {
            let ended = case.ip().is_some_and(|ip| match ip {
                Ip::V4(header) => header.ttl <= 1,
                Ip::V6(header) => header.hop_limit <= 1,
            });
            let to = ends(case).map(|(_, to)| plan::way(to));
            ended
                && matches!(to, Some(Way::None | Way::Nowhere(_)))
                && ours_is(difference, Did::Said(if v4(case).is_some() { 11 } else { 3 }, 0))
        },
    },
    Row {
        reason: "Linux looks at the hop limit first, then at the scope of addresses (RFC 4291 §2.5.6)",
        explains: |case, difference| {
            v6(case).is_some_and(|header| {
                header.hop_limit <= 1 && header.destination.is_unicast_link_local()
            }) && did(difference) == Some((Did::Said(3, 0), Did::Nothing))
        },
    },
    Row {
        reason: "Linux forwards packets whose hop-by-hop options have no jumbogram's length where their header \
                 has none; RFC 2675 §3 notifies the sender",
        explains: |case, difference| {
            // The length is 0, hop-by-hop options come first, and a jumbogram's is not the first of them.
            let frame = &case.shot.frame;
            v6(case).is_some()
                && frame.get(14 + 4..14 + 7) == Some(&[0, 0, 0])
                && frame.get(56) != Some(&0xc2)
                && (ours_is(difference, Did::Said(4, 0))
                    || ours_is(difference, Did::Nothing)
                    || case.ours_did() == Did::Said(4, 0) && field(difference).is_some())
        },
    },
    Row {
        reason: "Linux clears what stands behind the end of the options; manylane leaves padding alone",
        explains: |case, difference| {
            match field(difference) {
                Some(("options", kernel, ours)) => kernel == cleared(ours),
                // In a quotation, too.
                Some(("payload", kernel, ours)) => {
                    let is_error = matches!(case.ours_did(), Did::Said(3 | 11 | 12, _));
                    let is_cleared =
                        options(case).is_some_and(|options| options != cleared(options));
                    is_error && is_cleared && is_quoted_but_for_options(case, kernel, ours)
                }
                _ => false,
            }
        },
    },
    Row {
        reason: "Linux copies a bit of ECN into errors; they are not ECN-capable (RFC 3168 §5)",
        explains: |case, difference| {
            matches!(case.ours_did(), Did::Said(3 | 11 | 12, _))
                && matches!(field(difference), Some(("type of service", &[kernel], &[ours]))
                    if kernel == ours | 0x02)
        },
    },
    Row {
        reason: "Linux leaves out its link-layer address when a solicitation came unicast: RFC 4861 §7.2.4 \
                 allows both",
        explains: |case, difference| {
            case.ours_did() == Did::Said(136, 0)
                && case.shot.frame[14 + 24] != 0xff
                && match field(difference) {
                    Some(("payload length", &[0, 24], &[0, 32])) => true,
                    Some(("ICMP word", &[0xc0, ..], &[0xe0, ..])) => true,
                    Some(("payload", kernel, ours)) => ours.starts_with(kernel),
                    _ => false,
                }
        },
    },
    Row {
        reason: "Linux speaks TCP and answers by RST, or not at all; to manylane no port is open \
                 (RFC 1812 §5.2.7.1)",
        explains: |case, difference| {
            is_to_router(case, TCP)
                && matches!(did(difference), Some((Did::Nothing | Did::Answered, ours))
                    if is_port_unreachable(ours))
        },
    },
    Row {
        reason: "Linux answers ARP for its addresses on other links, too; manylane only on their own",
        explains: |case, difference| {
            let frame = &case.shot.frame;
            let others = case.shot.side.other().router_v4().octets();
            frame[12..14] == [8, 6]
                && frame.get(38..42) == Some(&others)
                && did(difference) == Some((Did::Answered, Did::Nothing))
        },
    },
    Row {
        reason: "Linux answers what came by a link-layer broadcast; RFC 1812 §4.3.2.7 forbids it, and \
                 §5.3.4 to pass it on",
        explains: |case, difference| {
            case.shot.frame[0] & 1 != 0
                && case.ip().is_some()
                && !is_multicast(case)
                && ours_is(difference, Did::Nothing)
        },
    },
    Row {
        reason: "Linux answers timestamp requests: RFC 1812 §4.3.3.8 leaves that open",
        explains: |_, difference| did(difference) == Some((Did::Said(14, 0), Did::Nothing)),
    },
    Row {
        reason: "Linux processes hop-by-hop options; by RFC 8200 §4 only who is configured to does",
        explains: |case, difference| {
            // To the router an option with a jumbogram's length is unknown; Linux knows it, out of place.
            let is_jumbogram = case.shot.frame.get(56) == Some(&0xc2);
            let pair = did(difference);
            v6(case).is_some_and(|header| header.next == 0)
                && match is_transit(case) {
                    true => matches!(pair, Some((Did::Nothing | Did::Said(4, _), _))),
                    false => is_jumbogram && pair == Some((Did::Said(4, 0), Did::Said(4, 2))),
                }
        },
    },
    Row {
        reason: "Linux tells the sender about what it cannot follow to its transport; it may be an error \
                 (RFC 4443 §2.4 e)",
        explains: |case, difference| {
            v6(case).is_some()
                && may_be_error(&case.shot.frame[14..])
                && matches!(did(difference), Some((Did::Said(1..=4, _), Did::Nothing)))
        },
    },
    Row {
        reason: "Linux drops what comes from its own IPv4 addresses; manylane does not look up the source of what it \
                 forwards (RFC 1812 §5.3.8)",
        explains: |case, difference| {
            v4(case).is_some_and(|header| plan::is_routers(header.source.into()))
                && is_transit(case)
                && did(difference) == Some((Did::Nothing, Did::Passed))
        },
    },
    Row {
        reason: "Linux forwards from and to link-local addresses, and from ::, if only back to their link; RFC \
                 4291 §2.5.2 and §2.5.6 do not",
        explains: |case, difference| {
            v6(case).is_some_and(|header| {
                let ends = [header.source, header.destination];
                let is_local = ends.into_iter().any(|end| end.is_unicast_link_local());
                let is_silent = wanted::wanted(case.shot).is_empty();
                let ours = if is_silent { Did::Nothing } else { Did::Said(1, 2) };
                (is_local || header.source.is_unspecified())
                    && did(difference) == Some((Did::Passed, ours))
            })
        },
    },
    Row {
        reason: "Linux tells senders to :: that there is no route; RFC 4291 §2.5.2 has no such packets",
        explains: |case, difference| {
            v6(case).is_some_and(|header| header.destination.is_unspecified())
                && did(difference) == Some((Did::Said(1, 0), Did::Nothing))
        },
    },
    Row {
        reason: "Linux answers pings to all nodes; a router spares the link the burst (RFC 4443 §4.2)",
        explains: |case, difference| {
            is_multicast(case) && did(difference) == Some((Did::Said(129, 0), Did::Nothing))
        },
    },
    Row {
        reason: "Linux answers pings without their flow label; RFC 4443 §4.2 has no rule",
        explains: |case, difference| {
            case.ours_did() == Did::Said(129, 0)
                && matches!(field(difference), Some(("version, class and label", kernel, ours))
                    if kernel[..2] == [ours[0], ours[1] & 0xf0] && kernel[2..] == [0, 0])
        },
    },
    Row {
        reason: "Linux keeps silent about router discovery and extended echo (RFC 8335) as about errors; RFC \
                 1812 §4.3.2.7 is about errors",
        explains: |case, difference| {
            v4(case).is_some_and(|header| {
                header.protocol == ICMP
                    && matches!(case.shot.frame.get(14 + header.len), Some(9 | 10 | 42 | 43))
            }) && matches!(did(difference), Some((Did::Nothing, Did::Said(3 | 11 | 12, _))))
        },
    },
    Row {
        reason: "Linux answers pings of any code; RFC 792 and RFC 4443 §4.1 have code 0",
        explains: |_, difference| {
            matches!(did(difference), Some((Did::Said(0 | 129, 1..), Did::Nothing)))
        },
    },
    Row {
        reason: "Linux keeps the length of the header in later fragments and writes no-operations; manylane \
                 leaves out what is not to be copied (RFC 791 §3.1)",
        explains: |case, difference| {
            let Some(options) = options(case).filter(|options| !options.is_empty()) else {
                return false;
            };
            let is_cut = case.ours.iter().any(|frames| frames.len() > 1);
            let len = |bytes: &[u8]| usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
            case.ours_did() == Did::Passed
                && is_cut
                && match field(difference) {
                    Some(("version and header length", &[kernel], &[ours])) => {
                        usize::from(kernel & 0x0f) * 4 == 20 + options.len() && kernel > ours
                    }
                    Some(("total length", kernel, ours)) => {
                        len(kernel) - len(ours) <= options.len()
                    }
                    Some(("options", kernel, _)) if is_later(case) => are_of_packet(case, kernel),
                    Some(("options", kernel, _)) => kernel == blanked(options),
                    _ => false,
                }
        },
    },
    Row {
        reason: "Linux cuts fragments whose end is beyond 65,535, and offsets begin anew; manylane drops them",
        explains: |case, difference| {
            v4(case).is_some_and(|header| {
                let payload = case.shot.frame.len() - 14 - header.len;
                8 * usize::from(header.offset) + payload > 65_535
            }) && did(difference) == Some((Did::Passed, Did::Nothing))
        },
    },
    Row {
        reason: "Linux complains of what else is wrong beside a source route; manylane drops that in silence \
                 (RFC 7126 §4.3)",
        explains: |case, difference| {
            has_options(case, &[131, 137])
                && did(difference) == Some((Did::Said(12, 0), Did::Nothing))
        },
    },
    Row {
        reason: "Linux gives errors the options of their packets, and quotes them as they were changed",
        explains: |case, difference| {
            has_options(case, &[7, 68])
                && matches!(case.ours_did(), Did::Said(3 | 11 | 12, _))
                && match field(difference) {
                    Some(("version and header length", &[kernel], &[0x45])) => kernel > 0x45,
                    Some(("total length", kernel, ours)) => kernel > ours,
                    Some(("options", kernel, &[])) => are_of_packet(case, kernel),
                    Some(("payload", kernel, ours)) => {
                        is_quoted_but_for_options(case, kernel, ours)
                    }
                    _ => false,
                }
        },
    },
    Row {
        reason: "Linux answers pings with the options that it understands, manylane with all that came \
                 (RFC 1122 §3.2.2.6)",
        explains: |case, difference| {
            v4(case).is_some_and(|header| header.len > 20)
                && case.ours_did() == Did::Said(0, 0)
                && match field(difference) {
                    Some(("version and header length" | "total length", kernel, ours)) => {
                        kernel < ours
                    }
                    Some(("options", kernel, ours)) => {
                        kernel.len() <= ours.len() && are_of_packet(case, kernel)
                    }
                    _ => false,
                }
        },
    },
    Row {
        reason: "Linux gives IPv6 errors the address of the link that the packet came by; RFC 6724 §5 \
                 rule 5 prefers that of the link they leave by",
        explains: |case, difference| {
            v6(case).is_some_and(|header| !plan::is_routers(header.destination.into()))
                && matches!(case.ours_did(), Did::Said(1..=4, _))
                && kernel_speaks_from(difference, case.shot.side.router_v6())
        },
    },
    Row {
        reason: "Linux speaks of packets to an anycast address from that; RFC 4443 §2.2 b does not",
        explains: |case, difference| {
            v6(case).is_some_and(|header| {
                plan::is_anycast(header.destination.into())
                    && kernel_speaks_from(difference, header.destination)
            }) && matches!(case.ours_did(), Did::Said(1..=4, _))
        },
    },
    Row {
        reason: "Linux answers pings to an anycast address only by the link that they came by",
        explains: |case, difference| {
            v6(case).is_some_and(|header| plan::is_anycast(header.destination.into()))
                && did(difference) == Some((Did::Nothing, Did::Said(129, 0)))
        },
    },
    Row {
        reason: "Linux advertises an anycast address from a link-local one when the asker has none: RFC 4861 \
                 §7.2.4 leaves that open",
        explains: |case, difference| {
            v6(case).is_some_and(|header| header.source.is_unspecified())
                && case.ours_did() == Did::Said(136, 0)
                && kernel_speaks_from(difference, case.shot.side.router_link_local())
        },
    },
    Row {
        reason: "Linux has a clock with the time of day, refuses a second option of a kind that it writes, \
                 and points elsewhere at what is wrong in one (RFC 791 §3.1)",
        explains: |case, difference| {
            has_options(case, &[7, 68])
                && match (field(difference), did(difference)) {
                    (Some(("options", kernel, ours)), _) => is_but_for_times(case, kernel, ours),
                    (Some(("ICMP word", ..)), _) => case.ours_did() == Did::Said(12, 0),
                    (_, Some((Did::Nothing | Did::Said(12, _), ours))) => {
                        has_options(case, &[68]) || has_twice(case, 7) || ours == Did::Said(12, 0)
                    }
                    _ => false,
                }
        },
    },
    Row {
        reason: "Linux speaks IGMP and UDP-Lite, and drops what is malformed of them in silence",
        explains: |case, difference| {
            (is_to_router(case, 2) || is_to_router(case, 136))
                && matches!(
                    did(difference),
                    Some((Did::Nothing, Did::Said(3, 2) | Did::Said(4, 1)))
                )
        },
    },
    Row {
        reason: "Linux answers the broadcast address of a network; RFC 1812 §4.3.2.7 forbids errors to it, and \
                 RFC 1122 §3.2.1.3 to take its packets",
        explains: |case, difference| {
            v4(case).is_some_and(|header| is_broadcast(header.source))
                && ours_is(difference, Did::Nothing)
        },
    },
    Row {
        reason: "Linux knows segment routing and drops it in silence when it is switched off (RFC 8754); to \
                 manylane its type of routing header is none",
        explains: |case, difference| {
            v6(case).is_some()
                && has_segments(&case.shot.frame[14..])
                && !is_transit(case)
                && matches!(did(difference), Some((Did::Nothing, _)))
        },
    },
    Row {
        reason: "Linux objects to a second fragment header; to manylane it is a fragment as others, which \
                 nobody puts together",
        explains: |case, difference| {
            v6(case).is_some_and(|header| header.next == 44 && case.shot.frame.get(54) == Some(&44))
                && (did(difference) == Some((Did::Said(4, 0), Did::Nothing))
                    || matches!(field(difference), Some(("ICMP word", ..))))
        },
    },
    Row {
        reason: "Linux takes more than seven bytes of padding in a row for an attack; RFC 8200 §4.2 does not",
        explains: |case, difference| {
            let padding = [1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            v6(case).is_some()
                && case.shot.frame[54..].windows(14).any(|bytes| bytes == padding)
                && matches!(did(difference), Some((Did::Nothing, _)))
        },
    },
    Row {
        reason: "Linux looks for ICMP errors behind hop-by-hop options in the wrong place; by RFC 8200 §4 the \
                 headers end there, and the sender is told",
        explains: |case, difference| {
            v6(case).is_some()
                && transport(&case.shot.frame[14..]).is_none()
                && matches!(did(difference), Some((Did::Nothing, Did::Said(1..=4, _))))
        },
    },
    Row {
        reason: "Linux quotes datagrams without what stands behind them; RFC 1812 §4.3.2.3 has as much of the \
                 packet as fits",
        explains: |case, difference| {
            is_to_router(case, UDP)
                && is_port_unreachable(case.ours_did())
                && match field(difference) {
                    Some(("total length" | "payload length", kernel, ours)) => kernel < ours,
                    Some(("payload", kernel, ours)) => ours.starts_with(kernel),
                    _ => false,
                }
        },
    },
];
