//! Building networks in anonymous namespaces, and reading what was built. Needs root.

use crate::common;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use manylane_io::interface::{AllMulticast, Interface, InterfaceError};
use manylane_io::netlink::{LinkEnd, Netlink, NetlinkError, Route};

#[test]
fn a_new_namespace_has_only_a_loopback() {
    let Some(host) = common::host("lonely") else { return };
    host.run(|| {
        let mut netlink = Netlink::open().expect("netlink is always there");
        let links = netlink.links().expect("a namespace lists its links");
        assert_eq!(links.len(), 1);
        assert_eq!((links[0].name.as_str(), links[0].is_up), ("lo", false));
        netlink.set_up("lo").expect("root may");
        assert!(netlink.link("lo").expect("it is still there").is_running);
    });
}

#[test]
fn a_veth_pair_is_as_it_was_ordered() {
    let (Some(left), Some(right)) = (common::host("left"), common::host("right")) else { return };
    let mac = [2, 0, 0, 0, 0, 1];
    let end = LinkEnd { mtu: Some(1400), ..LinkEnd::new("l0").queues(2).mac(mac) };
    let other = LinkEnd { transmit_queues: 3, ..LinkEnd::new("r0").queues(1) };
    common::connect(&left, end, &right, other);
    left.run(move || {
        let facts = Interface::read("l0").expect("it was just made");
        assert_eq!(facts.driver, "veth");
        assert_eq!((facts.mac, facts.mtu), (mac, 1400));
        assert_eq!((facts.receive_queues, facts.transmit_queues), (2, 2));
        assert!(facts.is_up && facts.is_running);
        let mut netlink = Netlink::open().expect("netlink is always there");
        netlink.set_mtu("l0", 1500).expect("veth takes it");
        netlink.set_down("l0").expect("root may");
        let facts = Interface::read("l0").expect("it is still there");
        assert_eq!((facts.mtu, facts.is_up, facts.is_running), (1500, false, false));
    });
    right.run(|| {
        let facts = Interface::read("r0").expect("it was made here");
        assert_eq!((facts.receive_queues, facts.transmit_queues), (1, 3));
        assert!(facts.is_up && !facts.is_running, "the other end is down");
    });
}

/// Both families, by way of a router in the middle: addresses, routes and settings do what they say.
#[test]
fn two_hosts_talk_through_a_router() {
    let names = ["alpha", "router", "beta"];
    let [Some(alpha), Some(router), Some(beta)] = names.map(common::host) else { return };
    [&alpha, &router, &beta].into_iter().for_each(common::skip_duplicate_detection);
    common::connect(&alpha, LinkEnd::new("a0"), &router, LinkEnd::new("left"));
    common::connect(&router, LinkEnd::new("right"), &beta, LinkEnd::new("b0"));
    for (host, name, v4, v6) in [
        (&alpha, "a0", "10.0.1.2", "fd00:1::2"),
        (&router, "left", "10.0.1.1", "fd00:1::1"),
        (&router, "right", "10.0.2.1", "fd00:2::1"),
        (&beta, "b0", "10.0.2.2", "fd00:2::2"),
    ] {
        common::address(host, name, v4, 24);
        common::address(host, name, v6, 64);
    }
    for name in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] {
        common::setting(&router, name, "1");
        assert_eq!(router.run(move || manylane_io::sysctl::read(name)).expect("just written"), "1");
    }
    let ip = |text: &str| text.parse::<IpAddr>().expect("the test wrote it");
    let routes = [
        (&alpha, Route::via(ip("0.0.0.0"), 0, ip("10.0.1.1"))),
        (&alpha, Route::via(ip("::"), 0, ip("fd00:1::1"))),
        (&beta, Route::via(ip("10.0.1.0"), 24, ip("10.0.2.1"))),
        (&beta, Route::via(ip("fd00:1::"), 64, ip("fd00:2::1"))),
    ];
    for (host, route) in routes {
        host.run(move || {
            Netlink::open().and_then(|mut netlink| netlink.add_route(&route)).expect("it is new")
        });
    }
    for (there, here) in [("10.0.2.2:9", "10.0.1.2:0"), ("[fd00:2::2]:9", "[fd00:1::2]:0")] {
        let receiver = beta.run(move || UdpSocket::bind(there)).expect("the address is ours");
        let sender = alpha.run(move || UdpSocket::bind(here)).expect("the address is ours");
        receiver.set_read_timeout(Some(Duration::from_secs(5))).expect("not zero");
        sender.send_to(b"hello", there).expect("there is a route");
        let mut bytes = [0; 16];
        let (length, from) = receiver.recv_from(&mut bytes).expect("it arrives");
        assert_eq!(&bytes[..length], b"hello");
        assert_eq!(
            from.ip(),
            ip(here.rsplit_once(':').expect("a port").0.trim_matches(['[', ']']))
        );
    }
}

