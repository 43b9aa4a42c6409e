//! The demo's first act: `manylane accelerate` takes over from a router's kernel while packets pass, and is killed.
//!
//! | Phase      | Small packets are forwarded by  | IP version, in turn |
//! |------------|---------------------------------|---------------------|
//! | `Kernel`   | the kernel                      | IPv4, IPv6          |
//! | `Ingress`  | our program behind the driver   | IPv6, IPv4          |
//! | `Driver`   | our program in the driver       | IPv4, IPv6          |
//! | `After`    | the kernel, after SIGKILL       | IPv6, IPv4          |
//!
//! The generator keeps its IP version, and continues, when the forwarder changes. TCP and pings pass all along, over
//! two other ports; on one or two cores TCP pauses while the accelerator copies the table. While the ledger is read,
//! all traffic pauses.

use std::fs;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use manylane_io::affinity;
use manylane_lab::generator::LiveSink;

use super::bar::{padded, spin, spinner};
use super::beside::{Beside, Totals};
use super::child::Accelerator;
use super::ledger;
use super::scores::{Phase, Scores, Version, microseconds};
use super::screen::Screen;
use super::stop::Stop;
use super::{DemoError, DemoOptions, Ending, NotHere, ended, table};
use crate::terminal::table::{bits_per_second, bytes, count};
use manylane_api::accelerate::AcceleratedLedger;
use manylane_lab::crossing::{TRANSIT_PORTS, prefixes_of};
use manylane_lab::{Crossing, Flows, Loaded, SmallPackets};

/// How the act ended, and its hosts. The kernel needs seconds to free their routes: that must not disturb the second act.
pub(super) struct Shown {
    pub(super) ending: Ending,
    _crossing: Crossing,
}

/// Makes the hosts, and shows all phases.
pub(super) fn run(
    options: &DemoOptions,
    stop: &Stop,
    screen: &mut Screen,
) -> Result<Shown, NotHere> {
    stop.begin(None);
    let place = Place::here();
    let crossing = spin("making five hosts", screen, Crossing::make)?;
    // What this machine lacks is found before the table is loaded.
    let sink = crossing.sink()?;
    drop(crossing.generate(&Flows::ipv4(), place.small)?);
    screen.say(INTRODUCTION);
    let prefixes = read(options.routes, screen);
    load(&crossing, &prefixes, stop, screen)?;
    if stop.is_over() {
        return Ok(Shown { ending: ended(stop), _crossing: crossing });
    }
    let flows = [Flows::ipv4(), Flows::ipv6(&prefixes)];
    let beside = Beside::start(&crossing, place.beside);
    let beside = beside.map_err(|error| NotHere::Unavailable(error.to_string()))?;
    let each = options.seconds.map_or(STRETCH, |seconds| Duration::from_secs(seconds) / STRETCHES);
    let mut act = Act {
        crossing: &crossing,
        sink,
        flows,
        core: place.small,
        generator: None,
        beside,
        scores: Scores::default(),
        tcp_makes_room: place.cores <= 2,
        silent: Vec::new(),
        each,
        stop,
        screen,
    };
    let shown = act.phases();
    let faults = act.conclude(shown, &place);
    if !faults.is_empty() {
        return Err(DemoError::Faults(faults).into());
    }
    Ok(Shown { ending: ended(stop), _crossing: crossing })
}

/// Which cores take part, and what else is to be known of this machine.
struct Place {
    /// Generator, router and sink: all of them run where packets are sent.
    small: usize,
    /// TCP and pings.
    beside: usize,
    cores: usize,
    load: f64,
}

impl Place {
    fn here() -> Place {
        let cores = affinity::cores().unwrap_or_default();
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0);
        let [small, beside] = [cores.first(), cores.last()].map(|core| core.copied().unwrap_or(0));
        Place { small, beside, cores: cores.len(), load }
    }

    /// What else is in the figures.
    fn text(&self) -> String {
        let Place { small, beside, load, .. } = self;
        let mut text = format!(
            "The generator, the router and the packet counter share core {small}, because a veth\ndoes all work on \
             the sender's core. Every figure includes the time of all three,\nso expect another ratio between \
             network cards.\n"
        );
        if small == beside {
            text += "TCP and pings share that core, too: this machine has no other.\n";
        }
        if *load >= BUSY {
            text += &format!(
                "This machine was busy when the demo began (load {load:.1}), so figures vary.\n"
            );
        }
        text
    }
}

