//! The Internet's table: loaded while accelerated, mirrored, changed by the thousand, its default route gone and back.

use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::time::Instant;

use manylane_io::netlink::Netlink;
use manylane_io::netlink::kernel::{Change, Hop, Hops, Route};
use manylane_lab::accelerated::{Accelerated, IN_A_ROW, topology};
use manylane_lab::{SERVER_V4, Steady, SteadyOptions, Topology, until};

#[test]
fn a_full_table_is_mirrored_changed_and_cut_off() {
    let Some(topology) = topology(IN_A_ROW) else { return };
    let prefixes = prefixes();
    let count = prefixes.len() as u64;
    assert!(count > 1_000_000, "{count} prefixes");
    // An address of the server's that only the default route leads to.
    let behind = IpAddr::from([198, 18, 0, 1]);
    topology.tool("server", &format!("ip addr add {behind}/32 dev lo"));
    topology.tool("r1", "ip route add default via 10.2.0.1");
    topology.tool("r1", "ip route add default via 2001:db8:2::1");
    let (stream, by_default) = (stream(&topology, SERVER_V4), stream(&topology, behind));
    let accelerated = start(&topology);
    is_forwarded(&accelerated, &[&stream, &by_default]);

    // While packets pass: the mirror follows as it can, and is behind, or reads all anew.
    let index =
        topology.host("r1").run(|| Netlink::open()?.link("wan")).expect("it is there").index;
    let changed = prefixes.clone();
    let begun = Instant::now();
    let loaded = change(&topology, prefixes, Change::Add, index, "10.2.0.1", "2001:db8:2::1");
    println!("the kernel has {loaded} routes after {:?}", begun.elapsed());
    accelerated.wait_for_no_difference();
    println!("the mirror, too, after {:?}: {:#?}", begun.elapsed(), accelerated.mirror());
    assert!(loaded > count * 99 / 100, "{loaded} of {count}");
    is_forwarded(&accelerated, &[&stream, &by_default]);

    let begun = Instant::now();
    topology.tool("r1", "ip route del default via 10.2.0.1");
    until("nothing goes by the default route", || {
        let (seen, mark) = (by_default.arrivals().seen, by_default.after(20));
        match by_default.arrivals().seen {
            now if now == seen => Ok(()),
            now => Err(format!("{now} arrived, {mark} sent")),
        }
    });
    println!("no default route any more after {:?}", begun.elapsed());
    accelerated.wait_for_no_difference();
    topology.tool("r1", "ip route add default via 10.2.0.1");
    by_default.arrives("the default route is back");
    is_forwarded(&accelerated, &[&stream, &by_default]);

    // Another metric for a part of them, and back: the real mix of lengths.
    let some: Vec<_> = changed.into_iter().step_by(20).collect();
    for (step, what) in [(Change::Delete, "removed"), (Change::Add, "added")] {
        let resyncs = accelerated.mirror().overruns;
        let begun = Instant::now();
        let done = change(&topology, some.clone(), step, index, "10.2.0.1", "2001:db8:2::1");
        let changed = begun.elapsed();
        accelerated.wait_for_no_difference();
        println!(
            "{done} routes are {what} after {changed:?}, and mirrored after {:?}, {} overruns",
            begun.elapsed(),
            accelerated.mirror().overruns - resyncs
        );
    }
    let mark = stream.mark();
    is_forwarded(&accelerated, &[&stream, &by_default]);
    let seen = stream.arrives("in the end");
    assert_eq!(stream.missing(mark..seen), 0);
}

/// The real table of a day, IPv4 and IPv6 (`testdata/NOTICE`).
fn prefixes() -> Vec<(IpAddr, u8)> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/prefixes.txt.gz");
    let mut gzip = Command::new("gzip");
    gzip.args(["--decompress", "--stdout", file]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut gzip = gzip.spawn().expect("gzip is part of every system");
    let lines = BufReader::new(gzip.stdout.take().expect("it is a pipe")).lines();
    let prefixes = lines
        .map(|line| line.expect("it is text").trim().to_owned())
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let (address, length) = line.split_once('/').expect("a prefix");
            (address.parse().expect("an address"), length.parse().expect("a length"))
        })
        .collect();
    assert!(gzip.wait().expect("it is our child").success());
    prefixes
}

/// Changes them all; how many the kernel took: some are its own already.
fn change(
    topology: &Topology,
    prefixes: Vec<(IpAddr, u8)>,
    change: Change,
    link: u32,
    v4: &str,
    v6: &str,
) -> u64 {
    let [v4, v6]: [IpAddr; 2] = [v4, v6].map(|text| text.parse().expect("an address"));
    let changed = topology.host("r1").run(move || {
        let routes = prefixes.into_iter().map(|(destination, length)| {
            let gateway = if destination.is_ipv4() { v4 } else { v6 };
            let hops = Hops::One(Some(Hop::via(link, gateway)));
            (change, Route::new(destination, length, hops))
        });
        Netlink::open()?.change_routes(routes)
    });
    changed.unwrap_or_else(|error| panic!("{error}")).done
}

fn start(topology: &Topology) -> Accelerated {
    Accelerated::start(topology.host("r1"), env!("CARGO_BIN_EXE_manylane"), &["lan", "wan"])
}

fn stream(topology: &Topology, to: IpAddr) -> Steady {
    let [client, server] = ["client", "server"].map(|name| topology.host(name));
    let options = SteadyOptions { per_second: 200, ..SteadyOptions::to(to) };
    Steady::start(client, server, options).expect("sockets are to be had")
}

/// Waits until all of what is sent goes the fast way.
fn is_forwarded(accelerated: &Accelerated, streams: &[&Steady]) {
    until("datagrams go the fast way", || {
        let before = accelerated.forwarded();
        for stream in streams {
            stream.after(50);
        }
        match accelerated.forwarded() {
            now if now >= before + 45 * streams.len() as u64 => Ok(()),
            _ => Err(format!("{:#?}\n{:#?}", accelerated.ledger(), accelerated.mirror())),
        }
    });
    for stream in streams {
        stream.arrives("by the fast way");
    }
}
