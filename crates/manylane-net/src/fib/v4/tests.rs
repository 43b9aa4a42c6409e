//! The IPv4 table against an oracle (`prefix-trie`), and against every address where that is few.

use std::collections::BTreeMap;

use manylane_sync::rcu::{Domain, Reader};
use prefix_trie::PrefixMap;

use super::*;
use crate::fib::testing::{Random, real_prefixes};
use crate::fib::{EditError, Ipv4Prefix, Limits, NextHopId};

/// Most tests have a table of the first /8: clearing 2^24 words in each of them would take long.
const SMALL: u64 = 1 << 24;

#[test]
fn every_address_of_a_small_table_agrees_with_the_definition() {
    let mut random = Random(1);
    let mut fixture = Fixture::small(64);
    // A /16 has 2^16 addresses: try them all, with a linear search for the longest match.
    let mut routes = BTreeMap::new();
    for _ in 0..60 {
        let len = 14 + random.below(19) as u8;
        let prefix = containing(random.below(1 << 16) as u32, len);
        let id = id(random.below(5) + 1);
        routes.insert(prefix, id);
        fixture.insert(prefix, id);
    }
    for addr in 0..1 << 16 {
        let matching = routes.iter().filter(|(prefix, _)| prefix.contains(addr.into()));
        let longest = matching.max_by_key(|(prefix, _)| prefix.len());
        assert_eq!(fixture.raw(addr), longest.map_or(0, |(_, id)| id.raw()), "{addr:#x}");
    }
}

#[test]
fn edits_in_any_order_agree_with_the_oracle() {
    for seed in 0..6 {
        let mut random = Random(seed);
        let mut fixture = Fixture::small(4000);
        let mut known: Vec<Ipv4Prefix> = Vec::new();
        // Dense seeds pile everything on a few /24s, sparse ones spread it.
        let spread = [1 << 10, 1 << 17, SMALL][seed as usize % 3];
        for round in 0..3000 {
            let prefix = match random.below(3) {
                0 if !known.is_empty() => known[random.below(known.len() as u64) as usize],
                _ => containing(random.below(spread) as u32, random_len(&mut random)),
            };
            if random.below(5) < 2 {
                fixture.remove(prefix);
            } else {
                fixture.insert(prefix, id(random.below(7) + 1));
                known.push(prefix);
            }
            fixture.check_around(prefix);
            if round % 500 == 0 {
                fixture.check_all(&mut random);
            }
        }
        fixture.check_all(&mut random);
        fixture.remove_all_and_check_that_nothing_is_left();
    }
}

#[test]
fn a_load_agrees_with_the_oracle_and_with_single_inserts() {
    let mut random = Random(3);
    let mut loaded = Fixture::small(10_000);
    let mut inserted = Fixture::small(10_000);
    let routes: Vec<_> = (0..10_000)
        .map(|_| {
            let len = if random.below(2) == 0 { 32 } else { random_len(&mut random) };
            (containing(random.below(SMALL) as u32, len), id(random.below(100) + 1))
        })
        .collect();
    loaded.load(&routes);
    for &(prefix, id) in &routes {
        inserted.insert(prefix, id);
    }
    loaded.check_all(&mut random);
    inserted.check_all(&mut random);
    assert!(loaded.writer.routes().eq(inserted.writer.routes()));
    assert_eq!(
        loaded.writer.load([]),
        Err(EditError::NotEmpty { routes: loaded.writer.routes_len() })
    );
    // What was loaded can be edited.
    for (prefix, _) in routes.iter().step_by(3) {
        loaded.remove(*prefix);
    }
    loaded.check_all(&mut random);
    loaded.remove_all_and_check_that_nothing_is_left();
}

