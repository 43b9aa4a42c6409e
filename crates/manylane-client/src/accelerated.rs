//! [`AcceleratedCapture`]: a capture of `manylane accelerate`, whose programs in the kernel and workers copy packets.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use manylane_io::bpf::rings::Shape;
use manylane_io::poll::poll;
use manylane_net::filter::Program;

use super::{
    Connection, Copied, CpuRings, Kind, Options, Points, RemoteError, RemoteSocket, Statistics,
    protocol,
};
use crate::message::{Answer, Request, Wanted, names_of, tuples_of};

/// What is to be captured.
#[derive(Clone, Debug)]
pub struct CaptureOptions {
    /// A port's name; all ports without one.
    pub port: Option<String>,
    /// Where packets are seen.
    pub points: Points,
    /// What is let pass; everything without one.
    pub filter: Option<Program>,
    /// Bytes to keep of each packet.
    pub snap: u32,
}

/// A running capture, until it is dropped or the process ends.
pub struct AcceleratedCapture {
    connection: Connection,
    rings: CpuRings,
    untranslated: Option<String>,
    options: CaptureOptions,
    /// Packets that were copied for this process to decide, and that the filter did not want.
    unwanted: u64,
    /// A packet with its tag.
    tagged: Vec<u8>,
}

impl AcceleratedCapture {
    /// Begins a capture of the daemon that listens at `path` (see [`path_beside`](super::path_beside)).
    pub fn open(path: &Path, options: CaptureOptions) -> Result<AcceleratedCapture, RemoteError> {
        let mut connection = Connection::connect(path)?;
        let wanted = Wanted {
            port: options.port.clone(),
            points: names_of(options.points),
            filter: options.filter.as_ref().map(|filter| tuples_of(filter.instructions())),
            snap: options.snap,
        };
        let (answer, descriptors) = connection.exchange(&Request::Capture(wanted), &[])?;
        let Answer::Captures { cpus, ring_bytes, table_bytes, untranslated, workers } = answer
        else {
            return Err(connection.unexpected(format!("{answer:?} to `capture`")));
        };
        let mut descriptors = descriptors.into_iter();
        let (table, of_workers, None) =
            (descriptors.next(), descriptors.next(), descriptors.next())
        else {
            return Err(connection.unexpected("an answer to `capture` with more rings".into()));
        };
        let (Some(table), true) = (table, of_workers.is_some() == workers) else {
            return Err(connection.unexpected("an answer to `capture` without rings".into()));
        };
        let [cpus, ring, all] = [cpus, ring_bytes, table_bytes].map(|number| number as usize);
        let rings = CpuRings::new(table.as_fd(), Shape { cpus, ring, table: all });
        let mut rings = rings.map_err(|source| RemoteError::System { step: "mmap", source })?;
        of_workers.map_or(Ok(()), |memfd| rings.add_workers(memfd)).map_err(RemoteError::Ring)?;
        Ok(AcceleratedCapture {
            connection,
            rings,
            untranslated,
            options,
            unwanted: 0,
            tagged: Vec::new(),
        })
    }

    /// Whether the daemon at `path` has such captures: whether it is `manylane accelerate`.
    pub fn is_at(path: &Path) -> bool {
        let options = Options { protocol: protocol::NONE, ..Options::default() };
        let opened = RemoteSocket::open(path, &options);
        matches!(opened, Err(RemoteError::Refused(refusal)) if refusal.kind == Kind::Accelerates)
    }

    /// The id of the process that is the daemon at `path`.
    pub fn process(path: &Path) -> Result<u32, RemoteError> {
        Connection::connect(path)?.process()
    }

    /// Names and numbers of the ports of the daemon at `path`.
    pub fn ports(path: &Path) -> Result<Vec<super::Port>, RemoteError> {
        Connection::connect(path)?.ports()
    }

    /// Why this process filters all packets, if it does: the filter does not run where the packets are.
    pub fn untranslated(&self) -> Option<&str> {
        self.untranslated.as_deref()
    }

    /// Gives what waits to `see`, in order of time, until it returns false. Returns whether anything waited.
    pub fn receive(&mut self, mut see: impl FnMut(&Copied<'_>) -> bool) -> bool {
        let AcceleratedCapture { rings, options, unwanted, tagged, .. } = self;
        rings.receive(|copied| {
            let mut copied = copied.with_tag(tagged);
            let mut keep = options.snap;
            if copied.is_undecided
                && let Some(filter) = &options.filter
            {
                keep = keep.min(filter.run_in_parts(copied.bytes, copied.len, |_, _| 0));
                if keep == 0 {
                    *unwanted += 1;
                    return true;
                }
            }
            copied.bytes = &copied.bytes[..copied.bytes.len().min(keep as usize)];
            see(&copied)
        })
    }

    /// Waits until packets may be there, `other` can be read, or `timeout` has passed. Returns whether `other` can be
    /// read; an error when the daemon has ended the capture.
    pub fn wait(
        &mut self,
        other: BorrowedFd<'_>,
        timeout: Option<Duration>,
    ) -> Result<bool, RemoteError> {
        // A ring wakes no reader: a reader looks before the ring can be full.
        let timeout = timeout.map_or(LOOK, |timeout| timeout.min(LOOK));
        let ready = poll(&[other, self.connection.as_fd()], Some(timeout));
        let ready = ready.map_err(|source| RemoteError::System { step: "poll", source })?;
        if ready.is_ready(1) && !self.rings.is_waiting() {
            return Err(self.connection.gone());
        }
        Ok(ready.is_ready(0))
    }

    /// What was captured since the beginning.
    pub fn statistics(&self) -> Statistics {
        let (programs, workers) = (self.rings.of_programs(), self.rings.of_workers());
        Statistics {
            packets: programs.matched.saturating_sub(self.unwanted) + workers.packets,
            lost: programs.lost + workers.lost,
        }
    }

    /// Whether the daemon answers.
    pub fn is_answered(&mut self) -> Result<(), RemoteError> {
        self.connection.counts().map(drop)
    }
}

/// How long a packet waits to be looked at.
const LOOK: Duration = Duration::from_millis(10);
