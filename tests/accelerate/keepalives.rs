//! OSPF and BFD between two accelerated routers stay up while all that a core can send passes both.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddrV4, SocketAddrV6};
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use manylane_io::interface::Interface;
use manylane_lab::accelerated::{Accelerated, topology};
use manylane_lab::daemons::Frr;
use manylane_lab::generator::{LiveGenerator, LiveOptions};
use manylane_lab::tools::command;
use manylane_lab::{Topology, until};
use manylane_net::wire::ethernet::{self, Mac, ether_type};
use manylane_net::wire::{ipv4, ipv6, protocol, udp};
use serde_json::Value;

const LINE: &str = "
    host client via 10.1.0.254 2001:db8:1::fe
    host server via 10.2.0.254 2001:db8:2::fe
    router r1
    router r2
    link client:eth0 10.1.0.1/24 2001:db8:1::1/64 -- r1:edge 10.1.0.254/24 2001:db8:1::fe/64
    link r1:core 10.9.0.1/24 fd09::1/64 -- r2:core 10.9.0.2/24 fd09::2/64
    link r2:edge 10.2.0.254/24 2001:db8:2::fe/64 -- server:eth0 10.2.0.1/24 2001:db8:2::1/64
";
/// No host's: the server's interface receives what is sent there, and its host does not answer.
const DESTINATIONS: [&str; 2] = ["10.2.0.9", "2001:db8:2::9"];
const NOBODYS_MAC: &str = "02:00:00:00:00:99";
/// Milliseconds between two packets of a BFD session, at most; it is down after ten times this.
const BFD_MS: u32 = 100;
/// Packets of each session that the load lasts for: ten times as long as one needs to be found dead.
const KEEPALIVES: u64 = 100;

#[test]
fn keepalives_pass_under_full_load() {
    if !Frr::is_here() {
        return;
    }
    let Some(topology) = topology(LINE) else { return };
    topology.tool("r1", "ethtool -K edge gro on"); // Else a veth takes no frames of the generator's.
    for to in DESTINATIONS {
        let line = format!("ip neigh replace {to} lladdr {NOBODYS_MAC} dev edge nud permanent");
        topology.tool("r2", &line);
    }
    let daemons = [1, 2].map(|router| {
        let [ospf, ospf6, bfd] = [ospf(router), ospf6(router), bfd(router)];
        let daemons = [("zebra", ""), ("ospfd", &ospf), ("ospf6d", &ospf6), ("bfdd", &bfd)];
        Frr::start(topology.host(&format!("r{router}")), &daemons)
    });
    for (family, to) in ["-4", "-6"].into_iter().zip(DESTINATIONS) {
        until(&format!("r1 knows the way to {to}"), || {
            let routes = topology.tool("r1", &format!("ip {family} route show to match {to}"));
            let said = || {
                daemons
                    .each_ref()
                    .map(|frr| frr.ask("show ip route\nshow ipv6 route\nshow ipv6 ospf6 neighbor"))
            };
            if routes.contains("core") { Ok(()) } else { Err(said().concat()) }
        });
    }
    let routers = ["r1", "r2"].map(|name| {
        let program = env!("CARGO_BIN_EXE_manylane");
        Accelerated::start(topology.host(name), program, &["edge", "core"])
    });
    until("all sessions are up", || match sessions(&daemons[1]) {
        sessions if sessions.iter().all(|session| session.is_up) => Ok(()),
        sessions => Err(format!("{sessions:?}")),
    });

    for to in DESTINATIONS {
        let capture = Capture::start(&topology);
        let before = sessions(&daemons[1]);
        let (begun, forwarded) = (Instant::now(), routers[1].forwarded());
        let generator = generator(&topology, to.parse().expect("it is an address"));
        let after = until("keepalives came", || {
            let sessions = sessions(&daemons[1]);
            let came = |(now, before): (&Session, &Session)| now.received - before.received;
            match sessions.iter().zip(&before).map(came).min() {
                Some(least) if least >= KEEPALIVES => Ok(sessions),
                _ => Err(format!("{sessions:?}, {before:?} before")),
            }
        });
        let elapsed = begun.elapsed();
        let sent = generator.stop().expect("it runs until then");
        let forwarded = routers[1].forwarded() - forwarded;
        println!("to {to}: {sent} sent, {forwarded} forwarded by both routers in {elapsed:?}");
        println!("between two packets of BFD, at most: {:?}", capture.longest());
        // What a veth before us has no room for is none of it.
        let ledger = routers[1].ledger();
        assert!(forwarded > 100_000, "the load is forwarded by us: {ledger:#?}");
        let passed: u64 = ledger.passed.values().sum();
        assert!(passed < ledger.forwarded / 10, "by us, and not by the kernel: {ledger:#?}");
        assert_eq!(after.map(|one| one.downs), before.map(|one| one.downs), "none was down");
        for full_for in full_for(&daemons[1]) {
            // To the second, as it is said.
            assert!(full_for + Duration::from_secs(1) >= elapsed, "full since {full_for:?}");
        }
    }
    routers.iter().for_each(Accelerated::assert_balanced);
}

