//! A connection from the attributes of a message.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use super::super::plain::{attribute, attributes, big_u32, big_u64};
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
        counted: rest.counted,
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
    counted: Option<[Counted; 2]>,
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
            CTA_COUNTERS_ORIG => self.counted.get_or_insert_default()[0] = counted(payload),
            CTA_COUNTERS_REPLY => self.counted.get_or_insert_default()[1] = counted(payload),
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

fn counted(bytes: &[u8]) -> Counted {
    let number = |kind| attribute(bytes, kind).and_then(big_u64).unwrap_or(0);
    Counted { packets: number(CTA_COUNTERS_PACKETS), bytes: number(CTA_COUNTERS_BYTES) }
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

#[cfg(test)]
pub(super) mod tests {
    use super::super::super::plain::tests::put;
    use super::*;
    use proptest::prelude::*;

    /// The attribute of a tuple: 192.0.2.1 port 1 to 192.0.2.2 port 2.
    fn tuple_of(kind: u16, protocol: u8, more: &[u8]) -> Vec<u8> {
        let addresses = [put(CTA_IP_V4_SRC, &[192, 0, 2, 1]), put(CTA_IP_V4_DST, &[192, 0, 2, 2])];
        let ports = [
            put(CTA_PROTO_NUM, &[protocol]),
            put(CTA_PROTO_SRC_PORT, &1u16.to_be_bytes()),
            put(CTA_PROTO_DST_PORT, &2u16.to_be_bytes()),
        ];
        let parts = [
            put(CTA_TUPLE_IP | 0x8000, &addresses.concat()),
            put(CTA_TUPLE_PROTO | 0x8000, &ports.concat()),
            more.to_vec(),
        ];
        put(kind | 0x8000, &parts.concat())
    }

    /// A message with these attributes behind two tuples.
    pub(in super::super) fn message(more: &[Vec<u8>]) -> Vec<u8> {
        let tuples = [tuple_of(CTA_TUPLE_ORIG, 6, &[]), tuple_of(CTA_TUPLE_REPLY, 6, &[])].concat();
        [vec![2, 0, 0, 0], tuples, more.concat()].concat()
    }

    fn read(more: &[Vec<u8>]) -> Connection {
        connection(&message(more)).expect("it has both tuples")
    }

    #[test]
    fn what_is_missing_is_absent() {
        let read = read(&[]);
        let from: IpAddr = [192, 0, 2, 1].into();
        assert_eq!((read.original.source, read.original.source_port), (from, 1));
        assert_eq!((read.original.destination_port, read.original.protocol), (2, 6));
        assert_eq!((read.timeout, read.tcp, read.zone, read.mark), (None, None, 0, 0));
        assert!(!read.has_helper && !read.has_synproxy && !read.has_master);
        let only = [vec![2, 0, 0, 0], tuple_of(CTA_TUPLE_ORIG, 6, &[])].concat();
        assert_eq!(connection(&only), None, "no reply");
    }

    #[test]
    fn unknown_attributes_are_ignored() {
        let unknown = || put(0x3ff0, &[0xff; 7]);
        let tcp = [put(CTA_PROTOINFO_TCP_STATE, &[3]), unknown()].concat();
        let tcp = [unknown(), put(CTA_PROTOINFO_TCP | 0x8000, &tcp)].concat();
        let read = read(&[
            unknown(),
            put(CTA_STATUS, &14u32.to_be_bytes()),
            put(CTA_PROTOINFO | 0x8000, &tcp),
            put(CTA_TIMEOUT, &77u32.to_be_bytes()),
            unknown(),
        ]);
        assert!(read.status.contains(Status::ASSURED | Status::CONFIRMED));
        assert!(!read.status.intersects(Status::DYING | Status::OFFLOAD));
        assert_eq!(read.timeout, Some(Duration::from_secs(77)));
        assert_eq!(read.tcp, Some(Tcp { state: Tcp::ESTABLISHED, flags: [0; 2] }));
    }

    #[test]
    fn the_zone_of_one_direction_counts() {
        let zone = |kind| put(kind, &5u16.to_be_bytes());
        assert_eq!(read(&[zone(CTA_ZONE)]).zone, 5);
        let reply = tuple_of(CTA_TUPLE_REPLY, 6, &zone(CTA_TUPLE_ZONE));
        let parts = [vec![2, 0, 0, 0], tuple_of(CTA_TUPLE_ORIG, 6, &[]), reply];
        assert_eq!(connection(&parts.concat()).map(|read| read.zone), Some(5));
    }

    /// `ctnetlink_create_conntrack` gives every connection the extension.
    #[test]
    fn a_synproxy_without_numbers_is_none() {
        let synproxy = |number: u32| {
            let numbers: Vec<_> =
                (1..4).flat_map(|kind| put(kind, &number.to_be_bytes())).collect();
            read(&[put(CTA_SYNPROXY | 0x8000, &numbers)]).has_synproxy
        };
        assert!(!synproxy(0) && synproxy(1));
    }

    /// The description of a connection, in every part.
    fn full() -> Vec<u8> {
        let tcp = [
            put(CTA_PROTOINFO_TCP_STATE, &[3]),
            put(CTA_PROTOINFO_TCP_FLAGS_ORIGINAL, &[8, 0]),
            put(CTA_PROTOINFO_TCP_FLAGS_REPLY, &[8, 0]),
        ];
        message(&[
            put(CTA_PROTOINFO | 0x8000, &put(CTA_PROTOINFO_TCP | 0x8000, &tcp.concat())),
            put(CTA_ID, &[1; 4]),
            put(CTA_MARK, &[2; 4]),
            put(CTA_SYNPROXY, &put(1, &[1; 4])),
            put(CTA_HELP, &put(1, b"ftp\0")),
        ])
    }

    #[test]
    fn a_message_cut_anywhere_says_less() {
        let bytes = full();
        for length in 0..bytes.len() {
            let _ = connection(&bytes[..length]);
        }
    }

    proptest! {
        /// A wrong byte anywhere, in lengths too.
        #[test]
        fn a_damaged_message_never_panics(
            damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..9)
        ) {
            let mut bytes = full();
            for (place, byte) in damage {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            let _ = connection(&bytes);
        }
    }
}
