//! `manylane show steering`.

use crate::terminal::table::{count, lay_out, plural};
use manylane_api::{PairStatus, PortSteeringStatus, QueueOwner, SteeringStatus, TransmitQueue};

pub(crate) fn steering(status: &SteeringStatus) -> String {
    let ports = status.ports.iter().map(|port| {
        vec![
            port.port.clone(),
            port.steering.clone(),
            queues(port),
            forwarders(port),
            port.why.clone(),
        ]
    });
    let mut shown = lay_out(&["Port", "Steering", "Received by", "Forwarded by", "Why"], ports);
    for port in &status.ports {
        let late = port.buckets.iter().filter(|bucket| bucket.held_by.is_some()).count();
        if late > 0 {
            let buckets = plural(late, "bucket");
            shown += &format!("{}: {buckets} on the way to another worker.\n", port.port);
        }
    }
    for worker in status.workers.iter().filter(|worker| worker.paused) {
        shown += &format!("Worker {} is paused.\n", worker.worker);
    }
    let exits = status.ports.iter().map(|port| vec![port.port.clone(), exits(port)]);
    shown += &format!("\n{}", lay_out(&["Port", "Sent by"], exits));
    let pairs = status.pairs.iter().map(|pair: &PairStatus| {
        vec![
            format!("{} to {}", pair.from, pair.to),
            count(pair.handed),
            count(pair.batches),
            count(pair.backlog),
            count(pair.waits),
            count(pair.backlog_full),
            count(pair.flow_limit),
        ]
    });
    if !status.pairs.is_empty() {
        let titles = [
            "Workers",
            ">Handed on",
            ">Batches",
            ">Backlog",
            ">Waits",
            ">Backlog full",
            ">Flow limit",
        ];
        shown += &format!("\n{}", lay_out(&titles, pairs));
    }
    let backlog = match status.netdev_max_backlog_max {
        0 => String::new(),
        max => format!("netdev_max_backlog {} (at most {max}), ", status.netdev_max_backlog),
    };
    let rebalance = match status.rebalance {
        true => format!("on, {} moved", plural(status.rebalanced as usize, "bucket")),
        false => "off".into(),
    };
    let order = match status.reorder_sample {
        0 => "not looked at".into(),
        one_in => format!(
            "looked at for one flow in {}: {} of {} packets were reordered",
            count(one_in.into()),
            count(status.reordered),
            count(status.reorder_sampled),
        ),
    };
    shown
        + &format!(
            "\n{backlog}netdev_budget {}, dev_weight {}.\nRebalancing is {rebalance}.\nOrder is {order}.\n",
            status.netdev_budget, status.dev_weight
        )
}

/// The workers that receive, one for each queue.
fn queues(port: &PortSteeringStatus) -> String {
    let one = |queue: &QueueOwner| {
        let QueueOwner { queue, worker, moving_to } = queue;
        let moving = moving_to.map_or(String::new(), |to| format!(", going to {to}"));
        format!("worker {worker} (queue {queue}{moving})")
    };
    port.queues.iter().map(one).collect::<Vec<_>>().join("\n")
}

/// The queue by which each worker sends, where workers have one.
fn exits(port: &PortSteeringStatus) -> String {
    let one = |exit: &TransmitQueue| {
        let queue = exit.queue.map(|queue| format!("worker {} (queue {queue})", exit.worker));
        queue.unwrap_or_else(|| format!("worker {}", exit.worker))
    };
    if port.transmit_queues.iter().all(|exit| exit.queue.is_none()) {
        return "each worker".into();
    }
    port.transmit_queues.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The workers that forward, and how many of the buckets each has.
fn forwarders(port: &PortSteeringStatus) -> String {
    if port.buckets.is_empty() {
        return "who receives".into();
    }
    let mut workers: Vec<u16> = port.buckets.iter().map(|bucket| bucket.worker).collect();
    workers.sort_unstable();
    let runs = workers.chunk_by(|a, b| a == b);
    let one = |run: &[u16]| format!("worker {}: {} of {}", run[0], run.len(), port.buckets.len());
    runs.map(one).collect::<Vec<_>>().join("\n")
}
