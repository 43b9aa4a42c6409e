//! The program that forwards in the kernel and its twin in `manylane-net` decide alike: millions of packets
//! through both, over the same memory, and whatever is different is shown.
//!
//! | test                                    | the claim                                                |
//! |-----------------------------------------|----------------------------------------------------------|
//! | `the_program_decides_as_its_twin`       | verdict, counters, bytes, priority and exit are equal    |
//! | `flows_are_followed_as_by_the_twin`     | ... also of what follows a flow, at ingress and in the driver |
//! | `with_tags_too`                         | ... also of what comes with a VLAN tag                   |
//! | `in_the_driver_as_its_twin`             | ... and of what comes to the program in the driver (XDP) |
//! | `a_difference_would_be_found`, `a_difference_of_a_flow_would_be_found` | ... and if they were not, that would be seen |
//! | `what_it_forwards_is_forwarded`         | `forward` would send it to the same neighbour, as it is  |
//! | `no_record_is_used_half_or_too_late`    | under changes, a packet is sent by one record, that was true |
//!
//! All but `what_it_forwards_is_forwarded` need root. A failure shows its packet, and by which seed it came:
//!
//! | variable              | for                                             |
//! |-----------------------|-------------------------------------------------|
//! | `MANYLANE_SEED`       | other packets than every run's                  |
//! | `MANYLANE_PACKETS`    | this number of them                             |
//! | `MANYLANE_BPF_OBJECT` | another object of the program, such as a mutant |

use std::collections::BTreeMap;
use std::env;
use std::net::Ipv4Addr;
use std::sync::mpsc::{self, TryRecvError};
use std::thread;
use std::time::Instant;

use super::changes::{Changer, NEIGHBOURS, Versions, behind, version};
use super::driver::{Became, InDriver};
use super::forwarder::{Engine, PACKET_MAX, Sent};
use super::packets::{Choice, Packet, packet};
use super::program::{Difference, Lab, Program};
use super::world::{PORTS, World, sizes};
use crate::random::Random;
use manylane_lab::scenario::skip;
use manylane_net::fib::{IpPrefix, Limits};
use manylane_net::transit::layout::flags::{
    DRIVER_EGRESS, DRIVER_INGRESS, EGRESS, FORWARDING_V4, INGRESS, RP_STRICT,
};
use manylane_net::transit::{
    Action, Adjacency, Arrival, Memory, PortRecord, Rule, TransitMut, Verdict,
};
use manylane_net::wire::ethernet::{self, Mac, ether_type};
use manylane_net::wire::{ip, ipv4, protocol};
use manylane_sync::rcu::Domain;

/// Packets between two changes of the world.
const EPOCH: u64 = 1000;

#[test]
fn the_program_decides_as_its_twin() {
    // A tag comes with none of these.
    agree(false, number("MANYLANE_PACKETS", 2_000_000), &[Verdict::UnknownVlan]);
}

#[test]
fn with_tags_too() {
    agree(true, number("MANYLANE_PACKETS", 300_000), &[]);
}

/// The program in the driver counts only what it forwards: what is equal are action and bytes.
#[test]
fn in_the_driver_as_its_twin() {
    let Some((lab, program, memory)) = lab(false) else { return };
    let Lab { host, interfaces, stranger } = lab;
    host.run(move || {
        let seed = number("MANYLANE_SEED", 1);
        let packets = number("MANYLANE_PACKETS", 500_000);
        let mut changes = Random::of_packet(seed, u64::MAX);
        let mut world = World::new(memory, &interfaces, &mut changes);
        let driver = InDriver::load(&program, &interfaces);
        let mut became = BTreeMap::<Option<Became>, u64>::new();
        for number in 0..packets {
            if number % EPOCH == 0 {
                world.change(30, &mut changes);
            }
            let mut packet = nth(&world, Choice { tags: false, stranger }, seed, number);
            packet.arrival.gso_size = 0; // The packet stands for itself.
            if packet.frame.len() > IN_ONE_PIECE {
                continue;
            }
            match driver.compare(&world, &packet) {
                Ok(outcome) => *became.entry(outcome).or_default() += 1,
                Err(difference) => panic!("packet {number} of seed {seed}: {difference}"),
            }
        }
        println!("{became:?}");
        for (wanted, one_in) in [
            (Became::Forwarded, 50),
            (Became::HandedUp, 50),
            (Became::OtherWay, 50),
            (Became::Passed, 50),
            (Became::Partial, 2000),
        ] {
            let many = became.get(&Some(wanted)).is_some_and(|&many| many > packets / one_in);
            assert!(many, "{wanted:?}: {became:?}");
        }
    });
}

