//! How fast is the longest match, how large are its tables, and what do updates cost?
//!
//! | figure (both families)   | what is done                                                         |
//! |--------------------------|----------------------------------------------------------------------|
//! | `*_lookup_random_ns`     | batches of 32; 2^20 addresses, each inside a prefix drawn evenly      |
//! | `*_lookup_same_ns`       | those lookups of one address                                         |
//! | `*_ns_b1`                | those lookups one by one                                             |
//! | `*_prefix_trie_ns`, `*_treebitmap_ns` | the same addresses in the published crates, one by one: they have no batches |
//! | `*_over_best_trie`       | the faster of the two / `*_lookup_random_ns`: batches beside single lookups |
//! | `*_over_best_trie_b1`    | the faster of the two / `*_lookup_random_ns_b1`: each one by one      |
//! | `*_lookup_mib`           | what lookups may read: tables, as far as they are used                |
//! | `*_rib_mib`              | what the writer keeps beside them, counted by the allocator           |
//! | `*_build_s`              | an empty table to a full one                                         |
//! | `*_updates_per_s`        | edits as fast as they go while a reader looks up at full speed        |
//! | `*_updates_slow`         | how much slower that reader is, in percent                           |
//! | `*_updates_slow_200k`    | that slowdown at 200,000 edits a second                              |
//!
//! An edit is about a route drawn evenly: an announced one is withdrawn, or gets another next hop; one
//! that was withdrawn comes back. The reader is quiescent after each batch of 32; it is compared with
//! itself beside a thread that only counts, before and after, so that both cores are busy each time.
//!
//! `--peer` measures lookups beside those of another library ([`peer`]).
//!
//! Not measured here: more than one reader, tables in BPF maps.
//!
//! Needs two cores with nothing else on them.

mod peer;

use ip_network_table_deps_treebitmap::IpLookupTable;
use manylane_net::fib::{
    EditError, Ipv4Fib, Ipv4Prefix, Ipv4Sizes, Ipv4Writer, Ipv6Fib, Ipv6Prefix, Ipv6Sizes,
    Ipv6Writer, Limits,
};
use manylane_router::control::routing::{ipv4_tables, ipv6_tables};
use prefix_trie::PrefixMap;

use crate::baseline::calls;
use crate::peer::Peer;
use crate::prelude::*;
use crate::progress;
use manylane_lab::prefixes::Draw;

/// How fast is the longest match, how large are its tables, and what do updates cost?
#[derive(clap::Args)]
pub struct Plan {
    #[command(flatten)]
    pace: Pace,
    #[command(flatten)]
    table: Table,
    /// The two cores to run on; without them, the last two
    #[arg(long, num_args = 2, value_names = ["CORE", "CORE"])]
    cores: Option<Vec<usize>>,
    /// Only these figures
    #[arg(long, value_name = "PART", value_parser = ["lookup", "updates"])]
    only: Option<String>,
    /// Measure lookups in turn with this library's, by a program of `bench/peers`
    #[arg(long, value_name = "NAME")]
    peer: Option<Peer>,
}

const BATCH: usize = 32;
const NEXT_HOPS: usize = 256;
/// Long enough for most of the targets, short enough for a busy machine.
const SLICE: Duration = Duration::from_millis(40);
const RATE: u64 = 200_000;
const MIB: f64 = 1024.0 * 1024.0;

pub fn run(plan: &Plan) -> Result {
    if let Some(Peer::Dpdk) = plan.peer {
        return peer::run(plan);
    }
    let output = plan.pace.output("fib").named(plan.only.is_some());
    progress::doing("loads the tables");
    let prefixes = plan.table.read()?;
    let mut bench = Bench::new(&plan.cores, plan.pace.quick)?;
    bench.shorten(SLICE);
    let (ipv4, ipv6) = (prefixes.ipv4.len(), prefixes.ipv6.len());
    output.note(&format!("{ipv4} IPv4 and {ipv6} IPv6 prefixes; cores {:?}", bench.cores()));

    let ipv4 = Lab::<V4>::new(prefixes.ipv4, &mut bench)?;
    let ipv6 = Lab::<V6>::new(prefixes.ipv6, &mut bench)?;
    // A short run measures as many rounds as the user wants, or a usual one.
    let runs = plan.pace.runs.unwrap_or(9).max(3);
    for run in progress::rounds("looks up and edits", runs + 1) {
        let measured = std::mem::take(&mut bench.rounds);
        if plan.only.as_deref() != Some("updates") {
            ipv4.lookups(&mut bench)?;
            ipv6.lookups(&mut bench)?;
        }
        if plan.only.as_deref() != Some("lookup") {
            ipv4.updates(&mut bench)?;
            ipv6.updates(&mut bench)?;
        }
        let round = std::mem::replace(&mut bench.rounds, measured);
        if run > 0 {
            bench.rounds.append(round); // The first round warms up.
        }
    }
    bench.print(&output)
}

