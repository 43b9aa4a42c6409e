//! A worker: one thread on one core, turning.
//!
//! Each turn takes what its receive queues have, forwards it, transmits, reclaims, and says that it
//! holds nothing any more (`turn.rs` is the loop's body, on one screen). It never waits for anybody
//! (I4): what it reads is published, what it tells goes by rings that may be full, and what it counts
//! is its own.
//!
//! When nothing has come for `idle_spin`, it goes offline from the grace periods and sleeps in `poll`
//! on its queues and its doorbell.
//!
//! | shared with    | by                                | direction                            |
//! |----------------|-----------------------------------|--------------------------------------|
//! | control thread | tables, grace periods             | control publishes, the worker reads  |
//! | control thread | ring of [`Report`]s and its bell  | worker to control                    |
//! | control thread | ring of [`Order`]s and our bell   | control to worker                    |
//! | control thread | the phase, one word ([`phase`])   | control to worker                    |
//! | API            | the hot list's length, one word   | API to workers, seen once a turn     |
//! | other workers  | the frame depot, by magazine      | both                                 |
//! | other workers  | rings of frames ([`handoff`]), where a port's queue is shared by flow | both |

mod dispatch;
mod flow_limit;
pub mod handoff;
mod hold;
mod observers;
mod orders;
pub mod phase;
mod prepare;
pub mod queue_handover;
mod reroute;
mod sleep;
mod trace;
mod transmit;
mod turn;

use std::sync::Arc;
use std::time::{Duration, Instant};

use manylane_frame::vocabulary::WorkerId;
use manylane_frame::{Batch, Frame, Pool};
use manylane_io::eventfd::EventFd;
use manylane_io::port::{Receiver, Transmitter};
use manylane_net::forward::{Forwarder, Verdict};
use manylane_net::neighbour::{HoldQueues, Key, Report};
use manylane_net::nexthop::dst::{DstRef, Dsts};
use manylane_sync::doorbell::Doorbell;
use manylane_sync::rcu::Reader;
use manylane_sync::ring::{Consumer, Producer};
use manylane_sync::words::Words;

use crate::stats::{Stats, WorkerCount};

pub use handoff::HandOff;
pub use observers::Observers;
use phase::RUN;
pub use phase::STOP;
use queue_handover::QueueHandover;
pub use trace::Tracer;
#[doc(hidden)]
pub use turn::Turn;

/// The daemon's clock: nanoseconds since it started.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Clock {
        Clock(Instant::now())
    }

    /// Nanoseconds since the start.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.now().as_nanos() as u64 // 584 years.
    }

    /// Time since the start.
    #[inline]
    pub fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

/// What the control thread wants a worker to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// An ARP request or neighbour solicitation: to one station, or to everybody.
    Solicit {
        /// For whom we ask.
        key: Key,
        /// Ask only this station.
        unicast: Option<[u8; 6]>,
    },
    /// The question whether anybody else has an address of ours.
    Probe {
        /// The address and its port.
        key: Key,
    },
    /// The news that an address of ours is here.
    Announce {
        /// The address and its port.
        key: Key,
    },
}

/// A worker's way out through a port, with the frames that wait for the end of the turn.
#[doc(hidden)]
pub struct Egress {
    pub transmitter: Transmitter,
    pub waiting: Batch,
    /// The worker that takes back what is sent here, unless that is done at once.
    pub reclaimer: Option<Reclaimer>,
    /// Frames were handed over that the reclaimer has not heard of.
    pub owes_bell: bool,
    /// Its port was removed.
    pub is_closed: bool,
}

/// Who takes back what is sent through a device: the owner of one of its receive queues.
pub struct Reclaimer {
    /// A word for each queue: the number of its owner.
    pub owners: Words<u32>,
    /// Which of them.
    pub at: usize,
    /// The workers' bells.
    pub bells: Arc<[Arc<Doorbell<EventFd>>]>,
}

impl Reclaimer {
    /// Rings the owner's bell, unless that is `own`.
    #[inline]
    fn ring(&self, own: WorkerId) {
        let owner = self.owners.load(self.at);
        if owner != u32::from(own.0) {
            self.bells[owner as usize].ring();
        }
    }
}

