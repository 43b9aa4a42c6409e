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
//! | model                            | bound | executions |
//! |----------------------------------|-------|------------|
//! | a number used again, IPv4        | 3     |     91,882 |
//! | a number used again, IPv6        | 2     |     12,210 |
//! | the generation raised            | 2     |      7,458 |
//!
//! # What the models cannot show
//!
//! 1. A program's loads are ordered by the address that the load before them gave; loom has no such order. Its loads are
//!    Acquire here.
//! 2. The writer loads a place before it writes it, which hides the write from a program that was scheduled before (limit 5
//!    in `manylane-sync`'s `tests/loom.rs`). So each run of a program is a thread: one of them begins after the write.

use std::collections::HashMap;

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

/// A connection's number is used for another, whose packets have the same hash: so its place in the index gets the word
/// that was there before.
#[test]
fn a_program_follows_a_connection_whole_or_not_at_all() {
    static BEFORE: Seen = Seen::new("the program followed the first connection");
    static AFTER: Seen = Seen::new("the program followed the other, in the number of the first");
    static REFUSED: Seen = Seen::new("the number had to wait");
    let seen = [&BEFORE, &AFTER, &REFUSED];
    for is_ipv6 in [false, true] {
        let (bound, flows) = (if is_ipv6 { 2 } else { 3 }, same_hash(is_ipv6));
        explore("flows, a number used again", Some(bound), move || {
            replaced(real, Grace::Waited, Find::ByKey, flows, seen);
        });
        seen.iter().for_each(|seen| seen.assert());
    }
}

/// The generation is raised, and connections are approved anew by what is so now.
#[test]
fn no_program_follows_what_was_approved_before_the_generation_was_raised() {
    static BEFORE: Seen = Seen::new("the program followed the first approval");
    static AFTER: Seen = Seen::new("the program followed the second");
    static OVER: Seen = Seen::new("the grace period was over");
    let seen = [&BEFORE, &AFTER, &OVER];
    let flows = same_hash(false);
    explore("flows, the generation raised", BOUND, move || {
        raised(real, Raise::BeforeTheGracePeriod, flows, seen);
    });
    seen.iter().for_each(|seen| seen.assert());
}

#[test]
fn the_twin_of_the_writer_passes() {
    let flows = same_hash(false);
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
            let flows = same_hash(false);
            explore(stringify!($name), BOUND, move || $model(flows));
        }
    };
}

mutant!(
    mutant_an_index_published_before_the_entry_shows_half_of_it,
    "is not this connection's",
    |flows| replaced(
        twin(Orders { words_first: false, ..SOURCE }),
        Grace::Waited,
        Find::ByKey,
        flows,
        UNUSED
    )
);
mutant!(mutant_a_relaxed_index_shows_half_of_an_entry, "is not this connection's", |flows| {
    replaced(
        twin(Orders { publishes_index: false, ..SOURCE }),
        Grace::Waited,
        Find::ByKey,
        flows,
        UNUSED,
    )
});
mutant!(
    mutant_a_number_used_again_at_once_shows_half_of_each_connection,
    "is not this connection's",
    |flows| replaced(real, Grace::Ignored, Find::ByKey, flows, UNUSED)
);
mutant!(
    mutant_a_program_that_compares_the_hash_alone_follows_another_connection,
    "is not this connection's",
    |flows| replaced(real, Grace::Waited, Find::ByHash, flows, UNUSED)
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
    ByHash,
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

/// A table for one flow, and `control`.
fn table<F: Flows>(
    make: impl FnOnce([WordsMut<u64>; 3]) -> F,
    find: Find,
) -> (F, WordsMut<u64>, Program) {
    let words_of = words(1).map(WordsMut::zeroed);
    let [index, entries, _] = [0, 1, 2].map(|table| words_of[table].reader());
    let flows = FlowsReader::of(&words_of);
    let control = WordsMut::zeroed(control::FLOWS + 1);
    let held = Arc::new(AtomicU32::new(0));
    let program = Program { index, entries, flows, control: control.reader(), find, held };
    (make(words_of), control, program)
}

fn generation(number: u32) -> u64 {
    Required { ipv4: true, ipv6: true }.word(number)
}

/// Two connections whose originals have the same tag, and begin in the same bucket.
fn same_hash(is_ipv6: bool) -> [NewFlow; 2] {
    let mut hosts = HashMap::new();
    for host in 0.. {
        let flow = masqueraded(is_ipv6, host, 1000);
        let hash = Key::of(flow.original).hash(SEED);
        // Of two buckets, the fourth bit says which.
        if let Some(before) = hosts.insert((hash >> 32 | 1, hash & BUCKET as u64), host) {
            return [masqueraded(is_ipv6, before, 1000), flow];
        }
    }
    unreachable!("hosts are more than tags")
}

/// A program of the kernel that follows flows, as `flow_table.h` and `decide.h` have it.
#[derive(Clone)]
struct Program {
    index: Words<u64>,
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
        let other = self.flows.key(entry ^ 1);
        assert_eq!(other, Key::of(flow.reply), "the other direction is not this connection's");
        let [ingress, egress] = PORTS.map(u64::from);
        let ports = entry::TRANSLATED << 16 | egress << 8 | ingress;
        assert_eq!(state >> 32, ports, "an approval is not this connection's");
        Some(generation)
    }

    fn find(&self, key: &Key) -> Option<u32> {
        if self.find == Find::ByKey {
            return self.flows.find(key, SEED);
        }
        let tag = key.hash(SEED) >> 32 | 1;
        let word = (0..self.index.len()).map(|place| self.index.load(place));
        word.into_iter().find(|word| word >> 32 == tag).map(|word| word as u32 - 1)
    }
}

