//! What the API shows: what the mirror thread has left to be seen, what programs and devices have counted, and,
//! where that is not enough, what the thread answers to a question.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use manylane_io::netlink::{Netlink, Statistics};
use manylane_net::transit::Transit;
use manylane_net::transit::layout::{control, counter};
use manylane_net::wire::ethernet::Mac;
use manylane_sync::rcu::{Guard, Reader};
use manylane_sync::words::Words;

use super::captures;
use super::export::ExportView;
use super::flows::{Sampler, flows};
use super::interface::{InFront, Lacking};
use super::lease::{Lease, Tables, now};
use super::ledger::{self, Counted, Lost};
use super::log::named;
use super::settings;
use super::sflow::SflowState;
use super::thread::Thread;
use super::tracked::Tracked;
use super::unseen::Unseen;
use super::waits::{Activity, Waits};
use super::why;
use super::worker::WorkerCaptures;
use super::{Options, TierChoice, worker_options};
use crate::programs::Targets;
use crate::questions::Questions;
use manylane_api::accelerate::{
    Accelerated, AcceleratedFlows, AcceleratedLedger, AcceleratedPort, AcceleratorConfig,
    AcceleratorStatus, AskError, ExportStatus, InterfaceCounters, KernelFlows, KernelFlowsRequest,
    LaneStatus, LeaseStatus, MirrorStatus, MirroredNeighbour, PassedStatus, ReasonStatus,
    TrackedFlows, TrackedFlowsDiff, TrackedFlowsRequest, Why, WhyQuestion,
};
use manylane_api::{ApiError, CaptureFile, CaptureRequest, RouteStatus, SetError, Setting};

/// What all threads of an accelerator see.
pub(super) struct Published {
    pub options: Options,
    pub seed: u64,
    started: Instant,
    /// What the programs compare with the clock.
    control: Words<u64>,
    counters: ledger::Sources,
    /// For the API's flows: one reader at a time.
    sampler: Mutex<Sampler>,
    view: Mutex<View>,
    devices: Mutex<Devices>,
    /// What devices' counters lack.
    lacking: Mutex<Lacking>,
    /// What the mirror thread waits for.
    waits: Mutex<Waits>,
    /// For the API's `why`: offline between two questions.
    readers: Mutex<(Reader, Transit)>,
    /// For the API's connections.
    pub tracked: Tracked,
    /// Collectors, where the operator names some.
    export: Option<ExportView>,
    pub questions: Questions<Thread>,
    /// What is sampled for collectors; `None` if nothing is.
    pub sflow: Option<Arc<SflowState>>,
    /// For captures; there when the thread is.
    pub targets: Option<Targets>,
    pub worker_captures: WorkerCaptures,
    /// The file of drops that is being captured.
    drops_file: Mutex<Weak<()>>,
}

/// What the mirror thread leaves to be seen.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub lease: Lease,
    /// Steps in which the thread has decided on the lease.
    pub checks: u64,
    pub ports: Vec<PortView>,
    pub ends: bool,
}

/// A port, as the mirror thread sees it.
#[derive(Clone, Debug, Default)]
pub(super) struct PortView {
    pub number: u16,
    pub name: String,
    pub index: Option<u32>,
    pub mac: Option<Mac>,
    pub mtu: u32,
    pub link_up: bool,
    pub is_admin_up: bool,
    pub is_promiscuous: bool,
    pub ingress: bool,
    pub egress: bool,
    pub attached: bool,
    pub unseen: Unseen,
    pub tier: &'static str,
    pub egress_tier: &'static str,
    pub choice: TierChoice,
    pub programs: Vec<String>,
    pub reasons: Vec<ReasonStatus>,
    pub bypassed: Vec<ReasonStatus>,
    pub tier_reasons: Vec<ReasonStatus>,
}

/// What devices count, from the start on.
struct Devices {
    netlink: Netlink,
    before: Vec<Statistics>,
}

