//! The route of a packet that a worker has noted, for collectors of samples.

use std::net::IpAddr;

use manylane_frame::vocabulary::PortId;
use manylane_net::neighbour::{Entry, Key};
use manylane_net::nexthop::{GroupId, NextHop};
use manylane_net::wire::ethernet::Mac;

use super::Routing;

/// The route of a packet, by the tables of now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketRoute {
    /// The port or sub-interface that it leads to.
    pub port: PortId,
    /// The next router; without one, the destination is on the link.
    pub next_hop: Option<IpAddr>,
    /// Length of the prefix that leads to the source; 0 without a route.
    pub source_len: u8,
    /// Length of the prefix that leads to the destination.
    pub destination_len: u8,
}

impl Routing {
    /// The route of a packet that is forwarded. `sent` is the device's port that it left by, and the station that it was
    /// sent to: these two name the member of a group.
    pub fn packet_route(
        &self,
        source: IpAddr,
        destination: IpAddr,
        sent: Option<(PortId, Mac)>,
    ) -> Option<PacketRoute> {
        let (_, id) = self.longest(destination)?;
        let key = match self.meaning(id) {
            NextHop::Via(key) => key,
            NextHop::Group(group) => self.member(group, sent?)?,
            NextHop::Connected(port) => Key { port, addr: destination },
            _ => return None,
        };
        Some(PacketRoute {
            port: key.port,
            next_hop: (key.addr != destination).then_some(key.addr),
            source_len: self.prefix_len(source),
            destination_len: self.prefix_len(destination),
        })
    }

    /// The member of a group that a packet was sent to.
    fn member(&self, group: GroupId, (device, mac): (PortId, Mac)) -> Option<Key> {
        let members = self.next_hops.members(group);
        let mut entries = members.filter_map(|(member, _)| self.neighbours.entry(member.slot));
        let is_it =
            |entry: &&Entry| entry.mac == Some(mac.0) && self.device(entry.key.port) == device;
        entries.find(is_it).map(|entry| entry.key)
    }

    /// The length of the prefix that leads to an address. A station on a link has a host route, which is no one's
    /// configuration: its network counts.
    fn prefix_len(&self, address: IpAddr) -> u8 {
        let Some((prefix, id)) = self.longest(address) else { return 0 };
        match self.meaning(id) {
            NextHop::Via(key) if key.addr == address => {
                self.network_len(key).unwrap_or(prefix.len())
            }
            _ => prefix.len(),
        }
    }

    /// The length of the network of ours that a neighbour is in.
    fn network_len(&self, key: Key) -> Option<u8> {
        let ours = self.ports.get(key.port.index())?.addresses.iter();
        ours.filter(|own| own.prefix().contains(key.addr)).map(|own| own.length).max()
    }

    /// A port and its sub-interfaces: all that has its device.
    pub fn of_device(&self, device: PortId) -> impl Iterator<Item = PortId> {
        let all = (0..self.ports.len() as u16).map(PortId);
        all.filter(move |&port| self.device(port) == device)
    }

    /// The port whose device a port or sub-interface has.
    pub fn device(&self, port: PortId) -> PortId {
        self.facts(port).vlan.map_or(port, |vlan| vlan.port)
    }
}
