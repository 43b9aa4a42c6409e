//! [`Crossing`]: the kernel's router with four ports, a stream of small packets across two of them, and hosts that talk
//! across the others.
//!
//! ```text
//!   source                               router                                sink
//!    eth0 ──────────────── transit0                transit1 ──────────────── eth0
//!  10.3.0.1/24         10.3.0.254/24               10.4.0.254/24        10.4.0.1/24
//!
//!   client                                                                   server
//!    eth0 ───────────────────── lan                wan ───────────────────── eth0
//!  10.1.0.1/24         10.1.0.254/24               10.2.0.254/24        10.2.0.1/24
//! ```
//!
//! A program of the kernel makes the small packets ([`LiveGenerator`]), and an XDP program counts and drops them at the
//! sink ([`LiveSink`]), so that the router is most of what is measured. Both tell their counts. Every route that is
//! loaded has the sink as its next hop.
//!
//! Client and server have addresses as in [`Lab`](super::Lab), and a link of their own each: the program at the sink
//! drops everything, and a program in the driver of a veth does not see which checksums are still to be filled in.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crate::generator::{Destinations, LiveGenerator, LiveOptions, LiveSink};
use manylane_io::affinity;
use manylane_io::interface::{Interface, Offloads};
use manylane_io::netlink::kernel::{Change, Changed, Hop, Hops, Route};
use manylane_io::netlink::{self, Netlink, NetlinkError};
use manylane_net::wire::ethernet::Mac;

use super::packet::emit_udp;
use super::prefixes::Prefixes;
use super::{Host, LabError, Topology};

/// The hosts, their links, and the router between them.
pub struct Crossing {
    topology: Topology,
}

impl Crossing {
    /// Makes all of it. Small packets have a default route and their next hop's Ethernet address from the start.
    pub fn make() -> Result<Crossing, LabError> {
        let crossing = Crossing { topology: Topology::make(LINKS)? };
        let sink = crossing.topology.mac("sink", "eth0")?;
        crossing.router().run(move || -> Result<(), NetlinkError> {
            let mut netlink = Netlink::open()?;
            for (any, next) in [(IpAddr::from([0; 4]), SINK_V4), (IpAddr::from([0; 16]), SINK_V6)] {
                // The program at the sink drops questions for it.
                netlink.add_neighbour(TRANSIT_PORTS[1], next, sink)?;
                netlink.add_route(&netlink::Route::via(any, 0, next))?;
            }
            Ok(())
        })?;
        // A veth takes frames that a program sends, or redirects, only while its receiver polls.
        for (host, interface) in
            [("source", "eth0"), ("router", "transit0"), ("router", "transit1")]
        {
            crossing.topology.host(host).run(move || Offloads::set_gro(interface, true))?;
        }
        Ok(crossing)
    }

    /// The router in the middle.
    pub fn router(&self) -> &Host {
        self.topology.host("router")
    }

    /// The host that sends TCP and pings.
    pub fn client(&self) -> &Host {
        self.topology.host("client")
    }

    /// The host that receives TCP and answers pings.
    pub fn server(&self) -> &Host {
        self.topology.host("server")
    }

    /// Gives the router's kernel these prefixes, IPv4 and IPv6 at once. `progress` is called again
    /// and again with the number of routes tried, and returns whether to continue; it may wait.
    pub fn load(
        &self,
        prefixes: &[(IpAddr, u8)],
        mut progress: impl FnMut(u64) -> bool,
    ) -> Result<Loaded, NetlinkError> {
        let open = || -> Result<(Netlink, Netlink, u32), NetlinkError> {
            let mut netlink = Netlink::open()?;
            let link = netlink.link(TRANSIT_PORTS[1])?.index;
            Ok((netlink, Netlink::open()?, link))
        };
        let (for_v4, for_v6, link) = self.router().run(open)?;
        let (v4, v6) =
            prefixes.split_at(prefixes.partition_point(|(address, _)| address.is_ipv4()));
        let shared = Mutex::new(Progress { tried: 0, should_continue: true });
        let (v4, v6) = thread::scope(|scope| {
            let v4 = scope.spawn(|| load(for_v4, link, v4, &shared));
            let v6 = scope.spawn(|| load(for_v6, link, v6, &shared));
            while !(v4.is_finished() && v6.is_finished()) {
                let tried = lock(&shared).tried;
                if !progress(tried) {
                    lock(&shared).should_continue = false;
                }
            }
            (v4.join().expect("it returns errors"), v6.join().expect("it returns errors"))
        });
        let (v4, v6) = (v4?, v6?);
        Ok(Loaded { ipv4: v4.done, ipv6: v6.done, refused: v4.refused + v6.refused })
    }

