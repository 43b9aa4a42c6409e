//! A router with rules, its hosts, and an accelerator beside its kernel.

use std::net::SocketAddr;
use std::process::{Child, Command};

use manylane_io::netlink::conntrack::{Connection, Conntrack, Tcp};
use manylane_lab::accelerated::{Accelerated, IN_A_ROW, topology};
use manylane_lab::scenario::has;
use manylane_lab::{Topology, until};

/// Where packets are forwarded.
pub(super) const TIERS: [&str; 2] = ["ingress", "driver"];

/// What is to be made.
pub(super) struct Plan<'p> {
    /// Hosts and links; the router is `r1`.
    pub text: &'p str,
    /// The rules of the router.
    pub rules: String,
    /// Its ports.
    pub ports: &'p [&'p str],
    /// The other ends of their links, and the ends of hosts that fill in checksums for the driver.
    pub ends: &'p [(&'p str, &'p str)],
    /// Lines for hosts, before anything is accelerated.
    pub lines: &'p [(&'p str, &'p str)],
    /// More arguments of `manylane accelerate`.
    pub arguments: &'p [&'p str],
}

impl Default for Plan<'_> {
    fn default() -> Self {
        Plan {
            text: IN_A_ROW,
            rules: rules("", "", ""),
            ports: &["lan", "wan"],
            ends: &[("client", "eth0"), ("server", "eth0")],
            lines: &[],
            arguments: &[],
        }
    }
}

/// The rules of the scenarios: `objects` of the table, rules for translated `destinations` and for `sources` before the one
/// that masquerades.
pub(super) fn rules(objects: &str, destinations: &str, sources: &str) -> String {
    format!(
        "table inet router {{
            {objects}
            chain prerouting {{
                type filter hook prerouting priority filter
                ct state invalid counter drop
            }}
            chain forward {{
                type filter hook forward priority filter; policy drop
                ct state invalid counter drop
                ct state established,related accept
                iifname lan ct state new accept
                ct status dnat accept
            }}
            chain destinations {{
                type nat hook prerouting priority dstnat
                {destinations}
            }}
            chain sources {{
                type nat hook postrouting priority srcnat
                {sources}
                oifname != lan masquerade
            }}
        }}"
    )
}

/// The router as planned, with an accelerator.
pub(super) struct Bed<'p> {
    pub topology: Topology,
    pub accelerated: Accelerated,
    pub tier: &'static str,
    plan: Plan<'p>,
}

/// Packets that the router has forwarded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passed {
    pub by_lane: u64,
    pub by_kernel: u64,
}

