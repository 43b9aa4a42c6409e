//! What is decided at the start, and what an operator may change.

use manylane_io::eventfd::EventFd;
use manylane_sync::doorbell::Doorbell;

use super::load::REBALANCE_INTERVAL;
use super::*;
use crate::config::Environment;
use manylane_api::WorkerState;
use manylane_api::{SetError, SettingValue};
use manylane_worker::worker::queue_handover::queue_handover;

#[test]
fn a_port_with_fewer_queues_than_workers_is_steered_by_flow() {
    let plan = |workers: u16, ports: &[(&str, &[u16])]| {
        let (config, owners) = configured(workers, ports);
        let plan = Plan::new(&config, &owners);
        let names: Vec<_> = plan.ports.iter().map(|(steering, _)| steering.name()).collect();
        (names, plan.ports[0].1.clone(), plan.receivers)
    };
    let expected = (vec!["flow"], "1 queue for 3 workers".into(), vec![false, true, false]);
    assert_eq!(plan(3, &[("", &[1])]), expected);
    let expected = (vec!["queue", "flow"], "2 queues for 2 workers".into(), vec![true, false]);
    assert_eq!(plan(2, &[("", &[0, 1]), ("", &[0])]), expected);
    let expected = (vec!["queue"], "as configured".into(), vec![false, false]);
    assert_eq!(plan(2, &[("queue", &[0])]), expected);
    let expected = (vec!["flow"], "as configured".into(), vec![true, true]);
    assert_eq!(plan(2, &[("flow", &[0, 1])]), expected);
    let expected = (vec!["queue"], "one worker forwards all".into(), vec![false]);
    assert_eq!(plan(1, &[("flow", &[0])]), expected, "there is nobody to hand on to");
}

#[test]
fn limits_change_within_their_bounds() {
    let mut steering = steering(2, &[("", &[0])]);
    for (key, value, word) in [
        ("steering.netdev_max_backlog", 128, limits::MAX_BACKLOG),
        ("steering.netdev_budget", 1, limits::BUDGET),
        ("steering.dev_weight", 16, limits::WEIGHT),
        ("steering.reorder_sample", 65_536, limits::REORDER_SAMPLE),
        ("steering.reorder_sample", 0, limits::REORDER_SAMPLE),
    ] {
        assert_eq!(set(&mut steering, key, &value.to_string()), Ok(SettingValue::Number(value)));
        assert_eq!(u64::from(steering.limits().load(word)), value);
    }
    let beyond = set(&mut steering, "steering.netdev_max_backlog", "1025").unwrap_err();
    assert!(beyond.contains("the rings were made for 1024"), "{beyond}");
    for (key, value) in [
        ("steering.netdev_max_backlog", "63"),
        ("steering.dev_weight", "65"),
        ("steering.netdev_budget", "many"),
        ("steering.rebalance", "maybe"),
        ("steering.reorder_sample", "65537"),
    ] {
        let refused = set(&mut steering, key, value).unwrap_err();
        assert!(refused.contains("choose "), "{refused}");
    }
    assert!(steering.set("steering.netdev_maxbacklog", "1").is_none());
    assert!(steering.set("port.lan", "1").is_none());
    let mut alone = self::steering(1, &[("", &[0])]);
    let refused = set(&mut alone, "steering.reorder_sample", "1").unwrap_err();
    assert!(refused.contains("no packet is handed on"), "{refused}");
    assert!(set(&mut alone, "steering.reorder_sample", "0").is_ok());
}

#[test]
fn buckets_follow_the_operator_and_leave_who_is_paused() {
    let mut steering = steering(3, &[("", &[0]), ("queue", &[2])]);
    let wanted = |steering: &Steering, port: usize| -> Vec<u16> {
        (0..GROUP).map(|bucket| steering.map.wanted(port * GROUP + bucket)).collect()
    };
    assert_eq!(wanted(&steering, 0)[..4], [0, 1, 2, 0]);
    assert_eq!(wanted(&steering, 1), [RECEIVER; GROUP]);
    assert_eq!(set(&mut steering, "port.p.0.bucket.3", "2"), Ok(SettingValue::Number(2)));
    assert_eq!(wanted(&steering, 0)[..4], [0, 1, 2, 2]);

    let generation = |steering: &Steering| steering.limits().load(limits::GENERATION);
    let before = generation(&steering);
    let all = "0-255=0,4-7=1,7=2";
    assert_eq!(set(&mut steering, "port.p.0.buckets", all), Ok(SettingValue::Word(all.into())));
    assert_eq!(wanted(&steering, 0)[..9], [0, 0, 0, 0, 1, 1, 1, 2, 0]);
    assert_eq!(generation(&steering), before + 1, "workers look once");
    set(&mut steering, "port.p.0.buckets", "0=0,1=1,2-3=2").expect("three workers run");

    assert_eq!(set(&mut steering, "worker.0.paused", "true"), Ok(SettingValue::Flag(true)));
    assert!(wanted(&steering, 0).iter().all(|&worker| worker == 1 || worker == 2));
    assert_eq!(wanted(&steering, 0)[1..4], [1, 2, 2], "who is not paused keeps its buckets");
    assert_eq!(set(&mut steering, "worker.0.paused", "false"), Ok(SettingValue::Flag(false)));
    assert_eq!(wanted(&steering, 0)[..4], [0, 1, 2, 2], "and who was has them again");

    assert_eq!(
        set(&mut steering, "port.p.0.steering", "queue"),
        Ok(SettingValue::Word("queue".into()))
    );
    assert_eq!(wanted(&steering, 0), [RECEIVER; GROUP]);
}

