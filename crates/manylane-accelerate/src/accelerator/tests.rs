//! What becomes of packets when the mirror's thread does not do what it is to do. Needs root.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;

use crate::programs::{Attached, attached};
use manylane_io::interface::Interface;

use super::*;
use manylane_api::accelerate::AskError;
use manylane_lab::{Lab, LabOptions, SERVER_V4, SERVER_V6, scenario, udp_stream};

/// No thread stamps any more: the lease lapses by itself, and is renewed when the thread continues.
#[test]
fn while_the_thread_hangs_the_kernel_forwards() {
    let Some((lab, accelerator)) = start() else { return };
    let published = accelerator.published.clone();
    let (go_on, held) = channel::<()>();
    let asks = thread::spawn(move || published.questions.ask(move |_| held.recv().is_err()));
    let source = accelerator.source();
    while source.daemon().lease.holds {
        thread::yield_now();
    }
    let passed = || source.ledger().passed.get("lapsed").copied().unwrap_or(0);
    let (before, renewals) = (passed(), source.daemon().lease.renewals);
    traffic(&lab);
    assert!(passed() >= before + 2000, "{:#?}", source.ledger());
    drop(go_on);
    asks.join().expect("it only waits").expect("the thread goes on");
    while !source.daemon().lease.holds {
        thread::yield_now();
    }
    let before = source.ledger().forwarded;
    traffic(&lab);
    assert!(source.ledger().forwarded > before, "{:#?}", source.ledger());
    assert!(source.daemon().lease.renewals > renewals);
    let waits = source.mirror().expect("the thread answers").waits;
    let of_question = waits.iter().find(|wait| wait.activity == "questions");
    assert!(of_question.is_some_and(|wait| wait.lapses == 1), "it is the reason: {waits:#?}");
    lab.router.run(move || accelerator.stop());
}

/// In a process that continues: its programs are gone with the thread.
#[test]
fn when_the_thread_panics_the_kernel_forwards() {
    let Some((lab, accelerator)) = start() else { return };
    let asked = accelerator.published.questions.ask(|_| panic!("on purpose"));
    let Err(AskError::Silent(error)) = asked else { panic!("there is no answer") };
    assert!(error.error.ends_with("has ended"), "{error:?}");
    while accelerator.is_alive() {
        thread::yield_now();
    }
    let there = lab.router.run(|| {
        ["lan", "wan"].map(|name| {
            attached(&Interface::read(name).expect("it is there")).expect("everybody may ask")
        })
    });
    assert!(there.iter().all(|Attached { programs, .. }| programs.is_empty()), "{there:?}");
    traffic(&lab);
    let ended = catch_unwind(AssertUnwindSafe(|| drop(accelerator)));
    assert_eq!(ended.expect_err("as the thread did").downcast_ref(), Some(&"on purpose"));
}

/// With nothing to do the mirror's thread waits, and requests no wait for programs.
#[test]
fn nothing_is_waited_for_for_ever() {
    let Some((lab, accelerator)) = start() else { return };
    traffic(&lab);
    let source = accelerator.source();
    let mirror = || source.mirror().expect("the thread answers");
    while mirror().mirror.counts.waiting > 0 {
        thread::yield_now();
    }
    let before = mirror().grace_periods;
    // Some heartbeats later.
    let until = std::time::Instant::now() + 4 * LEASE;
    while std::time::Instant::now() < until {
        thread::yield_now();
    }
    assert!(mirror().grace_periods <= before + 2, "{:#?}", mirror());
    lab.router.run(move || accelerator.stop());
}

/// Of a family whose packets meet rules, packets of no settled connection are the kernel's, and its rules see all of them:
/// this stream gets no answers. The other family is forwarded.
#[test]
fn what_nobody_answers_is_the_kernels_in_a_family_with_rules_and_forwarded_in_the_other_one() {
    if !scenario::has("nft") {
        return;
    }
    let options = LabOptions { kernel_router: true, ..LabOptions::default() };
    let Some(lab) = scenario::lab(options) else { return };
    let nft = |arguments: &'static str| {
        lab.router.run(move || {
            let output = Command::new("nft").arg(arguments).output().expect("it is there");
            assert!(output.status.success(), "{arguments}: {output:?}");
            String::from_utf8(output.stdout).expect("it is text")
        })
    };
    nft(
        "add table ip fw; add chain ip fw forward { type filter hook forward priority 0; policy drop; }",
    );
    nft("add rule ip fw forward counter accept");
    let started = lab.router.run(|| Accelerator::start(Options::new(["lan", "wan"])));
    let accelerator = started.unwrap_or_else(|error| panic!("{error}"));
    traffic(&lab); // So that neighbours are known.
    let before = accelerator.source().ledger().forwarded;
    traffic(&lab);
    let forwarded = accelerator.source().ledger().forwarded - before;
    assert!((1000..1100).contains(&forwarded), "one of two streams: {forwarded}");
    let counted = nft("list table ip fw");
    let packets = counted.split("packets ").nth(1).and_then(|rest| rest.split(' ').next());
    let packets: u64 = packets.and_then(|word| word.parse().ok()).expect("it has a counter");
    assert!(packets >= 2000, "of both rounds: {counted}");
    lab.router.run(move || accelerator.stop());
}

fn start() -> Option<(Lab, Accelerator)> {
    let lab = scenario::lab(LabOptions { kernel_router: true, ..LabOptions::default() })?;
    let started = lab.router.run(|| Accelerator::start(Options::new(["lan", "wan"])));
    let accelerator = started.unwrap_or_else(|error| panic!("{error}"));
    traffic(&lab); // So that neighbours are known.
    Some((lab, accelerator))
}

fn traffic(lab: &Lab) {
    for destination in [SERVER_V4, SERVER_V6] {
        let report = udp_stream(&lab.client, &lab.server, destination, 1000, 100, 0);
        let report = report.expect("the server is reachable");
        assert!(report.is_perfect(), "{destination}: {report:?}");
    }
}
