//! Interfaces that are missing at the start, and interfaces that are added while the accelerator runs.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};

use manylane_api::Setting;
use manylane_api::accelerate::{AcceleratedPort, ReasonStatus};
use manylane_lab::accelerated::{Accelerated, IN_A_ROW, plain_hosts};
use manylane_lab::scenario::{all_answered, signal, spawn_in};
use manylane_lab::{SERVER_V4, SERVER_V6, Topology, until};
use nix::sys::signal::Signal;

const MANYLANE: &str = env!("CARGO_BIN_EXE_manylane");
const WAN: &str =
    "r1:wan 10.2.0.254/24 2001:db8:2::fe/64 -- server:eth0 10.2.0.1/24 2001:db8:2::1/64";

#[test]
fn an_interface_that_is_missing_at_the_start_is_taken_up_when_it_appears() {
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    topology.tool("r1", "ip link del wan");
    let router = topology.host("r1");
    let mut refused = Accelerated::spawn(router, MANYLANE, &["lan", "wan"], &[]);
    assert!(!refused.wait().success());
    let said = refused.said();
    assert!(said.contains("interface wan does not exist") && said.contains("--wait"), "{said}");
    drop(refused);
    let planned = run(&topology, &["accelerate", "lan", "wan", "--wait", "--dry-run"]);
    assert_eq!(planned.status.code(), Some(1), "{planned:?}");
    let said = String::from_utf8_lossy(&planned.stdout);
    assert!(said.contains("wan: kept in the kernel: the interface does not exist"), "{said}");

    let accelerated = Accelerated::start_with(router, MANYLANE, &["lan", "wan"], &["--wait"]);
    let wan = accelerated.port("wan");
    assert_eq!((wan.index, wan.tier.as_str()), (None, "kernel"));
    assert_eq!(wan.reasons[0].what, "the interface does not exist");
    connect_wan(&topology);
    accelerated.wait_for_tier("wan", "ingress");
    forwards(&topology, &accelerated);
}

#[test]
fn an_interface_is_added_while_packets_pass() {
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    let accelerated = Accelerated::start(topology.host("r1"), MANYLANE, &["lan"]);
    let socket = accelerated.socket();
    let add = |name: &str| {
        let mut command = Command::new(MANYLANE);
        command.args(["port", "add", name, "--socket"]).arg(&socket);
        let output = command.output().expect("the program is there");
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.code(), said)
    };
    let before = accelerated.port("lan");
    let (status, said) = add("wan");
    assert_eq!(status, Some(0), "{said}");
    assert!(said.starts_with("wan is added, tier "), "{said}");
    assert_eq!(accelerated.ports().len(), 2);
    let wan = accelerated.port("wan");
    assert_eq!((wan.port, wan.device_dropped), (before.port + 1, 0));
    accelerated.wait_for_tier("wan", &before.tier);
    forwards(&topology, &accelerated);
    accelerated.wait_for_no_difference();
    accelerated.assert_balanced();

    for (name, says) in [
        ("wan", "wan is one of the accelerator's interfaces already"),
        ("wlan", "interface wlan does not exist; existing interfaces: "),
    ] {
        let (status, said) = add(name);
        assert_eq!(status, Some(1), "{said}");
        assert!(said.contains(says), "{said}");
    }
    // An added interface is followed as the others are.
    topology.tool("r1", "ip link del wan");
    accelerated.wait_for_tier("wan", "kernel");
    connect_wan(&topology);
    accelerated.wait_for_tier("wan", &before.tier);
    forwards(&topology, &accelerated);
}

