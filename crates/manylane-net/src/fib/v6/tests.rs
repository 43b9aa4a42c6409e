//! The IPv6 table against an oracle (`prefix-trie`), and against the definition where that is little.

use std::collections::BTreeMap;

use manylane_sync::rcu::{Domain, Reader};
use manylane_sync::words::wide::Batch;
use prefix_trie::PrefixMap;

use super::*;
use crate::fib::testing::{Random, real_prefixes};
use crate::fib::{EditError, Ipv6Prefix, Limits, NextHopId};

#[test]
fn every_boundary_of_a_small_table_agrees_with_the_definition() {
    let mut random = Random(1);
    let mut fixture = Fixture::new(200);
    let mut routes = BTreeMap::new();
    for _ in 0..80 {
        let prefix = containing(place(&mut random, 6), random_len(&mut random));
        let id = id(random.below(5) + 1);
        routes.insert(prefix, id);
        fixture.insert(prefix, id);
    }
    for addr in routes.keys().copied().flat_map(around) {
        let matching = routes.iter().filter(|(prefix, _)| prefix.contains(addr.into()));
        let longest = matching.max_by_key(|(prefix, _)| prefix.len());
        assert_eq!(fixture.raw(addr), longest.map_or(0, |(_, id)| id.raw()), "{addr:#x}");
    }
}

