//! How fast is the longest match, how large are its tables, and what do updates cost?
//!
//! | figure (both families)   | what is done                                                         |
//! |--------------------------|----------------------------------------------------------------------|
//! | `*_lookup_random_ns`     | batches of 32; 2^20 addresses, each inside a prefix drawn evenly      |
//! | `*_lookup_same_ns`       | the same for one address                                             |
//! | `*_ns_b1`                | the same one by one                                                  |
//! | `*_prefix_trie_ns`, `*_treebitmap_ns` | the same addresses in the published crates, one by one: they have no batches |
//! | `*_over_best_trie`       | the faster of the two / `*_lookup_random_ns`                          |
//! | `*_lookup_mib`           | what lookups may read: tables, as far as they are used                |
//! | `*_rib_mib`              | what the writer keeps beside them, counted by the allocator           |
//! | `*_build_s`              | an empty table to a full one                                         |
//! | `*_updates_per_s`        | edits as fast as they go while a reader looks up at full speed        |
//! | `*_updates_slow`         | how much slower that reader is, in percent                           |
//! | `*_updates_slow_200k`    | the same at 200,000 edits a second                                   |
//!
//! An edit is about a route drawn evenly: one that is there is withdrawn, or gets another next hop; one
//! that was withdrawn comes back. The reader is quiescent after each batch of 32; it is compared with
//! itself beside a thread that only counts, before and after, so that both cores are busy each time.
//!
//! DPDK's figures for the same prefixes and addresses drawn alike come from a program of its own.
//!
//! Not asked here: more than one reader, tables in BPF maps.
//!
//! Needs two cores with nothing else on them.

use std::hint::black_box;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ip_network_table_deps_treebitmap::IpLookupTable;
use manylane_frame::mapping::Mapping;
use manylane_net::fib::{
    EditError, Ipv4Fib, Ipv4Prefix, Ipv4Sizes, Ipv4Tables, Ipv4Writer, Ipv6Fib, Ipv6Prefix,
    Ipv6Sizes, Ipv6Tables, Ipv6Writer, Limits, NextHopId,
};
use manylane_sync::rcu::{Domain, Guard, Reader};
use prefix_trie::PrefixMap;

use crate::baseline::calls;
use crate::figure::{Output, Rounds};
use crate::prefixes::{Draw, Prefixes, Random};
use crate::threads::{Slice, Team, Watch};

/// How to measure.
pub struct Plan {
    /// The table, if not synthetic.
    pub prefixes: Option<PathBuf>,
    /// Short slices that always count.
    pub quick: bool,
    /// How many rounds.
    pub runs: usize,
    /// The cores, if not the last two.
    pub cores: Option<[usize; 2]>,
    /// `lookup`, `updates`, or both when it is empty.
    pub only: String,
}

const TARGETS: usize = 1 << 20;
const BATCH: usize = 32;
const NEXT_HOPS: usize = 256;
/// Long enough for most of the targets, short enough for a busy machine.
const SLICE: Duration = Duration::from_millis(40);
const RATE: u64 = 200_000;
const MIB: f64 = 1024.0 * 1024.0;

/// Measures and prints.
pub fn run(plan: &Plan, output: &Output) -> io::Result<()> {
    let prefixes = match &plan.prefixes {
        Some(file) => Prefixes::read(file)?,
        None => Prefixes::synthetic(),
    };
    let mut team = Team::new(plan.cores, plan.quick)?;
    team.shorten(SLICE);
    let (ipv4, ipv6) = (prefixes.ipv4.len(), prefixes.ipv6.len());
    output.note(&format!("{ipv4} IPv4 and {ipv6} IPv6 prefixes; cores {:?}", team.cores()));

    let mut rounds = Rounds::default();
    let runs = plan.runs.max(3);
    let mut ipv4 = Lab::<V4>::new(prefixes.ipv4, &mut rounds)?;
    let mut ipv6 = Lab::<V6>::new(prefixes.ipv6, &mut rounds)?;
    for run in 0..=runs {
        let mut warm = Rounds::default();
        let rounds = if run == 0 { &mut warm } else { &mut rounds };
        if plan.only != "updates" {
            ipv4.lookups(&mut team, rounds)?;
            ipv6.lookups(&mut team, rounds)?;
        }
        if plan.only != "lookup" {
            ipv4.updates(&mut team, rounds)?;
            ipv6.updates(&mut team, rounds)?;
        }
    }
    output.figure("slices_refused", "count", &[team.refused() as f64]);
    rounds.print(output)
}

