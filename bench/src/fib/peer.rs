//! How fast are another library's longest matches of the same destinations in the same table?
//!
//! `--peer dpdk` measures `bench/peers/fib.c` in turn with manylane, on one core: in each round each lookup, in an order that
//! turns round. Both sides read the same routes and 2^20 destinations; the sums of all next hops have to be equal before
//! anything is measured.
//!
//! | figure                   | what is done                                                              |
//! |--------------------------|---------------------------------------------------------------------------|
//! | `*_lookup_random_ns`     | batches of 32; destinations inside prefixes drawn evenly                  |
//! | `*_lookup_same_ns`       | those lookups of one destination                                          |
//! | `*_ns_b1`                | those lookups one by one                                                  |
//! | `*_ns_ahead`             | batches of 32, with the first word of the next batch's lookups prefetched |
//! | `*_dpdk_LOOKUP_*`        | those destinations by this lookup of DPDK                                 |
//! | `*_of_dpdk*`             | manylane's speed relative to the lookup with the lowest median            |

use serde::Deserialize;

use super::{BATCH, Family, NEXT_HOPS, Plan, SLICE, V4, V6, hop};
use crate::peer::{self, Answer, Program, routes};
use crate::prelude::*;
use crate::progress;

/// What the program says when it has loaded the table.
#[derive(Deserialize)]
struct Ready {
    version: String,
    /// Family, way of calling, lookup.
    ways: Vec<(String, String, String)>,
    /// Of all next hops, by family.
    sums: [u64; 2],
}

/// How lookups are called, under the program's name for it; how figures' names end; whether of one destination as well.
const CALLS: [(&str, &str, bool); 3] =
    [("batch", "", true), ("single", "_b1", true), ("ahead", "_ahead", false)];

pub fn run(plan: &Plan) -> Result {
    if plan.only.as_deref() == Some("updates") {
        return Err("--peer measures lookups only".into());
    }
    let program = peer::build("fib")?; // Before anything that takes long.
    let output = plan.pace.output("fib_dpdk");
    progress::doing("loads the tables, on both sides");
    let prefixes = plan.table.read()?;
    let mut bench = Bench::new(&plan.cores, plan.pace.quick)?;
    bench.shorten(SLICE);
    let (ipv4, ipv6) = (Side::<V4>::new(&prefixes.ipv4)?, Side::<V6>::new(&prefixes.ipv6)?);
    let write = |to: &mut dyn io::Write| {
        ipv4.random.iter().try_for_each(|addr| to.write_all(&addr.to_ne_bytes()))?;
        ipv6.random.iter().try_for_each(|addr| to.write_all(&addr.to_be_bytes()))
    };
    let core = bench.cores()[0];
    let (mut dpdk, ready): (_, Ready) = routes::with_file(
        &prefixes,
        TARGETS,
        |to| write(to),
        |table| Program::start(&program, &[core], Some(table)),
    )?;
    let sums = [ipv4.sum(), ipv6.sum()];
    if sums != ready.sums {
        return Err(format!("next hops differ: {sums:?}, of DPDK {:?}", ready.sums).into());
    }
    let counts = [prefixes.ipv4.len(), prefixes.ipv6.len()];
    output.note(&format!(
        "{} IPv4 and {} IPv6 prefixes; manylane and {} by turns on core {core}",
        counts[0], counts[1], ready.version
    ));
    let mut rows = [rows::<V4>(&ready.ways), rows::<V6>(&ready.ways)];
    for round in progress::rounds("looks up", plan.pace.rounds(2, 9, 7) + 1) {
        let measured = std::mem::take(&mut bench.rounds);
        for row in &mut rows[0] {
            row.round(&ipv4, &mut dpdk, &mut bench)?;
        }
        for row in &mut rows[1] {
            row.round(&ipv6, &mut dpdk, &mut bench)?;
        }
        let values = std::mem::replace(&mut bench.rounds, measured);
        if round > 0 {
            bench.rounds.append(values); // The first round warms up.
        }
    }
    for row in rows.iter().flatten() {
        let ways: Vec<_> = row.ways.iter().flatten().map(|way| row.dpdk(way)).collect();
        peer::beside(&mut bench.rounds, &output, &row.ratio(), &row.own(), &ways);
    }
    bench.print(&output)
}

/// The rows of a family: those for which the program has a lookup.
fn rows<F: Family>(ways: &[(String, String, String)]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (call, end, also_same) in CALLS {
        let its = ways.iter().filter(|(family, of, _)| family == F::NAME && of == call);
        let its: Vec<_> = its.map(|(.., way)| way.clone()).collect();
        if its.is_empty() {
            continue;
        }
        for which in ["random", "same"].into_iter().take(1 + usize::from(also_same)) {
            let ways = [None].into_iter().chain(its.iter().cloned().map(Some)).collect();
            rows.push(Row { family: F::NAME, call, end, which, ways });
        }
    }
    rows
}

/// Lookups that are compared.
struct Row {
    family: &'static str,
    call: &'static str,
    /// What figures' names end in.
    end: &'static str,
    /// Which destinations.
    which: &'static str,
    /// Lookups of DPDK, and of manylane: none.
    ways: Vec<Option<String>>,
}

impl Row {
    fn own(&self) -> String {
        format!("{}_lookup_{}_ns{}", self.family, self.which, self.end)
    }

    fn dpdk(&self, way: &str) -> String {
        format!("{}_dpdk_{way}_{}_ns{}", self.family, self.which, self.end)
    }

    fn ratio(&self) -> String {
        format!("{}_{}_of_dpdk{}", self.family, self.which, self.end)
    }

