//! What does packet memory cost: an allocator, the source's hot list over it, and frames of a region?
//!
//! One operation is: take memory for a packet, fill in its metadata (the bytes are the device's work),
//! give it back. On one core, and across two: taken on one, handed over by a ring, given back on the
//! other.
//!
//! | name               | head and metadata                      | data                                |
//! |--------------------|----------------------------------------|-------------------------------------|
//! | `before`           | 256 bytes of glibc's allocator, tuned  | 2 KiB of it                         |
//! | `before_untuned`   | the same as it comes, in a process of its own | the same                     |
//! | `hotlist128`       | the thread's list of so many, over it  | a fixed frame of 1514 bytes of it   |
//! | `hotlist1024`      | the source's fix                       | the same                            |
//! | `snmalloc`, `mimalloc` | as `before`, by these allocators   | the same                            |
//! | `manylane`         | the frame's line of metadata           | the frame                           |
//! | `manylane_bare`    | untouched, as in DPDK's mempool        | the frame                           |
//!
//! Each has `_ns` (one core) and `_cross_ns`, nanoseconds a packet, at 1, 32 and 64 frames a call with
//! 64 outstanding (`_b1`, ...) and at up to 32 frames a call with 1 to 4096 outstanding (`_o1`, ...);
//! without a suffix it is 32 frames a call and 64 outstanding. On one core, as many frames as are
//! outstanding are taken call by call, then given back call by call. Across, outstanding is the ring's
//! length; beside what it holds, each side has one call's frames in hand. DPDK's programs use 2048
//! (`_o2048`). `_jumbo` is packets of 9000 bytes, by one call each.
//!
//! `gain` is `before` over `manylane`, round by round; `forward.rs` puts the same into a forwarding
//! worker.
//!
//! Not asked here: more than two cores, memory that a device maps.
//!
//! Needs two cores with nothing else on them, and 100 MiB.

mod device;
mod forward;
mod odd;
mod scheme;
mod untuned;
mod work;

pub use untuned::serve;

use std::io;
use std::time::Duration;

use manylane_frame::{Depot, Region, RegionConfig};

use super::{Plan, interleave};
use crate::baseline::frame::{Glibc, Mimalloc, Packets, Snmalloc, tune_glibc};
use crate::figure::{Output, Rounds};
use crate::threads::Team;
use forward::Forwarding;
use scheme::{Manylane, Scheme};
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

/// 4096 outstanding, two lists that are full and what a call has in hand, twice over. As many as DPDK's
/// program makes.
const FRAMES: u32 = 16_384;
const JUMBO_LEN: usize = 9000;
/// What manylane is divided into, and how that ratio's name begins.
const OTHERS: [(&str, &str); 3] =
    [("", "before"), ("snmalloc_", "snmalloc"), ("mimalloc_", "mimalloc")];
/// There are two hundred in a round.
const SLICE: Duration = Duration::from_millis(30);

/// Measures and prints.
pub fn run(plan: &Plan, output: &Output) -> io::Result<()> {
    tune_glibc();
    let region = Region::new(RegionConfig { frames: FRAMES, frame_size: 2048 });
    let depot = Depot::new(region.map_err(io::Error::other)?, 2).expect("the region is new");
    let mut untuned = Untuned::start(plan)?;
    let mut forwarding = Forwarding::new(plan.quick)?;
    output.note("a packet: take, fill in the metadata, give back; 32 a call, 64 outstanding");
    let round = |team: &mut Team, rounds: &mut Rounds| {
        team.shorten(SLICE);
        for (number, row) in ROWS.iter().enumerate() {
            measure(team, rounds, row, "before", &Packets::<Glibc>::before)?;
            row.push(rounds, "before_untuned", untuned.measure(number)?);
            measure(team, rounds, row, "hotlist128", &|| Packets::<Glibc>::hot_list(128))?;
            measure(team, rounds, row, "hotlist1024", &|| Packets::<Glibc>::hot_list(1024))?;
            measure(team, rounds, row, "snmalloc", &Packets::<Snmalloc>::before)?;
            measure(team, rounds, row, "mimalloc", &Packets::<Mimalloc>::before)?;
            measure(team, rounds, row, "manylane", &|| Manylane::<false>::new(&depot))?;
            measure(team, rounds, row, "manylane_bare", &|| Manylane::<true>::new(&depot))?;
        }
        jumbo(team, rounds, "before", &Packets::<Glibc>::before)?;
        jumbo(team, rounds, "hotlist1024", &|| Packets::<Glibc>::hot_list(1024))?;
        jumbo(team, rounds, "snmalloc", &Packets::<Snmalloc>::before)?;
        jumbo(team, rounds, "mimalloc", &Packets::<Mimalloc>::before)?;
        jumbo(team, rounds, "manylane", &|| Manylane::<false>::new(&depot))?;
        forwarding.round(team, rounds)
    };
    interleave(plan, output, round, |rounds| {
        for suffix in ROWS.iter().flat_map(|row| row.suffixes) {
            for across in ["", "cross_"] {
                for (prefix, over) in OTHERS {
                    rounds.ratio(
                        &format!("{prefix}{across}gain{suffix}"),
                        &format!("{over}_{across}ns{suffix}"),
                        &format!("manylane_{across}ns{suffix}"),
                    );
                }
            }
        }
        for (prefix, over) in OTHERS {
            rounds.ratio(
                &format!("{prefix}gain_jumbo"),
                &format!("{over}_ns_jumbo"),
                "manylane_ns_jumbo",
            );
        }
        Forwarding::ratios(rounds);
    })
}

impl Row {
    /// Adds what was measured on one core, and across two, under each of the row's names.
    fn push(&self, rounds: &mut Rounds, name: &str, [one, cross]: [Option<f64>; 2]) {
        for suffix in self.suffixes {
            rounds.push(&format!("{name}_ns{suffix}"), "ns", one);
            rounds.push(&format!("{name}_cross_ns{suffix}"), "ns", cross);
        }
    }
}

fn measure<S: Scheme>(
    team: &mut Team,
    rounds: &mut Rounds,
    row: &Row,
    name: &str,
    scheme: &(impl Fn() -> S + Sync),
) -> io::Result<()> {
    let measured = both(team, row, scheme)?;
    row.push(rounds, name, measured);
    Ok(())
}

/// On one core, and across two.
fn both<S: Scheme>(
    team: &mut Team,
    row: &Row,
    scheme: &(impl Fn() -> S + Sync),
) -> io::Result<[Option<f64>; 2]> {
    let one = team.slice(1, |_, lap| work::on_one_core(&mut scheme(), row, &lap))?;
    let cross = team.slice_with(
        2,
        || work::Between::<S>::new(row),
        |between, thread, lap| match thread {
            0 => work::take(&mut scheme(), row, between, &lap),
            _ => work::give_back(&mut scheme(), row, between, &lap),
        },
    )?;
    Ok([one, cross].map(|slice| slice.map(|slice| slice.ns())))
}

fn jumbo<S: Scheme>(
    team: &mut Team,
    rounds: &mut Rounds,
    name: &str,
    scheme: &(impl Fn() -> S + Sync),
) -> io::Result<()> {
    let slice = team.slice(1, |_, lap| work::large(&mut scheme(), JUMBO_LEN, &lap))?;
    rounds.push(&format!("{name}_ns_jumbo"), "ns", slice.map(|slice| slice.ns()));
    Ok(())
}
