//! The room's files together: two far ends, and between them what a router does.

use std::net::{Ipv4Addr, Ipv6Addr};

use etherparse::{PacketHeaders, TransportHeader};
use manylane_frame::{BATCH_MAX, Batch, Depot, Frame, Pool, Region, RegionConfig};
use proptest::prelude::*;

use super::*;
use crate::wire::checksum::update16;
use crate::wire::ethernet::{self, ether_type};
use crate::wire::{arp, icmp, icmpv6, ipv4, ipv6, nd, protocol};

const A: Link = Link { hosts: Mac([2, 0, 0, 0, 1, 1]), router: Mac([2, 0, 0, 0, 1, 0]) };
const B: Link = Link { hosts: Mac([2, 0, 0, 0, 2, 1]), router: Mac([2, 0, 0, 0, 2, 0]) };

/// Another writer of packets than ours reads them: headers, lengths, checksums.
#[test]
fn a_strangers_parser_finds_every_packet_valid() {
    for stream in [v4(), v6()] {
        for size in [64, 65, 84, 91, 128, 1514] {
            let stream = Stream { size, flows: 7, packets: Some(20), ..stream };
            let mut bench = Bench::new(stream, 1, 1);
            for frame in bench.send(0, 0) {
                assert_eq!(frame.len(), usize::from(stream.frame_len()));
                let packet = PacketHeaders::from_ethernet_slice(&frame).expect("it can be read");
                let Some(TransportHeader::Udp(udp)) = packet.transport else {
                    panic!("it is no UDP")
                };
                let payload = packet.payload.slice();
                let (checksum, source) = match packet.net.expect("it has an IP header") {
                    etherparse::NetHeaders::Ipv4(ip, _) => {
                        assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                        assert_eq!(
                            (ip.time_to_live, usize::from(ip.total_len)),
                            (64, frame.len() - 14)
                        );
                        (udp.calc_checksum_ipv4(&ip, payload), IpAddr::from(ip.source))
                    }
                    etherparse::NetHeaders::Ipv6(ip, _) => {
                        assert_eq!(
                            (ip.hop_limit, usize::from(ip.payload_length)),
                            (64, frame.len() - 54)
                        );
                        (udp.calc_checksum_ipv6(&ip, payload), IpAddr::from(ip.source))
                    }
                    other => panic!("{other:?} is no IP"),
                };
                assert_eq!(udp.checksum, checksum.expect("the length fits"));
                assert_eq!(source, stream.source);
            }
        }
    }
}

#[test]
fn what_one_end_sends_through_a_router_the_other_receives() {
    for stream in [v4(), v6()] {
        let stream = Stream { flows: 10, size: 100, packets: Some(1003), ..stream };
        let mut bench = Bench::new(stream, 3, 2);
        for queue in [1, 0, 2] {
            loop {
                let frames = bench.send(queue, 0);
                if frames.is_empty() {
                    break;
                }
                for frame in frames {
                    bench.take(queue % 2, &[routed(&frame)]);
                }
            }
        }
        let (near, far) = bench.reports();
        assert_eq!((near.sent, far.sent), (1003, 0));
        let all = StreamReport { received: 1003, ..StreamReport::default() };
        assert_eq!(
            far,
            FarEndReport { total: all, streams: vec![(stream.id, all)], ..far.clone() }
        );
        assert_eq!((far.corrupted, far.unexpected, near.total.received), (0, 0, 0));
    }
}

#[test]
fn a_flow_stays_on_its_queue_and_idle_queues_end() {
    let stream = Stream { flows: 3, packets: Some(100), ..v4() };
    let mut bench = Bench::new(stream, 5, 1);
    let mut sent = Vec::new();
    for queue in 0..5 {
        let frames = bench.send(queue, 0);
        for frame in &frames {
            let (stamp, _) = stamp::Stamp::read(&frame[42..]).expect("it is stamped");
            assert_eq!(stamp.flow as usize, queue);
        }
        sent.push(frames.len());
    }
    assert_eq!(sent, [34, 33, 33, 0, 0]);
    let paces = (0..5).map(|queue| bench.pace(queue, 0)).collect::<Vec<_>>();
    assert_eq!(paces, [Pace::Idle, Pace::Done, Pace::Done, Pace::Done, Pace::Done]);
}

