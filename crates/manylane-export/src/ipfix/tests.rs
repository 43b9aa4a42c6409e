use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::time::{Duration, Instant};

use super::record::{Exported, NotSent, Sampling};
use super::session::{Identity, Now, Session};
use super::template::{self, Template};
use super::*;
use crate::collector::{Collector, CollectorAddress, Destination, Load, Transport};

fn ends(is_ipv4: bool, [from, to]: [u16; 2]) -> Ends {
    let address = |last: u16| match is_ipv4 {
        true => IpAddr::from([192, 0, 2, last as u8]),
        false => IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last)),
    };
    Ends::new((address(from), from), (address(to), to))
}

fn flow(is_ipv4: bool, is_translated: bool) -> FlowRecord {
    let received = ends(is_ipv4, [10, 53]);
    FlowRecord {
        received,
        sent: if is_translated { ends(is_ipv4, [99, 53]) } else { received },
        protocol: 17,
        interfaces: [3, 4],
        packets: 0x0102_0304_0506,
        octets: 0x0708_090a_0b0c,
        start_ms: 1_700_000_000_000,
        end_ms: 1_700_000_060_000,
        reason: EndReason::ActiveTimeout,
    }
}

fn event(is_ipv4: bool, change: NatChange) -> NatEvent {
    let (received, sent) = (ends(is_ipv4, [10, 53]), ends(is_ipv4, [99, 53]));
    NatEvent { time_ms: 1_700_000_000_123, change, received, sent, protocol: 6 }
}

fn sampled(is_ipv4: bool) -> SampledFlow {
    let key =
        SampledKey { ends: ends(is_ipv4, [10, 53]), protocol: 6, class: 0x88, interfaces: [3, 4] };
    let next_hop = Some(ends(is_ipv4, [77, 0]).source.ip());
    let packet =
        SampledPacket { key, octets: 1500, tcp_flags: 0x12, next_hop, prefix_lens: [24, 0] };
    let [start_ms, end_ms] = [1_700_000_000_000, 1_700_000_060_000];
    SampledFlow {
        rate: 1000,
        packet,
        packets: 3,
        start_ms,
        end_ms,
        reason: EndReason::LackOfResources,
    }
}

fn records() -> Vec<Record> {
    let mut all = Vec::new();
    for is_ipv4 in [true, false] {
        all.extend([false, true].map(|is_translated| Record::from(flow(is_ipv4, is_translated))));
        let changes = [NatChange::Created, NatChange::Deleted];
        all.extend(changes.map(|change| Record::from(event(is_ipv4, change))));
    }
    all
}

/// A message, taken apart by RFC 7011, section 3, with nothing of ours but the numbers that it says.
#[derive(Debug, Default)]
struct Parsed {
    sequence: u32,
    domain: u32,
    time: u32,
    /// Sets, and their bodies.
    sets: Vec<(u16, Vec<u8>)>,
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}

fn parse(bytes: &[u8]) -> Parsed {
    assert_eq!((number(&bytes[..2]), number(&bytes[2..4])), (10, bytes.len() as u64), "a header");
    let word = |at: usize| number(&bytes[at..at + 4]) as u32;
    let mut parsed =
        Parsed { time: word(4), sequence: word(8), domain: word(12), ..Parsed::default() };
    let mut rest = &bytes[16..];
    while !rest.is_empty() {
        let [id, length] = [0, 2].map(|at| number(&rest[at..at + 2]));
        assert!(length > 4, "an empty set");
        parsed.sets.push((id as u16, rest[4..length as usize].to_vec()));
        rest = &rest[length as usize..];
    }
    parsed
}

/// Lengths of elements, by their number, for each template.
type Templates = BTreeMap<u16, Vec<(u16, usize)>>;

impl Parsed {
    /// Remembers the templates of this message.
    fn learn(&self, templates: &mut Templates) {
        for (id, body) in self.sets.iter().filter(|(id, _)| [2, 3].contains(id)) {
            let mut rest = &body[..];
            while !rest.is_empty() {
                let word = |at: usize| number(&rest[at..at + 2]) as u16;
                let (template, fields) = (word(0), usize::from(word(2)));
                let begin = if *id == 3 { 6 } else { 4 };
                assert!(template >= 256 && (*id == 2 || word(4) == 1), "{template}: its scope");
                let field =
                    |at: usize| (word(begin + at * 4), usize::from(word(begin + at * 4 + 2)));
                templates.insert(template, (0..fields).map(field).collect());
                rest = &rest[begin + fields * 4..];
            }
        }
    }

