use std::fs;
use std::net::IpAddr;
use std::path::Path;

use manylane_frame::vocabulary::{Checksum, PortId, WorkerId};
use manylane_io::port::fault::FaultConfig;
use manylane_io::port::pcap::{FileConfig, PcapConfig, ReplayConfig, Timing};
use manylane_net::neighbour::DuplicateDetection;
use manylane_net::wire::ethernet::Tags;

use super::*;
use faults::{FAULTS, LAN};

mod faults;

/// Every complaint, as the operator reads it.
#[test]
fn a_mistake_is_told_by_line_key_cause_and_help() {
    for (parts, says) in FAULTS.iter().copied().flatten() {
        let text = parts.concat();
        let error = parse(&text).expect_err(&text);
        assert_eq!(error.to_string(), *says, "for\n{text}");

        let ConfigError::Invalid { line, title, message } = error else { unreachable!() };
        let mut lines = message.lines();
        assert_eq!(lines.next(), Some(format!("error: {title}").as_str()));
        let place = lines.next().expect("a place").trim();
        assert!(place.starts_with(&format!("--> router.toml:{line}:")), "{message}");
        let quoted = text.lines().nth(line - 1).unwrap_or_default();
        assert!(message.contains(format!("{line} | {quoted}").trim_end()), "{message}");
        assert!(title.contains(['`', '[']) || title == "this is not TOML", "no key: {message}");
        assert!(lines.next_back().is_some_and(|help| help.starts_with("help: ")), "{message}");
    }
}

#[test]
fn the_router_example_sets_every_key_of_a_router() {
    let config = parse(&example("router.toml")).unwrap();
    assert_eq!(config.workers, Workers { cores: vec![3], started: 1, idle_spin_us: 50 });
    let frames = Frames { size: 2048, count: None, hot_list_len: 1024, spare_queues: 1 };
    assert_eq!(config.frames, frames);
    let steering = Steering {
        netdev_max_backlog: 1000,
        netdev_budget: 300,
        dev_weight: 64,
        rebalance: false,
        receivers: Vec::new(),
    };
    assert_eq!(config.steering, steering);
    let sockets = SocketLimits {
        max: 1024,
        per_user_max: 64,
        memory_max: 1 << 30,
        per_user_memory_max: 1 << 29,
        filter_max: 16_384,
        per_user_filter_max: 4096,
        time_max: 50,
        send: false,
    };
    assert_eq!(config.sockets, sockets);
    assert_eq!(config.icmp, Icmp { errors_per_second: 1000, errors_burst: 50, redirects: false });
    let neighbour = Neighbour {
        entries_max: 8192,
        hold_per_entry: 101,
        hold_per_worker: 1024,
        duplicate_detection: DuplicateDetection::Optimistic,
        timing: manylane_net::neighbour::Timing::default(),
    };
    assert_eq!(config.neighbour, neighbour);
    let (port, mac) = (PortId(0), [2, 0, 0, 0, 0, 2]);
    let known = StaticNeighbour { port, address: ip("10.1.0.2"), mac };
    assert_eq!(config.static_neighbours, [known]);
    assert_eq!(config.socket, Path::new(DEFAULT_SOCKET));

    let [lan, wan] = &config.ports[..] else { panic!("two ports") };
    assert_eq!(lan.addresses[1].to_string(), "2001:db8:1::fe/64");
    assert_eq!((lan.mtu, lan.checksum), (Some(1500), Some(ChecksumPolicy::Repair)));
    assert_eq!(lan.queue_owners, Some(vec![WorkerId(0)]));
    assert_eq!((lan.steering, wan.steering), (Some(PortSteering::Queue), None));
    let interface =
        AfXdpPort { interface: "eth0".into(), mode: AttachMode::Auto, multi_buffer: true };
    assert_eq!(lan.driver, Driver::AfXdp(interface));
    assert_eq!((wan.mtu, wan.checksum, &wan.queue_owners), (None, None, &None));
    assert_eq!((wan.rx_ring, wan.tx_ring), (2048, 2048));

    let targets: Vec<_> = config.routes.iter().map(|route| route.target.clone()).collect();
    let via = |address: &str, port| RouteTarget::Via { next_hop: ip(address), port: PortId(port) };
    let hop =
        |address: &str, port, weight| Hop { next_hop: ip(address), port: PortId(port), weight };
    let expected = [
        via("10.2.0.1", 1),
        via("fe80::1", 1),
        RouteTarget::Group(vec![hop("10.2.0.1", 1, 3), hop("10.2.0.2", 1, 1)]),
        RouteTarget::OnLink { port: PortId(0) },
        RouteTarget::Blackhole,
        RouteTarget::Unreachable,
    ];
    assert_eq!(targets, expected);
    assert_eq!(config.routes[1].prefix.to_string(), "::/0");
}

