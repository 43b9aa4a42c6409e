//! Packets that a worker notes for an exporter: one in N of what the device of each port receives, and packets that the
//! worker drops.
//!
//! ```text
//! received ── countdown ──> kept as received ── verdict ──> note ──> ring ──> exporter
//! dropped ──── at most so many a second ──────────────────────^
//! ```
//!
//! A worker skips a random number of each port's packets, 1 to 2N - 1, and notes the next one. Countdown, random numbers
//! and counters are the worker's own; it reads the rates, which another thread publishes. A note that finds no place in
//! the ring is counted as lost, and nothing waits. A packet of segments counts as many packets as it has segments.

use std::sync::Arc;

use manylane_frame::vocabulary::{DropReason, PortId};
use manylane_frame::{BATCH_MAX, Frame, View};
use manylane_io::eventfd::EventFd;
use manylane_net::wire::ethernet::{HEADER_LEN, Mac, Tags, VLAN_TAG_LEN};
use manylane_net::wire::{ip, protocol, udp};
use manylane_sync::counters::{CounterReader, Counters};
use manylane_sync::doorbell::Doorbell;
use manylane_sync::ring::{Consumer, Producer, ring};
use manylane_sync::words::Words;

/// Bytes of a packet that a note has.
pub const HEADER_MAX: usize = 128;

/// A packet that a worker has noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// The port whose device received it.
    pub port: PortId,
    /// Why it was noted.
    pub noted: Noted,
    /// Bytes of its frame on the wire, without Ethernet's checksum; of one segment's.
    pub len: u32,
    header_len: u8,
    header: [u8; HEADER_MAX],
}

/// Why a packet was noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// The packet is a sample, as received.
    Sample {
        /// How many samples the packet is.
        samples: u32,
        /// One packet in how many is one.
        rate: u32,
        /// What became of it.
        end: End,
    },
    /// The packet was dropped; its bytes are those of that moment.
    Dropped(DropReason),
}

/// What became of a sample, as far as the verdict on it said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The packet leaves by the device of this port, to the station of this address.
    Leaves(PortId, Mac),
    /// The packet waits for its neighbour.
    Waits,
    /// The packet was for the router itself.
    Delivered,
    /// The packet was dropped.
    Dropped(DropReason),
}

impl Note {
    fn new(port: PortId, noted: Noted, len: u32, bytes: &[u8]) -> Note {
        let mut header = [0; HEADER_MAX];
        let header_len = bytes.len().min(HEADER_MAX);
        header[..header_len].copy_from_slice(&bytes[..header_len]);
        Note { port, noted, len, header_len: header_len as u8, header }
    }

    /// Its first bytes.
    pub fn header(&self) -> &[u8] {
        &self.header[..usize::from(self.header_len)]
    }
}

/// What all workers' samplers are made from.
#[derive(Clone)]
pub struct SamplerOptions {
    /// By the number of a port with a device: one packet in how many is a sample; 0 for none.
    pub rates: Words<u32>,
    /// By the number of a port or sub-interface: the port whose device it has.
    pub devices: Arc<[PortId]>,
    /// Which drops are noted.
    pub reasons: Arc<[DropReason]>,
    /// How many of them in a second, by each worker.
    pub drops_max: u32,
    /// Rung when a worker has noted something.
    pub bell: Arc<Doorbell<EventFd>>,
}

/// A worker's sampler.
pub struct Sampler {
    rates: Words<u32>,
    devices: Arc<[PortId]>,
    countdowns: Box<[Countdown]>,
    counters: Counters,
    ring: Producer<Note>,
    bell: Arc<Doorbell<EventFd>>,
    random: u64,
    /// Samples of the batch that is being forwarded.
    kept: Vec<Kept>,
    drops: Drops,
    has_new: bool,
}

/// Samples in a batch, as received.
struct Kept {
    place: usize,
    note: Note,
}

/// Until the next sample of a port.
#[derive(Clone, Copy, Default)]
struct Countdown {
    rate: u32,
    left: u32,
}

/// Which drops are noted, and how many have been in the present second.
struct Drops {
    /// By the reason's number.
    wanted: u64,
    max: u32,
    second_ns: u64,
    done: u32,
}