/// What is sent without gaps: 64 bytes, all to one address.
fn generator(topology: &Topology, to: IpAddr) -> LiveGenerator {
    let gateway = Mac(topology.mac("r1", "edge").expect("it is there"));
    let ours = Mac(topology.mac("client", "eth0").expect("it is there"));
    let mut frame = vec![0; 64];
    let (ether_type, header_len) = match to {
        IpAddr::V4(_) => (ether_type::IPV4, ipv4::HEADER_LEN),
        IpAddr::V6(_) => (ether_type::IPV6, ipv6::HEADER_LEN),
    };
    let (head, packet) = frame.split_at_mut(ethernet::HEADER_LEN);
    let (header, datagram) = packet.split_at_mut(header_len);
    let emitted = ethernet::emit(head, gateway, ours, ether_type).and(match to {
        IpAddr::V4(to) => {
            let from = [10, 1, 0, 1].into();
            let (from_port, to_port) = (SocketAddrV4::new(from, 4), SocketAddrV4::new(to, 9));
            udp::emit_v4(datagram, from_port, to_port).and_then(|len| {
                let header_of = ipv4::Header {
                    tos: 0,
                    identification: 0,
                    dont_fragment: true,
                    ttl: 64,
                    protocol: protocol::UDP,
                    source: from,
                    destination: to,
                };
                header_of.emit(header, len)
            })
        }
        IpAddr::V6(to) => {
            let from = "2001:db8:1::1".parse().expect("it is an address");
            let (from_port, to_port) =
                (SocketAddrV6::new(from, 4, 0, 0), SocketAddrV6::new(to, 9, 0, 0));
            udp::emit_v6(datagram, from_port, to_port).and_then(|len| {
                let header_of = ipv6::Header {
                    traffic_class: 0,
                    flow_label: 0,
                    next_header: protocol::UDP,
                    hop_limit: 64,
                    source: from,
                    destination: to,
                };
                header_of.emit(header, len)
            })
        }
    });
    emitted.expect("64 bytes are enough");
    let generator = topology.host("client").run(move || {
        let interface = Interface::read("eth0").map_err(|error| error.to_string())?;
        LiveGenerator::start(&interface, LiveOptions::new(frame, to))
            .map_err(|error| error.to_string())
    });
    generator.unwrap_or_else(|error| panic!("{error}"))
}

/// A BFD session.
#[derive(Debug)]
struct Session {
    is_up: bool,
    received: u64,
    downs: u64,
}

/// Those of a router: by IPv4, by IPv6.
fn sessions(frr: &Frr) -> [Session; 2] {
    let (states, counters) = (json(frr, "bfd peers"), json(frr, "bfd peers counters"));
    ["10.9.0.1", "fd09::1"].map(|peer| {
        let of = |all: &Value| -> Option<Value> {
            all.as_array()?.iter().find(|one| one["peer"] == peer).cloned()
        };
        let (state, counters) =
            (of(&states).unwrap_or_default(), of(&counters).unwrap_or_default());
        let count = |name: &str| counters[name].as_u64().unwrap_or_default();
        Session {
            is_up: state["status"] == "up",
            received: count("control-packet-input"),
            downs: count("session-down"),
        }
    })
}

