//! The forwarding worker where the way is not ordinary: does it call the allocator there?
//!
//! Every fourth frame is odd, in turn: too old (an error goes back), larger than the exit's MTU (cut),
//! for us (an echo is answered), for a neighbour that nobody knows (held, and given up later), broken
//! (dropped). Time is the device's: each turn takes 10 ms of it, so that what waits for seconds
//! happens too.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use manylane::config::InterfaceAddress;
use manylane::control::routing::{RoutedPort, Routing, RoutingLimits, Told};
use manylane::stats::StatsReader;
use manylane::worker::{Clock, Worker};
use manylane_frame::vocabulary::{Created, DropReason, Offload, PortId};
use manylane_frame::{BATCH_MAX, Batch, Depot, HEADROOM, Pool, Region, RegionConfig};
use manylane_io::port::memory::{Next, Sink};
use manylane_net::forward::{Ipv4Interface, PortFacts};
use manylane_net::icmp::RateLimit;
use manylane_net::neighbour::Key;
use manylane_net::wire::ethernet::{self, Mac, ether_type};
use manylane_net::wire::icmp::kind::ECHO_REQUEST;
use manylane_net::wire::{icmp, ipv4, protocol};
use manylane_sync::rcu::Domain;

use crate::forward::worker;

const TURN_NS: u64 = 10_000_000;
const FRAMES: u32 = 4096;
const MTU: [u32; 2] = [1500, 576];
const STATIONS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 1, 0, 2)];
const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// Neighbours that never answer, one after the other.
const UNKNOWN: u8 = 8;

/// The worker, its tables and its clock.
pub struct Odd {
    /// Always there, until it ends.
    worker: Option<Worker>,
    stats: StatsReader,
    now_ns: u64,
    _routing: Routing,
}

impl Odd {
    /// Two ports, a station behind each.
    pub fn new() -> io::Result<Odd> {
        let domain = Domain::new(1);
        let limits =
            RoutingLimits { neighbours_max: 256, long_ipv4_routes: 1024, ipv6_routes: 1024 };
        let ports = [0, 1].map(port).into();
        let mut routing = Routing::new(&domain, ports, limits).map_err(io::Error::other)?;
        for (number, station) in (0..).zip(STATIONS) {
            let key = Key { port: PortId(number), addr: station.into() };
            let mac = mac(1, number).0;
            let set = routing.set_neighbour(key, mac, Duration::ZERO, &mut Told::default());
            set.map_err(io::Error::other)?;
        }
        let region = Region::new(RegionConfig { frames: FRAMES, frame_size: 2048 });
        let depot = Depot::new(region.map_err(io::Error::other)?, 1).expect("the region is new");
        let mut source = Source::new();
        let feed = move |pool: &mut Pool, batch: &mut Batch, _| source.fill(pool, batch);
        let sinks: [Sink; 2] = [Box::new(|_, _| {}), Box::new(|_, _| {})];
        let errors = RateLimit::new(0, u32::MAX >> 2); // Every one of them is sent.
        let clock = Clock::start();
        let (worker, stats) =
            worker(&domain, &routing, depot.pool(), vec![Box::new(feed)], sinks, errors, clock)?;
        Ok(Odd { worker: Some(worker), stats, now_ns: 0, _routing: routing })
    }

    /// See `Worker::turn`.
    pub fn turn(&mut self) -> usize {
        self.now_ns += TURN_NS;
        self.worker.as_mut().expect("it has not ended").turn(self.now_ns)
    }

    /// An error when one of the ways was not taken so far.
    pub fn check(&self) -> io::Result<()> {
        let port = PortId(0);
        let [errors, replies, fragments] = [Created::Error, Created::Reply, Created::Fragment]
            .map(|why| self.stats.created(port, why));
        let dropped = |why| self.stats.dropped(port, why);
        let broken = dropped(DropReason::Ipv4ChecksumInvalid);
        let given_up = dropped(DropReason::NeighbourFailed);
        let ways = [errors, replies, fragments, broken, given_up];
        match ways.contains(&0) {
            true => Err(io::Error::other(format!("an odd way was not taken: {ways:?}"))),
            false => Ok(()),
        }
    }
}

