//! The program that forwards transit packets in the kernel, and the memory that it decides by.
//!
//! The program runs last at an interface's tcx ingress: each packet that it cannot judge, or that is not transit,
//! passes unchanged to the kernel. The program reads tables of plain words that the daemon writes meanwhile, and
//! counts into another.
//!
//! | memory                        | writer                              | readers                   |
//! |-------------------------------|-------------------------------------|---------------------------|
//! | [`Tables`]                    | one thread of the daemon            | programs, on every CPU    |
//! | counters ([`Counters`])       | programs, each CPU its own rows     | any thread                |
//! | samples ([`Samples`])         | programs, each CPU its own places; the request: the sampler | the sampler |
//! | [`Sflow`]                     | programs; the rates: [`SflowRates`] | the exporter                |
//!
//! | file                | what                                                               |
//! |---------------------|--------------------------------------------------------------------|
//! | `tables.h`          | the tables: names, words, numbers of verdicts                      |
//! | `fib.h`, `flow.h`   | lookups and hashes, as `manylane-net` has them                     |
//! | `rules.h`           | rules of the routing policy, if more than the usual ones           |
//! | `decide.h`          | the decision, for any kind of program                              |
//! | `flow_table.h`      | flows: the connections that firewall and translation have decided about |
//! | `candidates.h`      | which connections are worth a flow; `candidates.rs`                |
//! | `translate.h`       | what a flow's translation does to a packet                         |
//! | `rewrite.h`         | what forwarding does to a packet                                   |
//! | `partial.h`         | checksums that are still to be filled in: not for drivers          |
//! | `ingress.bpf.c`     | the program for tcx                                                |
//! | `driver.bpf.c`      | the program for drivers (XDP), in front of it; `driver.rs`, `devices.rs` |
//! | `workers.h`, `rows.h` | what goes up to workers, and what is counted; `workers.rs` |
//! | `sample.h`          | some packets' headers, to list the flows; `samples.rs`             |
//! | `sflow.h`           | packets for sFlow; `sflow.rs`                                      |
//! | `flush.bpf.c`       | flush_program of devices that refuse frames; `flush.rs`            |
//! | `drops.bpf.c`       | packets that the kernel drops, while a trace runs; `drops.rs`      |
//! | `tracepoint.rs`, `btf.rs` | where these two are attached, and what the kernel's structures are like |
//! | `observe.h`         | where the programs that forward call those of captures             |
//! | `capture.bpf.c`     | copies of packets, while a capture is open; `capture/`             |
//! | `trial.bpf.c`       | the program for tcx, for test runs that name the frame's tag       |
//! | `object.rs`         | from the object to the program                                     |
//! | `memory.rs`         | the tables' maps                                                   |
//! | `attach.rs`         | where it runs                                                      |
//! | `trial.rs`          | trying it on a frame                                               |
//! | `grace.rs`          | waiting until no program sees what was taken away                  |
//! | `ticks.rs`          | the clock that programs compare a lease with                       |
//!
//! A program reads an index in one table and follows it into the next, and may be interrupted by nothing but time:
//! what is to be used again is written again only after a wait ([`Grace`]). Words are stored with Release by
//! [`WordsMut::publish`](manylane_sync::words::WordsMut::publish); the program's loads are ordered by their
//! addresses depending on each other, which every processor keeps (Documentation/memory-barriers.txt).
//!
//! Everything here dies with the process: maps, program and links are descriptors, and nothing is pinned.

mod attach;
mod btf;
mod candidates;
mod capture;
mod counters;
mod driver;
mod drops;
mod flush;
mod grace;
mod memory;
#[cfg(test)]
mod object_tests;
mod samples;
mod sflow;
mod ticks;
mod tracepoint;
mod trial;
mod workers;

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use manylane_io::bpf::call::Kind;
use manylane_io::bpf::object::{self, Meant};
use manylane_io::bpf::types::Argument;
use manylane_io::bpf::{BpfError, maps};
use manylane_io::interface::Interface;

