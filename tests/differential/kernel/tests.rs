//! The kernel as the measure: thousands of packets, half of them odd, through a kernel's router and through
//! manylane with the same addresses, routes and neighbours, and what leaves the two compared field by field.
//!
//! A difference is a failure unless a row of `intended.rs` has it with its reason; and so is
//! a row that has nothing to explain any more. A failure says how to see its packet alone:
//!
//! | variable           | for                                  |
//! |--------------------|--------------------------------------|
//! | `MANYLANE_SEED`    | other packets than every run's       |
//! | `MANYLANE_PACKETS` | this number of them                  |
//! | `MANYLANE_PACKET`  | one of them alone, by its number     |

use std::env;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::panic;
use std::thread;

use super::compare::{Case, Difference, without_redirects};
use super::generate::{BURST, Shot, shot};
use super::intended::INTENDED;
use super::plan::Side;
use super::planted::{BUGS, TIMES_MAX};
use super::twin::{Outputs, Twin};
use super::wanted::{self, Clock};
use super::{ipv4, ipv6};
use manylane_io::affinity;

/// Most packets pass by the shortest way, which no rule interrupts.
#[test]
fn by_af_xdp_manylane_does_what_the_kernel_does() {
    compare("driver = \"af_xdp\"\nchecksum = \"trust\"", EVERY_ROW);
}

/// Every packet passes by the long way, because its checksum may be partial.
#[test]
fn by_af_xdp_with_repair_manylane_does_what_the_kernel_does() {
    compare("driver = \"af_xdp\"\nchecksum = \"repair\"", Asked { seed: 2, numbers: 0..15_000 });
}

#[test]
fn by_af_packet_manylane_does_what_the_kernel_does() {
    compare("driver = \"af_packet\"", Asked { seed: 3, numbers: 0..15_000 });
}

/// Each sender once: how often, the kernel has rules of its own.
#[test]
fn redirects_are_the_kernels() {
    for port in ["driver = \"af_xdp\"", "driver = \"af_packet\""] {
        let Some(mut kernel) = Twin::kernel() else { return };
        let Some(mut ours) = Twin::manylane(port, true) else { return };
        kernel.send_redirects();
        kernel.meet_neighbours();
        ours.meet_neighbours();
        let mut redirects = 0;
        for shot in hairpins() {
            let sent = std::slice::from_ref(&shot);
            let [kernel, ours] =
                [&mut kernel, &mut ours].map(|twin| twin.exchange(shot.side, sent).remove(0));
            let case = Case { shot: &shot, kernel: &kernel, ours: &ours };
            let differences = case.differences();
            assert!(differences.is_empty(), "{port}: {case}{differences:#?}");
            redirects += kernel.iter().flatten().count() - 1;
        }
        assert_eq!(redirects, 12, "{port}");
        kernel.finish();
        ours.finish();
    }
}

/// Packets that leave by the link of their ingress: to neighbours, and behind one; and a packet of each
/// family whose sender is not on the link.
fn hairpins() -> Vec<Shot> {
    let far_v4 = Ipv4Addr::new(203, 0, 113, 9);
    let far_v6 = Ipv6Addr::new(0x2001, 0xdb8, 99, 0, 0, 0, 0, 9);
    let mut frames = Vec::new();
    for side in Side::ALL {
        let (behind, far) =
            ([4, 3, 18, 19][side as usize], if side == Side::Customer { 1 } else { 2 });
        let behind = Ipv4Addr::new(10, behind, 9, 9);
        let (v4, v6) = (|host| side.host_v4(host), |host| side.host_v6(host));
        frames.extend([
            (side, ipv4::datagram(side, far, (v4(far), behind), b"behind a neighbour")),
            (side, ipv4::datagram(side, 3 - far, (v4(3 - far), v4(far)), b"to a neighbour")),
            (side, ipv4::datagram(side, 1, (far_v4, v4(2)), b"from elsewhere")),
            (side, ipv6::datagram(side, 1, (v6(1), v6(2)), &[7; 1203])),
            (side, ipv6::datagram(side, 1, (far_v6, v6(2)), b"from elsewhere")),
        ]);
    }
    let shot = |(number, (side, frame))| Shot { number, side, frame, tags: &[], odd: Vec::new() };
    (0..).zip(frames).map(shot).collect()
}

