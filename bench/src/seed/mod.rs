//! What does each mechanism cost beside what it replaces?
//!
//! One file for each mechanism; all of them measure in rounds (A B A B ...), so that what is compared
//! was measured within the same second, and on two cores at most.

pub mod all;
pub mod frame;
pub mod handoff;
pub mod neighbour;
pub mod rcu;
pub mod refcount;
pub mod socket;

use std::io;

use crate::figure::{Output, Rounds};
use crate::threads::Team;

/// How to measure.
pub struct Plan {
    /// Short slices that always count, few rounds.
    pub quick: bool,
    /// How many rounds.
    pub runs: usize,
    /// The cores, if not the last two.
    pub cores: Option<[usize; 2]>,
    /// Only so many of the regimes of `handoff`: for a profiler.
    pub scenes: Option<usize>,
}

/// Fewer rounds have no median to speak of.
const RUNS_MIN: usize = 7;
const RUNS_QUICK: usize = 2;

/// Measures round after round, without what the first one gives, and prints.
fn interleave(
    plan: &Plan,
    output: &Output,
    mut round: impl FnMut(&mut Team, &mut Rounds) -> io::Result<()>,
    finish: impl FnOnce(&mut Rounds),
) -> io::Result<()> {
    let mut team = Team::new(plan.cores, plan.quick)?;
    output.note(&format!("cores {:?}", team.cores()));
    round(&mut team, &mut Rounds::default())?; // Warms up.
    let mut rounds = Rounds::default();
    for _ in 0..if plan.quick { RUNS_QUICK } else { plan.runs.max(RUNS_MIN) } {
        round(&mut team, &mut rounds)?;
    }
    finish(&mut rounds);
    output.figure("slices_refused", "count", &[team.refused() as f64]);
    rounds.print(output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prefixes::Prefixes;

    /// Also while other tests run: a quick slice counts whatever happened beside it.
    #[test]
    fn each_mechanism_can_be_measured_quickly() {
        let plan = Plan { quick: true, runs: 0, cores: None, scenes: None };
        let output = |bench| Output::new(bench, true);
        refcount::run(&plan, &output("seed/refcount")).expect("a reference is held all the time");
        neighbour::measure(&plan, Some(4096), &output("seed/neighbour"))
            .expect("no frame is a mixture");
        let prefixes = Prefixes {
            ipv4: vec!["198.51.0.0/16".parse().expect("a prefix")],
            ipv6: vec!["2001:db8:9::/48".parse().expect("a prefix")],
        };
        handoff::measure(&plan, &prefixes, &output("seed/handoff"))
            .expect("nothing is missing, nothing reordered");
        rcu::run(&plan, &output("seed/rcu")).expect("readers turn until the writer is done");
        socket::run(&plan, &output("seed/socket")).expect("every frame is forwarded");
    }
}
