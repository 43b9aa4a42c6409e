//! What conntrack says after a connection has been entered: that it has ended, that it has another mark; and what is
//! looked up, since the kernel does not announce it, or since announcements were lost.

use std::time::Instant;

use manylane_io::netlink::NetlinkError;
use manylane_io::netlink::conntrack::{
    Changed, Connection, Conntrack, ConntrackEvents, Event, Seen, Timeouts, gives_room_for_events,
};
use manylane_net::transit::Verdict;
use manylane_net::transit::flows::{Direction, FlowNumber};
use manylane_sync::doorbell::Wake as _;

use super::connection::{asked, check, nothing, tuple};
use super::record::Round;
use super::refusal::Removal;
use super::{LaneThread, lock};

/// The kernel's connection tracking, while it is needed.
pub(super) struct Kernel {
    pub requests: Conntrack,
    pub events: ConntrackEvents,
    hears_marks: bool,
    /// Whether connections that begin now announce their end.
    announces: bool,
}

impl Kernel {
    fn open() -> Result<Kernel, NetlinkError> {
        let requests = Conntrack::open()?;
        let events = ConntrackEvents::open(&requests, RECEIVE_BUFFER)?;
        Ok(Kernel { requests, events, hears_marks: false, announces: false })
    }
}

impl LaneThread {
    /// Opens conntrack where it is needed, and closes it where it is not.
    pub(super) fn open_conntrack(&mut self) {
        match (self.terms.is_needed(), &self.conntrack) {
            (true, None) => match Kernel::open() {
                Ok(kernel) => {
                    (self.conntrack, self.trouble) = (Some(kernel), None);
                    self.read_timeouts();
                }
                Err(error) => self.trouble = Some(error.to_string()),
            },
            (false, Some(_)) => self.conntrack = None,
            _ => {}
        }
    }

    /// Conntrack does not answer: without it nothing is known of any entry.
    pub(super) fn lose_conntrack(&mut self, error: &NetlinkError) {
        self.trouble = Some(error.to_string());
        self.conntrack = None;
        self.remove_all(Removal::Ended);
    }

    /// The kernel's settings, as they are now.
    pub(super) fn read_timeouts(&mut self) {
        // Without conntrack nothing has to be renewed.
        if let Ok(timeouts) = Timeouts::read() {
            self.timeouts = timeouts;
        }
        if let Some(kernel) = &mut self.conntrack {
            kernel.announces = gives_room_for_events().unwrap_or(false);
        }
    }

    /// Listens to marks from now on. Whether it did before.
    pub(super) fn hears_marks(&mut self) -> bool {
        let Some(kernel) = &mut self.conntrack else { return false };
        if kernel.hears_marks {
            return true;
        }
        kernel.hears_marks = kernel.events.hear_marks(true).is_ok();
        false
    }

    /// Stops listening to marks when no rule reads them.
    pub(super) fn ignore_marks(&mut self) {
        if let Some(kernel) = &mut self.conntrack
            && kernel.hears_marks
            && self.records.marks.is_empty()
            && self.again.is_empty()
        {
            kernel.hears_marks = kernel.events.hear_marks(false).is_err();
        }
    }

    /// Reads what conntrack has announced. Says whether more may follow.
    pub(super) fn hear(&mut self) -> bool {
        let Some(kernel) = &mut self.conntrack else { return false };
        let mut heard = Vec::new();
        let seen = kernel.events.read(|event| heard.push(event));
        for event in &heard {
            match event {
                Event::Destroyed(connection) => self.ended(connection),
                Event::Marked(connection) => self.marked(connection),
                // These events have none.
                Event::Began(_) => {}
            }
        }
        match seen {
            Ok(Seen::All) => false,
            Ok(Seen::More) => true,
            Ok(Seen::Lost) => {
                self.compare();
                false
            }
            Err(error) => {
                self.lose_conntrack(&error);
                false
            }
        }
    }

    /// The entry of a connection, if it is the same one.
    fn entry(&self, connection: &Connection) -> Option<FlowNumber> {
        let (number, _) = self.flows.find(tuple(connection.original))?;
        self.is_same(number, connection).then_some(number)
    }

    /// Whether an entry is this connection's. A successor may have its id, and another translation.
    pub(super) fn is_same(&self, number: FlowNumber, connection: &Connection) -> bool {
        let record = self.records.get(number);
        record.is_some_and(|record| record.id == connection.id)
            && self.flows.tuple(number, Direction::Reply) == tuple(connection.reply)
    }

    fn ended(&mut self, connection: &Connection) {
        if let Some(number) = self.entry(connection) {
            self.remove(number, Removal::Ended);
        }
    }

    fn marked(&mut self, connection: &Connection) {
        if let Some(number) = self.entry(connection)
            && let Some(mark) = self.records.marks.get_mut(&number.0)
            && std::mem::replace(mark, connection.mark) != connection.mark
        {
            self.reader.online();
            self.review_one(number);
            self.reader.offline();
        }
    }

    /// Looks for some of the connections whose end the kernel does not announce, in turn: as many as one tick has time for.
    pub(super) fn look_for_silent(&mut self) {
        let presence = self.records.silent.take(Round::Presence, self.looked_for_at_once());
        self.look_for(presence);
        let identity = self.records.silent.take(Round::Identity, self.looked_up_at_once());
        self.look_up(identity);
    }

    /// How many connections may be silent: each is looked for once in [`ROUND`] ticks.
    pub(super) fn silent_max(&self) -> usize {
        ROUND * self.looked_for_at_once().max(self.looked_up_at_once())
    }

