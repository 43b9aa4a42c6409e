//! TCP between two kernels with their offloads at the defaults: partial checksums, segments to be cut.

use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::process::{Command, Stdio};

use crate::scenario::Scenario;
use manylane_lab::scenario::{has, spawn_in};
use manylane_lab::{CLIENT_V4, CLIENT_V6, Host, SERVER_V4, SERVER_V6, tcp_transfer};

#[test]
fn transfers_arrive_byte_for_byte_in_both_directions() {
    let Some(scenario) = Scenario::start() else { return };
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
        println!("{destination}: 16 MiB each way in {:?}", report.elapsed);
    }
    scenario.finish();
}

#[test]
fn iperf3_is_content() {
    if !has("iperf3") {
        return;
    }
    let Some(scenario) = Scenario::start() else { return };
    for destination in [SERVER_V4, SERVER_V6] {
        for direction in [&[][..], &["--reverse"]] {
            let (client, server) = (&scenario.lab.client, &scenario.lab.server);
            iperf3(client, server, destination, direction);
        }
    }
    scenario.finish();
}

fn iperf3(client: &Host, server: &Host, destination: IpAddr, direction: &[&str]) {
    let address = destination.to_string();
    let mut command = bounded_iperf3();
    command.args(["--server", "--one-off", "--forceflush", "--bind", &address]);
    let mut listener = spawn_in(server, command);
    let mut said = BufReader::new(listener.stdout.take().expect("it is a pipe"));
    let mut line = String::new();
    while !line.contains("Server listening") {
        line.clear();
        let length = said.read_line(&mut line).expect("iperf3 writes text");
        assert_ne!(length, 0, "iperf3 --server ended before it listened");
    }

    let mut command = bounded_iperf3();
    command.args(["--client", &address, "--time", "1"]).args(direction);
    let output = spawn_in(client, command).wait_with_output().expect("it is our child");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{destination} {direction:?}: {text}");
    let received = text.lines().find(|line| line.trim_end().ends_with("receiver"));
    println!("iperf3 {destination} {direction:?}: {}", received.unwrap_or_default());
    listener.wait().expect("it is our child");
}

/// By timeout(1), so that a router which loses everything ends the test and does not hang it.
fn bounded_iperf3() -> Command {
    let mut command = Command::new("timeout");
    command.args(["30", "iperf3"]).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}
