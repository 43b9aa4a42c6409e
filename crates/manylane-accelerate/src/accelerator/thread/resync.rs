//! Everything read anew, while steps continue: to make the tables so, or to tell how they differ.

use std::time::{Duration, Instant};

use manylane_io::netlink::Netlink;
use manylane_io::netlink::kernel::Event;

use super::{Thread, stamp};
use crate::accelerator::waits::Activity;
use crate::accelerator::{AccelerateError, tables};
use manylane_mirror::{self as mirror, Dump};

impl Thread {
    /// Reads everything anew, and makes the tables so: never empty in between.
    pub(super) fn read_all(&mut self) -> Result<(), AccelerateError> {
        let begin = Instant::now();
        let was_lost = std::mem::take(&mut self.todo.resync);
        self.todo.confirm = false;
        self.todo.is_repairing = was_lost;
        let (dump, heard) = self.dump().inspect_err(|_| self.todo.resync |= was_lost)?;
        self.todo.is_repairing = false;
        self.lease.tables_are_stale();
        if std::mem::take(&mut self.todo.load) {
            self.mirror.load(dump);
        } else {
            self.counts.overruns += u64::from(was_lost);
            self.counts.confirmations += u64::from(!was_lost);
            let Thread { mirror, guard, lease, ticks, .. } = self;
            mirror.resync(dump, &mut || stamp(guard, lease, ticks));
        }
        for event in &heard {
            self.mirror.event(event);
        }
        self.todo.ports = true;
        // A dump that only confirms may come late.
        self.next_confirm = Instant::now() + 8 * begin.elapsed();
        // What is to be written now is written in the next step, at once.
        self.todo.read = true;
        Ok(())
    }

    /// A dump of the kernel's tables, and the events read meanwhile. Steps continue meanwhile.
    fn dump(&mut self) -> Result<(Dump, Vec<Event>), AccelerateError> {
        let before = self.published.enter(Activity::Dump);
        // A socket of its own: two answers cannot be read at a time.
        let mut netlink = Netlink::open().map_err(AccelerateError::Netlink)?;
        self.heard = Some(Vec::new());
        let mut stepped = Ok(());
        let dump = tables::dump(&mut netlink, mirror::Limits::default(), &mut || {
            if stepped.is_ok() {
                stepped = self.step().map(drop);
            }
        });
        self.published.enter(before);
        let heard = self.heard.take().unwrap_or_default();
        stepped?;
        Ok((dump.map_err(AccelerateError::Netlink)?, heard))
    }

    /// How kernel, model and tables differ.
    pub(in crate::accelerator) fn diff(&mut self) -> Result<Vec<String>, AccelerateError> {
        self.catch_up()?;
        if self.todo.resync && !self.todo.read {
            self.read_all()?; // What was lost is known to be missing.
            self.catch_up()?;
        }
        // A change during the dump would look like a difference.
        for _ in 0..DIFF_TRIES {
            let (dump, heard) = self.dump()?;
            if heard.is_empty() && !self.step()? {
                return Ok(self.compare(&dump));
            }
        }
        let (dump, _) = self.dump()?;
        Ok(self.compare(&dump))
    }

    /// Hears and writes what waits, which would look like a difference, and takes less time than a dump.
    fn catch_up(&mut self) -> Result<(), AccelerateError> {
        let deadline = Instant::now() + CATCH_UP;
        while (self.step()? || (self.todo.edits && !self.todo.room)) && Instant::now() < deadline {}
        Ok(())
    }

    fn compare(&mut self, dump: &Dump) -> Vec<String> {
        // Events are not read meanwhile.
        self.lease.tables_are_stale();
        let Thread { mirror, guard, lease, ticks, .. } = self;
        mirror.diff(dump, &mut || stamp(guard, lease, ticks))
    }
}

/// How long a diff waits, at most twice, for the tables to be as the kernel said.
const CATCH_UP: Duration = Duration::from_secs(1);

/// A kernel whose routing changes during this number of dumps in a row is shown as it was at the last.
const DIFF_TRIES: u32 = 5;