/// The longest frame that a test run has in one piece.
const IN_ONE_PIECE: usize = 3000;

/// What no packet of these can meet: it is for other tiers.
const NEVER: Verdict = Verdict::DecisionChanged;

/// Tries `packets` packets in both ways; each verdict must come, but those that cannot.
fn agree(tags: bool, packets: u64, without: &'static [Verdict]) {
    let Some((lab, mut program, memory)) = lab(tags) else { return };
    let Lab { host, interfaces, stranger } = lab;
    host.run(move || {
        let seed = number("MANYLANE_SEED", 1);
        let mut changes = Random::of_packet(seed, u64::MAX);
        let mut world = World::new(memory, &interfaces, &mut changes);
        let mut met = [0u64; Verdict::ALL.len()];
        let (mut short, mut counted, started) = (0, 0, Instant::now());
        for number in 0..packets {
            if number % EPOCH == 0 {
                world.change(30, &mut changes);
            }
            let packet = nth(&world, Choice { tags, stranger }, seed, number);
            // Not of every packet, since sums over all flows take longer than the packet.
            let followed = number.is_multiple_of(20).then(|| world.followed());
            match compare(&mut program, &world, &packet) {
                Ok(Some(verdict)) => {
                    met[verdict.number()] += 1;
                    if let Some((packets, bytes)) = followed {
                        let len = len_of_flow(&world, &packet, verdict);
                        let sums = (packets + u64::from(len.is_some()), bytes + len.unwrap_or(0));
                        assert_eq!(world.followed(), sums, "packet {number} of seed {seed}");
                        counted += u64::from(len.is_some());
                    }
                }
                Ok(None) => short += 1,
                Err(difference) => panic!("packet {number} of seed {seed}: {difference}"),
            }
        }
        println!(
            "{packets} packets in {:?}, {short} too short; {counted} looked at as a flow's",
            started.elapsed()
        );
        assert!(counted > packets / 20_000, "{counted}");
        for &verdict in Verdict::ALL {
            println!("{:>9} {verdict}", met[verdict.number()]);
            let can_be = verdict != NEVER && !without.contains(&verdict);
            let wanted = if can_be { packets / 3000 } else { 0 };
            assert!(met[verdict.number()] >= wanted, "only {} {verdict}", met[verdict.number()]);
            assert!(can_be || met[verdict.number()] == 0, "{verdict} cannot be");
        }
    });
}

/// Bytes from the IP header on, of a packet that has followed a flow.
fn len_of_flow(world: &World, packet: &Packet, verdict: Verdict) -> Option<u64> {
    let view = ip::View::checked(packet.frame.get(14..)?)?;
    let needs = match view {
        ip::View::V4(_) => world.required().ipv4,
        ip::View::V6(_) => world.required().ipv6,
    };
    (needs && verdict == Verdict::Forwarded).then_some(view.packet_len() as u64)
}

fn nth(world: &World, choice: Choice, seed: u64, number: u64) -> Packet {
    packet(world, choice, &mut Random::of_packet(seed, number))
}

fn compare(
    program: &mut Program,
    world: &World,
    packet: &Packet,
) -> Result<Option<Verdict>, Box<Difference>> {
    let entry = packet.arrival.tag.is_none().then(|| world.port_of(packet.arrival.ifindex));
    program.compare(&world.transit, world.reader.guard(), packet, entry)
}

