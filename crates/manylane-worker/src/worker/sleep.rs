//! Sleep: after a while without a frame.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use manylane_frame::vocabulary::PortId;
use manylane_io::poll::{POLL_MAX, poll};
use manylane_io::port::{Losses, Receiver, Wait};
use manylane_net::neighbour::HOLD_MAX_NS;

use super::queue_handover::QueueHandover;
use super::{HandOff, State, Work, Worker, phase};
use crate::stats::{PortCount, WorkerCount};

/// How soon to look again for frames that a device has finished with: nothing tells us. Twice as long
/// each time, up to about a second: an idle worker costs next to nothing, and no frame stays away.
const RECLAIM_NS: std::ops::RangeInclusive<u64> = 1_000_000..=1_024_000_000;

/// How soon to look again for frames whose queue cannot end the sleep.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// What [`RECLAIM_NS`] begins with.
pub(super) const RECLAIM_FIRST_NS: u64 = *RECLAIM_NS.start();

impl Worker {
    /// Sleeps until work arrives; returns the time.
    ///
    /// Offline meanwhile, so that no grace period waits for a sleeper.
    #[doc(hidden)]
    pub fn sleep(&mut self, now_ns: u64) -> u64 {
        let Worker { reader, work } = self;
        // A worker that naps because another has no room is up again at once, and publishes when that is due.
        if !work.handoff.as_ref().is_some_and(|handoff| handoff.is_blocked()) {
            work.publish_levels();
        }
        work.observers.flush(reader.guard());
        reader.offline();
        work.wait();
        reader.online();
        let end_ns = work.clock.now_ns();
        work.stats.worker(WorkerCount::IdleNs, end_ns - now_ns);
        end_ns
    }
}

/// Whether packets in a queue are something to wake for.
fn wakes_for(
    handoff: &Option<Box<HandOff>>,
    queue_handover: &QueueHandover,
    queue: &Receiver,
) -> bool {
    let is_blocked = handoff.as_ref().is_some_and(|handoff| handoff.is_blocked());
    !is_blocked && !queue_handover.drains(queue.port(), queue.queue())
}

