//! What does each mechanism cost beside what it replaces?
//!
//! One file for each mechanism; all of them measure in rounds (A B A B ...), so that contestants are measured within the
//! same second, and on two cores at most.

pub mod all;
pub mod frame;
pub mod handoff;
pub mod neighbour;
pub mod rcu;
pub mod refcount;
pub mod socket;

use std::path::PathBuf;

use crate::peer::Peer;
use crate::prelude::*;
use crate::progress;
use crate::scale;

/// What does a mechanism cost beside what it replaces?
#[derive(clap::Args)]
pub struct Plan {
    /// Which one
    mechanism: Mechanism,
    #[command(flatten)]
    pub pace: Pace,
    /// The two cores to run on; without them, the last two
    #[arg(long, num_args = 2, value_names = ["CORE", "CORE"])]
    pub cores: Option<Vec<usize>>,
    /// With `neighbour`: this number of frames by each way besides, such as the source's 160000000
    #[arg(long)]
    frames: Option<u64>,
    /// With `handoff`: between veth devices beside the kernel's forwarding, and TCP; as root
    #[arg(long)]
    veth: bool,
    /// With `socket`: only this
    #[arg(long)]
    part: Option<socket::Part>,
    /// With `all`: a page with a plot for each mechanism
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// With `frame` and `rcu`: measure in turn with this library, by a program of `bench/peers`
    #[arg(long, value_name = "NAME")]
    peer: Option<Peer>,
    /// The child that `frame` starts
    #[arg(long, hide = true)]
    untuned: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Mechanism {
    /// Each of them, and the model of `scale`; `--html` makes a report of it
    All,
    /// Packet memory
    Frame,
    /// Reference counts
    Refcount,
    /// Grace periods
    Rcu,
    /// The header for a neighbour
    Neighbour,
    /// What is received on one core and forwarded on another
    Handoff,
    /// Packet sockets that are opened, bound and closed; the kernel's as root
    Socket,
}

type Question = fn(&Plan, &Output) -> Result;

/// The question about each mechanism, under the name of its bench, in the order of `all`. Packet memory last of what is
/// measured: it tunes glibc for the whole process.
const QUESTIONS: [(Mechanism, &str, Question); 8] = [
    (Mechanism::Neighbour, "compare/neighbour", neighbour::run),
    (Mechanism::Refcount, "compare/refcount", refcount::run),
    (Mechanism::Rcu, "compare/rcu", rcu::run),
    (Mechanism::Handoff, "compare/handoff", handoff::run),
    (Mechanism::Handoff, "compare/handoff", handoff::veth::run),
    (Mechanism::Socket, "compare/socket", socket::run),
    (Mechanism::All, "scale", |plan, output| scale::measure(&plan.pace, output)),
    (Mechanism::Frame, "compare/frame", frame::run),
];

/// The benches of `all`, by whose names their bounds are known.
pub fn bounds() -> Vec<&'static str> {
    QUESTIONS.iter().map(|(_, bench, _)| *bench).collect()
}

/// By each way, with `all` unless the user says otherwise: as many as in the source's measurement.
const FRAMES: u64 = 160_000_000;
const FRAMES_QUICK: u64 = 1_000_000;

pub fn run(plan: &Plan) -> Result {
    if let Some(Peer::Dpdk) = plan.peer {
        return match plan.mechanism {
            Mechanism::Frame => frame::peer::run(plan),
            Mechanism::Rcu => rcu::peer::run(plan),
            _ => Err("--peer: of the mechanisms `frame` and `rcu` have a peer".into()),
        };
    }
    match plan.mechanism {
        Mechanism::All => all::run(plan),
        Mechanism::Frame if plan.untuned => frame::serve(plan),
        mechanism => {
            let mut its = QUESTIONS.iter().filter(|(of, ..)| *of == mechanism);
            let question = if plan.veth { its.next_back() } else { its.next() };
            let (_, bench, question) = question.expect("each mechanism has a question");
            question(plan, &plan.pace.output(bench))
        }
    }
}

impl Plan {
    /// How many frames are sent by each way besides.
    fn frames(&self) -> Option<u64> {
        let usual = if self.pace.quick { FRAMES_QUICK } else { FRAMES };
        self.frames.or((self.mechanism == Mechanism::All).then_some(usual))
    }
}

/// Measures round after round, without what the first one gives, and prints. Fewer than 7 rounds have no median to speak
/// of; the question's bound may allow fewer on a slow machine.
fn interleave(
    plan: &Plan,
    output: &Output,
    round: impl FnMut(&mut Bench) -> Result,
    finish: impl FnOnce(&mut Rounds),
) -> Result {
    interleave_on(Bench::new(&plan.cores, plan.pace.quick)?, plan, output, round, finish)
}

/// As [`interleave`], for a question that has made its bench.
fn interleave_on(
    mut bench: Bench,
    plan: &Plan,
    output: &Output,
    mut round: impl FnMut(&mut Bench) -> Result,
    finish: impl FnOnce(&mut Rounds),
) -> Result {
    output.note(&format!("cores {:?}", bench.cores()));
    progress::doing("warms up");
    round(&mut bench)?;
    bench.rounds = Rounds::default();
    for _ in progress::rounds("measures", plan.pace.rounds(2, 9, 7)) {
        round(&mut bench)?;
    }
    finish(&mut bench.rounds);
    bench.print(output)
}
