//! Connections that are older than the accelerator, whose ends the kernel does not announce.

use manylane_io::netlink::conntrack::Tcp;
use manylane_lab::scenario::has;
use manylane_lab::{SERVER_V4, SERVER_V6, until};
use nix::sys::signal::Signal;

use super::bed::{Bed, Plan, TIERS};
use super::talk::{Datagrams, Pair};
use super::transfers::admitted;

#[test]
fn connections_that_are_older_than_it_are_forwarded_until_they_end() {
    if !has("conntrack") {
        return;
    }
    for tier in TIERS {
        let plan = Plan::default();
        let Some(topology) = plan.network(tier) else { return };
        let [client, server] = ["client", "server"].map(|name| topology.host(name));
        let [closed, deleted] =
            [SERVER_V4, SERVER_V6].map(|address| Pair::open(client, server, address));
        let datagrams = Datagrams::open(client, server, SERVER_V4);
        for pair in [&closed, &deleted] {
            pair.exchange(1);
        }
        datagrams.exchange(1);
        let mut bed = Bed::beside(topology, tier, plan);
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            for pair in [&closed, &deleted] {
                admitted(&bed, pair);
            }
            bed.wait_for_lane("UDP", || {
                datagrams.exchange(4);
            });
            bed.accelerated.signal(signal);
            bed.accelerated.wait();
            for pair in [&closed, &deleted] {
                pair.exchange(16);
            }
            datagrams.exchange(4);
            bed.accelerate_again();
        }
        for pair in [&closed, &deleted] {
            admitted(&bed, pair);
        }
        bed.wait_for_lane("UDP", || {
            datagrams.exchange(4);
        });
        let began = closed.began();
        closed.close();
        bed.ends_in(began, Tcp::TIME_WAIT);
        // No packet says that these end, and no notification does.
        bed.topology.tool("r1", "conntrack -D -f ipv4 -p udp");
        bed.topology.tool("r1", "conntrack -D -f ipv6 -p tcp");
        let before = bed.accelerated.passed("no_flow");
        until("the datagrams' entry is gone", || {
            datagrams.exchange(1);
            match bed.accelerated.passed("no_flow") {
                now if now > before => Ok(()),
                now => Err(now),
            }
        });
        // The client's next segment makes a new connection of it.
        let before = bed.accelerated.passed("no_flow");
        until("the connection's entry is gone", || {
            use std::io::Write;
            (&deleted.near).write_all(b"late").expect("it is open");
            match bed.accelerated.passed("no_flow") {
                now if now > before => Ok(()),
                now => Err(now),
            }
        });
        bed.finish();
    }
}
