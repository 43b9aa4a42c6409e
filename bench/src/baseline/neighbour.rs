//! A neighbour as the Linux kernel had it until 2010, and the source's fix of what it cost.
//!
//! A route result that is not in the route cache is used for one frame. On transmit, the kernel found that it had no
//! header cache yet, and made the neighbour's its own: under the neighbour's lock, written, and by an addition to the
//! cache's count. With the frame the result was freed, and the count subtracted from. The fix (`DST_NOCACHE`) lets such
//! results do without: the lock is taken to read, and the header made from the address.
//!
//! | access                        | `before`              | `nocache`             |
//! |-------------------------------|-----------------------|-----------------------|
//! | the neighbour's lock          | written               | read                  |
//! | the header cache's count      | an addition, and a subtraction when the frame is gone | none |
//!
//! To their advantage: the neighbour is found without a reference (the kernel took one), address and lock are on one
//! line, nothing keeps interrupts or softirqs off, and the lock is not the kernel's of then, whose writers paid a
//! locked operation to let go, but has each side's cheapest form: a writer takes one locked operation and a reader two.
//!
//! The same file is compiled into the build that counts accesses, so it takes its atomics from
//! `primitive`, and nothing else.

#![allow(clippy::disallowed_types, reason = "taken from `primitive`; clippy knows them by origin")]

use std::hint::spin_loop;

use manylane_sync::CacheAligned;
use manylane_sync::primitive::{AtomicU32, AtomicU64, Ordering};

pub struct Table {
    buckets: Vec<Vec<CacheAligned<Neighbour>>>,
}

/// One neighbour: key, lock and address on one line, the header cache's count on another.
struct Neighbour {
    address: u32,
    lock: Lock,
    mac: AtomicU64,
    /// Our own address on its link, which the kernel has in the device: on the same line here.
    source: [u8; 6],
    header_cache: CacheAligned<AtomicU32>,
}

const BUCKETS: usize = 256;

impl Table {
    /// A table of these neighbours: IPv4 address and MAC address, behind our `source`.
    pub fn new(neighbours: &[(u32, [u8; 6])], source: [u8; 6]) -> Table {
        let mut buckets: Vec<Vec<_>> = (0..BUCKETS).map(|_| Vec::new()).collect();
        for &(address, mac) in neighbours {
            buckets[bucket(address)].push(CacheAligned(Neighbour {
                address,
                lock: Lock::default(),
                mac: AtomicU64::new(word(mac)),
                source,
                header_cache: CacheAligned(AtomicU32::new(1)), // The neighbour's own.
            }));
        }
        Table { buckets }
    }

    /// Writes the header of a frame to this address as before the fix. False: the table has no such neighbour.
    #[inline(always)]
    pub fn before(&self, address: u32, header: &mut [u8; 14]) -> bool {
        let Some(neighbour) = self.find(address) else { return false };
        neighbour.lock.write(|| {
            // Relaxed: the neighbour has a reference of its own, and the lock orders the rest.
            neighbour.header_cache.fetch_add(1, Ordering::Relaxed);
            neighbour.make_header(header);
        });
        // The frame has left, and the route result with it.
        // Release: the weaker part of the kernel's `atomic_dec_and_test`.
        neighbour.header_cache.fetch_sub(1, Ordering::Release) != 1
    }

    /// Writes the header by the source's fix.
    #[inline(always)]
    pub fn nocache(&self, address: u32, header: &mut [u8; 14]) -> bool {
        let Some(neighbour) = self.find(address) else { return false };
        neighbour.lock.read(|| neighbour.make_header(header));
        true
    }

    #[inline(always)]
    fn find(&self, address: u32) -> Option<&Neighbour> {
        let found = self.buckets[bucket(address)].iter().find(|found| found.address == address);
        found.map(|found| &**found)
    }
}

impl Neighbour {
    #[inline(always)]
    fn make_header(&self, header: &mut [u8; 14]) {
        // Relaxed: the lock orders.
        let [a, b, c, d, e, f, ..] = self.mac.load(Ordering::Relaxed).to_ne_bytes();
        header[..6].copy_from_slice(&[a, b, c, d, e, f]);
        header[6..12].copy_from_slice(&self.source);
        header[12..].copy_from_slice(&[0x08, 0x00]);
    }
}

#[inline(always)]
fn bucket(address: u32) -> usize {
    // Knuth's multiplicative hash: cheaper than the kernel's.
    (address.wrapping_mul(0x9e37_79b1) >> 24) as usize % BUCKETS
}

fn word(mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_ne_bytes([a, b, c, d, e, f, 0, 0])
}

/// A lock for many readers or one writer, that spins.
#[derive(Default)]
struct Lock {
    writer: AtomicU32,
    readers: AtomicU32,
}

impl Lock {
    #[inline(always)]
    fn write(&self, work: impl FnOnce()) {
        // SeqCst, and below: a writer announces itself and looks for readers, a reader announces itself and looks for
        // writers; one of the two must see the other.
        while self.writer.load(Ordering::Relaxed) != 0 || self.writer.swap(1, Ordering::SeqCst) != 0
        {
            spin_loop();
        }
        while self.readers.load(Ordering::SeqCst) != 0 {
            spin_loop();
        }
        work();
        // Release: pairs with the next one's `swap`, and with a reader's look.
        self.writer.store(0, Ordering::Release);
    }

    #[inline(always)]
    fn read(&self, work: impl FnOnce()) {
        self.readers.fetch_add(1, Ordering::SeqCst);
        while self.writer.load(Ordering::SeqCst) != 0 {
            self.wait();
        }
        work();
        // Release: pairs with a writer's look for readers.
        self.readers.fetch_sub(1, Ordering::Release);
    }

    /// A reader makes way for a writer.
    #[cold]
    fn wait(&self) {
        self.readers.fetch_sub(1, Ordering::Release);
        while self.writer.load(Ordering::Relaxed) != 0 {
            spin_loop();
        }
        self.readers.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const MAC: [u8; 6] = [2, 1, 2, 3, 4, 5];
    const OURS: [u8; 6] = [2, 0, 0, 0, 0, 9];

    #[test]
    fn both_ways_write_the_header() {
        let table = Table::new(&[(7, [0; 6]), (9, MAC)], OURS);
        let (mut one, mut other) = ([0; 14], [0; 14]);
        assert!(table.before(9, &mut one) && table.nocache(9, &mut other));
        assert_eq!(one, other);
        assert_eq!(one, [2, 1, 2, 3, 4, 5, 2, 0, 0, 0, 0, 9, 8, 0]);
        assert!(!table.before(8, &mut one) && !table.nocache(8, &mut one), "nobody has it");
        assert_eq!(table.find(9).expect("it is there").header_cache.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_writer_is_alone() {
        let lock = Lock::default();
        let words = [const { AtomicU64::new(0) }; 2];
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        lock.write(|| {
                            // Not atomic together, but for the lock.
                            let next = words[0].load(Ordering::Relaxed) + 1;
                            words.iter().for_each(|word| word.store(next, Ordering::Relaxed));
                        });
                        lock.read(|| {
                            let [one, other] =
                                [0, 1].map(|word| words[word].load(Ordering::Relaxed));
                            assert_eq!(one, other);
                        });
                    }
                });
            }
        });
        assert_eq!(words[0].load(Ordering::Relaxed), 4000);
    }
}
