//! The network bed of `veth`, `tcp` and `compare handoff --veth`: a client, a router and a server in namespaces of this
//! process, on veth links.
//!
//! The router forwards by its kernel alone, by its kernel with `manylane accelerate`, or by `manylane run`. Several
//! networks exist at once and are measured in turn; between measurements all of them sleep.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use manylane_accelerate::accelerator::{Accelerator, Options};
use manylane_api::Source;
use manylane_api::accelerate::Accelerated;
use manylane_io::affinity;
use manylane_io::interface::Interface;
use manylane_io::netlink::Netlink;
use manylane_io::netlink::kernel::{Hop, Hops, Route};
use manylane_lab::generator::{Destinations, LiveGenerator, LiveOptions};
use manylane_lab::{CLIENT_V4, CLIENT_V6, Host, RouterOptions, Topology, ping};
use manylane_net::wire::ethernet::Mac;
use manylane_router::config::{Config, Environment};
use manylane_router::control::Daemon;
use serde_json::Value;

use crate::figure::{Output, Rounds};
use crate::packet::emit_udp;
use manylane_lab::prefixes::Prefixes;

/// The router's interfaces: to the client, and to the server.
pub const PORTS: [&str; 2] = ["lan", "wan"];
/// Neighbours behind the router that no host is. Routes change between the two of a family.
const NOBODY: [[&str; 2]; 2] = [["10.2.0.9", "10.2.0.10"], ["2001:db8:2::9", "2001:db8:2::10"]];
pub const NOBODYS_MAC: &str = "02:00:00:00:00:99";
/// Destinations of the one flow, by family: behind the first of [`NOBODY`].
const BEHIND: [&str; 2] = ["10.128.0.0/9", "2001:db8:128::/48"];

/// Why a question has no figures.
pub enum Stop {
    /// This machine lacks something that the question needs.
    NotHere(String),
    /// The question should have worked.
    Failed(String),
}

impl Stop {
    fn of(error: impl std::fmt::Display, is_unavailable: bool) -> Stop {
        (if is_unavailable { Stop::NotHere } else { Stop::Failed })(error.to_string())
    }
}

/// Errors of the machine, of tools and of traffic are failures.
impl<E: std::error::Error> From<E> for Stop {
    fn from(error: E) -> Stop {
        Stop::Failed(error.to_string())
    }
}

/// A result of what is done in a network.
pub type Done<T = ()> = Result<T, Stop>;

/// Measures on the first and the last core and prints, or prints why this machine cannot: it has fewer than `cores_min`
/// cores, this user is not root, or a program is missing.
pub fn ask(
    question: &str,
    cores_min: usize,
    output: &Output,
    measure: impl FnOnce([usize; 2]) -> Done<Rounds>,
) -> io::Result<()> {
    let cores = affinity::cores()?;
    let measured = match cores[..] {
        [first, ..] if cores.len() >= cores_min => {
            can_run().and_then(|()| measure([first, cores[cores.len() - 1]]))
        }
        _ => Err(Stop::NotHere("needs two cores".into())),
    };
    match measured {
        Err(Stop::NotHere(why)) => {
            eprintln!("SKIPPED {question}: {why}");
            Ok(())
        }
        Err(Stop::Failed(why)) => Err(io::Error::other(why)),
        Ok(rounds) => rounds.print(output),
    }
}

fn can_run() -> Done {
    if !nix::unistd::Uid::effective().is_root() {
        return Err(Stop::NotHere("needs root".into()));
    }
    for program in ["iperf3", "setpriv", "timeout"] {
        let mut command = Command::new(program);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        if !command.status().is_ok_and(|status| status.success()) {
            return Err(Stop::NotHere(format!("{program} is not installed")));
        }
    }
    Ok(())
}

/// Three hosts, and the router's forwarder. The fields drop in order: processes and forwarder need the hosts.
pub struct Network {
    iperf: Option<Process>,
    accelerator: Option<Accelerator>,
    daemon: Option<Daemon>,
    topology: Topology,
}

