//! Two workers: one for each of two links, and one for each queue of the same link.

use std::thread;

use crate::scenario::Scenario;
use manylane_io::affinity;
use manylane_lab::scenario::all_answered;
use manylane_lab::{LabOptions, RouterOptions, SERVER_V4, SERVER_V6, tcp_transfer, udp_stream};

fn start(queues: u32) -> Option<Scenario> {
    if affinity::cores().map_or(1, |cores| cores.len()) < 2 {
        manylane_lab::scenario::skip("two workers want two cores");
        return None;
    }
    let lab = LabOptions { queues, ..LabOptions::default() };
    let steering = "queue"; // By flow, each would forward for both: see `netns::handoff`.
    Scenario::start_with(lab, &RouterOptions { workers: 2, steering, ..RouterOptions::default() })
}

#[test]
fn each_link_has_a_worker_of_its_own() {
    let Some(scenario) = start(1) else { return };
    for destination in [SERVER_V4, SERVER_V6] {
        all_answered(&scenario.lab.client, destination, 1000);
        let (client, server) = (&scenario.lab.client, &scenario.lab.server);
        let report = tcp_transfer(client, server, destination, 8 << 20)
            .unwrap_or_else(|error| panic!("{destination}: {error}"));
        assert!(report.is_intact(), "{destination}: {report:?}");
    }
    assert_both_forwarded(&scenario);
    scenario.finish();
}

#[test]
fn each_queue_of_a_link_has_a_worker_of_its_own() {
    let Some(scenario) = start(2) else { return };
    scenario.warm_up(&[SERVER_V4, SERVER_V6]);
    let cores = affinity::cores().expect("every thread may ask");
    let before = scenario.losses();
    // A veth chooses the queue by flow, or by the core of the sender: many of both.
    thread::scope(|scope| {
        for flow in 0..8 {
            let (scenario, before, core) = (&scenario, &before, cores[flow % 2]);
            scope.spawn(move || {
                affinity::pin(core).expect("the core is one of ours");
                let destination = [SERVER_V4, SERVER_V6][flow / 2 % 2];
                let (client, server) = (&scenario.lab.client, &scenario.lab.server);
                let report = udp_stream(client, server, destination, 500, 500, 0)
                    .unwrap_or_else(|error| panic!("{destination}: {error}"));
                assert_eq!(report.damaged + report.duplicated + report.reordered, 0);
                let lost = scenario.losses().since(before);
                assert_eq!(report.received, report.sent, "{destination}: {lost:#?}");
            });
        }
    });
    for destination in [SERVER_V4, SERVER_V6] {
        let (client, server) = (&scenario.lab.client, &scenario.lab.server);
        let report = tcp_transfer(client, server, destination, 8 << 20)
            .unwrap_or_else(|error| panic!("{destination}: {error}"));
        assert!(report.is_intact(), "{destination}: {report:?}");
    }
    assert_both_forwarded(&scenario);
    scenario.finish();
}

fn assert_both_forwarded(scenario: &Scenario) {
    let workers = scenario.source().workers();
    assert_eq!(workers.len(), 2);
    for worker in workers {
        println!(
            "worker {} ({:?}): received {}, transmitted {}",
            worker.worker, worker.queues, worker.received, worker.transmitted
        );
        assert!(worker.received > 100, "{worker:?}");
        assert!(worker.transmitted > 100, "{worker:?}");
    }
}
