//! `[steering]`: how workers hand packets on to each other. The names are those of Linux
//! (Documentation/admin-guide/sysctl/net.rst), where one CPU hands packets to another's backlog.

use std::ops::RangeInclusive;

use manylane_frame::BATCH_MAX;
use manylane_frame::vocabulary::WorkerId;

use super::error::Problem;
use super::section::Section;
use super::settings::Workers;

/// How workers hand packets on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steering {
    /// Packets that wait in the ring from one worker to another: one of [`BACKLOGS`].
    pub netdev_max_backlog: u32,
    /// Packets that a worker takes in a turn, over all of its queues and rings: one of [`BUDGETS`].
    pub netdev_budget: u32,
    /// Packets that it takes from one of them at a time: one of [`WEIGHTS`].
    pub dev_weight: u32,
    /// Whether buckets are moved from workers with much to do to workers with little.
    pub rebalance: bool,
    /// Workers that have rings to hand packets on by, besides the owners of queues that are steered by flow.
    pub receivers: Vec<WorkerId>,
}

/// What [`Steering::netdev_max_backlog`] may be.
pub const BACKLOGS: RangeInclusive<u32> = 64..=32_768;
/// What [`Steering::netdev_budget`] may be.
pub const BUDGETS: RangeInclusive<u32> = 1..=65_536;
/// What [`Steering::dev_weight`] may be.
pub const WEIGHTS: RangeInclusive<u32> = 1..=BATCH_MAX as u32;

/// Which worker forwards what a port's queues receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortSteering {
    /// The worker that receives it.
    Queue,
    /// The worker that has the bucket of its flow.
    Flow,
}

impl PortSteering {
    /// As the configuration, the API and tables spell them.
    pub const WORDS: &'static [(&'static str, PortSteering)] =
        &[("queue", PortSteering::Queue), ("flow", PortSteering::Flow)];

    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            PortSteering::Queue => "queue",
            PortSteering::Flow => "flow",
        }
    }
}

pub(super) fn steering(file: &Section<'_>, workers: &Workers) -> Result<Steering, Problem> {
    let section = file.table("steering", "[steering]")?;
    let number = |key: &str, bounds: RangeInclusive<u32>, default: u32| {
        let (min, max) = bounds.into_inner();
        let number = section.number(key, min.into()..=max.into())?;
        Ok(number.map_or(default, |number| number.into_inner()))
    };
    let count = workers.count();
    let receivers = section.numbers::<u16>("receivers", 0..=u64::from(u16::MAX))?;
    let receivers = receivers.map_or(Vec::new(), |list| list.into_inner());
    if let Some(wrong) = receivers.iter().find(|worker| usize::from(*worker.get_ref()) >= count) {
        let range = if count == 1 { "0".into() } else { format!("0 to {}", count - 1) };
        return Err(Problem::new(
            wrong.span(),
            "no such worker for `receivers` in [steering]",
            format!("the workers are {range}"),
            format!("choose {range}, or raise `count` or `max` in [workers]"),
        ));
    }
    Ok(Steering {
        netdev_max_backlog: number("netdev_max_backlog", BACKLOGS, 1000)?,
        netdev_budget: number("netdev_budget", BUDGETS, 300)?,
        dev_weight: number("dev_weight", WEIGHTS, 64)?,
        rebalance: section.boolean("rebalance")?.unwrap_or(false),
        receivers: receivers.into_iter().map(|worker| WorkerId(worker.into_inner())).collect(),
    })
}