/// How long OSPF has been full with the neighbour: by IPv4, by IPv6.
fn full_for(frr: &Frr) -> [Duration; 2] {
    let v4 = &json(frr, "ip ospf neighbor detail")["neighbors"]["10.255.0.1"][0];
    let v6 = &json(frr, "ipv6 ospf6 neighbor")["neighbors"][0];
    assert_eq!((v4["nbrState"].as_str(), v6["state"].as_str()), (Some("Full/-"), Some("Full")));
    let v4 = v4["lastPrgrsvChangeMsec"].as_u64().expect("when it became so");
    let v6 = v6["duration"].as_str().expect("how long it has been so");
    let v6 = v6
        .split(':')
        .filter_map(|part| part.parse::<u64>().ok())
        .fold(0, |all, part| 60 * all + part);
    [Duration::from_millis(v4), Duration::from_secs(v6)]
}

fn json(frr: &Frr, what: &str) -> Value {
    let said = frr.ask(&format!("show {what} json"));
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{what}: {error}: {said}"))
}

fn ospf(router: u8) -> String {
    format!(
        "router ospf\n ospf router-id 10.255.0.{router}\n network 10.0.0.0/8 area 0\n passive-interface edge\n\
         interface core\n ip ospf network point-to-point\n ip ospf hello-interval 1\n ip ospf dead-interval 4\n"
    )
}

fn ospf6(router: u8) -> String {
    // Interfaces first: in a router's section the word means something else.
    format!(
        "interface edge\n ipv6 ospf6 area 0\n ipv6 ospf6 passive\n\
         interface core\n ipv6 ospf6 area 0\n ipv6 ospf6 network point-to-point\n \
         ipv6 ospf6 hello-interval 1\n ipv6 ospf6 dead-interval 4\n\
         router ospf6\n ospf6 router-id 10.255.0.{router}\n"
    )
}

fn bfd(router: u8) -> String {
    let other = 3 - router;
    let peers = ["10.9.0.", "fd09::"].map(|net| {
        format!(
            " peer {net}{other} local-address {net}{router} interface core\n  detect-multiplier 10\n  \
             receive-interval {BFD_MS}\n  transmit-interval {BFD_MS}\n"
        )
    });
    format!("bfd\n{}", peers.concat())
}

/// What comes to the second router of BFD, as tcpdump(8) sees it; ends when dropped.
struct Capture {
    tcpdump: Child,
    lines: Receiver<String>,
}

impl Capture {
    /// Starts it: when this returns, it sees.
    fn start(topology: &Topology) -> Capture {
        let line = "tcpdump -i core -Q in -n -l -tt 'udp port 3784'";
        let mut command = command(line).into_command();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let spawned = topology.host("r2").run(move || command.spawn());
        let mut tcpdump = spawned.expect("tcpdump is installed");
        let output = BufReader::new(tcpdump.stdout.take().expect("it has a pipe"));
        let (to, lines) = mpsc::channel();
        thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| to.send(line))
        });
        let capture = Capture { tcpdump, lines };
        capture.lines.recv().expect("keepalives come");
        capture
    }

    /// The longest time between two packets of a session.
    fn longest(&self) -> [Duration; 2] {
        let lines: Vec<String> = self.lines.try_iter().collect();
        ["IP ", "IP6 "].map(|family| {
            let times = lines.iter().filter_map(|line| {
                let (time, rest) = line.split_once(' ')?;
                time.parse::<f64>().ok().filter(|_| rest.starts_with(family))
            });
            let times: Vec<f64> = times.collect();
            let gaps = times.array_windows().map(|[one, next]| next - one);
            Duration::from_secs_f64(gaps.fold(0.0, f64::max))
        })
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // Neither can fail in a way that matters: it may have ended.
        let _ = self.tcpdump.kill();
        let _ = self.tcpdump.wait();
    }
}
