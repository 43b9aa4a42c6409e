//! What the hosts of the demo send to each other, and what must be true of it in the end.

use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use super::stop::Stop;
use crate::terminal::table::{bytes, count, lay_out, plural};
use manylane_lab::ping::PATIENCE;
use manylane_lab::{
    Lab, PingReport, Pinger, SERVER_V4, SERVER_V6, TcpTransfer, TrafficError, UdpReport, UdpStream,
};

/// Sends everything at once until it is time to stop. Never panics.
pub(super) fn drive(lab: &Lab, stop: &Stop) -> Tally {
    let [v4, v6] = thread::scope(|scope| {
        let families = [SERVER_V4, SERVER_V6].map(|server| {
            let pings = scope.spawn(move || pings(lab, server, stop));
            let stream = scope.spawn(move || stream(lab, server, stop));
            let transfers = scope.spawn(move || transfers(lab, server, stop));
            (server, pings, stream, transfers)
        });
        families.map(|(server, pings, stream, transfers)| Family {
            name: if server.is_ipv4() { "IPv4" } else { "IPv6" },
            pings: pings.join().expect("errors are returned"),
            stream: stream.join().expect("errors are returned"),
            transfers: transfers.join().expect("errors are returned"),
        })
    });
    Tally { families: [v4, v6] }
}

fn pings(lab: &Lab, server: IpAddr, stop: &Stop) -> Result<PingReport, TrafficError> {
    let mut pinger = Pinger::open(&lab.client, server)?;
    let mut report = PingReport::default();
    while !stop.wait(PING_INTERVAL) {
        report.add(pinger.ask(PING_BYTES, PATIENCE)?);
    }
    Ok(report)
}

fn stream(lab: &Lab, server: IpAddr, stop: &Stop) -> Result<UdpReport, TrafficError> {
    let stream =
        UdpStream { destination: server, packets: u64::MAX, size: UDP_BYTES, rate: UDP_RATE };
    stream.run(&lab.client, &lab.server, &|| !stop.is_over())
}

fn transfers(lab: &Lab, server: IpAddr, stop: &Stop) -> Result<Transfers, TrafficError> {
    let transfer = TcpTransfer { destination: server, bytes: TCP_BYTES };
    let mut transfers = Transfers::default();
    while !stop.is_over() {
        let report = transfer.run(&lab.client, &lab.server, &|| !stop.is_over())?;
        transfers.count += 1;
        for half in [report.up, report.down] {
            transfers.sent += half.sent;
            transfers.received += half.received;
            if let Some(at) = half.first_wrong_byte {
                transfers.faults.push(format!("byte {at} arrived changed"));
            } else if let Some(why) = half.broken {
                transfers.faults.push(why);
            } else if half.sent != half.received {
                let (sent, received) = (count(half.sent), count(half.received));
                transfers.faults.push(format!("{received} of {sent} bytes arrived"));
            }
        }
        if !transfers.faults.is_empty() {
            break;
        }
    }
    Ok(transfers)
}

/// TCP connections, one after the other.
#[derive(Default)]
struct Transfers {
    count: usize,
    sent: u64,
    received: u64,
    faults: Vec<String>,
}

/// Everything that was sent, and what came of it.
pub(super) struct Tally {
    families: [Family; 2],
}

struct Family {
    name: &'static str,
    pings: Result<PingReport, TrafficError>,
    stream: Result<UdpReport, TrafficError>,
    transfers: Result<Transfers, TrafficError>,
}

impl Tally {
    /// What was sent and what arrived.
    pub(super) fn table(&self) -> String {
        let rows = self.families.iter().flat_map(|family| family.rows());
        lay_out(&["Traffic", ">Sent", ">Arrived", "How"], rows)
    }

    /// What is wrong, if anything. A lost datagram is not: UDP promises none, and the ledger says
    /// whether it was the router.
    pub(super) fn faults(&self) -> Vec<String> {
        self.families.iter().flat_map(|family| family.faults()).collect()
    }
}

