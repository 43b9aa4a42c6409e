//! A router with rules, its hosts, and an accelerator beside its kernel.

use std::fmt;
use std::net::SocketAddr;
use std::process::{Child, Command};

use manylane_api::Client;
use manylane_api::accelerate::{LaneStatus, TrackedFlow, TrackedFlows, TrackedFlowsRequest};
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
    pub accelerated: Accelerated,
    pub topology: Topology,
    pub tier: &'static str,
    plan: Plan<'p>,
}

/// Packets that the router has forwarded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passed {
    pub by_lane: u64,
    pub by_kernel: u64,
    /// Packets that are the kernel's because the lease had lapsed: the machine gave the daemon no core for so long.
    pub lapsed: u64,
}

impl Passed {
    /// Packets since an earlier look.
    pub fn since(self, before: Passed) -> Passed {
        Passed {
            by_lane: self.by_lane - before.by_lane,
            by_kernel: self.by_kernel - before.by_kernel,
            lapsed: self.lapsed - before.lapsed,
        }
    }

    /// The kernel's packets while the lease held.
    pub fn by_kernel_unlapsed(self) -> u64 {
        self.by_kernel.saturating_sub(self.lapsed)
    }

    /// Whether the lane forwarded nearly all packets while the lease held.
    pub fn is_by_lane(self) -> bool {
        self.by_lane > 10 * self.by_kernel_unlapsed()
    }
}

impl fmt::Display for Passed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Passed { by_lane, by_kernel, lapsed } = self;
        write!(
            f,
            "{by_lane} packets by the lane, {by_kernel} by the kernel, {lapsed} without a lease"
        )
    }
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
                // Conntrack takes a FIN that is sent again for the other end's.
                Some(found) if state == Tcp::CLOSE_WAIT && found > state => Ok(()),
                _ => Err(format!("{seen:?}, {} invalid", self.invalid())),
            }
        });
    }

    /// Waits until conntrack has seen the reset of a TCP connection: the connection is closed, or lives as long as a closed
    /// one.
    ///
    /// The latter where the kernel had packets just before. Conntrack then knows an acknowledgement that is older than the
    /// reset, so the reset may be a forged one, which a challenge would answer (RFC 5961, 3.2): conntrack shortens the
    /// connection's life, and keeps its state (`nf_conntrack_tcp_packet`).
    pub fn is_reset(&self, began: SocketAddr) {
        until(&format!("the connection of {began} is reset"), || {
            let found = self.connection(began);
            let state = found.and_then(|one| one.tcp.map(|tcp| tcp.state).zip(one.timeout));
            match state {
                Some((Tcp::CLOSE, _)) => Ok(()),
                Some((Tcp::ESTABLISHED, left)) if left.as_secs() <= CLOSED_S => Ok(()),
                _ => Err(format!("{state:?}, {} invalid", self.invalid())),
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
        let ledger = self.accelerated.ledger();
        let lapsed = ledger.passed.get("lapsed").copied().unwrap_or(0);
        Passed { by_lane: ledger.tiers[self.tier], by_kernel: self.kernel(), lapsed }
    }

    /// Nearly all packets of this traffic are forwarded past the kernel, and its connections are in the lane already.
    ///
    /// If the lease lapses meanwhile, or if all entries have to be reviewed, the traffic runs once more.
    pub fn lane_has(&self, what: &str, mut traffic: impl FnMut()) {
        until(&format!("{what}: the lane forwards"), || {
            let (before, reviews) = (self.passed(), self.lane().reviews);
            traffic();
            let passed = self.passed().since(before);
            println!("{}, {what}: {passed}", self.tier);
            if passed.is_by_lane() {
                return Ok(());
            }
            let lane = self.lane();
            let is_disturbed = passed.lapsed > 0 || lane.reviews > reviews || lane.is_reviewing;
            let ledger = self.accelerated.ledger();
            assert!(is_disturbed, "{what}: {passed}: {ledger:#?}\n{lane:#?}");
            Err(format!("{passed}: {:#?}", ledger.passed))
        });
    }

    /// Waits until the lane forwards, while `traffic` runs again and again, and nearly nothing is the kernel's.
    pub fn wait_for_lane(&self, what: &str, mut traffic: impl FnMut()) {
        until(&format!("{what}: the lane forwards"), || {
            let before = self.passed();
            traffic();
            match self.passed().since(before) {
                passed if passed.is_by_lane() => Ok(()),
                passed => Err(format!("{passed}: {:#?}", self.accelerated.ledger().passed)),
            }
        });
    }

    /// The lane's thread, and its table.
    pub fn lane(&self) -> LaneStatus {
        self.accelerated.ask("/v1/accelerate/lane")
    }

    /// The lane's entry of the connection that this end began.
    pub fn entry(&self, began: SocketAddr) -> Option<TrackedFlow> {
        let client = Client::new(&self.accelerated.socket());
        let request = TrackedFlowsRequest {
            address: Some(began.ip()),
            transport_port: Some(began.port()),
            ..Default::default()
        };
        let page: Result<TrackedFlows, _> = client.post("/v1/accelerate/flows/table", &request);
        page.expect("the lane's thread answers").flows.into_iter().next()
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
        for (states, seconds) in [(&CLOSING[..], CLOSED_S), (&["unacknowledged"], 10 * CLOSED_S)] {
            for state in states {
                let name = format!("net/netfilter/nf_conntrack_tcp_timeout_{state}");
                topology.set("r1", &name, &seconds.to_string());
            }
        }
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

/// How long conntrack remembers a TCP connection that closes or has closed, in seconds: a scenario looks at the state
/// meanwhile. A connection with unacknowledged data lives longer.
const CLOSED_S: u64 = 200;
const CLOSING: [&str; 4] = ["close", "close_wait", "last_ack", "time_wait"];

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
