//! VLANs on every driver of an interface: the client is in VLAN 100, the server in customer VLAN 7 of
//! provider VLAN 200. The hosts leave the outer tag to their devices, as VLAN devices do, so that on a veth
//! it is beside the frame.

use std::net::IpAddr;
use std::process::Command;

use crate::scenario::Scenario;
use manylane_api::{AddressState, AddressStatus, Ledger};
use manylane_io::interface::Interface;
use manylane_io::netlink::{Netlink, Route};
use manylane_io::sysctl;
use manylane_lab::generator::{Tag, VlanLink};
use manylane_lab::scenario::{Running, all_answered, error_of};
use manylane_lab::{
    CLIENT_V4, CLIENT_V6, Host, IcmpError, LAN_V4, LAN_V6, LabOptions, RouterOptions, SERVER_V4,
    SERVER_V6, WAN_V4, WAN_V6, ping, tcp_transfer, until,
};

const CUSTOMER: (Tag, Option<Tag>) = ((0x8100, 100), None);
const PROVIDER: (Tag, Option<Tag>) = ((0x88a8, 200), Some((0x8100, 7)));

/// Both, as the configuration says it.
const VLANS: [&str; 2] = ["id = 100", "id = 200\ntag = \"802.1ad\"\ninner = 7"];