impl Published {
    /// For a thread that is about to begin. `netlink` is the namespace's.
    pub fn new(
        options: Options,
        seed: u64,
        control: Words<u64>,
        (counters, sampler): (ledger::Sources, Sampler),
        mut netlink: Netlink,
        (mut reader, transit): (Reader, Transit),
        (questions, tracked, export, sflow): (
            Questions<Thread>,
            Tracked,
            Option<ExportView>,
            Option<Arc<SflowState>>,
        ),
    ) -> Result<Published, manylane_io::netlink::NetlinkError> {
        let before = netlink.statistics()?;
        reader.offline();
        let lease = Lease::new(options.lease, options.stale_limit);
        let heartbeat = lease.heartbeat();
        Ok(Published {
            options,
            seed,
            started: Instant::now(),
            control,
            counters,
            sampler: Mutex::new(sampler),
            view: Mutex::new(View { lease, checks: 0, ports: Vec::new(), ends: false }),
            lacking: Mutex::new(Lacking::of(&before)),
            devices: Mutex::new(Devices { netlink, before }),
            waits: Mutex::new(Waits::new(heartbeat)),
            readers: Mutex::new((reader, transit)),
            tracked,
            export,
            questions,
            sflow,
            targets: None,
            worker_captures: WorkerCaptures::default(),
            drops_file: Mutex::default(),
        })
    }

    /// The mirror thread is to end.
    pub fn end(&self) {
        self.view().ends = true;
    }

    /// Where captures are opened.
    pub fn targets(&self) -> Option<Targets> {
        self.targets.clone()
    }

    /// The published state.
    pub fn view(&self) -> MutexGuard<'_, View> {
        lock(&self.view)
    }

    /// The mirror thread does this next. Returns what it did before.
    pub fn enter(&self, activity: Activity) -> Activity {
        lock(&self.waits).enter(activity, Instant::now())
    }

    /// The mirror thread has stamped the lease.
    pub fn stamped(&self, has_lapsed: bool) {
        lock(&self.waits).stamped(has_lapsed, Instant::now());
    }

    /// Reads the tables that the programs read.
    pub fn with_reader<T>(&self, read: impl FnOnce(Guard<'_>, &Transit) -> T) -> T {
        let (reader, transit) = &mut *lock(&self.readers);
        reader.online();
        let answer = read(reader.guard(), transit);
        reader.offline();
        answer
    }

    /// Says something, where it is to.
    pub fn log(&self, what: &str) {
        if self.options.speaks {
            // In one piece, each line with the name: other processes write there, too. Without a standard error
            // the message has no reader.
            let text: String = what.lines().map(named).collect();
            let _ = io::stderr().write_all(text.as_bytes());
        }
    }

    /// What a device has counted so far is not counted for its port.
    pub fn count_from_now(&self, index: u32) {
        let mut devices = lock(&self.devices);
        let now = devices.netlink.statistics().unwrap_or_default();
        devices.before.retain(|link| link.index != index);
        let now = now.into_iter().find(|link| link.index == index);
        now.iter().for_each(|link| lock(&self.lacking).watch(link));
        devices.before.extend(now);
    }

    /// What a port has counted, but for its device.
    pub fn in_front(&self, port: u16) -> ledger::Counts {
        self.counters.port(port)
    }

    /// The counters of a port's interface; `counts` were read before `kernel`.
    pub fn interface(&self, counts: &ledger::Counts, kernel: &Statistics) -> InterfaceCounters {
        lock(&self.lacking).counters(InFront::of(counts), kernel)
    }

    fn lease(&self) -> LeaseStatus {
        let (lease, checks) = {
            let view = self.view();
            (view.lease.clone(), view.checks)
        };
        // The word itself: the thread may have hung since it left anything to be seen.
        let (now, until) = (now(), self.control.load(control::LEASE));
        LeaseStatus {
            holds: now < until,
            remaining_ms: ms(until.saturating_sub(now).into()),
            tables: match lease.tables() {
                Tables::Unknown => "unknown",
                // The mirror thread has not looked for so long that the tables may be behind.
                Tables::True { .. } if now >= until => "stale",
                Tables::True { .. } => "current",
                Tables::Stale { .. } => "stale",
            }
            .into(),
            limit_ms: ms(self.options.lease.as_nanos()),
            stale_limit_ms: ms(self.options.stale_limit.as_nanos()),
            renewals: lease.renewals(),
            checks,
        }
    }

    fn counted(&self) -> Vec<Counted> {
        let now = Instant::now();
        let ports: Vec<_> = self
            .view()
            .ports
            .iter()
            .map(|port| (port.number, port.name.clone(), port.index, port.unseen.at(now)))
            .collect();
        let mut devices = lock(&self.devices);
        // Before what devices have counted: what these lack is seen so.
        let counts: Vec<_> = ports.iter().map(|port| self.counters.port(port.0)).collect();
        // Without it losses are not known; what the programs say is.
        let after = devices.netlink.statistics().unwrap_or_default();
        let lost = |after: &Statistics| {
            // A link that was not there then began at nothing.
            let before = devices.before.iter().find(|link| link.index == after.index);
            Lost::between(&before.copied().unwrap_or_default(), after)
        };
        let of_port = |((_, name, index, unseen), counts): (_, ledger::Counts)| {
            let kernel = after.iter().find(|link| Some(link.index) == index);
            let interface = kernel.map(|kernel| self.interface(&counts, kernel));
            let ledger::Counts { row, driver, workers } = counts;
            let lost = kernel.map(lost).unwrap_or_default();
            Counted { name, row, driver, workers, lost, interface, unseen }
        };
        ports.into_iter().zip(counts).map(of_port).collect()
    }
}

