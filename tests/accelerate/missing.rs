//! Interfaces that are missing at the start, and interfaces that are added while the accelerator runs.

use std::process::{Command, Output, Stdio};

use manylane_lab::accelerated::{Accelerated, IN_A_ROW, plain_hosts};
use manylane_lab::scenario::{all_answered, spawn_in};
use manylane_lab::{SERVER_V4, SERVER_V6, Topology, until};

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