#[test]
fn a_rate_is_kept_by_the_time_it_is_told() {
    let rate = Some(1_000_000);
    let stream = Stream { flows: 4, packets_per_second: rate, packets: Some(40), ..v4() };
    let mut bench = Bench::new(stream, 2, 1);
    let start = 1_000_000_000_000;
    assert_eq!((bench.send(0, start).len(), bench.send(1, start).len()), (1, 0));
    assert_eq!(bench.pace(0, start), Pace::After(2000));
    assert_eq!(bench.pace(1, start), Pace::After(1000));
    let later = start + 10_000;
    assert_eq!((bench.send(0, later).len(), bench.send(1, later).len()), (5, 5));
    let end = start + 1_000_000;
    assert_eq!((bench.send(0, end).len(), bench.send(1, end).len()), (14, 15));
    assert_eq!((bench.pace(0, end), bench.pace(1, end)), (Pace::Idle, Pace::Done));
    assert_eq!(bench.reports().0.sent, 40);
}

/// The port does not ask before the time that a feed named, and answers must not wait a second.
#[test]
fn a_slow_stream_does_not_delay_answers() {
    let stream = Stream { packets_per_second: Some(1), flows: 2, ..v4() };
    let mut bench = Bench::new(stream, 2, 1);
    assert_eq!((bench.send(0, 0).len(), bench.send(1, 0).len()), (1, 0));
    assert_eq!(bench.pace(0, 0), Pace::After(10_000_000));
    assert_eq!(bench.pace(1, 0), Pace::After(1_000_000_000));
}

#[test]
fn nothing_is_sent_without_frames() {
    let mut bench = Bench::new(v4(), 1, 1);
    let mut held = Batch::new();
    while bench.pool.take_into(&mut held, 1) == 1 && !held.is_full() {}
    let mut rest = Vec::new();
    while let Some(frame) = bench.pool.take() {
        rest.push(frame);
    }
    assert_eq!(bench.pace(0, 0), Pace::More);
    assert_eq!(bench.reports().0.sent, 0);
    rest.into_iter().for_each(|frame| bench.pool.give_back(frame));
    bench.pool.give_back_all(&mut held);
    assert_eq!(bench.send(0, 0).len(), BATCH_MAX);
}

#[test]
fn copies_gaps_and_late_packets_are_counted_each_as_such() {
    for stream in [v4(), v6()] {
        let mut bench = Bench::new(Stream { flows: 1, ..stream }, 1, 1);
        let frames: Vec<_> = bench.send(0, 0).iter().map(|frame| routed(frame)).collect();
        for index in [0, 1, 2, 4, 3, 3, 5, 8] {
            bench.take(0, &[frames[index].clone()]);
        }
        let (_, far) = bench.reports();
        let expected = StreamReport { received: 7, skipped: 3, reordered: 1, duplicated: 1 };
        assert_eq!((far.total, far.corrupted, far.unexpected), (expected, 0, 0));
    }
}

