//! [`Topology`]: any number of hosts and routers, and the links between them, from a few lines of text.
//!
//! ```text
//! host client via 10.1.0.254 2001:db8:1::fe
//! router r1
//! link client:eth0 10.1.0.1/24 2001:db8:1::1/64 -- r1:lan 10.1.0.254/24 2001:db8:1::fe/64
//! ```
//!
//! | Line                                     | Makes                                                             |
//! |------------------------------------------|-------------------------------------------------------------------|
//! | `host NAME [via GATEWAY...]`             | a host with default routes by these gateways                      |
//! | `router NAME`                            | a host whose kernel forwards, both versions                       |
//! | `link A:IF [ADDRESS/LEN...] -- B:IF ...` | a veth pair from one to the other, up, with addresses             |
//! | `link A:IF queues N ... -- B:IF ...`     | such a pair, with N queues each way at that end                   |
//! | `# ...`, and lines with nothing          | nothing                                                           |
//!
//! Everything else is said in the operator's own words, by [`Topology::tool`].

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;

use manylane_io::namespace::Host;
use manylane_io::netlink::{LinkEnd, Netlink, NetlinkError, Route};
use manylane_io::sysctl::{self, SysctlError};

use crate::network::{END_HOST, LabError, ROUTER, set};
use crate::tools::{ToolError, tool, until};

/// Hosts and routers by their names; the links are theirs. A test that fails prints what their kernels have counted.
pub struct Topology {
    hosts: BTreeMap<String, Host>,
}

impl Drop for Topology {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for (name, host) in &self.hosts {
            for line in COUNTERS {
                let said = tool(host, line).unwrap_or_else(|error| error.to_string());
                eprintln!("{name}: {line}\n{said}");
            }
        }
        for path in CACHES {
            eprintln!(
                "{path}\n{}",
                fs::read_to_string(path).unwrap_or_else(|error| error.to_string())
            );
        }
    }
}

/// What tells where a host's kernel has dropped packets.
const COUNTERS: [&str; 3] =
    ["nstat --ignore --noupdate", "ip -s -s link", "cat /proc/net/stat/nf_conntrack"];
/// The caches of neighbours, which all hosts share: they may be full, or collect garbage.
const CACHES: [&str; 2] = ["/proc/net/stat/arp_cache", "/proc/net/stat/ndisc_cache"];

impl Topology {
    /// Makes what the text says. When this returns, all links are up and all addresses usable.
    pub fn make(text: &str) -> Result<Topology, LabError> {
        let plan = Plan::parse(text)?;
        let mut topology = Topology { hosts: BTreeMap::new() };
        for station in &plan.stations {
            let host = Host::start(&station.name)?;
            set(&host, if station.is_router { ROUTER } else { END_HOST })?;
            host.run(|| Netlink::open()?.set_up("lo"))?;
            topology.hosts.insert(station.name.clone(), host);
        }
        topology.make_links(&plan.links)?;
        for station in &plan.stations {
            let gateways = station.gateways.clone();
            topology.host(&station.name).run(move || add_default_routes(&gateways))?;
        }
        Ok(topology)
    }

    /// Makes one more link between hosts that are there, by the end of such a line: `A:IF ... -- B:IF ...`.
    pub fn connect(&self, ends: &str) -> Result<(), LabError> {
        let is_router = false;
        let known = |name: &String| Station { name: name.clone(), is_router, gateways: Vec::new() };
        let stations = self.hosts.keys().map(known).collect();
        let mut plan = Plan { stations, links: Vec::new() };
        plan.line(&format!("link {ends}")).map_err(|why| LabError::Text { line: 1, why })?;
        self.make_links(&plan.links)
    }

    /// A host by its name.
    ///
    /// # Panics
    ///
    /// If the topology has no such host.
    pub fn host(&self, name: &str) -> &Host {
        self.hosts.get(name).unwrap_or_else(|| panic!("no host `{name}` in this topology"))
    }

    /// Runs a line in the namespace of a host ([`tool`]). An IPv6 address that the line adds can be used afterwards.
    pub fn try_tool(&self, host: &str, line: &str) -> Result<String, ToolError> {
        let host = self.host(host);
        let output = tool(host, line)?;
        if let Some(address) = added(line) {
            await_address(host, address);
        }
        Ok(output)
    }

