//! Every question, one after the other: the run that `docs/performance.md` is made from.
//!
//! Standard output has a line of JSON that describes the machine and the commit, then the figures of all questions. Each
//! question runs in a process of its own, because some tune the allocator or pin threads. If one fails, the others still
//! run, and the program fails at the end. With `--peer`, questions are also measured beside another library's programs
//! ([`peer`]); `--only peer` measures nothing else.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::peer::{self, Peer};
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
    /// Only these questions, such as `--only forward,fib`, or groups of veth's, such as `--only veth/stateful`; with `peer`,
    /// only what `--peer` adds to them
    #[arg(long, value_delimiter = ',', value_name = "QUESTION")]
    only: Vec<String>,
    /// The table to forward by
    #[arg(long, value_name = "FILE", default_value = PREFIXES)]
    prefixes: PathBuf,
    /// Also `forward`, `fib`, `compare frame` and `compare rcu` beside this library, by the programs of `bench/peers`
    #[arg(long, value_name = "NAME")]
    peer: Option<Peer>,
}

const PREFIXES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../testdata/prefixes.txt.gz");

/// The first line of a run.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// What the figures were taken on: name and value.
    pub head: Vec<(String, String)>,
    pub quick: bool,
}

/// A question: its name on the command line, and whether it takes a table.
pub struct Question {
    name: &'static str,
    has_table: bool,
    /// What `--peer` adds: the mechanism, if the question has mechanisms.
    peers: &'static [Option<&'static str>],
}

/// Packet memory, in `compare`, comes last of what needs quiet cores; networks are not so delicate.
pub const QUESTIONS: [Question; 5] = [
    Question { name: "forward", has_table: true, peers: &[None] },
    Question { name: "fib", has_table: true, peers: &[None] },
    Question { name: "compare", has_table: false, peers: &[Some("rcu"), Some("frame")] },
    Question { name: "veth", has_table: true, peers: &[] },
    Question { name: "tcp", has_table: false, peers: &[] },
];

impl Question {
    /// How long these groups of it take at most; without any, all of it.
    pub fn bound(&self, groups: &[&str]) -> Duration {
        match self.name {
            "compare" => progress::bound(&mechanisms::bounds()),
            VETH if groups.is_empty() => progress::bound(&veth::bounds_of("")),
            VETH => groups.iter().map(|group| progress::bound(&veth::bounds_of(group))).sum(),
            name => progress::bound(&[name]),
        }
    }

    /// How long it takes at most beside a peer.
    pub fn peers_bound(&self) -> Duration {
        let bench = |mechanism: &Option<&str>| match mechanism {
            Some(mechanism) => format!("{}/{mechanism}_dpdk", self.name),
            None => format!("{}_dpdk", self.name),
        };
        self.peers.iter().map(|peer| progress::bound(&[&bench(peer)])).sum()
    }

    /// The question's commands: its own unless `peer` alone is wanted, and those that a peer adds.
    fn commands(&self, plan: &Plan) -> io::Result<Vec<Command>> {
        let mut commands = Vec::new();
        for group in plan.groups().into_iter().filter(|_| self.name == VETH) {
            let mut command = self.command(plan, None)?;
            command.args(["--only", group]);
            commands.push(command);
        }
        if !plan.is_peer_only() && commands.is_empty() {
            commands.push(self.command(plan, (self.name == "compare").then_some("all"))?);
        }
        for mechanism in self.peers.iter().filter(|_| plan.peer.is_some()) {
            let mut beside = self.command(plan, *mechanism)?;
            beside.args(["--peer", "dpdk"]);
            commands.push(beside);
        }
        Ok(commands)
    }

