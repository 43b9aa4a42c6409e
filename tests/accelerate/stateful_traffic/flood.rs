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
use super::faults::Progress;
use super::frames::station;
use super::transfers::settled;

/// 200,000 SYNs for each tier, or as many as the environment variable `FLOOD_SYNS` says: with `FLOOD_SYNS=1000000`
/// conntrack is full (262,144 connections on most machines), and gives up older half-open connections.
#[test]
fn half_open_connections_are_none_of_the_lanes_business() {
    let asked = std::env::var("FLOOD_SYNS").ok().and_then(|count| count.parse().ok());
    let syns: u64 = asked.unwrap_or(200_000);
    for tier in TIERS {
        let plan = Plan { lines: &[("server", SILENT)], ..Plan::default() };
        let Some(bed) = Bed::make(tier, plan) else { return };
        let pair = settled(&bed, SERVER_V4);
        let link = station(&bed.topology, "client", "eth0");
        let macs = [("r1", "lan"), ("client", "eth0")]
            .map(|(host, end)| Mac(bed.topology.mac(host, end).expect("it is there")));
        let (passed, lane) = (bed.passed(), bed.lane());
        let entry = bed.entry(pair.began()).expect("it is in the lane");
        let before = lane_ticks(bed.accelerated.pid());
        let progress = Progress::default();
        let ticks = thread::scope(|scope| {
            let flood = scope.spawn(|| {
                flood(&link, macs, syns, &progress);
                ticks("/proc/thread-self/stat")
            });
            for turn in 1..=syns / EXCHANGE_EVERY {
                progress.wait_for(turn * EXCHANGE_EVERY);
                pair.exchange(4);
            }
            flood.join().expect("it sends")
        });
        let lane_ticks = lane_ticks(bed.accelerated.pid()) - before;
        let now = bed.entry(pair.began()).expect("it is still in the lane");
        let sides = [(&now.original, &entry.original), (&now.reply, &entry.reply)];
        let by_lane: u64 = sides.iter().map(|(now, before)| now.packets - before.packets).sum();
        let left = sides.map(|(now, before)| u64::from(now.passed.wrapping_sub(before.passed)));
        let left: u64 = left.into_iter().sum();
        println!("{tier}: TCP during the flood: {by_lane} packets by the lane, {left} left");
        // The lane has looked at no other connection, and has had this one all the time. (The other direction of this one
        // may have been a candidate, too.)
        assert_eq!(now.id, entry.id);
        let later = bed.lane();
        assert_eq!(later.admitted, lane.admitted);
        assert!(later.candidates <= lane.candidates + 1, "{lane:#?}\n{later:#?}");
        let lapsed = bed.passed().since(passed).lapsed;
        assert!(by_lane > 10 * left, "{by_lane} {left} {lapsed}: {now:#?}");
        bed.lane_has("TCP after the flood", || {
            pair.exchange(128);
        });
        let all = bed.connections();
        let admitted: Vec<SocketAddr> = all
            .iter()
            .filter(|one| is_liberal(one))
            .map(|one| (one.original.source, one.original.source_port).into())
            .collect();
        println!(
            "{tier}: {syns} SYNs, {} connections; ticks of the lane's thread: \
             {lane_ticks}, of the sender's: {ticks}; {lapsed} packets without a lease",
            all.len()
        );
        assert!(all.len() > 100_000, "there was no flood");
        assert_eq!(admitted, [pair.began()]);
        // After a lapse the lane compares its entries with all that conntrack has, so with the flood.
        assert!(
            lane_ticks < ticks || lapsed > 0,
            "the lane's thread was busy for {lane_ticks} ticks, the sender for {ticks}"
        );
        pair.close();
        bed.finish();
    }
}

/// Sends SYNs of other sources each.
fn flood(link: &Station, [to, from]: [Mac; 2], syns: u64, progress: &Progress) {
    let (mut random, mut bytes) = (Content::new(5), [0; 8]);
    let mut frame = [0; ethernet::HEADER_LEN + ipv4::HEADER_LEN + 20];
    let destination: Ipv4Addr = "10.2.0.1".parse().expect("an address");
    for number in 0..syns {
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
        // A full queue is emptied by a thread of the kernel's.
        while link.send(&frame).is_err() {
            thread::yield_now();
        }
        if (number + 1).is_multiple_of(EXCHANGE_EVERY) {
            progress.set(number + 1);
        }
    }
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

/// SYNs between two exchanges on the connection in the lane.
const EXCHANGE_EVERY: u64 = 1000;
/// No socket of a scenario has one of these.
const PORTS: std::ops::Range<u16> = 1024..20_000;
const SILENT: &str = "nft '
    table ip silent {
        chain arrives {
            type filter hook prerouting priority raw
            tcp dport 1024-19999 drop
        }
    }'";