pub use attach::{
    AttachError, Attached, Link, attached, attached_egress, program_name, programs_named,
};
pub use candidates::{Candidate, Candidates};
pub use capture::{Capture, Targets, Wanted};
use capture::{Forwards, Observers};
pub use counters::Counters;
pub use driver::{
    DRIVER_EGRESS, DRIVER_EGRESS_PIECES, DRIVER_INGRESS, DRIVER_NAME, Driver, DriverCounters,
    DriverRow, Failure, PASS, REDIRECTED, WORKER_FRAME,
};
pub use drops::{KernelDrop, KernelDrops};
pub use grace::Grace;
use memory::Created;
pub use memory::{Sizes, Tables};
pub use samples::{Sample, SampledBy, Samples};
pub use sflow::{
    NoRate, SFLOW_RATE_MAX, Sflow, SflowCount, SflowCounts, SflowNote, SflowNotes, SflowRates,
};
pub use ticks::Ticks;
pub use trial::{Tried, TryOptions};
pub use workers::{
    Heartbeat, QUEUES, SocketMap, WORKERS_EGRESS, WORKERS_INGRESS, WORKERS_MAX, Workers,
};

/// What the program returns for a packet that is left to the next one, and to the kernel (`TCX_NEXT`).
pub const NEXT: i32 = -1;

/// What it returns for a packet that it has forwarded (`TCX_REDIRECT`).
pub const REDIRECT: i32 = 7;

/// The program's name, as `bpftool` shows it.
pub const NAME: &str = "manylane_fwd";

/// The program, loaded, with its tables; on the interfaces of all held [`Link`]s.
pub struct IngressProgram {
    program: OwnedFd,
    id: u32,
    counters: Counters,
    grace: Grace,
    maps: maps::Maps,
    targets: Targets,
    /// Until a caller takes them.
    samples: Option<Samples>,
    sflow: Option<Sflow>,
    candidates: Option<Candidates>,
}

impl IngressProgram {
    /// Makes the tables, all words 0, and loads the program, which leaves every packet to the kernel until the
    /// tables have a port and a lease.
    pub fn load(sizes: &Sizes) -> Result<(IngressProgram, Tables), BpfError> {
        IngressProgram::load_object(OBJECT, sizes)
    }

    /// Loads the program from another object made of the same source, to hold the two against each other.
    pub fn load_object(object: &[u8], sizes: &Sizes) -> Result<(IngressProgram, Tables), BpfError> {
        let load = |source: io::Error| failed("load", source);
        let cpus = maps::cpus().map_err(load)?;
        let Created { maps, tables, counters, samples, sflow, sketch, candidates, observed } =
            memory::create(sizes, cpus)?;
        let observers = Observers::new().map_err(load)?;
        let meant = |name: &str| match name {
            "observers" => Some(observers.meant()),
            name => function(name).or_else(|| maps.meant(name)),
        };
        let program = object::program(object, SECTION, meant).map_err(load)?;
        let program = program.load(KIND, NAME).map_err(|source| BpfError::Program {
            program: PROGRAM,
            step: "load",
            needs: NEEDS,
            source: source.into(),
        })?;
        let grace = Grace::new().map_err(load)?;
        let targets = Targets::new(&maps, observed).map_err(load)?;
        targets.add(&program, observers, KIND, Forwards::AtIngress).map_err(load)?;
        let fast = IngressProgram {
            samples: Some(Samples::new(samples, cpus, grace.another())),
            sflow: Some(sflow),
            candidates: Some(Candidates::new(candidates, sketch)),
            id: attach::id(&program).map_err(load)?,
            program,
            counters: Counters::new(counters.reader(), cpus),
            grace,
            maps,
            targets,
        };
        Ok((fast, tables))
    }

    /// Lets the program see the packets of an interface of the calling thread's network namespace, behind all other
    /// programs that are there.
    pub fn attach(&self, interface: &Interface) -> Result<Link, AttachError> {
        attach::attach(self.program.as_fd(), self.id, interface, attached)
    }

    /// The kernel's number of the program, as [`attached`] tells it.
    pub fn program(&self) -> u32 {
        self.id
    }

    /// What it counts.
    pub fn counters(&self) -> Counters {
        self.counters.clone()
    }

    /// The sampler of packets, here and in drivers; one exists.
    pub fn take_samples(&mut self) -> Option<Samples> {
        self.samples.take()
    }

    /// The memory for sFlow, of the programs here and in drivers; one exists.
    pub fn take_sflow(&mut self) -> Option<Sflow> {
        self.sflow.take()
    }

