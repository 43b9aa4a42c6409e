//! The thread, put together: subscribed first, then judged, then true.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use manylane_io::eventfd::EventFd;
use manylane_io::interface_lock::InterfaceLocks;
use manylane_io::netlink::Netlink;
use manylane_io::netlink::kernel::{Group, Watch};
use manylane_net::transit::{Transit, TransitMut};
use manylane_sync::rcu::{Domain, Proxy, Reader};
use manylane_sync::words::Words;

use super::connections::InForce;
use super::{Counts, Thread, Todo};
use crate::accelerator::export::Export;
use crate::accelerator::flows::Sampler;
use crate::accelerator::guard::Guard;
use crate::accelerator::lease::Lease;
use crate::accelerator::log::Log;
use crate::accelerator::ports::Ports;
use crate::accelerator::published::Published;
use crate::accelerator::reclaim::Reclaim;
use crate::accelerator::sflow::SflowState;
use crate::accelerator::sockets::WorkerContext;
use crate::accelerator::tiers::Tiers;
use crate::accelerator::tracked::Tracked;
use crate::accelerator::worker::{WorkerCaptures, WorkerCounts, WorkerDrops, WorkerOptions};
use crate::accelerator::{AccelerateError, Options, ledger, refused, tables, worker_options};
use crate::firewall;
use crate::gate::{Gate, Poller, programs_of_others};
use crate::lane::{self, ExportTerms, Lane};
use crate::programs::{IngressProgram, Ticks};
use crate::questions::{Who, question_queue};
use manylane_mirror::{self as mirror, Mirror};

impl Thread {
    /// Reads the kernel, judges the interfaces, and lets packets pass where they may. `doorbell` is rung for the end.
    pub(in crate::accelerator) fn start(
        options: Options,
        locks: InterfaceLocks,
        doorbell: Arc<EventFd>,
    ) -> Result<Thread, AccelerateError> {
        tables::check_names(&options.interfaces)?;
        tables::check_tiers(&options)?;
        tables::check_workers(&options)?;
        // Subscribed before anything is read: what changes from here on is heard.
        let watch = Watch::open(&Group::ALL, RECEIVE_BUFFER).map_err(AccelerateError::Netlink)?;
        let gate = Gate::open(programs_of_others()).map_err(AccelerateError::Gate)?;
        let mut netlink = Netlink::open().map_err(AccelerateError::Netlink)?;
        let links = netlink.dump_links().map_err(AccelerateError::Netlink)?;
        if !options.waits {
            tables::all_there(&links, &options.interfaces)?;
        }
        let mut ports = Ports::new(&options, locks);
        ports.lock(&links).map_err(AccelerateError::InterfaceLock)?;
        let its_netlink = Netlink::open().map_err(AccelerateError::Netlink)?;
        let poller = Poller::start(programs_of_others(), its_netlink, doorbell.clone());
        let poller = poller.map_err(refused("a thread"))?;
        let mut thread = Thread::build(options, ports, doorbell, (watch, gate, poller, netlink))?;
        // The first turn reads all, the next ones hear what was said meanwhile: then the tables are true, and the
        // gate can judge, and programs be attached.
        while thread.lease.renewals() == 0 || thread.todo.judge || thread.todo.attach.is_some() {
            if !thread.turn()? {
                thread.sleep(false);
            }
        }
        Ok(thread)
    }