/// Every address has up to 33 prefixes around it: they come, change and go, inside out and outside in.
#[test]
fn nested_prefixes_of_every_length_agree() {
    let mut fixture = Fixture::small(400);
    let mut random = Random(4);
    let centres = [0, 1, 0x00ff_ffff, 0x0080_0000, 0x0012_34ff];
    for turn in 0..4u8 {
        for &centre in &centres {
            for step in 0..=32 {
                let len = if turn % 2 == 0 { step } else { 32 - step };
                let prefix = containing(centre, len);
                if turn < 3 {
                    fixture.insert(prefix, id(u64::from(len) + 1 + u64::from(turn) * 40));
                } else {
                    fixture.remove(prefix);
                }
                fixture.check_at(centre);
                fixture.check_around(prefix);
            }
            fixture.check_all(&mut random);
        }
    }
    fixture.remove_all_and_check_that_nothing_is_left();
}

/// A /16 whose /24s all have a list of 256 entries: the largest list, and the largest directory.
#[test]
fn a_full_slash_16_of_host_routes_is_exact() {
    let mut fixture = Fixture::small(1 << 16);
    let block = 0x0042_0000;
    let routes: Vec<_> = (0..1 << 16)
        .map(|low| (containing(block | low, 32), id(u64::from(low) % 1000 + 1)))
        .collect();
    fixture.load(&routes);
    for low in 0..1 << 16 {
        assert_eq!(fixture.raw(block | low), (low % 1000 + 1) as u16);
    }
    let mut random = Random(5);
    for _ in 0..300 {
        fixture.remove(containing(block | random.below(1 << 16) as u32, 32));
    }
    fixture.insert(containing(block, 0), id(7));
    fixture.check_all(&mut random);
}

#[test]
fn scattered_host_routes_and_a_default_over_them_are_exact() {
    let mut fixture = Fixture::small(20_000);
    let mut random = Random(6);
    let routes: Vec<_> = (0..20_000)
        .map(|number| (containing(random.below(SMALL) as u32, 32), id(number % 500 + 1)))
        .collect();
    fixture.load(&routes);
    let lists = fixture.writer.words_used();
    // The default route owns the rest of each list, and takes no memory for it.
    fixture.insert(containing(0, 0), id(9));
    assert_eq!(fixture.writer.words_used(), lists);
    fixture.check_all(&mut random);
    fixture.remove(containing(0, 0));
    fixture.check_all(&mut random);
}

/// Reaching a bound changes nothing, and what was refused goes through later.
#[test]
fn a_busy_or_full_table_refuses_and_stays_as_it_was() {
    let mut fixture = Fixture::with(Ipv4Sizes { groups: 8, ranges: 16, ..small_sizes(0) }, 2, 100);
    let (one, other) = (containing(0x100, 32), containing(0x105, 32));
    fixture.writer.insert(one, id(1)).expect("it is the first"); // 3 words
    fixture.writer.insert(other, id(2)).expect("there is room"); // 5, and 3 wait
    assert_eq!((fixture.raw(0x100), fixture.raw(0x105)), (1, 2));
    // No reader was quiescent: one place is left in the limbo, and an edit wants two.
    let busy = EditError::Busy { waiting: 1, waiting_max: 2 };
    assert_eq!(fixture.writer.insert(containing(0x107, 32), id(3)), Err(busy.clone()));
    assert_eq!(fixture.writer.remove(one), Err(busy));
    assert_eq!(fixture.writer.routes_len(), 2);
    // Short routes and other next hops need no room.
    fixture.writer.insert(containing(0, 8), id(8)).expect("in place");
    fixture.writer.insert(other, id(4)).expect("in place");
    assert_eq!((fixture.raw(0x100), fixture.raw(0x105), fixture.raw(0x106)), (1, 4, 8));

    fixture.reader.quiescent();
    fixture.writer.insert(containing(0x200, 32), id(5)).expect("3 words more");
    fixture.reader.quiescent();
    let full = fixture.writer.insert(containing(0x107, 32), id(3));
    assert_eq!(full, Err(EditError::Full { table: "ranges", words: 16, wanted: 7 }));
    assert_eq!((fixture.raw(0x107), fixture.raw(0x105)), (8, 4));
    // Taking away goes always: here the list keeps its boundaries.
    assert_eq!(fixture.writer.insert(containing(0x300, 31), id(1)), Ok(None));
    assert_eq!(fixture.writer.remove(other), Ok(Some(id(4))));
    assert_eq!((fixture.raw(0x100), fixture.raw(0x105)), (1, 8));
    assert_eq!(fixture.writer.remove(one), Ok(Some(id(1))));
    assert_eq!(fixture.raw(0x100), 8);
    fixture.retire_and_reclaim();
    assert_eq!(fixture.writer.words_used(), (4, 8), "the lists of 0.0.2.0/24 and 0.0.3.0/24");
}

