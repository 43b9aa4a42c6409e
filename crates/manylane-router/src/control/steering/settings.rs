//! What an operator sets of the steering, by its key, while the daemon runs.

use std::ops::RangeInclusive;

use manylane_frame::vocabulary::WorkerId;
use manylane_sync::handoff::GROUP;

use super::{SteeredPort, Steering};
use crate::config::{BACKLOGS, BUDGETS, PortSteering, WEIGHTS};
use manylane_api::{ApiError, PortState, SetError, SettingValue};
use manylane_worker::worker::handoff::limits;

impl Steering {
    /// Changes what `key` names, if it is about steering.
    pub fn set(&mut self, key: &str, value: &str) -> Option<Result<SettingValue, SetError>> {
        let limit = |word, bounds| Some((word, bounds));
        let limit = match key {
            "steering.netdev_budget" => limit(limits::BUDGET, BUDGETS),
            "steering.dev_weight" => limit(limits::WEIGHT, WEIGHTS),
            "steering.netdev_max_backlog" => limit(limits::MAX_BACKLOG, BACKLOGS),
            "workers" => return Some(self.set_workers(value)),
            "steering.rebalance" => return Some(self.set_rebalance(key, value)),
            "steering.reorder_sample" => return Some(self.set_reorder_sample(key, value)),
            _ => None,
        };
        if let Some((word, bounds)) = limit {
            return Some(self.set_limit(key, value, word, bounds.into_inner()));
        }
        if let Some(worker) = within(key, "worker.", ".paused") {
            return Some(self.set_paused(key, worker, value));
        }
        if let Some(port) = within(key, "port.", ".steering") {
            return Some(self.set_port(port, value));
        }
        let of_port = key.strip_prefix("port.")?;
        if let Some((port, queue)) = of_port.rsplit_once(".queue.") {
            return Some(self.set_queue(port, queue, value));
        }
        if let Some((port, bucket)) = of_port.rsplit_once(".bucket.") {
            return Some(self.set_bucket(port, bucket, value));
        }
        let port = of_port.strip_suffix(".buckets")?;
        Some(self.set_buckets(port, value))
    }

    fn set_limit(
        &mut self,
        key: &str,
        value: &str,
        word: usize,
        (min, max): (u32, u32),
    ) -> Result<SettingValue, SetError> {
        let number: u32 =
            value.parse().ok().filter(|number| (min..=max).contains(number)).ok_or_else(|| {
                refused(
                    format!("{key} cannot be {value}"),
                    format!("choose a number from {min} to {max}"),
                )
            })?;
        if word == limits::MAX_BACKLOG && number > self.capacity {
            let most = self.capacity;
            return Err(refused(
                format!("{key} cannot be {number}: the rings were made for {most}"),
                format!("choose at most {most}, or start with more in [steering]"),
            ));
        }
        self.limits.publish(word, number);
        Ok(SettingValue::Number(number.into()))
    }

    fn set_rebalance(&mut self, key: &str, value: &str) -> Result<SettingValue, SetError> {
        self.rebalances = flag(key, value)?;
        self.look_again();
        Ok(SettingValue::Flag(self.rebalances))
    }

    /// Sets how many flows share one whose order is checked, or 0 for none.
    fn set_reorder_sample(&mut self, key: &str, value: &str) -> Result<SettingValue, SetError> {
        let number: u32 =
            value.parse().ok().filter(|number| *number <= REORDER_SAMPLE_MAX).ok_or_else(|| {
                let help = format!(
                    "choose 1 for every flow, up to {REORDER_SAMPLE_MAX} for one in that number, or 0 for none"
                );
                refused(format!("{key} cannot be {value}"), help)
            })?;
        if number > 0 && !self.has_rings() {
            return Err(refused(
                format!("{key} cannot be {number}: no packet is handed on"),
                "start with several workers, and `steering = \"flow\"` for a port".into(),
            ));
        }
        let period = self.limits.load(limits::SAMPLE_PERIOD).wrapping_add(1).max(1);
        self.limits.publish(limits::SAMPLE_PERIOD, period);
        self.limits.publish(limits::REORDER_SAMPLE, number);
        self.tell();
        Ok(SettingValue::Number(number.into()))
    }

