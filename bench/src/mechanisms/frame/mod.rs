//! What does packet memory cost: an allocator, the source's hot list over it, and frames of a region?
//!
//! One operation is: take memory for a packet, fill in its metadata (the bytes are the device's work), give it back. On
//! one core, and across two: taken on one, handed over by a ring, given back on the other. Length and port differ from
//! packet to packet (`scheme.rs`).
//!
//! | name               | head and metadata                      | data                                |
//! |--------------------|----------------------------------------|-------------------------------------|
//! | `before`           | 256 bytes: the thread's list of 128 heads, over glibc's allocator, tuned | 2 KiB of the allocator |
//! | `snmalloc`, `mimalloc` | as `before`, over these allocators | as `before`                         |
//! | `before_best`      | the fastest of these three in the round, of those that could be measured | as `before` |
//! | `before_untuned`   | `before`, not tuned, in a process of its own | as `before`                   |
//! | `hotlist1024`      | the source's fix: the thread's list of 1024 whole objects, over snmalloc | in the object: a frame of 1514 bytes |
//! | `hotlist128`       | as `hotlist1024`, with a list of 128   | as `hotlist1024`                    |
//! | `manylane`         | the frame's line of metadata           | the frame                           |
//! | `manylane_same`    | as `manylane`, of one length and port: metadata is compared, and not written | the frame |
//! | `manylane_bare`    | untouched                              | the frame                           |
//!
//! Each has `_ns` (one core) and `_cross_ns`, nanoseconds a packet, at 1, 32 and 64 frames a call with 64 outstanding
//! (`_b1`, ...) and at up to 32 frames a call with 1 to 4096 outstanding (`_o1`, ...); without a suffix it is 32 frames
//! a call and 64 outstanding. On one core, as many frames as are outstanding are taken call by call, then given back
//! call by call. Across, outstanding is the ring's length; beside its frames, each side has one call's frames in
//! hand. DPDK's programs use 2048 (`_o2048`). `_jumbo` is packets of 9000 bytes, by one call each.
//!
//! `gain` is `before_best` over `manylane`, round by round, `glibc_gain`, `snmalloc_gain` and `mimalloc_gain` each one
//! over it, `hotlist_gain` is `before_best` over `hotlist1024`, and `fix_gain` `hotlist1024` over `manylane`;
//! `forward.rs` puts the same into a forwarding worker. `--peer` measures manylane beside another library's pools ([`peer`]).
//!
//! A list's length, 128 or 1024, matters where more than 128 packets are given back together: in the one-core rows
//! `_o256` to `_o4096` and in `forward_*_held`. The length does not matter in the rows with up to 64 outstanding, nor in
//! the forwarding worker without `_held`, whose packets leave with each turn; nor in `_cross` rows, where the list fills
//! on the side that takes nothing from it.
//!
//! Not measured here: more than two cores, memory that a device maps.
//!
//! Needs two cores with nothing else on them, and 100 MiB.

mod exceptions;
mod forward;
pub mod peer;
mod scheme;
mod untuned;
mod work;

pub use untuned::serve;

use super::{Plan, interleave};
use crate::baseline::frame::{Glibc, Mimalloc, Packets, Snmalloc, tune_glibc};
use crate::prelude::*;
use forward::Forwarding;
use scheme::{Allocated, BARE, FILLED, Manylane, SAME, Scheme};
use untuned::Untuned;

/// How many frames a call, and how many may be outstanding.
#[derive(Clone, Copy)]
struct Row {
    /// What the figures' names end in; the same measurement may have several names.
    suffixes: &'static [&'static str],
    bulk: usize,
    outstanding: usize,
}

const ROWS: [Row; 10] = [
    row(&["", "_b32", "_o64"], 32, 64),
    row(&["_b1"], 1, 64),
    row(&["_b64"], 64, 64),
    row(&["_o1"], 1, 1),
    row(&["_o4"], 4, 4),
    row(&["_o16"], 16, 16),
    row(&["_o256"], 32, 256),
    row(&["_o1024"], 32, 1024),
    row(&["_o2048"], 32, 2048),
    row(&["_o4096"], 32, 4096),
];

const fn row(suffixes: &'static [&'static str], bulk: usize, outstanding: usize) -> Row {
    Row { suffixes, bulk, outstanding }
}

/// 4096 outstanding, two lists that are full and what a call has in hand, twice over.
const FRAMES: u32 = 16_384;
const JUMBO_LEN: usize = 9000;
/// The allocators below the list of heads.
const BEFORE: [&str; 3] = ["before", "snmalloc", "mimalloc"];
/// Ratios: how their names begin, over, under.
const RATIOS: [[&str; 3]; 6] = [
    ["", "before_best", "manylane"],
    ["glibc_", "before", "manylane"],
    ["snmalloc_", "snmalloc", "manylane"],
    ["mimalloc_", "mimalloc", "manylane"],
    ["hotlist_", "before_best", "hotlist1024"],
    ["fix_", "hotlist1024", "manylane"],
];
/// A round has two hundred slices.
const SLICE: Duration = Duration::from_millis(30);