    fn announces(&self) -> bool {
        self.conntrack.as_ref().is_some_and(|kernel| kernel.announces)
    }

    fn looked_for_at_once(&self) -> usize {
        if self.announces() { LOOKED_FOR_AT_ONCE } else { 0 }
    }

    fn looked_up_at_once(&self) -> usize {
        if self.announces() { COMPARED_AT_ONCE } else { LOOKED_UP_AT_ONCE }
    }

    /// Takes out those of these silent connections that conntrack has no longer.
    ///
    /// A change of nothing takes a quarter of the time of a look-up, since a connection without room for events has no answer
    /// but for a failure. One that answers is a successor: a connection that begins while this thread listens has
    /// room for events. Only a rule can take that from it (`ct event set`), so that all are compared from time to time.
    fn look_for(&mut self, silent: Vec<FlowNumber>) {
        let Some(kernel) = &mut self.conntrack else { return };
        let tuple = |&number: &FlowNumber| self.flows.tuple(number, Direction::Original);
        let changes: Vec<_> = silent.iter().map(|number| nothing(tuple(number))).collect();
        let answers = match kernel.requests.change_with_echo(&changes) {
            Ok(answers) => answers,
            Err(error) => return self.lose_conntrack(&error),
        };
        for (number, answer) in silent.into_iter().zip(answers) {
            if !matches!(answer, Ok(Changed::Silent)) {
                self.remove(number, Removal::Ended);
            }
        }
    }

    /// Takes out those of these entries whose connection conntrack has no longer, or that is another one by now.
    pub(super) fn look_up(&mut self, numbers: Vec<FlowNumber>) {
        let Some(kernel) = &mut self.conntrack else { return };
        let tuple = |&number: &FlowNumber| asked(self.flows.tuple(number, Direction::Original));
        let tuples: Vec<_> = numbers.iter().map(tuple).collect();
        let found = match kernel.requests.get(&tuples) {
            Ok(found) => found,
            Err(error) => return self.lose_conntrack(&error),
        };
        for (number, found) in numbers.into_iter().zip(found) {
            let is_alive = |found: &Connection| self.is_same(number, found) && check(found).is_ok();
            if !found.as_ref().is_some_and(is_alive) {
                self.remove(number, Removal::Ended);
            }
        }
    }

    /// Compares all entries with conntrack: announcements were lost.
    ///
    /// Until the comparison is over, entries are used that may have ended. If it takes longer than they may be, all
    /// entries are stopped, and approved again one by one.
    fn compare(&mut self) {
        self.counts.resyncs += 1;
        self.look_up_all();
    }

    /// Looks whether the programs' lease has lapsed, or was revoked. Meanwhile the kernel had all packets, and programs
    /// noted of none which connection it closed, or whose acknowledgement conntrack saw.
    pub(super) fn look_for_lapse(&mut self) {
        let ports = self.terms.ports.iter().map(|port| u16::from(port.number));
        let lapsed = |port| self.counters.port(port)[Verdict::Lapsed as usize];
        let lapsed = ports.map(lapsed).fold(0, u64::wrapping_add);
        if std::mem::replace(&mut self.lapsed, lapsed) == lapsed || self.flows.is_empty() {
            return;
        }
        self.look_up_all();
        for number in self.records.live(0, u32::MAX) {
            if let Some(record) = self.records.get_mut(number) {
                // As if each direction had left a packet to the kernel.
                record.passed = record.passed.map(|count| count.wrapping_sub(1));
            }
        }
    }

    /// Takes out what conntrack does not have, or has as a connection that closes.
    fn look_up_all(&mut self) {
        for number in self.records.live(0, u32::MAX) {
            if let Some(record) = self.records.get_mut(number) {
                record.set_found(false);
            }
        }
        let Some(mut kernel) = self.conntrack.take() else { return };
        let (begin, mut is_stopped) = (Instant::now(), false);
        let dumped = kernel.requests.dump(|connection| {
            if let Some(number) = self.entry(&connection)
                && check(&connection).is_ok()
                && let Some(record) = self.records.get_mut(number)
            {
                record.set_found(true);
                if let Some(mark) = self.records.marks.get_mut(&number.0) {
                    *mark = connection.mark;
                }
            }
            if !is_stopped && begin.elapsed() > self.stale_limit {
                is_stopped = true;
                self.want_generation();
            }
        });
        self.conntrack = Some(kernel);
        if let Err(error) = dumped {
            return self.lose_conntrack(&error);
        }
        for number in self.records.live(0, u32::MAX) {
            if self.records.get(number).is_some_and(|record| !record.is_found()) {
                self.remove(number, Removal::Ended);
            }
        }
        // For marks that have changed.
        self.review_all();
    }

    /// Has the mirror's thread stop all entries.
    fn want_generation(&self) {
        lock(&self.wanted).generation = true;
        self.mirror.wake();
    }
}

/// Some 8,000 ends that are not read yet; the kernel counts 2 KiB for each.
const RECEIVE_BUFFER: usize = 16 << 20;

/// Silent connections that are looked for at each tick, at 1 us each: less than a tenth of a core's time.
const LOOKED_FOR_AT_ONCE: usize = 8192;
/// Those of them that are looked up as well, at 4 us each.
const COMPARED_AT_ONCE: usize = 256;
/// Where the kernel announces nothing, a successor would be as silent: all are looked up.
const LOOKED_UP_AT_ONCE: usize = 2048;
/// Ticks in which each of them has its turn, at the most: two seconds.
const ROUND: usize = 20;