impl Network {
    /// The kernel routes, offloads at their defaults. `links` is [`manylane_lab::accelerated::IN_A_ROW`] or a text
    /// with its names ([`Topology::make`]).
    pub fn of_kernel(links: &str) -> Done<Network> {
        let topology = Topology::make(links).map_err(|error| Stop::NotHere(error.to_string()))?;
        Ok(Network { iperf: None, accelerator: None, daemon: None, topology })
    }

    /// The kernel routes, with these routes and neighbours that drop all frames; `lan` takes a generator's frames.
    pub fn with_routes(links: &str, routes: &[(IpAddr, u8)]) -> Done<Network> {
        let network = Network::of_kernel(links)?;
        let tool = |line: String| network.tool("r1", &line);
        for next in NOBODY.iter().flatten() {
            tool(format!("ip neigh replace {next} lladdr {NOBODYS_MAC} dev wan nud permanent"))?;
        }
        for (behind, [next, _]) in BEHIND.iter().zip(NOBODY) {
            let ip = if behind.contains(':') { "ip -6" } else { "ip" };
            tool(format!("{ip} route add {behind} via {next}"))?;
            tool(format!("{ip} route add default via {next}"))?;
        }
        // A veth takes frames as the generator makes them only with its own receive polling, by GRO.
        tool("ethtool -K lan gro on".into())?;
        let routes = routes.to_vec();
        network.host("r1").run(move || {
            let mut netlink = Netlink::open()?;
            let link = netlink.link("wan")?.index;
            netlink.load_routes(routes.into_iter().map(|prefix| route(link, prefix, 0)))
        })?;
        Ok(network)
    }

    /// As [`Network::with_routes`], accelerated.
    pub fn accelerated(links: &str, routes: &[(IpAddr, u8)], options: Options) -> Done<Network> {
        let mut network = Network::with_routes(links, routes)?;
        network.accelerate(options)?;
        Ok(network)
    }

    /// `manylane run` routes; the router's kernel has no address, no IPv6, and forwards nothing. Links have `mtu`.
    pub fn of_daemon(options: &RouterOptions, mtu: u16) -> Done<Network> {
        let mut network = Network::of_kernel(SILENT_ROUTER)?;
        for (name, value) in SILENT_KERNEL {
            network.topology.set("r1", name, value);
        }
        for (host, link) in [("client", "eth0"), ("r1", "lan"), ("r1", "wan"), ("server", "eth0")] {
            network.tool(host, &format!("ip link set dev {link} mtu {mtu}"))?;
        }
        let text = options.text();
        let daemon = network.host("r1").run(move || {
            let config = Config::parse(&text, "bench.toml", &Environment::of_this_thread())?;
            Daemon::start(config).map_err(|error| Stop::of(&error, error.is_unavailable()))
        })?;
        network.daemon = Some(daemon);
        Ok(network)
    }

    /// Starts the accelerator: how long that took.
    pub fn accelerate(&mut self, options: Options) -> Done<Duration> {
        let begun = Instant::now();
        let accelerator = self.host("r1").run(move || Accelerator::start(options));
        let accelerator = accelerator.map_err(|error| Stop::of(&error, error.is_unavailable()))?;
        let took = begun.elapsed();
        for port in accelerator.source().ports() {
            if !port.ingress {
                return Err(Stop::Failed(format!("{} is not accelerated: {port:#?}", port.name)));
            }
        }
        self.accelerator = Some(accelerator);
        Ok(took)
    }

    /// Ends the accelerator and the daemon. An error says that packets or frames are missing.
    pub fn stop(&mut self) -> Done {
        if let Some(accelerator) = self.accelerator.take() {
            let ledger = self.host("r1").run(move || accelerator.stop());
            if (ledger.missing, ledger.missing_bytes) != (0, 0) {
                return Err(Stop::Failed(format!("packets are missing: {ledger:#?}")));
            }
        }
        if let Some(daemon) = self.daemon.take() {
            let ledger = self.host("r1").run(move || daemon.stop());
            if (ledger.missing, ledger.frames.missing) != (0, 0) {
                return Err(Stop::Failed(format!("packets or frames are missing: {ledger:#?}")));
            }
        }
        Ok(())
    }