#[test]
fn a_load_that_does_not_fit_leaves_an_empty_table() {
    let mut fixture = Fixture::with(Ipv4Sizes { groups: 8, ranges: 16, ..small_sizes(0) }, 2, 5);
    let hosts = |count: u32| (0..count).map(|number| (containing(number << 8, 32), id(1)));
    assert!(matches!(fixture.writer.load(hosts(5)), Err(EditError::Full { table: "ranges", .. })));
    let many = EditError::TooManyRoutes { routes_max: 5 };
    assert_eq!(fixture.writer.load(hosts(6)), Err(many.clone()));
    assert_eq!((fixture.writer.routes_len(), fixture.writer.words_used()), (0, (0, 0)));
    assert_eq!(fixture.raw(0), 0);
    assert_eq!(fixture.writer.load(hosts(4)), Ok(4));
    assert_eq!((fixture.raw(0), fixture.raw(1), fixture.raw(0x300)), (1, 0, 1));
    fixture.writer.insert(containing(0, 0), id(2)).expect("the fifth");
    assert_eq!(fixture.writer.insert(containing(0, 1), id(2)), Err(many));
}

/// The numbers of /24s, directories and lists are used again while readers are slow.
#[test]
fn lists_that_come_and_go_within_a_grace_period_stay_apart() {
    let mut fixture = Fixture::with(small_sizes(2000), 1000, 100);
    for round in 0..200 {
        for slot in 0..3 {
            let prefix = containing(slot << 8 | 7, 32);
            fixture.writer.insert(prefix, id(round * 3 + u64::from(slot) + 1)).expect("room");
            assert_eq!(fixture.raw(slot << 8 | 7), (round * 3) as u16 + slot as u16 + 1);
            assert_eq!(fixture.raw(slot << 8 | 6), 0);
            if slot > 0 {
                fixture.writer.remove(prefix).expect("room");
                assert_eq!(fixture.raw(slot << 8 | 7), 0);
            }
        }
        if round % 50 == 49 {
            fixture.reader.quiescent();
        }
    }
    fixture.oracle.insert((7, 32), id(598).raw());
    fixture.remove_all_and_check_that_nothing_is_left();
}

/// I6, deterministic: the reader has read one word when the writer replaces all that lies behind it.
#[test]
fn a_reader_that_stopped_after_its_first_word_finds_the_old_route() {
    let mut fixture = Fixture::with(small_sizes(2000), 1000, 1000);
    let addr = 0x0042_0107;
    let host = containing(addr, 32);
    fixture.writer.insert(host, id(1)).expect("room");
    let word = fixture.fib.direct.load(addr as usize >> 8);
    assert_ne!(word & LIST, 0);

    // The /24's list and number are freed; others are added in this /16, more than its directory holds.
    fixture.writer.remove(host).expect("room");
    for slot in 2..40 {
        fixture.writer.insert(containing(0x0042_0000 | slot << 8 | 7, 32), id(2)).expect("room");
    }
    fixture.writer.insert(containing(0, 0), id(3)).expect("in place");
    assert_eq!(fixture.fib.find_in_list(addr, word & !LIST), 1);
    assert_eq!(fixture.raw(addr), 3);

    // After a turn of the reader all of it is used again.
    let used = fixture.writer.words_used();
    fixture.retire_and_reclaim();
    let (groups, ranges) = fixture.writer.words_used();
    assert!(groups < used.0 && ranges < used.1);
}

