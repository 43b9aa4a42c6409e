//! What the scenarios with routing daemons share: four routers in a diamond, and what has to be true there.
//!
//! ```text
//!                       to1 ┌── r2 ──┐ a4, b4
//!                  to2 ┌────┘        └════┐ a2, b2
//!    client ──────── r1                   r4 ──────── server
//!              host    └────┐        ┌════┘ host
//!                  to3  to1 └── r3 ──┘ a4, b4
//! ```
//!
//! `══` are two links. So each of the two hops has two ways, and the routers at the second one must choose
//! by another hash than the first did: with the same one, all flows through r2 would leave it by one link.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use manylane_lab::accelerated::{Accelerated, topology};
use manylane_lab::{Host, Outcome, Pinger, Steady, SteadyOptions, Topology, until};

/// The links between routers: number and interface of one, of the other, and the number of their network.
pub const LINKS: [(u8, &str, u8, &str, u8); 6] = [
    (1, "to2", 2, "to1", 12),
    (1, "to3", 3, "to1", 13),
    (2, "a4", 4, "a2", 24),
    (2, "b4", 4, "b2", 124),
    (3, "a4", 4, "a3", 34),
    (3, "b4", 4, "b3", 134),
];

/// Flows through each of the routers in the middle, about.
const FLOWS: u64 = 1000;

/// The routers and the hosts.
pub struct Diamond {
    pub topology: Topology,
}

impl Diamond {
    /// Makes it, or says why not. The routers know only the ways to their neighbours yet.
    pub fn make() -> Option<Diamond> {
        let mut text = "
            host client via 10.1.0.254 2001:db8:1::fe
            host server via 10.2.0.254 2001:db8:2::fe
            router r1
            router r2
            router r3
            router r4
            link client:eth0 10.1.0.1/24 2001:db8:1::1/64 -- r1:host 10.1.0.254/24 2001:db8:1::fe/64
            link server:eth0 10.2.0.1/24 2001:db8:2::1/64 -- r4:host 10.2.0.254/24 2001:db8:2::fe/64
        "
        .to_owned();
        for (one, its, other, others, net) in LINKS {
            let end = |router, interface| {
                let [v4, v6] = addresses(net, router);
                format!("r{router}:{interface} {v4}/24 {v6}/64")
            };
            text += &format!("link {} -- {}\n", end(one, its), end(other, others));
        }
        let topology = topology(&text)?;
        for router in 1..=4 {
            let name = &format!("r{router}");
            topology.tool(name, &format!("ip addr add 10.255.0.{router}/32 dev lo"));
            // By addresses and ports: the hosts have one address each.
            topology.set(name, "net/ipv4/fib_multipath_hash_policy", "1");
            topology.set(name, "net/ipv6/fib_multipath_hash_policy", "1");
            // A link that is set down and up again has its addresses still.
            topology.set(name, "net/ipv6/conf/all/keep_addr_on_down", "1");
        }
        Some(Diamond { topology })
    }

    /// One of the routers.
    pub fn router(&self, number: u8) -> &Host {
        self.topology.host(&format!("r{number}"))
    }

    /// Traffic by the kernel, by the accelerators, after a cut, after its repair; `daemons` says what the routing
    /// daemons know.
    pub fn check(&self, destinations: &[IpAddr], daemons: &dyn Fn() -> String) {
        for &to in destinations {
            (1..=3).for_each(|router| self.wait_for_ways(router, to, 2, daemons));
            self.answered(to, daemons);
        }
        let routers = [1, 2, 3, 4].map(|router| {
            let interfaces = interfaces(router);
            Accelerated::start(self.router(router), env!("CARGO_BIN_EXE_manylane"), &interfaces)
        });
        for &to in destinations {
            self.answered(to, daemons);
            self.spread(&routers, to);
        }
        let mut streams: Vec<Steady> = destinations.iter().map(|&to| self.stream(to)).collect();
        for (stream, to) in streams.iter().zip(destinations) {
            stream.arrives(&format!("before the cut, to {to}"));
        }

        self.topology.tool("r1", "ip link set to2 down");
        for (stream, &to) in streams.iter().zip(destinations) {
            self.wait_for_ways(1, to, 1, daemons);
            let gone = stream.mark();
            let seen = stream.arrives(&format!("after the cut, to {to}"));
            println!(
                "to {to}: {} of the datagrams before {seen} are missing",
                stream.missing(0..gone)
            );
        }
        routers.iter().for_each(Accelerated::wait_for_no_difference);
        let [before_r2, before_r3] = [&routers[1], &routers[2]].map(Accelerated::forwarded);
        for stream in &streams {
            let from = stream.mark();
            let to = stream.after(FLOWS);
            stream.arrives("all that was sent before has");
            assert_eq!(stream.missing(from..to), 0, "with one way left: {:?}", stream.arrivals());
        }
        let [after_r2, after_r3] = [&routers[1], &routers[2]].map(Accelerated::forwarded);
        assert_eq!(after_r2, before_r2, "nothing goes by the router that is cut off");
        assert!(after_r3 >= before_r3 + FLOWS, "{after_r3} of r3, {before_r3} before");

        self.topology.tool("r1", "ip link set to2 up");
        for &to in destinations {
            self.wait_for_ways(1, to, 2, daemons);
        }
        routers.iter().for_each(Accelerated::wait_for_no_difference);
        for stream in &streams {
            stream.arrives("after the repair");
        }
        streams.iter_mut().for_each(Steady::stop);
        for &to in destinations {
            self.spread(&routers, to);
        }
        routers.iter().for_each(Accelerated::assert_balanced);
    }

