//! Packets of all workers in order of time.
//!
//! Each worker's packets are in order; between workers, a packet may be younger than one that another has not
//! passed on yet. So while some worker has nothing to show, a packet is held back until what was seen before it
//! must have been passed on: `retire_ns` and a [`TURN`], at most. What a worker passes on later still, because it
//! was kept from running for longer, is given late and counted ([`Capture::late`]).

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use manylane_io::packet_ring::{Block, Packet, Packets, Position};
use manylane_io::poll::poll;

use super::{Connection, Options, RemoteError, RemoteSocket};
use manylane_io::packet_ring::Statistics;

/// A packet socket whose packets are in order of time, whichever worker had them.
///
/// ```no_run
/// # use std::path::Path;
/// # use manylane_client::{Capture, Options, RemoteError};
/// # fn main() -> Result<(), RemoteError> {
/// let mut capture = Capture::open(Path::new("/run/manylane/manylane.sock.capture"), &Options::default())?;
/// while capture.wait(None)? {
///     while let Some(mut round) = capture.receive() {
///         for packet in round.packets() {
///             println!("{} ns: {:02x?}", packet.record.time_ns, packet.bytes);
///         }
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct Capture {
    socket: RemoteSocket,
    /// Of each lane's oldest block, what was given of it.
    given: Vec<Option<Position>>,
    order: Order,
}

/// What is known of order.
#[derive(Debug)]
struct Order {
    hold_back: Duration,
    /// Everything up to here, in nanoseconds since 1970, has been passed on.
    complete_until_ns: u64,
    /// The youngest packet that was there when one was held back, and when that was.
    held: Option<(u64, Instant)>,
    last_ns: u64,
    late: u64,
}

impl Capture {
    /// Opens a socket; see [`RemoteSocket::open`].
    pub fn open(path: &Path, options: &Options) -> Result<Capture, RemoteError> {
        let socket = RemoteSocket::open(path, options)?;
        let given = vec![None; socket.readers.len()];
        let hold_back = Duration::from_nanos(options.ring.retire_ns).saturating_add(TURN);
        let order = Order { hold_back, complete_until_ns: 0, held: None, last_ns: 0, late: 0 };
        Ok(Capture { socket, given, order })
    }

    /// What can be given now, of the binding in force.
    pub fn receive(&mut self) -> Option<Round<'_>> {
        self.order.expire_hold(Instant::now());
        let current = self.socket.generation();
        let Capture { socket: RemoteSocket { readers, connection, .. }, given, order } = self;
        let (mut heads, mut is_whole) = (Vec::with_capacity(given.len()), true);
        for (reader, given) in readers.iter_mut().zip(given) {
            while let Some((generation, _)) = reader.peek() {
                if generation == current {
                    break;
                }
                drop(reader.borrow());
                *given = None;
                connection.stale += 1;
            }
            let block = reader.borrow();
            is_whole &= block.is_some();
            heads.push(Head { block, given });
        }
        let round = Round { heads, is_whole, order };
        let has_some = round.heads.iter().any(|head| head.block.is_some());
        let is_held = !is_whole && round.order.held.is_some();
        (has_some && !is_held).then_some(round)
    }

    /// Waits until [`receive`](Self::receive) may have something, for `timeout` at most; whether it may. An error when
    /// nothing waits and nothing will arrive.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<bool, RemoteError> {
        let Some((_, since)) = self.order.held else { return self.socket.wait(timeout) };
        let left = self.order.hold_back.saturating_sub(since.elapsed());
        if timeout.is_some_and(|timeout| timeout < left) {
            // The one failure is ENOMEM: then it looks again at once.
            let _ = poll(&[], timeout);
            return Ok(false);
        }
        let _ = poll(&[], Some(left));
        Ok(true)
    }

    /// How long a packet may be held back.
    pub fn hold_back_max(&self) -> Duration {
        self.order.hold_back
    }

    /// Packets that were given after younger ones.
    pub fn late(&self) -> u64 {
        self.order.late
    }

    /// What it was given since this was last asked; see [`RemoteSocket::statistics`].
    pub fn statistics(&mut self) -> Statistics {
        self.socket.statistics()
    }

    /// How much longer something is held back that has come.
    pub fn held(&self) -> Option<Duration> {
        self.order.held.map(|(_, since)| self.order.hold_back.saturating_sub(since.elapsed()))
    }

    /// Sleeps by `wait` unless a block is there; see [`RemoteSocket::sleep`].
    pub fn sleep<R>(&mut self, wait: impl FnOnce(BorrowedFd<'_>) -> R) -> Option<R> {
        self.socket.sleep(wait)
    }
}

