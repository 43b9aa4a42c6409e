use manylane_sync::rcu::Reader;
use manylane_sync::refcount::faults;

use super::super::NextHopsMut;
use super::*;

const HOP: NextHopId = NextHopId::new(7).expect("it is small");

#[test]
fn facts_are_read_as_they_were_published() {
    let (mut dsts, reader) = bed(4);
    let side = dsts.reader();
    assert!(borrow(&side, &reader).is_none());
    for facts in [
        facts(1500),
        Facts { neighbour: None, flags: Flags::LOCAL, mtu: u32::MAX, ..facts(0) },
        Facts {
            neighbour: Some(u32::MAX),
            port: PortId(u16::MAX),
            flags: Flags(u16::MAX),
            ..facts(0)
        },
    ] {
        dsts.publish(&facts).expect("there is room");
        let dst = borrow(&side, &reader).expect("it is published");
        assert_eq!(*dst.facts(), facts);
        let held = side.hold(dst);
        assert_eq!(side.facts(&held), facts);
        side.put(reader.guard(), held);
    }
    dsts.withdraw(HOP);
    assert!(borrow(&side, &reader).is_none());
}

#[test]
fn a_held_dst_outlives_its_turn_and_its_withdrawal() {
    let (mut dsts, mut reader) = bed(2);
    let side = dsts.reader();
    dsts.publish(&facts(1500)).expect("there is room");
    let held = side.hold(borrow(&side, &reader).expect("it is published"));
    let twin = side.duplicate(&held);
    dsts.publish(&facts(1400)).expect("there is a second record");
    let in_use = DstsInUse { records: 2, held: 0 };
    assert_eq!(dsts.publish(&facts(1300)), Err(in_use), "the first waits for its grace period");
    reader.quiescent();
    let in_use = DstsInUse { records: 2, held: 1 };
    assert_eq!(dsts.publish(&facts(1300)), Err(in_use), "and then for its holders");
    side.put(reader.guard(), held);
    assert_eq!((dsts.held(), side.facts(&twin).mtu), (1, 1500));
    side.put(reader.guard(), twin);
    assert_eq!(dsts.held(), 0);
    dsts.publish(&facts(1300)).expect("it is free");
    assert_eq!(borrow(&side, &reader).expect("it is published").facts().mtu, 1300);
}

#[test]
fn a_borrowed_dst_keeps_its_record_to_the_end_of_the_turn() {
    let (mut dsts, mut reader) = bed(2);
    let side = dsts.reader();
    dsts.publish(&facts(1500)).expect("there is room");
    let dst = borrow(&side, &reader).expect("it is published");
    dsts.publish(&facts(1400)).expect("there is a second record");
    assert!(dsts.publish(&facts(1300)).is_err());
    let held = side.hold(dst); // In the same turn that is not too late.
    assert_eq!(side.facts(&held).mtu, 1500);
    reader.quiescent();
    assert!(dsts.publish(&facts(1300)).is_err());
    side.put(reader.guard(), held);
    assert!(dsts.publish(&facts(1300)).is_ok());
}

#[test]
fn a_step_of_the_generation_makes_what_is_held_stale() {
    let (mut dsts, reader) = bed(4);
    let mut next_hops = NextHopsMut::new(WordsMut::zeroed(16));
    dsts.generation = next_hops.generation();
    let side = dsts.reader();
    dsts.publish(&facts(1500)).expect("there is room");
    let held = side.hold(borrow(&side, &reader).expect("it is published"));
    assert!(!side.is_stale(&held));
    dsts.publish(&facts(1500)).expect("that is no news");
    assert!(!side.is_stale(&held) && !dsts.is_held(HOP));
    next_hops.step();
    assert!(side.is_stale(&held));
    let newer = side.hold(borrow(&side, &reader).expect("it is published"));
    assert!(!side.is_stale(&newer));
    [held, newer].into_iter().for_each(|held| side.put(reader.guard(), held));
}

/// Its slot must not be another's before.
#[test]
fn a_next_hop_is_held_until_its_last_holder_has_put_it() {
    let (mut dsts, mut reader) = bed(4);
    let side = dsts.reader();
    dsts.publish(&facts(1500)).expect("there is room");
    let old = side.hold(borrow(&side, &reader).expect("it is published"));
    dsts.publish(&facts(1400)).expect("there is room");
    let new = side.hold(borrow(&side, &reader).expect("it is published"));
    dsts.withdraw(HOP);
    reader.quiescent();
    assert!(dsts.is_held(HOP) && dsts.held() == 2);
    side.put(reader.guard(), old);
    assert!(dsts.is_held(HOP) && dsts.held() == 1);
    side.put(reader.guard(), new);
    assert!(!dsts.is_held(HOP) && dsts.held() == 0);
    dsts.publish(&facts(1500)).expect("there is room");
    dsts.withdraw(HOP);
    assert!(dsts.is_held(HOP), "a worker in its turn may still hold it");
    reader.quiescent();
    assert!(!dsts.is_held(HOP));
}

#[test]
fn a_reference_that_is_dropped_is_counted() {
    let (mut dsts, mut reader) = bed(1);
    let side = dsts.reader();
    dsts.publish(&facts(1500)).expect("there is room");
    let before = faults().refs_leaked;
    drop(side.hold(borrow(&side, &reader).expect("it is published")));
    assert_eq!(faults().refs_leaked, before + 1);
    dsts.withdraw(HOP);
    reader.quiescent();
    assert_eq!(dsts.held(), 1);
    assert_eq!(dsts.publish(&facts(1500)), Err(DstsInUse { records: 1, held: 1 }));
}

fn bed(records: usize) -> (DstsMut, Reader) {
    let domain = Domain::new(1);
    let reader = domain.register().expect("the first fits");
    let generation = NextHopsMut::new(WordsMut::zeroed(16)).generation();
    (DstsMut::new(domain, 16, records, generation), reader)
}

fn facts(mtu: u32) -> Facts {
    let (port, flags) = (PortId(3), Flags::default());
    Facts { next_hop: HOP, neighbour: Some(0), port, mtu, flags }
}

fn borrow<'g>(side: &Dsts, reader: &'g Reader) -> Option<Dst<'g>> {
    let generation = side.generation();
    side.borrow(reader.guard(), Index::<()>::new(reader.guard(), HOP.raw().into()), generation)
}
