//! Load on the router of a [`Lab`]: a table of routes, small frames without gaps, TCP by iperf3, and what counts them.
//!
//! Small frames are for neighbours behind the router that no host is: the server's kernel drops such a frame at once, so
//! that the router is most of what is measured.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use manylane_io::affinity;
use manylane_io::interface::{Interface, Offloads};
use manylane_io::namespace::Host;
use manylane_io::netlink::kernel::{Hop, Hops, Route};
use manylane_io::netlink::{self, Netlink};
use serde_json::Value;

use crate::crossing::{Flows, generate};
use crate::generator::LiveGenerator;
use crate::network::{CLIENT_V4, CLIENT_V6, Lab, LabError};
use crate::tools::mortal;

/// Neighbours behind the router that no host is, by IP version. Routes change between the two of a version.
pub const NOBODY: [[IpAddr; 2]; 2] = [
    [IpAddr::V4(Ipv4Addr::new(10, 2, 0, 9)), IpAddr::V4(Ipv4Addr::new(10, 2, 0, 10))],
    [
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 9)),
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 0x10)),
    ],
];
/// Their Ethernet address.
pub const NOBODYS_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x99];
/// Networks behind the first neighbour of each version, beside the default route.
const BEHIND: [(IpAddr, u8); 2] = [
    (IpAddr::V4(Ipv4Addr::new(10, 128, 0, 0)), 9),
    (IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x128, 0, 0, 0, 0, 0)), 48),
];

/// The server of iperf3 waits for a client within this time, however busy the machine is.
const FREE_WITHIN: Duration = Duration::from_secs(30);

impl Lab {
    /// Gives the router's kernel these routes, and neighbours that drop all frames; `lan` takes a generator's frames.
    pub fn load_routes(&self, routes: &[(IpAddr, u8)]) -> Result<(), LabError> {
        let routes = routes.to_vec();
        self.router.run(move || {
            // A veth takes frames as the generator makes them only with its own receive polling, by GRO.
            Offloads::set_gro("lan", true)?;
            let mut netlink = Netlink::open()?;
            for next in NOBODY.as_flattened() {
                netlink.add_neighbour("wan", *next, NOBODYS_MAC)?;
            }
            let everything = [IpAddr::from([0; 4]), IpAddr::from([0; 16])].map(|any| (any, 0));
            for networks in [BEHIND, everything] {
                for ((network, length), [next, _]) in networks.into_iter().zip(NOBODY) {
                    netlink.add_route(&netlink::Route::via(network, length, next))?;
                }
            }
            let link = netlink.link("wan")?.index;
            netlink.load_routes(routes.into_iter().map(|prefix| by_nobody(link, prefix, 0)))?;
            Ok(())
        })
    }

    /// Sends UDP frames of 64 bytes from the client, as fast as the kernel makes them, on `core`, until the generator
    /// is dropped. Source `ports` take turns.
    pub fn generate(
        &self,
        flows: &Flows,
        ports: u16,
        core: usize,
    ) -> Result<LiveGenerator, LabError> {
        let to = self.router.run(|| Interface::read("lan"))?.mac;
        generate((&self.client, [CLIENT_V4, CLIENT_V6]), to, flows, ports, core)
    }

    /// Frames that have reached the server's kernel.
    pub fn received(&self) -> io::Result<u64> {
        self.server.run(|| {
            let text = fs::read_to_string("/proc/thread-self/net/dev")?;
            let found = text.lines().find_map(|line| {
                let (name, numbers) = line.split_once(':')?;
                (name.trim() == "eth0").then(|| numbers.split_whitespace().nth(1)?.parse().ok())?
            });
            found.ok_or_else(|| io::Error::other("eth0 is not in /proc/net/dev"))
        })
    }

    /// Of the client's kernel: times that it took something for reordering on the way (`TCPSACKReorder`, `TCPTSReorder`,
    /// `TCPRenoReorder`), and retransmissions that the server did not need (`TCPDSACKRecv`).
    pub fn client_reordering(&self) -> io::Result<[u64; 2]> {
        let text = self.client.run(|| fs::read_to_string("/proc/thread-self/net/netstat"))?;
        let count = |name| tcp_count(&text, name).unwrap_or(0);
        let reordering = ["TCPSACKReorder", "TCPTSReorder", "TCPRenoReorder"].map(count);
        Ok([reordering.iter().sum(), count("TCPDSACKRecv")])
    }

