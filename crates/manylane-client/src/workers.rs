//! Packets that workers of `manylane accelerate` have copied for a capture: a packet ring with a lane for each worker.
//!
//! Times in this ring are of the monotonic clock, as those of the programs' rings. In front of a packet's bytes lie
//! [`FRONT`] more. The first of these says why the worker dropped the packet; a record's length counts all.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use manylane_frame::vocabulary::Point;
use manylane_io::packet_ring::{Reader, Readers, Record, RingError, Statistics, open_shared};

use super::copied::Copied;

/// The bytes in front of a packet's.
pub const FRONT: usize = 8;

/// What a worker dropped for another reason than a verdict: the egress port took no more.
pub const UNSENT: u8 = u8::MAX;

/// The bytes in front of a packet that is shown for this reason.
pub fn front(reason: u8) -> [u8; FRONT] {
    let mut front = [0; FRONT];
    front[0] = reason;
    front
}

/// The reading end of the workers' ring.
pub(super) struct WorkerRing {
    readers: Readers,
    lanes: Vec<Waiting>,
}

/// The packets of a lane's oldest block, taken out.
#[derive(Default)]
struct Waiting {
    packets: VecDeque<Taken>,
    bytes: Vec<u8>,
}

struct Taken {
    record: Record,
    reason: u8,
    from: usize,
    to: usize,
}

impl WorkerRing {
    pub fn open(memfd: OwnedFd) -> Result<WorkerRing, RingError> {
        let readers = open_shared(memfd)?;
        let lanes = readers.iter().map(|_| Waiting::default()).collect();
        Ok(WorkerRing { readers, lanes })
    }

    /// When the oldest packet was seen, and its lane.
    pub fn oldest(&mut self) -> Option<(u64, usize)> {
        let WorkerRing { readers, lanes } = self;
        for (lane, reader) in lanes.iter_mut().zip(readers.iter_mut()) {
            lane.fill(reader);
        }
        let first =
            |(at, lane): (usize, &Waiting)| Some((lane.packets.front()?.record.time_ns, at));
        lanes.iter().enumerate().filter_map(first).min()
    }

    /// Takes a lane's oldest packet out, and gives it to `see`. Returns what `see` returns.
    pub fn give(&mut self, lane: usize, see: &mut impl FnMut(&Copied<'_>) -> bool) -> bool {
        let Waiting { packets, bytes } = &mut self.lanes[lane];
        packets.pop_front().is_none_or(|Taken { record, reason, from, to }| {
            see(&Copied {
                time_ns: record.time_ns,
                len: record.len.saturating_sub(FRONT as u32),
                port: record.port.0,
                queue: record.queue.0,
                cpu: record.worker.0.into(),
                point: record.point as u8,
                verdict: if record.point == Point::Drop { reason } else { 0 },
                is_undecided: false,
                tag: None,
                bytes: &bytes[from..to],
            })
        })
    }

    /// What workers have counted.
    pub fn statistics(&self) -> Statistics {
        Statistics::of(&self.readers)
    }
}

impl Waiting {
    /// Takes the next block's packets out, if none of the one before is left.
    fn fill(&mut self, reader: &mut Reader) {
        while self.packets.is_empty() {
            let Some(block) = reader.borrow() else { return };
            self.bytes.clear();
            for packet in block.packets() {
                let Some((front, bytes)) = packet.bytes.split_first_chunk::<FRONT>() else {
                    continue;
                };
                let from = self.bytes.len();
                self.bytes.extend_from_slice(bytes);
                let (reason, to) = (front[0], self.bytes.len());
                self.packets.push_back(Taken { record: packet.record, reason, from, to });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manylane_frame::vocabulary::{PortId, QueueId, WorkerId};
    use manylane_io::packet_ring::{RING, create_shared};
    use manylane_sync::hook::Generation;

    #[test]
    fn packets_of_all_workers_come_in_order_of_time_with_their_reasons() {
        let (memfd, lanes) = create_shared(&RING, 2).expect("there is memory");
        let mut ring = WorkerRing::open(memfd).expect("it is a ring");
        for (worker, time_ns, point, reason, bytes) in [
            (0, 10, Point::Transmit, 0, &b"first"[..]),
            (0, 30, Point::Drop, UNSENT, b"third"),
            (1, 20, Point::Drop, 26, b"second"),
        ] {
            let lane = &lanes[usize::from(worker)];
            let mut writer = lane.writer().expect("no other thread has it");
            let (port, queue) = (PortId(3), QueueId(1));
            let len = (100 + FRONT) as u32;
            let worker = WorkerId(worker);
            let record = Record { time_ns, len, port, queue, worker, point, reason: None };
            assert!(writer.push(Generation(0), &record, [&front(reason)[..], bytes], len));
        }
        assert!(ring.oldest().is_none(), "nothing is published yet");
        for lane in &lanes {
            lane.writer().expect("no other thread has it").publish();
        }
        let mut seen = Vec::new();
        while let Some((_, lane)) = ring.oldest() {
            let goes_on = ring.give(lane, &mut |copied| {
                let Copied { time_ns, len, port, cpu, verdict, bytes, .. } = *copied;
                assert_eq!((len, port), (100, 3));
                seen.push((time_ns, cpu, copied.point, verdict, bytes.to_vec()));
                true
            });
            assert!(goes_on);
        }
        let expected = [
            (10, 0, 1, 0, b"first".to_vec()),
            (20, 1, 2, 26, b"second".to_vec()),
            (30, 0, 2, UNSENT, b"third".to_vec()),
        ];
        assert_eq!(seen, expected);
        assert_eq!(ring.statistics(), Statistics { packets: 3, lost: 0 });
    }
}