impl Order {
    /// What was held back for long enough is settled.
    fn expire_hold(&mut self, now: Instant) {
        if let Some((youngest_ns, since)) = self.held
            && now.saturating_duration_since(since) >= self.hold_back
        {
            self.complete_until_ns = self.complete_until_ns.max(youngest_ns);
            self.held = None;
        }
    }
}

/// Some packets in order: a block of each worker that has one, at most. When it is dropped, blocks that were given to
/// their end go back to the workers.
pub struct Round<'c> {
    heads: Vec<Head<'c>>,
    /// Whether every lane has a block.
    is_whole: bool,
    order: &'c mut Order,
}

struct Head<'c> {
    block: Option<Block<'c>>,
    given: &'c mut Option<Position>,
}

impl Round<'_> {
    /// The packets that were not given yet, in order, as far as that is known.
    pub fn packets(&mut self) -> InOrder<'_> {
        let lanes = self.heads.iter_mut().filter_map(|head| {
            let block = head.block.as_ref()?;
            let mut packets = match *head.given {
                None => block.packets(),
                Some(position) => block.packets_from(position),
            };
            *head.given = Some(packets.place());
            Some(Lane { next: packets.next(), packets, given: head.given })
        });
        InOrder { lanes: lanes.collect(), is_whole: self.is_whole, order: self.order }
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        for Head { block, given } in &mut self.heads {
            let Some(block) = block.take() else { continue };
            let is_done = given.is_some_and(|given| block.packets_from(given).next().is_none());
            match is_done {
                true => **given = None,           // And the block goes back.
                false => std::mem::forget(block), // Only a drop gives it back.
            }
        }
    }
}

/// An iterator of packets in order of time.
pub struct InOrder<'r> {
    lanes: Vec<Lane<'r>>,
    is_whole: bool,
    order: &'r mut Order,
}

struct Lane<'r> {
    next: Option<Packet<'r>>,
    packets: Packets<'r>,
    given: &'r mut Option<Position>,
}

impl<'r> Iterator for InOrder<'r> {
    type Item = Packet<'r>;

    fn next(&mut self) -> Option<Packet<'r>> {
        let mut oldest: Option<(usize, u64)> = None;
        for (at, lane) in self.lanes.iter().enumerate() {
            // At the end of a block: the next one of that worker may continue with the next packets.
            let time_ns = lane.next.as_ref()?.record.time_ns;
            if oldest.is_none_or(|(_, before)| time_ns < before) {
                oldest = Some((at, time_ns));
            }
        }
        let (at, time_ns) = oldest?;
        if !self.is_whole && time_ns > self.order.complete_until_ns {
            self.hold();
            return None;
        }
        let Lane { next, packets, given } = &mut self.lanes[at];
        let packet = next.take()?;
        **given = Some(packets.place());
        *next = packets.next();
        self.order.late += u64::from(time_ns < self.order.last_ns);
        self.order.last_ns = self.order.last_ns.max(time_ns);
        Some(packet)
    }
}

impl InOrder<'_> {
    /// What is here now is settled later.
    fn hold(&mut self) {
        if self.order.held.is_none() {
            let rest = self.lanes.iter().filter_map(|lane| {
                let block = lane.next.iter().map(|packet| packet.record.time_ns);
                block.chain(lane.packets.clone().map(|packet| packet.record.time_ns)).max()
            });
            let youngest_ns = rest.max().unwrap_or_default();
            self.order.held = Some((youngest_ns, Instant::now()));
        }
    }
}

/// What a worker's turn takes at most, unless it is kept from running.
pub const TURN: Duration = Duration::from_millis(1);

impl AsFd for Capture {
    /// See [`RemoteSocket`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Deref for Capture {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.socket
    }
}

impl DerefMut for Capture {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.socket
    }
}

