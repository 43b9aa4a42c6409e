//! Connections through a router that translates: what its kernel has of them, and what it tells. Needs root and nft(8).

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;

use manylane_io::namespace::Host;
use manylane_io::netlink::LinkEnd;
use manylane_io::netlink::conntrack::{
    Change, Changed, Conntrack, ConntrackEvents, Event, Seen, Status, Tcp, Tuple,
};

use crate::common;
use crate::common::connections::{Ear, IPCTNL_MSG_CT_NEW, one};
use crate::common::ip::ip;

/// A client, a router that masquerades, and a server.
struct Lab {
    client: Host,
    router: Host,
    server: Host,
}

impl Lab {
    fn new() -> Option<Lab> {
        if Command::new("nft").arg("--version").output().is_err() {
            common::skip("needs nft(8)");
            return None;
        }
        let [client, router, server] =
            [common::host("client")?, common::host("router")?, common::host("server")?];
        for host in [&client, &router, &server] {
            common::skip_duplicate_detection(host);
        }
        common::connect(&client, LinkEnd::new("c"), &router, LinkEnd::new("rc"));
        common::connect(&server, LinkEnd::new("s"), &router, LinkEnd::new("rs"));
        for (host, name, v4, v6) in [
            (&client, "c", "10.1.0.2", "fd01::2"),
            (&router, "rc", "10.1.0.1", "fd01::1"),
            (&router, "rs", "10.2.0.1", "fd02::1"),
            (&server, "s", "10.2.0.2", "fd02::2"),
        ] {
            common::address(host, name, v4, 24);
            common::address(host, name, v6, 64);
        }
        // The server has no route to the client: only translated packets are answered.
        client.run(|| {
            ip("route add default via 10.1.0.1");
            ip("-6 route add default via fd01::1");
        });
        common::setting(&router, "net/ipv4/ip_forward", "1");
        common::setting(&router, "net/ipv6/conf/all/forwarding", "1");
        let lab = Lab { client, router, server };
        lab.nft(
            "table inet t {
                chain out { type nat hook postrouting priority 100; oifname rs masquerade; }
                chain forward { type filter hook forward priority 0; }
            }",
        );
        Some(lab)
    }

    /// Runs nft(8) with this text on the router.
    fn nft(&self, text: &'static str) {
        self.router.run(move || {
            let output = Command::new("nft").arg(text).output().expect("it is installed");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        });
    }

    /// A connection from the client to the server, and its tuple.
    fn tcp(&self, is_v6: bool) -> (TcpStream, TcpStream, Tuple) {
        let listener = self.server.run(move || TcpListener::bind(at_server(is_v6)));
        let listener = listener.expect("the address is there");
        let to = listener.local_addr().expect("it is bound");
        let near = self.client.run(move || TcpStream::connect(to)).expect("the router forwards");
        let (far, _) = listener.accept().expect("the client has connected");
        let tuple = tuple(near.local_addr().expect("it is bound"), to, libc::IPPROTO_TCP);
        (near, far, tuple)
    }
}

fn at_server(is_v6: bool) -> SocketAddr {
    SocketAddr::from((address(if is_v6 { "fd02::2" } else { "10.2.0.2" }), 0))
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("the test wrote it")
}

fn tuple(from: SocketAddr, to: SocketAddr, protocol: i32) -> Tuple {
    Tuple {
        source: from.ip(),
        destination: to.ip(),
        source_port: from.port(),
        destination_port: to.port(),
        protocol: protocol as u8,
    }
}

/// Sends a byte, and waits until it is there.
fn pass(from: &mut TcpStream, to: &mut TcpStream) {
    from.write_all(&[7]).expect("the connection is open");
    let mut byte = [0];
    to.read_exact(&mut byte).expect("the router forwards");
}

#[test]
fn a_masqueraded_connection_has_both_addresses_and_becomes_liberal() {
    let Some(lab) = Lab::new() else { return };
    let (mut conntrack, _events) = lab.router.run(|| {
        let conntrack = Conntrack::open().expect("root may");
        let events = ConntrackEvents::open(&conntrack, 1 << 20).expect("root may");
        (conntrack, events)
    });
    for (is_v6, router) in [(false, "10.2.0.1"), (true, "fd02::1")] {
        let (mut near, mut far, tuple) = lab.tcp(is_v6);
        pass(&mut near, &mut far);
        pass(&mut far, &mut near);
        let found = one(&mut conntrack, tuple).expect("it goes through the router");
        assert_eq!(found.original, tuple);
        assert_eq!(
            (found.reply.source, found.reply.destination),
            (tuple.destination, address(router))
        );
        assert_eq!(
            far.peer_addr().map(|peer| peer.port()).ok(),
            Some(found.reply.destination_port)
        );
        assert_eq!(one(&mut conntrack, found.reply).map(|found| found.original), Some(tuple));
        let expected =
            Status::CONFIRMED | Status::ASSURED | Status::SEEN_REPLY | Status::SOURCE_NAT;
        assert!(found.status.contains(expected), "{found:?}");
        assert!(!found.status.intersects(Status::DESTINATION_NAT | Status::DYING), "{found:?}");
        let tcp = found.tcp.expect("it is TCP");
        assert_eq!(tcp.state, Tcp::ESTABLISHED);
        assert_eq!(tcp.flags[0] & Tcp::BE_LIBERAL, 0);
        assert_ne!(tcp.flags[0] & tcp.flags[1] & Tcp::MAXACK_SET, 0, "acknowledgements were seen");

        let change = Change { tuple: found.reply, liberal: true, timeout: None };
        let answers = conntrack.change_with_echo(&[change]).expect("root may");
        let Ok(Changed::Announcing(echo)) = answers[0] else { panic!("{answers:?}") };
        assert_eq!((echo.original, echo.reply, echo.id), (tuple, found.reply, found.id));
        for (before, after) in tcp.flags.iter().zip(echo.tcp.expect("it is TCP").flags) {
            assert_eq!(
                after,
                (before | Tcp::BE_LIBERAL) & !Tcp::MAXACK_SET,
                "nothing else changes"
            );
        }
        pass(&mut near, &mut far);
        let tcp = one(&mut conntrack, tuple).and_then(|found| found.tcp).expect("it is there");
        assert_ne!(tcp.flags[0] & Tcp::BE_LIBERAL, 0, "packets leave it liberal");
        assert_ne!(tcp.flags[0] & Tcp::MAXACK_SET, 0, "and set the highest acknowledgement again");
    }
}

