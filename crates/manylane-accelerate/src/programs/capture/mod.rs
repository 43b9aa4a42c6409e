//! Captures: programs that copy packets, in front of those that forward and behind them (`observe.h`, `capture.bpf.c`).
//!
//! [`Targets`] are the programs that forward, as far as they are loaded; each has a map of the programs that it calls, and
//! that call each other. A [`Capture`] is in these maps until it is dropped. What it sees is in rings, one for each CPU,
//! which a reader has mapped (`manylane-io`'s `bpf::rings`).
//!
//! No packet waits for a capture that opens or closes: a place of a map changes at once, and an empty one is passed over.
//! The thread that closes the last one waits for a grace period of RCU, in which the kernel takes the jump out of the code.

#[cfg(test)]
mod tests;
mod translate;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use manylane_io::bpf::call::Kind;
use manylane_io::bpf::maps::{self, Maps};
use manylane_io::bpf::object::{self, Meant};
use manylane_io::bpf::rings::Rings;
use manylane_net::filter::Program;
use manylane_sync::doorbell::Wake;
use manylane_sync::words::WordsMut;

use self::translate::Translated;

/// The map of the programs that a program which forwards calls.
pub(super) struct Observers(OwnedFd);

/// A program that forwards, and what it calls.
struct Target {
    program: OwnedFd,
    observers: Observers,
    kind: Kind,
    what: Forwards,
    /// Of each list, captures' numbers and programs, in the order in which they are called.
    chains: Mutex<[Vec<(usize, OwnedFd)>; LISTS]>,
}

/// Which of the programs it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forwards {
    /// That at tcx ingress.
    AtIngress,
    /// One in the driver.
    InDriver,
}

/// The programs that forward. Those in the driver come when the tier is used first.
#[derive(Clone)]
pub struct Targets(Arc<Shared>);

struct Shared {
    tables: Maps,
    state: Mutex<State>,
}

struct State {
    targets: Vec<Arc<Target>>,
    /// The words, which the programs read.
    observed: WordsMut<u64>,
    /// By number, which captures are open.
    open: [bool; CAPTURES],
    /// How many of them are in each list.
    listed: [usize; LISTS],
    changes: u64,
    bell: Option<Arc<dyn Wake + Send + Sync>>,
}

/// What a capture wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// A bit for each point: received, transmitted, dropped, left to the kernel.
    pub points: u8,
    /// The port's number; all ports without one.
    pub port: Option<u16>,
    /// Bytes of a packet.
    pub snap: u32,
    /// What of it; everything without one.
    pub filter: Option<Program>,
}

/// A running capture, until it is dropped.
pub struct Capture {
    targets: Targets,
    number: usize,
    wanted: Wanted,
    filter: Translated,
    /// Why packets are filtered by their reader, if they are.
    untranslated: Option<String>,
    tables: Maps,
    rings: Rings,
    /// The targets that call it.
    known: Vec<Arc<Target>>,
}

/// Two lists of captures.
#[derive(Clone, Copy)]
enum List {
    /// Those that want packets as received.
    Received,
    /// Those that want packets at the end.
    Done,
}

impl Observers {
    /// An empty map, for a program that is to be loaded.
    pub fn new() -> io::Result<Observers> {
        maps::map(PROGRAM_ARRAY, "observers", 4, PLACES, 0).map(Observers)
    }

    /// For the program's code.
    pub fn meant(&self) -> Meant {
        Meant::Map(self.0.as_raw_fd())
    }
}

/// Words of the table `observed`.
pub(super) fn observed_words(cpus: usize) -> usize {
    CPUS_AT + cpus * OF_CPU
}

impl Targets {
    /// Without any. `observed` is the table of that name.
    pub(super) fn new(tables: &Maps, observed: WordsMut<u64>) -> io::Result<Targets> {
        let mut own = Maps::default();
        for name in TABLES {
            own.share(name, tables)?;
        }
        let state = State {
            targets: Vec::new(),
            observed,
            open: [false; CAPTURES],
            listed: [0; LISTS],
            changes: 0,
            bell: None,
        };
        Ok(Targets(Arc::new(Shared { tables: own, state: Mutex::new(state) })))
    }

