//! A lab: a router of either kind, and the stations at its two links.

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use manylane_api::AddressStatus;
use manylane_io::netlink::{LinkEnd, Netlink, NetlinkError, Route, RouteKind};
use manylane_io::poll::poll;
use manylane_io::station::Station;
use manylane_io::sysctl;
use manylane_lab::Host;
use manylane_lab::scenario::{assert_balanced, skip};
use manylane_net::neighbour::OwnTiming;
use manylane_router::config::{Config, Environment};
use manylane_router::control::Daemon;

use super::generate::Shot;
use super::link::{self, Question};
use super::plan::{ROUTES, Side, To, host};
use super::{ipv4, ipv6};

/// What left the router because of one packet, by link, in order.
pub type Outputs = [Vec<Vec<u8>>; 4];

/// A router with a station at each link.
pub struct Twin {
    /// The router's links: to the kernel all, to manylane those that are in no other.
    links: &'static [Side],
    stations: Vec<Station>,
    daemon: Option<Daemon>,
    router: Host,
    _ends: Vec<Host>,
    /// The number of the next mark.
    mark: u32,
    buffer: Vec<u8>,
}

impl Twin {
    /// A lab whose router is the kernel, or a line that says why not.
    pub fn kernel() -> Option<Twin> {
        let twin = Twin::lab(KERNEL_ROUTER, &Side::ALL)?;
        twin.router.run(be_the_router).unwrap_or_else(|error| panic!("{error}"));
        // Nor does it wait with advertisements for anycast addresses (RFC 4861 §7.2.7).
        let hurry =
            |side: &Side| sysctl::set(&format!("net/ipv6/neigh/{}/proxy_delay", side.name()), "0");
        let hurried = twin.router.run(move || Side::ALL.iter().try_for_each(hurry));
        hurried.unwrap_or_else(|error| panic!("{error}"));
        Some(twin)
    }

    /// Has a kernel's router send redirects of IPv4, too; those of IPv6 it sends anyway.
    pub fn send_redirects(&self) {
        let asked = self.router.run(|| sysctl::set("net/ipv4/conf/all/send_redirects", "1"));
        asked.unwrap_or_else(|error| panic!("{error}"));
    }

    /// A lab whose router is manylane, with these settings of its ports, or a line that says why
    /// not.
    pub fn manylane(port: &'static str, redirects: bool) -> Option<Twin> {
        let mut twin = Twin::lab(SILENT, &[Side::Lan, Side::Wan])?;
        let start = move || {
            let text = configuration(port, redirects);
            let config = Config::parse(&text, "twin.toml", &Environment::of_this_thread());
            Daemon::start(config.unwrap_or_else(|error| panic!("{error}\n{text}")))
        };
        match twin.router.run(start) {
            Ok(daemon) => twin.daemon = Some(daemon),
            Err(error) if error.is_unavailable() => {
                skip(error);
                return None;
            }
            Err(error) => panic!("{error}"),
        }
        twin.hear_announcements();
        Some(twin)
    }

    /// Waits until manylane has told its links of all its addresses: later it says nothing unasked.
    fn hear_announcements(&mut self) {
        let ours = self.daemon.as_ref().expect("it runs").source().addresses();
        let each = |own: &AddressStatus| {
            OwnTiming::of(own.address.parse().expect("an address")).announcements
        };
        let mut left: u32 = ours.iter().map(|own| u32::from(each(own))).sum();
        let end = Instant::now() + PATIENCE;
        while left > 0 {
            match self.waiting() {
                Some(_) => left -= 1,
                None => self.wait(end),
            }
        }
    }