    /// The same where it has to succeed.
    ///
    /// # Panics
    ///
    /// When it does not, with what the program said.
    pub fn tool(&self, host: &str, line: &str) -> String {
        self.try_tool(host, line).unwrap_or_else(|error| panic!("on {host}: {error}"))
    }

    /// Changes a setting of a host's kernel, named as under `/proc/sys`.
    ///
    /// # Panics
    ///
    /// When the kernel has none of that name, or refuses.
    pub fn set(&self, host: &str, name: &str, value: &str) {
        let (name, value) = (name.to_owned(), value.to_owned());
        let set = self.host(host).run(move || sysctl::set(&name, &value));
        set.unwrap_or_else(|error| panic!("on {host}: {error}"));
    }

    /// The Ethernet address of a host's interface.
    pub fn mac(&self, host: &str, interface: &str) -> Result<[u8; 6], LabError> {
        let interface = interface.to_owned();
        Ok(self.host(host).run(move || Netlink::open()?.link(&interface))?.mac)
    }

    fn make_links(&self, links: &[[End; 2]]) -> Result<(), LabError> {
        links.iter().try_for_each(|link| self.make_link(link))?;
        links.iter().flatten().for_each(|end| self.await_addresses(end));
        Ok(())
    }

    fn make_link(&self, [one, other]: &[End; 2]) -> Result<(), LabError> {
        let far = self.host(&other.host).namespace().as_fd().try_clone_to_owned();
        let far = far.map_err(|source| SysctlError { name: "fs/file-max".into(), source })?;
        let [near, away] = [one, other].map(|end| LinkEnd::new(&end.interface).queues(end.queues));
        let create = move || Netlink::open()?.create_veth(&near, &away, Some(far.as_fd()));
        self.host(&one.host).run(create)?;
        for end in [one, other] {
            let its = end.clone();
            self.host(&end.host).run(move || bring_up(&its))?;
        }
        Ok(())
    }

    /// An address can be used when its local route is there and duplicate detection is over; a link, when its
    /// queue is there: until then it drops what is sent, and says nothing.
    fn await_addresses(&self, end: &End) {
        let (host, interface) = (self.host(&end.host), &end.interface);
        until(&format!("{interface} of {} is up", end.host), || {
            let name = interface.clone();
            let link = host.run(move || Netlink::open()?.link(&name));
            match link.map_err(|error| error.to_string())? {
                link if link.is_running => Ok(()),
                link => Err(format!("{link:?}")),
            }
        });
        until(&format!("the addresses of {} can be used", end.host), || {
            let of_links = read(host, "/proc/thread-self/net/if_inet6");
            let routes = read(host, "/proc/thread-self/net/ipv6_route");
            let addresses = end.addresses.iter().filter_map(|(address, _)| match address {
                IpAddr::V6(address) => Some(*address),
                IpAddr::V4(_) => None, // Usable with the answer to the request that set it.
            });
            let usable = is_usable(&of_links, &routes, addresses, &end.interface);
            if usable { Ok(()) } else { Err(of_links) }
        });
    }
}

/// The IPv6 address that a line of ip(8) adds.
fn added(line: &str) -> Option<Ipv6Addr> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let adds = |words: &[&str]| matches!(words, ["addr" | "address", "add" | "replace", ..]);
    let at = words.windows(2).position(adds)?;
    words.get(at + 2)?.split('/').next()?.parse().ok()
}

/// The kernel answers ip(8) before it has settled an address, also one without duplicate address detection: a worker of
/// its own does that, on a busy machine much later. A socket cannot be bound to the address before (EADDRNOTAVAIL).
fn await_address(host: &Host, address: Ipv6Addr) {
    until(&format!("{address} can be used"), || {
        let of_links = read(host, "/proc/thread-self/net/if_inet6");
        let routes = read(host, "/proc/thread-self/net/ipv6_route");
        let wanted = format!("{:032x}", u128::from(address));
        let is_usable = settled(&of_links, &routes).any(|line| line[0] == wanted);
        if is_usable { Ok(()) } else { Err(of_links.clone()) }
    });
}

