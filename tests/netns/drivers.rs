//! Each driver of an interface beside each other: hosts with their default offloads, whose packets arrive
//! as segments of 64 KiB where the driver takes them, and are cut where the egress driver does not.

use std::net::IpAddr;

use crate::scenario::Scenario;
use manylane_api::PortStatus;
use manylane_io::netlink::{Netlink, Route};
use manylane_io::sysctl;
use manylane_lab::scenario::all_answered;
use manylane_lab::{
    CLIENT_V4, CLIENT_V6, Lab, LabOptions, RouterOptions, SERVER_V4, SERVER_V6, tcp_transfer,
};

#[test]
fn packet_sockets_pass_segments_on_whole() {
    let Some(ports) = transfer(["af_packet", "af_packet"]) else { return };
    for port in ports {
        assert_eq!((port.segments_cut, port.checksums_completed), (0, 0), "{port:?}");
    }
}

#[test]
fn segments_are_cut_where_the_way_out_does_not() {
    let Some([lan, wan]) = transfer(["af_packet", "af_xdp"]) else { return };
    assert!(wan.segments_cut > 1000, "{wan:?}");
    assert_eq!(lan.segments_cut, 0, "{lan:?}");
}

#[test]
fn what_comes_in_at_mtu_size_leaves_so_by_packet_sockets() {
    let Some([lan, wan]) = transfer(["af_xdp", "af_packet"]) else { return };
    assert_eq!(wan.segments_cut, 0, "{wan:?}");
    assert!(lan.segments_cut > 1000, "{lan:?}");
}

#[test]
fn a_veth_gets_packet_sockets_when_nobody_says_otherwise() {
    let Some(ports) = transfer(["auto", "auto"]) else { return };
    for port in ports {
        assert_eq!(port.driver, "af_packet");
        let why = port.chosen.expect("the file says auto");
        assert!(why.contains("a veth"), "{why}");
    }
}

/// 16 MiB each way, by both families, and what the ports say of it.
fn transfer(drivers: [&'static str; 2]) -> Option<[PortStatus; 2]> {
    let options = RouterOptions { drivers, ..RouterOptions::default() };
    let scenario = Scenario::start_with(LabOptions::default(), &options)?;
    scenario.warm_up(&[SERVER_V4, SERVER_V6]);
    let (client, server) = (&scenario.lab.client, &scenario.lab.server);
    let ways = [
        (client, server, SERVER_V4),
        (client, server, SERVER_V6),
        (server, client, CLIENT_V4),
        (server, client, CLIENT_V6),
    ];
    for (from, to, destination) in ways {
        let report = tcp_transfer(from, to, destination, 16 << 20)
            .unwrap_or_else(|error| panic!("{destination}: {error}"));
        assert!(report.is_intact(), "{destination}: {report:?}");
        println!("{drivers:?} {destination}: 16 MiB each way in {:?}", report.elapsed);
    }
    let ports = scenario.source().ports();
    scenario.finish();
    Some(ports.try_into().expect("there are two"))
}

/// The host that manylane runs on, as one more host: through an interface that is made for it. What it
/// sends arrives in segments too, and leaves so by packet sockets, cut by AF_XDP.
#[test]
fn the_host_itself_is_reached_by_a_tap() {
    let more = "[[port]]\nname = \"host\"\ndriver = \"tap\"\ninterface = \"host0\"\n\
                addresses = [\"10.9.0.254/24\", \"fd09::254/64\"]\n";
    let drivers = ["af_packet", "af_xdp"];
    let options = RouterOptions { drivers, more: more.into(), ..RouterOptions::default() };
    let Some(scenario) = Scenario::start_with(LabOptions::default(), &options) else { return };
    let Lab { client, router, server } = &scenario.lab;
    let address = |text: &str| text.parse::<IpAddr>().expect("an address");
    let added = router.run(move || {
        // The lab's routers keep their kernels silent. Its own addresses are usable at once.
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
    for to in ["10.9.0.254", "fd09::254"].map(address) {
        [56, 1400].into_iter().for_each(|size| all_answered(router, to, size));
    }
    for (to, destination) in
        [(client, CLIENT_V4), (client, CLIENT_V6), (server, SERVER_V4), (server, SERVER_V6)]
    {
        all_answered(router, destination, 56); // Neighbours are known.
        let report = tcp_transfer(router, to, destination, 16 << 20)
            .unwrap_or_else(|error| panic!("{destination}: {error}"));
        assert!(report.is_intact(), "{destination}: {report:?}");
    }
    let ports = scenario.source().ports();
    let port = |name| ports.iter().find(|port| port.name == name).expect("it is there");
    let host = port("host");
    assert_eq!((host.driver.as_str(), host.interface.as_deref()), ("tap", Some("host0")));
    assert_eq!((host.segments_cut, port("lan").segments_cut), (0, 0), "{ports:?}");
    assert!(port("wan").segments_cut > 1000, "{ports:?}");
    scenario.finish();
}