/// The words of a translation.
fn translated(from: Tuple, to: Tuple) -> [u64; 2] {
    let key = Key::of(to);
    let [addresses, ports] = differences(from, to).map(u64::from);
    let new = if to.is_ipv6() { 0 } else { key.addresses[0] };
    [new, key.ends & 0xffff_ffff | addresses << 32 | ports << 48]
}

fn real(words_of: [WordsMut<u64>; 3], domain: Domain) -> FlowsMut {
    FlowsMut::new(words_of, domain, SEED)
}

impl Flows for FlowsMut {
    fn insert(&mut self, flow: NewFlow) -> Option<FlowNumber> {
        FlowsMut::insert(self, flow).ok()
    }

    fn approve(&mut self, number: FlowNumber, generation: u32) {
        FlowsMut::approve(self, number, Direction::Original, generation, PORTS);
    }

    fn remove(&mut self, number: FlowNumber) {
        FlowsMut::remove(self, number);
    }

    fn reclaim(&mut self) -> usize {
        FlowsMut::reclaim(self)
    }
}

/// The order of the writer's stores, and which of them are Release.
#[derive(Clone, Copy)]
struct Orders {
    words_first: bool,
    publishes_index: bool,
    publishes_state: bool,
}

const SOURCE: Orders = Orders { words_first: true, publishes_index: true, publishes_state: true };

/// A writer for one flow of IPv4, whose directions have the first two places. Both buckets of the table are looked through.
struct Twin {
    index: WordsMut<u64>,
    entries: WordsMut<u64>,
    numbers: Slots,
    orders: Orders,
}

fn twin(orders: Orders) -> impl Fn([WordsMut<u64>; 3], Domain) -> Twin {
    move |[index, entries, _], domain| Twin {
        index,
        entries,
        numbers: Slots::new(1, domain, None),
        orders,
    }
}

impl Twin {
    fn write_words(&mut self, [original, reply]: [Tuple; 2]) {
        for (first, from, to) in [(0, original, reply), (ENTRY_WORDS, reply, original)] {
            let (key, [addresses, ports]) = (Key::of(from), translated(from, to.inverted()));
            self.entries.store(first + entry::ADDRESSES, key.addresses[0]);
            self.entries.store(first + entry::ENDS, key.ends);
            self.entries.store(first + entry::NEW_ADDRESSES, addresses);
            self.entries.store(first + entry::NEW_PORTS, ports);
            self.entries.store(first + entry::STATE, entry::TRANSLATED << 48);
        }
    }

    fn write_index(&mut self, tuples: [Tuple; 2]) {
        for (place, tuple) in tuples.into_iter().enumerate() {
            let tag = Key::of(tuple).hash(SEED) >> 32 | 1;
            let word = tag << 32 | (place as u64 + 1);
            match self.orders.publishes_index {
                true => self.index.publish(place, word),
                false => self.index.store(place, word),
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
            self.write_index(tuples);
        } else {
            self.write_index(tuples);
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
        self.index.publish(0, 0);
        self.index.publish(1, 0);
        self.numbers.retire(number);
    }

    fn reclaim(&mut self) -> usize {
        self.numbers.reclaim();
        let levels = self.numbers.levels();
        levels.retired + levels.in_flight
    }
}
