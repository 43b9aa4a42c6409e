//! [`Bed`]: a router between two hosts, by the kernel alone or accelerated.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use manylane::accelerate::{Accelerator, Options};
use manylane::api::accelerate::Accelerated;
use manylane::lab::Topology;
use manylane::lab::accelerated::IN_A_ROW;
use manylane_io::netlink::Netlink;
use manylane_io::netlink::kernel::{Hop, Hops, Route};

use crate::prefixes::Prefixes;
use crate::tcp::Stop;

/// Three hosts, and who forwards in the middle. Between measurements all of it sleeps.
pub struct Bed {
    // The fields drop in order: the accelerator's end needs the router.
    accelerator: Option<Accelerator>,
    topology: Topology,
}

impl Bed {
    /// The kernel alone, with these routes besides.
    pub fn kernel(routes: &[(IpAddr, u8)]) -> Result<Bed, Stop> {
        Bed::kernel_between(IN_A_ROW, routes)
    }

    /// The same with these links ([`Topology::make`]), of the names that [`IN_A_ROW`] has.
    pub fn kernel_between(links: &str, routes: &[(IpAddr, u8)]) -> Result<Bed, Stop> {
        let topology = Topology::make(links)?;
        let tool = |line: String| topology.try_tool("r1", &line).map_err(Stop::failed);
        for next in NOBODY.iter().chain(&NOBODY_V6) {
            tool(format!("ip neigh replace {next} lladdr {NOBODYS_MAC} dev wan nud permanent"))?;
        }
        tool(format!("ip route add {BEHIND} via {}", NOBODY[0]))?;
        tool(format!("ip route add default via {}", NOBODY[0]))?;
        tool(format!("ip -6 route add {BEHIND_V6} via {}", NOBODY_V6[0]))?;
        tool(format!("ip -6 route add default via {}", NOBODY_V6[0]))?;
        // A veth takes frames as the generator makes them only with its own receive polling, by GRO.
        tool("ethtool -K lan gro on".into())?;
        let bed = Bed { accelerator: None, topology };
        bed.load(routes)?;
        Ok(bed)
    }

    /// The same, accelerated.
    pub fn accelerated(routes: &[(IpAddr, u8)]) -> Result<Bed, Stop> {
        Bed::accelerated_with(routes, Options::new(PORTS))
    }

    /// The same, as these options say.
    pub fn accelerated_with(routes: &[(IpAddr, u8)], options: Options) -> Result<Bed, Stop> {
        let mut bed = Bed::kernel(routes)?;
        bed.accelerate(options)?;
        Ok(bed)
    }

    /// Starts the accelerator: how long that took.
    pub fn accelerate(&mut self, options: Options) -> Result<Duration, Stop> {
        let begun = Instant::now();
        let start = move || Accelerator::start(options);
        let accelerator = self.topology.host("r1").run(start);
        let accelerator = accelerator.map_err(|error| match error.is_unavailable() {
            true => Stop::NotHere(error.to_string()),
            false => Stop::failed(error),
        })?;
        let took = begun.elapsed();
        for port in accelerator.source().ports() {
            if !port.entry {
                return Err(Stop::Failed(format!("{} is not accelerated: {port:#?}", port.name)));
            }
        }
        self.accelerator = Some(accelerator);
        Ok(took)
    }

    /// Ends the accelerator; an error says that packets are nowhere.
    pub fn stop(&mut self) -> Result<(), Stop> {
        let Some(accelerator) = self.accelerator.take() else { return Ok(()) };
        let ledger = self.topology.host("r1").run(move || accelerator.stop());
        match (ledger.missing, ledger.missing_bytes) {
            (0, 0) => Ok(()),
            _ => Err(Stop::Failed(format!("packets are missing: {ledger:#?}"))),
        }
    }

    /// Ends it all.
    pub fn close(mut self) -> Result<(), Stop> {
        self.stop()
    }

