//! Many short connections: all of them are the kernel's, and the lane stays out of them.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

use manylane_io::netlink::conntrack::Connection;
use manylane_lab::{Host, SERVER_V4, SERVER_V6};
use nix::sched::{CloneFlags, setns};

use super::bed::{Bed, TIERS, is_liberal};
use super::talk::PATIENCE;

#[test]
fn short_connections_are_complete_and_stay_in_the_kernel() {
    for tier in TIERS {
        let Some(bed) = Bed::usual(tier) else { return };
        let [client, server] = bed.hosts();
        bed.topology.set("server", "net/core/somaxconn", "8192");
        let said = bed.accelerated.said();
        let begun = Instant::now();
        let begun_by: Vec<[SocketAddr; 2]> = thread::scope(|scope| {
            let threads = [SERVER_V4, SERVER_V6, SERVER_V4, SERVER_V6].map(|address| {
                scope.spawn(move || connections(client, server, (address, 0).into()))
            });
            threads.into_iter().flat_map(|thread| thread.join().expect("it ends")).collect()
        });
        let elapsed = begun.elapsed();
        let per_s = 4.0 * EACH as f64 / elapsed.as_secs_f64();
        println!("{tier}: {} connections, {per_s:.0} a second", 4 * EACH);
        let all = bed.connections();
        let admitted = all.iter().filter(|one| is_liberal(one)).count() as u64;
        println!("{tier}: {} in conntrack, {admitted} admitted", all.len());
        let known: HashSet<[SocketAddr; 2]> = all.iter().map(ends).collect();
        let unknown: Vec<_> = begun_by.iter().filter(|ends| !known.contains(*ends)).collect();
        assert!(unknown.is_empty(), "not in conntrack: {unknown:?}");
        let distinct = HashSet::<_>::from_iter(&begun_by).len() as u64;
        assert_eq!(distinct, 4 * EACH, "each was one of its own");
        assert!(admitted <= EACH / 100, "{admitted} were admitted");
        assert_eq!(bed.accelerated.said(), said, "an error was reported");
        bed.finish();
    }
}

/// The addresses that a connection's client used.
fn ends(connection: &Connection) -> [SocketAddr; 2] {
    let original = &connection.original;
    [
        (original.source, original.source_port).into(),
        (original.destination, original.destination_port).into(),
    ]
}

/// Connections to a server of their own, one after the other: a byte each way. Returns their ends, the client's first.
fn connections(client: &Host, server: &Host, address: SocketAddr) -> Vec<[SocketAddr; 2]> {
    let listener = server.run(move || TcpListener::bind(address)).expect("the address is there");
    let to = listener.local_addr().expect("it is bound");
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..EACH {
                let (mut far, _) = listener.accept().expect("it listens");
                far.set_read_timeout(Some(PATIENCE)).expect("it is no zero");
                let mut byte = [0];
                far.read_exact(&mut byte).unwrap_or_else(|error| panic!("{number}: {error}"));
                far.write_all(&byte).unwrap_or_else(|error| panic!("{number}: {error}"));
                assert_eq!(far.read(&mut byte).expect("an end"), 0);
            }
        });
        let client = scope.spawn(|| {
            // A host runs one job at a time.
            setns(client.namespace(), CloneFlags::CLONE_NEWNET).expect("root may");
            let one = |number| {
                let near = TcpStream::connect_timeout(&to, PATIENCE);
                let mut near = near.unwrap_or_else(|error| panic!("{number}: {error}"));
                near.set_read_timeout(Some(PATIENCE)).expect("it is no zero");
                near.write_all(&[number as u8]).expect("it is open");
                let mut byte = [0];
                near.read_exact(&mut byte).unwrap_or_else(|error| panic!("{number}: {error}"));
                assert_eq!(byte, [number as u8]);
                [near.local_addr().expect("it is bound"), to]
            };
            (0..EACH).map(one).collect()
        });
        client.join().expect("it ends")
    })
}

/// Fewer than a client has ports for one server.
const EACH: u64 = 8000;
