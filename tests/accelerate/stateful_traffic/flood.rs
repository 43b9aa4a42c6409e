//! A flood of half-open connections: the lane has nothing to do with it, and what it forwards does not suffer.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;

use manylane_io::station::Station;
use manylane_lab::{Content, SERVER_V4, packet};
use manylane_net::wire::checksum::Sum;
use manylane_net::wire::ethernet::{self, Mac, ether_type};
use manylane_net::wire::{ipv4, protocol};

use super::bed::{Bed, Plan, TIERS, is_liberal};
use super::frames::station;
use super::transfers::settled;

#[test]
fn half_open_connections_are_none_of_the_lanes_business() {
    for tier in TIERS {
        let plan = Plan { lines: &[("server", SILENT)], ..Plan::default() };
        let Some(bed) = Bed::make(tier, plan) else { return };
        let pair = settled(&bed, SERVER_V4);
        let link = station(&bed.topology, "client", "eth0");
        let macs = [("r1", "lan"), ("client", "eth0")]
            .map(|(host, end)| Mac(bed.topology.mac(host, end).expect("it is there")));
        let before = lane_ticks(bed.accelerated.pid());
        let (sent, ticks) = thread::scope(|scope| {
            let flood = scope.spawn(|| {
                let sent = flood(&link, macs);
                (sent, ticks("/proc/thread-self/stat"))
            });
            let mut rounds = 0;
            bed.lane_has("TCP during the flood", || {
                while !flood.is_finished() || rounds == 0 {
                    pair.exchange(16);
                    rounds += 1;
                }
            });
            println!("{tier}: {rounds} exchanges during the flood");
            flood.join().expect("it sends")
        });
        bed.lane_has("TCP after the flood", || {
            pair.exchange(128);
        });
        let lane = lane_ticks(bed.accelerated.pid()) - before;
        let all = bed.connections();
        let admitted: Vec<SocketAddr> = all
            .iter()
            .filter(|one| is_liberal(one))
            .map(|one| (one.original.source, one.original.source_port).into())
            .collect();
        println!(
            "{tier}: {sent} of {SYNS} SYNs sent, {} connections; ticks of the lane's thread: {lane}, of the sender's: {ticks}",
            all.len()
        );
        assert!(all.len() > 100_000, "there was no flood");
        assert_eq!(admitted, [pair.began()]);
        assert!(
            lane < ticks,
            "the lane's thread was busy for {lane} ticks, the sender for {ticks}"
        );
        pair.close();
        bed.finish();
    }
}

/// Sends SYNs of other sources each; how many were sent.
fn flood(link: &Station, [to, from]: [Mac; 2]) -> u64 {
    let (mut random, mut bytes) = (Content::new(5), [0; 8]);
    let mut frame = [0; ethernet::HEADER_LEN + ipv4::HEADER_LEN + 20];
    let destination: Ipv4Addr = "10.2.0.1".parse().expect("an address");
    let mut sent = 0;
    for number in 0..SYNS {
        random.fill(&mut bytes);
        let [a, b, c, d, e, f, ..] = bytes;
        // None of the hosts that are there.
        let source = Ipv4Addr::new(10, 64 | a & 63, b, c);
        let (head, packet) = frame.split_at_mut(ethernet::HEADER_LEN);
        ethernet::emit(head, to, from, ether_type::IPV4).expect("it is long enough");
        let (header, segment) = packet.split_at_mut(ipv4::HEADER_LEN);
        packet::ipv4(protocol::TCP, 64, [source, destination])
            .emit(header, segment.len())
            .expect("it is long enough");
        segment.fill(0);
        segment[..2].copy_from_slice(&(u16::from_be_bytes([d, e]) | 1024).to_be_bytes());
        let port = PORTS.start + (u16::from(f) << 8 | u16::from(a)) % (PORTS.end - PORTS.start);
        segment[2..4].copy_from_slice(&port.to_be_bytes());
        segment[4..8].copy_from_slice(&(number as u32).to_be_bytes());
        (segment[12], segment[13], segment[14]) = (0x50, 2, 0x20);
        let pseudo = Sum::pseudo_v4(source, destination, protocol::TCP, 20);
        let sum = pseudo.plus(segment).finish();
        segment[16..18].copy_from_slice(&sum.to_be_bytes());
        // What the queue does not take is not sent.
        sent += u64::from(link.send(&frame).is_ok());
    }
    sent
}

/// Ticks that the lane's thread has used.
fn lane_ticks(process: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    let is_lane = |path: &std::path::PathBuf| {
        fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "lane")
    };
    let thread = threads.flatten().map(|thread| thread.path()).find(is_lane);
    ticks(thread.expect("it has a thread for connections").join("stat"))
}

/// User and system time of a thread (proc_pid_stat(5)).
fn ticks(path: impl AsRef<std::path::Path>) -> u64 {
    let stat = fs::read_to_string(path).expect("the thread is there");
    let (_, fields) = stat.rsplit_once(')').expect("it has a name");
    let fields = fields.split_whitespace().skip(11).take(2);
    fields.map(|field| field.parse::<u64>().expect("a number")).sum()
}

const SYNS: u64 = 1_000_000;
/// No socket of a scenario has one of these.
const PORTS: std::ops::Range<u16> = 1024..20_000;
const SILENT: &str = "nft '
    table ip silent {
        chain arrives {
            type filter hook prerouting priority raw
            tcp dport 1024-19999 drop
        }
    }'";
