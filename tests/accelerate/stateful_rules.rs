//! Rulesets as firewalls write them, in a router whose established connections are forwarded by `manylane accelerate`:
//! what the rules allow is opened by the kernel and forwarded in the lane, with the translation that the kernel gave it; what
//! they refuse is refused as before, also while connections are in the lane.
//!
//! The rulesets are those of `testdata/firewall/`, and the evaluator's tests say what it thinks of each
//! (`tests/differential/firewall/fixtures.rs`). Here the answers are taken at their word, by packets.
//!
//! ```text
//! client ── inside ┐            ┌ outside ── server
//!                  ├── router ──┤
//!  third ── third ─┘
//! ```

mod talk;

use std::net::IpAddr;
use std::path::Path;

use manylane_lab::accelerated::{Accelerated, topology};
use manylane_lab::scenario::has;
use manylane_lab::{CLIENT_V6, Host, SERVER_V4, SERVER_V6, Topology, WAN_V4, until};

use talk::{Forbidden, Talk, Target, Transport};

use Transport::{Tcp, Udp};
use Way::{Kernel, Lane};

/// A router's rules, and what has to become of packets from the inside to the outside, and of those the other way.
#[derive(Clone, Copy)]
struct Ruleset {
    files: &'static [&'static str],
    inside: Inside,
    outside: &'static str,
    v4: Family,
    v6: Family,
}

/// The interface towards the client.
#[derive(Clone, Copy)]
struct Inside {
    name: &'static str,
    is_bridge: bool,
    /// The client's IPv4 address, and the router's there.
    addresses: [&'static str; 2],
}

/// What becomes of a family.
#[derive(Clone, Copy)]
struct Family {
    way: Way,
    /// The server sees the router's address.
    is_masqueraded: bool,
    /// The server may not open connections to the client.
    is_guarded: bool,
}

/// The forwarder of established connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Lane,
    Kernel,
}

const LAN: Inside = inside("lan", false, ["10.1.0.1/24", "10.1.0.254/24"]);
const DOCKER: Inside = inside("docker0", true, ["172.17.0.2/16", "172.17.0.1/16"]);
const LIBVIRT: Inside = inside("virbr0", true, ["192.168.122.7/24", "192.168.122.1/24"]);
const BR_LAN: Inside = inside("br-lan", true, ["10.1.0.1/24", "10.1.0.254/24"]);

/// With rules that guard the inside.
const GUARDED: Family = Family { way: Lane, is_masqueraded: false, is_guarded: true };
const MASQUERADED: Family = Family { is_masqueraded: true, ..GUARDED };
/// Without rules.
const OPEN: Family = Family { is_guarded: false, ..GUARDED };

const fn inside(name: &'static str, is_bridge: bool, addresses: [&'static str; 2]) -> Inside {
    Inside { name, is_bridge, addresses }
}

const fn plain(files: &'static [&'static str], v4: Family, v6: Family) -> Ruleset {
    Ruleset { files, inside: LAN, outside: "wan", v4, v6 }
}

#[test]
fn firewalld() {
    // IPv6: the rule that checks the reverse path makes the program check it.
    hold(plain(&["firewalld.nft"], MASQUERADED, GUARDED));
}

#[test]
fn ufw() {
    hold(plain(&["ufw.v4", "ufw.v6"], GUARDED, GUARDED));
}

#[test]
fn vyos() {
    hold(plain(&["vyos.nft"], GUARDED, GUARDED));
}

#[test]
fn fw4() {
    hold(Ruleset { inside: BR_LAN, ..plain(&["fw4.nft"], MASQUERADED, GUARDED) });
}

#[test]
fn docker_from_a_container() {
    hold(Ruleset { inside: DOCKER, ..plain(&["docker.v4"], MASQUERADED, OPEN) });
}

#[test]
fn libvirt_from_a_guest() {
    hold(Ruleset { inside: LIBVIRT, ..plain(&["libvirt.nft"], MASQUERADED, OPEN) });
}

#[test]
fn libvirt_between_other_interfaces() {
    hold(plain(&["libvirt.nft"], OPEN, OPEN));
}

/// A set of blocked sources at prerouting is looked into for each flow.
#[test]
fn by_hand() {
    hold(plain(&["by-hand.nft"], GUARDED, GUARDED));
}

