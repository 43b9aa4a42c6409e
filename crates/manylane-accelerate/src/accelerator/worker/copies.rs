//! What workers copy for captures (`manylane capture`): packets that they transmit, and packets that they drop.
//!
//! | side             | does                                                                                    |
//! |------------------|-----------------------------------------------------------------------------------------|
//! | captures thread, API | [`WorkerCaptures::open`]; a dropped [`WorkerCapture`] is closed                     |
//! | worker           | once a turn one load ([`Copies::begin_turn`]); while a capture is open, copies           |
//!
//! A capture has a packet ring with a lane for each worker, which a reader maps: [`manylane_client`]'s `workers` says what
//! lies in it. A worker takes the list's lock only when the list has changed, and never waits for it. No worker and no
//! program sees a packet that the kernel dropped because a socket had no place (`worker_full`), or that was in a ring
//! when the ring was closed (`worker_lost`): these are counted, and not shown.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use manylane_client::{FRONT, UNSENT, front};
use manylane_frame::vocabulary::{Point, Points, PortId, QueueId, WorkerId};
use manylane_frame::{Frame, Region};
use manylane_io::packet_ring::{Lane, Record, RingConfig, RingError, create_shared};
use manylane_net::filter::Program;
use manylane_net::transit::Verdict;
use manylane_sync::counters::SharedCount;
use manylane_sync::hook::Generation;

use super::counts::{UNSENT_NAME, meaning};
use crate::accelerator::lease::now_exactly;
use crate::programs::Wanted;

/// The captures that want packets of workers. A handle: clones share the list.
#[derive(Clone, Default)]
pub(in super::super) struct WorkerCaptures(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// How often the list has changed.
    changes: SharedCount,
    open: Mutex<Vec<Arc<Target>>>,
}

/// What a capture wants, and the lanes that take copies. A target never changes.
struct Target {
    points: Points,
    port: Option<u16>,
    snap: u32,
    filter: Option<Program>,
    /// By worker.
    lanes: Vec<Arc<Lane>>,
}

/// A capture's part of workers, until it is dropped.
pub(in super::super) struct WorkerCapture {
    captures: WorkerCaptures,
    target: Arc<Target>,
    memfd: OwnedFd,
}

/// Why a worker drops a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// The packet is not transit any more.
    Changed,
    /// The egress port took no more.
    Unsent,
}

/// A worker's side.
pub(super) struct Copies {
    captures: WorkerCaptures,
    worker: u16,
    /// The list as of this change.
    changes: u64,
    open: Vec<Arc<Target>>,
    /// What any of them wants.
    points: Points,
    /// A lane has packets that are not published.
    is_open: bool,
    /// Packets that are about to leave: their bytes, and where each ends.
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl WorkerCaptures {
    /// Opens a capture's part, if it wants what workers do. `workers` is their largest number.
    pub fn open(
        &self,
        wanted: &Wanted,
        workers: usize,
    ) -> Result<Option<WorkerCapture>, RingError> {
        let points = [Point::Transmit, Point::Drop];
        let is_wanted = |point: &Point| wanted.points & 1 << *point as u8 != 0;
        let points = points.into_iter().filter(is_wanted).map(Points::of);
        let points = points.fold(Points::NONE, |all, point| all | point);
        if points.is_empty() || workers == 0 {
            return Ok(None);
        }
        let (memfd, lanes) = create_shared(&ring(workers), workers as u32)?;
        let target = Arc::new(Target {
            points,
            port: wanted.port,
            snap: wanted.snap,
            filter: wanted.filter.clone(),
            lanes,
        });
        self.change(|open| open.push(target.clone()));
        Ok(Some(WorkerCapture { captures: self.clone(), target, memfd }))
    }

    /// The side of a worker.
    pub(super) fn copies(&self, worker: usize) -> Copies {
        Copies {
            captures: self.clone(),
            worker: worker as u16, // 127 at most.
            changes: 0,
            open: Vec::new(),
            points: Points::NONE,
            is_open: false,
            bytes: Vec::new(),
            ends: Vec::new(),
        }
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Arc<Target>>)) {
        let mut open = self.list();
        change(&mut open);
        // Behind the lock's end a worker that sees the count finds the list so.
        self.0.changes.add(1);
    }

    fn list(&self) -> MutexGuard<'_, Vec<Arc<Target>>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WorkerCapture {
    /// Of the ring, for a reader.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.memfd.as_fd()
    }

    /// Packets in published blocks, and packets that found no room.
    pub fn counted(&self) -> (u64, u64) {
        let totals = self.target.lanes.iter().map(|lane| lane.totals());
        totals.fold((0, 0), |(packets, lost), lane| (packets + lane.packets, lost + lane.lost))
    }
}

impl Drop for WorkerCapture {
    fn drop(&mut self) {
        // The reader may keep the memory; its pages go with the last worker that looks at the lanes.
        self.target.lanes.iter().for_each(|lane| lane.free_pages_at_end());
        self.captures.change(|open| open.retain(|other| !Arc::ptr_eq(other, &self.target)));
    }
}

