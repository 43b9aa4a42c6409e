//! The writer of the flow table beside a program, in every interleaving at small sizes, under loom's memory model.
//!
//! ```sh
//! RUSTFLAGS="--cfg manylane_loom" CARGO_TARGET_DIR=target/loom \
//!     cargo test -p manylane-net --release --lib flows::explored
//! ```
//!
//! The writer is [`FlowsMut`], the program's side [`FlowsReader`] with the words that `flow_table.h` reads beside it. A
//! program is a reader of the domain that is online while it runs; `rcu_g_...` in `manylane-sync` has the call that waits
//! for programs. `-- --nocapture` shows the executions of each model:
//!
//! | model                             | bound | executions |
//! |-----------------------------------|-------|------------|
//! | a number used again, IPv4         | 3     |     69,566 |
//! | a number used again, IPv6         | 2     |      8,648 |
//! | a number used again, by the index | 2     |     27,730 |
//! | the generation raised             | 2     |      7,458 |
//!
//! # What the models cannot show
//!
//! 1. A program's loads are ordered by the address that the load before them gave; loom has no such order. Its loads are
//!    Acquire here.
//! 2. The writer loads a word before it writes it, which hides the write from a program that was scheduled before (limit 5
//!    in `manylane-sync`'s `tests/loom.rs`). So each run of a program is a thread: one of them begins after the write.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use manylane_sync::rcu::{Domain, Reader, Slots};
use manylane_sync::words::{Words, WordsMut};

use super::test_connections::masqueraded;
use super::translate::differences;
use super::*;
use crate::transit::layout::control;

#[path = "../../../../../tests/loom/mod.rs"]
mod model;

use model::{Seen, explore};

const SEED: u64 = 0x5eed;
const PORTS: [u8; 2] = [3, 4];

/// What the models do with the writer's side: the room's, or a twin of it.
trait Flows {
    fn insert(&mut self, flow: NewFlow) -> Option<FlowNumber>;
    fn approve(&mut self, number: FlowNumber, generation: u32);
    fn remove(&mut self, number: FlowNumber);
    fn reclaim(&mut self) -> usize;
}

/// A connection's number is used for another, whose directions have the same homes.
#[test]
fn a_program_follows_a_connection_whole_or_not_at_all() {
    static BEFORE: Seen = Seen::new("the program followed the first connection");
    static AFTER: Seen = Seen::new("the program followed the other, in the number of the first");
    static REFUSED: Seen = Seen::new("the number had to wait");
    let seen = [&BEFORE, &AFTER, &REFUSED];
    for is_ipv6 in [false, true] {
        let (bound, flows) = (if is_ipv6 { 2 } else { 3 }, same_homes(is_ipv6));
        explore("flows, a number used again", Some(bound), move || {
            replaced(real, Grace::Waited, Find::ByKey, flows, seen);
        });
        seen.iter().for_each(|seen| seen.assert());
    }
}

/// As before, in a table where another connection has the homes of both: the index leads to them.
#[test]
fn a_program_follows_a_connection_without_a_home_whole_or_not_at_all() {
    static BEFORE: Seen = Seen::new("the index led to the first connection");
    static AFTER: Seen = Seen::new("the index led to the other");
    static REFUSED: Seen = Seen::new("the number had to wait");
    let seen = [&BEFORE, &AFTER, &REFUSED];
    let flows = with_homes([0, 0], false, 1000);
    explore("flows, a number used again, by the index", BOUND, move || {
        let beside = |words, domain| Beside::new(words, domain, [0, 0]);
        replaced(beside, Grace::Waited, Find::ByKey, flows, seen);
    });
    seen.iter().for_each(|seen| seen.assert());
}

/// The generation is raised, and connections are approved anew by what is so now.
#[test]
fn no_program_follows_what_was_approved_before_the_generation_was_raised() {
    static BEFORE: Seen = Seen::new("the program followed the first approval");
    static AFTER: Seen = Seen::new("the program followed the second");
    static OVER: Seen = Seen::new("the grace period was over");
    let seen = [&BEFORE, &AFTER, &OVER];
    let flows = same_homes(false);
    explore("flows, the generation raised", BOUND, move || {
        raised(real, Raise::BeforeTheGracePeriod, flows, seen);
    });
    seen.iter().for_each(|seen| seen.assert());
}

#[test]
fn the_twin_of_the_writer_passes() {
    let flows = same_homes(false);
    explore("flows twin, a number used again", BOUND, move || {
        replaced(twin(SOURCE), Grace::Waited, Find::ByKey, flows, UNUSED);
    });
    explore("flows twin, the generation raised", BOUND, move || {
        raised(twin(SOURCE), Raise::BeforeTheGracePeriod, flows, UNUSED);
    });
}

