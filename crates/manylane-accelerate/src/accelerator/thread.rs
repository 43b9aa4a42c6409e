//! The mirror's thread: hears the kernel, writes the tables, and says until when they may be used.
//!
//! The thread turns for an event, a question, or the next stamp. A turn is a step, and what comes behind:
//!
//! | Part     | What                                                                                                  |
//! |----------|-------------------------------------------------------------------------------------------------------|
//! | step     | the clock is read *before* anything is looked at: what is true is true of this moment                 |
//! |          | gate: after a notification no received packet is forwarded until the gate has judged anew             |
//! |          | kernel: its events are read, until the socket is empty or to the bound of a look, and go to the mirror |
//! |          | tables: the mirror's edits are carried out, up to a bound                                             |
//! |          | lease: the tables are true if the socket was empty, nothing was lost, and no edit waits; a stamp      |
//! | dump     | if events were lost, or may have been too few: everything is read anew, with steps meanwhile          |
//! | judge    | the gate judges, if it has to; what it lets pass is forwarded from here on                            |
//! | programs | are put on interfaces and taken off: behind the stamp, so that none begins on a lapsed lease          |
//! | questions     | questions are answered                                                                                |
//!
//! A step has bounds, so that a flood does not keep it from the next stamp; what a stamp says then is the lease's
//! business ([`lease`](super::lease)). A flood has a pace, too: after a turn that has read events, the
//! kernel's socket is left alone for [`PACE`], and many events cost one turn. The gate's sockets are not.
//!
//! While everything is read anew, events are still read and applied, and are remembered: they are given to
//! the mirror a second time behind the dump, which may be older than they are. So the tables are never behind for
//! that long, and end as the kernel's.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::programs::{IngressProgram, Ticks};
use manylane_io::eventfd::EventFd;
use manylane_io::netlink::Netlink;
use manylane_io::netlink::kernel::{Event, Group, Watch};
use manylane_io::poll::poll;
use manylane_io::sysctl;
use manylane_net::transit::{Multipath, TransitMut};
use manylane_net::wire::ethernet::Mac;
use manylane_sync::rcu::Domain;

use super::flows::Sampler;
use super::lease::{Lease, Tables, in_ticks, now};
use super::ports::{Port, Ports, is_usable};
use super::published::{PortView, Published, ms};
use super::questions::{QuestionQueue, question_queue};
use super::reclaim::Reclaim;
use super::sockets::WorkerContext;
use super::tiers::{self, Tiers};
use super::{AccelerateError, Options, TierChoice, ledger, reason, refused, tables};
use crate::gate::{Gate, Standing, programs_of_others};
use crate::mirror::{self, Dump, Mirror};
use manylane_api::accelerate::{LeaseStatus, MirrorStatus, ReasonStatus};

/// All that the thread has. Fields are dropped in this order: the programs first.
pub(super) struct Thread {
    ports: Ports,
    tiers: Tiers,
    fast: IngressProgram,
    pub(super) mirror: Mirror,
    reclaim: Reclaim,
    lease: Lease,
    ticks: Ticks,
    watch: Watch,
    gate: Gate,
    pub(super) netlink: Netlink,
    doorbell: Arc<EventFd>,
    questions: QuestionQueue<Thread>,
    published: Arc<Published>,
    /// What was heard while everything is read anew.
    heard: Option<Vec<Event>>,
    todo: Todo,
    standings: Vec<Standing>,
    /// What was said of each port last.
    logged: HashMap<String, String>,
    /// Whether the tables had all that the kernel has, when that was looked at last.
    was_whole: bool,
    /// Why the gate could not judge.
    trouble: Option<String>,
    next_poll: Instant,
    /// When everything may be read again to be sure.
    next_confirm: Instant,
    pub(super) counts: Counts,
}

/// What is left to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Todo {
    /// Events were lost: everything is to be read anew.
    resync: bool,
    /// Nothing has been read yet, nor written.
    load: bool,
    /// What is published of ports has changed.
    show: bool,
    /// Everything is being read anew because events were lost: until then the tables are stale, too.
    is_repairing: bool,
    /// The kernel may have done more than it logged: everything is to be read, to be sure.
    confirm: bool,
    /// The gate is to judge.
    judge: bool,
    /// Links or settings have changed.
    ports: bool,
    /// Addresses have changed: by which of them a port's sources are judged.
    addresses: bool,
    /// The kernel's socket may hold more events.
    read: bool,
    /// Edits wait for others to be carried out; for memory if `room` is set.
    edits: bool,
    /// Something is waited for that the reclaim thread tells.
    room: bool,
}

