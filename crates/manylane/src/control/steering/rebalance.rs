//! Which buckets to move, by measured load: a pure function.
//!
//! After RSS++ (Barbette and others, CoNEXT 2019): few moves, only from workers with too much to do to
//! workers with little, and none that would make these the busiest. Where they minimise imbalance over all
//! cores at once, here the busiest and the idlest worker are brought together, as often as looks allow:
//! an interval later there is a new measure.

use manylane_frame::vocabulary::PortId;

/// What a bucket carried in the last interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    pub port: PortId,
    pub bucket: usize,
    pub worker: u16,
    pub frames: u32,
}

/// A bucket that is to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Move {
    pub port: PortId,
    pub bucket: usize,
    pub to: u16,
}

/// Moves that make loads, each 0 to 1, more equal. Buckets without packets are not in `buckets`; who is
/// `idle`, paused or not there, gets none.
pub(super) fn moves(load: &[f64], idle: &[bool], buckets: &[Bucket]) -> Vec<Move> {
    let active = || (0..load.len()).filter(|&worker| !idle[worker]);
    let by_load = |&a: &usize, &b: &usize| load[a].total_cmp(&load[b]);
    let (Some(busiest), Some(idlest)) = (active().max_by(by_load), active().min_by(by_load)) else {
        return Vec::new();
    };
    if load[busiest] < OVERLOADED || load[busiest] - load[idlest] < GAP {
        return Vec::new();
    }
    let mut own: Vec<&Bucket> =
        buckets.iter().filter(|bucket| usize::from(bucket.worker) == busiest).collect();
    let frames: u64 = own.iter().map(|bucket| u64::from(bucket.frames)).sum();
    own.sort_by_key(|bucket| std::cmp::Reverse(bucket.frames));
    // What a packet costs its worker includes receiving for others: a bucket is at most that heavy, and a
    // move too few is made up for at the next look.
    let mut surplus = (load[busiest] - load[idlest]) / 2.0;
    let mut moves = Vec::new();
    for &&Bucket { port, bucket, frames: carried, .. } in &own {
        let weight = load[busiest] * f64::from(carried) / frames.max(1) as f64;
        if weight <= surplus && moves.len() < MOVES_MAX {
            surplus -= weight;
            moves.push(Move { port, bucket, to: idlest as u16 });
        }
    }
    moves
}

/// Below this share of its time a worker is not overloaded.
const OVERLOADED: f64 = 0.5;

/// Smaller differences are left alone: buckets would go to and fro.
const GAP: f64 = 0.1;

/// Most buckets at a time.
const MOVES_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(bucket: usize, worker: u16, frames: u32) -> Bucket {
        Bucket { port: PortId(0), bucket, worker, frames }
    }

    fn to(bucket: usize, to: u16) -> Move {
        Move { port: PortId(0), bucket, to }
    }

    #[test]
    fn the_heaviest_that_fit_go_to_the_idlest() {
        let buckets = [bucket(1, 0, 600), bucket(2, 0, 250), bucket(3, 0, 100), bucket(4, 0, 50)];
        // 0.9 and 0.3: 0.3 is to move, and 0.6 of the load is one bucket's.
        let moved = moves(&[0.9, 0.5, 0.3], &[false; 3], &buckets);
        assert_eq!(moved, [to(2, 2), to(4, 2)]);
    }

    #[test]
    fn no_bucket_moves_without_need_or_to_who_is_paused() {
        let buckets: Vec<_> = (0..100).map(|at| bucket(at, 0, 10)).collect();
        assert_eq!(moves(&[0.45, 0.1], &[false; 2], &buckets), []);
        assert_eq!(moves(&[0.95, 0.9], &[false; 2], &buckets), []);
        assert_eq!(moves(&[0.95, 0.1], &[false, true], &buckets), []);
        assert_eq!(moves(&[0.95, 0.1], &[true, true], &buckets), []);
        assert_eq!(moves(&[0.95, 0.1], &[false; 2], &buckets).len(), MOVES_MAX);
        assert_eq!(moves(&[0.95, 0.1], &[false; 2], &[bucket(0, 0, 9)]), [], "an elephant stays");
    }
}