/// What differs between the families.
trait Family {
    const NAME: &str;
    type Prefix: Copy + Send + Sync;
    type Addr: Copy + Send + Sync;
    type Writer: Send;
    type Fib: Clone + Send + Sync;
    type Tries: Send + Sync;

    fn writer(domain: &Domain) -> io::Result<Self::Writer>;
    fn load(
        writer: &mut Self::Writer,
        routes: &[(Self::Prefix, NextHopId)],
    ) -> Result<usize, EditError>;
    fn insert(
        writer: &mut Self::Writer,
        prefix: Self::Prefix,
        id: NextHopId,
    ) -> Result<(), EditError>;
    fn remove(writer: &mut Self::Writer, prefix: Self::Prefix) -> Result<(), EditError>;
    fn reclaim(writer: &mut Self::Writer);
    fn fib(writer: &Self::Writer) -> Self::Fib;
    /// Bytes of the tables, as far as they are used.
    fn bytes(writer: &Self::Writer) -> usize;
    fn draw(prefixes: &[Self::Prefix], random: &mut Random) -> Self::Addr;
    fn lookup(fib: &Self::Fib, guard: Guard<'_>, addr: Self::Addr) -> u32;
    fn lookup_batch(fib: &Self::Fib, guard: Guard<'_>, addrs: &[Self::Addr], ids: &mut [u16]);
    fn tries(routes: &[(Self::Prefix, NextHopId)]) -> Self::Tries;
    fn prefix_trie(tries: &Self::Tries, addr: Self::Addr) -> u32;
    fn treebitmap(tries: &Self::Tries, addr: Self::Addr) -> u32;
}

/// A full table, and who looks up.
struct Lab<F: Family> {
    domain: Domain,
    fib: F::Fib,
    churn: Mutex<Churn<F>>,
    tries: F::Tries,
    random: Vec<F::Addr>,
    same: Vec<F::Addr>,
}

/// Who edits.
struct Churn<F: Family> {
    writer: F::Writer,
    routes: Vec<(F::Prefix, NextHopId)>,
    is_there: Vec<bool>,
    random: Random,
}

impl<F: Family> Lab<F> {
    fn new(prefixes: Vec<F::Prefix>, rounds: &mut Rounds) -> io::Result<Lab<F>> {
        let mut random = Random(7);
        let routes: Vec<_> =
            prefixes.iter().map(|&prefix| (prefix, hop(random.below(NEXT_HOPS)))).collect();
        let domain = Domain::new(2);
        let before = calls::held();
        let mut writer = F::writer(&domain)?;
        let start = Instant::now();
        F::load(&mut writer, &routes).map_err(io::Error::other)?;
        let took = start.elapsed().as_secs_f64();
        let rib = calls::held_since(before);
        let name = F::NAME;
        rounds.push(&format!("{name}_build_s"), "s", Some(took));
        rounds.push(&format!("{name}_lookup_mib"), "MiB", Some(F::bytes(&writer) as f64 / MIB));
        rounds.push(&format!("{name}_rib_mib"), "MiB", Some(rib as f64 / MIB));

        let mut random = Random(88_172_645_463_325_252);
        let targets: Vec<_> = (0..TARGETS).map(|_| F::draw(&prefixes, &mut random)).collect();
        let lab = Lab {
            fib: F::fib(&writer),
            tries: F::tries(&routes),
            same: vec![targets[0]; BATCH],
            random: targets,
            churn: Mutex::new(Churn {
                writer,
                is_there: vec![true; routes.len()],
                routes,
                random: Random(3),
            }),
            domain,
        };
        lab.check()?;
        Ok(lab)
    }

    /// What is measured is right: all three agree.
    fn check(&self) -> io::Result<()> {
        let reader = self.domain.register().map_err(io::Error::other)?;
        let mut ids = [0; BATCH];
        for addrs in self.random.chunks(BATCH) {
            F::lookup_batch(&self.fib, reader.guard(), addrs, &mut ids[..addrs.len()]);
            for (&addr, &id) in addrs.iter().zip(&ids) {
                let one = F::lookup(&self.fib, reader.guard(), addr);
                let others = [F::prefix_trie(&self.tries, addr), F::treebitmap(&self.tries, addr)];
                if [one, others[0], others[1]] != [u32::from(id); 3] {
                    let name = F::NAME;
                    return Err(io::Error::other(format!("{name}: {id}, {one}, {others:?}")));
                }
            }
        }
        Ok(())
    }

    fn lookups(&mut self, team: &mut Team, rounds: &mut Rounds) -> io::Result<()> {
        let name = F::NAME;
        let mut push = |what: &str, slice: Option<Slice>| {
            rounds.push(&format!("{name}_{what}"), "ns", slice.map(|slice| slice.ns()));
        };
        for (what, addrs) in [("random", &self.random), ("same", &self.same)] {
            let slice = team.slice(1, |_, lap| {
                let reader = self.reader();
                let mut batches = addrs.chunks_exact(BATCH).cycle();
                lap.run_of(BATCH as u64, || self.batch(&reader, &mut batches))
            })?;
            push(&format!("lookup_{what}_ns"), slice);
            let one = |addr, reader: &Reader| F::lookup(&self.fib, reader.guard(), addr);
            push(&format!("lookup_{what}_ns_b1"), self.one_by_one(team, addrs, one)?);
        }
        let trie = |addr, _: &Reader| F::prefix_trie(&self.tries, addr);
        push("prefix_trie_ns", self.one_by_one(team, &self.random, trie)?);
        let trie = |addr, _: &Reader| F::treebitmap(&self.tries, addr);
        push("treebitmap_ns", self.one_by_one(team, &self.random, trie)?);
        let [own, one, other] = ["lookup_random_ns", "prefix_trie_ns", "treebitmap_ns"]
            .map(|what| rounds.last(&format!("{name}_{what}")));
        let best = one.zip(other).map(|(one, other)| one.min(other));
        let over = best.zip(own).map(|(best, own)| best / own);
        rounds.push(&format!("{name}_over_best_trie"), "x", over);
        Ok(())
    }

    fn one_by_one(
        &self,
        team: &mut Team,
        addrs: &[F::Addr],
        lookup: impl Fn(F::Addr, &Reader) -> u32 + Sync,
    ) -> io::Result<Option<Slice>> {
        team.slice(1, |_, lap| {
            let reader = self.reader();
            let mut batches = addrs.chunks_exact(BATCH).cycle();
            lap.run_of(BATCH as u64, || {
                for &addr in batches.next().expect("it never ends") {
                    black_box(lookup(addr, &reader));
                }
            })
        })
    }

    #[inline(always)]
    fn batch<'a>(&self, reader: &Reader, batches: &mut impl Iterator<Item = &'a [F::Addr]>)
    where
        F: 'a,
    {
        let mut ids = [0; BATCH];
        let addrs = batches.next().expect("it never ends");
        F::lookup_batch(&self.fib, reader.guard(), addrs, &mut ids);
        black_box(ids);
    }

    fn updates(&mut self, team: &mut Team, rounds: &mut Rounds) -> io::Result<()> {
        let name = F::NAME;
        let count = |watch: &mut Stretch<'_>| {
            let mut done = 0;
            while !watch.is_over() {
                done = black_box(done + 1);
            }
            done
        };
        let before = self.beside(team, count)?;
        let paced = self.beside(team, |watch| {
            let mut churn = self.churn();
            let mut done = 0;
            while !watch.is_over() {
                if done * 1_000_000_000 < RATE * watch.elapsed_ns() {
                    done += churn.edit();
                }
            }
            done
        })?;
        let full = self.beside(team, |watch| {
            let mut churn = self.churn();
            let mut done = 0;
            while !watch.is_over() {
                for _ in 0..16 {
                    done += churn.edit();
                }
            }
            done
        })?;
        let after = self.beside(team, count)?;
        let reader = |slice: &Option<Slice>| slice.as_ref().map(|slice| slice.of(0).ns());
        let alone = reader(&before).zip(reader(&after)).map(|(one, other)| (one + other) / 2.0);
        let slower = |slice| {
            let pair = reader(slice).zip(alone);
            pair.map(|(with, without)| (with / without - 1.0) * 100.0)
        };
        rounds.push(&format!("{name}_updates_slow_200k"), "%", slower(&paced));
        rounds.push(&format!("{name}_updates_slow"), "%", slower(&full));
        let rate = |slice: Option<Slice>| slice.map(|slice| 1e9 / slice.of(1).ns());
        rounds.push(&format!("{name}_updates_paced_per_s"), "/s", rate(paced));
        rounds.push(&format!("{name}_updates_per_s"), "/s", rate(full));
        Ok(())
    }