impl<'p> Bed<'p> {
    /// Makes it all; nothing, and a line that says why, where that cannot be.
    pub fn make(tier: &'static str, plan: Plan<'p>) -> Option<Bed<'p>> {
        let topology = plan.network(tier)?;
        Some(Bed::beside(topology, tier, plan))
    }

    /// An accelerator for a plan's network that stands.
    pub fn beside(topology: Topology, tier: &'static str, plan: Plan<'p>) -> Bed<'p> {
        let accelerated = plan.accelerate(&topology, tier);
        Bed { topology, accelerated, tier, plan }
    }

    /// The usual one.
    pub fn usual(tier: &'static str) -> Option<Bed<'p>> {
        Bed::make(tier, Plan::default())
    }

    /// Another accelerator, when the first has ended.
    pub fn accelerate_again(&mut self) {
        self.accelerated = self.plan.accelerate(&self.topology, self.tier);
    }

    /// Client and server.
    pub fn hosts(&self) -> [&manylane_lab::Host; 2] {
        ["client", "server"].map(|name| self.topology.host(name))
    }

    /// All that conntrack has.
    pub fn connections(&self) -> Vec<Connection> {
        self.topology.host("r1").run(|| {
            let mut all = Vec::new();
            let mut requests = Conntrack::open().expect("conntrack is there");
            requests.dump(|connection| all.push(connection)).expect("root may list");
            all
        })
    }

    /// The connection that this end began.
    pub fn connection(&self, began: SocketAddr) -> Option<Connection> {
        let all = self.connections();
        all.into_iter().find(|one| {
            (one.original.source, one.original.source_port) == (began.ip(), began.port())
        })
    }

    /// Whether conntrack accepts that segments of a TCP connection are missing: the connection is in the lane, or was.
    pub fn is_admitted(&self, began: SocketAddr) -> bool {
        self.connection(began).is_some_and(|one| is_liberal(&one))
    }

    /// Waits until a TCP connection is in this state.
    pub fn ends_in(&self, began: SocketAddr, state: u8) {
        let mut seen = Vec::new();
        until(&format!("the connection of {began} is in state {state}"), || {
            let found = self.connection(began).and_then(|one| one.tcp).map(|tcp| tcp.state);
            if seen.last() != Some(&found) {
                seen.push(found);
            }
            match found {
                Some(found) if found == state => Ok(()),
                _ => Err(format!("{seen:?}, {} invalid", self.invalid())),
            }
        });
    }

    /// What was dropped as invalid.
    pub fn invalid(&self) -> u64 {
        let rules = self.topology.tool("r1", "nft list table inet router");
        let after = |line: &str| {
            line.split("invalid counter packets ").nth(1)?.split(' ').next()?.parse::<u64>().ok()
        };
        rules.lines().filter_map(after).sum::<u64>()
    }

    /// Packets that the router has forwarded until now.
    pub fn passed(&self) -> Passed {
        let by_lane = self.accelerated.ledger().tiers[self.tier];
        Passed { by_lane, by_kernel: self.kernel() }
    }

    /// Nearly all packets of this traffic are forwarded past the kernel.
    pub fn lane_has(&self, what: &str, traffic: impl FnOnce()) {
        let before = self.passed();
        traffic();
        let now = self.passed();
        let (by_lane, by_kernel) = (now.by_lane - before.by_lane, now.by_kernel - before.by_kernel);
        println!("{}, {what}: {by_lane} packets by the lane, {by_kernel} by the kernel", self.tier);
        assert!(
            by_lane > 10 * by_kernel,
            "{what}: {by_lane} {by_kernel}: {:#?}",
            self.accelerated.ledger()
        );
    }

    /// Waits until the lane forwards, while `traffic` runs again and again, and nearly nothing is the kernel's.
    pub fn wait_for_lane(&self, what: &str, mut traffic: impl FnMut()) {
        until(&format!("{what}: the lane forwards"), || {
            let before = self.passed();
            traffic();
            let now = self.passed();
            let (by_lane, by_kernel) =
                (now.by_lane - before.by_lane, now.by_kernel - before.by_kernel);
            match by_lane > 10 * by_kernel {
                true => Ok(()),
                false => Err(format!(
                    "{by_lane} by the lane, {by_kernel} by the kernel: {:#?}",
                    self.accelerated.ledger().passed
                )),
            }
        });
    }

    /// Packets that the router's kernel has forwarded.
    pub fn kernel(&self) -> u64 {
        let read = |name: &'static str| {
            let path = format!("/proc/thread-self/net/{name}");
            let read = self.topology.host("r1").run(move || std::fs::read_to_string(path));
            read.expect("/proc is mounted")
        };
        let snmp = read("snmp");
        let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Ip: "));
        let (names, numbers) = (lines.next().expect("names"), lines.next().expect("numbers"));
        let at = names.split(' ').position(|name| name == "ForwDatagrams").expect("it is counted");
        let number = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok());
        let v4 = number(numbers.split(' ').nth(at)).expect("a number");
        let snmp6 = read("snmp6");
        let line = snmp6.lines().find_map(|line| line.strip_prefix("Ip6OutForwDatagrams"));
        v4 + number(line.map(str::trim)).expect("it is counted")
    }

    /// Nothing was invalid, and every packet is accounted for.
    pub fn finish(self) {
        assert_eq!(self.invalid(), 0, "{}", self.topology.tool("r1", "nft list table inet router"));
        self.accelerated.assert_balanced();
    }
}

impl Plan<'_> {
    /// The hosts and the rules.
    pub fn network(&self, tier: &str) -> Option<Topology> {
        if !has("nft") {
            return None;
        }
        let topology = topology(self.text)?;
        for (host, line) in self.lines {
            topology.tool(host, line);
        }
        if tier == "driver" {
            for (host, end) in self.ends {
                topology.tool(host, &format!("ethtool -K {end} gro on tx off"));
                topology.set(host, "net/ipv4/tcp_wmem", "4096 65536 65536");
            }
        }
        topology.tool("r1", &format!("nft '{}'", self.rules));
        Some(topology)
    }

    /// An accelerator that has all ports in this tier.
    pub fn accelerate(&self, topology: &Topology, tier: &str) -> Accelerated {
        let arguments = [&["--tier", tier], self.arguments].concat();
        let program = env!("CARGO_BIN_EXE_manylane");
        let accelerated =
            Accelerated::start_with(topology.host("r1"), program, self.ports, &arguments);
        for name in self.ports {
            until(&format!("{name} is in the tier {tier}"), || match accelerated.port(name) {
                port if port.tier == tier && port.egress_tier == tier => Ok(()),
                port => Err(format!("{port:#?}")),
            });
        }
        accelerated
    }
}

/// Whether the lane has had it.
pub(super) fn is_liberal(connection: &Connection) -> bool {
    let flags = connection.tcp.map_or([0; 2], |tcp| tcp.flags);
    flags.iter().all(|flags| flags & Tcp::BE_LIBERAL != 0)
}

/// A program in a host's namespace; killed when dropped.
pub(super) struct Program(pub Child);

impl Program {
    /// Starts it.
    pub fn start(topology: &Topology, host: &str, command: Command) -> Program {
        Program(manylane_lab::scenario::spawn_in(topology.host(host), command))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Neither can fail in a way that matters: it may have ended, and been waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