#[test]
fn edits_in_any_order_agree_with_the_oracle() {
    for seed in 0..4 {
        let mut random = Random(seed);
        let mut fixture = Fixture::new(4000);
        let mut known: Vec<Ipv6Prefix> = Vec::new();
        // Few places pile everything up, many spread it.
        let places = [2, 20, 500, 5000][seed as usize];
        for round in 0..1500 {
            let prefix = match random.below(3) {
                0 if !known.is_empty() => known[random.below(known.len() as u64) as usize],
                _ => containing(place(&mut random, places), random_len(&mut random)),
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
    let (mut loaded, mut inserted) = (Fixture::new(3000), Fixture::new(3000));
    let routes: Vec<_> = (0..3000)
        .map(|_| {
            let prefix = containing(place(&mut random, 1000), random_len(&mut random));
            (prefix, id(random.below(100) + 1))
        })
        .collect();
    loaded.load(&routes);
    for &(prefix, id) in &routes {
        inserted.insert(prefix, id);
    }
    loaded.check_all(&mut random);
    inserted.check_all(&mut random);
    assert!(loaded.writer.routes().eq(inserted.writer.routes()));
    let not_empty = EditError::NotEmpty { routes: loaded.writer.routes_len() };
    assert_eq!(loaded.writer.load([]), Err(not_empty));
    // What was loaded can be edited.
    for (prefix, _) in routes.iter().step_by(3) {
        loaded.remove(*prefix);
    }
    loaded.check_all(&mut random);
    loaded.remove_all_and_check_that_nothing_is_left();
}

/// Up to 129 prefixes around an address: they come, change and go, inside out and outside in.
#[test]
fn nested_prefixes_of_every_length_agree() {
    let mut fixture = Fixture::new(1000);
    let mut random = Random(4);
    let global = 0x2001_0db8_0000_0000_u128 << 64;
    let centres = [0, u128::MAX, 0x1fff_u128 << 112, global | 1, (0x2002_u128 << 112) - 1];
    for turn in 0..4u8 {
        for &centre in &centres {
            for step in 0..=128 {
                let len = if turn % 2 == 0 { step } else { 128 - step };
                let prefix = containing(centre, len);
                if turn < 3 {
                    fixture.insert(prefix, id(u64::from(len) + 1 + u64::from(turn) * 200));
                } else {
                    fixture.remove(prefix);
                }
                fixture.check_at(centre);
                fixture.check_around(prefix);
            }
        }
        fixture.check_all(&mut random);
    }
    fixture.remove_all_and_check_that_nothing_is_left();
}

/// One tree of 16,000 intervals over lower halves, one over upper halves, and a default over them.
#[test]
fn host_routes_in_one_64_and_in_as_many_64s_are_exact() {
    let mut random = Random(5);
    let base = 0x2001_0db8_u128 << 96;
    for spread in [0xffff_ffff_u128, 0xffff_ffff << 64] {
        let routes: Vec<_> = (0..8_000)
            .map(|number| {
                let bits = u128::from(random.next()) << 64 | u128::from(random.next());
                (containing(base | bits & spread, 128), id(number % 500 + 1))
            })
            .collect();
        let mut fixture = Fixture::new(20_000);
        fixture.load(&routes);
        let used = fixture.writer.words_used();
        fixture.insert(containing(0, 0), id(9));
        assert_eq!(fixture.writer.words_used(), used, "a default route takes no memory");
        fixture.check_all(&mut random);
        for (prefix, _) in routes.iter().take(3) {
            fixture.remove(*prefix);
            fixture.check_around(*prefix);
        }
        fixture.remove(containing(0, 0));
        fixture.check_all(&mut random);
    }
}

#[test]
fn scattered_host_routes_are_exact() {
    let mut random = Random(6);
    let mut fixture = Fixture::new(40_000); // Each takes two lines of leaves.
    let routes: Vec<_> = (0..20_000)
        .map(|number| {
            let bits = u128::from(random.next()) << 64 | u128::from(random.next());
            (containing(bits, 128), id(number % 500 + 1))
        })
        .collect();
    fixture.load(&routes);
    fixture.check_all(&mut random);
}

/// Deep and wide: 300,000 host routes at random, as many in one /48, and all /64s of a /48.
#[test]
fn large_adversarial_tables_are_exact() {
    let mut random = Random(11);
    let count = if cfg!(debug_assertions) { 20_000 } else { 300_000 };
    let base = 0x2001_0db8_0001_u128 << 80;
    let bits = |random: &mut Random| u128::from(random.next()) << 64 | u128::from(random.next());
    for mask in [u128::MAX, u128::MAX >> 48, (1 << 80) - (1 << 64), u128::MAX >> 111] {
        let len = if mask == (1 << 80) - (1 << 64) { 64 } else { 128 };
        let routes: Vec<_> = (0..count)
            .map(|number| {
                let bits = bits(&mut random) & mask | base & !mask;
                (containing(bits, len), id(number % 500 + 1))
            })
            .collect();
        let mut fixture = Fixture::new(2 * count as usize);
        fixture.load(&routes);
        fixture.check_all(&mut random);
        for &(prefix, _) in routes.iter().step_by(count as usize / 500) {
            fixture.remove(prefix);
            fixture.check_around(prefix);
        }
        for &(prefix, id) in routes.iter().step_by(count as usize / 400) {
            fixture.insert(prefix, id);
            fixture.check_around(prefix);
        }
    }
}

/// Reaching a bound changes nothing, and what was refused goes through later.
#[test]
fn a_busy_or_full_table_refuses_and_stays_as_it_was() {
    let sizes = Ipv6Sizes { direct: DIRECT, index: 0, leaves: 4 * FAR_WORDS };
    let mut fixture = Fixture::with(sizes, 2, 100);
    let host = |low: u128| containing(0x2001_u128 << 112 | low, 128);
    let raw = |fixture: &Fixture, low: u128| fixture.raw(0x2001_u128 << 112 | low);
    fixture.writer.insert(host(1), id(1)).expect("two leaves: the bucket's and the /64's");
    fixture.writer.insert(host(5), id(2)).expect("a new leaf for the /64");
    assert_eq!((raw(&fixture, 1), raw(&fixture, 5), raw(&fixture, 3)), (1, 2, 0));
    // No reader was quiescent: one place is left in the limbo, and an edit wants two.
    let busy = EditError::Busy { waiting: 1, waiting_max: 2 };
    assert_eq!(fixture.writer.insert(host(9), id(3)), Err(busy.clone()));
    assert_eq!(fixture.writer.remove(host(1)), Err(busy));
    assert_eq!(fixture.writer.routes_len(), 2);
    // Short routes and other next hops need no room.
    fixture.writer.insert(containing(0, 0), id(8)).expect("in place");
    fixture.writer.insert(host(5), id(4)).expect("in place");
    assert_eq!((raw(&fixture, 1), raw(&fixture, 5), raw(&fixture, 3)), (1, 4, 8));

    fixture.reader.quiescent();
    fixture.writer.insert(containing(0x30 << 120, 48), id(5)).expect("another bucket, one leaf");
    fixture.writer.insert(containing(0x31 << 120, 48), id(6)).expect("another bucket, one leaf");
    let full = fixture.writer.insert(host(9), id(3));
    assert_eq!(full, Err(EditError::Full { table: "index", words: 0, wanted: 16 }));
    assert_eq!((raw(&fixture, 9), raw(&fixture, 5)), (8, 4));
    // Taking away goes always: here the trees keep their boundaries.
    assert_eq!(fixture.writer.remove(host(1)), Ok(Some(id(1))));
    assert_eq!((raw(&fixture, 1), raw(&fixture, 5)), (8, 4));
    assert_eq!(fixture.writer.remove(host(5)), Ok(Some(id(4))));
    assert_eq!(raw(&fixture, 5), 8);
    fixture.retire_and_reclaim();
    assert_eq!(fixture.writer.words_used(), (0, 2 * FAR_WORDS), "the two other buckets");
}

/// The last host route of a /64 goes while its bucket has no room for a new tree.
#[test]
fn a_64_without_host_routes_becomes_plain_in_a_full_table() {
    let sizes = Ipv6Sizes { direct: DIRECT, index: 0, leaves: 2 * FAR_WORDS };
    let mut fixture = Fixture::with(sizes, 4, 100);
    let network = containing(0x2001_u128 << 112, 48);
    let host = containing(0x2001_u128 << 112 | 1, 128);
    fixture.load(&[(network, id(1)), (host, id(2))]);
    assert_eq!(fixture.writer.words_used(), (0, 2 * FAR_WORDS));
    fixture.remove(host);
    fixture.check_around(host);
    fixture.retire_and_reclaim();
    assert_eq!(fixture.writer.words_used(), (0, FAR_WORDS));
    // The boundaries that stayed do no harm to what comes next.
    fixture.insert(containing(0, 0), id(3));
    fixture.insert(network, id(4));
    fixture.check_around(host);
    fixture.check_around(network);
    fixture.remove_all_and_check_that_nothing_is_left();
}

#[test]
fn a_load_that_does_not_fit_leaves_an_empty_table() {
    let sizes = Ipv6Sizes { direct: DIRECT, index: 0, leaves: 8 * FAR_WORDS };
    let mut fixture = Fixture::with(sizes, 2, 5);
    let hosts = |count: u128| (0..count).map(|number| (containing(number << 112 | 1, 128), id(1)));
    assert!(matches!(fixture.writer.load(hosts(5)), Err(EditError::Full { table: "leaves", .. })));
    let many = EditError::TooManyRoutes { routes_max: 5 };
    assert_eq!(fixture.writer.load(hosts(6)), Err(many.clone()));
    assert_eq!((fixture.writer.routes_len(), fixture.writer.words_used()), (0, (0, 0)));
    assert_eq!(fixture.raw(1), 0);
    assert_eq!(fixture.writer.load(hosts(4)), Ok(4));
    assert_eq!((fixture.raw(1), fixture.raw(2), fixture.raw(3 << 112 | 1)), (1, 0, 1));
    fixture.writer.insert(containing(0, 0), id(2)).expect("the fifth");
    assert_eq!(fixture.writer.insert(containing(0, 1), id(2)), Err(many));
}

/// I6, deterministic: the reader has read one or two words when the writer replaces what lies behind.
#[test]
fn a_reader_that_stopped_on_its_way_finds_the_old_route() {
    let mut fixture = Fixture::with(Ipv6Sizes::for_routes(2000), 1000, 1000);
    let addr = 0x2001_0db8_u128 << 96 | 7;
    fixture.writer.insert(containing(addr, 48), id(1)).expect("room");
    fixture.writer.insert(containing(addr, 128), id(2)).expect("room");
    let upper_half = fixture.fib.direct.load(bucket(upper(addr)));
    let walk = |fixture: &Fixture, way: u32, key: u64, pos: u32| {
        tree::walk(&fixture.fib.index, &fixture.fib.leaves, way, key, key << pos)
    };
    let lower_half = walk(&fixture, upper_half, upper(addr), BUCKET_LEN);
    assert_eq!((upper_half & tree::LEAF, lower_half & HOST), (tree::LEAF, HOST));

    fixture.writer.remove(containing(addr, 128)).expect("room");
    for low in 0..40 {
        fixture.writer.insert(containing(addr ^ low << 4, 128), id(3)).expect("room");
        fixture.writer.insert(containing(addr ^ low << 68, 64), id(4)).expect("room");
    }
    assert_eq!(walk(&fixture, lower_half, lower(addr), 0), 2);
    assert_eq!(walk(&fixture, upper_half, upper(addr), BUCKET_LEN), lower_half);
    assert_eq!(fixture.raw(addr), 3);

    // After a turn of the reader all of it is used again.
    let (_, used) = fixture.writer.words_used();
    fixture.retire_and_reclaim();
    assert!(fixture.writer.words_used().1 < used / 2);
}

/// I6: whatever the writer does meanwhile, each answer is one that was true during the lookup.
#[test]
fn a_reader_sees_the_old_or_the_new_route_and_nothing_else() {
    let domain = Domain::new(2);
    let mut writer = Ipv6Writer::new(
        Ipv6Tables::zeroed(Ipv6Sizes::for_routes(3000)),
        &domain,
        Limits::default(),
    );
    writer.insert(containing(0x2000 << 112, 20), id(1)).expect("room");
    let base = 0x2000_0001_u128 << 96;
    let mut done = WordsMut::<u16>::zeroed(1);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let mut reader = domain.register().expect("two are expected");
            let (fib, done) = (writer.reader(), done.reader());
            scope.spawn(move || {
                while done.load(0) == 0 {
                    // More than once: as many are looked up side by side.
                    let addrs: [u128; 24] = std::array::from_fn(|place| {
                        let number = place as u128 % 6;
                        base | (number / 3) << 64 | number
                    });
                    let mut ids = [0; 24];
                    fib.lookup_batch(reader.guard(), &addrs, &mut ids);
                    for (place, raw) in (0..).zip(ids) {
                        let number = place % 6;
                        let single = fib.lookup(reader.guard(), addrs[place as usize]).raw();
                        // 1 or 2: the /20; 3: a /40 or /64; 4 + number: the host route.
                        for raw in [raw, single as u16] {
                            assert!((1..=3).contains(&raw) || raw == 4 + number, "{number}: {raw}");
                        }
                    }
                    reader.quiescent();
                }
            });
        }
        let mut random = Random(8);
        for round in 0..20_000 {
            let number = random.below(8);
            let (prefix, id) = match number {
                6 => (containing(base, 40), id(3)),
                7 => (containing(base, 64), id(3)),
                _ => (
                    containing(base | u128::from(number / 3) << 64 | u128::from(number), 128),
                    id(4 + number),
                ),
            };
            let edit = if random.below(2) == 0 {
                writer.insert(prefix, id)
            } else {
                writer.remove(prefix)
            };
            assert!(matches!(edit, Ok(_) | Err(EditError::Busy { .. })), "{edit:?}");
            if round % 10 == 0 {
                let id = self::id(1 + round / 10 % 2);
                writer.insert(containing(0x2000 << 112, 20), id).expect("in place");
            }
        }
        done.store(0, 1);
    });
}

