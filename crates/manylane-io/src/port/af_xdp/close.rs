//! Closing a port: every frame that the kernel has comes back, and is accounted for.

use std::collections::HashSet;
use std::thread;
use std::time::{Duration, Instant};
use std::{io, iter};

use manylane_frame::vocabulary::PortId;
use manylane_frame::{Mapping, Meta, Pool};

use super::super::Fate;
use super::lent::Lent;
use super::open::AfXdp;
use super::receiver::Receiver;
use super::ring::Kind;
use super::socket::{Socket, Transfer};
use super::transmitter::Transmitter;

/// Where the frames of a closed port were; frames, not packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Closed {
    /// To be sent, and completed while closing.
    pub completed: usize,
    /// To be sent, accepted by the kernel, and not completed within the bound.
    pub uncompleted: usize,
    /// To be sent, in packets that the kernel had not accepted whole: these are lost.
    pub unsent: usize,
    /// Posted for receiving.
    pub posted: usize,
    /// Received, and not read by us, or of incomplete packets.
    pub unread: usize,
    /// The packets of `unread`.
    pub lost: usize,
    /// Frames that the device did not release within the bound. These frames stay lent for ever, and the
    /// region has that many fewer. Only zero-copy devices can do that.
    pub held: usize,
}

impl AfXdp {
    /// Closes the port: detaches the program, lets the transmit rings drain, closes the
    /// sockets, and returns every frame to `pool`. Takes [`DRAIN_MAX`] at most, and two seconds more
    /// for a zero-copy device.
    ///
    /// `ended` is called for each packet that was to be sent, as the hook of [`Receiver::reclaim`] would
    /// have been. The calling thread must be in the port's network namespace.
    ///
    /// # Panics
    ///
    /// When a part is not of this port.
    pub fn close(
        self,
        mut receivers: Vec<Receiver>,
        mut transmitters: Vec<Transmitter>,
        pool: &mut Pool,
        mut ended: impl FnMut(Fate, &Meta),
    ) -> Closed {
        let ours = |port: PortId| assert_eq!(port, self.port, "a part of another port");
        receivers.iter().for_each(|receiver| ours(receiver.port));
        transmitters.iter().for_each(|transmitter| ours(transmitter.port));

        let AfXdp { interface, own, transfer, .. } = self;
        let mut closed = Closed::default();
        drop(own); // From here on no new frames arrive, or the sockets get none of them.
        let end = Instant::now() + DRAIN_MAX;
        loop {
            transmitters.iter_mut().for_each(Transmitter::flush);
            closed.completed += reclaim(&mut receivers, pool, &mut ended);
            if !is_sending(&receivers, &transmitters) || Instant::now() >= end {
                break;
            }
            thread::sleep(DRAIN_PAUSE); // poll(2) does not report completions.
        }

        let queues: Vec<u32> = receivers.iter().map(|receiver| receiver.queue.0.into()).collect();
        let Some(region) = receivers.first().map(|receiver| receiver.region.clone()) else {
            return closed;
        };
        let begun: usize = receivers.iter_mut().map(|r| r.joiner.abandon(pool)).sum();
        let unread: usize = receivers.iter_mut().map(|r| r.receive.available() as usize).sum();
        closed.unread = unread + begun;
        // A packet that has begun ends among the entries.
        let is_end = |entry: &libc::xdp_desc| entry.options & libc::XDP_PKT_CONTD == 0;
        let packets = |r: &mut Receiver| iter::from_fn(|| r.receive.pop()).filter(is_end).count();
        closed.lost = receivers.iter_mut().map(packets).sum();
        let unsent = unsent(&mut transmitters);
        let posted: Vec<u64> =
            receivers.iter().flat_map(|receiver| receiver.posted.addresses()).collect();
        let sending = sending(&receivers, &transmitters);
        // Unmaps the rings, then closes the sockets. When the last close(2) returns, the kernel is done
        // with what it copies (`xsk_unbind_dev` waits for a grace period); a device that reads and
        // writes frames itself is stopped later, from a work queue.
        drop((receivers, transmitters));
        let is_free = transfer != Transfer::ZeroCopy
            || queues.iter().all(|&queue| wait_until_free(interface.index, queue));
        if !is_free {
            closed.held = posted.len() + sending.len();
            return closed;
        }
        closed.posted = posted.len().saturating_sub(unread);
        for address in posted {
            // SAFETY: `Region::reclaim`'s debt: the frame's bit shows that it was lent for receiving and
            // not reclaimed; the kernel is done with it, see above.
            pool.give_back(unsafe { region.reclaim(address) });
        }
        for address in sending {
            // SAFETY: as above, lent for transmitting. A device may still *read* the page of a packet
            // that was not completed within the bound; that packet may then leave garbled.
            let frame = unsafe { region.reclaim(address) };
            let is_unsent = unsent.contains(&(address >> region.frame_size().trailing_zeros()));
            closed.unsent += usize::from(is_unsent);
            closed.uncompleted += usize::from(!is_unsent);
            let fate = if is_unsent { Fate::Dropped } else { Fate::Transmitted };
            let meta = region.meta(&frame);
            if !meta.later {
                ended(fate, meta);
            }
            pool.give_back(frame);
        }
        closed
    }
}

