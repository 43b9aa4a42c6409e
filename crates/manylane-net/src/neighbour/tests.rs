//! The rooms' files together: what a worker and the control thread do with them.

use std::time::Duration;

use manylane_frame::{Depot, Region, RegionConfig};
use manylane_sync::rcu::{Domain, Index};

use super::*;

/// A worker holds three packets, control asks and publishes, and the worker's next turn releases them
/// in order before anything newer. Then the neighbour goes, and its slot serves another.
#[test]
fn held_packets_leave_in_order_once_the_neighbour_answers() {
    let region = Region::new(RegionConfig { frames: 64, frame_size: 2048 }).expect("128 KiB");
    let mut pool = Depot::new(region, 1).expect("the region is new").pool();
    let domain = Domain::new(1);
    let mut table = Table::new(TableConfig::default());
    let words = AdjacencyWords::boxed(table.slots_max());
    let mut control =
        Control { table: &mut table, writer: AdjacencyTable::new(domain.clone(), words) };
    let adjacencies = control.writer.reader();
    let mut worker = domain.register().expect("there is room for one");
    let mut holds = HoldQueues::new(HoldLimits::default());

    // First turn: the slot is known by its next hop, and unresolved.
    let slot = control.apply(at(0), |table, out| table.pin(HOST, at(0), out)).expect("room");
    let seen = adjacencies.generation();
    let mut held = Vec::new();
    for _ in 0..3 {
        let guard = worker.guard();
        let adjacency = adjacencies.load(guard, Index::new(guard, slot));
        assert_eq!(adjacency.state(), AdjacencyState::Unresolved);
        let key = adjacencies.key(adjacency);
        assert_eq!(key, HOST);
        let frame = pool.take().expect("the pool is large enough");
        held.push(frame.index());
        holds.push(key, frame, 1, 0, |_| panic!("there is room")).expect("there is room");
    }
    worker.quiescent();
    assert_eq!(adjacencies.generation(), seen, "no news: nothing to look through");

    let answer = Report::Answer { key: HOST, mac: Some(MAC), kind: Kind::ArpReply };
    control.apply(at(1), |table, out| table.handle(answer, at(1), out));

    // The next turn sees a new generation, and looks at its held packets before it receives.
    assert_ne!(adjacencies.generation(), seen);
    let guard = worker.guard();
    let adjacency = adjacencies.load(guard, Index::new(guard, slot));
    assert_eq!(adjacency.state(), AdjacencyState::Resolved);
    assert_eq!(adjacency.header()[10..16], MAC);
    let mut released = Vec::new();
    for frame in holds.take(HOST) {
        released.push(frame.index());
        pool.give_back(frame);
    }
    assert_eq!(released, held);

    // The route goes, then the neighbour, then, after the record's grace period and its own, the slot
    // is free again.
    control.table.unpin(slot);
    control.apply(at(2), |table, out| table.forget(HOST, at(2), out));
    for _ in 0..2 {
        assert_eq!(control.writer.next_quiet_slot(), None);
        worker.quiescent();
    }
    let quiet = control.writer.next_quiet_slot();
    assert_eq!(quiet, Some(slot));
    control.table.free(slot);
}

/// What the control thread does with actions.
struct Control<'a> {
    table: &'a mut Table,
    writer: AdjacencyTable,
}

impl Control<'_> {
    fn apply<R>(
        &mut self,
        now: Duration,
        what: impl FnOnce(&mut Table, &mut Vec<Action>) -> R,
    ) -> R {
        let mut actions = Vec::new();
        let result = what(self.table, &mut actions);
        self.table.tick(now, &mut actions);
        for action in actions {
            match action {
                Action::Solicit { .. } => {}
                Action::Publish { slot, key, state, mac } => {
                    let header = mac.map(|mac| Header::ethernet(mac, OURS, 0x0800));
                    let header = header.unwrap_or_default();
                    let rewrite = Rewrite { key, egress: key.port, state, header, mtu: 1500 };
                    self.writer.publish(slot, &rewrite).expect("a record is free");
                }
                Action::Remove { slot, .. } => self.writer.withdraw(slot),
            }
        }
        result
    }
}

const HOST: Key = Key { port: PortId(1), addr: IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7)) };
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const OURS: [u8; 6] = [2, 0, 0, 0, 0, 0xff];

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
