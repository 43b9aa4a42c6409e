//! What manylane costs, one file per question.
//!
//! `cargo run --profile dist -p manylane-bench -- <question> [--json]`. Every figure is the median of
//! several runs with the least and the largest beside it; what is compared is interleaved in one run.
//! Figures of different runs, or machines, do not compare.

mod baseline;
mod fib;
mod figure;
mod forward;
mod histogram;
mod observation;
mod prefixes;
mod report;
mod scale;
mod seed;
mod tcp;
mod threads;
mod veth;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use crate::figure::Output;

#[derive(Parser)]
#[command(about = "Measures manylane; run it with nothing else on the machine")]
struct Arguments {
    #[command(subcommand)]
    question: Question,
}

#[derive(Subcommand)]
enum Question {
    /// What does one worker forward between memory ports, with a full table?
    Forward {
        /// Prefixes to load, one a line; `.gz` is unpacked. Without it, a synthetic table.
        #[arg(long, value_name = "FILE")]
        prefixes: Option<PathBuf>,
        /// One JSON object a line
        #[arg(long)]
        json: bool,
        /// A short run, to see that it works; its figures mean little
        #[arg(long)]
        quick: bool,
        /// How often to measure each figure
        #[arg(long, default_value_t = 9)]
        runs: usize,
        /// The core to run on; without it, the last one
        #[arg(long)]
        core: Option<usize>,
        /// Only rows whose names begin so, such as `ipv4_same`: for a profiler
        #[arg(long, value_name = "NAME", default_value = "")]
        row: String,
    },
    /// How fast is the longest match, how large are its tables, and what do updates cost?
    Fib {
        /// Prefixes to load, one a line; `.gz` is unpacked. Without it, a synthetic table.
        #[arg(long, value_name = "FILE")]
        prefixes: Option<PathBuf>,
        /// One JSON object a line
        #[arg(long)]
        json: bool,
        /// A short run, to see that it works; its figures mean little
        #[arg(long)]
        quick: bool,
        /// How many rounds
        #[arg(long, default_value_t = 9)]
        runs: usize,
        /// The two cores to run on; without them, the last two
        #[arg(long, num_args = 2, value_names = ["CORE", "CORE"])]
        cores: Option<Vec<usize>>,
        /// Only these figures: `lookup`, `updates` or both
        #[arg(long, value_name = "PART", default_value = "")]
        only: String,
    },
    /// Which cache lines do workers take from each other, and what would 128 cores do?
    Scale {
        /// One JSON object a line
        #[arg(long)]
        json: bool,
        /// Few workers and operations, to see that it works
        #[arg(long)]
        quick: bool,
    },
    /// How fast is one TCP connection through it, beside the kernel's forwarding?
    Tcp {
        /// One JSON object a line
        #[arg(long)]
        json: bool,
        /// One round of a second each, to see that it works; its figures mean little
        #[arg(long)]
        quick: bool,
        /// How long each connection lasts
        #[arg(long, default_value_t = 3)]
        seconds: u32,
        /// How many rounds
        #[arg(long, default_value_t = 5)]
        runs: usize,
        /// How many workers
        #[arg(long, default_value_t = 1)]
        workers: u16,
        /// Only ways whose names begin so, such as `af_packet`: for a profiler
        #[arg(long, value_name = "NAME", default_value = "")]
        row: String,
    },
    /// What does `manylane accelerate` gain over the kernel's router, and what happens when it ends?
    Veth {
        /// Prefixes to load, one a line; `.gz` is unpacked. Without it, a synthetic table.
        #[arg(long, value_name = "FILE")]
        prefixes: Option<PathBuf>,
        /// One JSON object a line
        #[arg(long)]
        json: bool,
        /// A short run, to see that it works; its figures mean little
        #[arg(long)]
        quick: bool,
        /// How many rounds
        #[arg(long, default_value_t = 7)]
        runs: usize,
        /// Only groups whose names begin so: rate, full, tcp, latency, idle, gap, mirror, churn
        #[arg(long, value_name = "WORD", default_value = "")]
        only: String,
        /// What it starts as its child to send
        #[arg(long, hide = true)]
        live: Option<String>,
        /// What it starts as its child to accelerate; the socket
        #[arg(long, hide = true)]
        serve: Option<PathBuf>,
        /// The child's lease in milliseconds
        #[arg(long, hide = true, default_value_t = 200)]
        lease: u64,
    },
    /// What does a mechanism cost beside what it replaces?
    Seed {
        /// Which one
        mechanism: Mechanism,
        /// One JSON object a line
        #[arg(long)]
        json: bool,
        /// A short run, to see that it works; its figures mean little
        #[arg(long)]
        quick: bool,
        /// How many rounds
        #[arg(long, default_value_t = 9)]
        runs: usize,
        /// The two cores to run on; without them, the last two
        #[arg(long, num_args = 2, value_names = ["CORE", "CORE"])]
        cores: Option<Vec<usize>>,
        /// With `neighbour`: so many frames by each way besides, such as the source's 160000000
        #[arg(long)]
        frames: Option<u64>,
        /// With `handoff`: between veth devices beside the kernel's forwarding, and TCP; as root
        #[arg(long)]
        veth: bool,
        /// With `all`: a page with a plot for each mechanism
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
        /// With `handoff`: only the first so many regimes, for a profiler
        #[arg(long)]
        scenes: Option<usize>,
        /// What `frame` starts as its child
        #[arg(long, hide = true)]
        untuned: bool,
        /// What `handoff --veth` starts as its child
        #[arg(long, hide = true)]
        live: Option<String>,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Mechanism {
    /// Each of them, and the model of `scale`; `--html` makes a report of it
    All,
    /// Packet memory
    Frame,
    /// Reference counts
    Refcount,
    /// Grace periods
    Rcu,
    /// The way out to a neighbour
    Neighbour,
    /// What is received on one core and forwarded on another
    Handoff,
    /// Packet sockets that are opened, bound and closed; the kernel's as root
    Socket,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().question {
        Question::Forward { prefixes, json, quick, runs, core, row } => {
            let output = Output::new("forward", json);
            forward::run(forward::Plan { prefixes, quick, runs, core, row }, &output)
        }
        Question::Fib { prefixes, json, quick, runs, cores, only } => {
            let cores = cores.map(|cores| [cores[0], cores[1]]); // clap saw that there are two.
            let plan = fib::Plan { prefixes, quick, runs, cores, only };
            fib::run(&plan, &Output::new("fib", json))
        }
        Question::Scale { json, quick } => scale::run(quick, &Output::new("scale", json)),
        Question::Tcp { json, quick, seconds, runs, workers, row } => {
            let plan = tcp::Plan { quick, runs, seconds, workers, row };
            tcp::run(&plan, &Output::new("tcp", json))
        }
        Question::Veth { prefixes, json, quick, runs, only, live, serve, lease } => {
            match (live, serve) {
                (Some(live), _) => veth::send(&live),
                (_, Some(socket)) => veth::serve(socket, lease),
                (None, None) => {
                    let plan = veth::Plan { quick, runs, prefixes, only };
                    veth::run(&plan, &Output::new("veth", json))
                }
            }
        }
        Question::Seed {
            mechanism,
            json,
            quick,
            runs,
            cores,
            frames,
            veth,
            html,
            scenes,
            untuned,
            live,
        } => {
            let cores = cores.map(|cores| [cores[0], cores[1]]); // clap saw that there are two.
            let plan = seed::Plan { quick, runs, cores, scenes };
            match mechanism {
                Mechanism::All => seed::all::run(&plan, frames, json, html.as_deref()),
                Mechanism::Frame if untuned => seed::frame::serve(&plan),
                Mechanism::Frame => seed::frame::run(&plan, &Output::new("seed/frame", json)),
                Mechanism::Refcount => {
                    seed::refcount::run(&plan, &Output::new("seed/refcount", json))
                }
                Mechanism::Neighbour => {
                    let output = Output::new("seed/neighbour", json);
                    seed::neighbour::run(&plan, frames, &output)
                }
                Mechanism::Handoff => {
                    let output = Output::new("seed/handoff", json);
                    match live {
                        Some(live) => seed::handoff::veth::send(&live),
                        None if veth => seed::handoff::veth::run(&plan, &output),
                        None => seed::handoff::run(&plan, &output),
                    }
                }
                Mechanism::Socket => seed::socket::run(&plan, &Output::new("seed/socket", json)),
                Mechanism::Rcu => seed::rcu::run(&plan, &Output::new("seed/rcu", json)),
            }
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("manylane-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
