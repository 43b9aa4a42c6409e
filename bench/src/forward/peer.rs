//! What does another forwarder need for the same frames and the same table?
//!
//! `--peer dpdk` builds the forwarder of `bench/peers` on DPDK and runs both in turn on one core: each row, in each round,
//! by manylane's unmodified worker and by each lookup of DPDK (the order turns round). One process writes the table, the
//! frames and their next hops for both. `bench/peers/README.md` lists what one side does and the other does not.
//!
//! | row       | frames                                                                              |
//! |-----------|-------------------------------------------------------------------------------------|
//! | `*_random`| 64 bytes, to 2^20 destinations inside announced prefixes                            |
//! | `*_same`  | 64 bytes, to one destination                                                        |
//! | `*_imix`  | as `*_random`, of 64, 590 and 1514 bytes in memory (64, 594, 1518 in IMIX's words), 7:4:1 |
//! | `*_ports` | as `*_random`, received from two ports by turns                                     |
//!
//! Frames begin at one place of their slots, as AF_XDP with aligned chunks delivers them; the other rows of `forward` spread
//! them. Figures: `ROW_ns`, `ROW_dpdk_LOOKUP_ns`, and `ROW_of_dpdk`, manylane's speed relative to DPDK's with that row's
//! best lookup by median, round by round. `ROW_generator_ns` and `ROW_dpdk_generator_ns` are the device's part alone.

mod table;

use manylane_frame::vocabulary::QueueId;
use manylane_io::port::Receiver;
use manylane_io::port::memory;

use serde::Deserialize;

use self::table::{ROWS, Row, Targets};
use super::{FRAMES, Plan};
use crate::peer::{self, Answer, Program, routes};
use crate::prelude::*;
use crate::progress;
use crate::router::{Ground, Lane, Place, no_sinks};
use crate::threads::{alone, judged};

/// What the program says when it has loaded the table.
#[derive(Deserialize)]
struct Ready {
    version: String,
    /// Family and lookup.
    ways: Vec<(String, String)>,
}

/// What the program says of a slice besides.
#[derive(Deserialize)]
struct Dropped {
    dropped: u64,
}

pub fn run(plan: &Plan) -> Result {
    let rows: Vec<&Row> =
        ROWS.iter().filter(|row| row.name.starts_with(plan.row.as_str())).collect();
    if rows.is_empty() {
        let names = ROWS.map(|row| row.name).join(", ");
        return Err(format!("--row {}: no row begins so; the rows are {names}", plan.row).into());
    }
    let program = peer::build("forward")?; // Before anything that takes long.
    let output = plan.pace.output("forward_dpdk").named(!plan.row.is_empty());
    let core = plan.core.or(affinity::cores()?.last().copied()).unwrap_or(0);
    affinity::pin(core)?;
    progress::doing("loads the table, on both sides");
    let prefixes = plan.table.read()?;
    let targets = Arc::new(Targets::new(&prefixes));
    let (mut dpdk, ready): (_, Ready) = routes::with_file(
        &prefixes,
        TARGETS,
        |to| table::write(to, &targets),
        |table| Program::start(&program, &[core], Some(table)),
    )?;
    output.note(&format!(
        "{} IPv4 and {} IPv6 prefixes; manylane and {} by turns on core {core}",
        prefixes.ipv4.len(),
        prefixes.ipv6.len(),
        ready.version
    ));
    let quick = plan.pace.quick;
    let slice = Duration::from_millis(if quick { 20 } else { 100 });
    let mut lab = Lab::new(&prefixes, &targets, slice, quick)?;
    let mut rows: Vec<_> = rows.into_iter().map(|row| Measured::new(row, &ready.ways)).collect();
    let mut rounds = Rounds::default();
    for round in progress::rounds("forwards", plan.pace.rounds(3, 9, 7) + 1) {
        let mut values = Rounds::default();
        for row in &mut rows {
            row.round(&mut lab, &mut dpdk, &mut values)?;
        }
        if round > 0 {
            rounds.append(values); // The first round warms up.
        }
    }
    for Measured { row, contestants } in &rows {
        let ways = contestants
            .iter()
            .filter(|one| matches!(&one.kind, Kind::Dpdk(way) if way != "none"))
            .map(|one| one.name.clone())
            .collect::<Vec<_>>();
        peer::beside(&mut rounds, &output, &row.figure("of_dpdk"), &row.figure("ns"), &ways);
    }
    rounds.print(&output)
}

/// One row, round by round.
struct Measured {
    row: &'static Row,
    contestants: Vec<Contestant>,
}

struct Contestant {
    kind: Kind,
    /// Its figure.
    name: String,
}

enum Kind {
    Manylane,
    /// Making frames and giving them back, without a worker.
    Generator,
    /// By this lookup; `none` forwards nothing.
    Dpdk(String),
}

