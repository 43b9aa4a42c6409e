//! What is expected of a packet that left: unchanged but for what a router changes, in pieces that make it up.

use std::net::IpAddr;

use manylane_frame::vocabulary::Checksum;
use manylane_net::wire::{ethernet, ip, ipv4, ipv6, protocol, tcp, udp};

/// What is said of the fragments of a packet. The checksum in it may have been completed before.
pub(super) fn follow_each_other(whole: &[u8], pieces: &[Vec<u8>]) {
    let whole = ipv4::View::checked(whole).expect("it was judged");
    let mut payload_len = 0;
    let mut differ = 0;
    for (number, piece) in pieces.iter().enumerate() {
        let view = ipv4::View::checked(&piece[ethernet::HEADER_LEN..]).expect("a packet");
        assert_eq!(view.fragment_offset(), whole.fragment_offset() + payload_len);
        assert_eq!(view.more_fragments(), number + 1 < pieces.len() || whole.more_fragments());
        assert_eq!(view.identification(), whole.identification());
        let was = &whole.payload()[payload_len..][..view.payload().len()];
        differ += was.iter().zip(view.payload()).filter(|(was, is)| was != is).count();
        payload_len += view.payload().len();
    }
    assert_eq!(payload_len, whole.payload().len());
    assert!(differ <= 2, "{differ} bytes differ: more than a checksum");
}

/// What is said of the segments of a packet: they have its payload, in order. And where they were cut,
/// checksums of their own, partial or not.
pub(super) fn make_up(whole: &[u8], pieces: &[Vec<u8>], cut_partial: Option<bool>) {
    let mut together = Vec::new();
    for piece in pieces {
        let (view, at, header_len) = parsed(piece);
        let transport = &view.packet()[at.offset..];
        together.extend_from_slice(&transport[header_len..]);
        let Some(is_partial) = cut_partial.filter(|_| at.final_addresses) else { continue };
        let pseudo = view.pseudo_header(at.protocol, transport.len()).expect("a packet's length");
        let offset = match at.protocol {
            protocol::TCP => tcp::CHECKSUM_OFFSET,
            _ => udp::CHECKSUM_OFFSET,
        };
        match is_partial {
            true => assert_eq!(transport[offset..][..2], pseudo.fold().to_be_bytes()),
            false => assert!(pseudo.plus(transport).is_valid()),
        }
    }
    let (view, at, header_len) = parsed(whole);
    assert_eq!(together, view.packet()[at.offset + header_len..]);
}

/// The packet in a frame, where its TCP or UDP is, and how long the header of that is.
fn parsed(frame: &[u8]) -> (ip::View<'_>, ip::Transport, usize) {
    let view = ip::View::checked(&frame[ethernet::HEADER_LEN..]).expect("a packet");
    let at = view.transport().expect("it was cut there");
    let header_len = match at.protocol {
        protocol::TCP => usize::from(view.packet()[at.offset + 12] >> 4) * 4,
        _ => udp::HEADER_LEN,
    };
    (view, at, header_len)
}

/// The packet as a router passes it on: one hop older.
pub(super) fn aged(was: ip::View<'_>, checksum: Checksum) -> Vec<u8> {
    let mut packet = bare(was, checksum);
    match was {
        ip::View::V4(_) => packet[8] -= 1,
        ip::View::V6(_) => packet[7] -= 1,
    }
    packet
}

/// The packet without what is allowed to change besides its age: the header checksum, and of
/// checksums that are not known to be complete, everything behind the header.
pub(super) fn bare(packet: ip::View<'_>, checksum: Checksum) -> Vec<u8> {
    let mut bytes = packet.packet().to_vec();
    let header_len = match packet {
        ip::View::V4(view) => {
            bytes[10..12].fill(0);
            blank_traces(&mut bytes[ipv4::HEADER_LEN..view.header_len()]);
            view.header_len()
        }
        ip::View::V6(_) => ipv6::HEADER_LEN,
    };
    if checksum == Checksum::Unknown {
        bytes.truncate(header_len);
    }
    bytes
}

/// Blanks the options that routers write in: record route, and timestamp.
fn blank_traces(mut options: &mut [u8]) {
    while let [kind, rest @ ..] = options {
        let len = match (*kind, rest.first()) {
            (0, _) => return,
            (1, _) => 0,
            (_, Some(&len)) => usize::from(len).saturating_sub(1),
            (_, None) => return,
        };
        let Some((option, behind)) = rest.split_at_mut_checked(len) else { return };
        if let (7 | 68, Some(written)) = (*kind, option.get_mut(1..)) {
            written.fill(0);
        }
        options = behind;
    }
}

/// Source and destination.
pub(super) fn addresses(packet: ip::View<'_>) -> (IpAddr, IpAddr) {
    match packet {
        ip::View::V4(view) => (view.source().into(), view.destination().into()),
        ip::View::V6(view) => (view.source().into(), view.destination().into()),
    }
}