    /// Pauses a worker: it gets no more buckets, and gives away those it has, once they are drained.
    fn set_paused(
        &mut self,
        key: &str,
        worker: &str,
        value: &str,
    ) -> Result<SettingValue, SetError> {
        let paused = flag(key, value)?;
        let worker = self.worker(worker)?;
        self.must_run(worker)?;
        let kept = |&(at, port): &(usize, &SteeredPort)| {
            port.steering == PortSteering::Queue
                && self.receivers_of(at).any(|receiver| receiver.0 == worker)
        };
        let kept = self.ports.iter().enumerate().find(kept);
        if let Some((_, SteeredPort { name, .. })) = kept.filter(|_| paused) {
            return Err(refused(
                format!(
                    "worker {worker} cannot be paused: it forwards what it receives by `{name}`"
                ),
                format!("set port.{name}.steering to `flow` first"),
            ));
        }
        let mut others = (0..self.paused.len() as u16).filter(|&other| other != worker);
        if paused && !others.any(|other| self.is_active(other)) {
            return Err(refused(
                format!("worker {worker} cannot be paused: no other would be left"),
                "resume another first".into(),
            ));
        }
        self.paused[usize::from(worker)] = paused;
        for port in &mut self.ports {
            for (stand_in, &assigned) in port.stand_ins.iter_mut().zip(&port.assigned) {
                *stand_in = stand_in.filter(|_| assigned != worker);
            }
        }
        self.publish();
        Ok(SettingValue::Flag(paused))
    }

    fn set_port(&mut self, port: &str, value: &str) -> Result<SettingValue, SetError> {
        let at = self.port(port)?;
        let found = PortSteering::WORDS.iter().find(|(word, _)| *word == value);
        let Some(&(word, steering)) = found else {
            let help = "choose `queue` or `flow`".into();
            return Err(refused(format!("port.{port}.steering cannot be {value}"), help));
        };
        let port = &self.ports[at];
        let lacks = self.receivers_of(at).find(|owner| !self.receivers[usize::from(owner.0)]);
        if let (PortSteering::Flow, Some(WorkerId(owner))) = (steering, lacks) {
            let help = match self.paused.len() {
                1 => "start with more workers".to_owned(),
                _ => format!(
                    "start with `steering = \"flow\"` for the port, or with {owner} among `receivers` in \
                     [steering]"
                ),
            };
            return Err(refused(
                format!(
                    "port `{}` cannot be steered by flow: worker {owner}, which receives, has no rings to \
                     the others",
                    port.name
                ),
                help,
            ));
        }
        let paused = self.receivers_of(at).find(|owner| self.paused[usize::from(owner.0)]);
        if let (PortSteering::Queue, Some(WorkerId(owner))) = (steering, paused) {
            return Err(refused(
                format!(
                    "port `{}` cannot be steered by queue: worker {owner} is paused",
                    port.name
                ),
                format!("set worker.{owner}.paused to `false` first"),
            ));
        }
        let port = &mut self.ports[at];
        (port.steering, port.why) = (steering, "as set while running".into());
        self.publish();
        Ok(SettingValue::Word(word.into()))
    }

    fn set_bucket(
        &mut self,
        port: &str,
        bucket: &str,
        value: &str,
    ) -> Result<SettingValue, SetError> {
        let at = self.port(port)?;
        let Some(bucket) = self::bucket(bucket) else {
            let (error, help) =
                (format!("bucket {bucket} does not exist"), "there are 0 to 255".into());
            return Err(SetError::UnknownKey(ApiError { error, help }));
        };
        let worker = self.taker(value)?;
        self.must_have_buckets(at)?;
        self.ports[at].assigned[bucket] = worker;
        self.publish();
        Ok(SettingValue::Number(worker.into()))
    }