const BOUND: Option<usize> = Some(2);

static NOTHING: Seen = Seen::new("");
const UNUSED: [&Seen; 3] = [&NOTHING; 3];

macro_rules! mutant {
    ($name:ident, $expected:literal, $model:expr) => {
        #[test]
        #[should_panic(expected = $expected)]
        fn $name() {
            let flows = same_homes(false);
            explore(stringify!($name), BOUND, move || $model(flows));
        }
    };
}

mutant!(
    mutant_ends_published_before_the_entry_show_half_of_it,
    "is not this connection's",
    |flows| replaced(
        twin(Orders { words_first: false, ..SOURCE }),
        Grace::Waited,
        Find::ByKey,
        flows,
        UNUSED
    )
);
mutant!(mutant_relaxed_ends_show_half_of_an_entry, "is not this connection's", |flows| {
    replaced(
        twin(Orders { publishes_ends: false, ..SOURCE }),
        Grace::Waited,
        Find::ByKey,
        flows,
        UNUSED,
    )
});
mutant!(
    mutant_an_entry_that_is_not_marked_is_found_after_its_grace_period,
    "is not this connection's",
    |flows| {
        replaced(twin(Orders { marks: false, ..SOURCE }), Grace::Waited, Find::ByKey, flows, UNUSED)
    }
);
mutant!(
    mutant_a_number_used_again_at_once_shows_half_of_each_connection,
    "is not this connection's",
    |flows| replaced(real, Grace::Ignored, Find::ByKey, flows, UNUSED)
);
mutant!(
    mutant_a_program_that_compares_the_ends_alone_follows_another_connection,
    "is not this connection's",
    |flows| replaced(real, Grace::Waited, Find::ByEnds, flows, UNUSED)
);
mutant!(mutant_a_relaxed_approval_hides_what_it_rests_on, "rests on something else", |flows| {
    raised(
        twin(Orders { publishes_state: false, ..SOURCE }),
        Raise::BeforeTheGracePeriod,
        flows,
        UNUSED,
    )
});
mutant!(
    mutant_a_generation_raised_during_the_grace_period_is_followed_after_it,
    "rests on something else",
    |flows| raised(real, Raise::InTheGracePeriod, flows, UNUSED)
);

/// Whether a number is used again only after a grace period.
#[derive(Clone, Copy, PartialEq)]
enum Grace {
    Waited,
    Ignored,
}

/// How the program finds an entry.
#[derive(Clone, Copy, PartialEq)]
enum Find {
    ByKey,
    ByEnds,
}

/// When the generation is raised.
#[derive(Clone, Copy, PartialEq)]
enum Raise {
    BeforeTheGracePeriod,
    InTheGracePeriod,
}

