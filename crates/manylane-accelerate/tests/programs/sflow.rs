//! What programs note for sFlow: one packet in N, as received, and packets that the kernel discards.

use manylane_accelerate::programs::{SampledBy, Sflow, SflowNote, TryOptions};
use manylane_io::affinity;
use manylane_net::transit::Verdict;

use super::packet::{TCP, V4, tcp, v4, v6};
use super::rig::{EGRESS, FORWARDING, NEXT, Rig};

const TO: &str = "198.51.100.7";
const TO6: &str = "2001:db8:2::7";
/// No route leads there.
const NOWHERE: &str = "203.0.113.1";

fn rig() -> Option<(Rig, Sflow)> {
    let mut rig = Rig::new()?;
    // Of one CPU: its skips are not mixed with another's.
    affinity::pin(affinity::cores().expect("there are some")[0]).expect("it may run there");
    let sflow = rig.fast.take_sflow().expect("nobody has it");
    Some((rig, sflow))
}

fn notes(sflow: &mut Sflow) -> Vec<SflowNote> {
    let mut notes = Vec::new();
    while sflow.notes.take(64, |note| notes.push(note)) > 0 {}
    notes
}

fn repeat(rig: &Rig, frame: &[u8], times: u32) {
    let options = TryOptions { repeat: times, ..TryOptions::default() };
    rig.fast.try_packet(frame, &options).expect("the kernel tries it");
}

#[test]
fn a_noted_packet_is_as_it_came_with_its_way() {
    let Some((rig, mut sflow)) = rig() else { return };
    let long = V4 { payload: vec![7; 500], ..v4(TO) }.frame();
    rig.try_frame(&long);
    assert_eq!(notes(&mut sflow), [], "nobody has asked");
    sflow.rates.set(1, Some(1)).expect("a rate");
    for (frame, verdict) in [
        (long, Verdict::Forwarded),
        (v6(TO6).frame(), Verdict::Forwarded),
        (v4(NOWHERE).frame(), Verdict::NoRoute),
        (V4 { ttl: 1, ..v4(TO) }.frame(), Verdict::Ttl),
    ] {
        assert_eq!(rig.verdict(&frame), verdict as u8);
        let [note] = notes(&mut sflow).try_into().expect("one packet, one note");
        let is_forwarded = verdict == Verdict::Forwarded;
        let by = if is_forwarded { SampledBy::Ingress } else { SampledBy::Kernel };
        assert_eq!((note.port, note.verdict, note.by), (1, verdict as u8, by));
        assert_eq!((note.packets, note.samples, note.rate, note.interface), (1, 1, 1, 1));
        assert_eq!(note.len as usize, frame.len());
        assert_eq!(note.header, frame[..frame.len().min(128)], "as received");
        assert_eq!((note.tag, note.translated), (None, None));
        assert_eq!(note.egress, is_forwarded.then_some((77, [2, 0, 0, 0, 0, 1])));
    }
    assert_eq!(sflow.counts.port(1).pool, 4);
}

/// So the kernel's interfaces have samples.
#[test]
fn what_a_port_may_not_forward_is_sampled_and_left_alone() {
    let Some((mut rig, mut sflow)) = rig() else { return };
    rig.port(1, EGRESS | FORWARDING);
    sflow.rates.set(1, Some(1)).expect("a rate");
    for frame in [v4(TO).frame(), v6(TO6).frame(), v4(NOWHERE).frame()] {
        let (action, after, _) =
            rig.fast.try_packet(&frame, &TryOptions::default()).expect("the kernel tries it");
        assert_eq!((action, &after), (NEXT, &frame));
        let [note] = notes(&mut sflow).try_into().expect("one packet, one note");
        assert_eq!((note.port, note.verdict), (1, Verdict::NotIngress as u8));
        assert_eq!((note.by, note.samples, note.egress), (SampledBy::Kernel, 1, None));
        assert_eq!(note.header, frame[..frame.len().min(128)], "as received");
    }
}

