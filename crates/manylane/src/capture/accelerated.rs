//! A capture of `manylane accelerate`: packets that its programs have copied in the kernel, and that its workers have copied.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant, SystemTime};

use manylane_accelerate::accelerator::reason_of;
use manylane_client::{AcceleratedCapture, Copied, RemoteError};
use manylane_frame::vocabulary::{Point, PortId};
use rustix::time::{ClockId, clock_gettime};

use super::source::{Captured, See, Source, Statistics, Wake};

/// A running capture.
pub(super) struct Copies {
    capture: AcceleratedCapture,
    /// Of the ports, by number.
    names: BTreeMap<u16, String>,
    /// When the daemon last showed that it lives.
    answered: Instant,
}

impl Copies {
    pub fn new(capture: AcceleratedCapture, names: BTreeMap<u16, String>) -> Copies {
        Copies { capture, names, answered: Instant::now() }
    }
}

impl Source for Copies {
    fn receive(&mut self, see: &mut See<'_>) -> io::Result<bool> {
        let Copies { capture, names, .. } = self;
        let since_1970 = since_1970();
        let mut left = ROUND;
        Ok(capture.receive(|copied| {
            left -= 1;
            let flow = see(&captured(copied, names, since_1970));
            flow == ControlFlow::Continue(()) && left > 0
        }))
    }

    fn wait(&mut self, until: Option<Instant>, interrupt: BorrowedFd<'_>) -> io::Result<Wake> {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        match self.capture.wait(interrupt, left) {
            Ok(true) => return Ok(Wake::Interrupt),
            Ok(false) => {}
            Err(RemoteError::Gone { .. } | RemoteError::Refused(_)) => return Ok(Wake::End),
            Err(error) => return Err(io::Error::other(error)),
        }
        if self.answered.elapsed() >= PATIENCE {
            // A daemon that hangs leaves its programs to the kernel.
            if let Err(error @ RemoteError::Silent { .. }) = self.capture.is_answered() {
                return Ok(Wake::Silent(error.to_string()));
            }
            self.answered = Instant::now();
        }
        match until {
            Some(until) if Instant::now() >= until => Ok(Wake::Time),
            _ => Ok(Wake::Packets), // Or may be.
        }
    }

    fn statistics(&mut self) -> Statistics {
        let counted = self.capture.statistics();
        Statistics { filtered: counted.packets, lost: counted.lost }
    }

    fn notice(&self) -> Option<String> {
        let why = self.capture.untranslated()?;
        Some(format!(
            "note: the filter cannot run in the kernel, so each packet is copied and filtered here: {why}"
        ))
    }
}

fn captured<'c>(
    copied: &Copied<'c>,
    names: &'c BTreeMap<u16, String>,
    since_1970: Duration,
) -> Captured<'c> {
    let point = Point::ALL.get(usize::from(copied.point)).copied().unwrap_or_default();
    let (reason, explanation) = reason_of(point, copied.verdict).unzip();
    Captured {
        time_ns: copied.time_ns.saturating_add(since_1970.as_nanos() as u64),
        len: copied.len,
        bytes: copied.bytes,
        port: PortId(copied.port),
        port_name: names.get(&copied.port).map_or("?", String::as_str),
        queue: copied.queue,
        worker: copied.cpu as u16,
        point,
        reason,
        explanation,
    }
}

/// When the monotonic clock began, in nanoseconds since 1970, as the clocks stand.
pub(crate) fn since_1970() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    let monotonic = Duration::new(now.tv_sec as u64, now.tv_nsec as u32);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.saturating_sub(monotonic)
}

/// Packets before anything else is looked at.
const ROUND: u32 = 1 << 16;
/// How long the daemon may be silent before it has to answer.
const PATIENCE: Duration = Duration::from_secs(10);
