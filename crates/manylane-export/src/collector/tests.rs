use std::io::Read as _;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::time::{Duration, Instant};

use super::*;

const BOTH: [Transport; 2] = [Transport::Udp, Transport::Tcp];

fn parse(text: &str) -> Result<String, AddressError> {
    CollectorAddress::parse(text, &BOTH, 4739).map(|address| address.to_string())
}

fn collector(text: &str) -> Collector {
    let address = CollectorAddress::parse(text, &BOTH, 4739).expect("an address");
    let mut resolved = Destination::resolve(&[address]).expect("a number");
    Collector::new(resolved.remove(0))
}

fn message(bytes: &[u8]) -> Message<'_> {
    Message { bytes, records: 3 }
}

#[test]
fn an_address_has_a_transport_a_host_and_a_port() {
    for (text, read) in [
        ("udp://127.0.0.1", "udp://127.0.0.1:4739"),
        ("udp://127.0.0.1:2055/", "udp://127.0.0.1:2055"),
        ("tcp://collector.example:1", "tcp://collector.example:1"),
        ("tcp://[2001:db8::1]", "tcp://[2001:db8::1]:4739"),
        ("udp://[2001:db8::1]:9995", "udp://[2001:db8::1]:9995"),
    ] {
        assert_eq!(parse(text).expect(text), read);
    }
}

#[test]
fn every_refusal_names_the_collector_and_the_cure() {
    let parsed = |text| parse(text).expect_err(text);
    let address = |text: &&str| CollectorAddress::parse(text, &BOTH, 4739).expect("an address");
    let resolved = |all: &[&str]| {
        let all: Vec<_> = all.iter().map(address).collect();
        Destination::resolve(&all).expect_err("no such collectors")
    };
    messages!(AddressError {
        Scheme: [
            (parsed("sctp://192.0.2.1"), ["sctp://192.0.2.1"], "write udp://HOST or tcp://HOST"),
            (parsed("192.0.2.1:4739"), ["192.0.2.1:4739"], "write udp://HOST"),
        ],
        Host: [
            (parsed("udp://2001:db8::1"), ["2001:db8::1"], "in brackets"),
            (parsed("udp://:4739"), [":4739"], "HOST:PORT"),
            (parsed("udp://[2001:db8::1"), ["[2001:db8::1"], "in brackets"),
        ],
        Port: [
            (parsed("udp://192.0.2.1:0"), ["192.0.2.1:0"], "none for port 4739"),
            (parsed("tcp://192.0.2.1:x"), ["192.0.2.1:x"], "from 1 to 65535"),
        ],
        Unresolved: [(
            resolved(&["udp://no.such.host.invalid"]),
            ["no.such.host.invalid"],
            "write an address"
        ),],
        Twice: [(
            resolved(&["udp://127.0.0.1", "udp://127.0.0.1:4739"]),
            ["127.0.0.1"],
            "write one"
        ),],
    });
}

#[test]
fn one_address_may_have_a_collector_for_each_transport() {
    let all = ["udp://127.0.0.1", "tcp://127.0.0.1"];
    let all = all.map(|text| CollectorAddress::parse(text, &BOTH, 4739).expect("an address"));
    assert_eq!(Destination::resolve(&all).expect("two collectors").len(), 2);
}

#[test]
fn a_datagram_arrives_and_is_counted() {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let mut to = collector(&format!("udp://{}", socket.local_addr().expect("bound")));
    assert_eq!(to.status().state, State::Idle);
    assert_eq!(to.send(message(b"hello"), Instant::now()), Outcome::Sent);
    let mut received = [0; 16];
    assert_eq!(socket.recv(&mut received).expect("a datagram"), 5);
    let status = to.status();
    assert_eq!((status.state, status.sent, status.sent_bytes), (State::Sending, 1, 5));
    assert_eq!((status.sent_records, status.lost, status.refused), (3, 0, 0));
}