/// The program looks for the first connection, and then for the other.
fn replaced<F: Flows>(
    make: impl Fn([WordsMut<u64>; 3], Domain) -> F,
    grace: Grace,
    find: Find,
    [first, other]: [NewFlow; 2],
    [before, after, refused]: [&'static Seen; 3],
) {
    let domain = Domain::new(2);
    let readers = readers(&domain);
    let waited = if grace == Grace::Waited { domain } else { Domain::new(0) };
    let (mut flows, mut control, program) = table(|words| make(words, waited), find);
    control.store(control::FLOWS, generation(1));
    let number = flows.insert(first).expect("the table is empty");
    flows.approve(number, 1);
    let held = program.held.clone();
    for (reader, (flow, seen)) in readers.into_iter().zip([(first, before), (other, after)]) {
        let program = program.clone();
        thread::spawn(move || program.run(reader, flow, |_| seen.note()));
    }
    flows.remove(number);
    flows.reclaim();
    if flows.reclaim() > 0 {
        return refused.note();
    }
    if grace == Grace::Waited {
        assert_eq!(held.load(Ordering::Relaxed), 0, "a program holds a number that is free");
    }
    assert_eq!(flows.insert(other), Some(number));
    flows.approve(number, 1);
}

/// The program looks for one connection twice.
fn raised<F: Flows>(
    make: impl Fn([WordsMut<u64>; 3], Domain) -> F,
    raise: Raise,
    [flow, _]: [NewFlow; 2],
    [before, after, over]: [&'static Seen; 3],
) {
    let domain = Domain::new(2);
    let readers = readers(&domain);
    let (mut flows, mut control, program) = table(|words| make(words, domain.clone()), Find::ByKey);
    control.store(control::FLOWS, generation(1));
    // The generation of what the approvals rest on: routes, ports, rules.
    let basis = Arc::new(AtomicU32::new(1));
    let number = flows.insert(flow).expect("the table is empty");
    flows.approve(number, 1);
    for reader in readers {
        let (program, basis) = (program.clone(), basis.clone());
        thread::spawn(move || {
            program.run(reader, flow, |generation| {
                let basis = basis.load(Ordering::Relaxed);
                assert_eq!(basis, generation, "the approval rests on something else");
                [before, after][generation as usize - 1].note();
            });
        });
    }
    let ticket = (raise == Raise::InTheGracePeriod).then(|| domain.start());
    control.publish(control::FLOWS, generation(2));
    let ticket = ticket.unwrap_or_else(|| domain.start());
    if domain.is_over(ticket) {
        over.note();
        basis.store(2, Ordering::Relaxed);
        flows.approve(number, 2);
    }
}

/// Of two programs, which are online while they run.
fn readers(domain: &Domain) -> [Reader; 2] {
    [(); 2].map(|()| {
        let mut reader = domain.register().expect("there is room for two");
        reader.offline();
        reader
    })
}

/// A table, and `control`.
fn table<F: Flows>(
    make: impl FnOnce([WordsMut<u64>; 3]) -> F,
    find: Find,
) -> (F, WordsMut<u64>, Program) {
    let words_of = words(2).map(WordsMut::zeroed);
    let entries = words_of[1].reader();
    let flows = FlowsReader::of(&words_of);
    let control = WordsMut::zeroed(control::FLOWS + 1);
    let held = Arc::new(AtomicU32::new(0));
    let program = Program { entries, flows, control: control.reader(), find, held };
    (make(words_of), control, program)
}

fn generation(number: u32) -> u64 {
    Required { ipv4: true, ipv6: true }.word(number)
}

/// Two connections whose originals have one home, and whose replies have another.
fn same_homes(is_ipv6: bool) -> [NewFlow; 2] {
    with_homes([0, 1], is_ipv6, 1000)
}

/// Connections from this port whose directions have their homes in these halves of a table.
fn with_homes(halves: [u64; 2], is_ipv6: bool, port: u16) -> [NewFlow; 2] {
    let half = |tuple| (Key::of(tuple).hash(SEED) & 0xffff_ffff) >> 31;
    let mut flows = (0..)
        .map(|host| masqueraded(is_ipv6, host, port))
        .filter(|flow| [flow.original, flow.reply].map(half) == halves);
    [(); 2].map(|()| flows.next().expect("a quarter of all are"))
}

/// A program of the kernel that follows flows, as `flow_table.h` and `decide.h` have it.
#[derive(Clone)]
struct Program {
    entries: Words<u64>,
    flows: FlowsReader,
    control: Words<u64>,
    find: Find,
    /// How many programs have an entry.
    held: Arc<AtomicU32>,
}

impl Program {
    /// Runs once, for a packet of a flow's original direction. Says in which generation it was followed.
    fn run(&self, mut reader: Reader, flow: NewFlow, then: impl FnOnce(u32)) {
        reader.online();
        if let Some(entry) = self.find(&Key::of(flow.original)) {
            self.held.fetch_add(1, Ordering::Relaxed);
            self.follow(entry, flow).map(then);
            self.held.fetch_sub(1, Ordering::Relaxed);
        }
        reader.offline();
    }

    fn follow(&self, entry: u32, flow: NewFlow) -> Option<u32> {
        let (state, closes) = self.flows.state(entry);
        let generation = (self.control.load(control::FLOWS) >> 32) as u32;
        if closes || state as u32 != generation {
            return None;
        }
        let to = flow.reply.inverted();
        let first = entry as usize * ENTRY_WORDS;
        let new = [entry::NEW_ADDRESSES, entry::NEW_PORTS].map(|at| self.entries.load(first + at));
        assert_eq!(new, translated(flow.original, to), "a translation is not this connection's");
        let other = self.flows.key(self.flows.other(entry)).tuple();
        assert_eq!(other, flow.reply, "the other direction is not this connection's");
        let [ingress, egress] = PORTS.map(u64::from);
        let ports = entry::TRANSLATED << 16 | egress << 8 | ingress;
        assert_eq!(state >> 32, ports, "an approval is not this connection's");
        Some(generation)
    }

    fn find(&self, key: &Key) -> Option<u32> {
        if self.find == Find::ByKey {
            return self.flows.find(key, SEED);
        }
        let ends = |&entry: &u32| self.flows.key(entry).ends;
        self.flows.homes(key.hash(SEED)).into_iter().find(|entry| ends(entry) == key.ends)
    }
}

/// The words of a translation.
fn translated(from: Tuple, to: Tuple) -> [u64; 2] {
    let key = Key::of(to);
    let [addresses, ports] = differences(from, to).map(u64::from);
    let new = if to.is_ipv6() { 0 } else { key.addresses[0] };
    [new, key.ends & 0xffff_ffff | addresses << 32 | ports << 48]
}

/// The room's writer in a table for two, beside a connection that stays: that has one line of each home, so a program may
/// see few values there.
struct Beside(FlowsMut);

fn real(words_of: [WordsMut<u64>; 3], domain: Domain) -> Beside {
    Beside::new(words_of, domain, [0, 1])
}

impl Beside {
    fn new(words_of: [WordsMut<u64>; 3], domain: Domain, halves: [u64; 2]) -> Beside {
        let mut flows = FlowsMut::new(words_of, domain, SEED);
        let [stays, _] = with_homes(halves, false, 2000);
        flows.insert(stays).expect("the table is empty");
        Beside(flows)
    }
}

impl Flows for Beside {
    fn insert(&mut self, flow: NewFlow) -> Option<FlowNumber> {
        self.0.insert(flow).ok()
    }

    fn approve(&mut self, number: FlowNumber, generation: u32) {
        self.0.approve(number, Direction::Original, generation, PORTS);
    }

    fn remove(&mut self, number: FlowNumber) {
        self.0.remove(number);
    }

    fn reclaim(&mut self) -> usize {
        self.0.reclaim()
    }
}

/// The order of the writer's stores, and which of them are Release.
#[derive(Clone, Copy)]
struct Orders {
    words_first: bool,
    publishes_ends: bool,
    publishes_state: bool,
    /// Whether an entry is marked when its flow is taken out.
    marks: bool,
}

const SOURCE: Orders =
    Orders { words_first: true, publishes_ends: true, publishes_state: true, marks: true };

/// A writer for one flow of IPv4, whose directions have the first line of each home.
struct Twin {
    entries: WordsMut<u64>,
    numbers: Slots,
    orders: Orders,
}

fn twin(orders: Orders) -> impl Fn([WordsMut<u64>; 3], Domain) -> Twin {
    move |[_, entries, _], domain| Twin { entries, numbers: Slots::new(1, domain, None), orders }
}

impl Twin {
    fn write_words(&mut self, tuples: [Tuple; 2]) {
        for side in [0, 1] {
            let [from, to] = [tuples[side], tuples[1 - side].inverted()];
            let (key, [addresses, ports]) = (Key::of(from), translated(from, to));
            let first = side * 2 * ENTRY_WORDS;
            self.entries.store(first + entry::ADDRESSES, key.addresses[0]);
            self.entries.store(first + entry::NEW_ADDRESSES, addresses);
            self.entries.store(first + entry::NEW_PORTS, ports);
            self.entries.store(first + entry::STATE, entry::TRANSLATED << 48);
        }
    }

    fn write_ends(&mut self, tuples: [Tuple; 2]) {
        for side in [0, 1] {
            let word = Key::of(tuples[side]).ends | (2 - 2 * side as u64) << entry::OTHER_FROM;
            let at = side * 2 * ENTRY_WORDS + entry::ENDS;
            match self.orders.publishes_ends {
                true => self.entries.publish(at, word),
                false => self.entries.store(at, word),
            }
        }
    }
}

impl Flows for Twin {
    fn insert(&mut self, flow: NewFlow) -> Option<FlowNumber> {
        let number = self.numbers.take()?;
        let tuples = [flow.original, flow.reply];
        if self.orders.words_first {
            self.write_words(tuples);
            self.write_ends(tuples);
        } else {
            self.write_ends(tuples);
            self.write_words(tuples);
        }
        Some(FlowNumber(number))
    }

    fn approve(&mut self, _: FlowNumber, generation: u32) {
        let [ingress, egress] = PORTS.map(u64::from);
        let word = entry::TRANSLATED << 48 | egress << 40 | ingress << 32 | u64::from(generation);
        match self.orders.publishes_state {
            true => self.entries.publish(entry::STATE, word),
            false => self.entries.store(entry::STATE, word),
        }
    }

    fn remove(&mut self, FlowNumber(number): FlowNumber) {
        for at in [entry::ENDS, 2 * ENTRY_WORDS + entry::ENDS] {
            if self.orders.marks {
                self.entries.store(at, self.entries.load(at) | entry::REMOVED);
            }
        }
        self.numbers.retire(number);
    }

    fn reclaim(&mut self) -> usize {
        self.numbers.reclaim();
        let levels = self.numbers.levels();
        levels.retired + levels.in_flight
    }
}
