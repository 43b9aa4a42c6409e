//! A floor: workers that hand on to each other, driven turn by turn.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use manylane_frame::vocabulary::{DropReason, PortId, QueueId};
use manylane_frame::{Frame, Region};
use manylane_io::port::{Transmitter, memory};
use manylane_net::neighbour::HoldLimits;
use manylane_net::wire::flow::FlowKey;
use manylane_sync::handoff::{GROUP, RECEIVER, SteeringMap};

use crate::rig::*;
use manylane_worker::worker::Worker;
use manylane_worker::worker::handoff::{HandOffReader, Mesh, limits};
use manylane_worker::worker::queue_handover::{GivenUp, QueueHandoverEnd, Task};

/// Workers that hand on to each other; every transmitter of a port ends in the same place.
pub struct Floor {
    pub hall: Hall,
    pub map: SteeringMap,
    pub workers: Vec<Arc<Mutex<Worker>>>,
    /// What happens at the next transmission by port 1, before it is seen.
    meddler: Meddler,
    pub counts: Vec<HandOffReader>,
    pub handovers: Vec<QueueHandoverEnd>,
    /// Of port 0, for worker 0 and for worker 1, if it receives too.
    pub feeds: Vec<Feed>,
    pub seen: Vec<Seen>,
    /// The next number of each flow, and how many of its packets were transmitted.
    next: HashMap<u16, u32>,
}

type Meddler = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// What a floor is like.
#[derive(Clone, Copy)]
pub struct Like {
    pub workers: usize,
    pub receivers: usize,
    pub capacity: usize,
    /// Bytes of a packet in one frame.
    pub part_len: usize,
    pub holds: HoldLimits,
    pub key: FlowKey,
}

pub const TWO: Like = Like {
    workers: 2,
    receivers: 1,
    capacity: 256,
    part_len: usize::MAX,
    holds: HoldLimits { queue_frames_max: 101, frames_max: 1024, queues_max: 256 },
    key: FlowKey::PUBLIC,
};

impl Floor {
    pub fn new(like: Like) -> Floor {
        let mut hall = Hall::new(like.workers);
        let map = SteeringMap::new(GROUP * usize::from(PORTS), RECEIVER);
        let bells: Vec<_> = (0..like.workers).map(|_| bell()).collect();
        let receives: Vec<_> = (0..like.workers).map(|worker| worker < like.receivers).collect();
        let limits = hall.limits.reader();
        let mesh = Mesh::build(
            &receives,
            like.capacity,
            &bells,
            &map.reader(),
            PORTS.into(),
            &limits,
            like.key,
        );
        hall.limits.publish(limits::MAX_BACKLOG, like.capacity as u32);
        let (seen, _) = sinks();
        let meddler = Meddler::default();
        let feeds: Vec<Feed> = (0..like.receivers).map(|_| Feed::default()).collect();
        let (mut workers, mut counts, mut handovers) = (Vec::new(), Vec::new(), Vec::new());
        for (number, (handoff, reader)) in mesh.ends.into_iter().enumerate() {
            let fed = |feed| fed_in_parts(0, number as u16, feed, like.part_len);
            let queues = feeds.get(number).map(fed);
            let mut exits: Vec<_> = seen.iter().map(sink).collect();
            exits[1] = meddled_sink(&seen[1], &meddler);
            let queues = queues.into_iter().collect();
            let worker = hall.worker_of_several(queues, exits, like.holds, Some(handoff));
            workers.push(Arc::new(Mutex::new(worker)));
            handovers.push(hall.handovers.pop().expect("each worker has one"));
            counts.push(reader);
        }
        hall.control.set("10.1.0.2", 1);
        hall.control.set("2001:db8:1::2", 1);
        Floor { hall, map, workers, meddler, counts, handovers, feeds, seen, next: HashMap::new() }
    }

    /// Wants workers for buckets of port 0.
    pub fn want(
        &mut self,
        buckets: impl IntoIterator<Item = usize>,
        worker: impl Fn(usize) -> u16,
    ) {
        for bucket in buckets {
            self.map.want(bucket, worker(bucket));
        }
        let generation = self.hall.limits.load(limits::GENERATION);
        self.hall.limits.publish(limits::GENERATION, generation + 1);
    }

    /// Packets of `flow` for receiver `receiver`.
    pub fn send(&mut self, receiver: usize, to: IpAddr, flow: u16, packets: usize) {
        let next = self.next.entry(flow).or_default();
        let mut feed = self.feeds[receiver].lock().unwrap();
        for _ in 0..packets {
            feed.push(packet(to, flow, *next, 4));
            *next += 1;
        }
    }

    /// A turn of a worker, unless it has left.
    pub fn turn(&self, worker: usize, now_ns: u64) -> usize {
        let mut worker = self.workers[worker].lock().unwrap();
        if worker.should_continue() { worker.turn(now_ns) } else { 0 }
    }

    /// Turns every worker until none moves anything.
    pub fn turn_until_idle(&self, now_ns: u64) {
        while (0..self.workers.len()).map(|worker| self.turn(worker, now_ns)).sum::<usize>() > 0 {}
    }