/// 160,147 prefixes, in 4 MiB.
#[test]
fn the_internets_table_agrees_with_the_oracle() {
    let mut random = Random(9);
    let prefixes = real_prefixes::<Ipv6Prefix>();
    let routes: Vec<_> = prefixes.into_iter().zip((0..).map(|n| id(n % 500 + 1))).collect();
    let mut fixture = Fixture::new(routes.len());
    fixture.load(&routes);
    let bytes = fixture.writer.bytes_used();
    assert!(bytes <= 4 << 20, "{bytes} bytes");
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

/// What a BPF program does: loops of a fixed length over words, shifts and masks, nothing else.
#[test]
fn loops_of_a_fixed_length_find_the_same() {
    let mut fixture = Fixture::new(3000);
    let mut random = Random(12);
    for number in 0..3000 {
        let prefix = containing(place(&mut random, 200), random_len(&mut random));
        fixture.insert(prefix, id(number % 500 + 1));
    }
    let half = |mut way: u32, key: u64, mut left: u64| {
        way &= !(1 << 29);
        for _ in 0..16 {
            if way >> 29 & 3 != 2 {
                break;
            }
            let stride = way >> 24 & 15;
            let first = (way & 0xff_ffff) * 16;
            way = fixture.fib.index.load(first as usize + (left >> (64 - stride)) as usize);
            left <<= stride;
        }
        if way >> 31 & !(way >> 29) & 1 == 1 {
            let first = (way & 0xff_ffff) as usize * 4;
            let leaf = |word: usize| fixture.fib.leaves.load(first + word);
            let mut number = 0;
            if way >> 28 & 1 == 1 {
                for key in 0..7 {
                    let last = leaf(key / 4) >> (key % 4 * 16) & 0xffff;
                    number += usize::from(last < left >> 48);
                }
                return (leaf(2 + number / 4) >> (number % 4 * 16)) as u32 & 0xffff;
            }
            for word in 0..5 {
                number += usize::from(leaf(word) < key);
            }
            way = (leaf(5 + number / 2) >> (number % 2 * 32)) as u32;
        }
        way
    };
    for _ in 0..20_000 {
        let addr = place(&mut random, 200);
        let (upper, lower) = (upper(addr), lower(addr));
        let bucket = (upper >> 48) as usize;
        let way = half(fixture.fib.direct.load(bucket), upper, upper << 16);
        let found = if way >> 29 & 1 == 1 { half(way, lower, lower) } else { way };
        assert_eq!(found, fixture.raw(addr).into(), "{addr:#034x}");
    }
}

#[test]
fn a_batch_answers_as_single_lookups_do() {
    let mut fixture = Fixture::new(1000);
    let mut random = Random(10);
    for number in 0..1000 {
        let prefix = containing(place(&mut random, 20), random_len(&mut random));
        fixture.insert(prefix, id(number + 1));
    }
    let addrs: Vec<u128> = (0..200).map(|_| place(&mut random, 20)).collect();
    let ids = fixture.batch(&addrs);
    for (&addr, &raw) in addrs.iter().zip(&ids) {
        fixture.fib.prefetch(addr);
        assert_eq!(raw, fixture.raw(addr));
    }
    assert!(ids.iter().any(|&raw| raw > 1));
}

/// A writer, a reader and the oracle, edited alike.
struct Fixture {
    writer: Ipv6Writer,
    fib: Ipv6Fib,
    reader: Reader,
    oracle: PrefixMap<(u128, u8), u16>,
}

impl Fixture {
    fn new(routes: usize) -> Fixture {
        Fixture::with(Ipv6Sizes::for_routes(routes), 64, 1_000_000)
    }

    fn with(sizes: Ipv6Sizes, waiting_max: usize, routes_max: usize) -> Fixture {
        let domain = Domain::new(1);
        let limits = Limits { routes_max, waiting_max };
        let writer = Ipv6Writer::new(Ipv6Tables::zeroed(sizes), &domain, limits);
        Fixture {
            fib: writer.reader(),
            writer,
            reader: domain.register().expect("it is the only one"),
            oracle: PrefixMap::new(),
        }
    }

    fn insert(&mut self, prefix: Ipv6Prefix, id: NextHopId) {
        let old = self.patiently(|writer| writer.insert(prefix, id));
        let expected = self.oracle.insert((prefix.addr().to_bits(), prefix.len()), id.raw());
        assert_eq!(old.map(NextHopId::raw), expected, "{prefix}");
    }

    fn remove(&mut self, prefix: Ipv6Prefix) {
        let old = self.patiently(|writer| writer.remove(prefix));
        let expected = self.oracle.remove(&(prefix.addr().to_bits(), prefix.len()));
        assert_eq!(old.map(NextHopId::raw), expected, "{prefix}");
    }

    fn load(&mut self, routes: &[(Ipv6Prefix, NextHopId)]) {
        for (prefix, id) in routes {
            self.oracle.insert((prefix.addr().to_bits(), prefix.len()), id.raw());
        }
        assert_eq!(self.writer.load(routes.iter().copied()), Ok(self.oracle.iter().count()));
    }

    /// Repeats a busy edit after two turns of the reader, as the control thread does.
    fn patiently<T>(&mut self, edit: impl Fn(&mut Ipv6Writer) -> Result<T, EditError>) -> T {
        match edit(&mut self.writer) {
            Err(EditError::Busy { .. }) => {
                self.retire_and_reclaim();
                edit(&mut self.writer).expect("the grace period is over")
            }
            answer => answer.expect("the tables are large enough"),
        }
    }

    fn raw(&self, addr: u128) -> u16 {
        self.fib.lookup(self.reader.guard(), addr).raw() as u16
    }

    /// What all kinds of batch find; they agree.
    fn batch(&self, addrs: &[u128]) -> Vec<u16> {
        let mut ids = vec![0; addrs.len()];
        self.fib.lookup_batch(self.reader.guard(), addrs, &mut ids);
        for len in [3, 9, 15, 31] {
            for (addrs, ids) in addrs.chunks(len).zip(ids.chunks(len)) {
                let mut others = vec![0; addrs.len()];
                self.fib.lookup_batch(self.reader.guard(), addrs, &mut others);
                assert_eq!(ids, others);
            }
        }
        let mut others = vec![0; addrs.len()];
        for (addrs, ids) in addrs.chunks(STAGE).zip(others.chunks_mut(STAGE)) {
            Stage { fib: &self.fib, addrs, ids }.scalar();
        }
        assert_eq!(ids, others);
        ids
    }

    fn check_at(&self, addr: u128) {
        let expected = self.oracle.get_lpm(&(addr, 128)).map_or(0, |(_, &raw)| raw);
        assert_eq!(self.raw(addr), expected, "{addr:#034x}");
    }

    fn check_around(&self, prefix: Ipv6Prefix) {
        let addrs = around(prefix);
        addrs.into_iter().for_each(|addr| self.check_at(addr));
        assert_eq!(self.batch(&addrs), addrs.map(|addr| self.raw(addr)));
    }

    /// Of a large table, a sample; all of it in release builds.
    fn check_all(&self, random: &mut Random) {
        let is_sampled = cfg!(debug_assertions) && self.writer.routes_len() > 100_000;
        for (prefix, _) in self.writer.routes().step_by(if is_sampled { 37 } else { 1 }) {
            self.check_around(prefix);
        }
        for _ in 0..2000 {
            self.check_at(place(random, 1 << 20));
        }
        self.check_inside(random, if cfg!(debug_assertions) { 2000 } else { 500_000 });
        let addr = place(random, 1);
        let route = self.writer.lookup(addr.into()).map_or(0, |(_, id)| id.raw());
        assert_eq!(route, self.raw(addr));
        assert_eq!(self.writer.routes_len(), self.oracle.iter().count());
    }

    /// Addresses in the table's prefixes, `count` of them, in batches of all sizes.
    fn check_inside(&self, random: &mut Random, count: usize) {
        let prefixes: Vec<Ipv6Prefix> = self.writer.routes().map(|(prefix, _)| prefix).collect();
        let mut left = count;
        while left > 0 && !prefixes.is_empty() {
            let len = (1 + random.below(80) as usize).min(left);
            let addrs: Vec<u128> = (0..len)
                .map(|_| {
                    let prefix = prefixes[random.below(prefixes.len() as u64) as usize];
                    let host = u128::from(random.next()) << 64 | u128::from(random.next());
                    prefix.addr().to_bits()
                        | host & (prefix.addr().to_bits() ^ prefix.last().to_bits())
                })
                .collect();
            let expected =
                |&addr: &u128| self.oracle.get_lpm(&(addr, 128)).map_or(0, |(_, &raw)| raw);
            assert_eq!(self.batch(&addrs), addrs.iter().map(expected).collect::<Vec<_>>());
            left -= len;
        }
    }

    /// Two turns: what was retired during a grace period waits for the next.
    fn retire_and_reclaim(&mut self) {
        for _ in 0..2 {
            self.reader.quiescent();
            self.writer.reclaim();
        }
    }

    fn remove_all_and_check_that_nothing_is_left(&mut self) {
        let prefixes: Vec<Ipv6Prefix> = self.writer.routes().map(|(prefix, _)| prefix).collect();
        for prefix in prefixes {
            self.remove(prefix);
        }
        self.retire_and_reclaim();
        assert_eq!(self.writer.words_used(), (0, 0));
        for bucket in 0..DIRECT {
            assert_eq!(self.fib.direct.load(bucket), 0, "{bucket}");
        }
    }
}

fn id(raw: u64) -> NextHopId {
    NextHopId::new(raw as u16).expect("tests use small ids")
}

fn containing(addr: u128, len: u8) -> Ipv6Prefix {
    Ipv6Prefix::containing(addr.into(), len).expect("the length is at most 128")
}

/// Where a prefix begins and ends, one address before and after, and one inside.
fn around(prefix: Ipv6Prefix) -> [u128; 5] {
    let (first, last) = (prefix.addr().to_bits(), prefix.last().to_bits());
    [first.wrapping_sub(1), first, last, last.wrapping_add(1), last / 2 + first / 2]
}

/// An address in one of `places` small /64s; all at the same few buckets.
fn place(random: &mut Random, places: u64) -> u128 {
    let number = random.below(places);
    let top = [0x2001_0db8, 0x2a00_0001, 0x3fff_ffff, 0xfd00_0000][number as usize % 4];
    let upper = top << 32 | (number / 4).wrapping_mul(0x0001_0003) & 0xffff_ffff;
    u128::from(upper) << 64 | u128::from(random.below(4) << 62 | random.below(64))
}

/// Any length, those of routes more often; short ones paint whole tables.
fn random_len(random: &mut Random) -> u8 {
    match random.below(40) {
        0 => random.below(17) as u8,
        1..4 => 17 + random.below(8) as u8,
        4..24 => 25 + random.below(40) as u8,
        _ => 65 + random.below(64) as u8,
    }
}
