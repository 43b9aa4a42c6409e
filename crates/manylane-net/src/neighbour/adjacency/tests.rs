use std::net::Ipv4Addr;

use super::*;

#[test]
fn an_adjacency_reads_as_it_was_published() {
    let domain = Domain::new(1);
    let reader = domain.register().expect("there is room for one");
    let mut table = AdjacencyTable::new(domain.clone(), AdjacencyWords::boxed(4));
    let adjacencies = table.reader();
    let tags = Tags::NONE.and(0x8100, 7).expect("there is room for one");
    let header = Header::tagged([1; 6], [2; 6], tags, 0x86dd);
    let key = Key { port: PortId(513), addr: "fe80::1".parse().expect("an address") };
    let (state, egress) = (AdjacencyState::ResolvedReport, PortId(3));
    let rewrite = Rewrite { key, egress, state, header, mtu: 9000 };
    table.publish(3, &rewrite).expect("there is a record");

    let guard = reader.guard();
    let adjacency = adjacencies.load(guard, Index::new(guard, 3));
    assert_eq!(adjacency.state(), AdjacencyState::ResolvedReport);
    assert_eq!(adjacency.header_len(), 18);
    assert_eq!(
        adjacency.header()[6..],
        [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 0x81, 0, 0, 7, 0x86, 0xdd]
    );
    assert_eq!((adjacency.egress(), adjacency.mtu()), (egress, 9000));
    assert_eq!(adjacencies.key(adjacency), key);
    let mut untagged = [0; 14];
    adjacency.write_untagged(&mut untagged);
    assert_eq!(untagged, [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 0x86, 0xdd]);
    assert_eq!(adjacencies.published(adjacency), adjacencies.generation());
}

#[test]
fn an_ipv4_neighbour_keeps_its_address() {
    let domain = Domain::new(1);
    let reader = domain.register().expect("there is room for one");
    let mut table = AdjacencyTable::new(domain.clone(), AdjacencyWords::boxed(1));
    table.publish(0, &resolved(7)).expect("there is a record");
    let guard = reader.guard();
    let adjacencies = table.reader();
    assert_eq!(adjacencies.addr(adjacencies.load(guard, Index::new(guard, 0))), HOST);
}

/// A slot that was never published, or no longer is, must not send anything anywhere.
#[test]
fn a_slot_without_a_neighbour_is_unresolved() {
    let domain = Domain::new(1);
    let mut reader = domain.register().expect("there is room for one");
    let mut table = AdjacencyTable::new(domain.clone(), AdjacencyWords::boxed(2));
    let adjacencies = table.reader();
    let state = |reader: &manylane_sync::rcu::Reader| {
        let guard = reader.guard();
        let adjacency = adjacencies.load(guard, Index::new(guard, 1));
        (adjacency.state(), adjacency.header_len())
    };
    assert_eq!(state(&reader), (AdjacencyState::Unresolved, 0));
    table.publish(1, &resolved(1)).expect("there is a record");
    assert_eq!(state(&reader), (AdjacencyState::Resolved, 14));
    table.withdraw(1);
    assert_eq!(state(&reader), (AdjacencyState::Unresolved, 0));

    assert_eq!(table.next_quiet_slot(), None, "a worker may still hold the slot");
    reader.quiescent();
    assert_eq!(table.next_quiet_slot(), None, "the record was first, the slot waits for the next");
    reader.quiescent();
    assert_eq!(table.next_quiet_slot(), Some(1));
    assert_eq!(table.next_quiet_slot(), None);
}

/// The other choice would be to wait for the workers, or to write a record that one of them reads.
#[test]
fn a_change_with_no_free_record_is_refused_until_the_grace_period_is_over() {
    let domain = Domain::new(1);
    let mut reader = domain.register().expect("there is room for one");
    let words = AdjacencyWords {
        current: WordsMut::zeroed(1),
        records: WordsMut::zeroed(3 * RECORD_WORDS),
    };
    let mut table = AdjacencyTable::new(domain.clone(), words);
    table.publish(0, &resolved(1)).expect("record 1 is free");
    table.publish(0, &resolved(2)).expect("record 2 is free");
    let generation = table.generation();
    let refused = table.publish(0, &resolved(3));
    assert_eq!(refused, Err(RecordsInUse { records: 3, waiting: 1 }));
    assert_eq!(table.generation(), generation, "nothing happened");
    reader.quiescent();
    table.publish(0, &resolved(3)).expect("record 1 is free again");
}

#[test]
fn every_change_has_a_generation() {
    let mut table = AdjacencyTable::new(Domain::new(0), AdjacencyWords::boxed(1));
    let adjacencies = table.reader();
    let before = adjacencies.generation();
    table.publish(0, &resolved(1)).expect("there is a record");
    assert_eq!(adjacencies.generation(), before.wrapping_add(1));
    table.withdraw(0);
    assert_eq!(adjacencies.generation(), before.wrapping_add(2));
}

