//! The output file, and the other end of the lanes into it.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use manylane_frame::vocabulary::PortId;
use manylane_sync::doorbell::Doorbell;
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

/// Writes the packets of its lanes. Run [`Writer::run`] on a thread of its own.
///
/// Packets of one lane are in order; between lanes only their times order them (`reordercap`
/// sorts a file).
pub struct Writer {
    path: PathBuf,
    file: PcapNgWriter<BufWriter<Box<dyn Write + Send>>>,
    lanes: Vec<LaneEnd>,
    bell: Arc<Doorbell<EventFd>>,
    written: Written,
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
        let file = begin(BufWriter::new(file), config).map_err(|source| WriteError::Write {
            path: path.into(),
            packets: 0,
            source,
        })?;
        let written = Written::default();
        Ok((Writer { path: path.into(), file, lanes, bell, written }, transmitters))
    }

    /// Writes until all lanes have ended. After an error the lanes fill up, and count the packets they lose.
    pub fn run(mut self) -> Result<Written, WriteError> {
        loop {
            if self.turn()? {
                continue;
            }
            self.flush()?;
            if self.lanes.is_empty() {
                return Ok(self.written);
            }
            let waits = || self.lanes.iter().any(|lane| lane.full.waiting() > 0);
            // The one failure is ENOMEM: then the loop spins instead of sleeping.
            self.bell.sleep(waits, || poll(&[self.bell.waker().as_fd()], None).is_ok());
            self.bell.waker().drain();
        }
    }

    /// Writes pending packets; returns whether any were pending.
    pub(super) fn turn(&mut self) -> Result<bool, WriteError> {
        let mut moved = false;
        let mut lanes = std::mem::take(&mut self.lanes);
        let mut outcome = Ok(());
        lanes.retain_mut(|lane| {
            while let (Ok(()), Some(message)) = (&outcome, lane.full.pop()) {
                moved = true;
                lane.full.release();
                let LaneMessage::Records(mut buffer) = message else { return false };
                outcome = self.write(&buffer);
                buffer.clear();
                lane.empty.push(buffer).expect("there is a place for each buffer");
                lane.empty.submit();
            }
            true
        });
        self.lanes = lanes;
        outcome.map(|()| moved)
    }

    /// Flushes the file's buffer to the kernel.
    pub(super) fn flush(&mut self) -> Result<(), WriteError> {
        self.file.get_mut().flush().map_err(|source| self.failed(source.into()))
    }

    fn write(&mut self, mut records: &[u8]) -> Result<(), WriteError> {
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
            self.file.write_pcapng_block(block).map_err(|error| self.failed(error.into()))?;
            self.written.packets += 1;
            self.written.bytes += bytes.len() as u64;
            records = rest;
        }
        Ok(())
    }

    #[cold]
    fn failed(&self, source: Box<dyn std::error::Error + Send + Sync>) -> WriteError {
        WriteError::Write { path: self.path.clone(), packets: self.written.packets, source }
    }
}

/// Writes the blocks before the packets.
fn begin<W: Write>(
    file: W,
    config: &FileConfig,
) -> Result<PcapNgWriter<W>, Box<dyn std::error::Error + Send + Sync>> {
    let mut file = PcapNgWriter::new(file)?;
    let mut interface = InterfaceDescriptionBlock::new(DataLink::ETHERNET, config.snap_len);
    interface.options = vec![
        InterfaceDescriptionOption::IfName(config.interface.as_str().into()),
        InterfaceDescriptionOption::IfTsResol(InterfaceTsResolution::NANO),
    ];
    file.write_pcapng_block(interface)?;
    file.get_mut().flush()?; // Reports a full disk before anything else begins.
    Ok(file)
}

/// Whether both paths name one file, through any links.
pub(super) fn is_same_file(one: &Path, other: &Path) -> io::Result<bool> {
    let [one, other] = [one.metadata()?, other.metadata()?];
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
}

/// `epb_flags` (draft-ietf-opsawg-pcapng, 4.3.1).
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;