/// What the thread has done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Times that all was read anew because something was lost.
    pub overruns: u64,
    /// Times that it was only to be sure.
    pub confirmations: u64,
}

impl Thread {
    /// Reads the kernel, judges the interfaces, and lets packets pass where they may. `doorbell` is rung for the end.
    pub fn start(options: Options, doorbell: Arc<EventFd>) -> Result<Thread, AccelerateError> {
        tables::check_names(&options.interfaces)?;
        tables::check_tiers(&options)?;
        tables::check_workers(&options)?;
        let open = || Netlink::open().map_err(AccelerateError::Netlink);
        // Subscribed before anything is read: what changes from here on is heard.
        let watch = Watch::open(&Group::ALL, RECEIVE_BUFFER).map_err(AccelerateError::Netlink)?;
        let gate = Gate::open(programs_of_others()).map_err(AccelerateError::Gate)?;
        let mut netlink = open()?;
        let links = netlink.dump_links().map_err(AccelerateError::Netlink)?;
        tables::all_there(&links, &options.interfaces)?;

        let (sizes, memory) = tables::sizes(options.routes);
        let (mut fast, memory) = IngressProgram::load(&memory)
            .map(|(fast, maps)| (fast, tables::memory(maps)))
            .map_err(AccelerateError::Program)?;
        // One place for the programs' proxy, one for the API's `why`,
        // and one for each worker.
        let worker_options = super::worker_options(&options);
        let domain = Domain::new(2 + worker_options.workers);
        let proxy = domain.proxy().expect("the domain has two places");
        let reader = domain.register().expect("the domain has two places");
        let control = memory.control.reader();
        let mut writer = TransitMut::new(memory, domain.clone(), &sizes);
        // The standard library's keys are the kernel's random numbers.
        let seed = RandomState::new().hash_one(0);
        writer.set_seed(seed);
        let transit = writer.reader();
        let reclaim = Reclaim::start(fast.grace(), proxy, doorbell.clone());
        let reclaim = reclaim.map_err(refused("a thread"))?;
        let (asked, questions) = question_queue(doorbell.clone());
        let lease = Lease::new(options.lease, options.stale_limit);
        let ticks = Ticks::open().map_err(refused("the kernel's ticks"))?;
        let ports = Ports::new(&options);
        let in_driver = Arc::new(OnceLock::new());
        let by_workers = Arc::new(OnceLock::new());
        let counters = ledger::Sources {
            ingress: fast.counters(),
            driver: in_driver.clone(),
            workers: by_workers.clone(),
        };
        let (own, doorbell_of_workers) = (transit.clone(), doorbell.clone());
        let worker_context = WorkerContext {
            worker_options,
            domain,
            transit: own,
            doorbell: doorbell_of_workers,
            counts: by_workers,
        };
        let samples = fast.take_samples().expect("nobody else takes them");
        let sampler = Sampler::new(samples, counters.clone());
        let published = Published::new(
            options,
            seed,
            control,
            (counters, sampler),
            open()?,
            (reader, transit),
            asked,
        )
        .map_err(AccelerateError::Netlink)?;
        let mut thread = Thread {
            mirror: Mirror::new(writer, mirror::Limits::default()),
            ports,
            tiers: Tiers::new(in_driver, worker_context),
            fast,
            reclaim,
            lease,
            ticks,
            watch,
            gate,
            netlink,
            doorbell,
            questions,
            published: Arc::new(published),
            heard: None,
            todo: Todo { resync: true, load: true, judge: true, ports: true, ..Todo::default() },
            standings: Vec::new(),
            logged: HashMap::new(),
            was_whole: true,
            trouble: None,
            next_poll: Instant::now(),
            next_confirm: Instant::now(),
            counts: Counts::default(),
        };
        // The first turn reads all, the next ones hear what was said meanwhile: then the tables are true, and the
        // gate can judge.
        while thread.lease.renewals() == 0 || thread.todo.judge {
            if !thread.turn()? {
                thread.sleep(false);
            }
        }
        Ok(thread)
    }

    /// What others see.
    pub fn published(&self) -> Arc<Published> {
        self.published.clone()
    }

