//! The output file, and the other end of the lanes into it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use manylane_frame::vocabulary::PortId;
use manylane_sync::doorbell::Doorbell;
use manylane_sync::words::{Words, WordsMut};
use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption, InterfaceTsResolution,
};

use super::super::Clock;
use super::error::WriteError;
use super::lane::{BUFFER, Direction, LaneEnd, LaneMessage, Record, Transmitter, lane};
use crate::eventfd::EventFd;
use crate::poll::poll;

/// How a capture is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileConfig {
    /// The most bytes kept of each packet.
    pub snap_len: u32,
    /// Bytes of memory for each worker, for packets that wait for the disk; at least 512 KiB.
    pub memory_bytes: usize,
    /// The interface's name in the file.
    pub interface: String,
}

impl Default for FileConfig {
    fn default() -> FileConfig {
        // tcpdump's snapshot length; 4 MiB are 25 ms of a full 1 Gbit/s, longer than a disk's hiccup.
        FileConfig { snap_len: 262_144, memory_bytes: 4 << 20, interface: "manylane".into() }
    }
}

/// The result of writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Packets.
    pub packets: u64,
    /// The bytes kept of them.
    pub bytes: u64,
}

/// What became of the packets that lanes recorded, for any thread to read while the writer runs.
pub struct FileCounts(Words<u64>);

impl FileCounts {
    /// Packets that the kernel has taken for the file.
    pub fn packets(&self) -> u64 {
        self.0.load(PACKETS)
    }

    /// Packets that lanes recorded and that the file does not have, since it could not be written. The lanes count
    /// those for which no buffer was free ([`LaneCounts::lost`](super::LaneCounts::lost)).
    pub fn lost(&self) -> u64 {
        self.0.load(LOST)
    }
}

/// Writes the packets of its lanes. Run [`Writer::run`] on a thread of its own.
///
/// Packets of one lane are in order; between lanes only their times order them (`reordercap`
/// sorts a file).
pub struct Writer {
    path: PathBuf,
    file: Box<dyn Write + Send>,
    /// Blocks that are not yet written, of one buffer at most.
    blocks: PcapNgWriter<Vec<u8>>,
    lanes: Vec<LaneEnd>,
    bell: Arc<Doorbell<EventFd>>,
    written: Written,
    counts: WordsMut<u64>,
    failed: Option<WriteError>,
}

impl Writer {
    /// Creates the file at `path`, or empties it, and a lane into it for each of `clocks`, which return the
    /// time of day.
    pub fn create(
        path: &Path,
        port: PortId,
        clocks: Vec<Clock>,
        config: &FileConfig,
    ) -> Result<(Writer, Vec<Transmitter>), WriteError> {
        let file = File::create(path)
            .map_err(|source| WriteError::Create { path: path.into(), source })?;
        Writer::into(Box::new(file), path, port, clocks, config)
    }