    fn command(&self, plan: &Plan, mechanism: Option<&str>) -> io::Result<Command> {
        let mut command = Command::new(env::current_exe()?);
        command.arg(self.name).args(mechanism).arg("--json");
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

impl Plan {
    fn is_peer_only(&self) -> bool {
        self.only.iter().any(|only| only == PEER)
    }

    /// The groups of `--only`.
    fn groups(&self) -> Vec<&str> {
        self.only.iter().filter_map(|only| only.strip_prefix(VETH)?.strip_prefix('/')).collect()
    }

    /// The questions of `--only`, or an error that names one that is none.
    fn wanted(&self) -> Result<Vec<&'static Question>> {
        let names = QUESTIONS.each_ref().map(|question| question.name);
        if let Some(unknown) =
            self.groups().into_iter().find(|group| veth::bounds_of(group).is_empty())
        {
            return Err(format!("--only {VETH}/{unknown}: `veth --help` has the groups").into());
        }
        let question = |only: &String| match only.split_once('/') {
            Some((VETH, _)) => VETH.to_owned(),
            _ => only.clone(),
        };
        let named: Vec<_> = self.only.iter().map(question).filter(|only| only != PEER).collect();
        if let Some(unknown) = named.iter().find(|only| !names.contains(&only.as_str())) {
            let names = names.join(", ");
            return Err(format!("--only {unknown}: the questions are {names}, and {PEER}").into());
        }
        if self.is_peer_only() && self.peer.is_none() {
            return Err(format!("--only {PEER} needs --peer").into());
        }
        let is_wanted = |question: &&Question| {
            named.is_empty() || named.iter().any(|name| name == question.name)
        };
        Ok(QUESTIONS.iter().filter(is_wanted).collect())
    }
}

/// The question that has groups.
const VETH: &str = "veth";
/// What `--only` calls the commands of `--peer`.
const PEER: &str = "peer";

pub fn run(plan: &Plan) -> Result {
    let wanted = plan.wanted()?;
    if let Some(Peer::Dpdk) = plan.peer {
        peer::build("forward")?; // Says what is missing before anything is measured.
    }
    let head = Head { head: machine::facts(), quick: plan.quick }; // The machine's load: before ours.
    if !plan.is_peer_only() && wanted.iter().any(|question| question.name == "compare") {
        eprintln!("builds bench/counted, which takes minutes the first time");
        scale::counted(true, Some("neighbour"))?;
    }
    let bound = |question: &&Question| {
        let own = match plan.is_peer_only() {
            true => Duration::ZERO,
            false => question.bound(&plan.groups()),
        };
        own + plan.peer.map_or(Duration::ZERO, |_| question.peers_bound())
    };
    progress::promise("all", wanted.iter().map(bound).sum());
    println!("{}", serde_json::to_string(&head)?);
    let mut failed = Vec::new();
    for question in wanted {
        for mut command in question.commands(plan)? {
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        plan: Plan,
    }

    /// The commands of a command line, without the program's path and the table.
    fn commands(line: &str) -> Result<Vec<String>> {
        let plan = Line::try_parse_from(line.split(' '))?.plan;
        let mut commands = Vec::new();
        for question in plan.wanted()? {
            for command in question.commands(&plan)? {
                let words = command.get_args().map(|word| word.to_string_lossy());
                let words = words.filter(|word| word != "--prefixes" && *word != PREFIXES);
                commands.push(words.collect::<Vec<_>>().join(" "));
            }
        }
        Ok(commands)
    }

    #[test]
    fn a_peer_is_measured_behind_its_question_or_alone() {
        let said = |line| commands(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let own = ["forward", "fib", "compare all", "veth", "tcp"];
        assert_eq!(said("all"), own.map(|question| format!("{question} --json")));
        assert_eq!(
            said("all --peer dpdk --only fib,tcp"),
            ["fib --json", "fib --json --peer dpdk", "tcp --json"]
        );
        assert_eq!(
            said("all --peer dpdk --only peer"),
            ["forward", "fib", "compare rcu", "compare frame"]
                .map(|question| format!("{question} --json --peer dpdk"))
        );
        assert_eq!(said("all --peer dpdk --only peer,fib"), ["fib --json --peer dpdk"]);
    }

    #[test]
    fn only_names_what_there_is() {
        let error = |line| commands(line).expect_err("it is refused").to_string();
        assert_eq!(
            error("all --only fob"),
            "--only fob: the questions are forward, fib, compare, veth, tcp, and peer"
        );
        assert_eq!(error("all --only peer"), "--only peer needs --peer");
        assert_eq!(error("all --only veth/none"), "--only veth/none: `veth --help` has the groups");
        assert!(error("all --only fib/rate").starts_with("--only fib/rate: the questions are"));
    }

    #[test]
    fn only_some_groups_of_veth() {
        assert_eq!(
            commands("all --only tcp,veth/stateful,veth/observed").expect("they exist"),
            ["veth --json --only stateful", "veth --json --only observed", "tcp --json"]
        );
    }
}
