//! Neighbours that name themselves in every record, replaced while packets are tried.
//!
//! Neighbour n is behind 10.n.0.0/16. Its MAC address and ours name it and the version of its record, in
//! each of the three words that a record keeps them in: a packet of neighbour n whose addresses are not
//! those of one version was sent by a torn record, by two, or by another's.
#![allow(clippy::disallowed_types)] // Taken from `primitive`; clippy knows them by origin.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc::{Receiver, Sender};

use manylane_net::fib::{EditError, IpPrefix, NextHopId};
use manylane_net::nexthop::NextHop;
use manylane_net::transit::{Adjacency, TransitMut};
use manylane_net::wire::ethernet::Mac;
use manylane_sync::primitive::{AtomicU64, Ordering};

use crate::random::Random;

/// Few, so that each is changed again and again while a reader looks.
pub const NEIGHBOURS: usize = 3;

/// Which versions of each neighbour's record a packet may find.
pub struct Versions([Version; NEIGHBOURS]);

#[derive(Default)]
struct Version {
    /// Its publication has begun.
    begun: AtomicU64,
    /// The version is published, and the former is not.
    done: AtomicU64,
}

impl Versions {
    /// The first of each.
    pub fn new() -> Versions {
        Versions(std::array::from_fn(|_| Version::default()))
    }

    /// The oldest version that a reader may find when it begins to look now.
    pub fn oldest(&self, neighbour: usize) -> u64 {
        // SeqCst, all four: for a test, whose question is not the ordering of these.
        self.0[neighbour].done.load(Ordering::SeqCst)
    }

    /// The newest version that a reader may have found by now.
    pub fn newest(&self, neighbour: usize) -> u64 {
        self.0[neighbour].begun.load(Ordering::SeqCst)
    }
}

/// The way to a neighbour, by the record of this version.
pub fn way(neighbour: usize, version: u64) -> Adjacency {
    let [a, b, c, d, ..] = Random::of_packet(neighbour as u64, version).next().to_le_bytes();
    let [high, low] = (version as u16).to_be_bytes();
    let name = neighbour as u8;
    Adjacency {
        egress_ifindex: 1002,
        egress_port: 2,
        mtu: 1500,
        destination: Mac([2, name, high, low, a, b]),
        source: Mac([2, c, name, high, low, d]),
    }
}

/// The version of the record that sent this frame to a neighbour, if it was one of these.
pub fn version(frame: &[u8], neighbour: usize, [oldest, newest]: [u64; 2]) -> Option<u64> {
    let low = u16::from_be_bytes([frame[2], frame[3]]);
    let version = oldest + u64::from(low.wrapping_sub(oldest as u16));
    let expected = way(neighbour, version);
    let is_one = frame[..6] == expected.destination.0 && frame[6..12] == expected.source.0;
    (is_one && version <= newest).then_some(version)
}

/// An address behind a neighbour.
pub fn behind(neighbour: usize, random: &mut Random) -> Ipv4Addr {
    let [c, d] = random.word().to_be_bytes();
    Ipv4Addr::new(10, neighbour as u8, c & 3, d)
}

/// The thread that changes everything all the time.
pub struct Changer<'a> {
    pub tables: TransitMut,
    versions: &'a Versions,
    /// Rings the reclaim thread, and hears from it.
    bell: Sender<()>,
    over: Receiver<()>,
    is_rung: bool,
    now: Vec<Now>,
    /// How often an edit had to wait.
    pub busy: u64,
}

/// What is true of a neighbour.
struct Now {
    id: NextHopId,
    slot: u32,
    version: u64,
}

