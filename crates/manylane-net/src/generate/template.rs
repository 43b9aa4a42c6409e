//! A flow's packet, made once; each packet is a copy in which sequence, hash and checksum change.
//!
//! 64 bytes for IPv4 and 84 for IPv6: headers and stamp, and of the checksum the part that never
//! changes. With the frame's bytes that is all a packet touches.

use std::net::{IpAddr, SocketAddrV4, SocketAddrV6};

use super::stamp::{Ends, Key, STAMP_LEN, Stamp, VARIABLE_LEN, variable};
use super::stream::{Flow, Stream};
use super::{Link, TTL};
use crate::wire::checksum::Sum;
use crate::wire::ethernet::{self, ether_type};
use crate::wire::{ipv4, ipv6, protocol, udp};

const LEN_V4: usize = ethernet::HEADER_LEN + ipv4::HEADER_LEN + udp::HEADER_LEN + STAMP_LEN;
const LEN_V6: usize = ethernet::HEADER_LEN + ipv6::HEADER_LEN + udp::HEADER_LEN + STAMP_LEN;

/// The templates of a queue's flows.
pub(super) enum Templates {
    V4(Box<[Template<LEN_V4>]>),
    V6(Box<[Template<LEN_V6>]>),
}

/// Headers and stamp of a flow's packets.
pub(super) struct Template<const LEN: usize> {
    /// Sequence, hash and UDP checksum are zero.
    bytes: [u8; LEN],
    /// Over the pseudo-header and the UDP part of `bytes`.
    sum: Sum,
    key: Key,
}

impl Templates {
    /// Those of the flows with these numbers.
    pub(super) fn new(
        stream: &Stream,
        link: Link,
        numbers: impl Iterator<Item = u32>,
    ) -> Templates {
        // For writers of headers, which want to see the whole packet.
        let mut frame = vec![0; stream.frame_len().into()];
        let flows = numbers.map(|number| stream.flow(number));
        if stream.source.is_ipv4() {
            Templates::V4(
                flows.map(|flow| Template::new(stream, link, &flow, &mut frame)).collect(),
            )
        } else {
            Templates::V6(
                flows.map(|flow| Template::new(stream, link, &flow, &mut frame)).collect(),
            )
        }
    }

    /// How many flows.
    pub(super) fn len(&self) -> usize {
        match self {
            Templates::V4(templates) => templates.len(),
            Templates::V6(templates) => templates.len(),
        }
    }
}

impl<const LEN: usize> Template<LEN> {
    const UDP_AT: usize = LEN - STAMP_LEN - udp::HEADER_LEN;
    const CHECKSUM_AT: usize = Self::UDP_AT + udp::CHECKSUM_OFFSET;

    fn new(stream: &Stream, link: Link, flow: &Flow, frame: &mut [u8]) -> Template<LEN> {
        frame.fill(0);
        let stamp = Stamp::constant(stream.id, flow.number);
        frame[LEN - STAMP_LEN..LEN].copy_from_slice(&stamp);
        let (ends, pseudo) = headers(frame, link, flow, Self::UDP_AT)
            .expect("the stream was checked: its frames hold headers and stamp, below 64 KiB");
        let mut bytes = *frame.first_chunk().expect("a frame has at least headers and stamp");
        bytes[Self::CHECKSUM_AT..][..2].fill(0);
        let sum = pseudo.plus(&bytes[Self::UDP_AT..]);
        Template { bytes, sum, key: Key::new(stream.id, flow.number, &ends) }
    }

    /// Writes the flow's packet with this sequence number, as long as `frame` is.
    #[inline(always)]
    pub(super) fn write(&self, sequence: u64, frame: &mut [u8]) {
        let (head, rest) =
            frame.split_first_chunk_mut::<LEN>().expect("a frame has at least headers and stamp");
        let hash = self.key.hash(sequence);
        let variable = variable(sequence, hash);
        let mut sum = self.sum.plus(&variable);
        *head = self.bytes;
        head[LEN - VARIABLE_LEN..].copy_from_slice(&variable);
        if !rest.is_empty() {
            hash.fill(rest);
            sum = sum.plus(rest);
        }
        let checksum = udp::or_all_ones(sum.finish());
        head[Self::CHECKSUM_AT..Self::CHECKSUM_AT + 2].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Writes all headers of a packet as long as `frame`; `None` if they do not fit.
fn headers(frame: &mut [u8], link: Link, flow: &Flow, udp_at: usize) -> Option<(Ends, Sum)> {
    let datagram_len = frame.len().checked_sub(udp_at)?;
    let len = u16::try_from(datagram_len).ok()?;
    let (headers, datagram) = frame.split_at_mut(udp_at);
    let [source_port, destination_port] = flow.ports;
    let ends = |source, destination| Ends {
        source,
        destination,
        ports: flow.ports,
        payload_len: len - udp::HEADER_LEN as u16, // The stamp is in there, so it is longer.
    };
    match (flow.source, flow.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            ethernet::emit(headers, link.router, link.hosts, ether_type::IPV4)?;
            // Atomic (RFC 6864 §4): no router may fragment it, so the identification says nothing.
            let header = ipv4::Header {
                tos: 0,
                identification: 0,
                dont_fragment: true,
                ttl: TTL,
                protocol: protocol::UDP,
                source,
                destination,
            };
            header.emit(headers.get_mut(ethernet::HEADER_LEN..)?, datagram_len)?;
            let from = SocketAddrV4::new(source, source_port);
            udp::emit_v4(datagram, from, SocketAddrV4::new(destination, destination_port))?;
            let pseudo = Sum::pseudo_v4(source, destination, protocol::UDP, len);
            Some((ends(source.to_bits().into(), destination.to_bits().into()), pseudo))
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            ethernet::emit(headers, link.router, link.hosts, ether_type::IPV6)?;
            let header = ipv6::Header {
                traffic_class: 0,
                flow_label: flow.number,
                next_header: protocol::UDP,
                hop_limit: TTL,
                source,
                destination,
            };
            header.emit(headers.get_mut(ethernet::HEADER_LEN..)?, datagram_len)?;
            let from = SocketAddrV6::new(source, source_port, 0, 0);
            udp::emit_v6(datagram, from, SocketAddrV6::new(destination, destination_port, 0, 0))?;
            let pseudo = Sum::pseudo_v6(source, destination, protocol::UDP, len.into());
            Some((ends(source.to_bits(), destination.to_bits()), pseudo))
        }
        _ => None,
    }
}