    fn round<F: Family>(
        &mut self,
        side: &Side<F>,
        dpdk: &mut Program,
        bench: &mut Bench,
    ) -> Result {
        self.ways.reverse(); // Each is early as often as late: what drifts favours neither.
        for way in &self.ways {
            let Some(way) = way else {
                let targets = if self.which == "same" { &side.same } else { &side.random };
                side.measure(bench, &self.own(), self.call, targets)?;
                continue;
            };
            let which = self.which;
            let slice = bench.slice_by(|bench| {
                let answer: Answer =
                    dpdk.ask(format_args!("{way} {which}"), bench.slice_length())?;
                Ok(answer.slice())
            })?;
            bench.ns(&self.dpdk(way), ns_of(&slice));
        }
        Ok(())
    }
}

/// Manylane's side of a family.
struct Side<F: Family> {
    domain: Domain,
    fib: F::Fib,
    /// Kept, as a router keeps the writer of its tables.
    _writer: Mutex<F::Writer>,
    random: Vec<F::Addr>,
    same: Vec<F::Addr>,
}

impl<F: Family> Side<F> {
    fn new(prefixes: &[F::Prefix]) -> Result<Side<F>> {
        let mut random = Random(7);
        let routes: Vec<_> =
            prefixes.iter().map(|&prefix| (prefix, hop(random.below(NEXT_HOPS)))).collect();
        let domain = Domain::new(1);
        let (writer, _) = F::load(&domain, &routes)?;
        let (fib, _) = F::fib(&writer);
        let mut random = Random(88_172_645_463_325_252);
        let targets: Vec<_> = (0..TARGETS).map(|_| F::draw(prefixes, &mut random)).collect();
        let same = vec![targets[0]; BATCH];
        Ok(Side { domain, fib, _writer: Mutex::new(writer), random: targets, same })
    }

    /// The sum of all next hops, as `way_sum` of fib.c adds them.
    fn sum(&self) -> u64 {
        let reader = self.reader();
        let hops = self.random.iter().map(|&addr| F::lookup(&self.fib, reader.guard(), addr));
        hops.fold(0, |sum: u64, hop| sum.wrapping_mul(31).wrapping_add(hop.into()))
    }

    fn measure(&self, bench: &mut Bench, name: &str, call: &str, targets: &[F::Addr]) -> Result {
        let batches = || targets.chunks_exact(BATCH).cycle();
        match call {
            "batch" => self.repeat(bench, name, || {
                let mut batches = batches();
                move |reader| self.look_up(reader, batches.next().expect("it never ends"))
            }),
            "ahead" => self.repeat(bench, name, || {
                let mut batches = batches().peekable();
                move |reader| {
                    let batch = batches.next().expect("it never ends");
                    let next = batches.peek().expect("it never ends");
                    next.iter().for_each(|&addr| F::prefetch(&self.fib, addr));
                    self.look_up(reader, batch);
                }
            }),
            _ => self.repeat(bench, name, || {
                let mut batches = batches();
                move |reader| {
                    for &addr in batches.next().expect("it never ends") {
                        black_box(F::lookup(&self.fib, reader.guard(), addr));
                    }
                }
            }),
        }
    }

    #[inline(always)]
    fn look_up(&self, reader: &Reader, addrs: &[F::Addr]) {
        let mut ids = [0; BATCH];
        F::lookup_batch(&self.fib, reader.guard(), addrs, &mut ids);
        black_box(ids);
    }

    /// Measures what `prepare` makes, which looks up a batch.
    #[inline(always)]
    fn repeat<B: FnMut(&Reader)>(
        &self,
        bench: &mut Bench,
        name: &str,
        prepare: impl Fn() -> B + Sync,
    ) -> Result {
        bench.time(name, 1, |_, lap| {
            let (reader, mut batch) = (self.reader(), prepare());
            lap.run_of(BATCH as u64, || batch(&reader))
        })?;
        Ok(())
    }

    fn reader(&self) -> Reader {
        self.domain.register().expect("the last slice's reader is gone")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_lookups_that_the_program_has_for_it() {
        let ready = r#"{"version":"DPDK 1","ways":[["ipv4","batch","lpm_bulk"],["ipv4","batch","fib_scalar"],
            ["ipv6","single","fib6"]],"sums":[1,2]}"#;
        let ready: Ready = serde_json::from_str(ready).expect("the program writes such a line");
        let rows = [rows::<V4>(&ready.ways), rows::<V6>(&ready.ways)];
        let names = rows.iter().flatten().map(|row| {
            let ways: Vec<_> = row.ways.iter().flatten().map(|way| row.dpdk(way)).collect();
            format!("{} = {} over {}", row.ratio(), ways.join(" or "), row.own())
        });
        assert_eq!(
            names.collect::<Vec<_>>(),
            [
                "ipv4_random_of_dpdk = ipv4_dpdk_lpm_bulk_random_ns or ipv4_dpdk_fib_scalar_random_ns over ipv4_lookup_random_ns",
                "ipv4_same_of_dpdk = ipv4_dpdk_lpm_bulk_same_ns or ipv4_dpdk_fib_scalar_same_ns over ipv4_lookup_same_ns",
                "ipv6_random_of_dpdk_b1 = ipv6_dpdk_fib6_random_ns_b1 over ipv6_lookup_random_ns_b1",
                "ipv6_same_of_dpdk_b1 = ipv6_dpdk_fib6_same_ns_b1 over ipv6_lookup_same_ns_b1",
            ]
        );
    }
}
