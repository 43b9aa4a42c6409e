//! What does it cost to open, bind and close a packet socket, and what does one cost the forwarding?
//!
//! | prefix    | what                                                                                    |
//! |-----------|-----------------------------------------------------------------------------------------|
//! |           | manylane's own, `manylane_router::socket`                                                       |
//! | `remote_` | these from outside, by the daemon's socket, with the ring that a socket has by itself |
//! | `remote_small_` | as `remote_`, with a ring of two pages for each worker                                   |
//! | `remote_paused_` | as `remote_`, with 20 ms before each socket in which no process says anything               |
//! | `kernel_` | AF_PACKET of this kernel, in a network namespace of the bench's own; as root             |
//! | `before_` | hooks in a list, which workers walk; to bind is to unregister, to wait, to register      |
//! | `source_` | as `before_`, with the source's fix: where nothing changes, or nothing is there, nothing is done |
//!
//! `baseline/hook.rs` has the last two. Their worker is the product's, between memory ports: packets of 64
//! bytes to one destination, numbered. Both designs wait for the grace periods that this worker ends with each turn.
//!
//! | figure                                | what                                                             |
//! |---------------------------------------|------------------------------------------------------------------|
//! | `<prefix>bind1_us`                    | open for all packets, bind to all of any device (case 1)          |
//! | `<prefix>bind2_us`                    | open for all packets, bind to a device (case 2, libpcap's before 1.10) |
//! | `<prefix>bind3_us`                    | open with protocol 0, bind to a device (case 3)                   |
//! | `<prefix>rebind_us`                   | from there to another device                                      |
//! | `<prefix>close_us`                    | close, of all cases                                               |
//! | `..._load`                            | the same beside a worker that forwards as fast as it can; without: the worker sleeps |
//! | `..._load_shared`                     | the same on that worker's core       |
//! | `<prefix>run_delay`, and so on        | part of the time of all cases in which the thread that opens could run and had no core: the scheduler's part of the waiting, at least |
//! | `..._p99`                             | what one of a hundred exceeds; `runs` is how often it was done    |
//! | `<prefix>gain_bind1`, ... `_close`    | `before_bind1_us` over its own; `<prefix>kernel_over_bind2`: the kernel's case 2 over it |
//! | `gain_over_fix_bind1`, ... `_close`   | the time of the source's fix, `source_`, over manylane's: below 1 the fix is faster |
//! | `<prefix>forward_mpps`                | what the worker forwards                                          |
//! | `<prefix>forward_opening_mpps`        | while a socket is opened, bound and closed every millisecond, where that can be done |
//! | `<prefix>opens_per_s`                 | how often it was                                                  |
//! | `<prefix>forward_slowdown`            | the first over the second; `..._shared`: while that is done on the worker's core |
//! | `forward_ns`                          | a frame, of one worker that looks at no sockets                   |
//! | `<prefix>cost_idle_ns`                | what a frame costs more where it looks at sockets and finds none |
//! | `<prefix>cost_<n>_<which>_ns`         | with `n` sockets, whose filters let pass `none`, `some` (one of 16), `all`; 128 bytes of each are copied |
//! | `filter_<name>_ns`                    | a filter of tcpdump's by itself, for a frame that does not match, a batch at once; `..._alone_ns`: one after the other; `..._floor_ns`: the same question, compiled (`filters`) |
//! | `<prefix>capture_snap128_mpps`, `..._gbps` | written to a file without loss, of packets of 1514 bytes; `full`: whole ones. One worker, the reader on the other core; the highest of some rates. `source_` copies each into a buffer of a ring |
//!
//! What the kernel's cases take is its grace periods, up to 50 ms: they are done for a bounded time, and `runs`
//! says how often. The worker is in user space, so that the kernel's own receiving is idle also under `_load`.
//!
//! The thread that opens runs on the second core, which no worker saturates: the product leaves one core to control
//! unless told otherwise. Where it shares the worker's, the name says so.
//!
//! Needs two cores with nothing else on them.

mod capture;
mod cases;
mod contestant;
mod filters;
mod kernel;
mod load;
mod own;
mod remote;

use crate::prelude::*;
use crate::router::Ground;

use super::{Plan, interleave};
use crate::threads::on_its_own_thread;
use cases::{Latencies, Took};
use contestant::{ALL, Matching, PORTS, Rebuilt, Sockets, Taps};
use kernel::Kernel;
use load::Load;
use own::Own;
use remote::Remote;

/// What can be measured by itself.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// How long it takes to open, bind and close
    Cases,
    /// How long that takes from outside, alone
    Remote,
    /// What that costs a worker that forwards
    Slowdown,
    /// Captures without loss
    Capture,
    /// What sockets cost for each frame
    Cost,
    /// What filters cost for each frame
    Filters,
}