#[test]
fn a_host_without_a_listener_is_noticed_and_so_is_its_return() {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let address = socket.local_addr().expect("bound");
    drop(socket);
    let mut to = collector(&format!("udp://{address}"));
    let now = Instant::now();
    assert_eq!(to.send(message(b"1"), now), Outcome::Sent);
    // On one machine the error is there when the call returns.
    assert_eq!(to.send(message(b"2"), now), Outcome::Refused);
    assert_eq!((to.session(), to.status().state), (1, State::Unreachable));
    assert!(to.status().trouble.is_some());
    to.give_up(Load { records: 3, packets: 9, octets: 900 });
    let status = to.status();
    assert_eq!((status.sent, status.refused, status.lost, status.lost_records), (1, 1, 1, 3));
    assert_eq!((status.lost_packets, status.lost_octets), (9, 900));
    let socket = UdpSocket::bind(address).expect("a socket");
    assert_eq!(to.send(message(b"3"), now), Outcome::Sent);
    let mut received = [0; 16];
    assert_eq!(socket.recv(&mut received).expect("a datagram"), 1);
    // Whether that one has arrived is known with the next.
    assert_eq!(to.status().state, State::Unreachable);
    assert_eq!(to.send(message(b"4"), now), Outcome::Sent);
    assert_eq!((to.status().state, to.status().trouble), (State::Sending, None));
}

/// Until a connection is open: the kernel opens it while connect(2) returns, or right behind it.
fn connected(to: &mut Collector, now: Instant) {
    while to.status().state != State::Sending {
        to.tend(now);
        std::thread::yield_now();
    }
}

#[test]
fn messages_follow_each_other_in_a_connection() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let mut to = collector(&format!("tcp://{}", listener.local_addr().expect("bound")));
    let now = Instant::now();
    connected(&mut to, now);
    assert_eq!((to.session(), to.status().connections), (1, 1));
    for text in ["one", "two"] {
        assert_eq!(to.send(message(text.as_bytes()), now), Outcome::Sent);
    }
    let (mut stream, _) = listener.accept().expect("a connection");
    let mut received = [0; 6];
    stream.read_exact(&mut received).expect("both messages");
    assert_eq!(&received, b"onetwo");
    // The collector goes, and comes again: another session, no earlier than a second later.
    drop(stream);
    while to.status().state == State::Sending {
        to.tend(now);
    }
    assert_eq!(to.send(message(b"three"), now), Outcome::Lost);
    assert_eq!(to.send(message(b"four"), now + Duration::from_millis(999)), Outcome::Lost);
    assert_eq!((to.status().lost, to.status().lost_records), (2, 6));
    connected(&mut to, now + Duration::from_secs(1));
    assert_eq!((to.session(), to.status().connections), (2, 2));
    assert_eq!(to.send(message(b"five"), now), Outcome::Sent);
}

#[test]
fn attempts_to_connect_become_rarer() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let mut to = collector(&format!("tcp://{}", listener.local_addr().expect("bound")));
    drop(listener);
    let begin = Instant::now();
    let mut attempts = Vec::new();
    for second in 0..100 {
        let now = begin + Duration::from_secs(second);
        let waits = |to: &Collector| match &to.link {
            Link::Tcp(stream) => stream.waits_until(),
            Link::Udp(_) => unreachable!("by its address"),
        };
        let before = waits(&to);
        to.tend(now);
        while waits(&to).is_none() {
            to.tend(now);
        }
        if waits(&to) != before {
            attempts.push(second);
        }
        assert_eq!(to.send(message(b"lost"), now), Outcome::Lost);
    }
    assert_eq!(attempts, [0, 1, 3, 7, 15, 31, 63, 95]);
    assert_eq!((to.status().lost, to.status().connections), (100, 0));
}

#[test]
fn a_collector_that_reads_nothing_costs_a_backlog_and_is_counted() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let mut to = collector(&format!("tcp://{}", listener.local_addr().expect("bound")));
    let now = Instant::now();
    connected(&mut to, now);
    let large = vec![7; 60_000];
    let mut taken = 0u64;
    while to.send(message(&large), now) == Outcome::Sent {
        taken += 1;
    }
    assert_eq!((to.status().lost, to.session()), (1, 1));
    let (mut stream, _) = listener.accept().expect("a connection");
    let mut received = vec![0; taken as usize * large.len()];
    let reader = std::thread::spawn(move || stream.read_exact(&mut received).map(|()| received));
    while to.status().sent < taken {
        to.tend(now);
        std::thread::yield_now();
    }
    let received = reader.join().expect("it reads").expect("all messages");
    assert!(received.iter().all(|&byte| byte == 7));
    assert_eq!(to.status().sent_records, taken * 3);
}
