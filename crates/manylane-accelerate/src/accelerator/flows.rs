//! The flows that pass: some of the received packets, noted by the programs for a moment.

use std::collections::BTreeMap;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use crate::programs::{Sample, SampledBy, Samples};
use manylane_net::transit::Verdict;

use super::ledger;
use manylane_api::accelerate::{AcceleratedFlow, AcceleratedFlows};
use manylane_net::wire::summary as header;

/// Has programs note packets, as many as they have places for, spread over a moment.
pub(super) struct Sampler {
    samples: Samples,
    counters: ledger::Sources,
}

impl Sampler {
    pub fn new(samples: Samples, counters: ledger::Sources) -> Sampler {
        Sampler { samples, counters }
    }

    /// One packet in how many was noted, and those that were. `ports` are the numbers of all. Takes [`MOMENT`], and
    /// before that a part of it to see how many packets arrive.
    pub fn take(&mut self, ports: &[u16]) -> io::Result<(u64, Vec<Sample>)> {
        let (before, from) = (self.seen(ports), Instant::now());
        thread::sleep(MOMENT / 5);
        let packets = self.seen(ports).saturating_sub(before) as f64;
        let shift = shift(packets * MOMENT.as_secs_f64() / from.elapsed().as_secs_f64());
        self.samples.begin(shift);
        thread::sleep(MOMENT);
        Ok((1 << shift, self.samples.end()?))
    }

    /// Received packets, but for those in workers' rings.
    fn seen(&self, ports: &[u16]) -> u64 {
        let rows = ports.iter().map(|&port| self.counters.port(port));
        rows.map(|counts| ledger::decided(&counts.row)).sum()
    }
}

/// The power of two by which no more of `packets` are noted than a CPU has places for, if all arrive there.
fn shift(packets: f64) -> u32 {
    // Twice as many may arrive by chance, and more than twice do not.
    let many = packets * 2.0 / PLACES;
    if many <= 1.0 { 0 } else { many.log2().ceil() as u32 }
}

/// What they say, by flow; `name` names ports.
pub(super) fn flows(
    one_in: u64,
    samples: &[Sample],
    name: impl Fn(u16) -> String,
) -> AcceleratedFlows {
    let mut by_flow = BTreeMap::<_, u64>::new();
    for sample in samples {
        // With zeros for the link's addresses, which no reader sees.
        let mut frame = [0; 12].to_vec();
        frame.extend(sample.bytes);
        let line = header::line(&frame);
        let flow = header::flow_in(&line).unwrap_or("no IP").to_owned();
        let verdict = Verdict::ALL.iter().find(|&&verdict| verdict as u8 == sample.verdict);
        let (by, reason) = match sample.by {
            SampledBy::Kernel => ("kernel", verdict.map_or("", |verdict| verdict.name())),
            SampledBy::Ingress => ("ingress", ""),
            SampledBy::Driver => ("driver", ""),
            SampledBy::Workers => ("workers", ""),
        };
        *by_flow.entry((name(sample.port), flow, by, reason)).or_default() += 1;
    }
    let flow = |((port, flow, by, reason), packets): ((String, String, &str, &str), u64)| {
        AcceleratedFlow { port, flow, by: by.into(), reason: reason.into(), packets }
    };
    let mut flows: Vec<_> = by_flow.into_iter().map(flow).collect();
    flows.sort_by_key(|flow| std::cmp::Reverse(flow.packets));
    AcceleratedFlows { packets: samples.len() as u64, one_in, flows }
}

/// How long packets are noted.
const MOMENT: Duration = Duration::from_millis(100);
/// On each CPU.
const PLACES: f64 = 64.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_packets_are_all_noted_and_of_many_as_many_as_there_are_places_for() {
        assert_eq!([0.0, 1.0, 32.0].map(shift), [0, 0, 0]);
        for packets in [33.0, 64.0, 1000.0, 1e6, 1e9] {
            let noted = packets / f64::from(1 << shift(packets));
            assert!((PLACES / 4.0..=PLACES / 2.0).contains(&noted), "{packets}: {noted}");
        }
    }

    #[test]
    fn samples_of_a_flow_are_one_line_for_each_end_that_they_have() {
        // From the Ethernet type on: 10.1.0.1:4000 > 10.2.0.1:53 UDP; and the same as IPv6.
        let mut v4 = [0; 56];
        v4[..2].copy_from_slice(&[8, 0]);
        v4[2..6].copy_from_slice(&[0x45, 0, 0, 28]);
        v4[10..12].copy_from_slice(&[64, 17]);
        v4[14..22].copy_from_slice(&[10, 1, 0, 1, 10, 2, 0, 1]);
        v4[22..26].copy_from_slice(&[0x0f, 0xa0, 0, 53]);
        let mut v6 = [0; 56];
        v6[..10].copy_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 6, 64]);
        (v6[10], v6[25], v6[26], v6[41]) = (0xfd, 1, 0xfd, 2);
        v6[42..46].copy_from_slice(&[0, 80, 0x0f, 0xa0]);
        let sample = |bytes, by, verdict: Verdict| Sample {
            port: 1,
            verdict: verdict as u8,
            by,
            len: 60,
            bytes,
        };
        let samples = [
            sample(v4, SampledBy::Ingress, Verdict::Forwarded),
            sample(v6, SampledBy::Driver, Verdict::Forwarded),
            sample(v4, SampledBy::Kernel, Verdict::Lapsed),
            sample(v4, SampledBy::Ingress, Verdict::Forwarded),
            sample([0; 56], SampledBy::Kernel, Verdict::NotIp),
        ];
        let all = flows(8, &samples, |_| "lan".into());
        assert_eq!((all.packets, all.one_in), (5, 8));
        let lines = all
            .flows
            .iter()
            .map(|flow| (flow.flow.as_str(), flow.by.as_str(), flow.reason.as_str(), flow.packets));
        let v4 = "10.1.0.1:4000 > 10.2.0.1:53 UDP";
        assert_eq!(
            lines.collect::<Vec<_>>(),
            [
                (v4, "ingress", "", 2),
                (v4, "kernel", "lapsed", 1),
                ("[fd00::1]:80 > [fd00::2]:4000 TCP", "driver", "", 1),
                ("no IP", "kernel", "not_ip", 1),
            ]
        );
    }
}