/// N1 and N3. Every field of version `n` follows from `n`; a mixture of two versions would show.
#[test]
fn n1_a_reader_sees_a_whole_record() {
    const VERSIONS: u32 = 10_000;
    let domain = Domain::new(2);
    // Few records, so that each is reused hundreds of times, as soon as its grace period allows.
    let words = AdjacencyWords {
        current: WordsMut::zeroed(1),
        records: WordsMut::zeroed(33 * RECORD_WORDS),
    };
    let mut table = AdjacencyTable::new(domain.clone(), words);
    table.publish(0, &resolved(0)).expect("there is a record");
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let mut reader = domain.register().expect("there is room for two");
            let adjacencies = table.reader();
            std::thread::spawn(move || {
                let mut newest = 0;
                while newest != VERSIONS {
                    let guard = reader.guard();
                    let generation = adjacencies.generation();
                    for _ in 0..16 {
                        let adjacency = adjacencies.load(guard, Index::new(guard, 0));
                        let version = adjacency.mtu();
                        assert!(version >= newest, "a version came back");
                        newest = version;
                        let expected = resolved(version);
                        assert_eq!(adjacency.header()[10..], *expected.header.as_bytes());
                        assert_eq!(adjacencies.addr(adjacency), HOST);
                        let published = adjacencies.published(adjacency);
                        assert_eq!(published, version + 1, "N1: word 6 is of the version");
                        assert!(published >= generation, "N3: older than the generation");
                    }
                    reader.quiescent();
                }
            })
        })
        .collect();
    let mut refused = 0u64;
    for version in 1..=VERSIONS {
        while table.publish(0, &resolved(version)).is_err() {
            refused += 1;
            std::thread::yield_now();
        }
    }
    for reader in readers {
        reader.join().expect("no reader saw a mixture");
    }
    assert!(refused > 0, "no record was ever waited for: the test is too small to show reuse");
}

/// N2. The reader's side has no store to call; this watches that it stays so.
#[test]
fn n2_resolving_writes_nothing() {
    let domain = Domain::new(1);
    let reader = domain.register().expect("there is room for one");
    let mut table = AdjacencyTable::new(domain.clone(), AdjacencyWords::boxed(8));
    for slot in 0..8 {
        table.publish(slot, &resolved(slot)).expect("there is a record");
    }
    let adjacencies = table.reader();
    let all_words = |table: &AdjacencyTable| -> Vec<u64> {
        let current = (0..table.words.current.len()).map(|at| table.words.current.load(at));
        let records = (0..table.words.records.len()).map(|at| table.words.records.load(at));
        current.map(u64::from).chain(records).chain([table.generation().into()]).collect()
    };
    let before = all_words(&table);
    let guard = reader.guard();
    for turn in 0..10_000 {
        let index = Index::new(guard, turn % 8);
        let record = adjacencies.prefetch(guard, Some(index));
        assert!(adjacencies.plain(record).is_some());
        let adjacency = adjacencies.load(guard, index);
        assert_eq!(adjacencies.addr(adjacency), HOST);
        assert!(adjacency.state().is_resolved() && adjacencies.generation() == 8);
    }
    assert_eq!(all_words(&table), before);
}

/// What a plain one leaves out of its record is nothing.
#[test]
fn plain_is_what_may_simply_be_sent_behind_an_ethernet_header() {
    let domain = Domain::new(1);
    let reader = domain.register().expect("there is room for one");
    let mut table = AdjacencyTable::new(domain.clone(), AdjacencyWords::boxed(2));
    let adjacencies = table.reader();
    let (guard, plain) = (reader.guard(), resolved(0x1234_5678));
    let index = Index::new(guard, 1);
    let record = || adjacencies.prefetch(guard, Some(index));
    assert!(adjacencies.plain(record()).is_none(), "nothing is published");
    table.publish(1, &plain).expect("there is a record");
    let (found, whole) = (adjacencies.plain(record()), adjacencies.load(guard, index));
    let found = found.expect("it is resolved, and has no tag");
    assert_eq!(found.header(), whole.header());
    assert_eq!((found.egress(), found.mtu()), (plain.egress, plain.mtu));
    assert_eq!(adjacencies.key(found), plain.key);
    let nobodys = adjacencies.prefetch(guard, None);
    assert!(adjacencies.plain(nobodys).is_none(), "there is no neighbour");
    let tags = Tags::NONE.and(0x8100, 7).expect("there is room for one");
    let tagged = Header::tagged([1; 6], [2; 6], tags, 0x0800);
    use AdjacencyState::{Failed, ResolvedReport, Unresolved};
    let others = [Failed, ResolvedReport, Unresolved].map(|state| Rewrite { state, ..plain });
    for other in others.into_iter().chain([Rewrite { header: tagged, ..plain }]) {
        table.publish(1, &other).expect("there is a record");
        assert!(adjacencies.plain(record()).is_none(), "{other:?}");
    }
}

#[test]
#[should_panic(expected = "need more than")]
fn a_table_that_could_never_change_is_refused() {
    let words = AdjacencyWords {
        current: WordsMut::zeroed(4),
        records: WordsMut::zeroed(5 * RECORD_WORDS),
    };
    AdjacencyTable::new(Domain::new(0), words);
}

const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

fn resolved(version: u32) -> Rewrite {
    let [a, b, c, d] = version.to_be_bytes();
    let header = Header::ethernet([d, c, b, a, d, c], [b, a, d, c, b, a], version as u16);
    let key = Key { port: PortId(version as u16), addr: HOST };
    let state = AdjacencyState::Resolved;
    Rewrite { key, egress: key.port, state, header, mtu: version }
}