    /// Turns until its end is requested.
    pub fn run(&mut self) {
        while !self.published.view().ends {
            match self.turn() {
                Ok(heard) => self.sleep(heard),
                Err(error) => {
                    // Nothing is true that cannot be read: the lease lapses, and it is tried again.
                    self.lease.tables_are_stale();
                    self.todo.resync = true;
                    self.published.log(&format!("{error}; trying again"));
                    self.stamp();
                    self.sleep(false);
                }
            }
        }
        self.ports.detach();
        self.tiers.end_workers();
        self.todo.show = true;
        self.lease = Lease::new(Duration::ZERO, Duration::ZERO);
        self.stamp();
        self.publish();
    }

    /// One turn. Says whether it has heard something.
    fn turn(&mut self) -> Result<bool, AccelerateError> {
        self.doorbell.drain();
        let heard = self.step()?;
        let is_time = Instant::now() >= self.next_confirm;
        if !self.todo.read && (self.todo.resync || (self.todo.confirm && is_time)) {
            self.read_all()?;
        }
        if Instant::now() >= self.next_poll {
            self.poll_devices();
        }
        if self.todo.judge && self.lease.renewals() > 0 {
            self.judge();
        }
        while let Some(job) = self.questions.take() {
            job(self);
        }
        self.update_tiers();
        self.publish();
        Ok(heard)
    }

    /// Hears, writes, and stamps. Says whether it has heard something.
    fn step(&mut self) -> Result<bool, AccelerateError> {
        let looked_at = now();
        if self.gate.changed() {
            self.tiers.clear_failures(&mut self.ports.list, None);
            self.close();
        }
        let heard = self.receive_events()?;
        if std::mem::take(&mut self.todo.ports) {
            self.close();
            self.ports.write(&mut self.mirror, self.tiers.driver());
            self.todo.show = true;
        } else if std::mem::take(&mut self.todo.addresses) {
            self.ports.write(&mut self.mirror, self.tiers.driver());
        }
        self.apply_edits();
        if std::mem::replace(&mut self.was_whole, self.mirror.is_whole()) != self.mirror.is_whole()
        {
            self.close();
        }
        let Todo { resync, is_repairing, read, edits, .. } = self.todo;
        if resync || is_repairing || read || edits {
            self.lease.tables_are_stale();
        } else {
            self.lease.tables_are_true(looked_at);
        }
        self.stamp();
        self.published.view().checks += 1;
        Ok(heard)
    }

    /// Stops forwarding of received packets until the gate has judged.
    fn close(&mut self) {
        self.todo.judge = true;
        self.ports.close(self.mirror.tables_mut());
    }

    /// Reads what the kernel says.
    fn receive_events(&mut self) -> Result<bool, AccelerateError> {
        let Thread { watch, mirror, todo, heard, ports, tiers, .. } = self;
        let read = watch.read(&mut |event: Event| {
            let is_news = mirror.event(&event);
            if let Event::Link(link) = &event {
                tiers.clear_failures(&mut ports.list, Some(link.index));
            }
            // What ports are made of, and the gate looks at.
            todo.ports |= is_news
                && matches!(
                    event,
                    Event::Link(_)
                        | Event::LinkGone(_)
                        | Event::Netconf(_)
                        | Event::Rule(_)
                        | Event::RuleGone(_)
                );
            todo.addresses |= is_news && matches!(event, Event::Address(_) | Event::AddressGone(_));
            if let Some(heard) = heard {
                heard.push(event);
            }
        });
        let read = read.map_err(AccelerateError::Netlink)?;
        self.todo.resync |= read.overrun;
        self.todo.read = read.more;
        if self.mirror.take_unconfirmed() {
            self.todo.confirm = true;
            self.next_confirm = self.next_confirm.max(Instant::now() + CONFIRM_AFTER);
        }
        Ok(read.events > 0)
    }

    /// Applies the mirror's edits, as far as the tables have room.
    fn apply_edits(&mut self) {
        if self.todo.load {
            return; // All at once, when it has been read.
        }
        self.mirror.tables_mut().reclaim();
        let applied = self.mirror.apply(now(), PREFIXES_AT_ONCE);
        (self.todo.edits, self.todo.room) = (applied.pending > 0, applied.is_busy);
        if self.mirror.tables().waiting() > 0 {
            self.reclaim.ring();
        }
    }

