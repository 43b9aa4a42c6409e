//! Any frame, into a router that has every kind of route and neighbour, groups and sub-interfaces among
//! them: the batch's fast path and the rules written out in full decide alike, and transmit only what may
//! be transmitted.
//!
//! ```sh
//! cargo fuzz run --sanitizer none --features libfuzzer forward -- -max_total_time=60
//! ```
//!
//! The input is an Ethernet frame, as in `corpus/forward`, which is `corpus/wire`: port 0 is in the
//! place of the answering host in these captures, port 1 in that of the requesting one. Port 1 is a trunk, and
//! receives the input with the tags of its sub-interfaces, too. The router receives each in one frame and in chains
//! of them, longer by some KiB too, and with what a port may say of checksum and segments. What leaves is
//! prepared for a port that takes chains only, and for one that takes all.
//!
//! Not looked for: order in a batch, routes that change, rate limits.
#![no_main]

#[path = "forward/expected.rs"]
mod expected;
#[path = "forward/tables.rs"]
mod tables;

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use manylane_frame::vocabulary::{Checksum, Offload, PortId, QueueId, SegmentKind, Segments};
use manylane_frame::{Batch, Depot, Frame, HEADROOM, Pool, Region};
use manylane_net::forward::{Fate, Forwarder, Origin, PortFacts};
use manylane_net::forward::{PrepareError, Prepared, Sorted, Turn, Verdict, Verdicts, prepare};
use manylane_net::icmp::{ErrorKind, may_answer_v4, may_answer_v6};
use manylane_net::wire::checksum::Sum;
use manylane_net::wire::ethernet::{self, Tags, ether_type};
use manylane_net::wire::{ip, ipv4, ipv6, protocol, tcp, udp};
use manylane_sync::rcu::Reader;

use expected::{addresses, aged, bare, follow_each_other, make_up};
use tables::{customer, provider};

const FRAMES: u32 = 256;
const FRAME_LEN_MAX: usize = ethernet::HEADER_LEN + 1500;
/// Of the wider ports: a large packet still leaves by one, in a chain.
const MTU: u32 = 6000;
/// What the ports take: fewer frames than some received packets have, and enough for the longest.
const CHAINS: Offload = Offload { frames_max: 3, checksum: false, segments: false };
/// What a port would take that says more, but in one frame: so segments are cut for it all the same.
const EVERYTHING: Offload = Offload { frames_max: 1, checksum: true, segments: true };
const SECOND_NS: u64 = 1_000_000_000;

thread_local! {
    static ROUTER: RefCell<Router> = RefCell::new(Router::new());
}

fuzz_target!(|frame: &[u8]| {
    let frame = &frame[..frame.len().min(FRAME_LEN_MAX)];
    // Few inputs have a right header checksum by themselves; it would be the end of most mutations.
    let corrected = corrected(frame);
    ROUTER.with_borrow_mut(|router| {
        for frame in [Some(frame), corrected.as_deref()].into_iter().flatten() {
            router.in_all_forms(frame, PortId(0), Tags::NONE);
            for tags in [Tags::NONE, customer(), provider()] {
                router.in_all_forms(frame, PortId(1), tags);
            }
        }
    });
});

/// The frames of a received packet.
#[derive(Clone, Copy)]
struct Form {
    /// In parts: the bytes of the first, and those of each other.
    parts: Option<(usize, usize)>,
    checksum: Checksum,
    segments: Segments,
}

impl Form {
    const PLAIN: Form = Form { parts: None, checksum: Checksum::Valid, segments: Segments::NONE };
}

impl Form {
    /// The form of such a frame with `by` bytes more in front of its packet, or less.
    fn shifted(self, by: isize) -> Form {
        let checksum = match self.checksum {
            Checksum::Partial { start, offset } => {
                Checksum::Partial { start: (start as isize + by) as u16, offset }
            }
            other => other,
        };
        let parts = self.parts.map(|(first, step)| ((first as isize + by) as usize, step));
        Form { parts, checksum, ..self }
    }
}

/// The frame with tags.
fn tagged(frame: &[u8], tags: Tags) -> Vec<u8> {
    let (addresses, rest) = frame.split_at(frame.len().min(ethernet::ADDRESSES_LEN));
    [addresses, tags.as_bytes(), rest].concat()
}

/// The frame without the tags that it has.
fn untagged(frame: &[u8], tags: Tags) -> Vec<u8> {
    let (addresses, rest) = frame.split_at(frame.len().min(ethernet::ADDRESSES_LEN));
    [addresses, rest.strip_prefix(tags.as_bytes()).expect("these tags")].concat()
}

