//! What needs no kernel: the owners of queues, the memory that they need, and the sums of counts.

use manylane_frame::vocabulary::WorkerId;

use super::counts::{Place, Rows, WorkerCounts};
use super::socket_manager::{owners, room};
use super::*;

#[test]
fn queues_of_one_number_are_one_workers_where_there_are_enough() {
    let of = |port, queues, workers| -> Vec<u16> {
        owners(port, queues, workers).into_iter().map(|WorkerId(worker)| worker).collect()
    };
    for port in [1, 2, 7] {
        assert_eq!(of(port, 4, 2), [0, 1, 0, 1], "port {port}");
        assert_eq!(of(port, 1, 1), [0], "port {port}");
    }
    assert_eq!((of(1, 1, 2), of(2, 1, 2), of(3, 1, 2)), (vec![0], vec![1], vec![0]));
    assert_eq!((of(1, 2, 3), of(2, 2, 3)), (vec![0, 1], vec![1, 2]));
}

#[test]
fn memory_is_for_all_rings_or_rings_are_shorter() {
    let (frames, ring) = room(&[1, 1], 1);
    assert_eq!((frames, ring), (2 * 1024 * (2 + 2) + 2 * 1024, 1024));
    let (frames, ring) = room(&[64; 16], 16);
    assert_eq!((frames, ring), (1 << 18, 128), "no more than that, and none shorter");
    let (frames, ring) = room(&[], 1);
    assert_eq!((frames, ring), (2048, 1024));
}

#[test]
fn there_is_a_worker_on_every_machine() {
    for (cores, workers) in [(1, 1), (2, 1), (8, 7), (1000, 127)] {
        assert_eq!(by_default(cores), workers);
    }
}

#[test]
fn what_was_handed_up_is_sent_dropped_or_queued() {
    let (mut one, mut two, mut socket_manager) = (Rows::new(), Rows::new(), Rows::new());
    let counts = WorkerCounts::new(vec![one.reader(), two.reader()], socket_manager.reader());
    one.add(3, Place::PacketsIn, 50);
    two.add(3, Place::PacketsIn, 30);
    two.add(3, Place::Changed, 2);
    one.set(3, Place::Full, 4);
    one.add(3, Place::Unsent, 1);
    assert_eq!(counts.port(3).queued(100), 100 - 80 - 7);
    // Three lay on a ring that was closed; five more had not been read.
    socket_manager.add(3, Place::PacketsIn, 3);
    socket_manager.add(3, Place::Unsent, 3);
    socket_manager.add(3, Place::Lost, 5);
    let row = counts.port(3);
    assert_eq!((row.packets_in, row.unsent, row.lost), (77, 4, 5));
    assert_eq!(row.queued(100), 100 - 77 - 2 - 4 - 4 - 5);
    assert_eq!(row.queued(10), 0, "never fewer than none");
    let names: Vec<_> = row.dropped().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["decision_changed", "worker_full", "worker_unsent", "worker_lost"]);
    assert!(names.iter().all(|name| !meaning(name).is_empty()));
    assert_eq!((counts.port(4), counts.port(300)), Default::default());
}