impl Measured {
    fn new(row: &'static Row, ways: &[(String, String)]) -> Measured {
        let contestant = |kind, name: &str| Contestant { kind, name: row.figure(name) };
        let family = if row.is_ipv6 { "ipv6" } else { "ipv4" };
        let mut contestants = vec![
            contestant(Kind::Manylane, "ns"),
            contestant(Kind::Generator, "generator_ns"),
            contestant(Kind::Dpdk("none".into()), "dpdk_generator_ns"),
        ];
        for (_, way) in ways.iter().filter(|(of, _)| of == family) {
            contestants.push(contestant(Kind::Dpdk(way.clone()), &format!("dpdk_{way}_ns")));
        }
        Measured { row, contestants }
    }

    fn round(&mut self, lab: &mut Lab, dpdk: &mut Program, values: &mut Rounds) -> Result {
        self.contestants.reverse(); // Each is early as often as late: what drifts favours neither.
        for Contestant { kind, name } in &mut self.contestants {
            let measured = match kind {
                Kind::Manylane => lab.measure(self.row)?,
                Kind::Generator => lab.generate(self.row),
                Kind::Dpdk(way) => lab.peer(dpdk, self.row, way)?,
            };
            let measured = measured.map_err(|cause| values.blame(cause)).ok();
            values.push(name, "ns", measured);
        }
        Ok(())
    }
}

/// Manylane's side: a worker that receives from one port, and one that receives from two by turns.
struct Lab {
    row: WordsMut<u32>,
    one_port: Lane,
    two_ports: Lane,
    generator: Generator,
    pool: Pool,
    slice: Duration,
    quick: bool,
}

impl Lab {
    fn new(
        prefixes: &Prefixes,
        targets: &Arc<Targets>,
        slice: Duration,
        quick: bool,
    ) -> Result<Lab> {
        let ground = Ground::with_table(2, FRAMES, prefixes)?;
        let row = WordsMut::zeroed(1);
        let generator =
            |port| Generator { row: row.reader(), targets: targets.clone(), next: 0, port };
        let one_port = ground.lane(Place::new(0, [generator(0).source()], no_sinks())?)?;
        let mut place = Place::new(1, [generator(0).source()], no_sinks())?;
        let source = generator(1).source();
        let other = memory::Receiver::from_source(PortId(1), QueueId(0), source);
        place.queues.push(Receiver::Memory(other));
        let two_ports = ground.lane(place)?;
        let (generator, pool) = (generator(0), ground.depot.pool());
        Ok(Lab { one_port, two_ports, generator, pool, row, slice, quick })
    }

    /// Nanoseconds a frame, or why they do not count. An error when a frame was not forwarded.
    fn measure(&mut self, row: &Row) -> Result<Result<f64, String>> {
        self.row.publish(0, row.number);
        let lane = if row.has_two_ports { &mut self.two_ports } else { &mut self.one_port };
        let before = lane.counts();
        let (ns, frames) = alone(self.slice, self.quick, || lane.turn());
        if lane.counts() != before.map(|count| count + frames as u64) {
            return Err(format!("{}: not every frame was forwarded", row.name).into());
        }
        Ok(ns)
    }

    /// What the peer needs for a frame by `way`. An error when a frame was not forwarded.
    fn peer(&self, dpdk: &mut Program, row: &Row, way: &str) -> Result<Result<f64, String>> {
        let slice = judged(self.quick, || {
            let answer: Answer<Dropped> =
                dpdk.ask(format_args!("{} {way}", row.name), self.slice)?;
            match (answer.more.dropped, answer.operations()) {
                (0, 1..) => Ok(answer.slice()),
                (dropped, _) => Err(Error::from(format!(
                    "{}: DPDK's forwarder with {way} dropped {dropped} frames",
                    row.name
                ))),
            }
        })?;
        Ok(slice.map(|slice| slice.ns()))
    }

    fn generate(&mut self, row: &Row) -> Result<f64, String> {
        self.row.publish(0, row.number);
        let made = || {
            let mut batch = Batch::new();
            self.generator.fill(&mut self.pool, &mut batch);
            let frames = batch.len();
            self.pool.give_back_all(&mut batch);
            frames
        };
        alone(self.slice, self.quick, made).0
    }
}

/// Stands for the device of a port.
struct Generator {
    row: Words<u32>,
    targets: Arc<Targets>,
    next: usize,
    port: usize,
}

impl Generator {
    fn source(mut self) -> Source {
        Box::new(move |pool: &mut Pool, batch: &mut Batch, _| {
            self.fill(pool, batch);
            Next::More
        })
    }

    #[inline]
    fn fill(&mut self, pool: &mut Pool, batch: &mut Batch) {
        pool.take_into(batch, BATCH_MAX);
        let first = self.next;
        self.next = (first + BATCH_MAX) & (TARGETS - 1);
        let row = &ROWS[self.row.load(0) as usize];
        self.targets.write(row, self.port, first, pool, batch.as_mut_slice());
    }
}
