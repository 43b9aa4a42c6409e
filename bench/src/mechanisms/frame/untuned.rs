//! The allocator as it comes, in a process of its own: tuning is for a whole process.
//!
//! The child is this program, and measures the row that its parent names, one at a time, while the parent waits; so
//! both are interleaved. The child reads a line with the row's number, and writes one with two figures, or `-` for one
//! that was disturbed. The child ends when its input does.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::scheme::Allocated;
use super::{MemoryScheme, ROWS, SLICE};
use crate::baseline::frame::{Glibc, Packets};
use crate::mechanisms::Plan;
use crate::prelude::*;

/// The child, seen from its parent.
pub struct Untuned {
    child: Child,
    rows: Option<ChildStdin>,
    figures: BufReader<ChildStdout>,
}

impl Untuned {
    /// Starts the child, to measure as `plan` says.
    pub fn start(plan: &Plan) -> Result<Untuned> {
        let mut command = Command::new(env::current_exe()?);
        command.args(["compare", "frame", "--untuned"]).args(plan.pace.quick.then_some("--quick"));
        if let Some(cores) = &plan.cores {
            command.arg("--cores").args(cores.iter().map(usize::to_string));
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let rows = child.stdin.take();
        let figures = BufReader::new(child.stdout.take().expect("it was asked for"));
        Ok(Untuned { child, rows, figures })
    }

    /// What row `number` takes on one core, and across two.
    pub fn measure(&mut self, number: usize) -> Result<[Option<f64>; 2]> {
        writeln!(self.rows.as_mut().expect("it is there until we end"), "{number}")?;
        let mut line = String::new();
        if self.figures.read_line(&mut line)? == 0 {
            return Err("the process that measures the untuned allocator ended".into());
        }
        let mut figures = line.split_whitespace().map(|figure| figure.parse().ok());
        Ok([figures.next().flatten(), figures.next().flatten()])
    }
}

impl Drop for Untuned {
    fn drop(&mut self) {
        self.rows = None; // The child sees the end of its input.
        let _ = self.child.wait(); // What it measured is here already; its status says nothing.
    }
}

pub fn serve(plan: &Plan) -> Result {
    let mut bench = Bench::new(&plan.cores, plan.pace.quick)?;
    bench.shorten(SLICE);
    // The allocator gives memory back to the system and takes it anew, milliseconds at a time.
    bench.allow_pauses();
    for line in io::stdin().lines() {
        let row = line?.parse().ok().and_then(|number: usize| ROWS.get(number));
        let row = row.ok_or("rows are in the order of their numbers")?;
        let way = || Allocated::new(Packets::<Glibc>::before());
        let figures = way.measure(&mut bench, row)?;
        let [one, cross] = figures.map(|ns| ns.map_or("-".into(), |ns| ns.to_string()));
        println!("{one} {cross}");
    }
    Ok(())
}
