//! The cost of captures, and the packets they get: ours in both tiers, tcpdump's on the kernel's path.

use std::fs;
use std::path::PathBuf;

use manylane_accelerate::accelerator::Options;
use manylane_accelerate::programs::programs_named;
use manylane_client::{AcceleratedCapture, CaptureOptions, Points};
use manylane_io::interface::Interface;
use manylane_lab::Flows;
use manylane_lab::generator::{Destinations, LiveGenerator, LiveOptions};
use manylane_lab::packet::emit_udp;
use manylane_lab::{CLIENT_V4, CLIENT_V6};
use manylane_net::filter::{Instruction, Program};
use manylane_net::wire::ethernet::Mac;

use super::reader::{Reading, TcpDump, open};
use super::{
    FrameLap, PLAIN, Pace, Pairs, Place, Plan, Sink, TIERS, few, paired, percent_less, roles,
    slice, warm_up,
};
use crate::network::{Network, PORTS, needs};
use crate::prelude::*;
use crate::progress;

pub fn measure(plan: &Plan, cores: [usize; 2], rounds: &mut Rounds) -> Result {
    needs(&["tcpdump", "taskset"])?;
    let mut routers = [Router::new()?, Router::new()?];
    for round in progress::rounds("captures", plan.flow_rounds()) {
        for (family, flows) in &few() {
            for (sink, tier) in TIERS {
                routers.iter_mut().try_for_each(|router| router.begin(sink, tier))?;
                let bed = Bed::of(&routers, round, cores, plan);
                bed.tier(tier, (family, flows), plan, rounds)?;
            }
            routers.iter_mut().try_for_each(|router| router.place.end_in(PLAIN))?;
            Bed::of(&routers, round, cores, plan).kernel((family, flows), plan, rounds)?;
        }
    }
    for (family, _) in few() {
        for (_, tier) in TIERS {
            let [name, ours, theirs] = [
                format!("capture_{tier}_over_tcpdump"),
                format!("capture_lossless_{tier}_mpps"),
                "tcpdump_lossless_kernel_mpps".into(),
            ]
            .map(|name| format!("{name}{family}"));
            rounds.ratio(&name, &ours, &theirs);
        }
    }
    routers.into_iter().try_for_each(|router| router.place.network.close())
}

struct Router {
    place: Place,
    /// With the sockets of the daemon.
    folder: Folder,
}

impl Router {
    fn new() -> Result<Router> {
        let place = Place::new(Network::with_routes(1, &[])?)?;
        Ok(Router { place, folder: Folder::make()? })
    }

    /// With a daemon in which no capture was opened yet.
    fn begin(&mut self, sink: Sink, tier: &str) -> Result {
        self.place.end_in(sink)?;
        let socket = self.folder.0.join("api.sock");
        self.place.restart(Options { socket: Some(socket), ..Options::new(PORTS) })?;
        Ok(self.place.choose(tier)??)
    }
}

struct Bed<'a> {
    /// Has captures.
    observed: &'a Router,
    /// Has none.
    other: &'a Router,
    cores: [usize; 2],
    slice: Duration,
}

