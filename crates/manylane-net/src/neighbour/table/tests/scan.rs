//! Scans of a network through us (RFC 6583), with stations behind us that answer a solicitation at once.

use std::collections::BTreeMap;

use super::*;

/// Senders of one network name random addresses at 2 and at 20 kpps. A silent station that another sender wants is
/// solicited at once, whichever of its packets finds the table full.
#[test]
fn a_scan_does_not_delay_a_silent_neighbour_that_another_sender_wants() {
    for (base, per_second) in links().into_iter().flat_map(|base| [(base, 2000), (base, 20_000)]) {
        let mut scan = Scan::new(base, per_second, Senders::One);
        let mut worst = Duration::ZERO;
        for newcomer in 0..10 {
            scan.run(ms(417));
            worst = worst.max(scan.resolve(newcomer, Requester::of(v4(77).addr)));
        }
        assert!(worst <= ms(5), "{base} at {per_second}: {worst:?}");
        assert!(scan.questions <= scan.most_questions(), "{} questions", scan.questions);
    }
}

/// A scan that names the same addresses again and again makes all of them wanted; a modest sender still comes first.
#[test]
fn a_scan_that_repeats_its_addresses_does_not_delay_what_another_sender_wants() {
    for (base, per_second) in links().into_iter().flat_map(|base| [(base, 4000), (base, 20_000)]) {
        let mut scan = Scan::of(base, per_second, Senders::One, 1 << 15);
        scan.run(at(3 << 15) / per_second); // Each address is named several times.
        let mut worst = Duration::ZERO;
        for newcomer in 0..10 {
            scan.run(ms(417));
            worst = worst.max(scan.resolve(newcomer, Requester::of(v4(77).addr)));
        }
        assert!(worst <= ms(5), "{base} at {per_second}: {worst:?}");
        assert!(scan.questions <= scan.most_questions(), "{} questions", scan.questions);
    }
}

/// Each packet of the scan has another sender, so that senders say nothing. A packet that its sender repeats after a
/// second, as TCP does, speaks for its neighbour.
#[test]
fn a_scan_by_spoofed_senders_delays_a_silent_neighbour_until_its_second_packet() {
    for (base, per_second) in links().into_iter().flat_map(|base| [(base, 2000), (base, 20_000)]) {
        let mut scan = Scan::new(base, per_second, Senders::Spoofed);
        for newcomer in 0..10 {
            scan.run(ms(217));
            let took = scan.resolve(newcomer, scan.sender(newcomer));
            assert!(took <= ms(1250), "{base} at {per_second}: newcomer {newcomer} took {took:?}");
        }
        assert!(scan.questions <= scan.most_questions(), "{} questions", scan.questions);
    }
}

/// What has answered once, or has spoken on its link, is solicited at once when its entry is gone.
#[test]
fn a_scan_by_spoofed_senders_does_not_delay_what_answered_or_spoke_before() {
    for (base, per_second) in links().into_iter().flat_map(|base| [(base, 2000), (base, 20_000)]) {
        let mut scan = Scan::new(base, per_second, Senders::Spoofed);
        for known in 0..5 {
            scan.resolve(known, Requester::default());
            scan.table.forget(scan.station(known), scan.now, &mut Vec::new());
            scan.free();
        }
        for speaker in 5..10 {
            let key = scan.station(speaker);
            let spoken = Report::Answer { key, mac: Some(MAC), kind: Kind::Gratuitous };
            assert_eq!(handle(&mut scan.table, spoken, scan.now), [], "it enters no table");
        }
        scan.run(at(3));
        for station in 0..10 {
            scan.run(ms(97));
            let took = scan.resolve(station, scan.sender(station));
            assert!(took <= ms(5), "{base} at {per_second}: station {station} took {took:?}");
        }
    }
}

/// The entry of a station that answered before, and is off, outlives the scan: its packets are refused, not held.
#[test]
fn a_scan_takes_no_place_from_a_known_neighbour_that_failed() {
    for base in links() {
        // In 65 s that names far more addresses than the table has places.
        let mut scan = Scan::new(base, 4000, Senders::Spoofed);
        scan.resolve(1, Requester::default());
        let key = scan.station(1);
        let (slot, _) = scan.table.find(key).expect("it has answered");
        scan.is_silent = true;
        scan.run(at(50)); // The entry is stale by now.
        handle(&mut scan.table, Report::Used { slot }, scan.now);
        scan.run(at(10));
        assert_eq!(state_of(&scan.table, key), Some(State::Failed));
        scan.run(at(5));
        assert_eq!(state_of(&scan.table, key), Some(State::Failed));
    }
}

/// Known neighbours that never answer may be many, too: each fourth question is a stranger's.
#[test]
fn questions_for_known_neighbours_leave_a_share_to_strangers() {
    let config = TableConfig { questions_per_second: 100, questions_burst: 16, ..config() };
    let mut table = Table::new(config);
    let mut actions = Vec::new();
    for host in 0..2000 {
        table.pin(v4(0x0a00_0000 + host), at(0), &mut actions).expect("there is room");
    }
    let mut asked = [0, 0];
    for step in 0..4000 {
        let now = ms(step * 5);
        let mut actions = handle(&mut table, missing(v4(0x0b00_0000 + step as u32)), now);
        actions.extend(tick(&mut table, now));
        for action in actions {
            if let Action::Solicit { key, .. } = action {
                asked[usize::from(key >= v4(0x0b00_0000))] += 1;
            }
        }
    }
    let [known, strangers] = asked;
    assert!(strangers * 5 >= known && strangers * 3 <= known, "{known} known, {strangers} others");
}

