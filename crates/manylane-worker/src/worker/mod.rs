//! A worker: one thread on one core, turning.
//!
//! Each turn receives from the worker's queues, forwards, transmits, reclaims, and announces that the worker holds no
//! reference any more (`turn.rs` is the loop's body, on one screen). A worker never waits for another thread (I4): other
//! threads publish the tables that a worker reads, its reports use rings that may be full, and its counters are its own.
//!
//! After `idle_spin` without a frame the worker goes offline from the grace periods and sleeps in `poll` on its queues
//! and its doorbell.
//!
//! | shared with    | by                                | direction                            |
//! |----------------|-----------------------------------|--------------------------------------|
//! | control thread | tables, grace periods             | control publishes, the worker reads  |
//! | control thread | ring of [`Report`]s and its bell | worker to control |
//! | control thread | ring of [`Order`]s and the worker's bell | control to worker             |
//! | control thread | rings of queues ([`queue_handover`]) | both                              |
//! | control thread | the phase, one word ([`phase`])   | control to worker                    |
//! | API            | the hot list's length, one word   | API to workers, seen once a turn     |
//! | exporter       | ring of notes and its bell; its counters of samples | worker to exporter  |
//! | API            | rates of samples, a word a port   | API to workers, seen by each batch   |
//! | other workers  | the frame depot, by magazine      | both                                 |
//! | other workers  | rings of frames ([`handoff`]), where flows share a port's queue | both   |
//!
//! | file             | thought                                                                     |
//! |------------------|-----------------------------------------------------------------------------|
//! | `turn`           | the loop's body                                                             |
//! | `dispatch`       | the verdicts on a batch, carried into effect                                |
//! | `transmit`       | egress queues, and drops                                                    |
//! | `prepare`        | segments, fragments and checksums for an egress port                        |
//! | `hold`           | packets that wait for a neighbour                                           |
//! | `reroute`        | another lookup for packets that met a change of routes                      |
//! | `orders`         | packets that the control thread orders                                      |
//! | `handoff`        | packets received by one worker and forwarded by another                     |
//! | `flow_limit`     | which flow fills a backlog                                                  |
//! | `queue_handover` | receive queues that change workers                                          |
//! | `phase`          | a worker that starts, drains and stops                                      |
//! | `samples`        | samples and drops that an exporter is to see                                |
//! | `sleep`          | sleep when no frame arrives, and the levels published before it             |
//! | `observers`      | copies for packet sockets                                                   |
//! | `trace`          | records for a trace                                                         |

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
mod samples;
mod sleep;
mod trace;
mod transmit;
mod turn;

use std::sync::Arc;
use std::time::{Duration, Instant};

use manylane_frame::vocabulary::WorkerId;
use manylane_frame::{Frame, Pool};
use manylane_io::eventfd::EventFd;
use manylane_io::port::{Receiver, Transmitter};
use manylane_net::forward::Forwarder;
use manylane_net::neighbour::{HoldQueues, Report};
use manylane_net::nexthop::dst::Dsts;
use manylane_sync::doorbell::Doorbell;
use manylane_sync::rcu::Reader;
use manylane_sync::ring::{Consumer, Producer};
use manylane_sync::words::Words;

use crate::sampler::Sampler;
use crate::stats::{Stats, WorkerCount};

pub use handoff::HandOff;
#[doc(hidden)]
pub use hold::{AwaitedNeighbour, PriorHold};
pub use observers::Observers;
pub use orders::Order;
use phase::RUN;
pub use phase::STOP;
use queue_handover::QueueHandover;
#[doc(hidden)]
pub use reroute::Pending;
pub use trace::Tracer;
pub use transmit::{Egress, Reclaimer};
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

/// A worker.
pub struct Worker {
    #[doc(hidden)]
    pub reader: Reader,
    #[doc(hidden)]
    pub work: Work,
}

/// A worker's parts, all but its `Reader`: they change while a guard borrows the reader.
///
/// The fields are public for the thread that builds the worker, and for tests that turn workers by hand.
pub struct Work {
    /// The worker's number.
    pub id: WorkerId,
    /// Its list of free frames.
    pub pool: Pool,
    /// Its forwarding engine.
    pub forwarder: Forwarder,
    /// Packets that wait for neighbours.
    pub holds: HoldQueues,
    /// References on the next hops of packets that wait.
    pub dsts: Dsts,
    /// The receive queues it owns.
    pub queues: Vec<Receiver>,
    /// Its egress queue at each port, by port id.
    pub egresses: Vec<Egress>,
    /// Its counters.
    pub stats: Stats,
    /// The ring of its reports to the control thread.
    pub reports: Producer<Report>,
    /// The control thread's bell.
    pub control: Arc<Doorbell<EventFd>>,
    /// The ring of the control thread's orders.
    pub orders: Consumer<Order>,
    /// Its own bell.
    pub bell: Arc<Doorbell<EventFd>>,
    /// One word: a phase of [`phase`].
    pub phase: Words<u32>,
    /// One word: how many frames its list may hold.
    pub hot_list_len: Words<u32>,
    /// Its rings to and from other workers, where a port's packets are steered by flow.
    pub handoff: Option<Box<HandOff>>,
    /// The control thread's requests for receive queues and transmitters.
    pub queue_handover: QueueHandover,
    /// [`limits`](handoff::limits): how many frames it receives in a turn, and hands off.
    pub limits: Words<u32>,
    /// Packet sockets that observe packets.
    pub observers: Observers,
    /// Its recorder for traces.
    pub tracer: Tracer,
    /// Notes samples and drops for an exporter, if one runs.
    pub sampler: Option<Box<Sampler>>,
    /// The daemon's clock.
    pub clock: Clock,
    /// How long it polls without a frame before it sleeps.
    pub idle_spin: Duration,
    /// What it remembers from turn to turn: begins as [`State::default`].
    pub state: State,
}