/// Any bit anywhere. Two fields prove nothing by themselves: an ether type of another kind makes the frame another
/// sender's, and so does an IPv6 next header; a lower IPv6 hop limit is a longer path.
#[test]
fn a_flipped_bit_anywhere_is_noticed() {
    for stream in [v4(), v6()] {
        let mut bench = Bench::new(Stream { flows: 1, size: 101, ..stream }, 1, 1);
        let frame = routed(&bench.send(0, 0)[0]);
        for at in 0..frame.len() {
            for bit in 0..8 {
                let mut flipped = frame.clone();
                flipped[at] ^= 1 << bit;
                let is_v6 = stream.source.is_ipv6();
                if is_v6 && at == 21 && flipped[at] < TTL {
                    continue;
                }
                bench.take(0, &[flipped]);
                let (_, far) = bench.reports();
                let foreign = at == 12 || at == 13 || (is_v6 && at == 20);
                let expected = if foreign { (0, 1) } else { (1, 0) };
                assert_eq!((far.corrupted, far.unexpected), expected, "bit {bit} of byte {at}");
                assert_eq!(far.total.received, 0);
                bench = Bench::new(Stream { flows: 1, size: 101, ..stream }, 1, 1);
            }
        }
    }
}

/// Damage that a router could do and then sign with a right checksum.
#[test]
fn damage_under_right_checksums_is_noticed() {
    let mut bench = Bench::new(Stream { flows: 2, size: 100, ..v4() }, 1, 1);
    let frames = bench.send(0, 0);
    let good = routed(&frames[0]);
    let mut damaged = Vec::new();

    damaged.push(frames[0].clone()); // No router has forwarded it.
    let mut words_swapped = good.clone();
    words_swapped.swap(70, 72);
    words_swapped.swap(71, 73);
    damaged.push(words_swapped);
    let mut addresses_swapped = good.clone();
    let (source, destination) = addresses_swapped[26..34].split_at_mut(4);
    source.swap_with_slice(destination);
    damaged.push(addresses_swapped);
    let mut no_checksum = good.clone();
    no_checksum[40..42].fill(0);
    damaged.push(no_checksum);
    let mut longer = good.clone();
    longer.push(0);
    damaged.push(longer);
    let mut wrong_neighbour = good.clone();
    wrong_neighbour[5] ^= 1;
    damaged.push(wrong_neighbour);

    let count = damaged.len() as u64;
    for frame in damaged {
        assert!(!bench.take(0, &[frame]));
    }
    let (_, far) = bench.reports();
    assert_eq!((far.corrupted, far.unexpected, far.total.received), (count, 0, 0));
    bench.take(0, &[good]);
    assert_eq!(bench.reports().1.total.received, 1);
}

/// Without a pattern behind it, the hash alone has to notice.
#[test]
fn exchanged_addresses_are_noticed_in_the_shortest_packet() {
    for (stream, source) in [(v4(), 26..30), (v6(), 22..38)] {
        let mut bench = Bench::new(stream, 1, 1);
        let mut frame = routed(&bench.send(0, 0)[0]);
        assert_eq!(frame.len(), stream.frame_len().into());
        let (front, back) = frame.split_at_mut(source.end);
        front[source.clone()].swap_with_slice(&mut back[..source.len()]);
        bench.take(0, &[frame]);
        let (_, far) = bench.reports();
        assert_eq!((far.corrupted, far.total.received), (1, 0));
    }
}

/// About one packet in 65536 has it.
#[test]
fn a_zero_checksum_is_sent_as_all_ones() {
    let mut bench = Bench::new(v4(), 1, 1);
    let mut batch = Batch::new();
    let mut all_ones = 0;
    for _ in 0..4 * 65536 / BATCH_MAX {
        bench.near.feeds[0].fill(&mut bench.pool, &mut batch, 0);
        for frame in batch.iter() {
            let checksum = &bench.region.bytes(frame)[40..42];
            assert_ne!(checksum, [0, 0]);
            all_ones += u32::from(checksum == [0xff, 0xff]);
        }
        bench.pool.give_back_all(&mut batch);
    }
    assert!(all_ones > 0, "the corner was not reached");
}

