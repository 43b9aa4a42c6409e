//! Packed words against plain ones.

use manylane_sync::rcu::Reader;

use super::*;
use crate::fib::testing::{Random, real_prefixes};
use crate::fib::{Ipv4Prefix, Ipv4Sizes, Ipv4Tables, Ipv4Writer, Limits, NextHopId};

/// /16s that tests fill.
const SOME: usize = 3;

#[test]
fn words_set_in_any_order_are_found() {
    for seed in 0..4 {
        let mut bed = Bed::new(200, 8);
        let mut random = Random(seed);
        // Few ids make long runs, many ids make large chunks.
        let ids = [2, 7, 1 << 15, 300][seed as usize];
        for round in 0..2000 {
            if round % 50 == 0 {
                // Whole /16s, some of them alike before.
                bed.clear();
                bed.fill(3..2 * SLOTS + 1, random.below(ids) as u16);
            }
            bed.set_some(&mut random, ids);
            bed.flush();
            bed.check(|plain, found| assert_eq!(found, plain));
            if round % 3 == 0 {
                bed.reader.quiescent();
                bed.packed.reclaim();
            }
        }
        bed.clear();
        assert_eq!(bed.packed.lines.used(), 0, "all lines are free again");
    }
}

#[test]
fn where_there_is_no_room_the_kernel_is_asked_and_later_the_table() {
    let mut bed = Bed::new(9, 2);
    let mut random = Random(5);
    let mut unknown = 0;
    for round in 0..4000 {
        bed.set_some(&mut random, 1 << 14);
        bed.flush();
        // Nothing but the truth, or that it is not known; and that of whole /16s.
        let before = unknown;
        bed.check(|plain, found| {
            assert!(found == plain || found == UNKNOWN, "{found} for {plain}");
            unknown += usize::from(found == UNKNOWN);
        });
        assert!((unknown - before).is_multiple_of(SLOTS));
        if round % 4 == 0 {
            bed.reader.quiescent();
            bed.packed.reclaim();
        }
    }
    assert!(unknown > 0, "the table was too small now and then");
    // A refused chunk is written by itself once the memory has room: one /16 is removed, two fit.
    (0..SLOTS).for_each(|slot| bed.set(slot, 3));
    bed.flush();
    (SLOTS..2 * SLOTS).for_each(|slot| bed.set(slot, (slot / 2 % 16) as u16 + 1));
    (2 * SLOTS..3 * SLOTS).for_each(|slot| bed.set(slot, (slot / 32) as u16 + 1));
    bed.flush();
    bed.wait_for_all();
    bed.check(|plain, found| assert_eq!(found, plain));
    bed.clear();
    assert_eq!(bed.packed.lines.used(), 0, "all lines are free again");
}

/// I6, deterministic: the reader knows where the chunk is when the writer replaces it.
#[test]
fn a_chunk_that_a_reader_has_found_stays_as_it_was() {
    let mut bed = Bed::new(100, 1);
    bed.set(5, 7);
    bed.flush();
    let found = bed.fib.direct.load(0) & !CHUNK;
    let words = |bed: &Bed| -> Vec<u64> {
        (0..LINE_WORDS).map(|at| bed.fib.chunks.load(found as usize * LINE_WORDS + at)).collect()
    };
    let before = words(&bed);
    for round in 0..50 {
        bed.set(round * 3 + 6, 8 + round as u16);
        bed.flush();
        bed.packed.reclaim();
    }
    assert_eq!(words(&bed), before);
    // After the reader's turns the lines are used again, those too that had to wait for a place in the limbo.
    let used = bed.packed.lines.used();
    bed.wait_for_all();
    assert!(bed.packed.lines.used() < used / 4, "{} of {used}", bed.packed.lines.used());
}

#[test]
fn values_change_in_place_while_their_bounds_stay() {
    let mut bed = Bed::new(20, 4);
    (0..SLOTS).for_each(|slot| bed.set(slot, 1 + (slot / 8) as u16));
    bed.flush();
    let (line, used) = (bed.fib.direct.load(0), bed.packed.lines.used());
    for slot in 64..72 {
        bed.set(slot, 900);
    }
    bed.flush();
    assert_eq!((bed.fib.direct.load(0), bed.packed.lines.used()), (line, used));
    bed.check(|plain, found| assert_eq!(found, plain));
}

/// I6: whatever the writer does meanwhile, each answer is one that was true during the lookup.
#[test]
fn readers_see_old_or_new_words_and_nothing_else() {
    let domain = Domain::new(2);
    let mut packed = packed(60, &domain, 16);
    let mut done = WordsMut::<u16>::zeroed(1);
    // Slot s has only words that end in s: another's would show.
    let word = |slot: usize, number: u64| (number << 8) as u16 & 0x3f00 | slot as u16;
    (0..SLOTS).for_each(|slot| packed.set(slot, word(slot, 1)));
    packed.flush();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let mut reader = domain.register().expect("two are expected");
            let (fib, done) = (packed.reader(), done.reader());
            scope.spawn(move || {
                while done.load(0) == 0 {
                    for slot in 0..SLOTS {
                        let found = fib.word(slot);
                        // A run has the word of its first /24, which is a multiple of its length.
                        let of = usize::from(found & 0xff);
                        assert!(found == UNKNOWN || slot & !7 <= of && of <= slot, "{found:#x}");
                    }
                    reader.quiescent();
                }
            });
        }
        let mut random = Random(2);
        for _ in 0..30_000 {
            // Runs of 1 or of 8, so that bits come and go.
            let first = random.below(32) as usize * 8;
            let (number, is_run) = (random.below(64), random.below(2) == 0);
            for slot in first..first + 8 {
                packed.set(slot, word(if is_run { first } else { slot }, number));
            }
            packed.flush();
            packed.reclaim();
        }
        done.store(0, 1);
    });
}