impl Reason {
    /// As a reader of the ring finds it.
    fn number(self) -> u8 {
        match self {
            Reason::Changed => Verdict::DecisionChanged as u8,
            Reason::Unsent => UNSENT,
        }
    }
}

/// The name of what keeps a copied packet at this point, and its meaning: `verdict` as the reader of a capture has it.
pub fn reason_of(point: Point, verdict: u8) -> Option<(&'static str, &'static str)> {
    let known = || Verdict::from_number(verdict.into());
    match point {
        Point::Kernel => known().map(|verdict| (verdict.name(), verdict.meaning())),
        Point::Drop if verdict == UNSENT => Some((UNSENT_NAME, meaning(UNSENT_NAME))),
        Point::Drop => {
            let changed = known().filter(|verdict| *verdict == Verdict::DecisionChanged)?.name();
            Some((changed, meaning(changed)))
        }
        Point::Receive | Point::Transmit => None,
    }
}

impl Copies {
    /// Looks which captures are open: one load, if none has come or gone.
    #[inline]
    pub fn begin_turn(&mut self) {
        if self.captures.0.changes.load() != self.changes {
            self.look();
        }
    }

    #[cold]
    fn look(&mut self) {
        // A thread that changes the list has it: then the next turn looks.
        let Ok(open) = self.captures.0.open.try_lock() else { return };
        self.changes = self.captures.0.changes.load();
        self.open.clone_from(&open);
        drop(open);
        self.points = self.open.iter().fold(Points::NONE, |all, target| all | target.points);
        if self.open.is_empty() {
            (self.is_open, self.bytes, self.ends) = (false, Vec::new(), Vec::new());
        }
    }

    /// Whether a capture is open.
    #[inline]
    pub fn are_wanted(&self) -> bool {
        !self.points.is_empty()
    }

    /// Shows a packet that is dropped, and that this port received.
    #[cold]
    pub fn dropped(&mut self, port: u16, reason: Reason, packet: &[u8]) {
        let record = self.record(Point::Drop, port);
        self.is_open |= show(&self.open, &record, reason.number(), packet);
    }

    /// Keeps the bytes of packets that are about to leave: afterwards they are the device's.
    #[cold]
    pub fn keep(&mut self, region: &Region, frames: &[Frame]) {
        self.bytes.clear();
        self.ends.clear();
        for frame in frames {
            self.bytes.extend_from_slice(region.view().bytes(frame));
            self.ends.push(self.bytes.len());
        }
    }

    /// The first `sent` packets that were kept have left by a port; the others are dropped.
    #[cold]
    pub fn left(&mut self, sent: usize, ingress: u16, egress: u16) {
        let of_sent = self.record(Point::Transmit, egress);
        let of_unsent = self.record(Point::Drop, ingress);
        let mut from = 0;
        for (number, &end) in self.ends.iter().enumerate() {
            let packet = &self.bytes[from..end];
            from = end;
            self.is_open |= match number < sent {
                true => show(&self.open, &of_sent, 0, packet),
                false => show(&self.open, &of_unsent, Reason::Unsent.number(), packet),
            };
        }
    }

    /// Publishes what has waited long enough for more packets; all, before a sleep.
    #[inline]
    pub fn end_turn(&mut self, now_ns: u64, sleeps: bool) {
        if self.is_open {
            self.publish(now_ns, sleeps);
        }
    }

    #[cold]
    fn publish(&mut self, now_ns: u64, sleeps: bool) {
        self.is_open = false;
        for target in &self.open {
            let lane = &target.lanes[usize::from(self.worker)];
            if !lane.is_open() {
                continue;
            }
            // No other thread has a worker's lane; the lane counts a violation.
            let Some(mut writer) = lane.writer() else { continue };
            // The reader looks by itself: a published block rings no bell.
            let _ = if sleeps { writer.publish() } else { writer.end_turn(now_ns) };
            drop(writer);
            self.is_open |= lane.is_open();
        }
    }

    fn record(&self, point: Point, port: u16) -> Record {
        Record {
            time_ns: now_exactly(),
            len: 0,
            port: PortId(port),
            queue: QueueId(0),
            worker: WorkerId(self.worker),
            point,
            reason: None,
        }
    }
}

/// Copies a packet for each capture that wants it. Whether any has.
fn show(open: &[Arc<Target>], record: &Record, reason: u8, packet: &[u8]) -> bool {
    let len = packet.len() as u32; // A frame's.
    let mut is_shown = false;
    for target in open {
        let PortId(port) = record.port;
        if !target.points.has(record.point) || target.port.is_some_and(|wanted| wanted != port) {
            continue;
        }
        let filter = target.filter.as_ref();
        let kept = filter.map_or(u32::MAX, |filter| filter.run_in_parts(packet, len, |_, _| 0));
        let kept = kept.min(target.snap).min(len);
        if kept == 0 {
            continue;
        }
        let lane = &target.lanes[usize::from(record.worker.0)];
        let Some(mut writer) = lane.writer() else { continue };
        let record = Record { len: len + FRONT as u32, ..*record };
        is_shown |=
            writer.push(GENERATION, &record, [&front(reason)[..], packet], kept + FRONT as u32);
    }
    is_shown
}

