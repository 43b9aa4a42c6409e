//! How many queues each port has, and which workers own them.

use manylane_frame::vocabulary::{QueueId, WorkerId};
use manylane_io::interface::Interface;

use super::PortError;
use crate::config::Config;

/// How many queues each port has and which workers own them, before anything is opened: the region's size
/// depends on it.
pub fn owners(config: &Config) -> Result<Vec<Vec<WorkerId>>, PortError> {
    let mut next = (0..config.workers.started as u16).map(WorkerId).cycle();
    let mut all = Vec::new();
    for port in &config.ports {
        let queues = match (port.driver.queues(), port.driver.interface()) {
            (None, Some(interface)) => {
                let read = Interface::read(interface);
                let name = port.name.clone();
                read.map_err(|source| PortError::Interface { port: name, source })?.receive_queues
                    as usize
            }
            (queues, _) => queues.unwrap_or(1).into(),
        };
        let owners = match &port.queue_owners {
            Some(owners) if owners.len() != queues => {
                let (port, owners) = (port.name.clone(), owners.len());
                return Err(PortError::Queues { port, owners, queues });
            }
            Some(owners) => owners.clone(),
            None => next.by_ref().take(queues).collect(),
        };
        all.push(owners);
    }
    Ok(all)
}

/// For each worker, the first queue that it owns of the first other port than `port` where it owns any.
pub(super) fn elsewhere(
    owners: &[Vec<WorkerId>],
    port: usize,
    workers: usize,
) -> Vec<Option<QueueId>> {
    let others = owners[..port].iter().chain(&owners[port + 1..]);
    let mut first = vec![None; workers];
    for (queue, owner) in others.flat_map(|owners| (0..).map(QueueId).zip(owners)) {
        first[usize::from(owner.0)].get_or_insert(queue);
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_worker_receives_elsewhere_is_its_first_queue_of_the_first_other_port() {
        let owners: Vec<Vec<_>> = [&[0, 1, 0, 1][..], &[0], &[2, 2, 1]]
            .map(|owners| owners.iter().copied().map(WorkerId).collect())
            .into();
        let all = |port| -> Vec<_> {
            elsewhere(&owners, port, 4).iter().map(|queue| queue.map(|queue| queue.0)).collect()
        };
        assert_eq!(all(0), [Some(0), Some(2), Some(0), None]);
        assert_eq!(all(1), [Some(0), Some(1), Some(0), None]);
        assert_eq!(all(2), [Some(0), Some(1), None, None]);
    }
}
