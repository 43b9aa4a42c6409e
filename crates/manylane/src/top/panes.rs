//! Two answers as tables of rates.

use std::collections::BTreeMap;

use super::detail::Picked;
use super::flow_panes::{self, FlowChoice};
use super::flows::Flows;
use super::sample::{Accelerator, Forwarder, Of, Sample};
use crate::terminal::table::{count, duration, short, signed};
use manylane_api::{PortState, PortStatus, WorkerState};

/// A table, with a title.
#[derive(Clone, Debug, PartialEq)]
pub struct Pane {
    pub title: &'static str,
    /// A title that starts with `>` is of a column of numbers.
    pub columns: &'static [&'static str],
    /// The number of last columns that are shown only where all columns are whole.
    pub optional: usize,
    /// The column that rows are sorted by, until the user says otherwise; by names, those of the first.
    pub order: usize,
    pub rows: Vec<Row>,
    /// What is to be said of it, or why it has no rows.
    pub note: String,
}

/// A line of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub cells: Vec<Cell>,
    /// The flow that it is about, if the operator can pick it.
    pub picked: Option<Picked>,
}

impl From<Vec<Cell>> for Row {
    fn from(cells: Vec<Cell>) -> Row {
        Row { cells, picked: None }
    }
}

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Text(String),
    Number {
        value: f64,
        shown: String,
        /// Whether it is a loss.
        is_bad: bool,
    },
}

/// What is said above all panes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Head {
    /// The daemon that answers.
    pub daemon: String,
    /// All of it in a line.
    pub totals: String,
    /// What does not add up, and what else is wrong.
    pub alarm: String,
}

/// What changed from one sample to the next.
pub struct Between<'s> {
    seconds: f64,
    former: Option<&'s Sample>,
    now: &'s Sample,
}

