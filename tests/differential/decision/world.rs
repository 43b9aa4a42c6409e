//! Random tables, as a writer makes them, and random changes of them.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use manylane_frame::vocabulary::PortId;
use manylane_net::fib::{EditError, IpPrefix, Limits, NextHopId};
use manylane_net::nexthop::{GroupId, Member, NextHop};
use manylane_net::transit::flows::{FlowNumber, FlowsMut, NewFlow, Required};
use manylane_net::transit::layout::RULES;
use manylane_net::transit::layout::flags::{
    DRIVER_EGRESS, DRIVER_EGRESS_PIECES, DRIVER_INGRESS, EGRESS, FORWARDING_V4, FORWARDING_V6,
    INGRESS, REDIRECTS_V4, REDIRECTS_V6, RP_LOOSE, RP_STRICT, RP_STRICT_V6, WORKERS_EGRESS,
    WORKERS_INGRESS,
};
use manylane_net::transit::{
    Action, Adjacency, Memory, Multipath, PortRecord, Rule, Sizes, TableNumber, Transit, TransitMut,
};
use manylane_net::wire::ethernet::Mac;
use manylane_sync::rcu::{Domain, Reader};

use crate::random::Random;

/// Ports with a device of their own, from 1 on.
pub const DEVICES: u16 = 6;
/// Ports of VLANs, behind those.
pub const VLANS: u16 = 4;
/// All of them, and port 0.
pub const PORTS: u16 = 1 + DEVICES + VLANS;

const IDS: usize = 160;
const SLOTS: usize = 120;
const GROUPS: usize = 12;
const PREFIXES: usize = 1500;
/// Further tables of each family.
const TABLES: usize = 3;

/// Tables, their readers' side, and what is in them.
pub struct World {
    pub tables: TransitMut,
    pub transit: Transit,
    pub reader: Reader,
    /// The devices' interfaces.
    pub interfaces: Vec<u32>,
    /// Every prefix that has been a route, the default routes first.
    pub prefixes: Vec<IpPrefix>,
    pub ids: Vec<NextHopId>,
    pub slots: Vec<u32>,
    pub groups: Vec<GroupId>,
    /// Further tables, of each family.
    pub further: [Vec<TableNumber>; 2],
    /// By which flows are divided.
    pub seed: u64,
    /// Connections with a place in the flow table, and without.
    pub connections: Vec<(Option<FlowNumber>, NewFlow)>,
    pub(super) flows: FlowsMut,
    /// Of flows that may be followed.
    pub(super) generation: u32,
    pub(super) required: Required,
}

/// Room for what a world has.
pub fn sizes() -> Sizes {
    Sizes {
        flows: 2 * super::connections::CONNECTIONS,
        ..Sizes::for_routes(4 * PREFIXES, 4 * PREFIXES)
    }
}

impl World {
    /// A world in this memory, by these random numbers.
    pub fn new(memory: Memory, interfaces: &[u32], random: &mut Random) -> World {
        assert_eq!(interfaces.len(), usize::from(DEVICES));
        let domain = Domain::new(1);
        let reader = domain.register().expect("the first fits");
        let mut tables = TransitMut::new(memory, domain, &Limits::default());
        let seed = random.next();
        tables.set_seed(seed);
        let mut world = World {
            transit: tables.reader(),
            reader,
            interfaces: interfaces.to_vec(),
            prefixes: default_routes().to_vec(),
            ids: (0..IDS).map(|_| tables.take_id().expect("there are more")).collect(),
            slots: (0..SLOTS).map(|_| tables.take_slot().expect("there are more")).collect(),
            groups: Vec::new(),
            further: [(); 2].map(|()| {
                (0..TABLES).map(|_| tables.take_table().expect("there are more")).collect()
            }),
            seed,
            connections: Vec::new(),
            flows: tables.take_flows().expect("the first takes them"),
            generation: 1,
            required: Required::default(),
            tables,
        };
        (1..PORTS).for_each(|port| world.set_port(port, random));
        for (port, &interface) in (1..).zip(interfaces) {
            assert!(world.tables.set_port_of(interface, Some(port)), "{interface} is small");
        }
        for vlan in 0..VLANS {
            let (parent, is_service, number) = vlan_of(vlan);
            world.tables.set_vlan(parent, is_service, number, Some(1 + DEVICES + vlan));
        }
        for place in 0..SLOTS {
            world.set_slot(place, random);
        }
        for _ in 0..GROUPS {
            let members = world.members(random);
            world.groups.push(world.tables.add_group(&members).expect("there are more"));
        }
        for place in 0..IDS {
            world.set_next_hop(place, random);
        }
        world.prefixes.extend((0..PREFIXES).map(|_| prefix(random)));
        world.prefixes.extend(hosts());
        for place in 0..world.prefixes.len() {
            world.insert(place, random);
        }
        for is_ipv6 in [false, true] {
            (0..TABLES).for_each(|place| world.set_table(is_ipv6, place, random));
            world.set_rules(is_ipv6, random);
        }
        world.set_control(random);
        world.connect(random);
        world
    }

