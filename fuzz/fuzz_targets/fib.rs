//! Any sequence of edits and lookups, in both families: each answer is the definition's, in a list of
//! routes that is searched from end to end, and at the end nothing is left.
//!
//! ```sh
//! cargo fuzz run --sanitizer none --features libfuzzer fib -- -max_total_time=60
//! ```
//!
//! The input is a list of edits, seven bytes each: what to do, length, next hop, and four bytes of an
//! address, which are spread so that they meet in few /16s (IPv4), or in few /32s and /64s (IPv6).
//! After each edit the addresses at its ends and beside them are looked up.
//! Not looked for: readers beside the writer, tables that are full, routes so short that painting them
//! is most of the time.
#![no_main]

use std::cell::RefCell;
use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use manylane_net::fib::{EditError, IpPrefix, Limits, NextHopId};
use manylane_net::fib::{Ipv4Fib, Ipv4Prefix, Ipv4Sizes, Ipv4Tables, Ipv4Writer};
use manylane_net::fib::{Ipv6Fib, Ipv6Prefix, Ipv6Sizes, Ipv6Tables, Ipv6Writer};
use manylane_sync::rcu::{Domain, Reader};

/// More make the list's search slow.
const EDITS_MAX: usize = 200;

thread_local! {
    static TABLES: RefCell<Tables> = RefCell::new(Tables::new());
}

fuzz_target!(|bytes: &[u8]| TABLES.with_borrow_mut(|tables| tables.run(bytes)));

/// Made once: to clear them takes longer than a run, which leaves them empty.
struct Tables {
    ipv4: Ipv4Writer,
    ipv6: Ipv6Writer,
    readers: (Ipv4Fib, Ipv6Fib),
    reader: Reader,
    routes: Vec<(IpPrefix, NextHopId)>,
}

impl Tables {
    fn new() -> Tables {
        let domain = Domain::new(1);
        let limits = Limits { routes_max: EDITS_MAX, waiting_max: 64 };
        let ipv4 = Ipv4Tables::zeroed(Ipv4Sizes::for_long_routes(EDITS_MAX));
        let ipv6 = Ipv6Tables::zeroed(Ipv6Sizes::for_routes(EDITS_MAX));
        let ipv4 = Ipv4Writer::new(ipv4, &domain, limits);
        let ipv6 = Ipv6Writer::new(ipv6, &domain, limits);
        Tables {
            readers: (ipv4.reader(), ipv6.reader()),
            ipv4,
            ipv6,
            reader: domain.register().expect("it is the only one"),
            routes: Vec::new(),
        }
    }

    fn run(&mut self, bytes: &[u8]) {
        for &[what, len, id, place @ ..] in bytes.as_chunks::<7>().0.iter().take(EDITS_MAX) {
            let prefix = prefix(what & 1 != 0, len, place);
            let id = NextHopId::new(u16::from(id) + 1).expect("at most 256");
            self.edit(prefix, (what & 6 != 0).then_some(id));
            if what & 0x80 != 0 {
                self.reader.quiescent();
            }
            self.check(prefix);
        }
        while let Some(&(prefix, _)) = self.routes.first() {
            self.edit(prefix, None);
            self.check(prefix);
        }
        self.retire_and_reclaim();
        assert_eq!((self.ipv4.words_used(), self.ipv6.words_used()), ((0, 0), (0, 0)));
    }

    /// Inserts or removes, and again after a grace period when it has to wait for one.
    fn edit(&mut self, prefix: IpPrefix, id: Option<NextHopId>) {
        let mut answer = self.try_edit(prefix, id);
        if matches!(answer, Err(EditError::Busy { .. })) {
            self.check(prefix);
            self.retire_and_reclaim();
            answer = self.try_edit(prefix, id);
        }
        let place = self.routes.iter().position(|route| route.0 == prefix);
        assert_eq!(answer, Ok(place.map(|place| self.routes[place].1)), "{prefix}");
        self.routes.extend(id.map(|id| (prefix, id)));
        if let Some(place) = place {
            self.routes.swap_remove(place);
        }
    }

    fn try_edit(
        &mut self,
        prefix: IpPrefix,
        id: Option<NextHopId>,
    ) -> Result<Option<NextHopId>, EditError> {
        match (prefix, id) {
            (IpPrefix::V4(prefix), Some(id)) => self.ipv4.insert(prefix, id),
            (IpPrefix::V4(prefix), None) => self.ipv4.remove(prefix),
            (IpPrefix::V6(prefix), Some(id)) => self.ipv6.insert(prefix, id),
            (IpPrefix::V6(prefix), None) => self.ipv6.remove(prefix),
        }
    }

    /// Two turns: what was retired during a grace period waits for the next.
    fn retire_and_reclaim(&mut self) {
        for _ in 0..2 {
            self.reader.quiescent();
            self.ipv4.reclaim();
            self.ipv6.reclaim();
        }
    }

    /// One by one and in a batch.
    fn check(&self, prefix: IpPrefix) {
        let guard = self.reader.guard();
        match prefix {
            IpPrefix::V4(prefix) => {
                let (first, last) = (prefix.addr().to_bits(), prefix.last().to_bits());
                let addrs = [first, last, first.wrapping_sub(1), last.wrapping_add(1)];
                let mut ids = [0; 4];
                self.readers.0.lookup_batch(guard, &addrs, &mut ids);
                assert_eq!(ids, addrs.map(|addr| self.longest(IpAddr::V4(addr.into()))));
                let single = addrs.map(|addr| self.readers.0.lookup(guard, addr).raw() as u16);
                assert_eq!(ids, single);
            }
            IpPrefix::V6(prefix) => {
                let (first, last) = (prefix.addr().to_bits(), prefix.last().to_bits());
                let addrs = [first, last, first.wrapping_sub(1), last.wrapping_add(1)];
                let mut ids = [0; 4];
                self.readers.1.lookup_batch(guard, &addrs, &mut ids);
                assert_eq!(ids, addrs.map(|addr| self.longest(IpAddr::V6(addr.into()))));
                let single = addrs.map(|addr| self.readers.1.lookup(guard, addr).raw() as u16);
                assert_eq!(ids, single);
            }
        }
    }

    fn longest(&self, addr: IpAddr) -> u16 {
        let matching = self.routes.iter().filter(|(prefix, _)| prefix.contains(addr));
        matching.max_by_key(|(prefix, _)| prefix.len()).map_or(0, |(_, id)| id.raw())
    }
}

fn prefix(is_ipv6: bool, len: u8, place: [u8; 4]) -> IpPrefix {
    if is_ipv6 {
        // The first byte says which /8 and how the others are spread over the rest.
        let [top, rest @ ..] = place;
        let top = [0x20_u128, 0x2a, 0x3f, 0, 0xfd, 0xff, 0x1f, 0x40][usize::from(top % 8)] << 120;
        let rest = u128::from(u32::from_be_bytes([0, rest[0], rest[1], rest[2]]));
        let bits = match place[0] >> 6 {
            0 => rest << 72,
            1 => rest << 56,
            2 => rest << 40 | rest,
            _ => rest,
        };
        let prefix = Ipv6Prefix::containing((top | bits).into(), 14 + len % 115);
        return IpPrefix::V6(prefix.expect("at most 128"));
    }
    let bits = u32::from_be_bytes(place) & 0x83ff_ffff;
    IpPrefix::V4(Ipv4Prefix::containing(bits.into(), 12 + len % 21).expect("at most 32"))
}
