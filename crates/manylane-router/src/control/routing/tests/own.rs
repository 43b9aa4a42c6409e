//! Our own addresses, as far as others may have them too.

use manylane_net::neighbour::{Claim, DuplicateDetection, OwnState};

use super::*;

impl Bed {
    /// Port 0 is a link with other stations.
    fn watching(mode: DuplicateDetection) -> Bed {
        let mut bed = Bed::new();
        bed.routing.watch_own([PortId(0)], mode, at(0));
        bed
    }

    fn claim(&mut self, addr: &str, claim: Claim, now: u64) {
        let report = Report::Claimed { key: key(0, addr), mac: MAC, claim };
        self.routing.handle(report, at(now), &mut self.effects);
    }

    /// Lets time pass; returns what is sent, and when in seconds.
    fn wait(&mut self, until: u64) -> Vec<(u64, Order)> {
        let mut sent = Vec::new();
        while let Some(now) = self.routing.deadline(at(until)).filter(|&due| due <= at(until)) {
            self.routing.tick(now, &mut self.effects);
            sent.extend(self.orders().into_iter().map(|order| (now.as_secs(), order)));
        }
        sent
    }

    fn own(&self, addr: &str) -> (OwnState, bool) {
        let mut all = self.routing.own_addresses();
        let own = all.find(|(own, _)| own.key == key(0, addr)).expect("it is watched").0;
        (own.state, own.in_use)
    }
}

const BOTH: [(&str, &str); 2] = [("10.0.0.1", "10.0.0.1/32"), ("2001:db8::1", "2001:db8::1/128")];

#[test]
fn our_addresses_are_probed_and_announced_where_others_are() {
    let mut bed = Bed::watching(DuplicateDetection::Optimistic);
    let sent = bed.wait(20);
    for (addr, probes, announcements) in
        [("10.0.0.1", 3, 2), ("2001:db8::1", 1, 3), ("fe80::1", 1, 3)]
    {
        let of = |wanted: Order| sent.iter().filter(|(_, order)| *order == wanted).count();
        let key = key(0, addr);
        assert_eq!(
            (of(Order::Probe { key }), of(Order::Announce { key })),
            (probes, announcements)
        );
        assert_eq!(bed.own(addr), (OwnState::Held, true));
    }
    assert_eq!(sent.len(), 13, "nothing about port 1: it is a wire of our own");
    assert!(bed.effects.duplicates.is_empty());
}

#[test]
fn an_address_that_must_be_probed_first_is_nobodys_until_then() {
    let mut bed = Bed::watching(DuplicateDetection::Strict);
    for (addr, prefix) in BOTH {
        assert_eq!(bed.own(addr), (OwnState::Probing, false));
        assert_eq!(bed.route(prefix), Some(NextHop::Blackhole));
    }
    bed.claim("fe80::1", Claim::Wanted, 0);
    assert_eq!(bed.effects.duplicates, [(key(0, "fe80::1"), MAC)], "though it was not in use");
    assert_eq!(bed.route("10.0.1.1/32"), Some(NextHop::Local), "a wire of our own");
    bed.wait(20);
    for (addr, prefix) in BOTH {
        assert_eq!(bed.own(addr), (OwnState::Held, true));
        assert_eq!(bed.route(prefix), Some(NextHop::Local));
    }
}

#[test]
fn a_duplicate_is_left_told_and_taken_when_it_is_free_again() {
    let mut bed = Bed::watching(DuplicateDetection::Strict);
    for (addr, prefix) in BOTH {
        bed.claim(addr, Claim::Used, 0);
        assert_eq!(bed.own(addr), (OwnState::Duplicate, false));
        assert_eq!(bed.route(prefix), Some(NextHop::Blackhole));
        bed.claim(addr, Claim::Used, 1);
        assert_eq!(
            std::mem::take(&mut bed.effects.duplicates),
            [(key(0, addr), MAC)],
            "reported once"
        );
    }
    bed.wait(4);
    assert_eq!(bed.route("10.0.0.1/32"), Some(NextHop::Blackhole));
    bed.wait(20);
    for (addr, prefix) in BOTH {
        assert_eq!(bed.own(addr), (OwnState::Held, true));
        assert_eq!(bed.route(prefix), Some(NextHop::Local));
    }
}

