//! What do grace periods cost by another library?
//!
//! `--peer dpdk` measures `bench/peers/rcu.c` (`rte_rcu_qsbr`) in turn with manylane: loops, gaps and counts are those of the
//! question's own rows, and figures have their names, with `dpdk_` before those of DPDK.
//!
//! | figure                 | DPDK's side                                                                    |
//! |------------------------|--------------------------------------------------------------------------------|
//! | `quiescent_ns`         | `rte_rcu_qsbr_quiescent`                                                       |
//! | `quiescent_gp_ns`      | the same while `rte_rcu_qsbr_start` runs on the other core as fast as it can   |
//! | `offline_online_ns`    | `rte_rcu_qsbr_thread_offline` and `rte_rcu_qsbr_thread_online`                 |
//! | `retire_ns`            | `retire_queue`: 64 indices into a defer queue (`rte_rcu_qsbr_dq_enqueue`), `rte_rcu_qsbr_quiescent`, `rte_rcu_qsbr_dq_reclaim`; `retire`: into an array, with one token (`rte_rcu_qsbr_start`) for each 64 |
//! | `retire_ns_r1`         | the same beside a reader that turns every microsecond                          |
//! | `synchronize_*_ns_r*`  | `rte_rcu_qsbr_synchronize`                                                     |
//! | `ticket_*_ns_r*`       | `rte_rcu_qsbr_start`, then `rte_rcu_qsbr_check` until it is over               |
//!
//! `*_of_dpdk*` is manylane's speed relative to the way of DPDK with the lowest median, of two for `retire`.

use serde::Deserialize;

use super::{
    GAPS, READERS_MAX, SYNCHRONIZES, SYNCHRONIZES_QUICK, beside_a_reader, grace_period,
    offline_online, quiescent, retire, wait_by_ticket,
};
use crate::mechanisms::{Plan, interleave_on};
use crate::peer::{self, Answer, Program};
use crate::prelude::*;

/// What the program says when it runs.
#[derive(Deserialize)]
struct Ready {
    version: String,
}

/// What the program says of latencies besides.
#[derive(Deserialize)]
struct Latencies {
    p50: f64,
    p99: f64,
}

impl Answer<Latencies> {
    /// The slice, which does not count when the program gave up before it had `count` latencies.
    fn slice_of(&self, count: usize) -> Slice {
        let mut slice = self.slice();
        if self.operations() < count as u64 {
            slice.give_up();
        }
        slice
    }
}

/// Figures of one operation: how they begin and end, the peer's rows, and the gap of its reader.
const ROWS: [(&str, &str, &[&str], Duration); 5] = [
    ("quiescent", "", &["quiescent"], Duration::ZERO),
    ("quiescent_gp", "", &["quiescent_gp"], Duration::ZERO),
    ("offline_online", "", &["offline_online"], Duration::ZERO),
    ("retire", "", &["retire", "retire_queue"], Duration::ZERO),
    ("retire", "_r1", &["retire_r1", "retire_queue_r1"], Duration::from_micros(1)),
];
/// Rows of latencies, and their quantiles.
const WAITS: [&str; 2] = ["synchronize", "ticket"];
const PARTS: [&str; 2] = ["p50", "p99"];

pub fn run(plan: &Plan) -> Result {
    let program = peer::build("rcu")?;
    let output = plan.pace.output("compare/rcu_dpdk");
    let bench = Bench::new(&plan.cores, plan.pace.quick)?;
    let (dpdk, ready): (_, Ready) = Program::start(&program, bench.cores(), None)?;
    output.note(&format!(
        "manylane and {} by turns; a domain of {READERS_MAX}, one reader",
        ready.version
    ));
    let count = if plan.pace.quick { SYNCHRONIZES_QUICK } else { SYNCHRONIZES };
    let mut sides = Sides { dpdk, count };
    let mut own_first = false;
    let round = |bench: &mut Bench| {
        own_first = !own_first; // Each is early as often as late: what drifts favours neither.
        if own_first {
            own(bench)?;
        }
        for (_, end, ways, gap) in ROWS {
            for way in ways {
                sides.operation(bench, way, end, gap)?;
            }
        }
        if !own_first {
            own(bench)?;
        }
        for (what, gap) in WAITS.into_iter().flat_map(|what| GAPS.map(|gap| (what, gap))) {
            if own_first {
                sides.own_latencies(bench, what, gap)?;
            }
            sides.latencies(bench, what, gap)?;
            if !own_first {
                sides.own_latencies(bench, what, gap)?;
            }
        }
        Ok(())
    };
    interleave_on(bench, plan, &output, round, |rounds| {
        let mut compare = |ratio: &str, own: &str, ways: &[String]| {
            peer::beside(rounds, &output, ratio, own, ways);
        };
        for (name, end, ways, _) in ROWS {
            let ways: Vec<_> = ways.iter().map(|way| figure(way, end)).collect();
            compare(&format!("{name}_of_dpdk{end}"), &format!("{name}_ns{end}"), &ways);
        }
        for (what, (gap, _)) in WAITS.into_iter().flat_map(|what| GAPS.map(|gap| (what, gap))) {
            for part in PARTS {
                let own = format!("{what}_{part}_ns_{gap}");
                let ratio = format!("{what}_{part}_of_dpdk_{gap}");
                compare(&ratio, &own, &[format!("dpdk_{own}")]);
            }
        }
    })
}

