//! What does packet memory cost by another library's pools?
//!
//! `--peer dpdk` measures `bench/peers/frame.c` in turn with manylane, on one core and across two, with as many frames a call
//! and outstanding as the question's own rows.
//!
//! | name                 | what is taken and given back                                              |
//! |----------------------|---------------------------------------------------------------------------|
//! | `manylane`           | a frame, with the metadata of the packet filled in                        |
//! | `dpdk_mbuf`          | a packet buffer, by `rte_pktmbuf_alloc_bulk` and `rte_pktmbuf_free_bulk`, filled in |
//! | `dpdk_mbuf_fast`     | a packet buffer as vector drivers take it: from its pool, filled in by wide stores, and back by `rte_mempool_put_bulk` |
//! | `manylane_bare`      | a frame, without metadata                                                 |
//! | `dpdk_mempool`       | an object of 2 KiB of a pool over a ring, DPDK's usual one                |
//! | `dpdk_mempool_stack` | an object of 2 KiB of a pool over a stack                                 |
//!
//! `of_dpdk` is `manylane`'s speed relative to the faster of the two that are filled in, by the median; `bare_of_dpdk` that of
//! `manylane_bare` to the faster of the two others; `cross_` says that frames are given back on the other core.

use serde::Deserialize;

use super::scheme::{BARE, FILLED, Manylane};
use super::{FRAMES, MemoryScheme, ROWS, Row, SLICE};
use crate::mechanisms::{Plan, interleave_on};
use crate::peer::{self, Answer, Program};
use crate::prelude::*;

/// What the program says when its pools are there.
#[derive(Deserialize)]
struct Ready {
    version: String,
}

/// How the ratio's name begins, manylane's way, and those of DPDK beside it.
const RATIOS: [(&str, &str, [&str; 2]); 2] = [
    ("", "manylane", ["mbuf", "mbuf_fast"]),
    ("bare_", "manylane_bare", ["mempool", "mempool_stack"]),
];

pub fn run(plan: &Plan) -> Result {
    let program = peer::build("frame")?;
    let output = plan.pace.output("compare/frame_dpdk");
    let region = Region::new(RegionConfig { frames: FRAMES, frame_size: 2048 })?;
    let depot = Depot::new(region, 2).expect("the region is new");
    let (filled, bare) = (|| Manylane::<FILLED>::new(&depot), || Manylane::<BARE>::new(&depot));
    let own: [(&str, &dyn MemoryScheme); 2] = [("manylane", &filled), ("manylane_bare", &bare)];
    let mut bench = Bench::new(&plan.cores, plan.pace.quick)?;
    bench.shorten(SLICE);
    let (mut dpdk, ready): (_, Ready) = Program::start(&program, bench.cores(), None)?;
    output.note(&format!("manylane and {} by turns; 32 a call, 64 outstanding", ready.version));
    let mut contestants: Vec<Contestant> = own.map(|(name, way)| Contestant::Own(name, way)).into();
    contestants.extend(RATIOS.iter().flat_map(|(.., ways)| ways).map(|way| Contestant::Dpdk(way)));
    let round = |bench: &mut Bench| {
        contestants.reverse(); // Each is early as often as late: what drifts favours neither.
        for row in &ROWS {
            for contestant in &contestants {
                let (name, measured) = match contestant {
                    Contestant::Own(name, way) => ((*name).into(), way.measure(bench, row)?),
                    Contestant::Dpdk(way) => {
                        (format!("dpdk_{way}"), measure(bench, &mut dpdk, way, row)?)
                    }
                };
                for (across, ns) in ACROSS.iter().zip(measured) {
                    bench.ns(&figure(&name, across, row), ns);
                }
            }
        }
        Ok(())
    };
    interleave_on(bench, plan, &output, round, |rounds| {
        for row in &ROWS {
            for ((prefix, own, ways), across) in
                RATIOS.iter().flat_map(|ratio| ACROSS.map(|across| (ratio, across)))
            {
                let ways = ways.map(|way| figure(&format!("dpdk_{way}"), across, row));
                let ratio = format!("{prefix}{across}of_dpdk{}", row.suffixes[0]);
                peer::beside(rounds, &output, &ratio, &figure(own, across, row), &ways);
            }
        }
    })
}

enum Contestant<'a> {
    Own(&'static str, &'a dyn MemoryScheme),
    Dpdk(&'static str),
}

/// On one core, and across two.
const ACROSS: [&str; 2] = ["", "cross_"];

fn figure(name: &str, across: &str, row: &Row) -> String {
    format!("{name}_{across}ns{}", row.suffixes[0])
}

/// What a row takes by a way of DPDK, on one core and across two.
fn measure(
    bench: &mut Bench,
    dpdk: &mut Program,
    way: &str,
    row: &Row,
) -> Result<[Option<f64>; 2]> {
    let mut on = |cores: &str| {
        let slice = bench.slice_by(|bench| {
            let Row { bulk, outstanding, .. } = row;
            let what = format_args!("{way} {bulk} {outstanding} {cores}");
            Ok(dpdk.ask::<Answer>(what, bench.slice_length())?.slice())
        })?;
        Ok::<_, Error>(ns_of(&slice))
    };
    Ok([on("one")?, on("cross")?])
}
