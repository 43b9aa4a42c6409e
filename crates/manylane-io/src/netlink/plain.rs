//! Requests in raw bytes, and an iterator over the attributes of replies: for subsystems whose replies
//! we read few attributes of.

use netlink_bindings::traits::{NetlinkRequest, Protocol};

use super::socket::{Refusal, Socket};

/// A list or get request, of a message type of the socket's own protocol.
pub(super) struct Plain {
    kind: u16,
    flags: u16,
    payload: Vec<u8>,
}

impl Plain {
    /// Requests all objects.
    pub(super) fn list(kind: u16, payload: &[u8]) -> Plain {
        Plain { kind, flags: libc::NLM_F_DUMP as u16, payload: payload.into() }
    }

    /// Requests one object.
    pub(super) fn one(kind: u16, payload: &[u8]) -> Plain {
        Plain { kind, flags: 0, payload: payload.into() }
    }

    /// Sends the request, and collects what `pick` extracts from each reply.
    pub(super) fn collect<T>(
        &self,
        socket: &mut Socket,
        mut pick: impl FnMut(&[u8]) -> Option<T>,
    ) -> Result<Vec<T>, Refusal> {
        socket.dump(self, |payload: &[u8]| pick(payload))
    }
}

impl NetlinkRequest for Plain {
    fn protocol(&self) -> Protocol {
        // The socket knows its protocol; it uses the type only.
        Protocol::Raw { protonum: 0, request_type: self.kind }
    }

    fn flags(&self) -> u16 {
        self.flags
    }

    fn payload(&self) -> &[u8] {
        &self.payload
    }

    type ReplyType<'b> = &'b [u8];

    fn decode_reply(bytes: &[u8]) -> &[u8] {
        bytes
    }
}

/// The attributes in `bytes` (netlink(7), `struct nlattr`), type and payload; a malformed one ends the iteration.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
        let kind = u16::from_ne_bytes(*bytes.get(2..)?.first_chunk()?);
        let payload = bytes.get(ATTRIBUTE_HEADER_BYTES..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & NLA_TYPE_MASK, payload))
    })
}

/// The payload of the first attribute of this type.
pub(super) fn attribute(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find(|&(kind, _)| kind == wanted).map(|(_, payload)| payload)
}

/// A text that may end in a zero byte.
pub(super) fn text(payload: &[u8]) -> String {
    let end = payload.iter().position(|&byte| byte == 0).unwrap_or(payload.len());
    String::from_utf8_lossy(&payload[..end]).into_owned()
}

/// A number in network byte order, which nfnetlink uses too.
pub(super) fn big_u32(payload: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*payload.first_chunk()?))
}

/// As [`big_u32`], of 64 bits.
pub(super) fn big_u64(payload: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*payload.first_chunk()?))
}

/// A number in this machine's byte order, at an offset in a structure.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

const ATTRIBUTE_HEADER_BYTES: usize = 4;
/// Without `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER` (linux/netlink.h).
const NLA_TYPE_MASK: u16 = 0x3fff;

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An attribute as the kernel encodes it.
    pub(in crate::netlink) fn put(kind: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = (4 + payload.len() as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(payload);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn attributes_are_walked_and_flags_taken_off() {
        let bytes = [put(1 | 0x8000, b"abc\0x"), put(2, &7u32.to_be_bytes())].concat();
        let found: Vec<_> = attributes(&bytes).collect();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].0, text(found[0].1)), (1, "abc".to_owned()));
        assert_eq!(attribute(&bytes, 2).and_then(big_u32), Some(7));
        assert_eq!(attribute(&bytes, 3), None);
    }

    /// Wrong lengths: too long, shorter than the attribute's own header, no payload.
    #[test]
    fn a_malformed_attribute_ends_them() {
        for length in [0u16, 3, 9, u16::MAX] {
            let mut bytes = put(1, &[0; 4]);
            bytes[..2].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(attributes(&bytes).count(), 0, "{length}");
        }
        assert_eq!(attributes(&[]).count(), 0);
        assert_eq!(attributes(&[8]).count(), 0);
        assert_eq!(attributes(&[4, 0, 1, 0]).count(), 1, "an empty one is whole");
    }
}
