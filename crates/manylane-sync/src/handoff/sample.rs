//! A look at the order in which packets of some flows leave, for an operator who wants to see that it holds.
//!
//! Each packet gets a number when it is received. The worker that is about to transmit it notes the number, and learns
//! whether a later one was noted before (a *reordered* packet, RFC 4737 §3.3). Flows that share a place forget each
//! other and are then not compared: a reordered packet may be missed. None is found where none is, since a noted flow
//! is known by 32 bits more than those of its place.

use crate::primitive::{Arc, AtomicU32, AtomicU64, Ordering};

/// The last packets of a few thousand flows. Clones share them.
#[derive(Clone)]
pub struct OrderSample(Arc<Box<[Place]>>);

/// What flows of one place have come to.
struct Place {
    /// The number of the last packet received.
    received: AtomicU32,
    /// 32 bits of the flow that was noted last, and its packet's number.
    noted: AtomicU64,
}

const PLACES: usize = 4096;

impl OrderSample {
    /// Nothing has been received.
    pub fn new() -> OrderSample {
        let place = || Place { received: AtomicU32::new(0), noted: AtomicU64::new(0) };
        OrderSample(Arc::new((0..PLACES).map(|_| place()).collect()))
    }

    /// Counts a packet of a flow that was received; returns its number. The numbers of a flow grow, modulo 2^32,
    /// whichever worker receives it.
    ///
    /// No flow is compared with a number from 2^31 packets ago, unless as many of its place were dropped one
    /// after another: each that leaves is noted there.
    pub fn receive(&self, flow: u64) -> u32 {
        // Relaxed: a number stands for itself, and increments of one word have an order. A flow changes its
        // receiver when what control tells the new one comes after what the old one received.
        self.place(mixed(flow)).received.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// Notes that a packet is about to leave, by one of several ways; whether a later one of its flow was
    /// noted before, for the same way.
    pub fn is_late(&self, flow: u64, way: u16, number: u32) -> bool {
        let mixed = mixed(flow);
        let tag = mixed as u32 ^ u32::from(way);
        let noted = &self.place(mixed).noted;
        // Relaxed, the store too: the word stands for itself. A worker that notes the next packet of a flow is ordered
        // after us by what has let that flow move (guarantee A), so that it does not find an older number than ours; a
        // worker that is not ordered after us is what we look for.
        let last = noted.load(Ordering::Relaxed);
        if (last >> 32) as u32 == tag && (number.wrapping_sub(last as u32) as i32) < 0 {
            return true;
        }
        noted.store(u64::from(tag) << 32 | u64::from(number), Ordering::Relaxed);
        false
    }

    fn place(&self, mixed: u64) -> &Place {
        &self.0[(mixed >> 32) as usize % PLACES]
    }
}

impl Default for OrderSample {
    fn default() -> Self {
        OrderSample::new()
    }
}

/// The finaliser of MurmurHash3 (Appleby): each bit of the flow changes half of the result's.
fn mixed(mut flow: u64) -> u64 {
    flow = (flow ^ flow >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    flow = (flow ^ flow >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    flow ^ flow >> 33
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_was_overtaken_is_late() {
        let sample = OrderSample::new();
        let late = |flow, way, numbers: &[u32]| -> Vec<bool> {
            numbers.iter().map(|&number| sample.is_late(flow, way, number)).collect()
        };
        assert_eq!(late(7, 0, &[1, 2, 5, 3, 4, 6]), [false, false, false, true, true, false]);
        assert_eq!(late(8, 0, &[3, 1]), [false, true], "each flow by itself");
        assert_eq!(late(8, 1, &[2]), [false], "and each way");
        assert_eq!(late(9, 0, &[4, 4, 4]), [false; 3], "a packet may leave in pieces");
        assert_eq!(late(10, 0, &[u32::MAX - 1, 1, u32::MAX]), [false, false, true], "numbers wrap");
    }

    #[test]
    fn numbers_go_up() {
        let sample = OrderSample::new();
        let numbers: Vec<u32> = (0..4).map(|_| sample.receive(7)).collect();
        assert_eq!(numbers, [1, 2, 3, 4]);
    }

    #[test]
    fn flows_in_one_place_forget_each_other() {
        let sample = OrderSample::new();
        let place = |flow| std::ptr::from_ref(sample.place(mixed(flow)));
        let other = (8..).find(|&flow| place(flow) == place(7)).expect("there is one");
        assert!(!sample.is_late(7, 0, 9));
        assert!(!sample.is_late(other, 0, 2));
        assert!(!sample.is_late(7, 0, 1));
    }
}
