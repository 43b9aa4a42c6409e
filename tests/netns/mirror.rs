//! The mirror beside the kernel itself: ip(8) does anything in any order; the kernel refuses some changes, and makes
//! many of them in silence; the model, which hears of them by events alone, is what a dump says, and an address
//! leads where the kernel's own lookup leads. With rules, too: there a packet is decided about as the program
//! would. Needs root.

mod commands;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use manylane_io::namespace::Host;
use manylane_io::netlink::Netlink;
use manylane_io::netlink::kernel::{Family, Group, Watch};
use manylane_io::poll::poll;
use manylane_io::sysctl;
use manylane_lab::scenario::skip;
use manylane_mirror::{Dump, Limits, Mirror, Port};
use manylane_net::fib::Limits as TableLimits;
use manylane_net::nexthop::NextHop;
use manylane_net::transit::layout::flags;
use manylane_net::transit::{Arrival, Memory, PortRecord, Sizes, TransitMut, Verdict};
use manylane_net::wire::ethernet::{self, Mac, ether_type};
use manylane_net::wire::{ipv4, ipv6, protocol};
use manylane_sync::rcu::Domain;
use serde_json::Value;

use commands::{Random, command, make_wires, rule, run, try_ip};

/// How much happens; `MANYLANE_MIRROR_STEPS` says otherwise, `MANYLANE_MIRROR_SEED` which.
const STEPS: u64 = 300;

#[test]
fn whatever_ip_does_the_mirror_is_what_the_kernel_is() {
    follow(command);
}

#[test]
fn whatever_rules_there_are_a_packet_goes_as_by_the_kernel() {
    follow(|random| match random.below(3) {
        0 => rule(random),
        _ => command(random),
    });
}

/// Does what is said, and compares.
fn follow(command: fn(&mut Random) -> String) {
    let host = match Host::start("mirror") {
        Ok(host) => host,
        Err(error) => return skip(error),
    };
    let number = |name: &str, otherwise: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
    };
    let (steps, seed) = (number("MANYLANE_MIRROR_STEPS", STEPS), number("MANYLANE_MIRROR_SEED", 1));
    host.run(move || {
        let mut bed = Bed::new();
        let mut random = Random(seed);
        for step in 0..steps {
            let command = command(&mut random);
            bed.done.push(format!("{step}: {command}"));
            run(&command);
            if random.below(3) > 0 {
                bed.compare();
                bed.ask(&mut random);
            }
        }
        bed.compare();
        assert_eq!(bed.resyncs, 0);
    });
}

/// A router with three wires, which have both ends at it, and a fourth, the ingress of packets.
struct Bed {
    watch: Watch,
    netlink: Netlink,
    mirror: Mirror,
    /// The domain of the tables' readers, with one reader during a query.
    domain: Domain,
    now: u64,
    done: Vec<String>,
    resyncs: usize,
}

impl Bed {
    fn new() -> Bed {
        for (name, value) in [
            ("net/ipv6/conf/default/accept_dad", "0"),
            ("net/ipv6/conf/default/addr_gen_mode", "1"),
            ("net/ipv6/conf/all/forwarding", "1"),
            ("net/ipv4/conf/all/forwarding", "1"),
            ("net/ipv4/conf/all/rp_filter", "0"),
            ("net/ipv4/conf/default/rp_filter", "0"),
        ] {
            sysctl::set(name, value).expect("root may");
        }
        run("link set lo up");
        make_wires();
        run("link add in0 type veth peer name in1");
        run("addr add 198.18.0.1/24 dev in0");
        run("addr add fd18::1/64 dev in0 nodad");
        run("link set in1 up");
        run("link set in0 up");
        let watch = Watch::open(&Group::ALL, 16 << 20).expect("root may listen");
        let memory = Memory::zeroed(&Sizes::for_routes(1000, 1000));
        let domain = Domain::new(1);
        let tables = TransitMut::new(memory, domain.clone(), &TableLimits::default());
        let mut bed = Bed {
            watch,
            netlink: Netlink::open().expect("netlink is always there"),
            mirror: Mirror::new(tables, Limits::default()),
            domain,
            now: 0,
            done: Vec::new(),
            resyncs: 0,
        };
        let dump = bed.dump();
        bed.mirror.load(dump);
        bed
    }