/// A test of the test: the twin reads tables of its own, equal but for one thing.
#[test]
fn a_difference_would_be_found() {
    type Plant = (&'static str, fn(&mut World));
    let plants: [Plant; 10] = [
        ("nothing", |_| {}),
        ("an MTU", |world| each_way(world, |way| way.mtu -= 1)),
        ("a bit of an address", |world| each_way(world, |way| way.source.0[5] ^= 0x80)),
        ("an exit", |world| each_way(world, |way| way.egress_ifindex += 1)),
        ("the seed", |world| world.tables.set_seed(world.seed ^ 1 << 63)),
        ("a route", |world| {
            let prefix: IpPrefix = "10.0.0.0/8".parse().expect("a prefix");
            let id = world.ids[0];
            world.tables.insert(prefix, id).expect("there is room");
            world.tables.set_next_hop(id, manylane_net::nexthop::NextHop::Kernel);
        }),
        ("a port's setting", |world| {
            let facts = world.tables.port(1);
            world.tables.set_port(1, PortRecord { flags: facts.flags ^ RP_STRICT, ..facts });
        }),
        ("a rule", |world| {
            let from = Some("10.0.0.0/9".parse().expect("a prefix"));
            let rules = [Rule { from, ..Rule::all(Action::Kernel) }, Rule::all(Action::Merged)];
            world.tables.set_rules(false, &rules).expect("a list is free");
        }),
        ("a further table", |world| {
            let table = world.further[1][0];
            let id = world.tables.take_id().expect("there are more");
            world.tables.set_next_hop(id, manylane_net::nexthop::NextHop::Kernel);
            let routes = [("2001:db8::/33".parse().expect("a prefix"), id)];
            world.tables.set_table(table, routes).expect("there is room");
            let rules = [Rule::all(Action::Table(table)), Rule::all(Action::Merged)];
            world.tables.set_rules(true, &rules).expect("a list is free");
        }),
        ("the lease", |world| world.tables.set_lease(0, 0)),
    ];
    let Some((lab, mut program, memory)) = lab(false) else { return };
    let Lab { host, interfaces, stranger } = lab;
    host.run(move || {
        let random = || Random::of_packet(7, u64::MAX);
        let mut world = World::new(memory, &interfaces, &mut random());
        world.open();
        let mut found = |plant: fn(&mut World)| {
            let memory = Memory::zeroed(&sizes());
            let mut planted = World::new(memory, &interfaces, &mut random());
            planted.open();
            plant(&mut planted);
            (0..20_000).find(|&number| {
                let packet = nth(&world, Choice { tags: false, stranger }, 7, number);
                compare(&mut program, &planted, &packet).is_err()
            })
        };
        for (what, plant) in plants {
            let found = found(plant);
            println!("{what}: found at packet {found:?}");
            assert_eq!(found.is_none(), what == "nothing", "{what}: {found:?}");
        }
    });
}

/// Nothing but flows keeps these packets in the kernel: most of them follow one.
#[test]
fn flows_are_followed_as_by_the_twin() {
    let Some((lab, mut program, memory)) = lab(false) else { return };
    let Lab { host, interfaces, stranger } = lab;
    host.run(move || {
        let seed = number("MANYLANE_SEED", 1);
        let packets = number("MANYLANE_PACKETS", 400_000);
        let mut changes = Random::of_packet(seed, u64::MAX);
        let mut world = World::new(memory, &interfaces, &mut changes);
        world.open();
        world.require_flows(1);
        for port in 1..PORTS {
            let facts = world.tables.port(port);
            let flags = facts.flags | DRIVER_INGRESS | DRIVER_EGRESS;
            world.tables.set_port(port, PortRecord { flags, ..facts });
        }
        let driver = InDriver::load(&program, &interfaces);
        let [mut followed, mut in_driver] = [0; 2];
        for number in 0..packets {
            if number % EPOCH == 0 {
                world.change(0, &mut changes);
            }
            let mut packet = nth(&world, Choice { tags: false, stranger }, seed, number);
            match compare(&mut program, &world, &packet) {
                Ok(verdict) => followed += u64::from(verdict == Some(Verdict::Forwarded)),
                Err(difference) => panic!("packet {number} of seed {seed}: {difference}"),
            }
            packet.arrival.gso_size = 0;
            if packet.frame.len() > IN_ONE_PIECE {
                continue;
            }
            match driver.compare(&world, &packet) {
                Ok(outcome) => in_driver += u64::from(outcome == Some(Became::Forwarded)),
                Err(difference) => panic!("packet {number} of seed {seed}: {difference}"),
            }
        }
        println!("{followed} and {in_driver} of {packets} have followed a flow");
        assert!(followed > packets / 40 && in_driver > packets / 400, "{followed}, {in_driver}");
    });
}

/// A test of the test for flows. Without packets that close: the program notes them in its own table only.
#[test]
fn a_difference_of_a_flow_would_be_found() {
    type Plant = (&'static str, fn(&mut World));
    let plants: [Plant; 5] = [
        ("nothing", |_| {}),
        ("the generation", |world| world.require_flows(2)),
        ("an approved port", |world| world.approve_otherwise()),
        ("a translated port", |world| {
            world.connect_otherwise(|flow| flow.reply.destination_port ^= 1);
        }),
        ("a flow's protocol", |world| {
            world.connect_otherwise(|flow| {
                flow.original.protocol ^= 6 ^ 17;
                flow.reply.protocol ^= 6 ^ 17;
            });
        }),
    ];
    let Some((lab, mut program, memory)) = lab(false) else { return };
    let Lab { host, interfaces, stranger } = lab;
    host.run(move || {
        let random = || Random::of_packet(9, u64::MAX);
        let mut world = World::new(memory, &interfaces, &mut random());
        world.open();
        world.require_flows(1);
        for (what, plant) in plants {
            let mut planted = World::new(Memory::zeroed(&sizes()), &interfaces, &mut random());
            planted.open();
            planted.require_flows(1);
            plant(&mut planted);
            let found = (0..60_000).find(|&number| {
                let packet = nth(&world, Choice { tags: false, stranger }, 9, number);
                let flags = |at: usize| packet.frame.get(at).is_some_and(|flags| flags & 7 != 0);
                // Where IPv4's and IPv6's TCP flags are.
                !flags(14 + 20 + 13)
                    && !flags(14 + 40 + 13)
                    && compare(&mut program, &planted, &packet).is_err()
            });
            println!("{what}: found at packet {found:?}");
            assert_eq!(found.is_none(), what == "nothing", "{what}: {found:?}");
        }
    });
}

/// Changes every neighbour's record.
fn each_way(world: &mut World, change: impl Fn(&mut Adjacency)) {
    for &slot in &world.slots {
        if let Some(mut way) = world.tables.adjacency(slot) {
            change(&mut way);
            world.tables.set_slot(slot, Some(way)).expect("there is room");
        }
    }
}

/// Whatever the twin forwards, the rules of a router in full forward too: to the same neighbour, with the
/// same bytes. Behind the packet may be padding, which they take off.
#[test]
fn what_it_forwards_is_forwarded() {
    const WORLDS: u64 = 4;
    const PACKETS: u64 = 100_000;

    for seed in 0..WORLDS {
        let random = &mut Random::of_packet(seed, u64::MAX);
        let interfaces = [11, 12, 13, 14, 15, 16];
        let mut world = World::new(Memory::zeroed(&sizes()), &interfaces, random);
        world.open();
        let [mut ipv4, mut ipv6] = Engine::both(&world);
        let mut forwarded = 0;
        for number in 0..PACKETS {
            let packet = nth(&world, Choice { tags: false, stranger: 17 }, seed, number);
            let mut frame = packet.frame.clone();
            let guard = world.reader.guard();
            let (verdict, exit) = world.transit.decide(guard, &mut frame, &packet.arrival);
            if verdict != Verdict::Forwarded || frame.len() > PACKET_MAX {
                continue;
            }
            let view = ip::View::checked(&frame[14..]).expect("it is a packet");
            let engine = match view {
                ip::View::V4(_) => &mut ipv4,
                ip::View::V6(_) => &mut ipv6,
            };
            let exit = (exit.expect("it is forwarded") - 1000) as u16;
            let ours = Sent { exit, frame: frame[..14 + view.packet_len()].to_vec() };
            let theirs = engine.forward(&packet, world.port_of(packet.arrival.ifindex));
            assert_eq!(theirs, Ok(ours), "packet {number} of seed {seed}: {packet:02x?}");
            forwarded += 1;
        }
        println!("{forwarded} of {PACKETS} are forwarded, by both");
        assert!(forwarded > PACKETS / 4, "{forwarded} of {PACKETS}");
    }
}

/// One thread replaces records, slots, ids and routes as fast as grace periods allow. Every packet that is
/// forwarded meanwhile, by the program or by its twin, was sent by one record of its own neighbour, of a
/// version that was there while it was tried.
#[test]
fn no_record_is_used_half_or_too_late() {
    const CHANGES: u64 = 30_000;
    const PACKETS: u64 = 300_000;

    let Some((lab, mut program, memory)) = lab(false) else { return };
    let Lab { host, interfaces, .. } = lab;
    host.run(move || {
        let domain = Domain::new(2);
        let mut proxy = domain.proxy().expect("the first fits");
        let mut reader = domain.register().expect("there is room for two");
        let mut tables = TransitMut::new(memory, domain, &Limits::default());
        for (port, &ifindex) in [1, 2].into_iter().zip(&interfaces) {
            let flags = INGRESS | EGRESS | FORWARDING_V4;
            tables.set_port(port, PortRecord { flags, ifindex, mac: Mac([2, 0, 0, 0, 0, 1]) });
            assert!(tables.set_port_of(ifindex, Some(port)));
        }
        tables.set_lease(u64::MAX, u64::MAX);
        let (twin, versions) = (tables.reader(), Versions::new());
        let ((bell, rung), (said, over)) = (mpsc::channel(), mpsc::channel());
        let (enough, until) = mpsc::channel();
        let mut grace = program.grace();
        let changer = Changer::new(tables, &versions, bell, over);
        thread::scope(|scope| {
            let enough = enough; // Gone with a panic here, so that the changer ends.
            scope.spawn(move || {
                // Ends when the changer's bell is gone.
                while rung.recv().is_ok() {
                    let token = proxy.begin();
                    grace.wait().expect("the kernel waits");
                    proxy.end(token);
                    let _ = said.send(()); // The changer may have ended.
                }
            });
            let changes = scope.spawn(move || {
                let (mut changer, mut random) = (changer, Random::of_packet(3, 0));
                let (started, mut changes) = (Instant::now(), 0);
                while changes < CHANGES || until.try_recv() == Err(TryRecvError::Empty) {
                    changer.change(&mut random);
                    changes += 1;
                }
                (changes, started.elapsed(), changer.busy)
            });
            let (mut random, mut tried) = (Random::of_packet(4, 0), 0);
            let mut forwarded = [0u64; 2];
            while !changes.is_finished() {
                let neighbour = random.below(NEIGHBOURS);
                let packet = to(behind(neighbour, &mut random), interfaces[0]);
                let oldest = versions.oldest(neighbour);
                let mut frame = packet.frame.clone();
                let (verdict, _) = twin.decide(reader.guard(), &mut frame, &packet.arrival);
                let by_twin = (verdict == Verdict::Forwarded).then_some(frame);
                reader.quiescent();
                let made = program.make(&packet).expect("it is long enough");
                let by_program = (made.verdict == Some(Verdict::Forwarded)).then_some(made.frame);
                let newest = versions.newest(neighbour);
                for (who, frame) in [by_twin, by_program].into_iter().enumerate() {
                    let Some(frame) = frame else { continue };
                    assert!(
                        version(&frame, neighbour, [oldest, newest]).is_some(),
                        "{}: to neighbour {neighbour} by none of versions {oldest} to {newest}: {:02x?}",
                        ["twin", "program"][who],
                        &frame[..12]
                    );
                    forwarded[who] += 1;
                }
                tried += 1;
                if tried == PACKETS {
                    enough.send(()).expect("the changer waits for it");
                }
            }
            let (changes, elapsed, busy) = changes.join().expect("the changer does not panic");
            let rate = changes as f64 / elapsed.as_secs_f64();
            println!("{changes} changes, {rate:.0} a second, {busy} waits; {tried} packets");
            // A neighbour is always there.
            assert_eq!(forwarded, [tried; 2]);
        });
    });
}

/// A packet to an address.
fn to(destination: Ipv4Addr, ifindex: u32) -> Packet {
    let mut frame = vec![0; 60];
    let ours = Mac([2, 0, 0, 0, 0, 1]);
    ethernet::emit(&mut frame, ours, Mac([2, 9, 9, 9, 9, 9]), ether_type::IPV4).expect("it fits");
    let header = ipv4::Header {
        tos: 0,
        identification: 0,
        dont_fragment: true,
        ttl: 64,
        protocol: protocol::UDP,
        source: Ipv4Addr::new(192, 0, 2, 1),
        destination,
    };
    header.emit(&mut frame[14..], 26).expect("it fits");
    let arrival = Arrival { ifindex, now_ns: 0, tag: None, gso_size: 0 };
    Packet { frame, arrival, is_summed: false, priority: 0 }
}

/// The program and where it is tried, or a line that says why not.
fn lab(tags: bool) -> Option<(Lab, Program, Memory)> {
    let lab = Lab::new().map_err(skip).ok()?;
    match Program::load(tags) {
        Ok((program, memory)) => Some((lab, program, memory)),
        Err(error) if error.is_by_verifier() => panic!("{error}"),
        Err(error) => {
            skip(error);
            None
        }
    }
}

/// A number that a variable may say.
fn number(variable: &str, otherwise: u64) -> u64 {
    match env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")),
        Err(_) => otherwise,
    }
}
