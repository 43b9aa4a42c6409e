//! What passes beside the small packets: a TCP connection and pings, of IPv4 and of IPv6, from client to server.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use manylane_io::affinity;

use crate::terminal::table::count;
use manylane_lab::ping::PATIENCE;
use manylane_lab::{Crossing, EndlessTcp, Outcome, Pinger, SERVER_V4, SERVER_V6, TrafficError};

/// Traffic that runs until it is dropped.
pub(super) struct Beside {
    families: [Family; 2],
    since: Instant,
}

struct Family {
    name: &'static str,
    tcp: EndlessTcp,
    /// Bytes that had arrived when the present part began.
    before: u64,
    pings: Pings,
}

/// What arrived within a part, of IPv4 and of IPv6.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Arrived {
    /// Bits a second by TCP.
    pub(super) tcp: [f64; 2],
    /// The median round trip, if a ping was answered.
    pub(super) ping: [Option<Duration>; 2],
}

/// What was sent and what arrived, in all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) bytes: u64,
    pub(super) pings: u64,
    pub(super) answered: u64,
    /// What is wrong, if anything.
    pub(super) faults: Vec<String>,
}

impl Beside {
    /// Starts all of it on `core`.
    pub(super) fn start(crossing: &Crossing, core: usize) -> Result<Beside, TrafficError> {
        let family = |server: IpAddr| -> Result<Family, TrafficError> {
            let pings = Pings::start(Pinger::open(crossing.client(), server)?, core);
            let tcp = EndlessTcp::start(crossing.client(), crossing.server(), server, core)?;
            let name = if server.is_ipv4() { "IPv4" } else { "IPv6" };
            Ok(Family { name, tcp, before: 0, pings })
        };
        Ok(Beside { families: [family(SERVER_V4)?, family(SERVER_V6)?], since: Instant::now() })
    }

    /// Begins another part.
    pub(super) fn begin(&mut self) {
        self.since = Instant::now();
        for family in &mut self.families {
            family.before = family.tcp.report().received;
            family.pings.lock().times.clear();
        }
    }

    /// What has arrived in this part.
    pub(super) fn arrived(&self) -> Arrived {
        let elapsed = self.since.elapsed().as_secs_f64();
        let tcp =
            |family: &Family| (family.tcp.report().received - family.before) as f64 * 8.0 / elapsed;
        let ping = |family: &Family| {
            let mut times = family.pings.lock().times.clone();
            times.sort_unstable();
            times.get(times.len() / 2).copied()
        };
        let [v4, v6] = &self.families;
        Arrived { tcp: [tcp(v4), tcp(v6)], ping: [ping(v4), ping(v6)] }
    }

    /// Pauses all of it, or resumes it.
    pub(super) fn rest(&self, rests: bool) {
        self.rest_tcp(rests);
        self.families.iter().for_each(|family| family.pings.lock().rests = rests);
    }

    /// Pauses TCP, or resumes it. Pings continue.
    pub(super) fn rest_tcp(&self, rests: bool) {
        self.families.iter().for_each(|family| family.tcp.rest(rests));
    }

    /// Ends it after everything has arrived.
    pub(super) fn stop(self) -> Totals {
        let mut totals = Totals::default();
        for Family { name, tcp, pings, .. } in self.families {
            let counts = pings.stop();
            totals.pings += counts.sent;
            totals.answered += counts.answered;
            if let Some(why) = counts.broken {
                totals.faults.push(format!("{name} ping: {why}"));
            } else if counts.sent > 0 && counts.answered == 0 {
                totals.faults.push(format!("{name} pings were not answered"));
            }
            let report = tcp.stop();
            totals.bytes += report.received;
            if let Some(at) = report.first_wrong_byte {
                totals.faults.push(format!("{name} TCP: byte {at} arrived changed"));
            } else if let Some(why) = report.broken {
                totals.faults.push(format!("{name} TCP: {why}"));
            } else if report.sent != report.received {
                let (sent, received) = (count(report.sent), count(report.received));
                totals.faults.push(format!("{name} TCP: {received} of {sent} bytes arrived"));
            }
        }
        totals
    }
}

/// A thread that pings, again and again, until it is dropped.
struct Pings {
    counts: Arc<Mutex<Counts>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone, Default)]
struct Counts {
    /// Round trips since the present part began.
    times: Vec<Duration>,
    sent: u64,
    answered: u64,
    broken: Option<String>,
    rests: bool,
    is_over: bool,
}

impl Pings {
    fn start(pinger: Pinger, core: usize) -> Pings {
        let counts = Arc::new(Mutex::new(Counts::default()));
        let shared = counts.clone();
        Pings { counts, thread: Some(thread::spawn(move || ping(pinger, core, &shared))) }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        lock(&self.counts)
    }

    fn stop(mut self) -> Counts {
        self.end();
        self.lock().clone()
    }

    fn end(&mut self) {
        self.lock().is_over = true;
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join(); // The thread counts, and cannot panic.
        }
    }
}

impl Drop for Pings {
    fn drop(&mut self) {
        self.end();
    }
}

fn ping(mut pinger: Pinger, core: usize, counts: &Mutex<Counts>) {
    let _ = affinity::pin(core); // Anywhere is as good, where that core is not ours.
    loop {
        thread::park_timeout(INTERVAL);
        let Counts { rests, is_over, .. } = *lock(counts);
        if is_over {
            return;
        }
        if rests {
            continue;
        }
        let outcome = pinger.ask(BYTES, PATIENCE);
        let mut counts = lock(counts);
        counts.sent += 1;
        match outcome {
            Ok(Outcome::Reply { round_trip, is_intact: true, .. }) => {
                counts.answered += 1;
                counts.times.push(round_trip);
            }
            Ok(_) => {}
            Err(error) => {
                counts.broken = Some(error.to_string());
                return;
            }
        }
    }
}

fn lock(counts: &Mutex<Counts>) -> MutexGuard<'_, Counts> {
    counts.lock().expect("no thread panics with the lock")
}

const INTERVAL: Duration = Duration::from_millis(25);
/// What ping(8) sends.
const BYTES: usize = 56;