    fn lab(
        settings: &'static [(&'static str, &'static str)],
        links: &'static [Side],
    ) -> Option<Twin> {
        let start = |name: &str, settings: &'static [(&str, &str)]| match Host::start(name) {
            Ok(host) => {
                let set = move || settings.iter().try_for_each(|(name, to)| sysctl::set(name, to));
                host.run(set).unwrap_or_else(|error| panic!("{error}"));
                Some(host)
            }
            Err(error) => {
                skip(error);
                None
            }
        };
        let router = start("router", settings)?;
        let ends = links.iter().map(|side| start(side.name(), SILENT));
        let ends: Vec<Host> = ends.collect::<Option<_>>()?;
        let both = links.iter().zip(&ends);
        let stations = both.map(|(&side, end)| connect(&router, end, side)).collect();
        let buffer = vec![0; 4096];
        Some(Twin { links, stations, daemon: None, router, _ends: ends, mark: 0, buffer })
    }

    /// Makes the router know its neighbours: a packet to each, which waits until it is there.
    pub fn meet_neighbours(&mut self) {
        for side in Side::ALL {
            for (address, _) in side.neighbours() {
                let from = side.other();
                let frame = match address {
                    IpAddr::V4(to) => ipv4::mark(from, to, self.mark),
                    IpAddr::V6(to) if !to.is_unicast_link_local() => {
                        ipv6::mark(from, to, self.mark)
                    }
                    IpAddr::V6(_) => continue,
                };
                self.send(from, &frame);
                let end = Instant::now() + PATIENCE;
                while !matches!(self.next(end), Received::Mark(at, number)
                    if (at, number) == (side, self.mark))
                {}
                self.mark += 1;
            }
        }
    }

    /// Sends packets from one side, and returns what left the router because of each.
    pub fn exchange(&mut self, side: Side, shots: &[Shot]) -> Vec<Outputs> {
        let first = self.mark;
        for shot in shots {
            self.send(side, &link::tagged(&shot.frame, shot.tags));
            for to in Side::ALL {
                self.send(side, &ipv4::mark(side, to.host_v4(2), self.mark));
            }
            self.mark += 1;
        }
        let mut outputs = vec![Outputs::default(); shots.len()];
        let mut passed = [0; 4];
        let end = Instant::now() + PATIENCE;
        while passed != [shots.len(); 4] {
            match self.next(end) {
                Received::Mark(side, number) => {
                    let passed = &mut passed[side as usize];
                    assert_eq!(number, first + *passed as u32, "marks keep their order");
                    *passed += 1;
                }
                Received::Announcement => {} // The router defends an address that a packet laid claim to.
                Received::Frame(side, frame) => {
                    // Behind the last mark nothing is left that we have caused.
                    let cause = passed[side as usize].min(shots.len() - 1);
                    outputs[cause][side as usize].push(frame);
                }
            }
        }
        outputs
    }

    /// Ends the router. Of manylane, every packet and every frame is accounted for.
    pub fn finish(mut self) {
        if let Some(daemon) = self.daemon.take() {
            assert_balanced(&self.router.run(move || daemon.stop()));
        }
    }

    /// Sends a frame by a link, which may be in another.
    fn send(&self, side: Side, frame: &[u8]) {
        let sent = if self.links.contains(&side) {
            self.stations[side as usize].send(frame)
        } else {
            let mut tags = side.tags().to_vec();
            // Priority and drop eligibility, which no router looks at.
            tags[2] |= (frame.len() as u8) << 4;
            self.stations[side.port() as usize].send(&link::tagged(frame, &tags))
        };
        sent.unwrap_or_else(|error| panic!("{} bytes to {side:?}: {error}", frame.len()));
    }

    /// The link of a frame that was received at the end of one, and the frame without its tags.
    fn sort(&self, port: Side, frame: &[u8]) -> (Side, Vec<u8>) {
        let hidden = Side::ALL.into_iter().filter(|side| !self.links.contains(side));
        let mut inside = hidden.filter(|side| side.port() == port);
        match inside.find(|side| frame[12..].starts_with(side.tags())) {
            Some(side) => (side, [&frame[..12], &frame[12 + side.tags().len()..]].concat()),
            None => (port, frame.to_vec()),
        }
    }

    /// The next frame that the router sends because of another.
    fn next(&mut self, end: Instant) -> Received {
        loop {
            match self.waiting() {
                Some(received) => return received,
                None => self.wait(end),
            }
        }
    }

    /// The next frame that has come from the router, of its own questions none: those are answered here.
    fn waiting(&mut self) -> Option<Received> {
        for at in 0..self.stations.len() {
            while let Some((side, frame)) = self.receive(at) {
                if let Some(number) = mark_in(&frame) {
                    return Some(Received::Mark(side, number));
                }
                match link::question(side, &frame) {
                    Some(Question::Neighbour(answer)) => self.send(side, &answer),
                    Some(Question::Announcement) => return Some(Received::Announcement),
                    Some(Question::Other) => {}
                    None => return Some(Received::Frame(side, frame)),
                }
            }
        }
        None
    }

    fn receive(&mut self, at: usize) -> Option<(Side, Vec<u8>)> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let received = self.stations[at].receive(&mut buffer).expect("the link is up");
        let sorted = received.map(|frame| self.sort(self.links[at], frame));
        self.buffer = buffer;
        sorted
    }

    fn wait(&self, end: Instant) {
        let stations: Vec<_> = self.stations.iter().map(|station| station.as_fd()).collect();
        let left = end.saturating_duration_since(Instant::now());
        let ready = poll(&stations, Some(left)).expect("as many descriptors");
        assert!(ready.any(), "nothing came before mark {}", self.mark);
    }
}