#[test]
fn a_route_may_have_several_next_hops() {
    let wan =
        LAN.replace("\"lan\"", "\"wan\"").replace("10.1.0", "10.2.0").replace("db8:1", "db8:2");
    let text = format!(
        "{LAN}{wan}[[route]]\nprefix = \"::/0\"\nvia = [\"fe80::1%wan\", \"fe80::1%lan\"]\n"
    );
    let hop = |port| Hop { next_hop: ip("fe80::1"), port: PortId(port), weight: 1 };
    let config = parse(&text).unwrap();
    assert_eq!(config.routes[0].target, RouteTarget::Group(vec![hop(1), hop(0)]));
}

/// What stands behind `#:` in the example: other drivers, captures, copies, faults.
#[test]
fn the_router_example_shows_other_drivers_captures_copies_and_faults() {
    let text = example("router.toml");
    let shown: Vec<_> = text.lines().map(|line| line.strip_prefix("#: ").unwrap_or(line)).collect();
    let config = parse(&shown.join("\n")).unwrap();
    let [lan, wan, lab, host, file] = &config.ports[..] else { panic!("five ports") };
    assert_eq!((&lan.tee, &lan.faults), (&None, &Faults::default()));

    let tee = wan.tee.as_ref().expect("the example has one");
    assert_eq!((tee.write.as_path(), tee.direction), (Path::new("wan.pcapng"), Directions::Both));
    assert_eq!(tee.file, FileConfig::default());
    let default = FaultConfig { seed: 1, ..FaultConfig::default() };
    let receive = FaultConfig { drop: 0.01, duplicate: 0.001, corrupt: 0.0001, ..default.clone() };
    assert_eq!(wan.faults.receive, Some(receive));
    let (delay, delay_ns, reorder) = (0.1, 1_000_000..=5_000_000, 0.01);
    let transmit = FaultConfig { delay, delay_ns, reorder, ..default };
    assert_eq!(wan.faults.transmit, Some(transmit));

    let sflow = config.sflow.as_ref().expect("the example has one");
    let collectors: Vec<_> = sflow.collectors.iter().map(ToString::to_string).collect();
    assert_eq!(collectors, ["udp://192.0.2.5:6343", "udp://[2001:db8::5]:6343"]);
    assert_eq!((sflow.rate, sflow.polling.as_secs()), (1000, 20));
    assert_eq!((lan.sflow_rate, wan.sflow_rate), (Some(100), None));

    let vlan = &wan.vlans[0];
    assert_eq!((vlan.name.as_str(), vlan.mtu), ("customer", Some(1492)));
    assert_eq!(vlan.tags.to_string(), "802.1Q 100, 802.1Q 7");
    assert_eq!(vlan.addresses[1].to_string(), "2001:db8:4::fe/64");

    assert_eq!(lab.driver, Driver::AfPacket(AfPacketPort::new("veth0".into(), 1)));
    let tap = TapPort { interface: "host0".into(), queues: 1, mac: Some([2, 0, 0, 0, 0, 9]) };
    assert_eq!(host.driver, Driver::Tap(tap));

    let files = PcapConfig {
        read: Some("in.pcap".into()),
        write: Some("out.pcapng".into()),
        ..PcapConfig::default()
    };
    let expected = PcapPort { mac: Some([2, 0, 0, 0, 0, 7]), files };
    assert_eq!((&file.driver, file.mtu), (&Driver::Pcap(expected), Some(1500)));
}