/// The whole address space: the Internet's 901,899 prefixes, in both kinds of table.
#[test]
fn the_whole_table_says_the_same_and_is_small() {
    let domain = Domain::new(1);
    let mut reader = domain.register().expect("it is the only one");
    let sizes = Ipv4Sizes::for_long_routes(5000);
    let Ipv4Tables { direct, blocks, groups, ranges } = Ipv4Tables::zeroed(sizes);
    let limits = Limits { routes_max: 2_000_000, waiting_max: 64 };
    let plain = Ipv4Tables { direct, blocks, groups, ranges };
    let mut plain = Ipv4Writer::new(plain, &domain, limits);
    let Ipv4Tables { blocks, groups, ranges, .. } = Ipv4Tables::zeroed(sizes);
    let direct = PackedMut::new(WordsMut::zeroed(BLOCKS), WordsMut::zeroed(CHUNKS), &domain, 64);
    let mut packed =
        Ipv4Writer::new(Ipv4Tables { direct, blocks, groups, ranges }, &domain, limits);
    let id = |number: u64| NextHopId::new(number as u16 + 1).expect("it is not 0");
    let routes: Vec<(Ipv4Prefix, NextHopId)> =
        real_prefixes().into_iter().zip((0..).map(|number| id(number % 500))).collect();
    plain.load(routes.iter().copied()).expect("there is room");
    packed.load(routes.iter().copied()).expect("there is room");
    let (plain_fib, packed_fib) = (plain.reader(), packed.reader());
    let agree = |reader: &Reader| {
        for slot in 0..DIRECT as u32 {
            let both = [
                plain_fib.lookup(reader.guard(), slot << 8 | 77).raw(),
                packed_fib.lookup(reader.guard(), slot << 8 | 77).raw(),
            ];
            assert_eq!(both[0], both[1], "{slot:#x}");
        }
    };
    agree(&reader);
    let mut random = Random(4);
    for number in 0..20_000 {
        let (prefix, _) = routes[random.below(routes.len() as u64) as usize];
        if random.below(2) == 0 {
            let id = id(random.below(500));
            assert_eq!(plain.insert(prefix, id), packed.insert(prefix, id));
        } else {
            assert_eq!(plain.remove(prefix), packed.remove(prefix));
        }
        if number % 16 == 0 {
            reader.quiescent();
            plain.reclaim();
            packed.reclaim();
        }
    }
    let default = Ipv4Prefix::new(0.into(), 0).expect("it is a prefix");
    assert_eq!(plain.insert(default, id(7)), packed.insert(default, id(7)));
    agree(&reader);
    // With 500 next hops at random; a table of the Internet has fewer, which lie together.
    let (small, large) = (packed.bytes_used(), plain.bytes_used());
    assert!(small * 2 < large, "{small} of {large} bytes");
}

/// Some /16s, packed and plain.
struct Bed {
    packed: PackedMut,
    fib: Packed,
    plain: Vec<u16>,
    reader: Reader,
}

impl Bed {
    fn new(lines: usize, waiting_max: usize) -> Bed {
        let domain = Domain::new(1);
        let packed = packed(lines, &domain, waiting_max);
        let reader = domain.register().expect("it is the only one");
        Bed { fib: packed.reader(), packed, plain: vec![0; SOME * SLOTS], reader }
    }

    fn set(&mut self, slot: usize, word: u16) {
        self.packed.set(slot, word);
        self.plain[slot] = word;
    }

    fn fill(&mut self, slots: Range<usize>, word: u16) {
        let lists = self.packed.fill(slots.clone(), word);
        let is_list = |slot: &usize| self.plain[*slot] & LIST != 0;
        assert_eq!(lists, slots.clone().filter(is_list).collect::<Vec<_>>());
        slots.filter(|slot| !lists.contains(slot)).for_each(|slot| self.plain[slot] = word);
    }

    /// A run of any length gets a word, or each of it one of its own, now and then that of a list.
    fn set_some(&mut self, random: &mut Random, ids: u64) {
        let first = random.below((SOME * SLOTS) as u64) as usize;
        let len = 1 << random.below(9);
        let (word, is_run) = (random.below(ids) as u16, random.below(4) > 0);
        let run = first..(first + len).min(SOME * SLOTS);
        if is_run {
            return self.fill(run, word);
        }
        for slot in run {
            let list = if random.below(8) == 0 { LIST } else { 0 };
            self.set(slot, random.below(ids) as u16 | list);
        }
    }

    fn flush(&mut self) {
        self.packed.flush();
    }

    /// Grace periods for all that waits.
    fn wait_for_all(&mut self) {
        while !self.packed.limbo.is_empty() || !self.packed.unlinked.is_empty() {
            self.reader.quiescent();
            self.packed.reclaim();
        }
    }

    fn check(&self, mut compare: impl FnMut(u16, u16)) {
        for (slot, word) in self.plain.iter().enumerate() {
            compare(*word, self.fib.word(slot));
            assert_eq!(self.packed.word(slot), *word);
        }
        assert_eq!(self.fib.word(SOME * SLOTS), 0);
    }

    fn clear(&mut self) {
        (0..SOME * SLOTS).for_each(|slot| self.set(slot, 0));
        self.flush();
        self.wait_for_all();
        self.check(|plain, found| assert_eq!(found, plain));
    }
}

fn packed(lines: usize, domain: &Domain, waiting_max: usize) -> PackedMut {
    let chunks = WordsMut::zeroed(lines * LINE_WORDS + REACH);
    PackedMut::new(WordsMut::zeroed(BLOCKS), chunks, domain, waiting_max)
}