#[test]
fn what_cannot_be_is_refused_with_a_way_out() {
    let mut steering = steering(2, &[("", &[0]), ("queue", &[1])]);
    for (key, value, said) in [
        ("port.p.1.steering", "flow", "start with `steering = \"flow\"` for the port"),
        ("port.p.0.steering", "both", "choose `queue` or `flow`"),
        ("port.p.2.steering", "flow", "there are `p.0`, `p.1`"),
        ("port.p.1.bucket.0", "0", "set port.p.1.steering to `flow` first"),
        ("port.p.0.bucket.256", "0", "there are 0 to 255"),
        ("port.p.0.bucket.0", "2", "there are 0 to 1"),
        ("port.p.0.buckets", "0-255=0,1=2", "there are 0 to 1"),
        ("port.p.0.buckets", "0-255=1,3-2=1", "cannot be `3-2=1`"),
        ("port.p.0.buckets", "0-256=1", "with buckets from 0 to 255"),
        ("port.p.0.buckets", "0-255", "write BUCKET=WORKER"),
        ("port.p.0.buckets", "", "write BUCKET=WORKER"),
        ("port.p.1.buckets", "0-255=0", "set port.p.1.steering to `flow` first"),
        ("worker.1.paused", "true", "set port.p.1.steering to `flow` first"),
        ("worker.2.paused", "true", "there are 0 to 1"),
        ("port.p.0.queue.0", "1", "list its `workers` in the configuration"),
        ("port.p.0.queue.1", "1", "there is 0"),
        ("port.p.0.queue.0", "2", "there are 0 to 1"),
    ] {
        let refused = set(&mut steering, key, value).unwrap_err();
        assert!(refused.contains(said), "{key} = {value}: {refused}");
    }
    assert_eq!(
        steering.ports[0].assigned,
        spread(2),
        "refused parts change nothing, nor those before"
    );
    set(&mut steering, "worker.0.paused", "true").expect("worker 1 is left");
    for (key, value, said) in [
        ("worker.1.paused", "true", "no other would be left"),
        ("port.p.0.bucket.0", "0", "it is paused"),
        ("port.p.0.buckets", "0=1,1=0", "it is paused"),
        ("port.p.0.steering", "queue", "set worker.0.paused to `false` first"),
    ] {
        // The other port's worker could not be paused anyway.
        steering.ports[1].owners.clear();
        let refused = set(&mut steering, key, value).unwrap_err();
        assert!(refused.contains(said), "{key} = {value}: {refused}");
    }
}

/// Load decides which workers have them meanwhile, and they return all the same.
#[test]
fn buckets_that_were_rebalanced_while_their_worker_was_paused_come_back() {
    let (mut steering, mut handoffs) = steering_of(3, &[("", &[0])]);
    set(&mut steering, "steering.rebalance", "true").expect("there are rings");
    let wanted = |steering: &Steering| -> Vec<u16> {
        (0..GROUP).map(|bucket| steering.map.wanted(bucket)).collect()
    };
    let before = wanted(&steering);
    set(&mut steering, "worker.0.paused", "true").expect("two are left");
    for bucket in (0..GROUP).filter(|bucket| bucket % 3 == 1) {
        set(&mut steering, &format!("port.p.0.bucket.{bucket}"), "2").expect("it is not paused");
    }
    // All that worker 1 has now is worker 0's.
    let paused = wanted(&steering);
    let mut look = Look::default();
    look.again(&mut steering, &mut handoffs[0], &paused, [0, 100, 0]);
    assert_eq!(look.again(&mut steering, &mut handoffs[0], &paused, [0, 100, 0]), 8);
    let moved = (0..GROUP).filter(|&bucket| wanted(&steering)[bucket] != paused[bucket]);
    assert!(moved.clone().count() == 8 && moved.clone().all(|bucket| before[bucket] == 0));
    set(&mut steering, "worker.0.paused", "false").expect("it was");
    assert!((0..GROUP).all(|bucket| (wanted(&steering)[bucket] == 0) == (before[bucket] == 0)));
}