    /// Loads the program, and puts the thread together: nothing is read yet, nor written.
    fn build(
        options: Options,
        ports: Ports,
        doorbell: Arc<EventFd>,
        (watch, mut gate, poller, netlink): (Watch, Gate, Poller, Netlink),
    ) -> Result<Thread, AccelerateError> {
        let worker_options = worker_options(&options);
        let (domain, proxy, [reader, lane_reader]) = members(worker_options.workers);
        // The standard library's keys are the kernel's random numbers.
        let seed = RandomState::new().hash_one(0);
        let (mut fast, mut writer, control) = load(&options, &domain, seed)?;
        let lease_words = writer.take_lease().expect("nothing else takes it");
        let changes = gate.take_changes();
        let guard = Guard::start(changes, lease_words, doorbell.clone(), options.is_stateful());
        let guard = guard.map_err(refused("a thread"))?;
        let transit = writer.reader();
        let reclaim = Reclaim::start(fast.grace(), proxy, doorbell.clone());
        let reclaim = reclaim.map_err(refused("a thread"))?;
        let doorbells = [reclaim.doorbell(), doorbell.clone()];
        let export = Export::start(&options.ipfix)?;
        let (view, terms) = export.as_ref().map(|one| (one.view(), one.terms())).unzip();
        let lane = start_lane(&options, &mut fast, &mut writer, (lane_reader, terms), doorbells)?;
        let (asked, questions) = question_queue(doorbell.clone(), WHO);
        let lease = Lease::new(options.lease, options.stale_limit);
        let ticks = Ticks::open().map_err(refused("the kernel's ticks"))?;
        let in_driver = Arc::new(OnceLock::new());
        let by_workers = Arc::new(OnceLock::new());
        let (driver, workers) = (in_driver.clone(), by_workers.clone());
        let counters = ledger::Sources { ingress: fast.counters(), driver, workers };
        let captures = WorkerCaptures::default();
        let shared = (transit.clone(), doorbell.clone(), captures.clone());
        let sflow = sflow(&options, &mut fast);
        let drops = sflow.as_ref().and_then(|sflow| sflow.worker_drops());
        let worker_context = worker_context(worker_options, domain, shared, (by_workers, drops));
        let samples = fast.take_samples().expect("nobody else takes them");
        let sampler = Sampler::new(samples, counters.clone());
        let mut published = Published::new(
            options,
            seed,
            control,
            (counters, sampler),
            Netlink::open().map_err(AccelerateError::Netlink)?,
            (reader, transit),
            (asked, Tracked::new(lane.as_ref().map(Lane::questions)), view, sflow),
        )
        .map_err(AccelerateError::Netlink)?;
        (published.targets, published.worker_captures) = (Some(fast.targets()), captures);
        Ok(Thread {
            mirror: Mirror::new(writer, mirror::Limits::default()),
            ports,
            tiers: Tiers::new(in_driver, worker_context),
            lane,
            export,
            in_force: InForce::default(),
            fast,
            reclaim,
            lease,
            ticks,
            guard,
            noticed: 0,
            watch,
            gate,
            poller,
            netlink,
            doorbell,
            questions,
            published: Arc::new(published),
            heard: None,
            todo: Todo { resync: true, load: true, judge: true, ports: true, ..Todo::default() },
            standings: Vec::new(),
            log: Log::default(),
            was_whole: true,
            trouble: None,
            next_poll: Instant::now(),
            next_confirm: Instant::now(),
            counts: Counts::default(),
        })
    }
}

/// The tables' domain, and its members beside this number of workers: programs, the API's `why`, and the lane.
fn members(workers: usize) -> (Domain, Proxy, [Reader; 2]) {
    let domain = Domain::new(3 + workers);
    let proxy = domain.proxy().expect("the domain has three places");
    let readers = [(); 2].map(|()| domain.register().expect("the domain has three places"));
    (domain, proxy, readers)
}

/// What is shared with the exporter, if samples are sent.
fn sflow(options: &Options, fast: &mut IngressProgram) -> Option<Arc<SflowState>> {
    let memory = fast.take_sflow().expect("nobody else takes it");
    SflowState::new(options.sflow.clone(), &options.ipfix, memory).map(Arc::new)
}

/// What workers share with the other threads.
fn worker_context(
    worker_options: WorkerOptions,
    domain: Domain,
    (transit, doorbell, captures): (Transit, Arc<EventFd>, WorkerCaptures),
    (counts, drops): (Arc<OnceLock<WorkerCounts>>, Option<Arc<WorkerDrops>>),
) -> WorkerContext {
    WorkerContext { worker_options, domain, transit, captures, doorbell, counts, drops }
}

/// The lane, if connections are forwarded one by one. The lane rings these bells for the reclaim thread and for the
/// mirror's.
fn start_lane(
    options: &Options,
    fast: &mut IngressProgram,
    writer: &mut TransitMut,
    (reader, export): (Reader, Option<ExportTerms>),
    [reclaim, mirror]: [Arc<EventFd>; 2],
) -> Result<Option<Lane>, AccelerateError> {
    if !options.is_stateful() {
        return Ok(None);
    }
    let parts = lane::Parts {
        flows: writer.take_flows().expect("nothing else takes it"),
        candidates: fast.take_candidates().expect("nobody else takes them"),
        counters: fast.counters(),
        transit: writer.reader(),
        reader,
        ticks: Ticks::open().map_err(refused("the kernel's ticks"))?,
        options: firewall::Options { exact_counters: options.exact_counters },
        stale_limit: options.stale_limit,
        export,
        reclaim,
        mirror,
    };
    Lane::start(parts).map(Some).map_err(refused("a thread"))
}

/// The program, and the writer of the tables that it maps, with the words that both read.
fn load(
    options: &Options,
    domain: &Domain,
    seed: u64,
) -> Result<(IngressProgram, TransitMut, Words<u64>), AccelerateError> {
    let (sizes, memory) = tables::sizes(options.routes, options.flows);
    let (program, maps) = IngressProgram::load(&memory).map_err(AccelerateError::Program)?;
    let memory = tables::memory(maps);
    let control = memory.control.reader();
    let mut writer = TransitMut::new(memory, domain.clone(), &sizes);
    writer.set_seed(seed);
    Ok((program, writer, control))
}

/// What the kernel keeps of its events for us: some 60,000 of them.
const RECEIVE_BUFFER: usize = 64 << 20;

/// The thread that answers questions about the mirror.
const WHO: Who = Who {
    thread: "the thread that mirrors the kernel's routing",
    help: "its lease lapses by itself, and then the kernel forwards; restart `manylane accelerate` if it stays so",
};
