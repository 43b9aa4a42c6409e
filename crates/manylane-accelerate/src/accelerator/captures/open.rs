//! An open capture: what programs copy, and what workers copy.

use std::io;
use std::iter;
use std::os::fd::BorrowedFd;

use manylane_io::bpf::rings::Counted;

use crate::accelerator::published::Published;
use crate::accelerator::worker::WorkerCapture;
use crate::accelerator::worker_options;
use crate::programs::{Capture, Targets, Wanted};

/// A running capture, until it is dropped.
pub(super) struct Open {
    programs: Capture,
    workers: Option<WorkerCapture>,
}

impl Open {
    /// Begins one. `None` when as many are open as may be.
    pub fn begin(
        targets: &Targets,
        published: &Published,
        wanted: Wanted,
    ) -> io::Result<Option<Open>> {
        let workers = worker_options(&published.options).workers;
        let workers = published.worker_captures.open(&wanted, workers);
        let workers = workers.map_err(io::Error::other)?;
        let cpus = manylane_io::bpf::maps::cpus()?;
        let programs = targets.open(wanted, ring_bytes(cpus))?;
        Ok(programs.map(|programs| Open { programs, workers }))
    }

    /// What programs copy.
    pub fn programs(&self) -> &Capture {
        &self.programs
    }

    /// The ring of workers, if they have what is wanted.
    pub fn of_workers(&self) -> Option<BorrowedFd<'_>> {
        self.workers.as_ref().map(WorkerCapture::descriptor)
    }

    /// All descriptors, in the order in which a reader expects them.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        iter::once(self.programs.rings().descriptor()).chain(self.of_workers())
    }

    /// Lets it see packets of programs that have come.
    pub fn extend(&mut self) -> io::Result<()> {
        self.programs.extend()
    }

    /// What was counted.
    pub fn counted(&self) -> Counted {
        let Counted { matched, lost } = self.programs.rings().counted();
        let of_workers = self.workers.as_ref().map_or((0, 0), WorkerCapture::counted);
        Counted { matched: matched + of_workers.0 + of_workers.1, lost: lost + of_workers.1 }
    }
}

/// Bytes of a CPU's ring: 64 MiB together, but on machines of very many CPUs.
fn ring_bytes(cpus: usize) -> usize {
    let share = (RINGS / cpus.max(1)).max(1);
    (1usize << share.ilog2()).clamp(RING_MIN, RING_MAX)
}

const RINGS: usize = 64 << 20;
const RING_MIN: usize = 256 << 10;
const RING_MAX: usize = 8 << 20;