/// Reads the table, not more than `limit` prefixes of it.
fn read(limit: Option<usize>, screen: &mut Screen) -> Vec<(IpAddr, u8)> {
    let (mut prefixes, source) = spin("reading the table of routes", screen, || {
        let (table, source) = table::read();
        (prefixes_of(&table), source)
    });
    if let Some(limit) = limit.filter(|limit| *limit < prefixes.len()) {
        // As many of each version as in the whole table.
        let (all, mut number) = (prefixes.len(), 0);
        prefixes.retain(|_| {
            number += limit;
            let is_kept = number >= all;
            number %= all;
            is_kept
        });
    }
    let v4 = prefixes.iter().filter(|(address, _)| address.is_ipv4()).count();
    let [v4, v6] = [v4, prefixes.len() - v4].map(|number| count(number as u64));
    screen.event(&format!("{v4} IPv4 and {v6} IPv6 prefixes {source}"));
    prefixes
}

/// Loads the routes, for [`LOAD_MAX`] at most, and shows how many the kernel has.
fn load(
    crossing: &Crossing,
    prefixes: &[(IpAddr, u8)],
    stop: &Stop,
    screen: &mut Screen,
) -> Result<(), NotHere> {
    let (begun, mut last) = (Instant::now(), Instant::now());
    let loaded = crossing.load(prefixes, |tried| {
        let is_over = stop.wait(MOMENT);
        if last.elapsed() >= screen.interval() {
            last = Instant::now();
            let bar = padded(tried as f64 / prefixes.len() as f64, 30);
            let of = format!("{} of {} routes", count(tried), count(prefixes.len() as u64));
            let line = format!("{of} are in the kernel");
            screen.show(&format!("Loading the kernel's table  {bar}  {of}"), &line);
        }
        !is_over && begun.elapsed() < LOAD_MAX
    });
    let loaded = loaded.map_err(|error| NotHere::Unavailable(error.to_string()))?;
    let Loaded { ipv4, ipv6, .. } = loaded;
    let missing = prefixes.len() as u64 - ipv4 - ipv6;
    let rest = match missing {
        0 => String::new(),
        _ => format!("; {} were refused or would have taken too long", count(missing)),
    };
    screen.event(&format!(
        "the router's kernel has {} IPv4 and {} IPv6 routes{rest}",
        count(ipv4),
        count(ipv6)
    ));
    Ok(())
}

/// The act while packets pass.
struct Act<'a> {
    crossing: &'a Crossing,
    sink: LiveSink,
    flows: [Flows; 2],
    core: usize,
    generator: Option<(Version, SmallPackets)>,
    beside: Beside,
    scores: Scores,
    /// TCP pauses while the accelerator copies the table: of two cores at most, small packets take one.
    tcp_makes_room: bool,
    /// What the kernel did not forward after SIGKILL.
    silent: Vec<Version>,
    /// How long each version passes in each phase.
    each: Duration,
    stop: &'a Stop,
    screen: &'a mut Screen,
}