/// What a worker remembers from turn to turn. Public for tests, and no part of what this crate promises.
#[doc(hidden)]
pub struct State {
    /// The neighbours that held packets wait for.
    pub awaited: Vec<AwaitedNeighbour>,
    /// Frames that were held and are about to be dispatched; see `release`.
    pub released: Vec<Option<Frame>>,
    /// The former hold of the frame that is being dispatched.
    pub prior_hold: Option<PriorHold>,
    /// The pieces that a packet was made into for its egress; empty between packets, and kept for its memory.
    pub pieces: Vec<Frame>,
    /// The order that waits for a frame.
    pub order: Option<Order>,
    /// The phase that the worker applied last.
    pub applied_phase: u32,
    /// The length that its list has.
    pub applied_hot_list_len: u32,
    /// When the last turn began.
    pub now_ns: u64,
    /// The queue to begin with.
    pub next_queue: usize,
    /// How long to sleep before looking for frames that a device has finished.
    pub reclaim_ns: u64,
    /// Generation of the neighbours when the worker last looked at the held packets.
    pub neighbour_generation: u32,
    /// Generation of the routes at which all held packets were looked up; see `reroute_held`.
    pub held_generation: u32,
    /// Generation of the routes at which the packets being dispatched were looked up.
    pub batch_generation: u32,
}

impl Default for State {
    fn default() -> State {
        State {
            awaited: Vec::with_capacity(AWAITED_MAX),
            released: Vec::with_capacity(RELEASED),
            prior_hold: None,
            pieces: Vec::with_capacity(PIECES),
            order: None,
            applied_phase: RUN,
            applied_hot_list_len: 0,
            now_ns: 0,
            next_queue: 0,
            reclaim_ns: sleep::RECLAIM_FIRST_NS,
            neighbour_generation: 0,
            held_generation: 0,
            batch_generation: 0,
        }
    }
}

impl Worker {
    /// A worker; it does nothing before [`Worker::run`] or [`Worker::turn`]. `reader` is its membership of the grace
    /// periods.
    pub fn new(reader: Reader, mut work: Work) -> Worker {
        work.state.applied_hot_list_len = work.hot_list_len.load(0);
        Worker { reader, work }
    }

    /// Turns until the control thread publishes [`STOP`], or [`phase::END`] and the worker has drained. Returns the
    /// worker, for its ports to be closed, or to run again.
    pub fn run(mut self) -> Worker {
        self.start();
        let idle_spin_ns = self.work.idle_spin.as_nanos() as u64;
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
            } else if now_ns - worked_ns >= idle_spin_ns {
                now_ns = self.sleep(now_ns);
            }
        }
        self.stop();
        self
    }

    /// The worker's number.
    pub fn id(&self) -> WorkerId {
        self.work.id
    }

    /// Takes the worker apart: its queues and transmitters, for their ports to close, its pool and its counters.
    /// For the time when no other worker runs any more: the packets that others have handed to it are dropped here.
    pub fn into_parts(mut self) -> (Vec<Receiver>, Vec<Transmitter>, Pool, Stats) {
        self.work.drop_handed_off();
        self.work.drain_tasks();
        let Work { queues, egresses, pool, stats, .. } = self.work;
        (queues, egresses.into_iter().map(|egress| egress.transmitter).collect(), pool, stats)
    }
}

impl Work {
    /// Gives the list of free frames its configured length.
    #[inline]
    #[doc(hidden)]
    pub fn apply_settings(&mut self) {
        if self.settings_changed() {
            self.state.applied_hot_list_len = self.hot_list_len.load(0);
            self.pool.set_hot_list_len(self.state.applied_hot_list_len);
        }
    }

    #[inline]
    fn settings_changed(&self) -> bool {
        self.hot_list_len.load(0) != self.state.applied_hot_list_len
    }
}

/// How often a busy worker publishes its levels, which takes a system call for each queue.
const LEVELS_INTERVAL_NS: u64 = 100_000_000;

/// Places for the pieces of a packet: 64 KiB in segments of 64 bytes of payload. For more pieces, the list
/// grows once.
const PIECES: usize = 1024;

/// Places for awaited neighbours; `HoldLimits::queues_max` is the bound.
const AWAITED_MAX: usize = 256;

/// Places for frames that were held: the list rarely needs more, and then keeps the larger size.
const RELEASED: usize = 1024;
