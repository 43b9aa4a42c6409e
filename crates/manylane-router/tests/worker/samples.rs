//! Samples of received packets, and reports of drops, that a worker notes for an exporter.

use manylane_frame::vocabulary::{DropReason, PortId};
use manylane_net::neighbour::HoldLimits;
use manylane_net::wire::checksum::Sum;
use manylane_sync::words::WordsMut;
use manylane_worker::Worker;
use manylane_worker::sampler::{
    End, Note, Noted, SampleCount, SamplerEnd, SamplerOptions, sampler,
};
use manylane_worker::stats::PortCount;

use crate::rig::*;

/// A worker that samples what port 0 receives, and port 0's queue.
struct Sampled {
    hall: Hall,
    worker: Worker,
    feed: Feed,
    rates: WordsMut<u32>,
    end: SamplerEnd,
}

impl Sampled {
    fn new(rate: u32) -> Sampled {
        let mut hall = Hall::new(1);
        let (feed, (_, exits)) = (Feed::default(), sinks());
        let mut worker = hall.worker(vec![fed(0, 0, &feed)], exits, HoldLimits::default());
        let mut rates = WordsMut::zeroed(PORTS.into());
        rates.publish(0, rate);
        let options = SamplerOptions {
            rates: rates.reader(),
            devices: (0..PORTS).map(PortId).collect(),
            reasons: [DropReason::NoRoute].into(),
            drops_max: 2,
            bell: bell(),
        };
        let (sampler, end) = sampler(&options, 0x5eed);
        worker.work.sampler = Some(Box::new(sampler));
        hall.control.set("10.0.0.2", 0);
        hall.control.set("10.1.0.2", 1);
        Sampled { hall, worker, feed, rates, end }
    }

    fn receive(&mut self, frames: impl IntoIterator<Item = Vec<u8>>, now_ns: u64) {
        self.feed.lock().unwrap().extend(frames);
        while self.worker.turn(now_ns) > 0 {}
    }

    fn notes(&mut self) -> Vec<Note> {
        let notes = std::iter::from_fn(|| self.end.notes.pop()).collect();
        self.end.notes.release();
        notes
    }

    fn count(&self) -> SampleCount {
        self.end.counts.port(PortId(0))
    }

    fn close(self) {
        self.hall.close(vec![self.worker]);
    }
}

fn to(text: &str) -> Vec<u8> {
    packet(text.parse().unwrap(), 1, 7, 100)
}

/// The same packet with another TTL.
fn with_ttl(mut frame: Vec<u8>, ttl: u8) -> Vec<u8> {
    frame[14 + 8] = ttl;
    frame[24..26].fill(0);
    let sum = Sum::of(&frame[14..34]).finish();
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

#[test]
fn a_sample_is_the_packet_as_received_with_what_became_of_it() {
    let mut sampled = Sampled::new(1);
    let frames = ["10.1.0.2", "10.1.0.99", "10.0.0.1", "192.0.2.1", "2001:db8:1::9"].map(to);
    sampled.receive(frames.clone(), 0);
    let notes = sampled.notes();
    let samples: Vec<_> = notes
        .iter()
        .filter_map(|note| match note.noted {
            Noted::Sample { samples, rate, end } => Some((note, (samples, rate), end)),
            Noted::Dropped(_) => None,
        })
        .collect();
    assert_eq!(samples.len(), frames.len(), "{notes:#?}");
    let ends = [
        End::Leaves(PortId(1), station(1)),
        End::Waits,
        End::Dropped(DropReason::LocalNoService),
        End::Dropped(DropReason::NoRoute),
        End::Waits,
    ];
    for (((note, counts, end), frame), expected) in samples.into_iter().zip(&frames).zip(ends) {
        assert_eq!((note.port, counts, end), (PortId(0), (1, 1), expected));
        assert_eq!(note.len as usize, frame.len());
        assert_eq!(note.header(), &frame[..128], "as received");
    }
    assert_eq!(sampled.count(), SampleCount { pool: 5, noted: 5, lost: 0, unreported: 0 });
    sampled.hall.control.hear(0);
    sampled.close();
}

#[test]
fn samples_estimate_what_a_port_has_received() {
    for (rate, packets) in [(10, 20_000u32), (3, 5000)] {
        let mut sampled = Sampled::new(rate);
        let mut sum = 0;
        for _ in 0..packets / 100 {
            sampled.receive((0..100).map(|_| to("10.1.0.2")), 0);
            let notes = sampled.notes();
            sum += notes.len() as u64;
            assert!(notes.iter().all(|note| matches!(note.noted,
                Noted::Sample { samples: 1, rate: told, .. } if told == rate)));
        }
        let (all, count) = (u64::from(packets), sampled.count());
        assert_eq!(sampled.hall.sum(0, PortCount::Received), all);
        assert_eq!(count, SampleCount { pool: all, noted: sum, lost: 0, unreported: 0 });
        let estimate = sum * u64::from(rate);
        let error = 5.0 * (all as f64 * f64::from(rate - 1)).sqrt();
        assert!(estimate.abs_diff(all) as f64 <= error, "1 in {rate}: {estimate} of {all}");
        sampled.close();
    }
}

#[test]
fn a_port_without_a_rate_has_no_samples_and_another_rate_counts_at_once() {
    let mut sampled = Sampled::new(0);
    sampled.receive((0..500).map(|_| to("10.1.0.2")), 0);
    assert_eq!((sampled.notes(), sampled.count()), (vec![], SampleCount::default()));
    sampled.rates.publish(0, 1);
    sampled.receive([to("10.1.0.2")], 0);
    assert_eq!(sampled.notes().len(), 1);
    sampled.close();
}

#[test]
fn samples_without_a_place_are_counted_as_lost() {
    let mut sampled = Sampled::new(1);
    for _ in 0..50 {
        sampled.receive((0..100).map(|_| to("10.1.0.2")), 0);
    }
    let SampleCount { pool, noted, lost, .. } = sampled.count();
    assert_eq!((pool, noted + lost), (5000, 5000));
    assert!(lost > 0);
    assert_eq!(sampled.notes().len() as u64, noted);
    sampled.close();
}

/// A dropped packet is noted as it came, also where an error was made of it. A second has room for two.
#[test]
fn drops_are_noted_under_their_reasons_and_so_many_in_a_second() {
    let mut sampled = Sampled::new(1 << 24);
    let (no_route, expired) = (to("192.0.2.1"), with_ttl(to("10.1.0.2"), 1));
    let dropped = |sampled: &mut Sampled| -> Vec<_> {
        let of = |note: Note| (note.noted, note.len, note.header().to_vec());
        sampled.notes().into_iter().map(of).collect()
    };
    let expected =
        (Noted::Dropped(DropReason::NoRoute), no_route.len() as u32, no_route[..128].to_vec());
    sampled.receive([no_route.clone(), expired], 0);
    assert_eq!(dropped(&mut sampled), std::slice::from_ref(&expected), "TTLs are not asked for");
    for _ in 0..3 {
        sampled.receive([no_route.clone()], 1);
    }
    assert_eq!(dropped(&mut sampled), std::slice::from_ref(&expected));
    assert_eq!(sampled.count().unreported, 2);
    sampled.receive([no_route.clone()], SECOND);
    assert_eq!(dropped(&mut sampled), [expected]);
    assert_eq!(sampled.hall.dropped(0, DropReason::NoRoute), 5);
    sampled.close();
}