impl Act<'_> {
    /// All phases, unless a signal ends them early. Returns a ledger if anything was accelerated.
    fn phases(&mut self) -> Result<Option<AcceleratedLedger>, String> {
        self.screen
            .event("small packets of 64 bytes to 65,536 addresses; TCP and pings over other ports");
        self.phase(Phase::Kernel, [Version::V4, Version::V6])?;
        if self.stop.is_over() {
            return Ok(None);
        }
        self.screen.event("`manylane accelerate` starts and copies the kernel's table");
        let mut child = Accelerator::start(self.crossing.router())?;
        if self.tcp_makes_room {
            self.screen
                .event("TCP pauses: on this machine it would take the core that the copy needs");
            self.beside.rest_tcp(true);
        }
        let doing = "manylane copies the table; the kernel still forwards";
        if !self.meanwhile(doing, || child.forwards())? {
            return Ok(None);
        }
        self.beside.rest_tcp(false);
        self.phase(Phase::Ingress, [Version::V6, Version::V4])?;
        if !self.stop.is_over() {
            match self.enter_the_driver(&child)? {
                None => self.phase(Phase::Driver, [Version::V4, Version::V6])?,
                Some(why) => self.screen.event(&format!("no driver tier on this machine: {why}")),
            }
        }
        self.rest(true)?;
        let ledger = ledger::settled(&child)?;
        if self.stop.is_over() {
            return Ok(Some(ledger));
        }
        self.rest(false)?;
        self.generate(Version::V6)?;
        self.stop.wait(SETTLE);
        self.screen.event("`kill -KILL` ends manylane");
        child.kill();
        self.phase(Phase::After, [Version::V6, Version::V4])?;
        Ok(Some(ledger))
    }

    fn phase(&mut self, phase: Phase, versions: [Version; 2]) -> Result<(), String> {
        versions.into_iter().try_for_each(|version| self.stretch(phase, version))
    }

    /// One IP version in one phase, shown while it lasts.
    fn stretch(&mut self, phase: Phase, version: Version) -> Result<(), String> {
        if self.stop.is_over() {
            return Ok(());
        }
        self.generate(version)?;
        self.stop.wait(SETTLE);
        if phase == Phase::After {
            self.await_kernel(version);
        }
        self.beside.begin();
        let interval = self.screen.interval_of(self.each);
        let (begun, before) = (Instant::now(), self.sink.dropped().0);
        loop {
            let left = self.each.saturating_sub(begun.elapsed());
            let is_over = self.stop.wait(interval.min(left));
            let packets = self.sink.dropped().0 - before;
            let rate = packets as f64 / begun.elapsed().as_secs_f64();
            self.scores.set(phase, version, rate);
            let line = self.line(phase, version, rate);
            let block = self.scores.draw(self.screen.has_colours());
            self.screen.show(&format!("\n{block}"), &line);
            if self.screen.is_gone() {
                self.stop.now();
            }
            if is_over || begun.elapsed() >= self.each {
                break;
            }
        }
        self.scores.beside(phase, self.beside.arrived());
        Ok(())
    }

    /// Waits until the kernel forwards. On a busy machine the generator, which shares a core with other programs, may
    /// not send at all for as long as a stretch is: that is no fault of the kernel or of manylane.
    fn await_kernel(&mut self, version: Version) {
        let (begun, before) = (Instant::now(), self.sink.dropped().0);
        while self.sink.dropped().0 == before {
            if self.stop.wait(LOOK) {
                return;
            }
            if begun.elapsed() > KERNEL_PATIENCE {
                return self.silent.push(version);
            }
        }
    }

    /// A stretch in one line.
    fn line(&self, phase: Phase, version: Version, rate: f64) -> String {
        let arrived = self.beside.arrived();
        let ping = arrived.ping[version as usize].map_or("-".into(), microseconds);
        let gain = self.scores.gain(phase, version).filter(|_| phase != Phase::Kernel);
        let gain = gain.map_or(String::new(), |gain| format!(" (x {gain:.1})"));
        format!(
            "{:<17}  {}  {:>9} packets/s{gain}; TCP {}; ping {ping}",
            phase.name(),
            version.name(),
            count(rate as u64),
            bits_per_second(arrived.tcp.iter().sum::<f64>() as u64),
        )
    }

    /// Shows the rate until something is done. Returns false when it is time to stop before that.
    fn meanwhile(
        &mut self,
        doing: &str,
        mut is_done: impl FnMut() -> Result<bool, String>,
    ) -> Result<bool, String> {
        let (begun, mut before, mut shown) =
            (Instant::now(), self.sink.dropped().0, Instant::now());
        while !is_done()? {
            if self.stop.wait(LOOK) {
                return Ok(false);
            }
            if shown.elapsed() >= self.screen.interval() {
                let now = self.sink.dropped().0;
                let rate = count(((now - before) as f64 / shown.elapsed().as_secs_f64()) as u64);
                (before, shown) = (now, Instant::now());
                let line = format!("{doing} {rate} packets/s");
                let bars = self.scores.draw(self.screen.has_colours());
                self.screen.show(&format!("\n{bars}\n{} {line}", spinner(begun)), &line);
            }
        }
        Ok(true)
    }

    /// Moves the ports of the small packets to the driver tier. Returns why that is impossible here, if it is.
    fn enter_the_driver(&mut self, child: &Accelerator) -> Result<Option<String>, String> {
        self.screen.event("manylane enters the driver of the two ports of the small packets");
        let (begun, mut left, mut why_not) = (Instant::now(), TRANSIT_PORTS.to_vec(), None);
        self.meanwhile("manylane enters the driver; at ingress it still forwards", || {
            let is_late = begun.elapsed() > DRIVER_PATIENCE;
            while let Some(port) = left.last() {
                match child.set_tier(port, "driver") {
                    Ok(()) => drop(left.pop()),
                    Err(why) if is_late => why_not = Some(why),
                    // A busy machine's accelerator answers late.
                    Err(_) => return Ok(false),
                }
                if why_not.is_some() {
                    return Ok(true);
                }
            }
            let ports = child.ports()?;
            let port = |name: &str| ports.iter().find(|port| port.name == name);
            let [entry, exit] = TRANSIT_PORTS.map(port);
            let (Some(entry), Some(exit)) = (entry, exit) else {
                return Err("it has lost a port".into());
            };
            let is_there = entry.tier == "driver" && exit.egress_tier == "driver";
            if !is_there && is_late {
                let reasons = entry.tier_reasons.iter().chain(&exit.tier_reasons);
                let reasons: Vec<_> = reasons.map(|reason| reason.what.as_str()).collect();
                why_not = Some(reasons.join("; "));
            }
            Ok(is_there || why_not.is_some())
        })?;
        Ok(why_not)
    }

    /// Sends small packets of this version from now on.
    fn generate(&mut self, version: Version) -> Result<(), String> {
        if self.generator.as_ref().is_some_and(|(present, _)| *present == version) {
            return Ok(());
        }
        self.end_generator()?;
        let generator = self.crossing.generate(&self.flows[version as usize], self.core);
        self.generator = Some((version, generator.map_err(|error| error.to_string())?));
        Ok(())
    }

    /// Pauses all traffic, or resumes TCP and pings.
    fn rest(&mut self, rests: bool) -> Result<(), String> {
        self.beside.rest(rests);
        if rests { self.end_generator() } else { Ok(()) }
    }

    fn end_generator(&mut self) -> Result<(), String> {
        let Some((_, generator)) = self.generator.take() else { return Ok(()) };
        generator.stop().map_err(|error| format!("the generator of packets ended: {error}"))
    }

    /// Ends all traffic and shows the result. Returns the faults.
    fn conclude(
        mut self,
        shown: Result<Option<AcceleratedLedger>, String>,
        place: &Place,
    ) -> Vec<String> {
        let ended = self.end_generator();
        let Totals { bytes: arrived, pings, answered, mut faults } = self.beside.stop();
        faults.extend(ended.err());
        let bars = self.scores.draw(self.screen.has_colours());
        self.screen.conclude(&format!("\n{bars}"));
        let accelerated = matches!(shown, Ok(Some(_)));
        if accelerated {
            self.screen.say(&self.scores.verdict(&place.text()));
        }
        self.screen.say(&format!(
            "\nTCP delivered {} byte for byte; {} of {} pings were answered.",
            bytes(arrived),
            count(answered),
            count(pings)
        ));
        match shown {
            Ok(Some(ledger)) => {
                self.screen.say(&format!("\n{}", ledger::text(&ledger)));
                faults.extend(ledger::faults(&ledger));
                faults.extend(self.silent.iter().map(|version| {
                    let (name, waited) = (version.name(), KERNEL_PATIENCE.as_secs());
                    format!("after SIGKILL the kernel forwarded no {name} packet for {waited} s")
                }));
            }
            Ok(None) => {}
            Err(why) if self.scores.gain(Phase::Ingress, Version::V6).is_some() => faults.push(why),
            // The kernel forwarded all the same: nothing of that is wrong.
            Err(why) => self.screen.say(&format!("\nNothing was accelerated: {why}")),
        }
        faults
    }
}

const INTRODUCTION: &str = "\
First act: speed up an existing Linux router. Five hosts on this machine, each
with its own network stack; the kernel of the host in the middle routes. Then
`manylane accelerate` takes over plain transit while packets pass. Then it is
killed, and the kernel forwards again. Ctrl-C ends the demo; nothing stays.
";
/// How long each IP version passes in each phase, unless `--seconds` says otherwise.
const STRETCH: Duration = Duration::from_millis(1500);
const STRETCHES: u32 = 8;
/// The generator starts, and queues fill.
const SETTLE: Duration = Duration::from_millis(200);
const LOOK: Duration = Duration::from_millis(20);
/// For a fault, not for a busy machine.
const KERNEL_PATIENCE: Duration = Duration::from_secs(60);
const MOMENT: Duration = Duration::from_millis(50);
/// A slower machine loads fewer routes.
const LOAD_MAX: Duration = Duration::from_secs(12);
/// The API does not say when a tier will not come.
const DRIVER_PATIENCE: Duration = Duration::from_secs(10);
/// As uptime(1) counts: one program that runs all the time.
const BUSY: f64 = 1.0;