/// What a worker is made of.
pub struct WorkerParts {
    /// Which worker.
    pub id: WorkerId,
    /// Its membership of the grace periods.
    pub reader: Reader,
    /// Its list of free frames.
    pub pool: Pool,
    /// Its forwarding engine.
    pub forwarder: Forwarder,
    /// Packets that wait for neighbours.
    pub holds: HoldQueues,
    /// Where they are to go, for as long as they wait.
    pub dsts: Dsts,
    /// The receive queues it owns.
    pub queues: Vec<Receiver>,
    /// Its way out through each port, by port id, and who takes back what is sent there, unless that is
    /// done at once.
    pub transmitters: Vec<(Transmitter, Option<Reclaimer>)>,
    /// Its counters.
    pub stats: Stats,
    /// Where it reports.
    pub reports: Producer<Report>,
    /// The control thread's bell.
    pub control: Arc<Doorbell<EventFd>>,
    /// Where its orders come from.
    pub orders: Consumer<Order>,
    /// Its own bell.
    pub bell: Arc<Doorbell<EventFd>>,
    /// One word: a phase of [`phase`].
    pub phase: Words<u32>,
    /// One word: how many frames its list may hold.
    pub hot_list_len: Words<u32>,
    /// What it has with other workers, where a port's packets go to workers by flow.
    pub handoff: Option<Box<HandOff>>,
    /// Where the control thread asks for queues and ways out.
    pub queue_handover: QueueHandover,
    /// [`limits`](handoff::limits): how much it takes in a turn, and hands on.
    pub limits: Words<u32>,
    /// What packet sockets are given of.
    pub observers: Observers,
    /// What a trace is told by.
    pub tracer: Tracer,
    /// The daemon's clock.
    pub clock: Clock,
    /// How long it looks for work before it sleeps.
    pub idle_spin: Duration,
}

/// A worker.
pub struct Worker {
    #[doc(hidden)]
    pub reader: Reader,
    #[doc(hidden)]
    pub work: Work,
}

/// Everything of a worker but its `Reader`: it changes while a guard borrows the reader.
///
/// Public for the tests that turn workers by hand beside the control thread's part (`manylane-router/tests/worker`), and
/// no part of what this crate promises.
#[doc(hidden)]
pub struct Work {
    pub id: WorkerId,
    pub pool: Pool,
    pub forwarder: Forwarder,
    pub holds: HoldQueues,
    pub dsts: Dsts,
    /// For whom we hold.
    pub awaited: Vec<AwaitedNeighbour>,
    /// Frames that were held, on their way out; see `release`.
    pub released: Vec<Option<Frame>>,
    /// How long the one that is being dealt with has waited, and for whom.
    pub prior_hold: Option<PriorHold>,
    pub queues: Vec<Receiver>,
    pub egresses: Vec<Egress>,
    /// What a packet was made into for its egress; empty between packets, and kept for its memory.
    pub pieces: Vec<Frame>,
    pub stats: Stats,
    pub reports: Producer<Report>,
    pub control: Arc<Doorbell<EventFd>>,
    pub orders: Consumer<Order>,
    /// The one that waits for a frame.
    pub order: Option<Order>,
    pub bell: Arc<Doorbell<EventFd>>,
    pub phase: Words<u32>,
    /// What it said when that was last applied_phase.
    pub applied_phase: u32,
    pub hot_list_len: Words<u32>,
    /// What it said when it was last followed.
    pub applied_hot_list_len: u32,
    pub handoff: Option<Box<HandOff>>,
    pub queue_handover: QueueHandover,
    pub limits: Words<u32>,
    pub observers: Observers,
    pub tracer: Tracer,
    /// When the last turn began.
    pub now_ns: u64,
    /// The queue to begin with.
    pub next_queue: usize,
    pub clock: Clock,
    pub idle_spin_ns: u64,
    /// How long to sleep before looking for frames that a device has finished.
    pub reclaim_ns: u64,
    /// Generation of the neighbours when what is held was last looked at.
    pub neighbour_generation: u32,
    /// Generation of the routes at which all that is held was looked up; see `settle`.
    pub held_generation: u32,
    /// The same of what is being carried out.
    pub batch_generation: u32,
}

/// A neighbour that frames wait for.
#[doc(hidden)]
pub struct AwaitedNeighbour {
    pub key: Key,
    /// Their way: it outlives the turn, so it is counted. With the neighbour's slot, which is no other's
    /// while somebody holds this; or with the port only, when nobody had asked for the neighbour.
    pub dst: DstRef,
    /// When the control thread was last asked for it.
    pub requested_ns: u64,
}

/// What a frame that was held keeps if it comes to be held again: its age, and when its neighbour was asked for.
/// Flows may move as often as they like; nothing is held for longer, nor asked for more often.
#[derive(Clone, Copy)]
#[doc(hidden)]
pub struct PriorHold {
    pub since_ns: u64,
    pub key: Key,
    pub requested_ns: u64,
}