/// How much is done in a round.
struct Extent {
    times: usize,
    /// But not for longer than this, of each contestant.
    most: Duration,
    /// How long to look at the workers' rate.
    rate: Duration,
    capture: capture::Extent,
}

pub fn run(plan: &Plan, output: &Output) -> Result {
    let extent = |times, most, rate, slice, steps| {
        let capture = capture::Extent { slice: ms(slice), steps };
        Extent { times, most: ms(most), rate: ms(rate), capture }
    };
    let extent = match plan.pace.quick {
        true => extent(20, 100, 50, 20, 2),
        false => extent(300, 600, 250, 150, 6),
    };
    // A thread of its own enters the kernel's namespace, and leaves it by its end.
    on_its_own_thread(|| measure(plan, &extent, output))
}

fn measure(plan: &Plan, extent: &Extent, output: &Output) -> Result {
    let kernel = Kernel::in_a_new_namespace();
    let mut kernel = kernel
        .inspect_err(|error| eprintln!("SKIPPED the kernel's part of compare socket: {error}"))
        .ok();
    // A thread that sleeps between two looks at a grace period is not to sleep for the usual 50 us longer.
    nix::sys::prctl::set_timerslack(1)?;
    let cores = Bench::new(&plan.cores, plan.pace.quick)?.cores().to_vec();
    let mut before = Stand::new(&cores[..1], Rebuilt::before)?;
    let mut source = Stand::new(&cores[..1], Rebuilt::source)?;
    let mut own = Stand::new(&cores[..1], Own::new)?;
    // For workers that start and end.
    let ground = load::ground()?;
    let mut latencies = Latencies::default();
    let mut is_warm = false;
    let round = |bench: &mut Bench| {
        // What the first round gives counts as little as its figures do.
        let mut warming = Latencies::default();
        let latencies = if is_warm { &mut latencies } else { &mut warming };
        is_warm = true;
        let has = |part| plan.part.is_none_or(|only| only == part);
        let has_remote = has(Part::Cases) || has(Part::Remote);
        for (arrival, core, end) in SCENES.into_iter().filter(|_| has_remote) {
            affinity::pin(cores[core])?;
            let mut push = |prefix: &str, took: Took| {
                bench.push(&format!("{prefix}run_delay{end}"), "part", Some(took.run_delay));
                latencies.push(prefix, end, took);
            };
            if let Some(kernel) = kernel.as_mut().filter(|_| has(Part::Cases)) {
                before.load.set(arrival); // Any worker serves as the load.
                push(kernel.prefix(), extent.cases(kernel)?);
                before.load.set(Arrival::Off);
            }
            if has(Part::Cases) {
                push(before.contestant.prefix(), before.cases(arrival, extent)?);
                push(source.contestant.prefix(), source.cases(arrival, extent)?);
                push(own.contestant.prefix(), own.cases(arrival, extent)?);
            }
            let mut remote = Remote::new(cores[0], arrival == Arrival::Always)?;
            push(remote.prefix(), extent.cases(&mut remote)?);
            let mut remote = remote.with_small_rings();
            push(remote.prefix(), extent.cases(&mut remote)?);
            let mut remote = remote.with_pauses();
            push(remote.prefix(), extent.cases(&mut remote)?);
            remote.end()?;
        }
        for (core, end) in [(0, "_shared"), (1, "")].into_iter().filter(|_| has(Part::Slowdown)) {
            affinity::pin(cores[core])?;
            before.slowdown(extent, bench, end)?;
            source.slowdown(extent, bench, end)?;
            own.slowdown(extent, bench, end)?;
        }
        affinity::pin(cores[1])?;
        if has(Part::Capture) {
            capture::measure(&ground, bench, &extent.capture, Rebuilt::capturing)?;
            capture::measure(&ground, bench, &extent.capture, Own::capturing)?;
        }
        if has(Part::Cost) {
            cost(&ground, bench, Rebuilt::before)?;
            cost(&ground, bench, Rebuilt::source)?;
            cost(&ground, bench, Own::new)?;
        }
        if has(Part::Filters) { filters::measure(bench) } else { Ok(()) }
    };
    interleave(plan, output, round, |_| ())?;
    latencies.print(output);
    ratios(&latencies, output);
    before.load.end()?;
    source.load.end()?;
    own.load.end()
}

/// What arrives at the worker, which has the first core; which core the opener has; how the figures' names end.
const SCENES: [(Arrival, usize, &str); 3] =
    [(Arrival::Off, 1, ""), (Arrival::Always, 1, "_load"), (Arrival::Always, 0, "_load_shared")];