impl<'s> Between<'s> {
    /// From `former` to `now`: nothing is known of rates if these are not of one process.
    pub fn new(former: Option<&'s Sample>, now: &'s Sample) -> Between<'s> {
        let pid = |sample: &Sample| match &sample.of {
            Of::Forwarder(daemon) => daemon.daemon.pid,
            Of::Accelerator(daemon) => daemon.daemon.pid,
        };
        let former = former.filter(|former| pid(former) == pid(now));
        let seconds = former.map_or(0.0, |former| (now.at - former.at).as_secs_f64());
        Between { seconds, former, now }
    }

    /// The head, and the panes in their order. Of flows this is what is known from several samples.
    pub fn shown(&self, flows: &Flows, choice: &FlowChoice) -> (Head, Vec<Pane>) {
        match &self.now.of {
            Of::Forwarder(now) => {
                let former = self.former.and_then(|former| match &former.of {
                    Of::Forwarder(former) => Some(&**former),
                    Of::Accelerator(_) => None,
                });
                self.forwarder(former, now, flows, choice)
            }
            Of::Accelerator(now) => {
                let former = self.former.and_then(|former| match &former.of {
                    Of::Accelerator(former) => Some(&**former),
                    Of::Forwarder(_) => None,
                });
                self.accelerator(former, now, flows, choice)
            }
        }
    }

    fn forwarder(
        &self,
        former: Option<&Forwarder>,
        now: &Forwarder,
        flows: &Flows,
        choice: &FlowChoice,
    ) -> (Head, Vec<Pane>) {
        let ledger = |value: fn(&Forwarder) -> u64| self.rate(former.map(value), value(now));
        let received = ledger(|daemon| daemon.ledger.received);
        let sent = ledger(|daemon| daemon.ledger.transmitted);
        let dropped = ledger(|daemon| daemon.ledger.dropped.values().sum());
        let bits = |bytes: fn(&PortStatus) -> u64| {
            let sum = |daemon: &Forwarder| daemon.ports.iter().map(bytes).sum::<u64>();
            self.rate(former.map(sum), sum(now)).map(|bytes| bytes * 8.0)
        };
        let head = Head {
            daemon: format!(
                "run {}, process {}, up {}",
                now.daemon.version,
                now.daemon.pid,
                duration(now.daemon.uptime_s)
            ),
            totals: format!(
                "in {} packets/s, {} bit/s; out {}, {}; dropped {}/s; held {}",
                or_dash(received),
                or_dash(bits(|port| port.received_bytes)),
                or_dash(sent),
                or_dash(bits(|port| port.transmitted_bytes)),
                or_dash(dropped),
                count(now.ledger.held)
            ),
            alarm: alarm(now.steering.reordered),
        };
        let share = received.unwrap_or(0.0);
        let panes = vec![
            self.ports(former, now),
            self.workers(former, now),
            self.drops(former, now),
            self.rings(former, now),
            flow_panes::received(flows, share, now.flows_trouble.as_deref(), choice),
        ];
        (head, panes)
    }

    fn ports(&self, former: Option<&Forwarder>, now: &Forwarder) -> Pane {
        let rows = now.ports.iter().map(|port| {
            let was =
                former.and_then(|daemon| daemon.ports.iter().find(|was| was.name == port.name));
            let rate = |value: &dyn Fn(&PortStatus) -> u64| self.rate(was.map(value), value(port));
            let state = match (port.state, port.link_up) {
                (PortState::Open, true) => "up",
                (PortState::Open, false) => "down",
                (state, _) => state.name(),
            };
            vec![
                text(&port.name),
                text(state),
                number(rate(&|port| port.received)),
                number(rate(&|port| port.received_bytes * 8)),
                number(rate(&|port| port.transmitted)),
                number(rate(&|port| port.transmitted_bytes * 8)),
                loss(rate(&|port| port.dropped.values().sum())),
                loss(rate(&crate::tables::lost)),
            ]
        });
        let columns =
            &["Port", "State", ">In/s", ">In bit/s", ">Out/s", ">Out bit/s", ">Drop/s", ">Lost/s"];
        pane("Ports", columns, 0, rows.collect(), "")
    }

    fn workers(&self, former: Option<&Forwarder>, now: &Forwarder) -> Pane {
        let rows = now.workers.iter().map(|worker| {
            let was = former
                .and_then(|daemon| daemon.workers.iter().find(|was| was.worker == worker.worker));
            let state = match (worker.state, worker.core) {
                (WorkerState::Running, Some(core)) => format!("core {core}"),
                (WorkerState::Running, None) => "any core".into(),
                (WorkerState::Draining, _) => "draining".into(),
                (WorkerState::Stopped, _) => "stopped".into(),
            };
            vec![
                whole(worker.worker.into()),
                text(&state),
                Cell::Number {
                    value: worker.busy_percent,
                    shown: format!("{:.1}", worker.busy_percent),
                    is_bad: false,
                },
                number(self.rate(was.map(|was| was.received), worker.received)),
                number(self.rate(was.map(|was| was.transmitted), worker.transmitted)),
                number(self.rate(was.map(|was| was.wakeups), worker.wakeups)),
                whole(worker.held),
                whole(worker.frames_in_pool),
            ]
        });
        let columns =
            &[">Worker", "On", ">Busy %", ">In/s", ">Out/s", ">Woken/s", ">Held", ">Frames"];
        pane("Workers", columns, 0, rows.collect(), "")
    }

    fn drops(&self, former: Option<&Forwarder>, now: &Forwarder) -> Pane {
        let former: BTreeMap<_, _> = former
            .iter()
            .flat_map(|daemon| &daemon.drops)
            .map(|drop| (drop.reason.as_str(), drop.total))
            .collect();
        let rows = now.drops.iter().filter(|drop| drop.total > 0).map(|drop| {
            // A reason that was never met before had none.
            let was = self.former.map(|_| former.get(&*drop.reason).copied().unwrap_or(0));
            vec![
                text(&drop.reason),
                loss(self.rate(was, drop.total)),
                whole(drop.total),
                text(&drop.explanation),
            ]
        });
        let columns = &["Reason", ">Per s", ">Total", "What it means"];
        pane("Drops", columns, 1, rows.collect(), "nothing was dropped")
    }

    fn rings(&self, former: Option<&Forwarder>, now: &Forwarder) -> Pane {
        let rows = now.steering.pairs.iter().map(|pair| {
            let mut pairs = former.iter().flat_map(|daemon| &daemon.steering.pairs);
            let was = pairs.find(|was| (was.from, was.to) == (pair.from, pair.to));
            let handed = self.rate(was.map(|was| was.handed), pair.handed);
            let batches = self.rate(was.map(|was| was.batches), pair.batches);
            let of_batch = handed.zip(batches).filter(|(_, batches)| *batches > 0.0);
            let size = of_batch.map(|(handed, batches)| handed / batches);
            vec![
                whole(pair.from.into()),
                whole(pair.to.into()),
                number(handed),
                number(size),
                whole(pair.backlog),
                loss(self.rate(was.map(|was| was.backlog_full), pair.backlog_full)),
                loss(self.rate(was.map(|was| was.flow_limit), pair.flow_limit)),
                number(self.rate(was.map(|was| was.waits), pair.waits)),
            ]
        });
        let columns = &[
            ">From",
            ">To",
            ">Packets/s",
            ">Per batch",
            ">Backlog",
            ">Full/s",
            ">Flow limit/s",
            ">Waits/s",
        ];
        pane("Rings", columns, 2, rows.collect(), "one worker, or ports that are steered by queue")
    }

    fn accelerator(
        &self,
        former: Option<&Accelerator>,
        now: &Accelerator,
        flows: &Flows,
        choice: &FlowChoice,
    ) -> (Head, Vec<Pane>) {
        let ledger = |value: fn(&Accelerator) -> u64| self.rate(former.map(value), value(now));
        let lease = &now.daemon.lease;
        let head = Head {
            daemon: format!(
                "accelerate {}, process {}, up {}",
                now.daemon.version,
                now.daemon.pid,
                duration(now.daemon.uptime_s)
            ),
            totals: format!(
                "in {} packets/s; forwarded {}, {} bit/s; to the kernel {}/s; dropped {}/s",
                or_dash(ledger(|daemon| daemon.ledger.seen)),
                or_dash(ledger(|daemon| daemon.ledger.forwarded)),
                or_dash(ledger(|daemon| {
                    daemon.ports.iter().map(|port| port.forwarded_bytes * 8).sum()
                })),
                or_dash(ledger(|daemon| daemon.ledger.passed.values().sum())),
                or_dash(ledger(|daemon| daemon.ledger.dropped.values().sum())),
            ),
            alarm: match lease.holds {
                true => String::new(),
                false => format!("the kernel forwards: the tables are {}", lease.tables),
            },
        };
        let share = ledger(|daemon| daemon.ledger.seen).unwrap_or(0.0);
        let trouble = now.flows_trouble.as_deref();
        let panes = vec![
            self.accelerated_ports(former, now),
            self.tiers(former, now),
            self.passed(former, now),
            match &now.tracked {
                Some(tracked) => flow_panes::tracked(self, former, tracked, choice),
                None => flow_panes::sampled(flows, share, trouble, now.lane.as_ref(), choice),
            },
            flow_panes::kernel(self, former, now, choice),
        ];
        (head, panes)
    }

    fn accelerated_ports(&self, former: Option<&Accelerator>, now: &Accelerator) -> Pane {
        let rows = now.ports.iter().map(|port| {
            let was =
                former.and_then(|daemon| daemon.ports.iter().find(|was| was.name == port.name));
            let dropped =
                self.rate(was.map(|was| was.dropped.values().sum()), port.dropped.values().sum());
            let lost = self.rate(
                was.map(|was| was.device_dropped + was.queue_dropped),
                port.device_dropped + port.queue_dropped,
            );
            let tier = match port.link_up {
                true => port.tier.as_str(),
                false => "down",
            };
            vec![
                text(&port.name),
                text(tier),
                text(&port.egress_tier),
                number(self.rate(was.map(|was| was.seen), port.seen)),
                number(self.rate(was.map(|was| was.forwarded), port.forwarded)),
                number(self.rate(was.map(|was| was.sent), port.sent)),
                number(self.rate(was.map(|was| was.sent_bytes * 8), port.sent_bytes * 8)),
                loss(dropped),
                loss(lost),
            ]
        });
        let columns = &[
            "Port",
            "Tier",
            "Egress",
            ">In/s",
            ">Forwarded/s",
            ">Out/s",
            ">Out bit/s",
            ">Drop/s",
            ">Lost/s",
        ];
        pane("Ports", columns, 0, rows.collect(), "")
    }

    fn tiers(&self, former: Option<&Accelerator>, now: &Accelerator) -> Pane {
        let all = self.rate(former.map(|was| was.ledger.forwarded), now.ledger.forwarded);
        let rows = now.ledger.tiers.iter().map(|(tier, total)| {
            let was = former.map(|was| was.ledger.tiers.get(tier).copied().unwrap_or(0));
            let rate = self.rate(was, *total);
            let share = rate.zip(all).filter(|(_, all)| *all > 0.0);
            let share = share.map(|(rate, all)| rate / all * 100.0);
            vec![text(tier), number(rate), number(share), whole(*total)]
        });
        pane("Tiers", &["Tier", ">Packets/s", ">%", ">Total"], 0, rows.collect(), "none yet")
    }

    fn passed(&self, former: Option<&Accelerator>, now: &Accelerator) -> Pane {
        let rows = now.drops.iter().filter(|drop| drop.total > 0).map(|drop| {
            let mut drops = former.iter().flat_map(|daemon| &daemon.drops);
            let was = drops.find(|was| (&was.reason, &was.by) == (&drop.reason, &drop.by));
            let rate = self.rate(self.former.map(|_| was.map_or(0, |was| was.total)), drop.total);
            vec![
                text(&drop.reason),
                text(&drop.by),
                if drop.by == "passed" { number(rate) } else { loss(rate) },
                whole(drop.total),
                text(&drop.explanation),
            ]
        });
        let columns = &["Reason", "By", ">Per s", ">Total", "What it means"];
        pane("Drops", columns, 2, rows.collect(), "nothing was passed or dropped")
    }

    /// The rate of a counter. A counter that decreased has begun anew.
    pub fn rate(&self, former: Option<u64>, now: u64) -> Option<f64> {
        let former = former.filter(|_| self.seconds > 0.0)?;
        Some(now.saturating_sub(former) as f64 / self.seconds)
    }
}