fn bring_up(end: &End) -> Result<(), NetlinkError> {
    let mut netlink = Netlink::open()?;
    for (address, length) in &end.addresses {
        netlink.add_address(&end.interface, *address, *length)?;
    }
    netlink.set_up(&end.interface)
}

fn add_default_routes(gateways: &[IpAddr]) -> Result<(), NetlinkError> {
    let mut netlink = Netlink::open()?;
    gateways.iter().try_for_each(|gateway| {
        let any = match gateway {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        netlink.add_route(&Route::via(any, 0, *gateway))
    })
}

/// A file of the host's `/proc`; empty where it cannot be read.
fn read(host: &Host, path: &'static str) -> String {
    host.run(move || std::fs::read_to_string(path).unwrap_or_default())
}

/// Whether all IPv6 addresses of a link, and its own link-local one, are done with duplicate address detection, and
/// have their local route. The files are proc_pid_net(5)'s `if_inet6` and `ipv6_route`.
fn is_usable(
    of_links: &str,
    routes: &str,
    mut addresses: impl Iterator<Item = Ipv6Addr>,
    interface: &str,
) -> bool {
    let ours = settled(of_links, routes).filter(|line| line[5] == interface);
    let usable: Vec<&str> = ours.map(|line| line[0]).collect();
    usable.iter().any(|address| address.starts_with("fe80"))
        && addresses.all(|address| usable.contains(&&*format!("{:032x}", u128::from(address))))
}

/// The lines of addresses that are not tentative and have their local route: address, index, prefix length, scope,
/// flags, name.
fn settled<'t>(of_links: &'t str, routes: &'t str) -> impl Iterator<Item = [&'t str; 6]> {
    let lines = of_links.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let line = [(); 6].map(|()| words.next().unwrap_or_default());
        (!line[5].is_empty()).then_some(line)
    });
    lines.filter(|line| {
        u32::from_str_radix(line[4], 16).is_ok_and(|flags| flags & IFA_F_TENTATIVE == 0)
            && routes.lines().any(|route| route.starts_with(&format!("{} 80 ", line[0])))
    })
}

/// linux/if_addr.h.
const IFA_F_TENTATIVE: u32 = 0x40;

/// What the text says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    stations: Vec<Station>,
    links: Vec<[End; 2]>,
}

#[derive(Debug, PartialEq, Eq)]
struct Station {
    name: String,
    is_router: bool,
    gateways: Vec<IpAddr>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct End {
    host: String,
    interface: String,
    queues: u32,
    addresses: Vec<(IpAddr, u8)>,
}

impl Plan {
    fn parse(text: &str) -> Result<Plan, LabError> {
        let mut plan = Plan::default();
        for (number, line) in (1..).zip(text.lines()) {
            plan.line(line).map_err(|why| LabError::Text { line: number, why })?;
        }
        Ok(plan)
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [] => {}
            [comment, ..] if comment.starts_with('#') => {}
            ["router", name] => self.station(name, true, &[])?,
            ["host", name] => self.station(name, false, &[])?,
            ["host", name, "via", ref gateways @ ..] => self.station(name, false, gateways)?,
            ["link", ref ends @ ..] => {
                let middle = ends.iter().position(|word| *word == "--");
                let (one, other) = ends.split_at(middle.ok_or("a link has two ends: `--`")?);
                self.links.push([self.end(one)?, self.end(&other[1..])?]);
            }
            _ => return Err("begins with `host NAME`, `router NAME` or `link A:IF`".into()),
        }
        Ok(())
    }

    fn station(&mut self, name: &str, is_router: bool, gateways: &[&str]) -> Result<(), String> {
        if self.stations.iter().any(|station| station.name == name) {
            return Err(format!("`{name}` is there already"));
        }
        let gateways = gateways.iter().map(|word| address(word)).collect::<Result<_, _>>()?;
        self.stations.push(Station { name: name.into(), is_router, gateways });
        Ok(())
    }

