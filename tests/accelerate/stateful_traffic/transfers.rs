//! What applications do: transfers that close, transfers that are reset, HTTP, datagrams both ways.

use std::fs;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::Stdio;

use manylane_io::netlink::conntrack::Tcp;
use manylane_lab::scenario::has;
use manylane_lab::tools::mortal;
use manylane_lab::{Content, SERVER_V4, SERVER_V6, until};

use super::bed::{Bed, Plan, Program, TIERS};
use super::talk::{Datagrams, Pair};

#[test]
fn transfers_are_exact_and_conntrack_sees_them_close() {
    for tier in TIERS {
        let Some(bed) = Bed::usual(tier) else { return };
        for address in [SERVER_V4, SERVER_V6] {
            let pair = settled(&bed, address);
            bed.lane_has(&format!("TCP to {address}"), || {
                pair.exchange(128);
            });
            let began = pair.began();
            pair.close();
            bed.ends_in(began, Tcp::TIME_WAIT);
        }
        bed.finish();
    }
}

#[test]
fn conntrack_sees_a_reset() {
    for tier in TIERS {
        let Some(bed) = Bed::usual(tier) else { return };
        for address in [SERVER_V4, SERVER_V6] {
            let pair = settled(&bed, address);
            pair.exchange(64);
            let began = pair.began();
            pair.reset();
            bed.is_reset(began);
        }
        bed.finish();
    }
}

/// Its sequence number lies behind the last acknowledgement that conntrack saw, when numbers are compared.
#[test]
fn a_reset_after_half_of_all_sequence_numbers_is_seen() {
    let Some(bed) = Bed::usual("ingress") else { return };
    let pair = settled(&bed, SERVER_V4);
    bed.lane_has("more than 2 GiB", || pair.pour((2 << 30) + (256 << 20)));
    let began = pair.began();
    pair.reset();
    bed.is_reset(began);
    bed.finish();
}

#[test]
fn http_is_served() {
    if !has("curl") || !has("python3") {
        return;
    }
    for tier in TIERS {
        let plan = Plan { lines: &SMALL_SEGMENTS, ..Plan::default() };
        let Some(bed) = Bed::make(tier, plan) else { return };
        let folder =
            std::env::temp_dir().join(format!("manylane-http-{}-{tier}", std::process::id()));
        fs::create_dir_all(&folder).expect("the temporary folder can be written");
        let mut wanted = vec![0; 8 << 20];
        Content::new(7).fill(&mut wanted);
        fs::write(folder.join("file"), &wanted).expect("the folder is ours");
        for address in [SERVER_V4, SERVER_V6] {
            let mut command = mortal("python3");
            command.args(["-m", "http.server", "8080", "--protocol", "HTTP/1.1", "--bind"]);
            command.arg(address.to_string()).arg("--directory").arg(&folder);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            let _server = Program::start(&bed.topology, "server", command);
            listens(&bed, (address, 8080).into());
            let host = match address {
                IpAddr::V4(address) => address.to_string(),
                IpAddr::V6(address) => format!("[{address}]"),
            };
            bed.wait_for_lane(&format!("HTTP from {address}"), || {
                let [first, second] = ["first", "second"].map(|name| folder.join(name));
                let url = format!("http://{host}:8080/file");
                let (first_to, second_to) = (first.display(), second.display());
                let line = format!(
                    "curl --silent --show-error --fail --http1.1 -w %{{num_connects}} \
                     -o {first_to} {url} -o {second_to} {url}"
                );
                let said = bed.topology.tool("client", &line);
                assert_eq!(said, "10", "the second transfer is of the same connection");
                for path in [first, second] {
                    assert!(fs::read(path).expect("it was written") == wanted);
                }
            });
        }
        fs::remove_dir_all(&folder).expect("it is ours");
        bed.finish();
    }
}

/// Four connections at once, from the client and to it.
#[test]
fn what_iperf3_sends_passes_by_the_lane() {
    if !has("iperf3") {
        return;
    }
    for tier in TIERS {
        let Some(bed) = Bed::usual(tier) else { return };
        let mut command = mortal("iperf3");
        command.arg("--server").stdout(Stdio::null()).stderr(Stdio::null());
        let _server = Program::start(&bed.topology, "server", command);
        listens(&bed, (SERVER_V4, 5201).into());
        for (address, way) in [(SERVER_V4, ""), (SERVER_V6, ""), (SERVER_V6, "--reverse")] {
            bed.wait_for_lane(&format!("iperf3 {way} and {address}"), || {
                let line =
                    format!("iperf3 --client {address} --parallel 4 --bytes 256M --json {way}");
                let said = bed.topology.tool("client", &line);
                let said: serde_json::Value = serde_json::from_str(&said).expect("it is JSON");
                let received = said["end"]["sum_received"]["bytes"].as_u64();
                // What is on its way at the end does not count.
                assert!(received.is_some_and(|bytes| bytes >= 128 << 20), "{received:?}");
            });
        }
        bed.finish();
    }
}

/// As QUIC's are: large ones, both ways at once, from one port.
#[test]
fn datagrams_pass_both_ways() {
    for tier in TIERS {
        let Some(bed) = Bed::usual(tier) else { return };
        for address in [SERVER_V4, SERVER_V6] {
            let [client, server] = bed.hosts();
            let datagrams = Datagrams::open(client, server, address);
            bed.wait_for_lane("UDP", || {
                datagrams.exchange(4);
            });
            bed.lane_has(&format!("UDP to {address}"), || {
                datagrams.exchange(500);
            });
        }
        bed.finish();
    }
}

/// The server sends packets of one segment each: a file of some MiB is many times as many packets as its connection has
/// before the lane forwards it.
pub(super) const SMALL_SEGMENTS: [(&str, &str); 1] =
    [("server", "ethtool -K eth0 tso off gso off")];

/// A connection that the lane forwards.
pub(super) fn settled(bed: &Bed<'_>, address: IpAddr) -> Pair {
    let [client, server] = bed.hosts();
    let pair = Pair::open(client, server, address);
    admitted(bed, &pair);
    pair
}

/// Waits until the lane forwards a connection.
pub(super) fn admitted(bed: &Bed<'_>, pair: &Pair) {
    bed.wait_for_lane("TCP", || {
        pair.exchange(16);
    });
    assert!(bed.is_admitted(pair.began()), "{:?}", bed.connection(pair.began()));
}

/// Waits until the server listens.
pub(super) fn listens(bed: &Bed<'_>, address: SocketAddr) {
    let connect = move || TcpStream::connect(address);
    until(&format!("{address} listens"), || bed.topology.host("server").run(connect).map(drop));
}
