//! A scan of a network behind the router (RFC 6583): one host names addresses that no station has, again and again.

use std::io::{ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use manylane_io::netlink::Netlink;
use manylane_lab::{CLIENT_V6, Host, LabOptions, Outcome, Pinger, RouterOptions};
use manylane_lab::{SERVER_V4, SERVER_V6};
use manylane_net::wire::arp;
use manylane_net::wire::ethernet::{self, ether_type};
use manylane_net::wire::nd::Message;

use crate::scenario::Scenario;

/// Stations that never spoke answer another host's first ping while the scan runs, unless the worker itself stood still,
/// and the router solicits each of them before the scan's addresses that it owes a solicitation.
#[test]
fn a_scan_of_random_addresses_delays_no_station_that_is_there() {
    for network in [Network::V4, Network::V6] {
        let more = format!(
            "[[route]]\nprefix = \"{}\"\nport = \"wan\"\n\
             [[route]]\nprefix = \"2001:db8:8066::/64\"\nvia = \"{CLIENT_V6}\"\n",
            network.prefix()
        );
        let options = RouterOptions { more, ..Default::default() };
        let Some(scenario) = Scenario::start_with(LabOptions::default(), &options) else { return };
        scenario.warm_up(&[SERVER_V4, SERVER_V6]);
        add_address(&scenario.lab.client, network.scanner());
        (0..STATIONS).for_each(|at| add_address(&scenario.lab.server, network.station(at)));
        let mut link = listen(&scenario.lab.server);

        let (named_twice, is_named_twice) = mpsc::channel();
        thread::scope(|scope| {
            // The scan ends when this is dropped, also where an assertion fails: the scope waits for it.
            let (_lasts, ends) = mpsc::channel();
            let scanner = network.scanner();
            let socket = scenario.lab.client.run(move || UdpSocket::bind((scanner, 0)));
            let socket = socket.expect("the address is the client's");
            scope.spawn(move || scan(&socket, network, &ends, &named_twice));
            is_named_twice.recv().expect("the scan says so");
            let mut answered = 0;
            for at in 0..STATIONS {
                read_solicited(&mut link, network); // What was before.
                let station = network.station(at);
                let mut pinger = Pinger::open(&scenario.lab.client, station).expect("root may");
                let full = scenario.dropped("hold_full");
                let outcome = pinger.ask(56, PATIENCE).expect("it can be sent");
                if outcome == Outcome::Silence && scenario.dropped("hold_full") > full {
                    // The machine stopped the worker for so long that all places were taken within 10 ms.
                    continue;
                }
                assert!(matches!(outcome, Outcome::Reply { .. }), "{station}: {outcome:?}");
                answered += 1;
                let solicited = read_solicited(&mut link, network);
                let before = solicited.iter().position(|&address| address == station);
                let before = before.expect("a station that answers was solicited");
                assert!(before <= BEFORE_MAX, "{before} addresses before {station}");
            }
            assert!(answered > STATIONS / 2, "{answered} of {STATIONS} answered the first ping");
        });
        assert!(scenario.dropped("hold_overflow") > 0, "the scan fills the worker's places");
        scenario.finish();
    }
}

/// Long for a host that answers at once.
const PATIENCE: Duration = Duration::from_secs(5);
/// Addresses that the scan names: more than the table has unproven entries.
const SCANNED: u64 = 8192;
/// Datagrams of the scan each [`PAUSE`]: 4,000 a second.
const AT_ONCE: u64 = 8;
const PAUSE: Duration = Duration::from_millis(2);
/// Stations that are there and have never spoken.
const STATIONS: u16 = 7;
/// Solicitations for the scan that were on their way when the station was wanted: a few. A router that serves
/// the scan first sends thousands.
const BEFORE_MAX: usize = 64;

#[derive(Clone, Copy)]
enum Network {
    V4,
    V6,
}

impl Network {
    fn prefix(self) -> &'static str {
        match self {
            Network::V4 => "10.77.0.0/16",
            Network::V6 => "2001:db8:77::/64",
        }
    }

    /// Where the scan is sent from. For IPv6, from another network than pings, whose source shares more bits with the
    /// stations (RFC 6724 §5).
    fn scanner(self) -> IpAddr {
        match self {
            Network::V4 => Ipv4Addr::new(10, 1, 0, 66).into(),
            Network::V6 => Ipv6Addr::new(0x2001, 0xdb8, 0x8066, 0, 0, 0, 0, 1).into(),
        }
    }

    fn station(self, at: u16) -> IpAddr {
        self.host(0xff00 + at)
    }

    fn host(self, host: u16) -> IpAddr {
        match self {
            Network::V4 => Ipv4Addr::from_bits(0x0a4d_0000 + u32::from(host)).into(),
            Network::V6 => Ipv6Addr::new(0x2001, 0xdb8, 0x77, 0, 0, 0, 0, host).into(),
        }
    }
}