    fn dump(&mut self) -> Dump {
        self.netlink.wait_for_link_changes().expect("the kernel is there");
        dump(&mut self.netlink)
    }

    /// Reads all events that the kernel has sent, and writes them.
    fn follow(&mut self) {
        loop {
            let mirror = &mut self.mirror;
            let read = self.watch.read(&mut |event| _ = mirror.event(&event));
            let read = read.expect("the kernel tells");
            assert!(!read.overrun, "the buffer is large enough");
            if !read.more {
                break;
            }
        }
        // All present wires are ports.
        let links = self.mirror.kernel().links().filter(|link| link.name.ends_with('0'));
        let ports: Vec<Port> = (1..)
            .zip(links)
            .map(|(number, link)| Port { link: link.index, number, is_egress: true })
            .collect();
        self.mirror.set_ports(&ports);
        for port in ports {
            let tables = self.mirror.tables_mut();
            let facts = PortRecord { flags: EVERYTHING, ifindex: port.link, mac: OURS };
            tables.set_port(port.number, facts);
            assert!(tables.set_port_of(port.link, Some(port.number)), "numbers are small");
        }
        self.mirror.tables_mut().set_lease(u64::MAX, u64::MAX);
        loop {
            self.now += 1;
            let applied = self.mirror.apply(self.now, 10);
            assert!(!applied.is_busy, "nobody reads, so nothing waits");
            if applied.pending == 0 {
                break;
            }
        }
    }

    /// The model, and what is written, is what the kernel says. Of a carrier it says so up to a second later.
    fn compare(&mut self) {
        loop {
            let dump = self.dump();
            self.follow();
            let lines = self.mirror.diff(&dump, &mut || {});
            if lines.is_empty() {
                return;
            }
            let heard = poll(&[self.watch.as_fd()], Some(PATIENCE)).expect("the socket is open");
            if !heard.any() {
                // Between dump and events something may have happened; now nothing does.
                let dump = self.dump();
                self.follow();
                let lines = self.mirror.diff(&dump, &mut || {});
                let last = self.done.len().saturating_sub(60);
                assert!(
                    lines.is_empty(),
                    "the kernel (+) and the mirror (-) differ:\n{}\n{:?}\nafter {:#?}",
                    lines.join("\n"),
                    self.mirror.status(self.now),
                    &self.done[last..],
                );
                return;
            }
        }
    }

    /// Some addresses lead where the kernel's lookup leads.
    fn ask(&mut self, random: &mut Random) {
        for _ in 0..4 {
            let address: IpAddr = random.pick(&ADDRESSES).parse().expect("an address");
            let from = random.pick(if address.is_ipv4() { &SOURCES_V4 } else { &SOURCES_V6 });
            let from: IpAddr = from.parse().expect("an address");
            let tos = [0, 0, 0x10][random.below(3) as usize];
            let before = self.kernels(address, from, tos);
            self.follow();
            let is_ruled = !self.mirror.tables().rules(address.is_ipv6()).is_empty();
            let ours = match is_ruled {
                true => self.decided(address, from, tos),
                false => self.ours(address),
            };
            // A carrier may have changed in between.
            if before != self.kernels(address, from, tos) {
                continue;
            }
            let is_same = match &ours {
                Ours::Kernel => true,
                Ours::Nothing => before == Kernels::Refused,
                Ours::Local => matches!(before, Kernels::Local | Kernels::Refused),
                Ours::Via(ways) => match &before {
                    Kernels::Via(device, gateway) => ways
                        .iter()
                        .any(|(of, via)| of == device && *via == gateway.unwrap_or(address)),
                    _ => false,
                },
            };
            let last = self.done.len().saturating_sub(20);
            assert!(
                is_same,
                "after {:#?}\n{from} to {address}, tos {tos}: the kernel says {before:?}, the tables {ours:?}\n{}\n{:#?}",
                &self.done[last..],
                try_ip("rule").unwrap_or_default()
                    + &try_ip("-6 rule").unwrap_or_default()
                    + &try_ip("route show table all").unwrap_or_default()
                    + &try_ip("-6 route show table all").unwrap_or_default(),
                self.mirror.why(&manylane_mirror::Question {
                    source: Some(from),
                    destination: address,
                    ingress: Some("in0".to_owned())
                }),
            );
        }
    }