/// A trunk: its own frames are all tagged, and a route may name a sub-interface.
#[test]
fn a_port_is_divided_by_tags() {
    let text = "[[port]]\nname = \"t\"\ndriver = \"memory\"\n\
                [[port.vlan]]\nid = 100\naddresses = [\"10.1.0.1/24\"]\n\
                [[port.vlan]]\nid = 100\ntag = \"802.1ad\"\ninner = 7\nmtu = 1280\n\
                addresses = [\"2001:db8::1/64\"]\n\
                [[port]]\nname = \"u\"\ndriver = \"memory\"\naddresses = [\"10.2.0.1/24\"]\n\
                [[port.vlan]]\nid = 100\nname = \"x\"\naddresses = [\"10.3.0.1/24\"]\n\
                [[route]]\nprefix = \"10.9.0.0/16\"\nvia = \"10.3.0.9\"\n\
                [[route]]\nprefix = \"10.8.0.0/16\"\nport = \"t.100\"\n";
    let config = parse(text).unwrap();
    let [trunk, other] = &config.ports[..] else { panic!("two ports") };
    assert!(trunk.addresses.is_empty());
    let tags = Tags::NONE.and(0x8100, 100).unwrap();
    assert_eq!((trunk.vlans[0].tags, trunk.vlans[0].mtu), (tags, None));
    let tags = Tags::NONE.and(0x88a8, 100).unwrap().and(0x8100, 7).unwrap();
    assert_eq!((trunk.vlans[1].tags, trunk.vlans[1].mtu), (tags, Some(1280)));
    assert_eq!(other.addresses.len(), 1);
    let interfaces: Vec<_> = interfaces(&config.ports)
        .iter()
        .map(|one| (one.id.0, one.name.to_owned(), one.port.0))
        .collect();
    let of = |id, name: &str, port| (id, name.to_owned(), port);
    let expected =
        [of(0, "t", 0), of(1, "u", 1), of(2, "t.100", 0), of(3, "t.100.7", 0), of(4, "x", 1)];
    assert_eq!(interfaces, expected);
    let targets: Vec<_> = config.routes.iter().map(|route| route.target.clone()).collect();
    let via = RouteTarget::Via { next_hop: ip("10.3.0.9"), port: PortId(4) };
    assert_eq!(targets, [via, RouteTarget::OnLink { port: PortId(2) }]);
}

/// What tags leave is enough, to the byte.
#[test]
fn a_sub_interface_may_have_the_least_mtu() {
    let text = "[[port]]\nname = \"t\"\ndriver = \"memory\"\nmtu = 1288\n\
                [[port.vlan]]\nid = 1\ntag = \"802.1ad\"\ninner = 2\n\
                addresses = [\"2001:db8::1/64\"]\n";
    assert_eq!(parse(text).unwrap().ports[0].vlans[0].mtu, None);
}

/// A link-local address of ours on one port may be another station's on the next.
#[test]
fn a_static_neighbour_may_have_our_link_local_address_of_another_port() {
    let port = |name: &str, address: &str| {
        format!(
            "[[port]]\nname = \"{name}\"\ndriver = \"memory\"\naddresses = [\"{address}/64\"]\n"
        )
    };
    let known = |address: &str| {
        let mac = "02:00:00:00:00:09";
        format!("[[neighbour.static]]\nport = \"b\"\naddress = \"{address}\"\nmac = \"{mac}\"\n")
    };
    let ports = |a: &str, b: &str| port("a", a) + &port("b", b);
    let config = parse(&(ports("fe80::1", "fe80::2") + &known("fe80::1"))).unwrap();
    let of_b = (PortId(1), ip("fe80::1"));
    let static_neighbour = config.static_neighbours[0];
    assert_eq!((static_neighbour.port, static_neighbour.address), of_b);
    for (a, b, address) in [
        ("fe80::1", "fe80::2", "fe80::2"),
        ("2001:db8:1::1", "2001:db8:2::1", "2001:db8:2::1"),
        ("2001:db8:1::1", "2001:db8:2::1", "2001:db8:1::1"),
    ] {
        let error = parse(&(ports(a, b) + &known(address))).unwrap_err().to_string();
        assert!(error.contains("our own address on"), "{error}");
    }
}