/// A frame that is looked up again when routes change: one that was held, without a verdict, or one behind
/// those.
#[doc(hidden)]
pub struct Pending<'g> {
    pub frame: Frame,
    pub verdict: Option<Verdict<'g>>,
    pub prior_hold: Option<PriorHold>,
}

impl Worker {
    /// Puts a worker together; it does nothing before [`Worker::run`] or [`Worker::turn`].
    pub fn new(parts: WorkerParts) -> Worker {
        let egress = |(transmitter, reclaimer)| Egress {
            transmitter,
            waiting: Batch::new(),
            reclaimer,
            owes_bell: false,
            is_closed: false,
        };
        let work = Work {
            id: parts.id,
            pool: parts.pool,
            forwarder: parts.forwarder,
            awaited: Vec::with_capacity(AWAITED_MAX),
            released: Vec::with_capacity(RELEASED),
            prior_hold: None,
            holds: parts.holds,
            dsts: parts.dsts,
            queues: parts.queues,
            egresses: parts.transmitters.into_iter().map(egress).collect(),
            pieces: Vec::with_capacity(PIECES),
            stats: parts.stats,
            reports: parts.reports,
            control: parts.control,
            orders: parts.orders,
            order: None,
            bell: parts.bell,
            phase: parts.phase,
            applied_phase: RUN,
            applied_hot_list_len: parts.hot_list_len.load(0),
            hot_list_len: parts.hot_list_len,
            handoff: parts.handoff,
            queue_handover: parts.queue_handover,
            limits: parts.limits,
            observers: parts.observers,
            tracer: parts.tracer,
            now_ns: 0,
            next_queue: 0,
            clock: parts.clock,
            idle_spin_ns: parts.idle_spin.as_nanos() as u64,
            reclaim_ns: sleep::RECLAIM_FIRST_NS,
            neighbour_generation: 0,
            held_generation: 0,
            batch_generation: 0,
        };
        Worker { reader: parts.reader, work }
    }

    /// Turns until the control thread says stop, or that it is to leave and all has left. Returns the worker,
    /// for its ports to be closed, or to run again.
    pub fn run(mut self) -> Worker {
        self.start();
        let mut now_ns = self.work.clock.now_ns();
        let mut worked_ns = now_ns;
        let mut levels_due_ns = now_ns;
        while self.should_continue() {
            self.work.apply_settings();
            let moved = self.turn(now_ns);
            let end_ns = self.work.clock.now_ns();
            let what = if moved > 0 { WorkerCount::BusyNs } else { WorkerCount::IdleNs };
            self.work.stats.worker(what, end_ns - now_ns);
            now_ns = end_ns;
            if now_ns >= levels_due_ns {
                self.work.publish_levels();
                levels_due_ns = now_ns + LEVELS_INTERVAL_NS;
            }
            if moved > 0 {
                worked_ns = now_ns;
            } else if now_ns - worked_ns >= self.work.idle_spin_ns {
                now_ns = self.sleep(now_ns);
            }
        }
        self.stop();
        self
    }

    /// Which worker this is.
    pub fn id(&self) -> WorkerId {
        self.work.id
    }

    /// Takes the worker apart: its queues and ways out, for their ports to close, its pool and its
    /// counters.
    /// When no other worker runs any more: what they have handed on ends here.
    pub fn into_parts(mut self) -> (Vec<Receiver>, Vec<Transmitter>, Pool, Stats) {
        self.work.drop_handed_off();
        self.work.drain_tasks();
        let Work { queues, egresses, pool, stats, .. } = self.work;
        (queues, egresses.into_iter().map(|egress| egress.transmitter).collect(), pool, stats)
    }
}

impl Work {
    /// Gives the list the length that is wanted of it.
    #[inline]
    #[doc(hidden)]
    pub fn apply_settings(&mut self) {
        if self.settings_changed() {
            self.applied_hot_list_len = self.hot_list_len.load(0);
            self.pool.set_hot_list_len(self.applied_hot_list_len);
        }
    }

    #[inline]
    fn settings_changed(&self) -> bool {
        self.hot_list_len.load(0) != self.applied_hot_list_len
    }
}

/// How often a busy worker publishes its levels, which takes a system call for each queue.
const LEVELS_INTERVAL_NS: u64 = 100_000_000;

/// Places for what a packet is cut into: 64 KiB in segments of 64 bytes of payload. For more, the list
/// grows once.
const PIECES: usize = 1024;

/// Places for neighbours that are waited for; `HoldLimits::queues_max` is the bound.
const AWAITED_MAX: usize = 256;

/// Places for frames that were held: more come rarely, and then there are more places for good.
const RELEASED: usize = 1024;
