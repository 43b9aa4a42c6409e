//! The mirror's thread: hears the kernel, writes the tables, and says until when they may be used.
//!
//! The thread turns for an event, a question, or the next stamp. A turn is a step, and what comes behind:
//!
//! | Part     | What                                                                                                  |
//! |----------|-------------------------------------------------------------------------------------------------------|
//! | step     | the clock is read *before* anything is looked at: what is true is true of this moment                 |
//! |          | gate: the guard revokes the lease at a notification; ports are closed until the gate has judged anew  |
//! |          | kernel: its events are read, until the socket is empty or to the bound of a look, and go to the mirror |
//! |          | tables: the mirror's edits are carried out, up to a bound                                             |
//! |          | lease: the tables are true if the socket was empty, nothing was lost, and no edit waits; a stamp      |
//! | dump     | if events were lost, or may have been too few: everything is read anew, with steps meanwhile          |
//! | judge    | the gate judges, if it has to; what it lets pass is forwarded from the next stamp on                  |
//! | programs | are taken off interfaces, and put on them one by one: a step is in between                            |
//! | questions | questions are answered                                                                               |
//!
//! A step has bounds, so that a flood does not keep it from the next stamp; what a stamp says then is the lease's
//! business ([`lease`](super::lease)). A flood has a pace, too: after a turn that has read events, the
//! kernel's socket is left alone for [`PACE`], and many events cost one turn. The gate's sockets are not.
//!
//! While everything is read anew, events are still read and applied, and are remembered: they are given to
//! the mirror a second time behind the dump, which may be older than they are. So the tables are never behind for
//! that long, and end as the kernel's.
//!
//! Nothing here is fast enough for a new filter: attaching takes tens of milliseconds for each interface, and comparing
//! tables hundreds. The lease is therefore stamped through the [`Guard`], which revokes it meanwhile.
//!
//! | File         | Holds                                                                |
//! |--------------|----------------------------------------------------------------------|
//! | `start.rs`   | the thread, put together                                             |
//! | `resync.rs`  | everything read anew, and compared                                   |
//! | `connections.rs` | what the lane is notified of, and what it wants                     |
//! | `judge.rs`   | the gate's word and the operator's, and what ports make of them      |
//! | `shown.rs`   | what others see                                                      |
//! | `add_port.rs` | interfaces that the operator adds                                   |
//!
//! These files may use all of the thread; the rest of `accelerator` uses what is `pub` here.

mod add_port;
mod connections;
mod judge;
mod resync;
mod shown;
mod start;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use connections::InForce;
use manylane_io::eventfd::EventFd;
use manylane_io::netlink::Netlink;
use manylane_io::netlink::kernel::{Event, Watch};
use manylane_io::poll::poll;

use super::export::Export;
use super::guard::Guard;
use super::lease::{Lease, in_ticks, now};
use super::log::Log;
use super::ports::Ports;
use super::published::Published;
use super::reclaim::Reclaim;
use super::tiers::Tiers;
use super::waits::Activity;
use super::{AccelerateError, tables};
use crate::gate::{self, Gate, Poller, Standing};
use crate::lane::Lane;
use crate::programs::{IngressProgram, Ticks};
use crate::questions::QuestionQueue;
use manylane_mirror::Mirror;