    fn ours(&self, address: IpAddr) -> Ours {
        let tables = self.mirror.tables();
        let Some((_, id)) = tables.lookup(address) else { return Ours::Nothing };
        let names: BTreeMap<u32, String> =
            self.mirror.kernel().links().map(|link| (link.index, link.name.clone())).collect();
        let way = |slot: u32| {
            let way = tables.adjacency(slot)?;
            let mac = way.destination.0;
            let kernel = self.mirror.kernel();
            // Each has another MAC address.
            let neighbour = kernel.neighbours().find(|n| n.mac == Some(mac))?;
            Some((names[&way.egress_ifindex].clone(), neighbour.address))
        };
        match tables.next_hop(id) {
            NextHop::None | NextHop::Blackhole | NextHop::Unreachable | NextHop::Prohibit => {
                Ours::Nothing
            }
            NextHop::Local | NextHop::Broadcast => Ours::Local,
            NextHop::Kernel | NextHop::Connected(_) => Ours::Kernel,
            NextHop::Via(slot) => way(slot).map_or(Ours::Kernel, |way| Ours::Via(vec![way])),
            NextHop::Group(group) => {
                let ways: Vec<_> =
                    tables.members(group).filter_map(|(member, _)| way(member.slot)).collect();
                // The kernel may choose a member that has no neighbour yet: it would query one.
                let all = tables.members(group).count();
                if ways.len() < all { Ours::Kernel } else { Ours::Via(ways) }
            }
        }
    }

    /// The program's decision about a packet that `in0` receives.
    fn decided(&self, address: IpAddr, from: IpAddr, tos: u8) -> Ours {
        let kernel = self.mirror.kernel();
        let ifindex = kernel.link_named("in0").expect("it stays").index;
        let mut frame = packet(from, address, tos);
        let reader = self.domain.register().expect("there is no other");
        let arrival = Arrival { ifindex, now_ns: 0, tag: None, gso_size: 0 };
        let transit = self.mirror.tables().reader();
        match transit.decide(reader.guard(), &mut frame, &arrival) {
            (Verdict::Forwarded, exit) => {
                let exit = kernel.link(exit.expect("it is sent")).expect("it is there");
                // Each has another MAC address.
                let is_it = |mac: Option<[u8; 6]>| mac.is_some_and(|mac| mac == frame[..6]);
                let neighbour = kernel.neighbours().find(|neighbour| is_it(neighbour.mac));
                let neighbour = neighbour.expect("it is known").address;
                Ours::Via(vec![(exit.name.clone(), neighbour)])
            }
            (Verdict::NoRoute | Verdict::Nowhere, _) => Ours::Nothing,
            (Verdict::Local, _) => Ours::Local,
            _ => Ours::Kernel,
        }
    }