const _: () = assert!(DropReason::COUNT <= 64, "a bit for each");

/// An exporter's end.
pub struct SamplerEnd {
    /// What was noted.
    pub notes: Consumer<Note>,
    /// What was counted beside it.
    pub counts: SamplerCounts,
}

/// What a worker counts of its samples.
#[derive(Clone)]
pub struct SamplerCounts(CounterReader);

/// Of a port, by one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleCount {
    /// Packets that could have been samples.
    pub pool: u64,
    /// Samples that were noted.
    pub noted: u64,
    /// Samples that found no place in the ring, or were too many of one packet of segments.
    pub lost: u64,
    /// Drops that were not noted: too many in a second, or without a place.
    pub unreported: u64,
}

const POOL: usize = 0;
const NOTED: usize = 1;
const LOST: usize = 2;
const UNREPORTED: usize = 3;
const COUNTS: usize = 4;

/// Makes a worker's sampler; with another `seed` it chooses other packets.
pub fn sampler(options: &SamplerOptions, seed: u64) -> (Sampler, SamplerEnd) {
    let SamplerOptions { rates, devices, reasons, drops_max, bell } = options;
    let (ring, notes) = ring(NOTES);
    let counters = Counters::new(rates.len() * COUNTS);
    let counts = SamplerCounts(counters.reader());
    let wanted = reasons.iter().fold(0, |wanted, reason| wanted | 1 << reason.index());
    let sampler = Sampler {
        rates: rates.clone(),
        devices: devices.clone(),
        countdowns: vec![Countdown::default(); rates.len()].into(),
        counters,
        ring,
        bell: bell.clone(),
        // Mixed, since the first numbers of a small one are small; never 0, which would stay 0.
        random: seed.wrapping_mul(MIX) | 1,
        kept: Vec::with_capacity(BATCH_MAX),
        drops: Drops { wanted, max: *drops_max, second_ns: 0, done: 0 },
        has_new: false,
    };
    (sampler, SamplerEnd { notes, counts })
}

impl Sampler {
    /// Counts packets that one port's device has received, at most a batch, and keeps those that are samples: before
    /// anything is done to them.
    pub fn begin_batch(&mut self, view: View<'_>, frames: &[Frame]) {
        let Some(first) = frames.first() else { return };
        let port = view.meta(first).ingress;
        let Some(mut countdown) = self.countdowns.get(port.index()).copied() else { return };
        let rate = self.rates.load(port.index());
        if rate == 0 {
            return;
        }
        let mut pool = 0;
        for (place, frame) in frames.iter().enumerate() {
            let packets = packets_of(view, frame);
            pool += u64::from(packets);
            let samples = countdown.take(rate, packets, &mut self.random);
            if samples > 0 {
                let len = wire_len(view, frame, packets);
                let noted = Noted::Sample { samples, rate, end: End::Waits };
                self.kept
                    .push(Kept { place, note: Note::new(port, noted, len, view.bytes(frame)) });
            }
        }
        self.countdowns[port.index()] = countdown;
        self.counters.add(at(port, POOL), pool);
    }