/// Also of those that a router makes: another identification makes their header's checksum wrong.
#[test]
fn any_byte_that_differs_is_a_difference() {
    for number in 0..500 {
        let shot = shot(3, number);
        let by_link = |frames: [Vec<Vec<u8>>; 2]| -> Outputs {
            let [lan, wan] = frames;
            [lan, wan, Vec::new(), Vec::new()]
        };
        let there = vec![shot.frame.clone()];
        let kernel = by_link([there.clone(), Vec::new()]);
        let differs =
            |ours: &Outputs| !Case { shot: &shot, kernel: &kernel, ours }.differences().is_empty();
        assert!(!differs(&kernel.clone()), "packet {number} from itself");
        for at in 0..shot.frame.len() {
            let mut ours = kernel.clone();
            ours[0][0][at] ^= 1;
            assert!(differs(&ours), "byte {at} of packet {number}");
        }
        let twice = [there.clone(), there.clone()].concat();
        for ours in [[Vec::new(), there], [twice, Vec::new()], Default::default()] {
            assert!(differs(&by_link(ours)), "packet {number}");
        }
    }
}

/// Enough that each row has something to explain.
const EVERY_ROW: Asked = Asked { seed: 1, numbers: 0..40_000 };

/// What a run is about.
#[derive(Clone, PartialEq, Eq)]
struct Asked {
    seed: u64,
    numbers: Range<u64>,
}

impl Asked {
    /// This run, but for the environment's variables.
    fn or_as_the_environment_says(&self) -> Asked {
        let number = |name| {
            let value = env::var(name).ok()?;
            Some(value.parse().unwrap_or_else(|_| panic!("{name} is a number, not {value}")))
        };
        let end = number("MANYLANE_PACKETS").unwrap_or(self.numbers.end);
        Asked {
            seed: number("MANYLANE_SEED").unwrap_or(self.seed),
            numbers: number("MANYLANE_PACKET").map_or(0..end, |one| one..one + 1),
        }
    }
}

fn compare(port: &'static str, usual: Asked) {
    let Some(kernel) = Twin::kernel() else { return };
    let Some(ours) = Twin::manylane(port, false) else { return };
    let asked = usual.or_as_the_environment_says();
    let seed = asked.seed;
    let has_every_row = asked == EVERY_ROW;
    let seen = vec![0; INTENDED.len()];
    let (clock, planted) = (Clock::default(), vec![(0, 0); BUGS.len()]);
    let mut run = Run { kernel, ours, asked, seen, redirects: 0, clock, planted, failed: 0 };
    let go = move || {
        // What one core sends stays in order; what another sends may pass it in the kernel.
        affinity::pin(affinity::cores().expect("there is one")[0]).expect("it is ours");
        run.go();
        run
    };
    let run = thread::spawn(go).join().unwrap_or_else(|panic| panic::resume_unwind(panic));
    run.kernel.finish();
    run.ours.finish();
    for (row, times) in INTENDED.iter().zip(&run.seen) {
        println!("{times:6} {}", row.reason);
    }
    println!("{:6} redirects of the kernel's", run.redirects);
    for (bug, (planted, found)) in BUGS.iter().zip(&run.planted) {
        println!("{planted:6} times planted, {found} found: {}", bug.name);
    }
    let hidden = BUGS.iter().zip(&run.planted);
    let hidden =
        hidden.filter(|(_, (planted, found))| found < planted || has_every_row && *planted == 0);
    let hidden: Vec<_> = hidden.map(|(bug, _)| bug.name).collect();
    assert!(hidden.is_empty(), "planted bugs that were not found, or had no packet: {hidden:#?}");
    let failed = run.failed;
    assert_eq!(failed, 0, "seed {seed}: packets differ, and nobody intends it; see {REPLAY}");
    let unseen = INTENDED.iter().zip(&run.seen).filter(|(_, times)| **times == 0);
    let unseen: Vec<_> = unseen.map(|(row, _)| row.reason).collect();
    assert!(
        !has_every_row || unseen.is_empty(),
        "rows without a difference, to be removed: {unseen:#?}"
    );
}