#[test]
fn one_packet_in_n_is_noted_and_none_is_missing_from_the_pool() {
    let Some((rig, mut sflow)) = rig() else { return };
    let frame = v4(NOWHERE).frame();
    let mut pool = 0;
    for rate in [100u32, 1000, 7] {
        sflow.rates.set(1, Some(rate)).expect("a rate");
        let times = rate * 400;
        repeat(&rig, &frame, times);
        let samples: u32 = notes(&mut sflow).iter().map(|note| note.samples).sum();
        // Five times the standard deviation of as many independent draws.
        assert!(samples.abs_diff(400) <= 100, "1 in {rate} of {times}: {samples}");
        pool += u64::from(times);
        assert_eq!(sflow.counts.port(1).pool, pool, "after 1 in {rate}");
    }
    sflow.rates.set(1, None).expect("none");
    repeat(&rig, &frame, 1000);
    assert_eq!(notes(&mut sflow), []);
    assert!(sflow.rates.set(1, Some(0)).is_err(), "a rate of 0 is an error, not an end");
}

#[test]
fn what_the_ring_has_no_room_for_is_counted() {
    let Some((rig, mut sflow)) = rig() else { return };
    sflow.rates.set(1, Some(1)).expect("a rate");
    repeat(&rig, &v4(NOWHERE).frame(), 20_000);
    let noted = notes(&mut sflow).len() as u64;
    let count = sflow.counts.port(1);
    assert!(noted > 500, "{noted}");
    assert_eq!((noted + count.lost, count.pool), (20_000, 20_000), "{count:?}");
}

fn segments() -> Vec<u8> {
    let mut packet = v4(TO);
    (packet.protocol, packet.payload) = (TCP, tcp(0, 4));
    packet.payload.resize(20 + 3000, 7);
    packet.frame()
}

#[test]
fn a_packet_of_segments_counts_as_its_segments() {
    let Some((rig, mut sflow)) = rig() else { return };
    sflow.rates.set(1, Some(4)).expect("a rate");
    let mut samples = 0;
    for _ in 0..100 {
        assert_eq!(rig.try_segments(&segments(), 300).verdict, 0);
        let taken = notes(&mut sflow);
        assert!(taken.iter().all(|note| note.packets == 11), "{taken:?}");
        samples += taken.iter().map(|note| note.samples).sum::<u32>();
    }
    assert_eq!(sflow.counts.port(1).pool, 1100);
    assert!(samples.abs_diff(275) <= 83, "{samples}");
}

#[test]
fn segments_are_sampled_as_often_as_packets_whatever_n_is() {
    let Some((rig, mut sflow)) = rig() else { return };
    let (mut pool, mut sampled) = (0, 0);
    for rate in [1u32, 2, 3, 4, 6, 8, 11, 16] {
        sflow.rates.set(1, Some(rate)).expect("a rate");
        let options = TryOptions { gso_size: 300, repeat: 20_000 * rate, ..TryOptions::default() };
        rig.fast.try_packet(&segments(), &options).expect("the kernel tries it");
        let count = sflow.counts.port(1);
        let (packets, samples) = (count.pool - pool, count.noted + count.lost - sampled);
        (pool, sampled) = (count.pool, count.noted + count.lost);
        assert_eq!(packets, 220_000 * u64::from(rate));
        // Skips of 1 to 2N - 1 deviate by N / 1.7: 220,000 of them by 0.13 %. The bound is five times as much.
        assert!(samples.abs_diff(220_000) < 1430, "1 in {rate}: {samples} of {packets}");
    }
}

#[test]
fn discarded_packets_are_reported_up_to_a_bound() {
    let Some((rig, mut sflow)) = rig() else { return };
    sflow.rates.report(&[Verdict::NoRoute as u8, 0], 10, u32::MAX);
    repeat(&rig, &v4(NOWHERE).frame(), 25);
    rig.try_frame(&v4(TO).frame());
    let reported = notes(&mut sflow);
    assert_eq!(reported.len(), 10);
    assert!(
        reported.iter().all(|note| note.is_report && note.samples == 0 && note.verdict == 13),
        "{reported:?}"
    );
    assert_eq!(sflow.counts.port(1).unreported, 15);
    assert_eq!((sflow.counts.port(1).pool, sflow.counts.port(1).lost), (0, 0));
    // A sample may be a report, too.
    sflow.rates.set(1, Some(1)).expect("a rate");
    sflow.rates.report(&[Verdict::NoRoute as u8], 11, u32::MAX);
    repeat(&rig, &v4(NOWHERE).frame(), 2);
    let both: Vec<_> = notes(&mut sflow).iter().map(|one| (one.samples, one.is_report)).collect();
    assert_eq!(both, [(1, false), (1, false)], "the period has had its reports");
}