/// A scan of one link, by a clock of its own.
struct Scan {
    table: Table,
    base: IpAddr,
    every: Duration,
    next: Duration,
    now: Duration,
    senders: Senders,
    /// How many addresses it draws from.
    addresses: u64,
    random: u64,
    questions: usize,
    /// Whether stations do not answer.
    is_silent: bool,
    /// Answers on their way.
    answers: BTreeMap<Duration, Key>,
}

#[derive(Clone, Copy, PartialEq)]
enum Senders {
    One,
    Spoofed,
}

/// Stations have the first addresses of a link, and the scan names others.
const STATIONS: u64 = 1 << 8;

impl Scan {
    fn new(base: IpAddr, per_second: u32, senders: Senders) -> Scan {
        Scan::of(base, per_second, senders, 1 << 40)
    }

    fn of(base: IpAddr, per_second: u32, senders: Senders, addresses: u64) -> Scan {
        let mut scan = Scan {
            table: Table::new(config()),
            base,
            every: at(1) / per_second,
            next: at(1),
            now: at(1),
            senders,
            addresses,
            random: 5,
            questions: 0,
            is_silent: false,
            answers: BTreeMap::new(),
        };
        scan.run(at(4)); // Long enough to fill what it can fill.
        scan
    }

    /// Lets the scan, and time, continue.
    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            let due = self.answers.keys().next().copied().unwrap_or(Duration::MAX);
            self.now = self.next.min(due).min(end);
            if let Some(key) = self.answers.remove(&self.now) {
                let actions = handle(&mut self.table, proof(key), self.now);
                self.follow(actions);
            }
            if self.now == self.next {
                self.next += self.every;
                let host = STATIONS + self.draw() % self.addresses;
                let key = self.station(host);
                let sender = self.draw();
                let requester = self.sender(sender);
                let actions = handle(&mut self.table, Report::Missing { key, requester }, self.now);
                self.follow(actions);
            }
            let actions = tick(&mut self.table, self.now);
            self.follow(actions);
        }
    }

    /// Sends a packet a second to a station, until it is resolved; says how long that takes.
    fn resolve(&mut self, station: u64, requester: Requester) -> Duration {
        let (key, start) = (self.station(station), self.now);
        for second in 0..60 {
            self.run(start + at(second) - self.now);
            let actions = handle(&mut self.table, Report::Missing { key, requester }, self.now);
            self.follow(actions);
            while self.now < start + at(second + 1) {
                if state_of(&self.table, key) == Some(State::Reachable) {
                    return self.now - start;
                }
                self.run(ms(1));
            }
        }
        panic!("{key} is not resolved after a minute");
    }

    fn follow(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Solicit { key, .. } => {
                    self.questions += 1;
                    if key < self.station(STATIONS) && !self.is_silent {
                        self.answers.insert(self.now + ms(1), key);
                    }
                }
                Action::Remove { slot, .. } => self.table.free(slot),
                Action::Publish { .. } => {}
            }
        }
    }

    /// Gives back the slots that `forget` has left.
    fn free(&mut self) {
        for slot in 0..self.table.slots.len() as u32 {
            if matches!(self.table.slots[slot as usize], Slot::Left) {
                self.table.free(slot);
            }
        }
    }

    fn station(&self, host: u64) -> Key {
        let addr = match self.base {
            IpAddr::V4(base) => {
                Ipv4Addr::from_bits(base.to_bits() + host as u32 % (1 << 24)).into()
            }
            IpAddr::V6(base) => Ipv6Addr::from_bits(base.to_bits() + u128::from(host)).into(),
        };
        Key { port: PortId(1), addr }
    }

    fn sender(&self, number: u64) -> Requester {
        let number = if self.senders == Senders::One { 0 } else { number };
        Requester::of(match self.base {
            IpAddr::V4(_) => Ipv4Addr::from_bits(0xc633_0000 ^ number as u32).into(),
            IpAddr::V6(_) => Ipv6Addr::from_bits(u128::from(number) << 64 | 9).into(),
        })
    }

    fn most_questions(&self) -> usize {
        let config = config();
        config.questions_burst as usize
            + self.now.as_millis() as usize * config.questions_per_second as usize / 1000
    }

    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

fn config() -> TableConfig {
    TableConfig { seed: 0x0123_4567_89ab_cdef, ..Default::default() }
}

fn links() -> [IpAddr; 2] {
    ["10.0.0.0", "2001:db8::"].map(|text| text.parse().expect("an address"))
}

fn proof(key: Key) -> Report {
    let kind = match key.addr {
        IpAddr::V4(_) => Kind::ArpReply,
        IpAddr::V6(_) => Kind::Advertisement { router: false, solicited: true, overrides: true },
    };
    Report::Answer { key, mac: Some(MAC), kind }
}