    fn end(&self, words: &[&str]) -> Result<End, String> {
        let (name, said) = words.split_first().ok_or("an end is HOST:INTERFACE")?;
        let (queues, addresses) = match said {
            ["queues", count, rest @ ..] => {
                (count.parse().map_err(|_| format!("`{count}` is no number of queues"))?, rest)
            }
            rest => (1, rest),
        };
        let (host, interface) = name.split_once(':').ok_or("an end is HOST:INTERFACE")?;
        if !self.stations.iter().any(|station| station.name == host) {
            return Err(format!("`{host}` is not defined above"));
        }
        let addresses = addresses
            .iter()
            .map(|word| {
                let (addr, length) =
                    word.split_once('/').ok_or(format!("`{word}` is not ADDRESS/LEN"))?;
                let length = length.parse().map_err(|_| format!("`{word}` is not ADDRESS/LEN"))?;
                Ok((address(addr)?, length))
            })
            .collect::<Result<_, String>>()?;
        Ok(End { host: host.into(), interface: interface.into(), queues, addresses })
    }
}

fn address(word: &str) -> Result<IpAddr, String> {
    word.parse().map_err(|_| format!("`{word}` is not an address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_says_who_is_there_and_what_connects_them() {
        let text = "
            # two in a row
            host client via 10.1.0.254 2001:db8:1::fe
            router r1
            link client:eth0 10.1.0.1/24 -- r1:lan queues 2 10.1.0.254/24 2001:db8:1::fe/64
        ";
        let plan = Plan::parse(text).expect("it is as the table above has it");
        assert_eq!(plan.stations.len(), 2);
        assert!(plan.stations[1].is_router);
        assert_eq!(plan.stations[0].gateways.len(), 2);
        let [one, other] = &plan.links[0];
        assert_eq!((&*one.host, &*one.interface, one.addresses.len()), ("client", "eth0", 1));
        assert_eq!((&*other.host, &*other.interface, other.addresses.len()), ("r1", "lan", 2));
        assert_eq!((one.queues, other.queues), (1, 2));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, line, why) in [
            ("router a\nrouter a", 2, "`a` is there already"),
            ("host a via x", 1, "`x` is not an address"),
            ("router a\nlink a:x -- b:y", 2, "`b` is not defined above"),
            ("router a\nlink a:x", 2, "a link has two ends"),
            ("router a\nlink a:x 10.0.0.1 -- a:y", 2, "`10.0.0.1` is not ADDRESS/LEN"),
            (
                "router a\nlink a:x queues 10.0.0.1/8 -- a:y",
                2,
                "`10.0.0.1/8` is no number of queues",
            ),
            ("switch a", 1, "begins with"),
        ] {
            let said = Plan::parse(text).expect_err(text).to_string();
            assert!(said.starts_with(&format!("line {line}: ")) && said.contains(why), "{said}");
        }
    }

    #[test]
    fn a_line_that_adds_an_ipv6_address_is_known() {
        let address: Ipv6Addr = "2001:db8::1".parse().expect("an address");
        for (line, expected) in [
            ("ip addr add 2001:db8::1/128 dev lo", Some(address)),
            ("ip -6 address replace 2001:db8::1/64 dev wan nodad", Some(address)),
            ("ip addr add 10.0.0.1/8 dev lo", None),
            ("ip addr del 2001:db8::1/128 dev lo", None),
            ("ip -6 rule add from 2001:db8::1 table 7", None),
        ] {
            assert_eq!(added(line), expected, "{line}");
        }
    }

    #[test]
    fn an_address_is_usable_when_it_is_settled_and_has_its_route() {
        let links = |flags| {
            format!(
                "fe800000000000000000000000000001 02 40 20 80     eth0\n\
                 20010db8000100000000000000000001 02 40 00 {flags}     eth0\n"
            )
        };
        let routes =
            "fe800000000000000000000000000001 80 0 x\n20010db8000100000000000000000001 80 0 x\n";
        let address = || std::iter::once("2001:db8:1::1".parse().expect("it is one"));
        assert!(is_usable(&links("80"), routes, address(), "eth0"));
        assert!(!is_usable(&links("c0"), routes, address(), "eth0"), "tentative");
        assert!(!is_usable(&links("80"), &routes[..36], address(), "eth0"), "no route");
        assert!(!is_usable(&links("80"), routes, address(), "eth1"), "another link");
    }
}