/// What differs between the families.
trait Family: Sized {
    const NAME: &str;
    type Prefix: Copy + Send + Sync;
    type Addr: Copy + Send + Sync;
    type Writer: Send;
    type Fib: Clone + Send + Sync;
    type Tries: Send + Sync;

    /// A full table, and how long it took to load it.
    fn load(
        domain: &Domain,
        routes: &[(Self::Prefix, NextHopId)],
    ) -> Result<(Self::Writer, Duration)>;
    /// Inserts a route, or removes it.
    fn edit(
        writer: &mut Self::Writer,
        prefix: Self::Prefix,
        id: Option<NextHopId>,
    ) -> Result<(), EditError>;
    fn reclaim(writer: &mut Self::Writer);
    /// The tables, and their bytes as far as they are used.
    fn fib(writer: &Self::Writer) -> (Self::Fib, usize);
    fn draw(prefixes: &[Self::Prefix], random: &mut Random) -> Self::Addr;
    fn lookup(fib: &Self::Fib, guard: Guard<'_>, addr: Self::Addr) -> u32;
    fn lookup_batch(fib: &Self::Fib, guard: Guard<'_>, addrs: &[Self::Addr], ids: &mut [u16]);
    /// Loads what a lookup reads first.
    fn prefetch(fib: &Self::Fib, addr: Self::Addr);
    fn tries(routes: &[(Self::Prefix, NextHopId)]) -> Self::Tries;
    fn prefix_trie(tries: &Self::Tries, addr: Self::Addr) -> u32;
    fn treebitmap(tries: &Self::Tries, addr: Self::Addr) -> u32;
}

/// A full table, and what reads it.
struct Lab<F: Family> {
    domain: Domain,
    fib: F::Fib,
    churn: Mutex<Churn<F>>,
    tries: F::Tries,
    random: Vec<F::Addr>,
    same: Vec<F::Addr>,
}

/// What edits it.
struct Churn<F: Family> {
    writer: F::Writer,
    routes: Vec<(F::Prefix, NextHopId)>,
    is_there: Vec<bool>,
    random: Random,
}

impl<F: Family> Lab<F> {
    fn new(prefixes: Vec<F::Prefix>, bench: &mut Bench) -> Result<Lab<F>> {
        let mut random = Random(7);
        let routes: Vec<_> =
            prefixes.iter().map(|&prefix| (prefix, hop(random.below(NEXT_HOPS)))).collect();
        let domain = Domain::new(2);
        let before = calls::held();
        let (writer, took) = F::load(&domain, &routes)?;
        let rib = calls::held_since(before);
        let (fib, bytes) = F::fib(&writer);
        let name = F::NAME;
        bench.push(&format!("{name}_build_s"), "s", Some(took.as_secs_f64()));
        bench.push(&format!("{name}_lookup_mib"), "MiB", Some(bytes as f64 / MIB));
        bench.push(&format!("{name}_rib_mib"), "MiB", Some(rib as f64 / MIB));

        let mut random = Random(88_172_645_463_325_252);
        let targets: Vec<_> = (0..TARGETS).map(|_| F::draw(&prefixes, &mut random)).collect();
        let (tries, is_there) = (F::tries(&routes), vec![true; routes.len()]);
        let churn = Mutex::new(Churn { writer, is_there, routes, random: Random(3) });
        let same = vec![targets[0]; BATCH];
        let lab = Lab { fib, tries, same, random: targets, churn, domain };
        lab.check()?;
        Ok(lab)
    }

    /// What is measured is right: all three agree.
    fn check(&self) -> Result {
        let reader = self.domain.register()?;
        let mut ids = [0; BATCH];
        for addrs in self.random.chunks(BATCH) {
            F::lookup_batch(&self.fib, reader.guard(), addrs, &mut ids[..addrs.len()]);
            for (&addr, &id) in addrs.iter().zip(&ids) {
                let one = F::lookup(&self.fib, reader.guard(), addr);
                let others = [F::prefix_trie(&self.tries, addr), F::treebitmap(&self.tries, addr)];
                if [one, others[0], others[1]] != [u32::from(id); 3] {
                    let name = F::NAME;
                    return Err(format!("{name}: {id}, {one}, {others:?}").into());
                }
            }
        }
        Ok(())
    }

    fn lookups(&self, bench: &mut Bench) -> Result {
        let name = F::NAME;
        for (what, addrs) in [("random", &self.random), ("same", &self.same)] {
            bench.time(&format!("{name}_lookup_{what}_ns"), 1, |_, lap| {
                let reader = self.reader();
                let mut batches = addrs.chunks_exact(BATCH).cycle();
                lap.run_of(BATCH as u64, || self.batch(&reader, &mut batches))
            })?;
            let one = |addr, reader: &Reader| F::lookup(&self.fib, reader.guard(), addr);
            self.one_by_one(bench, &format!("lookup_{what}_ns_b1"), addrs, one)?;
        }
        let trie = |addr, _: &Reader| F::prefix_trie(&self.tries, addr);
        self.one_by_one(bench, "prefix_trie_ns", &self.random, trie)?;
        let trie = |addr, _: &Reader| F::treebitmap(&self.tries, addr);
        self.one_by_one(bench, "treebitmap_ns", &self.random, trie)?;
        let last = |what| bench.rounds.last(&format!("{name}_{what}"));
        let tries = last("prefix_trie_ns").zip(last("treebitmap_ns"));
        let best = tries.map(|(one, other)| one.min(other));
        for (own, suffix) in [("lookup_random_ns", ""), ("lookup_random_ns_b1", "_b1")] {
            let own = bench.rounds.last(&format!("{name}_{own}"));
            let over = best.zip(own).map(|(best, own)| best / own);
            bench.push(&format!("{name}_over_best_trie{suffix}"), "x", over);
        }
        Ok(())
    }

    fn one_by_one(
        &self,
        bench: &mut Bench,
        what: &str,
        addrs: &[F::Addr],
        lookup: impl Fn(F::Addr, &Reader) -> u32 + Sync,
    ) -> Result {
        bench.time(&format!("{}_{what}", F::NAME), 1, |_, lap| {
            let reader = self.reader();
            let mut batches = addrs.chunks_exact(BATCH).cycle();
            lap.run_of(BATCH as u64, || {
                for &addr in batches.next().expect("it never ends") {
                    black_box(lookup(addr, &reader));
                }
            })
        })?;
        Ok(())
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

    fn updates(&self, bench: &mut Bench) -> Result {
        let count = |watch: &mut Stretch<'_>| {
            let mut done = 0;
            while !watch.is_over() {
                done = black_box(done + 1);
            }
            done
        };
        let before = self.beside(bench, count)?;
        let paced = self.beside(bench, |watch| {
            let mut churn = lock(&self.churn);
            let mut done = 0;
            while !watch.is_over() {
                if done * 1_000_000_000 < RATE * watch.elapsed.as_nanos() as u64 {
                    done += churn.edit();
                }
            }
            done
        })?;
        let full = self.beside(bench, |watch| {
            let mut churn = lock(&self.churn);
            let mut done = 0;
            while !watch.is_over() {
                for _ in 0..16 {
                    done += churn.edit();
                }
            }
            done
        })?;
        let after = self.beside(bench, count)?;
        let alone = of(&before, 0).zip(of(&after, 0)).map(|(one, other)| (one + other) / 2.0);
        let slower =
            |slice| of(slice, 0).zip(alone).map(|(with, without)| (with / without - 1.0) * 100.0);
        let rate = |slice| of(slice, 1).map(|ns| 1e9 / ns);
        let mut push = |what: &str, unit, value| {
            bench.push(&format!("{}_updates_{what}", F::NAME), unit, value);
        };
        push("slow_200k", "%", slower(&paced));
        push("slow", "%", slower(&full));
        push("paced_per_s", "/s", rate(&paced));
        push("per_s", "/s", rate(&full));
        Ok(())
    }

    /// A reader at full speed beside `other`, which returns how much it did.
    fn beside(
        &self,
        bench: &mut Bench,
        other: impl Fn(&mut Stretch<'_>) -> u64 + Sync,
    ) -> Result<Option<Slice>> {
        bench.slice(2, |thread, lap| {
            if thread == 0 {
                let mut reader = self.reader();
                let mut batches = self.random.chunks_exact(BATCH).cycle();
                return lap.run_of(BATCH as u64, || {
                    self.batch(&reader, &mut batches);
                    reader.quiescent();
                });
            }
            let (length, mut watch) = (lap.length(), lap.start());
            let done = other(&mut Stretch { watch: &mut watch, length, elapsed: Duration::ZERO });
            watch.share(done)
        })
    }

    fn reader(&self) -> Reader {
        self.domain.register().expect("two are expected, and the last slice's are gone")
    }
}

/// A slice, for work that does not repeat something of one length.
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
}

impl<F: Family> Churn<F> {
    /// One edit; 0 when it has to wait for a grace period.
    fn edit(&mut self) -> u64 {
        let number = self.random.below(self.routes.len());
        let (prefix, id) = self.routes[number];
        let id = if !self.is_there[number] {
            Some(id)
        } else if self.random.next() & 1 == 0 {
            None
        } else {
            Some(hop(self.random.below(NEXT_HOPS)))
        };
        match F::edit(&mut self.writer, prefix, id) {
            Ok(()) => {
                self.is_there[number] = id.is_some();
                self.routes[number].1 = id.unwrap_or(self.routes[number].1);
                1
            }
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

macro_rules! family {
    ($family:ident, $name:literal, $address:ty, $bits:ty, $prefix:ty, $writer:ty, $fib:ty, $tables:expr) => {
        enum $family {}

        impl Family for $family {
            const NAME: &str = $name;
            type Prefix = $prefix;
            type Addr = $bits;
            type Writer = $writer;
            type Fib = $fib;
            type Tries = (PrefixMap<($bits, u8), u32>, IpLookupTable<$address, u32>);

            fn load(
                domain: &Domain,
                routes: &[($prefix, NextHopId)],
            ) -> Result<($writer, Duration)> {
                let mut writer = <$writer>::new($tables?, domain, Limits::default());
                let start = Instant::now();
                writer.load(routes.iter().copied())?;
                Ok((writer, start.elapsed()))
            }

            fn edit(
                writer: &mut $writer,
                prefix: $prefix,
                id: Option<NextHopId>,
            ) -> Result<(), EditError> {
                match id {
                    Some(id) => writer.insert(prefix, id).map(|_| ()),
                    None => writer.remove(prefix).map(|_| ()),
                }
            }

            fn reclaim(writer: &mut $writer) {
                writer.reclaim();
            }

            fn fib(writer: &$writer) -> ($fib, usize) {
                (writer.reader(), writer.bytes_used())
            }

            fn draw(prefixes: &[$prefix], random: &mut Random) -> $bits {
                prefixes.draw(random)
            }

            #[inline(always)]
            fn lookup(fib: &$fib, guard: Guard<'_>, addr: $bits) -> u32 {
                fib.lookup(guard, addr).raw()
            }

            #[inline(always)]
            fn lookup_batch(fib: &$fib, guard: Guard<'_>, addrs: &[$bits], ids: &mut [u16]) {
                fib.lookup_batch(guard, addrs, ids);
            }

            #[inline(always)]
            fn prefetch(fib: &$fib, addr: $bits) {
                fib.prefetch(addr);
            }

            fn tries(routes: &[($prefix, NextHopId)]) -> Self::Tries {
                let mut tries = (PrefixMap::new(), IpLookupTable::new());
                for (prefix, id) in routes {
                    tries.0.insert((prefix.addr().to_bits(), prefix.len()), id.raw().into());
                    tries.1.insert(prefix.addr(), prefix.len().into(), id.raw().into());
                }
                tries
            }

            #[inline(always)]
            fn prefix_trie(tries: &Self::Tries, addr: $bits) -> u32 {
                tries.0.get_lpm(&(addr, <$bits>::BITS as u8)).map_or(0, |(_, &id)| id)
            }

            #[inline(always)]
            fn treebitmap(tries: &Self::Tries, addr: $bits) -> u32 {
                tries.1.longest_match(addr.into()).map_or(0, |(_, _, &id)| id)
            }
        }
    };
}

family! { V4, "ipv4", Ipv4Addr, u32, Ipv4Prefix, Ipv4Writer, Ipv4Fib,
ipv4_tables(Ipv4Sizes::for_long_routes(65_536)) }
family! { V6, "ipv6", Ipv6Addr, u128, Ipv6Prefix, Ipv6Writer, Ipv6Fib,
ipv6_tables(Ipv6Sizes::for_routes(200_000)) }