/// Each worker keeps the order, and yet the flow is reordered: the new worker was faster.
#[test]
fn a_hand_off_that_overtakes_is_noticed_across_sinks() {
    let mut bench = Bench::new(Stream { flows: 1, ..v4() }, 1, 2);
    let frames: Vec<_> = bench.send(0, 0).iter().map(|frame| routed(frame)).collect();
    bench.take(0, &frames[..10]);
    bench.take(1, &frames[12..20]);
    bench.take(0, &frames[10..12]);
    bench.take(1, &frames[20..30]);
    bench.take(0, &frames[30..40]);
    let total = StreamReport { received: 40, skipped: 2, reordered: 2, duplicated: 0 };
    assert_eq!(bench.reports().1.total, total);
}

#[test]
fn crossing_streams_are_told_apart() {
    let (one, two) = (v4(), Stream { id: StreamId(9), flows: 3, ..v6() });
    let expected = vec![one.expected(), two.expected()];
    let config = FarEndConfig { expected, ..config(Some(two), B, 1, 1) };
    let mut bench = Bench::new(one, 1, 1);
    bench.far = FarEnd::new(&config).expect("the configuration is right");
    for frame in bench.send(0, 0) {
        bench.take(0, &[routed(&frame)]);
    }
    let third = Stream { id: StreamId(10), ..one };
    let more_flows = Stream { flows: 5, ..two };
    for stranger in [third, more_flows] {
        for frame in Bench::new(stranger, 1, 1).send(0, 0).iter().take(5) {
            bench.take(0, &[routed(frame)]);
        }
    }
    let far = bench.far.reader.report();
    let received = |received| StreamReport { received, ..StreamReport::default() };
    assert_eq!(far.streams, [(one.id, received(64)), (two.id, received(3))]);
    assert_eq!((far.unexpected, far.total), (7, received(67)));
}

#[test]
fn arp_requests_for_any_address_get_the_hosts_mac() {
    let mut bench = Bench::new(v4(), 2, 2);
    let (ours, theirs) = (Ipv4Addr::new(10, 1, 0, 254), Ipv4Addr::new(10, 1, 0, 77));
    let ask = |sender, target| {
        written(|buf| {
            arp::Packet::request(A.router, sender, target).emit_frame(buf, Mac::BROADCAST)
        })
    };
    assert!(bench.take_near(1, &[ask(ours, theirs)]), "a feed must hear of it");
    let frames = bench.send(0, 0);
    let answer = ethernet::View::checked(&frames[0]).expect("it is a frame");
    assert_eq!((answer.destination(), answer.source()), (A.router, A.hosts));
    let answer = arp::Packet::checked(answer.payload()).expect("it is an ARP packet");
    let expected = arp::Packet {
        operation: arp::Operation::Reply,
        sender_mac: A.hosts,
        sender: theirs,
        target_mac: A.router,
        target: ours,
    };
    assert_eq!(answer, expected);
    assert_eq!(frames.len(), BATCH_MAX, "packets of the stream follow in the same batch");

    // A router that probes its own address must not learn that it is taken.
    assert!(!bench.take_near(0, &[ask(Ipv4Addr::UNSPECIFIED, ours), ask(ours, ours)]));
    let (near, _) = bench.reports();
    assert_eq!((near.answers_sent, near.heard, near.unexpected), (1, 2, 0));
}

#[test]
fn neighbour_solicitations_for_any_address_get_the_hosts_mac() {
    let mut bench = Bench::new(Stream { packets: Some(1), ..v6() }, 1, 1);
    let ours: Ipv6Addr = "2001:db8:1::ffff".parse().expect("an address");
    let theirs: Ipv6Addr = "2001:db8:1::77".parse().expect("an address");
    let question = nd::Solicitation::ask(A.router, ours, theirs);
    assert!(bench.take_near(0, &[written(|buf| question.emit(buf, A.router, A.hosts))]));
    let frames = bench.send(0, 0);
    let answer = ethernet::View::checked(&frames[0]).expect("it is a frame");
    assert_eq!((answer.destination(), answer.source()), (A.router, A.hosts));
    let Some(nd::Message::Advertisement(answer)) = nd::Message::checked(answer.payload()) else {
        panic!("it is no advertisement")
    };
    assert_eq!((answer.target, answer.destination), (theirs, ours));
    assert_eq!((answer.link_layer, answer.solicited, answer.router), (Some(A.hosts), true, false));

    let detection = nd::Solicitation::detect_duplicate(ours);
    let news = nd::Advertisement::unsolicited(ours, A.router);
    let heard = [
        written(|buf| detection.emit(buf, A.router, A.hosts)),
        written(|buf| news.emit(buf, A.router, A.hosts)),
    ];
    assert!(!bench.take_near(0, &heard));
    let (near, _) = bench.reports();
    assert_eq!((near.answers_sent, near.heard, near.unexpected), (1, 2, 0));
    assert_eq!(bench.pace(0, 0), Pace::Idle, "the stream is over, answers are not");
}