impl Accelerated for Published {
    fn daemon(&self) -> AcceleratorStatus {
        AcceleratorStatus {
            kind: "accelerate".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            uptime_s: self.started.elapsed().as_secs(),
            lease: self.lease(),
        }
    }

    fn ports(&self) -> Vec<AcceleratedPort> {
        let counted = self.counted();
        let of_port = |(port, counted): (AcceleratedPort, Counted)| AcceleratedPort {
            tiers: ledger::by_tier(&counted),
            driver_refused: counted.driver.refused,
            partial_checksums: counted.driver.partial,
            seen: ledger::seen(&counted),
            dropped: ledger::dropped(&counted),
            queued: ledger::queued(&counted),
            worker_absent: counted.driver.absent,
            forwarded: ledger::forwarded(&counted.row),
            forwarded_bytes: counted.row[counter::INGRESS_BYTES],
            passed: ledger::passed(&counted.row),
            sent: counted.row[counter::EGRESS_PACKETS],
            sent_bytes: counted.row[counter::EGRESS_BYTES],
            device_dropped: counted.lost.device,
            queue_dropped: counted.lost.queue,
            interface: counted.interface,
            ..port
        };
        self.states().into_iter().zip(counted).map(of_port).collect()
    }

    fn states(&self) -> Vec<AcceleratedPort> {
        let now = Instant::now();
        let ports = self.view().ports.clone();
        let of_port = |port: PortView| AcceleratedPort {
            port: port.number,
            name: port.name,
            index: port.index,
            mac: port.mac.map(|mac| mac.to_string()),
            mtu: port.mtu,
            link_up: port.link_up,
            tier: port.tier.into(),
            egress_tier: port.egress_tier.into(),
            wanted_tier: port.choice.name().into(),
            tier_reasons: port.tier_reasons,
            ingress: port.ingress,
            egress: port.egress,
            attached: port.attached,
            unseen: port.unseen.at(now),
            programs: port.programs,
            reasons: port.reasons,
            bypassed: port.bypassed,
            ..AcceleratedPort::default()
        };
        ports.into_iter().map(of_port).collect()
    }

    fn drops(&self) -> Vec<PassedStatus> {
        ledger::drops(&self.counted())
    }

    fn ledger(&self) -> AcceleratedLedger {
        ledger::ledger(&self.counted())
    }

    fn flows(&self) -> Result<AcceleratedFlows, AskError> {
        let numbers: Vec<u16> = self.view().ports.iter().map(|port| port.number).collect();
        let taken = lock(&self.sampler).take(&numbers);
        let (one_in, samples) = taken.map_err(|error| {
            AskError::Silent(ApiError {
                error: format!("what programs have noted cannot be read: {error}"),
                help: "try again; `manylane show ports` has the sums".into(),
            })
        })?;
        let ports = self.view().ports.clone();
        let name = |number: u16| {
            let port = ports.iter().find(|port| port.number == number);
            port.map_or_else(|| "none".to_owned(), |port| port.name.clone())
        };
        Ok(flows(one_in, &samples, name))
    }

    fn capture_drops(&self, request: &CaptureRequest) -> Result<CaptureFile, SetError> {
        captures::begin_drops(self, &mut lock(&self.drops_file), request)
    }

