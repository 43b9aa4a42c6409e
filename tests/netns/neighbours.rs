//! The operator's word about neighbours, and what the router says of its own addresses: kernels listen.

use std::io::Read;
use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use manylane_api::{AddressState, AddressStatus, NeighbourState, NeighbourStatus};
use manylane_io::netlink::Netlink;
use manylane_lab::scenario::{Running, all_answered, lab};
use manylane_lab::{
    Host, LAN_V4, LAN_V6, LabOptions, Outcome, Pinger, RouterOptions, SERVER_V4, SERVER_V6,
};
use manylane_net::wire::ethernet::{self, ether_type};
use manylane_net::wire::nd::{Advertisement, Message, Solicitation};
use manylane_net::wire::{arp, ipv6};

const MANYLANE: &str = env!("CARGO_BIN_EXE_manylane");

/// A wrong address keeps packets from the server, for as long as it stands: the router uses it, without a query.
/// Without it, the server is found; with the right one, the router sends no query.
#[test]
fn neighbours_are_set_in_the_file_added_and_deleted_while_the_daemon_runs() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let wrong = |address: IpAddr| {
        format!(
            "[[neighbour.static]]\nport = \"wan\"\naddress = \"{address}\"\n\
             mac = \"02:00:00:00:0b:ad\"\n"
        )
    };
    let options =
        RouterOptions { more: wrong(SERVER_V4) + &wrong(SERVER_V6), ..Default::default() };
    let running = Running::start(&lab, MANYLANE, &options);
    for server in [SERVER_V4, SERVER_V6] {
        let known = neighbour(&running, server).expect("it is in the file");
        assert_eq!(known.state, NeighbourState::Permanent);
        assert_eq!(known.mac.as_deref(), Some("02:00:00:00:0b:ad"));
        let mut pinger = Pinger::open(&lab.client, server).expect("root may");
        let lost = pinger.ask(56, Duration::from_millis(300)).expect("it can be sent");
        assert_eq!(lost, Outcome::Silence, "{server}: nobody has that MAC");

        let address = server.to_string();
        let said = manylane(&running, &["delete", "wan", &address]);
        assert_eq!(said, format!("{address} on wan is forgotten\n"));
        all_answered(&lab.client, server, 56);
        let found = neighbour(&running, server).expect("it was looked for");
        assert_ne!(found.state, NeighbourState::Permanent);

        let mac = found.mac.expect("it has answered");
        let said = manylane(&running, &["add", "wan", &address, &mac]);
        assert_eq!(
            said,
            format!("{address} on wan is {mac}, until it is deleted or the daemon ends\n")
        );
        let known = neighbour(&running, server).expect("it was just set");
        assert_eq!((known.state, known.mac), (NeighbourState::Permanent, Some(mac)));
        all_answered(&lab.client, server, 56);
    }
    running.wait_for_balance();
    let (status, said) = running.terminate();
    assert!(status.success(), "{status}: {said}");
}

/// RFC 5227 §2.1 and §2.3, RFC 4862 §5.4, RFC 4861 §7.2.6, as they arrive at a host on the link.
#[test]
fn the_router_probes_and_announces_its_addresses() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let mut link = listen(&lab.client);
    let running = Running::start(&lab, MANYLANE, &RouterOptions::default());
    let (IpAddr::V4(ours4), IpAddr::V6(ours6)) = (LAN_V4, LAN_V6) else { unreachable!() };
    let (mut probes, mut announcements, mut solicitations, mut advertisements) = (0, 0, 0, 0);
    while [probes, announcements, solicitations, advertisements] != [3, 2, 1, 3] {
        let mut bytes = [0; 2048];
        let len = link.read(&mut bytes).expect("what is awaited comes within the link's patience");
        let Some(frame) = ethernet::View::checked(&bytes[..len]) else { continue };
        match frame.ether_type() {
            ether_type::ARP => {
                let packet = arp::Packet::checked(frame.payload()).expect("what we send is good");
                if packet.target == ours4 && packet.is_probe() {
                    probes += 1;
                    assert_eq!((announcements, packet.operation), (0, arp::Operation::Request));
                } else if packet.target == ours4 && packet.is_announcement() {
                    announcements += 1;
                    assert_eq!(probes, 3, "first the question");
                }
            }
            ether_type::IPV6 => match Message::checked(frame.payload()) {
                Some(Message::Solicitation(question))
                    if question.target == ours6 && question.source.is_unspecified() =>
                {
                    solicitations += 1;
                    assert_eq!(question, Solicitation::detect_duplicate(ours6));
                }
                Some(Message::Advertisement(news))
                    if news.target == ours6 && news.destination == ipv6::ALL_NODES =>
                {
                    advertisements += 1;
                    assert_eq!(news, Advertisement::unsolicited(ours6, frame.source()));
                    assert_eq!(solicitations, 1, "first the question");
                }
                _ => {}
            },
            _ => {}
        }
    }
    let held = |own: &AddressStatus| own.state == AddressState::Held && own.in_use;
    let ours: Vec<AddressStatus> = running.client().ask("/v1/addresses").expect("it answers");
    let ours = ours.iter().filter(|own| own.port == "lan");
    assert!(ours.filter(|own| held(own)).count() >= 2);
    let (status, said) = running.terminate();
    assert!(status.success(), "{status}: {said}");
}