    pub fn close(mut self) -> Done {
        self.stop()
    }

    /// `client`, `r1` or `server`.
    pub fn host(&self, name: &str) -> &Host {
        self.topology.host(name)
    }

    pub fn tool(&self, host: &str, line: &str) -> Done<String> {
        Ok(self.topology.try_tool(host, line)?)
    }

    pub fn accelerator(&self) -> Option<Arc<dyn Accelerated>> {
        self.accelerator.as_ref().map(Accelerator::source)
    }

    pub fn daemon(&self) -> Option<Arc<dyn Source>> {
        self.daemon.as_ref().map(Daemon::source)
    }

    pub fn received(&self) -> io::Result<u64> {
        self.host("server").run(|| {
            let text = fs::read_to_string("/proc/thread-self/net/dev")?;
            let found = text.lines().find_map(|line| {
                let (name, numbers) = line.split_once(':')?;
                (name.trim() == "eth0").then(|| numbers.split_whitespace().nth(1)?.parse().ok())?
            });
            found.ok_or_else(|| io::Error::other("eth0 is not in /proc/net/dev"))
        })
    }

    /// Sends UDP frames of 64 bytes from the client, as fast as the kernel makes them, on `core`, until the generator
    /// is dropped. `one` is an address of the destinations' family; source ports take turns.
    pub fn generate(
        &self,
        (destinations, one): &(Destinations, IpAddr),
        ports: u16,
        core: usize,
    ) -> Done<LiveGenerator> {
        let [gateway, ours] =
            [("r1", "lan"), ("client", "eth0")].map(|(host, link)| self.topology.mac(host, link));
        let source = if one.is_ipv4() { CLIENT_V4 } else { CLIENT_V6 };
        let mut frame = vec![0; 64];
        emit_udp(&mut frame, 64, [gateway?, ours?].map(Mac), [source, *one]);
        let destinations = destinations.clone();
        let options = LiveOptions { frame, destinations, ports, per_second: 0, core: Some(core) };
        self.host("client").run(|| {
            let interface = Interface::read("eth0")?;
            Ok(LiveGenerator::start(&interface, options)?)
        })
    }

    /// Lets client and server run on these cores, with iperf3 at the server; neighbours on the way are known then.
    pub fn serve_tcp(&mut self, cores: [usize; 2], destinations: &[IpAddr]) -> Done {
        for (host, core) in ["client", "server"].into_iter().zip(cores) {
            self.host(host).run(move || affinity::pin(core))?; // A host's processes inherit its thread's core.
        }
        let mut command = mortal("iperf3");
        command.args(["--server", "--forceflush"]).stderr(Stdio::null());
        let (process, mut lines) = Process::start(self.host("server"), command)?;
        if !lines.any(|line| line.contains("listening")) {
            return Err(Stop::Failed("iperf3 does not serve".into()));
        }
        thread::spawn(move || lines.for_each(drop)); // A full pipe would stop iperf3.
        self.iperf = Some(process);
        for destination in destinations {
            ping(self.host("client"), *destination, 56, 3)?;
        }
        Ok(())
    }

    /// Sends from the client for `seconds`, by `connections` at once.
    pub fn transfer(&self, to: IpAddr, seconds: u32, connections: u32) -> Done<Transfer> {
        let patience = (seconds + 20).to_string(); // More than a client needs that waits for nothing.
        let mut command = mortal("timeout");
        command.args(["--signal", "KILL", &patience, "setpriv", "--pdeathsig", "KILL", "iperf3"]);
        command.args(["--json", "--connect-timeout", "5000", "--time", &seconds.to_string()]);
        command.args(["--client", &to.to_string(), "--parallel", &connections.to_string()]);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let output = self.host("client").run(move || command.output())?;
        let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let (received, sent) = (&said["end"]["sum_received"], &said["end"]["sum_sent"]);
        let numbers = [&received["bits_per_second"], &received["bytes"], &sent["retransmits"]];
        match numbers.map(Value::as_f64) {
            [Some(bits_per_second), Some(bytes), Some(retransmits)] if bytes > 0.0 => {
                Ok(Transfer { gbps: bits_per_second / 1e9, gigabytes: bytes / 1e9, retransmits })
            }
            _ => {
                let (error, status) = (&said["error"], output.status);
                Err(Stop::Failed(format!("{to}: iperf3: nothing arrived: {error} ({status})")))
            }
        }
    }
}