/// The name of a row of the peer that ends in `end`, as a figure.
fn figure(way: &str, end: &str) -> String {
    format!("dpdk_{}_ns{end}", way.strip_suffix(end).unwrap_or(way))
}

/// Manylane's figures of one operation.
fn own(bench: &mut Bench) -> Result {
    quiescent(bench)?;
    offline_online(bench)?;
    bench.time("retire_ns", 1, |_, lap| retire(&lap, &Domain::new(READERS_MAX), || 7_u32))?;
    let slice = beside_a_reader(bench, GAPS[1].1, |domain, lap| retire(&lap, domain, || 7_u32))?;
    bench.ns("retire_ns_r1", of(&slice, 0));
    Ok(())
}

struct Sides {
    dpdk: Program,
    /// Latencies of a row.
    count: usize,
}

impl Sides {
    /// A row of DPDK: what an operation takes the first thread.
    fn operation(&mut self, bench: &mut Bench, way: &str, end: &str, gap: Duration) -> Result {
        let slice = bench.slice_by(|bench| {
            let what = format_args!("{way} {} 0", gap.as_nanos());
            Ok(self.dpdk.ask::<Answer>(what, bench.slice_length())?.slice())
        })?;
        bench.ns(&figure(way, end), of(&slice, 0));
        Ok(())
    }

    fn latencies(
        &mut self,
        bench: &mut Bench,
        what: &str,
        (gap_name, gap): (&str, Duration),
    ) -> Result {
        let (mut taken, count) = ([0.0; 2], self.count);
        let slice = bench.slice_by(|bench| {
            let line = format_args!("{what} {} {count}", gap.as_nanos());
            let answer: Answer<Latencies> = self.dpdk.ask(line, bench.slice_length())?;
            taken = [answer.more.p50, answer.more.p99];
            Ok(answer.slice_of(count))
        })?;
        for (part, value) in PARTS.into_iter().zip(taken) {
            let value = slice.as_ref().map(|_| value);
            bench.ns(&format!("dpdk_{what}_{part}_ns_{gap_name}"), value);
        }
        Ok(())
    }

    fn own_latencies(&self, bench: &mut Bench, what: &str, gap: (&str, Duration)) -> Result {
        match what {
            "synchronize" => grace_period(bench, what, gap, self.count, &Domain::synchronize),
            _ => grace_period(bench, what, gap, self.count, &wait_by_ticket),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::judged;

    #[test]
    fn rows_of_the_peer_become_figures() {
        let names: Vec<_> = ROWS
            .iter()
            .flat_map(|(_, end, ways, _)| ways.iter().map(|way| figure(way, end)))
            .collect();
        assert_eq!(
            names,
            [
                "dpdk_quiescent_ns",
                "dpdk_quiescent_gp_ns",
                "dpdk_offline_online_ns",
                "dpdk_retire_ns",
                "dpdk_retire_queue_ns",
                "dpdk_retire_ns_r1",
                "dpdk_retire_queue_ns_r1",
            ]
        );
    }

    #[test]
    fn latencies_do_not_count_when_the_peer_gave_up() {
        let text = r#"{"shares":[{"operations":9,"start":0,"end":90,"away":0,"ran":0,"waited":0}],
            "p50":10.0,"p99":12.5}"#;
        let answer: Answer<Latencies> = serde_json::from_str(text).expect("it is an answer");
        assert_eq!([answer.more.p50, answer.more.p99], [10.0, 12.5]);
        let judged = |count| judged(false, || Ok::<_, Error>(answer.slice_of(count)));
        assert!(judged(9).expect("nothing fails").is_ok());
        let cause = judged(10).expect("nothing fails").expect_err("one is missing");
        assert_eq!(cause, "the work gave up");
    }
}
