//! TCP (RFC 9293).

use std::fmt::{self, Write};

use etherparse::{TcpHeaderSlice, TcpOptionElement, TcpOptionReadError};

use super::super::lines::Style;
use super::ip::Carrier;

pub(super) fn tcp(text: &mut String, carrier: &Carrier<'_>, style: Style) -> fmt::Result {
    let Some(fixed) = carrier.bytes.first_chunk::<20>() else {
        return text.write_str("[|tcp]");
    };
    let header_len = usize::from(fixed[12] >> 4) * 4;
    if header_len < 20 {
        return write!(text, "tcp, [bad header length {header_len} < 20]");
    }
    if let Ok(header) = TcpHeaderSlice::from_slice(carrier.bytes) {
        return write_segment(text, &header, header_len, carrier, style);
    }
    // Its options are cut, but what stands before them is here: told as of a header without any.
    let mut fixed = *fixed;
    fixed[12] = 5 << 4 | fixed[12] & 0xf;
    let header = TcpHeaderSlice::from_slice(&fixed).expect("20 bytes are a header without options");
    write_segment(text, &header, header_len, carrier, style)?;
    text.write_str(" [|tcp]")
}

fn write_segment(
    text: &mut String,
    header: &TcpHeaderSlice<'_>,
    header_len: usize,
    carrier: &Carrier<'_>,
    style: Style,
) -> fmt::Result {
    let Some(len) = carrier.len.checked_sub(header_len) else {
        return write!(text, "tcp, [bad header length {header_len} > {}]", carrier.len);
    };
    if style.quiet {
        return write!(text, "tcp {len}");
    }
    text.push_str("Flags [");
    let before = text.len();
    let flags = [
        (header.fin(), 'F'),
        (header.syn(), 'S'),
        (header.rst(), 'R'),
        (header.psh(), 'P'),
        (header.ack(), '.'),
        (header.urg(), 'U'),
        (header.ece(), 'E'),
        (header.cwr(), 'W'),
    ];
    text.extend(flags.into_iter().filter_map(|(is_set, letter)| is_set.then_some(letter)));
    if text.len() == before {
        text.push_str("none");
    }
    text.push(']');
    let first = header.sequence_number();
    if style.verbose {
        write!(text, ", cksum 0x{:04x}", header.checksum())?;
    }
    if len > 0 {
        write!(text, ", seq {first}:{}", first.wrapping_add(len as u32))?;
    } else if header.syn() || header.fin() || header.rst() {
        write!(text, ", seq {first}")?;
    }
    if header.ack() {
        write!(text, ", ack {}", header.acknowledgment_number())?;
    }
    write!(text, ", win {}", header.window_size())?;
    if header.urg() {
        write!(text, ", urg {}", header.urgent_pointer())?;
    }
    if !header.options().is_empty() {
        options(text, header)?;
    }
    write!(text, ", length {len}")
}

fn options(text: &mut String, header: &TcpHeaderSlice<'_>) -> fmt::Result {
    text.push_str(", options [");
    for (place, option) in header.options_iterator().enumerate() {
        text.push_str(if place == 0 { "" } else { "," });
        match option {
            Ok(TcpOptionElement::Noop) => text.push_str("nop"),
            Ok(TcpOptionElement::MaximumSegmentSize(size)) => write!(text, "mss {size}")?,
            Ok(TcpOptionElement::WindowScale(scale)) => write!(text, "wscale {scale}")?,
            Ok(TcpOptionElement::SelectiveAcknowledgementPermitted) => text.push_str("sackOK"),
            Ok(TcpOptionElement::Timestamp(value, echo)) => {
                write!(text, "TS val {value} ecr {echo}")?
            }
            Ok(TcpOptionElement::SelectiveAcknowledgement(first, others)) => {
                let count = 1 + others.iter().flatten().count();
                write!(text, "sack {count} ")?;
                for (from, to) in [first].into_iter().chain(others.into_iter().flatten()) {
                    write!(text, "{{{from}:{to}}}")?;
                }
            }
            // The iterator ends here: where the next one begins is not known.
            Err(TcpOptionReadError::UnknownId(kind)) => write!(text, "unknown-{kind}")?,
            Err(
                TcpOptionReadError::UnexpectedEndOfSlice { option_id, .. }
                | TcpOptionReadError::UnexpectedSize { option_id, .. },
            ) => write!(text, "bad-{option_id}")?,
        }
    }
    text.write_char(']')
}
