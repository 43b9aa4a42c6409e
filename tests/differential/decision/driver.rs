//! The program in the driver, tried on a packet: it forwards what its twin would forward, where both ports may have
//! it done there, hands that up to workers as it came, where they have both, and passes everything else on as it came:
//! also what has a checksum that is still to be filled in, which it counts.

use std::os::fd::{AsFd, OwnedFd};

use manylane_accelerate::programs::{
    Driver, DriverCounters, Heartbeat, PASS, REDIRECTED, SocketMap, TryOptions, WORKER_FRAME,
    Workers,
};
use manylane_net::transit::layout::flags::{
    DRIVER_EGRESS, DRIVER_INGRESS, WORKERS_EGRESS, WORKERS_INGRESS,
};
use manylane_net::transit::{Verdict, has_partial_checksum};
use manylane_net::wire::ethernet::ether_type;
use rustix::net::{AddressFamily, SocketType, socket};

use super::packets::Packet;
use super::program::Program;
use super::world::{DEVICES, PORTS, World};

/// What is tried.
pub struct InDriver {
    driver: Driver,
    counters: DriverCounters,
    /// The port whose device is not in the map.
    absent: u16,
    /// The port whose worker does not turn.
    hung: u16,
    /// The port without a socket.
    without: u16,
    _workers: (SocketMap, Vec<Heartbeat>),
    /// The map holds none that is closed.
    _socket: OwnedFd,
}

/// What became of a packet, for the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Became {
    /// Forwarded in the driver.
    Forwarded,
    /// Handed up to a worker.
    HandedUp,
    /// Forwarded by the twin, and not here: its checksum is still to be filled in.
    Partial,
    /// Forwarded by the twin, and not here: a port may not, or the device is not there.
    OtherWay,
    /// The twin does not forward it.
    Passed,
}

impl InDriver {
    /// Over the tables of `program`; in the map of devices is each port but one.
    pub fn load(program: &Program, interfaces: &[u32]) -> InDriver {
        let mut driver = program.driver();
        let absent = PORTS - 1;
        let (hung, without) = (1, 2);
        let Workers { mut socket_workers, mut heartbeats } =
            driver.take_workers().expect("nobody has them");
        // The map takes any of the family.
        let any = socket(AddressFamily::XDP, SocketType::RAW, None).expect("root may");
        for port in (1..PORTS).filter(|&port| port != without) {
            let worker = usize::from(port == hung);
            socket_workers.open(port, 0, any.as_fd(), worker).expect("there is a place");
        }
        heartbeats[0].set_accepting(u64::MAX);
        heartbeats[1].set_accepting(1);

        for port in (1..PORTS).filter(|&port| port != absent) {
            let interface = interfaces[usize::from(port % DEVICES)];
            driver.set_device(port, Some(interface)).expect("it is there");
        }
        InDriver {
            counters: driver.counters(),
            driver,
            absent,
            hung,
            without,
            _workers: (socket_workers, heartbeats),
            _socket: any,
        }
    }

    /// Tries a packet without a tag, which is no segments, in both ways: by the program for whole frames, and by that
    /// for pieces. An error says how they differ.
    pub fn compare(&self, world: &World, packet: &Packet) -> Result<Option<Became>, String> {
        let (became, wanted) = self.expected(world, packet);
        let action = match became {
            Became::Forwarded | Became::HandedUp => REDIRECTED,
            Became::Partial | Became::OtherWay | Became::Passed => PASS,
        };
        let number = world.port_of(packet.arrival.ifindex);
        let partial = || self.counters.port(number).partial;
        let before = partial();
        let options = TryOptions { ifindex: packet.arrival.ifindex, ..TryOptions::default() };
        for pieces in [false, true] {
            match self.driver.try_frame(&packet.frame, &options, pieces) {
                Ok(made) if made == (action, wanted.clone()) => {}
                Ok((did, made)) => {
                    return Err(format!(
                        "{packet:?}: by the twin it is {became:?}, so {action} and\n  {wanted:02x?}; the program \
                         (pieces: {pieces}) did {did}, and made\n  {made:02x?}"
                    ));
                }
                Err(_) if packet.frame.len() < SHORTEST => return Ok(None),
                Err(error) => return Err(format!("{error}: {packet:?}")),
            }
        }
        // By each of the two programs.
        let counted = partial() - before;
        match counted == 2 * u64::from(became == Became::Partial) {
            true => Ok(Some(became)),
            false => Err(format!("{packet:?}: {became:?}, and {counted} counted as partial")),
        }
    }

    /// What becomes of a packet by the twin, and its bytes afterwards.
    fn expected(&self, world: &World, packet: &Packet) -> (Became, Vec<u8>) {
        let mut frame = packet.frame.clone();
        let guard = world.reader.guard();
        let (verdict, exit) = world.transit.decide(guard, &mut frame, &packet.arrival);
        let became = match (verdict, exit) {
            (Verdict::Forwarded, Some(interface)) => self.way(world, packet, interface),
            _ => Became::Passed,
        };
        (became, if became == Became::Forwarded { frame } else { packet.frame.clone() })
    }

    /// The way of a packet that the twin forwards by this interface.
    fn way(&self, world: &World, packet: &Packet, interface: u32) -> Became {
        let number = world.port_of(packet.arrival.ifindex);
        let (entry, port) = (world.tables.port(number), (interface - 1000) as u16);
        let record = world.tables.port(port);
        let by_workers = entry.flags & WORKERS_INGRESS != 0;
        let may = match by_workers {
            true => record.flags & WORKERS_EGRESS != 0,
            false => entry.flags & DRIVER_INGRESS != 0 && record.flags & DRIVER_EGRESS != 0,
        };
        let needs_flow = match packet.frame[12..14] == ether_type::IPV6.to_be_bytes() {
            true => world.required().ipv6,
            false => world.required().ipv4,
        };
        let fits = packet.frame.len() <= WORKER_FRAME as usize - 256;
        let takes = number != self.hung && number != self.without && fits;
        match may && record.ifindex == interface {
            false => Became::OtherWay,
            true if has_partial_checksum(&packet.frame) => Became::Partial,
            // Workers follow no flows.
            true if by_workers && takes && !needs_flow => Became::HandedUp,
            true if !by_workers && port != self.absent => Became::Forwarded,
            true => Became::OtherWay,
        }
    }
}

/// The kernel tries no shorter frame (`bpf_prog_test_run_xdp`).
const SHORTEST: usize = 14;