impl<'a> Bed<'a> {
    /// The roles of this round.
    fn of(routers: &'a [Router; 2], round: usize, cores: [usize; 2], plan: &Plan) -> Bed<'a> {
        let [observed, other] = roles(round).map(|at| &routers[at]);
        Bed { observed, other, cores, slice: slice(plan) }
    }

    fn tier(
        &self,
        tier: &'static str,
        (family, flows): (&str, &Flows),
        plan: &Plan,
        rounds: &mut Rounds,
    ) -> Result {
        let both = [self.observed, self.other];
        for router in both {
            warm_up(&router.place, flows, (self.cores[0], self.slice))?;
        }
        let name = |figure: &str, unit: &str| format!("{figure}_{tier}{unit}{family}");
        let pairs = |rounds: &mut Rounds| {
            progress::tick();
            let pace = Pace::of(plan, 1);
            let on = (self.cores[0], pace.slice);
            let pairs = Pairs::take(pace, |which| both[which].place.forwarded_by(tier, flows, on));
            paired(pairs, rounds)
        };
        let open = {
            let _open = self.open(nothing(), (None, Points::RECEIVE | Points::TRANSMIT))?;
            pairs(rounds)?
        };
        self.wait_until_none_is_open()?;
        let whole = open.as_ref().map(|pairs| pairs.mpps(1));
        rounds.push(&name("capture_off", "_mpps"), "Mpps", whole);
        rounds.push(&name("capture_cost", "_ns"), "ns", open.map(|pairs| pairs.ns_more()));
        let closed = pairs(rounds)?;
        rounds.push(&name("capture_closed", "_ns"), "ns", closed.map(|pairs| pairs.ns_more()));

        let [lan, _] = PORTS;
        let capture = self.open(Program::accept_all(), (Some(lan), Points::RECEIVE))?;
        let reading = Reading::start(capture, self.cores[1])?;
        let got = lossless(plan, |per_second| self.read(&reading, (tier, flows), per_second))?;
        reading.stop()?;
        self.wait_until_none_is_open()?;
        let slowdown = whole.map(|whole| percent_less(got.full_mpps, whole));
        rounds.push(&name("capture_slowdown", ""), "%", slowdown);
        got.push(&name("capture_lossless", "_mpps"), rounds);
        Ok(())
    }

    fn open(
        &self,
        filter: Program,
        (port, points): (Option<&str>, Points),
    ) -> Result<AcceleratedCapture> {
        let port = port.map(str::to_owned);
        let options = CaptureOptions { port, points, filter: Some(filter), snap: SNAP };
        let capture = open(&self.observed.folder.0.join("api.sock"), options)?;
        match capture.untranslated() {
            Some(why) => Err(format!("the filter does not run in the kernel: {why}").into()),
            None => Ok(capture),
        }
    }

    /// The daemon takes a capture's programs away when it sees that the capture was closed.
    fn wait_until_none_is_open(&self) -> Result {
        let patience = Instant::now() + PATIENCE;
        while programs_named(PROGRAMS)? > 0 {
            if Instant::now() > patience {
                return Err(
                    "a capture's programs stay, or another daemon has a capture open".into()
                );
            }
            thread::sleep(LOOK); // The kernel does not notify of it.
        }
        Ok(())
    }

    /// A lap at this rate, while a capture of ours is read.
    fn read(
        &self,
        reading: &Reading,
        (tier, flows): (&str, &Flows),
        per_second: u64,
    ) -> Result<Tried> {
        progress::tick();
        let lost = reading.lost();
        let generator = self.generate(flows, per_second)?;
        let lap = self.observed.place.lap(self.slice, Some(tier), || Ok(reading.taken()))?;
        generator.stop()?;
        let forwarded = lap.mpps() * lap.share();
        let is_lossless = reading.lost() == lost && lap.mpps() >= forwarded * KEEPS_UP;
        Ok(Tried { forwarded, taken: lap.mpps(), is_lossless })
    }

    /// The kernel's path, with tcpdump and without.
    fn kernel(&self, (family, flows): (&str, &Flows), plan: &Plan, rounds: &mut Rounds) -> Result {
        self.observed.place.choose("kernel")??;
        let name = |figure: &str| format!("{figure}{family}");
        warm_up(&self.observed.place, flows, (self.cores[0], self.slice))?;
        let alone = self.sunk(flows, 0)?.mpps();
        let got = lossless(plan, |per_second| self.dumped(flows, per_second))?;
        rounds.push(&name("tcpdump_off_kernel_mpps"), "Mpps", Some(alone));
        let slowdown = percent_less(got.full_mpps, alone);
        rounds.push(&name("tcpdump_slowdown_kernel"), "%", Some(slowdown));
        got.push(&name("tcpdump_lossless_kernel_mpps"), rounds);
        Ok(())
    }

    fn sunk(&self, flows: &Flows, per_second: u64) -> Result<FrameLap> {
        progress::tick();
        let generator = self.generate(flows, per_second)?;
        let lap = self.observed.place.lap(self.slice, None, || self.observed.place.sunk())?;
        generator.stop()?;
        Ok(lap)
    }

    /// A lap at this rate, beside a tcpdump.
    fn dumped(&self, flows: &Flows, per_second: u64) -> Result<Tried> {
        let [lan, _] = PORTS;
        let tcpdump = TcpDump::start(&self.observed.place.network.lab.router, lan, self.cores[1])?;
        let lap = self.sunk(flows, per_second)?;
        let [written, received, lost] = tcpdump.stop()?;
        // What tcpdump's kernel has not handed over yet is no more than it hands over at once.
        let unread = received.saturating_sub(written);
        let keeps_up = unread <= BLOCKS || written as f64 >= received as f64 * KEEPS_UP;
        let is_lossless = lost == 0 && keeps_up;
        Ok(Tried { forwarded: lap.mpps(), taken: lap.mpps(), is_lossless })
    }

    /// As [`Lab::generate`](manylane_lab::Lab::generate), with this number of frames a second; 0 for no limit.
    fn generate(&self, flows: &Flows, per_second: u64) -> Result<LiveGenerator> {
        let lab = &self.observed.place.network.lab;
        let core = self.cores[0];
        let to = lab.router.run(|| Interface::read("lan"))?.mac;
        let to_address = flows.addresses()[0];
        let source = if to_address.is_ipv4() { CLIENT_V4 } else { CLIENT_V6 };
        let generator = lab.client.run(move || -> Result<LiveGenerator> {
            let interface = Interface::read("eth0")?;
            let mut frame = vec![0; 64];
            emit_udp(&mut frame, 64, [to, interface.mac].map(Mac), [source, to_address]);
            let destinations = Destinations::InTurn(vec![to_address]);
            let options =
                LiveOptions { frame, destinations, ports: 1, per_second, core: Some(core) };
            Ok(LiveGenerator::start(&interface, options)?)
        })?;
        Ok(generator)
    }
}

/// What was seen at one rate, in million packets a second.
struct Tried {
    forwarded: f64,
    taken: f64,
    is_lossless: bool,
}

/// What was seen at several.
struct Got {
    /// What was forwarded at the full rate.
    full_mpps: f64,
    /// The highest rate that was tried without loss.
    lossless_mpps: Option<f64>,
}

impl Got {
    fn push(&self, name: &str, rounds: &mut Rounds) {
        if self.lossless_mpps.is_none() {
            rounds.blame("packets were lost at each rate that was tried".into());
        }
        rounds.push(name, "Mpps", self.lossless_mpps);
    }
}

/// Tries the full rate, and then each time a rate in the middle of what is left.
fn lossless(plan: &Plan, mut at: impl FnMut(u64) -> Result<Tried>) -> Result<Got> {
    let full = at(0)?;
    let mut got = Got { full_mpps: full.forwarded, lossless_mpps: None };
    if full.is_lossless {
        got.lossless_mpps = Some(full.taken);
        return Ok(got);
    }
    let (mut least, mut most) = (0.0, full.forwarded);
    let steps = if plan.pace.quick { 1 } else { STEPS };
    for step in 0..STEPS_MAX {
        if step >= steps && got.lossless_mpps.is_some() {
            break;
        }
        let wanted = f64::midpoint(least, most);
        let tried = at((wanted * 1e6) as u64)?;
        match tried.is_lossless {
            true => {
                least = wanted;
                got.lossless_mpps = Some(tried.taken);
            }
            false => most = wanted,
        }
    }
    Ok(got)
}

/// A folder that goes with this value.
struct Folder(PathBuf);

impl Folder {
    fn make() -> io::Result<Folder> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed); // Only to have another name.
        let name = format!("manylane-bench-observed-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder)?;
        Ok(Folder(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // The system empties that place, too.
    }
}

/// `udp src port 53` of plain frames: the generator's have another port.
fn nothing() -> Program {
    const LDH: u16 = 0x28;
    const JEQ: u16 = 0x15;
    const RET: u16 = 0x06;
    let list = [
        (LDH, 0, 0, 12),
        (JEQ, 0, 2, 0x86dd),
        (LDH, 0, 0, 54),
        (JEQ, 3, 4, 53),
        (JEQ, 0, 3, 0x0800),
        (LDH, 0, 0, 34),
        (JEQ, 0, 1, 53),
        (RET, 0, 0, SNAP),
        (RET, 0, 0, 0),
    ];
    let instruction = |(code, jt, jf, k)| Instruction { code, jt, jf, k };
    Program::new(list.map(instruction).into()).expect("it ends")
}

/// As `manylane capture` and tcpdump take by themselves.
const SNAP: u32 = 262_144;
/// Rates that are tried besides the full one; more of them, up to a bound, while packets are lost at each.
const STEPS: usize = 4;
const STEPS_MAX: usize = 10;
/// Packets of two blocks of tcpdump's memory, 256 KiB each.
const BLOCKS: u64 = 4096;
/// The part of the packets that a reader has to take while they are forwarded.
const KEEPS_UP: f64 = 0.98;
/// What the kernel calls the programs of captures.
const PROGRAMS: &str = "manylane_capt";
const LOOK: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_wants_a_port_that_the_generator_does_not_send_from() {
        let frame = |kind: u16, port_at: usize, port: u16| {
            let mut frame = [0; 64];
            frame[12..14].copy_from_slice(&kind.to_be_bytes());
            frame[port_at..port_at + 2].copy_from_slice(&port.to_be_bytes());
            frame
        };
        for (kind, at) in [(0x0800, 34), (0x86dd, 54)] {
            assert_eq!(nothing().run(&frame(kind, at, 1024)), 0);
            assert_eq!(nothing().run(&frame(kind, at, 53)), SNAP);
        }
        assert_eq!(nothing().run(&frame(0x0806, 34, 53)), 0);
    }

    #[test]
    fn the_highest_lossless_rate_is_found_from_above() {
        let plan = |quick| Plan {
            pace: crate::Pace { json: true, quick, runs: None },
            table: crate::Table { prefixes: None },
            only: String::new(),
            serve: None,
            lease: 200,
        };
        let reader = |limit: f64| {
            move |per_second: u64| {
                let rate = if per_second == 0 { 2.0 } else { per_second as f64 / 1e6 };
                Ok(Tried { forwarded: rate, taken: rate.min(limit), is_lossless: rate <= limit })
            }
        };
        let found = |quick, limit| {
            let got = lossless(&plan(quick), reader(limit)).expect("it is found");
            (got.full_mpps, got.lossless_mpps)
        };
        assert_eq!(found(false, 3.0), (2.0, Some(2.0)), "all of it");
        assert_eq!(found(false, 1.3), (2.0, Some(1.25)));
        assert_eq!(found(true, 1.3), (2.0, Some(1.0)));
        assert_eq!(found(true, 0.3), (2.0, Some(0.25)), "further down");
        assert_eq!(found(true, 0.0), (2.0, None), "nothing that was tried");
    }
}
