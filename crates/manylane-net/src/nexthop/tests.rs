use super::*;
use crate::wire::flow::flow_hash;
use crate::wire::flow::tests::{colliding_v4, colliding_v6};
use manylane_sync::rcu::Reader;

#[test]
fn each_kind_is_read_as_it_was_set() {
    let mut table = NextHopsMut::new(WordsMut::zeroed(16));
    let reader = table.reader();
    let domain = Domain::new(1);
    let registered = domain.register().expect("the first fits");
    let guard = registered.guard();
    let kinds = [
        NextHop::Via(70_000),
        NextHop::Connected(PortId(3)),
        NextHop::Local,
        NextHop::Broadcast,
        NextHop::Blackhole,
        NextHop::Unreachable,
        NextHop::Prohibit,
        NextHop::Group(GroupId(1023)),
        NextHop::Kernel,
        NextHop::None,
    ];
    for (number, kind) in (1..).zip(kinds) {
        table.set(NextHopId::new(number).expect("it is small"), kind);
        let read = reader.load(guard, Index::<()>::new(guard, number.into()));
        let read = match read {
            NextHop::Via(index) => NextHop::Via(index.raw()),
            NextHop::Connected(port) => NextHop::Connected(port),
            NextHop::Local => NextHop::Local,
            NextHop::Broadcast => NextHop::Broadcast,
            NextHop::Blackhole => NextHop::Blackhole,
            NextHop::Unreachable => NextHop::Unreachable,
            NextHop::Prohibit => NextHop::Prohibit,
            NextHop::Group(group) => NextHop::Group(group),
            NextHop::Kernel => NextHop::Kernel,
            NextHop::None => NextHop::None,
        };
        let id = NextHopId::new(number).expect("it is small");
        assert_eq!((read, table.get(id)), (kind, kind));
    }
    assert_eq!(reader.load(guard, Index::<()>::new(guard, 0)), NextHop::None);
}

/// An attacker makes flows with one and the same hash by the public key: the seed, applied to that hash, would leave
/// all of them to one member. The key that follows from the seed parts them, in both families.
#[test]
fn flows_made_to_collide_by_the_public_key_are_shared_by_the_members() {
    let families = [colliding_v4(100), colliding_v6(100)];
    for flows in &families {
        let hash = flow_hash(&flows[0]);
        assert!(flows.iter().all(|flow| flow_hash(flow) == hash), "they collide");
    }
    for seed in [0x1122_3344_5566_7788, 0x9d5c_03f1_7ab2_4e68] {
        let (mut table, registered) = bed(2);
        table.set_seed(seed);
        let members = [member(3, 1), member(9, 1)];
        let group = table.add_group(&members, |_| true).expect("there are two");
        let (reader, guard) = (table.reader(), registered.guard());
        for flows in &families {
            let of_one = |flow: &&Vec<u8>| reader.member(guard, group, flow).raw() == 3;
            let count = flows.iter().filter(of_one).count();
            assert!((20..80).contains(&count), "seed {seed:#x}: {count} of 100 to one of two");
        }
    }
}

#[test]
fn flows_of_a_group_go_to_its_members() {
    let (mut table, registered) = bed(2);
    let reader = table.reader();
    let group = table.add_group(&[member(3, 1), member(9, 3)], |_| true).expect("there are two");
    let flows = |slot| {
        let guard = registered.guard();
        (0..4096).filter(|&hash| reader.member_by(guard, group, 0, hash).raw() == slot).count()
    };
    assert_eq!(flows(3) + flows(9), 4096);
    assert!((900..1150).contains(&flows(3)), "{} of 4096 are a quarter", flows(3));

    let generation = reader.generation();
    assert!(table.set_resolved(3, false));
    assert_eq!((flows(3), flows(9)), (0, 4096));
    assert_eq!(reader.generation(), generation + 2);
    assert!(!table.set_resolved(3, false) && !table.set_resolved(4, false));
    assert_eq!(reader.generation(), generation + 2, "nothing moved");
    table.set_members(group, &[member(3, 1), member(5, 1)], |_| true);
    assert_eq!(flows(9), 0);
    assert!(!table.set_resolved(9, false), "a member no more");
}

#[test]
fn one_neighbour_may_be_in_several_groups() {
    let (mut table, _) = bed(3);
    let shared = [member(1, 1), member(2, 1)];
    let one = table.add_group(&shared, |_| true).expect("there are three");
    let other = table.add_group(&[member(2, 1), member(3, 1)], |_| true).expect("a second");
    let none = table.add_group(&[member(4, 1)], |_| true).expect("and a third");
    assert!(table.set_resolved(2, false));
    let buckets = |id| -> Vec<usize> { table.members(id).map(|(_, buckets)| buckets).collect() };
    assert_eq!(buckets(one), [BUCKETS, 0]);
    assert_eq!(buckets(other), [0, BUCKETS]);
    assert_eq!(buckets(none), [BUCKETS]);
}

/// A worker may have the number of a group that is gone, to the end of its turn.
#[test]
fn a_groups_number_is_used_again_after_a_grace_period() {
    let (mut table, mut registered) = bed(1);
    let members = [member(1, 1)];
    let group = table.add_group(&members, |_| true).expect("there is one");
    let full = GroupsFull { groups_max: 1 };
    assert_eq!(table.add_group(&members, |_| true), Err(full));
    table.remove_group(group);
    assert_eq!(table.add_group(&members, |_| true), Err(full));
    registered.quiescent();
    assert_eq!(table.add_group(&members, |_| true), Ok(group));
}

fn bed(groups: usize) -> (NextHopsMut, Reader) {
    let domain = Domain::new(1);
    let reader = domain.register().expect("the first fits");
    let buckets = WordsMut::zeroed(groups * BUCKETS);
    (NextHopsMut::with_groups(WordsMut::zeroed(16), buckets, domain, 42), reader)
}

fn member(slot: u32, weight: u16) -> Member {
    Member { slot, weight }
}
