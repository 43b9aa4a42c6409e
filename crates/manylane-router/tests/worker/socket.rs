//! Packet sockets: what they are given of what passes, and never anything of a former binding.

use std::net::IpAddr;
use std::thread;

use manylane_frame::vocabulary::{Created, DropReason, Point, PortId};
use manylane_io::packet_ring::RingConfig;
use manylane_net::filter::{Instruction, Program};
use manylane_net::neighbour::HoldLimits;
use manylane_sync::words::WordsMut;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::rig::*;
use manylane_router::socket::{Fanout, PacketSocket, Points, SocketError, Statistics, protocol};
use manylane_worker::stats::PortCount;
use manylane_worker::worker::{STOP, Worker};

/// What a socket was given: point, port, length, reason, bytes.
type Given = (Point, u16, u32, Option<DropReason>, Vec<u8>);

/// A worker that forwards what is fed to port 0 and 2, by IPv4 and IPv6, to port 1.
struct Floor {
    hall: Hall,
    worker: Worker,
    feeds: [Feed; 2],
    seen: Vec<Seen>,
    now_ns: u64,
}

const FAR: [&str; 2] = ["10.1.0.2", "2001:db8:1::2"];

impl Floor {
    fn new() -> Floor {
        Floor::in_parts(usize::MAX)
    }

    fn in_parts(part_len: usize) -> Floor {
        let mut hall = Hall::new(1);
        let feeds = [Feed::default(), Feed::default()];
        let queues =
            vec![fed_in_parts(0, 0, &feeds[0], part_len), fed_in_parts(2, 3, &feeds[1], part_len)];
        let (seen, exits) = sinks();
        let worker = hall.worker(queues, exits, HoldLimits::default());
        FAR.iter().for_each(|addr| hall.control.set(addr, 1));
        Floor { hall, worker, feeds, seen, now_ns: 0 }
    }

    fn open(&self, protocol: u16) -> PacketSocket {
        self.hall.sockets.open(protocol).expect("there is room")
    }

    /// Port 0 or 2 receives the frames.
    fn feed(&self, port: usize, frames: impl IntoIterator<Item = Vec<u8>>) {
        self.feeds[port / 2].lock().unwrap().extend(frames);
    }

    /// Turns until all has passed and no block waits for more.
    fn turn(&mut self) {
        while self.worker.turn(self.now_ns) > 0 {}
        self.now_ns += SECOND;
        self.worker.turn(self.now_ns);
        self.worker.turn(self.now_ns + SECOND);
        self.now_ns += 2 * SECOND;
    }

    fn close(self) {
        self.hall.close(vec![self.worker]);
    }
}

fn far(which: usize) -> IpAddr {
    FAR[which].parse().unwrap()
}

/// One packet for each family.
fn both(sequence: u32) -> [Vec<u8>; 2] {
    [0, 1].map(|which| packet(far(which), 7, sequence, 100))
}

fn given(socket: &mut PacketSocket) -> Vec<Given> {
    let mut all = Vec::new();
    while let Some(block) = socket.receive() {
        all.extend(block.packets().map(|packet| {
            let record = packet.record;
            let bytes = packet.bytes.to_vec();
            (record.point, record.port.0, record.len, record.reason, bytes)
        }));
    }
    all
}

/// `ldh [12]; jeq ether type; ret snap; ret 0`.
fn of_type(ether_type: u32, snap: u32) -> Program {
    let instruction = |(code, jt, jf, k)| Instruction { code, jt, jf, k };
    let list = [(0x28, 0, 0, 12), (0x15, 0, 1, ether_type), (0x06, 0, 0, snap), (0x06, 0, 0, 0)];
    Program::new(list.map(instruction).to_vec()).expect("it is a good program")
}

