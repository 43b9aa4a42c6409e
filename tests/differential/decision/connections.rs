//! The flow table of a world: connections, what they are approved for, and what has followed them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use manylane_net::nexthop::NextHop;
use manylane_net::transit::flows::{Direction, FlowNumber, NewFlow, Required, Tuple};

use super::world::{PORTS, World};
use crate::random::Random;

/// Connections of a world; the table has room for twice as many, since numbers of former ones wait.
pub const CONNECTIONS: usize = 256;

impl World {
    /// Connections, nine of ten with a place in the table.
    pub(super) fn connect(&mut self, random: &mut Random) {
        for place in 0..CONNECTIONS {
            let flow = new_flow(place % 2 == 0, random);
            let number = random.percent(90).then(|| self.flows.insert(flow).ok()).flatten();
            self.connections.push((number, flow));
            self.approve(place, random);
        }
    }

    /// Approves all anew, by routes and a generation that may have changed.
    pub(super) fn approve_all(&mut self, random: &mut Random) {
        (0..CONNECTIONS).for_each(|place| self.approve(place, random));
    }

    /// The port to which the route of an address leads, where it leads to one neighbour.
    fn egress(&self, to: IpAddr) -> Option<u8> {
        let (_, id) = self.tables.lookup(to)?;
        let NextHop::Via(slot) = self.tables.next_hop(id) else { return None };
        self.tables.adjacency(slot).map(|adjacency| adjacency.egress_port as u8)
    }

    /// Which packets need a flow.
    pub fn required(&self) -> Required {
        self.required
    }

    /// The ports that a direction was approved for.
    pub fn approved(&self, number: FlowNumber, direction: Direction) -> [u8; 2] {
        self.flows.approved(number, direction).1
    }

    /// Lets all packets need a flow of this generation.
    pub fn require_flows(&mut self, generation: u32) {
        self.required = Required { ipv4: true, ipv6: true };
        self.generation = generation;
        self.tables.set_flows(self.required, generation);
    }

    /// Approves all flows for another egress.
    pub fn approve_otherwise(&mut self) {
        for number in self.connections.iter().filter_map(|connection| connection.0) {
            for direction in Direction::BOTH {
                let (generation, [ingress, egress]) = self.flows.approved(number, direction);
                self.flows.approve(number, direction, generation, [ingress, egress + 1]);
            }
        }
    }

    /// Puts other connections in the place of all.
    pub fn connect_otherwise(&mut self, change: impl Fn(&mut NewFlow)) {
        for place in 0..self.connections.len() {
            let (Some(number), mut flow) = self.connections[place] else { continue };
            change(&mut flow);
            let approved = Direction::BOTH.map(|direction| self.flows.approved(number, direction));
            self.flows.remove(number);
            self.connections[place].0 = self.flows.insert(flow).ok();
            let Some(other) = self.connections[place].0 else { continue };
            for (direction, (generation, ports)) in Direction::BOTH.into_iter().zip(approved) {
                self.flows.approve(other, direction, generation, ports);
            }
        }
    }

    /// Packets and bytes that have followed the flows of now.
    pub fn followed(&self) -> (u64, u64) {
        let numbers = self.connections.iter().filter_map(|connection| connection.0);
        let uses = numbers.flat_map(|number| {
            Direction::BOTH.map(|direction| self.flows.use_of(number, direction))
        });
        uses.fold((0, 0), |(packets, bytes), one| (packets + one.packets, bytes + one.bytes))
    }

    /// Approves both directions of a connection, or not. What was closed is another connection, of the same tuples.
    fn approve(&mut self, place: usize, random: &mut Random) {
        let (Some(mut number), flow) = self.connections[place] else {
            self.connections[place].0 = self.flows.insert(self.connections[place].1).ok();
            return;
        };
        if self.flows.use_of(number, Direction::Original).closes {
            self.flows.remove(number);
            // With none free, the connection waits for a turn of the reader.
            let other = self.flows.insert(flow).ok();
            self.connections[place].0 = other;
            let Some(other) = other else { return };
            number = other;
        }
        for direction in Direction::BOTH {
            let generation = if random.percent(90) { self.generation } else { 0 };
            let mut port = || 1 + random.below(usize::from(PORTS) - 1) as u8;
            let [ingress, other] = [port(), port()];
            // Where the packets are routed to, mostly.
            let to = self.flows.tuple(number, opposite(direction)).source;
            let egress = self.egress(to).filter(|_| random.percent(80)).unwrap_or(other);
            self.flows.approve(number, direction, generation, [ingress, egress]);
        }
    }

    /// Requires flows or not, and stops or approves them.
    pub(super) fn set_flows(&mut self, random: &mut Random) {
        self.required = Required { ipv4: random.percent(40), ipv6: random.percent(40) };
        self.generation += u32::from(random.percent(5));
        self.tables.set_flows(self.required, self.generation);
    }
}

fn opposite(direction: Direction) -> Direction {
    match direction {
        Direction::Original => Direction::Reply,
        Direction::Reply => Direction::Original,
    }
}

/// A connection, translated at either end, at both, or not.
fn new_flow(is_ipv6: bool, random: &mut Random) -> NewFlow {
    let original = Tuple {
        source: address(is_ipv6, random),
        destination: address(is_ipv6, random),
        source_port: random.word(),
        destination_port: random.word(),
        protocol: random.pick(&[6, 17]),
    };
    let mut reply = original.inverted();
    if random.percent(50) {
        (reply.destination, reply.destination_port) = (address(is_ipv6, random), random.word());
    }
    if random.percent(30) {
        reply.source = address(is_ipv6, random);
    }
    if random.percent(30) {
        reply.source_port = random.word();
    }
    NewFlow { original, reply }
}

/// One that a route leads to, often.
fn address(is_ipv6: bool, random: &mut Random) -> IpAddr {
    let host = random.next();
    match is_ipv6 {
        false => {
            let network = random.pick(&[0x0a00_0000u32, 0x0a01_0000, 0xc0a8_0000, 0xc000_0200]);
            Ipv4Addr::from_bits(network | host as u32 & 0xff).into()
        }
        true => {
            let network = random.pick(&[0x2001_0db8u128 << 96, 0x2001_0db8_0001 << 80]);
            Ipv6Addr::from_bits(network | u128::from(host & 0xff)).into()
        }
    }
}