#[test]
fn pings_are_answered_up_to_a_length() {
    let mut bench = Bench::new(Stream { packets: Some(1), ..v6() }, 1, 1);
    assert_eq!(bench.send(0, 0).len(), 1);
    assert!(bench.take_near(0, &[ping_v4(56), ping_v6(56), ping_v4(1000)]));
    let frames = bench.send(0, 0);
    assert_eq!(frames.len(), 2);
    let packet = ethernet::View::checked(&frames[0]).expect("it is a frame").payload();
    let packet = ipv4::View::checked(packet).expect("it is IPv4");
    let reply = icmp::View::checked(packet.payload()).expect("it is ICMP");
    assert!(packet.has_valid_checksum() && reply.has_valid_checksum());
    assert_eq!((reply.kind(), packet.destination()), (icmp::kind::ECHO_REPLY, PINGER_V4));
    let frame = ethernet::View::checked(&frames[1]).expect("it is a frame");
    assert_eq!((frame.destination(), frame.source()), (A.router, A.hosts));
    let packet = ipv6::View::checked(frame.payload()).expect("it is IPv6");
    let reply = icmpv6::View::checked(packet.payload()).expect("it is ICMPv6");
    assert!(reply.has_valid_checksum(packet.source(), packet.destination()));
    assert_eq!((reply.kind(), packet.destination()), (icmpv6::kind::ECHO_REPLY, PINGER_V6));
    let (near, _) = bench.reports();
    assert_eq!((near.answers_sent, near.unexpected), (2, 1));
}

#[test]
fn answers_that_find_no_room_are_lost_and_counted() {
    let mut bench = Bench::new(Stream { packets: Some(1), ..v4() }, 1, 1);
    let ping = ping_v4(20);
    for _ in 0..ANSWERS_MAX {
        assert!(bench.take_near(0, std::slice::from_ref(&ping)));
    }
    assert!(!bench.take_near(0, &[ping.clone(), ping]));
    assert_eq!(bench.send(0, 0).len(), BATCH_MAX);
    assert_eq!(bench.pace(0, 0), Pace::More);
    let rest: usize = (0..5).map(|_| bench.send(0, 0).len()).sum();
    let (near, _) = bench.reports();
    assert_eq!((near.answers_sent, near.answers_lost), (ANSWERS_MAX as u64, 2));
    // The stream's packet arrived after the last answer.
    assert_eq!((rest, near.sent), (ANSWERS_MAX - 2 * BATCH_MAX + 1, 1));
}

#[test]
fn each_mistake_in_the_configuration_is_named() {
    let good = config(Some(v4()), A, 1, 1);
    let with = |stream| FarEndConfig { stream: Some(stream), ..good.clone() };
    for (config, error) in [
        (FarEndConfig { queues: 0, ..good.clone() }, FarEndError::NoQueue),
        (
            with(Stream { source: v6().source, ..v4() }),
            FarEndError::Families { source: v6().source, destination: v4().destination },
        ),
        (
            with(Stream { destination_len: 33, ..v4() }),
            FarEndError::PrefixLength { len: 33, len_max: 32 },
        ),
        (with(Stream { flows: 0, ..v4() }), FarEndError::Flows(0)),
        (with(Stream { packets_per_second: Some(0), ..v4() }), FarEndError::NoRate),
        (
            with(Stream { size: 1793, ..v4() }),
            FarEndError::FrameTooLong { len: 1793, room: 2048 - 256 },
        ),
        (
            FarEndConfig { expected: vec![v4().expected(); 2], ..good.clone() },
            FarEndError::SameStream(v4().id),
        ),
    ] {
        assert_eq!(FarEnd::new(&config).err(), Some(error), "{error}");
    }
}