/// I6: whatever the writer does meanwhile, each answer is one that was true during the lookup.
#[test]
fn a_reader_sees_the_old_or_the_new_route_and_nothing_else() {
    let domain = Domain::new(2);
    let mut writer = Ipv4Writer::over(zeroed_small(small_sizes(3000)), &domain, Limits::default());
    writer.insert(containing(0, 0), id(1)).expect("room");
    let mut done = WordsMut::<u16>::zeroed(1);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let mut reader = domain.register().expect("two are expected");
            let (fib, done) = (writer.reader(), done.reader());
            scope.spawn(move || {
                while done.load(0) == 0 {
                    for addr in [0x107u32, 0x108, 0x1ff, 0x2340] {
                        let raw = fib.lookup(reader.guard(), addr).raw();
                        // 1 or 2: the default; 3: the /24 or /25; 4 + last byte: the host route.
                        let host = 4 + (addr & 0xff);
                        assert!((1..=3).contains(&raw) || raw == host, "{raw} for {addr:#x}");
                    }
                    reader.quiescent();
                }
            });
        }
        let mut random = Random(8);
        let prefixes = [
            (containing(0x107, 32), id(4 + 7)),
            (containing(0x108, 32), id(4 + 8)),
            (containing(0x1ff, 32), id(4 + 0xff)),
            (containing(0x2340, 32), id(4 + 0x40)),
            (containing(0x100, 24), id(3)),
            (containing(0x100, 25), id(3)),
            (containing(0x2300, 24), id(3)),
        ];
        let mut busy = 0;
        for round in 0..20_000 {
            let (prefix, id) = prefixes[random.below(7) as usize];
            let edit = if random.below(2) == 0 {
                writer.insert(prefix, id)
            } else {
                writer.remove(prefix)
            };
            match edit {
                Ok(_) => (),
                Err(EditError::Busy { .. }) => busy += 1,
                Err(error) => panic!("{error}"),
            }
            if round % 2000 == 0 {
                writer.insert(containing(0, 0), self::id(1 + round / 2000 % 2)).expect("in place");
            }
        }
        done.store(0, 1);
        assert!(busy < 20_000);
    });
}

/// The whole address space: the Internet's 901,899 prefixes, and both ends of the table.
#[test]
fn the_whole_table_agrees_with_the_oracle() {
    let mut fixture =
        Fixture::new(Ipv4Tables::zeroed(Ipv4Sizes::for_long_routes(5000)), 4096, 2_000_000, true);
    let mut random = Random(9);
    let prefixes = real_prefixes::<Ipv4Prefix>();
    let ends = [(containing(u32::MAX, 32), id(501)), (containing(0, 32), id(502))];
    let routes = prefixes.into_iter().zip((0..).map(|n| id(n % 500 + 1)));
    let routes: Vec<_> = routes.chain(ends).collect();
    fixture.load(&routes);
    fixture.check_all(&mut random);
    for _ in 0..1000 {
        let (prefix, _) = routes[random.below(routes.len() as u64) as usize];
        if random.below(2) == 0 {
            fixture.remove(prefix);
        } else {
            fixture.insert(prefix, id(random.below(500) + 1));
        }
        fixture.check_around(prefix);
    }
    fixture.insert(containing(0, 0), id(600));
    fixture.check_all(&mut random);
}

