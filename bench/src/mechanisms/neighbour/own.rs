//! One neighbour in manylane's tables: for what is measured here, and for what `bench/counted` counts.

use std::net::Ipv4Addr;
use std::sync::Mutex;

use manylane_frame::vocabulary::PortId;
use manylane_net::fib::{NextHop as Mark, NextHopId};
use manylane_net::neighbour::{
    Adjacencies, Adjacency, AdjacencyState, AdjacencyTable, AdjacencyWords, Header, Key, Rewrite,
};
use manylane_net::nexthop::{NextHop, NextHops, NextHopsMut};
use manylane_net::wire::ethernet::ether_type;
use manylane_sync::rcu::{Domain, Guard, Index};
use manylane_sync::words::WordsMut;

pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 1);
pub const MAC: [u8; 6] = [2, 0x10, 0x10, 0x10, 0x10, 1];
pub const OURS: [u8; 6] = [2, 0, 0, 0, 0, 0x12];

/// Its next hop, and its slot among the adjacencies.
const HOP: u16 = 7;
const SLOT: u32 = 1;

pub struct Own {
    pub domain: Domain,
    next_hops: NextHops,
    adjacencies: Adjacencies,
    table: Mutex<AdjacencyTable>,
    _next_hops: NextHopsMut,
}

impl Own {
    /// For this number of threads that send.
    pub fn new(threads: usize) -> Own {
        let domain = Domain::new(threads);
        let mut next_hops = NextHopsMut::new(WordsMut::zeroed(16));
        next_hops.set(NextHopId::new(HOP).expect("it is small"), NextHop::Via(SLOT));
        let table = AdjacencyTable::new(domain.clone(), AdjacencyWords::boxed(16));
        let own = Own {
            domain,
            next_hops: next_hops.reader(),
            adjacencies: table.reader(),
            table: Mutex::new(table),
            _next_hops: next_hops,
        };
        own.set_address(MAC, OURS);
        own
    }

    pub fn set_address(&self, mac: [u8; 6], ours: [u8; 6]) {
        let key = Key { port: PortId(1), addr: ADDRESS.into() };
        let header = Header::ethernet(mac, ours, ether_type::IPV4);
        let rewrite =
            Rewrite { key, egress: key.port, state: AdjacencyState::Resolved, header, mtu: 1500 };
        let mut table = self.table.lock().expect("no thread panics with the lock");
        table.publish(SLOT, &rewrite).expect("readers are quiescent more often than it changes");
    }

    /// What a lookup answers with.
    pub fn id(&self) -> u32 {
        HOP.into()
    }

    #[inline(always)]
    pub fn adjacency<'g>(&self, guard: Guard<'g>, id: u32) -> Adjacency<'g> {
        let id: Index<'_, Mark> = Index::new(guard, id);
        let neighbour = self.next_hops.via(guard, id).expect("it leads to a neighbour");
        self.adjacencies.load(guard, neighbour)
    }
}