    /// The hosts.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// What the accelerator says, if there is one.
    pub fn source(&self) -> Option<Arc<dyn Accelerated>> {
        self.accelerator.as_ref().map(Accelerator::source)
    }

    /// One word for the kernel's figures, another for ours.
    pub fn suffix(&self, kernel: &'static str, ours: &'static str) -> &'static str {
        if self.accelerator.is_some() { ours } else { kernel }
    }

    /// Frames that the server has received.
    pub fn received(&self) -> io::Result<u64> {
        self.topology.host("server").run(|| received("eth0"))
    }

    fn load(&self, routes: &[(IpAddr, u8)]) -> Result<(), Stop> {
        let routes = routes.to_vec();
        let load = move || {
            let mut netlink = Netlink::open()?;
            let link = netlink.link("wan")?.index;
            let routes = routes.into_iter().map(|prefix| route(link, prefix, 0));
            netlink.load_routes(routes)
        };
        self.topology.host("r1").run(load).map_err(Stop::failed)?;
        Ok(())
    }
}

/// A route by one of two neighbours that nobody is.
pub fn route(link: u32, (destination, length): (IpAddr, u8), way: usize) -> Route {
    let gateway = if destination.is_ipv4() { NOBODY[way] } else { NOBODY_V6[way] };
    let gateway = gateway.parse().expect("it is written below");
    Route::new(destination, length, Hops::One(Some(Hop::via(link, gateway))))
}

/// The routes of a table. What the lab has itself is left out.
pub fn routes(table: &Prefixes) -> Vec<(IpAddr, u8)> {
    let v4 = table.ipv4.iter().map(|prefix| (IpAddr::V4(prefix.addr()), prefix.len()));
    let v6 = table.ipv6.iter().map(|prefix| (IpAddr::V6(prefix.addr()), prefix.len()));
    let is_ours = |address: &IpAddr| match address {
        IpAddr::V4(address) => address.is_private() || address.is_unspecified(),
        IpAddr::V6(address) => address.segments()[..2] == [0x2001, 0xdb8],
    };
    v4.chain(v6).filter(|(address, length)| !is_ours(address) && *length > 0).collect()
}

/// Of one core, what the threads of all accelerators of this process take while nothing passes.
pub fn idle_percent(slice: Duration) -> io::Result<f64> {
    let (begun, before) = (Instant::now(), threads_s()?);
    thread::sleep(slice);
    Ok((threads_s()? - before) / begun.elapsed().as_secs_f64() * 100.0)
}

/// Seconds that the accelerators' threads have run, to the nanosecond (schedstats.rst).
fn threads_s() -> io::Result<f64> {
    let mut ns = 0;
    for task in fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        // One that has just ended has no name.
        let name = fs::read_to_string(task.join("comm")).unwrap_or_default();
        if ["mirror", "reclaim", "api"].contains(&name.trim()) {
            let said = fs::read_to_string(task.join("schedstat"))?;
            ns += said.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    Ok(ns as f64 / 1e9)
}

/// Frames that this interface of this thread's namespace has received.
fn received(interface: &str) -> io::Result<u64> {
    let text = fs::read_to_string("/proc/thread-self/net/dev")?;
    let found = text.lines().find_map(|line| {
        let (name, numbers) = line.split_once(':')?;
        (name.trim() == interface).then(|| numbers.split_whitespace().nth(1)?.parse().ok())?
    });
    found.ok_or_else(|| io::Error::other(format!("{interface} is not in /proc/net/dev")))
}

/// The interfaces that are accelerated.
pub const PORTS: [&str; 2] = ["lan", "wan"];
/// Behind the router, and nowhere: two of them, so that routes can change.
const NOBODY: [&str; 2] = ["10.2.0.9", "10.2.0.10"];
const NOBODY_V6: [&str; 2] = ["2001:db8:2::9", "2001:db8:2::10"];
pub const NOBODYS_MAC: &str = "02:00:00:00:00:99";
/// Where the one flow goes.
const BEHIND: &str = "10.128.0.0/9";
const BEHIND_V6: &str = "2001:db8:128::/48";