    /// `times` random changes, as a mirror of a busy kernel makes them.
    pub fn change(&mut self, times: usize, random: &mut Random) {
        for _ in 0..times {
            match random.below(105) {
                0..30 => {
                    let place = random.below(self.prefixes.len());
                    self.insert(place, random);
                }
                30..45 => {
                    let prefix = random.pick(&self.prefixes);
                    self.with_room(|tables| tables.remove(prefix).map(drop));
                }
                // The default routes come and go, by what their ids mean.
                45..50 => {
                    let prefix = self.prefixes[random.below(2)];
                    if let Some(id) = self.tables.route(prefix) {
                        let next_hop = self.next_hop(random);
                        let gone = random.percent(30);
                        self.tables.set_next_hop(id, if gone { NextHop::None } else { next_hop });
                    }
                }
                50..65 => self.set_next_hop(random.below(IDS), random),
                65..85 => self.set_slot(random.below(SLOTS), random),
                85..90 => {
                    let (group, members) = (random.pick(&self.groups), self.members(random));
                    self.tables.set_members(group, &members);
                }
                90..95 => self.set_port(1 + random.below(usize::from(PORTS) - 1) as u16, random),
                95..98 => {
                    let (is_ipv6, place) = (random.percent(50), random.below(TABLES));
                    self.set_table(is_ipv6, place, random);
                }
                98..100 => self.set_rules(random.percent(50), random),
                100..103 => self.set_flows(random),
                _ => self.set_control(random),
            }
        }
        self.approve_all(random);
        self.flows.reclaim();
        // The only reader does not read meanwhile: its turn stands for all readers.
        self.reader.quiescent();
        self.tables.reclaim();
    }

    /// Lets everything be forwarded that some port, sysctl or lease could keep.
    pub fn open(&mut self) {
        self.tables.set_lease(u64::MAX, u64::MAX);
        for port in 1..PORTS {
            let facts = self.tables.port(port);
            let flags = INGRESS | EGRESS | FORWARDING_V4 | FORWARDING_V6;
            self.tables.set_port(port, PortRecord { flags, ..facts });
        }
        let all = Multipath { ipv4: true, ipv6: true, ipv4_ports: true, ipv6_ports: true };
        self.tables.set_multipath(all);
        for is_ipv6 in [false, true] {
            self.with_room(|tables| tables.set_rules(is_ipv6, &[]));
        }
    }

    /// The port that a packet without a tag is counted for.
    pub fn port_of(&self, ifindex: u32) -> u16 {
        let place = self.interfaces.iter().position(|&interface| interface == ifindex);
        place.map_or(0, |place| place as u16 + 1)
    }

    fn insert(&mut self, place: usize, random: &mut Random) {
        let (prefix, id) = (self.prefixes[place], random.pick(&self.ids));
        self.with_room(|tables| tables.insert(prefix, id).map(drop));
    }

    /// Other routes in a further table: none, few, or hundreds, which contain each other.
    fn set_table(&mut self, is_ipv6: bool, place: usize, random: &mut Random) {
        let percent = random.pick(&[0, 1, 1, 40]);
        let of_family = |prefix: &&IpPrefix| matches!(prefix, IpPrefix::V6(_)) == is_ipv6;
        let mut routes: BTreeMap<IpPrefix, NextHopId> = BTreeMap::new();
        for prefix in self.prefixes.iter().filter(of_family) {
            if random.percent(percent) {
                routes.insert(*prefix, random.pick(&self.ids));
            }
        }
        if random.percent(30) {
            routes.insert(default_routes()[usize::from(is_ipv6)], random.pick(&self.ids));
        }
        let table = self.further[usize::from(is_ipv6)][place];
        self.with_room(|tables| tables.set_table(table, routes.iter().map(|(p, id)| (*p, *id))));
    }