/// A megabyte for each worker, and 16 for all where they are many.
fn ring(workers: usize) -> RingConfig {
    let blocks = (LANES_BYTES / BLOCK as usize / workers.max(1)).clamp(2, 16);
    RingConfig { block_size: BLOCK, blocks: blocks as u32, retire_ns: RETIRE_NS }
}

const BLOCK: u32 = 64 << 10;
const LANES_BYTES: usize = 16 << 20;
/// How long a packet may wait for more: [`manylane_client::WORKERS_SETTLED`] is longer.
const RETIRE_NS: u64 = 1_000_000;
/// A capture never changes what it wants.
const GENERATION: Generation = Generation(0);

#[cfg(test)]
mod tests {
    use super::*;
    use manylane_client::CpuRings;
    use std::thread;

    fn wanted(points: &[Point]) -> Wanted {
        let points = points.iter().fold(0, |all, &point| all | 1 << point as u8);
        Wanted { points, port: None, snap: u32::MAX, filter: None }
    }

    fn shown(capture: &WorkerCapture) -> Vec<(u8, u16, u8, Vec<u8>)> {
        let memfd = capture.descriptor().try_clone_to_owned().expect("a descriptor is left");
        let mut rings = CpuRings::default();
        rings.add_workers(memfd).expect("it is a ring");
        thread::sleep(2 * manylane_client::WORKERS_SETTLED); // What is younger is kept back.
        let mut all = Vec::new();
        rings.receive(|copied| {
            all.push((copied.point, copied.port, copied.verdict, copied.bytes.to_vec()));
            true
        });
        all
    }

    #[test]
    fn a_worker_shows_what_a_capture_wants_while_it_is_open() {
        let captures = WorkerCaptures::default();
        let mut copies = captures.copies(1);
        copies.begin_turn();
        assert!(!copies.are_wanted());
        let drops = captures.open(&wanted(&[Point::Receive, Point::Drop]), 2);
        let drops = drops.expect("there is memory").expect("workers have such packets");
        let one_port = Wanted { port: Some(7), snap: 3, ..wanted(&[Point::Drop]) };
        let one_port = captures.open(&one_port, 2).expect("there is memory").expect("as above");
        copies.begin_turn();
        assert!(copies.are_wanted());
        copies.dropped(4, Reason::Changed, b"packet");
        copies.dropped(7, Reason::Unsent, b"another");
        copies.end_turn(0, true);
        let changed = Verdict::DecisionChanged as u8;
        let another = (2, 7, UNSENT, b"another".to_vec());
        assert_eq!(shown(&drops), [(2, 4, changed, b"packet".to_vec()), another]);
        assert_eq!(shown(&one_port), [(2, 7, UNSENT, b"ano".to_vec())]);
        assert_eq!((drops.counted(), one_port.counted()), ((2, 0), (1, 0)));
        drop((drops, one_port));
        copies.begin_turn();
        assert!(!copies.are_wanted());
    }

    #[test]
    fn what_a_port_does_not_take_is_shown_as_dropped() {
        let captures = WorkerCaptures::default();
        let capture = captures.open(&wanted(&[Point::Transmit, Point::Drop]), 1);
        let capture = capture.expect("there is memory").expect("workers have such packets");
        let mut copies = captures.copies(0);
        copies.begin_turn();
        (copies.bytes, copies.ends) = (b"sentkept".to_vec(), vec![4, 8]);
        copies.left(1, 1, 2);
        copies.end_turn(0, true);
        let expected = [(1, 2, 0, b"sent".to_vec()), (2, 1, UNSENT, b"kept".to_vec())];
        assert_eq!(shown(&capture), expected);
    }

    #[test]
    fn a_reason_has_the_name_that_counters_have() {
        let name = |point, verdict| reason_of(point, verdict).map(|(name, _)| name);
        assert_eq!(name(Point::Drop, Reason::Unsent.number()), Some("worker_unsent"));
        assert_eq!(name(Point::Drop, Reason::Changed.number()), Some("decision_changed"));
        assert_eq!(name(Point::Kernel, Verdict::Ttl as u8), Some("ttl"));
        // Of a program that drops a packet, no reason is known.
        assert_eq!(name(Point::Drop, 0), None);
        assert_eq!(name(Point::Transmit, Verdict::Ttl as u8), None);
    }

    #[test]
    fn a_capture_of_what_programs_see_takes_no_memory_of_workers() {
        let captures = WorkerCaptures::default();
        let of_programs = captures.open(&wanted(&[Point::Receive, Point::Kernel]), 4);
        assert!(of_programs.is_ok_and(|capture| capture.is_none()));
        for (workers, blocks) in [(1, 16), (16, 16), (32, 8), (127, 2)] {
            assert_eq!(ring(workers).blocks, blocks, "{workers} workers");
        }
    }
}