    /// Lets client and server run on these cores, and iperf3 serve at the server until what is returned is dropped.
    pub fn serve_tcp(&self, cores: [usize; 2]) -> io::Result<TcpServer> {
        for (host, core) in [&self.client, &self.server].into_iter().zip(cores) {
            host.run(move || affinity::pin(core))?; // A host's processes inherit its thread's core.
        }
        let mut command = mortal("iperf3");
        command.args(["--server", "--forceflush"]).stderr(Stdio::null());
        let (process, lines) = Process::start(&self.server, command)?;
        let (is_free, free) = mpsc::channel();
        // A full pipe would stop iperf3: all of it is read.
        let listens = move |line: String| {
            if line.contains("listening") {
                let _ = is_free.send(()); // An error: the receiver is gone.
            }
        };
        thread::spawn(move || lines.for_each(listens));
        Ok(TcpServer { _process: process, free })
    }

    /// Sends by iperf3 from the client to its server for `seconds`, by `connections` at once.
    pub fn transfer(
        &self,
        server: &TcpServer,
        to: IpAddr,
        seconds: u32,
        connections: u32,
    ) -> io::Result<Transfer> {
        // A client ends a moment before the server has told it from the next one, which it would turn away.
        if server.free.recv_timeout(FREE_WITHIN).is_err() {
            return Err(io::Error::other("iperf3 does not serve"));
        }
        let patience = (seconds + 20).to_string(); // More than a client needs that waits for nothing.
        let mut command = mortal("timeout");
        command.args(["--signal", "KILL", &patience, "setpriv", "--pdeathsig", "KILL", "iperf3"]);
        command.args(["--json", "--connect-timeout", "5000", "--time", &seconds.to_string()]);
        command.args(["--client", &to.to_string(), "--parallel", &connections.to_string()]);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let output = self.client.run(move || command.output())?;
        let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let (received, sent) = (&said["end"]["sum_received"], &said["end"]["sum_sent"]);
        let numbers = [&received["bits_per_second"], &received["bytes"], &sent["retransmits"]];
        match numbers.map(Value::as_f64) {
            [Some(bits_per_second), Some(bytes), Some(retransmits)] if bytes > 0.0 => {
                Ok(Transfer { gbps: bits_per_second / 1e9, gigabytes: bytes / 1e9, retransmits })
            }
            _ => {
                let (error, status) = (&said["error"], output.status);
                let why = format!("{to}: iperf3: nothing arrived: {error} ({status})");
                Err(io::Error::other(why))
            }
        }
    }
}

/// A route by one of the two neighbours of its IP version that no host is.
pub fn by_nobody(link: u32, (destination, length): (IpAddr, u8), neighbour: usize) -> Route {
    let gateway = NOBODY[usize::from(destination.is_ipv6())][neighbour];
    Route::new(destination, length, Hops::One(Some(Hop::via(link, gateway))))
}

/// iperf3 at the server, until it is dropped.
pub struct TcpServer {
    _process: Process,
    /// A word each time that it waits for a client.
    free: Receiver<()>,
}

/// What one or several connections transferred together.
pub struct Transfer {
    /// Goodput, in 10^9 bits a second.
    pub gbps: f64,
    /// All bytes that arrived.
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

/// Seconds that all cores have been busy since the machine started, interrupts included.
pub fn busy_s() -> io::Result<f64> {
    let stat = fs::read_to_string("/proc/stat")?;
    let ticks = busy_ticks(&stat).ok_or_else(|| io::Error::other("/proc/stat has no sum"))?;
    Ok(ticks as f64 / 100.0)
}

/// proc_stat(5): `cpu user nice system idle iowait irq softirq steal ...`, in ticks (USER_HZ: 100).
fn busy_ticks(stat: &str) -> Option<u64> {
    let ticks = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let ticks: Vec<u64> = ticks.map_while(|n| n.parse().ok()).collect();
    let &[user, nice, system, _idle, _iowait, irq, softirq, ..] = &ticks[..] else { return None };
    Some(user + nice + system + irq + softirq)
}

/// proc_pid_net(5): lines in pairs, names and numbers, that begin alike.
fn tcp_count(netstat: &str, name: &str) -> Option<u64> {
    let mut lines = netstat.lines().filter_map(|line| line.strip_prefix("TcpExt: "));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let at = names.split(' ').position(|its| its == name)?;
    numbers.split(' ').nth(at)?.parse().ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_all_but_idle_and_waiting() {
        let stat = "cpu  1 20 300 4000 50000 600000 7000000 80000000 9 9\ncpu0 1 1 1 1\n";
        assert_eq!(busy_ticks(stat), Some(7_600_321));
        assert_eq!(busy_ticks("intr 1 2 3"), None);
    }

    #[test]
    fn a_count_stands_below_its_name() {
        let text = "TcpExt: A TCPDSACKRecv B\nTcpExt: 1 23 4\nIpExt: TCPDSACKRecv\nIpExt: 9\n";
        assert_eq!(tcp_count(text, "TCPDSACKRecv"), Some(23));
        assert_eq!(tcp_count(text, "C"), None);
    }
}