/// Puts an interface of a host into a VLAN.
fn put(host: &Host, interface: &'static str, (outer, inner): (Tag, Option<Tag>)) -> VlanLink {
    let attached = host.run(move || {
        let interface = Interface::read(interface).expect("it was made");
        VlanLink::attach(&interface, outer, inner)
    });
    attached.unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn packet_sockets_see_and_write_tags() {
    // Segments pass whole, behind whatever tags.
    assert_ne!(through(["af_packet", "af_packet"]), Some(true));
}

#[test]
fn af_xdp_sees_tags_that_a_veth_hides() {
    through(["af_xdp", "af_xdp"]);
}

#[test]
fn segments_and_tags_are_cut_and_put_on_where_the_way_out_wants_it() {
    assert_ne!(through(["af_packet", "af_xdp"]), Some(false));
}

/// Whether segments were cut.
fn through(drivers: [&'static str; 2]) -> Option<bool> {
    let options = RouterOptions { drivers, vlans: VLANS, ..RouterOptions::default() };
    let scenario = Scenario::start_with(LabOptions::default(), &options)?;
    let (client, server) = (&scenario.lab.client, &scenario.lab.server);
    let in_vlans = [put(client, "eth0", CUSTOMER), put(server, "eth0", PROVIDER)];

    for destination in [SERVER_V4, SERVER_V6, LAN_V4, LAN_V6] {
        all_answered(client, destination, 56);
    }
    // Two tags, the outer a provider's, leave eight bytes less; the sender is notified, and cuts.
    all_answered(client, SERVER_V4, 1492 - 28);
    let told = ping(client, SERVER_V4, 1493 - 28, 1).expect("raw sockets are to be had");
    assert_eq!(told.errors, [(LAN_V4, IcmpError::TooBig { mtu: 1492 })]);
    all_answered(client, SERVER_V4, 4000);
    let (from, _) = error_of(client, SERVER_V4, 56, 1);
    assert_eq!(from, LAN_V4, "errors carry the tag too");
    for (from, to, destination) in [
        (client, server, SERVER_V4),
        (client, server, SERVER_V6),
        (server, client, CLIENT_V4),
        (server, client, CLIENT_V6),
    ] {
        let report = tcp_transfer(from, to, destination, 4 << 20)
            .unwrap_or_else(|error| panic!("{drivers:?} {destination}: {error}"));
        assert!(report.is_intact(), "{destination}: {report:?}");
    }
    drop(in_vlans);

    let ports = scenario.source().ports();
    let port = |name| ports.iter().find(|port| port.name == name).expect("it is there");
    for (name, of) in [("lan.100", "lan"), ("wan.200.7", "wan")] {
        let vlan = port(name);
        assert_eq!(vlan.vlan.as_ref().map(|vlan| vlan.port.as_str()), Some(of));
        assert!(vlan.received > 100, "{vlan:?}");
        assert!(port(of).transmitted > 100, "{ports:?}");
        // Sent before the host was put in its VLAN.
        assert!(port(of).received < 20, "{ports:?}");
    }
    scenario.finish();
    Some(ports.iter().any(|port| port.segments_cut > 0))
}

/// The client, in its VLAN, has the router's addresses there: they are left to it, and the others work.
#[test]
fn an_address_of_a_sub_interface_that_a_host_has_already_is_not_used() {
    let Some(lab) = manylane_lab::scenario::lab(LabOptions::default()) else { return };
    let (client, server) = (&lab.client, &lab.server);
    let in_vlans = [put(client, "eth0", CUSTOMER), put(server, "eth0", PROVIDER)];
    client
        .run(|| {
            let mut netlink = Netlink::open()?;
            netlink.add_address("eth0", LAN_V4, 24)?;
            netlink.add_address("eth0", LAN_V6, 64)
        })
        .expect("an address can be added");
    // Otherwise the router keeps its IPv4 address (`neighbours.rs`).
    let more = "[neighbour]\nduplicate_detection = \"strict\"\n".into();
    let options = RouterOptions { vlans: VLANS, more, ..RouterOptions::default() };
    let mut running = Running::start(&lab, env!("CARGO_BIN_EXE_manylane"), &options);
    let taken = [LAN_V4, LAN_V6].map(|own| own.to_string());
    for _ in 0..2 {
        let line = running.wait_for("is not ours alone");
        let names = |own: &String| line.contains(&format!("{own} on lan.100 "));
        assert!(taken.iter().any(names), "{line}");
    }
    let ours: Vec<AddressStatus> = running.client().ask("/v1/addresses").expect("it answers");
    for (port, count) in [("lan.100", 2), ("wan.200.7", 2)] {
        let there = ours.iter().filter(|own| own.port == port && !own.address.starts_with("fe80"));
        assert_eq!(there.count(), count, "{ours:?}");
    }
    for own in ours {
        let is_theirs = taken.contains(&own.address);
        // Probed again every few seconds.
        match is_theirs {
            true => assert!(!own.in_use, "{own:?}"),
            false => assert_ne!(own.state, AddressState::Duplicate, "{own:?}"),
        }
    }
    for destination in [WAN_V4, WAN_V6] {
        // Answered as soon as the probes have found no other station.
        until("the address is answered for", || match ping(server, destination, 56, 1) {
            Ok(report) if report.received == 1 => Ok(()),
            report => Err(format!("{report:?}")),
        });
        all_answered(server, destination, 56);
    }
    drop(in_vlans);
    let (status, said) = running.terminate();
    assert!(status.success(), "{status}: {said}");
}

/// What has no tag, or another, is not let into a VLAN.
#[test]
fn other_vlans_do_not_come_in() {
    for drivers in [["af_packet"; 2], ["af_xdp"; 2]] {
        let options = RouterOptions { drivers, vlans: VLANS, ..RouterOptions::default() };
        let Some(scenario) = Scenario::start_with(LabOptions::default(), &options) else { return };
        let client = &scenario.lab.client;
        for tags in [((0x8100, 101), None), ((0x88a8, 100), None), PROVIDER] {
            let before = scenario.dropped("unknown_vlan");
            let in_vlan = put(client, "eth0", tags);
            // The client queries its neighbour, by itself once a second, and is not heard.
            let is_dropped = (0..10).any(|_| {
                let answer = ping(client, LAN_V4, 56, 1);
                assert!(!answer.is_ok_and(|report| report.received > 0), "{drivers:?} {tags:?}");
                scenario.dropped("unknown_vlan") > before
            });
            assert!(is_dropped, "{drivers:?} {tags:?}");
            drop(in_vlan);
        }
        scenario.finish();
    }
}

/// XDP in the network stack sees no tag: the port says so, rather than to mix VLANs.
#[test]
fn a_port_that_cannot_see_tags_does_not_open() {
    let Some(lab) = manylane_lab::scenario::lab(LabOptions::default()) else { return };
    let text = RouterOptions { vlans: [VLANS[0], ""], ..RouterOptions::default() };
    let text = text.text().replacen("\"af_xdp\"", "\"af_xdp\"\nmode = \"generic\"", 1);
    let refused = lab.router.run(move || {
        let environment = manylane_router::config::Environment::of_this_thread();
        let config = manylane_router::config::Config::parse(&text, "lab.toml", &environment);
        let config = config.unwrap_or_else(|error| panic!("{error}"));
        manylane_router::control::Daemon::start(config).err().map(|error| error.to_string())
    });
    let refused = refused.expect("tags would be lost");
    assert!(
        refused.contains("VLAN tags") && refused.contains("driver = \"af_packet\""),
        "{refused}"
    );
}

/// A port without VLANs starts all the same, and says what it cannot drop and how to help it. That helps.
#[test]
fn a_port_that_would_take_vlans_for_none_says_so() {
    let Some(lab) = manylane_lab::scenario::lab(LabOptions::default()) else { return };
    let drivers = ["af_xdp\"\nmode = \"generic", "af_xdp"];
    let options = RouterOptions { drivers, ..RouterOptions::default() };
    let mut running = Running::start(&lab, env!("CARGO_BIN_EXE_manylane"), &options);
    let warned = running.wait_for("VLAN");
    assert!(warned.contains("port `lan`") && warned.contains("unknown_vlan"), "{warned}");
    assert!(warned.contains("ethtool -K PEER txvlan off"), "{warned}");

    let client = &lab.client;
    let dropped = |running: &Running| {
        let ledger: Ledger = running.client().ask("/v1/ledger").expect("it answers");
        ledger.dropped.get("unknown_vlan").copied().unwrap_or(0)
    };
    for destination in [LAN_V4, LAN_V6] {
        all_answered(client, destination, 56);
    }
    let in_vlan = put(client, "eth0", CUSTOMER);
    let lost = ping(client, LAN_V4, 56, 1).expect("raw sockets are to be had");
    assert_eq!((lost.received, dropped(&running)), (0, 0), "taken for one without a tag");
    client.run(|| {
        let ethtool = Command::new("ethtool").args(["-K", "eth0", "txvlan", "off"]).status();
        assert!(ethtool.expect("ethtool is there").success());
    });
    for destination in [LAN_V4, LAN_V6] {
        let before = dropped(&running);
        let lost = ping(client, destination, 56, 1).expect("raw sockets are to be had");
        assert_eq!(lost.received, 0);
        assert!(dropped(&running) > before, "{destination}");
    }
    drop(in_vlan);
    let (status, said) = running.terminate();
    assert!(status.success(), "{status}: {said}");
    assert!(!said.contains("port `wan`"), "its program sees tags: {said}");
}

/// The host that manylane runs on, in a VLAN of its TAP.
#[test]
fn a_tap_has_vlans() {
    let more = "[[port]]\nname = \"host\"\ndriver = \"tap\"\ninterface = \"host0\"\n\
                [[port.vlan]]\nid = 100\nname = \"inside\"\n\
                addresses = [\"10.9.0.254/24\", \"fd09::254/64\"]\n";
    let drivers = ["af_packet"; 2];
    let options = RouterOptions { drivers, more: more.into(), ..RouterOptions::default() };
    let Some(scenario) = Scenario::start_with(LabOptions::default(), &options) else { return };
    let router = &scenario.lab.router;
    let address = |text: &str| text.parse::<IpAddr>().expect("an address");
    let added = router.run(move || {
        for (name, value) in [("accept_dad", "0"), ("disable_ipv6", "0")] {
            let set = sysctl::set(&format!("net/ipv6/conf/host0/{name}"), value);
            set.expect("the interface was made");
        }
        let mut netlink = Netlink::open()?;
        netlink.add_address("host0", address("10.9.0.1"), 24)?;
        netlink.add_address("host0", address("fd09::1"), 64)?;
        netlink.add_route(&Route::via(address("0.0.0.0"), 0, address("10.9.0.254")))?;
        netlink.add_route(&Route::via(address("::"), 0, address("fd09::254")))
    });
    added.expect("the addresses are nobody's");
    let in_vlan = put(router, "host0", CUSTOMER);
    for destination in ["10.9.0.254", "fd09::254"].map(address) {
        all_answered(router, destination, 56);
    }
    for (to, destination) in [(&scenario.lab.server, SERVER_V4), (&scenario.lab.server, SERVER_V6)]
    {
        all_answered(router, destination, 1400);
        let report = tcp_transfer(router, to, destination, 4 << 20)
            .unwrap_or_else(|error| panic!("{destination}: {error}"));
        assert!(report.is_intact(), "{destination}: {report:?}");
    }
    drop(in_vlan);
    scenario.finish();
}
