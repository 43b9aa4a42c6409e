//! The forwarding worker off the fast path: does it call the allocator there?
//!
//! Every fourth frame is an exception, by turns: its TTL ends (the worker returns an error), it is larger than the
//! egress MTU (cut), for us (the worker answers an echo), for an unknown neighbour (held, and given up later), broken
//! (dropped). Time is the device's: each turn takes 10 ms of it, so that what takes seconds happens too.

use manylane_frame::vocabulary::{Created, DropReason};
use manylane_net::forward::{Ipv4Interface, PortFacts};
use manylane_net::icmp::RateLimit;
use manylane_net::wire::ethernet::{self, Mac, ether_type};
use manylane_net::wire::icmp::kind::ECHO_REQUEST;
use manylane_net::wire::{icmp, ipv4, protocol};
use manylane_router::config::InterfaceAddress;
use manylane_router::control::routing::RoutedPort;

use crate::packet;
use crate::prelude::*;
use crate::router::{self, Ground, Lane, Place, no_sinks};

const TURN_NS: u64 = 10_000_000;
const FRAMES: u32 = 4096;
const MTU: [u32; 2] = [1500, 576];
const STATIONS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 1, 0, 2)];
const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// Neighbours that never answer, one after the other.
const UNKNOWN: u8 = 8;

pub struct Exceptions {
    /// Some until it ends.
    worker: Option<Worker>,
    stats: StatsReader,
    now_ns: u64,
    _ground: Ground,
}

impl Exceptions {
    pub fn new() -> Result<Exceptions> {
        let mut ground = Ground::new(1, FRAMES, [0, 1].map(port).into())?;
        for (number, station) in (0..).zip(STATIONS) {
            ground.set_neighbour(PortId(number), station.into(), mac(1, number).0)?;
        }
        let mut source = Traffic::new();
        let feed: Source =
            Box::new(move |pool: &mut Pool, batch: &mut Batch, _| source.fill(pool, batch));
        let errors = RateLimit::new(0, u32::MAX >> 2); // Every one of them is sent.
        let Lane { worker, stats, .. } =
            ground.lane(Place { errors, ..Place::new(0, [feed], no_sinks())? })?;
        Ok(Exceptions { worker: Some(worker), stats, now_ns: 0, _ground: ground })
    }

    pub fn turn(&mut self) -> usize {
        self.now_ns += TURN_NS;
        self.worker.as_mut().expect("it has not ended").turn(self.now_ns)
    }

    /// An error when one kind of exception has not happened so far.
    pub fn check(&self) -> Result {
        let port = PortId(0);
        let [errors, replies, fragments] = [Created::Error, Created::Reply, Created::Fragment]
            .map(|why| self.stats.created(port, why));
        let dropped = |why| self.stats.dropped(port, why);
        let broken = dropped(DropReason::Ipv4ChecksumInvalid);
        let given_up = dropped(DropReason::NeighbourFailed);
        match [errors, replies, fragments, broken, given_up] {
            counts if counts.contains(&0) => {
                Err(format!("an exception did not happen: {counts:?}").into())
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Exceptions {
    fn drop(&mut self) {
        // Its end drops what is held, by the ledger's rules.
        drop(self.worker.take().map(Worker::run));
    }
}

fn port(number: u16) -> RoutedPort {
    let addr = Ipv4Addr::new(10, number as u8, 0, 1);
    let (mac, mtu) = (mac(0, number), MTU[usize::from(number)]);
    let ipv4 = vec![Ipv4Interface { addr, len: 16 }];
    let facts = PortFacts { mac, mtu, ipv4, ..router::port(number).facts };
    RoutedPort { facts, addresses: vec![InterfaceAddress { address: addr.into(), length: 16 }] }
}

fn mac(whose: u8, port: u16) -> Mac {
    Mac([2, 0, 0, 0, whose, port as u8])
}

/// Frames, ready to be copied.
struct Traffic {
    fast_path: Vec<u8>,
    exceptions: Vec<Vec<u8>>,
    next: usize,
}

impl Traffic {
    fn new() -> Traffic {
        let fast_path = packet(STATIONS[1], 64, 64);
        let mut exceptions = vec![packet(STATIONS[1], 1, 64), packet(STATIONS[1], 64, 1514)];
        let mut echo = packet(OURS, 64, 64);
        echo[23] = protocol::ICMP;
        header(OURS, 64, protocol::ICMP, 64).emit(&mut echo[14..], 30).expect("it fits");
        icmp::emit(&mut echo[34..], ECHO_REQUEST, 0, 7).expect("it fits");
        exceptions.push(echo);
        exceptions
            .extend((0..UNKNOWN).map(|host| packet(Ipv4Addr::new(10, 1, 7, host + 1), 64, 64)));
        let mut broken = packet(STATIONS[1], 64, 64);
        broken[24] ^= 1; // Its header's checksum.
        exceptions.push(broken);
        Traffic { fast_path, exceptions, next: 0 }
    }

    fn fill(&mut self, pool: &mut Pool, batch: &mut Batch) -> Next {
        pool.take_into(batch, BATCH_MAX);
        for (number, frame) in batch.iter_mut().enumerate() {
            let bytes = if number % 4 == 0 {
                self.next = (self.next + 1) % self.exceptions.len();
                &self.exceptions[self.next]
            } else {
                &self.fast_path
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
    let header = packet::ipv4(protocol, ttl, [STATIONS[0], destination]);
    ipv4::Header { identification: len as u16, ..header }
}

#[cfg(test)]
mod tests {
    use manylane_net::neighbour::HOLD_MAX_NS;

    use super::*;

    #[test]
    fn every_exception_happens() {
        let mut exceptions = Exceptions::new().expect("8 MiB can be mapped");
        assert!(exceptions.check().is_err(), "nothing has come yet");
        // In turns, not seconds: a turn is 10 ms.
        let turns = HOLD_MAX_NS / TURN_NS + 100;
        assert!((0..turns).all(|_| exceptions.turn() >= BATCH_MAX));
        exceptions.check().expect("all have come");
    }
}
