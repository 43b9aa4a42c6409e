//! One turn of a worker: receive, forward, transmit, reclaim, quiescent.

use manylane_frame::vocabulary::PortId;
use manylane_frame::{Batch, Pool};
use manylane_net::forward::{self, Verdicts};
use manylane_sync::rcu::Guard;

use super::handoff::limits;
use super::{Work, Worker};
use crate::stats::{PortCount, Stats, WorkerCount};
use manylane_frame::vocabulary::Points;

/// The guard and the time of one turn.
#[derive(Clone, Copy)]
#[doc(hidden)]
pub struct Turn<'g> {
    /// Keeps alive what the tables lead to.
    pub guard: Guard<'g>,
    /// When the turn began.
    pub now_ns: u64,
}

impl<'g> Turn<'g> {
    /// The turn as the rules see it, with the worker's pool.
    #[inline(always)]
    pub(super) fn lend(self, pool: &mut Pool) -> forward::Turn<'g, '_> {
        forward::Turn { guard: self.guard, pool, now_ns: self.now_ns }
    }
}

impl Worker {
    /// One turn. Returns how many frames moved; 0 means that the turn had no work.
    ///
    /// A function of its own wherever it is called from, so that what a bench measures is what runs.
    #[inline(never)]
    pub fn turn(&mut self, now_ns: u64) -> usize {
        let Worker { reader, work } = self;
        work.state.now_ns = now_ns;
        let turn = Turn { guard: reader.guard(), now_ns };
        work.begin_observing(turn.guard);
        let mut moved = work.release_held(turn);
        let budget = work.limits.load(limits::BUDGET) as usize;
        if work.handoff.is_some() {
            // Half of the budget is left to the queues, if the worker has any.
            let share = if work.queues.is_empty() { budget } else { budget.div_ceil(2) };
            moved += work.receive_handed_off(turn, share);
        }
        for received in 0..work.queues.len() {
            // One queue has its turn whatever else was received.
            if moved >= budget && received > 0 {
                break; // The others come first in the next turn.
            }
            let queue = work.state.next_queue;
            work.state.next_queue = if queue + 1 < work.queues.len() { queue + 1 } else { 0 };
            moved += work.receive(turn, queue);
        }
        moved += work.send_orders(turn.guard);
        if work.observers.has_injected() {
            moved += work.send_injected(turn.guard);
        }
        match work.handoff {
            Some(_) => work.transmit_and_announce(turn.guard),
            None => work.transmit(turn.guard),
        }
        moved += work.reclaim();
        work.report();
        work.end_observing(turn.guard);
        work.stats.worker(WorkerCount::Turns, 1);
        reader.quiescent();
        moved
    }
}

impl Work {
    /// Receives a batch from one queue and forwards it.
    #[inline]
    fn receive(&mut self, turn: Turn<'_>, queue: usize) -> usize {
        let weight = self.limits.load(limits::WEIGHT) as usize;
        if self.handoff.is_some() {
            return self.receive_and_hand_off(turn, queue, weight);
        }
        let mut batch = Batch::with_room(weight);
        let received = self.queues[queue].receive(&mut self.pool, &mut batch, turn.now_ns);
        if received > 0 {
            match self.observers.observes_any(Points::RECEIVE.or_trace()) {
                false => self.forward_batch(turn, &mut batch),
                true => self.forward_observed(turn, queue, &mut batch),
            }
        }
        received
    }

    /// Forwards a batch received by one port, and dispatches the verdicts in its order.
    #[inline]
    pub(super) fn forward_batch(&mut self, turn: Turn<'_>, batch: &mut Batch) {
        self.forward_and_dispatch::<false>(turn, batch);
    }

