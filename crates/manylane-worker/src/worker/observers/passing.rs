//! What passes an observed point, and what a socket takes of it.

use manylane_frame::vocabulary::{PortId, QueueId};
use manylane_frame::{BatchList, Frame, View};
use manylane_io::packet_ring::{Lane, Record, Writer};
use manylane_net::filter::{Chosen, Columns};
use manylane_sync::hook::Generation;

use super::super::Clock;
use crate::hooks::Member;

/// What a socket may be given.
#[derive(Clone, Copy)]
pub(super) struct Passing<'p> {
    pub port: PortId,
    pub queue: QueueId,
    pub len: u32,
    /// In the first frame.
    pub first: &'p [u8],
    /// Where it lies in several.
    pub chain: Option<(View<'p>, &'p Frame)>,
}

impl<'p> Passing<'p> {
    #[inline]
    pub fn of(view: View<'p>, frame: &'p Frame, port: PortId) -> Passing<'p> {
        let meta = view.meta(frame);
        Passing {
            port,
            queue: meta.queue,
            len: meta.packet_len() as u32, // Of 64 frames at most.
            first: view.bytes(frame),
            chain: frame.is_chained().then_some((view, frame)),
        }
    }

    /// How many bytes of it a member keeps; 0 for none.
    #[inline]
    pub fn kept(&self, member: &Member) -> u32 {
        let kept = match self.chain {
            None => member.filter.run_in_parts(self.first, self.len, |_, _| 0),
            Some((view, frame)) => member.filter.run_on_frame(view, frame),
        };
        self.cut(kept, member)
    }

    /// How many of the `kept` bytes that its filter would keep a member keeps.
    #[inline]
    fn cut(&self, kept: u32, member: &Member) -> u32 {
        kept.min(member.snap).min(self.len)
    }

    /// Copies it. False without room.
    #[inline]
    pub fn push(
        &self,
        writer: &mut Writer<'_>,
        stamp: Generation,
        record: &Record,
        kept: u32,
    ) -> bool {
        let record = Record { len: self.len, port: self.port, queue: self.queue, ..*record };
        match self.chain {
            None => writer.push(stamp, &record, [self.first], kept),
            Some((view, frame)) => writer.push(stamp, &record, view.parts(frame), kept),
        }
    }
}

/// Packets that passed a point of a port together: a batch at most.
pub(super) struct Passed<'p> {
    view: View<'p>,
    port: PortId,
    frames: &'p [Frame],
    /// What lies in each packet's first frame. Looked at once, however many sockets are open.
    first: BatchList<&'p [u8]>,
    /// The packets that lie in several frames.
    chained: Chosen,
}

impl<'p> Passed<'p> {
    pub fn of(view: View<'p>, frames: &'p [Frame], port: PortId) -> Passed<'p> {
        let (mut first, mut chained) = (BatchList::new(), 0);
        for (place, packet) in view.packets(frames).enumerate() {
            first.push(packet.bytes);
            chained |= u64::from(packet.is_chained) << place;
        }
        Passed { view, port, frames, first, chained: Chosen(chained) }
    }

    /// What lies in each packet's first frame.
    #[inline]
    pub fn first(&self) -> &[&'p [u8]] {
        self.first.as_slice()
    }

    #[inline]
    pub fn packet(&self, place: usize) -> Passing<'p> {
        Passing::of(self.view, &self.frames[place], self.port)
    }

    /// Copies those of the `wanted` packets to a lane that its socket's filter lets pass. Whether some were copied.
    #[inline]
    pub fn give(
        &self,
        wanted: Chosen,
        (member, lane): (&Member, &Lane),
        stamp: Generation,
        record: &Record,
        columns: &mut Columns,
    ) -> bool {
        let chained = wanted.0 & self.chained.0;
        let whole = Chosen(wanted.0 & !chained);
        let taken = member.filter.run_together(self.first(), whole, columns);
        let (mut writer, mut given) = (None, false);
        for place in Chosen(taken.0 | chained) {
            let packet = self.packet(place);
            let kept = match taken.has(place) {
                true => packet.cut(columns.kept(place), member),
                false => packet.kept(member),
            };
            if kept == 0 {
                continue;
            }
            // No other thread has a worker's lane; the lane counts a violation.
            let Some(writer) = (match &mut writer {
                Some(writer) => Some(writer),
                none => lane.writer().map(|new| none.insert(new)),
            }) else {
                break;
            };
            packet.push(writer, stamp, record, kept);
            given = true;
        }
        given
    }
}

/// Times what a worker spends on each socket: a look at the clock for each, each time some packets are shown. Without a
/// socket nothing is shown, and nothing timed.
pub(super) struct Laps {
    clock: Clock,
    pub since_ns: u64,
}

/// Longer than the longest filter takes for a whole batch, and the copies: then the system took the core away, and the
/// time was not the socket's.
const LAP_MAX_NS: u64 = 10_000_000;

impl Laps {
    pub fn begin(clock: Clock) -> Laps {
        Laps { clock, since_ns: clock.now_ns() }
    }

    /// What passed since the last lap was spent on this lane's socket.
    pub fn spent_on(&mut self, lane: &Lane) {
        let now_ns = self.clock.now_ns();
        lane.add_time((now_ns - self.since_ns).min(LAP_MAX_NS));
        self.since_ns = now_ns;
    }
}
