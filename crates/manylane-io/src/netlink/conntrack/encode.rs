//! Requests, appended to a buffer of requests.

use std::net::IpAddr;

use super::super::socket::HEADER_BYTES;
use super::*;

/// A request of this type and these flags about the connection with `tuple`, and the attributes that `more` appends.
pub(super) fn request(
    bytes: &mut Vec<u8>,
    (message, flags, sequence): (u16, i32, u32),
    tuple: &Tuple,
    more: impl FnOnce(&mut Vec<u8>),
) {
    let start = bytes.len();
    bytes.extend(0u32.to_ne_bytes()); // The length, known below.
    bytes.extend(message_type(message).to_ne_bytes());
    bytes.extend(((libc::NLM_F_REQUEST | flags) as u16).to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(0u32.to_ne_bytes()); // Port 0: to the kernel.
    let family = if tuple.source.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    bytes.extend([family as u8, 0, 0, 0]); // `struct nfgenmsg`
    nest(bytes, CTA_TUPLE_ORIG, |bytes| put_tuple(bytes, tuple));
    more(bytes);
    let length = (bytes.len() - start) as u32;
    bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
}

/// `CTA_PROTOINFO`: liberal in both directions, and no highest acknowledgement known.
pub(super) fn put_liberal(bytes: &mut Vec<u8>) {
    // `struct nf_ct_tcp_flags`: flags, mask.
    let flags = [Tcp::BE_LIBERAL, Tcp::BE_LIBERAL | Tcp::MAXACK_SET];
    nest(bytes, CTA_PROTOINFO, |bytes| {
        nest(bytes, CTA_PROTOINFO_TCP, |bytes| {
            put(bytes, CTA_PROTOINFO_TCP_FLAGS_ORIGINAL, &flags);
            put(bytes, CTA_PROTOINFO_TCP_FLAGS_REPLY, &flags);
        });
    });
}

/// An attribute; the buffer stays aligned to 4 bytes.
pub(super) fn put(bytes: &mut Vec<u8>, kind: u16, payload: &[u8]) {
    bytes.extend((ATTRIBUTE_HEADER_BYTES + payload.len() as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(payload);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

fn put_tuple(bytes: &mut Vec<u8>, tuple: &Tuple) {
    nest(bytes, CTA_TUPLE_IP, |bytes| {
        for (address, v4, v6) in [
            (tuple.source, CTA_IP_V4_SRC, CTA_IP_V6_SRC),
            (tuple.destination, CTA_IP_V4_DST, CTA_IP_V6_DST),
        ] {
            match address {
                IpAddr::V4(address) => put(bytes, v4, &address.octets()),
                IpAddr::V6(address) => put(bytes, v6, &address.octets()),
            }
        }
    });
    nest(bytes, CTA_TUPLE_PROTO, |bytes| {
        put(bytes, CTA_PROTO_NUM, &[tuple.protocol]);
        put(bytes, CTA_PROTO_SRC_PORT, &tuple.source_port.to_be_bytes());
        put(bytes, CTA_PROTO_DST_PORT, &tuple.destination_port.to_be_bytes());
    });
}

/// An attribute of attributes.
fn nest(bytes: &mut Vec<u8>, kind: u16, body: impl FnOnce(&mut Vec<u8>)) {
    let start = bytes.len();
    bytes.extend(0u16.to_ne_bytes()); // The length, known below.
    bytes.extend((kind | libc::NLA_F_NESTED as u16).to_ne_bytes());
    body(bytes);
    let length = (bytes.len() - start) as u16;
    bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
}

/// More than a change with IPv6 addresses takes.
pub(super) const REQUEST_BYTES_MAX: usize = HEADER_BYTES + 160;

const ATTRIBUTE_HEADER_BYTES: u16 = 4;