    /// Whether the batch has samples.
    #[inline(always)]
    pub fn has_kept(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Notes the samples of the batch. `end_of` says what becomes of the packet at a place.
    pub fn end_batch(&mut self, mut end_of: impl FnMut(usize) -> End) {
        let Sampler { kept, counters, ring, has_new, .. } = self;
        for Kept { place, mut note } in kept.drain(..) {
            let Noted::Sample { samples, end, .. } = &mut note.noted else { continue };
            *end = end_of(place);
            let (noted, cut) =
                ((*samples).min(SAMPLES_OF_NOTE), samples.saturating_sub(SAMPLES_OF_NOTE));
            *samples = noted;
            let is_noted = ring.push(note).is_ok();
            *has_new |= is_noted;
            counters.add(at(note.port, LOST), cut.into());
            counters.add(at(note.port, if is_noted { NOTED } else { LOST }), noted.into());
        }
    }

    /// Whether another drop may be noted at this time.
    pub fn may_note_drop(&mut self, now_ns: u64) -> bool {
        self.drops.has_room(now_ns)
    }

    /// Notes a packet that is dropped, unless it is one of ours.
    pub fn note_drop(&mut self, view: View<'_>, frame: &Frame, reason: DropReason, now_ns: u64) {
        let meta = view.meta(frame);
        if !meta.own {
            let len = meta.packet_len() as u32; // Of 64 frames at most.
            self.note_dropped(meta.ingress, (view.bytes(frame), len), reason, now_ns);
        }
    }

    /// Notes a packet that was dropped, begins with `bytes` and has `len` of them.
    pub fn note_dropped(
        &mut self,
        ingress: PortId,
        (bytes, len): (&[u8], u32),
        reason: DropReason,
        now_ns: u64,
    ) {
        let Some(port) = self.device_of(ingress, reason) else { return };
        let mut is_noted = self.drops.has_room(now_ns);
        if is_noted {
            self.drops.done += 1;
            let note = Note::new(port, Noted::Dropped(reason), len, bytes);
            is_noted = self.ring.push(note).is_ok();
            self.has_new |= is_noted;
        }
        if !is_noted {
            self.counters.add(at(port, UNREPORTED), 1);
        }
    }

    /// Counts a drop that could be noted no more.
    pub fn count_unreported(&mut self, ingress: PortId, reason: DropReason) {
        if let Some(port) = self.device_of(ingress, reason) {
            self.counters.add(at(port, UNREPORTED), 1);
        }
    }

    /// The port whose device received a packet that is dropped for a reason that is wanted.
    fn device_of(&self, ingress: PortId, reason: DropReason) -> Option<PortId> {
        let is_wanted = self.drops.wanted >> reason.index() & 1 != 0;
        let port = self.devices.get(ingress.index()).copied().filter(|_| is_wanted)?;
        (port.index() < self.rates.len()).then_some(port)
    }

    /// Lets the exporter see what was noted. At the end of a turn.
    #[inline]
    pub fn submit(&mut self) {
        if std::mem::take(&mut self.has_new) {
            self.ring.submit();
            self.bell.ring();
        }
    }
}

impl Countdown {
    /// How many samples `packets` more packets are.
    #[inline(always)]
    fn take(&mut self, rate: u32, packets: u32, random: &mut u64) -> u32 {
        if self.rate != rate {
            // N is another: what is left of the former skip does not count.
            *self = Countdown { rate, left: draw(rate, random) };
        }
        if self.left > packets {
            self.left -= packets;
            return 0;
        }
        self.take_some(packets - self.left, random)
    }