/// The packet with more bytes than fit in a frame behind its own, counted by its header; `None` when
/// no header can count them, or they do not fit a packet.
fn longer(frame: &[u8]) -> Option<Vec<u8>> {
    const MORE: usize = 3001;

    let view = ip::View::checked(frame.get(ethernet::HEADER_LEN..)?)?;
    let mut longer = frame[..ethernet::HEADER_LEN + view.packet_len()].to_vec();
    longer.resize(longer.len() + MORE, 0x5a);
    let (field, counted) = match view {
        ip::View::V4(_) => (16, view.packet_len()),
        ip::View::V6(_) => (18, view.packet_len() - ipv6::HEADER_LEN),
    };
    let counted = u16::try_from(counted + MORE).ok()?;
    longer[field..field + 2].copy_from_slice(&counted.to_be_bytes());
    Some(corrected(&longer).unwrap_or(longer))
}

/// What a port may say of a TCP or UDP packet that a local stack left to its device.
fn claims(frame: &[u8]) -> Option<(Checksum, Segments)> {
    let view = ip::View::checked(frame.get(ethernet::HEADER_LEN..)?)?;
    let transport = view.transport()?;
    let (kind, offset) = match (transport.protocol, view) {
        (protocol::TCP, ip::View::V4(_)) => (SegmentKind::Tcp4, tcp::CHECKSUM_OFFSET),
        (protocol::TCP, ip::View::V6(_)) => (SegmentKind::Tcp6, tcp::CHECKSUM_OFFSET),
        (protocol::UDP, _) => (SegmentKind::Udp, udp::CHECKSUM_OFFSET),
        _ => return None,
    };
    let start = HEADROOM + (ethernet::HEADER_LEN + transport.offset) as u16;
    let size = 400 + u16::from(frame[frame.len() / 2]);
    let checksum = Checksum::Partial { start, offset: offset as u16 };
    Some((checksum, Segments { kind, ecn: false, size }))
}

/// The frame with the checksum that its IPv4 header should have; `None` if it has it, or no header.
fn corrected(frame: &[u8]) -> Option<Vec<u8>> {
    let view = ipv4::View::checked(frame.get(ethernet::HEADER_LEN..)?)?;
    let header_len = view.header_len();
    if view.has_valid_checksum() {
        return None;
    }
    let mut corrected = frame.to_vec();
    let header = &mut corrected[ethernet::HEADER_LEN..][..header_len];
    header[10..12].fill(0);
    let checksum = Sum::of(header).finish();
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    Some(corrected)
}

/// Two engines over the same tables: one takes batches, the other judges frame by frame.
struct Router {
    reader: Reader,
    region: Region,
    depot: Depot,
    pool: Pool,
    fast: Forwarder,
    full: Forwarder,
    now_ns: u64,
}

impl Router {
    /// One packet by a port, with tags in front, in all the forms that it may have.
    fn in_all_forms(&mut self, frame: &[u8], entry: PortId, tags: Tags) {
        let len = tags.as_bytes().len();
        let mut turn = |frame: &[u8], form: Form| {
            self.turn(&tagged(frame, tags), entry, form.shifted(len as isize));
        };
        for checksum in [Checksum::Valid, Checksum::Unknown] {
            turn(frame, Form { checksum, ..Form::PLAIN });
        }
        let (first, step) = (usize::from(frame.last().copied().unwrap_or(0)), 700);
        turn(frame, Form { parts: Some((first, step)), ..Form::PLAIN });
        let longer = longer(frame);
        let longer = longer.as_deref().unwrap_or(frame);
        let parts = Some((first + 128, 1024));
        for checksum in [Checksum::Valid, Checksum::Unknown] {
            turn(longer, Form { parts, checksum, ..Form::PLAIN });
        }
        if let Some((checksum, segments)) = claims(longer) {
            turn(longer, Form { parts, checksum, ..Form::PLAIN });
            turn(longer, Form { parts, checksum, segments });
        }
    }