    /// Reads everything anew, and makes the tables so: never empty in between.
    fn read_all(&mut self) -> Result<(), AccelerateError> {
        let begin = Instant::now();
        let was_lost = std::mem::take(&mut self.todo.resync);
        self.todo.confirm = false;
        self.todo.is_repairing = was_lost;
        let (dump, heard) = self.dump().inspect_err(|_| self.todo.resync |= was_lost)?;
        self.todo.is_repairing = false;
        self.lease.tables_are_stale();
        if std::mem::take(&mut self.todo.load) {
            self.mirror.load(dump);
        } else {
            self.counts.overruns += u64::from(was_lost);
            self.counts.confirmations += u64::from(!was_lost);
            let Thread { mirror, lease, ticks, .. } = self;
            mirror.resync(dump, &mut |tables| stamp(tables, lease, ticks));
        }
        for event in &heard {
            self.mirror.event(event);
        }
        self.todo.ports = true;
        // A dump that only confirms may come late.
        self.next_confirm = Instant::now() + 8 * begin.elapsed();
        // What is to be written now is written in the next step, at once.
        self.todo.read = true;
        Ok(())
    }

    /// A dump of the kernel's tables, and the events read meanwhile. Steps continue meanwhile.
    fn dump(&mut self) -> Result<(Dump, Vec<Event>), AccelerateError> {
        // A socket of its own: two answers cannot be read at a time.
        let mut netlink = Netlink::open().map_err(AccelerateError::Netlink)?;
        self.heard = Some(Vec::new());
        let mut stepped = Ok(());
        let dump = tables::dump(&mut netlink, mirror::Limits::default(), &mut || {
            if stepped.is_ok() {
                stepped = self.step().map(drop);
            }
        });
        let heard = self.heard.take().unwrap_or_default();
        stepped?;
        Ok((dump.map_err(AccelerateError::Netlink)?, heard))
    }

    /// Says until when the tables may be used.
    fn stamp(&mut self) {
        let Thread { mirror, lease, ticks, .. } = self;
        stamp(mirror.tables_mut(), lease, ticks);
    }

    /// What is done once a second: what sends no notification, neighbours, interfaces that were refused.
    fn poll_devices(&mut self) {
        self.next_poll = Instant::now() + POLL;
        let kernel = tables::known(&self.mirror);
        if self.gate.poll(&kernel, &self.published.options.interfaces) {
            self.close();
        }
        self.todo.judge |= self.trouble.is_some();
        for (link, address) in self.mirror.to_confirm(now()) {
            // A neighbour that has gone meanwhile is not queried again.
            let _ = self.netlink.resolve_neighbour(link, address);
        }
        self.ports.list.iter_mut().for_each(|port| port.driver.sockets.retry());
        let is_other = self.ports.attach(&self.fast);
        if self.tiers.attach(&self.fast, &mut self.ports.list) | is_other {
            self.log_changes();
        }
    }

    /// Takes ports into the driver's and the workers' tier where the time has come, and out of it where a device
    /// refuses frames.
    fn update_tiers(&mut self) {
        let Thread { tiers, ports, netlink, mirror, fast, .. } = self;
        let is_other =
            tiers.check_failures(&mut ports.list) | tiers.receive_reports(&mut ports.list);
        let is_moved = tiers.move_directions(&mut ports.list, netlink);
        if is_moved {
            ports.write(mirror, tiers.driver());
        }
        // Behind that: the tables say by now what goes to workers.
        if tiers.open_and_close_sockets(fast, &mut ports.list) | is_moved | is_other {
            self.log_changes();
        }
    }

    /// Sets the tier of a port. `false` if no port has this name.
    pub fn set_tier(&mut self, interface: &str, choice: TierChoice) -> bool {
        let port = self.ports.list.iter_mut().find(|port| port.name == interface);
        let Some(port) = port else { return false };
        port.choice = choice;
        // Before the API shows the port again.
        self.judge();
        self.update_tiers();
        self.publish();
        true
    }