#[test]
fn the_parts_can_go_to_their_threads() {
    fn sent_anywhere<T: Send>(_: &T) {}
    let end = FarEnd::new(&config(Some(v4()), A, 1, 1)).expect("the configuration is right");
    sent_anywhere(&end.feeds);
    sent_anywhere(&end.sinks);
    let reader = end.reader.clone();
    std::thread::spawn(move || reader.report()).join().expect("reading does not panic");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever a broken forwarder sends: no panic, and every frame counted once.
    #[test]
    fn every_frame_is_counted_once(
        which in 0..4usize, cut in 0..120usize,
        changes in prop::collection::vec((0..120usize, any::<u8>()), 0..6),
    ) {
        let mut bench = Bench::new(Stream { size: 100, ..v4() }, 1, 1);
        let mut frame = match which {
            0 => routed(&bench.send(0, 0)[0]),
            1 => routed(&Bench::new(Stream { size: 100, ..v6() }, 1, 1).send(0, 0)[0]),
            2 => ping_v4(30),
            _ => ping_v6(30),
        };
        frame.truncate(cut);
        for (at, byte) in changes {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        let answered = bench.take(0, &[frame]);
        let (_, far) = bench.reports();
        let counted = far.total.received + far.corrupted + far.unexpected + far.heard;
        prop_assert_eq!(counted + u64::from(answered), 1);
    }

    #[test]
    fn any_bytes_may_come(frame in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut bench = Bench::new(v4(), 1, 1);
        prop_assert!(!bench.take(0, &[frame]));
    }
}

const PINGER_V4: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const PINGER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, 1);

/// Two far ends: `near` sends, `far` keeps the books of it.
struct Bench {
    near: FarEnd,
    far: FarEnd,
    pool: Pool,
    region: Region,
}

impl Bench {
    fn new(stream: Stream, queues: u16, sinks: u16) -> Bench {
        let region = Region::new(RegionConfig { frames: 128, frame_size: 2048 }).expect("256 KiB");
        let pool = Depot::new(region.clone(), 1).expect("the region is new").pool();
        let near = FarEnd::new(&config(Some(stream), A, queues, sinks));
        let far = FarEndConfig { expected: vec![stream.expected()], ..config(None, B, 1, sinks) };
        let far = FarEnd::new(&far).expect("the configuration is right");
        Bench { near: near.expect("the configuration is right"), far, pool, region }
    }

    /// What one call of a feed sends.
    fn send(&mut self, queue: usize, now_ns: u64) -> Vec<Vec<u8>> {
        let mut batch = Batch::new();
        self.near.feeds[queue].fill(&mut self.pool, &mut batch, now_ns);
        let frames = batch.iter().map(|frame| self.region.bytes(frame).to_vec()).collect();
        self.pool.give_back_all(&mut batch);
        frames
    }

    /// What a feed says of when it has more. Nothing may be due, or its frames are lost to the test.
    fn pace(&mut self, queue: usize, now_ns: u64) -> Pace {
        let mut batch = Batch::new();
        let pace = self.near.feeds[queue].fill(&mut self.pool, &mut batch, now_ns);
        self.pool.give_back_all(&mut batch);
        pace
    }

    fn take(&mut self, sink: usize, frames: &[Vec<u8>]) -> bool {
        take(&mut self.far.sinks[sink], &mut self.pool, frames)
    }