    /// Checks whether [`Writer::create`] could create or empty the file at `path`, and leaves the file as it is.
    pub fn check(path: &Path) -> Result<(), WriteError> {
        let opened = match path.metadata() {
            // Without `O_NONBLOCK` a named pipe would wait for its reader.
            Ok(_) => OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path),
            Err(_) => {
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                let folder = folder.unwrap_or(Path::new("."));
                OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(folder)
            }
        };
        match opened.map_err(|source| (source.raw_os_error(), source)) {
            // A named pipe without a reader so far, and a file system that has no unnamed files.
            Ok(_) | Err((Some(libc::ENXIO | libc::EOPNOTSUPP), _)) => Ok(()),
            Err((_, source)) => Err(WriteError::Create { path: path.into(), source }),
        }
    }

    pub(super) fn into(
        file: Box<dyn Write + Send>,
        path: &Path,
        port: PortId,
        clocks: Vec<Clock>,
        config: &FileConfig,
    ) -> Result<(Writer, Vec<Transmitter>), WriteError> {
        let bell =
            EventFd::open().map_err(|source| WriteError::Create { path: path.into(), source })?;
        let bell = Arc::new(Doorbell::new(bell));
        let buffers = (config.memory_bytes / BUFFER).max(2);
        let lanes = clocks
            .into_iter()
            .map(|clock| lane(port, clock, config.snap_len, buffers, bell.clone()));
        let (transmitters, lanes) = lanes.unzip();
        let mut writer = Writer {
            path: path.into(),
            file,
            blocks: begin(config),
            lanes,
            bell,
            written: Written::default(),
            counts: WordsMut::zeroed(2),
            failed: None,
        };
        // Reports a full disk before anything else begins.
        writer.take(&[]);
        match writer.failed {
            Some(failed) => Err(failed),
            None => Ok((writer, transmitters)),
        }
    }

    /// What became of its lanes' packets, also after it has ended.
    pub fn counts(&self) -> Arc<FileCounts> {
        Arc::new(FileCounts(self.counts.reader()))
    }

    /// Writes until all lanes have ended. When the file cannot be written, `failed` is called at once; from then on the
    /// lanes' packets are lost, and counted.
    pub fn run(mut self, failed: impl FnOnce(&WriteError)) -> Result<Written, WriteError> {
        let mut failed = Some(failed);
        loop {
            let moved = self.turn();
            if let Some(error) = &self.failed
                && let Some(failed) = failed.take()
            {
                failed(error);
            }
            if moved {
                continue;
            }
            if self.lanes.is_empty() {
                return self.failed.map_or(Ok(self.written), Err);
            }
            let waits = || self.lanes.iter().any(|lane| lane.full.waiting() > 0);
            // The one failure is ENOMEM: then the loop spins instead of sleeping.
            self.bell.sleep(waits, || poll(&[self.bell.waker().as_fd()], None).is_ok());
            self.bell.waker().drain();
        }
    }

    /// Writes pending packets; returns whether any were pending.
    pub(super) fn turn(&mut self) -> bool {
        let mut moved = false;
        let mut lanes = std::mem::take(&mut self.lanes);
        lanes.retain_mut(|lane| {
            while let Some(message) = lane.full.pop() {
                moved = true;
                lane.full.release();
                let LaneMessage::Records(mut buffer) = message else { return false };
                self.take(&buffer);
                // A lane without buffers counts its packets itself, and copies none of them.
                if self.failed.is_none() {
                    buffer.clear();
                    lane.empty.push(buffer).expect("there is a place for each buffer");
                    lane.empty.submit();
                }
            }
            true
        });
        self.lanes = lanes;
        moved
    }

    /// Writes a buffer's records to the file, or counts them as lost.
    fn take(&mut self, mut records: &[u8]) {
        let mut ends = Vec::new();
        while let Some((record, bytes, rest)) = Record::read(records) {
            let block = EnhancedPacketBlock {
                interface_id: 0,
                timestamp: Duration::from_nanos(record.time_ns),
                original_len: record.len,
                data: bytes.into(),
                options: vec![EnhancedPacketOption::Flags(match record.direction {
                    Direction::In => INBOUND,
                    Direction::Out => OUTBOUND,
                })],
            };
            self.blocks.write_pcapng_block(block).expect(MEMORY);
            ends.push((self.blocks.get_mut().len(), bytes.len() as u64));
            records = rest;
        }
        let taken = if self.failed.is_none() { self.write(&ends) } else { 0 };
        self.blocks.get_mut().clear();
        self.counts.store(PACKETS, self.written.packets);
        self.counts.store(LOST, self.counts.load(LOST) + (ends.len() - taken) as u64);
    }

    /// Writes the blocks of packets, which end at `ends` (place, bytes of the packet); returns the number of packets
    /// that the file took whole.
    fn write(&mut self, ends: &[(usize, u64)]) -> usize {
        let mut at = 0;
        let result = loop {
            match self.blocks.get_mut().get(at..) {
                None | Some([]) => break self.file.flush(),
                Some(left) => match self.file.write(left) {
                    Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                    Ok(more) => at += more,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => break Err(error),
                },
            }
        };
        let taken = ends.partition_point(|&(end, _)| end <= at);
        self.written.packets += taken as u64;
        self.written.bytes += ends[..taken].iter().map(|&(_, bytes)| bytes).sum::<u64>();
        if let Err(error) = result {
            let (path, packets, source) = (self.path.clone(), self.written.packets, error.into());
            self.failed = Some(WriteError::Write { path, packets, source });
        }
        taken
    }
}

/// The blocks before the packets.
fn begin(config: &FileConfig) -> PcapNgWriter<Vec<u8>> {
    let mut blocks = PcapNgWriter::new(Vec::new()).expect(MEMORY);
    let mut interface = InterfaceDescriptionBlock::new(DataLink::ETHERNET, config.snap_len);
    interface.options = vec![
        InterfaceDescriptionOption::IfName(config.interface.as_str().into()),
        InterfaceDescriptionOption::IfTsResol(InterfaceTsResolution::NANO),
    ];
    blocks.write_pcapng_block(interface).expect(MEMORY);
    blocks
}

/// Whether both paths name one file, through any links.
pub(super) fn is_same_file(one: &Path, other: &Path) -> io::Result<bool> {
    let [one, other] = [one.metadata()?, other.metadata()?];
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
}

/// The words of [`FileCounts`].
const PACKETS: usize = 0;
const LOST: usize = 1;
/// Why a block is written without an error.
const MEMORY: &str = "memory takes everything";
/// `epb_flags` (draft-ietf-opsawg-pcapng, 4.3.1).
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;