fn ratios(latencies: &Latencies, output: &Output) {
    for (.., end) in SCENES {
        let ratio = |name: &str, over: &str, under: &str| {
            let [over, under] = [over, under].map(|row| format!("{row}_us{end}"));
            latencies.ratio(output, &format!("{name}{end}"), &over, &under);
        };
        for prefix in ["", "remote_", "remote_small_", "before_", "source_"] {
            let name = format!("{prefix}kernel_over_bind2");
            ratio(&name, "kernel_bind2", &format!("{prefix}bind2"));
        }
        for case in ["bind1", "bind2", "bind3", "rebind", "close"] {
            let [before, source] = ["before", "source"].map(|of| format!("{of}_{case}"));
            ratio(&format!("gain_{case}"), &before, case);
            ratio(&format!("source_gain_{case}"), &before, &source);
            ratio(&format!("gain_over_fix_{case}"), &source, case);
        }
    }
}

impl Extent {
    fn cases<S: Sockets>(&self, sockets: &mut S) -> Result<Took> {
        Took::measure(sockets, self.times, self.most)
    }
}

struct Stand<C> {
    contestant: C,
    load: Load,
    _ground: Ground,
}

impl<C: Taps> Stand<C> {
    fn new(cores: &[usize], make: impl FnOnce(&Domain) -> C) -> Result<Stand<C>> {
        let ground = load::ground()?;
        let mut contestant = make(&ground.domain);
        let load = Load::begin(&ground, cores, FRAME_LEN, &mut contestant)?;
        Ok(Stand { contestant, load, _ground: ground })
    }

    fn cases(&mut self, arrival: Arrival, extent: &Extent) -> Result<Took> {
        self.load.set(arrival);
        let took = extent.cases(&mut self.contestant)?;
        self.load.set(Arrival::Off);
        Ok(took)
    }

    /// What the worker forwards, without and with sockets that open and close.
    fn slowdown(&mut self, extent: &Extent, bench: &mut Bench, end: &str) -> Result {
        let Stand { contestant, load, .. } = self;
        load.set(Arrival::Always);
        let (still, ()) = load.rate(|| {
            thread::sleep(extent.rate);
            Ok(())
        })?;
        let (opening, opens) = load.rate(|| come_and_go(contestant, extent.rate))?;
        load.set(Arrival::Off);
        let mut push = |figure, unit, value| {
            bench.push(&format!("{}{figure}{end}", contestant.prefix()), unit, Some(value));
        };
        push("forward_mpps", "Mpps", still);
        push("forward_opening_mpps", "Mpps", opening);
        push("opens_per_s", "1/s", opens as f64 / extent.rate.as_secs_f64());
        push("forward_slowdown", "x", still / opening);
        Ok(())
    }
}

/// Opens, binds and closes a socket every millisecond, or as often as it can; returns how often.
fn come_and_go<S: Sockets>(sockets: &mut S, length: Duration) -> Result<u64> {
    let begin = Instant::now();
    let (mut due, mut opens) = (begin, 0);
    while begin.elapsed() < length {
        let mut socket = sockets.open(ALL)?;
        sockets.bind(&mut socket, Some(PORTS[0]), ALL)?;
        sockets.close(socket)?;
        opens += 1;
        due = (due + ms(1)).max(Instant::now());
        thread::sleep(due - Instant::now());
    }
    Ok(opens)
}

/// What sockets cost one worker for each frame.
fn cost<C: Taps>(ground: &Ground, bench: &mut Bench, make: impl Fn(&Domain) -> C) -> Result {
    let mut contestant = make(&ground.domain);
    let rows = [("1", 1), ("8", 8)].into_iter().flat_map(|(number, sockets)| {
        MATCHINGS.map(|(which, matching)| (format!("{number}_{which}"), sockets, matching))
    });
    let idle = ("idle".to_owned(), 0, Matching::NOTHING);
    for (row, sockets, matching) in std::iter::once(idle).chain(rows) {
        let plain = load::cost::<C>(ground, bench, None)?;
        // No worker runs yet, or any more, while sockets open and close: nothing waits.
        let open: Vec<_> =
            (0..sockets).map(|_| contestant.want(matching)).collect::<Result<_>>()?;
        let tapped = load::cost(ground, bench, Some(&mut contestant))?;
        open.into_iter().try_for_each(|socket| contestant.close(socket))?;
        let name = format!("{}cost_{row}_ns", contestant.prefix());
        bench.ns(&name, tapped.zip(plain).map(|(tapped, plain)| tapped - plain));
        if sockets == 0 {
            bench.ns(&format!("{}forward_ns", contestant.prefix()), plain);
        }
    }
    Ok(())
}

const MATCHINGS: [(&str, Matching); 3] =
    [("none", Matching::NOTHING), ("some", Matching::SOMETHING), ("all", Matching::EVERYTHING)];

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}