/// With what is said when it is empty.
fn pane(
    title: &'static str,
    columns: &'static [&'static str],
    order: usize,
    rows: Vec<Vec<Cell>>,
    empty: &str,
) -> Pane {
    let note = if rows.is_empty() { empty.into() } else { String::new() };
    let rows = rows.into_iter().map(Row::from).collect();
    Pane { title, columns, optional: 0, order, rows, note }
}

fn alarm(reordered: u64) -> String {
    match reordered {
        0 => String::new(),
        reordered => {
            format!("{} sampled packets left behind a later one", signed(reordered as i64))
        }
    }
}

pub fn text(text: &str) -> Cell {
    Cell::Text(text.to_owned())
}

pub fn whole(number: u64) -> Cell {
    Cell::Number { value: number as f64, shown: count(number), is_bad: false }
}

pub fn number(value: Option<f64>) -> Cell {
    Cell::Number { value: value.unwrap_or(-1.0), shown: or_dash(value), is_bad: false }
}

fn loss(value: Option<f64>) -> Cell {
    let is_bad = value.is_some_and(|value| value > 0.0);
    Cell::Number { value: value.unwrap_or(-1.0), shown: or_dash(value), is_bad }
}

/// Below ten with a decimal: one packet every two seconds is not none.
fn or_dash(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(value) if value > 0.0 && value < 9.95 => format!("{value:.1}"),
        Some(value) => short(value),
    }
}