/// The container's port 80 is the router's port 8080, and the rule that guards the container's address is evaluated
/// for each flow.
#[test]
fn docker_to_a_published_port() {
    let rules = Ruleset { inside: DOCKER, ..plain(&["docker.v4"], MASQUERADED, OPEN) };
    let Some(topology) = rules.topology() else { return };
    rules.load(&topology);
    let ends = ["server", "client"].map(|name| topology.host(name));
    let published =
        Target { listens: (rules.client(), 80).into(), is_called: (WAN_V4, 8080).into() };
    let accelerated = rules.start(&topology);
    let mut talk = Talk::open(Tcp, ends, published).expect("the port is published");
    assert_eq!(talk.source.ip(), SERVER_V4);
    goes_by(&accelerated, &mut talk, [rules.outside, rules.inside.name], Lane);
    // What is not published is refused meanwhile, by the same addresses.
    let refused = Target { listens: (rules.client(), 81).into(), is_called: (WAN_V4, 81).into() };
    assert!(Talk::open(Tcp, ends, refused).is_err(), "this port is not published");
    talk.exchanges(20);
}

/// Docker's own policy drops what no container has to do with, before and after.
#[test]
fn docker_between_other_interfaces() {
    let rules = Ruleset { inside: DOCKER, ..plain(&["docker.v4"], MASQUERADED, OPEN) };
    let Some(topology) = rules.topology() else { return };
    rules.load(&topology);
    let [third, server] = ["third", "server"].map(|name| topology.host(name));
    let forbidden = Forbidden::start([third, server], SERVER_V4);
    forbidden.assert_none(third, "by the kernel alone");
    let accelerated = Accelerated::start(
        topology.host("r1"),
        env!("CARGO_BIN_EXE_manylane"),
        &["docker0", "third", "wan"],
    );
    let ends = ["client", "server"].map(|name| topology.host(name));
    let mut talk = rules.open(Udp, ends, SERVER_V4);
    goes_by(&accelerated, &mut talk, ["docker0", "wan"], Lane);
    forbidden.assert_none(third, "with a connection in the lane");
}

/// Marks that change, and a limit: the evaluator says `kernel`, and so it is.
#[test]
fn by_hand_where_rules_do_more() {
    let dmz = Ruleset { outside: "dmz", ..plain(&["by-hand.nft"], GUARDED, GUARDED) };
    let Some(topology) = dmz.topology() else { return };
    dmz.load(&topology);
    // As they are, they let nothing be opened there.
    topology.tool("r1", "nft add rule inet filter forward iifname lan oifname dmz accept");
    let accelerated = dmz.start(&topology);
    let ends = ["client", "server"].map(|name| topology.host(name));
    for transport in [Tcp, Udp] {
        let mut talk = dmz.open(transport, ends, SERVER_V4);
        goes_by(&accelerated, &mut talk, ["lan", "dmz"], Kernel);
        // Only IPv4's chains do so.
        let mut talk = dmz.open(transport, ends, SERVER_V6);
        goes_by(&accelerated, &mut talk, ["lan", "dmz"], Lane);
    }
}

/// In each tier: by the kernel alone, then in the lane, then by the kernel alone.
fn hold(rules: Ruleset) {
    // A bridge has no driver of its own.
    let tiers = if rules.inside.is_bridge { &["ingress"][..] } else { &["ingress", "driver"] };
    tiers.iter().for_each(|tier| hold_in(&rules, tier));
}

fn hold_in(rules: &Ruleset, tier: &str) {
    let Some(topology) = rules.topology() else { return };
    if tier == "driver" {
        for host in ["client", "server"] {
            topology.tool(host, "ethtool -K eth0 gro on tx off");
        }
    }
    rules.load(&topology);
    let ends = ["client", "server"].map(|name| topology.host(name));
    let families = [(SERVER_V4, rules.client(), rules.v4), (SERVER_V6, CLIENT_V6, rules.v6)];
    let forbidden: Vec<_> = families
        .iter()
        .filter(|(_, _, family)| family.is_guarded)
        .map(|&(_, client, _)| Forbidden::start([ends[1], ends[0]], client))
        .collect();
    let refused = |when: &str| {
        forbidden.iter().for_each(|forbidden| forbidden.assert_none(ends[1], when));
    };
    refused("by the kernel alone");
    let mut talks = Vec::new();
    let open = |talks: &mut Vec<(Talk, Family)>| {
        for (server, _, family) in families {
            for transport in [Tcp, Udp] {
                talks.push((rules.open(transport, ends, server), family));
            }
        }
    };
    // Older than the accelerator, and younger.
    open(&mut talks);
    let accelerated = rules.start_in(&topology, tier);
    open(&mut talks);
    for (talk, family) in &mut talks {
        goes_by(&accelerated, talk, [rules.inside.name, rules.outside], family.way);
    }
    refused("with connections in the lane");
    open(&mut talks);
    talks.iter_mut().for_each(|(talk, _)| talk.exchanges(20));
    drop(accelerated);
    refused("by the kernel again");
    talks.iter_mut().for_each(|(talk, _)| talk.exchanges(20));
}

