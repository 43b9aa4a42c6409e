//! How long an idle connection lives: as long as keepalives pass, which the lane alone sees, and no longer.

use std::io::{Read, Write};
use std::time::Duration;

use manylane_io::netlink::conntrack::Tcp;
use manylane_lab::{SERVER_V4, SERVER_V6, until};
use socket2::{SockRef, TcpKeepalive};

use super::bed::{Bed, TIERS};
use super::talk::Datagrams;
use super::transfers::settled;

#[test]
fn keepalives_that_the_lane_forwards_keep_a_connection_and_nothing_else_does() {
    for tier in TIERS {
        let Some(bed) = Bed::usual(tier) else { return };
        bed.topology.set("r1", "net/netfilter/nf_conntrack_tcp_timeout_established", LIVES_S);
        let pairs = [SERVER_V4, SERVER_V6].map(|address| settled(&bed, address));
        let ids = pairs.each_ref().map(|pair| bed.connection(pair.began()).map(|one| one.id));
        for pair in &pairs {
            let every = Duration::from_secs(1);
            let keepalive = TcpKeepalive::new().with_time(every).with_interval(every);
            SockRef::from(&pair.near).set_tcp_keepalive(&keepalive).expect("it is TCP");
        }
        let before = bed.passed();
        until("keepalives pass for longer than a connection lives idle", || match bed.passed() {
            now if now.since(before).by_lane >= KEEPALIVES => Ok(()),
            now => Err(now.since(before).to_string()),
        });
        let passed = bed.passed().since(before);
        assert_eq!(passed.by_kernel_unlapsed(), 0, "the kernel forwarded keepalives: {passed}");
        for (pair, id) in pairs.iter().zip(ids) {
            let connection = bed.connection(pair.began()).expect("it lives");
            let state = connection.tcp.map(|tcp| tcp.state);
            assert_eq!((Some(connection.id), state), (id, Some(Tcp::ESTABLISHED)));
            bed.lane_has("after keepalives", || {
                pair.exchange(32);
            });
        }
        for pair in &pairs {
            SockRef::from(&pair.near).set_keepalive(false).expect("it is TCP");
        }
        let quiet = bed.passed();
        for pair in &pairs {
            until("the idle connection ends", || match bed.connection(pair.began()) {
                None => Ok(()),
                Some(connection) => Err(format!("{connection:?}")),
            });
        }
        // A packet of a connection that has ended is the kernel's, which takes it for a new one.
        let before = bed.accelerated.passed("no_flow");
        println!("{tier}: {:?} while idle, from {quiet:?}", bed.passed());
        for pair in &pairs {
            (&pair.near).write_all(b"late").expect("it is open");
            (&pair.far).read_exact(&mut [0; 4]).expect("it arrives");
        }
        assert!(bed.accelerated.passed("no_flow") >= before + 2, "the lane forwarded at once");
        bed.finish();
    }
}

/// UDP's time is shorter than usual: datagrams that the lane alone sees give a connection its whole time again.
#[test]
fn datagrams_that_the_lane_forwards_keep_a_connection_of_a_shortened_timeout() {
    for tier in TIERS {
        let Some(bed) = Bed::usual(tier) else { return };
        bed.topology.set("r1", "net/netfilter/nf_conntrack_udp_timeout_stream", LIVES_S);
        let [client, server] = bed.hosts();
        let flows = [SERVER_V4, SERVER_V6].map(|to| Datagrams::open(client, server, to));
        let exchange = |bursts| flows.iter().for_each(|flow| _ = flow.exchange(bursts));
        bed.wait_for_lane("datagrams", || exchange(4));
        let connections = || {
            flows.each_ref().map(|flow| {
                let began = flow.near.local_addr().expect("it is connected");
                bed.connection(began).expect("it lives")
            })
        };
        let ids = connections().map(|one| one.id);
        // Each connection by itself, one state after the other.
        let wait = |what: &str, states: &[&dyn Fn(u64) -> bool]| {
            let mut seen = [0; 2];
            until(what, || {
                let rest = connections().map(|one| one.timeout.expect("it has one").as_secs());
                for (seen, rest) in seen.iter_mut().zip(rest) {
                    *seen += usize::from(states.get(*seen).is_some_and(|is_so| is_so(rest)));
                }
                if seen == [states.len(); 2] { Ok(()) } else { Err(format!("{rest:?}")) }
            });
        };
        // Longer in all than they live by their last packets that the kernel saw. Their time counts from the last packet,
        // whether conntrack is given it at once or later.
        for age in [4, 7, 7, 4] {
            wait("the connections have aged", &[&|rest| rest <= age]);
            bed.lane_has("datagrams of aged connections", || exchange(1));
            // An older one may have more at once.
            wait("the connections are half their time old", &[&|rest| rest <= 5 || age < 5]);
            wait("the connections have more time again", &[&|rest| rest >= 6]);
        }
        assert_eq!(connections().map(|one| one.id), ids);
        bed.finish();
    }
}

/// How long a connection lives idle, in seconds.
const LIVES_S: &str = "10";
/// Packets of two connections, each with a keepalive and its answer every second: more than twice as long.
const KEEPALIVES: u64 = 2 * 2 * 22;