    /// Other rules: the usual ones, few, or as many as fit.
    fn set_rules(&mut self, is_ipv6: bool, random: &mut Random) {
        let mut rules = Vec::new();
        if random.percent(70) {
            rules.push(Rule::all(Action::Local));
            let count = if random.percent(10) { RULES - 2 } else { random.below(6) };
            rules.extend((0..count).map(|_| self.rule(is_ipv6, random)));
            rules.extend(random.percent(95).then_some(Rule::all(Action::Merged)));
        }
        self.with_room(|tables| tables.set_rules(is_ipv6, &rules));
    }

    fn rule(&self, is_ipv6: bool, random: &mut Random) -> Rule {
        let of_family = |prefix: &&IpPrefix| matches!(prefix, IpPrefix::V6(_)) == is_ipv6;
        let prefixes: Vec<IpPrefix> = self.prefixes.iter().filter(of_family).copied().collect();
        let further = &self.further[usize::from(is_ipv6)];
        let mut prefix = |percent| random.percent(percent).then(|| random.pick(&prefixes));
        let (from, to) = (prefix(50), prefix(40));
        // A port's interface, or one that packets leave by.
        let port = random.below(usize::from(PORTS)) as u16;
        let interface = match random.percent(70) {
            true => self.tables.port(port).ifindex,
            false => 1000 + u32::from(port),
        };
        Rule {
            from,
            to,
            ingress: random.percent(30).then_some(interface),
            tos: if random.percent(15) { random.pick(&[0x04, 0x08, 0x10, 0x1c, 0xb8]) } else { 0 },
            is_inverted: random.percent(10),
            action: match random.below(100) {
                0..60 => Action::Table(random.pick(further)),
                60..75 => Action::Merged,
                75..80 => Action::Local,
                80..88 => Action::Nowhere,
                _ => Action::Kernel,
            },
        }
    }

    fn set_slot(&mut self, place: usize, random: &mut Random) {
        let slot = self.slots[place];
        let way = random.percent(92).then(|| way(random));
        self.with_room(|tables| tables.set_slot(slot, way));
    }

    /// Does an edit, after a grace period if it needs one.
    fn with_room(&mut self, mut edit: impl FnMut(&mut TransitMut) -> Result<(), EditError>) {
        for _ in 0..4 {
            match edit(&mut self.tables) {
                Ok(()) => return,
                Err(EditError::Busy { .. }) => {
                    self.reader.quiescent();
                    self.tables.reclaim();
                }
                Err(error) => panic!("{error}"),
            }
        }
        panic!("an edit found no room after grace periods");
    }

    fn set_next_hop(&mut self, place: usize, random: &mut Random) {
        let next_hop = self.next_hop(random);
        self.tables.set_next_hop(self.ids[place], next_hop);
    }

    fn next_hop(&self, random: &mut Random) -> NextHop<u32> {
        match random.below(100) {
            0..62 => NextHop::Via(random.pick(&self.slots)),
            62..74 => NextHop::Group(random.pick(&self.groups)),
            74..80 => NextHop::Connected(PortId(random.below(usize::from(PORTS)) as u16)),
            80..84 => NextHop::Local,
            84..86 => NextHop::Broadcast,
            86..88 => NextHop::Blackhole,
            88..90 => NextHop::Unreachable,
            90..92 => NextHop::Prohibit,
            92..95 => NextHop::Kernel,
            _ => NextHop::None,
        }
    }

    fn members(&self, random: &mut Random) -> Vec<Member> {
        let first = random.below(SLOTS);
        let most = if random.percent(10) { 64 } else { 6 };
        let count = 1 + random.below(most);
        let slots = (0..count).map(|number| self.slots[(first + 7 * number) % SLOTS]);
        slots.map(|slot| Member { slot, weight: 1 + random.below(5) as u16 }).collect()
    }

    fn set_port(&mut self, port: u16, random: &mut Random) {
        let mut flags = 0;
        for (flag, percent) in [
            (INGRESS, 95),
            (EGRESS, 92),
            (FORWARDING_V4, 95),
            (FORWARDING_V6, 95),
            (RP_STRICT, 12),
            (RP_STRICT_V6, 12),
            (RP_LOOSE, 12),
            (REDIRECTS_V4, 40),
            (REDIRECTS_V6, 40),
            (DRIVER_INGRESS, 80),
            (DRIVER_EGRESS, 80),
            (DRIVER_EGRESS_PIECES, 50),
            (WORKERS_INGRESS, 25),
            (WORKERS_EGRESS, 80),
        ] {
            flags |= if random.percent(percent) { flag } else { 0 };
        }
        // As the egress records that lead to the port have it, but for a moment.
        let ifindex = if random.percent(95) { 1000 } else { 2000 } + u32::from(port);
        // Now and then a device gets another address.
        let mac = if random.percent(10) { mac(port, 1) } else { mac(port, 0) };
        self.tables.set_port(port, PortRecord { flags, ifindex, mac });
    }