    /// A reader at full speed beside what `other` does, which says how much it did.
    fn beside(
        &self,
        team: &mut Team,
        other: impl Fn(&mut Stretch<'_>) -> u64 + Sync,
    ) -> io::Result<Option<Slice>> {
        let length = team.slice_length();
        team.slice(2, |thread, lap| {
            if thread == 0 {
                let mut reader = self.reader();
                let mut batches = self.random.chunks_exact(BATCH).cycle();
                return lap.run_of(BATCH as u64, || {
                    self.batch(&reader, &mut batches);
                    reader.quiescent();
                });
            }
            let mut watch = lap.start();
            let done = other(&mut Stretch { watch: &mut watch, length, elapsed: Duration::ZERO });
            watch.share(done)
        })
    }

    fn reader(&self) -> Reader {
        self.domain.register().expect("two are expected, and the last slice's are gone")
    }

    fn churn(&self) -> MutexGuard<'_, Churn<F>> {
        self.churn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A slice, to whoever does not repeat something of one length.
struct Stretch<'a> {
    watch: &'a mut Watch,
    length: Duration,
    elapsed: Duration,
}

impl Stretch<'_> {
    fn is_over(&mut self) -> bool {
        self.elapsed = self.watch.look();
        self.elapsed >= self.length
    }

