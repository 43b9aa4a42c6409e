//! A table of a hundred thousand routes, edited while it answers.
//!
//! `cargo run --release -p manylane-net --example lookup`

use std::net::Ipv4Addr;
use std::time::Instant;

use manylane_net::fib::{Ipv4Prefix, Ipv4Sizes, Ipv4Tables, Ipv4Writer, Limits, NextHopId};
use manylane_sync::rcu::Domain;

const ROUTES: u32 = 100_000;

fn main() {
    let domain = Domain::new(1);
    let reader = domain.register().expect("the domain has one place");
    let tables = Ipv4Tables::zeroed(Ipv4Sizes::for_long_routes(16));
    let limits = Limits { routes_max: ROUTES as usize + 1, ..Limits::default() };
    let mut writer = Ipv4Writer::new(tables, &domain, limits);
    let next_hop = |number: u16| NextHopId::new(number).expect("not 0, and below 2^15");

    let start = Instant::now();
    for route in 0..ROUTES {
        let network = Ipv4Addr::from((10 << 24) + (route << 8));
        let prefix = Ipv4Prefix::new(network, 24).expect("no bit behind the prefix");
        writer.insert(prefix, next_hop(1 + (route % 100) as u16)).expect("the table has room");
    }
    println!("{ROUTES} routes inserted in {:.0?}", start.elapsed());

    let fib = writer.reader();
    let addresses: Vec<u32> = (0..1 << 20)
        .map(|i: u32| (10 << 24) + i.wrapping_mul(2_654_435_761) % (ROUTES << 8))
        .collect();
    let mut ids = vec![0; addresses.len()];
    let start = Instant::now();
    fib.lookup_batch(reader.guard(), &addresses, &mut ids);
    let ns = start.elapsed().as_nanos() as f64 / ids.len() as f64;
    println!("{} addresses looked up, {ns:.1} ns each", ids.len());
    assert!(ids.iter().all(|&id| id != 0));

    // A more specific route takes over at once; without it the shorter one answers again.
    let host = "10.0.9.9/32".parse().expect("a prefix");
    let look = |fib: &manylane_net::fib::Ipv4Fib| fib.lookup(reader.guard(), 0x0a00_0909).raw();
    let before = look(&fib);
    writer.insert(host, next_hop(999)).expect("the table has room");
    let with = look(&fib);
    writer.remove(host).expect("the table has room");
    println!("10.0.9.9 leads to next hop {before}, {with}, {}", look(&fib));
    assert_eq!((with, look(&fib)), (999, before));
}
