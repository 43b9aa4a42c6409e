//! Sending to one neighbour: which lines do two workers take from each other for each frame?
//!
//! By the kernel's old way, by the source's fix, and by ours; in lockstep, so that between two accesses of a worker
//! the other has had one. The bench's question `compare neighbour` runs these counts alone, and times these designs.

use manylane_sync::primitive::counted::Books;
use manylane_sync::rcu::Reader;

use crate::figure::Output;
use crate::old::Table;
use crate::own::{ADDRESS, MAC, OURS, Own};
use crate::router::Result;

const WORKERS: usize = 2;
const FRAMES: u64 = 4096;

/// Counts and prints, and is an error when our workers write lines they share.
pub fn run(output: &Output) -> Result {
    let table = Table::new(&[(ADDRESS.into(), MAC)], OURS);
    let old = |way: fn(&Table, u32, &mut [u8; 14]) -> bool| {
        count(&mut [[0; 14]; WORKERS], |header| {
            assert!(way(&table, ADDRESS.into(), header), "the table has the neighbour");
        })
    };
    let lines = old(|table, address, header| table.before(address, header));
    output.figure("before_shared_writes_per_frame", "lines", &[lines]);
    let lines = old(|table, address, header| table.nocache(address, header));
    output.figure("nocache_shared_writes_per_frame", "lines", &[lines]);

    let lines = manylane();
    output.figure("shared_writes_per_frame", "lines", &[lines]);
    if lines == 0.0 { Ok(()) } else { Err(format!("{lines} lines for a frame").into()) }
}

fn manylane() -> f64 {
    let own = Own::new(WORKERS);
    let register = |_| own.domain.register().expect("there is a place for each");
    let mut workers: Vec<Reader> = (0..WORKERS).map(register).collect();
    count(&mut workers, |reader| {
        let mut header = [0; 14];
        own.adjacency(reader.guard(), own.id()).write_ethernet(&mut header);
        assert_eq!(header[..6], MAC);
        reader.quiescent();
    })
}

/// Lines for each frame that `send` sends.
fn count<W: Send>(workers: &mut [W], send: impl Fn(&mut W) + Sync) -> f64 {
    let books = Books::new();
    books.lockstep(workers, 64, FRAMES, send);
    books.total().transactions() as f64 / FRAMES as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    static QUIET: Output = Output::new("test", true);

    #[test]
    fn our_way_out_shares_nothing() {
        run(&QUIET).expect("no line moves");
    }

    #[test]
    fn the_old_ways_are_seen_to_share() {
        let table = Table::new(&[(ADDRESS.into(), MAC)], OURS);
        let lines = count(&mut [[0; 14]; WORKERS], |header| {
            assert!(table.nocache(ADDRESS.into(), header), "it is there");
        });
        assert!(lines > 1.0, "{lines}");
    }
}
