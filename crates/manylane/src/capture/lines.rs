//! [`Lines`]: packets on the terminal, a line each.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::decode;
use super::local_time::LocalTime;
use super::source::Captured;

/// How a line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Style {
    /// With the Ethernet header (`-e`).
    pub(super) link: bool,
    /// With more (`-v`).
    pub(super) verbose: bool,
    /// With less (`-q`).
    pub(super) quiet: bool,
    /// With bytes below.
    pub(super) hex: Option<Hex>,
}

/// How bytes are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hex {
    /// From the Ethernet header on, rather than from what follows it (`-xx`, `-XX`).
    pub(super) link: bool,
    /// With characters beside (`-X`).
    pub(super) ascii: bool,
}

/// Packets on their way to a terminal, or to a program that reads lines.
pub(super) struct Lines {
    out: Box<dyn Write>,
    text: String,
    time: LocalTime,
    style: Style,
}

impl Lines {
    pub(super) fn new(out: Box<dyn Write>, time: LocalTime, style: Style) -> Lines {
        Lines { out, text: String::with_capacity(2 * WRITE), time, style }
    }

    pub(super) fn packet(&mut self, packet: &Captured<'_>) -> io::Result<()> {
        self.time.write(packet.time_ns, &mut self.text);
        line(&mut self.text, packet, self.style);
        if self.text.len() < WRITE { Ok(()) } else { self.flush() }
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(self.text.as_bytes())?;
        self.text.clear();
        self.out.flush()
    }
}

/// What stands behind the time.
fn line(text: &mut String, packet: &Captured<'_>, style: Style) {
    let Captured { port_name, point, worker, .. } = packet;
    // Writing to a string does not fail.
    let _ = write!(text, " {port_name} {point}");
    if let Some(reason) = packet.reason {
        let _ = write!(text, "({reason})");
    }
    let _ = write!(text, " w{worker} ");
    decode::frame(text, packet.bytes, packet.len, style);
    text.push('\n');
    if style.verbose
        && let Some(explanation) = packet.explanation
    {
        let _ = writeln!(text, "    {point}: {explanation}");
    }
    if let Some(hex) = style.hex {
        let skipped = if hex.link { 0 } else { decode::link_len(packet.bytes) };
        decode::hex(text, &packet.bytes[skipped..], hex.ascii);
    }
}

/// The least bytes of a call of write(2) while packets keep coming.
const WRITE: usize = 64 << 10;