#[test]
fn each_point_shows_packets_as_they_are_there() {
    let mut floor = Floor::new();
    let mut socket = floor.open(protocol::ALL);
    socket.set_points(Points::RECEIVE | Points::TRANSMIT | Points::DROP).expect("there is room");
    let nowhere: Vec<_> =
        ["9.9.9.9", "2001:db8:9::9"].map(|addr| packet(addr.parse().unwrap(), 7, 0, 100)).into();
    let came = [both(0).to_vec(), nowhere].concat();
    floor.feed(0, came.clone());
    floor.turn();
    let given = given(&mut socket);
    let at = |point| given.iter().filter(move |given| given.0 == point);
    let received: Vec<_> = at(Point::Receive).map(|given| given.4.clone()).collect();
    assert_eq!(received, came, "as it came, in order");
    assert!(at(Point::Receive).all(|given| given.1 == 0 && given.3.is_none()));
    let transmitted: Vec<_> =
        at(Point::Transmit).filter(|given| given.1 == 1).map(|given| given.4.clone()).collect();
    assert_eq!(transmitted, *floor.seen[1].lock().unwrap(), "as it left");
    // What an error was made of is shown as it was before.
    let dropped: Vec<_> = at(Point::Drop).cloned().collect();
    let expected: Vec<Given> = came[2..]
        .iter()
        .map(|frame| (Point::Drop, 0, frame.len() as u32, Some(DropReason::NoRoute), frame.clone()))
        .collect();
    assert_eq!(dropped, expected);
    assert_eq!(floor.hall.created(0, Created::Error), 2, "errors were made of them");
    drop(socket);
    floor.close();
}

/// As with packet(7).
#[test]
fn a_socket_is_given_what_it_is_bound_to() {
    let mut floor = Floor::new();
    let mut socket = floor.open(protocol::NONE);
    let rounds: [(Option<u16>, u16, usize); 6] = [
        (None, protocol::NONE, 0),
        (None, protocol::ALL, 4),
        (Some(0), protocol::ALL, 2),
        (Some(2), protocol::IPV6, 1),
        (Some(1), protocol::ALL, 0),
        (None, protocol::IPV4, 2),
    ];
    for (sequence, (port, protocol, count)) in (0..).zip(rounds) {
        socket.bind(port.map(PortId), protocol).expect("there is room");
        floor.feed(0, both(sequence));
        floor.feed(2, both(sequence));
        floor.turn();
        let given = given(&mut socket);
        assert_eq!(given.len(), count, "{port:?}, {protocol:#x}");
        for (.., bytes) in given {
            assert_eq!(stamp(&bytes), Some((7, sequence)), "of this binding");
        }
    }
    let error = socket.bind(Some(PortId(9)), protocol::ALL).expect_err("there is none");
    assert!(matches!(error, SocketError::NoSuchPort(PortId(9))), "{error}");
    assert_eq!(socket.endpoint().bound(), (None, protocol::IPV4), "it is as it was");
    drop(socket);
    floor.close();
}

/// Neither what a worker had not published, nor what waits to be read, even if the former binding returns.
#[test]
fn nothing_of_a_former_binding_is_given() {
    let mut floor = Floor::new();
    let mut socket = floor.open(protocol::ALL);
    floor.feed(0, both(0));
    floor.turn();
    floor.feed(0, both(1));
    floor.worker.turn(floor.now_ns); // In a block that waits for more.
    socket.bind(Some(PortId(2)), protocol::ALL).expect("there is room");
    socket.bind(None, protocol::ALL).expect("there is room");
    floor.feed(0, both(2));
    floor.turn();
    let sequences: Vec<_> = given(&mut socket).iter().map(|given| stamp(&given.4)).collect();
    assert_eq!(sequences, [Some((7, 2)); 2]);
    assert_eq!(socket.stale(), 2, "blocks of the first binding");

    let before = socket.endpoint().generation();
    socket.bind(None, protocol::ALL).expect("it is what it is");
    assert_eq!(socket.endpoint().generation(), before, "a bind that changes nothing does nothing");
    drop(socket);
    floor.close();
}

