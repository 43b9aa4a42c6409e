//! A connection from the attributes of a message.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use super::super::plain::{attribute, attributes, big_u32};
use super::*;

/// The connection of a message, whose payload begins with a `struct nfgenmsg`. `None` without both tuples; what else is
/// missing is 0 or absent.
pub(super) fn connection(payload: &[u8]) -> Option<Connection> {
    let (mut original, mut reply) = (None, None);
    let mut rest = Rest::default();
    for (kind, payload) in attributes(payload.get(NFGENMSG_BYTES..)?) {
        match kind {
            CTA_TUPLE_ORIG => original = tuple(payload, &mut rest.zone),
            CTA_TUPLE_REPLY => reply = tuple(payload, &mut rest.zone),
            _ => rest.read(kind, payload),
        }
    }
    Some(Connection {
        original: original?,
        reply: reply?,
        id: rest.id,
        status: rest.status,
        timeout: rest.timeout,
        mark: rest.mark,
        zone: rest.zone,
        tcp: rest.tcp,
        has_helper: rest.has_helper,
        has_sequence_adjustment: rest.has_sequence_adjustment,
        has_synproxy: rest.has_synproxy,
        has_master: rest.has_master,
    })
}

/// What is not a tuple.
#[derive(Default)]
struct Rest {
    id: u32,
    status: Status,
    timeout: Option<Duration>,
    mark: u32,
    zone: u16,
    tcp: Option<Tcp>,
    has_helper: bool,
    has_sequence_adjustment: bool,
    has_synproxy: bool,
    has_master: bool,
}

impl Rest {
    fn read(&mut self, kind: u16, payload: &[u8]) {
        let number = || big_u32(payload).unwrap_or(0);
        match kind {
            CTA_ID => self.id = number(),
            CTA_STATUS => self.status = Status(number()),
            CTA_TIMEOUT => self.timeout = Some(Duration::from_secs(number().into())),
            CTA_MARK => self.mark = number(),
            CTA_ZONE => self.zone |= big_u16(payload).unwrap_or(0),
            CTA_PROTOINFO => self.tcp = attribute(payload, CTA_PROTOINFO_TCP).and_then(tcp),
            CTA_HELP => self.has_helper = true,
            CTA_SEQ_ADJ_ORIG | CTA_SEQ_ADJ_REPLY => self.has_sequence_adjustment = true,
            CTA_SYNPROXY => {
                let is_set = |(_, number): (u16, &[u8])| number.iter().any(|&byte| byte != 0);
                self.has_synproxy = attributes(payload).any(is_set);
            }
            CTA_TUPLE_MASTER => self.has_master = true,
            _ => {}
        }
    }
}

fn tuple(bytes: &[u8], zone: &mut u16) -> Option<Tuple> {
    let (mut source, mut destination) = (None, None);
    let (mut source_port, mut destination_port, mut protocol) = (0, 0, None);
    for (kind, payload) in attributes(bytes) {
        match kind {
            CTA_TUPLE_IP => {
                for (kind, payload) in attributes(payload) {
                    match kind {
                        CTA_IP_V4_SRC | CTA_IP_V6_SRC => source = address(payload),
                        CTA_IP_V4_DST | CTA_IP_V6_DST => destination = address(payload),
                        _ => {}
                    }
                }
            }
            CTA_TUPLE_PROTO => {
                for (kind, payload) in attributes(payload) {
                    match kind {
                        CTA_PROTO_NUM => protocol = payload.first().copied(),
                        CTA_PROTO_SRC_PORT => source_port = big_u16(payload).unwrap_or(0),
                        CTA_PROTO_DST_PORT => destination_port = big_u16(payload).unwrap_or(0),
                        _ => {}
                    }
                }
            }
            CTA_TUPLE_ZONE => *zone |= big_u16(payload).unwrap_or(0),
            _ => {}
        }
    }
    let (source, destination) = (source?, destination?);
    let protocol = protocol?;
    Some(Tuple { source, destination, source_port, destination_port, protocol })
}

fn tcp(bytes: &[u8]) -> Option<Tcp> {
    let flags = |kind| attribute(bytes, kind).and_then(|flags| flags.first().copied()).unwrap_or(0);
    Some(Tcp {
        state: *attribute(bytes, CTA_PROTOINFO_TCP_STATE)?.first()?,
        flags: [flags(CTA_PROTOINFO_TCP_FLAGS_ORIGINAL), flags(CTA_PROTOINFO_TCP_FLAGS_REPLY)],
    })
}

fn address(payload: &[u8]) -> Option<IpAddr> {
    match payload.len() {
        4 => Some(Ipv4Addr::from(*payload.first_chunk::<4>()?).into()),
        16 => Some(Ipv6Addr::from(*payload.first_chunk::<16>()?).into()),
        _ => None,
    }
}

fn big_u16(payload: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(*payload.first_chunk()?))
}
