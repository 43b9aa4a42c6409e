//! A capture file, read and checked as a whole.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pcap_file::DataLink;
use pcap_file::pcap::{PcapParseError, PcapParser, PcapTsResolution};
use pcap_file::pcapng::{Block, PcapNgParseError, PcapNgParser};

use super::super::PACKET_MAX;
use super::error::{Damage, ReadError};

/// The replayable packets of a file, in its order.
#[derive(Debug)]
pub struct Capture {
    path: PathBuf,
    bytes: Vec<u8>,
    packets: Vec<Packet>,
    skipped: Skipped,
}

/// Counts of a file's packets that cannot be replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// The capture has only their beginning.
    pub truncated: u64,
    /// Larger than any packet.
    pub too_large: u64,
    /// Captured on a link that is not Ethernet.
    pub not_ethernet: u64,
}

/// The location of a packet in the file.
#[derive(Clone, Copy, Debug)]
struct Packet {
    offset: usize,
    len: u32,
    /// Since the first packet was captured; never less than for the packet before it.
    since_ns: u64,
}

impl Capture {
    /// Reads the file at `path`, of up to `bytes_max` bytes.
    pub fn read(path: &Path, bytes_max: u64) -> Result<Capture, ReadError> {
        let refused = |source| ReadError::Open { path: path.into(), source };
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(refused)?;
        file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes).map_err(refused)?;
        if bytes.len() as u64 > bytes_max {
            return Err(ReadError::TooLarge { path: path.into(), bytes_max });
        }
        Capture::parse(path, bytes)
    }

    pub(super) fn parse(path: &Path, bytes: Vec<u8>) -> Result<Capture, ReadError> {
        let mut index = Index::default();
        let read = match bytes.first_chunk() {
            Some([0x0a, 0x0d, 0x0d, 0x0a]) => index.read_pcapng(&bytes),
            Some(
                [0xa1, 0xb2, 0xc3, 0xd4]
                | [0xd4, 0xc3, 0xb2, 0xa1]
                | [0xa1, 0xb2, 0x3c, 0x4d]
                | [0x4d, 0x3c, 0xb2, 0xa1],
            ) => index.read_pcap(&bytes),
            _ => {
                let first = bytes[..bytes.len().min(4)].to_vec();
                return Err(ReadError::Unknown { path: path.into(), first });
            }
        };
        let Index { packets, skipped, seen, .. } = index;
        let path = path.to_owned();
        match read {
            Ok(()) if packets.is_empty() => Err(ReadError::NothingToSend { path, skipped }),
            Ok(()) => Ok(Capture { path, bytes, packets, skipped }),
            Err(Stop::NotEthernet(link_type)) => Err(ReadError::NotEthernet { path, link_type }),
            Err(Stop::CutShort(offset)) => {
                Err(ReadError::CutShort { path, offset: offset as u64, packets: seen })
            }
            Err(Stop::Damaged(offset, source)) => {
                Err(ReadError::Damaged { path, offset: offset as u64, packets: seen, source })
            }
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The number of replayable packets; at least one.
    pub fn packets(&self) -> usize {
        self.packets.len()
    }

    /// The time from the first to the last replayable packet, in nanoseconds.
    pub fn duration_ns(&self) -> u64 {
        self.packets.last().map_or(0, |packet| packet.since_ns)
    }

    /// The packets that cannot be replayed.
    pub fn skipped(&self) -> Skipped {
        self.skipped
    }

    /// The bytes of a packet.
    #[inline]
    pub fn bytes(&self, packet: usize) -> &[u8] {
        let Packet { offset, len, .. } = self.packets[packet];
        &self.bytes[offset..offset + len as usize]
    }

    /// When a packet was captured, in nanoseconds since the first; never less than for the packet before it.
    #[inline]
    pub fn since_ns(&self, packet: usize) -> u64 {
        self.packets[packet].since_ns
    }
}

/// The packets found while reading a file.
#[derive(Default)]
struct Index {
    packets: Vec<Packet>,
    skipped: Skipped,
    /// Packets, skipped or not.
    seen: u64,
    /// When the first packet was captured.
    first: Option<Duration>,
}

/// Why reading ends early.
enum Stop {
    NotEthernet(u32),
    CutShort(usize),
    Damaged(usize, Damage),
}

impl Index {
    fn read_pcap(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let (mut rest, parser) = PcapParser::new(bytes).map_err(|error| stop_pcap(0, error))?;
        let header = parser.header();
        // The upper half has flags, and the length of a frame check sequence.
        let link_type = u32::from(header.datalink) & 0xffff;
        if link_type != u32::from(DataLink::ETHERNET) {
            return Err(Stop::NotEthernet(link_type));
        }
        let unit_ns = match header.ts_resolution {
            PcapTsResolution::MicroSecond => 1000,
            PcapTsResolution::NanoSecond => 1,
        };
        while !rest.is_empty() {
            let at = bytes.len() - rest.len();
            // Raw: a packet longer than the header's snapshot length, or a snapshot length of 0, does not invalidate a
            // file.
            let (next, packet) =
                parser.next_raw_packet(rest).map_err(|error| stop_pcap(at, error))?;
            let len = packet.data.len();
            if len > SNAP_MAX {
                return Err(Stop::Damaged(at, Damage::Length(len as u64)));
            }
            let time = Duration::from_secs(packet.ts_sec.into())
                + Duration::from_nanos(u64::from(packet.ts_frac) * unit_ns);
            self.add(bytes.len() - next.len() - len, len, packet.orig_len, Some(time));
            rest = next;
        }
        Ok(())
    }

    fn read_pcapng(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let (mut rest, mut parser) =
            PcapNgParser::new(bytes).map_err(|error| stop_pcapng(0, error))?;
        while !rest.is_empty() {
            let at = bytes.len() - rest.len();
            let (next, block) = parser.next_block(rest).map_err(|error| stop_pcapng(at, error))?;
            let (offset, interface, data, len, time) = match &block {
                Block::EnhancedPacket(packet) => {
                    let interface = packet.interface_id as usize;
                    let time = Some(packet.timestamp);
                    (ENHANCED_DATA, interface, &packet.data, packet.original_len, time)
                }
                Block::Packet(packet) => {
                    let interface = packet.interface_id.into();
                    let time = Some(packet.timestamp);
                    (ENHANCED_DATA, interface, &packet.data, packet.original_len, time)
                }
                Block::SimplePacket(packet) => {
                    (SIMPLE_DATA, 0, &packet.data, packet.original_len, None)
                }
                _ => {
                    rest = next;
                    continue;
                }
            };
            let interface = parser.interfaces().get(interface);
            match interface.is_some_and(|found| found.linktype == DataLink::ETHERNET) {
                true => self.add(at + offset, data.len(), len, time),
                false => {
                    self.seen += 1;
                    self.skipped.not_ethernet += 1;
                }
            }
            rest = next;
        }
        Ok(())
    }

    /// Adds a packet; the file has `captured` bytes of it. One without a time gets that of the packet before it.
    fn add(&mut self, offset: usize, captured: usize, len: u32, time: Option<Duration>) {
        self.seen += 1;
        if captured < len as usize {
            self.skipped.truncated += 1;
        } else if captured > PACKET_MAX as usize {
            self.skipped.too_large += 1;
        } else {
            let before = self.packets.last().map_or(0, |packet| packet.since_ns);
            let since_ns = time.map_or(before, |time| {
                let first = *self.first.get_or_insert(time);
                let since = time.saturating_sub(first).as_nanos();
                u64::try_from(since).unwrap_or(u64::MAX / 2).max(before)
            });
            self.packets.push(Packet { offset, len: captured as u32, since_ns });
        }
    }
}

fn stop_pcap(at: usize, error: PcapParseError) -> Stop {
    match error {
        PcapParseError::IncompleteBuffer(needed, _) if needed <= SNAP_MAX => Stop::CutShort(at),
        PcapParseError::IncompleteBuffer(needed, _) => {
            Stop::Damaged(at, Damage::Length(needed as u64))
        }
        error => Stop::Damaged(at, Damage::Format(Box::new(error))),
    }
}

fn stop_pcapng(at: usize, error: PcapNgParseError) -> Stop {
    match error {
        PcapNgParseError::IncompleteBuffer(needed, _) if needed <= BLOCK_MAX => Stop::CutShort(at),
        PcapNgParseError::IncompleteBuffer(needed, _) => {
            Stop::Damaged(at, Damage::Length(needed as u64))
        }
        error => Stop::Damaged(at, Damage::Format(Box::new(error))),
    }
}

/// Largest packet in a file: libpcap's `MAXIMUM_SNAPLEN`.
const SNAP_MAX: usize = 262_144;
/// Largest block in a file: libpcap's `INITIAL_MAX_BLOCKSIZE`.
const BLOCK_MAX: usize = 16 << 20;
/// Bytes of a block before the packet's (draft-ietf-opsawg-pcapng, 4.3 and appendix A).
const ENHANCED_DATA: usize = 8 + 20;
/// The bytes of a simple packet block before the packet's (4.4).
const SIMPLE_DATA: usize = 8 + 4;

#[cfg(test)]
mod tests;