impl Family {
    fn rows(&self) -> Vec<Vec<String>> {
        let name = self.name;
        let row = |what: &str, cells: Result<[String; 3], &TrafficError>| {
            let [sent, arrived, how] =
                cells.unwrap_or_else(|error| ["-".into(), "-".into(), error.to_string()]);
            vec![format!("{what}, {name}"), sent, arrived, how]
        };
        let pings = self.pings.as_ref().map(|pings| {
            let how = match (pings.fastest, pings.rtt()) {
                (Some(fastest), Some(mean)) => {
                    let [fastest, mean] =
                        [fastest, mean].map(|time| count(time.as_micros() as u64));
                    format!("round trip {fastest} µs at best, {mean} µs on average")
                }
                _ => "no reply".into(),
            };
            [count(pings.sent), count(pings.received), how]
        });
        let stream = self.stream.as_ref().map(|stream| {
            let how = if stream.is_perfect() {
                "in order, byte for byte".into()
            } else {
                format!(
                    "{} late, {} twice, {} damaged",
                    count(stream.reordered),
                    count(stream.duplicated),
                    count(stream.damaged)
                )
            };
            [count(stream.sent), count(stream.received), how]
        });
        let transfers = self.transfers.as_ref().map(|tcp| {
            let how = match tcp.faults.first() {
                None => "byte for byte".into(),
                Some(fault) => fault.clone(),
            };
            let how = format!("{} both ways, {how}", plural(tcp.count, "connection"));
            [bytes(tcp.sent), bytes(tcp.received), how]
        });
        vec![row("Ping", pings), row("UDP", stream), row("TCP", transfers)]
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let name = self.name;
        match &self.pings {
            Ok(pings) if pings.sent > 0 && pings.received == 0 => {
                faults.push(format!("{name} pings were not answered"));
            }
            Ok(pings) if pings.damaged > 0 => {
                faults.push(format!("{} {name} pings were damaged", count(pings.damaged)));
            }
            Ok(_) => {}
            Err(error) => faults.push(format!("{name} ping: {error}")),
        }
        match &self.stream {
            Ok(stream) if stream.sent > 0 && stream.received == 0 => {
                faults.push(format!("no {name} datagram arrived"));
            }
            Ok(stream) if stream.damaged > 0 => {
                faults.push(format!("{} {name} datagrams were damaged", count(stream.damaged)));
            }
            Ok(_) => {}
            Err(error) => faults.push(format!("{name} UDP: {error}")),
        }
        match &self.transfers {
            Ok(transfers) => {
                faults.extend(transfers.faults.iter().map(|fault| format!("{name} TCP: {fault}")));
            }
            Err(error) => faults.push(format!("{name} TCP: {error}")),
        }
        faults
    }
}

const PING_INTERVAL: Duration = Duration::from_millis(50);
/// What ping(8) sends.
const PING_BYTES: usize = 56;
const UDP_BYTES: usize = 1000;
const UDP_RATE: u64 = 1000;
/// Each way, per connection: short enough that a demo has several.
const TCP_BYTES: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn family() -> Family {
        let (total, fastest) = (Duration::from_micros(3000), Some(Duration::from_micros(90)));
        let pings = PingReport { sent: 2, received: 2, total, fastest, ..PingReport::default() };
        let stream = UdpReport { sent: 9, received: 9, ..UdpReport::default() };
        let transfers = Transfers { count: 1, sent: 2000, received: 2000, faults: Vec::new() };
        Family { name: "IPv6", pings: Ok(pings), stream: Ok(stream), transfers: Ok(transfers) }
    }

    #[test]
    fn good_traffic_has_no_faults_and_three_lines() {
        let family = family();
        assert_eq!(family.faults(), Vec::<String>::new());
        let wanted = [
            ["Ping, IPv6", "2", "2", "round trip 90 µs at best, 1,500 µs on average"],
            ["UDP, IPv6", "9", "9", "in order, byte for byte"],
            ["TCP, IPv6", "2.00 kB", "2.00 kB", "1 connection both ways, byte for byte"],
        ];
        assert_eq!(family.rows(), wanted.map(|row| row.map(String::from).to_vec()));
    }

    #[test]
    fn what_is_changed_or_cut_is_a_fault_and_a_lost_datagram_is_not() {
        let mut family = family();
        family.stream = Ok(UdpReport { sent: 10, received: 9, ..UdpReport::default() });
        assert_eq!(family.faults(), Vec::<String>::new());

        family.stream = Ok(UdpReport { sent: 10, received: 9, damaged: 1, ..UdpReport::default() });
        family.pings = Ok(PingReport { sent: 3, ..PingReport::default() });
        let faults = vec!["receiving: reset".into()];
        family.transfers = Ok(Transfers { count: 1, faults, ..Transfers::default() });
        assert_eq!(
            family.faults(),
            [
                "IPv6 pings were not answered",
                "1 IPv6 datagrams were damaged",
                "IPv6 TCP: receiving: reset"
            ]
        );
    }
}