    /// One packet through both engines: as it comes from the device, and sorted by its tags.
    fn turn(&mut self, received: &[u8], entry: PortId, form: Form) {
        self.now_ns += SECOND_NS;
        let mut batch = Batch::default();
        let frame = self.receive(received, entry, form);
        batch.push(frame).expect("the batch is empty");
        let belongs = self.sub_interface(self.front(received, form), entry);
        let (tags, to) = belongs.unwrap_or((Tags::NONE, entry));
        let bytes = &untagged(received, tags)[..];
        let form = form.shifted(-(tags.as_bytes().len() as isize));
        let mut judged = self.receive(bytes, to, form);

        let guard = self.reader.guard();
        let mut verdicts = Verdicts::new();
        self.fast.forward(
            &mut Turn { guard, pool: &mut self.pool, now_ns: self.now_ns },
            &mut batch,
            &mut verdicts,
        );
        assert_eq!(verdicts.bytes(), bytes.len() as u64);
        let verdict = verdicts.list()[0];
        let sorted: Vec<Sorted> = self.fast.sorted().collect();
        let by_tags = belongs.map(|_| Sorted { port: to, frames: 1, bytes: bytes.len() as u64 });
        assert_eq!(sorted, Vec::from_iter(by_tags));
        let by_rules = self
            .full
            .resume(&mut Turn { guard, pool: &mut self.pool, now_ns: self.now_ns }, &mut judged);
        let mut frame = batch.pop().expect("it is still there");
        assert_eq!(verdict, by_rules, "the fast path decides otherwise");
        if !matches!(verdict.fate, Fate::Drop(_)) {
            assert_eq!(self.bytes(&frame), self.bytes(&judged));
            assert_eq!(self.region.meta(&frame).own, self.region.meta(&judged).own);
        }
        self.examine(bytes, &frame, verdict, form);
        if let Fate::Hold(neighbour) = verdict.fate {
            let key = self.fast.key(guard, neighbour);
            assert!(self.fast.is_waiting(guard, key, Some(neighbour)));
        }
        if let Fate::Hold(_) | Fate::Glean(_) = verdict.fate {
            assert!(self.fast.destination(&frame).is_some());
            let given_up = self.fast.give_up(
                &mut Turn { guard, pool: &mut self.pool, now_ns: self.now_ns },
                &mut frame,
            );
            assert_eq!(
                given_up,
                self.full.give_up(
                    &mut Turn { guard, pool: &mut self.pool, now_ns: self.now_ns },
                    &mut judged
                )
            );
            self.examine(bytes, &frame, given_up, form);
        }
        let (ours, theirs) = (self.fast.events(), self.full.events());
        assert!(ours.eq(theirs), "the fast path reports otherwise");
        match verdict.fate {
            Fate::Fragment(port) | Fate::Prepare(port) => {
                self.prepare(frame, CHAINS, port);
                self.prepare(judged, EVERYTHING, port);
            }
            _ => [frame, judged].into_iter().for_each(|frame| self.pool.give_back(frame)),
        }
        let frames = self.depot.frames() + self.pool.level() as u64;
        assert_eq!(frames, u64::from(FRAMES), "a frame was lost");
        self.reader.quiescent();
    }

    /// The sub-interface of a port that a frame belongs to by its tags, two at most.
    fn sub_interface(&self, front: &[u8], port: PortId) -> Option<(Tags, PortId)> {
        let tags = [2, 1].into_iter().find_map(|count| Tags::of(front, count))?;
        let vlans = &self.fast.tables().ports[port.index()].vlans;
        vlans.iter().copied().find(|&(own, _)| own == tags)
    }