    /// The packet is a sample, with `rest` segments behind the one that was counted down to: with a small N, some of them
    /// are samples, too.
    #[cold]
    fn take_some(&mut self, mut rest: u32, random: &mut u64) -> u32 {
        let mut samples = 1;
        loop {
            self.left = draw(self.rate, random);
            if rest < self.left {
                self.left -= rest;
                return samples;
            }
            rest -= self.left;
            samples += 1;
        }
    }
}

impl Drops {
    fn has_room(&mut self, now_ns: u64) -> bool {
        if now_ns.saturating_sub(self.second_ns) >= SECOND_NS {
            (self.second_ns, self.done) = (now_ns, 0);
        }
        self.done < self.max
    }
}

impl SamplerCounts {
    /// Of a port with a device; zeroes for another.
    pub fn port(&self, port: PortId) -> SampleCount {
        if at(port, COUNTS) > self.0.len() {
            return SampleCount::default();
        }
        let [pool, noted, lost, unreported] =
            [POOL, NOTED, LOST, UNREPORTED].map(|what| self.0.load(at(port, what)));
        SampleCount { pool, noted, lost, unreported }
    }
}

fn at(port: PortId, what: usize) -> usize {
    port.index() * COUNTS + what
}

/// How many packets pass from one sample to the next: `rate` on average, at least 1.
fn draw(rate: u32, random: &mut u64) -> u32 {
    // Xorshift (Marsaglia 2003), its upper half.
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    (*random >> 32) as u32 % (2 * rate - 1) + 1
}

/// The packets on the wire that a packet stands for.
#[inline(always)]
fn packets_of(view: View<'_>, frame: &Frame) -> u32 {
    match view.meta(frame).segments.any() {
        false => 1,
        true => segments_of(view, frame),
    }
}

#[cold]
fn segments_of(view: View<'_>, frame: &Frame) -> u32 {
    let meta = view.meta(frame);
    let size = u32::from(meta.segments.size).max(1);
    let len = meta.packet_len() as u32; // Of 64 frames at most.
    len.saturating_sub(headers_len(view, frame)).div_ceil(size).max(1)
}

/// Bytes of a frame on the wire: each segment has the headers of the whole.
fn wire_len(view: View<'_>, frame: &Frame, packets: u32) -> u32 {
    let len = view.meta(frame).packet_len() as u32; // Of 64 frames at most.
    if packets <= 1 {
        return len;
    }
    let headers = headers_len(view, frame).min(len);
    headers + (len - headers).div_ceil(packets)
}

/// Bytes in front of a TCP or UDP payload; of Ethernet's header alone, where the rest cannot be read.
fn headers_len(view: View<'_>, frame: &Frame) -> u32 {
    let (bytes, len) = (view.bytes(frame), view.meta(frame).packet_len());
    let tags = [2, 1].into_iter().find(|&count| Tags::of(bytes, count).is_some()).unwrap_or(0);
    let link = HEADER_LEN + tags * VLAN_TAG_LEN;
    let headers = || {
        let view = ip::View::front(bytes.get(link..)?, len.checked_sub(link)?)?;
        let at = view.transport()?;
        let transport = link + at.offset;
        let own = match at.protocol {
            protocol::TCP => usize::from(bytes.get(transport + 12)? >> 4) * 4,
            _ => udp::HEADER_LEN,
        };
        Some(transport + own)
    };
    headers().unwrap_or(link) as u32 // Less than a frame.
}

/// 2^64 by the golden ratio.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
/// Places in a worker's ring: 50 ms of 80,000 samples a second.
const NOTES: usize = 4096;
/// Samples of one packet of segments; further ones would tell nothing new.
const SAMPLES_OF_NOTE: u32 = 64;
const SECOND_NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples of `packets` packets, each of `segments`.
    fn samples(rate: u32, packets: u32, segments: u32) -> u64 {
        let (mut countdown, mut random) = (Countdown::default(), MIX);
        (0..packets).map(|_| u64::from(countdown.take(rate, segments, &mut random))).sum()
    }

    #[test]
    fn samples_estimate_the_packets() {
        assert_eq!(samples(1, 5000, 1), 5000, "one in one is all");
        assert_eq!(samples(1, 5000, 40), 200_000);
        for (rate, packets, segments) in [(10, 200_000, 1), (100, 200_000, 7), (3, 20_000, 40)] {
            let all = u64::from(packets) * u64::from(segments);
            let estimate = samples(rate, packets, segments) * u64::from(rate);
            // Five deviations of a binomial number of samples.
            let error = 5.0 * (all as f64 * f64::from(rate - 1)).sqrt();
            assert!(estimate.abs_diff(all) as f64 <= error, "1 in {rate}: {estimate} of {all}");
        }
    }

    #[test]
    fn another_rate_counts_from_the_next_packet_on() {
        let (mut countdown, mut random) = (Countdown::default(), MIX);
        assert_eq!(countdown.take(1 << 24, 1, &mut random), 0);
        assert_eq!(countdown.take(1, 1, &mut random), 1);
    }

    #[test]
    fn a_second_has_room_for_so_many_drops() {
        let mut drops = Drops { wanted: 0, max: 2, second_ns: 0, done: 0 };
        let note = |drops: &mut Drops, now_ns| {
            let has_room = drops.has_room(now_ns);
            drops.done += u32::from(has_room);
            has_room
        };
        let noted = [0, 1, 2, SECOND_NS - 1, SECOND_NS, SECOND_NS + 1, SECOND_NS + 2];
        let noted = noted.map(|now_ns| note(&mut drops, now_ns));
        assert_eq!(noted, [true, true, false, false, true, true, false]);
    }
}