    /// Counts and drops what arrives at the sink, until it is dropped.
    pub fn sink(&self) -> Result<LiveSink, LabError> {
        sink_at(self.topology.host("sink"), "eth0")
    }

    /// Sends small packets on a core, as many as it can, until the value is dropped.
    pub fn generate(&self, flows: &Flows, core: usize) -> Result<SmallPackets, LabError> {
        let to = self.topology.mac("router", "transit0")?;
        let from = (self.topology.host("source"), [SOURCE_V4, SOURCE_V6]);
        let generator = generate(from, to, flows, 1, core)?;
        Ok(SmallPackets { generator, _pauses: Pauses::start(core) })
    }
}

/// Counts and drops what arrives at an interface of a host, until the value is dropped.
pub fn sink_at(host: &Host, interface: &'static str) -> Result<LiveSink, LabError> {
    host.run(move || Ok(LiveSink::attach(&Interface::read(interface)?)?))
}

/// Sends small packets on a core, from the `eth0` of a host that has these addresses to a router's Ethernet address,
/// until the generator is dropped. Source `ports` take turns.
pub(crate) fn generate(
    (host, [v4, v6]): (&Host, [IpAddr; 2]),
    to: [u8; 6],
    flows: &Flows,
    ports: u16,
    core: usize,
) -> Result<LiveGenerator, LabError> {
    let Flows { first, destinations, .. } = flows.clone();
    host.run(move || {
        let interface = Interface::read("eth0")?;
        let source = if first.is_ipv4() { v4 } else { v6 };
        let frame = small_frame([to, interface.mac].map(Mac), source, first);
        let options = LiveOptions { frame, destinations, ports, per_second: 0, core: Some(core) };
        Ok(LiveGenerator::start(&interface, options)?)
    })
}

/// Small packets on their way.
pub struct SmallPackets {
    generator: LiveGenerator,
    _pauses: Pauses,
}

impl SmallPackets {
    /// Ends them; an error if they had ended before.
    pub fn stop(self) -> io::Result<()> {
        self.generator.stop().map(drop)
    }
}

/// A thread that wants the generator's core for a moment, a thousand times a second.
///
/// The kernel runs a generator inside an RCU read-side section, and leaves it only when another thread wants the core
/// (`bpf_test_timer_continue`, net/bpf/test_run.c). A program that is attached meanwhile waits for grace periods: they
/// must not depend on what else the machine does.
struct Pauses {
    /// Closed to end the thread.
    end: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Pauses {
    fn start(core: usize) -> Pauses {
        let (end, ended) = mpsc::channel();
        let thread = thread::spawn(move || {
            let _ = affinity::pin(core); // On another core it does no harm.
            while ended.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {}
        });
        Pauses { end: Some(end), thread: Some(thread) }
    }
}

impl Drop for Pauses {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // The thread only waits, and cannot panic.
        }
    }
}

/// How many routes the kernel has taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// IPv4 prefixes.
    pub ipv4: u64,
    /// IPv6 prefixes.
    pub ipv6: u64,
    /// Prefixes that the kernel refused.
    pub refused: u64,
}

/// What the threads that load routes share with the one that shows it.
struct Progress {
    tried: u64,
    should_continue: bool,
}

fn lock(progress: &Mutex<Progress>) -> std::sync::MutexGuard<'_, Progress> {
    progress.lock().expect("no thread panics with the lock")
}

