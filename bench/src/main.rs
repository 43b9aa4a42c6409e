//! What manylane costs, one file for each question.
//!
//! `cargo run --profile dist -p manylane-bench -- <question> [--json]`. Every figure is the median of several runs with the
//! least and the largest beside it; contestants are interleaved in one run. Figures of different runs, or machines, do not
//! compare. `all` asks every question, and `page` makes the page of performance from what `all` printed.

#![allow(clippy::disallowed_types, reason = "taken from `primitive`; clippy knows them by origin")]
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

mod baseline;
mod cause;
mod fib;
mod figure;
mod forward;
mod histogram;
mod mechanisms;
mod network;
mod observation;
mod page;
mod peer;
mod prelude;
mod progress;
mod report;
mod router;
mod scale;
mod tcp;
mod threads;
mod veth;
mod whole;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use manylane_lab::packet;
use manylane_lab::prefixes::Prefixes;

use crate::figure::Output;

#[derive(Parser)]
#[command(about = "Measures manylane; nothing else should run on the machine meanwhile")]
enum Question {
    All(whole::Plan),
    Page(page::Plan),
    Forward(forward::Plan),
    Fib(fib::Plan),
    Scale(scale::Plan),
    Tcp(tcp::Plan),
    Veth(veth::Plan),
    #[command(alias = "seed")]
    Compare(mechanisms::Plan),
}

/// How often to measure, and how to print.
#[derive(Clone, clap::Args)]
pub struct Pace {
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    /// A short run, to see that it works; its figures mean little
    #[arg(long)]
    quick: bool,
    /// How many rounds; without it, the question's own number
    #[arg(long)]
    runs: Option<usize>,
}

/// The table to forward by.
#[derive(clap::Args)]
pub struct Table {
    /// Prefixes to load, one a line; `.gz` is unpacked. Without it, a synthetic table.
    #[arg(long, value_name = "FILE")]
    prefixes: Option<PathBuf>,
}

impl Table {
    fn read(&self) -> io::Result<Prefixes> {
        Prefixes::of(self.prefixes.as_deref())
    }
}

impl Pace {
    /// The number of rounds: what the user wants, `least` at least unless the run is quick; by default `usual`, or `quick`.
    fn rounds(&self, quick: usize, usual: usize, least: usize) -> usize {
        match self.quick {
            true => self.runs.unwrap_or(quick).max(1),
            false => self.runs.unwrap_or(usual).max(least),
        }
    }

    /// Where the figures of this question are printed. The question begins: its bound is said.
    fn output(&self, bench: &'static str) -> Output {
        progress::question(bench);
        Output::new(bench, self.json)
    }
}

fn main() -> ExitCode {
    let done = match Question::parse() {
        Question::All(plan) => whole::run(&plan),
        Question::Page(plan) => page::run(&plan),
        Question::Forward(plan) => forward::run(&plan),
        Question::Fib(plan) => fib::run(&plan),
        Question::Scale(plan) => scale::run(&plan),
        Question::Tcp(plan) => tcp::run(&plan),
        Question::Veth(plan) => veth::run(&plan),
        Question::Compare(plan) => mechanisms::run(&plan),
    };
    progress::clear();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("manylane-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
