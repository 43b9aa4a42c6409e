//! A packet that stands for several segments: the length of the headers that each segment has.

use super::check;
use crate::forward::HEADERS_MAX;
use crate::transit::Verdict;
use crate::wire::ethernet::HEADER_LEN as LINK_HEADER;
use crate::wire::ip::{Fragment, View};
use crate::wire::{ipv6, protocol, tcp};

/// The length of the headers that each segment has of a TCP packet that stands for several.
pub(super) fn headers_of_segments(packet: &View<'_>) -> Result<usize, Verdict> {
    let (protocol, at) = match packet {
        View::V4(view) if view.fragment() == Fragment::None => (view.protocol(), view.header_len()),
        View::V4(_) => return Err(Verdict::Segments),
        View::V6(view) => behind_extensions(view)?,
    };
    check(protocol == protocol::TCP, Verdict::Segments)?;
    let segment = packet.packet().get(at..).and_then(tcp::View::checked);
    let segment = segment.ok_or(Verdict::Segments)?;
    let len = packet.packet_len() - segment.payload().len();
    // Behind more extensions than any sender uses, `forward` would not look for them either.
    check(LINK_HEADER + len <= HEADERS_MAX, Verdict::Extension)?;
    Ok(len)
}

/// The protocol behind a chain of extension headers, and where it begins.
fn behind_extensions(view: &ipv6::View<'_>) -> Result<(u8, usize), Verdict> {
    let (mut protocol, mut at) = (view.next_header(), ipv6::HEADER_LEN);
    for _ in 0..EXTENSION_HEADERS_MAX {
        if !ipv6::is_extension(protocol) {
            break;
        }
        // A fragment is no packet of segments; hop-by-hop options elsewhere than in front are none.
        let is_walked = !matches!(protocol, protocol::FRAGMENT | protocol::HOP_BY_HOP);
        check(is_walked, Verdict::Extension)?;
        let header = view.packet().get(at..).and_then(|header| header.first_chunk());
        let &[next, len] = header.ok_or(Verdict::Extension)?;
        at += match protocol {
            protocol::AUTHENTICATION => (usize::from(len) + 2) * 4, // RFC 4302 §2.2.
            _ => (usize::from(len) + 1) * 8,
        };
        check(at <= view.packet().len(), Verdict::Extension)?;
        protocol = next;
    }
    check(!ipv6::is_extension(protocol), Verdict::Extension)?;
    Ok((protocol, at))
}

/// Extension headers in front of TCP that are walked.
const EXTENSION_HEADERS_MAX: usize = 6;