#[test]
fn an_answered_datagram_has_both_addresses() {
    let Some(lab) = Lab::new() else { return };
    let mut conntrack = lab.router.run(Conntrack::open).expect("root may");
    for (is_v6, router) in [(false, "10.2.0.1"), (true, "fd02::1")] {
        let far = lab.server.run(move || UdpSocket::bind(at_server(is_v6)));
        let far = far.expect("the address is there");
        let to = far.local_addr().expect("it is bound");
        let near = lab.client.run(move || {
            let near = UdpSocket::bind(if is_v6 { "[::]:0" } else { "0.0.0.0:0" });
            let near = near.expect("a port is free");
            near.connect(to).and_then(|()| near.send(b"?")).expect("there is a route");
            near
        });
        let tuple = tuple(near.local_addr().expect("it is bound"), to, libc::IPPROTO_UDP);
        let (_, back) = far.recv_from(&mut [0]).expect("the router forwards");
        let found = one(&mut conntrack, tuple).expect("it goes through the router");
        assert!(!found.status.contains(Status::SEEN_REPLY), "{found:?}");
        far.send_to(b"!", back).expect("there is a route");
        near.recv(&mut [0]).expect("the router forwards");
        let found = one(&mut conntrack, tuple).expect("it goes through the router");
        assert!(found.status.contains(Status::SEEN_REPLY | Status::SOURCE_NAT), "{found:?}");
        assert_eq!((found.reply.source, found.reply.destination), (to.ip(), address(router)));
        assert_eq!((found.tcp, found.reply.destination_port), (None, back.port()));
    }
}

/// An update carries a mark exactly if the mark is not 0 or has changed, and only such updates come.
#[test]
fn only_marks_come_of_a_connections_life() {
    let Some(lab) = Lab::new() else { return };
    let (mut events, ear) = lab.router.run(|| {
        let conntrack = Conntrack::open().expect("root may");
        let mut events = ConntrackEvents::open(&conntrack, 1 << 20).expect("root may");
        events.hear_marks(true).expect("root may");
        (events, Ear::open())
    });
    let mut marks = |tuple: Tuple| {
        let mut marks = Vec::new();
        let seen = events.read(|event| match event {
            Event::Marked(now) if now.original == tuple => marks.push(now.mark),
            other => panic!("{other:?}"),
        });
        assert_eq!(seen.expect("the socket is open"), Seen::All);
        marks
    };
    let updates = || {
        let updates = ear.heard().into_iter();
        let updates = updates.filter(|heard| heard.message == IPCTNL_MSG_CT_NEW && !heard.is_new);
        updates.map(|heard| heard.mark).collect::<Vec<_>>()
    };
    let (mut near, mut far, tuple) = lab.tcp(false);
    pass(&mut near, &mut far);
    let told = updates();
    assert!(!told.is_empty() && told.iter().all(Option::is_none), "answered; assured: {told:?}");
    assert_eq!(marks(tuple), [0; 0]);

    lab.nft("add rule inet t forward ct mark set 7");
    pass(&mut near, &mut far);
    assert_eq!((updates(), marks(tuple)), (vec![Some(7)], vec![7]));
    pass(&mut far, &mut near);
    assert_eq!((updates(), marks(tuple)), Default::default(), "it has that mark already");

    lab.nft("flush chain inet t forward; add rule inet t forward ct mark set 0");
    pass(&mut near, &mut far);
    assert_eq!((updates(), marks(tuple)), (vec![Some(0)], vec![0]), "0 is told when it is new");

    lab.nft("flush chain inet t forward; add rule inet t forward ct mark set 9");
    pass(&mut near, &mut far);
    lab.nft("flush chain inet t forward");
    near.shutdown(std::net::Shutdown::Write).expect("it is open");
    assert_eq!(far.read(&mut [0]).expect("the router forwards"), 0, "it ends");
    let marks = marks(tuple);
    assert!(marks.len() >= 2 && marks.iter().all(|mark| *mark == 9), "the state too: {marks:?}");
    assert!(updates().iter().all(|mark| *mark == Some(9)), "every state");
}
