//! The one writer of the tables: the mirror thread.
//!
//! | file        | what it writes                                                     |
//! |-------------|--------------------------------------------------------------------|
//! | `routes`    | prefixes                                                           |
//! | `next_hops` | next-hop ids, neighbours' slots with their records, groups         |
//! | `adjacency` | nothing: [`Adjacency`] and its form in a record                    |
//! | `ports`     | ports, and which of them an interface or a VLAN is                 |
//! | `control`   | lease, flows, what may be done about groups, rules, further tables |

use manylane_sync::rcu::{Domain, Slots};
use manylane_sync::words::{Words, WordsMut};

use super::flows::FlowsReader;
use super::layout::{
    BUCKETS, CONTROL, FURTHER, INTERFACES, NEXT_HOPS, PORT_WORDS, PORTS, RECORD_WORDS, RECORDS,
    RULE_LISTS, RULE_WORDS, RULES, SLOTS, TABLES, UNKNOWN, VLAN_PORTS,
};
use super::lease::LeaseMut;
use super::own::OwnMut;
use super::policy::PolicyMut;
use super::{Memory, Transit};
use crate::fib::{Ipv4Tables, Ipv4Writer, Ipv6Tables, Ipv6Writer, Limits, NextHopId, PackedMut};
use crate::nexthop::{NextHop, NextHopsMut};

mod adjacency;
mod control;
mod next_hops;
mod ports;
mod routes;

pub use adjacency::Adjacency;
pub use control::Multipath;
pub use ports::PortRecord;
pub(super) use ports::mac;

/// Writes the tables while programs and workers read them.
///
/// Nothing waits. What a reader may still look at, memory of the FIB, a group, a next-hop id, a slot, a
/// record, is used again after a grace period of the domain. Until then a call that is short of it says
/// [`EditError::Busy`](crate::fib::EditError::Busy), or `None`, and has changed nothing: after [`TransitMut::reclaim`] it can be
/// repeated.
///
/// | what goes     | first make sure that                                                               |
/// |---------------|------------------------------------------------------------------------------------|
/// | next-hop id   | no route has it                                                                    |
/// | group         | no next hop leads to it                                                            |
/// | slot          | no next hop leads to it, and no group has it as a member                           |
/// | further table | no rule leads to it                                                                |
///
/// # Invariants
///
/// 1. A record's number is in use exactly while `record_of` names it for one slot.
/// 2. A record is written while its number is in use and `record_of` does not name it yet, and never else.
pub struct TransitMut {
    ipv4: Ipv4Writer<PackedMut>,
    ipv6: Ipv6Writer,
    own: OwnMut,
    next_hops: NextHopsMut,
    record_of: WordsMut<u32>,
    records: WordsMut<u32>,
    ports: WordsMut<u32>,
    port_of: WordsMut<u16>,
    vlan_port: WordsMut<u16>,
    control: WordsMut<u64>,
    /// All of `control`, with the lease's words.
    control_reader: Words<u64>,
    /// Until a caller takes it.
    lease: Option<LeaseMut>,
    /// What the writer of flows is made of, until a caller takes it.
    flows: Option<[WordsMut<u64>; 3]>,
    flows_reader: FlowsReader,
    domain: Domain,
    policy: PolicyMut,
    ids: Slots,
    slots: Slots,
    record_numbers: Slots,
    /// The stamp of the record written last.
    stamp: u32,
}