    fn config(&self) -> AcceleratorConfig {
        let options = &self.options;
        let ports = self.view().ports.clone();
        let others = ports.iter().filter(|port| port.choice != options.tier);
        let port_tiers =
            others.map(|port| (port.name.clone(), port.choice.name().into())).collect();
        AcceleratorConfig {
            interfaces: ports.iter().map(|port| port.name.clone()).collect(),
            bypass: options.bypass.names(),
            tier: options.tier.name().into(),
            port_tiers,
            lease_ms: ms(options.lease.as_nanos()),
            stale_limit_ms: ms(options.stale_limit.as_nanos()),
            workers: worker_options(options).workers,
            socket: options.socket.as_ref().map(|socket| socket.display().to_string()),
            seed: self.seed,
        }
    }

    fn set(&self, key: &str, value: &str) -> Result<Setting, AskError> {
        settings::set(self, key, value)
    }

    fn add_port(&self, name: &str) -> Result<AcceleratedPort, AskError> {
        let own = name.to_owned();
        let added = self.questions.ask(move |thread| thread.add_port(&own))?;
        added.map_err(AskError::BadQuestion)?;
        let port = self.ports().into_iter().find(|port| port.name == name);
        Ok(port.expect("the mirror's thread has published it"))
    }

    fn mirror(&self) -> Result<MirrorStatus, AskError> {
        let mut status =
            self.questions.ask(|thread| thread.mirror_status()).map_err(|error| {
                match (error, lock(&self.waits).current(Instant::now())) {
                    (AskError::Silent(silent), Some(current)) => {
                        let error = format!("{}: {current}", silent.error);
                        AskError::Silent(ApiError { error, ..silent })
                    }
                    (error, _) => error,
                }
            })?;
        status.lease = self.lease();
        status.waits = lock(&self.waits).status();
        Ok(status)
    }

    fn diff(&self) -> Result<Vec<String>, AskError> {
        self.questions.ask_within(DIFF_PATIENCE, |thread| thread.diff())?.map_err(|error| {
            AskError::Silent(ApiError {
                error: format!("the kernel's routing cannot be read: {error}"),
                help: "try again; if it stays so, compare `ip route` with `manylane show routes`"
                    .into(),
            })
        })
    }

    fn routes(&self) -> Result<Vec<RouteStatus>, AskError> {
        // Some at a time, so that the thread has other things to do in between.
        let mut all = Vec::new();
        for page in 0.. {
            let (routes, len) = self.questions.ask(move |thread| {
                let routes = thread.mirror.list_routes(page * ROUTES_AT_ONCE, ROUTES_AT_ONCE);
                (routes, thread.mirror.listed_len())
            })?;
            all.extend(routes);
            if (page + 1) * ROUTES_AT_ONCE >= len {
                break;
            }
        }
        Ok(all)
    }

    fn neighbours(&self) -> Result<Vec<MirroredNeighbour>, AskError> {
        self.questions.ask(|thread| thread.mirror.list_neighbours())
    }

    fn lane(&self) -> Result<LaneStatus, AskError> {
        self.tracked.status()
    }

    fn tracked_flows(&self, request: &TrackedFlowsRequest) -> Result<TrackedFlows, AskError> {
        let ports = self.view().ports.clone();
        self.tracked.page(request, &ports)
    }

    fn kernel_flows(&self, request: &KernelFlowsRequest) -> Result<KernelFlows, AskError> {
        self.tracked.kernel(request, &self.view().ports.clone())
    }

    fn tracked_flows_diff(&self) -> Result<TrackedFlowsDiff, AskError> {
        self.tracked.diff()
    }

    fn export(&self) -> ExportStatus {
        let mut status = self.export.as_ref().map(ExportView::status).unwrap_or_default();
        if let Some(sflow) = &self.sflow {
            let ports = self.view().ports.clone();
            sflow.show(&mut status, &ports);
        }
        status
    }

    fn why(&self, question: &WhyQuestion) -> Result<Why, AskError> {
        why::answer(self, question)
    }
}

/// Each of them is some text.
const ROUTES_AT_ONCE: usize = 4096;

/// Whole milliseconds.
pub(super) fn ms(ns: u128) -> u64 {
    u64::try_from(ns / 1_000_000).unwrap_or(u64::MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these locks is whole between any two instructions that can panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A comparison of a million routes takes seconds, and a multiple of that on a machine that is busy.
const DIFF_PATIENCE: Duration = Duration::from_secs(60);