    /// Changes which workers have these buckets, all or none of them: `0-127=0,128-255=1,7=2`, later ones over earlier
    /// ones.
    fn set_buckets(&mut self, port: &str, value: &str) -> Result<SettingValue, SetError> {
        let at = self.port(port)?;
        self.must_have_buckets(at)?;
        let mut assigned = self.ports[at].assigned.clone();
        for part in value.split(',') {
            let Some((buckets, worker)) = buckets_and_worker(part) else {
                return Err(refused(
                    format!("port.{port}.buckets cannot be `{part}`"),
                    "write BUCKET=WORKER or FIRST-LAST=WORKER, with buckets from 0 to 255, and a comma between several"
                        .into(),
                ));
            };
            let worker = self.taker(worker)?;
            assigned[buckets].fill(worker);
        }
        self.ports[at].assigned = assigned;
        self.publish();
        Ok(SettingValue::Word(value.into()))
    }

    /// A worker that may be given buckets.
    fn taker(&self, value: &str) -> Result<u16, SetError> {
        let worker = self.value_worker(value)?;
        if self.paused[usize::from(worker)] {
            return Err(refused(
                format!("worker {worker} takes no bucket: it is paused"),
                format!("choose another, or set worker.{worker}.paused to `false`"),
            ));
        }
        Ok(worker)
    }

    fn must_have_buckets(&self, at: usize) -> Result<(), SetError> {
        let SteeredPort { name, steering, .. } = &self.ports[at];
        if *steering == PortSteering::Flow {
            return Ok(());
        }
        Err(refused(
            format!("port `{name}` has no buckets: the worker that receives forwards"),
            format!("set port.{name}.steering to `flow` first"),
        ))
    }

    /// The place of an open port.
    pub fn port(&self, name: &str) -> Result<usize, SetError> {
        let open = || self.ports.iter().filter(|port| port.state == PortState::Open);
        let is_it = |port: &SteeredPort| port.name == name && port.state == PortState::Open;
        self.ports.iter().position(is_it).ok_or_else(|| {
            let names: Vec<_> = open().map(|port| format!("`{}`", port.name)).collect();
            let help = format!("there are {}", names.join(", "));
            SetError::UnknownKey(ApiError { error: format!("port `{name}` does not exist"), help })
        })
    }

    fn worker(&self, number: &str) -> Result<u16, SetError> {
        let workers = self.paused.len() as u16;
        number.parse().ok().filter(|&number| number < workers).ok_or_else(|| {
            let help = match workers {
                1 => "there is 0".to_owned(),
                _ => format!("there are 0 to {}", workers - 1),
            };
            SetError::UnknownKey(ApiError {
                error: format!("worker {number} does not exist"),
                help,
            })
        })
    }

    /// A worker, as the value of a setting.
    pub(super) fn value_worker(&self, value: &str) -> Result<u16, SetError> {
        let worker = self.worker(value).map_err(|error| match error {
            SetError::UnknownKey(error) => SetError::BadValue(error),
            error => error,
        })?;
        self.must_run(worker)?;
        Ok(worker)
    }

    fn must_run(&self, worker: u16) -> Result<(), SetError> {
        if self.runs(worker) {
            return Ok(());
        }
        let help = format!("set workers to at least {} first", worker + 1);
        Err(refused(format!("worker {worker} does not run"), help))
    }
}

/// The middle of a key.
fn within<'k>(key: &'k str, before: &str, after: &str) -> Option<&'k str> {
    key.strip_prefix(before)?.strip_suffix(after)
}

/// `12=1`, or `0-127=1`: some buckets, and the number of a worker.
fn buckets_and_worker(text: &str) -> Option<(RangeInclusive<usize>, &str)> {
    let (buckets, worker) = text.split_once('=')?;
    let (first, last) = buckets.split_once('-').unwrap_or((buckets, buckets));
    let (first, last) = (bucket(first)?, bucket(last)?);
    (first <= last).then_some((first..=last, worker))
}

fn bucket(number: &str) -> Option<usize> {
    number.parse().ok().filter(|&bucket| bucket < GROUP)
}

fn flag(key: &str, value: &str) -> Result<bool, SetError> {
    value
        .parse()
        .map_err(|_| refused(format!("{key} cannot be {value}"), "choose `true` or `false`".into()))
}

pub(super) fn refused(error: String, help: String) -> SetError {
    SetError::BadValue(ApiError { error, help })
}

/// The order of one flow in this number, at most, is checked.
const REORDER_SAMPLE_MAX: u32 = 65_536;