/// The next socket has the last one's ring.
#[test]
fn nothing_of_a_closed_socket_is_given_to_the_next() {
    let mut floor = Floor::new();
    for sequence in 0..10 {
        let mut socket = floor.open(protocol::ALL);
        assert_eq!(given(&mut socket), []);
        assert_eq!(socket.statistics(), Statistics::default());
        floor.feed(0, both(sequence));
        match sequence % 3 {
            0 => floor.turn(),                        // Its packets wait to be read.
            1 => _ = floor.worker.turn(floor.now_ns), // Or is not even published.
            _ => {
                floor.turn();
                assert_eq!(given(&mut socket).len(), 2);
            }
        }
    }
    let ring = floor.hall.sockets.memory();
    floor.open(protocol::ALL);
    assert_eq!(floor.hall.sockets.memory(), ring, "one ring was enough for all of them");
    floor.turn();
    floor.close();
}

#[test]
fn a_filter_chooses_and_a_snap_length_cuts() {
    let mut floor = Floor::in_parts(40);
    let mut socket = floor.open(protocol::ALL);
    for (ether_type, which) in [(0x0800, 0), (0x86dd, 1)] {
        socket.set_filter(of_type(ether_type, 60)).expect("there is room");
        floor.feed(0, both(0));
        floor.turn();
        let whole = &both(0)[which];
        let expected = (Point::Receive, 0, whole.len() as u32, None, whole[..60].to_vec());
        assert_eq!(given(&mut socket), [expected], "out of several frames");
    }
    socket.set_filter(Program::accept_all()).expect("there is room");
    for (snap, kept) in [(1, 1), (50, 50), (0, usize::MAX)] {
        socket.set_snap(snap).expect("there is room");
        floor.feed(0, both(0));
        floor.turn();
        let given = given(&mut socket);
        assert_eq!(given.len(), 2);
        for ((.., len, _, bytes), frame) in given.iter().zip(both(0)) {
            assert_eq!((*len as usize, &**bytes), (frame.len(), &frame[..kept.min(frame.len())]));
        }
    }
    drop(socket);
    floor.close();
}

#[test]
fn a_reader_that_is_slow_loses_packets_and_forwarding_none() {
    let mut floor = Floor::new();
    let mut socket = floor.open(protocol::NONE);
    let small = RingConfig { block_size: 4096, blocks: 2, retire_ns: 0 };
    socket.set_ring(small).expect("there is room");
    socket.bind(None, protocol::ALL).expect("there is room");
    for sequence in 0..100 {
        floor.feed(0, both(sequence));
        floor.turn();
    }
    let Statistics { packets, lost } = socket.statistics();
    assert_eq!(packets, 200);
    let given = given(&mut socket);
    assert_eq!(given.len() as u64 + lost, packets);
    assert_eq!(given.len(), 4, "a block for each turn");
    assert_eq!(socket.statistics(), Statistics::default(), "asking begins anew");
    assert_eq!(floor.hall.sum(1, PortCount::Sent), 200);
    floor.feed(0, both(100));
    floor.turn();
    assert_eq!(super::socket::given(&mut socket).len(), 2, "read, it has room");
    drop(socket);
    floor.close();
}

#[test]
fn a_group_gives_each_packet_to_one_member() {
    for &(word, mode) in Fanout::WORDS {
        let mut floor = Floor::new();
        let mut members: Vec<_> = (0..3).map(|_| floor.open(protocol::ALL)).collect();
        for member in &mut members {
            member.join_fanout(7, mode).expect("there is room");
        }
        let mut other = floor.open(protocol::ALL);
        for flow in 0..60 {
            floor.feed(0, [0, 1].map(|which| packet(far(which), flow / 2, 0, 4)));
        }
        floor.turn();
        let given: Vec<_> = members.iter_mut().map(given).collect();
        let counts: Vec<_> = given.iter().map(Vec::len).collect();
        assert_eq!(counts.iter().sum::<usize>(), 120, "{word}: {counts:?}");
        match mode {
            Fanout::Hash => {
                assert!(counts.iter().all(|&count| count > 0), "{counts:?}");
                for flow in 0..30 {
                    for which in [0, 1] {
                        let of = |given: &Given| {
                            stamp(&given.4) == Some((flow, 0))
                                && (given.4[12] == 0x08) == (which == 0)
                        };
                        let mut has = given.iter().filter(|given| given.iter().any(of));
                        assert!(has.next().is_some() && has.next().is_none(), "one member a flow");
                    }
                }
            }
            Fanout::LoadBalance => assert_eq!(counts, [40; 3]),
            Fanout::Cpu | Fanout::QueueMapping | Fanout::Rollover => {
                assert_eq!(counts, [120, 0, 0])
            }
        }
        assert_eq!(super::socket::given(&mut other).len(), 120, "who is in no group has all");

        // The member that leaves has all, and those that stay share the rest.
        members[0].leave_fanout().expect("there is room");
        drop(members.pop());
        floor.feed(0, both(0));
        floor.turn();
        let counts: Vec<_> =
            members.iter_mut().map(super::socket::given).map(|given| given.len()).collect();
        assert_eq!(counts, [2, 2], "{word}");
        drop((members, other));
        floor.close();
    }
}