    /// The data records of this message: the template, and the bytes of each element.
    fn records(&self, templates: &Templates) -> Vec<(u16, BTreeMap<u16, Vec<u8>>)> {
        let mut records = Vec::new();
        for (id, body) in self.sets.iter().filter(|(id, _)| *id >= 256) {
            let mut rest = &body[..];
            while !rest.is_empty() {
                let mut record = BTreeMap::new();
                for &(element, length) in &templates[id] {
                    record.insert(element, rest[..length].to_vec());
                    rest = &rest[length..];
                }
                records.push((*id, record));
            }
        }
        records
    }
}

#[test]
fn each_template_says_how_long_its_elements_are() {
    fn check<T>(template: &Template<T>, record: &T, bytes: usize) {
        for field in template.fields {
            let mut written = Vec::new();
            (field.write)(record, &mut written);
            assert_eq!(written.len(), usize::from(field.length), "element {}", field.element);
        }
        assert_eq!(template.record_bytes(), bytes, "template {}", template.id);
    }
    for (record, bytes) in [(true, 54), (false, 78)] {
        check(template::of_flow(&flow(record, false)), &flow(record, false), bytes);
    }
    check(template::of_flow(&flow(true, true)), &flow(true, true), 66);
    check(template::of_flow(&flow(false, true)), &flow(false, true), 114);
    for (is_ipv4, bytes) in [(true, 34), (false, 82)] {
        let event = event(is_ipv4, NatChange::Created);
        check(template::of_event(&event), &event, bytes);
    }
    check(&template::EXPORTED, &Exported::default(), 28);
    check(&template::NOT_SENT, &NotSent::default(), 28);
    check(template::of_sampled(&sampled(true)), &sampled(true), 68);
    check(template::of_sampled(&sampled(false)), &sampled(false), 104);
    check(&template::SAMPLING, &Sampling { domain: 1, rate: 1000 }, 8);
}

#[test]
fn a_message_is_as_rfc_7011_says() {
    let mut message = MessageBuilder::new(7, 1234, 1_700_000_001);
    assert!(message.is_empty());
    message.add_templates();
    for record in records() {
        assert!(message.add(&record));
    }
    assert_eq!(message.data_records(), 8);
    assert_eq!((message.load().records, message.load().packets), (8, 4 * 0x0102_0304_0506));
    let parsed = parse(&message.finish());
    let Parsed { sequence, domain, time, .. } = parsed;
    assert_eq!((sequence, domain, time), (1234, 7, 1_700_000_001));
    let mut templates = Templates::new();
    parsed.learn(&mut templates);
    assert_eq!(templates.keys().copied().collect::<Vec<_>>(), (256..=266).collect::<Vec<_>>());
    let records = parsed.records(&templates);
    assert_eq!(
        records.iter().map(|(id, _)| *id).collect::<Vec<_>>(),
        [256, 257, 260, 260, 258, 259, 261, 261]
    );
    let (_, translated) = &records[1];
    for (element, bytes) in [
        (8, &[192, 0, 2, 10][..]),
        (12, &[192, 0, 2, 53]),
        (7, &[0, 10]),
        (11, &[0, 53]),
        (4, &[17]),
        (10, &[0, 0, 0, 3]),
        (14, &[0, 0, 0, 4]),
        (2, &[0, 0, 1, 2, 3, 4, 5, 6]),
        (1, &[0, 0, 7, 8, 9, 10, 11, 12]),
        (136, &[2]),
        (225, &[192, 0, 2, 99]),
        (226, &[192, 0, 2, 53]),
        (227, &[0, 99]),
        (228, &[0, 53]),
    ] {
        assert_eq!(translated[&element], bytes, "element {element}");
    }
    assert_eq!(number(&translated[&152]), 1_700_000_000_000);
    assert_eq!(number(&translated[&153]), 1_700_000_060_000);
    // IANA's NAT event types: NAT44 sessions, and those without a family.
    let events: Vec<_> = records.iter().filter_map(|(_, record)| record.get(&230)).collect();
    assert_eq!(events, [&[4], &[5], &[1], &[2]]);
    let (_, event) = &records[7];
    assert_eq!(event[&281].last(), Some(&99));
    assert_eq!(number(&event[&323]), 1_700_000_000_123);
}