fn reclaim(
    receivers: &mut [Receiver],
    pool: &mut Pool,
    ended: &mut impl FnMut(Fate, &Meta),
) -> usize {
    receivers
        .iter_mut()
        .map(|receiver| receiver.reclaim(pool, |meta| ended(Fate::Transmitted, meta)))
        .sum()
}

fn is_sending(receivers: &[Receiver], transmitters: &[Transmitter]) -> bool {
    !sending(receivers, transmitters).is_empty()
}

/// The addresses of all frames lent for transmitting and not reclaimed.
fn sending(receivers: &[Receiver], transmitters: &[Transmitter]) -> Vec<u64> {
    let Some(region) = receivers.first().map(|receiver| &receiver.region) else {
        return Vec::new();
    };
    let mut lent = Lent::new(region);
    receivers.iter().for_each(|receiver| lent.merge(&receiver.completed));
    transmitters.iter().for_each(|transmitter| lent.merge(&transmitter.sent));
    lent.addresses()
}

/// The indices of the frames whose packets the kernel has not sent: on the transmit rings, except for the
/// parts of a packet that it has already accepted.
fn unsent(transmitters: &mut [Transmitter]) -> HashSet<u64> {
    transmitters
        .iter_mut()
        .flat_map(|transmitter| {
            let shift = transmitter.region.frame_size().trailing_zeros();
            transmitter.unsent().into_iter().map(move |entry| entry.addr >> shift)
        })
        .collect()
}

/// Waits until the queue's last socket is fully released: binds another, with memory of its own, for
/// which the kernel reports "busy" before. False when it stayed busy.
fn wait_until_free(index: u32, queue: u32) -> bool {
    let Ok(memory) = Mapping::new(PROBE_BYTES) else { return false };
    let probe = || -> io::Result<()> {
        let socket = Socket::open()?;
        for kind in [Kind::Receive, Kind::Fill, Kind::Completion] {
            socket.make_ring(kind, 1)?;
        }
        socket.register(memory.base(), PROBE_BYTES, PROBE_BYTES as u32)?;
        socket.bind(index, queue, Transfer::Copy)
    };
    match probe() {
        Ok(()) => true,
        // The device is gone, and with it any writer.
        Err(error) => error.raw_os_error() == Some(libc::ENODEV),
    }
}

/// One frame's worth.
const PROBE_BYTES: usize = 4096;
/// How long frames in flight may take to leave when a port closes.
pub const DRAIN_MAX: Duration = Duration::from_millis(100);
const DRAIN_PAUSE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::Interface;
    use crate::namespace::Namespace;

    /// Only zero-copy devices make closing wait for this; any device can show it. Needs root.
    #[test]
    fn a_queue_is_free_when_its_socket_is_gone_and_busy_before() {
        if let Err(error) = Namespace::new_for_this_thread() {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "SKIPPED in CI: {error}");
            eprintln!("SKIPPED {error}");
            return;
        }
        let index = Interface::read("lo").expect("every namespace has one").index;
        let memory = Mapping::new(PROBE_BYTES).expect("a page can be mapped");
        let socket = Socket::open().expect("root may");
        for kind in [Kind::Receive, Kind::Fill, Kind::Completion] {
            socket.make_ring(kind, 1).expect("1 is a power of two");
        }
        socket.register(memory.base(), PROBE_BYTES, PROBE_BYTES as u32).expect("one frame");
        socket.bind(index, 0, Transfer::Copy).expect("nobody else is here");
        let begin = Instant::now();
        assert!(!wait_until_free(index, 0), "it is ours");
        assert!((2..4).contains(&begin.elapsed().as_secs()), "two seconds are the bound");
        drop(socket);
        assert!(wait_until_free(index, 0));
    }
}