impl TransitMut {
    /// The writer of `memory`, whose readers all are members of `domain`, or stood for by one.
    ///
    /// # Panics
    ///
    /// When a table has not the size that [`layout`](super::layout) gives it, or `limits` leave no room for an edit.
    pub fn new(memory: Memory, domain: Domain, limits: &Limits) -> TransitMut {
        let Memory { direct4, chunks4, blocks4, groups4, ranges4, .. } = memory;
        let direct = PackedMut::new(direct4, chunks4, &domain, limits.waiting_max);
        let ipv4 = Ipv4Tables { direct, blocks: blocks4, groups: groups4, ranges: ranges4 };
        let Memory { direct6, index6, leaves6, .. } = memory;
        let ipv6 = Ipv6Tables { direct: direct6, index: index6, leaves: leaves6 };
        let Memory { own4, next_hops, buckets, record_of, records, .. } = memory;
        let Memory { ports, port_of, vlan_port, mut control, rules, roots, further, .. } = memory;
        let Memory { flow_index, flow_entries, flow_addresses, .. } = memory;
        let flows = [flow_index, flow_entries, flow_addresses];
        for (table, words, wanted) in [
            ("next_hops", next_hops.len(), NEXT_HOPS),
            ("buckets", buckets.len(), BUCKETS),
            ("record_of", record_of.len(), SLOTS),
            ("records", records.len(), RECORDS * RECORD_WORDS),
            ("ports", ports.len(), PORTS * PORT_WORDS),
            ("port_of", port_of.len(), INTERFACES),
            ("vlan_port", vlan_port.len(), VLAN_PORTS),
            ("control", control.len(), CONTROL),
            ("rules", rules.len(), RULE_LISTS * RULES * RULE_WORDS),
            ("roots", roots.len(), TABLES),
            ("further", further.len(), FURTHER),
        ] {
            assert_eq!(words, wanted, "words of `{table}`");
        }
        // Number 0 has no owner, of ids and of records; nor has the last id, which is the kernel's.
        let numbers = |count: usize| Slots::new(count as u32, domain.clone(), None);
        let (mut ids, mut record_numbers) = (numbers(UNKNOWN.into()), numbers(RECORDS));
        assert_eq!([ids.take(), record_numbers.take()], [Some(0); 2]);
        let mut next_hops = NextHopsMut::with_groups(next_hops, buckets, domain.clone(), 0);
        next_hops.set(NextHopId::new(UNKNOWN).expect("not 0"), NextHop::Kernel);
        TransitMut {
            ipv4: Ipv4Writer::new(ipv4, &domain, *limits),
            ipv6: Ipv6Writer::new(ipv6, &domain, *limits),
            own: OwnMut::new(own4, NEXT_HOPS),
            next_hops,
            record_of,
            records,
            ports,
            port_of,
            vlan_port,
            control_reader: control.reader(),
            lease: Some(LeaseMut::split_off(&mut control)),
            control,
            flows_reader: FlowsReader::of(&flows),
            flows: Some(flows),
            domain: domain.clone(),
            policy: PolicyMut::new(rules, roots, further, &domain),
            ids,
            slots: numbers(SLOTS),
            record_numbers,
            stamp: 0,
        }
    }

    /// A readers' side, which decides as the program does.
    pub fn reader(&self) -> Transit {
        Transit {
            ipv4: self.ipv4.reader(),
            ipv6: self.ipv6.reader(),
            next_hops: self.next_hops.reader(),
            record_of: self.record_of.reader(),
            records: self.records.reader(),
            ports: self.ports.reader(),
            port_of: self.port_of.reader(),
            vlan_port: self.vlan_port.reader(),
            control: self.control_reader.clone(),
            flows: Some(self.flows_reader.clone()),
            policy: self.policy.reader(),
        }
    }

    /// Takes back what has had its grace period, and begins one for what was retired since. After each
    /// pass of edits, and whenever a grace period is over.
    pub fn reclaim(&mut self) {
        self.ipv4.reclaim();
        self.ipv6.reclaim();
        self.next_hops.reclaim();
        self.policy.reclaim();
        for numbers in [&mut self.ids, &mut self.slots, &mut self.record_numbers] {
            numbers.reclaim();
        }
    }

    /// How much waits for a grace period: while anything does, the caller has to run one.
    pub fn waiting(&self) -> usize {
        let numbers = [&self.ids, &self.slots, &self.record_numbers].map(waiting);
        let tables = [self.ipv4.waiting(), self.ipv6.waiting(), self.next_hops.waiting()];
        numbers.into_iter().chain(tables).chain([self.policy.waiting()]).sum()
    }
}

/// A free number, if one is free by now.
pub(super) fn take(numbers: &mut Slots) -> Option<u32> {
    if numbers.levels().free == 0 {
        numbers.reclaim();
    }
    numbers.take()
}

fn waiting(numbers: &Slots) -> usize {
    let levels = numbers.levels();
    levels.retired + levels.in_flight
}
