//! What does one worker forward between memory ports, with a full table?
//!
//! The measured loop does what a router does with a frame that its device has just written: it takes a
//! free frame, writes 64 bytes into it with a destination and a checksum from 2^20 targets (the
//! device's work), and turns the unmodified worker: all checks, full-table lookup, neighbour, TTL and
//! checksum, ledger, grace periods; then the sink gives the frame back. 256 next hops on two ports.
//!
//! Figures, for IPv4 and IPv6, for destinations drawn inside announced prefixes (`random`) and for one
//! destination (`same`): million frames a second, and nanoseconds a frame. `generator_ns` is the part
//! of the device's work and the pool alone.
//!
//! Not measured here: more than one worker, devices, other frame sizes, latency.
//!
//! Needs a core with nothing else on it. The four rows are interleaved. `--peer` measures beside another forwarder
//! ([`peer`]).

mod peer;

use crate::observation;
use crate::peer::Peer;
use crate::prelude::*;
use crate::progress;
use crate::router::{Ground, Lane, Place, by_turns, no_sinks, port};
use crate::threads::alone;
use manylane_lab::device::{ipv6_template, targets, write_ipv4};
use manylane_lab::prefixes::Draw;

/// What does one worker forward between memory ports, with a full table?
#[derive(clap::Args)]
pub struct Plan {
    #[command(flatten)]
    pace: Pace,
    #[command(flatten)]
    table: Table,
    /// The core to run on; without it, the last one
    #[arg(long)]
    core: Option<usize>,
    /// Only rows whose names begin so, such as `ipv4_same`: for a profiler
    #[arg(long, value_name = "NAME", default_value = "")]
    row: String,
    /// Measure in turn with this forwarder, built from `bench/peers`
    #[arg(long, value_name = "NAME")]
    peer: Option<Peer>,
}

const FRAMES: u32 = 16_384;

/// The rows of the result, by the number that the generator reads.
const ROWS: [&str; 4] = ["ipv4_random", "ipv4_same", "ipv6_random", "ipv6_same"];

pub fn run(plan: &Plan) -> Result {
    if let Some(Peer::Dpdk) = plan.peer {
        return peer::run(plan);
    }
    if !ROWS.iter().any(|name| name.starts_with(plan.row.as_str())) {
        return Err(format!("--row {}: the rows are {}", plan.row, ROWS.join(", ")).into());
    }
    let output = plan.pace.output("forward").named(!plan.row.is_empty());
    let cores = affinity::cores()?;
    let core = plan.core.or(cores.last().copied()).unwrap_or(0);
    affinity::pin(core)?;
    progress::doing("loads the table");
    let prefixes = plan.table.read()?;
    output.note(&format!(
        "{} IPv4 and {} IPv6 prefixes, 64-byte frames, one worker on core {core}",
        prefixes.ipv4.len(),
        prefixes.ipv6.len()
    ));
    let quick = plan.pace.quick;
    let slice = Duration::from_millis(if quick { 20 } else { 400 });
    let runs = plan.pace.rounds(3, 9, 7);

    let ground = Ground::with_table(1, FRAMES, &prefixes)?;
    let row = WordsMut::zeroed(1);
    let mut pool = ground.depot.pool();
    let mut generator =
        Generator { row: row.reader(), targets: Arc::new(Targets::new(&prefixes)), next: 0 };
    let mut source = generator.clone();
    let feed: Source = Box::new(move |pool: &mut Pool, batch: &mut Batch, _| {
        source.fill(pool, batch);
        Next::More
    });
    let lane = ground.lane(Place::new(0, [feed], no_sinks())?)?;
    let mut lab = Lab { lane, row };

    let rows: Vec<_> =
        (0..).zip(ROWS).filter(|(_, name)| name.starts_with(plan.row.as_str())).collect();
    let mut rounds = Rounds::default();
    for run in progress::rounds("forwards", runs + 1) {
        let mut round = Rounds::default();
        for &(row, name) in &rows {
            lab.measure(row, slice, quick, name, &mut round)?;
        }
        lab.row.publish(0, 0);
        generator.measure(&mut pool, slice, quick, &mut round);
        if run > 0 {
            rounds.append(round); // The first round warms up.
        }
    }
    rounds.print(&output)?;
    match plan.row.as_str() {
        "" => observation::cost(plan.pace.quick, runs, core, &cores, &output),
        _ => Ok(()),
    }
}