/// All that the thread has. Fields are dropped in this order: the programs first.
pub(super) struct Thread {
    ports: Ports,
    tiers: Tiers,
    /// What forwards connections one by one, where that is wanted.
    lane: Option<Lane>,
    /// Collectors, where flows are exported: behind the lane, which has last records.
    #[expect(dead_code, reason = "its threads end with it")]
    export: Option<Export>,
    /// The last terms for the lane.
    in_force: InForce,
    fast: IngressProgram,
    pub(super) mirror: Mirror,
    reclaim: Reclaim,
    lease: Lease,
    ticks: Ticks,
    guard: Guard,
    /// What the guard had heard when the gate's notifications were last heeded.
    noticed: u64,
    watch: Watch,
    gate: Gate,
    poller: Poller,
    pub(super) netlink: Netlink,
    doorbell: Arc<EventFd>,
    questions: QuestionQueue<Thread>,
    published: Arc<Published>,
    /// What was heard while everything is read anew.
    heard: Option<Vec<Event>>,
    todo: Todo,
    standings: Vec<Standing>,
    /// What was said of ports last.
    log: Log,
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
    /// Programs may be missing on interfaces: from this place of the list on, which is gone through twice, once for
    /// ingress and once for drivers.
    attach: Option<usize>,
    /// What has become of ports is to be said when programs have been attached.
    log: bool,
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
        let polled = self.gate.poll(&mut self.poller);
        if polled.rules {
            self.guard.note_rules();
        }
        if polled.is_change {
            self.close();
        }
        if Instant::now() >= self.next_poll {
            self.poll_devices();
        }
        if self.todo.judge && self.lease.renewals() > 0 {
            self.judge();
        } else if self.todo.attach.is_some() {
            self.attach_next();
        }
        while let Some(job) = self.questions.take() {
            let before = self.published.enter(Activity::Questions);
            job(self);
            self.published.enter(before);
        }
        self.update_tiers();
        self.publish();
        Ok(heard)
    }

    /// Hears, writes, and stamps. Says whether it has heard something.
    fn step(&mut self) -> Result<bool, AccelerateError> {
        let looked_at = now();
        let before = self.published.enter(Activity::Events);
        let changes = self.guard.look();
        if std::mem::replace(&mut self.noticed, changes) != changes {
            self.tiers.clear_failures(&mut self.ports.list, None);
            self.close();
        }
        let heard = self.receive_events()?;
        self.serve_lane();
        self.published.enter(Activity::Tables);
        if std::mem::take(&mut self.todo.ports) {
            self.close();
            self.write_ports();
            self.todo.show = true;
        } else if std::mem::take(&mut self.todo.addresses) {
            self.write_ports();
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
        self.published.enter(before);
        Ok(heard)
    }

    /// Reads what the kernel says.
    fn receive_events(&mut self) -> Result<bool, AccelerateError> {
        let Thread { watch, mirror, todo, heard, ports, tiers, .. } = self;
        let read = watch.read(&mut |event: Event| {
            let is_news = mirror.event(&event);
            if let Event::Link(link) = &event {
                tiers.clear_failures(&mut ports.list, Some(link.index));
                let mut of_link = ports.list.iter_mut().filter(|_| is_news);
                if let Some(port) = of_link.find(|port| port.index == Some(link.index)) {
                    tiers.forgive_checksums(port);
                }
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

    /// Says until when the tables may be used.
    fn stamp(&mut self) {
        let Thread { guard, lease, ticks, published, .. } = self;
        let renewals = lease.renewals();
        // The present activity counts up to here.
        published.enter(Activity::Tables);
        stamp(guard, lease, ticks);
        published.stamped(renewals > 0 && lease.renewals() > renewals);
    }

    /// What is done once a second: what sends no notification, neighbours, interfaces that were refused.
    fn poll_devices(&mut self) {
        self.next_poll = Instant::now() + POLL;
        let interfaces = self.ports.names();
        let kernel = tables::known(&self.mirror);
        let mirror = &mut self.mirror;
        // Also what would wait here for a lock of the kernel: this thread renews the lease.
        self.poller.request(|| gate::Round {
            links: gate::links(&kernel, &interfaces).into_iter().cloned().collect(),
            neighbours: mirror.to_confirm(now()).collect(),
        });
        self.todo.judge |= self.trouble.is_some();
        let before = self.published.enter(Activity::Neighbours);
        self.ports.list.iter_mut().for_each(|port| port.driver.sockets.retry());
        self.todo.judge |= self.ports.retry_locks();
        // What was refused is tried again.
        self.todo.attach = Some(0);
        if self.tiers.check_checksums(&mut self.ports.list) {
            self.log_changes();
        }
        self.published.enter(before);
    }

    /// Waits for news, or the next stamp.
    fn sleep(&mut self, heard: bool) {
        self.published.enter(Activity::Idle);
        let Todo { read, edits, room, judge, attach, .. } = self.todo;
        if read || (edits && !room) || judge || attach.is_some() {
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
        // The one failure is ENOMEM: then it turns instead of sleeping.
        if heard && poll(&fds, Some(PACE)).is_ok_and(|ready| ready.any()) {
            return;
        }
        fds.push(self.watch.as_fd());
        let _ = poll(&fds, Some(wait));
    }
}

/// Says until when the tables may be used. Where the kernel does not tell its ticks, for want of memory, they may not.
fn stamp(guard: &Guard, lease: &mut Lease, ticks: &Ticks) {
    let until = lease.stamp(now());
    match in_ticks(ticks, until) {
        Ok(tick) => guard.stamp(until, tick),
        Err(_) => guard.stamp(0, 0),
    }
}

/// How long the kernel's socket is left alone after a turn that has heard something.
const PACE: Duration = Duration::from_millis(1);
/// How soon to look again whether an egress's queue is empty.
const QUEUE_POLL: Duration = Duration::from_millis(5);
/// How often to look at what sends no notification.
const POLL: Duration = Duration::from_secs(1);
/// Prefixes that are written in one step: a microsecond each, or two.
const PREFIXES_AT_ONCE: usize = 4096;
/// How long after the last link or address that came or went everything is read to be sure.
const CONFIRM_AFTER: Duration = Duration::from_millis(50);