/// RFC 5227 §2.4 (c), RFC 4862 §5.4.5: a station that claims the gateway while the router starts takes the IPv6 address
/// only.
#[test]
fn a_station_that_claims_the_gateway_at_start_does_not_take_its_ipv4_address() {
    let mut bed = Bed::watching(DuplicateDetection::Optimistic);
    let [(v4, prefix4), (v6, prefix6)] = BOTH;
    for now in 0..30 {
        bed.claim(v4, Claim::Used, now);
        bed.claim(v6, Claim::Used, now);
        bed.wait(now + 1);
        assert_eq!((bed.own(v4).1, bed.route(prefix4)), (true, Some(NextHop::Local)));
        assert_eq!((bed.own(v6).1, bed.route(prefix6)), (false, Some(NextHop::Blackhole)));
    }
    assert_eq!(bed.effects.kept, [(key(0, v4), MAC)], "reported once");
    assert_eq!(bed.effects.duplicates, [(key(0, v6), MAC)], "reported once");
    bed.wait(40);
    assert_eq!(bed.own(v6), (OwnState::Held, true), "seconds after the last claim");
}

/// RFC 5227 §2.4: after that, it is defended, and stays.
#[test]
fn an_address_that_is_held_is_defended_and_stays() {
    let mut bed = Bed::watching(DuplicateDetection::Strict);
    bed.wait(20);
    for (addr, prefix) in BOTH {
        for now in 100..112 {
            bed.claim(addr, Claim::Used, now);
        }
        assert_eq!(bed.orders(), [Order::Announce { key: key(0, addr) }; 2]);
        assert_eq!(bed.own(addr), (OwnState::Held, true));
        assert_eq!(bed.route(prefix), Some(NextHop::Local));
        let heard = |(own, conflicts): (&manylane_net::neighbour::OwnAddress, _)| {
            let conflicts: manylane_net::neighbour::Conflicts = conflicts;
            (own.key == key(0, addr)).then_some((conflicts.heard, conflicts.last))
        };
        assert_eq!(bed.routing.own_addresses().find_map(heard), Some((12, Some(MAC))));
    }
    assert!(bed.effects.duplicates.is_empty());
}

/// The FIB's limbo is full until the worker's turn ends: packets to the address are not ours at once.
#[test]
fn an_address_is_left_without_waiting_for_the_workers_turn() {
    let mut bed = Bed::watching(DuplicateDetection::Optimistic);
    bed.fill_limbo();
    let [_, (addr, prefix)] = BOTH;
    bed.claim(addr, Claim::Used, 0);
    assert_eq!(bed.route(prefix), Some(NextHop::Blackhole));
    assert_eq!(bed.routing.given_up(), 0);
}

/// A next hop that cannot be solicited yet is waited for: its packets are held, not refused.
#[test]
fn a_next_hop_waits_until_there_is_an_address_to_ask_from() {
    for (mode, waits) in
        [(DuplicateDetection::Strict, true), (DuplicateDetection::Optimistic, false)]
    {
        let mut bed = Bed::watching(mode);
        for (prefix, addr, waits) in
            [("192.0.2.0/24", "10.0.0.2", waits), ("2001:db8:9::/48", "2001:db8::2", true)]
        {
            let port = PortId(0);
            let next_hop = key(0, addr).addr;
            bed.static_route(prefix, RouteTarget::Via { next_hop, port });
            let question = Order::Solicit { key: key(0, addr), unicast: None };
            assert_eq!(bed.orders().contains(&question), !waits, "{mode:?} {addr}");
        }
        let sent = bed.wait(60);
        for (own, addr, waits) in
            [("10.0.0.1", "10.0.0.2", waits), ("2001:db8::1", "2001:db8::2", true)]
        {
            let when = |order| sent.iter().position(|&(_, sent)| sent == order);
            let asked = when(Order::Solicit { key: key(0, addr), unicast: None });
            let announced = when(Order::Announce { key: key(0, own) });
            assert!(asked.is_some() && announced.is_some(), "{mode:?} {addr}");
            // The link-local address may be the source of a solicitation on the network before the network's own may.
            let first = match own {
                "2001:db8::1" => announced.min(when(Order::Announce { key: key(0, "fe80::1") })),
                _ => announced,
            };
            assert_eq!(first < asked, waits, "{mode:?} {addr}");
        }
    }
}

/// A solicitation that does not fit into the worker's ring is neither sent nor counted as sent, and is sent later.
#[test]
fn orders_wait_for_places_on_their_way() {
    let mut bed = Bed::watching(DuplicateDetection::Strict);
    bed.routing.give_places(0);
    for now in 0..30 {
        bed.missing(1, "10.0.1.0", now);
        bed.tick(now);
    }
    assert_eq!(bed.orders(), []);
    assert_eq!(bed.routing.deadline(at(30)), Some(at(30) + RETRY));
    assert_eq!(bed.own("2001:db8::1"), (OwnState::Probing, false));
    assert_eq!(bed.state(1, "10.0.1.0"), Some(State::Incomplete));
    bed.routing.give_places(4);
    bed.tick(30);
    let orders = bed.orders();
    assert_eq!(
        orders.len(),
        3,
        "two for our addresses, and all that the neighbours ask: {orders:?}"
    );
    assert!(orders.contains(&Order::Solicit { key: key(1, "10.0.1.0"), unicast: None }));
}
