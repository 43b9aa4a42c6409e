//! How each port is to be steered, and what rings that takes: decided by the configuration, before anything opens.

use manylane_frame::vocabulary::WorkerId;
use manylane_frame::{BATCH_MAX, CHAIN_MAX};

use crate::config::{Config, PortSteering};
use crate::control::frames::Line;

/// How each port is to be steered and which workers need rings for that.
pub struct Plan {
    pub(super) ports: Vec<(PortSteering, String)>,
    pub(super) receivers: Vec<bool>,
}

impl Plan {
    /// For `config`, whose queues are owned by `owners`.
    pub fn new(config: &Config, owners: &[Vec<WorkerId>]) -> Plan {
        let workers = config.workers.count();
        // Where workers come and go, any may have to take another's queue.
        let mut receivers = vec![config.workers.started < workers; workers];
        for receiver in config.steering.receivers.iter().filter(|_| workers > 1) {
            receivers[usize::from(receiver.0)] = true;
        }
        let ports = config.ports.iter().zip(owners).map(|(port, owners)| {
            let queues = match owners.len() {
                1 => "1 queue".to_owned(),
                queues => format!("{queues} queues"),
            };
            let (steering, why) = match port.steering {
                _ if workers == 1 => (PortSteering::Queue, "one worker forwards all".into()),
                Some(steering) => (steering, "as configured".into()),
                None if owners.len() < workers => {
                    (PortSteering::Flow, format!("{queues} for {workers} workers"))
                }
                None => (PortSteering::Queue, format!("{queues} for {workers} workers")),
            };
            if steering == PortSteering::Flow {
                owners.iter().for_each(|owner| receivers[usize::from(owner.0)] = true);
            }
            (steering, why)
        });
        let ports = ports.collect();
        Plan { ports, receivers }
    }

    /// Whether any worker has rings.
    pub(super) fn has_rings(&self) -> bool {
        self.receivers.contains(&true)
    }
}

/// Frames that can lie between workers, when a packet has up to `chain` of them.
pub fn lines(config: &Config, owners: &[Vec<WorkerId>], chain: u64) -> Option<Line> {
    let plan = Plan::new(config, owners);
    let receivers = plan.receivers.iter().filter(|&&receives| receives).count() as u64;
    let others = config.workers.count() as u64 - 1;
    let ring = u64::from(config.steering.netdev_max_backlog.next_power_of_two());
    let (batch, behind) = (BATCH_MAX as u64, chain.min(CHAIN_MAX as u64) - 1);
    let (frames, reckoning) = match behind {
        0 => (ring, format!("{ring}")),
        _ => (
            2 * ring + batch * behind,
            format!("({ring} packets + {ring} parts + {batch} x {behind})"),
        ),
    };
    plan.has_rings().then(|| Line {
        holder: "between workers".into(),
        reckoning: format!("{receivers} x {others} x {reckoning}"),
        frames: receivers * others * frames,
    })
}