/// Routes by the same next hops, in whatever order, share a group; the groups are 512 at most.
#[test]
fn there_may_be_so_many_different_groups() {
    let route = |number: usize, via: &str, weights: &str| {
        let prefix = format!("172.16.{}.{}/32", number / 256, number % 256);
        format!("[[route]]\nprefix = \"{prefix}\"\nvia = [{via}]\nweights = [{weights}]\n")
    };
    let (one, other) = ("\"10.1.0.1\"", "\"10.1.0.2\"");
    let different = |number: usize| {
        let weights = format!("{}, {}", number / 256 + 1, number % 256 + 1);
        route(number, &format!("{one}, {other}"), &weights)
    };
    let full: String = LAN.to_owned() + &(0..512).map(different).collect::<String>();
    let same = route(600, &format!("{other}, {one}"), "1, 1");
    assert_eq!(parse(&(full.clone() + &same)).unwrap().routes.len(), 513);
    let error = parse(&(full.clone() + &different(512))).unwrap_err();
    let ConfigError::Invalid { line, title, message } = error else { unreachable!() };
    assert_eq!(line, full.lines().count() + 2);
    assert_eq!(title, "too many different groups of next hops in [[route]]");
    assert!(message.contains("172.16.2.0/32") && message.contains("number 513"), "{message}");
}

/// Neighbours that routes lead through and those by the operator's word are kept, all of them.
#[test]
fn next_hops_and_static_neighbours_fit_the_table() {
    let file = LAN.to_owned() + "[neighbour]\nentries_max = 16\n";
    let via = |host: usize| {
        format!("[[route]]\nprefix = \"172.16.0.{host}/32\"\nvia = \"10.1.0.{host}\"\n")
    };
    let known = |host: usize| {
        format!(
            "[[neighbour.static]]\nport = \"lan\"\naddress = \"10.1.0.{host}\"\n\
             mac = \"02:00:00:00:00:{host:02}\"\n"
        )
    };
    let routes: String = (1..16).map(via).collect();
    let full = file.clone() + &routes + &known(15) + &known(16);
    assert_eq!(parse(&full).unwrap().static_neighbours.len(), 2, "15 and 2, of which one is both");
    let error = parse(&(full + &known(17))).unwrap_err().to_string();
    assert!(error.contains("more [[neighbour.static]] and next hops"), "{error}");
    assert!(error.contains("with this one the sum is 17"), "{error}");
    let group = "[[route]]\nprefix = \"172.17.0.0/16\"\nvia = [\"10.1.0.16\", \"10.1.0.17\"]\n";
    let error = parse(&(file + &routes + group)).unwrap_err().to_string();
    assert!(error.contains("more next hops of [[route]] than `entries_max`"), "{error}");
    assert!(error.contains("prefix = \"172.17.0.0/16\""), "{error}");
}

#[test]
fn a_capture_may_come_for_ever_and_as_fast_as_possible() {
    let text = "[[port]]\nname = \"x\"\ndriver = \"pcap\"\naddresses = [\"10.9.0.254/24\"]\n\
                read = \"a.pcap\"\ntiming = \"fast\"\npasses = 0\nchecksum = \"trust\"\n\
                [port.fault.receive]\ndelay = 1\ndelay_us = [7]\n";
    let port = parse(text).unwrap().ports.remove(0);
    let Driver::Pcap(pcap) = port.driver else { panic!("{port:?}") };
    let expected = ReplayConfig { timing: Timing::Fast, passes: None, checksum: Checksum::Valid };
    assert_eq!(pcap.files.replay, expected);
    let faults = port.faults.receive.unwrap();
    assert_eq!((faults.delay, faults.delay_ns), (1.0, 7000..=7000));
}