impl Ground {
    /// Workers between ports 0 and 1, with a full table over next hops at both.
    pub fn with_table(workers: usize, frames: u32, prefixes: &Prefixes) -> Result<Ground> {
        let mut ground = Ground::new(workers, frames, vec![port(0), port(1)])?;
        let [ipv4, ipv6] = ground.next_hops(by_turns)?;
        let (mut one, mut other) = (Random(7), Random(7));
        ground.load(
            prefixes.ipv4.iter().map(|&prefix| (prefix, ipv4[one.below(ipv4.len())])),
            prefixes.ipv6.iter().map(|&prefix| (prefix, ipv6[other.below(ipv6.len())])),
        )?;
        Ok(ground)
    }
}

struct Lab {
    lane: Lane,
    row: WordsMut<u32>,
}

impl Lab {
    /// Adds a round of the row: nanoseconds a frame, over a time slice. An error when a frame was not forwarded.
    fn measure(
        &mut self,
        row: u32,
        slice: Duration,
        quick: bool,
        name: &str,
        round: &mut Rounds,
    ) -> Result {
        self.row.publish(0, row);
        let before = self.lane.counts();
        let (ns, frames) = alone(slice, quick, || self.lane.turn());
        if self.lane.counts() != before.map(|count| count + frames as u64) {
            return Err(format!("{name}: not every frame was forwarded").into());
        }
        let ns = ns.map_err(|cause| round.blame(cause)).ok();
        round.push(&format!("{name}_mpps"), "Mpps", ns.map(|ns| 1e3 / ns));
        round.push(&format!("{name}_ns"), "ns", ns);
        Ok(())
    }
}

/// What the device would write: destination and checksum of each frame.
struct Targets {
    ipv4: Vec<Target>,
    ipv6: Vec<([u8; 16], u16)>,
    /// One of them, for a batch of frames to one destination.
    ipv4_same: [Target; BATCH_MAX],
    ipv6_same: [([u8; 16], u16); BATCH_MAX],
    ipv4_template: Head,
    ipv6_template: Head,
}

impl Targets {
    fn new(prefixes: &Prefixes) -> Targets {
        let mut random = Random(99);
        let ipv4 = targets(prefixes, &mut random, FRAME_LEN);
        let ipv6 = (0..TARGETS).map(|_| {
            let address = Ipv6Addr::from(prefixes.ipv6.as_slice().draw(&mut random));
            (address.octets(), ipv6_template(address).1)
        });
        let ipv6: Vec<_> = ipv6.collect();
        Targets {
            ipv4_same: [ipv4[5]; BATCH_MAX],
            ipv6_same: [ipv6[5]; BATCH_MAX],
            ipv4,
            ipv6,
            ipv4_template: ipv4_template(Ipv4Addr::UNSPECIFIED, FRAME_LEN).0,
            ipv6_template: ipv6_template(Ipv6Addr::UNSPECIFIED).0,
        }
    }
}

/// Stands for the device: writes frames of a row as fast as the worker takes them.
#[derive(Clone)]
struct Generator {
    row: Words<u32>,
    targets: Arc<Targets>,
    next: usize,
}

impl Generator {
    #[inline]
    fn fill(&mut self, pool: &mut Pool, batch: &mut Batch) {
        pool.take_into(batch, BATCH_MAX);
        let first = self.next;
        self.next = (first + BATCH_MAX) & (TARGETS - 1);
        let row = self.row.load(0);
        let is_random = row.is_multiple_of(2);
        let targets = &*self.targets;
        let windows = pool.region().view().land(batch.as_mut_slice(), FRAME_LEN as u16);
        if row < 2 {
            let ipv4 = if is_random { &targets.ipv4[first..] } else { &targets.ipv4_same[..] };
            for (bytes, target) in windows.zip(ipv4) {
                write_ipv4(bytes, &targets.ipv4_template, target);
            }
        } else {
            let ipv6 = if is_random { &targets.ipv6[first..] } else { &targets.ipv6_same[..] };
            for (bytes, (address, checksum)) in windows.zip(ipv6) {
                let bytes = head(bytes);
                *bytes = targets.ipv6_template;
                bytes[38..54].copy_from_slice(address);
                bytes[60..62].copy_from_slice(&checksum.to_ne_bytes());
            }
        }
    }

    /// Adds nanoseconds a frame for making frames and giving them back, without a worker.
    fn measure(&mut self, pool: &mut Pool, slice: Duration, quick: bool, round: &mut Rounds) {
        let made = || {
            let mut batch = Batch::new();
            self.fill(pool, &mut batch);
            let frames = batch.len();
            pool.give_back_all(&mut batch);
            frames
        };
        let ns = alone(slice, quick, made).0.map_err(|cause| round.blame(cause)).ok();
        round.push("generator_ns", "ns", ns);
    }
}