    /// Asks the gate, and lets pass what may.
    fn judge(&mut self) {
        let kernel = tables::known(&self.mirror);
        let options = &self.published.options;
        let standings = self.gate.evaluate(&kernel, &options.interfaces, options.bypass);
        self.todo.judge = false;
        match standings {
            Ok(standings) => {
                (self.standings, self.trouble) = (standings, None);
            }
            Err(error) => {
                // What is not known is the kernel's; `look` comes back to it.
                (self.standings, self.trouble) = (Vec::new(), Some(error.to_string()));
            }
        }
        let is_whole = self.mirror.is_whole();
        for port in &mut self.ports.list {
            let standing = self.standings.iter().find(|one| Some(one.index) == port.index);
            let may = port.choice != TierChoice::Kernel && is_whole;
            let plan = standing.filter(|_| may).map(|one| tiers::plan(port.choice, one));
            port.driver.plan = plan.unwrap_or_default();
            port.ingress = may && standing.is_some_and(|one| one.is_ingress);
            port.egress = may && standing.is_some_and(|one| one.is_egress);
        }
        // What was heard while it looked is judged again, before anything passes.
        if self.gate.changed() {
            self.close();
            return;
        }
        self.mirror.tables_mut().set_multipath(multipath());
        self.ports.write(&mut self.mirror, self.tiers.driver());
        self.stamp();
        self.ports.attach(&self.fast);
        self.tiers.attach(&self.fast, &mut self.ports.list);
        self.log_changes();
    }

    /// Says what has become of ports, where that is new.
    fn log_changes(&mut self) {
        self.todo.show = true;
        for port in &self.ports.list {
            let reasons = self.reasons(port);
            let mut sentence = match (port.index, port.is_attached()) {
                (None, _) => format!("{}: the interface does not exist now", port.name),
                (Some(_), true) => format!(
                    "{}: forwards received packets ({}), transmits by {}",
                    port.name,
                    port.tier(),
                    port.egress_tier()
                ),
                (Some(_), false) => format!("{}: the kernel forwards", port.name),
            };
            for reason in reasons.into_iter().chain(self.tier_reasons(port)) {
                sentence += &format!("\n  {}: {}", reason.what, reason.why);
            }
            if self.logged.get(&port.name) != Some(&sentence) {
                self.published.log(&sentence);
                self.logged.insert(port.name.clone(), sentence);
            }
        }
    }

    /// What is against a port.
    fn reasons(&self, port: &Port) -> Vec<ReasonStatus> {
        let of = self.standings.iter().filter(|standing| standing.interface == port.name);
        let mut reasons: Vec<_> =
            of.flat_map(|standing| standing.reasons.iter().map(reason)).collect();
        if port.choice == TierChoice::Kernel {
            reasons.push(ReasonStatus {
                what: "the tier is set to kernel".into(),
                why: "nothing is accelerated by the operator's word".into(),
                command: String::new(),
            });
        }
        if !self.mirror.is_whole() {
            reasons.push(ReasonStatus {
                what: "the kernel has more routes than the tables hold".into(),
                why: "a packet to a missing route would follow a shorter prefix".into(),
                command: String::new(),
            });
        }
        let troubles = [port.trouble.as_deref(), self.trouble.as_deref()].into_iter().flatten();
        reasons.extend(troubles.map(|what| ReasonStatus {
            what: what.into(),
            why: "it is tried again once a second".into(),
            command: String::new(),
        }));
        reasons
    }

    /// Why it has the tier that it has, among those that forward.
    fn tier_reasons(&self, port: &Port) -> Vec<ReasonStatus> {
        let standing = self.standings.iter().find(|one| one.interface == port.name);
        tiers::reasons(port, standing.map(|standing| &standing.driver))
    }

    /// The mirror and what keeps it.
    pub fn mirror_status(&self) -> MirrorStatus {
        let (grace_periods, grace_error) = self.reclaim.waits();
        let true_at = match self.lease.tables() {
            Tables::Unknown => 0,
            Tables::True { at } => at,
            Tables::Stale { since } => since,
        };
        MirrorStatus {
            lease: LeaseStatus::default(),
            verified_ms_ago: ms(now().saturating_sub(true_at).into()),
            overruns: self.counts.overruns,
            confirmations: self.counts.confirmations,
            grace_periods,
            grace_error,
            mirror: self.mirror.status(now()),
        }
    }

    /// How kernel, model and tables differ.
    pub fn diff(&mut self) -> Result<Vec<String>, AccelerateError> {
        // A change during the dump would look like a difference.
        for _ in 0..DIFF_TRIES {
            let (dump, heard) = self.dump()?;
            if heard.is_empty() && !self.step()? {
                return Ok(self.compare(&dump));
            }
        }
        let (dump, _) = self.dump()?;
        Ok(self.compare(&dump))
    }

