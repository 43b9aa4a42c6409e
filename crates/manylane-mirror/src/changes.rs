//! What is to be looked at again, because the model has changed.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::net::IpAddr;

use manylane_io::netlink::kernel::Neighbour;
use manylane_net::fib::IpPrefix;

use super::family::{Seeded, host, is_host, last_of};

/// Prefixes in the order of their first change, each once.
#[derive(Default)]
pub(super) struct Queue {
    order: VecDeque<IpPrefix>,
    known: HashSet<IpPrefix, Seeded>,
}

impl Queue {
    /// Adds a prefix, unless it waits already.
    pub fn push(&mut self, prefix: IpPrefix) {
        if self.known.insert(prefix) {
            self.order.push_back(prefix);
        }
    }

    /// The one that waits longest.
    pub fn front(&self) -> Option<IpPrefix> {
        self.order.front().copied()
    }

    /// Takes it out.
    pub fn pop(&mut self) -> Option<IpPrefix> {
        let prefix = self.order.pop_front()?;
        self.known.remove(&prefix);
        if self.order.is_empty() {
            // What a million changes needed is given back.
            (self.order, self.known) = Default::default();
        }
        Some(prefix)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    pub fn clear(&mut self) {
        *self = Queue::default();
    }
}

/// What changed since the tables were last written.
#[derive(Default)]
pub(super) struct Changes {
    /// Prefixes whose way may be another.
    pub prefixes: Queue,
    /// Devices whose state, address or MTU is another.
    pub links: BTreeSet<u32>,
    /// Neighbours whose address is another, or usable, or not any more.
    pub neighbours: BTreeSet<(u32, IpAddr)>,
    /// Next-hop objects that lead elsewhere.
    pub objects: BTreeSet<u32>,
    /// The kernel may have changed more than it said: a dump will tell.
    pub is_unconfirmed: bool,
    /// The order of tables is another: all prefixes are to be looked at.
    pub is_everything: bool,
    /// Prefixes of further tables whose destination may have changed, by table.
    pub further: BTreeSet<(u32, IpPrefix)>,
    /// All neighbours may have another way to themselves.
    pub is_every_neighbour: bool,
    /// Rules, or what they are about, may be others.
    pub is_policy: bool,
    /// Refused further tables may fit now.
    pub is_retried: bool,
}

/// Neighbours by address, so that those in a prefix stand together.
pub(super) type Neighbours = BTreeMap<(IpAddr, u32), Neighbour>;

/// The neighbours in a prefix.
pub(super) fn within(
    neighbours: &Neighbours,
    prefix: IpPrefix,
) -> impl Iterator<Item = &Neighbour> {
    let range = (prefix.addr(), 0)..=(last_of(prefix), u32::MAX);
    neighbours.range(range).map(|(_, neighbour)| neighbour)
}

impl Changes {
    /// A prefix may have another way, and the neighbours in it another one to themselves. `is_on_link`: a
    /// route that came or went is one of a connected network. No other default route changes anything for
    /// neighbours: what covers one is longer, or connected.
    pub fn touch(&mut self, neighbours: &Neighbours, prefix: IpPrefix, is_on_link: bool) {
        self.prefixes.push(prefix);
        if is_host(prefix) || prefix.len() == 0 && !is_on_link {
            return;
        }
        for neighbour in within(neighbours, prefix) {
            self.prefixes.push(host(neighbour.address));
        }
    }

    /// Notes a prefix of a further table.
    pub fn touch_further(
        &mut self,
        neighbours: &Neighbours,
        table: u32,
        prefix: IpPrefix,
        is_on_link: bool,
    ) {
        self.further.insert((table, prefix));
        if is_host(prefix) || prefix.len() == 0 && !is_on_link {
            return;
        }
        let hosts = within(neighbours, prefix).map(|neighbour| (table, host(neighbour.address)));
        self.further.extend(hosts);
    }

    /// How much is to be looked at.
    pub fn len(&self) -> usize {
        usize::from(self.is_retried)
            + self.prefixes.len()
            + self.further.len()
            + self.links.len()
            + self.neighbours.len()
            + self.objects.len()
    }
}
