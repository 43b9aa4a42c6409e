//! [`Section`]: one pcapng file (draft-ietf-opsawg-pcapng).
//!
//! Headers and statistics, a few for each file, are written by `pcap-file`. Packets are written here: `pcap-file`
//! allocates for each one's options, and a capture has to keep up with workers. A test reads them back with it.

use std::borrow::Cow;
use std::fs;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use manylane_frame::vocabulary::{Point, PortId};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption, InterfaceTsResolution,
};
use pcap_file::pcapng::blocks::interface_statistics::{
    InterfaceStatisticsBlock, InterfaceStatisticsOption,
};
use pcap_file::pcapng::blocks::opt_common::CommonOption;
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::{DataLink, Endianness};

/// A packet, as it was when it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured<'a> {
    /// When it was seen, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Its bytes on the wire.
    pub len: u32,
    /// Its bytes that were kept: all, or the first of them, from the Ethernet header on.
    pub bytes: &'a [u8],
    /// The port that received it or transmits it; of a drop, the port that received it.
    pub port: PortId,
    /// That port's name.
    pub port_name: &'a str,
    /// The queue of the port.
    pub queue: u16,
    /// The worker that saw it.
    pub worker: u16,
    /// Where it was seen.
    pub point: Point,
    /// The stable name of the reason, if it was dropped or left to the kernel.
    pub reason: Option<&'a str>,
    /// One sentence to that reason.
    pub explanation: Option<&'a str>,
}

/// A file being written. After an error it is of no more use.
pub struct Section {
    file: PcapNgWriter<Output>,
    /// Packets written, by interface.
    packets: Vec<u64>,
    begun: Duration,
}

/// What is said of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// As `manylane show ports` names it.
    pub name: String,
    /// Its driver, and the kernel's interface if it has one.
    pub description: String,
}

/// What is said of all interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Most bytes of a packet. Equal for all, or libpcap would not read the file.
    pub snap: u32,
    /// The filter, in libpcap's words.
    pub filter: Option<String>,
}

impl Section {
    /// Begins the file at the time `now_ns`. Everything before the packets is written before this returns: a
    /// full disk shows at once, and a reader of a pipe knows what it reads.
    pub fn begin(
        file: Box<dyn Write + Send>,
        interfaces: &[Interface],
        terms: &Terms,
        now_ns: u64,
    ) -> io::Result<Section> {
        let header = SectionHeaderBlock {
            endianness: Endianness::Little,
            options: vec![
                SectionHeaderOption::OS(operating_system().into()),
                SectionHeaderOption::UserApplication(
                    concat!("manylane ", env!("CARGO_PKG_VERSION")).into(),
                ),
            ],
            ..SectionHeaderBlock::default()
        };
        let output = Output { buffer: Vec::with_capacity(BUFFER), file, written: 0 };
        let file = PcapNgWriter::with_section_header(output, header).map_err(io::Error::other)?;
        let begun = Duration::from_nanos(now_ns);
        let mut section = Section { file, packets: Vec::new(), begun };
        for interface in interfaces {
            section.describe(interface, terms)?;
        }
        section.flush()?;
        Ok(section)
    }

    /// Adds an interface. Its number is the count of those before it.
    pub fn describe(&mut self, interface: &Interface, terms: &Terms) -> io::Result<()> {
        let mut block = InterfaceDescriptionBlock::new(DataLink::ETHERNET, terms.snap);
        block.options = vec![
            InterfaceDescriptionOption::IfName(short(&interface.name).into()),
            InterfaceDescriptionOption::IfDescription(short(&interface.description).into()),
            InterfaceDescriptionOption::IfTsResol(InterfaceTsResolution::NANO),
        ];
        if let Some(filter) = &terms.filter {
            // 0: it is text, as libpcap takes it (section 4.2).
            let text = [b"\0", short(filter).as_bytes()].concat();
            block.options.push(InterfaceDescriptionOption::IfFilter(text.into()));
        }
        self.file.write_pcapng_block(block).map_err(io::Error::other)?;
        self.packets.push(0);
        Ok(())
    }

    /// Writes a packet; `lost_before` packets were lost since the one before (section 4.3, `epb_dropcount`).
    pub fn packet(
        &mut self,
        interface: u32,
        packet: &Captured<'_>,
        lost_before: u64,
    ) -> io::Result<()> {
        self.packets[interface as usize] += 1;
        let output = self.file.get_mut();
        encode(&mut output.buffer, interface, packet, lost_before);
        if output.buffer.len() >= WRITE {
            output.hand_over()?;
        }
        Ok(())
    }

    /// Hands what was written to the kernel.
    pub fn flush(&mut self) -> io::Result<()> {
        self.file.get_mut().hand_over()
    }

    /// The bytes of the file so far.
    pub fn bytes(&self) -> u64 {
        let output = self.file.get_ref();
        output.written + output.buffer.len() as u64
    }

    /// Ends the file with what was counted while it was written. How many were `lost` is known for all
    /// interfaces together: it stands with the first.
    pub fn end(mut self, lost: u64, now_ns: u64) -> io::Result<()> {
        let now = Duration::from_nanos(now_ns);
        let several = self.packets.len() > 1;
        for (interface, packets) in (0..).zip(std::mem::take(&mut self.packets)) {
            let mut options = vec![
                InterfaceStatisticsOption::IsbStartTime(self.begun),
                InterfaceStatisticsOption::IsbEndTime(now),
                InterfaceStatisticsOption::IsbUsrDeliv(packets),
            ];
            if interface == 0 {
                options.push(InterfaceStatisticsOption::IsbOsDrop(lost));
                if several {
                    let comment = CommonOption::Comment(Cow::Borrowed(LOST_OF_ALL));
                    options.push(InterfaceStatisticsOption::Common(comment));
                }
            }
            let block =
                InterfaceStatisticsBlock { interface_id: interface, timestamp: now, options };
            self.file.write_pcapng_block(block).map_err(io::Error::other)?;
        }
        self.flush()
    }
}