/// What one or several connections transferred together.
pub struct Transfer {
    /// Goodput, in 10^9 bits a second.
    pub gbps: f64,
    pub gigabytes: f64,
    /// Segments sent again.
    pub retransmits: f64,
}

/// What a counter grew by in about `slice`, and in how many seconds.
pub fn rate(slice: Duration, count: impl Fn() -> io::Result<u64>) -> io::Result<(f64, f64)> {
    thread::sleep(slice / 4); // The generator starts, and queues fill.
    let (start, before) = (Instant::now(), count()?);
    thread::sleep(slice);
    let after = count()?;
    Ok(((after - before) as f64, start.elapsed().as_secs_f64()))
}

/// Seconds that the threads of this process with such names have run, to the nanosecond (schedstats.rst).
pub fn threads_s(is_counted: impl Fn(&str) -> bool) -> io::Result<f64> {
    let mut ns = 0;
    for task in fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        // A thread that has just ended has no name.
        if fs::read_to_string(task.join("comm")).is_ok_and(|name| is_counted(name.trim())) {
            let said = fs::read_to_string(task.join("schedstat"))?;
            ns += said.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    Ok(ns as f64 / 1e9)
}

/// A program that the kernel ends when its parent ends, for whatever reason.
pub fn mortal(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", program]);
    command
}

/// A child, killed when dropped.
pub struct Process(pub Child);

impl Process {
    /// Starts it in a host's namespace, and reads its standard output by lines.
    pub fn start(
        host: &Host,
        mut command: Command,
    ) -> io::Result<(Process, impl Iterator<Item = String> + Send + use<>)> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = host.run(move || command.spawn())?;
        let lines = BufReader::new(child.stdout.take().expect("it is a pipe")).lines();
        Ok((Process(child), lines.map_while(Result::ok)))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both may fail, and without harm: the child has ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A route by one of the two neighbours of its family.
pub fn route(link: u32, (destination, length): (IpAddr, u8), neighbour: usize) -> Route {
    let gateway = NOBODY[usize::from(destination.is_ipv6())][neighbour];
    let gateway = gateway.parse().expect("it is written above");
    Route::new(destination, length, Hops::One(Some(Hop::via(link, gateway))))
}

/// The routes of a table, without those of the bed's own networks.
pub fn routes(table: &Prefixes) -> Vec<(IpAddr, u8)> {
    let v4 = table.ipv4.iter().map(|prefix| (IpAddr::V4(prefix.addr()), prefix.len()));
    let v6 = table.ipv6.iter().map(|prefix| (IpAddr::V6(prefix.addr()), prefix.len()));
    let is_ours = |address: &IpAddr| match address {
        IpAddr::V4(address) => address.is_private() || address.is_unspecified(),
        IpAddr::V6(address) => address.segments()[..2] == [0x2001, 0xdb8],
    };
    v4.chain(v6).filter(|(address, length)| !is_ours(address) && *length > 0).collect()
}

/// [`manylane_lab::accelerated::IN_A_ROW`] whose router has no addresses.
const SILENT_ROUTER: &str = "
    host client via 10.1.0.254 2001:db8:1::fe
    host server via 10.2.0.254 2001:db8:2::fe
    host r1
    link client:eth0 10.1.0.1/24 2001:db8:1::1/64 -- r1:lan
    link r1:wan -- server:eth0 10.2.0.1/24 2001:db8:2::1/64
";
const SILENT_KERNEL: [(&str, &str); 3] = [
    ("net/ipv6/conf/all/disable_ipv6", "1"),
    ("net/ipv6/conf/all/forwarding", "0"),
    ("net/ipv4/ip_forward", "0"),
];