/// The client has the router's addresses: the router says so, keeps its IPv4 address unless it is strict (RFC 5227 §2.4
/// c), leaves its IPv6 address (RFC 4862 §5.4.5), and forwards on.
#[test]
fn a_station_that_has_the_gateways_addresses_at_start_takes_no_ipv4_address() {
    for mode in ["optimistic", "strict"] {
        let Some(lab) = lab(LabOptions::default()) else { return };
        lab.client
            .run(|| {
                let mut netlink = Netlink::open()?;
                netlink.add_address("eth0", LAN_V4, 24)?;
                netlink.add_address("eth0", LAN_V6, 64)
            })
            .expect("an address can be added");
        let more = format!("[neighbour]\nduplicate_detection = \"{mode}\"\n");
        let options = RouterOptions { more, ..Default::default() };
        let mut running = Running::start(&lab, MANYLANE, &options);
        for _ in 0..2 {
            let line = running.wait_for("is not ours alone");
            assert!([LAN_V4, LAN_V6].iter().any(|own| line.contains(&own.to_string())), "{line}");
        }
        let ours: Vec<AddressStatus> = running.client().ask("/v1/addresses").expect("it answers");
        for own in ours {
            let is_theirs = [LAN_V4, LAN_V6].iter().any(|own4| own4.to_string() == own.address);
            let is_kept = mode == "optimistic" && own.address == LAN_V4.to_string();
            assert_eq!(own.conflicts > 0 && own.claimed_by.is_some(), is_theirs, "{own:?}");
            let stays_in_use = own.in_use && own.state != AddressState::Duplicate;
            match is_theirs {
                // Probed again every few seconds.
                true if !is_kept => assert!(!own.in_use, "{own:?}"),
                _ if mode == "optimistic" => assert!(stays_in_use, "{own:?}"),
                _ => assert_ne!(own.state, AddressState::Duplicate, "{own:?}"),
            }
        }
        running.wait_for_balance();
        let (status, said) = running.terminate();
        assert!(status.success(), "{status}: {said}");
    }
}

/// Everything that arrives at a host, from now on.
fn listen(host: &Host) -> socket2::Socket {
    // packet(7): in network byte order; without `bind`, from all interfaces.
    const ETH_P_ALL: i32 = 0x0003_u16.to_be() as i32;
    let socket = host.run(|| {
        let protocol = Some(socket2::Protocol::from(ETH_P_ALL));
        let socket = socket2::Socket::new(socket2::Domain::PACKET, socket2::Type::RAW, protocol)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        std::io::Result::Ok(socket)
    });
    socket.expect("root may listen")
}

/// An IPv4 address is probed and announced within nine seconds.
const PATIENCE: Duration = Duration::from_secs(20);

fn neighbour(running: &Running, address: IpAddr) -> Option<NeighbourStatus> {
    let all: Vec<NeighbourStatus> = running.client().ask("/v1/neighbours").expect("it answers");
    all.into_iter().find(|neighbour| neighbour.address == address.to_string())
}

/// What `manylane neighbour` says.
fn manylane(running: &Running, words: &[&str]) -> String {
    let socket = running.socket().display().to_string();
    let output = Command::new(MANYLANE)
        .arg("neighbour")
        .args(words)
        .args(["--socket", &socket])
        .output()
        .expect("the program is there");
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "neighbour {words:?}: {complaint}");
    String::from_utf8(output.stdout).expect("it is text")
}
