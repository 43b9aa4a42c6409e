//! Programs on other libraries, which a question measures beside manylane: its `--peer`.
//!
//! `bench/peers` has their sources, and a page that lists what one side does and the other does not. A question builds its
//! program, starts it once, and has it measure in turn with manylane. Both sides' slices count by one rule
//! ([`judged`](crate::threads::judged)): the program says when its threads began, ended and were away ([`shares`]).
//!
//! | question        | program     | bench                |
//! |-----------------|-------------|----------------------|
//! | `forward`       | `forward.c` | `forward_dpdk`       |
//! | `fib`           | `fib.c`     | `fib_dpdk`           |
//! | `compare frame` | `frame.c`   | `compare/frame_dpdk` |
//! | `compare rcu`   | `rcu.c`     | `compare/rcu_dpdk`   |

mod program;
pub mod routes;
mod shares;

use crate::prelude::*;
pub use program::{Program, build};
pub use shares::Answer;

/// What to run beside manylane.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Peer {
    /// Programs on DPDK's libraries
    Dpdk,
}

/// Adds the figure `ratio`: manylane's speed relative to that of the peer's best way, by the median. `own` and `ways` are
/// figures of time. Says which way that is, and the ratio round by round.
pub fn beside(rounds: &mut Rounds, output: &Output, ratio: &str, own: &str, ways: &[String]) {
    let medians = ways.iter().filter_map(|way| {
        let mut sorted: Vec<f64> = rounds.values(way).collect();
        sorted.sort_by(f64::total_cmp);
        (!sorted.is_empty()).then(|| (way, quantile(&sorted, 0.5)))
    });
    let best = medians.min_by(|one, other| one.1.total_cmp(&other.1)).map(|(way, _)| way);
    let Some(best) = best.or(ways.first()) else { return };
    rounds.ratio(ratio, best, own);
    let each: Vec<_> = rounds.values(ratio).map(|ratio| format!("{ratio:.2}")).collect();
    output.note(&format!("{ratio}: {best} is the peer; round by round {}", each.join(" ")));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The median decides, not the least round: a lucky round of a slow way makes it no peer.
    #[test]
    fn the_peer_is_the_way_with_the_lowest_median() {
        let mut rounds = Rounds::default();
        for (own, one, other) in [(10.0, 5.0, 8.0), (10.0, 20.0, 9.0), (20.0, 20.0, 10.0)] {
            rounds.push("ns", "ns", Some(own));
            rounds.push("dpdk_one_ns", "ns", Some(one));
            rounds.push("dpdk_other_ns", "ns", Some(other));
        }
        let output = Output::new("test", true);
        let ways = ["dpdk_one_ns".into(), "dpdk_other_ns".into()];
        beside(&mut rounds, &output, "of_dpdk", "ns", &ways);
        assert_eq!(rounds.values("of_dpdk").collect::<Vec<_>>(), [0.8, 0.9, 0.5]);
    }

    #[test]
    fn a_peer_without_a_round_that_counts_has_a_refused_ratio() {
        let mut rounds = Rounds::default();
        rounds.push("ns", "ns", Some(10.0));
        rounds.blame("another thread had the core".into());
        rounds.push("dpdk_ns", "ns", None);
        let output = Output::new("test", true);
        beside(&mut rounds, &output, "of_dpdk", "ns", &["dpdk_ns".into()]);
        rounds.print(&output).expect("it is a warning");
        let refused: Vec<_> = output.into_parts().1.into_iter().map(|row| row.figure).collect();
        assert_eq!(refused, ["dpdk_ns", "of_dpdk"]);
    }
}