    fn compare(&mut self, dump: &Dump) -> Vec<String> {
        // Events are not read meanwhile.
        self.lease.tables_are_stale();
        let Thread { mirror, lease, ticks, .. } = self;
        mirror.diff(dump, &mut |tables| stamp(tables, lease, ticks))
    }

    /// Leaves what others see.
    fn publish(&mut self) {
        let ports = std::mem::take(&mut self.todo.show).then(|| self.views());
        let mut view = self.published.view();
        view.lease = self.lease.clone();
        if let Some(ports) = ports {
            view.ports = ports;
        }
    }

    fn views(&self) -> Vec<PortView> {
        let of_port = |port: &Port| {
            let link = port.index.and_then(|index| self.mirror.kernel().link(index));
            PortView {
                number: port.number,
                name: port.name.clone(),
                index: port.index,
                mac: link.and_then(|link| link.mac).map(Mac),
                mtu: link.map_or(0, |link| link.mtu),
                link_up: link.is_some_and(is_usable),
                ingress: port.ingress && port.is_attached(),
                egress: port.egress,
                attached: port.is_attached(),
                tier: port.tier(),
                egress_tier: port.egress_tier(),
                choice: port.choice,
                programs: port.programs.clone(),
                reasons: self.reasons(port),
                tier_reasons: self.tier_reasons(port),
            }
        };
        self.ports.list.iter().map(of_port).collect()
    }

    /// Waits for news, or the next stamp.
    fn sleep(&mut self, heard: bool) {
        if self.todo.read || (self.todo.edits && !self.todo.room) || self.todo.judge {
            return;
        }
        let until_poll = self.next_poll.saturating_duration_since(Instant::now());
        let mut wait = self.lease.heartbeat().min(until_poll);
        if self.todo.confirm {
            wait = wait.min(self.next_confirm.saturating_duration_since(Instant::now()));
        }
        if Tiers::is_waiting(&self.ports.list) {
            wait = wait.min(QUEUE_POLL);
        }
        let mut fds: Vec<BorrowedFd<'_>> = vec![self.doorbell.as_fd()];
        fds.extend(self.gate.fds());
        // The one failure is ENOMEM: then it turns instead of sleeping.
        if heard && poll(&fds, Some(PACE)).is_ok_and(|ready| ready.any()) {
            return;
        }
        fds.push(self.watch.as_fd());
        let _ = poll(&fds, Some(wait));
    }
}

/// Says until when the tables may be used. Where the kernel does not tell its ticks, for want of memory, they may not.
fn stamp(tables: &mut TransitMut, lease: &mut Lease, ticks: &Ticks) {
    let until = lease.stamp(now());
    match in_ticks(ticks, until) {
        Ok(tick) => tables.set_lease(until, tick),
        Err(_) => tables.set_lease(0, 0),
    }
}

/// What the kernel would choose members of groups by (`fib_multipath_hash_policy`): 0 addresses, 1 ports, too; by
/// what others say only the kernel can choose.
fn multipath() -> Multipath {
    let policy = |version| {
        let name = format!("net/{version}/fib_multipath_hash_policy");
        // A kernel without the setting does as if it were 0.
        sysctl::read(&name).ok().and_then(|text| text.trim().parse::<u8>().ok()).unwrap_or(0)
    };
    let [ipv4, ipv6] = ["ipv4", "ipv6"].map(policy);
    Multipath { ipv4: ipv4 <= 1, ipv6: ipv6 <= 1, ipv4_ports: ipv4 == 1, ipv6_ports: ipv6 == 1 }
}

/// What the kernel keeps of its events for us: some 60,000 of them.
const RECEIVE_BUFFER: usize = 64 << 20;
/// How long the kernel's socket is left alone after a turn that has heard something.
const PACE: Duration = Duration::from_millis(1);
/// How soon to look again whether an egress's queue is empty.
const QUEUE_POLL: Duration = Duration::from_millis(5);
/// How often to look at what sends no notification.
const POLL: Duration = Duration::from_secs(1);
/// Prefixes that are written in one step: a microsecond each, or two.
const PREFIXES_AT_ONCE: usize = 4096;
/// A kernel whose routing changes during this number of dumps in a row is shown as it was at the last.
const DIFF_TRIES: u32 = 5;
/// How long after the last link or address that came or went everything is read to be sure.
const CONFIRM_AFTER: Duration = Duration::from_millis(50);