#[test]
fn a_message_ends_before_it_is_fragmented() {
    let mut message = MessageBuilder::new(1, 0, 0);
    message.add_templates();
    let record = Record::from(flow(false, true));
    while message.add(&record) {}
    let length = message.finish().len();
    assert!(length <= MESSAGE_MAX && length > MESSAGE_MAX - 114, "{length}");
}

fn session(to: &str, domain: u32) -> Session {
    let both = [Transport::Udp, Transport::Tcp];
    let address = CollectorAddress::parse(to, &both, PORT).expect("an address");
    let destination = Destination::resolve(&[address]).expect("a number").remove(0);
    let [templates_every, statistics_every] = [20, 60].map(Duration::from_secs);
    let identity =
        Identity { domain, process: 42, templates_every, statistics_every, sampling: None };
    Session::new(Collector::new(destination), identity)
}

fn at(begin: Instant, seconds: u64) -> Now {
    Now { instant: begin + Duration::from_secs(seconds), time: 1_700_000_000 + seconds as u32 }
}

/// The datagrams that wait.
fn received(socket: &UdpSocket) -> Vec<Parsed> {
    socket.set_nonblocking(true).expect("a socket");
    let mut buffer = [0; 2000];
    let mut all = Vec::new();
    while let Ok(length) = socket.recv(&mut buffer) {
        all.push(parse(&buffer[..length]));
    }
    all
}

#[test]
fn sequence_numbers_count_data_records_and_templates_return() {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let mut session = session(&format!("udp://{}", socket.local_addr().expect("bound")), 9);
    let begin = Instant::now();
    let (mut templates, mut expected, mut seen) = (Templates::new(), 0, 0);
    let mut with_templates = Vec::new();
    for second in 0..=60 {
        session.tend(at(begin, second), Load { records: 5, packets: 6, octets: 7 });
        if second % 7 == 0 {
            session.send_records(&records().repeat(40), at(begin, second));
        }
        for message in received(&socket) {
            assert_eq!((message.sequence, message.domain), (expected, 9));
            assert_eq!(message.time, 1_700_000_000 + second as u32);
            message.learn(&mut templates);
            if message.sets[0].0 == 2 {
                with_templates.push(second);
            }
            let records = message.records(&templates);
            expected += records.len() as u32;
            for (template, record) in records {
                match template {
                    262 => assert_eq!(number(&record[&42]), seen, "flow records"),
                    263 => {
                        let not_sent = [165, 166, 167].map(|element| number(&record[&element]));
                        assert_eq!((not_sent, number(&record[&144])), ([5, 6, 7], 42));
                    }
                    _ => seen += 1,
                }
            }
        }
    }
    assert_eq!(with_templates, [0, 20, 40, 60]);
    // Nine times 320 records, and statistics at 0 and at 60.
    assert_eq!((seen, expected), (9 * 320, 9 * 320 + 4));
}

#[test]
fn records_of_samples_and_their_domain_state_the_interval() {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let mut session = session(&format!("udp://{}", socket.local_addr().expect("bound")), 9);
    session.identity.sampling = Some(1000);
    let begin = Instant::now();
    let both = [true, false].map(|is_ipv4| Record::Sampled(sampled(is_ipv4)));
    session.tend(at(begin, 0), Load::default());
    session.send_records(&both, at(begin, 0));
    session.tend(at(begin, 20), Load::default());
    let (mut templates, mut all) = (Templates::new(), Vec::new());
    for message in received(&socket) {
        assert_eq!(message.sequence, all.len() as u32);
        message.learn(&mut templates);
        all.extend(message.records(&templates));
    }
    let ids: Vec<_> = all.iter().map(|(id, _)| *id).collect();
    // With the templates, again with the templates 20 s later.
    assert_eq!(ids, [266, 262, 263, 264, 265, 266]);
    for (id, record) in all.iter().filter(|(id, _)| *id >= 264) {
        assert_eq!(number(&record[&34]), 1000, "{id}");
    }
    assert_eq!(number(&all[0].1[&149]), 9);
    let (v4, v6) = (&all[3].1, &all[4].1);
    for (element, bytes) in [
        (8, &[192, 0, 2, 10][..]),
        (12, &[192, 0, 2, 53]),
        (9, &[24]),
        (13, &[0]),
        (15, &[192, 0, 2, 77]),
        (5, &[0x88]),
        (6, &[0, 0x12]),
        (35, &[2]),
        (2, &[0, 0, 0, 0, 0, 0, 0, 3]),
        (136, &[5]),
    ] {
        assert_eq!(v4[&element], bytes, "element {element}");
    }
    assert_eq!((v6[&62].last(), number(&v6[&1]), number(&v6[&29])), (Some(&77), 1500, 24));
    let status = session.collector.status();
    assert_eq!((status.sent_records, status.lost_records), (2, 0));
}