    fn take_near(&mut self, sink: usize, frames: &[Vec<u8>]) -> bool {
        take(&mut self.near.sinks[sink], &mut self.pool, frames)
    }

    fn reports(&self) -> (FarEndReport, FarEndReport) {
        (self.near.reader.report(), self.far.reader.report())
    }
}

fn take(sink: &mut Sink, pool: &mut Pool, frames: &[Vec<u8>]) -> bool {
    let region = pool.region().clone();
    let mut batch = Batch::new();
    for bytes in frames {
        let mut frame: Frame = pool.take().expect("the pool is large enough");
        region.set_window(&mut frame, 256, 256 + bytes.len() as u16);
        region.bytes_mut(&mut frame).copy_from_slice(bytes);
        batch.push(frame).expect("a test has few frames");
    }
    let answered = sink.take(&region, batch.as_slice());
    pool.give_back_all(&mut batch);
    answered
}

/// What a router between A and B makes of a frame.
fn routed(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let ether_type = ethernet::View::checked(&frame).expect("it is a frame").ether_type();
    ethernet::emit(&mut frame, B.hosts, B.router, ether_type).expect("it has a header");
    if ether_type == ether_type::IPV4 {
        let word = |frame: &[u8], at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        let before = word(&frame, 22);
        frame[22] -= 1;
        let checksum = update16(word(&frame, 24), before, word(&frame, 22));
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    } else {
        frame[21] -= 1;
    }
    frame
}

fn ping_v4(data_len: usize) -> Vec<u8> {
    let mut frame = vec![7; 42 + data_len];
    ethernet::emit(&mut frame, A.hosts, A.router, ether_type::IPV4).expect("there is room");
    let header = ipv4::Header {
        tos: 0,
        identification: 0,
        dont_fragment: true,
        ttl: 9,
        protocol: protocol::ICMP,
        source: PINGER_V4,
        destination: Ipv4Addr::new(10, 1, 0, 3),
    };
    header.emit(&mut frame[14..], 8 + data_len).expect("there is room");
    icmp::emit(&mut frame[34..], icmp::kind::ECHO_REQUEST, 0, 1).expect("there is room");
    frame
}

fn ping_v6(data_len: usize) -> Vec<u8> {
    let mut frame = vec![7; 62 + data_len];
    ethernet::emit(&mut frame, A.hosts, A.router, ether_type::IPV6).expect("there is room");
    let destination = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 3);
    let header = ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        next_header: protocol::ICMPV6,
        hop_limit: 9,
        source: PINGER_V6,
        destination,
    };
    header.emit(&mut frame[14..], 8 + data_len).expect("there is room");
    let kind = icmpv6::kind::ECHO_REQUEST;
    icmpv6::emit(&mut frame[54..], kind, 0, 1, PINGER_V6, destination).expect("there is room");
    frame
}

fn written(write: impl FnOnce(&mut [u8]) -> Option<usize>) -> Vec<u8> {
    let mut buf = [0; 128];
    let len = write(&mut buf).expect("there is room");
    buf[..len].to_vec()
}

fn config(stream: Option<Stream>, link: Link, queues: u16, sinks: u16) -> FarEndConfig {
    FarEndConfig { link, stream, expected: Vec::new(), queues, sinks, frame_size: 2048 }
}

fn v4() -> Stream {
    Stream {
        id: StreamId(4),
        source: Ipv4Addr::new(10, 1, 0, 1).into(),
        destination: Ipv4Addr::new(10, 4, 0, 0).into(),
        destination_len: 16,
        flows: 64,
        size: 64,
        packets: None,
        packets_per_second: None,
        seed: 1,
    }
}

fn v6() -> Stream {
    Stream {
        id: StreamId(6),
        source: "2001:db8:1::1".parse().expect("an address"),
        destination: "2001:db8:4::".parse().expect("an address"),
        destination_len: 48,
        ..v4()
    }
}