    /// Waits until the kernel of a router has `ways` ways to an address.
    fn wait_for_ways(&self, router: u8, to: IpAddr, ways: usize, daemons: &dyn Fn() -> String) {
        let family = if to.is_ipv4() { "-4" } else { "-6" };
        let name = format!("r{router}");
        until(&format!("{name} has {ways} ways to {to}"), || {
            let routes =
                self.topology.tool(&name, &format!("ip {family} route show to match {to}"));
            match routes.matches(" via ").count() {
                count if count == ways => Ok(()),
                _ => Err(format!("{routes}\n{}", daemons())),
            }
        });
    }

    /// Waits until a ping is answered.
    fn answered(&self, to: IpAddr, daemons: &dyn Fn() -> String) {
        let mut pinger =
            Pinger::open(self.topology.host("client"), to).expect("raw sockets are to be had");
        until(&format!("{to} answers"), || match pinger.ask(56, Duration::from_secs(3)) {
            Ok(Outcome::Reply { is_intact: true, .. }) => Ok(()),
            other => Err(format!("{other:?}\n{}", daemons())),
        });
    }

    fn stream(&self, to: IpAddr) -> Steady {
        let [client, server] = ["client", "server"].map(|name| self.topology.host(name));
        let options = SteadyOptions { per_second: 500, ..SteadyOptions::to(to) };
        Steady::start(client, server, options).expect("sockets are to be had")
    }

    /// Of many flows, each member of each second hop gets its share, once all neighbours are known.
    fn spread(&self, routers: &[Accelerated; 4], to: IpAddr) {
        let exits = |router: usize| ["a4", "b4"].map(|name| routers[router - 1].port(name).sent);
        let by_kernels = || -> u64 {
            let left = ["unresolved", "lapsed"]
                .map(|reason| -> u64 { routers.iter().map(|router| router.passed(reason)).sum() });
            left.iter().sum()
        };
        let shares = until("all flows are forwarded by all routers", || {
            let before = [exits(2), exits(3)];
            let (by_r4, left) = (routers[3].port("host").sent, by_kernels());
            send_flows(self.topology.host("client"), to, 2 * FLOWS)
                .map_err(|error| error.to_string())?;
            // Forwarding is done when sending is, unless softirqs wait for their thread.
            until("they are through", || {
                let arrived = routers[3].port("host").sent - by_r4;
                if arrived >= 2 * FLOWS || by_kernels() > left { Ok(()) } else { Err(arrived) }
            });
            let after = [exits(2), exits(3)];
            let shares =
                [0, 1].map(|router| [0, 1].map(|exit| after[router][exit] - before[router][exit]));
            match shares.iter().flatten().sum::<u64>() {
                sum if sum >= 2 * FLOWS => Ok(shares),
                _ => Err(format!("{shares:?}")),
            }
        });
        println!("flows to {to} at the second hop: r2 {:?}, r3 {:?}", shares[0], shares[1]);
        for [a, b] in shares {
            let flows = a + b;
            assert!(flows > FLOWS / 2, "the first hop has two ways, too: {shares:?}");
            for member in [a, b] {
                let part = 100 * member / flows;
                assert!((40..=60).contains(&part), "{part} % by one of two members: {shares:?}");
            }
        }
    }
}

/// The two addresses of a router in one of the networks between routers.
pub fn addresses(net: u8, router: u8) -> [String; 2] {
    [format!("172.16.{net}.{router}"), format!("fd00:{net}::{router}")]
}

/// All interfaces of a router.
fn interfaces(router: u8) -> Vec<&'static str> {
    let to_host = [1, 4].contains(&router).then_some("host");
    let between = LINKS.iter().filter_map(|&(one, its, other, others, _)| match router {
        _ if router == one => Some(its),
        _ if router == other => Some(others),
        _ => None,
    });
    to_host.into_iter().chain(between).collect()
}

/// One datagram of each of `flows` flows: they differ in their source ports.
fn send_flows(host: &Host, to: IpAddr, flows: u64) -> io::Result<()> {
    let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0u16; 8].into() };
    host.run(move || {
        for port in (20_000..).take(flows as usize) {
            UdpSocket::bind((any, port))?.send_to(b"flow", (to, DISCARD))?;
        }
        Ok(())
    })
}

/// No process listens there.
const DISCARD: u16 = 9;