#[test]
fn refusals_name_the_request_and_the_fix() {
    let Some(host) = common::host("refused") else { return };
    host.run(|| {
        let mut netlink = Netlink::open().expect("netlink is always there");
        let gone = netlink.set_up("eth7").expect_err("there is none").to_string();
        assert_eq!(gone, "interface eth7 does not exist; existing interfaces: lo");

        let pair = (LinkEnd::new("v0"), LinkEnd::new("v1"));
        netlink.create_veth(&pair.0, &pair.1, None).expect("the names are free");
        let twice = netlink.create_veth(&pair.0, &pair.1, None).expect_err("v0 is taken");
        assert!(twice.is_existing());
        assert!(twice.to_string().starts_with("cannot make the veth pair v0 and v1: "), "{twice}");

        let far = Route::via("10.9.0.0".parse().expect("v4"), 16, "10.8.0.1".parse().expect("v4"));
        let far = netlink.add_route(&far).expect_err("no link leads to the gateway").to_string();
        assert!(far.starts_with("cannot add the route 10.9.0.0/16 via 10.8.0.1: "), "{far}");
        assert!(far.contains("Nexthop has invalid gateway"), "the kernel's own sentence: {far}");
        assert!(far.contains("connected network"), "{far}");

        let missing = Interface::read("eth7").expect_err("there is none");
        assert!(matches!(missing, InterfaceError::NoSuchInterface { ref present, .. }
            if present.contains(&"v0".to_string())));
        netlink.delete_link("v0").expect("it exists");
        assert_eq!(netlink.links().expect("lo is left").len(), 1, "the peer went with it");
    });
}

#[test]
fn a_link_moves_to_another_namespace_and_a_neighbour_can_be_given() {
    let (Some(here), Some(there)) = (common::host("here"), common::host("there")) else { return };
    let to = there.namespace().as_fd().try_clone_to_owned().expect("descriptors are to be had");
    here.run(move || {
        let mut netlink = Netlink::open().expect("netlink is always there");
        netlink
            .create_veth(&LinkEnd::new("v0"), &LinkEnd::new("v1"), None)
            .expect("the names are free");
        netlink.move_link("v1", to.as_fd()).expect("the namespace is open");
        assert!(matches!(netlink.link("v1"), Err(NetlinkError::NoSuchInterface { .. })));
    });
    there.run(|| {
        let mut netlink = Netlink::open().expect("netlink is always there");
        netlink.set_up("v1").expect("it arrived");
        let neighbour = "fd00::9".parse().expect("v6");
        netlink.add_neighbour("v1", neighbour, [2, 0, 0, 0, 0, 9]).expect("any MAC will do");
    });
}

#[test]
fn all_multicast_ends_with_its_guard() {
    let Some(host) = common::host("multicast") else { return };
    host.run(|| {
        let mut netlink = Netlink::open().expect("netlink is always there");
        netlink
            .create_veth(&LinkEnd::new("v0"), &LinkEnd::new("v1"), None)
            .expect("the names are free");
        let facts = Interface::read("v0").expect("it was just made");
        let mut wishes = || netlink.link("v0").expect("it is still there").all_multicast;
        assert_eq!(wishes(), 0);
        let guards = [(); 2].map(|()| AllMulticast::join(&facts).expect("root may"));
        assert!(wishes() > 0);
        drop(guards);
        // A process that another test has just started has the sockets, too, until its program begins.
        let end = Instant::now() + Duration::from_secs(60);
        while wishes() > 0 {
            assert!(Instant::now() < end, "the guards are gone, and their wishes are not");
        }
    });
}

#[test]
fn a_namespace_can_be_entered_by_another_thread() {
    let Some(host) = common::host("entered") else { return };
    host.run(|| {
        Netlink::open().and_then(|mut netlink| {
            netlink.create_veth(&LinkEnd::new("mark"), &LinkEnd::new("peer"), None)
        })
    })
    .expect("the names are free");
    let seen = std::thread::scope(|scope| {
        scope
            .spawn(|| {
                host.namespace().enter().expect("root may");
                Netlink::open().and_then(|mut netlink| netlink.link("mark")).is_ok()
            })
            .join()
            .expect("the visitor does not panic")
    });
    assert!(seen);
}