    fn elapsed_ns(&self) -> u64 {
        self.elapsed.as_nanos() as u64
    }
}

impl<F: Family> Churn<F> {
    /// One edit; 0 when it has to wait for a grace period.
    fn edit(&mut self) -> u64 {
        let number = self.random.below(self.routes.len());
        let (prefix, id) = self.routes[number];
        let edited = if !self.is_there[number] {
            F::insert(&mut self.writer, prefix, id).map(|()| self.is_there[number] = true)
        } else if self.random.next() & 1 == 0 {
            F::remove(&mut self.writer, prefix).map(|()| self.is_there[number] = false)
        } else {
            let id = hop(self.random.below(NEXT_HOPS));
            F::insert(&mut self.writer, prefix, id).map(|()| self.routes[number].1 = id)
        };
        match edited {
            Ok(()) => 1,
            Err(EditError::Busy { .. }) => {
                F::reclaim(&mut self.writer);
                0
            }
            Err(error) => panic!("the tables are large enough: {error}"),
        }
    }
}

fn hop(number: usize) -> NextHopId {
    NextHopId::new(number as u16 + 1).expect("256 are few")
}

enum V4 {}

impl Family for V4 {
    const NAME: &str = "ipv4";
    type Prefix = Ipv4Prefix;
    type Addr = u32;
    type Writer = Ipv4Writer;
    type Fib = Ipv4Fib;
    type Tries = (PrefixMap<(u32, u8), u32>, IpLookupTable<Ipv4Addr, u32>);

    fn writer(domain: &Domain) -> io::Result<Ipv4Writer> {
        let sizes = Ipv4Sizes::for_long_routes(65_536);
        let tables = Ipv4Tables {
            direct: Mapping::words(sizes.direct)?,
            blocks: Mapping::words(sizes.blocks)?,
            groups: Mapping::words(sizes.groups)?,
            ranges: Mapping::words(sizes.ranges)?,
        };
        Ok(Ipv4Writer::new(tables, domain, Limits::default()))
    }

    fn load(
        writer: &mut Ipv4Writer,
        routes: &[(Ipv4Prefix, NextHopId)],
    ) -> Result<usize, EditError> {
        writer.load(routes.iter().copied())
    }

    fn insert(writer: &mut Ipv4Writer, prefix: Ipv4Prefix, id: NextHopId) -> Result<(), EditError> {
        writer.insert(prefix, id).map(|_| ())
    }

    fn remove(writer: &mut Ipv4Writer, prefix: Ipv4Prefix) -> Result<(), EditError> {
        writer.remove(prefix).map(|_| ())
    }

    fn reclaim(writer: &mut Ipv4Writer) {
        writer.reclaim();
    }

    fn fib(writer: &Ipv4Writer) -> Ipv4Fib {
        writer.reader()
    }

    fn bytes(writer: &Ipv4Writer) -> usize {
        writer.bytes_used()
    }

    fn draw(prefixes: &[Ipv4Prefix], random: &mut Random) -> u32 {
        prefixes.draw(random)
    }

    #[inline(always)]
    fn lookup(fib: &Ipv4Fib, guard: Guard<'_>, addr: u32) -> u32 {
        fib.lookup(guard, addr).raw()
    }