impl Drop for Odd {
    fn drop(&mut self) {
        // Its end drops what is held, by the ledger's rules.
        drop(self.worker.take().map(Worker::run));
    }
}

fn port(number: u16) -> RoutedPort {
    let addr = Ipv4Addr::new(10, number as u8, 0, 1);
    let link_local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, number + 1);
    RoutedPort {
        facts: PortFacts {
            mac: mac(0, number),
            mtu: MTU[usize::from(number)],
            offload: Offload::NONE,
            ipv4: vec![Ipv4Interface { addr, len: 16 }],
            ipv6: Vec::new(),
            link_local: Some(link_local),
            vlan: None,
            vlans: Vec::new(),
            anycast: Vec::new(),
        },
        addresses: vec![InterfaceAddress { address: addr.into(), length: 16 }],
    }
}

fn mac(whose: u8, port: u16) -> Mac {
    Mac([2, 0, 0, 0, whose, port as u8])
}

/// Frames, ready to be copied.
struct Source {
    ordinary: Vec<u8>,
    odd: Vec<Vec<u8>>,
    next: usize,
}

impl Source {
    fn new() -> Source {
        let ordinary = packet(STATIONS[1], 64, 64);
        let mut odd = vec![packet(STATIONS[1], 1, 64), packet(STATIONS[1], 64, 1514)];
        let mut echo = packet(OURS, 64, 64);
        echo[23] = protocol::ICMP;
        header(OURS, 64, protocol::ICMP, 64).emit(&mut echo[14..], 30).expect("it fits");
        icmp::emit(&mut echo[34..], ECHO_REQUEST, 0, 7).expect("it fits");
        odd.push(echo);
        odd.extend((0..UNKNOWN).map(|host| packet(Ipv4Addr::new(10, 1, 7, host + 1), 64, 64)));
        let mut broken = packet(STATIONS[1], 64, 64);
        broken[24] ^= 1; // Its header's checksum.
        odd.push(broken);
        Source { ordinary, odd, next: 0 }
    }

    fn fill(&mut self, pool: &mut Pool, batch: &mut Batch) -> Next {
        pool.take_into(batch, BATCH_MAX);
        for (number, frame) in batch.iter_mut().enumerate() {
            let bytes = if number % 4 == 0 {
                self.next = (self.next + 1) % self.odd.len();
                &self.odd[self.next]
            } else {
                &self.ordinary
            };
            pool.region().set_window(frame, HEADROOM, HEADROOM + bytes.len() as u16);
            pool.region().bytes_mut(frame).copy_from_slice(bytes);
        }
        Next::More
    }
}

/// A UDP packet from the station at port 0, in a frame of `len` bytes.
fn packet(destination: Ipv4Addr, ttl: u8, len: usize) -> Vec<u8> {
    let mut frame = vec![0; len];
    ethernet::emit(&mut frame, mac(0, 0), mac(1, 0), ether_type::IPV4).expect("it fits");
    let header = header(destination, ttl, protocol::UDP, len);
    header.emit(&mut frame[14..], len - 34).expect("it fits");
    frame
}

fn header(destination: Ipv4Addr, ttl: u8, protocol: u8, len: usize) -> ipv4::Header {
    ipv4::Header {
        tos: 0,
        identification: len as u16,
        dont_fragment: false,
        ttl,
        protocol,
        source: STATIONS[0],
        destination,
    }
}

#[cfg(test)]
mod tests {
    use manylane_net::neighbour::HOLD_MAX_NS;

    use super::*;

    #[test]
    fn every_odd_way_is_taken() {
        let mut odd = Odd::new().expect("8 MiB can be mapped");
        assert!(odd.check().is_err(), "nothing has come yet");
        // In turns, not seconds: a turn is 10 ms.
        let turns = HOLD_MAX_NS / TURN_NS + 100;
        assert!((0..turns).all(|_| odd.turn() >= BATCH_MAX));
        odd.check().expect("all have come");
    }
}