impl<'a> Changer<'a> {
    /// All neighbours there, by their first records.
    pub fn new(
        mut tables: TransitMut,
        versions: &'a Versions,
        bell: Sender<()>,
        over: Receiver<()>,
    ) -> Changer<'a> {
        let mut now = Vec::new();
        for neighbour in 0..NEIGHBOURS {
            let id = tables.take_id().expect("there are more");
            let slot = tables.take_slot().expect("there are more");
            tables.set_slot(slot, Some(way(neighbour, 0))).expect("there is room");
            tables.set_next_hop(id, NextHop::Via(slot));
            tables.insert(network(neighbour), id).expect("there is room");
            now.push(Now { id, slot, version: 0 });
        }
        Changer { tables, versions, bell, over, is_rung: false, now, busy: 0 }
    }

    /// One change; some are of several steps, as a mirror's are.
    pub fn change(&mut self, random: &mut Random) {
        let neighbour = random.below(NEIGHBOURS);
        match random.below(10) {
            // A new record in the same slot.
            0..5 => {
                let Now { slot, version, .. } = self.now[neighbour];
                self.publish(neighbour, |tables| {
                    tables.set_slot(slot, Some(way(neighbour, version + 1)))
                });
            }
            // Another slot.
            5..7 => self.move_to_another_slot(neighbour),
            // Another next-hop id.
            7 => self.move_to_another_id(neighbour),
            // Longer routes come and go, which moves lists about.
            _ => {
                let id = self.now[neighbour].id;
                let prefix = longer(neighbour, random);
                match random.percent(50) {
                    true => self.edit(|tables| tables.insert(prefix, id).map(drop)),
                    false => self.edit(|tables| tables.remove(prefix).map(drop)),
                }
            }
        }
        self.tables.reclaim();
        if self.tables.waiting() > 0 {
            self.ring();
        }
    }

    fn move_to_another_slot(&mut self, neighbour: usize) {
        let Now { id, slot: former, version } = self.now[neighbour];
        let slot = loop {
            match self.tables.take_slot() {
                Some(slot) => break slot,
                None => self.wait(),
            }
        };
        self.edit(|tables| tables.set_slot(slot, Some(way(neighbour, version + 1))));
        self.publish(neighbour, |tables| {
            tables.set_next_hop(id, NextHop::Via(slot));
            Ok(())
        });
        self.tables.retire_slot(former);
        self.now[neighbour].slot = slot;
    }

    /// All routes of the neighbour go over to it one by one; the record stays.
    fn move_to_another_id(&mut self, neighbour: usize) {
        let Now { id: former, slot, .. } = self.now[neighbour];
        let id = loop {
            match self.tables.take_id() {
                Some(id) => break id,
                None => self.wait(),
            }
        };
        self.tables.set_next_hop(id, NextHop::Via(slot));
        let routes = self.tables.routes4().filter(|&(_, of)| of == former);
        let prefixes: Vec<IpPrefix> = routes.map(|(prefix, _)| prefix.into()).collect();
        for prefix in prefixes {
            self.edit(|tables| tables.insert(prefix, id).map(drop));
        }
        self.tables.retire_id(former);
        self.now[neighbour].id = id;
    }

    /// Publishes the next version of a neighbour's record.
    fn publish(
        &mut self,
        neighbour: usize,
        edit: impl FnMut(&mut TransitMut) -> Result<(), EditError>,
    ) {
        let version = self.now[neighbour].version + 1;
        let Version { begun, done } = &self.versions.0[neighbour];
        begun.store(version, Ordering::SeqCst);
        self.edit(edit);
        done.store(version, Ordering::SeqCst);
        self.now[neighbour].version = version;
    }

    fn edit(&mut self, mut edit: impl FnMut(&mut TransitMut) -> Result<(), EditError>) {
        loop {
            match edit(&mut self.tables) {
                Ok(()) => return,
                Err(EditError::Busy { .. }) => self.wait(),
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Until the reclaim thread has seen to a grace period.
    fn wait(&mut self) {
        self.busy += 1;
        self.ring();
        self.over.recv().expect("the reclaim thread lives");
        self.is_rung = false;
        self.tables.reclaim();
    }

    fn ring(&mut self) {
        if self.over.try_recv().is_ok() {
            self.is_rung = false;
        }
        if !self.is_rung {
            self.bell.send(()).expect("the reclaim thread lives");
            self.is_rung = true;
        }
    }
}

fn network(neighbour: usize) -> IpPrefix {
    let first = Ipv4Addr::new(10, neighbour as u8, 0, 0);
    IpPrefix::new(first.into(), 16).expect("no bits below")
}

/// A route to the same neighbour, for a part of its addresses.
fn longer(neighbour: usize, random: &mut Random) -> IpPrefix {
    let len = 24 + random.below(9) as u8;
    let address = behind(neighbour, random).to_bits() & u32::MAX << (32 - len);
    IpPrefix::new(IpAddr::V4(address.into()), len).expect("no bits below")
}