    /// Lets `worker` have a turn in the middle of another's, when that has something to transmit.
    pub fn meddle(&self, worker: usize, now_ns: u64) {
        let worker = self.workers[worker].clone();
        *self.meddler.lock().unwrap() = Some(Box::new(move || {
            // Not in the middle of its own.
            if let Ok(mut worker) = worker.try_lock()
                && worker.should_continue()
            {
                worker.turn(now_ns);
            }
        }));
    }

    /// Asks `worker` for a queue of port 0.
    pub fn ask(&mut self, worker: usize, queue: u16) {
        let task = Task::GiveUp(PortId(0), QueueId(queue));
        assert!(self.handovers[worker].tasks.push(task).is_ok());
        self.handovers[worker].tasks.submit();
    }

    /// Requests every worker's transmitter of `port`.
    pub fn close_exits(&mut self, port: u16) {
        for handover in &mut self.handovers {
            assert!(handover.tasks.push(Task::Close(PortId(port))).is_ok());
            handover.tasks.submit();
        }
    }

    /// What `worker` has given up since the last call: queues and transmitters.
    pub fn given_up(&mut self, worker: usize) -> (usize, usize) {
        let (mut queues, mut exits) = (0, 0);
        while let Some(given_up) = self.handovers[worker].given_up.pop() {
            match given_up {
                GivenUp::Queue(_) => queues += 1,
                GivenUp::Egress(..) => exits += 1,
            }
        }
        (queues, exits)
    }

    /// Passes the queue on that `from` has given up, if it has.
    pub fn pass(&mut self, from: usize, to: usize) -> bool {
        let Some(GivenUp::Queue(receiver)) = self.handovers[from].given_up.pop() else {
            return false;
        };
        self.handovers[from].given_up.release();
        assert!(self.handovers[to].tasks.push(Task::Take(receiver)).is_ok());
        self.handovers[to].tasks.submit();
        true
    }

    pub fn left(&self, receiver: usize) -> usize {
        self.feeds[receiver].lock().unwrap().len()
    }

    pub fn seen(&self) -> usize {
        self.seen.iter().map(|seen| seen.lock().unwrap().len()).sum()
    }

    /// Each flow's numbers go up where all are transmitted; returns their number.
    pub fn assert_in_order(&self) -> usize {
        let mut last: HashMap<u16, u32> = HashMap::new();
        let seen = self.seen[1].lock().unwrap();
        for frame in seen.iter() {
            let (flow, number) = stamp(frame).expect("only stamped packets go there");
            if let Some(last) = last.insert(flow, number) {
                assert!(number > last, "flow {flow}: {last} overtook {number}");
            }
        }
        seen.len()
    }

    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.hall.dropped(0, reason)
    }

    /// How many packets an operator's look has seen leave, and how many of them reordered.
    pub fn sampled(&self) -> (u64, u64) {
        let sum = |of: fn(&HandOffReader) -> u64| self.counts.iter().map(of).sum();
        (sum(HandOffReader::sampled), sum(HandOffReader::reordered))
    }

    /// Checks one flow in N, or none.
    pub fn sample(&mut self, one_in: u32) {
        self.hall.limits.publish(limits::SAMPLE_PERIOD, 1);
        self.hall.limits.publish(limits::REORDER_SAMPLE, one_in);
        self.want([], |_| 0);
    }

    /// All frames are accounted for, also those between workers, and at the end all are at home.
    pub fn close(mut self) {
        *self.meddler.lock().unwrap() = None;
        let workers = std::mem::take(&mut self.workers);
        let alone = |worker: Arc<_>| Arc::into_inner(worker).expect("nobody else has it");
        let workers = workers.into_iter().map(|worker| alone(worker).into_inner().unwrap());
        self.hall.close(workers.collect());
        let sum = |frames: fn(&HandOffReader) -> u64| self.counts.iter().map(frames).sum::<u64>();
        assert_eq!(sum(HandOffReader::frames_out), sum(HandOffReader::frames_in));
    }
}

/// Where a checker has seen what it was to see: other tests count what is not put.
impl Drop for Floor {
    fn drop(&mut self) {
        for worker in &self.workers {
            let mut worker = worker.lock().unwrap_or_else(PoisonError::into_inner);
            worker.start(); // Also one that has left.
            let Worker { reader, work } = &mut *worker;
            work.drop_held(reader.guard());
        }
    }
}

/// A transmitter that remembers the frames, and meddles first.
fn meddled_sink(seen: &Seen, meddler: &Meddler) -> Transmitter {
    let (seen, meddler) = (seen.clone(), meddler.clone());
    let sink = move |region: &Region, frames: &[Frame]| {
        let meddle = meddler.lock().unwrap().take();
        if let Some(meddle) = meddle {
            meddle();
        }
        let mut seen = seen.lock().unwrap();
        seen.extend(frames.iter().map(|frame| region.bytes(frame).to_vec()));
    };
    Transmitter::Memory(memory::Transmitter::into_sink(Box::new(sink)))
}

pub const NEAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 0, 2));
const NEAR_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 2));

/// Of each family by turns.
pub fn near(flow: u16) -> IpAddr {
    if flow.is_multiple_of(2) { NEAR } else { NEAR_V6 }
}