/// 300,000 host routes at random, and all prefixes of one /16, from itself to its addresses.
#[test]
fn large_adversarial_tables_are_exact() {
    let mut random = Random(11);
    let count = if cfg!(debug_assertions) { 20_000 } else { 300_000 };
    let scattered: Vec<_> = (0..count)
        .map(|number| (containing(random.next() as u32, 32), id(number % 500 + 1)))
        .collect();
    let len_max = if cfg!(debug_assertions) { 28 } else { 32 };
    let nested: Vec<_> = (16..=len_max)
        .flat_map(|len| (0..1u32 << (len - 16)).map(move |number| (len, number)))
        .map(|(len, number)| {
            let addr = 0xc633_0000 | number.checked_shl(32 - u32::from(len)).unwrap_or(0);
            (containing(addr, len), id(u64::from(number) % 500 + u64::from(len)))
        })
        .collect();
    for routes in [scattered, nested] {
        let sizes = Ipv4Sizes::for_long_routes(routes.len());
        let mut fixture = Fixture::new(Ipv4Tables::zeroed(sizes), 64, routes.len(), true);
        fixture.load(&routes);
        fixture.check_all(&mut random);
        let some = routes.iter().step_by(routes.len() / 500);
        for &(prefix, _) in some.clone() {
            fixture.remove(prefix);
            fixture.check_around(prefix);
        }
        for &(prefix, id) in some.rev() {
            fixture.insert(prefix, id);
            fixture.check_around(prefix);
        }
        fixture.check_all(&mut random);
    }
}

#[test]
fn a_batch_answers_as_single_lookups_do() {
    let mut fixture = Fixture::small(1000);
    let mut random = Random(10);
    for number in 0..1000 {
        fixture.insert(
            containing(random.below(1 << 14) as u32, random_len(&mut random)),
            id(number + 1),
        );
    }
    let addrs: Vec<u32> = (0..200).map(|_| random.below(1 << 14) as u32).collect();
    let mut ids = vec![0; 200];
    fixture.fib.lookup_batch(fixture.reader.guard(), &addrs, &mut ids);
    for (&addr, &raw) in addrs.iter().zip(&ids) {
        assert_eq!(raw, fixture.raw(addr));
    }
}

/// A writer, a reader and the oracle, edited alike.
struct Fixture {
    writer: Ipv4Writer,
    fib: Ipv4Fib,
    reader: Reader,
    oracle: PrefixMap<(u32, u8), u16>,
    /// Addresses above are not in the table.
    end: u64,
}

impl Fixture {
    fn small(long_routes: usize) -> Fixture {
        Fixture::with(small_sizes(long_routes), 64, 1_000_000)
    }

    fn with(sizes: Ipv4Sizes, waiting_max: usize, routes_max: usize) -> Fixture {
        Fixture::new(zeroed_small(sizes), waiting_max, routes_max, false)
    }

    fn new(tables: Ipv4Tables, waiting_max: usize, routes_max: usize, whole: bool) -> Fixture {
        let domain = Domain::new(1);
        let limits = Limits { routes_max, waiting_max };
        let writer = if whole {
            Ipv4Writer::new(tables, &domain, limits)
        } else {
            Ipv4Writer::over(tables, &domain, limits)
        };
        Fixture {
            fib: writer.reader(),
            writer,
            reader: domain.register().expect("it is the only one"),
            oracle: PrefixMap::new(),
            end: if whole { 1 << 32 } else { SMALL },
        }
    }

    fn insert(&mut self, prefix: Ipv4Prefix, id: NextHopId) {
        let old = self.patiently(|writer| writer.insert(prefix, id));
        let expected = self.oracle.insert((prefix.addr().to_bits(), prefix.len()), id.raw());
        assert_eq!(old.map(NextHopId::raw), expected, "{prefix}");
    }

    fn remove(&mut self, prefix: Ipv4Prefix) {
        let old = self.patiently(|writer| writer.remove(prefix));
        let expected = self.oracle.remove(&(prefix.addr().to_bits(), prefix.len()));
        assert_eq!(old.map(NextHopId::raw), expected, "{prefix}");
    }