fn load(
    mut netlink: Netlink,
    link: u32,
    prefixes: &[(IpAddr, u8)],
    progress: &Mutex<Progress>,
) -> Result<Changed, NetlinkError> {
    let mut all = Changed::default();
    for piece in prefixes.chunks(PIECE) {
        let routes = piece.iter().map(|(address, length)| {
            let gateway = if address.is_ipv4() { SINK_V4 } else { SINK_V6 };
            let hops = Hops::One(Some(Hop::via(link, gateway)));
            (Change::Add, Route::new(*address, *length, hops))
        });
        let changed = netlink.change_routes(routes)?;
        all.done += changed.done;
        all.refused += changed.refused;
        let mut progress = lock(progress);
        progress.tried += piece.len() as u64;
        if !progress.should_continue {
            break;
        }
    }
    Ok(all)
}

/// The prefixes of a table, IPv4 first. What a lab has itself is left out.
pub fn prefixes_of(table: &Prefixes) -> Vec<(IpAddr, u8)> {
    let v4 = table.ipv4.iter().map(|prefix| (IpAddr::V4(prefix.addr()), prefix.len()));
    let v6 = table.ipv6.iter().map(|prefix| (IpAddr::V6(prefix.addr()), prefix.len()));
    let is_ours = |address: &IpAddr| match address {
        IpAddr::V4(address) => address.is_private() || address.is_unspecified(),
        IpAddr::V6(address) => address.segments()[..2] == [0x2001, 0xdb8],
    };
    v4.chain(v6).filter(|(address, length)| !is_ours(address) && *length > 0).collect()
}

/// Where the small packets of one IP version go.
#[derive(Clone, Debug)]
pub struct Flows {
    /// `IPv4` or `IPv6`.
    pub name: &'static str,
    first: IpAddr,
    destinations: Destinations,
}

impl Flows {
    /// To 65,536 IPv4 addresses all over the address space, each packet's drawn anew.
    pub fn ipv4() -> Flows {
        let first = IpAddr::from([16, 0, 0, 1]);
        Flows { name: "IPv4", first, destinations: Destinations::Spread }
    }

    /// To 65,536 IPv4 addresses that are near each other, in one /16 that only the default route leads to.
    pub fn near() -> Flows {
        let first = IpAddr::from([10, 128, 0, 1]);
        Flows { name: "IPv4", first, destinations: Destinations::Near }
    }

    /// To one address.
    pub fn to(first: IpAddr) -> Flows {
        let name = if first.is_ipv4() { "IPv4" } else { "IPv6" };
        Flows { name, first, destinations: Destinations::InTurn(vec![first]) }
    }

    /// To these addresses of one IP version, each packet's drawn anew. Those of IPv6 end in the same 64 bits.
    ///
    /// # Panics
    ///
    /// Without an address.
    pub fn among(addresses: Vec<IpAddr>) -> Flows {
        let first = addresses[0];
        Flows { destinations: Destinations::Drawn(addresses), ..Flows::to(first) }
    }

    /// All destination addresses of packets.
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.destinations.addresses()
    }

    /// To 65,536 IPv6 addresses, each packet's drawn anew: nearly all of that space is empty, so they are in prefixes of
    /// this table.
    pub fn ipv6(prefixes: &[(IpAddr, u8)]) -> Flows {
        let networks: Vec<Ipv6Addr> = prefixes
            .iter()
            .filter_map(|(address, length)| match address {
                IpAddr::V6(address) if *length <= 64 => Some(*address),
                _ => None,
            })
            .collect();
        let address = |number: u32| match networks.len() {
            0 => IpAddr::V6(Ipv6Addr::from_bits(BEHIND_V6 | u128::from(number) << 64 | 1)),
            // Knuth's multiplier: numbers that are near each other go far apart.
            count => {
                let network = networks[number.wrapping_mul(2_654_435_761) as usize % count];
                IpAddr::V6(Ipv6Addr::from_bits(network.to_bits() | 1))
            }
        };
        let drawn: Vec<IpAddr> = (0..DESTINATIONS).map(address).collect();
        let first = drawn[0];
        Flows { name: "IPv6", first, destinations: Destinations::Drawn(drawn) }
    }
}