enum Received {
    Mark(Side, u32),
    Frame(Side, Vec<u8>),
    /// An ARP announcement; those of IPv6 are frames like the answers.
    Announcement,
}

/// A bound for what never lasts so long: a packet through a router on this machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// The number in a mark.
fn mark_in(frame: &[u8]) -> Option<u32> {
    let number = frame.strip_suffix(MARK)?.last_chunk()?;
    Some(u32::from_be_bytes(*number))
}

/// What a mark ends with.
pub const MARK: &[u8] = b"a mark between packets";

/// Makes the link and puts a station at its end.
fn connect(router: &Host, end: &Host, side: Side) -> Station {
    let namespace =
        end.namespace().as_fd().try_clone_to_owned().expect("descriptors are to be had");
    let made = router.run(move || {
        let mut netlink = Netlink::open()?;
        let mtu = Some(side.mtu() as u32);
        let near = LinkEnd { mtu, ..LinkEnd::new(side.name()).mac(side.router_mac()) };
        let far = LinkEnd { mtu, ..LinkEnd::new("eth0") };
        netlink.create_veth(&near, &far, Some(namespace.as_fd()))?;
        netlink.set_up("lo")?;
        netlink.set_up(side.name())
    });
    made.unwrap_or_else(|error: NetlinkError| panic!("{error}"));
    let opened = end.run(|| {
        Netlink::open()?.set_up("eth0")?;
        Station::open("eth0")
    });
    opened.unwrap_or_else(|error| panic!("{error}"))
}

/// Gives the kernel of the calling thread's namespace the addresses, routes and neighbours of the plan.
fn be_the_router() -> Result<(), NetlinkError> {
    let mut netlink = Netlink::open()?;
    for side in Side::ALL {
        netlink.add_address(side.name(), side.router_v4().into(), 24)?;
        netlink.add_address(side.name(), side.router_v6().into(), 64)?;
        for (address, mac) in side.neighbours() {
            netlink.add_neighbour(side.name(), address, mac)?;
        }
    }
    for &(prefix, len, to) in ROUTES {
        let prefix: IpAddr = prefix.parse().expect("the plan is right");
        let route = match to {
            To::Host(side, number) => Route::via(prefix, len, host(side, number, prefix)),
            To::Nowhere(kind) => Route::nowhere(prefix, len, kind),
        };
        netlink.add_route(&route)?;
    }
    Ok(())
}