/// Waits until both directions of a connection are forwarded in this way.
fn goes_by(accelerated: &Accelerated, talk: &mut Talk, ports: [&str; 2], way: Way) {
    let forwarded = |port: &str| accelerated.port(port).forwarded;
    let others = |accelerated: &Accelerated| {
        accelerated.passed("no_flow") + accelerated.passed("flow_paused")
    };
    match way {
        Lane => until("the connection is in the lane", || {
            let before = ports.map(forwarded);
            talk.exchanges(EXCHANGES);
            let after = ports.map(forwarded);
            let is_forwarded = [0, 1].map(|port| after[port] >= before[port] + EXCHANGES);
            if is_forwarded == [true; 2] {
                Ok(())
            } else {
                Err(format!("{talk:?}: {before:?} {after:?}\n{:#?}", accelerated.ports()))
            }
        }),
        Kernel => {
            // As long as others take to get into the lane, and longer.
            for _ in 0..10 {
                let (before, passed) = (ports.map(forwarded), others(accelerated));
                talk.exchanges(EXCHANGES);
                assert_eq!(ports.map(forwarded), before, "{talk:?}");
                let passed = others(accelerated) - passed;
                assert!(passed >= 2 * EXCHANGES, "{passed} of {talk:?}");
            }
        }
    }
}

impl Ruleset {
    /// The network, or nothing and a line that says why.
    fn topology(&self) -> Option<Topology> {
        let is_installed =
            ["nft", "iptables-nft-restore", "conntrack"].iter().all(|program| has(program));
        if !is_installed {
            return None;
        }
        let Ruleset { inside, outside, .. } = self;
        let Inside { name, is_bridge, addresses: [client, router] } = inside;
        let gateway = router.split('/').next().unwrap_or(router);
        let (port, addresses) = match is_bridge {
            true => ("member", String::new()),
            false => (*name, format!("{router} 2001:db8:1::fe/64")),
        };
        let topology = topology(&format!(
            "
            host client via {gateway} 2001:db8:1::fe
            host server via 10.2.0.254 2001:db8:2::fe
            host third via 10.3.0.254
            router r1
            link client:eth0 {client} 2001:db8:1::1/64 -- r1:{port} {addresses}
            link r1:{outside} 10.2.0.254/24 2001:db8:2::fe/64 -- server:eth0 10.2.0.1/24 2001:db8:2::1/64
            link third:eth0 10.3.0.1/24 -- r1:third 10.3.0.254/24
            "
        ))?;
        if *is_bridge {
            for line in [
                format!("ip link add {name} type bridge"),
                format!("ip link set member master {name}"),
                format!("ip link set {name} up"),
                format!("ip addr add {router} dev {name}"),
                format!("ip -6 addr add 2001:db8:1::fe/64 dev {name} nodad"),
            ] {
                topology.tool("r1", &line);
            }
        }
        Some(topology)
    }

    /// As the firewall would do.
    fn load(&self, topology: &Topology) {
        for file in self.files {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/firewall");
            let program = match file.rsplit_once('.') {
                Some((_, "v4")) => "iptables-nft-restore",
                Some((_, "v6")) => "ip6tables-nft-restore",
                _ => "nft -f",
            };
            topology.tool("r1", &format!("{program} {}", folder.join(file).display()));
        }
    }

    fn start(&self, topology: &Topology) -> Accelerated {
        self.start_in(topology, "ingress")
    }

    fn start_in(&self, topology: &Topology, tier: &str) -> Accelerated {
        let (router, program) = (topology.host("r1"), env!("CARGO_BIN_EXE_manylane"));
        let ports = [self.inside.name, self.outside];
        let accelerated = Accelerated::start_with(router, program, &ports, &["--tier", tier]);
        ports.iter().for_each(|name| _ = accelerated.wait_for_tier(name, tier));
        accelerated
    }

    /// The client's IPv4 address.
    fn client(&self) -> IpAddr {
        let [client, _] = self.inside.addresses;
        let address = client.split('/').next().and_then(|address| address.parse().ok());
        address.expect("it is an address")
    }

    /// Opens a connection to the server, which sees the client's address, or the router's where rules translate.
    fn open(&self, transport: Transport, ends: [&Host; 2], server: IpAddr) -> Talk {
        let talk = Talk::open(transport, ends, Target::at(server));
        let talk = talk.unwrap_or_else(|error| panic!("{transport:?} to {server}: {error}"));
        let (client, family) = match server {
            IpAddr::V4(_) => (self.client(), self.v4),
            IpAddr::V6(_) => (CLIENT_V6, self.v6),
        };
        let wanted = if family.is_masqueraded { WAN_V4 } else { client };
        assert_eq!(talk.source.ip(), wanted, "{talk:?}");
        talk
    }
}

/// Messages of a connection that are looked at together; a program finds a connection at its 16th packet.
const EXCHANGES: u64 = 20;
