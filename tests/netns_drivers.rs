//! Each driver of an interface beside each other: hosts with their default offloads, whose packets come
//! as segments of 64 KiB where the driver takes them, and are cut where the way out does not.

use manylane::api::PortStatus;
use manylane::lab::scenario::Scenario;
use manylane::lab::{
    CLIENT_V4, CLIENT_V6, LabOptions, RouterOptions, SERVER_V4, SERVER_V6, tcp_transfer,
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