    /// What the kernel does with a packet to this address that `in0` receives.
    fn kernels(&self, address: IpAddr, from: IpAddr, tos: u8) -> Kernels {
        let asked = format!("-j route get {address} from {from} iif in0 tos {tos:#x}");
        let printed = match try_ip(&asked) {
            Ok(printed) => printed,
            Err(_) => return Kernels::Refused,
        };
        let Ok(Value::Array(routes)) = serde_json::from_str::<Value>(&printed) else {
            return Kernels::Refused;
        };
        let Some(route) = routes.first() else { return Kernels::Refused };
        let text = |name: &str| route[name].as_str().map(str::to_owned);
        match text("type").as_deref() {
            Some("local" | "broadcast" | "anycast" | "multicast") => return Kernels::Local,
            Some("unicast") | None => (),
            Some(_) => return Kernels::Refused,
        }
        let gateway = text("gateway").or_else(|| route["via"]["host"].as_str().map(str::to_owned));
        let Some(device) = text("dev") else { return Kernels::Refused };
        Kernels::Via(device, gateway.and_then(|gateway| gateway.parse().ok()))
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Kernels {
    Refused,
    Local,
    Via(String, Option<IpAddr>),
}

#[derive(Debug)]
enum Ours {
    /// The packet is left to the kernel.
    Kernel,
    Nothing,
    Local,
    Via(Vec<(String, IpAddr)>),
}

fn dump(netlink: &mut Netlink) -> Dump {
    let root = "root may read";
    let mut dump = Dump::with(
        Limits::default(),
        netlink.dump_links().expect(root),
        netlink.dump_netconf().expect(root),
        netlink.dump_addresses().expect(root),
        netlink.dump_next_hops().expect(root),
        netlink.dump_rules().expect(root),
        netlink.dump_neighbours().expect(root),
    );
    for family in [Family::V4, Family::V6] {
        netlink.dump_routes(family, None, |route| dump.route(&route)).expect(root);
    }
    dump
}

/// Longer than the kernel delays the news of a carrier.
const PATIENCE: Duration = Duration::from_millis(1500);

const ADDRESSES: [&str; 20] = [
    "10.0.1.1",
    "10.0.1.2",
    "10.0.2.3",
    "10.0.3.77",
    "10.0.1.255",
    "10.50.0.1",
    "10.50.1.1",
    "10.50.1.130",
    "10.60.0.7",
    "10.60.0.8",
    "192.0.2.1",
    "fd00:1::1",
    "fd00:1::2",
    "fd00:2::3",
    "fd00:3::77",
    "fd50::1",
    "fd50:1::1",
    "fd60::7",
    "fd60::8",
    "2001:db8::1",
];

/// A datagram to our port.
fn packet(from: IpAddr, to: IpAddr, tos: u8) -> Vec<u8> {
    const PAYLOAD: usize = 40;
    let mut frame = vec![0; 14 + if from.is_ipv4() { 20 } else { 40 } + PAYLOAD];
    let ether_type = if from.is_ipv4() { ether_type::IPV4 } else { ether_type::IPV6 };
    ethernet::emit(&mut frame, OURS, Mac([2, 9, 9, 9, 9, 9]), ether_type).expect("it fits");
    match (from, to) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let header = ipv4::Header {
                tos,
                identification: 0,
                dont_fragment: true,
                ttl: 64,
                protocol: protocol::UDP,
                source,
                destination,
            };
            header.emit(&mut frame[14..], PAYLOAD).expect("it fits");
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let header = ipv6::Header {
                traffic_class: tos,
                flow_label: 0,
                next_header: protocol::UDP,
                hop_limit: 64,
                source,
                destination,
            };
            header.emit(&mut frame[14..], PAYLOAD).expect("it fits");
        }
        _ => panic!("{from} and {to} are of two families"),
    }
    frame
}

/// Our MAC address on all ports.
const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
const EVERYTHING: u32 =
    flags::INGRESS | flags::EGRESS | flags::FORWARDING_V4 | flags::FORWARDING_V6;
/// Sources of packets: behind their ingress wire, and elsewhere.
const SOURCES_V4: [&str; 3] = ["198.18.0.9", "198.18.0.9", "10.60.0.7"];
const SOURCES_V6: [&str; 3] = ["fd18::9", "fd18::9", "fd60::7"];