pub fn run(plan: &Plan, output: &Output) -> Result {
    tune_glibc();
    let region = Region::new(RegionConfig { frames: FRAMES, frame_size: 2048 })?;
    let depot = Depot::new(region, 2).expect("the region is new");
    let mut untuned = Untuned::start(plan)?;
    let mut forwarding = Forwarding::new(plan.pace.quick)?;
    output.note("a packet: take, fill in the metadata, give back; 32 a call, 64 outstanding");
    // With each name, whether it is measured with jumbo packets, too.
    let ways: [(&str, &dyn MemoryScheme, bool); 8] = [
        ("before", &|| Allocated::new(Packets::<Glibc>::before()), true),
        ("snmalloc", &|| Allocated::new(Packets::<Snmalloc>::before()), true),
        ("mimalloc", &|| Allocated::new(Packets::<Mimalloc>::before()), true),
        ("hotlist128", &|| Allocated::new(Packets::<Snmalloc>::fix(128)), false),
        ("hotlist1024", &|| Allocated::new(Packets::<Snmalloc>::fix(1024)), true),
        ("manylane", &|| Manylane::<FILLED>::new(&depot), true),
        ("manylane_same", &|| Manylane::<SAME>::new(&depot), false),
        ("manylane_bare", &|| Manylane::<BARE>::new(&depot), false),
    ];
    let round = |bench: &mut Bench| {
        bench.shorten(SLICE);
        for (number, row) in ROWS.iter().enumerate() {
            for (name, way, _) in ways {
                let measured = way.measure(bench, row)?;
                row.push(bench, name, measured);
                if name == "before" {
                    row.push(bench, "before_untuned", untuned.measure(number)?);
                }
            }
            for suffix in row.suffixes {
                push_best(bench, "", &format!("_ns{suffix}"));
                push_best(bench, "", &format!("_cross_ns{suffix}"));
            }
        }
        for (name, way, _) in ways.iter().filter(|(.., is_jumbo)| *is_jumbo) {
            way.jumbo(bench, &format!("{name}_ns_jumbo"))?;
        }
        push_best(bench, "", "_ns_jumbo");
        forwarding.round(bench)
    };
    interleave(plan, output, round, |rounds| {
        let both = ["", "cross_"].map(|across| {
            ROWS.iter().flat_map(|row| row.suffixes).map(move |suffix| (across, *suffix))
        });
        for (across, suffix) in both.into_iter().flatten().chain([("", "_jumbo")]) {
            for [prefix, over, under] in RATIOS {
                let [over, under] = [over, under].map(|of| format!("{of}_{across}ns{suffix}"));
                rounds.ratio(&format!("{prefix}{across}gain{suffix}"), &over, &under);
            }
        }
        Forwarding::ratios(rounds);
    })
}

/// Adds the least of this round's figures for the three allocators, under names that begin and end so. An allocator that
/// waits so long that its figure does not count is not the fastest.
fn push_best(bench: &mut Bench, prefix: &str, rest: &str) {
    let all = BEFORE.map(|of| bench.rounds.last(&format!("{prefix}{of}{rest}")));
    let least = all.into_iter().flatten().min_by(f64::total_cmp);
    bench.ns(&format!("{prefix}before_best{rest}"), least);
}

impl Row {
    /// Adds what was measured on one core, and across two, under each of the row's names.
    fn push(&self, bench: &mut Bench, name: &str, [one, cross]: [Option<f64>; 2]) {
        for suffix in self.suffixes {
            bench.ns(&format!("{name}_ns{suffix}"), one);
            bench.ns(&format!("{name}_cross_ns{suffix}"), cross);
        }
    }
}

/// A scheme of packet memory, whose loops are compiled for it alone.
trait MemoryScheme {
    /// On one core, and across two.
    fn measure(&self, bench: &mut Bench, row: &Row) -> Result<[Option<f64>; 2]>;

    fn jumbo(&self, bench: &mut Bench, name: &str) -> Result;
}

impl<S: Scheme, M: Fn() -> S + Sync> MemoryScheme for M {
    fn measure(&self, bench: &mut Bench, row: &Row) -> Result<[Option<f64>; 2]> {
        let one = bench.slice(1, |_, lap| work::on_one_core(&mut self(), row, &lap))?;
        let cross = bench.slice_with(
            2,
            || work::Between::<S>::new(row),
            |between, thread, lap| match thread {
                0 => work::take(&mut self(), row, between, &lap),
                _ => work::give_back(&mut self(), row, between, &lap),
            },
        )?;
        Ok([one, cross].map(|slice| ns_of(&slice)))
    }

    fn jumbo(&self, bench: &mut Bench, name: &str) -> Result {
        bench.time(name, 1, |_, lap| work::large(&mut self(), JUMBO_LEN, &lap))?;
        Ok(())
    }
}