#[test]
fn who_rolls_over_goes_to_the_next_only_when_the_first_is_full() {
    let mut floor = Floor::new();
    let small = RingConfig { block_size: 4096, blocks: 2, retire_ns: 0 };
    let mut members: Vec<_> = (0..2).map(|_| floor.open(protocol::ALL)).collect();
    for member in &mut members {
        member.set_ring(small).expect("there is room");
        member.join_fanout(7, Fanout::Rollover).expect("there is room");
    }
    for sequence in 0..6 {
        floor.feed(0, both(sequence));
        floor.turn();
    }
    let lost: Vec<_> = members.iter_mut().map(|member| member.statistics().lost).collect();
    let counts: Vec<_> = members.iter_mut().map(|member| given(member).len()).collect();
    assert_eq!((counts, lost), (vec![4, 4], vec![0, 4]), "the last one loses what nobody takes");
    drop(members);
    floor.close();
}

#[test]
fn a_group_is_of_equals() {
    let floor = Floor::new();
    let mut one = floor.open(protocol::ALL);
    let mut two = floor.open(protocol::NONE);
    one.join_fanout(1, Fanout::Hash).expect("there is room");
    assert!(matches!(two.join_fanout(1, Fanout::Hash), Err(SocketError::NotBound)));
    two.bind(Some(PortId(0)), protocol::ALL).expect("there is room");
    assert!(matches!(two.join_fanout(1, Fanout::Hash), Err(SocketError::GroupDiffers)));
    two.bind(None, protocol::ALL).expect("there is room");
    assert!(matches!(two.join_fanout(1, Fanout::Cpu), Err(SocketError::GroupDiffers)));
    two.join_fanout(1, Fanout::Hash).expect("now it is one of them");
    assert!(matches!(two.join_fanout(1, Fanout::Hash), Err(SocketError::InGroup)));
    assert!(matches!(two.bind(None, protocol::IPV4), Err(SocketError::InGroup)));
    two.bind(None, protocol::ALL).expect("it changes nothing");
    drop((one, two));
    let mut three = floor.open(protocol::ALL);
    three.join_fanout(1, Fanout::Cpu).expect("the group went with its last member");
    drop(three);
    floor.close();
}

/// Past all rules, as it is, and accounted for.
#[test]
fn what_a_socket_sends_leaves_by_its_port() {
    let mut floor = Floor::new();
    let mut socket = floor.open(protocol::NONE);
    let error = socket.send(&[0; 60]).expect_err("it is bound to no port");
    assert!(matches!(error, SocketError::NotBound), "{error}");
    socket.bind(Some(PortId(1)), protocol::NONE).expect("there is room");
    let sent: Vec<Vec<u8>> =
        [14usize, 60, 1500].map(|len| (0..len).map(|at| at as u8).collect()).into();
    for bytes in &sent {
        socket.send(bytes).expect("there is room");
    }
    for len in [0, 13, 1600] {
        let error = socket.send(&vec![0; len]).expect_err("no packet has such a length");
        assert!(matches!(error, SocketError::Length { .. }), "{error}");
    }
    floor.turn();
    assert_eq!(*floor.seen[1].lock().unwrap(), sent);
    assert_eq!(floor.hall.created(1, Created::Injected), 3);
    let full = (0..).find(|_| socket.send(&[0; 60]).is_err()).expect("there is a bound");
    assert_eq!(full, 256);
    floor.turn();
    assert_eq!(floor.seen[1].lock().unwrap().len(), 3 + full);
    socket.send(&[0; 60]).expect("what was sent has left");
    floor.turn();
    drop(socket);
    floor.close();
}

