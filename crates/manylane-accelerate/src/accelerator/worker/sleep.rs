//! A worker without packets sleeps on its queues and its doorbell, and wakes to stamp its heartbeat.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use manylane_io::poll::{POLL_MAX, poll};

use super::turn::Worker;

impl Worker {
    /// Sleeps until a queue, the doorbell or the heartbeat needs it; offline meanwhile, so that no grace period waits for it.
    pub(super) fn sleep(&mut self, now_ns: u64) {
        let Worker { reader, turn, .. } = self;
        let mut timeout = Duration::from_nanos(turn.heartbeat.next_ns.saturating_sub(now_ns));
        // The doorbell's in all places, then the queues' in theirs: nothing is allocated on the way to sleep.
        let mut wanted = 1;
        let mut looks_again = false;
        {
            for port in &mut turn.ports {
                // A device sends no notification when it takes a frame.
                looks_again |= port.parts.transmitter.in_flight() > 0;
            }
        }
        let mut fds: [BorrowedFd<'_>; POLL_MAX] = [turn.doorbell.as_fd(); POLL_MAX];
        for port in &turn.ports {
            // What waits would end the sleep at once.
            if port.is_closed() {
                looks_again = true;
                continue;
            }
            for receiver in &port.parts.receivers {
                match fds.get_mut(wanted) {
                    Some(place) => (*place, wanted) = (receiver.as_fd(), wanted + 1),
                    // More than one call can wait for.
                    None => looks_again = true,
                }
            }
        }
        if looks_again {
            timeout = timeout.min(LOOK_AGAIN);
        }
        reader.offline();
        // The one failure is ENOMEM: then it turns instead of sleeping.
        let is_rung = poll(&fds[..wanted], Some(timeout)).is_ok_and(|ready| ready.is_ready(0));
        reader.online();
        if is_rung {
            turn.doorbell.drain();
        }
    }
}

/// How soon to look again for what nothing tells of.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
