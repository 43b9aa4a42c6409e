//! Which sockets cost workers too much of their time.
//!
//! Workers time what they do for each socket (`worker/observers.rs`). The serving thread compares, a few times a second
//! while users but root have sockets: where all of theirs took more of a worker's time than `time_max` in `[sockets]`
//! allows, it closes some. Of the user whose sockets took most, the costliest goes first, so that a user with many sockets
//! cannot have another's closed: a user that takes no more than its part of `time_max` keeps its sockets. For a while the
//! sockets of a user whose socket was closed are neither opened nor changed, or a program that opens them anew at once would
//! take all the time after all.

use std::collections::BTreeMap;
use std::time::Duration;

/// How often the thread compares.
pub(super) const WINDOW: Duration = Duration::from_millis(250);

/// How long the user of a socket that was closed opens and changes none: much longer than the thread needs to notice, so
/// that workers have most of their time whatever a user tries.
pub(super) const BAR: Duration = Duration::from_secs(10);

/// What workers spent on a socket since the last look.
pub(super) struct Spent {
    /// The place of its connection.
    pub place: usize,
    pub user: u32,
    /// Nanoseconds, by worker.
    pub by_worker: Box<[u64]>,
}

/// A socket to close.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Excess {
    pub place: usize,
    /// The worker that had too much to do, and the share of its time that sockets took, in percent.
    pub worker: usize,
    pub percent: u64,
}

/// What to close, so that the rest is within `max` percent of each worker's time.
pub(super) fn excess(spent: &[Spent], window: Duration, max: u32) -> Vec<Excess> {
    let window_ns = (window.as_nanos() as u64).max(1);
    let mut closed: Vec<Excess> = Vec::new();
    let workers = spent.first().map_or(0, |one| one.by_worker.len());
    for worker in 0..workers {
        let stays =
            |one: &&Spent, closed: &[Excess]| closed.iter().all(|gone| gone.place != one.place);
        let sum: u64 = spent.iter().map(|one| one.by_worker[worker]).sum();
        let percent = sum.saturating_mul(100) / window_ns;
        loop {
            let mut users = BTreeMap::<u32, u64>::new();
            for one in spent.iter().filter(|one| stays(one, &closed)) {
                *users.entry(one.user).or_default() += one.by_worker[worker];
            }
            let left: u64 = users.values().sum();
            if left.saturating_mul(100) <= window_ns.saturating_mul(u64::from(max)) {
                break;
            }
            let Some((&user, _)) = users.iter().max_by_key(|(_, ns)| **ns) else { break };
            let costliest = spent
                .iter()
                .filter(|one| one.user == user && stays(one, &closed))
                .max_by_key(|one| one.by_worker[worker]);
            let Some(costliest) = costliest else { break };
            closed.push(Excess { place: costliest.place, worker, percent });
        }
    }
    closed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(of: &[(u32, [u64; 2])]) -> Vec<Spent> {
        let ms = |ms: u64| ms * 1_000_000;
        let one = |(place, &(user, by_worker)): (usize, &(u32, [u64; 2]))| Spent {
            place,
            user,
            by_worker: by_worker.map(ms).into(),
        };
        of.iter().enumerate().map(one).collect()
    }

    fn places(of: &[(u32, [u64; 2])]) -> Vec<usize> {
        let closed = excess(&spent(of), Duration::from_millis(100), 50);
        closed.iter().map(|excess| excess.place).collect()
    }

    #[test]
    fn what_is_within_the_bound_stays() {
        assert!(excess(&[], WINDOW, 50).is_empty());
        assert!(places(&[(1, [25, 50]), (2, [25, 0])]).is_empty());
        assert!(excess(&spent(&[(1, [100, 100])]), Duration::from_millis(100), 100).is_empty());
    }

    #[test]
    fn the_costliest_goes_first_and_no_more_than_needed() {
        assert_eq!(places(&[(1, [10, 0]), (1, [60, 0]), (1, [20, 0])]), [1]);
        // On two workers, each closed once.
        assert_eq!(places(&[(1, [60, 60]), (1, [40, 40]), (1, [0, 20])]), [0, 1]);
    }

    /// Sixty-four sockets of one user against one of another, which is costlier than each of them, but within its part of
    /// what all may take.
    #[test]
    fn many_small_sockets_of_one_user_do_not_close_anothers() {
        let mut of = vec![(1, [1, 0]); 64];
        of.push((2, [20, 0]));
        let closed = places(&of);
        assert!(!closed.contains(&64) && closed.len() == 34, "{closed:?}");
    }

    #[test]
    fn the_reason_has_the_worker_and_the_share_of_all() {
        let closed = excess(&spent(&[(1, [0, 45]), (2, [0, 38])]), Duration::from_millis(100), 50);
        assert_eq!(closed, [Excess { place: 0, worker: 1, percent: 83 }]);
    }
}