    /// Adds a program that was loaded.
    pub(super) fn add(
        &self,
        program: &OwnedFd,
        observers: Observers,
        kind: Kind,
        what: Forwards,
    ) -> io::Result<()> {
        let program = program.try_clone()?;
        maps::set(&observers.0, FORWARD, Some(program.as_raw_fd() as u32))?;
        let target = Target { program, observers, kind, what, chains: Mutex::default() };
        let mut state = self.state();
        state.targets.push(Arc::new(target));
        if let Some(bell) = &state.bell {
            bell.wake();
        }
        Ok(())
    }

    /// From now on `bell` is rung when a program comes.
    pub fn set_bell(&self, bell: Arc<dyn Wake + Send + Sync>) {
        self.state().bell = Some(bell);
    }

    /// Opens a capture with rings of `ring` bytes, a power of two. `None` when as many are open as may be.
    pub fn open(&self, wanted: Wanted, ring: usize) -> io::Result<Option<Capture>> {
        let mut tables = Maps::default();
        for name in TABLES {
            tables.share(name, &self.0.tables)?;
        }
        let (filter, untranslated) = match wanted.filter.as_ref().map(translate::translate) {
            None => (Translated { head: 0, ..translate::undecided() }, None),
            Some(Some(translated)) => (translated, None),
            Some(None) => (translate::undecided(), Some("it has too many instructions".to_owned())),
        };
        let rings = Rings::new(ring)?;
        let Some(number) = self.state().take_number() else { return Ok(None) };
        let mut capture = Capture {
            targets: self.clone(),
            number,
            wanted,
            filter,
            untranslated,
            tables,
            rings,
            known: Vec::new(),
        };
        // Before its programs are there: a call of an empty place does nothing.
        for list in capture.lists() {
            self.state().list(list, true);
        }
        capture.extend()?;
        Ok(Some(capture))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take_number(&mut self) -> Option<usize> {
        let number = (0..CAPTURES).find(|&number| !self.open[number])?;
        self.open[number] = true;
        Some(number)
    }

    /// A list has one more capture, or one less. The programs tell packets by the number of the change.
    fn list(&mut self, list: List, is_added: bool) {
        let listed = &mut self.listed[list as usize];
        *listed = if is_added { *listed + 1 } else { *listed - 1 };
        self.changes += 1;
        let word = if *listed == 0 { 0 } else { self.changes };
        self.observed.publish(list as usize, word);
    }
}

impl Target {
    /// Calls a capture's program first.
    fn add(&self, list: List, number: usize, program: OwnedFd) -> io::Result<()> {
        let chain = &mut self.chains()[list as usize];
        let next = chain.first().map(|(_, program)| program).or(self.end(list));
        self.set(list.next(number), next)?;
        self.set(list.first(), Some(&program))?;
        chain.insert(0, (number, program));
        Ok(())
    }

    /// Does not call a capture's program any longer. The program may still run somewhere: it always has one to continue with,
    /// or none.
    fn remove(&self, list: List, number: usize) -> io::Result<()> {
        let chain = &mut self.chains()[list as usize];
        let Some(at) = chain.iter().position(|&(other, _)| other == number) else { return Ok(()) };
        chain.remove(at);
        let next = chain.get(at).map(|(_, program)| program);
        match at.checked_sub(1) {
            None => self.set(list.first(), next)?,
            Some(before) => self.set(list.next(chain[before].0), next.or(self.end(list)))?,
        }
        self.set(list.next(number), self.end(list))
    }

    /// What the last one of a list calls.
    fn end(&self, list: List) -> Option<&OwnedFd> {
        match list {
            List::Received => Some(&self.program),
            List::Done => None,
        }
    }

    fn set(&self, place: u32, program: Option<&OwnedFd>) -> io::Result<()> {
        match maps::set(&self.observers.0, place, program.map(|fd| fd.as_raw_fd() as u32)) {
            // The place was empty.
            Err(error) if program.is_none() && error.kind() == io::ErrorKind::NotFound => Ok(()),
            set => set,
        }
    }

