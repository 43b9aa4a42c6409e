//! A worker: what it does in a turn.
//!
//! | part     | what                                                                                              |
//! |----------|---------------------------------------------------------------------------------------------------|
//! | tasks    | a port is taken, or given back when it has been emptied                                            |
//! | heartbeat     | it turns, and may be handed frames: four times as often as it has to say so                        |
//! | queues   | of each, up to a batch: decided, rewritten, and put on the rings of their egress ports                     |
//! | egress ports    | the kernel is made to send; what was sent comes back                                               |
//! | captures | while one is open: packets are copied as they leave, or as they are dropped (`copies.rs`)          |
//! | sleep    | when nothing came                                                                                  |
//!
//! While the gate judges, no packet received by a port may be forwarded ([`Transit::is_open`]): what lies in its
//! rings stays there for [`PATIENCE`], and is decided upon then, whatever it has come to.

use std::sync::Arc;
use std::sync::mpsc::{Receiver as Tasks, Sender, TryRecvError};
use std::time::Duration;

use crate::programs::{Heartbeat, Ticks};
use manylane_frame::{BATCH_MAX, Batch, Pool, Region};
use manylane_io::eventfd::EventFd;
use manylane_io::port::af_xdp::{Receiver, Transmitter};
use manylane_net::transit::{Arrival, Egress, Transit};
use manylane_sync::doorbell::Wake;
use manylane_sync::rcu::Reader;

use super::WorkerDrop;
use super::copies::{Copies, Reason};
use super::counts::{Place, Rows};
use super::drops::DropNotes;
use crate::accelerator::lease::now;

/// What a worker is to do.
pub(super) enum Task {
    /// Receive and send by these from now on.
    AddPort(Box<Parts>),
    /// Forward the packets in its rings, and return the worker's parts of a port.
    RemovePort {
        port: u16,
        reply: Sender<Option<Box<Parts>>>,
    },
    End,
}

/// What one worker has of a port.
pub(super) struct Parts {
    pub port: u16,
    /// The interface's number.
    pub index: u32,
    /// Of its own queues.
    pub receivers: Vec<Receiver>,
    pub transmitter: Transmitter,
    /// The worker that reclaims frames sent here, if another one.
    pub owner: Option<usize>,
}

/// One thread.
pub(super) struct Worker {
    pub(super) reader: Reader,
    pub(super) turn: Turn,
    tasks: Tasks<Task>,
}

/// All but what is read under its guard.
pub(super) struct Turn {
    transit: Transit,
    pub(super) ports: Vec<Port>,
    /// Which of these a port's number is; one more, and 0 for none.
    places: [u8; PORTS],
    pool: Pool,
    region: Region,
    batch: Batch,
    rows: Rows,
    /// With a collector of samples.
    drops: Option<DropNotes>,
    /// For captures.
    pub(super) copies: Copies,
    pub(super) doorbell: Arc<EventFd>,
    /// Of all workers.
    doorbells: Vec<Arc<EventFd>>,
    pub(super) heartbeat: HeartbeatState,
}

/// How the worker says that it turns.
pub(super) struct HeartbeatState {
    heartbeat: Heartbeat,
    ticks: Ticks,
    limit_ns: u64,
    /// When it is to be said again.
    pub(super) next_ns: u64,
}

/// A port, as a worker has it.
pub(super) struct Port {
    pub(super) parts: Parts,
    /// What is about to leave here.
    out: Batch,
    /// Frames sent by a queue of another worker since that was rung.
    unsignalled: usize,
    /// What sockets had no place for before these.
    full_before: u64,
    /// Since when packets received here must not be forwarded.
    closed_ns: Option<u64>,
}

impl Worker {
    pub fn new(
        (heartbeat, ticks, limit): (Heartbeat, Ticks, Duration),
        (mut reader, transit): (Reader, Transit),
        pool: Pool,
        (rows, drops, copies): (Rows, Option<DropNotes>, Copies),
        (tasks, doorbell, doorbells): (Tasks<Task>, Arc<EventFd>, Vec<Arc<EventFd>>),
    ) -> Worker {
        // The thread goes online when it runs.
        reader.offline();
        let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let turn = Turn {
            transit,
            ports: Vec::new(),
            places: [0; PORTS],
            region: pool.region().clone(),
            pool,
            batch: Batch::new(),
            rows,
            drops,
            copies,
            doorbell,
            doorbells,
            heartbeat: HeartbeatState { heartbeat, ticks, limit_ns, next_ns: 0 },
        };
        Worker { reader, turn, tasks }
    }