#[test]
fn sockets_and_their_memory_are_bounded() {
    // Each socket has a descriptor to sleep on: as many as this process may have at most.
    let files = Resource::Nofile;
    let maximum = getrlimit(files).maximum;
    setrlimit(files, Rlimit { current: maximum, maximum }).expect("up to its maximum anybody may");
    let floor = Floor::new();
    let small = RingConfig { block_size: 4096, blocks: 2, retire_ns: 0 };
    let mut one = floor.open(protocol::NONE);
    one.set_ring(small).expect("there is room");
    let before = floor.hall.sockets.memory();
    let large = RingConfig { block_size: 4 << 20, blocks: 1024, ..small };
    let error = one.set_ring(large).expect_err("that is more than all may have");
    assert!(matches!(error, SocketError::Memory { .. }), "{error}");
    assert!(floor.hall.sockets.memory() <= before, "rings that nobody has stood back");
    drop(one);
    let mut all = Vec::new();
    let error = loop {
        match floor.hall.sockets.open(protocol::ALL) {
            Ok(socket) => all.push(socket),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, SocketError::TooMany { max: 1024 }), "{error}");
    assert_eq!(all.len(), 1024);
    drop(all);
    drop(floor.open(protocol::ALL));
    floor.close();
}

/// Two workers at full speed, thousands of bindings: each packet given belongs to the one in force.
#[test]
fn nothing_of_a_former_binding_is_given_while_workers_run() {
    const BINDS: u64 = 2000;
    let mut hall = Hall::new(2);
    FAR.iter().for_each(|addr| hall.control.set(addr, 1));
    let mut stop = WordsMut::<u32>::zeroed(1);
    let mut threads = Vec::new();
    for port in [0u16, 2] {
        let (mut sequence, stop) = (0, stop.reader());
        // The flow says which port received it.
        let endless = source(port, port, move || {
            sequence += 1;
            let should_continue = stop.load(0) == 0;
            should_continue.then(|| packet(far(sequence as usize % 2), port, sequence, 4))
        });
        let exits = sinks().1;
        threads.push(hall.worker(vec![endless], exits, HoldLimits::default()));
    }
    let threads: Vec<_> =
        threads.into_iter().map(|worker| thread::spawn(move || worker.run())).collect();
    let mut socket = hall.sockets.open(protocol::NONE).expect("there is room");
    let quick = RingConfig { block_size: 4096, blocks: 4, retire_ns: 0 };
    socket.set_ring(quick).expect("there is room");
    let (mut shown, mut last) = (0u64, [0; 2]);
    for bind in 0..BINDS {
        let port = if bind % 2 == 0 { 0 } else { 2 };
        while let Err(error) = socket.bind(Some(PortId(port)), protocol::ALL) {
            // A worker that the machine keeps from running: nothing waits for it but this test.
            assert!(matches!(error, SocketError::Busy), "{error}");
            thread::yield_now();
        }
        // Some bindings are given up before they received a packet.
        if bind % 4 >= 2 {
            continue;
        }
        while !socket.wait(None) {}
        let Some(block) = socket.receive() else { continue }; // What waited was of a former binding.
        for packet in block.packets() {
            let (flow, sequence) = stamp(packet.bytes).expect("all are stamped");
            assert_eq!((flow, packet.record.port.0), (port, port), "bind {bind}");
            let last = &mut last[usize::from(port) / 2];
            assert!(sequence > *last, "bind {bind}: {sequence} after {last}");
            *last = sequence;
            shown += 1;
        }
    }
    drop(socket);
    stop.publish(0, 1);
    for phase in &mut hall.phases {
        phase.publish(0, STOP);
    }
    let workers =
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect();
    assert!(shown >= BINDS / 8, "{shown}");
    hall.close(workers);
}