    /// The bytes in the first of the frames that hold a packet.
    fn front<'b>(&self, bytes: &'b [u8], form: Form) -> &'b [u8] {
        &bytes[..form.parts.map_or(bytes.len(), |(first, _)| first.min(bytes.len()))]
    }

    fn receive(&mut self, bytes: &[u8], entry: PortId, form: Form) -> Frame {
        let (_, step) = form.parts.unwrap_or((0, 1));
        let front = self.front(bytes, form);
        let rest = &bytes[front.len()..];
        let mut packet = self.part(front, entry, form);
        for part in rest.chunks(step) {
            let part = self.part(part, entry, form);
            self.region.view().append(&mut packet, part).expect("it is not so long");
        }
        packet
    }

    fn part(&mut self, bytes: &[u8], entry: PortId, form: Form) -> Frame {
        let mut frame = self.pool.take().expect("all frames come back");
        self.region.set_ingress(&mut frame, entry, QueueId(0), form.checksum);
        self.region.meta_mut(&mut frame).segments = form.segments;
        self.region.set_window(&mut frame, HEADROOM, HEADROOM + bytes.len() as u16);
        self.region.bytes_mut(&mut frame).copy_from_slice(bytes);
        frame
    }

    /// The bytes of a packet, wherever they lie.
    fn bytes(&self, frame: &Frame) -> Vec<u8> {
        self.region.view().parts(frame).flatten().copied().collect()
    }

    /// What is transmitted is well-formed, and is the received packet or a proper answer to it.
    fn examine(&self, before: &[u8], frame: &Frame, verdict: Verdict<'_>, form: Form) {
        let (Fate::Transmit(port) | Fate::Fragment(port) | Fate::Prepare(port)) = verdict.fate
        else {
            return;
        };
        // A device has the frames of its port and of all its VLANs; before that, frames have no tags.
        let (sent, meta) = (self.bytes(frame), self.region.meta(frame));
        let belongs = match verdict.fate {
            Fate::Transmit(device) => self.sub_interface(&sent, device),
            _ => None,
        };
        let (tags, port) = belongs.unwrap_or((Tags::NONE, port));
        let (bytes, facts) = (untagged(&sent, tags), &self.fast.tables().ports[port.index()]);
        let is_partial = matches!(meta.checksum, Checksum::Partial { .. });
        if let Fate::Transmit(_) = verdict.fate {
            assert!(meta.frames() <= usize::from(facts.offload.frames_max));
            assert!(!is_partial && !meta.segments.any(), "no port takes these here");
        }
        let link = ethernet::View::checked(&bytes).expect("an Ethernet frame");
        assert_eq!(link.source(), facts.mac);
        if link.ether_type() == ether_type::ARP {
            assert_eq!(verdict.origin, Origin::Reply);
            return;
        }
        let packet = ip::View::checked(link.payload()).expect("an IP packet");
        let fits = link.payload().len() <= facts.mtu as usize;
        if !meta.segments.any() {
            assert_eq!(fits, !matches!(verdict.fate, Fate::Fragment(_)));
        }
        match packet {
            ip::View::V4(view) => assert!(view.has_valid_checksum()),
            ip::View::V6(_) => assert_eq!(link.ether_type(), ether_type::IPV6),
        }
        // VLAN 0 is none.
        let priority = Tags::of(self.front(before, form), 1).filter(Tags::is_priority);
        let before = untagged(before, priority.unwrap_or(Tags::NONE));
        let was = ip::View::checked(&before[ethernet::HEADER_LEN..]).expect("an IP packet");
        match verdict.origin {
            Origin::Received => {
                assert_eq!(packet.packet().len(), link.payload().len(), "padding is forwarded");
                assert_eq!(aged(was, form.checksum), bare(packet, form.checksum));
            }
            Origin::Error(_) => {
                assert_eq!(addresses(was).0, addresses(packet).1);
                assert!(!may_answer_v4(packet.packet(), false), "an error about an error");
                let kind = ErrorKind::HostUnreachable;
                assert!(!may_answer_v6(packet.packet(), false, kind), "an error about an error");
            }
            Origin::Reply => {}
        }
    }

    /// The pieces fit, follow each other, and are together what they were made of; and they have the tags
    /// of their port, where that prepares them for itself.
    fn prepare(&mut self, frame: Frame, offload: Offload, port: PortId) {
        let (whole, segments) = (self.bytes(&frame), self.region.meta(&frame).segments);
        let PortFacts { mtu, vlan, .. } = self.fast.tables().ports[port.index()];
        let mut pieces = Vec::new();
        let (made, tags) = match offload == CHAINS {
            true => (
                self.fast.prepare(&mut self.pool, frame, port, &mut pieces),
                vlan.map_or(Tags::NONE, |vlan| vlan.tags),
            ),
            false => (prepare(&mut self.pool, frame, offload, mtu, &mut pieces), Tags::NONE),
        };
        match made {
            Err(PrepareError { frame, .. }) => {
                assert!(pieces.is_empty());
                self.pool.give_back(frame);
            }
            Ok(Prepared { cut, fragments, .. }) => {
                assert_eq!(pieces.len() as u32, 1 + cut + fragments);
                let bytes = |piece: &Frame| untagged(&self.bytes(piece), tags);
                let bytes: Vec<Vec<u8>> = pieces.iter().map(bytes).collect();
                for (piece, bytes) in pieces.iter().zip(&bytes) {
                    let meta = self.region.meta(piece);
                    assert!(meta.frames() <= offload.frames_max.into());
                    assert!(!meta.segments.any() || offload.segments && pieces.len() == 1);
                    assert!(meta.checksum == Checksum::Valid || offload.checksum);
                    let packet = &bytes[ethernet::HEADER_LEN..];
                    let view = ip::View::checked(packet).expect("a piece is a packet");
                    assert_eq!(view.packet_len(), packet.len());
                    assert!(packet.len() <= mtu as usize || meta.segments.any());
                    if let ip::View::V4(view) = view {
                        assert!(view.has_valid_checksum());
                    }
                }
                if segments.any() {
                    let is_cut = !self.region.meta(&pieces[0]).segments.any();
                    let is_partial = self.region.meta(&pieces[0]).checksum != Checksum::Valid;
                    make_up(&whole, &bytes, is_cut.then_some(is_partial));
                } else if fragments > 0 {
                    follow_each_other(&whole[ethernet::HEADER_LEN..], &bytes);
                } else {
                    assert_eq!(bytes[0].len(), whole.len());
                }
            }
        }
        pieces.into_iter().for_each(|piece| self.pool.give_back(piece));
    }
}