    /// Turns until its end is requested.
    pub fn run(&mut self) {
        self.reader.online();
        while self.apply_tasks() {
            self.reader.quiescent();
            let now_ns = now();
            self.turn.stamp_heartbeat(now_ns);
            if self.forward_batches(now_ns, Some(PATIENCE)) == 0 {
                self.sleep(now_ns);
            }
        }
    }

    /// Applies all tasks before it looks at packets. False at the end.
    fn apply_tasks(&mut self) -> bool {
        loop {
            match self.tasks.try_recv() {
                Ok(Task::AddPort(parts)) => self.turn.add_port(*parts),
                Ok(Task::RemovePort { port, reply }) => {
                    let parts = self.remove_port(port);
                    // If the socket manager has gone, everything goes with it.
                    let _ = reply.send(parts.map(Box::new));
                }
                Ok(Task::End) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    /// Receives up to a batch from each queue, and sends. How many came.
    fn forward_batches(&mut self, now_ns: u64, patience: Option<Duration>) -> usize {
        let Worker { reader, turn, .. } = self;
        turn.copies.begin_turn();
        let mut received = 0;
        for place in 0..turn.ports.len() {
            if patience.is_some_and(|patience| turn.is_held_back(place, now_ns, patience)) {
                continue;
            }
            for queue in 0..turn.ports[place].parts.receivers.len() {
                received += turn.receive(reader, place, queue, now_ns);
            }
        }
        turn.transmit();
        // Before the worker sleeps, and before it waits for packets that are held back.
        turn.copies.end_turn(now_ns, received == 0);
        received
    }

    /// Forwards the packets received so far on any port, and returns a port's parts.
    fn remove_port(&mut self, port: u16) -> Option<Parts> {
        self.turn.place(port)?;
        // Of each queue a ring's worth: what comes later was decided upon when the port was in no table any more.
        for _ in 0..=RING_MAX / BATCH_MAX {
            self.reader.quiescent();
            if self.forward_batches(now(), None) == 0 {
                break;
            }
        }
        self.turn.publish();
        let place = self.turn.place(port)?;
        let parts = self.turn.ports.swap_remove(place).parts;
        self.turn.find_places();
        Some(parts)
    }
}

impl Port {
    /// Whether packets received by the port wait.
    pub fn is_closed(&self) -> bool {
        self.closed_ns.is_some()
    }
}

impl Turn {
    fn add_port(&mut self, parts: Parts) {
        let full_before = self.rows.load(parts.port, Place::Full);
        let (out, closed_ns) = (Batch::new(), None);
        self.ports.push(Port { parts, out, unsignalled: 0, full_before, closed_ns });
        self.find_places();
        // The set of workers that reclaim its frames has changed.
        self.heartbeat.next_ns = 0;
    }

    fn find_places(&mut self) {
        self.places = [0; PORTS];
        for (port, place) in self.ports.iter().zip(1..) {
            self.places[usize::from(port.parts.port) % PORTS] = place;
        }
    }

    fn place(&self, port: u16) -> Option<usize> {
        place(&self.places, port)
    }

    /// Whether packets received by a port have to wait.
    fn is_held_back(&mut self, place: usize, now_ns: u64, patience: Duration) -> bool {
        let port = &mut self.ports[place];
        if self.transit.is_open(port.parts.index) {
            port.closed_ns = None;
            return false;
        }
        let since = *port.closed_ns.get_or_insert(now_ns);
        u128::from(now_ns - since) < patience.as_nanos()
    }

    /// Receives up to a batch from a queue, and puts what is to be forwarded on the rings of its egress ports.
    fn receive(&mut self, reader: &Reader, place: usize, queue: usize, now_ns: u64) -> usize {
        let Turn { transit, ports, places, pool, region, batch, rows, drops, copies, .. } = self;
        let Parts { port: ingress, index, receivers, .. } = &mut ports[place].parts;
        let (ingress, ifindex) = (*ingress, *index);
        let received = receivers[queue].receive(pool, batch);
        if received == 0 {
            return 0;
        }
        let arrival = Arrival { ifindex, now_ns, tag: None, gso_size: 0 };
        let guard = reader.guard();
        let mut changed = 0;
        for mut frame in batch.drain() {
            let bytes = region.view().bytes_mut(&mut frame);
            let egress = transit.forward(guard, bytes, &arrival);
            let verdict = egress.as_ref().err().copied();
            match egress.ok().and_then(|egress| egress_port(places, ports, egress)) {
                Some(egress) => egress.out.push(frame).expect("as many as came in fit in"),
                None => {
                    changed += 1;
                    if let (Some(drops), Some(_)) = (&mut *drops, verdict) {
                        let bytes = region.view().bytes(&frame);
                        drops.note(WorkerDrop::new(ingress, verdict, bytes), now_ns);
                    }
                    if copies.are_wanted() {
                        copies.dropped(ingress, Reason::Changed, region.view().bytes(&frame));
                    }
                    pool.give_back(frame);
                }
            }
        }
        rows.add(ingress, Place::Changed, changed);
        self.queue_for_transmit(ingress, now_ns);
        received
    }

    /// Puts what is about to leave on the rings.
    fn queue_for_transmit(&mut self, ingress: u16, now_ns: u64) {
        let Turn { ports, pool, region, rows, drops, copies, .. } = self;
        for Port { parts, out, unsignalled, .. } in
            ports.iter_mut().filter(|port| !port.out.is_empty())
        {
            let is_shown = copies.are_wanted();
            if is_shown {
                copies.keep(region, out.as_slice());
            }
            let mut sent = parts.transmitter.transmit(pool, out, |_| {});
            if !out.is_empty() {
                // The kernel takes some, if the device does; and once more.
                parts.transmitter.flush();
                let more = parts.transmitter.transmit(pool, out, |_| {});
                sent.frames += more.frames;
                sent.bytes += more.bytes;
                rows.add(ingress, Place::Unsent, out.len() as u64);
                if let Some(drops) = &mut *drops {
                    for frame in out.iter() {
                        let bytes = region.view().bytes(frame);
                        drops.note(WorkerDrop::new(ingress, None, bytes), now_ns);
                    }
                }
                pool.give_back_all(out);
            }
            if is_shown {
                copies.left(sent.frames, ingress, parts.port);
            }
            *unsignalled += sent.frames;
            let frames = sent.frames as u64;
            rows.add(ingress, Place::PacketsIn, frames);
            rows.add(ingress, Place::BytesIn, sent.bytes);
            rows.add(parts.port, Place::PacketsOut, frames);
            rows.add(parts.port, Place::BytesOut, sent.bytes);
        }
    }

    /// Makes the kernel send, and takes back what was sent.
    fn transmit(&mut self) {
        for Port { parts, unsignalled, .. } in &mut self.ports {
            parts.transmitter.flush();
            for receiver in &mut parts.receivers {
                receiver.reclaim(&mut self.pool, |_| {});
            }
            if let Some(owner) = parts.owner
                && (*unsignalled >= BATCH_MAX || parts.transmitter.in_flight() > 0)
            {
                self.doorbells[owner].wake();
                *unsignalled = 0;
            }
        }
    }

    /// Stamps the heartbeat when due; accepts frames only while the workers that reclaim its frames are alive.
    fn stamp_heartbeat(&mut self, now_ns: u64) {
        if now_ns < self.heartbeat.next_ns {
            return;
        }
        let HeartbeatState { heartbeat, ticks, limit_ns, next_ns } = &mut self.heartbeat;
        // Without the clock nothing is said, and it is tried again.
        let Ok(tick) = ticks.read() else { return };
        let until = tick + (*limit_ns / ticks.length_ns()).max(1);
        heartbeat.set_alive(until);
        let mut owners = self.ports.iter().filter_map(|port| port.parts.owner);
        if owners.all(|owner| heartbeat.is_alive(owner, tick)) {
            heartbeat.set_accepting(until);
        }
        *next_ns = now_ns + *limit_ns / 4;
        self.publish();
    }

    /// Leaves what sockets had no place for to be seen.
    fn publish(&mut self) {
        for Port { parts, full_before, .. } in &self.ports {
            let refused = parts.receivers.iter().map(|receiver| receiver.refused().unwrap_or(0));
            self.rows.set(parts.port, Place::Full, full_before + refused.sum::<u64>());
        }
    }
}

fn place(places: &[u8; PORTS], port: u16) -> Option<usize> {
    usize::from(places[usize::from(port) % PORTS]).checked_sub(1)
}

/// Where a frame leaves, if this worker can send it there.
fn egress_port<'p>(
    places: &[u8; PORTS],
    ports: &'p mut [Port],
    egress: Egress,
) -> Option<&'p mut Port> {
    let port = &mut ports[place(places, egress.port)?];
    (port.parts.index == egress.ifindex).then_some(port)
}

/// How long received packets wait while a port is closed: a little longer than the gate takes to judge.
const PATIENCE: Duration = Duration::from_millis(20);
const PORTS: usize = 256;
/// Of the rings that the socket manager makes.
const RING_MAX: usize = 1024;