#[test]
fn the_memory_example_sets_every_key_of_a_memory_port() {
    let config = parse(&example("memory.toml")).unwrap();
    let memory = |index: usize| match &config.ports[index].driver {
        Driver::Memory(memory) => memory,
        other => panic!("{other:?}"),
    };
    let generate = memory(0).generate.as_ref().unwrap();
    assert_eq!(memory(0).mac, Some([2, 0, 0, 0, 0, 1]));
    assert_eq!((memory(0).queues, memory(0).peer), (4, None));
    assert_eq!(generate.source, ip("10.1.0.1"));
    assert_eq!(generate.destination.to_string(), "10.4.0.0/16");
    assert_eq!((generate.flows, generate.size, generate.seed), (64, 64, 1));
    assert_eq!(generate.packets_per_second, Some(100_000));
    assert_eq!(generate.packets, Some(10_000_000));
    // One side names the wire, both have it.
    assert_eq!((memory(1).peer, memory(2).peer), (Some(PortId(2)), Some(PortId(1))));
    assert_eq!((memory(2).mac, memory(2).queues), (None, 1));
}

#[test]
fn one_port_is_a_configuration_and_everything_else_has_a_default() {
    let config = parse(LAN).unwrap();
    assert_eq!(config.workers.cores, [1, 2, 3], "one of four cores is left to others");
    assert_eq!(config.frames.count, None);
    assert!(config.routes.is_empty());
}

#[test]
fn there_may_be_more_workers_later_than_at_the_start() {
    let workers = |keys: &str| {
        let workers = parse(&format!("[workers]\n{keys}\n{LAN}")).unwrap().workers;
        (workers.cores, workers.started)
    };
    assert_eq!(workers("count = 2"), (vec![2, 3], 2));
    assert_eq!(
        workers("count = 1\nmax = 3"),
        (vec![3, 2, 1], 1),
        "those from the start come first"
    );
    assert_eq!(workers("max = 4"), (vec![1, 2, 3, 0], 3), "the core for others comes last");
    assert_eq!(workers("max = 2"), (vec![2, 3], 2));
    assert_eq!(workers("count = 1\nmax = 2\ncores = [0, 0]"), (vec![0, 0], 1));
}

#[test]
fn an_interface_has_one_of_four_drivers() {
    let port = |driver: &str, keys: &str| {
        let text = format!(
            "[workers]\ncount = 2\n[[port]]\nname = \"x\"\ndriver = \"{driver}\"\n\
             interface = \"eth0\"\naddresses = [\"10.9.0.254/24\"]\n{keys}"
        );
        parse(&text).unwrap_or_else(|error| panic!("{error}")).ports.remove(0)
    };
    let interface = || "eth0".to_owned();
    let queues = |queues| AfPacketPort { interface: interface(), queues, packets: 64 };
    assert_eq!(port("af_packet", "").driver, Driver::AfPacket(queues(2)), "one for each worker");
    let four = port("af_packet", "queues = 4\nmtu = 9000\nworkers = [0, 1, 0, 1]\n");
    assert_eq!((four.driver, four.mtu), (Driver::AfPacket(queues(4)), Some(9000)));
    let one = port("af_packet", "workers = [1]\n");
    assert_eq!(
        (one.driver, one.queue_owners),
        (Driver::AfPacket(queues(1)), Some(vec![WorkerId(1)]))
    );
    let tap = |queues, mac| Driver::Tap(TapPort { interface: interface(), queues, mac });
    assert_eq!(port("tap", "").driver, tap(1, None));
    assert_eq!(port("tap", "workers = [0, 1]\n").driver, tap(2, None));
    assert_eq!(
        port("tap", "queues = 2\nmac = \"02:00:00:00:00:07\"\n").driver,
        tap(2, Some([2, 0, 0, 0, 0, 7]))
    );
    let auto = port("auto", "checksum = \"trust\"\nrx_ring = 128\nmulti_buffer = false\n");
    let expected = AutoPort { interface: interface(), queues: 2, multi_buffer: false };
    assert_eq!(auto.driver, Driver::Auto(expected));
    assert_eq!((auto.rx_ring, auto.chosen), (128, None));
    // A TAP that does not exist is made.
    let made = parse(
        "[[port]]\nname = \"x\"\ndriver = \"tap\"\ninterface = \"new0\"\n\
         addresses = [\"10.9.0.254/24\"]\n",
    );
    assert_eq!(made.unwrap().ports[0].driver.interface(), Some("new0"));
}