/// A queue that is on its way counts as there already: what would be refused then is refused now.
#[test]
fn who_gets_a_queue_counts_as_who_receives() {
    // Worker 1 has no rings.
    let mut steering = steering(2, &[("queue", &[0]), ("", &[0])]);
    steering.ports.iter_mut().for_each(|port| port.stays = false);
    set(&mut steering, "port.p.0.queue.0", "1").expect("by queue it needs none");
    let refused = set(&mut steering, "port.p.0.steering", "flow").unwrap_err();
    assert!(refused.contains("worker 1, which receives, has no rings"), "{refused}");
    let refused = set(&mut steering, "worker.1.paused", "true").unwrap_err();
    assert!(refused.contains("it forwards what it receives by `p.0`"), "{refused}");

    let mut steering = self::steering(2, &[("flow", &[0]), ("flow", &[1])]);
    steering.ports.iter_mut().for_each(|port| port.stays = false);
    set(&mut steering, "worker.1.paused", "true").expect("worker 0 is left");
    set(&mut steering, "port.p.0.queue.0", "1").expect("it only receives");
    let refused = set(&mut steering, "port.p.0.steering", "queue").unwrap_err();
    assert!(refused.contains("set worker.1.paused to `false` first"), "{refused}");
}

#[test]
fn as_many_workers_run_as_are_wanted_and_possible() {
    let refused = |ports: &[(&str, &[u16])], paused: &[&str], value: &str| {
        let mut steering = steering(3, ports);
        for worker in paused {
            set(&mut steering, &format!("worker.{worker}.paused"), "true")
                .expect("another is left");
        }
        set(&mut steering, "workers", value).expect_err("it cannot be")
    };
    for (ports, paused, value, said) in [
        (&[("flow", &[0][..])][..], &[][..], "4", "choose a number from 1 to 3"),
        (&[("flow", &[0])], &[], "0", "the daemon is laid out for 3"),
        (&[("flow", &[0])], &[], "two", "workers cannot be two"),
        (&[("flow", &[0])], &["0"], "1", "all that would be left are paused"),
        (&[("flow", &[2])], &[], "2", "it receives by `p.0`, which is in memory and stays with it"),
    ] {
        let refused = refused(ports, paused, value);
        assert!(refused.contains(said), "{value}: {refused}");
    }

    let mut steering = steering(3, &[("flow", &[0, 2])]);
    let wanted = |steering: &Steering| -> Vec<u16> {
        (0..4).map(|bucket| steering.map.wanted(bucket)).collect()
    };
    steering.ports[0].stays = false;
    assert_eq!(wanted(&steering), [0, 1, 2, 0]);
    assert_eq!(set(&mut steering, "workers", "2"), Ok(SettingValue::Number(2)));
    assert_eq!(wanted(&steering), [0, 1, 0, 0], "the others keep theirs");
    assert_eq!(steering.queues.moving_to(PortId(0), QueueId(1)), Some(WorkerId(0)));
    assert_eq!(steering.state(2), WorkerState::Draining);
    assert!(steering.is_parting());
    let still = set(&mut steering, "workers", "3").unwrap_err();
    assert!(still.contains("worker 2 is still leaving; try again"), "{still}");
    for (key, value) in [("port.p.0.bucket.1", "2"), ("worker.2.paused", "true")] {
        let refused = set(&mut steering, key, value).unwrap_err();
        assert!(refused.contains("set workers to at least 3 first"), "{key}: {refused}");
    }
}

#[test]
fn nothing_is_rebalanced_unless_wanted_and_not_at_the_first_look() {
    let mut steering = steering(2, &[("", &[0])]);
    assert_eq!(steering.deadline(), None);
    assert_eq!(steering.rebalance(&[1, 0], Duration::from_secs(1)), 0);
    set(&mut steering, "steering.rebalance", "true").expect("there are rings");
    assert_eq!(steering.deadline(), Some(REBALANCE_INTERVAL));
    assert_eq!(steering.rebalance(&[900_000_000, 0], Duration::from_secs(1)), 0);
    assert_eq!(steering.deadline(), Some(Duration::from_secs(1) + REBALANCE_INTERVAL));
}