/// The router's addresses on a link, as the configuration says it.
fn addresses(side: Side) -> String {
    format!("addresses = [\"{}/24\", \"{}/64\"]\n", side.router_v4(), side.router_v6())
}

/// manylane's configuration after the same plan.
fn configuration(port: &str, redirects: bool) -> String {
    let mut text = format!(
        "[workers]\ncount = 1\n\n[icmp]\nerrors_per_second = 1000000\nerrors_burst = 10000\n\
         redirects = {redirects}\n\n[neighbour]\nduplicate_detection = \"off\"\n",
    );
    let vlans =
        [(Side::Office, "id = 100"), (Side::Customer, "id = 200\ntag = \"802.1ad\"\ninner = 7")];
    for side in [Side::Lan, Side::Wan] {
        let name = side.name();
        text += &format!("\n[[port]]\nname = \"{name}\"\ninterface = \"{name}\"\n{port}\n");
        text += &addresses(side);
        let inside = vlans.into_iter().filter(|(vlan, _)| vlan.port() == side);
        for (vlan, tags) in inside {
            let mtu = vlan.mtu();
            text += &format!("\n[[port.vlan]]\n{tags}\nmtu = {mtu}\n{}", addresses(vlan));
        }
    }
    for &(prefix, len, to) in ROUTES {
        let like: IpAddr = prefix.parse().expect("the plan is right");
        let to = match to {
            To::Host(side, number) => format!("via = \"{}\"", host(side, number, like)),
            To::Nowhere(RouteKind::Blackhole) => "type = \"blackhole\"".into(),
            To::Nowhere(RouteKind::Unreachable) => "type = \"unreachable\"".into(),
            To::Nowhere(RouteKind::Prohibit) => "type = \"prohibit\"".into(),
            To::Nowhere(RouteKind::Unicast) => unreachable!("that leads somewhere"),
        };
        text += &format!("\n[[route]]\nprefix = \"{prefix}/{len}\"\n{to}\n");
    }
    text
}

/// All that is set here is what manylane's configuration sets (no redirects, no limit on errors), what
/// only hosts do (duplicate address detection), and what differs between distributions.
const KERNEL_ROUTER: &[(&str, &str)] = &[
    ("net/ipv4/ip_forward", "1"),
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
    ("net/ipv4/conf/all/send_redirects", "0"),
    ("net/ipv4/conf/default/send_redirects", "0"),
    ("net/ipv4/conf/all/accept_redirects", "0"),
    ("net/ipv4/conf/default/accept_redirects", "0"),
    ("net/ipv4/conf/all/accept_source_route", "0"),
    ("net/ipv4/conf/default/accept_source_route", "0"),
    ("net/ipv4/icmp_ratelimit", "0"),
    ("net/ipv4/icmp_ratemask", "0"),
    ("net/ipv6/icmp/ratelimit", "0"),
    // The limit on all errors together is for the types in the mask; this one is of no type.
    ("net/ipv6/icmp/ratemask", "255"),
    ("net/ipv6/auto_flowlabels", "0"),
    // The kernel reports a fragment whose packet stays incomplete after this number of seconds: not in this run.
    ("net/ipv4/ipfrag_time", "86400"),
    ("net/ipv6/ip6frag_time", "86400"),
    ("net/ipv6/conf/all/forwarding", "1"),
    ("net/ipv6/conf/default/forwarding", "1"),
    ("net/ipv6/conf/all/accept_dad", "0"),
    ("net/ipv6/conf/default/accept_dad", "0"),
];

/// A kernel that neither forwards nor answers nor speaks.
const SILENT: &[(&str, &str)] = &[
    ("net/ipv6/conf/all/disable_ipv6", "1"),
    ("net/ipv6/conf/default/disable_ipv6", "1"),
    ("net/ipv6/conf/all/forwarding", "0"),
    // A namespace takes IPv4's settings from the first one, where they may be anything.
    ("net/ipv4/ip_forward", "0"),
];