/// What is the same on every link may be on every port; a list of bogons may be blackholed; both
/// ends may name a wire; a core may be shared if the file says so.
#[test]
fn what_looks_like_a_mistake_but_is_none_is_accepted() {
    let link = "[[port]]\ndriver = \"memory\"\naddresses = [\"fe80::1/64\"]\n";
    parse(&format!("{link}name = \"a\"\npeer = \"b\"\n{link}name = \"b\"\npeer = \"a\"\n"))
        .unwrap();
    for bogon in ["224.0.0.0/4", "127.0.0.0/8", "fe80::/10", "::/0"] {
        parse(&format!("{LAN}[[route]]\nprefix = \"{bogon}\"\ntype = \"blackhole\"\n")).unwrap();
    }
    let shared = parse(&format!("[workers]\ncores = [0, 0]\n{LAN}")).unwrap();
    assert_eq!(shared.workers.cores, [0, 0]);
    let secondary = LAN.replace("10.1.0.254/24", "10.1.0.254/24\", \"10.1.0.253/24");
    assert_eq!(parse(&secondary).unwrap().ports[0].addresses.len(), 3);
    for port in [LAN, &LAN.replace("memory", "pcap\"\nread = \"a.pcap")] {
        assert_eq!(parse(&format!("{port}mtu = 9000\n")).unwrap().ports[0].mtu, Some(9000));
    }
    parse(&format!("{LAN}rx_ring = 64\n")).unwrap();
    // A file that is only read may be read twice.
    let read = "driver = \"pcap\"\nread = \"a.pcap\"\n";
    parse(&format!(
        "[[port]]\nname = \"a\"\n{read}addresses = [\"10.1.0.254/24\"]\n\
         [[port]]\nname = \"b\"\n{read}addresses = [\"10.2.0.254/24\"]\n"
    ))
    .unwrap();
}

/// An editor may be interrupted anywhere, and a caret must not land inside a character.
#[test]
fn half_a_file_is_a_message_and_never_a_panic() {
    let text = example("memory.toml").replace("\"right\"", "\"rechts — größer\"");
    for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
        if let Err(error) = parse(&text[..end]) {
            assert!(error.to_string().contains("\nhelp: "), "{error}");
        }
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Config::load(Path::new("/no/such.toml"), &Environment::of_this_thread());
    let message = error.expect_err("there is no such file").to_string();
    assert!(message.starts_with("error: cannot read the configuration /no/such.toml: No such"));
    assert!(message.contains("\nhelp: "));
}

#[test]
fn this_machine_has_a_core_and_a_loopback() {
    let environment = Environment::of_this_thread();
    assert!(!environment.cores.is_empty());
    assert_eq!((environment.interfaces)("lo"), Ok(()));
    let help = (environment.interfaces)("no/such").expect_err("a slash is in no name");
    assert!(help.contains("`lo`"), "{help}");
}

fn parse(text: &str) -> Result<Config, ConfigError> {
    let interfaces = |name: &str| match name {
        "eth0" | "eth1" | "veth0" => Ok(()),
        _ => Err("there are `eth0`, `eth1`".into()),
    };
    let environment = Environment {
        cores: vec![0, 1, 2, 3],
        socket: DEFAULT_SOCKET.into(),
        interfaces: &interfaces,
    };
    Config::parse(text, "router.toml", &environment)
}

fn example(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    fs::read_to_string(folder.join(name)).expect("the example is in the repository")
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}