/// Sends a datagram to one made-up address after another, until it `ends`, for 5 minutes at most.
fn scan(socket: &UdpSocket, network: Network, ends: &Receiver<()>, named_twice: &Sender<()>) {
    let begun = Instant::now();
    for burst in 0_u64.. {
        if ends.try_recv() == Err(TryRecvError::Disconnected)
            || begun.elapsed() >= Duration::from_secs(300)
        {
            break;
        }
        for at in burst * AT_ONCE..(burst + 1) * AT_ONCE {
            let host = (at % SCANNED) as u16 + 1;
            // An error of the kernel's is an ICMP error: the router found no station there.
            _ = socket.send_to(&[0; 18], (network.host(host), 9));
        }
        if (burst + 1) * AT_ONCE == 2 * SCANNED {
            named_twice.send(()).expect("the test waits for it");
        }
        thread::sleep(PAUSE); // Paces the scan; nothing is awaited.
    }
}

fn add_address(host: &Host, address: IpAddr) {
    let add = move || {
        Netlink::open()?.add_address("eth0", address, if address.is_ipv4() { 32 } else { 128 })
    };
    host.run(add).expect("an address can be added");
}

/// The addresses that the router has solicited, in order, since the last call.
fn read_solicited(link: &mut socket2::Socket, network: Network) -> Vec<IpAddr> {
    let mut solicited = Vec::new();
    let mut bytes = [0; 2048];
    loop {
        let len = match link.read(&mut bytes) {
            Ok(len) => len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return solicited,
            Err(error) => panic!("cannot listen: {error}"),
        };
        let Some(frame) = ethernet::View::checked(&bytes[..len]) else { continue };
        let target: Option<IpAddr> = match (network, frame.ether_type()) {
            (Network::V4, ether_type::ARP) => arp::Packet::checked(frame.payload())
                .filter(|packet| packet.operation == arp::Operation::Request)
                .map(|packet| packet.target.into()),
            (Network::V6, ether_type::IPV6) => match Message::checked(frame.payload()) {
                Some(Message::Solicitation(question)) => Some(question.target.into()),
                _ => None,
            },
            _ => None,
        };
        solicited.extend(target);
    }
}

/// Every frame that arrives at a host, from now on; a read does not wait.
fn listen(host: &Host) -> socket2::Socket {
    // packet(7): in network byte order; without `bind`, from all interfaces.
    const ETH_P_ALL: i32 = 0x0003_u16.to_be() as i32;
    let socket = host.run(|| {
        let protocol = Some(socket2::Protocol::from(ETH_P_ALL));
        let socket = socket2::Socket::new(socket2::Domain::PACKET, socket2::Type::RAW, protocol)?;
        socket.set_nonblocking(true)?;
        socket.set_recv_buffer_size(8 << 20)?;
        std::io::Result::Ok(socket)
    });
    socket.expect("root may listen")
}