    fn chains(&self) -> MutexGuard<'_, [Vec<(usize, OwnedFd)>; LISTS]> {
        self.chains.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl List {
    /// The place of the capture that is called first.
    fn first(self) -> u32 {
        FORWARD + 1 + self as u32
    }

    /// The place of what a capture calls next.
    fn next(self, number: usize) -> u32 {
        FORWARD + 1 + (LISTS * (1 + number)) as u32 + self as u32
    }

    fn section(self, what: Forwards) -> &'static str {
        match (self, what) {
            (List::Received, Forwards::AtIngress) => "ingress/received",
            (List::Done, Forwards::AtIngress) => "ingress/done",
            (List::Received, Forwards::InDriver) => "driver/received",
            (List::Done, Forwards::InDriver) => "driver/done",
        }
    }
}

impl Capture {
    /// The rings.
    pub fn rings(&self) -> &Rings {
        &self.rings
    }

    /// Why the reader has to filter all packets itself, if it has to.
    pub fn untranslated(&self) -> Option<&str> {
        self.untranslated.as_deref()
    }

    /// Has programs call it that have come since.
    pub fn extend(&mut self) -> io::Result<()> {
        let targets = self.targets.state().targets.clone();
        for target in targets {
            if self.known.iter().any(|known| Arc::ptr_eq(known, &target)) {
                continue;
            }
            self.known.push(target.clone());
            for list in self.lists() {
                let program = self.load(&target, list)?;
                target.add(list, self.number, program)?;
            }
        }
        Ok(())
    }

    fn lists(&self) -> Vec<List> {
        let is_received = self.wanted.points & RECEIVED != 0;
        let is_done = self.wanted.points & !RECEIVED != 0;
        let lists = [(is_received, List::Received), (is_done, List::Done)];
        lists.into_iter().filter_map(|(is_wanted, list)| is_wanted.then_some(list)).collect()
    }

    fn load(&mut self, target: &Target, list: List) -> io::Result<OwnedFd> {
        let load = |capture: &Capture| {
            let loaded = capture.program(target, list)?.load(target.kind, NAME);
            loaded
                .map_err(|complaint| io::Error::new(complaint.source.kind(), complaint.to_string()))
        };
        match load(self) {
            Err(error) if self.wanted.filter.is_some() && self.untranslated.is_none() => {
                // The verifier does not follow the filter: then the reader filters.
                self.filter = translate::undecided();
                let program = load(self)?;
                self.untranslated = Some(error.to_string());
                Ok(program)
            }
            loaded => loaded,
        }
    }

    fn program(&self, target: &Target, list: List) -> io::Result<object::Program> {
        let takes_pieces = target.kind.flags & super::driver::HAS_FRAGS != 0;
        let meant = |name: &str| match name {
            "observers" => Some(target.observers.meant()),
            "next_place" => Some(Meant::Number(list.next(self.number).into())),
            "takes_pieces" => Some(Meant::Number(takes_pieces.into())),
            "wanted_points" => Some(Meant::Number(self.wanted.points.into())),
            "wanted_port" => Some(Meant::Number(self.wanted.port.unwrap_or_default().into())),
            "wanted_bytes" => Some(Meant::Number(self.wanted.snap.into())),
            "filter_bytes" => Some(Meant::Number(self.filter.head.into())),
            name => self.rings.meant(name).or_else(|| self.tables.meant(name)),
        };
        let made = Some(("filter", &*self.filter.code));
        object::link(OBJECT, list.section(target.what), meant, made)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        for list in self.lists() {
            self.targets.state().list(list, false);
            for target in &self.known {
                // A program that the kernel keeps in its place does no harm: nothing reads its rings.
                let _ = target.remove(list, self.number);
            }
        }
        self.targets.state().open[self.number] = false;
    }
}

static OBJECT: &[u8] = aya::include_bytes_aligned!("../capture.bpf.o");

/// The programs' name, as `bpftool` shows it.
const NAME: &str = "manylane_capt";

/// The tables that the programs read.
const TABLES: [&str; 4] = ["port_of", "ports", "vlan_port", "observed"];

/// The bit of packets as received.
const RECEIVED: u8 = 1;

/// Captures that may be open at once.
const CAPTURES: usize = 15;
const LISTS: usize = 2;
/// Places of the map: that of the program that forwards, and of each list the first program, and what each capture calls.
const PLACES: u32 = FORWARD + 1 + (LISTS * (1 + CAPTURES)) as u32;

// As in `observe.h` and `capture.bpf.c`.
const FORWARD: u32 = 0;
const CPUS_AT: usize = 8;
const OF_CPU: usize = 8;

/// `BPF_MAP_TYPE_PROG_ARRAY`.
const PROGRAM_ARRAY: u32 = 3;