    /// What tells of connections that are worth a flow; one exists.
    pub fn take_candidates(&mut self) -> Option<Candidates> {
        self.candidates.take()
    }

    /// What captures are opened by: of this program, and of those of the driver tier once they are loaded.
    pub fn targets(&self) -> Targets {
        self.targets.clone()
    }

    /// Loads the programs of the driver tier, over the same tables.
    pub fn driver(&self) -> Result<Driver, BpfError> {
        Driver::load(driver::OBJECT, &self.maps, &self.targets)
    }

    /// Loads these programs from another object made of the same source.
    pub fn driver_object(&self, object: &[u8]) -> Result<Driver, BpfError> {
        Driver::load(object, &self.maps, &self.targets)
    }

    /// What waits until the program has ended wherever it was running.
    pub fn grace(&self) -> Grace {
        self.grace.another()
    }

    /// What the program returns for a frame ([`NEXT`], [`REDIRECT`]), what it makes of it, and the queueing priority
    /// that it gives it. The frame is counted as others are.
    pub fn try_packet(
        &self,
        frame: &[u8],
        options: &TryOptions,
    ) -> Result<(i32, Vec<u8>, u32), BpfError> {
        let run =
            trial::run(&self.program, frame, options).map_err(|error| failed("try", error))?;
        Ok((run.action, run.frame, run.priority))
    }

    /// As [`try_packet`](Self::try_packet), with the verdict, read from the counters: no other packet may arrive
    /// meanwhile, nor may the frame be run more than once.
    ///
    /// # Panics
    ///
    /// When the program has counted none, or more.
    pub fn try_verdict(&self, frame: &[u8], options: &TryOptions) -> Result<Tried, BpfError> {
        let all = || (0..memory::PORTS as u16).map(|port| self.counters.port(port));
        let before: Vec<_> = all().collect();
        let options = TryOptions { repeat: 1, ..*options };
        let (action, frame, priority) = self.try_packet(frame, &options)?;
        let (mut counted, mut egress) = (None, None);
        for (port, (before, after)) in (0..).zip(before.iter().zip(all())) {
            for place in (0..VERDICTS).filter(|&place| after[place] != before[place]) {
                assert!(counted.replace((port, place as u8)).is_none(), "another packet arrived");
            }
            if after[EGRESS_PACKETS] != before[EGRESS_PACKETS] {
                egress = Some(port);
            }
        }
        let (ingress, verdict) = counted.expect("every packet is counted");
        Ok(Tried { action, verdict, ingress, egress, frame, priority })
    }

    /// Nanoseconds that the program takes for a frame, on average of its runs. What it forwards is another frame
    /// in the next run: to be timed with one that goes to the kernel, or whose hop limit lasts.
    pub fn time_packet(&self, frame: &[u8], options: &TryOptions) -> Result<u32, BpfError> {
        let run =
            trial::run(&self.program, frame, options).map_err(|error| failed("try", error))?;
        Ok(run.duration_ns)
    }
}

/// The functions that the verifier follows by themselves: it would follow each search through a table again for each rule,
/// and the rules again for each way that leads to them.
fn function(name: &str) -> Option<Meant> {
    match name {
        "by_rules" => Some(Meant::Function(&[Argument::Memory(QUERY_BYTES)])),
        "in_table" => Some(Meant::Function(&[Argument::Number; 3])),
        _ => None,
    }
}

/// Of `struct query` in `rules.h`.
const QUERY_BYTES: u32 = 48;

fn failed(step: &'static str, source: io::Error) -> BpfError {
    BpfError::Program { program: PROGRAM, step, needs: NEEDS, source: source.into() }
}

/// Places of verdicts; bytes and packets that left by a port are behind them.
const VERDICTS: usize = 29;
/// The place of the packets that left by a port.
const EGRESS_PACKETS: usize = 30;

const PROGRAM: &str = "the program that forwards";
const NEEDS: &str = "Linux 6.6 (tcx)";
const SECTION: &str = "tcx/ingress";
static OBJECT: &[u8] = aya::include_bytes_aligned!("ingress.bpf.o");

/// `BPF_PROG_TYPE_SCHED_CLS`; where it is attached is said then.
const KIND: Kind = Kind { program: 3, attach: 0, flags: 0, interface: 0 };
