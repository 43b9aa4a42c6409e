//! What comes, and what each frame says of itself.

use super::order::BUCKETS;
use super::sink::{Extra, work};
use crate::prelude::*;
use manylane_lab::device::{RING, targets, write_ipv4};

/// Which flows, in which shares.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// 2^20 flows, each as often as the others.
    Even,
    /// The nth of 2^16 flows once for n times that the first one comes (Zipf): that one is a twelfth of all frames.
    HeavyTailed,
}

/// What comes, for each mix, again and again.
pub struct Traffic {
    mixes: [Vec<Target>; 2],
    template: Head,
}

const HEAVY_TAILED_FLOWS: usize = 1 << 16;

impl Traffic {
    /// To destinations inside announced prefixes.
    pub fn new(prefixes: &Prefixes) -> Traffic {
        let even = targets(prefixes, &mut Random(99), FRAME_LEN);
        // By the sums of 1/n up to each flow, one is drawn in proportion to its own.
        let mut sum = 0.0;
        let sums = (1..=HEAVY_TAILED_FLOWS).map(|n| {
            sum += 1.0 / n as f64;
            sum
        });
        let sums: Vec<f64> = sums.collect();
        let mut random = Random(7);
        let heavy_tailed = (0..TARGETS).map(|_| {
            let at = random.below(1 << 40) as f64 / (1u64 << 40) as f64 * sum;
            even[sums.partition_point(|&sum| sum <= at).min(HEAVY_TAILED_FLOWS - 1)]
        });
        let heavy_tailed = heavy_tailed.collect();
        let template = ipv4_template(Ipv4Addr::UNSPECIFIED, FRAME_LEN).0;
        Traffic { mixes: [even, heavy_tailed], template }
    }

    /// The part of a mix that each bucket has.
    pub fn shares(&self, mix: Mix) -> [f64; BUCKETS] {
        let mut shares = [0.0; BUCKETS];
        for target in &self.mixes[mix as usize] {
            shares[usize::from(target.bucket)] += 1.0 / TARGETS as f64;
        }
        shares
    }
}

/// A device whose frames are stamped.
pub fn device(
    switch: Reading,
    traffic: Arc<Traffic>,
) -> Device<impl FnMut(&Pool, &mut [Frame], Run) + Send + 'static> {
    let (mut made, mut state) = (0_u64, 1);
    let extra = switch.clone();
    let write = move |pool: &Pool, frames: &mut [Frame], run: Run| {
        let targets = &traffic.mixes[run.mix];
        let mut due_ps = run.due_ps;
        let steps = Extra::of(&extra).received;
        for bytes in pool.region().view().land(frames, FRAME_LEN as u16) {
            let target = &targets[made as usize % TARGETS];
            made += 1;
            write_ipv4(bytes, &traffic.template, target);
            let bytes = head(bytes);
            bytes[PLACE..PLACE + 8].copy_from_slice(&made.to_ne_bytes());
            bytes[DUE..DUE + 8].copy_from_slice(&(due_ps / 1000).to_ne_bytes());
            bytes[BUCKET] = target.bucket;
            due_ps += run.gap_ps;
            if steps > 0 {
                state = work(state ^ made, steps.into());
            }
        }
        black_box(state);
    };
    Device::new(switch, RING, write).leaving_reserve()
}

/// Where a frame says what it is, behind the UDP header, where no rule looks: its place among all that its
/// device made, when it was due, its bucket.
const PLACE: usize = 42;
const DUE: usize = 50;
const BUCKET: usize = 58;

#[derive(Clone, Copy)]
pub struct Stamp {
    /// From 1.
    pub place: u64,
    /// 0 if it was taken as soon as it came.
    pub due_ns: u64,
    pub bucket: u8,
}

impl Stamp {
    #[inline(always)]
    pub fn of(frame: &[u8]) -> Stamp {
        let frame: &[u8; FRAME_LEN] = frame.first_chunk().expect("frames have 64 bytes");
        let word = |at: usize| {
            u64::from_ne_bytes(*frame[at..].first_chunk().expect("the stamp is inside"))
        };
        Stamp { place: word(PLACE), due_ns: word(DUE), bucket: frame[BUCKET] }
    }
}