    #[inline(always)]
    fn lookup_batch(fib: &Ipv4Fib, guard: Guard<'_>, addrs: &[u32], ids: &mut [u16]) {
        fib.lookup_batch(guard, addrs, ids);
    }

    fn tries(routes: &[(Ipv4Prefix, NextHopId)]) -> Self::Tries {
        let mut tries = (PrefixMap::new(), IpLookupTable::new());
        for (prefix, id) in routes {
            tries.0.insert((prefix.addr().to_bits(), prefix.len()), id.raw().into());
            tries.1.insert(prefix.addr(), prefix.len().into(), id.raw().into());
        }
        tries
    }

    #[inline(always)]
    fn prefix_trie(tries: &Self::Tries, addr: u32) -> u32 {
        tries.0.get_lpm(&(addr, 32)).map_or(0, |(_, &id)| id)
    }

    #[inline(always)]
    fn treebitmap(tries: &Self::Tries, addr: u32) -> u32 {
        tries.1.longest_match(addr.into()).map_or(0, |(_, _, &id)| id)
    }
}

enum V6 {}

impl Family for V6 {
    const NAME: &str = "ipv6";
    type Prefix = Ipv6Prefix;
    type Addr = u128;
    type Writer = Ipv6Writer;
    type Fib = Ipv6Fib;
    type Tries = (PrefixMap<(u128, u8), u32>, IpLookupTable<Ipv6Addr, u32>);

    fn writer(domain: &Domain) -> io::Result<Ipv6Writer> {
        let sizes = Ipv6Sizes::for_routes(200_000);
        let tables = Ipv6Tables {
            direct: Mapping::words(sizes.direct)?,
            index: Mapping::words(sizes.index)?,
            leaves: Mapping::words(sizes.leaves)?,
        };
        Ok(Ipv6Writer::new(tables, domain, Limits::default()))
    }

    fn load(
        writer: &mut Ipv6Writer,
        routes: &[(Ipv6Prefix, NextHopId)],
    ) -> Result<usize, EditError> {
        writer.load(routes.iter().copied())
    }

    fn insert(writer: &mut Ipv6Writer, prefix: Ipv6Prefix, id: NextHopId) -> Result<(), EditError> {
        writer.insert(prefix, id).map(|_| ())
    }

    fn remove(writer: &mut Ipv6Writer, prefix: Ipv6Prefix) -> Result<(), EditError> {
        writer.remove(prefix).map(|_| ())
    }

    fn reclaim(writer: &mut Ipv6Writer) {
        writer.reclaim();
    }

    fn fib(writer: &Ipv6Writer) -> Ipv6Fib {
        writer.reader()
    }

    fn bytes(writer: &Ipv6Writer) -> usize {
        writer.bytes_used()
    }

    fn draw(prefixes: &[Ipv6Prefix], random: &mut Random) -> u128 {
        prefixes.draw(random)
    }

    #[inline(always)]
    fn lookup(fib: &Ipv6Fib, guard: Guard<'_>, addr: u128) -> u32 {
        fib.lookup(guard, addr).raw()
    }

    #[inline(always)]
    fn lookup_batch(fib: &Ipv6Fib, guard: Guard<'_>, addrs: &[u128], ids: &mut [u16]) {
        fib.lookup_batch(guard, addrs, ids);
    }

    fn tries(routes: &[(Ipv6Prefix, NextHopId)]) -> Self::Tries {
        let mut tries = (PrefixMap::new(), IpLookupTable::new());
        for (prefix, id) in routes {
            tries.0.insert((prefix.addr().to_bits(), prefix.len()), id.raw().into());
            tries.1.insert(prefix.addr(), prefix.len().into(), id.raw().into());
        }
        tries
    }

    #[inline(always)]
    fn prefix_trie(tries: &Self::Tries, addr: u128) -> u32 {
        tries.0.get_lpm(&(addr, 128)).map_or(0, |(_, &id)| id)
    }

    #[inline(always)]
    fn treebitmap(tries: &Self::Tries, addr: u128) -> u32 {
        tries.1.longest_match(addr.into()).map_or(0, |(_, _, &id)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_can_be_measured_quickly() {
        let plan = Plan { prefixes: None, quick: true, runs: 0, cores: None, only: String::new() };
        run(&plan, &Output::new("fib", true)).expect("all tables agree");
    }
}
