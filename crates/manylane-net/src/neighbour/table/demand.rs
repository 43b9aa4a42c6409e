//! What speaks for an unknown neighbour being there, in memory of fixed size.
//!
//! A scan names more addresses than the table has entries and than questions may be sent (RFC 6583 §7). What tells a
//! station from a made-up address is remembered here, also when the table has forgotten its entry:
//!
//! | memory    | of addresses that                              | makes an unknown neighbour | entries               |
//! |-----------|------------------------------------------------|----------------------------|-----------------------|
//! | answered  | had an entry that was proven                   | [`Trust::Known`]           | twice the table's     |
//! | spoke     | spoke on their link, unasked                   | [`Trust::Expected`]        | twice the table's     |
//! | wanted    | a packet was for, [`AGAIN`] ago or longer      | [`Trust::Wanted`]          | [`WANTED`]            |
//!
//! and each sender of packets to unknown neighbours gets a few questions a second as [`Trust::Modest`], by
//! [`REQUESTERS`] buckets that senders are hashed into. All together these senders get half of the questions: spoofed
//! senders do not take all. A modest sender comes before an address that is wanted again, since a scan can name its
//! addresses as often as it likes; where spoofed senders empty the buckets, the second packet still counts.
//!
//! Memories keep tags of 32 bits, made with a key: a station on a link cannot make up addresses that push a chosen one
//! out, and a made-up address is taken for another with a probability of 2^-29.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::time::Duration;

use super::super::Key;
use super::super::bucket::Bucket;
use super::super::entry::Trust;

/// The sender of a packet to an unknown neighbour: its IPv4 address, or the network of its IPv6 address, in which a
/// host has as many addresses as it likes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Requester(u32);

impl Requester {
    /// The sender with this source address.
    pub fn of(source: IpAddr) -> Requester {
        Requester(match source {
            IpAddr::V4(source) => source.to_bits(),
            IpAddr::V6(source) => {
                let network = source.to_bits() >> 64;
                (network ^ network >> 32) as u32
            }
        })
    }
}

pub(super) struct Demand {
    seed: u64,
    answered: Memory,
    spoke: Memory,
    wanted: Memory,
    requesters: Vec<Bucket>,
}

impl Demand {
    pub fn new(seed: u64, entries_max: usize, questions_per_second: u32) -> Demand {
        let each = (questions_per_second / 2 / REQUESTERS as u32).max(1);
        Demand {
            seed,
            answered: Memory::new(2 * entries_max),
            spoke: Memory::new(2 * entries_max),
            wanted: Memory::new(WANTED),
            requesters: vec![Bucket::new(each, REQUESTER_BURST); REQUESTERS],
        }
    }

    /// What speaks for this neighbour, which has no address yet, now that a packet from `requester` needs it.
    pub fn judge(&mut self, key: Key, requester: Requester, now: Duration) -> Trust {
        let tag = self.hash(&key);
        if self.answered.find(tag).is_some() {
            return Trust::Known;
        }
        let is_wanted_again = match self.wanted.find(tag) {
            Some(first) => millis(now).wrapping_sub(first) >= AGAIN.as_millis() as u32,
            None => {
                self.wanted.insert(tag, now);
                false
            }
        };
        if self.spoke.find(tag).is_some() {
            return Trust::Expected;
        }
        let sender = self.hash(&requester) as usize % REQUESTERS;
        match self.requesters[sender].take(now, 0) {
            true => Trust::Modest,
            false if is_wanted_again => Trust::Wanted,
            false => Trust::Stranger,
        }
    }

    /// A station spoke from this address.
    pub fn spoke(&mut self, key: Key, now: Duration) {
        let tag = self.hash(&key);
        self.spoke.insert(tag, now);
    }

    /// The table forgets a neighbour that had answered.
    pub fn answered(&mut self, key: Key, now: Duration) {
        let tag = self.hash(&key);
        self.answered.insert(tag, now);
    }

    fn hash(&self, what: &impl Hash) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.seed.hash(&mut hasher);
        what.hash(&mut hasher);
        hasher.finish()
    }
}

/// A packet so much later than the first one is a request of its own: not a burst, and earlier than any transport
/// sends again (RFC 6298 §2.1: 1 s; some 200 ms).
const AGAIN: Duration = Duration::from_millis(100);

/// Addresses that packets were for: six seconds of a scan at 20,000 addresses a second, which is longer than a sender
/// waits before it sends a first packet again.
const WANTED: usize = 131_072;

