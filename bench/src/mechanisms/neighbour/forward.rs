//! These designs inside forwarding workers: what share of the whole a neighbour's header is.
//!
//! Each thread turns a worker of the product, between two memory ports, over one set of tables; all frames have one
//! destination. With `manylane` that is all. With the others that worker forwards too, and for each frame makes
//! the neighbour's header as the old design did besides, and throws it away. The product's own header is still made,
//! too: that costs what `manylane_ns` says, 1 to 2 ns.
//!
//! # When the old header is made
//!
//! The kernel takes a frame from its route to its neighbour and on to the device before it looks at the next. So its
//! cores meet at the neighbour once for each frame, with a frame's other work between two meetings: a core hardly ever
//! still has the lock's line when it returns. A worker of ours takes each step for a batch. How the two are put
//! together decides what the contention is:
//!
//! | figures      | frames a step | the old header                                     | what that favours |
//! |--------------|---------------|-----------------------------------------------------|-------------------|
//! | `forward_`   | 64            | for all of a batch, one after the other, as it leaves: a core that has the lines keeps them for some frames, and while the other does another step no core wants them | `before`, `nocache`: the old design did not batch it |
//! | `..._b1`     | 1             | once in each frame's own pass through check, lookup and rewrite, as in the kernel; the device's part is still a batch's | neither: all three are alike, and what a batch saves is in none |
//!
//! `forward_gain` is of the first, the product as it is with the old header in the form that costs it least.
//! `forward_gain_b1` is of the second, the old design's order of work. In none is a frame's old work made larger than
//! the source has it, and none divides one order's `before` by another's `manylane`.

use super::{ADDRESS, old_table};
use crate::baseline::neighbour::Table;
use crate::prelude::*;
use crate::router::{Ground, Lane, Place, no_sinks};
use manylane_lab::device::write_same;

const THREADS: usize = 2;
const FRAMES: u32 = 16_384;

/// Two workers for each design and each order of work, all over the same tables.
pub struct Forwarding {
    pub all: Vec<Lanes>,
    _ground: Ground,
}

pub struct Lanes {
    pub name: String,
    /// What the figures' names end in, for the order of work.
    pub order: &'static str,
    lanes: Vec<Mutex<Lane>>,
}

/// How the old design makes a header; false when the table has no such neighbour.
type Old = fn(&Table, u32, &mut [u8; 14]) -> bool;

impl Forwarding {
    pub fn new() -> Result<Forwarding> {
        let ground = Ground::with_one_route(6 * THREADS, FRAMES)?;
        let designs: [(&str, Option<Old>); 3] = [
            ("before", Some(Table::before)),
            ("nocache", Some(Table::nocache)),
            ("manylane", None),
        ];
        let mut all = Vec::new();
        for (order, is_batched) in [("", true), ("_b1", false)] {
            for (name, old) in designs {
                let table = Arc::new(old_table());
                let lane = |_| ground.lane(place(old, is_batched, &table)?).map(Mutex::new);
                let lanes = (0..THREADS).map(lane).collect::<Result<_>>()?;
                all.push(Lanes { name: format!("forward_{name}"), order, lanes });
            }
        }
        Ok(Forwarding { all, _ground: ground })
    }
}

impl Lanes {
    /// Forwards for a slice, all of its frames.
    pub fn run(&self, thread: usize, lap: &Lap<'_>) -> Share {
        let mut lane = lock(&self.lanes[thread]);
        let share = lap.run_of(BATCH_MAX as u64, || {
            let moved = lane.turn();
            debug_assert_eq!(moved, BATCH_MAX);
        });
        lane.check(&self.name).expect("every frame is forwarded");
        share
    }
}

/// By batches, the old header is made as a batch leaves, and one queue brings all frames; frame by frame, it is made in
/// each frame's own pass, and 64 queues bring one each.
fn place(old: Option<Old>, is_batched: bool, table: &Arc<Table>) -> Result<Place> {
    let make = |old: Old, table: &Table| {
        let mut header = [0; 14];
        let known = old(table, black_box(ADDRESS.into()), &mut header);
        assert!(known, "the table has the neighbour");
        black_box(&mut header);
    };
    let sinks = match old {
        Some(old) if is_batched => [(); 2].map(|()| -> Sink {
            let table = table.clone();
            Box::new(move |_, frames| frames.iter().for_each(|_| make(old, &table)))
        }),
        _ => no_sinks(),
    };
    let template = ipv4_template(DESTINATION, FRAME_LEN).0;
    let (queues, len) = if is_batched { (1, BATCH_MAX) } else { (BATCH_MAX, 1) };
    let source = |_| -> Source {
        let table = table.clone();
        let old = old.filter(|_| !is_batched);
        Box::new(move |pool: &mut Pool, batch: &mut Batch, _| {
            pool.take_into(batch, len);
            write_same(pool, batch, FRAME_LEN, &template, |_: &mut Head| {
                if let Some(old) = old {
                    make(old, &table);
                }
            });
            Next::More
        })
    };
    Place::new(0, (0..queues).map(source), sinks)
}