#[cfg(test)]
mod tests {
    use manylane_frame::vocabulary::{PortId, QueueId, WorkerId};
    use manylane_io::packet_ring::{Lane, Readers, Record, RingConfig, lanes};
    use manylane_sync::hook::Generation;
    use std::sync::Arc;

    use super::*;

    /// Blocks end where they like: what is given is in order, and nothing is given twice or left out.
    #[test]
    fn lanes_are_merged_across_blocks() {
        let mut rig = Rig::new(3);
        rig.publish(0, &[1, 4, 7]);
        rig.publish(0, &[8, 9]);
        rig.publish(1, &[2, 10]);
        rig.publish(2, &[3, 5, 6, 11]);
        // Up to the end of lane 0's first block, then of its second.
        assert_eq!(rig.round(), [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(rig.round(), [8, 9]);
        // Lane 0 may have something older than what the others have: until that is settled.
        assert!(rig.round().is_empty());
        assert!(rig.order.held.is_some_and(|(youngest_ns, _)| youngest_ns == 11));
        rig.publish(0, &[12]);
        assert_eq!(rig.round(), [10], "and the end of lane 1's block");
        assert_eq!((rig.order.late, rig.waiting()), (0, [true, false, true]));
    }

    #[test]
    fn what_was_seen_long_enough_ago_is_settled() {
        let mut rig = Rig::new(2);
        rig.publish(0, &[5, 6]);
        assert!(rig.round().is_empty());
        let (_, since) = rig.order.held.expect("lane 1 may have something older");
        rig.order.expire_hold(since + rig.order.hold_back - Duration::from_nanos(1));
        assert!(rig.round().is_empty());
        rig.order.expire_hold(since + rig.order.hold_back);
        rig.publish(1, &[4]);
        assert_eq!(rig.round(), [4], "then lane 1 has nothing again");
        assert_eq!(rig.round(), [5, 6], "which no longer matters");
        rig.publish(1, &[3]);
        assert_eq!((rig.round(), rig.order.late), (vec![3], 1));
    }

    /// A reader that stops in the middle of a round continues there.
    #[test]
    fn a_round_that_is_left_goes_on_later() {
        let mut rig = Rig::new(1);
        rig.publish(0, &[1, 2, 3]);
        assert_eq!(rig.take(2), [1, 2]);
        assert_eq!(rig.waiting(), [true]);
        assert!(rig.take(0).is_empty());
        assert_eq!(rig.take(9), [3]);
        assert_eq!(rig.waiting(), [false]);
    }

    struct Rig {
        lanes: Vec<Arc<Lane>>,
        readers: Readers,
        given: Vec<Option<Position>>,
        order: Order,
    }

    impl Rig {
        fn new(count: u32) -> Rig {
            let config = RingConfig { block_size: 4096, blocks: 4, retire_ns: 0 };
            let (lanes, readers) = lanes(&config, count).expect("it is small");
            let given = vec![None; count as usize];
            let order =
                Order { hold_back: TURN, complete_until_ns: 0, held: None, last_ns: 0, late: 0 };
            Rig { lanes, readers, given, order }
        }

        fn publish(&mut self, lane: usize, times: &[u64]) {
            let mut writer = self.lanes[lane].writer().expect("nobody else writes");
            for &time_ns in times {
                let record = Record {
                    time_ns,
                    len: 1,
                    port: PortId(0),
                    queue: QueueId(0),
                    worker: WorkerId(lane as u16),
                    point: manylane_frame::vocabulary::Point::Receive,
                    reason: None,
                };
                assert!(writer.push(Generation(1), &record, [&[lane as u8][..]], 1));
            }
            writer.publish();
        }

        fn round(&mut self) -> Vec<u64> {
            self.take(usize::MAX)
        }

        fn take(&mut self, most: usize) -> Vec<u64> {
            let Rig { readers, given, order, .. } = self;
            let heads = readers
                .iter_mut()
                .zip(given)
                .map(|(reader, given)| Head { block: reader.borrow(), given });
            let heads: Vec<_> = heads.collect();
            let is_whole = heads.iter().all(|head| head.block.is_some());
            let mut round = Round { heads, is_whole, order };
            round.packets().take(most).map(|packet| packet.record.time_ns).collect()
        }

        fn waiting<const N: usize>(&self) -> [bool; N] {
            std::array::from_fn(|lane| self.readers[lane].is_waiting())
        }
    }
}