    fn set_control(&mut self, random: &mut Random) {
        let until = if random.percent(98) { u64::MAX } else { 0 };
        self.tables.set_lease(until, until);
        self.tables.set_multipath(Multipath {
            ipv4: random.percent(85),
            ipv6: random.percent(85),
            ipv4_ports: random.percent(50),
            ipv6_ports: random.percent(50),
        });
    }
}

/// The port that a VLAN is on, whether its tag is of 802.1ad, and its number.
pub fn vlan_of(vlan: u16) -> (u16, bool, u16) {
    (1 + vlan / 2, vlan % 2 == 1, [1, 100, 4094, 0][usize::from(vlan) % 4])
}

/// Our MAC address on a port.
fn mac(port: u16, version: u8) -> Mac {
    Mac([2, 0, 0, 0, version, port as u8])
}

fn way(random: &mut Random) -> Adjacency {
    let egress_port = 1 + random.below(usize::from(PORTS) - 1) as u16;
    let [a, b, c, d, ..] = random.next().to_le_bytes();
    Adjacency {
        egress_ifindex: 1000 + u32::from(egress_port),
        egress_port,
        mtu: random.pick(&[68, 576, 1280, 1400, 1499, 1500, 1500, 1500, 1500, 9000, 65_535]),
        destination: Mac([0x0a, a, b, c, d, 1]),
        source: mac(egress_port, 0),
    }
}

pub fn default_routes() -> [IpPrefix; 2] {
    ["0.0.0.0/0", "::/0"].map(|prefix| prefix.parse().expect("a prefix"))
}

/// A prefix of any length, among few networks, so that they contain each other.
fn prefix(random: &mut Random) -> IpPrefix {
    if random.percent(50) {
        let networks = [0x0a00_0000u32, 0x0a01_0000, 0xc0a8_0000, 0xc000_0200, 0x6440_0000];
        let address = random.pick(&networks) | (random.next() as u32 & random.pick(&HOST_BITS_V4));
        let len = random.pick(&[8, 12, 16, 20, 22, 24, 24, 25, 26, 28, 30, 31, 32, 32]);
        let network = address & u32::MAX << (32 - len);
        IpPrefix::new(Ipv4Addr::from_bits(network).into(), len).expect("no bits below")
    } else {
        let networks = [
            0x2001_0db8u128 << 96,
            0x2001_0db8_0001 << 80,
            0x2a00 << 112,
            0x3fff << 112,
            0xfd << 120,
        ];
        let address = random.pick(&networks) | (host_bits_v6(random) & random.pick(&HOST_BITS_V6));
        let len =
            random.pick(&[16, 24, 29, 32, 40, 48, 48, 56, 64, 64, 65, 96, 112, 127, 128, 128]);
        let network = address & u128::MAX << (128 - len);
        IpPrefix::new(Ipv6Addr::from_bits(network).into(), len).expect("no bits below")
    }
}

/// Networks full of routes to hosts: the longest lists and the widest trees of all.
fn hosts() -> impl Iterator<Item = IpPrefix> {
    let ipv4 = (0..=255).map(|host| (Ipv4Addr::new(192, 0, 2, host).into(), 32));
    let ipv6 = (0..=255).flat_map(|host| {
        [(0x2001_0db8 << 96 | host, 128), (0x2001_0db8_0001 << 80 | host << 64, 64)]
    });
    let ipv6 = ipv6.map(|(bits, len)| (Ipv6Addr::from_bits(bits).into(), len));
    ipv4.chain(ipv6).map(|(addr, len)| IpPrefix::new(addr, len).expect("no bits below"))
}

const HOST_BITS_V4: [u32; 4] = [0xff, 0x0fff, 0xffff, 0x00ff_ffff];
const HOST_BITS_V6: [u128; 4] = [0xff, u64::MAX as u128, 0xffff << 64 | 0xff, u128::MAX >> 32];

fn host_bits_v6(random: &mut Random) -> u128 {
    u128::from(random.next()) << 64 | u128::from(random.next())
}