#[test]
fn a_collector_that_comes_later_is_sent_templates_at_once() {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let address = socket.local_addr().expect("bound");
    drop(socket);
    let mut session = session(&format!("udp://{address}"), 1);
    let now = at(Instant::now(), 0);
    for _ in 0..3 {
        session.send_records(&records(), now);
    }
    let socket = UdpSocket::bind(address).expect("a socket");
    // The kernel still has the answer to the message before.
    session.send_records(&records(), now);
    let messages = received(&socket);
    let mut templates = Templates::new();
    messages[0].learn(&mut templates);
    assert_eq!(messages.iter().map(|one| one.records(&templates).len()).sum::<usize>(), 8);
    // Of the messages before, the kernel took some, which met no listener.
    assert!(messages[0].sequence > 0);
}

#[test]
fn a_connection_begins_with_templates_and_sequence_number_0() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let mut session = session(&format!("tcp://{}", listener.local_addr().expect("bound")), 1);
    let begin = Instant::now();
    for (round, second) in [(0, 0), (1, 2)] {
        let mut to = None;
        // Nothing is sent, or lost, before the connection is open.
        while to.is_none() {
            session.tend(at(begin, second), Load::default());
            listener.set_nonblocking(true).expect("a socket");
            to = listener.accept().ok();
        }
        let (mut stream, _) = to.expect("a connection");
        stream.set_nonblocking(false).expect("a socket");
        while session.known <= round {
            session.tend(at(begin, second), Load::default());
        }
        session.send_records(&records().repeat(9), at(begin, second));
        let (mut templates, mut expected) = (Templates::new(), 0);
        while expected < 72 {
            let mut header = [0; 4];
            stream.read_exact(&mut header).expect("a header");
            let mut message = vec![0; number(&header[2..]) as usize];
            message[..4].copy_from_slice(&header);
            stream.read_exact(&mut message[4..]).expect("a message");
            let message = parse(&message);
            assert_eq!(message.sequence, expected);
            assert_eq!(message.sets[0].0 == 2, templates.is_empty());
            message.learn(&mut templates);
            expected += message.records(&templates).len() as u32;
        }
        drop(stream);
        while session.collector.is_ready() {
            session.tend(at(begin, second), Load::default());
        }
    }
    session.send_records(&records(), at(begin, 2));
    let status = session.collector.status();
    assert_eq!((status.connections, status.lost, status.lost_records), (2, 1, 8));
}

#[test]
fn an_exporter_sends_all_that_was_handed_over_before_its_end() {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let address = format!("udp://{}", socket.local_addr().expect("bound"));
    let address = CollectorAddress::parse(&address, &[Transport::Udp], PORT).expect("an address");
    let destinations = Destination::resolve(&[address]).expect("a number");
    let exporter = Exporter::start(destinations, ExporterOptions::default()).expect("a thread");
    let watch = exporter.watch();
    let sender = exporter.sender();
    for _ in 0..10 {
        sender.send(&records());
    }
    drop(exporter);
    sender.send(&records());
    let (mut templates, mut count) = (Templates::new(), 0);
    for message in received(&socket) {
        message.learn(&mut templates);
        let records = message.records(&templates);
        count += records.iter().filter(|(template, _)| *template < 262).count();
    }
    let status = watch.status();
    assert_eq!((count, status.collectors[0].1.sent_records), (80, 80));
    // What came behind the end.
    assert_eq!(status.queue_lost.records, 8);
}
