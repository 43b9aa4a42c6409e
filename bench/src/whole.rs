//! Every question, one after the other: the run that `docs/performance.md` is made from.
//!
//! Standard output has a line of JSON that describes the machine and the commit, then the figures of all questions. Each
//! question runs in a process of its own, because some tune the allocator or pin threads. If one fails, the others still
//! run, and the program fails at the end.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::prelude::*;
use crate::report::machine;
use crate::{mechanisms, progress, scale, veth};

/// Every question: prints JSON, to make a page of
#[derive(clap::Args)]
pub struct Plan {
    /// A short run, to see that it works; its figures mean little
    #[arg(long)]
    quick: bool,
    /// How many rounds; without it, each question's own number
    #[arg(long)]
    runs: Option<usize>,
    /// Only these questions, such as `--only forward,fib`
    #[arg(long, value_delimiter = ',', value_name = "QUESTION")]
    only: Vec<String>,
    /// The table to forward by
    #[arg(long, value_name = "FILE", default_value = PREFIXES)]
    prefixes: PathBuf,
    /// With `forward`: also `forward --peer PEER`, beside that program
    #[arg(long, value_name = "PEER")]
    peer: Option<String>,
}

const PREFIXES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../testdata/prefixes.txt.gz");

/// The first line of a run.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// What the figures were taken on: name and value.
    pub head: Vec<(String, String)>,
    pub quick: bool,
}

/// A question: its words on the command line, and whether it takes a table.
pub struct Question {
    name: &'static str,
    has_table: bool,
}

/// Packet memory, in `compare`, comes last of what needs quiet cores; networks are not so delicate.
pub const QUESTIONS: [Question; 5] = [
    Question { name: "forward", has_table: true },
    Question { name: "fib", has_table: true },
    Question { name: "compare", has_table: false },
    Question { name: "veth", has_table: true },
    Question { name: "tcp", has_table: false },
];

impl Question {
    /// How long it takes at most.
    pub fn bound(&self) -> Duration {
        match self.name {
            "compare" => progress::bound(&mechanisms::bounds()),
            "veth" => progress::bound(&veth::bounds()),
            name => progress::bound(&[name]),
        }
    }

    fn command(&self, plan: &Plan) -> io::Result<Command> {
        let mut command = Command::new(env::current_exe()?);
        command.arg(self.name).args((self.name == "compare").then_some("all")).arg("--json");
        command.args(plan.quick.then_some("--quick"));
        if let Some(runs) = plan.runs {
            command.args(["--runs", &runs.to_string()]);
        }
        if self.has_table {
            command.arg("--prefixes").arg(&plan.prefixes);
        }
        Ok(command)
    }
}

pub fn run(plan: &Plan) -> Result {
    let names = QUESTIONS.map(|question| question.name);
    if let Some(unknown) = plan.only.iter().find(|only| !names.contains(&only.as_str())) {
        return Err(format!("--only {unknown}: the questions are {}", names.join(", ")).into());
    }
    let is_wanted = |question: &&Question| {
        plan.only.is_empty() || plan.only.iter().any(|only| only == question.name)
    };
    let wanted: Vec<_> = QUESTIONS.iter().filter(is_wanted).collect();
    let head = Head { head: machine::facts(), quick: plan.quick }; // The machine's load: before ours.
    if wanted.iter().any(|question| question.name == "compare") {
        eprintln!("builds bench/counted, which takes minutes the first time");
        scale::counted(true, Some("neighbour"))?;
    }
    let beside = plan.peer.as_ref().map_or(Duration::ZERO, |_| progress::bound(&["forward_dpdk"]));
    let bounds = wanted.iter().map(|question| question.bound());
    progress::promise("all", bounds.sum::<Duration>() + beside);
    println!("{}", serde_json::to_string(&head)?);
    let mut failed = Vec::new();
    for question in wanted {
        let mut commands = vec![question.command(plan)?];
        if let Some(peer) = plan.peer.as_ref().filter(|_| question.name == "forward") {
            let mut beside = question.command(plan)?;
            beside.args(["--peer", peer]);
            commands.push(beside);
        }
        for mut command in commands {
            if !command.stdin(Stdio::null()).status()?.success() {
                failed.push(question.name);
            }
        }
    }
    match failed[..] {
        [] => Ok(()),
        _ => Err(format!("these questions failed, as said above: {}", failed.join(", ")).into()),
    }
}
