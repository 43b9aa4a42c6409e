//! TCP between the hosts, their offloads at their defaults.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use manylane::lab::{Host, SERVER_V4, ping};
use manylane_io::affinity;
use serde_json::Value;

use super::Plan;
use super::bed::Bed;
use crate::figure::Rounds;
use crate::tcp::{Stop, mortal};

/// iperf3 by the kernel and by us, in turn, with 1 and with 8 connections.
pub fn measure(
    plan: &Plan,
    beds: &[Bed; 2],
    [first, last]: [usize; 2],
    rounds: &mut Rounds,
) -> Result<(), Stop> {
    let mut servers = Vec::new();
    for bed in beds {
        let [client, server] = ["client", "server"].map(|name| bed.topology().host(name));
        // What a host starts has the core of its thread.
        client.run(move || affinity::pin(first))?;
        server.run(move || affinity::pin(last))?;
        servers.push(Server::start(server)?);
        ping(client, SERVER_V4, 56, 3).map_err(Stop::failed)?; // Neighbours are known.
    }
    let seconds = if plan.quick { 1 } else { 3 };
    for _ in 0..plan.rounds() {
        for (connections, suffix) in COUNTS {
            for bed in beds {
                let gbps = transfer(bed.topology().host("client"), seconds, connections)?;
                let name = format!("tcp{}_gbps{suffix}", bed.suffix("_kernel", ""));
                rounds.push(&name, "Gb/s", Some(gbps));
            }
        }
    }
    for (_, suffix) in COUNTS {
        rounds.ratio(
            &format!("tcp_over_kernel{suffix}"),
            &format!("tcp_gbps{suffix}"),
            &format!("tcp_kernel_gbps{suffix}"),
        );
    }
    Ok(())
}

/// 10^9 bits a second that the server's program got.
fn transfer(client: &Host, seconds: u32, connections: u32) -> Result<f64, Stop> {
    // More than a client needs that waits for nothing.
    let patience = (seconds + 20).to_string();
    let mut command = mortal("timeout");
    command.args(["--signal", "KILL", &patience, "setpriv", "--pdeathsig", "KILL", "iperf3"]);
    command.args(["--json", "--connect-timeout", "5000", "--time", &seconds.to_string()]);
    command.args(["--client", &SERVER_V4.to_string(), "--parallel", &connections.to_string()]);
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let output = client.run(move || command.output())?;
    let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let rate = said["end"]["sum_received"]["bits_per_second"].as_f64().filter(|rate| *rate > 0.0);
    match rate {
        Some(rate) => Ok(rate / 1e9),
        None => Err(Stop::Failed(format!("iperf3: {} ({})", said["error"], output.status))),
    }
}

/// iperf3, serving one connection after the other.
struct Server(Child);

impl Server {
    fn start(host: &Host) -> Result<Server, Stop> {
        let mut command = mortal("iperf3");
        command.args(["--server", "--forceflush"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = host.run(move || command.spawn())?;
        let stdout = child.stdout.take().expect("it is a pipe");
        let server = Server(child);
        let mut lines = BufReader::new(stdout).lines();
        if !lines.any(|line| line.is_ok_and(|line| line.contains("listening"))) {
            return Err(Stop::Failed("iperf3 does not serve".into()));
        }
        // What it says of transfers nobody reads, and it must not wait for us.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Neither can fail in a way that matters: it may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const COUNTS: [(u32, &str); 2] = [(1, ""), (8, "_8")];
