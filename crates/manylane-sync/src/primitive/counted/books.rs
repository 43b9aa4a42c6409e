//! The model of the lines, and its counts.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::AddAssign;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard};

use super::{Actor, Kind, LINE, acting};

/// The most virtual workers: a bit each.
pub const WORKERS_MAX: usize = 128;

/// Everything that virtual workers have done, line by line. Clones are the same books.
#[derive(Clone, Default)]
pub struct Books(Arc<Mutex<Entries>>);

#[derive(Default)]
struct Entries {
    lines: HashMap<usize, Line>,
    sites: BTreeMap<Site, Row>,
    /// Nothing more is entered.
    closed: bool,
}

/// One cache line, by the table at [`super`].
#[derive(Default)]
struct Line {
    /// A bit for each worker with a valid copy.
    holders: u128,
    /// The last writer.
    writer: Option<usize>,
    /// Its transfers and upgrades.
    transactions: u64,
}

/// Where in the source an access is made: where a function of this crate that is a mere access was
/// called, or where an atomic was used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site(&'static Location<'static>);

/// What was counted: at a site, or in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Accesses of any kind.
    pub accesses: u64,
    /// Those of them that change the memory, or try to.
    pub writes: u64,
    /// Read-modify-writes that were done.
    pub rmws: u64,
    /// Compare-exchanges that failed.
    pub failed: u64,
    /// Lines that came from another worker.
    pub transfers: u64,
    /// Lines that were taken from other holders.
    pub upgrades: u64,
    /// Lines that no worker had written before.
    pub first_fetches: u64,
}

impl Row {
    /// What another core has to do with: transfers and upgrades.
    pub fn transactions(&self) -> u64 {
        self.transfers + self.upgrades
    }
}

impl AddAssign for Row {
    fn add_assign(&mut self, other: Row) {
        self.accesses += other.accesses;
        self.writes += other.writes;
        self.rmws += other.rmws;
        self.failed += other.failed;
        self.transfers += other.transfers;
        self.upgrades += other.upgrades;
        self.first_fetches += other.first_fetches;
    }
}

impl Site {
    /// The file, from its crate's folder on.
    pub fn file(&self) -> &'static str {
        let file = self.0.file();
        file.rfind(CRATES).map_or(file, |at| &file[at + CRATES.len()..])
    }
}

const CRATES: &str = "crates/";

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file(), self.0.line())
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Books {
    /// Empty books: no worker holds anything.
    pub fn new() -> Books {
        Books::default()
    }

    /// Enters what this thread does in `step` for `worker`.
    ///
    /// # Panics
    ///
    /// When a worker acts on this thread already, or the number of workers is too large.
    pub fn act<R>(&self, worker: usize, step: impl FnOnce() -> R) -> R {
        assert!(worker < WORKERS_MAX, "{worker}: at most {WORKERS_MAX} workers");
        acting(Actor { books: self.clone(), worker, baton: None }, step)
    }

    /// The schedule *turns*: `rounds` times each of `workers` in turn, a call of `step` each.
    pub fn turns<W>(&self, workers: &mut [W], rounds: u64, mut step: impl FnMut(&mut W)) {
        for _ in 0..rounds {
            for (number, worker) in workers.iter_mut().enumerate() {
                self.act(number, || step(worker));
            }
        }
    }

    /// Forgets the counts, and keeps the holders of each line: the end of warming up.
    pub fn clear(&self) {
        let mut entries = self.entries();
        entries.sites.clear();
        entries.lines.values_mut().for_each(|line| line.transactions = 0);
    }

    /// The sum of all sites.
    pub fn total(&self) -> Row {
        let mut total = Row::default();
        self.entries().sites.values().for_each(|row| total += *row);
        total
    }

    /// What was counted at each site, by file and line.
    pub fn sites(&self) -> Vec<(Site, Row)> {
        self.entries().sites.iter().map(|(site, row)| (*site, *row)).collect()
    }

    /// The transfers and upgrades of the line with the most: they happen one after the other, on any number of cores.
    pub fn busiest_line(&self) -> u64 {
        self.entries().lines.values().map(|line| line.transactions).max().unwrap_or(0)
    }

    pub(super) fn close(&self) {
        self.entries().closed = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.entries().closed
    }

    pub(super) fn enter(
        &self,
        worker: usize,
        address: usize,
        len: usize,
        kind: Kind,
        site: &'static Location<'static>,
    ) {
        let is_write = !matches!(kind, Kind::Load | Kind::Read);
        let mut row = Row {
            accesses: 1,
            writes: is_write.into(),
            rmws: (kind == Kind::Rmw).into(),
            failed: (kind == Kind::Failed).into(),
            ..Row::default()
        };
        let mut entries = self.entries();
        if entries.closed {
            return;
        }
        let last = address + len.max(1) - 1;
        for line in address / LINE..=last / LINE {
            entries.lines.entry(line).or_default().access(worker, is_write, &mut row);
        }
        *entries.sites.entry(Site(site)).or_default() += row;
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().expect("no holder of this lock panics")
    }
}

impl Line {
    /// The table at [`super`].
    fn access(&mut self, worker: usize, is_write: bool, row: &mut Row) {
        let own = 1u128 << worker;
        let before = row.transactions();
        if self.holders & own == 0 {
            match self.writer {
                // A writer holds its line until another takes it, so this is another.
                Some(_) => row.transfers += 1,
                None => row.first_fetches += 1,
            }
        } else if is_write && self.holders != own {
            row.upgrades += 1;
        }
        self.transactions += row.transactions() - before;
        if is_write {
            self.holders = own;
            self.writer = Some(worker);
        } else {
            self.holders |= own;
        }
    }
}