/// Buckets of senders.
const REQUESTERS: usize = 128;

/// Unknown neighbours that a sender may need at once.
const REQUESTER_BURST: u32 = 8;

/// Tags and the times when they were entered, in sets of a cache line; the oldest of its set makes room.
struct Memory {
    sets: Vec<[(u32, u32); WAYS]>,
}

const WAYS: usize = 8;

impl Memory {
    fn new(entries: usize) -> Memory {
        Memory { sets: vec![Default::default(); entries.div_ceil(WAYS).next_power_of_two()] }
    }

    /// When it was entered, in milliseconds.
    fn find(&self, hash: u64) -> Option<u32> {
        let (set, tag) = self.place(hash);
        self.sets[set].iter().find(|(other, _)| *other == tag).map(|&(_, at)| at)
    }

    fn insert(&mut self, hash: u64, now: Duration) {
        let (set, tag) = self.place(hash);
        let set = &mut self.sets[set];
        let age = |&(other, at): &(u32, u32)| match other {
            0 => u32::MAX,
            _ => millis(now).wrapping_sub(at),
        };
        let known = (0..WAYS).find(|&way| set[way].0 == tag);
        let way = known.or_else(|| (0..WAYS).max_by_key(|&way| age(&set[way])));
        set[way.expect("a set has ways")] = (tag, millis(now));
    }

    /// The set, and the tag in it; 0 is no tag.
    fn place(&self, hash: u64) -> (usize, u32) {
        (hash as usize & (self.sets.len() - 1), ((hash >> 32) as u32).max(1))
    }
}

fn millis(now: Duration) -> u32 {
    now.as_millis() as u32
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use std::net::Ipv6Addr;

    use manylane_frame::vocabulary::PortId;

    use super::*;

    #[test]
    fn a_full_memory_forgets_the_oldest_and_no_newer_one() {
        let mut memory = Memory::new(WAYS);
        for hash in 1..=9_u64 {
            memory.insert(hash << 32, Duration::from_millis(hash));
        }
        let found = [1, 2, 3, 9].map(|hash: u64| memory.find(hash << 32));
        assert_eq!(found, [None, Some(2), Some(3), Some(9)]);
        memory.insert(2 << 32, Duration::from_millis(19));
        memory.insert(10 << 32, Duration::from_millis(20));
        assert_eq!((memory.find(2 << 32), memory.find(3 << 32)), (Some(19), None));
    }

    /// A burst to one address is one request; a packet that its sender repeats is another.
    #[test]
    fn a_packet_that_comes_again_speaks_for_its_neighbour_and_a_burst_does_not() {
        let mut demand = busy(1);
        for (at, trust) in [(0, Trust::Stranger), (50, Trust::Stranger), (250, Trust::Wanted)] {
            let now = Duration::from_millis(at);
            assert_eq!(demand.judge(key(9), SCANNER, now), trust, "{at} ms");
        }
    }

    #[test]
    fn what_spoke_is_expected_and_what_answered_is_known() {
        let mut demand = busy(2);
        demand.spoke(key(1), Duration::ZERO);
        demand.answered(key(2), Duration::ZERO);
        let trust = [1, 2, 3].map(|host| demand.judge(key(host), SCANNER, Duration::ZERO));
        assert_eq!(trust, [Trust::Expected, Trust::Known, Trust::Stranger]);
    }

    /// A host has a whole /64 to speak from.
    #[test]
    fn senders_of_one_ipv6_network_share_what_a_sender_gets() {
        let of = |text: &str| Requester::of(text.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        let mut demand = Demand::new(3, 64, 1000);
        let modest = (0..100)
            .filter(|&host| demand.judge(key(host), SCANNER, Duration::ZERO) == Trust::Modest);
        assert_eq!(modest.count(), REQUESTER_BURST as usize);
    }

    const SCANNER: Requester = Requester(7);

    /// All of its senders have needed many.
    fn busy(seed: u64) -> Demand {
        let mut demand = Demand::new(seed, 64, 1000);
        for bucket in &mut demand.requesters {
            while bucket.take(Duration::ZERO, 0) {}
        }
        demand
    }

    fn key(host: u128) -> Key {
        let addr = Ipv6Addr::from_bits((0x2001_0db8 << 96) + host).into();
        Key { port: PortId(1), addr }
    }
}