    fn load(&mut self, routes: &[(Ipv4Prefix, NextHopId)]) {
        for (prefix, id) in routes {
            self.oracle.insert((prefix.addr().to_bits(), prefix.len()), id.raw());
        }
        assert_eq!(self.writer.load(routes.iter().copied()), Ok(self.oracle.iter().count()));
    }

    /// Repeats a busy edit after two turns of the reader, as the control thread does.
    fn patiently<T>(&mut self, edit: impl Fn(&mut Ipv4Writer) -> Result<T, EditError>) -> T {
        match edit(&mut self.writer) {
            Err(EditError::Busy { .. }) => {
                self.retire_and_reclaim();
                edit(&mut self.writer).expect("the grace period is over")
            }
            answer => answer.expect("the tables are large enough"),
        }
    }

    fn raw(&self, addr: u32) -> u16 {
        self.fib.lookup(self.reader.guard(), addr).raw() as u16
    }

    fn check_at(&self, addr: u32) {
        if u64::from(addr) < self.end {
            let expected = self.oracle.get_lpm(&(addr, 32)).map_or(0, |(_, &raw)| raw);
            assert_eq!(self.raw(addr), expected, "{addr:#010x}");
            let route = self.writer.lookup(addr.into());
            assert_eq!(route.map_or(0, |(_, id)| id.raw()), expected, "{addr:#010x}");
        }
    }

    fn check_around(&self, prefix: Ipv4Prefix) {
        let (first, last) = (prefix.addr().to_bits(), prefix.last().to_bits());
        for addr in [first.wrapping_sub(1), first, last, last.wrapping_add(1), last / 2 + first / 2]
        {
            self.check_at(addr);
        }
    }

    /// Of a large table, a sample; all of it in release builds.
    fn check_all(&self, random: &mut Random) {
        let is_sampled = cfg!(debug_assertions) && self.writer.routes_len() > 100_000;
        for (prefix, _) in self.writer.routes().step_by(if is_sampled { 37 } else { 1 }) {
            self.check_around(prefix);
        }
        for _ in 0..if cfg!(debug_assertions) { 2000 } else { 500_000 } {
            self.check_at(random.below(self.end) as u32);
        }
        assert_eq!(self.writer.routes_len(), self.oracle.iter().count());
    }

    /// Two turns: what was retired during a grace period waits for the next.
    fn retire_and_reclaim(&mut self) {
        for _ in 0..2 {
            self.reader.quiescent();
            self.writer.reclaim();
        }
    }

    fn remove_all_and_check_that_nothing_is_left(&mut self) {
        let prefixes: Vec<Ipv4Prefix> = self.writer.routes().map(|(prefix, _)| prefix).collect();
        for prefix in prefixes {
            self.remove(prefix);
        }
        self.retire_and_reclaim();
        assert_eq!(self.writer.words_used(), (0, 0));
        for slot in 0..self.fib.direct.len() {
            assert_eq!(self.fib.direct.load(slot), 0, "{slot}");
        }
    }
}

fn id(raw: u64) -> NextHopId {
    NextHopId::new(raw as u16).expect("tests use small ids")
}

fn containing(addr: u32, len: u8) -> Ipv4Prefix {
    Ipv4Prefix::containing(addr.into(), len).expect("the length is at most 32")
}

/// Any length, the longer ones more often; short ones paint whole tables.
fn random_len(random: &mut Random) -> u8 {
    match random.below(40) {
        0 => random.below(17) as u8,
        1..12 => 16 + random.below(9) as u8,
        _ => 24 + random.below(9) as u8,
    }
}

fn small_sizes(long_routes: usize) -> Ipv4Sizes {
    let sizes = Ipv4Sizes::for_long_routes(long_routes);
    Ipv4Sizes { direct: (SMALL >> 8) as usize, ..sizes }
}

fn zeroed_small(sizes: Ipv4Sizes) -> Ipv4Tables {
    Ipv4Tables::zeroed(sizes)
}