/// Worker 0 has all the work. Eight buckets at a time move away, and the next eight when these have
/// moved, not before: the load that they take along is seen only then.
#[test]
fn nothing_more_is_rebalanced_while_buckets_wait_to_move() {
    let (mut steering, mut handoffs) = steering_of(2, &[("", &[0])]);
    set(&mut steering, "steering.rebalance", "true").expect("there are rings");
    let mut look = Look::default();
    let mut at: Vec<u16> = (0..GROUP).map(|bucket| steering.map.wanted(bucket)).collect();
    assert_eq!(look.again(&mut steering, &mut handoffs[0], &at, [100, 0]), 0, "the first");
    assert_eq!(look.again(&mut steering, &mut handoffs[0], &at, [100, 0]), 8);
    for _ in 0..3 {
        assert_eq!(look.again(&mut steering, &mut handoffs[0], &at, [100, 0]), 0);
    }
    at = (0..GROUP).map(|bucket| steering.map.wanted(bucket)).collect();
    assert_eq!(look.again(&mut steering, &mut handoffs[0], &at, [100, 0]), 8);
}

fn set(steering: &mut Steering, key: &str, value: &str) -> Result<SettingValue, String> {
    steering.set(key, value).expect("a key of steering").map_err(|error| match error {
        SetError::UnknownKey(error) | SetError::BadValue(error) | SetError::NoRoom(error) => {
            format!("{}; {}", error.error, error.help)
        }
    })
}

/// Workers may be fewer than at the start.
#[test]
fn the_reason_says_how_many_workers_run() {
    let mut steering = steering(3, &[("", &[0]), ("queue", &[0])]);
    let why = |steering: &Steering| steering.status().ports[0].why.clone();
    assert_eq!(why(&steering), "1 queue for 3 workers");
    steering.presence[2] = Presence::Absent;
    assert_eq!(why(&steering), "1 queue for 3 workers, of which 2 run");
    steering.presence[1] = Presence::Absent;
    assert_eq!(why(&steering), "1 queue for 3 workers, of which 1 runs");
    assert_eq!(steering.status().ports[1].why, "as configured");
}

/// This number of workers, and ports `p.0` and so on, each with what it says of steering and the owners of its queues.
fn configured(workers: u16, ports: &[(&str, &[u16])]) -> (Config, Vec<Vec<WorkerId>>) {
    let mut text = format!("[workers]\ncount = {workers}\n");
    for (number, (steering, owners)) in ports.iter().enumerate() {
        text += &format!(
            "[[port]]\nname = \"p.{number}\"\ndriver = \"memory\"\nqueues = {}\n\
             addresses = [\"10.{number}.0.1/24\"]\n",
            owners.len()
        );
        if !steering.is_empty() {
            text += &format!("steering = \"{steering}\"\n");
        }
    }
    let environment = Environment {
        cores: (0..workers).collect(),
        socket: "/tmp/manylane.sock".into(),
        interfaces: &|_| Ok(()),
    };
    let config = Config::parse(&text, "router.toml", &environment);
    let config = config.unwrap_or_else(|error| panic!("{error}"));
    let owners = ports.iter().map(|(_, owners)| owners.iter().copied().map(WorkerId).collect());
    (config, owners.collect())
}

/// What is seen of load, an interval at a time.
#[derive(Default)]
struct Look {
    looks: u32,
    busy_ns: [u64; 3],
}

impl Look {
    /// Looks again after an interval in which workers were busy for these percentages, and in which each bucket of
    /// port 0 that was at a busy worker carried a hundred packets. Returns how many are to move.
    fn again<const WORKERS: usize>(
        &mut self,
        steering: &mut Steering,
        receiver: &mut HandOff,
        at: &[u16],
        busy_percent: [u64; WORKERS],
    ) -> usize {
        self.looks += 1;
        for (bucket, &worker) in at.iter().enumerate() {
            let is_busy = busy_percent[usize::from(worker)] > 0;
            receiver.publish_bucket(bucket, worker, u32::from(is_busy) * 100 * self.looks);
        }
        let interval_ns = REBALANCE_INTERVAL.as_nanos() as u64;
        for (sum, percent) in self.busy_ns.iter_mut().zip(busy_percent) {
            *sum += interval_ns * percent / 100;
        }
        steering.rebalance(&self.busy_ns[..WORKERS], self.looks * REBALANCE_INTERVAL)
    }
}

fn steering(workers: u16, ports: &[(&str, &[u16])]) -> Steering {
    steering_of(workers, ports).0
}

/// As above, with the workers' ends.
fn steering_of(workers: u16, ports: &[(&str, &[u16])]) -> (Steering, Vec<HandOff>) {
    let (config, owners) = configured(workers, ports);
    let bell = || Arc::new(Doorbell::new(EventFd::open().expect("there are descriptors")));
    let bells: Vec<_> = (0..workers).map(|_| bell()).collect();
    let handovers = (0..workers).map(|_| queue_handover(&bell()).1).collect();
    Steering::new(&config, Plan::new(&config, &owners), &owners, &bells, handovers, FlowKey::PUBLIC)
}