impl Work {
    /// Polls the queues and the bell, unless work has arrived after all.
    fn wait(&mut self) {
        let timeout = self.timeout();
        let Work {
            state:
                State {
                    order,
                    applied_phase,
                    reclaim_ns,
                    awaited,
                    neighbour_generation,
                    held_generation,
                    applied_hot_list_len,
                    ..
                },
            queues,
            orders,
            bell,
            phase,
            forwarder,
            stats,
            hot_list_len,
            handoff,
            queue_handover,
            observers,
            ..
        } = self;
        // The bell's in all places, then the queues' in theirs: nothing is allocated on the way to sleep.
        let mut fds: [BorrowedFd<'_>; POLL_MAX] = [bell.waker().as_fd(); POLL_MAX];
        let mut wanted = 1;
        // A queue that is not received from has nothing to wake for.
        for queue in queues.iter().filter(|queue| wakes_for(handoff, queue_handover, queue)) {
            if let Wait::Readable(fd) = queue.wait() {
                if let Some(place) = fds.get_mut(wanted) {
                    *place = fd;
                }
                wanted += 1;
            }
        }
        // More queues than one call can wait for: look at the others by the clock.
        let timeout = match timeout {
            _ if wanted <= POLL_MAX => timeout,
            Some(timeout) => Some(timeout.min(LOOK_AGAIN)),
            None => Some(LOOK_AGAIN),
        };
        let fds = &fds[..wanted.min(POLL_MAX)];
        let slept = bell.sleep(
            || {
                let neighbours = forwarder.tables().adjacencies.generation();
                let routes = forwarder.tables().next_hops.generation();
                phase.load(0) != *applied_phase
                    || hot_list_len.load(0) != *applied_hot_list_len
                    || (order.is_none() && !orders.is_empty())
                    || queues.iter().any(|queue| {
                        queue.has_frames() && wakes_for(handoff, queue_handover, queue)
                    })
                    || handoff.as_mut().is_some_and(|handoff| {
                        handoff.has_work()
                            || (!awaited.is_empty() && handoff.release_requests.any())
                    })
                    || queue_handover.has_tasks()
                    || observers.has_injected()
                    || (!awaited.is_empty()
                        && (neighbours != *neighbour_generation || routes != *held_generation))
            },
            // The one failure left is ENOMEM: then the worker turns instead of sleeping.
            || poll(fds, timeout).is_ok_and(|ready| ready.any()),
        );
        bell.waker().drain();
        stats.worker(WorkerCount::Sleeps, u64::from(slept.is_some()));
        stats.worker(WorkerCount::Wakeups, u64::from(slept == Some(true)));
        *reclaim_ns = match slept {
            Some(false) => (*reclaim_ns * 2).min(*RECLAIM_NS.end()),
            _ => *RECLAIM_NS.start(),
        };
    }

    /// The longest sleep that misses nothing; `None` when a descriptor or the bell will end it.
    fn timeout(&self) -> Option<Duration> {
        let mut completes = false;
        // Completions are announced when devices have taken the frames that they have not taken by now.
        let mut shortest = self.handoff.as_ref().and_then(|handoff| handoff.wait_ns());
        for queue in &self.queues {
            match queue.wait() {
                Wait::After(wait_ns) if wakes_for(&self.handoff, &self.queue_handover, queue) => {
                    shortest = Some(shortest.map_or(wait_ns, |other| other.min(wait_ns)));
                }
                Wait::Readable(_) => completes = true,
                Wait::After(_) | Wait::Doorbell | Wait::Done => {}
            }
        }
        let reclaim = completes.then_some(self.state.reclaim_ns);
        // What is held for too long must end even without an event.
        let held = (!self.state.awaited.is_empty()).then_some(HOLD_MAX_NS / 8);
        // A moment too long: it counts from the turn's transmit. What waits for its time has more of it.
        let late = self.egresses.iter().filter_map(|egress| egress.transmitter.due_ns()).min();
        // Another worker may have the frames that an order waits for.
        let order = self.state.order.map(|_| LOOK_AGAIN.as_nanos() as u64);
        // Nothing tells when devices have taken what this worker's end waits for, or a queue's way elsewhere.
        let gives_up = self.state.applied_phase == phase::END || self.queue_handover.has_pending();
        let end = gives_up.then_some(LOOK_AGAIN.as_nanos() as u64);
        let all = shortest.into_iter().chain(reclaim).chain(held).chain(late).chain(order);
        let all = all.chain(end);
        all.min().map(Duration::from_nanos)
    }

    /// Publishes levels, when time allows: before sleeping.
    pub(super) fn publish_levels(&mut self) {
        let Work { queues, egresses, stats, pool, forwarder, holds, handoff, .. } = self;
        if let Some(handoff) = handoff {
            handoff.publish();
        }
        let mut in_hand = 0;
        for (port, egress) in (0..).zip(egresses) {
            let waiting = egress.waiting.iter().map(|frame| pool.region().meta(frame).frames());
            in_hand += waiting.sum::<usize>();
            // What was lent is whose it is, and what was counted stays.
            stats.level(PortId(port), PortCount::Lent, egress.transmitter.lent());
            stats.level(PortId(port), PortCount::Late, egress.transmitter.held() as u64);
            if !egress.is_closed {
                stats.level(PortId(port), PortCount::LostTransmit, egress.transmitter.dropped());
            }
            let (mut faults, mut copies) =
                (egress.transmitter.faults(), egress.transmitter.copies());
            for queue in queues.iter().filter(|queue| queue.port() == PortId(port)) {
                faults = faults + queue.faults();
                copies = copies + queue.copies();
            }
            if !egress.is_closed {
                stats.wrapped(PortId(port), faults, copies);
            }
            // Also without a queue: the worker may have given it up.
            let of_port = || queues.iter().filter(|queue| queue.port() == PortId(port));
            let mut losses = Losses::default();
            of_port().for_each(|queue| losses += queue.losses());
            let posted: usize = of_port().map(Receiver::posted).sum();
            let returned: u64 = of_port().map(Receiver::returned).sum();
            stats.level(PortId(port), PortCount::Returned, returned);
            stats.level(PortId(port), PortCount::Posted, posted as u64);
            stats.level(PortId(port), PortCount::LostRingFull, losses.ring_full);
            stats.level(PortId(port), PortCount::LostNoBuffer, losses.no_buffer);
            stats.level(PortId(port), PortCount::LostInvalid, losses.invalid + losses.too_large);
        }
        let counts = pool.counts();
        stats.worker_level(WorkerCount::PoolLevel, pool.level() as u64);
        stats.worker_level(WorkerCount::HotListLen, pool.hot_list_len().into());
        stats.worker_level(WorkerCount::PoolTaken, counts.taken);
        stats.worker_level(WorkerCount::PoolHits, counts.hits());
        stats.worker_level(WorkerCount::PoolRefills, counts.refills);
        stats.worker_level(WorkerCount::PoolSpills, counts.spills);
        stats.worker_level(WorkerCount::PoolStarved, counts.starved);
        stats.worker_level(WorkerCount::FramesHeld, holds.frames() as u64);
        stats.worker_level(WorkerCount::FramesInHand, in_hand as u64);
        stats.worker_level(WorkerCount::ErrorsSuppressed, forwarder.errors_suppressed());
        let unknown = forwarder.inner_checksum_unknown();
        stats.worker_level(WorkerCount::InnerChecksumUnknown, unknown);
    }
}