/// A frame of 64 bytes with UDP. Its source is of the destination's IP version.
fn small_frame(macs: [Mac; 2], source: IpAddr, destination: IpAddr) -> Vec<u8> {
    let mut frame = vec![0; 64];
    emit_udp(&mut frame, 64, macs, [source, destination]);
    frame
}

/// The router's interfaces for small packets: in by the first, out by the second.
pub const TRANSIT_PORTS: [&str; 2] = ["transit0", "transit1"];
/// The router's interfaces for client and server.
pub const HOST_PORTS: [&str; 2] = ["lan", "wan"];

const LINKS: &str = "
    host source
    host sink
    host client via 10.1.0.254 2001:db8:1::fe
    host server via 10.2.0.254 2001:db8:2::fe
    router router
    link source:eth0 10.3.0.1/24 2001:db8:3::1/64 -- router:transit0 10.3.0.254/24 2001:db8:3::fe/64
    link router:transit1 10.4.0.254/24 2001:db8:4::fe/64 -- sink:eth0 10.4.0.1/24 2001:db8:4::1/64
    link client:eth0 10.1.0.1/24 2001:db8:1::1/64 -- router:lan 10.1.0.254/24 2001:db8:1::fe/64
    link router:wan 10.2.0.254/24 2001:db8:2::fe/64 -- server:eth0 10.2.0.1/24 2001:db8:2::1/64
";
const SOURCE_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 3, 0, 1));
const SOURCE_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 3, 0, 0, 0, 0, 1));
const SINK_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 4, 0, 1));
const SINK_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 4, 0, 0, 0, 0, 1));
/// A network that only the default route leads to.
const BEHIND_V6: u128 = 0x2001_0db8_0128 << 80;
const DESTINATIONS: u32 = 1 << 16;
/// Routes between two looks at whether to continue.
const PIECE: usize = 4096;
const PAUSE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_flows_are_in_prefixes_of_the_table_or_behind_the_default_route() {
        let network: IpAddr = "2a00:1::".parse().expect("an address");
        let longer: IpAddr = "2a00:2::".parse().expect("an address");
        let drawn = |prefixes: &[(IpAddr, u8)]| match Flows::ipv6(prefixes).destinations {
            Destinations::Drawn(drawn) => drawn,
            other => panic!("{other:?}"),
        };
        let wanted: IpAddr = "2a00:1::1".parse().expect("an address");
        assert!(drawn(&[(network, 32), (longer, 65)]).iter().all(|address| *address == wanted));
        let behind = drawn(&[]);
        assert_eq!(behind[3], "2001:db8:128:3::1".parse::<IpAddr>().expect("an address"));
        assert_eq!(behind.len(), 65_536);
    }

    #[test]
    fn what_a_lab_has_itself_is_no_prefix_of_the_internet() {
        let table = Prefixes {
            ipv4: ["10.0.0.0/8", "0.0.0.0/0", "8.8.8.0/24"]
                .map(|text| text.parse().expect("a prefix"))
                .into(),
            ipv6: ["2001:db8::/32", "2a00::/12"].map(|text| text.parse().expect("a prefix")).into(),
        };
        let kept: Vec<String> = prefixes_of(&table)
            .iter()
            .map(|(address, length)| format!("{address}/{length}"))
            .collect();
        assert_eq!(kept, ["8.8.8.0/24", "2a00::/12"]);
    }

    #[test]
    fn a_small_frame_has_64_bytes_of_either_version() {
        let macs = [Mac([1; 6]), Mac([2; 6])];
        for (source, to, kind) in
            [(SOURCE_V4, IpAddr::from([16, 0, 0, 1]), 0x0800_u16), (SOURCE_V6, SINK_V6, 0x86dd)]
        {
            let frame = small_frame(macs, source, to);
            assert_eq!((frame.len(), &frame[12..14]), (64, &kind.to_be_bytes()[..]));
        }
    }
}
