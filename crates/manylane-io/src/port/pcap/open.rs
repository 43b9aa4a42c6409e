//! Opening a port.

use std::path::PathBuf;
use std::sync::Arc;

use manylane_frame::vocabulary::{PortId, QueueId};

use super::super::memory;
use super::super::{Receiver as AnyReceiver, Transmitter as AnyTransmitter};
use super::capture::Capture;
use super::error::{ReadError, WriteError};
use super::lane::wall_clock;
use super::receiver::{Receiver, ReplayConfig};
use super::writer::{FileConfig, Writer, is_same_file};

/// How a port is opened. A port has one receive queue, and a transmitter for each worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PcapConfig {
    /// The capture whose packets are received; `None` receives nothing.
    pub read: Option<PathBuf>,
    /// How its packets are replayed.
    pub replay: ReplayConfig,
    /// The largest capture that is read: it stays in memory.
    pub bytes_max: u64,
    /// The capture that transmitted packets are written to; with `None` they are only counted.
    pub write: Option<PathBuf>,
    /// How they are written.
    pub file: FileConfig,
}

impl Default for PcapConfig {
    fn default() -> PcapConfig {
        PcapConfig {
            read: None,
            replay: ReplayConfig::default(),
            bytes_max: 1 << 30,
            write: None,
            file: FileConfig::default(),
        }
    }
}

impl PcapConfig {
    /// Reads the capture that is received, which must not be the one that is written.
    fn capture(&self) -> Result<Option<Capture>, OpenError> {
        let PcapConfig { read, bytes_max, write, .. } = self;
        let capture = match read {
            Some(path) => Some(Capture::read(path, *bytes_max).map_err(OpenError::Read)?),
            None => None,
        };
        if let (Some(read), Some(write)) = (read, write)
            && is_same_file(read, write).unwrap_or(false)
        {
            return Err(OpenError::Write(WriteError::SameFile { path: write.clone() }));
        }
        Ok(capture)
    }
}

/// A port's parts. Dropping them closes the port and ends the writer.
pub struct Opened {
    /// The capture that is received.
    pub capture: Option<Arc<Capture>>,
    /// The one queue.
    pub receiver: AnyReceiver,
    /// One for each worker, in order.
    pub transmitters: Vec<AnyTransmitter>,
    /// The writer of the output file: [`Writer::run`] it on a thread.
    pub writer: Option<Writer>,
}

/// Why a port did not open.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The capture could not be read.
    #[error(transparent)]
    Read(ReadError),
    /// The capture could not be written.
    #[error(transparent)]
    Write(WriteError),
}

impl Opened {
    /// Checks the files as [`Opened::open`] does, and leaves them as they are.
    pub fn check(config: &PcapConfig) -> Result<(), OpenError> {
        config.capture()?;
        config.write.as_ref().map_or(Ok(()), |path| Writer::check(path).map_err(OpenError::Write))
    }

    /// Opens the files of `port`.
    pub fn open(port: PortId, workers: usize, config: &PcapConfig) -> Result<Opened, OpenError> {
        let PcapConfig { replay, write, file, .. } = config;
        let capture = config.capture()?.map(Arc::new);
        let receiver = match &capture {
            Some(capture) => AnyReceiver::Pcap(Box::new(Receiver::new(
                capture.clone(),
                port,
                QueueId(0),
                *replay,
            ))),
            None => AnyReceiver::Memory(memory::Receiver::silent(port, QueueId(0))),
        };
        let (transmitters, writer) = match write {
            Some(path) => {
                let clocks = (0..workers).map(|_| wall_clock()).collect();
                let (writer, lanes) =
                    Writer::create(path, port, clocks, file).map_err(OpenError::Write)?;
                let lanes = lanes.into_iter().map(|lane| AnyTransmitter::Pcap(Box::new(lane)));
                (lanes.collect(), Some(writer))
            }
            None => {
                let nowhere = || memory::Transmitter::into_sink(Box::new(|_, _| {}));
                ((0..workers).map(|_| AnyTransmitter::Memory(nowhere())).collect(), None)
            }
        };
        Ok(Opened { capture, receiver, transmitters, writer })
    }
}