/// How a failure is seen again.
const REPLAY: &str = "the packet alone by MANYLANE_SEED=… MANYLANE_PACKET=… cargo test -p manylane --test \
                      differential by_af";

/// Failures that are printed in full: a broken rule has thousands.
const TOLD_MAX: u64 = 20;

struct Run {
    kernel: Twin,
    ours: Twin,
    asked: Asked,
    /// How often each row explained something.
    seen: Vec<u64>,
    redirects: usize,
    /// By what manylane wrote into timestamps.
    clock: Clock,
    /// How often each bug was planted, and how often it was found.
    planted: Vec<(u64, u64)>,
    failed: u64,
}

impl Run {
    fn go(&mut self) {
        self.kernel.meet_neighbours();
        self.ours.meet_neighbours();
        let Asked { seed, numbers } = self.asked.clone();
        let mut start = numbers.start;
        while start < numbers.end {
            let end = ((start / BURST + 1) * BURST).min(numbers.end);
            let shots: Vec<Shot> = (start..end).map(|number| shot(seed, number)).collect();
            self.burst(&shots);
            start = end;
        }
    }

    fn burst(&mut self, shots: &[Shot]) {
        let side = shots[0].side;
        let mut kernel = self.kernel.exchange(side, shots);
        self.redirects += kernel.iter_mut().map(without_redirects).sum::<usize>();
        let ours = self.ours.exchange(side, shots);
        for ((shot, kernel), ours) in shots.iter().zip(&kernel).zip(&ours) {
            self.judge(&Case { shot, kernel, ours });
        }
    }

    fn judge(&mut self, case: &Case<'_>) {
        let before = self.clock.clone();
        let faults = wanted::faults(case, &mut self.clock);
        let differences = case.differences();
        let explained = explain(case, &differences);
        explained.iter().flatten().for_each(|&row| self.seen[row] += 1);
        if faults.is_empty() && !explained.contains(&None) {
            self.plant(case, &before);
        } else {
            self.failed += 1;
            if self.failed <= TOLD_MAX {
                let Asked { seed, .. } = self.asked;
                eprintln!("MANYLANE_SEED={seed} MANYLANE_PACKET={}", case.shot.number);
                eprintln!("{case}");
                faults.iter().for_each(|fault| eprintln!("    {fault}"));
                differences.iter().for_each(|difference| eprintln!("    {difference}"));
            }
        }
    }

    /// Plants bugs into what manylane sent because of the packet, and looks for each.
    fn plant(&mut self, case: &Case<'_>, clock: &Clock) {
        for (bug, (planted, found)) in BUGS.iter().zip(&mut self.planted) {
            let mut ours = case.ours.clone();
            if *planted >= TIMES_MAX || (bug.plant)(case, &mut ours).is_none() {
                continue;
            }
            let spoilt = Case { ours: &ours, ..*case };
            let is_found = !wanted::faults(&spoilt, &mut clock.clone()).is_empty()
                || explain(&spoilt, &spoilt.differences()).contains(&None);
            *planted += 1;
            *found += u64::from(is_found);
            if !is_found {
                eprintln!("nobody sees that {}: {spoilt}", bug.name);
            }
        }
    }
}

/// The row that explains each difference.
fn explain(case: &Case<'_>, differences: &[Difference]) -> Vec<Option<usize>> {
    let row = |difference| INTENDED.iter().position(|row| (row.explains)(case, difference));
    differences.iter().map(row).collect()
}