/// Workers' memory is for the interfaces that are known when workers start: of those that are added before, too.
#[test]
fn an_added_interface_becomes_the_workers_while_their_memory_has_room() {
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    topology.tool("r1", "ip link add late type veth peer name other");
    topology.tool("r1", "ip link set late up");
    topology.tool("r1", "ip link set other up");
    let accelerated = Accelerated::start(topology.host("r1"), MANYLANE, &["lan"]);
    let add = |name: &str| {
        let added = accelerated.put::<AcceleratedPort>(&format!("/v1/ports/{name}"), "");
        added.unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    add("wan");
    for name in ["lan", "wan"] {
        let set = accelerated.put::<Setting>(&format!("/v1/config/port.{name}.tier"), "workers");
        set.unwrap_or_else(|error| panic!("{name}: {error}"));
        accelerated.wait_for_tier(name, "workers");
    }
    forwards(&topology, &accelerated);
    add("late");
    let set = accelerated.put::<Setting>("/v1/config/port.late.tier", "workers");
    set.unwrap_or_else(|error| panic!("{error}"));
    until("the reason is shown", || {
        let late = accelerated.port("late");
        let says = |reason: &ReasonStatus| reason.what.contains("no room for another interface");
        match late.tier_reasons.iter().any(says) && late.tier == "ingress" {
            true => Ok(()),
            false => Err(format!("{late:#?}")),
        }
    });
    forwards(&topology, &accelerated);
}

#[test]
fn an_interface_of_another_daemon_is_not_added() {
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    let accelerated = Accelerated::start(topology.host("r1"), MANYLANE, &["lan"]);
    let file = accelerated.socket().with_file_name("wan.toml");
    let text = "[[port]]\nname = \"wan\"\ndriver = \"af_packet\"\ninterface = \"wan\"\n\
                addresses = [\"10.9.0.1/24\"]\n";
    std::fs::write(&file, text).expect("the folder is ours");
    let mut command = Command::new(MANYLANE);
    command.arg("run").arg(&file).arg("--socket").arg(file.with_extension("sock"));
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    let mut other = spawn_in(topology.host("r1"), command);
    let mut said = BufReader::new(other.stderr.take().expect("it is piped"));
    let lines = said.by_ref().lines().map(|line| line.expect("what it says is text"));
    let begun = lines.take(9).find(|line| line.contains("forwarding")); // After its warnings.
    assert!(begun.is_some(), "it did not say that it forwards");

    let refused = accelerated.put::<AcceleratedPort>("/v1/ports/wan", "");
    let refused = refused.expect_err("it is the other's").to_string();
    let owner = format!("process {} (manylane run) forwards by interface wan", other.id());
    assert!(refused.contains(&owner), "{refused}");
    assert_eq!(accelerated.ports().len(), 1);
    signal(&other, Signal::SIGTERM);
    assert!(other.wait().expect("it is our child").success());
    let added = accelerated.put::<AcceleratedPort>("/v1/ports/wan", "");
    added.unwrap_or_else(|error| panic!("{error}"));
    forwards(&topology, &accelerated);
}

/// Another link of the same names.
fn connect_wan(topology: &Topology) {
    topology.connect(WAN).expect("the name is free");
    topology.tool("server", "ethtool -K eth0 gro on tx off");
    for via in ["10.2.0.254", "2001:db8:2::fe"] {
        topology.tool("server", &format!("ip route replace default via {via}"));
    }
}

/// Packets of both families pass, and some of them by us in each direction.
fn forwards(topology: &Topology, accelerated: &Accelerated) {
    let before = ["lan", "wan"].map(|name| accelerated.port(name).forwarded);
    until("packets are forwarded in both directions", || {
        for destination in [SERVER_V4, SERVER_V6] {
            all_answered(topology.host("client"), destination, 56);
        }
        let now = ["lan", "wan"].map(|name| accelerated.port(name).forwarded);
        // Three echoes of each family at least, once neighbours are known.
        match now.iter().zip(before).all(|(now, before)| *now >= before + 6) {
            true => Ok(()),
            false => Err(format!("{:#?}", accelerated.ports())),
        }
    });
}

fn run(topology: &Topology, arguments: &[&str]) -> Output {
    let mut command = Command::new(MANYLANE);
    command.args(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    spawn_in(topology.host("r1"), command).wait_with_output().expect("it is our child")
}