    /// As `forward_batch`; where a trace runs, with a record of each stage.
    #[inline(always)]
    pub(super) fn forward_and_dispatch<const TRACED: bool>(
        &mut self,
        turn: Turn<'_>,
        batch: &mut Batch,
    ) {
        let explained = if TRACED { self.explain_all(turn.guard, batch) } else { Vec::new() };
        let received = batch.len();
        let batch_generation = self.forwarder.tables().next_hops.generation();
        let has_samples = self.begin_samples(batch);
        let mut verdicts = Verdicts::new();
        self.forwarder.forward(&mut turn.lend(&mut self.pool), batch, &mut verdicts);
        if has_samples {
            self.note_samples(batch, &verdicts);
        }
        let (mut packets, mut bytes) = (received as u64, verdicts.bytes());
        if self.forwarder.has_sorted() {
            self.count_sorted(&mut packets, &mut bytes);
        }
        self.stats.count(verdicts.ingress(), PortCount::Received, packets);
        self.stats.count(verdicts.ingress(), PortCount::ReceivedBytes, bytes);
        // A neighbour may have been resolved since the turn began. What is held for it goes first.
        self.release_held(turn);
        if TRACED {
            let is_current = self.is_current(batch_generation);
            self.note_forwarded(&explained, batch, &verdicts, is_current);
            if !is_current {
                return self.reroute_batch(turn, batch, &verdicts);
            }
        }
        if !self.is_current(batch_generation) {
            return self.reroute_batch(turn, batch, &verdicts);
        }
        self.state.batch_generation = batch_generation;
        if self.forwarder.sends_redirects() {
            self.redirect(turn, batch, &verdicts);
        }
        self.dispatch_all(turn, batch, &verdicts);
    }

    /// Counts packets of sub-interfaces there, and not at the port whose device received them.
    #[inline(never)]
    fn count_sorted(&mut self, packets: &mut u64, bytes: &mut u64) {
        for sorted in self.forwarder.sorted() {
            *packets -= sorted.frames;
            *bytes -= sorted.bytes;
            self.stats.count(sorted.port, PortCount::Received, sorted.frames);
            self.stats.count(sorted.port, PortCount::ReceivedBytes, sorted.bytes);
        }
    }

    /// Hands what waits to the devices.
    #[inline]
    #[doc(hidden)]
    pub fn transmit(&mut self, guard: Guard<'_>) {
        for port in 0..self.egresses.len() {
            // What is late on purpose goes when it is due, be there anything new or not.
            if !self.egresses[port].waiting.is_empty() || self.egresses[port].transmitter.held() > 0
            {
                self.transmit_port(guard, port);
            }
        }
        let Work { egresses, id, .. } = self;
        for egress in egresses {
            egress.transmitter.flush();
            if let (true, Some(reclaimer)) = (egress.owes_bell, &egress.reclaimer) {
                reclaimer.ring(*id); // The owner may sleep, and must look for what this device finishes.
                egress.owes_bell = false;
            }
        }
    }

    /// Takes back what the devices have finished with.
    #[inline]
    pub(super) fn reclaim(&mut self) -> usize {
        let Work { queues, stats, pool, .. } = self;
        let mut frames = 0;
        for queue in queues {
            let mut tally = Tally::default();
            let reclaimed = queue.reclaim(pool, |ingress| tally.add(ingress, stats));
            if reclaimed > 0 {
                let packets = tally.finish(stats);
                stats.count(queue.port(), PortCount::Completed, packets);
                frames += reclaimed;
            }
        }
        frames
    }

    /// Passes on what the engine wants the control thread to know.
    #[inline]
    fn report(&mut self) {
        if !self.forwarder.has_events() {
            return;
        }
        let mut lost = 0;
        for event in self.forwarder.urgent_events() {
            lost += u64::from(self.reports.push(event).is_err());
        }
        for event in self.forwarder.events() {
            let has_place = self.reports.room(REPORTS_RESERVED + 1) > REPORTS_RESERVED;
            lost += u64::from(!has_place || self.reports.push(event).is_err());
        }
        self.reports.submit();
        self.control.ring();
        self.stats.worker(WorkerCount::EventsLost, lost);
    }
}

/// Places in the ring to the control thread that only reports which keep a neighbour alive may take.
const REPORTS_RESERVED: usize = 256;

/// Counts completions by port of entry, a run of equal ports at a time.
#[derive(Default)]
pub(super) struct Tally {
    port: PortId,
    frames: u64,
    /// Completions of the runs that are counted.
    counted: u64,
}

impl Tally {
    #[inline(always)]
    pub(super) fn add(&mut self, ingress: PortId, stats: &mut Stats) {
        if ingress != self.port {
            self.finish(stats);
            self.port = ingress;
        }
        self.frames += 1;
    }

    /// Counts the last run too; returns the number of all completions.
    #[inline(always)]
    #[doc(hidden)]
    pub fn finish(&mut self, stats: &mut Stats) -> u64 {
        if self.frames > 0 {
            stats.count(self.port, PortCount::Transmitted, self.frames);
            self.counted += std::mem::take(&mut self.frames);
        }
        self.counted
    }
}
