//! The writer: what is used again when, and what is refused.

use manylane_sync::rcu::{Domain, Reader};

use super::layout::{RECORD_WORDS, RECORDS, flags, record};
use super::*;
use crate::fib::{EditError, IpPrefix, Limits, NextHopId};
use crate::nexthop::{BUCKETS, Member, NextHop};
use crate::wire::ethernet::Mac;

#[test]
fn a_route_leads_by_id_and_slot_to_a_record() {
    let (mut tables, _) = bed();
    let (id, slot) = (tables.take_id().expect("one"), tables.take_slot().expect("one"));
    assert_eq!((tables.next_hop(id), tables.adjacency(slot)), (NextHop::None, None));
    tables.set_slot(slot, Some(way(7))).expect("a record is free");
    tables.set_next_hop(id, NextHop::Via(slot));
    let prefix: IpPrefix = "10.0.0.0/8".parse().expect("well formed");
    assert_eq!(tables.insert(prefix, id), Ok(None));
    assert_eq!(tables.lookup([10, 1, 2, 3].into()), Some((prefix, id)));
    assert_eq!((tables.next_hop(id), tables.adjacency(slot)), (NextHop::Via(slot), Some(way(7))));
    assert_eq!((tables.remove(prefix), tables.routes_len()), (Ok(Some(id)), (0, 0)));
}

#[test]
fn what_is_retired_comes_back_after_a_grace_period_only() {
    let (mut tables, mut reader) = bed();
    let (id, slot) = (tables.take_id().expect("one"), tables.take_slot().expect("one"));
    tables.set_slot(slot, Some(way(1))).expect("a record is free");
    let ids: Vec<NextHopId> = std::iter::from_fn(|| tables.take_id()).collect();
    let slots: Vec<u32> = std::iter::from_fn(|| tables.take_slot()).collect();
    assert_eq!((ids.len(), slots.len()), (layout::NEXT_HOPS - 3, layout::SLOTS - 1));
    assert_eq!(tables.waiting(), 0);
    tables.retire_id(id);
    tables.retire_slot(slot);
    assert_eq!(tables.waiting(), 2);
    assert_eq!(tables.adjacency(slot), Some(way(1)), "for who is on the way there");
    assert_eq!((tables.take_id(), tables.take_slot()), (None, None));
    reader.quiescent();
    assert_eq!((tables.take_id(), tables.take_slot()), (Some(id), Some(slot)));
    assert_eq!((tables.adjacency(slot), tables.waiting()), (None, 1), "its record");
    tables.reclaim();
    reader.quiescent();
    tables.reclaim();
    assert_eq!(tables.waiting(), 0);
}

#[test]
fn without_a_free_record_a_slot_stays_as_it_was() {
    let (mut tables, mut reader) = bed();
    let slot = tables.take_slot().expect("one");
    // Record 0 is none, and the last one is in use.
    for mtu in 1..RECORDS as u32 {
        tables.set_slot(slot, Some(way(mtu))).expect("a record is free");
    }
    let last = Some(way(RECORDS as u32 - 1));
    let busy = EditError::Busy { waiting: RECORDS - 2, waiting_max: RECORDS - 2 };
    assert_eq!(tables.set_slot(slot, Some(way(9))), Err(busy));
    assert_eq!(tables.adjacency(slot), last);
    assert_eq!(tables.set_slot(slot, last), Ok(()), "nothing is to be written");
    reader.quiescent();
    assert_eq!(tables.set_slot(slot, Some(way(9))), Ok(()));
    assert_eq!(tables.set_slot(slot, None), Ok(()));
    assert_eq!(tables.adjacency(slot), None);
}

#[test]
fn a_record_is_stamped_twice_and_never_written_while_it_is_found() {
    let memory = Memory::zeroed(&Sizes::for_routes(0, 0));
    let (record_of, records) = (memory.record_of.reader(), memory.records.reader());
    let domain = Domain::new(1);
    let _reader = domain.register().expect("the first fits");
    let mut tables = TransitMut::new(memory, domain, &Limits::default());
    let slot = tables.take_slot().expect("one");
    let mut former: Vec<(usize, [u32; RECORD_WORDS])> = Vec::new();
    for mtu in 1..100 {
        tables.set_slot(slot, Some(way(mtu))).expect("a record is free");
        tables.reclaim();
        let at = record_of.load(slot as usize) as usize * RECORD_WORDS;
        let words: [u32; RECORD_WORDS] = records.load_array(at);
        let [first, last] = record::STAMPS.map(|place| words[place]);
        assert_eq!((first, last, words[record::MTU]), (mtu, mtu, mtu));
        former.push((at, words));
    }
    for (at, words) in former {
        assert_eq!(records.load_array(at), words, "a reader may look at it still");
    }
}

#[test]
fn flows_leave_a_member_that_cannot_be_sent_to() {
    let (mut tables, _) = bed();
    let [one, other] = [(); 2].map(|()| tables.take_slot().expect("one"));
    tables.set_slot(one, Some(way(1))).expect("a record is free");
    let members = [one, other].map(|slot| Member { slot, weight: 1 });
    let group = tables.add_group(&members).expect("one");
    let buckets = |tables: &TransitMut| -> Vec<usize> {
        tables.members(group).map(|(_, buckets)| buckets).collect()
    };
    assert_eq!(buckets(&tables), [BUCKETS, 0]);
    tables.set_slot(other, Some(way(2))).expect("a record is free");
    assert_eq!(buckets(&tables), [BUCKETS / 2; 2]);
    tables.set_slot(one, None).expect("never refused");
    assert_eq!(buckets(&tables), [0, BUCKETS]);
}

#[test]
fn a_port_is_read_as_it_was_set() {
    let (mut tables, _) = bed();
    let facts = PortRecord { flags: flags::INGRESS | flags::EGRESS, ifindex: 77, mac: mac(3) };
    tables.set_port(255, facts);
    assert_eq!((tables.port(255), tables.port(254)), (facts, PortRecord::default()));
    assert!(tables.set_port_of(65_535, Some(255)) && !tables.set_port_of(65_536, Some(255)));
}

fn bed() -> (TransitMut, Reader) {
    let domain = Domain::new(1);
    let reader = domain.register().expect("the first fits");
    let memory = Memory::zeroed(&Sizes::for_routes(0, 0));
    (TransitMut::new(memory, domain, &Limits::default()), reader)
}

fn way(mtu: u32) -> Adjacency {
    Adjacency { egress_ifindex: 5, egress_port: 2, mtu, destination: mac(1), source: mac(2) }
}

fn mac(last: u8) -> Mac {
    Mac([2, 0x10, 0x20, 0x30, 0x40, last])
}
