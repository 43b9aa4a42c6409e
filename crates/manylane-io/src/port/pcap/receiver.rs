//! A position in a capture: packets out of memory.

use std::num::NonZeroU32;
use std::sync::Arc;

use manylane_frame::vocabulary::{Checksum, PortId, QueueId};
use manylane_frame::{Batch, HEADROOM, Pool};

use super::super::write::write;
use super::super::{Losses, Wait};
use super::capture::{Capture, Skipped};

/// How a capture is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayConfig {
    /// When packets arrive.
    pub timing: Timing,
    /// How often the whole file is replayed; `None` for ever.
    pub passes: Option<NonZeroU32>,
    /// What the port reports about transport checksums. A capture made at the sender has some incomplete
    /// ones, so the default is [`Checksum::Unknown`].
    pub checksum: Checksum,
}

/// When the packets of a capture arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timing {
    /// With the intervals of their capture. A late worker catches up. The first packet of a further
    /// pass arrives with the last of the pass before.
    #[default]
    Original,
    /// As fast as the worker receives them.
    Fast,
}

impl Default for ReplayConfig {
    fn default() -> ReplayConfig {
        ReplayConfig {
            timing: Timing::Original,
            passes: Some(NonZeroU32::MIN),
            checksum: Checksum::Unknown,
        }
    }
}

/// A receive queue that a capture feeds.
pub struct Receiver {
    capture: Arc<Capture>,
    config: ReplayConfig,
    port: PortId,
    queue: QueueId,
    /// Completed passes.
    passed: u64,
    /// Number of the next packet.
    next: usize,
    /// When the current pass began.
    began_ns: Option<u64>,
    /// The time of the last call.
    now_ns: u64,
}

impl Receiver {
    /// A queue of `port` that `capture` feeds; the clock of its packets starts with the first
    /// [`receive`](Receiver::receive).
    pub fn new(
        capture: Arc<Capture>,
        port: PortId,
        queue: QueueId,
        config: ReplayConfig,
    ) -> Receiver {
        let (passed, next, began_ns, now_ns) = (0, 0, None, 0);
        Receiver { capture, config, port, queue, passed, next, began_ns, now_ns }
    }

    /// Receives the due packets, as many as `batch` has room and `pool` has frames for; returns how
    /// many. The others stay due: no packet is lost.
    #[inline]
    pub fn receive(&mut self, pool: &mut Pool, batch: &mut Batch, now_ns: u64) -> usize {
        let before = batch.len();
        self.now_ns = now_ns;
        self.began_ns.get_or_insert(now_ns);
        while !batch.is_full() && !self.is_done() && self.due_ns() <= now_ns {
            let mut bytes = self.capture.bytes(self.next);
            let packet = write(pool, HEADROOM, bytes.len(), |_, to| {
                let (now, later) = bytes.split_at(to.len());
                to.copy_from_slice(now);
                bytes = later;
            });
            let Some(mut frame) = packet else { break };
            let view = pool.region().view();
            view.set_ingress(&mut frame, self.port, self.queue, self.config.checksum);
            batch.push(frame).expect("there is room");
            self.advance();
        }
        batch.len() - before
    }

    /// The event to wait for.
    pub fn wait(&self) -> Wait<'_> {
        match self.is_done() {
            true => Wait::Done,
            false => Wait::After(self.due_ns().saturating_sub(self.now_ns)),
        }
    }

    /// The skipped packets; counted as each pass begins.
    pub fn losses(&self) -> Losses {
        let passes = self.passed + u64::from(self.next > 0);
        let Skipped { truncated, too_large, not_ethernet } = self.capture.skipped();
        Losses {
            too_large: passes * too_large,
            invalid: passes * (truncated + not_ethernet),
            ..Losses::default()
        }
    }

    /// The port.
    pub fn port(&self) -> PortId {
        self.port
    }

    /// The queue.
    pub fn queue(&self) -> QueueId {
        self.queue
    }

    #[inline]
    fn is_done(&self) -> bool {
        self.config.passes.is_some_and(|passes| self.passed >= passes.get().into())
    }

    /// When the next packet arrives.
    #[inline]
    fn due_ns(&self) -> u64 {
        match (self.config.timing, self.began_ns) {
            (Timing::Original, Some(began_ns)) => {
                began_ns.saturating_add(self.capture.since_ns(self.next))
            }
            _ => 0,
        }
    }

    #[inline]
    fn advance(&mut self) {
        self.next += 1;
        if self.next == self.capture.packets() {
            self.next = 0;
            self.passed += 1;
            let duration_ns = self.capture.duration_ns();
            self.began_ns = self.began_ns.map(|began_ns| began_ns.saturating_add(duration_ns));
        }
    }
}