/// A file in memory: what was written, until it is taken. Clones share it.
#[derive(Clone, Default)]
pub struct Memory(Arc<Mutex<Vec<u8>>>);

impl Memory {
    /// Takes out what was written since this was last called.
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What is written but not yet handed over, and the writer that receives it.
struct Output {
    buffer: Vec<u8>,
    file: Box<dyn Write + Send>,
    written: u64,
}

impl Output {
    fn hand_over(&mut self) -> io::Result<()> {
        self.file.write_all(&self.buffer)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        self.file.flush()
    }
}

/// For `pcap-file`, into the buffer: nothing fails here.
impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Appends an Enhanced Packet Block (section 4.3), little-endian as the section.
fn encode(buffer: &mut Vec<u8>, interface: u32, packet: &Captured<'_>, lost_before: u64) {
    let start = buffer.len();
    let captured = packet.bytes.len() as u32; // At most `SNAP_MAX`.
    let mut head = [0; 28];
    head[..4].copy_from_slice(&ENHANCED_PACKET.to_le_bytes());
    head[8..12].copy_from_slice(&interface.to_le_bytes());
    head[12..16].copy_from_slice(&((packet.time_ns >> 32) as u32).to_le_bytes());
    head[16..20].copy_from_slice(&(packet.time_ns as u32).to_le_bytes());
    head[20..24].copy_from_slice(&captured.to_le_bytes());
    head[24..].copy_from_slice(&packet.len.max(captured).to_le_bytes());
    buffer.extend_from_slice(&head);
    buffer.extend_from_slice(packet.bytes);
    pad(buffer, packet.bytes.len());
    let direction = match packet.point {
        Point::Receive => Some(INBOUND),
        Point::Transmit => Some(OUTBOUND),
        Point::Drop | Point::Kernel => None, // On no wire.
    };
    if let Some(direction) = direction {
        option(buffer, EPB_FLAGS, &direction.to_le_bytes());
    }
    if lost_before > 0 {
        option(buffer, EPB_DROPCOUNT, &lost_before.to_le_bytes());
    }
    option(buffer, EPB_QUEUE, &u32::from(packet.queue).to_le_bytes());
    if let Some(reason) = packet.reason {
        comment(buffer, packet.point, reason, packet.explanation);
    }
    option(buffer, END_OF_OPTIONS, &[]);
    let len = ((buffer.len() - start + 4) as u32).to_le_bytes();
    buffer[start + 4..start + 8].copy_from_slice(&len);
    buffer.extend_from_slice(&len);
}

/// `drop no_route: No route leads to the destination.`
fn comment(buffer: &mut Vec<u8>, point: Point, reason: &str, explanation: Option<&str>) {
    let start = buffer.len();
    buffer.extend_from_slice(&[0; 4]);
    buffer.extend_from_slice(point.name().as_bytes());
    buffer.push(b' ');
    buffer.extend_from_slice(short(reason).as_bytes());
    if let Some(explanation) = explanation {
        buffer.extend_from_slice(b": ");
        buffer.extend_from_slice(short(explanation).as_bytes());
    }
    let len = buffer.len() - start - 4;
    buffer[start..start + 2].copy_from_slice(&COMMENT.to_le_bytes());
    buffer[start + 2..start + 4].copy_from_slice(&(len as u16).to_le_bytes()); // Twice `TEXT_MAX`, and 9.
    pad(buffer, len);
}

fn option(buffer: &mut Vec<u8>, code: u16, value: &[u8]) {
    buffer.extend_from_slice(&code.to_le_bytes());
    buffer.extend_from_slice(&(value.len() as u16).to_le_bytes()); // At most 8.
    buffer.extend_from_slice(value);
}

/// To a whole number of 32 bits.
fn pad(buffer: &mut Vec<u8>, len: usize) {
    buffer.extend_from_slice(&[0; 3][..len.wrapping_neg() % 4]);
}

/// As much of `text` as an option surely takes.
fn short(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_MAX)]
}

fn operating_system() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("Linux {}", release.trim()).trim_end().to_owned()
}

/// Most bytes of a packet that are kept (`manylane_api::SNAP_MAX`).
const SNAP_MAX: usize = 262_144;
/// A call of write(2) has at least this many bytes while packets keep arriving.
const WRITE: usize = 256 << 10;
/// A call's bytes, and the packet that reached that number, with its options.
const BUFFER: usize = WRITE + SNAP_MAX + (64 << 10);
/// An option has at most 65,535 bytes.
const TEXT_MAX: usize = 30_000;

const ENHANCED_PACKET: u32 = 6;
const END_OF_OPTIONS: u16 = 0;
const COMMENT: u16 = 1;
const EPB_FLAGS: u16 = 2;
const EPB_DROPCOUNT: u16 = 4;
const EPB_QUEUE: u16 = 6;

/// `epb_flags` (section 4.3.1).
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// To the statistics of a file's first interface.
const LOST_OF_ALL: &str =
    "isb_osdrop counts what was lost on all interfaces: it found no place in the ring";
